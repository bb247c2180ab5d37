/* Ops on operands of more than 2^32 elements: the rows that lie there get the bits that they get in
 * a small matrix, and sums find them. Products and attention: op_large_products.c.
 *
 * On a GPU the whole takes some seconds and up to 80 GiB. On the CPU the same cases run small.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_large.h"

#include "op/cross_entropy.h"
#include "op/dropout.h"
#include "op/embed.h"
#include "op/optimizer.h"
#include "op/rmsnorm.h"
#include "op/rotary.h"
#include "op/rows.h"
#include "op/swiglu.h"

enum { COLS = 512 };

/* ---- rows.h ---- */

static void fill_reaches_every_row(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 4);
    struct ebb_fill fill = {.y = large_matrix(&l, l.dtype, COLS), .byte = 0x5a};
    struct ebb_view wanted = op_test_tensor(&l.t, l.dtype, 1, COLS, COLS);
    memset(op_test_at(&l.t, &wanted, 0, 0), 0x5a, (size_t)(COLS * ebb_dtype_bytes(l.dtype)));
    large_run(&l, EBB_OP_fill, &fill);
    for (int k = 0; k < l.picks; k++) large_row_is(&l, &fill.y, l.pick[k], &wanted, 0);
    op_test_end(&l.t);
}

static void copy_rows_copies_every_row(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 8);
    struct ebb_copy_rows copy = {.x = large_matrix(&l, l.dtype, COLS),
                                 .y = large_matrix(&l, l.dtype, COLS)};
    struct ebb_view x = large_twin(&l, &copy.x, -1, 1);
    large_run(&l, EBB_OP_copy_rows, &copy);
    large_same(&l, &copy.y, &x);
    op_test_end(&l.t);
}

static void store_rows_appends_at_the_end(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 4);
    struct ebb_store_rows store = {.x = large_random(&l, l.dtype, 5, COLS, -1, 1),
                                   .y = large_matrix(&l, l.dtype, COLS)};
    l.t.step.cached = l.rows - 5;
    large_run(&l, EBB_OP_store_rows, &store);
    for (int64_t i = 0; i < 5; i++) large_row_is(&l, &store.y, l.rows - 5 + i, &store.x, i);
    op_test_end(&l.t);
}

static void gather_and_scatter_find_far_rows(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 8);
    struct ebb_view rows = op_test_tensor(&l.t, EBB_I32, 1, l.picks, l.picks);
    for (int k = 0; k < l.picks; k++) op_test_set(&l.t, &rows, 0, k, (double)l.pick[k]);
    struct ebb_gather_rows gather = {.x = large_matrix(&l, l.dtype, COLS), .rows = rows};
    struct ebb_view x = large_twin(&l, &gather.x, -1, 1);
    gather.y = large_random(&l, l.dtype, l.picks, COLS, 3, 4);
    large_run(&l, EBB_OP_gather_rows, &gather);
    for (int k = 0; k < l.picks; k++) large_row_is(&l, &gather.y, k, &x, k);
    struct ebb_scatter_rows scatter = {.x = gather.y,
                                       .rows = rows,
                                       .y = large_matrix(&l, l.dtype, COLS)};
    large_run(&l, EBB_OP_scatter_rows, &scatter);
    large_same(&l, &scatter.y, &x);
    op_test_end(&l.t);
}

static void column_sum_counts_every_row(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 5);
    struct ebb_column_sum sum = {.x = large_matrix(&l, l.dtype, COLS),
                                 .y = large_random(&l, EBB_F32, 1, COLS, -1, 1)};
    struct ebb_view x = large_twin(&l, &sum.x, -1, 1);
    double *wanted = op_test_doubles(&l.t, &sum.y);
    for (int k = 0; k < l.picks; k++)
        for (int64_t j = 0; j < COLS; j++) wanted[j] += op_test_get(&l.t, &x, k, j);
    sum.scratch = large_scratch(&l, ebb_column_sum_scratch(l.rows, COLS, &l.t.target));
    large_run(&l, EBB_OP_column_sum, &sum);
    op_test_all_close(&l.t, &sum.y, wanted, 1e-6, 1e-5);
    free(wanted);
    op_test_end(&l.t);
}

/* ---- rmsnorm.h ---- */

static void rmsnorm_forward_norms_far_rows_alike(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 8);
    struct ebb_rmsnorm_forward norm = {.x = large_matrix(&l, l.dtype, COLS),
                                       .w = large_random(&l, l.dtype, 1, COLS, 0.5, 1.5),
                                       .y = large_matrix(&l, l.dtype, COLS),
                                       .eps = 1e-6f};
    struct ebb_rmsnorm_forward small = norm;
    small.x = large_twin(&l, &norm.x, -1, 1);
    small.y = large_random(&l, l.dtype, l.picks, COLS, 3, 4);
    large_run(&l, EBB_OP_rmsnorm_forward, &norm);
    large_run(&l, EBB_OP_rmsnorm_forward, &small);
    large_same(&l, &norm.y, &small.y);
    op_test_end(&l.t);
}

/* Adds the weight's gradient of row k. */
static void add_norm_gradient(struct large *l, const struct ebb_rmsnorm_backward *small, int k,
                              double *dw)
{
    double squares = 0;
    for (int64_t j = 0; j < COLS; j++) {
        double x = op_test_get(&l->t, &small->x, k, j);
        squares += x * x;
    }
    double r = 1 / sqrt(squares / COLS + (double)small->eps);
    for (int64_t j = 0; j < COLS; j++)
        dw[j] += op_test_get(&l->t, &small->dy, k, j) * op_test_get(&l->t, &small->x, k, j) * r;
}

static void rmsnorm_backward_takes_far_rows_alike(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 13);
    struct ebb_rmsnorm_backward norm = {.x = large_matrix(&l, l.dtype, COLS),
                                        .w = large_random(&l, l.dtype, 1, COLS, 0.5, 1.5),
                                        .dy = large_matrix(&l, l.dtype, COLS),
                                        .dx = large_matrix(&l, l.dtype, COLS),
                                        .dw = large_random(&l, EBB_F32, 1, COLS, -1, 1),
                                        .eps = 1e-6f};
    struct ebb_rmsnorm_backward small = norm;
    small.x = large_twin(&l, &norm.x, -1, 1);
    small.dy = large_twin(&l, &norm.dy, -1, 1);
    small.dx = large_twin(&l, &norm.dx, -1, 1);
    /* A gradient of its own, so that it goes the same way through the kernel. */
    small.dw = large_random(&l, EBB_F32, 1, COLS, 0, 0);
    small.scratch = large_scratch(&l, ebb_rmsnorm_backward_scratch(l.picks, COLS, &l.t.target));
    double *dw = op_test_doubles(&l.t, &norm.dw);
    for (int k = 0; k < l.picks; k++) add_norm_gradient(&l, &small, k, dw);
    norm.scratch = large_scratch(&l, ebb_rmsnorm_backward_scratch(l.rows, COLS, &l.t.target));
    large_run(&l, EBB_OP_rmsnorm_backward, &norm);
    large_run(&l, EBB_OP_rmsnorm_backward, &small);
    large_same(&l, &norm.dx, &small.dx);
    op_test_all_close(&l.t, &norm.dw, dw, 1e-5, 1e-5);
    free(dw);
    op_test_end(&l.t);
}

/* ---- rotary.h ---- */

enum { HEADS = 6, KV_HEADS = 2, HEAD = 64, POSITIONS = 8 };

/* A position for each row; those of the picked rows also in the vector that is returned. */
static struct ebb_view fill_positions(struct large *l, const struct ebb_view *large)
{
    struct ebb_view small = op_test_tensor(&l->t, EBB_I32, 1, l->picks, l->picks);
    for (int k = 0; k < l->picks; k++) {
        int32_t position = 1 + k % (POSITIONS - 1);
        op_test_set(&l->t, &small, 0, k, position);
        large_set_index(l, large, l->pick[k], position);
    }
    return small;
}

static void rotary_forward_turns_far_rows_alike(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 8);
    struct ebb_rotary_forward turn = {.x = large_matrix(&l, l.dtype, COLS),
                                      .positions = large_tensor(&l, EBB_I32, 1, l.rows, l.rows),
                                      .table = large_random(&l, EBB_F32, POSITIONS, HEAD, -1, 1),
                                      .q_norm = large_random(&l, l.dtype, 1, HEAD, 0.5, 1.5),
                                      .k_norm = large_random(&l, l.dtype, 1, HEAD, 0.5, 1.5),
                                      .y = large_matrix(&l, l.dtype, COLS),
                                      .heads = HEADS,
                                      .kv_heads = KV_HEADS,
                                      .head_dim = HEAD,
                                      .eps = 1e-6f};
    struct ebb_rotary_forward small = turn;
    small.positions = fill_positions(&l, &turn.positions);
    small.x = large_twin(&l, &turn.x, -1, 1);
    small.y = large_random(&l, l.dtype, l.picks, COLS, 3, 4);
    large_run(&l, EBB_OP_rotary_forward, &turn);
    large_run(&l, EBB_OP_rotary_forward, &small);
    large_same(&l, &turn.y, &small.y);
    op_test_end(&l.t);
}

static void rotary_backward_turns_far_rows_alike(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 9);
    struct ebb_rotary_backward turn = {.x = large_matrix(&l, l.dtype, COLS),
                                       .positions = large_tensor(&l, EBB_I32, 1, l.rows, l.rows),
                                       .table = large_random(&l, EBB_F32, POSITIONS, HEAD, -1, 1),
                                       .q_norm = large_random(&l, l.dtype, 1, HEAD, 0.5, 1.5),
                                       .k_norm = large_random(&l, l.dtype, 1, HEAD, 0.5, 1.5),
                                       .dy = large_matrix(&l, l.dtype, COLS),
                                       .dq_norm = large_random(&l, EBB_F32, 1, HEAD, 0, 0),
                                       .dk_norm = large_random(&l, EBB_F32, 1, HEAD, 0, 0),
                                       .heads = HEADS,
                                       .kv_heads = KV_HEADS,
                                       .head_dim = HEAD,
                                       .eps = 1e-6f};
    struct ebb_rotary_backward small = turn;
    small.positions = fill_positions(&l, &turn.positions);
    small.x = large_twin(&l, &turn.x, -1, 1);
    small.dy = large_twin(&l, &turn.dy, -1, 1);
    small.dq_norm = large_random(&l, EBB_F32, 1, HEAD, 0, 0);
    small.dk_norm = large_random(&l, EBB_F32, 1, HEAD, 0, 0);
    turn.scratch = large_scratch(&l, ebb_rotary_backward_scratch(l.rows, HEAD, true, &l.t.target));
    small.scratch =
        large_scratch(&l, ebb_rotary_backward_scratch(l.picks, HEAD, true, &l.t.target));
    large_run(&l, EBB_OP_rotary_backward, &turn);
    large_run(&l, EBB_OP_rotary_backward, &small);
    large_same(&l, &turn.dy, &small.dy);
    for (int64_t j = 0; j < HEAD; j++) {
        double q = op_test_get(&l.t, &small.dq_norm, 0, j);
        double k = op_test_get(&l.t, &small.dk_norm, 0, j);
        assert_true(q != 0 && k != 0);
        op_test_close(&l.t, &turn.dq_norm, 0, j, q, 1e-5, 1e-4);
        op_test_close(&l.t, &turn.dk_norm, 0, j, k, 1e-5, 1e-4);
    }
    op_test_end(&l.t);
}

/* ---- swiglu.h ---- */

static void swiglu_takes_far_rows_alike(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 16);
    struct ebb_swiglu_forward forward = {.x = large_matrix(&l, l.dtype, COLS),
                                         .y = large_matrix(&l, l.dtype, COLS / 2)};
    struct ebb_swiglu_backward backward = {.x = forward.x,
                                           .dy = large_matrix(&l, l.dtype, COLS / 2),
                                           .dx = large_matrix(&l, l.dtype, COLS)};
    struct ebb_swiglu_forward small = {.x = large_twin(&l, &forward.x, -3, 3),
                                       .y = large_random(&l, l.dtype, l.picks, COLS / 2, 3, 4)};
    struct ebb_swiglu_backward small_backward = {.x = small.x,
                                                 .dy = large_twin(&l, &backward.dy, -1, 1),
                                                 .dx = large_random(&l, l.dtype, l.picks, COLS, 3,
                                                                    4)};
    large_run(&l, EBB_OP_swiglu_forward, &forward);
    large_run(&l, EBB_OP_swiglu_forward, &small);
    large_same(&l, &forward.y, &small.y);
    large_run(&l, EBB_OP_swiglu_backward, &backward);
    large_run(&l, EBB_OP_swiglu_backward, &small_backward);
    large_same(&l, &backward.dx, &small_backward.dx);
    op_test_end(&l.t);
}

/* ---- dropout.h ---- */

static void dropout_masks_far_rows_alike(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 8);
    struct ebb_dropout drop = {.x = large_matrix(&l, l.dtype, COLS),
                               .y = large_matrix(&l, l.dtype, COLS),
                               .instance = 3,
                               .p = 0.25f,
                               .accumulate = 1};
    struct ebb_view x = large_twin(&l, &drop.x, -1, 1), y = large_twin(&l, &drop.y, -1, 1);
    large_run(&l, EBB_OP_dropout, &drop);
    for (int k = 0; k < l.picks; k++) {
        struct ebb_dropout small = drop;
        small.x = large_line(&l, &x, k);
        small.y = large_line(&l, &y, k);
        large_run(&l, EBB_OP_dropout, &small);
    }
    large_same(&l, &drop.y, &y);
    op_test_end(&l.t);
}

/* ---- embed.h ---- */

/* The picked rows take each other's. */
static int other(const struct large *l, int k)
{
    return l->picks - 1 - k;
}

static void embed_forward_finds_far_rows(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 8);
    struct ebb_embed_forward embed = {.ids = large_tensor(&l, EBB_I32, 1, l.rows, l.rows),
                                      .table = large_matrix(&l, l.dtype, COLS),
                                      .y = large_matrix(&l, l.dtype, COLS)};
    struct ebb_view table = large_twin(&l, &embed.table, -1, 1);
    for (int k = 0; k < l.picks; k++)
        large_set_index(&l, &embed.ids, l.pick[k], (int32_t)l.pick[other(&l, k)]);
    large_run(&l, EBB_OP_embed_forward, &embed);
    for (int k = 0; k < l.picks; k++) large_row_is(&l, &embed.y, l.pick[k], &table, other(&l, k));
    op_test_end(&l.t);
}

/* Every token has an id of its own. */
static struct ebb_view all_ids(struct large *l)
{
    struct ebb_view ids = large_tensor(l, EBB_I32, 1, l->rows, l->rows);
    int32_t *id = malloc((size_t)l->rows * sizeof *id);
    assert_non_null(id);
    for (int64_t i = 0; i < l->rows; i++) id[i] = (int32_t)i;
    for (int k = 0; k < l->picks; k++) id[l->pick[k]] = (int32_t)l->pick[other(l, k)];
    large_copy(l, &ids, op_test_at(&l->t, &ids, 0, 0), id, l->rows * (int64_t)sizeof *id);
    free(id);
    return ids;
}

static void embed_backward_adds_to_far_rows(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 8);
    struct ebb_embed_backward embed = {.ids = all_ids(&l),
                                       .dx = large_matrix(&l, l.dtype, COLS),
                                       .dtable = large_matrix(&l, EBB_F32, COLS)};
    struct ebb_view dx = large_twin(&l, &embed.dx, -1, 1);
    struct ebb_view wanted = large_twin(&l, &embed.dtable, -1, 1);
    embed.scratch = large_scratch(&l, ebb_embed_backward_scratch(l.rows, &l.t.target));
    for (int k = 0; k < l.picks; k++) {
        for (int64_t j = 0; j < COLS; j++) {
            float sum = (float)op_test_get(&l.t, &wanted, k, j);
            sum += (float)op_test_get(&l.t, &dx, other(&l, k), j);
            op_test_set(&l.t, &wanted, k, j, (double)sum);
        }
    }
    large_run(&l, EBB_OP_embed_backward, &embed);
    large_same(&l, &embed.dtable, &wanted);
    op_test_end(&l.t);
}

/* ---- cross_entropy.h ---- */

static struct ebb_view bytes_of(struct large *l, const void *from, int64_t bytes)
{
    struct ebb_view view = op_test_tensor(&l->t, EBB_U8, 1, bytes, bytes);
    memcpy(op_test_at(&l->t, &view, 0, 0), from, (size_t)bytes);
    return view;
}

static struct ebb_sums sums_of(struct large *l, const struct ebb_view *view)
{
    struct ebb_sums sums;
    memcpy(&sums, op_test_at(&l->t, view, 0, 0), sizeof sums);
    return sums;
}

/* Row i is about token 0, whose target is 0, but for the picked ones. */
static void fill_labels(struct large *l, struct ebb_cross_entropy *loss,
                        struct ebb_cross_entropy *small)
{
    loss->targets = op_test_tensor(&l->t, EBB_I32, 1, l->picks + 1, l->picks + 1);
    loss->label_rows = large_tensor(l, EBB_I32, 1, l->rows, l->rows);
    small->targets = loss->targets;
    small->label_rows = op_test_tensor(&l->t, EBB_I32, 1, l->picks, l->picks);
    op_test_set(&l->t, &loss->targets, 0, 0, 0);
    for (int k = 0; k < l->picks; k++) {
        op_test_set(&l->t, &loss->targets, 0, k + 1, (double)(COLS - 1 - 3 * k));
        op_test_set(&l->t, &small->label_rows, 0, k, k + 1);
        large_set_index(l, &loss->label_rows, l->pick[k], k + 1);
    }
}

static void cross_entropy_takes_far_rows_alike(void **state)
{
    struct large l;
    const struct ebb_sums zero = {0};
    large_start(&l, *state, COLS, 8);
    struct ebb_cross_entropy loss = {.logits = large_matrix(&l, EBB_F32, COLS),
                                     .dlogits = large_matrix(&l, l.dtype, COLS),
                                     .sums = bytes_of(&l, &zero, sizeof zero)};
    struct ebb_cross_entropy small = {.logits = large_twin(&l, &loss.logits, -2, 2),
                                      .dlogits = large_random(&l, l.dtype, l.picks, COLS, 3, 4),
                                      .sums = bytes_of(&l, &zero, sizeof zero)};
    fill_labels(&l, &loss, &small);
    l.t.step.tokens = l.picks + 1;
    loss.scratch = large_scratch(&l, ebb_cross_entropy_scratch(l.rows, &l.t.target));
    small.scratch = large_scratch(&l, ebb_cross_entropy_scratch(l.picks, &l.t.target));
    large_run(&l, EBB_OP_cross_entropy, &loss);
    large_run(&l, EBB_OP_cross_entropy, &small);
    large_same(&l, &loss.dlogits, &small.dlogits);
    struct ebb_sums all = sums_of(&l, &loss.sums), few = sums_of(&l, &small.sums);
    const int64_t rest = l.rows - l.picks; /* rows of zeros: the first of equals is their target */
    large_is_close(all.loss, few.loss + (double)rest * log(COLS), 1e-9, 0, "loss");
    assert_int_equal(all.labels, l.rows);
    assert_int_equal(all.correct, few.correct + rest);
    op_test_end(&l.t);
}

/* ---- optimizer.h ---- */

static void norm_squared_counts_every_row(void **state)
{
    struct large l;
    const struct ebb_sums zero = {0};
    large_start(&l, *state, COLS, 4);
    struct ebb_norm_squared norm = {.grad = large_matrix(&l, EBB_F32, COLS),
                                    .sums = bytes_of(&l, &zero, sizeof zero),
                                    .scratch =
                                        large_scratch(&l, ebb_norm_squared_scratch(&l.t.target))};
    struct ebb_view grad = large_twin(&l, &norm.grad, -1, 1);
    double wanted = 0;
    for (int k = 0; k < l.picks; k++) {
        for (int64_t j = 0; j < COLS; j++) {
            double g = op_test_get(&l.t, &grad, k, j);
            wanted += g * g;
        }
    }
    large_run(&l, EBB_OP_norm_squared, &norm);
    large_is_close(sums_of(&l, &norm.sums).norm_squared, wanted, 1e-12, 0, "norm");
    op_test_end(&l.t);
}

static void fill_step(struct large *l, struct ebb_view *step, struct ebb_view *sums)
{
    const struct ebb_sums ready = {.factor = 0.5, .finite = 1};
    l->t.step.step = 3;
    l->t.step.learning_rate = 0.01;
    l->t.step.bias1 = 0.271;
    l->t.step.bias2 = 0.003;
    *step = bytes_of(l, &l->t.step, sizeof l->t.step);
    *sums = bytes_of(l, &ready, sizeof ready);
}

/* Where the fp32 value of a bf16 weight lives. */
enum home { IN_LO, IN_MASTER, NOWHERE };

static void sweep_adamw(const struct large_shape *shape, enum home home)
{
    struct large l;
    large_start(&l, shape, COLS, 18);
    const bool bf16 = l.dtype == EBB_BF16;
    struct ebb_adamw adamw = {.w = large_matrix(&l, l.dtype, COLS),
                              .lo = ebb_view_none(),
                              .master = ebb_view_none(),
                              .grad = large_matrix(&l, EBB_F32, COLS),
                              .m = large_matrix(&l, EBB_F32, COLS),
                              .v = large_matrix(&l, EBB_F32, COLS),
                              .instance = 5,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = 0.1};
    if (bf16 && home == IN_LO) adamw.lo = large_matrix(&l, EBB_U16, COLS);
    if (bf16 && home == IN_MASTER) adamw.master = large_matrix(&l, EBB_F32, COLS);
    fill_step(&l, &adamw.step, &adamw.sums);
    struct ebb_adamw twin = adamw;
    struct ebb_view *large[] = {&adamw.w,    &adamw.lo, &adamw.master,
                                &adamw.grad, &adamw.m,  &adamw.v};
    struct ebb_view *small[] = {&twin.w, &twin.lo, &twin.master, &twin.grad, &twin.m, &twin.v};
    for (int i = 0; i < 6; i++)
        if (large[i]->tensor >= 0)
            *small[i] = large_twin(&l, large[i], i == 1 || i == 5 ? 0 : -1, i == 1 ? 60000 : 1);
    large_run(&l, EBB_OP_adamw, &adamw);
    for (int k = 0; k < l.picks; k++) {
        struct ebb_adamw line = twin;
        line.w = large_line(&l, &twin.w, k);
        line.lo = large_line(&l, &twin.lo, k);
        line.master = large_line(&l, &twin.master, k);
        line.grad = large_line(&l, &twin.grad, k);
        line.m = large_line(&l, &twin.m, k);
        line.v = large_line(&l, &twin.v, k);
        large_run(&l, EBB_OP_adamw, &line);
    }
    for (int i = 0; i < 6; i++)
        if (large[i]->tensor >= 0) large_same(&l, large[i], small[i]);
    op_test_end(&l.t);
}

static void adamw_sweeps_far_rows_alike(void **state)
{
    sweep_adamw(*state, IN_LO);
}

static void adamw_sweeps_masters_of_far_rows_alike(void **state)
{
    sweep_adamw(*state, IN_MASTER);
}

static void adamw_rounds_far_rows_by_the_same_chance(void **state)
{
    sweep_adamw(*state, NOWHERE);
}

static void sgd_sweeps_far_rows_alike(void **state)
{
    struct large l;
    large_start(&l, *state, COLS, 12);
    struct ebb_sgd sgd = {.w = large_matrix(&l, l.dtype, COLS),
                          .lo = ebb_view_none(),
                          .master = ebb_view_none(),
                          .grad = large_matrix(&l, EBB_F32, COLS),
                          .m = large_matrix(&l, EBB_F32, COLS),
                          .instance = 5,
                          .momentum = 0.9,
                          .weight_decay = 0.1};
    fill_step(&l, &sgd.step, &sgd.sums);
    struct ebb_sgd twin = sgd;
    twin.w = large_twin(&l, &sgd.w, -1, 1);
    twin.grad = large_twin(&l, &sgd.grad, -1, 1);
    twin.m = large_twin(&l, &sgd.m, -1, 1);
    large_run(&l, EBB_OP_sgd, &sgd);
    for (int k = 0; k < l.picks; k++) {
        struct ebb_sgd line = twin;
        line.w = large_line(&l, &twin.w, k);
        line.grad = large_line(&l, &twin.grad, k);
        line.m = large_line(&l, &twin.m, k);
        large_run(&l, EBB_OP_sgd, &line);
    }
    large_same(&l, &sgd.w, &twin.w);
    large_same(&l, &sgd.grad, &twin.grad);
    large_same(&l, &sgd.m, &twin.m);
    op_test_end(&l.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LARGE_CASES(fill_reaches_every_row),
        LARGE_CASES(copy_rows_copies_every_row),
        LARGE_CASES(store_rows_appends_at_the_end),
        LARGE_CASES(gather_and_scatter_find_far_rows),
        LARGE_CASES(column_sum_counts_every_row),
        LARGE_CASES(rmsnorm_forward_norms_far_rows_alike),
        LARGE_CASES(rmsnorm_backward_takes_far_rows_alike),
        LARGE_CASES(rotary_forward_turns_far_rows_alike),
        LARGE_CASES(rotary_backward_turns_far_rows_alike),
        LARGE_CASES(swiglu_takes_far_rows_alike),
        LARGE_CASES(dropout_masks_far_rows_alike),
        LARGE_CASES(embed_forward_finds_far_rows),
        LARGE_CASES(embed_backward_adds_to_far_rows),
        LARGE_CASES(cross_entropy_takes_far_rows_alike),
        LARGE_CASES(norm_squared_counts_every_row),
        LARGE_CASES(adamw_sweeps_far_rows_alike),
        LARGE_CASES(adamw_sweeps_masters_of_far_rows_alike),
        LARGE_CASES(adamw_rounds_far_rows_by_the_same_chance),
        LARGE_CASES(sgd_sweeps_far_rows_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
