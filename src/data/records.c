/* Listing the records of a split's files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/records.h"

#include <limits.h>
#include <string.h>

#include "base/unpack.h"
#include "data/csv.h"
#include "data/records_int.h"

/* The line of the record that begins at `at`, counted on from the record before it: each record is
 * named by its line, and counting from the file's start every time would take time quadratic in the
 * file's size. */
static int line_of(const struct ebb_records *records, const char *at, int64_t file)
{
    const struct ebb_record_file *text = &records->files[file];
    const struct ebb_record_span *last =
        records->span_count > 0 ? &records->spans[records->span_count - 1] : NULL;
    if (last == NULL || last->file != file) return ebb_records_line(text, at);
    int64_t line = (int64_t)last->line + ebb_records_lines(text, last->text.data, at) - 1;
    return line > INT_MAX ? INT_MAX : (int)line;
}

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
    int line = line_of(records, text.data, file);
    records->spans[records->span_count++] = (struct ebb_record_span){text, (int32_t)file, line};
    return EBB_OK;
}

/* Whether a value can be parsed; the failure stays. */
static enum ebb_status try_value(struct ebb_ctx *ctx, const struct ebb_record_file *file,
                                 struct ebb_span text)
{
    json_t *json;
    EBB_TRY(ebb_records_json(ctx, file, 0, text, &json));
    json_decref(json);
    return EBB_OK;
}

/* ---- an array ---- */

/* How much of a text a message shows: not beyond its line, and whole characters. */
static int shown_bytes(struct ebb_span text)
{
    size_t bytes = 0, most = text.bytes < 20 ? text.bytes : 20;
    while (bytes < most && (unsigned char)text.data[bytes] >= ' ') bytes++;
    return (int)ebb_text_utf8_valid(text.data, bytes);
}

/* Says where an array is broken that the scanner could not get through, `at` being where it
 * stopped. A bracket that is missing inside a record lets the record swallow what is behind it, so
 * the first mistake may stand before that place. */
static enum ebb_status broken_array(struct ebb_ctx *ctx, const struct ebb_records *records,
                                    int64_t index, size_t at, const char *wanted)
{
    const struct ebb_record_file *file = &records->files[index];
    for (int64_t i = 0; i < records->span_count; i++)
        if (records->spans[i].file == index) EBB_TRY(try_value(ctx, file, records->spans[i].text));
    struct ebb_span rest = {file->text.data + at, file->text.bytes - at};
    int line = ebb_records_line(file, rest.data);
    if (rest.bytes == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d: %s expected at the end of the file", file->path,
                        line, wanted);
    if (strcmp(wanted, "a record") == 0) EBB_TRY(try_value(ctx, file, rest));
    int shown = shown_bytes(rest);
    if (shown == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d: %s expected near byte 0x%02x", file->path, line,
                        wanted, (unsigned char)rest.data[0]);
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d: %s expected near '%.*s'", file->path, line, wanted,
                    shown, rest.data);
}

static enum ebb_status list_array(struct ebb_ctx *ctx, struct ebb_records *records, int64_t index,
                                  size_t start)
{
    const struct ebb_span text = records->files[index].text;
    struct ebb_scan scan = {text.data, text.bytes, start + 1};
    if (ebb_scan_peek(&scan) != ']') {
        do {
            struct ebb_span value;
            ebb_scan_peek(&scan);
            size_t at = scan.at;
            if (!ebb_scan_value(&scan, &value))
                return broken_array(ctx, records, index, at, "a record");
            EBB_TRY(add_span(ctx, records, value, index));
        } while (ebb_scan_take(&scan, ','));
    }
    if (!ebb_scan_take(&scan, ']')) return broken_array(ctx, records, index, scan.at, "',' or ']'");
    ebb_scan_peek(&scan);
    if (scan.at == scan.bytes) return EBB_OK;
    return broken_array(ctx, records, index, scan.at, "the end of the file");
}

/* ---- lines ---- */

/* A whole object over several lines is JSON for people to read, not JSON lines: told once, not
 * once for every line. */
static enum ebb_status refuse_tall_object(struct ebb_ctx *ctx, const struct ebb_record_file *file,
                                          size_t start)
{
    struct ebb_scan scan = {file->text.data, file->text.bytes, start};
    struct ebb_span value;
    json_t *json;
    if (ebb_scan_peek(&scan) != '{' || !ebb_scan_value(&scan, &value) ||
        memchr(value.data, '\n', value.bytes) == NULL)
        return EBB_OK;
    json = json_loadb(value.data, value.bytes, JSON_ALLOW_NUL, NULL);
    if (json == NULL) return EBB_OK;
    json_decref(json);
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s:%d: the first object goes over several lines\nan array of objects is "
                    "wanted, [{...}, {...}], or one object a line",
                    file->path, ebb_records_line(file, value.data));
}

static bool is_blank(struct ebb_span line)
{
    for (size_t i = 0; i < line.bytes; i++)
        if (line.data[i] != ' ' && line.data[i] != '\t' && line.data[i] != '\r') return false;
    return true;
}

static enum ebb_status list_lines(struct ebb_ctx *ctx, struct ebb_records *records, int64_t index,
                                  size_t start)
{
    EBB_TRY(refuse_tall_object(ctx, &records->files[index], start));
    const struct ebb_span text = records->files[index].text;
    for (size_t at = start; at < text.bytes;) {
        const char *end = memchr(text.data + at, '\n', text.bytes - at);
        size_t length = end == NULL ? text.bytes - at : (size_t)(end - text.data) - at;
        struct ebb_span line = {text.data + at, length};
        if (!is_blank(line)) EBB_TRY(add_span(ctx, records, line, index));
        at += length + 1;
    }
    return EBB_OK;
}

/* ---- a table ---- */

/* `seen` has the names so far as its keys. */
static enum ebb_status add_column(struct ebb_ctx *ctx, struct ebb_record_file *file, json_t *seen,
                                  int line, struct ebb_csv_field field)
{
    size_t number = json_array_size(file->columns) + 1;
    if (field.stray)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s:%d: column %zu's name goes on behind its closing quote", file->path,
                        line, number);
    if (memchr(field.text.data, '\0', field.text.bytes) != NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d: column %zu's name has a NUL in it", file->path,
                        line, number);
    json_t *name = json_stringn(field.text.data, field.text.bytes);
    if (name == NULL || json_array_append_new(file->columns, name) != 0)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading '%s'", file->path);
    if (field.text.bytes == 0) return EBB_OK;
    if (json_object_get(seen, json_string_value(name)) != NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d: two columns are named '%s'", file->path, line,
                        json_string_value(name));
    if (json_object_set(seen, json_string_value(name), name) != 0)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading '%s'", file->path);
    return EBB_OK;
}

static enum ebb_status read_columns(struct ebb_ctx *ctx, struct ebb_record_file *file,
                                    struct ebb_span row)
{
    EBB_TRY(ebb_records_utf8(ctx, file, 0, row));
    file->columns = json_array();
    json_t *seen = json_object();
    if (file->columns == NULL || seen == NULL) {
        json_decref(seen);
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading '%s'", file->path);
    }
    struct ebb_csv fields = {row.data, row.bytes, 0, file->separator};
    struct ebb_str scratch = {0};
    struct ebb_csv_field field;
    int line = ebb_records_line(file, row.data);
    enum ebb_status status = ebb_csv_field(ctx, &fields, &scratch, &field);
    while (status == EBB_OK && field.there) {
        status = add_column(ctx, file, seen, line, field);
        if (status == EBB_OK) status = ebb_csv_field(ctx, &fields, &scratch, &field);
    }
    json_decref(seen);
    ebb_str_free(ctx, &scratch);
    return status;
}

static enum ebb_status list_table(struct ebb_ctx *ctx, struct ebb_records *records, int64_t index,
                                  size_t start)
{
    struct ebb_record_file *file = &records->files[index];
    struct ebb_csv csv = {file->text.data, file->text.bytes, start, file->separator};
    struct ebb_span row;
    for (;;) {
        switch (ebb_csv_row(&csv, &row)) {
        case EBB_CSV_END:
            return EBB_OK;
        case EBB_CSV_OPEN_QUOTE:
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s:%d: the quote that opens a field here is never closed\na quote "
                            "inside a quoted field is written twice, \"\"",
                            file->path, ebb_records_line(file, row.data));
        case EBB_CSV_ROW:
            if (file->columns == NULL)
                EBB_TRY(read_columns(ctx, file, row));
            else
                EBB_TRY(add_span(ctx, records, row, index));
        }
    }
}

/* ---- files ---- */

/* The file's text: as it is mapped, or unpacked. */
static enum ebb_status open_text(struct ebb_ctx *ctx, struct ebb_record_file *file)
{
    EBB_TRY(ebb_map_open(ctx, file->path, &file->map));
    file->text = (struct ebb_span){(const char *)file->map.data, file->map.bytes};
    if (ebb_compression_of(file->map.data, file->map.bytes) == EBB_COMPRESSION_NONE) return EBB_OK;
    size_t bytes;
    EBB_TRY(
        ebb_unpack(ctx, file->path, file->map.data, file->map.bytes, 0, &file->unpacked, &bytes));
    ebb_map_close(&file->map);
    file->text = (struct ebb_span){file->unpacked, bytes};
    return EBB_OK;
}

static enum ebb_status list_file(struct ebb_ctx *ctx, struct ebb_records *records, int64_t index)
{
    struct ebb_record_file *file = &records->files[index];
    EBB_TRY(open_text(ctx, file));
    if (file->text.bytes == 0) return EBB_OK;
    EBB_TRY(ebb_records_refuse(ctx, file->path, file->text));
    size_t start = ebb_records_mark_bytes(file->text);
    struct ebb_scan scan = {file->text.data, file->text.bytes, start};
    file->separator = ebb_records_separator(file->path);
    if (file->separator != '\0') {
        file->kind = EBB_RECORDS_TABLE;
        return list_table(ctx, records, index, start);
    }
    if (ebb_scan_peek(&scan) == '[') {
        file->kind = EBB_RECORDS_ARRAY;
        return list_array(ctx, records, index, scan.at);
    }
    file->kind = EBB_RECORDS_LINES;
    return list_lines(ctx, records, index, start);
}

/* Over the texts, in order, and what decides how they are read. */
static enum ebb_status hash_files(struct ebb_ctx *ctx, struct ebb_records *records)
{
    size_t bytes = (size_t)records->file_count * 4 * sizeof(uint64_t);
    uint64_t *facts = ebb_mem_alloc(ctx, bytes);
    if (facts == NULL) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < records->file_count; i++) {
        const struct ebb_record_file *file = &records->files[i];
        uint64_t *fact = facts + i * 4;
        fact[0] = ebb_hash_bytes(file->text.data, file->text.bytes);
        fact[1] = file->text.bytes;
        fact[2] = file->kind;
        fact[3] = (unsigned char)file->separator;
    }
    records->hash = ebb_hash_bytes(facts, bytes);
    ebb_mem_free(ctx, facts);
    return EBB_OK;
}

static enum ebb_status take_slice(struct ebb_ctx *ctx, struct ebb_records *records,
                                  const char *path, const struct ebb_split *split)
{
    if (records->span_count == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no records here: the data set is empty", path);
    int64_t from, to;
    ebb_split_slice(split, records->span_count, &from, &to);
    if (from >= to)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "%s: the slice takes none of the %lld records", path,
                        (long long)records->span_count);
    records->first = from;
    records->count = to - from;
    return EBB_OK;
}

static enum ebb_status open_records(struct ebb_ctx *ctx, struct ebb_records *records)
{
    const struct ebb_records_options *options = &records->options;
    struct ebb_split split;
    EBB_TRY(ebb_records_check_names(ctx, options));
    EBB_TRY(ebb_split_parse(ctx, options->split, &split));
    EBB_TRY(ebb_records_find(ctx, records, options->path, split.name));
    for (int64_t i = 0; i < records->file_count; i++) EBB_TRY(list_file(ctx, records, i));
    EBB_TRY(take_slice(ctx, records, options->path, &split));
    return hash_files(ctx, records);
}

enum ebb_status ebb_records_open(struct ebb_ctx *ctx, const struct ebb_records_options *options,
                                 struct ebb_records *records)
{
    *records = (struct ebb_records){.options = *options};
    enum ebb_status status = open_records(ctx, records);
    if (status != EBB_OK) ebb_records_close(ctx, records);
    return status;
}

void ebb_records_close(struct ebb_ctx *ctx, struct ebb_records *records)
{
    for (int64_t i = 0; i < records->file_count; i++) {
        struct ebb_record_file *file = &records->files[i];
        json_decref(file->columns);
        ebb_mem_free(ctx, file->unpacked);
        ebb_map_close(&file->map);
        ebb_mem_free(ctx, file->path);
    }
    ebb_mem_free(ctx, records->files);
    ebb_mem_free(ctx, records->spans);
    *records = (struct ebb_records){0};
}
