/* The CUDA backend: streams for queues, CUDA's events for events, one cudaMalloc for the arena,
 * one pinned slab for the host space.
 *
 * The CUDA runtime is linked in statically and looks for the driver when it is first used, so
 * that one program serves machines with and without a GPU.
 *
 * The host slab is anonymous memory in huge pages, touched by several threads and then
 * registered: a third of the time that cudaHostAlloc takes. That happens in a thread of its own
 * while the model is loaded; the first copy that needs the slab waits for it.
 *
 * Tickets are words in pinned memory. Queues wait for them by stream memory operations; they are
 * written by the CPU alone (a queue's signal is a host function), since a GPU's writes and the
 * CPU's could not be ordered over PCIe. A ticket that fails gets a value above all others, which
 * releases all that wait; the failure shows at the next sync. So does a wait whose time is up.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cuda.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "device/device_int.h"

enum {
    STALLS = 2048, /* pairs of timing events on their way */
    WAITS = 1024,  /* ticket waits on their way */
    TOUCHERS = 8,  /* threads that touch the host slab */
    HUGE_PAGE = 2 << 20,
    CAPABILITY_LOWEST = 80 /* 8.0: bf16 */
};

/* Above every ticket's value, and not so far above that a GPU, which compares differences as signed
 * numbers, takes it for less. */
static const uint64_t FAILED_VALUE = UINT64_C(1) << 62;

/* Around a wait of COMPUTE: what lies between the two is a stall. */
struct stall {
    cudaEvent_t before, after;
};

struct cuda_ticket {
    struct ebb_ticket base;
    _Atomic uint64_t *word; /* pinned */
    CUdeviceptr at;         /* the same for the GPU */
    atomic_int failed;      /* enum ebb_status */
};

/* A ticket wait that was enqueued. */
struct ticket_wait {
    struct cuda_ticket *ticket;
    uint64_t value;
    double deadline, seconds; /* deadline 0: its clock runs from the sync that finds it */
    enum ebb_queue queue;
};

/* The host slab on its way to being pinned. */
struct slab {
    void *start;
    size_t bytes; /* of the mapping */
    pthread_t thread;
    bool running;
    bool pinned;
    cudaError_t refused;
};

typedef CUresult(CUDAAPI *wait_value_fn)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

struct cuda_device {
    struct ebb_device base;
    int ordinal;
    cudaStream_t stream[EBB_QUEUE_COUNT];
    cudaEvent_t *event;
    bool *recorded;
    int delay_us[EBB_QUEUE_COUNT];
    uint64_t delay_key[EBB_QUEUE_COUNT], commands[EBB_QUEUE_COUNT];
    enum ebb_status failed; /* the first failure since the last sync */
    struct slab slab;
    int64_t bytes_out, bytes_in;
    double stall_seconds;
    struct stall stall[STALLS]; /* a ring */
    int64_t stall_put, stall_done;
    struct ticket_wait wait[WAITS];
    int wait_count;
    wait_value_fn wait_value;
};

static struct cuda_device *cuda_of(struct ebb_device *device)
{
    return (struct cuda_device *)device;
}

/* ---- failures -------------------------------------------------------------------------------- */

static enum ebb_status cuda_failed(struct ebb_ctx *ctx, cudaError_t error, const char *what)
{
    return EBB_FAIL(ctx, error == cudaErrorMemoryAllocation ? EBB_NO_MEMORY : EBB_DEVICE,
                    "the GPU failed at %s: %s (%s)", what, cudaGetErrorString(error),
                    cudaGetErrorName(error));
}

static enum ebb_status check(struct ebb_ctx *ctx, cudaError_t error, const char *what)
{
    return error == cudaSuccess ? EBB_OK : cuda_failed(ctx, error, what);
}

/* A failure of a command: remembered until the next sync. */
static void remember(struct cuda_device *own, enum ebb_status status)
{
    if (own->failed == EBB_OK) own->failed = status;
}

static void remember_error(struct cuda_device *own, cudaError_t error, const char *what)
{
    if (error != cudaSuccess) remember(own, cuda_failed(own->base.ctx, error, what));
}

/* ---- is it there ----------------------------------------------------------------------------- */

static bool cuda_is_there(char *why, size_t why_bytes)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return true;
    if (why != NULL && error == cudaErrorInsufficientDriver)
        snprintf(why, why_bytes,
                 "there is no NVIDIA driver (libcuda.so.1), or it is older than CUDA %d.%d",
                 CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    else if (why != NULL && (error == cudaErrorNoDevice || error == cudaSuccess))
        snprintf(why, why_bytes, "the NVIDIA driver sees no GPU");
    else if (why != NULL)
        snprintf(why, why_bytes, "the GPU does not answer: %s", cudaGetErrorString(error));
    return false;
}

static int64_t cuda_bytes_total(void)
{
    size_t available = 0, total = 0;
    if (!cuda_is_there(NULL, 0) || cudaMemGetInfo(&available, &total) != cudaSuccess) return 0;
    return (int64_t)total;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static enum ebb_status reserve_device(struct cuda_device *own, int64_t bytes)
{
    void *base = NULL;
    size_t available = 0, total = 0;
    /* Zero bytes are a place too. */
    size_t wanted = (size_t)(bytes > 0 ? bytes : 1);
    (void)cudaMemGetInfo(&available, &total);
    cudaError_t error = cudaMalloc(&base, wanted);
    if (error == cudaErrorMemoryAllocation) {
        char size[32], left[32], all[32];
        (void)cudaGetLastError();
        return EBB_FAIL(own->base.ctx, EBB_NO_MEMORY,
                        "cannot reserve %s of device memory: %s of %s are free on %s\n"
                        "lower memory_budget, or end what else runs on this GPU",
                        ebb_text_bytes(bytes, size, sizeof size),
                        ebb_text_bytes((int64_t)available, left, sizeof left),
                        ebb_text_bytes((int64_t)total, all, sizeof all), own->base.name);
    }
    EBB_TRY(check(own->base.ctx, error, "cudaMalloc"));
    own->base.space[EBB_SPACE_DEVICE] =
        (struct ebb_device_space){.base = (char *)base, .bytes = bytes};
    EBB_TRY(check(own->base.ctx, cudaMemset(base, 0, wanted), "cudaMemset"));
    return check(own->base.ctx, cudaStreamSynchronize(NULL), "clearing device memory");
}

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

static void touch_slab(const struct slab *slab)
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

static void *pin_slab(void *user)
{
    struct cuda_device *own = (struct cuda_device *)user;
    struct slab *slab = &own->slab;
    (void)cudaSetDevice(own->ordinal);
    touch_slab(slab);
    slab->refused = cudaHostRegister(slab->start, slab->bytes, cudaHostRegisterPortable);
    slab->pinned = slab->refused == cudaSuccess;
    if (!slab->pinned) (void)cudaGetLastError();
    return NULL;
}

/* The slab is ready to be copied to and from when this returns. */
static void join_slab(struct cuda_device *own)
{
    char size[32];
    if (!own->slab.running) return;
    pthread_join(own->slab.thread, NULL);
    own->slab.running = false;
    if (own->slab.pinned) return;
    ebb_warn_once(own->base.ctx, "device.pageable",
                  "the system refuses to pin %s of host memory (%s): it stays pageable and copies "
                  "to and from it are several times slower\nraise the limit on locked memory, or "
                  "lower host_memory_budget",
                  ebb_text_bytes((int64_t)own->slab.bytes, size, sizeof size),
                  cudaGetErrorString(own->slab.refused));
}

static enum ebb_status reserve_host(struct cuda_device *own, int64_t bytes)
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
    (void)madvise(own->slab.start, usable, MADV_HUGEPAGE);
    own->base.space[EBB_SPACE_HOST] =
        (struct ebb_device_space){.base = (char *)own->slab.start, .bytes = bytes};
    if (bytes == 0) return EBB_OK;
    int error = pthread_create(&own->slab.thread, NULL, pin_slab, own);
    own->slab.running = error == 0;
    if (error != 0) pin_slab(own);
    return EBB_OK;
}

static enum ebb_status cuda_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes)
{
    return space == EBB_SPACE_DEVICE ? reserve_device(cuda_of(device), bytes)
                                     : reserve_host(cuda_of(device), bytes);
}

static int64_t cuda_bytes_resident(const struct ebb_device *device, enum ebb_space space)
{
    return device->space[space].bytes; /* all of it is backed from the start */
}

static bool touches_host(const struct cuda_device *own, const void *at)
{
    return ebb_device_space_of(&own->base, at) == EBB_SPACE_HOST;
}

static enum ebb_status cuda_copy_rows(struct ebb_device *device, void *to, int64_t to_stride,
                                      const void *from, int64_t from_stride, int64_t row_bytes,
                                      int64_t rows)
{
    struct cuda_device *own = cuda_of(device);
    if (touches_host(own, to) || touches_host(own, from)) join_slab(own);
    cudaError_t error = rows == 1 || (to_stride == row_bytes && from_stride == row_bytes)
                            ? cudaMemcpy(to, from, (size_t)(row_bytes * rows), cudaMemcpyDefault)
                            : cudaMemcpy2D(to, (size_t)to_stride, from, (size_t)from_stride,
                                           (size_t)row_bytes, (size_t)rows, cudaMemcpyDefault);
    /* A copy inside the device returns before it is done. */
    if (error == cudaSuccess) error = cudaStreamSynchronize(NULL);
    return check(device->ctx, error, "a copy by the host");
}

static enum ebb_status cuda_fill(struct ebb_device *device, void *to, int byte, int64_t bytes)
{
    struct cuda_device *own = cuda_of(device);
    if (touches_host(own, to)) {
        join_slab(own);
        memset(to, byte, (size_t)bytes);
        return EBB_OK;
    }
    EBB_TRY(check(device->ctx, cudaMemset(to, byte, (size_t)bytes), "cudaMemset"));
    return check(device->ctx, cudaStreamSynchronize(NULL), "filling device memory");
}

static enum ebb_status cuda_block_create(struct ebb_device *device, int64_t bytes, bool shared,
                                         void **block)
{
    /* Shared memory is the host's, pinned: the GPU reaches it over the bus under the same
     * address. */
    cudaError_t error = shared ? cudaHostAlloc(block, (size_t)bytes, cudaHostAllocMapped)
                               : cudaMalloc(block, (size_t)bytes);
    EBB_TRY(check(device->ctx, error, "the allocation of a block"));
    EBB_TRY(check(device->ctx, cudaMemset(*block, 0, (size_t)bytes), "cudaMemset"));
    return check(device->ctx, cudaStreamSynchronize(NULL), "clearing a block");
}

static void cuda_block_free(struct ebb_device *device, void *block)
{
    struct cudaPointerAttributes facts;
    (void)device;
    if (cudaPointerGetAttributes(&facts, block) == cudaSuccess && facts.type == cudaMemoryTypeHost)
        (void)cudaFreeHost(block);
    else
        (void)cudaFree(block);
}

/* ---- queues ---------------------------------------------------------------------------------- */

/* Torture: something before each command. */
static void delay(struct cuda_device *own, enum ebb_queue queue)
{
    if (own->delay_us[queue] <= 0) return;
    int us = ebb_device_delay(own->delay_key[queue], own->commands[queue]++, own->delay_us[queue]);
    remember_error(own, ebb_cuda_delay(own->stream[queue], us), "a delay");
}

static enum ebb_status cuda_launch(struct ebb_device *device, enum ebb_queue queue, ebb_queue_fn fn,
                                   const void *args)
{
    struct cuda_device *own = cuda_of(device);
    struct ebb_queue_env env = {.device = device,
                                .stream = own->stream[queue],
                                .threads = device->threads};
    if (own->failed != EBB_OK) return EBB_OK;
    delay(own, queue);
    enum ebb_status status = fn(&env, args);
    if (status != EBB_OK) remember(own, status);
    return EBB_OK;
}

static enum ebb_status cuda_copy(struct ebb_device *device, enum ebb_queue queue, void *to,
                                 const void *from, int64_t bytes)
{
    struct cuda_device *own = cuda_of(device);
    if (own->failed != EBB_OK) return EBB_OK;
    enum ebb_space a = ebb_device_space_of(device, from), b = ebb_device_space_of(device, to);
    if (a == EBB_SPACE_HOST || b == EBB_SPACE_HOST) join_slab(own);
    delay(own, queue);
    remember_error(own,
                   cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, own->stream[queue]),
                   "a copy");
    if (a == EBB_SPACE_DEVICE && b == EBB_SPACE_HOST) own->bytes_out += bytes;
    if (a == EBB_SPACE_HOST && b == EBB_SPACE_DEVICE) own->bytes_in += bytes;
    return EBB_OK;
}

static enum ebb_status cuda_events(struct ebb_device *device, int count)
{
    struct cuda_device *own = cuda_of(device);
    cudaEvent_t *event = ebb_mem_realloc(device->ctx, own->event, (size_t)count * sizeof *event);
    if (event == NULL) return EBB_NO_MEMORY;
    own->event = event;
    bool *recorded = ebb_mem_realloc(device->ctx, own->recorded, (size_t)count * sizeof *recorded);
    if (recorded == NULL) return EBB_NO_MEMORY;
    own->recorded = recorded;
    for (int i = device->events; i < count; i++) {
        EBB_TRY(check(device->ctx, cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming),
                      "cudaEventCreate"));
        recorded[i] = false;
        device->events = i + 1;
    }
    return EBB_OK;
}

static enum ebb_status cuda_record(struct ebb_device *device, enum ebb_queue queue, int event)
{
    struct cuda_device *own = cuda_of(device);
    remember_error(own, cudaEventRecord(own->event[event], own->stream[queue]), "cudaEventRecord");
    own->recorded[event] = true;
    return EBB_OK;
}

/* Adds up the oldest stall; its events are used again. */
static void settle_stall(struct cuda_device *own)
{
    struct stall *stall = &own->stall[own->stall_done++ % STALLS];
    float milliseconds = 0;
    if (cudaEventSynchronize(stall->after) == cudaSuccess &&
        cudaEventElapsedTime(&milliseconds, stall->before, stall->after) == cudaSuccess)
        own->stall_seconds += (double)milliseconds * 1e-3;
}

/* The two ends of a wait of COMPUTE. */
static struct stall *next_stall(struct cuda_device *own)
{
    if (own->stall_put - own->stall_done == STALLS) settle_stall(own);
    return &own->stall[own->stall_put % STALLS];
}

static enum ebb_status cuda_wait(struct ebb_device *device, enum ebb_queue queue, int event)
{
    struct cuda_device *own = cuda_of(device);
    if (!own->recorded[event]) return EBB_OK;
    /* What has happened already is no wait. */
    bool timed = queue == EBB_QUEUE_COMPUTE && cudaEventQuery(own->event[event]) != cudaSuccess;
    struct stall *stall = timed ? next_stall(own) : NULL;
    if (timed) remember_error(own, cudaEventRecord(stall->before, own->stream[queue]), "a stall");
    remember_error(own, cudaStreamWaitEvent(own->stream[queue], own->event[event], 0),
                   "cudaStreamWaitEvent");
    if (!timed) return EBB_OK;
    remember_error(own, cudaEventRecord(stall->after, own->stream[queue]), "a stall");
    own->stall_put++;
    return EBB_OK;
}

/* ---- tickets --------------------------------------------------------------------------------- */

static struct cuda_ticket *ticket_of(struct ebb_ticket *ticket)
{
    return (struct cuda_ticket *)ticket;
}

static enum ebb_status cuda_ticket_create(struct ebb_device *device, struct ebb_ticket **ticket)
{
    struct cuda_ticket *own = ebb_mem_alloc(device->ctx, sizeof *own);
    void *word = NULL, *at = NULL;
    if (own == NULL) return EBB_NO_MEMORY;
    cudaError_t error =
        cudaHostAlloc(&word, sizeof(uint64_t), cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&at, word, 0);
    if (error != cudaSuccess) {
        if (word != NULL) (void)cudaFreeHost(word);
        ebb_mem_free(device->ctx, own);
        return cuda_failed(device->ctx, error, "a ticket's word");
    }
    own->base.device = device;
    own->word = (_Atomic uint64_t *)word;
    own->at = (CUdeviceptr)at;
    atomic_init(own->word, 0);
    atomic_init(&own->failed, EBB_OK);
    *ticket = &own->base;
    return EBB_OK;
}

static void cuda_ticket_free(struct ebb_ticket *ticket)
{
    struct cuda_ticket *own = ticket_of(ticket);
    (void)cudaFreeHost((void *)own->word);
    ebb_mem_free(ticket->device->ctx, own);
}

static void raise_word(struct cuda_ticket *own, uint64_t value)
{
    uint64_t seen = atomic_load(own->word);
    while (seen < value && !atomic_compare_exchange_weak(own->word, &seen, value)) {
    }
}

static void cuda_ticket_signal(struct ebb_ticket *ticket, uint64_t value)
{
    raise_word(ticket_of(ticket), value);
}

static void cuda_ticket_fail(struct ebb_ticket *ticket, enum ebb_status status)
{
    struct cuda_ticket *own = ticket_of(ticket);
    int none = EBB_OK;
    (void)atomic_compare_exchange_strong(&own->failed, &none, (int)status);
    raise_word(own, FAILED_VALUE);
}

static enum ebb_status wait_over(struct cuda_ticket *ticket, uint64_t value, double seconds,
                                 const char *who)
{
    return EBB_FAIL(ticket->base.device->ctx, EBB_DEVICE,
                    "%s waited %g s for a ticket's value %" PRIu64 ", it stands at %" PRIu64, who,
                    seconds, value, (uint64_t)atomic_load(ticket->word));
}

static enum ebb_status ticket_failure(struct cuda_ticket *ticket)
{
    enum ebb_status status = (enum ebb_status)atomic_load(&ticket->failed);
    if (status == EBB_OK) return EBB_OK;
    return EBB_FAIL(ticket->base.device->ctx, status, "the signaller of a ticket has failed");
}

static void nap(void)
{
    struct timespec time = {.tv_nsec = 50000};
    nanosleep(&time, NULL);
}

static enum ebb_status cuda_ticket_wait(struct ebb_ticket *ticket, uint64_t value, double seconds)
{
    struct cuda_ticket *own = ticket_of(ticket);
    double deadline = ebb_clock_seconds() + seconds;
    while (atomic_load(own->word) < value) {
        if (ebb_clock_seconds() > deadline) return wait_over(own, value, seconds, "the host");
        nap();
    }
    return ticket_failure(own);
}

/* A queue's signal on its way. */
struct signal {
    struct cuda_ticket *ticket;
    struct ebb_ctx *ctx;
    uint64_t value;
};

static void CUDART_CB run_signal(void *user)
{
    struct signal *signal = (struct signal *)user;
    raise_word(signal->ticket, signal->value);
    ebb_mem_free(signal->ctx, signal);
}

static enum ebb_status cuda_queue_ticket_signal(struct ebb_device *device, enum ebb_queue queue,
                                                struct ebb_ticket *ticket, uint64_t value)
{
    struct cuda_device *own = cuda_of(device);
    if (own->failed != EBB_OK) { /* nobody may believe in work that is not done */
        cuda_ticket_fail(ticket, own->failed);
        return EBB_OK;
    }
    struct signal *signal = ebb_mem_alloc(device->ctx, sizeof *signal);
    if (signal == NULL) return EBB_NO_MEMORY;
    *signal = (struct signal){ticket_of(ticket), device->ctx, value};
    delay(own, queue);
    cudaError_t error = cudaLaunchHostFunc(own->stream[queue], run_signal, signal);
    if (error != cudaSuccess) ebb_mem_free(device->ctx, signal);
    remember_error(own, error, "a ticket's signal");
    return EBB_OK;
}

static enum ebb_status cuda_queue_ticket_wait(struct ebb_device *device, enum ebb_queue queue,
                                              struct ebb_ticket *ticket, uint64_t value,
                                              double seconds)
{
    struct cuda_device *own = cuda_of(device);
    if (own->failed != EBB_OK) return EBB_OK;
    if (own->wait_count == WAITS) EBB_TRY(ebb_device_sync(device));
    delay(own, queue);
    struct stall *stall = queue == EBB_QUEUE_COMPUTE ? next_stall(own) : NULL;
    if (stall) remember_error(own, cudaEventRecord(stall->before, own->stream[queue]), "a stall");
    CUresult result = own->wait_value((CUstream)own->stream[queue], ticket_of(ticket)->at, value,
                                      CU_STREAM_WAIT_VALUE_GEQ);
    if (result != CUDA_SUCCESS)
        remember(own, EBB_FAIL(device->ctx, EBB_DEVICE,
                               "the GPU failed at a ticket's wait: driver error %d", (int)result));
    if (stall) remember_error(own, cudaEventRecord(stall->after, own->stream[queue]), "a stall");
    if (stall) own->stall_put++;
    own->wait[own->wait_count++] =
        (struct ticket_wait){ticket_of(ticket), value, 0, seconds, queue};
    return EBB_OK;
}

/* Lets go of waits whose time is up. The clock of a wait runs from the sync on that finds it. */
static void watch_tickets(struct cuda_device *own)
{
    double now = ebb_clock_seconds();
    for (int i = 0; i < own->wait_count; i++) {
        struct ticket_wait *wait = &own->wait[i];
        if (atomic_load(wait->ticket->word) >= wait->value) continue;
        if (wait->deadline == 0) wait->deadline = now + wait->seconds;
        if (now <= wait->deadline) continue;
        enum ebb_status status =
            wait_over(wait->ticket, wait->value, wait->seconds, ebb_queue_name(wait->queue));
        remember(own, status);
        cuda_ticket_fail(&wait->ticket->base, status);
    }
}

static void settle_tickets(struct cuda_device *own)
{
    for (int i = 0; i < own->wait_count; i++) {
        enum ebb_status status = ticket_failure(own->wait[i].ticket);
        if (status != EBB_OK) remember(own, status);
    }
    own->wait_count = 0;
}

/* ---- sync ------------------------------------------------------------------------------------ */

static cudaError_t wait_stream(struct cuda_device *own, cudaStream_t stream)
{
    if (own->wait_count == 0) return cudaStreamSynchronize(stream);
    for (;;) {
        cudaError_t error = cudaStreamQuery(stream);
        if (error != cudaErrorNotReady) return error;
        watch_tickets(own);
        nap();
    }
}

static enum ebb_status cuda_sync(struct ebb_device *device)
{
    struct cuda_device *own = cuda_of(device);
    join_slab(own);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        remember_error(own, wait_stream(own, own->stream[i]), "a queue's work");
    settle_tickets(own);
    while (own->stall_done < own->stall_put) settle_stall(own);
    enum ebb_status status = own->failed;
    own->failed = EBB_OK;
    return status;
}

static void cuda_counters(const struct ebb_device *device, struct ebb_device_counters *counters)
{
    const struct cuda_device *own = (const struct cuda_device *)device;
    memset(counters, 0, sizeof *counters);
    counters->bytes_out = own->bytes_out;
    counters->bytes_in = own->bytes_in;
    counters->stall_seconds = own->stall_seconds;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void cuda_free(struct ebb_device *device)
{
    struct cuda_device *own = cuda_of(device);
    (void)cuda_sync(device);
    for (int i = 0; i < STALLS; i++) {
        if (own->stall[i].before != NULL) (void)cudaEventDestroy(own->stall[i].before);
        if (own->stall[i].after != NULL) (void)cudaEventDestroy(own->stall[i].after);
    }
    for (int i = 0; i < device->events; i++) (void)cudaEventDestroy(own->event[i]);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        if (own->stream[i] != NULL) (void)cudaStreamDestroy(own->stream[i]);
    if (own->slab.pinned) (void)cudaHostUnregister(own->slab.start);
    if (own->slab.start != NULL) munmap(own->slab.start, own->slab.bytes);
    if (device->space[EBB_SPACE_DEVICE].base != NULL)
        (void)cudaFree(device->space[EBB_SPACE_DEVICE].base);
    ebb_mem_free(device->ctx, own->recorded);
    ebb_mem_free(device->ctx, own->event);
    ebb_mem_free(device->ctx, own);
}

static enum ebb_status describe(struct cuda_device *own)
{
    struct cudaDeviceProp facts;
    struct ebb_ctx *ctx = own->base.ctx;
    int driver = 0;
    EBB_TRY(check(ctx, cudaGetDevice(&own->ordinal), "cudaGetDevice"));
    EBB_TRY(check(ctx, cudaGetDeviceProperties(&facts, own->ordinal), "cudaGetDeviceProperties"));
    EBB_TRY(check(ctx, cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
    snprintf(own->base.name, sizeof own->base.name, "%.64s, compute capability %d.%d, CUDA %d.%d",
             facts.name, facts.major, facts.minor, driver / 1000, driver % 1000 / 10);
    if (facts.major * 10 + facts.minor < CAPABILITY_LOWEST)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: Ebb needs compute capability 8.0 or higher (bfloat16), which began "
                        "with the A100 and the RTX 30 series\nuse device: cpu, or another GPU",
                        own->base.name);
    if (ebb_cuda_has_code() != cudaSuccess) {
        (void)cudaGetLastError();
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: this build has no code for this GPU\nbuild with "
                        "-DEBB_CUDA_ARCHITECTURES=%d, or with the preset 'cuda-release' for all",
                        own->base.name, facts.major * 10 + facts.minor);
    }
    return EBB_OK;
}

static enum ebb_status find_driver_call(struct cuda_device *own)
{
    enum cudaDriverEntryPointQueryResult found;
    void *call = NULL;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuStreamWaitValue64", &call, 12000,
                                                         cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || call == NULL)
        return EBB_FAIL(own->base.ctx, EBB_UNSUPPORTED,
                        "%s: the driver has no cuStreamWaitValue64; a newer one is wanted",
                        own->base.name);
    memcpy(&own->wait_value, &call, sizeof call);
    return EBB_OK;
}

static enum ebb_status start(struct cuda_device *own, const struct ebb_device_options *options)
{
    struct ebb_ctx *ctx = own->base.ctx;
    EBB_TRY(describe(own));
    EBB_TRY(find_driver_call(own));
    for (int i = 0; i < EBB_QUEUE_COUNT; i++) {
        EBB_TRY(check(ctx, cudaStreamCreateWithFlags(&own->stream[i], cudaStreamNonBlocking),
                      "cudaStreamCreate"));
        own->delay_us[i] =
            options->delay_us[i] > 0 ? options->delay_us[i] : ebb_device_default_delay();
        own->delay_key[i] = ebb_random_key(options->delay_seed, 0, 0, 0, (uint32_t)i);
    }
    for (int i = 0; i < STALLS; i++) {
        EBB_TRY(check(ctx, cudaEventCreate(&own->stall[i].before), "cudaEventCreate"));
        EBB_TRY(check(ctx, cudaEventCreate(&own->stall[i].after), "cudaEventCreate"));
    }
    return EBB_OK;
}

static enum ebb_status cuda_create(struct ebb_ctx *ctx, const struct ebb_device_options *options,
                                   struct ebb_device **device)
{
    char why[160];
    if (!cuda_is_there(why, sizeof why))
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "device 'cuda' was asked for, but %s\nuse device: cpu", why);
    struct cuda_device *own = ebb_mem_alloc(ctx, sizeof *own);
    if (own == NULL) return EBB_NO_MEMORY;
    own->base.backend = ebb_device_backend_cuda();
    own->base.ctx = ctx;
    own->base.threads = options->threads > 0 ? options->threads : ebb_cpu_count();
    enum ebb_status status = start(own, options);
    if (status != EBB_OK) {
        cuda_free(&own->base);
        return status;
    }
    *device = &own->base;
    return EBB_OK;
}

const struct ebb_device_backend *ebb_device_backend_cuda(void)
{
    static const struct ebb_device_backend backend = {
        .is_there = cuda_is_there,
        .bytes_total = cuda_bytes_total,
        .create = cuda_create,
        .free = cuda_free,
        .reserve = cuda_reserve,
        .bytes_resident = cuda_bytes_resident,
        .copy_rows = cuda_copy_rows,
        .fill = cuda_fill,
        .block_create = cuda_block_create,
        .block_free = cuda_block_free,
        .launch = cuda_launch,
        .copy = cuda_copy,
        .events = cuda_events,
        .record = cuda_record,
        .wait = cuda_wait,
        .sync = cuda_sync,
        .counters = cuda_counters,
        .ticket_create = cuda_ticket_create,
        .ticket_free = cuda_ticket_free,
        .ticket_signal = cuda_ticket_signal,
        .ticket_fail = cuda_ticket_fail,
        .ticket_wait = cuda_ticket_wait,
        .queue_ticket_signal = cuda_queue_ticket_signal,
        .queue_ticket_wait = cuda_queue_ticket_wait,
    };
    return &backend;
}
