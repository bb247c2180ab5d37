/* Unpacking: a file compressed with gzip (RFC 1952) or zstd (RFC 8878) into memory.
 *
 * Told by its first bytes, never by its name. Several members or frames one behind the other are
 * one text, as `cat a.gz b.gz` and parallel compressors make them. What the stream carries to
 * check itself with (CRC-32, length, XXH64) is checked.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_UNPACK_H
#define EBB_UNPACK_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_compression { EBB_COMPRESSION_NONE, EBB_COMPRESSION_GZIP, EBB_COMPRESSION_ZSTD };

/* By the first bytes of a file. */
enum ebb_compression ebb_compression_of(const void *data, size_t bytes);
const char *ebb_compression_name(enum ebb_compression compression); /* "gzip"; "none" */

/* Nothing above it is unpacked, however much memory there is: a file of a few KiB can unpack to
 * terabytes. */
#define EBB_UNPACK_BYTES_MAX ((int64_t)64 << 30)

/* Unpacks the bytes of a whole file; `path` is for messages. `limit` bounds the unpacked size; 0
 * means EBB_UNPACK_BYTES_MAX or the memory that is available now, whichever is less. The caller
 * frees *out, which is there also where *out_bytes is 0; after a failure it is NULL.
 *
 * EBB_BAD_FILE, with the byte of the file that could not be read on from, for a stream that ends
 * too early or is corrupt, and for anything that stands behind its end. EBB_NO_MEMORY above the
 * limit. EBB_UNSUPPORTED for what is not compressed in either way. */
enum ebb_status ebb_unpack(struct ebb_ctx *ctx, const char *path, const void *data, size_t bytes,
                           int64_t limit, char **out, size_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
