/* Dropout on an adapter's input: y = m x / (1 - p), or, with accumulate, y += that. m is 1 with
 * probability 1 - p and is a pure function of (seed, step, micro-batch, rank, instance) and the
 * element's index row N + column (row: the absolute token), so the backward pass makes the same
 * mask again instead of saving it: the same op on the gradient.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_DROPOUT_H
#define EBB_OP_DROPOUT_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_dropout {
    struct ebb_view x; /* in [R, N] storage, token rows */
    struct ebb_view y; /* out [=], or [+=] with accumulate, [R, N] storage; may be x */
    uint32_t instance; /* which dropout of the model this is */
    float p;           /* 0 <= p < 1 */
    int accumulate;
};

enum ebb_status ebb_dropout_cpu(const struct ebb_op_env *env, const struct ebb_dropout *args);

/* With CUDA: kernels on env->stream (op/dropout_cuda.cu). */
enum ebb_status ebb_dropout_cuda(const struct ebb_op_env *env, const struct ebb_dropout *args);

#ifdef __cplusplus
}
#endif
#endif
