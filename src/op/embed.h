/* Input embedding: x[t] = table[ids[t]]. Backward: dtable[v] += sum over t with ids[t] = v of
 * dx[t], in fp32, t ascending: each row is summed by one thread in that order, whatever the
 * number of threads. Saves nothing (ids are inputs).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_EMBED_H
#define EBB_OP_EMBED_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_embed_forward {
    struct ebb_view ids;   /* in [1, T] int32; y's row i takes ids[y.row0 + i]. An id outside [0, V)
                              is EBB_FAILED (CUDA: the host checks ids; y's row is NaN) */
    struct ebb_view table; /* in [V, C] storage */
    struct ebb_view y;     /* out [=] [R, C] storage, token rows */
};
struct ebb_embed_backward {
    struct ebb_view ids;     /* in [1, T] int32 */
    struct ebb_view dx;      /* in [T, C] storage, token rows */
    struct ebb_view dtable;  /* out [+=] [V, C] fp32 */
    struct ebb_view scratch; /* [1, ebb_embed_backward_scratch()] bytes (EBB_U8) */
};

int64_t ebb_embed_backward_scratch(int64_t tokens, const struct ebb_op_target *target);
enum ebb_status ebb_embed_forward_cpu(const struct ebb_op_env *env,
                                      const struct ebb_embed_forward *args);
enum ebb_status ebb_embed_backward_cpu(const struct ebb_op_env *env,
                                       const struct ebb_embed_backward *args);

/* With CUDA: kernels on env->stream (op/embed_cuda.cu). */
enum ebb_status ebb_embed_forward_cuda(const struct ebb_op_env *env,
                                       const struct ebb_embed_forward *args);
enum ebb_status ebb_embed_backward_cuda(const struct ebb_op_env *env,
                                        const struct ebb_embed_backward *args);

#ifdef __cplusplus
}
#endif
#endif
