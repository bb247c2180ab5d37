/* The front of the attention library: what the rest of the program sees of cuDNN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_lib_int.h"

#include "op/attention_cudnn_int.h"

enum {
    /* Blocks of 128 queries, over heads, that a call should have. Twice as many as a large GPU
     * runs at a time lets its last, partly filled round cost little; more heads at once would only
     * cost scratch. */
    FULL_BLOCKS = 1024,
    BLOCK_ROWS = 128,
    /* Tokens of a piece of a long document in the deterministic backward. */
    PIECE = 4096
};

struct ebb_attention_lib {
    struct ebb_ctx *ctx;
    struct ebb_cudnn *dnn;
    struct ebb_cudnn_options options;
};

/* The fewest kv heads at once that fill a GPU. */
static int64_t group_of(const struct ebb_attention_shape *shape, int64_t longest)
{
    int64_t each = shape->heads / shape->kv_heads, blocks = (longest + BLOCK_ROWS - 1) / BLOCK_ROWS;
    for (int64_t kv = 1; kv < shape->kv_heads; kv++)
        if (shape->kv_heads % kv == 0 && kv * each * blocks >= FULL_BLOCKS) return kv;
    return shape->kv_heads;
}

struct ebb_attention_way ebb_attention_way(const struct ebb_attention_shape *shape,
                                           enum ebb_dtype dtype, int64_t longest,
                                           bool deterministic, char *why, size_t why_bytes)
{
    struct ebb_attention_way way = {.deterministic = true}; /* the plain kernels always are */
    if (!ebb_cudnn_takes(shape, dtype, why, why_bytes)) return way;
    way.library = true;
    way.deterministic = deterministic;
    way.kv_heads = group_of(shape, longest);
    way.block = PIECE;
    return way;
}

enum ebb_status ebb_attention_lib_create(struct ebb_ctx *ctx, const struct ebb_attention_way *way,
                                         const char *cache_dir, struct ebb_attention_lib **lib_out)
{
    struct ebb_attention_lib *lib = ebb_mem_alloc(ctx, sizeof *lib);
    *lib_out = NULL;
    if (lib == NULL) return EBB_NO_MEMORY;
    lib->ctx = ctx;
    lib->options = ebb_cudnn_options(way);
    enum ebb_status status = ebb_cudnn_open(ctx, &lib->dnn);
    if (status == EBB_OK && cache_dir != NULL) status = ebb_cudnn_set_cache(lib->dnn, cache_dir);
    if (status != EBB_OK) {
        ebb_attention_lib_free(lib);
        return status;
    }
    *lib_out = lib;
    return EBB_OK;
}

void ebb_attention_lib_free(struct ebb_attention_lib *lib)
{
    if (lib == NULL) return;
    ebb_cudnn_close(lib->dnn);
    ebb_mem_free(lib->ctx, lib);
}

const char *ebb_attention_lib_version(const struct ebb_attention_lib *lib)
{
    return ebb_cudnn_version(lib->dnn);
}

static bool takes(const struct ebb_attention_shape *shape, enum ebb_dtype dtype)
{
    return ebb_cudnn_takes(shape, dtype, NULL, 0);
}

enum ebb_status ebb_attention_prepare(struct ebb_attention_lib *lib, enum ebb_op op,
                                      const void *args, int64_t docs, int64_t longest)
{
    if (op == EBB_OP_attention_forward) {
        const struct ebb_attention_forward *forward = args;
        if (takes(&forward->shape, (enum ebb_dtype)forward->q.dtype))
            return ebb_cudnn_prepare_forward(lib->dnn, &lib->options, docs, longest, forward);
    }
    if (op == EBB_OP_attention_backward) {
        const struct ebb_attention_backward *backward = args;
        if (takes(&backward->shape, (enum ebb_dtype)backward->q.dtype))
            return ebb_cudnn_prepare_backward(lib->dnn, &lib->options, docs, longest, backward);
    }
    return EBB_OK;
}

bool ebb_attention_by_library(const struct ebb_op_env *env, const struct ebb_attention_shape *shape,
                              enum ebb_dtype dtype)
{
    return env->libs.attention != NULL && takes(shape, dtype);
}

enum ebb_status ebb_attention_library_forward(const struct ebb_op_env *env,
                                              const struct ebb_attention_forward *args)
{
    struct ebb_attention_lib *lib = env->libs.attention;
    return ebb_cudnn_forward(lib->dnn, env, &lib->options, env->doc_starts, args);
}

enum ebb_status ebb_attention_library_backward(const struct ebb_op_env *env,
                                               const struct ebb_attention_backward *args)
{
    struct ebb_attention_lib *lib = env->libs.attention;
    return ebb_cudnn_backward(lib->dnn, env, &lib->options, env->doc_starts, args);
}
