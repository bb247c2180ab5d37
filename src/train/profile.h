/* Where a step's time goes: the times of its programs' entries, added up by part.
 *
 * COMPUTE sets the pace, so a step is its time line: what ran on it, by part, where it stood still
 * and why, and the rest, in which nothing was on the device (host). These add up to the step.
 * Copies on queues of their own run beside that and are told apart from it.
 *
 * A step begins and ends with the trainer's; runs of programs in between are added. The first steps
 * prepare what later ones find and are left out, unless the run has no others.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PROFILE_H
#define EBB_PROFILE_H

#include "base/json.h"
#include "base/text.h"
#include "plan/rates.h"
#include "program/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_PROFILE_FIRST = 2 }; /* steps that are left out */

/* Means of a step. */
struct ebb_profile_step {
    int64_t steps, left_out; /* that were counted, and the first ones that were not */
    double seconds;
    struct ebb_part_time parts[EBB_PART_COUNT];
};

/* An op of one size, or a copy; means of a step. */
struct ebb_profile_op {
    char label[EBB_OP_LABEL];
    enum ebb_step_part part;
    enum ebb_cost_class which; /* plan/rates.h */
    double count;              /* how often it runs in a step */
    struct ebb_part_time time;
};

/* What this device does at most, measured on it; a second, 0: not known. */
struct ebb_ceilings {
    double flops;               /* of a large product in the run's storage type */
    double bytes;               /* device memory, read and written */
    double out_bytes, in_bytes; /* to the host and back */
};

struct ebb_profile;

/* `numerics` is borrowed: what its programs were made for. */
enum ebb_status ebb_profile_create(struct ebb_ctx *ctx, const struct ebb_numerics *numerics,
                                   struct ebb_profile **profile);
void ebb_profile_free(struct ebb_profile *profile); /* accepts NULL */

/* A step that never ends is forgotten when the next one begins. `seconds`: how long it took, with
 * what the profile itself took for it. */
void ebb_profile_begin(struct ebb_profile *profile);
void ebb_profile_end(struct ebb_profile *profile, double seconds);
/* Forgets the steps so far. From here on every step counts: whoever calls it has warmed up. */
void ebb_profile_forget(struct ebb_profile *profile);
/* A run of a program that came to its sync; the executor has `profile`. `optimizer`: its ops are
 * the optimizer's, whatever they are. `envs` [count]: of the run's micro-batches, as ebb_op_work
 * wants them. */
enum ebb_status ebb_profile_add(struct ebb_profile *profile, const struct ebb_executor *executor,
                                const struct ebb_program *program, const struct ebb_op_env *envs,
                                int32_t count, bool optimizer);

/* steps 0: there is nothing. */
struct ebb_profile_step ebb_profile_mean(const struct ebb_profile *profile);
/* All ops, the longest first; [*count], the caller frees. */
enum ebb_status ebb_profile_ops(const struct ebb_profile *profile, struct ebb_profile_op **ops,
                                int64_t *count);
/* The key of run.json; NULL: no memory. Numbers that are not known are null. */
json_t *ebb_profile_json(const struct ebb_profile_step *step, const struct ebb_profile_op *ops,
                         int64_t count, const struct ebb_ceilings *ceilings);
/* Lines for people, each ending with a newline. */
enum ebb_status ebb_profile_table(struct ebb_ctx *ctx, const struct ebb_profile_step *step,
                                  const struct ebb_ceilings *ceilings, struct ebb_str *text);

#ifdef __cplusplus
}
#endif
#endif
