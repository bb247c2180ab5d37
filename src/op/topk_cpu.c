/* topk on the CPU: one thread a row. A heap holds the best k of the tokens seen so far, the worst
 * of them on top; most tokens are passed over a chunk at a time, by the chunk's largest logit.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/topk.h"

#include <math.h>

#include "op/topk_int.h"
#include "op/vector_int.h"
#include "op/vocab_int.h"

/* Larger for a larger logit; 0 for NaN. */
static uint32_t order_of(float z)
{
    if (isnan(z)) return 0;
    uint32_t bits = z == 0 ? 0 : ebb_float_bits(z); /* -0 is 0 */
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* A token as one number: larger for a larger logit, then for a lower id; no two are the same. */
static uint64_t rank_of(float z, int64_t id)
{
    return (uint64_t)order_of(z) << 32 | ~(uint32_t)id;
}

static int32_t id_of(uint64_t rank)
{
    return (int32_t) ~(uint32_t)rank;
}

/* Puts `rank` in at `at`, whose children are heaps: no parent is larger than its children. */
static void sink(uint64_t *heap, int64_t n, int64_t at, uint64_t rank)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (rank <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = rank;
}

/* The ranks of the k best, descending. */
static void choose(const float *z, int64_t vocab, int64_t k, uint64_t *heap)
{
    for (int64_t j = 0; j < k; j++) heap[j] = rank_of(z[j], j);
    for (int64_t j = k / 2; j-- > 0;) sink(heap, k, j, heap[j]);
    for (int64_t at = k; at < vocab; at += EBB_CHUNK) {
        int64_t end = vocab - at < EBB_CHUNK ? vocab : at + EBB_CHUNK;
        /* Of equal logits those in the heap have the lower ids. */
        if (order_of(ebb_vocab_max(z + at, end - at)) <= heap[0] >> 32) continue;
        float worst = z[id_of(heap[0])];
        for (int64_t j = at; j < end; j++) {
            if (z[j] < worst) continue; /* never with a NaN */
            uint64_t rank = rank_of(z[j], j);
            if (rank < heap[0]) continue;
            sink(heap, k, 0, rank);
            worst = z[id_of(heap[0])];
        }
    }
    for (int64_t n = k; n-- > 1;) { /* the worst goes last */
        uint64_t last = heap[n];
        heap[n] = heap[0];
        sink(heap, n, 0, last);
    }
}

static void topk_row(const struct ebb_topk *args, const float *z, int32_t *ids, void *logprobs)
{
    uint64_t heap[EBB_DISTILL_TOPK];
    float log_p[EBB_DISTILL_TOPK];
    int64_t k = args->ids.cols;
    float inverse = (float)(1 / args->temperature), max = ebb_vocab_max(z, args->vocab);
    double log_sum = log(ebb_vocab_sum_exp(z, args->vocab, max, inverse));
    choose(z, args->vocab, k, heap);
    for (int64_t i = 0; i < k; i++) {
        ids[i] = id_of(heap[i]);
        log_p[i] = (float)(((double)z[ids[i]] - (double)max) * (double)inverse - log_sum);
    }
    ebb_store_f32(ebb_view_dtype(&args->logprobs), logprobs, 0, k, log_p);
}

enum ebb_status ebb_topk_cpu(const struct ebb_op_env *env, const struct ebb_topk *args)
{
    EBB_TRY(ebb_topk_check(env, args));
    int64_t rows = ebb_view_rows(env, &args->logits);
#pragma omp parallel for num_threads(ebb_op_team(env, rows * args->vocab)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        topk_row(args, ebb_view_row(env, &args->logits, i), ebb_view_row(env, &args->ids, i),
                 ebb_view_row(env, &args->logprobs, i));
    return EBB_OK;
}
