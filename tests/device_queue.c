/* Queues, events, failures, spaces and counters of the CPU backend.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/context.h"
#include "device/device.h"

struct fixture {
    struct ebb_ctx *ctx;
    struct ebb_device *device;
};

static void drop_line(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

static struct fixture fixture_create(struct ebb_device_options options)
{
    struct fixture f = {.ctx = ebb_ctx_create()};
    assert_non_null(f.ctx);
    ebb_ctx_set_log(f.ctx, drop_line, NULL);
    assert_int_equal(ebb_device_create(f.ctx, &options, &f.device), EBB_OK);
    assert_int_equal(ebb_device_events(f.device, 4), EBB_OK);
    return f;
}

static void fixture_free(struct fixture *f)
{
    ebb_device_free(f->device);
    assert_int_equal(ebb_mem_bytes_now(f->ctx), 0);
    ebb_ctx_free(f->ctx);
}

static void assert_text_has(const struct ebb_ctx *ctx, const char *piece)
{
    if (strstr(ebb_error_text(ctx), piece) == NULL)
        fail_msg("'%s' is not in the message '%s'", piece, ebb_error_text(ctx));
}

static void sleep_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* True as soon as *value is at least `wanted`, false after five seconds. */
static bool reaches(_Atomic int *value, int wanted)
{
    for (int i = 0; i < 5000; i++) {
        if (atomic_load(value) >= wanted) return true;
        sleep_ms(1);
    }
    return false;
}

/* ---- functions to launch --------------------------------------------------------------------- */

static enum ebb_status hold_until_set(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    _Atomic int *gate = (_Atomic int *)(uintptr_t)args;
    while (atomic_load(gate) == 0) sleep_ms(1);
    return EBB_OK;
}

static enum ebb_status count_up(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    atomic_fetch_add((_Atomic int *)(uintptr_t)args, 1);
    return EBB_OK;
}

struct relay {
    _Atomic int *from, *to;
    int add;
};

static enum ebb_status relay(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    const struct relay *r = args;
    atomic_store(r->to, atomic_load(r->from) + r->add);
    return EBB_OK;
}

struct append {
    int *list; /* plain memory on purpose: order must come from the queue alone */
    int *count;
    int value;
};

static enum ebb_status append(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    const struct append *a = args;
    a->list[(*a->count)++] = a->value;
    return EBB_OK;
}

static enum ebb_status fail_with_reason(const struct ebb_queue_env *env, const void *args)
{
    return EBB_FAIL(ebb_device_ctx(env->device), EBB_DEVICE, "the kernel '%s' broke",
                    (const char *)args);
}

static enum ebb_status fail_silently(const struct ebb_queue_env *env, const void *args)
{
    (void)env, (void)args;
    return EBB_FAILED;
}

/* ---- order ----------------------------------------------------------------------------------- */

static void commands_of_a_queue_run_in_the_order_they_were_enqueued(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    int *list = calloc(COUNT, sizeof *list);
    struct append *args = calloc(COUNT, sizeof *args);
    int count = 0;
    for (int i = 0; i < COUNT; i++) {
        args[i] = (struct append){.list = list, .count = &count, .value = i};
        assert_int_equal(ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, append, &args[i]), EBB_OK);
    }
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(count, COUNT);
    for (int i = 0; i < COUNT; i++) assert_int_equal(list[i], i);
    free(args);
    free(list);
    fixture_free(&f);
}

static void *open_gate_soon(void *gate)
{
    sleep_ms(30);
    atomic_store((_Atomic int *)gate, 1);
    return NULL;
}

static void a_full_ring_makes_the_caller_wait_and_loses_nothing(void **state)
{
    (void)state;
    enum { COUNT = 3 * 4096 + 7 };
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    _Atomic int gate = 0, count = 0;
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_gate_soon, &gate), 0);
    assert_int_equal(ebb_queue_launch(f.device, EBB_QUEUE_OUT, hold_until_set, &gate), EBB_OK);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(ebb_queue_launch(f.device, EBB_QUEUE_OUT, count_up, &count), EBB_OK);
    assert_int_equal(atomic_load(&gate), 1); /* three rings of commands cannot all be waiting */
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(atomic_load(&count), COUNT);
    pthread_join(opener, NULL);
    fixture_free(&f);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void events_order_three_queues_whatever_the_delays(void **state)
{
    (void)state;
    enum { ROUNDS = 100 };
    struct fixture f = fixture_create(
        (struct ebb_device_options){.threads = 1, .delay_us = {300, 200, 100}, .delay_seed = 7});
    /* Plain memory round and round: compute -> out -> in -> compute, one hop each. */
    char *device = NULL, *host = NULL;
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_DEVICE, 4096), EBB_OK);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_HOST, 4096), EBB_OK);
    device = ebb_device_base(f.device, EBB_SPACE_DEVICE);
    host = ebb_device_base(f.device, EBB_SPACE_HOST);
    int count = 0;
    struct append step[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        int *slot = (int *)(void *)device;
        step[i] = (struct append){.list = slot, .count = &count, .value = 1000 + i};
        ebb_queue_wait(f.device, EBB_QUEUE_COMPUTE, 2);
        ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, append, &step[i]);
        ebb_queue_record(f.device, EBB_QUEUE_COMPUTE, 0);
        ebb_queue_wait(f.device, EBB_QUEUE_OUT, 0);
        ebb_queue_copy(f.device, EBB_QUEUE_OUT, host, device, 2048);
        ebb_queue_record(f.device, EBB_QUEUE_OUT, 1);
        ebb_queue_wait(f.device, EBB_QUEUE_IN, 1);
        ebb_queue_copy(f.device, EBB_QUEUE_IN, device + 2048, host, 2048);
        ebb_queue_record(f.device, EBB_QUEUE_IN, 2);
    }
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(count, ROUNDS);
    const int *back = (const int *)(const void *)(device + 2048);
    for (int i = 0; i < ROUNDS; i++) assert_int_equal(back[i], 1000 + i);
    fixture_free(&f);
}

/* Runs compute -> out hops, with or without the event between them; returns how many saw what
 * they should. */
static int count_right_hops(bool with_event)
{
    enum { ROUNDS = 20 };
    struct fixture f =
        fixture_create((struct ebb_device_options){.threads = 1,
                                                   .delay_us = {[EBB_QUEUE_COMPUTE] = 3000},
                                                   .delay_seed = 11});
    int right = 0;
    for (int i = 0; i < ROUNDS; i++) {
        _Atomic int source = 1, middle = 0, end = 0;
        struct relay produce = {.from = &source, .to = &middle, .add = 41};
        struct relay consume = {.from = &middle, .to = &end, .add = 0};
        ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, relay, &produce);
        ebb_queue_record(f.device, EBB_QUEUE_COMPUTE, 0);
        if (with_event) ebb_queue_wait(f.device, EBB_QUEUE_OUT, 0);
        ebb_queue_launch(f.device, EBB_QUEUE_OUT, relay, &consume);
        assert_int_equal(ebb_device_sync(f.device), EBB_OK);
        right += atomic_load(&end) == 42;
    }
    fixture_free(&f);
    return right;
}

static void a_missing_event_shows_as_wrong_data_under_delays(void **state)
{
    (void)state;
    assert_int_equal(count_right_hops(true), 20);
    assert_true(count_right_hops(false) < 20);
}

static void a_wait_takes_the_latest_record_that_was_enqueued_before_it(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    _Atomic int gate = 0, other = 0, waited = 0;
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, hold_until_set, &gate);
    ebb_queue_record(f.device, EBB_QUEUE_COMPUTE, 0);
    ebb_queue_wait(f.device, EBB_QUEUE_OUT, 0);
    ebb_queue_launch(f.device, EBB_QUEUE_OUT, count_up, &waited);
    /* The same event once more, on a queue that is not held up: no business of the wait above. */
    ebb_queue_launch(f.device, EBB_QUEUE_IN, count_up, &other);
    ebb_queue_record(f.device, EBB_QUEUE_IN, 0);
    assert_true(reaches(&other, 1));
    sleep_ms(20);
    assert_int_equal(atomic_load(&waited), 0);
    atomic_store(&gate, 1);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(atomic_load(&waited), 1);
    fixture_free(&f);
}

static void a_wait_before_any_record_does_not_wait(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    _Atomic int gate = 0, ran = 0;
    ebb_queue_wait(f.device, EBB_QUEUE_OUT, 3);
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, hold_until_set, &gate);
    ebb_queue_record(f.device, EBB_QUEUE_COMPUTE, 3);
    ebb_queue_launch(f.device, EBB_QUEUE_OUT, count_up, &ran);
    assert_true(reaches(&ran, 1));
    atomic_store(&gate, 1);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    fixture_free(&f);
}

static void more_events_keep_the_marks_of_those_before(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    _Atomic int gate = 0, waited = 0;
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, hold_until_set, &gate);
    ebb_queue_record(f.device, EBB_QUEUE_COMPUTE, 3);
    assert_int_equal(ebb_device_events(f.device, 1000), EBB_OK);
    assert_int_equal(ebb_device_events(f.device, 2), EBB_OK); /* fewer: nothing changes */
    ebb_queue_wait(f.device, EBB_QUEUE_OUT, 999);
    ebb_queue_wait(f.device, EBB_QUEUE_OUT, 3);
    ebb_queue_launch(f.device, EBB_QUEUE_OUT, count_up, &waited);
    sleep_ms(20);
    assert_int_equal(atomic_load(&waited), 0);
    atomic_store(&gate, 1);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(atomic_load(&waited), 1);
    ebb_mem_fail_nth(f.ctx, 1, false);
    assert_int_equal(ebb_device_events(f.device, 100000), EBB_NO_MEMORY);
    fixture_free(&f);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void a_failure_skips_all_that_follows_and_sync_returns_it_once(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    _Atomic int before = 0, after = 0;
    char from[64] = "changed", to[64] = "as it was";
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, count_up, &before);
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, fail_with_reason, "rmsnorm");
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, count_up, &after);
    ebb_queue_record(f.device, EBB_QUEUE_COMPUTE, 0);
    ebb_queue_wait(f.device, EBB_QUEUE_OUT, 0);
    ebb_queue_copy(f.device, EBB_QUEUE_OUT, to, from, sizeof to);
    ebb_queue_launch(f.device, EBB_QUEUE_OUT, count_up, &after);
    assert_int_equal(ebb_device_sync(f.device), EBB_DEVICE);
    assert_text_has(f.ctx, "the kernel 'rmsnorm' broke");
    assert_int_equal(atomic_load(&before), 1);
    assert_int_equal(atomic_load(&after), 0);
    assert_string_equal(to, "as it was");

    ebb_error_clear(f.ctx);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    ebb_queue_copy(f.device, EBB_QUEUE_OUT, to, from, sizeof to);
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, count_up, &after);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(atomic_load(&after), 1);
    assert_string_equal(to, "changed");
    fixture_free(&f);
}

static void the_first_of_several_failures_is_returned(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    ebb_queue_launch(f.device, EBB_QUEUE_IN, fail_with_reason, "first");
    ebb_queue_record(f.device, EBB_QUEUE_IN, 0);
    ebb_queue_wait(f.device, EBB_QUEUE_COMPUTE, 0);
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, fail_silently, NULL);
    ebb_queue_launch(f.device, EBB_QUEUE_IN, fail_silently, NULL);
    assert_int_equal(ebb_device_sync(f.device), EBB_DEVICE);
    assert_text_has(f.ctx, "'first'");
    fixture_free(&f);
}

static void a_function_that_fails_silently_still_gets_a_text(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    ebb_queue_launch(f.device, EBB_QUEUE_OUT, fail_silently, NULL);
    assert_int_equal(ebb_device_sync(f.device), EBB_FAILED);
    assert_text_has(f.ctx, "queue out");
    fixture_free(&f);
}

static void a_failed_device_can_be_freed_with_commands_waiting(void **state)
{
    (void)state;
    struct fixture f =
        fixture_create((struct ebb_device_options){.threads = 1, .delay_us = {2000, 2000, 2000}});
    _Atomic int count = 0;
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, fail_silently, NULL);
    ebb_queue_record(f.device, EBB_QUEUE_COMPUTE, 0);
    for (int i = 0; i < 50; i++) {
        ebb_queue_wait(f.device, EBB_QUEUE_OUT, 0);
        ebb_queue_launch(f.device, EBB_QUEUE_OUT, count_up, &count);
    }
    fixture_free(&f);
    assert_int_equal(atomic_load(&count), 0);
}

/* ---- creation -------------------------------------------------------------------------------- */

static void what_cannot_be_created_is_refused_with_a_reason(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_device *device = NULL;
    struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA};
    char why[EBB_BACKEND_WHY];
    if (!ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why)) {
        assert_int_equal(ebb_device_create(ctx, &options, &device),
                         ebb_backend_is_built(EBB_BACKEND_CUDA) ? EBB_DEVICE : EBB_UNSUPPORTED);
        assert_null(device);
        assert_text_has(ctx, why);
        assert_text_has(ctx, "device: cuda is not to be had");
        ebb_error_clear(ctx);
    }
    options = (struct ebb_device_options){.threads = -1};
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_BAD_CONFIG);
    assert_text_has(ctx, "-1 threads");
    ebb_error_clear(ctx);
    options = (struct ebb_device_options){.delay_us = {[EBB_QUEUE_IN] = 1000001}};
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_BAD_CONFIG);
    assert_text_has(ctx, "queue 'in'");
    ebb_error_clear(ctx);
    options = (struct ebb_device_options){.bounce_bytes = -1};
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_BAD_CONFIG);
    assert_text_has(ctx, "pieces of -1 bytes");
    ebb_device_free(NULL);
    ebb_ctx_free(ctx);
}

static void every_allocation_of_creation_may_fail(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    ebb_ctx_set_log(ctx, drop_line, NULL);
    struct ebb_device_options options = {.threads = 1};
    int64_t nth = 0;
    for (;;) {
        struct ebb_device *device = NULL;
        ebb_mem_fail_nth(ctx, ++nth, false);
        enum ebb_status status = ebb_device_create(ctx, &options, &device);
        ebb_mem_fail_nth(ctx, 0, false);
        if (status == EBB_OK) {
            ebb_device_free(device);
            break;
        }
        assert_int_equal(status, EBB_NO_MEMORY);
        assert_null(device);
        assert_int_equal(ebb_mem_bytes_now(ctx), 0);
        ebb_error_clear(ctx);
    }
    assert_true(nth > 3);
    ebb_ctx_free(ctx);
}

struct team {
    int env_threads, team_size;
    bool sigint_blocked, sigsegv_blocked;
};

static enum ebb_status look_at_signals(const struct ebb_queue_env *env, const void *args)
{
    struct team *team = (struct team *)(uintptr_t)args;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    team->env_threads = env->threads;
    team->sigint_blocked = sigismember(&now, SIGINT) == 1;
    team->sigsegv_blocked = sigismember(&now, SIGSEGV) == 1;
    return EBB_OK;
}

static enum ebb_status look_at_team(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    struct team *team = (struct team *)(uintptr_t)args;
#pragma omp parallel
    {
#pragma omp single
        team->team_size = omp_get_num_threads();
    }
    return EBB_OK;
}

static void queue_threads_leave_signals_to_the_main_thread(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 3});
    assert_int_equal(ebb_device_threads(f.device), 3);
    struct team team[EBB_QUEUE_COUNT] = {{0}};
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        ebb_queue_launch(f.device, (enum ebb_queue)i, look_at_signals, &team[i]);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++) {
        assert_true(team[i].sigint_blocked);
        assert_false(team[i].sigsegv_blocked);
        assert_int_equal(team[i].env_threads, i == EBB_QUEUE_COMPUTE ? 3 : 1);
    }
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGINT), 0);
    fixture_free(&f);
}

static void parallel_regions_on_compute_have_the_devices_threads(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("skipped: the thread sanitizer does not understand libgomp\n");
    skip();
#endif
    for (int threads = 1; threads <= 3; threads++) {
        struct fixture f = fixture_create((struct ebb_device_options){.threads = threads});
        struct team team = {0};
        ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, look_at_team, &team);
        assert_int_equal(ebb_device_sync(f.device), EBB_OK);
        assert_int_equal(team.team_size, threads);
        fixture_free(&f);
    }
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 0});
    assert_int_equal(ebb_device_threads(f.device), ebb_cpu_count());
    fixture_free(&f);
}

/* ---- spaces ---------------------------------------------------------------------------------- */

static void a_space_is_zero_aligned_and_resident_only_where_touched(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    const int64_t bytes = (int64_t)64 * 1024 * 1024 + 100;
    assert_null(ebb_device_base(f.device, EBB_SPACE_DEVICE));
    assert_int_equal(ebb_device_bytes(f.device, EBB_SPACE_DEVICE), 0);
    assert_int_equal(ebb_device_bytes_resident(f.device, EBB_SPACE_DEVICE), 0);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_DEVICE, bytes), EBB_OK);
    char *base = ebb_device_base(f.device, EBB_SPACE_DEVICE);
    assert_int_equal((uintptr_t)base % 4096, 0);
    assert_int_equal(ebb_device_bytes(f.device, EBB_SPACE_DEVICE), bytes);
    assert_int_equal(ebb_device_bytes_resident(f.device, EBB_SPACE_DEVICE), 0);
    const int64_t page = sysconf(_SC_PAGESIZE);
    base[0] = 1;
    base[10 * page] = 1;
    base[bytes - 1] = 1;
    assert_int_equal(ebb_device_bytes_resident(f.device, EBB_SPACE_DEVICE), 3 * page);
    assert_int_equal(base[1], 0);
    assert_int_equal(base[bytes - 2], 0);
    memset(base, 1, (size_t)bytes);
    int64_t resident = ebb_device_bytes_resident(f.device, EBB_SPACE_DEVICE);
    assert_true(resident >= bytes && resident < bytes + page);
    assert_null(ebb_device_base(f.device, EBB_SPACE_HOST));
    fixture_free(&f);
}

/* True if a child process dies of touching `at`. */
static bool touching_kills(volatile char *at)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers install their own */
        *at = 1;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void touching_the_page_behind_a_space_is_fatal(void **state)
{
    (void)state;
    const int64_t sizes[] = {4096, 1, 10000, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
        for (int space = 0; space < EBB_SPACE_COUNT; space++) {
            assert_int_equal(ebb_device_reserve(f.device, (enum ebb_space)space, sizes[i]), EBB_OK);
            char *base = ebb_device_base(f.device, (enum ebb_space)space);
            assert_non_null(base);
            int64_t end = (sizes[i] + 4095) / 4096 * 4096;
            assert_true(touching_kills(base + end));
            if (end > 0) assert_false(touching_kills(base + end - 1));
        }
        fixture_free(&f);
    }
}

static void a_space_that_no_machine_has_is_refused_by_name_and_size(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_HOST, INT64_MAX), EBB_NO_MEMORY);
    assert_text_has(f.ctx, "9223372036854775807 bytes");
    assert_text_has(f.ctx, "host space");
    ebb_error_clear(f.ctx);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_DEVICE, (int64_t)1 << 60),
                     EBB_NO_MEMORY);
    assert_text_has(f.ctx, "device space");
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_DEVICE, 4096),
                     EBB_OK); /* still possible */
    fixture_free(&f);
}

/* Nothing has to be pinned here; what is said is what a plan would have. */
static void what_counts_as_pinned_is_what_was_to_be_up_to_the_limit(void **state)
{
    (void)state;
    const struct {
        int64_t pageable, limit, pinned;
    } cases[] = {
        {0, 0, 100000}, {8192, 0, 91808}, {0, 50000, 49152}, {8192, 95000, 91808}, {102400, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f =
            fixture_create((struct ebb_device_options){.threads = 1,
                                                       .pageable_bytes = cases[i].pageable,
                                                       .pin_limit = cases[i].limit});
        assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_HOST, 100000), EBB_OK);
        assert_int_equal(ebb_device_bytes_pinned(f.device), cases[i].pinned);
        assert_true(ebb_device_pin_seconds(f.device) == 0);
        fixture_free(&f);
    }
}

static void pageable_bytes_are_whole_pages(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_device *device;
    const struct ebb_device_options wrong[] = {{.pageable_bytes = 100},
                                               {.pageable_bytes = -4096},
                                               {.pin_limit = -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(ebb_device_create(ctx, &wrong[i], &device), EBB_BAD_CONFIG);
        assert_non_null(strstr(ebb_error_text(ctx), "whole pages"));
        ebb_error_clear(ctx);
    }
    ebb_ctx_free(ctx);
}

/* ---- counters -------------------------------------------------------------------------------- */

static void bytes_are_counted_by_direction_whatever_the_queue(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_DEVICE, 8192), EBB_OK);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_HOST, 8192), EBB_OK);
    char *device = ebb_device_base(f.device, EBB_SPACE_DEVICE);
    char *host = ebb_device_base(f.device, EBB_SPACE_HOST);
    char other[100] = {0};
    ebb_queue_copy(f.device, EBB_QUEUE_OUT, host, device, 1000);
    ebb_queue_copy(f.device, EBB_QUEUE_COMPUTE, host + 1000, device + 1000, 200);
    ebb_queue_copy(f.device, EBB_QUEUE_IN, device + 4000, host + 4000, 30);
    ebb_queue_copy(f.device, EBB_QUEUE_OUT, device + 5000, host + 5000, 4);
    ebb_queue_copy(f.device, EBB_QUEUE_IN, device + 6000, device + 7000, 500);
    ebb_queue_copy(f.device, EBB_QUEUE_IN, host + 6000, host + 7000, 500);
    ebb_queue_copy(f.device, EBB_QUEUE_COMPUTE, device + 8000, other, 100);
    ebb_queue_copy(f.device, EBB_QUEUE_COMPUTE, host, device, 0);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    struct ebb_device_counters counters;
    ebb_device_counters(f.device, &counters);
    assert_int_equal(counters.bytes_out, 1200);
    assert_int_equal(counters.bytes_in, 34);
    fixture_free(&f);
}

static enum ebb_status nap_20_ms(const struct ebb_queue_env *env, const void *args)
{
    (void)env, (void)args;
    sleep_ms(20);
    return EBB_OK;
}

static void only_compute_stalls_and_only_while_it_waits(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    struct ebb_device_counters counters;
    ebb_queue_launch(f.device, EBB_QUEUE_OUT, nap_20_ms, NULL);
    ebb_queue_record(f.device, EBB_QUEUE_OUT, 0);
    ebb_queue_wait(f.device, EBB_QUEUE_IN, 0);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    sleep_ms(20); /* an idle queue does not stall */
    ebb_queue_wait(f.device, EBB_QUEUE_COMPUTE, 0);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    ebb_device_counters(f.device, &counters);
    assert_true(counters.stall_seconds == 0.0);
    assert_true(counters.busy_seconds[EBB_QUEUE_OUT] >= 0.015);
    assert_true(counters.busy_seconds[EBB_QUEUE_IN] == 0.0);

    ebb_queue_launch(f.device, EBB_QUEUE_OUT, nap_20_ms, NULL);
    ebb_queue_record(f.device, EBB_QUEUE_OUT, 0);
    ebb_queue_wait(f.device, EBB_QUEUE_COMPUTE, 0);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    ebb_device_counters(f.device, &counters);
    assert_true(counters.stall_seconds > 0.005);
    assert_true(counters.busy_seconds[EBB_QUEUE_COMPUTE] == 0.0);
    fixture_free(&f);
}

/* ---- marks ----------------------------------------------------------------------------------- */

static enum ebb_status sleep_a_little(const struct ebb_queue_env *env, const void *args)
{
    (void)env, (void)args;
    sleep_ms(20);
    return EBB_OK;
}

static int make_marks(struct fixture *f, int count)
{
    int first = -1;
    assert_int_equal(ebb_device_marks(f->device, count, &first), EBB_OK);
    return first;
}

static void set_mark(struct fixture *f, enum ebb_queue queue, int mark)
{
    assert_int_equal(ebb_queue_mark(f->device, queue, mark), EBB_OK);
}

static void marks_tell_what_lies_between_them_on_one_queue_and_across(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    assert_int_equal(make_marks(&f, 2), 0);
    set_mark(&f, EBB_QUEUE_COMPUTE, 0);
    assert_int_equal(make_marks(&f, 3), 2); /* more of them, while one is on its way */
    assert_int_equal(ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, sleep_a_little, NULL), EBB_OK);
    set_mark(&f, EBB_QUEUE_COMPUTE, 1);
    assert_int_equal(ebb_queue_record(f.device, EBB_QUEUE_COMPUTE, 0), EBB_OK);
    set_mark(&f, EBB_QUEUE_OUT, 2); /* waits for nothing */
    assert_int_equal(ebb_queue_wait(f.device, EBB_QUEUE_OUT, 0), EBB_OK);
    set_mark(&f, EBB_QUEUE_OUT, 3);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    double took = ebb_device_mark_seconds(f.device, 0, 1);
    assert_true(took >= 0.02 && took < 5);
    assert_true(ebb_device_mark_seconds(f.device, 1, 0) == -took);
    assert_true(ebb_device_mark_seconds(f.device, 1, 3) >= 0);
    assert_true(ebb_device_mark_seconds(f.device, 2, 3) >= 0);
    assert_true(ebb_device_mark_seconds(f.device, 0, 0) == 0);
    assert_true(isnan(ebb_device_mark_seconds(f.device, 0, 4))); /* never set */
    fixture_free(&f);
}

static void marks_of_a_queue_never_go_back(void **state)
{
    (void)state;
    enum { COUNT = 6000 }; /* more than a ring holds */
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    int first = make_marks(&f, 2 * COUNT);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            set_mark(&f, EBB_QUEUE_IN, first + i);
            set_mark(&f, EBB_QUEUE_COMPUTE, first + COUNT + i);
        }
        assert_int_equal(ebb_device_sync(f.device), EBB_OK);
        for (int i = 1; i < COUNT; i++) {
            assert_true(ebb_device_mark_seconds(f.device, first + i - 1, first + i) >= 0);
            assert_true(
                ebb_device_mark_seconds(f.device, first + COUNT + i - 1, first + COUNT + i) >= 0);
        }
    }
    fixture_free(&f);
}

static void a_mark_behind_a_failure_has_no_time_until_it_is_set_again(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    make_marks(&f, 2);
    for (int round = 0; round < 3; round++) {
        set_mark(&f, EBB_QUEUE_COMPUTE, 0);
        if (round == 1)
            assert_int_equal(ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, fail_with_reason,
                                              "mark"),
                             EBB_OK);
        set_mark(&f, EBB_QUEUE_COMPUTE, 1);
        assert_int_equal(ebb_device_sync(f.device), round == 1 ? EBB_DEVICE : EBB_OK);
        double seconds = ebb_device_mark_seconds(f.device, 0, 1);
        assert_true(round == 1 ? isnan(seconds) : seconds >= 0);
    }
    ebb_error_clear(f.ctx);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_of_a_queue_run_in_the_order_they_were_enqueued),
        cmocka_unit_test(a_full_ring_makes_the_caller_wait_and_loses_nothing),
        cmocka_unit_test(events_order_three_queues_whatever_the_delays),
        cmocka_unit_test(a_missing_event_shows_as_wrong_data_under_delays),
        cmocka_unit_test(a_wait_takes_the_latest_record_that_was_enqueued_before_it),
        cmocka_unit_test(a_wait_before_any_record_does_not_wait),
        cmocka_unit_test(more_events_keep_the_marks_of_those_before),
        cmocka_unit_test(a_failure_skips_all_that_follows_and_sync_returns_it_once),
        cmocka_unit_test(the_first_of_several_failures_is_returned),
        cmocka_unit_test(a_function_that_fails_silently_still_gets_a_text),
        cmocka_unit_test(a_failed_device_can_be_freed_with_commands_waiting),
        cmocka_unit_test(what_cannot_be_created_is_refused_with_a_reason),
        cmocka_unit_test(every_allocation_of_creation_may_fail),
        cmocka_unit_test(queue_threads_leave_signals_to_the_main_thread),
        cmocka_unit_test(parallel_regions_on_compute_have_the_devices_threads),
        cmocka_unit_test(a_space_is_zero_aligned_and_resident_only_where_touched),
        cmocka_unit_test(touching_the_page_behind_a_space_is_fatal),
        cmocka_unit_test(a_space_that_no_machine_has_is_refused_by_name_and_size),
        cmocka_unit_test(what_counts_as_pinned_is_what_was_to_be_up_to_the_limit),
        cmocka_unit_test(pageable_bytes_are_whole_pages),
        cmocka_unit_test(bytes_are_counted_by_direction_whatever_the_queue),
        cmocka_unit_test(only_compute_stalls_and_only_while_it_waits),
        cmocka_unit_test(marks_tell_what_lies_between_them_on_one_queue_and_across),
        cmocka_unit_test(marks_of_a_queue_never_go_back),
        cmocka_unit_test(a_mark_behind_a_failure_has_no_time_until_it_is_set_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
