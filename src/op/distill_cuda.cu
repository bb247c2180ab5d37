/* Distillation on the GPU: a block a row, three passes over what the two heads say of it; then one
 * block adds the rows up in a fixed order. Targets, labels and what a saved teacher says are the
 * host's to check: a row with a target or an id outside the vocabulary has a loss of NaN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/distill.h"

#include "op/distill_int.h"
#include "op/vocab_cuda_int.cuh"

enum {
    THREADS = EBB_VOCAB_THREADS,
    SUM_THREADS = 256,
    QUADS = 2, /* of both heads at once, where terms are made */
    BATCH = 4 * QUADS
};

/* What makes log-probabilities of a head's logits: (z - max) inverse - log_sum. */
struct head {
    float max, log_sum, share; /* 1 / sum */
};

/* The student's head without temperature; target < 0: unknown. */
struct plain_head {
    float max, share;
    int32_t target;
};

/* A token or class: the student's probability, what it adds to the divergence, and its slope w
 * (op/distill.h). */
struct term {
    float q, value, slope;
};

/* Both ops' arguments, for kernels. */
struct job {
    float *logits;
    int64_t stride, cols;
    int32_t vocab;        /* the form's */
    const float *teacher; /* or NULL */
    int64_t teacher_stride;
    bool aligned;         /* the rows of logits, teacher and dlogits */
    const int32_t *ids;   /* a saved teacher's */
    const void *logprobs; /* fp32 or bf16 */
    int64_t k, ids_stride, logprobs_stride;
    bool logprobs_bf16;
    const int32_t *targets, *label_rows;
    int64_t tokens;
    void *dlogits; /* or NULL */
    int64_t dstride;
    bool overwrites; /* dlogits lies in the logits' rows */
    struct ebb_distill_row *rows;
};

/* ---- terms of a divergence: as on the CPU (op/distill_cpu.c) ---- */

struct mixture {
    float log_m_q, log_p_m, q_m;
};

static __device__ __forceinline__ struct mixture mix(float x, float mixed, float rest)
{
    float low = x < 0 ? x : 0.0f, high = x > 0 ? x : 0.0f, e = expf(-fabsf(x));
    float larger = x < 0 ? rest : mixed, smaller = x < 0 ? mixed : rest;
    float y = e > 0.5f ? 1.0f - smaller * (1.0f - e) : larger + smaller * e;
    float log_y = logf(y), q = x < 0 ? 1.0f : e;
    struct mixture m = {high + log_y, low - log_y, q / y};
    return m;
}

/* `kind` is the form's: a constant where there are many terms. */
static __device__ __forceinline__ struct term make_term(const struct ebb_distill_form &form,
                                                        enum ebb_distill_kind kind, float p,
                                                        float q, float log_p, float log_q)
{
    struct term t;
    if (log_p == -INFINITY) log_p = EBB_DISTILL_LOG_MASKED;
    if (log_q == -INFINITY) log_q = EBB_DISTILL_LOG_MASKED;
    float x = log_p - log_q, mixed = form.mixed, rest = form.rest;
    t.q = q;
    if (kind == EBB_DISTILL_PLAIN) {
        t.value = form.forward * p * x - form.reverse * q * x;
        t.slope = form.forward * (q - p) - form.reverse * q * x;
        return t;
    }
    struct mixture m = mix(x, mixed, rest);
    if (kind == EBB_DISTILL_JSD) {
        t.slope = -rest * q * m.log_m_q;
        t.value = mixed * p * m.log_p_m + t.slope;
    } else if (kind == EBB_DISTILL_SKEWED_FORWARD) {
        t.value = p * m.log_p_m;
        t.slope = rest * (q - p * m.q_m);
    } else {
        t.value = -q * m.log_m_q;
        t.slope = q * (rest * (1.0f - m.q_m) - m.log_m_q);
    }
    return t;
}

template <enum ebb_distill_kind KIND>
static __device__ __forceinline__ struct term
see(const struct ebb_distill_form &form, const struct head &student, const struct head &teacher,
    float z, float teacher_z)
{
    float a = (z - student.max) * form.inverse;
    float b = (teacher_z - teacher.max) * form.inverse;
    /* Not fused with what comes after them: the same numbers must differ by 0. */
    float p = expf(b) * teacher.share, q = expf(a) * student.share;
    return make_term(form, KIND, p, q, b - teacher.log_sum, a - student.log_sum);
}

/* CE's gradient by one logit, without its share. */
static __device__ __forceinline__ float plain_slope(const struct plain_head &plain, float z,
                                                    int32_t j)
{
    float p = expf(z - plain.max) * plain.share;
    return j == plain.target ? p - 1.0f : p;
}

/* ---- rows ---- */

static __device__ struct head head_of(float max, double sum)
{
    struct head head = {max, (float)log(sum), (float)(1.0 / sum)};
    return head;
}

/* The target of the block's row; -1: there is none. */
static __device__ int32_t target_of(const struct job &job)
{
    int64_t token = job.label_rows[blockIdx.x];
    int32_t target = token >= 0 && token < job.tokens ? job.targets[token] : -1;
    return target >= 0 && target < job.vocab ? target : -1;
}

/* Fills in what the student's head says by itself; all threads. */
static __device__ struct plain_head plain_result(const struct ebb_vocab_row &z,
                                                 const struct ebb_row_part &part,
                                                 const struct ebb_row_facts &facts, int32_t target,
                                                 struct ebb_distill_row *row)
{
    double chosen = target >= 0 ? (double)z.z[target] : (double)NAN;
    row->label = 1;
    row->correct = ebb_target_is_first(z, part, facts.max, target);
    row->cross_entropy = log(facts.plain) + ((double)facts.max - chosen);
    struct plain_head plain = {facts.max, (float)(1.0 / facts.plain), target};
    return plain;
}

/* Loss of a row from its two parts; a part without a share may be infinite. Without a target there
 * is no loss. */
static __device__ void combine(const struct ebb_distill_form &form, const struct plain_head &plain,
                               double divergence, struct ebb_distill_row *row)
{
    row->divergence = divergence * form.scale;
    row->loss = plain.target >= 0 ? 0.0 : NAN;
    if (form.ce > 0) row->loss += form.ce * row->cross_entropy;
    if (form.kd > 0) row->loss += form.kd * row->divergence;
}

/* The batches of a pass that writes a gradient: as many for each thread. */
struct gradient_pass {
    int32_t first, step, batches; /* quads from batch to batch */
};

/* It goes backwards where it must, and else forwards, after a pass that went backwards. */
template <typename T, int N>
static __device__ __forceinline__ struct gradient_pass gradient_pass(int32_t cols, bool overwrites)
{
    const int32_t step = ebb_quad_step<N>();
    struct gradient_pass pass = {(int32_t)threadIdx.x, step, (cols - 1) / 4 / step + 1};
    if (sizeof(T) < sizeof(float) && overwrites) {
        pass.first = ebb_last_quad<N>(cols);
        pass.step = -step;
    }
    return pass;
}

/* What both heads say of the row that a block has. */
struct pair {
    struct ebb_vocab_row z, teacher_z;
    struct head student, teacher;
};

/* The divergence and the sum of its slopes, the same in each thread. Backwards; what is behind the
 * vocabulary is masked by both heads and adds 0. */
template <enum ebb_distill_kind KIND>
static __device__ void sum_terms(const struct ebb_distill_form &form, const struct pair &pair,
                                 double *divergence, double *slopes, struct ebb_exchange *exchange)
{
    double value = 0, slope = 0;
    for (int32_t quad = ebb_last_quad<QUADS>(pair.z.cols); quad >= 0;
         quad -= ebb_quad_step<QUADS>()) {
        float z[BATCH], teacher_z[BATCH], values = 0, all = 0;
        ebb_load_quads<QUADS>(pair.z, quad, z);
        ebb_load_quads<QUADS>(pair.teacher_z, quad, teacher_z);
#pragma unroll
        for (int e = 0; e < BATCH; e++) {
            struct term t = see<KIND>(form, pair.student, pair.teacher, z[e], teacher_z[e]);
            values += t.value;
            all += t.slope;
        }
        value += (double)values;
        slope += (double)all;
    }
    *divergence = ebb_block_sum(value, exchange->doubles);
    *slopes = ebb_block_sum(slope, exchange->doubles);
}

/* d may lie in z's row. */
template <typename T, enum ebb_distill_kind KIND>
static __device__ void write_gradient(const struct ebb_distill_form &form, const struct pair &pair,
                                      const struct plain_head &plain, float slopes, T *d,
                                      bool overwrites)
{
    bool kd = form.kd > 0, ce = form.ce > 0;
    struct gradient_pass pass = gradient_pass<T, QUADS>(pair.z.cols, overwrites);
    for (int32_t quad = pass.first; pass.batches > 0; pass.batches--, quad += pass.step) {
        float z[BATCH], teacher_z[BATCH];
        ebb_load_quads<QUADS>(pair.z, quad, z);
        ebb_load_quads<QUADS>(pair.teacher_z, quad, teacher_z);
#pragma unroll
        for (int e = 0; e < BATCH; e++) {
            float g = 0;
            if (kd) {
                struct term t = see<KIND>(form, pair.student, pair.teacher, z[e], teacher_z[e]);
                g = form.kd_slope * (t.slope - t.q * slopes);
            }
            if (ce) g += form.ce_slope * plain_slope(plain, z[e], ebb_column(quad, e));
            z[e] = g;
        }
        ebb_batch_is_read<T>(overwrites);
        ebb_store_quads<QUADS>(pair.z, d, quad, z);
    }
}

/* Finds both heads' largest logits and sums in one pass. */
static __device__ struct plain_head see_heads(const struct ebb_distill_form &form,
                                              const struct job &job, struct pair *pair,
                                              struct ebb_distill_row *row,
                                              struct ebb_exchange *exchange)
{
    struct ebb_row_part part = ebb_row_part(), teacher_part = part;
    for (int32_t quad = (int32_t)threadIdx.x; 4 * quad < pair->z.cols;
         quad += ebb_quad_step<EBB_QUADS>()) {
        float z[EBB_BATCH], teacher_z[EBB_BATCH];
        ebb_load_quads<EBB_QUADS>(pair->z, quad, z);
        ebb_load_quads<EBB_QUADS>(pair->teacher_z, quad, teacher_z);
        ebb_part_add(&part, z, quad, form.inverse, form.tempered);
        ebb_part_add(&teacher_part, teacher_z, quad, form.inverse, false);
    }
    struct ebb_row_facts facts = ebb_row_facts(part, form.inverse, form.tempered, exchange);
    struct ebb_row_facts teacher = ebb_row_facts(teacher_part, form.inverse, false, exchange);
    pair->student = head_of(facts.max, facts.sum);
    pair->teacher = head_of(teacher.max, teacher.sum);
    return plain_result(pair->z, part, facts, target_of(job), row);
}

template <typename T, enum ebb_distill_kind KIND>
static __global__ void __launch_bounds__(THREADS, 2)
    row_kernel(struct ebb_distill_form form, struct job job)
{
    __shared__ struct ebb_exchange exchange;
    struct ebb_distill_row row;
    struct pair pair;
    pair.z = ebb_vocab_row(job.logits, job.stride, job.vocab, job.aligned);
    pair.teacher_z = ebb_vocab_row(job.teacher, job.teacher_stride, job.vocab, job.aligned);
    struct plain_head plain = see_heads(form, job, &pair, &row, &exchange);
    double divergence, slopes;
    sum_terms<KIND>(form, pair, &divergence, &slopes, &exchange);
    combine(form, plain, divergence, &row);
    if (threadIdx.x == 0) job.rows[blockIdx.x] = row;
    if (job.dlogits == NULL) return;
    T *d = (T *)job.dlogits + (int64_t)blockIdx.x * job.dstride;
    write_gradient<T, KIND>(form, pair, plain, (float)slopes, d, job.overwrites);
    ebb_clear_columns(d, job.vocab, job.cols);
}

/* ---- a saved teacher ---- */

/* What a row's k + 1 classes are made of. */
struct topk {
    int64_t k;
    const int32_t *ids;
    const void *logprobs;
    bool bf16, all;     /* the k are the whole vocabulary */
    float shift;        /* added to the k's logarithms */
    float log_others;   /* the teacher's */
    const float *saved; /* the student's logits of the k, in shared memory */
};

/* The student's logits of all other tokens, relative to the largest of them. */
struct others {
    float max, share, log_q;
};

static __device__ __forceinline__ float logprob(const struct topk &top, int64_t i)
{
    return top.bf16 ? ebb_load((const ebb_bf16 *)top.logprobs + i)
                    : ebb_load((const float *)top.logprobs + i);
}

static __device__ void see_teacher(struct topk *top, double *shared)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < top->k; i += blockDim.x) sum += exp((double)logprob(*top, i));
    sum = ebb_block_sum(sum, shared);
    bool full = top->all || sum >= 1;
    top->shift = full ? -(float)log(sum) : 0.0f;
    top->log_others = full ? -INFINITY : (float)log1p(-sum);
}

static __device__ __forceinline__ struct term topk_term(const struct ebb_distill_form &form,
                                                        const struct topk &top,
                                                        const struct head &student,
                                                        const struct others &others, int64_t i)
{
    float log_p = i < top.k ? logprob(top, i) + top.shift : top.log_others;
    float log_q =
        i < top.k ? (top.saved[i] - student.max) * form.inverse - student.log_sum : others.log_q;
    return make_term(form, form.kind, expf(log_p), expf(log_q), log_p, log_q);
}

/* Are all ids of the row tokens? */
static __device__ bool ids_are_tokens(const struct topk &top, int64_t vocab)
{
    int bad = 0;
    for (int64_t i = threadIdx.x; i < top.k; i += blockDim.x)
        bad |= top.ids[i] < 0 || top.ids[i] >= vocab;
    return __syncthreads_or(bad) == 0;
}

/* A row that the host should have refused. */
template <typename T> static __device__ void spoil(const struct job &job)
{
    struct ebb_distill_row row = {NAN, NAN, NAN, 1, 0};
    if (threadIdx.x == 0) job.rows[blockIdx.x] = row;
    if (job.dlogits == NULL) return;
    T *d = (T *)job.dlogits + (int64_t)blockIdx.x * job.dstride;
    for (int64_t j = threadIdx.x; j < job.cols; j += blockDim.x) ebb_store(d + j, NAN);
}

/* The gradient of all tokens as if they were among the others, whose slope together is `slope`;
 * then that of the k. z has the k masked; d may lie in its row. */
template <typename T>
static __device__ void write_topk(const struct ebb_distill_form &form, const struct topk &top,
                                  const struct head &student, const struct plain_head &plain,
                                  const struct others &others, float slopes,
                                  const struct ebb_vocab_row &row, T *d, bool overwrites)
{
    bool kd = form.kd > 0, ce = form.ce > 0;
    float factor = 0;
    if (!top.all) {
        struct term t = topk_term(form, top, student, others, top.k);
        factor = form.kd_slope * (t.slope - t.q * slopes) * others.share;
    }
    struct gradient_pass pass = gradient_pass<T, EBB_QUADS>(row.cols, overwrites);
    for (int32_t quad = pass.first; pass.batches > 0; pass.batches--, quad += pass.step) {
        float z[EBB_BATCH];
        ebb_load_quads<EBB_QUADS>(row, quad, z);
#pragma unroll
        for (int e = 0; e < EBB_BATCH; e++) {
            float g = kd ? factor * expf((z[e] - others.max) * form.inverse) : 0.0f;
            if (ce) g += form.ce_slope * plain_slope(plain, z[e], ebb_column(quad, e));
            z[e] = g;
        }
        ebb_batch_is_read<T>(overwrites);
        ebb_store_quads<EBB_QUADS>(row, d, quad, z);
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < top.k; i += blockDim.x) {
        float g = 0;
        if (kd) {
            struct term t = topk_term(form, top, student, others, i);
            g = form.kd_slope * (t.slope - t.q * slopes);
        }
        if (ce) g += form.ce_slope * plain_slope(plain, top.saved[i], top.ids[i]);
        ebb_store(d + top.ids[i], g);
    }
}

/* The block's row of what a saved teacher says. */
static __device__ struct topk topk_of(const struct job &job, const float *saved)
{
    int64_t place = (int64_t)blockIdx.x * job.logprobs_stride;
    struct topk top = {job.k,
                       job.ids + (int64_t)blockIdx.x * job.ids_stride,
                       (const char *)job.logprobs + place * (job.logprobs_bf16 ? 2 : 4),
                       job.logprobs_bf16,
                       job.k == job.vocab,
                       0,
                       0,
                       saved};
    return top;
}

/* What the student says of the others, once the k are taken out of the row. */
static __device__ struct others see_others(const struct ebb_distill_form &form,
                                           const struct ebb_vocab_row &row,
                                           const struct head &student,
                                           struct ebb_exchange *exchange)
{
    struct ebb_row_part part = ebb_read_row(row, form.inverse, false);
    struct ebb_row_facts facts = ebb_row_facts(part, form.inverse, false, exchange);
    struct others others = {facts.max, facts.sum > 0 ? (float)(1.0 / facts.sum) : 0.0f,
                            (facts.max - student.max) * form.inverse +
                                ((float)log(facts.sum) - student.log_sum)};
    return others;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS, 2)
    topk_kernel(struct ebb_distill_form form, struct job job)
{
    __shared__ struct ebb_exchange exchange;
    __shared__ float saved[EBB_DISTILL_TOPK];
    struct ebb_vocab_row z = ebb_vocab_row(job.logits, job.stride, job.vocab, job.aligned);
    float *writable = job.logits + (int64_t)blockIdx.x * job.stride;
    struct topk top = topk_of(job, saved);
    if (!ids_are_tokens(top, job.vocab)) {
        spoil<T>(job);
        return;
    }
    struct ebb_distill_row row;
    struct ebb_row_part part = ebb_read_row(z, form.inverse, form.tempered);
    struct ebb_row_facts facts = ebb_row_facts(part, form.inverse, form.tempered, &exchange);
    struct head student = head_of(facts.max, facts.sum);
    struct plain_head plain = plain_result(z, part, facts, target_of(job), &row);
    /* The k are taken out of the row while the others are looked at. */
    for (int64_t i = threadIdx.x; i < top.k; i += blockDim.x) saved[i] = writable[top.ids[i]];
    __syncthreads();
    for (int64_t i = threadIdx.x; i < top.k; i += blockDim.x) writable[top.ids[i]] = -INFINITY;
    __syncthreads();
    struct others others = see_others(form, z, student, &exchange);
    see_teacher(&top, exchange.doubles);
    double value = 0, slope = 0;
    int64_t count = top.all ? top.k : top.k + 1;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        struct term t = topk_term(form, top, student, others, i);
        value += (double)t.value;
        slope += (double)t.slope;
    }
    combine(form, plain, ebb_block_sum(value, exchange.doubles), &row);
    float slopes = (float)ebb_block_sum(slope, exchange.doubles);
    if (threadIdx.x == 0) job.rows[blockIdx.x] = row;
    if (job.dlogits != NULL) {
        T *d = (T *)job.dlogits + (int64_t)blockIdx.x * job.dstride;
        write_topk(form, top, student, plain, others, slopes, z, d, job.overwrites);
        ebb_clear_columns(d, z.cols, job.cols);
    }
    if (job.overwrites) return;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < top.k; i += blockDim.x) writable[top.ids[i]] = saved[i];
}

/* One block: each thread adds a run of rows, then the threads' sums are added in a fixed
 * order. */
static __global__ void sum_kernel(const struct ebb_distill_row *rows, int64_t count,
                                  struct ebb_sums *sums)
{
    __shared__ double doubles[32];
    __shared__ int corrects[32];
    int64_t each = (count + SUM_THREADS - 1) / SUM_THREADS, first = threadIdx.x * each;
    int64_t end = first + each < count ? first + each : count;
    struct ebb_distill_row part = {0, 0, 0, 0, 0};
    for (int64_t i = first; i < end; i++) {
        part.loss += rows[i].loss;
        part.cross_entropy += rows[i].cross_entropy;
        part.divergence += rows[i].divergence;
        part.correct += rows[i].correct;
    }
    part.loss = ebb_block_sum(part.loss, doubles);
    part.cross_entropy = ebb_block_sum(part.cross_entropy, doubles);
    part.divergence = ebb_block_sum(part.divergence, doubles);
    part.correct = ebb_block_sum((int)part.correct, corrects);
    if (threadIdx.x != 0) return;
    sums->loss += part.loss;
    sums->cross_entropy += part.cross_entropy;
    sums->divergence += part.divergence;
    sums->labels += count;
    sums->correct += part.correct;
}

/* ---- launchers ---- */

static bool writes_f32(const struct ebb_view *dlogits)
{
    return !ebb_present(dlogits) || dlogits->dtype == EBB_F32;
}

/* What both ops have. */
static struct job job_of(const struct ebb_op_env *env, const struct ebb_view *logits,
                         const struct ebb_view *targets, const struct ebb_view *label_rows,
                         const struct ebb_view *dlogits, const struct ebb_view *scratch,
                         int64_t vocab)
{
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    struct job job;
    memset(&job, 0, sizeof job);
    EBB_ASSERT(scratch->cols >= ebb_distill_scratch(ebb_view_rows(env, logits), &target));
    job.logits = ebb_data<float>(env, logits);
    job.stride = logits->stride;
    job.cols = logits->cols;
    job.vocab = ebb_vocab_cols(vocab);
    job.targets = ebb_data<const int32_t>(env, targets);
    job.tokens = targets->cols;
    job.label_rows = ebb_data<const int32_t>(env, label_rows) + logits->row0;
    job.dlogits = ebb_view_data(env, dlogits);
    job.dstride = dlogits->stride;
    job.overwrites = ebb_gradient_overwrites(logits, dlogits);
    job.rows = ebb_data<struct ebb_distill_row>(env, scratch);
    job.aligned = ebb_quads_aligned(job.logits, job.stride, 4) &&
                  (job.dlogits == NULL ||
                   ebb_quads_aligned(job.dlogits, job.dstride, writes_f32(dlogits) ? 4 : 2));
    return job;
}

static enum ebb_status finish(const struct ebb_op_env *env, const struct job *job, int64_t rows,
                              const struct ebb_view *sums, const char *op)
{
    sum_kernel<<<1, SUM_THREADS, 0, ebb_stream(env)>>>(job->rows, rows,
                                                       ebb_data<struct ebb_sums>(env, sums));
    return ebb_launched(env, op);
}

template <typename T>
static void launch_rows(const struct ebb_distill_form &form, const struct job &job, unsigned rows,
                        cudaStream_t stream)
{
    switch (form.kind) {
    case EBB_DISTILL_PLAIN:
        row_kernel<T, EBB_DISTILL_PLAIN><<<rows, THREADS, 0, stream>>>(form, job);
        break;
    case EBB_DISTILL_JSD:
        row_kernel<T, EBB_DISTILL_JSD><<<rows, THREADS, 0, stream>>>(form, job);
        break;
    case EBB_DISTILL_SKEWED_FORWARD:
        row_kernel<T, EBB_DISTILL_SKEWED_FORWARD><<<rows, THREADS, 0, stream>>>(form, job);
        break;
    case EBB_DISTILL_SKEWED_REVERSE:
        row_kernel<T, EBB_DISTILL_SKEWED_REVERSE><<<rows, THREADS, 0, stream>>>(form, job);
        break;
    }
}

enum ebb_status ebb_distill_cuda(const struct ebb_op_env *env, const struct ebb_distill *args)
{
    const struct ebb_view *logits = &args->logits;
    struct ebb_distill_form form;
    EBB_TRY(ebb_distill_form(env, "distill", &args->keys, logits, args->teacher.cols, &form));
    EBB_TRY(
        ebb_distill_check(env, "distill", logits, &args->dlogits, &args->label_rows, &args->sums));
    EBB_TRY(ebb_distill_check_teacher(env, args));
    int64_t rows = ebb_view_rows(env, logits);
    if (rows == 0) return EBB_OK;
    struct job job = job_of(env, logits, &args->targets, &args->label_rows, &args->dlogits,
                            &args->scratch, form.vocab);
    job.teacher = ebb_data<const float>(env, &args->teacher);
    job.teacher_stride = args->teacher.stride;
    job.aligned &= ebb_quads_aligned(job.teacher, job.teacher_stride, 4);
    if (writes_f32(&args->dlogits))
        launch_rows<float>(form, job, ebb_blocks(rows), ebb_stream(env));
    else
        launch_rows<ebb_bf16>(form, job, ebb_blocks(rows), ebb_stream(env));
    return finish(env, &job, rows, &args->sums, "distill");
}

enum ebb_status ebb_distill_topk_cuda(const struct ebb_op_env *env,
                                      const struct ebb_distill_topk *args)
{
    const struct ebb_view *logits = &args->logits;
    struct ebb_distill_form form;
    EBB_TRY(ebb_distill_form(env, "distill_topk", &args->keys, logits, logits->cols, &form));
    EBB_TRY(ebb_distill_check(env, "distill_topk", logits, &args->dlogits, &args->label_rows,
                              &args->sums));
    EBB_TRY(ebb_distill_check_topk(env, args));
    int64_t rows = ebb_view_rows(env, logits);
    if (rows == 0) return EBB_OK;
    struct job job = job_of(env, logits, &args->targets, &args->label_rows, &args->dlogits,
                            &args->scratch, form.vocab);
    job.ids = ebb_data<const int32_t>(env, &args->ids);
    job.ids_stride = args->ids.stride;
    job.logprobs = ebb_view_data(env, &args->logprobs);
    job.logprobs_stride = args->logprobs.stride;
    job.logprobs_bf16 = args->logprobs.dtype == EBB_BF16;
    job.k = args->ids.cols;
    if (writes_f32(&args->dlogits))
        topk_kernel<float><<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(form, job);
    else
        topk_kernel<ebb_bf16><<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(form, job);
    return finish(env, &job, rows, &args->sums, "distill_topk");
}
