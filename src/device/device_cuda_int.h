/* What device_cuda.c wants from its kernels (device_cuda_kernels.cu).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_CUDA_INT_H
#define EBB_DEVICE_CUDA_INT_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps the stream busy for so long. */
cudaError_t ebb_cuda_delay(cudaStream_t stream, int microseconds);
/* Has this build code for the current GPU? cudaErrorNoKernelImageForDevice where it has not. */
cudaError_t ebb_cuda_has_code(void);

#ifdef __cplusplus
}
#endif
#endif
