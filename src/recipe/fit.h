/* What a plan comes to, for people and for programs; and what to change where a run does not fit.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_FIT_H
#define EBB_RECIPE_FIT_H

#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the plan as a table: memory by kind, what moves, what becomes of each saved tensor. */
enum ebb_status ebb_fit_table(const struct ebb_setup *setup, const struct ebb_engine *engine,
                              struct ebb_str *out);
/* The same as JSON; the caller owns it. NULL after a failure. */
json_t *ebb_fit_json(const struct ebb_setup *setup, const struct ebb_engine *engine);

/* Seconds that backing and pinning host memory take before the first step. 0: none, or not
 * measured here. */
double ebb_fit_pin_seconds(const struct ebb_setup *setup, const struct ebb_plan *plan);

/* A change of the configuration and what the run would need with it. */
struct ebb_fit_change {
    char text[160]; /* "gradient_checkpointing: true" */
    int64_t device_bytes, host_bytes;
    bool fits;
};
enum { EBB_FIT_CHANGES = 15 };
/* Plans the run again with one thing changed at a time; those that help, the most helpful first. */
enum ebb_status ebb_fit_changes(const struct ebb_setup *setup, const struct ebb_engine *engine,
                                struct ebb_fit_change changes[EBB_FIT_CHANGES], int *count);

/* Whether the plan fits its budgets (without memory_budget: the machine's memory). */
bool ebb_fit_holds(const struct ebb_setup *setup, const struct ebb_engine *engine);
/* EBB_OK if the plan fits its budgets (without memory_budget: the machine's memory). Otherwise
 * EBB_DOES_NOT_FIT with what is needed by kind, the smallest budget that would do, and the three
 * changes that would help most. */
enum ebb_status ebb_fit_check(const struct ebb_setup *setup, const struct ebb_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
