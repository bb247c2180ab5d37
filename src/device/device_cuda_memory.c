/* Memory of the CUDA backend: one cudaMalloc for the arena, and the host's hand on both spaces.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

#include <string.h>

#include "base/text.h"

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
        char size[32], left[32], all[32], users[256];
        (void)cudaGetLastError();
        return EBB_FAIL(own->base.ctx, EBB_DOES_NOT_FIT,
                        "cannot reserve %s of device memory: %s of %s are free on %s%s\n"
                        "try:   a memory_budget below what is free, the end of what else runs on "
                        "this GPU, or another GPU (CUDA_VISIBLE_DEVICES)",
                        ebb_text_bytes(bytes, size, sizeof size),
                        ebb_text_bytes((int64_t)available, left, sizeof left),
                        ebb_text_bytes((int64_t)total, all, sizeof all), own->base.name,
                        ebb_cuda_other_users(own, users, sizeof users));
    }
    EBB_TRY(ebb_cuda_direct(own, error, "cudaMalloc"));
    own->base.space[EBB_SPACE_DEVICE] =
        (struct ebb_device_space){.base = (char *)base, .bytes = bytes};
    EBB_TRY(ebb_cuda_direct(own, cudaMemset(base, 0, wanted), "cudaMemset"));
    return ebb_cuda_direct(own, cudaStreamSynchronize(NULL), "clearing device memory");
}

/* ---- both ------------------------------------------------------------------------------------ */

enum ebb_status ebb_cuda_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes)
{
    return space == EBB_SPACE_DEVICE ? reserve_device(ebb_cuda_of(device), bytes)
                                     : ebb_cuda_reserve_slab(ebb_cuda_of(device), bytes);
}

int64_t ebb_cuda_bytes_resident(const struct ebb_device *device, enum ebb_space space)
{
    return device->space[space].bytes; /* all of it is backed from the start */
}

static bool touches_host(const struct ebb_cuda_device *own, const void *at)
{
    return ebb_device_space_of(&own->base, at) == EBB_SPACE_HOST;
}

/* Where a range of the slab crosses from what is not pinned to what is: the bytes before that.
 * 0: it does not. */
static int64_t crossing(const struct ebb_cuda_device *own, const void *at, int64_t bytes)
{
    int64_t pageable = ebb_cuda_pageable(own, at, bytes);
    return pageable < bytes ? pageable : 0;
}

/* The driver takes a range for pinned as a whole or not at all, so one that is half of each is
 * copied in pieces. */
static cudaError_t copy_crossing(const struct ebb_cuda_device *own, char *to, const char *from,
                                 int64_t bytes)
{
    cudaError_t error = cudaSuccess;
    while (bytes > 0 && error == cudaSuccess) {
        int64_t piece = bytes, cut = crossing(own, to, piece);
        if (cut > 0) piece = cut;
        cut = crossing(own, from, piece);
        if (cut > 0) piece = cut;
        error = cudaMemcpy(to, from, (size_t)piece, cudaMemcpyDefault);
        to += piece;
        from += piece;
        bytes -= piece;
    }
    return error;
}

static cudaError_t copy_all_rows(const struct ebb_cuda_device *own, void *to, int64_t to_stride,
                                 const void *from, int64_t from_stride, int64_t row_bytes,
                                 int64_t rows)
{
    const int64_t last = rows - 1;
    cudaError_t error = cudaSuccess;
    if (crossing(own, to, last * to_stride + row_bytes) > 0 ||
        crossing(own, from, last * from_stride + row_bytes) > 0) {
        for (int64_t i = 0; i < rows && error == cudaSuccess; i++)
            error = copy_crossing(own, (char *)to + i * to_stride,
                                  (const char *)from + i * from_stride, row_bytes);
        return error;
    }
    if (rows == 1 || (to_stride == row_bytes && from_stride == row_bytes))
        return cudaMemcpy(to, from, (size_t)(row_bytes * rows), cudaMemcpyDefault);
    return cudaMemcpy2D(to, (size_t)to_stride, from, (size_t)from_stride, (size_t)row_bytes,
                        (size_t)rows, cudaMemcpyDefault);
}

enum ebb_status ebb_cuda_copy_rows(struct ebb_device *device, void *to, int64_t to_stride,
                                   const void *from, int64_t from_stride, int64_t row_bytes,
                                   int64_t rows)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (touches_host(own, to) || touches_host(own, from)) ebb_cuda_join_slab(own);
    cudaError_t error = copy_all_rows(own, to, to_stride, from, from_stride, row_bytes, rows);
    /* A copy inside the device returns before it is done. */
    if (error == cudaSuccess) error = cudaStreamSynchronize(NULL);
    return ebb_cuda_direct(ebb_cuda_of(device), error, "a copy by the host");
}

enum ebb_status ebb_cuda_fill(struct ebb_device *device, void *to, int byte, int64_t bytes)
{
    struct ebb_cuda_device *own = ebb_cuda_of(device);
    if (touches_host(own, to)) {
        ebb_cuda_join_slab(own);
        memset(to, byte, (size_t)bytes);
        return EBB_OK;
    }
    EBB_TRY(
        ebb_cuda_direct(ebb_cuda_of(device), cudaMemset(to, byte, (size_t)bytes), "cudaMemset"));
    return ebb_cuda_direct(ebb_cuda_of(device), cudaStreamSynchronize(NULL),
                           "filling device memory");
}

enum ebb_status ebb_cuda_block_create(struct ebb_device *device, int64_t bytes, bool shared,
                                      void **block)
{
    /* Shared memory is the host's, pinned: the GPU reaches it over the bus under the same
     * address. */
    cudaError_t error = shared ? cudaHostAlloc(block, (size_t)bytes, cudaHostAllocMapped)
                               : cudaMalloc(block, (size_t)bytes);
    EBB_TRY(ebb_cuda_direct(ebb_cuda_of(device), error, "the allocation of a block"));
    if (!shared) return EBB_OK;
    EBB_TRY(
        ebb_cuda_direct(ebb_cuda_of(device), cudaMemset(*block, 0, (size_t)bytes), "cudaMemset"));
    return ebb_cuda_direct(ebb_cuda_of(device), cudaStreamSynchronize(NULL), "clearing a block");
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
