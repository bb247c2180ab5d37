/* `ebb sft`, `ebb kd` and `ebb dpo`, which differ in the loss.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/sft.h"

#include <math.h>
#include <stdio.h>

#include "cli/cli.h"
#include "recipe/kd.h"

static void print_result(const struct ebb_config *config, const struct ebb_trainer_result *result)
{
    char seconds[32];
    printf("%lld optimizer step%s, %lld tokens in %s; loss %.4f", (long long)result->steps,
           result->steps == 1 ? "" : "s", (long long)result->tokens,
           ebb_text_seconds(result->seconds, seconds, sizeof seconds), result->final_loss);
    if (!isnan(result->best_eval_loss)) printf(", best eval_loss %.4f", result->best_eval_loss);
    printf("%s\n%s\n", result->stopped_early ? " (stopped early)" : "", config->output_dir);
}

static enum ebb_status save_teacher(struct ebb_cli *cli, struct ebb_options *options,
                                    const struct ebb_config *config)
{
    struct ebb_teacher_info info = {0};
    struct ebb_setup *setup = ebb_mem_alloc(cli->ctx, sizeof *setup);
    enum ebb_status status = setup ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) status = ebb_kd_save(cli->ctx, options, config, &cli->env, setup, &info);
    if (status == EBB_OK)
        printf("%lld labels of %lld samples, %lld tokens each, which leave out %.3g %% of the "
               "probability (at most %.3g %%)\n%s\n",
               (long long)info.rows, (long long)info.samples, (long long)info.k,
               100 * info.remainder_mean, 100 * info.remainder_most, config->save_teacher);
    if (setup) ebb_setup_free(setup);
    ebb_mem_free(cli->ctx, setup);
    return status;
}

static enum ebb_status train(struct ebb_cli *cli, enum ebb_command command)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    struct ebb_trainer_result result = {0};
    EBB_TRY(ebb_cli_options(cli, command, &config, &options));
    enum ebb_status status = EBB_OK;
    if (command == EBB_COMMAND_KD && config.save_teacher) {
        status = save_teacher(cli, options, &config);
    } else {
        status = ebb_sft_run(cli->ctx, options, &config, &cli->env, &result);
        if (status == EBB_OK) print_result(&config, &result);
    }
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
