/* Rotary position embedding (Su et al. 2021, arXiv 2104.09864) on q and k, half-split pairs as
 * in transformers, with the RMS norm over each head before it where a model has one (Qwen3).
 *
 *   y[i] = x[i] c[i] - x[i + D/2] s[i],   y[i + D/2] = x[i + D/2] c[i] + x[i] s[i],   i < D/2
 * c and s come from a table row per position. Backward is the rotation by the negative angle,
 * then the norm's backward (formulas in op/rmsnorm.h, per head). In fp32, rounded once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_ROTARY_H
#define EBB_OP_ROTARY_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_rotary_forward {
    struct ebb_view x;         /* in [R, >= (H + K) D] storage: q heads, then k heads; columns
                                  behind them are not read */
    struct ebb_view positions; /* in [1, T] int32; x's row i has positions[x.row0 + i], or, where
                                  absent, step->cached + x.row0 + i (decoding) */
    struct ebb_view table;     /* in [positions, D] fp32: D/2 cosines, then D/2 sines */
    struct ebb_view q_norm;    /* in [1, D] storage; absent: no norm (then k_norm is absent too) */
    struct ebb_view k_norm;    /* in [1, D] storage */
    struct ebb_view y;         /* out [=] like x, the first (H + K) D columns; may be x */
    int64_t heads, kv_heads, head_dim;
    float eps;
};
struct ebb_rotary_backward {
    struct ebb_view x;         /* in: what forward read; with norms only, else absent */
    struct ebb_view positions; /* as above */
    struct ebb_view table;     /* as above */
    struct ebb_view q_norm;    /* as above */
    struct ebb_view k_norm;    /* as above */
    struct ebb_view dy;        /* [=] like y: its gradient becomes that of x, in place */
    struct ebb_view dq_norm;   /* out [+=] [1, D] fp32, rows then heads ascending (CUDA:
                                  in parts of 16 rows); may be absent */
    struct ebb_view dk_norm;   /* out [+=] [1, D] fp32; may be absent */
    struct ebb_view scratch;   /* [1, ebb_rotary_backward_scratch()] bytes; absent where it is 0 */
    int64_t heads, kv_heads, head_dim;
    float eps;
};

int64_t ebb_rotary_backward_scratch(int64_t rows, int64_t head_dim, bool norms,
                                    const struct ebb_op_target *target);
enum ebb_status ebb_rotary_forward_cpu(const struct ebb_op_env *env,
                                       const struct ebb_rotary_forward *args);
enum ebb_status ebb_rotary_backward_cpu(const struct ebb_op_env *env,
                                        const struct ebb_rotary_backward *args);

/* With CUDA: kernels on env->stream (op/rotary_cuda.cu). */
enum ebb_status ebb_rotary_forward_cuda(const struct ebb_op_env *env,
                                        const struct ebb_rotary_forward *args);
enum ebb_status ebb_rotary_backward_cuda(const struct ebb_op_env *env,
                                         const struct ebb_rotary_backward *args);

#ifdef __cplusplus
}
#endif
#endif
