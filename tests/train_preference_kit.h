/* What tests of preference training through whole models share: pairs of answers of unequal length,
 * engines with any loss and reference, and runs with everything that must be equal.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_PREFERENCE_KIT_H
#define EBB_TRAIN_PREFERENCE_KIT_H

#include "train_kit.h"
#include "train_modes.h"

#include "train/feed.h"
#include "train/trainer.h"

enum { PAIRS = 8, LONGEST = 17, PAIR_STEPS = 3 };

static const char *const loss_names[EBB_PREFERENCES] = {"sigmoid", "ipo",   "hinge",
                                                        "orpo",    "simpo", "kto"};

/* One cell of what is tested. */
struct cell {
    const char *golden;
    enum ebb_dtype storage;
    enum ebb_preference loss;
    enum ebb_reference reference;
    int64_t batch; /* pairs of a micro-batch; 0: 2 */
    int64_t bin;   /* > 0: packing into bins of so many tokens */
    double dropout;
    bool fresh;             /* an adapter that has not learned anything */
    bool mute;              /* some answers have nothing that is trained */
    const struct mode *way; /* NULL: everything is kept */
    int64_t budget;         /* > 0: instead of a way */
    int64_t whole;          /* > 0: bytes to reserve, of which the plan is to use its own only */
    bool tables;            /* no embedding's rows on the host */
};

struct bench {
    struct kit_case c;
    struct cell cell;
    struct ebb_adapter_config adapter;
    struct ebb_numerics numerics;
    struct ebb_dataset *data;
    struct ebb_loader *loader;
    struct ebb_engine *engine;
    struct ebb_reference_set given;
    struct ebb_feed *feed;
};

static inline bool needs_reference(enum ebb_preference loss)
{
    return loss != EBB_PREFERENCE_ORPO && loss != EBB_PREFERENCE_SIMPO;
}

/* Weights that leave no loss flat. */
static inline struct ebb_preference_keys keys_of(enum ebb_preference loss)
{
    bool smooth = loss == EBB_PREFERENCE_SIGMOID || loss == EBB_PREFERENCE_SIMPO;
    return (struct ebb_preference_keys){.loss_type = loss,
                                        .beta = loss == EBB_PREFERENCE_SIMPO ? 2 : 0.3,
                                        .label_smoothing = smooth ? 0.1 : 0,
                                        .simpo_gamma = 0.7,
                                        .desirable_weight = 1.25,
                                        .undesirable_weight = 0.75};
}

/* Answers of 4 to LONGEST tokens behind prompts of 1 to 3; every fifth may have no labels. */
static inline struct ebb_dataset *make_pairs(struct ebb_ctx *ctx, bool mute)
{
    int32_t ids[2 * PAIRS * LONGEST];
    int64_t lengths[2 * PAIRS], prompts[2 * PAIRS], used = 0;
    struct ebb_dataset *data;
    for (int64_t i = 0; i < 2 * PAIRS; i++) {
        uint32_t words[4];
        ebb_philox(5, (uint64_t)i, words);
        lengths[i] = 4 + words[0] % (LONGEST - 3);
        prompts[i] = mute && i % 5 == 3 ? lengths[i] : 1 + words[1] % 3;
        for (int64_t k = 0; k < lengths[i]; k++) {
            ebb_philox(6, (uint64_t)(i * LONGEST + k), words);
            ids[used++] = (int32_t)(words[0] % 96);
        }
    }
    kit_ok(ctx, ebb_dataset_from_ids(ctx, ids, lengths, prompts, 2 * PAIRS, &data), "data set");
    data->group = 2;
    return data;
}

/* Pairs, or for kto their answers, each with a KL example. */
static inline struct ebb_dataset *make_data(struct ebb_ctx *ctx, const struct cell *cell)
{
    struct ebb_dataset *pairs = make_pairs(ctx, cell->mute), *with;
    if (cell->loss != EBB_PREFERENCE_KTO) return pairs;
    kit_ok(ctx, ebb_dataset_add_kl(ctx, pairs, 0, &with), "KL examples");
    ebb_dataset_free(ctx, pairs);
    return with;
}

static inline struct ebb_loader *make_loader(struct ebb_ctx *ctx, const struct ebb_dataset *data,
                                             int64_t batch, int64_t bin, bool shuffle)
{
    struct ebb_loader *loader;
    const struct ebb_loader_options options = {.per_device_batch_size = batch > 0 ? batch : 2,
                                               .packing = bin > 0,
                                               .max_length = bin,
                                               .shuffle = shuffle,
                                               .seed = 3,
                                               .world = 1};
    kit_ok(ctx, ebb_loader_create(ctx, data, &options, &loader), "loader");
    return loader;
}

/* Room for the whole data in one micro-batch, so that numbers do not hang on how it is cut. */
static inline struct ebb_engine_request bench_request(struct bench *b)
{
    struct ebb_engine_request request = kit_request(&b->c, &b->numerics);
    request.storage = b->cell.storage;
    request.seed = 7;
    request.max_grad_norm = 1;
    request.capacity.tokens = b->data->tokens;
    request.capacity.docs = b->data->count;
    request.capacity.doc_tokens = b->data->longest;
    return request;
}

static inline void set_adapter(struct bench *b, struct ebb_engine_request *request)
{
    if (!b->c.lora || !(b->cell.fresh || b->cell.dropout > 0)) return;
    kit_ok(b->c.ctx, ebb_adapter_config_load(b->c.ctx, b->c.adapter_dir, &b->adapter), "adapter");
    b->adapter.dropout = b->cell.dropout;
    request->new_adapter = &b->adapter;
    request->adapter_dir = NULL;
}

/* As precompute_ref_log_probs does it: an engine of the model without its adapter. */
static inline void make_reference(struct bench *b)
{
    struct ebb_engine_request request = bench_request(b);
    request.objective.kind = EBB_OBJECTIVE_LOGPROB;
    request.adapter_dir = NULL;
    request.train = false;
    request.evaluate = true;
    struct ebb_engine *engine = kit_engine(b->c.ctx, &request);
    kit_ok(b->c.ctx, ebb_reference_create(b->c.ctx, engine, b->data, b->loader, -1, &b->given),
           "reference");
    ebb_engine_free(engine);
}

static inline void open_feed(struct bench *b)
{
    bool given = b->cell.reference == EBB_REFERENCE_GIVEN;
    const struct ebb_feed_sources sources = {.dataset = b->data,
                                             .reference = given ? &b->given : NULL};
    kit_ok(b->c.ctx, ebb_feed_create(b->c.ctx, b->engine, &sources, &b->feed), "feed");
}

/* Memory keys of the cell. */
static inline void set_memory(const struct cell *cell, struct ebb_engine_request *request)
{
    request->memory.gradient_checkpointing = request->memory.activation_offloading = EBB_FALSE;
    if (cell->way) request->memory = cell->way->keys;
    if (cell->way) request->memory.rules = cell->way->rules;
    request->poison = cell->way != NULL && cell->whole == 0;
    request->whole_budget = cell->whole > 0;
    request->device_budget = cell->whole;
    if (cell->tables) kit_keep_tables(request);
    if (cell->budget == 0) return;
    request->device_budget = cell->budget;
    request->memory.gradient_checkpointing = request->memory.activation_offloading = EBB_AUTO;
}

static inline void close_bench(struct bench *b)
{
    struct ebb_ctx *ctx = b->c.ctx;
    ebb_feed_free(ctx, b->feed);
    ebb_engine_free(b->engine);
    ebb_reference_free(ctx, &b->given);
    ebb_loader_free(ctx, b->loader);
    ebb_dataset_free(ctx, b->data);
    ebb_adapter_config_clear(ctx, &b->adapter);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    kit_case_close(&b->c);
}

/* False, with nothing to close, where the budget is too small. */
static inline bool try_bench(struct bench *b, const struct cell *cell)
{
    memset(b, 0, sizeof *b);
    b->cell = *cell;
    if (!needs_reference(cell->loss)) b->cell.reference = EBB_REFERENCE_NONE;
    kit_case_open(&b->c, cell->golden);
    b->numerics = kit_numerics(cell->storage);
    b->data = make_data(b->c.ctx, cell);
    b->loader = make_loader(b->c.ctx, b->data, cell->batch, cell->bin, false);
    if (b->cell.reference == EBB_REFERENCE_GIVEN) make_reference(b);
    struct ebb_engine_request request = bench_request(b);
    set_adapter(b, &request);
    request.evaluate = true;
    request.objective = (struct ebb_objective){.kind = EBB_OBJECTIVE_PREFERENCE,
                                               .preference = keys_of(cell->loss),
                                               .reference = b->cell.reference};
    if (b->cell.reference == EBB_REFERENCE_MODEL) request.teacher_dir = b->c.model_dir;
    set_memory(cell, &request);
    kit_ok(b->c.ctx, ebb_engine_create(b->c.ctx, &request, &b->engine), "create");
    const struct ebb_plan *plan = ebb_engine_plan(b->engine);
    bool fits = plan->fits;
    if (!fits) {
        close_bench(b);
        return false;
    }
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++)
        if (plan->programs[i])
            kit_ok(b->c.ctx, ebb_program_check(b->c.ctx, plan->programs[i]), "program check");
    kit_ok(b->c.ctx, ebb_engine_open(b->engine), "open");
    open_feed(b);
    return true;
}

static inline void open_bench(struct bench *b, const struct cell *cell)
{
    assert_true(try_bench(b, cell));
}

/* ---- what is run ---- */

/* The loader's next micro-batch. */
static inline void run_micro(struct bench *b, enum ebb_program_kind kind, uint64_t step,
                             int64_t micro)
{
    const struct ebb_batch *batch;
    kit_ok(b->c.ctx, ebb_loader_next(b->c.ctx, b->loader, &batch), "next");
    kit_ok(b->c.ctx, ebb_feed_put(b->feed, b->engine, b->loader, batch), "feed");
    kit_ok(b->c.ctx, ebb_engine_micro(b->engine, kind, batch, step, (uint32_t)micro), "micro");
}

/* The whole data through TRAIN or EVAL, from its start. */
static inline struct ebb_sums run_epoch(struct bench *b, enum ebb_program_kind kind)
{
    const struct ebb_loader_place start = {0, 0};
    kit_ok(b->c.ctx, ebb_loader_seek(b->c.ctx, b->loader, start), "seek");
    ebb_engine_begin(b->engine);
    for (int64_t m = 0; m < ebb_loader_describe(b->loader)->micros_per_epoch; m++)
        run_micro(b, kind, 1, m);
    return ebb_engine_sums(b->engine);
}

static inline int64_t bench_values(const struct bench *b)
{
    int64_t trained, all;
    ebb_engine_parameters(b->engine, &trained, &all);
    return trained;
}

/* Everything that must be equal. */
struct trace {
    struct ebb_sums sums[PAIR_STEPS];
    float *grads;  /* of the first step */
    float *params; /* after the last */
    int64_t values, device_bytes, planned_out, bytes_out;
    double eval_loss; /* at the end */
};

static inline void free_trace(struct trace *trace)
{
    free(trace->grads);
    free(trace->params);
}

/* PAIR_STEPS steps of two micro-batches each, and an evaluation. */
static inline void trace_run(const struct cell *cell, struct trace *trace)
{
    struct bench b;
    open_bench(&b, cell);
    memset(trace, 0, sizeof *trace);
    trace->values = bench_values(&b);
    trace->grads = (float *)calloc((size_t)trace->values, sizeof *trace->grads);
    trace->params = (float *)calloc((size_t)trace->values, sizeof *trace->params);
    for (int64_t s = 0; s < PAIR_STEPS; s++) {
        ebb_engine_begin(b.engine);
        for (int64_t m = 0; m < 2; m++) run_micro(&b, EBB_PROGRAM_TRAIN, (uint64_t)s + 1, m);
        struct ebb_sums sums = ebb_engine_sums(b.engine);
        if (s == 0) kit_read_all(b.engine, true, trace->grads);
        double weight = (double)ebb_objective_weight(ebb_engine_objective(b.engine), &sums);
        assert_true(weight > 0);
        kit_ok(b.c.ctx, ebb_engine_update(b.engine, (uint64_t)s + 1, 1e-2, weight), "update");
        trace->sums[s] = ebb_engine_sums(b.engine);
    }
    kit_read_all(b.engine, false, trace->params);
    struct ebb_engine_usage usage = ebb_engine_usage(b.engine);
    trace->bytes_out = usage.bytes_out;
    trace->planned_out = ebb_engine_plan(b.engine)->bytes_out;
    trace->device_bytes = usage.predicted_device_bytes;
    assert_int_equal(usage.peak_device_bytes, usage.predicted_device_bytes);
    trace->eval_loss = run_epoch(&b, EBB_PROGRAM_EVAL).loss;
    close_bench(&b);
}

static inline void expect_same(const struct trace *want, const struct trace *got, const char *what)
{
    assert_int_equal(want->values, got->values);
    for (int s = 0; s < PAIR_STEPS; s++)
        if (memcmp(&want->sums[s], &got->sums[s], sizeof want->sums[s]))
            fail_msg("%s: step %d: loss %.17g and norm %.9g, want %.17g and %.9g", what, s + 1,
                     got->sums[s].loss, got->sums[s].grad_norm, want->sums[s].loss,
                     want->sums[s].grad_norm);
    size_t bytes = (size_t)want->values * sizeof(float);
    if (memcmp(want->grads, got->grads, bytes)) fail_msg("%s: gradients of step 1 differ", what);
    if (memcmp(want->params, got->params, bytes))
        fail_msg("%s: parameters differ after %d steps", what, PAIR_STEPS);
    for (int64_t i = 0; i < want->values; i++) assert_true(isfinite((double)want->params[i]));
    assert_memory_equal(&want->eval_loss, &got->eval_loss, sizeof want->eval_loss);
}

#endif
