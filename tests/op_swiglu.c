/* SwiGLU against its formula in double precision.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "op/swiglu.h"

static const struct {
    enum ebb_dtype dtype;
    int64_t rows, width;
} sizes[] = {{EBB_F32, 1, 1},
             {EBB_F32, 19, 333},
             {EBB_F32, 3, 2050},
             {EBB_BF16, 1, 17},
             {EBB_BF16, 40, 600}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static double oracle(double g, double u)
{
    return g / (1 + exp(-g)) * u;
}

static void forward_agrees_with_the_formula(void **state)
{
    (void)state;
    for (int k = 0; k < SIZES; k++) {
        struct op_test t;
        op_test_start(&t);
        int64_t rows = sizes[k].rows, width = sizes[k].width;
        struct ebb_swiglu_forward args = {
            .x = op_test_tensor(&t, sizes[k].dtype, rows, 2 * width, 2 * width + 3),
            .y = op_test_tensor(&t, sizes[k].dtype, rows, width, width + 8)};
        op_test_fill(&t, &args.x, -12, 12);
        assert_int_equal(op_test_run(&t, EBB_OP_swiglu_forward, &args), EBB_OK);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < width; j++) {
                double exact =
                    oracle(op_test_get(&t, &args.x, i, j), op_test_get(&t, &args.x, i, width + j));
                op_test_close(&t, &args.y, i, j, exact, 4e-7, 0);
            }
        }
        void *two = op_test_copy(&t, &args.y);
        t.env.threads = 1;
        assert_int_equal(op_test_run(&t, EBB_OP_swiglu_forward, &args), EBB_OK);
        assert_true(op_test_same(&t, &args.y, two));
        free(two);
        op_test_end(&t);
    }
}

static void backward_agrees_with_finite_differences(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * SIZES; k++) { /* every other time dx is x */
        struct op_test t;
        op_test_start(&t);
        enum ebb_dtype dtype = sizes[k / 2].dtype;
        int64_t rows = sizes[k / 2].rows, width = sizes[k / 2].width;
        struct ebb_swiglu_backward args = {
            .x = op_test_tensor(&t, dtype, rows, 2 * width, 2 * width + 3),
            .dy = op_test_tensor(&t, dtype, rows, width, width + 1),
            .dx = op_test_tensor(&t, dtype, rows, 2 * width, 2 * width)};
        op_test_fill(&t, &args.x, -9, 9);
        op_test_fill(&t, &args.dy, -1, 1);
        double *x = op_test_doubles(&t, &args.x);
        void *start = op_test_copy(&t, &args.x);
        if (k % 2) args.dx = args.x;
        assert_int_equal(op_test_run(&t, EBB_OP_swiglu_backward, &args), EBB_OK);
        const double h = 1e-5;
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < width; j++) {
                double g = x[i * 2 * width + j], u = x[i * 2 * width + width + j],
                       dy = op_test_get(&t, &args.dy, i, j);
                double dg = dy * (oracle(g + h, u) - oracle(g - h, u)) / (2 * h);
                double du = dy * (oracle(g, u + h) - oracle(g, u - h)) / (2 * h);
                op_test_close(&t, &args.dx, i, j, dg, 1e-6,
                              2e-6); /* 1 + g (1 - s) cancels near g = -1.28 */
                op_test_close(&t, &args.dx, i, width + j, du, 5e-7, 1e-9);
            }
        }
        void *two = op_test_copy(&t, &args.dx);
        op_test_restore(&t, &args.x, start);
        t.env.threads = 1;
        assert_int_equal(op_test_run(&t, EBB_OP_swiglu_backward, &args), EBB_OK);
        assert_true(op_test_same(&t, &args.dx, two));
        free(x), free(start), free(two);
        op_test_end(&t);
    }
}

/* Where rows are aligned the GPU takes eight elements at a time. */
static void aligned_rows_have_the_bits_of_others(void **state)
{
    (void)state;
    static const int64_t widths[] = {8, 600, 1032, 2050};
    for (int k = 0; k < 8; k++) {
        struct op_test t;
        op_test_start(&t);
        enum ebb_dtype dtype = k % 2 ? EBB_BF16 : EBB_F32;
        int64_t width = widths[k / 2], rows = 5;
        struct ebb_view x[2], y[2], dx[2];
        for (int odd = 0; odd < 2; odd++) {
            x[odd] = op_test_tensor(&t, dtype, rows, 2 * width, 2 * width + (odd ? 1 : 8));
            y[odd] = op_test_tensor(&t, dtype, rows, width, width + (odd ? 3 : 16));
            dx[odd] = op_test_tensor(&t, dtype, rows, 2 * width, 2 * width + (odd ? 5 : 0));
        }
        op_test_fill(&t, &x[0], -12, 12);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < 2 * width; j++)
                op_test_set(&t, &x[1], i, j, op_test_get(&t, &x[0], i, j));
        }
        for (int odd = 0; odd < 2; odd++) {
            struct ebb_swiglu_forward forward = {.x = x[odd], .y = y[odd]};
            assert_int_equal(op_test_run(&t, EBB_OP_swiglu_forward, &forward), EBB_OK);
            struct ebb_swiglu_backward backward = {.x = x[odd], .dy = y[odd], .dx = dx[odd]};
            assert_int_equal(op_test_run(&t, EBB_OP_swiglu_backward, &backward), EBB_OK);
        }
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < width; j++) {
                double exact =
                    oracle(op_test_get(&t, &x[0], i, j), op_test_get(&t, &x[0], i, width + j));
                op_test_close(&t, &y[0], i, j, exact, 4e-7, 0);
                assert_true(op_test_get(&t, &y[0], i, j) == op_test_get(&t, &y[1], i, j));
            }
            for (int64_t j = 0; j < 2 * width; j++)
                assert_true(op_test_get(&t, &dx[0], i, j) == op_test_get(&t, &dx[1], i, j));
        }
        op_test_end(&t);
    }
}

static void extreme_gates_give_limits_and_nan_stays_nan(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    static const double gates[] = {1e30, -1e30, 89, -89, -200, 0, (double)NAN, 1};
    enum { N = sizeof gates / sizeof gates[0] };
    struct ebb_view x = op_test_tensor(&t, EBB_F32, 1, 2 * N, 2 * N),
                    y = op_test_tensor(&t, EBB_F32, 1, N, N);
    struct ebb_view dx = op_test_tensor(&t, EBB_F32, 1, 2 * N, 2 * N);
    for (int j = 0; j < N; j++) {
        op_test_set(&t, &x, 0, j, gates[j]);
        op_test_set(&t, &x, 0, N + j, j == 7 ? (double)NAN : 2);
    }
    struct ebb_swiglu_forward forward = {.x = x, .y = y};
    assert_int_equal(op_test_run(&t, EBB_OP_swiglu_forward, &forward), EBB_OK);
    op_test_close(&t, &y, 0, 0, 2e30, 1e-6, 0);
    op_test_close(&t, &y, 0, 1, 0, 0, 0);
    op_test_close(&t, &y, 0, 2, 178, 1e-6, 0);
    op_test_close(&t, &y, 0, 3, 0, 0, 1e-36);
    op_test_close(&t, &y, 0, 4, 0, 0, 0);
    op_test_close(&t, &y, 0, 5, 0, 0, 0);
    assert_true(isnan(op_test_get(&t, &y, 0, 6)) && isnan(op_test_get(&t, &y, 0, 7)));
    struct ebb_view dy = y;
    for (int j = 0; j < N; j++) op_test_set(&t, &dy, 0, j, 1);
    struct ebb_swiglu_backward backward = {.x = x, .dy = dy, .dx = dx};
    assert_int_equal(op_test_run(&t, EBB_OP_swiglu_backward, &backward), EBB_OK);
    op_test_close(&t, &dx, 0, 0, 2, 1e-6, 0);
    op_test_close(&t, &dx, 0, 1, 0, 0, 0);
    op_test_close(&t, &dx, 0, N + 2, 89, 1e-6, 0);
    op_test_close(&t, &dx, 0, N + 4, 0, 0, 0);
    assert_true(isnan(op_test_get(&t, &dx, 0, 6)) && isnan(op_test_get(&t, &dx, 0, 7)));
    op_test_end(&t);
}

static void only_live_rows_are_touched(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_swiglu_forward args = {.x = op_test_tensor(&t, EBB_F32, 6, 10, 10),
                                      .y = op_test_tensor(&t, EBB_F32, 6, 5, 5)};
    op_test_fill(&t, &args.x, 1, 2);
    op_test_fill(&t, &args.y, 100, 101);
    op_test_live(&args.x, EBB_EXTENT_TOKENS, 30);
    t.step.tokens = 30;
    assert_int_equal(op_test_run(&t, EBB_OP_swiglu_forward, &args), EBB_OK);
    assert_true(op_test_get(&t, &args.y, 0, 0) >= 100);
    t.step.tokens = 32;
    assert_int_equal(op_test_run(&t, EBB_OP_swiglu_forward, &args), EBB_OK);
    for (int64_t i = 0; i < 6; i++) assert_int_equal(op_test_get(&t, &args.y, i, 4) >= 100, i >= 2);
    op_test_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_agrees_with_the_formula),
        cmocka_unit_test(backward_agrees_with_finite_differences),
        cmocka_unit_test(aligned_rows_have_the_bits_of_others),
        cmocka_unit_test(extreme_gates_give_limits_and_nan_stays_nan),
        cmocka_unit_test(only_live_rows_are_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
