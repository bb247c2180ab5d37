/* One record: from its text to an object with the names that formats know.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/csv.h"
#include "data/records_int.h"

/* ---- places ---- */

int ebb_records_lines(const struct ebb_record_file *file, const char *from, const char *at)
{
    size_t offset = (size_t)(at - from);
    return file->kind == EBB_RECORDS_TABLE ? ebb_csv_line(from, offset)
                                           : ebb_scan_line(from, offset);
}

int ebb_records_line(const struct ebb_record_file *file, const char *at)
{
    return ebb_records_lines(file, file->text.data, at);
}

char *ebb_records_name(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    const struct ebb_record_file *file = &records->files[span->file];
    return ebb_mem_format(ctx, "%s:%d: record %lld", file->path, span->line,
                          (long long)(records->first + i + 1));
}

static enum ebb_status out_of_memory(struct ebb_ctx *ctx)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading a record");
}

/* ---- JSON ---- */

size_t ebb_records_mark_bytes(struct ebb_span text)
{
    return text.bytes >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Characters from the line's beginning, as jansson counts columns. -1 where that is far away: in a
 * file of one line, counting back from each of many broken records would take hours. */
static int64_t columns_before(const struct ebb_record_file *file, const char *at)
{
    enum { FAR_BYTES = 1 << 12 };
    const char *begin = file->text.data + ebb_records_mark_bytes(file->text), *from = at;
    int64_t count = 0;
    for (; at > begin && at[-1] != '\n'; at--) {
        if (from - at == FAR_BYTES) return -1;
        count += (at[-1] & 0xc0) != 0x80;
    }
    return count;
}

/* Lines and columns are counted for a value that fails only: counting costs more than parsing. */
static enum ebb_status fail_json(struct ebb_ctx *ctx, const struct ebb_record_file *file, int line,
                                 struct ebb_span text, const json_error_t *error)
{
    if (json_error_code(error) == json_error_out_of_memory) return out_of_memory(ctx);
    EBB_TRY(ebb_records_utf8(ctx, file, line, text));
    if (line == 0) line = ebb_records_line(file, text.data);
    int64_t before = error->line > 1 ? 0 : columns_before(file, text.data);
    int64_t column = before + (error->column > 0 ? error->column : 1);
    if (before < 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d: %s (in what begins at offset %zu)", file->path,
                        line, error->text, (size_t)(text.data - file->text.data));
    if (error->line > 1) line += error->line - 1;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d:%lld: %s", file->path, line, (long long)column,
                    error->text);
}

enum ebb_status ebb_records_json(struct ebb_ctx *ctx, const struct ebb_record_file *file, int line,
                                 struct ebb_span text, json_t **json)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_error_t error;
    /* A byte order mark inside a file: files were laid end to end. */
    size_t mark = ebb_records_mark_bytes(text);
    text.data += mark;
    text.bytes -= mark;
    *json = json_loadb(text.data, text.bytes, flags, &error);
    /* An integer beyond 64 bits: as base/json.h reads it. */
    if (*json == NULL && json_error_code(&error) == json_error_numeric_overflow)
        *json = json_loadb(text.data, text.bytes, flags | JSON_DECODE_INT_AS_REAL, &error);
    return *json != NULL ? EBB_OK : fail_json(ctx, file, line, text, &error);
}

enum ebb_status ebb_records_utf8(struct ebb_ctx *ctx, const struct ebb_record_file *file, int line,
                                 struct ebb_span text)
{
    size_t valid = ebb_text_utf8_valid(text.data, text.bytes);
    if (valid == text.bytes) return EBB_OK;
    const char *at = text.data + valid;
    if (line == 0)
        line = ebb_records_line(file, at);
    else
        line += ebb_records_lines(file, text.data, at) - 1;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s:%d: not UTF-8: byte 0x%02x at offset %zu\nsave the file as UTF-8",
                    file->path, line, (unsigned char)*at, (size_t)(at - file->text.data));
}

static enum ebb_status fail_record(struct ebb_ctx *ctx, const struct ebb_records *records,
                                   int64_t i, const char *what)
{
    char *name = ebb_records_name(ctx, records, i);
    if (name == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s %s", name, what);
    ebb_mem_free(ctx, name);
    return status;
}

static enum ebb_status parse_object(struct ebb_ctx *ctx, const struct ebb_records *records,
                                    int64_t i, json_t **json)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    EBB_TRY(ebb_records_json(ctx, &records->files[span->file], span->line, span->text, json));
    if (json_is_object(*json)) return EBB_OK;
    json_decref(*json);
    *json = NULL;
    return fail_record(ctx, records, i, "is not an object: {\"key\": value, ...} is wanted");
}

/* ---- a row ---- */

static enum ebb_status fail_count(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i,
                                  struct ebb_span text)
{
    const struct ebb_record_file *file = &records->files[records->spans[records->first + i].file];
    struct ebb_csv row = {text.data, text.bytes, 0, file->separator};
    struct ebb_str scratch = {0};
    struct ebb_csv_field field = {.there = true};
    enum ebb_status status = EBB_OK;
    size_t count = 0, wanted = json_array_size(file->columns);
    while (status == EBB_OK && field.there) {
        status = ebb_csv_field(ctx, &row, &scratch, &field);
        count += field.there;
    }
    ebb_str_free(ctx, &scratch);
    EBB_TRY(status);
    char what[128];
    snprintf(what, sizeof what, "has %zu field%s, the first line names %zu column%s", count,
             count == 1 ? "" : "s", wanted, wanted == 1 ? "" : "s");
    return fail_record(ctx, records, i, what);
}

/* Fields go by the columns' names; a column without a name has nothing to be asked for by. */
static enum ebb_status read_fields(struct ebb_ctx *ctx, const struct ebb_records *records,
                                   int64_t i, struct ebb_str *scratch, json_t *object)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    const struct ebb_record_file *file = &records->files[span->file];
    struct ebb_csv row = {span->text.data, span->text.bytes, 0, file->separator};
    for (size_t k = 0;; k++) {
        struct ebb_csv_field field;
        EBB_TRY(ebb_csv_field(ctx, &row, scratch, &field));
        if (field.there != (k < json_array_size(file->columns)))
            return fail_count(ctx, records, i, span->text);
        if (!field.there) return EBB_OK;
        if (field.stray)
            return fail_record(ctx, records, i,
                               "has text behind a closing quote\na quote inside a quoted field is "
                               "written twice, \"\"");
        const char *name = json_string_value(json_array_get(file->columns, k));
        if (name[0] == '\0') continue;
        json_t *text = json_stringn(field.text.data, field.text.bytes);
        if (text == NULL || json_object_set_new(object, name, text) != 0) return out_of_memory(ctx);
    }
}

static enum ebb_status parse_row(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i,
                                 json_t **json)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    EBB_TRY(ebb_records_utf8(ctx, &records->files[span->file], span->line, span->text));
    struct ebb_str scratch = {0};
    *json = json_object();
    enum ebb_status status =
        *json == NULL ? out_of_memory(ctx) : read_fields(ctx, records, i, &scratch, *json);
    ebb_str_free(ctx, &scratch);
    if (status == EBB_OK) return EBB_OK;
    json_decref(*json);
    *json = NULL;
    return status;
}

enum ebb_status ebb_records_parse(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i,
                                  json_t **json)
{
    const struct ebb_record_span *span = &records->spans[records->first + i];
    *json = NULL;
    if (records->files[span->file].kind == EBB_RECORDS_TABLE)
        EBB_TRY(parse_row(ctx, records, i, json));
    else
        EBB_TRY(parse_object(ctx, records, i, json));
    enum ebb_status status = ebb_records_rename(ctx, &records->options, json);
    if (status == EBB_OK) return EBB_OK;
    json_decref(*json);
    *json = NULL;
    return status;
}
