/* Inner parts of clock.c that are worth a test of their own: limits of control groups, wherever
 * they are mounted, and the text of the progress line.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CLOCK_INT_H
#define EBB_CLOCK_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the group at `group` ("/a/b") below `mount` and those above it allow, -1 for no limit.
 * *available (may be NULL): what the tightest of them still has, page cache that can be dropped
 * counted as free; -1 for no limit. */
int64_t ebb_cgroup_bytes_limit(const char *mount, const char *group, int64_t *available);
/* Processors' worth of time allowed, rounded up; -1 for no limit. */
int ebb_cgroup_cpu_limit(const char *mount, const char *group);

/* Copies `text` cut to `columns` characters, colour sequences dropped unless `colour`, control
 * characters as blanks. Returns the bytes written before the NUL. */
size_t ebb_progress_fit(const char *text, size_t columns, bool colour, char *out, size_t room);

#ifdef __cplusplus
}
#endif
#endif
