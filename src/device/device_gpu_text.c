/* What is said where a GPU is missing, full or lost.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_gpu_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { USERS_NAMED = 4 };

static const char *no_driver_text(const struct ebb_gpu_missing *facts)
{
    if (facts->kernel_driver)
        return "NVIDIA's kernel module is loaded, but its library libcuda.so.1 is not to be found "
               "(a container must be started with the GPU: docker run --gpus all)";
    if (facts->amd)
        return "there is no NVIDIA driver (libcuda.so.1); the AMD GPU of this machine is not "
               "supported, Ebb computes on NVIDIA's";
    return "there is no NVIDIA driver (libcuda.so.1)";
}

const char *ebb_gpu_missing_text(const struct ebb_gpu_missing *facts, char *out, size_t out_bytes)
{
    if (facts->driver == 0)
        snprintf(out, out_bytes, "%s", no_driver_text(facts));
    else if (facts->driver < facts->wanted)
        snprintf(out, out_bytes,
                 "the NVIDIA driver serves CUDA %d.%d, and this build needs %d.%d or newer: update "
                 "the driver, or build with an older toolkit",
                 facts->driver / 1000, facts->driver % 1000 / 10, facts->wanted / 1000,
                 facts->wanted % 1000 / 10);
    else if (facts->none && facts->visible != NULL)
        snprintf(out, out_bytes,
                 "the NVIDIA driver shows no GPU, because CUDA_VISIBLE_DEVICES is '%.100s': unset "
                 "it, or set it to one that 'nvidia-smi -L' lists",
                 facts->visible);
    else if (facts->none)
        snprintf(out, out_bytes,
                 "the NVIDIA driver sees no GPU ('nvidia-smi -L' lists those that it has)");
    else
        snprintf(out, out_bytes, "the GPU does not answer: %s",
                 facts->error != NULL ? facts->error : "no reason is given");
    return out;
}

/* Its first line is "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ", then a date; of
 * open modules "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  ...". */
bool ebb_gpu_driver_version(const char *text, char *out, size_t out_bytes)
{
    static const char begin[] = "NVRM version:", blanks[] = " \t";
    out[0] = '\0';
    if (strncmp(text, begin, strlen(begin)) != 0) return false;
    const char *end = text + strcspn(text, "\n"), *word = text + strlen(begin);
    for (word += strspn(word, blanks); word < end; word += strspn(word, blanks)) {
        size_t bytes = strcspn(word, " \t\n"), number = strspn(word, "0123456789.");
        if (number == bytes && bytes < out_bytes && memchr(word, '.', bytes) != NULL) {
            snprintf(out, out_bytes, "%.*s", (int)bytes, word);
            return true;
        }
        word += bytes;
    }
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    const struct ebb_gpu_user *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static size_t add_user(const struct ebb_gpu_user *user, const char *before, const char *verb,
                       char *out, size_t out_bytes)
{
    char size[32] = "";
    if (user->bytes >= 0) ebb_text_bytes(user->bytes, size, sizeof size);
    int written = snprintf(out, out_bytes, "%s%" PRIu32 "%s%s%s%s%s", before, user->pid,
                           user->name[0] ? " (" : "", user->name, user->name[0] ? ")" : "",
                           size[0] ? verb : "", size);
    return written < 0 ? 0 : (size_t)written < out_bytes ? (size_t)written : out_bytes - 1;
}

const char *ebb_gpu_users_text(struct ebb_gpu_user *users, int count, char *out, size_t out_bytes)
{
    size_t at = 0;
    out[0] = '\0';
    if (count > 1) qsort(users, (size_t)count, sizeof *users, by_bytes);
    if (count == 1) add_user(&users[0], "process ", " uses ", out, out_bytes);
    for (int i = 0; count > 1 && i < count && i < USERS_NAMED; i++)
        at += add_user(&users[i], i == 0 ? "processes use it: " : ", ", " ", out + at,
                       out_bytes - at);
    if (count > USERS_NAMED)
        snprintf(out + at, out_bytes - at, " and %d more", count - USERS_NAMED);
    return out;
}

const char *ebb_gpu_lost_advice(bool hardware)
{
    return hardware
               ? "look for 'Xid' in the kernel's log (dmesg) and for errors in 'nvidia-smi -q': "
                 "the "
                 "GPU may want a reset, or to be replaced"
               : "start again; if it comes again, look for 'Xid' in the kernel's log (dmesg), and "
                 "report it with the configuration";
}
