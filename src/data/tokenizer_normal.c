/* Normalizers: Unicode normalization forms through utf8proc.
 *
 * Most text is in NFC already; a check per character that errs towards "no" saves the work (UAX
 * #15, quick check).
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer_int.h"

/* Length of the character and its code point; the text is valid UTF-8. */
static size_t read_point(const unsigned char *text, int32_t *point)
{
    if (text[0] < 0x80) {
        *point = text[0];
        return 1;
    }
    if (text[0] < 0xe0) {
        *point = (text[0] & 0x1f) << 6 | (text[1] & 0x3f);
        return 2;
    }
    if (text[0] < 0xf0) {
        *point = (text[0] & 0x0f) << 12 | (text[1] & 0x3f) << 6 | (text[2] & 0x3f);
        return 3;
    }
    *point =
        (text[0] & 0x07) << 18 | (text[1] & 0x3f) << 12 | (text[2] & 0x3f) << 6 | (text[3] & 0x3f);
    return 4;
}

/* A character from U+0300 on that neither decomposes canonically nor combines with what stands
 * before it. */
static bool is_inert(int32_t point)
{
    if (point >= 0x1100 && point <= 0x11ff) return false;
    if (point >= 0xac00 && point <= 0xd7ff)
        return point <= 0xd7a3; /* Hangul syllables; a V or T jamo is above */
    const utf8proc_property_t *property = utf8proc_get_property(point);
    if (property->combining_class != 0 || property->comb_index != UINT16_MAX) return false;
    return property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0;
}

bool ebb_tok_is_nfc(const char *text, size_t bytes)
{
    const unsigned char *data = (const unsigned char *)text;
    for (size_t i = 0; i < bytes;) {
        if (data[i] <
            0xcc) { /* below U+0300 nothing changes unless a later character combines with it */
            i++;
            continue;
        }
        int32_t point;
        size_t length = read_point(data + i, &point);
        if (!is_inert(point)) return false;
        i += length;
    }
    return true;
}

static bool is_ascii(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= 0x80) return false;
    return true;
}

static enum ebb_status run_form(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                const struct ebb_tok_normal *form, struct ebb_span text,
                                struct ebb_str *out)
{
    int bits = UTF8PROC_STABLE | (form->compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
    if (form->compat) bits |= UTF8PROC_COMPAT;
    utf8proc_option_t options = (utf8proc_option_t)bits;
    for (int attempt = 0; attempt < 2; attempt++) {
        utf8proc_ssize_t points =
            utf8proc_decompose((const utf8proc_uint8_t *)text.data, (utf8proc_ssize_t)text.bytes,
                               encoder->points, encoder->points_room, options);
        if (points < 0)
            return EBB_FAIL(ctx, EBB_FAILED, "a text of %zu bytes could not be normalized: %s",
                            text.bytes, utf8proc_errmsg(points));
        if (points <
            encoder->points_room) { /* one place stays free for the NUL that reencode writes */
            utf8proc_ssize_t bytes = utf8proc_reencode(encoder->points, points, options);
            if (bytes < 0)
                return EBB_FAIL(ctx, EBB_FAILED, "a text of %zu bytes could not be normalized: %s",
                                text.bytes, utf8proc_errmsg(bytes));
            out->bytes = 0;
            return ebb_str_add(ctx, out, (const char *)encoder->points, (size_t)bytes);
        }
        int64_t room = points + points / 2 + 64;
        int32_t *grown = ebb_mem_realloc(ctx, encoder->points, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        encoder->points = grown;
        encoder->points_room = room;
    }
    return EBB_FAIL(ctx, EBB_FAILED, "a text of %zu bytes could not be normalized", text.bytes);
}

enum ebb_status ebb_tok_normalize(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                  const char *text, size_t bytes, struct ebb_span *out)
{
    const struct ebb_tokenizer *tok = encoder->tok;
    int side = 0;
    *out = (struct ebb_span){text, bytes};
    if (tok->normal_count == 0 || is_ascii(text, bytes)) return EBB_OK; /* no form changes ASCII */
    for (int i = 0; i < tok->normal_count; i++) {
        const struct ebb_tok_normal *form = &tok->normals[i];
        if (form->compose && !form->compat && ebb_tok_is_nfc(out->data, out->bytes)) continue;
        EBB_TRY(run_form(ctx, encoder, form, *out, &encoder->normal[side]));
        *out = (struct ebb_span){encoder->normal[side].data, encoder->normal[side].bytes};
        side = !side;
    }
    return EBB_OK;
}

/* ---- components ---- */

static enum ebb_status add_form(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, bool compose,
                                bool compat)
{
    if (tok->normal_count == EBB_TOK_STEPS)
        return ebb_tok_refuse(ctx, tok, "normalizer", "with more than 16 steps");
    tok->normals[tok->normal_count++] = (struct ebb_tok_normal){compose, compat};
    return EBB_OK;
}

static enum ebb_status read_nfc(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const json_t *node)
{
    (void)node;
    return add_form(ctx, tok, true, false);
}

static enum ebb_status read_nfd(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const json_t *node)
{
    (void)node;
    return add_form(ctx, tok, false, false);
}

static enum ebb_status read_nfkc(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const json_t *node)
{
    (void)node;
    return add_form(ctx, tok, true, true);
}

static enum ebb_status read_nfkd(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const json_t *node)
{
    (void)node;
    return add_form(ctx, tok, false, true);
}

static const struct ebb_tok_component components[] = {
    {"NFC", "", read_nfc},
    {"NFD", "", read_nfd},
    {"NFKC", "", read_nfkc},
    {"NFKD", "", read_nfkd},
};

static const struct ebb_tok_family family = {"normalizer", "normalizers", components,
                                             sizeof components / sizeof components[0]};

const struct ebb_tok_family *ebb_tok_normalizers(void)
{
    return &family;
}
