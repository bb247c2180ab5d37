/* Post-processors: the ids that stand before and after a text.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/tokenizer_int.h"

/* Appends the ids of one special token of the template. */
static enum ebb_status add_special(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                   const json_t *node, const char *name, int32_t *list, int *count)
{
    const json_t *ids =
        json_object_get(json_object_get(json_object_get(node, "special_tokens"), name), "ids");
    if (json_array_size(ids) == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: TemplateProcessing: special_tokens has no 'ids' for '%s'", tok->path,
                        name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= tok->size)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: TemplateProcessing: an id of '%s' is no token's", tok->path, name);
        if (*count == EBB_TOK_AROUND)
            return ebb_tok_refuse(ctx, tok, "post_processor TemplateProcessing",
                                  "with more than 8 tokens on a side");
        list[(*count)++] = (int32_t)json_integer_value(id);
    }
    return EBB_OK;
}

static enum ebb_status read_template(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                     const json_t *node)
{
    const json_t *single = json_object_get(node, "single");
    bool behind = false;
    if (tok->templated)
        return ebb_tok_refuse(ctx, tok, "post_processor", "with two TemplateProcessing steps");
    tok->templated = true;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(json_object_get(piece, "SpecialToken"), "id");
        const json_t *sequence = json_object_get(json_object_get(piece, "Sequence"), "id");
        if (json_is_string(special)) {
            EBB_TRY(add_special(ctx, tok, node, json_string_value(special),
                                behind ? tok->suffix : tok->prefix,
                                behind ? &tok->suffix_count : &tok->prefix_count));
        } else if (json_is_string(sequence) && strcmp(json_string_value(sequence), "A") == 0 &&
                   !behind) {
            behind = true;
        } else {
            return ebb_tok_refuse(ctx, tok, "post_processor TemplateProcessing",
                                  "whose 'single' is not special tokens around one sequence A");
        }
    }
    if (behind) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: TemplateProcessing: 'single' has no sequence A",
                    tok->path);
}

/* It only moves offsets, which Ebb has no use for. */
static enum ebb_status read_byte_level(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                       const json_t *node)
{
    (void)ctx, (void)tok, (void)node;
    return EBB_OK;
}

static const struct ebb_tok_component components[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", read_byte_level},
    {"TemplateProcessing", "single pair special_tokens", read_template},
};

static const struct ebb_tok_family family = {"post_processor", "processors", components,
                                             sizeof components / sizeof components[0]};

const struct ebb_tok_family *ebb_tok_post_processors(void)
{
    return &family;
}
