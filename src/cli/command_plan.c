/* `ebb plan`: what a run would need, and how long its steps would take.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "recipe/fit.h"
#include "recipe/sweep.h"
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
    if (status == EBB_OK) status = ebb_outlook_table(setup, &outlook, &text);
    if (status == EBB_OK) ebb_cli_print(&text);
    ebb_str_free(cli->ctx, &text);
    return status;
}

/* Several plans in place of the one. */
static enum ebb_status show_sweep(struct ebb_cli *cli, const struct ebb_config *config,
                                  struct ebb_setup *setup)
{
    const bool lengths = config->max_length == EBB_LONGEST;
    struct ebb_str text = {0};
    struct ebb_sweep sweep;
    EBB_TRY((lengths ? ebb_sweep_length : ebb_sweep_memory)(setup, &sweep));
    if (config->json) {
        json_t *json = ebb_sweep_json(&sweep);
        if (json == NULL)
            return EBB_FAIL(cli->ctx, EBB_NO_MEMORY, "no memory for the plans as JSON");
        EBB_TRY(ebb_cli_print_json(cli, json));
    } else {
        int64_t positions = setup->model->max_positions;
        enum ebb_status status = ebb_sweep_table(cli->ctx, &sweep, &text);
        if (status == EBB_OK && lengths && sweep.count > 0 &&
            sweep.points[sweep.count - 1].max_length > positions)
            status = ebb_str_addf(cli->ctx, &text, "the model was made for %lld positions\n",
                                  (long long)positions);
        if (status == EBB_OK) ebb_cli_print(&text);
        ebb_str_free(cli->ctx, &text);
        EBB_TRY(status);
    }
    if (sweep.count > 0) return EBB_OK;
    return EBB_FAIL(cli->ctx, EBB_DOES_NOT_FIT,
                    "not even a row of 512 tokens fits\ntry:   max_length: 512 for what it needs");
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
    if (config.max_length == EBB_LONGEST || ebb_config_sweeps(&config)) {
        if (status == EBB_OK) status = show_sweep(cli, &config, setup);
    } else {
        if (status == EBB_OK) status = show(cli, &config, setup, engine);
        if (status == EBB_OK) status = ebb_fit_check(setup, engine);
    }
    ebb_engine_free(engine);
    if (setup) ebb_setup_free(setup);
    ebb_mem_free(cli->ctx, setup);
    ebb_options_free(options);
    return status;
}
