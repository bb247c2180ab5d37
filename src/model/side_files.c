/* What lies beside weights: config.json, generation_config.json, tokenizer and template files.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "model/init_int.h"

static const char *const tokenizer_files[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
};
/* A folder of further templates: chat_template.jinja is the one that all conversations have. */
static const char template_dir[] = "additional_chat_templates";
enum {
    TOKENIZER_FILES = sizeof tokenizer_files / sizeof tokenizer_files[0],
    TOKENIZER_ITSELF = 4 /* one of tokenizer.json, tokenizer.model or vocab.json must be there */
};

bool ebb_path_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Copies one file where it is there. */
static enum ebb_status copy_if_there(struct ebb_ctx *ctx, const char *from, const char *to,
                                     const char *name, bool *there)
{
    enum ebb_status status = EBB_NO_MEMORY;
    char *source = ebb_path_join(ctx, from, name), *target = ebb_path_join(ctx, to, name);
    *there = false;
    if (source && target) {
        *there = ebb_file_exists(source);
        status =
            *there && !ebb_path_same(source, target) ? ebb_file_copy(ctx, source, target) : EBB_OK;
    }
    ebb_mem_free(ctx, source);
    ebb_mem_free(ctx, target);
    return status;
}

bool ebb_model_is_side_file(const char *name)
{
    if (strcmp(name, "config.json") == 0 || strcmp(name, "generation_config.json") == 0 ||
        strcmp(name, template_dir) == 0)
        return true;
    for (int i = 0; i < TOKENIZER_FILES; i++)
        if (strcmp(name, tokenizer_files[i]) == 0) return true;
    return false;
}

/* The .jinja files of a folder. */
static enum ebb_status copy_jinja(struct ebb_ctx *ctx, const char *from, const char *to)
{
    char **names = NULL;
    size_t count = 0;
    bool there;
    EBB_TRY(ebb_dir_list(ctx, from, &names, &count));
    enum ebb_status status = ebb_dir_create(ctx, to);
    for (size_t i = 0; status == EBB_OK && i < count; i++) {
        const char *end = strrchr(names[i], '.');
        if (end && strcmp(end, ".jinja") == 0)
            status = copy_if_there(ctx, from, to, names[i], &there);
    }
    ebb_dir_list_free(ctx, names, count);
    return status;
}

static enum ebb_status copy_template_dir(struct ebb_ctx *ctx, const char *from, const char *to)
{
    enum ebb_status status = EBB_NO_MEMORY;
    char *source = ebb_path_join(ctx, from, template_dir),
         *target = ebb_path_join(ctx, to, template_dir);
    if (source && target)
        status = ebb_dir_exists(source) && !ebb_path_same(source, target)
                     ? copy_jinja(ctx, source, target)
                     : EBB_OK;
    ebb_mem_free(ctx, source);
    ebb_mem_free(ctx, target);
    return status;
}

enum ebb_status ebb_model_copy_tokenizer_files(struct ebb_ctx *ctx, const char *from,
                                               const char *to, bool *found)
{
    bool there;
    *found = false;
    for (int i = 0; i < TOKENIZER_FILES; i++) {
        EBB_TRY(copy_if_there(ctx, from, to, tokenizer_files[i], &there));
        *found = *found || (there && i < TOKENIZER_ITSELF && i != 1);
    }
    return copy_template_dir(ctx, from, to);
}

enum ebb_status ebb_model_copy_chat_template(struct ebb_ctx *ctx, const char *from, const char *to)
{
    bool there;
    EBB_TRY(copy_if_there(ctx, from, to, "chat_template.jinja", &there));
    if (!there) return EBB_OK;
    char *stale = ebb_path_join(ctx, to, template_dir);
    if (stale == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_dir_remove(ctx, stale);
    ebb_mem_free(ctx, stale);
    return status == EBB_OK ? copy_template_dir(ctx, from, to) : status;
}

enum ebb_status ebb_model_copy_tokenizer(struct ebb_ctx *ctx, const char *from, const char *to)
{
    bool found;
    EBB_TRY(ebb_model_copy_tokenizer_files(ctx, from, to, &found));
    if (!found)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'%s' holds no tokenizer: no tokenizer.json, tokenizer.model or vocab.json",
                        from);
    return EBB_OK;
}

static enum ebb_status set(struct ebb_ctx *ctx, json_t *config, const char *key, json_t *value)
{
    if (json_object_set_new(config, key, value) != 0)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while writing config.json");
    return EBB_OK;
}

enum ebb_status ebb_config_set_dtype(struct ebb_ctx *ctx, json_t *config, enum ebb_dtype dtype)
{
    const char *name = ebb_dtype_name(dtype);
    bool new_key = json_object_get(config, "dtype") != NULL;
    if (new_key) EBB_TRY(set(ctx, config, "dtype", json_string(name)));
    if (new_key && json_object_get(config, "torch_dtype") == NULL) return EBB_OK;
    return set(ctx, config, "torch_dtype", json_string(name));
}

enum ebb_status ebb_config_set_bytes_tokens(struct ebb_ctx *ctx, json_t *config)
{
    EBB_TRY(set(ctx, config, "bos_token_id", json_integer(EBB_BYTES_BOS)));
    EBB_TRY(set(ctx, config, "eos_token_id", json_integer(EBB_BYTES_EOS)));
    /* Not the end token, although the tokenizer pads with it: transformers would never train
     * that token's embedding. */
    return set(ctx, config, "pad_token_id", json_null());
}

static enum ebb_status copy_config(struct ebb_ctx *ctx, const char *source, const char *target,
                                   enum ebb_dtype dtype)
{
    json_t *json;
    EBB_TRY(ebb_json_load(ctx, source, &json));
    enum ebb_status status = json_is_object(json)
                                 ? ebb_config_set_dtype(ctx, json, dtype)
                                 : EBB_FAIL(ctx, EBB_BAD_FILE, "%s: must be a JSON object", source);
    if (status == EBB_OK) status = ebb_json_save(ctx, target, json);
    json_decref(json);
    return status;
}

enum ebb_status ebb_model_copy_side_files(struct ebb_ctx *ctx, const char *from, const char *to,
                                          enum ebb_dtype dtype)
{
    enum ebb_status status = EBB_NO_MEMORY;
    bool there;
    char *source = ebb_path_join(ctx, from, "config.json"),
         *target = ebb_path_join(ctx, to, "config.json");
    if (source && target)
        status = ebb_file_exists(source) ? copy_config(ctx, source, target, dtype) : EBB_OK;
    ebb_mem_free(ctx, source);
    ebb_mem_free(ctx, target);
    if (status == EBB_OK) status = copy_if_there(ctx, from, to, "generation_config.json", &there);
    return status == EBB_OK ? ebb_model_copy_tokenizer_files(ctx, from, to, &there) : status;
}
