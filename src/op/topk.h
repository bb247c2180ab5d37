/* The k likeliest tokens of each label, and the logarithms of their probabilities: what is kept of
 * a teacher for distillation later (op/distill.h: struct ebb_distill_topk reads it).
 *
 * Over the first `vocab` columns of a row z,
 *   log p_j = (z_j - max) / tau - log sum_i exp((z_i - max) / tau)
 * and the k tokens of the largest z_j, from the largest down; of equal logits the lower id first
 * (-0 equals 0). Which tokens they are and their order is exact, so both backends choose the same
 * ones. log p is made in double precision of a sum of fp32 powers, and rounded once. It is never
 * above 0, and descends also once it is bf16.
 *
 * Masked tokens: a logit of -inf has log p = -inf, and comes last.
 *
 * A row without a distribution (a logit that is NaN or +inf, or nothing but -inf) has log p = NaN
 * throughout; its ids are still k different tokens, NaN coming behind -inf.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_TOPK_H
#define EBB_OP_TOPK_H

#include "op/distill.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_topk {
    struct ebb_view logits;   /* in [R, V] fp32, label rows; left as they are */
    struct ebb_view ids;      /* out [=] [R, k] int32; 1 <= k <= vocab, EBB_DISTILL_TOPK */
    struct ebb_view logprobs; /* out [=] [R, k] fp32 or bf16 */
    double temperature;       /* tau > 0 */
    int64_t vocab;            /* columns that are tokens: <= V */
};

enum ebb_status ebb_topk_cpu(const struct ebb_op_env *env, const struct ebb_topk *args);
enum ebb_status ebb_topk_cuda(const struct ebb_op_env *env, const struct ebb_topk *args);

#ifdef __cplusplus
}
#endif
#endif
