/* Products with a side of at most EBB_THIN_COLS columns, as adapters of low rank have them: bound
 * by memory, and too few tiles of a general kernel to fill a GPU. bf16 through the tensor cores'
 * m16n8k16 products, fp32 sums.
 *
 *   NT  y[M, n] = alpha a[M, K] b[n, K]^T
 *   NN  y[M, n] = alpha a[M, K] b[K, n]: a block has 16 or 32 rows, and its warps share K.
 *   TN  y[m, n] (+)= alpha a[T, m]^T b[T, n], m or n thin: a block has 32 or 64 of the wide
 *       matrix's columns, and its warps share the rows; where there are few columns and many rows,
 *       blocks have parts of them, which a second kernel adds in order.
 *
 * What bounds them is how many bytes are under way: each warp has a ring of steps in shared memory,
 * which it fills itself, so that no warp waits for another before the end.
 *
 * Same numbers: in NT and NN a row's sum is made in an order of K alone. In TN the parts' rows are
 * a function of the wide side's columns and of how many rows there are, and a part's sum goes
 * through them in an order of their number alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul_int.h"

#include "op/cuda_int.cuh"

/* Bytes of shared memory: every GPU gives a block 99 KiB; in TN three blocks of 64 columns are to
 * fit a processor of an H200. */
enum { RING_BYTES = 96 << 10, WIDE_BYTES = 72 << 10 };
/* NT, NN: elements of K in a step, and in the piece of a row that a warp reads step by step; a
 * block's rows in sixteens where there are many. TN: rows in a step. */
enum { ACROSS_WARPS = 4, K_STEP = 32, K_SPAN = 64, TALL = 2 };
enum { DOWN_STEP = 16 };

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

/* 16 bytes to shared memory, in the background, whose neighbours in 128 bytes will be wanted too;
 * zeros where there is nothing to read. */
static __device__ __forceinline__ void fetch_16(void *to, const void *from, bool there)
{
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(
                     shared_address(to)),
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

/* ---- NT and NN: rows times a few columns ----------------------------------------------------- */

struct across {
    const ebb_bf16 *a, *b;
    void *y;
    int64_t a_stride, b_stride, y_stride;
    int64_t rows, k;
    int n;
    float alpha;
    bool to_f32;
};

/* A step of a warp's ring in units of 16 bytes. Of a, and in NT of b, a lane fetches what it needs
 * itself; in NN there are K_STEP rows of b, at an odd pitch, which keeps the 8 rows that ldmatrix
 * reads at once in different banks. */
template <bool NN, int N8, int R> struct across_ring {
    enum {
        A_UNITS = 2 * R * 32,
        PITCH = NN ? N8 | 1 : N8,
        UNITS = A_UNITS + 32 * PITCH,
        STEPS = RING_BYTES / (ACROSS_WARPS * UNITS * 16),
        BYTES = ACROSS_WARPS * STEPS * UNITS * 16
    };
    static_assert((int)STEPS >= 3, "too few steps are under way");
    static_assert(ACROSS_WARPS * R * 16 * N8 * 8 * 4 <= (int)BYTES, "no room for the sums");
};

/* Where a warp's step begins in K: the warps take pieces in turn. */
static __device__ __forceinline__ int64_t across_k(int step, int warp)
{
    const int each = K_SPAN / K_STEP;
    return ((int64_t)(step / each) * ACROSS_WARPS + warp) * K_SPAN + step % each * K_STEP;
}

template <bool NN, int N8, int R>
static __device__ __forceinline__ void across_fetch(const struct across &p, uint4 *to, int64_t row0,
                                                    int64_t k0)
{
    int lane = threadIdx.x & 31;
    int64_t k = k0 + (lane & 3) * 8;
    uint4 *b = to + across_ring<NN, N8, R>::A_UNITS;
    #pragma unroll
    for (int h = 0; h < 2 * R; h++) {
        int64_t row = row0 + h * 8 + (lane >> 2);
        bool there = row < p.rows && k < p.k;
        fetch_16(to + h * 32 + lane, there ? p.a + row * p.a_stride + k : p.a, there);
    }
    #pragma unroll
    for (int i = 0; i < N8; i++) {
        if (NN) {
            int row = (i * 32 + lane) / N8, c = (i * 32 + lane) % N8;
            int place = (row & 6) * 4 + (row >> 3) * 2 + (row & 1); /* see across_step */
            bool there = k0 + row < p.k;
            fetch_16(b + place * across_ring<NN, N8, R>::PITCH + c,
                     there ? p.b + (k0 + row) * p.b_stride + c * 8 : p.b, there);
        } else {
            int col = i * 8 + (lane >> 2);
            bool there = col < p.n && k < p.k;
            fetch_16(b + i * 32 + lane, there ? p.b + col * p.b_stride + k : p.b, there);
        }
    }
}

/* A lane's 16 bytes of a row of a, elements 8t to 8t + 7 of K, are its share of two products: 8t
 * and 8t + 1 stand at places 2t and 2t + 1 of the first, 8t + 2 and 8t + 3 eight places behind
 * them, the other four in the second. Which elements of K stand where does not matter, as long as a
 * and b agree: in NT a lane's 16 bytes of b are just those, in NN b's rows lie in that order. */
template <bool NN, int N8, int R>
static __device__ __forceinline__ void across_step(const uint4 *from, float sum[R][N8][4])
{
    int lane = threadIdx.x & 31;
    const uint4 *b_at = from + across_ring<NN, N8, R>::A_UNITS;
    uint4 a[R][2];
    #pragma unroll
    for (int h = 0; h < 2 * R; h++) a[h / 2][h % 2] = from[h * 32 + lane];
    #pragma unroll
    for (int c = 0; c < N8; c++) {
        uint32_t b[4];
        if (NN) {
            load_transposed_4(b, b_at + lane * across_ring<NN, N8, R>::PITCH + c);
        } else {
            uint4 mine = b_at[c * 32 + lane];
            b[0] = mine.x, b[1] = mine.y, b[2] = mine.z, b[3] = mine.w;
        }
        #pragma unroll
        for (int r = 0; r < R; r++) {
            multiply(sum[r][c], a[r][0].x, a[r][1].x, a[r][0].y, a[r][1].y, b[0], b[1]);
            multiply(sum[r][c], a[r][0].z, a[r][1].z, a[r][0].w, a[r][1].w, b[2], b[3]);
        }
    }
}

/* The warps' shares of K added in order, and stored. They lie where the rings were. */
template <int N8, int R>
static __device__ __forceinline__ void across_store(const struct across &p, float *shared,
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
    for (int e = threadIdx.x; e < share; e += 32 * ACROSS_WARPS) {
        int64_t row = row0 + e / cols;
        int col = e % cols;
        float value = shared[e];
        for (int w = 1; w < ACROSS_WARPS; w++) value += shared[w * share + e];
        if (row >= p.rows || col >= p.n) continue;
        if (p.to_f32)
            ebb_store((float *)p.y + row * p.y_stride + col, p.alpha * value);
        else
            ebb_store((ebb_bf16 *)p.y + row * p.y_stride + col, p.alpha * value);
    }
}

template <bool NN, int N8, int R>
static __global__ void __launch_bounds__(32 * ACROSS_WARPS) across_kernel(struct across p)
{
    enum { STEPS = across_ring<NN, N8, R>::STEPS, UNITS = across_ring<NN, N8, R>::UNITS };
    extern __shared__ uint4 rings[];
    int warp = threadIdx.x >> 5;
    uint4 *mine = rings + warp * STEPS * UNITS;
    int64_t row0 = (int64_t)blockIdx.x * 16 * R, turn = ACROSS_WARPS * K_SPAN;
    int steps = (int)((p.k + turn - 1) / turn) * (K_SPAN / K_STEP);
    float sum[R][N8][4] = {};
    #pragma unroll 1
    for (int s = 0; s < STEPS - 1; s++) {
        if (s < steps) across_fetch<NN, N8, R>(p, mine + s * UNITS, row0, across_k(s, warp));
        end_fetches();
    }
    for (int s = 0, at = 0; s < steps; s++, at = at + 1 < STEPS ? at + 1 : 0) {
        int next = s + STEPS - 1, behind = at > 0 ? at - 1 : STEPS - 1;
        wait_for_fetches<STEPS - 2>();
        __syncwarp(); /* this step is there for all lanes, and all have read the one behind */
        if (next < steps)
            across_fetch<NN, N8, R>(p, mine + behind * UNITS, row0, across_k(next, warp));
        end_fetches();
        across_step<NN, N8, R>(mine + at * UNITS, sum);
    }
    across_store<N8, R>(p, (float *)rings, sum, row0);
}

template <bool NN, int N8, int R>
static void across_launch_rows(const struct across &p, cudaStream_t stream)
{
    const int bytes = across_ring<NN, N8, R>::BYTES;
    auto kernel = across_kernel<NN, N8, R>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<ebb_blocks(ebb_ceil_div(p.rows, 16 * R)), 32 * ACROSS_WARPS, bytes, stream>>>(p);
}

/* The more rows a block has, the less is read of b; few rows are more blocks instead. */
template <bool NN, int N8> static void across_launch(const struct across &p, cudaStream_t stream)
{
    if (p.rows > 2048)
        across_launch_rows<NN, N8, TALL>(p, stream);
    else
        across_launch_rows<NN, N8, 1>(p, stream);
}

template <bool NN> static void across_run(const struct across &p, cudaStream_t stream)
{
    switch ((p.n + 7) / 8) {
    case 1: across_launch<NN, 1>(p, stream); break;
    case 2: across_launch<NN, 2>(p, stream); break;
    case 3: across_launch<NN, 3>(p, stream); break;
    case 4: across_launch<NN, 4>(p, stream); break;
    case 5: across_launch<NN, 5>(p, stream); break;
    case 6: across_launch<NN, 6>(p, stream); break;
    case 7: across_launch<NN, 7>(p, stream); break;
    default: across_launch<NN, 8>(p, stream); break;
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

/* A step of a warp's ring in units of 16 bytes: DOWN_STEP rows of C8 units of the wide matrix, then
 * of N8 of the thin one. Both so that the 8 rows that ldmatrix reads at once are in different
 * banks: the thin ones at an odd pitch, the wide ones with their units exchanged within a row. */
template <int N8, int C8> struct down_ring {
    enum {
        WARPS = C8 > 4 ? 4 : 8, /* narrow blocks are short of time and not of columns */
        PITCH = N8 | 1,
        WIDE_UNITS = DOWN_STEP * C8,
        UNITS = WIDE_UNITS + DOWN_STEP * PITCH,
        STEPS = (C8 > 4 ? WIDE_BYTES : RING_BYTES) / (WARPS * UNITS * 16),
        BYTES = WARPS * STEPS * UNITS * 16
    };
    static_assert((int)STEPS >= 3, "too few steps are under way");
    static_assert((int)WARPS * C8 * 8 * N8 * 8 * 4 <= (int)BYTES, "no room for the sums");
};

template <int C8> static __device__ __forceinline__ int down_place(int row, int unit)
{
    return row * C8 + (unit ^ (C8 == 4 ? row >> 1 & 3 : row & 7));
}

template <int N8, int C8>
static __device__ __forceinline__ void down_fetch(const struct down &p, uint4 *to, int64_t row,
                                                  int64_t end, int64_t col0)
{
    int lane = threadIdx.x & 31;
    uint4 *thin = to + down_ring<N8, C8>::WIDE_UNITS;
    #pragma unroll
    for (int i = 0; i < DOWN_STEP * C8 / 32; i++) {
        int r = (i * 32 + lane) / C8, c = lane % C8;
        bool there = row + r < end && col0 + c * 8 < p.wide_cols;
        fetch_16(to + down_place<C8>(r, c),
                 there ? p.wide + (row + r) * p.wide_stride + col0 + c * 8 : p.wide, there);
    }
    #pragma unroll
    for (int i = lane; i < DOWN_STEP * N8; i += 32) {
        int r = i / N8, c = i % N8;
        bool there = row + r < end;
        fetch_16(thin + r * down_ring<N8, C8>::PITCH + c,
                 there ? p.thin + (row + r) * p.thin_stride + c * 8 : p.thin, there);
    }
}

template <int N8, int C8>
static __device__ __forceinline__ void down_step(const uint4 *from, float sum[C8 / 2][N8][4])
{
    int lane = threadIdx.x & 31, row = (lane & 7) + (lane & 16 ? 8 : 0);
    const uint4 *thin = from + down_ring<N8, C8>::WIDE_UNITS + (lane & 15) * (N8 | 1);
    uint32_t a[C8 / 2][4];
    #pragma unroll
    for (int m = 0; m < C8 / 2; m++)
        load_transposed_4(a[m], from + down_place<C8>(row, m * 2 + (lane >> 3 & 1)));
    #pragma unroll
    for (int c = 0; c < N8; c++) {
        uint32_t b[2];
        load_transposed_2(b, thin + c);
        #pragma unroll
        for (int m = 0; m < C8 / 2; m++)
            multiply(sum[m][c], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
    }
}

/* The warps' shares of the rows added in order, and stored along y's rows. */
template <int N8, int C8>
static __device__ __forceinline__ void down_store(const struct down &p, float *shared,
                                                  const float sum[C8 / 2][N8][4], int64_t col0)
{
    const int warps = down_ring<N8, C8>::WARPS, cols = C8 * 8, ranks = N8 * 8, share = cols * ranks;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    bool flat = p.wide_step == 1; /* a row of y is one of the thin matrix's columns */
    int wide_step = flat ? 1 : ranks, thin_step = flat ? cols : 1;
    float *y = p.y + (int64_t)blockIdx.y * p.part_step;
    __syncthreads();
    #pragma unroll
    for (int m = 0; m < C8 / 2; m++)
        #pragma unroll
        for (int c = 0; c < N8; c++)
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                int wide = m * 16 + (lane >> 2) + (i & 2 ? 8 : 0);
                int thin = c * 8 + 2 * (lane & 3) + (i & 1);
                shared[warp * share + wide * wide_step + thin * thin_step] = sum[m][c][i];
            }
    __syncthreads();
    for (int e = threadIdx.x; e < share; e += 32 * warps) {
        int64_t wide = col0 + (flat ? e % cols : e / ranks);
        int thin = flat ? e / cols : e % ranks;
        float value = shared[e];
        for (int w = 1; w < warps; w++) value += shared[w * share + e];
        if (wide >= p.wide_cols) continue;
        float *at = y + wide * p.wide_step + thin * p.thin_step;
        value *= p.alpha;
        *at = p.accumulate ? *at + value : value;
    }
}

template <int N8, int C8>
static __global__ void __launch_bounds__(32 * down_ring<N8, C8>::WARPS)
    down_kernel(struct down p)
{
    enum { STEPS = down_ring<N8, C8>::STEPS, UNITS = down_ring<N8, C8>::UNITS };
    extern __shared__ uint4 rings[];
    int warp = threadIdx.x >> 5;
    uint4 *mine = rings + warp * STEPS * UNITS;
    const int64_t turn = down_ring<N8, C8>::WARPS * DOWN_STEP;
    int64_t col0 = (int64_t)blockIdx.x * C8 * 8;
    int64_t first = (int64_t)blockIdx.y * p.part_rows, end = first + p.part_rows;
    if (end > p.rows) end = p.rows;
    int steps = (int)((end - first + turn - 1) / turn);
    float sum[C8 / 2][N8][4] = {};
    first += warp * DOWN_STEP;
    #pragma unroll 1
    for (int s = 0; s < STEPS - 1; s++) {
        if (s < steps) down_fetch<N8, C8>(p, mine + s * UNITS, first + s * turn, end, col0);
        end_fetches();
    }
    for (int s = 0, at = 0; s < steps; s++, at = at + 1 < STEPS ? at + 1 : 0) {
        int next = s + STEPS - 1, behind = at > 0 ? at - 1 : STEPS - 1;
        wait_for_fetches<STEPS - 2>();
        __syncwarp(); /* this step is there for all lanes, and all have read the one behind */
        if (next < steps)
            down_fetch<N8, C8>(p, mine + behind * UNITS, first + next * turn, end, col0);
        end_fetches();
        down_step<N8, C8>(mine + at * UNITS, sum);
    }
    down_store<N8, C8>(p, (float *)rings, sum, col0);
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

template <int N8, int C8>
static void down_launch_cols(const struct down &p, unsigned parts, cudaStream_t stream)
{
    const int bytes = down_ring<N8, C8>::BYTES;
    const dim3 grid(ebb_blocks(ebb_ceil_div(p.wide_cols, C8 * 8)), parts);
    auto kernel = down_kernel<N8, C8>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, 32 * down_ring<N8, C8>::WARPS, bytes, stream>>>(p);
}

/* The more columns a block has, the less is read of the thin matrix; few are more blocks. */
template <int N8>
static void down_launch(const struct down &p, unsigned parts, cudaStream_t stream)
{
    if (p.wide_cols >= 8192)
        down_launch_cols<N8, 8>(p, parts, stream);
    else
        down_launch_cols<N8, 4>(p, parts, stream);
}

static void down_run(const struct down &p, unsigned parts, cudaStream_t stream)
{
    switch (p.thin_cols / 8) {
    case 1: down_launch<1>(p, parts, stream); break;
    case 2: down_launch<2>(p, parts, stream); break;
    case 3: down_launch<3>(p, parts, stream); break;
    case 4: down_launch<4>(p, parts, stream); break;
    case 5: down_launch<5>(p, parts, stream); break;
    case 6: down_launch<6>(p, parts, stream); break;
    case 7: down_launch<7>(p, parts, stream); break;
    default: down_launch<8>(p, parts, stream); break;
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
    p.to_f32 = args->y.dtype == EBB_F32;
    if (args->form == EBB_MATMUL_NN)
        across_run<true>(p, ebb_stream(env));
    else
        across_run<false>(p, ebb_stream(env));
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
    down_run(p, (unsigned)parts, ebb_stream(env));
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
