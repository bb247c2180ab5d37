/* eval_prompts: a list of texts, or a file of them, through the tokenizer or the chat template.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/eval_prompts.h"

#include <string.h>

#include "base/file.h"
#include "train/conversation.h"

struct reader {
    struct ebb_setup *setup;
    bool chat; /* texts are what a user says */
};

/* ---- one prompt ------------------------------------------------------------------------------ */

static enum ebb_status need_template(struct reader *r, const char *where)
{
    EBB_TRY(ebb_setup_chat(r->setup));
    if (r->setup->chat) return EBB_OK;
    return EBB_FAIL(r->setup->ctx, EBB_BAD_CONFIG,
                    "%s: messages need a chat template, and '%s' has none\n"
                    "try:   prompts as texts, which are continued as they are",
                    where, r->setup->model_dir);
}

static bool is_assistant(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

/* The last message's text stands for the prompt. */
static const char *shown_text(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *text = json_string_value(json_object_get(last, "content"));
    return text ? text : "...";
}

/* Takes over what *ids holds. */
static enum ebb_status add_ids(struct reader *r, const char *where, const char *text,
                               struct ebb_ids *ids, int32_t end)
{
    struct ebb_setup *setup = r->setup;
    if (ids->count == 0)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG, "%s: the prompt has no tokens", where);
    return ebb_samples_add(setup->ctx, &setup->samples, text, ids, end);
}

/* Takes the assistant's last message out of *messages. */
static enum ebb_status add_messages(struct reader *r, const char *where, json_t *messages)
{
    struct ebb_setup *setup = r->setup;
    struct ebb_str text = {0};
    struct ebb_ids ids = {0};
    int32_t end = -1;
    EBB_TRY(need_template(r, where));
    struct ebb_chat_options options = {.add_generation_prompt = true,
                                       .kwargs = setup->chat_kwargs,
                                       .jinja = {.now = setup->now}};
    size_t count = json_array_size(messages);
    if (count > 0 && is_assistant(json_array_get(messages, count - 1)))
        json_array_remove(messages, count - 1);
    enum ebb_status status =
        ebb_chat_render(setup->ctx, setup->chat, where, messages, &options, &text, NULL);
    if (status == EBB_OK)
        status = ebb_tokenizer_encode(setup->ctx, setup->tokenizer, text.data ? text.data : "",
                                      text.bytes, 0, &ids);
    if (status == EBB_OK)
        status = ebb_conversation_end_token(setup->ctx, setup->tokenizer, setup->chat,
                                            setup->chat_kwargs, messages, &end);
    if (status == EBB_OK) status = add_ids(r, where, shown_text(messages), &ids, end);
    ebb_ids_free(setup->ctx, &ids);
    ebb_str_free(setup->ctx, &text);
    return status;
}

static enum ebb_status add_text(struct reader *r, const char *where, const char *text)
{
    struct ebb_setup *setup = r->setup;
    struct ebb_ids ids = {0};
    if (r->chat) {
        json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", text);
        if (messages == NULL) return EBB_FAIL(setup->ctx, EBB_NO_MEMORY, "out of host memory");
        enum ebb_status status = add_messages(r, where, messages);
        json_decref(messages);
        return status;
    }
    enum ebb_status status = ebb_tokenizer_encode(setup->ctx, setup->tokenizer, text, strlen(text),
                                                  EBB_ENCODE_PREFIX, &ids);
    if (status == EBB_OK)
        status = add_ids(r, where, text, &ids, ebb_tokenizer_eos(setup->tokenizer));
    ebb_ids_free(setup->ctx, &ids);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A line of JSON: {"messages": [...]}, {"prompt": [...]} or {"prompt": "text"}. */
static enum ebb_status add_json(struct reader *r, const char *where, json_t *record)
{
    json_t *value = json_object_get(record, "messages");
    if (value == NULL) value = json_object_get(record, "prompt");
    if (json_is_array(value)) return add_messages(r, where, value);
    if (json_is_string(value)) return add_text(r, where, json_string_value(value));
    return EBB_FAIL(r->setup->ctx, EBB_BAD_FILE,
                    "%s: an object with a list 'messages', or with 'prompt', is wanted", where);
}

static enum ebb_status add_line(struct reader *r, const char *path, int line, bool json,
                                const char *data, size_t bytes)
{
    struct ebb_ctx *ctx = r->setup->ctx;
    json_t *record;
    enum ebb_status status;
    char *where = ebb_mem_format(ctx, "%s:%d", path, line);
    char *text = ebb_mem_strndup(ctx, data, bytes);
    if (where == NULL || text == NULL) {
        status = EBB_NO_MEMORY;
    } else if (json) {
        status = ebb_json_parse(ctx, path, line - 1, data, bytes, &record);
        if (status == EBB_OK) {
            status = add_json(r, where, record);
            json_decref(record);
        }
    } else if (memchr(data, 0, bytes) || ebb_text_utf8_valid(data, bytes) != bytes) {
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: the prompt is not UTF-8 text", where);
    } else {
        status = add_text(r, where, text);
    }
    ebb_mem_free(ctx, text);
    ebb_mem_free(ctx, where);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), tail = strlen(end);
    return bytes >= tail && strcmp(text + bytes - tail, end) == 0;
}

static enum ebb_status add_file(struct reader *r, const char *path)
{
    struct ebb_map map;
    enum ebb_status status = EBB_OK;
    EBB_TRY(ebb_map_open(r->setup->ctx, path, &map));
    const char *at = (const char *)map.data, *end = at + map.bytes;
    if (map.bytes >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) at += 3; /* byte order mark */
    for (int line = 1; status == EBB_OK && at < end; line++) {
        const char *stop = (const char *)memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((stop ? stop : end) - at);
        if (bytes > 0 && at[bytes - 1] == '\r') bytes--;
        if (bytes > 0) status = add_line(r, path, line, ends_with(path, ".jsonl"), at, bytes);
        at = stop ? stop + 1 : end;
    }
    ebb_map_close(&map);
    if (status == EBB_OK && r->setup->samples.count == 0)
        return EBB_FAIL(r->setup->ctx, EBB_BAD_FILE, "%s: there is no prompt in it", path);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static enum ebb_status add_all(struct reader *r)
{
    struct ebb_setup *setup = r->setup;
    const struct ebb_yaml *tree = setup->config->eval_prompts;
    if (tree->kind == EBB_YAML_SCALAR && !ebb_file_exists(tree->text))
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "there is no file '%s' with prompts\n"
                        "where: %s\n"
                        "try:   eval_prompts: [TEXT, ...] for prompts themselves",
                        tree->text, ebb_options_where(setup->options, "eval_prompts"));
    if (tree->kind == EBB_YAML_SCALAR) return add_file(r, tree->text);
    for (size_t i = 0; i < tree->count; i++)
        EBB_TRY(add_text(r, "eval_prompts", tree->items[i].text));
    return EBB_OK;
}

static enum ebb_status request_cache(struct ebb_setup *setup)
{
    int64_t tokens = ebb_samples_cache_tokens(&setup->samples);
    if (tokens > setup->model->max_positions)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "the longest of eval_prompts and eval_max_new_tokens %lld are %lld tokens "
                        "together, more than the model's %lld positions\n"
                        "where: %s",
                        (long long)setup->samples.max_new_tokens, (long long)tokens,
                        (long long)setup->model->max_positions,
                        ebb_options_where(setup->options, "eval_prompts"));
    setup->request.decode = true;
    setup->request.capacity.cache_tokens = tokens;
    return EBB_OK;
}

enum ebb_status ebb_setup_samples(struct ebb_setup *setup, bool chat)
{
    struct reader reader = {.setup = setup, .chat = chat};
    if (setup->config->eval_prompts == NULL) return EBB_OK;
    setup->samples.max_new_tokens = setup->config->eval_max_new_tokens;
    setup->samples.tokenizer = setup->tokenizer;
    EBB_TRY(add_all(&reader));
    return request_cache(setup);
}
