/* The optimizer step's two phases: norm and clip factor of all gradients, then one sweep over
 * the parameters.
 *
 * Gradients are fp32 sums over the whole step. clip: norm = sqrt(norm_squared) / total_weight,
 * factor = 1 / total_weight, times max_grad_norm / (norm + 1e-6) where that is below 1 (as
 * torch.nn.utils.clip_grad_norm_); a norm that is not finite sets finite = 0 and the sweep then
 * leaves every weight and moment as it was.
 *
 * AdamW (Loshchilov, Hutter 2019, arXiv 1711.05101), as torch.optim.AdamW:
 *   w *= 1 - lr decay;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
 *   w -= lr / bias1 * m / (sqrt(v / bias2) + eps)
 * SGD with momentum, as torch.optim.SGD:
 *   g += decay w;  m = momentum m + g (m = g in the first step);  w -= lr m
 *
 * Where the fp32 value of a parameter lives (exactly one of four):
 *   w is fp32                 in w
 *   w bf16, lo present        exact master split in two: bits = (w << 16 | lo), less 1 << 16
 *                             where lo >= 0x8000; w is the master rounded to nearest, halves
 *                             away from zero
 *   w bf16, master present    in master (an adapter); w is its copy, rounded to nearest even
 *   w bf16, neither           nowhere: w is rounded stochastically, with bits from (seed, step,
 *                             instance, element): the same on every rank
 * An fp32 w with master present is a copy too.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_OPTIMIZER_H
#define EBB_OP_OPTIMIZER_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sums.norm_squared += sum of g^2 in double, in a fixed order. */
struct ebb_norm_squared {
    struct ebb_view grad;    /* in [R, N] fp32 */
    struct ebb_view sums;    /* out [+=] struct ebb_sums as bytes */
    struct ebb_view scratch; /* [1, ebb_norm_squared_scratch()] bytes; absent where it is 0. On a
                                GPU it does for EBB_OP_MANY gradients in one call */
};
int64_t ebb_norm_squared_scratch(const struct ebb_op_target *target);

/* Reads step->total_weight and max_grad_norm; sets grad_norm, factor, finite. */
struct ebb_clip {
    struct ebb_view step; /* in struct ebb_step as bytes */
    struct ebb_view sums; /* in and out */
};

struct ebb_adamw {
    struct ebb_view w;      /* [R, N] storage, any stride */
    struct ebb_view lo;     /* [R, N] uint16; may be absent */
    struct ebb_view master; /* [R, N] fp32; may be absent */
    struct ebb_view grad;   /* [R, N] fp32; set to zero by the sweep, ready for the next step */
    struct ebb_view m;      /* [R, N] fp32 */
    struct ebb_view v;      /* [R, N] fp32 */
    struct ebb_view step;   /* in */
    struct ebb_view sums;   /* in */
    uint32_t instance;
    /* double, so that 1 - beta2 is what torch makes of 0.999 */
    double beta1, beta2, eps, weight_decay;
};

struct ebb_sgd {
    struct ebb_view w, lo, master, grad; /* as above */
    struct ebb_view m;                   /* [R, N] fp32; absent where momentum is 0 */
    struct ebb_view step, sums;          /* in */
    uint32_t instance;
    double momentum, weight_decay;
};

enum ebb_status ebb_norm_squared_cpu(const struct ebb_op_env *env,
                                     const struct ebb_norm_squared *args);
enum ebb_status ebb_clip_cpu(const struct ebb_op_env *env, const struct ebb_clip *args);
enum ebb_status ebb_adamw_cpu(const struct ebb_op_env *env, const struct ebb_adamw *args);
enum ebb_status ebb_sgd_cpu(const struct ebb_op_env *env, const struct ebb_sgd *args);
/* The split of an fp32 master into bf16 and the rest, and back. */
void ebb_master_split(float value, uint16_t *hi, uint16_t *lo);
float ebb_master_join(uint16_t hi, uint16_t lo);

/* With CUDA: kernels on env->stream (op/optimizer_cuda.cu). */
enum ebb_status ebb_norm_squared_cuda(const struct ebb_op_env *env,
                                      const struct ebb_norm_squared *args);
enum ebb_status ebb_clip_cuda(const struct ebb_op_env *env, const struct ebb_clip *args);
enum ebb_status ebb_adamw_cuda(const struct ebb_op_env *env, const struct ebb_adamw *args);
enum ebb_status ebb_sgd_cuda(const struct ebb_op_env *env, const struct ebb_sgd *args);
/* Many parameters in one launch, with the same bits (struct ebb_op_many). They share step, sums and
 * scratch. */
enum ebb_status ebb_norm_squared_many_cuda(const struct ebb_op_env *env, const void *const *args,
                                           int32_t count);
enum ebb_status ebb_adamw_many_cuda(const struct ebb_op_env *env, const void *const *args,
                                    int32_t count);
enum ebb_status ebb_sgd_many_cuda(const struct ebb_op_env *env, const void *const *args,
                                  int32_t count);

#ifdef __cplusplus
}
#endif
#endif
