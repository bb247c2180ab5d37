/* Text to tokens, by the rules of Jinja's lexer with trim_blocks and lstrip_blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <stdio.h>
#include <string.h>

struct lexer {
    struct ebb_jin_base *base;
    struct ebb_jin_tokens *tokens;
    const char *data; /* newlines are \n, the last one is gone */
    size_t bytes, at;
    bool line_starting; /* the match before ended with a newline */
    char closers[512];  /* of brackets that are open */
    int open;
};

static bool has(const struct lexer *lexer, size_t at, const char *text)
{
    size_t bytes = strlen(text);
    return lexer->bytes >= at + bytes && memcmp(lexer->data + at, text, bytes) == 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at)
{
    return at + ebb_jin_space_prefix(lexer->data + at, lexer->bytes - at);
}

/* The lexer stands behind `end`; counts lines on the way. */
static void move_to(struct lexer *lexer, size_t end)
{
    for (size_t i = lexer->at; i < end; i++) lexer->base->line += lexer->data[i] == '\n';
    lexer->line_starting = end > lexer->at && lexer->data[end - 1] == '\n';
    lexer->at = end;
}

static enum ebb_status add(struct lexer *lexer, enum ebb_jin_token_type type, const char *data,
                           size_t bytes)
{
    struct ebb_jin_tokens *tokens = lexer->tokens;
    if (tokens->count == tokens->room) {
        int64_t room = tokens->room > 0 ? tokens->room * 2 : 256;
        struct ebb_jin_token *grown =
            (struct ebb_jin_token *)ebb_jin_grow(lexer->base, tokens->items,
                                                 (size_t)tokens->room * sizeof *grown,
                                                 (size_t)room * sizeof *grown);
        if (grown == NULL) return ebb_jin_failed(lexer->base);
        tokens->items = grown;
        tokens->room = room;
    }
    struct ebb_jin_token *token = &tokens->items[tokens->count++];
    memset(token, 0, sizeof *token);
    token->type = type;
    token->line = lexer->base->line;
    token->data = data;
    token->bytes = bytes;
    return EBB_OK;
}

/* A closing tag at `at`: "+%}", "-%}" with the space behind it, "%}" with one newline. 0: none. */
static size_t block_end(const struct lexer *lexer, size_t at, const char *close)
{
    if (at < lexer->bytes && lexer->data[at] == '+' && has(lexer, at + 1, close)) return at + 3;
    if (at < lexer->bytes && lexer->data[at] == '-' && has(lexer, at + 1, close))
        return skip_space(lexer, at + 3);
    if (!has(lexer, at, close)) return 0;
    return at + 2 < lexer->bytes && lexer->data[at + 2] == '\n' ? at + 3 : at + 2;
}

/* Text before a tag, which begins at `end` with the sign given; `block`: not a {{. */
static enum ebb_status add_text(struct lexer *lexer, size_t end, char sign, bool block)
{
    const char *text = lexer->data + lexer->at;
    size_t bytes = end - lexer->at;
    if (sign == '-') {
        bytes -= ebb_jin_space_suffix(text, bytes);
    } else if (sign != '+' && block) {
        size_t line = bytes;
        while (line > 0 && text[line - 1] != '\n') line--;
        if ((line > 0 || lexer->line_starting) &&
            ebb_jin_space_prefix(text + line, bytes - line) == bytes - line)
            bytes = line;
    }
    return bytes > 0 ? add(lexer, EBB_JIN_TOK_DATA, text, bytes) : EBB_OK;
}

static char sign_at(const struct lexer *lexer, size_t at)
{
    char c = at < lexer->bytes ? lexer->data[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
}

static enum ebb_status lex_comment(struct lexer *lexer)
{
    for (size_t at = lexer->at; at < lexer->bytes; at++) {
        char c = lexer->data[at];
        if (c != '#' && c != '-' && c != '+') continue;
        size_t end = block_end(lexer, at, "#}");
        if (end == 0) continue;
        move_to(lexer, end);
        return EBB_OK;
    }
    return ebb_jin_fail(lexer->base, "missing end of comment tag '#}'");
}

/* Behind "{% raw %}": everything up to "{% endraw %}" is text. */
static enum ebb_status lex_raw(struct lexer *lexer)
{
    for (size_t at = lexer->at; at < lexer->bytes; at++) {
        if (!has(lexer, at, "{%")) continue;
        char sign = sign_at(lexer, at + 2);
        size_t inner = skip_space(lexer, at + (sign != '\0' ? 3 : 2));
        if (!has(lexer, inner, "endraw")) continue;
        size_t end = block_end(lexer, skip_space(lexer, inner + 6), "%}");
        if (end == 0) continue;
        EBB_TRY(add_text(lexer, at, sign, true));
        move_to(lexer, end);
        return EBB_OK;
    }
    return ebb_jin_fail(lexer->base, "missing end of raw directive");
}

/* Is a "{% raw %}" at `at`? Where it ends, else 0. */
static size_t raw_begin(const struct lexer *lexer, size_t at)
{
    size_t inner = skip_space(lexer, at + (sign_at(lexer, at + 2) != '\0' ? 3 : 2));
    if (!has(lexer, inner, "raw")) return 0;
    inner = skip_space(lexer, inner + 3);
    if (has(lexer, inner, "-%}")) return skip_space(lexer, inner + 3);
    return has(lexer, inner, "%}") ? inner + 2 : 0;
}

/* ---- strings and numbers ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: *at stands behind the letter. */
static enum ebb_status read_hex(struct lexer *lexer, const char *text, size_t bytes, size_t *at,
                                int digits, char out[4], size_t *used)
{
    int64_t point = 0;
    for (int i = 0; i < digits; i++, (*at)++) {
        int digit = *at < bytes ? hex_digit(text[*at]) : -1;
        if (digit < 0)
            return ebb_jin_fail(lexer->base, "a string has an escape of fewer than %d digits",
                                digits);
        point = point * 16 + digit;
    }
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
        return ebb_jin_fail(lexer->base, "a string has an escape that is no character: U+%04llX",
                            (unsigned long long)point);
    *used = ebb_jin_put_point((int32_t)point, out);
    return EBB_OK;
}

/* One escape, *at behind the backslash; Python's list. */
static enum ebb_status read_escape(struct lexer *lexer, const char *text, size_t bytes, size_t *at,
                                   char out[4], size_t *used)
{
    static const char plain[] = "\\'\"abfnrtv", meant[] = "\\'\"\a\b\f\n\r\t\v";
    char c = text[(*at)++];
    const char *found = strchr(plain, c);
    *used = 1;
    if (c != '\0' && found != NULL) {
        out[0] = meant[found - plain];
    } else if (c == '\n') {
        *used = 0;
    } else if (c >= '0' && c <= '7') {
        int value = c - '0';
        for (int i = 0; i < 2 && *at < bytes && text[*at] >= '0' && text[*at] <= '7'; i++)
            value = value * 8 + text[(*at)++] - '0';
        *used = ebb_jin_put_point(value, out);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        return read_hex(lexer, text, bytes, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, out, used);
    } else if (c == 'N') {
        return ebb_jin_refuse(lexer->base, "a string has the escape \\N, which is not offered");
    } else {
        out[0] = '\\';
        (*at)--;
    }
    return EBB_OK;
}

static enum ebb_status lex_string(struct lexer *lexer)
{
    char quote = lexer->data[lexer->at], escape[4];
    size_t end = lexer->at + 1, bytes = 0, used;
    while (end < lexer->bytes && lexer->data[end] != quote) end += lexer->data[end] == '\\' ? 2 : 1;
    if (end >= lexer->bytes)
        return ebb_jin_fail(lexer->base, "a string that begins with %c has no end", quote);
    const char *text = lexer->data + lexer->at + 1;
    size_t length = end - lexer->at - 1;
    char *out = (char *)ebb_jin_alloc(lexer->base, length + 1);
    if (out == NULL) return ebb_jin_failed(lexer->base);
    for (size_t i = 0; i < length;) {
        if (text[i] != '\\') {
            out[bytes++] = text[i++];
            continue;
        }
        i++;
        EBB_TRY(read_escape(lexer, text, length, &i, escape, &used));
        memcpy(out + bytes, escape, used);
        bytes += used;
    }
    out[bytes] = '\0';
    EBB_TRY(add(lexer, EBB_JIN_TOK_STRING, out, bytes));
    move_to(lexer, end + 1);
    return EBB_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "1_000": digits with single underscores between them; the end. */
static size_t digits_end(const struct lexer *lexer, size_t at)
{
    while (at < lexer->bytes &&
           (is_digit(lexer->data[at]) ||
            (lexer->data[at] == '_' && at + 1 < lexer->bytes && is_digit(lexer->data[at + 1]))))
        at++;
    return at;
}

/* Where a float that begins here ends; 0: none does. */
static size_t float_end(const struct lexer *lexer)
{
    size_t at = digits_end(lexer, lexer->at), end = 0;
    if (lexer->at > 0 && lexer->data[lexer->at - 1] == '.') return 0;
    if (at + 1 < lexer->bytes && lexer->data[at] == '.' && is_digit(lexer->data[at + 1]))
        end = at = digits_end(lexer, at + 1);
    if (at < lexer->bytes && (lexer->data[at] == 'e' || lexer->data[at] == 'E')) {
        size_t sign = at + 1;
        if (sign_at(lexer, sign) != '\0') sign++;
        if (sign < lexer->bytes && is_digit(lexer->data[sign])) end = digits_end(lexer, sign);
    }
    return end;
}

/* An integer in the base that its prefix names; the end. */
static enum ebb_status integer_end(struct lexer *lexer, size_t *end, int64_t *value)
{
    size_t at = lexer->at;
    int base = 10;
    char mark = at + 1 < lexer->bytes ? (char)(lexer->data[at + 1] | 0x20) : '\0';
    *value = 0;
    if (lexer->data[at] == '0') {
        int wanted = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 10;
        size_t first = at + 2;
        if (first < lexer->bytes && lexer->data[first] == '_') first++;
        int digit = wanted != 10 && first < lexer->bytes ? hex_digit(lexer->data[first]) : -1;
        if (digit >= 0 && digit < wanted) {
            base = wanted;
            at += 2;
        }
    }
    bool zeros = base == 10 && lexer->data[at] == '0';
    for (; at < lexer->bytes; at++) {
        size_t place = at;
        if (lexer->data[at] == '_' && at > lexer->at && at + 1 < lexer->bytes) place++;
        int digit = hex_digit(lexer->data[place]);
        if (digit < 0 || digit >= base || (zeros && digit != 0)) break;
        at = place;
        if (__builtin_mul_overflow(*value, (int64_t)base, value) ||
            __builtin_add_overflow(*value, (int64_t)digit, value))
            return ebb_jin_refuse(lexer->base, "an integer has more than 64 bits");
    }
    *end = at;
    return EBB_OK;
}

static enum ebb_status lex_number(struct lexer *lexer)
{
    size_t end = float_end(lexer);
    struct ebb_jin_value value;
    bool whole = end == 0;
    if (whole) {
        int64_t integer;
        EBB_TRY(integer_end(lexer, &end, &integer));
        value = ebb_jin_int(integer);
    } else {
        char text[128];
        size_t used = 0;
        double number;
        for (size_t i = lexer->at; i < end && used + 1 < sizeof text; i++)
            if (lexer->data[i] != '_') text[used++] = lexer->data[i];
        text[used] = '\0';
        if (!ebb_text_double(text, &number))
            return ebb_jin_refuse(lexer->base, "the number %s is out of range", text);
        value = ebb_jin_float(number);
    }
    EBB_TRY(add(lexer, whole ? EBB_JIN_TOK_INTEGER : EBB_JIN_TOK_FLOAT, NULL, 0));
    lexer->tokens->items[lexer->tokens->count - 1].value = value;
    move_to(lexer, end);
    return EBB_OK;
}

/* ---- inside tags ---- */

/* The longest first. */
static const struct operator_text {
    const char *text;
    enum ebb_jin_token_type type;
} operators[] = {
    {"//", EBB_JIN_TOK_FLOORDIV}, {"**", EBB_JIN_TOK_POW},      {"==", EBB_JIN_TOK_EQ},
    {"!=", EBB_JIN_TOK_NE},       {">=", EBB_JIN_TOK_GTEQ},     {"<=", EBB_JIN_TOK_LTEQ},
    {"+", EBB_JIN_TOK_ADD},       {"-", EBB_JIN_TOK_SUB},       {"/", EBB_JIN_TOK_DIV},
    {"*", EBB_JIN_TOK_MUL},       {"%", EBB_JIN_TOK_MOD},       {"~", EBB_JIN_TOK_TILDE},
    {"[", EBB_JIN_TOK_LBRACKET},  {"]", EBB_JIN_TOK_RBRACKET},  {"(", EBB_JIN_TOK_LPAREN},
    {")", EBB_JIN_TOK_RPAREN},    {"{", EBB_JIN_TOK_LBRACE},    {"}", EBB_JIN_TOK_RBRACE},
    {">", EBB_JIN_TOK_GT},        {"<", EBB_JIN_TOK_LT},        {"=", EBB_JIN_TOK_ASSIGN},
    {".", EBB_JIN_TOK_DOT},       {":", EBB_JIN_TOK_COLON},     {"|", EBB_JIN_TOK_PIPE},
    {",", EBB_JIN_TOK_COMMA},     {";", EBB_JIN_TOK_SEMICOLON},
};

const char *ebb_jin_token_text(enum ebb_jin_token_type type)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (operators[i].type == type) return operators[i].text;
    switch (type) {
    case EBB_JIN_TOK_EOF:
        return "end of template";
    case EBB_JIN_TOK_DATA:
        return "text";
    case EBB_JIN_TOK_VARIABLE_BEGIN:
        return "{{";
    case EBB_JIN_TOK_VARIABLE_END:
        return "}}";
    case EBB_JIN_TOK_BLOCK_BEGIN:
        return "{%";
    case EBB_JIN_TOK_BLOCK_END:
        return "%}";
    case EBB_JIN_TOK_NAME:
        return "a name";
    case EBB_JIN_TOK_STRING:
        return "a string";
    case EBB_JIN_TOK_INTEGER:
        return "an integer";
    default:
        return "a number";
    }
}

static enum ebb_status lex_operator(struct lexer *lexer)
{
    size_t count = sizeof operators / sizeof operators[0], i = 0;
    while (i < count && !has(lexer, lexer->at, operators[i].text)) i++;
    char c = lexer->data[lexer->at];
    if (i == count)
        return ebb_jin_fail(lexer->base, "unexpected character '%.*s'",
                            (unsigned char)c < 0x80 ? 1 : 4, lexer->data + lexer->at);
    if (c == '(' || c == '[' || c == '{') {
        if (lexer->open == (int)sizeof lexer->closers)
            return ebb_jin_fail(lexer->base, "the limit of %d open brackets is reached",
                                lexer->open);
        lexer->closers[lexer->open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (lexer->open == 0) return ebb_jin_fail(lexer->base, "unexpected '%c'", c);
        char wanted = lexer->closers[--lexer->open];
        if (wanted != c)
            return ebb_jin_fail(lexer->base, "unexpected '%c', expected '%c'", c, wanted);
    }
    EBB_TRY(add(lexer, operators[i].type, NULL, 0));
    move_to(lexer, lexer->at + strlen(operators[i].text));
    return EBB_OK;
}

static enum ebb_status lex_name(struct lexer *lexer, bool *is_name)
{
    size_t end = lexer->at, length;
    while (end < lexer->bytes) {
        int32_t point = ebb_jin_point(lexer->data, lexer->bytes, end, &length);
        if (!ebb_jin_is_word(point)) break;
        end += length;
    }
    *is_name = end > lexer->at;
    if (!*is_name) return EBB_OK;
    EBB_TRY(add(lexer, EBB_JIN_TOK_NAME, lexer->data + lexer->at, end - lexer->at));
    move_to(lexer, end);
    return EBB_OK;
}

/* Up to and with the end of the tag. */
static enum ebb_status lex_tag(struct lexer *lexer, bool block)
{
    lexer->open = 0;
    while (lexer->at < lexer->bytes) {
        size_t end = 0;
        if (lexer->open == 0 && block) {
            end = block_end(lexer, lexer->at, "%}");
        } else if (lexer->open == 0) {
            if (has(lexer, lexer->at, "-}}")) end = skip_space(lexer, lexer->at + 3);
            if (has(lexer, lexer->at, "}}")) end = lexer->at + 2;
        }
        if (end > 0) {
            EBB_TRY(add(lexer, block ? EBB_JIN_TOK_BLOCK_END : EBB_JIN_TOK_VARIABLE_END, NULL, 0));
            move_to(lexer, end);
            return EBB_OK;
        }
        size_t solid = skip_space(lexer, lexer->at);
        char c = lexer->data[lexer->at];
        bool is_name = false;
        if (solid > lexer->at) {
            move_to(lexer, solid);
            continue;
        }
        if (is_digit(c)) {
            EBB_TRY(lex_number(lexer));
            continue;
        }
        EBB_TRY(lex_name(lexer, &is_name));
        if (is_name) continue;
        if (c == '\'' || c == '"')
            EBB_TRY(lex_string(lexer));
        else
            EBB_TRY(lex_operator(lexer));
    }
    return EBB_OK;
}

static enum ebb_status lex_all(struct lexer *lexer)
{
    while (lexer->at < lexer->bytes) {
        size_t tag = lexer->at;
        while (tag < lexer->bytes &&
               !(lexer->data[tag] == '{' && tag + 1 < lexer->bytes &&
                 strchr("{%#", lexer->data[tag + 1]) != NULL && lexer->data[tag + 1] != '\0'))
            tag++;
        if (tag >= lexer->bytes) {
            EBB_TRY(
                add(lexer, EBB_JIN_TOK_DATA, lexer->data + lexer->at, lexer->bytes - lexer->at));
            move_to(lexer, lexer->bytes);
            break;
        }
        char kind = lexer->data[tag + 1], sign = sign_at(lexer, tag + 2);
        size_t raw = kind == '%' ? raw_begin(lexer, tag) : 0;
        EBB_TRY(add_text(lexer, tag, sign, kind != '{'));
        if (raw > 0) {
            move_to(lexer, raw);
            EBB_TRY(lex_raw(lexer));
            continue;
        }
        move_to(lexer, tag + (sign != '\0' ? 3 : 2));
        if (kind == '#') {
            EBB_TRY(lex_comment(lexer));
            continue;
        }
        EBB_TRY(add(lexer, kind == '%' ? EBB_JIN_TOK_BLOCK_BEGIN : EBB_JIN_TOK_VARIABLE_BEGIN, NULL,
                    0));
        EBB_TRY(lex_tag(lexer, kind == '%'));
    }
    return add(lexer, EBB_JIN_TOK_EOF, NULL, 0);
}

enum ebb_status ebb_jin_lex(struct ebb_jin_base *base, const char *text, size_t bytes,
                            struct ebb_jin_tokens *tokens)
{
    struct lexer lexer = {.base = base, .tokens = tokens, .line_starting = true};
    char *copy = (char *)ebb_jin_alloc(base, bytes + 1);
    if (copy == NULL) return ebb_jin_failed(base);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') continue;
        copy[lexer.bytes++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (lexer.bytes > 0 && copy[lexer.bytes - 1] == '\n') lexer.bytes--;
    lexer.data = copy;
    base->line = 1;
    size_t valid = ebb_text_utf8_valid(copy, lexer.bytes);
    if (valid < lexer.bytes) {
        for (size_t i = 0; i < valid; i++) base->line += copy[i] == '\n';
        return ebb_jin_fail(base, "not UTF-8: byte 0x%02x", (unsigned char)copy[valid]);
    }
    return lex_all(&lexer);
}
