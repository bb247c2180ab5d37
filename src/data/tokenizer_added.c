/* Added tokens: whole texts that become one id wherever they stand, found before anything else is
 * done.
 *
 * The leftmost match counts, of those that begin there the longest. A match that its token's
 * single_word refuses is passed over whole. White space that lstrip or rstrip swallows belongs to
 * the token.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer_int.h"

/* ---- characters ---- */

static utf8proc_int32_t point_at(const char *text, size_t bytes, size_t at, size_t *length)
{
    utf8proc_int32_t point = -1;
    utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                             (utf8proc_ssize_t)(bytes - at), &point);
    *length = used > 0 ? (size_t)used : 1;
    return point;
}

static utf8proc_int32_t point_before(const char *text, size_t at, size_t *length)
{
    size_t start = at - 1;
    while (start > 0 && ((unsigned char)text[start] & 0xc0) == 0x80) start--;
    return point_at(text, at, start, length);
}

bool ebb_tok_is_white(int32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Letters, marks, digits, connectors and the two joiners: what a regular expression's \w is, but
 * for the few symbols that are Alphabetic without being letters. */
static bool is_word(utf8proc_int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9);
    }
}

/* ---- finding ---- */

static bool stands_alone(const char *text, size_t bytes, size_t start, size_t stop)
{
    size_t length;
    if (start > 0 && is_word(point_before(text, start, &length))) return false;
    return stop == bytes || !is_word(point_at(text, bytes, stop, &length));
}

static const struct ebb_tok_added *longest_at(const struct ebb_tok_added_set *set, const char *text,
                                              size_t bytes, size_t at)
{
    unsigned char first = (unsigned char)text[at];
    for (int32_t i = set->first[first]; i < set->first[first + 1]; i++) {
        const struct ebb_tok_added *added = &set->items[i];
        if (added->bytes <= bytes - at && memcmp(text + at, added->content, added->bytes) == 0)
            return added;
    }
    return NULL;
}

bool ebb_tok_added_next(const struct ebb_tok_added_set *set, const char *text, size_t bytes,
                        bool literal, struct ebb_tok_hit *hit)
{
    if (set->count == 0) return false;
    size_t at = hit->next, taken = hit->stop, length;
    while (at < bytes) {
        const struct ebb_tok_added *added = longest_at(set, text, bytes, at);
        if (added == NULL) {
            at++;
            continue;
        }
        size_t start = at, stop = at + added->bytes;
        if ((literal && added->special) ||
            (added->single_word && !stands_alone(text, bytes, start, stop))) {
            at = stop;
            continue;
        }
        if (added->lstrip)
            while (start > taken && ebb_tok_is_white(point_before(text, start, &length)))
                start -= length;
        if (added->lstrip && start < taken) start = taken;
        if (added->rstrip)
            while (stop < bytes && ebb_tok_is_white(point_at(text, bytes, stop, &length)))
                stop += length;
        *hit = (struct ebb_tok_hit){start, stop, at + added->bytes, added->id};
        return true;
    }
    return false;
}

/* ---- reading ---- */

/* By first byte, then the longest first, then by id: the order that longest_at relies on. */
static int compare(const void *a, const void *b)
{
    const struct ebb_tok_added *x = a, *y = b;
    unsigned char bx = (unsigned char)x->content[0], by = (unsigned char)y->content[0];
    if (bx != by) return bx < by ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void set_finish(struct ebb_tok_added_set *set)
{
    if (set->count > 0) qsort(set->items, (size_t)set->count, sizeof *set->items, compare);
    int32_t at = 0;
    for (int b = 0; b < 257; b++) {
        while (at < set->count && (unsigned char)set->items[at].content[0] < b) at++;
        set->first[b] = at;
    }
}

static enum ebb_status read_one(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                struct ebb_encoder *encoder, const json_t *node)
{
    struct ebb_tok_added added = {0};
    const json_t *content = json_object_get(node, "content");
    int64_t id;
    EBB_TRY(ebb_json_int64(ctx, tok->path, node, "id", &id, NULL));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "special", false, &added.special));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "single_word", false, &added.single_word));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "lstrip", false, &added.lstrip));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "rstrip", false, &added.rstrip));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "normalized", !added.special, &added.normalized));
    struct ebb_tok_piece text = {json_string_value(content), json_string_length(content), NULL};
    if (added.normalized) EBB_TRY(ebb_tok_normalize(ctx, encoder, text, &text));
    if (text.bytes == 0) return EBB_OK; /* matches nothing */
    if (text.bytes != json_string_length(content) ||
        memcmp(text.data, json_string_value(content), text.bytes) != 0)
        tok->tokens[id].flags |= EBB_TOK_NORMALIZED;
    added.id = (int32_t)id;
    added.bytes = text.bytes;
    added.content = ebb_mem_strndup(ctx, text.data, text.bytes);
    if (added.content == NULL) return EBB_NO_MEMORY;
    struct ebb_tok_added_set *set = added.normalized ? &tok->after : &tok->before;
    set->items[set->count++] = added;
    return EBB_OK;
}

enum ebb_status ebb_tok_read_added(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                   const json_t *added)
{
    size_t count = json_array_size(added);
    tok->before.items = ebb_mem_alloc(ctx, (count + 1) * sizeof *tok->before.items);
    tok->after.items = ebb_mem_alloc(ctx, (count + 1) * sizeof *tok->after.items);
    if (tok->before.items == NULL || tok->after.items == NULL) return EBB_NO_MEMORY;
    struct ebb_encoder *encoder;
    EBB_TRY(ebb_encoder_create(ctx, tok, &encoder)); /* for normalizing */
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count && status == EBB_OK; i++)
        status = read_one(ctx, tok, encoder, json_array_get(added, i));
    ebb_encoder_free(ctx, encoder);
    if (status != EBB_OK) return status;
    set_finish(&tok->before);
    set_finish(&tok->after);
    return EBB_OK;
}

const char *ebb_tok_written(const struct ebb_tokenizer *tok, int32_t id, size_t *bytes)
{
    const char *text = ebb_tokenizer_text(tok, id, bytes);
    if (text == NULL || (tok->tokens[id].flags & EBB_TOK_NORMALIZED) == 0) return text;
    int32_t i = 0;
    while (tok->after.items[i].id != id) i++;
    *bytes = tok->after.items[i].bytes;
    return tok->after.items[i].content;
}

void ebb_tok_added_free(struct ebb_ctx *ctx, struct ebb_tok_added_set *set)
{
    for (int32_t i = 0; i < set->count; i++) ebb_mem_free(ctx, set->items[i].content);
    ebb_mem_free(ctx, set->items);
}
