/* What the tests of programs share: short ways to build them, random ones, and a run without any
 * concurrency.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TESTS_PROGRAM_KIT_H
#define EBB_TESTS_PROGRAM_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "op/rows.h"
#include "program/check.h"
#include "program/executor.h"
#include "program/program.h"

enum { KIT_ROWS = 16, KIT_COLS = 32, KIT_BYTES = KIT_ROWS * KIT_COLS }; /* of a matrix of bytes */

static inline uint32_t kit_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint32_t x = (uint32_t)(*state >> 33);
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return x ^ x >> 12;
}

static inline int32_t kit_below(uint64_t *state, int32_t n)
{
    return (int32_t)(kit_random(state) % (uint32_t)n);
}

/* Rows [row, row + rows) of a matrix of bytes with KIT_COLS columns. */
static inline struct ebb_view kit_rows(int32_t tensor, int64_t row, int64_t rows)
{
    struct ebb_view view = {.tensor = tensor,
                            .dtype = EBB_U8,
                            .extent = EBB_EXTENT_FIXED,
                            .offset = row * KIT_COLS,
                            .rows = rows,
                            .cols = KIT_COLS,
                            .stride = KIT_COLS,
                            .row0 = row};
    return view;
}

static inline struct ebb_view kit_tokens(int32_t tensor, int64_t row, int64_t rows)
{
    struct ebb_view view = kit_rows(tensor, row, rows);
    view.extent = EBB_EXTENT_TOKENS;
    return view;
}

static inline struct ebb_view kit_all(int32_t tensor)
{
    return kit_rows(tensor, 0, KIT_ROWS);
}

static inline int32_t kit_tensor(struct ebb_program *program, enum ebb_space space, int64_t bytes)
{
    int32_t tensor = -1;
    assert_int_equal(ebb_program_tensor(program, space, bytes, &tensor, "t%d",
                                        (int)ebb_program_tensors(program)),
                     EBB_OK);
    return tensor;
}

static inline void kit_fill(struct ebb_program *program, enum ebb_queue queue, struct ebb_view y,
                            int byte)
{
    struct ebb_fill fill = {.y = y, .byte = byte};
    assert_int_equal(ebb_program_op(program, queue, EBB_OP_fill, &fill), EBB_OK);
}

static inline void kit_copy(struct ebb_program *program, enum ebb_queue queue, struct ebb_view x,
                            struct ebb_view y)
{
    struct ebb_copy_rows copy = {.x = x, .y = y};
    assert_int_equal(ebb_program_op(program, queue, EBB_OP_copy_rows, &copy), EBB_OK);
}

static inline void kit_move(struct ebb_program *program, enum ebb_queue queue,
                            enum ebb_entry_kind kind, struct ebb_view device, struct ebb_view host,
                            int32_t object, int32_t last)
{
    struct ebb_move move = {.device = device, .host = host, .object = object, .last = last};
    assert_int_equal(ebb_program_move(program, queue, kind, &move), EBB_OK);
}

/* `count` persistent matrices of bytes in device memory, side by side from 0. */
static inline struct ebb_program *kit_program(struct ebb_ctx *ctx, int32_t count)
{
    struct ebb_tensor persistent[8];
    memset(persistent, 0, sizeof persistent);
    assert_true(count <= 8);
    for (int32_t i = 0; i < count; i++) {
        persistent[i].name[0] = 'p';
        persistent[i].name[1] = (char)('0' + i);
        persistent[i].space = EBB_SPACE_DEVICE;
        persistent[i].bytes = KIT_BYTES;
        persistent[i].offset = i * KIT_BYTES;
    }
    struct ebb_program *program = NULL;
    assert_int_equal(ebb_program_create(ctx, "test", persistent, count, &program), EBB_OK);
    return program;
}

/* Layout behind `persistent` matrices, and order. */
static inline void kit_place(struct ebb_program *program, bool apart)
{
    int64_t start[EBB_SPACE_COUNT] = {ebb_program_persistent(program) * KIT_BYTES, 0};
    assert_int_equal(ebb_program_layout(program, start, apart), EBB_OK);
    assert_int_equal(ebb_program_order(program), EBB_OK);
}

static inline void kit_finish(struct ebb_program *program, bool poison)
{
    assert_int_equal(ebb_program_finish(program, poison), EBB_OK);
    kit_place(program, false);
}

enum { KIT_PERSISTENT = 4, KIT_ALIVE = 5 };

/* Random entries on all queues: fills, copies of some rows, moves. Tensors come and go, so that
 * their bytes are used again; whatever is read was written before. Persistent matrices 0 and 1 are
 * input, 2 and 3 output. */
static inline struct ebb_program *kit_random_program(struct ebb_ctx *ctx, uint64_t seed,
                                                     int32_t entries)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;
    struct ebb_program *program = kit_program(ctx, KIT_PERSISTENT);
    int32_t alive[KIT_ALIVE];
    for (int i = 0; i < KIT_ALIVE; i++) alive[i] = -1;
    for (int32_t e = 0; e < entries; e++) {
        enum ebb_queue queue = (enum ebb_queue)kit_below(&random, EBB_QUEUE_COUNT);
        int a = kit_below(&random, KIT_ALIVE);
        int b = kit_below(&random, KIT_ALIVE);
        int32_t from = alive[a] >= 0 ? alive[a] : kit_below(&random, 2);
        int32_t rows = 1 + kit_below(&random, KIT_ROWS);
        int32_t at = kit_below(&random, KIT_ROWS - rows + 1);
        int32_t to_row = kit_below(&random, KIT_ROWS - rows + 1);
        switch (kit_below(&random, 8)) {
        case 0: /* a new tensor, written whole */
        case 1:
            alive[b] = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
            if (from == alive[b] || kit_below(&random, 3) == 0)
                kit_fill(program, queue, kit_all(alive[b]), kit_below(&random, 256));
            else
                kit_copy(program, queue, kit_all(from), kit_all(alive[b]));
            break;
        case 2: /* out and in again */
        case 3: {
            int32_t object = -1;
            int32_t home = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
            assert_int_equal(ebb_program_object(program, home, &object), EBB_OK);
            kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_rows(from, 0, rows),
                     kit_rows(home, 0, rows), object, rows == KIT_ROWS);
            if (rows < KIT_ROWS)
                kit_move(program, queue, EBB_ENTRY_OUT, kit_rows(from, rows, KIT_ROWS - rows),
                         kit_rows(home, rows, KIT_ROWS - rows), object, 1);
            alive[b] = kit_tensor(program, EBB_SPACE_DEVICE, KIT_BYTES);
            kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, kit_all(alive[b]), kit_all(home), object,
                     0);
            break;
        }
        case 4: /* an output */
            kit_copy(program, queue, kit_rows(from, at, rows),
                     kit_rows(2 + kit_below(&random, 2), to_row, rows));
            break;
        case 5: /* some bytes */
            if (alive[b] >= 0)
                kit_fill(program, queue, kit_rows(alive[b], to_row, rows), kit_below(&random, 256));
            break;
        default: /* from one to another */
            if (alive[b] >= 0 && alive[b] != from)
                kit_copy(program, queue, kit_rows(from, at, rows),
                         kit_rows(alive[b], to_row, rows));
        }
    }
    for (int i = 0; i < KIT_ALIVE; i++)
        if (alive[i] >= 0)
            kit_copy(program, EBB_QUEUE_COMPUTE, kit_rows(alive[i], 0, 3),
                     kit_rows(2 + i % 2, 3 * i, 1 + 2));
    return program;
}

/* Runs the entries one after the other, each tensor in a block of its own; blocks [tensors] are the
 * caller's. */
static inline void kit_run_alone(struct ebb_ctx *ctx, const struct ebb_program *program,
                                 const struct ebb_step *step, void **blocks)
{
    struct ebb_op_env env = {.ctx = ctx, .base = blocks, .step = step, .threads = 1};
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        const void *args = ebb_program_args(program, entry);
        if (entry->kind == EBB_ENTRY_OP) {
            assert_int_equal(ebb_op_info((enum ebb_op)entry->op)->cpu(&env, args), EBB_OK);
            continue;
        }
        const struct ebb_move *move = args;
        size_t bytes = (size_t)(ebb_view_rows(&env, &move->device) * KIT_COLS);
        void *device = ebb_view_data(&env, &move->device);
        void *host = ebb_view_data(&env, &move->host);
        memcpy(entry->kind == EBB_ENTRY_OUT ? host : device,
               entry->kind == EBB_ENTRY_OUT ? device : host, bytes);
    }
}

static inline void **kit_blocks(const struct ebb_program *program)
{
    void **blocks = calloc((size_t)ebb_program_tensors(program), sizeof(void *));
    assert_non_null(blocks);
    for (int32_t t = 0; t < ebb_program_tensors(program); t++) {
        blocks[t] = calloc(1, (size_t)ebb_program_tensor_at(program, t)->bytes);
        assert_non_null(blocks[t]);
    }
    return blocks;
}

static inline void kit_blocks_free(const struct ebb_program *program, void **blocks)
{
    for (int32_t t = 0; t < ebb_program_tensors(program); t++) free(blocks[t]);
    free((void *)blocks);
}

/* A device with room for the program, all queues delayed by up to delay_us. */
static inline struct ebb_device *kit_device(struct ebb_ctx *ctx, const struct ebb_program *program,
                                            int delay_us, uint64_t seed)
{
    struct ebb_device_options options = {
        .backend = EBB_BACKEND_CPU, .threads = 1, .delay_seed = seed};
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) options.delay_us[q] = delay_us;
    struct ebb_device *device = NULL;
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_OK);
    for (int s = 0; s < EBB_SPACE_COUNT; s++)
        assert_int_equal(ebb_device_reserve(device, (enum ebb_space)s,
                                            ebb_program_end(program, (enum ebb_space)s)),
                         EBB_OK);
    return device;
}

/* The context's error is this, with these words in it; it is cleared. */
static inline void kit_failed(struct ebb_ctx *ctx, enum ebb_status got, enum ebb_status wanted,
                              const char *words)
{
    assert_int_equal(got, wanted);
    assert_int_equal(ebb_error_status(ctx), wanted);
    if (strstr(ebb_error_text(ctx), words) == NULL)
        fail_msg("'%s' is not in '%s'", words, ebb_error_text(ctx));
    ebb_error_clear(ctx);
}

#endif
