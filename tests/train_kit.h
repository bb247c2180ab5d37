/* What tests of whole models share: golden cases, their batches, and a request for an engine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_KIT_H
#define EBB_TRAIN_KIT_H

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
#include "program/check.h"
#include "train/engine.h"
#include "train_device.h"

enum { KIT_TOKENS = 96, KIT_DOCS = 96, KIT_MICROS = 8, KIT_STEPS = 16 };

/* A micro-batch with its arrays. */
struct kit_batch {
    struct ebb_batch batch;
    int32_t ids[KIT_TOKENS], targets[KIT_TOKENS], positions[KIT_TOKENS], label_rows[KIT_TOKENS];
    int32_t doc_starts[KIT_DOCS + 1];
};

struct kit_case {
    struct ebb_ctx *ctx;
    char dir[512], model_dir[600], adapter_dir[600];
    bool lora;
    json_t *json;
    int64_t steps;
    int64_t micros[KIT_STEPS];
    struct kit_batch *batches[KIT_STEPS][KIT_MICROS];
    double weight[KIT_STEPS]; /* trained targets of each step */
};

static inline void kit_ok(struct ebb_ctx *ctx, enum ebb_status status, const char *what)
{
    if (status != EBB_OK) fail_msg("%s: %s (%s)", what, ebb_error_text(ctx), ebb_error_where(ctx));
}

static inline void kit_batch_begin(struct kit_batch *b)
{
    memset(b, 0, sizeof *b);
    b->batch.ids = b->ids;
    b->batch.targets = b->targets;
    b->batch.positions = b->positions;
    b->batch.doc_starts = b->doc_starts;
    b->batch.label_rows = b->label_rows;
}

/* Lays one document behind the others; mask[i]: token i is trained as a target. */
static inline void kit_batch_add(struct kit_batch *b, const int32_t *ids, const uint8_t *mask,
                                 int64_t n)
{
    struct ebb_batch *batch = &b->batch;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = batch->tokens + i;
        bool trained = i + 1 < n && mask[i + 1];
        b->ids[at] = ids[i];
        b->positions[at] = (int32_t)i;
        b->targets[at] = trained ? ids[i + 1] : EBB_IGNORE;
        if (trained) b->label_rows[batch->labels++] = (int32_t)at;
    }
    batch->tokens += n;
    batch->docs++;
    b->doc_starts[batch->docs] = (int32_t)batch->tokens;
    if (n > batch->longest) batch->longest = n;
}

static inline struct kit_batch *kit_read_micro(const json_t *micro)
{
    struct kit_batch *b = (struct kit_batch *)malloc(sizeof *b);
    size_t d, i;
    json_t *doc, *value;
    kit_batch_begin(b);
    json_array_foreach(micro, d, doc)
    {
        int32_t ids[KIT_TOKENS];
        uint8_t mask[KIT_TOKENS];
        json_array_foreach(json_object_get(doc, "ids"), i, value) ids[i] =
            (int32_t)json_integer_value(value);
        json_array_foreach(json_object_get(doc, "mask"), i, value) mask[i] =
            json_integer_value(value) != 0;
        kit_batch_add(b, ids, mask, (int64_t)json_array_size(json_object_get(doc, "ids")));
    }
    return b;
}

static inline void kit_case_open(struct kit_case *c, const char *name)
{
    char path[600];
    json_t *batches, *step, *micro;
    size_t s, m;
    memset(c, 0, sizeof *c);
    c->ctx = ebb_ctx_create();
    snprintf(c->dir, sizeof c->dir, "%s/tests/golden/models/%s", EBB_SOURCE_DIR, name);
    snprintf(path, sizeof path, "%s/case.json", c->dir);
    kit_ok(c->ctx, ebb_json_load(c->ctx, path, &c->json), path);
    c->lora = strcmp(json_string_value(json_object_get(c->json, "method")), "lora") == 0;
    const char *model = json_string_value(json_object_get(c->json, "model_dir"));
    snprintf(c->model_dir, sizeof c->model_dir, "%s/%s", c->dir, model ? model : ".");
    snprintf(c->adapter_dir, sizeof c->adapter_dir, "%s/adapter", c->dir);
    snprintf(path, sizeof path, "%s/batches.json", c->dir);
    kit_ok(c->ctx, ebb_json_load(c->ctx, path, &batches), path);
    json_array_foreach(batches, s, step)
    {
        json_array_foreach(step, m, micro)
        {
            c->batches[s][m] = kit_read_micro(micro);
            c->weight[s] += (double)c->batches[s][m]->batch.labels;
        }
        c->micros[s] = (int64_t)json_array_size(step);
        c->steps++;
    }
    json_decref(batches);
}

static inline void kit_case_close(struct kit_case *c)
{
    for (int64_t s = 0; s < c->steps; s++)
        for (int64_t m = 0; m < c->micros[s]; m++) free(c->batches[s][m]);
    json_decref(c->json);
    ebb_ctx_free(c->ctx);
}

/* On a GPU attention of bf16 goes through the library, that of fp32 through plain kernels. */
static inline void kit_set_attention(const struct kit_case *c, struct ebb_numerics *numerics)
{
    struct ebb_model_config *config;
    if (kit_backend() == EBB_BACKEND_CPU) return;
    kit_ok(c->ctx, ebb_model_config_load(c->ctx, c->model_dir, &config), c->model_dir);
    const struct ebb_attention_shape shape = {config->heads, config->kv_heads, config->head_dim,
                                              config->head_dim, 0, 0, 0};
    numerics->attention =
        ebb_attention_way(&shape, numerics->storage, KIT_TOKENS, true, NULL, 0);
    ebb_model_config_free(c->ctx, config);
}

/* A request that trains the case: AdamW with the goldens' settings, small tiles so that there
 * are several. Sets the numerics' attention (NULL: chosen by the engine). */
static inline struct ebb_engine_request kit_request(const struct kit_case *c,
                                                    struct ebb_numerics *numerics)
{
    struct ebb_engine_request request;
    if (numerics) kit_set_attention(c, numerics);
    memset(&request, 0, sizeof request);
    request.model_dir = c->model_dir;
    request.adapter_dir = c->lora ? c->adapter_dir : NULL;
    request.train = true;
    request.storage = EBB_F32;
    request.backend = kit_backend();
    request.deterministic = true;
    request.cache_dir = kit_cache_dir();
    request.pageable = kit_pageable();
    request.optimizer.beta1 = 0.9;
    request.optimizer.beta2 = 0.999;
    request.optimizer.eps = 1e-8;
    request.optimizer.weight_decay = 0.01;
    request.capacity.tokens = KIT_TOKENS;
    request.capacity.docs = KIT_DOCS;
    request.capacity.doc_tokens = KIT_TOKENS;
    request.streams = true;
    request.threads = 2;
    request.numerics = numerics;
    return request;
}

/* Numerics with tiles of 32 tokens and chunks of 32 labels. */
static inline struct ebb_numerics kit_numerics(enum ebb_dtype storage)
{
    struct ebb_numerics numerics;
    memset(&numerics, 0, sizeof numerics);
    numerics.storage = storage;
    numerics.tile_tokens = 32;
    numerics.head_chunk = 32;
    numerics.threads = 2;
    numerics.attention.deterministic = kit_backend() != EBB_BACKEND_CPU;
    snprintf(numerics.backend, sizeof numerics.backend, "%s", ebb_backend_name(kit_backend()));
    return numerics;
}

/* Creates and opens an engine; every program passes the checker. */
static inline struct ebb_engine *kit_engine(struct ebb_ctx *ctx,
                                            const struct ebb_engine_request *request)
{
    struct ebb_engine *engine;
    kit_ok(ctx, ebb_engine_create(ctx, request, &engine), "engine create");
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++)
        if (plan->programs[i])
            kit_ok(ctx, ebb_program_check(ctx, plan->programs[i]), "program check");
    kit_ok(ctx, ebb_engine_open(engine), "engine open");
    return engine;
}

/* Whether the model reads its embedding's rows from host memory. */
static inline bool kit_has_rows(const struct ebb_engine *engine)
{
    return ebb_decoder_rows_tensor(ebb_engine_net(engine)) >= 0;
}

/* What keeps every table on the device: host memory that no row fits in. */
static inline void kit_keep_tables(struct ebb_engine_request *request)
{
    request->host_budget = 1;
}

/* All micro-batches of step s (from 0); returns the mean loss. */
static inline double kit_backward(struct kit_case *c, struct ebb_engine *engine, int64_t s)
{
    ebb_engine_begin(engine);
    for (int64_t m = 0; m < c->micros[s]; m++)
        kit_ok(c->ctx,
               ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &c->batches[s][m]->batch,
                                (uint64_t)s + 1, (uint32_t)m),
               "micro-batch");
    return ebb_engine_sums(engine).loss / c->weight[s];
}

static inline void kit_update(struct kit_case *c, struct ebb_engine *engine, int64_t s, double rate)
{
    kit_ok(c->ctx, ebb_engine_update(engine, (uint64_t)s + 1, rate, c->weight[s]), "update");
}

/* Every trained value or its gradient, [trained parameters] in the order of the net's params. */
static inline void kit_read_all(const struct ebb_engine *engine, bool grads, float *out)
{
    const struct ebb_net *net = ebb_engine_net(engine);
    for (int32_t i = 0; i < net->param_count; i++) {
        const struct ebb_param *p = &net->params[i];
        if (grads)
            ebb_engine_read_grad(engine, p, out);
        else
            ebb_engine_read_param(engine, p, out);
        out += p->w.rows * p->w.cols;
    }
}

#endif
