/* The CPU backend: spaces are anonymous memory with a guard page, queues are threads with a ring of
 * commands each.
 *
 * A queue's commands are numbered from 1. `put` says how many were enqueued, `done` how many have
 * run or were skipped; both only grow. An event is a note on the caller's side, "queue q, command
 * n", and waiting for it is waiting until q's `done` has reached n: recording costs nothing, and a
 * later record cannot satisfy an earlier wait.
 *
 * Who writes what: the caller's thread `put` and the ring's slots, each queue's thread its own
 * `done` and counts. Who finds nothing to do leaves a note in the counter at which value to be
 * woken, looks once more, and sleeps; who moves a counter looks for notes afterwards. Both orders
 * are sequentially consistent, so one of the two always sees the other.
 *
 * After a failure the threads keep counting, only without doing anything: nobody waits for ever.
 * Two commands still act: a ticket's signal turns into the ticket's failure, and a mark loses the
 * time that it had.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "device/device_int.h"

#ifdef EBB_TORTURE
enum { RING = 4 };
#else
enum { RING = 4096 };
#endif
enum {
    SPINS = 64,                    /* a few microseconds: there may be no processor to spare */
    WAITER_HOST = EBB_QUEUE_COUNT, /* the thread that calls; the others are the queues' */
    WAITER_COUNT
};
static const uint64_t never = UINT64_MAX;

/* A number that only grows, and at which value each waiter wants to be woken. */
struct counter {
    _Atomic uint64_t value;
    _Atomic uint64_t wake_at[WAITER_COUNT];
    char apart[64]; /* counters of different writers do not share a cache line */
};

/* Where a waiter sleeps. */
struct bed {
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

enum command_kind {
    COMMAND_LAUNCH,
    COMMAND_COPY,
    COMMAND_WAIT,
    COMMAND_MARK,
    COMMAND_SIGNAL_TICKET,
    COMMAND_WAIT_TICKET,
    COMMAND_STOP
};

struct command {
    enum command_kind kind;
    enum ebb_queue other; /* WAIT */
    union {
        struct {
            ebb_queue_fn fn;
            const void *args;
        } launch;
        struct {
            void *to;
            const void *from;
            int64_t bytes;
        } copy;
        uint64_t place; /* WAIT: until the other queue has done this many */
        int mark;
        struct {
            struct ebb_ticket *ticket;
            uint64_t value;
            double seconds;
        } ticket;
    } as;
};

struct cpu_queue {
    struct cpu_device *device;
    enum ebb_queue id;
    pthread_t thread;
    bool started;
    int threads;
    int delay_us;
    uint64_t delay_key;
    struct command *ring; /* [RING]; command n lies at n % RING */
    struct counter put;
    struct counter done;
    /* Written by the queue's thread only. */
    _Atomic int64_t bytes_out, bytes_in;
    _Atomic double busy_seconds, stall_seconds;
};

struct event {
    enum ebb_queue queue;
    uint64_t place; /* 0: never recorded */
};

struct mapping {
    void *start;
    size_t bytes;
};

struct cpu_device {
    struct ebb_device base;
    struct cpu_queue queue[EBB_QUEUE_COUNT];
    struct bed bed[WAITER_COUNT];
    struct event *event; /* [base.events], the caller's thread only */
    double *mark;        /* [base.marks] the clock; NaN: no time. Queues write, a sync lets read */
    struct mapping mapping[EBB_SPACE_COUNT];
    _Atomic int failed; /* enum ebb_status of the first failure since the last sync */
};

struct cpu_ticket {
    struct ebb_ticket base;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t value;
    enum ebb_status failed;
};

static struct cpu_device *cpu_of(struct ebb_device *device)
{
    return (struct cpu_device *)device;
}

static struct cpu_ticket *cpu_ticket_of(struct ebb_ticket *ticket)
{
    return (struct cpu_ticket *)ticket;
}

/* ---- counters and sleep ---- */

static void counter_init(struct counter *counter)
{
    atomic_init(&counter->value, 0);
    for (int i = 0; i < WAITER_COUNT; i++) atomic_init(&counter->wake_at[i], never);
}

static void counter_set(struct cpu_device *device, struct counter *counter, uint64_t value)
{
    atomic_store(&counter->value, value);
    for (int i = 0; i < WAITER_COUNT; i++) {
        if (atomic_load(&counter->wake_at[i]) > value) continue;
        pthread_mutex_lock(&device->bed[i].lock);
        pthread_cond_signal(&device->bed[i].wake);
        pthread_mutex_unlock(&device->bed[i].lock);
    }
}

static bool counter_reached(struct counter *counter, uint64_t value)
{
    return atomic_load_explicit(&counter->value, memory_order_acquire) >= value;
}

static void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void counter_wait(struct cpu_device *device, int waiter, struct counter *counter,
                         uint64_t value)
{
    for (int i = 0; i < SPINS; i++) {
        if (counter_reached(counter, value)) return;
        spin_pause();
    }
    struct bed *bed = &device->bed[waiter];
    atomic_store(&counter->wake_at[waiter], value);
    pthread_mutex_lock(&bed->lock);
    while (atomic_load(&counter->value) < value) pthread_cond_wait(&bed->wake, &bed->lock);
    pthread_mutex_unlock(&bed->lock);
    atomic_store(&counter->wake_at[waiter], never);
}

/* ---- tickets ---- */

static enum ebb_status cpu_ticket_create(struct ebb_device *device, struct ebb_ticket **ticket)
{
    struct cpu_ticket *fresh = ebb_mem_alloc(device->ctx, sizeof *fresh);
    if (fresh == NULL) return EBB_NO_MEMORY;
    fresh->base.device = device;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&fresh->moved, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&fresh->lock, NULL);
    *ticket = &fresh->base;
    return EBB_OK;
}

static void cpu_ticket_free(struct ebb_ticket *ticket)
{
    struct cpu_ticket *own = cpu_ticket_of(ticket);
    pthread_mutex_destroy(&own->lock);
    pthread_cond_destroy(&own->moved);
    ebb_mem_free(ticket->device->ctx, own);
}

static void cpu_ticket_signal(struct ebb_ticket *ticket, uint64_t value)
{
    struct cpu_ticket *own = cpu_ticket_of(ticket);
    pthread_mutex_lock(&own->lock);
    if (value > own->value) own->value = value;
    pthread_cond_broadcast(&own->moved);
    pthread_mutex_unlock(&own->lock);
}

static void cpu_ticket_fail(struct ebb_ticket *ticket, enum ebb_status status)
{
    struct cpu_ticket *own = cpu_ticket_of(ticket);
    pthread_mutex_lock(&own->lock);
    if (own->failed == EBB_OK) own->failed = status;
    pthread_cond_broadcast(&own->moved);
    pthread_mutex_unlock(&own->lock);
}

static struct timespec deadline_after(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    double whole = floor(seconds < 1e9 ? seconds : 1e9);
    long nanoseconds = at.tv_nsec + (seconds < 1e9 ? (long)((seconds - whole) * 1e9) : 0);
    at.tv_sec += (time_t)whole + nanoseconds / 1000000000;
    at.tv_nsec = nanoseconds % 1000000000;
    return at;
}

/* `who` is the waiting queue's name, or NULL for a thread of the host. */
static enum ebb_status ticket_wait(struct cpu_ticket *ticket, uint64_t value, double seconds,
                                   const char *who)
{
    struct timespec deadline = deadline_after(seconds);
    pthread_mutex_lock(&ticket->lock);
    while (ticket->failed == EBB_OK && ticket->value < value)
        if (pthread_cond_timedwait(&ticket->moved, &ticket->lock, &deadline) == ETIMEDOUT) break;
    enum ebb_status failed = ticket->failed;
    uint64_t now = ticket->value;
    pthread_mutex_unlock(&ticket->lock);

    struct ebb_ctx *ctx = ticket->base.device->ctx;
    const char *kind = who != NULL ? "queue " : "";
    const char *name = who != NULL ? who : "a thread";
    if (failed != EBB_OK)
        return EBB_FAIL(ctx, failed,
                        "%s%s waited for a ticket to reach %" PRIu64
                        ", but who signals it failed (%s) when it stood "
                        "at %" PRIu64,
                        kind, name, value, ebb_status_name(failed), now);
    if (now < value)
        return EBB_FAIL(ctx, EBB_DEVICE,
                        "%s%s waited %g seconds for a ticket to reach %" PRIu64
                        ", but it stands at %" PRIu64
                        "\nwhat signals it is stuck or was never started",
                        kind, name, seconds, value, now);
    return EBB_OK;
}

static enum ebb_status cpu_ticket_wait(struct ebb_ticket *ticket, uint64_t value, double seconds)
{
    return ticket_wait(cpu_ticket_of(ticket), value, seconds, NULL);
}

static bool ticket_is_settled(struct cpu_ticket *ticket, uint64_t value)
{
    pthread_mutex_lock(&ticket->lock);
    bool settled = ticket->failed != EBB_OK || ticket->value >= value;
    pthread_mutex_unlock(&ticket->lock);
    return settled;
}

/* ---- the queues' threads ---- */

/* Counts have one writer: a load and a store are enough. */
static void add_seconds(_Atomic double *total, double seconds)
{
    double now = atomic_load_explicit(total, memory_order_relaxed);
    atomic_store_explicit(total, now + seconds, memory_order_relaxed);
}

static void add_bytes(_Atomic int64_t *total, int64_t bytes)
{
    int64_t now = atomic_load_explicit(total, memory_order_relaxed);
    atomic_store_explicit(total, now + bytes, memory_order_relaxed);
}

static enum ebb_status device_failed(struct cpu_device *device)
{
    return (enum ebb_status)atomic_load_explicit(&device->failed, memory_order_acquire);
}

static enum ebb_status run_launch(struct cpu_queue *queue, const struct command *command)
{
    struct ebb_queue_env env = {.device = &queue->device->base, .threads = queue->threads};
    double start = ebb_clock_seconds();
    enum ebb_status status = command->as.launch.fn(&env, command->as.launch.args);
    add_seconds(&queue->busy_seconds, ebb_clock_seconds() - start);
    if (status != EBB_OK) /* kept only if the function itself gave no reason */
        EBB_FAIL(queue->device->base.ctx, status,
                 "a function on queue %s failed (%s) without saying why", ebb_queue_name(queue->id),
                 ebb_status_name(status));
    return status;
}

static enum ebb_status run_copy(struct cpu_queue *queue, const struct command *command)
{
    const struct ebb_device *device = &queue->device->base;
    int64_t bytes = command->as.copy.bytes;
    double start = ebb_clock_seconds();
    memcpy(command->as.copy.to, command->as.copy.from, (size_t)bytes);
    add_seconds(&queue->busy_seconds, ebb_clock_seconds() - start);
    enum ebb_space to = ebb_device_space_of(device, command->as.copy.to);
    enum ebb_space from = ebb_device_space_of(device, command->as.copy.from);
    if (from == EBB_SPACE_DEVICE && to == EBB_SPACE_HOST) add_bytes(&queue->bytes_out, bytes);
    if (from == EBB_SPACE_HOST && to == EBB_SPACE_DEVICE) add_bytes(&queue->bytes_in, bytes);
    return EBB_OK;
}

static enum ebb_status run_wait(struct cpu_queue *queue, const struct command *command)
{
    struct counter *done = &queue->device->queue[command->other].done;
    if (counter_reached(done, command->as.place)) return EBB_OK;
    double start = ebb_clock_seconds();
    counter_wait(queue->device, (int)queue->id, done, command->as.place);
    add_seconds(&queue->stall_seconds, ebb_clock_seconds() - start);
    return EBB_OK;
}

static enum ebb_status run_wait_ticket(struct cpu_queue *queue, const struct command *command)
{
    struct cpu_ticket *ticket = cpu_ticket_of(command->as.ticket.ticket);
    bool stalls = !ticket_is_settled(ticket, command->as.ticket.value);
    double start = ebb_clock_seconds();
    enum ebb_status status = ticket_wait(ticket, command->as.ticket.value,
                                         command->as.ticket.seconds, ebb_queue_name(queue->id));
    if (stalls) add_seconds(&queue->stall_seconds, ebb_clock_seconds() - start);
    return status;
}

static void sleep_random(const struct cpu_queue *queue, uint64_t number)
{
    long us = ebb_device_delay(queue->delay_key, number, queue->delay_us);
    struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static enum ebb_status run_command(struct cpu_queue *queue, const struct command *command)
{
    switch (command->kind) {
    case COMMAND_LAUNCH:
        return run_launch(queue, command);
    case COMMAND_COPY:
        return run_copy(queue, command);
    case COMMAND_WAIT:
        return run_wait(queue, command);
    case COMMAND_WAIT_TICKET:
        return run_wait_ticket(queue, command);
    case COMMAND_MARK:
        queue->device->mark[command->as.mark] = ebb_clock_seconds();
        break;
    case COMMAND_SIGNAL_TICKET:
        cpu_ticket_signal(command->as.ticket.ticket, command->as.ticket.value);
        break;
    case COMMAND_STOP:
        break;
    }
    return EBB_OK;
}

static void *queue_main(void *argument)
{
    struct cpu_queue *queue = argument;
    struct cpu_device *device = queue->device;
    omp_set_num_threads(queue->threads); /* holds for this thread only */
    enum command_kind kind;
    uint64_t number = 0;
    do {
        number++;
        if (!counter_reached(&queue->put, number))
            counter_wait(device, (int)queue->id, &queue->put, number);
        struct command command = queue->ring[number % RING];
        kind = command.kind;
        if (queue->delay_us > 0 && device_failed(device) == EBB_OK) sleep_random(queue, number);
        enum ebb_status before = device_failed(device);
        if (before == EBB_OK) {
            int none = EBB_OK;
            enum ebb_status status = run_command(queue, &command);
            if (status != EBB_OK)
                atomic_compare_exchange_strong(&device->failed, &none, (int)status);
        } else if (kind == COMMAND_SIGNAL_TICKET) {
            cpu_ticket_fail(command.as.ticket.ticket, before);
        } else if (kind == COMMAND_MARK) {
            device->mark[command.as.mark] = NAN; /* rather than the time of an earlier run */
        }
        counter_set(device, &queue->done, number);
    } while (kind != COMMAND_STOP);
    return NULL;
}

/* ---- enqueueing ---- */

static enum ebb_status put_command(struct cpu_device *device, enum ebb_queue id,
                                   const struct command *command)
{
    struct cpu_queue *queue = &device->queue[id];
    uint64_t number = atomic_load_explicit(&queue->put.value, memory_order_relaxed) + 1;
    /* A full ring is left half empty before going on, so that the caller is not woken for every
     * slot. */
    if (number > RING && !counter_reached(&queue->done, number - RING))
        counter_wait(device, WAITER_HOST, &queue->done, number - RING + RING / 2);
    queue->ring[number % RING] = *command;
    counter_set(device, &queue->put, number);
    return EBB_OK;
}

static enum ebb_status cpu_launch(struct ebb_device *device, enum ebb_queue queue, ebb_queue_fn fn,
                                  const void *args)
{
    struct command command = {.kind = COMMAND_LAUNCH, .as.launch = {.fn = fn, .args = args}};
    return put_command(cpu_of(device), queue, &command);
}

static enum ebb_status cpu_copy(struct ebb_device *device, enum ebb_queue queue, void *to,
                                const void *from, int64_t bytes)
{
    struct command command = {.kind = COMMAND_COPY,
                              .as.copy = {.to = to, .from = from, .bytes = bytes}};
    return put_command(cpu_of(device), queue, &command);
}

static enum ebb_status cpu_events(struct ebb_device *device, int count)
{
    struct cpu_device *own = cpu_of(device);
    struct event *grown = ebb_mem_realloc(device->ctx, own->event, (size_t)count * sizeof *grown);
    if (grown == NULL) return EBB_NO_MEMORY;
    memset(grown + device->events, 0, (size_t)(count - device->events) * sizeof *grown);
    own->event = grown;
    device->events = count;
    return EBB_OK;
}

static enum ebb_status cpu_record(struct ebb_device *device, enum ebb_queue queue, int event)
{
    struct cpu_device *own = cpu_of(device);
    own->event[event] = (struct event){.queue = queue,
                                       .place = atomic_load_explicit(&own->queue[queue].put.value,
                                                                     memory_order_relaxed)};
    return EBB_OK;
}

static enum ebb_status cpu_wait(struct ebb_device *device, enum ebb_queue queue, int event)
{
    struct cpu_device *own = cpu_of(device);
    const struct event *at = &own->event[event];
    /* A queue is in order by itself; what is done already is seen by whoever is told of it through
     * the ring. */
    if (at->queue == queue || counter_reached(&own->queue[at->queue].done, at->place))
        return EBB_OK;
    struct command command = {.kind = COMMAND_WAIT, .other = at->queue, .as.place = at->place};
    return put_command(own, queue, &command);
}

static enum ebb_status cpu_queue_ticket_signal(struct ebb_device *device, enum ebb_queue queue,
                                               struct ebb_ticket *ticket, uint64_t value)
{
    struct command command = {.kind = COMMAND_SIGNAL_TICKET,
                              .as.ticket = {.ticket = ticket, .value = value}};
    return put_command(cpu_of(device), queue, &command);
}

static enum ebb_status cpu_queue_ticket_wait(struct ebb_device *device, enum ebb_queue queue,
                                             struct ebb_ticket *ticket, uint64_t value,
                                             double seconds)
{
    struct command command = {.kind = COMMAND_WAIT_TICKET,
                              .as.ticket = {.ticket = ticket, .value = value, .seconds = seconds}};
    return put_command(cpu_of(device), queue, &command);
}

static void drain(struct cpu_device *device)
{
    for (int i = 0; i < EBB_QUEUE_COUNT; i++) {
        struct cpu_queue *queue = &device->queue[i];
        uint64_t put = atomic_load_explicit(&queue->put.value, memory_order_relaxed);
        if (!counter_reached(&queue->done, put))
            counter_wait(device, WAITER_HOST, &queue->done, put);
    }
}

/* Queues may be writing: the array moves only while nothing is on its way. */
static enum ebb_status cpu_marks(struct ebb_device *device, int count)
{
    struct cpu_device *own = cpu_of(device);
    drain(own);
    double *grown = ebb_mem_realloc(device->ctx, own->mark, (size_t)count * sizeof *grown);
    if (grown == NULL) return EBB_NO_MEMORY;
    for (int i = device->marks; i < count; i++) grown[i] = NAN;
    own->mark = grown;
    device->marks = count;
    return EBB_OK;
}

static enum ebb_status cpu_mark(struct ebb_device *device, enum ebb_queue queue, int mark)
{
    struct command command = {.kind = COMMAND_MARK, .as.mark = mark};
    return put_command(cpu_of(device), queue, &command);
}

static double cpu_mark_seconds(struct ebb_device *device, int from, int to)
{
    const struct cpu_device *own = cpu_of(device);
    return own->mark[to] - own->mark[from];
}

static enum ebb_status cpu_sync(struct ebb_device *device)
{
    struct cpu_device *own = cpu_of(device);
    drain(own);
    enum ebb_status status = device_failed(own);
    if (status != EBB_OK) atomic_store(&own->failed, EBB_OK);
    return status;
}

static void cpu_counters(const struct ebb_device *device, struct ebb_device_counters *counters)
{
    const struct cpu_device *own = (const struct cpu_device *)device;
    *counters = (struct ebb_device_counters){0};
    for (int i = 0; i < EBB_QUEUE_COUNT; i++) {
        const struct cpu_queue *queue = &own->queue[i];
        counters->bytes_out += atomic_load_explicit(&queue->bytes_out, memory_order_relaxed);
        counters->bytes_in += atomic_load_explicit(&queue->bytes_in, memory_order_relaxed);
        counters->busy_seconds[i] =
            atomic_load_explicit(&queue->busy_seconds, memory_order_relaxed);
    }
    counters->stall_seconds =
        atomic_load_explicit(&own->queue[EBB_QUEUE_COMPUTE].stall_seconds, memory_order_relaxed);
}

/* ---- memory ---- */

static enum ebb_status fail_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes,
                                    const char *why)
{
    char size[32];
    return EBB_FAIL(device->ctx, EBB_NO_MEMORY,
                    "cannot reserve %" PRId64 " bytes (%s) for the %s space of the CPU backend: %s",
                    bytes, ebb_text_bytes(bytes, size, sizeof size), ebb_space_name(space), why);
}

/* The space ends where the guard page begins, also where pages are larger than EBB_SPACE_ALIGN. */
static enum ebb_status cpu_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if ((uint64_t)bytes > SIZE_MAX / 2 - 2 * page)
        return fail_reserve(device, space, bytes, "no machine has as much");
    size_t wanted = ((size_t)bytes + EBB_SPACE_ALIGN - 1) / EBB_SPACE_ALIGN * EBB_SPACE_ALIGN;
    size_t usable = (wanted + page - 1) / page * page;
    char *start = mmap(NULL, usable + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return fail_reserve(device, space, bytes, strerror(errno));
    if (mprotect(start + usable, page, PROT_NONE) != 0) {
        int error = errno;
        munmap(start, usable + page);
        return fail_reserve(device, space, bytes, strerror(error));
    }
    /* Huge pages would make memory resident that nobody touched, and the space exists to be
     * measured. Kernels without huge pages refuse this, and rightly. */
    if (usable > 0) (void)madvise(start, usable, MADV_NOHUGEPAGE);
    cpu_of(device)->mapping[space] = (struct mapping){.start = start, .bytes = usable + page};
    device->space[space] =
        (struct ebb_device_space){.base = start + usable - wanted, .bytes = bytes};
    return EBB_OK;
}

static int64_t cpu_bytes_resident(const struct ebb_device *device, enum ebb_space space)
{
    enum { CHUNK = 4096 };
    const struct mapping *mapping = &((const struct cpu_device *)device)->mapping[space];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t pages = mapping->bytes / page - 1; /* without the guard */
    unsigned char resident[CHUNK];
    int64_t bytes = 0;
    for (size_t at = 0; at < pages; at += CHUNK) {
        size_t count = pages - at < CHUNK ? pages - at : CHUNK;
        int rc = mincore((char *)mapping->start + at * page, count * page, resident);
        EBB_ASSERT(rc == 0);
        for (size_t i = 0; i < count; i++) bytes += (resident[i] & 1) != 0 ? (int64_t)page : 0;
    }
    return bytes;
}

static int64_t cpu_bytes_process(const struct ebb_device *device, enum ebb_bytes_way *way)
{
    *way = EBB_BYTES_COUNTED;
    return ebb_device_bytes_resident(device, EBB_SPACE_DEVICE);
}

static int64_t cpu_bytes_overhead(const struct ebb_device *device)
{
    (void)device;
    return 0;
}

static enum ebb_status cpu_copy_rows(struct ebb_device *device, void *to, int64_t to_stride,
                                     const void *from, int64_t from_stride, int64_t row_bytes,
                                     int64_t rows)
{
    (void)device;
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, (size_t)row_bytes);
    return EBB_OK;
}

static enum ebb_status cpu_fill(struct ebb_device *device, void *to, int byte, int64_t bytes)
{
    (void)device;
    memset(to, byte, (size_t)bytes);
    return EBB_OK;
}

static enum ebb_status cpu_block_create(struct ebb_device *device, int64_t bytes, bool shared,
                                        void **block)
{
    *block = ebb_mem_alloc(device->ctx, (size_t)bytes);
    if (*block == NULL) return EBB_NO_MEMORY;
    if (!shared) memset(*block, 0xff, (size_t)bytes); /* NaN */
    return EBB_OK;
}

static void cpu_block_free(struct ebb_device *device, void *block)
{
    ebb_mem_free(device->ctx, block);
}

/* ---- life ---- */

static int64_t cpu_bytes_free(struct ebb_ctx *ctx)
{
    (void)ctx;
    return ebb_host_bytes_available();
}

static bool cpu_is_there(char *why, size_t why_bytes)
{
    (void)why, (void)why_bytes;
    return true;
}

static bool cpu_facts(struct ebb_ctx *ctx, struct ebb_backend_facts *facts)
{
    (void)ctx;
    ebb_cpu_name(facts->name, sizeof facts->name);
    return true;
}

static void cpu_free(struct ebb_device *device)
{
    struct cpu_device *own = cpu_of(device);
    const struct command stop = {.kind = COMMAND_STOP};
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        if (own->queue[i].started) put_command(own, (enum ebb_queue)i, &stop);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++) {
        if (own->queue[i].started) pthread_join(own->queue[i].thread, NULL);
        ebb_mem_free(device->ctx, own->queue[i].ring);
    }
    for (int i = 0; i < WAITER_COUNT; i++) {
        pthread_mutex_destroy(&own->bed[i].lock);
        pthread_cond_destroy(&own->bed[i].wake);
    }
    for (int i = 0; i < EBB_SPACE_COUNT; i++)
        if (own->mapping[i].start != NULL) munmap(own->mapping[i].start, own->mapping[i].bytes);
    ebb_mem_free(device->ctx, own->event);
    ebb_mem_free(device->ctx, own->mark);
    ebb_mem_free(device->ctx, own);
}

static enum ebb_status start_queue(struct cpu_device *device, enum ebb_queue id,
                                   const struct ebb_device_options *options)
{
    static const char *const thread_names[EBB_QUEUE_COUNT] = {"ebb-compute", "ebb-out", "ebb-in"};
    struct cpu_queue *queue = &device->queue[id];
    queue->device = device;
    queue->id = id;
    queue->threads = id == EBB_QUEUE_COMPUTE ? device->base.threads : 1;
    queue->delay_us =
        options->delay_us[id] > 0 ? options->delay_us[id] : ebb_device_default_delay();
    queue->delay_key = ebb_random_key(options->delay_seed, 0, 0, 0, (uint32_t)id);
    queue->ring = ebb_mem_alloc(device->base.ctx, RING * sizeof *queue->ring);
    if (queue->ring == NULL) return EBB_NO_MEMORY;
    EBB_TRY(ebb_device_thread_start(device->base.ctx, thread_names[id], queue_main, queue,
                                    &queue->thread));
    queue->started = true;
    return EBB_OK;
}

static enum ebb_status cpu_create(struct ebb_ctx *ctx, const struct ebb_device_options *options,
                                  struct ebb_device **device)
{
    struct cpu_device *own = ebb_mem_alloc(ctx, sizeof *own);
    if (own == NULL) return EBB_NO_MEMORY;
    own->base.backend = ebb_device_backend_cpu();
    own->base.ctx = ctx;
    snprintf(own->base.name, sizeof own->base.name, "cpu");
    own->base.threads = options->threads > 0 ? options->threads : ebb_cpu_count();
    atomic_init(&own->failed, EBB_OK);
    for (int i = 0; i < WAITER_COUNT; i++) {
        pthread_mutex_init(&own->bed[i].lock, NULL);
        pthread_cond_init(&own->bed[i].wake, NULL);
    }
    for (int i = 0; i < EBB_QUEUE_COUNT; i++) { /* before any thread can look at another's */
        counter_init(&own->queue[i].put);
        counter_init(&own->queue[i].done);
    }
    for (int i = 0; i < EBB_QUEUE_COUNT; i++) {
        enum ebb_status status = start_queue(own, (enum ebb_queue)i, options);
        if (status == EBB_OK) continue;
        cpu_free(&own->base);
        return status;
    }
    *device = &own->base;
    return EBB_OK;
}

const struct ebb_device_backend *ebb_device_backend_cpu(void)
{
    static const struct ebb_device_backend backend = {
        .is_there = cpu_is_there,
        .facts = cpu_facts,
        .bytes_total = ebb_host_bytes_total,
        .bytes_free = cpu_bytes_free,
        .create = cpu_create,
        .free = cpu_free,
        .reserve = cpu_reserve,
        .bytes_resident = cpu_bytes_resident,
        .bytes_process = cpu_bytes_process,
        .bytes_overhead = cpu_bytes_overhead,
        .copy_rows = cpu_copy_rows,
        .fill = cpu_fill,
        .block_create = cpu_block_create,
        .block_free = cpu_block_free,
        .launch = cpu_launch,
        .copy = cpu_copy,
        .events = cpu_events,
        .record = cpu_record,
        .wait = cpu_wait,
        .marks = cpu_marks,
        .mark = cpu_mark,
        .mark_seconds = cpu_mark_seconds,
        .sync = cpu_sync,
        .counters = cpu_counters,
        .ticket_create = cpu_ticket_create,
        .ticket_free = cpu_ticket_free,
        .ticket_signal = cpu_ticket_signal,
        .ticket_fail = cpu_ticket_fail,
        .ticket_wait = cpu_ticket_wait,
        .queue_ticket_signal = cpu_queue_ticket_signal,
        .queue_ticket_wait = cpu_queue_ticket_wait,
    };
    return &backend;
}
