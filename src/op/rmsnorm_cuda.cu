/* RMS norm on the GPU: LANES threads a row, to which its eights of elements go in turn, so that a
 * row is read once and kept in registers; what they do not hold is read twice. With the weight's
 * gradient they take EBB_CUDA_PART_ROWS rows, whose share of it goes into a line of scratch.
 * How many threads a row gets is a matter of its columns alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rmsnorm.h"

#include <float.h>

#include "op/vector_cuda_int.cuh"

enum { KEPT = 4 }; /* eights of a row that a thread keeps */

/* Threads of a block. */
static __host__ __device__ constexpr int block_of(int lanes)
{
    return lanes < 128 ? 128 : lanes;
}

/* Sums over the LANES threads of a row, the same in each of them; with more than a warp they are
 * the block. `shared` may be used again after the call. */
template <int LANES, int N, typename T>
static __device__ __forceinline__ void lane_sums(T (&sums)[N], T *shared)
{
    enum { WARPS = LANES / 32 };
#pragma unroll
    for (int n = 0; n < N; n++) sums[n] = ebb_warp_sum(sums[n]);
    if constexpr (WARPS > 1) {
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (int n = 0; n < N; n++) shared[threadIdx.x / 32 * N + n] = sums[n];
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < N; n++) {
            sums[n] = shared[n];
#pragma unroll
            for (int warp = 1; warp < WARPS; warp++) sums[n] += shared[warp * N + n];
        }
        __syncthreads();
    }
}

/* Whether fp32 held a sum of squares: none was beyond its range, and what fell below it is nothing
 * beside the sum. (Converting each element to double would take as long as memory does.) */
static __device__ __forceinline__ bool held(float squares)
{
    return squares >= 0x1p-90f && squares <= FLT_MAX;
}

/* 1 / rms of a row. */
static __device__ __forceinline__ float scale_of(double squares, int cols, float eps)
{
    return (float)(1.0 / sqrt(squares / (double)cols + (double)eps));
}

/* Rows of one call. */
template <typename T> struct forward {
    const T *x, *w;
    T *y;
    int64_t x_stride, y_stride, rows;
    int cols;
    float eps;
};

static __device__ __forceinline__ void add_squares(const float a[8], float *squares)
{
#pragma unroll
    for (int k = 0; k < 8; k++) *squares = fmaf(a[k], a[k], *squares);
}

template <typename T, int LANES>
static __device__ __noinline__ double squares_in_double(const T *x, int cols, double *shared)
{
    double sums[1] = {0};
    for (int j = threadIdx.x % LANES; j < cols; j += LANES) {
        double a = (double)ebb_load(x + j);
        sums[0] += a * a;
    }
    lane_sums<LANES>(sums, shared);
    return sums[0];
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void forward_eight(const struct forward<T> &f, T *y, int j,
                                                     float r, float a[8])
{
    struct ebb_eight<T> stored; /* x / rms(x) is rounded as if it were */
    float w[8];
    ebb_read_eight<WIDE>(f.w, j, f.cols, w);
#pragma unroll
    for (int k = 0; k < 8; k++) a[k] *= r;
    ebb_pack(stored, a);
    ebb_unpack(stored, a);
#pragma unroll
    for (int k = 0; k < 8; k++) a[k] *= w[k];
    ebb_write_eight<WIDE>(y, j, f.cols, a);
}

template <typename T, bool WIDE, int LANES>
static __global__ void __launch_bounds__(block_of(LANES)) forward_kernel(struct forward<T> f)
{
    __shared__ double shared[LANES / 32];
    int64_t i = (int64_t)blockIdx.x * (block_of(LANES) / LANES) + threadIdx.x / LANES;
    if (i >= f.rows) return; /* a warp at least */
    const int first = 8 * (threadIdx.x % LANES), step = 8 * LANES;
    const T *x = f.x + i * f.x_stride;
    T *y = f.y + i * f.y_stride;
    struct ebb_eight<T> kept[KEPT];
    float a[8], sums[1] = {0};
#pragma unroll
    for (int v = 0; v < KEPT; v++) {
        if (first + v * step < f.cols) kept[v] = ebb_load_eight<WIDE>(x, first + v * step, f.cols);
    }
#pragma unroll
    for (int v = 0; v < KEPT; v++) {
        if (first + v * step >= f.cols) break;
        ebb_unpack(kept[v], a);
        add_squares(a, &sums[0]);
    }
    for (int j = first + KEPT * step; j < f.cols; j += step) {
        ebb_read_eight<WIDE>(x, j, f.cols, a);
        add_squares(a, &sums[0]);
    }
    lane_sums<LANES>(sums, (float *)shared);
    double squares =
        held(sums[0]) ? (double)sums[0] : squares_in_double<T, LANES>(x, f.cols, shared);
    float r = scale_of(squares, f.cols, f.eps);
#pragma unroll
    for (int v = 0; v < KEPT; v++) {
        if (first + v * step >= f.cols) break;
        ebb_unpack(kept[v], a);
        forward_eight<WIDE>(f, y, first + v * step, r, a);
    }
    for (int j = first + KEPT * step; j < f.cols; j += step) {
        ebb_read_eight<WIDE>(x, j, f.cols, a);
        forward_eight<WIDE>(f, y, j, r, a);
    }
}

template <typename T, bool WIDE, int LANES>
static void launch_forward(const struct ebb_op_env *env, const struct forward<T> &f)
{
    int64_t blocks = ebb_ceil_div(f.rows, block_of(LANES) / LANES);
    forward_kernel<T, WIDE, LANES>
        <<<ebb_blocks(blocks), block_of(LANES), 0, ebb_stream(env)>>>(f);
}

template <typename T, bool WIDE>
static void pick_forward(const struct ebb_op_env *env, const struct forward<T> &f)
{
    if (f.cols <= 8 * KEPT * 32)
        launch_forward<T, WIDE, 32>(env, f);
    else if (f.cols <= 8 * KEPT * 128)
        launch_forward<T, WIDE, 128>(env, f);
    else
        launch_forward<T, WIDE, 256>(env, f);
}

template <typename T>
static void start_forward(const struct ebb_op_env *env, const struct ebb_rmsnorm_forward *args,
                          int64_t rows)
{
    struct forward<T> f;
    f.x = ebb_data<const T>(env, &args->x);
    f.w = ebb_data<const T>(env, &args->w);
    f.y = ebb_data<T>(env, &args->y);
    f.x_stride = args->x.stride;
    f.y_stride = args->y.stride;
    f.rows = rows;
    f.cols = (int)args->x.cols;
    f.eps = args->eps;
    if (ebb_wide(env, &args->x) && ebb_wide(env, &args->w) && ebb_wide(env, &args->y))
        pick_forward<T, true>(env, f);
    else
        pick_forward<T, false>(env, f);
}

enum { MOST_COLS = 1 << 30 }; /* kernels count them in 32 bits */

enum ebb_status ebb_rmsnorm_forward_cuda(const struct ebb_op_env *env,
                                         const struct ebb_rmsnorm_forward *args)
{
    const struct ebb_view *x = &args->x, *w = &args->w, *y = &args->y;
    EBB_ASSERT(x->cols == w->cols && x->cols == y->cols && x->dtype == y->dtype &&
               w->dtype == x->dtype && x->cols <= MOST_COLS);
    int64_t rows = ebb_view_rows(env, x);
    if (rows == 0) return EBB_OK;
    if (x->dtype == EBB_F32)
        start_forward<float>(env, args, rows);
    else
        start_forward<ebb_bf16>(env, args, rows);
    return ebb_launched(env, "rmsnorm_forward");
}

/* ---- backward -------------------------------------------------------------------------------- */

template <typename T> struct backward {
    const T *x, *w, *dy;
    T *dx;
    int64_t x_stride, dy_stride, dx_stride, rows;
    float *lines; /* of parts; with the weight's gradient */
    int cols;
    float eps;
    int overwrite;
};

/* What the lanes of a row have of its two sums: x x, and dy w x. */
template <bool WIDE, typename T>
static __device__ __forceinline__ void add_eight(const struct backward<T> &b, int j,
                                                 const float a[8], const float g[8], float sums[2])
{
    float w[8];
    ebb_read_eight<WIDE>(b.w, j, b.cols, w);
    add_squares(a, &sums[0]);
#pragma unroll
    for (int k = 0; k < 8; k++) sums[1] = fmaf(g[k] * w[k], a[k], sums[1]);
}

template <typename T, int LANES>
static __device__ __noinline__ double2 sums_in_double(const T *x, const T *w, const T *dy, int cols,
                                                      double *shared)
{
    double sums[2] = {0, 0};
    for (int j = threadIdx.x % LANES; j < cols; j += LANES) {
        double a = (double)ebb_load(x + j);
        sums[0] += a * a;
        sums[1] += (double)(ebb_load(dy + j) * ebb_load(w + j)) * a;
    }
    lane_sums<LANES>(sums, shared);
    return make_double2(sums[0], sums[1]);
}

/* r and mean(g xh) of a row from its sums in fp32, or anew where that did not hold them. */
template <typename T, int LANES>
static __device__ __forceinline__ void finish_sums(const struct backward<T> &b, const T *x,
                                                   const T *dy, float (&sums)[2], double *shared,
                                                   float *r, float *mean)
{
    lane_sums<LANES>(sums, (float *)shared);
    double2 all = make_double2((double)sums[0], (double)sums[1]);
    if (!held(sums[0]) || !(fabsf(sums[1]) <= FLT_MAX))
        all = sums_in_double<T, LANES>(x, b.w, dy, b.cols, shared);
    *r = scale_of(all.x, b.cols, b.eps);
    *mean = (float)((double)*r * all.y / (double)b.cols);
}

/* Eight elements of dx (`old` is what it holds), and with WEIGHT of the weight's gradient. */
template <bool WIDE, bool WEIGHT, typename T>
static __device__ __forceinline__ void backward_eight(const struct backward<T> &b, T *dx, int j,
                                                      const float a[8], const float g[8],
                                                      const float old[8], float r, float mean,
                                                      float sum[8])
{
    float w[8], d[8];
    ebb_read_eight<WIDE>(b.w, j, b.cols, w);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float value = r * (g[k] * w[k] - a[k] * r * mean);
        d[k] = b.overwrite ? value : old[k] + value;
        if (WEIGHT) sum[k] += g[k] * (a[k] * r);
    }
    ebb_write_eight<WIDE>(dx, j, b.cols, d);
}

/* What a row has beyond its lanes' registers; here the weight's gradient goes through memory. */
template <typename T, bool WIDE, int LANES, bool WEIGHT>
static __device__ __forceinline__ void backward_rest(const struct backward<T> &b, const T *x,
                                                     const T *dy, T *dx, float *line, bool first,
                                                     float r, float mean)
{
    for (int j = 8 * (threadIdx.x % LANES + KEPT * LANES); j < b.cols; j += 8 * LANES) {
        float a[8], g[8], old[8], sum[8];
        ebb_read_eight<WIDE>(x, j, b.cols, a);
        ebb_read_eight<WIDE>(dy, j, b.cols, g);
        if (!b.overwrite) ebb_read_eight<WIDE>(dx, j, b.cols, old);
        if (WEIGHT) {
#pragma unroll
            for (int k = 0; k < 8; k++) sum[k] = first || j + k >= b.cols ? 0.0f : line[j + k];
        }
        backward_eight<WIDE, WEIGHT>(b, dx, j, a, g, old, r, mean, sum);
        if (WEIGHT) ebb_write_eight<WIDE>(line, j, b.cols, sum);
    }
}

/* One row. `sum`: what the lane's kept eights have of the weight's gradient so far. */
template <typename T, bool WIDE, int LANES, bool WEIGHT>
static __device__ __forceinline__ void backward_row(const struct backward<T> &b, int64_t i,
                                                    float (*sum)[8], float *line, bool first_row,
                                                    double *shared)
{
    const int first = 8 * (threadIdx.x % LANES), step = 8 * LANES;
    const T *x = b.x + i * b.x_stride, *dy = b.dy + i * b.dy_stride;
    T *dx = b.dx + i * b.dx_stride;
    struct ebb_eight<T> kept_x[KEPT], kept_dy[KEPT], kept_dx[KEPT];
    float a[8], g[8], old[8], sums[2] = {0, 0}, r, mean;
#pragma unroll
    for (int v = 0; v < KEPT; v++) {
        int j = first + v * step;
        if (j >= b.cols) break;
        kept_x[v] = ebb_load_eight<WIDE>(x, j, b.cols);
        kept_dy[v] = ebb_load_eight<WIDE>(dy, j, b.cols);
        if (!b.overwrite) kept_dx[v] = ebb_load_eight<WIDE>(dx, j, b.cols);
    }
#pragma unroll
    for (int v = 0; v < KEPT; v++) {
        if (first + v * step >= b.cols) break;
        ebb_unpack(kept_x[v], a);
        ebb_unpack(kept_dy[v], g);
        add_eight<WIDE>(b, first + v * step, a, g, sums);
    }
    for (int j = first + KEPT * step; j < b.cols; j += step) {
        ebb_read_eight<WIDE>(x, j, b.cols, a);
        ebb_read_eight<WIDE>(dy, j, b.cols, g);
        add_eight<WIDE>(b, j, a, g, sums);
    }
    finish_sums<T, LANES>(b, x, dy, sums, shared, &r, &mean);
#pragma unroll
    for (int v = 0; v < KEPT; v++) {
        if (first + v * step >= b.cols) break;
        ebb_unpack(kept_x[v], a);
        ebb_unpack(kept_dy[v], g);
        if (!b.overwrite) ebb_unpack(kept_dx[v], old);
        backward_eight<WIDE, WEIGHT>(b, dx, first + v * step, a, g, old, r, mean,
                                     WEIGHT ? sum[v] : NULL);
    }
    backward_rest<T, WIDE, LANES, WEIGHT>(b, x, dy, dx, line, first_row, r, mean);
}

/* Each group of LANES threads has a row, or with the weight's gradient a part of the rows. */
template <typename T, bool WIDE, int LANES, bool WEIGHT>
static __global__ void __launch_bounds__(block_of(LANES)) backward_kernel(struct backward<T> b)
{
    __shared__ double shared[2 * LANES / 32];
    int64_t group = (int64_t)blockIdx.x * (block_of(LANES) / LANES) + threadIdx.x / LANES;
    if (!WEIGHT) {
        if (group >= b.rows) return; /* a warp at least */
        backward_row<T, WIDE, LANES, false>(b, group, NULL, NULL, true, shared);
        return;
    }
    int64_t start = group * EBB_CUDA_PART_ROWS, end = start + EBB_CUDA_PART_ROWS;
    if (start >= b.rows) return;
    if (end > b.rows) end = b.rows;
    float sum[KEPT][8] = {}, *line = b.lines + group * b.cols;
    for (int64_t i = start; i < end; i++)
        backward_row<T, WIDE, LANES, WEIGHT>(b, i, sum, line, i == start, shared);
#pragma unroll
    for (int v = 0; v < KEPT; v++) {
        int j = 8 * (threadIdx.x % LANES + v * LANES);
        if (j < b.cols) ebb_write_eight<WIDE>(line, j, b.cols, sum[v]);
    }
}

template <typename T, bool WIDE, int LANES>
static void launch_backward(const struct ebb_op_env *env, const struct backward<T> &b)
{
    int64_t groups = b.lines != NULL ? ebb_ceil_div(b.rows, EBB_CUDA_PART_ROWS) : b.rows;
    unsigned grid = ebb_blocks(ebb_ceil_div(groups, block_of(LANES) / LANES));
    if (b.lines != NULL)
        backward_kernel<T, WIDE, LANES, true><<<grid, block_of(LANES), 0, ebb_stream(env)>>>(b);
    else
        backward_kernel<T, WIDE, LANES, false><<<grid, block_of(LANES), 0, ebb_stream(env)>>>(b);
}

template <typename T, bool WIDE>
static void pick_backward(const struct ebb_op_env *env, const struct backward<T> &b)
{
    if (b.cols <= 8 * KEPT * 32)
        launch_backward<T, WIDE, 32>(env, b);
    else if (b.cols <= 8 * KEPT * 128)
        launch_backward<T, WIDE, 128>(env, b);
    else
        launch_backward<T, WIDE, 256>(env, b);
}

template <typename T>
static void start_backward(const struct ebb_op_env *env, const struct ebb_rmsnorm_backward *args,
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
    b.cols = (int)args->x.cols;
    b.lines = ebb_present(&args->dw) ? ebb_data<float>(env, &args->scratch) : NULL;
    b.eps = args->eps;
    b.overwrite = args->overwrite;
    if (ebb_wide(env, &args->x) && ebb_wide(env, &args->w) && ebb_wide(env, &args->dy) &&
        ebb_wide(env, &args->dx) && ebb_wide_rows(b.lines, b.cols, b.cols, sizeof(float)))
        pick_backward<T, true>(env, b);
    else
        pick_backward<T, false>(env, b);
    if (b.lines != NULL)
        ebb_add_lines(env, b.lines, ebb_ceil_div(rows, EBB_CUDA_PART_ROWS), b.cols, b.cols,
                      ebb_data<float>(env, &args->dw));
}

enum ebb_status ebb_rmsnorm_backward_cuda(const struct ebb_op_env *env,
                                          const struct ebb_rmsnorm_backward *args)
{
    const struct ebb_view *x = &args->x;
    EBB_ASSERT(x->cols == args->w.cols && x->cols == args->dy.cols && x->cols == args->dx.cols);
    EBB_ASSERT(x->dtype == args->w.dtype && x->dtype == args->dy.dtype &&
               x->dtype == args->dx.dtype && x->cols <= MOST_COLS);
    int64_t rows = ebb_view_rows(env, x);
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    EBB_ASSERT(!ebb_present(&args->dw) ||
               args->scratch.cols >= ebb_rmsnorm_backward_scratch(rows, x->cols, &target));
    if (rows == 0) return EBB_OK;
    if (x->dtype == EBB_F32)
        start_backward<float>(env, args, rows);
    else
        start_backward<ebb_bf16>(env, args, rows);
    return ebb_launched(env, "rmsnorm_backward");
}
