/* The encoder, which runs a tokenizer's components in order, and look-ups.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer.h"

#include <string.h>

#include "base/file.h"
#include "data/tokenizer_int.h"

/* ---- ids ---- */

enum ebb_status ebb_ids_add(struct ebb_ctx *ctx, struct ebb_ids *ids, const int32_t *data,
                            int64_t count)
{
    if (ids->count + count > ids->room) {
        int64_t room = ids->room * 2 + 64;
        if (room < ids->count + count) room = ids->count + count;
        int32_t *grown = ebb_mem_realloc(ctx, ids->data, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        ids->data = grown;
        ids->room = room;
    }
    if (count > 0) memcpy(ids->data + ids->count, data, (size_t)count * sizeof *data);
    ids->count += count;
    return EBB_OK;
}

void ebb_ids_free(struct ebb_ctx *ctx, struct ebb_ids *ids)
{
    ebb_mem_free(ctx, ids->data);
    *ids = (struct ebb_ids){0};
}

/* ---- offsets ---- */

static enum ebb_status offsets_add(struct ebb_ctx *ctx, struct ebb_offsets *offsets,
                                   struct ebb_tok_place place)
{
    if (offsets->count == offsets->room) {
        int64_t room = offsets->room * 2 + 64;
        struct ebb_offset *grown =
            ebb_mem_realloc(ctx, offsets->data, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        offsets->data = grown;
        offsets->room = room;
    }
    offsets->data[offsets->count++] =
        (struct ebb_offset){(int64_t)place.start, (int64_t)place.stop};
    return EBB_OK;
}

void ebb_offsets_free(struct ebb_ctx *ctx, struct ebb_offsets *offsets)
{
    ebb_mem_free(ctx, offsets->data);
    *offsets = (struct ebb_offsets){0};
}

/* ---- look-ups ---- */

uint64_t ebb_tokenizer_hash(const struct ebb_tokenizer *tokenizer)
{
    const uint64_t parts[] = {tokenizer->file_hash, (uint64_t)tokenizer->bos,
                              (uint64_t)tokenizer->eos, (uint64_t)tokenizer->pad,
                              (uint64_t)tokenizer->unk};
    return ebb_hash_bytes(parts, sizeof parts);
}

int64_t ebb_tokenizer_vocab_size(const struct ebb_tokenizer *tokenizer)
{
    return tokenizer->size;
}

int32_t ebb_tokenizer_bos(const struct ebb_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t ebb_tokenizer_eos(const struct ebb_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

int32_t ebb_tokenizer_pad(const struct ebb_tokenizer *tokenizer)
{
    return tokenizer->pad;
}

int32_t ebb_tokenizer_unk(const struct ebb_tokenizer *tokenizer)
{
    return tokenizer->unk;
}

const char *ebb_tokenizer_text(const struct ebb_tokenizer *tokenizer, int32_t id, size_t *bytes)
{
    if (id < 0 || id >= tokenizer->size || tokenizer->tokens[id].flags == 0) return NULL;
    *bytes = tokenizer->tokens[id].bytes;
    return tokenizer->texts.data + tokenizer->tokens[id].start;
}

enum ebb_status ebb_tokenizer_piece(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                    int32_t id, struct ebb_str *out)
{
    size_t bytes;
    const char *text = ebb_tok_written(tokenizer, id, &bytes);
    if (text == NULL) return EBB_OK;
    unsigned flags = tokenizer->tokens[id].flags;
    bool raw = !tokenizer->byte_level || (flags & (EBB_TOK_RAW | EBB_TOK_ADDED)) != 0;
    if (raw) return ebb_str_add(ctx, out, text, bytes);
    for (size_t i = 0; i < bytes; i++) {
        char letter[4];
        size_t length = ebb_tok_write_point(tokenizer->letters[(unsigned char)text[i]], letter);
        EBB_TRY(ebb_str_add(ctx, out, letter, length));
    }
    return EBB_OK;
}

int32_t ebb_tokenizer_find(const struct ebb_tokenizer *tokenizer, const char *text, size_t bytes)
{
    const struct ebb_tok_added_set *sets[] = {&tokenizer->before, &tokenizer->after};
    for (int i = 0; i < 2; i++)
        for (int32_t j = 0; j < sets[i]->count; j++)
            if (sets[i]->items[j].bytes == bytes &&
                memcmp(sets[i]->items[j].content, text, bytes) == 0)
                return sets[i]->items[j].id;
    return ebb_tok_lookup(tokenizer, text, bytes);
}

bool ebb_tokenizer_is_special(const struct ebb_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->size && (tokenizer->tokens[id].flags & EBB_TOK_SPECIAL) != 0;
}

static int count_of(const int32_t *list, int count, int32_t id)
{
    int times = 0;
    for (int i = 0; i < count; i++) times += list[i] == id;
    return times;
}

int ebb_tokenizer_prefix_count(const struct ebb_tokenizer *tokenizer, int32_t id)
{
    return count_of(tokenizer->prefix, tokenizer->prefix_count, id);
}

int ebb_tokenizer_suffix_count(const struct ebb_tokenizer *tokenizer, int32_t id)
{
    return count_of(tokenizer->suffix, tokenizer->suffix_count, id);
}

/* ---- the encoder ---- */

enum ebb_status ebb_encoder_create(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                   struct ebb_encoder **encoder)
{
    *encoder = ebb_mem_alloc(ctx, sizeof **encoder);
    if (*encoder == NULL) return EBB_NO_MEMORY;
    (*encoder)->tok = tokenizer;
    enum ebb_status status = ebb_tok_matcher_create(ctx, tokenizer, &(*encoder)->matcher);
    if (status == EBB_OK) status = ebb_tok_cache_create(ctx, &(*encoder)->cache);
    if (status != EBB_OK) {
        ebb_encoder_free(ctx, *encoder);
        *encoder = NULL;
    }
    return status;
}

void ebb_encoder_free(struct ebb_ctx *ctx, struct ebb_encoder *encoder)
{
    if (encoder == NULL) return;
    ebb_tok_matcher_free(&encoder->matcher);
    ebb_tok_buffer_free(ctx, &encoder->normal[0]);
    ebb_tok_buffer_free(ctx, &encoder->normal[1]);
    for (int i = 0; i < EBB_TOK_STEPS; i++) ebb_tok_buffer_free(ctx, &encoder->rewritten[i]);
    ebb_mem_free(ctx, encoder->points);
    ebb_mem_free(ctx, encoder->places);
    ebb_tok_word_free(ctx, encoder);
    ebb_mem_free(ctx, encoder);
}

enum ebb_status ebb_tok_emit(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int32_t id,
                             struct ebb_tok_place place, struct ebb_ids *out)
{
    if (encoder->offsets != NULL) EBB_TRY(offsets_add(ctx, encoder->offsets, place));
    return ebb_ids_add(ctx, out, &id, 1);
}

/* What stands between two added tokens. */
static enum ebb_status encode_plain(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                    struct ebb_tok_piece text, bool literal, struct ebb_ids *out)
{
    struct ebb_tok_piece normal;
    EBB_TRY(ebb_tok_normalize(ctx, encoder, text, &normal));
    if (text.data == encoder->first) encoder->first = normal.data;
    struct ebb_tok_hit hit = {0};
    size_t at = 0;
    while (ebb_tok_added_next(&encoder->tok->after, normal.data, normal.bytes, literal, &hit)) {
        if (hit.start > at)
            EBB_TRY(ebb_tok_split_run(ctx, encoder, 0, ebb_tok_piece_part(&normal, at, hit.start),
                                      out));
        EBB_TRY(ebb_tok_emit(ctx, encoder, hit.id, ebb_tok_place_of(&normal, hit.start, hit.stop),
                             out));
        encoder->at_start = false;
        at = hit.stop;
    }
    EBB_TRY(ebb_tok_split_run(ctx, encoder, 0, ebb_tok_piece_part(&normal, at, normal.bytes), out));
    if (text.bytes > 0) encoder->at_start = false;
    encoder->first = NULL;
    return EBB_OK;
}

static enum ebb_status encode_text(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                   struct ebb_tok_piece text, bool literal, struct ebb_ids *out)
{
    struct ebb_tok_hit hit = {0};
    size_t at = 0;
    while (ebb_tok_added_next(&encoder->tok->before, text.data, text.bytes, literal, &hit)) {
        if (hit.start > at)
            EBB_TRY(
                encode_plain(ctx, encoder, ebb_tok_piece_part(&text, at, hit.start), literal, out));
        EBB_TRY(
            ebb_tok_emit(ctx, encoder, hit.id, ebb_tok_place_of(&text, hit.start, hit.stop), out));
        encoder->at_start = false;
        encoder->first = NULL;
        at = hit.stop;
    }
    if (at == text.bytes) return EBB_OK;
    return encode_plain(ctx, encoder, ebb_tok_piece_part(&text, at, text.bytes), literal, out);
}

/* Every byte stands for itself. */
static enum ebb_status trace(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                             struct ebb_tok_piece *text)
{
    if (text->bytes > encoder->places_room) {
        size_t room = text->bytes + text->bytes / 2;
        struct ebb_tok_place *grown = ebb_mem_realloc(ctx, encoder->places, room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        encoder->places = grown;
        encoder->places_room = room;
    }
    for (size_t i = 0; i < text->bytes; i++) encoder->places[i] = (struct ebb_tok_place){i, i + 1};
    text->places = encoder->places;
    return EBB_OK;
}

static enum ebb_status emit_all(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                const int32_t *ids, int count, size_t at, struct ebb_ids *out)
{
    for (int i = 0; i < count; i++)
        EBB_TRY(ebb_tok_emit(ctx, encoder, ids[i], (struct ebb_tok_place){at, at}, out));
    return EBB_OK;
}

static enum ebb_status run(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                           struct ebb_tok_piece text, unsigned flags, struct ebb_ids *out)
{
    const struct ebb_tokenizer *tok = encoder->tok;
    encoder->at_start = (flags & EBB_ENCODE_CONTINUES) != 0;
    encoder->first = text.data;
    if (encoder->offsets != NULL || tok->traces) EBB_TRY(trace(ctx, encoder, &text));
    if (flags & EBB_ENCODE_PREFIX)
        EBB_TRY(emit_all(ctx, encoder, tok->prefix, tok->prefix_count, 0, out));
    EBB_TRY(encode_text(ctx, encoder, text, (flags & EBB_ENCODE_LITERAL) != 0, out));
    if ((flags & EBB_ENCODE_SUFFIX) == 0) return EBB_OK;
    return emit_all(ctx, encoder, tok->suffix, tok->suffix_count, text.bytes, out);
}

enum ebb_status ebb_encode_offsets(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                   const char *text, size_t bytes, unsigned flags,
                                   struct ebb_ids *out, struct ebb_offsets *offsets)
{
    size_t valid = ebb_text_utf8_valid(text, bytes);
    if (valid != bytes)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "a text to be tokenized is not UTF-8 at its byte %zu (0x%02x)", valid,
                        (unsigned char)text[valid]);
    int64_t before = out->count, offsets_before = offsets == NULL ? 0 : offsets->count;
    encoder->offsets = offsets;
    enum ebb_status status =
        run(ctx, encoder, (struct ebb_tok_piece){text, bytes, NULL}, flags, out);
    encoder->offsets = NULL;
    if (status == EBB_OK) return EBB_OK;
    out->count = before;
    if (offsets != NULL) offsets->count = offsets_before;
    return status;
}

enum ebb_status ebb_encode(struct ebb_ctx *ctx, struct ebb_encoder *encoder, const char *text,
                           size_t bytes, unsigned flags, struct ebb_ids *out)
{
    return ebb_encode_offsets(ctx, encoder, text, bytes, flags, out, NULL);
}

enum ebb_status ebb_tokenizer_encode(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                     const char *text, size_t bytes, unsigned flags,
                                     struct ebb_ids *out)
{
    struct ebb_encoder *encoder;
    EBB_TRY(ebb_encoder_create(ctx, tokenizer, &encoder));
    enum ebb_status status = ebb_encode(ctx, encoder, text, bytes, flags, out);
    ebb_encoder_free(ctx, encoder);
    return status;
}
