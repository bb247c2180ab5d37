/* What the GPU's losses share: a block's passes over a row of logits. `shared` has 32 places, which
 * may be used again after the call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_VOCAB_CUDA_INT_H
#define EBB_OP_VOCAB_CUDA_INT_H

#include "op/cuda_int.cuh"

static __device__ float ebb_block_max(float value, float *shared)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int step = 16; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = lane < warps ? shared[lane] : -INFINITY;
    for (int step = 16; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    __syncthreads();
    return value;
}

/* The row's largest logit; NaN where one is NaN, 0 where all are -inf. */
static __device__ float ebb_row_max(const float *z, int64_t vocab, float *shared)
{
    float max = -INFINITY;
    int nan = 0;
    for (int64_t j = threadIdx.x; j < vocab; j += blockDim.x) {
        max = fmaxf(max, z[j]);
        nan |= isnan(z[j]);
    }
    max = ebb_block_max(max, shared);
    if (__syncthreads_or(nan)) return NAN;
    return max == -INFINITY ? 0.0f : max;
}

/* Is the value among the n logits? */
static __device__ bool ebb_row_has(const float *z, int64_t n, float value)
{
    int found = 0;
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x) found |= z[j] == value;
    return __syncthreads_or(found) != 0;
}

/* sum of exp(scale (z - max)), the same in each thread. */
static __device__ double ebb_row_sum_exp(const float *z, int64_t vocab, float max, float scale,
                                         double *shared)
{
    double sum = 0;
    for (int64_t j = threadIdx.x; j < vocab; j += blockDim.x)
        sum += (double)expf((z[j] - max) * scale);
    return ebb_block_sum(sum, shared);
}

#endif
