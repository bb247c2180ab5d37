/* What the cases of distillation share: a few labels of a student and a teacher, the formulas in
 * double precision, and a run that is compared with them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_DISTILL_KIT_H
#define EBB_OP_DISTILL_KIT_H

#include "op_test.h"

#include "op/distill.h"

struct setup {
    struct op_test t;
    struct ebb_view logits, teacher, targets, label_rows, dlogits, sums, scratch, ids, logprobs;
    struct ebb_distill_keys keys;
    int64_t rows, k;
};

struct size {
    int64_t rows, cols, teacher_cols, vocab, k;
    enum ebb_dtype storage, logprobs;
};

static inline struct ebb_sums *sums_of(struct setup *s)
{
    return ebb_view_data(&s->t.env, &s->sums);
}

static inline void clear_sums(struct setup *s)
{
    memset(sums_of(s), 0, sizeof(struct ebb_sums));
}

static inline int64_t target_of(const struct setup *s, int64_t row)
{
    int64_t token = (int64_t)op_test_get(&s->t, &s->label_rows, 0, row);
    return (int64_t)op_test_get(&s->t, &s->targets, 0, token);
}

static inline void prepare(struct setup *s, const struct size *size)
{
    struct op_test *t = &s->t;
    int64_t rows = size->rows, k = size->k > 0 ? size->k : 1;
    memset(s, 0, sizeof *s);
    op_test_start(t);
    s->rows = rows;
    s->k = k;
    s->logits = op_test_tensor(t, EBB_F32, rows, size->cols, size->cols + 5);
    s->teacher = op_test_tensor(t, EBB_F32, rows, size->teacher_cols, size->teacher_cols + 3);
    s->targets = op_test_tensor(t, EBB_I32, 1, 2 * rows, 2 * rows);
    s->label_rows = op_test_tensor(t, EBB_I32, 1, 2 * rows, 2 * rows);
    s->dlogits = op_test_tensor(t, size->storage, rows, size->cols, size->cols + 2);
    s->sums = op_test_tensor(t, EBB_U8, 1, sizeof(struct ebb_sums), sizeof(struct ebb_sums));
    s->ids = op_test_tensor(t, EBB_I32, rows, k, k + 1);
    s->logprobs = op_test_tensor(t, size->logprobs, rows, k, k + 3);
    s->scratch = op_test_scratch(t, ebb_distill_scratch(rows, &t->target));
    clear_sums(s);
    t->step.tokens = 2 * rows;
    t->step.labels = rows;
    op_test_live(&s->logits, EBB_EXTENT_LABELS, 0);
    op_test_live(&s->teacher, EBB_EXTENT_LABELS, 0);
    op_test_live(&s->ids, EBB_EXTENT_LABELS, 0);
    op_test_live(&s->logprobs, EBB_EXTENT_LABELS, 0);
    op_test_fill(t, &s->logits, -5, 5);
    op_test_fill(t, &s->teacher, -5, 5);
    op_test_fill(t, &s->dlogits, 5, 6);
    for (int64_t i = 0; i < 2 * rows; i++) {
        op_test_set(t, &s->targets, 0, i, -100); /* every other token is trained */
        if (i % 2)
            op_test_set(t, &s->targets, 0, i, floor(op_test_uniform(t) * (double)size->vocab));
        op_test_set(t, &s->label_rows, 0, i, i < rows ? (double)(2 * i + 1) : -1);
    }
    s->keys.kd_ratio = 0.5;
    s->keys.beta = 0.5;
    s->keys.temperature = 1;
    s->keys.vocab = size->vocab;
}

static inline struct ebb_distill args_of(const struct setup *s)
{
    struct ebb_distill args = {.logits = s->logits,
                               .teacher = s->teacher,
                               .targets = s->targets,
                               .label_rows = s->label_rows,
                               .dlogits = s->dlogits,
                               .sums = s->sums,
                               .scratch = s->scratch,
                               .keys = s->keys};
    return args;
}

static inline struct ebb_distill_topk topk_args_of(const struct setup *s)
{
    struct ebb_distill_topk args = {.logits = s->logits,
                                    .ids = s->ids,
                                    .logprobs = s->logprobs,
                                    .targets = s->targets,
                                    .label_rows = s->label_rows,
                                    .dlogits = s->dlogits,
                                    .sums = s->sums,
                                    .scratch = s->scratch,
                                    .keys = s->keys};
    return args;
}

static inline enum ebb_status run(struct setup *s, bool saved)
{
    struct ebb_distill args = args_of(s);
    struct ebb_distill_topk topk = topk_args_of(s);
    clear_sums(s);
    return op_test_run(&s->t, saved ? EBB_OP_distill_topk : EBB_OP_distill,
                       saved ? (const void *)&topk : &args);
}

static inline void assert_runs(struct setup *s, bool saved)
{
    if (run(s, saved) != EBB_OK) fail_msg("%s", ebb_error_text(s->t.env.ctx));
}

/* ---- the formulas in double precision ---- */

/* A class that only `a` has counts as EBB_DISTILL_LOG_MASKED in b. */
static inline double kl(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
        if (a[j] > 0) sum += a[j] * (log(a[j]) - (b[j] > 0 ? log(b[j]) : -100));
    }
    return sum;
}

/* KL(of, share first + (1 - share) second). */
static inline double kl_to_mixture(const double *of, const double *first, const double *second,
                                   double share, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
        double m = share * first[j] + (1 - share) * second[j];
        if (of[j] > 0) sum += of[j] * (log(of[j]) - (m > 0 ? log(m) : -100));
    }
    return sum;
}

static inline double divergence_of(const struct ebb_distill_keys *keys, const double *p,
                                   const double *q, int64_t n)
{
    double b = keys->beta;
    switch (keys->divergence) {
    case EBB_FORWARD_KL: return kl(p, q, n);
    case EBB_REVERSE_KL: return kl(q, p, n);
    case EBB_JSD:
        if (b <= 0) return kl(p, q, n);
        if (b >= 1) return kl(q, p, n);
        return b * kl_to_mixture(p, p, q, b, n) + (1 - b) * kl_to_mixture(q, p, q, b, n);
    case EBB_SYMMETRIC_KL: return b * kl(p, q, n) + (1 - b) * kl(q, p, n);
    case EBB_SKEWED_FORWARD_KL: return kl_to_mixture(p, p, q, b, n);
    case EBB_SKEWED_REVERSE_KL: return kl_to_mixture(q, q, p, b, n);
    default:
        fail_msg("divergence %d", (int)keys->divergence);
        return 0;
    }
}

static inline void softmax(const double *z, int64_t n, double tau, double *p)
{
    double max = z[0], sum = 0;
    for (int64_t j = 1; j < n; j++) max = fmax(max, z[j]);
    for (int64_t j = 0; j < n; j++) sum += p[j] = exp((z[j] - max) / tau);
    for (int64_t j = 0; j < n; j++) p[j] /= sum;
}

static inline double cross_entropy_of(const double *z, int64_t n, int64_t target)
{
    double max = z[0], sum = 0;
    for (int64_t j = 1; j < n; j++) max = fmax(max, z[j]);
    for (int64_t j = 0; j < n; j++) sum += exp(z[j] - max);
    return log(sum) + max - z[target];
}

/* A label's teacher: logits, or ids and log-probabilities. */
struct oracle {
    const struct ebb_distill_keys *keys;
    const double *teacher;
    const double *ids, *logprobs;
    int64_t k, target;
};

enum { ORACLE_VOCAB = 4096 };

static inline double oracle_divergence(const struct oracle *o, const double *z)
{
    double p[ORACLE_VOCAB + 1], q[ORACLE_VOCAB + 1], classes[ORACLE_VOCAB + 1];
    const struct ebb_distill_keys *keys = o->keys;
    int64_t n = keys->vocab, count = n;
    double scale = keys->scale_t2 ? keys->temperature * keys->temperature : 1;
    assert_true(n <= ORACLE_VOCAB);
    softmax(z, n, keys->temperature, q);
    if (o->teacher != NULL) {
        softmax(o->teacher, n, keys->temperature, p);
        return scale * divergence_of(keys, p, q, n);
    }
    double sum = 0, others = 0;
    for (int64_t i = 0; i < o->k; i++) sum += p[i] = exp(o->logprobs[i]);
    bool full = o->k == n || sum >= 1;
    for (int64_t i = 0; full && i < o->k; i++) p[i] /= sum;
    for (int64_t i = 0; i < o->k; i++) {
        classes[i] = q[(int64_t)o->ids[i]];
        q[(int64_t)o->ids[i]] = 0;
    }
    for (int64_t j = 0; j < n; j++) others += q[j];
    count = o->k;
    if (o->k < n) {
        p[count] = full ? 0 : 1 - sum;
        classes[count++] = others;
    }
    return scale * divergence_of(keys, p, classes, count);
}

static inline double oracle_loss(const struct oracle *o, const double *z, double *ce, double *kd)
{
    *ce = cross_entropy_of(z, o->keys->vocab, o->target);
    *kd = oracle_divergence(o, z);
    return (1 - o->keys->kd_ratio) * *ce + o->keys->kd_ratio * *kd;
}

static inline double oracle_slope(const struct oracle *o, double *z, int64_t j)
{
    double at = z[j], h = 2e-5, ce, kd;
    z[j] = at + h;
    double up = oracle_loss(o, z, &ce, &kd);
    z[j] = at - h;
    double down = oracle_loss(o, z, &ce, &kd);
    z[j] = at;
    return (up - down) / (2 * h);
}

/* ---- a run against them ---- */

static inline bool is_close(double got, double exact, double absolute)
{
    return fabs(got - exact) <= absolute + 1e-6 * fabs(exact);
}

/* Runs the op and compares; every `step`-th column's gradient. */
static inline void check(struct setup *s, bool saved, int64_t step)
{
    struct ebb_distill args = args_of(s);
    struct ebb_distill_topk topk = topk_args_of(s);
    double loss = 0.5, sum_ce = 0.25, sum_kd = 0.125; /* sums are added to */
    int64_t correct = 3, n = s->keys.vocab;
    clear_sums(s);
    sums_of(s)->loss = loss;
    sums_of(s)->cross_entropy = sum_ce;
    sums_of(s)->divergence = sum_kd;
    sums_of(s)->labels = 7;
    sums_of(s)->correct = correct;
    double *z = op_test_doubles(&s->t, &s->logits), *teacher = op_test_doubles(&s->t, &s->teacher);
    double *ids = op_test_doubles(&s->t, &s->ids), *logprobs = op_test_doubles(&s->t, &s->logprobs);
    if (op_test_run(&s->t, saved ? EBB_OP_distill_topk : EBB_OP_distill,
                    saved ? (const void *)&topk : &args) != EBB_OK)
        fail_msg("%s", ebb_error_text(s->t.env.ctx));
    double tau = s->keys.temperature, slack = s->keys.scale_t2 && tau > 1 ? tau : 1;
    if (tau < 1) slack = 1 / (tau * tau); /* logarithms are larger, and so is what they round to */
    for (int64_t i = 0; i < s->rows; i++) {
        double *row = z + i * s->logits.cols, ce, kd;
        struct oracle o = {&s->keys,       saved ? NULL : teacher + i * s->teacher.cols,
                           ids + i * s->k, logprobs + i * s->k,
                           s->k,           target_of(s, i)};
        loss += oracle_loss(&o, row, &ce, &kd);
        sum_ce += ce;
        sum_kd += kd;
        int64_t best = 0;
        for (int64_t j = 0; j < n; j++) {
            if (row[j] > row[best]) best = j;
        }
        correct += best == o.target;
        for (int64_t j = 0; j < s->logits.cols; j += step) {
            double exact = j < n ? oracle_slope(&o, row, j) : 0;
            op_test_close(&s->t, &s->dlogits, i, j, exact, 3e-6, j < n ? 4e-7 * slack : 0);
        }
    }
    const struct ebb_sums *sums = sums_of(s);
    double each = 1e-6 * slack * slack * (double)s->rows;
    if (!is_close(sums->loss, loss, each) || !is_close(sums->cross_entropy, sum_ce, each) ||
        !is_close(sums->divergence, sum_kd, each))
        fail_msg("loss %.9g, wanted %.9g; cross-entropy %.9g, wanted %.9g; divergence %.9g, "
                 "wanted %.9g",
                 sums->loss, loss, sums->cross_entropy, sum_ce, sums->divergence, sum_kd);
    assert_int_equal(sums->labels, 7 + s->rows);
    assert_int_equal(sums->correct, correct);
    free(z), free(teacher), free(ids), free(logprobs);
}

#endif
