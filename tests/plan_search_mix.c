/* Estimates of the search: which mixes of sets look best. Nets, sets and costs are made up, small
 * enough to be seen through.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <fenv.h>
#include <math.h>

#include "plan/search_int.h"

enum { LAYERS = 8 };

struct test {
    struct ebb_net net;
    struct ebb_mix_costs costs;
    struct ebb_sets sets;
    struct ebb_mixes mixes;
};

/* Two sets of one slot: one keeps, the other makes again. */
static int open_test(void **state)
{
    static struct test test;
    struct test *t = &test;
    memset(t, 0, sizeof *t);
    t->net = (struct ebb_net){.layers = LAYERS, .slot_count = 1};
    t->costs.net = &t->net;
    t->costs.layers = LAYERS;
    t->costs.keep_seconds = 1;
    t->costs.device_budget = t->costs.host_budget = HUGE_VAL;
    t->sets.count = 2;
    t->sets.at[0] = (struct ebb_set){.policy = {EBB_POLICY_KEEP}, .every = 1, .device = 100};
    t->sets.at[1] = (struct ebb_set){.policy = {EBB_POLICY_RECOMPUTE}, .every = 1, .seconds = 0.5};
    *state = t;
    return 0;
}

static void layers_that_fit_get_the_faster_set(void **state)
{
    struct test *t = *state;
    t->costs.device_budget = 350;
    ebb_mixes_find(&t->costs, &t->sets, &t->mixes);
    assert_true(t->mixes.count > 0);
    const struct ebb_mix *best = &t->mixes.at[0];
    assert_int_equal(best->ranges, 2);
    assert_int_equal(best->set[0], 1);
    assert_int_equal(best->layers[0], LAYERS - 3);
    assert_int_equal(best->layers[1], 3);
    assert_true(fabs(best->seconds - (1 + 5 * 0.5)) < 1e-12);
}

/* As fast and as large, but with less beside it while backward is there: the only one that fits. */
static void a_set_that_takes_less_room_is_looked_at(void **state)
{
    struct test *t = *state;
    t->sets.at[0] = t->sets.at[1];
    t->costs.room[0] = 500;
    t->costs.room[1] = 200;
    t->costs.device_budget = 300;
    ebb_mixes_find(&t->costs, &t->sets, &t->mixes);
    assert_int_equal(t->mixes.count, 1);
    assert_int_equal(t->mixes.at[0].set[0], 1);
}

/* Without a budget a room that is not known is no more than there is. */
static void rooms_that_are_not_known_are_no_invalid_sums(void **state)
{
    struct test *t = *state;
    t->costs.room[0] = t->costs.room[1] = HUGE_VAL;
    feclearexcept(FE_ALL_EXCEPT);
    ebb_mixes_find(&t->costs, &t->sets, &t->mixes);
    assert_false(fetestexcept(FE_INVALID));
    assert_true(t->mixes.count > 0 && t->mixes.at[0].seconds == 1);
    t->costs.device_budget = 1e9;
    ebb_mixes_find(&t->costs, &t->sets, &t->mixes);
    assert_int_equal(t->mixes.count, 0);
    assert_false(fetestexcept(FE_INVALID));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(layers_that_fit_get_the_faster_set, open_test),
        cmocka_unit_test_setup(a_set_that_takes_less_room_is_looked_at, open_test),
        cmocka_unit_test_setup(rooms_that_are_not_known_are_no_invalid_sums, open_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
