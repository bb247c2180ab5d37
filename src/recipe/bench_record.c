/* The results of a sweep as a file: opened, compared, saved.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "device/device.h"
#include "recipe/bench.h"

enum { TEXT = 256 };

const char *ebb_bench_method(const struct ebb_config *config, char *out, size_t out_bytes)
{
    static const char *const recipes[] = {"", "distillation, ", "preferences, "};
    if (config->adapter_name_or_path)
        snprintf(out, out_bytes, "%san adapter", recipes[config->recipe]);
    else if (config->use_peft)
        snprintf(out, out_bytes, "%sLoRA of rank %lld", recipes[config->recipe],
                 (long long)config->lora_r);
    else
        snprintf(out, out_bytes, "%severy weight", recipes[config->recipe]);
    return out;
}

/* ---- what a sweep is ---- */

/* Keys that say what is measured rather than how: more of it may be added to a file. */
static void remove_varied(json_t *config, enum ebb_results_kind kind)
{
    static const char *const keys[] = {"sweep",
                                       "modes",
                                       "budgets",
                                       "models",
                                       "model_name_or_path",
                                       "data",
                                       "steps",
                                       "json",
                                       "output_dir",
                                       "overwrite_output_dir",
                                       "dataset_cache",
                                       "gradient_checkpointing",
                                       "activation_offloading",
                                       "activations"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        (void)json_object_del(config, keys[i]);
    if (kind == EBB_RESULTS_OF_LENGTHS) (void)json_object_del(config, "max_length");
}

static json_t *describe_data(const struct ebb_config *config)
{
    if (!ebb_bench_has_data(config)) return json_string("random token ids");
    return json_string("samples of the data set, end to end, cut into documents of the length");
}

/* {"config": hash of its config.json, "weights": its own, or random}. */
static enum ebb_status describe_model(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                                      const char *path, json_t **json)
{
    char *dir = NULL, *file = NULL, text[17] = "";
    uint64_t hash;
    bool blank = false;
    enum ebb_status status = EBB_OK;
    if (path[0]) {
        status = ebb_model_find(ctx, path, &request->env->hub, &dir);
        if (status == EBB_OK) status = ebb_bench_is_blank(ctx, dir, &blank);
        if (status == EBB_OK && (file = ebb_path_join(ctx, dir, "config.json")) == NULL)
            status = EBB_NO_MEMORY;
        if (status == EBB_OK) status = ebb_file_hash(ctx, file, NULL, &hash);
        if (status == EBB_OK) snprintf(text, sizeof text, "%016" PRIx64, hash);
        ebb_mem_free(ctx, file);
        ebb_mem_free(ctx, dir);
    }
    EBB_TRY(status);
    *json = json_pack("{s:s, s:s}", "config", text, "weights", blank ? "random" : "its own");
    return *json ? EBB_OK : EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for what is measured");
}

static enum ebb_status describe_models(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                                       json_t *models)
{
    for (int i = 0; i < request->model_count; i++) {
        json_t *one = NULL;
        EBB_TRY(describe_model(ctx, request, request->models[i].path, &one));
        if (json_object_set_new(models, request->models[i].name, one) != 0)
            return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for what is measured");
    }
    return EBB_OK;
}

enum ebb_status ebb_bench_setting(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                                  enum ebb_results_kind kind, json_t **setting)
{
    json_t *json = json_object(), *models = json_object();
    json_t *config = ebb_options_json(request->options);
    const int64_t steps = request->config->steps;
    bool ok = json && models && config &&
              json_object_set_new(json, "data", describe_data(request->config)) == 0 &&
              json_object_set_new(json, "steps", json_integer(steps)) == 0 &&
              json_object_set_new(json, "warm_up_steps", json_integer(steps > 1)) == 0 &&
              json_object_set(json, "models", models) == 0 &&
              json_object_set(json, "config", config) == 0;
    enum ebb_status status =
        ok ? EBB_OK : EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for what is measured");
    if (ok) {
        remove_varied(config, kind);
        status = describe_models(ctx, request, models);
    }
    json_decref(models);
    json_decref(config);
    if (status == EBB_OK) {
        *setting = json;
        return EBB_OK;
    }
    json_decref(json);
    return status;
}

/* ---- whether it is the same ---- */

static enum ebb_status fail_other(struct ebb_ctx *ctx, const char *path, const char *key,
                                  const json_t *kept, const json_t *now)
{
    struct ebb_str was = {0}, is = {0};
    enum ebb_status status = EBB_OK;
    if (kept) status = ebb_json_text(ctx, kept, 0, &was);
    if (status == EBB_OK && now) status = ebb_json_text(ctx, now, 0, &is);
    if (status == EBB_OK)
        status =
            EBB_FAIL(ctx, EBB_BAD_CONFIG,
                     "'%s' holds another sweep: %s was %.100s there and is %.100s now\n"
                     "try:   --overwrite to measure all of it anew, or another --output",
                     path, key, was.data ? was.data : "not set", is.data ? is.data : "not set");
    ebb_str_free(ctx, &was);
    ebb_str_free(ctx, &is);
    return status;
}

/* Every key of `now`, or with `shared` those that both have, is equal in `kept`. */
static enum ebb_status compare(struct ebb_ctx *ctx, const char *path, const json_t *kept,
                               const json_t *now, bool shared)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)now, key, value)
    {
        const json_t *other = json_object_get(kept, key);
        if (other == NULL && shared) continue;
        if (other == NULL || !json_equal(other, value))
            return fail_other(ctx, path, key, other, value);
    }
    return EBB_OK;
}

enum ebb_status ebb_bench_same(struct ebb_ctx *ctx, const char *path, const json_t *kept,
                               const json_t *now)
{
    static const char *const parts[] = {"config", "models"};
    static const char *const values[] = {"data", "steps"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const json_t *was = json_object_get(kept, values[i]), *is = json_object_get(now, values[i]);
        if (!json_equal(was, is)) return fail_other(ctx, path, values[i], was, is);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        EBB_TRY(compare(ctx, path, json_object_get(kept, parts[i]), json_object_get(now, parts[i]),
                        i == 1));
    return EBB_OK;
}

static enum ebb_status check_file(struct ebb_ctx *ctx, const char *path,
                                  const struct ebb_results *results,
                                  const struct ebb_bench_sweep *sweep, const char *device,
                                  const json_t *setting)
{
    static const char *const kinds[] = {"lengths", "budgets"};
    if (results->setting == NULL)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'%s' was not written by 'ebb bench'\n"
                        "try:   --overwrite to write over it, or another --output",
                        path);
    if (results->kind != sweep->kind)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'%s' holds another sweep: it was over %s and is over %s now\n"
                        "try:   --overwrite to measure all of it anew, or another --output",
                        path, kinds[results->kind], kinds[sweep->kind]);
    if (results->device && strcmp(results->device, device) != 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'%s' holds another sweep: the device was %s there and is %s now\n"
                        "try:   --overwrite to measure all of it anew, or another --output",
                        path, results->device, device);
    return ebb_bench_same(ctx, path, results->setting, setting);
}

/* ---- opening ---- */

static enum ebb_status add_command(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                                   struct ebb_str *out)
{
    EBB_TRY(ebb_str_addf(ctx, out, "ebb bench"));
    for (int i = 0; i < request->word_count; i++) {
        const char *word = request->words[i];
        const bool quote = word[strcspn(word, " '\"{}[]*?$&;|<>()\\")] != '\0';
        EBB_TRY(ebb_str_addf(ctx, out, quote ? " '%s'" : " %s", word));
    }
    return EBB_OK;
}

static enum ebb_status add_title(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                                 const struct ebb_bench_sweep *sweep, struct ebb_str *out)
{
    char method[TEXT];
    if (request->model_count <= 2)
        for (int i = 0; i < request->model_count; i++)
            EBB_TRY(ebb_str_addf(ctx, out, "%s%s", i ? " and " : "", request->models[i].name));
    else
        EBB_TRY(ebb_str_addf(ctx, out, "%d models", request->model_count));
    EBB_TRY(
        ebb_str_addf(ctx, out, ": %s", ebb_bench_method(request->config, method, sizeof method)));
    if (sweep->kind == EBB_RESULTS_OF_LENGTHS) return EBB_OK;
    return ebb_str_addf(ctx, out, ", %lld tokens", (long long)request->config->max_length);
}

/* The limit that pictures show: a GPU's memory, or the budget that makes a CPU stand in for one. */
static double device_bytes(const struct ebb_config *config, enum ebb_results_kind kind)
{
    const enum ebb_backend backend = ebb_config_backend(config);
    int64_t bytes = 0;
    if (backend == EBB_BACKEND_CUDA)
        bytes = ebb_backend_bytes_total(backend);
    else if (kind == EBB_RESULTS_OF_LENGTHS)
        bytes = ebb_setup_budget(&config->memory_budget, backend);
    return bytes > 0 ? (double)bytes : NAN;
}

static enum ebb_status describe(struct ebb_results *results,
                                const struct ebb_bench_request *request,
                                const struct ebb_bench_sweep *sweep,
                                const struct ebb_backend_facts *facts)
{
    struct ebb_ctx *ctx = results->ctx;
    struct ebb_str command = {0}, title = {0};
    char date[32];
    ebb_clock_iso(date);
    date[strcspn(date, "T")] = '\0';
    results->device_bytes = device_bytes(request->config, sweep->kind);
    enum ebb_status status = add_command(ctx, request, &command);
    if (status == EBB_OK) status = add_title(ctx, request, sweep, &title);
    if (status == EBB_OK) status = ebb_results_text(results, &results->command, command.data);
    if (status == EBB_OK) status = ebb_results_text(results, &results->title, title.data);
    if (status == EBB_OK) status = ebb_results_text(results, &results->date, date);
    if (status == EBB_OK) status = ebb_results_text(results, &results->device, facts->name);
    if (status == EBB_OK)
        status =
            ebb_results_text(results, &results->driver, facts->driver[0] ? facts->driver : NULL);
    ebb_str_free(ctx, &command);
    ebb_str_free(ctx, &title);
    return status;
}

/* *found NULL: there is no file. */
static enum ebb_status read_file(struct ebb_ctx *ctx, const char *path, struct ebb_results **found)
{
    json_t *json;
    *found = NULL;
    if (!ebb_file_exists(path)) return EBB_OK;
    EBB_TRY(ebb_json_load(ctx, path, &json));
    enum ebb_status status = ebb_results_read(ctx, path, json, found);
    json_decref(json);
    return status;
}

static enum ebb_status open_with(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                                 const struct ebb_bench_sweep *sweep, const char *path,
                                 json_t *setting, struct ebb_results **results)
{
    struct ebb_backend_facts facts;
    const enum ebb_backend backend = ebb_config_backend(request->config);
    if (!ebb_backend_facts(ctx, backend, &facts))
        return EBB_FAIL(ctx, EBB_DEVICE, "the device does not say what it is\ntry:   device: cpu");
    if (!request->overwrite) EBB_TRY(read_file(ctx, path, results));
    if (*results) EBB_TRY(check_file(ctx, path, *results, sweep, facts.name, setting));
    if (*results == NULL) EBB_TRY(ebb_results_create(ctx, sweep->kind, results));
    /* Models that were there before stay. */
    json_t *models = json_object_get(setting, "models");
    const json_t *kept = (*results)->setting;
    if (kept && json_object_update_missing(models, json_object_get(kept, "models")) != 0)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for what is measured");
    json_decref((*results)->setting);
    (*results)->setting = json_incref(setting);
    return describe(*results, request, sweep, &facts);
}

enum ebb_status ebb_bench_open(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                               const struct ebb_bench_sweep *sweep, const char *path,
                               struct ebb_results **results)
{
    json_t *setting;
    *results = NULL;
    EBB_TRY(ebb_bench_setting(ctx, request, sweep->kind, &setting));
    enum ebb_status status = open_with(ctx, request, sweep, path, setting, results);
    json_decref(setting);
    if (status == EBB_OK) return EBB_OK;
    ebb_results_free(*results);
    *results = NULL;
    return status;
}

/* ---- series ---- */

static bool same_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* One model's series are called by their modes, several models' by both. */
static enum ebb_status name_all(struct ebb_results *results)
{
    bool several = false;
    for (int64_t i = 1; i < results->count; i++)
        several = several || !same_text(results->series[i].model, results->series[0].model);
    for (int64_t i = 0; i < results->count; i++) {
        struct ebb_results_series *s = &results->series[i];
        const char *model = s->model ? s->model : "", *mode = s->mode ? s->mode : "";
        const bool budgets = results->kind == EBB_RESULTS_OF_BUDGETS;
        char *name = budgets   ? ebb_mem_strdup(results->ctx, model)
                     : several ? ebb_mem_format(results->ctx, "%s, %s", model, mode)
                               : ebb_mem_strdup(results->ctx, mode);
        if (name == NULL) return EBB_NO_MEMORY;
        ebb_mem_free(results->ctx, s->name);
        s->name = name;
    }
    return EBB_OK;
}

enum ebb_status ebb_bench_series(struct ebb_results *results, const char *model, const char *mode,
                                 struct ebb_results_series **series)
{
    for (int64_t i = 0; i < results->count; i++) {
        *series = &results->series[i];
        if (same_text((*series)->model, model) && same_text((*series)->mode, mode)) return EBB_OK;
    }
    EBB_TRY(ebb_results_add(results, mode, series));
    EBB_TRY(ebb_results_text(results, &(*series)->model, model));
    EBB_TRY(ebb_results_text(results, &(*series)->mode, mode));
    return name_all(results);
}

const struct ebb_results_point *ebb_bench_find(const struct ebb_results *results,
                                               const struct ebb_results_series *series,
                                               int64_t value)
{
    const enum ebb_results_field along = ebb_results_along(results->kind);
    for (int64_t i = 0; i < series->count; i++)
        if (series->points[i].values[along] == (double)value) return &series->points[i];
    return NULL;
}

bool ebb_bench_is_done(const struct ebb_results *results, const struct ebb_results_series *series,
                       int64_t value)
{
    const bool lengths = results->kind == EBB_RESULTS_OF_LENGTHS;
    if (ebb_bench_find(results, series, value)) return true;
    if (!isfinite(series->ended_at) || same_text(series->status, "failed")) return false;
    return lengths ? (double)value >= series->ended_at : (double)value <= series->ended_at;
}

enum ebb_status ebb_bench_save(const struct ebb_results *results, const char *path)
{
    json_t *json = ebb_results_json(results);
    if (json == NULL) return EBB_FAIL(results->ctx, EBB_NO_MEMORY, "no memory for the results");
    enum ebb_status status = ebb_json_save(results->ctx, path, json);
    json_decref(json);
    return status;
}
