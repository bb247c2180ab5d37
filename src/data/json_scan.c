/* The scanner over JSON text (RFC 8259).
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/json_scan.h"

#include <limits.h>
#include <string.h>
#include <utf8proc.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

char ebb_scan_peek(struct ebb_scan *scan)
{
    while (scan->at < scan->bytes && is_space(scan->data[scan->at])) scan->at++;
    return scan->at < scan->bytes ? scan->data[scan->at] : '\0';
}

bool ebb_scan_take(struct ebb_scan *scan, char wanted)
{
    if (ebb_scan_peek(scan) != wanted || scan->at >= scan->bytes) return false;
    scan->at++;
    return true;
}

/* From behind the opening quote to behind the closing one. */
static bool skip_string(struct ebb_scan *scan, bool *escaped)
{
    *escaped = false;
    while (scan->at < scan->bytes) {
        char c = scan->data[scan->at++];
        if (c == '"') return true;
        if (c != '\\') continue;
        *escaped = true;
        scan->at++;
    }
    return false;
}

/* Behind an opening bracket: to behind the one that closes it. */
static bool skip_nested(struct ebb_scan *scan)
{
    int64_t depth = 1;
    bool escaped;
    while (depth > 0) {
        if (scan->at >= scan->bytes) return false;
        char c = scan->data[scan->at++];
        if (c == '"' && !skip_string(scan, &escaped)) return false;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
    }
    return true;
}

bool ebb_scan_value(struct ebb_scan *scan, struct ebb_span *span)
{
    char c = ebb_scan_peek(scan);
    size_t start = scan->at;
    bool escaped;
    if (c == '"') {
        scan->at++;
        if (!skip_string(scan, &escaped)) return false;
    } else if (c == '{' || c == '[') {
        scan->at++;
        if (!skip_nested(scan)) return false;
    } else {
        while (scan->at < scan->bytes && !is_space(scan->data[scan->at]) &&
               strchr(",:]}[{\"", scan->data[scan->at]) == NULL)
            scan->at++;
        if (scan->at == start) return false;
    }
    if (scan->at > scan->bytes) return false;
    span->data = scan->data + start;
    span->bytes = scan->at - start;
    return true;
}

static bool read_hex4(const char *text, size_t bytes, uint32_t *value)
{
    if (bytes < 4) return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        char c = text[i];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A') + 10;
        else
            return false;
        *value = *value << 4 | digit;
    }
    return true;
}

static size_t put_utf8(uint32_t point, char out[4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)point, (utf8proc_uint8_t *)out);
}

/* One escape, `text` behind its backslash. Returns the bytes read, 0 where it is none. */
static size_t read_escape(const char *text, size_t bytes, char out[4], size_t *out_bytes)
{
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    if (bytes == 0) return 0;
    const char *name = text[0] == '\0' ? NULL : strchr(names, text[0]);
    if (name != NULL) {
        out[0] = values[name - names];
        *out_bytes = 1;
        return 1;
    }
    uint32_t high, low;
    if (text[0] != 'u' || !read_hex4(text + 1, bytes - 1, &high)) return 0;
    if (high < 0xd800 || high > 0xdfff) {
        *out_bytes = put_utf8(high, out);
        return 5;
    }
    if (high > 0xdbff || bytes < 11 || text[5] != '\\' || text[6] != 'u' ||
        !read_hex4(text + 7, bytes - 7, &low) || low < 0xdc00 || low > 0xdfff)
        return 0;
    *out_bytes = put_utf8(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), out);
    return 11;
}

static enum ebb_status unescape(struct ebb_ctx *ctx, struct ebb_str *scratch, struct ebb_span *text,
                                bool *found)
{
    const char *data = text->data;
    size_t at = 0;
    *found = false;
    scratch->bytes = 0;
    while (at < text->bytes) {
        const char *slash = memchr(data + at, '\\', text->bytes - at);
        size_t plain = slash == NULL ? text->bytes - at : (size_t)(slash - data) - at;
        EBB_TRY(ebb_str_add(ctx, scratch, data + at, plain));
        at += plain;
        if (slash == NULL) break;
        char out[4];
        size_t out_bytes = 0;
        size_t read = read_escape(data + at + 1, text->bytes - at - 1, out, &out_bytes);
        if (read == 0) return EBB_OK;
        EBB_TRY(ebb_str_add(ctx, scratch, out, out_bytes));
        at += 1 + read;
    }
    text->data = scratch->data;
    text->bytes = scratch->bytes;
    *found = true;
    return EBB_OK;
}

enum ebb_status ebb_scan_string(struct ebb_ctx *ctx, struct ebb_scan *scan, struct ebb_str *scratch,
                                struct ebb_span *text, bool *found)
{
    bool escaped;
    *found = false;
    if (!ebb_scan_take(scan, '"')) return EBB_OK;
    size_t start = scan->at;
    if (!skip_string(scan, &escaped) || scan->at > scan->bytes) return EBB_OK;
    text->data = scan->data + start;
    text->bytes = scan->at - start - 1;
    for (size_t i = 0; i < text->bytes; i++)
        if ((unsigned char)text->data[i] < 0x20) return EBB_OK;
    if (escaped) return unescape(ctx, scratch, text, found);
    *found = true;
    return EBB_OK;
}

bool ebb_scan_int64(struct ebb_scan *scan, int64_t *value)
{
    bool negative = ebb_scan_take(scan, '-');
    size_t start = scan->at;
    int64_t sum = 0;
    if (!negative) ebb_scan_peek(scan), start = scan->at;
    while (scan->at < scan->bytes && scan->data[scan->at] >= '0' && scan->data[scan->at] <= '9') {
        int digit = scan->data[scan->at] - '0';
        if (sum > (INT64_MAX - digit) / 10) return false;
        sum = sum * 10 + digit;
        scan->at++;
    }
    if (scan->at == start || (scan->data[start] == '0' && scan->at - start > 1)) return false;
    if (scan->at < scan->bytes && strchr(".eE", scan->data[scan->at]) != NULL &&
        scan->data[scan->at] != '\0')
        return false;
    *value = negative ? -sum : sum;
    return true;
}

int ebb_scan_line(const char *data, size_t at)
{
    int64_t line = 1;
    for (size_t i = 0; i < at; i++) line += data[i] == '\n';
    return line > INT_MAX ? INT_MAX : (int)line;
}
