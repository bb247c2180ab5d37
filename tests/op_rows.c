/* Copies of rows and sums of columns.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "op/rows.h"
#include "op/scratch_int.h"

static const enum ebb_dtype storage[] = {EBB_F32, EBB_BF16};

static void fill_sets_live_rows_to_zero_and_no_others(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct op_test t;
        op_test_start(&t);
        enum ebb_dtype dtype = k == 0 ? EBB_U8 : k == 1 ? EBB_BF16 : EBB_F32;
        struct ebb_fill fill = {.y = op_test_tensor(&t, dtype, 9, 7000, k < 3 ? 7003 : 7000)};
        op_test_fill(&t, &fill.y, 1, 2);
        op_test_live(&fill.y, EBB_EXTENT_TOKENS, 4);
        t.step.tokens = 9; /* of rows 4 to 12: the first five */
        assert_int_equal(op_test_run(&t, EBB_OP_fill, &fill), EBB_OK);
        for (int64_t i = 0; i < 9; i++) {
            for (int64_t j = 0; j < 7000; j++) {
                double got = op_test_get(&t, &fill.y, i, j);
                assert_true(i < 5 ? got == 0 : got >= 1);
            }
        }
        t.step.tokens = 0;
        op_test_fill(&t, &fill.y, 1, 2);
        assert_int_equal(op_test_run(&t, EBB_OP_fill, &fill), EBB_OK);
        assert_true(op_test_get(&t, &fill.y, 0, 0) >= 1);
        op_test_end(&t);
    }
}

static void gather_and_scatter_are_inverse(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct op_test t;
        op_test_start(&t);
        t.step.labels = 6; /* labels 2 .. 6 are this chunk's live rows: four of five */
        struct ebb_view x = op_test_tensor(&t, storage[k], 11, 33, 40);
        struct ebb_view rows = op_test_tensor(&t, EBB_I32, 1, 7, 7);
        struct ebb_view y = op_test_tensor(&t, storage[k], 5, 33, 35);
        struct ebb_view back = op_test_tensor(&t, storage[k], 11, 33, 33);
        static const int32_t where[7] = {0, 1, 3, 10,
                                         2, 7, -1}; /* the last belongs to no live row */
        for (int64_t i = 0; i < 7; i++) op_test_set(&t, &rows, 0, i, where[i]);
        op_test_fill(&t, &x, -1, 1);
        op_test_fill(&t, &y, 5, 6);
        op_test_fill(&t, &back, 7, 8);
        op_test_live(&y, EBB_EXTENT_LABELS, 2);
        struct ebb_gather_rows gather = {.x = x, .rows = rows, .y = y};
        assert_int_equal(op_test_run(&t, EBB_OP_gather_rows, &gather), EBB_OK);
        struct ebb_scatter_rows scatter = {.x = y, .rows = rows, .y = back};
        assert_int_equal(op_test_run(&t, EBB_OP_scatter_rows, &scatter), EBB_OK);
        for (int64_t j = 0; j < 33; j++) {
            for (int64_t i = 0; i < 4; i++) {
                assert_true(op_test_get(&t, &y, i, j) == op_test_get(&t, &x, where[2 + i], j));
            }
            assert_true(op_test_get(&t, &y, 4, j) >= 5);
            for (int64_t i = 0; i < 11; i++) {
                double got = op_test_get(&t, &back, i, j);
                bool hit = i == 3 || i == 10 || i == 2 || i == 7;
                assert_true(hit ? got == op_test_get(&t, &x, i, j) : got >= 7);
            }
        }
        op_test_end(&t);
    }
}

/* Rows of a warp, of a block, and longer ones; in words of each size. */
static void rows_of_any_length_and_alignment_are_copied(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 6, 8, 127, 896, 1024, 1025, 4104, 9002};
    static const int32_t where[] = {4, 0, 6, 2, 9};
    for (size_t k = 0; k < 2 * sizeof widths / sizeof widths[0]; k++) {
        struct op_test t;
        op_test_start(&t);
        int64_t cols = widths[k / 2];
        struct ebb_view x = op_test_tensor(&t, storage[k % 2], 10, cols, cols + 8);
        struct ebb_view y = op_test_tensor(&t, storage[k % 2], 5, cols, cols + 16);
        struct ebb_view rows = op_test_tensor(&t, EBB_I32, 1, 5, 5);
        for (int64_t i = 0; i < 5; i++) op_test_set(&t, &rows, 0, i, where[i]);
        op_test_fill(&t, &x, -1, 1);
        struct ebb_gather_rows gather = {.x = x, .rows = rows, .y = y};
        assert_int_equal(op_test_run(&t, EBB_OP_gather_rows, &gather), EBB_OK);
        for (int64_t i = 0; i < 5; i++) {
            assert_memory_equal(op_test_at(&t, &y, i, 0), op_test_at(&t, &x, where[i], 0),
                                (size_t)(cols * ebb_dtype_bytes(storage[k % 2])));
        }
        op_test_end(&t);
    }
}

static void a_row_outside_the_matrix_is_an_error_that_names_it(void **state)
{
    (void)state;
    op_test_cpu_only("row indices are the host's to check");
    struct op_test t;
    op_test_start(&t);
    struct ebb_view x = op_test_tensor(&t, EBB_F32, 4, 3, 3),
                    rows = op_test_tensor(&t, EBB_I32, 1, 2, 2);
    struct ebb_view y = op_test_tensor(&t, EBB_F32, 2, 3, 3);
    op_test_fill(&t, &x, 0, 1);
    op_test_set(&t, &rows, 0, 0, 0);
    op_test_set(&t, &rows, 0, 1, 4);
    struct ebb_gather_rows gather = {.x = x, .rows = rows, .y = y};
    assert_int_equal(op_test_run(&t, EBB_OP_gather_rows, &gather), EBB_FAILED);
    assert_non_null(strstr(ebb_error_text(t.env.ctx), "row index 4 at place 1"));
    assert_non_null(strstr(ebb_error_text(t.env.ctx), "4 rows"));
    ebb_error_clear(t.env.ctx);
    op_test_set(&t, &rows, 0, 1, -3);
    struct ebb_scatter_rows scatter = {.x = y, .rows = rows, .y = x};
    assert_int_equal(op_test_run(&t, EBB_OP_scatter_rows, &scatter), EBB_FAILED);
    assert_non_null(strstr(ebb_error_text(t.env.ctx), "scatter_rows: row index -3"));
    op_test_end(&t);
}

static void a_row_that_nobody_checked_is_left_alone(void **state)
{
    (void)state;
    op_test_gpu_only("such a row is an error");
    struct op_test t;
    op_test_start(&t);
    struct ebb_view x = op_test_tensor(&t, EBB_F32, 4, 3, 3),
                    rows = op_test_tensor(&t, EBB_I32, 1, 3, 3),
                    y = op_test_tensor(&t, EBB_F32, 3, 3, 3);
    op_test_fill(&t, &x, 0, 1);
    op_test_fill(&t, &y, 5, 6);
    static const int32_t where[] = {0, 4, -3};
    for (int64_t i = 0; i < 3; i++) op_test_set(&t, &rows, 0, i, where[i]);
    struct ebb_gather_rows gather = {.x = x, .rows = rows, .y = y};
    assert_int_equal(op_test_run(&t, EBB_OP_gather_rows, &gather), EBB_OK);
    for (int64_t i = 0; i < 3; i++) assert_int_equal(op_test_get(&t, &y, i, 2) >= 5, i > 0);
    op_test_fill(&t, &y, 5, 6);
    struct ebb_scatter_rows scatter = {.x = y, .rows = rows, .y = x};
    assert_int_equal(op_test_run(&t, EBB_OP_scatter_rows, &scatter), EBB_OK);
    for (int64_t i = 0; i < 4; i++) assert_int_equal(op_test_get(&t, &x, i, 2) >= 5, i == 0);
    op_test_end(&t);
}

/* The same order gives the same bits. */
static float expected_sum(const struct op_test *t, const struct ebb_view *x, int64_t j, float start)
{
    int64_t rows = ebb_view_rows(&t->env, x);
    float sum = start;
    if (!op_test_on_gpu()) {
        for (int64_t i = 0; i < rows; i++) sum += (float)op_test_get(t, x, i, j);
        return sum;
    }
    for (int64_t first = 0; first < rows; first += EBB_CUDA_PART_ROWS) {
        float part = 0;
        for (int64_t i = first; i < rows && i < first + EBB_CUDA_PART_ROWS; i++)
            part += (float)op_test_get(t, x, i, j);
        sum += part;
    }
    return sum;
}

static void column_sum_adds_rows_in_ascending_order(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {37, 515}, {200, 256}, {3, 1025}};
    for (int k = 0; k < 2; k++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            struct op_test t;
            op_test_start(&t);
            int64_t rows = sizes[s][0], cols = sizes[s][1];
            t.step.tokens = rows - 1 + (rows == 1);
            struct ebb_column_sum sum = {.x = op_test_tensor(&t, storage[k], rows, cols, cols + 3),
                                         .y = op_test_tensor(&t, EBB_F32, 1, cols, cols)};
            sum.scratch = op_test_scratch(&t, ebb_column_sum_scratch(rows, cols, &t.target));
            op_test_live(&sum.x, EBB_EXTENT_TOKENS, 0);
            op_test_fill(&t, &sum.x, -1, 1);
            op_test_fill(&t, &sum.y, -1, 1);
            double *before = op_test_doubles(&t, &sum.y);
            void *start = op_test_copy(&t, &sum.y);
            assert_int_equal(op_test_run(&t, EBB_OP_column_sum, &sum), EBB_OK);
            for (int64_t j = 0; j < cols; j++) {
                float want = expected_sum(&t, &sum.x, j, (float)before[j]);
                assert_true(op_test_get(&t, &sum.y, 0, j) == (double)want);
            }
            void *two = op_test_copy(&t, &sum.y);
            op_test_restore(&t, &sum.y, start);
            t.env.threads = 1;
            assert_int_equal(op_test_run(&t, EBB_OP_column_sum, &sum), EBB_OK);
            assert_true(op_test_same(&t, &sum.y, two));
            free(before), free(start), free(two);
            op_test_end(&t);
        }
    }
}

/* Aligned rows, of which the GPU takes eight elements at a time; and more parts of the rows than
 * are added at a time. */
static void column_sum_of_aligned_rows_has_the_same_order(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{37, 520}, {2100, 40}, {4200, 8}, {17, 1032}};
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof sizes[0]; k++) {
        struct op_test t;
        op_test_start(&t);
        int64_t rows = sizes[k / 2][0], cols = sizes[k / 2][1];
        struct ebb_column_sum sum = {.x = op_test_tensor(&t, storage[k % 2], rows, cols, cols + 8),
                                     .y = op_test_tensor(&t, EBB_F32, 1, cols, cols)};
        sum.scratch = op_test_scratch(&t, ebb_column_sum_scratch(rows, cols, &t.target));
        op_test_fill(&t, &sum.x, -1, 1);
        op_test_fill(&t, &sum.y, -1, 1);
        double *before = op_test_doubles(&t, &sum.y);
        assert_int_equal(op_test_run(&t, EBB_OP_column_sum, &sum), EBB_OK);
        for (int64_t j = 0; j < cols; j++) {
            float want = expected_sum(&t, &sum.x, j, (float)before[j]);
            assert_true(op_test_get(&t, &sum.y, 0, j) == (double)want);
        }
        free(before);
        op_test_end(&t);
    }
}

static void column_sum_of_nothing_adds_nothing(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_column_sum sum = {.x = op_test_tensor(&t, EBB_F32, 5, 9, 9),
                                 .y = op_test_tensor(&t, EBB_F32, 1, 9, 9)};
    sum.scratch = op_test_scratch(&t, ebb_column_sum_scratch(5, 9, &t.target));
    op_test_live(&sum.x, EBB_EXTENT_LABELS, 0);
    op_test_fill(&t, &sum.x, 1, 1);
    op_test_fill(&t, &sum.y, 2, 2);
    assert_int_equal(op_test_run(&t, EBB_OP_column_sum, &sum), EBB_OK);
    for (int64_t j = 0; j < 9; j++) assert_true(op_test_get(&t, &sum.y, 0, j) == 2);
    op_test_end(&t);
}

static void store_rows_appends_to_the_cache_or_says_that_it_is_full(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_store_rows store = {.x = op_test_tensor(&t, EBB_BF16, 4, 6, 9),
                                   .y = op_test_tensor(&t, EBB_BF16, 10, 6, 6)};
    op_test_live(&store.x, EBB_EXTENT_TOKENS, 0);
    op_test_fill(&t, &store.x, -1, 1);
    op_test_fill(&t, &store.y, 3, 4);
    t.step.tokens = 3;
    t.step.cached = 7;
    assert_int_equal(op_test_run(&t, EBB_OP_store_rows, &store), EBB_OK);
    for (int64_t i = 0; i < 10; i++) {
        for (int64_t j = 0; j < 6; j++) {
            double got = op_test_get(&t, &store.y, i, j);
            assert_true(i < 7 ? got >= 3 : got == op_test_get(&t, &store.x, i - 7, j));
        }
    }
    t.step.cached = 8;
    assert_int_equal(op_test_run(&t, EBB_OP_store_rows, &store), EBB_FAILED);
    assert_non_null(strstr(ebb_error_text(t.env.ctx),
                           "3 tokens after the 8 in the cache do not fit its 10 rows"));
    op_test_end(&t);
}

static void copy_rows_copies_bits(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_copy_rows copy = {.x = op_test_tensor(&t, EBB_F32, 300, 70, 70),
                                 .y = op_test_tensor(&t, EBB_F32, 300, 70, 71)};
    op_test_fill(&t, &copy.x, -1, 1);
    op_test_set(&t, &copy.x, 0, 3, (double)NAN);
    op_test_fill(&t, &copy.y, 3, 4);
    op_test_live(&copy.x, EBB_EXTENT_TOKENS, 0);
    t.step.tokens = 299;
    assert_int_equal(op_test_run(&t, EBB_OP_copy_rows, &copy), EBB_OK);
    for (int64_t i = 0; i < 299; i++) {
        assert_memory_equal(op_test_at(&t, &copy.x, i, 0), op_test_at(&t, &copy.y, i, 0),
                            70 * sizeof(float));
    }
    assert_true(op_test_get(&t, &copy.y, 299, 0) >= 3);
    op_test_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fill_sets_live_rows_to_zero_and_no_others),
        cmocka_unit_test(gather_and_scatter_are_inverse),
        cmocka_unit_test(rows_of_any_length_and_alignment_are_copied),
        cmocka_unit_test(a_row_outside_the_matrix_is_an_error_that_names_it),
        cmocka_unit_test(a_row_that_nobody_checked_is_left_alone),
        cmocka_unit_test(column_sum_adds_rows_in_ascending_order),
        cmocka_unit_test(column_sum_of_aligned_rows_has_the_same_order),
        cmocka_unit_test(column_sum_of_nothing_adds_nothing),
        cmocka_unit_test(store_rows_appends_to_the_cache_or_says_that_it_is_full),
        cmocka_unit_test(copy_rows_copies_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
