/* Checks of attention's arguments that do not depend on where it runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_check_int.h"

enum ebb_status ebb_attention_check_shape(const struct ebb_op_env *env,
                                          const struct ebb_attention_shape *s, const char *op)
{
    bool sizes = s->heads > 0 && s->kv_heads > 0 && s->heads % s->kv_heads == 0 && s->qk_dim > 0 &&
                 s->v_dim > 0;
    if (!sizes || s->window < 0 || !(s->softcap >= 0)) {
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "%s: %lld heads, %lld kv heads, head sizes %lld and %lld, window %lld, "
                        "softcap %g: the heads "
                        "must be a multiple of the kv heads and nothing negative",
                        op, (long long)s->heads, (long long)s->kv_heads, (long long)s->qk_dim,
                        (long long)s->v_dim, (long long)s->window, (double)s->softcap);
    }
    return EBB_OK;
}

enum ebb_status ebb_attention_check_view(const struct ebb_op_env *env, const char *op,
                                         const char *name, const struct ebb_view *view, int dtype,
                                         int64_t rows, int64_t cols)
{
    if (view->tensor >= 0 && view->dtype == dtype && view->cols == cols && view->stride >= cols &&
        view->rows >= rows) {
        return EBB_OK;
    }
    return EBB_FAIL(env->ctx, EBB_FAILED, "%s: %s is [%lld, %lld] %s%s, wanted [>= %lld, %lld] %s",
                    op, name, (long long)view->rows, (long long)view->cols,
                    ebb_dtype_name((enum ebb_dtype)view->dtype),
                    view->tensor < 0 ? " and absent" : "", (long long)rows, (long long)cols,
                    ebb_dtype_name((enum ebb_dtype)dtype));
}

enum ebb_status ebb_attention_check_scratch(const struct ebb_op_env *env, const char *op,
                                            const struct ebb_view *scratch, int64_t wanted)
{
    if (scratch->tensor >= 0 && scratch->cols >= wanted) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_FAILED, "%s: %lld bytes of scratch, wanted %lld", op,
                    (long long)(scratch->tensor < 0 ? 0 : scratch->cols), (long long)wanted);
}
