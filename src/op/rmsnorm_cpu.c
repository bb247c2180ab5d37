/* RMS norm on the CPU.
 *
 * Backward walks over blocks of rows that fit the caches: first each row's two sums, then the
 * weight's gradient by slices of columns, then the input's gradient, which may be written over
 * dy.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rmsnorm.h"

#include <math.h>

#include "op/vector_int.h"

enum { BLOCK = 256, SLICE = 256 }; /* rows; columns of dw that a thread sums at a time */

/* What backward needs of a row: r and mean(g xh). */
struct row_sums {
    float r, mean;
};

static EBB_CLONES void forward_row(const struct ebb_view *xv, const struct ebb_view *wv,
                                   const struct ebb_view *yv, const void *x, const void *w, void *y,
                                   float eps)
{
    float xs[EBB_CHUNK], ws[EBB_CHUNK], ys[EBB_CHUNK];
    enum ebb_dtype x_type = ebb_view_dtype(xv), w_type = ebb_view_dtype(wv),
                   y_type = ebb_view_dtype(yv);
    int64_t cols = xv->cols;
    double squares = 0;
    for (int64_t at = 0; at < cols; at += EBB_CHUNK) {
        int64_t n = cols - at < EBB_CHUNK ? cols - at : EBB_CHUNK;
        const float *a = ebb_see_f32(x_type, x, at, n, xs);
        squares += (double)ebb_dot_f32(a, a, n);
    }
    float r = (float)(1.0 / sqrt(squares / (double)cols + (double)eps));
    for (int64_t at = 0; at < cols; at += EBB_CHUNK) {
        int64_t n = cols - at < EBB_CHUNK ? cols - at : EBB_CHUNK;
        const float *a = ebb_see_f32(x_type, x, at, n, xs), *b = ebb_see_f32(w_type, w, at, n, ws);
        if (y_type == EBB_BF16) {
#pragma omp simd
            for (int64_t j = 0; j < n; j++) ys[j] = ebb_round_to(EBB_BF16, a[j] * r) * b[j];
        } else {
#pragma omp simd
            for (int64_t j = 0; j < n; j++) ys[j] = a[j] * r * b[j];
        }
        ebb_store_f32(y_type, y, at, n, ys);
    }
}

enum ebb_status ebb_rmsnorm_forward_cpu(const struct ebb_op_env *env,
                                        const struct ebb_rmsnorm_forward *args)
{
    const struct ebb_view *x = &args->x, *w = &args->w, *y = &args->y;
    EBB_ASSERT(x->cols == w->cols && x->cols == y->cols && x->dtype == y->dtype);
    int64_t rows = ebb_view_rows(env, x);
    EBB_ASSERT(rows <= y->rows);
    const void *weight = ebb_view_data(env, w);
#pragma omp parallel for num_threads(ebb_op_team(env, rows * x->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        forward_row(x, w, y, ebb_view_row(env, x, i), weight, ebb_view_row(env, y, i), args->eps);
    }
    return EBB_OK;
}

static EBB_CLONES void sum_row(const struct ebb_rmsnorm_backward *args, const void *x,
                               const void *w, const void *dy, struct row_sums *sums)
{
    float xs[EBB_CHUNK], ws[EBB_CHUNK], gs[EBB_CHUNK], product[EBB_CHUNK];
    int64_t cols = args->x.cols;
    double squares = 0, dot = 0;
    for (int64_t at = 0; at < cols; at += EBB_CHUNK) {
        int64_t n = cols - at < EBB_CHUNK ? cols - at : EBB_CHUNK;
        const float *a = ebb_see_f32(ebb_view_dtype(&args->x), x, at, n, xs);
        const float *b = ebb_see_f32(ebb_view_dtype(&args->w), w, at, n, ws);
        const float *g = ebb_see_f32(ebb_view_dtype(&args->dy), dy, at, n, gs);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) product[j] = g[j] * b[j];
        squares += (double)ebb_dot_f32(a, a, n);
        dot += (double)ebb_dot_f32(product, a, n);
    }
    double r = 1.0 / sqrt(squares / (double)cols + (double)args->eps);
    sums->r = (float)r;
    sums->mean = (float)(r * dot / (double)cols);
}

/* dw[j] += dy[j] x[j] r */
static EBB_CLONES void add_weight_gradient(const struct ebb_rmsnorm_backward *args, const void *x,
                                           const void *dy, float r, int64_t first, int64_t n,
                                           float *dw)
{
    float xs[SLICE], gs[SLICE];
    const float *a = ebb_see_f32(ebb_view_dtype(&args->x), x, first, n, xs);
    const float *g = ebb_see_f32(ebb_view_dtype(&args->dy), dy, first, n, gs);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) dw[j] += g[j] * (a[j] * r);
}

static EBB_CLONES void input_gradient_row(const struct ebb_rmsnorm_backward *args, const void *x,
                                          const void *w, const void *dy, void *dx,
                                          const struct row_sums *sums)
{
    float xs[EBB_CHUNK], ws[EBB_CHUNK], gs[EBB_CHUNK], ds[EBB_CHUNK];
    enum ebb_dtype dx_type = ebb_view_dtype(&args->dx);
    int64_t cols = args->x.cols;
    float r = sums->r, mean = sums->mean;
    for (int64_t at = 0; at < cols; at += EBB_CHUNK) {
        int64_t n = cols - at < EBB_CHUNK ? cols - at : EBB_CHUNK;
        const float *a = ebb_see_f32(ebb_view_dtype(&args->x), x, at, n, xs);
        const float *b = ebb_see_f32(ebb_view_dtype(&args->w), w, at, n, ws);
        const float *g = ebb_see_f32(ebb_view_dtype(&args->dy), dy, at, n, gs);
        if (args->overwrite) {
#pragma omp simd
            for (int64_t j = 0; j < n; j++) ds[j] = r * (g[j] * b[j] - a[j] * r * mean);
        } else {
            ebb_load_f32(dx_type, dx, at, n, ds);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) ds[j] += r * (g[j] * b[j] - a[j] * r * mean);
        }
        ebb_store_f32(dx_type, dx, at, n, ds);
    }
}

static const void *row_of(const struct ebb_op_env *env, const struct ebb_view *view, int64_t i)
{
    return ebb_view_row(env, view, i);
}

/* The weight's gradient of rows [start, start + count), by slices of columns. Part of a team's
 * work. */
static void weight_gradient_block(const struct ebb_op_env *env,
                                  const struct ebb_rmsnorm_backward *args,
                                  const struct row_sums *sums, int64_t start, int64_t count)
{
    float *dw = ebb_view_data(env, &args->dw);
    int64_t cols = args->x.cols;
#pragma omp for schedule(static)
    for (int64_t first = 0; first < cols; first += SLICE) {
        int64_t n = cols - first < SLICE ? cols - first : SLICE;
        for (int64_t i = 0; i < count; i++) {
            add_weight_gradient(args, row_of(env, &args->x, start + i),
                                row_of(env, &args->dy, start + i), sums[i].r, first, n, dw + first);
        }
    }
}

/* Everything in one team: the input's gradient waits until all threads have read the block's dy,
 * and needs no wait after it, since a row belongs to the same thread in both loops over rows. */
static void backward_with_weight(const struct ebb_op_env *env,
                                 const struct ebb_rmsnorm_backward *args, int64_t rows)
{
    struct row_sums sums[BLOCK];
    const void *w = ebb_view_data(env, &args->w);
#pragma omp parallel num_threads(ebb_op_team(env, rows * args->x.cols))
    for (int64_t start = 0; start < rows; start += BLOCK) {
        int64_t count = rows - start < BLOCK ? rows - start : BLOCK;
        /* Always BLOCK turns, so that the last, shorter block is shared out like the others. */
#pragma omp for schedule(static)
        for (int64_t i = 0; i < BLOCK; i++) {
            if (i >= count) continue;
            sum_row(args, row_of(env, &args->x, start + i), w, row_of(env, &args->dy, start + i),
                    &sums[i]);
        }
        weight_gradient_block(env, args, sums, start, count);
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < BLOCK; i++) {
            if (i >= count) continue;
            input_gradient_row(args, row_of(env, &args->x, start + i), w,
                               row_of(env, &args->dy, start + i),
                               ebb_view_row(env, &args->dx, start + i), &sums[i]);
        }
    }
}

static void backward_without_weight(const struct ebb_op_env *env,
                                    const struct ebb_rmsnorm_backward *args, int64_t rows)
{
    const void *w = ebb_view_data(env, &args->w);
#pragma omp parallel for num_threads(ebb_op_team(env, rows * args->x.cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        struct row_sums sums;
        const void *x = row_of(env, &args->x, i), *dy = row_of(env, &args->dy, i);
        sum_row(args, x, w, dy, &sums);
        input_gradient_row(args, x, w, dy, ebb_view_row(env, &args->dx, i), &sums);
    }
}

enum ebb_status ebb_rmsnorm_backward_cpu(const struct ebb_op_env *env,
                                         const struct ebb_rmsnorm_backward *args)
{
    const struct ebb_view *x = &args->x;
    EBB_ASSERT(x->cols == args->w.cols && x->cols == args->dy.cols && x->cols == args->dx.cols);
    EBB_ASSERT(!ebb_view_present(&args->dw) ||
               (args->dw.cols == x->cols && args->dw.dtype == EBB_F32));
    int64_t rows = ebb_view_rows(env, x);
    EBB_ASSERT(rows <= args->dy.rows && rows <= args->dx.rows);
    if (ebb_view_present(&args->dw)) {
        backward_with_weight(env, args, rows);
    } else {
        backward_without_weight(env, args, rows);
    }
    return EBB_OK;
}
