/* What ops need beside their operands, by backend. Formulas only, so that a GPU's plan can be made
 * where no GPU is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/scratch_int.h"

#include "op/attention_cudnn_int.h"
#include "op/cross_entropy.h"
#include "op/distill.h"
#include "op/embed.h"
#include "op/optimizer.h"
#include "op/preference_int.h"
#include "op/rmsnorm.h"
#include "op/rotary.h"
#include "op/rows.h"

static bool is_cuda(const struct ebb_op_target *target)
{
    return target->backend == EBB_BACKEND_CUDA;
}

/* A line of fp32 for each part of the rows. */
static int64_t part_lines(int64_t rows, int64_t cols)
{
    return (rows + EBB_CUDA_PART_ROWS - 1) / EBB_CUDA_PART_ROWS * cols * (int64_t)sizeof(float);
}

int64_t ebb_rmsnorm_backward_scratch(int64_t rows, int64_t cols, const struct ebb_op_target *target)
{
    return is_cuda(target) ? part_lines(rows, cols) : 0;
}

int64_t ebb_column_sum_scratch(int64_t rows, int64_t cols, const struct ebb_op_target *target)
{
    return is_cuda(target) ? part_lines(rows, cols) : 0;
}

int64_t ebb_cross_entropy_scratch(int64_t rows, const struct ebb_op_target *target)
{
    return is_cuda(target) ? rows * (int64_t)sizeof(struct ebb_cross_entropy_row) : 0;
}

int64_t ebb_distill_scratch(int64_t rows, const struct ebb_op_target *target)
{
    return is_cuda(target) ? rows * (int64_t)sizeof(struct ebb_distill_row) : 0;
}

int64_t ebb_preference_loss_scratch(int64_t docs, const struct ebb_op_target *target)
{
    return is_cuda(target) ? docs * (int64_t)sizeof(struct ebb_preference_document) : 0;
}

int64_t ebb_norm_squared_scratch(const struct ebb_op_target *target)
{
    return is_cuda(target) ? EBB_OP_MANY * EBB_CUDA_NORM_PARTS * (int64_t)sizeof(double) : 0;
}

int64_t ebb_embed_backward_scratch(int64_t tokens, const struct ebb_op_target *target)
{
    (void)target; /* on either: the order by id, and where a pass of the sort puts the next one */
    return 2 * tokens * (int64_t)sizeof(int32_t);
}

int64_t ebb_rotary_backward_scratch(int64_t rows, int64_t head_dim, bool norms,
                                    const struct ebb_op_target *target)
{
    if (!is_cuda(target)) return ebb_rotary_backward_scratch_cpu(rows, head_dim, norms);
    return norms ? part_lines(rows, 2 * head_dim) : 0;
}

int64_t ebb_attention_deltas(const struct ebb_attention_shape *shape, int64_t tokens)
{
    return tokens * shape->heads * (int64_t)sizeof(float);
}

int64_t ebb_attention_scratch(const struct ebb_attention_shape *shape, enum ebb_dtype dtype,
                              enum ebb_op op, int64_t tokens, int64_t longest,
                              const struct ebb_op_target *target)
{
    const struct ebb_attention_way *way = &target->attention;
    bool backward = op == EBB_OP_attention_backward;
    if (!is_cuda(target)) return ebb_attention_scratch_cpu(shape, tokens, target->threads);
    if (op == EBB_OP_attention_cached || !way->library || !ebb_cudnn_takes(shape, dtype, NULL, 0))
        return backward ? ebb_attention_deltas(shape, tokens) : 0;
    const struct ebb_cudnn_options options = ebb_cudnn_options(way);
    return ebb_cudnn_workspace(shape, tokens, longest, backward, &options);
}
