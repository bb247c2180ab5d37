/* Linear fields of a decoder, tile by tile, with the adapters that lie around their weights
 * (model/decoder.h has the formulas).
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/decoder_emit_int.h"
#include "op/dropout.h"
#include "op/rows.h"

static bool has_dropout(const struct ebb_emitter *e)
{
    return e->train && e->d->options.adapter && e->d->options.adapter->dropout > 0;
}

int64_t ebb_linear_tail(const struct ebb_emitter *e, const struct ebb_decoder_linear *linear)
{
    return e->base ? 0 : linear->tail;
}

bool ebb_linear_needs_input(const struct ebb_decoder_linear *linear)
{
    return linear->param >= 0 || linear->tail > 0;
}

enum ebb_status ebb_linear_input(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                 const char *name, int64_t layer, struct ebb_matrix *m)
{
    return ebb_emit_tile(e, linear->in + ebb_linear_tail(e, linear), name, layer, m);
}

enum ebb_status ebb_linear_dropout(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                   int64_t layer, struct ebb_matrix *m)
{
    m->tensor = -1;
    if (linear->tail == 0 || !has_dropout(e)) return EBB_OK;
    return ebb_emit_tile(e, linear->in, "dropout", layer, m);
}

static enum ebb_status emit_dropout(struct ebb_emitter *e, uint32_t instance, struct ebb_view x,
                                    struct ebb_view y, bool accumulate)
{
    struct ebb_dropout args = {.x = x,
                               .y = y,
                               .instance = instance,
                               .p = (float)e->d->options.adapter->dropout,
                               .accumulate = accumulate};
    return ebb_build_op(e->b, EBB_OP_dropout, &args);
}

static struct ebb_view a_view(const struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                              int64_t row0, int64_t rows)
{
    return ebb_tensor_view(ebb_linear_w(e, linear), e->storage, linear->rows + row0, rows, 0,
                           linear->in, linear->in + linear->tail);
}

enum ebb_status ebb_linear_fill_tail(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                     const struct ebb_matrix *in, int64_t t,
                                     const struct ebb_matrix *drop)
{
    if (ebb_linear_tail(e, linear) == 0) return EBB_OK;
    int64_t rank = e->d->rank_cols;
    struct ebb_matmul args = {.bias = ebb_view_none(),
                              .add = ebb_view_none(),
                              .form = EBB_MATMUL_NT,
                              .alpha = (float)e->d->scale};
    struct ebb_view x = ebb_matrix_tile(e->b, in, t, 0, linear->in);
    if (drop->tensor < 0) {
        args.a = x;
        args.b = a_view(e, linear, 0, linear->tail);
        args.y = ebb_matrix_tile(e->b, in, t, linear->in, linear->tail);
        return ebb_build_matmul(e->b, &args);
    }
    for (int i = 0; i < linear->part_count; i++) {
        const struct ebb_decoder_part *part = &linear->parts[i];
        if (part->tail0 < 0) continue;
        struct ebb_view dropped = ebb_matrix_tile(e->b, drop, t, 0, linear->in);
        EBB_TRY(emit_dropout(e, part->instance, x, dropped, false));
        args.a = dropped;
        args.b = a_view(e, linear, part->tail0, rank);
        args.y = ebb_matrix_tile(e->b, in, t, linear->in + part->tail0, rank);
        EBB_TRY(ebb_build_matmul(e->b, &args));
    }
    return EBB_OK;
}

enum ebb_status ebb_linear_forward(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                   const struct ebb_matrix *in, int64_t t, struct ebb_view add,
                                   struct ebb_view y)
{
    int64_t k = linear->in + ebb_linear_tail(e, linear);
    struct ebb_matmul args = {.a = ebb_matrix_tile(e->b, in, t, 0, k),
                              .b = ebb_tensor_view(ebb_linear_w(e, linear), e->storage, 0,
                                                   linear->rows, 0, k, linear->in + linear->tail),
                              .bias = ebb_emit_vector(e, linear->bias, linear->rows),
                              .add = add,
                              .y = y,
                              .form = EBB_MATMUL_NT};
    return ebb_build_matmul(e->b, &args);
}

enum ebb_status ebb_emit_weight_gradient(struct ebb_emitter *e, struct ebb_view dy,
                                         struct ebb_view in, struct ebb_view grad)
{
    struct ebb_matmul args = {.a = dy,
                              .b = in,
                              .bias = ebb_view_none(),
                              .add = ebb_view_none(),
                              .y = grad,
                              .form = EBB_MATMUL_TN,
                              .accumulate = 1};
    return ebb_build_matmul(e->b, &args);
}

/* y = alpha a b: a product of the gradients' side. */
static enum ebb_status product(struct ebb_emitter *e, struct ebb_view a, struct ebb_view b,
                               struct ebb_view y, double alpha)
{
    struct ebb_matmul args = {.a = a,
                              .b = b,
                              .bias = ebb_view_none(),
                              .add = ebb_view_none(),
                              .y = y,
                              .form = EBB_MATMUL_NN,
                              .alpha = (float)alpha};
    return ebb_build_matmul(e->b, &args);
}

/* Fills the tail columns of tile t of `dy` [., rows + tail] with scale dy B. One product serves all
 * parts while it is thin: what it meets of other parts' columns is zero. */
static enum ebb_status gradient_tail(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                     int64_t t, const struct ebb_matrix *dy)
{
    if (linear->tail <= EBB_THIN_COLS)
        return product(e, ebb_matrix_tile(e->b, dy, t, 0, linear->rows),
                       ebb_tensor_view(ebb_linear_w(e, linear), e->storage, 0, linear->rows,
                                       linear->in, linear->tail, linear->in + linear->tail),
                       ebb_matrix_tile(e->b, dy, t, linear->rows, linear->tail), e->d->scale);
    int64_t rank = e->d->rank_cols;
    for (int i = 0; i < linear->part_count; i++) {
        const struct ebb_decoder_part *part = &linear->parts[i];
        if (part->tail0 < 0) continue;
        EBB_TRY(product(e, ebb_matrix_tile(e->b, dy, t, part->row0, part->rows),
                        ebb_tensor_view(ebb_linear_w(e, linear), e->storage, part->row0, part->rows,
                                        linear->in + part->tail0, rank, linear->in + linear->tail),
                        ebb_matrix_tile(e->b, dy, t, linear->rows + part->tail0, rank),
                        e->d->scale));
    }
    return EBB_OK;
}

/* One adapter's gradients; `in` and `dy` have their tails. */
static enum ebb_status adapter_gradients(struct ebb_emitter *e,
                                         const struct ebb_decoder_linear *linear,
                                         const struct ebb_decoder_part *part, int64_t t,
                                         const struct ebb_matrix *in, const struct ebb_matrix *dy,
                                         const struct ebb_matrix *drop)
{
    int64_t rank = e->d->options.adapter->rank;
    struct ebb_view x = ebb_matrix_tile(e->b, in, t, 0, linear->in);
    struct ebb_view tail = ebb_matrix_tile(e->b, in, t, linear->in + part->tail0, rank);
    struct ebb_view d_tail = ebb_matrix_tile(e->b, dy, t, linear->rows + part->tail0, rank);
    EBB_TRY(ebb_emit_weight_gradient(e, ebb_matrix_tile(e->b, dy, t, part->row0, part->rows), tail,
                                     ebb_emit_grad(e, part->b_param)));
    if (drop->tensor >= 0) {
        struct ebb_view dropped = ebb_matrix_tile(e->b, drop, t, 0, linear->in);
        EBB_TRY(emit_dropout(e, part->instance, x, dropped, false));
        x = dropped;
    }
    return ebb_emit_weight_gradient(e, d_tail, x, ebb_emit_grad(e, part->a_param));
}

/* Adds an adapter's share of its input's gradient where that was dropped on the way in. */
static enum ebb_status dropped_share(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                     const struct ebb_decoder_part *part, int64_t t,
                                     const struct ebb_matrix *dy, const struct ebb_matrix *d_in,
                                     const struct ebb_matrix *drop)
{
    int64_t rank = e->d->rank_cols;
    struct ebb_view share = ebb_matrix_tile(e->b, drop, t, 0, linear->in);
    EBB_TRY(product(e, ebb_matrix_tile(e->b, dy, t, linear->rows + part->tail0, rank),
                    a_view(e, linear, part->tail0, rank), share, 1));
    return emit_dropout(e, part->instance, share, ebb_matrix_tile(e->b, d_in, t, 0, linear->in),
                        true);
}

enum ebb_status ebb_linear_backward(struct ebb_emitter *e, const struct ebb_decoder_linear *linear,
                                    int64_t t, const struct ebb_matrix *in,
                                    const struct ebb_matrix *dy, const struct ebb_matrix *d_in,
                                    const struct ebb_matrix *drop)
{
    struct ebb_view dy_view = ebb_matrix_tile(e->b, dy, t, 0, linear->rows);
    EBB_TRY(ebb_grad_begin(e, linear->param));
    if (linear->param >= 0)
        EBB_TRY(ebb_emit_weight_gradient(e, dy_view, ebb_matrix_tile(e->b, in, t, 0, linear->in),
                                         ebb_emit_grad(e, linear->param)));
    if (linear->bias_param >= 0) {
        struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
        struct ebb_column_sum sum = {.x = dy_view, .y = ebb_emit_grad(e, linear->bias_param)};
        sum.scratch =
            ebb_build_scratch(e->b, ebb_column_sum_scratch(dy_view.rows, dy_view.cols, &target));
        EBB_TRY(ebb_build_op(e->b, EBB_OP_column_sum, &sum));
    }
    if (linear->tail > 0) EBB_TRY(gradient_tail(e, linear, t, dy));
    for (int i = 0; i < linear->part_count; i++)
        if (linear->parts[i].tail0 >= 0)
            EBB_TRY(adapter_gradients(e, linear, &linear->parts[i], t, in, dy, drop));
    /* The rows below W are A, and dy's tail meets them: one product gives both gradients. */
    int64_t k = linear->rows + (drop->tensor < 0 ? linear->tail : 0);
    EBB_TRY(product(e, ebb_matrix_tile(e->b, dy, t, 0, k),
                    ebb_tensor_view(ebb_linear_w(e, linear), e->storage, 0, k, 0, linear->in,
                                    linear->in + linear->tail),
                    ebb_matrix_tile(e->b, d_in, t, 0, linear->in), 1));
    if (drop->tensor < 0) return EBB_OK;
    for (int i = 0; i < linear->part_count; i++)
        if (linear->parts[i].tail0 >= 0)
            EBB_TRY(dropped_share(e, linear, &linear->parts[i], t, dy, d_in, drop));
    return EBB_OK;
}
