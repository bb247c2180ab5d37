/* Files: read by mapping, written whole or not at all, hashed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* for the size of XXH3's state, which lies inside the writer */
#include <xxhash.h>

#include "base/text.h"

enum {
    WRITER_ROOM = 256 * 1024,
    READ_BYTES = 1024 * 1024,
    CALL_BYTES = 1 << 30, /* one read or write moves at most 2 GiB on Linux */
    TEMP_TRIES = 10000,
};

/* "what 'path': reason" with the reasons that people meet most put into words. */
static enum ebb_status fail_path(struct ebb_ctx *ctx, const char *what, const char *path, int error)
{
    if (error == ENOENT)
        return EBB_FAIL(ctx, EBB_IO, "cannot %s '%s': it does not exist", what, path);
    return EBB_FAIL(ctx, EBB_IO, "cannot %s '%s': %s", what, path, strerror(error));
}

/* The directory that `path` lies in; the caller frees. */
static char *parent_of(struct ebb_ctx *ctx, const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    while (end > 0 && path[end - 1] != '/') end--;
    if (end == 0) return ebb_mem_strdup(ctx, ".");
    while (end > 1 && path[end - 1] == '/') end--;
    return ebb_mem_strndup(ctx, path, end);
}

/* Makes names that were created or renamed in `dir` last. File systems that know no such thing say
 * EINVAL. */
static enum ebb_status flush_dir(struct ebb_ctx *ctx, const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_path(ctx, "open folder", dir, errno);
    int error = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    if (error != 0 && error != EINVAL && error != ENOTSUP)
        return fail_path(ctx, "flush folder", dir, error);
    return EBB_OK;
}

/* ---- reading ---- */

static enum ebb_status open_regular(struct ebb_ctx *ctx, const char *path, int *fd, int64_t *bytes)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not to wait for a pipe's other end */
    if (*fd < 0) return fail_path(ctx, "open", path, errno);
    struct stat info;
    enum ebb_status status = EBB_OK;
    if (fstat(*fd, &info) != 0)
        status = fail_path(ctx, "read", path, errno);
    else if (S_ISDIR(info.st_mode))
        status = EBB_FAIL(ctx, EBB_IO, "cannot read '%s': it is a folder, a file is wanted", path);
    else if (!S_ISREG(info.st_mode))
        status =
            EBB_FAIL(ctx, EBB_IO,
                     "cannot read '%s': it is a pipe or device, a regular file is wanted", path);
    else
        *bytes = info.st_size;
    if (status != EBB_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

enum ebb_status ebb_map_open(struct ebb_ctx *ctx, const char *path, struct ebb_map *map)
{
    int fd;
    int64_t bytes = 0;
    *map = (struct ebb_map){0};
    EBB_TRY(open_regular(ctx, path, &fd, &bytes));
    if (bytes > 0) {
        void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        int error = errno;
        if (data == MAP_FAILED) {
            close(fd);
            return fail_path(ctx, "map", path, error);
        }
        map->data = data;
        map->bytes = (size_t)bytes;
    }
    close(fd);
    return EBB_OK;
}

void ebb_map_close(struct ebb_map *map)
{
    if (map->data != NULL) munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (struct ebb_map){0};
}

void ebb_map_read_ahead(const void *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data;
    if (bytes > 0)
        (void)madvise((void *)(at / page * page), (size_t)(at % page) + bytes, MADV_WILLNEED);
}

bool ebb_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

bool ebb_dir_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Reads up to `room` bytes; less only at the file's end. -1 with errno set on failure. */
static ssize_t read_full(int fd, void *data, size_t room)
{
    size_t got = 0;
    while (got < room) {
        size_t want = room - got < CALL_BYTES ? room - got : CALL_BYTES;
        ssize_t n = read(fd, (char *)data + got, want);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

uint64_t ebb_hash_bytes(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

enum ebb_status ebb_file_hash(struct ebb_ctx *ctx, const char *path, int64_t *bytes, uint64_t *hash)
{
    int fd = -1;
    int64_t size = 0, seen = 0;
    XXH3_state_t *state = ebb_mem_alloc(ctx, sizeof *state);
    char *part = ebb_mem_alloc(ctx, READ_BYTES);
    enum ebb_status status = state != NULL && part != NULL ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) status = open_regular(ctx, path, &fd, &size);
    if (status == EBB_OK) {
        XXH3_64bits_reset(state);
        ssize_t n;
        while ((n = read_full(fd, part, READ_BYTES)) > 0) {
            XXH3_64bits_update(state, part, (size_t)n);
            seen += n;
        }
        if (n < 0) status = fail_path(ctx, "read", path, errno);
    }
    if (status == EBB_OK) {
        if (bytes != NULL) *bytes = seen;
        if (hash != NULL) *hash = XXH3_64bits_digest(state);
    }
    if (fd >= 0) close(fd);
    ebb_mem_free(ctx, part);
    ebb_mem_free(ctx, state);
    return status;
}

/* ---- folders ---- */

static enum ebb_status create_one(struct ebb_ctx *ctx, const char *path)
{
    if (mkdir(path, 0777) == 0) return EBB_OK;
    int error = errno;
    if (ebb_dir_exists(path)) return EBB_OK;
    if (error == EEXIST)
        return EBB_FAIL(ctx, EBB_IO, "cannot create folder '%s': a file of that name exists", path);
    if (error == ENOTDIR)
        return EBB_FAIL(ctx, EBB_IO,
                        "cannot create folder '%s': what lies above it is a file, not a folder",
                        path);
    return EBB_FAIL(ctx, EBB_IO, "cannot create folder '%s': %s", path, strerror(error));
}

enum ebb_status ebb_dir_create(struct ebb_ctx *ctx, const char *path)
{
    char *part = ebb_mem_strdup(ctx, path);
    if (part == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    for (char *at = part + (part[0] == '/'); *at != '\0' && status == EBB_OK; at++) {
        if (*at != '/') continue;
        *at = '\0';
        status = create_one(ctx, part);
        *at = '/';
        while (at[1] == '/') at++;
    }
    if (status == EBB_OK) status = create_one(ctx, part);
    ebb_mem_free(ctx, part);
    return status;
}

enum ebb_status ebb_dir_create_temp(struct ebb_ctx *ctx, char **path)
{
    const char *parent = ebb_environment("TMPDIR");
    if (parent == NULL || parent[0] == '\0') parent = "/tmp";
    *path = ebb_path_join(ctx, parent, "ebb-XXXXXX");
    if (*path == NULL) return EBB_NO_MEMORY;
    if (mkdtemp(*path) != NULL) return EBB_OK;
    int error = errno;
    ebb_mem_free(ctx, *path);
    *path = NULL;
    return EBB_FAIL(ctx, EBB_IO,
                    "cannot create a folder in '%s': %s\n"
                    "try:   TMPDIR=DIR, a directory that can be written to",
                    parent, strerror(error));
}

/* Links are removed, never followed. */
static enum ebb_status remove_inside(struct ebb_ctx *ctx, int dir_fd, const char *path);

static enum ebb_status remove_entry(struct ebb_ctx *ctx, int dir_fd, const char *path,
                                    const char *name)
{
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT) return EBB_OK;
    if (errno != EISDIR) return fail_path(ctx, "remove an entry of", path, errno);
    char *full = ebb_path_join(ctx, path, name);
    if (full == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        status = fail_path(ctx, "remove", full, errno);
    } else {
        status = remove_inside(ctx, fd, full);
        if (status == EBB_OK && unlinkat(dir_fd, name, AT_REMOVEDIR) != 0)
            status = fail_path(ctx, "remove", full, errno);
    }
    ebb_mem_free(ctx, full);
    return status;
}

/* Takes over `dir_fd`. */
static enum ebb_status remove_inside(struct ebb_ctx *ctx, int dir_fd, const char *path)
{
    DIR *dir = fdopendir(dir_fd);
    if (dir == NULL) {
        int error = errno;
        close(dir_fd);
        return fail_path(ctx, "read folder", path, error);
    }
    enum ebb_status status = EBB_OK;
    while (status == EBB_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            if (errno != 0) status = fail_path(ctx, "read folder", path, errno);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        status = remove_entry(ctx, dirfd(dir), path, entry->d_name);
    }
    closedir(dir);
    return status;
}

enum ebb_status ebb_dir_remove(struct ebb_ctx *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT) return EBB_OK;
        return fail_path(ctx, "remove folder", path, errno);
    }
    EBB_TRY(remove_inside(ctx, fd, path));
    if (rmdir(path) != 0 && errno != ENOENT) return fail_path(ctx, "remove folder", path, errno);
    return EBB_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void ebb_dir_list_free(struct ebb_ctx *ctx, char **names, size_t count)
{
    for (size_t i = 0; names != NULL && i < count; i++) ebb_mem_free(ctx, names[i]);
    ebb_mem_free(ctx, names);
}

static enum ebb_status list_add(struct ebb_ctx *ctx, char ***names, size_t *count, size_t *room,
                                const char *name)
{
    if (*count == *room) {
        size_t more = *room == 0 ? 16 : *room * 2;
        char **grown = ebb_mem_realloc(ctx, *names, more * sizeof **names);
        if (grown == NULL) return EBB_NO_MEMORY;
        *names = grown;
        *room = more;
    }
    char *copy = ebb_mem_strdup(ctx, name);
    if (copy == NULL) return EBB_NO_MEMORY;
    (*names)[(*count)++] = copy;
    return EBB_OK;
}

enum ebb_status ebb_dir_list(struct ebb_ctx *ctx, const char *path, char ***names, size_t *count)
{
    *names = NULL;
    *count = 0;
    DIR *dir = opendir(path);
    if (dir == NULL) return fail_path(ctx, "open folder", path, errno);
    char **found = NULL;
    size_t n = 0, room = 0;
    enum ebb_status status = EBB_OK;
    while (status == EBB_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            if (errno != 0) status = fail_path(ctx, "read folder", path, errno);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        status = list_add(ctx, &found, &n, &room, entry->d_name);
    }
    closedir(dir);
    if (status != EBB_OK) {
        ebb_dir_list_free(ctx, found, n);
        return status;
    }
    if (n > 1) qsort(found, n, sizeof *found, by_bytes);
    *names = found;
    *count = n;
    return EBB_OK;
}

char *ebb_path_join(struct ebb_ctx *ctx, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    if (n == 0) return ebb_mem_strdup(ctx, name);
    return ebb_mem_format(ctx, dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

enum ebb_status ebb_dir_commit(struct ebb_ctx *ctx, const char *from, const char *to)
{
    EBB_TRY(flush_dir(ctx, from));
    if (rename(from, to) != 0) {
        int error = errno;
        if (error == ENOTEMPTY || error == EEXIST || error == ENOTDIR)
            return EBB_FAIL(
                ctx, EBB_IO,
                "cannot rename '%s' to '%s': '%s' exists already; move or remove it first", from,
                to, to);
        return EBB_FAIL(ctx, EBB_IO, "cannot rename '%s' to '%s': %s", from, to, strerror(error));
    }
    char *parent = parent_of(ctx, to);
    if (parent == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = flush_dir(ctx, parent);
    ebb_mem_free(ctx, parent);
    return status;
}

/* For file systems without exchange: for a moment the name leads to neither. */
static enum ebb_status replace_in_two(struct ebb_ctx *ctx, const char *from, const char *to)
{
    char *aside = ebb_mem_format(ctx, "%s.old.tmp", from);
    if (aside == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_dir_remove(ctx, aside);
    if (status == EBB_OK) status = ebb_dir_commit(ctx, to, aside);
    if (status == EBB_OK) {
        status = ebb_dir_commit(ctx, from, to);
        if (status == EBB_OK)
            status = ebb_dir_remove(ctx, aside);
        else if (!ebb_dir_exists(to))
            (void)rename(aside, to); /* the first failure is the one to report */
    }
    ebb_mem_free(ctx, aside);
    return status;
}

enum ebb_status ebb_dir_replace(struct ebb_ctx *ctx, const char *from, const char *to)
{
    if (!ebb_dir_exists(to)) return ebb_dir_commit(ctx, from, to);
    EBB_TRY(flush_dir(ctx, from));
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) != 0) {
        if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
            return EBB_FAIL(ctx, EBB_IO, "cannot exchange '%s' and '%s': %s", from, to,
                            strerror(errno));
        return replace_in_two(ctx, from, to);
    }
    char *parent = parent_of(ctx, to);
    if (parent == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = flush_dir(ctx, parent);
    ebb_mem_free(ctx, parent);
    EBB_TRY(status);
    return ebb_dir_remove(ctx, from);
}

/* ---- writing ---- */

struct ebb_writer {
    XXH3_state_t hash; /* first: it wants 64-byte alignment, which ebb_mem_alloc gives */
    struct ebb_ctx *ctx;
    char *path, *dir, *temp;
    int fd;
    enum ebb_status status; /* of the first failure; from then on nothing is written */
    int64_t bytes;          /* given to the writer */
    int64_t flushed;        /* given to the file */
    size_t pending;
    char buffer[WRITER_ROOM];
};

static void writer_free(struct ebb_writer *writer)
{
    struct ebb_ctx *ctx = writer->ctx;
    if (writer->fd >= 0) close(writer->fd);
    ebb_mem_free(ctx, writer->temp);
    ebb_mem_free(ctx, writer->dir);
    ebb_mem_free(ctx, writer->path);
    ebb_mem_free(ctx, writer);
}

static enum ebb_status writer_failed(struct ebb_writer *writer, const char *what, int64_t wanted,
                                     int error)
{
    struct ebb_ctx *ctx = writer->ctx;
    if (error == ENOSPC || error == EDQUOT) {
        struct statvfs info;
        char more[32], left[32];
        int64_t available = 0;
        if (statvfs(writer->dir, &info) == 0)
            available = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
        ebb_text_bytes(wanted, more, sizeof more);
        ebb_text_bytes(available, left, sizeof left);
        writer->status =
            EBB_FAIL(ctx, EBB_IO,
                     "disk full: cannot %s '%s': %" PRId64 " more bytes (%s) wanted after %" PRId64
                     ", %s left%s\n"
                     "free some space there or choose another folder; nothing was left behind",
                     what, writer->path, wanted, more, writer->flushed, left,
                     error == EDQUOT ? " (your disk quota is used up)" : "");
    } else if (error == EFBIG) {
        writer->status = EBB_FAIL(ctx, EBB_IO,
                                  "cannot %s '%s': %" PRId64 " more bytes wanted after %" PRId64
                                  ", which the file size limit forbids (see 'ulimit -f')",
                                  what, writer->path, wanted, writer->flushed);
    } else {
        writer->status = EBB_FAIL(
            ctx, EBB_IO, "cannot %s '%s': %s (%" PRId64 " bytes written, %" PRId64 " more wanted)",
            what, writer->path, strerror(error), writer->flushed, wanted);
    }
    return writer->status;
}

/* What is there already must be a file: renaming onto a device would replace it. */
static enum ebb_status check_target(struct ebb_ctx *ctx, const char *path, const char *dir)
{
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISREG(info.st_mode)) return EBB_OK;
        return EBB_FAIL(ctx, EBB_IO, "cannot write '%s': it is %s, not a regular file", path,
                        S_ISDIR(info.st_mode) ? "a folder" : "a pipe or device");
    }
    if (!ebb_dir_exists(dir))
        return EBB_FAIL(ctx, EBB_IO, "cannot write '%s': there is no folder '%s'", path, dir);
    return EBB_OK;
}

/* The name holds the process id, so that two processes that write the same file do not meet; what
 * an older process of the same id left behind is stepped over. */
static enum ebb_status open_temp(struct ebb_writer *writer)
{
    struct ebb_ctx *ctx = writer->ctx;
    const char *slash = strrchr(writer->path, '/');
    const char *name = slash != NULL ? slash + 1 : writer->path;
    for (int i = 0; i < TEMP_TRIES; i++) {
        char temp_name[256];
        snprintf(temp_name, sizeof temp_name, ".%.200s.%ld-%d.tmp", name, (long)getpid(), i);
        ebb_mem_free(ctx, writer->temp);
        writer->temp = ebb_path_join(ctx, writer->dir, temp_name);
        if (writer->temp == NULL) return EBB_NO_MEMORY;
        writer->fd = open(writer->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->fd >= 0) return EBB_OK;
        if (errno != EEXIST) break;
    }
    return writer_failed(writer, "write", 0, errno);
}

enum ebb_status ebb_writer_open(struct ebb_ctx *ctx, const char *path, struct ebb_writer **writer)
{
    *writer = NULL;
    struct ebb_writer *fresh = ebb_mem_alloc(ctx, sizeof *fresh);
    if (fresh == NULL) return EBB_NO_MEMORY;
    fresh->ctx = ctx;
    fresh->fd = -1;
    fresh->path = ebb_mem_strdup(ctx, path);
    fresh->dir = parent_of(ctx, path);
    XXH3_64bits_reset(&fresh->hash);
    enum ebb_status status = fresh->path != NULL && fresh->dir != NULL ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) status = check_target(ctx, path, fresh->dir);
    if (status == EBB_OK) status = open_temp(fresh);
    if (status != EBB_OK) {
        writer_free(fresh);
        return status;
    }
    *writer = fresh;
    return EBB_OK;
}

static enum ebb_status write_all(struct ebb_writer *writer, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(writer->fd, data, bytes < CALL_BYTES ? bytes : CALL_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return writer_failed(writer, "write", (int64_t)bytes, n < 0 ? errno : EIO);
        data += n;
        bytes -= (size_t)n;
        writer->flushed += n;
    }
    return EBB_OK;
}

static enum ebb_status flush_pending(struct ebb_writer *writer)
{
    size_t bytes = writer->pending;
    writer->pending = 0;
    return write_all(writer, writer->buffer, bytes);
}

enum ebb_status ebb_writer_write(struct ebb_writer *writer, const void *data, size_t bytes)
{
    if (writer->status != EBB_OK) return writer->status;
    if (bytes == 0) return EBB_OK;
    XXH3_64bits_update(&writer->hash, data, bytes);
    writer->bytes += (int64_t)bytes;
    if (bytes > WRITER_ROOM - writer->pending) EBB_TRY(flush_pending(writer));
    if (bytes >= WRITER_ROOM) return write_all(writer, data, bytes);
    memcpy(writer->buffer + writer->pending, data, bytes);
    writer->pending += bytes;
    return EBB_OK;
}

/* Bytes first, then the name, then the folder that holds the name: in this order a crash at any
 * moment leaves either the old file or the new one. */
static enum ebb_status writer_finish(struct ebb_writer *writer)
{
    if (writer->status != EBB_OK) return writer->status;
    EBB_TRY(flush_pending(writer));
    if (fsync(writer->fd) != 0) return writer_failed(writer, "flush", 0, errno);
    int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) != 0) return writer_failed(writer, "close", 0, errno);
    if (rename(writer->temp, writer->path) != 0)
        return writer_failed(writer, "rename into", 0, errno);
    ebb_mem_free(writer->ctx, writer->temp);
    writer->temp = NULL; /* nothing to remove any more */
    return flush_dir(writer->ctx, writer->dir);
}

enum ebb_status ebb_writer_commit(struct ebb_writer *writer, int64_t *bytes, uint64_t *hash)
{
    enum ebb_status status = writer_finish(writer);
    if (status == EBB_OK) {
        if (bytes != NULL) *bytes = writer->bytes;
        if (hash != NULL) *hash = XXH3_64bits_digest(&writer->hash);
    }
    ebb_writer_abort(writer);
    return status;
}

void ebb_writer_abort(struct ebb_writer *writer)
{
    if (writer == NULL) return;
    if (writer->temp != NULL) unlink(writer->temp);
    writer_free(writer);
}

enum ebb_status ebb_file_write(struct ebb_ctx *ctx, const char *path, const void *data,
                               size_t bytes)
{
    struct ebb_writer *writer;
    EBB_TRY(ebb_writer_open(ctx, path, &writer));
    enum ebb_status status = ebb_writer_write(writer, data, bytes);
    if (status == EBB_OK) return ebb_writer_commit(writer, NULL, NULL);
    ebb_writer_abort(writer);
    return status;
}

enum ebb_status ebb_file_append(struct ebb_ctx *ctx, int fd, const char *path, const char *what,
                                const void *data, size_t bytes)
{
    off_t start = lseek(fd, 0, SEEK_END);
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int error = n < 0 ? errno : EIO;
            bool restored = start >= 0 && ftruncate(fd, start) == 0;
            return EBB_FAIL(ctx, EBB_IO, "%scannot add %s to '%s': %s%s",
                            error == ENOSPC || error == EDQUOT ? "disk full: " : "", what, path,
                            strerror(error), restored ? "" : "; a part of it is the file's end");
        }
        done += (size_t)n;
    }
    return EBB_OK;
}

enum ebb_status ebb_file_copy(struct ebb_ctx *ctx, const char *from, const char *to)
{
    int fd;
    int64_t size = 0;
    EBB_TRY(open_regular(ctx, from, &fd, &size));
    struct ebb_writer *writer = NULL;
    char *part = ebb_mem_alloc(ctx, READ_BYTES);
    enum ebb_status status = part != NULL ? ebb_writer_open(ctx, to, &writer) : EBB_NO_MEMORY;
    while (status == EBB_OK) {
        ssize_t n = read_full(fd, part, READ_BYTES);
        if (n < 0) status = fail_path(ctx, "read", from, errno);
        if (n <= 0) break;
        status = ebb_writer_write(writer, part, (size_t)n);
    }
    close(fd);
    ebb_mem_free(ctx, part);
    if (status == EBB_OK) return ebb_writer_commit(writer, NULL, NULL);
    ebb_writer_abort(writer);
    return status;
}
