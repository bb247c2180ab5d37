/* Philox on the GPU: the same words as ebb_philox (base/number.h). Only .cu files include this.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_RANDOM_CUDA_INT_H
#define EBB_OP_RANDOM_CUDA_INT_H

#include "op/cuda_int.cuh"

static __device__ __forceinline__ void ebb_philox_device(uint64_t key, uint64_t counter,
                                                         uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* As ebb_uniform. */
static __device__ __forceinline__ float ebb_uniform_device(uint32_t word)
{
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

#endif
