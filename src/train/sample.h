/* The next token from logits: what temperature, top-k, top-p and the repetition penalty mean.
 *
 * In the order of transformers' generate():
 *   1. repetition penalty p (Keskar et al. 2019, arXiv 1909.05858): the logit of a token seen
 *      before is divided by p where positive, else multiplied by it; once per token
 *   2. temperature 0: the largest logit, the first of equal ones; else logits are divided by the
 *      temperature
 *   3. top-k: the k largest stay
 *   4. top-p (Holtzman et al. 2019, arXiv 1904.09751): of those, in falling order and with
 *      probabilities among them, each stays whose predecessors have less than p together; the first
 *      always does
 *   5. one of the rest by its probability
 * Of equal logits the one with the smaller id counts as larger, so that top-k keeps exactly k and
 * top_k 1 is the same as temperature 0. (transformers keeps every token that ties with the k-th.)
 *
 * The random number is a function of (seed, position) alone: Philox, 53 bits. Sums are fp64. One
 * thread at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_SAMPLE_H
#define EBB_SAMPLE_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_sample_keys {
    double temperature;        /* 0: the largest logit always */
    double top_p;              /* 0 to 1; 1: off */
    int64_t top_k;             /* 0: off */
    double repetition_penalty; /* above 0; 1: off */
    uint64_t seed;
};

struct ebb_sampler; /* the keys, which tokens were seen, and working memory */

/* A key out of its bounds is EBB_BAD_CONFIG. The caller frees. */
enum ebb_status ebb_sampler_create(struct ebb_ctx *ctx, const struct ebb_sample_keys *keys,
                                   int64_t vocab, struct ebb_sampler **sampler);
void ebb_sampler_free(struct ebb_ctx *ctx, struct ebb_sampler *sampler); /* accepts NULL */
/* Tokens [count] that the repetition penalty is for, each from 0 to below the vocabulary: the
 * prompt's, and each one generated. */
void ebb_sampler_see(struct ebb_sampler *sampler, const int32_t *ids, int64_t count);
/* The token at `position` of the sequence, from logits [V]. EBB_FAILED where a logit is NaN or
 * +infinite, or all are -infinite. */
enum ebb_status ebb_sampler_next(struct ebb_ctx *ctx, struct ebb_sampler *sampler,
                                 const float *logits, int64_t position, int32_t *id);

#ifdef __cplusplus
}
#endif
#endif
