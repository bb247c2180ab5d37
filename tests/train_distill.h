/* What tests of distillation share: small models of several shapes with random weights, in a folder
 * of their own, micro-batches of documents of given lengths, and engines with a teacher.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_DISTILL_H
#define EBB_TRAIN_DISTILL_H

#include "train_kit.h"

#include <unistd.h>

#include "model/init.h"
#include "train/engine_int.h"

/* Students and teachers. Ids of all batches are below the smallest vocabulary. */
struct taught_shape {
    const char *name, *family; /* "Llama" or "Qwen3" (which has norms on queries and keys) */
    int layers, width, heads, kv_heads, head_dim, ffn, vocab;
    bool tied;
};
static const struct taught_shape taught_shapes[] = {
    {"tied", "Llama", 3, 32, 4, 2, 8, 48, 96, true},
    {"untied", "Qwen3", 2, 32, 4, 2, 16, 32, 96, false},
    {"teacher", "Qwen3", 4, 48, 6, 2, 16, 64, 96, false},
    {"wide", "Llama", 2, 64, 4, 4, 16, 80, 96, true},
    {"padded", "Llama", 2, 32, 4, 2, 8, 48, 128, false},
    {"padded_tied", "Llama", 2, 32, 4, 2, 8, 48, 128, true},
};
enum { TAUGHT_SHAPES = (int)(sizeof taught_shapes / sizeof taught_shapes[0]) };

struct taught_place {
    struct ebb_ctx *ctx;
    char dir[64], student_dir[128], teacher_dir[128];
    struct ebb_adapter_config adapter;
    struct ebb_numerics numerics;
};

/* One run's student, teacher and loss. */
struct taught {
    const char *student, *teacher; /* no teacher: cross-entropy alone */
    struct ebb_distill_keys keys;  /* vocab is set by taught_request */
    enum ebb_dtype storage;
    bool lora;
    double dropout;
};

/* Not inline: compilers that unroll the loop warn of names that differ. */
__attribute__((noinline, unused)) static const struct taught_shape *taught_shape(const char *name)
{
    for (int i = 0; i < TAUGHT_SHAPES; i++)
        if (strcmp(taught_shapes[i].name, name) == 0) return &taught_shapes[i];
    fail_msg("no model '%s'", name);
    return NULL;
}

static inline void taught_make(struct taught_place *p, const struct taught_shape *s, uint64_t seed)
{
    char json[1200], path[200], dir[200], lower[16];
    size_t k = 0;
    for (; s->family[k]; k++) lower[k] = (char)(s->family[k] | 0x20);
    lower[k] = 0;
    lower[k > 4 ? 5 : k] = 0;
    int n = snprintf(json, sizeof json,
                     "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": \"%s\", "
                     "\"num_hidden_layers\": %d, \"hidden_size\": %d, "
                     "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
                     "\"intermediate_size\": %d, \"vocab_size\": %d, "
                     "\"max_position_embeddings\": 256, \"rms_norm_eps\": %s, "
                     "\"rope_theta\": %s, \"hidden_act\": \"silu\", "
                     "\"attention_bias\": false, \"tie_word_embeddings\": %s, "
                     "\"initializer_range\": 0.2, \"torch_dtype\": \"bfloat16\"}",
                     s->family, lower, s->layers, s->width, s->heads, s->kv_heads, s->head_dim,
                     s->ffn, s->vocab, lower[0] == 'q' ? "1e-3" : "1e-5",
                     lower[0] == 'q' ? "100.0" : "10000.0", s->tied ? "true" : "false");
    assert_true(n > 0 && n < (int)sizeof json);
    snprintf(path, sizeof path, "%s/%s.json", p->dir, s->name);
    snprintf(dir, sizeof dir, "%s/%s", p->dir, s->name);
    kit_ok(p->ctx, ebb_file_write(p->ctx, path, json, (size_t)n), path);
    kit_ok(p->ctx, ebb_model_init(p->ctx, path, NULL, dir, EBB_BF16, seed), "model init");
}

static inline int taught_open(void **state)
{
    static char targets[][16] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                 "gate_proj", "up_proj", "down_proj"};
    static char base[] = "base";
    struct taught_place *p = (struct taught_place *)calloc(1, sizeof *p);
    if (p == NULL) return -1;
    p->ctx = ebb_ctx_create();
    snprintf(p->dir, sizeof p->dir, "/tmp/ebb_distill_XXXXXX");
    if (!mkdtemp(p->dir)) return -1;
    for (int i = 0; i < TAUGHT_SHAPES; i++) taught_make(p, &taught_shapes[i], (uint64_t)i + 3);
    p->adapter.rank = 4;
    p->adapter.alpha = 8;
    p->adapter.base_model = base;
    p->adapter.target_count = (int)(sizeof targets / sizeof targets[0]);
    for (int i = 0; i < p->adapter.target_count; i++) p->adapter.targets[i] = targets[i];
    *state = p;
    return 0;
}

static inline int taught_close(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    enum ebb_status status = ebb_dir_remove(p->ctx, p->dir);
    bool clean = ebb_mem_bytes_now(p->ctx) == 0;
    ebb_ctx_free(p->ctx);
    free(p);
    return status == EBB_OK && clean ? 0 : -1;
}

/* The place is borrowed, for one engine's life at a time. Tiles of 32 tokens and chunks of 32
 * labels, so that there are several. */
static inline struct ebb_engine_request taught_request(struct taught_place *p,
                                                       const struct taught *t)
{
    struct ebb_engine_request request;
    memset(&request, 0, sizeof request);
    const struct taught_shape *student = taught_shape(t->student);
    snprintf(p->student_dir, sizeof p->student_dir, "%s/%s", p->dir, t->student);
    request.model_dir = p->student_dir;
    request.train = request.evaluate = true;
    request.storage = t->storage;
    request.backend = kit_backend();
    request.deterministic = true;
    request.cache_dir = kit_cache_dir();
    request.pageable = kit_pageable();
    request.optimizer.beta1 = 0.9;
    request.optimizer.beta2 = 0.999;
    request.optimizer.eps = 1e-8;
    request.capacity.tokens = request.capacity.doc_tokens = KIT_TOKENS;
    request.capacity.docs = KIT_DOCS;
    request.streams = true;
    request.threads = 2;
    request.seed = 7;
    request.max_grad_norm = 1;
    p->adapter.dropout = t->dropout;
    if (t->lora) request.new_adapter = &p->adapter;
    p->numerics = kit_numerics(t->storage);
    if (kit_backend() != EBB_BACKEND_CPU) {
        const struct ebb_attention_shape shape = {
            student->heads, student->kv_heads, student->head_dim, student->head_dim, 0, 0, 0};
        p->numerics.attention = ebb_attention_way(&shape, t->storage, KIT_TOKENS, true, NULL, 0);
    }
    request.numerics = &p->numerics;
    if (t->teacher == NULL) return request;
    const struct taught_shape *teacher = taught_shape(t->teacher);
    snprintf(p->teacher_dir, sizeof p->teacher_dir, "%s/%s", p->dir, t->teacher);
    request.teacher_dir = p->teacher_dir;
    request.objective.kind = EBB_OBJECTIVE_DISTILL;
    request.objective.distill = t->keys;
    request.objective.distill.vocab =
        student->vocab < teacher->vocab ? student->vocab : teacher->vocab;
    return request;
}

static inline struct ebb_engine *taught_engine(struct taught_place *p, const struct taught *t)
{
    struct ebb_engine_request request = taught_request(p, t);
    return kit_engine(p->ctx, &request);
}

/* ---- micro-batches --------------------------------------------------------------------------- */

enum { TAUGHT_IDS = 96 };

/* One document, its content by `key`; now and then a token is no target, and with `masked` none. */
static inline void taught_add(struct kit_batch *b, uint64_t key, int64_t n, bool masked)
{
    int32_t ids[KIT_TOKENS];
    uint8_t mask[KIT_TOKENS];
    for (int64_t i = 0; i < n; i++) {
        uint32_t words[4];
        ebb_philox(key, (uint64_t)i, words);
        ids[i] = (int32_t)(words[0] % TAUGHT_IDS);
        mask[i] = !masked && words[1] % 5 != 0;
    }
    kit_batch_add(b, ids, mask, n);
}

/* Documents first to last - 1 of a fixed list, of unequal lengths. All eight fill the capacity. */
static inline void taught_draw(struct kit_batch *b, int first, int last)
{
    static const int64_t lengths[] = {17, 2, 24, 9, 5, 20, 1, 18};
    kit_batch_begin(b);
    for (int i = first; i < last; i++) taught_add(b, (uint64_t)i + 40, lengths[i], false);
}

static inline struct ebb_sums taught_micro(struct taught_place *p, struct ebb_engine *engine,
                                           enum ebb_program_kind kind, const struct kit_batch *b,
                                           uint32_t micro)
{
    kit_ok(p->ctx, ebb_engine_micro(engine, kind, &b->batch, 1, micro), "micro-batch");
    return ebb_engine_sums(engine);
}

/* ---- values ---------------------------------------------------------------------------------- */

static inline int64_t taught_values(const struct ebb_engine *engine)
{
    int64_t trained, all;
    ebb_engine_parameters(engine, &trained, &all);
    return trained;
}

/* Of all parameters, one behind the other. */
static inline void taught_read(const struct ebb_engine *engine, bool grads, float *out)
{
    const struct ebb_net *net = ebb_engine_net(engine);
    for (int32_t i = 0; i < net->param_count; i++) {
        const struct ebb_param *p = &net->params[i];
        assert_int_equal(grads ? ebb_engine_read_grad(engine, p, out)
                               : ebb_engine_read_param(engine, p, out),
                         EBB_OK);
        out += p->w.rows * p->w.cols;
    }
}

static inline float *taught_take(const struct ebb_engine *engine, bool grads)
{
    float *values = (float *)calloc((size_t)taught_values(engine), sizeof *values);
    assert_non_null(values);
    taught_read(engine, grads, values);
    return values;
}

#endif
