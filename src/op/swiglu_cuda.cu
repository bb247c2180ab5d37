/* SwiGLU on the GPU: a thread an element of each half; `across` blocks have a row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/swiglu.h"

#include "op/cuda_int.cuh"

enum { THREADS = 256 };

template <typename T>
static __global__ void forward_kernel(const T *x, int64_t x_stride, T *y, int64_t y_stride,
                                      int64_t width, unsigned across)
{
    int64_t i = blockIdx.x / across;
    int64_t j = (int64_t)(blockIdx.x % across) * blockDim.x + threadIdx.x;
    if (j >= width) return;
    float g = ebb_load(x + i * x_stride + j), u = ebb_load(x + i * x_stride + width + j);
    ebb_store(y + i * y_stride + j, g / (1.0f + expf(-g)) * u);
}

/* dx may be x: a thread reads both halves' elements before it writes them. */
template <typename T>
static __global__ void backward_kernel(const T *x, int64_t x_stride, const T *dy, int64_t dy_stride,
                                       T *dx, int64_t dx_stride, int64_t width, unsigned across)
{
    int64_t i = blockIdx.x / across;
    int64_t j = (int64_t)(blockIdx.x % across) * blockDim.x + threadIdx.x;
    if (j >= width) return;
    float g = ebb_load(x + i * x_stride + j), u = ebb_load(x + i * x_stride + width + j);
    float d = ebb_load(dy + i * dy_stride + j), s = 1.0f / (1.0f + expf(-g));
    ebb_store(dx + i * dx_stride + j, d * u * s * (1.0f + g * (1.0f - s)));
    ebb_store(dx + i * dx_stride + width + j, d * (g * s));
}

enum ebb_status ebb_swiglu_forward_cuda(const struct ebb_op_env *env,
                                        const struct ebb_swiglu_forward *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == 2 * y->cols && x->dtype == y->dtype);
    int64_t rows = ebb_view_rows(env, x);
    if (rows == 0 || y->cols == 0) return EBB_OK;
    unsigned across = ebb_blocks(ebb_ceil_div(y->cols, THREADS));
    unsigned grid = ebb_blocks(rows * across);
    if (x->dtype == EBB_F32)
        forward_kernel<<<grid, THREADS, 0, ebb_stream(env)>>>(
            ebb_data<const float>(env, x), x->stride, ebb_data<float>(env, y), y->stride, y->cols,
            across);
    else
        forward_kernel<<<grid, THREADS, 0, ebb_stream(env)>>>(
            ebb_data<const ebb_bf16>(env, x), x->stride, ebb_data<ebb_bf16>(env, y), y->stride,
            y->cols, across);
    return ebb_launched(env, "swiglu_forward");
}

enum ebb_status ebb_swiglu_backward_cuda(const struct ebb_op_env *env,
                                         const struct ebb_swiglu_backward *args)
{
    const struct ebb_view *x = &args->x, *dy = &args->dy, *dx = &args->dx;
    EBB_ASSERT(x->cols == 2 * dy->cols && x->cols == dx->cols && x->dtype == dy->dtype &&
               x->dtype == dx->dtype);
    int64_t rows = ebb_view_rows(env, x);
    if (rows == 0 || dy->cols == 0) return EBB_OK;
    unsigned across = ebb_blocks(ebb_ceil_div(dy->cols, THREADS));
    unsigned grid = ebb_blocks(rows * across);
    if (x->dtype == EBB_F32)
        backward_kernel<<<grid, THREADS, 0, ebb_stream(env)>>>(
            ebb_data<const float>(env, x), x->stride, ebb_data<const float>(env, dy), dy->stride,
            ebb_data<float>(env, dx), dx->stride, dy->cols, across);
    else
        backward_kernel<<<grid, THREADS, 0, ebb_stream(env)>>>(
            ebb_data<const ebb_bf16>(env, x), x->stride, ebb_data<const ebb_bf16>(env, dy),
            dy->stride, ebb_data<ebb_bf16>(env, dx), dx->stride, dy->cols, across);
    return ebb_launched(env, "swiglu_backward");
}
