/* Preference training on the GPU: log-probabilities and gradients a block a row; for the losses a
 * block a document, then one block for all pairs or examples, then a thread a label. Targets,
 * labels, documents and kinds are the host's to check: what is wrong becomes NaN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/preference.h"

#include "op/preference_int.h"
#include "op/vocab_cuda_int.cuh"

enum { SUM_THREADS = 256 };

/* ---- log-probabilities ---- */

/* What the two ops about logits have. */
struct rows {
    const float *logits;
    int64_t stride, cols;
    int32_t vocab;
    bool aligned;                        /* the rows of logits, and of their gradient */
    const int32_t *targets, *label_rows; /* the latter from the first row's label on */
    int64_t tokens;
    bool overwrites; /* the gradient lies in the logits' rows */
};

/* The target of the block's row; -1: there is none. */
static __device__ int64_t target_of(const struct rows &rows)
{
    int64_t token = rows.label_rows[blockIdx.x];
    int64_t target = token >= 0 && token < rows.tokens ? rows.targets[token] : -1;
    return target < rows.vocab ? target : -1;
}

static __global__ void __launch_bounds__(EBB_VOCAB_THREADS, 3)
    logprob_kernel(struct rows rows, float *logprob)
{
    __shared__ struct ebb_exchange exchange;
    struct ebb_vocab_row row = ebb_vocab_row(rows.logits, rows.stride, rows.vocab, rows.aligned);
    int64_t target = target_of(rows);
    struct ebb_row_part part = ebb_read_row(row, 1.0f, false);
    struct ebb_row_facts facts = ebb_row_facts(part, 1.0f, false, &exchange);
    if (threadIdx.x != 0) return;
    double chosen = target >= 0 ? (double)row.z[target] : (double)NAN;
    logprob[blockIdx.x] = (float)-(log(facts.sum) + ((double)facts.max - chosen));
}

template <typename T>
static __global__ void __launch_bounds__(EBB_VOCAB_THREADS, 3)
    backward_kernel(struct rows rows, const float *coefficients, T *dlogits, int64_t dstride)
{
    __shared__ struct ebb_exchange exchange;
    struct ebb_vocab_row row = ebb_vocab_row(rows.logits, rows.stride, rows.vocab, rows.aligned);
    T *d = dlogits + (int64_t)blockIdx.x * dstride;
    float coefficient = coefficients[blockIdx.x];
    if (coefficient == 0) {
        ebb_clear_columns(d, 0, rows.cols);
        return;
    }
    int64_t target = target_of(rows);
    if (target < 0) coefficient = NAN;
    struct ebb_row_part part = ebb_read_row(row, 1.0f, false);
    struct ebb_row_facts facts = ebb_row_facts(part, 1.0f, false, &exchange);
    ebb_write_softmax(row, facts.max, (float)(1.0 / facts.sum), -coefficient, target, d,
                      rows.overwrites);
    ebb_clear_columns(d, row.cols, rows.cols);
}

/* ---- losses ---- */

struct job {
    const float *logprob, *reference; /* reference may be NULL */
    const int32_t *label_rows, *doc_starts, *kinds;
    int64_t labels, docs;
    struct ebb_preference_document *documents; /* [docs] */
    struct ebb_preference_keys keys;
    float *coefficient;
    int64_t coefficients;
};

/* How many of n ascending values are below `value`. */
static __device__ int64_t count_below(const int32_t *values, int64_t n, int64_t value)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (values[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A block adds up a document's labels: each thread a run of them, then the threads' sums in
 * order. */
static __global__ void document_kernel(struct job job)
{
    __shared__ double policy[SUM_THREADS], reference[SUM_THREADS];
    int64_t d = blockIdx.x;
    int64_t begin = count_below(job.label_rows, job.labels, job.doc_starts[d]);
    int64_t end = count_below(job.label_rows, job.labels, job.doc_starts[d + 1]);
    int64_t labels = end > begin ? end - begin : 0;
    int64_t each = (labels + SUM_THREADS - 1) / SUM_THREADS, first = begin + threadIdx.x * each;
    int64_t last = first + each < end ? first + each : end;
    struct ebb_preference_document document = {0, 0, labels, 0};
    for (int64_t i = first; i < last; i++) {
        document.logprob += (double)job.logprob[i];
        if (job.reference != NULL) document.reference += (double)job.reference[i];
    }
    policy[threadIdx.x] = document.logprob;
    reference[threadIdx.x] = document.reference;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < SUM_THREADS; i++) {
        document.logprob += policy[i];
        document.reference += reference[i];
    }
    job.documents[d] = document;
}

/* One block: z0 of the micro-batch, the same in each thread; sums are thread 0's. */
static __device__ double find_z0(const struct job &job, struct ebb_sums *sums)
{
    __shared__ double parts[SUM_THREADS];
    __shared__ int64_t counts[SUM_THREADS];
    int64_t each = (job.docs + SUM_THREADS - 1) / SUM_THREADS, first = threadIdx.x * each;
    int64_t last = first + each < job.docs ? first + each : job.docs, count = 0;
    double sum = 0;
    for (int64_t d = first; d < last; d++) {
        if (job.kinds[d] != EBB_KTO_KL) continue;
        sum += job.documents[d].logprob - job.documents[d].reference;
        count++;
    }
    parts[threadIdx.x] = sum;
    counts[threadIdx.x] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < SUM_THREADS; i++) {
            sum += parts[i];
            count += counts[i];
        }
        parts[0] = ebb_preference_z0(sum, count, sums);
    }
    __syncthreads();
    return parts[0];
}

/* Loss of pair or example i. */
static __device__ struct ebb_preference_result see(const struct job &job, int64_t i, double z0)
{
    if (job.kinds == NULL)
        return ebb_preference_pair(&job.keys, job.documents + 2 * i, job.documents + 2 * i + 1);
    int32_t kind = job.kinds[i];
    struct ebb_preference_result result =
        ebb_preference_example(&job.keys, kind, z0, job.documents + i);
    if (kind < 0 || kind > EBB_KTO_KL) result.loss = job.documents[i].slope = NAN;
    return result;
}

/* One block: so many pairs or examples at once, which thread 0 adds in ascending order. */
static __global__ void loss_kernel(struct job job, struct ebb_sums *sums)
{
    __shared__ struct ebb_preference_result results[SUM_THREADS];
    struct ebb_sums all;
    if (threadIdx.x == 0) all = *sums;
    double z0 = job.kinds != NULL ? find_z0(job, &all) : 0.0;
    int64_t count = job.kinds != NULL ? job.docs : job.docs / 2;
    for (int64_t start = 0; start < count; start += SUM_THREADS) {
        int64_t here = count - start < SUM_THREADS ? count - start : SUM_THREADS;
        if (threadIdx.x < here) results[threadIdx.x] = see(job, start + threadIdx.x, z0);
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int64_t i = 0; i < here; i++) ebb_preference_add(&results[i], &all);
        }
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    all.labels += job.labels;
    *sums = all;
}

/* Gives each label its document's slope, and 0 to what stands behind the labels. */
static __global__ void coefficient_kernel(struct job job)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= job.coefficients) return;
    float value = 0;
    if (i < job.labels) {
        int64_t token = job.label_rows[i];
        int64_t d = count_below(job.doc_starts, job.docs + 1, token + 1) - 1;
        value = d >= 0 && d < job.docs ? (float)job.documents[d].slope : NAN;
    }
    job.coefficient[i] = value;
}

/* ---- launchers ---- */

static struct rows rows_of(const struct ebb_op_env *env, const struct ebb_view *logits,
                           const struct ebb_view *targets, const struct ebb_view *label_rows,
                           int64_t vocab)
{
    struct rows rows;
    rows.logits = ebb_data<const float>(env, logits);
    rows.stride = logits->stride;
    rows.cols = logits->cols;
    rows.vocab = ebb_vocab_cols(vocab);
    rows.aligned = ebb_quads_aligned(rows.logits, rows.stride, 4);
    rows.targets = ebb_data<const int32_t>(env, targets);
    rows.label_rows = ebb_data<const int32_t>(env, label_rows) + logits->row0;
    rows.tokens = targets->cols;
    rows.overwrites = false;
    return rows;
}

enum ebb_status ebb_label_logprob_cuda(const struct ebb_op_env *env,
                                       const struct ebb_label_logprob *args)
{
    const struct ebb_view *logits = &args->logits;
    EBB_TRY(ebb_preference_check_labels(env, "label_logprob", logits, &args->label_rows,
                                        &args->logprob, args->vocab));
    int64_t count = ebb_view_rows(env, logits);
    if (count == 0) return EBB_OK;
    struct rows rows = rows_of(env, logits, &args->targets, &args->label_rows, args->vocab);
    logprob_kernel<<<ebb_blocks(count), EBB_VOCAB_THREADS, 0, ebb_stream(env)>>>(
        rows, ebb_data<float>(env, &args->logprob) + logits->row0);
    return ebb_launched(env, "label_logprob");
}

enum ebb_status ebb_label_logprob_backward_cuda(const struct ebb_op_env *env,
                                                const struct ebb_label_logprob_backward *args)
{
    const struct ebb_view *logits = &args->logits, *dlogits = &args->dlogits;
    EBB_TRY(ebb_preference_check_labels(env, "label_logprob_backward", logits, &args->label_rows,
                                        &args->coefficient, args->vocab));
    EBB_TRY(ebb_preference_check_gradient(env, logits, dlogits));
    int64_t count = ebb_view_rows(env, logits);
    if (count == 0) return EBB_OK;
    struct rows rows = rows_of(env, logits, &args->targets, &args->label_rows, args->vocab);
    const float *coefficient = ebb_data<const float>(env, &args->coefficient) + logits->row0;
    bool f32 = dlogits->dtype == EBB_F32;
    rows.overwrites = ebb_gradient_overwrites(logits, dlogits);
    rows.aligned &= ebb_quads_aligned(ebb_view_data(env, dlogits), dlogits->stride, f32 ? 4 : 2);
    if (f32)
        backward_kernel<<<ebb_blocks(count), EBB_VOCAB_THREADS, 0, ebb_stream(env)>>>(
            rows, coefficient, ebb_data<float>(env, dlogits), dlogits->stride);
    else
        backward_kernel<<<ebb_blocks(count), EBB_VOCAB_THREADS, 0, ebb_stream(env)>>>(
            rows, coefficient, ebb_data<ebb_bf16>(env, dlogits), dlogits->stride);
    return ebb_launched(env, "label_logprob_backward");
}

static struct job job_of(const struct ebb_op_env *env, const struct ebb_preference_loss *args)
{
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    struct job job;
    EBB_ASSERT(args->scratch.cols >= ebb_preference_loss_scratch(env->step->docs, &target));
    job.logprob = ebb_data<const float>(env, &args->logprob);
    job.reference = ebb_data<const float>(env, &args->reference);
    job.label_rows = ebb_data<const int32_t>(env, &args->label_rows);
    job.doc_starts = ebb_data<const int32_t>(env, &args->doc_starts);
    job.kinds = ebb_data<const int32_t>(env, &args->kinds);
    job.labels = env->step->labels;
    job.docs = env->step->docs;
    job.documents = ebb_data<struct ebb_preference_document>(env, &args->scratch);
    job.keys = args->keys;
    job.coefficient = ebb_data<float>(env, &args->coefficient);
    job.coefficients = args->coefficient.cols;
    return job;
}

enum ebb_status ebb_preference_loss_cuda(const struct ebb_op_env *env,
                                         const struct ebb_preference_loss *args)
{
    EBB_TRY(ebb_preference_check_loss(env, args));
    struct job job = job_of(env, args);
    cudaStream_t stream = ebb_stream(env);
    if (job.docs > 0) {
        document_kernel<<<ebb_blocks(job.docs), SUM_THREADS, 0, stream>>>(job);
        loss_kernel<<<1, SUM_THREADS, 0, stream>>>(job,
                                                   ebb_data<struct ebb_sums>(env, &args->sums));
    }
    coefficient_kernel<<<ebb_blocks(ebb_ceil_div(job.coefficients, SUM_THREADS)), SUM_THREADS, 0,
                         stream>>>(job);
    return ebb_launched(env, "preference_loss");
}
