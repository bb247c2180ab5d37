/* Same numbers: whatever the policies, tiers, queues and budgets, losses, every gradient and
 * every updated parameter are bitwise those of a run that keeps everything on the device.
 *
 * Full matrix with EBB_TORTURE_FULL=1 in the environment, a part of it without. In a torture
 * build (EBB_TORTURE) every run but the reference also has delays on each queue, NaN in dead
 * ranges, rings of one buffer and checksums of all moves.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_policy_kit.h"
#include "train_witness.h"

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
        struct witnesses witnesses = watch_engine(engine);
        struct kit_batch b;
        full_batch(&b);
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            fill_both(&witnesses, pattern);
            ebb_engine_begin(engine);
            kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b.batch, 1, 0),
                   "full batch");
            look_at_both(&witnesses);
        }
        expect_both(&witnesses, plan, modes[i].name);
        assert_true((plan->host_bytes > 0) == (plan->bytes_in > 0));
        free_witnesses(&witnesses);
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
    kit_read_all(engine, true, grads);
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
