/* The CUDA backend's memory, queues, events, copies and tickets. Skipped where there is no GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/context.h"
#include "device/device.h"

enum { BYTES = 8 << 20 };

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
    for (int slow = 0; slow < EBB_QUEUE_COUNT; slow++) {
        struct ebb_device_options options = {.delay_seed = 3};
        options.delay_us[slow] = 2000;
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
            assert_int_equal(
                ebb_queue_copy(d, EBB_QUEUE_IN, f.on_device + 2 * part, f.on_host, part), EBB_OK);
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
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0});
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

static void a_ticket_may_be_waited_for_before_it_is_signalled(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0});
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
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0});
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
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0});
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
                     EBB_NO_MEMORY);
    assert_non_null(strstr(ebb_error_text(ctx), " of device memory: "));
    assert_non_null(strstr(ebb_error_text(ctx), " are free on NVIDIA"));
    ebb_device_free(device);
    ebb_ctx_free(ctx);
}

int main(void)
{
    char why[160];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zero_at_first_and_the_host_reaches_it_by_copies),
        cmocka_unit_test(events_order_queues_whatever_their_delays),
        cmocka_unit_test(a_failing_function_shows_at_the_next_sync_and_what_follows_is_skipped),
        cmocka_unit_test(a_ticket_may_be_waited_for_before_it_is_signalled),
        cmocka_unit_test(a_wait_that_nobody_answers_ends_with_its_numbers),
        cmocka_unit_test(a_failed_ticket_releases_and_fails_who_waits),
        cmocka_unit_test(more_than_the_gpu_has_is_refused_with_both_numbers),
    };
    if (!ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
