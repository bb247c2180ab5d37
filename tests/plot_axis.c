/* Ticks and labels against what a reader would write by hand.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/axis.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct ebb_axis choose(enum ebb_plot_unit unit, enum ebb_plot_scale scale, bool zero,
                              double low, double high, int most)
{
    const struct ebb_plot_axis wanted = {"", unit, scale, zero};
    struct ebb_axis axis;
    ebb_axis_choose(&wanted, low, high, most, &axis);
    return axis;
}

/* All labels with blanks between them. */
static void check_labels(const struct ebb_axis *axis, const char *want)
{
    char got[512] = "";
    size_t used = 0;
    for (int i = 0; i < axis->count; i++)
        used +=
            (size_t)snprintf(got + used, sizeof got - used, "%s%s", i ? " | " : "", axis->label[i]);
    assert_string_equal(got, want);
}

static void linear_ticks_are_one_two_or_five(void **state)
{
    (void)state;
    struct ebb_axis a = choose(EBB_UNIT_PLAIN, EBB_SCALE_LINEAR, false, 0.03, 5.6, 6);
    check_labels(&a, "0 | 1 | 2 | 3 | 4 | 5");
    a = choose(EBB_UNIT_PLAIN, EBB_SCALE_LINEAR, false, 1.01, 1.09, 6);
    check_labels(&a, "1.02 | 1.04 | 1.06 | 1.08");
    a = choose(EBB_UNIT_COUNT, EBB_SCALE_LINEAR, true, 12000, 43000, 6);
    check_labels(&a, "0 | 10k | 20k | 30k | 40k");
    a = choose(EBB_UNIT_PLAIN, EBB_SCALE_LINEAR, true, 0, 2e-4, 5);
    check_labels(&a, "0 | 5e-5 | 1.0e-4 | 1.5e-4 | 2.0e-4");
    a = choose(EBB_UNIT_SHARE, EBB_SCALE_LINEAR, true, 0.01, 0.1, 6);
    check_labels(&a, "0 | 2 % | 4 % | 6 % | 8 % | 10 %");
}

static void bytes_are_in_the_unit_that_suits(void **state)
{
    (void)state;
    const double gib = 1073741824.0;
    struct ebb_axis a = choose(EBB_UNIT_BYTES, EBB_SCALE_LINEAR, true, 2 * gib, 16 * gib, 5);
    check_labels(&a, "0 | 5 | 10 | 15");
    assert_string_equal(a.unit, "GiB");
    assert_true(a.at[1] == 5 * gib);
    a = choose(EBB_UNIT_BYTES, EBB_SCALE_LINEAR, true, 0, 13 * 1048576.0, 8);
    check_labels(&a, "0 | 2 | 4 | 6 | 8 | 10 | 12");
    assert_string_equal(a.unit, "MiB");
}

static void lengths_are_powers_of_two(void **state)
{
    (void)state;
    struct ebb_axis a = choose(EBB_UNIT_TOKENS, EBB_SCALE_LOG2, false, 512, 1 << 20, 12);
    check_labels(&a, "512 | 1k | 2k | 4k | 8k | 16k | 32k | 64k | 128k | 256k | 512k | 1M");
    a = choose(EBB_UNIT_TOKENS, EBB_SCALE_LOG2, false, 1024, 131072, 4);
    check_labels(&a, "2k | 8k | 32k | 128k");
    char text[EBB_AXIS_LABEL];
    assert_string_equal(ebb_axis_length(3000, text), "3000");
    assert_string_equal(ebb_axis_length(98304, text), "96k");
}

static void logarithms_have_decades_or_what_is_between(void **state)
{
    (void)state;
    struct ebb_axis a = choose(EBB_UNIT_PLAIN, EBB_SCALE_LOG10, false, 1e-6, 100, 12);
    check_labels(&a, "1e-6 | 1e-5 | 1e-4 | 0.001 | 0.01 | 0.1 | 1 | 10 | 100");
    a = choose(EBB_UNIT_PLAIN, EBB_SCALE_LOG10, false, 0.3, 40, 12);
    check_labels(&a, "0.5 | 1 | 2 | 5 | 10 | 20");
}

static void logarithm_of_zero_is_linear(void **state)
{
    (void)state;
    struct ebb_axis a = choose(EBB_UNIT_PLAIN, EBB_SCALE_LOG10, false, 0, 100, 6);
    assert_int_equal(a.scale, EBB_SCALE_LINEAR);
}

static void whole_steps_have_no_fractions(void **state)
{
    (void)state;
    struct ebb_axis a = choose(EBB_UNIT_STEP, EBB_SCALE_LINEAR, false, 1, 3, 9);
    check_labels(&a, "1 | 2 | 3");
    a = choose(EBB_UNIT_STEP, EBB_SCALE_LINEAR, false, 7, 7, 9);
    check_labels(&a, "6 | 7 | 8");
}

/* Over ranges of all sizes: ticks rise, lie within, and are as few as was asked. */
static void every_range_has_ticks_within(void **state)
{
    (void)state;
    static const double ends[] = {-1e300, -3e9, -1, -1e-12, 0,      4e-320,
                                  1e-9,   0.7,  1,  1e6,    2.5e14, 1e308};
    enum { ENDS = sizeof ends / sizeof ends[0] };
    for (int i = 0; i < ENDS; i++)
        for (int k = i; k < ENDS; k++)
            for (int unit = EBB_UNIT_PLAIN; unit <= EBB_UNIT_SHARE; unit++)
                for (int scale = EBB_SCALE_LINEAR; scale <= EBB_SCALE_LOG10; scale++)
                    for (int most = 2; most < 12; most += 3) {
                        struct ebb_axis a =
                            choose((enum ebb_plot_unit)unit, (enum ebb_plot_scale)scale, most % 2,
                                   ends[i], ends[k], most);
                        assert_true(isfinite(a.low) && isfinite(a.high) && a.low < a.high);
                        assert_true(a.count <= most);
                        for (int t = 0; t < a.count; t++) {
                            assert_true(a.at[t] >= a.low && a.at[t] <= a.high);
                            assert_true(t == 0 || a.at[t] > a.at[t - 1]);
                            assert_true(a.label[t][0] != 0);
                        }
                    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_ticks_are_one_two_or_five),
        cmocka_unit_test(bytes_are_in_the_unit_that_suits),
        cmocka_unit_test(lengths_are_powers_of_two),
        cmocka_unit_test(logarithms_have_decades_or_what_is_between),
        cmocka_unit_test(logarithm_of_zero_is_linear),
        cmocka_unit_test(whole_steps_have_no_fractions),
        cmocka_unit_test(every_range_has_ticks_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
