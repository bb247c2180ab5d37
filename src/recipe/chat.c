/* chat_template and chat_template_kwargs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/chat.h"

#include <string.h>

#include "base/file.h"

bool ebb_chat_is_other(const struct ebb_config *config)
{
    /* "tokenizer_default" is Axolotl's name for the model's own. */
    return strcmp(config->chat_template, "auto") != 0 &&
           strcmp(config->chat_template, "tokenizer_default") != 0;
}

/* ---- variables ------------------------------------------------------------------------------- */

enum ebb_status ebb_chat_check(struct ebb_ctx *ctx, struct ebb_options *options,
                               const struct ebb_config *config)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    const struct ebb_yaml *tree = config->chat_template_kwargs;
    const char *key = "chat_template_kwargs";
    if (config->chat_template[0] == 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'chat_template' is empty\nwhere: %s\nhelp:  ebb help chat_template",
                        ebb_options_where(options, "chat_template"));
    if (tree == NULL) return EBB_OK;
    bool argument = ebb_options_origin(options, key).kind == EBB_ORIGIN_ARGUMENT;
    const char *name = argument ? "command line" : ebb_options_path(options);
    if (tree->kind != EBB_YAML_MAP)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'%s' wants a mapping: {enable_thinking: false}\nwhere: %s:%d:%d", key,
                        name, tree->line, tree->column);
    for (size_t i = 0; i < tree->count; i++)
        for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
            if (strcmp(tree->items[i].key, own[k]) == 0)
                return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                                "'%s' cannot set '%s', which each conversation has of its own\n"
                                "where: %s:%d:%d",
                                key, own[k], name, tree->items[i].key_line,
                                tree->items[i].key_column);
    return EBB_OK;
}

enum ebb_status ebb_chat_kwargs(struct ebb_ctx *ctx, const struct ebb_config *config,
                                json_t **kwargs)
{
    *kwargs = NULL;
    if (config->chat_template_kwargs == NULL) return EBB_OK;
    *kwargs = ebb_options_tree_json(config->chat_template_kwargs);
    if (*kwargs) return EBB_OK;
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for chat_template_kwargs");
}

/* ---- the template ---------------------------------------------------------------------------- */

/* The model's own. One that cannot be run does not stop a run that needs none. */
static enum ebb_status load_own(struct ebb_ctx *ctx, const char *model_dir,
                                struct ebb_chat_template **chat)
{
    bool found = false;
    enum ebb_status status = ebb_chat_template_load(ctx, model_dir, chat, &found);
    if (status == EBB_OK || status == EBB_NO_MEMORY) return status;
    ebb_log(ctx, EBB_LOG_WARNING, "data", "the model's chat template is not used: %s",
            ebb_error_text(ctx));
    ebb_error_clear(ctx);
    *chat = NULL;
    return EBB_OK;
}

static bool looks_like_a_path(const char *name)
{
    const char *end = strrchr(name, '.');
    return strchr(name, '/') || (end && (strcmp(end, ".jinja") == 0 || strcmp(end, ".json") == 0));
}

/* Neither a file nor a directory nor built in. */
static enum ebb_status fail_name(struct ebb_ctx *ctx, struct ebb_options *options,
                                 ebb_chat_builtin_fn builtin, const char *name)
{
    struct ebb_str names = {0};
    const char *one;
    enum ebb_status status = EBB_OK;
    if (looks_like_a_path(name))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "there is no chat template '%s'\nwhere: %s", name,
                        ebb_options_where(options, "chat_template"));
    for (int i = 0; status == EBB_OK && builtin && builtin(i, &one); i++)
        status = ebb_str_addf(ctx, &names, "%s%s", i ? ", " : "", one);
    if (status == EBB_OK)
        status = EBB_FAIL(ctx, EBB_BAD_CONFIG,
                          "chat_template '%s' is neither built in nor a file or directory\n"
                          "where: %s\n"
                          "try:   one of: %s; or FILE.jinja; or auto for the model's own",
                          name, ebb_options_where(options, "chat_template"),
                          names.data ? names.data : "(none)");
    ebb_str_free(ctx, &names);
    return status;
}

static enum ebb_status load_other(struct ebb_ctx *ctx, struct ebb_options *options,
                                  const char *name, ebb_chat_builtin_fn builtin,
                                  struct ebb_chat_template **chat)
{
    const char *one, *text;
    for (int i = 0; builtin && (text = builtin(i, &one)) != NULL; i++)
        if (strcmp(one, name) == 0)
            return ebb_chat_template_create(ctx, name, text, strlen(text), chat);
    if (ebb_file_exists(name) || ebb_dir_exists(name))
        return ebb_chat_template_load(ctx, name, chat, NULL);
    return fail_name(ctx, options, builtin, name);
}

/* Special tokens are the model's, whatever files a template comes with: it will be used beside this
 * tokenizer. */
static enum ebb_status take_tokens(struct ebb_ctx *ctx, struct ebb_chat_template *chat,
                                   const struct ebb_tokenizer *tokenizer)
{
    const struct {
        const char *name;
        int32_t id;
    } tokens[] = {{"bos_token", ebb_tokenizer_bos(tokenizer)},
                  {"eos_token", ebb_tokenizer_eos(tokenizer)},
                  {"pad_token", ebb_tokenizer_pad(tokenizer)},
                  {"unk_token", ebb_tokenizer_unk(tokenizer)}};
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        size_t bytes = 0;
        const char *text =
            tokens[i].id < 0 ? NULL : ebb_tokenizer_text(tokenizer, tokens[i].id, &bytes);
        char *copy = text ? ebb_mem_strndup(ctx, text, bytes) : NULL;
        if (text && !copy) return EBB_NO_MEMORY;
        enum ebb_status status = ebb_chat_template_set_token(ctx, chat, tokens[i].name, copy);
        ebb_mem_free(ctx, copy);
        EBB_TRY(status);
    }
    return EBB_OK;
}

enum ebb_status ebb_chat_load(struct ebb_ctx *ctx, struct ebb_options *options,
                              const struct ebb_config *config, ebb_chat_builtin_fn builtin,
                              const char *model_dir, const struct ebb_tokenizer *tokenizer,
                              struct ebb_chat_template **chat)
{
    *chat = NULL;
    if (!ebb_chat_is_other(config)) {
        EBB_TRY(load_own(ctx, model_dir, chat));
        return *chat ? ebb_chat_template_use_tokenizer(ctx, *chat, tokenizer) : EBB_OK;
    }
    enum ebb_status status = load_other(ctx, options, config->chat_template, builtin, chat);
    if (status == EBB_OK) status = take_tokens(ctx, *chat, tokenizer);
    if (status == EBB_OK) status = ebb_chat_template_use_tokenizer(ctx, *chat, tokenizer);
    if (status != EBB_OK) {
        ebb_chat_template_free(ctx, *chat);
        *chat = NULL;
    }
    return status;
}
