/* The stash: bytes come back, wrong calls are refused with a reason, and checksums find what a
 * missing event breaks.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/context.h"
#include "ebb/stash.h"

enum { OBJECT_X, OBJECT_QKV, OBJECT_LOW, OBJECT_FAR, OBJECTS };
static const struct ebb_stash_object objects[OBJECTS] = {
    [OBJECT_X] = {.name = "layer 0 x", .host_offset = 0, .bytes = 1000},
    [OBJECT_QKV] = {.name = "layer 0 qkv", .host_offset = 1024, .bytes = 3000},
    [OBJECT_LOW] = {.name = "layer 1 x", .host_offset = 512, .bytes = 1000}, /* overlaps both */
    [OBJECT_FAR] = {.name = "layer 2 x", .host_offset = 8000, .bytes = 200},
};

struct fixture {
    struct ebb_ctx *ctx;
    struct ebb_device *device;
    struct ebb_stash *stash;
    unsigned char *memory, *host;
};

static void drop_line(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

static struct fixture fixture_create(struct ebb_device_options options, bool checksums)
{
    struct fixture f = {.ctx = ebb_ctx_create()};
    assert_non_null(f.ctx);
    ebb_ctx_set_log(f.ctx, drop_line, NULL);
    options.threads = 1;
    assert_int_equal(ebb_device_create(f.ctx, &options, &f.device), EBB_OK);
    assert_int_equal(ebb_device_events(f.device, 4), EBB_OK);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_DEVICE, 65536), EBB_OK);
    assert_int_equal(ebb_device_reserve(f.device, EBB_SPACE_HOST, 8192), EBB_OK);
    f.memory = ebb_device_base(f.device, EBB_SPACE_DEVICE);
    f.host = ebb_device_base(f.device, EBB_SPACE_HOST);
    for (int i = 0; i < 65536; i++) f.memory[i] = (unsigned char)(i * 131 / 7);
    assert_int_equal(ebb_stash_create(f.device, objects, OBJECTS, checksums, &f.stash), EBB_OK);
    return f;
}

static void fixture_free(struct fixture *f)
{
    ebb_stash_free(f->stash);
    ebb_device_free(f->device);
    assert_int_equal(ebb_mem_bytes_now(f->ctx), 0);
    ebb_ctx_free(f->ctx);
}

static void assert_text_has(const struct ebb_ctx *ctx, const char *piece)
{
    if (strstr(ebb_error_text(ctx), piece) == NULL)
        fail_msg("'%s' is not in the message '%s'", piece, ebb_error_text(ctx));
}

/* The last call was refused for this reason; forgets it. */
static void assert_refused(struct fixture *f, enum ebb_status status, const char *piece)
{
    assert_int_equal(status, EBB_FAILED);
    assert_text_has(f->ctx, piece);
    ebb_error_clear(f->ctx);
}

static enum ebb_status out(struct fixture *f, int64_t object, int64_t offset, int64_t bytes,
                           bool last)
{
    return ebb_stash_out(f->stash, EBB_QUEUE_OUT, object, offset, bytes, last, f->memory + offset);
}

static enum ebb_status in(struct fixture *f, int64_t object, int64_t offset, int64_t bytes)
{
    return ebb_stash_in(f->stash, EBB_QUEUE_IN, object, offset, bytes, f->memory + 32768 + offset);
}

static void in_waits_for_out(struct fixture *f)
{
    ebb_queue_record(f->device, EBB_QUEUE_OUT, 0);
    ebb_queue_wait(f->device, EBB_QUEUE_IN, 0);
}

/* ---- moves ----------------------------------------------------------------------------------- */

static void an_object_comes_back_whole(void **state)
{
    (void)state;
    for (int checksums = 0; checksums < 2; checksums++) {
        struct fixture f =
            fixture_create((struct ebb_device_options){.delay_us = {0, 500, 500}}, checksums != 0);
        assert_int_equal(ebb_stash_generation(f.stash, OBJECT_X), 0);
        assert_int_equal(out(&f, OBJECT_X, 0, 1000, true), EBB_OK);
        assert_int_equal(ebb_stash_generation(f.stash, OBJECT_X), 1);
        assert_int_equal(ebb_stash_generation(f.stash, OBJECT_QKV), 0);
        in_waits_for_out(&f);
        assert_int_equal(in(&f, OBJECT_X, 0, 1000), EBB_OK);
        assert_int_equal(ebb_device_sync(f.device), EBB_OK);
        assert_memory_equal(f.memory + 32768, f.memory, 1000);
        assert_memory_equal(f.host, f.memory, 1000);
        struct ebb_device_counters counters;
        ebb_device_counters(f.device, &counters);
        assert_int_equal(counters.bytes_out, 1000);
        assert_int_equal(counters.bytes_in, 1000);
        fixture_free(&f);
    }
}

static void parts_may_come_back_in_any_order_and_cut_differently(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){.delay_us = {0, 200, 200}}, true);
    assert_int_equal(out(&f, OBJECT_QKV, 0, 700, false), EBB_OK);
    assert_int_equal(out(&f, OBJECT_QKV, 700, 0, false), EBB_OK);
    assert_int_equal(out(&f, OBJECT_QKV, 700, 1300, false), EBB_OK);
    assert_int_equal(out(&f, OBJECT_QKV, 2000, 1000, true), EBB_OK);
    in_waits_for_out(&f);
    assert_int_equal(in(&f, OBJECT_QKV, 2000, 1000), EBB_OK); /* a part */
    assert_int_equal(in(&f, OBJECT_QKV, 0, 2000), EBB_OK);    /* two parts */
    assert_int_equal(in(&f, OBJECT_QKV, 650, 100), EBB_OK);   /* across a border */
    assert_int_equal(in(&f, OBJECT_QKV, 100, 2500), EBB_OK);  /* cut at both ends */
    assert_int_equal(in(&f, OBJECT_QKV, 10, 20), EBB_OK);     /* inside a part */
    assert_int_equal(in(&f, OBJECT_QKV, 3000, 0), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_memory_equal(f.memory + 32768, f.memory, 3000);
    fixture_free(&f);
}

static void a_generation_may_end_before_the_object_does(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0}, true);
    assert_int_equal(out(&f, OBJECT_X, 0, 300, false), EBB_OK);
    assert_int_equal(out(&f, OBJECT_X, 300, 100, true), EBB_OK);
    in_waits_for_out(&f);
    assert_int_equal(in(&f, OBJECT_X, 0, 400), EBB_OK);
    assert_refused(&f, in(&f, OBJECT_X, 0, 401), "read to byte 401, but generation 1 ends at 400");
    /* A run with nothing at all. */
    assert_int_equal(out(&f, OBJECT_QKV, 0, 0, true), EBB_OK);
    assert_int_equal(in(&f, OBJECT_QKV, 0, 0), EBB_OK);
    assert_refused(&f, in(&f, OBJECT_QKV, 0, 1), "ends at 0");
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    fixture_free(&f);
}

static void a_new_generation_replaces_the_one_before(void **state)
{
    (void)state;
    struct fixture f =
        fixture_create((struct ebb_device_options){.delay_us = {0, 100, 100}, .delay_seed = 2},
                       true);
    for (int round = 0; round < 20; round++) {
        int64_t at = 1000 * round;
        ebb_queue_wait(f.device, EBB_QUEUE_OUT, 1);
        assert_int_equal(ebb_stash_out(f.stash, EBB_QUEUE_OUT, OBJECT_X, 0, 400, false,
                                       f.memory + at),
                         EBB_OK);
        assert_int_equal(ebb_stash_out(f.stash, EBB_QUEUE_OUT, OBJECT_X, 400, 600, true,
                                       f.memory + at + 400),
                         EBB_OK);
        in_waits_for_out(&f);
        assert_int_equal(ebb_stash_in(f.stash, EBB_QUEUE_IN, OBJECT_X, 0, 1000,
                                      f.memory + 32768 + at),
                         EBB_OK);
        ebb_queue_record(f.device, EBB_QUEUE_IN, 1);
    }
    assert_int_equal(ebb_stash_generation(f.stash, OBJECT_X), 20);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_memory_equal(f.memory + 32768, f.memory, 20000);
    fixture_free(&f);
}

static void many_moves_with_checksums_need_no_more_memory(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0}, true);
    int64_t before = ebb_mem_bytes_now(f.ctx);
    ebb_mem_fail_nth(f.ctx, 1, true); /* a move that allocates fails */
    for (int round = 0; round < 500; round++) {
        if (round % 100 == 0) ebb_stash_reset(f.stash);
        ebb_queue_wait(f.device, EBB_QUEUE_OUT, 1);
        for (int part = 0; part < 10; part++) {
            enum ebb_status status = out(&f, OBJECT_X, part * 100, 100, part == 9);
            assert_int_equal(status, EBB_OK);
        }
        in_waits_for_out(&f);
        assert_int_equal(in(&f, OBJECT_X, 0, 1000), EBB_OK);
        ebb_queue_record(f.device, EBB_QUEUE_IN, 1);
    }
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    ebb_mem_fail_nth(f.ctx, 0, false);
    assert_int_equal(ebb_mem_bytes_now(f.ctx), before);
    assert_int_equal(ebb_stash_generation(f.stash, OBJECT_X), 500);
    fixture_free(&f);
}

static void too_many_parts_at_once_are_refused(void **state)
{
    (void)state;
    struct ebb_stash_object large = {.name = "large", .host_offset = 0, .bytes = 16385};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_device_options options = {.threads = 1};
    struct ebb_device *device = NULL;
    struct ebb_stash *stash = NULL;
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_OK);
    assert_int_equal(ebb_device_reserve(device, EBB_SPACE_DEVICE, 20000), EBB_OK);
    assert_int_equal(ebb_device_reserve(device, EBB_SPACE_HOST, 20000), EBB_OK);
    assert_int_equal(ebb_stash_create(device, &large, 1, true, &stash), EBB_OK);
    const char *base = ebb_device_base(device, EBB_SPACE_DEVICE);
    enum ebb_status status = EBB_OK;
    for (int i = 0; i < 16384 && status == EBB_OK; i++)
        status = ebb_stash_out(stash, EBB_QUEUE_OUT, 0, i, 1, false, base + i);
    assert_int_equal(status, EBB_OK);
    assert_int_equal(ebb_stash_out(stash, EBB_QUEUE_OUT, 0, 16384, 1, true, base), EBB_FAILED);
    assert_text_has(ctx, "16384 parts at once");
    ebb_error_clear(ctx);
    ebb_stash_reset(stash);
    assert_int_equal(ebb_stash_out(stash, EBB_QUEUE_OUT, 0, 0, 16385, true, base), EBB_OK);
    assert_int_equal(ebb_device_sync(device), EBB_OK);
    ebb_stash_free(stash);
    ebb_device_free(device);
    ebb_ctx_free(ctx);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void reading_before_writing_out_is_refused(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0}, false);
    assert_refused(&f, in(&f, OBJECT_X, 0, 1000),
                   "'layer 0 x' of the stash is read, but nothing of it was written");
    assert_int_equal(out(&f, OBJECT_X, 0, 600, false), EBB_OK);
    assert_refused(&f, in(&f, OBJECT_X, 0, 600),
                   "generation 1 is not complete: 600 bytes went out");
    assert_int_equal(out(&f, OBJECT_X, 600, 400, true), EBB_OK);
    in_waits_for_out(&f);
    assert_int_equal(in(&f, OBJECT_X, 0, 1000), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    /* The old generation is gone as soon as the next begins. */
    assert_int_equal(out(&f, OBJECT_X, 0, 600, false), EBB_OK);
    assert_int_equal(ebb_stash_generation(f.stash, OBJECT_X), 1);
    assert_refused(&f, in(&f, OBJECT_X, 0, 600), "generation 2 is not complete");
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    fixture_free(&f);
}

static void parts_out_of_order_are_refused(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0}, false);
    assert_refused(&f, out(&f, OBJECT_X, 100, 100, false),
                   "out at offset 100, but the next one begins at 0");
    assert_int_equal(out(&f, OBJECT_X, 0, 100, false), EBB_OK);
    assert_refused(&f, out(&f, OBJECT_X, 0, 100, false),
                   "at offset 0, but the next one begins at 100");
    assert_refused(&f, out(&f, OBJECT_X, 101, 100, false),
                   "at offset 101, but the next one begins at 100");
    assert_int_equal(out(&f, OBJECT_X, 100, 900, true),
                     EBB_OK); /* the refused ones changed nothing */
    assert_refused(&f, out(&f, OBJECT_X, 100, 100, false),
                   "generation 2: a part goes out at offset 100");
    in_waits_for_out(&f);
    assert_int_equal(in(&f, OBJECT_X, 0, 1000), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    struct ebb_device_counters counters;
    ebb_device_counters(f.device, &counters);
    assert_int_equal(counters.bytes_out, 1000);
    fixture_free(&f);
}

static void parts_that_do_not_lie_in_the_object_are_refused(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0}, false);
    assert_refused(&f, out(&f, OBJECT_X, 0, 1001, true),
                   "'layer 0 x' of the stash has 1000 bytes; a part of 1001");
    assert_refused(&f, out(&f, OBJECT_X, 0, -1, true), "a part of -1 at offset 0");
    assert_refused(&f, ebb_stash_in(f.stash, EBB_QUEUE_IN, OBJECT_X, -1, 10, f.memory),
                   "at offset -1");
    assert_refused(&f, ebb_stash_in(f.stash, EBB_QUEUE_IN, OBJECT_X, 1000, INT64_MAX, f.memory),
                   "at offset 1000");
    assert_refused(&f, out(&f, OBJECTS, 0, 1, true),
                   "object 4 of the stash was asked for; it has 4");
    assert_refused(&f, in(&f, -1, 0, 1), "object -1");
    assert_refused(&f, out(&f, OBJECT_FAR, 0, 200, true),
                   "home of object 'layer 2 x' of the stash ends at 8200, but");
    fixture_free(&f);
}

static void a_stash_needs_the_host_space_and_sane_objects(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_device_options options = {.threads = 1};
    struct ebb_device *device = NULL;
    struct ebb_stash *stash = NULL;
    assert_int_equal(ebb_device_create(ctx, &options, &device), EBB_OK);
    struct ebb_stash_object wrong = {.name = "wrong", .host_offset = -8, .bytes = 8};
    assert_int_equal(ebb_stash_create(device, &wrong, 1, true, &stash), EBB_FAILED);
    assert_null(stash);
    assert_text_has(ctx, "'wrong' of the stash has 8 bytes at host offset -8");
    ebb_error_clear(ctx);
    int64_t nth = 0;
    enum ebb_status status;
    do {
        ebb_mem_fail_nth(ctx, ++nth, false);
        status = ebb_stash_create(device, objects, OBJECTS, true, &stash);
        ebb_mem_fail_nth(ctx, 0, false);
        if (status != EBB_OK) assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(ctx);
    } while (status != EBB_OK);
    assert_true(nth > 3);
    char from[1000];
    assert_int_equal(ebb_stash_out(stash, EBB_QUEUE_OUT, OBJECT_X, 0, 1000, true, from),
                     EBB_FAILED);
    assert_text_has(ctx, "host space is not reserved");
    ebb_stash_free(stash);
    ebb_stash_free(NULL);
    ebb_device_free(device);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
}

static void reset_forgets_the_content_and_counts_generations_on(void **state)
{
    (void)state;
    for (int checksums = 0; checksums < 2; checksums++) {
        struct fixture f = fixture_create((struct ebb_device_options){0}, checksums != 0);
        assert_int_equal(out(&f, OBJECT_X, 0, 1000, true), EBB_OK);
        assert_int_equal(out(&f, OBJECT_QKV, 0, 1000, false), EBB_OK); /* the step broke off here */
        ebb_stash_reset(f.stash);
        assert_refused(&f, in(&f, OBJECT_X, 0, 1000), "nothing of it was written out");
        assert_refused(&f, out(&f, OBJECT_QKV, 1000, 1000, false), "the next one begins at 0");
        assert_int_equal(out(&f, OBJECT_QKV, 0, 3000, true), EBB_OK);
        assert_int_equal(ebb_stash_generation(f.stash, OBJECT_X), 1);
        assert_int_equal(ebb_stash_generation(f.stash, OBJECT_QKV), 1);
        in_waits_for_out(&f);
        assert_int_equal(in(&f, OBJECT_QKV, 0, 3000), EBB_OK);
        assert_int_equal(ebb_device_sync(f.device), EBB_OK);
        fixture_free(&f);
    }
}

/* ---- checksums ------------------------------------------------------------------------------- */

static void an_overwritten_home_is_found_by_object_bytes_and_generation(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0}, true);
    for (int generation = 1; generation <= 2; generation++) {
        assert_int_equal(out(&f, OBJECT_X, 0, 400, false), EBB_OK);
        assert_int_equal(out(&f, OBJECT_X, 400, 600, true), EBB_OK);
    }
    assert_int_equal(out(&f, OBJECT_LOW, 0, 488, true),
                     EBB_OK); /* home 512 to 1000: the second part's */
    in_waits_for_out(&f);
    assert_int_equal(in(&f, OBJECT_X, 0, 400), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_int_equal(in(&f, OBJECT_X, 0, 1000), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_DEVICE);
    assert_text_has(f.ctx, "object 'layer 0 x' of the stash, bytes 400 to 1000 of generation 2");
    assert_text_has(f.ctx, "its home in host memory was overwritten");
    ebb_error_clear(f.ctx);
    /* A cut part is proved too. */
    assert_int_equal(in(&f, OBJECT_X, 410, 10), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_DEVICE);
    assert_text_has(f.ctx, "bytes 400 to 1000");
    ebb_error_clear(f.ctx);
    /* The stash is usable again, from the next step on. */
    ebb_stash_reset(f.stash);
    assert_int_equal(out(&f, OBJECT_X, 0, 1000, true), EBB_OK);
    in_waits_for_out(&f);
    assert_int_equal(in(&f, OBJECT_X, 0, 1000), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    fixture_free(&f);
}

static void without_checksums_an_overwritten_home_goes_unnoticed(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0}, false);
    assert_int_equal(out(&f, OBJECT_X, 0, 1000, true), EBB_OK);
    assert_int_equal(out(&f, OBJECT_LOW, 0, 488, true), EBB_OK);
    in_waits_for_out(&f);
    assert_int_equal(in(&f, OBJECT_X, 0, 1000), EBB_OK);
    assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    assert_memory_not_equal(f.memory + 32768, f.memory, 1000);
    fixture_free(&f);
}

static void a_missing_event_between_out_and_in_is_found(void **state)
{
    (void)state;
    struct fixture f = fixture_create((struct ebb_device_options){0}, true);
    struct ebb_ticket *ticket = NULL;
    assert_int_equal(ebb_ticket_create(f.device, &ticket), EBB_OK);
    ebb_queue_ticket_wait(f.device, EBB_QUEUE_OUT, ticket, 1,
                          1.0); /* holds OUT up until IN has failed */
    assert_int_equal(out(&f, OBJECT_X, 0, 1000, true), EBB_OK);
    assert_int_equal(in(&f, OBJECT_X, 0, 1000), EBB_OK);
    ebb_queue_ticket_signal(f.device, EBB_QUEUE_IN, ticket,
                            1); /* skipped: fails the ticket, which releases OUT */
    assert_int_equal(ebb_device_sync(f.device), EBB_DEVICE);
    assert_text_has(
        f.ctx,
        "'layer 0 x' of the stash, bytes 0 to 1000 of generation 1: read before it has left");
    ebb_ticket_free(ticket);
    fixture_free(&f);
}

#ifndef __SANITIZE_THREAD__
struct scribble {
    unsigned char *at;
    _Atomic int stop;
};

static enum ebb_status scribble(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    struct scribble *s = (struct scribble *)(uintptr_t)args;
    uint32_t count = 0; /* four bytes: one would be what was hashed again once in 256 times */
    while (atomic_load(&s->stop) == 0) {
        count++;
        for (int i = 0; i < 4; i++)
            ((volatile unsigned char *)s->at)[i] = (unsigned char)(count >> (8 * i));
        struct timespec time = {.tv_nsec = 20000};
        nanosleep(&time, NULL);
    }
    return EBB_OK;
}
#endif

/* COMPUTE writes to `at` all the time while the delays hold the move up between its check and
 * its copy. */
static void move_while_written(bool away, const char *piece)
{
#ifdef __SANITIZE_THREAD__
    (void)away, (void)piece;
    print_message("skipped: a race on purpose, which the thread sanitizer rightly reports\n");
    skip();
#else
    struct fixture f =
        fixture_create((struct ebb_device_options){.delay_us = {0, 20000, 20000}, .delay_seed = 5},
                       true);
    struct scribble s = {.at = away ? f.memory + 7 : f.memory + 32768 + 7, .stop = 0};
    if (!away) {
        assert_int_equal(out(&f, OBJECT_X, 0, 1000, true), EBB_OK);
        assert_int_equal(ebb_device_sync(f.device), EBB_OK);
    }
    ebb_queue_launch(f.device, EBB_QUEUE_COMPUTE, scribble, &s);
    assert_int_equal(away ? out(&f, OBJECT_X, 0, 1000, true) : in(&f, OBJECT_X, 0, 1000), EBB_OK);
    struct ebb_ticket *moved = NULL;
    assert_int_equal(ebb_ticket_create(f.device, &moved), EBB_OK);
    ebb_queue_ticket_signal(f.device, away ? EBB_QUEUE_OUT : EBB_QUEUE_IN, moved, 1);
    assert_int_equal(ebb_ticket_wait(moved, 1, 30.0),
                     EBB_DEVICE); /* the signal is skipped, which fails the ticket */
    atomic_store(&s.stop, 1);
    assert_int_equal(ebb_device_sync(f.device), EBB_DEVICE);
    assert_text_has(f.ctx, "'layer 0 x' of the stash, bytes 0 to 1000 of generation 1");
    assert_text_has(f.ctx, piece);
    ebb_ticket_free(moved);
    fixture_free(&f);
#endif
}

static void a_source_written_while_it_leaves_is_found(void **state)
{
    (void)state;
    move_while_written(true, "the source was written while it left");
}

static void a_target_written_while_it_is_read_is_found(void **state)
{
    (void)state;
    move_while_written(false, "where it was read to was written before the read was done");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_comes_back_whole),
        cmocka_unit_test(parts_may_come_back_in_any_order_and_cut_differently),
        cmocka_unit_test(a_generation_may_end_before_the_object_does),
        cmocka_unit_test(a_new_generation_replaces_the_one_before),
        cmocka_unit_test(many_moves_with_checksums_need_no_more_memory),
        cmocka_unit_test(too_many_parts_at_once_are_refused),
        cmocka_unit_test(reading_before_writing_out_is_refused),
        cmocka_unit_test(parts_out_of_order_are_refused),
        cmocka_unit_test(parts_that_do_not_lie_in_the_object_are_refused),
        cmocka_unit_test(a_stash_needs_the_host_space_and_sane_objects),
        cmocka_unit_test(reset_forgets_the_content_and_counts_generations_on),
        cmocka_unit_test(an_overwritten_home_is_found_by_object_bytes_and_generation),
        cmocka_unit_test(without_checksums_an_overwritten_home_goes_unnoticed),
        cmocka_unit_test(a_missing_event_between_out_and_in_is_found),
        cmocka_unit_test(a_source_written_while_it_leaves_is_found),
        cmocka_unit_test(a_target_written_while_it_is_read_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
