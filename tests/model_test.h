/* What the tests of src/model/ share: a context, a folder of their own, and checks of failures.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_TEST_H
#define EBB_MODEL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

/* What each case gets. */
struct room {
    struct ebb_ctx *ctx;
    char dir[64];
    char warning[EBB_ERROR_TEXT]; /* the last log line */
};

static inline void room_log(void *user, enum ebb_log_level level, const char *topic,
                            const char *text)
{
    struct room *room = (struct room *)user;
    (void)level;
    (void)topic;
    snprintf(room->warning, sizeof room->warning, "%s", text);
}

static inline int room_open(void **state)
{
    struct room *room = (struct room *)calloc(1, sizeof *room);
    room->ctx = ebb_ctx_create();
    ebb_ctx_set_log(room->ctx, room_log, room);
    snprintf(room->dir, sizeof room->dir, "/tmp/ebb_model_XXXXXX");
    if (mkdtemp(room->dir) == NULL) return -1;
    *state = room;
    return 0;
}

/* Every case leaves no memory behind. */
static inline int room_close(void **state)
{
    struct room *room = (struct room *)*state;
    (void)ebb_dir_remove(room->ctx, room->dir);
    int64_t left = ebb_mem_bytes_now(room->ctx);
    ebb_ctx_free(room->ctx);
    free(room);
    if (left != 0) print_error("%lld bytes were not freed\n", (long long)left);
    return left == 0 ? 0 : -1;
}

/* "dir/name" in `out`, which is returned. */
static inline const char *room_path(const struct room *room, const char *name, char out[256])
{
    snprintf(out, 256, "%s/%s", room->dir, name);
    return out;
}

static inline void room_write(struct room *room, const char *name, const void *data, size_t bytes)
{
    char path[256];
    assert_int_equal(ebb_file_write(room->ctx, room_path(room, name, path), data, bytes), EBB_OK);
}

/* The call failed with `status`, and its text holds `part`. Clears the error. */
static inline void room_failed(struct room *room, enum ebb_status got, enum ebb_status wanted,
                               const char *part)
{
    const char *text = ebb_error_text(room->ctx);
    if (got != wanted || strstr(text, part) == NULL)
        fail_msg("got %s: \"%s\"\nwanted %s with \"%s\"", ebb_status_name(got), text,
                 ebb_status_name(wanted), part);
    assert_int_equal(ebb_error_status(room->ctx), wanted);
    ebb_error_clear(room->ctx);
}

#define ROOM_OK(room, call)                                                                        \
    do {                                                                                           \
        enum ebb_status room_status = (call);                                                      \
        if (room_status != EBB_OK) fail_msg("%s: %s", #call, ebb_error_text((room)->ctx));         \
    } while (0)

#define ROOM_CASE(name) cmocka_unit_test_setup_teardown(name, room_open, room_close)

#endif
