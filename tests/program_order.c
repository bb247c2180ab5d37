/* Tests of the order between queues: enough edges, and none too many.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program_kit.h"

static struct ebb_ctx *ctx;

static int make_ctx(void **state)
{
    (void)state;
    ctx = ebb_ctx_create();
    return ctx == NULL;
}

static int free_ctx(void **state)
{
    (void)state;
    assert_string_equal(ebb_error_text(ctx), "");
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
    return 0;
}

static void check_ok(const struct ebb_program *program)
{
    enum ebb_status status = ebb_program_check(ctx, program);
    if (status != EBB_OK) fail_msg("%s", ebb_error_text(ctx));
}

static void entries_of_one_queue_need_no_edge(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 2);
    for (int i = 0; i < 5; i++) {
        kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), i);
        kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(0), kit_all(1));
    }
    kit_finish(program, false);
    assert_int_equal(ebb_program_edges(program), 0);
    assert_int_equal(ebb_program_events(program), 0);
    check_ok(program);
    ebb_program_free(program);
}

static void readers_on_two_queues_are_not_ordered_between_themselves(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 3);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 1);
    kit_copy(program, EBB_QUEUE_OUT, kit_all(0), kit_all(1));
    kit_copy(program, EBB_QUEUE_IN, kit_all(0), kit_all(2));
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 2);
    kit_finish(program, false);
    assert_int_equal(ebb_program_edges(program), 4); /* 0 to 1, 0 to 2, 1 to 3, 2 to 3 */
    assert_int_equal(ebb_program_entry_at(program, 1)->wait_count, 1);
    assert_int_equal(ebb_program_entry_at(program, 2)->wait_count, 1);
    const struct ebb_entry *last = ebb_program_entry_at(program, 3);
    assert_int_equal(last->wait_count, 2);
    assert_int_equal(ebb_program_wait_at(program, last, 0) + ebb_program_wait_at(program, last, 1),
                     3);
    check_ok(program);
    ebb_program_free(program);
}

static void an_edge_that_another_implies_is_left_out(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 3);
    kit_fill(program, EBB_QUEUE_OUT, kit_all(0), 1);
    kit_copy(program, EBB_QUEUE_IN, kit_all(0), kit_all(1));
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(0), kit_all(2)); /* after 0 */
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(1), kit_all(0)); /* after 1, which is after 0 */
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(0), kit_all(1)); /* knows all */
    kit_finish(program, false);
    assert_int_equal(ebb_program_edges(program), 3);
    assert_int_equal(ebb_program_entry_at(program, 3)->wait_count, 1);
    assert_int_equal(ebb_program_entry_at(program, 4)->wait_count, 0);
    check_ok(program);
    ebb_program_free(program);

    program = kit_program(ctx, 3); /* within one entry: it needs 0 and 1, and 1 is after 0 */
    kit_fill(program, EBB_QUEUE_OUT, kit_all(0), 1);
    kit_copy(program, EBB_QUEUE_IN, kit_all(0), kit_all(1));
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 3);
    kit_finish(program, false);
    assert_int_equal(ebb_program_edges(program), 2);
    assert_int_equal(ebb_program_wait_at(program, ebb_program_entry_at(program, 2), 0), 1);
    check_ok(program);
    ebb_program_free(program);
}

static void rows_that_do_not_meet_are_not_ordered(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_rows(0, 0, 4), 1);
    kit_fill(program, EBB_QUEUE_OUT, kit_rows(0, 4, 4), 2);
    kit_fill(program, EBB_QUEUE_IN, kit_rows(0, 3, 1), 3);
    kit_finish(program, false);
    assert_int_equal(ebb_program_edges(program), 1);
    assert_int_equal(ebb_program_wait_at(program, ebb_program_entry_at(program, 2), 0), 0);
    check_ok(program);
    ebb_program_free(program);
}

static void bytes_that_pass_to_another_tensor_are_ordered(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 2);
    int32_t a = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(a), 1);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(a), kit_all(0));
    int32_t b = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    kit_fill(program, EBB_QUEUE_IN, kit_all(b), 2);
    kit_finish(program, false);
    assert_int_equal(ebb_program_tensor_at(program, a)->offset,
                     ebb_program_tensor_at(program, b)->offset);
    assert_int_equal(ebb_program_edges(program), 1);
    check_ok(program);
    kit_place(program, true);
    assert_int_equal(ebb_program_edges(program), 0);
    check_ok(program);
    ebb_program_free(program);
}

static void event_numbers_are_used_again(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 2);
    for (int i = 0; i < 100; i++) {
        kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), i);
        kit_copy(program, EBB_QUEUE_OUT, kit_all(0), kit_all(1));
    }
    kit_finish(program, false);
    assert_int_equal(ebb_program_edges(program), 199);
    assert_true(ebb_program_events(program) <= 2);
    check_ok(program);
    ebb_program_free(program);
}

static void random_programs_pass_and_no_edge_can_be_spared(void **state)
{
    (void)state;
    int64_t edges = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct ebb_program *program = kit_random_program(ctx, seed, 10 + (int32_t)(seed % 60));
        assert_int_equal(ebb_program_finish(program, seed % 3 == 0), EBB_OK);
        kit_place(program, seed % 7 == 0);
        check_ok(program);
        int32_t count = ebb_program_edges(program);
        for (int32_t k = 0; k < count; k++) {
            ebb_program_remove_edge(program, k);
            assert_int_equal(ebb_program_edges(program), count - 1);
            enum ebb_status status = ebb_program_check(ctx, program);
            if (status == EBB_OK)
                fail_msg("seed %d: edge %d of %d can be spared", (int)seed, (int)k, (int)count);
            kit_failed(ctx, status, EBB_FAILED, "a race");
            assert_int_equal(ebb_program_order(program), EBB_OK);
            assert_int_equal(ebb_program_edges(program), count);
        }
        edges += count;
        ebb_program_free(program);
    }
    assert_true(edges > 4000);
}

/* Runs the program on delayed queues and alone; outputs must be the same. */
static void compare_runs(uint64_t seed, int32_t entries, bool poison,
                         const struct ebb_executor_options *options)
{
    struct ebb_program *program = kit_random_program(ctx, seed, entries);
    assert_int_equal(ebb_program_finish(program, poison), EBB_OK);
    kit_place(program, false);
    check_ok(program);
    struct ebb_device *device = kit_device(ctx, program, seed % 2 ? 120 : 0, seed);
    struct ebb_executor *executor = NULL;
    assert_int_equal(ebb_executor_create(ctx, device, NULL, program, options, &executor), EBB_OK);
    void **blocks = kit_blocks(program);
    uint64_t random = seed;
    for (int32_t t = 0; t < 2; t++)
        for (int i = 0; i < KIT_BYTES; i++) {
            unsigned char byte = (unsigned char)kit_random(&random);
            ((unsigned char *)blocks[t])[i] = byte;
            if (ebb_executor_tensor(executor, t) != NULL)
                ((unsigned char *)ebb_executor_tensor(executor, t))[i] = byte;
        }
    struct ebb_step step = {.tokens = KIT_ROWS};
    kit_run_alone(ctx, program, &step, blocks);
    assert_int_equal(ebb_executor_run(executor, &step, 1), EBB_OK);
    assert_int_equal(ebb_executor_run(executor, &step, 1),
                     EBB_OK); /* the second behind the first, which changes nothing */
    if (ebb_device_sync(device) != EBB_OK) fail_msg("seed %d: %s", (int)seed, ebb_error_text(ctx));
    for (int32_t t = 2; t < KIT_PERSISTENT; t++)
        if (ebb_program_tensor_at(program, t)->first <= ebb_program_tensor_at(program, t)->last)
            assert_memory_equal(ebb_executor_tensor(executor, t), blocks[t], KIT_BYTES);
    kit_blocks_free(program, blocks);
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

static void delayed_queues_compute_what_one_queue_would(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ebb_executor_options options = {.checksums = seed % 4 == 0,
                                               .own_allocations = seed % 5 == 0};
        compare_runs(1000 + seed, 30, seed % 3 == 0, &options);
    }
}

static void a_long_program_is_ordered_quickly(void **state)
{
    (void)state;
    struct ebb_program *program = kit_random_program(ctx, 5, 50000);
    assert_int_equal(ebb_program_finish(program, true), EBB_OK);
    assert_true(ebb_program_entries(program) > 80000);
    double start = ebb_clock_seconds();
    int64_t places[EBB_SPACE_COUNT] = {KIT_PERSISTENT * KIT_BYTES, 0};
    assert_int_equal(ebb_program_layout(program, places, false), EBB_OK);
    double laid_out = ebb_clock_seconds();
    assert_int_equal(ebb_program_order(program), EBB_OK);
    double ordered = ebb_clock_seconds();
    check_ok(program);
    double checked = ebb_clock_seconds();
    print_message("%d entries, %d tensors: layout %.3f s, order %.3f s, check %.3f s\n",
                  (int)ebb_program_entries(program), (int)ebb_program_tensors(program),
                  laid_out - start, ordered - laid_out, checked - ordered);
    assert_true(checked - laid_out < 20.0); /* far from what it takes, and far below quadratic */
    ebb_program_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
        CASE(entries_of_one_queue_need_no_edge),
        CASE(readers_on_two_queues_are_not_ordered_between_themselves),
        CASE(an_edge_that_another_implies_is_left_out),
        CASE(rows_that_do_not_meet_are_not_ordered),
        CASE(bytes_that_pass_to_another_tensor_are_ordered),
        CASE(event_numbers_are_used_again),
        CASE(random_programs_pass_and_no_edge_can_be_spared),
        CASE(delayed_queues_compute_what_one_queue_would),
        CASE(a_long_program_is_ordered_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
