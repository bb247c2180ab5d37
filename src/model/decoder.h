/* The block program of the Llama family of decoders: from a config to a network that can be
 * planned.
 *
 * One layer (op/ has the formulas):
 *   n1 = rmsnorm(x)
 *   qkv = n1 Wqkv^T + b            then on q and k: norm per head where the model has it, rotary
 *   o = attention(q, k, v)
 *   x2 = x + o Wo^T
 *   n2 = rmsnorm(x2)
 *   gate_up = n2 Wgu^T
 *   x' = x2 + (silu(gate) up) Wd^T
 * Slots: x, qkv, o (with its log-sum-exp), x2, gate_up. Normed inputs, the SiLU product and
 * low-rank products are made again inside each tile of backward. x2 and gate_up, where not kept,
 * are remade (or come in) tile by tile and never stand whole on the device.
 *
 * An adapted weight is stored [N + R, K + R], where R is the rank of the adapters on the matrix,
 * all of them side by side, with B in the tail columns (block by block where several weights of a
 * file share the matrix) and A in the tail rows:
 *   forward:   y  = [x | s x A^T] [W | B]^T      the tail of the input is made first
 *   backward:  dx = [dy | s dy B] [W ; A]        the tail of the output's gradient is made first
 * so that one product gives base plus adapter, and one both input gradients. The gradients of A
 * and B are products with the same tails: dB = dy^T (s x A^T), dA = (s dy B)^T x. Under dropout a
 * part's share of dx is masked, so it is added by itself.
 *
 * Weights that nobody trains may live in host memory (plan/net.h, units). Then a matrix comes in,
 * tails and all, into a transient tensor of the same shape before it is used, and the bf16 copies
 * of A and B, which the sweep writes, are tensors of their own on the device and copied over its
 * tails: the same products on the same operands. Gradients, moments and low halves of trained
 * matrices may live there too: a layer's gradients are zero or come in, are added to, and leave.
 *
 * A run of TRAIN may take several micro-batches (plan/plan.h, `micros`), layer by layer across
 * them, so that what is away comes or leaves once for all. The net offers that for losses of tokens
 * alone, and not where the input embedding is trained and the head too (micros_most is 1 then).
 *
 * Training reads few rows of the input embedding, and where it is neither trained nor the head it
 * need not stand on the device: with `host_rows` a model has a host tensor of one row a token
 * instead, which is filled before each run, and programs begin by moving it in. Those rows are
 * layer 0's input, so that slot never has to leave or to be made again: it comes in once more.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DECODER_H
#define EBB_DECODER_H

#include "model/adapter.h"
#include "model/objective.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_decoder_options {
    enum ebb_dtype storage; /* F32 or BF16 */
    bool train;             /* gradients and optimizer state exist */
    /* Borrowed; NULL: none, and training means every weight. */
    const struct ebb_adapter_config *adapter;
    bool stochastic_rounding; /* trained bf16 weights have no exact master */
    bool sgd;                 /* these two: which optimizer state exists */
    double momentum;
    struct ebb_capacity capacity;
    struct ebb_objective objective;
    bool host_rows; /* input embeddings that may do without their table on the device do */
    /* The second model's (a teacher, or a reference), borrowed; else NULL. Its tensors are the
     * net's too, frozen and in the same storage type. */
    const struct ebb_model_config *teacher;
    const struct ebb_weight_list *teacher_weights;
};

/* Host memory that `host_rows` takes, of both models; 0: neither has such an embedding. */
int64_t ebb_decoder_host_rows_bytes(const struct ebb_model_config *config,
                                    const struct ebb_decoder_options *options);

/* config, weights and adapter are borrowed and must outlive the net. The caller frees. */
enum ebb_status ebb_decoder_create(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                                   const struct ebb_weight_list *weights,
                                   const struct ebb_decoder_options *options, struct ebb_net **net);
void ebb_decoder_free(struct ebb_ctx *ctx, struct ebb_net *net); /* accepts NULL */

/* Where a file's weight lies in the net's persistent tensors: [rows, cols] of it. Tensor -1, shape
 * and type set all the same: in none, as programs read its rows from ebb_decoder_rows_tensor. */
struct ebb_view ebb_decoder_weight(const struct ebb_net *net, int64_t weight);
/* The parameter that trains it and the first row (vectors: column) of it there; NULL if it is
 * frozen. */
const struct ebb_param *ebb_decoder_param(const struct ebb_net *net, int64_t weight, int64_t *row0);
/* An adapted weight's A [r, in] or B [out, r] ('A', 'B'): the copy in the storage type that
 * programs read. Absent if it has no adapter. */
struct ebb_view ebb_decoder_adapter_view(const struct ebb_net *net,
                                         const struct ebb_policies *policies, int64_t weight,
                                         char which);
/* The parameter that trains it; NULL if it has no adapter or nothing is trained. */
const struct ebb_param *ebb_decoder_adapter(const struct ebb_net *net, int64_t weight, char which);
/* Rotary table [rows, D] fp32, to be filled with ebb_rope_table before the first run; -1 never. */
int32_t ebb_decoder_rope_tensor(const struct ebb_net *net, int64_t *rows);
/* Host tensor [capacity tokens, C] in the storage type, to be filled before each run with the
 * embedding's rows of the run's tokens, one behind the other; -1: the table is on the device. */
int32_t ebb_decoder_rows_tensor(const struct ebb_net *net);
/* The teacher's part of the net, for ebb_decoder_weight and the two tensors above: its indices are
 * into the net's tensors. NULL: none. */
const struct ebb_net *ebb_decoder_teacher(const struct ebb_net *net);
/* Logits [1, V] fp32 that the decode program leaves; tensor index in that program, set when it
 * was emitted. */
int32_t ebb_decoder_logits_tensor(const struct ebb_net *net);

#ifdef __cplusplus
}
#endif
#endif
