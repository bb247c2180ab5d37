/* Micro-batches layer by layer: the same bits as one after the other, with less moved.
 *
 * Full matrix with EBB_TORTURE_FULL=1 in the environment, a part of it without.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_modes.h"
#include "train_policy_kit.h"
#include "train_witness.h"

static void set_order(struct ebb_engine_request *request, const struct mode *mode, int64_t micros)
{
    set_mode(request, mode);
    request->accumulation = micros;
    request->breadth_first = EBB_TRUE;
}

static int32_t micros_at_once(struct kit_case *c, const struct ebb_engine_request *request)
{
    struct ebb_engine *engine;
    kit_ok(c->ctx, ebb_engine_create(c->ctx, request, &engine), "create");
    int32_t micros = ebb_engine_plan(engine)->micros;
    ebb_engine_free(engine);
    return micros;
}

/* The reference is a run of one micro-batch after the other that keeps everything. */
static void check_cell(const struct cell *cell, int64_t accumulation)
{
    struct kit_case c;
    struct trace want, got;
    struct ebb_numerics numerics;
    char what[200];
    kit_case_open(&c, cell->golden);
    struct ebb_engine_request request = request_of(&c, cell, &numerics);
    request.memory.gradient_checkpointing = request.memory.activation_offloading = EBB_FALSE;
    kit_keep_tables(&request);
    run(&c, cell, &request, &want);
    for (int i = 0; i < MODES; i++)
        for (int streams = !full_matrix(); streams < 2; streams++) {
            if (short_torture() && i % 3 != cell->micros % 3) continue;
            request = request_of(&c, cell, &numerics);
            set_order(&request, &modes[i], accumulation);
            request.streams = streams;
            if (EBB_TORTURE) torture(&request, i + streams);
            assert_int_equal(micros_at_once(&c, &request), accumulation);
            run(&c, cell, &request, &got);
            snprintf(what, sizeof what, "%s, %s, %s, %d micro-batches, %s, %s", cell->golden,
                     cell->storage == EBB_F32 ? "float32" : "bfloat16",
                     cell->packed ? "packed" : "one document", (int)cell->micros, modes[i].name,
                     streams ? "own queues" : "one queue");
            expect_same(&want, &got, what);
            if (strstr(modes[i].name, "host")) assert_true(got.bytes_out > 0);
            free_trace(&got);
        }
    free_trace(&want);
    kit_case_close(&c);
}

static void layer_by_layer_gives_the_same_bits(void **state)
{
    static const char *const cases[] = {"qwen3", "llama3_lora", "mistral_lora", "qwen3_lora",
                                        "mistral"};
    const int count = full_matrix() ? (int)(sizeof cases / sizeof cases[0]) : 3;
    (void)state;
    for (int i = 0; i < count; i++)
        for (int storage = 0; storage < 2; storage++)
            for (int64_t micros = 2; micros <= 3; micros++) {
                struct cell cell = {cases[i], storage ? EBB_BF16 : EBB_F32,
                                    (i + storage + micros) % 2 == 0, micros, 0};
                if (!full_matrix() && storage != (micros + i) % 2) continue;
                check_cell(&cell, micros);
            }
}

/* Masks are drawn by the micro-batch's number in its step. */
static void layer_by_layer_gives_the_same_bits_with_dropout(void **state)
{
    (void)state;
    struct cell cell = {"llama3_lora", EBB_F32, true, 3, 0.2},
                narrow = {"qwen3_lora", EBB_BF16, false, 2, 0.1};
    check_cell(&cell, 3);
    check_cell(&narrow, 2);
}

/* Then a later run finds gradients that an earlier one of its step left, at home or away. */
static void a_step_may_have_more_runs_than_one(void **state)
{
    (void)state;
    struct cell full = {"qwen3", EBB_F32, true, 5, 0},
                lora = {"mistral_lora", EBB_BF16, true, 4, 0};
    check_cell(&full, 2);
    check_cell(&lora, 3);
}

static void own_allocations_give_the_same_bits(void **state)
{
    struct cell cell = {"qwen3", EBB_F32, true, 3, 0};
    struct kit_case c;
    struct trace want, got;
    struct ebb_numerics numerics;
    (void)state;
    kit_case_open(&c, cell.golden);
    struct ebb_engine_request request = request_of(&c, &cell, &numerics);
    run(&c, &cell, &request, &want);
    for (int i = 0; i < MODES; i += 3) {
        set_order(&request, &modes[i], 3);
        request.own_allocations = true;
        if (EBB_TORTURE) torture(&request, 0);
        run(&c, &cell, &request, &got);
        expect_same(&want, &got, modes[i].name);
        free_trace(&got);
    }
    free_trace(&want);
    kit_case_close(&c);
}

/* What lives in host memory comes in for each micro-batch's run, or once for all: with everything
 * else on the device these are all the bytes that move, forward and backward once each. */
static void what_is_away_moves_once_for_all(void **state)
{
    static const char *const cases[] = {"llama3_lora", "qwen3"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct kit_case c;
        kit_case_open(&c, cases[i]);
        struct ebb_numerics numerics = kit_numerics(EBB_F32);
        struct ebb_engine_request request = kit_request(&c, &numerics);
        int64_t in[2], out[2], away = 0;
        for (int k = 0; k < 2; k++) {
            struct ebb_engine *engine;
            set_order(&request, &modes[7], k ? 3 : 1);
            assert_non_null(strstr(modes[7].name, "everything kept"));
            kit_ok(c.ctx, ebb_engine_create(c.ctx, &request, &engine), "create");
            const struct ebb_plan *plan = ebb_engine_plan(engine);
            const struct ebb_net *net = ebb_engine_net(engine);
            in[k] = plan->bytes_in;
            out[k] = plan->bytes_out;
            away = 0;
            for (int32_t t = 0; t < net->tensor_count; t++)
                if (net->unit_of[t] >= 0 &&
                    (net->kinds[t] == EBB_KIND_WEIGHTS || net->kinds[t] == EBB_KIND_GRADIENTS))
                    away += net->kinds[t] == EBB_KIND_WEIGHTS && net->stands_in[t]
                                ? 0
                                : plan->persistent[t].bytes;
            ebb_engine_free(engine);
        }
        assert_true(away > 0);
        assert_int_equal(in[0], in[1]);
        assert_int_equal(out[0], out[1]);
        assert_true(c.lora ? out[1] == 0 && in[1] > away : out[1] == away);
        kit_case_close(&c);
    }
}

/* As in train_policy.c: nothing beyond the prediction is written by full micro-batches, and its
 * last byte is. And what the device counts as moved is what the plan says. */
static void check_bytes(const char *golden)
{
    struct kit_case c;
    struct kit_batch b;
    kit_case_open(&c, golden);
    full_batch(&b);
    for (int i = 0; i < MODES; i++) {
        struct ebb_numerics numerics = kit_numerics(EBB_F32);
        struct ebb_engine_request request = kit_request(&c, &numerics);
        set_order(&request, &modes[i], 3);
        request.device_budget = 16 << 20;
        request.whole_budget = true;
        struct ebb_engine *engine = kit_engine(c.ctx, &request);
        const struct ebb_plan *plan = ebb_engine_plan(engine);
        struct witnesses witnesses = watch_engine(engine);
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            const struct ebb_engine_usage before = ebb_engine_usage(engine);
            fill_both(&witnesses, pattern);
            kit_ok(c.ctx, ebb_engine_drop_gradients(engine), "drop");
            ebb_engine_begin(engine);
            for (uint32_t m = 0; m < 3; m++)
                kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b.batch, 1, m), "micro");
            look_at_both(&witnesses);
            const struct ebb_engine_usage after = ebb_engine_usage(engine);
            assert_int_equal(after.bytes_out - before.bytes_out, plan->bytes_out);
            assert_int_equal(after.bytes_in - before.bytes_in, plan->bytes_in);
        }
        expect_both(&witnesses, plan, modes[i].name);
        free_witnesses(&witnesses);
        ebb_engine_free(engine);
    }
    kit_case_close(&c);
}

static void predicted_bytes_are_the_last_bytes_that_change(void **state)
{
    (void)state;
    check_bytes("qwen3");
    check_bytes("mistral_lora"); /* whose embedding's rows lie on the host */
}

/* With an edge taken away, the checker refuses the program. */
static void every_edge_is_needed(void **state)
{
    struct kit_case c;
    (void)state;
    kit_case_open(&c, "llama3_lora");
    for (int i = 0; i < MODES; i++) {
        struct ebb_numerics numerics = kit_numerics(EBB_F32);
        struct ebb_engine_request request = kit_request(&c, &numerics);
        struct ebb_engine *engine;
        int32_t edges = 1;
        if (!full_matrix() && i != 2 && i != 9) continue;
        request.capacity.tokens = request.capacity.doc_tokens = 32; /* fewer tiles, fewer edges */
        set_order(&request, &modes[i], 2);
        for (int32_t k = 0; k < edges; k++) {
            kit_ok(c.ctx, ebb_engine_create(c.ctx, &request, &engine), "create");
            struct ebb_program *program = ebb_engine_plan(engine)->programs[EBB_PROGRAM_TRAIN];
            edges = ebb_program_edges(program);
            if (strstr(modes[i].name, "host") || strstr(modes[i].name, "away"))
                assert_true(edges > 0);
            if (edges > 0) ebb_program_remove_edge(program, k);
            if (edges > 0 && ebb_program_check(c.ctx, program) == EBB_OK)
                fail_msg("%s: edge %d of %d can be removed unseen", modes[i].name, (int)k,
                         (int)edges);
            ebb_error_clear(c.ctx);
            ebb_engine_free(engine);
        }
    }
    kit_case_close(&c);
}

/* A tied embedding that is trained gets each micro-batch's two gradients one after the other. */
static void a_trained_tied_embedding_takes_one_micro_batch_at_a_time(void **state)
{
    struct kit_case c;
    (void)state;
    kit_case_open(&c, "llama3");
    struct ebb_numerics numerics = kit_numerics(EBB_F32);
    struct ebb_engine_request request = kit_request(&c, &numerics);
    set_order(&request, &modes[0], 4);
    assert_int_equal(micros_at_once(&c, &request), 1);
    kit_case_close(&c);
}

static void runs_of_a_step_are_alike(void **state)
{
    static const int64_t want[][2] = {{1, 1},   {2, 2},   {16, 16}, {17, 9},
                                      {32, 16}, {48, 16}, {50, 13}};
    struct kit_case c;
    (void)state;
    kit_case_open(&c, "llama3_lora");
    struct ebb_numerics numerics = kit_numerics(EBB_F32);
    struct ebb_engine_request request = kit_request(&c, &numerics);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        set_order(&request, &modes[0], want[i][0]);
        assert_int_equal(micros_at_once(&c, &request), want[i][1]);
    }
    kit_case_close(&c);
}

/* Micro-batches that wait when a step is given up leave nothing behind. */
static void dropping_gradients_forgets_who_waits(void **state)
{
    struct kit_case c;
    double loss[2] = {0, 0};
    (void)state;
    kit_case_open(&c, "llama3_lora");
    struct ebb_numerics numerics = kit_numerics(EBB_F32);
    struct ebb_engine_request request = kit_request(&c, &numerics);
    set_order(&request, &modes[0], 3);
    struct ebb_engine *engine = kit_engine(c.ctx, &request);
    for (int i = 0; i < 2; i++) {
        const struct ebb_batch *batch = &c.batches[0][0]->batch;
        ebb_engine_begin(engine);
        kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, batch, 1, 0), "micro");
        assert_true(ebb_engine_sums(engine).labels == 0);
        kit_ok(c.ctx, ebb_engine_drop_gradients(engine), "drop");
        ebb_engine_begin(engine);
        for (uint32_t m = 0; m < 1 + (uint32_t)i; m++)
            kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, batch, 1, m), "micro");
        kit_ok(c.ctx, ebb_engine_flush(engine), "flush");
        loss[i] = ebb_engine_sums(engine).loss;
        assert_int_equal(ebb_engine_sums(engine).labels, (1 + i) * batch->labels);
        kit_ok(c.ctx, ebb_engine_drop_gradients(engine), "drop");
    }
    assert_true(fabs(loss[1] - 2 * loss[0]) < 1e-9 * loss[0]);
    ebb_engine_free(engine);
    kit_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_a_step_are_alike),
        cmocka_unit_test(a_trained_tied_embedding_takes_one_micro_batch_at_a_time),
        cmocka_unit_test(dropping_gradients_forgets_who_waits),
        cmocka_unit_test(what_is_away_moves_once_for_all),
        cmocka_unit_test(predicted_bytes_are_the_last_bytes_that_change),
        cmocka_unit_test(own_allocations_give_the_same_bits),
        cmocka_unit_test(a_step_may_have_more_runs_than_one),
        cmocka_unit_test(layer_by_layer_gives_the_same_bits_with_dropout),
        cmocka_unit_test(layer_by_layer_gives_the_same_bits),
        cmocka_unit_test(every_edge_is_needed),
    };
    return cmocka_run_group_tests_name("breadth first", tests, NULL, NULL);
}
