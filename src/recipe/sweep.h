/* Plans in a row: what budgets give, and how long a sequence can be. Every number is of a plan of
 * its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_SWEEP_H
#define EBB_RECIPE_SWEEP_H

#include "recipe/outlook.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_SWEEP_POINTS = 16, EBB_SWEEP_WHAT = 320 };

struct ebb_sweep_point {
    int64_t max_length;
    bool fits;                         /* false, of budgets: what the smallest plan would take */
    int64_t budget;                    /* bytes that the plan was made within; 0: no bound */
    int64_t device_bytes, host_bytes;  /* of the whole process, and of what moves out */
    bool known;                        /* the step's forecast is */
    double seconds, tokens_per_second; /* of a step */
    char what[EBB_SWEEP_WHAT];         /* the plan in words */
};

struct ebb_sweep {
    struct ebb_sweep_point points[EBB_SWEEP_POINTS];
    int count;
    const char *title; /* borrowed constant */
    bool lengths;      /* of sequences; else of budgets */
};

/* Budgets from the least that device memory does with to what keeps everything there. Budgets that
 * give the same plan count once. Those that the host budget is too small for are points that do not
 * fit; EBB_DOES_NOT_FIT if it is for all. */
enum ebb_status ebb_sweep_memory(struct ebb_setup *setup, struct ebb_sweep *sweep);
/* Lengths that double, and the longest row that fits the budget: the device's, the host's, and the
 * machine's. The setup has no data. The last point is the longest; none: not even the shortest
 * fits. */
enum ebb_status ebb_sweep_length(struct ebb_setup *setup, struct ebb_sweep *sweep);

enum ebb_status ebb_sweep_table(struct ebb_ctx *ctx, const struct ebb_sweep *sweep,
                                struct ebb_str *out);
/* The caller owns it; NULL: no memory. */
json_t *ebb_sweep_json(const struct ebb_sweep *sweep);

#ifdef __cplusplus
}
#endif
#endif
