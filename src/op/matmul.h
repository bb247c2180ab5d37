/* Matrix products: oneDNN on the CPU; on CUDA cuBLASLt, own kernels for thin products
 * (op/matmul_cuda_thin.cu) and batches of parts for sums over a vocabulary. fp32 accumulation.
 *
 *   NT  y[M, N] = alpha a[M, K] b[N, K]^T     a layer's forward: x W^T
 *   NN  y[M, N] = alpha a[M, K] b[K, N]       gradient of its input: dy W
 *   TN  y[M, N] = alpha a[K, M]^T b[K, N]     gradient of its weight: dy^T x
 * then + bias (each row), and either + add (same shape as y, may be y) or, with accumulate, + y.
 * All of it in fp32 before the one rounding to y's dtype. CUDA: where y is bf16 and something is
 * added, cuBLASLt may round once more in between; a product alone is rounded once there too.
 *
 * Live rows: of a and y in NT and NN, of a and b in TN (a sum over no rows leaves y as it is with
 * accumulate and sets it to zero otherwise).
 *
 * Same numbers: for equal shapes, strides, dtypes and thread count the result is bitwise the same,
 * every time. On CUDA a row's result does not depend on the number of live rows either (of y in NT
 * and NN): one way per (form, N, K, dtypes, strides, terms), and sums are split, if at all, by K
 * alone. Which way: op/matmul_gpu.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_MATMUL_H
#define EBB_OP_MATMUL_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A product with a side of at most so many columns is a thin one: bound by memory. */
enum { EBB_THIN_COLS = 64 };

enum ebb_matmul_form { EBB_MATMUL_NT, EBB_MATMUL_NN, EBB_MATMUL_TN };

struct ebb_matmul {
    struct ebb_view a;       /* in, fp32 or bf16 */
    struct ebb_view b;       /* in, a's dtype */
    struct ebb_view bias;    /* in [1, N], a's dtype; may be absent */
    struct ebb_view add;     /* in [M, N], y's dtype; may be absent; may be y itself */
    struct ebb_view y;       /* out [=], or [+=] with accumulate; a's dtype or fp32 */
    struct ebb_view scratch; /* [1, ebb_matmul_scratch()] bytes (EBB_U8), shared by all matmuls of
                                a queue */
    int form;                /* enum ebb_matmul_form */
    int accumulate;
    float alpha;
};

/* The library and its primitives by shape. Loads the library: EBB_UNSUPPORTED naming the package
 * or file that is not there. Needs no GPU: one is first asked for when a product runs. The caller
 * frees. Used from one queue only. */
struct ebb_matmul_lib;
enum ebb_status ebb_matmul_lib_create(struct ebb_ctx *ctx, const struct ebb_op_target *target,
                                      struct ebb_matmul_lib **lib);
/* For plans alone: a GPU's needs no library, for what its products want is by formula. It says so
 * as its version, and no product can run with it. */
enum ebb_status ebb_matmul_lib_create_planned(struct ebb_ctx *ctx,
                                              const struct ebb_op_target *target,
                                              struct ebb_matmul_lib **lib);
void ebb_matmul_lib_free(struct ebb_matmul_lib *lib); /* accepts NULL */
/* "oneDNN 2.6.3 ...", "cuBLASLt 13.1.0 ...", for the numerics record. */
const char *ebb_matmul_lib_version(struct ebb_matmul_lib *lib);

/* Bytes of scratch that this matmul needs at its capacity and at any smaller number of live rows.
 * (oneDNN: the most over a fine sample of row counts, as what it wants does not grow with them.) */
enum ebb_status ebb_matmul_scratch(struct ebb_matmul_lib *lib, const struct ebb_matmul *args,
                                   int64_t *bytes);
enum ebb_status ebb_matmul_cpu(const struct ebb_op_env *env, const struct ebb_matmul *args);

/* With CUDA: on env->stream (op/matmul_cuda.c). */
enum ebb_status ebb_matmul_cuda(const struct ebb_op_env *env, const struct ebb_matmul *args);

#ifdef __cplusplus
}
#endif
#endif
