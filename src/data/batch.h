/* A micro-batch: documents laid end to end, so that no pad token is ever computed.
 *
 * "Padded" batches (one sample a row) and packed ones are the same thing here: each sample is a
 * document with its own positions from 0, attention stays inside it, and no label crosses into
 * the next.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_BATCH_H
#define EBB_BATCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_IGNORE = -100 }; /* a target that is not trained, as in PyTorch */

/* Arrays are owned by whoever made the batch and stay valid until its next use of it. */
struct ebb_batch {
    int64_t tokens;      /* T, <= the plan's capacity */
    int64_t docs;        /* documents, <= the plan's capacity */
    int64_t labels;      /* targets that are not EBB_IGNORE */
    int64_t longest;     /* tokens of the longest document */
    int32_t *ids;        /* [T] */
    int32_t *targets;    /* [T] the token that should follow at each place, or EBB_IGNORE (already
                            shifted) */
    int32_t *positions;  /* [T] from 0 in each document */
    int32_t *doc_starts; /* [docs + 1], doc_starts[docs] == T */
    int32_t *label_rows; /* [labels] places whose target is not EBB_IGNORE, ascending */
};

/* Labels of document `doc`, the first of which is label `first` of the batch. */
static inline int64_t ebb_batch_labels(const struct ebb_batch *batch, int64_t doc, int64_t first)
{
    int64_t end = first;
    while (end < batch->labels && batch->label_rows[end] < batch->doc_starts[doc + 1]) end++;
    return end - first;
}

#ifdef __cplusplus
}
#endif
#endif
