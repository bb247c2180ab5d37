/* The CUDA backend's memory, queues, events, copies and tickets, and what it says when it fails.
 * Skipped where there is no GPU. Prints what has to be judged by eye.
 *
 * Cases that lose the GPU, hide it or fill it run this program once more, with a word that says
 * which: a process that has opened the GPU cannot fork.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/context.h"
#include "base/text.h"
#include "device/device_int.h"
#include "device_traffic.h"

enum { BYTES = 8 << 20, TRAFFIC_EVENTS = 300, WAYS = 3 };

/* A pinned host space, one that copies bounce to and from in odd pieces, and one of which the first
 * 600 KiB do so. */
static const struct ebb_device_options ways[WAYS] = {
    {.delay_seed = 3},
    {.delay_seed = 3, .pageable = true, .bounce_bytes = 100003},
    {.delay_seed = 3, .pageable_bytes = 600 << 10, .bounce_bytes = 100003}};

struct fixture {
    struct ebb_ctx *ctx;
    struct ebb_device *device;
    char *on_device, *on_host;
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
    options.backend = EBB_BACKEND_CUDA;
    if (ebb_device_create(f.ctx, &options, &f.device) != EBB_OK)
        fail_msg("%s", ebb_error_text(f.ctx));
    assert_int_equal(ebb_device_events(f.device, 4), EBB_OK);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_DEVICE, BYTES), EBB_OK);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_HOST, BYTES), EBB_OK);
    f.on_device = ebb_device_base(f.device, EBB_SPACE_DEVICE);
    f.on_host = ebb_device_base(f.device, EBB_SPACE_HOST);
    return f;
}

static void fixture_free(struct fixture *f)
{
    ebb_device_free(f->device);
    assert_int_equal(ebb_mem_bytes_now(f->ctx), 0);
    ebb_ctx_free(f->ctx);
}

static void memory_is_zero_at_first_and_the_host_reaches_it_by_copies(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0});
    unsigned char *seen = malloc(BYTES);
    assert_non_null(seen);
    assert_int_equal(ebb_device_copy(f.device, seen, f.on_device, BYTES), EBB_OK);
    for (int i = 0; i < BYTES; i++) assert_int_equal(seen[i], 0);
    assert_int_equal(ebb_device_fill(f.device, f.on_device + 100, 7, 1000), EBB_OK);
    assert_int_equal(ebb_device_copy(f.device, seen, f.on_device, 2000), EBB_OK);
    for (int i = 0; i < 2000; i++) assert_int_equal(seen[i], i >= 100 && i < 1100 ? 7 : 0);
    /* Three rows of five bytes, eleven apart there and seven apart here. */
    const char rows[] = "abcde..fghij..klmno";
    assert_int_equal(ebb_device_copy_rows(f.device, f.on_device, 11, rows, 7, 5, 3), EBB_OK);
    assert_int_equal(ebb_device_copy(f.device, seen, f.on_device, 27), EBB_OK);
    assert_memory_equal(seen, "abcde\0\0\0\0\0\0fghij\0\0\0\0\0\0klmno", 27);
    assert_non_null(strstr(ebb_device_name(f.device), "compute capability"));
    free(seen);
    fixture_free(&f);
}

/* OUT waits for COMPUTE's event, IN for OUT's: with delays on any queue the round trip is whole. */
static void events_order_queues_whatever_their_delays(void **state)
{
    (void)state;
    for (int k = 0; k < EBB_QUEUE_COUNT * WAYS; k++) {
        struct ebb_device_options options = ways[k % WAYS];
        options.delay_us[k / WAYS] = 2000;
        struct fixture f = fixture_create(options);
        struct ebb_device *d = f.device;
        const int64_t part = 1 << 20;
        unsigned char *seen = malloc((size_t)part);
        for (int round = 1; round <= 20; round++) {
            assert_int_equal(ebb_device_fill(d, f.on_device, round, part), EBB_OK);
            assert_int_equal(ebb_queue_copy(d, EBB_QUEUE_COMPUTE, f.on_device + part, f.on_device,
                                            part),
                             EBB_OK);
            assert_int_equal(ebb_queue_record(d, EBB_QUEUE_COMPUTE, 0), EBB_OK);
            assert_int_equal(ebb_queue_wait(d, EBB_QUEUE_OUT, 0), EBB_OK);
            assert_int_equal(ebb_queue_copy(d, EBB_QUEUE_OUT, f.on_host, f.on_device + part, part),
                             EBB_OK);
            assert_int_equal(ebb_queue_record(d, EBB_QUEUE_OUT, 1), EBB_OK);
            assert_int_equal(ebb_queue_wait(d, EBB_QUEUE_IN, 1), EBB_OK);
            assert_int_equal(ebb_queue_copy(d, EBB_QUEUE_IN, f.on_device + 2 * part, f.on_host,
                                            part),
                             EBB_OK);
            assert_int_equal(ebb_queue_record(d, EBB_QUEUE_IN, 2), EBB_OK);
            assert_int_equal(ebb_queue_wait(d, EBB_QUEUE_COMPUTE, 2), EBB_OK);
            assert_int_equal(ebb_queue_copy(d, EBB_QUEUE_COMPUTE, f.on_device + 3 * part,
                                            f.on_device + 2 * part, part),
                             EBB_OK);
            assert_int_equal(ebb_device_sync(d), EBB_OK);
            assert_int_equal(ebb_device_copy(d, seen, f.on_device + 3 * part, part), EBB_OK);
            for (int64_t i = 0; i < part; i += 4093) assert_int_equal(seen[i], round);
        }
        struct ebb_device_counters counters;
        ebb_device_counters(d, &counters);
        assert_int_equal(counters.bytes_out, 20 * part);
        assert_int_equal(counters.bytes_in, 20 * part);
        assert_true(counters.stall_seconds > 0); /* COMPUTE waited for IN each round */
        free(seen);
        fixture_free(&f);
    }
}

static enum ebb_status fails(const struct ebb_queue_env *env, const void *args)
{
    (void)args;
    return EBB_FAIL(ebb_device_ctx(env->device), EBB_FAILED, "as it was told to");
}

static void a_failing_function_shows_at_the_next_sync_and_what_follows_is_skipped(void **state)
{
    struct fixture f = fixture_create(*(const struct ebb_device_options *)*state);
    unsigned char seen = 9;
    assert_int_equal(ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, fails, NULL), EBB_OK);
    assert_int_equal(ebb_device_fill(f.device, f.on_device, 1, 1), EBB_OK);
    assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_OUT, f.on_host, f.on_device, 1), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_FAILED);
    assert_non_null(strstr(ebb_error_text(f.ctx), "as it was told to"));
    assert_int_equal(ebb_device_copy(f.device, &seen, f.on_host, 1), EBB_OK);
    assert_int_equal(seen, 0);
    ebb_error_clear(f.ctx);
    assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_OUT, f.on_host, f.on_device, 1), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(f.on_host[0], 1);
    fixture_free(&f);
}

static void marks_tell_times_across_queues_and_none_behind_a_failure(void **state)
{
    struct fixture f = fixture_create(*(const struct ebb_device_options *)*state);
    int first = -1, more = -1;
    assert_int_equal(ebb_device_marks(f.device, 2, &first), EBB_OK);
    assert_int_equal(ebb_device_marks(f.device, 2, &more), EBB_OK);
    assert_true(first == 0 && more == 2);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(ebb_queue_mark(f.device, EBB_QUEUE_OUT, 0), EBB_OK);
        if (round == 1)
            assert_int_equal(ebb_queue_launch(f.device, EBB_QUEUE_OUT, fails, NULL), EBB_OK);
        assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_OUT, f.on_host, f.on_device, BYTES),
                         EBB_OK);
        assert_int_equal(ebb_queue_mark(f.device, EBB_QUEUE_OUT, 1), EBB_OK);
        assert_int_equal(ebb_queue_record(f.device, EBB_QUEUE_OUT, 0), EBB_OK);
        assert_int_equal(ebb_queue_wait(f.device, EBB_QUEUE_COMPUTE, 0), EBB_OK);
        assert_int_equal(ebb_queue_mark(f.device, EBB_QUEUE_COMPUTE, 2), EBB_OK);
        assert_int_equal(ebb_device_sync(f.device), round == 1 ? EBB_FAILED : EBB_OK);
        double copy = ebb_device_mark_seconds(f.device, 0, 1);
        double across = ebb_device_mark_seconds(f.device, 1, 2);
        assert_true(round == 1 ? copy != copy : copy > 1e-5 && copy < 10); /* NaN, or 8 MiB */
        assert_true(round == 1 ? across != across : across > -1e-5);
        double never = ebb_device_mark_seconds(f.device, 0, 3);
        assert_true(never != never);
    }
    ebb_error_clear(f.ctx);
    fixture_free(&f);
}

static void a_ticket_may_be_waited_for_before_it_is_signalled(void **state)
{
    struct fixture f = fixture_create(*(const struct ebb_device_options *)*state);
    struct ebb_ticket *a, *b;
    assert_int_equal(ebb_ticket_create(f.device, &a), EBB_OK);
    assert_int_equal(ebb_ticket_create(f.device, &b), EBB_OK);
    assert_int_equal(ebb_device_fill(f.device, f.on_device, 5, 1), EBB_OK);
    assert_int_equal(ebb_queue_ticket_wait(f.device, EBB_QUEUE_OUT, a, 3, 20), EBB_OK);
    assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_OUT, f.on_host, f.on_device, 1), EBB_OK);
    assert_int_equal(ebb_queue_ticket_signal(f.device, EBB_QUEUE_OUT, b, 1), EBB_OK);
    assert_int_equal(ebb_ticket_wait(b, 1, 0.05), EBB_DEVICE); /* not yet */
    ebb_error_clear(f.ctx);
    assert_int_equal(f.on_host[0], 0);
    ebb_ticket_signal(a, 3);
    assert_int_equal(ebb_ticket_wait(b, 1, 20), EBB_OK);
    assert_int_equal(f.on_host[0], 5);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    ebb_ticket_free(a);
    ebb_ticket_free(b);
    fixture_free(&f);
}

static void a_wait_that_nobody_answers_ends_with_its_numbers(void **state)
{
    struct fixture f = fixture_create(*(const struct ebb_device_options *)*state);
    struct ebb_ticket *ticket;
    assert_int_equal(ebb_ticket_create(f.device, &ticket), EBB_OK);
    assert_int_equal(ebb_queue_ticket_wait(f.device, EBB_QUEUE_IN, ticket, 8, 0.1), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_DEVICE);
    assert_non_null(strstr(ebb_error_text(f.ctx), "in waited 0.1 s for a ticket's value 8"));
    ebb_ticket_free(ticket);
    fixture_free(&f);
}

static void a_failed_ticket_releases_and_fails_who_waits(void **state)
{
    struct fixture f = fixture_create(*(const struct ebb_device_options *)*state);
    struct ebb_ticket *ticket;
    assert_int_equal(ebb_ticket_create(f.device, &ticket), EBB_OK);
    assert_int_equal(ebb_queue_ticket_wait(f.device, EBB_QUEUE_IN, ticket, 1, 20), EBB_OK);
    ebb_ticket_fail(ticket, EBB_IO);
    assert_int_equal(ebb_device_sync(f.device), EBB_IO);
    assert_int_equal(ebb_ticket_wait(ticket, 1, 1), EBB_IO);
    ebb_ticket_free(ticket);
    fixture_free(&f);
}

static void more_than_the_gpu_has_is_refused_with_both_numbers(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_device *device;
    const struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA};
    ebb_ctx_set_log(ctx, drop_line, NULL);
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_OK);
    assert_int_equal(ebb_device_reserve(device, EBB_SPACE_DEVICE, INT64_C(1) << 50),
                     EBB_DOES_NOT_FIT);
    assert_non_null(strstr(ebb_error_text(ctx), " of device memory: "));
    assert_non_null(strstr(ebb_error_text(ctx), " are free on NVIDIA"));
    ebb_device_free(device);
    ebb_ctx_free(ctx);
}

/* ---- copies that bounce ---------------------------------------------------------------------- */

static enum ebb_status send_copy(void *user, enum ebb_queue queue, void *to, const void *from,
                                 int64_t bytes)
{
    return ebb_queue_copy((struct ebb_device *)user, queue, to, from, bytes);
}

static enum ebb_status send_record(void *user, enum ebb_queue queue, int event)
{
    return ebb_queue_record((struct ebb_device *)user, queue, event);
}

static enum ebb_status send_wait(void *user, enum ebb_queue queue, int event)
{
    return ebb_queue_wait((struct ebb_device *)user, queue, event);
}

static void check_traffic(struct ebb_device_options options, int64_t bytes, uint64_t seed)
{
    struct traffic_run run;
    struct fixture f = fixture_create(options);
    unsigned char *seen = malloc((size_t)bytes);
    assert_non_null(seen);
    assert_int_equal(ebb_device_events(f.device, TRAFFIC_EVENTS), EBB_OK);
    struct traffic traffic = {.user = f.device,
                              .copy = send_copy,
                              .record = send_record,
                              .wait = send_wait,
                              .memory = {f.on_device, f.on_host},
                              .bytes = bytes,
                              .events = TRAFFIC_EVENTS,
                              .seed = seed};
    assert_int_equal(ebb_device_sync(f.device), EBB_OK); /* the host space is ready */
    traffic_noise(seen, bytes, seed);
    traffic_noise((unsigned char *)f.on_host, bytes, ~seed);
    assert_int_equal(ebb_device_copy(f.device, f.on_device, seen, bytes), EBB_OK);
    for (int round = 0; round < 2; round++) {
        traffic_start(&run, &traffic, seen, f.on_host);
        traffic_send(&run);
        if (ebb_device_sync(f.device) != EBB_OK) fail_msg("%s", ebb_error_text(f.ctx));
        assert_int_equal(ebb_device_copy(f.device, seen, f.on_device, bytes), EBB_OK);
        traffic_end(&run, seen, f.on_host);
        traffic.seed++;
    }
    free(seen);
    fixture_free(&f);
}

static void copies_of_odd_sizes_on_all_queues_are_byte_exact(void **state)
{
    (void)state;
    const int64_t pieces[] = {4096, 65536, 333, 0};
    check_traffic((struct ebb_device_options){0}, 3000001, 1);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            check_traffic((struct ebb_device_options){.pageable = true, .bounce_bytes = pieces[i]},
                          pieces[i] == 333 ? 50001 : 3000001, seed);
}

static void copies_are_byte_exact_whatever_the_delays(void **state)
{
    (void)state;
    for (int slow = 0; slow < 8; slow++) { /* each set of queues */
        struct ebb_device_options options = {.pageable = true,
                                             .bounce_bytes = 16384,
                                             .delay_seed = (uint64_t)slow};
        for (int q = 0; q < EBB_QUEUE_COUNT; q++) options.delay_us[q] = slow >> q & 1 ? 300 : 0;
        check_traffic(options, 700001, (uint64_t)slow);
    }
}

/* The boundary between what is pinned and what is not lies within a block, in most of these. */
static void copies_are_byte_exact_where_memory_is_pinned_in_part(void **state)
{
    (void)state;
    const int64_t pageable[] = {4096, 250 * 4096, 732 * 4096, 733 * 4096};
    for (size_t i = 0; i < sizeof pageable / sizeof pageable[0]; i++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            struct ebb_device_options options = {.pageable_bytes = pageable[i],
                                                 .bounce_bytes = 65536,
                                                 .delay_seed = seed};
            check_traffic(options, 3000001, seed);
            options.delay_us[seed % EBB_QUEUE_COUNT] = 300;
            check_traffic(options, 700001, seed);
        }
}

/* The host's hand: rows of which one crosses from what is not pinned to what is. */
static void rows_are_copied_across_the_start_of_what_is_pinned(void **state)
{
    (void)state;
    enum { PAGEABLE = 3 * 4096, STRIDE = 1000, ROW = 700, ROWS = 40 };
    struct fixture f = fixture_create((struct ebb_device_options){.pageable_bytes = PAGEABLE});
    static unsigned char seen[STRIDE * ROWS];
    assert_int_equal(ebb_device_bytes_pinned(f.device), BYTES - PAGEABLE);
    for (int i = 0; i < STRIDE * ROWS; i++) f.on_host[i] = (char)(i * 7 % 251);
    assert_int_equal(ebb_device_copy_rows(f.device, f.on_device, ROW, f.on_host, STRIDE, ROW, ROWS),
                     EBB_OK);
    assert_int_equal(ebb_device_copy(f.device, seen, f.on_device, ROW * ROWS), EBB_OK);
    for (int r = 0; r < ROWS; r++) assert_memory_equal(seen + r * ROW, f.on_host + r * STRIDE, ROW);
    assert_int_equal(ebb_device_fill(f.device, f.on_host, 0, STRIDE * ROWS), EBB_OK);
    assert_int_equal(ebb_device_copy(f.device, f.on_host, f.on_device, ROW * ROWS), EBB_OK);
    assert_memory_equal(f.on_host, seen, ROW * ROWS);
    fixture_free(&f);
}

static void what_the_system_grants_is_pinned(void **state)
{
    (void)state;
    /* The whole is refused, and then all that is above five of its eight MiB. */
    struct fixture f = fixture_create((struct ebb_device_options){.pin_limit = 5 << 20});
    const int64_t pinned = ebb_device_bytes_pinned(f.device);
    assert_true(pinned <= 5 << 20 && pinned >= (5 << 20) - BYTES / 16);
    assert_true(ebb_device_pin_seconds(f.device) > 0);
    fixture_free(&f);
    f = fixture_create((struct ebb_device_options){.pageable = true});
    assert_int_equal(ebb_device_bytes_pinned(f.device), 0);
    assert_true(ebb_device_pin_seconds(f.device) == 0);
    fixture_free(&f);
    f = fixture_create((struct ebb_device_options){0});
    assert_int_equal(ebb_device_bytes_pinned(f.device), BYTES);
    fixture_free(&f);
}

/* The stress build has room for four pieces of 4 KiB. */
static void not_in_the_stress_build(void)
{
#ifdef EBB_TORTURE
    print_message("skipped: the stress build's rings are too small\n");
    skip();
#endif
}

/* OUT stands still at a ticket; copies both ways are enqueued behind it at once all the same. */
static void bounced_copies_do_not_hold_up_who_enqueues(void **state)
{
    (void)state;
    not_in_the_stress_build();
    const int64_t half = BYTES / 2;
    struct fixture f =
        fixture_create((struct ebb_device_options){.pageable = true, .bounce_bytes = 65536});
    struct ebb_ticket *ticket;
    unsigned char *seen = malloc((size_t)half);
    assert_int_equal(ebb_ticket_create(f.device, &ticket), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(ebb_device_fill(f.device, f.on_device, 7, half), EBB_OK);
    double began = ebb_clock_seconds();
    assert_int_equal(ebb_queue_ticket_wait(f.device, EBB_QUEUE_OUT, ticket, 1, 20), EBB_OK);
    assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_OUT, f.on_host, f.on_device, half), EBB_OK);
    assert_int_equal(ebb_queue_record(f.device, EBB_QUEUE_OUT, 0), EBB_OK);
    assert_int_equal(ebb_queue_wait(f.device, EBB_QUEUE_IN, 0), EBB_OK);
    assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_IN, f.on_device + half, f.on_host, half),
                     EBB_OK);
    double seconds = ebb_clock_seconds() - began;
    print_message("enqueueing 64 bounced pieces out and 64 in took %.0f us\n", 1e6 * seconds);
    assert_true(seconds < 0.5);
    usleep(20000);
    assert_int_equal(f.on_host[0], 0);
    ebb_ticket_signal(ticket, 1);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(ebb_device_copy(f.device, seen, f.on_device + half, half), EBB_OK);
    for (int64_t i = 0; i < half; i++) assert_true(seen[i] == 7 && f.on_host[i] == 7);
    ebb_ticket_free(ticket);
    free(seen);
    fixture_free(&f);
}

/* The host writes what IN then reads, and reads what OUT has written, with tickets in between. */
static void tickets_order_bounced_copies_and_the_host(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){
        .pageable = true, .bounce_bytes = 4096, .delay_seed = 6, .delay_us = {0, 2000, 0}});
    struct ebb_ticket *in, *out;
    assert_int_equal(ebb_ticket_create(f.device, &in), EBB_OK);
    assert_int_equal(ebb_ticket_create(f.device, &out), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    for (int round = 1; round <= 10; round++) {
        uint64_t value = (uint64_t)round;
        assert_int_equal(ebb_queue_ticket_wait(f.device, EBB_QUEUE_IN, in, value, 20), EBB_OK);
        assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_IN, f.on_device, f.on_host, 9001),
                         EBB_OK);
        assert_int_equal(ebb_queue_record(f.device, EBB_QUEUE_IN, 0), EBB_OK);
        assert_int_equal(ebb_queue_wait(f.device, EBB_QUEUE_OUT, 0), EBB_OK);
        assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_OUT, f.on_host + 100000, f.on_device,
                                        9001),
                         EBB_OK);
        assert_int_equal(ebb_queue_ticket_signal(f.device, EBB_QUEUE_OUT, out, value), EBB_OK);
        usleep(2000); /* whoever looks too early has time to */
        memset(f.on_host, round, 9001);
        ebb_ticket_signal(in, value);
        assert_int_equal(ebb_ticket_wait(out, value, 20), EBB_OK);
        for (int i = 0; i < 9001; i++) assert_int_equal(f.on_host[100000 + i], round);
    }
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    ebb_ticket_free(in);
    ebb_ticket_free(out);
    fixture_free(&f);
}

/* COMPUTE waits for the copy out that it reads nothing of, and writes its source. */
static void a_source_is_free_when_its_copy_is_done(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){
        .pageable = true, .bounce_bytes = 4096, .delay_seed = 5, .delay_us = {0, 300, 0}});
    const int64_t part = 100001;
    assert_int_equal(ebb_device_fill(f.device, f.on_device + part, 9, part), EBB_OK);
    for (int round = 1; round <= 20; round++) {
        assert_int_equal(ebb_device_fill(f.device, f.on_device, round, part), EBB_OK);
        assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_OUT, f.on_host, f.on_device, part),
                         EBB_OK);
        assert_int_equal(ebb_queue_record(f.device, EBB_QUEUE_OUT, 0), EBB_OK);
        assert_int_equal(ebb_queue_wait(f.device, EBB_QUEUE_COMPUTE, 0), EBB_OK);
        assert_int_equal(ebb_queue_copy(f.device, EBB_QUEUE_COMPUTE, f.on_device,
                                        f.on_device + part, part),
                         EBB_OK);
        assert_int_equal(ebb_device_sync(f.device), EBB_OK);
        for (int64_t i = 0; i < part; i++) assert_int_equal(f.on_host[i], round);
    }
    fixture_free(&f);
}

static void how_fast_copies_are(void **state)
{
    (void)state;
    not_in_the_stress_build();
    enum { WIDE = 256 << 20 };
    for (int way = 0; way < 2; way++) {
        struct ebb_ctx *ctx = ebb_ctx_create();
        struct ebb_device *d;
        double seconds[3];
        struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA, .pageable = way == 1};
        ebb_ctx_set_log(ctx, drop_line, NULL);
        assert_int_equal(ebb_device_create(ctx, &options, &d), EBB_OK);
        assert_int_equal(ebb_device_reserve(d, EBB_SPACE_DEVICE, 2 * (int64_t)WIDE), EBB_OK);
        assert_int_equal(ebb_device_reserve(d, EBB_SPACE_HOST, 2 * (int64_t)WIDE), EBB_OK);
        char *device = ebb_device_base(d, EBB_SPACE_DEVICE),
             *host = ebb_device_base(d, EBB_SPACE_HOST);
        for (int warm = 0; warm < 2; warm++)
            for (int direction = 0; direction < 3; direction++) {
                assert_int_equal(ebb_device_sync(d), EBB_OK);
                double began = ebb_clock_seconds();
                if (direction != 1)
                    assert_int_equal(ebb_queue_copy(d, EBB_QUEUE_OUT, host, device, WIDE), EBB_OK);
                if (direction != 0)
                    assert_int_equal(ebb_queue_copy(d, EBB_QUEUE_IN, device + WIDE, host + WIDE,
                                                    WIDE),
                                     EBB_OK);
                assert_int_equal(ebb_device_sync(d), EBB_OK);
                seconds[direction] = ebb_clock_seconds() - began;
            }
        print_message("%s: out %.1f, in %.1f, both ways %.1f GB/s each\n",
                      way == 0 ? "pinned" : "bounced", WIDE / seconds[0] * 1e-9,
                      WIDE / seconds[1] * 1e-9, WIDE / seconds[2] * 1e-9);
        ebb_device_free(d);
        ebb_ctx_free(ctx);
    }
}

/* ---- memory as the driver counts it ---------------------------------------------------------- */

static void memory_of_the_process_is_the_spaces_and_an_overhead(void **state)
{
    (void)state;
    static const char *const names[] = {"counted by the driver", "a difference", "unknown"};
    const int64_t more = INT64_C(1) << 30;
    struct fixture f = fixture_create((struct ebb_device_options){0});
    enum ebb_bytes_way way, after_way;
    void *block;
    char total[32], overhead[32], left[32], all[32];
    double began = ebb_clock_seconds();
    int64_t bytes = ebb_device_bytes_process(f.device, &way);
    double seconds = ebb_clock_seconds() - began;
    int64_t over = ebb_device_bytes_overhead(f.device);
    print_message("this process: %s (%s; the question took %.2f ms), overhead %s; %s of %s free\n",
                  ebb_text_bytes(bytes, total, sizeof total), names[way], 1e3 * seconds,
                  ebb_text_bytes(over, overhead, sizeof overhead),
                  ebb_text_bytes(ebb_backend_bytes_free(f.ctx, EBB_BACKEND_CUDA), left,
                                 sizeof left),
                  ebb_text_bytes(ebb_backend_bytes_total(EBB_BACKEND_CUDA), all, sizeof all));
    assert_true(ebb_backend_bytes_free(f.ctx, EBB_BACKEND_CUDA) > 0);
    if (way == EBB_BYTES_UNKNOWN) {
        assert_true(bytes == -1 && over == -1);
    } else {
        assert_true(bytes >= BYTES && over >= 0 &&
                    over < ebb_backend_bytes_total(EBB_BACKEND_CUDA));
        assert_int_equal(ebb_device_block_create(f.device, more, false, &block), EBB_OK);
        int64_t grown = ebb_device_bytes_process(f.device, &after_way) - bytes;
        print_message("a block of 1 GiB counts as %s\n",
                      ebb_text_bytes(grown, total, sizeof total));
        assert_int_equal(after_way, way);
        if (way == EBB_BYTES_COUNTED) assert_true(grown >= more && grown < more + (64 << 20));
        ebb_device_block_free(f.device, block);
    }
    fixture_free(&f);
}

/* nvidia-smi's number, wherever the kernel's module tells. */
static void the_driver_says_its_own_version(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0});
    struct ebb_backend_facts facts;
    assert_true(ebb_backend_facts(f.ctx, EBB_BACKEND_CUDA, &facts));
    print_message("%s, driver %s\n", facts.name, facts.driver);
    assert_true(strchr(facts.driver, '.') != NULL);
    if (access("/proc/driver/nvidia/version", R_OK) == 0)
        assert_int_equal(strspn(facts.driver, "0123456789."), strlen(facts.driver));
    fixture_free(&f);
}

/* ---- in a process of their own --------------------------------------------------------------- */

struct child {
    pid_t pid;
    int to, from;
};

static struct child child_start(const char *mode)
{
    struct child child;
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        for (int i = 0; i < 2; i++) close(to[i]), close(from[i]);
        execl("/proc/self/exe", "test_device_cuda", mode, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    child.to = to[1];
    child.from = from[0];
    return child;
}

/* What it says until it ends, or until `until` is in it. */
static void child_read(const struct child *child, const char *until, char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    while (used + 1 < room && (until == NULL || strstr(text, until) == NULL)) {
        ssize_t got = read(child->from, text + used, room - 1 - used);
        if (got <= 0) break;
        used += (size_t)got;
        text[used] = '\0';
    }
}

/* Its exit code. */
static int child_end(const struct child *child)
{
    int status = 0;
    close(child->to);
    close(child->from);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (condition) break;                                                                      \
        printf("not so, line %d: %s\n%s\n", __LINE__, #condition, ebb_error_text(ctx));            \
        return 1;                                                                                  \
    } while (0)

/* A fault with copies, events and a ticket on their way. Ends with the exit code of a lost GPU. */
static int lose(bool pageable)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA,
                                         .pageable = pageable,
                                         .bounce_bytes = 65536};
    struct ebb_device *d;
    struct ebb_ticket *ticket;
    int mark;
    alarm(60); /* a hang is a failure */
    ebb_ctx_set_log(ctx, drop_line, NULL);
    MUST(ebb_device_create(ctx, &options, &d) == EBB_OK);
    MUST(ebb_device_events(d, 2) == EBB_OK);
    MUST(ebb_device_reserve(d, EBB_SPACE_DEVICE, BYTES) == EBB_OK);
    MUST(ebb_device_reserve(d, EBB_SPACE_HOST, BYTES) == EBB_OK);
    MUST(ebb_ticket_create(d, &ticket) == EBB_OK);
    MUST(ebb_device_sync(d) == EBB_OK);
    char *device = ebb_device_base(d, EBB_SPACE_DEVICE), *host = ebb_device_base(d, EBB_SPACE_HOST);
    MUST(ebb_device_marks(d, 2, &mark) == EBB_OK);
    MUST(ebb_queue_mark(d, EBB_QUEUE_COMPUTE, mark) == EBB_OK);
    ebb_device_break(d);
    MUST(ebb_queue_mark(d, EBB_QUEUE_COMPUTE, mark + 1) == EBB_OK);
    MUST(ebb_queue_record(d, EBB_QUEUE_COMPUTE, 0) == EBB_OK);
    MUST(ebb_queue_ticket_signal(d, EBB_QUEUE_COMPUTE, ticket, 1) == EBB_OK);
    MUST(ebb_queue_wait(d, EBB_QUEUE_OUT, 0) == EBB_OK);
    MUST(ebb_queue_copy(d, EBB_QUEUE_OUT, host, device, BYTES) == EBB_OK);
    MUST(ebb_queue_record(d, EBB_QUEUE_OUT, 1) == EBB_OK);
    MUST(ebb_queue_wait(d, EBB_QUEUE_IN, 1) == EBB_OK);
    MUST(ebb_queue_copy(d, EBB_QUEUE_IN, device, host, BYTES) == EBB_OK);
    enum ebb_status status = ebb_device_sync(d);
    MUST(status == EBB_DEVICE);
    printf("%s\n", ebb_error_text(ctx));
    ebb_error_clear(ctx);
    double seconds = ebb_device_mark_seconds(d, mark, mark + 1);
    MUST(seconds != seconds); /* NaN */
    MUST(ebb_queue_mark(d, EBB_QUEUE_COMPUTE, mark) == EBB_OK);
    MUST(ebb_ticket_wait(ticket, 1, 10) == EBB_DEVICE);
    ebb_error_clear(ctx);
    MUST(ebb_queue_copy(d, EBB_QUEUE_OUT, host, device, 1) == EBB_OK);
    MUST(ebb_device_sync(d) == EBB_DEVICE);
    MUST(strstr(ebb_error_text(ctx), "was lost before") != NULL);
    MUST(ebb_device_copy(d, host, device, 1) == EBB_DEVICE);
    ebb_ticket_free(ticket);
    ebb_device_free(d);
    MUST(ebb_mem_bytes_now(ctx) == 0);
    ebb_ctx_free(ctx);
    printf("freed\n");
    return ebb_status_exit_code(status);
}

/* Takes most of the GPU's memory until its input ends. */
static int hold(void)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    const struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA};
    struct ebb_device *d;
    char byte;
    alarm(60);
    int64_t bytes = ebb_backend_bytes_free(ctx, EBB_BACKEND_CUDA);
    MUST(bytes > INT64_C(8) << 30);
    MUST(ebb_device_create(ctx, &options, &d) == EBB_OK);
    MUST(ebb_device_reserve(d, EBB_SPACE_DEVICE, bytes - (INT64_C(6) << 30)) == EBB_OK);
    printf("ready\n");
    fflush(stdout);
    MUST(read(STDIN_FILENO, &byte, 1) == 0);
    ebb_device_free(d);
    ebb_ctx_free(ctx);
    return 0;
}

/* With no GPU to be seen. */
static int hide(void)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    const struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA};
    struct ebb_device *d;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    enum ebb_status status = ebb_device_create(ctx, &options, &d);
    MUST(status == EBB_DEVICE && d == NULL);
    MUST(ebb_backend_bytes_free(ctx, EBB_BACKEND_CUDA) == 0);
    MUST(ebb_backend_bytes_total(EBB_BACKEND_CUDA) == 0);
    printf("%s\n", ebb_error_text(ctx));
    ebb_ctx_free(ctx);
    return ebb_status_exit_code(status);
}

static void a_lost_gpu_ends_everything_with_one_message(void **state)
{
    (void)state;
    const char *const modes[] = {"lose", "lose-pageable"};
    for (int way = 0; way < 2; way++) {
        char text[4096];
        double began = ebb_clock_seconds();
        struct child child = child_start(modes[way]);
        child_read(&child, NULL, text, sizeof text);
        int code = child_end(&child);
        print_message("%s, after %.1f s with exit code %d:\n%s", modes[way],
                      ebb_clock_seconds() - began, code, text);
        assert_non_null(strstr(text, "the GPU failed at "));
        assert_non_null(strstr(text, "\nlost:  NVIDIA"));
        assert_non_null(strstr(text, "this process cannot use it any more"));
        assert_non_null(strstr(text, "'Xid'"));
        assert_non_null(strstr(text, "\nfreed\n"));
        assert_int_equal(code, 4);
    }
}

static void memory_that_another_process_has_is_told(void **state)
{
    (void)state;
    char text[4096], pid[32];
    struct child child = child_start("hold");
    child_read(&child, "\n", text, sizeof text);
    if (strcmp(text, "ready\n") != 0) fail_msg("%s", text);
    struct ebb_ctx *ctx = ebb_ctx_create();
    const struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA};
    struct ebb_device *device;
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_OK);
    int64_t half = ebb_backend_bytes_total(EBB_BACKEND_CUDA) / 2;
    assert_int_equal(ebb_device_reserve(device, EBB_SPACE_DEVICE, half), EBB_DOES_NOT_FIT);
    const char *said = ebb_error_text(ctx);
    print_message("%s\n", said);
    assert_non_null(strstr(said, " are free on NVIDIA"));
    assert_non_null(strstr(said, "memory_budget below what is free"));
    snprintf(pid, sizeof pid, "%d", (int)child.pid);
    if (strstr(said, pid) == NULL)
        print_message("the driver does not name process %s (a container?)\n", pid);
    ebb_device_free(device);
    ebb_ctx_free(ctx);
    assert_int_equal(child_end(&child), 0);
}

static void a_gpu_that_is_hidden_is_told_by_its_variable(void **state)
{
    (void)state;
    char text[4096];
    struct child child = child_start("hide");
    child_read(&child, NULL, text, sizeof text);
    print_message("%s", text);
    assert_non_null(strstr(text, "CUDA_VISIBLE_DEVICES is ''"));
    assert_int_equal(child_end(&child), 4);
}

#define PER_WAY(name)                                                                              \
    cmocka_unit_test_prestate(name, (void *)(uintptr_t)&ways[0]),                                  \
        cmocka_unit_test_prestate(name, (void *)(uintptr_t)&ways[1]),                              \
        cmocka_unit_test_prestate(name, (void *)(uintptr_t)&ways[2])

int main(int argc, char **argv)
{
    char why[EBB_BACKEND_WHY];
    if (argc == 2 && strcmp(argv[1], "lose") == 0) return lose(false);
    if (argc == 2 && strcmp(argv[1], "lose-pageable") == 0) return lose(true);
    if (argc == 2 && strcmp(argv[1], "hold") == 0) return hold();
    if (argc == 2 && strcmp(argv[1], "hide") == 0) return hide();
    const struct CMUnitTest tests[] = {
        /* The first that opens the GPU: later the difference is not known. */
        cmocka_unit_test(memory_of_the_process_is_the_spaces_and_an_overhead),
        cmocka_unit_test(memory_is_zero_at_first_and_the_host_reaches_it_by_copies),
        cmocka_unit_test(events_order_queues_whatever_their_delays),
        PER_WAY(a_failing_function_shows_at_the_next_sync_and_what_follows_is_skipped),
        PER_WAY(marks_tell_times_across_queues_and_none_behind_a_failure),
        PER_WAY(a_ticket_may_be_waited_for_before_it_is_signalled),
        PER_WAY(a_wait_that_nobody_answers_ends_with_its_numbers),
        PER_WAY(a_failed_ticket_releases_and_fails_who_waits),
        cmocka_unit_test(copies_of_odd_sizes_on_all_queues_are_byte_exact),
        cmocka_unit_test(copies_are_byte_exact_whatever_the_delays),
        cmocka_unit_test(copies_are_byte_exact_where_memory_is_pinned_in_part),
        cmocka_unit_test(rows_are_copied_across_the_start_of_what_is_pinned),
        cmocka_unit_test(what_the_system_grants_is_pinned),
        cmocka_unit_test(bounced_copies_do_not_hold_up_who_enqueues),
        cmocka_unit_test(tickets_order_bounced_copies_and_the_host),
        cmocka_unit_test(a_source_is_free_when_its_copy_is_done),
        cmocka_unit_test(how_fast_copies_are),
        cmocka_unit_test(the_driver_says_its_own_version),
        cmocka_unit_test(a_lost_gpu_ends_everything_with_one_message),
        cmocka_unit_test(memory_that_another_process_has_is_told),
        cmocka_unit_test(a_gpu_that_is_hidden_is_told_by_its_variable),
        cmocka_unit_test(more_than_the_gpu_has_is_refused_with_both_numbers),
    };
    if (!ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
