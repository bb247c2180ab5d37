/* Distillation on the CPU: one thread a row. Four passes over what the two heads say of it:
 * largest logits, sums of powers, the divergence with the sum of its slopes, the gradient.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/distill.h"

#include <assert.h>
#include <math.h>

#include "op/distill_int.h"
#include "op/vector_int.h"
#include "op/vocab_int.h"

enum {
    BLOCK = 512,           /* rows whose losses are kept until they are added in order */
    TERMS = EBB_CHUNK + 16 /* a chunk, or the classes of a saved teacher */
};

/* What makes log-probabilities of a head's logits: (z - max) inverse - log_sum. */
struct head {
    float max, log_sum;
    float share; /* 1 / sum: probabilities are this times the power */
};

/* The student's head without temperature. */
struct plain_head {
    float max, share;
    int64_t target;
};

struct row_result {
    double loss, cross_entropy, divergence;
    bool correct;
};

/* Probabilities of some tokens or classes, their logarithms, and what each adds. */
struct terms {
    float p[TERMS], q[TERMS];         /* teacher, student */
    float log_p[TERMS], log_q[TERMS]; /* those of masked ones become finite */
    float value[TERMS];               /* of the divergence */
    float slope[TERMS];               /* w (op/distill.h) */
};
static_assert(EBB_DISTILL_TOPK + 1 <= TERMS, "the classes of a label fit");

/* ---- terms of a divergence ---- */

/* Natural logarithm of a normal number > 0, within 2 units in the last place; NaN stays NaN.
 * y = 2^n m, m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s = (m - 1) / (m + 1), to s^9. */
EBB_VECTOR float log_f32(float y)
{
    uint32_t bits = ebb_float_bits(y) - 0x3f3504f3u; /* of sqrt(1/2) */
    int32_t power = (int32_t)bits >> 23;
    float m = ebb_bits_float((bits & 0x007fffffu) + 0x3f3504f3u);
    float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
    float series = 0.222222222f * s2 + 0.285714286f;
    series = series * s2 + 0.4f;
    series = series * s2 + 0.666666667f;
    series = series * s2 * s + 2.0f * s;
    float n = (float)power;
    return n * 0.693359375f + (n * -2.12194440e-4f + series) + (y - y); /* 0, or NaN */
}

/* Of x = log(p / q) and the mixture m = mixed p + rest q. Both logarithms are taken relative to the
 * larger of p and q, so that they are 0 where the two are the same. */
struct mixture {
    float log_m_q; /* log(m / q) */
    float log_p_m; /* log(p / m) */
    float q_m;     /* q / m */
};

EBB_VECTOR struct mixture mix(float x, float mixed, float rest)
{
    /* Selects and no branches, which would keep loops from becoming vectors. */
    float low = x < 0 ? x : 0.0f, high = x > 0 ? x : 0.0f, e = ebb_exp(-fabsf(x));
    float larger = x < 0 ? rest : mixed, smaller = x < 0 ? mixed : rest;
    float near = 1.0f - smaller * (1.0f - e), far = larger + smaller * e;
    float y = e > 0.5f ? near : far; /* m relative to the larger: exact at 1, and close to 0 */
    float log_y = log_f32(y), q = x < 0 ? 1.0f : e;
    struct mixture m = {high + log_y, low - log_y, q / y};
    return m;
}

EBB_VECTOR void plain_terms(const struct ebb_distill_form *form, int64_t n, struct terms *t)
{
    float forward = form->forward, reverse = form->reverse;
    for (int64_t j = 0; j < n; j++) {
        float p = t->p[j], q = t->q[j], x = t->log_p[j] - t->log_q[j];
        t->value[j] = forward * p * x - reverse * q * x;
        t->slope[j] = forward * (q - p) - reverse * q * x;
    }
}

EBB_VECTOR void jsd_terms(float mixed, float rest, int64_t n, struct terms *t)
{
    for (int64_t j = 0; j < n; j++) {
        struct mixture m = mix(t->log_p[j] - t->log_q[j], mixed, rest);
        t->slope[j] = -rest * t->q[j] * m.log_m_q;
        t->value[j] = mixed * t->p[j] * m.log_p_m + t->slope[j];
    }
}

EBB_VECTOR void skewed_forward_terms(float mixed, float rest, int64_t n, struct terms *t)
{
    for (int64_t j = 0; j < n; j++) {
        float p = t->p[j];
        struct mixture m = mix(t->log_p[j] - t->log_q[j], mixed, rest);
        t->value[j] = p * m.log_p_m;
        t->slope[j] = rest * (t->q[j] - p * m.q_m);
    }
}

EBB_VECTOR void skewed_reverse_terms(float mixed, float rest, int64_t n, struct terms *t)
{
    for (int64_t j = 0; j < n; j++) {
        float q = t->q[j];
        struct mixture m = mix(t->log_p[j] - t->log_q[j], mixed, rest);
        t->value[j] = -q * m.log_m_q;
        t->slope[j] = q * (rest * (1.0f - m.q_m) - m.log_m_q);
    }
}

/* Values and slopes of n classes; the logarithms of masked ones are replaced. */
EBB_VECTOR void make_terms(const struct ebb_distill_form *form, int64_t n, struct terms *t)
{
    for (int64_t j = 0; j < n; j++) {
        t->log_p[j] = t->log_p[j] == -INFINITY ? EBB_DISTILL_LOG_MASKED : t->log_p[j];
        t->log_q[j] = t->log_q[j] == -INFINITY ? EBB_DISTILL_LOG_MASKED : t->log_q[j];
    }
    float mixed = form->mixed, rest = form->rest;
    switch (form->kind) {
    case EBB_DISTILL_PLAIN:
        plain_terms(form, n, t);
        break;
    case EBB_DISTILL_JSD:
        jsd_terms(mixed, rest, n, t);
        break;
    case EBB_DISTILL_SKEWED_FORWARD:
        skewed_forward_terms(mixed, rest, n, t);
        break;
    case EBB_DISTILL_SKEWED_REVERSE:
        skewed_reverse_terms(mixed, rest, n, t);
        break;
    }
}

/* Probabilities and their logarithms of n logits. */
EBB_VECTOR void see_head(const struct head *head, float inverse, const float *z, int64_t n,
                         float *p, float *log_p)
{
    for (int64_t j = 0; j < n; j++) {
        float scaled = (z[j] - head->max) * inverse;
        p[j] = ebb_exp(scaled) * head->share;
        log_p[j] = scaled - head->log_sum;
    }
}

EBB_VECTOR void see_row(const struct ebb_distill_form *form, const struct head *student,
                        const struct head *teacher, const float *z, const float *teacher_z,
                        int64_t n, struct terms *t)
{
    see_head(student, form->inverse, z, n, t->q, t->log_q);
    see_head(teacher, form->inverse, teacher_z, n, t->p, t->log_p);
    make_terms(form, n, t);
}

/* The divergence of a row and the sum of its slopes. */
static EBB_CLONES void sum_terms(const struct ebb_distill_form *form, const struct head *student,
                                 const struct head *teacher, const float *z, const float *teacher_z,
                                 double *divergence, double *slopes)
{
    struct terms t;
    double value = 0, slope = 0;
    for (int64_t at = 0; at < form->vocab; at += EBB_CHUNK) {
        int64_t count = form->vocab - at < EBB_CHUNK ? form->vocab - at : EBB_CHUNK;
        see_row(form, student, teacher, z + at, teacher_z + at, count, &t);
        value += (double)ebb_sum_f32(t.value, count);
        slope += (double)ebb_sum_f32(t.slope, count);
    }
    *divergence = value;
    *slopes = slope;
}

/* ---- the gradient ---- */

/* g += share of CE's gradient by the logits [at, at + n). */
EBB_VECTOR void add_plain(const struct plain_head *head, float share, const float *z, int64_t at,
                          int64_t n, float *g)
{
    for (int64_t j = 0; j < n; j++) {
        float p = ebb_exp(z[j] - head->max) * head->share;
        if (at + j == head->target) p -= 1.0f;
        g[j] += share * p;
    }
}

/* d may lie in z's row (op/vocab_int.h). */
static EBB_CLONES void write_gradient(const struct ebb_distill_form *form,
                                      const struct head *student, const struct head *teacher,
                                      const struct plain_head *plain, const float *z,
                                      const float *teacher_z, float slopes, enum ebb_dtype dtype,
                                      void *d)
{
    struct terms t;
    float g[EBB_CHUNK];
    for (int64_t at = ebb_last_chunk(form->vocab); at >= 0; at -= EBB_CHUNK) {
        int64_t count = form->vocab - at < EBB_CHUNK ? form->vocab - at : EBB_CHUNK;
        memset(g, 0, sizeof g);
        if (form->kd > 0) {
            see_row(form, student, teacher, z + at, teacher_z + at, count, &t);
            for (int64_t j = 0; j < count; j++)
                g[j] = form->kd_slope * (t.slope[j] - t.q[j] * slopes);
        }
        if (form->ce > 0) add_plain(plain, form->ce_slope, z + at, at, count, g);
        ebb_store_f32(dtype, d, at, count, g);
    }
}

/* ---- rows ---- */

static struct head head_of(float max, double sum)
{
    struct head head = {max, (float)log(sum), (float)(1.0 / sum)};
    return head;
}

/* Loss of a row from its two parts; a part without a share may be infinite. */
static double combine(const struct ebb_distill_form *form, double cross_entropy, double divergence)
{
    double loss = 0;
    if (form->ce > 0) loss += form->ce * cross_entropy;
    if (form->kd > 0) loss += form->kd * divergence;
    return loss;
}

/* The student's largest logit, whether it is the target's, and the row's cross-entropy. `sum`: of
 * the powers without temperature. */
static void plain_result(const float *z, float max, double sum, int64_t target,
                         struct row_result *result)
{
    float chosen = z[target];
    result->correct = chosen == max && !isnan(sum) && !ebb_vocab_has(z, target, max);
    result->cross_entropy = log(sum) + ((double)max - (double)chosen);
}

static struct row_result distill_row(const struct ebb_distill_form *form, const float *z,
                                     const float *teacher_z, int64_t cols, int64_t target,
                                     enum ebb_dtype dtype, void *gradient)
{
    struct row_result result;
    int64_t n = form->vocab;
    float max = ebb_vocab_max(z, n), teacher_max = ebb_vocab_max(teacher_z, n);
    double sum = ebb_vocab_sum_exp(z, n, max, form->inverse);
    double plain_sum = form->tempered ? ebb_vocab_sum_exp(z, n, max, 1.0f) : sum;
    struct head student = head_of(max, sum);
    struct head teacher =
        head_of(teacher_max, ebb_vocab_sum_exp(teacher_z, n, teacher_max, form->inverse));
    struct plain_head plain = {max, (float)(1.0 / plain_sum), target};
    double slopes;
    plain_result(z, max, plain_sum, target, &result);
    sum_terms(form, &student, &teacher, z, teacher_z, &result.divergence, &slopes);
    result.divergence *= form->scale;
    result.loss = combine(form, result.cross_entropy, result.divergence);
    if (gradient == NULL) return result;
    write_gradient(form, &student, &teacher, &plain, z, teacher_z, (float)slopes, dtype, gradient);
    ebb_vocab_clear(dtype, gradient, n, cols);
    return result;
}

static void add_rows(const struct row_result *rows, int64_t count, struct ebb_sums *sums)
{
    for (int64_t i = 0; i < count; i++) {
        sums->loss += rows[i].loss;
        sums->cross_entropy += rows[i].cross_entropy;
        sums->divergence += rows[i].divergence;
        sums->correct += rows[i].correct;
    }
    sums->labels += count;
}

enum ebb_status ebb_distill_cpu(const struct ebb_op_env *env, const struct ebb_distill *args)
{
    const struct ebb_view *logits = &args->logits, *dlogits = &args->dlogits;
    struct ebb_distill_form form;
    EBB_TRY(ebb_distill_form(env, "distill", &args->keys, logits, args->teacher.cols, &form));
    EBB_TRY(ebb_distill_check(env, "distill", logits, dlogits, &args->label_rows, &args->sums));
    EBB_TRY(ebb_distill_check_teacher(env, args));
    int64_t rows = ebb_view_rows(env, logits);
    EBB_TRY(ebb_vocab_check_labels(env, "distill", &args->targets, &args->label_rows, logits->row0,
                                   rows, form.vocab));
    bool gradient = ebb_view_present(dlogits);
    const int32_t *targets = ebb_view_data(env, &args->targets);
    const int32_t *label_rows =
        (const int32_t *)ebb_view_data(env, &args->label_rows) + logits->row0;
    for (int64_t start = 0; start < rows; start += BLOCK) {
        int64_t count = rows - start < BLOCK ? rows - start : BLOCK;
        struct row_result results[BLOCK];
#pragma omp parallel for num_threads(ebb_op_team(env, count *form.vocab)) schedule(static)
        for (int64_t i = 0; i < count; i++) {
            int64_t row = start + i;
            results[i] = distill_row(&form, ebb_view_row(env, logits, row),
                                     ebb_view_row(env, &args->teacher, row), logits->cols,
                                     targets[label_rows[row]], ebb_view_dtype(dlogits),
                                     gradient ? ebb_view_row(env, dlogits, row) : NULL);
        }
        add_rows(results, count, ebb_view_data(env, &args->sums));
    }
    return EBB_OK;
}

/* ---- a saved teacher ---- */

/* What a label's saved teacher says. */
struct topk {
    int64_t k;
    const int32_t *ids;
    const void *logprobs;
    enum ebb_dtype dtype;
};

/* The student's logits of all tokens but the k, relative to the largest of them: their shares of
 * what the others have together stay exact however little that is. */
struct others {
    float max, share; /* 1 / sum of their powers; 0: all are masked */
    float log_sum;
};

/* Takes the k out of a row. */
static void hide(const struct topk *top, float *z, float *saved)
{
    for (int64_t i = 0; i < top->k; i++) {
        saved[i] = z[top->ids[i]];
        z[top->ids[i]] = -INFINITY;
    }
}

static void restore(const struct topk *top, float *z, const float *saved)
{
    for (int64_t i = 0; i < top->k; i++) z[top->ids[i]] = saved[i];
}

/* The teacher's k + 1 classes, or k where they are the whole vocabulary. */
static void teacher_classes(const struct topk *top, bool all, struct terms *t)
{
    double sum = 0;
    ebb_load_f32(top->dtype, top->logprobs, 0, top->k, t->log_p);
    for (int64_t i = 0; i < top->k; i++) sum += exp((double)t->log_p[i]);
    bool full = all || sum >= 1;
    if (full) {
        for (int64_t i = 0; i < top->k; i++) t->log_p[i] -= (float)log(sum);
    }
    if (!all) t->log_p[top->k] = full ? -INFINITY : (float)log1p(-sum);
}

static void student_classes(const struct ebb_distill_form *form, const struct head *student,
                            const struct others *others, const float *saved, int64_t k, bool all,
                            struct terms *t)
{
    for (int64_t i = 0; i < k; i++)
        t->log_q[i] = (saved[i] - student->max) * form->inverse - student->log_sum;
    if (!all)
        t->log_q[k] =
            (others->max - student->max) * form->inverse + (others->log_sum - student->log_sum);
}

/* Probabilities of the classes from their logarithms, then terms and sums. */
static EBB_CLONES void sum_classes(const struct ebb_distill_form *form, int64_t count,
                                   struct terms *t, double *divergence, double *slopes)
{
    for (int64_t i = 0; i < count; i++) {
        t->p[i] = ebb_exp(t->log_p[i]);
        t->q[i] = ebb_exp(t->log_q[i]);
    }
    make_terms(form, count, t);
    *divergence = *slopes = 0;
    for (int64_t i = 0; i < count; i++) {
        *divergence += (double)t->value[i];
        *slopes += (double)t->slope[i];
    }
}

/* The gradient of all tokens as if they were among the others: `slope` is theirs together. d may
 * lie in z's row. */
static EBB_CLONES void write_others(const struct ebb_distill_form *form,
                                    const struct others *others, const struct plain_head *plain,
                                    const float *z, float slope, enum ebb_dtype dtype, void *d)
{
    float g[EBB_CHUNK], factor = form->kd_slope * slope * others->share;
    for (int64_t at = ebb_last_chunk(form->vocab); at >= 0; at -= EBB_CHUNK) {
        int64_t count = form->vocab - at < EBB_CHUNK ? form->vocab - at : EBB_CHUNK;
        const float *from = z + at;
        memset(g, 0, sizeof g);
        if (form->kd > 0) {
            for (int64_t j = 0; j < count; j++)
                g[j] = factor * ebb_exp((from[j] - others->max) * form->inverse);
        }
        if (form->ce > 0) add_plain(plain, form->ce_slope, from, at, count, g);
        ebb_store_f32(dtype, d, at, count, g);
    }
}

/* Then that of the k. */
static void write_topk(const struct ebb_distill_form *form, const struct topk *top,
                       const struct plain_head *plain, const float *saved, const struct terms *t,
                       float slopes, enum ebb_dtype dtype, void *d)
{
    for (int64_t i = 0; i < top->k; i++) {
        int64_t id = top->ids[i];
        float g = form->kd > 0 ? form->kd_slope * (t->slope[i] - t->q[i] * slopes) : 0;
        if (form->ce > 0) add_plain(plain, form->ce_slope, &saved[i], id, 1, &g);
        ebb_store_f32(dtype, d, id, 1, &g);
    }
}

static struct row_result topk_row(const struct ebb_distill_form *form, const struct topk *top,
                                  float *z, int64_t cols, int64_t target, enum ebb_dtype dtype,
                                  void *gradient, bool overwrites)
{
    struct row_result result;
    struct terms t;
    float saved[EBB_DISTILL_TOPK];
    int64_t n = form->vocab, k = top->k;
    bool all = k == n;
    float max = ebb_vocab_max(z, n);
    double sum = ebb_vocab_sum_exp(z, n, max, form->inverse), slopes;
    double plain_sum = form->tempered ? ebb_vocab_sum_exp(z, n, max, 1.0f) : sum;
    struct head student = head_of(max, sum);
    struct plain_head plain = {max, (float)(1.0 / plain_sum), target};
    plain_result(z, max, plain_sum, target, &result);
    hide(top, z, saved);
    float rest_max = ebb_vocab_max(z, n);
    double rest = ebb_vocab_sum_exp(z, n, rest_max, form->inverse);
    struct others others = {rest_max, rest > 0 ? (float)(1.0 / rest) : 0, (float)log(rest)};
    teacher_classes(top, all, &t);
    student_classes(form, &student, &others, saved, k, all, &t);
    sum_classes(form, all ? k : k + 1, &t, &result.divergence, &slopes);
    result.divergence *= form->scale;
    result.loss = combine(form, result.cross_entropy, result.divergence);
    if (gradient != NULL) {
        float slope = all ? 0 : t.slope[k] - t.q[k] * (float)slopes;
        write_others(form, &others, &plain, z, slope, dtype, gradient);
        write_topk(form, top, &plain, saved, &t, (float)slopes, dtype, gradient);
        ebb_vocab_clear(dtype, gradient, n, cols);
    }
    if (!overwrites) restore(top, z, saved);
    return result;
}

static bool stands_before(const int32_t *ids, int64_t i)
{
    int32_t found = 0;
    for (int64_t j = 0; j < i; j++) found |= ids[j] == ids[i];
    return found != 0;
}

/* What a saved teacher says of one label. */
static enum ebb_status check_label(const struct ebb_op_env *env, const struct topk *top,
                                   int64_t label, int64_t vocab)
{
    float logprob[EBB_DISTILL_TOPK];
    double sum = 0;
    ebb_load_f32(top->dtype, top->logprobs, 0, top->k, logprob);
    for (int64_t i = 0; i < top->k; i++) {
        int32_t id = top->ids[i];
        if (id < 0 || id >= vocab)
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "distill_topk: token %d of label %lld is outside the vocabulary of "
                            "%lld; was this teacher saved for another tokenizer?",
                            (int)id, (long long)label, (long long)vocab);
        if (stands_before(top->ids, i))
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "distill_topk: token %d stands twice at label %lld", (int)id,
                            (long long)label);
        float before = i > 0 ? logprob[i - 1] : 1e-3f; /* of 0, with room for rounding */
        if (!(logprob[i] <= before))
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "distill_topk: the log-probabilities of label %lld have %g after %g, "
                            "wanted descending ones below 0",
                            (long long)label, (double)logprob[i], i > 0 ? (double)before : 0);
        sum += exp((double)logprob[i]);
    }
    if (sum > 1.1) /* rounding to bf16 makes hardly more than 1.02 of 1 */
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "distill_topk: the probabilities of label %lld sum to %g; are these "
                        "log-probabilities?",
                        (long long)label, sum);
    return EBB_OK;
}

static struct topk topk_of(const struct ebb_op_env *env, const struct ebb_distill_topk *args,
                           int64_t row)
{
    struct topk top = {args->ids.cols, ebb_view_row(env, &args->ids, row),
                       ebb_view_row(env, &args->logprobs, row), ebb_view_dtype(&args->logprobs)};
    return top;
}

enum ebb_status ebb_distill_topk_cpu(const struct ebb_op_env *env,
                                     const struct ebb_distill_topk *args)
{
    const struct ebb_view *logits = &args->logits, *dlogits = &args->dlogits;
    struct ebb_distill_form form;
    EBB_TRY(ebb_distill_form(env, "distill_topk", &args->keys, logits, logits->cols, &form));
    EBB_TRY(
        ebb_distill_check(env, "distill_topk", logits, dlogits, &args->label_rows, &args->sums));
    EBB_TRY(ebb_distill_check_topk(env, args));
    int64_t rows = ebb_view_rows(env, logits);
    EBB_TRY(ebb_vocab_check_labels(env, "distill_topk", &args->targets, &args->label_rows,
                                   logits->row0, rows, form.vocab));
    for (int64_t i = 0; i < rows; i++) {
        struct topk top = topk_of(env, args, i);
        EBB_TRY(check_label(env, &top, logits->row0 + i, form.vocab));
    }
    bool gradient = ebb_view_present(dlogits);
    bool overwrites = ebb_gradient_overwrites(logits, dlogits);
    const int32_t *targets = ebb_view_data(env, &args->targets);
    const int32_t *label_rows =
        (const int32_t *)ebb_view_data(env, &args->label_rows) + logits->row0;
    for (int64_t start = 0; start < rows; start += BLOCK) {
        int64_t count = rows - start < BLOCK ? rows - start : BLOCK;
        struct row_result results[BLOCK];
#pragma omp parallel for num_threads(ebb_op_team(env, count *form.vocab)) schedule(static)
        for (int64_t i = 0; i < count; i++) {
            int64_t row = start + i;
            struct topk top = topk_of(env, args, row);
            results[i] = topk_row(&form, &top, ebb_view_row(env, logits, row), logits->cols,
                                  targets[label_rows[row]], ebb_view_dtype(dlogits),
                                  gradient ? ebb_view_row(env, dlogits, row) : NULL, overwrites);
        }
        add_rows(results, count, ebb_view_data(env, &args->sums));
    }
    return EBB_OK;
}
