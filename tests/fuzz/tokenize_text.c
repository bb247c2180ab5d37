/* Fuzz target: any bytes as text for two fixed tokenizers, one over bytes and one in
 * SentencePiece's manner. Text that is UTF-8 comes back as it was; other text is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "tokens.h"

static struct {
    struct ebb_ctx *ctx;
    struct ebb_tokenizer *small, *marked;
} loaded; /* once a process: libFuzzer has no place for it */

static void load(void)
{
    loaded.ctx = ebb_ctx_create();
    FUZZ_CHECK(loaded.ctx != NULL);
    FUZZ_CHECK(ebb_tokenizer_load(loaded.ctx, EBB_SOURCE_DIR "/tests/golden/tokenizer_small",
                                  &loaded.small) == EBB_OK);
    FUZZ_CHECK(ebb_tokenizer_load(loaded.ctx, EBB_SOURCE_DIR "/tests/golden/tokenizer_marked",
                                  &loaded.marked) == EBB_OK);
}

/* What a tokenizer that writes spaces as U+2581 makes of a text: that character is a space too.
 * The caller frees. */
static void with_spaces(struct ebb_ctx *ctx, struct fuzz_text text, struct ebb_str *out)
{
    for (size_t i = 0; i < text.bytes;) {
        bool mark = text.bytes - i >= 3 && memcmp(text.data + i, "\xe2\x96\x81", 3) == 0;
        FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, out, mark ? " " : text.data + i, 1)));
        i += mark ? 3 : 1;
    }
}

/* `back`: the text is wanted back. */
static void round_trip(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                       struct fuzz_text text, unsigned flags, const struct ebb_str *back)
{
    struct ebb_encoder *encoder;
    struct ebb_ids ids = {0};
    struct ebb_str whole = {0}, stream = {0};
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_encoder_create(ctx, tokenizer, &encoder)));
    enum fuzz_order order = tokenizer == loaded.small ? FUZZ_COVERING : FUZZ_FORWARD;
    bool done = fuzz_encode(ctx, encoder, tokenizer, text, flags, order, &ids);
    FUZZ_CHECK(done == (ebb_text_utf8_valid(text.data, text.bytes) == text.bytes));
    if (done) {
        fuzz_decode(ctx, tokenizer, &ids, false, &whole, &stream);
        if (back != NULL) {
            FUZZ_CHECK(fuzz_same_text(&whole, back->data, back->bytes));
            FUZZ_CHECK(fuzz_same_text(&stream, back->data, back->bytes));
        }
    }
    ebb_str_free(ctx, &whole);
    ebb_str_free(ctx, &stream);
    ebb_ids_free(ctx, &ids);
    ebb_encoder_free(ctx, encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (loaded.ctx == NULL) load();
    struct ebb_ctx *ctx = fuzz_open();
    struct fuzz_text text = {bytes > 0 ? (const char *)data : "", bytes};
    struct ebb_str same = {0}, spaced = {0};
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, &same, text.data, text.bytes)));
    with_spaces(ctx, text, &spaced);
    round_trip(ctx, loaded.small, text, 0, &same);
    round_trip(ctx, loaded.small, text, EBB_ENCODE_LITERAL | EBB_ENCODE_CONTINUES, &same);
    round_trip(ctx, loaded.marked, text, EBB_ENCODE_LITERAL, &spaced);
    round_trip(ctx, loaded.marked, text, EBB_ENCODE_SPECIAL | EBB_ENCODE_CONTINUES, NULL);
    ebb_str_free(ctx, &same);
    ebb_str_free(ctx, &spaced);
    fuzz_close(ctx);
    return 0;
}
