/* A sweep's points for people.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "recipe/bench.h"
#include "recipe/outlook.h"

enum { CELL = 32, COLUMNS = 11 };

static const struct column {
    const char *title;
    int width;
    enum ebb_results_field field;
    enum { BYTES, TIME, SPEED, LOSS } kind;
    enum { ALWAYS, PROCESS, MOVES } when; /* shown where it says something */
} columns[COLUMNS] = {
    {"peak", 10, EBB_RESULTS_PEAK, BYTES, ALWAYS},
    {"process", 10, EBB_RESULTS_PROCESS, BYTES, PROCESS},
    {"resident", 10, EBB_RESULTS_RESIDENT, BYTES, ALWAYS},
    {"eval", 10, EBB_RESULTS_EVAL_PEAK, BYTES, ALWAYS},
    {"host", 10, EBB_RESULTS_HOST, BYTES, MOVES},
    {"out", 10, EBB_RESULTS_BYTES_OUT, BYTES, MOVES},
    {"in", 10, EBB_RESULTS_BYTES_IN, BYTES, MOVES},
    {"stall", 9, EBB_RESULTS_STALL, TIME, MOVES},
    {"step", 9, EBB_RESULTS_SECONDS, TIME, ALWAYS},
    {"tokens/s", 9, EBB_RESULTS_SPEED, SPEED, ALWAYS},
    {"loss", 8, EBB_RESULTS_LOSS, LOSS, ALWAYS},
};

static const char *cell_text(const struct column *column, double value, char out[CELL])
{
    if (!isfinite(value))
        snprintf(out, CELL, "-");
    else if (column->kind == BYTES)
        ebb_text_bytes((int64_t)value, out, CELL);
    else if (column->kind == TIME)
        ebb_outlook_time(value, out);
    else
        snprintf(out, CELL, column->kind == LOSS ? "%.4f" : "%.0f", value);
    return out;
}

static bool is_shown(const struct ebb_results *results, const struct column *column)
{
    if (column->when == ALWAYS) return true;
    for (int64_t s = 0; s < results->count; s++)
        for (int64_t i = 0; i < results->series[s].count; i++) {
            const double *values = results->series[s].points[i].values;
            if (column->when == PROCESS && isfinite(values[EBB_RESULTS_PROCESS])) return true;
            if (column->when == MOVES && values[EBB_RESULTS_HOST] > 0) return true;
        }
    return false;
}

static enum ebb_status add_place(struct ebb_ctx *ctx, const struct ebb_results *results,
                                 double place, struct ebb_str *out)
{
    char text[CELL];
    if (results->kind == EBB_RESULTS_OF_LENGTHS)
        snprintf(text, sizeof text, "%.0f", place);
    else
        ebb_text_bytes((int64_t)place, text, sizeof text);
    return ebb_str_addf(ctx, out, "  %10s", text);
}

static enum ebb_status add_points(struct ebb_ctx *ctx, const struct ebb_results *results,
                                  const struct ebb_results_series *series, struct ebb_str *out)
{
    char text[CELL];
    EBB_TRY(ebb_str_addf(ctx, out, "%s\n", series->name));
    for (int64_t i = 0; i < series->count; i++) {
        const struct ebb_results_point *point = &series->points[i];
        EBB_TRY(add_place(ctx, results, ebb_results_place(results->kind, point), out));
        for (int c = 0; c < COLUMNS; c++)
            if (is_shown(results, &columns[c]))
                EBB_TRY(
                    ebb_str_addf(ctx, out, "%*s", columns[c].width,
                                 cell_text(&columns[c], point->values[columns[c].field], text)));
        EBB_TRY(ebb_str_addf(ctx, out, "\n"));
    }
    return EBB_OK;
}

static enum ebb_status add_end(struct ebb_ctx *ctx, const struct ebb_results *results,
                               const struct ebb_results_series *series, struct ebb_str *out)
{
    const char *reason = series->reason ? series->reason : "it ended";
    const bool failed = series->status && strcmp(series->status, "failed") == 0;
    char size[CELL];
    if (!isfinite(series->ended_at)) return EBB_OK;
    if (results->kind == EBB_RESULTS_OF_LENGTHS)
        return ebb_str_addf(ctx, out, "%s %s at %.0f tokens: %s\n", series->name,
                            failed ? "failed" : "stops fitting", series->ended_at, reason);
    return ebb_str_addf(ctx, out, "%s %s within %s: %s\n", series->name,
                        failed ? "failed" : "does not fit",
                        ebb_text_bytes((int64_t)series->ended_at, size, sizeof size), reason);
}

enum ebb_status ebb_bench_table(struct ebb_ctx *ctx, const struct ebb_results *results,
                                struct ebb_str *out)
{
    const bool lengths = results->kind == EBB_RESULTS_OF_LENGTHS;
    EBB_TRY(ebb_str_addf(ctx, out, "%s\n  %10s", results->title ? results->title : "results",
                         lengths ? "length" : "budget"));
    for (int c = 0; c < COLUMNS; c++)
        if (is_shown(results, &columns[c]))
            EBB_TRY(ebb_str_addf(ctx, out, "%*s", columns[c].width, columns[c].title));
    EBB_TRY(ebb_str_addf(ctx, out, "\n"));
    for (int64_t i = 0; i < results->count; i++)
        if (results->series[i].count > 0)
            EBB_TRY(add_points(ctx, results, &results->series[i], out));
    for (int64_t i = 0; i < results->count; i++)
        EBB_TRY(add_end(ctx, results, &results->series[i], out));
    return EBB_OK;
}
