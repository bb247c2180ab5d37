/* Fuzz target: a chat template and, each behind a NUL, messages, tools and chat_template_kwargs as
 * JSON; rendered for training and for an answer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat.h"

static void render(struct ebb_ctx *ctx, const struct fuzz_chat *in, bool answer, bool spans)
{
    struct ebb_chat_options options = in->options;
    struct ebb_jinja_spans found = {0};
    struct ebb_str out = {0};
    options.add_generation_prompt = answer;
    options.keep_nulls = answer;
    bool done = fuzz_succeeded(ctx, ebb_chat_render(ctx, in->chat, "a.jsonl:1", in->messages,
                                                    &options, &out, spans ? &found : NULL));
    FUZZ_CHECK(done || out.bytes == 0);
    for (int64_t i = 0; i < found.count && done; i++)
        FUZZ_CHECK(found.items[i].begin <= found.items[i].end && found.items[i].end <= out.bytes);
    ebb_jinja_spans_free(ctx, &found);
    ebb_str_free(ctx, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct fuzz_chat in;
    if (fuzz_chat_open(ctx, data, bytes, &in)) {
        render(ctx, &in, false, true);
        render(ctx, &in, true, false);
        fuzz_chat_close(ctx, &in);
    }
    fuzz_close(ctx);
    return 0;
}
