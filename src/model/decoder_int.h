/* What decoder.c (the net's tensors) and decoder_emit.c (its programs) share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DECODER_INT_H
#define EBB_DECODER_INT_H

#include "model/decoder.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_DECODER_PARTS = 3 };   /* weights of a file that share a matrix, at most: q, k, v */
enum { EBB_DECODER_LINEARS = 4 }; /* of a layer */

enum ebb_decoder_slot {
    EBB_DECODER_X,
    EBB_DECODER_QKV,
    EBB_DECODER_O,
    EBB_DECODER_X2,
    EBB_DECODER_GATE_UP,
    EBB_DECODER_SLOTS
};

/* One weight of a file inside a linear field, with its adapter. */
struct ebb_decoder_part {
    int64_t row0, rows; /* in the field */
    int64_t tail0;      /* first tail column; -1: not adapted */
    int32_t a_param;    /* index into params; -1: none */
    int32_t b_param;
    uint32_t instance; /* of its dropout */
};

/* A linear field [rows + tail, in + tail]: behind the weight's columns those of the parts' B, below
 * its rows the parts' A (model/decoder.h). Each part has ebb_decoder.rank_cols of the tail: what
 * lies beyond its rank is zero, as device memory is when it is reserved: nobody writes there. */
struct ebb_decoder_linear {
    int32_t w;    /* persistent tensor; -1: the field does not exist */
    int32_t bias; /* persistent tensor; -1: none */
    int64_t rows, in, tail;
    /* Stand-ins for the tail while w is away: A [tail, in] and B [rows, tail]; -1: no tail, or w
     * never is. */
    int32_t a, b;
    int32_t unit;  /* of w; -1: w is always on the device */
    int32_t index; /* among the net's linears: the layer's number times EBB_DECODER_LINEARS, and
                      which; the head's comes behind all layers' */
    int32_t param; /* trained whole; -1: frozen */
    int32_t bias_param;
    int part_count;
    struct ebb_decoder_part parts[EBB_DECODER_PARTS];
};

struct ebb_decoder_vector {
    int32_t w;     /* persistent tensor; -1: none */
    int32_t param; /* -1: frozen */
};

struct ebb_decoder_layer {
    struct ebb_decoder_vector norm1, norm2, q_norm, k_norm;
    struct ebb_decoder_linear qkv, o, gate_up, down;
};

/* Where a weight of the list went. */
struct ebb_decoder_place {
    struct ebb_view view;
    int32_t param; /* -1: frozen */
    int64_t param_row0;
    int32_t a_param, b_param;               /* -1: no adapter, or not trained */
    struct ebb_view a, b;                   /* the copies that programs read; absent: no adapter */
    struct ebb_view a_stand_in, b_stand_in; /* the same where the weight is away, or absent */
    int32_t unit;                           /* of the weight; -1: none */
};

struct ebb_decoder {
    struct ebb_net net;
    struct ebb_ctx *ctx;
    const struct ebb_model_config *config;
    const struct ebb_weight_list *weights;
    struct ebb_decoder_options options;
    double scale;      /* of the adapters */
    int64_t rank_cols; /* their rank, up to a multiple of 8: rows of 16 bytes */
    int64_t qkv_cols, qk_cols, o_cols;
    struct ebb_decoder_layer *layers;
    int32_t embed;                  /* persistent tensor; -1: rows */
    struct ebb_decoder_linear head; /* without bias and adapter; its w is embed where tied */
    int32_t rows; /* persistent host tensor of the embedding's rows; -1: embed has them */
    int32_t embed_param;
    struct ebb_decoder_vector final_norm;
    int32_t rope;
    int64_t rope_rows;
    int32_t logits;              /* in the decode program; set by emit */
    struct ebb_decoder *teacher; /* owned; NULL: none */
    struct ebb_net *owner;       /* the net that has the tensors: its own, or the student's */
    struct ebb_decoder_place *places;
    int64_t tensor_room, param_room, unit_room;
};

enum ebb_status ebb_decoder_emit(const struct ebb_net *net, struct ebb_build *build,
                                 enum ebb_program_kind kind);

#ifdef __cplusplus
}
#endif
#endif
