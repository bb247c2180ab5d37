/* What the files of the formats share: fields of a record, and *talks*, conversations on their way
 * from a record to a template.
 *
 * format.c has the table, plain texts and the finding; format_talk.c makes talks of turns,
 * format_chat.c samples of talks; format_pairs.c prompts with answers; format_tokenized.c ids.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_FORMAT_INT_H
#define EBB_DATA_FORMAT_INT_H

#include "data/format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parts ---- */

/* ebb_rendering_part with an end of its own. Nothing is added for an empty part, and one with the
 * mark of the part before it, in the same sample, makes that longer. */
enum ebb_status ebb_rendering_cover(struct ebb_ctx *ctx, struct ebb_rendering *out, size_t end,
                                    bool learned);

/* ---- fields ---- */

/* EBB_BAD_FILE: "path:line: record 12: ...". */
enum ebb_status ebb_record_bad(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                               const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The record has no such key, or `value` is not what is wanted ("a string"). */
enum ebb_status ebb_record_bad_field(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                     const char *key, const char *wanted);
/* The record's string, borrowed; with `optional`, a missing one and null are "". */
enum ebb_status ebb_record_text(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                const char *key, bool optional, struct ebb_span *text);
/* "a list", "a string", "nothing" (NULL), ... */
const char *ebb_json_kind(const json_t *value);
/* "'a', 'b', 'c'" [+=]: the keys that an object has. */
enum ebb_status ebb_json_keys(struct ebb_ctx *ctx, const json_t *json, struct ebb_str *out);

/* ---- talks ---- */

/* {0} with ebb_talk_open is an empty one. */
struct ebb_talk {
    char *where;        /* names the record; owned */
    json_t *messages;   /* owned, as templates see them */
    json_t *tools;      /* owned list, or NULL */
    struct ebb_str may; /* a byte a message: 0 is taken out of training */
    bool has_prompt;    /* the first `prompt` messages are one */
    size_t prompt;
    bool has_calls; /* some message has tool calls */
};

/* Also reads the record's tools. ebb_talk_close is to be called after a failure too. */
enum ebb_status ebb_talk_open(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                              struct ebb_talk *talk);
void ebb_talk_close(struct ebb_ctx *ctx, struct ebb_talk *talk);
/* Adds the turns [begin, end) of `list`, or the one turn that it is. A turn is {role, content, ...}
 * or {from, value}. `key` names the list in messages. */
enum ebb_status ebb_talk_add(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                             struct ebb_talk *talk, const char *key, const json_t *list,
                             size_t begin, size_t end);
/* Adds {role, content: text}. */
enum ebb_status ebb_talk_add_text(struct ebb_ctx *ctx, struct ebb_talk *talk, const char *role,
                                  const char *text, size_t bytes);
/* The record's text under `system`, where there is one, as first message. To be called before
 * others are added; `list` are the turns that follow, which may have none then. */
enum ebb_status ebb_talk_add_system(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                    struct ebb_talk *talk, const json_t *list);
/* What was added so far is the prompt. */
void ebb_talk_end_prompt(struct ebb_talk *talk);
/* Renders and marks: one more sample. */
enum ebb_status ebb_talk_render(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                const struct ebb_talk *talk, struct ebb_rendering *out);

/* ---- formats ---- */

/* The signature of struct ebb_format's render. */
#define EBB_FORMAT_RENDER(name)                                                                    \
    enum ebb_status name(struct ebb_ctx *ctx, const struct ebb_format_env *env,                    \
                         const struct ebb_format_record *record, struct ebb_rendering *out)
EBB_FORMAT_RENDER(ebb_format_messages);
EBB_FORMAT_RENDER(ebb_format_sharegpt);
EBB_FORMAT_RENDER(ebb_format_alpaca_chat);
EBB_FORMAT_RENDER(ebb_format_prompt_completion);
EBB_FORMAT_RENDER(ebb_format_prompt_completion_chat);
EBB_FORMAT_RENDER(ebb_format_preference);
EBB_FORMAT_RENDER(ebb_format_preference_chat);
EBB_FORMAT_RENDER(ebb_format_unpaired);
EBB_FORMAT_RENDER(ebb_format_unpaired_chat);
EBB_FORMAT_RENDER(ebb_format_tokenized);

/* The record's verdict: the boolean `label`, or LLaMA-Factory's `kto_tag`. NULL: it has none. */
const json_t *ebb_record_verdict(const struct ebb_format_record *record);

#ifdef __cplusplus
}
#endif
#endif
