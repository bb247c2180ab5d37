/* Whether the machine has an NVIDIA GPU, by what the kernel shows: told without driver, library or
 * a build for it, since it is for those who lack one of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_GPU_SEEN_H
#define EBB_DEVICE_GPU_SEEN_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In the folders dev, proc and sys below `root`, "" for those of the system: the driver's device
 * nodes, its list of GPUs, or a graphics controller of NVIDIA's on the bus. */
bool ebb_gpu_seen(const char *root);
/* CUDA_VISIBLE_DEVICES hides every GPU, as one does to have none used. NULL: it is not set. */
bool ebb_gpu_hidden(const char *visible);

#ifdef __cplusplus
}
#endif
#endif
