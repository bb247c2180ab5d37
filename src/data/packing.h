/* Packing: samples into bins of at most `capacity` tokens, so that a micro-batch is nearly full.
 *
 * First-fit decreasing: samples from the longest to the shortest, each into the first bin that
 * still has room; never more than 11/9 of the best number of bins plus one (Johnson 1973). O(n log
 * n) with a tournament tree over the bins' room. Deterministic: ties go by sample number.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_PACKING_H
#define EBB_DATA_PACKING_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bins are ordered by their lowest sample, samples inside a bin ascend. {0} is a valid empty
 * value. */
struct ebb_packing {
    int64_t bins;
    int64_t *starts;  /* [bins + 1] where each bin begins in samples */
    int64_t *samples; /* [count] */
    int64_t *tokens;  /* [bins] */
};

/* EBB_BAD_CONFIG where a sample is longer than the capacity (naming it). The caller frees. */
enum ebb_status ebb_packing_create(struct ebb_ctx *ctx, const int64_t *lengths, int64_t count,
                                   int64_t capacity, struct ebb_packing *packing);
void ebb_packing_free(struct ebb_ctx *ctx, struct ebb_packing *packing);

#ifdef __cplusplus
}
#endif
#endif
