/* Shared libraries: the order in which they are looked for, and what is said where there is none.
 *
 * The libraries are copies of zlib, which this program has loaded, under names of their own. A copy
 * "in need" has the name of the C library changed, so that what it needs is nowhere.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "base/file.h"
#include "base/library.h"

struct room {
    struct ebb_ctx *ctx;
    char dir[64];
};

static int room_open(void **state)
{
    struct room *room = calloc(1, sizeof *room);
    assert_non_null(room);
    room->ctx = ebb_ctx_create();
    assert_non_null(room->ctx);
    snprintf(room->dir, sizeof room->dir, "/tmp/ebb_library_XXXXXX");
    assert_non_null(mkdtemp(room->dir));
    unsetenv("EBB_LIBRARY_PATH");
    unsetenv("VIRTUAL_ENV");
    unsetenv("CONDA_PREFIX");
    *state = room;
    return 0;
}

static int room_close(void **state)
{
    struct room *room = *state;
    assert_int_equal(ebb_dir_remove(room->ctx, room->dir), EBB_OK);
    assert_int_equal(ebb_mem_bytes_now(room->ctx), 0);
    ebb_ctx_free(room->ctx);
    free(room);
    return 0;
}

enum kind { WHOLE, IN_NEED, NO_LIBRARY };

/* Writes `below`/`name` into the room's folder. */
static void put(struct room *room, const char *below, const char *name, enum kind kind)
{
    Dl_info from;
    struct ebb_map map;
    char dir[256], path[400];
    assert_true(dladdr((void *)(uintptr_t)zlibVersion, &from) != 0);
    assert_int_equal(ebb_map_open(room->ctx, from.dli_fname, &map), EBB_OK);
    char *copy = malloc(map.bytes);
    assert_non_null(copy);
    memcpy(copy, map.data, map.bytes);
    for (char *at = copy; kind == IN_NEED; at += 4) {
        at = memmem(at, map.bytes - (size_t)(at - copy), "libc.so.6", 9);
        if (at == NULL) break;
        memcpy(at, "libq", 4);
    }
    snprintf(dir, sizeof dir, "%s/%s", room->dir, below);
    assert_int_equal(ebb_dir_create(room->ctx, dir), EBB_OK);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    size_t bytes = kind == NO_LIBRARY ? 100 : map.bytes;
    if (kind == NO_LIBRARY) memset(copy, '#', bytes);
    assert_int_equal(ebb_file_write(room->ctx, path, copy, bytes), EBB_OK);
    free(copy);
    ebb_map_close(&map);
}

/* Sets a variable to up to two folders of the room. */
static void set(struct room *room, const char *variable, const char *a, const char *b)
{
    char text[400];
    if (b == NULL)
        snprintf(text, sizeof text, "%s/%s", room->dir, a);
    else
        snprintf(text, sizeof text, "%s/%s::%s/%s", room->dir, a, room->dir, b);
    assert_int_equal(setenv(variable, text, 1), 0);
}

static void is_found(struct room *room, const char *name, const char *below)
{
    struct ebb_library *library;
    char path[400];
    if (ebb_library_open(room->ctx, name, "install it", &library) != EBB_OK)
        fail_msg("%s", ebb_error_text(room->ctx));
    snprintf(path, sizeof path, "%s/%s/%s", room->dir, below, name);
    assert_string_equal(ebb_library_path(library), path);
    ebb_library_close(library);
}

static void says(struct room *room, const char *part)
{
    if (strstr(ebb_error_text(room->ctx), part) == NULL)
        fail_msg("'%s' is not in: %s", part, ebb_error_text(room->ctx));
}

static void refuses(struct room *room, const char *name)
{
    struct ebb_library *library;
    ebb_error_clear(room->ctx);
    assert_int_equal(ebb_library_open(room->ctx, name, "install it", &library), EBB_UNSUPPORTED);
    assert_null(library);
}

/* ---- where ----------------------------------------------------------------------------------- */

static void the_loader_is_asked(void **state)
{
    struct room *room = *state;
    struct ebb_library *library;
    assert_int_equal(ebb_library_open(room->ctx, "libm.so.6", "install it", &library), EBB_OK);
    assert_int_equal(ebb_library_path(library)[0], '/');
    assert_non_null(strstr(ebb_library_path(library), "/libm.so.6"));
    ebb_library_close(library);
}

static void the_folders_of_ebb_library_path_come_before_the_loader(void **state)
{
    struct room *room = *state;
    put(room, "b", "libz.so.1", WHOLE);
    set(room, "EBB_LIBRARY_PATH", "a", "b");
    is_found(room, "libz.so.1", "b");
    put(room, "a", "libz.so.1", WHOLE);
    is_found(room, "libz.so.1", "a");
}

static void wheels_of_an_active_environment_are_found(void **state)
{
    struct room *room = *state;
    const char *wheel = "my [venv]/lib/python3.12/site-packages/nvidia/cudnn/lib";
    put(room, wheel, "libebb_w.so.9", WHOLE);
    refuses(room, "libebb_w.so.9");
    set(room, "VIRTUAL_ENV", "my [venv]", NULL);
    is_found(room, "libebb_w.so.9", wheel);
}

static void conda_has_them_in_lib_or_in_wheels_and_comes_after_venv(void **state)
{
    struct room *room = *state;
    const char *wheel = "conda/lib/python3.11/site-packages/nvidia/cu13/lib";
    const char *venv = "venv/lib/python3.13/site-packages/nvidia/cublas/lib";
    set(room, "CONDA_PREFIX", "conda", NULL);
    put(room, wheel, "libebb_c.so.13", WHOLE);
    is_found(room, "libebb_c.so.13", wheel);
    put(room, "conda/lib", "libebb_c.so.13", WHOLE);
    is_found(room, "libebb_c.so.13", "conda/lib");
    set(room, "VIRTUAL_ENV", "venv", NULL);
    put(room, venv, "libebb_c.so.13", WHOLE);
    is_found(room, "libebb_c.so.13", venv);
    set(room, "EBB_LIBRARY_PATH", "own", NULL);
    put(room, "own", "libebb_c.so.13", WHOLE);
    is_found(room, "libebb_c.so.13", "own");
}

static void the_wheels_of_the_first_python_on_the_path_are_found(void **state)
{
    struct room *room = *state;
    const char *wheel = "env/lib/python3.13/site-packages/nvidia/cudnn/lib";
    char *before = strdup(getenv("PATH"));
    put(room, "env/bin", "python3", NO_LIBRARY);
    put(room, wheel, "libebb_w.so.9", WHOLE);
    set(room, "PATH", "bin", "env/bin");
    is_found(room, "libebb_w.so.9", "env/bin/../lib/python3.13/site-packages/nvidia/cudnn/lib");
    assert_int_equal(setenv("PATH", before, 1), 0);
    free(before);
}

static void a_file_that_cannot_be_loaded_is_passed_over(void **state)
{
    struct room *room = *state;
    put(room, "a", "libebb_p.so.1", NO_LIBRARY);
    put(room, "b", "libebb_p.so.1", IN_NEED);
    put(room, "c", "libebb_p.so.1", WHOLE);
    set(room, "EBB_LIBRARY_PATH", "a", "b");
    set(room, "CONDA_PREFIX", "c", NULL);
    put(room, "c/lib", "libebb_p.so.1", WHOLE);
    is_found(room, "libebb_p.so.1", "c/lib");
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void a_library_that_is_nowhere_says_where_was_looked(void **state)
{
    struct room *room = *state;
    char part[160];
    refuses(room, "libebb_n.so.9");
    says(room, "libebb_n.so.9 was not found\n  looked in: EBB_LIBRARY_PATH (not set), the loader's "
               "folders (LD_LIBRARY_PATH: ");
    says(room, "), /usr/local/cuda/lib64, /usr/local/cuda-*/lib64, ");
    says(room, ", VIRTUAL_ENV (not set), CONDA_PREFIX (not set), ");
    says(room, "\n  install it\n  elsewhere? name its folder: EBB_LIBRARY_PATH=FOLDER");
    set(room, "EBB_LIBRARY_PATH", "a", NULL);
    set(room, "CONDA_PREFIX", "b", NULL);
    refuses(room, "libebb_n.so.9");
    snprintf(part, sizeof part, "EBB_LIBRARY_PATH (%s/a), ", room->dir);
    says(room, part);
    snprintf(part, sizeof part, "CONDA_PREFIX (%s/b), ", room->dir);
    says(room, part);
}

static void another_version_is_named(void **state)
{
    struct room *room = *state;
    char part[160];
    put(room, "a", "libebb_v.so.12", WHOLE);
    set(room, "EBB_LIBRARY_PATH", "a", NULL);
    refuses(room, "libebb_v.so.13");
    snprintf(part, sizeof part, "\n  another version is there: %s/a/libebb_v.so.12\n", room->dir);
    says(room, part);
}

static void a_file_that_lacks_what_it_needs_is_told_from_one_that_is_nowhere(void **state)
{
    struct room *room = *state;
    char part[160];
    put(room, "a", "libebb_q.so.1", IN_NEED);
    set(room, "EBB_LIBRARY_PATH", "a", NULL);
    refuses(room, "libebb_q.so.1");
    snprintf(part, sizeof part,
             "libebb_q.so.1 cannot be used\n  found: %s/a/libebb_q.so.1: ", room->dir);
    says(room, part);
    says(room, "libq.so.6");
    says(room, "\n  install it\n");
    put(room, "a", "libebb_r.so.1", NO_LIBRARY);
    refuses(room, "libebb_r.so.1");
    says(room, "libebb_r.so.1 cannot be used\n  found: ");
}

static void a_library_one_can_do_without_leaves_no_error(void **state)
{
    struct room *room = *state;
    struct ebb_library *library;
    struct ebb_str why = {0};
    assert_int_equal(ebb_library_try(room->ctx, "libebb_t.so.1", &library, &why), EBB_OK);
    assert_null(library);
    assert_non_null(strstr(why.data, "libebb_t.so.1 was not found\n"));
    assert_int_equal(ebb_error_status(room->ctx), EBB_OK);
    ebb_str_free(room->ctx, &why);
    assert_int_equal(ebb_library_try(room->ctx, "libebb_t.so.1", &library, NULL), EBB_OK);
    assert_null(library);
}

/* The copy in folder b is of the version that is wanted. */
static bool suits_b(const char *file, void *(*symbol)(void *handle, const char *name),
                    void *handle, char *found, size_t found_bytes)
{
    Dl_info from;
    bool b = dladdr(symbol(handle, "zlibVersion"), &from) != 0 && strstr(from.dli_fname, "/b/");
    assert_true(b == (strstr(file, "/b/") != NULL));
    snprintf(found, found_bytes, "z %d", b ? 2 : 1);
    return b;
}

static void a_copy_of_an_unsuitable_version_is_passed_over(void **state)
{
    struct room *room = *state;
    struct ebb_library *library;
    const struct ebb_library_version version = {.wanted = "2 or newer", .suits = suits_b};
    put(room, "a", "libebb_v.so.1", WHOLE);
    set(room, "EBB_LIBRARY_PATH", "a", NULL);
    assert_int_equal(
        ebb_library_open_version(room->ctx, "libebb_v.so.1", "install z", &version, &library),
        EBB_UNSUPPORTED);
    says(room, "libebb_v.so.1 cannot be used\n  found: /tmp/ebb_library_");
    says(room, "/a/libebb_v.so.1: z 1; 2 or newer is wanted\n  install z\n");
    put(room, "b", "libebb_v.so.1", WHOLE);
    set(room, "EBB_LIBRARY_PATH", "a", "b");
    assert_int_equal(
        ebb_library_open_version(room->ctx, "libebb_v.so.1", "install z", &version, &library),
        EBB_OK);
    assert_non_null(strstr(ebb_library_path(library), "/b/libebb_v.so.1"));
    ebb_library_close(library);
}

/* ---- functions ------------------------------------------------------------------------------- */

struct calls {
    __typeof__(zlibVersion) *version;
    __typeof__(crc32) *crc;
};

static void a_table_is_filled_and_a_missing_function_named(void **state)
{
    struct room *room = *state;
    struct ebb_library *library;
    struct calls calls = {0};
    const struct ebb_library_function functions[] = {
        {"crc32", offsetof(struct calls, crc)},
        {"zlibVersion", offsetof(struct calls, version)},
        {"zlibVersionOfTomorrow", offsetof(struct calls, version)},
    };
    put(room, "a", "libebb_f.so.1", WHOLE);
    set(room, "EBB_LIBRARY_PATH", "a", NULL);
    assert_int_equal(ebb_library_open(room->ctx, "libebb_f.so.1", "", &library), EBB_OK);
    assert_int_equal(ebb_library_find(library, functions, 2, &calls), EBB_OK);
    assert_string_equal(calls.version(), zlibVersion());
    assert_int_equal(calls.crc(0, (const Bytef *)"ebb", 3), crc32(0, (const Bytef *)"ebb", 3));
    assert_non_null(ebb_library_symbol(library, "crc32"));
    assert_null(ebb_library_symbol(library, "crc33"));
    assert_int_equal(ebb_error_status(room->ctx), EBB_OK);
    assert_int_equal(ebb_library_find(library, functions, 3, &calls), EBB_UNSUPPORTED);
    says(room, "libebb_f.so.1 (/tmp/ebb_library_");
    says(room, "has no function 'zlibVersionOfTomorrow'");
    ebb_library_close(library);
}

static void an_unsuitable_version_is_refused_with_both_versions(void **state)
{
    struct room *room = *state;
    struct ebb_library *library;
    assert_int_equal(ebb_library_open(room->ctx, "libm.so.6", "", &library), EBB_OK);
    assert_int_equal(ebb_library_refuse(library, "m 2.36", "9.18 or newer", "install m"),
                     EBB_UNSUPPORTED);
    says(room, "m 2.36 (/");
    says(room, "/libm.so.6) is of an unsuitable version: 9.18 or newer is wanted\n  install m\n");
    ebb_library_close(library);
}

static void want_of_memory_is_told_at_every_place(void **state)
{
    struct room *room = *state;
    struct ebb_library *library;
    int64_t failed[2] = {0, 0};
    put(room, "a", "libebb_m.so.1", WHOLE);
    put(room, "a", "libebb_o.so.2", WHOLE);
    set(room, "EBB_LIBRARY_PATH", "b", "a");
    for (int found = 0; found < 2; found++) {
        for (enum ebb_status status = EBB_NO_MEMORY; status == EBB_NO_MEMORY; failed[found]++) {
            ebb_error_clear(room->ctx);
            ebb_mem_fail_nth(room->ctx, failed[found] + 1, false);
            status = ebb_library_open(room->ctx, found ? "libebb_m.so.1" : "libebb_o.so.1", "",
                                      &library);
            ebb_mem_fail_nth(room->ctx, 0, false);
            if (status == EBB_NO_MEMORY) assert_null(library);
            if (status == EBB_NO_MEMORY) assert_int_equal(ebb_mem_bytes_now(room->ctx), 0);
        }
        if (found) assert_non_null(library);
        if (found) ebb_library_close(library);
        assert_int_equal(ebb_mem_bytes_now(room->ctx), 0);
    }
    assert_true(failed[0] > 5 && failed[1] > 5);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, room_open, room_close)
    const struct CMUnitTest tests[] = {
        CASE(the_loader_is_asked),
        CASE(the_folders_of_ebb_library_path_come_before_the_loader),
        CASE(wheels_of_an_active_environment_are_found),
        CASE(conda_has_them_in_lib_or_in_wheels_and_comes_after_venv),
        CASE(the_wheels_of_the_first_python_on_the_path_are_found),
        CASE(a_file_that_cannot_be_loaded_is_passed_over),
        CASE(a_library_that_is_nowhere_says_where_was_looked),
        CASE(another_version_is_named),
        CASE(a_file_that_lacks_what_it_needs_is_told_from_one_that_is_nowhere),
        CASE(a_library_one_can_do_without_leaves_no_error),
        CASE(a_table_is_filled_and_a_missing_function_named),
        CASE(a_copy_of_an_unsuitable_version_is_passed_over),
        CASE(an_unsuitable_version_is_refused_with_both_versions),
        CASE(want_of_memory_is_told_at_every_place),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
