/* Checkpoints: saving, checking, loading, finding and clearing away.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/init.h"
#include "model/safetensors.h"
#include "train/engine_int.h"
#include "train/metrics.h"

#define PREFIX        "checkpoint-"
#define STATE_FILE    "training_state.ebb"
#define STATE_BEFORE  "training_state.safetensors" /* what it was called in older checkpoints */
#define TRAINER_FILE  "trainer_state.json"
#define MANIFEST_FILE "manifest.json"
#define RESULT_TEMP   ".result.tmp"

enum { FORMAT = 1, HASH_TEXT = 17 };

static enum ebb_status no_memory(struct ebb_ctx *ctx, const char *what)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while making %s", what);
}

/* ---- names ----------------------------------------------------------------------------------- */

int64_t ebb_checkpoint_step(const char *name)
{
    int64_t step;
    size_t n = strlen(PREFIX);
    if (strncmp(name, PREFIX, n) != 0 || name[n] < '0' || name[n] > '9') return -1;
    return ebb_text_int64(name + n, &step) ? step : -1;
}

char *ebb_checkpoint_path(struct ebb_ctx *ctx, const char *output_dir, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, PREFIX "%" PRId64, step);
    return ebb_path_join(ctx, output_dir, name);
}

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Names that only this room makes, and only for a while. */
static bool is_leftover(const char *name)
{
    size_t n = strlen(name);
    if (n < 4 || strcmp(name + n - 4, ".tmp") != 0) return false;
    return has_prefix(name, "." PREFIX) || strcmp(name, RESULT_TEMP) == 0 ||
           has_prefix(name, ".metrics.jsonl.") || has_prefix(name, ".run.json.");
}

enum ebb_status ebb_output_clean(struct ebb_ctx *ctx, const char *output_dir)
{
    char **names;
    size_t count;
    EBB_TRY(ebb_dir_list(ctx, output_dir, &names, &count));
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count && status == EBB_OK; i++) {
        if (!is_leftover(names[i])) continue;
        char *path = ebb_path_join(ctx, output_dir, names[i]);
        if (!path)
            status = EBB_NO_MEMORY;
        else if (ebb_dir_exists(path))
            status = ebb_dir_remove(ctx, path);
        else if (remove(path) != 0 && errno != ENOENT)
            status = EBB_FAIL(ctx, EBB_IO, "cannot remove '%s': %s", path, strerror(errno));
        if (status == EBB_OK)
            ebb_log(ctx, EBB_LOG_INFO, "checkpoint",
                    "removed '%s', which a stopped run left half-written", path);
        ebb_mem_free(ctx, path);
    }
    ebb_dir_list_free(ctx, names, count);
    return status;
}

/* Steps of the checkpoints in a folder, ascending. The caller frees. */
static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static enum ebb_status list_steps(struct ebb_ctx *ctx, const char *output_dir, int64_t **steps,
                                  int64_t *count)
{
    char **names;
    size_t n;
    *steps = NULL;
    *count = 0;
    EBB_TRY(ebb_dir_list(ctx, output_dir, &names, &n));
    int64_t *found = (int64_t *)ebb_mem_alloc(ctx, (n + 1) * sizeof *found);
    for (size_t i = 0; found && i < n; i++) {
        int64_t step = ebb_checkpoint_step(names[i]);
        if (step >= 0) found[(*count)++] = step;
    }
    ebb_dir_list_free(ctx, names, n);
    if (!found) return EBB_NO_MEMORY;
    qsort(found, (size_t)*count, sizeof *found, by_step);
    *steps = found;
    return EBB_OK;
}

enum ebb_status ebb_checkpoint_warn_newer(struct ebb_ctx *ctx, const char *output_dir, int64_t step)
{
    int64_t *steps, count;
    EBB_TRY(list_steps(ctx, output_dir, &steps, &count));
    if (count > 0 && steps[count - 1] > step)
        ebb_log(ctx, EBB_LOG_WARNING, "resume",
                "'%s' holds checkpoints after step %" PRId64 ", up to step %" PRId64
                ": each stays until this run comes to the same step; 'resume_from_checkpoint: "
                "true' would take the last of them",
                output_dir, step, steps[count - 1]);
    ebb_mem_free(ctx, steps);
    return EBB_OK;
}

enum ebb_status ebb_checkpoint_rotate(struct ebb_ctx *ctx, const char *output_dir, int64_t limit,
                                      int64_t keep_step, int64_t keep_best)
{
    int64_t *steps, count;
    if (limit <= 0) return EBB_OK;
    EBB_TRY(list_steps(ctx, output_dir, &steps, &count));
    enum ebb_status status = EBB_OK;
    int64_t left = count;
    for (int64_t i = 0; i < count && left > limit && status == EBB_OK; i++) {
        if (steps[i] == keep_step || steps[i] == keep_best) continue;
        /* Under its final name a checkpoint is whole or gone: it is renamed before it is taken
         * apart. */
        char *path = ebb_checkpoint_path(ctx, output_dir, steps[i]);
        char *gone = ebb_mem_format(ctx, "%s/." PREFIX "%" PRId64 ".old.tmp", output_dir, steps[i]);
        status = path && gone ? ebb_dir_commit(ctx, path, gone) : EBB_NO_MEMORY;
        if (status == EBB_OK) status = ebb_dir_remove(ctx, gone);
        ebb_mem_free(ctx, gone);
        ebb_mem_free(ctx, path);
        left--;
    }
    ebb_mem_free(ctx, steps);
    return status;
}

/* ---- state as JSON --------------------------------------------------------------------------- */

struct ebb_train_state ebb_train_state_start(void)
{
    struct ebb_train_state state;
    memset(&state, 0, sizeof state);
    state.best_loss = state.logged_loss = NAN;
    state.best_step = state.eval_step = state.sample_step = -1;
    return state;
}

json_t *ebb_numerics_json(const struct ebb_numerics *numerics)
{
    const struct ebb_attention_way *way = &numerics->attention;
    return json_pack("{s:s, s:I, s:I, s:i, s:s, s:s, s:{s:s, s:b, s:b, s:I, s:I}}", "storage",
                     ebb_dtype_name(numerics->storage), "tile_tokens",
                     (json_int_t)numerics->tile_tokens, "head_chunk",
                     (json_int_t)numerics->head_chunk, "threads", numerics->threads, "backend",
                     numerics->backend, "matmul", numerics->matmul, "attention", "version",
                     numerics->attention_library, "library", way->library, "deterministic",
                     way->deterministic, "kv_heads", (json_int_t)way->kv_heads, "block",
                     (json_int_t)way->block);
}

enum { BLOCK_MOST = 1 << 20 };

/* Checkpoints may be older than this part of the record. */
static enum ebb_status read_attention(struct ebb_ctx *ctx, const char *where, const json_t *record,
                                      struct ebb_numerics *numerics)
{
    const json_t *json = json_object_get(record, "attention");
    struct ebb_attention_way *way = &numerics->attention;
    const char *version;
    way->deterministic = true; /* as all attention was before there was this part */
    if (json == NULL) return EBB_OK;
    EBB_TRY(ebb_json_string(ctx, where, json, "version", &version, NULL));
    EBB_TRY(ebb_json_bool(ctx, where, json, "library", &way->library, NULL));
    EBB_TRY(ebb_json_bool(ctx, where, json, "deterministic", &way->deterministic, NULL));
    EBB_TRY(ebb_json_int64(ctx, where, json, "kv_heads", &way->kv_heads, NULL));
    EBB_TRY(ebb_json_int64(ctx, where, json, "block", &way->block, NULL));
    if (strlen(version) < sizeof numerics->attention_library && way->kv_heads >= 0 &&
        way->block >= 0 && way->block <= BLOCK_MOST && way->block % 128 == 0) {
        snprintf(numerics->attention_library, sizeof numerics->attention_library, "%s", version);
        return EBB_OK;
    }
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: the numerics record has an attention that no run can have", where);
}

static enum ebb_status read_numerics(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                     struct ebb_numerics *numerics)
{
    const char *storage, *backend, *matmul;
    int64_t threads;
    memset(numerics, 0, sizeof *numerics);
    EBB_TRY(ebb_json_string(ctx, where, json, "storage", &storage, NULL));
    EBB_TRY(ebb_json_int64(ctx, where, json, "tile_tokens", &numerics->tile_tokens, NULL));
    EBB_TRY(ebb_json_int64(ctx, where, json, "head_chunk", &numerics->head_chunk, NULL));
    EBB_TRY(ebb_json_int64(ctx, where, json, "threads", &threads, NULL));
    EBB_TRY(ebb_json_string(ctx, where, json, "backend", &backend, NULL));
    EBB_TRY(ebb_json_string(ctx, where, json, "matmul", &matmul, NULL));
    int dtype = 0;
    while (dtype < EBB_DTYPE_COUNT && strcmp(ebb_dtype_name((enum ebb_dtype)dtype), storage) != 0)
        dtype++;
    bool fits =
        strlen(backend) < sizeof numerics->backend && strlen(matmul) < sizeof numerics->matmul;
    if ((dtype != EBB_F32 && dtype != EBB_BF16) || threads < 1 || threads > 65536 ||
        numerics->tile_tokens < 1 || numerics->head_chunk < 1 || !fits)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: the numerics record holds values that no run can have", where);
    numerics->storage = (enum ebb_dtype)dtype;
    numerics->threads = (int)threads;
    snprintf(numerics->backend, sizeof numerics->backend, "%s", backend);
    snprintf(numerics->matmul, sizeof numerics->matmul, "%s", matmul);
    return read_attention(ctx, where, json, numerics);
}

/* Loads DIR/trainer_state.json; the caller owns *json and frees *path. */
static enum ebb_status open_state(struct ebb_ctx *ctx, const char *dir, char **path, json_t **json)
{
    int64_t format;
    *json = NULL;
    *path = ebb_path_join(ctx, dir, TRAINER_FILE);
    if (!*path) return EBB_NO_MEMORY;
    EBB_TRY(ebb_json_load(ctx, *path, json));
    EBB_TRY(ebb_json_int64(ctx, *path, *json, "format", &format, NULL));
    if (format != FORMAT)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: format %" PRId64 ", this version reads %d",
                        *path, format, FORMAT);
    return EBB_OK;
}

enum ebb_status ebb_checkpoint_numerics(struct ebb_ctx *ctx, const char *dir,
                                        struct ebb_numerics *numerics)
{
    char *path;
    json_t *json;
    enum ebb_status status = open_state(ctx, dir, &path, &json);
    if (status == EBB_OK) {
        const json_t *record = json_object_get(json, "numerics");
        status = json_is_object(record)
                     ? read_numerics(ctx, path, record, numerics)
                     : EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no object 'numerics'", path);
    }
    json_decref(json);
    ebb_mem_free(ctx, path);
    return status;
}

enum ebb_status ebb_checkpoint_data_time(struct ebb_ctx *ctx, const char *dir,
                                         char text[EBB_DATA_TIME])
{
    char *path;
    json_t *json;
    const char *kept = "";
    bool found = false;
    text[0] = 0;
    enum ebb_status status = open_state(ctx, dir, &path, &json);
    if (status == EBB_OK) status = ebb_json_string(ctx, path, json, "data_time", &kept, &found);
    if (status == EBB_OK && found && strlen(kept) >= EBB_DATA_TIME)
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'data_time' is no time", path);
    else if (status == EBB_OK && found)
        snprintf(text, EBB_DATA_TIME, "%s", kept);
    json_decref(json);
    ebb_mem_free(ctx, path);
    return status;
}

/* "epoch" and "method" are for people; the rest is read back. */
static json_t *make_state(const struct ebb_trainer_request *request,
                          const struct ebb_train_state *s, const json_t *identity)
{
    int64_t micros = ebb_loader_describe(request->train)->micros_per_epoch;
    double epoch = (double)s->place.epoch + (double)s->place.micro / (double)micros;
    json_t *json =
        json_pack("{s:i, s:I, s:f, s:{s:I, s:I}, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, "
                  "s:I, s:o, s:f}",
                  "format", FORMAT, "step", (json_int_t)s->step, "epoch", epoch, "place", "epoch",
                  (json_int_t)s->place.epoch, "micro", (json_int_t)s->place.micro, "updates",
                  (json_int_t)s->updates, "num_tokens", (json_int_t)s->tokens, "best_eval_loss",
                  ebb_json_number(s->best_loss), "best_step", (json_int_t)s->best_step,
                  "evals_worse", (json_int_t)s->evals_worse, "eval_step", (json_int_t)s->eval_step,
                  "sample_step", (json_int_t)s->sample_step, "skipped", (json_int_t)s->skipped,
                  "skipped_row", (json_int_t)s->skipped_row, "window_loss", s->window_loss,
                  "window_labels", (json_int_t)s->window_labels, "logged_loss",
                  ebb_json_number(s->logged_loss), "seconds", s->seconds);
    json_t *numerics = ebb_numerics_json(&ebb_engine_plan(request->engine)->request.numerics);
    bool ok = json && json_object_set_new(json, "numerics", numerics) == 0 &&
              json_object_set_new(json, "identity", json_deep_copy(identity)) == 0;
    if (ok && request->data_time)
        ok = json_object_set_new(json, "data_time", json_string(request->data_time)) == 0;
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static enum ebb_status read_state(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                  struct ebb_train_state *s)
{
    const json_t *place = json_object_get(json, "place");
    struct {
        const json_t *from;
        const char *key;
        int64_t *value;
    } integers[] = {
        {json, "step", &s->step},
        {place, "epoch", &s->place.epoch},
        {place, "micro", &s->place.micro},
        {json, "updates", &s->updates},
        {json, "num_tokens", &s->tokens},
        {json, "best_step", &s->best_step},
        {json, "evals_worse", &s->evals_worse},
        {json, "eval_step", &s->eval_step},
        {json, "skipped", &s->skipped},
        {json, "skipped_row", &s->skipped_row},
        {json, "window_labels", &s->window_labels},
    };
    bool found;
    *s = ebb_train_state_start();
    if (!json_is_object(place)) return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no object 'place'", path);
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        EBB_TRY(
            ebb_json_int64(ctx, path, integers[i].from, integers[i].key, integers[i].value, NULL));
    EBB_TRY(ebb_json_int64(ctx, path, json, "sample_step", &s->sample_step, &found));
    EBB_TRY(ebb_json_double(ctx, path, json, "best_eval_loss", &s->best_loss, &found));
    EBB_TRY(ebb_json_double(ctx, path, json, "logged_loss", &s->logged_loss, &found));
    EBB_TRY(ebb_json_double(ctx, path, json, "window_loss", &s->window_loss, NULL));
    EBB_TRY(ebb_json_double(ctx, path, json, "seconds", &s->seconds, NULL));
    if (s->step < 0 || s->updates < 0 || s->updates > s->step)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %" PRId64 " updates in %" PRId64 " steps", path,
                        s->updates, s->step);
    return EBB_OK;
}

/* ---- manifest -------------------------------------------------------------------------------- */

static enum ebb_status add_file(struct ebb_ctx *ctx, const char *dir, const char *name,
                                json_t *files)
{
    int64_t bytes = 0;
    uint64_t hash = 0;
    char text[HASH_TEXT];
    char *path = ebb_path_join(ctx, dir, name);
    enum ebb_status status = path ? ebb_file_hash(ctx, path, &bytes, &hash) : EBB_NO_MEMORY;
    ebb_mem_free(ctx, path);
    EBB_TRY(status);
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    json_t *entry = json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "xxh3", text);
    if (json_object_set_new(files, name, entry) != 0) return no_memory(ctx, "a manifest");
    return EBB_OK;
}

static enum ebb_status write_manifest(struct ebb_ctx *ctx, const char *dir, int64_t step)
{
    char **names;
    size_t count;
    EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    json_t *files = json_object();
    enum ebb_status status = files ? EBB_OK : no_memory(ctx, "a manifest");
    for (size_t i = 0; i < count && status == EBB_OK; i++)
        if (strcmp(names[i], "additional_chat_templates") != 0) /* a folder, and no state */
            status = add_file(ctx, dir, names[i], files);
    ebb_dir_list_free(ctx, names, count);
    json_t *json =
        json_pack("{s:i, s:I, s:o}", "format", FORMAT, "step", (json_int_t)step, "files", files);
    char *path = ebb_path_join(ctx, dir, MANIFEST_FILE);
    if (status == EBB_OK && (!json || !path)) status = no_memory(ctx, "a manifest");
    if (status == EBB_OK) status = ebb_json_save(ctx, path, json);
    ebb_mem_free(ctx, path);
    json_decref(json);
    return status;
}

static enum ebb_status verify_file(struct ebb_ctx *ctx, const char *manifest, const char *dir,
                                   const char *name, const json_t *entry)
{
    int64_t wanted_bytes, bytes = 0;
    uint64_t hash = 0;
    const char *wanted;
    char text[HASH_TEXT];
    if (!json_is_object(entry) || strchr(name, '/') || name[0] == '.')
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is no entry of a checkpoint", manifest, name);
    EBB_TRY(ebb_json_int64(ctx, manifest, entry, "bytes", &wanted_bytes, NULL));
    EBB_TRY(ebb_json_string(ctx, manifest, entry, "xxh3", &wanted, NULL));
    char *path = ebb_path_join(ctx, dir, name);
    enum ebb_status status = path ? ebb_file_hash(ctx, path, &bytes, &hash) : EBB_NO_MEMORY;
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (status == EBB_OK && bytes != wanted_bytes)
        status =
            EBB_FAIL(ctx, EBB_BAD_FILE, "'%s' has %" PRId64 " bytes, its manifest says %" PRId64,
                     path, bytes, wanted_bytes);
    if (status == EBB_OK && strcmp(text, wanted) != 0)
        status = EBB_FAIL(ctx, EBB_BAD_FILE,
                          "'%s' has hash %s, its manifest says %s: its bytes were changed", path,
                          text, wanted);
    ebb_mem_free(ctx, path);
    return status;
}

enum ebb_status ebb_checkpoint_verify(struct ebb_ctx *ctx, const char *dir)
{
    const char *name;
    json_t *json = NULL, *entry;
    char *path = ebb_path_join(ctx, dir, MANIFEST_FILE);
    enum ebb_status status = path ? ebb_json_load(ctx, path, &json) : EBB_NO_MEMORY;
    json_t *files = json_object_get(json, "files");
    if (status == EBB_OK &&
        !((json_object_get(files, STATE_FILE) || json_object_get(files, STATE_BEFORE)) &&
          json_object_get(files, TRAINER_FILE) && json_object_get(files, EBB_METRICS_FILE)))
        status =
            EBB_FAIL(ctx, EBB_BAD_FILE,
                     "%s: this is not the manifest of a checkpoint: '%s', '%s' and '%s' are wanted",
                     path, STATE_FILE, TRAINER_FILE, EBB_METRICS_FILE);
    if (status == EBB_OK) json_object_foreach(files, name, entry)
        {
            status = verify_file(ctx, path, dir, name, entry);
            if (status != EBB_OK) break;
        }
    json_decref(json);
    ebb_mem_free(ctx, path);
    return status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* An adapter has the tokenizer beside it, as TRL saves it: templates and special tokens are part of
 * what was trained. */
static enum ebb_status save_for_others(struct ebb_ctx *ctx,
                                       const struct ebb_trainer_request *request, const char *dir)
{
    bool found;
    if (request->save_adapter) {
        EBB_TRY(ebb_engine_save_adapter(request->engine, dir));
        EBB_TRY(
            ebb_model_copy_tokenizer_files(ctx, request->engine->request.model_dir, dir, &found));
    } else {
        EBB_TRY(ebb_engine_save_model(request->engine, dir, request->save_dtype));
    }
    return request->chat ? ebb_chat_template_save(ctx, request->chat, dir) : EBB_OK;
}

static enum ebb_status save_exact(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                  const char *dir)
{
    char *path = ebb_path_join(ctx, dir, STATE_FILE);
    enum ebb_status status = path ? ebb_engine_save_state(request->engine, path) : EBB_NO_MEMORY;
    ebb_mem_free(ctx, path);
    return status;
}

static enum ebb_status save_state(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                  const char *dir, const struct ebb_train_state *state,
                                  const json_t *identity)
{
    char *path = ebb_path_join(ctx, dir, TRAINER_FILE);
    json_t *json = make_state(request, state, identity);
    enum ebb_status status =
        path && json ? ebb_json_save(ctx, path, json) : no_memory(ctx, TRAINER_FILE);
    json_decref(json);
    ebb_mem_free(ctx, path);
    return status;
}

static enum ebb_status copy_metrics(struct ebb_ctx *ctx, const char *from_dir, const char *to_dir)
{
    char *from = ebb_path_join(ctx, from_dir, EBB_METRICS_FILE),
         *to = ebb_path_join(ctx, to_dir, EBB_METRICS_FILE);
    enum ebb_status status = from && to ? ebb_file_copy(ctx, from, to) : EBB_NO_MEMORY;
    ebb_mem_free(ctx, from);
    ebb_mem_free(ctx, to);
    return status;
}

static enum ebb_status fill_checkpoint(struct ebb_ctx *ctx,
                                       const struct ebb_trainer_request *request, const char *dir,
                                       const struct ebb_train_state *state, const json_t *identity)
{
    EBB_TRY(ebb_dir_remove(ctx, dir));
    EBB_TRY(ebb_dir_create(ctx, dir));
    EBB_TRY(save_for_others(ctx, request, dir));
    EBB_TRY(save_exact(ctx, request, dir));
    EBB_TRY(copy_metrics(ctx, request->output_dir, dir));
    EBB_TRY(save_state(ctx, request, dir, state, identity));
    return write_manifest(ctx, dir, state->step);
}

enum ebb_status ebb_checkpoint_save(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                    const struct ebb_train_state *state, const json_t *identity)
{
    const char *out = request->output_dir;
    char *path = ebb_checkpoint_path(ctx, out, state->step);
    char *temp = ebb_mem_format(ctx, "%s/." PREFIX "%" PRId64 ".tmp", out, state->step);
    enum ebb_status status = path && temp ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) {
        status = fill_checkpoint(ctx, request, temp, state, identity);
        if (status == EBB_OK) status = ebb_dir_replace(ctx, temp, path);
        if (status != EBB_OK) (void)ebb_dir_remove(ctx, temp);
    }
    ebb_mem_free(ctx, temp);
    ebb_mem_free(ctx, path);
    return status;
}

static enum ebb_status move_files(struct ebb_ctx *ctx, const char *from, const char *to)
{
    char **names;
    size_t count;
    EBB_TRY(ebb_dir_list(ctx, from, &names, &count));
    int64_t shards = -1; /* no weights of a whole model among the files */
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count && status == EBB_OK; i++) {
        char *a = ebb_path_join(ctx, from, names[i]), *b = ebb_path_join(ctx, to, names[i]);
        int64_t of = ebb_safetensors_shards(names[i]);
        if (of >= 0) shards = of;
        if (!a || !b) status = EBB_NO_MEMORY;
        /* additional_chat_templates of an earlier end of this run would be in the way */
        if (status == EBB_OK && ebb_dir_exists(b)) status = ebb_dir_remove(ctx, b);
        if (status == EBB_OK && rename(a, b) != 0)
            status = EBB_FAIL(ctx, EBB_IO, "cannot rename '%s' to '%s': %s", a, b, strerror(errno));
        ebb_mem_free(ctx, a);
        ebb_mem_free(ctx, b);
    }
    ebb_dir_list_free(ctx, names, count);
    if (status == EBB_OK && shards >= 0) status = ebb_safetensors_remove_others(ctx, to, shards);
    return status;
}

enum ebb_status ebb_result_save(struct ebb_ctx *ctx, const struct ebb_trainer_request *request)
{
    char *temp = ebb_path_join(ctx, request->output_dir, RESULT_TEMP);
    if (!temp) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_dir_remove(ctx, temp);
    if (status == EBB_OK) status = ebb_dir_create(ctx, temp);
    if (status == EBB_OK) status = save_for_others(ctx, request, temp);
    if (status == EBB_OK) status = move_files(ctx, temp, request->output_dir);
    enum ebb_status removed = ebb_dir_remove(ctx, temp);
    ebb_mem_free(ctx, temp);
    return status != EBB_OK ? status : removed;
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool same_way(const struct ebb_attention_way *a, const struct ebb_attention_way *b)
{
    return a->library == b->library && a->deterministic == b->deterministic &&
           a->kv_heads == b->kv_heads && a->block == b->block;
}

static enum ebb_status check_numerics(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                      const struct ebb_numerics *now)
{
    const json_t *record = json_object_get(json, "numerics");
    struct ebb_numerics had;
    if (!json_is_object(record))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no object 'numerics'", path);
    EBB_TRY(read_numerics(ctx, path, record, &had));
    if (!same_way(&had.attention, &now->attention))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "cannot resume bit for bit: '%s' was made with attention that ran another "
                        "way (%s, %s)",
                        path, had.attention.library ? had.attention_library : "plain kernels",
                        had.attention.deterministic ? "deterministic" : "not deterministic");
    if (had.storage == now->storage && had.tile_tokens == now->tile_tokens &&
        had.head_chunk == now->head_chunk && had.threads == now->threads &&
        strcmp(had.backend, now->backend) == 0)
        return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "cannot resume bit for bit: '%s' was made with tiles of %" PRId64
                    " tokens, head chunks of %" PRId64 ", %d threads on %s, this run has %" PRId64
                    ", %" PRId64 ", %d on %s",
                    path, had.tile_tokens, had.head_chunk, had.threads, had.backend,
                    now->tile_tokens, now->head_chunk, now->threads, now->backend);
}

static enum ebb_status load_exact(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                  const char *dir)
{
    char *path = ebb_path_join(ctx, dir, STATE_FILE);
    if (path && !ebb_file_exists(path)) {
        ebb_mem_free(ctx, path);
        path = ebb_path_join(ctx, dir, STATE_BEFORE);
    }
    enum ebb_status status = path ? ebb_engine_load_state(request->engine, path) : EBB_NO_MEMORY;
    ebb_mem_free(ctx, path);
    return status;
}

enum ebb_status ebb_checkpoint_load_weights(struct ebb_ctx *ctx,
                                            const struct ebb_trainer_request *request,
                                            const char *dir)
{
    EBB_TRY(ebb_checkpoint_verify(ctx, dir));
    return load_exact(ctx, request, dir);
}

static enum ebb_status load_parts(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                  const char *dir, const char *path, const json_t *json,
                                  const json_t *identity, struct ebb_train_state *state)
{
    const json_t *saved = json_object_get(json, "identity");
    if (!json_is_object(saved))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no object 'identity'", path);
    EBB_TRY(ebb_identity_compare(ctx, dir, saved, identity));
    EBB_TRY(check_numerics(ctx, path, json, &ebb_engine_plan(request->engine)->request.numerics));
    EBB_TRY(read_state(ctx, path, json, state));
    EBB_TRY(ebb_loader_seek(ctx, request->train, state->place));
    EBB_TRY(load_exact(ctx, request, dir));
    return copy_metrics(ctx, dir, request->output_dir);
}

enum ebb_status ebb_checkpoint_load(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                    const char *dir, const json_t *identity,
                                    struct ebb_train_state *state)
{
    char *path;
    json_t *json;
    if (!ebb_dir_exists(dir))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "resume_from_checkpoint: there is no folder '%s'",
                        dir);
    EBB_TRY(ebb_checkpoint_verify(ctx, dir));
    enum ebb_status status = open_state(ctx, dir, &path, &json);
    if (status == EBB_OK) status = load_parts(ctx, request, dir, path, json, identity, state);
    json_decref(json);
    ebb_mem_free(ctx, path);
    return status;
}

enum ebb_status ebb_checkpoint_find(struct ebb_ctx *ctx, const char *output_dir, char **path)
{
    int64_t *steps, count;
    *path = NULL;
    if (!ebb_dir_exists(output_dir)) return EBB_OK;
    EBB_TRY(list_steps(ctx, output_dir, &steps, &count));
    enum ebb_status status = EBB_OK;
    for (int64_t i = count - 1; i >= 0 && status == EBB_OK && !*path; i--) {
        char *dir = ebb_checkpoint_path(ctx, output_dir, steps[i]);
        status = dir ? ebb_checkpoint_verify(ctx, dir) : EBB_NO_MEMORY;
        if (status == EBB_OK) {
            *path = dir;
            break;
        }
        if (status == EBB_BAD_FILE || status == EBB_IO) {
            ebb_log(ctx, EBB_LOG_WARNING, "resume", "'%s' is not whole and is skipped: %s", dir,
                    ebb_error_text(ctx));
            ebb_error_clear(ctx);
            status = EBB_OK;
        }
        ebb_mem_free(ctx, dir);
    }
    ebb_mem_free(ctx, steps);
    return status;
}
