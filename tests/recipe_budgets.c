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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_is_a_share_of_what_is_free),
        cmocka_unit_test(free_memory_that_is_not_known_bounds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
