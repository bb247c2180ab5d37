/* Rows of matrices on the CPU: copies of rows and sums of columns.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows.h"

#include "op/vector_int.h"

enum { COLUMN_SLICE = 256 }; /* columns that a thread sums at a time */

static size_t row_bytes(const struct ebb_view *view)
{
    return (size_t)(view->cols * ebb_dtype_bytes(ebb_view_dtype(view)));
}

enum ebb_status ebb_fill_cpu(const struct ebb_op_env *env, const struct ebb_fill *args)
{
    const struct ebb_view *y = &args->y;
    int64_t rows = ebb_view_rows(env, y);
    size_t bytes = row_bytes(y);
    if (y->stride == y->cols) { /* one run of bytes: split it where it is only one long row */
        char *start = ebb_view_data(env, y);
        int64_t all = rows * (int64_t)bytes, part = 1 << 16;
#pragma omp parallel for num_threads(ebb_op_team(env, all / 4)) schedule(static)
        for (int64_t at = 0; at < all; at += part)
            memset(start + at, args->byte, (size_t)(all - at < part ? all - at : part));
        return EBB_OK;
    }
#pragma omp parallel for num_threads(ebb_op_team(env, rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++) memset(ebb_view_row(env, y, i), args->byte, bytes);
    return EBB_OK;
}

/* The first of indices[first .. first + n) outside [0, limit), or n. */
static int64_t find_bad(const int32_t *indices, int64_t n, int64_t limit)
{
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= limit) return i;
    }
    return n;
}

static enum ebb_status check_rows(const struct ebb_op_env *env, const char *what,
                                  const int32_t *indices, int64_t n, int64_t limit)
{
    int64_t bad = find_bad(indices, n, limit);
    if (bad == n) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_FAILED,
                    "%s: row index %d at place %lld is outside the matrix's %lld rows", what,
                    (int)indices[bad], (long long)bad, (long long)limit);
}

enum ebb_status ebb_gather_rows_cpu(const struct ebb_op_env *env,
                                    const struct ebb_gather_rows *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == y->cols && x->dtype == y->dtype);
    int64_t rows = ebb_view_rows(env, y);
    size_t bytes = row_bytes(y);
    EBB_ASSERT(rows == 0 || y->row0 + rows <= args->rows.cols);
    const int32_t *from = (const int32_t *)ebb_view_data(env, &args->rows) + y->row0;
    EBB_TRY(check_rows(env, "gather_rows", from, rows, x->rows));
#pragma omp parallel for num_threads(ebb_op_team(env, rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        memcpy(ebb_view_row(env, y, i), ebb_view_row(env, x, from[i]), bytes);
    return EBB_OK;
}

enum ebb_status ebb_scatter_rows_cpu(const struct ebb_op_env *env,
                                     const struct ebb_scatter_rows *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == y->cols && x->dtype == y->dtype);
    int64_t rows = ebb_view_rows(env, x);
    size_t bytes = row_bytes(x);
    EBB_ASSERT(rows == 0 || x->row0 + rows <= args->rows.cols);
    const int32_t *to = (const int32_t *)ebb_view_data(env, &args->rows) + x->row0;
    EBB_TRY(check_rows(env, "scatter_rows", to, rows, y->rows));
#pragma omp parallel for num_threads(ebb_op_team(env, rows * x->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        memcpy(ebb_view_row(env, y, to[i]), ebb_view_row(env, x, i), bytes);
    return EBB_OK;
}

static EBB_CLONES void add_row(enum ebb_dtype dtype, const void *x, int64_t first, int64_t n,
                               float *sum)
{
    float buffer[COLUMN_SLICE];
    const float *row = ebb_see_f32(dtype, x, first, n, buffer);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) sum[j] += row[j];
}

enum ebb_status ebb_column_sum_cpu(const struct ebb_op_env *env, const struct ebb_column_sum *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == y->cols && y->dtype == EBB_F32);
    int64_t rows = ebb_view_rows(env, x), cols = x->cols;
    float *sum = ebb_view_data(env, y);
    if (rows == 0) return EBB_OK;
#pragma omp parallel for num_threads(ebb_op_team(env, rows *cols)) schedule(static)
    for (int64_t first = 0; first < cols; first += COLUMN_SLICE) {
        int64_t n = cols - first < COLUMN_SLICE ? cols - first : COLUMN_SLICE;
        for (int64_t i = 0; i < rows; i++) {
            add_row(ebb_view_dtype(x), ebb_view_row(env, x, i), first, n, sum + first);
        }
    }
    return EBB_OK;
}

enum ebb_status ebb_store_rows_cpu(const struct ebb_op_env *env, const struct ebb_store_rows *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == y->cols && x->dtype == y->dtype);
    int64_t rows = ebb_view_rows(env, x), cached = env->step->cached;
    size_t bytes = row_bytes(x);
    if (cached < 0 || cached + rows > y->rows) {
        return EBB_FAIL(
            env->ctx, EBB_FAILED,
            "store_rows: %lld tokens after the %lld in the cache do not fit its %lld rows; "
            "plan for a longer sequence or generate fewer tokens",
            (long long)rows, (long long)cached, (long long)y->rows);
    }
#pragma omp parallel for num_threads(ebb_op_team(env, rows * x->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        memcpy(ebb_view_row(env, y, cached + i), ebb_view_row(env, x, i), bytes);
    return EBB_OK;
}

enum ebb_status ebb_copy_rows_cpu(const struct ebb_op_env *env, const struct ebb_copy_rows *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == y->cols && x->dtype == y->dtype);
    int64_t rows = ebb_view_rows(env, x);
    EBB_ASSERT(rows <= y->rows);
    size_t bytes = row_bytes(x);
#pragma omp parallel for num_threads(ebb_op_team(env, rows * x->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        memcpy(ebb_view_row(env, y, i), ebb_view_row(env, x, i), bytes);
    return EBB_OK;
}
