/* What the tests of src/data/ share: a context, a folder of their own, files in it, and checks of
 * failures.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_TEST_H
#define EBB_DATA_TEST_H

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
#include "data/dataset.h"

/* What each case gets. */
struct room {
    struct ebb_ctx *ctx;
    char dir[64];
    char path[256];               /* of the last room_path */
    char warning[EBB_ERROR_TEXT]; /* the last warning */
    char first_warning[EBB_ERROR_TEXT];
    int warnings;
    char info[EBB_ERROR_TEXT]; /* all info lines, one below the other; the last ones that fit */
};

static inline void room_log(void *user, enum ebb_log_level level, const char *topic,
                            const char *text)
{
    struct room *room = (struct room *)user;
    (void)topic;
    if (level <= EBB_LOG_WARNING) {
        snprintf(room->warning, sizeof room->warning, "%s", text);
        if (room->warnings++ == 0) memcpy(room->first_warning, room->warning, EBB_ERROR_TEXT);
    } else if (level == EBB_LOG_INFO) {
        size_t used = strlen(room->info), bytes = strlen(text);
        if (used + bytes + 2 > sizeof room->info) used = 0;
        snprintf(room->info + used, sizeof room->info - used, "%s\n", text);
    }
}

static inline int room_open(void **state)
{
    struct room *room = (struct room *)calloc(1, sizeof *room);
    room->ctx = ebb_ctx_create();
    ebb_ctx_set_log(room->ctx, room_log, room);
    snprintf(room->dir, sizeof room->dir, "/tmp/ebb_data_XXXXXX");
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

static inline const char *room_path(struct room *room, const char *name)
{
    snprintf(room->path, sizeof room->path, "%s/%s", room->dir, name);
    return room->path;
}

/* Writes a file into the room's folder; returns its path. */
static inline const char *room_write_bytes(struct room *room, const char *name, const char *text,
                                           size_t bytes)
{
    const char *path = room_path(room, name);
    char dir[256];
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = '\0';
    assert_int_equal(ebb_dir_create(room->ctx, dir), EBB_OK);
    assert_int_equal(ebb_file_write(room->ctx, path, text, bytes), EBB_OK);
    return path;
}

static inline const char *room_write(struct room *room, const char *name, const char *text)
{
    return room_write_bytes(room, name, text, strlen(text));
}

/* The call failed with this status, and the message has each of the texts (up to NULL); then it
 * is cleared. */
static inline void assert_failed(struct room *room, enum ebb_status got, enum ebb_status wanted,
                                 ...)
{
    const char *text = ebb_error_text(room->ctx);
    if (got != wanted) print_error("status %s: %s\n", ebb_status_name(got), text);
    assert_int_equal(got, wanted);
    assert_int_equal(ebb_error_status(room->ctx), wanted);
    va_list args;
    va_start(args, wanted);
    const char *part;
    while ((part = va_arg(args, const char *)) != NULL) {
        if (strstr(text, part) == NULL) print_error("'%s' is not in the message: %s\n", part, text);
        assert_non_null(strstr(text, part));
    }
    va_end(args);
    ebb_error_clear(room->ctx);
}

static inline void assert_ok(struct room *room, enum ebb_status got)
{
    if (got != EBB_OK) print_error("%s: %s\n", ebb_status_name(got), ebb_error_text(room->ctx));
    assert_int_equal(got, EBB_OK);
}

static inline struct ebb_tokenizer *load_small(struct room *room)
{
    struct ebb_tokenizer *tokenizer;
    assert_ok(room, ebb_tokenizer_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/tokenizer_small",
                                       &tokenizer));
    return tokenizer;
}

/* A case with a room. */
#define ROOM_TEST(name) cmocka_unit_test_setup_teardown(name, room_open, room_close)

#endif
