/* What op.c wants from the file of CUDA's column (op_cuda.c or op_cuda_none.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_INT_H
#define EBB_OP_INT_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

ebb_op_fn ebb_op_function_cuda(enum ebb_op op);             /* NULL: none */
const struct ebb_op_many *ebb_op_many_cuda(enum ebb_op op); /* NULL: none */

#ifdef __cplusplus
}
#endif
#endif
