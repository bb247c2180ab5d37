/* Learning-rate schedules, as transformers names them: a factor of the peak rate by optimizer
 * step.
 *
 * With n warm-up steps of N in all and s the steps done before this one (0 in the first), the
 * factor is s / n while s < n, so that the first step of a warm-up has rate 0 as in transformers,
 * and after that:
 *   constant              1 (constant_with_warmup is the same; plain constant refuses warm-up)
 *   linear                (N - s) / (N - n), not below 0
 *   cosine                (1 + cos(pi (s - n) / (N - n))) / 2
 *                                               (Loshchilov, Hutter 2017, arXiv 1608.03983)
 *   warmup_stable_decay   1 until the last d steps, then linearly to 0
 *                                               (Hu et al. 2024, arXiv 2404.06395)
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_SCHEDULE_H
#define EBB_SCHEDULE_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, text) */
#define EBB_SCHEDULE_LIST(X)                                                                       \
    X(CONSTANT, "constant")                                                                        \
    X(CONSTANT_WITH_WARMUP, "constant_with_warmup")                                                \
    X(LINEAR, "linear")                                                                            \
    X(COSINE, "cosine")                                                                            \
    X(WARMUP_STABLE_DECAY, "warmup_stable_decay")

enum ebb_schedule {
#define EBB_SCHEDULE_ENUM(name, text) EBB_SCHEDULE_##name,
    EBB_SCHEDULE_LIST(EBB_SCHEDULE_ENUM)
#undef EBB_SCHEDULE_ENUM
        EBB_SCHEDULE_COUNT
};
const char *ebb_schedule_name(enum ebb_schedule schedule);

struct ebb_schedule_keys {
    enum ebb_schedule schedule;
    double learning_rate; /* the peak */
    int64_t warmup_steps; /* 0: warmup_ratio decides */
    double warmup_ratio;  /* of all steps, rounded up */
    double decay_ratio;   /* warmup_stable_decay: d as a share of all steps, rounded up */
};

/* Rate of optimizer step `step` (from 1) of `total`. */
double ebb_schedule_rate(const struct ebb_schedule_keys *keys, int64_t step, int64_t total);

#ifdef __cplusplus
}
#endif
#endif
