/* Filters of Jinja over text and numbers, and the way to all filters by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER_ARGS                                                                                \
    struct ebb_jin_run *run, struct ebb_jin_value self, const struct ebb_jin_args *args,           \
        struct ebb_jin_value *out

static const struct ebb_jin_args no_args = {NULL, 0, NULL, 0};

/* A string's method on any value, as text. */
static enum ebb_status as_method(struct ebb_jin_run *run, const char *name,
                                 struct ebb_jin_value self, const struct ebb_jin_args *args,
                                 struct ebb_jin_value *out)
{
    struct ebb_jin_value key;
    EBB_TRY(ebb_jin_to_str(run, &self));
    EBB_TRY(ebb_jin_str_borrow(&run->base, name, strlen(name), &key));
    return ebb_jin_find(ebb_jin_str_methods(), key)->call(run, self, args, out);
}

static enum ebb_status do_upper(FILTER_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "upper", "", 0, args, NULL));
    return as_method(run, "upper", self, &no_args, out);
}

static enum ebb_status do_lower(FILTER_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "lower", "", 0, args, NULL));
    return as_method(run, "lower", self, &no_args, out);
}

static enum ebb_status do_capitalize(FILTER_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "capitalize", "", 0, args, NULL));
    return as_method(run, "capitalize", self, &no_args, out);
}

static enum ebb_status do_trim(FILTER_ARGS)
{
    return as_method(run, "strip", self, args, out);
}

static enum ebb_status do_center(FILTER_ARGS)
{
    struct ebb_jin_value width;
    struct ebb_jin_args one = {&width, 1, NULL, 0};
    EBB_TRY(ebb_jin_bind(run, "center", "width", 0, args, &width));
    if (width.type == EBB_JIN_MISSING) width = ebb_jin_int(80);
    return as_method(run, "center", self, &one, out);
}

static enum ebb_status do_replace(FILTER_ARGS)
{
    struct ebb_jin_value values[3];
    struct ebb_jin_args passed = {values, 3, NULL, 0};
    EBB_TRY(ebb_jin_bind(run, "replace", "old new count", 2, args, values));
    EBB_TRY(ebb_jin_to_str(run, &self));
    EBB_TRY(ebb_jin_to_str(run, &values[0]));
    EBB_TRY(ebb_jin_to_str(run, &values[1]));
    self.flag = 0;
    if (values[2].type == EBB_JIN_MISSING || values[2].type == EBB_JIN_NONE) passed.count = 2;
    return as_method(run, "replace", self, &passed, out);
}

static bool is_between(int32_t point)
{
    return ebb_jin_is_space(point) || point == '-' || point == '(' || point == '{' ||
           point == '[' || point == '<';
}

/* Words begin behind white space and some brackets, unlike in str.title. The rest of a word is in
 * lower case as if it stood alone, which a final sigma shows. */
static enum ebb_status do_title(FILTER_ARGS)
{
    struct ebb_jin_buf buf = {0};
    size_t length;
    EBB_TRY(ebb_jin_bind(run, "title", "", 0, args, NULL));
    EBB_TRY(ebb_jin_to_str(run, &self));
    const struct ebb_jin_str *str = self.as.str;
    EBB_TRY(ebb_jin_step(run, str->bytes * 16));
    for (size_t begin = 0; begin < str->bytes;) {
        size_t end = begin, second;
        bool between = is_between(ebb_jin_point(str->data, str->bytes, begin, &second));
        for (; end < str->bytes; end += length)
            if (is_between(ebb_jin_point(str->data, str->bytes, end, &length)) != between) break;
        const char *rest = str->data + begin + second;
        size_t bytes = end - begin - second;
        EBB_TRY(ebb_jin_add_cased(run, &buf, EBB_CASE_UPPER, str->data, end, begin));
        for (size_t i = 0; i < bytes; i += length) {
            (void)ebb_jin_point(rest, bytes, i, &length);
            EBB_TRY(ebb_jin_add_cased(run, &buf, EBB_CASE_LOWER, rest, bytes, i));
        }
        begin = end;
    }
    return ebb_jin_str_of(&run->base, &buf, out);
}

static enum ebb_status do_string(FILTER_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "string", "", 0, args, NULL));
    *out = self;
    return ebb_jin_to_str(run, out);
}

static enum ebb_status do_safe(FILTER_ARGS)
{
    EBB_TRY(do_string(run, self, args, out));
    out->flag = 1;
    return EBB_OK;
}

/* Adding to an empty safe text escapes. */
static enum ebb_status do_escape(FILTER_ARGS)
{
    struct ebb_jin_value empty;
    EBB_TRY(ebb_jin_bind(run, "escape", "", 0, args, NULL));
    EBB_TRY(ebb_jin_to_str(run, &self));
    EBB_TRY(ebb_jin_str_borrow(&run->base, "", 0, &empty));
    empty.flag = 1;
    return ebb_jin_binary(run, EBB_JIN_TOK_ADD, empty, self, out);
}

static enum ebb_status do_forceescape(FILTER_ARGS)
{
    EBB_TRY(ebb_jin_to_str(run, &self));
    self.flag = 0;
    return do_escape(run, self, args, out);
}

static enum ebb_status do_format(FILTER_ARGS)
{
    struct ebb_jin_value values, *items;
    EBB_TRY(ebb_jin_to_str(run, &self));
    if (args->count > 0 && args->named_count > 0)
        return ebb_jin_fail(&run->base,
                            "can't handle positional and keyword arguments at the same time");
    if (args->named_count > 0) {
        EBB_TRY(ebb_jin_dict_new(run, &values));
        for (int64_t i = 0; i < args->named_count; i++)
            EBB_TRY(
                ebb_jin_dict_set(run, values.as.dict, args->named[i].name, args->named[i].value));
    } else {
        EBB_TRY(ebb_jin_list_new(run, EBB_JIN_TUPLE, args->count, &values, &items));
        for (int64_t i = 0; i < args->count; i++) items[i] = args->items[i];
    }
    return ebb_jin_percent(run, self, values, out);
}

static enum ebb_status indent_line(struct ebb_jin_run *run, struct ebb_jin_buf *buf,
                                   struct ebb_jin_value by, const char *line, size_t bytes)
{
    EBB_TRY(ebb_jin_buf_add(run, buf, by.as.str->data, by.as.str->bytes));
    return ebb_jin_buf_add(run, buf, line, bytes);
}

static enum ebb_status do_indent(FILTER_ARGS)
{
    struct ebb_jin_value values[3], by = {EBB_JIN_MISSING, 0, {false}};
    struct ebb_jin_buf buf = {0};
    struct ebb_jin_str empty = {"", 0, 0};
    size_t begin = 0, length;
    EBB_TRY(ebb_jin_bind(run, "indent", "width first blank", 0, args, values));
    if (self.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, self);
    if (self.type != EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "indent: a string is wanted, not %s",
                            ebb_jin_type_name(self));
    if (values[0].type == EBB_JIN_MISSING) values[0] = ebb_jin_int(4);
    if (values[0].type == EBB_JIN_STR) {
        by = values[0];
    } else {
        EBB_TRY(ebb_jin_str_borrow(&run->base, " ", 1, &by));
        EBB_TRY(ebb_jin_binary(run, EBB_JIN_TOK_MUL, by, values[0], &by));
    }
    bool first = ebb_jin_truth(values[1]), blank = ebb_jin_truth(values[2]);
    const struct ebb_jin_str *str = self.as.str;
    EBB_TRY(ebb_jin_step(run, str->bytes * 8));
    struct ebb_jin_value none = by;
    none.as.str = &empty;
    /* The text counts as ended by a newline: one at its end makes an empty last line. */
    for (size_t i = 0, line = 0; i <= str->bytes;) {
        size_t end = i < str->bytes ? ebb_jin_line_end(str->data, str->bytes, i) : 1;
        if (end == 0) {
            (void)ebb_jin_point(str->data, str->bytes, i, &length);
            i += length;
            continue;
        }
        bool indented = line == 0 ? first : blank || i > begin;
        if (line++ > 0) EBB_TRY(ebb_jin_buf_text(run, &buf, "\n"));
        EBB_TRY(indent_line(run, &buf, indented ? by : none, str->data + begin, i - begin));
        /* A \r before the end and the newline added there are one. */
        if (end == 1 && i + 1 == str->bytes && str->data[i] == '\r') break;
        begin = i = i + end;
    }
    EBB_TRY(ebb_jin_str_of(&run->base, &buf, out));
    out->flag = self.flag;
    return EBB_OK;
}

static enum ebb_status do_wordcount(FILTER_ARGS)
{
    int64_t count = 0;
    bool inside = false;
    size_t length;
    EBB_TRY(ebb_jin_bind(run, "wordcount", "", 0, args, NULL));
    EBB_TRY(ebb_jin_to_str(run, &self));
    const struct ebb_jin_str *str = self.as.str;
    EBB_TRY(ebb_jin_step(run, str->bytes * 8));
    for (size_t i = 0; i < str->bytes; i += length) {
        bool word = ebb_jin_is_word(ebb_jin_point(str->data, str->bytes, i, &length));
        count += word && !inside;
        inside = word;
    }
    *out = ebb_jin_int(count);
    return EBB_OK;
}

static enum ebb_status do_truncate(FILTER_ARGS)
{
    struct ebb_jin_value values[4], bounds[3] = {{EBB_JIN_MISSING, 0, {false}}};
    int64_t most = 255, leeway = 5;
    EBB_TRY(ebb_jin_bind(run, "truncate", "length killwords end leeway", 0, args, values));
    if (values[0].type != EBB_JIN_MISSING)
        EBB_TRY(ebb_jin_want_int(run, "truncate", values[0], &most));
    if (values[2].type == EBB_JIN_MISSING)
        EBB_TRY(ebb_jin_str_borrow(&run->base, "...", 3, &values[2]));
    if (values[3].type != EBB_JIN_MISSING && values[3].type != EBB_JIN_NONE)
        EBB_TRY(ebb_jin_want_int(run, "truncate", values[3], &leeway));
    int64_t length;
    if (!ebb_jin_length(self, &length) || values[2].type != EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "truncate: strings are wanted");
    int64_t end = ebb_jin_str_points(values[2].as.str);
    if (most < end || leeway < 0)
        return ebb_jin_fail(&run->base, "truncate: expected length >= %lld and leeway >= 0",
                            (long long)end);
    *out = self;
    if (length - most <= leeway) return EBB_OK;
    if (self.type != EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "truncate: a string is wanted, not %s",
                            ebb_jin_type_name(self));
    bounds[1] = ebb_jin_int(most - end);
    EBB_TRY(ebb_jin_slice(run, self, bounds, out));
    size_t bytes = out->as.str->bytes;
    const char *data = out->as.str->data;
    if (!ebb_jin_truth(values[1])) {
        size_t blank = bytes;
        while (blank > 0 && data[blank - 1] != ' ') blank--;
        if (blank > 0) bytes = blank - 1;
    }
    EBB_TRY(ebb_jin_str_borrow(&run->base, data, bytes, out));
    return ebb_jin_binary(run, EBB_JIN_TOK_ADD, *out, values[2], out);
}

/* ---- numbers ---- */

/* Text without white space around and underscores between digits; false if it is too long. */
static bool bare_number(const struct ebb_jin_str *str, char *text, size_t room)
{
    size_t begin = ebb_jin_space_prefix(str->data, str->bytes), used = 0;
    size_t end = str->bytes - ebb_jin_space_suffix(str->data, str->bytes);
    for (size_t i = begin; i < end; i++) {
        char c = str->data[i];
        bool between = c == '_' && i > begin && i + 1 < end && str->data[i - 1] != '_' &&
                       ebb_jin_is_word((unsigned char)str->data[i - 1]) &&
                       ebb_jin_is_word((unsigned char)str->data[i + 1]) && str->data[i + 1] != '_';
        if (between) continue;
        if (used + 1 >= room || c == '\0') return false;
        text[used++] = c;
    }
    text[used] = '\0';
    return used > 0;
}

static bool text_to_float(const struct ebb_jin_str *str, double *number)
{
    char text[512];
    if (!bare_number(str, text, sizeof text)) return false;
    const char *bare = text + (text[0] == '+' || text[0] == '-');
    double sign = text[0] == '-' ? -1.0 : 1.0;
    if (strcasecmp(bare, "inf") == 0 || strcasecmp(bare, "infinity") == 0)
        *number = sign * (double)INFINITY;
    else if (strcasecmp(bare, "nan") == 0)
        *number = (double)NAN;
    else
        return ebb_text_double(text, number);
    return true;
}

/* int(text, base) of Python; false where that raises ValueError. */
static bool text_to_int(const struct ebb_jin_str *str, int64_t base, int64_t *integer,
                        bool *too_large)
{
    char text[256];
    *too_large = false;
    if (!bare_number(str, text, sizeof text)) return false;
    const char *at = text + (text[0] == '+' || text[0] == '-');
    char mark = at[0] == '0' ? (char)(at[1] | 0x20) : '\0';
    int prefix = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
        at += 2;
        base = prefix;
    } else if (base == 0) {
        if (at[0] == '0' && strspn(at, "0") != strlen(at)) return false;
        base = 10;
    }
    if (*at == '\0' || *at == '+' || *at == '-' || ebb_jin_is_space((unsigned char)*at))
        return false;
    for (const char *c = at; *c != '\0'; c++) {
        int digit = *c >= '0' && *c <= '9'                     ? *c - '0'
                    : (*c | 0x20) >= 'a' && (*c | 0x20) <= 'z' ? (*c | 0x20) - 'a' + 10
                                                               : 99;
        if (digit >= base) return false;
    }
    errno = 0;
    char number[260];
    snprintf(number, sizeof number, "%s%s", text[0] == '-' ? "-" : "", at);
    *integer = strtoll(number, NULL, (int)base);
    *too_large = errno == ERANGE;
    return true;
}

static enum ebb_status float_to_int(struct ebb_jin_run *run, double number, int64_t *integer,
                                    bool *possible)
{
    *possible = isfinite(number);
    if (!*possible) return EBB_OK;
    if (!(number > -9.2e18 && number < 9.2e18))
        return ebb_jin_fail(&run->base, "an integer has more than 64 bits");
    *integer = (int64_t)number;
    return EBB_OK;
}

static enum ebb_status do_int(FILTER_ARGS)
{
    struct ebb_jin_value values[2];
    int64_t base = 10, integer = 0;
    bool possible = false, too_large;
    double number;
    EBB_TRY(ebb_jin_bind(run, "int", "default base", 0, args, values));
    if (values[1].type != EBB_JIN_MISSING) EBB_TRY(ebb_jin_want_int(run, "int", values[1], &base));
    if (base != 0 && (base < 2 || base > 36)) base = 10;
    if (self.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, self);
    if (ebb_jin_is_int(self)) {
        integer = ebb_jin_integer(self);
        possible = true;
    } else if (self.type == EBB_JIN_FLOAT) {
        if (isinf(self.as.number))
            return ebb_jin_fail(&run->base, "cannot convert float infinity to integer");
        EBB_TRY(float_to_int(run, self.as.number, &integer, &possible));
    } else if (self.type == EBB_JIN_STR) {
        possible = text_to_int(self.as.str, base, &integer, &too_large);
        if (possible && too_large)
            return ebb_jin_fail(&run->base, "an integer has more than 64 bits");
        if (!possible && text_to_float(self.as.str, &number))
            EBB_TRY(float_to_int(run, number, &integer, &possible));
    }
    *out = possible                            ? ebb_jin_int(integer)
           : values[0].type == EBB_JIN_MISSING ? ebb_jin_int(0)
                                               : values[0];
    return EBB_OK;
}

static enum ebb_status do_float(FILTER_ARGS)
{
    struct ebb_jin_value fallback;
    double number;
    EBB_TRY(ebb_jin_bind(run, "float", "default", 0, args, &fallback));
    if (self.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, self);
    if (ebb_jin_is_number(self))
        *out = ebb_jin_float(ebb_jin_number(self));
    else if (self.type == EBB_JIN_STR && text_to_float(self.as.str, &number))
        *out = ebb_jin_float(number);
    else
        *out = fallback.type == EBB_JIN_MISSING ? ebb_jin_float(0.0) : fallback;
    return EBB_OK;
}

static enum ebb_status want_number(struct ebb_jin_run *run, const char *what,
                                   struct ebb_jin_value value)
{
    if (value.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, value);
    if (ebb_jin_is_number(value)) return EBB_OK;
    return ebb_jin_fail(&run->base, "%s: a number is wanted, not %s", what,
                        ebb_jin_type_name(value));
}

static enum ebb_status do_abs(FILTER_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "abs", "", 0, args, NULL));
    EBB_TRY(want_number(run, "abs", self));
    if (self.type == EBB_JIN_FLOAT) {
        *out = ebb_jin_float(fabs(self.as.number));
        return EBB_OK;
    }
    int64_t integer = ebb_jin_integer(self);
    if (integer == INT64_MIN) return ebb_jin_fail(&run->base, "an integer has more than 64 bits");
    *out = ebb_jin_int(integer < 0 ? -integer : integer);
    return EBB_OK;
}

/* Python's round(): to the nearest decimal, ties to even as the number really is. */
static double round_float(double number, int64_t digits)
{
    char text[400];
    if (!isfinite(number) || digits > 22) return number;
    if (digits < -308) return 0.0 * number;
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, number);
        return strtod(text, NULL);
    }
    double unit = pow(10.0, (double)-digits), scaled = nearbyint(number / unit) * unit;
    return scaled;
}

static enum ebb_status round_int(struct ebb_jin_run *run, int64_t integer, int64_t digits,
                                 int64_t *rounded)
{
    int64_t unit = 1;
    *rounded = integer;
    if (digits >= 0) return EBB_OK;
    *rounded = 0;
    if (digits < -18) return EBB_OK;
    for (int64_t i = 0; i < -digits; i++) unit *= 10;
    int64_t rest = integer % unit, whole = integer - rest;
    if (rest < 0) {
        rest += unit;
        whole -= unit;
    }
    bool odd = (whole / unit) % 2 != 0, up = rest > unit / 2 || (rest == unit / 2 && odd);
    if (up && __builtin_add_overflow(whole, unit, &whole))
        return ebb_jin_fail(&run->base, "an integer has more than 64 bits");
    *rounded = whole;
    return EBB_OK;
}

static enum ebb_status do_round(FILTER_ARGS)
{
    struct ebb_jin_value values[2];
    int64_t digits = 0, integer;
    EBB_TRY(ebb_jin_bind(run, "round", "precision method", 0, args, values));
    if (values[0].type != EBB_JIN_MISSING)
        EBB_TRY(ebb_jin_want_int(run, "round", values[0], &digits));
    bool common = values[1].type == EBB_JIN_MISSING || ebb_jin_str_is(values[1], "common");
    bool ceiling = ebb_jin_str_is(values[1], "ceil");
    if (!common && !ceiling && !ebb_jin_str_is(values[1], "floor"))
        return ebb_jin_fail(&run->base, "method must be common, ceil or floor");
    EBB_TRY(want_number(run, "round", self));
    if (common && ebb_jin_is_int(self)) {
        EBB_TRY(round_int(run, ebb_jin_integer(self), digits, &integer));
        *out = ebb_jin_int(integer);
        return EBB_OK;
    }
    double number = ebb_jin_number(self), unit = pow(10.0, (double)digits);
    if (common)
        *out = ebb_jin_float(round_float(number, digits));
    else if (!isfinite(number * unit))
        return ebb_jin_fail(&run->base, "cannot round a number that is not finite");
    else
        *out = ebb_jin_float((ceiling ? ceil(number * unit) : floor(number * unit)) / unit);
    return EBB_OK;
}

const struct ebb_jin_entry_fn *ebb_jin_text_filters(void)
{
    /* NULL: Jinja has it; it is refused when it is reached. */
    static const struct ebb_jin_entry_fn filters[] = {
        {"abs", do_abs},       {"capitalize", do_capitalize},
        {"center", do_center}, {"e", do_escape},
        {"escape", do_escape}, {"filesizeformat", NULL},
        {"float", do_float},   {"forceescape", do_forceescape},
        {"format", do_format}, {"groupby", NULL},
        {"indent", do_indent}, {"int", do_int},
        {"lower", do_lower},   {"pprint", NULL},
        {"random", NULL},      {"replace", do_replace},
        {"round", do_round},   {"safe", do_safe},
        {"string", do_string}, {"striptags", NULL},
        {"title", do_title},   {"tojson", ebb_jin_tojson},
        {"trim", do_trim},     {"truncate", do_truncate},
        {"upper", do_upper},   {"urlencode", NULL},
        {"urlize", NULL},      {"wordcount", do_wordcount},
        {"wordwrap", NULL},    {"xmlattr", NULL},
        {NULL, NULL},
    };
    return filters;
}

static const struct ebb_jin_entry_fn *find_filter(struct ebb_jin_value name)
{
    const struct ebb_jin_entry_fn *entry = ebb_jin_find(ebb_jin_list_filters(), name);
    return entry != NULL ? entry : ebb_jin_find(ebb_jin_text_filters(), name);
}

bool ebb_jin_has_filter(struct ebb_jin_value name)
{
    return find_filter(name) != NULL;
}

enum ebb_status ebb_jin_filter(struct ebb_jin_run *run, struct ebb_jin_value name,
                               struct ebb_jin_value value, const struct ebb_jin_args *args,
                               struct ebb_jin_value *out)
{
    const struct ebb_jin_entry_fn *entry = find_filter(name);
    if (entry != NULL && entry->call != NULL) return entry->call(run, value, args, out);
    if (entry != NULL)
        return ebb_jin_refuse(&run->base, "the filter '%s' is not offered", entry->name);
    if (name.type != EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "a filter is named by a string, not %s",
                            ebb_jin_type_name(name));
    return ebb_jin_fail(&run->base, "no filter named '%.*s'",
                        name.as.str->bytes > 60 ? 60 : (int)name.as.str->bytes, name.as.str->data);
}
