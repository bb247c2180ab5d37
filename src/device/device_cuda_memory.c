/* Memory of the CUDA backend: one cudaMalloc for the arena, one pinned slab for the host space.
 *
 * The host slab is anonymous memory in huge pages, touched by several threads and then
 * registered: a third of the time that cudaHostAlloc takes. That happens in a thread of its own
 * while the model is loaded; the first copy that needs the slab waits for it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/text.h"

enum {
    TOUCHERS = 8, /* threads that touch the host slab */
    HUGE_PAGE = 2 << 20
};

/* ---- the arena ------------------------------------------------------------------------------- */

static enum ebb_status reserve_device(struct ebb_cuda_device *own, int64_t bytes)
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
    EBB_TRY(ebb_cuda_check(own->base.ctx, error, "cudaMalloc"));
    own->base.space[EBB_SPACE_DEVICE] =
        (struct ebb_device_space){.base = (char *)base, .bytes = bytes};
    EBB_TRY(ebb_cuda_check(own->base.ctx, cudaMemset(base, 0, wanted), "cudaMemset"));
    return ebb_cuda_check(own->base.ctx, cudaStreamSynchronize(NULL), "clearing device memory");
}

/* ---- the slab -------------------------------------------------------------------------------- */

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

static void touch_slab(const struct ebb_cuda_slab *slab)
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
    struct ebb_cuda_device *own = (struct ebb_cuda_device *)user;
    struct ebb_cuda_slab *slab = &own->slab;
    (void)cudaSetDevice(own->ordinal);
    touch_slab(slab);
    slab->refused = cudaHostRegister(slab->start, slab->bytes, cudaHostRegisterPortable);
    slab->pinned = slab->refused == cudaSuccess;
    if (!slab->pinned) (void)cudaGetLastError();
    return NULL;
}

void ebb_cuda_join_slab(struct ebb_cuda_device *own)
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

static enum ebb_status reserve_host(struct ebb_cuda_device *own, int64_t bytes)
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

/* ---- both ------------------------------------------------------------------------------------ */

enum ebb_status ebb_cuda_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes)
{
    return space == EBB_SPACE_DEVICE ? reserve_device(ebb_cuda_of(device), bytes)
                                     : reserve_host(ebb_cuda_of(device), bytes);
}

void ebb_cuda_free_memory(struct ebb_cuda_device *own)
{
    if (own->slab.pinned) (void)cudaHostUnregister(own->slab.start);
    if (own->slab.start != NULL) munmap(own->slab.start, own->slab.bytes);
    if (own->base.space[EBB_SPACE_DEVICE].base != NULL)
        (void)cudaFree(own->base.space[EBB_SPACE_DEVICE].base);
}

int64_t ebb_cuda_bytes_resident(const struct ebb_device *device, enum ebb_space space)
{
    return device->space[space].bytes; /* all of it is backed from the start */
}

static bool touches_host(const struct ebb_cuda_device *own, const void *at)
{
    return ebb_device_space_of(&own->base, at) == EBB_SPACE_HOST;
}

enum ebb_status ebb_cuda_copy_rows(struct ebb_device *device, void *to, int64_t to_stride,
                                   const void *from, int64_t from_stride, int64_t row_bytes,
                                   int64_t rows)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (touches_host(own, to) || touches_host(own, from)) ebb_cuda_join_slab(own);
    cudaError_t error = rows == 1 || (to_stride == row_bytes && from_stride == row_bytes)
                            ? cudaMemcpy(to, from, (size_t)(row_bytes * rows), cudaMemcpyDefault)
                            : cudaMemcpy2D(to, (size_t)to_stride, from, (size_t)from_stride,
                                           (size_t)row_bytes, (size_t)rows, cudaMemcpyDefault);
    /* A copy inside the device returns before it is done. */
    if (error == cudaSuccess) error = cudaStreamSynchronize(NULL);
    return ebb_cuda_check(device->ctx, error, "a copy by the host");
}

enum ebb_status ebb_cuda_fill(struct ebb_device *device, void *to, int byte, int64_t bytes)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (touches_host(own, to)) {
        ebb_cuda_join_slab(own);
        memset(to, byte, (size_t)bytes);
        return EBB_OK;
    }
    EBB_TRY(ebb_cuda_check(device->ctx, cudaMemset(to, byte, (size_t)bytes), "cudaMemset"));
    return ebb_cuda_check(device->ctx, cudaStreamSynchronize(NULL), "filling device memory");
}

enum ebb_status ebb_cuda_block_create(struct ebb_device *device, int64_t bytes, bool shared,
                                      void **block)
{
    /* Shared memory is the host's, pinned: the GPU reaches it over the bus under the same
     * address. */
    cudaError_t error = shared ? cudaHostAlloc(block, (size_t)bytes, cudaHostAllocMapped)
                               : cudaMalloc(block, (size_t)bytes);
    EBB_TRY(ebb_cuda_check(device->ctx, error, "the allocation of a block"));
    EBB_TRY(ebb_cuda_check(device->ctx, cudaMemset(*block, 0, (size_t)bytes), "cudaMemset"));
    return ebb_cuda_check(device->ctx, cudaStreamSynchronize(NULL), "clearing a block");
}

void ebb_cuda_block_free(struct ebb_device *device, void *block)
{
    struct cudaPointerAttributes facts;
    (void)device;
    if (cudaPointerGetAttributes(&facts, block) == cudaSuccess && facts.type == cudaMemoryTypeHost)
        (void)cudaFreeHost(block);
    else
        (void)cudaFree(block);
}
