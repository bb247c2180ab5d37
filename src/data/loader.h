/* The loader: which samples make up which micro-batch, and the micro-batch itself.
 *
 * A *unit* is a sample; of preference pairs (a data set with group 2) a pair, chosen before
 * rejected; with packing a bin of samples, of pieces of them, or of whole pairs. Bins are made
 * once. Each epoch lays the units in an order of its own, a permutation drawn from Philox keyed by
 * (seed, epoch). In that order micro-batch m of rank r holds the per_device_batch_size units from
 * number (m * world + r) * per_device_batch_size on.
 *
 * With group_by_length the permutation is cut into stretches, in each of which units go from the
 * longest to the shortest, and the very longest of all changes places with the first: transformers'
 * LengthGroupedSampler. A stretch has 50 batches (per_device_batch_size * world units each), or
 * fewer where there would not be four of them otherwise.
 *
 * So a micro-batch is a pure function of (data set, options, epoch, m): the loader's whole state is
 * a place, and a resumed run reads what an uninterrupted one would.
 *
 * Every sample is seen once an epoch. The last micro-batch may be smaller; with world > 1 that of a
 * rank may be empty (tokens == 0), so that all ranks count alike.
 *
 * Targets are shifted inside each document; the last token of a document has none. A piece is a
 * document: its first token is nobody's target.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_LOADER_H
#define EBB_DATA_LOADER_H

#include "data/batch.h"
#include "data/dataset.h"
#include "data/packing.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_loader;

struct ebb_loader_options {
    bool packing;
    enum ebb_packing_strategy strategy; /* of pairs only bfd: they are never split */
    bool shuffle;
    bool group_by_length;          /* not with packing: EBB_BAD_CONFIG */
    int64_t per_device_batch_size; /* units */
    int64_t max_length;            /* tokens of a bin; with packing required, without it not used */
    uint64_t seed;
    int rank, world; /* world 0 means 1 */
};

struct ebb_loader_place {
    int64_t epoch, micro; /* of the next micro-batch; from 0 */
};

enum { EBB_LOADER_BUCKETS = 32 };

/* What a plan needs to know beforehand. Bounds hold for every epoch's order. */
struct ebb_loader_facts {
    int64_t units;            /* samples, pairs or bins */
    int64_t micros_per_epoch; /* of one rank */
    int64_t tokens_max;       /* of any micro-batch */
    int64_t docs_max;
    int64_t longest;              /* tokens of the longest document */
    int64_t tokens, labels, docs; /* of an epoch, all ranks; pieces of a sample are documents */
    double fill;                  /* tokens over micro-batches * tokens_max, all ranks */
    int64_t split;                /* samples that packing has cut into pieces */
    double square_sum;            /* sum of squared document lengths: attention's work */
    /* Document lengths: bucket i counts those of 2^i <= length < 2^(i+1). */
    int64_t bucket_docs[EBB_LOADER_BUCKETS];
    int64_t bucket_tokens[EBB_LOADER_BUCKETS];
};

/* Borrows the data set, which must outlive the loader. The caller frees. EBB_BAD_CONFIG for
 * options out of range. */
enum ebb_status ebb_loader_create(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                  const struct ebb_loader_options *options,
                                  struct ebb_loader **loader);
void ebb_loader_free(struct ebb_ctx *ctx, struct ebb_loader *loader); /* accepts NULL */

const struct ebb_loader_facts *ebb_loader_describe(const struct ebb_loader *loader); /* borrowed */
struct ebb_loader_place ebb_loader_tell(const struct ebb_loader *loader);
/* EBB_BAD_CONFIG for a place outside the epoch (a checkpoint of other data or another batch
 * size). micro == micros_per_epoch is the start of the next epoch. */
enum ebb_status ebb_loader_seek(struct ebb_ctx *ctx, struct ebb_loader *loader,
                                struct ebb_loader_place place);
/* The micro-batch at the loader's place, which moves on by one, into the next epoch at the end
 * of one. Borrowed: valid until the next call on this loader. */
enum ebb_status ebb_loader_next(struct ebb_ctx *ctx, struct ebb_loader *loader,
                                const struct ebb_batch **batch);
/* Samples of the micro-batch last returned, in the order of its documents; pieces of one sample
 * name it each. Borrowed, [docs]. */
const int64_t *ebb_loader_samples(const struct ebb_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
