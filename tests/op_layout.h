/* The same elements laid out otherwise, for ops whose kernels take aligned rows several columns at
 * a time: the bits must not hang on that.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_LAYOUT_H
#define EBB_OP_LAYOUT_H

#include "op_test.h"

/* Rows start `shift` elements behind a multiple of four, or at every offset by turns. */
static const struct {
    int64_t shift;
    bool odd_stride;
} op_layouts[] = {{0, false}, {4, false}, {1, false}, {2, false}, {0, true}};
enum { OP_LAYOUTS = sizeof op_layouts / sizeof op_layouts[0] };

/* Columns of rows in whose upper half a gradient is written: few, and around the chunks and batches
 * that backends take at a time. */
static const int64_t op_layout_cols[] = {1,    2,     5,     40,    511,   512,   513,  1023,
                                         1024, 1025,  2049,  4095,  4096,  4097,  8191, 8192,
                                         8193, 12287, 12289, 16383, 16384, 16385, 20001};
enum { OP_LAYOUT_COLS = sizeof op_layout_cols / sizeof op_layout_cols[0] };

/* A new tensor that has a view's elements. */
static inline struct ebb_view op_layout_copy(struct op_test *t, const struct ebb_view *view,
                                             int layout)
{
    int64_t shift = op_layouts[layout].shift, stride = (shift + view->cols + 3) / 4 * 4;
    size_t size = (size_t)ebb_dtype_bytes((enum ebb_dtype)view->dtype);
    if (op_layouts[layout].odd_stride) stride++;
    struct ebb_view all =
        op_test_tensor(t, (enum ebb_dtype)view->dtype, view->rows, shift + view->cols, stride);
    for (int64_t i = 0; i < view->rows; i++)
        for (int64_t j = 0; j < shift; j++) op_test_set(t, &all, i, j, 0);
    op_test_live(&all, (enum ebb_extent)view->extent, view->row0);
    struct ebb_view part = op_test_columns(&all, shift, view->cols);
    for (int64_t i = 0; i < view->rows; i++)
        memcpy(op_test_at(t, &part, i, 0), op_test_at(t, view, i, 0), (size_t)view->cols * size);
    return part;
}

/* Have two views of the same shape the same bits? */
static inline bool op_layout_same(const struct op_test *t, const struct ebb_view *a,
                                  const struct ebb_view *b)
{
    size_t size = (size_t)ebb_dtype_bytes((enum ebb_dtype)a->dtype);
    for (int64_t i = 0; i < a->rows; i++) {
        if (memcmp(op_test_at(t, a, i, 0), op_test_at(t, b, i, 0), (size_t)a->cols * size) != 0)
            return false;
    }
    return true;
}

#endif
