/* What a run's loss is made of. A net's TRAIN and EVAL programs are written for one objective.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OBJECTIVE_H
#define EBB_OBJECTIVE_H

#include "op/distill.h"
#include "op/preference.h"

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
    EBB_OBJECTIVE_SAVE_TEACHER,
    /* DPO and its family (op/preference.h): the head runs twice over the labels. */
    EBB_OBJECTIVE_PREFERENCE,
    /* EVAL leaves each label's log-probability: a reference for PREFERENCE, made beforehand. */
    EBB_OBJECTIVE_LOGPROB
};

/* What PREFERENCE compares with. A reference that runs does so at the start of TRAIN and EVAL, and
 * leaves nothing but a number a label. */
enum ebb_reference {
    EBB_REFERENCE_NONE,
    EBB_REFERENCE_BASE,  /* the model itself without its adapter */
    EBB_REFERENCE_MODEL, /* a second model, where a teacher would be */
    EBB_REFERENCE_GIVEN  /* an input */
};

struct ebb_objective {
    enum ebb_objective_kind kind;
    /* DISTILL, DISTILL_SAVED; `vocab` also of SAVE_TEACHER, and its temperature. */
    struct ebb_distill_keys distill;
    struct ebb_preference_keys preference; /* PREFERENCE */
    enum ebb_reference reference;
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

static inline bool ebb_objective_prefers(const struct ebb_objective *objective)
{
    return objective->kind == EBB_OBJECTIVE_PREFERENCE;
}
/* Documents have kinds. */
static inline bool ebb_objective_has_kinds(const struct ebb_objective *objective)
{
    return ebb_objective_prefers(objective) &&
           objective->preference.loss_type == EBB_PREFERENCE_KTO;
}
/* TRAIN and EVAL take, or EVAL leaves, a log-probability of each label. */
static inline bool ebb_objective_has_logprobs(const struct ebb_objective *objective)
{
    return objective->kind == EBB_OBJECTIVE_LOGPROB ||
           (ebb_objective_prefers(objective) && objective->reference == EBB_REFERENCE_GIVEN);
}
/* A second model is part of the net. */
static inline bool ebb_objective_has_second(const struct ebb_objective *objective)
{
    return objective->kind == EBB_OBJECTIVE_DISTILL ||
           (ebb_objective_prefers(objective) && objective->reference == EBB_REFERENCE_MODEL);
}
/* What a step's loss and gradients are divided by: its labels, or its pairs or examples. */
static inline int64_t ebb_objective_weight(const struct ebb_objective *objective,
                                           const struct ebb_sums *sums)
{
    return ebb_objective_prefers(objective) ? sums->preference.examples : sums->labels;
}

#ifdef __cplusplus
}
#endif
#endif
