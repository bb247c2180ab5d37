/* A build without the CUDA toolkit: no op runs on a GPU. What a plan asks of such a machine is
 * formulas, and the matmul library's object has those.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_int.h"

ebb_op_fn ebb_op_function_cuda(enum ebb_op op)
{
    (void)op;
    return NULL;
}

const struct ebb_op_many *ebb_op_many_cuda(enum ebb_op op)
{
    (void)op;
    return NULL;
}
