/* What tests of models of some size share: models with random weights, made in a folder of their
 * own, micro-batches of documents of given lengths, and runs with everything that must be equal.
 *
 * On a GPU the sizes are those that a GPU is for: bf16 through the libraries. On the CPU the same
 * code runs with a thirty-second of the tokens and narrower models.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_SIZED_H
#define EBB_TRAIN_SIZED_H

#include "train_kit.h"

#include <unistd.h>

#include "base/clock.h"
#include "model/init.h"

enum { SIZED_DOCS = 4, SIZED_MICROS = 2, SIZED_SHRINK = 32 };

struct sized_shape {
    const char *family; /* "llama", "qwen3" */
    int64_t layers, width, heads, kv_heads, head_dim, ffn, vocab;
};

/* Which run. */
struct sized_cell {
    const char *model; /* folder below the place's */
    bool lora;
    int64_t tokens, docs;                     /* capacity; longest document: tokens */
    int64_t length[SIZED_MICROS][SIZED_DOCS]; /* of each micro-batch's documents; 0: no more */
    int steps;
};

struct sized_place {
    struct ebb_ctx *ctx;
    char dir[64], model_dir[200], cache_dir[200];
    struct ebb_adapter_config adapter;
    struct ebb_numerics numerics; /* on the CPU: small tiles */
};

/* Everything that must be equal. */
struct sized_trace {
    int steps;
    double *loss; /* [steps] */
    float *norm;
    float *first, *last; /* [values] gradients of the first and of the last step */
    float *params;       /* after the last */
    int64_t values;
    int64_t bytes_out, device_bytes;
};

static inline bool sized_on_gpu(void)
{
    return kit_backend() == EBB_BACKEND_CUDA;
}

static inline int64_t sized_tokens(int64_t tokens)
{
    if (sized_on_gpu() || tokens == 0) return tokens;
    return tokens < SIZED_SHRINK ? 1 : tokens / SIZED_SHRINK;
}

/* ---- places ---------------------------------------------------------------------------------- */

static inline void sized_open(struct sized_place *p)
{
    static char targets[][16] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                 "gate_proj", "up_proj", "down_proj"};
    static char base[] = "base";
    memset(p, 0, sizeof *p);
    p->ctx = ebb_ctx_create();
    snprintf(p->dir, sizeof p->dir, "/tmp/ebb_sized_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->cache_dir, sizeof p->cache_dir, "%s/plans", p->dir);
    if (kit_cache_dir()) snprintf(p->cache_dir, sizeof p->cache_dir, "%s", kit_cache_dir());
    p->adapter.rank = 8;
    p->adapter.alpha = 16;
    p->adapter.dropout = 0.1;
    p->adapter.base_model = base;
    p->adapter.target_count = (int)(sizeof targets / sizeof targets[0]);
    for (int i = 0; i < p->adapter.target_count; i++) p->adapter.targets[i] = targets[i];
}

static inline void sized_close(struct sized_place *p)
{
    kit_ok(p->ctx, ebb_dir_remove(p->ctx, p->dir), p->dir);
    assert_int_equal(ebb_mem_bytes_now(p->ctx), 0);
    ebb_ctx_free(p->ctx);
}

static inline void sized_make_model(struct sized_place *p, const char *name,
                                    const struct sized_shape *s)
{
    char json[1200], path[300], dir[300];
    bool qwen = strcmp(s->family, "qwen3") == 0;
    int n = snprintf(json, sizeof json,
                     "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": \"%s\", "
                     "\"num_hidden_layers\": %d, \"hidden_size\": %d, "
                     "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
                     "\"intermediate_size\": %d, \"vocab_size\": %d, "
                     "\"max_position_embeddings\": 16384, \"rms_norm_eps\": 1e-5, "
                     "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
                     "\"attention_bias\": false, \"tie_word_embeddings\": false, "
                     "\"initializer_range\": 0.02, \"torch_dtype\": \"bfloat16\"}",
                     qwen ? "Qwen3" : "Llama", s->family, (int)s->layers, (int)s->width,
                     (int)s->heads, (int)s->kv_heads, (int)s->head_dim, (int)s->ffn, (int)s->vocab);
    assert_true(n > 0 && n < (int)sizeof json);
    snprintf(path, sizeof path, "%s/%s.json", p->dir, name);
    snprintf(dir, sizeof dir, "%s/%s", p->dir, name);
    kit_ok(p->ctx, ebb_file_write(p->ctx, path, json, (size_t)n), path);
    kit_ok(p->ctx, ebb_model_init(p->ctx, path, NULL, dir, EBB_BF16, 3), "model init");
}

/* The place is borrowed, for one engine's life at a time. */
static inline struct ebb_engine_request sized_request(struct sized_place *p,
                                                      const struct sized_cell *cell)
{
    struct ebb_engine_request request;
    memset(&request, 0, sizeof request);
    snprintf(p->model_dir, sizeof p->model_dir, "%s/%s", p->dir, cell->model);
    request.model_dir = p->model_dir;
    request.cache_dir = p->cache_dir;
    request.new_adapter = cell->lora ? &p->adapter : NULL;
    request.train = true;
    request.storage = EBB_BF16;
    request.backend = kit_backend();
    request.deterministic = true;
    request.optimizer.beta1 = 0.9;
    request.optimizer.beta2 = 0.999;
    request.optimizer.eps = 1e-8;
    request.optimizer.weight_decay = 0.01;
    request.capacity.tokens = request.capacity.doc_tokens = sized_tokens(cell->tokens);
    request.capacity.docs = cell->docs;
    request.streams = true;
    request.threads = 2;
    request.seed = 7;
    request.max_grad_norm = 1;
    if (sized_on_gpu()) return request;
    p->numerics = kit_numerics(EBB_BF16);
    p->numerics.tile_tokens = 48;
    p->numerics.head_chunk = 64;
    request.numerics = &p->numerics;
    return request;
}

/* The same, with everything kept on the device. */
static inline struct ebb_engine_request sized_keep(struct sized_place *p,
                                                   const struct sized_cell *cell)
{
    struct ebb_engine_request request = sized_request(p, cell);
    request.memory.gradient_checkpointing = request.memory.activation_offloading = EBB_FALSE;
    return request;
}

/* ---- micro-batches --------------------------------------------------------------------------- */

struct sized_batch {
    struct ebb_batch batch;
    int32_t *ids, *targets, *positions, *label_rows; /* [tokens] of one block */
    int32_t doc_starts[SIZED_DOCS + 1];
};

/* Documents that count upwards in steps of their own, with noise; the first eighth and now and then
 * a token are no targets. */
static inline void sized_add(struct sized_batch *b, int64_t n, int64_t vocab, uint64_t key)
{
    struct ebb_batch *batch = &b->batch;
    uint32_t words[4];
    ebb_philox(key, 0, words);
    int64_t id = words[0] % vocab, by = 1 + words[1] % 7;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = batch->tokens + i;
        ebb_philox(key, (uint64_t)i + 1, words);
        b->ids[at] = (int32_t)id;
        b->positions[at] = (int32_t)i;
        id = words[0] % 4 == 0 ? words[1] % vocab : (id + by) % vocab;
        bool target = i + 1 < n && i >= n / 8 && words[2] % 16 != 0;
        b->targets[at] = target ? (int32_t)id : EBB_IGNORE;
        if (target) b->label_rows[batch->labels++] = (int32_t)at;
    }
    batch->tokens += n;
    b->doc_starts[++batch->docs] = (int32_t)batch->tokens;
    if (n > batch->longest) batch->longest = n;
}

/* Micro-batch m of step s. */
static inline void sized_draw(const struct sized_cell *cell, int64_t vocab, int s, int m,
                              struct sized_batch *b)
{
    size_t tokens = (size_t)sized_tokens(cell->tokens);
    memset(b, 0, sizeof *b);
    b->ids = (int32_t *)calloc(4 * tokens, sizeof *b->ids);
    assert_non_null(b->ids);
    b->batch.ids = b->ids;
    b->batch.targets = b->targets = b->ids + tokens;
    b->batch.positions = b->positions = b->targets + tokens;
    b->batch.label_rows = b->label_rows = b->positions + tokens;
    b->batch.doc_starts = b->doc_starts;
    for (int d = 0; d < SIZED_DOCS && cell->length[m][d] > 0; d++)
        sized_add(b, sized_tokens(cell->length[m][d]), vocab,
                  (uint64_t)((s * SIZED_MICROS + m) * SIZED_DOCS + d + 1));
}

/* ---- runs ------------------------------------------------------------------------------------ */

static inline void sized_read(const struct ebb_engine *engine, bool grads, float *out)
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

static inline struct sized_trace sized_trace_of(const struct ebb_engine *engine, int steps)
{
    struct sized_trace trace;
    int64_t all;
    memset(&trace, 0, sizeof trace);
    ebb_engine_parameters(engine, &trace.values, &all);
    size_t values = (size_t)trace.values;
    trace.steps = steps;
    trace.loss = (double *)calloc((size_t)steps, sizeof *trace.loss);
    trace.norm = (float *)calloc((size_t)steps, sizeof *trace.norm);
    trace.first = (float *)calloc(values, sizeof *trace.first);
    trace.last = (float *)calloc(values, sizeof *trace.last);
    trace.params = (float *)calloc(values, sizeof *trace.params);
    assert_true(trace.loss && trace.norm && trace.first && trace.last && trace.params);
    return trace;
}

static inline void sized_forget(struct sized_trace *trace)
{
    free(trace->loss);
    free(trace->norm);
    free(trace->first);
    free(trace->last);
    free(trace->params);
}

/* Step s, from 0. */
static inline void sized_step(const struct sized_cell *cell, struct ebb_ctx *ctx,
                              struct ebb_engine *engine, int s, struct sized_trace *trace)
{
    double weight = 0;
    ebb_engine_begin(engine);
    for (int m = 0; m < SIZED_MICROS && cell->length[m][0] > 0; m++) {
        struct sized_batch b;
        sized_draw(cell, ebb_engine_config(engine)->vocab, s, m, &b);
        weight += (double)b.batch.labels;
        kit_ok(ctx,
               ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b.batch, (uint64_t)s + 1, (uint32_t)m),
               "micro-batch");
        free(b.ids);
    }
    trace->loss[s] = ebb_engine_sums(engine).loss / weight;
    if (s == 0) sized_read(engine, true, trace->first);
    if (s == trace->steps - 1) sized_read(engine, true, trace->last);
    kit_ok(ctx, ebb_engine_update(engine, (uint64_t)s + 1, 2e-3, weight), "update");
    trace->norm[s] = (float)ebb_engine_sums(engine).grad_norm;
}

/* After the last step. */
static inline void sized_finish(struct ebb_engine *engine, bool own_allocations,
                                struct sized_trace *trace)
{
    sized_read(engine, false, trace->params);
    struct ebb_engine_usage usage = ebb_engine_usage(engine);
    trace->bytes_out = usage.bytes_out;
    trace->device_bytes = usage.predicted_device_bytes;
    if (!own_allocations) assert_int_equal(usage.peak_device_bytes, usage.predicted_device_bytes);
}

static inline struct sized_trace sized_run(struct sized_place *p, const struct sized_cell *cell,
                                           const struct ebb_engine_request *request)
{
    struct ebb_engine *engine = kit_engine(p->ctx, request);
    struct sized_trace trace = sized_trace_of(engine, cell->steps);
    for (int s = 0; s < cell->steps; s++) sized_step(cell, p->ctx, engine, s, &trace);
    sized_finish(engine, request->own_allocations, &trace);
    ebb_engine_free(engine);
    return trace;
}

/* ---- what must be equal ---------------------------------------------------------------------- */

static inline void sized_values(const float *want, const float *got, int64_t count,
                                const char *what, const char *which)
{
    if (memcmp(want, got, (size_t)count * sizeof *want) == 0) return;
    int64_t differ = 0, first = -1;
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&want[i], &got[i], sizeof *want) != 0) {
            if (first < 0) first = i;
            differ++;
        }
    fail_msg("%s: %lld of %lld %s differ, first value %lld: %.9g, want %.9g", what,
             (long long)differ, (long long)count, which, (long long)first, (double)got[first],
             (double)want[first]);
}

/* From step `from` on; the first gradients are compared where it is 0. */
static inline void sized_same(const struct sized_trace *want, const struct sized_trace *got,
                              int from, const char *what)
{
    assert_int_equal(want->values, got->values);
    assert_int_equal(want->steps, got->steps);
    for (int s = from; s < want->steps; s++)
        if (memcmp(&want->loss[s], &got->loss[s], sizeof(double)) ||
            memcmp(&want->norm[s], &got->norm[s], sizeof(float)))
            fail_msg("%s: step %d: loss %.17g and norm %.9g, want %.17g and %.9g", what, s + 1,
                     got->loss[s], (double)got->norm[s], want->loss[s], (double)want->norm[s]);
    if (from == 0)
        sized_values(want->first, got->first, want->values, what, "gradients of the first step");
    sized_values(want->last, got->last, want->values, what, "gradients of the last step");
    sized_values(want->params, got->params, want->values, what, "parameters");
}

/* Numbers that a comparison can mean something with. */
static inline void sized_sane(const struct sized_trace *trace, const char *what)
{
    for (int s = 0; s < trace->steps; s++)
        if (!isfinite(trace->loss[s]) || !(trace->norm[s] > 0))
            fail_msg("%s: step %d: loss %g, norm %g", what, s + 1, trace->loss[s],
                     (double)trace->norm[s]);
    for (int64_t i = 0; i < trace->values; i++) assert_true(isfinite((double)trace->params[i]));
}

#endif
