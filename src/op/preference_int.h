/* What both backends of preference training share: the losses of a pair or an example, in double,
 * and the checks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_PREFERENCE_INT_H
#define EBB_OP_PREFERENCE_INT_H

#include <math.h>

#include "op/preference.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define EBB_PREFERENCE_FORMULA static __host__ __device__ inline
#else
#define EBB_PREFERENCE_FORMULA static inline
#endif

/* What a document's labels come to; then what each of them is multiplied by. */
struct ebb_preference_document {
    double logprob, reference; /* S, Sr */
    int64_t labels;
    double slope;
};

/* A pair or an example. */
struct ebb_preference_result {
    double loss;
    double reward_chosen, reward_rejected; /* what it has not is 0 */
    double logp_chosen, logp_rejected;
    double nll;
    int64_t pairs, desirable, undesirable; /* 1 of these, or none: a KL example */
};

/* ---- functions of one number ---- */

/* 1 / (1 + exp(-x)). */
EBB_PREFERENCE_FORMULA double ebb_sigmoid(double x)
{
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

EBB_PREFERENCE_FORMULA double ebb_log_sigmoid(double x)
{
    return (x < 0 ? x : 0.0) - log1p(exp(-fabs(x)));
}

/* log(1 - exp(a)), a < 0: either form loses all digits where the other is used (Maechler 2012). */
EBB_PREFERENCE_FORMULA double ebb_log1mexp(double a)
{
    return a > -0.6931471805599453 ? log(-expm1(a)) : log1p(-exp(a));
}

/* ---- losses ---- */

/* smooth(x) of op/preference.h, and its slope. A share of 0 adds nothing, where x is infinite
 * too. */
EBB_PREFERENCE_FORMULA double ebb_preference_smooth(double smoothing, double x, double *slope)
{
    double loss = -(1.0 - smoothing) * ebb_log_sigmoid(x);
    if (smoothing > 0) loss -= smoothing * ebb_log_sigmoid(-x);
    *slope = smoothing * ebb_sigmoid(x) - (1.0 - smoothing) * ebb_sigmoid(-x);
    return loss;
}

/* o(a) of op/preference.h, and its slope. */
EBB_PREFERENCE_FORMULA double ebb_preference_log_odds(double a, double *slope)
{
    if (a > EBB_PREFERENCE_SURE) a = EBB_PREFERENCE_SURE;
    *slope = -1.0 / expm1(a);
    return a - ebb_log1mexp(a);
}

/* A loss that goes by x, D or D' of op/preference.h, alone, and its slope. */
EBB_PREFERENCE_FORMULA double ebb_preference_margin_loss(const struct ebb_preference_keys *keys,
                                                         double x, double *slope)
{
    double beta = keys->beta, loss;
    switch (keys->loss_type) {
    case EBB_PREFERENCE_IPO:
        x -= 1.0 / (2.0 * beta);
        *slope = 2.0 * x;
        return x * x;
    case EBB_PREFERENCE_HINGE:
        loss = 1.0 - beta * x;
        if (loss < 0) loss = 0.0;
        *slope = loss > 0 ? -beta : loss; /* 0, or NaN */
        return loss;
    default: /* sigmoid and simpo */
        x *= beta;
        if (keys->loss_type == EBB_PREFERENCE_SIMPO) x -= keys->simpo_gamma;
        loss = ebb_preference_smooth(keys->label_smoothing, x, slope);
        *slope *= beta;
        return loss;
    }
}

EBB_PREFERENCE_FORMULA bool ebb_preference_averages(enum ebb_preference loss_type)
{
    return loss_type == EBB_PREFERENCE_IPO || loss_type == EBB_PREFERENCE_ORPO ||
           loss_type == EBB_PREFERENCE_SIMPO;
}

/* What S and Sr are divided by. */
EBB_PREFERENCE_FORMULA double ebb_preference_length(enum ebb_preference loss_type,
                                                    const struct ebb_preference_document *document)
{
    return ebb_preference_averages(loss_type) && document->labels > 0 ? (double)document->labels
                                                                      : 1.0;
}

/* Losses of a pair; sets its documents' slopes. */
EBB_PREFERENCE_FORMULA struct ebb_preference_result
ebb_preference_pair(const struct ebb_preference_keys *keys, struct ebb_preference_document *chosen,
                    struct ebb_preference_document *rejected)
{
    struct ebb_preference_result result;
    double chosen_length = ebb_preference_length(keys->loss_type, chosen);
    double rejected_length = ebb_preference_length(keys->loss_type, rejected);
    double c = chosen->logprob / chosen_length, r = rejected->logprob / rejected_length;
    double c_ratio = c - chosen->reference / chosen_length;
    double r_ratio = r - rejected->reference / rejected_length;
    double c_slope, r_slope;
    memset(&result, 0, sizeof result);
    if (keys->loss_type == EBB_PREFERENCE_ORPO) {
        double c_odds, r_odds, slope;
        double odds = ebb_preference_log_odds(c, &c_odds) - ebb_preference_log_odds(r, &r_odds);
        result.loss = -c + keys->beta * ebb_preference_smooth(0.0, odds, &slope);
        result.nll = -c;
        c_slope = keys->beta * slope * c_odds - 1.0;
        r_slope = -keys->beta * slope * r_odds;
    } else {
        result.loss = ebb_preference_margin_loss(keys, c_ratio - r_ratio, &c_slope);
        r_slope = -c_slope;
    }
    chosen->slope = c_slope / chosen_length;
    rejected->slope = r_slope / rejected_length;
    result.reward_chosen = keys->beta * c_ratio;
    result.reward_rejected = keys->beta * r_ratio;
    result.logp_chosen = c;
    result.logp_rejected = r;
    result.pairs = 1;
    return result;
}

/* Loss of a document by its kind (kto); sets its slope. */
EBB_PREFERENCE_FORMULA struct ebb_preference_result
ebb_preference_example(const struct ebb_preference_keys *keys, int32_t kind, double z0,
                       struct ebb_preference_document *document)
{
    struct ebb_preference_result result;
    double ratio = document->logprob - document->reference, reward = keys->beta * ratio;
    memset(&result, 0, sizeof result);
    document->slope = 0;
    if (kind == EBB_KTO_KL) return result;
    bool desirable = kind == EBB_KTO_DESIRABLE;
    double weight = desirable ? keys->desirable_weight : keys->undesirable_weight;
    double sign = desirable ? 1.0 : -1.0, x = sign * keys->beta * (ratio - z0);
    result.loss = weight * ebb_sigmoid(-x);
    document->slope = -sign * weight * keys->beta * ebb_sigmoid(x) * ebb_sigmoid(-x);
    result.desirable = desirable;
    result.undesirable = !desirable;
    result.reward_chosen = desirable ? reward : 0.0;
    result.reward_rejected = desirable ? 0.0 : reward;
    result.logp_chosen = desirable ? document->logprob : 0.0;
    result.logp_rejected = desirable ? 0.0 : document->logprob;
    return result;
}

EBB_PREFERENCE_FORMULA void ebb_preference_add(const struct ebb_preference_result *result,
                                               struct ebb_sums *sums)
{
    struct ebb_preference_sums *p = &sums->preference;
    sums->loss += result->loss;
    p->examples += result->pairs + result->desirable + result->undesirable;
    p->rewards_chosen += result->reward_chosen;
    p->rewards_rejected += result->reward_rejected;
    p->logps_chosen += result->logp_chosen;
    p->logps_rejected += result->logp_rejected;
    p->nll_chosen += result->nll;
    p->desirable += result->desirable;
    p->undesirable += result->undesirable;
    if (result->pairs == 0) return;
    p->margins += result->reward_chosen - result->reward_rejected;
    p->accuracies += result->reward_chosen > result->reward_rejected;
}

/* z0 of the sum of S - Sr over `count` KL examples; NaN stays NaN. */
EBB_PREFERENCE_FORMULA double ebb_preference_z0(double sum, int64_t count, struct ebb_sums *sums)
{
    if (count == 0) return 0.0;
    double z0 = sum / (double)count;
    if (z0 < 0) z0 = 0;
    sums->preference.kl += z0;
    sums->preference.kl_batches++;
    return z0;
}

/* ---- checks: EBB_FAILED with what is wrong ---- */

/* The views of label_logprob and of its backward, naming `op`. `vector`: logprob or coefficient. */
enum ebb_status ebb_preference_check_labels(const struct ebb_op_env *env, const char *op,
                                            const struct ebb_view *logits,
                                            const struct ebb_view *label_rows,
                                            const struct ebb_view *vector, int64_t vocab);
enum ebb_status ebb_preference_check_gradient(const struct ebb_op_env *env,
                                              const struct ebb_view *logits,
                                              const struct ebb_view *dlogits);
enum ebb_status ebb_preference_check_loss(const struct ebb_op_env *env,
                                          const struct ebb_preference_loss *args);

#ifdef __cplusplus
}
#endif
#endif
