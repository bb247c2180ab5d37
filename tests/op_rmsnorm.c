/* RMS norm against its formula in double precision.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "op/rmsnorm.h"
#include "op/scratch_int.h"

static const struct {
    enum ebb_dtype dtype;
    int64_t rows, cols;
} sizes[] = {
    {EBB_F32, 1, 1},  {EBB_F32, 7, 33},    {EBB_F32, 130, 200}, {EBB_F32, 3, 2100},
    {EBB_BF16, 1, 5}, {EBB_BF16, 70, 257}, {EBB_BF16, 2, 1030},
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };
static const double eps = 1e-5;

static double oracle_scale(const double *x, int64_t cols)
{
    double squares = 0;
    for (int64_t j = 0; j < cols; j++) squares += x[j] * x[j];
    return 1 / sqrt(squares / (double)cols + (double)(float)eps);
}

/* sum of dy y for one row: what backward differentiates. */
static double oracle_loss(const double *x, const double *w, const double *dy, int64_t cols)
{
    double r = oracle_scale(x, cols), loss = 0;
    for (int64_t j = 0; j < cols; j++) loss += dy[j] * (x[j] * r * w[j]);
    return loss;
}

static void forward_agrees_with_the_formula(void **state)
{
    (void)state;
    for (int k = 0; k < SIZES; k++) {
        struct op_test t;
        op_test_start(&t);
        enum ebb_dtype dtype = sizes[k].dtype;
        int64_t rows = sizes[k].rows, cols = sizes[k].cols;
        struct ebb_rmsnorm_forward args = {.x = op_test_tensor(&t, dtype, rows, cols, cols + 3),
                                           .w = op_test_tensor(&t, dtype, 1, cols, cols),
                                           .y = op_test_tensor(&t, dtype, rows, cols, cols + 16),
                                           .eps = (float)eps};
        op_test_fill(&t, &args.x, -2, 3);
        op_test_fill(&t, &args.w, 0.5, 1.5);
        assert_int_equal(op_test_run(&t, EBB_OP_rmsnorm_forward, &args), EBB_OK);
        double *x = op_test_doubles(&t, &args.x), *w = op_test_doubles(&t, &args.w);
        int64_t other = 0;
        for (int64_t i = 0; i < rows; i++) {
            double r = oracle_scale(x + i * cols, cols);
            for (int64_t j = 0; j < cols; j++) {
                double exact = x[i * cols + j] * r * w[j];
                /* bf16 is rounded once more before w */
                op_test_close(&t, &args.y, i, j, exact, dtype == EBB_BF16 ? 0x1.02p-8 : 4e-7, 0);
                if (dtype == EBB_BF16) {
                    float half = ebb_from_bf16(ebb_to_bf16((float)(x[i * cols + j] * r)));
                    double rounded = (double)ebb_from_bf16(ebb_to_bf16(half * (float)w[j]));
                    if (op_test_get(&t, &args.y, i, j) != rounded) other++;
                }
            }
        }
        assert_true(other <= rows * cols / 200); /* only where r's last bit decides */
        void *two = op_test_copy(&t, &args.y);
        t.env.threads = 1;
        assert_int_equal(op_test_run(&t, EBB_OP_rmsnorm_forward, &args), EBB_OK);
        assert_true(op_test_same(&t, &args.y, two));
        free(x), free(w), free(two);
        op_test_end(&t);
    }
}

static void forward_may_write_over_its_input(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_rmsnorm_forward args = {.x = op_test_tensor(&t, EBB_BF16, 5, 1100, 1100),
                                       .w = op_test_tensor(&t, EBB_BF16, 1, 1100, 1100),
                                       .y = op_test_tensor(&t, EBB_BF16, 5, 1100, 1100),
                                       .eps = (float)eps};
    op_test_fill(&t, &args.x, -2, 3);
    op_test_fill(&t, &args.w, 0.5, 1.5);
    assert_int_equal(op_test_run(&t, EBB_OP_rmsnorm_forward, &args), EBB_OK);
    void *apart = op_test_copy(&t, &args.y);
    args.y = args.x;
    assert_int_equal(op_test_run(&t, EBB_OP_rmsnorm_forward, &args), EBB_OK);
    assert_true(op_test_same(&t, &args.y, apart));
    free(apart);
    op_test_end(&t);
}

struct backward {
    struct op_test t;
    struct ebb_rmsnorm_backward args;
    double *x, *w, *dy, *dx, *dw; /* before the op */
};

static void prepare(struct backward *b, enum ebb_dtype dtype, int64_t rows, int64_t cols,
                    int overwrite)
{
    struct op_test *t = &b->t;
    op_test_start(t);
    b->args.x = op_test_tensor(t, dtype, rows, cols, cols + 1);
    b->args.w = op_test_tensor(t, dtype, 1, cols, cols);
    b->args.dy = op_test_tensor(t, dtype, rows, cols, cols + 5);
    b->args.dx = op_test_tensor(t, dtype, rows, cols, cols + 2);
    b->args.dw = op_test_tensor(t, EBB_F32, 1, cols, cols);
    b->args.scratch = op_test_scratch(t, ebb_rmsnorm_backward_scratch(rows, cols, &t->target));
    b->args.eps = (float)eps;
    b->args.overwrite = overwrite;
    op_test_fill(t, &b->args.x, -2, 3);
    op_test_fill(t, &b->args.w, 0.5, 1.5);
    op_test_fill(t, &b->args.dy, -1, 1);
    op_test_fill(t, &b->args.dx, -1, 1);
    op_test_fill(t, &b->args.dw, -1, 1);
    b->x = op_test_doubles(t, &b->args.x);
    b->w = op_test_doubles(t, &b->args.w);
    b->dy = op_test_doubles(t, &b->args.dy);
    b->dx = op_test_doubles(t, &b->args.dx);
    b->dw = op_test_doubles(t, &b->args.dw);
}

static void finish(struct backward *b)
{
    free(b->x), free(b->w), free(b->dy), free(b->dx), free(b->dw);
    op_test_end(&b->t);
}

static void backward_agrees_with_finite_differences(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * SIZES; k++) {
        struct backward b;
        int64_t rows = sizes[k / 2].rows, cols = sizes[k / 2].cols;
        prepare(&b, sizes[k / 2].dtype, rows, cols, k % 2);
        assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
        const double h = 1e-5;
        for (int64_t i = 0; i < rows; i++) {
            double *x = b.x + i * cols;
            const double *dy = b.dy + i * cols;
            for (int64_t j = 0; j < cols; j++) {
                double at = x[j];
                x[j] = at + h;
                double up = oracle_loss(x, b.w, dy, cols);
                x[j] = at - h;
                double down = oracle_loss(x, b.w, dy, cols);
                x[j] = at;
                double slope = (up - down) / (2 * h);
                double exact = slope + (b.args.overwrite ? 0 : b.dx[i * cols + j]);
                op_test_close(&b.t, &b.args.dx, i, j, exact, 4e-7, cols == 1 ? 2e-6 : 5e-7);
            }
        }
        for (int64_t j = 0; j < cols; j++) { /* the loss is linear in w */
            double exact = b.dw[j], size = fabs(exact);
            for (int64_t i = 0; i < rows; i++) {
                double term =
                    b.dy[i * cols + j] * b.x[i * cols + j] * oracle_scale(b.x + i * cols, cols);
                exact += term;
                size += fabs(term);
            }
            op_test_close(&b.t, &b.args.dw, 0, j, exact, 0, 2e-7 * size * sqrt((double)rows));
        }
        finish(&b);
    }
}

static void backward_is_the_same_for_any_number_of_threads(void **state)
{
    (void)state;
    for (int k = 0; k < SIZES; k++) {
        struct backward b;
        prepare(&b, sizes[k].dtype, sizes[k].rows, sizes[k].cols, 0);
        void *dx = op_test_copy(&b.t, &b.args.dx), *dw = op_test_copy(&b.t, &b.args.dw);
        assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
        void *dx2 = op_test_copy(&b.t, &b.args.dx), *dw2 = op_test_copy(&b.t, &b.args.dw);
        op_test_restore(&b.t, &b.args.dx, dx);
        op_test_restore(&b.t, &b.args.dw, dw);
        b.t.env.threads = 1;
        assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
        assert_true(op_test_same(&b.t, &b.args.dx, dx2));
        assert_true(op_test_same(&b.t, &b.args.dw, dw2));
        free(dx), free(dw), free(dx2), free(dw2);
        finish(&b);
    }
}

static void backward_in_tiles_is_bitwise_the_whole(void **state)
{
    (void)state;
    struct backward b;
    prepare(&b, EBB_BF16, 150, 90, 0);
    void *dx = op_test_copy(&b.t, &b.args.dx), *dw = op_test_copy(&b.t, &b.args.dw);
    assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
    void *dx2 = op_test_copy(&b.t, &b.args.dx), *dw2 = op_test_copy(&b.t, &b.args.dw);
    op_test_restore(&b.t, &b.args.dx, dx);
    op_test_restore(&b.t, &b.args.dw, dw);
    /* where the GPU's parts of the rows end, tiles may */
    static const int64_t anywhere[] = {0, 17, 100, 150},
                         between_parts[] = {0, EBB_CUDA_PART_ROWS, 6 * EBB_CUDA_PART_ROWS, 150};
    const int64_t *starts = op_test_on_gpu() ? between_parts : anywhere;
    for (int k = 0; k < 3; k++) {
        struct ebb_rmsnorm_backward part = b.args;
        struct ebb_view *views[] = {&part.x, &part.dy, &part.dx};
        for (int v = 0; v < 3; v++) {
            views[v]->offset = starts[k] * views[v]->stride * 2;
            views[v]->rows = starts[k + 1] - starts[k];
        }
        assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &part), EBB_OK);
    }
    assert_true(op_test_same(&b.t, &b.args.dx, dx2));
    assert_true(op_test_same(&b.t, &b.args.dw, dw2));
    free(dx), free(dw), free(dx2), free(dw2);
    finish(&b);
}

static void backward_may_write_over_dy_and_needs_no_dw(void **state)
{
    (void)state;
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        struct backward b;
        prepare(&b, EBB_F32, 70, 1300, 1);
        assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
        double *apart = op_test_doubles(&b.t, &b.args.dx), *dw = op_test_doubles(&b.t, &b.args.dw);
        op_test_fill(&b.t, &b.args.dw, 0, 0);
        b.args.dx = b.args.dy;
        b.args.overwrite = overwrite;
        if (overwrite) b.args.dw = b.args.scratch = ebb_view_none();
        assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
        for (int64_t i = 0; i < 70 * 1300; i++) {
            double want = apart[i] + (overwrite ? 0 : b.dy[i]);
            op_test_close(&b.t, &b.args.dx, i / 1300, i % 1300, want, 0, 2e-7);
        }
        if (!overwrite) { /* dw was summed before dy was lost */
            for (int64_t j = 0; j < 1300; j++)
                op_test_close(&b.t, &b.args.dw, 0, j, dw[j] - b.dw[j], 1e-6, 1e-5);
        }
        free(apart), free(dw);
        finish(&b);
    }
}

static void only_live_rows_are_touched(void **state)
{
    (void)state;
    struct backward b;
    prepare(&b, EBB_F32, 9, 20, 0);
    struct ebb_rmsnorm_forward forward = {
        .x = b.args.x, .w = b.args.w, .y = b.args.dx, .eps = (float)eps};
    op_test_live(&forward.x, EBB_EXTENT_TOKENS, 8);
    op_test_live(&b.args.x, EBB_EXTENT_TOKENS, 8);
    b.t.step.tokens = 8;
    void *dx = op_test_copy(&b.t, &b.args.dx), *dw = op_test_copy(&b.t, &b.args.dw);
    assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_forward, &forward), EBB_OK);
    assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
    assert_true(op_test_same(&b.t, &b.args.dx, dx) && op_test_same(&b.t, &b.args.dw, dw));
    b.t.step.tokens = 12;
    assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_forward, &forward), EBB_OK);
    for (int64_t i = 0; i < 9; i++) {
        assert_int_equal(op_test_get(&b.t, &b.args.dx, i, 3) == b.dx[i * 20 + 3], i >= 4);
    }
    free(dx), free(dw);
    finish(&b);
}

static void a_row_with_nan_stays_nan_and_zeros_stay_finite(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_rmsnorm_forward args = {.x = op_test_tensor(&t, EBB_BF16, 3, 40, 40),
                                       .w = op_test_tensor(&t, EBB_BF16, 1, 40, 40),
                                       .y = op_test_tensor(&t, EBB_BF16, 3, 40, 40),
                                       .eps = (float)eps};
    op_test_fill(&t, &args.x, 0, 0);
    op_test_fill(&t, &args.w, 1, 1);
    op_test_set(&t, &args.x, 1, 7, (double)NAN);
    assert_int_equal(op_test_run(&t, EBB_OP_rmsnorm_forward, &args), EBB_OK);
    for (int64_t j = 0; j < 40; j++) {
        assert_true(op_test_get(&t, &args.y, 0, j) == 0 && op_test_get(&t, &args.y, 2, j) == 0);
        assert_true(isnan(op_test_get(&t, &args.y, 1, j)));
    }
    op_test_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_agrees_with_the_formula),
        cmocka_unit_test(forward_may_write_over_its_input),
        cmocka_unit_test(backward_agrees_with_finite_differences),
        cmocka_unit_test(backward_is_the_same_for_any_number_of_threads),
        cmocka_unit_test(backward_in_tiles_is_bitwise_the_whole),
        cmocka_unit_test(backward_may_write_over_dy_and_needs_no_dw),
        cmocka_unit_test(only_live_rows_are_touched),
        cmocka_unit_test(a_row_with_nan_stays_nan_and_zeros_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
