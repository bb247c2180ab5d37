/* Rotary position embedding on the GPU: a thread eight pairs of a head, or, where a head does not
 * consist of such (in_eights), a warp a head. The norms' gradients are summed first, while dy is
 * still there, in parts of EBB_CUDA_PART_ROWS rows. Positions are the host's to check.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rotary.h"

#include "op/vector_cuda_int.cuh"

enum { WARPS = 8, THREADS = 256, LARGEST_HEAD = 1024 };

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

/* ---- eight pairs a thread -------------------------------------------------------------------- */

/* Pairs j to j + 7 of a head, which belong to a row. */
struct eights {
    int64_t row;
    int head, j;
    int lanes; /* threads of a head, neighbours in a warp where there are norms */
    bool live; /* false: behind the last row */
};

template <typename T> static __device__ __forceinline__ struct eights eights_of(const call<T> &c)
{
    struct eights e;
    unsigned all = (unsigned)(c.heads + c.kv_heads), lanes = (unsigned)c.dim / 16;
    unsigned at = blockIdx.x * THREADS + threadIdx.x, head = at / lanes, row = head / all;
    e.row = row;
    e.head = (int)(head - row * all);
    e.j = 8 * (int)(at - head * lanes);
    e.lanes = (int)lanes;
    e.live = row < c.rows;
    return e;
}

/* Eight pairs: the elements at j and those half a head behind them. */
struct pairs {
    float a[8], b[8];
};

template <bool WIDE, typename T>
static __device__ __forceinline__ void read_pairs(const T *head, int j, int half, struct pairs *to)
{
    ebb_read_eight<WIDE>(head, j, half, to->a);
    ebb_read_eight<WIDE>(head + half, j, half, to->b);
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void write_pairs(T *head, int j, int half,
                                                   const struct pairs *from)
{
    ebb_write_eight<WIDE>(head, j, half, from->a);
    ebb_write_eight<WIDE>(head + half, j, half, from->b);
}

/* The sum over a head's threads, the same in each. All of a warp come here: with norms their number
 * divides a warp. */
static __device__ __forceinline__ float head_sum(float value, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* 1 / rms of a head. */
static __device__ __forceinline__ float head_scale(const struct pairs *x, int lanes, int dim,
                                                   float eps)
{
    float squares = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) squares += x->a[k] * x->a[k] + x->b[k] * x->b[k];
    squares = head_sum(squares, lanes);
    return (float)(1.0 / sqrt((double)squares / (double)dim + (double)eps));
}

template <typename T, bool WIDE, bool NORMS>
static __global__ void __launch_bounds__(THREADS) forward_eights_kernel(struct call<T> c)
{
    struct eights e = eights_of(c);
    if (!NORMS && !e.live) return;
    int half = c.dim / 2;
    struct pairs x = {}, angles, y;
    if (e.live) {
        read_pairs<WIDE>(c.x + e.row * c.x_stride + (int64_t)e.head * c.dim, e.j, half, &x);
        read_pairs<WIDE>(angles_of(c, e.row), e.j, half, &angles);
    }
    if (NORMS) {
        struct pairs w;
        float r = head_scale(&x, e.lanes, c.dim, c.eps);
        if (!e.live) return;
        read_pairs<WIDE>(e.head < c.heads ? c.q_norm : c.k_norm, e.j, half, &w);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            x.a[k] = x.a[k] * r * w.a[k];
            x.b[k] = x.b[k] * r * w.b[k];
        }
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        y.a[k] = x.a[k] * angles.a[k] - x.b[k] * angles.b[k];
        y.b[k] = x.b[k] * angles.a[k] + x.a[k] * angles.b[k];
    }
    write_pairs<WIDE>(c.y + e.row * c.y_stride + (int64_t)e.head * c.dim, e.j, half, &y);
}

template <typename T, bool WIDE, bool NORMS>
static __global__ void __launch_bounds__(THREADS) backward_eights_kernel(struct call<T> c)
{
    struct eights e = eights_of(c);
    if (!NORMS && !e.live) return;
    int half = c.dim / 2;
    T *at = c.y + e.row * c.y_stride + (int64_t)e.head * c.dim;
    struct pairs dy = {}, angles = {}, x = {}, w = {}, d;
    if (e.live) {
        read_pairs<WIDE>(at, e.j, half, &dy);
        read_pairs<WIDE>(angles_of(c, e.row), e.j, half, &angles);
    }
    if (NORMS && e.live) {
        read_pairs<WIDE>(c.x + e.row * c.x_stride + (int64_t)e.head * c.dim, e.j, half, &x);
        read_pairs<WIDE>(e.head < c.heads ? c.q_norm : c.k_norm, e.j, half, &w);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        d.a[k] = dy.a[k] * angles.a[k] + dy.b[k] * angles.b[k];
        d.b[k] = dy.b[k] * angles.a[k] - dy.a[k] * angles.b[k];
    }
    if (NORMS) {
        float r = head_scale(&x, e.lanes, c.dim, c.eps), mean = 0;
#pragma unroll
        for (int k = 0; k < 8; k++)
            mean += d.a[k] * w.a[k] * (x.a[k] * r) + d.b[k] * w.b[k] * (x.b[k] * r);
        mean = head_sum(mean, e.lanes) / (float)c.dim;
        if (!e.live) return;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            d.a[k] = r * (d.a[k] * w.a[k] - x.a[k] * r * mean);
            d.b[k] = r * (d.b[k] * w.b[k] - x.b[k] * r * mean);
        }
    }
    write_pairs<WIDE>(at, e.j, half, &d);
}

/* Whether a head's halves consist of eights, and, with norms, whether its threads divide a warp. A
 * matter of the head's size alone, for it decides on the order of sums. */
static bool in_eights(int dim, bool norms)
{
    int lanes = dim / 16;
    return dim % 16 == 0 && (!norms || (lanes <= 32 && (lanes & (lanes - 1)) == 0));
}

template <typename T> static bool wide_call(const struct call<T> &c)
{
    int64_t size = (int64_t)sizeof(T);
    return ebb_wide_rows(c.x, c.x_stride, c.dim, size) &&
           ebb_wide_rows(c.y, c.y_stride, c.dim, size) &&
           ebb_wide_rows(c.table, c.table_stride, c.dim, sizeof(float)) &&
           ebb_wide_rows(c.q_norm, 0, c.dim, size) && ebb_wide_rows(c.k_norm, 0, c.dim, size);
}

template <typename T, bool WIDE>
static void launch_eights(const struct ebb_op_env *env, const struct call<T> &c, bool forward)
{
    int64_t count = c.rows * (c.heads + c.kv_heads) * (c.dim / 16);
    EBB_ASSERT(count <= INT32_MAX); /* more pairs than any GPU's memory has */
    unsigned grid = ebb_blocks(ebb_ceil_div(count, THREADS));
    cudaStream_t stream = ebb_stream(env);
    if (forward && c.q_norm == NULL)
        forward_eights_kernel<T, WIDE, false><<<grid, THREADS, 0, stream>>>(c);
    else if (forward)
        forward_eights_kernel<T, WIDE, true><<<grid, THREADS, 0, stream>>>(c);
    else if (c.q_norm == NULL)
        backward_eights_kernel<T, WIDE, false><<<grid, THREADS, 0, stream>>>(c);
    else
        backward_eights_kernel<T, WIDE, true><<<grid, THREADS, 0, stream>>>(c);
}

template <typename T>
static void launch(const struct ebb_op_env *env, const struct call<T> &c, bool forward)
{
    unsigned grid = ebb_blocks(ebb_ceil_div(c.rows * (c.heads + c.kv_heads), WARPS));
    if (in_eights(c.dim, c.q_norm != NULL)) {
        if (wide_call(c))
            launch_eights<T, true>(env, c, forward);
        else
            launch_eights<T, false>(env, c, forward);
    } else if (forward) {
        forward_kernel<<<grid, 32 * WARPS, 0, ebb_stream(env)>>>(c);
    } else {
        backward_kernel<<<grid, 32 * WARPS, 0, ebb_stream(env)>>>(c);
    }
}

/* ---- the norms' gradients -------------------------------------------------------------------- */

/* A block a part of the rows and one of q and k: first its warps find the scale of each head of
 * some rows, then a thread adds an element of these heads. Rows, then heads, ascending. */
template <typename T>
static __global__ void __launch_bounds__(LARGEST_HEAD)
    norm_sum_kernel(struct call<T> c, float *lines)
{
    enum { SCALES = 512 };
    __shared__ float scales[SCALES];
    bool q = blockIdx.y == 0;
    int64_t heads = q ? c.heads : c.kv_heads, head0 = q ? 0 : c.heads;
    int64_t first = (int64_t)blockIdx.x * EBB_CUDA_PART_ROWS, end = first + EBB_CUDA_PART_ROWS;
    int j = threadIdx.x, half = c.dim / 2, warps = blockDim.x / 32;
    float sum = 0;
    if (end > c.rows) end = c.rows;
    int64_t tasks = (end - first) * heads; /* a head of a row each */
    for (int64_t start = 0; start < tasks; start += SCALES) {
        int n = tasks - start < SCALES ? (int)(tasks - start) : SCALES;
        for (int k = threadIdx.x / 32; k < n; k += warps) {
            int64_t row = first + (start + k) / heads, head = head0 + (start + k) % heads;
            float r = warp_scale(c.x + row * c.x_stride + head * c.dim, c.dim, c.eps);
            if (threadIdx.x % 32 == 0) scales[k] = r;
        }
        __syncthreads();
        int64_t row = first + start / heads, head = start % heads;
        const float *cosines = angles_of(c, row);
#pragma unroll 4
        for (int k = 0; j < c.dim && k < n; k++) {
            const T *x = c.x + row * c.x_stride + (head0 + head) * c.dim;
            const T *dy = c.y + row * c.y_stride + (head0 + head) * c.dim;
            float a, b;
            unrotate(dy, cosines, cosines + half, j % half, half, &a, &b);
            sum += (j < half ? a : b) * (ebb_load(x + j) * scales[k]);
            if (++head == heads && k + 1 < n) cosines = angles_of(c, ++row), head = 0;
        }
        __syncthreads();
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
    if (c.rows * (c.heads + c.kv_heads) == 0) return EBB_OK;
    launch(env, c, true);
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
    if (c.rows * (c.heads + c.kv_heads) == 0) return EBB_OK;
    bool sums = c.q_norm != NULL && (ebb_present(&args->dq_norm) || ebb_present(&args->dk_norm));
    int64_t parts = ebb_ceil_div(c.rows, EBB_CUDA_PART_ROWS);
    float *lines = ebb_data<float>(env, &args->scratch);
    if (sums) {
        const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
        EBB_ASSERT(args->scratch.cols >= ebb_rotary_backward_scratch(c.rows, c.dim, true, &target));
        dim3 grid(ebb_blocks(parts), 2);
        unsigned threads = c.dim <= THREADS ? THREADS : (unsigned)(ebb_ceil_div(c.dim, 32) * 32);
        norm_sum_kernel<<<grid, threads, 0, ebb_stream(env)>>>(c, lines);
    }
    if (sums && ebb_present(&args->dq_norm))
        ebb_add_lines(env, lines, parts, 2 * c.dim, c.dim, ebb_data<float>(env, &args->dq_norm));
    if (sums && ebb_present(&args->dk_norm))
        ebb_add_lines(env, lines + c.dim, parts, 2 * c.dim, c.dim,
                      ebb_data<float>(env, &args->dk_norm));
    launch(env, c, false);
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
