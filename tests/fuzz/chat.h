/* What the targets of chat templates share: a template, messages, tools and kwargs from one input.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_FUZZ_CHAT_H
#define EBB_FUZZ_CHAT_H

#include "data/chat_template.h"
#include "fuzz.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fuzz_chat {
    struct ebb_chat_template *chat;
    json_t *messages, *tools, *kwargs; /* tools and kwargs may be NULL */
    struct ebb_chat_options options;
};

/* The next text as JSON; NULL where it is none. */
static inline json_t *fuzz_chat_json(struct ebb_ctx *ctx, const uint8_t **data, size_t *bytes)
{
    json_t *json = NULL;
    struct fuzz_text text = fuzz_take(data, bytes);
    if (text.bytes > 0)
        (void)fuzz_succeeded(ctx, ebb_json_parse(ctx, "json", 0, text.data, text.bytes, &json));
    return json;
}

static inline void fuzz_chat_close(struct ebb_ctx *ctx, struct fuzz_chat *in)
{
    ebb_chat_template_free(ctx, in->chat);
    json_decref(in->messages);
    json_decref(in->tools);
    json_decref(in->kwargs);
}

/* False where there is no template or no messages: nothing is to be closed then. */
static inline bool fuzz_chat_open(struct ebb_ctx *ctx, const uint8_t *data, size_t bytes,
                                  struct fuzz_chat *in)
{
    *in = (struct fuzz_chat){0};
    struct fuzz_text text = fuzz_take(&data, &bytes);
    if (!fuzz_succeeded(ctx,
                        ebb_chat_template_create(ctx, "t.jinja", text.data, text.bytes, &in->chat)))
        return false;
    in->messages = fuzz_chat_json(ctx, &data, &bytes);
    in->tools = fuzz_chat_json(ctx, &data, &bytes);
    in->kwargs = fuzz_chat_json(ctx, &data, &bytes);
    bool good =
        in->messages != NULL &&
        fuzz_succeeded(ctx, ebb_chat_template_set_token(ctx, in->chat, "bos_token", "<s>")) &&
        fuzz_succeeded(ctx, ebb_chat_template_set_token(ctx, in->chat, "eos_token", "</s>")) &&
        fuzz_succeeded(ctx, ebb_chat_template_set_token(ctx, in->chat, "pad_token", "<|im_end|>"));
    if (!good) {
        fuzz_chat_close(ctx, in);
        return false;
    }
    in->options = (struct ebb_chat_options){
        .tools = json_is_array(in->tools) ? in->tools : NULL,
        .kwargs = json_is_object(in->kwargs) ? in->kwargs : NULL,
        .jinja = {.limits = {60, 20000, 1 << 20, 1 << 16}, .now = 1},
    };
    return true;
}

#ifdef __cplusplus
}
#endif
#endif
