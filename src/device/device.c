/* The device's front: checks arguments, finds the backend, passes the call on.
 *
 * A wrong argument here is our own mistake and stops the process (EBB_ASSERT); what the machine or
 * the user makes fail is a status from the backend.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "device/device_int.h"

struct backend_row {
    const char *name;
    const struct ebb_device_backend *(*get)(void); /* returns NULL: not in this build */
};

static const struct backend_row backends[] = {
    [EBB_BACKEND_CPU] = {"cpu", ebb_device_backend_cpu},
    [EBB_BACKEND_CUDA] = {"cuda", ebb_device_backend_cuda},
};

static const char *const queue_names[EBB_QUEUE_COUNT] = {"compute", "out", "in"};
static const char *const space_names[EBB_SPACE_COUNT] = {"device", "host"};

/* Ranges are converted, so that a value out of the enum stops here instead of reading past a table.
 */
static bool queue_is_valid(enum ebb_queue queue)
{
    return (unsigned)queue < EBB_QUEUE_COUNT;
}

static bool space_is_valid(enum ebb_space space)
{
    return (unsigned)space < EBB_SPACE_COUNT;
}

const char *ebb_queue_name(enum ebb_queue queue)
{
    EBB_ASSERT(queue_is_valid(queue));
    return queue_names[queue];
}

const char *ebb_space_name(enum ebb_space space)
{
    EBB_ASSERT(space_is_valid(space));
    return space_names[space];
}

enum ebb_space ebb_device_space_of(const struct ebb_device *device, const void *at)
{
    for (int i = 0; i < EBB_SPACE_COUNT; i++) {
        const struct ebb_device_space *space = &device->space[i];
        uintptr_t first = (uintptr_t)space->base;
        if (space->base != NULL && (uintptr_t)at >= first &&
            (uintptr_t)at - first < (uintptr_t)space->bytes)
            return (enum ebb_space)i;
    }
    return EBB_SPACE_COUNT;
}

static const struct backend_row *row_of(enum ebb_backend backend)
{
    EBB_ASSERT((unsigned)backend < sizeof backends / sizeof backends[0]);
    return &backends[backend];
}

const char *ebb_backend_name(enum ebb_backend backend)
{
    return row_of(backend)->name;
}

bool ebb_backend_is_built(enum ebb_backend backend)
{
    return row_of(backend)->get() != NULL;
}

bool ebb_backend_is_there(enum ebb_backend backend, char *why, size_t why_bytes)
{
    const struct ebb_device_backend *functions = row_of(backend)->get();
    if (functions != NULL) return functions->is_there(why, why_bytes);
    if (why != NULL)
        snprintf(why, why_bytes,
                 "this build has the CPU backend only (build it where the CUDA toolkit is)");
    return false;
}

bool ebb_backend_facts(struct ebb_ctx *ctx, enum ebb_backend backend,
                       struct ebb_backend_facts *facts)
{
    const struct ebb_device_backend *functions = row_of(backend)->get();
    memset(facts, 0, sizeof *facts);
    return functions != NULL && functions->facts(ctx, facts);
}

int64_t ebb_backend_bytes_total(enum ebb_backend backend)
{
    const struct ebb_device_backend *functions = row_of(backend)->get();
    return functions != NULL ? functions->bytes_total() : 0;
}

int64_t ebb_backend_bytes_free(struct ebb_ctx *ctx, enum ebb_backend backend)
{
    const struct ebb_device_backend *functions = row_of(backend)->get();
    return functions != NULL ? functions->bytes_free(ctx) : 0;
}

int ebb_device_default_delay(void)
{
#ifdef EBB_TORTURE
    return 50;
#else
    return 0;
#endif
}

int ebb_device_delay(uint64_t delay_key, uint64_t number, int delay_us)
{
    uint32_t words[4];
    ebb_philox(delay_key, number, words);
    return (int)(words[0] % ((uint32_t)delay_us + 1u));
}

/* Faults of the thread itself and the profiler's clock are its own business. */
static void block_signals(sigset_t *before)
{
    sigset_t blocked;
    sigfillset(&blocked);
    const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

enum ebb_status ebb_device_thread_start(struct ebb_ctx *ctx, const char *name,
                                        void *(*main)(void *user), void *user, pthread_t *thread)
{
    sigset_t before;
    block_signals(&before);
    int error = pthread_create(thread, NULL, main, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return EBB_FAIL(ctx, EBB_DEVICE, "cannot start the thread '%s': %s", name, strerror(error));
    pthread_setname_np(*thread, name);
    return EBB_OK;
}

enum ebb_status ebb_device_create(struct ebb_ctx *ctx, const struct ebb_device_options *options,
                                  struct ebb_device **device)
{
    *device = NULL;
    const struct backend_row *row = row_of(options->backend);
    const struct ebb_device_backend *backend = row->get();
    if (backend == NULL) {
        char why[EBB_BACKEND_WHY];
        (void)ebb_backend_is_there(options->backend, why, sizeof why);
        return EBB_FAIL(ctx, EBB_UNSUPPORTED, "device: %s is not to be had: %s\ntry:   device: cpu",
                        row->name, why);
    }
    if (options->threads < 0 || options->threads > 1024)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "%d threads for the device; wanted 1 to 1024, or 0 for every processor",
                        options->threads);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        if (options->delay_us[i] < 0 || options->delay_us[i] > 1000000)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "a delay of %d microseconds for queue '%s'; wanted 0 to 1000000",
                            options->delay_us[i], queue_names[i]);
    if (options->pageable_bytes < 0 || options->pageable_bytes % EBB_SPACE_ALIGN != 0 ||
        options->pin_limit < 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "%lld pageable bytes and %lld that may be pinned; wanted whole pages of "
                        "%d bytes, and a number from 0 on",
                        (long long)options->pageable_bytes, (long long)options->pin_limit,
                        (int)EBB_SPACE_ALIGN);
    if (options->bounce_bytes < 0 || options->bounce_bytes > 1 << 30)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "bounced pieces of %lld bytes; wanted 1 to 1073741824, or 0 for 8 MiB",
                        (long long)options->bounce_bytes);
    EBB_TRY(backend->create(ctx, options, device));
    EBB_ASSERT((*device)->backend == backend && (*device)->ctx == ctx);
    (*device)->kind = options->backend;
    (*device)->pageable_bytes = options->pageable_bytes;
    (*device)->pin_limit = options->pin_limit;
    return EBB_OK;
}

void ebb_device_free(struct ebb_device *device)
{
    if (device != NULL) device->backend->free(device);
}

struct ebb_ctx *ebb_device_ctx(const struct ebb_device *device)
{
    return device->ctx;
}

int ebb_device_threads(const struct ebb_device *device)
{
    return device->threads;
}

enum ebb_backend ebb_device_backend(const struct ebb_device *device)
{
    return device->kind;
}

const char *ebb_device_name(const struct ebb_device *device)
{
    return device->name;
}

/* ---- memory ---- */

enum ebb_status ebb_device_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes)
{
    EBB_ASSERT(space_is_valid(space) && bytes >= 0);
    EBB_ASSERT(device->space[space].base == NULL);
    return device->backend->reserve(device, space, bytes);
}

void *ebb_device_base(const struct ebb_device *device, enum ebb_space space)
{
    EBB_ASSERT(space_is_valid(space));
    return device->space[space].base;
}

int64_t ebb_device_bytes(const struct ebb_device *device, enum ebb_space space)
{
    EBB_ASSERT(space_is_valid(space));
    return device->space[space].bytes;
}

int64_t ebb_device_bytes_resident(const struct ebb_device *device, enum ebb_space space)
{
    EBB_ASSERT(space_is_valid(space));
    return device->space[space].base != NULL ? device->backend->bytes_resident(device, space) : 0;
}

int64_t ebb_device_bytes_process(const struct ebb_device *device, enum ebb_bytes_way *way)
{
    enum ebb_bytes_way unused;
    return device->backend->bytes_process(device, way != NULL ? way : &unused);
}

int64_t ebb_device_bytes_overhead(const struct ebb_device *device)
{
    return device->backend->bytes_overhead(device);
}

const char *ebb_device_other_users(const struct ebb_device *device, char *out, size_t out_bytes)
{
    out[0] = '\0';
    return device->backend->other_users ? device->backend->other_users(device, out, out_bytes)
                                        : out;
}

void ebb_device_break(struct ebb_device *device)
{
    EBB_ASSERT(device->backend->break_it != NULL);
    device->backend->break_it(device);
}

/* A range that begins inside a space must end inside it. */
static bool range_is_valid(const struct ebb_device *device, const void *at, int64_t bytes)
{
    enum ebb_space space = ebb_device_space_of(device, at);
    if (space == EBB_SPACE_COUNT) return at != NULL;
    int64_t offset = (int64_t)((uintptr_t)at - (uintptr_t)device->space[space].base);
    return bytes <= device->space[space].bytes - offset;
}

void ebb_device_host_ready(struct ebb_device *device)
{
    if (device->backend->host_ready) device->backend->host_ready(device);
}

int64_t ebb_device_bytes_pinned(struct ebb_device *device)
{
    int64_t bytes = device->space[EBB_SPACE_HOST].bytes - device->pageable_bytes;
    ebb_device_host_ready(device);
    if (device->backend->bytes_pinned) return device->backend->bytes_pinned(device);
    if (device->pin_limit > 0 && bytes > device->pin_limit)
        bytes = device->pin_limit / EBB_SPACE_ALIGN * EBB_SPACE_ALIGN;
    return bytes > 0 ? bytes : 0;
}

double ebb_device_pin_seconds(struct ebb_device *device)
{
    ebb_device_host_ready(device);
    return device->backend->pin_seconds ? device->backend->pin_seconds(device) : 0;
}

enum ebb_status ebb_device_copy_rows(struct ebb_device *device, void *to, int64_t to_stride,
                                     const void *from, int64_t from_stride, int64_t row_bytes,
                                     int64_t rows)
{
    EBB_ASSERT(rows >= 0 && row_bytes >= 0 && to_stride >= row_bytes && from_stride >= row_bytes);
    if (rows == 0 || row_bytes == 0) return EBB_OK;
    EBB_ASSERT(range_is_valid(device, to, (rows - 1) * to_stride + row_bytes));
    EBB_ASSERT(range_is_valid(device, from, (rows - 1) * from_stride + row_bytes));
    return device->backend->copy_rows(device, to, to_stride, from, from_stride, row_bytes, rows);
}

enum ebb_status ebb_device_copy(struct ebb_device *device, void *to, const void *from,
                                int64_t bytes)
{
    return ebb_device_copy_rows(device, to, bytes, from, bytes, bytes, 1);
}

enum ebb_status ebb_device_fill(struct ebb_device *device, void *to, int byte, int64_t bytes)
{
    EBB_ASSERT(bytes >= 0);
    if (bytes == 0) return EBB_OK;
    EBB_ASSERT(range_is_valid(device, to, bytes));
    return device->backend->fill(device, to, byte, bytes);
}

enum ebb_status ebb_device_block_create(struct ebb_device *device, int64_t bytes, bool shared,
                                        void **block)
{
    EBB_ASSERT(bytes >= 0);
    *block = NULL;
    return device->backend->block_create(device, bytes > 0 ? bytes : 1, shared, block);
}

void ebb_device_block_free(struct ebb_device *device, void *block)
{
    if (block != NULL) device->backend->block_free(device, block);
}

/* ---- queues ---- */

enum ebb_status ebb_queue_launch(struct ebb_device *device, enum ebb_queue queue, ebb_queue_fn fn,
                                 const void *args)
{
    EBB_ASSERT(queue_is_valid(queue) && fn != NULL);
    return device->backend->launch(device, queue, fn, args);
}

enum ebb_status ebb_queue_copy(struct ebb_device *device, enum ebb_queue queue, void *to,
                               const void *from, int64_t bytes)
{
    EBB_ASSERT(queue_is_valid(queue) && bytes >= 0);
    if (bytes == 0) return EBB_OK;
    EBB_ASSERT(range_is_valid(device, to, bytes) && range_is_valid(device, from, bytes));
    uintptr_t a = (uintptr_t)to;
    uintptr_t b = (uintptr_t)from;
    EBB_ASSERT((a < b ? b - a : a - b) >= (uintptr_t)bytes);
    return device->backend->copy(device, queue, to, from, bytes);
}

enum ebb_status ebb_device_events(struct ebb_device *device, int count)
{
    EBB_ASSERT(count >= 0);
    return count > device->events ? device->backend->events(device, count) : EBB_OK;
}

enum ebb_status ebb_queue_record(struct ebb_device *device, enum ebb_queue queue, int event)
{
    EBB_ASSERT(queue_is_valid(queue) && event >= 0 && event < device->events);
    return device->backend->record(device, queue, event);
}

enum ebb_status ebb_queue_wait(struct ebb_device *device, enum ebb_queue queue, int event)
{
    EBB_ASSERT(queue_is_valid(queue) && event >= 0 && event < device->events);
    return device->backend->wait(device, queue, event);
}

enum ebb_status ebb_device_marks(struct ebb_device *device, int count, int *first)
{
    EBB_ASSERT(count >= 0 && count <= INT_MAX - device->marks);
    *first = device->marks;
    return count > 0 ? device->backend->marks(device, device->marks + count) : EBB_OK;
}

enum ebb_status ebb_queue_mark(struct ebb_device *device, enum ebb_queue queue, int mark)
{
    EBB_ASSERT(queue_is_valid(queue) && mark >= 0 && mark < device->marks);
    return device->backend->mark(device, queue, mark);
}

double ebb_device_mark_seconds(struct ebb_device *device, int from, int to)
{
    EBB_ASSERT(from >= 0 && from < device->marks && to >= 0 && to < device->marks);
    return device->backend->mark_seconds(device, from, to);
}

enum ebb_status ebb_device_sync(struct ebb_device *device)
{
    return device->backend->sync(device);
}

void ebb_device_counters(const struct ebb_device *device, struct ebb_device_counters *counters)
{
    device->backend->counters(device, counters);
}

/* ---- tickets ---- */

enum ebb_status ebb_ticket_create(struct ebb_device *device, struct ebb_ticket **ticket)
{
    *ticket = NULL;
    return device->backend->ticket_create(device, ticket);
}

void ebb_ticket_free(struct ebb_ticket *ticket)
{
    if (ticket != NULL) ticket->device->backend->ticket_free(ticket);
}

void ebb_ticket_signal(struct ebb_ticket *ticket, uint64_t value)
{
    ticket->device->backend->ticket_signal(ticket, value);
}

void ebb_ticket_fail(struct ebb_ticket *ticket, enum ebb_status status)
{
    EBB_ASSERT(status != EBB_OK);
    ticket->device->backend->ticket_fail(ticket, status);
}

enum ebb_status ebb_ticket_wait(struct ebb_ticket *ticket, uint64_t value, double seconds)
{
    EBB_ASSERT(seconds >= 0);
    return ticket->device->backend->ticket_wait(ticket, value, seconds);
}

enum ebb_status ebb_queue_ticket_signal(struct ebb_device *device, enum ebb_queue queue,
                                        struct ebb_ticket *ticket, uint64_t value)
{
    EBB_ASSERT(queue_is_valid(queue) && ticket->device == device);
    return device->backend->queue_ticket_signal(device, queue, ticket, value);
}

enum ebb_status ebb_queue_ticket_wait(struct ebb_device *device, enum ebb_queue queue,
                                      struct ebb_ticket *ticket, uint64_t value, double seconds)
{
    EBB_ASSERT(queue_is_valid(queue) && ticket->device == device && seconds >= 0);
    return device->backend->queue_ticket_wait(device, queue, ticket, value, seconds);
}
