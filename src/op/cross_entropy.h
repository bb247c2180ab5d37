/* Cross-entropy of a chunk of logits z with target y, and its gradient in one pass:
 *   l = log(sum_j exp(z_j)) - z_y,   dl/dz_j = softmax(z)_j - [j = y]
 * Sums are unnormalised: the optimizer step divides once by the step's total weight.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_CROSS_ENTROPY_H
#define EBB_OP_CROSS_ENTROPY_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_cross_entropy {
    struct ebb_view logits;     /* in [R, V] fp32, label rows; dlogits may overwrite it */
    struct ebb_view targets;    /* in [1, T] int32 */
    struct ebb_view label_rows; /* in [1, T] int32: row i is about token label_rows[row0 + i] */
    /* out [=] [R, V] storage; may be logits (fp32) or the upper half of each of its rows (bf16,
     * ebb_view_upper_half); absent: loss only */
    struct ebb_view dlogits;
    /* out [+=] struct ebb_sums as [1, sizeof] bytes: loss, labels and correct; rows are added in
     * ascending order (CUDA: in parts, then the parts). The first index wins a tie for the largest
     * logit. */
    struct ebb_view sums;
    struct ebb_view scratch; /* [1, ebb_cross_entropy_scratch()] bytes; absent where it is 0 */
};

int64_t ebb_cross_entropy_scratch(int64_t rows, const struct ebb_op_target *target);

enum ebb_status ebb_cross_entropy_cpu(const struct ebb_op_env *env,
                                      const struct ebb_cross_entropy *args);

/* With CUDA: kernels on env->stream (op/cross_entropy_cuda.cu). */
enum ebb_status ebb_cross_entropy_cuda(const struct ebb_op_env *env,
                                       const struct ebb_cross_entropy *args);

#ifdef __cplusplus
}
#endif
#endif
