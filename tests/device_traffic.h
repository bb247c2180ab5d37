/* Random copies between a device and host memory, on all queues, ordered by no more events than
 * they need, and beside it a model that does the same one after the other. What moves the bytes is
 * the test's.
 *
 * Both memories are cut into blocks of odd sizes. Before a copy its queue waits for whoever last
 * wrote its source and for whoever last read or wrote its target, by the event that was recorded
 * behind it, and for nothing else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_TRAFFIC_H
#define EBB_DEVICE_TRAFFIC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "device/device.h"

enum { TRAFFIC_BLOCKS = 12 }; /* of each memory */

struct traffic {
    void *user;
    enum ebb_status (*copy)(void *user, enum ebb_queue queue, void *to, const void *from,
                            int64_t bytes);
    enum ebb_status (*record)(void *user, enum ebb_queue queue, int event);
    enum ebb_status (*wait)(void *user, enum ebb_queue queue, int event);
    char *memory[2]; /* the device's, the host's */
    int64_t bytes;   /* of each */
    int events;      /* one for each copy */
    uint64_t seed;
};

struct traffic_block {
    int64_t begin, end;
    int writer;                  /* the copy that wrote it last; -1: none */
    int reader[EBB_QUEUE_COUNT]; /* those that read it since, by queue; -1: none */
};

struct traffic_run {
    struct traffic *traffic;
    struct traffic_block block[2][TRAFFIC_BLOCKS];
    unsigned char *model[2];
    uint64_t drawn;
};

static inline int64_t traffic_draw(struct traffic_run *run, int64_t below)
{
    uint32_t words[4];
    ebb_philox(run->traffic->seed, run->drawn++, words);
    return (int64_t)((((uint64_t)words[0] << 32) | words[1]) % (uint64_t)below);
}

/* An odd cut near each block's place. */
static inline void traffic_cut(struct traffic_run *run, int which)
{
    int64_t step = run->traffic->bytes / TRAFFIC_BLOCKS, begin = 0;
    for (int i = 0; i < TRAFFIC_BLOCKS; i++) {
        struct traffic_block *block = &run->block[which][i];
        block->begin = begin;
        block->end = i + 1 == TRAFFIC_BLOCKS ? run->traffic->bytes
                                             : (step * (i + 1) - traffic_draw(run, step / 3)) | 1;
        begin = block->end;
        block->writer = -1;
        for (int q = 0; q < EBB_QUEUE_COUNT; q++) block->reader[q] = -1;
    }
}

static inline void traffic_wait(struct traffic_run *run, enum ebb_queue queue, int event)
{
    if (event < 0) return;
    assert_int_equal(run->traffic->wait(run->traffic->user, queue, event), EBB_OK);
}

/* One copy from block to block, and the model's. */
static inline void traffic_copy(struct traffic_run *run, int number)
{
    struct traffic *t = run->traffic;
    enum ebb_queue queue = (enum ebb_queue)traffic_draw(run, EBB_QUEUE_COUNT);
    int a = (int)traffic_draw(run, 2), b = (int)traffic_draw(run, 2);
    int i = (int)traffic_draw(run, TRAFFIC_BLOCKS), k = (int)traffic_draw(run, TRAFFIC_BLOCKS);
    if (a == b && i == k) k = (k + 1) % TRAFFIC_BLOCKS;
    struct traffic_block *from = &run->block[a][i], *to = &run->block[b][k];
    int64_t room = from->end - from->begin;
    if (to->end - to->begin < room) room = to->end - to->begin;
    int64_t bytes = 1 + traffic_draw(run, traffic_draw(run, 4) == 0 ? room : room / 8);
    int64_t source = from->begin + traffic_draw(run, from->end - from->begin - bytes + 1);
    int64_t target = to->begin + traffic_draw(run, to->end - to->begin - bytes + 1);
    traffic_wait(run, queue, from->writer);
    traffic_wait(run, queue, to->writer);
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) traffic_wait(run, queue, to->reader[q]);
    assert_int_equal(t->copy(t->user, queue, t->memory[b] + target, t->memory[a] + source, bytes),
                     EBB_OK);
    assert_int_equal(t->record(t->user, queue, number), EBB_OK);
    memcpy(run->model[b] + target, run->model[a] + source, (size_t)bytes);
    from->reader[queue] = number;
    to->writer = number;
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) to->reader[q] = -1;
}

/* Cuts both memories and takes the model's bytes from `device` and `host`, what they hold now. */
static inline void traffic_start(struct traffic_run *run, struct traffic *traffic,
                                 const void *device, const void *host)
{
    memset(run, 0, sizeof *run);
    run->traffic = traffic;
    for (int m = 0; m < 2; m++) {
        traffic_cut(run, m);
        run->model[m] = malloc((size_t)traffic->bytes);
        assert_non_null(run->model[m]);
        memcpy(run->model[m], m == 0 ? device : host, (size_t)traffic->bytes);
    }
}

static inline void traffic_send(struct traffic_run *run)
{
    for (int number = 0; number < run->traffic->events; number++) traffic_copy(run, number);
}

/* After a sync: `device` and `host` are what the memories hold then. */
static inline void traffic_end(struct traffic_run *run, const void *device, const void *host)
{
    assert_memory_equal(device, run->model[0], (size_t)run->traffic->bytes);
    assert_memory_equal(host, run->model[1], (size_t)run->traffic->bytes);
    free(run->model[0]);
    free(run->model[1]);
}

static inline void traffic_noise(unsigned char *bytes, int64_t count, uint64_t seed)
{
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        if (i % 16 == 0) ebb_philox(seed, (uint64_t)(i / 16), words);
        bytes[i] = (unsigned char)(words[i % 16 / 4] >> (8 * (i % 4)));
    }
}

#endif
