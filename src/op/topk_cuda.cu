/* topk on the GPU: a block a row. Counts of 11 bits at a time, from the top, say which rank the
 * k-th best token has; those from it on are collected and sorted in shared memory. Counters are
 * integers, and what is collected in whatever order is sorted by ranks of which no two are the
 * same: the result hangs on the row alone.
 *
 * The first digit is sign, exponent and two bits more of a logit, so that a row's logits spread
 * over some tens of counters; later passes count only what agrees so far, and there are no more
 * once all of that is wanted. Only where equal logits must be told apart by id are there passes
 * over ids. A row is read four to eight times.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/topk.h"

#include "op/topk_int.h"
#include "op/vocab_cuda_int.cuh"

enum { THREADS = EBB_VOCAB_THREADS, DIGIT = 11, DIGITS = 1 << DIGIT, EACH = DIGITS / THREADS };

typedef unsigned long long rank_t;

struct topk_job {
    const float *logits;
    int64_t stride, k;
    int32_t vocab;
    bool aligned;
    float inverse;
    int32_t *ids;
    int64_t ids_stride;
    void *logprobs;
    int64_t logprobs_stride;
};

/* What a block shares. */
struct topk_space {
    struct ebb_exchange exchange;
    int32_t sums[32];
    int32_t counts[DIGITS];
    rank_t found[EBB_DISTILL_TOPK];
    int32_t digit, above, within; /* what a pass found */
    int32_t filled;
};

/* A token as one number, as on the CPU (op/topk_cpu.c): larger for a larger logit, then for a lower
 * id; NaN below all others. Never 0. */
static __device__ __forceinline__ rank_t rank_of(float z, int64_t id)
{
    uint32_t bits = z == 0 ? 0u : __float_as_uint(z);
    uint32_t order = isnan(z) ? 0u : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (rank_t)order << 32 | (uint32_t) ~(uint32_t)id;
}

/* The sum of the values of all threads before this one. */
static __device__ int32_t sum_before(int32_t value, int32_t *shared)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int32_t sum = value;
    for (int step = 1; step < 32; step *= 2) {
        int32_t other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) shared[warp] = sum;
    __syncthreads();
    for (int i = 0; i < warp; i++) sum += shared[i];
    __syncthreads();
    return sum - value;
}

/* Counts the digit at `shift` of all ranks that agree with `prefix` in the bits of `mask`; then
 * finds the digit of the `wanted`-th best of them: space->digit, with how many are above it and how
 * many have it. */
static __device__ void find_digit(const struct ebb_vocab_row &row, rank_t prefix, rank_t mask,
                                  int shift, int32_t wanted, struct topk_space *space)
{
    for (int i = threadIdx.x; i < DIGITS; i += THREADS) space->counts[i] = 0;
    __syncthreads();
    for (int32_t quad = (int32_t)threadIdx.x; 4 * quad < row.cols;
         quad += ebb_quad_step<EBB_QUADS>()) {
        float x[EBB_BATCH];
        ebb_load_quads<EBB_QUADS>(row, quad, x);
#pragma unroll
        for (int e = 0; e < EBB_BATCH; e++) {
            int32_t j = ebb_column(quad, e);
            rank_t rank = rank_of(x[e], j);
            if (j < row.cols && (rank & mask) == prefix)
                atomicAdd(&space->counts[(int)(rank >> shift) & (DIGITS - 1)], 1);
        }
    }
    __syncthreads();
    int top = DIGITS - 1 - EACH * (int)threadIdx.x; /* this thread's digits go down from it */
    int32_t sum = 0;
    for (int i = 0; i < EACH; i++) sum += space->counts[top - i];
    int32_t above = sum_before(sum, space->sums);
    if (above < wanted && wanted <= above + sum) { /* one thread */
        int digit = top;
        while (above + space->counts[digit] < wanted) above += space->counts[digit--];
        space->digit = digit;
        space->above = above;
        space->within = space->counts[digit];
    }
    __syncthreads();
}

/* Collects the ranks from `least` on. */
static __device__ void collect(const struct ebb_vocab_row &row, rank_t least,
                               struct topk_space *space)
{
    for (int32_t quad = (int32_t)threadIdx.x; 4 * quad < row.cols;
         quad += ebb_quad_step<EBB_QUADS>()) {
        float x[EBB_BATCH];
        ebb_load_quads<EBB_QUADS>(row, quad, x);
#pragma unroll
        for (int e = 0; e < EBB_BATCH; e++) {
            int32_t j = ebb_column(quad, e);
            rank_t rank = rank_of(x[e], j);
            if (j < row.cols && rank >= least) space->found[atomicAdd(&space->filled, 1)] = rank;
        }
    }
    __syncthreads();
}

/* The least rank of the k best: exactly k are not below it. */
static __device__ rank_t find_least(const struct ebb_vocab_row &row, int32_t k,
                                    struct topk_space *space)
{
    rank_t prefix = 0, mask = 0;
    int32_t wanted = k;
    for (int shift = 64; shift > 0;) {
        int bits = shift < DIGIT ? shift : DIGIT;
        shift -= bits;
        /* The last digit is a short one: what stands above it in DIGITS is of the prefix. */
        rank_t ones = ((rank_t)1 << bits) - 1;
        find_digit(row, prefix, mask, shift, wanted, space);
        mask |= ones << shift;
        prefix |= ((rank_t)space->digit & ones) << shift;
        wanted -= space->above;
        bool all = space->within == wanted;
        __syncthreads(); /* before the next pass writes what was read here */
        if (all) break;
    }
    return prefix;
}

/* Sorts the k ranks found, descending: Batcher's bitonic network over the next power of two. */
static __device__ void sort_found(rank_t *found, int32_t k)
{
    int32_t n = 1;
    while (n < k) n *= 2;
    for (int32_t i = k + (int32_t)threadIdx.x; i < n; i += THREADS) found[i] = 0;
    __syncthreads();
    for (int32_t run = 2; run <= n; run *= 2) {
        for (int32_t step = run / 2; step > 0; step /= 2) {
            for (int32_t i = (int32_t)threadIdx.x; i < n / 2; i += THREADS) {
                int32_t low = 2 * i - (i & (step - 1)), high = low + step;
                bool down = (low & run) == 0;
                rank_t a = found[low], b = found[high];
                if ((a < b) == down) {
                    found[low] = b;
                    found[high] = a;
                }
            }
            __syncthreads();
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS, 3) topk_kernel(struct topk_job job)
{
    __shared__ struct topk_space space;
    struct ebb_vocab_row row = ebb_vocab_row(job.logits, job.stride, job.vocab, job.aligned);
    int32_t k = (int32_t)job.k;
    struct ebb_row_part part = ebb_read_row(row, job.inverse, false);
    struct ebb_row_facts facts = ebb_row_facts(part, job.inverse, false, &space.exchange);
    double log_sum = log(facts.sum);
    if (threadIdx.x == 0) space.filled = 0;
    collect(row, find_least(row, k, &space), &space);
    sort_found(space.found, k);
    int32_t *ids = job.ids + (int64_t)blockIdx.x * job.ids_stride;
    T *logprobs = (T *)job.logprobs + (int64_t)blockIdx.x * job.logprobs_stride;
    for (int32_t i = (int32_t)threadIdx.x; i < k; i += THREADS) {
        int32_t id = (int32_t) ~(uint32_t)space.found[i];
        double scaled = ((double)row.z[id] - (double)facts.max) * (double)job.inverse;
        ids[i] = id;
        ebb_store(logprobs + i, (float)(scaled - log_sum));
    }
}

enum ebb_status ebb_topk_cuda(const struct ebb_op_env *env, const struct ebb_topk *args)
{
    EBB_TRY(ebb_topk_check(env, args));
    int64_t rows = ebb_view_rows(env, &args->logits);
    if (rows == 0) return EBB_OK;
    struct topk_job job;
    job.logits = ebb_data<const float>(env, &args->logits);
    job.stride = args->logits.stride;
    job.k = args->ids.cols;
    job.vocab = ebb_vocab_cols(args->vocab);
    job.aligned = ebb_quads_aligned(job.logits, job.stride, 4);
    job.inverse = (float)(1 / args->temperature);
    job.ids = ebb_data<int32_t>(env, &args->ids);
    job.ids_stride = args->ids.stride;
    job.logprobs = ebb_view_data(env, &args->logprobs);
    job.logprobs_stride = args->logprobs.stride;
    if (args->logprobs.dtype == EBB_F32)
        topk_kernel<float><<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(job);
    else
        topk_kernel<ebb_bf16><<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(job);
    return ebb_launched(env, "topk");
}
