/* What the rest of this room needs of the context: a shared way to draw on stderr.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CONTEXT_INT_H
#define EBB_CONTEXT_INT_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes to stderr between log lines, never inside one. `live` says that the text is a line without
 * an end, which the next log line has to clear first. */
void ebb_log_draw(struct ebb_ctx *ctx, const char *text, size_t bytes, bool live);
/* Ends the live line if one is still showing. */
void ebb_log_end_live(struct ebb_ctx *ctx);

#ifdef __cplusplus
}
#endif
#endif
