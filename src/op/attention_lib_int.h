/* Where attention's plain CUDA kernels hand over to the library.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_ATTENTION_LIB_INT_H
#define EBB_OP_ATTENTION_LIB_INT_H

#include "op/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does the library run this call? The plan's scratch was reserved by the same rule. */
bool ebb_attention_by_library(const struct ebb_op_env *env, const struct ebb_attention_shape *shape,
                              enum ebb_dtype dtype);
/* Where it does; the arguments have been checked. */
enum ebb_status ebb_attention_library_forward(const struct ebb_op_env *env,
                                              const struct ebb_attention_forward *args);
enum ebb_status ebb_attention_library_backward(const struct ebb_op_env *env,
                                               const struct ebb_attention_backward *args);

#ifdef __cplusplus
}
#endif
#endif
