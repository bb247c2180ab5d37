/* Text on its way through a tokenizer's steps, and the places of the original text that it came
 * from.
 *
 * Places are kept only where somebody asks: they cost sixteen bytes a byte.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer_int.h"

/* ---- characters ---- */

size_t ebb_tok_read_point(const char *text, int32_t *point)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *point = at[0];
        return 1;
    }
    if (at[0] < 0xe0) {
        *point = (at[0] & 0x1f) << 6 | (at[1] & 0x3f);
        return 2;
    }
    if (at[0] < 0xf0) {
        *point = (at[0] & 0x0f) << 12 | (at[1] & 0x3f) << 6 | (at[2] & 0x3f);
        return 3;
    }
    *point = (at[0] & 0x07) << 18 | (at[1] & 0x3f) << 12 | (at[2] & 0x3f) << 6 | (at[3] & 0x3f);
    return 4;
}

size_t ebb_tok_write_point(int32_t point, char out[4])
{
    return (size_t)utf8proc_encode_char(point, (utf8proc_uint8_t *)out);
}

bool ebb_tok_is_point(const char *text, size_t bytes)
{
    if (bytes == 0) return false;
    unsigned char first = (unsigned char)text[0];
    return bytes == (first < 0x80 ? 1u : first < 0xe0 ? 2u : first < 0xf0 ? 3u : 4u);
}

/* ---- pieces ---- */

struct ebb_tok_piece ebb_tok_piece_part(const struct ebb_tok_piece *piece, size_t start,
                                        size_t stop)
{
    return (struct ebb_tok_piece){piece->data + start, stop - start,
                                  piece->places == NULL ? NULL : piece->places + start};
}

struct ebb_tok_place ebb_tok_place_of(const struct ebb_tok_piece *piece, size_t start, size_t stop)
{
    if (piece->places == NULL || start == stop) return (struct ebb_tok_place){0, 0};
    return (struct ebb_tok_place){piece->places[start].start, piece->places[stop - 1].stop};
}

struct ebb_tok_place ebb_tok_place_after(const struct ebb_tok_piece *piece, size_t at)
{
    int32_t point;
    if (piece->places == NULL || at == piece->bytes) return (struct ebb_tok_place){0, 0};
    return ebb_tok_place_of(piece, at, at + ebb_tok_read_point(piece->data + at, &point));
}

struct ebb_tok_place ebb_tok_place_before(const struct ebb_tok_piece *piece, size_t at)
{
    if (piece->places == NULL || piece->bytes == 0) return (struct ebb_tok_place){0, 0};
    if (at == 0) return (struct ebb_tok_place){piece->places[0].start, piece->places[0].start};
    size_t start = at - 1;
    while (start > 0 && ((unsigned char)piece->data[start] & 0xc0) == 0x80) start--;
    return ebb_tok_place_of(piece, start, at);
}

/* ---- buffers ---- */

void ebb_tok_buffer_clear(struct ebb_tok_buffer *buffer)
{
    buffer->text.bytes = 0;
}

void ebb_tok_buffer_free(struct ebb_ctx *ctx, struct ebb_tok_buffer *buffer)
{
    ebb_str_free(ctx, &buffer->text);
    ebb_mem_free(ctx, buffer->places);
    *buffer = (struct ebb_tok_buffer){0};
}

static enum ebb_status reserve(struct ebb_ctx *ctx, struct ebb_tok_buffer *buffer, size_t more)
{
    size_t wanted = buffer->text.bytes + more;
    if (wanted <= buffer->room) return EBB_OK;
    size_t room = wanted + wanted / 2 + 64;
    struct ebb_tok_place *grown = ebb_mem_realloc(ctx, buffer->places, room * sizeof *grown);
    if (grown == NULL) return EBB_NO_MEMORY;
    buffer->places = grown;
    buffer->room = room;
    return EBB_OK;
}

enum ebb_status ebb_tok_buffer_copy(struct ebb_ctx *ctx, struct ebb_tok_buffer *buffer,
                                    const struct ebb_tok_piece *piece, size_t start, size_t stop)
{
    if (start == stop) return EBB_OK;
    if (piece->places != NULL) {
        EBB_TRY(reserve(ctx, buffer, stop - start));
        memcpy(buffer->places + buffer->text.bytes, piece->places + start,
               (stop - start) * sizeof *buffer->places);
    }
    return ebb_str_add(ctx, &buffer->text, piece->data + start, stop - start);
}

enum ebb_status ebb_tok_buffer_put(struct ebb_ctx *ctx, struct ebb_tok_buffer *buffer,
                                   const struct ebb_tok_piece *piece, struct ebb_tok_place place,
                                   const char *text, size_t bytes)
{
    if (bytes == 0) return EBB_OK;
    if (piece->places != NULL) {
        EBB_TRY(reserve(ctx, buffer, bytes));
        for (size_t i = 0; i < bytes; i++) buffer->places[buffer->text.bytes + i] = place;
    }
    return ebb_str_add(ctx, &buffer->text, text, bytes);
}

struct ebb_tok_piece ebb_tok_buffer_piece(const struct ebb_tok_buffer *buffer,
                                          const struct ebb_tok_piece *piece)
{
    return (struct ebb_tok_piece){buffer->text.data == NULL ? "" : buffer->text.data,
                                  buffer->text.bytes,
                                  piece->places == NULL ? NULL : buffer->places};
}
