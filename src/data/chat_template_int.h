/* What chat_template.c and chat_spans.c share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_CHAT_TEMPLATE_INT_H
#define EBB_DATA_CHAT_TEMPLATE_INT_H

#include "data/chat_template.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_chat_template {
    char *name;
    struct ebb_jinja *plain, *tool_use; /* either may be NULL, not both */
    struct ebb_str text, tool_text;     /* what they were compiled from */
    json_t *tokens;                     /* {"bos_token": "<s>", ...} */
    json_t *specials;                   /* {"</s>": null, ...}: may end a turn */
};

/* The template for these options; NULL where there is none (only one for tools, and no tools). */
const struct ebb_jinja *ebb_chat_template_for(const struct ebb_chat_template *chat,
                                              const struct ebb_chat_options *options);
/* A copy of the messages as templates see them. The caller owns it. */
enum ebb_status ebb_chat_messages(struct ebb_ctx *ctx, const char *where, const json_t *messages,
                                  const struct ebb_chat_options *options, json_t **shown);
/* Renders messages of that kind; there may be none. */
enum ebb_status ebb_chat_render_shown(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                      const char *where, json_t *shown,
                                      const struct ebb_chat_options *options,
                                      bool generation_prompt, struct ebb_str *out,
                                      struct ebb_jinja_spans *spans);

#ifdef __cplusplus
}
#endif
#endif
