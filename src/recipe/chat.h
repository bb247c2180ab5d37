/* Which chat template a run renders conversations with.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_CHAT_H
#define EBB_RECIPE_CHAT_H

#include "data/chat_template.h"
#include "recipe/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The i-th template that the program carries: its text, and its name; NULL past the last. */
typedef const char *(*ebb_chat_builtin_fn)(int i, const char **name);

/* Checks chat_template and chat_template_kwargs as far as can be told without reading a file. */
enum ebb_status ebb_chat_check(struct ebb_ctx *ctx, struct ebb_options *options,
                               const struct ebb_config *config);
/* chat_template_kwargs as an object, NULL where there are none; the caller owns it. */
enum ebb_status ebb_chat_kwargs(struct ebb_ctx *ctx, const struct ebb_config *config,
                                json_t **kwargs);
/* The template that chat_template names, with the tokenizer's special tokens. For "auto" that of
 * the model; *chat is NULL where it has none, or one that Ebb cannot run, about which a warning is
 * logged: data without chats needs none. `builtin` may be NULL. The caller frees. */
enum ebb_status ebb_chat_load(struct ebb_ctx *ctx, struct ebb_options *options,
                              const struct ebb_config *config, ebb_chat_builtin_fn builtin,
                              const char *model_dir, const struct ebb_tokenizer *tokenizer,
                              struct ebb_chat_template **chat);
/* chat_template names another than the model's own. */
bool ebb_chat_is_other(const struct ebb_config *config);

#ifdef __cplusplus
}
#endif
#endif
