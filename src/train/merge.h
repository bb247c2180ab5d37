/* Folding an adapter into the weights it was trained on.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MERGE_H
#define EBB_MERGE_H

#include "model/adapter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* W + s B A in fp32, rounded once to `dtype` (the base's own, tensor by tensor, where
 * `same_dtype`), weight by weight: needs memory for one block of rows and one pair of A and B.
 * Tensors that the adapter does not touch are copied, byte by byte where their dtype stays. Writes
 * a whole model directory that opens in transformers, with the base's side files and without the
 * adapter's, sharded above 5 GiB; it appears under its name when all of it is on disk, and a
 * failure leaves nothing of it behind (a killed process a folder ".NAME.merge-tmp" beside it, which
 * the next try removes).
 *
 * EBB_BAD_CONFIG: out_dir is a file, or a directory that is not empty. EBB_BAD_FILE: the adapter
 * lacks a tensor of a module that it names, has one of another shape than the base asks for, or one
 * that nothing uses. EBB_FAILED: a merged value is not finite, for instance in float16. */
enum ebb_status ebb_merge(struct ebb_ctx *ctx, const char *model_dir, const char *adapter_dir,
                          const char *out_dir, bool same_dtype, enum ebb_dtype dtype);
/* The same with another size of shards. */
enum ebb_status ebb_merge_sharded(struct ebb_ctx *ctx, const char *model_dir,
                                  const char *adapter_dir, const char *out_dir, bool same_dtype,
                                  enum ebb_dtype dtype, int64_t shard_bytes);

#ifdef __cplusplus
}
#endif
#endif
