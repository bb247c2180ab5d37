/* How values print in Jinja: Python's str() and repr(), and json.dumps as transformers calls it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back, laid out as Python does: with an exponent below 1e-4 and from
 * 1e16 on. */
const char *ebb_jin_float_repr(double number, char out[EBB_JIN_FLOAT_TEXT])
{
    char text[EBB_TEXT_DOUBLE], digits[32];
    int count = 0, exponent = 0, point = -1;
    if (isnan(number)) return "nan";
    if (isinf(number)) return number < 0 ? "-inf" : "inf";
    ebb_text_from_double(fabs(number), text);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '.') {
            point = count;
        } else if (*c == 'e') {
            exponent = (int)strtol(c + 1, NULL, 10);
            break;
        } else if (count < 24) {
            digits[count++] = *c;
        }
    }
    if (point < 0) point = count;
    int lead = 0;
    while (lead < count - 1 && digits[lead] == '0') lead++;
    exponent += point - lead - 1; /* of the first digit */
    memmove(digits, digits + lead, (size_t)(count - lead));
    count -= lead;
    while (count > 1 && digits[count - 1] == '0') count--;
    if (digits[0] == '0') exponent = 0;
    char *at = out;
    if (signbit(number)) *at++ = '-';
    if (exponent >= -4 && exponent < 16) {
        for (int i = exponent < 0 ? exponent : 0; i < count || i <= exponent; i++) {
            *at++ = i >= 0 && i < count ? digits[i] : '0';
            if (i == exponent) *at++ = '.';
        }
        if (at[-1] == '.') *at++ = '0';
        *at = '\0';
        return out;
    }
    *at++ = digits[0];
    if (count > 1) *at++ = '.';
    for (int i = 1; i < count; i++) *at++ = digits[i];
    snprintf(at, EBB_JIN_FLOAT_TEXT - 24, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    return out;
}

/* ---- repr ---- */

static enum ebb_status repr_string(struct ebb_jin_run *run, const struct ebb_jin_str *str,
                                   struct ebb_jin_buf *buf)
{
    bool single = memchr(str->data, '\'', str->bytes) != NULL;
    bool both = single && memchr(str->data, '"', str->bytes) != NULL;
    char quote = single && !both ? '"' : '\'', text[16];
    size_t length;
    EBB_TRY(ebb_jin_buf_add(run, buf, &quote, 1));
    for (size_t i = 0; i < str->bytes; i += length) {
        int32_t point = ebb_jin_point(str->data, str->bytes, i, &length);
        if (point == quote || point == '\\')
            snprintf(text, sizeof text, "\\%c", (char)point);
        else if (point == '\n' || point == '\r' || point == '\t')
            snprintf(text, sizeof text, "\\%c", point == '\n' ? 'n' : point == '\r' ? 'r' : 't');
        else if (ebb_jin_is_printable(point))
            text[0] = '\0';
        else
            snprintf(text, sizeof text,
                     point < 0x100     ? "\\x%02x"
                     : point < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                     (unsigned)point);
        if (text[0] == '\0')
            EBB_TRY(ebb_jin_buf_add(run, buf, str->data + i, length));
        else
            EBB_TRY(ebb_jin_buf_text(run, buf, text));
    }
    return ebb_jin_buf_add(run, buf, &quote, 1);
}

static enum ebb_status repr_items(struct ebb_jin_run *run, struct ebb_jin_value value,
                                  const char *open, const char *close, struct ebb_jin_buf *buf)
{
    int64_t count = 0;
    (void)ebb_jin_length(value, &count);
    EBB_TRY(ebb_jin_buf_text(run, buf, open));
    for (int64_t i = 0; i < count; i++) {
        struct ebb_jin_value item;
        EBB_TRY(ebb_jin_at(run, value, i, &item));
        if (i > 0) EBB_TRY(ebb_jin_buf_text(run, buf, ", "));
        EBB_TRY(ebb_jin_repr(run, item, buf));
    }
    if (value.type == EBB_JIN_TUPLE && count == 1) EBB_TRY(ebb_jin_buf_text(run, buf, ","));
    return ebb_jin_buf_text(run, buf, close);
}

static enum ebb_status repr_dict(struct ebb_jin_run *run, const struct ebb_jin_dict *dict,
                                 struct ebb_jin_buf *buf)
{
    EBB_TRY(ebb_jin_buf_text(run, buf, "{"));
    for (int64_t i = 0; i < dict->count; i++) {
        if (i > 0) EBB_TRY(ebb_jin_buf_text(run, buf, ", "));
        EBB_TRY(ebb_jin_repr(run, dict->items[i].key, buf));
        EBB_TRY(ebb_jin_buf_text(run, buf, ": "));
        EBB_TRY(ebb_jin_repr(run, dict->items[i].value, buf));
    }
    return ebb_jin_buf_text(run, buf, "}");
}

static enum ebb_status repr_view(struct ebb_jin_run *run, struct ebb_jin_value value,
                                 struct ebb_jin_buf *buf)
{
    EBB_TRY(ebb_jin_buf_text(run, buf, ebb_jin_type_name(value)));
    return repr_items(run, value, "([", "])", buf);
}

static enum ebb_status repr_range(struct ebb_jin_run *run, const struct ebb_jin_range *range,
                                  struct ebb_jin_buf *buf)
{
    char text[80];
    long long start = range->start, stop = range->stop, step = range->step;
    snprintf(text, sizeof text, step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)", start,
             stop, step);
    return ebb_jin_buf_text(run, buf, text);
}

static enum ebb_status repr_macro(struct ebb_jin_run *run, const struct ebb_jin_macro *macro,
                                  struct ebb_jin_buf *buf)
{
    if (macro->node->name < 0) return ebb_jin_buf_text(run, buf, "<Macro anonymous>");
    EBB_TRY(ebb_jin_buf_text(run, buf, "<Macro "));
    EBB_TRY(ebb_jin_repr(run, run->jinja->names.items[macro->node->name], buf));
    return ebb_jin_buf_text(run, buf, ">");
}

static enum ebb_status repr_any(struct ebb_jin_run *run, struct ebb_jin_value value,
                                struct ebb_jin_buf *buf)
{
    char text[EBB_JIN_FLOAT_TEXT];
    switch (value.type) {
    case EBB_JIN_UNDEFINED:
        return ebb_jin_buf_text(run, buf, "Undefined");
    case EBB_JIN_NONE:
        return ebb_jin_buf_text(run, buf, "None");
    case EBB_JIN_BOOL:
        return ebb_jin_buf_text(run, buf, value.as.truth ? "True" : "False");
    case EBB_JIN_INT:
        snprintf(text, sizeof text, "%lld", (long long)value.as.integer);
        return ebb_jin_buf_text(run, buf, text);
    case EBB_JIN_FLOAT:
        return ebb_jin_buf_text(run, buf, ebb_jin_float_repr(value.as.number, text));
    case EBB_JIN_STR:
        if (value.flag == 0) return repr_string(run, value.as.str, buf);
        EBB_TRY(ebb_jin_buf_text(run, buf, "Markup("));
        EBB_TRY(repr_string(run, value.as.str, buf));
        return ebb_jin_buf_text(run, buf, ")");
    case EBB_JIN_LIST:
        return repr_items(run, value, "[", "]", buf);
    case EBB_JIN_TUPLE:
        return repr_items(run, value, "(", ")", buf);
    case EBB_JIN_DICT:
        return repr_dict(run, value.as.dict, buf);
    case EBB_JIN_VIEW:
        return repr_view(run, value, buf);
    case EBB_JIN_RANGE:
        return repr_range(run, value.as.range, buf);
    case EBB_JIN_NAMESPACE:
        EBB_TRY(ebb_jin_buf_text(run, buf, "<Namespace "));
        EBB_TRY(repr_dict(run, value.as.dict, buf));
        return ebb_jin_buf_text(run, buf, ">");
    case EBB_JIN_MACRO:
        return repr_macro(run, value.as.macro, buf);
    case EBB_JIN_LOOP:
        return ebb_jin_loop_repr(run, value.as.loop, buf);
    default:
        return ebb_jin_refuse(&run->base,
                              "a %s is printed, which has no text of its own (a filter such as "
                              "'list' or brackets for a call may be missing)",
                              ebb_jin_type_name(value));
    }
}

enum ebb_status ebb_jin_repr(struct ebb_jin_run *run, struct ebb_jin_value value,
                             struct ebb_jin_buf *buf)
{
    EBB_TRY(ebb_jin_step(run, 0));
    EBB_TRY(ebb_jin_enter(run));
    enum ebb_status status = repr_any(run, value, buf);
    run->depth--;
    return status;
}

enum ebb_status ebb_jin_print(struct ebb_jin_run *run, struct ebb_jin_value value,
                              struct ebb_jin_buf *buf)
{
    if (value.type == EBB_JIN_STR)
        return ebb_jin_buf_add(run, buf, value.as.str->data, value.as.str->bytes);
    if (value.type == EBB_JIN_UNDEFINED) return EBB_OK;
    return ebb_jin_repr(run, value, buf);
}

enum ebb_status ebb_jin_to_str(struct ebb_jin_run *run, struct ebb_jin_value *value)
{
    struct ebb_jin_buf buf = {0};
    if (value->type == EBB_JIN_STR) return EBB_OK;
    EBB_TRY(ebb_jin_print(run, *value, &buf));
    return ebb_jin_str_of(&run->base, &buf, value);
}

/* ---- JSON ---- */

struct json_way {
    bool ascii, sort, lines;
    struct ebb_jin_value indent; /* what a level adds, with `lines` */
    struct ebb_jin_value comma, colon;
};

static enum ebb_status write_string(struct ebb_jin_run *run, const struct json_way *way,
                                    const struct ebb_jin_str *str, struct ebb_jin_buf *buf)
{
    static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    char text[16];
    size_t length;
    EBB_TRY(ebb_jin_buf_text(run, buf, "\""));
    for (size_t i = 0; i < str->bytes; i += length) {
        int32_t point = ebb_jin_point(str->data, str->bytes, i, &length);
        const char *found = point > 0 && point < 0x80 ? strchr(plain, point) : NULL;
        if (found != NULL) {
            snprintf(text, sizeof text, "\\%c", letters[found - plain]);
        } else if (point < 0x20 || (way->ascii && point >= 0x7f && point < 0x10000)) {
            snprintf(text, sizeof text, "\\u%04x", (unsigned)point);
        } else if (way->ascii && point >= 0x10000) {
            unsigned rest = (unsigned)point - 0x10000;
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 | (rest >> 10),
                     0xdc00 | (rest & 0x3ff));
        } else {
            EBB_TRY(ebb_jin_buf_add(run, buf, str->data + i, length));
            continue;
        }
        EBB_TRY(ebb_jin_buf_text(run, buf, text));
    }
    return ebb_jin_buf_text(run, buf, "\"");
}

static const char *json_float(double number, char text[EBB_JIN_FLOAT_TEXT])
{
    if (isnan(number)) return "NaN";
    if (isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return ebb_jin_float_repr(number, text);
}

static enum ebb_status json_value(struct ebb_jin_run *run, const struct json_way *way, int level,
                                  struct ebb_jin_value value, struct ebb_jin_buf *buf);

static enum ebb_status json_break(struct ebb_jin_run *run, const struct json_way *way, int level,
                                  struct ebb_jin_buf *buf)
{
    if (!way->lines) return EBB_OK;
    EBB_TRY(ebb_jin_buf_text(run, buf, "\n"));
    for (int i = 0; i < level; i++) EBB_TRY(ebb_jin_print(run, way->indent, buf));
    return EBB_OK;
}

static enum ebb_status json_list(struct ebb_jin_run *run, const struct json_way *way, int level,
                                 const struct ebb_jin_list *list, struct ebb_jin_buf *buf)
{
    if (list->count == 0) return ebb_jin_buf_text(run, buf, "[]");
    EBB_TRY(ebb_jin_buf_text(run, buf, "["));
    for (int64_t i = 0; i < list->count; i++) {
        if (i > 0) EBB_TRY(ebb_jin_print(run, way->comma, buf));
        EBB_TRY(json_break(run, way, level + 1, buf));
        EBB_TRY(json_value(run, way, level + 1, list->items[i], buf));
    }
    EBB_TRY(json_break(run, way, level, buf));
    return ebb_jin_buf_text(run, buf, "]");
}

static enum ebb_status json_key(struct ebb_jin_run *run, const struct json_way *way,
                                struct ebb_jin_value key, struct ebb_jin_buf *buf)
{
    if (key.type == EBB_JIN_STR) return write_string(run, way, key.as.str, buf);
    if (!ebb_jin_is_number(key) && key.type != EBB_JIN_NONE)
        return ebb_jin_fail(&run->base, "keys must be str, int, float, bool or None, not %s",
                            ebb_jin_type_name(key));
    EBB_TRY(ebb_jin_buf_text(run, buf, "\""));
    EBB_TRY(json_value(run, way, 0, key, buf));
    return ebb_jin_buf_text(run, buf, "\"");
}

/* Sorts entries by key, in place; insertion suffices for the few keys an object has, and steps
 * bound the rest. */
static enum ebb_status sort_entries(struct ebb_jin_run *run, struct ebb_jin_entry *entries,
                                    int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        struct ebb_jin_entry entry = entries[i];
        int64_t at = i;
        for (; at > 0; at--) {
            bool less;
            EBB_TRY(ebb_jin_order(run, EBB_JIN_TOK_LT, entry.key, entries[at - 1].key, &less));
            if (!less) break;
            entries[at] = entries[at - 1];
        }
        entries[at] = entry;
    }
    return EBB_OK;
}

static enum ebb_status json_dict(struct ebb_jin_run *run, const struct json_way *way, int level,
                                 const struct ebb_jin_dict *dict, struct ebb_jin_buf *buf)
{
    struct ebb_jin_entry *entries = dict->items;
    if (dict->count == 0) return ebb_jin_buf_text(run, buf, "{}");
    if (way->sort) {
        size_t bytes = (size_t)dict->count * sizeof *entries;
        entries = (struct ebb_jin_entry *)ebb_jin_alloc(&run->base, bytes);
        if (entries == NULL) return ebb_jin_failed(&run->base);
        memcpy(entries, dict->items, bytes);
        EBB_TRY(sort_entries(run, entries, dict->count));
    }
    EBB_TRY(ebb_jin_buf_text(run, buf, "{"));
    for (int64_t i = 0; i < dict->count; i++) {
        if (i > 0) EBB_TRY(ebb_jin_print(run, way->comma, buf));
        EBB_TRY(json_break(run, way, level + 1, buf));
        EBB_TRY(json_key(run, way, entries[i].key, buf));
        EBB_TRY(ebb_jin_print(run, way->colon, buf));
        EBB_TRY(json_value(run, way, level + 1, entries[i].value, buf));
    }
    EBB_TRY(json_break(run, way, level, buf));
    return ebb_jin_buf_text(run, buf, "}");
}

static enum ebb_status json_value(struct ebb_jin_run *run, const struct json_way *way, int level,
                                  struct ebb_jin_value value, struct ebb_jin_buf *buf)
{
    char text[EBB_JIN_FLOAT_TEXT];
    enum ebb_status status = EBB_OK;
    EBB_TRY(ebb_jin_step(run, 0));
    switch (value.type) {
    case EBB_JIN_NONE:
        return ebb_jin_buf_text(run, buf, "null");
    case EBB_JIN_BOOL:
        return ebb_jin_buf_text(run, buf, value.as.truth ? "true" : "false");
    case EBB_JIN_INT:
        return ebb_jin_repr(run, value, buf);
    case EBB_JIN_FLOAT:
        return ebb_jin_buf_text(run, buf, json_float(value.as.number, text));
    case EBB_JIN_STR:
        return write_string(run, way, value.as.str, buf);
    case EBB_JIN_LIST:
    case EBB_JIN_TUPLE:
    case EBB_JIN_DICT:
        EBB_TRY(ebb_jin_enter(run));
        status = value.type == EBB_JIN_DICT ? json_dict(run, way, level, value.as.dict, buf)
                                            : json_list(run, way, level, value.as.list, buf);
        run->depth--;
        return status;
    default:
        return ebb_jin_fail(&run->base, "Object of type %s is not JSON serializable",
                            ebb_jin_type_name(value));
    }
}

static enum ebb_status json_indent(struct ebb_jin_run *run, struct ebb_jin_value given,
                                   struct json_way *way)
{
    struct ebb_jin_value blank;
    way->lines = given.type != EBB_JIN_MISSING && given.type != EBB_JIN_NONE;
    if (!way->lines || given.type == EBB_JIN_STR) {
        way->indent = given;
        return EBB_OK;
    }
    int64_t width;
    EBB_TRY(ebb_jin_want_int(run, "tojson's indent", given, &width));
    EBB_TRY(ebb_jin_str_borrow(&run->base, " ", 1, &blank));
    return ebb_jin_binary(run, EBB_JIN_TOK_MUL, blank, ebb_jin_int(width), &way->indent);
}

enum ebb_status ebb_jin_tojson(struct ebb_jin_run *run, struct ebb_jin_value self,
                               const struct ebb_jin_args *args, struct ebb_jin_value *out)
{
    struct json_way way = {0};
    struct ebb_jin_value values[4];
    struct ebb_jin_buf buf = {0};
    EBB_TRY(
        ebb_jin_bind(run, "tojson", "ensure_ascii indent separators sort_keys", 0, args, values));
    way.ascii = ebb_jin_truth(values[0]);
    way.sort = ebb_jin_truth(values[3]);
    EBB_TRY(json_indent(run, values[1], &way));
    if (values[2].type == EBB_JIN_MISSING || values[2].type == EBB_JIN_NONE) {
        EBB_TRY(ebb_jin_str_borrow(&run->base, ", ", way.lines ? 1 : 2, &way.comma));
        EBB_TRY(ebb_jin_str_borrow(&run->base, ": ", 2, &way.colon));
    } else {
        bool pair = (values[2].type == EBB_JIN_LIST || values[2].type == EBB_JIN_TUPLE) &&
                    values[2].as.list->count == 2;
        if (pair) {
            way.comma = values[2].as.list->items[0];
            way.colon = values[2].as.list->items[1];
        }
        if (!pair || way.comma.type != EBB_JIN_STR || way.colon.type != EBB_JIN_STR)
            return ebb_jin_fail(&run->base, "tojson's separators are to be two strings");
    }
    EBB_TRY(json_value(run, &way, 0, self, &buf));
    return ebb_jin_str_of(&run->base, &buf, out);
}
