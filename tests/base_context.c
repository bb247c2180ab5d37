/* The context: first error, log lines and topics, warnings given once, counted and failing memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/context.h"

static int make_ctx(void **state)
{
    unsetenv("EBB_LOG");
    *state = ebb_ctx_create();
    return *state != NULL ? 0 : -1;
}

static int free_ctx(void **state)
{
    int64_t left = ebb_mem_bytes_now(*state);
    ebb_ctx_free(*state);
    return left == 0 ? 0 : -1;
}

struct lines {
    int count;
    enum ebb_log_level level;
    char topic[64], text[8192];
};

static void keep_line(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    struct lines *lines = user;
    lines->count++;
    lines->level = level;
    snprintf(lines->topic, sizeof lines->topic, "%s", topic);
    snprintf(lines->text, sizeof lines->text, "%s", text);
}

static void statuses_have_names_and_exit_codes(void **state)
{
    (void)state;
    for (int i = 0; i < EBB_STATUS_COUNT; i++) {
        assert_true(strlen(ebb_status_name((enum ebb_status)i)) > 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(ebb_status_name((enum ebb_status)i),
                                    ebb_status_name((enum ebb_status)j));
    }
    assert_string_equal(ebb_status_name(EBB_NO_MEMORY), "out of memory");
    assert_string_equal(ebb_status_name(EBB_STATUS_COUNT), "unknown status");
    assert_int_equal(ebb_status_exit_code(EBB_OK), 0);
    assert_int_equal(ebb_status_exit_code(EBB_IO), 1);
    assert_int_equal(ebb_status_exit_code(EBB_BAD_CONFIG), 2);
    assert_int_equal(ebb_status_exit_code(EBB_DOES_NOT_FIT), 3);
    assert_int_equal(ebb_status_exit_code(EBB_DEVICE), 4);
    assert_int_equal(ebb_status_exit_code(EBB_INTERRUPTED), 130);
    assert_int_equal(ebb_status_exit_code(EBB_STATUS_COUNT), 1);
}

static void first_failure_is_kept_until_cleared(void **state)
{
    struct ebb_ctx *ctx = *state;
    assert_int_equal(ebb_error_status(ctx), EBB_OK);
    assert_string_equal(ebb_error_text(ctx), "");
    assert_string_equal(ebb_error_where(ctx), "");
    errno = ENOENT;
    assert_int_equal(EBB_FAIL(ctx, EBB_BAD_FILE, "row %d is bad", 7), EBB_BAD_FILE);
    int line = __LINE__ - 1;
    assert_int_equal(errno, ENOENT);
    assert_int_equal(EBB_FAIL(ctx, EBB_IO, "second"), EBB_IO);
    assert_int_equal(ebb_error_status(ctx), EBB_BAD_FILE);
    assert_string_equal(ebb_error_text(ctx), "row 7 is bad");
    char where[64];
    snprintf(where, sizeof where, "base_context.c:%d", line);
    assert_string_equal(ebb_error_where(ctx), where);
    ebb_error_clear(ctx);
    assert_string_equal(ebb_error_text(ctx), "");
    EBB_FAIL(ctx, EBB_IO, "third");
    assert_string_equal(ebb_error_text(ctx), "third");
}

static void long_error_text_is_cut_between_characters(void **state)
{
    struct ebb_ctx *ctx = *state;
    char text[2 * EBB_ERROR_TEXT + 1];
    for (size_t shift = 0; shift < 2; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 1 < sizeof text; i += 2) memcpy(text + i, "\xc3\xa4", 2);
        text[sizeof text - 1 - shift] = '\0';
        ebb_error_clear(ctx);
        EBB_FAIL(ctx, EBB_FAILED, "%s", text);
        size_t n = strlen(ebb_error_text(ctx));
        assert_in_range(n, EBB_ERROR_TEXT - 3, EBB_ERROR_TEXT - 1);
        assert_string_equal(ebb_error_text(ctx) + n - 3, "...");
        assert_int_equal((unsigned char)ebb_error_text(ctx)[n - 4], 0xa4);
    }
}

static void messages_are_readable_whatever_they_quote(void **state)
{
    struct ebb_ctx *ctx = *state;
    EBB_FAIL(ctx, EBB_IO, "key '%s' and '%.1s'\n\tbad: %s", "\xff\xc3\xa4\xc3", "\xc3\xa4",
             "\x1b[2J\r\x7f");
    assert_string_equal(ebb_error_text(ctx), "key '?\xc3\xa4?' and '?'\n\tbad: \\x1b[2J\\x0d\\x7f");
}

static void *fail_often(void *ctx)
{
    for (int i = 0; i < 200; i++) EBB_FAIL(ctx, EBB_IO, "from a thread");
    return NULL;
}

static void failures_of_many_threads_leave_one_whole_text(void **state)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fail_often, *state), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_string_equal(ebb_error_text(*state), "from a thread");
}

static void log_lines_reach_the_sink(void **state)
{
    struct ebb_ctx *ctx = *state;
    struct lines lines = {0};
    ebb_ctx_set_log(ctx, keep_line, &lines);
    ebb_log(ctx, EBB_LOG_INFO, "train", "step %d", 3);
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines.level, EBB_LOG_INFO);
    assert_string_equal(lines.topic, "train");
    assert_string_equal(lines.text, "step 3");
    ebb_log(ctx, EBB_LOG_DEBUG, "train", "hidden");
    assert_int_equal(lines.count, 1);
}

static void warnings_appear_once_per_key(void **state)
{
    struct ebb_ctx *ctx = *state;
    struct lines lines = {0};
    ebb_ctx_set_log(ctx, keep_line, &lines);
    for (int i = 0; i < 3; i++) ebb_warn_once(ctx, "pinned", "number %d", i);
    assert_int_equal(lines.count, 1);
    assert_string_equal(lines.text, "number 0");
    assert_int_equal(lines.level, EBB_LOG_WARNING);
    ebb_warn_once(ctx, "pinned2", "another");
    assert_int_equal(lines.count, 2);
    ebb_warn_once(ctx, "pinned", "again");
    assert_int_equal(lines.count, 2);
}

static void debug_topics_come_from_the_environment(void **state)
{
    (void)state;
    setenv("EBB_LOG", "offload, mem", 1);
    struct ebb_ctx *ctx = ebb_ctx_create();
    assert_true(ebb_log_enabled(ctx, EBB_LOG_DEBUG, "offload"));
    assert_true(ebb_log_enabled(ctx, EBB_LOG_DEBUG, "mem"));
    assert_false(ebb_log_enabled(ctx, EBB_LOG_DEBUG, "me"));
    assert_false(ebb_log_enabled(ctx, EBB_LOG_DEBUG, "memo"));
    assert_false(ebb_log_enabled(ctx, EBB_LOG_DEBUG, NULL));
    assert_true(ebb_log_enabled(ctx, EBB_LOG_INFO, "train"));
    ebb_ctx_free(ctx);
    setenv("EBB_LOG", "all", 1);
    ctx = ebb_ctx_create();
    assert_true(ebb_log_enabled(ctx, EBB_LOG_DEBUG, "anything"));
    ebb_ctx_free(ctx);
    unsetenv("EBB_LOG");
}

/* They may come from data, and a terminal would obey them. */
static void default_sink_shows_control_characters(void **state)
{
    struct ebb_ctx *ctx = *state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    ebb_log(ctx, EBB_LOG_INFO, "data", "a\033]0;title\007b\r\n\tc\xc2\x9b d\xc3\xa9");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    char text[256];
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(n > 0);
    text[n] = '\0';
    assert_string_equal(text, "a\\x1b]0;title\\x07b\\x0d\n\tc\\xc2\\x9b d\xc3\xa9\n");
}

static void warnings_are_counted_each_time(void **state)
{
    struct ebb_ctx *ctx = *state;
    ebb_ctx_set_log(ctx, keep_line, &(struct lines){0});
    assert_int_equal(ebb_warn_count(ctx), 0);
    ebb_warn_once(ctx, "a", "one");
    ebb_warn_once(ctx, "a", "two");
    ebb_log(ctx, EBB_LOG_WARNING, "b", "three");
    assert_int_equal(ebb_warn_count(ctx), 2);
    ebb_ctx_set_log(ctx, NULL, NULL);
}

static void default_sink_writes_whole_lines_to_stderr(void **state)
{
    struct ebb_ctx *ctx = *state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    ebb_warn_once(ctx, "k", "budget lowered");
    ebb_log(ctx, EBB_LOG_INFO, "train", "step 1");
    ebb_log(ctx, EBB_LOG_ERROR, "train", "stopped");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    char text[256];
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(n > 0);
    text[n] = '\0';
    assert_string_equal(text, "ebb: warning: budget lowered\nstep 1\nebb: error: stopped\n");
}

static void failed_assertion_aborts(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        EBB_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void memory_is_zeroed_aligned_and_counted(void **state)
{
    struct ebb_ctx *ctx = *state;
    const size_t sizes[] = {0, 1, 63, 64, 1000, (256u << 10) - 1, 256u << 10, 3u << 20};
    void *blocks[8];
    int64_t total = 0;
    for (int i = 0; i < 8; i++) {
        unsigned char *block = blocks[i] = ebb_mem_alloc(ctx, sizes[i]);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        for (size_t j = 0; j < sizes[i]; j++)
            if (block[j] != 0) fail_msg("byte %zu of %zu is not zero", j, sizes[i]);
        memset(block, 0xa5, sizes[i]);
        total += (int64_t)sizes[i];
        assert_int_equal(ebb_mem_bytes_now(ctx), total);
    }
    for (int i = 0; i < 8; i++) ebb_mem_free(ctx, blocks[i]);
    ebb_mem_free(ctx, NULL);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    assert_int_equal(ebb_mem_bytes_peak(ctx), total);
}

static void realloc_keeps_bytes_and_count_across_sizes(void **state)
{
    struct ebb_ctx *ctx = *state;
    const size_t sizes[] = {10, 5000, 300000, 2000000, 9000000, 400000, 100, 0, 77};
    unsigned char *block = NULL;
    size_t held = 0;
    for (int i = 0; i < 9; i++) {
        block = ebb_mem_realloc(ctx, block, sizes[i]);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        assert_int_equal(ebb_mem_bytes_now(ctx), sizes[i]);
        for (size_t j = 0; j < held && j < sizes[i]; j++)
            if (block[j] != (unsigned char)(j * 7))
                fail_msg("byte %zu changed on the way to %zu", j, sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++) block[j] = (unsigned char)(j * 7);
        held = sizes[i];
    }
    ebb_mem_free(ctx, block);
    assert_int_equal(ebb_mem_bytes_peak(ctx), 9000000);
}

static void chosen_allocation_fails_once_or_for_good(void **state)
{
    struct ebb_ctx *ctx = *state;
    ebb_mem_fail_nth(ctx, 2, false);
    void *a = ebb_mem_alloc(ctx, 8);
    assert_non_null(a);
    assert_null(ebb_mem_alloc(ctx, 4096));
    assert_int_equal(ebb_error_status(ctx), EBB_NO_MEMORY);
    assert_non_null(strstr(ebb_error_text(ctx), "4096 bytes (4 KiB) wanted, 8 already in use"));
    void *b = ebb_mem_alloc(ctx, 8);
    assert_non_null(b);
    ebb_mem_fail_nth(ctx, 1, true);
    assert_null(ebb_mem_realloc(ctx, a, 100));
    assert_null(ebb_mem_strdup(ctx, "x"));
    assert_null(ebb_mem_format(ctx, "%d", 1));
    ebb_mem_fail_nth(ctx, 0, false);
    char *c = ebb_mem_format(ctx, "%s-%d", "layer", 12);
    assert_string_equal(c, "layer-12");
    char *d = ebb_mem_strndup(ctx, c, 5);
    assert_string_equal(d, "layer");
    ebb_mem_free(ctx, a);
    ebb_mem_free(ctx, b);
    ebb_mem_free(ctx, c);
    ebb_mem_free(ctx, d);
}

static void impossible_sizes_fail_with_a_message(void **state)
{
    struct ebb_ctx *ctx = *state;
    assert_null(ebb_mem_alloc(ctx, SIZE_MAX));
    assert_int_equal(ebb_error_status(ctx), EBB_NO_MEMORY);
    void *block = ebb_mem_alloc(ctx, 16);
    assert_null(ebb_mem_realloc(ctx, block, SIZE_MAX - 8));
    assert_int_equal(ebb_mem_bytes_now(ctx), 16);
    ebb_mem_free(ctx, block);
}

static void *allocate_often(void *ctx)
{
    for (int i = 0; i < 2000; i++) {
        void *block = ebb_mem_alloc(ctx, (size_t)(i % 300));
        if (block == NULL) return ctx;
        ebb_mem_free(ctx, block);
    }
    return NULL;
}

static void counts_hold_with_many_threads(void **state)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_often, *state), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(ebb_mem_bytes_now(*state), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
    const struct CMUnitTest tests[] = {
        CASE(statuses_have_names_and_exit_codes),
        CASE(first_failure_is_kept_until_cleared),
        CASE(long_error_text_is_cut_between_characters),
        CASE(messages_are_readable_whatever_they_quote),
        CASE(failures_of_many_threads_leave_one_whole_text),
        CASE(log_lines_reach_the_sink),
        CASE(warnings_appear_once_per_key),
        CASE(debug_topics_come_from_the_environment),
        CASE(default_sink_writes_whole_lines_to_stderr),
        CASE(default_sink_shows_control_characters),
        CASE(warnings_are_counted_each_time),
        CASE(failed_assertion_aborts),
        CASE(memory_is_zeroed_aligned_and_counted),
        CASE(realloc_keeps_bytes_and_count_across_sizes),
        CASE(chosen_allocation_fails_once_or_for_good),
        CASE(impossible_sizes_fail_with_a_message),
        CASE(counts_hold_with_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
