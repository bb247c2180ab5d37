/* topk's arguments, checked the same way for both backends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/topk_int.h"

#include <math.h>

static enum ebb_status check_types(const struct ebb_op_env *env, const struct ebb_topk *args)
{
    enum ebb_dtype logits = (enum ebb_dtype)args->logits.dtype;
    enum ebb_dtype ids = (enum ebb_dtype)args->ids.dtype;
    enum ebb_dtype logprobs = (enum ebb_dtype)args->logprobs.dtype;
    if (logits != EBB_F32)
        return EBB_FAIL(env->ctx, EBB_FAILED, "topk: the logits are %s, wanted float32",
                        ebb_dtype_name(logits));
    if (ids != EBB_I32)
        return EBB_FAIL(env->ctx, EBB_FAILED, "topk: the ids are %s, wanted int32",
                        ebb_dtype_name(ids));
    if (logprobs != EBB_F32 && logprobs != EBB_BF16)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "topk: the log-probabilities are %s, wanted float32 or bfloat16",
                        ebb_dtype_name(logprobs));
    return EBB_OK;
}

enum ebb_status ebb_topk_check(const struct ebb_op_env *env, const struct ebb_topk *args)
{
    const struct ebb_view *logits = &args->logits, *ids = &args->ids, *logprobs = &args->logprobs;
    EBB_TRY(check_types(env, args));
    float inverse = (float)(1 / args->temperature);
    if (!(args->temperature > 0 && inverse > 0 && isfinite(inverse)))
        return EBB_FAIL(env->ctx, EBB_FAILED, "topk: the temperature is %g, wanted more than 0",
                        args->temperature);
    if (args->vocab < 1 || args->vocab > logits->cols || args->vocab > INT32_MAX)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "topk: a vocabulary of %lld in logits of %lld columns",
                        (long long)args->vocab, (long long)logits->cols);
    int64_t most = args->vocab < EBB_DISTILL_TOPK ? args->vocab : EBB_DISTILL_TOPK;
    if (ids->cols != logprobs->cols || ids->cols < 1 || ids->cols > most)
        return EBB_FAIL(
            env->ctx, EBB_FAILED,
            "topk: %lld ids and %lld log-probabilities a label, wanted as many of both, "
            "1 to %lld",
            (long long)ids->cols, (long long)logprobs->cols, (long long)most);
    if (ids->rows < logits->rows || logprobs->rows < logits->rows)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "topk: ids of %lld labels and log-probabilities of %lld, wanted %lld",
                        (long long)ids->rows, (long long)logprobs->rows, (long long)logits->rows);
    return EBB_OK;
}
