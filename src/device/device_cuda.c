/* The CUDA backend: streams for queues, CUDA's events for events; memory and tickets have files of
 * their own.
 *
 * The CUDA runtime is linked in statically and looks for the driver when it is first used, so
 * that one program serves machines with and without a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"

enum { CAPABILITY_LOWEST = 80 /* 8.0: bf16 */ };

/* ---- failures -------------------------------------------------------------------------------- */

static enum ebb_status cuda_failed(struct ebb_ctx *ctx, cudaError_t error, const char *what)
{
    return EBB_FAIL(ctx, error == cudaErrorMemoryAllocation ? EBB_NO_MEMORY : EBB_DEVICE,
                    "the GPU failed at %s: %s (%s)", what, cudaGetErrorString(error),
                    cudaGetErrorName(error));
}

enum ebb_status ebb_cuda_check(struct ebb_ctx *ctx, cudaError_t error, const char *what)
{
    return error == cudaSuccess ? EBB_OK : cuda_failed(ctx, error, what);
}

void ebb_cuda_remember(struct ebb_cuda_device *own, enum ebb_status status)
{
    if (own->failed == EBB_OK) own->failed = status;
}

void ebb_cuda_remember_error(struct ebb_cuda_device *own, cudaError_t error, const char *what)
{
    if (error != cudaSuccess) ebb_cuda_remember(own, cuda_failed(own->base.ctx, error, what));
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

/* ---- queues ---------------------------------------------------------------------------------- */

void ebb_cuda_delay(struct ebb_cuda_device *own, enum ebb_queue queue)
{
    if (own->delay_us[queue] <= 0) return;
    int us = ebb_device_delay(own->delay_key[queue], own->commands[queue]++, own->delay_us[queue]);
    ebb_cuda_remember_error(own, ebb_cuda_run_delay(own->stream[queue], us), "a delay");
}

static enum ebb_status cuda_launch(struct ebb_device *device, enum ebb_queue queue, ebb_queue_fn fn,
                                   const void *args)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    struct ebb_queue_env env = {.device = device,
                                .stream = own->stream[queue],
                                .threads = device->threads};
    if (own->failed != EBB_OK) return EBB_OK;
    ebb_cuda_delay(own, queue);
    enum ebb_status status = fn(&env, args);
    if (status != EBB_OK) ebb_cuda_remember(own, status);
    return EBB_OK;
}

static enum ebb_status cuda_copy(struct ebb_device *device, enum ebb_queue queue, void *to,
                                 const void *from, int64_t bytes)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (own->failed != EBB_OK) return EBB_OK;
    enum ebb_space a = ebb_device_space_of(device, from), b = ebb_device_space_of(device, to);
    if (a == EBB_SPACE_HOST || b == EBB_SPACE_HOST) ebb_cuda_join_slab(own);
    ebb_cuda_delay(own, queue);
    ebb_cuda_remember_error(own,
                            cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault,
                                            own->stream[queue]),
                            "a copy");
    if (a == EBB_SPACE_DEVICE && b == EBB_SPACE_HOST) own->bytes_out += bytes;
    if (a == EBB_SPACE_HOST && b == EBB_SPACE_DEVICE) own->bytes_in += bytes;
    return EBB_OK;
}

static enum ebb_status cuda_events(struct ebb_device *device, int count)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    cudaEvent_t *event = ebb_mem_realloc(device->ctx, own->event, (size_t)count * sizeof *event);
    if (event == NULL) return EBB_NO_MEMORY;
    own->event = event;
    bool *recorded = ebb_mem_realloc(device->ctx, own->recorded, (size_t)count * sizeof *recorded);
    if (recorded == NULL) return EBB_NO_MEMORY;
    own->recorded = recorded;
    for (int i = device->events; i < count; i++) {
        EBB_TRY(ebb_cuda_check(device->ctx,
                               cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming),
                               "cudaEventCreate"));
        recorded[i] = false;
        device->events = i + 1;
    }
    return EBB_OK;
}

static enum ebb_status cuda_record(struct ebb_device *device, enum ebb_queue queue, int event)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    ebb_cuda_remember_error(own, cudaEventRecord(own->event[event], own->stream[queue]),
                            "cudaEventRecord");
    own->recorded[event] = true;
    return EBB_OK;
}

/* Adds up the oldest stall; its events are used again. */
static void settle_stall(struct ebb_cuda_device *own)
{
    struct ebb_cuda_stall *stall = &own->stall[own->stall_done++ % EBB_CUDA_STALLS];
    float milliseconds = 0;
    if (cudaEventSynchronize(stall->after) == cudaSuccess &&
        cudaEventElapsedTime(&milliseconds, stall->before, stall->after) == cudaSuccess)
        own->stall_seconds += (double)milliseconds * 1e-3;
}

struct ebb_cuda_stall *ebb_cuda_stall_begin(struct ebb_cuda_device *own, enum ebb_queue queue)
{
    if (queue != EBB_QUEUE_COMPUTE) return NULL;
    if (own->stall_put - own->stall_done == EBB_CUDA_STALLS) settle_stall(own);
    struct ebb_cuda_stall *stall = &own->stall[own->stall_put % EBB_CUDA_STALLS];
    ebb_cuda_remember_error(own, cudaEventRecord(stall->before, own->stream[queue]), "a stall");
    return stall;
}

void ebb_cuda_stall_end(struct ebb_cuda_device *own, enum ebb_queue queue,
                        const struct ebb_cuda_stall *stall)
{
    if (stall == NULL) return;
    ebb_cuda_remember_error(own, cudaEventRecord(stall->after, own->stream[queue]), "a stall");
    own->stall_put++;
}

static enum ebb_status cuda_wait(struct ebb_device *device, enum ebb_queue queue, int event)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (!own->recorded[event]) return EBB_OK;
    /* What has happened already is no wait. */
    bool happened = cudaEventQuery(own->event[event]) == cudaSuccess;
    struct ebb_cuda_stall *stall = happened ? NULL : ebb_cuda_stall_begin(own, queue);
    ebb_cuda_remember_error(own, cudaStreamWaitEvent(own->stream[queue], own->event[event], 0),
                            "cudaStreamWaitEvent");
    ebb_cuda_stall_end(own, queue, stall);
    return EBB_OK;
}

/* ---- sync ------------------------------------------------------------------------------------ */

static enum ebb_status cuda_sync(struct ebb_device *device)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    ebb_cuda_join_slab(own);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        ebb_cuda_remember_error(own, ebb_cuda_wait_stream(own, own->stream[i]), "a queue's work");
    ebb_cuda_settle_tickets(own);
    while (own->stall_done < own->stall_put) settle_stall(own);
    enum ebb_status status = own->failed;
    own->failed = EBB_OK;
    return status;
}

static void cuda_counters(const struct ebb_device *device, struct ebb_device_counters *counters)
{
    const struct ebb_cuda_device *own = (const struct ebb_cuda_device *)device;
    memset(counters, 0, sizeof *counters);
    counters->bytes_out = own->bytes_out;
    counters->bytes_in = own->bytes_in;
    counters->stall_seconds = own->stall_seconds;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void cuda_free(struct ebb_device *device)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    (void)cuda_sync(device);
    for (int i = 0; i < EBB_CUDA_STALLS; i++) {
        if (own->stall[i].before != NULL) (void)cudaEventDestroy(own->stall[i].before);
        if (own->stall[i].after != NULL) (void)cudaEventDestroy(own->stall[i].after);
    }
    for (int i = 0; i < device->events; i++) (void)cudaEventDestroy(own->event[i]);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        if (own->stream[i] != NULL) (void)cudaStreamDestroy(own->stream[i]);
    ebb_cuda_free_memory(own);
    ebb_mem_free(device->ctx, own->recorded);
    ebb_mem_free(device->ctx, own->event);
    ebb_mem_free(device->ctx, own);
}

static enum ebb_status describe(struct ebb_cuda_device *own)
{
    struct cudaDeviceProp facts;
    struct ebb_ctx *ctx = own->base.ctx;
    int driver = 0;
    EBB_TRY(ebb_cuda_check(ctx, cudaGetDevice(&own->ordinal), "cudaGetDevice"));
    EBB_TRY(ebb_cuda_check(ctx, cudaGetDeviceProperties(&facts, own->ordinal),
                           "cudaGetDeviceProperties"));
    EBB_TRY(ebb_cuda_check(ctx, cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
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

static enum ebb_status find_driver_call(struct ebb_cuda_device *own)
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

static enum ebb_status start(struct ebb_cuda_device *own, const struct ebb_device_options *options)
{
    struct ebb_ctx *ctx = own->base.ctx;
    EBB_TRY(describe(own));
    EBB_TRY(find_driver_call(own));
    for (int i = 0; i < EBB_QUEUE_COUNT; i++) {
        EBB_TRY(ebb_cuda_check(ctx,
                               cudaStreamCreateWithFlags(&own->stream[i], cudaStreamNonBlocking),
                               "cudaStreamCreate"));
        own->delay_us[i] =
            options->delay_us[i] > 0 ? options->delay_us[i] : ebb_device_default_delay();
        own->delay_key[i] = ebb_random_key(options->delay_seed, 0, 0, 0, (uint32_t)i);
    }
    for (int i = 0; i < EBB_CUDA_STALLS; i++) {
        EBB_TRY(ebb_cuda_check(ctx, cudaEventCreate(&own->stall[i].before), "cudaEventCreate"));
        EBB_TRY(ebb_cuda_check(ctx, cudaEventCreate(&own->stall[i].after), "cudaEventCreate"));
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
    struct ebb_cuda_device *own = ebb_mem_alloc(ctx, sizeof *own);
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
        .reserve = ebb_cuda_reserve,
        .bytes_resident = ebb_cuda_bytes_resident,
        .copy_rows = ebb_cuda_copy_rows,
        .fill = ebb_cuda_fill,
        .block_create = ebb_cuda_block_create,
        .block_free = ebb_cuda_block_free,
        .launch = cuda_launch,
        .copy = cuda_copy,
        .events = cuda_events,
        .record = cuda_record,
        .wait = cuda_wait,
        .sync = cuda_sync,
        .counters = cuda_counters,
        .ticket_create = ebb_cuda_ticket_create,
        .ticket_free = ebb_cuda_ticket_free,
        .ticket_signal = ebb_cuda_ticket_signal,
        .ticket_fail = ebb_cuda_ticket_fail,
        .ticket_wait = ebb_cuda_ticket_wait,
        .queue_ticket_signal = ebb_cuda_queue_ticket_signal,
        .queue_ticket_wait = ebb_cuda_queue_ticket_wait,
    };
    return &backend;
}
