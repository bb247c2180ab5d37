/* Recognises files by their content, and makes one figure of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/inputs.h"

#include <string.h>

#include "base/file.h"
#include "plot/inputs_int.h"

enum kind { KIND_METRICS, KIND_LENGTHS, KIND_BUDGETS };

static const char *const kind_names[] = {"a run's metrics", "results over lengths",
                                         "results over budgets"};

static const char wanted[] = "wanted: a run's folder or its metrics.jsonl, results.json, or what "
                             "'ebb plan sweep=memory --json' prints";

/* One figure being made. */
struct reading {
    struct ebb_ctx *ctx;
    const struct ebb_plot_input *inputs;
    int count;
    struct ebb_figure *figure;
    enum kind kind;               /* of the first */
    struct ebb_results **results; /* [count]; NULL where metrics are read */
};

/* Whether the first line is an object with a step: no other kind has one on its first line. */
static bool is_metrics(const char *data, size_t bytes)
{
    const char *end = memchr(data, '\n', bytes);
    json_t *json = json_loadb(data, end ? (size_t)(end - data) : bytes, 0, NULL);
    bool is = json_is_object(json) && json_object_get(json, "step") != NULL;
    json_decref(json);
    return is;
}

static enum ebb_status check_kind(struct reading *r, int i, enum kind kind)
{
    if (i == 0) r->kind = kind;
    if (kind == r->kind) return EBB_OK;
    return EBB_FAIL(r->ctx, EBB_BAD_CONFIG,
                    "'%s' is %s and '%s' is %s: one picture shows one kind\n"
                    "try:   ebb plot for each",
                    r->inputs[0].path, kind_names[r->kind], r->inputs[i].path, kind_names[kind]);
}

/* An object that is neither metrics nor a file that says what it is. */
static enum ebb_status fail_object(struct reading *r, const char *path, const json_t *json)
{
    const char *what = "has none of the keys that it would be known by";
    if (json_object_get(json, "choice") || json_object_get(json, "step"))
        what = "is one plan; a curve takes several";
    return EBB_FAIL(r->ctx, EBB_BAD_FILE, "'%s' is nothing that can be drawn: it %s\n%s", path,
                    json_is_object(json) ? what : "is JSON, but no object", wanted);
}

static enum ebb_status read_json(struct reading *r, int i, const json_t *json)
{
    const struct ebb_plot_input *input = &r->inputs[i];
    if (json_object_get(json, "sweep"))
        EBB_TRY(ebb_sweep_read(r->ctx, input, json, &r->results[i]));
    else if (json_object_get(json, "format") || json_object_get(json, "series"))
        EBB_TRY(ebb_results_read(r->ctx, input->path, json, &r->results[i]));
    else
        return fail_object(r, input->path, json);
    bool lengths = r->results[i]->kind == EBB_RESULTS_OF_LENGTHS;
    return check_kind(r, i, lengths ? KIND_LENGTHS : KIND_BUDGETS);
}

static enum ebb_status read_text(struct reading *r, int i, const char *data, size_t bytes)
{
    const char *path = r->inputs[i].path;
    json_error_t error;
    if (is_metrics(data, bytes)) {
        EBB_TRY(check_kind(r, i, KIND_METRICS));
        if (i == 0) ebb_metrics_panels(r->figure);
        return ebb_metrics_add_run(r->figure, &r->inputs[i], data, bytes);
    }
    json_t *json = json_loadb(data, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (json == NULL)
        return EBB_FAIL(r->ctx, EBB_BAD_FILE,
                        "'%s' is nothing that can be drawn: it is no JSON (line %d, column %d: "
                        "%s)\n%s",
                        path, error.line, error.column, error.text, wanted);
    enum ebb_status status = read_json(r, i, json);
    json_decref(json);
    return status;
}

static enum ebb_status read_input(struct reading *r, int i)
{
    struct ebb_map map;
    EBB_TRY(ebb_map_open(r->ctx, r->inputs[i].path, &map));
    enum ebb_status status =
        map.bytes == 0 ? EBB_FAIL(r->ctx, EBB_BAD_FILE,
                                  "'%s' is empty: there is nothing to draw yet", r->inputs[i].path)
                       : read_text(r, i, (const char *)map.data, map.bytes);
    ebb_map_close(&map);
    return status;
}

static enum ebb_status read_all(struct reading *r)
{
    for (int i = 0; i < r->count; i++) EBB_TRY(read_input(r, i));
    if (r->kind == KIND_METRICS)
        ebb_metrics_finish(r->figure);
    else
        EBB_TRY(ebb_results_figure(r->figure, r->results, r->inputs, r->count));
    ebb_figure_drop_empty(r->figure);
    if (r->figure->panel_count > 0) return EBB_OK;
    return EBB_FAIL(r->ctx, EBB_BAD_FILE, "'%s' has no values that could be drawn",
                    r->inputs[0].path);
}

enum ebb_status ebb_inputs_figure(struct ebb_ctx *ctx, const struct ebb_plot_input *inputs,
                                  int count, struct ebb_figure **figure)
{
    EBB_ASSERT(count > 0);
    struct reading r = {.ctx = ctx, .inputs = inputs, .count = count};
    *figure = NULL;
    enum ebb_status status = ebb_figure_create(ctx, &r.figure);
    r.results = ebb_mem_alloc(ctx, (size_t)count * sizeof *r.results);
    if (r.results == NULL) status = EBB_NO_MEMORY;
    if (status == EBB_OK) status = read_all(&r);
    for (int i = 0; r.results && i < count; i++) ebb_results_free(r.results[i]);
    ebb_mem_free(ctx, r.results);
    if (status == EBB_OK)
        *figure = r.figure;
    else
        ebb_figure_free(r.figure);
    return status;
}
