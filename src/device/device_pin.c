/* How much of a range the system pins, by halving.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_pin.h"

enum { STEPS = 4 };

size_t ebb_pin_end(const struct ebb_pinner *pinner, char *start, size_t bytes, size_t page)
{
    char *end = start + bytes;
    size_t granted = 0, refused = bytes;
    bool held = false; /* `granted` is pinned now */
    if (bytes == 0 || pinner->pin(pinner->user, start, bytes)) return bytes;
    for (int i = 0; i < STEPS && refused - granted > page; i++) {
        size_t middle = granted + (refused - granted) / 2 / page * page;
        if (middle == granted) break;
        if (held) pinner->unpin(pinner->user, end - granted);
        held = pinner->pin(pinner->user, end - middle, middle);
        *(held ? &granted : &refused) = middle;
    }
    if (!held && granted > 0) held = pinner->pin(pinner->user, end - granted, granted);
    return held ? granted : 0;
}
