/* What the tests of large operands share: operands of more than 2^32 elements, of which only a few
 * rows hold anything but zeros, and small twins of those rows.
 *
 * Two shapes: MANY rows close to each other, and a few rows that lie far apart (WIDE). On the CPU
 * the same cases run with small operands, which judges the tests themselves, and so they do on a
 * GPU with EBB_TEST_MEMORY, whose tools would take too long. On a GPU a case needs the memory that
 * it names, and is skipped where that is not free.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_LARGE_H
#define EBB_OP_LARGE_H

#include "op_test.h"

enum large_kind { LARGE_MANY, LARGE_WIDE };

struct large_shape {
    enum large_kind kind;
    enum ebb_dtype dtype; /* of storage */
};

enum {
    LARGE_PICKS = 16,
    LARGE_PAD = 8, /* elements between rows of MANY */
    LARGE_WIDE_ROWS = 130
};

struct large {
    struct op_test t;
    enum ebb_dtype dtype;
    bool wide, huge; /* huge: really large */
    int64_t rows;
    int64_t pick[LARGE_PICKS]; /* the rows that hold something, ascending */
    int picks;
};

/* Elements from row to row. */
static inline int64_t large_stride(const struct large *l, int64_t cols)
{
    if (!l->wide) return cols + LARGE_PAD;
    return l->huge ? (INT64_C(1) << 25) + 64 : cols + 64;
}

static inline void large_pick(struct large *l, int64_t row)
{
    if (row < 0 || row >= l->rows || l->picks == LARGE_PICKS) return;
    int at = l->picks;
    for (int k = 0; k < l->picks; k++)
        if (l->pick[k] == row) return;
    for (; at > 0 && l->pick[at - 1] > row; at--) l->pick[at] = l->pick[at - 1];
    l->pick[at] = row;
    l->picks++;
}

/* Both ends, evenly between them, and around the places where 31 and 32 bits end. */
static inline void large_pick_all(struct large *l, int64_t cols)
{
    const int64_t stride = large_stride(l, cols);
    large_pick(l, l->rows - 1);
    large_pick(l, 0);
    for (int bits = 29; bits <= 32; bits++) {
        large_pick(l, (INT64_C(1) << bits) / stride);
        large_pick(l, (INT64_C(1) << bits) / stride + 1);
    }
    for (int k = 1; k < 6; k++) large_pick(l, l->rows * k / 6);
}

/* `cols` decides how many rows MANY has; the case takes `bytes` for each of 2^32 elements, all
 * operands together. */
static inline void large_start(struct large *l, const struct large_shape *shape, int64_t cols,
                               int64_t bytes)
{
    memset(l, 0, sizeof *l);
    op_test_start(&l->t);
    l->dtype = shape->dtype;
    l->wide = shape->kind == LARGE_WIDE;
    l->huge = l->t.device != NULL && l->t.apart == NULL;
    l->rows = LARGE_WIDE_ROWS;
    if (!l->wide)
        l->rows = l->huge ? (INT64_C(1) << 32) / (cols + LARGE_PAD) + 1000 : 2 * LARGE_WIDE_ROWS;
    large_pick_all(l, cols);
    if (!l->huge) return;
    const int64_t gib = INT64_C(1) << 30, wanted = 4 * bytes + 6; /* and some scratch */
    int64_t there = ebb_backend_bytes_free(l->t.env.ctx, EBB_BACKEND_CUDA) / gib;
    if (there >= wanted) return;
    print_message("skipped: it takes %lld GiB of the GPU's memory, of which %lld are free\n",
                  (long long)wanted, (long long)there);
    op_test_end(&l->t);
    skip();
}

/* ---- memory ---- */

static inline struct ebb_device *large_holder(const struct large *l, const struct ebb_view *view)
{
    if (!l->t.hidden[view->tensor]) return NULL;
    return l->t.apart != NULL ? l->t.apart : l->t.device;
}

static inline void large_copy(struct large *l, const struct ebb_view *view, void *to,
                              const void *from, int64_t bytes)
{
    struct ebb_device *device = large_holder(l, view);
    if (device == NULL)
        memcpy(to, from, (size_t)bytes);
    else
        assert_int_equal(ebb_device_copy(device, to, from, bytes), EBB_OK);
}

/* Columns j to j + count of a row into the first ones of another view's row, which the host
 * reaches; or back. */
static inline void large_move(struct large *l, const struct ebb_view *large, int64_t i, int64_t j,
                              int64_t count, const struct ebb_view *small, int64_t k, bool back)
{
    void *there = op_test_at(&l->t, large, i, j), *here = op_test_at(&l->t, small, k, 0);
    int64_t bytes = count * ebb_dtype_bytes((enum ebb_dtype)large->dtype);
    assert_int_equal(large->dtype, small->dtype);
    large_copy(l, large, back ? here : there, back ? there : here, bytes);
}

/* A tensor of zeros; on a GPU in memory that only the GPU reaches. */
static inline struct ebb_view large_tensor(struct large *l, enum ebb_dtype dtype, int64_t rows,
                                           int64_t cols, int64_t stride)
{
    struct op_test *t = &l->t;
    if (t->device == NULL && t->apart == NULL) {
        struct ebb_view view = op_test_tensor(t, dtype, rows, cols, stride);
        op_test_zero(t, &view);
        return view;
    }
    int64_t bytes = rows * stride * ebb_dtype_bytes(dtype);
    struct ebb_view view = op_test_workspace(t, bytes);
    assert_int_equal(ebb_device_fill(large_holder(l, &view), t->base[view.tensor], 0, bytes),
                     EBB_OK);
    view.dtype = (uint8_t)dtype;
    view.rows = rows;
    view.cols = cols;
    view.stride = stride;
    t->view[view.tensor] = view;
    return view;
}

/* An operand. */
static inline struct ebb_view large_matrix(struct large *l, enum ebb_dtype dtype, int64_t cols)
{
    return large_tensor(l, dtype, l->rows, cols, large_stride(l, cols));
}

/* Rows that start after others of the same tensor: columns from `first` on. */
static inline struct ebb_view large_columns(const struct ebb_view *all, int64_t first, int64_t cols)
{
    struct ebb_view view = *all;
    view.offset += first * ebb_dtype_bytes((enum ebb_dtype)all->dtype);
    view.cols = cols;
    return view;
}

static inline struct ebb_view large_scratch(struct large *l, int64_t bytes)
{
    return bytes == 0 ? ebb_view_none() : op_test_workspace(&l->t, bytes);
}

/* A small tensor of random values. */
static inline struct ebb_view large_random(struct large *l, enum ebb_dtype dtype, int64_t rows,
                                           int64_t cols, double low, double high)
{
    struct ebb_view view = op_test_tensor(&l->t, dtype, rows, cols, cols);
    op_test_fill(&l->t, &view, low, high);
    return view;
}

/* Random values for the picked rows, and those rows as a matrix of their own. */
static inline struct ebb_view large_twin(struct large *l, const struct ebb_view *large, double low,
                                         double high)
{
    struct ebb_view small =
        large_random(l, (enum ebb_dtype)large->dtype, l->picks, large->cols, low, high);
    for (int k = 0; k < l->picks; k++)
        large_move(l, large, l->pick[k], 0, large->cols, &small, k, false);
    return small;
}

/* The twin of a vector of integers, [1, rows]: one for each picked row. */
static inline void large_set_index(struct large *l, const struct ebb_view *vector, int64_t at,
                                   int32_t value)
{
    large_copy(l, vector, op_test_at(&l->t, vector, 0, at), &value, sizeof value);
}

/* Row k of a twin as what it is a twin of: that row of the large matrix. */
static inline struct ebb_view large_line(const struct large *l, const struct ebb_view *small, int k)
{
    struct ebb_view line = *small;
    if (line.tensor < 0) return line;
    line.offset += k * line.stride * ebb_dtype_bytes((enum ebb_dtype)line.dtype);
    line.rows = 1;
    line.row0 = l->pick[k];
    return line;
}

/* ---- running and comparing ---- */

static inline void large_run(struct large *l, enum ebb_op op, const void *args)
{
    if (op_test_run(&l->t, op, args) != EBB_OK)
        fail_msg("%s: %s", ebb_op_info(op)->name, ebb_error_text(l->t.env.ctx));
}

/* The bits of row i are those of row k of `small`. */
static inline void large_row_is(struct large *l, const struct ebb_view *large, int64_t i,
                                const struct ebb_view *small, int64_t k)
{
    const int64_t size = ebb_dtype_bytes((enum ebb_dtype)large->dtype), bytes = large->cols * size;
    unsigned char *row = malloc((size_t)bytes);
    const unsigned char *wanted = op_test_at(&l->t, small, k, 0);
    int64_t j = 0;
    assert_non_null(row);
    large_copy(l, large, row, op_test_at(&l->t, large, i, 0), bytes);
    while (j < bytes && row[j] == wanted[j]) j++;
    free(row);
    if (j < bytes)
        fail_msg("row %lld, column %lld (element %lld of tensor %d) differs from the small matrix",
                 (long long)i, (long long)(j / size), (long long)(i * large->stride + j / size),
                 (int)large->tensor);
}

static inline void large_same(struct large *l, const struct ebb_view *large,
                              const struct ebb_view *small)
{
    for (int k = 0; k < l->picks; k++) large_row_is(l, large, l->pick[k], small, k);
}

static inline void large_is_close(double got, double wanted, double relative, double absolute,
                                  const char *what)
{
    if (!(fabs(got - wanted) <= relative * fabs(wanted) + absolute))
        fail_msg("%s: got %.12g, wanted %.12g", what, got, wanted);
}

/* A case in one of large_shapes; in all of them. */
#define LARGE_CASE(function, what, shape)                                                          \
    {                                                                                              \
#function " (" what ")", function, NULL, NULL, (void *)(uintptr_t)&large_shapes[shape]     \
    }
#define LARGE_CASES(function)                                                                      \
    LARGE_CASE(function, "many rows, bf16", 0), LARGE_CASE(function, "many rows, fp32", 1),        \
        LARGE_CASE(function, "wide rows, bf16", 2), LARGE_CASE(function, "wide rows, fp32", 3)

static const struct large_shape large_shapes[] = {{LARGE_MANY, EBB_BF16},
                                                  {LARGE_MANY, EBB_F32},
                                                  {LARGE_WIDE, EBB_BF16},
                                                  {LARGE_WIDE, EBB_F32}};

#endif
