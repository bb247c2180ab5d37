/* How much of a range is pinned, by a system that grants so much and no more.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_pin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

enum { PAGE = 4096, PAGES = 160, BYTES = PAGE * PAGES };

struct system {
    char *start, *pinned; /* NULL: nothing is */
    size_t limit, bytes;
    int calls;
    int grants; /* so many, and then none */
};

static bool pin(void *user, char *start, size_t bytes)
{
    struct system *system = (struct system *)user;
    system->calls++;
    assert_null(system->pinned);
    assert_true(bytes > 0 && bytes % PAGE == 0);
    assert_ptr_equal(start + bytes, system->start + BYTES); /* always the end */
    if (bytes > system->limit || system->grants == 0) return false;
    system->grants--;
    system->pinned = start;
    system->bytes = bytes;
    return true;
}

static void unpin(void *user, char *start)
{
    struct system *system = (struct system *)user;
    assert_ptr_equal(system->pinned, start);
    system->pinned = NULL;
    system->bytes = 0;
}

static size_t pin_all(struct system *system)
{
    static char memory[BYTES];
    const struct ebb_pinner pinner = {system, pin, unpin};
    system->start = memory;
    size_t pinned = ebb_pin_end(&pinner, memory, BYTES, PAGE);
    assert_int_equal(pinned, system->bytes); /* what it says is so */
    return pinned;
}

static void all_that_is_granted_at_once_takes_one_call(void **state)
{
    (void)state;
    struct system system = {.limit = BYTES, .grants = 100};
    assert_int_equal(pin_all(&system), BYTES);
    assert_int_equal(system.calls, 1);
}

static void what_is_granted_is_found_to_a_sixteenth(void **state)
{
    (void)state;
    for (size_t limit = 0; limit < BYTES; limit += PAGE / 2) {
        struct system system = {.limit = limit, .grants = 100};
        size_t pinned = pin_all(&system);
        assert_true(pinned <= limit && pinned + BYTES / 16 + PAGE >= limit);
        assert_true(system.calls <= 6);
    }
}

static void a_system_that_refuses_what_it_granted_pins_nothing(void **state)
{
    (void)state;
    for (int grants = 0; grants < 4; grants++) {
        struct system system = {.limit = BYTES / 3, .grants = grants};
        size_t pinned = pin_all(&system);
        assert_true(grants > 0 || pinned == 0);
    }
}

static void no_bytes_are_no_call(void **state)
{
    (void)state;
    struct system system = {.limit = 0};
    const struct ebb_pinner pinner = {&system, pin, unpin};
    assert_int_equal(ebb_pin_end(&pinner, NULL, 0, PAGE), 0);
    assert_int_equal(system.calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_granted_at_once_takes_one_call),
        cmocka_unit_test(what_is_granted_is_found_to_a_sixteenth),
        cmocka_unit_test(a_system_that_refuses_what_it_granted_pins_nothing),
        cmocka_unit_test(no_bytes_are_no_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
