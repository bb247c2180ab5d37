/* A scanner over JSON text in memory, for files too large to become a tree: it finds where values
 * begin and end, and reads strings and integers. What it steps over is only checked for its
 * nesting; whoever uses a value parses it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_JSON_SCAN_H
#define EBB_DATA_JSON_SCAN_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_scan {
    const char *data;
    size_t bytes;
    size_t at;
};

struct ebb_span {
    const char *data; /* borrowed from the text; NULL: not there */
    size_t bytes;
};

/* The next character that is not white space, without taking it; 0 at the end. */
char ebb_scan_peek(struct ebb_scan *scan);
/* Takes `wanted` if it is next. */
bool ebb_scan_take(struct ebb_scan *scan, char wanted);
/* Steps over one value. False where there is none that ends. */
bool ebb_scan_value(struct ebb_scan *scan, struct ebb_span *span);
/* Reads a string. Without escapes `text` points into the input, with them into `scratch`, whose
 * content goes. */
enum ebb_status ebb_scan_string(struct ebb_ctx *ctx, struct ebb_scan *scan, struct ebb_str *scratch,
                                struct ebb_span *text, bool *found);
/* An integer that fits in 63 bits. */
bool ebb_scan_int64(struct ebb_scan *scan, int64_t *value);
/* The line of a byte, from 1. */
int ebb_scan_line(const char *data, size_t at);

#ifdef __cplusplus
}
#endif
#endif
