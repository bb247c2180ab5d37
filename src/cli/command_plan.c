/* `ebb plan`: what a run would need.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "recipe/fit.h"
#include "recipe/outlook.h"
#include "recipe/sft.h"

static enum ebb_status show(struct ebb_cli *cli, const struct ebb_config *config,
                            const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    struct ebb_str text = {0};
    struct ebb_outlook outlook;
    EBB_TRY(ebb_outlook_make(setup, engine, &outlook));
    if (config->json) {
        json_t *json = ebb_fit_json(setup, engine);
        if (json == NULL) return ebb_error_status(cli->ctx);
        if (json_object_set_new(json, "step", ebb_outlook_json(&outlook)) != 0) {
            json_decref(json);
            return EBB_FAIL(cli->ctx, EBB_NO_MEMORY, "no memory for the plan as JSON");
        }
        return ebb_cli_print_json(cli, json);
    }
    enum ebb_status status = ebb_fit_table(setup, engine, &text);
    if (status == EBB_OK) status = ebb_outlook_table(cli->ctx, &outlook, &text);
    if (status == EBB_OK) ebb_cli_print(&text);
    ebb_str_free(cli->ctx, &text);
    return status;
}

enum ebb_status ebb_cli_plan(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    struct ebb_engine *engine = NULL;
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_PLAN, &config, &options));
    struct ebb_setup *setup = ebb_mem_alloc(cli->ctx, sizeof *setup);
    enum ebb_status status = setup ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK)
        status = ebb_sft_plan(cli->ctx, options, &config, &cli->env, NULL, setup, &engine);
    if (status == EBB_OK) status = show(cli, &config, setup, engine);
    if (status == EBB_OK) status = ebb_fit_check(setup, engine);
    ebb_engine_free(engine);
    if (setup) ebb_setup_free(setup);
    ebb_mem_free(cli->ctx, setup);
    ebb_options_free(options);
    return status;
}
