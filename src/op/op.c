/* The list of ops as a table, made from op/list.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op.h"
#include "op/op_int.h"

#include <assert.h>

#include "op/attention.h"
#include "op/cross_entropy.h"
#include "op/distill.h"
#include "op/dropout.h"
#include "op/embed.h"
#include "op/matmul.h"
#include "op/optimizer.h"
#include "op/preference.h"
#include "op/rmsnorm.h"
#include "op/rotary.h"
#include "op/rows.h"
#include "op/swiglu.h"
#include "op/topk.h"

#define X(name, views, access)                                                                     \
    static_assert((views) <= EBB_OP_VIEWS, #name ": more views than EBB_OP_VIEWS");                \
    static_assert(sizeof(access) - 1 == (views), #name ": one letter of access for each view");    \
    static_assert(sizeof(struct ebb_##name) >= (views) * sizeof(struct ebb_view),                  \
                  #name ": fewer views than listed");
#include "op/list.h"
#undef X

/* The one place where arguments lose and regain their type. */
#define X(name, views, access)                                                                     \
    static enum ebb_status run_##name(const struct ebb_op_env *env, const void *args)              \
    {                                                                                              \
        return ebb_##name##_cpu(env, (const struct ebb_##name *)args);                             \
    }
#include "op/list.h"
#undef X

static const struct ebb_op_info infos[] = {
#define X(name, views, access) {#name, (views), (access), sizeof(struct ebb_##name), run_##name},
#include "op/list.h"
#undef X
};
static_assert(sizeof infos / sizeof infos[0] == EBB_OP_COUNT, "one row for each op");

const struct ebb_op_info *ebb_op_info(enum ebb_op op)
{
    return (size_t)op < EBB_OP_COUNT ? &infos[op] : NULL;
}

ebb_op_fn ebb_op_function(enum ebb_op op, enum ebb_backend backend)
{
    const struct ebb_op_info *info = ebb_op_info(op);
    if (info == NULL) return NULL;
    return backend == EBB_BACKEND_CUDA ? ebb_op_function_cuda(op) : info->cpu;
}

const struct ebb_op_many *ebb_op_many(enum ebb_op op, enum ebb_backend backend)
{
    if (ebb_op_info(op) == NULL || backend != EBB_BACKEND_CUDA) return NULL;
    return ebb_op_many_cuda(op);
}
