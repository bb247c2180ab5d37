/* Rows of matrices: filled, gathered, scattered, summed, stored.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_ROWS_H
#define EBB_OP_ROWS_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets every byte of the live rows. */
struct ebb_fill {
    struct ebb_view y; /* out [=] [R, N] any dtype */
    int32_t byte;      /* what every byte becomes: 0, or 0xff for NaN in every float format */
};

/* y[i] = x[rows[i]] for each live row i of y. */
struct ebb_gather_rows {
    struct ebb_view x;    /* in [T, N] storage */
    struct ebb_view rows; /* in [1, M] int32: the entry for y's row i is rows[y.row0 + i] */
    struct ebb_view y;    /* out [=] [R, N] storage */
};

/* y[rows[i]] = x[i] for each live row i of x; other rows of y stay. rows are distinct. */
struct ebb_scatter_rows {
    struct ebb_view x;    /* in [R, N] storage */
    struct ebb_view rows; /* in [1, M] int32: the entry for x's row i is rows[x.row0 + i] */
    struct ebb_view y;    /* out [=] those rows, [T, N] storage */
};

/* y[j] += sum over live rows i of x[i, j], in fp32, rows in ascending order (CUDA: in parts of 16
 * rows, then the parts): a bias's gradient. */
struct ebb_column_sum {
    struct ebb_view x;       /* in [R, N] storage */
    struct ebb_view y;       /* out [+=] [1, N] fp32 */
    struct ebb_view scratch; /* [1, ebb_column_sum_scratch()] bytes; absent where it is 0 */
};
int64_t ebb_column_sum_scratch(int64_t rows, int64_t cols, const struct ebb_op_target *target);

/* y[step->cached + i] = x[i] for each live row: keys and values into the cache. EBB_FAILED if
 * that is past y's end. */
struct ebb_store_rows {
    struct ebb_view x; /* in [R, N] */
    struct ebb_view y; /* out [=] those rows, [cache tokens, N], same dtype */
};

/* y = x for each live row. */
struct ebb_copy_rows {
    struct ebb_view x; /* in [R, N] */
    struct ebb_view y; /* out [=] [R, N], same dtype */
};

enum ebb_status ebb_fill_cpu(const struct ebb_op_env *env, const struct ebb_fill *args);
enum ebb_status ebb_gather_rows_cpu(const struct ebb_op_env *env,
                                    const struct ebb_gather_rows *args);
enum ebb_status ebb_scatter_rows_cpu(const struct ebb_op_env *env,
                                     const struct ebb_scatter_rows *args);
enum ebb_status ebb_column_sum_cpu(const struct ebb_op_env *env, const struct ebb_column_sum *args);
enum ebb_status ebb_store_rows_cpu(const struct ebb_op_env *env, const struct ebb_store_rows *args);
enum ebb_status ebb_copy_rows_cpu(const struct ebb_op_env *env, const struct ebb_copy_rows *args);

/* With CUDA: kernels on env->stream (op/rows_cuda.cu). */
enum ebb_status ebb_fill_cuda(const struct ebb_op_env *env, const struct ebb_fill *args);
enum ebb_status ebb_gather_rows_cuda(const struct ebb_op_env *env,
                                     const struct ebb_gather_rows *args);
enum ebb_status ebb_scatter_rows_cuda(const struct ebb_op_env *env,
                                      const struct ebb_scatter_rows *args);
enum ebb_status ebb_column_sum_cuda(const struct ebb_op_env *env,
                                    const struct ebb_column_sum *args);
enum ebb_status ebb_store_rows_cuda(const struct ebb_op_env *env,
                                    const struct ebb_store_rows *args);
enum ebb_status ebb_copy_rows_cuda(const struct ebb_op_env *env, const struct ebb_copy_rows *args);

#ifdef __cplusplus
}
#endif
#endif
