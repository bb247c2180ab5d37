/* The CUDA column of the list of ops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_int.h"

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
    static enum ebb_status run_##name(const struct ebb_op_env *env, const void *args)              \
    {                                                                                              \
        return ebb_##name##_cuda(env, (const struct ebb_##name *)args);                            \
    }
#include "op/list.h"
#undef X

ebb_op_fn ebb_op_function_cuda(enum ebb_op op)
{
    static const ebb_op_fn functions[] = {
#define X(name, views, access) run_##name,
#include "op/list.h"
#undef X
    };
    return functions[op];
}

/* Shared: step and sums, and the scratch of norms. */
const struct ebb_op_many *ebb_op_many_cuda(enum ebb_op op)
{
    static const struct ebb_op_many manys[EBB_OP_COUNT] = {
        [EBB_OP_norm_squared] = {ebb_norm_squared_many_cuda, 1u << 1 | 1u << 2},
        [EBB_OP_adamw] = {ebb_adamw_many_cuda, 1u << 6 | 1u << 7},
        [EBB_OP_sgd] = {ebb_sgd_many_cuda, 1u << 5 | 1u << 6},
    };
    return manys[op].run != NULL ? &manys[op] : NULL;
}
