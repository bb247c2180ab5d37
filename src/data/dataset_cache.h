/* Tokenized data sets on disk, so that a run with the same files and options need not tokenize
 * again.
 *
 * A data set's file is DIR/HASH.ebbdata. HASH is 128 bits (two XXH3-64) of its *description*: the
 * text of everything that its samples depend on, from Ebb's version and the hashes of the
 * tokenizer's and the data's files to each option. The description is in the file too and compared
 * whole, so that two that share a hash are still told apart. What the files' own hashes (XXH3-64)
 * do not see is not seen here.
 *
 * Files are written under another name and renamed, so that a reader sees whole ones only; of
 * several runs that write the same one the last wins, with the same bytes. Sections carry hashes: a
 * file that is damaged or of another machine's byte order is passed over with a warning and made
 * again. Whatever is wrong with the directory, a run goes on without it. Nothing is ever removed:
 * that is the directory's owner's.
 *
 * Not thread-safe for one struct; any number of processes may use one directory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_DATASET_CACHE_H
#define EBB_DATA_DATASET_CACHE_H

#include "data/dataset_int.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Less text than this (1 MiB) is tokenized in a fraction of a second: a file of it would be read
 * hardly sooner, and trials with small files would fill the directory. */
enum { EBB_DATASET_CACHE_BYTES = 1 << 20 };

/* Where one data set is kept. {0} is a valid empty value: nowhere. */
struct ebb_dataset_cache {
    const struct ebb_set_job *job; /* borrowed */
    char *path;                    /* owned; NULL: nowhere */
    struct ebb_str description;
};

/* Only fails for want of memory. The job's sources are open and have formats. The caller closes. */
enum ebb_status ebb_dataset_cache_open(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                       struct ebb_dataset_cache *cache);
/* *dataset is NULL where there is none that can be used. Its `format` is the caller's to set. Only
 * fails for want of memory. */
enum ebb_status ebb_dataset_cache_read(struct ebb_ctx *ctx, const struct ebb_dataset_cache *cache,
                                       struct ebb_dataset **dataset);
/* Leaves no error behind: what goes wrong becomes a warning. */
void ebb_dataset_cache_write(struct ebb_ctx *ctx, const struct ebb_dataset_cache *cache,
                             const struct ebb_dataset *dataset);
void ebb_dataset_cache_close(struct ebb_ctx *ctx, struct ebb_dataset_cache *cache);

#ifdef __cplusplus
}
#endif
#endif
