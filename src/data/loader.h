/* The loader: which samples make up which micro-batch, and the micro-batch itself.
 *
 * A *unit* is a sample, or, with packing, a bin of samples. Bins are made once; each epoch lays the
 * units in an order of its own, a permutation drawn from Philox keyed by (seed, epoch). Micro-batch
 * m of rank r holds the per_device_batch_size units that follow (m * world + r) *
 * per_device_batch_size in that order. So a micro-batch is a pure function of (data set, options,
 * epoch, m): the loader's whole state is a place, and a resumed run reads what an uninterrupted one
 * would.
 *
 * Every sample is seen once an epoch. The last micro-batch may be smaller; with world > 1 that of a
 * rank may be empty (tokens == 0), so that all ranks count alike.
 *
 * Targets are shifted inside each document; the last token of a document has none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_LOADER_H
#define EBB_DATA_LOADER_H

#include "data/batch.h"
#include "data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_loader;

struct ebb_loader_options {
    bool packing;
    bool shuffle;
    int64_t per_device_batch_size;
    int64_t max_length; /* tokens of a bin; with packing required, without it not used */
    uint64_t seed;
    int rank, world; /* world 0 means 1 */
};

struct ebb_loader_place {
    int64_t epoch, micro; /* of the next micro-batch; from 0 */
};

enum { EBB_LOADER_BUCKETS = 32 };

/* What a plan needs to know beforehand. Bounds hold for every epoch's order. */
struct ebb_loader_facts {
    int64_t units;            /* samples or bins */
    int64_t micros_per_epoch; /* of one rank */
    int64_t tokens_max;       /* of any micro-batch */
    int64_t docs_max;
    int64_t longest;              /* tokens of the longest document */
    int64_t tokens, labels, docs; /* of an epoch, all ranks */
    double fill;                  /* tokens over micro-batches * tokens_max, all ranks */
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
/* Samples of the micro-batch last returned, in the order of its documents. Borrowed, [docs]. */
const int64_t *ebb_loader_samples(const struct ebb_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
