/* Tests of the layout: disjoint while alive, and close to the least that is possible.
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

static const int64_t from_zero[EBB_SPACE_COUNT];

static void touch(struct ebb_program *program, int32_t tensor)
{
    struct ebb_view view = {.tensor = tensor, .dtype = EBB_U8, .rows = 1, .cols = 1, .stride = 1};
    kit_fill(program, EBB_QUEUE_COMPUTE, view, 0);
}

/* `count` tensors that each live between two random entries; `spread`: how far apart at most. */
static struct ebb_program *random_lives(uint64_t seed, int32_t count, int32_t spread,
                                        enum ebb_space space)
{
    uint64_t random = seed;
    struct ebb_program *program = kit_program(ctx, 0);
    int32_t slots = 2 * count;
    int32_t *at = calloc((size_t)slots, sizeof *at); /* which tensor is touched there, + 1 */
    assert_non_null(at);
    for (int32_t i = 0; i < count; i++) {
        int64_t bytes = 1 + kit_below(&random, 1 << (8 + kit_below(&random, 14)));
        int32_t tensor = kit_tensor(program, space, bytes);
        int32_t first = kit_below(&random, slots);
        int32_t last = first + kit_below(&random, spread);
        while (at[first] != 0) first = (first + 1) % slots;
        at[first] = tensor + 1;
        last %= slots;
        while (at[last] != 0) last = (last + 1) % slots;
        at[last] = tensor + 1;
    }
    for (int32_t e = 0; e < slots; e++) touch(program, at[e] - 1);
    free(at);
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    return program;
}

static int64_t align_up(int64_t bytes)
{
    return (bytes + EBB_ALIGN_BYTES - 1) / EBB_ALIGN_BYTES * EBB_ALIGN_BYTES;
}

/* The most bytes alive at once: no layout ends below. */
static int64_t bound_of(const struct ebb_program *program)
{
    int32_t entries = ebb_program_entries(program);
    int64_t *change = calloc((size_t)entries + 1, sizeof *change);
    assert_non_null(change);
    for (int32_t t = 0; t < ebb_program_tensors(program); t++) {
        const struct ebb_tensor *tensor = ebb_program_tensor_at(program, t);
        if (tensor->first > tensor->last) continue;
        change[tensor->first] += align_up(tensor->bytes);
        change[tensor->last + 1] -= align_up(tensor->bytes);
    }
    int64_t now = 0;
    int64_t most = 0;
    for (int32_t e = 0; e <= entries; e++) {
        now += change[e];
        if (now > most) most = now;
    }
    free(change);
    return most;
}

static void assert_disjoint(const struct ebb_program *program, int64_t start)
{
    int32_t count = ebb_program_tensors(program);
    for (int32_t i = 0; i < count; i++) {
        const struct ebb_tensor *a = ebb_program_tensor_at(program, i);
        assert_true(a->offset >= start);
        assert_int_equal(a->offset % EBB_ALIGN_BYTES, 0);
        for (int32_t j = 0; j < i; j++) {
            const struct ebb_tensor *b = ebb_program_tensor_at(program, j);
            bool in_time = a->first <= b->last && b->first <= a->last;
            bool in_space = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            if (in_time && in_space && a->space == b->space)
                fail_msg("tensors %d and %d overlap", (int)i, (int)j);
        }
    }
}

static void tensors_alive_at_once_never_overlap(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        int32_t count = 1 + (int32_t)(seed * 7 % 200);
        enum ebb_space space = seed % 3 == 0 ? EBB_SPACE_HOST : EBB_SPACE_DEVICE;
        struct ebb_program *program = random_lives(
            seed, count, 1 + (int32_t)(seed * 13 % (uint64_t)(2 * count)), space);
        int64_t start[EBB_SPACE_COUNT] = {1000, 3};
        assert_int_equal(ebb_program_layout(program, start, false), EBB_OK);
        assert_disjoint(program, space == EBB_SPACE_HOST ? 3 : 1000);
        int64_t sum = 0;
        for (int32_t t = 0; t < count; t++)
            sum += align_up(ebb_program_tensor_at(program, t)->bytes);
        int64_t end = ebb_program_end(program, space);
        assert_true(end <= align_up(start[space]) + sum);
        assert_true(align_up(end) >= align_up(start[space]) + bound_of(program));
        assert_int_equal(
            ebb_program_end(program, space == EBB_SPACE_HOST ? EBB_SPACE_DEVICE : EBB_SPACE_HOST),
            0);
        assert_int_equal(ebb_program_order(program), EBB_OK);
        if (ebb_program_check(ctx, program) != EBB_OK) fail_msg("%s", ebb_error_text(ctx));
        ebb_program_free(program);
    }
}

static void tensors_that_meet_in_one_entry_do_not_share_bytes(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 0);
    int32_t tensor[10];
    tensor[0] = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(tensor[0]), 1);
    for (int i = 1; i < 10; i++) { /* each ends in the entry in which the next begins */
        tensor[i] = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
        kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(tensor[i - 1]), kit_all(tensor[i]));
    }
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    assert_int_equal(ebb_program_layout(program, from_zero, false), EBB_OK);
    assert_disjoint(program, 0);
    assert_int_equal(ebb_program_end(program, EBB_SPACE_DEVICE), 2 * KIT_BYTES);
    ebb_program_free(program);
}

static void random_lives_are_packed_close_to_the_bound(void **state)
{
    (void)state;
    double worst = 0.0;
    double sum = 0.0;
    int cases = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct ebb_program *program = random_lives(seed, 300, 20 + 30 * (int32_t)seed,
                                                   EBB_SPACE_DEVICE);
        assert_int_equal(ebb_program_layout(program, from_zero, false), EBB_OK);
        double ratio = (double)ebb_program_end(program, EBB_SPACE_DEVICE) /
                       (double)bound_of(program);
        if (ratio > worst) worst = ratio;
        sum += ratio;
        cases++;
        ebb_program_free(program);
    }
    print_message("end over bound: mean %.4f, worst %.4f\n", sum / cases, worst);
    assert_true(sum / cases < 1.05);
    assert_true(worst < 1.15);
}

/* Forward leaves something of each layer behind, backward takes it in reverse; each layer has tiles
 * of scratch. */
static void a_step_of_layers_is_packed_without_waste(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 0);
    int32_t kept[32][3];
    for (int layer = 0; layer < 32; layer++) {
        for (int k = 0; k < 3; k++) {
            kept[layer][k] = kit_tensor(program, EBB_SPACE_DEVICE, 100000 + 30000 * k);
            touch(program, kept[layer][k]);
        }
        for (int tile = 0; tile < 8; tile++) {
            int32_t normed = kit_tensor(program, EBB_SPACE_DEVICE, 9000);
            int32_t gate = kit_tensor(program, EBB_SPACE_DEVICE, 52000);
            touch(program, normed);
            touch(program, gate);
            touch(program, normed);
            touch(program, gate);
        }
    }
    for (int layer = 31; layer >= 0; layer--) {
        for (int tile = 0; tile < 8; tile++) {
            int32_t gate = kit_tensor(program, EBB_SPACE_DEVICE, 52000);
            int32_t dgate = kit_tensor(program, EBB_SPACE_DEVICE, 52000);
            int32_t dx = kit_tensor(program, EBB_SPACE_DEVICE, 9000);
            touch(program, gate);
            touch(program, dgate);
            touch(program, dx);
            touch(program, gate);
            touch(program, dgate);
            touch(program, dx);
        }
        for (int k = 0; k < 3; k++) touch(program, kept[layer][k]);
    }
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    assert_int_equal(ebb_program_layout(program, from_zero, false), EBB_OK);
    double ratio = (double)ebb_program_end(program, EBB_SPACE_DEVICE) / (double)bound_of(program);
    print_message("end over bound: %.5f\n", ratio);
    assert_true(ratio < 1.005);
    ebb_program_free(program);
}

static void the_same_program_gets_the_same_layout(void **state)
{
    (void)state;
    struct ebb_program *a = random_lives(9, 150, 60, EBB_SPACE_DEVICE);
    struct ebb_program *b = random_lives(9, 150, 60, EBB_SPACE_DEVICE);
    int64_t start[EBB_SPACE_COUNT] = {512, 0};
    assert_int_equal(ebb_program_layout(a, from_zero, false), EBB_OK);
    assert_int_equal(ebb_program_layout(b, start, true), EBB_OK); /* a layout can be made again */
    assert_int_equal(ebb_program_layout(b, start, false), EBB_OK);
    for (int32_t t = 0; t < 150; t++)
        assert_int_equal(ebb_program_tensor_at(a, t)->offset + 512,
                         ebb_program_tensor_at(b, t)->offset);
    ebb_program_free(a);
    ebb_program_free(b);
}

/* One byte less than what is alive at once, and nothing in device memory has a place. */
static void what_cannot_end_within_a_limit_is_not_laid_out(void **state)
{
    (void)state;
    const int64_t start[EBB_SPACE_COUNT] = {0, 1024};
    struct ebb_program *program = kit_program(ctx, 0);
    int32_t first = kit_tensor(program, EBB_SPACE_DEVICE, 300),
            second = kit_tensor(program, EBB_SPACE_DEVICE, 300),
            host = kit_tensor(program, EBB_SPACE_HOST, 100);
    touch(program, first);
    touch(program, second);
    touch(program, host);
    touch(program, first);
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    const int64_t exact = align_up(300) + 300;
    int64_t end;
    assert_int_equal(ebb_program_layout_within(program, start, false, 300, &end), EBB_OK);
    assert_true(end > 300 && end <= exact);
    assert_int_equal(ebb_program_tensor_at(program, host)->offset, 1024);
    kit_failed(ctx, ebb_program_order(program), EBB_FAILED,
               "order before layout; call ebb_program_layout first");
    assert_int_equal(ebb_program_layout_within(program, start, false, exact, &end), EBB_OK);
    assert_int_equal(end, exact);
    assert_int_equal(ebb_program_order(program), EBB_OK);
    /* Apart there is no bound that tells. */
    assert_int_equal(ebb_program_layout_within(program, start, true, 300, &end), EBB_OK);
    assert_int_equal(end, exact);
    assert_int_equal(ebb_program_order(program), EBB_OK);
    ebb_program_free(program);
}

static void apart_gives_every_tensor_bytes_of_its_own(void **state)
{
    (void)state;
    struct ebb_program *program = random_lives(3, 100, 10, EBB_SPACE_DEVICE);
    assert_int_equal(ebb_program_layout(program, from_zero, true), EBB_OK);
    int64_t sum = 0;
    for (int32_t t = 0; t < 100; t++) {
        assert_int_equal(ebb_program_tensor_at(program, t)->offset, sum);
        sum += align_up(ebb_program_tensor_at(program, t)->bytes);
    }
    ebb_program_free(program);
}

static void tensors_that_nothing_touches_take_no_room(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 0);
    int32_t used = kit_tensor(program, EBB_SPACE_DEVICE, 300);
    kit_tensor(program, EBB_SPACE_DEVICE, 1 << 20);
    int32_t empty = kit_tensor(program, EBB_SPACE_DEVICE, 0);
    touch(program, used);
    ebb_program_hold(program, empty, true);
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    assert_int_equal(ebb_program_layout(program, from_zero, false), EBB_OK);
    assert_int_equal(ebb_program_end(program, EBB_SPACE_DEVICE), 300);
    ebb_program_free(program);
}

static void many_tensors_are_placed_quickly(void **state)
{
    (void)state;
    for (int32_t count = 2000; count <= 20000; count *= 10) {
        struct ebb_program *program = random_lives(7, count, count / 4, EBB_SPACE_DEVICE);
        double start = ebb_clock_seconds();
        assert_int_equal(ebb_program_layout(program, from_zero, false), EBB_OK);
        double seconds = ebb_clock_seconds() - start;
        double ratio = (double)ebb_program_end(program, EBB_SPACE_DEVICE) /
                       (double)bound_of(program);
        print_message("%d tensors: %.1f ms, end over bound %.4f\n", (int)count, seconds * 1e3,
                      ratio);
        assert_true(ratio < 1.10);
        assert_true(seconds <
                    (count == 2000 ? 2.0 : 60.0)); /* loose: sanitizers, shared machines */
        ebb_program_free(program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
        CASE(tensors_alive_at_once_never_overlap),
        CASE(tensors_that_meet_in_one_entry_do_not_share_bytes),
        CASE(random_lives_are_packed_close_to_the_bound),
        CASE(a_step_of_layers_is_packed_without_waste),
        CASE(the_same_program_gets_the_same_layout),
        CASE(what_cannot_end_within_a_limit_is_not_laid_out),
        CASE(apart_gives_every_tensor_bytes_of_its_own),
        CASE(tensors_that_nothing_touches_take_no_room),
        CASE(many_tensors_are_placed_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
