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

/* Rows of these sizes are kept by a warp, by more threads, or are longer than they can keep; with
 * a stride that is no multiple of 16 bytes the GPU loads them one element at a time. */
static const int64_t widths[] = {8, 64, 896, 1024, 1032, 1100, 3584, 4096, 4104, 8200, 9001};
enum { WIDTHS = sizeof widths / sizeof widths[0], ROWS = 18 };

static void copy_view(struct op_test *t, const struct ebb_view *from, const struct ebb_view *to)
{
    for (int64_t i = 0; i < from->rows; i++) {
        for (int64_t j = 0; j < from->cols; j++)
            op_test_set(t, to, i, j, op_test_get(t, from, i, j));
    }
}

static void assert_equal_views(struct op_test *t, const struct ebb_view *a,
                               const struct ebb_view *b)
{
    for (int64_t i = 0; i < a->rows; i++) {
        for (int64_t j = 0; j < a->cols; j++)
            assert_true(op_test_get(t, a, i, j) == op_test_get(t, b, i, j));
    }
}

static struct ebb_view row_of(const struct ebb_view *all, int64_t i)
{
    struct ebb_view row = *all;
    row.offset += i * all->stride * ebb_dtype_bytes((enum ebb_dtype)all->dtype);
    row.rows = 1;
    return row;
}

static void forward_has_the_same_bits_for_any_stride_and_place(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * WIDTHS; k++) {
        struct op_test t;
        op_test_start(&t);
        enum ebb_dtype dtype = k % 2 ? EBB_BF16 : EBB_F32;
        int64_t cols = widths[k / 2], stride = (cols + 23) / 8 * 8;
        struct ebb_rmsnorm_forward args = {.x = op_test_tensor(&t, dtype, ROWS, cols, stride),
                                           .w = op_test_tensor(&t, dtype, 1, cols, cols),
                                           .y = op_test_tensor(&t, dtype, ROWS, cols, stride),
                                           .eps = (float)eps};
        struct ebb_rmsnorm_forward odd = args;
        odd.x = op_test_tensor(&t, dtype, ROWS, cols, cols + 1);
        odd.y = op_test_tensor(&t, dtype, ROWS, cols, cols + 3);
        op_test_fill(&t, &args.x, -2, 3);
        op_test_fill(&t, &args.w, 0.5, 1.5);
        copy_view(&t, &args.x, &odd.x);
        assert_int_equal(op_test_run(&t, EBB_OP_rmsnorm_forward, &args), EBB_OK);
        assert_int_equal(op_test_run(&t, EBB_OP_rmsnorm_forward, &odd), EBB_OK);
        assert_equal_views(&t, &args.y, &odd.y);
        double *x = op_test_doubles(&t, &args.x), *w = op_test_doubles(&t, &args.w);
        for (int64_t i = 0; i < ROWS; i++) {
            double r = oracle_scale(x + i * cols, cols);
            for (int64_t j = 0; j < cols; j++)
                op_test_close(&t, &args.y, i, j, x[i * cols + j] * r * w[j],
                              dtype == EBB_BF16 ? 0x1.02p-8 : 4e-7, 0);
        }
        struct ebb_rmsnorm_forward alone = args; /* and in place */
        alone.x = alone.y = row_of(&args.x, ROWS - 1);
        assert_int_equal(op_test_run(&t, EBB_OP_rmsnorm_forward, &alone), EBB_OK);
        struct ebb_view last = row_of(&args.y, ROWS - 1);
        assert_equal_views(&t, &alone.y, &last);
        free(x), free(w);
        op_test_end(&t);
    }
}

/* dx and dw of the formula in double, from what `b` was before the op. */
static void assert_backward(const struct backward *b, double dx_bound)
{
    const struct op_test *t = &b->t;
    int64_t cols = b->args.x.cols, rows = b->args.x.rows;
    double *dw = calloc((size_t)cols, sizeof *dw), *size = calloc((size_t)cols, sizeof *size);
    assert_non_null(dw), assert_non_null(size);
    for (int64_t i = 0; i < rows; i++) {
        const double *x = b->x + i * cols, *dy = b->dy + i * cols;
        double r = oracle_scale(x, cols), mean = 0;
        for (int64_t j = 0; j < cols; j++) mean += dy[j] * b->w[j] * (x[j] * r) / (double)cols;
        for (int64_t j = 0; j < cols; j++) {
            double exact = r * (dy[j] * b->w[j] - x[j] * r * mean), term = dy[j] * x[j] * r;
            if (!b->args.overwrite) exact += b->dx[i * cols + j];
            op_test_close(t, &b->args.dx, i, j, exact, 4e-7, dx_bound);
            dw[j] += term;
            size[j] += fabs(term);
        }
    }
    for (int64_t j = 0; j < cols; j++)
        op_test_close(t, &b->args.dw, 0, j, b->dw[j] + dw[j], 0, 1e-6 * (1 + size[j]));
    free(dw), free(size);
}

static void backward_has_the_same_bits_for_any_stride_and_place(void **state)
{
    (void)state;
    for (int k = 0; k < 4 * WIDTHS; k++) {
        struct backward b;
        struct op_test *t = &b.t;
        enum ebb_dtype dtype = k % 2 ? EBB_BF16 : EBB_F32;
        int64_t cols = widths[k / 4], stride = (cols + 23) / 8 * 8;
        prepare(&b, dtype, ROWS, cols, k / 2 % 2);
        struct ebb_rmsnorm_backward even = b.args;
        struct ebb_view *const to[] = {&even.x, &even.dy, &even.dx};
        const struct ebb_view *const from[] = {&b.args.x, &b.args.dy, &b.args.dx};
        for (int v = 0; v < 3; v++) {
            *to[v] = op_test_tensor(t, dtype, ROWS, cols, stride);
            copy_view(t, from[v], to[v]);
        }
        even.dw = op_test_tensor(t, EBB_F32, 1, cols, cols);
        copy_view(t, &b.args.dw, &even.dw);
        struct ebb_view last_x = row_of(&even.x, ROWS - 1), last_dy = row_of(&even.dy, ROWS - 1);
        assert_int_equal(op_test_run(t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
        assert_int_equal(op_test_run(t, EBB_OP_rmsnorm_backward, &even), EBB_OK);
        assert_equal_views(t, &b.args.dx, &even.dx);
        assert_equal_views(t, &b.args.dw, &even.dw);
        assert_backward(&b, 1e-6);
        struct ebb_rmsnorm_backward alone = even; /* without dw, and dx is dy */
        alone.x = last_x;
        alone.dy = alone.dx = last_dy;
        alone.dw = alone.scratch = ebb_view_none();
        alone.overwrite = 1;
        assert_int_equal(op_test_run(t, EBB_OP_rmsnorm_backward, &alone), EBB_OK);
        struct ebb_view last = row_of(&even.dx, ROWS - 1);
        if (b.args.overwrite) assert_equal_views(t, &alone.dx, &last);
        finish(&b);
    }
}

static void squares_beyond_or_below_fp32_count(void **state)
{
    (void)state;
    op_test_gpu_only("the CPU adds the squares of a chunk in fp32");
    static const double large[] = {1e20, 1e-25, 3e-15, 1e30, 0};
    for (int k = 0; k < 2 * WIDTHS; k++) {
        struct backward b;
        enum ebb_dtype dtype = k % 2 ? EBB_BF16 : EBB_F32;
        int64_t cols = widths[k / 2];
        prepare(&b, dtype, 6, cols, 1);
        for (int64_t i = 0; i < 5; i++) { /* the last row stays as it is */
            for (int64_t j = 0; j < cols; j++)
                op_test_set(&b.t, &b.args.x, i, j, large[i] * b.x[i * cols + j]);
        }
        struct ebb_rmsnorm_forward forward = {
            .x = b.args.x, .w = b.args.w, .y = b.args.dx, .eps = (float)eps};
        free(b.x);
        b.x = op_test_doubles(&b.t, &b.args.x);
        assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_forward, &forward), EBB_OK);
        for (int64_t i = 0; i < 6; i++) {
            double r = oracle_scale(b.x + i * cols, cols);
            for (int64_t j = 0; j < cols; j++)
                op_test_close(&b.t, &b.args.dx, i, j, b.x[i * cols + j] * r * b.w[j],
                              dtype == EBB_BF16 ? 0x1.02p-8 : 4e-7, 1e-40);
        }
        assert_int_equal(op_test_run(&b.t, EBB_OP_rmsnorm_backward, &b.args), EBB_OK);
        assert_backward(&b, 2e-4); /* r is up to 316 where x is small */
        finish(&b);
    }
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
        cmocka_unit_test(forward_has_the_same_bits_for_any_stride_and_place),
        cmocka_unit_test(backward_has_the_same_bits_for_any_stride_and_place),
        cmocka_unit_test(squares_beyond_or_below_fp32_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
