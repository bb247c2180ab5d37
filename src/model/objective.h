/* What a run's loss is made of. A net's TRAIN and EVAL programs are written for one objective.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OBJECTIVE_H
#define EBB_OBJECTIVE_H

#include "op/distill.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_objective_kind {
    EBB_OBJECTIVE_TOKENS, /* cross-entropy of the targets */
    /* Knowledge distillation (op/distill.h). The teacher, a second model, runs at the start of
     * TRAIN and EVAL; of it only its last hidden states outlive its layers, until the head has
     * compared both models' logits chunk by chunk. */
    EBB_OBJECTIVE_DISTILL,
    /* The same with a saved teacher: its likeliest tokens are inputs of TRAIN. EVAL has none, and
     * its loss is the cross-entropy. */
    EBB_OBJECTIVE_DISTILL_SAVED,
    /* EVAL also leaves each label's likeliest tokens, to be saved. */
    EBB_OBJECTIVE_SAVE_TEACHER
};

struct ebb_objective {
    enum ebb_objective_kind kind;
    /* DISTILL, DISTILL_SAVED; `vocab` also of SAVE_TEACHER, and its temperature. */
    struct ebb_distill_keys distill;
    /* DISTILL_SAVED and SAVE_TEACHER: how many tokens a label has, and how their logarithms are
     * stored (F32 or BF16). */
    int64_t top_k;
    enum ebb_dtype top_dtype;
};

/* The loss has the two parts that metrics report. */
static inline bool ebb_objective_distills(const struct ebb_objective *objective)
{
    return objective->kind == EBB_OBJECTIVE_DISTILL ||
           objective->kind == EBB_OBJECTIVE_DISTILL_SAVED;
}
/* TRAIN takes, or EVAL leaves, `top_k` tokens a label. */
static inline bool ebb_objective_has_top(const struct ebb_objective *objective)
{
    return objective->kind == EBB_OBJECTIVE_DISTILL_SAVED ||
           objective->kind == EBB_OBJECTIVE_SAVE_TEACHER;
}

#ifdef __cplusplus
}
#endif
#endif
