/* A build without the CUDA toolkit: plans for a GPU can be made, products cannot be run.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul_int.h"

enum ebb_status ebb_matmul_cuda_create(struct ebb_ctx *ctx, struct ebb_matmul_lib **lib)
{
    const struct ebb_op_target target = {.backend = EBB_BACKEND_CUDA};
    return ebb_matmul_lib_create_planned(ctx, &target, lib);
}

/* There is no object that these could be called with. */
void ebb_matmul_cuda_free(struct ebb_matmul_lib *lib)
{
    EBB_ASSERT(lib == NULL);
}

const char *ebb_matmul_cuda_version(struct ebb_matmul_lib *lib)
{
    EBB_ASSERT(lib == NULL);
    return "";
}
