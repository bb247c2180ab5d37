/* Fuzz target: the scanner over JSON against a whole parser. Where the text is JSON, the scanner
 * finds every value where the parser does; where the parser refuses it, it refuses one of the
 * pieces that the scanner cut.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "data/json_scan.h"
#include "fuzz.h"

enum {
    DEPTH = 64,       /* of this target's recursion */
    MAX_BYTES = 2000, /* the parser refuses 2048 levels, of the whole and not of a piece */
};

static json_t *parse(const char *data, size_t bytes)
{
    return json_loadb(data, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static void check_string(struct ebb_ctx *ctx, struct ebb_span span, const json_t *json)
{
    struct ebb_scan scan = {span.data, span.bytes, 0};
    struct ebb_str scratch = {0};
    struct ebb_span text;
    bool found;
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_scan_string(ctx, &scan, &scratch, &text, &found)));
    /* What a string's bytes mean is for its reader to check: UTF-8, and surrogates that stand
     * alone. */
    if (json != NULL) {
        FUZZ_CHECK(found && scan.at == span.bytes);
        FUZZ_CHECK(text.bytes == json_string_length(json));
        FUZZ_CHECK(text.bytes == 0 || memcmp(text.data, json_string_value(json), text.bytes) == 0);
    } else if (found) {
        FUZZ_CHECK(ebb_text_utf8_valid(span.data, span.bytes) != span.bytes);
    }
    ebb_str_free(ctx, &scratch);
}

static void check_integer(struct ebb_span span, const json_t *json)
{
    struct ebb_scan scan = {span.data, span.bytes, 0};
    int64_t value;
    bool whole = ebb_scan_int64(&scan, &value) && scan.at == span.bytes;
    if (json_is_integer(json) && json_integer_value(json) != INT64_MIN)
        FUZZ_CHECK(whole && value == json_integer_value(json));
    else
        FUZZ_CHECK(!whole);
}

static bool check_value(struct ebb_ctx *ctx, struct ebb_span span, const json_t *json, int depth);

/* True if all pieces are values. `json` is NULL where the whole is none. */
static bool check_object(struct ebb_ctx *ctx, struct ebb_scan *scan, const json_t *json, int depth)
{
    size_t members = 0;
    if (ebb_scan_take(scan, '}')) return json == NULL || json_object_size(json) == 0;
    do {
        struct ebb_span key, value;
        if (ebb_scan_peek(scan) != '"' || !ebb_scan_value(scan, &key) ||
            !ebb_scan_take(scan, ':') || !ebb_scan_value(scan, &value))
            return false;
        json_t *name = parse(key.data, key.bytes), *own = parse(value.data, value.bytes);
        check_string(ctx, key, name);
        /* The parser has no place for a NUL in a name. */
        bool nul = name != NULL && memchr(json_string_value(name), 0, json_string_length(name));
        bool good = check_value(ctx, value, own, depth) && own != NULL && name != NULL && !nul;
        /* Of members with one name the parser keeps the last. */
        if (good && json != NULL)
            FUZZ_CHECK(json_object_getn(json, json_string_value(name), json_string_length(name)));
        json_decref(own);
        json_decref(name);
        members++;
        if (!good) return false;
    } while (ebb_scan_take(scan, ','));
    return ebb_scan_take(scan, '}') && (json == NULL || members >= json_object_size(json));
}

static bool check_array(struct ebb_ctx *ctx, struct ebb_scan *scan, const json_t *json, int depth)
{
    size_t items = 0;
    if (ebb_scan_take(scan, ']')) return json == NULL || json_array_size(json) == 0;
    do {
        struct ebb_span value;
        if (!ebb_scan_value(scan, &value)) return false;
        json_t *own = parse(value.data, value.bytes);
        bool good = check_value(ctx, value, own, depth) && own != NULL;
        if (good && json != NULL) FUZZ_CHECK(json_equal(own, json_array_get(json, items)));
        json_decref(own);
        items++;
        if (!good) return false;
    } while (ebb_scan_take(scan, ','));
    return ebb_scan_take(scan, ']') && (json == NULL || items == json_array_size(json));
}

static bool check_value(struct ebb_ctx *ctx, struct ebb_span span, const json_t *json, int depth)
{
    struct ebb_scan scan = {span.data, span.bytes, 0};
    if (depth >= DEPTH) return json != NULL;
    bool good = json != NULL;
    if (ebb_scan_take(&scan, '{'))
        good = check_object(ctx, &scan, json, depth + 1) && scan.at == span.bytes;
    else if (ebb_scan_take(&scan, '['))
        good = check_array(ctx, &scan, json, depth + 1) && scan.at == span.bytes;
    else if (ebb_scan_peek(&scan) == '"')
        check_string(ctx, span, json);
    else
        check_integer(span, json);
    FUZZ_CHECK(depth > 0 || good == (json != NULL));
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* jansson steps over a NUL behind a number. */
    if (bytes > MAX_BYTES || memchr(data, 0, bytes) != NULL) return 0;
    struct ebb_ctx *ctx = fuzz_open();
    char *text = (char *)malloc(bytes + (bytes == 0));
    FUZZ_CHECK(text != NULL);
    if (bytes > 0) memcpy(text, data, bytes);
    struct ebb_scan scan = {text, bytes, 0};
    struct ebb_span span;
    json_t *json = parse(text, bytes);
    bool found = ebb_scan_value(&scan, &span);
    FUZZ_CHECK(!found || (span.data >= text && span.data + span.bytes <= text + bytes));
    bool whole = found && ebb_scan_peek(&scan) == '\0' && scan.at == bytes;
    FUZZ_CHECK(json == NULL || whole);
    if (whole) (void)check_value(ctx, span, json, 0);
    FUZZ_CHECK(ebb_scan_line(text, bytes) >= 1);
    json_decref(json);
    free(text);
    fuzz_close(ctx);
    return 0;
}
