/* Files: mapping, folders, and writers that leave the whole file or nothing, whatever fails
 * underneath.
 *
 * write, fsync and rename are replaced in this program, so that a full disk, a short write or an
 * interruption can be made to happen at a chosen call. Real limits (a small file system, the file
 * size limit) are tried as well.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

/* ---- replaced system calls ---- */

static struct {
    bool on;
    int error;         /* what write says once `allowed` bytes are through */
    size_t allowed;    /* bytes */
    size_t most;       /* bytes in one call, 0: no limit */
    int interruptions; /* calls that are interrupted first */
    int calls;
    int fsync_error, rename_error;
} fault;

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (!fault.on || fd <= STDERR_FILENO) return syscall(SYS_write, fd, data, bytes);
    fault.calls++;
    if (fault.interruptions > 0) {
        fault.interruptions--;
        errno = EINTR;
        return -1;
    }
    if (fault.error != 0 && fault.allowed == 0) {
        errno = fault.error;
        return -1;
    }
    if (fault.most > 0 && bytes > fault.most) bytes = fault.most;
    if (fault.error != 0 && bytes > fault.allowed) bytes = fault.allowed;
    ssize_t n = syscall(SYS_write, fd, data, bytes);
    if (n > 0 && fault.error != 0) fault.allowed -= (size_t)n;
    return n;
}

int fsync(int fd)
{
    if (fault.on && fault.fsync_error != 0) {
        errno = fault.fsync_error;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    if (fault.on && fault.rename_error != 0) {
        errno = fault.rename_error;
        return -1;
    }
    return (int)syscall(SYS_renameat2, -100, from, -100, to, 0);
}

/* ---- a folder for each case ---- */

struct place {
    struct ebb_ctx *ctx;
    char dir[256];
    char path[300];
};

static int make_place(void **state)
{
    static struct place place;
    memset(&fault, 0, sizeof fault);
    place.ctx = ebb_ctx_create();
    const char *root = getenv("TMPDIR");
    snprintf(place.dir, sizeof place.dir, "%.200s/ebb_file_XXXXXX", root != NULL ? root : "/tmp");
    if (place.ctx == NULL || mkdtemp(place.dir) == NULL) return -1;
    snprintf(place.path, sizeof place.path, "%s/out.bin", place.dir);
    *state = &place;
    return 0;
}

static int free_place(void **state)
{
    struct place *place = *state;
    memset(&fault, 0, sizeof fault);
    ebb_error_clear(place->ctx);
    enum ebb_status status = ebb_dir_remove(place->ctx, place->dir);
    bool gone = !ebb_dir_exists(place->dir);
    int64_t left = ebb_mem_bytes_now(place->ctx);
    ebb_ctx_free(place->ctx);
    return status == EBB_OK && gone && left == 0 ? 0 : -1;
}

static size_t entries(const struct place *place)
{
    char **names;
    size_t count;
    assert_int_equal(ebb_dir_list(place->ctx, place->dir, &names, &count), EBB_OK);
    ebb_dir_list_free(place->ctx, names, count);
    return count;
}

static void assert_holds(struct ebb_ctx *ctx, const char *path, const void *data, size_t bytes)
{
    struct ebb_map map;
    assert_int_equal(ebb_map_open(ctx, path, &map), EBB_OK);
    assert_int_equal(map.bytes, bytes);
    if (bytes > 0) assert_memory_equal(map.data, data, bytes);
    ebb_map_close(&map);
}

static void assert_says(struct ebb_ctx *ctx, const char *part)
{
    if (strstr(ebb_error_text(ctx), part) == NULL)
        fail_msg("'%s' is not in '%s'", part, ebb_error_text(ctx));
}

/* ---- reading ---- */

static void missing_file_says_so(void **state)
{
    struct place *place = *state;
    struct ebb_map map;
    assert_int_equal(ebb_map_open(place->ctx, place->path, &map), EBB_IO);
    assert_null(map.data);
    assert_says(place->ctx, place->path);
    assert_says(place->ctx, "does not exist");
}

static void folders_and_pipes_are_not_read(void **state)
{
    struct place *place = *state;
    struct ebb_map map;
    assert_int_equal(ebb_map_open(place->ctx, place->dir, &map), EBB_IO);
    assert_says(place->ctx, "it is a folder");
    ebb_error_clear(place->ctx);
    assert_int_equal(mkfifo(place->path, 0600), 0);
    assert_int_equal(ebb_map_open(place->ctx, place->path, &map), EBB_IO);
    assert_says(place->ctx, "pipe");
    uint64_t hash;
    assert_int_equal(ebb_file_hash(place->ctx, place->path, NULL, &hash), EBB_IO);
}

static void empty_file_maps_to_nothing(void **state)
{
    struct place *place = *state;
    assert_int_equal(ebb_file_write(place->ctx, place->path, NULL, 0), EBB_OK);
    struct ebb_map map = {(const unsigned char *)"x", 1};
    assert_int_equal(ebb_map_open(place->ctx, place->path, &map), EBB_OK);
    assert_null(map.data);
    assert_int_equal(map.bytes, 0);
    ebb_map_close(&map);
    assert_true(ebb_file_exists(place->path));
    assert_false(ebb_dir_exists(place->path));
    assert_false(ebb_file_exists(place->dir));
}

/* ---- writing ---- */

static void hash_is_xxh3_however_it_was_fed(void **state)
{
    struct place *place = *state;
    /* XXH3-64 of nothing with seed 0, from the specification's test vectors. */
    assert_true(ebb_hash_bytes(NULL, 0) == 0x2d06800538d394c2u);
    static unsigned char data[1500000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * i >> 3);
    struct ebb_writer *writer;
    assert_int_equal(ebb_writer_open(place->ctx, place->path, &writer), EBB_OK);
    size_t done = 0;
    for (size_t step = 1; done < sizeof data;
         step = step * 3 + 1) { /* below and above the writer's own buffer */
        size_t n = step < sizeof data - done ? step : sizeof data - done;
        assert_int_equal(ebb_writer_write(writer, data + done, n), EBB_OK);
        done += n;
    }
    int64_t bytes = 0;
    uint64_t hash = 0, again = 0;
    assert_int_equal(ebb_writer_commit(writer, &bytes, &hash), EBB_OK);
    assert_int_equal(bytes, sizeof data);
    assert_true(hash == ebb_hash_bytes(data, sizeof data));
    assert_int_equal(ebb_file_hash(place->ctx, place->path, &bytes, &again), EBB_OK);
    assert_int_equal(bytes, sizeof data);
    assert_true(again == hash);
    assert_holds(place->ctx, place->path, data, sizeof data);
    assert_int_equal(entries(place), 1);
}

static void nothing_shows_before_commit(void **state)
{
    struct place *place = *state;
    assert_int_equal(ebb_file_write(place->ctx, place->path, "old", 3), EBB_OK);
    struct ebb_writer *writer;
    assert_int_equal(ebb_writer_open(place->ctx, place->path, &writer), EBB_OK);
    assert_int_equal(ebb_writer_write(writer, "newer", 5), EBB_OK);
    assert_holds(place->ctx, place->path, "old", 3);
    assert_int_equal(ebb_writer_commit(writer, NULL, NULL), EBB_OK);
    assert_holds(place->ctx, place->path, "newer", 5);
    assert_int_equal(ebb_writer_open(place->ctx, place->path, &writer), EBB_OK);
    assert_int_equal(ebb_writer_write(writer, "given up", 8), EBB_OK);
    ebb_writer_abort(writer);
    ebb_writer_abort(NULL);
    assert_holds(place->ctx, place->path, "newer", 5);
    assert_int_equal(entries(place), 1);
}

static void two_writers_of_one_file_do_not_meet(void **state)
{
    struct place *place = *state;
    struct ebb_writer *a, *b;
    assert_int_equal(ebb_writer_open(place->ctx, place->path, &a), EBB_OK);
    assert_int_equal(ebb_writer_open(place->ctx, place->path, &b), EBB_OK);
    assert_int_equal(ebb_writer_write(a, "first", 5), EBB_OK);
    assert_int_equal(ebb_writer_write(b, "second", 6), EBB_OK);
    assert_int_equal(ebb_writer_commit(a, NULL, NULL), EBB_OK);
    assert_int_equal(ebb_writer_commit(b, NULL, NULL), EBB_OK);
    assert_holds(place->ctx, place->path, "second", 6);
    assert_int_equal(entries(place), 1);
}

static void short_and_interrupted_writes_go_on(void **state)
{
    struct place *place = *state;
    static char data[700000];
    memset(data, 'w', sizeof data);
    fault.on = true;
    fault.most = 1000;
    fault.interruptions = 5;
    assert_int_equal(ebb_file_write(place->ctx, place->path, data, sizeof data), EBB_OK);
    assert_int_equal(fault.calls, 705);
    assert_holds(place->ctx, place->path, data, sizeof data);
}

static void full_disk_leaves_the_old_file_and_no_other(void **state)
{
    struct place *place = *state;
    static char data[600000];
    assert_int_equal(ebb_file_write(place->ctx, place->path, "old", 3), EBB_OK);
    const size_t allowed[] = {0, 1, 262144, 599999};
    for (size_t i = 0; i < 4; i++) {
        ebb_error_clear(place->ctx);
        fault.on = true;
        fault.error = ENOSPC;
        fault.allowed = allowed[i];
        assert_int_equal(ebb_file_write(place->ctx, place->path, data, sizeof data), EBB_IO);
        fault.on = false;
        char part[64];
        snprintf(part, sizeof part, "%zu more bytes", sizeof data - allowed[i]);
        assert_says(place->ctx, "disk full");
        assert_says(place->ctx, place->path);
        assert_says(place->ctx, part);
        assert_holds(place->ctx, place->path, "old", 3);
        assert_int_equal(entries(place), 1);
    }
}

static void writer_stays_failed_after_the_first_failure(void **state)
{
    struct place *place = *state;
    static char data[300000];
    struct ebb_writer *writer;
    assert_int_equal(ebb_writer_open(place->ctx, place->path, &writer), EBB_OK);
    fault.on = true;
    fault.error = EIO;
    assert_int_equal(ebb_writer_write(writer, data, sizeof data), EBB_IO);
    fault.on = false;
    assert_says(place->ctx, "Input/output error");
    assert_int_equal(ebb_writer_write(writer, "more", 4), EBB_IO);
    int64_t bytes = 7;
    assert_int_equal(ebb_writer_commit(writer, &bytes, NULL), EBB_IO);
    assert_int_equal(bytes, 7);
    assert_int_equal(entries(place), 0);
}

static void failing_flush_or_rename_leaves_nothing(void **state)
{
    struct place *place = *state;
    fault.on = true;
    fault.fsync_error = ENOSPC; /* file systems that allocate late say it here */
    assert_int_equal(ebb_file_write(place->ctx, place->path, "x", 1), EBB_IO);
    assert_says(place->ctx, "disk full");
    assert_int_equal(entries(place), 0);
    ebb_error_clear(place->ctx);
    fault.fsync_error = 0;
    fault.rename_error = EROFS;
    assert_int_equal(ebb_file_write(place->ctx, place->path, "x", 1), EBB_IO);
    assert_says(place->ctx, "Read-only file system");
    fault.on = false;
    assert_int_equal(entries(place), 0);
}

static void what_does_not_fit_behind_a_file_is_taken_back(void **state)
{
    struct place *place = *state;
    assert_int_equal(ebb_file_write(place->ctx, place->path, "old", 3), EBB_OK);
    int fd = open(place->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ebb_file_append(place->ctx, fd, place->path, "a line", " new", 4), EBB_OK);
    assert_holds(place->ctx, place->path, "old new", 7);
    fault.on = true;
    fault.error = ENOSPC;
    fault.allowed = 2;
    assert_int_equal(ebb_file_append(place->ctx, fd, place->path, "a line", " more", 5), EBB_IO);
    fault.on = false;
    assert_says(place->ctx, "disk full: cannot add a line to");
    assert_says(place->ctx, place->path);
    assert_holds(place->ctx, place->path, "old new", 7);
    ebb_error_clear(place->ctx);
    fault.error = 0;
    fault.on = true;
    fault.most = 2;
    fault.interruptions = 1;
    assert_int_equal(ebb_file_append(place->ctx, fd, place->path, "a line", " more", 5), EBB_OK);
    fault.on = false;
    assert_holds(place->ctx, place->path, "old new more", 12);
    close(fd);
}

static void file_size_limit_is_named(void **state)
{
    struct place *place = *state;
    static char data[400000];
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 100000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    enum ebb_status status = ebb_file_write(place->ctx, place->path, data, sizeof data);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, EBB_IO);
    assert_says(place->ctx, "300000 more bytes wanted after 100000");
    assert_says(place->ctx, "file size limit");
    assert_int_equal(entries(place), 0);
}

/* In a child, because it needs mounts of its own. Returns 77 where mounting is not allowed. */
static int fill_small_disk(struct place *place)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 77;
    if (mount("none", place->dir, "tmpfs", 0, "size=1m") != 0) return 77;
    static char data[3000000];
    int result = 0;
    if (ebb_file_write(place->ctx, place->path, "old", 3) != EBB_OK) result = 1;
    if (result == 0 && ebb_file_write(place->ctx, place->path, data, sizeof data) != EBB_IO)
        result = 2;
    const char *text = ebb_error_text(place->ctx);
    if (result == 0 && (strstr(text, "disk full") == NULL || strstr(text, "0 B left") == NULL)) {
        print_message("%s\n", text);
        result = 3;
    }
    if (result == 0 && entries(place) != 1) result = 4;
    uint64_t hash = 0;
    int64_t bytes = 0;
    ebb_error_clear(place->ctx);
    if (result == 0 &&
        (ebb_file_hash(place->ctx, place->path, &bytes, &hash) != EBB_OK || bytes != 3))
        result = 5;
    umount2(place->dir, 2);
    return result;
}

static void real_full_disk_leaves_the_old_file(void **state)
{
    struct place *place = *state;
    pid_t child = fork();
    if (child == 0) _exit(fill_small_disk(place));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no right to mount a small file system here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void bad_targets_are_refused_before_anything_is_written(void **state)
{
    struct place *place = *state;
    struct ebb_writer *writer;
    assert_int_equal(ebb_writer_open(place->ctx, place->dir, &writer), EBB_IO);
    assert_null(writer);
    assert_says(place->ctx, "a folder, not a regular file");
    ebb_error_clear(place->ctx);
    assert_int_equal(ebb_file_write(place->ctx, "/dev/null", "x", 1), EBB_IO);
    assert_says(place->ctx, "pipe or device");
    ebb_error_clear(place->ctx);
    char path[400];
    snprintf(path, sizeof path, "%s/none/x", place->dir);
    assert_int_equal(ebb_writer_open(place->ctx, path, &writer), EBB_IO);
    assert_says(place->ctx, "there is no folder");
}

static void every_failing_allocation_is_survived(void **state)
{
    struct place *place = *state;
    int nth = 1;
    for (;; nth++) {
        ebb_error_clear(place->ctx);
        ebb_mem_fail_nth(place->ctx, nth, false);
        enum ebb_status status = ebb_file_write(place->ctx, place->path, "abc", 3);
        if (status == EBB_OK) break;
        assert_int_equal(status, EBB_NO_MEMORY);
        ebb_mem_fail_nth(place->ctx, 0, false);
        assert_int_equal(entries(place), 0);
    }
    ebb_mem_fail_nth(place->ctx, 0, false);
    assert_true(nth > 3);
    for (nth = 1;; nth++) {
        ebb_error_clear(place->ctx);
        ebb_mem_fail_nth(place->ctx, nth, false);
        char **names;
        size_t count;
        enum ebb_status status = ebb_dir_list(place->ctx, place->dir, &names, &count);
        if (status == EBB_OK) {
            ebb_mem_fail_nth(place->ctx, 0, false);
            ebb_dir_list_free(place->ctx, names, count);
            break;
        }
        assert_null(names);
    }
    assert_true(nth > 2);
}

static void copy_is_equal_and_whole(void **state)
{
    struct place *place = *state;
    static char data[1100000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i % 251);
    char copy[400];
    snprintf(copy, sizeof copy, "%s/copy.bin", place->dir);
    assert_int_equal(ebb_file_copy(place->ctx, place->path, copy), EBB_IO);
    assert_false(ebb_file_exists(copy));
    ebb_error_clear(place->ctx);
    assert_int_equal(ebb_file_write(place->ctx, place->path, data, sizeof data), EBB_OK);
    assert_int_equal(ebb_file_copy(place->ctx, place->path, copy), EBB_OK);
    assert_holds(place->ctx, copy, data, sizeof data);
    fault.on = true;
    fault.error = ENOSPC;
    fault.allowed = 1000000;
    unlink(copy);
    assert_int_equal(ebb_file_copy(place->ctx, place->path, copy), EBB_IO);
    fault.on = false;
    assert_int_equal(entries(place), 1);
}

/* ---- folders ---- */

static void folders_are_created_listed_and_removed(void **state)
{
    struct place *place = *state;
    struct ebb_ctx *ctx = place->ctx;
    char deep[400], path[500];
    snprintf(deep, sizeof deep, "%s/a//b/c/", place->dir);
    assert_int_equal(ebb_dir_create(ctx, deep), EBB_OK);
    assert_int_equal(ebb_dir_create(ctx, deep), EBB_OK);
    assert_true(ebb_dir_exists(deep));
    static const char *const made[] = {"b.txt", "B.txt", "a10", "a2", ".hidden"};
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s%s", deep, made[i]);
        assert_int_equal(ebb_file_write(ctx, path, "x", 1), EBB_OK);
    }
    char **names;
    size_t count;
    assert_int_equal(ebb_dir_list(ctx, deep, &names, &count), EBB_OK);
    static const char *const sorted[] = {".hidden", "B.txt", "a10", "a2", "b.txt"};
    assert_int_equal(count, 5);
    for (size_t i = 0; i < 5; i++) assert_string_equal(names[i], sorted[i]);
    ebb_dir_list_free(ctx, names, count);
    snprintf(path, sizeof path, "%s/a", place->dir);
    assert_int_equal(ebb_dir_remove(ctx, path), EBB_OK);
    assert_false(ebb_dir_exists(path));
    assert_int_equal(ebb_dir_remove(ctx, path), EBB_OK);
    assert_int_equal(ebb_dir_list(ctx, path, &names, &count), EBB_IO);
    assert_null(names);
}

static void removal_does_not_follow_links(void **state)
{
    struct place *place = *state;
    char outside[400], inside[400], link[500];
    snprintf(outside, sizeof outside, "%s/outside", place->dir);
    snprintf(inside, sizeof inside, "%s/inside", place->dir);
    snprintf(link, sizeof link, "%s/link", inside);
    assert_int_equal(ebb_dir_create(place->ctx, outside), EBB_OK);
    assert_int_equal(ebb_dir_create(place->ctx, inside), EBB_OK);
    char file[500];
    snprintf(file, sizeof file, "%s/kept", outside);
    assert_int_equal(ebb_file_write(place->ctx, file, "x", 1), EBB_OK);
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(ebb_dir_remove(place->ctx, inside), EBB_OK);
    assert_true(ebb_file_exists(file));
    assert_int_equal(ebb_dir_remove(place->ctx, file), EBB_IO); /* a file is not a folder */
}

static void file_in_the_way_of_a_folder_is_named(void **state)
{
    struct place *place = *state;
    assert_int_equal(ebb_file_write(place->ctx, place->path, "x", 1), EBB_OK);
    assert_int_equal(ebb_dir_create(place->ctx, place->path), EBB_IO);
    assert_says(place->ctx, "a file of that name exists");
    ebb_error_clear(place->ctx);
    char below[400];
    snprintf(below, sizeof below, "%s/x", place->path);
    assert_int_equal(ebb_dir_create(place->ctx, below), EBB_IO);
    assert_says(place->ctx, place->path);
}

static void folder_commit_renames_and_never_replaces(void **state)
{
    struct place *place = *state;
    char from[400], to[400], file[500];
    snprintf(from, sizeof from, "%s/step-10.part", place->dir);
    snprintf(to, sizeof to, "%s/step-10", place->dir);
    snprintf(file, sizeof file, "%s/w", from);
    assert_int_equal(ebb_dir_create(place->ctx, from), EBB_OK);
    assert_int_equal(ebb_file_write(place->ctx, file, "x", 1), EBB_OK);
    assert_int_equal(ebb_dir_commit(place->ctx, from, to), EBB_OK);
    assert_false(ebb_dir_exists(from));
    snprintf(file, sizeof file, "%s/w", to);
    assert_holds(place->ctx, file, "x", 1);
    assert_int_equal(ebb_dir_create(place->ctx, from), EBB_OK);
    assert_int_equal(ebb_dir_commit(place->ctx, from, to), EBB_IO);
    assert_says(place->ctx, "exists already");
    assert_holds(place->ctx, file, "x", 1);
}

static void folder_replace_leaves_the_new_one_alone(void **state)
{
    struct place *place = *state;
    char from[400], to[400], file[500];
    snprintf(from, sizeof from, "%s/.step-10.tmp", place->dir);
    snprintf(to, sizeof to, "%s/step-10", place->dir);
    for (char i = '0'; i < '3'; i++) { /* the first time there is nothing to replace */
        snprintf(file, sizeof file, "%s/%c", from, i);
        assert_int_equal(ebb_dir_create(place->ctx, from), EBB_OK);
        assert_int_equal(ebb_file_write(place->ctx, file, &i, 1), EBB_OK);
        assert_int_equal(ebb_dir_replace(place->ctx, from, to), EBB_OK);
        char **names;
        size_t count;
        assert_int_equal(ebb_dir_list(place->ctx, place->dir, &names, &count), EBB_OK);
        for (size_t k = 0; k < count; k++)
            if (strncmp(names[k], ".step", 5) == 0) fail_msg("'%s' was left", names[k]);
        ebb_dir_list_free(place->ctx, names, count);
        snprintf(file, sizeof file, "%s/%c", to, i);
        assert_holds(place->ctx, file, &i, 1);
        assert_int_equal(ebb_dir_list(place->ctx, to, &names, &count), EBB_OK);
        assert_int_equal(count, 1);
        ebb_dir_list_free(place->ctx, names, count);
    }
    assert_int_equal(ebb_dir_replace(place->ctx, from, to), EBB_IO); /* nothing to put there */
    assert_true(ebb_dir_exists(to));
}

static void paths_are_joined_with_one_slash(void **state)
{
    struct place *place = *state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < 4; i++) {
        char *path = ebb_path_join(place->ctx, cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        ebb_mem_free(place->ctx, path);
    }
}

static void relative_names_are_written_where_the_process_is(void **state)
{
    struct place *place = *state;
    char old[1024];
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(place->dir), 0);
    enum ebb_status status = ebb_file_write(place->ctx, "plain.txt", "x", 1);
    assert_int_equal(chdir(old), 0);
    assert_int_equal(status, EBB_OK);
    assert_int_equal(entries(place), 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_place, free_place)
    const struct CMUnitTest tests[] = {
        CASE(missing_file_says_so),
        CASE(folders_and_pipes_are_not_read),
        CASE(empty_file_maps_to_nothing),
        CASE(hash_is_xxh3_however_it_was_fed),
        CASE(nothing_shows_before_commit),
        CASE(two_writers_of_one_file_do_not_meet),
        CASE(short_and_interrupted_writes_go_on),
        CASE(full_disk_leaves_the_old_file_and_no_other),
        CASE(writer_stays_failed_after_the_first_failure),
        CASE(failing_flush_or_rename_leaves_nothing),
        CASE(what_does_not_fit_behind_a_file_is_taken_back),
        CASE(file_size_limit_is_named),
        CASE(real_full_disk_leaves_the_old_file),
        CASE(bad_targets_are_refused_before_anything_is_written),
        CASE(every_failing_allocation_is_survived),
        CASE(copy_is_equal_and_whole),
        CASE(folders_are_created_listed_and_removed),
        CASE(removal_does_not_follow_links),
        CASE(file_in_the_way_of_a_folder_is_named),
        CASE(folder_commit_renames_and_never_replaces),
        CASE(folder_replace_leaves_the_new_one_alone),
        CASE(paths_are_joined_with_one_slash),
        CASE(relative_names_are_written_where_the_process_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
