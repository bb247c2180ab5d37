/* Pre-tokenizers: text into words, by regular expressions.
 *
 * Patterns in tokenizer.json are Oniguruma's (Ruby syntax), run here by PCRE2. Where both read the
 * same text differently the pattern is rewritten or refused: \s has no U+180E, \w is Oniguruma's
 * set, '^' and '$' are at line ends; \h, '&&' and '[' inside a class, "{1,3}+" and a few more mean
 * other things and are refused by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "data/tokenizer_int.h"

/* ---- running ---- */

/* Pieces of one step on their way to the next: the last one waits, in case it is merged. */
struct piece_run {
    struct ebb_encoder *encoder;
    struct ebb_ids *out;
    const char *text;
    int step;
    bool waiting, waiting_match;
    size_t start, stop;
};

static enum ebb_status piece_flush(struct ebb_ctx *ctx, struct piece_run *run)
{
    if (!run->waiting) return EBB_OK;
    run->waiting = false;
    if (run->start == run->stop) return EBB_OK;
    return ebb_tok_split_run(ctx, run->encoder, run->step + 1, run->text + run->start,
                             run->stop - run->start, run->out);
}

static bool piece_merges(enum ebb_tok_behavior behavior, const struct piece_run *run, bool match)
{
    if (!run->waiting) return false;
    switch (behavior) {
    case EBB_TOK_MERGED_WITH_PREVIOUS:
        return match && !run->waiting_match;
    case EBB_TOK_MERGED_WITH_NEXT:
        return !match && run->waiting_match;
    case EBB_TOK_CONTIGUOUS:
        return match == run->waiting_match;
    default:
        return false;
    }
}

static enum ebb_status piece_add(struct ebb_ctx *ctx, struct piece_run *run,
                                 const struct ebb_tok_split *split, size_t start, size_t stop,
                                 bool match)
{
    match ^= split->invert;
    if (split->behavior == EBB_TOK_REMOVED && match) return piece_flush(ctx, run);
    if (piece_merges(split->behavior, run, match)) {
        run->stop = stop;
        run->waiting_match = match; /* so that nothing is merged twice into the same neighbour */
        return EBB_OK;
    }
    EBB_TRY(piece_flush(ctx, run));
    run->waiting = true;
    run->waiting_match = match;
    run->start = start;
    run->stop = stop;
    return EBB_OK;
}

static enum ebb_status match_failed(struct ebb_ctx *ctx, const struct ebb_encoder *encoder,
                                    const struct ebb_tok_split *split, int code, size_t bytes)
{
    char text[128];
    pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
    return EBB_FAIL(ctx, EBB_FAILED,
                    "%s: the pre-tokenizer's pattern '%s' gave up on a text of %zu bytes: %s",
                    encoder->tok->path, split->pattern, bytes, text);
}

static enum ebb_status run_regex(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int step,
                                 const char *text, size_t bytes, struct ebb_ids *out)
{
    const struct ebb_tok_split *split = &encoder->tok->splits[step];
    struct piece_run run = {encoder, out, text, step, false, false, 0, 0};
    size_t previous = 0, from = 0;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    while (from <= bytes) {
        int code = pcre2_match(split->code, (PCRE2_SPTR)text, bytes, from, options, encoder->match,
                               encoder->match_context);
        if (code == PCRE2_ERROR_NOMATCH) break;
        if (code < 0) return match_failed(ctx, encoder, split, code, bytes);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(encoder->match);
        size_t start = found[0], stop = found[1];
        if (start < previous || stop < start)
            break; /* \K inside a look-ahead can do that; never go back */
        bool empty = start == stop;
        if (previous != start) EBB_TRY(piece_add(ctx, &run, split, previous, start, false));
        if (!empty || start != previous || start == 0)
            EBB_TRY(piece_add(ctx, &run, split, start, stop, true));
        previous = stop;
        from = stop;
        if (empty) { /* the next match begins at the next character */
            from++;
            while (from < bytes && ((unsigned char)text[from] & 0xc0) == 0x80) from++;
        }
    }
    if (previous != bytes) EBB_TRY(piece_add(ctx, &run, split, previous, bytes, false));
    return piece_flush(ctx, &run);
}

static enum ebb_status run_prefix_space(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int step,
                                        const char *text, size_t bytes, struct ebb_ids *out)
{
    bool continues = encoder->at_start;
    encoder->at_start = false;
    if (continues || text[0] == ' ')
        return ebb_tok_split_run(ctx, encoder, step + 1, text, bytes, out);
    encoder->spaced.bytes = 0;
    EBB_TRY(ebb_str_add(ctx, &encoder->spaced, " ", 1));
    EBB_TRY(ebb_str_add(ctx, &encoder->spaced, text, bytes));
    return ebb_tok_split_run(ctx, encoder, step + 1, encoder->spaced.data, encoder->spaced.bytes,
                             out);
}

enum ebb_status ebb_tok_split_run(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int step,
                                  const char *text, size_t bytes, struct ebb_ids *out)
{
    if (bytes == 0) return EBB_OK;
    if (step == encoder->tok->split_count) return ebb_tok_bpe_run(ctx, encoder, text, bytes, out);
    if (encoder->tok->splits[step].kind == EBB_TOK_PREFIX_SPACE)
        return run_prefix_space(ctx, encoder, step, text, bytes, out);
    return run_regex(ctx, encoder, step, text, bytes, out);
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
            EBB_TRY(ebb_str_add(ctx, out, pattern + i + used, braces));
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

static enum ebb_status compile(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const char *pattern,
                               size_t bytes, bool literal, struct ebb_tok_split *split)
{
    uint32_t options = PCRE2_UTF;
    options |= literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_compile_context *context = pcre2_compile_context_create(tok->memory);
    if (context == NULL)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for the pattern '%s'", split->pattern);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int error;
    PCRE2_SIZE at;
    split->code = pcre2_compile((PCRE2_SPTR)pattern, bytes, options, &error, &at, context);
    pcre2_compile_context_free(context);
    if (split->code == NULL && error == PCRE2_ERROR_HEAP_FAILED) return EBB_NO_MEMORY;
    if (split->code == NULL) {
        char text[128];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        return EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: pre_tokenizer pattern '%s': %s", tok->path,
                        split->pattern, text);
    }
    int jit = pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE);
    return jit == PCRE2_ERROR_NOMEMORY
               ? EBB_NO_MEMORY
               : EBB_OK; /* without a JIT matching is slower, not different */
}

/* Adds a step that splits by `pattern`, Oniguruma's syntax, or by the very text. */
static enum ebb_status add_split(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                 const char *pattern, bool literal, enum ebb_tok_behavior behavior,
                                 bool invert)
{
    if (tok->byte_level)
        return ebb_tok_refuse(ctx, tok, "pre_tokenizer", "that splits after ByteLevel");
    if (tok->split_count == EBB_TOK_STEPS)
        return ebb_tok_refuse(ctx, tok, "pre_tokenizer", "with more than 16 steps");
    struct ebb_tok_split *split = &tok->splits[tok->split_count++];
    split->kind = EBB_TOK_REGEX;
    split->behavior = behavior;
    split->invert = invert;
    split->pattern = ebb_mem_strdup(ctx, pattern);
    if (split->pattern == NULL) return EBB_NO_MEMORY;
    if (literal) return compile(ctx, tok, pattern, strlen(pattern), true, split);
    struct ebb_str text = {0};
    const char *refused = NULL;
    enum ebb_status status = rewrite(ctx, pattern, &text, &refused);
    if (status == EBB_OK && refused != NULL)
        status = EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: pre_tokenizer pattern '%s' has %s", tok->path,
                          pattern, refused);
    if (status == EBB_OK)
        status = compile(ctx, tok, text.data == NULL ? "" : text.data, text.bytes, false, split);
    ebb_str_free(ctx, &text);
    return status;
}

/* ---- components ---- */

static enum ebb_status read_split(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                  const json_t *node)
{
    static const char *const names[EBB_TOK_BEHAVIOR_COUNT] = {"Isolated", "Removed",
                                                              "MergedWithPrevious",
                                                              "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    bool invert;
    EBB_TRY(ebb_json_string(ctx, tok->path, node, "behavior", &name, NULL));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "invert", false, &invert));
    int behavior = 0;
    while (behavior < EBB_TOK_BEHAVIOR_COUNT && strcmp(name, names[behavior]) != 0) behavior++;
    if (behavior == EBB_TOK_BEHAVIOR_COUNT)
        return ebb_tok_refuse(ctx, tok, "Split with behavior", name);
    const json_t *pattern = json_object_get(node, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"),
                 *string = json_object_get(pattern, "String");
    const json_t *text = json_is_string(regex) ? regex : string;
    if (!json_is_string(text))
        return EBB_FAIL(
            ctx, EBB_BAD_FILE,
            "%s: Split has no 'pattern' of the form {\"Regex\": ...} or {\"String\": ...}",
            tok->path);
    if (strlen(json_string_value(text)) != json_string_length(text))
        return ebb_tok_refuse(ctx, tok, "Split", "with a NUL in its pattern");
    return add_split(ctx, tok, json_string_value(text), text == string,
                     (enum ebb_tok_behavior)behavior, invert);
}

static enum ebb_status read_digits(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                   const json_t *node)
{
    bool individual;
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "individual_digits", false, &individual));
    return add_split(ctx, tok, individual ? "\\p{N}" : "\\p{N}+", false, EBB_TOK_ISOLATED, false);
}

/* GPT-2's words (Radford et al. 2019), ByteLevel's own pattern. */
static const char gpt2_words[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static enum ebb_status read_byte_level(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                       const json_t *node)
{
    bool prefix_space, use_regex;
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "add_prefix_space", true, &prefix_space));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "use_regex", true, &use_regex));
    if (tok->byte_level)
        return ebb_tok_refuse(ctx, tok, "pre_tokenizer", "with two ByteLevel steps");
    if (prefix_space) {
        if (tok->split_count == EBB_TOK_STEPS)
            return ebb_tok_refuse(ctx, tok, "pre_tokenizer", "with more than 16 steps");
        tok->splits[tok->split_count++].kind = EBB_TOK_PREFIX_SPACE;
    }
    if (use_regex) EBB_TRY(add_split(ctx, tok, gpt2_words, false, EBB_TOK_ISOLATED, false));
    tok->byte_level = true;
    return EBB_OK;
}

static const struct ebb_tok_component components[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", read_byte_level},
    {"Digits", "individual_digits", read_digits},
    {"Split", "pattern behavior invert", read_split},
};

static const struct ebb_tok_family family = {"pre_tokenizer", "pretokenizers", components,
                                             sizeof components / sizeof components[0]};

const struct ebb_tok_family *ebb_tok_pre_tokenizers(void)
{
    return &family;
}
