/* What the files of the CUDA backend share: device_cuda.c (queues, sync, life),
 * device_cuda_memory.c (the arena, the host's hand on it), device_cuda_slab.c (the host space),
 * device_cuda_ticket.c, device_cuda_process.c (what the driver counts), device_cuda_kernels.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_CUDA_INT_H
#define EBB_DEVICE_CUDA_INT_H

#include <pthread.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "device/device_bounce.h"
#include "device/device_int.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EBB_CUDA_STALLS = 2048, /* pairs of timing events on their way */
    EBB_CUDA_WAITS = 1024   /* ticket waits on their way */
};

struct ebb_cuda_ticket;
struct ebb_cuda_signal;
struct ebb_cuda_nvml;

struct ebb_cuda_event {
    cudaEvent_t at;
    bool recorded;
    enum ebb_queue queue; /* that it was recorded on, */
    uint64_t place;       /* and how far that one's bounced pieces had come */
};

struct ebb_cuda_mark {
    cudaEvent_t at; /* with a time, unlike an event's */
    bool set;       /* since what the device holds now was made or last marked */
};

/* Around a wait of COMPUTE: what lies between the two is a stall. */
struct ebb_cuda_stall {
    cudaEvent_t before, after;
};

/* A ticket wait that was enqueued. */
struct ebb_cuda_wait {
    struct ebb_cuda_ticket *ticket;
    uint64_t value;
    double deadline, seconds; /* deadline 0: its clock runs from when it is first found */
    enum ebb_queue queue;
};

/* What a bounce knows of its queue. */
struct ebb_cuda_lane {
    struct ebb_cuda_device *device;
    enum ebb_queue queue;
};

/* The host space, on its way to being pinned or behind slots that are. */
struct ebb_cuda_slab {
    void *start;
    size_t bytes; /* of the mapping */
    pthread_t thread;
    bool running;
    /* Of it, from the start on: what is not pinned, and behind how much nothing is used. */
    size_t pageable, used;
    double seconds;      /* that all of it took to be backed and pinned */
    const char *refused; /* why less is pinned than was to be; NULL: it is as it was to be */
    char *ring;          /* pinned: the words and slots of all queues; NULL: none */
    char *ring_on_device;
    size_t slot_bytes;
    const char *ring_refused;
    struct ebb_cuda_lane lane[EBB_QUEUE_COUNT];
    struct ebb_bounce *bounce[EBB_QUEUE_COUNT]; /* NULL: copies go directly, or cannot go */
};

typedef CUresult(CUDAAPI *ebb_cuda_value_fn)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

struct ebb_cuda_device {
    struct ebb_device base;
    int ordinal;
    cudaStream_t stream[EBB_QUEUE_COUNT];
    struct ebb_cuda_event *event; /* [base.events] */
    struct ebb_cuda_mark *mark;   /* [base.marks] */
    int delay_us[EBB_QUEUE_COUNT];
    uint64_t delay_key[EBB_QUEUE_COUNT], commands[EBB_QUEUE_COUNT];
    enum ebb_status failed; /* the first failure since the last sync */
    bool lost;              /* for good: failed stays */
    bool pageable;          /* options of the same names */
    int64_t bounce_bytes;
    struct ebb_cuda_slab slab;
    int64_t bytes_out, bytes_in;
    double stall_seconds;
    struct ebb_cuda_stall stall[EBB_CUDA_STALLS]; /* a ring */
    int64_t stall_put, stall_done;
    struct ebb_cuda_wait wait[EBB_CUDA_WAITS];
    int wait_count;
    struct ebb_cuda_signal *signals; /* the queues' signals on their way, the oldest first */
    struct ebb_cuda_signal *last_signal;
    ebb_cuda_value_fn wait_value, write_value;
    struct ebb_cuda_nvml *nvml; /* NULL: not asked for yet, or there is none */
    bool no_nvml;               /* there is none */
    int64_t used_before;        /* of the whole GPU, before this process's context; -1: not known */
};

static inline struct ebb_cuda_device *ebb_cuda_of(struct ebb_device *device)
{
    return (struct ebb_cuda_device *)device;
}

/* ---- device_cuda.c --------------------------------------------------------------------------- */

/* EBB_OK for cudaSuccess; else the failure, told with what was being done. */
enum ebb_status ebb_cuda_check(struct ebb_ctx *ctx, cudaError_t error, const char *what);
/* A failure of a command: remembered until the next sync. EBB_OK is none. */
void ebb_cuda_remember(struct ebb_cuda_device *own, enum ebb_status status);
void ebb_cuda_remember_error(struct ebb_cuda_device *own, cudaError_t error, const char *what);
/* While enqueueing waits for room: is the device lost, or a ticket's time up? */
void ebb_cuda_look(struct ebb_cuda_device *own);
/* A failure of the host's hand: returned at once. */
enum ebb_status ebb_cuda_direct(struct ebb_cuda_device *own, cudaError_t error, const char *what);
/* The queue waits until the word is at least so high, or writes it. */
enum ebb_status ebb_cuda_wait_word(struct ebb_cuda_device *own, enum ebb_queue queue,
                                   CUdeviceptr word, uint64_t value);
enum ebb_status ebb_cuda_write_word(struct ebb_cuda_device *own, enum ebb_queue queue,
                                    CUdeviceptr word, uint64_t value);
/* Torture: something before each command. */
void ebb_cuda_delay(struct ebb_cuda_device *own, enum ebb_queue queue);
/* The two ends of a wait of COMPUTE; NULL on other queues. */
struct ebb_cuda_stall *ebb_cuda_stall_begin(struct ebb_cuda_device *own, enum ebb_queue queue);
void ebb_cuda_stall_end(struct ebb_cuda_device *own, enum ebb_queue queue,
                        const struct ebb_cuda_stall *stall);

/* ---- device_cuda_memory.c -------------------------------------------------------------------- */

enum ebb_status ebb_cuda_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes);
int64_t ebb_cuda_bytes_resident(const struct ebb_device *device, enum ebb_space space);
enum ebb_status ebb_cuda_copy_rows(struct ebb_device *device, void *to, int64_t to_stride,
                                   const void *from, int64_t from_stride, int64_t row_bytes,
                                   int64_t rows);
enum ebb_status ebb_cuda_fill(struct ebb_device *device, void *to, int byte, int64_t bytes);
enum ebb_status ebb_cuda_block_create(struct ebb_device *device, int64_t bytes, bool shared,
                                      void **block);
void ebb_cuda_block_free(struct ebb_device *device, void *block);

/* ---- device_cuda_slab.c ---------------------------------------------------------------------- */

enum ebb_status ebb_cuda_reserve_slab(struct ebb_cuda_device *own, int64_t bytes);
/* The slab is ready to be copied to and from when this returns. */
void ebb_cuda_join_slab(struct ebb_cuda_device *own);
int64_t ebb_cuda_bytes_pinned(const struct ebb_device *device);
double ebb_cuda_pin_seconds(const struct ebb_device *device);
/* How many of the bytes from `at` on are not pinned, where it is of the slab; 0 elsewhere. The
 * caller has joined it. */
int64_t ebb_cuda_pageable(const struct ebb_cuda_device *own, const void *at, int64_t bytes);
/* A copy to or from what is not pinned of the slab. The caller has joined it. */
enum ebb_status ebb_cuda_bounce(struct ebb_cuda_device *own, enum ebb_queue queue, void *to,
                                const void *from, int64_t bytes);
/* How far the queue's bounced pieces have been enqueued; 0: none. */
uint64_t ebb_cuda_place(const struct ebb_cuda_device *own, enum ebb_queue queue);
bool ebb_cuda_reached(const struct ebb_cuda_device *own, enum ebb_queue queue, uint64_t place);
/* `queue` waits until the pieces of `other` have come to a place. */
enum ebb_status ebb_cuda_wait_place(struct ebb_cuda_device *own, enum ebb_queue queue,
                                    enum ebb_queue other, uint64_t place);
/* The queue has been made to wait for something. */
void ebb_cuda_waited(struct ebb_cuda_device *own, enum ebb_queue queue);
/* The device is lost: pieces are given up. */
void ebb_cuda_abandon(struct ebb_cuda_device *own);
/* After the streams: the threads' part. */
void ebb_cuda_drain(struct ebb_cuda_device *own);
void ebb_cuda_free_slab(struct ebb_cuda_device *own);

/* ---- device_cuda_ticket.c -------------------------------------------------------------------- */

enum ebb_status ebb_cuda_ticket_create(struct ebb_device *device, struct ebb_ticket **ticket);
void ebb_cuda_ticket_free(struct ebb_ticket *ticket);
void ebb_cuda_ticket_signal(struct ebb_ticket *ticket, uint64_t value);
void ebb_cuda_ticket_fail(struct ebb_ticket *ticket, enum ebb_status status);
enum ebb_status ebb_cuda_ticket_wait(struct ebb_ticket *ticket, uint64_t value, double seconds);
enum ebb_status ebb_cuda_queue_ticket_signal(struct ebb_device *device, enum ebb_queue queue,
                                             struct ebb_ticket *ticket, uint64_t value);
enum ebb_status ebb_cuda_queue_ticket_wait(struct ebb_device *device, enum ebb_queue queue,
                                           struct ebb_ticket *ticket, uint64_t value,
                                           double seconds);
/* Lets go of waits whose time is up. The clock of a wait runs from the first time it is found. */
void ebb_cuda_watch_tickets(struct ebb_cuda_device *own);
/* Waits for a stream, and lets go of ticket waits whose time is up. */
cudaError_t ebb_cuda_wait_stream(struct ebb_cuda_device *own, cudaStream_t stream);
/* After the streams: what became of the waits and signals. */
void ebb_cuda_settle_tickets(struct ebb_cuda_device *own);
/* After the streams are gone. */
void ebb_cuda_free_signals(struct ebb_cuda_device *own);

/* ---- device_cuda_process.c ------------------------------------------------------------------- */

/* Before the context is made. Nothing fails but for want of host memory. */
enum ebb_status ebb_cuda_watch_memory(struct ebb_cuda_device *own);
void ebb_cuda_unwatch_memory(struct ebb_cuda_device *own);
int64_t ebb_cuda_bytes_process(const struct ebb_device *device, enum ebb_bytes_way *way);
int64_t ebb_cuda_bytes_overhead(const struct ebb_device *device);
/* Free on the whole GPU; 0: not known. */
int64_t ebb_cuda_bytes_free(struct ebb_ctx *ctx);
/* "\nprocess 4711 (python3) uses 12.5 GiB", or "" where nothing is known. Returns `out`. */
/* "580.159.04", as nvidia-smi shows it. False: neither the kernel's module nor NVML tells. */
bool ebb_cuda_driver_version(struct ebb_ctx *ctx, char *out, size_t out_bytes);
const char *ebb_cuda_other_users(const struct ebb_cuda_device *own, char *out, size_t out_bytes);

/* ---- device_cuda_kernels.cu ------------------------------------------------------------------ */

/* Keeps the stream busy for so long. */
cudaError_t ebb_cuda_run_delay(cudaStream_t stream, int microseconds);
/* Tests: writes where no memory is, which costs the process its GPU. */
cudaError_t ebb_cuda_run_fault(cudaStream_t stream);
/* Has this build code for the current GPU? cudaErrorNoKernelImageForDevice where it has not. */
cudaError_t ebb_cuda_has_code(void);

#ifdef __cplusplus
}
#endif
#endif
