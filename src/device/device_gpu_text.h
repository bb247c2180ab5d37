/* What is said where a GPU is missing, full or lost: text from facts, so that tests can have every
 * case on any machine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_GPU_TEXT_H
#define EBB_DEVICE_GPU_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why there is no GPU to use. Versions are CUDA's: 12040 is 12.4. */
struct ebb_gpu_missing {
    int driver;          /* what the driver serves; 0: there is no driver */
    int wanted;          /* what this build needs */
    bool none;           /* the driver is there and shows no GPU */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set */
    bool kernel_driver;  /* NVIDIA's kernel module is loaded */
    bool amd;            /* the kernel has an AMD GPU to compute on */
    const char *error;   /* the runtime's words where it is none of these */
};
/* One line, without "the GPU cannot be used:" before it. Returns `out`. */
const char *ebb_gpu_missing_text(const struct ebb_gpu_missing *facts, char *out, size_t out_bytes);

/* The driver's version, "580.159.04", from the text of /proc/driver/nvidia/version. False: the text
 * has none, and `out` is "". */
bool ebb_gpu_driver_version(const char *text, char *out, size_t out_bytes);

/* A process that uses the GPU. */
struct ebb_gpu_user {
    uint32_t pid;
    char name[32]; /* "": not known */
    int64_t bytes; /* below 0: not known */
};
/* "process 4711 (python3) uses 12.5 GiB", or "processes ... use: ..., and 3 more", the largest
 * first; "" for none. Sorts `users`. Returns `out`. */
const char *ebb_gpu_users_text(struct ebb_gpu_user *users, int count, char *out, size_t out_bytes);

/* What to do about a GPU that this process has lost. `hardware`: it is the GPU's own fault, not a
 * program's. */
const char *ebb_gpu_lost_advice(bool hardware);

#ifdef __cplusplus
}
#endif
#endif
