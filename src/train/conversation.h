/* A conversation with a model: messages through its chat template, answers token by token.
 *
 * The key and value cache is kept from turn to turn: what a new rendering has in common with the
 * tokens that are in it, from the first one on, is not read again. (Templates write earlier turns
 * differently from the last one, so not all of it always serves: Qwen3 drops old reasoning.) What
 * follows is what reading everything anew would give up to rounding, as generate.h says.
 *
 * A turn ends at the model's end tokens, the tokenizer's, and the special token that the template
 * puts behind what the assistant says. The text goes through the tokenizer as the template wrote
 * it, so special tokens written in a message are those tokens, as in transformers.
 *
 * Nothing is ever dropped from a conversation but by its user. One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CONVERSATION_H
#define EBB_CONVERSATION_H

#include "data/chat_template.h"
#include "train/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_conversation;

/* Everything is borrowed for the conversation's life; nothing else decodes on the engine. Begins
 * without messages. The caller frees. */
enum ebb_status ebb_conversation_create(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                        const struct ebb_tokenizer *tokenizer,
                                        const struct ebb_chat_template *chat,
                                        const json_t *chat_kwargs, struct ebb_conversation **out);
void ebb_conversation_free(struct ebb_conversation *c); /* accepts NULL */

/* Sets the system message, which stands before all others; NULL or "": none. */
enum ebb_status ebb_conversation_system(struct ebb_conversation *c, const char *text);
/* Adds what the user says and the model's answer, which goes to `fn` as it is made. Of the keys,
 * end_ids, end_count and cached are set here; max_new_tokens < 0: as many as there is room for. An
 * answer that was interrupted or ran out of room stays as far as it came. Where nothing can come
 * (a failure, an interruption before the first token, a conversation that leaves no room for an
 * answer: EBB_DOES_NOT_FIT), the conversation is as it was. */
enum ebb_status ebb_conversation_say(struct ebb_conversation *c, const char *text,
                                     const struct ebb_generate_keys *keys, ebb_generate_fn fn,
                                     void *user, struct ebb_generate_result *result);
/* Takes the last exchange back; false where there is none. */
bool ebb_conversation_undo(struct ebb_conversation *c);
/* Takes all of them back; the system message stays. */
void ebb_conversation_reset(struct ebb_conversation *c);

/* The special token that the template puts behind an answer to these messages, the last of which
 * is not the assistant's; -1: none. It is looked for in a rendering with a made-up answer. */
enum ebb_status ebb_conversation_end_token(struct ebb_ctx *ctx,
                                           const struct ebb_tokenizer *tokenizer,
                                           const struct ebb_chat_template *chat,
                                           const json_t *chat_kwargs, const json_t *messages,
                                           int32_t *id);

/* The messages as data sets have them: {role, content}. Borrowed. */
const json_t *ebb_conversation_messages(const struct ebb_conversation *c);
/* Tokens up to the end of the last answer, as they were when it was made; 0 before the first. */
int64_t ebb_conversation_tokens(const struct ebb_conversation *c);
int64_t ebb_conversation_room(const struct ebb_conversation *c); /* tokens that fit */

#ifdef __cplusplus
}
#endif
#endif
