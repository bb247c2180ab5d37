/* What tests of the training loop share: a small model, small data, an engine and a request, in a
 * folder of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_RUN_H
#define EBB_TRAIN_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/number.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train_device.h"
#include "train_dir.h"

enum { RUN_VOCAB = 96, RUN_SAMPLES = 22, RUN_EVAL_SAMPLES = 6, RUN_LONGEST = 20 };

/* What a test may ask for; {0} with a folder is a run of the defaults. */
struct run_options {
    const char *model;     /* golden model's name; NULL: "llama3" */
    const char *model_dir; /* wins over model */
    bool lora;
    bool all_linear; /* LoRA on every linear layer, not on q_proj and v_proj alone */
    bool rslora;
    double lora_alpha; /* 0: 8 */
    bool bf16;
    const char *teacher; /* golden model's name or an absolute path: distilled with `distill` */
    struct ebb_distill_keys distill;
    bool offload;
    int64_t batch;   /* samples of a micro-batch; 0: 2 */
    int64_t samples; /* 0: RUN_SAMPLES */
    bool unlabelled; /* the last samples of the data have nothing that is trained */
    int32_t rare_id; /* > 0: stands in one sample only */
    uint64_t data_seed;
    double lora_dropout;
    int64_t cache_tokens; /* > 0: the engine decodes too */
    bool poison;          /* NaN in ranges that nobody holds */
    int threads;          /* 0: 1, which is what a busy machine runs fastest */
    bool measure;         /* the engine is measured before it opens */
    bool profile;
    /* Of pairs, or for kto of answers with KL examples; a second model is the model itself. */
    struct ebb_objective objective;
};

struct run {
    struct ebb_ctx *ctx;
    char dir[600], model_dir[600], teacher_dir[600];
    char log[8192]; /* warnings and errors, a line each */
    struct ebb_dataset *data, *eval_data;
    struct ebb_feed *feed, *eval_feed; /* NULL: none */
    struct ebb_adapter_config adapter;
    struct ebb_numerics numerics;
    struct ebb_trainer_request request;
    struct ebb_trainer_result result;
};

static inline void run_ok(struct ebb_ctx *ctx, enum ebb_status status, const char *what)
{
    if (status != EBB_OK) fail_msg("%s: %s (%s)", what, ebb_error_text(ctx), ebb_error_where(ctx));
}

static inline void run_log(void *user, enum ebb_log_level level, const char *topic,
                           const char *text)
{
    struct run *run = (struct run *)user;
    size_t used = strlen(run->log);
    (void)topic;
    if (level <= EBB_LOG_WARNING) snprintf(run->log + used, sizeof run->log - used, "%s\n", text);
}

/* Samples that count upwards from a random place, so that there is something to learn. */
static inline struct ebb_dataset *run_data(struct ebb_ctx *ctx, const struct run_options *o,
                                           int64_t count, uint64_t seed)
{
    int32_t *ids = (int32_t *)malloc((size_t)(count * RUN_LONGEST) * sizeof *ids);
    int64_t *lengths = (int64_t *)malloc((size_t)count * sizeof *lengths);
    int64_t *prompts = (int64_t *)malloc((size_t)count * sizeof *prompts), used = 0;
    struct ebb_dataset *data;
    for (int64_t i = 0; i < count; i++) {
        uint32_t words[4];
        ebb_philox(seed, (uint64_t)i, words);
        lengths[i] = 6 + words[0] % (RUN_LONGEST - 6);
        prompts[i] = words[1] % 4;
        if (o->unlabelled && i >= count / 2) prompts[i] = lengths[i];
        for (int64_t k = 0; k < lengths[i]; k++)
            ids[used++] = (int32_t)(4 + ((int64_t)(words[2] % RUN_VOCAB) + k) % (RUN_VOCAB - 4));
    }
    if (o->rare_id > 0) ids[used - 3] = o->rare_id;
    run_ok(ctx, ebb_dataset_from_ids(ctx, ids, lengths, prompts, count, &data), "data set");
    free(ids);
    free(lengths);
    free(prompts);
    return data;
}

/* What the objective makes of samples. */
static inline void run_pair(struct ebb_ctx *ctx, const struct run_options *o,
                            struct ebb_dataset **data)
{
    struct ebb_dataset *with;
    if (!ebb_objective_prefers(&o->objective)) return;
    (*data)->group = 2;
    if (!ebb_objective_has_kinds(&o->objective)) return;
    run_ok(ctx, ebb_dataset_add_kl(ctx, *data, 0, &with), "KL examples");
    ebb_dataset_free(ctx, *data);
    *data = with;
}

static inline void run_feed(struct ebb_ctx *ctx, const struct ebb_engine *engine,
                            const struct ebb_dataset *data, struct ebb_feed **feed)
{
    const struct ebb_feed_sources sources = {.dataset = data};
    if (ebb_objective_has_kinds(ebb_engine_objective(engine)))
        run_ok(ctx, ebb_feed_create(ctx, engine, &sources, feed), "feed");
}

static inline struct ebb_loader *run_loader(struct ebb_ctx *ctx, const struct ebb_dataset *data,
                                            int64_t batch, bool shuffle)
{
    struct ebb_loader *loader;
    struct ebb_loader_options options;
    memset(&options, 0, sizeof options);
    options.shuffle = shuffle;
    options.per_device_batch_size = batch;
    options.seed = 7;
    options.world = 1;
    run_ok(ctx, ebb_loader_create(ctx, data, &options, &loader), "loader");
    return loader;
}

static inline void run_fill_engine(struct run *run, const struct run_options *o,
                                   struct ebb_engine_request *request)
{
    memset(request, 0, sizeof *request);
    request->model_dir = run->model_dir;
    request->train = request->evaluate = true;
    request->storage = o->bf16 ? EBB_BF16 : EBB_F32;
    request->backend = kit_backend();
    request->deterministic = true;
    request->cache_dir = kit_cache_dir();
    request->pageable = kit_pageable();
    request->optimizer.beta1 = 0.9;
    request->optimizer.beta2 = 0.999;
    request->optimizer.eps = 1e-8;
    request->max_grad_norm = 1;
    request->streams = true;
    request->threads = o->threads > 0 ? o->threads : 1;
    request->seed = 11;
    if (o->teacher) {
        request->teacher_dir = run->teacher_dir;
        request->objective.kind = EBB_OBJECTIVE_DISTILL;
        request->objective.distill = o->distill;
        request->objective.distill.vocab = RUN_VOCAB;
    }
    if (o->offload) request->memory.activation_offloading = EBB_TRUE;
    const struct ebb_loader_facts *a = ebb_loader_describe(run->request.train);
    const struct ebb_loader_facts *b = ebb_loader_describe(run->request.eval);
    request->capacity.tokens = a->tokens_max > b->tokens_max ? a->tokens_max : b->tokens_max;
    request->capacity.docs = a->docs_max > b->docs_max ? a->docs_max : b->docs_max;
    request->capacity.doc_tokens = a->longest > b->longest ? a->longest : b->longest;
    request->poison = o->poison;
    request->profile = o->profile;
    if (ebb_objective_prefers(&o->objective)) request->objective = o->objective;
    if (ebb_objective_has_second(&o->objective)) request->teacher_dir = run->model_dir;
    request->decode = o->cache_tokens > 0;
    request->capacity.cache_tokens = o->cache_tokens;
    if (!o->lora) return;
    static char targets[][10] = {"q_proj",    "v_proj",  "k_proj",   "o_proj",
                                 "gate_proj", "up_proj", "down_proj"};
    memset(&run->adapter, 0, sizeof run->adapter);
    run->adapter.rank = 4;
    run->adapter.alpha = o->lora_alpha > 0 ? o->lora_alpha : 8;
    run->adapter.rslora = o->rslora;
    run->adapter.dropout = o->lora_dropout;
    run->adapter.target_count = o->all_linear ? 7 : 2;
    for (int i = 0; i < run->adapter.target_count; i++) run->adapter.targets[i] = targets[i];
    static char base[] = "base";
    run->adapter.base_model = base;
    request->new_adapter = &run->adapter;
}

/* Opens everything for a run into `dir`, which is created; `resume`: a checkpoint's folder or NULL.
 * Borrows resume. */
static inline void run_open(struct run *run, const struct run_options *o, const char *dir,
                            const char *resume)
{
    struct ebb_engine_request engine;
    memset(run, 0, sizeof *run);
    run->ctx = ebb_ctx_create();
    ebb_ctx_set_log(run->ctx, run_log, run);
    snprintf(run->dir, sizeof run->dir, "%s", dir);
    snprintf(run->model_dir, sizeof run->model_dir, "%s/tests/golden/models/%s", EBB_SOURCE_DIR,
             o->model ? o->model : "llama3");
    if (o->model_dir) snprintf(run->model_dir, sizeof run->model_dir, "%s", o->model_dir);
    if (o->teacher)
        snprintf(run->teacher_dir, sizeof run->teacher_dir, "%s%s",
                 o->teacher[0] == '/' ? "" : EBB_SOURCE_DIR "/tests/golden/models/", o->teacher);
    run->data = run_data(run->ctx, o, o->samples > 0 ? o->samples : RUN_SAMPLES, 1 + o->data_seed);
    struct run_options plain;
    memset(&plain, 0, sizeof plain);
    run->eval_data = run_data(run->ctx, &plain, RUN_EVAL_SAMPLES, 100);
    run_pair(run->ctx, o, &run->data);
    run_pair(run->ctx, o, &run->eval_data);
    struct ebb_trainer_request *r = &run->request;
    r->train = run_loader(run->ctx, run->data, o->batch > 0 ? o->batch : 2, true);
    r->eval = run_loader(run->ctx, run->eval_data, 2, false);
    run_fill_engine(run, o, &engine);
    if (resume) {
        run_ok(run->ctx, ebb_checkpoint_numerics(run->ctx, resume, &run->numerics), "numerics");
        engine.numerics = &run->numerics;
        engine.threads = run->numerics.threads;
    }
    run_ok(run->ctx, ebb_engine_create(run->ctx, &engine, &r->engine), "engine create");
    int64_t overhead_bytes;
    if (o->measure)
        run_ok(run->ctx, ebb_engine_measure(r->engine, &overhead_bytes), "engine measure");
    run_ok(run->ctx, ebb_engine_open(r->engine), "engine open");
    run_feed(run->ctx, r->engine, run->data, &run->feed);
    run_feed(run->ctx, r->engine, run->eval_data, &run->eval_feed);
    r->train_feed = run->feed;
    r->eval_feed = run->eval_feed;
    run_ok(run->ctx, ebb_dir_create(run->ctx, dir), "output folder");
    r->output_dir = run->dir;
    r->max_steps = 6;
    r->accumulation = 1;
    r->schedule.schedule = EBB_SCHEDULE_COSINE;
    r->schedule.learning_rate = o->lora ? 1e-2 : 3e-3;
    r->schedule.warmup_steps = 1;
    r->save_adapter = o->lora;
    r->save_dtype = o->bf16 ? EBB_BF16 : EBB_F32;
    r->resume = resume;
    r->stop_fd = -1;
    r->seed = 7;
    r->world = 1;
}

static inline void run_close(struct run *run)
{
    ebb_feed_free(run->ctx, run->feed);
    ebb_feed_free(run->ctx, run->eval_feed);
    ebb_engine_free(run->request.engine);
    ebb_loader_free(run->ctx, run->request.train);
    ebb_loader_free(run->ctx, run->request.eval);
    ebb_dataset_free(run->ctx, run->data);
    ebb_dataset_free(run->ctx, run->eval_data);
    assert_int_equal(ebb_mem_bytes_now(run->ctx), 0);
    ebb_ctx_free(run->ctx);
}

static inline enum ebb_status run_go(struct run *run)
{
    return ebb_trainer_run(run->ctx, &run->request, &run->result);
}

static inline void run_must(struct run *run)
{
    run_ok(run->ctx, run_go(run), "training");
}

/* ---- what came out --------------------------------------------------------------------------- */

static inline const char *run_path(const char *dir, const char *name, char out[700])
{
    assert_true(snprintf(out, 700, "%s/%s", dir, name) < 700);
    return out;
}

static inline bool run_has(const char *dir, const char *name)
{
    char path[700];
    run_path(dir, name, path);
    return ebb_file_exists(path) || ebb_dir_exists(path);
}

/* metrics.jsonl as an array. */
static inline json_t *run_metrics(struct ebb_ctx *ctx, const char *dir)
{
    char path[700];
    struct ebb_map map;
    json_t *list = json_array();
    run_ok(ctx, ebb_map_open(ctx, run_path(dir, "metrics.jsonl", path), &map), path);
    const char *at = (const char *)map.data, *end = at + map.bytes;
    while (at < end) {
        json_t *line;
        const char *stop = (const char *)memchr(at, '\n', (size_t)(end - at));
        if (!stop) fail_msg("%s ends inside a line", path);
        run_ok(ctx,
               ebb_json_parse(ctx, path, (int)json_array_size(list), at, (size_t)(stop - at),
                              &line),
               path);
        json_array_append_new(list, line);
        at = stop + 1;
    }
    ebb_map_close(&map);
    return list;
}

static inline double run_number(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    if (!value) fail_msg("no '%s' in a record", key);
    return json_is_null(value) ? (double)NAN : json_number_value(value);
}

/* The record of a step: training's, or evaluation's. NULL if there is none. */
static inline const json_t *run_record(const json_t *metrics, int64_t step, bool eval)
{
    size_t i;
    json_t *record;
    json_array_foreach(metrics, i,
                       record) if (json_integer_value(json_object_get(record, "step")) == step &&
                                   (json_object_get(record, "eval_loss") != NULL) ==
                                       eval) return record;
    return NULL;
}

#endif
