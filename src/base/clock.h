/* Clocks, the machine's memory, and the progress line.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CLOCK_H
#define EBB_CLOCK_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

double ebb_clock_seconds(void); /* monotonic */
double ebb_clock_unix(void);    /* since 1970 */
void ebb_clock_iso(char out[32]); /* "2026-12-01T22:34:44Z" */
/* Physical memory, or the control group's limit (version 2) where that is less. */
int64_t ebb_host_bytes_total(void);
int64_t ebb_host_bytes_available(void);
int64_t ebb_process_bytes_now(void);  /* resident set */
int64_t ebb_process_bytes_peak(void); /* its high-water mark */
/* Processors this process may use: by affinity and by the control group's quota. */
int ebb_cpu_count(void);
void ebb_cpu_name(char *out, size_t out_bytes); /* "AMD EPYC 7B13", or "unknown" */

/* One line that is drawn again in place on a terminal, and an ordinary line otherwise. The text may
 * hold colour sequences (ESC [ 32 m and the like): they reach a terminal only, and not if NO_COLOR
 * is set. A line that is drawn again is cut to the terminal's width. Writes to stderr, in order
 * with log lines. */
struct ebb_progress;
/* NULL after EBB_NO_MEMORY; the caller frees. */
struct ebb_progress *ebb_progress_create(struct ebb_ctx *ctx);
/* `keep`: the line stays when the next is drawn (always so without a terminal). */
void ebb_progress_show(struct ebb_progress *progress, bool keep, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool ebb_progress_is_live(const struct ebb_progress *progress);
void ebb_progress_free(struct ebb_progress *progress); /* ends a live line; accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
