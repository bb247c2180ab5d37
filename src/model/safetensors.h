/* Safetensors: read by mapping, one file or many with an index; written sharded.
 *
 * Format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape,
 * data_offsets}}, then the data (huggingface/safetensors, "Format"). Every header is checked:
 * offsets inside the file, in order, without overlap or hole, and equal to shape times dtype.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_SAFETENSORS_H
#define EBB_SAFETENSORS_H

#include "base/context.h"
#include "base/number.h"
#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_safetensors; /* an opened set of files */

struct ebb_tensor_info {
    const char *name; /* borrowed from the set */
    const char *file; /* borrowed: path of the file, for messages */
    enum ebb_dtype dtype;
    int dims;
    int64_t shape[4];
    const void *data; /* borrowed: into the mapped file, may be unaligned */
    int64_t bytes;
};

/* Opens DIR/model.safetensors, or DIR/model.safetensors.index.json with its shards. The caller
 * closes. */
enum ebb_status ebb_safetensors_open_dir(struct ebb_ctx *ctx, const char *dir,
                                         struct ebb_safetensors **set);
enum ebb_status ebb_safetensors_open_file(struct ebb_ctx *ctx, const char *path,
                                          struct ebb_safetensors **set);
void ebb_safetensors_close(struct ebb_ctx *ctx, struct ebb_safetensors *set); /* accepts NULL */
int64_t ebb_safetensors_count(const struct ebb_safetensors *set);
const struct ebb_tensor_info *ebb_safetensors_at(const struct ebb_safetensors *set, int64_t i);
/* NULL if there is none of that name. */
const struct ebb_tensor_info *ebb_safetensors_find(const struct ebb_safetensors *set,
                                                   const char *name);
/* Checks that it is there with this shape ([rows, cols], or [cols] where rows is 1 and it has
 * one dimension) and a float dtype; EBB_BAD_FILE names file, tensor, shape found and wanted. */
enum ebb_status ebb_safetensors_want(struct ebb_ctx *ctx, const struct ebb_safetensors *set,
                                     const char *name, int64_t rows, int64_t cols,
                                     const struct ebb_tensor_info **info);
/* Copies [rows, cols] of a float tensor into `out` with `stride` elements between rows,
 * converting to `dtype` (F32 or BF16; from F32, BF16, F16). */
void ebb_tensor_copy(const struct ebb_tensor_info *info, int64_t rows, int64_t cols, void *out,
                     enum ebb_dtype dtype, int64_t stride);
/* The same for rows [row0, row0 + rows), row0 counted in rows of `cols` elements. */
void ebb_tensor_copy_rows(const struct ebb_tensor_info *info, int64_t row0, int64_t rows,
                          int64_t cols, void *out, enum ebb_dtype dtype, int64_t stride);
/* The same for rows ids[0 .. count - 1], each within the tensor, one behind the other. */
void ebb_tensor_gather_rows(const struct ebb_tensor_info *info, const int32_t *ids, int64_t count,
                            int64_t cols, void *out, enum ebb_dtype dtype);

/* ---- writing ---- */

/* One tensor to write. `fill` puts rows [row0, row0 + rows) in the file's dtype into `out`,
 * called in order, a part at a time, so that a tensor that lives on a device never needs a
 * second whole copy. A tensor of one dimension is one row. */
struct ebb_tensor_source {
    const char *name; /* borrowed during the call */
    enum ebb_dtype dtype;
    int dims;
    int64_t shape[4];
    enum ebb_status (*fill)(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows, void *out);
    void *user;
};

/* Writes DIR/model.safetensors, or, above shard_bytes, DIR/model-00001-of-0000N.safetensors and
 * model.safetensors.index.json, as transformers names them. Metadata {"format": "pt"}.
 * Weight files of an earlier save in another number of shards are removed. */
enum ebb_status ebb_safetensors_save_dir(struct ebb_ctx *ctx, const char *dir,
                                         const struct ebb_tensor_source *tensors, int64_t count,
                                         int64_t shard_bytes);
/* Removes what an earlier save into DIR left of another form: all weight files of a model but those
 * of `shards` shards (0: model.safetensors alone), as ebb_safetensors_shards tells them. They would
 * be read in place of the new ones, or lie there as dead weight. */
enum ebb_status ebb_safetensors_remove_others(struct ebb_ctx *ctx, const char *dir, int64_t shards);
/* How many shards the set has that a weight file's name belongs to: 0 for model.safetensors, N for
 * model-00001-of-0000N.safetensors, -1 for any other name. */
int64_t ebb_safetensors_shards(const char *name);
/* One file. `metadata` is an array of key, value, ..., NULL; may be NULL. */
enum ebb_status ebb_safetensors_save_file(struct ebb_ctx *ctx, const char *path,
                                          const struct ebb_tensor_source *tensors, int64_t count,
                                          const char *const *metadata);
/* What such a file begins with, for who writes the tensors himself, in whatever order: `head`,
 * empty before, gets the bytes before the data, filled up with spaces to `least` (a multiple of
 * 8); starts[count]: where each tensor begins in the file. `fill` is not used. */
enum ebb_status ebb_safetensors_head(struct ebb_ctx *ctx, const char *path,
                                     const struct ebb_tensor_source *tensors, int64_t count,
                                     const char *const *metadata, int64_t least,
                                     struct ebb_str *head, int64_t *starts);

#ifdef __cplusplus
}
#endif
#endif
