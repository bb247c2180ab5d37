/* `ebb init`: a model directory with random weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/init.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/embedded.h"
#include "data/tokenizer.h"

static enum ebb_status fail_shape(struct ebb_cli *cli, const char *name)
{
    size_t count;
    const struct ebb_embedded *files = ebb_embedded_files(&count);
    struct ebb_str names = {0};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; status == EBB_OK && i < count; i++) {
        const char *shape = ebb_cli_embedded_name(files[i].name, "shapes/");
        if (shape)
            status = ebb_str_addf(cli->ctx, &names, "%s%.*s", names.data ? ", " : "",
                                  ebb_cli_stem(shape), shape);
    }
    if (status == EBB_OK)
        status = EBB_FAIL(
            cli->ctx, EBB_BAD_CONFIG,
            "'%s' is neither a file nor a built-in shape\ntry:   a config.json, or one of: %s",
            name, names.data ? names.data : "");
    ebb_str_free(cli->ctx, &names);
    return status;
}

/* What the embedding needs for a tokenizer of files; 0: there is none, or it is that of bytes. */
static enum ebb_status find_vocab(struct ebb_ctx *ctx, const char *dir, int64_t *vocab)
{
    struct ebb_tokenizer *tokenizer = NULL;
    *vocab = 0;
    if (dir == NULL) return EBB_OK;
    EBB_TRY(ebb_tokenizer_load(ctx, dir, &tokenizer));
    *vocab = ebb_tokenizer_vocab_size(tokenizer);
    ebb_tokenizer_free(ctx, tokenizer);
    return EBB_OK;
}

/* The author of a config.json may have weights to match, so nothing in it is changed. */
static enum ebb_status check_vocab(struct ebb_ctx *ctx, const char *path, const char *dir,
                                   int64_t vocab)
{
    struct ebb_model_config *model = NULL;
    EBB_TRY(ebb_model_config_load_file(ctx, path, &model));
    int64_t rows = model->vocab;
    ebb_model_config_free(ctx, model);
    if (rows >= vocab) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "%s: 'vocab_size' is %lld, the tokenizer in '%s' needs %lld\n"
                    "try:   \"vocab_size\": %lld in that file, or another tokenizer",
                    path, (long long)rows, dir, (long long)vocab, (long long)vocab);
}

/* A built-in shape, with as many rows in its embedding as the tokenizer needs. */
static enum ebb_status write_shape(struct ebb_ctx *ctx, const char *path, const char *shape,
                                   int64_t vocab)
{
    if (vocab == 0) return ebb_file_write(ctx, path, shape, strlen(shape));
    json_t *json;
    EBB_TRY(ebb_json_parse(ctx, path, 1, shape, strlen(shape), &json));
    enum ebb_status status = json_object_set_new(json, "vocab_size", json_integer(vocab)) == 0
                                 ? ebb_json_save(ctx, path, json)
                                 : EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory");
    json_decref(json);
    return status;
}

/* A built-in shape goes into a file of its own for the time of the call. */
static enum ebb_status init_shape(struct ebb_cli *cli, const struct ebb_config *config,
                                  const char *shape, const char *tokenizer, int64_t vocab,
                                  enum ebb_dtype dtype)
{
    EBB_TRY(ebb_dir_create(cli->ctx, config->output_dir));
    char *path = ebb_path_join(cli->ctx, config->output_dir, ".shape.json");
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = write_shape(cli->ctx, path, shape, vocab);
    if (status == EBB_OK)
        status = ebb_model_init(cli->ctx, path, tokenizer, config->output_dir, dtype,
                                (uint64_t)config->seed);
    unlink(path);
    ebb_mem_free(cli->ctx, path);
    return status;
}

/* *vocab: that of a tokenizer which a built-in shape was fitted to; 0: none was. */
static enum ebb_status init(struct ebb_cli *cli, const struct ebb_config *config, int64_t *vocab)
{
    enum ebb_dtype dtype = config->dtype == EBB_DTYPE_KEY_BFLOAT16 ? EBB_BF16 : EBB_F32;
    const char *shape = ebb_cli_embedded("shapes/", config->config, ".json");
    bool file = ebb_file_exists(config->config) && !ebb_dir_exists(config->config);
    char *tokenizer = NULL;
    enum ebb_status status = EBB_OK;
    *vocab = 0;
    if (!file && shape == NULL) return fail_shape(cli, config->config);
    if (config->tokenizer && strcmp(config->tokenizer, EBB_TOKENIZER_BYTES) != 0)
        status = ebb_model_find(cli->ctx, config->tokenizer, &cli->env.hub, &tokenizer);
    if (status == EBB_OK) status = find_vocab(cli->ctx, tokenizer, vocab);
    const char *dir = tokenizer ? tokenizer : config->tokenizer ? EBB_TOKENIZER_BYTES : NULL;
    if (status == EBB_OK && file) {
        if (*vocab > 0) status = check_vocab(cli->ctx, config->config, dir, *vocab);
        *vocab = 0;
        if (status == EBB_OK)
            status = ebb_model_init(cli->ctx, config->config, dir, config->output_dir, dtype,
                                    (uint64_t)config->seed);
    } else if (status == EBB_OK) {
        status = init_shape(cli, config, shape, dir, *vocab, dtype);
    }
    ebb_mem_free(cli->ctx, tokenizer);
    return status;
}

static enum ebb_status print_result(struct ebb_cli *cli, const struct ebb_config *config,
                                    int64_t vocab)
{
    struct ebb_model_config *model = NULL;
    EBB_TRY(ebb_model_config_load(cli->ctx, config->output_dir, &model));
    char number[32];
    printf("%s: %s parameters, %lld layers of width %lld, vocabulary %lld%s\n", config->output_dir,
           ebb_text_count(ebb_model_config_parameters(model), number, sizeof number),
           (long long)model->layers, (long long)model->width, (long long)model->vocab,
           vocab > 0 ? ", as the tokenizer has it" : "");
    ebb_model_config_free(cli->ctx, model);
    return EBB_OK;
}

enum ebb_status ebb_cli_init(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_INIT, &config, &options));
    int64_t vocab;
    enum ebb_status status = init(cli, &config, &vocab);
    if (status == EBB_OK) status = print_result(cli, &config, vocab);
    ebb_options_free(options);
    return status;
}
