/* Cross-entropy on the GPU: a block a row, two passes over it; then one block adds the rows up in a
 * fixed order. Labels and targets are the host's to check: a row whose target is outside the
 * vocabulary has a loss of NaN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/cross_entropy.h"

#include "op/vocab_cuda_int.cuh"

enum { SUM_THREADS = 256 };

struct job {
    const float *logits;
    int64_t stride;
    int32_t vocab;
    bool aligned; /* the rows of logits and of dlogits */
    const int32_t *targets, *label_rows;
    int64_t tokens;
    void *dlogits; /* or NULL */
    int64_t dstride;
    bool overwrites; /* dlogits lies in the logits' rows */
    struct ebb_cross_entropy_row *rows;
};

template <typename T>
static __global__ void __launch_bounds__(EBB_VOCAB_THREADS, 3) row_kernel(struct job job)
{
    __shared__ struct ebb_exchange exchange;
    struct ebb_vocab_row row = ebb_vocab_row(job.logits, job.stride, job.vocab, job.aligned);
    int64_t token = job.label_rows[blockIdx.x];
    int64_t target = token >= 0 && token < job.tokens ? job.targets[token] : -1;
    if (target >= job.vocab) target = -1;
    struct ebb_row_part part = ebb_read_row(row, 1.0f, false);
    struct ebb_row_facts facts = ebb_row_facts(part, 1.0f, false, &exchange);
    bool correct = ebb_target_is_first(row, part, facts.max, target);
    if (threadIdx.x == 0) {
        double chosen = target >= 0 ? (double)row.z[target] : (double)NAN;
        job.rows[blockIdx.x].loss = log(facts.sum) + ((double)facts.max - chosen);
        job.rows[blockIdx.x].label = 1;
        job.rows[blockIdx.x].correct = correct;
    }
    if (job.dlogits == NULL) return;
    T *d = (T *)job.dlogits + (int64_t)blockIdx.x * job.dstride;
    ebb_write_softmax(row, facts.max, (float)(1.0 / facts.sum), 1.0f, target, d, job.overwrites);
}

/* One block: each thread adds a run of rows, then the threads' sums are added in a fixed order. */
static __global__ void sum_kernel(const struct ebb_cross_entropy_row *rows, int64_t count,
                                  struct ebb_sums *sums)
{
    __shared__ double losses[32];
    __shared__ int corrects[32];
    int64_t each = (count + SUM_THREADS - 1) / SUM_THREADS, first = threadIdx.x * each;
    int64_t end = first + each < count ? first + each : count;
    double loss = 0;
    int correct = 0;
    for (int64_t i = first; i < end; i++) {
        loss += rows[i].loss;
        correct += rows[i].correct;
    }
    loss = ebb_block_sum(loss, losses);
    correct = ebb_block_sum(correct, corrects);
    if (threadIdx.x != 0) return;
    sums->loss += loss;
    sums->labels += count;
    sums->correct += correct;
}

enum ebb_status ebb_cross_entropy_cuda(const struct ebb_op_env *env,
                                       const struct ebb_cross_entropy *args)
{
    const struct ebb_view *logits = &args->logits, *dlogits = &args->dlogits;
    EBB_ASSERT(logits->dtype == EBB_F32 && args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    EBB_ASSERT(!ebb_present(dlogits) || dlogits->cols == logits->cols);
    EBB_ASSERT(ebb_gradient_has_place(logits, dlogits));
    int64_t rows = ebb_view_rows(env, logits);
    if (rows == 0) return EBB_OK;
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    EBB_ASSERT(args->scratch.cols >= ebb_cross_entropy_scratch(rows, &target));
    bool f32 = !ebb_present(dlogits) || dlogits->dtype == EBB_F32;
    struct job job;
    job.logits = ebb_data<const float>(env, logits);
    job.stride = logits->stride;
    job.vocab = ebb_vocab_cols(logits->cols);
    job.targets = ebb_data<const int32_t>(env, &args->targets);
    job.label_rows = ebb_data<const int32_t>(env, &args->label_rows) + logits->row0;
    job.tokens = args->targets.cols;
    job.dlogits = ebb_view_data(env, dlogits);
    job.dstride = dlogits->stride;
    job.overwrites = ebb_gradient_overwrites(logits, dlogits);
    job.rows = ebb_data<struct ebb_cross_entropy_row>(env, &args->scratch);
    job.aligned = ebb_quads_aligned(job.logits, job.stride, 4) &&
                  (job.dlogits == NULL || ebb_quads_aligned(job.dlogits, job.dstride, f32 ? 4 : 2));
    if (f32)
        row_kernel<float><<<ebb_blocks(rows), EBB_VOCAB_THREADS, 0, ebb_stream(env)>>>(job);
    else
        row_kernel<ebb_bf16><<<ebb_blocks(rows), EBB_VOCAB_THREADS, 0, ebb_stream(env)>>>(job);
    sum_kernel<<<1, SUM_THREADS, 0, ebb_stream(env)>>>(job.rows, rows,
                                                       ebb_data<struct ebb_sums>(env, &args->sums));
    return ebb_launched(env, "cross_entropy");
}
