/* Lines of text from a descriptor, in whose wait a signal may come.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_LINES_H
#define EBB_LINES_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* {0} with a descriptor is valid. */
struct ebb_lines {
    int fd;              /* borrowed */
    struct ebb_str held; /* what was read and not given out, behind the line that was */
    size_t given;        /* bytes of the line that was given out last */
    int64_t number;      /* its number, from 1 */
    bool ended;
};

enum ebb_line_event {
    EBB_LINE_TEXT, /* a line */
    EBB_LINE_END,  /* there is no more */
    EBB_LINE_STOP  /* stop_fd has something to read, which stays there */
};

/* Waits for the next line. *line is it without its newline ("\r\n" too), borrowed until the next
 * call; a last line need not have one. EBB_BAD_FILE for a line that is not UTF-8 or holds NUL; the
 * next call goes on behind it. */
enum ebb_status ebb_lines_next(struct ebb_ctx *ctx, struct ebb_lines *lines, int stop_fd,
                               const char **line, enum ebb_line_event *event);
void ebb_lines_free(struct ebb_ctx *ctx, struct ebb_lines *lines);

#ifdef __cplusplus
}
#endif
#endif
