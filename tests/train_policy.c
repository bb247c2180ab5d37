/* Same numbers: whatever the policies, tiers, queues and budgets, losses, every gradient and
 * every updated parameter are bitwise those of a run that keeps everything on the device.
 *
 * Full matrix with EBB_TORTURE_FULL=1 in the environment, a part of it without. In a torture
 * build (EBB_TORTURE) every run but the reference also has delays on each queue, NaN in dead
 * ranges, rings of one buffer and checksums of all moves.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"
#include "train_modes.h"
#include "train_witness.h"

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

static void free_trace(struct trace *trace)
{
    free(trace->grads);
    free(trace->params);
}

/* Micro-batch m of step s: documents drawn from the golden case's, so that lengths and masks
 * differ. */
static struct kit_batch *draw(struct kit_case *c, const struct cell *cell, int64_t s, int64_t m)
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

static void read_all(const struct ebb_engine *engine, bool grads, float *out)
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

static void train_step(struct kit_case *c, const struct cell *cell, struct ebb_engine *engine,
                       int64_t s, struct trace *trace)
{
    double weight = 0;
    ebb_engine_begin(engine);
    for (int64_t m = 0; m < cell->micros; m++) {
        struct kit_batch *b = draw(c, cell, s, m);
        weight += (double)b->batch.labels;
        kit_ok(c->ctx,
               ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b->batch, (uint64_t)s + 1, (uint32_t)m),
               "micro");
        free(b);
    }
    trace->loss[s] = ebb_engine_sums(engine).loss;
    if (s == 0) read_all(engine, true, trace->grads);
    kit_ok(c->ctx, ebb_engine_update(engine, (uint64_t)s + 1, 1e-2, weight > 0 ? weight : 1),
           "update");
    trace->norm[s] = (float)ebb_engine_sums(engine).grad_norm;
}

static void run(struct kit_case *c, const struct cell *cell, struct ebb_engine_request *request,
                struct trace *trace)
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
    read_all(engine, false, trace->params);
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

static void expect_same(const struct trace *want, const struct trace *got, const char *what)
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

static void torture(struct ebb_engine_request *request, int seed)
{
    request->one_buffer = true;
    request->poison = true;
    request->checksums = kit_backend() == EBB_BACKEND_CPU; /* the stash reads only that */
    request->delay_us[seed % EBB_QUEUE_COUNT] = 60;
}

static struct ebb_engine_request request_of(const struct kit_case *c, const struct cell *cell,
                                            struct ebb_numerics *numerics)
{
    *numerics = kit_numerics(cell->storage);
    struct ebb_engine_request request = kit_request(c, numerics);
    request.storage = cell->storage;
    request.seed = 7;
    request.max_grad_norm = 1;
    return request;
}

static bool full_matrix(void)
{
    return getenv("EBB_TORTURE_FULL") != NULL;
}

/* Delays make a torture build slow: without EBB_TORTURE_FULL it leaves out what has no race. */
static bool short_torture(void)
{
    return EBB_TORTURE && !full_matrix();
}

/* Work is dear and moves are dearer: whatever comes in is waited for. */
static const struct ebb_rates *dear_moves(void)
{
    static struct ebb_rates rates;
    for (int i = 0; i < EBB_COST_COUNT; i++) rates.costs[i] = (struct ebb_cost){1e-6, 1e-9, 1e-9};
    rates.costs[EBB_COST_COPY_OUT].byte = rates.costs[EBB_COST_COPY_IN].byte = 1e-7;
    return &rates;
}

static void set_mode(struct ebb_engine_request *request, const struct mode *mode)
{
    request->memory = mode->keys;
    request->memory.rules = mode->rules;
    if (strstr(mode->name, "early")) request->rates = dear_moves();
}

static void check_cell(const struct cell *cell)
{
    struct kit_case c;
    struct trace want, got;
    struct ebb_numerics numerics;
    int early = 0;
    char what[200];
    kit_case_open(&c, cell->golden);
    struct ebb_engine_request request = request_of(&c, cell, &numerics);
    bool rows = strstr(cell->golden, "qwen3_lora") || strstr(cell->golden, "mistral_lora");
    request.memory.gradient_checkpointing = request.memory.activation_offloading = EBB_FALSE;
    kit_keep_tables(&request);
    run(&c, cell, &request, &want);
    assert_int_equal(want.bytes_out, 0);
    assert_false(want.rows);
    for (int i = 0; i < MODES; i++)
        for (int streams = short_torture(); streams < 2; streams++) {
            request = request_of(&c, cell, &numerics);
            set_mode(&request, &modes[i]);
            request.streams = streams;
            if (EBB_TORTURE) torture(&request, i + streams);
            run(&c, cell, &request, &got);
            snprintf(what, sizeof what, "%s, %s, %s, %d micro-batches, %s, %s", cell->golden,
                     cell->storage == EBB_F32 ? "float32" : "bfloat16",
                     cell->packed ? "packed" : "one document", (int)cell->micros, modes[i].name,
                     streams ? "own queues" : "one queue");
            expect_same(&want, &got, what);
            if (strstr(modes[i].name, "host")) assert_true(got.bytes_out > 0);
            early += got.prefetch == EBB_PREFETCH_EARLY;
            assert_true(got.rows == rows);
            free_trace(&got);
        }
    /* On a GPU the forecast finds nothing to gain in models as small as these. */
    if (!EBB_TORTURE && kit_backend() == EBB_BACKEND_CPU) assert_true(early > 0);
    free_trace(&want);
    kit_case_close(&c);
}

static void policies_give_the_same_bits(void **state)
{
    static const char *const cases[] = {"llama3",     "llama3_lora", "qwen3",
                                        "qwen3_lora", "qwen2",       "mistral_lora"};
    (void)state;
    int count = full_matrix() ? (int)(sizeof cases / sizeof cases[0]) : 2;
    for (int i = 0; i < count; i++)
        for (int storage = 0; storage < 2; storage++)
            for (int packed = 0; packed < 2; packed++)
                for (int64_t micros = 1; micros <= 4; micros += 3) {
                    if (short_torture() && packed != (micros > 1)) continue;
                    struct cell cell = {cases[i], storage ? EBB_BF16 : EBB_F32, packed != 0, micros,
                                        0};
                    check_cell(&cell);
                }
}

static void policies_give_the_same_bits_with_norms_on_q_and_k(void **state)
{
    (void)state;
    struct cell full = {"qwen3", EBB_F32, true, 1, 0}, lora = {"qwen3_lora", EBB_BF16, true, 1, 0};
    check_cell(&full);
    check_cell(&lora);
}

static void policies_give_the_same_bits_with_an_embedding_on_the_host(void **state)
{
    (void)state;
    struct cell packed = {"mistral_lora", EBB_F32, true, 1, 0},
                alone = {"mistral_lora", EBB_BF16, false, 2, 0};
    check_cell(&packed);
    check_cell(&alone);
}

static void policies_give_the_same_bits_with_dropout(void **state)
{
    (void)state;
    struct cell cell = {"llama3_lora", EBB_F32, true, 2, 0.2},
                narrow = {"qwen3_lora", EBB_BF16, false, 1, 0.1};
    check_cell(&cell);
    check_cell(&narrow);
}

static void a_smaller_budget_gives_the_same_bits(void **state)
{
    struct cell cell = {"llama3_lora", EBB_F32, true, 2, 0};
    struct kit_case c;
    struct trace want, got;
    struct ebb_numerics numerics;
    int64_t last = 0;
    int different = 0;
    (void)state;
    kit_case_open(&c, cell.golden);
    struct ebb_engine_request request = request_of(&c, &cell, &numerics);
    run(&c, &cell, &request, &want);
    for (int64_t less = 1; less < 16; less++) {
        struct ebb_engine *engine;
        request.device_budget = want.device_bytes - less * 20000;
        kit_ok(c.ctx, ebb_engine_create(c.ctx, &request, &engine), "create");
        bool fits = ebb_engine_plan(engine)->fits;
        int64_t bytes = ebb_engine_plan(engine)->device_bytes;
        ebb_engine_free(engine);
        if (!fits) break;
        assert_true(bytes <= request.device_budget);
        if (bytes == last) continue;
        last = bytes;
        different++;
        run(&c, &cell, &request, &got);
        expect_same(&want, &got, "smaller budget");
        free_trace(&got);
    }
    assert_true(different >= 2);
    free_trace(&want);
    kit_case_close(&c);
}

/* A micro-batch of one document that fills the capacity, every token but its first a target. */
static void full_batch(struct kit_batch *b)
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

/* The independent witness: memory filled with a pattern, a full batch run, the last changed byte
 * is the prediction, on the device and on the host. */
static void check_bytes(const char *golden)
{
    struct kit_case c;
    kit_case_open(&c, golden);
    for (int i = 0; i < MODES; i++) {
        struct ebb_numerics numerics = kit_numerics(EBB_F32);
        struct ebb_engine_request request = kit_request(&c, &numerics);
        set_mode(&request, &modes[i]);
        request.device_budget = 64 << 20;
        request.whole_budget = true;
        struct ebb_engine *engine = kit_engine(c.ctx, &request);
        const struct ebb_plan *plan = ebb_engine_plan(engine);
        struct ebb_device *device = ebb_engine_device(engine);
        struct witness on_device = watch(device, EBB_SPACE_DEVICE,
                                         persistent_end(engine, EBB_SPACE_DEVICE)),
                       on_host = watch(device, EBB_SPACE_HOST, host_begin(engine));
        struct kit_batch b;
        full_batch(&b);
        /* Two patterns, so that a byte which happens to be written with one of them still shows. */
        for (int pattern = 0x5a; pattern <= 0xa5; pattern += 0x4b) {
            fill_pattern(&on_device, pattern);
            fill_pattern(&on_host, pattern);
            ebb_engine_begin(engine);
            kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b.batch, 1, 0),
                   "full batch");
            look(&on_device);
            look(&on_host);
        }
        expect_last(&on_device, plan->device_bytes, modes[i].name, "device");
        expect_last(&on_host, plan->host_bytes, modes[i].name, "host");
        assert_true((plan->host_bytes > 0) == (plan->bytes_in > 0));
        free_witness(&on_device);
        free_witness(&on_host);
        ebb_engine_free(engine);
    }
    kit_case_close(&c);
}

static void predicted_bytes_are_the_last_bytes_that_change(void **state)
{
    (void)state;
    check_bytes("llama3");
    check_bytes("mistral_lora"); /* whose embedding's rows lie on the host */
}

/* Loss and gradients of the case's first micro-batch alone, after whatever ran before. */
static void run_first(struct kit_case *c, struct ebb_engine *engine, double *loss, float *grads)
{
    ebb_engine_drop_gradients(engine);
    ebb_engine_begin(engine);
    kit_ok(c->ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &c->batches[0][0]->batch, 1, 0),
           "micro");
    *loss = ebb_engine_sums(engine).loss;
    read_all(engine, true, grads);
}

/* A smaller micro-batch leaves most rows as an earlier, larger one made them, and all programs
 * share the memory behind the weights: nothing of that may show. */
static void what_ran_before_changes_no_bit(void **state)
{
    struct kit_case c;
    struct kit_batch full;
    const float *logits;
    (void)state;
    kit_case_open(&c, "qwen3");
    full_batch(&full);
    assert_true(c.batches[0][0]->batch.tokens < KIT_TOKENS);
    for (int i = 0; i < MODES; i++) {
        struct ebb_numerics numerics = kit_numerics(EBB_BF16);
        struct ebb_engine_request request = kit_request(&c, &numerics);
        double first, again;
        int64_t trained, all;
        request.storage = EBB_BF16;
        request.evaluate = request.decode = true;
        request.capacity.cache_tokens = KIT_TOKENS;
        request.memory = modes[i].keys;
        request.memory.rules = modes[i].rules;
        struct ebb_engine *engine = kit_engine(c.ctx, &request);
        ebb_engine_parameters(engine, &trained, &all);
        float *want = (float *)calloc((size_t)trained, sizeof *want),
              *got = (float *)calloc((size_t)trained, sizeof *got);
        run_first(&c, engine, &first, want);
        kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &full.batch, 1, 1), "full");
        kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_EVAL, &full.batch, 1, 2), "evaluation");
        kit_ok(c.ctx, ebb_engine_decode(engine, full.ids, KIT_TOKENS, 0, &logits), "decode");
        run_first(&c, engine, &again, got);
        if (memcmp(&first, &again, sizeof first) ||
            memcmp(want, got, (size_t)trained * sizeof *want))
            fail_msg("%s: loss %.17g at first, %.17g after other batches", modes[i].name, first,
                     again);
        free(want);
        free(got);
        ebb_engine_free(engine);
    }
    kit_case_close(&c);
}

/* activation_offloading_use_streams: false, the plain mode: one queue, so nothing to order. */
static void check_one_queue(const char *golden)
{
    struct kit_case c;
    kit_case_open(&c, golden);
    for (int i = 0; i < MODES; i++) {
        struct ebb_numerics numerics = kit_numerics(EBB_F32);
        struct ebb_engine_request request = kit_request(&c, &numerics);
        struct ebb_engine *engine;
        request.memory = modes[i].keys;
        request.memory.rules = modes[i].rules;
        request.streams = false;
        kit_ok(c.ctx, ebb_engine_create(c.ctx, &request, &engine), "create");
        const struct ebb_plan *plan = ebb_engine_plan(engine);
        const struct ebb_program *program = plan->programs[EBB_PROGRAM_TRAIN];
        int32_t moves = 0;
        for (int32_t e = 0; e < ebb_program_entries(program); e++) {
            const struct ebb_entry *entry = ebb_program_entry_at(program, e);
            assert_int_equal(entry->queue, EBB_QUEUE_COMPUTE);
            moves += entry->kind != EBB_ENTRY_OP;
        }
        assert_int_equal(ebb_program_edges(program), 0);
        assert_true((moves > 0) == (plan->bytes_in > 0));
        ebb_engine_free(engine);
    }
    kit_case_close(&c);
}

static void without_streams_everything_runs_on_the_compute_queue(void **state)
{
    (void)state;
    check_one_queue("llama3_lora");
    check_one_queue("mistral_lora");
}

/* With an edge taken away, the checker refuses the program. */
static void check_edges(const char *golden)
{
    struct kit_case c;
    kit_case_open(&c, golden);
    for (int i = 0; i < MODES; i++) {
        struct ebb_numerics numerics = kit_numerics(EBB_F32);
        struct ebb_engine_request request = kit_request(&c, &numerics);
        struct ebb_engine *engine;
        request.memory = modes[i].keys;
        request.memory.rules = modes[i].rules;
        kit_ok(c.ctx, ebb_engine_create(c.ctx, &request, &engine), "create");
        int32_t edges = ebb_program_edges(ebb_engine_plan(engine)->programs[EBB_PROGRAM_TRAIN]);
        ebb_engine_free(engine);
        if (strstr(modes[i].name, "host")) assert_true(edges > 0);
        for (int32_t k = 0; k < edges; k++) {
            kit_ok(c.ctx, ebb_engine_create(c.ctx, &request, &engine), "create");
            struct ebb_program *program = ebb_engine_plan(engine)->programs[EBB_PROGRAM_TRAIN];
            ebb_program_remove_edge(program, k);
            if (ebb_program_check(c.ctx, program) == EBB_OK)
                fail_msg("%s: edge %d of %d can be removed unseen", modes[i].name, (int)k,
                         (int)edges);
            ebb_error_clear(c.ctx);
            ebb_engine_free(engine);
        }
    }
    kit_case_close(&c);
}

static void every_edge_of_a_training_program_is_needed(void **state)
{
    (void)state;
    check_edges("llama3_lora");
    check_edges("mistral_lora");
}

static void check_own_allocations(const struct cell *cell, const struct mode *mode)
{
    struct kit_case c;
    struct trace want, got;
    struct ebb_numerics numerics;
    kit_case_open(&c, cell->golden);
    struct ebb_engine_request request = request_of(&c, cell, &numerics);
    kit_keep_tables(&request);
    run(&c, cell, &request, &want);
    request.host_budget = 0;
    request.memory = mode->keys;
    request.memory.rules = mode->rules;
    request.own_allocations = true;
    if (EBB_TORTURE) torture(&request, 0);
    run(&c, cell, &request, &got);
    expect_same(&want, &got, mode->name);
    free_trace(&got);
    request.own_allocations = false;
    request.apart = true;
    run(&c, cell, &request, &got);
    expect_same(&want, &got, mode->name);
    assert_true(got.device_bytes > want.device_bytes);
    free_trace(&want);
    free_trace(&got);
    kit_case_close(&c);
}

/* Every tensor in a heap block of its own: same bits, and sanitizers see an overrun. Then all in
 * the arena, but no two on the same bytes. */
static void own_allocations_give_the_same_bits(void **state)
{
    struct cell lora = {"qwen3_lora", EBB_F32, true, 1, 0}, full = {"qwen3", EBB_BF16, true, 1, 0};
    (void)state;
    check_own_allocations(&lora, &modes[1]);
    check_own_allocations(&full, &modes[2]);
    check_own_allocations(&lora, &modes[MODES - 2]);
    check_own_allocations(&full, &modes[MODES - 2]);
    check_own_allocations(&full, &modes[MODES - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_edge_of_a_training_program_is_needed),
        cmocka_unit_test(predicted_bytes_are_the_last_bytes_that_change),
        cmocka_unit_test(without_streams_everything_runs_on_the_compute_queue),
        cmocka_unit_test(what_ran_before_changes_no_bit),
        cmocka_unit_test(own_allocations_give_the_same_bits),
        cmocka_unit_test(a_smaller_budget_gives_the_same_bits),
        cmocka_unit_test(policies_give_the_same_bits_with_norms_on_q_and_k),
        cmocka_unit_test(policies_give_the_same_bits_with_dropout),
        cmocka_unit_test(policies_give_the_same_bits_with_an_embedding_on_the_host),
        cmocka_unit_test(policies_give_the_same_bits),
    };
    return cmocka_run_group_tests_name("policies", tests, NULL, NULL);
}
