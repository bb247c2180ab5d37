/* Cross-entropy on the GPU: a block a row, three passes over it; then one block adds the rows up
 * in a fixed order. Labels and targets are the host's to check: a row whose target is outside
 * the vocabulary has a loss of NaN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/cross_entropy.h"

#include "op/vocab_cuda_int.cuh"

enum { THREADS = 512, SUM_THREADS = 256 };

template <typename T>
static __global__ void row_kernel(const float *logits, int64_t stride, int64_t vocab,
                                  const int32_t *targets, int64_t tokens,
                                  const int32_t *label_rows, T *dlogits, int64_t dstride,
                                  struct ebb_cross_entropy_row *rows)
{
    __shared__ float maxima[32];
    __shared__ double sums[32];
    const float *z = logits + (int64_t)blockIdx.x * stride;
    int64_t token = label_rows[blockIdx.x];
    int64_t target = token >= 0 && token < tokens ? targets[token] : -1;
    bool known = target >= 0 && target < vocab;
    float max = ebb_row_max(z, vocab, maxima), chosen = known ? z[target] : NAN;
    double sum = ebb_row_sum_exp(z, vocab, max, 1.0f, sums);
    /* The first of equals wins. */
    bool correct = known && chosen == max && !isnan(sum) && !ebb_row_has(z, target, max);
    if (threadIdx.x == 0) {
        rows[blockIdx.x].loss = log(sum) + ((double)max - (double)chosen);
        rows[blockIdx.x].label = 1;
        rows[blockIdx.x].correct = correct;
    }
    if (dlogits == NULL) return;
    T *d = dlogits + (int64_t)blockIdx.x * dstride;
    float inverse = (float)(1.0 / sum);
    /* d may be z: every thread has read what others need before any of them writes. */
    __syncthreads();
    for (int64_t j = threadIdx.x; j < vocab; j += blockDim.x) {
        float p = expf(z[j] - max) * inverse;
        ebb_store(d + j, j == target ? p - 1.0f : p);
    }
}

/* One block: each thread adds a run of rows, then the threads' sums are added in order. */
static __global__ void sum_kernel(const struct ebb_cross_entropy_row *rows, int64_t count,
                                  struct ebb_sums *sums)
{
    __shared__ double losses[SUM_THREADS];
    __shared__ int corrects[SUM_THREADS];
    int64_t each = (count + SUM_THREADS - 1) / SUM_THREADS, first = threadIdx.x * each;
    int64_t end = first + each < count ? first + each : count;
    double loss = 0;
    int correct = 0;
    for (int64_t i = first; i < end; i++) {
        loss += rows[i].loss;
        correct += rows[i].correct;
    }
    losses[threadIdx.x] = loss;
    corrects[threadIdx.x] = correct;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < SUM_THREADS; i++) {
        loss += losses[i];
        correct += corrects[i];
    }
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
    int64_t rows = ebb_view_rows(env, logits);
    if (rows == 0) return EBB_OK;
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    EBB_ASSERT(args->scratch.cols >= ebb_cross_entropy_scratch(rows, &target));
    struct ebb_cross_entropy_row *facts =
        ebb_data<struct ebb_cross_entropy_row>(env, &args->scratch);
    const int32_t *targets = ebb_data<const int32_t>(env, &args->targets);
    const int32_t *label_rows = ebb_data<const int32_t>(env, &args->label_rows) + logits->row0;
    const float *z = ebb_data<const float>(env, logits);
    if (!ebb_present(dlogits) || dlogits->dtype == EBB_F32)
        row_kernel<<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(
            z, logits->stride, logits->cols, targets, args->targets.cols, label_rows,
            ebb_data<float>(env, dlogits), dlogits->stride, facts);
    else
        row_kernel<<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(
            z, logits->stride, logits->cols, targets, args->targets.cols, label_rows,
            ebb_data<ebb_bf16>(env, dlogits), dlogits->stride, facts);
    sum_kernel<<<1, SUM_THREADS, 0, ebb_stream(env)>>>(facts, rows,
                                                       ebb_data<struct ebb_sums>(env, &args->sums));
    return ebb_launched(env, "cross_entropy");
}
