/* Whether the machine has an NVIDIA GPU, by what the kernel shows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_gpu_seen.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    VENDOR_NVIDIA = 0x10de,
    CLASS_DISPLAY = 0x03 /* the highest byte of three: VGA and 3D controllers */
};

static bool is_there(const char *root, const char *name)
{
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s%s", root, name);
    return bytes > 0 && (size_t)bytes < sizeof path && access(path, F_OK) == 0;
}

/* "0x10de" of a device's file; -1: it cannot be read. */
static long read_number(const char *folder, const char *device, const char *name)
{
    char path[PATH_MAX], text[32];
    int bytes = snprintf(path, sizeof path, "%s/%s/%s", folder, device, name);
    if (bytes < 0 || (size_t)bytes >= sizeof path) return -1;
    FILE *file = fopen(path, "r");
    if (file == NULL) return -1;
    bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    return read ? strtol(text, NULL, 16) : -1;
}

static bool on_the_bus(const char *root)
{
    char folder[PATH_MAX];
    int bytes = snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices", root);
    if (bytes < 0 || (size_t)bytes >= sizeof folder) return false;
    DIR *devices = opendir(folder);
    if (devices == NULL) return false;
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(devices)) != NULL;)
        found = entry->d_name[0] != '.' &&
                read_number(folder, entry->d_name, "vendor") == VENDOR_NVIDIA &&
                read_number(folder, entry->d_name, "class") >> 16 == CLASS_DISPLAY;
    closedir(devices);
    return found;
}

bool ebb_gpu_seen(const char *root)
{
    return is_there(root, "/dev/nvidia0") || is_there(root, "/proc/driver/nvidia/gpus") ||
           on_the_bus(root);
}

bool ebb_gpu_hidden(const char *visible)
{
    return visible != NULL && (visible[0] == '\0' || strncmp(visible, "-1", 2) == 0);
}
