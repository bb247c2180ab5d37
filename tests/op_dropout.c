/* Dropout: which elements it drops, what it makes of the others, that it does the same again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "op/dropout.h"

static const enum ebb_dtype storage[] = {EBB_F32, EBB_BF16};

/* Element e of the whole matrix: word e % 4 of Philox at counter e / 4. */
static double oracle_factor(const struct op_test *t, uint32_t instance, float p, uint64_t element)
{
    uint64_t key =
        ebb_random_key(t->step.seed, t->step.step, t->step.micro, t->step.rank, instance);
    uint32_t words[4];
    ebb_philox(key, element / 4, words);
    return ebb_uniform(words[element % 4]) < p ? 0 : 1 / (1 - (double)p);
}

static void elements_are_dropped_as_philox_says(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {7, 1031}, {33, 64}, {2, 3000}};
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof sizes[0]; k++) {
        struct op_test t;
        op_test_start(&t);
        t.step.seed = 0x123456789abcdefu;
        t.step.step = 3 + k;
        t.step.micro = 2;
        t.step.rank = 1;
        int64_t rows = sizes[k / 2][0], cols = sizes[k / 2][1];
        struct ebb_dropout args = {.x = op_test_tensor(&t, storage[k % 2], rows, cols, cols + 3),
                                   .y = op_test_tensor(&t, storage[k % 2], rows, cols, cols + 1),
                                   .instance = 11,
                                   .p = 0.3f};
        op_test_live(&args.x, EBB_EXTENT_TOKENS, 5);
        t.step.tokens = 5 + rows;
        op_test_fill(&t, &args.x, -1, 1);
        op_test_fill(&t, &args.y, 5, 6);
        double *before = op_test_doubles(&t, &args.y);
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            args.accumulate = accumulate;
            void *start = op_test_copy(&t, &args.y);
            assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
            for (int64_t i = 0; i < rows; i++) {
                for (int64_t j = 0; j < cols; j++) {
                    double m = oracle_factor(&t, 11, 0.3f, (uint64_t)((5 + i) * cols + j));
                    double exact = m * op_test_get(&t, &args.x, i, j);
                    if (accumulate) exact += before[i * cols + j];
                    op_test_close(&t, &args.y, i, j, exact, 2e-7, 0);
                }
            }
            void *two = op_test_copy(&t, &args.y);
            op_test_restore(&t, &args.y, start);
            t.env.threads = 1;
            assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
            assert_true(op_test_same(&t, &args.y, two));
            t.env.threads = 2;
            op_test_restore(&t, &args.y, start);
            op_test_fill(&t, &args.y, 5, 6);
            free(before), free(start), free(two);
            before = op_test_doubles(&t, &args.y);
        }
        free(before);
        op_test_end(&t);
    }
}

/* Where rows are aligned the GPU takes eight elements at a time. */
static void aligned_rows_are_dropped_as_philox_says(void **state)
{
    (void)state;
    static const int64_t widths[] = {8, 64, 1032, 3000};
    for (int k = 0; k < 16; k++) {
        struct op_test t;
        op_test_start(&t);
        enum ebb_dtype dtype = storage[k % 2];
        int64_t rows = 5, cols = widths[k / 4];
        struct ebb_dropout args = {.x = op_test_tensor(&t, dtype, rows, cols, cols + 8),
                                   .y = op_test_tensor(&t, dtype, rows, cols, cols + 16),
                                   .instance = 3,
                                   .p = 0.3f,
                                   .accumulate = k / 2 % 2};
        op_test_live(&args.x, EBB_EXTENT_TOKENS, 3);
        t.step.tokens = 3 + rows;
        op_test_fill(&t, &args.x, -1, 1);
        op_test_fill(&t, &args.y, 5, 6);
        double *before = op_test_doubles(&t, &args.y);
        assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < cols; j++) {
                double m = oracle_factor(&t, 3, 0.3f, (uint64_t)((3 + i) * cols + j));
                double exact = m * op_test_get(&t, &args.x, i, j);
                if (args.accumulate) exact += before[i * cols + j];
                op_test_close(&t, &args.y, i, j, exact, 2e-7, 0);
            }
        }
        free(before);
        op_test_end(&t);
    }
}

static void the_dropped_share_is_p_and_the_mean_stays(void **state)
{
    (void)state;
    static const float ps[] = {0, 0.05f, 0.5f, 0.9f};
    for (int k = 0; k < 4; k++) {
        struct op_test t;
        op_test_start(&t);
        enum { N = 400 };
        struct ebb_dropout args = {.x = op_test_tensor(&t, EBB_F32, N, N, N),
                                   .y = op_test_tensor(&t, EBB_F32, N, N, N),
                                   .p = ps[k]};
        op_test_fill(&t, &args.x, 1, 1);
        assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
        double dropped = 0, sum = 0;
        for (int64_t i = 0; i < N * N; i++) {
            double y = op_test_get(&t, &args.y, i / N, i % N);
            dropped += y == 0;
            sum += y;
        }
        double p = (double)ps[k], sigma = sqrt(p * (1 - p)) / N;
        assert_true(fabs(dropped / (N * N) - p) <= 4 * sigma);
        assert_true(fabs(sum / (N * N) - 1) <= 4 * sigma / (1 - p) + 1e-6);
        op_test_end(&t);
    }
}

static void each_part_of_the_key_makes_another_mask(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_dropout args = {.x = op_test_tensor(&t, EBB_F32, 4, 64, 64),
                               .y = op_test_tensor(&t, EBB_F32, 4, 64, 64),
                               .p = 0.5f};
    op_test_fill(&t, &args.x, 1, 1);
    void *mask[7];
    for (int k = 0; k < 7; k++) {
        if (k == 1) t.step.seed++;
        if (k == 2) t.step.step++;
        if (k == 3) t.step.micro++;
        if (k == 4) t.step.rank++;
        if (k == 5) args.instance++;
        if (k == 6) op_test_live(&args.x, EBB_EXTENT_FIXED, 4); /* other tokens */
        assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
        mask[k] = op_test_copy(&t, &args.y);
        for (int other = 0; other < k; other++)
            assert_false(op_test_same(&t, &args.y, mask[other]));
        assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
        assert_true(op_test_same(&t, &args.y, mask[k]));
    }
    for (int k = 0; k < 7; k++) free(mask[k]);
    op_test_end(&t);
}

static void a_tile_has_the_mask_of_its_tokens(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    t.step.tokens = 10;
    struct ebb_dropout args = {.x = op_test_tensor(&t, EBB_BF16, 10, 33, 33),
                               .y = op_test_tensor(&t, EBB_BF16, 10, 33, 33),
                               .p = 0.4f};
    op_test_live(&args.x, EBB_EXTENT_TOKENS, 0);
    op_test_fill(&t, &args.x, -1, 1);
    assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
    void *whole = op_test_copy(&t, &args.y);
    op_test_fill(&t, &args.y, 0, 0);
    for (int64_t start = 0; start < 12; start += 4) { /* the last tile has two live rows of four */
        struct ebb_dropout tile = args;
        tile.x.offset = tile.y.offset = start * 33 * 2;
        tile.x.rows = tile.y.rows = 4;
        tile.x.row0 = start;
        assert_int_equal(op_test_run(&t, EBB_OP_dropout, &tile), EBB_OK);
    }
    assert_true(op_test_same(&t, &args.y, whole));
    t.step.tokens = 0;
    args.y = args.x;
    void *x = op_test_copy(&t, &args.x);
    assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
    assert_true(op_test_same(&t, &args.x, x));
    t.step.tokens = 10;
    assert_int_equal(op_test_run(&t, EBB_OP_dropout, &args), EBB_OK);
    assert_true(op_test_same(&t, &args.x, whole));
    free(whole), free(x);
    op_test_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_dropped_as_philox_says),
        cmocka_unit_test(aligned_rows_are_dropped_as_philox_says),
        cmocka_unit_test(the_dropped_share_is_p_and_the_mean_stays),
        cmocka_unit_test(each_part_of_the_key_makes_another_mask),
        cmocka_unit_test(a_tile_has_the_mask_of_its_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
