/* RMS norm on the GPU: a block a row; with the weight's gradient a block EBB_CUDA_PART_ROWS rows,
 * whose share of it goes into a line of scratch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rmsnorm.h"

#include "op/cuda_int.cuh"

enum { THREADS = 256 };

/* 1 / rms of a row; squares are added in double, as fp32 ones may be beyond fp32. */
template <typename T>
static __device__ float row_scale(const T *x, int64_t cols, float eps, double *shared)
{
    double squares = 0;
    for (int64_t j = threadIdx.x; j < cols; j += blockDim.x) {
        double value = (double)ebb_load(x + j);
        squares += value * value;
    }
    squares = ebb_block_sum(squares, shared);
    return (float)(1.0 / sqrt(squares / (double)cols + (double)eps));
}

/* What storing as T would leave. */
static __device__ __forceinline__ float rounded(const float *, float value)
{
    return value;
}
static __device__ __forceinline__ float rounded(const ebb_bf16 *, float value)
{
    return __bfloat162float(__float2bfloat16_rn(value));
}

template <typename T>
static __global__ void forward_kernel(const T *x, int64_t x_stride, const T *w, T *y,
                                      int64_t y_stride, int64_t cols, float eps)
{
    __shared__ double shared[32];
    x += (int64_t)blockIdx.x * x_stride;
    y += (int64_t)blockIdx.x * y_stride;
    float r = row_scale(x, cols, eps, shared);
    for (int64_t j = threadIdx.x; j < cols; j += blockDim.x)
        ebb_store(y + j, rounded(x, ebb_load(x + j) * r) * ebb_load(w + j));
}

/* Rows of one call. */
template <typename T> struct backward {
    const T *x, *w, *dy;
    T *dx;
    int64_t x_stride, dy_stride, dx_stride;
    int64_t rows, cols;
    float *lines; /* NULL: no weight gradient */
    float eps;
    int overwrite;
    int rows_each; /* of a block */
};

template <typename T> static __device__ void backward_row(const struct backward<T> &b, int64_t i,
                                                          float *line, bool first, double *shared)
{
    const T *x = b.x + i * b.x_stride, *dy = b.dy + i * b.dy_stride;
    T *dx = b.dx + i * b.dx_stride;
    float r = row_scale(x, b.cols, b.eps, shared);
    double dot = 0;
    for (int64_t j = threadIdx.x; j < b.cols; j += blockDim.x)
        dot += (double)(ebb_load(dy + j) * ebb_load(b.w + j)) * (double)ebb_load(x + j);
    dot = ebb_block_sum(dot, shared);
    float mean = (float)((double)r * dot / (double)b.cols);
    for (int64_t j = threadIdx.x; j < b.cols; j += blockDim.x) {
        float a = ebb_load(x + j), g = ebb_load(dy + j);
        if (line != NULL) line[j] = (first ? 0.0f : line[j]) + g * (a * r);
        float d = r * (g * ebb_load(b.w + j) - a * r * mean);
        ebb_store(dx + j, b.overwrite ? d : ebb_load(dx + j) + d);
    }
}

template <typename T> static __global__ void backward_kernel(struct backward<T> b)
{
    __shared__ double shared[32];
    int64_t first = (int64_t)blockIdx.x * b.rows_each, end = first + b.rows_each;
    float *line = b.lines == NULL ? NULL : b.lines + (int64_t)blockIdx.x * b.cols;
    if (end > b.rows) end = b.rows;
    for (int64_t i = first; i < end; i++) backward_row(b, i, line, i == first, shared);
}

enum ebb_status ebb_rmsnorm_forward_cuda(const struct ebb_op_env *env,
                                         const struct ebb_rmsnorm_forward *args)
{
    const struct ebb_view *x = &args->x, *w = &args->w, *y = &args->y;
    EBB_ASSERT(x->cols == w->cols && x->cols == y->cols && x->dtype == y->dtype &&
               w->dtype == x->dtype);
    int64_t rows = ebb_view_rows(env, x);
    if (rows == 0) return EBB_OK;
    if (x->dtype == EBB_F32)
        forward_kernel<<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(
            ebb_data<const float>(env, x), x->stride, ebb_data<const float>(env, w),
            ebb_data<float>(env, y), y->stride, x->cols, args->eps);
    else
        forward_kernel<<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(
            ebb_data<const ebb_bf16>(env, x), x->stride, ebb_data<const ebb_bf16>(env, w),
            ebb_data<ebb_bf16>(env, y), y->stride, x->cols, args->eps);
    return ebb_launched(env, "rmsnorm_forward");
}

template <typename T>
static void launch_backward(const struct ebb_op_env *env, const struct ebb_rmsnorm_backward *args,
                            int64_t rows)
{
    struct backward<T> b;
    b.x = ebb_data<const T>(env, &args->x);
    b.w = ebb_data<const T>(env, &args->w);
    b.dy = ebb_data<const T>(env, &args->dy);
    b.dx = ebb_data<T>(env, &args->dx);
    b.x_stride = args->x.stride;
    b.dy_stride = args->dy.stride;
    b.dx_stride = args->dx.stride;
    b.rows = rows;
    b.cols = args->x.cols;
    b.lines = ebb_present(&args->dw) ? ebb_data<float>(env, &args->scratch) : NULL;
    b.eps = args->eps;
    b.overwrite = args->overwrite;
    b.rows_each = b.lines != NULL ? EBB_CUDA_PART_ROWS : 1;
    int64_t blocks = ebb_ceil_div(rows, b.rows_each);
    backward_kernel<<<ebb_blocks(blocks), THREADS, 0, ebb_stream(env)>>>(b);
    if (b.lines != NULL)
        ebb_add_lines(env, b.lines, blocks, b.cols, b.cols, ebb_data<float>(env, &args->dw));
}

enum ebb_status ebb_rmsnorm_backward_cuda(const struct ebb_op_env *env,
                                          const struct ebb_rmsnorm_backward *args)
{
    const struct ebb_view *x = &args->x;
    EBB_ASSERT(x->cols == args->w.cols && x->cols == args->dy.cols && x->cols == args->dx.cols);
    EBB_ASSERT(x->dtype == args->w.dtype && x->dtype == args->dy.dtype &&
               x->dtype == args->dx.dtype);
    int64_t rows = ebb_view_rows(env, x);
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    EBB_ASSERT(!ebb_present(&args->dw) ||
               args->scratch.cols >= ebb_rmsnorm_backward_scratch(rows, x->cols, &target));
    if (rows == 0) return EBB_OK;
    if (x->dtype == EBB_F32)
        launch_backward<float>(env, args, rows);
    else
        launch_backward<ebb_bf16>(env, args, rows);
    return ebb_launched(env, "rmsnorm_backward");
}
