/* Scratch that CPU kernels need, by op; op/scratch.c has the front and the GPU's share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_SCRATCH_INT_H
#define EBB_OP_SCRATCH_INT_H

#include "op/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA kernels sum rows in parts of so many, then the parts. */
enum { EBB_CUDA_PART_ROWS = 16, EBB_CUDA_NORM_PARTS = 1024 };

/* One row of cross_entropy, before rows are added up. */
struct ebb_cross_entropy_row {
    double loss;
    int32_t label, correct;
};

/* One row of distill or distill_topk. */
struct ebb_distill_row {
    double loss, cross_entropy, divergence;
    int32_t label, correct;
};

/* The plain CUDA backward's: delta of each row and head. */
int64_t ebb_attention_deltas(const struct ebb_attention_shape *shape, int64_t tokens);
int64_t ebb_attention_scratch_cpu(const struct ebb_attention_shape *shape, int64_t tokens,
                                  int threads);
int64_t ebb_rotary_backward_scratch_cpu(int64_t rows, int64_t head_dim, bool norms);

#ifdef __cplusplus
}
#endif
#endif
