/* Child processes: output, ends of all kinds, signals, stops, children of a parent that is gone.
 * The child is this program with other words. SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"

struct fixture {
    struct ebb_ctx *ctx;
    char *dir, *log;
};

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->ctx = ebb_ctx_create();
    if (ebb_dir_create_temp(f->ctx, &f->dir) != EBB_OK) return -1;
    f->log = ebb_path_join(f->ctx, f->dir, "log");
    *state = f;
    return f->log ? 0 : -1;
}

static int end(void **state)
{
    struct fixture *f = *state;
    enum ebb_status status = ebb_dir_remove(f->ctx, f->dir);
    ebb_mem_free(f->ctx, f->log);
    ebb_mem_free(f->ctx, f->dir);
    int64_t left = ebb_mem_bytes_now(f->ctx);
    ebb_ctx_free(f->ctx);
    free(f);
    return status == EBB_OK && left == 0 ? 0 : -1;
}

static struct ebb_process *start(struct fixture *f, const char *what)
{
    char *words[] = {(char *)"test", (char *)what, f->log, NULL};
    struct ebb_process *process;
    assert_int_equal(ebb_process_start(f->ctx, words, f->log, &process), EBB_OK);
    return process;
}

static enum ebb_process_state wait_for(struct fixture *f, struct ebb_process *process, int stop_fd,
                                       double seconds, struct ebb_str *out)
{
    enum ebb_process_state state;
    assert_int_equal(ebb_process_wait(process, stop_fd, seconds, out, &state), EBB_OK);
    (void)f;
    return state;
}

static void output_and_exit_code_come_back(void **state)
{
    struct fixture *f = *state;
    struct ebb_str out = {0};
    struct ebb_process *process = start(f, "talk");
    assert_int_equal(wait_for(f, process, -1, 30, &out), EBB_PROCESS_ENDED);
    /* More than a pipe holds. */
    assert_int_equal(out.bytes, 100000);
    assert_int_equal(ebb_process_end(process).exit_code, 3);
    assert_int_equal(ebb_process_end(process).signal, 0);
    ebb_process_free(process);
    ebb_str_free(f->ctx, &out);
}

static void errors_are_appended_to_the_log(void **state)
{
    struct fixture *f = *state;
    struct ebb_str out = {0};
    struct ebb_map map;
    for (int i = 0; i < 2; i++) {
        struct ebb_process *process = start(f, "complain");
        assert_int_equal(wait_for(f, process, -1, 30, &out), EBB_PROCESS_ENDED);
        ebb_process_free(process);
    }
    assert_int_equal(ebb_map_open(f->ctx, f->log, &map), EBB_OK);
    assert_int_equal(map.bytes, 14);
    assert_memory_equal(map.data, "so bad\nso bad\n", 14);
    ebb_map_close(&map);
    assert_int_equal(out.bytes, 0);
}

static void a_signal_that_ended_it_is_told(void **state)
{
    struct fixture *f = *state;
    struct ebb_str out = {0};
    struct ebb_process *process = start(f, "die");
    assert_int_equal(wait_for(f, process, -1, 30, &out), EBB_PROCESS_ENDED);
    assert_int_equal(ebb_process_end(process).signal, SIGKILL);
    ebb_process_free(process);
}

/* What the parent blocks and ignores, the child does not. */
static void it_starts_with_the_signals_defaults(void **state)
{
    struct fixture *f = *state;
    struct ebb_str out = {0};
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, &before), 0);
    signal(SIGTERM, SIG_IGN);
    struct ebb_process *process = start(f, "terminate");
    signal(SIGTERM, SIG_DFL);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(wait_for(f, process, -1, 30, &out), EBB_PROCESS_ENDED);
    assert_int_equal(ebb_process_end(process).signal, SIGTERM);
    ebb_process_free(process);
}

static void a_wait_ends_with_its_time_or_at_a_stop(void **state)
{
    struct fixture *f = *state;
    struct ebb_str out = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct ebb_process *process = start(f, "sleep");
    assert_int_equal(wait_for(f, process, ends[0], 0.05, &out), EBB_PROCESS_RUNS);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(wait_for(f, process, ends[0], 30, &out), EBB_PROCESS_STOPPED);
    double began = ebb_clock_seconds();
    ebb_process_free(process); /* it is not waited for */
    assert_true(ebb_clock_seconds() - began < 10);
    close(ends[0]);
    close(ends[1]);
}

/* The child of a child that is killed: its pid is in the log. */
static void a_child_does_not_outlive_its_parent(void **state)
{
    struct fixture *f = *state;
    struct ebb_str out = {0};
    struct ebb_map map;
    struct ebb_process *process = start(f, "nest");
    assert_int_equal(wait_for(f, process, -1, 30, &out), EBB_PROCESS_ENDED);
    assert_int_equal(ebb_process_end(process).signal, SIGKILL);
    ebb_process_free(process);
    assert_int_equal(ebb_map_open(f->ctx, f->log, &map), EBB_OK);
    int pid = 0;
    assert_int_equal(sscanf((const char *)map.data, "%d\n", &pid), 1);
    ebb_map_close(&map);
    for (int i = 0; i < 200 && kill(pid, 0) == 0; i++) {
        char path[64], status[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "r");
        if (file == NULL) break;
        size_t got = fread(status, 1, sizeof status - 1, file);
        fclose(file);
        if (got > 0 && strstr(status, ") Z ")) return; /* dead, and nobody asks for its end */
        usleep(50000);
        if (i == 199) fail_msg("the child still runs: %s", status);
    }
}

/* ---- the child ------------------------------------------------------------------------------- */

static int nest(const char *log)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    char *words[] = {(char *)"test", (char *)"follow", (char *)log, NULL};
    struct ebb_process *process;
    struct ebb_map map = {0};
    if (ebb_process_start(ctx, words, log, &process) != EBB_OK) return 1;
    while (map.bytes == 0) { /* until it follows */
        if (ebb_map_open(ctx, log, &map) != EBB_OK) ebb_error_clear(ctx);
        if (map.bytes == 0) usleep(10000);
    }
    return raise(SIGKILL);
}

static int play(const char *what, const char *log)
{
    if (strcmp(what, "talk") == 0) {
        for (int i = 0; i < 100000; i++) putchar('x');
        return 3;
    }
    if (strcmp(what, "complain") == 0) fputs("so bad\n", stderr);
    if (strcmp(what, "die") == 0) raise(SIGKILL);
    if (strcmp(what, "terminate") == 0) raise(SIGTERM);
    if (strcmp(what, "sleep") == 0) sleep(60);
    if (strcmp(what, "nest") == 0) return nest(log);
    if (strcmp(what, "follow") == 0) {
        ebb_process_follow_parent();
        fprintf(stderr, "%d\n", (int)getpid());
        sleep(60);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3) return play(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(output_and_exit_code_come_back, begin, end),
        cmocka_unit_test_setup_teardown(errors_are_appended_to_the_log, begin, end),
        cmocka_unit_test_setup_teardown(a_signal_that_ended_it_is_told, begin, end),
        cmocka_unit_test_setup_teardown(it_starts_with_the_signals_defaults, begin, end),
        cmocka_unit_test_setup_teardown(a_wait_ends_with_its_time_or_at_a_stop, begin, end),
        cmocka_unit_test_setup_teardown(a_child_does_not_outlive_its_parent, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
