/* JSON through jansson, with errors that name file, line and column, and typed look-ups that name
 * the key.
 *
 * json_t values are jansson's; the usual reference rules hold (json_decref by the holder).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_JSON_H
#define EBB_JSON_H

#include <jansson.h>

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Duplicate keys and anything after the value are errors. Where an integer is beyond 64 bits,
 * all integers of the text are read as reals (ebb_json_int64 still takes those that are exact).
 * NUL characters in strings are allowed. EBB_BAD_FILE with "path:line:column: what was
 * expected". The caller owns *json. */
enum ebb_status ebb_json_load(struct ebb_ctx *ctx, const char *path, json_t **json);
/* The same for text in memory; `name` stands for the path in messages, `line` is added to line
 * numbers (0 for none). */
enum ebb_status ebb_json_parse(struct ebb_ctx *ctx, const char *name, int line, const char *data,
                               size_t bytes, json_t **json);

/* Typed look-up in an object. A missing key returns EBB_OK with *found = false and leaves *value
 * alone; a wrong type is EBB_BAD_FILE naming `where` (a path), key, type found and wanted. `found`
 * may be NULL: then a missing key is an error. null counts as missing. Integers written as 1.0 are
 * accepted where exact. Strings are borrowed. */
enum ebb_status ebb_json_int64(struct ebb_ctx *ctx, const char *where, const json_t *object,
                               const char *key, int64_t *value, bool *found);
enum ebb_status ebb_json_double(struct ebb_ctx *ctx, const char *where, const json_t *object,
                                const char *key, double *value, bool *found);
enum ebb_status ebb_json_bool(struct ebb_ctx *ctx, const char *where, const json_t *object,
                              const char *key, bool *value, bool *found);
enum ebb_status ebb_json_string(struct ebb_ctx *ctx, const char *where, const json_t *object,
                                const char *key, const char **value, bool *found);
/* Adds the value as text, without a newline at its end: on one line where indent is 0. Keys keep
 * the order in which they were set; numbers are written in their shortest exact form. */
enum ebb_status ebb_json_text(struct ebb_ctx *ctx, const json_t *json, int indent,
                              struct ebb_str *out);
/* Written with indent 2 and a newline at the end, whole or not at all. */
enum ebb_status ebb_json_save(struct ebb_ctx *ctx, const char *path, const json_t *json);

#ifdef __cplusplus
}
#endif
#endif
