/* Pre-tokenizers: text into words.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/tokenizer_int.h"

/* ---- running ---- */

/* Pieces of one step on their way to the next: the last one waits, in case it is merged. */
struct piece_run {
    struct ebb_encoder *encoder;
    struct ebb_ids *out;
    struct ebb_tok_piece piece;
    int step;
    bool waiting, waiting_match;
    size_t start, stop;
};

static enum ebb_status piece_flush(struct ebb_ctx *ctx, struct piece_run *run)
{
    if (!run->waiting) return EBB_OK;
    run->waiting = false;
    if (run->start == run->stop) return EBB_OK;
    return ebb_tok_split_run(ctx, run->encoder, run->step + 1,
                             ebb_tok_piece_part(&run->piece, run->start, run->stop), run->out);
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

static enum ebb_status piece_add(struct ebb_ctx *ctx, void *user, size_t start, size_t stop,
                                 bool match)
{
    struct piece_run *run = (struct piece_run *)user;
    const struct ebb_tok_split *split = &run->encoder->tok->splits[run->step];
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

static enum ebb_status run_pattern(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int step,
                                   struct ebb_tok_piece piece, struct ebb_ids *out)
{
    struct piece_run run = {encoder, out, piece, step, false, false, 0, 0};
    EBB_TRY(ebb_tok_each_part(ctx, encoder->tok, &encoder->matcher,
                              &encoder->tok->splits[step].pattern, piece.data, piece.bytes,
                              piece_add, &run));
    return piece_flush(ctx, &run);
}

static enum ebb_status run_prefix_space(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int step,
                                        struct ebb_tok_piece piece, struct ebb_ids *out)
{
    bool continues = encoder->at_start;
    struct ebb_tok_buffer *buffer = &encoder->rewritten[step];
    encoder->at_start = false;
    if (continues || piece.data[0] == ' ')
        return ebb_tok_split_run(ctx, encoder, step + 1, piece, out);
    ebb_tok_buffer_clear(buffer);
    EBB_TRY(ebb_tok_buffer_put(ctx, buffer, &piece, ebb_tok_place_after(&piece, 0), " ", 1));
    EBB_TRY(ebb_tok_buffer_copy(ctx, buffer, &piece, 0, piece.bytes));
    return ebb_tok_split_run(ctx, encoder, step + 1, ebb_tok_buffer_piece(buffer, &piece), out);
}

/* Is this piece the beginning of the whole text? */
static bool is_first(const struct ebb_encoder *encoder, const struct ebb_tok_piece *piece)
{
    if (piece->places != NULL) return piece->places[0].start == 0;
    return piece->data == encoder->first;
}

static enum ebb_status run_metaspace(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int step,
                                     struct ebb_tok_piece piece, struct ebb_ids *out)
{
    const struct ebb_tok_split *split = &encoder->tok->splits[step];
    const struct ebb_tok_pattern *mark = &split->pattern;
    struct ebb_tok_buffer *buffer = &encoder->rewritten[step];
    bool marked = piece.data[0] == ' ' ||
                  (piece.bytes >= mark->bytes && memcmp(piece.data, mark->text, mark->bytes) == 0);
    bool prepends = split->scheme == EBB_TOK_ALWAYS ||
                    (split->scheme == EBB_TOK_FIRST && is_first(encoder, &piece));
    ebb_tok_buffer_clear(buffer);
    if (prepends && !marked && !encoder->at_start)
        EBB_TRY(ebb_tok_buffer_put(ctx, buffer, &piece, ebb_tok_place_after(&piece, 0), mark->text,
                                   mark->bytes));
    encoder->at_start = false;
    for (size_t at = 0; at < piece.bytes;) {
        const char *space = memchr(piece.data + at, ' ', piece.bytes - at);
        size_t stop = space == NULL ? piece.bytes : (size_t)(space - piece.data);
        EBB_TRY(ebb_tok_buffer_copy(ctx, buffer, &piece, at, stop));
        if (space == NULL) break;
        EBB_TRY(ebb_tok_buffer_put(ctx, buffer, &piece, ebb_tok_place_of(&piece, stop, stop + 1),
                                   mark->text, mark->bytes));
        at = stop + 1;
    }
    return ebb_tok_split_run(ctx, encoder, step + 1, ebb_tok_buffer_piece(buffer, &piece), out);
}

enum ebb_status ebb_tok_split_run(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int step,
                                  struct ebb_tok_piece piece, struct ebb_ids *out)
{
    if (piece.bytes == 0) return EBB_OK;
    if (step == encoder->tok->split_count) return ebb_tok_bpe_run(ctx, encoder, piece, out);
    switch (encoder->tok->splits[step].kind) {
    case EBB_TOK_PREFIX_SPACE:
        return run_prefix_space(ctx, encoder, step, piece, out);
    case EBB_TOK_METASPACE:
        return run_metaspace(ctx, encoder, step, piece, out);
    default:
        return run_pattern(ctx, encoder, step, piece, out);
    }
}

/* ---- components ---- */

static enum ebb_status add_step(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                enum ebb_tok_split_kind kind, struct ebb_tok_split **split)
{
    if (tok->byte_level)
        return ebb_tok_refuse(ctx, tok, "pre_tokenizer", "that splits after ByteLevel");
    if (tok->split_count == EBB_TOK_STEPS)
        return ebb_tok_refuse(ctx, tok, "pre_tokenizer", "with more than 16 steps");
    *split = &tok->splits[tok->split_count++];
    (*split)->kind = kind;
    return EBB_OK;
}

/* A step that splits by `pattern`, Oniguruma's syntax, each match a word of its own. */
static enum ebb_status add_isolated(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    const char *pattern)
{
    struct ebb_tok_split *split = NULL;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_PATTERN, &split));
    return ebb_tok_pattern_regex(ctx, tok, "pre_tokenizer", pattern, &split->pattern);
}

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
    struct ebb_tok_split *split = NULL;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_PATTERN, &split));
    split->behavior = (enum ebb_tok_behavior)behavior;
    split->invert = invert;
    return ebb_tok_pattern_read(ctx, tok, "pre_tokenizer", node, &split->pattern);
}

static enum ebb_status read_digits(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                   const json_t *node)
{
    bool individual;
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "individual_digits", false, &individual));
    return add_isolated(ctx, tok, individual ? "\\p{N}" : "\\p{N}+");
}

/* GPT-2's words (Radford et al. 2019), ByteLevel's own pattern. */
static const char gpt2_words[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static enum ebb_status read_byte_level(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                       const json_t *node)
{
    bool prefix_space, use_regex;
    struct ebb_tok_split *split = NULL;
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "add_prefix_space", true, &prefix_space));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "use_regex", true, &use_regex));
    if (tok->byte_level)
        return ebb_tok_refuse(ctx, tok, "pre_tokenizer", "with two ByteLevel steps");
    if (prefix_space) EBB_TRY(add_step(ctx, tok, EBB_TOK_PREFIX_SPACE, &split));
    if (use_regex) EBB_TRY(add_isolated(ctx, tok, gpt2_words));
    tok->byte_level = true;
    return EBB_OK;
}

enum ebb_status ebb_tok_read_scheme(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    const json_t *node, const char *who,
                                    enum ebb_tok_scheme *scheme)
{
    static const char *const names[EBB_TOK_SCHEME_COUNT] = {"always", "first", "never"};
    const char *name = NULL;
    bool prefix_space, found;
    EBB_TRY(ebb_json_string(ctx, tok->path, node, "prepend_scheme", &name, &found));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "add_prefix_space", true, &prefix_space));
    if (!found) { /* files older than the key */
        *scheme = prefix_space ? EBB_TOK_ALWAYS : EBB_TOK_NEVER;
        return EBB_OK;
    }
    int at = 0;
    while (at < EBB_TOK_SCHEME_COUNT && strcmp(name, names[at]) != 0) at++;
    if (at == EBB_TOK_SCHEME_COUNT)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: %s Metaspace with prepend_scheme '%s' is not offered", tok->path, who,
                        name);
    *scheme = (enum ebb_tok_scheme)at;
    if (prefix_space || *scheme == EBB_TOK_NEVER) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: %s Metaspace has add_prefix_space: false, but prepend_scheme '%s'",
                    tok->path, who, name);
}

static enum ebb_status read_metaspace(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                      const json_t *node)
{
    static const char who[] = "pre_tokenizer";
    bool splits;
    struct ebb_tok_split *split = NULL;
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "split", true, &splits));
    EBB_TRY(add_step(ctx, tok, EBB_TOK_METASPACE, &split));
    EBB_TRY(ebb_tok_read_scheme(ctx, tok, node, who, &split->scheme));
    EBB_TRY(ebb_tok_pattern_character(ctx, tok, who, node, "replacement", &split->pattern));
    /* Behind a step that writes text of its own, what comes first is known by its place alone. */
    if (split->scheme == EBB_TOK_FIRST)
        for (int i = 0; i + 1 < tok->split_count; i++)
            tok->traces = tok->traces || tok->splits[i].kind != EBB_TOK_PATTERN;
    if (!splits) return EBB_OK;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_PATTERN, &split));
    split->behavior = EBB_TOK_MERGED_WITH_NEXT;
    return ebb_tok_pattern_character(ctx, tok, who, node, "replacement", &split->pattern);
}

static const struct ebb_tok_component components[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", read_byte_level},
    {"Digits", "individual_digits", read_digits},
    {"Metaspace", "replacement add_prefix_space prepend_scheme split str_rep", read_metaspace},
    {"Split", "pattern behavior invert", read_split},
};

static const struct ebb_tok_family family = {"pre_tokenizer", "pretokenizers", components,
                                             sizeof components / sizeof components[0]};

const struct ebb_tok_family *ebb_tok_pre_tokenizers(void)
{
    return &family;
}
