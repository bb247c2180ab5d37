/* What the files of the CUDA backend share: device_cuda.c (queues, sync, life),
 * device_cuda_memory.c (both spaces), device_cuda_ticket.c, device_cuda_kernels.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_CUDA_INT_H
#define EBB_DEVICE_CUDA_INT_H

#include <pthread.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "device/device_int.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EBB_CUDA_STALLS = 2048, /* pairs of timing events on their way */
    EBB_CUDA_WAITS = 1024   /* ticket waits on their way */
};

struct ebb_cuda_ticket;

/* Around a wait of COMPUTE: what lies between the two is a stall. */
struct ebb_cuda_stall {
    cudaEvent_t before, after;
};

/* A ticket wait that was enqueued. */
struct ebb_cuda_wait {
    struct ebb_cuda_ticket *ticket;
    uint64_t value;
    double deadline, seconds; /* deadline 0: its clock runs from the sync that finds it */
    enum ebb_queue queue;
};

/* The host slab on its way to being pinned. */
struct ebb_cuda_slab {
    void *start;
    size_t bytes; /* of the mapping */
    pthread_t thread;
    bool running;
    bool pinned;
    cudaError_t refused;
};

typedef CUresult(CUDAAPI *ebb_cuda_value_fn)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

struct ebb_cuda_device {
    struct ebb_device base;
    int ordinal;
    cudaStream_t stream[EBB_QUEUE_COUNT];
    cudaEvent_t *event;
    bool *recorded;
    int delay_us[EBB_QUEUE_COUNT];
    uint64_t delay_key[EBB_QUEUE_COUNT], commands[EBB_QUEUE_COUNT];
    enum ebb_status failed; /* the first failure since the last sync */
    struct ebb_cuda_slab slab;
    int64_t bytes_out, bytes_in;
    double stall_seconds;
    struct ebb_cuda_stall stall[EBB_CUDA_STALLS]; /* a ring */
    int64_t stall_put, stall_done;
    struct ebb_cuda_wait wait[EBB_CUDA_WAITS];
    int wait_count;
    ebb_cuda_value_fn wait_value;
};

static inline struct ebb_cuda_device *ebb_cuda_of(struct ebb_device *device)
{
    return (struct ebb_cuda_device *)device;
}

/* ---- device_cuda.c --------------------------------------------------------------------------- */

/* EBB_OK for cudaSuccess; else the failure, told with what was being done. */
enum ebb_status ebb_cuda_check(struct ebb_ctx *ctx, cudaError_t error, const char *what);
/* A failure of a command: remembered until the next sync. */
void ebb_cuda_remember(struct ebb_cuda_device *own, enum ebb_status status);
void ebb_cuda_remember_error(struct ebb_cuda_device *own, cudaError_t error, const char *what);
/* Torture: something before each command. */
void ebb_cuda_delay(struct ebb_cuda_device *own, enum ebb_queue queue);
/* The two ends of a wait of COMPUTE; NULL on other queues. */
struct ebb_cuda_stall *ebb_cuda_stall_begin(struct ebb_cuda_device *own, enum ebb_queue queue);
void ebb_cuda_stall_end(struct ebb_cuda_device *own, enum ebb_queue queue,
                        const struct ebb_cuda_stall *stall);

/* ---- device_cuda_memory.c -------------------------------------------------------------------- */

enum ebb_status ebb_cuda_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes);
/* The slab is ready to be copied to and from when this returns. */
void ebb_cuda_join_slab(struct ebb_cuda_device *own);
void ebb_cuda_free_memory(struct ebb_cuda_device *own);
int64_t ebb_cuda_bytes_resident(const struct ebb_device *device, enum ebb_space space);
enum ebb_status ebb_cuda_copy_rows(struct ebb_device *device, void *to, int64_t to_stride,
                                   const void *from, int64_t from_stride, int64_t row_bytes,
                                   int64_t rows);
enum ebb_status ebb_cuda_fill(struct ebb_device *device, void *to, int byte, int64_t bytes);
enum ebb_status ebb_cuda_block_create(struct ebb_device *device, int64_t bytes, bool shared,
                                      void **block);
void ebb_cuda_block_free(struct ebb_device *device, void *block);

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
/* Waits for a stream, and lets go of ticket waits whose time is up. */
cudaError_t ebb_cuda_wait_stream(struct ebb_cuda_device *own, cudaStream_t stream);
/* After the streams: what became of the ticket waits. */
void ebb_cuda_settle_tickets(struct ebb_cuda_device *own);

/* ---- device_cuda_kernels.cu ------------------------------------------------------------------ */

/* Keeps the stream busy for so long. */
cudaError_t ebb_cuda_run_delay(cudaStream_t stream, int microseconds);
/* Has this build code for the current GPU? cudaErrorNoKernelImageForDevice where it has not. */
cudaError_t ebb_cuda_has_code(void);

#ifdef __cplusplus
}
#endif
#endif
