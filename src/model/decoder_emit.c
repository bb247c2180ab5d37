/* A decoder's programs: forward, loss, backward and decoding, written tile by tile into a build.
 *
 * Backward asks for what it needs of a layer (need_x, need_qkv, need_o) and gets it from
 * wherever the policy put it: it lies on the device, comes in from the host, or is made again
 * from what that layer, or the one before it, still has. What was made again stays until its
 * last reader, so that a run of layers whose input was not saved is passed forward once. Every
 * remade value comes from the same op on the same operands as in forward: that is why all
 * policies give the same bits.
 *
 * Where a run takes several micro-batches, each layer is written for one after the other, forward
 * and backward, and so are head and loss: what a tensor of the whole model gets is then added in
 * the order in which run after run would add it. Between two layers each micro-batch has its input,
 * or the gradient of it, on the device; all else of a layer is there for one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "model/decoder_emit_int.h"
#include "op/attention.h"
#include "op/embed.h"
#include "op/optimizer.h"
#include "op/rmsnorm.h"
#include "op/rotary.h"
#include "op/rows.h"
#include "op/swiglu.h"

/* What is written from here on is micro-batch m's. */
static void enter(struct ebb_emitter *e, int32_t m)
{
    e->dxs[e->micro] = e->dx;
    e->micro = m;
    e->at = e->all + m * (e->c->layers + 1);
    e->dx = e->dxs[m];
    if (e->micros > 1) ebb_build_set_micro(e->b, m);
}

static enum ebb_policy policy_of(const struct ebb_emitter *e, int64_t layer,
                                 enum ebb_decoder_slot slot)
{
    if (!e->train || layer >= e->c->layers) return EBB_POLICY_RECOMPUTE;
    return (enum ebb_policy)e->b->policies->at[layer][slot];
}

enum ebb_status ebb_emit_tile(struct ebb_emitter *e, int64_t cols, const char *name, int64_t layer,
                              struct ebb_matrix *m)
{
    return ebb_build_matrix(e->b, cols, e->storage, true, name, layer, m);
}

enum ebb_status ebb_emit_whole(struct ebb_emitter *e, int64_t cols, enum ebb_dtype dtype,
                               const char *name, int64_t layer, struct ebb_matrix *m)
{
    return ebb_build_matrix(e->b, cols, dtype, false, name, layer, m);
}

struct ebb_view ebb_emit_vector(const struct ebb_emitter *e, int32_t tensor, int64_t n)
{
    return tensor < 0 ? ebb_view_none() : ebb_tensor_view(tensor, e->storage, 0, 1, 0, n, n);
}

struct ebb_view ebb_emit_input(const struct ebb_emitter *e, int32_t tensor, int64_t n)
{
    struct ebb_view view = ebb_tensor_view(tensor, EBB_I32, 0, 1, 0, n, n);
    view.offset = ebb_build_input_offset(e->b, e->d->owner->tensors[tensor].bytes);
    return view;
}

enum ebb_status ebb_emit_norm(struct ebb_emitter *e, const struct ebb_decoder_vector *norm,
                              struct ebb_view x, struct ebb_view y)
{
    struct ebb_rmsnorm_forward args = {.x = x,
                                       .w = ebb_emit_vector(e, norm->w, x.cols),
                                       .y = y,
                                       .eps = (float)e->c->norm_eps};
    return ebb_build_op(e->b, EBB_OP_rmsnorm_forward, &args);
}

enum ebb_status ebb_emit_norm_backward(struct ebb_emitter *e, const struct ebb_decoder_vector *norm,
                                       struct ebb_view x, struct ebb_view dy, struct ebb_view dx,
                                       bool overwrite)
{
    struct ebb_rmsnorm_backward args = {.x = x,
                                        .w = ebb_emit_vector(e, norm->w, x.cols),
                                        .dy = dy,
                                        .dx = dx,
                                        .dw = ebb_emit_grad(e, norm->param),
                                        .eps = (float)e->c->norm_eps,
                                        .overwrite = overwrite};
    struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
    int64_t scratch = norm->param < 0 ? 0 : ebb_rmsnorm_backward_scratch(x.rows, x.cols, &target);
    args.scratch = ebb_build_scratch(e->b, scratch);
    return ebb_build_op(e->b, EBB_OP_rmsnorm_backward, &args);
}

/* ---- slots: where they are written in forward ---- */

/* The whole matrix of a slot that is about to be produced; remembered where the policy keeps it. */
static enum ebb_status produce_whole(struct ebb_emitter *e, int64_t layer,
                                     enum ebb_decoder_slot slot, int64_t cols, const char *name,
                                     struct ebb_matrix *m)
{
    EBB_TRY(ebb_emit_whole(e, cols, e->storage, name, layer, m));
    if (policy_of(e, layer, slot) != EBB_POLICY_KEEP) return EBB_OK;
    e->at[layer].slot[slot].device = *m;
    e->b->saved_bytes += e->b->capacity.tokens * cols * ebb_dtype_bytes(e->storage);
    return EBB_OK;
}

/* ---- slots that are handled tile by tile: x2 and gate_up ---- */

static const char *const ring_names[EBB_DECODER_SLOTS] = {"x", "qkv", "o", "x2", "gate_up"};

static struct ebb_ring *ring_of(struct ebb_emitter *e, int64_t layer, enum ebb_decoder_slot slot)
{
    return slot == EBB_DECODER_X2 ? &e->at[layer].x2 : &e->at[layer].gate_up;
}

static int64_t tiled_cols(const struct ebb_emitter *e, enum ebb_decoder_slot slot)
{
    return slot == EBB_DECODER_X2 ? e->c->width : 2 * e->c->ffn;
}

/* In backward gate_up becomes its gradient, which has a tail. Rows are as far apart in evaluation:
 * a library may take another way for other strides. */
static int64_t tiled_tail(const struct ebb_emitter *e, int64_t layer, enum ebb_decoder_slot slot)
{
    return slot == EBB_DECODER_X2 ? 0 : ebb_linear_tail(e, &e->d->layers[layer].gate_up);
}

static int64_t sent_every(const struct ebb_emitter *e, int64_t layer, enum ebb_decoder_slot slot)
{
    return ebb_policy_every(policy_of(e, layer, slot));
}

/* Of a tile: nothing is HALF. */
static enum ebb_policy tile_policy(const struct ebb_emitter *e, int64_t layer,
                                   enum ebb_decoder_slot slot, int64_t t)
{
    enum ebb_policy policy = policy_of(e, layer, slot);
    if (policy != EBB_POLICY_HALF) return policy;
    return t % ebb_policy_every(policy) == 0 ? EBB_POLICY_HOST : EBB_POLICY_RECOMPUTE;
}

/* Sends tile t of a slot (t < 0: all of it) home, where that is its policy. */
static enum ebb_status send_tile(struct ebb_emitter *e, int64_t layer, enum ebb_decoder_slot slot,
                                 const struct ebb_matrix *from, int64_t t, const char *name)
{
    struct ebb_saved *saved = &e->at[layer].slot[slot];
    if (tile_policy(e, layer, slot, t) != EBB_POLICY_HOST) return EBB_OK;
    if (slot == EBB_DECODER_GATE_UP && tiled_tail(e, layer, slot) > 0) {
        /* Whole rows leave, and nothing has written the tail yet. */
        struct ebb_fill zero = {
            .y = ebb_matrix_tile(e->b, from, t, tiled_cols(e, slot), tiled_tail(e, layer, slot))};
        EBB_TRY(ebb_build_op(e->b, EBB_OP_fill, &zero));
    }
    saved->every = sent_every(e, layer, slot);
    bool last = t < 0 || t + saved->every >= e->tiles;
    return ebb_saved_out(e->b, saved, from, t, last, name, layer);
}

/* Buffers of a slot: a ring for tiles that are on their way, and behind it one for those that stay
 * only while they are worked on, where there are both. */
static void ring_size(const struct ebb_emitter *e, enum ebb_policy policy, struct ebb_ring *ring)
{
    ring->moving = ebb_policy_moves(policy) && e->tiles > 1 ? e->b->ring : 1;
    ring->count = ring->moving + (policy == EBB_POLICY_HALF && ring->moving > 1 ? 1 : 0);
}

static struct ebb_matrix *ring_buffer(struct ebb_emitter *e, int64_t layer,
                                      enum ebb_decoder_slot slot, int64_t t)
{
    struct ebb_ring *ring = ring_of(e, layer, slot);
    int64_t every = sent_every(e, layer, slot);
    return &ring->buffer[t % every == 0 ? t / every % ring->moving : ring->count - 1];
}

static enum ebb_status ring_in(struct ebb_emitter *e, int64_t layer, enum ebb_decoder_slot slot,
                               int64_t t)
{
    if (t >= e->tiles) return EBB_OK;
    return ebb_saved_in(e->b, &e->at[layer].slot[slot], ring_buffer(e, layer, slot, t), t);
}

/* Opens a slot's ring: its buffers and, in backward with the slot at home, the moves of the first
 * tile, or of as many as there are buffers for. */
static enum ebb_status ring_open(struct ebb_emitter *e, int64_t layer, enum ebb_decoder_slot slot,
                                 bool forward)
{
    struct ebb_ring *ring = ring_of(e, layer, slot);
    enum ebb_policy policy = policy_of(e, layer, slot);
    if (ring->count > 0 || (policy == EBB_POLICY_KEEP && !forward)) return EBB_OK;
    int64_t cols = tiled_cols(e, slot), tail = tiled_tail(e, layer, slot);
    if (policy == EBB_POLICY_KEEP) {
        if (e->at[layer].slot[slot].device.tensor >= 0) return EBB_OK;
        struct ebb_matrix whole;
        return produce_whole(e, layer, slot, cols + tail, ring_names[slot], &whole);
    }
    ring_size(e, policy, ring);
    for (int i = 0; i < ring->count; i++)
        EBB_TRY(ebb_build_matrix_apart(e->b, e->train ? cols + tail : cols, cols + tail, e->storage,
                                       true, ring_names[slot], layer, &ring->buffer[i]));
    if (forward || !ebb_policy_moves(policy)) return EBB_OK;
    for (int i = 0; i < (e->b->prefetch == EBB_PREFETCH_EARLY ? ring->moving : 1); i++)
        EBB_TRY(ring_in(e, layer, slot, i * sent_every(e, layer, slot)));
    return EBB_OK;
}

/* The matrix that holds tile t. In backward it is filled where the slot was kept or comes in;
 * *made says whether. The next tile that comes in is asked for while this one is used. */
static enum ebb_status ring_tile(struct ebb_emitter *e, int64_t layer, enum ebb_decoder_slot slot,
                                 int64_t t, bool forward, struct ebb_matrix *m, bool *made)
{
    struct ebb_ring *ring = ring_of(e, layer, slot);
    const enum ebb_policy policy = tile_policy(e, layer, slot, t);
    *made = !forward && policy != EBB_POLICY_RECOMPUTE;
    if (policy == EBB_POLICY_KEEP) {
        *m = e->at[layer].slot[slot].device;
        return EBB_OK;
    }
    *m = *ring_buffer(e, layer, slot, t);
    if (forward || policy != EBB_POLICY_HOST) return EBB_OK;
    if (t == 0 && (ring->moving == 1 || e->b->prefetch == EBB_PREFETCH_EARLY)) return EBB_OK;
    return ring_in(e, layer, slot, t + (ring->moving - 1) * sent_every(e, layer, slot));
}

/* ---- attention half of a layer ---- */

static enum ebb_status emit_rotary(struct ebb_emitter *e, int64_t layer, struct ebb_view x,
                                   struct ebb_view y, bool cached)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    struct ebb_rotary_forward args = {
        .x = x,
        .positions = cached ? ebb_view_none()
                            : ebb_emit_input(e, e->d->net.inputs.positions, e->b->capacity.tokens),
        .table = ebb_tensor_view(e->d->rope, EBB_F32, 0, e->d->rope_rows, 0, e->c->head_dim,
                                 e->c->head_dim),
        .q_norm = ebb_emit_vector(e, l->q_norm.w, e->c->head_dim),
        .k_norm = ebb_emit_vector(e, l->k_norm.w, e->c->head_dim),
        .y = y,
        .heads = e->c->heads,
        .kv_heads = e->c->kv_heads,
        .head_dim = e->c->head_dim,
        .eps = (float)e->c->norm_eps};
    return ebb_build_op(e->b, EBB_OP_rotary_forward, &args);
}

/* q and k as attention reads them: a matrix of their own where the slot holds them before the
 * norm. */
static enum ebb_status make_qk(struct ebb_emitter *e, int64_t layer, const struct ebb_matrix *qkv)
{
    struct ebb_layer_state *s = &e->at[layer];
    if (!e->c->qk_norm || s->qk.tensor >= 0) return EBB_OK;
    EBB_TRY(ebb_emit_whole(e, e->d->qk_cols, e->storage, "qk", layer, &s->qk));
    for (int64_t t = 0; t < e->tiles; t++)
        EBB_TRY(emit_rotary(e, layer, ebb_matrix_tile(e->b, qkv, t, 0, e->d->qk_cols),
                            ebb_matrix_tile(e->b, &s->qk, t, 0, e->d->qk_cols), false));
    return EBB_OK;
}

/* Normed input of a linear with its tail, tile t. */
static enum ebb_status normed_tile(struct ebb_emitter *e, const struct ebb_decoder_vector *norm,
                                   const struct ebb_decoder_linear *linear, struct ebb_view x,
                                   const struct ebb_matrix *n, int64_t t,
                                   const struct ebb_matrix *drop)
{
    EBB_TRY(ebb_emit_norm(e, norm, x, ebb_matrix_tile(e->b, n, t, 0, e->c->width)));
    return ebb_linear_fill_tail(e, linear, n, t, drop);
}

static enum ebb_status make_qkv(struct ebb_emitter *e, int64_t layer, const struct ebb_matrix *x,
                                const struct ebb_matrix *qkv, bool forward)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    struct ebb_matrix n1, drop;
    EBB_TRY(ebb_weights_need(e, layer, EBB_WEIGHTS_ATTENTION));
    EBB_TRY(ebb_linear_input(e, &l->qkv, "n1", layer, &n1));
    EBB_TRY(ebb_linear_dropout(e, &l->qkv, layer, &drop));
    for (int64_t t = 0; t < e->tiles; t++) {
        EBB_TRY(normed_tile(e, &l->norm1, &l->qkv, ebb_matrix_tile(e->b, x, t, 0, e->c->width), &n1,
                            t, &drop));
        EBB_TRY(ebb_linear_forward(e, &l->qkv, &n1, t, ebb_view_none(),
                                   ebb_matrix_tile(e->b, qkv, t, 0, e->d->qkv_cols)));
        if (!e->c->qk_norm) {
            struct ebb_view qk = ebb_matrix_tile(e->b, qkv, t, 0, e->d->qk_cols);
            EBB_TRY(emit_rotary(e, layer, qk, qk, false));
        }
        if (forward) EBB_TRY(send_tile(e, layer, EBB_DECODER_QKV, qkv, t, "qkv"));
    }
    return EBB_OK;
}

static struct ebb_attention_shape attention_shape(const struct ebb_emitter *e, int64_t layer)
{
    struct ebb_attention_shape shape = {.heads = e->c->heads,
                                        .kv_heads = e->c->kv_heads,
                                        .qk_dim = e->c->head_dim,
                                        .v_dim = e->c->head_dim,
                                        .window = e->c->window[layer],
                                        .scale = (float)(1.0 / sqrt((double)e->c->head_dim)),
                                        .softcap = 0};
    return shape;
}

struct ebb_view ebb_emit_docs(const struct ebb_emitter *e)
{
    return ebb_emit_input(e, e->d->net.inputs.doc_starts, e->b->capacity.docs + 1);
}

/* Appends an op of attention, whose arguments have `shape` and `scratch`. That is large, and the
 * ops before and after it have other uses for the room. */
static enum ebb_status attention_op(struct ebb_emitter *e, enum ebb_op op, const void *args,
                                    const struct ebb_attention_shape *shape,
                                    struct ebb_view *scratch)
{
    struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
    const struct ebb_capacity *capacity = &e->b->capacity;
    EBB_TRY(ebb_build_new_scratch(e->b));
    *scratch =
        ebb_build_scratch(e->b, ebb_attention_scratch(shape, e->storage, op, capacity->tokens,
                                                      capacity->doc_tokens, &target));
    EBB_TRY(ebb_build_op(e->b, op, args));
    return ebb_build_new_scratch(e->b);
}

/* Attention's output is the output projection's input: it has its tail. */
static int64_t o_stride(const struct ebb_emitter *e, int64_t layer)
{
    return e->d->o_cols + ebb_linear_tail(e, &e->d->layers[layer].o);
}

static enum ebb_status make_o(struct ebb_emitter *e, int64_t layer, const struct ebb_matrix *qkv,
                              const struct ebb_matrix *o, const struct ebb_matrix *lse)
{
    const struct ebb_decoder_linear *linear = &e->d->layers[layer].o;
    struct ebb_matrix drop;
    EBB_TRY(make_qk(e, layer, qkv));
    const struct ebb_matrix *qk = e->c->qk_norm ? &e->at[layer].qk : qkv;
    struct ebb_attention_forward args = {.shape = attention_shape(e, layer)};
    args.q = ebb_matrix_all(e->b, qk, 0, e->d->o_cols);
    args.k = ebb_matrix_all(e->b, qk, e->d->o_cols, e->d->qk_cols - e->d->o_cols);
    args.v = ebb_matrix_all(e->b, qkv, e->d->qk_cols, e->d->qkv_cols - e->d->qk_cols);
    args.doc_starts = ebb_emit_docs(e);
    args.o = ebb_matrix_all(e->b, o, 0, e->d->o_cols);
    args.lse = ebb_matrix_all(e->b, lse, 0, e->c->heads);
    EBB_TRY(attention_op(e, EBB_OP_attention_forward, &args, &args.shape, &args.scratch));
    EBB_TRY(ebb_weights_need(e, layer, EBB_WEIGHTS_MLP)); /* the projection, for the tail */
    EBB_TRY(ebb_linear_dropout(e, linear, layer, &drop));
    for (int64_t t = 0; t < e->tiles; t++) EBB_TRY(ebb_linear_fill_tail(e, linear, o, t, &drop));
    return EBB_OK;
}

/* ---- MLP half of a layer ---- */

/* Tile buffers of the second half of a layer, and what they are for. */
struct mlp {
    struct ebb_matrix n2, act; /* in backward, once read, their gradients */
    struct ebb_matrix gate_up_drop, down_drop;
};

static enum ebb_status mlp_open(struct ebb_emitter *e, int64_t layer, bool forward, struct mlp *m)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    EBB_TRY(ebb_linear_input(e, &l->gate_up, "n2", layer, &m->n2));
    EBB_TRY(ebb_linear_input(e, &l->down, "act", layer, &m->act));
    EBB_TRY(ebb_linear_dropout(e, &l->gate_up, layer, &m->gate_up_drop));
    EBB_TRY(ebb_linear_dropout(e, &l->down, layer, &m->down_drop));
    EBB_TRY(ring_open(e, layer, EBB_DECODER_X2, forward));
    return ring_open(e, layer, EBB_DECODER_GATE_UP, forward);
}

/* Closes the rings: a later pass over this layer opens new ones. */
static void mlp_close(struct ebb_emitter *e, int64_t layer)
{
    e->at[layer].x2.count = 0;
    e->at[layer].gate_up.count = 0;
}

/* SiLU product with its tail, tile t. */
static enum ebb_status make_act(struct ebb_emitter *e, int64_t layer, struct ebb_view gate_up,
                                const struct mlp *m, int64_t t)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    struct ebb_swiglu_forward args = {.x = gate_up,
                                      .y = ebb_matrix_tile(e->b, &m->act, t, 0, e->c->ffn)};
    EBB_TRY(ebb_build_op(e->b, EBB_OP_swiglu_forward, &args));
    return ebb_linear_fill_tail(e, &l->down, &m->act, t, &m->down_drop);
}

/* x2 and gate_up of tile t, from wherever they are; `n2` says whether the normed input is wanted
 * even if gate_up needs none. */
static enum ebb_status mlp_inputs(struct ebb_emitter *e, int64_t layer, const struct ebb_matrix *x,
                                  const struct ebb_matrix *o, const struct mlp *m, int64_t t,
                                  bool forward, bool n2, struct ebb_view *x2,
                                  struct ebb_matrix *gate_up)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    struct ebb_matrix x2_matrix;
    bool x2_made, gu_made;
    EBB_TRY(ring_tile(e, layer, EBB_DECODER_X2, t, forward, &x2_matrix, &x2_made));
    EBB_TRY(ring_tile(e, layer, EBB_DECODER_GATE_UP, t, forward, gate_up, &gu_made));
    *x2 = ebb_matrix_tile(e->b, &x2_matrix, t, 0, e->c->width);
    if (!x2_made)
        EBB_TRY(
            ebb_linear_forward(e, &l->o, o, t, ebb_matrix_tile(e->b, x, t, 0, e->c->width), *x2));
    if (n2 || !gu_made)
        EBB_TRY(normed_tile(e, &l->norm2, &l->gate_up, *x2, &m->n2, t, &m->gate_up_drop));
    if (!gu_made)
        EBB_TRY(ebb_linear_forward(e, &l->gate_up, &m->n2, t, ebb_view_none(),
                                   ebb_matrix_tile(e->b, gate_up, t, 0, 2 * e->c->ffn)));
    if (!forward) return EBB_OK;
    EBB_TRY(send_tile(e, layer, EBB_DECODER_X2, &x2_matrix, t, "x2"));
    return send_tile(e, layer, EBB_DECODER_GATE_UP, gate_up, t, "gate_up");
}

/* The second half of a layer: from x and o to the next layer's x. */
static enum ebb_status make_next(struct ebb_emitter *e, int64_t layer, const struct ebb_matrix *x,
                                 const struct ebb_matrix *o, const struct ebb_matrix *next,
                                 bool forward)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    struct mlp m;
    EBB_TRY(ebb_weights_need(e, layer, EBB_WEIGHTS_MLP));
    EBB_TRY(mlp_open(e, layer, forward, &m));
    for (int64_t t = 0; t < e->tiles; t++) {
        struct ebb_view x2;
        struct ebb_matrix gate_up;
        EBB_TRY(mlp_inputs(e, layer, x, o, &m, t, forward, false, &x2, &gate_up));
        EBB_TRY(make_act(e, layer, ebb_matrix_tile(e->b, &gate_up, t, 0, 2 * e->c->ffn), &m, t));
        EBB_TRY(ebb_linear_forward(e, &l->down, &m.act, t, x2,
                                   ebb_matrix_tile(e->b, next, t, 0, e->c->width)));
        if (forward) EBB_TRY(send_tile(e, layer + 1, EBB_DECODER_X, next, t, "x"));
    }
    mlp_close(e, layer);
    ebb_weights_forget(e, layer);
    return EBB_OK;
}

/* ---- forward ---- */

/* Layer 0's input: the table's rows, or those that stand in host memory. */
static enum ebb_status embed(struct ebb_emitter *e, const struct ebb_matrix *x, bool forward)
{
    if (e->d->rows >= 0) return ebb_saved_in(e->b, &e->at[0].slot[EBB_DECODER_X], x, -1);
    for (int64_t t = 0; t < e->tiles; t++) {
        struct ebb_embed_forward args = {.ids = ebb_emit_input(e, e->d->net.inputs.ids,
                                                               e->b->capacity.tokens),
                                         .table = ebb_tensor_view(e->d->embed, e->storage, 0,
                                                                  e->c->vocab, 0, e->c->width,
                                                                  e->c->width),
                                         .y = ebb_matrix_tile(e->b, x, t, 0, e->c->width)};
        EBB_TRY(ebb_build_op(e->b, EBB_OP_embed_forward, &args));
        if (forward) EBB_TRY(send_tile(e, 0, EBB_DECODER_X, x, t, "x"));
    }
    return EBB_OK;
}

static enum ebb_status produce_o(struct ebb_emitter *e, int64_t layer, struct ebb_matrix *o,
                                 struct ebb_matrix *lse)
{
    EBB_TRY(produce_whole(e, layer, EBB_DECODER_O, o_stride(e, layer), "o", o));
    EBB_TRY(ebb_emit_whole(e, e->c->heads, EBB_F32, "lse", layer, lse));
    if (policy_of(e, layer, EBB_DECODER_O) != EBB_POLICY_KEEP) return EBB_OK;
    e->at[layer].lse.device = *lse;
    e->b->saved_bytes += e->b->capacity.tokens * e->c->heads * 4;
    return EBB_OK;
}

static enum ebb_status forward_layer(struct ebb_emitter *e, int64_t layer,
                                     const struct ebb_matrix *x, struct ebb_matrix *next)
{
    struct ebb_matrix qkv, o, lse;
    EBB_TRY(produce_whole(e, layer, EBB_DECODER_QKV, e->d->qkv_cols, "qkv", &qkv));
    EBB_TRY(make_qkv(e, layer, x, &qkv, true));
    EBB_TRY(produce_o(e, layer, &o, &lse));
    EBB_TRY(make_o(e, layer, &qkv, &o, &lse));
    e->at[layer].qk.tensor = -1; /* cheap to make again: never saved */
    /* The small one first: its room is wanted again at once, o's only when the MLP is done. */
    if (policy_of(e, layer, EBB_DECODER_O) == EBB_POLICY_HOST)
        EBB_TRY(ebb_saved_out(e->b, &e->at[layer].lse, &lse, -1, true, "lse", layer));
    EBB_TRY(send_tile(e, layer, EBB_DECODER_O, &o, -1, "o"));
    EBB_TRY(produce_whole(e, layer + 1, EBB_DECODER_X, e->c->width, "x", next));
    return make_next(e, layer, x, &o, next, true);
}

/* ---- backward: what a layer needs, from wherever it is ---- */

/* Brings a slot in from its home, if it has one and is not on the device. */
static enum ebb_status fetch(struct ebb_emitter *e, int64_t layer, struct ebb_saved *saved,
                             const char *name)
{
    if (saved->device.tensor >= 0 || saved->host.tensor < 0) return EBB_OK;
    struct ebb_matrix m;
    EBB_TRY(ebb_emit_whole(e, saved->host.cols, saved->host.dtype, name, layer, &m));
    EBB_TRY(ebb_saved_in(e->b, saved, &m, -1));
    saved->device = m;
    return EBB_OK;
}

static enum ebb_status fetch_o(struct ebb_emitter *e, int64_t layer)
{
    EBB_TRY(fetch(e, layer, &e->at[layer].slot[EBB_DECODER_O], "o"));
    return fetch(e, layer, &e->at[layer].lse, "lse");
}

static enum ebb_status need_o(struct ebb_emitter *e, int64_t layer);

/* Makes layer's input on the device, passing layers forward again as far down as need be. */
static enum ebb_status need_x(struct ebb_emitter *e, int64_t layer)
{
    struct ebb_saved *saved = &e->at[layer].slot[EBB_DECODER_X];
    EBB_TRY(fetch(e, layer, saved, "x"));
    if (saved->device.tensor >= 0) return EBB_OK;
    struct ebb_matrix x;
    if (layer == 0) {
        EBB_TRY(ebb_emit_whole(e, e->c->width, e->storage, "x", 0, &x));
        EBB_TRY(embed(e, &x, false));
    } else {
        EBB_TRY(need_x(e, layer - 1));
        EBB_TRY(need_o(e, layer - 1));
        EBB_TRY(ebb_emit_whole(e, e->c->width, e->storage, "x", layer, &x));
        const struct ebb_layer_state *below = &e->at[layer - 1];
        EBB_TRY(make_next(e, layer - 1, &below->slot[EBB_DECODER_X].device,
                          &below->slot[EBB_DECODER_O].device, &x, false));
    }
    saved->device = x;
    return EBB_OK;
}

static enum ebb_status need_qkv(struct ebb_emitter *e, int64_t layer)
{
    struct ebb_saved *saved = &e->at[layer].slot[EBB_DECODER_QKV];
    EBB_TRY(fetch(e, layer, saved, "qkv"));
    if (saved->device.tensor >= 0) return EBB_OK;
    struct ebb_matrix qkv;
    EBB_TRY(need_x(e, layer));
    EBB_TRY(ebb_emit_whole(e, e->d->qkv_cols, e->storage, "qkv", layer, &qkv));
    EBB_TRY(make_qkv(e, layer, &e->at[layer].slot[EBB_DECODER_X].device, &qkv, false));
    saved->device = qkv;
    return EBB_OK;
}

static enum ebb_status need_o(struct ebb_emitter *e, int64_t layer)
{
    struct ebb_layer_state *s = &e->at[layer];
    EBB_TRY(fetch_o(e, layer));
    if (s->slot[EBB_DECODER_O].device.tensor >= 0) return EBB_OK;
    struct ebb_matrix o, lse;
    EBB_TRY(need_qkv(e, layer));
    EBB_TRY(ebb_emit_whole(e, o_stride(e, layer), e->storage, "o", layer, &o));
    EBB_TRY(ebb_emit_whole(e, e->c->heads, EBB_F32, "lse", layer, &lse));
    EBB_TRY(make_o(e, layer, &s->slot[EBB_DECODER_QKV].device, &o, &lse));
    s->slot[EBB_DECODER_O].device = o;
    s->lse.device = lse;
    return EBB_OK;
}

/* Whether attention's output need not be made again for backward. */
static bool o_is_saved(const struct ebb_emitter *e, int64_t layer)
{
    const struct ebb_saved *o = &e->at[layer].slot[EBB_DECODER_O];
    return o->device.tensor >= 0 || o->host.tensor >= 0;
}

/* Starts the moves that backward of `layer` will want, in the order in which it wants them, so that
 * they run beside the layer above. Follows the chain of layers that will have to be passed forward
 * again. */
static enum ebb_status prefetch(struct ebb_emitter *e, int64_t layer)
{
    bool o_saved = o_is_saved(e, layer);
    EBB_TRY(ring_open(e, layer, EBB_DECODER_X2, false));
    EBB_TRY(ring_open(e, layer, EBB_DECODER_GATE_UP, false));
    if (!o_saved) EBB_TRY(fetch(e, layer, &e->at[layer].slot[EBB_DECODER_QKV], "qkv"));
    for (int64_t j = layer; j >= 0; j--) {
        EBB_TRY(fetch(e, j, &e->at[j].slot[EBB_DECODER_X], "x"));
        if (e->at[j].slot[EBB_DECODER_X].device.tensor >= 0 || j == 0) break;
        EBB_TRY(fetch_o(e, j - 1));
        if (e->at[j - 1].slot[EBB_DECODER_O].device.tensor < 0)
            EBB_TRY(fetch(e, j - 1, &e->at[j - 1].slot[EBB_DECODER_QKV], "qkv"));
    }
    EBB_TRY(fetch_o(e, layer));
    return o_saved ? fetch(e, layer, &e->at[layer].slot[EBB_DECODER_QKV], "qkv") : EBB_OK;
}

/* When to prefetch for whose turn is next: the next micro-batch in this layer, or the first in the
 * layer below. A matrix that comes in takes room from its first row on: with several tiles its
 * first may be there in time if it starts at attention; with one tile the whole of it must be. */
enum moment { BEFORE_LAYER, BEFORE_ATTENTION, BEHIND_ATTENTION };

static enum ebb_status prefetch_next(struct ebb_emitter *e, int64_t layer, enum moment now)
{
    const enum moment when = e->tiles == 1                          ? BEFORE_LAYER
                             : e->b->prefetch == EBB_PREFETCH_EARLY ? BEFORE_ATTENTION
                                                                    : BEHIND_ATTENTION;
    const int32_t micro = e->micro;
    const bool below = micro + 1 == e->micros;
    if (e->b->prefetch == EBB_PREFETCH_NONE || (below && layer == 0) || now != when) return EBB_OK;
    enter(e, below ? 0 : micro + 1);
    EBB_TRY(prefetch(e, below ? layer - 1 : layer));
    enter(e, micro);
    return EBB_OK;
}

/* ---- backward of a layer ---- */

/* MLP and output projection: e->dx becomes the gradient of x2, d_o [T, H D] that of o. */
static enum ebb_status backward_mlp(struct ebb_emitter *e, int64_t layer,
                                    const struct ebb_matrix *d_o)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    const struct ebb_matrix *x = &e->at[layer].slot[EBB_DECODER_X].device;
    const struct ebb_matrix *o = &e->at[layer].slot[EBB_DECODER_O].device;
    struct ebb_matrix o_drop;
    struct mlp m;
    EBB_TRY(ebb_weights_need(e, layer, EBB_WEIGHTS_MLP));
    EBB_TRY(mlp_open(e, layer, false, &m));
    EBB_TRY(ebb_linear_dropout(e, &l->o, layer, &o_drop));
    for (int64_t t = 0; t < e->tiles; t++) {
        struct ebb_view dx = ebb_matrix_tile(e->b, &e->dx, t, 0, e->c->width), x2;
        struct ebb_matrix gate_up;
        EBB_TRY(mlp_inputs(e, layer, x, o, &m, t, false, ebb_linear_needs_input(&l->gate_up), &x2,
                           &gate_up));
        struct ebb_view gu = ebb_matrix_tile(e->b, &gate_up, t, 0, 2 * e->c->ffn);
        if (ebb_linear_needs_input(&l->down)) EBB_TRY(make_act(e, layer, gu, &m, t));
        EBB_TRY(ebb_linear_backward(e, &l->down, t, &m.act, &e->dx, &m.act, &m.down_drop));
        struct ebb_swiglu_backward act = {.x = gu,
                                          .dy = ebb_matrix_tile(e->b, &m.act, t, 0, e->c->ffn),
                                          .dx = gu};
        EBB_TRY(ebb_build_op(e->b, EBB_OP_swiglu_backward, &act));
        EBB_TRY(ebb_linear_backward(e, &l->gate_up, t, &m.n2, &gate_up, &m.n2, &m.gate_up_drop));
        EBB_TRY(ebb_emit_norm_backward(e, &l->norm2, x2,
                                       ebb_matrix_tile(e->b, &m.n2, t, 0, e->c->width), dx, false));
        EBB_TRY(ebb_linear_backward(e, &l->o, t, o, &e->dx, d_o, &o_drop));
    }
    mlp_close(e, layer);
    EBB_TRY(ebb_grad_end(e, l->down.param));
    EBB_TRY(ebb_grad_end(e, l->gate_up.param));
    return ebb_grad_end(e, l->o.param);
}

static enum ebb_status backward_attention(struct ebb_emitter *e, int64_t layer,
                                          const struct ebb_matrix *d_o,
                                          const struct ebb_matrix *dqkv)
{
    const struct ebb_layer_state *s = &e->at[layer];
    const struct ebb_matrix *qkv = &s->slot[EBB_DECODER_QKV].device,
                            *qk = e->c->qk_norm ? &s->qk : qkv;
    int64_t o_cols = e->d->o_cols, kv_cols = e->d->qk_cols - o_cols;
    struct ebb_attention_backward args = {.shape = attention_shape(e, layer)};
    args.q = ebb_matrix_all(e->b, qk, 0, o_cols);
    args.k = ebb_matrix_all(e->b, qk, o_cols, kv_cols);
    args.v = ebb_matrix_all(e->b, qkv, e->d->qk_cols, kv_cols);
    args.o = ebb_matrix_all(e->b, &s->slot[EBB_DECODER_O].device, 0, o_cols);
    args.lse = ebb_matrix_all(e->b, &s->lse.device, 0, e->c->heads);
    args.d_o = ebb_matrix_all(e->b, d_o, 0, o_cols);
    args.doc_starts = ebb_emit_docs(e);
    args.dq = ebb_matrix_all(e->b, dqkv, 0, o_cols);
    args.dk = ebb_matrix_all(e->b, dqkv, o_cols, kv_cols);
    args.dv = ebb_matrix_all(e->b, dqkv, e->d->qk_cols, kv_cols);
    return attention_op(e, EBB_OP_attention_backward, &args, &args.shape, &args.scratch);
}

static enum ebb_status rotary_backward_tile(struct ebb_emitter *e, int64_t layer,
                                            const struct ebb_matrix *dqkv, int64_t t)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    struct ebb_view dy = ebb_matrix_tile(e->b, dqkv, t, 0, e->d->qk_cols);
    bool norms = e->c->qk_norm;
    struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
    struct ebb_rotary_backward args = {
        .x = norms ? ebb_matrix_tile(e->b, &e->at[layer].slot[EBB_DECODER_QKV].device, t, 0,
                                     e->d->qk_cols)
                   : ebb_view_none(),
        .positions = ebb_emit_input(e, e->d->net.inputs.positions, e->b->capacity.tokens),
        .table = ebb_tensor_view(e->d->rope, EBB_F32, 0, e->d->rope_rows, 0, e->c->head_dim,
                                 e->c->head_dim),
        .q_norm = ebb_emit_vector(e, l->q_norm.w, e->c->head_dim),
        .k_norm = ebb_emit_vector(e, l->k_norm.w, e->c->head_dim),
        .dy = dy,
        .dq_norm = ebb_emit_grad(e, l->q_norm.param),
        .dk_norm = ebb_emit_grad(e, l->k_norm.param),
        .scratch = ebb_build_scratch(e->b, ebb_rotary_backward_scratch(dy.rows, e->c->head_dim,
                                                                       norms, &target)),
        .heads = e->c->heads,
        .kv_heads = e->c->kv_heads,
        .head_dim = e->c->head_dim,
        .eps = (float)e->c->norm_eps};
    return ebb_build_op(e->b, EBB_OP_rotary_backward, &args);
}

/* First norm and q, k, v projection: e->dx becomes the gradient of the layer's input. */
static enum ebb_status backward_qkv(struct ebb_emitter *e, int64_t layer,
                                    const struct ebb_matrix *dqkv)
{
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    const struct ebb_matrix *x = &e->at[layer].slot[EBB_DECODER_X].device;
    struct ebb_matrix n1, drop;
    EBB_TRY(ebb_weights_need(e, layer, EBB_WEIGHTS_ATTENTION));
    EBB_TRY(ebb_linear_input(e, &l->qkv, "n1", layer, &n1));
    EBB_TRY(ebb_linear_dropout(e, &l->qkv, layer, &drop));
    for (int64_t t = 0; t < e->tiles; t++) {
        struct ebb_view x_tile = ebb_matrix_tile(e->b, x, t, 0, e->c->width);
        EBB_TRY(rotary_backward_tile(e, layer, dqkv, t));
        if (ebb_linear_needs_input(&l->qkv))
            EBB_TRY(normed_tile(e, &l->norm1, &l->qkv, x_tile, &n1, t, &drop));
        EBB_TRY(ebb_linear_backward(e, &l->qkv, t, &n1, dqkv, &n1, &drop));
        EBB_TRY(ebb_emit_norm_backward(e, &l->norm1, x_tile,
                                       ebb_matrix_tile(e->b, &n1, t, 0, e->c->width),
                                       ebb_matrix_tile(e->b, &e->dx, t, 0, e->c->width), false));
    }
    ebb_weights_forget(e, layer);
    return ebb_grad_end(e, l->qkv.param);
}

static enum ebb_status backward_layer(struct ebb_emitter *e, int64_t layer)
{
    struct ebb_matrix d_o, dqkv;
    e->target = layer;
    e->mlp_of = -1;
    int64_t dqkv_cols = e->d->qkv_cols + e->d->layers[layer].qkv.tail;
    EBB_TRY(need_x(e, layer));
    EBB_TRY(need_o(e, layer));
    EBB_TRY(prefetch_next(e, layer, BEFORE_LAYER));
    EBB_TRY(ebb_emit_whole(e, e->d->o_cols, e->storage, "d_o", layer, &d_o));
    EBB_TRY(backward_mlp(e, layer, &d_o));
    EBB_TRY(need_qkv(e, layer));
    EBB_TRY(make_qk(e, layer, &e->at[layer].slot[EBB_DECODER_QKV].device));
    EBB_TRY(ebb_emit_whole(e, dqkv_cols, e->storage, "dqkv", layer, &dqkv));
    EBB_TRY(prefetch_next(e, layer, BEFORE_ATTENTION));
    EBB_TRY(backward_attention(e, layer, &d_o, &dqkv));
    EBB_TRY(prefetch_next(e, layer, BEHIND_ATTENTION));
    return backward_qkv(e, layer, &dqkv);
}

static enum ebb_status embed_backward(struct ebb_emitter *e)
{
    if (e->d->embed_param < 0) return EBB_OK;
    EBB_TRY(ebb_grad_begin(e, e->d->embed_param));
    struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
    struct ebb_embed_backward args = {
        .ids = ebb_emit_input(e, e->d->net.inputs.ids, e->b->capacity.tokens),
        .dx = ebb_matrix_all(e->b, &e->dx, 0, e->c->width),
        .dtable = ebb_emit_grad(e, e->d->embed_param),
        .scratch =
            ebb_build_scratch(e->b, ebb_embed_backward_scratch(e->b->capacity.tokens, &target))};
    EBB_TRY(ebb_build_op(e->b, EBB_OP_embed_backward, &args));
    return ebb_grad_end(e, e->d->embed_param);
}

/* ---- programs ---- */

static enum ebb_status begin_forward(struct ebb_emitter *e, struct ebb_matrix *x)
{
    EBB_TRY(produce_whole(e, 0, EBB_DECODER_X, e->c->width, "x", x));
    return embed(e, x, true);
}

/* Embedding and all layers: e->xs are the last one's outputs. */
static enum ebb_status forward(struct ebb_emitter *e)
{
    struct ebb_matrix next;
    for (int64_t layer = 0; layer < e->c->layers; layer++)
        for (int32_t m = 0; m < e->micros; m++) {
            enter(e, m);
            if (layer == 0) EBB_TRY(begin_forward(e, &e->xs[m]));
            EBB_TRY(forward_layer(e, layer, &e->xs[m], &next));
            e->xs[m] = next;
        }
    enter(e, 0);
    return EBB_OK;
}

/* Forward of the model and, before it, of what it is compared with: a teacher leaves its last
 * hidden states, a reference a number a label, and nothing else of them stands while the model
 * saves. Then the loss. */
static enum ebb_status emit_forward(struct ebb_emitter *e, struct ebb_emitter *second)
{
    if (second) EBB_TRY(forward(second));
    if (ebb_objective_prefers(&e->d->options.objective)) {
        struct ebb_view reference = ebb_head_given_reference(e);
        if (second) {
            EBB_TRY(ebb_head_emit_reference(second, &second->xs[0], &reference));
            EBB_TRY(ebb_build_new_scratch(e->b)); /* a layer wants less than the head */
        }
        EBB_TRY(forward(e));
        return ebb_head_emit_sequences(e, &e->xs[0], reference);
    }
    EBB_TRY(forward(e));
    for (int32_t m = 0; m < e->micros; m++) {
        enter(e, m);
        EBB_TRY(ebb_head_emit(e, &e->xs[m], second, second ? &second->xs[0] : NULL));
    }
    return EBB_OK;
}

static enum ebb_status emit_training(struct ebb_emitter *e, struct ebb_emitter *second)
{
    EBB_TRY(emit_forward(e, second));
    if (!e->train) return EBB_OK;
    EBB_TRY(ebb_build_new_scratch(e->b));
    for (int64_t layer = e->c->layers - 1; layer >= 0; layer--)
        for (int32_t m = 0; m < e->micros; m++) {
            enter(e, m);
            EBB_TRY(backward_layer(e, layer));
        }
    for (int32_t m = 0; m < e->micros; m++) {
        enter(e, m);
        EBB_TRY(embed_backward(e));
    }
    return EBB_OK;
}

/* Keys and values of a layer into its caches, attention over them, output in `o`. */
static enum ebb_status decode_attention(struct ebb_emitter *e, int64_t layer,
                                        const struct ebb_matrix *qkv, const struct ebb_matrix *o)
{
    int64_t kv_cols = e->d->qk_cols - e->d->o_cols, cache = e->b->capacity.cache_tokens;
    struct ebb_view qk = ebb_matrix_tile(e->b, qkv, 0, 0, e->d->qk_cols), caches[2];
    EBB_TRY(emit_rotary(e, layer, qk, qk, true));
    for (int i = 0; i < 2; i++) {
        int32_t tensor;
        EBB_TRY(ebb_program_tensor(e->b->program, EBB_SPACE_DEVICE,
                                   cache * kv_cols * ebb_dtype_bytes(e->storage), &tensor,
                                   "layer%d.%s_cache", (int)layer, i ? "v" : "k"));
        caches[i] = ebb_tensor_view(tensor, e->storage, 0, cache, 0, kv_cols, kv_cols);
        struct ebb_store_rows store = {.x = ebb_matrix_tile(e->b, qkv, 0,
                                                            e->d->o_cols + i * kv_cols, kv_cols),
                                       .y = caches[i]};
        EBB_TRY(ebb_build_op(e->b, EBB_OP_store_rows, &store));
        ebb_program_hold(e->b->program, tensor, true);
    }
    struct ebb_attention_cached args = {.q = ebb_matrix_tile(e->b, qkv, 0, 0, e->d->o_cols),
                                        .k = caches[0],
                                        .v = caches[1],
                                        .o = ebb_matrix_tile(e->b, o, 0, 0, e->d->o_cols),
                                        .shape = attention_shape(e, layer)};
    return attention_op(e, EBB_OP_attention_cached, &args, &args.shape, &args.scratch);
}

/* One tile of tokens through all layers; logits of the rows in label_rows (the last one). */
static enum ebb_status emit_decode(struct ebb_emitter *e)
{
    struct ebb_matrix x, next, qkv, o, n1, drop = {.tensor = -1};
    EBB_ASSERT(e->tiles == 1);
    EBB_TRY(ebb_emit_whole(e, e->c->width, e->storage, "x", 0, &x));
    EBB_TRY(embed(e, &x, false));
    for (int64_t layer = 0; layer < e->c->layers; layer++) {
        const struct ebb_decoder_layer *l = &e->d->layers[layer];
        EBB_TRY(ebb_weights_need(e, layer, EBB_WEIGHTS_ATTENTION));
        EBB_TRY(ebb_linear_input(e, &l->qkv, "n1", layer, &n1));
        EBB_TRY(ebb_emit_tile(e, e->d->qkv_cols, "qkv", layer, &qkv));
        EBB_TRY(ebb_linear_input(e, &l->o, "o", layer, &o));
        EBB_TRY(normed_tile(e, &l->norm1, &l->qkv, ebb_matrix_tile(e->b, &x, 0, 0, e->c->width),
                            &n1, 0, &drop));
        EBB_TRY(ebb_linear_forward(e, &l->qkv, &n1, 0, ebb_view_none(),
                                   ebb_matrix_tile(e->b, &qkv, 0, 0, e->d->qkv_cols)));
        EBB_TRY(decode_attention(e, layer, &qkv, &o));
        EBB_TRY(ebb_weights_need(e, layer, EBB_WEIGHTS_MLP));
        EBB_TRY(ebb_linear_fill_tail(e, &l->o, &o, 0, &drop));
        EBB_TRY(ebb_emit_whole(e, e->c->width, e->storage, "x", layer + 1, &next));
        EBB_TRY(make_next(e, layer, &x, &o, &next, false));
        x = next;
    }
    struct ebb_head head;
    EBB_TRY(ebb_head_open(e, false, &head));
    EBB_TRY(ebb_head_logits(e, &head, 0, ebb_matrix_all(e->b, &x, 0, e->c->width)));
    ebb_program_hold(e->b->program, head.logits.tensor, true);
    ((struct ebb_decoder *)e->d->net.self)->logits = head.logits.tensor;
    return EBB_OK;
}

/* Nothing of the micro-batch is anywhere. */
static void clear_micro(struct ebb_emitter *e)
{
    const struct ebb_decoder *d = e->d;
    for (int64_t layer = 0; layer <= e->c->layers; layer++) {
        for (int slot = 0; slot < EBB_DECODER_SLOTS; slot++)
            ebb_saved_clear(&e->at[layer].slot[slot]);
        ebb_saved_clear(&e->at[layer].lse);
        e->at[layer].qk.tensor = -1;
    }
    if (d->rows < 0) return;
    /* What is home before the run needs no move out, whatever the policy. */
    e->at[0].slot[EBB_DECODER_X].host =
        (struct ebb_matrix){.tensor = d->rows,
                            .dtype = e->storage,
                            .cols = e->c->width,
                            .offset =
                                ebb_build_input_offset(e->b, d->owner->tensors[d->rows].bytes)};
}

static enum ebb_status open(struct ebb_build *build, const struct ebb_decoder *d, bool train,
                            struct ebb_emitter *e)
{
    memset(e, 0, sizeof *e);
    e->b = build;
    e->d = d;
    e->c = d->config;
    e->storage = d->options.storage;
    e->train = train;
    e->tiles = ebb_build_tiles(build);
    e->micros = train ? build->micros : 1;
    e->all = (struct ebb_layer_state *)ebb_mem_alloc(build->ctx,
                                                     (size_t)(e->micros * (e->c->layers + 1)) *
                                                         sizeof *e->all);
    if (!e->all) return EBB_NO_MEMORY;
    EBB_TRY(ebb_stream_open(e));
    for (int32_t m = e->micros - 1; m >= 0; m--) {
        enter(e, m);
        clear_micro(e);
    }
    return EBB_OK;
}

/* Whose forward comes first; NULL: nobody's. */
static const struct ebb_decoder *second_of(const struct ebb_decoder *d, bool *base)
{
    const struct ebb_objective *objective = &d->options.objective;
    *base = ebb_objective_prefers(objective) && objective->reference == EBB_REFERENCE_BASE;
    return *base ? d : d->teacher;
}

enum ebb_status ebb_decoder_emit(const struct ebb_net *net, struct ebb_build *build,
                                 enum ebb_program_kind kind)
{
    const struct ebb_decoder *d = (const struct ebb_decoder *)net->self;
    struct ebb_emitter e, second;
    bool base = false;
    memset(&second, 0, sizeof second);
    enum ebb_status status = open(build, d, kind == EBB_PROGRAM_TRAIN, &e);
    const struct ebb_decoder *other = kind == EBB_PROGRAM_DECODE ? NULL : second_of(d, &base);
    if (status == EBB_OK && other) status = open(build, other, false, &second);
    second.base = base;
    if (status == EBB_OK)
        status = kind == EBB_PROGRAM_DECODE ? emit_decode(&e)
                                            : emit_training(&e, other ? &second : NULL);
    ebb_stream_close(build->ctx, &second);
    ebb_stream_close(build->ctx, &e);
    ebb_mem_free(build->ctx, second.all);
    ebb_mem_free(build->ctx, e.all);
    return status;
}
