/* Chat templates: a conversation to text as transformers' apply_chat_template does it, and which
 * bytes of the text the assistant says.
 *
 * What the template sees is what transformers 5 shows it: `messages` without the keys whose value
 * is null, a message's reasoning under `reasoning_content` and `thinking` whichever of these or
 * `reasoning` the data has, `tools` and `documents` (none when not given), `add_generation_prompt`,
 * the special tokens by name (`bos_token`, ...), and the variables of chat_template_kwargs.
 *
 * What is trained (ebb_chat_spans):
 * - What {% generation %} covers, where the template has it. Else each assistant message is located
 *   in the rendering of the whole conversation: real templates write earlier turns differently from
 *   the last (Qwen3 drops old reasoning), so renderings of beginnings of the conversation do not
 *   serve. The message is replaced by two others, which differ from its first to its last letter;
 *   where their renderings differ stands what the assistant says, and what is around must equal the
 *   true rendering byte for byte. A message whose tool calls cannot be replaced by plain text keeps
 *   its shape, and the pieces in it are replaced.
 * - A span begins where the generation prompt ends: all that the model has to say from there on is
 *   trained, so reasoning and tool calls with all that the template puts around them, and the empty
 *   "<think>\n\n</think>\n\n" that Qwen3 writes before the last answer. With enable_thinking false
 *   that block is part of the prompt, and not trained. Where a template writes a turn without its
 *   own generation prompt (or has none), the span begins with what the data has of it.
 * - It ends behind the token that ends the turn ("<|im_end|>", "</s>"): the special token that
 *   follows the text, white space between them included. The newline behind it is not trained.
 * - What cannot be located exactly is an error naming record and message; nothing is guessed.
 *
 * A loaded template does not change (but for the two calls that add special tokens); any number of
 * threads may render with it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_CHAT_TEMPLATE_H
#define EBB_DATA_CHAT_TEMPLATE_H

#include "data/jinja.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_chat_template;

/* Loads the template of a model's directory: chat_template.jinja with additional_chat_templates/
 * beside it, else chat_template in tokenizer_config.json (a text, or a list of {name, template}),
 * else chat_template.json; special tokens from tokenizer_config.json and special_tokens_map.json.
 * Of several templates `tool_use` serves conversations with tools and `default` all others. `path`
 * may also be a file: Jinja, or JSON (".json") with the key chat_template. A directory without a
 * template returns EBB_OK with *found = false and NULL; where `found` is NULL it is an error. The
 * caller frees. */
enum ebb_status ebb_chat_template_load(struct ebb_ctx *ctx, const char *path,
                                       struct ebb_chat_template **chat, bool *found);
/* A template in memory, without special tokens. `name` stands for it in messages. */
enum ebb_status ebb_chat_template_create(struct ebb_ctx *ctx, const char *name, const char *text,
                                         size_t bytes, struct ebb_chat_template **chat);
void ebb_chat_template_free(struct ebb_ctx *ctx, struct ebb_chat_template *chat); /* accepts NULL */
/* The template as it was read, for copies and hashes: `default`, or that for tools. NULL where
 * there is none. Borrowed. */
const char *ebb_chat_template_text(const struct ebb_chat_template *chat, bool tool_use,
                                   size_t *bytes);
/* Of what decides its renderings: its texts and special tokens, and, where a text asks for the time
 * (strftime_now), the day of `now` (seconds since 1970; 0: the clock). */
uint64_t ebb_chat_template_hash(const struct ebb_chat_template *chat, int64_t now);
/* The same template with `kwargs` as its defaults: its texts begin with `{%- if NAME is not defined
 * %}{% set NAME = VALUE %}{% endif %}` for each of them, so it renders without kwargs as `chat`
 * does with these, and kwargs that a caller has come first. A special token's name (`eos_token`) is
 * always defined and is set in any case; a key that cannot be a variable's name is left out, since
 * no template asks for it. The caller frees. */
enum ebb_status ebb_chat_template_with_defaults(struct ebb_ctx *ctx,
                                                const struct ebb_chat_template *chat,
                                                const json_t *kwargs,
                                                struct ebb_chat_template **made);
/* Makes it the template of the model in `dir`: writes chat_template.jinja, and that for tools into
 * additional_chat_templates/ (or removes that, where the template has none). */
enum ebb_status ebb_chat_template_save(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                       const char *dir);

/* Sets a variable such as "eos_token", which also ends turns; NULL removes it. */
enum ebb_status ebb_chat_template_set_token(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                            const char *name, const char *text);
/* The variable's text or NULL; borrowed. */
const char *ebb_chat_template_token(const struct ebb_chat_template *chat, const char *name);
/* Tokens that can end a turn, beside those in the directory's files: all special ones of the
 * tokenizer. */
enum ebb_status ebb_chat_template_use_tokenizer(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                                const struct ebb_tokenizer *tokenizer);

/* {0} is valid. Everything is borrowed during a call. */
struct ebb_chat_options {
    bool add_generation_prompt;
    const json_t *tools;     /* array of objects, or NULL */
    const json_t *documents; /* the same */
    const json_t *kwargs;    /* chat_template_kwargs: an object, or NULL */
    /* Keys whose value is null stay, as before transformers 5. (DeepSeek-V3's template asks whether
     * a content is none.) */
    bool keep_nulls;
    struct ebb_jinja_options jinja;
};

/* Adds the rendering of `messages`, an array of objects, to *out [+=]. *spans (may be NULL) gets
 * what {% generation %} covered, counted from where the rendering begins. `where` names the record
 * in messages. EBB_BAD_FILE for what the template refuses and for data of the wrong shape. */
enum ebb_status ebb_chat_render(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                const char *where, const json_t *messages,
                                const struct ebb_chat_options *options, struct ebb_str *out,
                                struct ebb_jinja_spans *spans);

struct ebb_chat_span {
    size_t begin, end; /* bytes of the rendering */
    int64_t message;   /* place in `messages`; -1: of a {% generation %} that has no one message */
    bool ended;        /* the span has the token that ends the turn */
};

/* {0} is a valid empty value; used again for each record. */
struct ebb_chat_spans {
    struct ebb_chat_span *items; /* in the order of the text, not overlapping */
    int64_t count, room;
};
void ebb_chat_spans_free(struct ebb_ctx *ctx, struct ebb_chat_spans *spans);

/* Renders `messages` into *out [=] and locates every assistant message in it [=].
 * add_generation_prompt is to be false. */
enum ebb_status ebb_chat_spans(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                               const char *where, const json_t *messages,
                               const struct ebb_chat_options *options, struct ebb_str *out,
                               struct ebb_chat_spans *spans);

#ifdef __cplusplus
}
#endif
#endif
