/* Rotary position embedding on the GPU: a warp a head of a row. The norms' gradients are summed
 * first, while dy is still there, in parts of EBB_CUDA_PART_ROWS rows. Positions are the host's to
 * check.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rotary.h"

#include "op/cuda_int.cuh"

enum { WARPS = 8, LARGEST_HEAD = 1024 };

/* What both directions know of a call. */
template <typename T> struct call {
    const T *x;
    T *y; /* forward: what is written; backward: dy, in place */
    int64_t x_stride, y_stride;
    const int32_t *positions; /* of row 0 on; NULL: first + row */
    int64_t first;
    const float *table;
    int64_t table_stride, table_rows;
    const T *q_norm, *k_norm; /* NULL: none */
    int64_t rows, heads, kv_heads;
    int dim;
    float eps;
};

template <typename T>
static __device__ const float *angles_of(const struct call<T> &c, int64_t row)
{
    int64_t at = c.positions != NULL ? c.positions[row] : c.first + row;
    at = at < 0 ? 0 : at < c.table_rows ? at : c.table_rows - 1; /* never beyond the table */
    return c.table + at * c.table_stride;
}

template <typename T> static __device__ float warp_scale(const T *x, int dim, float eps)
{
    float squares = 0;
    for (int j = threadIdx.x & 31; j < dim; j += 32) {
        float value = ebb_load(x + j);
        squares += value * value;
    }
    squares = ebb_warp_sum(squares);
    return (float)(1.0 / sqrt((double)squares / (double)dim + (double)eps));
}

template <typename T> static __global__ void forward_kernel(struct call<T> c)
{
    int64_t all = c.heads + c.kv_heads;
    int64_t task = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (task >= c.rows * all) return;
    int64_t row = task / all, head = task % all;
    const T *x = c.x + row * c.x_stride + head * c.dim;
    T *y = c.y + row * c.y_stride + head * c.dim;
    const T *w = head < c.heads ? c.q_norm : c.k_norm;
    int half = c.dim / 2;
    const float *cosines = angles_of(c, row), *sines = cosines + half;
    float r = w != NULL ? warp_scale(x, c.dim, c.eps) : 1.0f;
    for (int j = threadIdx.x & 31; j < half; j += 32) {
        float a = ebb_load(x + j), b = ebb_load(x + j + half);
        if (w != NULL) {
            a = a * r * ebb_load(w + j);
            b = b * r * ebb_load(w + j + half);
        }
        ebb_store(y + j, a * cosines[j] - b * sines[j]);
        ebb_store(y + j + half, b * cosines[j] + a * sines[j]);
    }
}

/* The rotation's backward of both elements of a pair. */
template <typename T>
static __device__ void unrotate(const T *dy, const float *cosines, const float *sines, int j,
                                int half, float *a, float *b)
{
    float first = ebb_load(dy + j), second = ebb_load(dy + j + half);
    *a = first * cosines[j] + second * sines[j];
    *b = second * cosines[j] - first * sines[j];
}

template <typename T> static __global__ void backward_kernel(struct call<T> c)
{
    int64_t all = c.heads + c.kv_heads;
    int64_t task = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (task >= c.rows * all) return;
    int64_t row = task / all, head = task % all;
    T *dy = c.y + row * c.y_stride + head * c.dim;
    const T *w = head < c.heads ? c.q_norm : c.k_norm;
    const T *x = w != NULL ? c.x + row * c.x_stride + head * c.dim : NULL;
    int half = c.dim / 2;
    const float *cosines = angles_of(c, row), *sines = cosines + half;
    float r = 0, mean = 0;
    if (w != NULL) {
        r = warp_scale(x, c.dim, c.eps);
        for (int j = threadIdx.x & 31; j < half; j += 32) {
            float a, b;
            unrotate(dy, cosines, sines, j, half, &a, &b);
            mean += a * ebb_load(w + j) * (ebb_load(x + j) * r) +
                    b * ebb_load(w + j + half) * (ebb_load(x + j + half) * r);
        }
        mean = ebb_warp_sum(mean) / (float)c.dim;
    }
    for (int j = threadIdx.x & 31; j < half; j += 32) {
        float a, b;
        unrotate(dy, cosines, sines, j, half, &a, &b);
        if (w != NULL) {
            a = r * (a * ebb_load(w + j) - ebb_load(x + j) * r * mean);
            b = r * (b * ebb_load(w + j + half) - ebb_load(x + j + half) * r * mean);
        }
        ebb_store(dy + j, a);
        ebb_store(dy + j + half, b);
    }
}

/* One block a part of the rows and one of q and k; a thread an element of a head. Rows, then heads,
 * ascending. */
template <typename T> static __global__ void norm_sum_kernel(struct call<T> c, float *lines)
{
    __shared__ float shared[32];
    bool q = blockIdx.y == 0;
    int64_t heads = q ? c.heads : c.kv_heads, head0 = q ? 0 : c.heads;
    int64_t first = (int64_t)blockIdx.x * EBB_CUDA_PART_ROWS, end = first + EBB_CUDA_PART_ROWS;
    int j = threadIdx.x, half = c.dim / 2;
    float sum = 0;
    if (end > c.rows) end = c.rows;
    for (int64_t row = first; row < end; row++) {
        const float *cosines = angles_of(c, row), *sines = cosines + half;
        for (int64_t h = 0; h < heads; h++) {
            const T *x = c.x + row * c.x_stride + (head0 + h) * c.dim;
            const T *dy = c.y + row * c.y_stride + (head0 + h) * c.dim;
            float value = j < c.dim ? ebb_load(x + j) : 0.0f;
            float squares = ebb_block_sum(value * value, shared);
            float r = (float)(1.0 / sqrt((double)squares / (double)c.dim + (double)c.eps));
            if (j >= c.dim) continue;
            float a, b;
            unrotate(dy, cosines, sines, j % half, half, &a, &b);
            sum += (j < half ? a : b) * (value * r);
        }
    }
    if (j < c.dim) lines[(int64_t)blockIdx.x * 2 * c.dim + (q ? 0 : c.dim) + j] = sum;
}

static enum ebb_status check_heads(const struct ebb_op_env *env, int64_t dim)
{
    if (dim >= 2 && dim % 2 == 0 && dim <= LARGEST_HEAD) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_UNSUPPORTED,
                    "rotary: heads of size %lld; wanted an even number up to %d", (long long)dim,
                    (int)LARGEST_HEAD);
}

template <typename T>
static struct call<T> call_of(const struct ebb_op_env *env, const struct ebb_view *x,
                              const struct ebb_view *y, const struct ebb_view *positions,
                              const struct ebb_view *table, const struct ebb_view *q_norm,
                              const struct ebb_view *k_norm)
{
    struct call<T> c;
    memset(&c, 0, sizeof c);
    c.x = ebb_data<const T>(env, x);
    c.y = ebb_data<T>(env, y);
    c.x_stride = x->stride;
    c.y_stride = y->stride;
    if (ebb_present(positions)) c.positions = ebb_data<const int32_t>(env, positions) + y->row0;
    c.first = env->step->cached + y->row0;
    c.table = ebb_data<const float>(env, table);
    c.table_stride = table->stride;
    c.table_rows = table->rows;
    c.q_norm = ebb_data<const T>(env, q_norm);
    c.k_norm = ebb_data<const T>(env, k_norm);
    return c;
}

template <typename T>
static enum ebb_status forward(const struct ebb_op_env *env, const struct ebb_rotary_forward *args)
{
    struct call<T> c = call_of<T>(env, &args->x, &args->y, &args->positions, &args->table,
                                  &args->q_norm, &args->k_norm);
    if (ebb_present(&args->positions))
        c.positions = ebb_data<const int32_t>(env, &args->positions) + args->x.row0;
    c.first = env->step->cached + args->x.row0;
    c.rows = ebb_view_rows(env, &args->x);
    c.heads = args->heads;
    c.kv_heads = args->kv_heads;
    c.dim = (int)args->head_dim;
    c.eps = args->eps;
    int64_t tasks = c.rows * (c.heads + c.kv_heads);
    if (tasks == 0) return EBB_OK;
    forward_kernel<<<ebb_blocks(ebb_ceil_div(tasks, WARPS)), 32 * WARPS, 0, ebb_stream(env)>>>(c);
    return ebb_launched(env, "rotary_forward");
}

enum ebb_status ebb_rotary_forward_cuda(const struct ebb_op_env *env,
                                        const struct ebb_rotary_forward *args)
{
    int64_t used = (args->heads + args->kv_heads) * args->head_dim;
    EBB_TRY(check_heads(env, args->head_dim));
    EBB_ASSERT(args->x.cols >= used && args->y.cols >= used && args->x.dtype == args->y.dtype);
    EBB_ASSERT(args->table.cols == args->head_dim && args->table.dtype == EBB_F32);
    return args->x.dtype == EBB_F32 ? forward<float>(env, args) : forward<ebb_bf16>(env, args);
}

template <typename T>
static enum ebb_status backward(const struct ebb_op_env *env,
                                const struct ebb_rotary_backward *args)
{
    struct call<T> c = call_of<T>(env, &args->x, &args->dy, &args->positions, &args->table,
                                  &args->q_norm, &args->k_norm);
    c.rows = ebb_view_rows(env, &args->dy);
    c.heads = args->heads;
    c.kv_heads = args->kv_heads;
    c.dim = (int)args->head_dim;
    c.eps = args->eps;
    int64_t tasks = c.rows * (c.heads + c.kv_heads);
    if (tasks == 0) return EBB_OK;
    bool sums = c.q_norm != NULL && (ebb_present(&args->dq_norm) || ebb_present(&args->dk_norm));
    int64_t parts = ebb_ceil_div(c.rows, EBB_CUDA_PART_ROWS);
    float *lines = ebb_data<float>(env, &args->scratch);
    if (sums) {
        const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
        EBB_ASSERT(args->scratch.cols >= ebb_rotary_backward_scratch(c.rows, c.dim, true, &target));
        dim3 grid(ebb_blocks(parts), 2);
        norm_sum_kernel<<<grid, (unsigned)(ebb_ceil_div(c.dim, 32) * 32), 0, ebb_stream(env)>>>(
            c, lines);
    }
    if (sums && ebb_present(&args->dq_norm))
        ebb_add_lines(env, lines, parts, 2 * c.dim, c.dim, ebb_data<float>(env, &args->dq_norm));
    if (sums && ebb_present(&args->dk_norm))
        ebb_add_lines(env, lines + c.dim, parts, 2 * c.dim, c.dim,
                      ebb_data<float>(env, &args->dk_norm));
    backward_kernel<<<ebb_blocks(ebb_ceil_div(tasks, WARPS)), 32 * WARPS, 0, ebb_stream(env)>>>(c);
    return ebb_launched(env, "rotary_backward");
}

enum ebb_status ebb_rotary_backward_cuda(const struct ebb_op_env *env,
                                         const struct ebb_rotary_backward *args)
{
    int64_t used = (args->heads + args->kv_heads) * args->head_dim;
    EBB_TRY(check_heads(env, args->head_dim));
    EBB_ASSERT(args->dy.cols >= used && args->table.cols == args->head_dim &&
               args->table.dtype == EBB_F32);
    EBB_ASSERT(!ebb_present(&args->q_norm) ||
               (args->x.cols >= used && args->x.dtype == args->dy.dtype));
    return args->dy.dtype == EBB_F32 ? backward<float>(env, args) : backward<ebb_bf16>(env, args);
}
