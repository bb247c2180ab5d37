/* Matrix products through oneDNN (CPU): fp32 accumulation, one algorithm per shape.
 *
 *   NT  y[M, N] = alpha a[M, K] b[N, K]^T     a layer's forward: x W^T
 *   NN  y[M, N] = alpha a[M, K] b[K, N]       gradient of its input: dy W
 *   TN  y[M, N] = alpha a[K, M]^T b[K, N]     gradient of its weight: dy^T x
 * then + bias (each row), and either + add (same shape as y, may be y) or, with accumulate, + y.
 * All of it in fp32 before the one rounding to y's dtype. Live rows: of a and y in NT and NN, of a
 * and b in TN (a sum over no rows leaves y as it is with accumulate and sets it to zero otherwise).
 *
 * Same numbers: for equal shapes, strides, dtypes and thread count the result is bitwise the same,
 * every time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_MATMUL_H
#define EBB_OP_MATMUL_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* The library and its primitives by shape. Loads oneDNN: EBB_UNSUPPORTED naming the package if it
 * is not there. The caller frees. Used from one queue only. */
struct ebb_matmul_lib;
enum ebb_status ebb_matmul_lib_create(struct ebb_ctx *ctx, int threads,
                                      struct ebb_matmul_lib **lib);
void ebb_matmul_lib_free(struct ebb_matmul_lib *lib); /* accepts NULL */
/* "oneDNN 2.6.3 ...", for the numerics record. */
const char *ebb_matmul_lib_version(struct ebb_matmul_lib *lib);

/* Bytes of scratch that this matmul needs at its capacity and at any smaller number of live rows.
 * The most over a fine sample of row counts: what oneDNN wants does not grow with the rows. */
enum ebb_status ebb_matmul_scratch(struct ebb_matmul_lib *lib, const struct ebb_matmul *args,
                                   int64_t *bytes);
enum ebb_status ebb_matmul_cpu(const struct ebb_op_env *env, const struct ebb_matmul *args);

#ifdef __cplusplus
}
#endif
#endif
