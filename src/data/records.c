/* Finding a split's files and the records in them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/records.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- splits: "train", "train[:90%]" ---- */

struct split {
    char name[64];
    double from, to; /* records, or percent; to < 0: the end */
    bool from_percent, to_percent;
};

static enum ebb_status bad_split(struct ebb_ctx *ctx, const char *text)
{
    return EBB_FAIL(
        ctx, EBB_BAD_CONFIG,
        "the split '%s' can't be read: 'train', 'train[:90%%]' or 'train[100:200]' is wanted",
        text);
}

/* One end of a slice: digits and perhaps '%'. Empty leaves *value. */
static bool read_end(const char *text, size_t bytes, double *value, bool *percent)
{
    char digits[24];
    int64_t number;
    if (bytes == 0) return true;
    *percent = text[bytes - 1] == '%';
    if (*percent) bytes--;
    if (bytes == 0 || bytes >= sizeof digits || text[0] == '-') return false;
    memcpy(digits, text, bytes);
    digits[bytes] = '\0';
    if (!ebb_text_int64(digits, &number) || number < 0 || (*percent && number > 100)) return false;
    *value = (double)number;
    return true;
}

static enum ebb_status read_split(struct ebb_ctx *ctx, const char *text, struct split *split)
{
    *split = (struct split){.to = -1};
    if (text == NULL || text[0] == '\0') text = "train";
    size_t bytes = strlen(text), name = strcspn(text, "[");
    if (name == 0 || name >= sizeof split->name) return bad_split(ctx, text);
    memcpy(split->name, text, name);
    if (name == bytes) return EBB_OK;
    const char *colon = memchr(text + name, ':', bytes - name);
    if (text[bytes - 1] != ']' || colon == NULL) return bad_split(ctx, text);
    const char *from = text + name + 1, *end = text + bytes - 1;
    if (!read_end(from, (size_t)(colon - from), &split->from, &split->from_percent) ||
        !read_end(colon + 1, (size_t)(end - colon - 1), &split->to, &split->to_percent))
        return bad_split(ctx, text);
    return EBB_OK;
}

static int64_t slice_place(double value, bool percent, int64_t count)
{
    double place = percent ? round(value * (double)count / 100.0) : value;
    return place > (double)count ? count : (int64_t)place;
}

/* ---- files ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes > end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

static bool is_data_file(const char *name)
{
    if (name[0] == '.' || strcmp(name, "dataset_info.json") == 0 ||
        strcmp(name, "dataset_infos.json") == 0)
        return false;
    return ends_with(name, ".json") || ends_with(name, ".jsonl") || ends_with(name, ".ndjson");
}

/* Does the name begin with the word: "train-00000.jsonl" with "train"? */
static bool begins_with(const char *name, const char *word)
{
    size_t bytes = strlen(word);
    return strncmp(name, word, bytes) == 0 && name[bytes] != '\0' &&
           strchr("-_.", name[bytes]) != NULL;
}

static bool names_a_split(const char *name)
{
    static const char *const words[] = {"train",      "training",   "test",  "testing", "eval",
                                        "evaluation", "validation", "valid", "val",     "dev"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (begins_with(name, words[i])) return true;
    return false;
}

static enum ebb_status add_file(struct ebb_ctx *ctx, struct ebb_records *records, const char *dir,
                                const char *name)
{
    size_t bytes = (size_t)(records->file_count + 1) * sizeof *records->files;
    struct ebb_record_file *grown = ebb_mem_realloc(ctx, records->files, bytes);
    if (grown == NULL) return EBB_NO_MEMORY;
    records->files = grown;
    char *path = dir == NULL ? ebb_mem_strdup(ctx, name) : ebb_path_join(ctx, dir, name);
    if (path == NULL) return EBB_NO_MEMORY;
    records->files[records->file_count++] = (struct ebb_record_file){.path = path};
    return EBB_OK;
}

/* Adds the files of one directory that carry the split's name, or, with `unnamed`, those that
 * carry none. `seen` lists what is there, for messages. */
static enum ebb_status add_dir(struct ebb_ctx *ctx, struct ebb_records *records, const char *dir,
                               const char *split, bool unnamed, struct ebb_str *seen)
{
    char **names = NULL;
    size_t count = 0;
    if (!ebb_dir_exists(dir)) return EBB_OK;
    EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count; i++) {
        if (status == EBB_OK && is_data_file(names[i])) {
            bool wanted = unnamed ? !names_a_split(names[i]) : begins_with(names[i], split);
            if (wanted) status = add_file(ctx, records, dir, names[i]);
            if (status == EBB_OK && !unnamed)
                status = ebb_str_addf(ctx, seen, "%s%s", seen->bytes == 0 ? "" : ", ", names[i]);
        }
        ebb_mem_free(ctx, names[i]);
    }
    ebb_mem_free(ctx, names);
    return status;
}

static enum ebb_status find_in_dir(struct ebb_ctx *ctx, struct ebb_records *records,
                                   const char *dir, const char *split)
{
    struct ebb_str seen = {0};
    char *inner = ebb_path_join(ctx, dir, "data");
    if (inner == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    for (int unnamed = 0; unnamed < 2 && status == EBB_OK && records->file_count == 0; unnamed++) {
        if (unnamed && strcmp(split, "train") != 0) break;
        status = add_dir(ctx, records, dir, split, unnamed, &seen);
        if (status == EBB_OK) status = add_dir(ctx, records, inner, split, unnamed, &seen);
    }
    if (status == EBB_OK && records->file_count == 0)
        status = EBB_FAIL(ctx, EBB_BAD_CONFIG,
                          "%s: no .json or .jsonl file of the split '%s' is here (here are: %s)",
                          dir, split, seen.bytes == 0 ? "none at all" : seen.data);
    ebb_mem_free(ctx, inner);
    ebb_str_free(ctx, &seen);
    return status;
}

/* What people have data in and Ebb does not read, by the end of the file's name. */
static enum ebb_status refuse_known_format(struct ebb_ctx *ctx, const char *path)
{
    static const struct {
        const char *end, *name;
    } formats[] = {{".csv", "CSV"},     {".tsv", "TSV"}, {".parquet", "Parquet"},
                   {".arrow", "Arrow"}, {".gz", "gzip"}, {".zst", "zstd"}};
    size_t bytes = strlen(path);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t end = strlen(formats[i].end);
        if (bytes > end && strcasecmp(path + bytes - end, formats[i].end) == 0)
            return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                            "%s: %s is not read\na data set is a .json or .jsonl file; "
                            "Dataset.to_json of Hugging Face's datasets writes one",
                            path, formats[i].name);
    }
    return EBB_OK;
}

static enum ebb_status find_files(struct ebb_ctx *ctx, struct ebb_records *records,
                                  const char *path, const char *split)
{
    if (ebb_dir_exists(path)) return find_in_dir(ctx, records, path, split);
    if (!ebb_file_exists(path))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "%s: no such file or directory\na data set is a .json or .jsonl file, or a "
                        "directory of them",
                        path);
    EBB_TRY(refuse_known_format(ctx, path));
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    if (strcmp(split, "train") != 0 && !begins_with(name, split))
        return EBB_FAIL(
            ctx, EBB_BAD_CONFIG,
            "%s: a single file has only the split 'train' (or what it is named), not '%s'", path,
            split);
    return add_file(ctx, records, NULL, path);
}

/* ---- records ---- */

static enum ebb_status add_span(struct ebb_ctx *ctx, struct ebb_records *records,
                                struct ebb_span text, int64_t file)
{
    if (records->span_count == records->span_room) {
        int64_t room = records->span_room * 2 + 256;
        struct ebb_record_span *grown =
            ebb_mem_realloc(ctx, records->spans, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        records->spans = grown;
        records->span_room = room;
    }
    records->spans[records->span_count++] = (struct ebb_record_span){text, file};
    return EBB_OK;
}

/* Says where an array is broken: the parser knows line and column. */
static enum ebb_status broken_array(struct ebb_ctx *ctx, const struct ebb_record_file *file)
{
    json_t *json;
    EBB_TRY(
        ebb_json_parse(ctx, file->path, 0, (const char *)file->map.data, file->map.bytes, &json));
    json_decref(json);
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: not an array of records", file->path);
}

static enum ebb_status list_array(struct ebb_ctx *ctx, struct ebb_records *records, int64_t index,
                                  size_t start)
{
    const struct ebb_record_file *file = &records->files[index];
    struct ebb_scan scan = {(const char *)file->map.data, file->map.bytes, start + 1};
    if (ebb_scan_peek(&scan) != ']') {
        do {
            struct ebb_span value;
            if (!ebb_scan_value(&scan, &value)) return broken_array(ctx, file);
            EBB_TRY(add_span(ctx, records, value, index));
        } while (ebb_scan_take(&scan, ','));
    }
    if (!ebb_scan_take(&scan, ']')) return broken_array(ctx, file);
    ebb_scan_peek(&scan);
    return scan.at == scan.bytes ? EBB_OK : broken_array(ctx, file);
}

static enum ebb_status list_lines(struct ebb_ctx *ctx, struct ebb_records *records, int64_t index,
                                  size_t start)
{
    const char *data = (const char *)records->files[index].map.data;
    size_t bytes = records->files[index].map.bytes;
    for (size_t at = start; at < bytes;) {
        const char *end = memchr(data + at, '\n', bytes - at);
        size_t length = end == NULL ? bytes - at : (size_t)(end - data) - at;
        size_t first = 0;
        while (first < length && strchr(" \t\r", data[at + first]) != NULL &&
               data[at + first] != '\0')
            first++;
        if (first < length)
            EBB_TRY(add_span(ctx, records, (struct ebb_span){data + at, length}, index));
        at += length + 1;
    }
    return EBB_OK;
}

static enum ebb_status list_file(struct ebb_ctx *ctx, struct ebb_records *records, int64_t index)
{
    struct ebb_record_file *file = &records->files[index];
    EBB_TRY(ebb_map_open(ctx, file->path, &file->map));
    const char *data = (const char *)file->map.data;
    size_t bytes = file->map.bytes;
    if (bytes == 0) return EBB_OK;
    size_t valid = ebb_text_utf8_valid(data, bytes);
    if (valid != bytes)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s:%d: not UTF-8: byte 0x%02x at offset %zu\nsave the file as UTF-8",
                        file->path, ebb_scan_line(data, valid), (unsigned char)data[valid], valid);
    size_t start =
        bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark */
    struct ebb_scan scan = {data, bytes, start};
    char first = ebb_scan_peek(&scan);
    file->lines = first != '[';
    return file->lines ? list_lines(ctx, records, index, start)
                       : list_array(ctx, records, index, scan.at);
}

static enum ebb_status take_slice(struct ebb_ctx *ctx, struct ebb_records *records,
                                  const char *path, const struct split *split)
{
    if (records->span_count == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no records here: the data set is empty", path);
    int64_t from = slice_place(split->from, split->from_percent, records->span_count);
    int64_t to = split->to < 0 ? records->span_count
                               : slice_place(split->to, split->to_percent, records->span_count);
    if (from >= to)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "%s: the slice takes none of the %lld records", path,
                        (long long)records->span_count);
    records->first = from;
    records->count = to - from;
    return EBB_OK;
}

enum ebb_status ebb_records_open(struct ebb_ctx *ctx, const char *path, const char *split_text,
                                 struct ebb_records *records)
{
    *records = (struct ebb_records){0};
    struct split split;
    EBB_TRY(read_split(ctx, split_text, &split));
    enum ebb_status status = find_files(ctx, records, path, split.name);
    for (int64_t i = 0; i < records->file_count && status == EBB_OK; i++)
        status = list_file(ctx, records, i);
    if (status == EBB_OK) status = take_slice(ctx, records, path, &split);
    if (status != EBB_OK) ebb_records_close(ctx, records);
    return status;
}

void ebb_records_close(struct ebb_ctx *ctx, struct ebb_records *records)
{
    for (int64_t i = 0; i < records->file_count; i++) {
        ebb_map_close(&records->files[i].map);
        ebb_mem_free(ctx, records->files[i].path);
    }
    ebb_mem_free(ctx, records->files);
    ebb_mem_free(ctx, records->spans);
    *records = (struct ebb_records){0};
}

/* ---- one record ---- */

static int record_line(const struct ebb_records *records, int64_t i)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    const char *data = (const char *)records->files[span->file].map.data;
    return ebb_scan_line(data, (size_t)(span->text.data - data));
}

char *ebb_records_name(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    return ebb_mem_format(ctx, "%s:%d: record %lld", records->files[span->file].path,
                          record_line(records, i), (long long)(records->first + i + 1));
}

static enum ebb_status parse_failed(struct ebb_ctx *ctx, const struct ebb_records *records,
                                    int64_t i)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    const struct ebb_record_file *file = &records->files[span->file];
    json_t *json;
    ebb_error_clear(ctx);
    if (!file->lines) return broken_array(ctx, file);
    return ebb_json_parse(ctx, file->path, record_line(records, i) - 1, span->text.data,
                          span->text.bytes, &json);
}

enum ebb_status ebb_records_parse(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i,
                                  json_t **json)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    const char *path = records->files[span->file].path;
    /* Counting lines costs more than parsing, so the line is found only for a record that fails. */
    enum ebb_status status = ebb_json_parse(ctx, path, 0, span->text.data, span->text.bytes, json);
    if (status == EBB_BAD_FILE) return parse_failed(ctx, records, i);
    if (status != EBB_OK || json_is_object(*json)) return status;
    json_decref(*json);
    *json = NULL;
    char *name = ebb_records_name(ctx, records, i);
    if (name == NULL) return EBB_NO_MEMORY;
    status =
        EBB_FAIL(ctx, EBB_BAD_FILE, "%s is not an object: {\"key\": value, ...} is wanted", name);
    ebb_mem_free(ctx, name);
    return status;
}
