/* Checks of attention's arguments that both backends make. `op` names the op in messages; what
 * fails is EBB_FAILED. SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_ATTENTION_CHECK_INT_H
#define EBB_OP_ATTENTION_CHECK_INT_H

#include "op/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_status ebb_attention_check_shape(const struct ebb_op_env *env,
                                          const struct ebb_attention_shape *s, const char *op);
/* The view `name` has this dtype, these columns and at least these rows. */
enum ebb_status ebb_attention_check_view(const struct ebb_op_env *env, const char *op,
                                         const char *name, const struct ebb_view *view, int dtype,
                                         int64_t rows, int64_t cols);
enum ebb_status ebb_attention_check_scratch(const struct ebb_op_env *env, const char *op,
                                            const struct ebb_view *scratch, int64_t wanted);

#ifdef __cplusplus
}
#endif
#endif
