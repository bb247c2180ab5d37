/* Talks: from a record's turns to messages as templates see them. Turns are {role, content, ...}
 * (OpenAI, transformers) or {from, value} (ShareGPT, LLaMA-Factory). What a template would drop
 * without a word, an unknown role or a picture, is an error.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "data/format_int.h"

static enum ebb_status no_memory(struct ebb_ctx *ctx)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for a conversation");
}

/* "path:line: record 12: messages, item 3: ..." */
static enum ebb_status bad_turn(struct ebb_ctx *ctx, const struct ebb_talk *talk, const char *key,
                                size_t number, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static enum ebb_status bad_turn(struct ebb_ctx *ctx, const struct ebb_talk *talk, const char *key,
                                size_t number, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s, item %zu: %s", talk->where, key, number, text);
}

/* Where a turn stands, for messages. */
struct turn {
    const char *key;
    size_t number;
    const json_t *json;
};

/* ---- roles ---- */

/* Names that templates know. One that they don't know they leave out without a word. */
static const char *const roles[] = {"system", "developer", "user",    "assistant",
                                    "tool",   "function",  "ipython", "environment"};
static const char roles_text[] =
    "system, developer, user, assistant, tool, function, ipython, environment";

static const struct sender {
    const char *from, *role; /* role NULL: a tool call */
} senders[] = {
    {"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
    {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bot", "assistant"},
    {"model", "assistant"},     {"system", "system"},     {"observation", "tool"},
    {"tool", "tool"},           {"function", "tool"},     {"function_call", NULL},
};
static const char senders_text[] = "human, user, gpt, assistant, chatgpt, bot, model, system, "
                                   "function_call, observation, tool, function";

static bool is_tool_role(const char *role)
{
    return strcmp(role, "tool") == 0 || strcmp(role, "function") == 0 ||
           strcmp(role, "ipython") == 0 || strcmp(role, "environment") == 0;
}

/* ---- open, close ---- */

/* A list, or JSON text of one. "" and null: there are none. */
static enum ebb_status read_tools(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                  struct ebb_talk *talk)
{
    json_t *tools = json_object_get(record->json, "tools");
    if (json_is_array(tools)) {
        talk->tools = json_incref(tools);
        return EBB_OK;
    }
    if (tools == NULL || json_is_null(tools)) return EBB_OK;
    if (!json_is_string(tools))
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'tools' is %s, a list or JSON text of one is wanted", talk->where,
                        ebb_json_kind(tools));
    const char *text = json_string_value(tools);
    if (text[strspn(text, " \t\r\n")] == '\0') return EBB_OK;
    char *name = ebb_mem_format(ctx, "%s: tools", talk->where);
    if (name == NULL) return EBB_NO_MEMORY;
    enum ebb_status status =
        ebb_json_parse(ctx, name, 0, text, json_string_length(tools), &talk->tools);
    ebb_mem_free(ctx, name);
    EBB_TRY(status);
    if (json_is_array(talk->tools)) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'tools' is JSON text of %s, a list is wanted",
                    talk->where, ebb_json_kind(talk->tools));
}

enum ebb_status ebb_talk_open(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                              struct ebb_talk *talk)
{
    talk->where = ebb_records_name(ctx, record->records, record->index);
    if (talk->where == NULL) return EBB_NO_MEMORY;
    talk->messages = json_array();
    if (talk->messages == NULL) return no_memory(ctx);
    return read_tools(ctx, record, talk);
}

void ebb_talk_close(struct ebb_ctx *ctx, struct ebb_talk *talk)
{
    ebb_mem_free(ctx, talk->where);
    json_decref(talk->messages);
    json_decref(talk->tools);
    ebb_str_free(ctx, &talk->may);
    *talk = (struct ebb_talk){0};
}

void ebb_talk_end_prompt(struct ebb_talk *talk)
{
    talk->has_prompt = true;
    talk->prompt = json_array_size(talk->messages);
}

/* ---- adding ---- */

/* Takes the reference to `message`, which may be NULL: no memory. */
static enum ebb_status append(struct ebb_ctx *ctx, struct ebb_talk *talk, json_t *message, bool may)
{
    char mark = may;
    if (message == NULL || json_array_append_new(talk->messages, message) != 0)
        return no_memory(ctx);
    return ebb_str_add(ctx, &talk->may, &mark, 1);
}

enum ebb_status ebb_talk_add_text(struct ebb_ctx *ctx, struct ebb_talk *talk, const char *role,
                                  const char *text, size_t bytes)
{
    return append(ctx, talk, json_pack("{s:s,s:s%}", "role", role, "content", text, bytes), true);
}

/* `train: false` and `weight: 0` take a turn out. */
static enum ebb_status read_may(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                                const struct turn *turn, bool *may)
{
    const json_t *train = json_object_get(turn->json, "train");
    const json_t *weight = json_object_get(turn->json, "weight");
    *may = true;
    if (json_is_boolean(train))
        *may = json_is_true(train);
    else if (train != NULL && !json_is_null(train))
        return bad_turn(ctx, talk, turn->key, turn->number, "'train' is %s, a boolean is wanted",
                        ebb_json_kind(train));
    if (weight == NULL || json_is_null(weight)) return EBB_OK;
    double value = json_number_value(weight);
    if (!json_is_number(weight) || (value < 0 || value > 0) != (value >= 1 && value <= 1))
        return bad_turn(ctx, talk, turn->key, turn->number,
                        "'weight' is not 0 or 1, and only "
                        "these are offered");
    *may &= value >= 1;
    return EBB_OK;
}

/* Does the template write what stands in a list of parts? If not it would write the list itself,
 * or nothing. */
static enum ebb_status shows_parts(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                   bool *shows)
{
    struct ebb_chat_options options = {.kwargs = env->chat_kwargs, .jinja = {.now = env->now}};
    struct ebb_str out = {0};
    json_t *probe = json_pack("[{s:s,s:[{s:s,s:s}]}]", "role", "user", "content", "type", "text",
                              "text", "QxpartZ");
    struct ebb_ctx *quiet = ebb_ctx_create();
    *shows = false;
    if (probe != NULL && quiet != NULL) {
        enum ebb_status status =
            ebb_chat_render(quiet, env->chat, "probe", probe, &options, &out, NULL);
        const char *at = status == EBB_OK ? strstr(out.data, "QxpartZ") : NULL;
        *shows = at != NULL && strchr("'\"", at[strlen("QxpartZ")]) == NULL;
    }
    bool good = probe != NULL && quiet != NULL;
    if (quiet != NULL) ebb_str_free(quiet, &out);
    ebb_ctx_free(quiet);
    json_decref(probe);
    return good ? EBB_OK : no_memory(ctx);
}

/* Texts only: for pictures Ebb has no model. `joined` gets them end to end. */
static enum ebb_status join_parts(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                                  const struct turn *turn, const json_t *parts,
                                  struct ebb_str *joined)
{
    size_t i;
    json_t *part;
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text"), *type = json_object_get(part, "type");
        if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0))
            return bad_turn(ctx, talk, turn->key, turn->number,
                            "part %zu of 'content' is of type '%s', only 'text' is offered", i + 1,
                            json_is_string(type) ? json_string_value(type) : ebb_json_kind(type));
        if (!json_is_string(text))
            return bad_turn(ctx, talk, turn->key, turn->number,
                            "part %zu of 'content' is not {type: text, text: ...}", i + 1);
        EBB_TRY(ebb_str_add(ctx, joined, json_string_value(text), json_string_length(text)));
    }
    return ebb_str_add(ctx, joined, "", 0);
}

/* As transformers the parts are given to the template as they are, but to one that knows only
 * texts as a text. */
static enum ebb_status settle_parts(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                    const struct ebb_talk *talk, const struct turn *turn,
                                    json_t *message)
{
    struct ebb_str joined = {0};
    bool shows = false;
    enum ebb_status status =
        join_parts(ctx, talk, turn, json_object_get(message, "content"), &joined);
    if (status == EBB_OK) status = shows_parts(ctx, env, &shows);
    if (status == EBB_OK && !shows &&
        json_object_set_new(message, "content",
                            json_stringn(joined.bytes > 0 ? joined.data : "", joined.bytes)) != 0)
        status = no_memory(ctx);
    ebb_str_free(ctx, &joined);
    return status;
}

static bool is_part_list(const json_t *content)
{
    return json_is_array(content) && json_is_object(json_array_get(content, 0)) &&
           json_object_get(json_array_get(content, 0), "type") != NULL;
}

static enum ebb_status check_content(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                     const struct ebb_talk *talk, const struct turn *turn,
                                     const char *role, json_t *message, bool calls)
{
    const json_t *content = json_object_get(message, "content");
    if (json_is_string(content)) return EBB_OK;
    bool tool = is_tool_role(role); /* results may be any JSON */
    if (json_is_array(content) && (!tool || is_part_list(content)))
        return settle_parts(ctx, env, talk, turn, message);
    if (tool && content != NULL) return EBB_OK;
    bool none = content == NULL || json_is_null(content);
    if (calls && none) return EBB_OK;
    return bad_turn(ctx, talk, turn->key, turn->number, "'content' is %s, a text is wanted",
                    ebb_json_kind(content));
}

/* tool_calls: a list of {function: {name, arguments}} or {name, arguments}. */
static enum ebb_status check_calls(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                                   const struct turn *turn, const json_t *message, bool *calls)
{
    const json_t *list = json_object_get(message, "tool_calls");
    size_t i;
    json_t *one;
    *calls = json_is_object(json_object_get(message, "function_call"));
    if (list == NULL || json_is_null(list)) return EBB_OK;
    if (!json_is_array(list))
        return bad_turn(ctx, talk, turn->key, turn->number, "'tool_calls' is %s, a list is wanted",
                        ebb_json_kind(list));
    json_array_foreach(list, i, one)
    {
        const json_t *function = json_object_get(one, "function");
        if (!json_is_string(json_object_get(function != NULL ? function : one, "name")))
            return bad_turn(ctx, talk, turn->key, turn->number,
                            "call %zu of 'tool_calls' has no 'name'", i + 1);
        *calls = true;
    }
    return EBB_OK;
}

static enum ebb_status check_role(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                                  const struct turn *turn, const json_t *role)
{
    if (!json_is_string(role))
        return bad_turn(ctx, talk, turn->key, turn->number, "'role' is %s, a string is wanted",
                        ebb_json_kind(role));
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(json_string_value(role), roles[i]) == 0) return EBB_OK;
    return bad_turn(ctx, talk, turn->key, turn->number,
                    "role '%s' is unknown\nknown: %s; dataset_roles says what a data set's own "
                    "names mean",
                    json_string_value(role), roles_text);
}

/* {role, content, ...}: all other keys go to the template. */
static enum ebb_status add_message(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                   struct ebb_talk *talk, const struct turn *turn, bool may)
{
    const json_t *role = json_object_get(turn->json, "role");
    bool calls = false;
    EBB_TRY(check_role(ctx, talk, turn, role));
    EBB_TRY(check_calls(ctx, talk, turn, turn->json, &calls));
    json_t *message = json_copy((json_t *)(uintptr_t)turn->json);
    if (message == NULL) return no_memory(ctx);
    json_object_del(message, "train");
    json_object_del(message, "weight");
    enum ebb_status status =
        check_content(ctx, env, talk, turn, json_string_value(role), message, calls);
    if (status != EBB_OK) {
        json_decref(message);
        return status;
    }
    talk->has_calls |= calls;
    return append(ctx, talk, message, may);
}

static bool is_call(const json_t *call)
{
    const json_t *arguments = json_object_get(call, "arguments");
    return json_is_string(json_object_get(call, "name")) &&
           (json_is_object(arguments) || json_is_string(arguments));
}

/* A call or a list of them to [{type: function, function: call}]. */
static enum ebb_status wrap_calls(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                                  const struct turn *turn, json_t *calls, json_t *wrapped)
{
    size_t count = json_is_array(calls) ? json_array_size(calls) : 1;
    for (size_t i = 0; i < count; i++) {
        json_t *call = json_is_array(calls) ? json_array_get(calls, i) : calls;
        if (!is_call(call))
            return bad_turn(ctx, talk, turn->key, turn->number,
                            "the value of 'function_call' is not JSON of {name, arguments}, or of "
                            "a list of these");
        if (json_array_append_new(wrapped, json_pack("{s:s,s:O}", "type", "function", "function",
                                                     call)) != 0)
            return no_memory(ctx);
    }
    if (count > 0) return EBB_OK;
    return bad_turn(ctx, talk, turn->key, turn->number, "'function_call' has no call");
}

static enum ebb_status add_function_call(struct ebb_ctx *ctx, struct ebb_talk *talk,
                                         const struct turn *turn, const json_t *value, bool may)
{
    char *name =
        ebb_mem_format(ctx, "%s: %s, item %zu: value", talk->where, turn->key, turn->number);
    json_t *calls = NULL, *wrapped = json_array();
    if (name == NULL || wrapped == NULL) {
        ebb_mem_free(ctx, name);
        json_decref(wrapped);
        return no_memory(ctx);
    }
    enum ebb_status status =
        ebb_json_parse(ctx, name, 0, json_string_value(value), json_string_length(value), &calls);
    ebb_mem_free(ctx, name);
    if (status == EBB_OK) status = wrap_calls(ctx, talk, turn, calls, wrapped);
    json_decref(calls);
    if (status != EBB_OK) {
        json_decref(wrapped);
        return status;
    }
    talk->has_calls = true;
    return append(ctx, talk,
                  json_pack("{s:s,s:s,s:o}", "role", "assistant", "content", "", "tool_calls",
                            wrapped),
                  may);
}

/* {from, value} */
static enum ebb_status add_sent(struct ebb_ctx *ctx, struct ebb_talk *talk, const struct turn *turn,
                                bool may)
{
    const json_t *from = json_object_get(turn->json, "from");
    json_t *value = json_object_get(turn->json, "value");
    const struct sender *sender = NULL;
    if (!json_is_string(from))
        return bad_turn(ctx, talk, turn->key, turn->number, "'from' is %s, a string is wanted",
                        ebb_json_kind(from));
    for (size_t i = 0; i < sizeof senders / sizeof senders[0] && sender == NULL; i++)
        if (strcmp(json_string_value(from), senders[i].from) == 0) sender = &senders[i];
    if (sender == NULL)
        return bad_turn(ctx, talk, turn->key, turn->number,
                        "from '%s' is unknown\nknown: %s; dataset_roles says what a data set's "
                        "own names mean",
                        json_string_value(from), senders_text);
    if (!json_is_string(value))
        return bad_turn(ctx, talk, turn->key, turn->number, "'value' is %s, a string is wanted",
                        ebb_json_kind(value));
    if (sender->role == NULL) return add_function_call(ctx, talk, turn, value, may);
    return append(ctx, talk, json_pack("{s:s,s:O}", "role", sender->role, "content", value), may);
}

static enum ebb_status bad_keys(struct ebb_ctx *ctx, const struct ebb_talk *talk,
                                const struct turn *turn)
{
    struct ebb_str keys = {0};
    enum ebb_status status = ebb_json_keys(ctx, turn->json, &keys);
    if (status == EBB_OK)
        status = bad_turn(ctx, talk, turn->key, turn->number,
                          "has neither 'role' and 'content' nor 'from' and 'value' (it has: %s)\n"
                          "dataset_columns: {role: ..., content: ...} names the keys that it has",
                          keys.data);
    ebb_str_free(ctx, &keys);
    return status;
}

static enum ebb_status add_turn(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                struct ebb_talk *talk, const struct turn *turn)
{
    bool may;
    if (!json_is_object(turn->json))
        return bad_turn(ctx, talk, turn->key, turn->number, "%s is here, an object is wanted",
                        ebb_json_kind(turn->json));
    EBB_TRY(read_may(ctx, talk, turn, &may));
    if (json_object_get(turn->json, "role") != NULL) return add_message(ctx, env, talk, turn, may);
    if (json_object_get(turn->json, "from") != NULL) return add_sent(ctx, talk, turn, may);
    return bad_keys(ctx, talk, turn);
}

enum ebb_status ebb_talk_add(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                             struct ebb_talk *talk, const char *key, const json_t *list,
                             size_t begin, size_t end)
{
    if (json_is_object(list)) {
        struct turn turn = {key, 1, list};
        return add_turn(ctx, env, talk, &turn);
    }
    if (!json_is_array(list))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is %s, a list of messages is wanted",
                        talk->where, key, ebb_json_kind(list));
    for (size_t i = begin; i < end; i++) {
        struct turn turn = {key, i + 1, json_array_get(list, i)};
        EBB_TRY(add_turn(ctx, env, talk, &turn));
    }
    return EBB_OK;
}

static bool is_system(const json_t *turn)
{
    const char *role = json_string_value(json_object_get(turn, "role"));
    if (role == NULL) role = json_string_value(json_object_get(turn, "from"));
    return role != NULL && strcmp(role, "system") == 0;
}

enum ebb_status ebb_talk_add_system(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                    struct ebb_talk *talk, const json_t *list)
{
    struct ebb_span text;
    EBB_TRY(ebb_record_text(ctx, record, "system", true, &text));
    if (text.bytes == 0) return EBB_OK;
    if (is_system(json_array_get(list, 0)))
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s has both 'system' and a system turn at the beginning: leave one of "
                        "them",
                        talk->where);
    return ebb_talk_add_text(ctx, talk, "system", text.data, text.bytes);
}
