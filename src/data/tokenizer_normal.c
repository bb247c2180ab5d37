/* Normalizers: text into the text that is split and looked up. Unicode normalization forms come
 * from utf8proc.
 *
 * Most text is in NFC already; a check per character that errs towards "no" saves the work (UAX
 * #15, quick check).
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer_int.h"

/* ---- forms ---- */

/* U+11A7 stands right before the final consonants of Hangul, is none itself, and combines with
 * nothing. utf8proc 2.6 takes it for one and loses it behind a syllable, so that the text is
 * cut before it. */
enum { NO_JAMO = 0x11a7 };
static const char no_jamo[] = "\xe1\x86\xa7";

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
    for (size_t i = 0; i < bytes;) {
        if ((unsigned char)text[i] <
            0xcc) { /* below U+0300 nothing changes unless a later character combines with it */
            i++;
            continue;
        }
        int32_t point;
        size_t length = ebb_tok_read_point(text + i, &point);
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

/* The text in the form, in encoder->points. */
static enum ebb_status run_form(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                const struct ebb_tok_normal *form, const char *text, size_t bytes,
                                size_t *out_bytes)
{
    int bits = UTF8PROC_STABLE | (form->compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
    if (form->compat) bits |= UTF8PROC_COMPAT;
    utf8proc_option_t options = (utf8proc_option_t)bits;
    for (int attempt = 0; attempt < 2; attempt++) {
        utf8proc_ssize_t points =
            utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes,
                               encoder->points, encoder->points_room, options);
        if (points >= 0 && points < encoder->points_room) /* a place for reencode's NUL is left */
            points = utf8proc_reencode(encoder->points, points, options);
        else if (points >= 0) {
            int64_t room = points + points / 2 + 64;
            int32_t *grown = ebb_mem_realloc(ctx, encoder->points, (size_t)room * sizeof *grown);
            if (grown == NULL) return EBB_NO_MEMORY;
            encoder->points = grown;
            encoder->points_room = room;
            continue;
        }
        if (points < 0)
            return EBB_FAIL(ctx, EBB_FAILED, "a text of %zu bytes could not be normalized: %s",
                            bytes, utf8proc_errmsg(points));
        *out_bytes = (size_t)points;
        return EBB_OK;
    }
    return EBB_FAIL(ctx, EBB_FAILED, "a text of %zu bytes could not be normalized", bytes);
}

/* May the text be cut before this character, each side being normalized alone? */
static bool begins_segment(int32_t point)
{
    if (point < 0x80 || point == NO_JAMO) return true;
    if ((point >= 0x1100 && point <= 0x11ff) || (point >= 0xac00 && point <= 0xd7ff)) return false;
    const utf8proc_property_t *property = utf8proc_get_property(point);
    return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
           (property->comb_index == UINT16_MAX || property->comb_index < 0x8000);
}

/* Bytes of the whole characters with which both begin. */
static size_t common_start(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t same = 0, length;
    int32_t point;
    for (; same < a_bytes && same < b_bytes; same += length) {
        length = ebb_tok_read_point(a + same, &point);
        if (length > b_bytes - same || memcmp(a + same, b + same, length) != 0) break;
    }
    return same;
}

/* One segment after the other, so that what is changed in a segment has the place of what it was.
 */
static enum ebb_status trace_form(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                  const struct ebb_tok_normal *form,
                                  const struct ebb_tok_piece *text, struct ebb_tok_buffer *out)
{
    for (size_t start = 0, stop; start < text->bytes; start = stop) {
        int32_t point;
        stop = start + ebb_tok_read_point(text->data + start, &point);
        while (stop < text->bytes) {
            size_t length = ebb_tok_read_point(text->data + stop, &point);
            if (begins_segment(point)) break;
            stop += length;
        }
        size_t bytes;
        EBB_TRY(run_form(ctx, encoder, form, text->data + start, stop - start, &bytes));
        const char *made = (const char *)encoder->points;
        size_t same = common_start(made, bytes, text->data + start, stop - start);
        EBB_TRY(ebb_tok_buffer_copy(ctx, out, text, start, start + same));
        EBB_TRY(ebb_tok_buffer_put(ctx, out, text, ebb_tok_place_of(text, start + same, stop),
                                   made + same, bytes - same));
    }
    return EBB_OK;
}

static enum ebb_status form(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                            const struct ebb_tok_normal *normal, const struct ebb_tok_piece *text,
                            struct ebb_tok_buffer *out)
{
    if (text->places != NULL) return trace_form(ctx, encoder, normal, text, out);
    for (size_t start = 0, stop; start < text->bytes; start = stop) {
        size_t bytes;
        const char *found = memmem(text->data + start + 1, text->bytes - start - 1, no_jamo, 3);
        stop = found == NULL ? text->bytes : (size_t)(found - text->data);
        EBB_TRY(run_form(ctx, encoder, normal, text->data + start, stop - start, &bytes));
        EBB_TRY(ebb_str_add(ctx, &out->text, (const char *)encoder->points, bytes));
    }
    return EBB_OK;
}

/* No form changes ASCII. */
static bool form_keeps(const struct ebb_tok_normal *normal, const struct ebb_tok_piece *text)
{
    return is_ascii(text->data, text->bytes) ||
           (normal->compose && !normal->compat && ebb_tok_is_nfc(text->data, text->bytes));
}

/* ---- the others ---- */

static enum ebb_status prepend(struct ebb_ctx *ctx, const struct ebb_tok_normal *normal,
                               const struct ebb_tok_piece *text, struct ebb_tok_buffer *out)
{
    EBB_TRY(ebb_tok_buffer_put(ctx, out, text, ebb_tok_place_after(text, 0), normal->content,
                               normal->content_bytes));
    return ebb_tok_buffer_copy(ctx, out, text, 0, text->bytes);
}

struct replacing {
    const struct ebb_tok_normal *normal;
    const struct ebb_tok_piece *text;
    struct ebb_tok_buffer *out;
};

/* What replaces several characters comes from the last of them, what replaces nothing from the one
 * before it: Hugging Face's rule, which decides what is first for a Metaspace. */
static enum ebb_status replace_part(struct ebb_ctx *ctx, void *user, size_t start, size_t stop,
                                    bool match)
{
    const struct replacing *r = (const struct replacing *)user;
    if (!match) return ebb_tok_buffer_copy(ctx, r->out, r->text, start, stop);
    return ebb_tok_buffer_put(ctx, r->out, r->text, ebb_tok_place_before(r->text, stop),
                              r->normal->content, r->normal->content_bytes);
}

static void strip(const struct ebb_tok_normal *normal, struct ebb_tok_piece *text)
{
    int32_t point;
    size_t start = 0, stop = text->bytes;
    while (normal->left && start < stop) {
        size_t length = ebb_tok_read_point(text->data + start, &point);
        if (!ebb_tok_is_white(point)) break;
        start += length;
    }
    while (normal->right && stop > start) {
        size_t at = stop - 1;
        while (((unsigned char)text->data[at] & 0xc0) == 0x80) at--;
        ebb_tok_read_point(text->data + at, &point);
        if (!ebb_tok_is_white(point)) break;
        stop = at;
    }
    *text = ebb_tok_piece_part(text, start, stop);
}

/* Character by character, whatever stands around it: a capital sigma at a word's end becomes the
 * common small one. */
static enum ebb_status lowercase(struct ebb_ctx *ctx, const struct ebb_tok_piece *text,
                                 struct ebb_tok_buffer *out)
{
    size_t kept = 0, length;
    for (size_t at = 0; at < text->bytes; at += length) {
        int32_t point;
        char made[8];
        length = ebb_tok_read_point(text->data + at, &point);
        int32_t lower = point == 0x130 ? 'i' : utf8proc_tolower(point);
        if (lower == point) continue;
        size_t bytes = ebb_tok_write_point(lower, made);
        if (point == 0x130) /* the one character whose small form is two */
            bytes += ebb_tok_write_point(0x307, made + bytes);
        EBB_TRY(ebb_tok_buffer_copy(ctx, out, text, kept, at));
        EBB_TRY(ebb_tok_buffer_put(ctx, out, text, ebb_tok_place_of(text, at, at + length), made,
                                   bytes));
        kept = at + length;
    }
    return ebb_tok_buffer_copy(ctx, out, text, kept, text->bytes);
}

static enum ebb_status run_step(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                const struct ebb_tok_normal *normal,
                                const struct ebb_tok_piece *text, struct ebb_tok_buffer *out)
{
    struct replacing replacing = {normal, text, out};
    switch (normal->kind) {
    case EBB_TOK_PREPEND:
        return prepend(ctx, normal, text, out);
    case EBB_TOK_REPLACE:
        return ebb_tok_each_part(ctx, encoder->tok, &encoder->matcher, &normal->pattern, text->data,
                                 text->bytes, replace_part, &replacing);
    case EBB_TOK_LOWERCASE:
        return lowercase(ctx, text, out);
    default:
        return form(ctx, encoder, normal, text, out);
    }
}

enum ebb_status ebb_tok_normalize(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                  struct ebb_tok_piece text, struct ebb_tok_piece *out)
{
    const struct ebb_tokenizer *tok = encoder->tok;
    int side = 0;
    *out = text;
    for (int i = 0; i < tok->normal_count && out->bytes > 0; i++) {
        const struct ebb_tok_normal *normal = &tok->normals[i];
        struct ebb_tok_buffer *buffer = &encoder->normal[side];
        if (normal->kind == EBB_TOK_STRIP) {
            strip(normal, out);
            continue;
        }
        if (normal->kind == EBB_TOK_FORM && form_keeps(normal, out)) continue;
        if (normal->kind == EBB_TOK_PREPEND && encoder->at_start) continue;
        ebb_tok_buffer_clear(buffer);
        EBB_TRY(run_step(ctx, encoder, normal, out, buffer));
        *out = ebb_tok_buffer_piece(buffer, out);
        side = !side;
    }
    return EBB_OK;
}

/* ---- components ---- */

static enum ebb_status add_step(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                enum ebb_tok_normal_kind kind, struct ebb_tok_normal **normal)
{
    if (tok->normal_count == EBB_TOK_STEPS)
        return ebb_tok_refuse(ctx, tok, "normalizer", "with more than 16 steps");
    *normal = &tok->normals[tok->normal_count++];
    (*normal)->kind = kind;
    return EBB_OK;
}

static enum ebb_status add_form(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, bool compose,
                                bool compat)
{
    struct ebb_tok_normal *normal = NULL;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_FORM, &normal));
    normal->compose = compose;
    normal->compat = compat;
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

static enum ebb_status read_content(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    const json_t *node, const char *key,
                                    struct ebb_tok_normal *normal)
{
    const char *text;
    EBB_TRY(ebb_json_string(ctx, tok->path, node, key, &text, NULL));
    normal->content_bytes = json_string_length(json_object_get(node, key));
    normal->content = ebb_mem_strndup(ctx, text, normal->content_bytes);
    return normal->content == NULL ? EBB_NO_MEMORY : EBB_OK;
}

static enum ebb_status read_prepend(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    const json_t *node)
{
    struct ebb_tok_normal *normal = NULL;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_PREPEND, &normal));
    EBB_TRY(read_content(ctx, tok, node, "prepend", normal));
    if (normal->content_bytes > 0) return EBB_OK;
    return ebb_tok_refuse(ctx, tok, "normalizer Prepend", "with nothing to prepend");
}

static enum ebb_status read_replace(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    const json_t *node)
{
    struct ebb_tok_normal *normal = NULL;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_REPLACE, &normal));
    EBB_TRY(ebb_tok_pattern_read(ctx, tok, "normalizer", node, &normal->pattern));
    EBB_TRY(read_content(ctx, tok, node, "content", normal));
    if (json_object_get(json_object_get(node, "pattern"), "Regex") != NULL &&
        memchr(normal->content, '$', normal->content_bytes) != NULL)
        return ebb_tok_refuse(ctx, tok, "normalizer Replace", "with groups ('$') in its content");
    return EBB_OK;
}

static enum ebb_status read_strip(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                  const json_t *node)
{
    struct ebb_tok_normal *normal = NULL;
    EBB_TRY(add_step(ctx, tok, EBB_TOK_STRIP, &normal));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "strip_left", true, &normal->left));
    return ebb_tok_bool(ctx, tok, node, "strip_right", true, &normal->right);
}

static enum ebb_status read_lowercase(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                      const json_t *node)
{
    struct ebb_tok_normal *normal = NULL;
    (void)node;
    return add_step(ctx, tok, EBB_TOK_LOWERCASE, &normal);
}

static const struct ebb_tok_component components[] = {
    {"Lowercase", "", read_lowercase},
    {"NFC", "", read_nfc},
    {"NFD", "", read_nfd},
    {"NFKC", "", read_nfkc},
    {"NFKD", "", read_nfkd},
    {"Prepend", "prepend", read_prepend},
    {"Replace", "pattern content", read_replace},
    {"Strip", "strip_left strip_right", read_strip},
};

static const struct ebb_tok_family family = {"normalizer", "normalizers", components,
                                             sizeof components / sizeof components[0]};

const struct ebb_tok_family *ebb_tok_normalizers(void)
{
    return &family;
}
