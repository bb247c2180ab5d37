/* Decoders: ids to text.
 *
 * Byte-level tokens are bytes already; what is left is to keep characters whole. Other tokens go
 * through the decoder's steps one by one, so that text can be shown while it is generated. Behind
 * Fuse there are no tokens any more, only the text's beginning and end.
 *
 * In a run of byte tokens ("<0xE6>") that is no UTF-8, every byte becomes U+FFFD, even those that
 * would make a character. A stream can't know how a run ends and shows what is whole at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/tokenizer_int.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* ---- characters out of bytes ---- */

/* Bytes of the character that begins so; 0: none begins so (RFC 3629). */
static int character_bytes(unsigned char first)
{
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first <= 0xdf) return 2;
    if (first >= 0xe0 && first <= 0xef) return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* May `byte` follow what is held? The second byte rules out overlong forms, surrogates and what
 * is above U+10FFFF. */
static bool may_follow(const struct ebb_decode_stream *stream, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xbf;
    if (stream->held_count == 1) {
        unsigned char first = stream->held[0];
        if (first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
    }
    return byte >= low && byte <= high;
}

/* The end of a character that is not whole: one U+FFFD for all of it. */
static enum ebb_status drop_held(struct ebb_ctx *ctx, struct ebb_decode_stream *stream,
                                 struct ebb_str *out)
{
    if (stream->held_count == 0) return EBB_OK;
    stream->held_count = 0;
    return ebb_str_add(ctx, out, replacement, sizeof replacement - 1);
}

static enum ebb_status add_byte(struct ebb_ctx *ctx, struct ebb_decode_stream *stream,
                                unsigned char byte, struct ebb_str *out)
{
    if (stream->held_count > 0 && !may_follow(stream, byte)) EBB_TRY(drop_held(ctx, stream, out));
    if (stream->held_count == 0 && character_bytes(byte) == 0)
        return ebb_str_add(ctx, out, replacement, sizeof replacement - 1);
    stream->held[stream->held_count++] = byte;
    if (stream->held_count < character_bytes(stream->held[0])) return EBB_OK;
    EBB_TRY(ebb_str_add(ctx, out, (const char *)stream->held, (size_t)stream->held_count));
    stream->held_count = 0;
    return EBB_OK;
}

/* ---- tokens through the steps ---- */

struct run {
    struct ebb_ctx *ctx;
    const struct ebb_tokenizer *tok;
    struct ebb_decode_stream *stream;
    struct ebb_tok_matcher matcher;        /* {0} until it is needed */
    struct ebb_str scratch[EBB_TOK_STEPS]; /* what a step makes of a token */
    struct ebb_str bytes;                  /* a run of byte tokens, while `whole` */
    bool whole;                            /* all ids are known: runs are judged at their end */
    struct ebb_str *out;
};

static void run_free(struct run *run)
{
    ebb_tok_matcher_free(&run->matcher);
    for (int i = 0; i < EBB_TOK_STEPS; i++) ebb_str_free(run->ctx, &run->scratch[i]);
    ebb_str_free(run->ctx, &run->bytes);
}

static enum ebb_status token_at(struct run *run, int step, const char *text, size_t bytes);

struct replacing {
    struct run *run;
    const struct ebb_tok_decode *decode;
    const char *text;
    struct ebb_str *out;
};

static enum ebb_status replace_part(struct ebb_ctx *ctx, void *user, size_t start, size_t stop,
                                    bool match)
{
    const struct replacing *r = (const struct replacing *)user;
    if (match) return ebb_str_add(ctx, r->out, r->decode->content, r->decode->content_bytes);
    return ebb_str_add(ctx, r->out, r->text + start, stop - start);
}

static enum ebb_status replace_token(struct run *run, int step, const char *text, size_t bytes)
{
    const struct ebb_tok_decode *decode = &run->tok->decodes[step];
    struct replacing replacing = {run, decode, text, &run->scratch[step]};
    replacing.out->bytes = 0;
    if (decode->pattern.code != NULL && run->matcher.match == NULL)
        EBB_TRY(ebb_tok_matcher_create(run->ctx, run->tok, &run->matcher));
    EBB_TRY(ebb_tok_each_part(run->ctx, run->tok, &run->matcher, &decode->pattern, text, bytes,
                              replace_part, &replacing));
    return token_at(run, step + 1, replacing.out->bytes == 0 ? "" : replacing.out->data,
                    replacing.out->bytes);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that "<0x0A>" stands for, or -1. */
static int token_byte(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static enum ebb_status replacements_at(struct run *run, int step, size_t count)
{
    for (size_t i = 0; i < count; i++)
        EBB_TRY(token_at(run, step, replacement, sizeof replacement - 1));
    return EBB_OK;
}

/* The run of byte tokens ends. */
static enum ebb_status bytes_end(struct run *run, int step)
{
    size_t count = (size_t)run->stream->held_count;
    run->stream->held_count = 0;
    if (!run->whole) return replacements_at(run, step + 1, count);
    count = run->bytes.bytes;
    run->bytes.bytes = 0;
    if (count > 0 && ebb_text_utf8_valid(run->bytes.data, count) == count)
        return token_at(run, step + 1, run->bytes.data, count);
    return replacements_at(run, step + 1, count);
}

static enum ebb_status bytes_token(struct run *run, int step, const char *text, size_t bytes)
{
    struct ebb_decode_stream *stream = run->stream;
    int byte = token_byte(text, bytes);
    if (byte < 0) {
        EBB_TRY(bytes_end(run, step));
        return token_at(run, step + 1, text, bytes);
    }
    char one = (char)byte;
    if (run->whole) return ebb_str_add(run->ctx, &run->bytes, &one, 1);
    if (stream->held_count > 0 && !may_follow(stream, (unsigned char)byte))
        EBB_TRY(bytes_end(run, step));
    if (stream->held_count == 0 && character_bytes((unsigned char)byte) == 0)
        return replacements_at(run, step + 1, 1);
    stream->held[stream->held_count++] = (unsigned char)byte;
    if (stream->held_count < character_bytes(stream->held[0])) return EBB_OK;
    char whole[4];
    size_t count = (size_t)stream->held_count;
    memcpy(whole, stream->held, count);
    stream->held_count = 0;
    return token_at(run, step + 1, whole, count);
}

static bool is_at(const struct ebb_tok_pattern *mark, const char *text, size_t bytes, size_t at)
{
    return mark->bytes <= bytes - at && memcmp(text + at, mark->text, mark->bytes) == 0;
}

static enum ebb_status strip_token(struct run *run, int step, const char *text, size_t bytes)
{
    const struct ebb_tok_decode *decode = &run->tok->decodes[step];
    const struct ebb_tok_pattern *mark = &decode->pattern;
    size_t start = 0, stop = bytes;
    for (int64_t i = 0; i < decode->start && is_at(mark, text, stop, start); i++)
        start += mark->bytes;
    for (int64_t i = 0; i < decode->stop && stop - start >= mark->bytes &&
                        is_at(mark, text, stop, stop - mark->bytes);
         i++)
        stop -= mark->bytes;
    return token_at(run, step + 1, text + start, stop - start);
}

/* Behind Fuse: the text's first characters go, the last are held back until one follows them. */
static enum ebb_status strip_text(struct run *run, int step, const char *text, size_t bytes)
{
    const struct ebb_tok_decode *decode = &run->tok->decodes[step];
    const struct ebb_tok_pattern *mark = &decode->pattern;
    struct ebb_decode_stream *stream = run->stream;
    struct ebb_str *out = &run->scratch[step];
    out->bytes = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t point;
        size_t length = ebb_tok_read_point(text + at, &point);
        bool marked = is_at(mark, text, bytes, at);
        if (!marked) stream->start_done = true;
        if (marked && !stream->start_done && stream->start_taken < decode->start) {
            stream->start_taken++;
        } else if (marked && stream->stop_held < decode->stop) {
            stream->start_done = true;
            stream->stop_held++;
        } else {
            stream->start_done = true;
            for (; !marked && stream->stop_held > 0; stream->stop_held--)
                EBB_TRY(ebb_str_add(run->ctx, out, mark->text, mark->bytes));
            EBB_TRY(ebb_str_add(run->ctx, out, text + at, length));
        }
        at += length;
    }
    return token_at(run, step + 1, out->bytes == 0 ? "" : out->data, out->bytes);
}

/* What stands for a space becomes one; in the first token nothing, if the pre-tokenizer put it. */
static enum ebb_status metaspace_token(struct run *run, int step, const char *text, size_t bytes)
{
    const struct ebb_tok_decode *decode = &run->tok->decodes[step];
    const struct ebb_tok_pattern *mark = &decode->pattern;
    struct ebb_str *out = &run->scratch[step];
    bool drops = decode->drops_first && !run->stream->begun;
    run->stream->begun = true;
    out->bytes = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t point;
        size_t length = ebb_tok_read_point(text + at, &point);
        bool marked = is_at(mark, text, bytes, at);
        if (!marked)
            EBB_TRY(ebb_str_add(run->ctx, out, text + at, length));
        else if (!drops)
            EBB_TRY(ebb_str_add(run->ctx, out, " ", 1));
        at += length;
    }
    return token_at(run, step + 1, out->bytes == 0 ? "" : out->data, out->bytes);
}

static enum ebb_status token_at(struct run *run, int step, const char *text, size_t bytes)
{
    if (step == run->tok->decode_count) {
        if (!run->tok->decoded) { /* no decoder: tokens side by side */
            if (run->stream->begun) EBB_TRY(ebb_str_add(run->ctx, run->out, " ", 1));
            run->stream->begun = true;
        }
        return ebb_str_add(run->ctx, run->out, text, bytes);
    }
    switch (run->tok->decodes[step].kind) {
    case EBB_TOK_DECODE_REPLACE:
        return replace_token(run, step, text, bytes);
    case EBB_TOK_DECODE_BYTES:
        return bytes_token(run, step, text, bytes);
    case EBB_TOK_DECODE_STRIP:
        return run->tok->decodes[step].fused ? strip_text(run, step, text, bytes)
                                             : strip_token(run, step, text, bytes);
    case EBB_TOK_DECODE_METASPACE:
        return metaspace_token(run, step, text, bytes);
    default:
        return token_at(run, step + 1, text, bytes); /* Fuse is known by what follows it */
    }
}

static enum ebb_status run_end(struct run *run)
{
    for (int step = 0; step < run->tok->decode_count; step++)
        if (run->tok->decodes[step].kind == EBB_TOK_DECODE_BYTES) EBB_TRY(bytes_end(run, step));
    return EBB_OK;
}

static enum ebb_status run_add(struct run *run, int32_t id, bool skip_special)
{
    const struct ebb_tokenizer *tok = run->tok;
    struct ebb_decode_stream *stream = run->stream;
    size_t bytes;
    const char *text =
        tok->byte_level ? ebb_tokenizer_text(tok, id, &bytes) : ebb_tok_written(tok, id, &bytes);
    stream->tokenizer = tok;
    if (text != NULL && skip_special && ebb_tokenizer_is_special(tok, id)) return EBB_OK;
    if (!tok->byte_level)
        return token_at(run, 0, text == NULL ? replacement : text,
                        text == NULL ? sizeof replacement - 1 : bytes);
    if (text == NULL) {
        EBB_TRY(drop_held(run->ctx, stream, run->out));
        return ebb_str_add(run->ctx, run->out, replacement, sizeof replacement - 1);
    }
    for (size_t i = 0; i < bytes; i++)
        EBB_TRY(add_byte(run->ctx, stream, (unsigned char)text[i], run->out));
    return EBB_OK;
}

/* ---- the interface ---- */

enum ebb_status ebb_decode_add(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                               struct ebb_decode_stream *stream, int32_t id, bool skip_special,
                               struct ebb_str *out)
{
    struct run run = {.ctx = ctx, .tok = tokenizer, .stream = stream, .out = out};
    enum ebb_status status = run_add(&run, id, skip_special);
    run_free(&run);
    return status;
}

enum ebb_status ebb_decode_end(struct ebb_ctx *ctx, struct ebb_decode_stream *stream,
                               struct ebb_str *out)
{
    if (stream->tokenizer == NULL) return EBB_OK;
    if (stream->tokenizer->byte_level) return drop_held(ctx, stream, out);
    struct run run = {.ctx = ctx, .tok = stream->tokenizer, .stream = stream, .out = out};
    enum ebb_status status = run_end(&run);
    run_free(&run);
    return status;
}

enum ebb_status ebb_tokenizer_decode(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                     const int32_t *ids, int64_t count, bool skip_special,
                                     struct ebb_str *out)
{
    struct ebb_decode_stream stream = {0};
    struct run run = {.ctx = ctx, .tok = tokenizer, .stream = &stream, .whole = true, .out = out};
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; i < count && status == EBB_OK; i++)
        status = run_add(&run, ids[i], skip_special);
    if (status == EBB_OK && tokenizer->byte_level)
        status = drop_held(ctx, &stream, out);
    else if (status == EBB_OK)
        status = run_end(&run);
    run_free(&run);
    return status;
}

/* ---- components ---- */

static const char who[] = "decoder";

/* `per_token`: it makes no sense, or another one, where Fuse has made one text of all tokens. */
static enum ebb_status add_step(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                enum ebb_tok_decode_kind kind, const char *name, bool per_token,
                                struct ebb_tok_decode **decode)
{
    char what[64] = "decoder ";
    memcpy(what + 8, name, strlen(name) + 1);
    if (tok->byte_level) return ebb_tok_refuse(ctx, tok, what, "with a ByteLevel pre_tokenizer");
    if (per_token && tok->fused) return ebb_tok_refuse(ctx, tok, what, "after Fuse");
    if (tok->decode_count == EBB_TOK_STEPS)
        return ebb_tok_refuse(ctx, tok, what, "behind 16 other steps");
    for (int i = 0; i < tok->decode_count; i++)
        if (tok->decodes[i].kind == kind &&
            (kind == EBB_TOK_DECODE_BYTES || kind == EBB_TOK_DECODE_METASPACE ||
             tok->decodes[i].fused))
            return ebb_tok_refuse(ctx, tok, what, "behind another");
    *decode = &tok->decodes[tok->decode_count++];
    (*decode)->kind = kind;
    (*decode)->fused = tok->fused;
    tok->decoded = true;
    return EBB_OK;
}

static enum ebb_status read_byte_level(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                       const json_t *node)
{
    (void)node;
    if (!tok->byte_level)
        return ebb_tok_refuse(ctx, tok, "decoder ByteLevel", "without a ByteLevel pre_tokenizer");
    tok->decoded = true;
    return EBB_OK;
}

static enum ebb_status read_byte_fallback(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                          const json_t *node)
{
    struct ebb_tok_decode *decode = NULL;
    (void)node;
    return add_step(ctx, tok, EBB_TOK_DECODE_BYTES, "ByteFallback", true, &decode);
}

static enum ebb_status read_fuse(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const json_t *node)
{
    struct ebb_tok_decode *decode = NULL;
    (void)node;
    if (tok->byte_level || tok->fused) return EBB_OK; /* one text already */
    EBB_TRY(add_step(ctx, tok, EBB_TOK_DECODE_FUSE, "Fuse", false, &decode));
    tok->fused = true;
    return EBB_OK;
}

static enum ebb_status read_replace(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    const json_t *node)
{
    struct ebb_tok_decode *decode = NULL;
    const char *text;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_DECODE_REPLACE, "Replace", true, &decode));
    EBB_TRY(ebb_tok_pattern_read(ctx, tok, who, node, &decode->pattern));
    EBB_TRY(ebb_json_string(ctx, tok->path, node, "content", &text, NULL));
    decode->content_bytes = json_string_length(json_object_get(node, "content"));
    decode->content = ebb_mem_strndup(ctx, text, decode->content_bytes);
    if (decode->content == NULL) return EBB_NO_MEMORY;
    if (json_object_get(json_object_get(node, "pattern"), "Regex") != NULL &&
        memchr(text, '$', decode->content_bytes) != NULL)
        return ebb_tok_refuse(ctx, tok, "decoder Replace", "with groups ('$') in its content");
    return EBB_OK;
}

static enum ebb_status read_count(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                  const json_t *node, const char *key, int64_t *count)
{
    EBB_TRY(ebb_json_int64(ctx, tok->path, node, key, count, NULL));
    if (*count >= 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: decoder Strip: %s is %lld, below 0", tok->path, key,
                    (long long)*count);
}

static enum ebb_status read_strip(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                  const json_t *node)
{
    struct ebb_tok_decode *decode = NULL;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_DECODE_STRIP, "Strip", false, &decode));
    EBB_TRY(ebb_tok_pattern_character(ctx, tok, who, node, "content", &decode->pattern));
    EBB_TRY(read_count(ctx, tok, node, "start", &decode->start));
    return read_count(ctx, tok, node, "stop", &decode->stop);
}

static enum ebb_status read_metaspace(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                      const json_t *node)
{
    struct ebb_tok_decode *decode = NULL;
    enum ebb_tok_scheme scheme;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_DECODE_METASPACE, "Metaspace", true, &decode));
    EBB_TRY(ebb_tok_read_scheme(ctx, tok, node, who, &scheme));
    decode->drops_first = scheme != EBB_TOK_NEVER;
    return ebb_tok_pattern_character(ctx, tok, who, node, "replacement", &decode->pattern);
}

static const struct ebb_tok_component components[] = {
    {"ByteFallback", "", read_byte_fallback},
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", read_byte_level},
    {"Fuse", "", read_fuse},
    {"Metaspace", "replacement add_prefix_space prepend_scheme split str_rep", read_metaspace},
    {"Replace", "pattern content", read_replace},
    {"Strip", "content start stop", read_strip},
};

static const struct ebb_tok_family family = {"decoder", "decoders", components,
                                             sizeof components / sizeof components[0]};

const struct ebb_tok_family *ebb_tok_decoders(void)
{
    return &family;
}
