/* The thread of a bounce, and the enqueueing of pieces. The protocol is in the header.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_bounce.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "device/device_int.h"

#ifdef EBB_TORTURE
enum { JOBS = 4 };
#else
enum { JOBS = 4096 };
#endif
enum {
    SPINS = 200, /* a few microseconds: pieces of one copy follow each other closely */
    NAP_SHORTEST_NS = 20000,
    NAP_LONGEST_NS = 200000,
    LOOK_NAPS = 100 /* between two looks, while there is no room */
};

/* What the thread does for a piece. */
struct job {
    void *to;
    const void *from;
    size_t bytes;
    uint64_t after; /* the mark it waits for */
};

struct ebb_bounce {
    struct ebb_ctx *ctx;
    struct ebb_bounce_options options;
    _Atomic uint64_t *mark, *done;
    /* The enqueueing thread's. */
    uint64_t pieces, marks;
    uint64_t begin;                       /* the mark behind the queue's last wait */
    bool waited;                          /* since then */
    uint64_t slot_free[EBB_BOUNCE_SLOTS]; /* the mark behind the last piece in; 0: none */
    /* Shared: pieces are numbered from 1, piece n lies at n % JOBS. */
    struct job job[JOBS];
    pthread_mutex_t lock;
    pthread_cond_t came;
    uint64_t put, got;
    bool stop;
    atomic_bool abandoned;
    pthread_t thread;
    bool started;
};

static void nap(long nanoseconds)
{
    struct timespec time = {.tv_sec = nanoseconds / 1000000000,
                            .tv_nsec = nanoseconds % 1000000000};
    nanosleep(&time, NULL);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* false: nothing to wait for any more. */
static bool wait_mark(const struct ebb_bounce *bounce, uint64_t mark)
{
    long ns = NAP_SHORTEST_NS;
    for (int i = 0; atomic_load(bounce->mark) < mark; i++) {
        if (atomic_load(&bounce->abandoned)) return false;
        if (i < SPINS) continue;
        nap(ns);
        if (ns < NAP_LONGEST_NS) ns += ns / 8;
    }
    return !atomic_load(&bounce->abandoned);
}

static void run_job(const struct ebb_bounce *bounce, const struct job *job, uint64_t number)
{
    if (!wait_mark(bounce, job->after)) return;
    if (bounce->options.delay_us > 0)
        nap(1000L * ebb_device_delay(bounce->options.delay_key, number, bounce->options.delay_us));
    memcpy(job->to, job->from, job->bytes);
}

static void *bounce_main(void *user)
{
    struct ebb_bounce *bounce = user;
    for (uint64_t number = 1;; number++) {
        pthread_mutex_lock(&bounce->lock);
        while (bounce->put < number && !bounce->stop)
            pthread_cond_wait(&bounce->came, &bounce->lock);
        bool there = bounce->put >= number;
        struct job job = bounce->job[number % JOBS];
        bounce->got = number;
        pthread_mutex_unlock(&bounce->lock);
        if (!there) return NULL;
        run_job(bounce, &job, number);
        atomic_store(bounce->done, number);
    }
}

static void put_job(struct ebb_bounce *bounce, struct job job)
{
    const struct ebb_bounce_queue *queue = &bounce->options.queue;
    pthread_mutex_lock(&bounce->lock);
    for (int naps = 1; bounce->put - bounce->got >= JOBS; naps++) {
        pthread_mutex_unlock(&bounce->lock);
        nap(NAP_LONGEST_NS);
        if (naps % LOOK_NAPS == 0) queue->look(queue->user);
        pthread_mutex_lock(&bounce->lock);
    }
    bounce->pieces = ++bounce->put;
    bounce->job[bounce->pieces % JOBS] = job;
    pthread_cond_signal(&bounce->came);
    pthread_mutex_unlock(&bounce->lock);
}

/* ---- enqueueing ------------------------------------------------------------------------------ */

static enum ebb_status wait_done(struct ebb_bounce *bounce, uint64_t place)
{
    const struct ebb_bounce_queue *queue = &bounce->options.queue;
    if (ebb_bounce_reached(bounce, place)) return EBB_OK;
    return queue->wait(queue->user, (uint64_t *)bounce->done, place);
}

static enum ebb_status write_mark(struct ebb_bounce *bounce)
{
    const struct ebb_bounce_queue *queue = &bounce->options.queue;
    return queue->write(queue->user, (uint64_t *)bounce->mark, ++bounce->marks);
}

/* What an earlier command of another queue wrote into memory is there once this mark is. */
static enum ebb_status mark_begin(struct ebb_bounce *bounce)
{
    if (!bounce->waited) return EBB_OK;
    EBB_TRY(write_mark(bounce));
    bounce->begin = bounce->marks;
    bounce->waited = false;
    return EBB_OK;
}

static enum ebb_status piece_out(struct ebb_bounce *bounce, void *memory, const void *device,
                                 size_t bytes)
{
    const struct ebb_bounce_queue *queue = &bounce->options.queue;
    uint64_t number = bounce->pieces + 1;
    size_t slot = (size_t)(number % EBB_BOUNCE_SLOTS);
    char *at = bounce->options.slots + slot * bounce->options.slot_bytes;
    if (number > EBB_BOUNCE_SLOTS) EBB_TRY(wait_done(bounce, number - EBB_BOUNCE_SLOTS));
    EBB_TRY(queue->copy(queue->user, at, device, bytes));
    EBB_TRY(write_mark(bounce));
    bounce->slot_free[slot] = 0;
    put_job(bounce, (struct job){memory, at, bytes, bounce->marks});
    return EBB_OK;
}

/* The thread may fill a slot ahead of the queue; the queue waits for it. */
static enum ebb_status piece_in(struct ebb_bounce *bounce, void *device, const void *memory,
                                size_t bytes)
{
    const struct ebb_bounce_queue *queue = &bounce->options.queue;
    size_t slot = (size_t)((bounce->pieces + 1) % EBB_BOUNCE_SLOTS);
    char *at = bounce->options.slots + slot * bounce->options.slot_bytes;
    uint64_t free = bounce->slot_free[slot];
    put_job(bounce, (struct job){at, memory, bytes, free > bounce->begin ? free : bounce->begin});
    EBB_TRY(wait_done(bounce, bounce->pieces));
    EBB_TRY(queue->copy(queue->user, device, at, bytes));
    EBB_TRY(write_mark(bounce));
    bounce->slot_free[slot] = bounce->marks;
    return EBB_OK;
}

enum ebb_status ebb_bounce_out(struct ebb_bounce *bounce, void *memory, const void *device,
                               int64_t bytes)
{
    size_t step = bounce->options.slot_bytes;
    for (size_t at = 0, left = (size_t)bytes; left > 0;) {
        size_t part = left < step ? left : step;
        EBB_TRY(piece_out(bounce, (char *)memory + at, (const char *)device + at, part));
        at += part;
        left -= part;
    }
    return EBB_OK;
}

enum ebb_status ebb_bounce_in(struct ebb_bounce *bounce, void *device, const void *memory,
                              int64_t bytes)
{
    size_t step = bounce->options.slot_bytes;
    EBB_TRY(mark_begin(bounce));
    for (size_t at = 0, left = (size_t)bytes; left > 0;) {
        size_t part = left < step ? left : step;
        EBB_TRY(piece_in(bounce, (char *)device + at, (const char *)memory + at, part));
        at += part;
        left -= part;
    }
    return EBB_OK;
}

/* Needs no slot, and leaves that of its number as it is: the next piece there waits for what used
 * it last, a mark that is as good later. */
enum ebb_status ebb_bounce_within(struct ebb_bounce *bounce, void *to, const void *from,
                                  int64_t bytes)
{
    EBB_TRY(mark_begin(bounce));
    put_job(bounce, (struct job){to, from, (size_t)bytes, bounce->begin});
    return EBB_OK;
}

void ebb_bounce_waited(struct ebb_bounce *bounce)
{
    bounce->waited = true;
}

uint64_t ebb_bounce_place(const struct ebb_bounce *bounce)
{
    return bounce->pieces;
}

bool ebb_bounce_reached(const struct ebb_bounce *bounce, uint64_t place)
{
    return atomic_load(bounce->done) >= place;
}

uint64_t *ebb_bounce_done(const struct ebb_bounce *bounce)
{
    return (uint64_t *)bounce->done;
}

/* ---- life ------------------------------------------------------------------------------------ */

void ebb_bounce_abandon(struct ebb_bounce *bounce)
{
    atomic_store(&bounce->abandoned, true);
}

void ebb_bounce_drain(struct ebb_bounce *bounce, bool for_good)
{
    while (!ebb_bounce_reached(bounce, bounce->pieces)) nap(NAP_SHORTEST_NS);
    if (for_good || !atomic_load(&bounce->abandoned)) return;
    /* All slots are free, and marks that were not written will not be. */
    memset(bounce->slot_free, 0, sizeof bounce->slot_free);
    bounce->waited = true;
    atomic_store(&bounce->abandoned, false);
}

void ebb_bounce_free(struct ebb_bounce *bounce)
{
    if (bounce == NULL) return;
    if (bounce->started) {
        ebb_bounce_abandon(bounce);
        pthread_mutex_lock(&bounce->lock);
        bounce->stop = true;
        pthread_cond_signal(&bounce->came);
        pthread_mutex_unlock(&bounce->lock);
        pthread_join(bounce->thread, NULL);
    }
    pthread_cond_destroy(&bounce->came);
    pthread_mutex_destroy(&bounce->lock);
    ebb_mem_free(bounce->ctx, bounce);
}

enum ebb_status ebb_bounce_create(struct ebb_ctx *ctx, const struct ebb_bounce_options *options,
                                  struct ebb_bounce **bounce_out)
{
    *bounce_out = NULL;
    struct ebb_bounce *bounce = ebb_mem_alloc(ctx, sizeof *bounce);
    if (bounce == NULL) return EBB_NO_MEMORY;
    bounce->ctx = ctx;
    bounce->options = *options;
    bounce->mark = (_Atomic uint64_t *)options->words;
    bounce->done = (_Atomic uint64_t *)(options->words + EBB_BOUNCE_WORDS / 2);
    bounce->waited = true; /* what the queue did before is not known */
    atomic_init(&bounce->abandoned, false);
    pthread_mutex_init(&bounce->lock, NULL);
    pthread_cond_init(&bounce->came, NULL);
    enum ebb_status status =
        ebb_device_thread_start(ctx, options->thread_name, bounce_main, bounce, &bounce->thread);
    if (status != EBB_OK) {
        ebb_bounce_free(bounce);
        return status;
    }
    bounce->started = true;
    *bounce_out = bounce;
    return EBB_OK;
}
