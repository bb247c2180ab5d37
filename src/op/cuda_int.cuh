/* What CUDA kernels share: elements of either storage type as fp32, sums over a block in a fixed
 * order, checks of a launch.
 *
 * Only .cu files include this. Kernels are static; a file's launchers are the extern "C"
 * functions of its x.h. A launcher takes live rows from the host's step, launches on env->stream
 * and returns; it never waits, allocates or keeps anything.
 *
 * Same numbers: no atomics on floats; every sum's order depends on sizes only, never on the
 * number of multiprocessors; and nvcc fuses no product with a sum of its own accord (-fmad=false),
 * for it does so in one copy of a loop and not in another, so that a row's bits would hang on where
 * in its block it stands. Where a kernel wants it fused it says fmaf.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_CUDA_INT_H
#define EBB_OP_CUDA_INT_H

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "op/op.h"
#include "op/scratch_int.h"

typedef __nv_bfloat16 ebb_bf16;

static __device__ __forceinline__ float ebb_load(const float *at)
{
    return *at;
}
static __device__ __forceinline__ float ebb_load(const ebb_bf16 *at)
{
    return __bfloat162float(*at);
}
static __device__ __forceinline__ void ebb_store(float *at, float value)
{
    *at = value;
}
static __device__ __forceinline__ void ebb_store(ebb_bf16 *at, float value)
{
    *at = __float2bfloat16_rn(value);
}

/* The sum over a warp, the same in each lane. */
template <typename T> static __device__ __forceinline__ T ebb_warp_sum(T value)
{
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* The sum over a block of up to 1024 threads (a multiple of 32), the same in each thread. `shared`
 * has 32 places; it may be used again after the call. */
template <typename T> static __device__ T ebb_block_sum(T value, T *shared)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    value = ebb_warp_sum(value);
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = lane < warps ? shared[lane] : T(0);
    value = ebb_warp_sum(value);
    __syncthreads();
    return value;
}

/* Row `row` of a view. */
template <typename T>
static __host__ __device__ __forceinline__ T *ebb_row(T *base, int64_t row, int64_t stride)
{
    return base + row * stride;
}

static inline int64_t ebb_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A grid's x from a count. Along y a GPU takes 65535 blocks, so whatever grows with rows or columns
 * goes into x; more than that takes are more elements than any GPU's memory. */
static inline unsigned ebb_blocks(int64_t count)
{
    EBB_ASSERT(count > 0 && count <= INT32_MAX);
    return (unsigned)count;
}

/* After a launch. */
static inline enum ebb_status ebb_launched(const struct ebb_op_env *env, const char *op)
{
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_DEVICE, "the GPU failed at op '%s': %s", op,
                    cudaGetErrorString(error));
}

static inline cudaStream_t ebb_stream(const struct ebb_op_env *env)
{
    return (cudaStream_t)env->stream;
}

static inline bool ebb_present(const struct ebb_view *view)
{
    return view->tensor >= 0;
}

template <typename T> static inline T *ebb_data(const struct ebb_op_env *env,
                                                const struct ebb_view *view)
{
    return (T *)ebb_view_data(env, view);
}

/* ---- sums of rows: parts of EBB_CUDA_PART_ROWS rows into lines, then the lines --------------- */

/* sum[j] += the column's values in all lines, in ascending order. A block has 32 columns: all its
 * threads fetch EBB_LINES lines of them, so that many loads are in flight, and a warp adds. */
enum { EBB_LINES = 128, EBB_LINE_WARPS = 8 };

static __global__ void __launch_bounds__(32 * EBB_LINE_WARPS)
    ebb_add_lines_kernel(const float *lines, int64_t count, int64_t stride, int64_t cols,
                         float *sum)
{
    __shared__ float some[EBB_LINES][32];
    int64_t j = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float value = threadIdx.y == 0 && j < cols ? sum[j] : 0.0f;
    for (int64_t first = 0; first < count; first += EBB_LINES) {
        int n = count - first < EBB_LINES ? (int)(count - first) : EBB_LINES;
#pragma unroll
        for (int k = 0; k < EBB_LINES / EBB_LINE_WARPS; k++) {
            int i = k * EBB_LINE_WARPS + (int)threadIdx.y;
            if (i < n && j < cols) some[i][threadIdx.x] = lines[(first + i) * stride + j];
        }
        __syncthreads();
        if (threadIdx.y == 0 && j < cols) {
#pragma unroll 16
            for (int i = 0; i < n; i++) value += some[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (threadIdx.y == 0 && j < cols) sum[j] = value;
}

static inline void ebb_add_lines(const struct ebb_op_env *env, const float *lines, int64_t count,
                                 int64_t stride, int64_t cols, float *sum)
{
    const dim3 block(32, EBB_LINE_WARPS);
    ebb_add_lines_kernel<<<ebb_blocks(ebb_ceil_div(cols, 32)), block, 0, ebb_stream(env)>>>(
        lines, count, stride, cols, sum);
}

#endif
