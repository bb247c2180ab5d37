/* Builds without the CUDA toolkit have no cuDNN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

#include <stdio.h>

static enum ebb_status unsupported(struct ebb_ctx *ctx)
{
    return EBB_FAIL(ctx, EBB_UNSUPPORTED, "this build has no cuDNN: it was made without CUDA");
}

enum ebb_status ebb_cudnn_open(struct ebb_ctx *ctx, struct ebb_cudnn **dnn)
{
    *dnn = NULL;
    return unsupported(ctx);
}

void ebb_cudnn_close(struct ebb_cudnn *dnn)
{
    EBB_ASSERT(dnn == NULL);
}

const char *ebb_cudnn_version(const struct ebb_cudnn *dnn)
{
    EBB_ASSERT(dnn == NULL);
    return "";
}

enum ebb_status ebb_cudnn_set_cache(struct ebb_cudnn *dnn, const char *dir)
{
    EBB_ASSERT(dnn == NULL);
    (void)dir;
    return EBB_OK;
}

bool ebb_cudnn_takes(const struct ebb_attention_shape *shape, enum ebb_dtype dtype, char *why,
                     size_t why_bytes)
{
    (void)shape, (void)dtype;
    if (why != NULL && why_bytes > 0) snprintf(why, why_bytes, "this build has no cuDNN");
    return false;
}

int64_t ebb_cudnn_workspace(const struct ebb_attention_shape *shape, int64_t tokens,
                            int64_t longest, bool backward,
                            const struct ebb_cudnn_options *options)
{
    (void)shape, (void)tokens, (void)longest, (void)backward, (void)options;
    return 0;
}

enum ebb_status ebb_cudnn_forward(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                                  const struct ebb_cudnn_options *options, const int32_t *starts,
                                  const struct ebb_attention_forward *args)
{
    (void)dnn, (void)options, (void)starts, (void)args;
    return unsupported(env->ctx);
}

enum ebb_status ebb_cudnn_backward(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                                   const struct ebb_cudnn_options *options, const int32_t *starts,
                                   const struct ebb_attention_backward *args)
{
    (void)dnn, (void)options, (void)starts, (void)args;
    return unsupported(env->ctx);
}
