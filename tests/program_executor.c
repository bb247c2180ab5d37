/* Tests of the executor: real programs on the CPU device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul.h"
#include "op/optimizer.h"
#include "program/program_int.h"
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

static const struct ebb_step full = {.tokens = KIT_ROWS};

static struct ebb_executor *make(struct ebb_device *device, const struct ebb_program *program,
                                 const struct ebb_executor_options *options)
{
    struct ebb_executor *executor = NULL;
    if (ebb_executor_create(ctx, device, NULL, program, options, &executor) != EBB_OK)
        fail_msg("%s", ebb_error_text(ctx));
    return executor;
}

static void run(struct ebb_executor *executor, const struct ebb_step *step)
{
    if (ebb_executor_run(executor, step, 1) != EBB_OK) fail_msg("%s", ebb_error_text(ctx));
}

static void sync_ok(struct ebb_device *device)
{
    if (ebb_device_sync(device) != EBB_OK) fail_msg("%s", ebb_error_text(ctx));
}

static void assert_rows(const struct ebb_executor *executor, int32_t tensor, int64_t row,
                        int64_t rows, int byte)
{
    const unsigned char *at =
        (const unsigned char *)ebb_executor_tensor(executor, tensor) + row * KIT_COLS;
    for (int64_t i = 0; i < rows * KIT_COLS; i++)
        if (at[i] != byte)
            fail_msg("row %d of tensor %d is %d", (int)(row + i / KIT_COLS), (int)tensor, at[i]);
}

/* p0 is saved to the host tile by tile through a, comes back through b, and lands in p1. */
static struct ebb_program *tiles(bool poison, int tile)
{
    struct ebb_program *program = kit_program(ctx, 2);
    int32_t object = -1;
    int32_t a = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t h = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    int32_t b = kit_tensor(program, EBB_SPACE_DEVICE, tile * KIT_COLS);
    assert_int_equal(ebb_program_object(program, h, &object), EBB_OK);
    for (int row = 0; row < KIT_ROWS; row += tile) {
        kit_copy(program, EBB_QUEUE_COMPUTE, kit_tokens(0, row, tile), kit_tokens(a, row, tile));
        kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_tokens(a, row, tile),
                 kit_tokens(h, row, tile), object, row + tile == KIT_ROWS);
    }
    for (int row = KIT_ROWS - tile; row >= 0; row -= tile) {
        struct ebb_view in_b = kit_tokens(b, 0, tile);
        in_b.row0 = row;
        kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, in_b, kit_tokens(h, row, tile), object, 0);
        kit_copy(program, EBB_QUEUE_COMPUTE, in_b, kit_tokens(1, row, tile));
    }
    kit_finish(program, poison);
    assert_int_equal(ebb_program_check(ctx, program), EBB_OK);
    return program;
}

static void fill_input(const struct ebb_executor *executor, int seed)
{
    unsigned char *p0 = ebb_executor_tensor(executor, 0);
    for (int i = 0; i < KIT_BYTES; i++) p0[i] = (unsigned char)(i * 7 + seed);
}

static void what_leaves_in_tiles_comes_back(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        struct ebb_executor_options options = {.checksums = variant & 1,
                                               .own_allocations = variant & 2};
        struct ebb_program *program = tiles(variant & 4, 4);
        struct ebb_device *device = kit_device(ctx, program, 100, (uint64_t)variant + 1);
        struct ebb_executor *executor = make(device, program, &options);
        assert_int_equal(ebb_executor_peak_bytes(executor), 0);
        for (int step = 0; step < 3; step++) {
            fill_input(executor, step);
            run(executor, &full);
            sync_ok(device);
            assert_memory_equal(ebb_executor_tensor(executor, 1), ebb_executor_tensor(executor, 0),
                                KIT_BYTES);
        }
        assert_int_equal(ebb_executor_peak_bytes(executor),
                         ebb_program_end(program, EBB_SPACE_DEVICE));
        if (!options.own_allocations) {
            struct ebb_device_counters counters;
            ebb_device_counters(device, &counters);
            assert_int_equal(counters.bytes_out, 3 * KIT_BYTES);
            assert_int_equal(counters.bytes_in, 3 * KIT_BYTES);
        }
        ebb_executor_free(executor);
        ebb_device_free(device);
        ebb_program_free(program);
    }
}

static void with_fewer_tokens_less_moves_and_generations_still_end(void **state)
{
    (void)state;
    struct ebb_program *program = tiles(false, 4);
    struct ebb_device *device = kit_device(ctx, program, 50, 3);
    struct ebb_executor_options options = {.checksums = true};
    struct ebb_executor *executor = make(device, program, &options);
    int64_t moved = 0;
    const int64_t tokens[] = {6, 16, 4, 1, 0, 5, 8, 0, 15};
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        struct ebb_step step = {.tokens = tokens[i]};
        fill_input(executor, (int)i);
        memset(ebb_executor_tensor(executor, 1), 0xaa, KIT_BYTES);
        run(executor, &step);
        sync_ok(device);
        assert_memory_equal(ebb_executor_tensor(executor, 1), ebb_executor_tensor(executor, 0),
                            (size_t)tokens[i] * KIT_COLS);
        assert_rows(executor, 1, tokens[i], KIT_ROWS - tokens[i], 0xaa);
        moved += tokens[i] * KIT_COLS;
    }
    struct ebb_device_counters counters;
    ebb_device_counters(device, &counters);
    assert_int_equal(counters.bytes_out, moved);
    assert_int_equal(counters.bytes_in, moved);
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

static void runs_may_be_enqueued_ahead_and_each_sees_its_own_step(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 2);
    struct ebb_store_rows store = {.x = kit_tokens(0, 0, 1), .y = kit_all(1)};
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) /* on each queue: the same row thrice */
        assert_int_equal(ebb_program_op(program, (enum ebb_queue)q, EBB_OP_store_rows, &store),
                         EBB_OK);
    kit_finish(program, false);
    struct ebb_device *device = kit_device(ctx, program, 300, 9);
    struct ebb_executor *executor = make(device, program, NULL);
    memset(ebb_executor_tensor(executor, 0), 5, KIT_COLS);
    for (int round = 0; round < 3; round++) {
        memset(ebb_executor_tensor(executor, 1), 0, KIT_BYTES);
        for (int i = 0; i < KIT_ROWS; i++) { /* more than there are slots */
            struct ebb_step step = {.tokens = i % 5 != 2, .cached = i};
            run(executor, &step);
            memset(&step, 0xff, sizeof step);
        }
        sync_ok(device);
        for (int i = 0; i < KIT_ROWS; i++) assert_rows(executor, 1, i, 1, i % 5 != 2 ? 5 : 0);
    }
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

static void a_program_sees_what_was_enqueued_before_it_as_done(void **state)
{
    (void)state;
    struct ebb_program *first = kit_program(ctx, 3);
    kit_copy(first, EBB_QUEUE_OUT, kit_all(0), kit_all(1));
    kit_finish(first, false);
    struct ebb_program *second = kit_program(ctx, 3);
    kit_copy(second, EBB_QUEUE_COMPUTE, kit_all(1), kit_all(2));
    kit_fill(second, EBB_QUEUE_IN, kit_all(0), 77);
    kit_finish(second, false);
    struct ebb_device *device = kit_device(ctx, second, 400, 21);
    struct ebb_executor *a = make(device, first, NULL);
    struct ebb_executor *b = make(device, second, NULL);
    for (int round = 0; round < 20; round++) {
        memset(ebb_executor_tensor(a, 0), round, KIT_BYTES);
        run(a, &full);
        run(b, &full);
        sync_ok(device);
        assert_rows(b, 2, 0, KIT_ROWS, round);
        assert_rows(a, 0, 0, KIT_ROWS, 77);
    }
    assert_ptr_equal(ebb_executor_tensor(a, 1), ebb_executor_tensor(b, 1));
    ebb_executor_free(a);
    ebb_executor_free(b);
    ebb_device_free(device);
    ebb_program_free(first);
    ebb_program_free(second);
}

static void poison_fills_what_is_no_longer_used(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    int32_t gone = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    int32_t kept = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(gone), 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(kept), 2);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(gone), kit_all(0));
    ebb_program_hold(program, kept, true);
    kit_finish(program, true);
    struct ebb_device *device = kit_device(ctx, program, 0, 1);
    struct ebb_executor *executor = make(device, program, NULL);
    run(executor, &full);
    sync_ok(device);
    assert_rows(executor, 0, 0, KIT_ROWS, 1);
    assert_rows(executor, gone, 0, KIT_ROWS, 0xff);
    assert_rows(executor, kept, 0, KIT_ROWS, 2);
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

static void a_chain_of_executors_shares_persistent_blocks_only(void **state)
{
    (void)state;
    struct ebb_program *write = kit_program(ctx, 2);
    int32_t t = kit_tensor(write, EBB_SPACE_DEVICE, KIT_BYTES);
    kit_fill(write, EBB_QUEUE_COMPUTE, kit_all(t), 9);
    kit_copy(write, EBB_QUEUE_OUT, kit_all(t), kit_all(0));
    kit_finish(write, false);
    struct ebb_program *read = kit_program(ctx, 2);
    kit_copy(read, EBB_QUEUE_IN, kit_all(0), kit_all(1));
    kit_finish(read, false);
    struct ebb_program *other = kit_program(ctx, 1);
    kit_fill(other, EBB_QUEUE_IN, kit_all(0), 1);
    kit_finish(other, false);

    struct ebb_device_options device_options = {.backend = EBB_BACKEND_CPU, .threads = 1};
    struct ebb_device *device = NULL; /* nothing is reserved: the arena is not used */
    assert_int_equal(ebb_device_create(ctx, &device_options, &device), EBB_OK);
    struct ebb_executor_options options = {.own_allocations = true};
    struct ebb_executor *a = make(device, write, &options);
    options.share = a;
    struct ebb_executor *b = make(device, read, &options);
    options.share = b;
    struct ebb_executor *c = make(device, other, &options);
    assert_ptr_equal(ebb_executor_tensor(a, 0), ebb_executor_tensor(c, 0));
    options.share = c; /* which has one persistent tensor only */
    struct ebb_executor *d = NULL;
    kit_failed(ctx, ebb_executor_create(ctx, device, NULL, read, &options, &d), EBB_FAILED,
               "program 'test' is to share persistent tensor 'p1' with program 'test', which has "
               "none such");
    assert_null(d);
    run(a, &full);
    run(b, &full);
    sync_ok(device);
    assert_rows(b, 1, 0, KIT_ROWS, 9);
    assert_int_equal(ebb_executor_peak_bytes(a), ebb_program_end(write, EBB_SPACE_DEVICE));
    ebb_executor_free(c);
    ebb_executor_free(b);
    ebb_executor_free(a);
    ebb_device_free(device);
    ebb_program_free(write);
    ebb_program_free(read);
    ebb_program_free(other);
}

/* Persistent state that lives on the host: in, changed, out. With an object or without, moves are
 * plain copies. */
static void persistent_host_tensors_outlive_runs(void **state)
{
    (void)state;
    for (int with_object = 0; with_object < 2; with_object++) {
        struct ebb_tensor persistent[2];
        memset(persistent, 0, sizeof persistent);
        for (int i = 0; i < 2; i++) {
            persistent[i].bytes = KIT_BYTES;
            persistent[i].space = EBB_SPACE_HOST;
            persistent[i].offset = i * KIT_BYTES;
        }
        struct ebb_program *program = NULL;
        assert_int_equal(ebb_program_create(ctx, "update", persistent, 2, &program), EBB_OK);
        int32_t object = -1;
        if (with_object) assert_int_equal(ebb_program_object(program, 0, &object), EBB_OK);
        int32_t t = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
        kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, kit_all(t), kit_all(0), object, 0);
        kit_copy(program, EBB_QUEUE_COMPUTE, kit_rows(t, 0, 8),
                 kit_rows(t, 8, 8)); /* lower half from upper half */
        kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(t), kit_all(0), object, 1);
        kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_rows(t, 15, 1), kit_rows(1, 0, 1), -1,
                 1);
        kit_finish(program, true);
        assert_int_equal(ebb_program_check(ctx, program), EBB_OK);
        struct ebb_device *device = kit_device(ctx, program, 50, 5);
        struct ebb_executor_options options = {.checksums = true};
        struct ebb_executor *executor = make(device, program, &options);
        unsigned char *home = ebb_executor_tensor(executor, 0);
        for (int i = 0; i < KIT_BYTES; i++) home[i] = (unsigned char)i;
        run(executor, &full);
        run(executor, &full);
        sync_ok(device);
        assert_memory_equal(home, home + KIT_BYTES / 2, KIT_BYTES / 2);
        assert_memory_equal(ebb_executor_tensor(executor, 1), home + 7 * KIT_COLS, KIT_COLS);
        ebb_executor_free(executor);
        ebb_device_free(device);
        ebb_program_free(program);
    }
}

static void an_op_that_fails_is_reported_by_sync_and_the_next_run_works(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 2);
    int32_t rows = kit_tensor(program, EBB_SPACE_DEVICE, 4);
    int32_t h = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    int32_t object = -1;
    assert_int_equal(ebb_program_object(program, h, &object), EBB_OK);
    struct ebb_view index = {.tensor = rows, .dtype = EBB_I32, .rows = 1, .cols = 1, .stride = 1};
    struct ebb_gather_rows gather = {.x = kit_all(0), .rows = index, .y = kit_rows(1, 0, 1)};
    assert_int_equal(ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_gather_rows, &gather),
                     EBB_OK);
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(1), kit_all(h), object, 1);
    ebb_program_hold(program, rows, true);
    kit_finish(program, false);
    struct ebb_device *device = kit_device(ctx, program, 0, 1);
    struct ebb_executor_options options = {.checksums = true};
    struct ebb_executor *executor = make(device, program, &options);
    memset(ebb_executor_tensor(executor, 0), 3, KIT_BYTES);
    int32_t *value = ebb_executor_tensor(executor, rows);
    for (int round = 0; round < 10; round++) { /* more than there are slots */
        *value = 999;
        run(executor, &full);
        kit_failed(ctx, ebb_device_sync(device), EBB_FAILED, "row index 999 at place 0 is outside");
    }
    *value = 1;
    run(executor, &full);
    sync_ok(device);
    assert_rows(executor, h, 0, 1, 3);
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

static void a_move_that_the_stash_refuses_fails_the_run(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 2);
    int32_t h = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    int32_t object = -1;
    assert_int_equal(ebb_program_object(program, h, &object), EBB_OK);
    ebb_program_hold(program, h, true);
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_rows(0, 0, 8), kit_rows(h, 0, 8), object,
             0);
    kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, kit_all(1), kit_all(h), object, 0);
    kit_finish(program, false);
    struct ebb_device *device = kit_device(ctx, program, 0, 1);
    struct ebb_executor *executor = make(device, program, NULL);
    for (int round = 0; round < 2;
         round++) /* the same, not "a part goes out twice": what was half away is forgotten */
        kit_failed(ctx, ebb_executor_run(executor, &full, 1), EBB_FAILED,
                   "object 't2' of the stash is read, but generation 1 is not complete");
    sync_ok(device);
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

static void a_device_that_is_too_small_is_refused(void **state)
{
    (void)state;
    struct ebb_program *program = tiles(false, 4);
    struct ebb_device_options options = {.backend = EBB_BACKEND_CPU, .threads = 1};
    struct ebb_device *device = NULL;
    struct ebb_executor *executor = NULL;
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_OK);
    kit_failed(ctx, ebb_executor_create(ctx, device, NULL, program, NULL, &executor), EBB_FAILED,
               "bytes of device memory, but 0 are reserved");
    assert_int_equal(ebb_device_reserve(device, EBB_SPACE_DEVICE,
                                        ebb_program_end(program, EBB_SPACE_DEVICE)),
                     EBB_OK);
    assert_int_equal(ebb_device_reserve(device, EBB_SPACE_HOST, KIT_BYTES - 1), EBB_OK);
    kit_failed(ctx, ebb_executor_create(ctx, device, NULL, program, NULL, &executor), EBB_FAILED,
               "program 'test' uses 512 bytes of host memory, but 511 are reserved");
    ebb_device_free(device);
    ebb_program_free(program);
}

static void a_matmul_without_its_library_is_refused(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 1);
    struct ebb_view square = {.tensor = 0, .dtype = EBB_F32, .rows = 2, .cols = 2, .stride = 2};
    struct ebb_matmul matmul;
    memset(&matmul, 0, sizeof matmul);
    matmul.a = matmul.b = matmul.y = square;
    matmul.bias = matmul.add = matmul.scratch = ebb_view_none();
    assert_int_equal(ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_matmul, &matmul), EBB_OK);
    kit_finish(program, false);
    struct ebb_device *device = kit_device(ctx, program, 0, 1);
    struct ebb_executor *executor = NULL;
    kit_failed(ctx, ebb_executor_create(ctx, device, NULL, program, NULL, &executor), EBB_FAILED,
               "entry 0 is a matmul, but no matmul library was given");
    ebb_device_free(device);
    ebb_program_free(program);
}

/* The highest byte that changed, found from outside, is where the program says it ends. */
static void the_predicted_end_is_the_last_byte_that_changes(void **state)
{
    (void)state;
    struct ebb_program *program = tiles(false, 2);
    struct ebb_device *device = kit_device(ctx, program, 0, 1);
    struct ebb_executor *executor = make(device, program, NULL);
    unsigned char *arena = ebb_device_base(device, EBB_SPACE_DEVICE);
    int64_t bytes = ebb_device_bytes(device, EBB_SPACE_DEVICE);
    memset(arena, 0x5a, (size_t)bytes);
    memset(arena, 0, KIT_BYTES);
    run(executor, &full);
    sync_ok(device);
    int64_t last = bytes;
    while (last > 0 && arena[last - 1] == 0x5a) last--;
    assert_int_equal(last, ebb_program_end(program, EBB_SPACE_DEVICE));
    assert_int_equal(last, ebb_executor_peak_bytes(executor));
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

/* Within a queue entries follow each other, and none begins before what it waits for has ended. */
static void assert_times_hold(const struct ebb_program *program, const struct ebb_entry_time *times)
{
    const double slack = 1e-9; /* of sums */
    double end[EBB_QUEUE_COUNT] = {0, -1e9, -1e9};
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        assert_true(times[e].seconds >= 0);
        assert_true(times[e].begin >= end[entry->queue] - slack);
        for (int32_t k = 0; k < entry->wait_count; k++) {
            int32_t other = ebb_program_wait_at(program, entry, k);
            assert_true(times[e].begin >= times[other].begin + times[other].seconds - slack);
        }
        end[entry->queue] = times[e].begin + times[e].seconds;
    }
}

static void a_profiled_run_tells_when_each_entry_ran(void **state)
{
    (void)state;
    for (int tile = 4; tile <= KIT_ROWS; tile *= 2) {
        struct ebb_program *program = tiles(false, tile);
        struct ebb_device *device = kit_device(ctx, program, 100, 5);
        const struct ebb_executor_options options = {.profile = true};
        struct ebb_executor *other = make(device, program, &options); /* has marks of its own */
        struct ebb_executor *executor = make(device, program, &options);
        int32_t entries = ebb_program_entries(program);
        struct ebb_entry_time *times = calloc((size_t)entries, sizeof *times);
        assert_false(ebb_executor_times(executor, times));          /* no run yet */
        for (int64_t tokens = KIT_ROWS; tokens >= 0; tokens -= 5) { /* some moves have no rows */
            struct ebb_step step = {.tokens = tokens};
            double start = ebb_clock_seconds();
            run(executor, &step);
            sync_ok(device);
            double wall = ebb_clock_seconds() - start, sum = 0;
            run(other, &full);
            sync_ok(device);
            assert_true(ebb_executor_times(executor, times));
            assert_times_hold(program, times);
            for (int32_t e = 0; e < entries; e++) sum += times[e].seconds;
            assert_true(times[entries - 1].begin + times[entries - 1].seconds <= wall);
            assert_true(sum > 0 && sum <= EBB_QUEUE_COUNT * wall);
        }
        free(times);
        ebb_executor_free(executor);
        ebb_executor_free(other);
        ebb_device_free(device);
        ebb_program_free(program);
    }
}

static void a_run_that_failed_has_no_times_and_the_next_one_has(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 2);
    int32_t rows = kit_tensor(program, EBB_SPACE_DEVICE, 4);
    struct ebb_view index = {.tensor = rows, .dtype = EBB_I32, .rows = 1, .cols = 1, .stride = 1};
    struct ebb_gather_rows gather = {.x = kit_all(0), .rows = index, .y = kit_rows(1, 0, 1)};
    assert_int_equal(ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_gather_rows, &gather),
                     EBB_OK);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(0), kit_all(1));
    ebb_program_hold(program, rows, true);
    kit_finish(program, false);
    struct ebb_device *device = kit_device(ctx, program, 0, 1);
    struct ebb_executor *executor =
        make(device, program, &(const struct ebb_executor_options){.profile = true});
    struct ebb_entry_time times[2];
    int32_t *value = ebb_executor_tensor(executor, rows);
    for (int round = 0; round < 4; round++) {
        bool fails = round % 2 == 1;
        *value = fails ? 999 : 1;
        run(executor, &full);
        if (fails)
            kit_failed(ctx, ebb_device_sync(device), EBB_FAILED, "row index 999");
        else
            sync_ok(device);
        assert_true(ebb_executor_times(executor, times) == !fails);
    }
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

/* ---- entries that run as one ---- */

static void assert_length(const struct ebb_program *program, int32_t entry, int32_t max,
                          uint32_t shared, int32_t want)
{
    int32_t got = ebb_program_run_length(program, entry, max, shared);
    if (got != want) fail_msg("from entry %d: %d entries, not %d", (int)entry, (int)got, (int)want);
}

static void ops_of_one_kind_on_disjoint_data_run_as_one(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 8);
    for (int i = 0; i < 4; i++) kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(i), i);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(0), kit_all(4)); /* all may read the same */
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(0), kit_rows(5, 0, 8));
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(0), kit_rows(5, 8, 8));
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_rows(5, 7, 1), kit_all(6)); /* written just before */
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_rows(1, 0, 1), kit_rows(5, 7, 1)); /* read before */
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_rows(2, 0, 1), kit_rows(5, 7, 1)); /* written twice */
    kit_finish(program, false);
    assert_length(program, 0, EBB_OP_MANY, 0, 4);
    assert_length(program, 0, 3, 0, 3);
    assert_length(program, 0, 1, 0, 1);
    assert_length(program, 2, EBB_OP_MANY, 0, 2);
    assert_length(program, 4, EBB_OP_MANY, 0, 3);
    assert_length(program, 7, EBB_OP_MANY, 0, 1);
    assert_length(program, 8, EBB_OP_MANY, 0, 1);
    assert_length(program, 9, EBB_OP_MANY, 0, 1); /* the program's last */
    ebb_program_free(program);
}

static void only_the_first_of_a_run_waits_and_only_the_last_is_waited_for(void **state)
{
    (void)state;
    struct ebb_program *program = kit_program(ctx, 8);
    kit_fill(program, EBB_QUEUE_IN, kit_all(0), 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(1), 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 2); /* waits for entry 0 */
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(2), 3); /* entry 5 waits for it */
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(3), 4);
    kit_copy(program, EBB_QUEUE_OUT, kit_all(2), kit_all(4));
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(5), 5); /* not beside entry 4 */
    kit_finish(program, false);
    assert_int_equal(ebb_program_entry_at(program, 2)->wait_count, 1);
    assert_true(ebb_program_entry_at(program, 3)->event >= 0);
    assert_length(program, 0, EBB_OP_MANY, 0, 1); /* another queue */
    assert_length(program, 1, EBB_OP_MANY, 0, 1);
    assert_length(program, 2, EBB_OP_MANY, 0, 2);
    assert_length(program, 3, EBB_OP_MANY, 0, 1);
    assert_length(program, 4, EBB_OP_MANY, 0, 1);
    ebb_program_free(program);
}

static void moves_run_alone(void **state)
{
    (void)state;
    struct ebb_program *program = tiles(false, 4);
    for (int32_t e = 0; e < ebb_program_entries(program); e++)
        if (ebb_program_entry_at(program, e)->kind != EBB_ENTRY_OP)
            assert_length(program, e, EBB_OP_MANY, 0, 1);
    ebb_program_free(program);
}

static void add_norm(struct ebb_program *program, int grad, int sums, int scratch)
{
    struct ebb_norm_squared norm = {.grad = kit_all(grad),
                                    .sums = kit_all(sums),
                                    .scratch = kit_all(scratch)};
    assert_int_equal(ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_norm_squared, &norm),
                     EBB_OK);
}

static void shared_views_are_the_same_place_in_a_run(void **state)
{
    (void)state;
    enum { SHARED = 1u << 1 | 1u << 2 }; /* sums and scratch */
    struct ebb_program *program = kit_program(ctx, 8);
    add_norm(program, 0, 6, 7);
    add_norm(program, 1, 6, 7);
    add_norm(program, 0, 6, 7);
    add_norm(program, 2, 5, 7); /* 3: other sums */
    add_norm(program, 3, 5, 4); /* other scratch */
    add_norm(program, 5, 6, 4); /* of another's sums */
    add_norm(program, 4, 6, 4); /* 6: of its own scratch, and of that of entry 5 */
    kit_finish(program, false);
    assert_length(program, 0, EBB_OP_MANY, SHARED, 3);
    assert_length(program, 0, EBB_OP_MANY, 0, 1);
    assert_length(program, 0, EBB_OP_MANY, 1u << 1, 1);
    assert_length(program, 3, EBB_OP_MANY, SHARED, 1);
    assert_length(program, 4, EBB_OP_MANY, SHARED, 1);
    assert_length(program, 5, EBB_OP_MANY, SHARED, 1);
    ebb_program_free(program);
}

/* Many small parameters and their update, in one persistent tensor: step, sums and scratch first.
 * With `apart` something else stands between any two entries, so that each runs by itself. */
enum { PARAMS = 2 * EBB_OP_MANY + 5, HEAD_BYTES = 1 << 20, PARAM_BYTES = 1 << 16 };

static struct ebb_view part_of(int64_t offset, enum ebb_dtype dtype, int64_t rows, int64_t cols)
{
    struct ebb_view view = {.tensor = 0,
                            .dtype = (uint8_t)dtype,
                            .offset = offset,
                            .rows = rows,
                            .cols = cols,
                            .stride = cols};
    return view;
}

static void add_update_op(struct ebb_program *program, enum ebb_op op, const void *args, bool apart)
{
    assert_int_equal(ebb_program_op(program, EBB_QUEUE_COMPUTE, op, args), EBB_OK);
    if (apart) kit_fill(program, EBB_QUEUE_COMPUTE, part_of(1000, EBB_U8, 1, 4), 0);
}

static struct ebb_adamw param_update(int i)
{
    int64_t at = HEAD_BYTES + (int64_t)i * PARAM_BYTES + 4 * (i % 3), all = PARAM_BYTES / 16 - 8;
    int64_t cols = 1 + 13 * (i % 5) + (i % 2) * 64, rows = 1 + (int64_t)i * 997 % (all / cols);
    struct ebb_adamw adamw = {.w = part_of(at, EBB_BF16, rows, cols),
                              .lo = part_of(at + 2 * all, EBB_U16, rows, cols),
                              .master = ebb_view_none(),
                              .grad = part_of(at + 4 * all, EBB_F32, rows, cols),
                              .m = part_of(at + 8 * all, EBB_F32, rows, cols),
                              .v = part_of(at + 12 * all, EBB_F32, rows, cols),
                              .step = part_of(0, EBB_U8, 1, sizeof(struct ebb_step)),
                              .sums = part_of(512, EBB_U8, 1, sizeof(struct ebb_sums)),
                              .instance = (uint32_t)i,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = i % 4 ? 0.1 : 0};
    return adamw;
}

static struct ebb_program *update(enum ebb_backend backend, bool apart)
{
    const struct ebb_op_target target = {.backend = backend, .threads = 1};
    int64_t scratch = ebb_norm_squared_scratch(&target);
    struct ebb_tensor all = {.name = "all",
                             .space = EBB_SPACE_DEVICE,
                             .bytes = HEAD_BYTES + (int64_t)PARAMS * PARAM_BYTES};
    struct ebb_program *program = NULL;
    assert_true(scratch <= HEAD_BYTES - 1024);
    assert_int_equal(ebb_program_create(ctx, "update", &all, 1, &program), EBB_OK);
    for (int i = 0; i < PARAMS; i++) {
        struct ebb_adamw adamw = param_update(i);
        struct ebb_norm_squared norm = {.grad = adamw.grad, .sums = adamw.sums};
        norm.scratch = scratch > 0 ? part_of(1024, EBB_U8, 1, scratch) : ebb_view_none();
        add_update_op(program, EBB_OP_norm_squared, &norm, apart);
    }
    struct ebb_adamw any = param_update(0);
    struct ebb_clip clip = {.step = any.step, .sums = any.sums};
    add_update_op(program, EBB_OP_clip, &clip, apart);
    for (int i = 0; i < PARAMS; i++) {
        struct ebb_adamw adamw = param_update(i);
        add_update_op(program, EBB_OP_adamw, &adamw, apart);
    }
    assert_int_equal(ebb_program_finish(program, false), EBB_OK);
    int64_t start[EBB_SPACE_COUNT] = {all.bytes, 0};
    assert_int_equal(ebb_program_layout(program, start, false), EBB_OK);
    assert_int_equal(ebb_program_order(program), EBB_OK);
    return program;
}

static enum ebb_backend tested_backend(void)
{
    const char *backend = getenv("EBB_TEST_BACKEND");
    return backend != NULL && strcmp(backend, "cuda") == 0 ? EBB_BACKEND_CUDA : EBB_BACKEND_CPU;
}

/* Fills all, runs the update and brings it back. */
static void run_update(struct ebb_executor *executor, struct ebb_device *device, char *all,
                       int64_t bytes)
{
    const struct ebb_step step = {.seed = 3,
                                  .step = 1,
                                  .learning_rate = 1e-2,
                                  .bias1 = 0.1,
                                  .bias2 = 0.001,
                                  .total_weight = 5,
                                  .max_grad_norm = 1};
    uint64_t random = 77;
    for (int64_t i = 0; i < bytes; i++) all[i] = 0;
    memcpy(all, &step, sizeof step);
    for (int p = 0; p < PARAMS; p++) {
        struct ebb_adamw adamw = param_update(p);
        for (int64_t k = 0; k < adamw.grad.rows * adamw.grad.cols; k++) {
            float g = (float)kit_below(&random, 2001) / 1000.0f - 1;
            memcpy(all + adamw.grad.offset + 4 * k, &g, sizeof g);
            memcpy(all + adamw.m.offset + 4 * k, &g, sizeof g);
        }
    }
    void *there = ebb_executor_tensor(executor, 0);
    assert_int_equal(ebb_device_copy(device, there, all, bytes), EBB_OK);
    run(executor, &step);
    sync_ok(device);
    assert_int_equal(ebb_device_copy(device, all, there, bytes), EBB_OK);
}

static void parameters_that_are_updated_together_get_the_same_bits_as_alone(void **state)
{
    (void)state;
    const enum ebb_backend backend = tested_backend();
    const struct ebb_executor_options options = {.profile = true};
    const int64_t bytes = HEAD_BYTES + (int64_t)PARAMS * PARAM_BYTES;
    char *got[2];
    int64_t peak[2];
    for (int apart = 0; apart < 2; apart++) {
        struct ebb_program *program = update(backend, apart);
        struct ebb_device_options device_options = {.backend = backend, .threads = 1};
        struct ebb_device *device = NULL;
        if (ebb_device_create(ctx, &device_options, &device) != EBB_OK)
            fail_msg("%s", ebb_error_text(ctx));
        assert_int_equal(ebb_device_reserve(device, EBB_SPACE_DEVICE, bytes), EBB_OK);
        struct ebb_executor *executor = make(device, program, &options);
        got[apart] = calloc(1, (size_t)bytes);
        struct ebb_entry_time *times = calloc((size_t)ebb_program_entries(program), sizeof *times);
        assert_true(got[apart] != NULL && times != NULL);
        run_update(executor, device, got[apart], bytes);
        memset(got[apart] + 1000, 0, HEAD_BYTES - 1000); /* scratch */
        assert_true(ebb_executor_times(executor, times));
        assert_times_hold(program, times);
        for (int k = 1; backend == EBB_BACKEND_CUDA && !apart && k < PARAMS; k++) {
            assert_true((times[k].seconds == 0) == (k % EBB_OP_MANY != 0));
            assert_true((times[PARAMS + 1 + k].seconds == 0) == (k % EBB_OP_MANY != 0));
        }
        peak[apart] = ebb_executor_peak_bytes(executor);
        free(times);
        ebb_executor_free(executor);
        ebb_device_free(device);
        ebb_program_free(program);
    }
    assert_int_equal(peak[0], peak[1]);
    struct ebb_sums sums;
    memcpy(&sums, got[0] + 512, sizeof sums);
    assert_true(sums.finite && sums.norm_squared > 0);
    for (int64_t i = 0; i < bytes; i++)
        if (got[0][i] != got[1][i]) fail_msg("byte %lld differs", (long long)i);
    free(got[0]);
    free(got[1]);
}

/* Of each micro-batch its rows: a run of fewer passes the others' entries over. What belongs to all
 * runs once, with the first one's values. */
static void micro_batches_of_a_run_have_values_of_their_own(void **state)
{
    enum { MICROS = 3, ALL = MICROS };
    (void)state;
    struct ebb_program *program = kit_program(ctx, MICROS + 1);
    for (int32_t m = 0; m < MICROS; m++) {
        assert_int_equal(ebb_program_set_micro(program, m), m > 0 ? m - 1 : 0);
        kit_fill(program, EBB_QUEUE_COMPUTE, kit_tokens(m, 0, KIT_ROWS), 10 + m);
        ebb_program_when(program, m == 2 ? EBB_RUNS_FIRST : EBB_RUNS_ALWAYS);
    }
    ebb_program_set_micro(program, EBB_MICRO_ALL);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_tokens(ALL, 0, KIT_ROWS), 20);
    kit_finish(program, false);
    assert_int_equal(ebb_program_micros(program), MICROS);
    struct ebb_device *device = kit_device(ctx, program, 50, 3);
    struct ebb_executor *executor = make(device, program, NULL);
    struct ebb_step steps[MICROS] = {{.tokens = 5}, {.tokens = 2}, {.tokens = 7}};
    for (int32_t count = 1; count <= MICROS; count++)
        for (int first = 0; first < 2; first++) {
            for (int32_t t = 0; t <= MICROS; t++)
                memset(ebb_executor_tensor(executor, t), 1, KIT_BYTES);
            steps[0].first = first;
            assert_int_equal(ebb_executor_run(executor, steps, count), EBB_OK);
            sync_ok(device);
            for (int32_t m = 0; m < MICROS; m++) {
                int64_t rows = m < count && (m < 2 || first) ? steps[m].tokens : 0;
                assert_rows(executor, m, 0, rows, 10 + m);
                assert_rows(executor, m, rows, KIT_ROWS - rows, 1);
            }
            assert_rows(executor, ALL, 0, 5, 20);
            assert_rows(executor, ALL, 5, KIT_ROWS - 5, 1);
        }
    ebb_executor_free(executor);
    ebb_device_free(device);
    ebb_program_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
        CASE(what_leaves_in_tiles_comes_back),
        CASE(with_fewer_tokens_less_moves_and_generations_still_end),
        CASE(runs_may_be_enqueued_ahead_and_each_sees_its_own_step),
        CASE(a_program_sees_what_was_enqueued_before_it_as_done),
        CASE(poison_fills_what_is_no_longer_used),
        CASE(a_chain_of_executors_shares_persistent_blocks_only),
        CASE(persistent_host_tensors_outlive_runs),
        CASE(an_op_that_fails_is_reported_by_sync_and_the_next_run_works),
        CASE(a_move_that_the_stash_refuses_fails_the_run),
        CASE(a_device_that_is_too_small_is_refused),
        CASE(a_matmul_without_its_library_is_refused),
        CASE(the_predicted_end_is_the_last_byte_that_changes),
        CASE(a_profiled_run_tells_when_each_entry_ran),
        CASE(a_run_that_failed_has_no_times_and_the_next_one_has),
        CASE(ops_of_one_kind_on_disjoint_data_run_as_one),
        CASE(only_the_first_of_a_run_waits_and_only_the_last_is_waited_for),
        CASE(moves_run_alone),
        CASE(shared_views_are_the_same_place_in_a_run),
        CASE(parameters_that_are_updated_together_get_the_same_bits_as_alone),
        CASE(micro_batches_of_a_run_have_values_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
