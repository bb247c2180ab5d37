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
