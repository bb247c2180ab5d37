/* What the writers of a decoder's programs share: decoder_emit.c has embedding and layers,
 * decoder_linear.c their linear fields with adapters, decoder_head.c the head and the losses,
 * decoder_stream.c what lives in host memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DECODER_EMIT_INT_H
#define EBB_DECODER_EMIT_INT_H

#include "model/decoder_int.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_RING_MAX = 4 };

/* Buffers of a slot that is handled tile by tile. */
struct ebb_ring {
    struct ebb_matrix buffer[EBB_RING_MAX];
    int count;  /* 0: not open */
    int moving; /* the first of them: for tiles that go out or come in */
};

struct ebb_layer_state {
    struct ebb_saved slot[EBB_DECODER_SLOTS];
    struct ebb_saved lse; /* goes with slot o */
    struct ebb_matrix
        qk; /* q and k after norm and rotary, where the slot holds them before; tensor -1: none */
    struct ebb_ring x2, gate_up;
};

/* A matrix that lives in host memory. */
struct ebb_streamed {
    int32_t tensor; /* where it is on the device now; -1: nowhere */
    int64_t rows;   /* of it that came or are coming */
    bool ready;     /* its adapters lie around it */
};

/* A gradient that lives in host memory. */
struct ebb_away_grad {
    int32_t tensor; /* -1: it is there */
    bool written;   /* by this program */
};

struct ebb_emitter {
    struct ebb_build *b;
    const struct ebb_decoder *d;
    const struct ebb_model_config *c;
    enum ebb_dtype storage;
    bool train; /* TRAIN, of the model that is trained */
    bool base;  /* without its adapter */
    int64_t tiles;
    int32_t micros;             /* that TRAIN takes: layer by layer across them; else 1 */
    int32_t micro;              /* whose part is being written: the next two are its */
    struct ebb_layer_state *at; /* [layers + 1]; the last has only x: the input of the final norm */
    struct ebb_matrix dx;       /* gradient of the residual stream, in place down the layers */
    struct ebb_layer_state *all;                                 /* [micros][layers + 1] */
    struct ebb_matrix dxs[EBB_MICROS_MOST], xs[EBB_MICROS_MOST]; /* of the micro-batches */
    int64_t target;             /* the layer whose backward pass is being written; -1: none yet */
    int64_t mlp_of;             /* the last layer whose backward pass came to its MLP */
    bool streams_weights;       /* some matrices live in host memory */
    struct ebb_streamed *in;    /* [linears] */
    struct ebb_away_grad *grads; /* [params] */
};

/* ---- decoder_emit.c ---- */

/* A new matrix of one row a token. */
enum ebb_status ebb_emit_whole(struct ebb_emitter *e, int64_t cols, enum ebb_dtype dtype,
                               const char *name, int64_t layer, struct ebb_matrix *m);
/* A new matrix of one tile, in the storage type. */
enum ebb_status ebb_emit_tile(struct ebb_emitter *e, int64_t cols, const char *name, int64_t layer,
                              struct ebb_matrix *m);
/* A persistent vector of n in the storage type; absent for tensor -1. */
struct ebb_view ebb_emit_vector(const struct ebb_emitter *e, int32_t tensor, int64_t n);
/* The micro-batch's int32 input [1, n]; the documents' starts. */
struct ebb_view ebb_emit_input(const struct ebb_emitter *e, int32_t tensor, int64_t n);
struct ebb_view ebb_emit_docs(const struct ebb_emitter *e);
enum ebb_status ebb_emit_norm(struct ebb_emitter *e, const struct ebb_decoder_vector *norm,
                              struct ebb_view x, struct ebb_view y);
enum ebb_status ebb_emit_norm_backward(struct ebb_emitter *e, const struct ebb_decoder_vector *norm,
                                       struct ebb_view x, struct ebb_view dy, struct ebb_view dx,
                                       bool overwrite);

/* ---- decoder_stream.c ---- */

enum ebb_weights {
    EBB_WEIGHTS_ATTENTION, /* qkv */
    EBB_WEIGHTS_MLP,       /* o, gate_up, down */
    EBB_WEIGHTS_HEAD       /* of no layer */
};

enum ebb_status ebb_stream_open(struct ebb_emitter *e);
/* Accepts one that was never opened. */
void ebb_stream_close(struct ebb_ctx *ctx, struct ebb_emitter *e);
/* Sees that matrices are on the device, with their adapters, and starts those needed next. Before
 * the first entry of a micro-batch that reads them; nothing where they always are. */
enum ebb_status ebb_weights_need(struct ebb_emitter *e, int64_t layer, enum ebb_weights which);
/* What came in for a layer is of no more use, once the last micro-batch says so. */
void ebb_weights_forget(struct ebb_emitter *e, int64_t layer);
/* The tensor that has a linear's matrix now, [rows + tail, in + tail]. */
int32_t ebb_linear_w(const struct ebb_emitter *e, const struct ebb_decoder_linear *linear);
/* The fp32 gradient of a parameter; -1: absent. */
struct ebb_view ebb_emit_grad(const struct ebb_emitter *e, int32_t param);
/* Before the first and behind the last entry of a row that adds to a matrix's gradient, for each
 * micro-batch: it leaves when the last one's are done. Nothing for those on the device and for -1.
 * It may begin again later. */
enum ebb_status ebb_grad_begin(struct ebb_emitter *e, int32_t param);
enum ebb_status ebb_grad_end(struct ebb_emitter *e, int32_t param);

/* ---- decoder_linear.c: tile t of matrices [., columns + tail] ---- */

/* Columns that adapters add to a linear's input. */
int64_t ebb_linear_tail(const struct ebb_emitter *e, const struct ebb_decoder_linear *linear);
/* Whether backward needs its input. */
bool ebb_linear_needs_input(const struct ebb_decoder_linear *linear);
/* A tile for its input with the tail; one for the input or a gradient under dropout, tensor -1
 * where there is none. */
enum ebb_status ebb_linear_input(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                 const char *name, int64_t layer, struct ebb_matrix *m);
enum ebb_status ebb_linear_dropout(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                   int64_t layer, struct ebb_matrix *m);
/* Fills the tail of an input with scale dropout(x) A^T. */
enum ebb_status ebb_linear_fill_tail(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                     const struct ebb_matrix *in, int64_t t,
                                     const struct ebb_matrix *drop);
/* y = in W^T + bias (+ add), tails included. */
enum ebb_status ebb_linear_forward(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                   const struct ebb_matrix *in, int64_t t, struct ebb_view add,
                                   struct ebb_view y);
/* Gradients of whatever is trained, then d_in[., in] = dy W with the adapters' share. `dy` has room
 * for its tail. `in` (with its tail) is not looked at where nothing is trained; d_in may be the
 * same matrix: by then it has been read. */
enum ebb_status ebb_linear_backward(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                    int64_t t, const struct ebb_matrix *in,
                                    const struct ebb_matrix *dy, const struct ebb_matrix *d_in,
                                    const struct ebb_matrix *drop);
/* grad += dy^T in. */
enum ebb_status ebb_emit_weight_gradient(struct ebb_emitter *e, struct ebb_view dy,
                                         struct ebb_view in, struct ebb_view grad);

/* ---- decoder_head.c ---- */

/* Matrices of one chunk of labels. */
struct ebb_head {
    struct ebb_matrix raw, h, dh; /* [chunk, C] before and after the norm, gradient */
    struct ebb_matrix logits;     /* [chunk, V]; then their gradient */
    int64_t chunk;
};

/* `train`: with what backward needs. */
enum ebb_status ebb_head_open(struct ebb_emitter *e, bool train, struct ebb_head *head);
/* Logits of chunk i, of the label rows of x. */
enum ebb_status ebb_head_logits(struct ebb_emitter *e, const struct ebb_head *head, int64_t i,
                                struct ebb_view x);
/* Losses that are sums over labels, and in training their gradient with respect to x into e->dx.
 * `teacher` and `teacher_x`: a teacher and its last hidden states; NULL: none. */
enum ebb_status ebb_head_emit(struct ebb_emitter *e, const struct ebb_matrix *x,
                              struct ebb_emitter *teacher, const struct ebb_matrix *teacher_x);
/* The same for losses of whole sequences. `reference`: a log-probability of each label; absent:
 * none. */
enum ebb_status ebb_head_emit_sequences(struct ebb_emitter *e, const struct ebb_matrix *x,
                                        struct ebb_view reference);
/* A reference's, from its last hidden states; or that which is an input, absent where there is
 * none. */
enum ebb_status ebb_head_emit_reference(struct ebb_emitter *e, const struct ebb_matrix *x,
                                        struct ebb_view *reference);
struct ebb_view ebb_head_given_reference(const struct ebb_emitter *e);

#ifdef __cplusplus
}
#endif
#endif
