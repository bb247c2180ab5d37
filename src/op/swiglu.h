/* SwiGLU (Shazeer 2020, arXiv 2002.05202); g and u are the two halves of one matrix [R, 2F]:
 *   y = silu(g) u,   silu(g) = g s,   s = 1 / (1 + exp(-g))
 * Backward:
 *   dg = dy u s (1 + g (1 - s)),   du = dy g s
 * In fp32, rounded once. Saves x.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_SWIGLU_H
#define EBB_OP_SWIGLU_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_swiglu_forward {
    struct ebb_view x; /* in [R, 2F] storage: gate, then up */
    struct ebb_view y; /* out [=] [R, F] storage; its stride may be wider */
};
struct ebb_swiglu_backward {
    struct ebb_view x;  /* in [R, 2F] storage */
    struct ebb_view dy; /* in [R, F] storage, any stride */
    struct ebb_view dx; /* out [=] [R, 2F] storage; may be x */
};

enum ebb_status ebb_swiglu_forward_cpu(const struct ebb_op_env *env,
                                       const struct ebb_swiglu_forward *args);
enum ebb_status ebb_swiglu_backward_cpu(const struct ebb_op_env *env,
                                        const struct ebb_swiglu_backward *args);

/* With CUDA: kernels on env->stream (op/swiglu_cuda.cu). */
enum ebb_status ebb_swiglu_forward_cuda(const struct ebb_op_env *env,
                                        const struct ebb_swiglu_forward *args);
enum ebb_status ebb_swiglu_backward_cuda(const struct ebb_op_env *env,
                                         const struct ebb_swiglu_backward *args);

#ifdef __cplusplus
}
#endif
#endif
