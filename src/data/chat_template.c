/* Loading chat templates and rendering conversations with them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/chat_template.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "data/chat_template_int.h"

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};
enum { TOKEN_NAMES = sizeof token_names / sizeof token_names[0] };

static enum ebb_status no_memory(struct ebb_ctx *ctx)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for a chat template's data");
}

/* ---- templates ---- */

static enum ebb_status create(struct ebb_ctx *ctx, const char *name,
                              struct ebb_chat_template **chat)
{
    *chat = (struct ebb_chat_template *)ebb_mem_alloc(ctx, sizeof **chat);
    if (*chat == NULL) return EBB_NO_MEMORY;
    (*chat)->name = ebb_mem_strdup(ctx, name);
    (*chat)->tokens = json_object();
    (*chat)->specials = json_object();
    if ((*chat)->name != NULL && (*chat)->tokens != NULL && (*chat)->specials != NULL)
        return EBB_OK;
    ebb_chat_template_free(ctx, *chat);
    *chat = NULL;
    return no_memory(ctx);
}

void ebb_chat_template_free(struct ebb_ctx *ctx, struct ebb_chat_template *chat)
{
    if (chat == NULL) return;
    ebb_jinja_free(ctx, chat->plain);
    ebb_jinja_free(ctx, chat->tool_use);
    ebb_str_free(ctx, &chat->text);
    ebb_str_free(ctx, &chat->tool_text);
    json_decref(chat->tokens);
    json_decref(chat->specials);
    ebb_mem_free(ctx, chat->name);
    ebb_mem_free(ctx, chat);
}

/* Templates of other names ("rag") are for other uses than conversations. */
static enum ebb_status add_template(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                    const char *source, const char *name, const char *text,
                                    size_t bytes)
{
    struct ebb_jinja **place = strcmp(name, "default") == 0    ? &chat->plain
                               : strcmp(name, "tool_use") == 0 ? &chat->tool_use
                                                               : NULL;
    if (place == NULL) return EBB_OK;
    if (*place != NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: two chat templates named '%s'", source, name);
    EBB_TRY(ebb_str_add(ctx, place == &chat->plain ? &chat->text : &chat->tool_text, text, bytes));
    return ebb_jinja_compile(ctx, source, text, bytes, place);
}

enum ebb_status ebb_chat_template_create(struct ebb_ctx *ctx, const char *name, const char *text,
                                         size_t bytes, struct ebb_chat_template **chat)
{
    EBB_TRY(create(ctx, name, chat));
    enum ebb_status status = add_template(ctx, *chat, name, "default", text, bytes);
    if (status != EBB_OK) {
        ebb_chat_template_free(ctx, *chat);
        *chat = NULL;
    }
    return status;
}

const char *ebb_chat_template_text(const struct ebb_chat_template *chat, bool tool_use,
                                   size_t *bytes)
{
    const struct ebb_str *text = tool_use ? &chat->tool_text : &chat->text;
    bool there = (tool_use ? chat->tool_use : chat->plain) != NULL;
    *bytes = text->bytes;
    return !there ? NULL : text->data ? text->data : "";
}

static uint64_t mix_hash(uint64_t hash, const char *text, size_t bytes)
{
    const uint64_t both[] = {hash, text == NULL ? 0 : ebb_hash_bytes(text, bytes)};
    return ebb_hash_bytes(both, sizeof both);
}

uint64_t ebb_chat_template_hash(const struct ebb_chat_template *chat, int64_t now)
{
    static const char word[] = "strftime_now";
    uint64_t hash = 0;
    bool asks_time = false;
    for (int tool_use = 0; tool_use < 2; tool_use++) {
        size_t bytes;
        const char *text = ebb_chat_template_text(chat, tool_use, &bytes);
        hash = mix_hash(hash, text, bytes);
        asks_time = asks_time || (text != NULL && memmem(text, bytes, word, strlen(word)) != NULL);
    }
    const char *name;
    size_t name_bytes;
    json_t *value;
    json_object_keylen_foreach(chat->tokens, name, name_bytes, value)
    {
        hash = mix_hash(hash, name, name_bytes);
        hash = mix_hash(hash, json_string_value(value), json_string_length(value));
    }
    json_object_keylen_foreach(chat->specials, name, name_bytes, value) hash =
        mix_hash(hash, name, name_bytes);
    if (!asks_time) return hash;
    struct tm day;
    time_t seconds = now != 0 ? (time_t)now : time(NULL);
    if (localtime_r(&seconds, &day) == NULL) return hash;
    const int parts[] = {day.tm_year, day.tm_yday};
    return mix_hash(hash, (const char *)parts, sizeof parts);
}

const struct ebb_jinja *ebb_chat_template_for(const struct ebb_chat_template *chat,
                                              const struct ebb_chat_options *options)
{
    if (options->tools != NULL && !json_is_null(options->tools) && chat->tool_use != NULL)
        return chat->tool_use;
    return chat->plain;
}

/* ---- files ---- */

/* The value of the key chat_template: a text, a list of {name, template}, or {name: template}. */
static enum ebb_status add_from_json(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                     const char *path, json_t *value)
{
    const char *name;
    json_t *one;
    size_t i;
    if (json_is_string(value))
        return add_template(ctx, chat, path, "default", json_string_value(value),
                            json_string_length(value));
    if (json_is_object(value)) {
        json_object_foreach(value, name, one)
        {
            if (!json_is_string(one))
                return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: chat_template: '%s' is not a string", path,
                                name);
            EBB_TRY(add_template(ctx, chat, path, name, json_string_value(one),
                                 json_string_length(one)));
        }
        return EBB_OK;
    }
    if (!json_is_array(value))
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: chat_template is neither a string nor a list of templates", path);
    json_array_foreach(value, i, one)
    {
        const char *text;
        EBB_TRY(ebb_json_string(ctx, path, one, "name", &name, NULL));
        EBB_TRY(ebb_json_string(ctx, path, one, "template", &text, NULL));
        EBB_TRY(add_template(ctx, chat, path, name, text,
                             json_string_length(json_object_get(one, "template"))));
    }
    return EBB_OK;
}

static enum ebb_status add_from_file(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                     const char *path, const char *name)
{
    struct ebb_map map;
    EBB_TRY(ebb_map_open(ctx, path, &map));
    enum ebb_status status =
        add_template(ctx, chat, path, name, map.data != NULL ? (const char *)map.data : "",
                     map.bytes);
    ebb_map_close(&map);
    return status;
}

/* A file beside others in the directory, or NULL where it is not there; the caller frees. */
static enum ebb_status path_in(struct ebb_ctx *ctx, const char *dir, const char *name, char **path)
{
    *path = ebb_path_join(ctx, dir, name);
    if (*path == NULL) return EBB_NO_MEMORY;
    if (ebb_file_exists(*path)) return EBB_OK;
    ebb_mem_free(ctx, *path);
    *path = NULL;
    return EBB_OK;
}

static enum ebb_status try_jinja(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                 const char *dir, const char *file, const char *name)
{
    char *path;
    EBB_TRY(path_in(ctx, dir, file, &path));
    if (path == NULL) return EBB_OK;
    enum ebb_status status = add_from_file(ctx, chat, path, name);
    ebb_mem_free(ctx, path);
    return status;
}

/* A JSON file with templates, tokens or both. */
static enum ebb_status read_json(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                 const char *path, bool templates, bool tokens);

static enum ebb_status try_json(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                const char *dir, const char *file, bool templates, bool tokens)
{
    char *path;
    EBB_TRY(path_in(ctx, dir, file, &path));
    if (path == NULL) return EBB_OK;
    enum ebb_status status = read_json(ctx, chat, path, templates, tokens);
    ebb_mem_free(ctx, path);
    return status;
}

static bool has_template(const struct ebb_chat_template *chat)
{
    return chat->plain != NULL || chat->tool_use != NULL;
}

static enum ebb_status read_dir(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                const char *dir)
{
    EBB_TRY(try_jinja(ctx, chat, dir, "chat_template.jinja", "default"));
    EBB_TRY(try_jinja(ctx, chat, dir, "additional_chat_templates/tool_use.jinja", "tool_use"));
    EBB_TRY(try_json(ctx, chat, dir, "tokenizer_config.json", !has_template(chat), true));
    EBB_TRY(try_json(ctx, chat, dir, "special_tokens_map.json", false, true));
    return try_json(ctx, chat, dir, "chat_template.json", !has_template(chat), false);
}

enum ebb_status ebb_chat_template_load(struct ebb_ctx *ctx, const char *path,
                                       struct ebb_chat_template **chat, bool *found)
{
    size_t bytes = strlen(path);
    bool is_json = bytes > 5 && strcmp(path + bytes - 5, ".json") == 0;
    EBB_TRY(create(ctx, path, chat));
    enum ebb_status status = ebb_dir_exists(path) ? read_dir(ctx, *chat, path)
                             : is_json            ? read_json(ctx, *chat, path, true, true)
                                                  : add_from_file(ctx, *chat, path, "default");
    bool has = status == EBB_OK && has_template(*chat);
    if (status == EBB_OK && !has && found == NULL)
        status = EBB_FAIL(ctx, EBB_BAD_FILE,
                          "%s: no chat template is here (chat_template.jinja, or chat_template in "
                          "tokenizer_config.json)",
                          path);
    if (found != NULL) *found = has;
    if (has) return EBB_OK;
    ebb_chat_template_free(ctx, *chat);
    *chat = NULL;
    return status;
}

static enum ebb_status save_one(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                bool tool_use, const char *dir, const char *name)
{
    size_t bytes;
    const char *text = ebb_chat_template_text(chat, tool_use, &bytes);
    char *path = ebb_path_join(ctx, dir, name);
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    if (text != NULL)
        status = ebb_file_write(ctx, path, text, bytes);
    else if (unlink(path) != 0 && errno != ENOENT)
        status = EBB_FAIL(ctx, EBB_IO, "cannot remove '%s': %s", path, strerror(errno));
    ebb_mem_free(ctx, path);
    return status;
}

enum ebb_status ebb_chat_template_save(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                       const char *dir)
{
    char *more = ebb_path_join(ctx, dir, "additional_chat_templates");
    if (more == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = save_one(ctx, chat, false, dir, "chat_template.jinja");
    if (status == EBB_OK && chat->tool_use != NULL) status = ebb_dir_create(ctx, more);
    if (status == EBB_OK && ebb_dir_exists(more))
        status = save_one(ctx, chat, true, more, "tool_use.jinja");
    ebb_mem_free(ctx, more);
    return status;
}

/* ---- special tokens ---- */

static enum ebb_status add_special(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                   const char *text, size_t bytes)
{
    if (bytes == 0) return EBB_OK;
    if (json_object_setn_new_nocheck(chat->specials, text, bytes, json_null()) != 0)
        return no_memory(ctx);
    return EBB_OK;
}

/* "<s>" or {"content": "<s>", ...}; NULL for anything else. */
static const json_t *token_text(const json_t *value)
{
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_is_string(value) ? value : NULL;
}

/* Lists of further special tokens, and the table of added ones. */
static enum ebb_status read_specials(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                     const json_t *config)
{
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    const char *id;
    json_t *one;
    size_t i;
    for (size_t k = 0; k < 2; k++) {
        json_array_foreach(json_object_get(config, lists[k]), i, one)
        {
            const json_t *text = token_text(one);
            if (text != NULL)
                EBB_TRY(add_special(ctx, chat, json_string_value(text), json_string_length(text)));
        }
    }
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), id, one)
    {
        const json_t *text = token_text(one);
        if (text != NULL && json_is_true(json_object_get(one, "special")))
            EBB_TRY(add_special(ctx, chat, json_string_value(text), json_string_length(text)));
    }
    return EBB_OK;
}

static enum ebb_status read_tokens(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                   const json_t *config)
{
    for (int i = 0; i < (int)TOKEN_NAMES; i++) {
        const json_t *value = json_object_get(config, token_names[i]), *text = token_text(value);
        /* A null says that there is none, whatever a later file says. */
        if (value == NULL || json_object_get(chat->tokens, token_names[i]) != NULL) continue;
        if (text != NULL)
            EBB_TRY(
                ebb_chat_template_set_token(ctx, chat, token_names[i], json_string_value(text)));
        else if (json_object_set_new(chat->tokens, token_names[i], json_null()) != 0)
            return no_memory(ctx);
    }
    return read_specials(ctx, chat, config);
}

static enum ebb_status read_json(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                 const char *path, bool templates, bool tokens)
{
    json_t *config;
    enum ebb_status status = EBB_OK;
    EBB_TRY(ebb_json_load(ctx, path, &config));
    json_t *template = json_object_get(config, "chat_template");
    if (!json_is_object(config))
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: an object is wanted", path);
    if (status == EBB_OK && templates && template != NULL && !json_is_null(template))
        status = add_from_json(ctx, chat, path, template);
    if (status == EBB_OK && tokens) status = read_tokens(ctx, chat, config);
    json_decref(config);
    return status;
}

enum ebb_status ebb_chat_template_set_token(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                            const char *name, const char *text)
{
    if (text == NULL) {
        json_object_del(chat->tokens, name);
        return EBB_OK;
    }
    if (json_object_set_new(chat->tokens, name, json_string(text)) != 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s is not UTF-8", chat->name, name);
    return add_special(ctx, chat, text, strlen(text));
}

const char *ebb_chat_template_token(const struct ebb_chat_template *chat, const char *name)
{
    return json_string_value(json_object_get(chat->tokens, name));
}

enum ebb_status ebb_chat_template_use_tokenizer(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                                const struct ebb_tokenizer *tokenizer)
{
    for (int64_t id = 0; id < ebb_tokenizer_vocab_size(tokenizer); id++) {
        size_t bytes;
        if (!ebb_tokenizer_is_special(tokenizer, (int32_t)id)) continue;
        const char *text = ebb_tokenizer_text(tokenizer, (int32_t)id, &bytes);
        if (text != NULL) EBB_TRY(add_special(ctx, chat, text, bytes));
    }
    return EBB_OK;
}

/* ---- defaults ---- */

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* An identifier that no template would read as a word of the language. */
static bool is_variable_name(const char *name)
{
    static const char *const words[] = {"and",  "or",    "not",  "is",   "in",    "if",  "else",
                                        "true", "false", "none", "True", "False", "None"};
    if (name[0] == '\0' || (name[0] >= '0' && name[0] <= '9')) return false;
    for (const char *at = name; *at != '\0'; at++) {
        bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '_';
        bool digit = *at >= '0' && *at <= '9';
        if (!letter && !digit && (unsigned char)*at < 0x80) return false;
    }
    return !is_one_of(name, words, sizeof words / sizeof words[0]);
}

/* Defined without any kwargs: asking whether it is would keep the default from being used. */
static bool is_always_defined(const struct ebb_chat_template *chat, const char *name)
{
    static const char *const functions[] = {"range",  "dict",   "namespace",       "cycler",
                                            "joiner", "lipsum", "raise_exception", "strftime_now"};
    return json_object_get(chat->tokens, name) != NULL ||
           is_one_of(name, token_names, TOKEN_NAMES) ||
           is_one_of(name, functions, sizeof functions / sizeof functions[0]);
}

static enum ebb_status add_text(struct ebb_ctx *ctx, struct ebb_str *out, const char *text)
{
    return ebb_str_add(ctx, out, text, strlen(text));
}

/* A value as Jinja writes it: as JSON does, but for null. */
static enum ebb_status add_literal(struct ebb_ctx *ctx, json_t *value, struct ebb_str *out)
{
    const char *key;
    size_t key_bytes, i;
    json_t *one;
    bool first = true;
    if (json_is_null(value)) return add_text(ctx, out, "none");
    if (json_is_array(value)) {
        EBB_TRY(add_text(ctx, out, "["));
        json_array_foreach(value, i, one)
        {
            if (i > 0) EBB_TRY(add_text(ctx, out, ", "));
            EBB_TRY(add_literal(ctx, one, out));
        }
        return add_text(ctx, out, "]");
    }
    if (!json_is_object(value)) return ebb_json_text(ctx, value, 0, out);
    EBB_TRY(add_text(ctx, out, "{"));
    json_object_keylen_foreach(value, key, key_bytes, one)
    {
        json_t *name = json_stringn(key, key_bytes);
        enum ebb_status status = name == NULL ? no_memory(ctx) : EBB_OK;
        if (status == EBB_OK && !first) status = add_text(ctx, out, ", ");
        if (status == EBB_OK) status = ebb_json_text(ctx, name, 0, out);
        json_decref(name);
        EBB_TRY(status);
        EBB_TRY(add_text(ctx, out, ": "));
        EBB_TRY(add_literal(ctx, one, out));
        first = false;
    }
    return add_text(ctx, out, "}");
}

static enum ebb_status add_defaults(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                    const json_t *kwargs, struct ebb_str *out)
{
    const char *name;
    json_t *value, *object = (json_t *)(uintptr_t)kwargs;
    json_object_foreach(object, name, value)
    {
        bool asks = !is_always_defined(chat, name);
        if (!is_variable_name(name)) continue;
        if (asks) EBB_TRY(ebb_str_addf(ctx, out, "{%%- if %s is not defined %%}", name));
        EBB_TRY(ebb_str_addf(ctx, out, "{%% set %s = ", name));
        EBB_TRY(add_literal(ctx, value, out));
        EBB_TRY(add_text(ctx, out, asks ? " %}{% endif %}" : " %}"));
    }
    return EBB_OK;
}

/* A newline behind a tag is the tag's (trim_blocks), and blanks before a tag go where they begin a
 * line (lstrip_blocks): a template that begins with either begins on a line of its own. */
static enum ebb_status add_with_defaults(struct ebb_ctx *ctx, const struct ebb_str *defaults,
                                         const struct ebb_str *text, struct ebb_str *out)
{
    bool there = text->bytes >= defaults->bytes &&
                 (defaults->bytes == 0 || memcmp(text->data, defaults->data, defaults->bytes) == 0);
    if (!there) EBB_TRY(ebb_str_add(ctx, out, defaults->data, defaults->bytes));
    if (!there && text->bytes > 0 && ((unsigned char)text->data[0] <= ' ' || text->data[0] < 0))
        EBB_TRY(add_text(ctx, out, "\n"));
    return ebb_str_add(ctx, out, text->data, text->bytes);
}

enum ebb_status ebb_chat_template_with_defaults(struct ebb_ctx *ctx,
                                                const struct ebb_chat_template *chat,
                                                const json_t *kwargs,
                                                struct ebb_chat_template **made)
{
    struct ebb_str defaults = {0};
    EBB_TRY(create(ctx, chat->name, made));
    enum ebb_status status = add_defaults(ctx, chat, kwargs, &defaults);
    for (int tools = 0; status == EBB_OK && tools < 2; tools++) {
        struct ebb_str text = {0};
        if ((tools ? chat->tool_use : chat->plain) == NULL) continue;
        status = add_with_defaults(ctx, &defaults, tools ? &chat->tool_text : &chat->text, &text);
        if (status == EBB_OK)
            status = add_template(ctx, *made, chat->name, tools ? "tool_use" : "default",
                                  text.data != NULL ? text.data : "", text.bytes);
        ebb_str_free(ctx, &text);
    }
    ebb_str_free(ctx, &defaults);
    if (status == EBB_OK && (json_object_update((*made)->tokens, chat->tokens) != 0 ||
                             json_object_update((*made)->specials, chat->specials) != 0))
        status = no_memory(ctx);
    if (status == EBB_OK) return EBB_OK;
    ebb_chat_template_free(ctx, *made);
    *made = NULL;
    return status;
}

/* ---- rendering ---- */

/* The names under which data has reasoning, the usual one first. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

/* One message as templates see it. New reference; NULL: no memory. */
static json_t *show_message(const json_t *message, bool keep_nulls)
{
    json_t *shown = json_object(), *reasoning = NULL, *value;
    const char *key;
    bool failed = shown == NULL;
    for (int i = 0; i < 3 && reasoning == NULL; i++) {
        reasoning = json_object_get(message, reasoning_names[i]);
        if (json_is_null(reasoning)) reasoning = NULL;
    }
    /* First of all keys, which shows where a template walks them. */
    if (reasoning != NULL) failed |= json_object_set(shown, "thinking", reasoning) != 0;
    json_t *object = (json_t *)(uintptr_t)message;
    json_object_foreach(object, key, value)
    {
        if (json_is_null(value) && !keep_nulls) continue;
        failed |= json_object_set_nocheck(shown, key, value) != 0;
    }
    if (reasoning != NULL) failed |= json_object_set(shown, "reasoning_content", reasoning) != 0;
    if (!failed) return shown;
    json_decref(shown);
    return NULL;
}

enum ebb_status ebb_chat_messages(struct ebb_ctx *ctx, const char *where, const json_t *messages,
                                  const struct ebb_chat_options *options, json_t **shown)
{
    *shown = NULL;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s", where,
                        json_is_array(messages) ? "the conversation is empty"
                                                : "messages is not a list");
    json_t *made = json_array();
    for (size_t i = 0; made != NULL && i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (!json_is_object(message)) {
            json_decref(made);
            return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: message %zu is not an object", where, i + 1);
        }
        json_t *one = show_message(message, options->keep_nulls);
        if (one == NULL || json_array_append_new(made, one) != 0) {
            json_decref(made);
            made = NULL;
        }
    }
    if (made == NULL) return no_memory(ctx);
    *shown = made;
    return EBB_OK;
}

static enum ebb_status check_objects(struct ebb_ctx *ctx, const char *where, const char *what,
                                     const json_t *list)
{
    if (list == NULL || json_is_null(list)) return EBB_OK;
    if (!json_is_array(list))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s is not a list", where, what);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i)))
            return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s: item %zu is not an object", where, what,
                            i + 1);
    return EBB_OK;
}

static bool set_list(json_t *variables, const char *name, const json_t *list)
{
    if (list == NULL) return json_object_set_new(variables, name, json_null()) == 0;
    return json_object_set(variables, name, (json_t *)(uintptr_t)list) == 0;
}

/* What all renderings have: special tokens, then what the caller adds. Copies of them, since
 * threads render at the same time and a JSON value counts its references without a lock. */
static bool set_shared(json_t *variables, const struct ebb_chat_template *chat,
                       const json_t *kwargs)
{
    const char *name;
    json_t *value;
    bool good = true;
    json_object_foreach(chat->tokens, name, value)
    {
        if (json_is_string(value))
            good &= json_object_set_new(variables, name,
                                        json_stringn_nocheck(json_string_value(value),
                                                             json_string_length(value))) == 0;
    }
    if (kwargs == NULL) return good;
    json_t *copy = json_deep_copy(kwargs);
    good &= json_object_update(variables, copy) == 0;
    json_decref(copy);
    return good;
}

/* What all renderings have, then what a conversation has. */
static enum ebb_status make_variables(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                      const char *where, json_t *shown,
                                      const struct ebb_chat_options *options,
                                      bool generation_prompt, json_t **variables)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    json_t *made = json_object();
    *variables = NULL;
    if (made == NULL) return no_memory(ctx);
    bool good = set_shared(made, chat, options->kwargs);
    for (int i = 0; i < 4; i++) {
        if (json_object_get(options->kwargs, own[i]) == NULL) continue;
        json_decref(made);
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "%s: chat_template_kwargs cannot set '%s'", where,
                        own[i]);
    }
    good &= json_object_set(made, "messages", shown) == 0;
    good &= set_list(made, "tools", options->tools);
    good &= set_list(made, "documents", options->documents);
    good &=
        json_object_set_new(made, "add_generation_prompt", json_boolean(generation_prompt)) == 0;
    if (good) {
        *variables = made;
        return EBB_OK;
    }
    json_decref(made);
    return no_memory(ctx);
}

enum ebb_status ebb_chat_render_shown(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                      const char *where, json_t *shown,
                                      const struct ebb_chat_options *options,
                                      bool generation_prompt, struct ebb_str *out,
                                      struct ebb_jinja_spans *spans)
{
    const struct ebb_jinja *jinja = ebb_chat_template_for(chat, options);
    json_t *variables;
    if (jinja == NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: %s has a chat template for tools only, and there are none", where,
                        chat->name);
    EBB_TRY(make_variables(ctx, chat, where, shown, options, generation_prompt, &variables));
    struct ebb_jinja_options way = options->jinja;
    way.subject = where;
    enum ebb_status status = ebb_jinja_render(ctx, jinja, &way, variables, out, spans);
    json_decref(variables);
    return status;
}

enum ebb_status ebb_chat_render(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                                const char *where, const json_t *messages,
                                const struct ebb_chat_options *options, struct ebb_str *out,
                                struct ebb_jinja_spans *spans)
{
    json_t *shown;
    EBB_TRY(check_objects(ctx, where, "tools", options->tools));
    EBB_TRY(check_objects(ctx, where, "documents", options->documents));
    EBB_TRY(ebb_chat_messages(ctx, where, messages, options, &shown));
    enum ebb_status status = ebb_chat_render_shown(ctx, chat, where, shown, options,
                                                   options->add_generation_prompt, out, spans);
    json_decref(shown);
    return status;
}
