/* `ebb eval`: loss of a data set.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "cli/cli.h"
#include "recipe/fit.h"
#include "train/trainer.h"

static enum ebb_status print_result(struct ebb_cli *cli, const struct ebb_config *config,
                                    const struct ebb_eval_result *result)
{
    double perplexity = exp(result->loss);
    if (config->json) {
        json_t *json =
            json_pack("{s:f, s:f, s:f, s:I, s:I, s:f}", "eval_loss", result->loss,
                      "eval_perplexity", perplexity, "eval_mean_token_accuracy", result->accuracy,
                      "eval_num_tokens", (json_int_t)result->tokens, "eval_num_labels",
                      (json_int_t)result->labels, "eval_runtime", result->seconds);
        if (json == NULL)
            return EBB_FAIL(cli->ctx, EBB_FAILED, "the result cannot be written as JSON (loss %g)",
                            result->loss);
        return ebb_cli_print_json(cli, json);
    }
    char seconds[32];
    printf("loss        %.6f\n"
           "perplexity  %.4f\n"
           "accuracy    %.4f\n"
           "labels      %lld of %lld tokens\n"
           "time        %s\n",
           result->loss, perplexity, result->accuracy, (long long)result->labels,
           (long long)result->tokens, ebb_text_seconds(result->seconds, seconds, sizeof seconds));
    return EBB_OK;
}

static enum ebb_status evaluate(struct ebb_cli *cli, const struct ebb_config *config,
                                struct ebb_setup *setup, struct ebb_engine **engine)
{
    struct ebb_eval_result result = {0};
    EBB_TRY(ebb_setup_tokenizer(setup));
    EBB_TRY(ebb_setup_eval_data(setup));
    EBB_TRY(ebb_setup_poll(cli->ctx, &cli->env));
    setup->request.evaluate = true;
    EBB_TRY(ebb_engine_create(cli->ctx, &setup->request, engine));
    EBB_TRY(ebb_fit_check(setup, *engine));
    EBB_TRY(ebb_engine_open(*engine));
    EBB_TRY(ebb_evaluate(cli->ctx, *engine, setup->eval, NULL, cli->env.stop_fd, &result));
    return print_result(cli, config, &result);
}

enum ebb_status ebb_cli_eval(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    struct ebb_engine *engine = NULL;
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_EVAL, &config, &options));
    struct ebb_setup *setup = ebb_mem_alloc(cli->ctx, sizeof *setup);
    enum ebb_status status = setup ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) status = ebb_setup_model(cli->ctx, options, &config, &cli->env, setup);
    if (status == EBB_OK) status = evaluate(cli, &config, setup, &engine);
    ebb_engine_free(engine);
    if (setup) ebb_setup_free(setup);
    ebb_mem_free(cli->ctx, setup);
    ebb_options_free(options);
    return status;
}
