/* What the GPU's losses share: a block's passes over a row of logits, at the rate of its memory.
 *
 * Four neighbouring columns are a quad, and in every pass quad i is thread i % EBB_VOCAB_THREADS's.
 * A thread takes a few of its quads at once, so that as many loads are under way; behind the last
 * column everything counts as -inf, which adds nothing. Where rows are aligned a quad is one load,
 * elsewhere four: what is done with it is the same, so the bits hang on the row alone. As a column
 * is the same thread's in every pass, an fp32 gradient may overwrite the logits that it is made of.
 * One in the upper half of their rows (op/vocab_int.h) overwrites other threads' columns too,
 * behind the batch or in it: its pass goes backwards, and a block writes a batch when all of it is
 * read.
 *
 * All rows of a call are read at the same time, and are more than the L2 cache holds: the next pass
 * finds there only what the last one ended with. So a pass goes backwards after one that does not.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_VOCAB_CUDA_INT_H
#define EBB_OP_VOCAB_CUDA_INT_H

#include "op/cuda_int.cuh"
#include "op/vocab_int.h"

enum {
    EBB_VOCAB_THREADS = 512,
    EBB_QUADS = 4, /* at once, in the pass that finds a row's largest and its sum */
    EBB_BATCH = 4 * EBB_QUADS,
    EBB_QUADS_MOST = 4 /* at once in any pass */
};

/* ---- rows ---- */

struct ebb_vocab_row {
    const float *z;
    int32_t cols;
    int32_t whole; /* as many, or 0 where quads are not aligned */
};

/* Space that a block's sums go through. */
struct ebb_exchange {
    float floats[32];
    double doubles[32];
};

/* Do all rows of a matrix start at a whole quad? */
static inline bool ebb_quads_aligned(const void *base, int64_t stride, int64_t element)
{
    return (uintptr_t)base % (size_t)(4 * element) == 0 && stride % 4 == 0;
}

/* Columns are counted in 32 bits, up to the end of a batch. */
static inline int32_t ebb_vocab_cols(int64_t cols)
{
    EBB_ASSERT(cols > 0 && cols <= INT32_MAX - 8 * EBB_QUADS_MOST * EBB_VOCAB_THREADS);
    return (int32_t)cols;
}

/* The block's row. */
static __device__ __forceinline__ struct ebb_vocab_row
ebb_vocab_row(const float *logits, int64_t stride, int32_t cols, bool aligned)
{
    struct ebb_vocab_row row = {logits + (int64_t)blockIdx.x * stride, cols, aligned ? cols : 0};
    return row;
}

/* From a thread's quad to that of its next batch. */
template <int QUADS> static __host__ __device__ constexpr int32_t ebb_quad_step()
{
    return QUADS * EBB_VOCAB_THREADS;
}

/* Where the thread begins that goes backwards; it may have nothing there. All threads have as many
 * batches so. */
template <int QUADS> static __device__ __forceinline__ int32_t ebb_last_quad(int32_t cols)
{
    const int32_t step = ebb_quad_step<QUADS>();
    return (cols - 1) / 4 / step * step + (int32_t)threadIdx.x;
}

/* The column of element e of a batch whose first quad is `quad`. */
static __device__ __forceinline__ int32_t ebb_column(int32_t quad, int e)
{
    return 4 * (quad + e / 4 * EBB_VOCAB_THREADS) + e % 4;
}

/* The thread's quads `quad`, quad + EBB_VOCAB_THREADS, ... */
template <int QUADS>
static __device__ __forceinline__ void ebb_load_quads(const struct ebb_vocab_row &row, int32_t quad,
                                                      float (&x)[4 * QUADS])
{
    if (4 * (quad + (QUADS - 1) * EBB_VOCAB_THREADS) + 4 <= row.whole) {
#pragma unroll
        for (int u = 0; u < QUADS; u++) {
            float4 four = ((const float4 *)row.z)[quad + u * EBB_VOCAB_THREADS];
            x[4 * u] = four.x;
            x[4 * u + 1] = four.y;
            x[4 * u + 2] = four.z;
            x[4 * u + 3] = four.w;
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < 4 * QUADS; e++) {
        int32_t j = ebb_column(quad, e);
        x[e] = j < row.cols ? row.z[j] : -INFINITY;
    }
}

static __device__ __forceinline__ void ebb_store_four(float *at, const float *x)
{
    *(float4 *)at = make_float4(x[0], x[1], x[2], x[3]);
}
static __device__ __forceinline__ void ebb_store_four(ebb_bf16 *at, const float *x)
{
    union {
        __nv_bfloat162 pairs[2];
        uint2 bits;
    } four;
    four.pairs[0] = __floats2bfloat162_rn(x[0], x[1]);
    four.pairs[1] = __floats2bfloat162_rn(x[2], x[3]);
    *(uint2 *)at = four.bits;
}

/* Writes such quads to a row that is aligned where the logits' is. */
template <int QUADS, typename T>
static __device__ __forceinline__ void ebb_store_quads(const struct ebb_vocab_row &row, T *d,
                                                       int32_t quad, const float (&x)[4 * QUADS])
{
    if (4 * (quad + (QUADS - 1) * EBB_VOCAB_THREADS) + 4 <= row.whole) {
#pragma unroll
        for (int u = 0; u < QUADS; u++)
            ebb_store_four(d + 4 * (quad + u * EBB_VOCAB_THREADS), &x[4 * u]);
        return;
    }
#pragma unroll
    for (int e = 0; e < 4 * QUADS; e++) {
        int32_t j = ebb_column(quad, e);
        if (j < row.cols) ebb_store(d + j, x[e]);
    }
}

/* Columns behind the vocabulary have a gradient of 0. */
template <typename T> static __device__ void ebb_clear_columns(T *d, int64_t from, int64_t to)
{
    for (int64_t j = from + threadIdx.x; j < to; j += EBB_VOCAB_THREADS) ebb_store(d + j, 0.0f);
}

/* ---- a row's largest logit and its sum of powers ---- */

/* What a thread knows of its columns: the sums are of exp(scale (z - max)) and exp(z - max). A new
 * maximum rescales them, so one pass finds both. */
struct ebb_row_part {
    float max;
    int32_t quad; /* of the first batch that has it */
    double sum, plain;
};

/* What all threads know of the row. */
struct ebb_row_facts {
    float max;         /* NaN where there is no distribution: NaN or +inf; 0 where all are -inf */
    double sum, plain; /* relative to it */
};

static __device__ float ebb_block_max(float value, float *shared)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int step = 16; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = lane < warps ? shared[lane] : -INFINITY;
    for (int step = 16; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    __syncthreads();
    return value;
}

static __device__ __forceinline__ struct ebb_row_part ebb_row_part()
{
    struct ebb_row_part part = {-INFINITY, 0, 0, 0};
    return part;
}

static __device__ __forceinline__ float ebb_batch_sum_exp(const float (&x)[EBB_BATCH], float max,
                                                          float scale)
{
    float quads[EBB_QUADS];
#pragma unroll
    for (int u = 0; u < EBB_QUADS; u++) {
        const float *four = &x[4 * u];
        quads[u] = (expf((four[0] - max) * scale) + expf((four[1] - max) * scale)) +
                   (expf((four[2] - max) * scale) + expf((four[3] - max) * scale));
    }
    return (quads[0] + quads[1]) + (quads[2] + quads[3]);
}

/* Adds a batch: the sums in fp32 within it, in double from one to the next. `plain` says whether
 * that sum is wanted. */
static __device__ __forceinline__ void ebb_part_add(struct ebb_row_part *part,
                                                    const float (&x)[EBB_BATCH], int32_t quad,
                                                    float scale, bool plain)
{
    float top = x[0];
#pragma unroll
    for (int e = 1; e < EBB_BATCH; e++) top = fmaxf(top, x[e]); /* passes over NaN */
    if (top > part->max) {
        part->sum *= (double)expf((part->max - top) * scale);
        if (plain) part->plain *= (double)expf(part->max - top);
        part->max = top;
        part->quad = quad;
    }
    float max = part->max == -INFINITY ? 0.0f : part->max;
    part->sum += (double)ebb_batch_sum_exp(x, max, scale);
    if (plain) part->plain += (double)ebb_batch_sum_exp(x, max, 1.0f);
}

static __device__ struct ebb_row_facts ebb_row_facts(const struct ebb_row_part &part, float scale,
                                                     bool plain, struct ebb_exchange *exchange)
{
    struct ebb_row_facts facts;
    float max = ebb_block_max(part.max, exchange->floats);
    if (max == -INFINITY) max = 0.0f;
    double below = (double)part.max - (double)max;
    facts.sum = ebb_block_sum(part.sum * exp(below * (double)scale), exchange->doubles);
    facts.plain = facts.sum;
    if (plain) facts.plain = ebb_block_sum(part.plain * exp(below), exchange->doubles);
    facts.max = isnan(facts.sum) ? NAN : max;
    return facts;
}

/* The thread's part of a row. */
static __device__ __forceinline__ struct ebb_row_part ebb_read_row(const struct ebb_vocab_row &row,
                                                                   float scale, bool plain)
{
    struct ebb_row_part part = ebb_row_part();
    for (int32_t quad = (int32_t)threadIdx.x; 4 * quad < row.cols;
         quad += ebb_quad_step<EBB_QUADS>()) {
        float x[EBB_BATCH];
        ebb_load_quads<EBB_QUADS>(row, quad, x);
        ebb_part_add(&part, x, quad, scale, plain);
    }
    return part;
}

/* Has the target the largest logit, as the first of equals? A thread's first largest is in the
 * batch it remembers. target < 0: unknown. All threads. */
static __device__ bool ebb_target_is_first(const struct ebb_vocab_row &row,
                                           const struct ebb_row_part &part, float max,
                                           int64_t target)
{
    if (target < 0 || row.z[target] != max) return false;
    int before = 0;
    if (part.max == max) {
        for (int e = 0; e < EBB_BATCH; e++) {
            int32_t j = ebb_column(part.quad, e);
            if (j < target) before |= row.z[j] == max;
        }
    }
    return __syncthreads_or(before) == 0;
}

/* ---- gradients ---- */

/* Where a gradient lies in the logits' rows (op/vocab_int.h), a block has read a batch before any
 * of its threads writes there. All threads, between the two. An fp32 gradient needs no such wait: a
 * thread overwrites only columns of its own. */
template <typename T> static __device__ __forceinline__ void ebb_batch_is_read(bool overwrites)
{
    if (sizeof(T) < sizeof(float) && overwrites) __syncthreads();
}

/* d = factor (share exp(z - max) - [j = target]); target < 0: there is none. d may lie in z's
 * row: `overwrites`. */
template <typename T>
static __device__ __forceinline__ void ebb_write_softmax(const struct ebb_vocab_row &row, float max,
                                                         float share, float factor, int64_t target,
                                                         T *d, bool overwrites)
{
    float chosen = target >= 0 ? row.z[target] : 0.0f;
    /* Every thread has read what others need before any of them writes. */
    __syncthreads();
    for (int32_t quad = ebb_last_quad<EBB_QUADS>(row.cols); quad >= 0;
         quad -= ebb_quad_step<EBB_QUADS>()) {
        float x[EBB_BATCH];
        ebb_load_quads<EBB_QUADS>(row, quad, x);
#pragma unroll
        for (int e = 0; e < EBB_BATCH; e++) x[e] = expf(x[e] - max) * share * factor;
        ebb_batch_is_read<T>(overwrites);
        ebb_store_quads<EBB_QUADS>(row, d, quad, x);
    }
    if (target >= 0 && target / 4 % EBB_VOCAB_THREADS == threadIdx.x) /* whose column it is */
        ebb_store(d + target, (expf(chosen - max) * share - 1.0f) * factor);
}

#endif
