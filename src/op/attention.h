/* Causal attention within documents, block by block, so that no [T, T] matrix exists
 * (FlashAttention-2, Dao 2023, arXiv 2307.08691), with grouped kv heads.
 *
 *   s[i, j] = scale q[i] . k[j]   for j <= i in i's document (and i - j < window, where window > 0)
 *   softcap > 0: s = softcap tanh(s / softcap)
 *   o[i] = sum_j exp(s[i, j] - lse[i]) v[j]
 *   lse[i] = log(sum_j exp(s[i, j]) + exp(sink)), the sink only where given
 * Backward, with p = exp(s - lse), delta[i] = do[i] . o[i]:
 *   dv[j] += p do,  dp = do . v,  ds = p (dp - delta) (times 1 - (s / softcap)^2)
 *   dq += scale ds k,  dk += scale ds q
 * All sums in fp32 in an order that depends only on the document's length and the block sizes:
 * neither on the number of threads nor on what else is in the batch.
 *
 * On a GPU bf16 goes through cuDNN (op/attention_cudnn_int.h) where the target says so and cuDNN
 * takes the shape: same formula, sums in the order of its kernels. Its backward adds dq's parts in
 * any order unless `deterministic`. The decoding op always runs on plain kernels.
 *
 * Saves q, k, v (after rotary), o and lse.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_ATTENTION_H
#define EBB_OP_ATTENTION_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Constants of one attention layer. */
struct ebb_attention_shape {
    int64_t heads, kv_heads;
    int64_t qk_dim, v_dim; /* sizes of a head of q and k, and of v and o */
    int64_t window;        /* 0: none */
    float scale;
    float softcap;         /* 0: none */
};

struct ebb_attention_forward {
    struct ebb_view q;          /* in [T, H qk_dim] storage, any stride */
    struct ebb_view k;          /* in [T, K qk_dim] storage, any stride */
    struct ebb_view v;          /* in [T, K v_dim] storage, any stride */
    struct ebb_view doc_starts; /* in [1, docs + 1] int32 */
    struct ebb_view o;          /* out [=] [T, H v_dim] storage */
    struct ebb_view lse;        /* out [=] [T, H] fp32 */
    struct ebb_view scratch;    /* [1, ebb_attention_scratch()] bytes (EBB_U8) */
    struct ebb_attention_shape shape;
};
struct ebb_attention_backward {
    struct ebb_view q, k, v;    /* in, as above */
    struct ebb_view o;          /* in [T, H v_dim] */
    struct ebb_view lse;        /* in [T, H] fp32 */
    struct ebb_view d_o;        /* in [T, H v_dim] storage: gradient of o */
    struct ebb_view doc_starts; /* in, as above */
    struct ebb_view dq;         /* out [=] [T, H qk_dim] storage, any stride */
    struct ebb_view dk;         /* out [=] [T, K qk_dim] storage, any stride */
    struct ebb_view dv;         /* out [=] [T, K v_dim] storage, any stride */
    struct ebb_view scratch;    /* as above */
    struct ebb_attention_shape shape;
};

/* Decoding: rows are the tokens step->cached .. step->cached + T of one sequence, keys and values
 * of all of them stand in the caches already. */
struct ebb_attention_cached {
    struct ebb_view q;       /* in [T, H qk_dim] storage, any stride, token rows */
    struct ebb_view k;       /* in [cache tokens, K qk_dim] storage */
    struct ebb_view v;       /* in [cache tokens, K v_dim] storage */
    struct ebb_view o;       /* out [=] [T, H v_dim] storage */
    struct ebb_view scratch; /* as above */
    struct ebb_attention_shape shape;
};

/* Bytes of scratch of an op; `tokens` is the capacity T, `longest` that of its longest document. */
int64_t ebb_attention_scratch(const struct ebb_attention_shape *shape, enum ebb_dtype dtype,
                              enum ebb_op op, int64_t tokens, int64_t longest,
                              const struct ebb_op_target *target);
enum ebb_status ebb_attention_forward_cpu(const struct ebb_op_env *env,
                                          const struct ebb_attention_forward *args);
enum ebb_status ebb_attention_backward_cpu(const struct ebb_op_env *env,
                                           const struct ebb_attention_backward *args);
enum ebb_status ebb_attention_cached_cpu(const struct ebb_op_env *env,
                                         const struct ebb_attention_cached *args);

/* ---- cuDNN, loaded at run time ---- */

struct ebb_attention_lib;

/* How attention of this shape and type runs best on a GPU: the library where it takes them, in
 * groups of heads that fill a GPU at the longest document and need no more scratch than that.
 * Depends on nothing else, so it may be part of the numerics. `why` (may be NULL) gets a sentence
 * where the library does not take them. */
struct ebb_attention_way ebb_attention_way(const struct ebb_attention_shape *shape,
                                           enum ebb_dtype dtype, int64_t longest,
                                           bool deterministic, char *why, size_t why_bytes);
/* EBB_UNSUPPORTED says what is missing. Plans are kept as files in cache_dir (NULL: nowhere). One
 * thread. The caller frees. */
enum ebb_status ebb_attention_lib_create(struct ebb_ctx *ctx, const struct ebb_attention_way *way,
                                         const char *cache_dir, struct ebb_attention_lib **lib);
void ebb_attention_lib_free(struct ebb_attention_lib *lib);              /* accepts NULL */
const char *ebb_attention_lib_version(const struct ebb_attention_lib *lib); /* "cuDNN 9.19.0" */
/* Builds everything that any run of this op may ask for with up to `docs` documents: then no run
 * has to. `args` are those of attention_forward or attention_backward; others are left alone. */
enum ebb_status ebb_attention_prepare(struct ebb_attention_lib *lib, enum ebb_op op,
                                      const void *args, int64_t docs, int64_t longest);

/* With CUDA: kernels on env->stream (op/attention_cuda.cu). */
enum ebb_status ebb_attention_forward_cuda(const struct ebb_op_env *env,
                                           const struct ebb_attention_forward *args);
enum ebb_status ebb_attention_backward_cuda(const struct ebb_op_env *env,
                                            const struct ebb_attention_backward *args);
enum ebb_status ebb_attention_cached_cuda(const struct ebb_op_env *env,
                                          const struct ebb_attention_cached *args);

#ifdef __cplusplus
}
#endif
#endif
