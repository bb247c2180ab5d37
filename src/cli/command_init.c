/* `ebb init`: a model directory with random weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/init.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/embedded.h"

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
                                  (int)strcspn(shape, "."), shape);
    }
    if (status == EBB_OK)
        status = EBB_FAIL(
            cli->ctx, EBB_BAD_CONFIG,
            "'%s' is neither a file nor a built-in shape\ntry:   a config.json, or one of: %s",
            name, names.data ? names.data : "");
    ebb_str_free(cli->ctx, &names);
    return status;
}

/* A built-in shape goes into a file of its own for the time of the call. */
static enum ebb_status init_shape(struct ebb_cli *cli, const struct ebb_config *config,
                                  const char *shape, const char *tokenizer, enum ebb_dtype dtype)
{
    EBB_TRY(ebb_dir_create(cli->ctx, config->output_dir));
    char *path = ebb_path_join(cli->ctx, config->output_dir, ".shape.json");
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_file_write(cli->ctx, path, shape, strlen(shape));
    if (status == EBB_OK)
        status = ebb_model_init(cli->ctx, path, tokenizer, config->output_dir, dtype,
                                (uint64_t)config->seed);
    unlink(path);
    ebb_mem_free(cli->ctx, path);
    return status;
}

static enum ebb_status init(struct ebb_cli *cli, const struct ebb_config *config)
{
    enum ebb_dtype dtype = config->dtype == EBB_DTYPE_KEY_BFLOAT16 ? EBB_BF16 : EBB_F32;
    const char *shape = ebb_cli_embedded("shapes/", config->config, ".json");
    bool file = ebb_file_exists(config->config) && !ebb_dir_exists(config->config);
    char *tokenizer = NULL;
    enum ebb_status status = EBB_OK;
    if (!file && shape == NULL) return fail_shape(cli, config->config);
    if (config->tokenizer && strcmp(config->tokenizer, EBB_TOKENIZER_BYTES) != 0)
        status = ebb_model_find(cli->ctx, config->tokenizer, &cli->env.hub, &tokenizer);
    const char *dir = tokenizer ? tokenizer : config->tokenizer ? EBB_TOKENIZER_BYTES : NULL;
    if (status == EBB_OK && file)
        status = ebb_model_init(cli->ctx, config->config, dir, config->output_dir, dtype,
                                (uint64_t)config->seed);
    else if (status == EBB_OK)
        status = init_shape(cli, config, shape, dir, dtype);
    ebb_mem_free(cli->ctx, tokenizer);
    return status;
}

static enum ebb_status print_result(struct ebb_cli *cli, const struct ebb_config *config)
{
    struct ebb_model_config *model = NULL;
    EBB_TRY(ebb_model_config_load(cli->ctx, config->output_dir, &model));
    char number[32];
    printf("%s: %s parameters, %lld layers of width %lld, vocabulary %lld\n", config->output_dir,
           ebb_text_count(ebb_model_config_parameters(model), number, sizeof number),
           (long long)model->layers, (long long)model->width, (long long)model->vocab);
    ebb_model_config_free(cli->ctx, model);
    return EBB_OK;
}

enum ebb_status ebb_cli_init(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_INIT, &config, &options));
    enum ebb_status status = init(cli, &config);
    if (status == EBB_OK) status = print_result(cli, &config);
    ebb_options_free(options);
    return status;
}
