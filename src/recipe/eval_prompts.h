/* From eval_prompts to what the trainer shows: prompts as tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_EVAL_PROMPTS_H
#define EBB_RECIPE_EVAL_PROMPTS_H

#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills setup->samples, and asks the engine for a decode program with room for the longest of them;
 * nothing where eval_prompts is not set. `chat`: the data is chats, so that texts are what a user
 * says. The setup has its tokenizer. */
enum ebb_status ebb_setup_samples(struct ebb_setup *setup, bool chat);

#ifdef __cplusplus
}
#endif
#endif
