/* Patterns: what components look for in text.
 *
 * A regular expression in tokenizer.json is Oniguruma's (Ruby syntax), run here by PCRE2. Where
 * both read the same text differently the pattern is rewritten or refused: \s has no U+180E, \w is
 * Oniguruma's set, '^' and '$' are at line ends; \h, '&&' and '[' inside a class, "{1,3}+" and a
 * few more mean other things and are refused by name. \p{Han} is the script alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/tokenizer_int.h"

/* ---- matching ---- */

enum {
    MATCH_LIMIT = 10000000, /* steps of one match: a pattern from a file may be hostile */
    MATCH_HEAP_KIB = 64 * 1024,
    JIT_STACK_MIN = 32 * 1024,
    JIT_STACK_MAX = 4 * 1024 * 1024,
};

enum ebb_status ebb_tok_matcher_create(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                       struct ebb_tok_matcher *matcher)
{
    matcher->match = pcre2_match_data_create(1, tok->memory);
    matcher->context = pcre2_match_context_create(tok->memory);
    if (matcher->match == NULL || matcher->context == NULL)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for matching a tokenizer's patterns");
    pcre2_set_match_limit(matcher->context, MATCH_LIMIT);
    pcre2_set_heap_limit(matcher->context, MATCH_HEAP_KIB);
    matcher->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX,
                                            tok->memory); /* NULL where there is no JIT */
    if (matcher->stack != NULL) pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    return EBB_OK;
}

void ebb_tok_matcher_free(struct ebb_tok_matcher *matcher)
{
    pcre2_match_data_free(matcher->match);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    *matcher = (struct ebb_tok_matcher){0};
}

static enum ebb_status match_failed(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                    const struct ebb_tok_pattern *pattern, int code, size_t bytes)
{
    char text[128];
    pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
    return EBB_FAIL(ctx, EBB_FAILED, "%s: the pattern '%s' gave up on a text of %zu bytes: %s",
                    tok->path, pattern->text, bytes, text);
}

static enum ebb_status each_literal(struct ebb_ctx *ctx, const struct ebb_tok_pattern *pattern,
                                    const char *text, size_t bytes, ebb_tok_part_fn fn, void *user)
{
    size_t previous = 0;
    while (previous < bytes) {
        const char *found =
            memmem(text + previous, bytes - previous, pattern->text, pattern->bytes);
        if (found == NULL) return fn(ctx, user, previous, bytes, false);
        size_t start = (size_t)(found - text);
        if (previous != start) EBB_TRY(fn(ctx, user, previous, start, false));
        previous = start + pattern->bytes;
        EBB_TRY(fn(ctx, user, start, previous, true));
    }
    return EBB_OK;
}

enum ebb_status ebb_tok_each_part(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                  struct ebb_tok_matcher *matcher,
                                  const struct ebb_tok_pattern *pattern, const char *text,
                                  size_t bytes, ebb_tok_part_fn fn, void *user)
{
    if (pattern->code == NULL) return each_literal(ctx, pattern, text, bytes, fn, user);
    size_t previous = 0, from = 0;
    while (from <= bytes) {
        int code = pcre2_match(pattern->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK,
                               matcher->match, matcher->context);
        if (code == PCRE2_ERROR_NOMATCH) break;
        if (code < 0) return match_failed(ctx, tok, pattern, code, bytes);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(matcher->match);
        size_t start = found[0], stop = found[1];
        if (start < previous || stop < start)
            break; /* \K inside a look-ahead can do that; never go back */
        bool empty = start == stop;
        if (previous != start) EBB_TRY(fn(ctx, user, previous, start, false));
        if (!empty || start != previous || start == 0) EBB_TRY(fn(ctx, user, start, stop, true));
        previous = stop;
        from = stop;
        if (empty) { /* the next match begins at the next character */
            from++;
            while (from < bytes && ((unsigned char)text[from] & 0xc0) == 0x80) from++;
        }
    }
    return previous == bytes ? EBB_OK : fn(ctx, user, previous, bytes, false);
}

/* ---- patterns: Oniguruma's into PCRE2's ---- */

#define WORD_SET "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* One escape; `text` at its backslash. NULL where it can't be said in PCRE2; *used characters
 * are read. */
static const char *rewrite_escape(const char *text, bool in_class, size_t *used, char copy[3])
{
    *used = 2;
    switch (text[1]) {
    case 's':
        return "\\p{White_Space}";
    case 'S':
        return "\\P{White_Space}";
    case 'w':
        return in_class ? WORD_SET : "[" WORD_SET "]";
    case 'W':
        return in_class ? NULL : "[^" WORD_SET "]";
    case 'h':
        return in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
    case 'H':
        return in_class ? NULL : "[^0-9a-fA-F]";
    /* Different things in the two syntaxes, or absent from one. */
    case '\0':
    case 'b':
    case 'B':
    case 'c':
    case 'C':
    case 'E':
    case 'g':
    case 'G':
    case 'k':
    case 'K':
    case 'L':
    case 'M':
    case 'O':
    case 'Q':
    case 'R':
    case 'U':
    case 'X':
    case 'Z':
    case 'l':
    case 'u':
    case 'y':
    case 'Y':
        return NULL;
    default:
        copy[0] = '\\';
        copy[1] = text[1];
        copy[2] = '\0';
        return copy;
    }
}

/* What of the pattern can't be kept, or NULL. */
static const char *odd_syntax(const char *text, bool in_class)
{
    if (in_class) {
        if (text[0] == '[') return "'[' inside a class";
        if (text[0] == '&' && text[1] == '&') return "'&&' inside a class";
        return NULL;
    }
    if (text[0] == '(' && text[1] == '*') return "'(*'";
    if (text[0] == '}' && text[1] == '+') return "'}+'";
    if (text[0] == '(' && text[1] == '?') {
        size_t flags = strspn(text + 2, "imsxaWDSPyJUn^-");
        if (memchr(text + 2, 'i', flags) != NULL && flags == 1) return NULL;
        if (flags > 0 && text[2] != 'P') return "options other than '(?i'";
        if (text[2] == 'P' || text[2] == '&' || text[2] == 'R' || text[2] == '|' ||
            text[2] == '(' || text[2] == '~' || text[2] == '+' ||
            (text[2] >= '0' && text[2] <= '9'))
            return "a group that begins with '(?' and something rare";
    }
    return NULL;
}

/* Properties with long names that are no scripts. */
static bool is_script(const char *name, size_t bytes)
{
    static const char *const others[] = {"Alphabetic",  "Any",
                                         "White_Space", "Lowercase",
                                         "Uppercase",   "Emoji",
                                         "ASCII",       "Extended_Pictographic"};
    if (bytes < 3) return false; /* general categories */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (bytes == strlen(others[i]) && strncmp(name, others[i], bytes) == 0) return false;
    return true;
}

/* The braces behind an escape. A script's characters are those of that script alone: PCRE2 counts
 * others that are used with it too, unless told. */
static enum ebb_status add_braces(struct ebb_ctx *ctx, struct ebb_str *out, const char *escape,
                                  const char *braces, size_t bytes)
{
    bool property = bytes > 2 && (escape[1] == 'p' || escape[1] == 'P');
    size_t start = property && braces[1] == '^' ? 2 : 1;
    if (!property || bytes <= start + 1 || !is_script(braces + start, bytes - start - 1))
        return ebb_str_add(ctx, out, braces, bytes);
    EBB_TRY(ebb_str_add(ctx, out, braces, start));
    EBB_TRY(ebb_str_add(ctx, out, "sc:", 3));
    return ebb_str_add(ctx, out, braces + start, bytes - start);
}

/* Writes the PCRE2 pattern, or sets *refused to what stands in the way. */
static enum ebb_status rewrite(struct ebb_ctx *ctx, const char *pattern, struct ebb_str *out,
                               const char **refused)
{
    bool in_class = false;
    size_t class_start = 0;
    *refused = NULL;
    for (size_t i = 0; pattern[i] != '\0';) {
        if (pattern[i] == '\\') {
            char copy[3];
            size_t used;
            const char *piece = rewrite_escape(pattern + i, in_class, &used, copy);
            if (piece == NULL) {
                *refused = "an escape that Oniguruma and PCRE2 read differently";
                return EBB_OK;
            }
            EBB_TRY(ebb_str_add(ctx, out, piece, strlen(piece)));
            size_t braces = 0; /* "{L}" of "\\p{L}": not a repetition */
            if (strchr("pPx", pattern[i + 1]) != NULL && pattern[i + 2] == '{')
                braces = strcspn(pattern + i + 2, "}") + 1;
            if (braces > strlen(pattern + i + used)) braces = strlen(pattern + i + used);
            EBB_TRY(add_braces(ctx, out, pattern + i, pattern + i + used, braces));
            i += used + braces;
            continue;
        }
        *refused = odd_syntax(pattern + i, in_class);
        if (*refused != NULL) return EBB_OK;
        if (in_class && pattern[i] == ']' && i > class_start)
            in_class = false;
        else if (!in_class && pattern[i] == '[') {
            in_class = true;
            class_start = i + (pattern[i + 1] == '^' ? 2 : 1);
        }
        EBB_TRY(ebb_str_add(ctx, out, pattern + i, 1));
        i++;
    }
    return EBB_OK;
}

/* ---- making ---- */

static enum ebb_status keep_text(struct ebb_ctx *ctx, struct ebb_tok_pattern *pattern,
                                 const char *text, size_t bytes)
{
    pattern->text = ebb_mem_strndup(ctx, text, bytes);
    pattern->bytes = bytes;
    return pattern->text == NULL ? EBB_NO_MEMORY : EBB_OK;
}

static enum ebb_status compile(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const char *who,
                               const char *text, size_t bytes, struct ebb_tok_pattern *pattern)
{
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_compile_context *context = pcre2_compile_context_create(tok->memory);
    if (context == NULL)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for the pattern '%s'", pattern->text);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int error;
    PCRE2_SIZE at;
    pattern->code = pcre2_compile((PCRE2_SPTR)text, bytes, options, &error, &at, context);
    pcre2_compile_context_free(context);
    if (pattern->code == NULL && error == PCRE2_ERROR_HEAP_FAILED) return EBB_NO_MEMORY;
    if (pattern->code == NULL) {
        char reason[128];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
        return EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: %s pattern '%s': %s", tok->path, who,
                        pattern->text, reason);
    }
    int jit = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return jit == PCRE2_ERROR_NOMEMORY
               ? EBB_NO_MEMORY
               : EBB_OK; /* without a JIT matching is slower, not different */
}

enum ebb_status ebb_tok_pattern_literal(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                        const char *who, const char *text, size_t bytes,
                                        struct ebb_tok_pattern *pattern)
{
    EBB_TRY(keep_text(ctx, pattern, text, bytes));
    return bytes > 0 ? EBB_OK : compile(ctx, tok, who, "", 0, pattern);
}

enum ebb_status ebb_tok_pattern_regex(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                      const char *who, const char *text,
                                      struct ebb_tok_pattern *pattern)
{
    EBB_TRY(keep_text(ctx, pattern, text, strlen(text)));
    struct ebb_str rewritten = {0};
    const char *refused = NULL;
    enum ebb_status status = rewrite(ctx, text, &rewritten, &refused);
    if (status == EBB_OK && refused != NULL)
        status = EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: %s pattern '%s' has %s", tok->path, who, text,
                          refused);
    if (status == EBB_OK)
        status = compile(ctx, tok, who, rewritten.data == NULL ? "" : rewritten.data,
                         rewritten.bytes, pattern);
    ebb_str_free(ctx, &rewritten);
    return status;
}

enum ebb_status ebb_tok_pattern_read(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                     const char *who, const json_t *node,
                                     struct ebb_tok_pattern *pattern)
{
    const char *type = json_string_value(json_object_get(node, "type"));
    const json_t *kinds = json_object_get(node, "pattern");
    const json_t *regex = json_object_get(kinds, "Regex"),
                 *string = json_object_get(kinds, "String");
    if (json_is_string(regex)) {
        if (strlen(json_string_value(regex)) != json_string_length(regex))
            return ebb_tok_refuse(ctx, tok, type, "with a NUL in its pattern");
        return ebb_tok_pattern_regex(ctx, tok, who, json_string_value(regex), pattern);
    }
    if (json_is_string(string))
        return ebb_tok_pattern_literal(ctx, tok, who, json_string_value(string),
                                       json_string_length(string), pattern);
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: %s has no 'pattern' of the form {\"Regex\": ...} or {\"String\": ...}",
                    tok->path, type);
}

enum ebb_status ebb_tok_pattern_character(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                          const char *who, const json_t *node, const char *key,
                                          struct ebb_tok_pattern *pattern)
{
    const json_t *value = json_object_get(node, key);
    const char *text = json_string_value(value);
    if (text == NULL || !ebb_tok_is_point(text, json_string_length(value)))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s %s: '%s' is not one character", tok->path, who,
                        json_string_value(json_object_get(node, "type")), key);
    return ebb_tok_pattern_literal(ctx, tok, who, text, json_string_length(value), pattern);
}

void ebb_tok_pattern_free(struct ebb_ctx *ctx, struct ebb_tok_pattern *pattern)
{
    pcre2_code_free(pattern->code);
    ebb_mem_free(ctx, pattern->text);
}
