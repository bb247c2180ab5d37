/* The parent of `ebb bench`: which points it asks for, how series end, what is kept and gone on
 * with. Points are played by this program: nothing is trained here.
 *
 * A played child appends its job to the file "ran" beside the model's config.json and does what its
 * mode is called for: see `play`.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/file.h"
#include "recipe/bench.h"

static const char model_text[] = "{\"a\": 1}";
static const char child_command[] = "play";

struct fixture {
    struct ebb_ctx *ctx;
    struct ebb_config config;
    struct ebb_options *options;
    struct ebb_results *results; /* of the last run; NULL: it failed */
    char *dir, *words[8];
    int word_count, stop_fd;
    struct ebb_bench_model model;
    bool overwrite;
};

static void ignore_log(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

static void ok(struct ebb_ctx *ctx, enum ebb_status status)
{
    if (status != EBB_OK) fail_msg("%s (%s)", ebb_error_text(ctx), ebb_error_where(ctx));
}

static char *path_of(struct fixture *f, const char *name)
{
    char *path = ebb_path_join(f->ctx, f->dir, name);
    assert_non_null(path);
    return path;
}

static void write_file(struct fixture *f, const char *name, const char *text)
{
    char *path = path_of(f, name);
    ok(f->ctx, ebb_file_write(f->ctx, path, text, strlen(text)));
    ebb_mem_free(f->ctx, path);
}

static void remove_file(struct fixture *f, const char *name)
{
    char *path = path_of(f, name);
    unlink(path);
    ebb_mem_free(f->ctx, path);
}

/* What the children were asked for since the last look, a job a line. */
static void assert_ran(struct fixture *f, const char *wanted)
{
    char *path = path_of(f, "ran");
    struct ebb_map map = {0};
    if (ebb_file_exists(path)) ok(f->ctx, ebb_map_open(f->ctx, path, &map));
    if (strlen(wanted) != map.bytes || (map.bytes && memcmp(wanted, map.data, map.bytes) != 0))
        fail_msg("ran '%.*s', wanted '%s'", (int)map.bytes, (const char *)map.data, wanted);
    ebb_map_close(&map);
    unlink(path);
    ebb_mem_free(f->ctx, path);
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->ctx = ebb_ctx_create();
    ebb_ctx_set_log(f->ctx, ignore_log, NULL);
    ok(f->ctx, ebb_dir_create_temp(f->ctx, &f->dir));
    write_file(f, "config.json", model_text);
    f->model = (struct ebb_bench_model){"m", f->dir};
    f->stop_fd = -1;
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    ebb_results_free(f->results);
    ok(f->ctx, ebb_dir_remove(f->ctx, f->dir));
    ebb_mem_free(f->ctx, f->dir);
    int64_t left = ebb_mem_bytes_now(f->ctx);
    ebb_ctx_free(f->ctx);
    free(f);
    return left == 0 ? 0 : -1;
}

/* The command `ebb bench` of these words, which end with NULL. */
static enum ebb_status run(struct fixture *f, const char *const *words)
{
    ebb_results_free(f->results);
    f->results = NULL;
    f->word_count = 0;
    for (; words[f->word_count]; f->word_count++)
        f->words[f->word_count] = (char *)words[f->word_count];
    const struct ebb_recipe_env env = {.stop_fd = f->stop_fd};
    ok(f->ctx, ebb_options_create(f->ctx, EBB_COMMAND_BENCH, &f->config, &f->options));
    ok(f->ctx, ebb_options_arguments(f->options, f->word_count, f->words));
    ok(f->ctx, ebb_options_check(f->options));
    const struct ebb_bench_request request = {.options = f->options,
                                              .config = &f->config,
                                              .env = &env,
                                              .output_dir = f->dir,
                                              .overwrite = f->overwrite,
                                              .models = &f->model,
                                              .model_count = 1,
                                              .child_command = child_command,
                                              .words = f->words,
                                              .word_count = f->word_count};
    enum ebb_status status = ebb_bench_run(f->ctx, &request, &f->results);
    ebb_options_free(f->options);
    return status;
}
#define RUN(f, ...)                                                                                \
    run(f, (const char *const[]){"device=cpu", "model=m", "memory_budget=1GiB", __VA_ARGS__, NULL})

static const struct ebb_results_series *series_of(const struct fixture *f, const char *mode)
{
    for (int64_t i = 0; i < f->results->count; i++)
        if (strcmp(f->results->series[i].mode, mode) == 0) return &f->results->series[i];
    fail_msg("there is no series of mode %s", mode);
    return NULL;
}

static void assert_error(struct fixture *f, const char *part)
{
    if (strstr(ebb_error_text(f->ctx), part) == NULL)
        fail_msg("'%s' does not contain '%s'", ebb_error_text(f->ctx), part);
    ebb_error_clear(f->ctx);
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static void lengths_ascend_mode_by_mode(void **state)
{
    struct fixture *f = *state;
    ok(f->ctx, RUN(f, "sweep=length=64,16,32", "modes=none,plan", "budgets=1MiB"));
    assert_ran(f, "none 0 16\nnone 0 32\nnone 0 64\n"
                  "plan 1048576 16\nplan 1048576 32\nplan 1048576 64\n");
    assert_int_equal(f->results->count, 2);
    assert_string_equal(f->results->series[1].name, "plan within 1 MiB");
    assert_int_equal(series_of(f, "none")->count, 3);
    assert_true(series_of(f, "none")->points[1].values[EBB_RESULTS_PEAK] == 3200);
    assert_true(isnan(series_of(f, "none")->ended_at));
}

static void budgets_descend_in_the_mode_plan(void **state)
{
    struct fixture *f = *state;
    const char *const words[] = {"device=cpu", "model=m", "sweep=budget=1MiB,2MiB,4MiB",
                                 "max_length=32", NULL};
    ok(f->ctx, run(f, words));
    assert_ran(f, "plan 4194304 32\nplan 2097152 32\nplan 1048576 32\n");
    assert_int_equal(f->results->kind, EBB_RESULTS_OF_BUDGETS);
    assert_string_equal(f->results->series[0].name, "m");
    assert_int_equal(f->results->series[0].count, 2);
    assert_true(f->results->series[0].points[1].values[EBB_RESULTS_BUDGET] == 2097152);
    assert_true(f->results->series[0].ended_at == 1048576);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Each series ends by itself, with what the child said last. */
static void a_series_ends_and_the_sweep_goes_on(void **state)
{
    struct fixture *f = *state;
    ok(f->ctx,
       RUN(f, "sweep=length=16:128:x2", "modes=offload,checkpoint,checkpoint+offload,none"));
    assert_ran(f, "offload 0 16\noffload 0 32\noffload 0 64\n"
                  "checkpoint 0 16\ncheckpoint 0 32\n"
                  "checkpoint+offload 0 16\ncheckpoint+offload 0 32\n"
                  "none 0 16\nnone 0 32\nnone 0 64\nnone 0 128\n");
    const struct ebb_results_series *s = series_of(f, "offload");
    assert_int_equal(s->count, 2);
    assert_true(s->ended_at == 64);
    assert_string_equal(s->reason, "needs more");
    assert_string_equal(s->status, "does not fit");
    s = series_of(f, "checkpoint");
    assert_true(s->ended_at == 32);
    assert_string_equal(s->reason, "killed by signal 9, as systems do that are out of memory");
    assert_string_equal(s->status, "killed");
    s = series_of(f, "checkpoint+offload");
    assert_string_equal(s->reason, "ended with exit code 1");
    assert_string_equal(s->status, "failed");
    assert_true(isnan(series_of(f, "none")->ended_at));
}

static void a_sweep_without_a_point_fails(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(RUN(f, "sweep=length=64,128", "modes=offload"), EBB_FAILED);
    assert_error(f, "nothing could be measured: needs more");
}

static void a_child_that_writes_nonsense_is_an_error(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(RUN(f, "sweep=length=16", "modes=activations={x: keep}"), EBB_BAD_FILE);
    assert_error(f, "a point");
}

/* ---- going on -------------------------------------------------------------------------------- */

static void what_is_there_is_not_measured_again(void **state)
{
    struct fixture *f = *state;
    ok(f->ctx, RUN(f, "sweep=length=16,64", "modes=offload,none"));
    assert_ran(f, "offload 0 16\noffload 0 64\nnone 0 16\nnone 0 64\n");
    ok(f->ctx, RUN(f, "sweep=length=16,64", "modes=offload,none"));
    assert_ran(f, "");
    /* More lengths and modes go into the same file; what is beyond the end is not tried. */
    ok(f->ctx, RUN(f, "sweep=length=16:128:x2", "modes=plan,offload,none"));
    assert_ran(f, "plan 0 16\nplan 0 32\nplan 0 64\nplan 0 128\n"
                  "offload 0 32\nnone 0 32\nnone 0 128\n");
    assert_int_equal(series_of(f, "offload")->count, 2);
    /* Fewer leave what is there. */
    ok(f->ctx, RUN(f, "sweep=length=16", "modes=none"));
    assert_ran(f, "");
    assert_int_equal(f->results->count, 3);
    assert_int_equal(series_of(f, "none")->count, 4);
}

/* A failure may have been by chance; a lack of memory was not. */
static void a_failure_is_tried_again(void **state)
{
    struct fixture *f = *state;
    ok(f->ctx, RUN(f, "sweep=length=16,32", "modes=checkpoint,checkpoint+offload"));
    assert_ran(f, "checkpoint 0 16\ncheckpoint 0 32\n"
                  "checkpoint+offload 0 16\ncheckpoint+offload 0 32\n");
    write_file(f, "mended", "");
    ok(f->ctx, RUN(f, "sweep=length=16,32", "modes=checkpoint,checkpoint+offload"));
    assert_ran(f, "checkpoint+offload 0 32\n");
    const struct ebb_results_series *s = series_of(f, "checkpoint+offload");
    assert_int_equal(s->count, 2);
    assert_true(isnan(s->ended_at) && s->reason == NULL && s->status == NULL);
    remove_file(f, "mended");
}

static void another_sweep_is_refused(void **state)
{
    struct fixture *f = *state;
    ok(f->ctx, RUN(f, "sweep=length=16", "modes=none"));
    assert_ran(f, "none 0 16\n");
    assert_int_equal(RUN(f, "sweep=length=16", "modes=none", "seed=7"), EBB_BAD_CONFIG);
    assert_error(f, "holds another sweep: seed was 42 there and is 7 now");
    assert_int_equal(RUN(f, "sweep=length=16", "modes=none", "steps=3"), EBB_BAD_CONFIG);
    assert_error(f, "steps was 5 there and is 3 now");
    assert_int_equal(RUN(f, "sweep=budget=1GiB", "max_length=16"), EBB_BAD_CONFIG);
    ebb_error_clear(f->ctx);
    write_file(f, "config.json", "{\"a\": 2}");
    assert_int_equal(RUN(f, "sweep=length=16", "modes=none"), EBB_BAD_CONFIG);
    assert_error(f, "holds another sweep: m was");
    write_file(f, "config.json", model_text);
    ok(f->ctx, RUN(f, "sweep=length=16", "modes=none"));
    assert_ran(f, "");
    f->overwrite = true;
    ok(f->ctx, RUN(f, "sweep=length=16", "modes=none", "seed=7"));
    assert_ran(f, "none 0 16\n");
}

static void results_of_others_are_not_written_over(void **state)
{
    struct fixture *f = *state;
    write_file(
        f, "results.json",
        "{\"format\": \"ebb results\", \"version\": 1, \"kind\": \"length\", \"series\": []}");
    assert_int_equal(RUN(f, "sweep=length=16", "modes=none"), EBB_BAD_CONFIG);
    assert_error(f, "was not written by 'ebb bench'");
    write_file(f, "results.json", "{");
    assert_int_equal(RUN(f, "sweep=length=16", "modes=none"), EBB_BAD_FILE);
    ebb_error_clear(f->ctx);
    assert_ran(f, "");
}

/* The child of mode plan at 32 sends its parent SIGTERM and sleeps. */
static void a_signal_ends_it_and_keeps_what_is_measured(void **state)
{
    struct fixture *f = *state;
    sigset_t set, before;
    struct signalfd_siginfo info;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, &before), 0);
    f->stop_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    write_file(f, "stop", "");
    assert_int_equal(RUN(f, "sweep=length=16,32,64", "modes=plan"), EBB_INTERRUPTED);
    assert_error(f, "interrupted: 1 of 3 points are over");
    assert_ran(f, "plan 0 16\nplan 0 32\n");
    assert_int_equal(read(f->stop_fd, &info, sizeof info), sizeof info);
    remove_file(f, "stop");
    ok(f->ctx, RUN(f, "sweep=length=16,32,64", "modes=plan"));
    assert_ran(f, "plan 0 32\nplan 0 64\n");
    assert_int_equal(series_of(f, "plan")->count, 3);
    close(f->stop_fd);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
}

/* ---- keys without effect --------------------------------------------------------------------- */

static void keys_that_the_sweep_sets_are_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"gradient_checkpointing=true", "modes: checkpoint"},
        {"activation_offloading=true", "modes: offload"},
        {"activations={x: host}", "modes: 'activations={x: host, o: keep}'"},
        {"max_length=32", "the sweep says how long sequences are"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(RUN(f, "sweep=length=16", cases[i][0]), EBB_BAD_CONFIG);
        assert_error(f, cases[i][1]);
    }
    assert_int_equal(RUN(f, "sweep=budget=1GiB", "max_length=32"), EBB_BAD_CONFIG);
    assert_error(f, "'memory_budget' has no effect here");
    const char *const words[] = {"device=cpu", "model=m", "sweep=budget=1GiB", NULL};
    assert_int_equal(run(f, words), EBB_BAD_CONFIG);
    assert_error(f, "needs max_length");
    assert_ran(f, "");
}

/* Before the first point, not after the hours of those before it. */
static void a_mode_that_cannot_be_is_refused_at_once(void **state)
{
    struct fixture *f = *state;
    const char *const words[] = {"device=cpu", "model=m", "sweep=length=16", "modes=none,offload",
                                 NULL};
    assert_int_equal(run(f, words), EBB_BAD_CONFIG);
    assert_error(f, "mode offload: on the CPU activation_offloading needs memory_budget");
    assert_int_equal(RUN(f, "sweep=length=16", "modes=none,activations={x: away}"), EBB_BAD_CONFIG);
    assert_error(f, "'away' is no policy of slot 'x'");
    assert_ran(f, "");
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void the_table_says_where_a_mode_stops_fitting(void **state)
{
    struct fixture *f = *state;
    struct ebb_str out = {0};
    ok(f->ctx, RUN(f, "sweep=length=16,64", "modes=offload,none,checkpoint+offload"));
    ok(f->ctx, ebb_bench_table(f->ctx, f->results, &out));
    assert_non_null(strstr(out.data, "m: every weight\n"));
    assert_non_null(strstr(out.data, "offload stops fitting at 64 tokens: needs more\n"));
    assert_non_null(
        strstr(out.data, "checkpoint+offload failed at 64 tokens: ended with exit code 1\n"));
    assert_null(strstr(out.data, "none stops"));
    assert_null(strstr(out.data, "process")); /* nobody knows it */
    ebb_str_free(f->ctx, &out);
}

/* ---- the child ------------------------------------------------------------------------------- */

static int write_point(long length)
{
    printf("{\"format\": \"ebb results\", \"version\": 1, \"kind\": \"length\", \"series\": "
           "[{\"name\": \"point\", \"points\": [{\"length\": %ld, \"peak_device_bytes\": %ld, "
           "\"tokens_per_second\": 10}]}]}\n",
           length, 100 * length);
    return 0;
}

static bool is_there(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* none: a point. offload: from 64 on too large. checkpoint: killed from 32 on. checkpoint+offload:
 * fails from 32 on, unless "mended". plan: too large within 1 MiB in a sweep over budgets; at 32,
 * where "stop" is there, it stops its parent. activations: nonsense. */
static int play(char **words)
{
    const char *dir = words[0], *mode = words[1];
    const long budget = atol(words[2]), length = atol(words[3]);
    char path[512];
    snprintf(path, sizeof path, "%s/ran", dir);
    FILE *file = fopen(path, "a");
    fprintf(file, "%s %ld %ld\n", mode, budget, length);
    fclose(file);
    if (length == 16) fputs("ebb: error: an old one\n", stderr); /* nobody else's reason */
    if (strcmp(mode, "offload") == 0 && length >= 64) {
        fputs("ebb: error: needs more\n  where: here\n", stderr);
        return 3;
    }
    if (strcmp(mode, "checkpoint") == 0 && length >= 32) raise(SIGKILL);
    if (strcmp(mode, "checkpoint+offload") == 0 && length >= 32 && !is_there(dir, "mended"))
        return 1;
    if (strcmp(mode, "plan") == 0 && length == 32 && is_there(dir, "stop")) {
        kill(getppid(), SIGTERM);
        sleep(60);
    }
    if (budget == 1048576 && strncmp(words[6], "sweep=budget", 12) == 0) return 3; /* its word */
    if (mode[0] == 'a') return printf("nonsense\n") < 0;
    return write_point(length);
}

int main(int argc, char **argv)
{
    if (argc > 5 && strcmp(argv[1], child_command) == 0) return play(argv + 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lengths_ascend_mode_by_mode, begin, end),
        cmocka_unit_test_setup_teardown(budgets_descend_in_the_mode_plan, begin, end),
        cmocka_unit_test_setup_teardown(a_series_ends_and_the_sweep_goes_on, begin, end),
        cmocka_unit_test_setup_teardown(a_sweep_without_a_point_fails, begin, end),
        cmocka_unit_test_setup_teardown(a_child_that_writes_nonsense_is_an_error, begin, end),
        cmocka_unit_test_setup_teardown(what_is_there_is_not_measured_again, begin, end),
        cmocka_unit_test_setup_teardown(a_failure_is_tried_again, begin, end),
        cmocka_unit_test_setup_teardown(another_sweep_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(results_of_others_are_not_written_over, begin, end),
        cmocka_unit_test_setup_teardown(a_signal_ends_it_and_keeps_what_is_measured, begin, end),
        cmocka_unit_test_setup_teardown(keys_that_the_sweep_sets_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_mode_that_cannot_be_is_refused_at_once, begin, end),
        cmocka_unit_test_setup_teardown(the_table_says_where_a_mode_stops_fitting, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
