/* Budgets that nobody names: what a run may take then.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "recipe/setup.h"

#define MIB (INT64_C(1) << 20)

static void host_memory_is_a_share_of_what_is_free(void **state)
{
    (void)state;
    assert_int_equal(ebb_setup_host_share(8192 * MIB), 6144 * MIB);
    assert_int_equal(ebb_setup_host_share(100 * MIB), 75 * MIB);
    /* What fits without moves is not refused for want of a few rows. */
    assert_int_equal(ebb_setup_host_share(80 * MIB), 64 * MIB);
    assert_int_equal(ebb_setup_host_share(1), 64 * MIB);
}

static void free_memory_that_is_not_known_bounds_nothing(void **state)
{
    (void)state;
    assert_int_equal(ebb_setup_host_share(0), 0);
    assert_int_equal(ebb_setup_host_share(-1), 0);
}

static void a_resumed_run_has_the_budgets_that_it_had(void **state)
{
    (void)state;
    assert_int_equal(ebb_setup_resumed_budget(70 * MIB, 80 * MIB, 90 * MIB), 80 * MIB);
    assert_int_equal(ebb_setup_resumed_budget(90 * MIB, 80 * MIB, 0), 80 * MIB);
    /* Not where there is less now, nor where there was none. */
    assert_int_equal(ebb_setup_resumed_budget(50 * MIB, 80 * MIB, 60 * MIB), 50 * MIB);
    assert_int_equal(ebb_setup_resumed_budget(50 * MIB, 0, 60 * MIB), 50 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_is_a_share_of_what_is_free),
        cmocka_unit_test(free_memory_that_is_not_known_bounds_nothing),
        cmocka_unit_test(a_resumed_run_has_the_budgets_that_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
