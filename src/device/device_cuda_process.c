/* Who uses how much of the GPU's memory, as the driver counts it: NVML, the library of nvidia-smi,
 * which comes with the driver. Its header does not come with the toolkit everywhere, so what is
 * used of it is declared here.
 *
 * NVML counts GPUs in an order of its own and knows nothing of CUDA_VISIBLE_DEVICES: the GPU is
 * found by its UUID, or else by its place on the bus, and must be as large as CUDA says (a part of
 * a GPU is not). In a container it may list no process, or all of them under the host's numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/library.h"
#include "base/text.h"
#include "device/device_gpu_text.h"

enum {
    NVML_SUCCESS = 0,
    PROCESSES = 64 /* that are looked at */
};

struct nvml_process {
    unsigned int pid;
    unsigned long long bytes; /* all bits set: not known */
    unsigned int gpu_instance, compute_instance;
};
static const unsigned long long bytes_unknown = ~0ULL;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_calls {
    int (*nvmlInit_v2)(void);
    int (*nvmlShutdown)(void);
    int (*nvmlDeviceGetHandleByUUID)(const char *uuid, void **device);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus_id, void **device);
    int (*nvmlDeviceGetMemoryInfo)(void *device, struct nvml_memory *memory);
    int (*nvmlDeviceGetComputeRunningProcesses_v3)(void *device, unsigned int *count,
                                                   struct nvml_process *processes);
};

#define CALL(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct nvml_calls, name)                                                   \
    }
static const struct ebb_library_function functions[] = {
    CALL(nvmlInit_v2),
    CALL(nvmlShutdown),
    CALL(nvmlDeviceGetHandleByUUID),
    CALL(nvmlDeviceGetHandleByPciBusId_v2),
    CALL(nvmlDeviceGetMemoryInfo),
    CALL(nvmlDeviceGetComputeRunningProcesses_v3),
};
#undef CALL

struct ebb_cuda_nvml {
    struct ebb_ctx *ctx;
    struct ebb_library *library;
    struct nvml_calls call;
    bool running; /* initialised */
    void *gpu;
};

/* ---- the library ----------------------------------------------------------------------------- */

static void nvml_close(struct ebb_cuda_nvml *nvml)
{
    if (nvml == NULL) return;
    if (nvml->running) (void)nvml->call.nvmlShutdown();
    ebb_library_close(nvml->library);
    ebb_mem_free(nvml->ctx, nvml);
}

/* "GPU-01234567-89ab-cdef-0123-456789abcdef", or with "MIG-" before it. */
static void write_uuid(const char *before, const unsigned char *bytes, char out[64])
{
    int at = snprintf(out, 64, "%s", before);
    for (int i = 0; i < 16; i++)
        at += snprintf(out + at, (size_t)(64 - at), "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

static bool find_gpu(struct ebb_cuda_nvml *nvml, int ordinal)
{
    struct cudaDeviceProp facts;
    struct nvml_memory memory;
    char gpu[64], mig[64], bus[64] = "";
    if (cudaGetDeviceProperties(&facts, ordinal) != cudaSuccess) return false;
    write_uuid("GPU-", (const unsigned char *)facts.uuid.bytes, gpu);
    write_uuid("MIG-", (const unsigned char *)facts.uuid.bytes, mig);
    (void)cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal);
    if (nvml->call.nvmlDeviceGetHandleByUUID(gpu, &nvml->gpu) != NVML_SUCCESS &&
        nvml->call.nvmlDeviceGetHandleByUUID(mig, &nvml->gpu) != NVML_SUCCESS &&
        nvml->call.nvmlDeviceGetHandleByPciBusId_v2(bus, &nvml->gpu) != NVML_SUCCESS)
        return false;
    if (nvml->call.nvmlDeviceGetMemoryInfo(nvml->gpu, &memory) != NVML_SUCCESS) return false;
    /* CUDA does not count what the driver reserves. */
    double ratio = (double)facts.totalGlobalMem / (double)memory.total;
    return ratio > 0.85 && ratio < 1.05;
}

/* NULL where there is none, which is no failure. */
static enum ebb_status nvml_open(struct ebb_ctx *ctx, int ordinal, struct ebb_cuda_nvml **nvml_out)
{
    struct ebb_library *library;
    *nvml_out = NULL;
    EBB_TRY(ebb_library_try(ctx, "libnvidia-ml.so.1", &library, NULL));
    if (library == NULL) return EBB_OK;
    struct ebb_cuda_nvml *nvml = ebb_mem_alloc(ctx, sizeof *nvml);
    if (nvml == NULL) {
        ebb_library_close(library);
        return EBB_NO_MEMORY;
    }
    nvml->ctx = ctx;
    nvml->library = library;
    bool complete = true;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *symbol = ebb_library_symbol(library, functions[i].name);
        complete = complete && symbol != NULL;
        memcpy((char *)&nvml->call + functions[i].at, &symbol, sizeof symbol);
    }
    nvml->running = complete && nvml->call.nvmlInit_v2() == NVML_SUCCESS;
    if (!nvml->running || !find_gpu(nvml, ordinal)) {
        nvml_close(nvml);
        return EBB_OK;
    }
    *nvml_out = nvml;
    return EBB_OK;
}

static bool get_memory(const struct ebb_cuda_nvml *nvml, struct nvml_memory *memory)
{
    return nvml != NULL && nvml->call.nvmlDeviceGetMemoryInfo(nvml->gpu, memory) == NVML_SUCCESS;
}

/* At most PROCESSES; 0 also where the driver does not tell. */
static int get_processes(const struct ebb_cuda_nvml *nvml, struct nvml_process *processes)
{
    unsigned int count = PROCESSES;
    if (nvml == NULL ||
        nvml->call.nvmlDeviceGetComputeRunningProcesses_v3(nvml->gpu, &count, processes) !=
            NVML_SUCCESS)
        return 0;
    return count < PROCESSES ? (int)count : PROCESSES;
}

/* Opened when something is first asked of it, which takes some milliseconds. */
static const struct ebb_cuda_nvml *nvml_of(const struct ebb_cuda_device *device)
{
    struct ebb_cuda_device *own = (struct ebb_cuda_device *)(uintptr_t)device;
    if (own->nvml == NULL && !own->no_nvml) {
        (void)nvml_open(own->base.ctx, own->ordinal, &own->nvml);
        own->no_nvml = own->nvml == NULL;
    }
    return own->nvml;
}

/* ---- this process ---------------------------------------------------------------------------- */

/* Whether this process has opened the GPU already. Where that cannot be told, it has. */
static enum ebb_status find_context(struct ebb_ctx *ctx, int ordinal, bool *there)
{
    struct ebb_library *library;
    int active = 1;
    unsigned int flags = 0;
    CUdevice device = 0;
    *there = true;
    EBB_TRY(ebb_library_try(ctx, "libcuda.so.1", &library, NULL));
    if (library == NULL) return EBB_OK;
    CUresult (*get)(CUdevice *, int) = NULL;
    CUresult (*state)(CUdevice, unsigned int *, int *) = NULL;
    void *symbol = ebb_library_symbol(library, "cuDeviceGet");
    memcpy(&get, &symbol, sizeof symbol);
    symbol = ebb_library_symbol(library, "cuDevicePrimaryCtxGetState");
    memcpy(&state, &symbol, sizeof symbol);
    if (get != NULL && state != NULL && get(&device, ordinal) == CUDA_SUCCESS &&
        state(device, &flags, &active) == CUDA_SUCCESS)
        *there = active != 0;
    ebb_library_close(library);
    return EBB_OK;
}

enum ebb_status ebb_cuda_watch_memory(struct ebb_cuda_device *own)
{
    bool there;
    struct nvml_memory memory;
    EBB_TRY(find_context(own->base.ctx, own->ordinal, &there));
    if (!there && get_memory(nvml_of(own), &memory)) own->used_before = (int64_t)memory.used;
    return EBB_OK;
}

void ebb_cuda_unwatch_memory(struct ebb_cuda_device *own)
{
    nvml_close(own->nvml);
    own->nvml = NULL;
}

/* What the driver's list says of this process; -1: nothing. */
static int64_t bytes_listed(const struct ebb_cuda_device *own)
{
    struct nvml_process list[PROCESSES];
    int count = get_processes(nvml_of(own), list), ours = 0;
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        if (list[i].pid != (unsigned int)getpid()) continue;
        if (list[i].bytes == bytes_unknown) return -1;
        bytes += (int64_t)list[i].bytes;
        ours++;
    }
    if (ours > 0) return bytes;
    /* Whoever is alone in the list while we hold the GPU is we, under another number. */
    bool alone = count == 1 && list[0].bytes != bytes_unknown &&
                 (int64_t)list[0].bytes >= own->base.space[EBB_SPACE_DEVICE].bytes;
    return alone ? (int64_t)list[0].bytes : -1;
}

int64_t ebb_cuda_bytes_process(const struct ebb_device *device, enum ebb_bytes_way *way)
{
    const struct ebb_cuda_device *own = (const struct ebb_cuda_device *)device;
    struct nvml_memory memory;
    int64_t listed = bytes_listed(own);
    *way = EBB_BYTES_COUNTED;
    if (listed >= 0) return listed;
    *way = EBB_BYTES_DIFFERENCE;
    if (own->used_before >= 0 && get_memory(nvml_of(own), &memory)) {
        int64_t more = (int64_t)memory.used - own->used_before;
        /* Others have given back more than we took: then it says nothing. */
        if (more >= device->space[EBB_SPACE_DEVICE].bytes) return more;
    }
    *way = EBB_BYTES_UNKNOWN;
    return -1;
}

int64_t ebb_cuda_bytes_overhead(const struct ebb_device *device)
{
    enum ebb_bytes_way way;
    int64_t bytes = ebb_cuda_bytes_process(device, &way);
    /* A difference has in it what other processes did meanwhile. */
    return way != EBB_BYTES_COUNTED ? -1 : bytes - device->space[EBB_SPACE_DEVICE].bytes;
}

/* ---- the whole GPU --------------------------------------------------------------------------- */

int64_t ebb_cuda_bytes_free(struct ebb_ctx *ctx)
{
    int count = 0, ordinal = 0;
    size_t available = 0, total = 0;
    struct ebb_cuda_nvml *nvml = NULL;
    struct nvml_memory memory;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return 0;
    if (cudaGetDevice(&ordinal) != cudaSuccess || nvml_open(ctx, ordinal, &nvml) != EBB_OK)
        return 0;
    if (get_memory(nvml, &memory))
        available = (size_t)memory.free;
    else if (cudaMemGetInfo(&available, &total) != cudaSuccess) /* opens the GPU */
        available = 0;
    nvml_close(nvml);
    return (int64_t)available;
}

/* By NVML, which needs no GPU for it. */
static bool version_by_nvml(struct ebb_ctx *ctx, char *out, size_t out_bytes)
{
    struct ebb_library *library = NULL;
    int (*start)(void) = NULL, (*stop)(void) = NULL;
    int (*version)(char *, unsigned int) = NULL;
    if (ebb_library_try(ctx, "libnvidia-ml.so.1", &library, NULL) != EBB_OK || library == NULL)
        return false;
    void *symbol = ebb_library_symbol(library, "nvmlInit_v2");
    memcpy(&start, &symbol, sizeof symbol);
    symbol = ebb_library_symbol(library, "nvmlShutdown");
    memcpy(&stop, &symbol, sizeof symbol);
    symbol = ebb_library_symbol(library, "nvmlSystemGetDriverVersion");
    memcpy(&version, &symbol, sizeof symbol);
    bool known = false;
    if (start != NULL && stop != NULL && version != NULL && start() == NVML_SUCCESS) {
        known = version(out, (unsigned int)out_bytes) == NVML_SUCCESS && out[0] != '\0';
        (void)stop();
    }
    ebb_library_close(library);
    return known;
}

bool ebb_cuda_driver_version(struct ebb_ctx *ctx, char *out, size_t out_bytes)
{
    char text[512] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    if (file != NULL) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    return ebb_gpu_driver_version(text, out, out_bytes) || version_by_nvml(ctx, out, out_bytes);
}

static void find_name(struct ebb_gpu_user *user)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/comm", (unsigned int)user->pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    if (fgets(user->name, sizeof user->name, file) == NULL) user->name[0] = '\0';
    user->name[strcspn(user->name, "\n")] = '\0';
    fclose(file);
}

const char *ebb_cuda_other_users(const struct ebb_cuda_device *own, char *out, size_t out_bytes)
{
    struct nvml_process list[PROCESSES];
    struct ebb_gpu_user users[PROCESSES];
    int count = get_processes(nvml_of(own), list), others = 0;
    for (int i = 0; i < count; i++) {
        if (list[i].pid == (unsigned int)getpid()) continue;
        struct ebb_gpu_user *user = &users[others++];
        *user =
            (struct ebb_gpu_user){.pid = list[i].pid,
                                  .bytes =
                                      list[i].bytes == bytes_unknown ? -1 : (int64_t)list[i].bytes};
        find_name(user);
    }
    out[0] = '\0';
    if (others == 0) return out;
    out[0] = '\n';
    ebb_gpu_users_text(users, others, out + 1, out_bytes - 1);
    return out;
}
