/* Tickets of the CUDA backend: words in pinned memory.
 *
 * Queues wait for them by stream memory operations; they are written by the CPU alone (a queue's
 * signal is a host function), since a GPU's writes and the CPU's could not be ordered over PCIe. A
 * ticket that fails gets a value above all others, which releases all that wait; the failure shows
 * at the next sync. So does a wait whose time is up.
 *
 * Host functions of a device that is lost may never run, so signals are listed until they have:
 * what is still owed then makes its ticket fail. Either the host function or that failure has the
 * signal, never both.
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

enum signal_state { SIGNAL_OWED, SIGNAL_RUN, SIGNAL_GIVEN_UP };

/* A queue's signal on its way. */
struct ebb_cuda_signal {
    struct ebb_cuda_ticket *ticket;
    uint64_t value;
    atomic_int state;
    struct ebb_cuda_signal *next;
};

static void CUDART_CB run_signal(void *user)
{
    struct ebb_cuda_signal *signal = (struct ebb_cuda_signal *)user;
    struct ebb_cuda_ticket *ticket = signal->ticket;
    uint64_t value = signal->value;
    int owed = SIGNAL_OWED;
    /* The signal may be freed, but not the ticket: who frees it has synced, which waits for the end
     * of this function. */
    if (atomic_compare_exchange_strong(&signal->state, &owed, SIGNAL_RUN))
        raise_word(ticket, value);
}

/* Frees the oldest signals, as far as they have run. */
static void free_run_signals(struct ebb_cuda_device *own)
{
    struct ebb_cuda_signal *signal = own->signals;
    while (signal != NULL && atomic_load(&signal->state) == SIGNAL_RUN) {
        own->signals = signal->next;
        ebb_mem_free(own->base.ctx, signal);
        signal = own->signals;
    }
    if (own->signals == NULL) own->last_signal = NULL;
}

/* Of a device that is lost: the list stays until the streams are gone. */
static void give_up_signals(struct ebb_cuda_device *own)
{
    for (struct ebb_cuda_signal *signal = own->signals; signal != NULL; signal = signal->next) {
        int owed = SIGNAL_OWED;
        if (atomic_compare_exchange_strong(&signal->state, &owed, SIGNAL_GIVEN_UP))
            ebb_cuda_ticket_fail(&signal->ticket->base, EBB_DEVICE);
    }
}

void ebb_cuda_free_signals(struct ebb_cuda_device *own)
{
    while (own->signals != NULL) {
        struct ebb_cuda_signal *next = own->signals->next;
        ebb_mem_free(own->base.ctx, own->signals);
        own->signals = next;
    }
    own->last_signal = NULL;
}

enum ebb_status ebb_cuda_queue_ticket_signal(struct ebb_device *device, enum ebb_queue queue,
                                             struct ebb_ticket *ticket, uint64_t value)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (own->failed != EBB_OK) { /* nobody may believe in work that is not done */
        ebb_cuda_ticket_fail(ticket, own->failed);
        return EBB_OK;
    }
    free_run_signals(own);
    struct ebb_cuda_signal *signal = ebb_mem_alloc(device->ctx, sizeof *signal);
    if (signal == NULL) {
        ebb_cuda_ticket_fail(ticket, EBB_NO_MEMORY);
        return EBB_NO_MEMORY;
    }
    signal->ticket = ticket_of(ticket);
    signal->value = value;
    atomic_init(&signal->state, SIGNAL_OWED);
    ebb_cuda_delay(own, queue);
    ebb_cuda_remember(own, ebb_cuda_wait_place(own, queue, queue, ebb_cuda_place(own, queue)));
    if (own->failed == EBB_OK)
        ebb_cuda_remember_error(own, cudaLaunchHostFunc(own->stream[queue], run_signal, signal),
                                "a ticket's signal");
    if (own->failed != EBB_OK) {
        ebb_mem_free(device->ctx, signal);
        ebb_cuda_ticket_fail(ticket, own->failed);
        return EBB_OK;
    }
    if (own->last_signal != NULL)
        own->last_signal->next = signal;
    else
        own->signals = signal;
    own->last_signal = signal;
    return EBB_OK;
}

/* Lets go of waits that are over, so that only a ring full of waits on their way is full. */
static void drop_waits_over(struct ebb_cuda_device *own)
{
    int kept = 0;
    for (int i = 0; i < own->wait_count; i++) {
        struct ebb_cuda_wait *wait = &own->wait[i];
        if (atomic_load(wait->ticket->word) < wait->value)
            own->wait[kept++] = *wait;
        else
            ebb_cuda_remember(own, ticket_failure(wait->ticket));
    }
    own->wait_count = kept;
}

enum ebb_status ebb_cuda_queue_ticket_wait(struct ebb_device *device, enum ebb_queue queue,
                                           struct ebb_ticket *ticket, uint64_t value,
                                           double seconds)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (own->failed != EBB_OK) return EBB_OK;
    if (own->wait_count == EBB_CUDA_WAITS) drop_waits_over(own);
    if (own->wait_count == EBB_CUDA_WAITS) EBB_TRY(ebb_device_sync(device));
    ebb_cuda_delay(own, queue);
    struct ebb_cuda_stall *stall = ebb_cuda_stall_begin(own, queue);
    ebb_cuda_remember(own, ebb_cuda_wait_word(own, queue, ticket_of(ticket)->at, value));
    ebb_cuda_stall_end(own, queue, stall);
    ebb_cuda_waited(own, queue);
    own->wait[own->wait_count++] =
        (struct ebb_cuda_wait){ticket_of(ticket), value, 0, seconds, queue};
    return EBB_OK;
}

void ebb_cuda_watch_tickets(struct ebb_cuda_device *own)
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
    for (int i = 0; i < own->wait_count; i++)
        ebb_cuda_remember(own, ticket_failure(own->wait[i].ticket));
    own->wait_count = 0;
    if (own->lost) give_up_signals(own);
    free_run_signals(own);
}

cudaError_t ebb_cuda_wait_stream(struct ebb_cuda_device *own, cudaStream_t stream)
{
    if (own->wait_count == 0) return cudaStreamSynchronize(stream);
    for (;;) {
        cudaError_t error = cudaStreamQuery(stream);
        if (error != cudaErrorNotReady) return error;
        (void)cudaGetLastError(); /* is no error of what follows */
        ebb_cuda_watch_tickets(own);
        nap();
    }
}
