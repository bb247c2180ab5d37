/* What the CPU ops are made of: exp, rounding, sums in a fixed order, random words in bulk.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "op/random_int.h"
#include "op/vector_int.h"

static EBB_CLONES void exp_all(const float *x, int n, float *y)
{
    for (int i = 0; i < n; i++) y[i] = ebb_exp(x[i]);
}

static void exp_is_within_a_unit_and_a_bit_of_the_last_place(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N], y[N];
    double worst = 0;
    for (uint32_t sign = 0; sign < 2; sign++) {
        uint32_t end = sign ? 0x42d00000u : 0x42b17218u; /* -104 and 88.7228 */
        for (uint32_t bits = 0; bits < end;) {
            int n = 0;
            for (; n < N && bits < end; n++, bits += 1009) x[n] = ebb_bits_float(bits | sign << 31);
            exp_all(x, n, y);
            for (int i = 0; i < n; i++) {
                double exact = exp((double)x[i]);
                int exponent;
                frexp(exact, &exponent);
                double unit = ldexp(1, exponent > -125 ? exponent - 24 : -149);
                worst = fmax(worst, fabs((double)y[i] - exact) / unit);
            }
        }
    }
    assert_true(worst < 1.05);
}

static void exp_has_its_limits(void **state)
{
    (void)state;
    float x[8] = {0, -INFINITY, INFINITY, NAN, -105, 88.8f, -0.0f, 1e30f}, y[8];
    exp_all(x, 8, y);
    assert_true(y[0] == 1 && y[1] == 0 && isinf(y[2]) && isnan(y[3]));
    assert_true(y[4] == 0 && isinf(y[5]) && y[6] == 1 && isinf(y[7]));
}

static EBB_CLONES void round_all(const float *x, int64_t n, uint16_t *y)
{
    ebb_store_f32(EBB_BF16, y, 0, n, x);
}

static void bulk_rounding_to_bf16_is_that_of_one(void **state)
{
    (void)state;
    static float x[0x10000];
    static uint16_t y[0x10000];
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (int k = 0; k < 6; k++) {
        for (uint32_t hi = 0; hi < 0x10000u; hi++) x[hi] = ebb_bits_float(hi << 16 | low[k]);
        round_all(x, 0x10000, y);
        for (uint32_t hi = 0; hi < 0x10000u; hi++) assert_int_equal(y[hi], ebb_to_bf16(x[hi]));
    }
}

static EBB_CLONES float dot(const float *a, const float *b, int64_t n)
{
    return ebb_dot_f32(a, b, n);
}

static EBB_CLONES float sum(const float *a, int64_t n)
{
    return ebb_sum_f32(a, n);
}

static EBB_CLONES float largest(const float *a, int64_t n)
{
    return ebb_max_f32(a, n, -INFINITY);
}

static void sums_and_largest_of_any_length_are_right(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    float a[200], b[200];
    for (int64_t n = 0; n <= 200; n++) {
        double want_dot = 0, want_sum = 0, want_max = (double)-INFINITY, size = 0;
        for (int64_t i = 0; i < n; i++) {
            a[i] = (float)(2 * op_test_uniform(&t) - 1);
            b[i] = (float)(2 * op_test_uniform(&t) - 1);
            want_dot += (double)a[i] * (double)b[i];
            want_sum += (double)a[i];
            want_max = fmax(want_max, (double)a[i]);
            size += 1;
        }
        assert_true(fabs((double)dot(a, b, n) - want_dot) <= 1e-7 * size);
        assert_true(fabs((double)sum(a, n) - want_sum) <= 1e-7 * size);
        assert_true((double)largest(a, n) == want_max);
    }
    op_test_end(&t);
}

/* 32 partial sums, element i in number i % 32; they are folded in halves. */
static void a_sum_has_the_order_that_the_header_gives(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    float a[1000], lane[32] = {0};
    for (int i = 0; i < 1000; i++) a[i] = (float)op_test_uniform(&t);
    for (int i = 0; i < 1000; i++) lane[i % 32] += a[i];
    for (int width = 16; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    }
    assert_true(sum(a, 1000) == lane[0]);
    op_test_end(&t);
}

static EBB_CLONES void random_words(uint64_t key, uint64_t first, int64_t count, uint32_t *words)
{
    ebb_philox_run(key, first, count, words);
}

static void bulk_random_words_are_philox(void **state)
{
    (void)state;
    static const uint64_t firsts[] = {0, 5, 0xfffffff0u, 0xffffffffffffff00u};
    uint32_t words[4 * 50], one[4];
    for (int k = 0; k < 4; k++) {
        for (int64_t count = 0; count <= 50; count += 7) {
            random_words(0xfeedfacecafebeefu, firsts[k], count, words);
            for (int64_t i = 0; i < count; i++) {
                ebb_philox(0xfeedfacecafebeefu, firsts[k] + (uint64_t)i, one);
                assert_memory_equal(one, words + 4 * i, sizeof one);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_a_unit_and_a_bit_of_the_last_place),
        cmocka_unit_test(exp_has_its_limits),
        cmocka_unit_test(bulk_rounding_to_bf16_is_that_of_one),
        cmocka_unit_test(sums_and_largest_of_any_length_are_right),
        cmocka_unit_test(a_sum_has_the_order_that_the_header_gives),
        cmocka_unit_test(bulk_random_words_are_philox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
