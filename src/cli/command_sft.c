/* `ebb sft`, `ebb kd` and `ebb dpo`, which differ in the loss.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/sft.h"

#include <math.h>
#include <stdio.h>

#include "cli/cli.h"

static void print_result(const struct ebb_config *config, const struct ebb_trainer_result *result)
{
    char seconds[32];
    printf("%lld optimizer step%s, %lld tokens in %s; loss %.4f", (long long)result->steps,
           result->steps == 1 ? "" : "s", (long long)result->tokens,
           ebb_text_seconds(result->seconds, seconds, sizeof seconds), result->final_loss);
    if (!isnan(result->best_eval_loss)) printf(", best eval_loss %.4f", result->best_eval_loss);
    printf("%s\n%s\n", result->stopped_early ? " (stopped early)" : "", config->output_dir);
}

static enum ebb_status train(struct ebb_cli *cli, enum ebb_command command)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    struct ebb_trainer_result result = {0};
    EBB_TRY(ebb_cli_options(cli, command, &config, &options));
    enum ebb_status status = ebb_sft_run(cli->ctx, options, &config, &cli->env, &result);
    if (status == EBB_OK) print_result(&config, &result);
    ebb_options_free(options);
    return status;
}

enum ebb_status ebb_cli_sft(struct ebb_cli *cli)
{
    return train(cli, EBB_COMMAND_SFT);
}

enum ebb_status ebb_cli_kd(struct ebb_cli *cli)
{
    return train(cli, EBB_COMMAND_KD);
}

enum ebb_status ebb_cli_dpo(struct ebb_cli *cli)
{
    return train(cli, EBB_COMMAND_DPO);
}
