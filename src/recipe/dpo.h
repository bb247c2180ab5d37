/* Preference training: what `ebb dpo` adds to the recipe of `ebb sft`.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_DPO_H
#define EBB_RECIPE_DPO_H

#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The run, or the plan, is on preferences. */
bool ebb_dpo_wanted(const struct ebb_options *options, const struct ebb_config *config);
/* The loss that loss_type asks for, auto by the data (NULL: pairs). */
enum ebb_preference ebb_dpo_loss(const struct ebb_config *config,
                                 const struct ebb_dataset *dataset);
/* Puts loss and reference into the setup's request, after its data and its adapter. */
enum ebb_status ebb_dpo_setup(struct ebb_setup *setup);
/* precompute_ref_log_probs: runs the reference over both data sets, in an engine of its own that is
 * gone afterwards, with the numerics of the one that will train. Otherwise does nothing. */
enum ebb_status ebb_dpo_precompute(struct ebb_setup *setup, const struct ebb_engine *training);
/* One line for a person: the loss and what it compares with. */
void ebb_dpo_announce(const struct ebb_setup *setup);
/* Where no learning_rate is given: those of TRL's example, a hundredth and less of what examples
 * take. */
double ebb_dpo_learning_rate(bool lora);

#ifdef __cplusplus
}
#endif
#endif
