/* What the cases of preference training share: a micro-batch of documents with logits of a model
 * and of its reference, the losses in double precision, and a run of the three ops that is compared
 * with them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_PREFERENCE_KIT_H
#define EBB_OP_PREFERENCE_KIT_H

#include "op_test.h"

#include "op/preference.h"

enum { KIT_LABELS = 4096, KIT_DOCS = 1024 };

struct setup {
    struct op_test t;
    struct ebb_view logits, reference_logits, targets, label_rows, doc_starts, kinds;
    struct ebb_view logprob, reference, coefficient, dlogits, sums, scratch;
    struct ebb_preference_keys keys;
    bool has_reference;
    int64_t labels, docs, tokens, vocab;
    int64_t lengths[KIT_DOCS]; /* labels of each document */
};

struct size {
    int64_t docs, cols, vocab;
    enum ebb_dtype storage;
    int64_t lengths[12]; /* of the documents, from the start again after the 12th */
};

static inline struct ebb_sums *sums_of(struct setup *s)
{
    return ebb_view_data(&s->t.env, &s->sums);
}

/* Each document has a few tokens that are not trained before its labels and one behind them. */
static inline void lay_documents(struct setup *s)
{
    int64_t token = 0, label = 0;
    for (int64_t d = 0; d < s->docs; d++) {
        op_test_set(&s->t, &s->doc_starts, 0, d, (double)token);
        op_test_set(&s->t, &s->kinds, 0, d, (double)(d % 3));
        token += 1 + d % 3;
        for (int64_t i = 0; i < s->lengths[d]; i++, token++, label++) {
            op_test_set(&s->t, &s->label_rows, 0, label, (double)token);
            op_test_set(&s->t, &s->targets, 0, token,
                        floor(op_test_uniform(&s->t) * (double)s->vocab));
        }
        token++;
    }
    op_test_set(&s->t, &s->doc_starts, 0, s->docs, (double)token);
    assert_int_equal(token, s->tokens);
    assert_int_equal(label, s->labels);
}

static inline void prepare(struct setup *s, const struct size *size)
{
    struct op_test *t = &s->t;
    memset(s, 0, sizeof *s);
    op_test_start(t);
    assert_true(size->docs <= KIT_DOCS);
    s->docs = size->docs;
    s->vocab = size->vocab;
    for (int64_t d = 0; d < s->docs; d++) {
        s->lengths[d] = size->lengths[d % 12];
        s->labels += s->lengths[d];
        s->tokens += s->lengths[d] + 2 + d % 3;
    }
    assert_true(s->labels <= KIT_LABELS);
    int64_t rows = s->labels > 0 ? s->labels : 1, cols = size->cols, tokens = s->tokens;
    s->logits = op_test_tensor(t, EBB_F32, rows, cols, cols + 5);
    s->reference_logits = op_test_tensor(t, EBB_F32, rows, cols, cols + 3);
    s->targets = op_test_tensor(t, EBB_I32, 1, tokens, tokens);
    s->label_rows = op_test_tensor(t, EBB_I32, 1, tokens, tokens);
    s->doc_starts = op_test_tensor(t, EBB_I32, 1, s->docs + 1, s->docs + 1);
    s->kinds = op_test_tensor(t, EBB_I32, 1, s->docs, s->docs);
    s->logprob = op_test_tensor(t, EBB_F32, 1, tokens, tokens);
    s->reference = op_test_tensor(t, EBB_F32, 1, tokens, tokens);
    s->coefficient = op_test_tensor(t, EBB_F32, 1, tokens, tokens);
    s->dlogits = op_test_tensor(t, size->storage, rows, cols, cols + 2);
    s->sums = op_test_tensor(t, EBB_U8, 1, sizeof(struct ebb_sums), sizeof(struct ebb_sums));
    s->scratch = op_test_scratch(t, ebb_preference_loss_scratch(s->docs, &t->target));
    t->step.tokens = tokens;
    t->step.labels = s->labels;
    t->step.docs = s->docs;
    op_test_live(&s->logits, EBB_EXTENT_LABELS, 0);
    op_test_live(&s->reference_logits, EBB_EXTENT_LABELS, 0);
    op_test_live(&s->dlogits, EBB_EXTENT_LABELS, 0);
    op_test_fill(t, &s->logits, -3, 3);
    op_test_fill(t, &s->reference_logits, -3, 3);
    op_test_fill(t, &s->targets, -100, -100);
    op_test_fill(t, &s->label_rows, -1, -1);
    op_test_fill(t, &s->logprob, 5, 6);
    op_test_fill(t, &s->reference, 5, 6);
    op_test_fill(t, &s->coefficient, 5, 6);
    op_test_fill(t, &s->dlogits, 5, 6);
    memset(sums_of(s), 0, sizeof(struct ebb_sums));
    lay_documents(s);
    s->has_reference = true;
    s->keys.beta = 0.5;
}

/* One of the losses with constants of its own. */
static inline void choose(struct setup *s, enum ebb_preference loss_type)
{
    struct ebb_preference_keys keys = {.loss_type = loss_type, .beta = 0.5};
    s->keys = keys;
    s->has_reference = loss_type != EBB_PREFERENCE_ORPO && loss_type != EBB_PREFERENCE_SIMPO;
    if (loss_type == EBB_PREFERENCE_SIMPO) s->keys.simpo_gamma = 0.7;
    if (loss_type == EBB_PREFERENCE_KTO) {
        s->keys.desirable_weight = 1.25;
        s->keys.undesirable_weight = 0.5;
    }
}

/* ---- runs ---- */

static inline struct ebb_label_logprob logprob_args(const struct setup *s, bool reference)
{
    struct ebb_label_logprob args = {.logits = reference ? s->reference_logits : s->logits,
                                     .targets = s->targets,
                                     .label_rows = s->label_rows,
                                     .logprob = reference ? s->reference : s->logprob,
                                     .vocab = s->vocab};
    return args;
}

static inline struct ebb_preference_loss loss_args(const struct setup *s)
{
    struct ebb_preference_loss args = {
        .logprob = s->logprob,
        .reference = s->has_reference ? s->reference : ebb_view_none(),
        .label_rows = s->label_rows,
        .doc_starts = s->doc_starts,
        .kinds = s->keys.loss_type == EBB_PREFERENCE_KTO ? s->kinds : ebb_view_none(),
        .coefficient = s->coefficient,
        .sums = s->sums,
        .scratch = s->scratch,
        .keys = s->keys};
    return args;
}

static inline struct ebb_label_logprob_backward backward_args(const struct setup *s)
{
    struct ebb_label_logprob_backward args = {.logits = s->logits,
                                              .targets = s->targets,
                                              .label_rows = s->label_rows,
                                              .coefficient = s->coefficient,
                                              .dlogits = s->dlogits,
                                              .vocab = s->vocab};
    return args;
}

static inline void assert_op(struct setup *s, enum ebb_op op, const void *args)
{
    if (op_test_run(&s->t, op, args) != EBB_OK) fail_msg("%s", ebb_error_text(s->t.env.ctx));
}

static inline void run_logprobs(struct setup *s)
{
    struct ebb_label_logprob policy = logprob_args(s, false), reference = logprob_args(s, true);
    assert_op(s, EBB_OP_label_logprob, &policy);
    assert_op(s, EBB_OP_label_logprob, &reference);
}

/* From empty sums. */
static inline void run_loss(struct setup *s)
{
    struct ebb_preference_loss args = loss_args(s);
    memset(sums_of(s), 0, sizeof(struct ebb_sums));
    assert_op(s, EBB_OP_preference_loss, &args);
}

static inline void run_backward(struct setup *s)
{
    struct ebb_label_logprob_backward args = backward_args(s);
    assert_op(s, EBB_OP_label_logprob_backward, &args);
}

static inline void run_all(struct setup *s)
{
    run_logprobs(s);
    run_loss(s);
    run_backward(s);
}

/* ---- the losses in double precision ---- */

static inline double oracle_logprob(const double *z, int64_t n, int64_t target)
{
    double max = z[0], sum = 0;
    for (int64_t j = 1; j < n; j++) max = fmax(max, z[j]);
    for (int64_t j = 0; j < n; j++) sum += exp(z[j] - max);
    return z[target] - max - log(sum);
}

static inline int64_t target_of(const struct setup *s, int64_t label)
{
    int64_t token = (int64_t)op_test_get(&s->t, &s->label_rows, 0, label);
    return (int64_t)op_test_get(&s->t, &s->targets, 0, token);
}

static inline void oracle_logprobs(const struct setup *s, const double *z, double *logprob)
{
    for (int64_t i = 0; i < s->labels; i++)
        logprob[i] = oracle_logprob(z + i * s->logits.cols, s->vocab, target_of(s, i));
}

/* -log sigma(x). */
static inline double minus_log_sigmoid(double x)
{
    return x > 0 ? log1p(exp(-x)) : -x + log1p(exp(x));
}

static inline double smooth(double e, double x)
{
    return (1 - e) * minus_log_sigmoid(x) + e * minus_log_sigmoid(-x);
}

/* In long double the plain form is exact enough. */
static inline double log_odds(double a)
{
    long double p = expl(fmin(a, EBB_PREFERENCE_SURE));
    return (double)(logl(p) - logl(1 - p));
}

struct oracle {
    const struct setup *s;
    const double *reference; /* [labels] or NULL */
    double z0;
    double loss;
    struct ebb_preference_sums sums;
};

static inline bool goes_by_averages(enum ebb_preference type)
{
    return type == EBB_PREFERENCE_IPO || type == EBB_PREFERENCE_ORPO ||
           type == EBB_PREFERENCE_SIMPO;
}

/* S or A of each document. */
static inline void oracle_scores(const struct setup *s, const double *logprob, double *scores)
{
    for (int64_t d = 0, label = 0; d < s->docs; d++) {
        scores[d] = 0;
        for (int64_t i = 0; i < s->lengths[d]; i++)
            scores[d] += logprob != NULL ? logprob[label++] : 0;
        if (goes_by_averages(s->keys.loss_type) && s->lengths[d] > 0)
            scores[d] /= (double)s->lengths[d];
    }
}

static inline void oracle_report(struct oracle *o, bool chosen, double score, double reference)
{
    *(chosen ? &o->sums.logps_chosen : &o->sums.logps_rejected) += score;
    *(chosen ? &o->sums.rewards_chosen : &o->sums.rewards_rejected) +=
        o->s->keys.beta * (score - reference);
}

static inline void oracle_pair(struct oracle *o, double c, double r, double c_ref, double r_ref)
{
    const struct ebb_preference_keys *keys = &o->s->keys;
    double beta = keys->beta, x = (c - r) - (c_ref - r_ref);
    switch (keys->loss_type) {
    case EBB_PREFERENCE_SIGMOID:
        o->loss += smooth(keys->label_smoothing, beta * x);
        break;
    case EBB_PREFERENCE_IPO:
        o->loss += pow(x - 1 / (2 * beta), 2);
        break;
    case EBB_PREFERENCE_HINGE:
        o->loss += fmax(0, 1 - beta * x);
        break;
    case EBB_PREFERENCE_ORPO:
        o->loss += -c + beta * minus_log_sigmoid(log_odds(c) - log_odds(r));
        o->sums.nll_chosen -= c;
        break;
    case EBB_PREFERENCE_SIMPO:
        o->loss += smooth(keys->label_smoothing, beta * (c - r) - keys->simpo_gamma);
        break;
    default:
        fail_msg("loss %d", (int)keys->loss_type);
    }
    oracle_report(o, true, c, c_ref);
    oracle_report(o, false, r, r_ref);
    o->sums.examples++;
    o->sums.margins += beta * x;
    o->sums.accuracies += x > 0;
}

static inline void oracle_example(struct oracle *o, int kind, double score, double reference)
{
    const struct ebb_preference_keys *keys = &o->s->keys;
    double x = keys->beta * (score - reference - o->z0);
    if (kind == EBB_KTO_KL) return;
    o->loss += kind == EBB_KTO_DESIRABLE ? keys->desirable_weight / (1 + exp(x))
                                         : keys->undesirable_weight / (1 + exp(-x));
    oracle_report(o, kind == EBB_KTO_DESIRABLE, score, reference);
    *(kind == EBB_KTO_DESIRABLE ? &o->sums.desirable : &o->sums.undesirable) += 1;
    o->sums.examples++;
}

/* Loss and sums of the micro-batch; z0 is what find_z0 left. */
static inline double oracle_loss(struct oracle *o, const double *logprob)
{
    const struct setup *s = o->s;
    double scores[KIT_DOCS], references[KIT_DOCS];
    oracle_scores(s, logprob, scores);
    oracle_scores(s, o->reference, references);
    o->loss = 0;
    memset(&o->sums, 0, sizeof o->sums);
    if (s->keys.loss_type == EBB_PREFERENCE_KTO) {
        for (int64_t d = 0; d < s->docs; d++)
            oracle_example(o, (int)op_test_get(&s->t, &s->kinds, 0, d), scores[d], references[d]);
    } else {
        for (int64_t d = 0; d < s->docs; d += 2)
            oracle_pair(o, scores[d], scores[d + 1], references[d], references[d + 1]);
    }
    return o->loss;
}

static inline void find_z0(struct oracle *o, const double *logprob)
{
    const struct setup *s = o->s;
    double scores[KIT_DOCS], references[KIT_DOCS], sum = 0;
    int64_t count = 0;
    oracle_scores(s, logprob, scores);
    oracle_scores(s, o->reference, references);
    for (int64_t d = 0; d < s->docs; d++) {
        if ((int)op_test_get(&s->t, &s->kinds, 0, d) != EBB_KTO_KL) continue;
        sum += scores[d] - references[d];
        count++;
    }
    o->z0 = count > 0 ? fmax(0, sum / (double)count) : 0;
}

/* ---- a run against them ---- */

static inline bool is_close(double got, double exact, double absolute)
{
    return fabs(got - exact) <= absolute + 2e-6 * fabs(exact);
}

static inline void assert_sum(const char *name, double got, double exact, double absolute)
{
    if (!is_close(got, exact, absolute)) fail_msg("%s: %.9g, wanted %.9g", name, got, exact);
}

static inline void check_sums(struct setup *s, const struct oracle *o, bool kto)
{
    const struct ebb_sums *sums = sums_of(s);
    const struct ebb_preference_sums *got = &sums->preference, *want = &o->sums;
    double slack = 2e-6 * (double)(s->labels + 1);
    assert_sum("loss", sums->loss, o->loss, slack * (1 + fabs(1 / s->keys.beta)));
    assert_int_equal(sums->labels, s->labels);
    assert_int_equal(got->examples, want->examples);
    assert_int_equal(got->accuracies, want->accuracies);
    assert_int_equal(got->desirable, want->desirable);
    assert_int_equal(got->undesirable, want->undesirable);
    assert_sum("rewards_chosen", got->rewards_chosen, want->rewards_chosen, slack);
    assert_sum("rewards_rejected", got->rewards_rejected, want->rewards_rejected, slack);
    assert_sum("margins", got->margins, want->margins, slack);
    assert_sum("logps_chosen", got->logps_chosen, want->logps_chosen, slack);
    assert_sum("logps_rejected", got->logps_rejected, want->logps_rejected, slack);
    assert_sum("nll_chosen", got->nll_chosen, want->nll_chosen, slack);
    assert_sum("kl", got->kl, kto ? o->z0 : 0, slack);
}

/* Runs the three ops and compares; the gradient of every `step`-th column by finite differences of
 * the micro-batch's loss. */
static inline void check(struct setup *s, int64_t step)
{
    double *z = op_test_doubles(&s->t, &s->logits), logprob[KIT_LABELS], reference[KIT_LABELS];
    double *reference_z = op_test_doubles(&s->t, &s->reference_logits), h = 1e-5;
    bool kto = s->keys.loss_type == EBB_PREFERENCE_KTO;
    run_all(s);
    oracle_logprobs(s, z, logprob);
    oracle_logprobs(s, reference_z, reference);
    struct oracle o = {.s = s, .reference = s->has_reference ? reference : NULL};
    if (kto) find_z0(&o, logprob);
    oracle_loss(&o, logprob);
    check_sums(s, &o, kto);
    for (int64_t i = 0; i < s->labels; i++) {
        double *row = z + i * s->logits.cols, was = logprob[i], coefficient;
        logprob[i] = was + h;
        coefficient = oracle_loss(&o, logprob);
        logprob[i] = was - h;
        coefficient = (coefficient - oracle_loss(&o, logprob)) / (2 * h);
        op_test_close(&s->t, &s->coefficient, 0, i, coefficient, 5e-6, 3e-6);
        for (int64_t j = 0; j < s->logits.cols; j += step) {
            double at = row[j], slope;
            row[j] = at + h;
            logprob[i] = oracle_logprob(row, s->vocab, target_of(s, i));
            slope = oracle_loss(&o, logprob);
            row[j] = at - h;
            logprob[i] = oracle_logprob(row, s->vocab, target_of(s, i));
            slope = (slope - oracle_loss(&o, logprob)) / (2 * h);
            row[j] = at;
            op_test_close(&s->t, &s->dlogits, i, j, j < s->vocab ? slope : 0, 5e-6,
                          j < s->vocab ? 3e-6 : 0);
        }
        logprob[i] = was;
    }
    for (int64_t i = s->labels; i < s->tokens; i++) /* behind the labels */
        op_test_close(&s->t, &s->coefficient, 0, i, 0, 0, 0);
    free(z), free(reference_z);
}

#endif
