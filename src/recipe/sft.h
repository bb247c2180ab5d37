/* Supervised fine-tuning: from a configuration to a finished run.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_SFT_H
#define EBB_RECIPE_SFT_H

#include "recipe/setup.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options were read for EBB_COMMAND_SFT and checked. EBB_DOES_NOT_FIT before anything is
 * reserved or written. */
enum ebb_status ebb_sft_run(struct ebb_ctx *ctx, struct ebb_options *options,
                            const struct ebb_config *config, const struct ebb_recipe_env *env,
                            struct ebb_trainer_result *result);

/* What `ebb plan` shows: everything that ebb_sft_run does before the engine opens, without
 * output_dir. `resume`: a checkpoint whose numerics the plan takes; NULL: none. The caller frees
 * the engine, then the setup. */
enum ebb_status ebb_sft_plan(struct ebb_ctx *ctx, struct ebb_options *options,
                             const struct ebb_config *config, const struct ebb_recipe_env *env,
                             const char *resume, struct ebb_setup *setup,
                             struct ebb_engine **engine);

/* Of a fitting plan, before the engine opens. GPU: what driver and libraries take is measured, and
 * counted in place of what was assumed, and so is what the system pins. Where the plan does not fit
 * any more, or another might now keep more or be faster, there is a new engine. */
enum ebb_status ebb_sft_settle(struct ebb_setup *setup, struct ebb_engine **engine);
/* The key's, or what auto is for the recipe. */
double ebb_sft_learning_rate(const struct ebb_setup *setup);

/* Files and folders that a run writes into its output_dir: is `name` one of them? */
bool ebb_sft_is_output(const char *name);

#ifdef __cplusplus
}
#endif
#endif
