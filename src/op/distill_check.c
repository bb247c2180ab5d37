/* Distillation's arguments, checked the same way for both backends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/distill_int.h"

#include <math.h>

#include "op/vocab_int.h"

const char *ebb_divergence_name(enum ebb_divergence divergence)
{
    static const char *const names[EBB_DIVERGENCES] = {"forward KL",        "reverse KL",
                                                       "generalised JSD",   "symmetric KL",
                                                       "skewed forward KL", "skewed reverse KL"};
    return names[divergence];
}

static enum ebb_status check_keys(const struct ebb_op_env *env, const char *op,
                                  const struct ebb_distill_keys *keys)
{
    if ((unsigned)keys->divergence >= EBB_DIVERGENCES)
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: there is no divergence %d", op,
                        (int)keys->divergence);
    if (!(keys->beta >= 0 && keys->beta <= 1))
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: beta is %g, wanted 0 to 1", op, keys->beta);
    if (!(keys->kd_ratio >= 0 && keys->kd_ratio <= 1))
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: kd_ratio is %g, wanted 0 to 1", op,
                        keys->kd_ratio);
    float inverse = (float)(1 / keys->temperature);
    if (!(keys->temperature > 0 && inverse > 0 && isfinite(inverse)))
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: the temperature is %g, wanted more than 0", op,
                        keys->temperature);
    return EBB_OK;
}

/* A share of a mixture as fp32, small ones too; never 0. */
static float share_of(double share)
{
    const float least = 0x1p-120f;
    return (float)share > least ? (float)share : least;
}

/* The ends of beta are forms of their own: there a mixture is one of the two, and the logarithm of
 * the other's share would be infinite. */
static void choose_kind(const struct ebb_distill_keys *keys, struct ebb_distill_form *form)
{
    double beta = keys->beta;
    bool inner = beta > 0 && beta < 1;
    form->kind = EBB_DISTILL_PLAIN;
    form->mixed = share_of(beta);
    form->rest = share_of(1 - beta);
    switch (keys->divergence) {
    case EBB_FORWARD_KL:
        form->forward = 1;
        break;
    case EBB_REVERSE_KL:
        form->reverse = 1;
        break;
    case EBB_JSD:
        if (inner) form->kind = EBB_DISTILL_JSD;
        form->forward = beta <= 0;
        form->reverse = beta >= 1;
        break;
    case EBB_SYMMETRIC_KL:
        form->forward = (float)beta;
        form->reverse = (float)(1 - beta);
        break;
    case EBB_SKEWED_FORWARD_KL:
        if (inner) form->kind = EBB_DISTILL_SKEWED_FORWARD;
        form->forward = beta <= 0;
        break;
    case EBB_SKEWED_REVERSE_KL:
        if (inner) form->kind = EBB_DISTILL_SKEWED_REVERSE;
        form->reverse = beta <= 0;
        form->mixed = share_of(1 - beta);
        form->rest = share_of(beta);
        break;
    case EBB_DIVERGENCES:
        break;
    }
}

enum ebb_status ebb_distill_form(const struct ebb_op_env *env, const char *op,
                                 const struct ebb_distill_keys *keys, const struct ebb_view *logits,
                                 int64_t columns, struct ebb_distill_form *form)
{
    EBB_TRY(check_keys(env, op, keys));
    int64_t fewer = columns < logits->cols ? columns : logits->cols;
    if (keys->vocab < 1 || keys->vocab > fewer)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "%s: %lld columns to compare, of a student's %lld and a teacher's %lld", op,
                        (long long)keys->vocab, (long long)logits->cols, (long long)columns);
    memset(form, 0, sizeof *form);
    choose_kind(keys, form);
    double tau = keys->temperature;
    form->inverse = (float)(1 / tau);
    form->tempered = form->inverse != 1.0f;
    form->ce = 1 - keys->kd_ratio;
    form->kd = keys->kd_ratio;
    form->scale = keys->scale_t2 ? tau * tau : 1;
    form->ce_slope = (float)form->ce;
    form->kd_slope = (float)(form->kd * form->scale / tau);
    form->vocab = keys->vocab;
    return EBB_OK;
}

enum ebb_status ebb_distill_check(const struct ebb_op_env *env, const char *op,
                                  const struct ebb_view *logits, const struct ebb_view *dlogits,
                                  const struct ebb_view *label_rows, const struct ebb_view *sums)
{
    if (logits->dtype != EBB_F32)
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: the student's logits are %s, wanted float32", op,
                        ebb_dtype_name((enum ebb_dtype)logits->dtype));
    if (dlogits->tensor >= 0 && (dlogits->cols != logits->cols || dlogits->rows < logits->rows))
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "%s: the gradient is [%lld, %lld], wanted [%lld, %lld]", op,
                        (long long)dlogits->rows, (long long)dlogits->cols, (long long)logits->rows,
                        (long long)logits->cols);
    if (dlogits->tensor >= 0 && dlogits->dtype != EBB_F32 && dlogits->dtype != EBB_BF16)
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: the gradient is %s, wanted float32 or bfloat16",
                        op, ebb_dtype_name((enum ebb_dtype)dlogits->dtype));
    if (!ebb_gradient_has_place(logits, dlogits))
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "%s: the %s gradient lies across the logits, wanted " EBB_GRADIENT_PLACES,
                        op, ebb_dtype_name((enum ebb_dtype)dlogits->dtype));
    int64_t rows = ebb_view_rows(env, logits);
    EBB_ASSERT(rows == 0 || logits->row0 + rows <= label_rows->cols);
    EBB_ASSERT(sums->cols == (int64_t)sizeof(struct ebb_sums));
    return EBB_OK;
}

enum ebb_status ebb_distill_check_teacher(const struct ebb_op_env *env,
                                          const struct ebb_distill *args)
{
    const struct ebb_view *teacher = &args->teacher;
    if (teacher->dtype != EBB_F32)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "distill: the teacher's logits are %s, wanted float32",
                        ebb_dtype_name((enum ebb_dtype)teacher->dtype));
    if (teacher->rows < args->logits.rows)
        return EBB_FAIL(env->ctx, EBB_FAILED, "distill: a teacher of %lld labels, wanted %lld",
                        (long long)teacher->rows, (long long)args->logits.rows);
    return EBB_OK;
}

enum ebb_status ebb_distill_check_topk(const struct ebb_op_env *env,
                                       const struct ebb_distill_topk *args)
{
    const struct ebb_view *ids = &args->ids, *logprobs = &args->logprobs;
    if (ids->dtype != EBB_I32)
        return EBB_FAIL(env->ctx, EBB_FAILED, "distill_topk: the ids are %s, wanted int32",
                        ebb_dtype_name((enum ebb_dtype)ids->dtype));
    if (logprobs->dtype != EBB_F32 && logprobs->dtype != EBB_BF16)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "distill_topk: the log-probabilities are %s, wanted float32 or bfloat16",
                        ebb_dtype_name((enum ebb_dtype)logprobs->dtype));
    int64_t most = args->keys.vocab < EBB_DISTILL_TOPK ? args->keys.vocab : EBB_DISTILL_TOPK;
    if (ids->cols != logprobs->cols || ids->cols < 1 || ids->cols > most)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "distill_topk: %lld ids and %lld log-probabilities a label, wanted as many "
                        "of both, 1 to %lld",
                        (long long)ids->cols, (long long)logprobs->cols, (long long)most);
    int64_t rows = args->logits.rows;
    if (ids->rows < rows || logprobs->rows < rows)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "distill_topk: ids of %lld labels and log-probabilities of %lld, wanted "
                        "%lld",
                        (long long)ids->rows, (long long)logprobs->rows, (long long)rows);
    return EBB_OK;
}
