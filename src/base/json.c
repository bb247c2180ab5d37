/* JSON through jansson, with errors that name file, line and column, and typed look-ups that name
 * the key.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/file.h"

/* ---- reading ---- */

static enum ebb_status fail_parse(struct ebb_ctx *ctx, const char *name, int line,
                                  const json_error_t *error)
{
    if (json_error_code(error) == json_error_out_of_memory)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading '%s'", name);
    int at_line = (error->line > 0 ? error->line : 1) + line;
    int at_column = error->column > 0 ? error->column : 1;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d:%d: %s", name, at_line, at_column, error->text);
}

enum ebb_status ebb_json_parse(struct ebb_ctx *ctx, const char *name, int line, const char *data,
                               size_t bytes, json_t **json)
{
    *json = NULL;
    if (data == NULL) {
        data = "";
        bytes = 0;
    }
    if (bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        /* The byte order mark that some editors put first. */
        data += 3;
        bytes -= 3;
    }
    if (bytes == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d:1: nothing is here, a JSON value is wanted", name,
                        line + 1);
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_error_t error;
    *json = json_loadb(data, bytes, flags, &error);
    /* transformers writes "model_max_length" 1e30 as an integer, which no 64 bits hold: all numbers
     * of such a file are read as reals then. */
    if (*json == NULL && json_error_code(&error) == json_error_numeric_overflow)
        *json = json_loadb(data, bytes, flags | JSON_DECODE_INT_AS_REAL, &error);
    return *json != NULL ? EBB_OK : fail_parse(ctx, name, line, &error);
}

enum ebb_status ebb_json_load(struct ebb_ctx *ctx, const char *path, json_t **json)
{
    *json = NULL;
    struct ebb_map map;
    EBB_TRY(ebb_map_open(ctx, path, &map));
    enum ebb_status status = ebb_json_parse(ctx, path, 0, (const char *)map.data, map.bytes, json);
    ebb_map_close(&map);
    return status;
}

/* ---- typed look-up ---- */

static const char *type_name(const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    }
    return "something unknown";
}

/* *item is NULL where the key is missing and may be. */
static enum ebb_status find(struct ebb_ctx *ctx, const char *where, const json_t *object,
                            const char *key, const char *wanted, bool *found, const json_t **item)
{
    *item = NULL;
    if (found != NULL) *found = false;
    if (!json_is_object(object))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s where an object with '%s' is wanted", where,
                        object != NULL ? type_name(object) : "nothing", key);
    const json_t *got = json_object_get(object, key);
    if (got != NULL && !json_is_null(got)) {
        *item = got;
        if (found != NULL) *found = true;
        return EBB_OK;
    }
    if (found != NULL) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is %s, %s is wanted", where, key,
                    got != NULL ? "null" : "missing", wanted);
}

static enum ebb_status fail_type(struct ebb_ctx *ctx, const char *where, const char *key,
                                 const json_t *got, const char *wanted, bool *found)
{
    if (found != NULL) *found = false;
    if (json_is_string(got))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is the string \"%.64s\", %s is wanted", where,
                        key, json_string_value(got), wanted);
    if (json_is_number(got))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is the number %.17g, %s is wanted", where, key,
                        json_number_value(got), wanted);
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is %s, %s is wanted", where, key, type_name(got),
                    wanted);
}

enum ebb_status ebb_json_int64(struct ebb_ctx *ctx, const char *where, const json_t *object,
                               const char *key, int64_t *value, bool *found)
{
    const json_t *item;
    EBB_TRY(find(ctx, where, object, key, "an integer", found, &item));
    if (item == NULL) return EBB_OK;
    if (json_is_integer(item)) {
        *value = (int64_t)json_integer_value(item);
        return EBB_OK;
    }
    double real = json_is_real(item) ? json_real_value(item) : 0.5;
    /* Above 2^53 a double no longer says which integer was written. */
    if (real != floor(real) || fabs(real) > 9007199254740992.0)
        return fail_type(ctx, where, key, item, "an integer", found);
    *value = (int64_t)real;
    return EBB_OK;
}

enum ebb_status ebb_json_double(struct ebb_ctx *ctx, const char *where, const json_t *object,
                                const char *key, double *value, bool *found)
{
    const json_t *item;
    EBB_TRY(find(ctx, where, object, key, "a number", found, &item));
    if (item == NULL) return EBB_OK;
    if (!json_is_number(item)) return fail_type(ctx, where, key, item, "a number", found);
    *value = json_number_value(item);
    return EBB_OK;
}

enum ebb_status ebb_json_bool(struct ebb_ctx *ctx, const char *where, const json_t *object,
                              const char *key, bool *value, bool *found)
{
    const json_t *item;
    EBB_TRY(find(ctx, where, object, key, "true or false", found, &item));
    if (item == NULL) return EBB_OK;
    if (!json_is_boolean(item)) return fail_type(ctx, where, key, item, "true or false", found);
    *value = json_is_true(item);
    return EBB_OK;
}

enum ebb_status ebb_json_string(struct ebb_ctx *ctx, const char *where, const json_t *object,
                                const char *key, const char **value, bool *found)
{
    const json_t *item;
    EBB_TRY(find(ctx, where, object, key, "a string", found, &item));
    if (item == NULL) return EBB_OK;
    if (!json_is_string(item)) return fail_type(ctx, where, key, item, "a string", found);
    *value = json_string_value(item);
    return EBB_OK;
}

/* ---- writing ---- */

/* jansson writes 0.1 as 0.10000000000000001; people read these files, so reals are written here, in
 * their shortest exact form, and with them everything that may hold one. */
static enum ebb_status dump(struct ebb_ctx *ctx, const json_t *json, int indent, int depth,
                            struct ebb_str *out);

static enum ebb_status add_text(struct ebb_ctx *ctx, const char *text, struct ebb_str *out)
{
    return ebb_str_add(ctx, out, text, strlen(text));
}

static enum ebb_status new_line(struct ebb_ctx *ctx, int indent, int depth, struct ebb_str *out)
{
    return indent > 0 ? ebb_str_addf(ctx, out, "\n%*s", indent * depth, "") : EBB_OK;
}

static enum ebb_status dump_string(struct ebb_ctx *ctx, const char *text, size_t bytes,
                                   struct ebb_str *out)
{
    EBB_TRY(add_text(ctx, "\"", out));
    size_t plain = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        EBB_TRY(ebb_str_add(ctx, out, text + plain, i - plain));
        plain = i + 1;
        switch (c) {
        case '"': EBB_TRY(add_text(ctx, "\\\"", out)); break;
        case '\\': EBB_TRY(add_text(ctx, "\\\\", out)); break;
        case '\n': EBB_TRY(add_text(ctx, "\\n", out)); break;
        case '\r': EBB_TRY(add_text(ctx, "\\r", out)); break;
        case '\t': EBB_TRY(add_text(ctx, "\\t", out)); break;
        default: EBB_TRY(ebb_str_addf(ctx, out, "\\u%04x", (unsigned)c)); break;
        }
    }
    EBB_TRY(ebb_str_add(ctx, out, text + plain, bytes - plain));
    return add_text(ctx, "\"", out);
}

static enum ebb_status dump_real(struct ebb_ctx *ctx, double value, struct ebb_str *out)
{
    char text[EBB_TEXT_DOUBLE];
    ebb_text_from_double(value, text);
    EBB_TRY(add_text(ctx, text, out));
    bool looks_real = strpbrk(text, ".e") != NULL;
    return looks_real ? EBB_OK : add_text(ctx, ".0", out);
}

static enum ebb_status dump_object(struct ebb_ctx *ctx, const json_t *json, int indent, int depth,
                                   struct ebb_str *out)
{
    /* jansson's iterators want a pointer that may be changed through; nothing is. */
    json_t *object = (json_t *)(uintptr_t)json;
    bool first = true;
    EBB_TRY(add_text(ctx, "{", out));
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        if (!first) EBB_TRY(add_text(ctx, indent > 0 ? "," : ", ", out));
        first = false;
        EBB_TRY(new_line(ctx, indent, depth + 1, out));
        EBB_TRY(dump_string(ctx, json_object_iter_key(at), json_object_iter_key_len(at), out));
        EBB_TRY(add_text(ctx, ": ", out));
        EBB_TRY(dump(ctx, json_object_iter_value(at), indent, depth + 1, out));
    }
    if (!first) EBB_TRY(new_line(ctx, indent, depth, out));
    return add_text(ctx, "}", out);
}

static enum ebb_status dump_array(struct ebb_ctx *ctx, const json_t *json, int indent, int depth,
                                  struct ebb_str *out)
{
    size_t count = json_array_size(json);
    EBB_TRY(add_text(ctx, "[", out));
    for (size_t i = 0; i < count; i++) {
        if (i > 0) EBB_TRY(add_text(ctx, indent > 0 ? "," : ", ", out));
        EBB_TRY(new_line(ctx, indent, depth + 1, out));
        EBB_TRY(dump(ctx, json_array_get(json, i), indent, depth + 1, out));
    }
    if (count > 0) EBB_TRY(new_line(ctx, indent, depth, out));
    return add_text(ctx, "]", out);
}

static enum ebb_status dump(struct ebb_ctx *ctx, const json_t *json, int indent, int depth,
                            struct ebb_str *out)
{
    /* What was read is at most this deep, what is put around it adds little; deeper is a cycle. */
    EBB_ASSERT(json != NULL && depth < 2 * JSON_PARSER_MAX_DEPTH);
    switch (json_typeof(json)) {
    case JSON_OBJECT: return dump_object(ctx, json, indent, depth, out);
    case JSON_ARRAY: return dump_array(ctx, json, indent, depth, out);
    case JSON_STRING:
        return dump_string(ctx, json_string_value(json), json_string_length(json), out);
    case JSON_INTEGER: return ebb_str_addf(ctx, out, "%" PRId64, (int64_t)json_integer_value(json));
    case JSON_REAL: return dump_real(ctx, json_real_value(json), out);
    case JSON_TRUE: return add_text(ctx, "true", out);
    case JSON_FALSE: return add_text(ctx, "false", out);
    case JSON_NULL: return add_text(ctx, "null", out);
    }
    return EBB_OK;
}

enum ebb_status ebb_json_text(struct ebb_ctx *ctx, const json_t *json, int indent,
                              struct ebb_str *out)
{
    return dump(ctx, json, indent, 0, out);
}

enum ebb_status ebb_json_save(struct ebb_ctx *ctx, const char *path, const json_t *json)
{
    struct ebb_str text = {0};
    enum ebb_status status = ebb_json_text(ctx, json, 2, &text);
    if (status == EBB_OK) status = ebb_str_add(ctx, &text, "\n", 1);
    if (status == EBB_OK) status = ebb_file_write(ctx, path, text.data, text.bytes);
    ebb_str_free(ctx, &text);
    return status;
}
