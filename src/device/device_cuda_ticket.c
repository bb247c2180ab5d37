/* Tickets of the CUDA backend: words in pinned memory.
 *
 * Queues wait for them by stream memory operations; they are written by the CPU alone (a queue's
 * signal is a host function), since a GPU's writes and the CPU's could not be ordered over PCIe. A
 * ticket that fails gets a value above all others, which releases all that wait; the failure shows
 * at the next sync. So does a wait whose time is up.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"

/* Above every ticket's value, and not so far above that a GPU, which compares differences as signed
 * numbers, takes it for less. */
static const uint64_t FAILED_VALUE = UINT64_C(1) << 62;

struct ebb_cuda_ticket {
    struct ebb_ticket base;
    _Atomic uint64_t *word; /* pinned */
    CUdeviceptr at;         /* the same for the GPU */
    atomic_int failed;      /* enum ebb_status */
};

static struct ebb_cuda_ticket *ticket_of(struct ebb_ticket *ticket)
{
    return (struct ebb_cuda_ticket *)ticket;
}

enum ebb_status ebb_cuda_ticket_create(struct ebb_device *device, struct ebb_ticket **ticket)
{
    struct ebb_cuda_ticket *own = ebb_mem_alloc(device->ctx, sizeof *own);
    void *word = NULL, *at = NULL;
    if (own == NULL) return EBB_NO_MEMORY;
    cudaError_t error =
        cudaHostAlloc(&word, sizeof(uint64_t), cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&at, word, 0);
    if (error != cudaSuccess) {
        if (word != NULL) (void)cudaFreeHost(word);
        ebb_mem_free(device->ctx, own);
        return ebb_cuda_check(device->ctx, error, "a ticket's word");
    }
    own->base.device = device;
    own->word = (_Atomic uint64_t *)word;
    own->at = (CUdeviceptr)at;
    atomic_init(own->word, 0);
    atomic_init(&own->failed, EBB_OK);
    *ticket = &own->base;
    return EBB_OK;
}

void ebb_cuda_ticket_free(struct ebb_ticket *ticket)
{
    struct ebb_cuda_ticket *own = ticket_of(ticket);
    (void)cudaFreeHost((void *)own->word);
    ebb_mem_free(ticket->device->ctx, own);
}

static void raise_word(struct ebb_cuda_ticket *own, uint64_t value)
{
    uint64_t seen = atomic_load(own->word);
    while (seen < value && !atomic_compare_exchange_weak(own->word, &seen, value)) {
    }
}

void ebb_cuda_ticket_signal(struct ebb_ticket *ticket, uint64_t value)
{
    raise_word(ticket_of(ticket), value);
}

void ebb_cuda_ticket_fail(struct ebb_ticket *ticket, enum ebb_status status)
{
    struct ebb_cuda_ticket *own = ticket_of(ticket);
    int none = EBB_OK;
    (void)atomic_compare_exchange_strong(&own->failed, &none, (int)status);
    raise_word(own, FAILED_VALUE);
}

static enum ebb_status wait_over(struct ebb_cuda_ticket *ticket, uint64_t value, double seconds,
                                 const char *who)
{
    return EBB_FAIL(ticket->base.device->ctx, EBB_DEVICE,
                    "%s waited %g s for a ticket's value %" PRIu64 ", it stands at %" PRIu64, who,
                    seconds, value, (uint64_t)atomic_load(ticket->word));
}

static enum ebb_status ticket_failure(struct ebb_cuda_ticket *ticket)
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

enum ebb_status ebb_cuda_ticket_wait(struct ebb_ticket *ticket, uint64_t value, double seconds)
{
    struct ebb_cuda_ticket *own = ticket_of(ticket);
    double deadline = ebb_clock_seconds() + seconds;
    while (atomic_load(own->word) < value) {
        if (ebb_clock_seconds() > deadline) return wait_over(own, value, seconds, "the host");
        nap();
    }
    return ticket_failure(own);
}

/* A queue's signal on its way. */
struct signal {
    struct ebb_cuda_ticket *ticket;
    struct ebb_ctx *ctx;
    uint64_t value;
};

static void CUDART_CB run_signal(void *user)
{
    struct signal *signal = (struct signal *)user;
    raise_word(signal->ticket, signal->value);
    ebb_mem_free(signal->ctx, signal);
}

enum ebb_status ebb_cuda_queue_ticket_signal(struct ebb_device *device, enum ebb_queue queue,
                                             struct ebb_ticket *ticket, uint64_t value)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (own->failed != EBB_OK) { /* nobody may believe in work that is not done */
        ebb_cuda_ticket_fail(ticket, own->failed);
        return EBB_OK;
    }
    struct signal *signal = ebb_mem_alloc(device->ctx, sizeof *signal);
    if (signal == NULL) return EBB_NO_MEMORY;
    *signal = (struct signal){ticket_of(ticket), device->ctx, value};
    ebb_cuda_delay(own, queue);
    cudaError_t error = cudaLaunchHostFunc(own->stream[queue], run_signal, signal);
    if (error != cudaSuccess) ebb_mem_free(device->ctx, signal);
    ebb_cuda_remember_error(own, error, "a ticket's signal");
    return EBB_OK;
}

enum ebb_status ebb_cuda_queue_ticket_wait(struct ebb_device *device, enum ebb_queue queue,
                                           struct ebb_ticket *ticket, uint64_t value,
                                           double seconds)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (own->failed != EBB_OK) return EBB_OK;
    if (own->wait_count == EBB_CUDA_WAITS) EBB_TRY(ebb_device_sync(device));
    ebb_cuda_delay(own, queue);
    struct ebb_cuda_stall *stall = ebb_cuda_stall_begin(own, queue);
    CUresult result = own->wait_value((CUstream)own->stream[queue], ticket_of(ticket)->at, value,
                                      CU_STREAM_WAIT_VALUE_GEQ);
    if (result != CUDA_SUCCESS)
        ebb_cuda_remember(own, EBB_FAIL(device->ctx, EBB_DEVICE,
                                        "the GPU failed at a ticket's wait: driver error %d",
                                        (int)result));
    ebb_cuda_stall_end(own, queue, stall);
    own->wait[own->wait_count++] =
        (struct ebb_cuda_wait){ticket_of(ticket), value, 0, seconds, queue};
    return EBB_OK;
}

/* Lets go of waits whose time is up. The clock of a wait runs from the sync on that finds it. */
static void watch_tickets(struct ebb_cuda_device *own)
{
    double now = ebb_clock_seconds();
    for (int i = 0; i < own->wait_count; i++) {
        struct ebb_cuda_wait *wait = &own->wait[i];
        if (atomic_load(wait->ticket->word) >= wait->value) continue;
        if (wait->deadline == 0) wait->deadline = now + wait->seconds;
        if (now <= wait->deadline) continue;
        enum ebb_status status =
            wait_over(wait->ticket, wait->value, wait->seconds, ebb_queue_name(wait->queue));
        ebb_cuda_remember(own, status);
        ebb_cuda_ticket_fail(&wait->ticket->base, status);
    }
}

void ebb_cuda_settle_tickets(struct ebb_cuda_device *own)
{
    for (int i = 0; i < own->wait_count; i++) {
        enum ebb_status status = ticket_failure(own->wait[i].ticket);
        if (status != EBB_OK) ebb_cuda_remember(own, status);
    }
    own->wait_count = 0;
}

cudaError_t ebb_cuda_wait_stream(struct ebb_cuda_device *own, cudaStream_t stream)
{
    if (own->wait_count == 0) return cudaStreamSynchronize(stream);
    for (;;) {
        cudaError_t error = cudaStreamQuery(stream);
        if (error != cudaErrorNotReady) return error;
        watch_tickets(own);
        nap();
    }
}
