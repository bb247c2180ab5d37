/* Runs of small models whose losses, gradients and parameters are compared bit by bit.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_POLICY_KIT_H
#define EBB_TRAIN_POLICY_KIT_H

#include "train_kit.h"
#include "train_modes.h"

#ifndef EBB_TORTURE
#define EBB_TORTURE 0
#endif

enum { STEPS = 10 };

/* Which cell of the matrix a reference stands for. */
struct cell {
    const char *golden;
    enum ebb_dtype storage;
    bool packed; /* several documents a micro-batch, else one sample each of unequal length */
    int64_t micros;
    double dropout;
};

/* Everything that must be equal. */
struct trace {
    double loss[STEPS];
    float norm[STEPS];
    float *grads;  /* of the first step */
    float *params; /* after the last */
    int64_t values;
    int64_t bytes_out, device_bytes;
    enum ebb_prefetch prefetch;
    bool rows;
};

static inline void free_trace(struct trace *trace)
{
    free(trace->grads);
    free(trace->params);
}

/* Micro-batch m of step s: documents drawn from the golden case's, so that lengths and masks
 * differ. */
static inline struct kit_batch *draw(struct kit_case *c, const struct cell *cell, int64_t s,
                                     int64_t m)
{
    const struct kit_batch *from = c->batches[s % c->steps][m % c->micros[s % c->steps]];
    struct kit_batch *b = (struct kit_batch *)malloc(sizeof *b);
    kit_batch_begin(b);
    for (int64_t d = 0; d < from->batch.docs && (cell->packed || d == 0); d++) {
        int64_t start = from->doc_starts[d], n = from->doc_starts[d + 1] - start;
        uint8_t mask[KIT_TOKENS] = {0};
        for (int64_t i = 0; i + 1 < n; i++) mask[i + 1] = from->targets[start + i] != EBB_IGNORE;
        kit_batch_add(b, from->ids + start, mask, n);
    }
    return b;
}

/* Micro-batches of step s: every third has one less, as an epoch's last may. */
static inline int64_t micros_of(const struct cell *cell, int64_t s)
{
    return cell->micros > 1 && s % 3 == 2 ? cell->micros - 1 : cell->micros;
}

static inline void train_step(struct kit_case *c, const struct cell *cell,
                              struct ebb_engine *engine, int64_t s, struct trace *trace)
{
    double weight = 0;
    ebb_engine_begin(engine);
    for (int64_t m = 0; m < micros_of(cell, s); m++) {
        struct kit_batch *b = draw(c, cell, s, m);
        weight += (double)b->batch.labels;
        kit_ok(c->ctx,
               ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b->batch, (uint64_t)s + 1, (uint32_t)m),
               "micro");
        free(b);
    }
    kit_ok(c->ctx, ebb_engine_flush(engine), "flush");
    trace->loss[s] = ebb_engine_sums(engine).loss;
    if (s == 0) kit_read_all(engine, true, trace->grads);
    kit_ok(c->ctx, ebb_engine_update(engine, (uint64_t)s + 1, 1e-2, weight > 0 ? weight : 1),
           "update");
    trace->norm[s] = (float)ebb_engine_sums(engine).grad_norm;
}

static inline void run(struct kit_case *c, const struct cell *cell,
                       struct ebb_engine_request *request, struct trace *trace)
{
    int64_t trained, all;
    struct ebb_adapter_config adapter;
    memset(&adapter, 0, sizeof adapter);
    if (cell->dropout > 0) {
        kit_ok(c->ctx, ebb_adapter_config_load(c->ctx, c->adapter_dir, &adapter), "adapter");
        adapter.dropout = cell->dropout;
        request->new_adapter = &adapter;
        request->adapter_dir = NULL;
    }
    struct ebb_engine *engine = kit_engine(c->ctx, request);
    memset(trace, 0, sizeof *trace);
    ebb_engine_parameters(engine, &trained, &all);
    trace->values = trained;
    trace->grads = (float *)calloc((size_t)trained, sizeof *trace->grads);
    trace->params = (float *)calloc((size_t)trained, sizeof *trace->params);
    for (int64_t s = 0; s < STEPS; s++) train_step(c, cell, engine, s, trace);
    kit_read_all(engine, false, trace->params);
    struct ebb_engine_usage usage = ebb_engine_usage(engine);
    trace->bytes_out = usage.bytes_out;
    trace->device_bytes = usage.predicted_device_bytes;
    trace->prefetch = ebb_engine_plan(engine)->prefetch;
    trace->rows = kit_has_rows(engine);
    if (!request->own_allocations)
        assert_int_equal(usage.peak_device_bytes, usage.predicted_device_bytes);
    ebb_engine_free(engine);
    ebb_adapter_config_clear(c->ctx, &adapter);
}

static inline void expect_same(const struct trace *want, const struct trace *got, const char *what)
{
    assert_int_equal(want->values, got->values);
    for (int s = 0; s < STEPS; s++)
        if (memcmp(&want->loss[s], &got->loss[s], sizeof(double)) ||
            memcmp(&want->norm[s], &got->norm[s], sizeof(float)))
            fail_msg("%s: step %d: loss %.17g and norm %.9g, want %.17g and %.9g", what, s + 1,
                     got->loss[s], (double)got->norm[s], want->loss[s], (double)want->norm[s]);
    size_t bytes = (size_t)want->values * sizeof(float);
    if (memcmp(want->grads, got->grads, bytes)) fail_msg("%s: gradients of step 1 differ", what);
    if (memcmp(want->params, got->params, bytes))
        fail_msg("%s: parameters differ after %d steps", what, STEPS);
    for (int64_t i = 0; i < want->values; i++) assert_true(isfinite((double)want->params[i]));
}

static inline void torture(struct ebb_engine_request *request, int seed)
{
    request->one_buffer = true;
    request->poison = true;
    request->checksums = kit_backend() == EBB_BACKEND_CPU; /* the stash reads only that */
    request->delay_us[seed % EBB_QUEUE_COUNT] = 60;
}

static inline struct ebb_engine_request
request_of(const struct kit_case *c, const struct cell *cell, struct ebb_numerics *numerics)
{
    *numerics = kit_numerics(cell->storage);
    struct ebb_engine_request request = kit_request(c, numerics);
    request.storage = cell->storage;
    request.seed = 7;
    request.max_grad_norm = 1;
    return request;
}

static inline bool full_matrix(void)
{
    return getenv("EBB_TORTURE_FULL") != NULL;
}

/* Delays make a torture build slow: without EBB_TORTURE_FULL it leaves out what has no race. */
static inline bool short_torture(void)
{
    return EBB_TORTURE && !full_matrix();
}

/* Work is dear and moves are dearer: whatever comes in is waited for. */
static inline const struct ebb_rates *dear_moves(void)
{
    static struct ebb_rates rates;
    for (int i = 0; i < EBB_COST_COUNT; i++) rates.costs[i] = (struct ebb_cost){1e-6, 1e-9, 1e-9};
    rates.costs[EBB_COST_COPY_OUT].byte = rates.costs[EBB_COST_COPY_IN].byte = 1e-7;
    return &rates;
}

static inline void set_mode(struct ebb_engine_request *request, const struct mode *mode)
{
    request->memory = mode->keys;
    request->memory.rules = mode->rules;
    if (strstr(mode->name, "early")) request->rates = dear_moves();
}

/* A micro-batch of one document that fills the capacity, every token but its first a target. */
static inline void full_batch(struct kit_batch *b)
{
    int32_t ids[KIT_TOKENS];
    uint8_t mask[KIT_TOKENS];
    kit_batch_begin(b);
    for (int k = 0; k < KIT_TOKENS; k++) {
        ids[k] = (k * 31 + 7) % 96;
        mask[k] = 1;
    }
    kit_batch_add(b, ids, mask, KIT_TOKENS);
}

#endif
