/* From a configuration to a chat template: which one a model's conversations go through.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_CHAT_H
#define EBB_RECIPE_CHAT_H

#include "data/chat_template.h"
#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The template of the key chat_template; without it the adapter directory's own, then the model
 * directory's. NULL where there is none, unless the key was set. The setup has its tokenizer, which
 * says what bos_token and others are where no file beside the template does. The caller frees. */
enum ebb_status ebb_setup_chat_template(struct ebb_setup *setup, struct ebb_chat_template **chat);
/* The key chat_template_kwargs as JSON: plain true, false, null and numbers are these, everything
 * else is text. NULL: not set. The caller owns it. */
enum ebb_status ebb_setup_chat_kwargs(struct ebb_setup *setup, json_t **kwargs);

#ifdef __cplusplus
}
#endif
#endif
