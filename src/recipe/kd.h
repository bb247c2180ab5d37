/* Knowledge distillation: what `ebb kd` adds to the recipe of `ebb sft`.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_KD_H
#define EBB_RECIPE_KD_H

#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The run, or the plan, is of a distillation. */
bool ebb_kd_wanted(const struct ebb_options *options, const struct ebb_config *config);
/* Puts teacher and objective into the setup's request, after its model and tokenizer. Refuses a
 * teacher that has other tokens than the student. */
enum ebb_status ebb_kd_setup(struct ebb_setup *setup);
/* `ebb kd` with save_teacher: runs the teacher over the training data and writes what
 * `teacher_logits` reads (data/teacher.h). The result's info is in *info, its texts borrowed from
 * configuration and setup. The caller frees the setup. */
enum ebb_status ebb_kd_save(struct ebb_ctx *ctx, struct ebb_options *options,
                            const struct ebb_config *config, const struct ebb_recipe_env *env,
                            struct ebb_setup *setup, struct ebb_teacher_info *info);
/* One line for a person: what the student learns from and how. */
enum ebb_status ebb_kd_announce(const struct ebb_setup *setup, const struct ebb_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
