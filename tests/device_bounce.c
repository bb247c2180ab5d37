/* Copies through bounce slots, with the CPU backend's queues in place of a GPU's: its threads wait
 * for the words and write them where a GPU would.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_bounce.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "device_traffic.h"

enum { BYTES = 300007, EVENTS = 600, CALLS = 200000 };

enum call_kind { CALL_WAIT, CALL_WRITE, CALL_COPY };

/* What a queue is to do; it lives as long as the device. */
struct call {
    enum call_kind kind;
    struct rig *rig;
    uint64_t *word;
    uint64_t value;
    void *to;
    const void *from;
    size_t bytes;
};

struct lane {
    struct rig *rig;
    enum ebb_queue queue;
    struct ebb_bounce *bounce;
    uint64_t *words;
    char *slots;
};

struct rig {
    struct ebb_ctx *ctx;
    struct ebb_device *device;
    struct lane lane[EBB_QUEUE_COUNT];
    uint64_t place[EBB_QUEUE_COUNT]
                  [EVENTS]; /* of each queue's bounce when the event was recorded */
    enum ebb_queue recorded_on[EVENTS];
    struct call *call;
    int calls;
    char *memory;       /* that the "GPU" does not reach */
    int64_t fail_copy;  /* the nth copy of any queue fails; 0: none */
    atomic_int touched; /* copies of a queue to or from `memory`: there must be none */
    uint64_t gate;      /* a word that a case opens */
    int looks;
};

static void drop_line(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

static void nap(void)
{
    const struct timespec time = {.tv_nsec = 20000};
    nanosleep(&time, NULL);
}

static bool in_memory(const struct rig *rig, const void *at)
{
    return (uintptr_t)at - (uintptr_t)rig->memory < BYTES;
}

static enum ebb_status run_call(const struct ebb_queue_env *env, const void *args)
{
    const struct call *call = args;
    (void)env;
    if (call->kind == CALL_WAIT) {
        while (atomic_load((_Atomic uint64_t *)call->word) < call->value) nap();
    } else if (call->kind == CALL_WRITE) {
        atomic_store((_Atomic uint64_t *)call->word, call->value);
    } else {
        if (in_memory(call->rig, call->to) || in_memory(call->rig, call->from))
            atomic_fetch_add(&call->rig->touched, 1);
        memcpy(call->to, call->from, call->bytes);
    }
    return EBB_OK;
}

static enum ebb_status enqueue(struct lane *lane, struct call call)
{
    struct rig *rig = lane->rig;
    assert_true(rig->calls < CALLS);
    call.rig = rig;
    rig->call[rig->calls] = call;
    return ebb_queue_launch(rig->device, lane->queue, run_call, &rig->call[rig->calls++]);
}

static enum ebb_status lane_wait(void *user, uint64_t *word, uint64_t value)
{
    return enqueue(user, (struct call){.kind = CALL_WAIT, .word = word, .value = value});
}

static enum ebb_status lane_write(void *user, uint64_t *word, uint64_t value)
{
    return enqueue(user, (struct call){.kind = CALL_WRITE, .word = word, .value = value});
}

static enum ebb_status lane_copy(void *user, void *to, const void *from, size_t bytes)
{
    struct lane *lane = user;
    struct rig *rig = lane->rig;
    if (rig->fail_copy > 0 && --rig->fail_copy == 0)
        return EBB_FAIL(rig->ctx, EBB_DEVICE, "a copy as it was told to fail");
    return enqueue(lane, (struct call){.kind = CALL_COPY, .to = to, .from = from, .bytes = bytes});
}

/* What a look finds beyond help here is a gate that nobody opens. */
static void lane_look(void *user)
{
    struct rig *rig = ((struct lane *)user)->rig;
    if (++rig->looks == 2) atomic_store((_Atomic uint64_t *)&rig->gate, 1);
}

static void rig_start(struct rig *rig, size_t slot_bytes, int delay_us, uint64_t seed)
{
    memset(rig, 0, sizeof *rig);
    rig->ctx = ebb_ctx_create();
    assert_non_null(rig->ctx);
    ebb_ctx_set_log(rig->ctx, drop_line, NULL);
    struct ebb_device_options options = {.backend = EBB_BACKEND_CPU,
                                         .threads = 1,
                                         .delay_seed = seed};
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) options.delay_us[q] = delay_us;
    assert_int_equal(ebb_device_create(rig->ctx, &options, &rig->device), EBB_OK);
    assert_int_equal(ebb_device_reserve(rig->device, EBB_SPACE_DEVICE, BYTES), EBB_OK);
    assert_int_equal(ebb_device_events(rig->device, EVENTS), EBB_OK);
    rig->call = calloc(CALLS, sizeof *rig->call);
    rig->memory = malloc(BYTES);
    assert_true(rig->call != NULL && rig->memory != NULL);
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) {
        struct lane *lane = &rig->lane[q];
        lane->rig = rig;
        lane->queue = (enum ebb_queue)q;
        lane->slots = malloc(EBB_BOUNCE_SLOTS * slot_bytes);
        lane->words = calloc(EBB_BOUNCE_WORDS, sizeof *lane->words);
        assert_true(lane->slots != NULL && lane->words != NULL);
        const struct ebb_bounce_options bounce = {.queue = {lane, lane_wait, lane_write, lane_copy,
                                                            lane_look},
                                                  .thread_name = "bounce",
                                                  .slots = lane->slots,
                                                  .slot_bytes = slot_bytes,
                                                  .words = lane->words,
                                                  .delay_us = delay_us,
                                                  .delay_key = seed + (uint64_t)q};
        assert_int_equal(ebb_bounce_create(rig->ctx, &bounce, &lane->bounce), EBB_OK);
    }
}

/* What the CUDA backend's sync does. */
static enum ebb_status rig_sync(struct rig *rig)
{
    enum ebb_status status = ebb_device_sync(rig->device);
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) ebb_bounce_drain(rig->lane[q].bounce, false);
    return status;
}

static void rig_end(struct rig *rig)
{
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) {
        ebb_bounce_free(rig->lane[q].bounce);
        free(rig->lane[q].slots);
        free(rig->lane[q].words);
    }
    ebb_device_free(rig->device);
    free(rig->call);
    free(rig->memory);
    assert_int_equal(ebb_mem_bytes_now(rig->ctx), 0);
    ebb_ctx_free(rig->ctx);
}

static enum ebb_status rig_copy(void *user, enum ebb_queue queue, void *to, const void *from,
                                int64_t bytes)
{
    struct rig *rig = user;
    struct lane *lane = &rig->lane[queue];
    if (in_memory(rig, to) && in_memory(rig, from))
        return ebb_bounce_within(lane->bounce, to, from, bytes);
    if (in_memory(rig, to)) return ebb_bounce_out(lane->bounce, to, from, bytes);
    if (in_memory(rig, from)) return ebb_bounce_in(lane->bounce, to, from, bytes);
    return lane_copy(lane, to, from, (size_t)bytes);
}

static enum ebb_status rig_record(void *user, enum ebb_queue queue, int event)
{
    struct rig *rig = user;
    rig->recorded_on[event] = queue;
    rig->place[queue][event] = ebb_bounce_place(rig->lane[queue].bounce);
    return ebb_queue_record(rig->device, queue, event);
}

static enum ebb_status rig_wait(void *user, enum ebb_queue queue, int event)
{
    struct rig *rig = user;
    enum ebb_queue other = rig->recorded_on[event];
    EBB_TRY(ebb_queue_wait(rig->device, queue, event));
    if (other == queue) return EBB_OK;
    ebb_bounce_waited(rig->lane[queue].bounce);
    return lane_wait(&rig->lane[queue], ebb_bounce_done(rig->lane[other].bounce),
                     rig->place[other][event]);
}

static void bounced_copies_on_all_queues_are_byte_exact(size_t slot_bytes, int delay_us, int events,
                                                        uint64_t seed)
{
    struct rig rig;
    struct traffic_run run;
    rig_start(&rig, slot_bytes, delay_us, seed);
    char *device = ebb_device_base(rig.device, EBB_SPACE_DEVICE);
    struct traffic traffic = {.user = &rig,
                              .copy = rig_copy,
                              .record = rig_record,
                              .wait = rig_wait,
                              .memory = {device, rig.memory},
                              .bytes = BYTES,
                              .events = events,
                              .seed = seed};
    traffic_noise((unsigned char *)device, BYTES, seed);
    traffic_noise((unsigned char *)rig.memory, BYTES, ~seed);
    for (int round = 0; round < 2; round++) { /* again, on words and slots that have been used */
        traffic_start(&run, &traffic, device, rig.memory);
        traffic_send(&run);
        assert_int_equal(rig_sync(&rig), EBB_OK);
        traffic_end(&run, device, rig.memory);
        traffic.seed++;
    }
    assert_int_equal(atomic_load(&rig.touched), 0);
    rig_end(&rig);
}

static void pieces_of_any_size_arrive_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        bounced_copies_on_all_queues_are_byte_exact(4096, 0, EVENTS, seed);
    bounced_copies_on_all_queues_are_byte_exact(1 << 20, 0, EVENTS, 7);
    bounced_copies_on_all_queues_are_byte_exact(333, 0, 150, 8);
}

static void pieces_arrive_whole_whatever_the_delays(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed <= 14; seed++)
        bounced_copies_on_all_queues_are_byte_exact(4096, 300, 120, seed);
}

/* The queue stands still before the copies; enqueueing them is over long before they run. */
static void enqueueing_does_not_wait_for_the_queue(void **state)
{
    (void)state;
#ifdef EBB_TORTURE
    print_message("skipped: the stress build has room for four commands\n");
    skip();
#endif
    struct rig rig;
    rig_start(&rig, 1024, 0, 1);
    char *device = ebb_device_base(rig.device, EBB_SPACE_DEVICE);
    memset(device, 1, BYTES);
    memset(rig.memory, 0, BYTES);
    struct lane *out = &rig.lane[EBB_QUEUE_OUT], *in = &rig.lane[EBB_QUEUE_IN];
    assert_int_equal(lane_wait(out, &rig.gate, 1), EBB_OK);
    assert_int_equal(ebb_bounce_out(out->bounce, rig.memory, device, BYTES / 2), EBB_OK);
    assert_int_equal(rig_record(&rig, EBB_QUEUE_OUT, 0), EBB_OK);
    assert_int_equal(rig_wait(&rig, EBB_QUEUE_IN, 0), EBB_OK);
    assert_int_equal(ebb_bounce_in(in->bounce, device + BYTES / 2, rig.memory, BYTES / 2), EBB_OK);
    for (int i = 0; i < 100; i++) nap();
    assert_int_equal(rig.memory[0], 0);
    assert_false(ebb_bounce_reached(out->bounce, 1));
    memset(device, 2, BYTES / 2); /* the queue has not looked yet */
    atomic_store((_Atomic uint64_t *)&rig.gate, 1);
    assert_int_equal(rig_sync(&rig), EBB_OK);
    for (int i = 0; i < BYTES / 2; i++) {
        assert_int_equal(rig.memory[i], 2);
        assert_int_equal(device[BYTES / 2 + i], 2);
    }
    rig_end(&rig);
}

/* As the CUDA backend does it: what cannot be enqueued abandons what is on its way, a sync ends the
 * trouble, and the slots serve again. */
static void a_copy_that_cannot_be_enqueued_holds_nobody_up(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 8; nth++) {
        for (int direction = 0; direction < 2; direction++) {
            struct rig rig;
            rig_start(&rig, 1000, 0, 1);
            char *device = ebb_device_base(rig.device, EBB_SPACE_DEVICE);
            struct ebb_bounce *bounce = rig.lane[EBB_QUEUE_OUT].bounce;
            memset(device, 5, BYTES);
            memset(rig.memory, 6, BYTES);
            rig.fail_copy = nth;
            enum ebb_status status = direction == 0
                                         ? ebb_bounce_out(bounce, rig.memory, device, 10000)
                                         : ebb_bounce_in(bounce, device, rig.memory, 10000);
            assert_int_equal(status, EBB_DEVICE);
            ebb_bounce_abandon(bounce);
            assert_int_equal(rig_record(&rig, EBB_QUEUE_OUT, 0), EBB_OK);
            assert_int_equal(rig_wait(&rig, EBB_QUEUE_COMPUTE, 0), EBB_OK);
            assert_int_equal(rig_sync(&rig), EBB_OK);
            memset(device, 7, BYTES);
            assert_int_equal(ebb_bounce_out(bounce, rig.memory, device, 20001), EBB_OK);
            assert_int_equal(ebb_bounce_in(bounce, device + 100000, rig.memory, 20001), EBB_OK);
            memset(device + 150000, 0, 10);
            assert_int_equal(rig_sync(&rig), EBB_OK);
            for (int i = 0; i < 20001; i++) assert_int_equal(rig.memory[i], 7);
            assert_int_equal(rig.memory[20001], 6);
            rig_end(&rig);
        }
    }
}

/* A device that is lost writes no mark; its queue here is one that never comes to write it. */
static void what_a_lost_device_owes_is_given_up(void **state)
{
    (void)state;
    struct rig rig;
    rig_start(&rig, 1000, 0, 1);
    char *device = ebb_device_base(rig.device, EBB_SPACE_DEVICE);
    struct lane *lane = &rig.lane[EBB_QUEUE_IN];
    memset(rig.memory, 1, BYTES);
    assert_int_equal(lane_wait(lane, &rig.gate, 1), EBB_OK);
#ifdef EBB_TORTURE
    const int64_t bytes = 1000;
#else
    const int64_t bytes = 9000;
#endif
    assert_int_equal(ebb_bounce_out(lane->bounce, rig.memory, device, bytes), EBB_OK);
    ebb_bounce_abandon(lane->bounce);
    ebb_bounce_drain(lane->bounce, true); /* returns */
    assert_int_equal(rig.memory[0], 1);   /* and nothing was copied */
    atomic_store((_Atomic uint64_t *)&rig.gate, 1);
    assert_int_equal(ebb_device_sync(rig.device), EBB_OK);
    rig_end(&rig);
}

static void enqueueing_looks_around_while_there_is_no_room(void **state)
{
    (void)state;
    struct rig rig;
    rig_start(&rig, 1000, 0, 1);
    struct lane *lane = &rig.lane[EBB_QUEUE_IN];
    memset(rig.memory, 1, BYTES);
    rig.memory[0] = 4;
    assert_int_equal(lane_wait(lane, &rig.gate, 1), EBB_OK);
    ebb_bounce_waited(lane->bounce);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(ebb_bounce_within(lane->bounce, rig.memory + i + 1, rig.memory + i, 1),
                         EBB_OK);
    assert_true(rig.looks >= 2);
    assert_int_equal(rig_sync(&rig), EBB_OK);
    assert_int_equal(rig.memory[5000], 4);
    assert_int_equal(rig.memory[5001], 1);
    rig_end(&rig);
}

static void freeing_ends_the_thread_also_with_pieces_on_their_way(void **state)
{
    (void)state;
    struct rig rig;
    rig_start(&rig, 4096, 0, 1);
    memset(rig.memory, 3, BYTES);
    /* The device comes to rest, the thread's last piece may still be under way. */
    for (int i = 0; i < 20; i++)
        assert_int_equal(ebb_bounce_out(rig.lane[EBB_QUEUE_OUT].bounce, rig.memory,
                                        ebb_device_base(rig.device, EBB_SPACE_DEVICE), 4096),
                         EBB_OK);
    assert_int_equal(ebb_device_sync(rig.device), EBB_OK);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size_arrive_whole),
        cmocka_unit_test(pieces_arrive_whole_whatever_the_delays),
        cmocka_unit_test(enqueueing_does_not_wait_for_the_queue),
        cmocka_unit_test(a_copy_that_cannot_be_enqueued_holds_nobody_up),
        cmocka_unit_test(what_a_lost_device_owes_is_given_up),
        cmocka_unit_test(enqueueing_looks_around_while_there_is_no_room),
        cmocka_unit_test(freeing_ends_the_thread_also_with_pieces_on_their_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
