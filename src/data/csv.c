/* The reader of CSV and TSV.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/csv.h"

#include <limits.h>
#include <string.h>

static bool at_line_end(const struct ebb_csv *csv)
{
    return csv->at < csv->bytes && (csv->data[csv->at] == '\n' || csv->data[csv->at] == '\r');
}

/* From an opening quote to behind the closing one. False: there is none. */
static bool skip_quoted(struct ebb_csv *csv, bool *doubled)
{
    size_t at = csv->at + 1;
    *doubled = false;
    for (;;) {
        const char *quote = memchr(csv->data + at, '"', csv->bytes - at);
        if (quote == NULL) return false;
        at = (size_t)(quote - csv->data) + 1;
        if (at == csv->bytes || csv->data[at] != '"') break;
        *doubled = true;
        at++;
    }
    csv->at = at;
    return true;
}

static void skip_plain(struct ebb_csv *csv)
{
    while (csv->at < csv->bytes && csv->data[csv->at] != csv->separator && !at_line_end(csv))
        csv->at++;
}

static bool at_quote(const struct ebb_csv *csv)
{
    return csv->at < csv->bytes && csv->data[csv->at] == '"';
}

enum ebb_csv_found ebb_csv_row(struct ebb_csv *csv, struct ebb_span *row)
{
    while (at_line_end(csv)) csv->at++;
    *row = (struct ebb_span){csv->data + csv->at, 0};
    if (csv->at == csv->bytes) return EBB_CSV_END;
    size_t start = csv->at;
    for (;;) {
        bool doubled;
        if (at_quote(csv) && !skip_quoted(csv, &doubled)) {
            *row = (struct ebb_span){csv->data + csv->at, csv->bytes - csv->at};
            return EBB_CSV_OPEN_QUOTE;
        }
        skip_plain(csv);
        if (csv->at == csv->bytes || csv->data[csv->at] != csv->separator) break;
        csv->at++;
    }
    row->bytes = csv->at - start;
    return EBB_CSV_ROW;
}

/* What stands between the quotes, with two of them made one, and what follows the closing one. */
static enum ebb_status undouble(struct ebb_ctx *ctx, struct ebb_span quoted, struct ebb_span stray,
                                struct ebb_str *scratch, struct ebb_span *text)
{
    scratch->bytes = 0;
    for (size_t at = 0; at < quoted.bytes;) {
        const char *quote = memchr(quoted.data + at, '"', quoted.bytes - at);
        size_t part = quote == NULL ? quoted.bytes - at : (size_t)(quote - quoted.data) + 1 - at;
        EBB_TRY(ebb_str_add(ctx, scratch, quoted.data + at, part));
        at += part + (quote != NULL); /* the second of the two is left out */
    }
    EBB_TRY(ebb_str_add(ctx, scratch, stray.data, stray.bytes));
    *text = (struct ebb_span){scratch->data, scratch->bytes};
    return EBB_OK;
}

enum ebb_status ebb_csv_field(struct ebb_ctx *ctx, struct ebb_csv *row, struct ebb_str *scratch,
                              struct ebb_csv_field *field)
{
    *field = (struct ebb_csv_field){.there = row->at <= row->bytes};
    if (!field->there) return EBB_OK;
    size_t start = row->at, closed = start;
    bool doubled = false, quoted = at_quote(row) && skip_quoted(row, &doubled);
    if (quoted) closed = row->at;
    skip_plain(row);
    size_t end = row->at;
    row->at = end < row->bytes ? end + 1 : row->bytes + 1;
    if (!quoted) {
        field->text = (struct ebb_span){row->data + start, end - start};
        return EBB_OK;
    }
    field->text = (struct ebb_span){row->data + start + 1, closed - start - 2};
    field->stray = end > closed;
    if (!doubled && !field->stray) return EBB_OK;
    struct ebb_span stray = {row->data + closed, end - closed};
    return undouble(ctx, field->text, stray, scratch, &field->text);
}

int ebb_csv_line(const char *data, size_t at)
{
    int64_t line = 1;
    for (size_t i = 0; i < at; i++)
        line += data[i] == '\n' || (data[i] == '\r' && data[i + 1] != '\n');
    return line > INT_MAX ? INT_MAX : (int)line;
}
