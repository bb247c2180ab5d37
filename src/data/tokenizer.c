/* The encoder, which runs a tokenizer's components in order, and look-ups.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer.h"

#include <string.h>

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

/* ---- look-ups ---- */

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

enum {
    MATCH_LIMIT = 10000000, /* steps of one match: a pattern from a file may be hostile */
    MATCH_HEAP_KIB = 64 * 1024,
    JIT_STACK_MIN = 32 * 1024,
    JIT_STACK_MAX = 4 * 1024 * 1024,
};

static enum ebb_status create_matcher(struct ebb_ctx *ctx, struct ebb_encoder *encoder)
{
    pcre2_general_context *memory = encoder->tok->memory;
    encoder->match = pcre2_match_data_create(1, memory);
    encoder->match_context = pcre2_match_context_create(memory);
    if (encoder->match == NULL || encoder->match_context == NULL)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for matching a tokenizer's patterns");
    pcre2_set_match_limit(encoder->match_context, MATCH_LIMIT);
    pcre2_set_heap_limit(encoder->match_context, MATCH_HEAP_KIB);
    encoder->jit_stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX,
                                                memory); /* NULL where there is no JIT */
    if (encoder->jit_stack != NULL)
        pcre2_jit_stack_assign(encoder->match_context, NULL, encoder->jit_stack);
    return EBB_OK;
}

enum ebb_status ebb_encoder_create(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                   struct ebb_encoder **encoder)
{
    *encoder = ebb_mem_alloc(ctx, sizeof **encoder);
    if (*encoder == NULL) return EBB_NO_MEMORY;
    (*encoder)->tok = tokenizer;
    enum ebb_status status = create_matcher(ctx, *encoder);
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
    pcre2_match_data_free(encoder->match);
    pcre2_match_context_free(encoder->match_context);
    pcre2_jit_stack_free(encoder->jit_stack);
    ebb_str_free(ctx, &encoder->normal[0]);
    ebb_str_free(ctx, &encoder->normal[1]);
    ebb_str_free(ctx, &encoder->spaced);
    ebb_mem_free(ctx, encoder->points);
    ebb_tok_word_free(ctx, encoder);
    ebb_mem_free(ctx, encoder);
}

static enum ebb_status encode_plain(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                    const char *text, size_t bytes, bool literal,
                                    struct ebb_ids *out)
{
    struct ebb_span normal;
    EBB_TRY(ebb_tok_normalize(ctx, encoder, text, bytes, &normal));
    struct ebb_tok_hit hit;
    size_t at = 0;
    while (ebb_tok_added_next(&encoder->tok->after, normal.data, normal.bytes, at, literal, &hit)) {
        EBB_TRY(ebb_tok_split_run(ctx, encoder, 0, normal.data + at, hit.start - at, out));
        EBB_TRY(ebb_ids_add(ctx, out, &hit.id, 1));
        encoder->at_start = false;
        at = hit.stop;
    }
    return ebb_tok_split_run(ctx, encoder, 0, normal.data + at, normal.bytes - at, out);
}

static enum ebb_status encode_text(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                   const char *text, size_t bytes, bool literal,
                                   struct ebb_ids *out)
{
    struct ebb_tok_hit hit;
    size_t at = 0;
    while (ebb_tok_added_next(&encoder->tok->before, text, bytes, at, literal, &hit)) {
        if (hit.start > at)
            EBB_TRY(encode_plain(ctx, encoder, text + at, hit.start - at, literal, out));
        EBB_TRY(ebb_ids_add(ctx, out, &hit.id, 1));
        encoder->at_start = false;
        at = hit.stop;
    }
    if (at == bytes) return EBB_OK;
    return encode_plain(ctx, encoder, text + at, bytes - at, literal, out);
}

enum ebb_status ebb_encode(struct ebb_ctx *ctx, struct ebb_encoder *encoder, const char *text,
                           size_t bytes, unsigned flags, struct ebb_ids *out)
{
    const struct ebb_tokenizer *tok = encoder->tok;
    size_t valid = ebb_text_utf8_valid(text, bytes);
    if (valid != bytes)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "a text to be tokenized is not UTF-8 at its byte %zu (0x%02x)", valid,
                        (unsigned char)text[valid]);
    int64_t before = out->count;
    encoder->at_start = (flags & EBB_ENCODE_CONTINUES) != 0;
    enum ebb_status status = EBB_OK;
    if (flags & EBB_ENCODE_PREFIX) status = ebb_ids_add(ctx, out, tok->prefix, tok->prefix_count);
    if (status == EBB_OK)
        status = encode_text(ctx, encoder, text, bytes, (flags & EBB_ENCODE_LITERAL) != 0, out);
    if (status == EBB_OK && (flags & EBB_ENCODE_SUFFIX))
        status = ebb_ids_add(ctx, out, tok->suffix, tok->suffix_count);
    if (status != EBB_OK) out->count = before;
    return status;
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
