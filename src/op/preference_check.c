/* Preference training's arguments, checked the same way for both backends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/preference_int.h"

#include <assert.h>

#include "op/vocab_int.h"

static const char *const names[] = {"sigmoid", "ipo", "hinge", "orpo", "simpo", "kto"};
static_assert(sizeof names / sizeof names[0] == EBB_PREFERENCES, "a name for each loss");

const char *ebb_preference_name(enum ebb_preference loss_type)
{
    return names[loss_type];
}

static const char *dtype_of(const struct ebb_view *view)
{
    return ebb_dtype_name((enum ebb_dtype)view->dtype);
}

/* ---- log-probabilities and their gradient ---- */

enum ebb_status ebb_preference_check_labels(const struct ebb_op_env *env, const char *op,
                                            const struct ebb_view *logits,
                                            const struct ebb_view *label_rows,
                                            const struct ebb_view *vector, int64_t vocab)
{
    if (logits->dtype != EBB_F32)
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: the logits are %s, wanted float32", op,
                        dtype_of(logits));
    if (vector->dtype != EBB_F32)
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: the labels' vector is %s, wanted float32", op,
                        dtype_of(vector));
    if (vocab < 1 || vocab > logits->cols)
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: a vocabulary of %lld, wanted 1 to %lld", op,
                        (long long)vocab, (long long)logits->cols);
    int64_t end = logits->row0 + ebb_view_rows(env, logits);
    if (vector->cols < end)
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: a vector of %lld labels, wanted %lld", op,
                        (long long)vector->cols, (long long)end);
    EBB_ASSERT(end <= label_rows->cols || end == logits->row0);
    return EBB_OK;
}

enum ebb_status ebb_preference_check_gradient(const struct ebb_op_env *env,
                                              const struct ebb_view *logits,
                                              const struct ebb_view *dlogits)
{
    if (dlogits->cols != logits->cols || dlogits->rows < logits->rows)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "label_logprob_backward: the gradient is [%lld, %lld], wanted [%lld, %lld]",
                        (long long)dlogits->rows, (long long)dlogits->cols, (long long)logits->rows,
                        (long long)logits->cols);
    if (dlogits->dtype != EBB_F32 && dlogits->dtype != EBB_BF16)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "label_logprob_backward: the gradient is %s, wanted float32 or bfloat16",
                        dtype_of(dlogits));
    if (!ebb_gradient_has_place(logits, dlogits))
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "label_logprob_backward: the %s gradient lies across the logits, "
                        "wanted " EBB_GRADIENT_PLACES,
                        dtype_of(dlogits));
    return EBB_OK;
}

/* ---- losses ---- */

/* A constant that must be finite and at least 0. */
static enum ebb_status check_constant(const struct ebb_op_env *env, const char *name, double value)
{
    if (value >= 0 && isfinite(value)) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_FAILED, "preference_loss: %s is %g, wanted 0 or more", name,
                    value);
}

static enum ebb_status check_keys(const struct ebb_op_env *env,
                                  const struct ebb_preference_keys *keys)
{
    enum ebb_preference type = keys->loss_type;
    if ((unsigned)type >= EBB_PREFERENCES)
        return EBB_FAIL(env->ctx, EBB_FAILED, "preference_loss: there is no loss %d", (int)type);
    if (!(keys->beta > 0 && isfinite(keys->beta) && isfinite(1 / keys->beta)))
        return EBB_FAIL(env->ctx, EBB_FAILED, "preference_loss: beta is %g, wanted more than 0",
                        keys->beta);
    if (!(keys->label_smoothing >= 0 && keys->label_smoothing <= 0.5))
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "preference_loss: label_smoothing is %g, wanted 0 to 0.5",
                        keys->label_smoothing);
    if (keys->label_smoothing > 0 && type != EBB_PREFERENCE_SIGMOID && type != EBB_PREFERENCE_SIMPO)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "preference_loss: label_smoothing is %g, but the loss %s has none",
                        keys->label_smoothing, names[type]);
    EBB_TRY(check_constant(env, "simpo_gamma", keys->simpo_gamma));
    EBB_TRY(check_constant(env, "desirable_weight", keys->desirable_weight));
    return check_constant(env, "undesirable_weight", keys->undesirable_weight);
}

/* A vector with an element for each label. */
static enum ebb_status check_vector(const struct ebb_op_env *env, const char *name,
                                    const struct ebb_view *view, enum ebb_dtype dtype,
                                    int64_t wanted)
{
    if (view->dtype != dtype)
        return EBB_FAIL(env->ctx, EBB_FAILED, "preference_loss: the %s are %s, wanted %s", name,
                        dtype_of(view), ebb_dtype_name(dtype));
    if (view->cols < wanted)
        return EBB_FAIL(env->ctx, EBB_FAILED, "preference_loss: %lld %s, wanted %lld",
                        (long long)view->cols, name, (long long)wanted);
    return EBB_OK;
}

enum ebb_status ebb_preference_check_loss(const struct ebb_op_env *env,
                                          const struct ebb_preference_loss *args)
{
    int64_t labels = env->step->labels, docs = env->step->docs;
    enum ebb_preference type = args->keys.loss_type;
    bool reference = args->reference.tensor >= 0, kinds = args->kinds.tensor >= 0;
    EBB_TRY(check_keys(env, &args->keys));
    EBB_TRY(check_vector(env, "log-probabilities", &args->logprob, EBB_F32, labels));
    EBB_TRY(check_vector(env, "coefficients", &args->coefficient, EBB_F32, labels));
    EBB_TRY(check_vector(env, "label rows", &args->label_rows, EBB_I32, labels));
    EBB_TRY(check_vector(env, "starts of documents", &args->doc_starts, EBB_I32, docs + 1));
    if (reference)
        EBB_TRY(
            check_vector(env, "reference's log-probabilities", &args->reference, EBB_F32, labels));
    if (reference && (type == EBB_PREFERENCE_ORPO || type == EBB_PREFERENCE_SIMPO))
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "preference_loss: a reference, but the loss %s has no use for one",
                        names[type]);
    if (kinds != (type == EBB_PREFERENCE_KTO))
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        kinds ? "preference_loss: kinds of documents, but the loss %s goes by pairs"
                              : "preference_loss: the loss %s wants a kind for each document",
                        names[type]);
    if (kinds) EBB_TRY(check_vector(env, "kinds of documents", &args->kinds, EBB_I32, docs));
    if (!kinds && docs % 2 != 0)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "preference_loss: %lld documents are no pairs: each chosen one must be "
                        "followed by its rejected one",
                        (long long)docs);
    EBB_ASSERT(args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    return EBB_OK;
}
