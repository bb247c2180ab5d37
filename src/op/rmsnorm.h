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
    struct ebb_view dw; /* out [+=] [1, C] fp32, rows in ascending order; may be absent */
    float eps;
    int overwrite; /* 1: dx is set, not added to */
};

enum ebb_status ebb_rmsnorm_forward_cpu(const struct ebb_op_env *env,
                                        const struct ebb_rmsnorm_forward *args);
enum ebb_status ebb_rmsnorm_backward_cpu(const struct ebb_op_env *env,
                                         const struct ebb_rmsnorm_backward *args);

#ifdef __cplusplus
}
#endif
#endif
