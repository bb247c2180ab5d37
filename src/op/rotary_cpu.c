/* Rotary position embedding on the CPU, with the norm over each head where a model has one.
 *
 * Backward with norms sums their gradients in two steps that do not depend on the number of
 * threads: each row adds its heads into its own line of scratch, then each column adds the lines
 * of a block of rows in ascending order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rotary.h"

#include <math.h>

#include "op/scratch_int.h"
#include "op/vector_int.h"

/* rows with a line of scratch; columns of it that a thread sums at a time */
enum { BLOCK = 256, SLICE = 32 };

static enum ebb_status check_positions(const struct ebb_op_env *env,
                                       const struct ebb_view *positions,
                                       const struct ebb_view *table, int64_t row0, int64_t rows)
{
    const int32_t *given = ebb_view_data(env, positions);
    EBB_ASSERT(given == NULL || rows == 0 || row0 + rows <= positions->cols);
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = given != NULL ? given[row0 + i] : env->step->cached + row0 + i;
        if (at >= 0 && at < table->rows) continue;
        return EBB_FAIL(
            env->ctx, EBB_FAILED,
            "rotary: token %lld has position %lld, the table has %lld; plan for a longer sequence",
            (long long)(row0 + i), (long long)at, (long long)table->rows);
    }
    return EBB_OK;
}

static const float *table_row(const struct ebb_op_env *env, const struct ebb_view *positions,
                              const struct ebb_view *table, int64_t token)
{
    const int32_t *given = ebb_view_data(env, positions);
    return ebb_view_row(env, table, given != NULL ? given[token] : env->step->cached + token);
}

/* What both directions need to know of the op's arguments, with the norms' weights as fp32. */
struct heads {
    int64_t heads, kv_heads, dim;
    float eps;
    bool norms;
    float q_weight[EBB_CHUNK], k_weight[EBB_CHUNK];
};

static enum ebb_status read_heads(const struct ebb_op_env *env, int64_t heads, int64_t kv_heads,
                                  int64_t dim, float eps, const struct ebb_view *q_norm,
                                  const struct ebb_view *k_norm, struct heads *out)
{
    if (dim < 2 || dim % 2 != 0 || dim > EBB_CHUNK) {
        return EBB_FAIL(env->ctx, EBB_UNSUPPORTED,
                        "rotary: heads of size %lld; wanted an even number up to %d",
                        (long long)dim, (int)EBB_CHUNK);
    }
    out->heads = heads;
    out->kv_heads = kv_heads;
    out->dim = dim;
    out->eps = eps;
    out->norms = ebb_view_present(q_norm);
    EBB_ASSERT(out->norms == ebb_view_present(k_norm));
    if (!out->norms) return EBB_OK;
    EBB_ASSERT(q_norm->cols == dim && k_norm->cols == dim);
    ebb_load_f32(ebb_view_dtype(q_norm), ebb_view_data(env, q_norm), 0, dim, out->q_weight);
    ebb_load_f32(ebb_view_dtype(k_norm), ebb_view_data(env, k_norm), 0, dim, out->k_weight);
    return EBB_OK;
}

EBB_VECTOR float head_scale(const float *x, int64_t dim, float eps)
{
    return (float)(1.0 / sqrt((double)ebb_dot_f32(x, x, dim) / (double)dim + (double)eps));
}

/* `angles`: dim / 2 cosines, then the sines. y may be x. */
static EBB_CLONES void forward_row(const struct heads *shape, enum ebb_dtype dtype, const void *x,
                                   const float *angles, void *y)
{
    int64_t dim = shape->dim, half = dim / 2;
    const float *c = angles, *s = angles + half;
    for (int64_t h = 0; h < shape->heads + shape->kv_heads; h++) {
        float a[EBB_CHUNK], b[EBB_CHUNK];
        ebb_load_f32(dtype, x, h * dim, dim, a);
        if (shape->norms) {
            const float *w = h < shape->heads ? shape->q_weight : shape->k_weight;
            float r = head_scale(a, dim, shape->eps);
            for (int64_t i = 0; i < dim; i++) a[i] = a[i] * r * w[i];
        }
        for (int64_t i = 0; i < half; i++) {
            float first = a[i], second = a[i + half];
            b[i] = first * c[i] - second * s[i];
            b[i + half] = second * c[i] + first * s[i];
        }
        ebb_store_f32(dtype, y, h * dim, dim, b);
    }
}

enum ebb_status ebb_rotary_forward_cpu(const struct ebb_op_env *env,
                                       const struct ebb_rotary_forward *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    struct heads shape;
    EBB_TRY(read_heads(env, args->heads, args->kv_heads, args->head_dim, args->eps, &args->q_norm,
                       &args->k_norm, &shape));
    int64_t rows = ebb_view_rows(env, x), used = (args->heads + args->kv_heads) * args->head_dim;
    EBB_ASSERT(x->cols >= used && y->cols >= used && rows <= y->rows && x->dtype == y->dtype);
    EBB_ASSERT(args->table.cols == args->head_dim && args->table.dtype == EBB_F32);
    EBB_TRY(check_positions(env, &args->positions, &args->table, x->row0, rows));
#pragma omp parallel for num_threads(ebb_op_team(env, rows *used)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        forward_row(&shape, ebb_view_dtype(x), ebb_view_row(env, x, i),
                    table_row(env, &args->positions, &args->table, x->row0 + i),
                    ebb_view_row(env, y, i));
    }
    return EBB_OK;
}

/* The norm's backward for one head, in place: g becomes the gradient of x. sum += g xh, where it
 * is wanted. */
EBB_VECTOR void norm_backward(float *x, const float *w, float *g, int64_t dim, float eps,
                              float *sum)
{
    float r = head_scale(x, dim, eps);
    for (int64_t i = 0; i < dim; i++) x[i] *= r;
    if (sum != NULL) {
        for (int64_t i = 0; i < dim; i++) sum[i] += g[i] * x[i];
    }
    for (int64_t i = 0; i < dim; i++) g[i] *= w[i];
    float mean = ebb_dot_f32(g, x, dim) / (float)dim;
    for (int64_t i = 0; i < dim; i++) g[i] = r * (g[i] - x[i] * mean);
}

/* x is read only with norms. line: the row's sums for q_norm and k_norm, or NULL. */
static EBB_CLONES void backward_row(const struct heads *shape, enum ebb_dtype dtype, const void *x,
                                    const float *angles, void *dy, float *line)
{
    int64_t dim = shape->dim, half = dim / 2;
    const float *c = angles, *s = angles + half;
    if (line != NULL) memset(line, 0, (size_t)(2 * dim) * sizeof *line);
    for (int64_t h = 0; h < shape->heads + shape->kv_heads; h++) {
        float d[EBB_CHUNK], g[EBB_CHUNK];
        bool q = h < shape->heads;
        ebb_load_f32(dtype, dy, h * dim, dim, d);
        for (int64_t i = 0; i < half; i++) {
            float first = d[i], second = d[i + half];
            g[i] = first * c[i] + second * s[i];
            g[i + half] = second * c[i] - first * s[i];
        }
        if (shape->norms) {
            ebb_load_f32(dtype, x, h * dim, dim, d);
            norm_backward(d, q ? shape->q_weight : shape->k_weight, g, dim, shape->eps,
                          line == NULL ? NULL
                          : q          ? line
                                       : line + dim);
        }
        ebb_store_f32(dtype, dy, h * dim, dim, g);
    }
}

int64_t ebb_rotary_backward_scratch_cpu(int64_t rows, int64_t head_dim, bool norms)
{
    return norms ? (rows < BLOCK ? rows : BLOCK) * 2 * head_dim * (int64_t)sizeof(float) : 0;
}

/* sum[j] += the column's values in `count` lines, in ascending order. */
static void add_lines(const float *lines, int64_t count, int64_t stride, int64_t n, float *sum)
{
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < n; j++) sum[j] += lines[i * stride + j];
    }
}

static void add_norm_gradients(const struct ebb_op_env *env, const struct ebb_rotary_backward *args,
                               const float *lines, int64_t count)
{
    int64_t dim = args->head_dim, slices = (dim + SLICE - 1) / SLICE;
    float *dq = ebb_view_data(env, &args->dq_norm), *dk = ebb_view_data(env, &args->dk_norm);
#pragma omp parallel for num_threads(ebb_op_team(env, count * 2 * dim)) schedule(static)
    for (int64_t piece = 0; piece < 2 * slices; piece++) {
        int64_t first = piece % slices * SLICE, n = dim - first < SLICE ? dim - first : SLICE;
        float *sum = piece < slices ? dq : dk;
        if (sum == NULL) continue;
        add_lines(lines + (piece < slices ? 0 : dim) + first, count, 2 * dim, n, sum + first);
    }
}

enum ebb_status ebb_rotary_backward_cpu(const struct ebb_op_env *env,
                                        const struct ebb_rotary_backward *args)
{
    const struct ebb_view *x = &args->x, *dy = &args->dy;
    struct heads shape;
    EBB_TRY(read_heads(env, args->heads, args->kv_heads, args->head_dim, args->eps, &args->q_norm,
                       &args->k_norm, &shape));
    int64_t rows = ebb_view_rows(env, dy), dim = args->head_dim,
            used = (args->heads + args->kv_heads) * dim;
    EBB_ASSERT(dy->cols >= used && args->table.cols == dim && args->table.dtype == EBB_F32);
    EBB_ASSERT(!shape.norms || (x->cols >= used && x->rows >= rows && x->dtype == dy->dtype));
    EBB_TRY(check_positions(env, &args->positions, &args->table, dy->row0, rows));
    bool sums =
        shape.norms && (ebb_view_present(&args->dq_norm) || ebb_view_present(&args->dk_norm));
    EBB_ASSERT(!sums ||
               args->scratch.cols >= ebb_rotary_backward_scratch_cpu(rows, dim, true));
    float *lines = sums ? ebb_view_data(env, &args->scratch) : NULL;
    for (int64_t start = 0; start < rows; start += BLOCK) {
        int64_t count = rows - start < BLOCK ? rows - start : BLOCK;
#pragma omp parallel for num_threads(ebb_op_team(env, count *used)) schedule(static)
        for (int64_t i = 0; i < count; i++) {
            int64_t row = start + i;
            backward_row(&shape, ebb_view_dtype(dy), shape.norms ? ebb_view_row(env, x, row) : NULL,
                         table_row(env, &args->positions, &args->table, dy->row0 + row),
                         ebb_view_row(env, dy, row), sums ? lines + i * 2 * dim : NULL);
        }
        if (sums) add_norm_gradients(env, args, lines, count);
    }
    return EBB_OK;
}
