/* Learning-rate schedules against values worked out by hand from their formulas.
 * SPDX-License-Identifier: Apache-2.0 */
#include "optim/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void check(struct ebb_schedule_keys keys, int64_t step, int64_t total, double want)
{
    double got = ebb_schedule_rate(&keys, step, total);
    if (fabs(got - want) > 1e-15)
        fail_msg("step %lld of %lld: got %.17g, want %.17g", (long long)step, (long long)total, got,
                 want);
}

static void constant_stays(void **state)
{
    (void)state;
    struct ebb_schedule_keys keys = {.schedule = EBB_SCHEDULE_CONSTANT, .learning_rate = 0.5};
    check(keys, 1, 10, 0.5);
    check(keys, 10, 10, 0.5);
}

static void warmup_rises_from_zero_and_ratio_rounds_up(void **state)
{
    (void)state;
    struct ebb_schedule_keys keys = {.schedule = EBB_SCHEDULE_CONSTANT_WITH_WARMUP,
                                     .learning_rate = 1,
                                     .warmup_steps = 4};
    check(keys, 1, 10, 0);
    check(keys, 2, 10, 0.25);
    check(keys, 5, 10, 1);
    keys.warmup_steps = 0;
    keys.warmup_ratio = 0.11; /* of 10 steps: 1.1, so 2 */
    check(keys, 2, 10, 0.5);
    check(keys, 3, 10, 1);
}

static void linear_falls_to_one_step_above_zero(void **state)
{
    (void)state;
    struct ebb_schedule_keys keys = {.schedule = EBB_SCHEDULE_LINEAR,
                                     .learning_rate = 1,
                                     .warmup_steps = 2};
    check(keys, 3, 12, 1);
    check(keys, 8, 12, 0.5);
    check(keys, 12, 12, 0.1);
}

static void cosine_is_half_in_the_middle(void **state)
{
    (void)state;
    struct ebb_schedule_keys keys = {.schedule = EBB_SCHEDULE_COSINE, .learning_rate = 2};
    check(keys, 1, 10, 2);
    check(keys, 6, 10, 1);
    check(keys, 10, 10, 2 * 0.5 * (1 + cos(acos(-1) * 0.9)));
}

static void warmup_stable_decay_is_flat_then_linear(void **state)
{
    (void)state;
    struct ebb_schedule_keys keys = {.schedule = EBB_SCHEDULE_WARMUP_STABLE_DECAY,
                                     .learning_rate = 1,
                                     .warmup_steps = 2,
                                     .decay_ratio = 0.4};
    check(keys, 1, 10, 0);
    check(keys, 3, 10, 1);
    check(keys, 7, 10, 1);
    check(keys, 8, 10, 0.75);
    check(keys, 10, 10, 0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(warmup_rises_from_zero_and_ratio_rounds_up),
        cmocka_unit_test(linear_falls_to_one_step_above_zero),
        cmocka_unit_test(cosine_is_half_in_the_middle),
        cmocka_unit_test(warmup_stable_decay_is_flat_then_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
