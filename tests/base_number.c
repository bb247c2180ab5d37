/* float16 and bfloat16 conversions, Philox against its published answers, what is drawn from it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void dtypes_have_sizes_and_names(void **state)
{
    (void)state;
    assert_int_equal(ebb_dtype_bytes(EBB_F32), 4);
    assert_int_equal(ebb_dtype_bytes(EBB_BF16), 2);
    assert_int_equal(ebb_dtype_bytes(EBB_F16), 2);
    assert_int_equal(ebb_dtype_bytes(EBB_I32), 4);
    assert_int_equal(ebb_dtype_bytes(EBB_I64), 8);
    assert_int_equal(ebb_dtype_bytes(EBB_U8), 1);
    assert_int_equal(ebb_dtype_bytes(EBB_U16), 2);
    assert_string_equal(ebb_dtype_name(EBB_BF16), "bfloat16");
    assert_string_equal(ebb_dtype_name(EBB_I64), "int64");
    assert_string_equal(ebb_dtype_name(EBB_DTYPE_COUNT), "unknown dtype");
}

/* The value of float16 bits straight from the definition. */
static double f16_value(unsigned bits)
{
    double sign = bits & 0x8000u ? -1.0 : 1.0;
    int exponent = (int)((bits >> 10) & 31u), mantissa = (int)(bits & 1023u);
    if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25));
}

static void every_float16_is_read_exactly_and_comes_back(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000u; bits++) {
        float got = ebb_from_f16((uint16_t)bits);
        double want = f16_value(bits);
        if (isnan(want)) {
            if (!isnan(got) || !isnan(ebb_from_f16(ebb_to_f16(got)))) fail_msg("NaN %04x", bits);
        } else if ((double)got != want || (signbit(got) != 0) != (bits >> 15) ||
                   ebb_to_f16(got) != bits) {
            fail_msg("%04x", bits);
        }
    }
}

/* Between each two neighbours: just below the middle, the middle (ties to even), just above. */
static void float16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x7bffu; bits++) {
        float low = ebb_from_f16((uint16_t)bits), high = ebb_from_f16((uint16_t)(bits + 1));
        float middle = (low + high) * 0.5f; /* exact: float has 13 bits to spare */
        unsigned even = bits & 1u ? bits + 1 : bits;
        if (ebb_to_f16(middle) != even) fail_msg("middle above %04x", bits);
        if (ebb_to_f16(nextafterf(middle, low)) != bits)
            fail_msg("below the middle above %04x", bits);
        if (ebb_to_f16(nextafterf(middle, high)) != bits + 1)
            fail_msg("above the middle above %04x", bits);
        if (ebb_to_f16(-middle) != (even | 0x8000u)) fail_msg("minus the middle above %04x", bits);
    }
    assert_int_equal(ebb_to_f16(65519.996f), 0x7bff);
    assert_int_equal(ebb_to_f16(65520.0f), 0x7c00);
    assert_int_equal(ebb_to_f16(-1e30f), 0xfc00);
    assert_int_equal(ebb_to_f16(INFINITY), 0x7c00);
    assert_int_equal(ebb_to_f16(1e-30f), 0);
    assert_int_equal(ebb_to_f16(-0.0f), 0x8000);
    assert_true(isnan(ebb_from_f16(ebb_to_f16(from_bits(0x7f800001u)))));
}

static void bfloat16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x7f7fu; bits++) {
        uint32_t wide = bits << 16;
        unsigned even = bits & 1u ? bits + 1 : bits;
        if (ebb_to_bf16(from_bits(wide)) != bits) fail_msg("%04x does not come back", bits);
        if (ebb_to_bf16(from_bits(wide + 0x8000u)) != even) fail_msg("middle above %04x", bits);
        if (ebb_to_bf16(from_bits(wide + 0x7fffu)) != bits)
            fail_msg("below the middle above %04x", bits);
        if (ebb_to_bf16(from_bits(wide + 0x8001u)) != bits + 1)
            fail_msg("above the middle above %04x", bits);
    }
    assert_int_equal(bits_of(ebb_from_bf16(0x3f80)), 0x3f800000u);
    assert_int_equal(ebb_to_bf16(from_bits(0x7f7fffffu)), 0x7f80);
    assert_int_equal(ebb_to_bf16(-INFINITY), 0xff80);
    assert_true(isnan(ebb_from_bf16(ebb_to_bf16(from_bits(0x7f800001u)))));
    assert_true(isnan(ebb_from_bf16(ebb_to_bf16(from_bits(0xffffffffu)))));
}

/* Known answers of the Random123 distribution. */
static void philox_gives_the_published_words(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        ebb_philox_words(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    uint32_t out[4], words[4];
    ebb_philox(0, 0, out);
    assert_memory_equal(out, known[0].out, sizeof out);
    const uint32_t key[2] = {0x89abcdef, 0x01234567}, counter[4] = {0x76543210, 0xfedcba98, 0, 0};
    ebb_philox(0x0123456789abcdefu, 0xfedcba9876543210u, out);
    ebb_philox_words(key, counter, words);
    assert_memory_equal(out, words, sizeof out);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static void keys_of_different_uses_differ(void **state)
{
    (void)state;
    static uint64_t keys[6 * 6 * 6 * 6 * 6];
    size_t n = 0;
    for (uint64_t seed = 0; seed < 6; seed++)
        for (uint64_t step = 0; step < 6; step++)
            for (uint32_t micro = 0; micro < 6; micro++)
                for (uint32_t rank = 0; rank < 6; rank++)
                    for (uint32_t instance = 0; instance < 6; instance++)
                        keys[n++] = ebb_random_key(seed, step << (step * 8), micro, rank, instance);
    int ones[64] = {0};
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 64; bit++) ones[bit] += (int)(keys[i] >> bit & 1u);
    /* 7776 fair coins: half of them within 5 standard deviations (5 * 44). */
    for (int bit = 0; bit < 64; bit++) assert_in_range(ones[bit], 3888 - 220, 3888 + 220);
    qsort(keys, n, sizeof keys[0], by_value);
    for (size_t i = 1; i < n; i++) assert_true(keys[i] != keys[i - 1]);
    assert_true(ebb_random_key(1, 2, 3, 4, 5) == ebb_random_key(1, 2, 3, 4, 5));
}

static void uniform_stays_below_one(void **state)
{
    (void)state;
    assert_true(ebb_uniform(0) == 0.0f);
    assert_true(ebb_uniform(UINT32_MAX) < 1.0f);
    assert_true(ebb_uniform(0x80000000u) == 0.5f);
}

static void normal_values_have_the_right_moments(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    double sum[5] = {0}, cross = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint32_t words[4];
        float pair[2];
        ebb_philox(77, i, words);
        ebb_normal(words[0], words[1], pair);
        for (int j = 0; j < 2; j++)
            for (int power = 1; power <= 4; power++) sum[power] += pow(pair[j], power);
        cross += (double)pair[0] * pair[1];
    }
    double n = 2.0 * DRAWS;
    assert_true(fabs(sum[1] / n) < 5 / sqrt(n));
    assert_true(fabs(sum[2] / n - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(sum[3] / n) < 5 * sqrt(15 / n));
    assert_true(fabs(sum[4] / n - 3) < 5 * sqrt(96 / n));
    assert_true(fabs(cross / DRAWS) < 5 / sqrt(DRAWS));
    float ends[2];
    ebb_normal(0, 0, ends);
    assert_true(isfinite(ends[0]) && ends[0] > 6.0f);
    ebb_normal(UINT32_MAX, UINT32_MAX, ends);
    assert_true(ends[0] == 0.0f && isfinite(ends[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_sizes_and_names),
        cmocka_unit_test(every_float16_is_read_exactly_and_comes_back),
        cmocka_unit_test(float16_rounds_to_nearest_even),
        cmocka_unit_test(bfloat16_rounds_to_nearest_even),
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(keys_of_different_uses_differ),
        cmocka_unit_test(uniform_stays_below_one),
        cmocka_unit_test(normal_values_have_the_right_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
