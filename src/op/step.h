/* The step block: everything that changes from micro-batch to micro-batch or from step to step.
 *
 * The host writes struct ebb_step before it runs a program; ops on the device write struct
 * ebb_sums, and the host reads it after a sync. Programs carry neither by value, so that one
 * program serves every step (and can be captured).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_STEP_H
#define EBB_STEP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_step {
    int64_t tokens;  /* T of this micro-batch */
    int64_t docs;    /* its documents */
    int64_t labels;  /* its targets that count */
    int64_t longest; /* tokens of its longest document */
    int64_t cached;  /* decoding: tokens already in the key/value cache */
    uint64_t seed;   /* random numbers are keyed by (seed, step, micro, rank, instance) */
    uint64_t step;   /* optimizer step, from 1 */
    uint32_t micro;  /* micro-batch within the step, from 0 */
    uint32_t rank;
    int64_t first; /* 1: no micro-batch of this step ran before, gradients hold nothing */
    double learning_rate;
    double bias1, bias2;  /* AdamW: 1 - beta1^t and 1 - beta2^t */
    /* Labels of the whole step, or what a preference loss counts as `examples`: gradients and loss
     * are divided by it once. */
    double total_weight;
    double max_grad_norm; /* 0: no clipping */
};

/* What preference_loss adds up (op/preference.h). A mean is over `examples`; of KTO's chosen
 * answers, its desirable ones, over `desirable`; of its rejected ones over `undesirable`; of kl
 * over `kl_batches`. */
struct ebb_preference_sums {
    int64_t examples;   /* pairs, or desirable and undesirable examples: what divides the loss */
    int64_t accuracies; /* pairs whose chosen answer has the larger reward */
    double rewards_chosen, rewards_rejected;
    double margins; /* of pairs: the chosen answer's reward less the rejected one's */
    double logps_chosen, logps_rejected;
    double nll_chosen;              /* orpo: the part of the loss that is cross-entropy */
    int64_t desirable, undesirable; /* kto: examples of each kind */
    int64_t kl_batches;             /* kto: micro-batches with KL examples */
    double kl;                      /* and their z0 */
};

struct ebb_sums {
    double loss; /* sum of the losses of all labels, or pairs, since the last reset */
    /* Distillation (op/distill.h): the sums of loss's two parts, before they are weighted. 0
     * elsewhere: there the cross-entropy is the loss. */
    double cross_entropy, divergence;
    int64_t labels;      /* labels counted in it */
    int64_t correct;     /* of those, the largest logit was the target's */
    double norm_squared; /* of the unnormalised gradients */
    double grad_norm;    /* of the normalised gradient, before clipping */
    double factor;       /* what the sweep multiplies gradients by: clip factor / total weight */
    int64_t finite;      /* 1: gradients are finite, the sweep may change weights; 0: it must not */
    struct ebb_preference_sums preference; /* 0 but in preference training */
};

#ifdef __cplusplus
}
#endif
#endif
