/* Files: read by mapping, written whole or not at all, hashed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_FILE_H
#define EBB_FILE_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file mapped read-only. {0} is a valid empty value. An empty file has data == NULL and bytes ==
 * 0. */
struct ebb_map {
    const unsigned char *data;
    size_t bytes;
};
/* Fails with EBB_IO and the path in the text; a missing file says so. */
enum ebb_status ebb_map_open(struct ebb_ctx *ctx, const char *path, struct ebb_map *map);
void ebb_map_close(struct ebb_map *map);
/* Asks the system to read these bytes of a mapped file ahead. It may not: nothing depends on it. */
void ebb_map_read_ahead(const void *data, size_t bytes);

bool ebb_file_exists(const char *path);
bool ebb_dir_exists(const char *path);
/* Creates the directory and its parents; an existing one is fine. */
enum ebb_status ebb_dir_create(struct ebb_ctx *ctx, const char *path);
/* A new, empty directory of a name that nobody has, under TMPDIR or /tmp. The caller removes it and
 * frees *path. */
enum ebb_status ebb_dir_create_temp(struct ebb_ctx *ctx, char **path);
/* Removes a directory tree; a missing one is fine. */
enum ebb_status ebb_dir_remove(struct ebb_ctx *ctx, const char *path);
/* Names in a directory without "." and "..", sorted by byte value. The caller frees names and
 * array. */
enum ebb_status ebb_dir_list(struct ebb_ctx *ctx, const char *path, char ***names, size_t *count);
void ebb_dir_list_free(struct ebb_ctx *ctx, char **names, size_t count); /* both; accepts NULL */
enum ebb_status ebb_file_copy(struct ebb_ctx *ctx, const char *from, const char *to);
/* "dir/name"; the caller frees. NULL after EBB_NO_MEMORY. */
char *ebb_path_join(struct ebb_ctx *ctx, const char *dir, const char *name);

/* A file being written: bytes go to a temporary neighbour; commit flushes it to disk and renames it
 * into place, abort removes it. A full disk or any other failure leaves nothing behind under the
 * final name. */
struct ebb_writer;
enum ebb_status ebb_writer_open(struct ebb_ctx *ctx, const char *path, struct ebb_writer **writer);
enum ebb_status ebb_writer_write(struct ebb_writer *writer, const void *data, size_t bytes);
/* Both free the writer. Commit reports size and XXH3-64 hash of what was written; either pointer
 * may be NULL. */
enum ebb_status ebb_writer_commit(struct ebb_writer *writer, int64_t *bytes, uint64_t *hash);
void ebb_writer_abort(struct ebb_writer *writer); /* accepts NULL */
/* The whole of a small file in one call. */
enum ebb_status ebb_file_write(struct ebb_ctx *ctx, const char *path, const void *data,
                               size_t bytes);
enum ebb_status ebb_file_hash(struct ebb_ctx *ctx, const char *path, int64_t *bytes,
                              uint64_t *hash);
/* Renames directory `from` to `to` and flushes the parent, so that after a crash one of both names
 * is whole. Fails if `to` exists and is not an empty directory. */
enum ebb_status ebb_dir_commit(struct ebb_ctx *ctx, const char *from, const char *to);
/* Puts directory `from` under the name of directory `to`, in one step where the file system can:
 * the name then always leads to one of both, whole. The old one is removed. */
enum ebb_status ebb_dir_replace(struct ebb_ctx *ctx, const char *from, const char *to);
/* Adds bytes at the end of an open file, all of them or none: of those that did not all fit, what
 * fitted is taken back. `what` is their name in the message ("a line"), `path` the file's. */
enum ebb_status ebb_file_append(struct ebb_ctx *ctx, int fd, const char *path, const char *what,
                                const void *data, size_t bytes);
uint64_t ebb_hash_bytes(const void *data, size_t bytes); /* XXH3-64 */

#ifdef __cplusplus
}
#endif
#endif
