/* What the losses share: where a gradient may lie, and the CPU's passes over a row of logits and
 * check of its labels, none of which depends on the number of threads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_VOCAB_INT_H
#define EBB_OP_VOCAB_INT_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- where a gradient may lie ----
 * Apart from the logits, in their place (fp32), or in the upper half of each of their rows (bf16,
 * ebb_view_upper_half). So a pass that writes a gradient goes over a row from the last columns to
 * the first, and has read all columns of a chunk before it writes any of them. */

/* As messages say it. */
#define EBB_GRADIENT_PLACES                                                                        \
    "all of it elsewhere, in their place (float32) or in the upper half of each row (bfloat16)"

/* Does a gradient touch the logits? It may be absent. */
static inline bool ebb_gradient_overwrites(const struct ebb_view *logits,
                                           const struct ebb_view *dlogits)
{
    return dlogits->tensor >= 0 && dlogits->tensor == logits->tensor &&
           dlogits->offset < logits->offset + ebb_view_span(logits) &&
           logits->offset < dlogits->offset + ebb_view_span(dlogits);
}

/* Is it at one of the three places? Both have the same columns. */
static inline bool ebb_gradient_has_place(const struct ebb_view *logits,
                                          const struct ebb_view *dlogits)
{
    struct ebb_view place = dlogits->dtype == EBB_F32 ? *logits : ebb_view_upper_half(logits);
    if (!ebb_gradient_overwrites(logits, dlogits)) return true;
    return dlogits->dtype == place.dtype && dlogits->offset == place.offset &&
           dlogits->stride == place.stride;
}

/* ---- the CPU's passes ---- */

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
