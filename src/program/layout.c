/* Layout: tensors alive at the same time get disjoint ranges, and the highest end is kept low.
 *
 * The problem is two-dimensional packing with one side fixed (dynamic storage allocation), which is
 * NP-hard. Here each tensor is put at the lowest place where it fits among those already placed;
 * what decides is the order. Several orders are tried (large first, long first, large times long
 * first, as they begin) and the best is improved by moving the tensor that makes the end to the
 * front of the order, until the lower bound (the most bytes alive at once) is reached or a budget
 * of steps, not of time, is spent: the same program always gets the same layout.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "program/program_int.h"

/* One step looks at one placed tensor: a few nanoseconds. */
static const int64_t steps_for_orders = 64000000; /* once spent, no further order is tried */
static const int64_t steps_for_improving = 2000000;

struct block {
    int64_t bytes;  /* rounded up to the alignment */
    int64_t offset; /* from the start of the layout */
    int32_t first, last;
    int32_t tensor;
    int32_t index; /* its place in layout.blocks */
};

/* What placing looks at, side by side in memory. */
struct placed {
    int64_t offset, end;
    int32_t first, last;
};

struct layout {
    struct block *blocks; /* [count] */
    struct block *sorted; /* [count] a copy for sorting */
    int32_t count;
    int32_t *order;      /* [count] block indices in the order of placing */
    int32_t *best_order; /* [count] */
    int64_t *best;       /* [count] offset of each block */
    int64_t best_end;
    int64_t bound;         /* no layout ends lower */
    struct placed *placed; /* [count] ascending by offset */
    int64_t steps;         /* spent so far */
};

/* ---- orders ---- */

static int64_t block_length(const struct block *block)
{
    return (int64_t)block->last - block->first + 1;
}

static int compare_int64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_bytes(const void *a, const void *b)
{
    const struct block *x = a;
    const struct block *y = b;
    int difference = compare_int64(y->bytes, x->bytes);
    if (difference == 0) difference = compare_int64(x->first, y->first);
    return difference != 0 ? difference : compare_int64(x->tensor, y->tensor);
}

static int by_length(const void *a, const void *b)
{
    int difference = compare_int64(block_length(b), block_length(a));
    return difference != 0 ? difference : by_bytes(a, b);
}

/* In floating point: bytes times entries can be past 2^63. */
static int by_area(const void *a, const void *b)
{
    const struct block *x = a;
    const struct block *y = b;
    double area_x = (double)x->bytes * (double)block_length(x);
    double area_y = (double)y->bytes * (double)block_length(y);
    if (area_x != area_y) return area_x < area_y ? 1 : -1;
    return by_bytes(a, b);
}

static int by_first(const void *a, const void *b)
{
    int difference =
        compare_int64(((const struct block *)a)->first, ((const struct block *)b)->first);
    return difference != 0 ? difference : by_bytes(a, b);
}

/* ---- placing ---- */

/* Puts a block at the lowest place among the placed ones that live at the same time. */
static void place(struct layout *layout, int32_t placed_count, struct block *block)
{
    struct placed *placed = layout->placed;
    int64_t offset = 0;
    int32_t i = 0;
    for (; i < placed_count; i++) {
        /* All behind it begin even higher: the gap is large enough. */
        if (placed[i].offset >= offset + block->bytes) break;
        if (placed[i].last < block->first || block->last < placed[i].first) continue;
        if (placed[i].end > offset) offset = placed[i].end;
    }
    layout->steps += i + 1;
    block->offset = offset;
    int32_t low = 0;
    int32_t high = placed_count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (placed[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(placed + low + 1, placed + low, (size_t)(placed_count - low) * sizeof *placed);
    placed[low].offset = offset;
    placed[low].end = offset + block->bytes;
    placed[low].first = block->first;
    placed[low].last = block->last;
}

/* Places all in layout->order; keeps the outcome if it is the best so far. Returns the place in the
 * order of the block that ends highest, or of the first that shows that this order is no better. */
static int32_t place_all(struct layout *layout)
{
    int64_t end = 0;
    int32_t highest = 0;
    for (int32_t i = 0; i < layout->count; i++) {
        struct block *block = &layout->blocks[layout->order[i]];
        place(layout, i, block);
        if (block->offset + block->bytes > end) {
            end = block->offset + block->bytes;
            highest = i;
            if (end >= layout->best_end) return highest;
        }
    }
    layout->best_end = end;
    for (int32_t i = 0; i < layout->count; i++) layout->best[i] = layout->blocks[i].offset;
    memcpy(layout->best_order, layout->order, (size_t)layout->count * sizeof *layout->order);
    return highest;
}

static void try_sorted(struct layout *layout, int (*compare)(const void *, const void *))
{
    if (layout->best_end == layout->bound || layout->steps > steps_for_orders) return;
    memcpy(layout->sorted, layout->blocks, (size_t)layout->count * sizeof *layout->blocks);
    qsort(layout->sorted, (size_t)layout->count, sizeof *layout->sorted, compare);
    for (int32_t i = 0; i < layout->count; i++) layout->order[i] = layout->sorted[i].index;
    place_all(layout);
}

static void improve(struct layout *layout)
{
    if (layout->best_end == layout->bound) return;
    layout->steps = 0;
    /* The best order is run again, to learn which of its blocks ends highest. */
    layout->best_end = INT64_MAX;
    memcpy(layout->order, layout->best_order, (size_t)layout->count * sizeof *layout->order);
    do {
        int32_t at = place_all(layout);
        if (at == 0) break; /* it is first already: no order that begins so ends lower */
        int32_t moved = layout->order[at];
        memmove(layout->order + 1, layout->order, (size_t)at * sizeof *layout->order);
        layout->order[0] = moved;
    } while (layout->steps < steps_for_improving && layout->best_end > layout->bound);
}

/* The most bytes alive at once. `change` [entries + 1] is zero. */
static int64_t lower_bound(const struct layout *layout, int64_t *change, int32_t entries)
{
    for (int32_t i = 0; i < layout->count; i++) {
        change[layout->blocks[i].first] += layout->blocks[i].bytes;
        change[layout->blocks[i].last + 1] -= layout->blocks[i].bytes;
    }
    int64_t most = 0;
    int64_t now = 0;
    for (int32_t e = 0; e <= entries; e++) {
        now += change[e];
        if (now > most) most = now;
    }
    return most;
}

static void solve(struct layout *layout)
{
    layout->best_end = INT64_MAX;
    layout->steps = 0;
    try_sorted(layout, by_bytes);
    try_sorted(layout, by_area);
    try_sorted(layout, by_length);
    try_sorted(layout, by_first);
    improve(layout);
}

static void place_apart(struct layout *layout)
{
    int64_t end = 0;
    for (int32_t i = 0; i < layout->count; i++) {
        layout->best[i] = end;
        end += layout->blocks[i].bytes;
    }
}

static int32_t collect(const struct ebb_program *program, enum ebb_space space,
                       struct block *blocks)
{
    int32_t count = 0;
    for (int32_t t = program->persistent; t < program->tensor_count; t++) {
        const struct ebb_tensor *tensor = &program->tensors[t];
        if (tensor->space != space || tensor->bytes == 0 || tensor->first > tensor->last) continue;
        struct block block = {.bytes = ebb_align_up(tensor->bytes),
                              .first = tensor->first,
                              .last = tensor->last,
                              .tensor = t,
                              .index = count};
        blocks[count++] = block;
    }
    return count;
}

/* Returns the end; where the bound is above `limit` nothing is placed, and it is the bound. */
static int64_t lay_out_space(struct ebb_program *program, struct layout *layout, int64_t *change,
                             enum ebb_space space, int64_t start, bool apart, int64_t limit)
{
    const int64_t from = ebb_align_up(start);
    for (int32_t t = program->persistent; t < program->tensor_count; t++)
        if (program->tensors[t].space == space)
            program->tensors[t].offset = from; /* where it is never touched */
    layout->count = collect(program, space, layout->blocks);
    if (layout->count == 0) return ebb_program_end(program, space);
    if (apart) {
        place_apart(layout);
    } else {
        memset(change, 0, ((size_t)program->entry_count + 1) * sizeof *change);
        layout->bound = lower_bound(layout, change, program->entry_count);
        /* The highest tensor's bytes may end that much before those of the aligned ones. */
        const int64_t least = from + layout->bound - (EBB_ALIGN_BYTES - 1);
        if (least > limit) return least;
        solve(layout);
    }
    for (int32_t i = 0; i < layout->count; i++)
        program->tensors[layout->blocks[i].tensor].offset = from + layout->best[i];
    return ebb_program_end(program, space);
}

static bool layout_alloc(struct ebb_ctx *ctx, struct layout *layout, size_t count)
{
    layout->blocks = ebb_mem_alloc(ctx, count * sizeof *layout->blocks);
    layout->sorted = ebb_mem_alloc(ctx, count * sizeof *layout->sorted);
    layout->order = ebb_mem_alloc(ctx, count * sizeof *layout->order);
    layout->best_order = ebb_mem_alloc(ctx, count * sizeof *layout->best_order);
    layout->best = ebb_mem_alloc(ctx, count * sizeof *layout->best);
    layout->placed = ebb_mem_alloc(ctx, count * sizeof *layout->placed);
    return layout->blocks != NULL && layout->sorted != NULL && layout->order != NULL &&
           layout->best_order != NULL && layout->best != NULL && layout->placed != NULL;
}

static void layout_free(struct ebb_ctx *ctx, struct layout *layout)
{
    ebb_mem_free(ctx, layout->blocks);
    ebb_mem_free(ctx, layout->sorted);
    ebb_mem_free(ctx, layout->order);
    ebb_mem_free(ctx, layout->best_order);
    ebb_mem_free(ctx, layout->best);
    ebb_mem_free(ctx, layout->placed);
}

static enum ebb_status lay_out(struct ebb_program *program, const int64_t start[EBB_SPACE_COUNT],
                               bool apart, int64_t limit, int64_t *end)
{
    struct ebb_ctx *ctx = program->ctx;
    struct layout layout = {0};
    int64_t *change = ebb_mem_alloc(ctx, ((size_t)program->entry_count + 1) * sizeof *change);
    bool ok = change != NULL &&
              layout_alloc(ctx, &layout, (size_t)(program->tensor_count - program->persistent) + 1);
    if (ok) {
        EBB_ASSERT(start[EBB_SPACE_HOST] >= 0 && start[EBB_SPACE_DEVICE] >= 0);
        lay_out_space(program, &layout, change, EBB_SPACE_HOST, start[EBB_SPACE_HOST], apart,
                      INT64_MAX);
        *end = lay_out_space(program, &layout, change, EBB_SPACE_DEVICE, start[EBB_SPACE_DEVICE],
                             apart, limit);
        program->stage = *end <= limit || apart ? EBB_STAGE_LAID_OUT : EBB_STAGE_FINISHED;
    }
    layout_free(ctx, &layout);
    ebb_mem_free(ctx, change);
    return ok ? EBB_OK : EBB_NO_MEMORY;
}

enum ebb_status ebb_program_layout_within(struct ebb_program *program,
                                          const int64_t start[EBB_SPACE_COUNT], bool apart,
                                          int64_t limit, int64_t *end)
{
    EBB_TRY(ebb_program_need(program, EBB_STAGE_FINISHED, "layout"));
    for (int32_t t = 0; t < program->persistent; t++) {
        const struct ebb_tensor *tensor = &program->tensors[t];
        if (tensor->first <= tensor->last && tensor->offset < 0)
            return EBB_FAIL(program->ctx, EBB_FAILED,
                            "program '%s' uses persistent tensor '%s', which has no place yet\nset "
                            "its offset before "
                            "the program is made",
                            program->name, tensor->name);
    }
    return lay_out(program, start, apart, limit, end);
}

enum ebb_status ebb_program_layout(struct ebb_program *program,
                                   const int64_t start[EBB_SPACE_COUNT], bool apart)
{
    int64_t end;
    return ebb_program_layout_within(program, start, apart, INT64_MAX, &end);
}
