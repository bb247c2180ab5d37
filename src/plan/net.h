/* What a plan must know of a network, and nothing else: its parameters, its saved slots, and how
 * to write its programs.
 *
 * A network is made by the model room (model/decoder.h) and is borrowed by plans. It says which
 * tensors live for the whole run (weights, adapters, gradients, optimizer state, inputs) and
 * emits programs into a build (plan/build.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_NET_H
#define EBB_NET_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, text): what device memory is used for, as tables name it. */
#define EBB_KIND_LIST(X)                                                                           \
    X(WEIGHTS, "weights")                                                                          \
    X(TEACHER, "teacher")                                                                          \
    X(ADAPTER, "adapter") /* fp32 masters: what programs read lies among the weights */            \
    X(GRADIENTS, "gradients")                                                                      \
    X(OPTIMIZER, "optimizer state")                                                                \
    X(INPUTS, "batch and tables")                                                                  \
    X(SAVED, "saved activations")                                                                  \
    X(WORKING, "working set")

enum ebb_kind {
#define EBB_KIND_ENUM(name, text) EBB_KIND_##name,
    EBB_KIND_LIST(EBB_KIND_ENUM)
#undef EBB_KIND_ENUM
        EBB_KIND_COUNT
};
const char *ebb_kind_name(enum ebb_kind kind);

/* X(NAME, text) */
#define EBB_PROGRAM_LIST(X)                                                                        \
    X(TRAIN, "train")   /* forward, loss and backward of micro-batches; gradients are added to */  \
    X(EVAL, "evaluate") /* forward and loss */                                                     \
    X(DECODE, "decode") /* some tokens of one sequence behind those cached; last logits */         \
    X(UPDATE, "update") /* norm, clip factor, and the sweep over all trained parameters */

enum ebb_program_kind {
#define EBB_PROGRAM_ENUM(name, text) EBB_PROGRAM_##name,
    EBB_PROGRAM_LIST(EBB_PROGRAM_ENUM)
#undef EBB_PROGRAM_ENUM
        EBB_PROGRAM_COUNT
};
const char *ebb_program_kind_name(enum ebb_program_kind kind);

/* A unit: persistent tensors that may live in host memory together, each coming to the device where
 * it is used. A plan says which units are away (plan/policy.h). */
enum ebb_unit {
    EBB_UNIT_PARAMS, /* frozen matrices of a layer, or of a head: they come in, and never go out */
    EBB_UNIT_OPTIMIZER /* gradients, moments and low halves of a layer's, a table's or a head's
                          trained matrices. Gradients are away between the layer's backward pass
                          and the sweep, the others but for their block's turn in the sweep */
};

/* A parameter: what the optimizer sweeps and checkpoints save. Tensor indices are into the net's
 * persistent tensors; -1: it has none. */
struct ebb_param {
    char name[96];
    struct ebb_view w; /* [rows, cols] in the storage dtype, any stride: what the programs read */
    struct ebb_view stand_in; /* the same, contiguous, where w's own tensor is away; else absent */
    int32_t unit;             /* of w, where there is a stand-in, else of the tensors below; -1 */
    int32_t lo;               /* [rows, cols] uint16, see op/optimizer.h */
    int32_t master;           /* [rows, cols] fp32 */
    int32_t grad, m, v;       /* [rows, cols] fp32 */
    bool trained;
    bool decay; /* weight decay applies: not to norms and biases */
};

/* Whether a unit takes the parameter's gradient, moments and low halves along. */
static inline bool ebb_param_may_leave(const struct ebb_param *param)
{
    return param->unit >= 0 && param->stand_in.tensor < 0;
}

/* A slot: one of the few tensors of a layer that are worth saving between forward and backward. */
struct ebb_slot {
    const char *name; /* "x", "qkv", "o", "x2", "gate_up" */
    int64_t bytes_per_token;
    bool tiled; /* backward reads it tile by tile: away or remade, it never stands whole on the
                   device */
};

enum { EBB_SLOTS = 8 }; /* at most */

/* Persistent tensors that hold a run's input. */
struct ebb_net_inputs {
    int32_t ids, targets, positions, label_rows; /* [capacity tokens] int32 */
    int32_t doc_starts;                          /* [capacity docs + 1] int32 */
    int32_t step, sums;                          /* struct ebb_step, struct ebb_sums */
    /* [capacity tokens, k] int32 and fp32 or bf16, a row a label: the likeliest tokens of a saved
     * teacher, or those to be saved (model/objective.h). -1: none. */
    int32_t top_ids, top_logprobs;
    int32_t
        logprobs;  /* [capacity tokens] fp32, a label each: of a reference, or to be read; or -1 */
    int32_t kinds; /* [capacity docs] int32: EBB_KTO_...; or -1 */
};

/* From one micro-batch's part of such a tensor to the next one's. */
static inline int64_t ebb_net_input_stride(int64_t bytes)
{
    return (bytes + EBB_ALIGN_BYTES - 1) / EBB_ALIGN_BYTES * EBB_ALIGN_BYTES;
}

struct ebb_build;

struct ebb_net {
    int64_t layers;
    int slot_count;
    struct ebb_slot slots[EBB_SLOTS];
    struct ebb_tensor *tensors; /* [tensor_count] persistent, offsets not set */
    uint8_t *kinds;             /* [tensor_count] enum ebb_kind */
    int32_t *unit_of;           /* [tensor_count] -1: always where the tensor says */
    uint8_t *stands_in;         /* [tensor_count] 1: it exists, on the device, only while its unit
                                   is away */
    uint8_t *per_micro; /* [tensor_count] 1: an input of which each micro-batch that a run of
                           TRAIN takes has its own, ebb_net_input_stride apart; `bytes` are
                           one's */
    int32_t tensor_count;
    uint8_t *units; /* [unit_count] enum ebb_unit, in the order in which forward uses them */
    int32_t unit_count;
    struct ebb_param *params; /* [param_count] */
    int32_t param_count;
    struct ebb_net_inputs inputs;
    /* Micro-batches that a run of TRAIN can take, layer by layer across them, with the bits of one
     * run after the other: at least 1, at most EBB_MICROS_MOST. */
    int32_t micros_most;
    /* Appends the entries of one program. UPDATE is the plan's own and never asked for. Policies
     * are TRAIN's alone: the others save nothing for later. */
    enum ebb_status (*emit)(const struct ebb_net *net, struct ebb_build *build,
                            enum ebb_program_kind kind);
    void *self; /* the maker's */
};

#ifdef __cplusplus
}
#endif
#endif
