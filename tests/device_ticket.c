/* Tickets: queues and threads of the host that signal and wait for each other, and what happens
 * when one of them fails.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/context.h"
#include "device/device.h"

static const double long_enough = 30.0; /* a watchdog that a passing test never meets */

struct fixture {
    struct ebb_ctx *ctx;
    struct ebb_device *device;
    struct ebb_ticket *ticket;
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
    assert_int_equal(ebb_ticket_create(f.device, &f.ticket), EBB_OK);
    return f;
}

static void fixture_free(struct fixture *f)
{
    ebb_ticket_free(f->ticket);
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

static enum ebb_status set_flag(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    atomic_store((_Atomic int *)(uintptr_t)args, 1);
    return EBB_OK;
}

static enum ebb_status break_down(const struct ebb_queue_env *env, const void *args)
{
    (void)args;
    return EBB_FAIL(ebb_device_ctx(env->device), EBB_IO, "the disk is full");
}

static void *signal_soon(void *ticket)
{
    sleep_ms(30);
    ebb_ticket_signal(ticket, 5);
    return NULL;
}

static void *fail_soon(void *ticket)
{
    sleep_ms(30);
    ebb_ticket_fail(ticket, EBB_IO);
    return NULL;
}

/* ---- signal and wait ------------------------------------------------------------------------- */

static void a_queue_waits_for_a_thread_that_signals_later(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    _Atomic int ran = 0;
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_COMPUTE, f.ticket, 5, long_enough);
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, set_flag, &ran);
    ebb_ticket_signal(f.ticket, 4);
    sleep_ms(20);
    assert_int_equal(atomic_load(&ran), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, signal_soon, f.ticket), 0);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(atomic_load(&ran), 1);
    pthread_join(thread, NULL);
    struct ebb_device_counters counters;
    ebb_device_counters(f.device, &counters);
    assert_true(counters.stall_seconds > 0.01);
    fixture_free(&f);
}

static void a_thread_waits_for_a_queue_and_sees_its_work(void **state)
{
    (void)state;
    struct fixture f = fixture_create(
        (struct ebb_device_options){.threads = 1, .delay_us = {[EBB_QUEUE_OUT] = 5000}});
    char from[256], to[256] = {0};
    memset(from, 7, sizeof from);
    ebb_queue_copy(f.device, EBB_QUEUE_OUT, to, from, sizeof to);
    ebb_queue_ticket_signal(f.device, EBB_QUEUE_OUT, f.ticket, 1);
    assert_int_equal(ebb_ticket_wait(f.ticket, 1, long_enough), EBB_OK);
    assert_memory_equal(to, from, sizeof to);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    fixture_free(&f);
}

static void queues_wait_for_each_other_in_either_order_of_enqueueing(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    _Atomic int ran = 0;
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_IN, f.ticket, 9, long_enough); /* before its signal */
    ebb_queue_launch(f.device, EBB_QUEUE_IN, set_flag, &ran);
    ebb_queue_ticket_signal(f.device, EBB_QUEUE_OUT, f.ticket, 9);
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_COMPUTE, f.ticket, 9, long_enough); /* behind it */
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(atomic_load(&ran), 1);
    fixture_free(&f);
}

static void a_ticket_only_grows(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    assert_int_equal(ebb_ticket_wait(f.ticket, 0, 0.0), EBB_OK); /* it stands at 0 */
    ebb_ticket_signal(f.ticket, 10);
    ebb_ticket_signal(f.ticket, 3);
    assert_int_equal(ebb_ticket_wait(f.ticket, 10, 0.0), EBB_OK);
    assert_int_equal(ebb_ticket_wait(f.ticket, 11, 0.0), EBB_DEVICE);
    assert_text_has(f.ctx, "stands at 10");
    fixture_free(&f);
}

struct disk {
    struct ebb_ticket *left, *back;
    char *host, *file;
    int64_t bytes;
    int rounds;
};

static void *run_disk(void *argument)
{
    struct disk *disk = argument;
    for (int i = 1; i <= disk->rounds; i++) {
        if (ebb_ticket_wait(disk->left, (uint64_t)i, long_enough) != EBB_OK) return NULL;
        memcpy(disk->file, disk->host, (size_t)disk->bytes);
        memset(disk->host, 0, (size_t)disk->bytes);
        memcpy(disk->host, disk->file, (size_t)disk->bytes);
        ebb_ticket_signal(disk->back, (uint64_t)i);
    }
    return disk;
}

static void a_thread_of_the_host_takes_part_in_many_rounds(void **state)
{
    (void)state;
    enum { ROUNDS = 200, BYTES = 512 };
    struct fixture f = fixture_create(
        (struct ebb_device_options){.threads = 1, .delay_us = {60, 60, 60}, .delay_seed = 3});
    struct ebb_ticket *back = NULL;
    assert_int_equal(ebb_ticket_create(f.device, &back), EBB_OK);
    assert_int_equal(ebb_device_events(f.device, 1), EBB_OK);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_DEVICE, ROUNDS * BYTES + BYTES),
                     EBB_OK);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_HOST, BYTES), EBB_OK);
    char *device = ebb_device_base(f.device, EBB_SPACE_DEVICE);
    char file[BYTES];
    struct disk disk = {.left = f.ticket,
                        .back = back,
                        .host = ebb_device_base(f.device, EBB_SPACE_HOST),
                        .file = file,
                        .bytes = BYTES,
                        .rounds = ROUNDS};
    for (int i = 0; i < BYTES; i++) device[i] = (char)i;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_disk, &disk), 0);
    for (int i = 0; i < ROUNDS; i++) { /* each round reads what the round before brought back */
        ebb_queue_wait(f.device, EBB_QUEUE_OUT, 0);
        ebb_queue_copy(f.device, EBB_QUEUE_OUT, disk.host, device + i * BYTES, BYTES);
        ebb_queue_ticket_signal(f.device, EBB_QUEUE_OUT, f.ticket, (uint64_t)i + 1);
        ebb_queue_ticket_wait(f.device, EBB_QUEUE_IN, back, (uint64_t)i + 1, long_enough);
        ebb_queue_copy(f.device, EBB_QUEUE_IN, device + (i + 1) * BYTES, disk.host, BYTES);
        ebb_queue_record(f.device, EBB_QUEUE_IN, 0);
    }
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    void *result = NULL;
    pthread_join(thread, &result);
    assert_ptr_equal(result, &disk);
    assert_memory_equal(device + ROUNDS * BYTES, device, BYTES);
    ebb_ticket_free(back);
    fixture_free(&f);
}

/* ---- watchdogs and failures ------------------------------------------------------------------ */

static void a_host_wait_ends_after_its_time_and_says_where_the_ticket_stands(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    ebb_ticket_signal(f.ticket, 6);
    double start = ebb_clock_seconds();
    assert_int_equal(ebb_ticket_wait(f.ticket, 8, 0.05), EBB_DEVICE);
    double waited = ebb_clock_seconds() - start;
    assert_true(waited >= 0.045 && waited < 20.0);
    assert_text_has(f.ctx, "0.05 seconds");
    assert_text_has(f.ctx, "to reach 8");
    assert_text_has(f.ctx, "stands at 6");
    fixture_free(&f);
}

static void a_queues_wait_ends_after_its_time_and_fails_the_device(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    _Atomic int ran = 0;
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_IN, f.ticket, 2, 0.05);
    ebb_queue_launch(f.device, EBB_QUEUE_IN, set_flag, &ran);
    assert_int_equal(ebb_device_sync(f.device), EBB_DEVICE);
    assert_int_equal(atomic_load(&ran), 0);
    assert_text_has(f.ctx, "queue in waited 0.05 seconds");
    assert_text_has(f.ctx, "to reach 2");
    assert_text_has(f.ctx, "stands at 0");
    ebb_error_clear(f.ctx);
    /* Only the wait was given up, not the ticket. */
    ebb_ticket_signal(f.ticket, 2);
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_IN, f.ticket, 2, 0.05);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    fixture_free(&f);
}

static void a_failed_ticket_releases_every_wait_now_and_later(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    pthread_t thread;
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_COMPUTE, f.ticket, 1, long_enough);
    assert_int_equal(pthread_create(&thread, NULL, fail_soon, f.ticket), 0);
    assert_int_equal(ebb_ticket_wait(f.ticket, 1, long_enough), EBB_IO);
    pthread_join(thread, NULL);
    assert_int_equal(ebb_device_sync(f.device), EBB_IO);
    assert_text_has(f.ctx, "input/output error");
    ebb_error_clear(f.ctx);
    ebb_ticket_fail(f.ticket, EBB_NO_MEMORY); /* the first failure counts */
    ebb_ticket_signal(f.ticket, 100);
    assert_int_equal(ebb_ticket_wait(f.ticket, 1, long_enough), EBB_IO);
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_OUT, f.ticket, 1, long_enough);
    assert_int_equal(ebb_device_sync(f.device), EBB_IO);
    fixture_free(&f);
}

static void a_signal_that_is_skipped_becomes_the_tickets_failure(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_COMPUTE, f.ticket, 1,
                          long_enough); /* waits on another queue already */
    sleep_ms(10);
    ebb_queue_launch(f.device, EBB_QUEUE_OUT, break_down, NULL);
    ebb_queue_ticket_signal(f.device, EBB_QUEUE_OUT, f.ticket, 1);
    double start = ebb_clock_seconds();
    assert_int_equal(ebb_ticket_wait(f.ticket, 1, long_enough), EBB_IO);
    assert_int_equal(ebb_device_sync(f.device), EBB_IO);
    assert_true(ebb_clock_seconds() - start < long_enough / 2);
    assert_text_has(f.ctx, "the disk is full");
    fixture_free(&f);
}

static void a_ticket_without_memory_is_refused(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.threads = 1});
    struct ebb_ticket *ticket = NULL;
    ebb_mem_fail_nth(f.ctx, 1, false);
    assert_int_equal(ebb_ticket_create(f.device, &ticket), EBB_NO_MEMORY);
    assert_null(ticket);
    ebb_ticket_free(NULL);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_waits_for_a_thread_that_signals_later),
        cmocka_unit_test(a_thread_waits_for_a_queue_and_sees_its_work),
        cmocka_unit_test(queues_wait_for_each_other_in_either_order_of_enqueueing),
        cmocka_unit_test(a_ticket_only_grows),
        cmocka_unit_test(a_thread_of_the_host_takes_part_in_many_rounds),
        cmocka_unit_test(a_host_wait_ends_after_its_time_and_says_where_the_ticket_stands),
        cmocka_unit_test(a_queues_wait_ends_after_its_time_and_fails_the_device),
        cmocka_unit_test(a_failed_ticket_releases_every_wait_now_and_later),
        cmocka_unit_test(a_signal_that_is_skipped_becomes_the_tickets_failure),
        cmocka_unit_test(a_ticket_without_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
