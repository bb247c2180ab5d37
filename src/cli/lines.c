/* Lines by poll() and read().
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lines.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Waits until there is something to read; *stop: it is the signal. */
static enum ebb_status wait_for(struct ebb_ctx *ctx, int fd, int stop_fd, bool *stop)
{
    struct pollfd entries[2] = {{.fd = fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    while (poll(entries, stop_fd < 0 ? 1 : 2, -1) < 0)
        if (errno != EINTR)
            return EBB_FAIL(ctx, EBB_IO, "cannot wait for standard input: %s", strerror(errno));
    *stop = stop_fd >= 0 && (entries[1].revents & POLLIN);
    return EBB_OK;
}

static enum ebb_status read_more(struct ebb_ctx *ctx, struct ebb_lines *lines)
{
    char buffer[4096];
    ssize_t bytes;
    do bytes = read(lines->fd, buffer, sizeof buffer);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0) return EBB_FAIL(ctx, EBB_IO, "cannot read standard input: %s", strerror(errno));
    lines->ended = bytes == 0;
    return bytes > 0 ? ebb_str_add(ctx, &lines->held, buffer, (size_t)bytes) : EBB_OK;
}

static enum ebb_status give(struct ebb_ctx *ctx, struct ebb_lines *lines, size_t bytes,
                            const char **line)
{
    char *text = lines->held.data;
    lines->number++;
    lines->given = bytes + 1; /* also one that is refused: the next call goes on behind it */
    const char *nul = (const char *)memchr(text, 0, bytes);
    size_t valid = nul ? (size_t)(nul - text) : bytes;
    valid = ebb_text_utf8_valid(text, valid);
    if (valid != bytes)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "line %lld of standard input is not text: byte %zu is %s",
                        (long long)lines->number, valid + 1, text[valid] ? "no UTF-8" : "NUL");
    text[bytes] = 0; /* in the place of the newline, or of the text's own end */
    if (bytes > 0 && text[bytes - 1] == '\r') text[bytes - 1] = 0;
    *line = text;
    return EBB_OK;
}

static void drop_given(struct ebb_lines *lines)
{
    struct ebb_str *held = &lines->held;
    size_t bytes = lines->given < held->bytes ? lines->given : held->bytes;
    if (bytes > 0) memmove(held->data, held->data + bytes, held->bytes - bytes);
    held->bytes -= bytes;
    lines->given = 0;
}

enum ebb_status ebb_lines_next(struct ebb_ctx *ctx, struct ebb_lines *lines, int stop_fd,
                               const char **line, enum ebb_line_event *event)
{
    bool stop = false;
    *event = EBB_LINE_TEXT;
    drop_given(lines);
    for (;;) {
        const char *text = lines->held.data;
        const char *end = text ? (const char *)memchr(text, '\n', lines->held.bytes) : NULL;
        if (end) return give(ctx, lines, (size_t)(end - text), line);
        if (lines->ended && lines->held.bytes > 0) return give(ctx, lines, lines->held.bytes, line);
        *event = EBB_LINE_END;
        if (lines->ended) return EBB_OK;
        EBB_TRY(wait_for(ctx, lines->fd, stop_fd, &stop));
        *event = EBB_LINE_STOP;
        if (stop) return EBB_OK;
        EBB_TRY(read_more(ctx, lines));
        *event = EBB_LINE_TEXT;
    }
}

void ebb_lines_free(struct ebb_ctx *ctx, struct ebb_lines *lines)
{
    ebb_str_free(ctx, &lines->held);
}
