/* Runs a fuzz target over saved inputs: files, or all files of folders. It prints each name first,
 * so that the last one is the culprit when the target stops the program or takes too long.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

enum { SECONDS = 10, PATH_ROOM = 4096 }; /* an input needs milliseconds, without a sanitizer */

static int fail(const char *path)
{
    perror(path);
    return -1;
}

static int replay_file(const char *path, long bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return fail(path);
    uint8_t *data = (uint8_t *)malloc(bytes > 0 ? (size_t)bytes : 1);
    size_t got = data == NULL ? 0 : fread(data, 1, (size_t)bytes, file);
    fclose(file);
    if (data == NULL || got != (size_t)bytes) {
        free(data);
        return fail(path);
    }
    printf("%s\n", path);
    fflush(stdout);
    alarm(SECONDS);
    (void)LLVMFuzzerTestOneInput(data, got);
    alarm(0);
    free(data);
    return 1;
}

static int replay(const char *path);

/* In the order of names, whatever the file system's order is. */
static int replay_folder(const char *path)
{
    struct dirent **names;
    int count = scandir(path, &names, NULL, alphasort);
    if (count < 0) return fail(path);
    int done = 0;
    for (int i = 0; i < count; i++) {
        char inner[PATH_ROOM];
        snprintf(inner, sizeof inner, "%s/%s", path, names[i]->d_name);
        int one = names[i]->d_name[0] == '.' ? 0 : replay(inner);
        done = one < 0 || done < 0 ? -1 : done + one;
        free(names[i]);
    }
    free(names);
    return done;
}

/* The number of inputs, or -1. */
static int replay(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return fail(path);
    return S_ISDIR(info.st_mode) ? replay_folder(path) : replay_file(path, (long)info.st_size);
}

int main(int count, char **arguments)
{
    int total = 0;
    for (int i = 1; i < count; i++) {
        int one = replay(arguments[i]);
        if (one < 0) return 1;
        total += one;
    }
    printf("%d inputs\n", total);
    return total > 0 ? 0 : 1; /* no input is no test */
}
