/* Chats: from messages to a sample with its marks, and the formats that are one chat.
 *
 * Tool calls have two shapes in data and templates: content "" and arguments as an object
 * (transformers' convention), or content null and arguments as JSON text (OpenAI's). The record's
 * own shape is tried first, which is what transformers does. A template that refuses it, does not
 * show the calls (DeepSeek-V3 asks whether the content is none) or writes the text's quotes with
 * backslashes (Llama 3.1) is given both, OpenAI's first. Calls that no shape shows make the record
 * unusable: the model would learn to say nothing where a call is meant.
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "data/format_int.h"

static enum ebb_status no_memory(struct ebb_ctx *ctx)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for a conversation");
}

static const char *role_of(const json_t *messages, size_t at)
{
    return json_string_value(json_object_get(json_array_get(messages, at), "role"));
}

static bool is_assistant(const json_t *messages, size_t at)
{
    const char *role = role_of(messages, at);
    return role != NULL && strcmp(role, "assistant") == 0;
}

/* ---- locating ---- */

/* A rendering, and where the assistant is in it unless only the text is wanted. */
struct located {
    struct ebb_ctx *ctx;   /* what holds the memory */
    struct ebb_ctx *quiet; /* owned: an attempt's own, or NULL */
    struct ebb_str text;
    struct ebb_chat_spans spans;
    bool text_only;
};

static void free_located(struct located *located)
{
    if (located->ctx != NULL) {
        ebb_str_free(located->ctx, &located->text);
        ebb_chat_spans_free(located->ctx, &located->spans);
    }
    ebb_ctx_free(located->quiet);
    located->ctx = located->quiet = NULL;
}

static enum ebb_status locate_once(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                   const struct ebb_talk *talk, const json_t *messages,
                                   bool keep_nulls, struct located *located)
{
    struct ebb_chat_options options = {.tools = talk->tools,
                                       .kwargs = env->chat_kwargs,
                                       .keep_nulls = keep_nulls,
                                       .jinja = {.now = env->now}};
    located->ctx = ctx;
    located->text.bytes = 0;
    if (located->text_only)
        return ebb_chat_render(ctx, env->chat, talk->where, messages, &options, &located->text,
                               NULL);
    return ebb_chat_spans(ctx, env->chat, talk->where, messages, &options, &located->text,
                          &located->spans);
}

static bool holds(const struct located *located, size_t begin, size_t end, struct ebb_span text)
{
    return text.bytes == 0 || (end > begin && memmem(located->text.data + begin, end - begin,
                                                     text.data, text.bytes) != NULL);
}

/* The text without white space around it; "" for what is no text. */
static struct ebb_span trimmed(const json_t *text)
{
    struct ebb_span span = {json_string_value(text), json_string_length(text)};
    while (span.bytes > 0 && isspace((unsigned char)span.data[0])) span.data++, span.bytes--;
    while (span.bytes > 0 && isspace((unsigned char)span.data[span.bytes - 1])) span.bytes--;
    return span;
}

/* Does a call's name stand in the text, and arguments that are a text as they are? */
static bool call_shown(const json_t *call, const struct located *located, size_t begin, size_t end)
{
    const json_t *function = json_object_get(call, "function");
    if (function != NULL) call = function;
    return holds(located, begin, end, trimmed(json_object_get(call, "name"))) &&
           holds(located, begin, end, trimmed(json_object_get(call, "arguments")));
}

static bool calls_shown(const json_t *message, const struct located *located, size_t begin,
                        size_t end)
{
    size_t i;
    json_t *one, *old = json_object_get(message, "function_call");
    if (!call_shown(old, located, begin, end)) return false;
    json_array_foreach(json_object_get(message, "tool_calls"), i, one)
    {
        if (!call_shown(one, located, begin, end)) return false;
    }
    return true;
}

/* The number, from 1, of the first message whose calls the template leaves out; 0: none. */
static size_t find_unshown(const json_t *messages, const struct located *located)
{
    if (located->text_only) {
        for (size_t i = 0; i < json_array_size(messages); i++)
            if (!calls_shown(json_array_get(messages, i), located, 0, located->text.bytes))
                return i + 1;
        return 0;
    }
    for (int64_t k = 0; k < located->spans.count; k++) {
        const struct ebb_chat_span *span = &located->spans.items[k];
        if (span->message >= 0 && !calls_shown(json_array_get(messages, (size_t)span->message),
                                               located, span->begin, span->end))
            return (size_t)span->message + 1;
    }
    return 0;
}

/* ---- shapes of tool calls ---- */

/* Arguments as JSON text, or as an object. */
static enum ebb_status reshape_call(struct ebb_ctx *ctx, json_t *call, bool as_text)
{
    json_t *function = json_object_get(call, "function"), *made = NULL;
    if (json_is_object(function)) call = function;
    const json_t *arguments = json_object_get(call, "arguments");
    if (json_is_string(arguments) && !as_text) {
        made = json_loadb(json_string_value(arguments), json_string_length(arguments), 0, NULL);
        if (made == NULL) return EBB_OK; /* no JSON: it stays what it is */
    } else if (json_is_object(arguments) && as_text) {
        struct ebb_str text = {0};
        EBB_TRY(ebb_json_text(ctx, arguments, 0, &text));
        made = json_stringn(text.data, text.bytes);
        ebb_str_free(ctx, &text);
        if (made == NULL) return no_memory(ctx);
    }
    if (made == NULL) return EBB_OK;
    return json_object_set_new(call, "arguments", made) == 0 ? EBB_OK : no_memory(ctx);
}

static enum ebb_status reshape(struct ebb_ctx *ctx, json_t *messages, bool as_text)
{
    size_t i, k;
    json_t *message, *call;
    json_array_foreach(messages, i, message)
    {
        const json_t *content = json_object_get(message, "content");
        json_array_foreach(json_object_get(message, "tool_calls"), k, call)
        {
            EBB_TRY(reshape_call(ctx, call, as_text));
        }
        if (k == 0 || json_string_length(content) > 0 || json_is_array(content)) continue;
        json_t *empty = as_text ? json_null() : json_string("");
        if (json_object_set_new(message, "content", empty) != 0) return no_memory(ctx);
    }
    return EBB_OK;
}

/* An attempt whose failure is nobody's error; *good tells. */
static enum ebb_status attempt(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                               const struct ebb_talk *talk, const json_t *messages, bool keep_nulls,
                               struct located *located, bool *good)
{
    *good = false;
    if (located->quiet == NULL) located->quiet = ebb_ctx_create();
    if (located->quiet == NULL) return no_memory(ctx);
    enum ebb_status status = locate_once(located->quiet, env, talk, messages, keep_nulls, located);
    ebb_error_clear(located->quiet);
    if (status == EBB_NO_MEMORY) return no_memory(ctx);
    *good = status == EBB_OK && find_unshown(messages, located) == 0;
    return EBB_OK;
}

static enum ebb_status locate_reshaped(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                       const struct ebb_talk *talk, bool as_text, bool *good,
                                       struct located *located)
{
    json_t *messages = json_deep_copy(talk->messages);
    enum ebb_status status = messages == NULL ? no_memory(ctx) : reshape(ctx, messages, as_text);
    if (status == EBB_OK)
        status = good != NULL ? attempt(ctx, env, talk, messages, as_text, located, good)
                              : locate_once(ctx, env, talk, messages, as_text, located);
    json_decref(messages);
    return status;
}

/* No shape will do. What is wrong with the record's own is told; if that does not show the calls
 * and OpenAI's does, what is wrong with OpenAI's. */
static enum ebb_status tell_why(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                const struct ebb_talk *talk, bool text_only)
{
    struct located own = {.text_only = text_only}, other = {.text_only = true};
    bool shows = false;
    enum ebb_status status = locate_once(ctx, env, talk, talk->messages, false, &own);
    size_t unshown = status == EBB_OK ? find_unshown(talk->messages, &own) : 0;
    free_located(&own);
    if (status == EBB_OK) status = locate_reshaped(ctx, env, talk, true, &shows, &other);
    free_located(&other);
    if (status == EBB_OK && shows && !text_only) {
        other = (struct located){0};
        status = locate_reshaped(ctx, env, talk, true, NULL, &other);
        free_located(&other);
    }
    EBB_TRY(status);
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: the chat template does not show the tool calls of message %zu, so nothing "
                    "could be learned of them\nchat_template: names another template",
                    talk->where, unshown);
}

static enum ebb_status locate(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                              const struct ebb_talk *talk, struct located *located)
{
    bool good = false;
    if (!talk->has_calls) return locate_once(ctx, env, talk, talk->messages, false, located);
    EBB_TRY(attempt(ctx, env, talk, talk->messages, false, located, &good));
    if (!good) EBB_TRY(locate_reshaped(ctx, env, talk, true, &good, located));
    if (!good) EBB_TRY(locate_reshaped(ctx, env, talk, false, &good, located));
    return good ? EBB_OK : tell_why(ctx, env, talk, located->text_only);
}

/* ---- what a template leaves out ---- */

/* What a model thought, in the keys that data has for it. */
static struct ebb_span reasoning_of(const json_t *message)
{
    const json_t *text = json_object_get(message, "reasoning_content");
    return trimmed(text != NULL ? text : json_object_get(message, "thinking"));
}

/* Templates may leave out the reasoning of earlier turns; one that shows none has no place for it.
 */
static void warn_of_reasoning(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                              const struct located *located)
{
    size_t first = 0;
    for (size_t i = 0; i < json_array_size(talk->messages); i++) {
        struct ebb_span reasoning = reasoning_of(json_array_get(talk->messages, i));
        if (reasoning.bytes == 0) continue;
        if (holds(located, 0, located->text.bytes, reasoning)) return;
        if (first == 0) first = i + 1;
    }
    if (first > 0)
        ebb_warn_once(ctx, "chat-reasoning",
                      "%s: the chat template leaves out the reasoning of message %zu: it is not "
                      "learned",
                      talk->where, first);
}

/* Of the turns that are trained. */
static void warn_of_empty(struct ebb_ctx *ctx, const struct ebb_talk *talk)
{
    for (size_t i = talk->has_prompt ? talk->prompt : 0; i < json_array_size(talk->messages); i++) {
        const json_t *message = json_array_get(talk->messages, i);
        const json_t *content = json_object_get(message, "content");
        bool empty = json_is_string(content) && json_string_length(content) == 0;
        bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0 ||
                     json_object_get(message, "function_call") != NULL;
        if (is_assistant(talk->messages, i) && talk->may.data[i] != 0 && empty && !calls &&
            reasoning_of(message).bytes == 0)
            ebb_warn_once(ctx, "chat-empty",
                          "%s: message %zu (assistant) is empty: all that is learned of it is to "
                          "end the turn at once",
                          talk->where, i + 1);
    }
}

/* Nothing is said where a template drops a role that it doesn't know, or the tools. */
static void warn_of_unshown(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                            const struct located *located)
{
    static const char *const told[] = {"system", "developer", "user"};
    const json_t *tool = json_array_get(talk->tools, 0);
    if (json_object_get(tool, "function") != NULL) tool = json_object_get(tool, "function");
    size_t bytes = located->text.bytes;
    if (!holds(located, 0, bytes, trimmed(json_object_get(tool, "name"))))
        ebb_warn_once(ctx, "chat-tools",
                      "%s: the chat template leaves out the tools: the model learns calls without "
                      "being told of them",
                      talk->where);
    for (size_t i = 0; i < json_array_size(talk->messages); i++) {
        const char *role = role_of(talk->messages, i);
        const json_t *content = json_object_get(json_array_get(talk->messages, i), "content");
        bool told_of = false;
        for (int k = 0; k < 3; k++) told_of |= strcmp(role, told[k]) == 0;
        if (told_of && !holds(located, 0, bytes, trimmed(content)))
            ebb_warn_once(ctx, "chat-messages",
                          "%s: the chat template leaves out or rewrites message %zu (%s)",
                          talk->where, i + 1, role);
    }
}

/* ---- marks ---- */

struct marker {
    const struct ebb_format_env *env;
    const struct ebb_talk *talk;
    size_t from;   /* messages before it are not trained */
    bool all;      /* everything from there on, not only what the assistant says */
    bool selected; /* which message a span is of matters */
};

static struct marker make_marker(const struct ebb_format_env *env, const struct ebb_talk *talk)
{
    bool with_prompt = env->completion_only == EBB_LOSS_PART_FALSE;
    struct marker marker = {.env = env, .talk = talk};
    marker.from = talk->has_prompt && !with_prompt ? talk->prompt : 0;
    marker.all = env->assistant_only == EBB_LOSS_PART_FALSE ||
                 (env->assistant_only == EBB_LOSS_PART_AUTO && talk->has_prompt && with_prompt);
    bool taken_out = talk->may.bytes > 0 && memchr(talk->may.data, 0, talk->may.bytes) != NULL;
    marker.selected = marker.from > 0 || env->last_turn_only || taken_out;
    return marker;
}

static bool is_learned(const struct marker *marker, const struct ebb_chat_spans *spans, int64_t at)
{
    int64_t message = spans->items[at].message;
    if (marker->env->last_turn_only && at + 1 != spans->count) return false;
    if (!marker->selected) return true;
    return (size_t)message >= marker->from && marker->talk->may.data[message] != 0;
}

static enum ebb_status check_marks(struct ebb_ctx *ctx, const struct marker *marker,
                                   const struct ebb_chat_spans *spans)
{
    const char *where = marker->talk->where;
    for (int64_t i = 0; marker->selected && i < spans->count; i++)
        if (spans->items[i].message < 0)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: {%% generation %%} of the chat template stands %lld times for "
                            "another number of assistant messages, so what is whose is not known",
                            where, (long long)spans->count);
    if (!marker->all || marker->from == 0 || is_assistant(marker->talk->messages, marker->from))
        return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: the answer begins with a message of role '%s'; where assistant_only_loss "
                    "is false it has to begin with one of the assistant",
                    where, role_of(marker->talk->messages, marker->from));
}

/* The text is out->text from `base` on. */
static enum ebb_status mark(struct ebb_ctx *ctx, const struct marker *marker,
                            const struct ebb_chat_spans *spans, size_t base,
                            struct ebb_rendering *out)
{
    bool around = marker->all && marker->from == 0;
    size_t at = base;
    EBB_TRY(check_marks(ctx, marker, spans));
    for (int64_t i = 0; i < spans->count; i++) {
        size_t begin = base + spans->items[i].begin, end = base + spans->items[i].end;
        /* The space belongs to the word behind it. */
        if (begin > at && out->text.data[begin - 1] == ' ') begin--;
        EBB_TRY(ebb_rendering_cover(ctx, out, begin, around));
        if (marker->all && marker->selected)
            around = around || (size_t)spans->items[i].message >= marker->from;
        EBB_TRY(ebb_rendering_cover(ctx, out, end, is_learned(marker, spans, i)));
        at = end;
    }
    return ebb_rendering_cover(ctx, out, out->text.bytes, around);
}

static enum ebb_status check_turns(struct ebb_ctx *ctx, const struct ebb_talk *talk)
{
    size_t count = json_array_size(talk->messages);
    for (size_t i = talk->has_prompt ? talk->prompt : 0; i < count; i++)
        if (is_assistant(talk->messages, i)) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: there is nothing to learn: %s has no assistant turn",
                    talk->where, talk->has_prompt ? "the answer" : "the conversation");
}

static enum ebb_status check_learned(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                                     const struct ebb_rendering *out, int64_t first)
{
    for (int64_t i = first; i < out->count; i++)
        if (out->items[i].learned) return EBB_OK;
    bool taken_out = memchr(talk->may.data, 0, talk->may.bytes) != NULL;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: there is nothing to learn: %s", talk->where,
                    taken_out ? "all assistant turns that count are taken out by 'train' or "
                                "'weight'"
                              : "the assistant says nothing");
}

enum ebb_status ebb_talk_render(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                const struct ebb_talk *talk, struct ebb_rendering *out)
{
    struct marker marker = make_marker(env, talk);
    struct located located = {.text_only = marker.all && !marker.selected};
    size_t base = out->text.bytes;
    int64_t first = out->count;
    EBB_TRY(check_turns(ctx, talk));
    enum ebb_status status = locate(ctx, env, talk, &located);
    if (status == EBB_OK) {
        warn_of_unshown(ctx, talk, &located);
        warn_of_reasoning(ctx, talk, &located);
        warn_of_empty(ctx, talk);
        status = ebb_str_add(ctx, &out->text, located.text.data, located.text.bytes);
    }
    if (status == EBB_OK) status = mark(ctx, &marker, &located.spans, base, out);
    free_located(&located);
    EBB_TRY(status);
    EBB_TRY(check_learned(ctx, talk, out, first));
    out->whole = true;
    ebb_rendering_sample(out);
    return EBB_OK;
}

/* ---- formats of one chat ---- */

static enum ebb_status render_list(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                   const struct ebb_format_record *record, const char *key,
                                   bool system, struct ebb_rendering *out)
{
    const json_t *list = json_object_get(record->json, key);
    struct ebb_talk talk = {0};
    if (!json_is_array(list)) return ebb_record_bad_field(ctx, record, key, "a list of messages");
    enum ebb_status status = ebb_talk_open(ctx, record, &talk);
    if (status == EBB_OK && system) status = ebb_talk_add_system(ctx, record, &talk, list);
    if (status == EBB_OK)
        status = ebb_talk_add(ctx, env, &talk, key, list, 0, json_array_size(list));
    if (status == EBB_OK) status = ebb_talk_render(ctx, env, &talk, out);
    ebb_talk_close(ctx, &talk);
    return status;
}

EBB_FORMAT_RENDER(ebb_format_messages)
{
    return render_list(ctx, env, record, "messages", false, out);
}

EBB_FORMAT_RENDER(ebb_format_sharegpt)
{
    return render_list(ctx, env, record, "conversations", true, out);
}

/* history: [[question, answer], ...] */
static enum ebb_status add_history(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                   struct ebb_talk *talk)
{
    const json_t *history = json_object_get(record->json, "history");
    size_t i;
    json_t *pair;
    if (history == NULL || json_is_null(history)) return EBB_OK;
    if (!json_is_array(history)) return ebb_record_bad_field(ctx, record, "history", "a list");
    json_array_foreach(history, i, pair)
    {
        const json_t *asked = json_array_get(pair, 0), *said = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(asked) || !json_is_string(said))
            return ebb_record_bad(ctx, record, "history, item %zu: not a pair of texts", i + 1);
        EBB_TRY(ebb_talk_add_text(ctx, talk, "user", json_string_value(asked),
                                  json_string_length(asked)));
        EBB_TRY(ebb_talk_add_text(ctx, talk, "assistant", json_string_value(said),
                                  json_string_length(said)));
    }
    return EBB_OK;
}

static enum ebb_status add_instruction(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                       struct ebb_talk *talk)
{
    struct ebb_span instruction, input, output;
    struct ebb_str asked = {0};
    EBB_TRY(ebb_record_text(ctx, record, "instruction", false, &instruction));
    EBB_TRY(ebb_record_text(ctx, record, "input", true, &input));
    EBB_TRY(ebb_record_text(ctx, record, "output", false, &output));
    enum ebb_status status = ebb_str_add(ctx, &asked, instruction.data, instruction.bytes);
    if (status == EBB_OK && instruction.bytes > 0 && input.bytes > 0)
        status = ebb_str_add(ctx, &asked, "\n", 1);
    if (status == EBB_OK) status = ebb_str_add(ctx, &asked, input.data, input.bytes);
    if (status == EBB_OK) status = ebb_talk_add_text(ctx, talk, "user", asked.data, asked.bytes);
    ebb_str_free(ctx, &asked);
    EBB_TRY(status);
    return ebb_talk_add_text(ctx, talk, "assistant", output.data, output.bytes);
}

/* As LLaMA-Factory reads such records: the input is the instruction's next line. */
EBB_FORMAT_RENDER(ebb_format_alpaca_chat)
{
    struct ebb_talk talk = {0};
    enum ebb_status status = ebb_talk_open(ctx, record, &talk);
    if (status == EBB_OK) status = ebb_talk_add_system(ctx, record, &talk, NULL);
    if (status == EBB_OK) status = add_history(ctx, record, &talk);
    if (status == EBB_OK) status = add_instruction(ctx, record, &talk);
    if (status == EBB_OK) status = ebb_talk_render(ctx, env, &talk, out);
    ebb_talk_close(ctx, &talk);
    return status;
}
