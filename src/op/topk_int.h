/* What both backends of topk share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_TOPK_INT_H
#define EBB_OP_TOPK_INT_H

#include "op/topk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* EBB_FAILED with what is wrong. */
enum ebb_status ebb_topk_check(const struct ebb_op_env *env, const struct ebb_topk *args);

#ifdef __cplusplus
}
#endif
#endif
