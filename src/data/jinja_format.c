/* Python's two ways to put values into text: text % values and text.format(values).
 *
 * Conversions %s %r %d %i %u %x %X %o %c %f %F %e %E %g %G with flags, width and precision;
 * fields {} {0} {name} with !s or !r and without a format specification.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- % ---- */

struct percent {
    struct ebb_jin_run *run;
    struct ebb_jin_value values; /* what stands right of the % */
    int64_t at;                  /* values taken from a tuple */
    bool taken;                  /* a single value is used up */
    struct ebb_jin_buf out;
};

struct conversion {
    bool left, zero, plus, blank, alternate;
    int64_t width, precision; /* -1: none */
    char letter;
};

static enum ebb_status next_value(struct percent *percent, struct ebb_jin_value *value)
{
    bool tuple = percent->values.type == EBB_JIN_TUPLE;
    if (tuple ? percent->at >= percent->values.as.list->count : percent->taken)
        return ebb_jin_fail(&percent->run->base, "not enough arguments for format string");
    percent->taken = true;
    *value = tuple ? percent->values.as.list->items[percent->at++] : percent->values;
    return EBB_OK;
}

static enum ebb_status pad(struct percent *percent, const struct conversion *conversion,
                           const char *text, size_t bytes)
{
    struct ebb_jin_str str = {text, bytes, -1};
    int64_t missing = conversion->width - ebb_jin_str_points(&str);
    size_t sign = conversion->zero && bytes > 0 && (text[0] == '-' || text[0] == '+');
    if (missing > percent->run->limits.output_bytes) missing = percent->run->limits.output_bytes;
    if (conversion->left || missing <= 0)
        EBB_TRY(ebb_jin_buf_add(percent->run, &percent->out, text, bytes));
    else if (sign > 0)
        EBB_TRY(ebb_jin_buf_add(percent->run, &percent->out, text, sign));
    for (int64_t i = 0; i < missing; i++) {
        EBB_TRY(ebb_jin_step(percent->run, 0));
        EBB_TRY(ebb_jin_buf_text(percent->run, &percent->out,
                                 conversion->zero && !conversion->left ? "0" : " "));
    }
    if (conversion->left || missing <= 0) return EBB_OK;
    return ebb_jin_buf_add(percent->run, &percent->out, text + sign, bytes - sign);
}

static enum ebb_status convert_text(struct percent *percent, struct conversion *conversion,
                                    struct ebb_jin_value value)
{
    struct ebb_jin_buf buf = {0};
    struct ebb_jin_value text;
    EBB_TRY(conversion->letter == 's' ? ebb_jin_print(percent->run, value, &buf)
                                      : ebb_jin_repr(percent->run, value, &buf));
    EBB_TRY(ebb_jin_str_of(&percent->run->base, &buf, &text));
    size_t bytes = text.as.str->bytes;
    if (conversion->precision >= 0 && conversion->precision < ebb_jin_str_points(text.as.str))
        bytes = ebb_jin_str_offset(text.as.str, conversion->precision);
    conversion->zero = false;
    return pad(percent, conversion, text.as.str->data, bytes);
}

static enum ebb_status convert_number(struct percent *percent, const struct conversion *conversion,
                                      struct ebb_jin_value value)
{
    char format[16], text[512];
    bool whole = strchr("diuxXo", conversion->letter) != NULL;
    bool decimal = strchr("diu", conversion->letter) != NULL;
    if (!ebb_jin_is_number(value) || (whole && !decimal && !ebb_jin_is_int(value)))
        return ebb_jin_fail(&percent->run->base, "%%%c format: a number is required, not %s",
                            conversion->letter, ebb_jin_type_name(value));
    if (conversion->precision > 100 || (whole && conversion->precision >= 0))
        return ebb_jin_refuse(&percent->run->base, "this precision in a %%%c format is not offered",
                              conversion->letter);
    snprintf(format, sizeof format, "%%%s%s%s.*%s%c", conversion->plus ? "+" : "",
             conversion->blank ? " " : "", conversion->alternate ? "#" : "", whole ? "ll" : "",
             decimal ? 'd' : conversion->letter);
    int precision = conversion->precision >= 0 ? (int)conversion->precision : whole ? 1 : 6;
    if (whole) {
        double number = ebb_jin_number(value);
        if (!ebb_jin_is_int(value) && !(fabs(number) < 9e18))
            return ebb_jin_fail(&percent->run->base, "an integer has more than 64 bits");
        int64_t integer = ebb_jin_is_int(value) ? ebb_jin_integer(value) : (int64_t)number;
        if (!decimal && integer < 0)
            return ebb_jin_refuse(&percent->run->base, "%%%c of a negative number is not offered",
                                  conversion->letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, format, precision, (long long)integer);
    } else {
        snprintf(text, sizeof text, format, precision, ebb_jin_number(value));
#pragma GCC diagnostic pop
    }
    return pad(percent, conversion, text, strlen(text));
}

static enum ebb_status convert(struct percent *percent, struct conversion *conversion,
                               struct ebb_jin_value value)
{
    char text[4];
    switch (conversion->letter) {
    case 's':
    case 'r':
        return convert_text(percent, conversion, value);
    case 'c':
        if (value.type == EBB_JIN_STR && ebb_jin_str_points(value.as.str) == 1)
            return pad(percent, conversion, value.as.str->data, value.as.str->bytes);
        if (!ebb_jin_is_int(value) || ebb_jin_integer(value) < 0 ||
            ebb_jin_integer(value) > 0x10ffff ||
            (ebb_jin_integer(value) >= 0xd800 && ebb_jin_integer(value) < 0xe000))
            return ebb_jin_fail(&percent->run->base, "%%c requires int or char");
        return pad(percent, conversion, text,
                   ebb_jin_put_point((int32_t)ebb_jin_integer(value), text));
    default:
        return convert_number(percent, conversion, value);
    }
}

static enum ebb_status read_count(struct percent *percent, const char *text, size_t bytes,
                                  size_t *at, int64_t *count)
{
    struct ebb_jin_value value;
    *count = 0;
    if (*at < bytes && text[*at] == '*') {
        (*at)++;
        EBB_TRY(next_value(percent, &value));
        return ebb_jin_want_int(percent->run, "a width *", value, count);
    }
    for (; *at < bytes && text[*at] >= '0' && text[*at] <= '9'; (*at)++)
        if (*count < 100000000) *count = *count * 10 + text[*at] - '0';
    return EBB_OK;
}

/* One conversion; *at stands behind the %. */
static enum ebb_status percent_one(struct percent *percent, const char *text, size_t bytes,
                                   size_t *at)
{
    struct ebb_jin_run *run = percent->run;
    struct conversion conversion = {.precision = -1};
    struct ebb_jin_value value = {EBB_JIN_MISSING, 0, {false}}, key;
    if (*at < bytes && text[*at] == '(') {
        const char *end = (const char *)memchr(text + *at, ')', bytes - *at);
        const struct ebb_jin_value *found;
        if (end == NULL) return ebb_jin_fail(&run->base, "incomplete format key");
        if (percent->values.type != EBB_JIN_DICT)
            return ebb_jin_fail(&run->base, "format requires a mapping");
        size_t length = (size_t)(end - text) - *at - 1;
        EBB_TRY(ebb_jin_str_borrow(&run->base, text + *at + 1, length, &key));
        EBB_TRY(ebb_jin_dict_get(run, percent->values.as.dict, key, false, &found));
        if (found == NULL)
            return ebb_jin_fail(&run->base, "no key '%.*s' for a format",
                                length > 60 ? 60 : (int)length, key.as.str->data);
        value = *found;
        percent->taken = true;
        *at += length + 2;
    }
    for (; *at < bytes && text[*at] != '\0' && strchr("-0+ #", text[*at]) != NULL; (*at)++) {
        conversion.left |= text[*at] == '-';
        conversion.zero |= text[*at] == '0';
        conversion.plus |= text[*at] == '+';
        conversion.blank |= text[*at] == ' ';
        conversion.alternate |= text[*at] == '#';
    }
    EBB_TRY(read_count(percent, text, bytes, at, &conversion.width));
    if (conversion.width < 0) {
        conversion.left = true;
        conversion.width = conversion.width < -1000000000 ? 1000000000 : -conversion.width;
    }
    if (*at < bytes && text[*at] == '.') {
        (*at)++;
        EBB_TRY(read_count(percent, text, bytes, at, &conversion.precision));
        if (conversion.precision < 0) conversion.precision = 0;
    }
    while (*at < bytes && text[*at] != '\0' && strchr("hlL", text[*at]) != NULL) (*at)++;
    if (*at >= bytes) return ebb_jin_fail(&run->base, "incomplete format");
    conversion.letter = text[(*at)++];
    if (conversion.letter == '%') return ebb_jin_buf_text(run, &percent->out, "%");
    if (conversion.letter == '\0' || strchr("srdiuxXocfFeEgG", conversion.letter) == NULL)
        return ebb_jin_fail(&run->base, "unsupported format character '%c'", conversion.letter);
    if (value.type == EBB_JIN_MISSING) EBB_TRY(next_value(percent, &value));
    return convert(percent, &conversion, value);
}

enum ebb_status ebb_jin_percent(struct ebb_jin_run *run, struct ebb_jin_value text,
                                struct ebb_jin_value values, struct ebb_jin_value *out)
{
    struct percent percent = {.run = run, .values = values};
    const char *data = text.as.str->data;
    size_t bytes = text.as.str->bytes;
    if (text.flag != 0)
        return ebb_jin_refuse(&run->base, "%% of text that is marked safe is not offered");
    for (size_t i = 0; i < bytes;) {
        size_t plain = i;
        while (plain < bytes && data[plain] != '%') plain++;
        EBB_TRY(ebb_jin_buf_add(run, &percent.out, data + i, plain - i));
        i = plain + 1;
        if (plain < bytes) EBB_TRY(percent_one(&percent, data, bytes, &i));
    }
    bool tuple = values.type == EBB_JIN_TUPLE;
    bool left = tuple ? percent.at < values.as.list->count
                      : !percent.taken && values.type != EBB_JIN_DICT &&
                            values.type != EBB_JIN_LIST && values.type != EBB_JIN_RANGE &&
                            values.type != EBB_JIN_UNDEFINED;
    if (left)
        return ebb_jin_fail(&run->base, "not all arguments converted during string formatting");
    return ebb_jin_str_of(&run->base, &percent.out, out);
}

/* ---- format ---- */

struct format {
    struct ebb_jin_run *run;
    const struct ebb_jin_args *args;
    int64_t next; /* of {} */
    bool counted, numbered;
    struct ebb_jin_buf out;
};

static enum ebb_status by_place(struct format *format, const char *name, size_t bytes,
                                struct ebb_jin_value *value)
{
    int64_t place = 0;
    if (bytes == 0) {
        place = format->next++;
        format->counted = true;
    }
    for (size_t i = 0; i < bytes; i++)
        if (place < 1000000) place = place * 10 + name[i] - '0';
    format->numbered |= bytes > 0;
    if (format->numbered && format->counted)
        return ebb_jin_fail(&format->run->base, "format mixes {} and {0}");
    if (place >= format->args->count)
        return ebb_jin_fail(&format->run->base,
                            "Replacement index %lld out of range for positional args tuple",
                            (long long)place);
    *value = format->args->items[place];
    return EBB_OK;
}

static enum ebb_status field_value(struct format *format, const char *name, size_t bytes,
                                   struct ebb_jin_value *value)
{
    if (strspn(name, "0123456789") >= bytes) return by_place(format, name, bytes, value);
    for (size_t i = 0; i < bytes; i++)
        if (name[i] == '.' || name[i] == '[')
            return ebb_jin_refuse(&format->run->base,
                                  "format with attributes or items in {} is not offered");
    for (int64_t i = 0; i < format->args->named_count; i++) {
        const struct ebb_jin_str *given = format->args->named[i].name.as.str;
        if (given->bytes != bytes || memcmp(given->data, name, bytes) != 0) continue;
        *value = format->args->named[i].value;
        return EBB_OK;
    }
    return ebb_jin_fail(&format->run->base, "no argument '%.*s' for a format",
                        bytes > 60 ? 60 : (int)bytes, name);
}

/* What stands between the braces. */
static enum ebb_status format_field(struct format *format, const char *field, size_t bytes)
{
    struct ebb_jin_run *run = format->run;
    struct ebb_jin_value value, name;
    char way = 's';
    if (bytes >= 2 && field[bytes - 2] == '!') {
        way = field[bytes - 1];
        bytes -= 2;
    }
    if (memchr(field, ':', bytes) != NULL || memchr(field, '{', bytes) != NULL ||
        (way != 's' && way != 'r'))
        return ebb_jin_refuse(&run->base,
                              "format with a specification in {} is not offered (%% is)");
    EBB_TRY(ebb_jin_str_copy(&run->base, field, bytes, &name)); /* with a NUL behind it */
    EBB_TRY(field_value(format, name.as.str->data, bytes, &value));
    return way == 's' ? ebb_jin_print(run, value, &format->out)
                      : ebb_jin_repr(run, value, &format->out);
}

enum ebb_status ebb_jin_format(struct ebb_jin_run *run, struct ebb_jin_value self,
                               const struct ebb_jin_args *args, struct ebb_jin_value *out)
{
    struct format format = {.run = run, .args = args};
    const char *data = self.as.str->data;
    size_t bytes = self.as.str->bytes;
    for (size_t i = 0; i < bytes; i++) {
        char c = data[i];
        bool twice = i + 1 < bytes && data[i + 1] == c;
        if ((c == '{' || c == '}') && twice) {
            i++;
        } else if (c == '}') {
            return ebb_jin_fail(&run->base, "Single '}' encountered in format string");
        } else if (c == '{') {
            const char *end = (const char *)memchr(data + i, '}', bytes - i);
            if (end == NULL) return ebb_jin_fail(&run->base, "expected '}' before end of string");
            EBB_TRY(format_field(&format, data + i + 1, (size_t)(end - data) - i - 1));
            i = (size_t)(end - data);
            continue;
        }
        EBB_TRY(ebb_jin_buf_add(run, &format.out, &c, 1));
    }
    return ebb_jin_str_of(&run->base, &format.out, out);
}
