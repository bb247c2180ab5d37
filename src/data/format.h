/* Formats: what a record's keys mean. One row each in format.c's table.
 *
 * A format turns a record into a *rendering*: texts that follow each other in *parts*, each
 * marked as prompt or as what the model shall learn to say, or token ids where the record brings
 * them. A part's end is a token's end.
 *
 *   messages           messages: a list of {role, content, ...}; optionally tools (a list, or
 *                      JSON text of one)
 *   sharegpt           conversations: a list of {from, value}; optionally system, tools
 *   preference         chosen, rejected: texts or lists of messages, with or without prompt; or
 *                      one message each beside conversations
 *   unpaired           completion and a boolean label, with or without prompt: texts or messages;
 *                      or conversations whose last turn is judged by label or kto_tag
 *   prompt_completion  prompt, completion: texts or lists of messages
 *   alpaca             instruction, output; optionally input: texts in Stanford's prompt
 *   alpaca_chat        the same rendered by a chat template; optionally system, history. By name
 *                      only
 *   tokenized          input_ids; optionally labels, attention_mask, completion_mask,
 *                      assistant_masks
 *   text               text, or what dataset_text_field names
 *
 * A list of messages may have {from, value} wherever it may have {role, content}.
 *
 * What is learned of a chat: what data/chat_template.h says the assistant says. A message's
 * `train: false` or `weight: 0` takes it out (templates do not see these keys); last_turn_only
 * leaves the last one. Of chats with a prompt it is what the assistant says after the prompt.
 * A part begins where the assistant's text does, but for one space before it: vocabularies have
 * " word" as one token, and that is what the model will be asked to say.
 *
 *   completion_only  assistant_only   learned of a chat with a prompt
 *   auto, true       auto, true       what the assistant says after the prompt
 *   auto, true       false            everything from where the assistant answers the prompt on
 *   false            auto, false      everything
 *   false            true             what the assistant says, in the prompt too
 *
 *                                     of one without a prompt
 *   auto, false      auto, true       what the assistant says
 *   auto, false      false            everything
 *
 * Tool calls that a template does not show in the shape that a record has are shown to it in the
 * other usual one (format_chat.c). What no shape shows makes the record unusable.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_FORMAT_H
#define EBB_DATA_FORMAT_H

#include "data/chat_template.h"
#include "data/records.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What samples are for. */
enum ebb_purpose {
    EBB_PURPOSE_SFT,       /* one sample a record; of preferences the chosen or desirable answer */
    EBB_PURPOSE_PREFERENCE /* pairs, or answers with a verdict; other formats are refused */
};
enum ebb_loss_part { EBB_LOSS_PART_AUTO, EBB_LOSS_PART_TRUE, EBB_LOSS_PART_FALSE };
/* "auto"/"true"/"false"; false for anything else. */
bool ebb_loss_part_parse(const char *text, enum ebb_loss_part *value);

struct ebb_part {
    size_t end; /* in text; a part begins where the one before it ends */
    bool learned;
};

/* {0} is a valid empty value; ebb_rendering_clear makes it ready for the next record. */
struct ebb_rendering {
    struct ebb_str text;
    struct ebb_part *items;
    int64_t count, room;
    int64_t samples;      /* 1; of a pair 2: chosen, rejected; 0: nothing for this purpose */
    int64_t part_ends[2]; /* sample s has the parts [s == 0 ? 0 : part_ends[s - 1], part_ends[s]) */
    bool whole;           /* a template wrote BOS and EOS where it wants them: nothing is added */
    bool tokenized;       /* ids and marks are the sample; text is not used */
    struct ebb_ids ids;
    struct ebb_str marks; /* a byte an id: 1 is trained */
    bool desirable;       /* of an unpaired preference */
};

enum ebb_status ebb_rendering_part(struct ebb_ctx *ctx, struct ebb_rendering *out, bool learned);
/* The parts since the last sample are one. */
void ebb_rendering_sample(struct ebb_rendering *out);
void ebb_rendering_clear(struct ebb_rendering *out);
void ebb_rendering_free(struct ebb_ctx *ctx, struct ebb_rendering *out);

/* What all records of a source are read with. Borrowed. */
struct ebb_format_env {
    enum ebb_purpose purpose;
    const char *text_field;
    const struct ebb_chat_template *chat; /* NULL: a chat is an error that says what to do */
    const json_t *chat_kwargs;
    enum ebb_loss_part completion_only, assistant_only;
    bool last_turn_only;
    int64_t now; /* what strftime_now sees in templates, as in jinja.h; 0: the clock */
};

/* A record as a format sees it. */
struct ebb_format_record {
    const struct ebb_records *records; /* borrowed, for messages */
    int64_t index;
    const json_t *json; /* an object */
};

struct ebb_format {
    const char *name;
    const char *what; /* for people: "chat messages" */
    bool chat;        /* rendered by a template */
    bool has_prompt;
    bool preference, unpaired;
    /* EBB_BAD_FILE for a record that cannot be used, naming it. Marks follow the environment: a
     * part of a prompt is learned where completion_only says so. */
    enum ebb_status (*render)(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                              const struct ebb_format_record *record, struct ebb_rendering *out);
};

/* By name, or for NULL and "auto" by the keys and types of the first record; of several first
 * records that fit different formats the first decides, and later ones are then refused one by
 * one. Where a name stands for texts and for chats the record says which, also with a name.
 * Checks that the environment's options mean something for it: a completion_only of true with a
 * format that has no prompt, an assistant_only of true or last_turn_only with one that is no chat,
 * a purpose that it does not serve, and a chat without a template are EBB_BAD_CONFIG. The format
 * lives forever. */
enum ebb_status ebb_format_find(struct ebb_ctx *ctx, const char *name,
                                const struct ebb_format_env *env,
                                const struct ebb_format_record *first,
                                const struct ebb_format **format);

#ifdef __cplusplus
}
#endif
#endif
