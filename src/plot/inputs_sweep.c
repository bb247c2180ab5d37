/* What 'ebb plan --json' prints over budgets or lengths, as results that are forecasts alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "plot/inputs_int.h"

static const struct {
    const char *key;
    enum ebb_results_field field;
} keys[] = {
    {"max_length", EBB_RESULTS_LENGTH},
    {"memory_budget", EBB_RESULTS_BUDGET},
    {"total_bytes", EBB_RESULTS_PREDICTED_PROCESS},
    {"host_bytes", EBB_RESULTS_PREDICTED_HOST},
    {"step_seconds", EBB_RESULTS_FORECAST_SECONDS},
    {"tokens_per_second", EBB_RESULTS_FORECAST_SPEED},
};

static enum ebb_status read_point(struct ebb_results *results, const char *where,
                                  const json_t *json)
{
    struct ebb_results_point *point;
    if (!json_is_object(json))
        return EBB_FAIL(results->ctx, EBB_BAD_FILE, "%s: an object is wanted here", where);
    EBB_TRY(ebb_results_point(results, &results->series[0], &point));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        double value;
        bool found;
        EBB_TRY(ebb_json_double(results->ctx, where, json, keys[i].key, &value, &found));
        if (found && value < 0)
            return EBB_FAIL(results->ctx, EBB_BAD_FILE, "%s: '%s' is below 0", where, keys[i].key);
        /* A budget of 0 is none. */
        if (found && !(keys[i].field == EBB_RESULTS_BUDGET && value == 0))
            point->values[keys[i].field] = value;
    }
    if (ebb_results_place(results->kind, point) > 0) return EBB_OK;
    return EBB_FAIL(results->ctx, EBB_BAD_FILE, "%s: '%s' above 0 is wanted", where,
                    results->kind == EBB_RESULTS_OF_LENGTHS ? "max_length" : "memory_budget");
}

static enum ebb_status read_points(struct ebb_results *results, const struct ebb_plot_input *input,
                                   const json_t *points)
{
    struct ebb_results_series *series;
    if (!json_is_array(points))
        return EBB_FAIL(results->ctx, EBB_BAD_FILE, "%s: 'points' is wanted, a list", input->path);
    EBB_TRY(ebb_results_add(results, input->name, &series));
    for (size_t i = 0; i < json_array_size(points); i++) {
        char where[320];
        snprintf(where, sizeof where, "%.280s: points[%zu]", input->path, i);
        EBB_TRY(read_point(results, where, json_array_get(points, i)));
    }
    return EBB_OK;
}

enum ebb_status ebb_sweep_read(struct ebb_ctx *ctx, const struct ebb_plot_input *input,
                               const json_t *json, struct ebb_results **results)
{
    const char *over;
    struct ebb_results *made;
    EBB_TRY(ebb_json_string(ctx, input->path, json, "sweep", &over, NULL));
    bool lengths = strcmp(over, "max_length") == 0;
    if (!lengths && strcmp(over, "memory_budget") != 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'sweep' is '%.80s', 'memory_budget' or 'max_length' is wanted",
                        input->path, over);
    EBB_TRY(
        ebb_results_create(ctx, lengths ? EBB_RESULTS_OF_LENGTHS : EBB_RESULTS_OF_BUDGETS, &made));
    enum ebb_status status = read_points(made, input, json_object_get(json, "points"));
    if (status == EBB_OK)
        *results = made;
    else
        ebb_results_free(made);
    return status;
}
