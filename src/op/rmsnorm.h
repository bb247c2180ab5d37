/* RMS norm (Zhang, Sennrich 2019, arXiv 1910.07467), in fp32:
 *   y = x / rms(x) * w,   rms(x) = sqrt(mean(x^2) + eps)
 * As transformers does it, x / rms(x) is rounded to the storage type before it is multiplied by w.
 * Backward, with r = 1 / rms(x), xh = x r, g = dy w:
 *   dx += r (g - xh mean(g xh)),   dw += sum over rows of dy xh
 *
 * Saves only x; r is computed again.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_RMSNORM_H
#define EBB_OP_RMSNORM_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_rmsnorm_forward {
    struct ebb_view x; /* in [R, C] storage */
    struct ebb_view w; /* in [1, C] storage */
    /* out [=] [R, C] storage; its stride may be wider (an adapter's tail follows); may be x */
    struct ebb_view y;
    float eps;
};
struct ebb_rmsnorm_backward {
    struct ebb_view x;  /* in [R, C] storage */
    struct ebb_view w;  /* in [1, C] storage */
    struct ebb_view dy; /* in [R, C] storage, any stride */
    /* out [+=] ([=], see overwrite) [R, C] storage: added in fp32, rounded once; may be dy */
    struct ebb_view dx;
    /* out [+=] [1, C] fp32, rows in ascending order (CUDA: in parts of 16 rows, then the parts);
     * may be absent */
    struct ebb_view dw;
    /* [1, ebb_rmsnorm_backward_scratch()] bytes; absent where it is 0, and without dw */
    struct ebb_view scratch;
    float eps;
    int overwrite; /* 1: dx is set, not added to */
};

int64_t ebb_rmsnorm_backward_scratch(int64_t rows, int64_t cols,
                                     const struct ebb_op_target *target);
enum ebb_status ebb_rmsnorm_forward_cpu(const struct ebb_op_env *env,
                                        const struct ebb_rmsnorm_forward *args);
enum ebb_status ebb_rmsnorm_backward_cpu(const struct ebb_op_env *env,
                                         const struct ebb_rmsnorm_backward *args);

/* With CUDA: kernels on env->stream (op/rmsnorm_cuda.cu). */
enum ebb_status ebb_rmsnorm_forward_cuda(const struct ebb_op_env *env,
                                         const struct ebb_rmsnorm_forward *args);
enum ebb_status ebb_rmsnorm_backward_cuda(const struct ebb_op_env *env,
                                          const struct ebb_rmsnorm_backward *args);

#ifdef __cplusplus
}
#endif
#endif
