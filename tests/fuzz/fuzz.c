/* The fuzz targets' kit. The linker sends calls of ebb_map_open and its like here (--wrap), which
 * serves the files of the folder "mem" and passes all others on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

enum { FILES = 8, NAME_ROOM = 64 };

/* Inputs have a few KiB: whoever needs more than this for one believed what a number in it says. */
static const int64_t memory_limit = (int64_t)400 << 20;

struct memory_file {
    char path[NAME_ROOM];
    const void *data; /* borrowed from the input */
    size_t bytes;
};

struct opened_file {
    struct opened_file *next;
    unsigned char data[];
};

/* libFuzzer's entry has no place for state of one's own. One thread. */
static struct {
    struct memory_file files[FILES];
    int count;
    struct opened_file *opened;
} memory;

void fuzz_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: '%s' does not hold\n", file, line, condition);
    abort();
}

static void log_nowhere(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic;
    FUZZ_CHECK(ebb_text_utf8_valid(text, strlen(text)) == strlen(text));
}

struct ebb_ctx *fuzz_open(void)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    FUZZ_CHECK(ctx != NULL);
    ebb_ctx_set_log(ctx, log_nowhere, NULL);
    return ctx;
}

void fuzz_close(struct ebb_ctx *ctx)
{
    FUZZ_CHECK(ebb_error_status(ctx) == EBB_OK);
    FUZZ_CHECK(ebb_mem_bytes_now(ctx) == 0);
    FUZZ_CHECK(ebb_mem_bytes_peak(ctx) < memory_limit);
    FUZZ_CHECK(memory.opened == NULL);
    memory.count = 0;
    ebb_ctx_free(ctx);
}

bool fuzz_succeeded(struct ebb_ctx *ctx, enum ebb_status status)
{
    const char *text = ebb_error_text(ctx);
    if (status != ebb_error_status(ctx))
        fprintf(stderr, "returned '%s', recorded '%s'\n", ebb_status_name(status), text);
    FUZZ_CHECK(status == ebb_error_status(ctx));
    FUZZ_CHECK((status == EBB_OK) == (text[0] == '\0'));
    if (ebb_text_utf8_valid(text, strlen(text)) != strlen(text)) fprintf(stderr, "'%s'\n", text);
    FUZZ_CHECK(ebb_text_utf8_valid(text, strlen(text)) == strlen(text));
    if (status == EBB_NO_MEMORY) fprintf(stderr, "%s: %s\n", ebb_error_where(ctx), text);
    FUZZ_CHECK(status != EBB_NO_MEMORY);
    if (getenv("EBB_FUZZ_TELL") != NULL && status != EBB_OK) fprintf(stderr, "%s\n", text);
    ebb_error_clear(ctx);
    return status == EBB_OK;
}

struct fuzz_text fuzz_take(const uint8_t **data, size_t *bytes)
{
    if (*bytes == 0) return (struct fuzz_text){"", 0};
    const uint8_t *nul = (const uint8_t *)memchr(*data, 0, *bytes);
    struct fuzz_text text = {(const char *)*data, nul == NULL ? *bytes : (size_t)(nul - *data)};
    size_t taken = text.bytes + (nul == NULL ? 0 : 1);
    *data += taken;
    *bytes -= taken;
    return text;
}

/* ---- files ---- */

void fuzz_file(const char *name, const void *data, size_t bytes)
{
    FUZZ_CHECK(memory.count < FILES);
    struct memory_file *file = &memory.files[memory.count++];
    int length = snprintf(file->path, sizeof file->path, "mem/%s", name);
    FUZZ_CHECK(length > 0 && length < NAME_ROOM);
    file->data = data;
    file->bytes = bytes;
}

static bool is_memory(const char *path)
{
    return strncmp(path, "mem", 3) == 0 && (path[3] == '/' || path[3] == '\0');
}

static const struct memory_file *find(const char *path)
{
    for (int i = 0; i < memory.count; i++)
        if (strcmp(memory.files[i].path, path) == 0) return &memory.files[i];
    return NULL;
}

enum ebb_status __real_ebb_map_open(struct ebb_ctx *ctx, const char *path, struct ebb_map *map);
enum ebb_status __wrap_ebb_map_open(struct ebb_ctx *ctx, const char *path, struct ebb_map *map);
enum ebb_status __wrap_ebb_map_open(struct ebb_ctx *ctx, const char *path, struct ebb_map *map)
{
    if (!is_memory(path)) return __real_ebb_map_open(ctx, path, map);
    *map = (struct ebb_map){0};
    const struct memory_file *file = find(path);
    if (file == NULL) return EBB_FAIL(ctx, EBB_IO, "cannot open '%s': it does not exist", path);
    if (file->bytes == 0) return EBB_OK;
    struct opened_file *opened = (struct opened_file *)malloc(sizeof *opened + file->bytes);
    FUZZ_CHECK(opened != NULL);
    memcpy(opened->data, file->data, file->bytes);
    opened->next = memory.opened;
    memory.opened = opened;
    *map = (struct ebb_map){opened->data, file->bytes};
    return EBB_OK;
}

void __real_ebb_map_close(struct ebb_map *map);
void __wrap_ebb_map_close(struct ebb_map *map);
void __wrap_ebb_map_close(struct ebb_map *map)
{
    for (struct opened_file **at = &memory.opened; *at != NULL; at = &(*at)->next) {
        struct opened_file *opened = *at;
        if (opened->data != map->data) continue;
        *at = opened->next;
        free(opened);
        *map = (struct ebb_map){0};
        return;
    }
    __real_ebb_map_close(map);
}

bool __real_ebb_file_exists(const char *path);
bool __wrap_ebb_file_exists(const char *path);
bool __wrap_ebb_file_exists(const char *path)
{
    return is_memory(path) ? find(path) != NULL : __real_ebb_file_exists(path);
}

bool __real_ebb_dir_exists(const char *path);
bool __wrap_ebb_dir_exists(const char *path);
bool __wrap_ebb_dir_exists(const char *path)
{
    return is_memory(path) ? path[3] == '\0' : __real_ebb_dir_exists(path);
}
