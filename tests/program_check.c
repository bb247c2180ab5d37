/* Tests of the checker: what it refuses, and that it agrees with a slow proof on random programs.
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

/* Programs are refused for what a wrong build could do to them; here it is done by hand. */
static struct ebb_entry *entry_of(struct ebb_program *program, int32_t entry)
{
    return (struct ebb_entry *)(uintptr_t)ebb_program_entry_at(program, entry);
}

static struct ebb_tensor *tensor_of(struct ebb_program *program, int32_t tensor)
{
    return (struct ebb_tensor *)(uintptr_t)ebb_program_tensor_at(program, tensor);
}

static struct ebb_view *view_of(struct ebb_program *program, int32_t entry, int i)
{
    return (struct ebb_view *)(uintptr_t)ebb_program_args(program,
                                                          ebb_program_entry_at(program, entry)) +
           i;
}

static void refused(struct ebb_program *program, const char *words)
{
    kit_failed(ctx, ebb_program_check(ctx, program), EBB_FAILED, words);
}

/* 0: fill a (compute), 1: a out to h, 2: h in to b, 3: copy b to p0 (compute). */
static struct ebb_program *there_and_back(int32_t *a, int32_t *h, int32_t *b)
{
    struct ebb_program *program = kit_program(ctx, 1);
    int32_t object = -1;
    *a = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    *h = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    *b = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    assert_int_equal(ebb_program_object(program, *h, &object), EBB_OK);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(*a), 7);
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(*a), kit_all(*h), object, 1);
    kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, kit_all(*b), kit_all(*h), object, 0);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(*b), kit_all(0));
    kit_finish(program, false);
    assert_int_equal(ebb_program_edges(program), 3);
    assert_int_equal(ebb_program_check(ctx, program), EBB_OK);
    return program;
}

static void a_program_without_order_is_not_checked(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 0);
    refused(program, "program 'test': check before order; call ebb_program_order first");
    ebb_program_free(program);
}

static void a_missing_edge_is_refused_with_both_entries(void **state)
{
    (void)state;
    int32_t a, h, b;
    struct ebb_program *program = there_and_back(&a, &h, &b);
    ebb_program_remove_edge(program, 0);
    refused(program, "program 'test': a race: entry 0 (fill on queue compute) writes tensor 't1', "
                     "entry 1 (move out on "
                     "queue out) reads tensor 't1', both at device bytes [512, 1024), and nothing "
                     "orders the two");
    kit_place(program, true); /* or a and b would be on the same bytes */
    ebb_program_remove_edge(program, 1);
    refused(program, "a race: entry 1 (move out on queue out) writes tensor 't2', entry 2 (move in "
                     "on queue in) reads "
                     "tensor 't2', both at host bytes [0, 512)");
    ebb_program_free(program);
}

static void a_write_before_its_readers_are_done_is_refused(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 3);
    kit_copy(program, EBB_QUEUE_OUT, kit_all(0), kit_all(1));
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_rows(0, 3, 2), 0);
    kit_finish(program, false);
    assert_int_equal(ebb_program_edges(program), 1);
    ebb_program_remove_edge(program, 0);
    refused(program, "entry 0 (copy_rows on queue out) reads tensor 'p0', entry 1 (fill on queue "
                     "compute) writes tensor "
                     "'p0', both at device bytes [96, 160)");
    ebb_program_free(program);
}

static void a_read_of_what_nothing_wrote_is_refused(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    int32_t t = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_rows(t, 0, 10), 0);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(t), kit_all(0));
    kit_finish(program, false);
    refused(program, "entry 1 (copy_rows on queue compute) reads tensor 't1' at its bytes [320, "
                     "512), which nothing has "
                     "written before (device bytes [832, 1024))");
    ebb_program_free(program);
}

static void what_another_tensor_left_there_does_not_count_as_written(void **state)
{
    (void)state;
    for (int poison = 0; poison < 2; poison++) {
        struct ebb_program *program = kit_program(ctx, 1);
        int32_t a = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
        int32_t b = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
        kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(a), 0);
        kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(b), kit_all(0));
        kit_finish(program, poison != 0);
        assert_int_equal(tensor_of(program, a)->offset, tensor_of(program, b)->offset);
        refused(program,
                "reads tensor 't2' at its bytes [0, 512), which nothing has written before");
        ebb_program_free(program);
    }
}

static void what_an_earlier_run_left_may_be_read_where_it_is_held(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    int32_t cache = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t other = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(other), 0);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(cache), kit_all(0));
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_rows(cache, 0, 1), 1);
    ebb_program_hold(program, cache, true);
    kit_finish(program, true);
    assert_int_equal(ebb_program_check(ctx, program), EBB_OK);
    assert_true(tensor_of(program, cache)->offset != tensor_of(program, other)->offset);
    ebb_program_free(program);
}

static void a_view_outside_its_tensor_is_refused(void **state)
{
    (void)state;
    int32_t a, h, b;
    struct ebb_program *program = there_and_back(&a, &h, &b);
    view_of(program, 3, 0)->rows++;
    refused(program, "view 0 of entry 3 (copy_rows on queue compute) covers bytes [0, 544) of "
                     "tensor 't3', which has 512");
    view_of(program, 3, 0)->rows--;
    view_of(program, 0, 0)->offset = -1;
    refused(program,
            "view 0 of entry 0 (fill on queue compute) covers bytes [-1, 511) of tensor 't1'");
    ebb_program_free(program);
}

static void an_entry_outside_its_tensors_life_is_refused(void **state)
{
    (void)state;
    int32_t a, h, b;
    struct ebb_program *program = there_and_back(&a, &h, &b);
    tensor_of(program, a)->last = 0;
    refused(
        program,
        "entry 1 (move out on queue out) touches tensor 't1', which lives from entry 0 to 0 only");
    tensor_of(program, a)->last = 1;
    tensor_of(program, b)->first = 3;
    refused(
        program,
        "entry 2 (move in on queue in) touches tensor 't3', which lives from entry 3 to 3 only");
    ebb_program_free(program);
}

static void two_tensors_alive_on_the_same_bytes_are_refused(void **state)
{
    (void)state;
    int32_t a, h, b;
    struct ebb_program *program = there_and_back(&a, &h, &b);
    tensor_of(program, b)->first = 1; /* as if held while a leaves: they share their bytes */
    assert_int_equal(tensor_of(program, a)->offset, tensor_of(program, b)->offset);
    refused(program, "tensors 't1' (device bytes [512, 1024), entries 0 to 1) and 't3' (bytes "
                     "[512, 1024), entries 1 to "
                     "3) are alive at the same time on the same bytes");
    tensor_of(program, b)->first = 2;
    tensor_of(program, a)->offset = 511;
    refused(program, "'p0' (device bytes [0, 512)"); /* persistent tensors live throughout */
    ebb_program_free(program);
}

static void a_wait_that_is_none_is_refused(void **state)
{
    (void)state;
    int32_t a, h, b;
    struct ebb_program *program = there_and_back(&a, &h, &b);
    struct ebb_entry saved = *entry_of(program, 0);
    entry_of(program, 0)->waits =
        ebb_program_entry_at(program, 3)->waits; /* which waits for entry 2 */
    entry_of(program, 0)->wait_count = 1;
    refused(program, "entry 0 (fill on queue compute) waits for entry 2, which is not before it");
    *entry_of(program, 0) = saved;
    entry_of(program, 2)->waits = ebb_program_entry_at(program, 3)->waits;
    refused(program, "entry 2 (move in on queue in) waits for entry 2, which is not before it");
    ebb_program_free(program);
}

static void a_wait_for_another_event_is_refused(void **state)
{
    (void)state;
    int32_t a, h, b;
    struct ebb_program *program = there_and_back(&a, &h, &b);
    int32_t event = entry_of(program, 0)->event;
    entry_of(program, 0)->event = -1;
    refused(program, "entry 1 (move out on queue out) waits for entry 0 (fill on queue compute), "
                     "which records no event");
    entry_of(program, 0)->event = event;
    ebb_program_free(program);

    program = kit_program(ctx,
                          3); /* entry 1 records the event again between 0 and the wait for it */
    kit_fill(program, EBB_QUEUE_OUT, kit_all(0), 0);
    kit_fill(program, EBB_QUEUE_IN, kit_all(1), 0);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(0), kit_all(2));
    kit_finish(program, false);
    entry_of(program, 1)->event = entry_of(program, 0)->event;
    refused(program, "entry 2 (copy_rows on queue compute) waits for entry 0 (fill on queue out), "
                     "but its event 0 was "
                     "recorded again by entry 1");
    ebb_program_free(program);
}

/* reach [n, n]: every path by queues and waits. Small programs only. */
static bool is_free_of_races(const struct ebb_program *program)
{
    int32_t n = ebb_program_entries(program);
    bool *reach = calloc((size_t)n * (size_t)n, sizeof *reach);
    assert_non_null(reach);
    bool fine = true;
    for (int32_t e = 0; e < n; e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        for (int32_t before = 0; before < e; before++) {
            bool edge = ebb_program_entry_at(program, before)->queue == entry->queue;
            for (int32_t k = 0; k < entry->wait_count; k++)
                edge |= ebb_program_wait_at(program, entry, k) == before;
            if (!edge) continue;
            reach[e * n + before] = true;
            for (int32_t i = 0; i < before; i++) reach[e * n + i] |= reach[before * n + i];
        }
        for (int32_t before = 0; before < e && fine; before++) {
            const struct ebb_entry *other = ebb_program_entry_at(program, before);
            for (int i = 0; i < ebb_program_views(program, entry); i++)
                for (int j = 0; j < ebb_program_views(program, other); j++) {
                    struct ebb_access x, y;
                    if (!ebb_program_access(program, entry, i, &x) ||
                        !ebb_program_access(program, other, j, &y))
                        continue;
                    bool meet = x.space == y.space && x.begin < y.end && y.begin < x.end;
                    if (meet && (x.writes || y.writes) && !reach[e * n + before]) fine = false;
                }
        }
    }
    free(reach);
    return fine;
}

static void it_agrees_with_a_proof_over_all_pairs(void **state)
{
    (void)state;
    int free_of_races = 0;
    int racy = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        uint64_t random = seed;
        struct ebb_program *program = kit_random_program(ctx, 7000 + seed,
                                                         4 + (int32_t)(seed % 40));
        assert_int_equal(ebb_program_finish(program, seed % 2 == 0), EBB_OK);
        kit_place(program, seed % 5 == 0);
        int32_t removed = kit_below(&random, 3);
        while (removed-- > 0 && ebb_program_edges(program) > 0)
            ebb_program_remove_edge(program, kit_below(&random, ebb_program_edges(program)));
        bool proved = is_free_of_races(program);
        enum ebb_status status = ebb_program_check(ctx, program);
        assert_int_equal(status == EBB_OK, proved);
        if (!proved) kit_failed(ctx, status, EBB_FAILED, "a race");
        free_of_races += proved;
        racy += !proved;
        ebb_program_free(program);
    }
    assert_true(free_of_races > 50 && racy > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
        CASE(a_program_without_order_is_not_checked),
        CASE(a_missing_edge_is_refused_with_both_entries),
        CASE(a_write_before_its_readers_are_done_is_refused),
        CASE(a_read_of_what_nothing_wrote_is_refused),
        CASE(what_another_tensor_left_there_does_not_count_as_written),
        CASE(what_an_earlier_run_left_may_be_read_where_it_is_held),
        CASE(a_view_outside_its_tensor_is_refused),
        CASE(an_entry_outside_its_tensors_life_is_refused),
        CASE(two_tensors_alive_on_the_same_bytes_are_refused),
        CASE(a_wait_that_is_none_is_refused),
        CASE(a_wait_for_another_event_is_refused),
        CASE(it_agrees_with_a_proof_over_all_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
