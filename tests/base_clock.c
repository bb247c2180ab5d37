/* Clocks, memory and processor counts, control group limits, and the progress line on a terminal
 * and without one.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/clock_int.h"
#include "base/file.h"

static int make_ctx(void **state)
{
    *state = ebb_ctx_create();
    return *state != NULL ? 0 : -1;
}

static int free_ctx(void **state)
{
    int64_t left = ebb_mem_bytes_now(*state);
    ebb_ctx_free(*state);
    return left == 0 ? 0 : -1;
}

static void clocks_go_forward(void **state)
{
    (void)state;
    double before = ebb_clock_seconds();
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    double passed = ebb_clock_seconds() - before;
    assert_true(passed >= 0.002 && passed < 5);
    char iso[32];
    ebb_clock_iso(iso);
    int year, month, day, hour, minute, second;
    char zone, rest;
    assert_int_equal(sscanf(iso, "%4d-%2d-%2dT%2d:%2d:%2d%c%c", &year, &month, &day, &hour, &minute,
                            &second, &zone, &rest),
                     7);
    assert_int_equal(zone, 'Z');
    assert_in_range(year, 2024, 2200);
}

static void memory_figures_fit_together(void **state)
{
    int64_t total = ebb_host_bytes_total(), available = ebb_host_bytes_available();
    assert_true(total > 64 << 20);
    assert_true(available > 0 && available <= total);
    int64_t before = ebb_process_bytes_now();
    assert_true(before > 100000 && before < total);
    enum { BYTES = 32 << 20 };
    char *block = ebb_mem_alloc(*state, BYTES);
    memset(block, 1, BYTES);
    int64_t with = ebb_process_bytes_now();
    assert_true(with >= before + BYTES - (1 << 20));
    ebb_mem_free(*state, block);
    assert_true(ebb_process_bytes_peak() >=
                with - (4 << 20)); /* the kernel sums its counters lazily */
}

static void processor_count_follows_affinity(void **state)
{
    (void)state;
    int count = ebb_cpu_count();
    assert_true(count >= 1);
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    assert_true(count <= CPU_COUNT(&old));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &old)) continue;
        CPU_SET(i, &one);
        break;
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int now = ebb_cpu_count();
    sched_setaffinity(0, sizeof old, &old);
    assert_int_equal(now, 1);
}

static void put(struct ebb_ctx *ctx, const char *root, const char *group, const char *name,
                const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, group);
    assert_int_equal(ebb_dir_create(ctx, path), EBB_OK);
    snprintf(path, sizeof path, "%s%s/%s", root, group, name);
    assert_int_equal(ebb_file_write(ctx, path, text, strlen(text)), EBB_OK);
}

static void tightest_group_on_the_way_up_counts(void **state)
{
    struct ebb_ctx *ctx = *state;
    char root[] = "/tmp/ebb_group_XXXXXX";
    assert_non_null(mkdtemp(root));
    int64_t left = 0;
    assert_int_equal(ebb_cgroup_bytes_limit(root, "/a/b", &left), -1);
    assert_int_equal(left, -1);
    assert_int_equal(ebb_cgroup_cpu_limit(root, "/a/b"), -1);
    put(ctx, root, "/a", "memory.max", "1000000\n");
    put(ctx, root, "/a", "memory.current", "900000\n");
    put(ctx, root, "/a", "memory.stat", "anon 5\ninactive_file 300000\nactive_file 7\n");
    put(ctx, root, "/a", "cpu.max", "150000 100000\n");
    put(ctx, root, "/a/b", "memory.max", "max\n");
    put(ctx, root, "/a/b", "cpu.max", "max 100000\n");
    assert_int_equal(ebb_cgroup_bytes_limit(root, "/a/b", &left), 1000000);
    assert_int_equal(left, 400000);
    assert_int_equal(ebb_cgroup_cpu_limit(root, "/a/b"), 2);
    put(ctx, root, "/a/b", "memory.max", "500000\n");
    put(ctx, root, "/a/b", "memory.current",
        "600000\n"); /* just lowered: over the limit for a moment */
    assert_int_equal(ebb_cgroup_bytes_limit(root, "/a/b", &left), 500000);
    assert_int_equal(left, 0);
    put(ctx, root, "", "memory.max", "70000\n");
    assert_int_equal(ebb_cgroup_bytes_limit(root, "/a/b", NULL), 70000);
    assert_int_equal(ebb_cgroup_bytes_limit(root, "/", NULL), 70000);
    assert_int_equal(ebb_dir_remove(ctx, root), EBB_OK);
}

static void progress_text_is_cut_by_characters(void **state)
{
    (void)state;
    char out[64];
    assert_int_equal(ebb_progress_fit("abcdef", 4, false, out, sizeof out), 4);
    assert_string_equal(out, "abcd");
    ebb_progress_fit("\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", 2, false, out, sizeof out);
    assert_string_equal(out, "\xe2\x82\xac\xe2\x82\xac");
    ebb_progress_fit("\033[32mgreen\033[0m", 3, true, out, sizeof out);
    assert_string_equal(out, "\033[32mgre\033[0m");
    ebb_progress_fit("\033[1;32mgreen\033[0m", 80, false, out, sizeof out);
    assert_string_equal(out, "green");
    ebb_progress_fit("two\nlines\033", 80, false, out, sizeof out);
    assert_string_equal(out, "two lines ");
    assert_int_equal(ebb_progress_fit("\xe2\x82\xac\xe2\x82\xac", 80, false, out, 6),
                     3); /* no room for the second */
}

/* Runs `draw` with stderr replaced and returns what it wrote. */
static void capture(struct ebb_ctx *ctx, int out, int in, void (*draw)(struct ebb_ctx *ctx),
                    char *text, size_t room)
{
    int saved = dup(STDERR_FILENO);
    dup2(out, STDERR_FILENO);
    draw(ctx);
    dup2(saved, STDERR_FILENO);
    close(saved);
    /* A terminal hands on what was written in pieces, and a little later. */
    size_t n = 0;
    struct pollfd ready = {.fd = in, .events = POLLIN};
    while (n + 1 < room && poll(&ready, 1, n ? 200 : 5000) > 0) {
        ssize_t got = read(in, text + n, room - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_true(n > 0);
    text[n] = '\0';
}

static void draw_lines(struct ebb_ctx *ctx)
{
    struct ebb_progress *progress = ebb_progress_create(ctx);
    ebb_progress_show(progress, false, "step %d of \033[1m%d\033[0m", 1, 9);
    ebb_log(ctx, EBB_LOG_INFO, "train", "saved");
    ebb_progress_show(progress, false, "step 2, a text that is wider than the terminal");
    ebb_progress_show(progress, true, "step 3, a text that stays is never cut");
    ebb_progress_show(progress, false, "step 4");
    ebb_progress_free(progress);
}

static void progress_without_a_terminal_is_plain_lines(void **state)
{
    int ends[2];
    char text[1024];
    assert_int_equal(pipe(ends), 0);
    capture(*state, ends[1], ends[0], draw_lines, text, sizeof text);
    close(ends[0]);
    close(ends[1]);
    assert_string_equal(text, "step 1 of 9\nsaved\nstep 2, a text that is wider than the terminal\n"
                              "step 3, a text that stays is never cut\nstep 4\n");
}

static void progress_on_a_terminal_draws_in_place(void **state)
{
    int host = posix_openpt(O_RDWR | O_NOCTTY);
    if (host < 0 || grantpt(host) != 0 || unlockpt(host) != 0) skip(); /* no terminals here */
    int end = open(ptsname(host), O_RDWR | O_NOCTTY);
    if (end < 0) skip();
    struct winsize size = {.ws_row = 24, .ws_col = 20};
    assert_int_equal(ioctl(end, TIOCSWINSZ, &size), 0);
    char text[1024];
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    capture(*state, end, host, draw_lines, text, sizeof text);
    /* The terminal turns \n into \r\n. */
    assert_string_equal(text, "\rstep 1 of \033[1m9\033[0m\033[K"
                              "\r\033[Ksaved\r\n"
                              "\rstep 2, a text that\033[K"
                              "\rstep 3, a text that stays is never cut\033[K\r\n"
                              "\rstep 4\033[K\r\n");
    setenv("NO_COLOR", "1", 1);
    capture(*state, end, host, draw_lines, text, sizeof text);
    assert_int_equal(strncmp(text, "\rstep 1 of 9\033[K", 15), 0);
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    capture(*state, end, host, draw_lines, text, sizeof text);
    assert_int_equal(strncmp(text, "step 1 of 9\r\n", 13), 0);
    close(end);
    close(host);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
    const struct CMUnitTest tests[] = {
        CASE(clocks_go_forward),
        CASE(memory_figures_fit_together),
        CASE(processor_count_follows_affinity),
        CASE(tightest_group_on_the_way_up_counts),
        CASE(progress_text_is_cut_by_characters),
        CASE(progress_without_a_terminal_is_plain_lines),
        CASE(progress_on_a_terminal_draws_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
