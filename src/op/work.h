/* How much an op does in a run, for rates: what a profile and a benchmark divide by seconds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_WORK_H
#define EBB_OP_WORK_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_op_work {
    /* Multiplications and additions of matrix products, and of attention's: each counts the pairs
     * of a query and a key that it may see and no others; forward has two products, backward five,
     * with the scores that it makes again. 0 of all other ops. */
    double flops;
    /* That have to be read and written at least once, at live rows. Scratch and step blocks are not
     * counted; rows that are looked up in a table count once for each look. */
    double bytes;
};

/* Of env: `step` is used, and for attention `doc_starts`, which must be there. */
struct ebb_op_work ebb_op_work(const struct ebb_op_env *env, enum ebb_op op, const void *args);

/* An op and its size at capacity, for people: "swiglu_forward [2048, 9728]", "matmul NT [2048,
 * 1152] k 944 +=". Ops that do the same work have the same label. */
enum { EBB_OP_LABEL = 96 };
void ebb_op_label(enum ebb_op op, const void *args, char label[EBB_OP_LABEL]);

#ifdef __cplusplus
}
#endif
#endif
