/* What both backends of distillation share: constants checked and brought to the few forms that
 * the kernels have.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_DISTILL_INT_H
#define EBB_OP_DISTILL_INT_H

#include "op/distill.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_distill_kind {
    EBB_DISTILL_PLAIN, /* forward KL(p, q) + reverse KL(q, p) */
    EBB_DISTILL_JSD,
    EBB_DISTILL_SKEWED_FORWARD,
    EBB_DISTILL_SKEWED_REVERSE
};

struct ebb_distill_form {
    enum ebb_distill_kind kind;
    float forward, reverse; /* plain: the shares of the two */
    float mixed, rest;      /* otherwise: the teacher's and the student's share of the mixture */
    float inverse;          /* 1 / tau */
    bool tempered;          /* tau is not 1 */
    double ce, kd;          /* shares of the loss */
    double scale;           /* of the divergence */
    float ce_slope;         /* what CE's and D's gradient by z / tau are multiplied by */
    float kd_slope;
    int64_t vocab;
};

/* EBB_FAILED with what is wrong, naming `op`. `columns`: of the teacher's head, or of the student's
 * again where the teacher has none. */
enum ebb_status ebb_distill_form(const struct ebb_op_env *env, const char *op,
                                 const struct ebb_distill_keys *keys, const struct ebb_view *logits,
                                 int64_t columns, struct ebb_distill_form *form);
/* The views that both ops have; dlogits and scratch may be absent. */
enum ebb_status ebb_distill_check(const struct ebb_op_env *env, const char *op,
                                  const struct ebb_view *logits, const struct ebb_view *dlogits,
                                  const struct ebb_view *label_rows, const struct ebb_view *sums);
enum ebb_status ebb_distill_check_teacher(const struct ebb_op_env *env,
                                          const struct ebb_distill *args);
enum ebb_status ebb_distill_check_topk(const struct ebb_op_env *env,
                                       const struct ebb_distill_topk *args);

#ifdef __cplusplus
}
#endif
#endif
