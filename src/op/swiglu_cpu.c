/* SwiGLU on the CPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/swiglu.h"

#include "op/vector_int.h"

static EBB_CLONES void forward_row(enum ebb_dtype dtype, const void *x, int64_t width, void *y)
{
    float gs[EBB_CHUNK], us[EBB_CHUNK], ys[EBB_CHUNK];
    for (int64_t at = 0; at < width; at += EBB_CHUNK) {
        int64_t n = width - at < EBB_CHUNK ? width - at : EBB_CHUNK;
        const float *g = ebb_see_f32(dtype, x, at, n, gs),
                    *u = ebb_see_f32(dtype, x, width + at, n, us);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) ys[j] = g[j] / (1.0f + ebb_exp(-g[j])) * u[j];
        ebb_store_f32(dtype, y, at, n, ys);
    }
}

enum ebb_status ebb_swiglu_forward_cpu(const struct ebb_op_env *env,
                                       const struct ebb_swiglu_forward *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == 2 * y->cols && x->dtype == y->dtype);
    int64_t rows = ebb_view_rows(env, x);
    EBB_ASSERT(rows <= y->rows);
#pragma omp parallel for num_threads(ebb_op_team(env, rows * x->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        forward_row(ebb_view_dtype(x), ebb_view_row(env, x, i), y->cols, ebb_view_row(env, y, i));
    }
    return EBB_OK;
}

/* dx may be x: each chunk of both halves is read before it is written. */
static EBB_CLONES void backward_row(enum ebb_dtype dtype, const void *x, const void *dy,
                                    int64_t width, void *dx)
{
    float gs[EBB_CHUNK], us[EBB_CHUNK], ds[EBB_CHUNK], dgs[EBB_CHUNK], dus[EBB_CHUNK];
    for (int64_t at = 0; at < width; at += EBB_CHUNK) {
        int64_t n = width - at < EBB_CHUNK ? width - at : EBB_CHUNK;
        const float *g = ebb_see_f32(dtype, x, at, n, gs),
                    *u = ebb_see_f32(dtype, x, width + at, n, us);
        const float *d = ebb_see_f32(dtype, dy, at, n, ds);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float s = 1.0f / (1.0f + ebb_exp(-g[j]));
            dgs[j] = d[j] * u[j] * s * (1.0f + g[j] * (1.0f - s));
            dus[j] = d[j] * (g[j] * s);
        }
        ebb_store_f32(dtype, dx, at, n, dgs);
        ebb_store_f32(dtype, dx, width + at, n, dus);
    }
}

enum ebb_status ebb_swiglu_backward_cpu(const struct ebb_op_env *env,
                                        const struct ebb_swiglu_backward *args)
{
    const struct ebb_view *x = &args->x, *dy = &args->dy, *dx = &args->dx;
    EBB_ASSERT(x->cols == 2 * dy->cols && x->cols == dx->cols && x->dtype == dy->dtype &&
               x->dtype == dx->dtype);
    int64_t rows = ebb_view_rows(env, x);
    EBB_ASSERT(rows <= dy->rows && rows <= dx->rows);
#pragma omp parallel for num_threads(ebb_op_team(env, rows * x->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        backward_row(ebb_view_dtype(x), ebb_view_row(env, x, i), ebb_view_row(env, dy, i), dy->cols,
                     ebb_view_row(env, dx, i));
    }
    return EBB_OK;
}
