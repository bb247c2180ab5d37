/* Results of sweeps as panels: memory and speed against length, or speed against budget.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plot/axis.h"
#include "plot/inputs_int.h"

enum { SHORT = 24 }; /* bytes of a reason that is told in the panel, too */

/* What a panel shows of a point. */
struct quantity {
    enum ebb_results_field measured, predicted;
    enum ebb_results_field of; /* EBB_RESULTS_FIELDS: nothing; else measured is a share of it */
};

static const struct quantity process_memory = {EBB_RESULTS_PROCESS, EBB_RESULTS_PREDICTED_PROCESS,
                                               EBB_RESULTS_FIELDS},
                             arena_memory = {EBB_RESULTS_PEAK, EBB_RESULTS_PREDICTED_PEAK,
                                             EBB_RESULTS_FIELDS},
                             host_memory = {EBB_RESULTS_HOST, EBB_RESULTS_PREDICTED_HOST,
                                            EBB_RESULTS_FIELDS},
                             speed = {EBB_RESULTS_SPEED, EBB_RESULTS_FORECAST_SPEED,
                                      EBB_RESULTS_FIELDS},
                             stalled = {EBB_RESULTS_STALL, EBB_RESULTS_FIELDS, EBB_RESULTS_SECONDS};

struct making {
    struct ebb_figure *figure;
    struct ebb_results *const *results;
    const struct ebb_plot_input *inputs;
    int count;
    enum ebb_results_kind kind;
};

/* ---- which points there are ---- */

static double value_of(const struct ebb_results_point *point, enum ebb_results_field field)
{
    return field == EBB_RESULTS_FIELDS ? NAN : point->values[field];
}

static bool has(const struct ebb_results_series *series, const struct quantity *q)
{
    for (int64_t i = 0; i < series->count; i++)
        if (isfinite(value_of(&series->points[i], q->measured)) ||
            isfinite(value_of(&series->points[i], q->predicted)))
            return true;
    return false;
}

/* Whether some value of it is above zero. */
static bool matters(const struct making *m, const struct quantity *q)
{
    for (int r = 0; r < m->count; r++)
        for (int64_t s = 0; s < m->results[r]->count; s++)
            for (int64_t i = 0; i < m->results[r]->series[s].count; i++) {
                const struct ebb_results_point *point = &m->results[r]->series[s].points[i];
                if (value_of(point, q->measured) > 0 || value_of(point, q->predicted) > 0)
                    return true;
            }
    return false;
}

/* Lengths that spread over a factor of four or more are seen by their logarithm. */
static bool spreads(const struct making *m)
{
    double low = INFINITY, high = 0;
    for (int r = 0; r < m->count; r++)
        for (int64_t s = 0; s < m->results[r]->count; s++)
            for (int64_t i = 0; i < m->results[r]->series[s].count; i++) {
                double x = ebb_results_place(m->kind, &m->results[r]->series[s].points[i]);
                low = fmin(low, x);
                high = fmax(high, x);
            }
    return high >= 4 * low;
}

/* The arena is compared with the arena, and the process with the process, where all have it. */
static const struct quantity *choose_memory(const struct making *m, const char **title)
{
    bool process = true, arena = true;
    for (int r = 0; r < m->count; r++)
        for (int64_t s = 0; s < m->results[r]->count; s++) {
            const struct ebb_results_series *series = &m->results[r]->series[s];
            process = process && (has(series, &process_memory) || series->count == 0);
            arena = arena && (has(series, &arena_memory) || series->count == 0);
        }
    *title = process ? "device memory of the process" : "peak device memory";
    return process ? &process_memory : arena ? &arena_memory : NULL;
}

/* ---- curves ---- */

struct place {
    double x;
    int64_t at;
};

static int compare(const void *a, const void *b)
{
    const struct place *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->at > q->at) - (p->at < q->at);
}

static double shown(const struct ebb_results_point *point, const struct quantity *q,
                    enum ebb_results_field field)
{
    double value = value_of(point, field);
    if (q->of == EBB_RESULTS_FIELDS) return value;
    return value_of(point, q->of) > 0 ? value / value_of(point, q->of) : NAN;
}

static enum ebb_status add_curve(struct making *m, struct ebb_plot_panel *panel, int group,
                                 const struct ebb_results_series *series,
                                 const struct place *places, const struct quantity *q,
                                 enum ebb_plot_style style)
{
    enum ebb_results_field field = style == EBB_STYLE_PREDICTED ? q->predicted : q->measured;
    struct ebb_plot_curve *curve;
    bool any = false;
    for (int64_t i = 0; i < series->count; i++)
        any = any || isfinite(shown(&series->points[i], q, field));
    if (!any) return EBB_OK;
    EBB_TRY(ebb_figure_curve(m->figure, panel, group, style, &curve));
    for (int64_t i = 0; i < series->count; i++)
        EBB_TRY(ebb_figure_point(m->figure, curve, places[i].x,
                                 shown(&series->points[places[i].at], q, field)));
    return EBB_OK;
}

static enum ebb_status add_series(struct making *m, struct ebb_plot_panel *panel, int group,
                                  const struct ebb_results_series *series, const struct quantity *q)
{
    struct place *places = ebb_mem_alloc(m->figure->ctx, (size_t)series->count * sizeof *places);
    if (places == NULL) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < series->count; i++)
        places[i] = (struct place){ebb_results_place(m->kind, &series->points[i]), i};
    if (series->count > 1) qsort(places, (size_t)series->count, sizeof *places, compare);
    const bool sweep = m->kind == EBB_RESULTS_OF_LENGTHS && series->count > 1;
    const enum ebb_plot_style style = !series->peer ? EBB_STYLE_MEASURED
                                      : sweep       ? EBB_STYLE_PEER
                                                    : EBB_STYLE_POINTS;
    enum ebb_status status = add_curve(m, panel, group, series, places, q, style);
    if (status == EBB_OK && q->predicted != EBB_RESULTS_FIELDS)
        status = add_curve(m, panel, group, series, places, q, EBB_STYLE_PREDICTED);
    if (status == EBB_OK && isfinite(series->ended_at) && (q != &host_memory && q != &stalled))
        status = ebb_figure_end(m->figure, panel, group, series->ended_at,
                                series->reason && strlen(series->reason) <= SHORT ? series->reason
                                                                                  : "ended");
    ebb_mem_free(m->figure->ctx, places);
    return status;
}

/* `q` NULL: each series its own kind of memory. */
static enum ebb_status fill(struct making *m, struct ebb_plot_panel *panel,
                            const struct quantity *q)
{
    int group = 0;
    for (int r = 0; r < m->count; r++)
        for (int64_t s = 0; s < m->results[r]->count; s++, group++) {
            const struct ebb_results_series *series = &m->results[r]->series[s];
            const struct quantity *own = q                              ? q
                                         : has(series, &process_memory) ? &process_memory
                                                                        : &arena_memory;
            EBB_TRY(add_series(m, panel, group, series, own));
        }
    return EBB_OK;
}

/* ---- names and notes ---- */

static bool is_named(const struct ebb_figure *figure, const char *name)
{
    for (int64_t i = 0; i < figure->group_count; i++)
        if (strcmp(figure->groups[i].name, name) == 0) return true;
    return false;
}

/* "at 128k: out of memory" */
static enum ebb_status add_remark(struct making *m, int group,
                                  const struct ebb_results_series *series)
{
    char at[32];
    if (!isfinite(series->ended_at)) return EBB_OK;
    if (m->kind == EBB_RESULTS_OF_LENGTHS)
        ebb_axis_length(series->ended_at, at);
    else
        ebb_text_bytes((int64_t)series->ended_at, at, sizeof at);
    char *text =
        ebb_mem_format(m->figure->ctx, "at %s: %s", at, series->reason ? series->reason : "ended");
    if (text == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_figure_remark(m->figure, group, text);
    ebb_mem_free(m->figure->ctx, text);
    return status;
}

static enum ebb_status add_group(struct making *m, const char *input,
                                 const struct ebb_results_series *series)
{
    int group;
    char *longer = NULL, *fit = ebb_figure_text(m->figure->ctx, series->name);
    if (fit == NULL) return EBB_NO_MEMORY;
    if (is_named(m->figure, fit)) {
        longer = ebb_mem_format(m->figure->ctx, "%s, %s", series->name, input);
        if (longer == NULL) {
            ebb_mem_free(m->figure->ctx, fit);
            return EBB_NO_MEMORY;
        }
    }
    enum ebb_status status = ebb_figure_group(m->figure, longer ? longer : series->name, &group);
    ebb_mem_free(m->figure->ctx, fit);
    ebb_mem_free(m->figure->ctx, longer);
    return status == EBB_OK ? add_remark(m, group, series) : status;
}

static enum ebb_status add_note(struct making *m, const struct ebb_results *results)
{
    const char *const parts[] = {results->device, results->driver, results->date, results->command};
    struct ebb_str text = {0};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == EBB_OK; i++)
        if (parts[i])
            status = ebb_str_addf(m->figure->ctx, &text, "%s%s%s", text.bytes ? ", " : "",
                                  i == 1 ? "driver " : "", parts[i]);
    if (status == EBB_OK && text.bytes) status = ebb_figure_note(m->figure, text.data);
    ebb_str_free(m->figure->ctx, &text);
    return status;
}

/* Each device's memory as a line, on the axis that shows memory. */
static enum ebb_status add_limits(struct making *m, struct ebb_plot_panel *panel, bool vertical)
{
    for (int r = 0; r < m->count; r++) {
        const struct ebb_results *results = m->results[r];
        char size[32];
        if (!isfinite(results->device_bytes)) continue;
        ebb_text_bytes((int64_t)results->device_bytes, size, sizeof size);
        char *text = ebb_mem_format(m->figure->ctx, "%s: %s",
                                    results->device ? results->device : "device", size);
        if (text == NULL) return EBB_NO_MEMORY;
        enum ebb_status status =
            ebb_figure_limit(m->figure, panel, vertical, results->device_bytes, text);
        ebb_mem_free(m->figure->ctx, text);
        EBB_TRY(status);
    }
    return EBB_OK;
}

/* ---- panels ---- */

static const struct ebb_plot_axis speed_axis = {"tokens per second", EBB_UNIT_COUNT,
                                                EBB_SCALE_LINEAR, true},
                                  host_axis = {"host memory", EBB_UNIT_BYTES, EBB_SCALE_LINEAR,
                                               true};

static enum ebb_status lengths_panels(struct making *m)
{
    const struct ebb_plot_axis length = {"sequence length (tokens)", EBB_UNIT_TOKENS,
                                         spreads(m) ? EBB_SCALE_LOG2 : EBB_SCALE_LINEAR, false};
    struct ebb_plot_axis memory = {NULL, EBB_UNIT_BYTES, EBB_SCALE_LINEAR, true};
    const struct quantity *q = choose_memory(m, &memory.title);
    struct ebb_plot_panel *panel = ebb_figure_panel(m->figure, "Device memory", length, memory);
    EBB_TRY(fill(m, panel, q));
    EBB_TRY(add_limits(m, panel, false));
    EBB_TRY(fill(m, ebb_figure_panel(m->figure, "Speed", length, speed_axis), &speed));
    if (matters(m, &host_memory))
        EBB_TRY(
            fill(m, ebb_figure_panel(m->figure, "Host memory", length, host_axis), &host_memory));
    const struct ebb_plot_axis share = {"of a step", EBB_UNIT_SHARE, EBB_SCALE_LINEAR, true};
    if (matters(m, &stalled))
        EBB_TRY(
            fill(m, ebb_figure_panel(m->figure, "Waiting for copies", length, share), &stalled));
    return EBB_OK;
}

static enum ebb_status budgets_panels(struct making *m)
{
    const struct ebb_plot_axis budget = {"memory budget", EBB_UNIT_BYTES, EBB_SCALE_LINEAR, false};
    struct ebb_plot_panel *panel = ebb_figure_panel(m->figure, "Speed", budget, speed_axis);
    EBB_TRY(fill(m, panel, &speed));
    EBB_TRY(add_limits(m, panel, true));
    if (matters(m, &host_memory))
        EBB_TRY(
            fill(m, ebb_figure_panel(m->figure, "Host memory", budget, host_axis), &host_memory));
    return EBB_OK;
}

enum ebb_status ebb_results_figure(struct ebb_figure *figure, struct ebb_results *const *results,
                                   const struct ebb_plot_input *inputs, int count)
{
    struct making m = {figure, results, inputs, count, results[0]->kind};
    bool lengths = m.kind == EBB_RESULTS_OF_LENGTHS;
    const char *title = results[0]->title;
    if (title == NULL) title = lengths ? "Memory and speed by length" : "Speed by memory budget";
    EBB_TRY(ebb_figure_title(figure, title));
    for (int r = 0; r < count; r++) {
        for (int64_t s = 0; s < results[r]->count; s++)
            EBB_TRY(add_group(&m, inputs[r].name, &results[r]->series[s]));
        EBB_TRY(add_note(&m, results[r]));
    }
    EBB_TRY(lengths ? lengths_panels(&m) : budgets_panels(&m));
    figure->styles[EBB_STYLE_PREDICTED] = "predicted";
    figure->styles[EBB_STYLE_PEER] = "another program";
    return EBB_OK;
}
