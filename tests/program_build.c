/* Tests of building programs: stages, lifetimes, poison, what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program_kit.h"

#include "op/dropout.h"
#include "op/matmul.h"
#include "op/rmsnorm.h"
#include "op/rotary.h"

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

static void assert_life(const struct ebb_program *program, int32_t tensor, int32_t first,
                        int32_t last)
{
    assert_int_equal(ebb_program_tensor_at(program, tensor)->first, first);
    assert_int_equal(ebb_program_tensor_at(program, tensor)->last, last);
}

static void a_stage_is_refused_before_the_one_above_it(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    struct ebb_executor *executor = NULL;
    kit_failed(ctx, ebb_program_layout(program, from_zero, false), EBB_FAILED,
               "program 'test': layout before finish; call ebb_program_finish first");
    kit_failed(ctx, ebb_program_order(program), EBB_FAILED,
               "order before layout; call ebb_program_layout first");
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    kit_failed(ctx, ebb_program_order(program), EBB_FAILED, "order before layout");
    kit_failed(ctx, ebb_program_check(ctx, program), EBB_FAILED, "check before order");
    kit_failed(ctx, ebb_program_finish(program, false), EBB_FAILED,
               "finish after finish; a finished program cannot be");
    int32_t index = -1;
    kit_failed(ctx, ebb_program_tensor(program, EBB_SPACE_DEVICE, 1, &index, "late"), EBB_FAILED,
               "a new tensor after finish");
    struct ebb_fill fill = {.y = kit_all(0)};
    kit_failed(ctx, ebb_program_op(program, EBB_QUEUE_OUT, EBB_OP_fill, &fill), EBB_FAILED,
               "a new op after finish");
    struct ebb_device_options options = {.backend = EBB_BACKEND_CPU, .threads = 1};
    struct ebb_device *device = NULL;
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_OK);
    kit_failed(ctx, ebb_executor_create(ctx, device, NULL, program, NULL, &executor), EBB_FAILED,
               "an executor before order");
    assert_null(executor);
    ebb_device_free(device);
    ebb_program_free(program);
    ebb_program_free(NULL);
    ebb_executor_free(NULL);
}

static void an_empty_program_passes_every_stage(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 0);
    kit_finish(program, true);
    assert_int_equal(ebb_program_check(ctx, program), EBB_OK);
    assert_int_equal(ebb_program_entries(program), 0);
    assert_int_equal(ebb_program_end(program, EBB_SPACE_DEVICE), 0);
    ebb_program_free(program);
}

static void lifetimes_run_from_the_first_to_the_last_use(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 2);
    int32_t a = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t b = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t held = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t whole = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t never = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(a), 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(held), 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(whole), 1);
    ebb_program_hold(program, whole, true);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(a), kit_all(b));
    ebb_program_hold(program, held, false);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(b), kit_all(1));
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    assert_life(program, a, 0, 3);
    assert_life(program, b, 3, 4);
    assert_life(program, held, 1, 3);
    assert_life(program, whole, 0, 4);
    assert_life(program, 1, 4, 4);
    assert_true(ebb_program_tensor_at(program, never)->first >
                ebb_program_tensor_at(program, never)->last);
    assert_true(ebb_program_tensor_at(program, 0)->first > ebb_program_tensor_at(program, 0)->last);
    assert_int_equal(ebb_program_layout(program, from_zero, true), EBB_OK);
    assert_int_equal(ebb_program_end(program, EBB_SPACE_DEVICE),
                     4 * KIT_BYTES); /* p1 too: it ends at 2 of them */
    ebb_program_free(program);
}

static void assert_poison(const struct ebb_program *program, int32_t entry, int32_t tensor)
{
    const struct ebb_entry *at = ebb_program_entry_at(program, entry);
    assert_int_equal(at->kind, EBB_ENTRY_OP);
    assert_int_equal(at->op, EBB_OP_fill);
    assert_int_equal(at->queue, EBB_QUEUE_COMPUTE);
    const struct ebb_fill *fill = ebb_program_args(program, at);
    assert_int_equal(fill->byte, 0xff);
    assert_int_equal(fill->y.tensor, tensor);
    assert_int_equal(ebb_view_span(&fill->y), ebb_program_tensor_at(program, tensor)->bytes);
    assert_int_equal(ebb_program_tensor_at(program, tensor)->last, entry);
}

static void poison_follows_the_last_use_of_what_is_transient_on_the_device(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    int32_t whole = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t host = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    int32_t held = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t a = kit_tensor(program, EBB_SPACE_DEVICE, 3 * KIT_BYTES);
    int32_t b = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    ebb_program_hold(program, whole, true);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(b), 1); /* 0 */
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(b), kit_all(host), -1,
             0);                                                  /* 1, then poison of b */
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(a), 2);          /* 2 becomes 3 */
    kit_fill(program, EBB_QUEUE_IN, kit_all(held), 2);            /* 3 becomes 4 */
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(a), kit_all(0)); /* 4 becomes 5 */
    ebb_program_hold(program, held, false);                       /* ends with a */
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(whole), 2);      /* 5 becomes 8 */
    assert_int_equal(ebb_program_finish(program, true), EBB_OK);
    assert_int_equal(ebb_program_entries(program), 9);
    assert_poison(program, 2, b);
    assert_poison(program, 6, held);
    assert_poison(program, 7, a);
    assert_life(program, b, 0, 2);
    assert_life(program, a, 3, 7);
    assert_life(program, held, 4, 6);
    assert_life(program, host, 1, 1);
    assert_life(program, 0, 5, 5);
    assert_life(program, whole, 0, 8);
    assert_int_equal(
        ((const struct ebb_fill *)ebb_program_args(program, ebb_program_entry_at(program, 8)))
            ->y.tensor,
        whole);
    kit_place(program, false);
    assert_int_equal(ebb_program_check(ctx, program), EBB_OK);
    assert_int_equal(ebb_program_entry_at(program, 2)->wait_count, 1); /* for the move out */
    ebb_program_free(program);
}

static void tensors_grow_until_finish_and_never_shrink(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 0);
    int32_t scratch = kit_tensor(program, EBB_SPACE_DEVICE, 100);
    ebb_program_grow(program, scratch, KIT_BYTES);
    ebb_program_grow(program, scratch, 10);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(scratch), 1);
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    assert_int_equal(ebb_program_tensor_at(program, scratch)->bytes, KIT_BYTES);
    ebb_program_free(program);
}

static void names_are_formatted_and_cut(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 0);
    int32_t tensor = -1;
    assert_int_equal(
        ebb_program_tensor(program, EBB_SPACE_DEVICE, 1, &tensor, "layer%d.%s", 31, "qkv"), EBB_OK);
    assert_string_equal(ebb_program_tensor_at(program, tensor)->name, "layer31.qkv");
    assert_int_equal(ebb_program_tensor(program, EBB_SPACE_DEVICE, 1, &tensor, "%0100d", 7),
                     EBB_OK);
    assert_int_equal(strlen(ebb_program_tensor_at(program, tensor)->name), 47);
    assert_string_equal(ebb_program_name(program), "test");
    ebb_program_free(program);
}

static void sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 0);
    int32_t tensor = -1;
    kit_failed(ctx, ebb_program_tensor(program, EBB_SPACE_HOST, -1, &tensor, "h%d", 3), EBB_FAILED,
               "program 'test': tensor 'h3' of -1 bytes");
    kit_failed(ctx, ebb_program_tensor(program, EBB_SPACE_HOST, INT64_MAX, &tensor, "h"),
               EBB_FAILED, "tensor 'h' of 9223372036854775807 bytes; wanted 0 to 1125899906842624");
    ebb_program_free(program);
}

static void views_outside_their_tensors_are_refused_at_finish(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    kit_fill(program, EBB_QUEUE_OUT, kit_rows(0, 10, 7), 1);
    kit_failed(
        ctx, ebb_program_finish(program, false), EBB_FAILED,
        "view 0 of entry 0 (fill on queue out) is bytes [320, 544) of tensor 'p0', which has 512");
    ebb_program_free(program);
    program = kit_program(ctx, 1);
    struct ebb_view view = kit_all(0);
    view.stride = 3;
    kit_fill(program, EBB_QUEUE_OUT, view, 1);
    kit_failed(ctx, ebb_program_finish(program, false), EBB_FAILED,
               "view 0 of entry 0 (fill on queue out), of tensor 'p0', is malformed: dtype 5, "
               "extent 0, 16 x 32, stride 3");
    ebb_program_free(program);
}

static void moves_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    int32_t host = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    int32_t other = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    int32_t object = -1;
    assert_int_equal(ebb_program_object(program, other, &object), EBB_OK);
    const struct ebb_move good = {.device = kit_all(0), .host = kit_all(host), .object = -1};
    struct ebb_move move = good;
    move.device = kit_all(host);
    kit_failed(ctx, ebb_program_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, &move), EBB_FAILED,
               "program 'test': a move of 't1' and 't1' cannot be: its first view is not in device "
               "memory");
    move = good;
    move.host = kit_all(0);
    kit_failed(ctx, ebb_program_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, &move), EBB_FAILED,
               "not in host memory");
    move = good;
    move.host.rows--;
    kit_failed(ctx, ebb_program_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, &move), EBB_FAILED,
               "views differ in shape");
    move = good;
    move.host.dtype = EBB_F32;
    kit_failed(ctx, ebb_program_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, &move), EBB_FAILED,
               "views differ in dtype");
    move = good;
    move.device.extent = move.host.extent = EBB_EXTENT_TOKENS;
    move.host.row0 = 4;
    kit_failed(ctx, ebb_program_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, &move), EBB_FAILED,
               "which of their rows are live");
    move = good;
    move.device.stride++;
    kit_failed(ctx, ebb_program_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, &move), EBB_FAILED,
               "gaps between rows");
    move = good;
    move.object = object;
    kit_failed(ctx, ebb_program_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, &move), EBB_FAILED,
               "object has another home");
    assert_int_equal(ebb_program_entries(program), 0);
    assert_int_equal(ebb_program_objects(program), 1);
    assert_int_equal(ebb_program_object_tensor(program, object), other);
    ebb_program_free(program);
}

static void a_persistent_tensor_without_a_place_is_refused_where_used(void **state)
{
    (void)state;
    struct ebb_tensor persistent[2];
    memset(persistent, 0, sizeof persistent);
    for (int i = 0; i < 2; i++) {
        strcat(persistent[i].name, i == 0 ? "unused" : "used");
        persistent[i].bytes = KIT_BYTES;
        persistent[i].offset = -1;
    }
    struct ebb_program *program = NULL;
    assert_int_equal(ebb_program_create(ctx, "eval", persistent, 2, &program), EBB_OK);
    kit_fill(program, EBB_QUEUE_OUT, kit_all(1), 1);
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    kit_failed(ctx, ebb_program_layout(program, from_zero, false), EBB_FAILED,
               "program 'eval' uses persistent tensor 'used', which has no place yet");
    ebb_program_free(program);
}

static void traffic_counts_moves_at_capacity(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    int32_t host = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_tokens(0, 0, 16), kit_tokens(host, 0, 16),
             -1, 0);
    kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, kit_tokens(0, 4, 3), kit_tokens(host, 4, 3), -1,
             0);
    int64_t out = -1;
    int64_t in = -1;
    ebb_program_traffic(program, &out, &in);
    assert_int_equal(out, 16 * KIT_COLS);
    assert_int_equal(in, 3 * KIT_COLS);
    ebb_program_free(program);
}

static bool reads(struct ebb_program *program, int32_t entry, int view)
{
    struct ebb_access access;
    assert_true(ebb_program_access(program, ebb_program_entry_at(program, entry), view, &access));
    assert_true(access.writes);
    return access.reads;
}

static void constants_decide_whether_an_output_is_read(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    struct ebb_view all = kit_all(0);
    struct ebb_view none = ebb_view_none();
    for (int set = 0; set < 2; set++) {
        struct ebb_matmul matmul = {.a = all,
                                    .b = all,
                                    .bias = none,
                                    .add = none,
                                    .y = all,
                                    .scratch = none,
                                    .accumulate = set};
        struct ebb_dropout dropout = {.x = all, .y = all, .accumulate = set};
        struct ebb_rmsnorm_backward norm = {
            .x = all, .w = all, .dy = all, .dx = all, .dw = none, .overwrite = set};
        struct ebb_rotary_backward rotary = {.x = none,
                                             .positions = all,
                                             .table = all,
                                             .q_norm = none,
                                             .k_norm = none,
                                             .dy = all,
                                             .dq_norm = none,
                                             .dk_norm = none,
                                             .scratch = all};
        assert_int_equal(ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_matmul, &matmul),
                         EBB_OK);
        assert_int_equal(ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_dropout, &dropout),
                         EBB_OK);
        assert_int_equal(ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_rmsnorm_backward, &norm),
                         EBB_OK);
        assert_int_equal(
            ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_rotary_backward, &rotary), EBB_OK);
        assert_int_equal(reads(program, 4 * set, 4), set);
        assert_int_equal(reads(program, 4 * set + 1, 1), set);
        assert_int_equal(reads(program, 4 * set + 2, 3), !set);
        assert_int_equal(reads(program, 4 * set + 3, 5), true);
        assert_int_equal(reads(program, 4 * set + 3, 8), false);
        struct ebb_access access;
        assert_false(ebb_program_access(program, ebb_program_entry_at(program, 4 * set), 2,
                                        &access)); /* absent */
    }
    ebb_program_free(program);
}

/* Everything from creation to the executor; false where memory ran out. */
static bool build_all(void)
{
    struct ebb_tensor persistent;
    memset(&persistent, 0, sizeof persistent);
    persistent.bytes = KIT_BYTES;
    struct ebb_program *program = NULL;
    struct ebb_device *device = NULL;
    struct ebb_executor *executor = NULL;
    const struct ebb_device_options options = {.backend = EBB_BACKEND_CPU, .threads = 1};
    const struct ebb_executor_options own = {.own_allocations = true, .checksums = true};
    const int64_t start[EBB_SPACE_COUNT] = {KIT_BYTES, 0};
    int32_t t = -1;
    int32_t h = -1;
    int32_t object = -1;
    bool ok = ebb_program_create(ctx, "test", &persistent, 1, &program) == EBB_OK &&
              ebb_program_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES, &t, "t") == EBB_OK &&
              ebb_program_tensor(program, EBB_SPACE_HOST, KIT_BYTES, &h, "h") == EBB_OK &&
              ebb_program_object(program, h, &object) == EBB_OK;
    if (ok) {
        struct ebb_fill fill = {.y = kit_all(t), .byte = 3};
        struct ebb_move move = {
            .device = kit_all(t), .host = kit_all(h), .object = object, .last = 1};
        ok = ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_fill, &fill) == EBB_OK &&
             ebb_program_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, &move) == EBB_OK &&
             ebb_program_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, &move) == EBB_OK &&
             ebb_program_finish(program, true) == EBB_OK &&
             ebb_program_layout(program, start, false) == EBB_OK &&
             ebb_program_order(program) == EBB_OK && ebb_program_check(ctx, program) == EBB_OK &&
             ebb_device_create(ctx, &options, &device) == EBB_OK &&
             ebb_device_reserve(device, EBB_SPACE_HOST, ebb_program_end(program, EBB_SPACE_HOST)) ==
                 EBB_OK &&
             ebb_executor_create(ctx, device, NULL, program, &own, &executor) == EBB_OK;
    }
    if (ok) {
        struct ebb_step step = {.tokens = KIT_ROWS};
        assert_int_equal(ebb_executor_run(executor, &step, 1), EBB_OK);
        assert_int_equal(ebb_device_sync(device), EBB_OK);
    }
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
    return ok;
}

static void every_failed_allocation_is_reported_and_leaves_nothing_behind(void **state)
{
    (void)state;
    int64_t nth = 1;
    for (; nth < 1000; nth++) {
        ebb_mem_fail_nth(ctx, nth, false);
        bool ok = build_all();
        ebb_mem_fail_nth(ctx, 0, false);
        assert_int_equal(ebb_mem_bytes_now(ctx), 0);
        if (ok) break;
        assert_int_equal(ebb_error_status(ctx), EBB_NO_MEMORY);
        ebb_error_clear(ctx);
    }
    assert_true(nth > 30 && nth < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
        CASE(a_stage_is_refused_before_the_one_above_it),
        CASE(an_empty_program_passes_every_stage),
        CASE(lifetimes_run_from_the_first_to_the_last_use),
        CASE(poison_follows_the_last_use_of_what_is_transient_on_the_device),
        CASE(tensors_grow_until_finish_and_never_shrink),
        CASE(names_are_formatted_and_cut),
        CASE(sizes_out_of_range_are_refused),
        CASE(views_outside_their_tensors_are_refused_at_finish),
        CASE(moves_that_cannot_be_are_refused),
        CASE(a_persistent_tensor_without_a_place_is_refused_where_used),
        CASE(traffic_counts_moves_at_capacity),
        CASE(constants_decide_whether_an_output_is_read),
        CASE(every_failed_allocation_is_reported_and_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
