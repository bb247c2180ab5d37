/* Names and exit codes of the status list.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <assert.h>
#include <stddef.h>

struct status_row {
    const char *name;
    int exit_code;
};

static const struct status_row rows[] = {
#define STATUS_ROW(id, code, text) {(text), (code)},
    EBB_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};
static_assert(sizeof rows / sizeof rows[0] == EBB_STATUS_COUNT, "one row for each status");

const char *ebb_status_name(enum ebb_status status)
{
    size_t at = (size_t)status;
    return at < EBB_STATUS_COUNT ? rows[at].name : "unknown status";
}

int ebb_status_exit_code(enum ebb_status status)
{
    size_t at = (size_t)status;
    return at < EBB_STATUS_COUNT ? rows[at].exit_code : 1;
}
