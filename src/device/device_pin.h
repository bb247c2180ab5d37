/* How much of a range the system pins: all of it, or what is found by trying.
 *
 * A range is pinned in one piece, since copies may not run over two; and it is its end, since what
 * moves least often lies at the start of the host space (plan/plan.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_PIN_H
#define EBB_DEVICE_PIN_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who pins: on a GPU its driver. */
struct ebb_pinner {
    void *user;
    bool (*pin)(void *user, char *start, size_t bytes); /* false: the system refuses */
    void (*unpin)(void *user, char *start);
};

/* Pins the end of [start, start + bytes), whole pages: all of it, or where that is refused what is
 * granted, to within a sixteenth of the whole. Returns its bytes; 0: nothing is pinned. */
size_t ebb_pin_end(const struct ebb_pinner *pinner, char *start, size_t bytes, size_t page);

#ifdef __cplusplus
}
#endif
#endif
