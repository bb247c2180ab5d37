/* Writing safetensors files, whole or not at all, one tensor and a part of it at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/safetensors_int.h"

enum { PART_BYTES = 8 << 20 }; /* of a tensor in memory at once; one row where a row is larger */

const char *ebb_safetensors_dtype(enum ebb_dtype dtype)
{
    static const char *const names[] = {"F32", "BF16", "F16", "I32",
                                        "I64", "U8",   "U16"}; /* order of enum ebb_dtype */
    _Static_assert(sizeof names / sizeof names[0] == EBB_DTYPE_COUNT, "a name for each dtype");
    return names[dtype];
}

/* A vector or scalar is one row. */
static int64_t rows_of(const struct ebb_tensor_source *tensor)
{
    return tensor->dims > 1 ? tensor->shape[0] : 1;
}

static int64_t row_bytes_of(const struct ebb_tensor_source *tensor)
{
    int64_t bytes = ebb_dtype_bytes(tensor->dtype);
    for (int d = tensor->dims > 1 ? 1 : 0; d < tensor->dims; d++) bytes *= tensor->shape[d];
    return bytes;
}

static int64_t bytes_of(const struct ebb_tensor_source *tensor)
{
    return rows_of(tensor) * row_bytes_of(tensor);
}

/* ---- one file ---- */

static enum ebb_status fail_json(struct ebb_ctx *ctx, const char *path)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while writing the header of '%s'",
                    path);
}

static json_t *entry_json(const struct ebb_tensor_source *tensor, int64_t begin)
{
    json_t *shape = json_array();
    for (int d = 0; shape && d < tensor->dims; d++)
        if (json_array_append_new(shape, json_integer(tensor->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", ebb_safetensors_dtype(tensor->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + bytes_of(tensor)));
}

/* starts[i]: of tensors[i], in the data behind the header. */
static enum ebb_status fill_header(struct ebb_ctx *ctx, const char *path,
                                   const struct ebb_tensor_source *tensors, const int64_t *order,
                                   int64_t count, const char *const *metadata, json_t *header,
                                   int64_t *starts)
{
    int64_t at = 0;
    if (metadata && metadata[0]) {
        json_t *meta = json_object();
        for (; meta && metadata[0]; metadata += 2)
            if (json_object_set_new(meta, metadata[0], json_string(metadata[1])) != 0) {
                json_decref(meta);
                return fail_json(ctx, path);
            }
        if (json_object_set_new(header, "__metadata__", meta) != 0) return fail_json(ctx, path);
    }
    for (int64_t i = 0; i < count; i++) {
        const struct ebb_tensor_source *tensor = &tensors[order[i]];
        if (json_object_get(header, tensor->name))
            return EBB_FAIL(ctx, EBB_FAILED, "%s: two tensors are called '%s'", path, tensor->name);
        if (json_object_set_new(header, tensor->name, entry_json(tensor, at)) != 0)
            return fail_json(ctx, path);
        starts[order[i]] = at;
        at += bytes_of(tensor);
    }
    return EBB_OK;
}

/* Length, JSON, and spaces up to a multiple of 8, so that tensors are aligned in a mapping of
 * the file; and on to `least` bytes, a multiple of 8. */
static enum ebb_status head_text(struct ebb_ctx *ctx, const json_t *header, int64_t least,
                                 struct ebb_str *head)
{
    char length[8] = {0};
    EBB_TRY(ebb_str_add(ctx, head, length, sizeof length));
    EBB_TRY(ebb_json_text(ctx, header, 0, head));
    while (head->bytes % 8 != 0 || (int64_t)head->bytes < least)
        EBB_TRY(ebb_str_add(ctx, head, " ", 1));
    for (int i = 0; i < 8; i++)
        head->data[i] = (char)(unsigned char)((uint64_t)(head->bytes - sizeof length) >> (8 * i));
    return EBB_OK;
}

static enum ebb_status write_tensor(struct ebb_ctx *ctx, struct ebb_writer *writer,
                                    const struct ebb_tensor_source *tensor, void *part,
                                    int64_t part_bytes)
{
    int64_t rows = rows_of(tensor), row_bytes = row_bytes_of(tensor);
    if (rows * row_bytes == 0) return EBB_OK;
    int64_t step = part_bytes / row_bytes;
    for (int64_t row = 0; row < rows; row += step) {
        int64_t now = rows - row < step ? rows - row : step;
        EBB_TRY(tensor->fill(ctx, tensor->user, row, now, part));
        EBB_TRY(ebb_writer_write(writer, part, (size_t)(now * row_bytes)));
    }
    return EBB_OK;
}

static enum ebb_status write_all(struct ebb_ctx *ctx, struct ebb_writer *writer,
                                 const struct ebb_str *head,
                                 const struct ebb_tensor_source *tensors, const int64_t *order,
                                 int64_t count)
{
    int64_t part_bytes = PART_BYTES;
    EBB_TRY(ebb_writer_write(writer, head->data, head->bytes));
    for (int64_t i = 0; i < count; i++)
        if (row_bytes_of(&tensors[i]) > part_bytes) part_bytes = row_bytes_of(&tensors[i]);
    void *part = ebb_mem_alloc(ctx, (size_t)part_bytes);
    if (part == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; status == EBB_OK && i < count; i++)
        status = write_tensor(ctx, writer, &tensors[order[i]], part, part_bytes);
    ebb_mem_free(ctx, part);
    return status;
}

/* Wider types first, otherwise as given, so that every tensor stays aligned to its type. */
static void make_order(const struct ebb_tensor_source *tensors, int64_t count, int64_t *order)
{
    int64_t n = 0;
    for (int64_t width = 8; width > 0; width /= 2)
        for (int64_t i = 0; i < count; i++)
            if (ebb_dtype_bytes(tensors[i].dtype) == width) order[n++] = i;
    EBB_ASSERT(n == count);
}

static enum ebb_status make_head(struct ebb_ctx *ctx, const char *path,
                                 const struct ebb_tensor_source *tensors, const int64_t *order,
                                 int64_t count, const char *const *metadata, int64_t least,
                                 struct ebb_str *head, int64_t *starts)
{
    json_t *header = json_object();
    if (header == NULL) return fail_json(ctx, path);
    enum ebb_status status =
        fill_header(ctx, path, tensors, order, count, metadata, header, starts);
    if (status == EBB_OK) status = head_text(ctx, header, least, head);
    json_decref(header);
    for (int64_t i = 0; status == EBB_OK && i < count; i++) starts[i] += (int64_t)head->bytes;
    return status;
}

enum ebb_status ebb_safetensors_head(struct ebb_ctx *ctx, const char *path,
                                     const struct ebb_tensor_source *tensors, int64_t count,
                                     const char *const *metadata, int64_t least,
                                     struct ebb_str *head, int64_t *starts)
{
    int64_t *order = ebb_mem_alloc(ctx, (size_t)(count + 1) * sizeof *order);
    if (order == NULL) return EBB_NO_MEMORY;
    make_order(tensors, count, order);
    enum ebb_status status =
        make_head(ctx, path, tensors, order, count, metadata, least, head, starts);
    ebb_mem_free(ctx, order);
    return status;
}

enum ebb_status ebb_safetensors_save_file(struct ebb_ctx *ctx, const char *path,
                                          const struct ebb_tensor_source *tensors, int64_t count,
                                          const char *const *metadata)
{
    struct ebb_writer *writer = NULL;
    struct ebb_str head = {0};
    enum ebb_status status = EBB_NO_MEMORY;
    int64_t *order = ebb_mem_alloc(ctx, (size_t)(count + 1) * sizeof *order);
    int64_t *starts = ebb_mem_alloc(ctx, (size_t)(count + 1) * sizeof *starts);
    if (order == NULL || starts == NULL) goto out;
    make_order(tensors, count, order);
    status = make_head(ctx, path, tensors, order, count, metadata, 0, &head, starts);
    if (status == EBB_OK) status = ebb_writer_open(ctx, path, &writer);
    if (status == EBB_OK) {
        status = write_all(ctx, writer, &head, tensors, order, count);
        if (status == EBB_OK)
            status = ebb_writer_commit(writer, NULL, NULL);
        else
            ebb_writer_abort(writer);
    }
out:
    ebb_str_free(ctx, &head);
    ebb_mem_free(ctx, starts);
    ebb_mem_free(ctx, order);
    return status;
}

/* ---- a directory ---- */

static const char *const pt_metadata[] = {"format", "pt", NULL};

/* How many tensors from `first` on go into one shard: as many as stay within shard_bytes, but
 * one at least. */
static int64_t shard_length(const struct ebb_tensor_source *tensors, int64_t count, int64_t first,
                            int64_t shard_bytes)
{
    int64_t n = 1, bytes = bytes_of(&tensors[first]);
    while (first + n < count && bytes + bytes_of(&tensors[first + n]) <= shard_bytes)
        bytes += bytes_of(&tensors[first + n++]);
    return n;
}

static enum ebb_status write_shards(struct ebb_ctx *ctx, const char *dir,
                                    const struct ebb_tensor_source *tensors, int64_t count,
                                    int64_t shard_bytes, int64_t shards, json_t *map)
{
    int64_t first = 0;
    for (int64_t s = 1; s <= shards; s++) {
        char name[64];
        int64_t n = shard_length(tensors, count, first, shard_bytes);
        snprintf(name, sizeof name, "model-%05lld-of-%05lld.safetensors", (long long)s,
                 (long long)shards);
        char *path = ebb_path_join(ctx, dir, name);
        if (path == NULL) return EBB_NO_MEMORY;
        enum ebb_status status =
            ebb_safetensors_save_file(ctx, path, tensors + first, n, pt_metadata);
        ebb_mem_free(ctx, path);
        EBB_TRY(status);
        for (int64_t i = first; i < first + n; i++) {
            if (json_object_get(map, tensors[i].name))
                return EBB_FAIL(ctx, EBB_FAILED, "%s: two tensors are called '%s'", dir,
                                tensors[i].name);
            if (json_object_set_new(map, tensors[i].name, json_string(name)) != 0)
                return fail_json(ctx, dir);
        }
        first += n;
    }
    return EBB_OK;
}

int64_t ebb_safetensors_shards(const char *name)
{
    long long number, shards;
    int end = 0;
    if (strcmp(name, EBB_SAFETENSORS_SINGLE) == 0) return 0;
    if (sscanf(name, "model-%5lld-of-%5lld.safetensors%n", &number, &shards, &end) != 2 ||
        end == 0 || name[end] != '\0')
        return -1;
    return number > 0 && shards > 0 ? (int64_t)shards : -1;
}

enum ebb_status ebb_safetensors_remove_others(struct ebb_ctx *ctx, const char *dir, int64_t shards)
{
    char **names;
    size_t count;
    EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count && status == EBB_OK; i++) {
        int64_t of = ebb_safetensors_shards(names[i]);
        bool index = strcmp(names[i], EBB_SAFETENSORS_INDEX) == 0;
        if (index ? shards > 0 : of < 0 || of == shards) continue;
        char *path = ebb_path_join(ctx, dir, names[i]);
        if (path == NULL)
            status = EBB_NO_MEMORY;
        else if (remove(path) != 0 && errno != ENOENT)
            status =
                EBB_FAIL(ctx, EBB_IO, "cannot remove '%s', which an earlier save left there: %s",
                         path, strerror(errno));
        ebb_mem_free(ctx, path);
    }
    ebb_dir_list_free(ctx, names, count);
    return status;
}

static enum ebb_status save_sharded(struct ebb_ctx *ctx, const char *dir, const char *index,
                                    const struct ebb_tensor_source *tensors, int64_t count,
                                    int64_t shard_bytes, int64_t total)
{
    int64_t shards = 0;
    for (int64_t first = 0; first < count; shards++)
        first += shard_length(tensors, count, first, shard_bytes);
    json_t *map = json_object();
    json_t *json =
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    enum ebb_status status = json ? write_shards(ctx, dir, tensors, count, shard_bytes, shards, map)
                                  : fail_json(ctx, dir);
    if (status == EBB_OK) status = ebb_json_save(ctx, index, json);
    json_decref(json);
    json_decref(map);
    return status == EBB_OK ? ebb_safetensors_remove_others(ctx, dir, shards) : status;
}

enum ebb_status ebb_safetensors_save_dir(struct ebb_ctx *ctx, const char *dir,
                                         const struct ebb_tensor_source *tensors, int64_t count,
                                         int64_t shard_bytes)
{
    int64_t total = 0;
    enum ebb_status status = EBB_NO_MEMORY;
    char *single = ebb_path_join(ctx, dir, EBB_SAFETENSORS_SINGLE);
    char *index = ebb_path_join(ctx, dir, EBB_SAFETENSORS_INDEX);
    if (single == NULL || index == NULL) goto out;
    for (int64_t i = 0; i < count; i++) total += bytes_of(&tensors[i]);
    if (total > shard_bytes && count > 1) {
        status = save_sharded(ctx, dir, index, tensors, count, shard_bytes, total);
    } else {
        status = ebb_safetensors_save_file(ctx, single, tensors, count, pt_metadata);
        if (status == EBB_OK) status = ebb_safetensors_remove_others(ctx, dir, 0);
    }
out:
    ebb_mem_free(ctx, single);
    ebb_mem_free(ctx, index);
    return status;
}
