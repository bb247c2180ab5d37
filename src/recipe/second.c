/* Second models: where they are, and whether they belong to the one that is trained.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/second.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* A token that the two tokenizers have under different ids; -1: none. */
static int32_t first_other(const struct ebb_tokenizer *a, const struct ebb_tokenizer *b,
                           int64_t count)
{
    for (int32_t id = 0; id < count; id++) {
        size_t bytes_a = 0, bytes_b = 0;
        const char *text_a = ebb_tokenizer_text(a, id, &bytes_a),
                   *text_b = ebb_tokenizer_text(b, id, &bytes_b);
        bool same = text_a && text_b ? bytes_a == bytes_b && memcmp(text_a, text_b, bytes_a) == 0
                                     : text_a == text_b;
        if (!same) return id;
    }
    return -1;
}

static enum ebb_status compare_tokenizers(const struct ebb_setup *setup,
                                          const struct ebb_second *second,
                                          const struct ebb_tokenizer *others)
{
    int64_t own_count = ebb_tokenizer_vocab_size(setup->tokenizer),
            other_count = ebb_tokenizer_vocab_size(others);
    int32_t id =
        first_other(setup->tokenizer, others, own_count < other_count ? own_count : other_count);
    size_t own_bytes = 0, other_bytes = 0;
    if (id < 0) return EBB_OK; /* one may have a few more at its end */
    const char *own_text = ebb_tokenizer_text(setup->tokenizer, id, &own_bytes),
               *other_text = ebb_tokenizer_text(others, id, &other_bytes);
    return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                    "the %s has other tokens than the %s: %ld is '%.*s' there and '%.*s' here\n"
                    "where: %s\n"
                    "try:   a %s of the %s's family; %s token by token",
                    second->role, second->model, (long)id, (int)other_bytes,
                    other_text ? other_text : "", (int)own_bytes, own_text ? own_text : "",
                    ebb_options_where(setup->options, second->key), second->role, second->model,
                    second->method);
}

static enum ebb_status check_tokens(const struct ebb_setup *setup, const struct ebb_second *second)
{
    struct ebb_tokenizer *tokenizer = NULL;
    if (setup->tokenizer == NULL) return EBB_OK;
    char *path = ebb_path_join(setup->ctx, setup->teacher_dir, "tokenizer.json");
    if (path == NULL) return EBB_NO_MEMORY;
    bool there = ebb_file_exists(path);
    ebb_mem_free(setup->ctx, path);
    if (!there) return EBB_OK;
    EBB_TRY(ebb_tokenizer_load(setup->ctx, setup->teacher_dir, &tokenizer));
    enum ebb_status status = EBB_OK;
    if (ebb_tokenizer_hash(tokenizer) != ebb_tokenizer_hash(setup->tokenizer))
        status = compare_tokenizers(setup, second, tokenizer);
    ebb_tokenizer_free(setup->ctx, tokenizer);
    return status;
}

/* Whatever the data may hold must be among its tokens. */
static enum ebb_status check_vocab(const struct ebb_setup *setup, const struct ebb_second *second,
                                   int64_t vocab)
{
    int64_t tokens = setup->tokenizer ? ebb_tokenizer_vocab_size(setup->tokenizer) : 0;
    if (tokens <= vocab) return EBB_OK;
    return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                    "the %s's vocabulary of %lld is smaller than the tokenizer's %lld tokens\n"
                    "where: %s\n"
                    "try:   a %s of the %s's family",
                    second->role, (long long)vocab, (long long)tokens,
                    ebb_options_where(setup->options, second->key), second->role, second->model);
}

/* An adapter alone is no model. */
static enum ebb_status check_whole(const struct ebb_setup *setup, const struct ebb_second *second,
                                   const char *name)
{
    char *adapter = ebb_path_join(setup->ctx, setup->teacher_dir, "adapter_config.json");
    char *model = ebb_path_join(setup->ctx, setup->teacher_dir, "config.json");
    bool alone = adapter && model && ebb_file_exists(adapter) && !ebb_file_exists(model);
    enum ebb_status status = adapter && model ? EBB_OK : EBB_NO_MEMORY;
    ebb_mem_free(setup->ctx, adapter);
    ebb_mem_free(setup->ctx, model);
    if (!alone) return status;
    return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                    "the %s '%s' is an adapter, and a %s is a whole model\n"
                    "where: %s\n"
                    "try:   'ebb merge' on it, and the result as %s",
                    second->role, name, second->role,
                    ebb_options_where(setup->options, second->key), second->role);
}

enum ebb_status ebb_second_find(struct ebb_setup *setup, const struct ebb_second *second,
                                const char *name, int64_t *vocab)
{
    struct ebb_ctx *ctx = setup->ctx;
    struct ebb_model_config *model = NULL;
    const int64_t longest = setup->request.capacity.doc_tokens;
    EBB_TRY(ebb_model_find(ctx, name, &setup->env->hub, &setup->teacher_dir));
    EBB_TRY(check_whole(setup, second, name));
    EBB_TRY(ebb_model_config_load(ctx, setup->teacher_dir, &model));
    *vocab = model->vocab;
    if (longest > model->max_positions)
        ebb_warn_once(ctx, "second.positions",
                      "documents of %lld tokens are beyond the %lld positions that the %s was made "
                      "for",
                      (long long)longest, (long long)model->max_positions, second->role);
    ebb_model_config_free(ctx, model);
    EBB_TRY(check_tokens(setup, second));
    return check_vocab(setup, second, *vocab);
}

/* ---- how it is called ------------------------------------------------------------------------ */

const char *ebb_second_role(const struct ebb_setup *setup)
{
    return ebb_objective_prefers(&setup->request.objective) ? "reference" : "teacher";
}

/* A reference is the model as it was unless another is named. */
const char *ebb_second_name(const struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    if (setup->teacher) return ebb_teacher_describe(setup->teacher)->name;
    if (!ebb_objective_prefers(&setup->request.objective))
        return config->teacher_model_name_or_path;
    return config->ref_model_name_or_path ? config->ref_model_name_or_path : setup->base_name;
}

bool ebb_second_json(const struct ebb_setup *setup, const struct ebb_engine *engine, json_t *json)
{
    const struct ebb_model_config *second = ebb_engine_teacher(engine);
    const char *role = ebb_second_role(setup), *name = ebb_second_name(setup);
    char key[32];
    if (json == NULL) return false;
    if (second == NULL && setup->teacher == NULL) return true;
    if (json_object_set_new(json, role, json_string(name)) != 0) return false;
    if (second == NULL) return true;
    snprintf(key, sizeof key, "%s_parameters", role);
    return json_object_set_new(json, key, json_integer(ebb_model_config_parameters(second))) == 0;
}
