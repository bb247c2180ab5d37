/* What the CPU's losses share: passes over a row of logits and the check of its labels. None of
 * them depends on the number of threads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_VOCAB_INT_H
#define EBB_OP_VOCAB_INT_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest of n logits, what a row's powers are taken relative to. NaN is passed over; a row
 * of nothing but -inf has 0, so that a sum of its powers is 0 and not NaN. */
float ebb_vocab_max(const float *z, int64_t n);
/* sum of exp(scale (z - max)); chunks are added in double. */
double ebb_vocab_sum_exp(const float *z, int64_t n, float max, float scale);
/* Is the value among the n logits? */
bool ebb_vocab_has(const float *z, int64_t n, float value);
/* Zeros into elements [from, to) of a row. */
static inline void ebb_vocab_clear(enum ebb_dtype dtype, void *row, int64_t from, int64_t to)
{
    size_t size = (size_t)ebb_dtype_bytes(dtype);
    memset((char *)row + (size_t)from * size, 0, (size_t)(to - from) * size);
}
/* Every label of `rows` rows must be a token of this batch with a target below `vocab`; `row0` is
 * the label of the first row. EBB_FAILED naming `op`. */
enum ebb_status ebb_vocab_check_labels(const struct ebb_op_env *env, const char *op,
                                       const struct ebb_view *targets,
                                       const struct ebb_view *label_rows, int64_t row0,
                                       int64_t rows, int64_t vocab);

#ifdef __cplusplus
}
#endif
#endif
