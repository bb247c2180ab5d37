/* Fuzz target: a tokenizer.json and, each behind a NUL, a tokenizer_config.json and a text. What
 * is accepted encodes and decodes this text and others without harm.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokens.h"

static void use(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer, struct fuzz_text own)
{
    static const char *const texts[] = {"", "a", " ab  abab ba ", "Grüße\n\n  ab<s>\t e\xcc\x81",
                                        "<s>abba</s> ▁a 12345"};
    enum { TEXTS = sizeof texts / sizeof texts[0] };
    struct ebb_encoder *encoder;
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_encoder_create(ctx, tokenizer, &encoder)));
    for (size_t i = 0; i < 2 * (TEXTS + 1); i++) {
        struct fuzz_text text =
            i / 2 == TEXTS ? own : (struct fuzz_text){texts[i / 2], strlen(texts[i / 2])};
        struct ebb_ids ids = {0};
        struct ebb_str whole = {0}, stream = {0};
        unsigned flags = i % 2 == 0 ? EBB_ENCODE_SPECIAL : EBB_ENCODE_LITERAL;
        if (fuzz_encode(ctx, encoder, tokenizer, text, flags, FUZZ_ANYWHERE, &ids))
            fuzz_decode(ctx, tokenizer, &ids, i % 2 == 0, &whole, &stream);
        ebb_str_free(ctx, &whole);
        ebb_str_free(ctx, &stream);
        ebb_ids_free(ctx, &ids);
    }
    ebb_encoder_free(ctx, encoder);
}

static void look_up(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer)
{
    int64_t size = ebb_tokenizer_vocab_size(tokenizer);
    FUZZ_CHECK(ebb_tokenizer_bos(tokenizer) < size && ebb_tokenizer_unk(tokenizer) < size);
    FUZZ_CHECK(ebb_tokenizer_eos(tokenizer) < size && ebb_tokenizer_pad(tokenizer) < size);
    for (int32_t id = -1; id <= size && id < 1000; id++) {
        size_t bytes;
        struct ebb_str piece = {0};
        const char *text = ebb_tokenizer_text(tokenizer, id, &bytes);
        if (text != NULL) FUZZ_CHECK(ebb_tokenizer_find(tokenizer, text, bytes) >= 0);
        FUZZ_CHECK(fuzz_succeeded(ctx, ebb_tokenizer_piece(ctx, tokenizer, id, &piece)));
        (void)ebb_tokenizer_is_special(tokenizer, id);
        ebb_str_free(ctx, &piece);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct ebb_tokenizer *tokenizer;
    struct fuzz_text own = fuzz_take(&data, &bytes), config = fuzz_take(&data, &bytes);
    fuzz_file("tokenizer.json", own.data, own.bytes);
    if (config.bytes > 0) fuzz_file("tokenizer_config.json", config.data, config.bytes);
    if (fuzz_succeeded(ctx, ebb_tokenizer_load(ctx, "mem", &tokenizer))) {
        look_up(ctx, tokenizer);
        use(ctx, tokenizer, (struct fuzz_text){bytes > 0 ? (const char *)data : "", bytes});
        ebb_tokenizer_free(ctx, tokenizer);
    }
    fuzz_close(ctx);
    return 0;
}
