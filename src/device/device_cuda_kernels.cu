/* The torture's delay, the tests' fault, and the question whether this build has code for the GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_cuda_int.h"

static __global__ void delay_kernel(long long nanoseconds)
{
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(200);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

cudaError_t ebb_cuda_run_delay(cudaStream_t stream, int microseconds)
{
    delay_kernel<<<1, 1, 0, stream>>>((long long)microseconds * 1000);
    return cudaGetLastError();
}

static __global__ void fault_kernel(unsigned long long address)
{
    *(volatile int *)address = 1;
}

cudaError_t ebb_cuda_run_fault(cudaStream_t stream)
{
    fault_kernel<<<1, 1, 0, stream>>>(64);
    return cudaGetLastError();
}

cudaError_t ebb_cuda_has_code(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)delay_kernel);
}
