/* The update program: norm of all gradients, clip factor, and the sweep over all parameters.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_UPDATE_INT_H
#define EBB_UPDATE_INT_H

#include "plan/build.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements of a matrix that the norm and, where its state is away, the sweep take at a time, in
 * whole rows (at least one). The norm's sum depends on it, so it is the same wherever the state
 * lives. 16 MiB of fp32: a size at which copies run at the link's full speed. */
enum { EBB_SWEEP_ELEMENTS = 1 << 22 };

enum ebb_status ebb_update_emit(struct ebb_build *build, const struct ebb_plan_request *request);

#ifdef __cplusplus
}
#endif
#endif
