/* A build without the CUDA toolkit: plans for a GPU can be made, products cannot be run.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul_int.h"

struct none {
    struct ebb_matmul_lib head;
    struct ebb_ctx *ctx;
};

enum ebb_status ebb_matmul_cuda_create(struct ebb_ctx *ctx, struct ebb_matmul_lib **lib)
{
    struct none *none = ebb_mem_alloc(ctx, sizeof *none);
    *lib = NULL;
    if (none == NULL) return EBB_NO_MEMORY;
    none->head.backend = EBB_BACKEND_CUDA;
    none->ctx = ctx;
    *lib = &none->head;
    return EBB_OK;
}

void ebb_matmul_cuda_free(struct ebb_matmul_lib *lib)
{
    struct none *none = (struct none *)lib;
    ebb_mem_free(none->ctx, none);
}

const char *ebb_matmul_cuda_version(struct ebb_matmul_lib *lib)
{
    (void)lib;
    return "cuBLASLt (not in this build)";
}
