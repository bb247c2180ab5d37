/* Decoders: ids to text. Byte-level tokens are bytes already; what is left is to keep characters
 * whole.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/tokenizer_int.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

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

static enum ebb_status add_byte(struct ebb_ctx *ctx, struct ebb_decode_stream *stream,
                                unsigned char byte, struct ebb_str *out)
{
    if (stream->held_count > 0 && !may_follow(stream, byte))
        EBB_TRY(ebb_decode_end(ctx, stream, out));
    if (stream->held_count == 0 && character_bytes(byte) == 0)
        return ebb_str_add(ctx, out, replacement, sizeof replacement - 1);
    stream->held[stream->held_count++] = byte;
    if (stream->held_count < character_bytes(stream->held[0])) return EBB_OK;
    EBB_TRY(ebb_str_add(ctx, out, (const char *)stream->held, (size_t)stream->held_count));
    stream->held_count = 0;
    return EBB_OK;
}

enum ebb_status ebb_decode_add(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                               struct ebb_decode_stream *stream, int32_t id, bool skip_special,
                               struct ebb_str *out)
{
    size_t bytes;
    const char *text = ebb_tokenizer_text(tokenizer, id, &bytes);
    if (text == NULL) {
        EBB_TRY(ebb_decode_end(ctx, stream, out));
        return ebb_str_add(ctx, out, replacement, sizeof replacement - 1);
    }
    if (skip_special && ebb_tokenizer_is_special(tokenizer, id)) return EBB_OK;
    for (size_t i = 0; i < bytes; i++) EBB_TRY(add_byte(ctx, stream, (unsigned char)text[i], out));
    return EBB_OK;
}

enum ebb_status ebb_decode_end(struct ebb_ctx *ctx, struct ebb_decode_stream *stream,
                               struct ebb_str *out)
{
    if (stream->held_count == 0) return EBB_OK;
    stream->held_count = 0;
    return ebb_str_add(ctx, out, replacement, sizeof replacement - 1);
}

enum ebb_status ebb_tokenizer_decode(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                     const int32_t *ids, int64_t count, bool skip_special,
                                     struct ebb_str *out)
{
    struct ebb_decode_stream stream = {{0}, 0};
    for (int64_t i = 0; i < count; i++)
        EBB_TRY(ebb_decode_add(ctx, tokenizer, &stream, ids[i], skip_special, out));
    return ebb_decode_end(ctx, &stream, out);
}

/* ---- component ---- */

static enum ebb_status read_byte_level(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                       const json_t *node)
{
    (void)ctx, (void)tok, (void)node;
    return EBB_OK;
}

static const struct ebb_tok_component components[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", read_byte_level},
};

static const struct ebb_tok_family family = {"decoder", "decoders", components,
                                             sizeof components / sizeof components[0]};

const struct ebb_tok_family *ebb_tok_decoders(void)
{
    return &family;
}
