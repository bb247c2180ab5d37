/* The host space of the CUDA backend: one slab of memory, of which the end is pinned: all of it,
 * all but what the plan leaves out, or as much as the system grants (device_pin.h).
 *
 * It is anonymous memory in huge pages, touched by several threads and then registered: a third of
 * the time that cudaHostAlloc takes. That happens in a thread of its own while the model is loaded;
 * the first copy that needs the slab waits for it.
 *
 * What is not pinned the copy engines cannot reach in the background. For that a ring of slots is
 * pinned, a few for each queue, and copies bounce through it
 * (device_bounce.h): the streams wait for words beside the slots and write them by stream memory
 * operations. Each word has one writer, the GPU or the CPU. The ring is made in the same thread, so
 * that no copy allocates.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/text.h"
#include "device/device_pin.h"

enum {
    TOUCHERS = 8, /* threads that touch the host slab */
    HUGE_PAGE = 2 << 20,
    SLOT_BYTES = 8 << 20, /* of the ring, if that much can be pinned */
    SLOT_BYTES_LEAST = 64 << 10,
    WORD_BYTES = EBB_BOUNCE_WORDS * 8, /* of each queue; they lie behind all slots */
#ifdef EBB_TORTURE
    SLOT_BYTES_DEFAULT = 4 << 10
#else
    SLOT_BYTES_DEFAULT = SLOT_BYTES
#endif
};

/* ---- pinning --------------------------------------------------------------------------------- */

struct touch {
    char *start;
    size_t bytes;
};

static void *touch_pages(void *user)
{
    const struct touch *touch = (const struct touch *)user;
    for (size_t at = 0; at < touch->bytes; at += 4096) ((volatile char *)touch->start)[at] = 0;
    return NULL;
}

static void touch_slab(const struct ebb_cuda_slab *slab)
{
    pthread_t threads[TOUCHERS];
    struct touch parts[TOUCHERS];
    bool started[TOUCHERS];
    size_t step = (slab->bytes / TOUCHERS + HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE;
    for (int i = 0; i < TOUCHERS; i++) {
        size_t from = step * (size_t)i, to = from + step;
        if (from > slab->bytes) from = slab->bytes;
        if (to > slab->bytes) to = slab->bytes;
        parts[i] = (struct touch){(char *)slab->start + from, to - from};
        started[i] = pthread_create(&threads[i], NULL, touch_pages, &parts[i]) == 0;
        if (!started[i]) touch_pages(&parts[i]);
    }
    for (int i = 0; i < TOUCHERS; i++)
        if (started[i]) pthread_join(threads[i], NULL);
}

/* Where the words begin in the ring, behind all slots and on a cache line. */
static size_t words_at(size_t slot_bytes)
{
    return (slot_bytes * EBB_BOUNCE_SLOTS * EBB_QUEUE_COUNT + 63) / 64 * 64;
}

/* The ring of the largest slots that the system grants. */
static void pin_ring(struct ebb_cuda_device *own)
{
    struct ebb_cuda_slab *slab = &own->slab;
    void *ring = NULL, *on_device = NULL;
    cudaError_t error = cudaErrorMemoryAllocation;
    size_t slot = own->bounce_bytes > 0 ? (size_t)own->bounce_bytes : SLOT_BYTES_DEFAULT;
    while (error != cudaSuccess) {
        size_t bytes = words_at(slot) + WORD_BYTES * EBB_QUEUE_COUNT;
        error = cudaHostAlloc(&ring, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (error == cudaSuccess) memset(ring, 0, bytes);
        if (error == cudaSuccess) break;
        (void)cudaGetLastError();
        slab->ring_refused = cudaGetErrorString(error);
        if (slot / 2 < SLOT_BYTES_LEAST) return;
        slot /= 2;
    }
    error = cudaHostGetDevicePointer(&on_device, ring, 0);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        slab->ring_refused = cudaGetErrorString(error);
        (void)cudaFreeHost(ring);
        return;
    }
    slab->ring = (char *)ring;
    slab->ring_on_device = (char *)on_device;
    slab->slot_bytes = slot;
}

static bool pin_range(void *user, char *start, size_t bytes)
{
    struct ebb_cuda_device *own = (struct ebb_cuda_device *)user;
    const int64_t limit = own->base.pin_limit;
    if (own->pageable || (limit > 0 && (int64_t)bytes > limit)) {
        own->slab.refused = "as a test wants it";
        return false;
    }
    cudaError_t error = cudaHostRegister(start, bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) return true;
    (void)cudaGetLastError();
    own->slab.refused = cudaGetErrorString(error);
    return false;
}

static void unpin_range(void *user, char *start)
{
    (void)user;
    (void)cudaHostUnregister(start);
}

static void *pin_slab(void *user)
{
    struct ebb_cuda_device *own = (struct ebb_cuda_device *)user;
    struct ebb_cuda_slab *slab = &own->slab;
    const struct ebb_pinner pinner = {own, pin_range, unpin_range};
    size_t first = (size_t)own->base.pageable_bytes;
    double start = ebb_clock_seconds();
    (void)cudaSetDevice(own->ordinal);
    if (first > slab->used) first = slab->used;
    touch_slab(slab);
    size_t pinned =
        ebb_pin_end(&pinner, (char *)slab->start + first, slab->used - first, EBB_SPACE_ALIGN);
    slab->pageable = slab->used - pinned;
    slab->seconds = pinned > 0 ? ebb_clock_seconds() - start : 0;
    if (slab->pageable > 0) pin_ring(own);
    return NULL;
}

int64_t ebb_cuda_bytes_pinned(const struct ebb_device *device)
{
    const struct ebb_cuda_slab *slab = &((const struct ebb_cuda_device *)device)->slab;
    int64_t bytes = device->space[EBB_SPACE_HOST].bytes - (int64_t)slab->pageable;
    return bytes > 0 ? bytes : 0;
}

double ebb_cuda_pin_seconds(const struct ebb_device *device)
{
    return ((const struct ebb_cuda_device *)device)->slab.seconds;
}

int64_t ebb_cuda_pageable(const struct ebb_cuda_device *own, const void *at, int64_t bytes)
{
    if (own->slab.pageable == 0 || ebb_device_space_of(&own->base, at) != EBB_SPACE_HOST) return 0;
    int64_t left = (const char *)own->slab.start + own->slab.pageable - (const char *)at;
    return left <= 0 ? 0 : left < bytes ? left : bytes;
}

enum ebb_status ebb_cuda_reserve_slab(struct ebb_cuda_device *own, int64_t bytes)
{
    char size[32];
    size_t usable = ((size_t)bytes / HUGE_PAGE + 1) * HUGE_PAGE;
    char *start = mmap(NULL, usable + HUGE_PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return EBB_FAIL(own->base.ctx, EBB_NO_MEMORY, "cannot reserve %s of host memory: %s",
                        ebb_text_bytes(bytes, size, sizeof size), strerror(errno));
    /* From a huge page's start on; what is before it and behind the end is given back. */
    size_t before = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) munmap(start, before);
    if (before < HUGE_PAGE) munmap(start + before + usable, HUGE_PAGE - before);
    own->slab.start = start + before;
    own->slab.bytes = usable;
    own->slab.used = ((size_t)bytes + EBB_SPACE_ALIGN - 1) / EBB_SPACE_ALIGN * EBB_SPACE_ALIGN;
    own->slab.pageable = own->slab.used;
    (void)madvise(own->slab.start, usable, MADV_HUGEPAGE);
    own->base.space[EBB_SPACE_HOST] =
        (struct ebb_device_space){.base = (char *)own->slab.start, .bytes = bytes};
    if (bytes == 0) return EBB_OK;
    EBB_TRY(ebb_device_thread_start(own->base.ctx, "ebb-pin", pin_slab, own, &own->slab.thread));
    own->slab.running = true;
    return EBB_OK;
}

/* ---- bouncing -------------------------------------------------------------------------------- */

static CUdeviceptr on_device(const struct ebb_cuda_slab *slab, const uint64_t *word)
{
    return (CUdeviceptr)(slab->ring_on_device + ((const char *)word - slab->ring));
}

static enum ebb_status lane_wait(void *user, uint64_t *word, uint64_t value)
{
    const struct ebb_cuda_lane *lane = (const struct ebb_cuda_lane *)user;
    return ebb_cuda_wait_word(lane->device, lane->queue, on_device(&lane->device->slab, word),
                              value);
}

static enum ebb_status lane_write(void *user, uint64_t *word, uint64_t value)
{
    const struct ebb_cuda_lane *lane = (const struct ebb_cuda_lane *)user;
    return ebb_cuda_write_word(lane->device, lane->queue, on_device(&lane->device->slab, word),
                               value);
}

static enum ebb_status lane_copy(void *user, void *to, const void *from, size_t bytes)
{
    const struct ebb_cuda_lane *lane = (const struct ebb_cuda_lane *)user;
    return ebb_cuda_check(lane->device->base.ctx,
                          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                                          lane->device->stream[lane->queue]),
                          "a bounced copy");
}

static void lane_look(void *user)
{
    ebb_cuda_look(((const struct ebb_cuda_lane *)user)->device);
}

static enum ebb_status start_bounce(struct ebb_cuda_device *own, enum ebb_queue queue)
{
    static const char *const names[EBB_QUEUE_COUNT] = {"ebb-bounce", "ebb-bounce-out",
                                                       "ebb-bounce-in"};
    struct ebb_cuda_slab *slab = &own->slab;
    size_t of_queue = slab->slot_bytes * EBB_BOUNCE_SLOTS;
    char *words = slab->ring + words_at(slab->slot_bytes) + WORD_BYTES * (size_t)queue;
    struct ebb_cuda_lane *lane = &slab->lane[queue];
    *lane = (struct ebb_cuda_lane){own, queue};
    const struct ebb_bounce_options options = {.queue = {lane, lane_wait, lane_write, lane_copy,
                                                         lane_look},
                                               .thread_name = names[queue],
                                               .slots = slab->ring + of_queue * (size_t)queue,
                                               .slot_bytes = slab->slot_bytes,
                                               .words = (uint64_t *)(void *)words,
                                               .delay_us = own->delay_us[queue],
                                               .delay_key = ~own->delay_key[queue]};
    return ebb_bounce_create(own->base.ctx, &options, &slab->bounce[queue]);
}

void ebb_cuda_join_slab(struct ebb_cuda_device *own)
{
    char size[32], granted[32];
    struct ebb_cuda_slab *slab = &own->slab;
    if (!slab->running) return;
    pthread_join(slab->thread, NULL);
    slab->running = false;
    if (slab->pageable == 0 || own->lost) return;
    size_t pinned = slab->used - slab->pageable;
    if (slab->refused != NULL)
        ebb_warn_once(own->base.ctx, "device.pageable",
                      "of %s of host memory the system pins %s (%s): copies to and from the rest "
                      "are several times slower\nraise the limit on locked memory (ulimit -l), or "
                      "lower host_memory_budget",
                      ebb_text_bytes((int64_t)slab->used, size, sizeof size),
                      pinned > 0 ? ebb_text_bytes((int64_t)pinned, granted, sizeof granted)
                                 : "nothing",
                      slab->refused);
    for (int q = 0; slab->ring != NULL && q < EBB_QUEUE_COUNT; q++)
        ebb_cuda_remember(own, start_bounce(own, (enum ebb_queue)q));
}

/* Neither the slab nor a ring beside it. */
static enum ebb_status fail_pinned(const struct ebb_cuda_device *own)
{
    struct rlimit limit = {0};
    char least[32], most[32] = "unlimited";
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY) ebb_text_bytes((int64_t)limit.rlim_cur, most, sizeof most);
    return EBB_FAIL(own->base.ctx, EBB_DEVICE,
                    "the system refuses to pin even %s of host memory (%s), and the GPU reaches no "
                    "other; the limit on locked memory of this process (ulimit -l) is %s\n"
                    "try:   raise that limit, give the machine or container more memory, or leave "
                    "nothing to be moved to the host (activation_offloading: false)",
                    ebb_text_bytes((int64_t)SLOT_BYTES_LEAST * EBB_BOUNCE_SLOTS * EBB_QUEUE_COUNT,
                                   least, sizeof least),
                    own->slab.ring_refused != NULL ? own->slab.ring_refused : "no reason is given",
                    most);
}

enum ebb_status ebb_cuda_bounce(struct ebb_cuda_device *own, enum ebb_queue queue, void *to,
                                const void *from, int64_t bytes)
{
    struct ebb_bounce *bounce = own->slab.bounce[queue];
    if (bounce == NULL) return fail_pinned(own);
    bool leaves = ebb_device_space_of(&own->base, from) == EBB_SPACE_HOST;
    bool comes = ebb_device_space_of(&own->base, to) == EBB_SPACE_HOST;
    enum ebb_status status = leaves && comes ? ebb_bounce_within(bounce, to, from, bytes)
                             : comes         ? ebb_bounce_out(bounce, to, from, bytes)
                                             : ebb_bounce_in(bounce, to, from, bytes);
    if (status != EBB_OK) ebb_bounce_abandon(bounce);
    return status;
}

uint64_t ebb_cuda_place(const struct ebb_cuda_device *own, enum ebb_queue queue)
{
    const struct ebb_bounce *bounce = own->slab.bounce[queue];
    return bounce != NULL ? ebb_bounce_place(bounce) : 0;
}

bool ebb_cuda_reached(const struct ebb_cuda_device *own, enum ebb_queue queue, uint64_t place)
{
    return place == 0 || ebb_bounce_reached(own->slab.bounce[queue], place);
}

enum ebb_status ebb_cuda_wait_place(struct ebb_cuda_device *own, enum ebb_queue queue,
                                    enum ebb_queue other, uint64_t place)
{
    if (ebb_cuda_reached(own, other, place)) return EBB_OK;
    return ebb_cuda_wait_word(own, queue,
                              on_device(&own->slab, ebb_bounce_done(own->slab.bounce[other])),
                              place);
}

void ebb_cuda_waited(struct ebb_cuda_device *own, enum ebb_queue queue)
{
    if (own->slab.bounce[queue] != NULL) ebb_bounce_waited(own->slab.bounce[queue]);
}

void ebb_cuda_abandon(struct ebb_cuda_device *own)
{
    for (int q = 0; q < EBB_QUEUE_COUNT; q++)
        if (own->slab.bounce[q] != NULL) ebb_bounce_abandon(own->slab.bounce[q]);
}

void ebb_cuda_drain(struct ebb_cuda_device *own)
{
    for (int q = 0; q < EBB_QUEUE_COUNT; q++)
        if (own->slab.bounce[q] != NULL) ebb_bounce_drain(own->slab.bounce[q], own->lost);
}

void ebb_cuda_free_slab(struct ebb_cuda_device *own)
{
    struct ebb_cuda_slab *slab = &own->slab;
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) ebb_bounce_free(slab->bounce[q]);
    if (slab->ring != NULL) (void)cudaFreeHost(slab->ring);
    if (slab->pageable < slab->used) (void)cudaHostUnregister((char *)slab->start + slab->pageable);
    if (slab->start != NULL) munmap(slab->start, slab->bytes);
}
