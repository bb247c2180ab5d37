/* What attention_cpu.c (documents, threads, scratch) and attention_kernels.c (arithmetic on one
 * block of queries) share.
 *
 * Tiles lie transposed, [keys, queries]: the lanes of a vector are queries. So maximum and sum over
 * keys need no step across lanes, and of all operands only q and d_o must be turned round, once for
 * each block of queries.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_ATTENTION_INT_H
#define EBB_OP_ATTENTION_INT_H

#include "op/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EBB_ATTENTION_BLOCK = 64, /* queries and keys of a tile; it decides the order of sums */
    EBB_ATTENTION_PAD = 16    /* widths of fp32 copies are multiples of this */
};

/* One head of one document. Pointers are to the head's columns in the first row; strides are in
 * elements. */
struct ebb_attention_head {
    const struct ebb_attention_shape *shape;
    int dtype;             /* enum ebb_dtype, of all but lse */
    int64_t queries, keys; /* rows of q and of k */
    int64_t offset;        /* key at the place of query 0: keys - queries when decoding, else 0 */
    const void *q, *k, *v;
    void *o;    /* written by forward, read by backward */
    float *lse; /* may be NULL in forward */
    const void *d_o;
    void *dq;
    int64_t q_stride, k_stride, v_stride, o_stride, lse_stride, d_o_stride, dq_stride;
};

/* Working memory of one thread, in fp32: D and E are qk_dim and v_dim, P and R the same rounded up
 * to PAD. */
struct ebb_attention_area {
    float *q_turned;   /* [D, BLOCK] */
    float *d_o_turned; /* [E, BLOCK] */
    float *q;          /* [BLOCK, P] */
    float *d_o;        /* [BLOCK, R] */
    float *k;          /* [BLOCK, P] */
    float *v;          /* [BLOCK, R] */
    float *s;          /* [BLOCK, BLOCK] */
    float *ds;         /* [BLOCK, BLOCK] */
    float *sum;        /* [BLOCK, max(P, R)]: o or dq */
    float *row;        /* [2, BLOCK] */
};

struct ebb_attention_kernels {
    const char *name;
    /* o and lse of the queries first .. first + BLOCK. */
    void (*forward)(const struct ebb_attention_head *head, const struct ebb_attention_area *area,
                    int64_t first);
    /* What these queries and the keys key0 .. key_end give: dq where `head->dq` (then the keys must
     * be all), and dk and dv, added to the fp32 rows of key0 and following ([., P] and [., R]),
     * where they are not NULL. key0 is a multiple of BLOCK. */
    void (*backward)(const struct ebb_attention_head *head, const struct ebb_attention_area *area,
                     int64_t first, int64_t key0, int64_t key_end, float *dk, float *dv);
    /* to[i, j] = from[i, j], rounded. */
    void (*store)(int dtype, void *to, int64_t to_stride, const float *from, int64_t from_stride,
                  int64_t rows, int64_t cols);
};

enum { EBB_ATTENTION_SETS = 3 };

/* The kernels of a set, best first; NULL where this processor (or build) does not have it. The last
 * is always there. */
const struct ebb_attention_kernels *ebb_attention_kernels(int set);

/* The ops, with these kernels. */
enum ebb_status ebb_attention_forward_with(const struct ebb_op_env *env,
                                           const struct ebb_attention_forward *args,
                                           const struct ebb_attention_kernels *kernels);
enum ebb_status ebb_attention_backward_with(const struct ebb_op_env *env,
                                            const struct ebb_attention_backward *args,
                                            const struct ebb_attention_kernels *kernels);

#ifdef __cplusplus
}
#endif
#endif
