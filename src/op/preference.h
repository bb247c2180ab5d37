/* Preference training: DPO and its family. The head runs over the labels chunk by chunk, twice:
 *   label_logprob           log p of each label's target, chunk by chunk; for the reference too
 *   preference_loss         all losses of the micro-batch, and what each label's gradient is
 *                           multiplied by
 *   label_logprob_backward  the same chunks again: the gradient by the logits
 *
 * S(d) is the sum of the log-probabilities of document d's labels, A(d) = S(d) / its labels; Sr
 * and Ar are the reference's, 0 where there is none. Without labels a document has S = A = 0.
 * Documents 2i and 2i + 1 are a pair: the chosen answer c and the rejected one r. With
 *   D = (S(c) - Sr(c)) - (S(r) - Sr(r)), and D' the same of A and Ar,
 * a pair's loss and the reward that is reported of an answer are
 *
 *   loss     l                                                  reward         reference
 *   sigmoid  smooth(beta D)                                     beta (S - Sr)  2305.18290 (DPO)
 *   ipo      (D' - 1 / (2 beta))^2                              beta (A - Ar)  2310.12036
 *   hinge    max(0, 1 - beta D)                                 beta (S - Sr)  2305.10425 (SLiC)
 *   orpo     -A(c) - beta log sigma(o(A(c)) - o(A(r)))          beta A         2403.07691
 *   simpo    smooth(beta (A(c) - A(r)) - simpo_gamma)           beta A         2405.14734
 * smooth(x) = -(1 - e) log sigma(x) - e log sigma(-x), e = label_smoothing (cDPO; 0: plain DPO),
 * o(a) = a - log(1 - exp(a)): the logarithm of the odds of a probability exp(a).
 *
 * KTO (2402.01306) has no pairs but kinds of documents:
 *   desirable    desirable_weight (1 - sigma(beta (S - Sr - z0)))
 *   undesirable  undesirable_weight (1 - sigma(beta (z0 - (S - Sr))))
 *   KL example   (an answer that belongs to another prompt) no loss: z0 = max(0, mean of S - Sr
 *                over the micro-batch's KL examples), a constant to the gradient; 0 without them
 *
 * A label's coefficient is dl/dS(d), or dl/dA(d) / labels; the gradient by its logits is
 * coefficient (onehot(target) - softmax(z)). Sums are unnormalised: the optimizer step divides once
 * by the step's pairs, or by its desirable and undesirable examples. All of this is done in double
 * and in a fixed order; the logarithms themselves are fp32.
 *
 * Against TRL (0.24), whose names these are:
 * - simpo_gamma is TRL's and the paper's gamma, which stands beside beta times the averages.
 *   SimPO's own program takes gamma_beta_ratio instead: simpo_gamma = beta gamma_beta_ratio. (TRL's
 *   default beta of 0.1 is DPO's; SimPO's authors begin with 2 to 2.5.)
 * - ipo goes by averages a token, as there; the paper has sums. The rewards and log-probabilities
 *   that are reported are averages then, as there. (TRL makes averages for all losses of a list
 *   that has ipo in it.)
 * - orpo: TRL's cross-entropy is over prompt and answer, and a mean over all tokens of a batch.
 *   Here it is over the labels, each pair's mean by itself, as the paper has it; what a label is,
 *   the data says. TRL takes log(1 - exp(a)) in fp32, where the odds of an a next to 0 are
 *   infinite; here a counts as at most EBB_PREFERENCE_SURE.
 * - An answer without labels makes averages NaN there, and KTO's nanmean leaves NaN out of the
 *   loss. Here averages are 0, and a NaN shows.
 * - kto: z0 is the micro-batch's; TRL takes the mean of the processes' means.
 * - label_smoothing is sigmoid's and simpo's, and an error elsewhere, where TRL passes over it. It
 *   goes to 0.5; from there on it would prefer the rejected answer.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_PREFERENCE_H
#define EBB_OP_PREFERENCE_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- log-probabilities of the targets ---- */

/* log p = z_target - log(sum_j exp(z_j)) over the first `vocab` columns. The result stands at the
 * label's number, whatever chunk it came from. */
struct ebb_label_logprob {
    struct ebb_view logits;     /* in [R, V] fp32, label rows */
    struct ebb_view targets;    /* in [1, T] int32 */
    struct ebb_view label_rows; /* in [1, T] int32: label i is about token label_rows[i] */
    struct ebb_view logprob;    /* out [=] [1, T] fp32: element row0 + i from row i, no others */
    int64_t vocab;              /* columns that count, <= V */
};

enum ebb_status ebb_label_logprob_cpu(const struct ebb_op_env *env,
                                      const struct ebb_label_logprob *args);

/* ---- losses ---- */

enum ebb_preference {
    EBB_PREFERENCE_SIGMOID,
    EBB_PREFERENCE_IPO,
    EBB_PREFERENCE_HINGE,
    EBB_PREFERENCE_ORPO,
    EBB_PREFERENCE_SIMPO,
    EBB_PREFERENCE_KTO,
    EBB_PREFERENCES
};

/* "sigmoid", "ipo", ... */
const char *ebb_preference_name(enum ebb_preference loss_type);

/* Kinds of a document (kto). */
enum { EBB_KTO_UNDESIRABLE, EBB_KTO_DESIRABLE, EBB_KTO_KL };

/* orpo: the largest logarithm of a probability that odds are made of. An fp32 logarithm next to 0
 * does not tell smaller distances, and odds stay finite, documents without labels included. */
#define EBB_PREFERENCE_SURE (-0x1p-24)

struct ebb_preference_keys {
    enum ebb_preference loss_type;
    double beta;             /* > 0 */
    double label_smoothing;  /* sigmoid, simpo: [0, 0.5]; 0 elsewhere */
    double simpo_gamma;      /* simpo: >= 0; without effect elsewhere */
    double desirable_weight; /* kto: >= 0; without effect elsewhere */
    double undesirable_weight;
};

struct ebb_preference_loss {
    struct ebb_view logprob;     /* in [1, T] fp32, by the label's number */
    struct ebb_view reference;   /* in [1, T] fp32: the reference's; absent: 0 (orpo and simpo have
                                    none) */
    struct ebb_view label_rows;  /* in [1, T] int32, ascending; step->labels of them count */
    struct ebb_view doc_starts;  /* in [1, D + 1] int32; step->docs documents, for pairs an even
                                    number */
    struct ebb_view kinds;       /* in [1, D] int32 (EBB_KTO_...); absent but for kto */
    struct ebb_view coefficient; /* out [=] [1, T] fp32: dl / d logprob; 0 where there is none */
    /* out [+=] struct ebb_sums as [1, sizeof] bytes: loss, labels (KL examples' too) and
     * `preference`. */
    struct ebb_view sums;
    struct ebb_view scratch; /* [1, ebb_preference_loss_scratch()] bytes; absent where it is 0 */
    struct ebb_preference_keys keys;
};

/* docs: D, the documents that there is room for. */
int64_t ebb_preference_loss_scratch(int64_t docs, const struct ebb_op_target *target);

enum ebb_status ebb_preference_loss_cpu(const struct ebb_op_env *env,
                                        const struct ebb_preference_loss *args);

/* ---- the gradient by the logits ---- */

/* d_j = coefficient ([j = target] - softmax(z)_j) for j < vocab, 0 in the columns behind. A label
 * whose coefficient is 0 has zeros, whatever its logits are. */
struct ebb_label_logprob_backward {
    struct ebb_view logits;      /* in [R, V] fp32, label rows; dlogits may overwrite it */
    struct ebb_view targets;     /* in [1, T] int32 */
    struct ebb_view label_rows;  /* in [1, T] int32 */
    struct ebb_view coefficient; /* in [1, T] fp32, by the label's number */
    /* out [=] [R, V] storage; may be logits (fp32) or the upper half of each of its rows (bf16,
     * ebb_view_upper_half) */
    struct ebb_view dlogits;
    int64_t vocab; /* as forward's */
};

enum ebb_status ebb_label_logprob_backward_cpu(const struct ebb_op_env *env,
                                               const struct ebb_label_logprob_backward *args);

/* ---- with CUDA: kernels on env->stream (op/preference_cuda.cu) ----
 * Targets, labels, documents and kinds are the host's to check: a label with a target outside the
 * vocabulary has the log-probability NaN, a document of an unknown kind a loss of NaN; so have
 * labels outside all documents a coefficient of NaN. */

enum ebb_status ebb_label_logprob_cuda(const struct ebb_op_env *env,
                                       const struct ebb_label_logprob *args);
enum ebb_status ebb_preference_loss_cuda(const struct ebb_op_env *env,
                                         const struct ebb_preference_loss *args);
enum ebb_status ebb_label_logprob_backward_cuda(const struct ebb_op_env *env,
                                                const struct ebb_label_logprob_backward *args);

#ifdef __cplusplus
}
#endif
#endif
