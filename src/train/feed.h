/* The feed: what a micro-batch has beside its tokens, by its objective (model/objective.h): a
 * saved teacher's tokens, a reference's log-probabilities, kinds of documents.
 *
 * A feed belongs to one data set. What it borrows must outlive it. One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_FEED_H
#define EBB_TRAIN_FEED_H

#include "data/loader.h"
#include "data/teacher.h"
#include "train/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Log-probabilities of a data set's labels by a model that is not in memory any more. */
struct ebb_reference_set {
    int64_t *offsets; /* [samples + 1] the first label of each sample; owned, as is the next */
    float *logprobs;  /* [labels] */
};

/* Runs the whole loader through an engine whose objective is LOGPROB, and leaves it at its start.
 * The loader packs no pieces of samples. {0} is empty; the caller frees. */
enum ebb_status ebb_reference_create(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                     const struct ebb_dataset *dataset, struct ebb_loader *loader,
                                     int stop_fd, struct ebb_reference_set *reference);
void ebb_reference_free(struct ebb_ctx *ctx, struct ebb_reference_set *reference);

struct ebb_feed;

/* What it is fed from; NULL: nothing of that kind. All borrowed. */
struct ebb_feed_sources {
    const struct ebb_dataset *dataset; /* of kinds: its `desirable` */
    struct ebb_teacher *teacher;
    const struct ebb_reference_set *reference;
};

enum ebb_status ebb_feed_create(struct ebb_ctx *ctx, const struct ebb_engine *engine,
                                const struct ebb_feed_sources *sources, struct ebb_feed **feed);
void ebb_feed_free(struct ebb_ctx *ctx, struct ebb_feed *feed); /* accepts NULL */

/* Puts what belongs to the micro-batch that the loader returned last into the engine, for its next
 * run. */
enum ebb_status ebb_feed_put(struct ebb_feed *feed, struct ebb_engine *engine,
                             struct ebb_loader *loader, const struct ebb_batch *batch);

/* A hash of a saved teacher's rows that ebb_feed_put put last, for this micro-batch. */
uint64_t ebb_feed_hash(const struct ebb_feed *feed, const struct ebb_batch *batch);
/* The kinds of that micro-batch's documents, where the objective has any. */
const int32_t *ebb_feed_kinds(const struct ebb_feed *feed);

#ifdef __cplusplus
}
#endif
#endif
