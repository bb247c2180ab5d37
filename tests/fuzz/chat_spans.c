/* Fuzz target: where a chat template puts what the assistant says; the input is that of
 * chat_template. The text is that of a plain rendering, the spans lie in it in order, and each
 * belongs to a message of the assistant.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "chat.h"

static void check_spans(const struct fuzz_chat *in, const struct ebb_str *out,
                        const struct ebb_chat_spans *spans)
{
    for (int64_t i = 0; i < spans->count; i++) {
        const struct ebb_chat_span *span = &spans->items[i];
        FUZZ_CHECK(span->begin <= span->end && span->end <= out->bytes);
        FUZZ_CHECK(i == 0 || spans->items[i - 1].end <= span->begin);
        if (span->message == -1) continue;
        FUZZ_CHECK(span->message >= 0 && (size_t)span->message < json_array_size(in->messages));
        const json_t *role =
            json_object_get(json_array_get(in->messages, (size_t)span->message), "role");
        FUZZ_CHECK(json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct fuzz_chat in;
    if (fuzz_chat_open(ctx, data, bytes, &in)) {
        struct ebb_str out = {0}, plain = {0};
        struct ebb_chat_spans spans = {0};
        if (fuzz_succeeded(ctx, ebb_chat_spans(ctx, in.chat, "a.jsonl:1", in.messages, &in.options,
                                               &out, &spans))) {
            check_spans(&in, &out, &spans);
            FUZZ_CHECK(fuzz_succeeded(ctx, ebb_chat_render(ctx, in.chat, "a.jsonl:1", in.messages,
                                                           &in.options, &plain, NULL)));
            FUZZ_CHECK(plain.bytes == out.bytes);
            FUZZ_CHECK(out.bytes == 0 || memcmp(plain.data, out.data, out.bytes) == 0);
        }
        ebb_chat_spans_free(ctx, &spans);
        ebb_str_free(ctx, &plain);
        ebb_str_free(ctx, &out);
        fuzz_chat_close(ctx, &in);
    }
    fuzz_close(ctx);
    return 0;
}
