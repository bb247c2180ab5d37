/* A build without the CUDA toolkit: there is no CUDA backend.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_int.h"

const struct ebb_device_backend *ebb_device_backend_cuda(void)
{
    return NULL;
}
