/* Attention on the GPU in fp32 FMA, exactly repeatable: what the float32 mode and every shape
 * without a faster way run on.
 *
 * A block of threads owns ROWS rows of a document and a head (queries; for dk and dv: keys of a kv
 * head) and streams tiles of TILE rows of the other side through shared memory. Thread (ty, tx) of
 * 16 x 16 has the own rows ty I .. ty I + I - 1, of a tile the rows tx and tx + 16, and of a result
 * the columns 4 tx + 64 n .. + 3. Blocks and tiles count from the document's start and every sum
 * runs in ascending order, so that bits depend on the document alone. A few rows of decoding have
 * their own kernel, which adds up in the very same order. Document starts are the host's to check:
 * here they are only kept within the live rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention.h"

#include <limits.h>

#include "op/attention_check_int.h"
#include "op/attention_lib_int.h"
#include "op/cuda_int.cuh"
#include "op/scratch_int.h"

enum {
    THREADS = 256,
    TILE = 32,
    WEIGHTS = TILE + 4, /* floats from row to row of weights: apart by banks */
    CHUNK = 32,         /* columns of keys that a decoding warp takes at once */
    FEW_ROWS = 16,      /* below it decoding goes row by row */
    LARGEST_HEAD = 256
};

/* What all kernels know of a call. */
template <typename T> struct call {
    const T *q, *k, *v, *d_o;
    T *o, *dq, *dk, *dv;
    float *lse, *delta; /* lse: NULL where nobody wants it; delta: [tokens, heads] */
    int64_t q_stride, k_stride, v_stride, o_stride, d_o_stride, dq_stride, dk_stride, dv_stride;
    int64_t lse_stride;
    const int32_t *starts; /* NULL: decoding, all rows are one document's */
    int docs, tokens;
    int offset;                  /* decoding: where the first query stands among the keys */
    int heads, kv_heads, blocks; /* blocks: of each head */
    int d, e;                    /* sizes of a head of q and k, and of v and o */
    int window;                  /* INT_MAX: none */
    float scale, softcap;
};

/* A block's share: rows start .. start + rows are a document, the block begins at its row `first`.
 */
struct piece {
    int start, rows, first;
};

/* The piece number `wanted` of blocks of `size` rows; every warp finds it for itself. */
template <typename T>
static __device__ bool find_piece(const struct call<T> &c, int wanted, int size,
                                  struct piece *piece)
{
    const unsigned all = 0xffffffffu;
    int lane = threadIdx.x & 31;
    piece->start = 0;
    piece->rows = c.tokens;
    piece->first = wanted * size;
    if (c.starts == NULL) return piece->first < c.tokens;
    for (int doc0 = 0; doc0 < c.docs; doc0 += 32) {
        int doc = doc0 + lane, start = 0, rows = 0;
        if (doc < c.docs) {
            start = max(c.starts[doc], 0);
            rows = max(min(c.starts[doc + 1], c.tokens) - start, 0);
        }
        int blocks = rows / size + (rows % size != 0), upto = blocks;
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(all, upto, step);
            if (lane >= step) upto += other;
        }
        unsigned found = __ballot_sync(all, wanted < upto);
        if (found != 0) {
            int from = __ffs((int)found) - 1;
            piece->start = __shfl_sync(all, start, from);
            piece->rows = __shfl_sync(all, rows, from);
            piece->first = (wanted - __shfl_sync(all, upto - blocks, from)) * size;
            return true;
        }
        wanted -= __shfl_sync(all, upto, 31);
    }
    return false;
}

/* ---- tiles ---- */

/* Floats from row to row in shared memory: an odd number of float4, so that neighbouring rows lie
 * in different banks. */
static __host__ __device__ __forceinline__ int line_of(int width)
{
    return ((width + 3) / 4 | 1) * 4;
}

/* The first `rows` of ROWS rows of `width` elements into lines of shared memory; zeros behind them
 * and up to a whole float4. Several loads are under way before the first is stored. */
template <int ROWS, typename T>
static __device__ void load_tile(float *to, const T *from, int64_t stride, int rows, int width)
{
    const int each = ROWS / (THREADS / 32);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, line = line_of(width);
    for (int c = lane; c < (width + 3) / 4 * 4; c += 64) {
        float value[2][each];
#pragma unroll
        for (int i = 0; i < 2 * each; i++) {
            int r = warp + THREADS / 32 * (i / 2), column = c + 32 * (i % 2);
            value[i % 2][i / 2] =
                r < rows && column < width ? ebb_load(from + r * stride + column) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 2 * each; i++) {
            int r = warp + THREADS / 32 * (i / 2), column = c + 32 * (i % 2);
            if (column < line) to[r * line + column] = value[i % 2][i / 2];
        }
    }
}

static __device__ __forceinline__ float &part(float4 &x, int j)
{
    return j == 0 ? x.x : j == 1 ? x.y : j == 2 ? x.z : x.w;
}

static __device__ __forceinline__ float dot4(float4 a, float4 b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* sum[i][j] = own row i . row tx + 16 j of the tile, columns ascending. */
template <int I>
static __device__ __forceinline__ void dots(const float *own, const float *tile, int width,
                                            float (&sum)[I][2])
{
    int step = line_of(width) / 4, ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const float4 *a = (const float4 *)own + ty * I * step;
    const float4 *b = (const float4 *)tile + tx * step;
#pragma unroll
    for (int i = 0; i < I; i++) sum[i][0] = sum[i][1] = 0;
#pragma unroll 2
    for (int c = 0; c < (width + 3) / 4; c++) {
        float4 low = b[c], high = b[16 * step + c];
#pragma unroll
        for (int i = 0; i < I; i++) {
            float4 x = a[i * step + c];
            sum[i][0] = dot4(x, low, sum[i][0]);
            sum[i][1] = dot4(x, high, sum[i][1]);
        }
    }
}

/* acc[i] += weights[own row i][k] tile[k], k ascending. Columns behind the last one read it again
 * and are never stored. */
template <int I, int N>
static __device__ __forceinline__ void accumulate(const float *weights, const float *tile,
                                                  int width, float4 (&acc)[I][N])
{
    int line = line_of(width), ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const float *w = weights + ty * I * WEIGHTS;
    int column[N];
#pragma unroll
    for (int n = 0; n < N; n++) column[n] = min(4 * tx + 64 * n, (width + 3) / 4 * 4 - 4);
    for (int k = 0; k < TILE; k += 4) {
        float4 x[I];
#pragma unroll
        for (int i = 0; i < I; i++) x[i] = *(const float4 *)(w + i * WEIGHTS + k);
#pragma unroll
        for (int j = 0; j < 4 * N; j++) {
            int n = j % N;
            float4 y = *(const float4 *)(tile + (k + j / N) * line + column[n]);
#pragma unroll
            for (int i = 0; i < I; i++) {
                float weight = part(x[i], j / N);
                acc[i][n].x = fmaf(weight, y.x, acc[i][n].x);
                acc[i][n].y = fmaf(weight, y.y, acc[i][n].y);
                acc[i][n].z = fmaf(weight, y.z, acc[i][n].z);
                acc[i][n].w = fmaf(weight, y.w, acc[i][n].w);
            }
        }
    }
}

template <int I, int N> static __device__ __forceinline__ void clear(float4 (&acc)[I][N])
{
#pragma unroll
    for (int i = 0; i < I * N; i++) acc[i / N][i % N] = make_float4(0, 0, 0, 0);
}

/* Own rows below `rows` to global memory; `to` is the block's first row. */
template <int I, int N, typename T>
static __device__ __forceinline__ void store_rows(T *to, int64_t stride, int rows, int width,
                                                  float4 (&acc)[I][N])
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < I; i++) {
        int row = ty * I + i;
#pragma unroll
        for (int j = 0; j < 4 * N; j++) {
            int column = 4 * tx + 64 * (j / 4) + j % 4;
            if (row < rows && column < width)
                ebb_store(to + row * stride + column, part(acc[i][j / 4], j % 4));
        }
    }
}

/* ---- scores ---- */

/* The score of a dot product and its derivative by the scaled product. */
template <typename T>
static __device__ __forceinline__ float score_of(const struct call<T> &c, float dot, float *slope)
{
    float s = dot * c.scale;
    *slope = 1;
    if (c.softcap > 0) {
        float t = tanhf(s / c.softcap);
        s = c.softcap * t;
        *slope = 1 - t * t;
    }
    return s;
}

static __device__ __forceinline__ bool sees(int query, int key, int window)
{
    return key <= query && query - key < window;
}

/* The first key that a query sees, down to a tile's start. */
static __device__ __forceinline__ int first_tile(int query, int window)
{
    int first = query < window ? 0 : query - window + 1;
    return first / TILE * TILE;
}

/* What exponents are taken from: where nothing was seen yet, exp(-inf - 0) is the 0 wanted. A NaN
 * is no maximum, but stays one in the exponent. */
static __device__ __forceinline__ float base_of(float most)
{
    return most == -INFINITY ? 0.0f : most;
}

/* ---- forward ---- */

/* Dot products into weights in shared memory, rescaling what was added up before. */
template <int I, int N, typename T>
static __device__ __forceinline__ void soften(const struct call<T> &c, int query0, int key0,
                                              float (&s)[I][2], float *weights, float (&most)[I],
                                              float (&sum)[I], float4 (&acc)[I][N])
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < I; i++) {
        int query = query0 + ty * I + i;
        float slope, larger = most[i];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            s[i][j] = sees(query, key0 + tx + 16 * j, c.window) ? score_of(c, s[i][j], &slope)
                                                                : -INFINITY;
            larger = fmaxf(larger, s[i][j]);
        }
        for (int step = 8; step > 0; step /= 2)
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, step));
        float base = base_of(larger), fade = expf(most[i] - base);
        float low = expf(s[i][0] - base), high = expf(s[i][1] - base);
        float total = low + high; /* then as ebb_warp_sum does */
        for (int step = 8; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
        most[i] = larger;
        sum[i] = fmaf(sum[i], fade, total);
        weights[(ty * I + i) * WEIGHTS + tx] = low;
        weights[(ty * I + i) * WEIGHTS + tx + 16] = high;
#pragma unroll
        for (int j = 0; j < 4 * N; j++) part(acc[i][j / 4], j % 4) *= fade;
    }
}

template <typename T, int ROWS, int N>
static __global__ void __launch_bounds__(THREADS, N < 4 ? 2 : 1) forward_kernel(struct call<T> c)
{
    extern __shared__ float4 shared[];
    const int I = ROWS / 16;
    int head = (int)blockIdx.x / c.blocks, kv = head / (c.heads / c.kv_heads);
    struct piece p; /* later blocks have more keys: they go first */
    if (!find_piece(c, c.blocks - 1 - (int)blockIdx.x % c.blocks, ROWS, &p)) return;
    float *q = (float *)shared, *k = q + ROWS * line_of(c.d), *v = k + TILE * line_of(c.d);
    float *weights = v + TILE * line_of(c.e);
    int query0 = c.offset + p.first, keys = c.offset + p.rows, left = p.rows - p.first;
    int64_t row0 = (int64_t)p.start + p.first;
    float most[I], sum[I], s[I][2];
    float4 acc[I][N];
    clear(acc);
#pragma unroll
    for (int i = 0; i < I; i++) {
        most[i] = -INFINITY;
        sum[i] = 0;
    }
    load_tile<ROWS>(q, c.q + row0 * c.q_stride + head * c.d, c.q_stride, left, c.d);
    int end = left < ROWS ? keys : query0 + ROWS;
    for (int key = first_tile(query0, c.window); key < end; key += TILE) {
        int64_t row = (int64_t)p.start + key;
        __syncthreads();
        load_tile<TILE>(k, c.k + row * c.k_stride + kv * c.d, c.k_stride, keys - key, c.d);
        load_tile<TILE>(v, c.v + row * c.v_stride + kv * c.e, c.v_stride, keys - key, c.e);
        __syncthreads();
        dots<I>(q, k, c.d, s);
        soften(c, query0, key, s, weights, most, sum, acc);
        __syncwarp(); /* weights are a warp's own */
        accumulate(weights, v, c.e, acc);
    }
#pragma unroll
    for (int i = 0; i < I; i++) {
        int row = threadIdx.x / 16 * I + i;
        if (c.lse != NULL && threadIdx.x % 16 == 0 && row < left)
            c.lse[(row0 + row) * c.lse_stride + head] = most[i] + logf(sum[i]);
#pragma unroll
        for (int j = 0; j < 4 * N; j++) part(acc[i][j / 4], j % 4) /= sum[i];
    }
    store_rows(c.o + row0 * c.o_stride + head * c.e, c.o_stride, left, c.e, acc);
}

/* ---- backward ---- */

/* delta: a warp a row and head. */
template <typename T> static __global__ void delta_kernel(struct call<T> c)
{
    int64_t task = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (task >= (int64_t)c.tokens * c.heads) return;
    int64_t row = task / c.heads, head = task % c.heads;
    const T *o = c.o + row * c.o_stride + head * c.e;
    const T *d_o = c.d_o + row * c.d_o_stride + head * c.e;
    float sum = 0;
    for (int j = threadIdx.x & 31; j < c.e; j += 32)
        sum = fmaf(ebb_load(d_o + j), ebb_load(o + j), sum);
    sum = ebb_warp_sum(sum);
    if ((threadIdx.x & 31) == 0) c.delta[task] = sum;
}

/* q . k becomes p, and do . v becomes ds times scale. */
template <typename T>
static __device__ __forceinline__ void differentiate(const struct call<T> &c, bool seen, float lse,
                                                     float delta, float *p, float *ds)
{
    float slope, s = score_of(c, *p, &slope);
    *p = seen ? expf(s - lse) : 0.0f;
    *ds = seen ? *p * (*ds - delta) * slope * c.scale : 0.0f;
}

template <typename T, int ROWS, int N>
static __global__ void __launch_bounds__(THREADS, N < 4 ? 2 : 1) dq_kernel(struct call<T> c)
{
    extern __shared__ float4 shared[];
    const int I = ROWS / 16;
    int head = (int)blockIdx.x / c.blocks, kv = head / (c.heads / c.kv_heads);
    struct piece p;
    if (!find_piece(c, c.blocks - 1 - (int)blockIdx.x % c.blocks, ROWS, &p)) return;
    float *q = (float *)shared, *d_o = q + ROWS * line_of(c.d), *k = d_o + ROWS * line_of(c.e);
    float *v = k + TILE * line_of(c.d), *weights = v + TILE * line_of(c.e);
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16, left = p.rows - p.first;
    int64_t row0 = (int64_t)p.start + p.first;
    float lse[I], delta[I], s[I][2], ds[I][2];
    float4 acc[I][N];
    clear(acc);
#pragma unroll
    for (int i = 0; i < I; i++) {
        int64_t row = row0 + ty * I + i;
        bool live = ty * I + i < left;
        lse[i] = live ? c.lse[row * c.lse_stride + head] : INFINITY;
        delta[i] = live ? c.delta[row * c.heads + head] : 0.0f;
    }
    load_tile<ROWS>(q, c.q + row0 * c.q_stride + head * c.d, c.q_stride, left, c.d);
    load_tile<ROWS>(d_o, c.d_o + row0 * c.d_o_stride + head * c.e, c.d_o_stride, left, c.e);
    int end = min(p.rows, p.first + min(left, ROWS));
    for (int key = first_tile(p.first, c.window); key < end; key += TILE) {
        int64_t row = (int64_t)p.start + key;
        __syncthreads();
        load_tile<TILE>(k, c.k + row * c.k_stride + kv * c.d, c.k_stride, p.rows - key, c.d);
        load_tile<TILE>(v, c.v + row * c.v_stride + kv * c.e, c.v_stride, p.rows - key, c.e);
        __syncthreads();
        dots<I>(q, k, c.d, s);
        dots<I>(d_o, v, c.e, ds);
#pragma unroll
        for (int i = 0; i < 2 * I; i++) {
            int own = ty * I + i / 2, other = tx + 16 * (i % 2);
            differentiate(c, sees(p.first + own, key + other, c.window), lse[i / 2], delta[i / 2],
                          &s[i / 2][i % 2], &ds[i / 2][i % 2]);
            weights[own * WEIGHTS + other] = ds[i / 2][i % 2];
        }
        __syncwarp();
        accumulate(weights, k, c.d, acc);
    }
    store_rows(c.dq + row0 * c.dq_stride + head * c.d, c.dq_stride, left, c.d, acc);
}

/* TILE queries of a head, their do, lse and delta. */
template <typename T>
static __device__ __forceinline__ void load_queries(const struct call<T> &c, int64_t row, int left,
                                                    int head, float *q, float *d_o, float *facts)
{
    load_tile<TILE>(q, c.q + row * c.q_stride + head * c.d, c.q_stride, left, c.d);
    load_tile<TILE>(d_o, c.d_o + row * c.d_o_stride + head * c.e, c.d_o_stride, left, c.e);
    int t = threadIdx.x;
    if (t >= TILE) return;
    facts[t] = t < left ? c.lse[(row + t) * c.lse_stride + head] : INFINITY;
    facts[TILE + t] = t < left ? c.delta[(row + t) * c.heads + head] : 0.0f;
}

/* A tile of queries into dk and dv of the block's keys. Weights are a warp's own. */
template <int I, int N, typename T>
static __device__ __forceinline__ void
add_queries(const struct call<T> &c, int key0, int query0, int rows, const float *k, const float *v,
            const float *q, const float *d_o, const float *facts, float *weights,
            float4 (&dk)[I][N], float4 (&dv)[I][N])
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    float s[I][2], ds[I][2];
    dots<I>(k, q, c.d, s);
    dots<I>(v, d_o, c.e, ds);
#pragma unroll
    for (int i = 0; i < 2 * I; i++) {
        int own = ty * I + i / 2, other = tx + 16 * (i % 2), query = query0 + other;
        differentiate(c, query < rows && sees(query, key0 + own, c.window), facts[other],
                      facts[TILE + other], &s[i / 2][i % 2], &ds[i / 2][i % 2]);
        weights[own * WEIGHTS + other] = s[i / 2][i % 2];
    }
    __syncwarp();
    accumulate(weights, d_o, c.e, dv);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2 * I; i++)
        weights[(ty * I + i / 2) * WEIGHTS + tx + 16 * (i % 2)] = ds[i / 2][i % 2];
    __syncwarp();
    accumulate(weights, q, c.d, dk);
}

/* dk and dv: heads of the group ascending, then queries ascending. */
template <typename T, int ROWS, int N>
static __global__ void __launch_bounds__(THREADS, N < 4 ? 2 : 1) dkdv_kernel(struct call<T> c)
{
    extern __shared__ float4 shared[];
    const int I = ROWS / 16;
    int kv = (int)blockIdx.x / c.blocks, group = c.heads / c.kv_heads;
    struct piece p; /* earlier blocks have more queries: they go first */
    if (!find_piece(c, (int)blockIdx.x % c.blocks, ROWS, &p)) return;
    float *k = (float *)shared, *v = k + ROWS * line_of(c.d), *q = v + ROWS * line_of(c.e);
    float *d_o = q + TILE * line_of(c.d), *weights = d_o + TILE * line_of(c.e);
    float *facts = weights + ROWS * WEIGHTS;
    int left = p.rows - p.first, last = p.first + min(left, ROWS) - 1;
    int end = p.rows - last < c.window ? p.rows : last + c.window;
    int64_t row0 = (int64_t)p.start + p.first;
    float4 dk[I][N], dv[I][N];
    clear(dk);
    clear(dv);
    load_tile<ROWS>(k, c.k + row0 * c.k_stride + kv * c.d, c.k_stride, left, c.d);
    load_tile<ROWS>(v, c.v + row0 * c.v_stride + kv * c.e, c.v_stride, left, c.e);
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        for (int query = p.first; query < end; query += TILE) {
            __syncthreads();
            load_queries(c, (int64_t)p.start + query, p.rows - query, head, q, d_o, facts);
            __syncthreads();
            add_queries<I, N>(c, p.first, query, p.rows, k, v, q, d_o, facts, weights, dk, dv);
        }
    }
    store_rows(c.dk + row0 * c.dk_stride + kv * c.d, c.dk_stride, left, c.d, dk);
    store_rows(c.dv + row0 * c.dv_stride + kv * c.e, c.dv_stride, left, c.e, dv);
}

/* ---- decoding ---- */

/* q . the key of this thread: a warp brings the keys of its 32 threads, CHUNK columns at a time. */
template <typename T>
static __device__ float key_dot(const T *k, int64_t stride, int keys, int width, const float *q,
                                float *lines)
{
    int lane = threadIdx.x & 31;
    float sum = 0;
    for (int c = 0; c < width; c += CHUNK) {
        float value[32];
#pragma unroll
        for (int i = 0; i < 32; i++)
            value[i] = i < keys && c + lane < width ? ebb_load(k + i * stride + c + lane) : 0.0f;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 32; i++) lines[i * (CHUNK + 1) + lane] = value[i];
        __syncwarp();
        for (int j = 0; j < min((int)CHUNK, width - c); j++)
            sum = fmaf(q[c + j], lines[lane * (CHUNK + 1) + j], sum);
    }
    return sum;
}

/* acc += weights . a column of at most TILE values. */
template <typename T>
static __device__ float add_column(const T *v, int64_t stride, int keys, const float *weights,
                                   float acc)
{
    float value[TILE];
#pragma unroll
    for (int j = 0; j < TILE; j++) value[j] = j < keys ? ebb_load(v + j * stride) : 0.0f;
#pragma unroll
    for (int j = 0; j < TILE; j++) acc = fmaf(weights[j], value[j], acc);
    return acc;
}

/* A block a row and head: a warp scores a tile of keys, eight tiles at once; then each thread adds
 * up a column. The sums are forward_kernel's to the bit. */
template <typename T> static __global__ void __launch_bounds__(THREADS) row_kernel(struct call<T> c)
{
    const int WARPS = THREADS / 32;
    __shared__ float q[LARGEST_HEAD], lines[WARPS][32 * (CHUNK + 1)], weights[THREADS];
    __shared__ float mosts[WARPS], sums[WARPS];
    int t = threadIdx.x, warp = t >> 5;
    int row = (int)blockIdx.x / c.heads, head = (int)blockIdx.x % c.heads;
    int kv = head / (c.heads / c.kv_heads), query = c.offset + row;
    const T *k = c.k + kv * c.d, *v = c.v + kv * c.e;
    if (t < c.d) q[t] = ebb_load(c.q + row * c.q_stride + head * c.d + t);
    __syncthreads();
    float most = -INFINITY, sum = 0, acc = 0;
    for (int key0 = first_tile(query, c.window); key0 <= query; key0 += THREADS) {
        int mine = key0 + 32 * warp; /* the warp's tile */
        float slope,
            s = key_dot(k + mine * c.k_stride, c.k_stride, query + 1 - mine, c.d, q, lines[warp]);
        s = sees(query, key0 + t, c.window) ? score_of(c, s, &slope) : -INFINITY;
        float larger = s;
        for (int step = 16; step > 0; step /= 2)
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, step));
        if (t % 32 == 0) mosts[warp] = larger;
        __syncthreads();
        float fade[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            larger = fmaxf(most, mosts[w]);
            fade[w] = expf(most - base_of(larger));
            if (w == warp) weights[t] = expf(s - base_of(larger));
            most = larger;
        }
        float total = ebb_warp_sum(weights[t]);
        if (t % 32 == 0) sums[warp] = total;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            int first = key0 + TILE * w;
            sum = fmaf(sum, fade[w], sums[w]);
            if (t >= c.e || first > query) continue;
            acc = add_column(v + first * c.v_stride + t, c.v_stride, query + 1 - first,
                             weights + TILE * w, acc * fade[w]);
        }
    }
    if (t < c.e) ebb_store(c.o + row * c.o_stride + head * c.e + t, acc / sum);
}

/* ---- checks ---- */

static enum ebb_status check_heads(const struct ebb_op_env *env,
                                   const struct ebb_attention_shape *s, const char *op)
{
    EBB_TRY(ebb_attention_check_shape(env, s, op));
    if (s->qk_dim <= LARGEST_HEAD && s->v_dim <= LARGEST_HEAD) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_UNSUPPORTED, "%s: heads of size %lld and %lld; wanted up to %d",
                    op, (long long)s->qk_dim, (long long)s->v_dim, (int)LARGEST_HEAD);
}

/* What the host knows of the documents. */
static enum ebb_status check_docs(const struct ebb_op_env *env, const char *op,
                                  const struct ebb_view *starts, int64_t tokens)
{
    int64_t docs = env->step->docs;
    EBB_TRY(ebb_attention_check_view(env, op, "doc_starts", starts, EBB_I32, 1, starts->cols));
    if (docs > 0 && docs < starts->cols) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_FAILED,
                    "%s: the starts of %lld documents (room for %lld) must ascend from 0 to the "
                    "%lld tokens",
                    op, (long long)docs, (long long)starts->cols - 1, (long long)tokens);
}

/* Checks of what all three ops have; sets *tokens, the live rows. */
static enum ebb_status check_call(const struct ebb_op_env *env, const char *op,
                                  const struct ebb_attention_shape *s, const struct ebb_view *q,
                                  const struct ebb_view *k, const struct ebb_view *v,
                                  const struct ebb_view *o, int64_t *tokens)
{
    int64_t rows = *tokens = ebb_view_rows(env, q);
    EBB_TRY(check_heads(env, s, op));
    if (q->dtype != EBB_F32 && q->dtype != EBB_BF16)
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: q is %s, wanted float32 or bfloat16", op,
                        ebb_dtype_name((enum ebb_dtype)q->dtype));
    EBB_TRY(ebb_attention_check_view(env, op, "q", q, q->dtype, rows, s->heads * s->qk_dim));
    EBB_TRY(ebb_attention_check_view(env, op, "k", k, q->dtype, rows, s->kv_heads * s->qk_dim));
    EBB_TRY(ebb_attention_check_view(env, op, "v", v, q->dtype, rows, s->kv_heads * s->v_dim));
    if (rows == 0) return EBB_OK;
    EBB_TRY(ebb_attention_check_view(env, op, "o", o, q->dtype, rows, s->heads * s->v_dim));
    /* Places in a document, columns and blocks of threads are ints. */
    int64_t pieces = rows + env->step->cached + env->step->docs, most = INT_MAX / LARGEST_HEAD;
    if (pieces <= INT_MAX / 2 && s->heads <= most && pieces * s->heads <= INT_MAX) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_UNSUPPORTED, "%s: %lld tokens with %lld heads are too many", op,
                    (long long)(rows + env->step->cached), (long long)s->heads);
}

/* ---- launches ---- */

template <typename T>
static struct call<T> call_of(const struct ebb_op_env *env, const struct ebb_attention_shape *s,
                              const struct ebb_view *q, const struct ebb_view *k,
                              const struct ebb_view *v, const struct ebb_view *o, int64_t tokens) {
    struct call<T> c;
    memset(&c, 0, sizeof c);
    c.q = ebb_data<const T>(env, q);
    c.k = ebb_data<const T>(env, k);
    c.v = ebb_data<const T>(env, v);
    c.o = ebb_data<T>(env, o);
    c.q_stride = q->stride;
    c.k_stride = k->stride;
    c.v_stride = v->stride;
    c.o_stride = o->stride;
    c.tokens = (int)tokens;
    c.heads = (int)s->heads;
    c.kv_heads = (int)s->kv_heads;
    c.d = (int)s->qk_dim;
    c.e = (int)s->v_dim;
    c.window = s->window == 0 || s->window > INT_MAX ? INT_MAX : (int)s->window;
    c.scale = s->scale;
    c.softcap = s->softcap;
    return c;
}

/* A kernel for blocks of 64 and of 32 rows, by the widest result: up to 64, 128 and 256 columns. */
template <typename T>
struct kernels {
    void (*of[2][3])(struct call<T>);
};

/* Launches blocks of 64 rows, or of 32 where this GPU has not the shared memory. `own`, `streamed`:
 * floats of a row that a block owns and of one of a tile. */
template <typename T>
static enum ebb_status launch(const struct ebb_op_env *env, const char *op,
                              const struct kernels<T> *kernels, struct call<T> c, int own,
                              int streamed, int widest, int heads)
{
    int device = 0, limit = 0;
    int64_t bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    for (int half = 0; half < 2; half++) {
        int rows = half ? 32 : 64;
        bytes = 4 * ((int64_t)rows * (own + WEIGHTS) + TILE * streamed);
        if (bytes > limit) continue;
        int size = widest <= 64 ? 0 : widest <= 128 ? 1 : 2;
        void (*kernel)(struct call<T>) = kernels->of[half][size];
        c.blocks = (int)ebb_ceil_div(c.tokens, rows) + c.docs; /* at most */
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        kernel<<<ebb_blocks((int64_t)c.blocks * heads), THREADS, (size_t)bytes, ebb_stream(env)>>>(
            c);
        return ebb_launched(env, op);
    }
    return EBB_FAIL(env->ctx, EBB_UNSUPPORTED,
                    "%s: heads of size %d and %d need %lld bytes of shared memory in a block; this "
                    "GPU has %d",
                    op, c.d, c.e, (long long)bytes, limit);
}

#define EBB_KERNELS(name, T)                                                                       \
    {                                                                                              \
        {                                                                                          \
            {name<T, 64, 1>, name<T, 64, 2>, name<T, 64, 4>},                                      \
            {                                                                                      \
                name<T, 32, 1>, name<T, 32, 2>, name<T, 32, 4>                                     \
            }                                                                                      \
        }                                                                                          \
    }

template <typename T>
static enum ebb_status launch_forward(const struct ebb_op_env *env, const char *op,
                                      const struct call<T> &c)
{
    static const struct kernels<T> kernels = EBB_KERNELS(forward_kernel, T);
    return launch(env, op, &kernels, c, line_of(c.d), line_of(c.d) + line_of(c.e), c.e, c.heads);
}

template <typename T>
static enum ebb_status forward(const struct ebb_op_env *env,
                               const struct ebb_attention_forward *args, int64_t tokens)
{
    struct call<T> c =
        call_of<T>(env, &args->shape, &args->q, &args->k, &args->v, &args->o, tokens);
    c.starts = ebb_data<const int32_t>(env, &args->doc_starts);
    c.docs = (int)env->step->docs;
    c.lse = ebb_data<float>(env, &args->lse);
    c.lse_stride = args->lse.stride;
    return launch_forward(env, "attention_forward", c);
}

enum ebb_status ebb_attention_forward_cuda(const struct ebb_op_env *env,
                                           const struct ebb_attention_forward *args)
{
    static const char op[] = "attention_forward";
    int64_t tokens;
    EBB_TRY(check_call(env, op, &args->shape, &args->q, &args->k, &args->v, &args->o, &tokens));
    if (tokens == 0) return EBB_OK;
    EBB_TRY(
        ebb_attention_check_view(env, op, "lse", &args->lse, EBB_F32, tokens, args->shape.heads));
    EBB_TRY(check_docs(env, op, &args->doc_starts, tokens));
    if (ebb_attention_by_library(env, &args->shape, (enum ebb_dtype)args->q.dtype))
        return ebb_attention_library_forward(env, args);
    return args->q.dtype == EBB_F32 ? forward<float>(env, args, tokens)
                                    : forward<ebb_bf16>(env, args, tokens);
}

template <typename T>
static enum ebb_status backward(const struct ebb_op_env *env,
                                const struct ebb_attention_backward *args, int64_t tokens)
{
    static const char op[] = "attention_backward";
    static const struct kernels<T> dq = EBB_KERNELS(dq_kernel, T);
    static const struct kernels<T> dkdv = EBB_KERNELS(dkdv_kernel, T);
    struct call<T> c =
        call_of<T>(env, &args->shape, &args->q, &args->k, &args->v, &args->o, tokens);
    c.starts = ebb_data<const int32_t>(env, &args->doc_starts);
    c.docs = (int)env->step->docs;
    c.lse = ebb_data<float>(env, &args->lse);
    c.lse_stride = args->lse.stride;
    c.delta = ebb_data<float>(env, &args->scratch);
    c.d_o = ebb_data<const T>(env, &args->d_o);
    c.dq = ebb_data<T>(env, &args->dq);
    c.dk = ebb_data<T>(env, &args->dk);
    c.dv = ebb_data<T>(env, &args->dv);
    c.d_o_stride = args->d_o.stride;
    c.dq_stride = args->dq.stride;
    c.dk_stride = args->dk.stride;
    c.dv_stride = args->dv.stride;
    int64_t deltas = ebb_ceil_div(tokens * c.heads, THREADS / 32);
    delta_kernel<<<ebb_blocks(deltas), THREADS, 0, ebb_stream(env)>>>(c);
    EBB_TRY(ebb_launched(env, op));
    int both = line_of(c.d) + line_of(c.e), facts = 2; /* lse and delta of a query */
    EBB_TRY(launch(env, op, &dq, c, both, both, c.d, c.heads));
    return launch(env, op, &dkdv, c, both, both + facts, max(c.d, c.e), c.kv_heads);
}

enum ebb_status ebb_attention_backward_cuda(const struct ebb_op_env *env,
                                            const struct ebb_attention_backward *args)
{
    static const char op[] = "attention_backward";
    const struct ebb_attention_shape *s = &args->shape;
    const int dtype = args->q.dtype;
    int64_t tokens;
    EBB_TRY(check_call(env, op, s, &args->q, &args->k, &args->v, &args->o, &tokens));
    if (tokens == 0) return EBB_OK;
    EBB_TRY(ebb_attention_check_view(env, op, "lse", &args->lse, EBB_F32, tokens, s->heads));
    EBB_TRY(
        ebb_attention_check_view(env, op, "d_o", &args->d_o, dtype, tokens, s->heads * s->v_dim));
    EBB_TRY(
        ebb_attention_check_view(env, op, "dq", &args->dq, dtype, tokens, s->heads * s->qk_dim));
    EBB_TRY(
        ebb_attention_check_view(env, op, "dk", &args->dk, dtype, tokens, s->kv_heads * s->qk_dim));
    EBB_TRY(
        ebb_attention_check_view(env, op, "dv", &args->dv, dtype, tokens, s->kv_heads * s->v_dim));
    EBB_TRY(check_docs(env, op, &args->doc_starts, tokens));
    if (ebb_attention_by_library(env, s, (enum ebb_dtype)dtype))
        return ebb_attention_library_backward(env, args);
    EBB_TRY(ebb_attention_check_scratch(env, op, &args->scratch, ebb_attention_deltas(s, tokens)));
    return dtype == EBB_F32 ? backward<float>(env, args, tokens)
                            : backward<ebb_bf16>(env, args, tokens);
}

template <typename T>
static enum ebb_status cached(const struct ebb_op_env *env, const struct ebb_attention_cached *args,
                              int64_t tokens)
{
    struct call<T> c =
        call_of<T>(env, &args->shape, &args->q, &args->k, &args->v, &args->o, tokens);
    c.offset = (int)env->step->cached;
    if (tokens >= FEW_ROWS) return launch_forward(env, "attention_cached", c);
    row_kernel<<<ebb_blocks(tokens * c.heads), THREADS, 0, ebb_stream(env)>>>(c);
    return ebb_launched(env, "attention_cached");
}

enum ebb_status ebb_attention_cached_cuda(const struct ebb_op_env *env,
                                          const struct ebb_attention_cached *args)
{
    static const char op[] = "attention_cached";
    const int64_t before = env->step->cached;
    int64_t tokens;
    EBB_TRY(check_call(env, op, &args->shape, &args->q, &args->k, &args->v, &args->o, &tokens));
    if (tokens == 0) return EBB_OK;
    if (before < 0 || before + tokens > args->k.rows || before + tokens > args->v.rows) {
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "%s: %lld cached tokens and %lld new ones do not fit the caches of %lld "
                        "and %lld rows",
                        op, (long long)before, (long long)tokens, (long long)args->k.rows,
                        (long long)args->v.rows);
    }
    return args->q.dtype == EBB_F32 ? cached<float>(env, args, tokens)
                                    : cached<ebb_bf16>(env, args, tokens);
}
