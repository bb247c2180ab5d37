/* A reader of CSV and TSV in memory (RFC 4180): rows as spans of text, and the fields of a row.
 *
 * A row ends with LF, CRLF or CR. A field that begins with a quote goes to its closing quote; in
 * between, separators and line ends are text and two quotes are one. Anywhere else a quote is text,
 * and so are spaces, also those around a quoted field. Rows with nothing at all in them are passed
 * over. Text behind a closing quote belongs to the field, as Python's csv reads it; the reader says
 * that it is there, since RFC 4180 has no such thing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_CSV_H
#define EBB_DATA_CSV_H

#include "data/json_scan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A place in a text. Of a row's text: at > bytes once its fields have been read. */
struct ebb_csv {
    const char *data; /* borrowed */
    size_t bytes;
    size_t at;
    char separator;
};

enum ebb_csv_found {
    EBB_CSV_END,       /* no more rows */
    EBB_CSV_ROW,       /* `row` is its text, without its line end */
    EBB_CSV_OPEN_QUOTE /* a quote is never closed: `row` begins with it */
};

/* Steps over the next row. */
enum ebb_csv_found ebb_csv_row(struct ebb_csv *csv, struct ebb_span *row);

struct ebb_csv_field {
    struct ebb_span text; /* points into the row, or into `scratch` */
    bool there;           /* false: the row has no more fields */
    bool stray;           /* there is text behind the closing quote */
};

/* Reads the next field of a row, which begins at 0. `scratch`, whose content goes, takes a text
 * that does not stand in the row as it is meant. Fails with EBB_NO_MEMORY only. */
enum ebb_status ebb_csv_field(struct ebb_ctx *ctx, struct ebb_csv *row, struct ebb_str *scratch,
                              struct ebb_csv_field *field);

/* The line of the byte at `at`, which is there, from 1. A CR that no LF follows ends a line,
 * too. */
int ebb_csv_line(const char *data, size_t at);

#ifdef __cplusplus
}
#endif
#endif
