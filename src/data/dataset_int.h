/* What dataset.c, dataset_block.c, dataset_build.c and dataset_cache.c share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_DATASET_INT_H
#define EBB_DATA_DATASET_INT_H

#include "data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A source that was opened. */
struct ebb_set_source {
    const struct ebb_dataset_source *wanted; /* borrowed from the options */
    struct ebb_records records;
    int64_t record_count; /* of the split, as max_samples bounds it */
    struct ebb_format_env env;
    const struct ebb_format *format;
};

/* What a data set is made from. */
struct ebb_set_job {
    const struct ebb_tokenizer *tokenizer;
    const struct ebb_dataset_options *options;
    struct ebb_set_source *sources; /* [options->source_count] */
    int64_t group;                  /* samples of a record: 2 of a pair */
    bool unpaired;                  /* each sample has a verdict */
};

/* How often samples are there: `whole` times, and of one share once more. */
struct ebb_set_weight {
    int64_t whole;
    double share; /* in [0, 1) */
};
struct ebb_set_weight ebb_set_weight(const struct ebb_dataset_source *source);

/* Zeroed arrays of these sizes. The caller frees. */
enum ebb_status ebb_dataset_create(struct ebb_ctx *ctx, int64_t samples, int64_t stored,
                                   bool desirable, struct ebb_dataset **dataset);
/* Fills tokens, labels and longest from the samples. */
void ebb_dataset_sum(struct ebb_dataset *set);

/* ---- blocks (dataset_block.c) ---- */

struct ebb_set_sample {
    int64_t length;
    int64_t record; /* its number, from 1 */
    bool desirable;
};

struct ebb_set_overlong {
    int64_t count, first, first_tokens, longest; /* first: index of the record */
};

struct ebb_set_block {
    int64_t source, first, count; /* records [first, first + count) of the source */
    int64_t bytes;                /* of their text */

    enum ebb_status status; /* of what stopped it; EBB_OK: nothing did */
    bool done;
    struct ebb_ids ids;
    struct ebb_str trained; /* a byte a token */
    struct ebb_set_sample *samples;
    int64_t sample_count, sample_room;
    int64_t *refused; /* indices of records that are unusable */
    int64_t refused_count, refused_room;
    int64_t dropped, truncated, passed;
    bool chat;
    struct ebb_set_overlong overlong;
};

/* What a thread works with. */
struct ebb_set_worker {
    struct ebb_encoder *encoder;
    struct ebb_rendering rendering;
};

/* Renders and tokenizes the block's records. Those that are unusable are noted, and their errors
 * stay in the context, which the caller clears; where they are more than may be, it stops there.
 * Any other failure stops it. Thread-safe: a block and a worker belong to one thread. */
enum ebb_status ebb_set_block_run(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                  struct ebb_set_worker *worker, struct ebb_set_block *block);
/* Back to what it was before it ran. */
void ebb_set_block_clear(struct ebb_ctx *ctx, struct ebb_set_block *block);
void ebb_set_worker_free(struct ebb_ctx *ctx, struct ebb_set_worker *worker);

/* ---- all of it (dataset_build.c) ---- */

/* Tokenizes all records of all sources. What is counted and refused is in the data set; `format` is
 * the caller's. The caller frees. */
enum ebb_status ebb_dataset_build(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                  struct ebb_dataset **dataset);

/* ---- messages (dataset.c) ---- */

/* Fails with the error that `ctx` holds, an unusable record's, and says what max_bad_records has to
 * do with it. */
enum ebb_status ebb_dataset_refuse(struct ebb_ctx *ctx, const struct ebb_dataset_options *options);

#ifdef __cplusplus
}
#endif
#endif
