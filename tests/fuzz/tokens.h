/* What the targets of tokenizers share: one text through a tokenizer and back.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_FUZZ_TOKENS_H
#define EBB_FUZZ_TOKENS_H

#include <string.h>

#include "data/tokenizer.h"
#include "fuzz.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What offsets keep, beyond lying in the text. */
enum fuzz_order {
    FUZZ_ANYWHERE,
    FUZZ_FORWARD, /* where a token begins is never before where the last one began */
    FUZZ_COVERING /* each begins where the last one ended, from the text's start to its end */
};

/* Ids are tokens, and offsets lie in the text, in order. */
static inline void fuzz_check_ids(const struct ebb_tokenizer *tokenizer, size_t bytes,
                                  const struct ebb_ids *ids, const struct ebb_offsets *offsets,
                                  enum fuzz_order order)
{
    int64_t last = 0;
    FUZZ_CHECK(ids->count == offsets->count);
    for (int64_t i = 0; i < ids->count; i++) {
        size_t length;
        const struct ebb_offset *at = &offsets->data[i];
        FUZZ_CHECK(ids->data[i] >= 0 && ids->data[i] < ebb_tokenizer_vocab_size(tokenizer));
        FUZZ_CHECK(ebb_tokenizer_text(tokenizer, ids->data[i], &length) != NULL);
        FUZZ_CHECK(at->start >= 0 && at->start <= at->stop && at->stop <= (int64_t)bytes);
        FUZZ_CHECK(order == FUZZ_ANYWHERE || at->start >= last);
        FUZZ_CHECK(order != FUZZ_COVERING || at->start == last);
        last = order == FUZZ_COVERING ? at->stop : at->start;
    }
    FUZZ_CHECK(order != FUZZ_COVERING || last == (int64_t)bytes);
}

/* Encodes twice, with offsets and without; false where the text cannot be encoded. The caller
 * frees the ids. */
static inline bool fuzz_encode(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                               const struct ebb_tokenizer *tokenizer, struct fuzz_text text,
                               unsigned flags, enum fuzz_order order, struct ebb_ids *ids)
{
    struct ebb_ids again = {0};
    struct ebb_offsets offsets = {0};
    bool done = fuzz_succeeded(ctx, ebb_encode(ctx, encoder, text.data, text.bytes, flags, ids));
    bool same = fuzz_succeeded(ctx, ebb_encode_offsets(ctx, encoder, text.data, text.bytes, flags,
                                                       &again, &offsets));
    FUZZ_CHECK(done == same);
    if (done) {
        FUZZ_CHECK(again.count == ids->count);
        FUZZ_CHECK(ids->count == 0 ||
                   memcmp(again.data, ids->data, (size_t)ids->count * sizeof *ids->data) == 0);
        fuzz_check_ids(tokenizer, text.bytes, ids, &offsets, order);
    }
    ebb_ids_free(ctx, &again);
    ebb_offsets_free(ctx, &offsets);
    return done;
}

/* Decodes as a whole and as a stream. The caller frees both. */
static inline void fuzz_decode(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                               const struct ebb_ids *ids, bool skip_special, struct ebb_str *whole,
                               struct ebb_str *stream)
{
    struct ebb_decode_stream state = {0};
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_tokenizer_decode(ctx, tokenizer, ids->data, ids->count,
                                                        skip_special, whole)));
    for (int64_t i = 0; i < ids->count; i++) {
        FUZZ_CHECK(fuzz_succeeded(ctx, ebb_decode_add(ctx, tokenizer, &state, ids->data[i],
                                                      skip_special, stream)));
        FUZZ_CHECK(ebb_text_utf8_valid(stream->data, stream->bytes) == stream->bytes);
    }
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_decode_end(ctx, &state, stream)));
    FUZZ_CHECK(ebb_text_utf8_valid(whole->data, whole->bytes) == whole->bytes);
    FUZZ_CHECK(ebb_text_utf8_valid(stream->data, stream->bytes) == stream->bytes);
}

static inline bool fuzz_same_text(const struct ebb_str *str, const char *data, size_t bytes)
{
    return str->bytes == bytes && (bytes == 0 || memcmp(str->data, data, bytes) == 0);
}

#ifdef __cplusplus
}
#endif
#endif
