/* The CUDA backend: streams for queues, CUDA's events for events; memory and tickets have files of
 * their own.
 *
 * The CUDA runtime is linked in statically and looks for the driver when it is first used, so
 * that one program serves machines with and without a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/number.h"
#include "device/device_gpu_text.h"

enum { CAPABILITY_LOWEST = 80 /* 8.0: bf16 */ };

/* ---- failures -------------------------------------------------------------------------------- */

enum ebb_status ebb_cuda_check(struct ebb_ctx *ctx, cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return EBB_OK;
    if (error == cudaErrorMemoryAllocation)
        return EBB_FAIL(
            ctx, EBB_DOES_NOT_FIT,
            "the GPU has no memory left for %s: %s (%s)\n"
            "try:   a smaller memory_budget, which leaves more to driver and libraries, "
            "or the end of what else runs on this GPU",
            what, cudaGetErrorString(error), cudaGetErrorName(error));
    return EBB_FAIL(ctx, EBB_DEVICE, "the GPU failed at %s: %s (%s)", what,
                    cudaGetErrorString(error), cudaGetErrorName(error));
}

/* The GPU's own fault, rather than a program's? */
static bool is_hardware(cudaError_t error)
{
    return error == cudaErrorECCUncorrectable || error == cudaErrorNvlinkUncorrectable ||
           error == cudaErrorDevicesUnavailable || error == cudaErrorUnknown;
}

/* Gives up what is on its way. The text keeps its first line, which says where it showed. */
static void declare_lost(struct ebb_cuda_device *own, cudaError_t error)
{
    struct ebb_ctx *ctx = own->base.ctx;
    char first[512];
    const char *text = ebb_error_text(ctx);
    snprintf(first, sizeof first, "%.*s", (int)strcspn(text, "\n"), text);
    own->lost = true;
    ebb_cuda_abandon(own);
    ebb_error_clear(ctx);
    own->failed = EBB_FAIL(ctx, EBB_DEVICE,
                           "%s\n"
                           "lost:  %s: %s (%s); this process cannot use it any more\n"
                           "try:   %s",
                           first[0] != '\0' ? first : "the GPU failed at work on its way",
                           own->base.name, cudaGetErrorString(error), cudaGetErrorName(error),
                           ebb_gpu_lost_advice(is_hardware(error)));
}

/* After a failure: an error that every call returns from then on means that the GPU is lost. */
static void look_if_lost(struct ebb_cuda_device *own)
{
    if (own->lost || own->stream[EBB_QUEUE_COMPUTE] == NULL) return;
    (void)cudaGetLastError();
    cudaError_t error = cudaStreamQuery(own->stream[EBB_QUEUE_COMPUTE]);
    if (error == cudaSuccess || error == cudaErrorNotReady)
        (void)cudaGetLastError();
    else
        declare_lost(own, error);
}

void ebb_cuda_remember(struct ebb_cuda_device *own, enum ebb_status status)
{
    if (status == EBB_OK) return;
    if (own->failed == EBB_OK) own->failed = status;
    look_if_lost(own);
}

void ebb_cuda_remember_error(struct ebb_cuda_device *own, cudaError_t error, const char *what)
{
    ebb_cuda_remember(own, ebb_cuda_check(own->base.ctx, error, what));
}

void ebb_cuda_look(struct ebb_cuda_device *own)
{
    ebb_cuda_watch_tickets(own);
    look_if_lost(own);
}

enum ebb_status ebb_cuda_direct(struct ebb_cuda_device *own, cudaError_t error, const char *what)
{
    enum ebb_status status = ebb_cuda_check(own->base.ctx, error, what);
    if (status != EBB_OK) look_if_lost(own);
    return status != EBB_OK && own->lost ? EBB_DEVICE : status;
}

/* ---- is it there ----------------------------------------------------------------------------- */

/* This build needs a driver of the runtime's major version. */
/* Attributes need no context. */
static bool is_able(char *why, size_t why_bytes)
{
    int ordinal = 0, major = 0, minor = 0;
    if (cudaGetDevice(&ordinal) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal) != cudaSuccess ||
        major * 10 + minor >= CAPABILITY_LOWEST)
        return true; /* what cannot be asked shows when the device is created */
    if (why != NULL)
        snprintf(why, why_bytes,
                 "the GPU has compute capability %d.%d; Ebb needs 8.0 or higher (bfloat16), which "
                 "began with the A100 and the RTX 30 series",
                 major, minor);
    return false;
}

static bool cuda_is_there(char *why, size_t why_bytes)
{
    int count = 0, driver = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return is_able(why, why_bytes);
    if (error != cudaSuccess) (void)cudaGetLastError();
    if (why == NULL) return false;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    const struct ebb_gpu_missing facts = {.driver = driver,
                                          .wanted = CUDART_VERSION / 1000 * 1000,
                                          .none =
                                              error == cudaSuccess || error == cudaErrorNoDevice,
                                          .visible = ebb_environment("CUDA_VISIBLE_DEVICES"),
                                          .kernel_driver = access("/dev/nvidiactl", F_OK) == 0,
                                          .amd = access("/dev/kfd", F_OK) == 0,
                                          .error = cudaGetErrorString(error)};
    ebb_gpu_missing_text(&facts, why, why_bytes);
    return false;
}

/* This and the next without a context, which takes seconds and memory. */
static bool cuda_facts(struct ebb_ctx *ctx, struct ebb_backend_facts *facts)
{
    int ordinal = 0, driver = 0;
    struct cudaDeviceProp properties;
    if (!cuda_is_there(NULL, 0) || cudaGetDevice(&ordinal) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess)
        return false;
    snprintf(facts->name, sizeof facts->name, "%.64s", properties.name);
    if (!ebb_cuda_driver_version(ctx, facts->driver, sizeof facts->driver))
        snprintf(facts->driver, sizeof facts->driver, "CUDA %d.%d", driver / 1000,
                 driver % 1000 / 10);
    return true;
}

static int64_t cuda_bytes_total(void)
{
    int ordinal = 0;
    struct cudaDeviceProp facts;
    if (!cuda_is_there(NULL, 0) || cudaGetDevice(&ordinal) != cudaSuccess ||
        cudaGetDeviceProperties(&facts, ordinal) != cudaSuccess)
        return 0;
    return (int64_t)facts.totalGlobalMem;
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
    ebb_cuda_remember(own, status);
    return EBB_OK;
}

/* To and from what is pinned, by a copy engine. */
static void copy_directly(struct ebb_cuda_device *own, enum ebb_queue queue, void *to,
                          const void *from, int64_t bytes)
{
    ebb_cuda_remember_error(own,
                            cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault,
                                            own->stream[queue]),
                            "a copy");
}

/* A copy within the host space is the thread's, and what is pinned there the stream writes and
 * reads too: the thread waits for what the stream did before, and the stream for the thread. */
static enum ebb_status copy_within(struct ebb_cuda_device *own, enum ebb_queue queue, void *to,
                                   const void *from, int64_t bytes)
{
    ebb_cuda_waited(own, queue);
    EBB_TRY(ebb_cuda_bounce(own, queue, to, from, bytes));
    return ebb_cuda_wait_place(own, queue, queue, ebb_cuda_place(own, queue));
}

/* A copy whose first bytes are not pinned: they bounce, the others go directly. */
static enum ebb_status copy_pageable(struct ebb_cuda_device *own, enum ebb_queue queue, void *to,
                                     const void *from, int64_t bytes, int64_t pageable)
{
    bool within = ebb_device_space_of(&own->base, from) == EBB_SPACE_HOST &&
                  ebb_device_space_of(&own->base, to) == EBB_SPACE_HOST;
    if (within) return copy_within(own, queue, to, from, bytes);
    EBB_TRY(ebb_cuda_bounce(own, queue, to, from, pageable));
    if (pageable < bytes)
        copy_directly(own, queue, (char *)to + pageable, (const char *)from + pageable,
                      bytes - pageable);
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
    int64_t pageable = ebb_cuda_pageable(own, from, bytes);
    if (pageable == 0) pageable = ebb_cuda_pageable(own, to, bytes);
    if (pageable > 0)
        ebb_cuda_remember(own, copy_pageable(own, queue, to, from, bytes, pageable));
    else
        copy_directly(own, queue, to, from, bytes);
    if (a == EBB_SPACE_DEVICE && b == EBB_SPACE_HOST) own->bytes_out += bytes;
    if (a == EBB_SPACE_HOST && b == EBB_SPACE_DEVICE) own->bytes_in += bytes;
    return EBB_OK;
}

static enum ebb_status cuda_events(struct ebb_device *device, int count)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    struct ebb_cuda_event *event =
        ebb_mem_realloc(device->ctx, own->event, (size_t)count * sizeof *event);
    if (event == NULL) return EBB_NO_MEMORY;
    own->event = event;
    for (int i = device->events; i < count; i++) {
        event[i] = (struct ebb_cuda_event){.recorded = false};
        EBB_TRY(ebb_cuda_check(device->ctx,
                               cudaEventCreateWithFlags(&event[i].at, cudaEventDisableTiming),
                               "cudaEventCreate"));
        device->events = i + 1;
    }
    return EBB_OK;
}

static enum ebb_status cuda_record(struct ebb_device *device, enum ebb_queue queue, int event)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    struct ebb_cuda_event *at = &own->event[event];
    if (own->lost) return EBB_OK;
    ebb_cuda_remember_error(own, cudaEventRecord(at->at, own->stream[queue]), "cudaEventRecord");
    at->recorded = true;
    at->queue = queue;
    at->place = ebb_cuda_place(own, queue);
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

enum ebb_status ebb_cuda_wait_word(struct ebb_cuda_device *own, enum ebb_queue queue,
                                   CUdeviceptr word, uint64_t value)
{
    /* The driver's errors have the runtime's numbers. */
    return ebb_cuda_check(own->base.ctx,
                          (cudaError_t)own->wait_value((CUstream)own->stream[queue], word, value,
                                                       CU_STREAM_WAIT_VALUE_GEQ),
                          "cuStreamWaitValue64");
}

enum ebb_status ebb_cuda_write_word(struct ebb_cuda_device *own, enum ebb_queue queue,
                                    CUdeviceptr word, uint64_t value)
{
    return ebb_cuda_check(own->base.ctx,
                          (cudaError_t)own->write_value((CUstream)own->stream[queue], word, value,
                                                        CU_STREAM_WRITE_VALUE_DEFAULT),
                          "cuStreamWriteValue64");
}

static bool has_happened(const struct ebb_cuda_device *own, const struct ebb_cuda_event *event)
{
    if (!ebb_cuda_reached(own, event->queue, event->place)) return false;
    cudaError_t error = cudaEventQuery(event->at);
    if (error == cudaErrorNotReady) (void)cudaGetLastError(); /* is no error of what follows */
    return error == cudaSuccess;
}

static enum ebb_status cuda_wait(struct ebb_device *device, enum ebb_queue queue, int event)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    const struct ebb_cuda_event *at = &own->event[event];
    /* What has happened already is no wait, and a queue is in order by itself. */
    if (own->lost || !at->recorded || at->queue == queue || has_happened(own, at)) return EBB_OK;
    struct ebb_cuda_stall *stall = ebb_cuda_stall_begin(own, queue);
    ebb_cuda_remember_error(own, cudaStreamWaitEvent(own->stream[queue], at->at, 0),
                            "cudaStreamWaitEvent");
    ebb_cuda_remember(own, ebb_cuda_wait_place(own, queue, at->queue, at->place));
    ebb_cuda_stall_end(own, queue, stall);
    ebb_cuda_waited(own, queue);
    return EBB_OK;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static enum ebb_status cuda_marks(struct ebb_device *device, int count)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    struct ebb_cuda_mark *mark =
        ebb_mem_realloc(device->ctx, own->mark, (size_t)count * sizeof *mark);
    if (mark == NULL) return EBB_NO_MEMORY;
    own->mark = mark;
    for (int i = device->marks; i < count; i++) {
        mark[i].set = false;
        EBB_TRY(ebb_cuda_direct(own, cudaEventCreate(&mark[i].at), "cudaEventCreate"));
        device->marks = i + 1;
    }
    return EBB_OK;
}

/* A copy out that bounces is past its mark when its last piece has left the device; the thread may
 * still be moving it from its slot. */
static enum ebb_status cuda_mark(struct ebb_device *device, enum ebb_queue queue, int mark)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    struct ebb_cuda_mark *at = &own->mark[mark];
    at->set = false;
    if (own->failed != EBB_OK) return EBB_OK;
    ebb_cuda_remember_error(own, cudaEventRecord(at->at, own->stream[queue]), "a mark");
    at->set = own->failed == EBB_OK;
    return EBB_OK;
}

/* A question that fails says nothing about what follows; a GPU that is lost shows at the next
 * sync. */
static double cuda_mark_seconds(struct ebb_device *device, int from, int to)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    float milliseconds = 0;
    if (own->lost || !own->mark[from].set || !own->mark[to].set) return NAN;
    cudaError_t error = cudaEventElapsedTime(&milliseconds, own->mark[from].at, own->mark[to].at);
    if (error == cudaSuccess) return (double)milliseconds * 1e-3;
    (void)cudaGetLastError();
    return NAN;
}

/* ---- sync ------------------------------------------------------------------------------------ */

/* A device that is lost stays so, and says so at every sync. */
static enum ebb_status settle_failure(struct ebb_cuda_device *own)
{
    enum ebb_status status = own->failed;
    if (!own->lost)
        own->failed = EBB_OK;
    else if (ebb_error_status(own->base.ctx) == EBB_OK)
        (void)EBB_FAIL(own->base.ctx, EBB_DEVICE,
                       "%s was lost before; this process cannot use it any more", own->base.name);
    return status;
}

static const char *cuda_other_users(const struct ebb_device *device, char *out, size_t out_bytes)
{
    return ebb_cuda_other_users((const struct ebb_cuda_device *)device, out, out_bytes);
}

static void cuda_host_ready(struct ebb_device *device)
{
    ebb_cuda_join_slab(ebb_cuda_of(device));
}

static enum ebb_status cuda_sync(struct ebb_device *device)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    ebb_cuda_join_slab(own);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        if (own->stream[i] != NULL && !own->lost)
            ebb_cuda_remember_error(own, ebb_cuda_wait_stream(own, own->stream[i]),
                                    "a queue's work");
    ebb_cuda_drain(own);
    ebb_cuda_settle_tickets(own);
    while (own->stall_done < own->stall_put) settle_stall(own);
    return settle_failure(own);
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
    for (int i = 0; i < device->events; i++) (void)cudaEventDestroy(own->event[i].at);
    for (int i = 0; i < device->marks; i++) (void)cudaEventDestroy(own->mark[i].at);
    for (int i = 0; i < EBB_QUEUE_COUNT; i++)
        if (own->stream[i] != NULL) (void)cudaStreamDestroy(own->stream[i]);
    ebb_cuda_free_signals(own);
    ebb_cuda_free_slab(own);
    if (device->space[EBB_SPACE_DEVICE].base != NULL)
        (void)cudaFree(device->space[EBB_SPACE_DEVICE].base);
    (void)cudaGetLastError();
    ebb_cuda_unwatch_memory(own);
    ebb_mem_free(device->ctx, own->event);
    ebb_mem_free(device->ctx, own->mark);
    ebb_mem_free(device->ctx, own);
}

/* The first call that makes the context. */
static enum ebb_status open_context(struct ebb_cuda_device *own)
{
    int mode = cudaComputeModeDefault;
    char users[256];
    struct ebb_ctx *ctx = own->base.ctx;
    cudaError_t error = cudaFree(NULL);
    if (error == cudaSuccess) return EBB_OK;
    (void)cudaGetLastError();
    (void)cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, own->ordinal);
    ebb_cuda_other_users(own, users, sizeof users);
    if (mode == cudaComputeModeProhibited)
        return EBB_FAIL(ctx, EBB_DEVICE,
                        "%s is in compute mode 'prohibited': no program may use it\n"
                        "try:   nvidia-smi -c DEFAULT, as administrator, or device: cpu",
                        own->base.name);
    if (mode == cudaComputeModeExclusiveProcess && error == cudaErrorDevicesUnavailable)
        return EBB_FAIL(ctx, EBB_DEVICE,
                        "%s is in compute mode 'exclusive process', and another process has it%s\n"
                        "try:   the end of that process, another GPU (CUDA_VISIBLE_DEVICES), or "
                        "nvidia-smi -c DEFAULT, as administrator",
                        own->base.name, users);
    if (error == cudaErrorMemoryAllocation)
        return EBB_FAIL(ctx, EBB_DOES_NOT_FIT,
                        "%s has not even memory left to begin with%s\n"
                        "try:   the end of what else runs on this GPU, or another GPU "
                        "(CUDA_VISIBLE_DEVICES)",
                        own->base.name, users);
    return EBB_FAIL(ctx, EBB_DEVICE,
                    "%s cannot be used: %s (%s)%s\n"
                    "try:   nvidia-smi, which should list it; its driver or the GPU itself may be "
                    "at fault ('Xid' in the kernel's log, dmesg)",
                    own->base.name, cudaGetErrorString(error), cudaGetErrorName(error), users);
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
        return EBB_FAIL(ctx, EBB_DEVICE,
                        "%s: Ebb needs compute capability 8.0 or higher (bfloat16), which began "
                        "with the A100 and the RTX 30 series\n"
                        "try:   another GPU (CUDA_VISIBLE_DEVICES), or device: cpu",
                        own->base.name);
    EBB_TRY(ebb_cuda_watch_memory(own));
    EBB_TRY(open_context(own));
    if (ebb_cuda_has_code() != cudaSuccess) {
        (void)cudaGetLastError();
        return EBB_FAIL(ctx, EBB_DEVICE,
                        "%s: this build has no code for this GPU\n"
                        "try:   a build with -DEBB_CUDA_ARCHITECTURES=%d, or with the preset "
                        "'cuda-release' for all; or device: cpu",
                        own->base.name, facts.major * 10 + facts.minor);
    }
    return EBB_OK;
}

static enum ebb_status find_driver_call(struct ebb_cuda_device *own, const char *name,
                                        ebb_cuda_value_fn *call_out)
{
    enum cudaDriverEntryPointQueryResult found;
    void *call = NULL;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || call == NULL)
        return EBB_FAIL(own->base.ctx, EBB_DEVICE,
                        "%s: the driver has no %s\ntry:   a newer driver, or device: cpu",
                        own->base.name, name);
    memcpy(call_out, &call, sizeof call);
    return EBB_OK;
}

static enum ebb_status start(struct ebb_cuda_device *own, const struct ebb_device_options *options)
{
    struct ebb_ctx *ctx = own->base.ctx;
    EBB_TRY(describe(own));
    EBB_TRY(find_driver_call(own, "cuStreamWaitValue64", &own->wait_value));
    EBB_TRY(find_driver_call(own, "cuStreamWriteValue64", &own->write_value));
    own->pageable = options->pageable;
    own->bounce_bytes = options->bounce_bytes;
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
    char why[EBB_BACKEND_WHY];
    if (!cuda_is_there(why, sizeof why))
        return EBB_FAIL(ctx, EBB_DEVICE, "device: cuda is not to be had: %s\ntry:   device: cpu",
                        why);
    struct ebb_cuda_device *own = ebb_mem_alloc(ctx, sizeof *own);
    if (own == NULL) return EBB_NO_MEMORY;
    own->base.backend = ebb_device_backend_cuda();
    own->base.ctx = ctx;
    own->used_before = -1;
    own->base.threads = options->threads > 0 ? options->threads : ebb_cpu_count();
    enum ebb_status status = start(own, options);
    if (status != EBB_OK) {
        cuda_free(&own->base);
        return status;
    }
    *device = &own->base;
    return EBB_OK;
}

static void cuda_break(struct ebb_device *device)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    ebb_cuda_remember_error(own, ebb_cuda_run_fault(own->stream[EBB_QUEUE_COMPUTE]), "a fault");
}

const struct ebb_device_backend *ebb_device_backend_cuda(void)
{
    static const struct ebb_device_backend backend = {
        .is_there = cuda_is_there,
        .facts = cuda_facts,
        .bytes_total = cuda_bytes_total,
        .bytes_free = ebb_cuda_bytes_free,
        .create = cuda_create,
        .free = cuda_free,
        .reserve = ebb_cuda_reserve,
        .bytes_resident = ebb_cuda_bytes_resident,
        .bytes_process = ebb_cuda_bytes_process,
        .bytes_overhead = ebb_cuda_bytes_overhead,
        .other_users = cuda_other_users,
        .host_ready = cuda_host_ready,
        .bytes_pinned = ebb_cuda_bytes_pinned,
        .pin_seconds = ebb_cuda_pin_seconds,
        .copy_rows = ebb_cuda_copy_rows,
        .fill = ebb_cuda_fill,
        .block_create = ebb_cuda_block_create,
        .block_free = ebb_cuda_block_free,
        .break_it = cuda_break,
        .launch = cuda_launch,
        .copy = cuda_copy,
        .events = cuda_events,
        .record = cuda_record,
        .wait = cuda_wait,
        .marks = cuda_marks,
        .mark = cuda_mark,
        .mark_seconds = cuda_mark_seconds,
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
