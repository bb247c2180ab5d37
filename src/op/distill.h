/* Knowledge distillation: a chunk of the student's logits z against a teacher, and the gradient.
 *
 * Over the first `vocab` columns, with p = softmax(teacher's logits / tau), q = softmax(z / tau)
 * and the target y, a label's loss is
 *   l = (1 - kd_ratio) CE + kd_ratio KD,   CE = log(sum_j exp(z_j)) - z_y   (without temperature),
 *   KD = scale D(p, q),   scale = tau^2 where scale_t2 is set, else 1,
 * D one of enum ebb_divergence, with KL(a, b) = sum_j a_j log(a_j / b_j). D is the whole
 * divergence: the teacher's entropy is part of it (torchtune leaves it out of its forward KL; the
 * gradient is the same), so that it is 0 where the two agree. Each D's gradient has the form
 *   dD/dz_j = (w_j - q_j sum_k w_k) / tau,   w_j = q_j (dD/dq_j + any constant),
 * which is 0 exactly where teacher and student are the same numbers.
 *
 *   D            w_j                                     reference
 *   forward      q_j - p_j                               Hinton 2015, arXiv 1503.02531
 *   reverse      -q_j log(p_j / q_j)                     Gu 2023, 2306.08543
 *   JSD          -(1 - beta) q_j log(m_j / q_j)          Agarwal 2023, 2306.13649, equation 1
 *   skew forward (1 - beta) (q_j - p_j q_j / m_j)        Ko 2024, 2402.03898
 *   skew reverse q_j (-log(m_j / q_j) + beta (1 - q_j / m_j))
 * log(m / q) is taken of x = log(p / q) as log(b e^x + 1 - b) with the larger power outside, as
 * logaddexp does: nothing over- or underflows.
 *
 * Masked tokens. A logit of -inf has probability 0, and p log p is 0 there. Where one head masks a
 * token and the other does not, and the divergence has the logarithm of that 0, it counts as
 * EBB_DISTILL_LOG_MASKED, which keeps loss and gradient finite. Columns from `vocab` on belong to
 * neither distribution, in CE as in KD: a padded vocabulary of another size is cut to what both
 * have; their gradient is 0, and a target among them is an error.
 *
 * Sums are unnormalised: the optimizer step divides once by the step's total weight. A term whose
 * share is 0 is still reported, but neither its value nor its gradient enters the loss.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_DISTILL_H
#define EBB_OP_DISTILL_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* D(p, q), and what `beta` in [0, 1] means there. */
enum ebb_divergence {
    EBB_FORWARD_KL, /* KL(p, q); beta is not used */
    EBB_REVERSE_KL, /* KL(q, p); beta is not used */
    /* beta KL(p, m) + (1 - beta) KL(q, m), m = beta p + (1 - beta) q: beta is the teacher's share
     * of the mixture. The formula is 0 at both ends; as in TRL and Liger 0 stands for KL(p, q) and
     * 1 for KL(q, p). */
    EBB_JSD,
    /* beta KL(p, q) + (1 - beta) KL(q, p): beta is the share of the forward term (torchtune's
     * sym_kd_ratio; DistiLLM's lam is 1 - beta) */
    EBB_SYMMETRIC_KL,
    /* KL(p, m), m = beta p + (1 - beta) q: beta is the alpha of DistiLLM, what the student's
     * distribution gets of the teacher's. 0: KL(p, q); 1: 0, there is nothing to learn. */
    EBB_SKEWED_FORWARD_KL,
    /* KL(q, m), m = (1 - beta) p + beta q: what the teacher's gets of the student's. 0: KL(q, p);
     * 1: 0. */
    EBB_SKEWED_REVERSE_KL,
    EBB_DIVERGENCES
};

/* "forward KL", "generalised JSD", ... */
const char *ebb_divergence_name(enum ebb_divergence divergence);

/* The logarithm of a masked token's probability, where one is needed: exp(-100) is below the
 * smallest number of fp32. */
#define EBB_DISTILL_LOG_MASKED (-100.0f)

/* Tokens a label that a saved teacher may have. */
enum { EBB_DISTILL_TOPK = 1024 };

struct ebb_distill_keys {
    enum ebb_divergence divergence;
    double beta;        /* [0, 1] */
    double kd_ratio;    /* [0, 1]: the teacher's share of the loss; 1: no gradient of CE is made */
    double temperature; /* tau > 0 */
    bool scale_t2;      /* KD times tau^2, as Hinton has it, which keeps the size of its gradient */
    int64_t vocab;      /* columns that are compared: <= those of either head */
};

struct ebb_distill {
    struct ebb_view logits;     /* in [R, V] fp32, label rows; dlogits may overwrite it */
    struct ebb_view teacher;    /* in [R, Vt] fp32: its logits, of the same rows */
    struct ebb_view targets;    /* in [1, T] int32 */
    struct ebb_view label_rows; /* in [1, T] int32: row i is about token label_rows[row0 + i] */
    /* out [=] [R, V] storage; may be logits (fp32) or the upper half of each of its rows (bf16,
     * ebb_view_upper_half); absent: loss only */
    struct ebb_view dlogits;
    /* out [+=] struct ebb_sums as [1, sizeof] bytes: loss, its two parts, labels and correct (the
     * student's largest logit of `vocab` is the target's, the first of equals); rows are added in
     * ascending order (CUDA: in parts, then the parts). */
    struct ebb_view sums;
    struct ebb_view scratch; /* [1, ebb_distill_scratch()] bytes; absent where it is 0 */
    struct ebb_distill_keys keys;
};

/* The same with a saved teacher: of each label its k likeliest tokens, at the temperature of the
 * keys (it is not applied again).
 *
 * What is left, 1 - sum exp, becomes one more class, "all other tokens", against the student's
 * whole probability of them: every divergence is over these k + 1 classes, and the gradient is
 * exact for that. By the data processing inequality merging tokens into a class can only lower a
 * divergence: each D here is a lower bound of the full D. The forward KL lacks
 *   P KL(p(. | others), q(. | others)),   P the teacher's probability of the others,
 * and the reverse KL Q KL(q(. | others), p(. | others)) with the student's Q. Nothing tells the
 * student how the others share their probability. With k = vocab nothing is left out.
 *
 * Where rounding (bf16: a part in 500 of each logarithm) brings the sum above 1, it is divided
 * away and the others are masked; so too with k = vocab, whatever the sum. */
struct ebb_distill_topk {
    struct ebb_view logits;     /* in [R, V] fp32; written to and restored, or overwritten */
    struct ebb_view ids;        /* in [R, k] int32 < vocab, no two of a row the same */
    struct ebb_view logprobs;   /* in [R, k] bf16 or fp32, descending */
    struct ebb_view targets;    /* in [1, T] int32 */
    struct ebb_view label_rows; /* in [1, T] int32 */
    /* out [=] [R, V] storage; may be logits (fp32) or the upper half of each of its rows (bf16,
     * ebb_view_upper_half); absent: loss only */
    struct ebb_view dlogits;
    struct ebb_view sums;    /* out [+=] as above */
    struct ebb_view scratch; /* [1, ebb_distill_scratch()] bytes; absent where it is 0 */
    struct ebb_distill_keys keys;
};

int64_t ebb_distill_scratch(int64_t rows, const struct ebb_op_target *target);

enum ebb_status ebb_distill_cpu(const struct ebb_op_env *env, const struct ebb_distill *args);
enum ebb_status ebb_distill_topk_cpu(const struct ebb_op_env *env,
                                     const struct ebb_distill_topk *args);

/* With CUDA: kernels on env->stream (op/distill_cuda.cu). Targets, labels and what a saved teacher
 * says are the host's to check: a row with a target or an id outside the vocabulary has a loss of
 * NaN, and an id that stands twice in a row leaves its gradient undefined. */
enum ebb_status ebb_distill_cuda(const struct ebb_op_env *env, const struct ebb_distill *args);
enum ebb_status ebb_distill_topk_cuda(const struct ebb_op_env *env,
                                      const struct ebb_distill_topk *args);

#ifdef __cplusplus
}
#endif
#endif
