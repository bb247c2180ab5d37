/* SwiGLU on the GPU: a thread eight elements of each half; `across` blocks have a row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/swiglu.h"

#include "op/vector_cuda_int.cuh"

enum { THREADS = 128 };

/* 1 / (1 + exp(-g)). */
static __device__ __forceinline__ float sigmoid(float g)
{
    return __frcp_rn(1.0f + expf(-g));
}

template <typename T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    forward_kernel(const T *x, int64_t x_stride, T *y, int64_t y_stride, int64_t width,
                   unsigned across)
{
    int64_t i = blockIdx.x / across;
    int64_t j = 8 * ((int64_t)(blockIdx.x % across) * THREADS + threadIdx.x);
    if (j >= width) return;
    x += i * x_stride;
    float g[8], u[8];
    ebb_read_eight<WIDE>(x, j, width, g);
    ebb_read_eight<WIDE>(x + width, j, width, u);
#pragma unroll
    for (int k = 0; k < 8; k++) u[k] *= g[k] * sigmoid(g[k]);
    ebb_write_eight<WIDE>(y + i * y_stride, j, width, u);
}

/* dx may be x: a thread reads both halves' elements before it writes them. */
template <typename T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    backward_kernel(const T *x, int64_t x_stride, const T *dy, int64_t dy_stride, T *dx,
                    int64_t dx_stride, int64_t width, unsigned across)
{
    int64_t i = blockIdx.x / across;
    int64_t j = 8 * ((int64_t)(blockIdx.x % across) * THREADS + threadIdx.x);
    if (j >= width) return;
    x += i * x_stride;
    dx += i * dx_stride;
    float g[8], u[8], d[8];
    ebb_read_eight<WIDE>(x, j, width, g);
    ebb_read_eight<WIDE>(x + width, j, width, u);
    ebb_read_eight<WIDE>(dy + i * dy_stride, j, width, d);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float s = sigmoid(g[k]);
        u[k] = d[k] * u[k] * s * (1.0f + g[k] * (1.0f - s));
        d[k] *= g[k] * s;
    }
    ebb_write_eight<WIDE>(dx, j, width, u);
    ebb_write_eight<WIDE>(dx + width, j, width, d);
}

template <typename T, bool WIDE>
static void forward(const struct ebb_op_env *env, const struct ebb_swiglu_forward *args,
                    int64_t rows)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    unsigned across = ebb_blocks(ebb_ceil_div(y->cols, 8 * THREADS));
    forward_kernel<T, WIDE><<<ebb_blocks(rows * across), THREADS, 0, ebb_stream(env)>>>(
        ebb_data<const T>(env, x), x->stride, ebb_data<T>(env, y), y->stride, y->cols, across);
}

enum ebb_status ebb_swiglu_forward_cuda(const struct ebb_op_env *env,
                                        const struct ebb_swiglu_forward *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == 2 * y->cols && x->dtype == y->dtype);
    int64_t rows = ebb_view_rows(env, x);
    if (rows == 0 || y->cols == 0) return EBB_OK;
    bool wide = ebb_wide(env, x) && ebb_wide(env, y);
    if (x->dtype == EBB_F32)
        wide ? forward<float, true>(env, args, rows) : forward<float, false>(env, args, rows);
    else
        wide ? forward<ebb_bf16, true>(env, args, rows) : forward<ebb_bf16, false>(env, args, rows);
    return ebb_launched(env, "swiglu_forward");
}

template <typename T, bool WIDE>
static void backward(const struct ebb_op_env *env, const struct ebb_swiglu_backward *args,
                     int64_t rows)
{
    const struct ebb_view *x = &args->x, *dy = &args->dy, *dx = &args->dx;
    unsigned across = ebb_blocks(ebb_ceil_div(dy->cols, 8 * THREADS));
    backward_kernel<T, WIDE><<<ebb_blocks(rows * across), THREADS, 0, ebb_stream(env)>>>(
        ebb_data<const T>(env, x), x->stride, ebb_data<const T>(env, dy), dy->stride,
        ebb_data<T>(env, dx), dx->stride, dy->cols, across);
}

enum ebb_status ebb_swiglu_backward_cuda(const struct ebb_op_env *env,
                                         const struct ebb_swiglu_backward *args)
{
    const struct ebb_view *x = &args->x, *dy = &args->dy, *dx = &args->dx;
    EBB_ASSERT(x->cols == 2 * dy->cols && x->cols == dx->cols && x->dtype == dy->dtype &&
               x->dtype == dx->dtype);
    int64_t rows = ebb_view_rows(env, x);
    if (rows == 0 || dy->cols == 0) return EBB_OK;
    bool wide = ebb_wide(env, x) && ebb_wide(env, dy) && ebb_wide(env, dx);
    if (x->dtype == EBB_F32)
        wide ? backward<float, true>(env, args, rows) : backward<float, false>(env, args, rows);
    else
        wide ? backward<ebb_bf16, true>(env, args, rows)
             : backward<ebb_bf16, false>(env, args, rows);
    return ebb_launched(env, "swiglu_backward");
}
