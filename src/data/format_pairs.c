/* Prompts with answers: one (prompt_completion), two (preference), or one with a verdict
 * (unpaired); of texts or of messages.
 *
 * Preferences without a prompt have it as what their answers begin with alike, as TRL reads them:
 * of messages those before the first that differs, of texts what stands before the first word that
 * differs.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/format_int.h"

/* Is there a text or a list in this field? */
static bool has(const struct ebb_format_record *record, const char *key)
{
    const json_t *value = json_object_get(record->json, key);
    return json_is_string(value) || json_is_array(value) || json_is_object(value);
}

/* ---- texts ---- */

static enum ebb_status add_pair(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                struct ebb_span prompt, struct ebb_span answer,
                                struct ebb_rendering *out)
{
    EBB_TRY(ebb_str_add(ctx, &out->text, prompt.data, prompt.bytes));
    EBB_TRY(ebb_rendering_part(ctx, out, env->completion_only == EBB_LOSS_PART_FALSE));
    EBB_TRY(ebb_str_add(ctx, &out->text, answer.data, answer.bytes));
    EBB_TRY(ebb_rendering_part(ctx, out, true));
    ebb_rendering_sample(out);
    return EBB_OK;
}

EBB_FORMAT_RENDER(ebb_format_prompt_completion)
{
    struct ebb_span prompt, completion;
    EBB_TRY(ebb_record_text(ctx, record, "prompt", false, &prompt));
    EBB_TRY(ebb_record_text(ctx, record, "completion", false, &completion));
    return add_pair(ctx, env, prompt, completion, out);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Bytes of the common beginning, up to the blank before the word that differs; a space belongs to
 * its word. */
static size_t common_words(struct ebb_span a, struct ebb_span b)
{
    size_t same = 0, most = a.bytes < b.bytes ? a.bytes : b.bytes;
    while (same < most && a.data[same] == b.data[same]) same++;
    while (same > 0 && !is_blank(a.data[same - 1])) same--;
    return same > 0 && a.data[same - 1] == ' ' ? same - 1 : same;
}

static enum ebb_status split_prompt(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                    struct ebb_span *prompt, struct ebb_span *chosen,
                                    struct ebb_span *rejected)
{
    size_t same = common_words(*chosen, *rejected);
    if (same == 0 || has(record, "instruction"))
        return ebb_record_bad(ctx, record,
                              "has no 'prompt', and 'chosen' and 'rejected' %s\n"
                              "dataset_columns: {prompt: ...} names the key that has it",
                              same == 0 ? "have no beginning in common"
                                        : "stand beside an 'instruction'");
    *prompt = (struct ebb_span){chosen->data, same};
    *chosen = (struct ebb_span){chosen->data + same, chosen->bytes - same};
    *rejected = (struct ebb_span){rejected->data + same, rejected->bytes - same};
    return EBB_OK;
}

static enum ebb_status refuse_equal(struct ebb_ctx *ctx, const struct ebb_format_record *record)
{
    const json_t *chosen = json_object_get(record->json, "chosen");
    const json_t *rejected = json_object_get(record->json, "rejected");
    if (!json_equal(chosen, rejected)) return EBB_OK;
    return ebb_record_bad(ctx, record, "'chosen' and 'rejected' are the same");
}

EBB_FORMAT_RENDER(ebb_format_preference)
{
    struct ebb_span prompt, chosen, rejected;
    EBB_TRY(ebb_record_text(ctx, record, "prompt", true, &prompt));
    EBB_TRY(ebb_record_text(ctx, record, "chosen", false, &chosen));
    EBB_TRY(ebb_record_text(ctx, record, "rejected", false, &rejected));
    EBB_TRY(refuse_equal(ctx, record));
    if (!has(record, "prompt")) EBB_TRY(split_prompt(ctx, record, &prompt, &chosen, &rejected));
    EBB_TRY(add_pair(ctx, env, prompt, chosen, out));
    if (env->purpose == EBB_PURPOSE_SFT) return EBB_OK;
    return add_pair(ctx, env, prompt, rejected, out);
}

/* *passed: an answer that is not desirable is nothing to imitate. */
static enum ebb_status read_verdict(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                    const struct ebb_format_record *record,
                                    struct ebb_rendering *out, bool *passed)
{
    const json_t *verdict = ebb_record_verdict(record);
    if (verdict == NULL) return ebb_record_bad_field(ctx, record, "label", "a boolean");
    out->desirable = json_is_true(verdict);
    *passed = env->purpose == EBB_PURPOSE_SFT && !out->desirable;
    return EBB_OK;
}

EBB_FORMAT_RENDER(ebb_format_unpaired)
{
    struct ebb_span prompt, completion;
    bool passed = false;
    EBB_TRY(ebb_record_text(ctx, record, "prompt", true, &prompt));
    EBB_TRY(ebb_record_text(ctx, record, "completion", false, &completion));
    EBB_TRY(read_verdict(ctx, env, record, out, &passed));
    return passed ? EBB_OK : add_pair(ctx, env, prompt, completion, out);
}

/* ---- messages ---- */

/* Where a chat's prompt comes from. */
struct prompt {
    const char *key;    /* of `list`, for messages; NULL: none */
    const json_t *list; /* a list, whose first `count` messages are the prompt, or one message */
    size_t count;
    struct ebb_span text; /* one message of the user; "": none */
};

static bool is_talk(const json_t *value)
{
    return json_is_array(value) || json_is_object(value);
}

static void take_list(struct prompt *prompt, const char *key, const json_t *list, size_t count)
{
    *prompt = (struct prompt){key, list, count, {"", 0}};
}

/* Messages that two lists begin with alike. */
static size_t common_turns(const json_t *a, const json_t *b)
{
    size_t same = 0,
           most = json_array_size(a) < json_array_size(b) ? json_array_size(a) : json_array_size(b);
    while (same < most && json_equal(json_array_get(a, same), json_array_get(b, same))) same++;
    return same;
}

/* The prompt's messages, or its text. */
static enum ebb_status read_prompt(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                   struct prompt *prompt)
{
    const json_t *value = json_object_get(record->json, "prompt");
    take_list(prompt, NULL, NULL, 0);
    if (is_talk(value))
        take_list(prompt, "prompt", value, json_array_size(value));
    else
        EBB_TRY(ebb_record_text(ctx, record, "prompt", true, &prompt->text));
    return EBB_OK;
}

/* An answer of one message continues what stands beside it. */
static void read_conversation(const struct ebb_format_record *record, struct prompt *prompt)
{
    static const char *const keys[] = {"conversations", "messages"};
    for (int i = 0; i < 2 && prompt->list == NULL; i++) {
        const json_t *list = json_object_get(record->json, keys[i]);
        if (json_is_array(list)) take_list(prompt, keys[i], list, json_array_size(list));
    }
}

/* A turn of the user, {role, content} or {from, value}, that says this text. */
static bool says(const json_t *turn, struct ebb_span text)
{
    const json_t *role = json_object_get(turn, "role"), *content = json_object_get(turn, "content");
    if (role == NULL) role = json_object_get(turn, "from");
    if (content == NULL) content = json_object_get(turn, "value");
    /* Of a content in pieces the only one. */
    if (json_is_array(content) && json_array_size(content) == 1)
        content = json_object_get(json_array_get(content, 0), "text");
    if (!json_is_string(role) || !json_is_string(content)) return false;
    const char *name = json_string_value(role);
    return (strcmp(name, "user") == 0 || strcmp(name, "human") == 0) &&
           json_string_length(content) == text.bytes &&
           memcmp(json_string_value(content), text.data, text.bytes) == 0;
}

/* A text beside messages that are the prompt says one of them once more, and so is not needed.
 * Another text would be lost. */
static enum ebb_status check_repeated(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                      const struct prompt *prompt, struct ebb_span text)
{
    if (text.bytes == 0 || prompt->list == NULL) return EBB_OK;
    for (size_t i = 0; i < prompt->count; i++)
        if (says(json_array_get(prompt->list, i), text)) return EBB_OK;
    return ebb_record_bad(ctx, record,
                          "the text 'prompt' is none of the user's messages that %s with\n"
                          "leave it out, or make it a list of messages",
                          strcmp(prompt->key, "chosen") == 0
                              ? "'chosen' and 'rejected' both begin"
                              : "the conversation begins");
}

/* Where lists have a beginning in common, a prompt that is a text beside them says it once more. */
static enum ebb_status find_prompt(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                   struct prompt *prompt)
{
    const json_t *chosen = json_object_get(record->json, "chosen");
    const json_t *rejected = json_object_get(record->json, "rejected");
    EBB_TRY(read_prompt(ctx, record, prompt));
    if (prompt->list != NULL) return EBB_OK;
    struct ebb_span text = prompt->text;
    if (json_is_object(chosen)) read_conversation(record, prompt);
    size_t same = common_turns(chosen, rejected);
    if (prompt->list == NULL && same > 0) take_list(prompt, "chosen", chosen, same);
    if (prompt->list != NULL) return check_repeated(ctx, record, prompt, text);
    if (prompt->text.bytes > 0) return EBB_OK;
    return ebb_record_bad(ctx, record,
                          "has no 'prompt', and 'chosen' and 'rejected' have no beginning in "
                          "common\ndataset_columns: {prompt: ...} names the key that has it");
}

static enum ebb_status add_prompt(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                  const struct ebb_format_record *record,
                                  const struct prompt *prompt, struct ebb_talk *talk)
{
    if (prompt->key != NULL && strcmp(prompt->key, "conversations") == 0)
        EBB_TRY(ebb_talk_add_system(ctx, record, talk, prompt->list));
    if (prompt->text.bytes > 0)
        EBB_TRY(ebb_talk_add_text(ctx, talk, "user", prompt->text.data, prompt->text.bytes));
    if (prompt->list != NULL)
        EBB_TRY(ebb_talk_add(ctx, env, talk, prompt->key, prompt->list, 0, prompt->count));
    ebb_talk_end_prompt(talk);
    return EBB_OK;
}

/* One sample: the prompt and the record's answer under `key`. Answers that repeat the prompt have
 * it once. */
static enum ebb_status render_answer(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                     const struct ebb_format_record *record,
                                     const struct prompt *prompt, const char *key,
                                     struct ebb_rendering *out)
{
    const json_t *answer = json_object_get(record->json, key);
    bool repeats = common_turns(prompt->list, answer) >= prompt->count;
    size_t skip = repeats ? prompt->count : 0;
    struct ebb_talk talk = {0};
    if (answer == NULL) return ebb_record_bad_field(ctx, record, key, "a list of messages");
    enum ebb_status status = ebb_talk_open(ctx, record, &talk);
    if (status == EBB_OK) status = add_prompt(ctx, env, record, prompt, &talk);
    if (status == EBB_OK)
        status = ebb_talk_add(ctx, env, &talk, key, answer, skip, json_array_size(answer));
    if (status == EBB_OK) status = ebb_talk_render(ctx, env, &talk, out);
    ebb_talk_close(ctx, &talk);
    return status;
}

EBB_FORMAT_RENDER(ebb_format_prompt_completion_chat)
{
    struct prompt prompt;
    if (!is_talk(json_object_get(record->json, "prompt")))
        return ebb_record_bad_field(ctx, record, "prompt", "a list of messages");
    EBB_TRY(read_prompt(ctx, record, &prompt));
    return render_answer(ctx, env, record, &prompt, "completion", out);
}

EBB_FORMAT_RENDER(ebb_format_preference_chat)
{
    struct prompt prompt;
    EBB_TRY(refuse_equal(ctx, record));
    EBB_TRY(find_prompt(ctx, record, &prompt));
    EBB_TRY(render_answer(ctx, env, record, &prompt, "chosen", out));
    if (env->purpose == EBB_PURPOSE_SFT) return EBB_OK;
    return render_answer(ctx, env, record, &prompt, "rejected", out);
}

/* messages or conversations: the last one is the answer. */
static enum ebb_status render_last(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                   const struct ebb_format_record *record, struct prompt *prompt,
                                   struct ebb_rendering *out)
{
    struct ebb_talk talk = {0};
    size_t count = prompt->count;
    if (count == 0) return ebb_record_bad(ctx, record, "'%s' is empty", prompt->key);
    prompt->count = count - 1;
    enum ebb_status status = ebb_talk_open(ctx, record, &talk);
    if (status == EBB_OK) status = add_prompt(ctx, env, record, prompt, &talk);
    if (status == EBB_OK)
        status = ebb_talk_add(ctx, env, &talk, prompt->key, prompt->list, count - 1, count);
    if (status == EBB_OK) status = ebb_talk_render(ctx, env, &talk, out);
    ebb_talk_close(ctx, &talk);
    return status;
}

EBB_FORMAT_RENDER(ebb_format_unpaired_chat)
{
    struct prompt prompt;
    bool passed = false;
    EBB_TRY(read_verdict(ctx, env, record, out, &passed));
    if (passed) return EBB_OK;
    if (json_object_get(record->json, "completion") != NULL) {
        EBB_TRY(read_prompt(ctx, record, &prompt));
        return render_answer(ctx, env, record, &prompt, "completion", out);
    }
    take_list(&prompt, NULL, NULL, 0);
    read_conversation(record, &prompt);
    if (prompt.list == NULL)
        return ebb_record_bad_field(ctx, record, "completion", "a list of messages");
    return render_last(ctx, env, record, &prompt, out);
}
