/* Builds without the CUDA toolkit have no cuDNN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

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

int64_t ebb_cudnn_built(const struct ebb_cudnn *dnn)
{
    EBB_ASSERT(dnn == NULL);
    return 0;
}

/* There is no object that it could be called with. */
static enum ebb_status never(const struct ebb_cudnn *dnn)
{
    EBB_ASSERT(dnn != NULL);
    return EBB_UNSUPPORTED;
}

enum ebb_status ebb_cudnn_prepare_forward(struct ebb_cudnn *dnn,
                                          const struct ebb_cudnn_options *options, int64_t docs,
                                          int64_t longest, const struct ebb_attention_forward *args)
{
    (void)options, (void)docs, (void)longest, (void)args;
    return never(dnn);
}

enum ebb_status ebb_cudnn_prepare_backward(struct ebb_cudnn *dnn,
                                           const struct ebb_cudnn_options *options, int64_t docs,
                                           int64_t longest,
                                           const struct ebb_attention_backward *args)
{
    (void)options, (void)docs, (void)longest, (void)args;
    return never(dnn);
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
