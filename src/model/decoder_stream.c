/* What a program does with tensors that live in host memory: matrices that nobody trains come in
 * before they are used, gradients of trained ones leave once their layer is done.
 *
 * A matrix that comes in is a transient tensor of the same shape; its lifetime ends with its last
 * reader, so buffers need no bookkeeping: layout lets the next one have the room. What comes next
 * is known from where the program is, and is started ahead, so that the copy runs beside the work.
 * A wrong guess costs time and nothing else: whoever needs a matrix looks whether it is there.
 *
 * Where a run takes several micro-batches, what comes in for one is there for all of them: a
 * layer's matrices stay until the last has used them, a gradient until the last has added to it.
 * What the next layer needs comes in by shares beside them, so that what they themselves wait for
 * on the way in is never behind a whole layer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/decoder_emit_int.h"
#include "op/rows.h"

/* ---- the order in which matrices are needed ---- */

enum pass {
    PASS_FORWARD,
    PASS_AGAIN, /* forward once more in backward, for the sake of a layer above or its own */
    PASS_BACKWARD
};

struct position {
    int64_t layer;
    enum ebb_weights which;
    enum pass pass;
    int64_t target; /* the layer whose backward pass wants it */
};

static bool is_saved(const struct ebb_emitter *e, int64_t layer, enum ebb_decoder_slot slot)
{
    const struct ebb_saved *saved = &e->at[layer].slot[slot];
    return saved->device.tensor >= 0 || saved->host.tensor >= 0;
}

/* What is needed first of a layer whose input is there and whose attention output is wanted. */
static enum ebb_weights first_of(const struct ebb_emitter *e, int64_t layer)
{
    return is_saved(e, layer, EBB_DECODER_O) || is_saved(e, layer, EBB_DECODER_QKV)
               ? EBB_WEIGHTS_MLP
               : EBB_WEIGHTS_ATTENTION;
}

/* A layer's own backward pass begins with its MLP. */
static void enter_backward(struct position *at)
{
    if (at->layer == at->target && at->which == EBB_WEIGHTS_MLP) at->pass = PASS_BACKWARD;
}

/* Where the backward pass of a layer begins: at the layer that has to be passed forward again for
 * the sake of its input, if any. */
static bool begin_backward(const struct ebb_emitter *e, int64_t layer, struct position *at)
{
    int64_t base = layer;
    if (layer < 0) return false;
    while (base > 0 && !is_saved(e, base, EBB_DECODER_X)) base--;
    at->layer = base;
    at->which = first_of(e, base);
    at->pass = PASS_AGAIN;
    at->target = layer;
    enter_backward(at);
    return true;
}

static bool next_forward(const struct ebb_emitter *e, struct position *at)
{
    if (at->which == EBB_WEIGHTS_HEAD) return e->train && begin_backward(e, e->c->layers - 1, at);
    if (at->which == EBB_WEIGHTS_ATTENTION) {
        at->which = EBB_WEIGHTS_MLP;
    } else {
        at->layer++;
        at->which = at->layer < e->c->layers ? EBB_WEIGHTS_ATTENTION : EBB_WEIGHTS_HEAD;
    }
    return true;
}

/* Moves on to what is needed behind `at`; false: nothing. A layer's backward pass wants attention's
 * matrix at most twice, before and behind the MLP's; the second time it is there still. */
static bool next_position(const struct ebb_emitter *e, struct position *at)
{
    if (at->pass == PASS_FORWARD) return next_forward(e, at);
    if (at->pass == PASS_BACKWARD && at->which == EBB_WEIGHTS_ATTENTION)
        return begin_backward(e, at->layer - 1, at);
    if (at->which == EBB_WEIGHTS_ATTENTION) {
        at->which = EBB_WEIGHTS_MLP;
    } else if (at->pass == PASS_BACKWARD) {
        at->which = EBB_WEIGHTS_ATTENTION;
        return true;
    } else {
        at->layer++;
        at->which = first_of(e, at->layer);
    }
    enter_backward(at);
    return true;
}

/* ---- matrices ---- */

static int linears_of(const struct ebb_emitter *e, int64_t layer, enum ebb_weights which,
                      const struct ebb_decoder_linear *linears[EBB_DECODER_LINEARS])
{
    if (which == EBB_WEIGHTS_HEAD) {
        linears[0] = &e->d->head;
        return 1;
    }
    const struct ebb_decoder_layer *l = &e->d->layers[layer];
    if (which == EBB_WEIGHTS_ATTENTION) {
        linears[0] = &l->qkv;
        return 1;
    }
    linears[0] = &l->o;
    linears[1] = &l->gate_up;
    linears[2] = &l->down;
    return 3;
}

static bool is_away(const struct ebb_emitter *e, const struct ebb_decoder_linear *linear)
{
    return ebb_policies_away(e->b->policies, linear->unit);
}

/* Room for a matrix that comes in. */
static enum ebb_status make_room(struct ebb_emitter *e, const struct ebb_decoder_linear *linear)
{
    struct ebb_streamed *in = &e->in[linear->index];
    const int64_t stride = linear->in + linear->tail, below = ebb_linear_tail(e, linear);
    /* Nothing lies behind the last row of A. */
    int64_t elements = (linear->rows + below) * stride - (below > 0 ? linear->tail : 0);
    EBB_TRY(ebb_program_tensor(e->b->program, EBB_SPACE_DEVICE,
                               elements * ebb_dtype_bytes(e->storage), &in->tensor, "%s in",
                               ebb_program_tensor_at(e->b->program, linear->w)->name));
    in->rows = 0;
    in->ready = false;
    return EBB_OK;
}

/* Starts the move of a matrix's first `rows`, as far as that was not done: whole rows, the room for
 * its tail columns among them. */
static enum ebb_status bring(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                             int64_t rows)
{
    struct ebb_streamed *in = &e->in[linear->index];
    const int64_t stride = linear->in + linear->tail;
    if (!is_away(e, linear)) return EBB_OK;
    if (in->tensor < 0) EBB_TRY(make_room(e, linear));
    const int64_t from = in->rows;
    if (rows <= from) return EBB_OK;
    in->rows = rows;
    return ebb_build_copy(e->b, EBB_ENTRY_IN,
                          ebb_tensor_view(in->tensor, e->storage, from, rows - from, 0, stride,
                                          stride),
                          ebb_tensor_view(linear->w, e->storage, from, rows - from, 0, stride,
                                          stride));
}

static enum ebb_status copy(struct ebb_emitter *e, struct ebb_view from, struct ebb_view to)
{
    struct ebb_copy_rows args = {.x = from, .y = to};
    return ebb_build_op(e->b, EBB_OP_copy_rows, &args);
}

/* Lays the adapters around a matrix that came in. */
static enum ebb_status fill_tails(struct ebb_emitter *e, const struct ebb_decoder_linear *linear)
{
    struct ebb_streamed *in = &e->in[linear->index];
    const int64_t stride = linear->in + linear->tail, tail = linear->tail;
    if (in->tensor < 0 || in->ready) return EBB_OK;
    in->ready = true;
    if (ebb_linear_tail(e, linear) == 0) return EBB_OK;
    EBB_TRY(
        copy(e, ebb_tensor_view(linear->b, e->storage, 0, linear->rows, 0, tail, tail),
             ebb_tensor_view(in->tensor, e->storage, 0, linear->rows, linear->in, tail, stride)));
    return copy(e, ebb_tensor_view(linear->a, e->storage, 0, tail, 0, linear->in, linear->in),
                ebb_tensor_view(in->tensor, e->storage, linear->rows, tail, 0, linear->in, stride));
}

/* `share` of as many parts as there are micro-batches. */
static enum ebb_status bring_all(struct ebb_emitter *e, const struct position *at, int32_t share,
                                 bool *any)
{
    const struct ebb_decoder_linear *linears[EBB_DECODER_LINEARS];
    int count = linears_of(e, at->layer, at->which, linears);
    for (int i = 0; i < count; i++) {
        *any = *any || is_away(e, linears[i]);
        EBB_TRY(bring(e, linears[i], linears[i]->rows * share / e->micros));
    }
    return EBB_OK;
}

/* Where the writer is. */
static struct position position_of(struct ebb_emitter *e, int64_t layer, enum ebb_weights which)
{
    struct position at = {layer, which, e->target < 0 ? PASS_FORWARD : PASS_AGAIN, e->target};
    if (e->target < 0) return at;
    enter_backward(&at);
    if (at.pass == PASS_BACKWARD) e->mlp_of = layer;
    if (layer == e->target && layer == e->mlp_of) at.pass = PASS_BACKWARD;
    return at;
}

/* What of a position ahead is to be on its way: all that this micro-batch needs before the next
 * one's turn, and of what is for later the next share. */
static int32_t share_of(const struct ebb_emitter *e, const struct position *at, int64_t layer)
{
    bool now =
        e->target >= 0 ? at->target == e->target : at->pass == PASS_FORWARD && at->layer == layer;
    return now || e->micro + 2 > e->micros ? e->micros : e->micro + 2;
}

static enum ebb_status need(struct ebb_emitter *e, int64_t layer, enum ebb_weights which)
{
    const struct ebb_decoder_linear *linears[EBB_DECODER_LINEARS];
    bool any = false;
    struct position at = position_of(e, layer, which);
    EBB_TRY(bring_all(e, &at, e->micros, &any));
    int count = linears_of(e, layer, which, linears);
    for (int i = 0; i < count; i++) EBB_TRY(fill_tails(e, linears[i]));
    for (int ahead = 0; ahead < e->b->weights_ahead && next_position(e, &at);) {
        any = false;
        EBB_TRY(bring_all(e, &at, share_of(e, &at, layer), &any));
        ahead += any;
    }
    return EBB_OK;
}

enum ebb_status ebb_weights_need(struct ebb_emitter *e, int64_t layer, enum ebb_weights which)
{
    if (!e->streams_weights) return EBB_OK;
    int32_t micro = ebb_build_set_micro(e->b, EBB_MICRO_ALL);
    EBB_TRY(need(e, layer, which));
    ebb_build_set_micro(e->b, micro);
    return EBB_OK;
}

static bool is_last(const struct ebb_emitter *e)
{
    return e->micro + 1 == e->micros;
}

void ebb_weights_forget(struct ebb_emitter *e, int64_t layer)
{
    for (int i = 0; is_last(e) && i < EBB_DECODER_LINEARS; i++)
        e->in[layer * EBB_DECODER_LINEARS + i].tensor = -1;
}

int32_t ebb_linear_w(const struct ebb_emitter *e, const struct ebb_decoder_linear *linear)
{
    if (!is_away(e, linear)) return linear->w;
    EBB_ASSERT(e->in[linear->index].tensor >= 0);
    return e->in[linear->index].tensor;
}

/* ---- gradients ---- */

static bool is_grad_away(const struct ebb_emitter *e, int32_t param)
{
    return param >= 0 && ebb_policies_state_away(e->b->policies, &e->d->net.params[param]);
}

static struct ebb_view grad_view(const struct ebb_emitter *e, int32_t param, int32_t tensor)
{
    const struct ebb_view *w = &e->d->net.params[param].w;
    return ebb_tensor_view(tensor, EBB_F32, 0, w->rows, 0, w->cols, w->cols);
}

struct ebb_view ebb_emit_grad(const struct ebb_emitter *e, int32_t param)
{
    if (param < 0) return ebb_view_none();
    if (!is_grad_away(e, param)) return grad_view(e, param, e->d->net.params[param].grad);
    EBB_ASSERT(e->grads[param].tensor >= 0);
    return grad_view(e, param, e->grads[param].tensor);
}

static enum ebb_status move_grad(struct ebb_emitter *e, int32_t param, enum ebb_entry_kind kind)
{
    return ebb_build_copy(e->b, kind, grad_view(e, param, e->grads[param].tensor),
                          grad_view(e, param, e->d->net.params[param].grad));
}

/* What is at home is older than the step until its first run has written it. */
static enum ebb_status begin_grad(struct ebb_emitter *e, int32_t param)
{
    struct ebb_away_grad *grad = &e->grads[param];
    const struct ebb_param *p = &e->d->net.params[param];
    EBB_TRY(ebb_program_tensor(e->b->program, EBB_SPACE_DEVICE, p->w.rows * p->w.cols * 4,
                               &grad->tensor, "%.36s.grad in", p->name));
    if (!grad->written) {
        struct ebb_fill zero = {.y = grad_view(e, param, grad->tensor)};
        EBB_TRY(ebb_build_op(e->b, EBB_OP_fill, &zero));
        ebb_program_when(e->b->program, EBB_RUNS_FIRST);
    }
    EBB_TRY(move_grad(e, param, EBB_ENTRY_IN));
    if (!grad->written) ebb_program_when(e->b->program, EBB_RUNS_LATER);
    return EBB_OK;
}

enum ebb_status ebb_grad_begin(struct ebb_emitter *e, int32_t param)
{
    if (!is_grad_away(e, param) || e->grads[param].tensor >= 0) return EBB_OK;
    int32_t micro = ebb_build_set_micro(e->b, EBB_MICRO_ALL);
    EBB_TRY(begin_grad(e, param));
    ebb_build_set_micro(e->b, micro);
    return EBB_OK;
}

enum ebb_status ebb_grad_end(struct ebb_emitter *e, int32_t param)
{
    if (!is_grad_away(e, param) || e->grads[param].tensor < 0 || !is_last(e)) return EBB_OK;
    int32_t micro = ebb_build_set_micro(e->b, EBB_MICRO_ALL);
    EBB_TRY(move_grad(e, param, EBB_ENTRY_OUT));
    ebb_build_set_micro(e->b, micro);
    e->grads[param].tensor = -1;
    e->grads[param].written = true;
    return EBB_OK;
}

/* ---- opening and closing ---- */

enum ebb_status ebb_stream_open(struct ebb_emitter *e)
{
    const struct ebb_net *net = &e->d->net, *owner = e->d->owner;
    size_t linears = (size_t)(e->c->layers * EBB_DECODER_LINEARS + 1);
    e->in = (struct ebb_streamed *)ebb_mem_alloc(e->b->ctx, linears * sizeof *e->in);
    e->grads = (struct ebb_away_grad *)ebb_mem_alloc(e->b->ctx, (size_t)(net->param_count + 1) *
                                                                    sizeof *e->grads);
    if (!e->in || !e->grads) return EBB_NO_MEMORY;
    e->target = e->mlp_of = -1;
    for (size_t i = 0; i < linears; i++) e->in[i].tensor = -1;
    for (int32_t i = 0; i < net->param_count; i++) e->grads[i].tensor = -1;
    for (int32_t i = 0; i < owner->unit_count; i++)
        if (owner->units[i] == EBB_UNIT_PARAMS && ebb_policies_away(e->b->policies, i))
            e->streams_weights = true;
    return EBB_OK;
}

void ebb_stream_close(struct ebb_ctx *ctx, struct ebb_emitter *e)
{
    ebb_mem_free(ctx, e->in);
    ebb_mem_free(ctx, e->grads);
}
