/* ebb_setup_chat: which chat template, and with which variables.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/setup.h"

#include <string.h>

/* ---- template -------------------------------------------------------------------------------- */

static enum ebb_status set_token(struct ebb_setup *setup, struct ebb_chat_template *chat,
                                 const char *name, int32_t id)
{
    struct ebb_str text = {0};
    if (id < 0 || ebb_chat_template_token(chat, name)) return EBB_OK;
    enum ebb_status status = ebb_tokenizer_piece(setup->ctx, setup->tokenizer, id, &text);
    if (status == EBB_OK && text.bytes > 0)
        status = ebb_chat_template_set_token(setup->ctx, chat, name, text.data);
    ebb_str_free(setup->ctx, &text);
    return status;
}

/* A template that stands alone has no files beside it that say what "bos_token" is. */
static enum ebb_status set_tokens(struct ebb_setup *setup, struct ebb_chat_template *chat)
{
    const struct ebb_tokenizer *tokenizer = setup->tokenizer;
    EBB_TRY(set_token(setup, chat, "bos_token", ebb_tokenizer_bos(tokenizer)));
    EBB_TRY(set_token(setup, chat, "eos_token", ebb_tokenizer_eos(tokenizer)));
    EBB_TRY(set_token(setup, chat, "pad_token", ebb_tokenizer_pad(tokenizer)));
    return set_token(setup, chat, "unk_token", ebb_tokenizer_unk(tokenizer));
}

static enum ebb_status load_template(struct ebb_setup *setup)
{
    const char *path = setup->config->chat_template;
    bool found = false, alone = true;
    if (path)
        EBB_TRY(ebb_chat_template_load(setup->ctx, path, &setup->chat, NULL));
    else if (setup->adapter_dir)
        EBB_TRY(ebb_chat_template_load(setup->ctx, setup->adapter_dir, &setup->chat, &found));
    if (setup->chat == NULL) {
        EBB_TRY(ebb_chat_template_load(setup->ctx, setup->model_dir, &setup->chat, &found));
        alone = false;
    }
    if (setup->chat == NULL) return EBB_OK;
    if (alone) EBB_TRY(set_tokens(setup, setup->chat));
    return ebb_chat_template_use_tokenizer(setup->ctx, setup->chat, setup->tokenizer);
}

/* ---- variables ------------------------------------------------------------------------------- */

static json_t *scalar_json(const struct ebb_yaml *node)
{
    int64_t whole;
    double number;
    if (node->quoted) return json_string(node->text);
    if (strcmp(node->text, "true") == 0) return json_true();
    if (strcmp(node->text, "false") == 0) return json_false();
    if (ebb_text_int64(node->text, &whole)) return json_integer((json_int_t)whole);
    if (ebb_text_double(node->text, &number)) return json_real(number);
    return json_string(node->text);
}

/* NULL when out of memory, or where a text is not UTF-8, which YAML does not let pass. */
static json_t *tree_json(const struct ebb_yaml *node)
{
    if (node->kind == EBB_YAML_NULL) return json_null();
    if (node->kind == EBB_YAML_SCALAR) return scalar_json(node);
    bool map = node->kind == EBB_YAML_MAP;
    json_t *json = map ? json_object() : json_array();
    for (size_t i = 0; json && i < node->count; i++) {
        json_t *item = tree_json(&node->items[i]);
        int failed = map ? json_object_set_new(json, node->items[i].key, item)
                         : json_array_append_new(json, item);
        if (failed) {
            json_decref(json);
            json = NULL;
        }
    }
    return json;
}

static enum ebb_status read_kwargs(struct ebb_setup *setup)
{
    const struct ebb_yaml *tree = setup->config->chat_template_kwargs;
    if (tree == NULL) return EBB_OK;
    if (tree->kind != EBB_YAML_MAP)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "'chat_template_kwargs' wants a mapping, such as {enable_thinking: false}\n"
                        "where: %s",
                        ebb_options_where(setup->options, "chat_template_kwargs"));
    setup->chat_kwargs = tree_json(tree);
    if (setup->chat_kwargs) return EBB_OK;
    return EBB_FAIL(setup->ctx, EBB_NO_MEMORY, "out of host memory for chat_template_kwargs");
}

enum ebb_status ebb_setup_chat(struct ebb_setup *setup)
{
    if (setup->chat) return EBB_OK;
    EBB_TRY(load_template(setup));
    return setup->chat_kwargs ? EBB_OK : read_kwargs(setup);
}
