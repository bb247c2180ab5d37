/* Reading safetensors files. The format and what is checked: model/safetensors.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/safetensors_int.h"

enum { HEADER_MOST = 100000000 }; /* the format's own limit */

struct ebb_safetensors {
    char *name; /* directory or file, for messages */
    int64_t files;
    struct ebb_map *maps; /* [files] */
    char **paths;         /* [files] */
    int64_t count, room;
    struct ebb_tensor_info *items; /* [count], by name once all files are read; names owned */
};

/* ---- one header ---- */

static enum ebb_status read_dtype(struct ebb_ctx *ctx, const char *path, const char *name,
                                  const json_t *entry, enum ebb_dtype *dtype)
{
    /* What the format has and Ebb has not: an error too, but another one than for a word that
     * means nothing. */
    static const char *const foreign[] = {"F64",     "I8",      "I16",     "U32",     "U64",
                                          "BOOL",    "C64",     "F8_E4M3", "F8_E5M2", "F8_E8M0",
                                          "F6_E2M3", "F6_E3M2", "F4"};
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (text == NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' has no 'dtype'", path, name);
    for (int d = 0; d < EBB_DTYPE_COUNT; d++)
        if (strcmp(ebb_safetensors_dtype((enum ebb_dtype)d), text) == 0) {
            *dtype = (enum ebb_dtype)d;
            return EBB_OK;
        }
    for (size_t f = 0; f < sizeof foreign / sizeof foreign[0]; f++)
        if (strcmp(foreign[f], text) == 0)
            return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                            "%s: tensor '%s' has dtype %s, which this version of ebb does not read",
                            path, name, text);
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' has the unknown dtype '%s'", path, name,
                    text);
}

/* The shape, and the bytes that follow from it. */
static enum ebb_status read_shape(struct ebb_ctx *ctx, const char *path, const json_t *entry,
                                  struct ebb_tensor_info *info, int64_t *wanted)
{
    enum { MOST = sizeof info->shape / sizeof info->shape[0] };
    const json_t *shape = json_object_get(entry, "shape");
    size_t dims = json_array_size(shape);
    if (!json_is_array(shape))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' has no list 'shape'", path, info->name);
    if (dims > MOST)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: tensor '%s' has %zu dimensions, at most %d are supported", path,
                        info->name, dims, (int)MOST);
    info->dims = (int)dims;
    *wanted = ebb_dtype_bytes(info->dtype);
    for (size_t d = 0; d < dims; d++) {
        const json_t *size = json_array_get(shape, d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: tensor '%s' has a 'shape' with an entry that is no size", path,
                            info->name);
        info->shape[d] = json_integer_value(size);
        if (__builtin_mul_overflow(*wanted, info->shape[d], wanted))
            return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' has a 'shape' larger than any file",
                            path, info->name);
    }
    return EBB_OK;
}

/* `data` is the first byte behind the header, `bytes` how many there are. */
static enum ebb_status read_entry(struct ebb_ctx *ctx, const char *path, const json_t *entry,
                                  const unsigned char *data, int64_t bytes,
                                  struct ebb_tensor_info *info)
{
    int64_t wanted = 0;
    if (!json_is_object(entry))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: the header's entry '%s' is not an object", path,
                        info->name);
    EBB_TRY(read_dtype(ctx, path, info->name, entry, &info->dtype));
    EBB_TRY(read_shape(ctx, path, entry, info, &wanted));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' needs 'data_offsets' of two integers",
                        path, info->name);
    int64_t b = json_integer_value(begin), e = json_integer_value(end);
    if (b < 0 || e < b)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' has 'data_offsets' %lld to %lld", path,
                        info->name, (long long)b, (long long)e);
    if (e > bytes)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: tensor '%s' ends at byte %lld of the data, but the file has only "
                        "%lld\nthe file is cut off: "
                        "copy or download it again",
                        path, info->name, (long long)e, (long long)bytes);
    if (e - b != wanted)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: tensor '%s' has %lld bytes, but its shape and dtype need %lld", path,
                        info->name, (long long)(e - b), (long long)wanted);
    info->data = data + b;
    info->bytes = e - b;
    return EBB_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct ebb_tensor_info *x = a, *y = b;
    if (x->data != y->data)
        return (const unsigned char *)x->data < (const unsigned char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) -
           (x->bytes < y->bytes); /* an empty tensor before the one that starts there */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ebb_tensor_info *)a)->name,
                  ((const struct ebb_tensor_info *)b)->name);
}

/* The file's tensors must fill its data from the first byte to the last. */
static enum ebb_status check_places(struct ebb_ctx *ctx, const char *path,
                                    struct ebb_tensor_info *items, int64_t count,
                                    const unsigned char *data, int64_t bytes)
{
    int64_t at = 0;
    if (count) qsort(items, (size_t)count, sizeof *items, by_place);
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = (const unsigned char *)items[i].data - data;
        if (begin < at)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: tensors '%s' and '%s' overlap at byte %lld of the data", path,
                            items[i - 1].name, items[i].name, (long long)begin);
        if (begin > at)
            return EBB_FAIL(
                ctx, EBB_BAD_FILE,
                "%s: nothing describes bytes %lld to %lld of the data, before tensor '%s'", path,
                (long long)at, (long long)begin, items[i].name);
        at = begin + items[i].bytes;
    }
    if (at != bytes)
        return EBB_FAIL(
            ctx, EBB_BAD_FILE,
            "%s: nothing describes bytes %lld to %lld of the data, behind the last tensor", path,
            (long long)at, (long long)bytes);
    return EBB_OK;
}

static enum ebb_status read_header(struct ebb_ctx *ctx, const char *path, const struct ebb_map *map,
                                   json_t **header, int64_t *start)
{
    uint64_t length = 0;
    *header = NULL;
    if (map->bytes >= 8 && memcmp(map->data, "version ", 8) == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: this is a Git LFS pointer, not the file itself\nfetch the file with "
                        "'git lfs pull'",
                        path);
    if (map->bytes < 8)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %zu bytes are too few for a safetensors file", path,
                        map->bytes);
    for (int i = 0; i < 8; i++) length |= (uint64_t)map->data[i] << (8 * i);
    if (length > HEADER_MOST)
        return EBB_FAIL(
            ctx, EBB_BAD_FILE,
            "%s: the header claims %llu bytes, the format allows %d\nis this a safetensors file?",
            path, (unsigned long long)length, HEADER_MOST);
    if (length > map->bytes - 8)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: the header claims %llu bytes, but only %zu follow\nthe file is cut "
                        "off: copy or download it "
                        "again",
                        path, (unsigned long long)length, map->bytes - 8);
    if (length == 0 || map->data[8] != '{')
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: the header must be a JSON object and start with '{'", path);
    EBB_TRY(ebb_json_parse(ctx, path, 0, (const char *)map->data + 8, (size_t)length, header));
    *start = 8 + (int64_t)length;
    return EBB_OK;
}

static struct ebb_tensor_info *add_item(struct ebb_ctx *ctx, struct ebb_safetensors *set)
{
    if (set->count == set->room) {
        int64_t room = set->room ? 2 * set->room : 256;
        void *grown = ebb_mem_realloc(ctx, set->items, (size_t)room * sizeof *set->items);
        if (grown == NULL) return NULL;
        set->items = grown;
        set->room = room;
    }
    memset(&set->items[set->count], 0, sizeof *set->items);
    return &set->items[set->count++];
}

static enum ebb_status read_entries(struct ebb_ctx *ctx, struct ebb_safetensors *set,
                                    const char *path, json_t *header, const unsigned char *data,
                                    int64_t bytes)
{
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        struct ebb_tensor_info *info = add_item(ctx, set);
        if (info == NULL) return EBB_NO_MEMORY;
        info->file = path;
        info->name = ebb_mem_strdup(ctx, name);
        if (info->name == NULL) return EBB_NO_MEMORY;
        EBB_TRY(read_entry(ctx, path, entry, data, bytes, info));
    }
    return EBB_OK;
}

static enum ebb_status read_file(struct ebb_ctx *ctx, struct ebb_safetensors *set, const char *path)
{
    struct ebb_map *map = &set->maps[set->files];
    int64_t first = set->count, start = 0;
    json_t *header;
    EBB_TRY(ebb_map_open(ctx, path, map));
    set->paths[set->files++] = NULL;
    char *kept = ebb_mem_strdup(ctx, path);
    if (kept == NULL) return EBB_NO_MEMORY;
    set->paths[set->files - 1] = kept;
    EBB_TRY(read_header(ctx, kept, map, &header, &start));
    const unsigned char *data = map->data + start;
    int64_t bytes = (int64_t)map->bytes - start;
    enum ebb_status status = read_entries(ctx, set, kept, header, data, bytes);
    json_decref(header);
    if (status != EBB_OK) return status;
    struct ebb_tensor_info *items = set->items == NULL ? NULL : set->items + first;
    return check_places(ctx, kept, items, set->count - first, data, bytes);
}

/* ---- sets of files ---- */

static enum ebb_status create(struct ebb_ctx *ctx, const char *name, int64_t files,
                              struct ebb_safetensors **set)
{
    *set = NULL;
    struct ebb_safetensors *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->name = ebb_mem_strdup(ctx, name);
    made->maps = ebb_mem_alloc(ctx, (size_t)files * sizeof *made->maps);
    made->paths = ebb_mem_alloc(ctx, (size_t)files * sizeof *made->paths);
    if (made->name == NULL || made->maps == NULL || made->paths == NULL) {
        ebb_safetensors_close(ctx, made);
        return EBB_NO_MEMORY;
    }
    *set = made;
    return EBB_OK;
}

static enum ebb_status sort_by_name(struct ebb_ctx *ctx, struct ebb_safetensors *set)
{
    if (set->count) qsort(set->items, (size_t)set->count, sizeof *set->items, by_name);
    for (int64_t i = 1; i < set->count; i++)
        if (strcmp(set->items[i - 1].name, set->items[i].name) == 0)
            return EBB_FAIL(ctx, EBB_BAD_FILE, "tensor '%s' is in both '%s' and '%s'",
                            set->items[i].name, set->items[i - 1].file, set->items[i].file);
    return EBB_OK;
}

enum ebb_status ebb_safetensors_open_file(struct ebb_ctx *ctx, const char *path,
                                          struct ebb_safetensors **set)
{
    EBB_TRY(create(ctx, path, 1, set));
    enum ebb_status status = read_file(ctx, *set, path);
    if (status == EBB_OK) status = sort_by_name(ctx, *set);
    if (status != EBB_OK) {
        ebb_safetensors_close(ctx, *set);
        *set = NULL;
    }
    return status;
}

/* Opens `file` of `dir` unless the set has it already. */
static enum ebb_status read_shard(struct ebb_ctx *ctx, struct ebb_safetensors *set,
                                  const char *index, const char *dir, const char *file)
{
    if (file == NULL || file[0] == '\0' || file[0] == '.' || strchr(file, '/'))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is no file name beside the index", index,
                        file ? file : "");
    char *path = ebb_path_join(ctx, dir, file);
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    int64_t f = 0;
    while (f < set->files && strcmp(set->paths[f], path) != 0) f++;
    if (f == set->files) {
        if (!ebb_file_exists(path))
            status = EBB_FAIL(ctx, EBB_BAD_FILE,
                              "%s: shard '%s' is missing\ncopy or download the model again", index,
                              file);
        else
            status = read_file(ctx, set, path);
    }
    ebb_mem_free(ctx, path);
    return status;
}

/* Every name of the index must be in the file that the index says. */
static enum ebb_status check_index(struct ebb_ctx *ctx, const struct ebb_safetensors *set,
                                   const char *index, json_t *map)
{
    const char *name;
    json_t *file;
    json_object_foreach(map, name, file)
    {
        const struct ebb_tensor_info *info = ebb_safetensors_find(set, name);
        const char *at = info ? strrchr(info->file, '/') : NULL;
        if (info == NULL || strcmp(at ? at + 1 : info->file, json_string_value(file)) != 0)
            return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' should be in '%s', but is %s%s",
                            index, name, json_string_value(file), info ? "in " : "not there",
                            info ? info->file : "");
    }
    return EBB_OK;
}

static enum ebb_status read_index(struct ebb_ctx *ctx, const char *dir, const char *index,
                                  json_t *json, struct ebb_safetensors **set)
{
    json_t *map = json_object_get(json, "weight_map"), *file;
    const char *name;
    if (!json_is_object(map) || json_object_size(map) == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no object 'weight_map' of tensor names and files",
                        index);
    EBB_TRY(create(ctx, dir, (int64_t)json_object_size(map), set));
    json_object_foreach(map, name, file)
        EBB_TRY(read_shard(ctx, *set, index, dir, json_string_value(file)));
    EBB_TRY(sort_by_name(ctx, *set));
    return check_index(ctx, *set, index, map);
}

static enum ebb_status open_index(struct ebb_ctx *ctx, const char *dir, const char *index,
                                  struct ebb_safetensors **set)
{
    json_t *json;
    EBB_TRY(ebb_json_load(ctx, index, &json));
    enum ebb_status status = read_index(ctx, dir, index, json, set);
    json_decref(json);
    if (status != EBB_OK) {
        ebb_safetensors_close(ctx, *set);
        *set = NULL;
    }
    return status;
}

static enum ebb_status fail_no_weights(struct ebb_ctx *ctx, const char *dir)
{
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    bool pickle = false;
    for (size_t i = 0; i < sizeof pickles / sizeof pickles[0]; i++) {
        char *path = ebb_path_join(ctx, dir, pickles[i]);
        if (path == NULL) return EBB_NO_MEMORY;
        pickle = pickle || ebb_file_exists(path);
        ebb_mem_free(ctx, path);
    }
    return EBB_FAIL(
        ctx, EBB_BAD_FILE,
        "'%s' has no weights: neither model.safetensors nor model.safetensors.index.json%s", dir,
        pickle ? "\nits pytorch_model.bin must be converted to safetensors first (save_pretrained "
                 "does)"
               : "");
}

enum ebb_status ebb_safetensors_open_dir(struct ebb_ctx *ctx, const char *dir,
                                         struct ebb_safetensors **set)
{
    *set = NULL;
    enum ebb_status status = EBB_NO_MEMORY;
    char *single = ebb_path_join(ctx, dir, EBB_SAFETENSORS_SINGLE);
    char *index = ebb_path_join(ctx, dir, EBB_SAFETENSORS_INDEX);
    if (single && index) {
        if (ebb_file_exists(single))
            status = ebb_safetensors_open_file(ctx, single, set);
        else if (ebb_file_exists(index))
            status = open_index(ctx, dir, index, set);
        else
            status = fail_no_weights(ctx, dir);
    }
    ebb_mem_free(ctx, single);
    ebb_mem_free(ctx, index);
    return status;
}

void ebb_safetensors_close(struct ebb_ctx *ctx, struct ebb_safetensors *set)
{
    if (set == NULL) return;
    for (int64_t i = 0; i < set->count; i++)
        ebb_mem_free(ctx, (void *)(uintptr_t)set->items[i].name);
    for (int64_t f = 0; f < set->files; f++) {
        ebb_map_close(&set->maps[f]);
        ebb_mem_free(ctx, set->paths[f]);
    }
    ebb_mem_free(ctx, set->items);
    ebb_mem_free(ctx, set->maps);
    ebb_mem_free(ctx, set->paths);
    ebb_mem_free(ctx, set->name);
    ebb_mem_free(ctx, set);
}

/* ---- look-up ---- */

int64_t ebb_safetensors_count(const struct ebb_safetensors *set)
{
    return set->count;
}

const struct ebb_tensor_info *ebb_safetensors_at(const struct ebb_safetensors *set, int64_t i)
{
    EBB_ASSERT(i >= 0 && i < set->count);
    return &set->items[i];
}

const struct ebb_tensor_info *ebb_safetensors_find(const struct ebb_safetensors *set,
                                                   const char *name)
{
    struct ebb_tensor_info key = {.name = name};
    if (set->count == 0) return NULL;
    return bsearch(&key, set->items, (size_t)set->count, sizeof *set->items, by_name);
}

static void show_shape(const struct ebb_tensor_info *info, struct ebb_str *out, struct ebb_ctx *ctx)
{
    enum ebb_status status = ebb_str_addf(ctx, out, "[");
    for (int d = 0; status == EBB_OK && d < info->dims; d++)
        status = ebb_str_addf(ctx, out, d ? ", %lld" : "%lld", (long long)info->shape[d]);
    if (status == EBB_OK) status = ebb_str_addf(ctx, out, "]");
    (void)status; /* a message with less in it is still the message */
}

enum ebb_status ebb_safetensors_want(struct ebb_ctx *ctx, const struct ebb_safetensors *set,
                                     const char *name, int64_t rows, int64_t cols,
                                     const struct ebb_tensor_info **info)
{
    const struct ebb_tensor_info *found = ebb_safetensors_find(set, name);
    *info = NULL;
    if (found == NULL)
        return rows == 1 ? EBB_FAIL(ctx, EBB_BAD_FILE,
                                    "%s: tensor '%s' is missing, wanted with shape [%lld]",
                                    set->name, name, (long long)cols)
                         : EBB_FAIL(ctx, EBB_BAD_FILE,
                                    "%s: tensor '%s' is missing, wanted with shape [%lld, %lld]",
                                    set->name, name, (long long)rows, (long long)cols);
    bool matrix = found->dims == 2 && found->shape[0] == rows && found->shape[1] == cols;
    bool vector = found->dims == 1 && rows == 1 && found->shape[0] == cols;
    if (!matrix && !vector) {
        struct ebb_str shape = {0};
        show_shape(found, &shape, ctx);
        enum ebb_status status;
        if (rows == 1)
            status = EBB_FAIL(ctx, EBB_BAD_FILE,
                              "%s: tensor '%s' has shape %s, config.json wants [%lld]", found->file,
                              name, shape.data ? shape.data : "", (long long)cols);
        else
            status = EBB_FAIL(ctx, EBB_BAD_FILE,
                              "%s: tensor '%s' has shape %s, config.json wants [%lld, %lld]",
                              found->file, name, shape.data ? shape.data : "", (long long)rows,
                              (long long)cols);
        ebb_str_free(ctx, &shape);
        return status;
    }
    if (found->dtype != EBB_F32 && found->dtype != EBB_BF16 && found->dtype != EBB_F16)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: tensor '%s' has dtype %s; this version of ebb reads float32, bfloat16 "
                        "and float16 weights",
                        found->file, name, ebb_dtype_name(found->dtype));
    *info = found;
    return EBB_OK;
}

/* ---- copying ---- */

/* One row of n elements; `from` may be unaligned, which memcpy of each element says without
 * cost. */
static void row_to_f32(const unsigned char *from, enum ebb_dtype dtype, int64_t n, float *out)
{
    if (dtype == EBB_F32) {
        memcpy(out, from, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        out[i] = dtype == EBB_BF16 ? ebb_from_bf16(bits) : ebb_from_f16(bits);
    }
}

static void row_to_bf16(const unsigned char *from, enum ebb_dtype dtype, int64_t n, uint16_t *out)
{
    if (dtype == EBB_BF16) {
        memcpy(out, from, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float value;
        if (dtype == EBB_F32)
            memcpy(&value, from + 4 * i, sizeof value);
        else
            row_to_f32(from + 2 * i, dtype, 1, &value);
        out[i] = ebb_to_bf16(value);
    }
}

/* Row `row` of `cols` elements, in `dtype`. */
static void copy_row(const struct ebb_tensor_info *info, int64_t row, int64_t cols, void *out,
                     enum ebb_dtype dtype)
{
    const unsigned char *from =
        (const unsigned char *)info->data + row * cols * ebb_dtype_bytes(info->dtype);
    if (dtype == EBB_F32)
        row_to_f32(from, info->dtype, cols, (float *)out);
    else
        row_to_bf16(from, info->dtype, cols, (uint16_t *)out);
}

static void check_rows(const struct ebb_tensor_info *info, int64_t row0, int64_t rows, int64_t cols,
                       enum ebb_dtype dtype)
{
    EBB_ASSERT(dtype == EBB_F32 || dtype == EBB_BF16);
    EBB_ASSERT(info->dtype == EBB_F32 || info->dtype == EBB_BF16 || info->dtype == EBB_F16);
    EBB_ASSERT(row0 >= 0 && (row0 + rows) * cols * ebb_dtype_bytes(info->dtype) <= info->bytes);
}

void ebb_tensor_copy_rows(const struct ebb_tensor_info *info, int64_t row0, int64_t rows,
                          int64_t cols, void *out, enum ebb_dtype dtype, int64_t stride)
{
    int64_t out_bytes = stride * ebb_dtype_bytes(dtype);
    check_rows(info, row0, rows, cols, dtype);
    EBB_ASSERT(stride >= cols);
#pragma omp parallel for schedule(static) if (rows * cols > 65536)
    for (int64_t r = 0; r < rows; r++)
        copy_row(info, row0 + r, cols, (char *)out + r * out_bytes, dtype);
}

void ebb_tensor_gather_rows(const struct ebb_tensor_info *info, const int32_t *ids, int64_t count,
                            int64_t cols, void *out, enum ebb_dtype dtype)
{
    int64_t out_bytes = cols * ebb_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++) check_rows(info, ids[i], 1, cols, dtype);
#pragma omp parallel for schedule(static) if (count * cols > 65536)
    for (int64_t i = 0; i < count; i++)
        copy_row(info, ids[i], cols, (char *)out + i * out_bytes, dtype);
}

void ebb_tensor_copy(const struct ebb_tensor_info *info, int64_t rows, int64_t cols, void *out,
                     enum ebb_dtype dtype, int64_t stride)
{
    ebb_tensor_copy_rows(info, 0, rows, cols, out, dtype, stride);
}
