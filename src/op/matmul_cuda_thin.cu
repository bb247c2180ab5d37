/* Products with a side of at most EBB_THIN_COLS columns, as adapters of low rank have them: bound
 * by memory, and too few tiles of a general kernel to fill a GPU. bf16 through the tensor cores'
 * m16n8k16 products, fp32 sums.
 *
 *   NT  y[M, n] = alpha a[M, K] b[n, K]^T: a block has 16 or 32 rows, and its warps share K.
 *   NN  y[M, n] = alpha a[M, K] b[K, n]: the same; a and b go through a ring in shared memory.
 *   TN  y[m, n] (+)= alpha a[T, m]^T b[T, n], m or n thin: a block has 128 of the wide matrix's
 *       columns and a part of the rows; the parts are added in order by a second kernel.
 *
 * Same numbers: in NT and NN a row's sum is made in an order of K alone. In TN the parts' rows are
 * a function of the wide side's columns and of how many rows there are, and a part's sum goes
 * through them in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul_int.h"

#include "op/cuda_int.cuh"

enum { ACROSS_WARPS = 8, AHEAD = 4, K_STEP = 32 }; /* NT */
/* NN: a warp's elements of K in one piece; bytes of shared memory that every GPU gives a block. */
enum { RING_WARPS = 4, RING_SPAN = 64, RING_BYTES = 96 << 10 };
/* TN: columns of a block; rows of a step; elements from row to row in shared memory. */
enum { WIDE = 128, WIDE_WARPS = WIDE / 16, STEP = EBB_THIN_STEP, WIDE_PITCH = WIDE + 8 };

/* ---- tensor cores ---------------------------------------------------------------------------- */

/* c[16, 8] += a[16, 16] b[16, 8]; each lane has its share of all three. */
static __device__ __forceinline__ void multiply(float c[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* 8x8 blocks of a row-major matrix, transposed; lane i names row i % 8 of block i / 8. */
static __device__ __forceinline__ void load_transposed_4(uint32_t out[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void load_transposed_2(uint32_t out[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n"
                 : "=r"(out[0]), "=r"(out[1])
                 : "r"(shared_address(row))
                 : "memory");
}

/* 16 bytes to shared memory, in the background; zeros where there is nothing to read. */
static __device__ __forceinline__ void fetch_16(void *to, const void *from, bool there)
{
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void end_fetches(void)
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Until no more than `left` groups are on their way. */
template <int left> static __device__ __forceinline__ void wait_for_fetches(void)
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(left) : "memory");
}

/* ---- NT: rows times a few columns ------------------------------------------------------------ */

struct across {
    const ebb_bf16 *a, *b;
    void *y;
    int64_t a_stride, b_stride, y_stride;
    int64_t rows, k;
    int n;
    float alpha;
};

static __device__ __forceinline__ uint4 load_16(const ebb_bf16 *at, bool there)
{
    return there ? *(const uint4 *)at : make_uint4(0, 0, 0, 0);
}

/* A lane's 16 bytes of a row of K are its share of two products at once: which elements of K are
 * paired with which place in a product does not matter, as long as a and b agree. */
template <int N8, int R>
static __device__ __forceinline__ void across_step(const struct across &p, float sum[R][N8][4],
                                                   const uint4 a[R][2], int64_t k, int group)
{
    #pragma unroll
    for (int c = 0; c < N8; c++) {
        int col = c * 8 + group;
        uint4 b = load_16(p.b + col * p.b_stride + k, k < p.k && col < p.n);
        #pragma unroll
        for (int r = 0; r < R; r++) {
            multiply(sum[r][c], a[r][0].x, a[r][1].x, a[r][0].y, a[r][1].y, b.x, b.y);
            multiply(sum[r][c], a[r][0].z, a[r][1].z, a[r][0].w, a[r][1].w, b.z, b.w);
        }
    }
}

/* The warps' shares of 16 rows added in order, and stored. */
template <typename T, int N8>
static __device__ __forceinline__ void across_store(const struct across &p, const float sum[N8][4],
                                                    float (*shared)[16][N8 * 8], int64_t row0)
{
    int warp = threadIdx.x >> 5, group = (threadIdx.x & 31) >> 2, pair = 2 * (threadIdx.x & 3);
    __syncthreads();
    #pragma unroll
    for (int c = 0; c < N8; c++)
        for (int i = 0; i < 4; i++)
            shared[warp][group + (i & 2 ? 8 : 0)][c * 8 + pair + (i & 1)] = sum[c][i];
    __syncthreads();
    for (int e = threadIdx.x; e < 16 * N8 * 8; e += blockDim.x) {
        int row = e / (N8 * 8), col = e % (N8 * 8);
        float value = shared[0][row][col];
        for (int w = 1; w < ACROSS_WARPS; w++) value += shared[w][row][col];
        if (row0 + row < p.rows && col < p.n)
            ebb_store((T *)p.y + (row0 + row) * p.y_stride + col, p.alpha * value);
    }
}

template <typename T, int N8, int R>
static __global__ void __launch_bounds__(32 * ACROSS_WARPS) across_kernel(struct across p)
{
    __shared__ float shared[ACROSS_WARPS][16][N8 * 8];
    int warp = threadIdx.x >> 5, group = (threadIdx.x & 31) >> 2;
    int64_t row0 = (int64_t)blockIdx.x * 16 * R;
    float sum[R][N8][4];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < N8; c++)
            for (int i = 0; i < 4; i++) sum[r][c][i] = 0;
    int64_t k = warp * K_STEP + (threadIdx.x & 3) * 8;
    for (int64_t base = 0; base < p.k; base += AHEAD * ACROSS_WARPS * K_STEP) {
        uint4 a[AHEAD][R][2];
        #pragma unroll
        for (int u = 0; u < AHEAD; u++)
            #pragma unroll
            for (int r = 0; r < R; r++)
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    int64_t row = row0 + r * 16 + h * 8 + group;
                    int64_t at = base + u * ACROSS_WARPS * K_STEP + k;
                    a[u][r][h] = load_16(p.a + row * p.a_stride + at, row < p.rows && at < p.k);
                }
        #pragma unroll
        for (int u = 0; u < AHEAD; u++)
            across_step<N8, R>(p, sum, a[u], base + u * ACROSS_WARPS * K_STEP + k, group);
    }
    #pragma unroll
    for (int r = 0; r < R; r++) across_store<T, N8>(p, sum[r], shared, row0 + r * 16);
}

template <typename T, int N8> static void across_launch(const struct across &p, cudaStream_t stream)
{
    const int threads = 32 * ACROSS_WARPS;
    /* Twice the rows halve what is read of b, but two blocks a processor are worth more. */
    if (p.n > 32 && p.rows >= 8192)
        across_kernel<T, N8, 2><<<ebb_blocks(ebb_ceil_div(p.rows, 32)), threads, 0, stream>>>(p);
    else
        across_kernel<T, N8, 1><<<ebb_blocks(ebb_ceil_div(p.rows, 16)), threads, 0, stream>>>(p);
}

template <typename T> static void across_run(const struct across &p, cudaStream_t stream)
{
    switch ((p.n + 7) / 8) {
    case 1: across_launch<T, 1>(p, stream); break;
    case 2: across_launch<T, 2>(p, stream); break;
    case 3: across_launch<T, 3>(p, stream); break;
    case 4: across_launch<T, 4>(p, stream); break;
    case 5: across_launch<T, 5>(p, stream); break;
    case 6: across_launch<T, 6>(p, stream); break;
    case 7: across_launch<T, 7>(p, stream); break;
    default: across_launch<T, 8>(p, stream); break;
    }
}

/* ---- NN: rows times a few columns of a wide matrix ------------------------------------------- */

/* Each warp has a ring of steps of its own, so that nobody waits for another warp before the end. A
 * step is 32 elements of K, in units of 16 bytes: of a what each lane needs itself, of b 32 rows.
 * An odd pitch keeps ldmatrix's 8 rows in different banks. */
template <int N8, int R> struct ring {
    enum {
        A_UNITS = 2 * R * 32,
        PITCH = N8 | 1,
        UNITS = A_UNITS + 32 * PITCH,
        MOST = RING_BYTES / (RING_WARPS * UNITS * 16),
        STEPS = MOST < 8 ? MOST : 8,
        BYTES = RING_WARPS * STEPS * UNITS * 16
    };
};

/* Where K's step `step` begins for a warp: all warps take a span in turn. */
static __device__ __forceinline__ int64_t ring_k(int step, int warp)
{
    const int each = RING_SPAN / K_STEP;
    return ((int64_t)(step / each) * RING_WARPS + warp) * RING_SPAN + step % each * K_STEP;
}

template <int N8, int R>
static __device__ __forceinline__ void ring_fetch(const struct across &p, uint4 *to, int64_t row0,
                                                  int64_t k0)
{
    int lane = threadIdx.x & 31;
    int64_t k = k0 + (lane & 3) * 8;
    #pragma unroll
    for (int h = 0; h < 2 * R; h++) {
        int64_t row = row0 + h * 8 + (lane >> 2);
        bool there = row < p.rows && k < p.k;
        fetch_16(to + h * 32 + lane, there ? p.a + row * p.a_stride + k : p.a, there);
    }
    uint4 *b = to + ring<N8, R>::A_UNITS;
    #pragma unroll
    for (int i = 0; i < N8; i++) {
        int row = (i * 32 + lane) / N8, c = (i * 32 + lane) % N8;
        /* As a lane's 8 elements of a go into four places of two products: see ring_step. */
        int place = (row & 6) * 4 + (row >> 3) * 2 + (row & 1);
        bool there = k0 + row < p.k;
        fetch_16(b + place * ring<N8, R>::PITCH + c,
                 there ? p.b + (k0 + row) * p.b_stride + c * 8 : p.b, there);
    }
}

/* As in NT a lane's 16 bytes of a, elements 8t to 8t + 7 of K, are its share of two products:
 * 8t and 8t + 1 stand at places 2t and 2t + 1 of the first, 8t + 2 and 8t + 3 eight places behind
 * them, the other four in the second. b's rows lie in that order of places. */
template <int N8, int R>
static __device__ __forceinline__ void ring_step(const uint4 *from, float sum[R][N8][4])
{
    int lane = threadIdx.x & 31;
    const uint4 *b_row = from + ring<N8, R>::A_UNITS + lane * ring<N8, R>::PITCH;
    uint4 a[R][2];
    #pragma unroll
    for (int h = 0; h < 2 * R; h++) a[h / 2][h % 2] = from[h * 32 + lane];
    #pragma unroll
    for (int c = 0; c < N8; c++) {
        uint32_t b[4];
        load_transposed_4(b, b_row + c);
        #pragma unroll
        for (int r = 0; r < R; r++) {
            multiply(sum[r][c], a[r][0].x, a[r][1].x, a[r][0].y, a[r][1].y, b[0], b[1]);
            multiply(sum[r][c], a[r][0].z, a[r][1].z, a[r][0].w, a[r][1].w, b[2], b[3]);
        }
    }
}

/* The warps' shares of K added in order, and stored. They lie where the rings were. */
template <typename T, int N8, int R>
static __device__ __forceinline__ void ring_store(const struct across &p, float *shared,
                                                  const float sum[R][N8][4], int64_t row0)
{
    const int cols = N8 * 8, share = 16 * R * cols;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < R; r++)
        #pragma unroll
        for (int c = 0; c < N8; c++)
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = r * 16 + (lane >> 2) + (i & 2 ? 8 : 0);
                int col = c * 8 + 2 * (lane & 3) + (i & 1);
                shared[warp * share + row * cols + col] = sum[r][c][i];
            }
    __syncthreads();
    for (int e = threadIdx.x; e < share; e += 32 * RING_WARPS) {
        int row = e / cols, col = e % cols;
        float value = shared[e];
        for (int w = 1; w < RING_WARPS; w++) value += shared[w * share + e];
        if (row0 + row < p.rows && col < p.n)
            ebb_store((T *)p.y + (row0 + row) * p.y_stride + col, p.alpha * value);
    }
}

template <typename T, int N8, int R>
static __global__ void __launch_bounds__(32 * RING_WARPS) ring_kernel(struct across p)
{
    enum { STEPS = ring<N8, R>::STEPS, UNITS = ring<N8, R>::UNITS };
    extern __shared__ uint4 rings[];
    int warp = threadIdx.x >> 5;
    uint4 *mine = rings + warp * STEPS * UNITS;
    int64_t row0 = (int64_t)blockIdx.x * 16 * R, turn = RING_WARPS * RING_SPAN;
    int steps = (int)((p.k + turn - 1) / turn) * (RING_SPAN / K_STEP);
    float sum[R][N8][4] = {};
    for (int s = 0; s < STEPS - 1; s++) {
        if (s < steps) ring_fetch<N8, R>(p, mine + s * UNITS, row0, ring_k(s, warp));
        end_fetches();
    }
    for (int s = 0, at = 0; s < steps; s++, at = at + 1 < STEPS ? at + 1 : 0) {
        int next = s + STEPS - 1, behind = at > 0 ? at - 1 : STEPS - 1;
        wait_for_fetches<STEPS - 2>();
        __syncwarp(); /* this step is there for all lanes, and all have read the one behind */
        if (next < steps)
            ring_fetch<N8, R>(p, mine + behind * UNITS, row0, ring_k(next, warp));
        end_fetches();
        ring_step<N8, R>(mine + at * UNITS, sum);
    }
    ring_store<T, N8, R>(p, (float *)rings, sum, row0);
}

template <typename T, int N8, int R>
static void ring_launch_rows(const struct across &p, cudaStream_t stream)
{
    const int bytes = ring<N8, R>::BYTES;
    auto kernel = ring_kernel<T, N8, R>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<ebb_blocks(ebb_ceil_div(p.rows, 16 * R)), 32 * RING_WARPS, bytes, stream>>>(p);
}

/* Twice the rows a block halve what is read of b; few rows are more blocks instead. */
template <typename T, int N8>
static void ring_launch(const struct across &p, cudaStream_t stream)
{
    if (p.rows > 2048)
        ring_launch_rows<T, N8, 2>(p, stream);
    else
        ring_launch_rows<T, N8, 1>(p, stream);
}

template <typename T> static void ring_run(const struct across &p, cudaStream_t stream)
{
    switch (p.n / 8) {
    case 1: ring_launch<T, 1>(p, stream); break;
    case 2: ring_launch<T, 2>(p, stream); break;
    case 3: ring_launch<T, 3>(p, stream); break;
    case 4: ring_launch<T, 4>(p, stream); break;
    case 5: ring_launch<T, 5>(p, stream); break;
    case 6: ring_launch<T, 6>(p, stream); break;
    case 7: ring_launch<T, 7>(p, stream); break;
    default: ring_launch<T, 8>(p, stream); break;
    }
}

/* ---- TN: columns times columns, over the rows ------------------------------------------------ */

struct down {
    const ebb_bf16 *wide, *thin;
    int64_t wide_stride, thin_stride, wide_cols;
    int64_t rows, part_rows;
    int thin_cols;
    float *y;         /* parts: [parts][y's elements]; one part: y itself */
    int64_t wide_step, thin_step, part_step; /* elements of y from column to column, part to part */
    float alpha;      /* one part: with what is there if `accumulate`; else 1 */
    bool accumulate;
};

/* Rows [row, row + STEP) of the block's columns and of the thin matrix. */
template <int N8>
static __device__ __forceinline__ void down_fetch(const struct down &p, ebb_bf16 *wide,
                                                  ebb_bf16 *thin, int64_t row, int64_t end,
                                                  int64_t col0)
{
    for (int i = threadIdx.x; i < STEP * (WIDE / 8); i += 32 * WIDE_WARPS) {
        int r = i / (WIDE / 8), c = i % (WIDE / 8) * 8;
        bool there = row + r < end && col0 + c < p.wide_cols;
        const ebb_bf16 *from = there ? p.wide + (row + r) * p.wide_stride + col0 + c : p.wide;
        fetch_16(wide + r * WIDE_PITCH + c, from, there);
    }
    for (int i = threadIdx.x; i < STEP * N8; i += 32 * WIDE_WARPS) {
        int r = i / N8, c = i % N8 * 8;
        bool there = row + r < end && c < p.thin_cols;
        const ebb_bf16 *from = there ? p.thin + (row + r) * p.thin_stride + c : p.thin;
        fetch_16(thin + r * (N8 * 8 + 8) + c, from, there);
    }
}

template <int N8>
static __device__ __forceinline__ void down_step(const ebb_bf16 *wide, const ebb_bf16 *thin,
                                                 float sum[N8][4])
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    #pragma unroll
    for (int k = 0; k < STEP; k += 16) {
        uint32_t a[4];
        int row = k + (lane & 7) + (lane & 16 ? 8 : 0), col = warp * 16 + (lane & 8 ? 8 : 0);
        load_transposed_4(a, wide + row * WIDE_PITCH + col);
        #pragma unroll
        for (int c = 0; c < N8; c++) {
            uint32_t b[2];
            load_transposed_2(b, thin + (k + (lane & 15)) * (N8 * 8 + 8) + c * 8);
            multiply(sum[c], a[0], a[1], a[2], a[3], b[0], b[1]);
        }
    }
}

template <int N8>
static __device__ __forceinline__ void down_store(const struct down &p, const float sum[N8][4],
                                                  int64_t col0)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *y = p.y + (int64_t)blockIdx.y * p.part_step;
    #pragma unroll
    for (int c = 0; c < N8; c++)
        for (int i = 0; i < 4; i++) {
            int64_t wide = col0 + warp * 16 + (lane >> 2) + (i & 2 ? 8 : 0);
            int thin = c * 8 + 2 * (lane & 3) + (i & 1);
            if (wide >= p.wide_cols || thin >= p.thin_cols) continue;
            float *at = y + wide * p.wide_step + thin * p.thin_step;
            float value = p.alpha * sum[c][i];
            *at = p.accumulate ? *at + value : value;
        }
}

template <int N8>
static __global__ void __launch_bounds__(32 * WIDE_WARPS) down_kernel(struct down p)
{
    enum { STAGES = N8 <= 4 ? 4 : 3 }; /* steps under way: what 48 KiB hold */
    __shared__ __align__(16) ebb_bf16 wide[STAGES][STEP * WIDE_PITCH];
    __shared__ __align__(16) ebb_bf16 thin[STAGES][STEP * (N8 * 8 + 8)];
    int64_t col0 = (int64_t)blockIdx.x * WIDE;
    int64_t first = (int64_t)blockIdx.y * p.part_rows, end = first + p.part_rows;
    float sum[N8][4];
    for (int c = 0; c < N8; c++)
        for (int i = 0; i < 4; i++) sum[c][i] = 0;
    if (end > p.rows) end = p.rows;
    int steps = (int)((end - first + STEP - 1) / STEP);
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) down_fetch<N8>(p, wide[s], thin[s], first + s * STEP, end, col0);
        end_fetches();
    }
    for (int s = 0; s < steps; s++) {
        wait_for_fetches<STAGES - 2>();
        __syncthreads(); /* this step's rows are there, and the stage to be filled was read */
        int next = s + STAGES - 1;
        if (next < steps)
            down_fetch<N8>(p, wide[next % STAGES], thin[next % STAGES], first + next * STEP, end,
                           col0);
        end_fetches();
        down_step<N8>(wide[s % STAGES], thin[s % STAGES], sum);
    }
    down_store<N8>(p, sum, col0);
}

template <typename T>
static __global__ void add_parts_kernel(const float *parts, int64_t count, int64_t part_step,
                                        int64_t elements, int64_t cols, T *y, int64_t stride,
                                        float alpha, bool accumulate)
{
    int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= elements) return;
    float value = parts[e];
    #pragma unroll 8
    for (int64_t i = 1; i < count; i++) value += parts[i * part_step + e];
    T *at = y + e / cols * stride + e % cols;
    ebb_store(at, accumulate ? ebb_load(at) + alpha * value : alpha * value);
}

enum ebb_status ebb_matmul_add_parts_cuda(const struct ebb_op_env *env,
                                          const struct ebb_matmul *args, const float *parts,
                                          int64_t count, int64_t rows, int64_t capacity)
{
    const struct ebb_view *y = &args->y;
    int64_t elements = rows * y->cols, step = capacity * y->cols;
    unsigned grid = ebb_blocks(ebb_ceil_div(elements, 256));
    if (y->dtype == EBB_F32)
        add_parts_kernel<<<grid, 256, 0, ebb_stream(env)>>>(
            parts, count, step, elements, y->cols, ebb_data<float>(env, y), y->stride, args->alpha,
            args->accumulate != 0);
    else
        add_parts_kernel<<<grid, 256, 0, ebb_stream(env)>>>(
            parts, count, step, elements, y->cols, ebb_data<ebb_bf16>(env, y), y->stride,
            args->alpha, args->accumulate != 0);
    return ebb_launched(env, "matmul");
}

static void down_launch(const struct down &p, dim3 grid, cudaStream_t stream)
{
    const int threads = 32 * WIDE_WARPS;
    switch ((p.thin_cols + 7) / 8) {
    case 1: down_kernel<1><<<grid, threads, 0, stream>>>(p); break;
    case 2: down_kernel<2><<<grid, threads, 0, stream>>>(p); break;
    case 3: down_kernel<3><<<grid, threads, 0, stream>>>(p); break;
    case 4: down_kernel<4><<<grid, threads, 0, stream>>>(p); break;
    case 5: down_kernel<5><<<grid, threads, 0, stream>>>(p); break;
    case 6: down_kernel<6><<<grid, threads, 0, stream>>>(p); break;
    case 7: down_kernel<7><<<grid, threads, 0, stream>>>(p); break;
    default: down_kernel<8><<<grid, threads, 0, stream>>>(p); break;
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

static enum ebb_status run_across(const struct ebb_op_env *env, const struct ebb_matmul *args,
                                  int64_t rows)
{
    struct across p;
    p.a = ebb_data<const ebb_bf16>(env, &args->a);
    p.b = ebb_data<const ebb_bf16>(env, &args->b);
    p.y = ebb_view_data(env, &args->y);
    p.a_stride = args->a.stride;
    p.b_stride = args->b.stride;
    p.y_stride = args->y.stride;
    p.rows = rows;
    p.k = args->a.cols;
    p.n = (int)args->y.cols;
    p.alpha = args->alpha;
    bool nt = args->form == EBB_MATMUL_NT;
    if (args->y.dtype == EBB_F32)
        (nt ? across_run<float> : ring_run<float>)(p, ebb_stream(env));
    else
        (nt ? across_run<ebb_bf16> : ring_run<ebb_bf16>)(p, ebb_stream(env));
    return ebb_launched(env, "matmul");
}

static enum ebb_status run_down(const struct ebb_op_env *env, const struct ebb_matmul *args,
                                int64_t rows)
{
    bool thin_first = ebb_matmul_thin_first(args);
    const struct ebb_view *wide = thin_first ? &args->b : &args->a;
    const struct ebb_view *thin = thin_first ? &args->a : &args->b;
    int64_t each = ebb_matmul_thin_part_rows(wide->cols, rows), parts = ebb_ceil_div(rows, each);
    int64_t elements = args->y.rows * args->y.cols;
    bool whole = parts == 1;
    float *y = ebb_data<float>(env, &args->y), *scratch = ebb_data<float>(env, &args->scratch);
    int64_t stride = whole ? args->y.stride : args->y.cols;
    struct down p;
    EBB_ASSERT(whole ||
               args->scratch.cols >= parts * elements * (int64_t)sizeof(float));
    p.wide = ebb_data<const ebb_bf16>(env, wide);
    p.thin = ebb_data<const ebb_bf16>(env, thin);
    p.wide_stride = wide->stride;
    p.thin_stride = thin->stride;
    p.wide_cols = wide->cols;
    p.thin_cols = (int)thin->cols;
    p.rows = rows;
    p.part_rows = each;
    p.y = whole ? y : scratch;
    p.wide_step = thin_first ? 1 : stride;
    p.thin_step = thin_first ? stride : 1;
    p.part_step = elements;
    p.alpha = whole ? args->alpha : 1.0f;
    p.accumulate = whole && args->accumulate;
    down_launch(p, dim3(ebb_blocks(ebb_ceil_div(wide->cols, WIDE)), (unsigned)parts),
                ebb_stream(env));
    EBB_TRY(ebb_launched(env, "matmul"));
    if (whole) return EBB_OK;
    return ebb_matmul_add_parts_cuda(env, args, scratch, parts, args->y.rows, args->y.rows);
}

static bool is_aligned(const struct ebb_op_env *env, const struct ebb_view *view)
{
    return (uintptr_t)ebb_view_data(env, view) % 16 == 0;
}

enum ebb_status ebb_matmul_thin_cuda(const struct ebb_op_env *env, const struct ebb_matmul *args,
                                     bool *taken)
{
    *taken = ebb_matmul_thin_takes(args) && is_aligned(env, &args->a) && is_aligned(env, &args->b);
    if (!*taken) return EBB_OK;
    int64_t rows = ebb_view_rows(env, &args->a);
    return args->form == EBB_MATMUL_TN ? run_down(env, args, rows) : run_across(env, args, rows);
}
