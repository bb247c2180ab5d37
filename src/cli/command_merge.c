/* `ebb merge`: fold an adapter into the weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/merge.h"

#include <stdio.h>

#include "base/file.h"
#include "cli/cli.h"
#include "recipe/sft.h"

static enum ebb_status check_output(struct ebb_cli *cli, const struct ebb_config *config)
{
    char **names = NULL;
    size_t count = 0;
    enum ebb_status status = EBB_OK;
    if (!ebb_dir_exists(config->output_dir)) return EBB_OK;
    EBB_TRY(ebb_dir_list(cli->ctx, config->output_dir, &names, &count));
    for (size_t i = 0; status == EBB_OK && i < count; i++)
        if (ebb_sft_is_output(names[i]))
            status =
                EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                         "output_dir '%s' holds a model or a run ('%s')\ntry:   a new directory",
                         config->output_dir, names[i]);
    ebb_dir_list_free(cli->ctx, names, count);
    return status;
}

static enum ebb_status merge(struct ebb_cli *cli, const struct ebb_config *config,
                             const struct ebb_setup *setup)
{
    bool same = config->save_dtype == EBB_DTYPE_KEY_AUTO;
    enum ebb_dtype dtype = config->save_dtype == EBB_DTYPE_KEY_FLOAT32 ? EBB_F32 : EBB_BF16;
    if (setup->adapter_dir == NULL)
        return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                        "'ebb merge' needs an adapter: '%s' is a whole model\n"
                        "try:   adapter_name_or_path=DIR",
                        config->model_name_or_path);
    EBB_TRY(check_output(cli, config));
    EBB_TRY(
        ebb_merge(cli->ctx, setup->model_dir, setup->adapter_dir, config->output_dir, same, dtype));
    printf("%s\n", config->output_dir);
    return EBB_OK;
}

enum ebb_status ebb_cli_merge(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_MERGE, &config, &options));
    struct ebb_setup *setup = ebb_mem_alloc(cli->ctx, sizeof *setup);
    enum ebb_status status = setup ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) status = ebb_setup_model(cli->ctx, options, &config, &cli->env, setup);
    if (status == EBB_OK) status = merge(cli, &config, setup);
    if (setup) ebb_setup_free(setup);
    ebb_mem_free(cli->ctx, setup);
    ebb_options_free(options);
    return status;
}
