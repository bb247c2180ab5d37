/* Shared libraries that are loaded when they are first needed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

struct ebb_library {
    struct ebb_ctx *ctx;
    void *handle;
    char *file, *path;
};

/* A search under way, and what there will be to say of it. */
struct search {
    struct ebb_ctx *ctx;
    const char *file;
    const struct ebb_library_version *version; /* NULL: any will do */
    void *handle;
    enum ebb_status status; /* not EBB_OK: no memory */
    struct ebb_str looked;  /* places, with ", " between them */
    struct ebb_str broken;  /* the first files that are of no use, and why */
    int broken_count;
    struct ebb_str instead; /* the first file of another version */
};

/* Behind EBB_LIBRARY_PATH and the loader. `below` names a variable that holds the folder the
 * pattern begins in. */
static const struct {
    const char *below, *pattern;
} places[] = {
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda-*/lib64"},
    {NULL, "/usr/lib/x86_64-linux-gnu"},
    {NULL, "/usr/lib/aarch64-linux-gnu"},
    {NULL, "/usr/lib64"},
    {NULL, "/usr/local/nvidia/lib64"},
    {NULL, "/usr/lib/wsl/lib"},
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"CONDA_PREFIX", "/lib"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/*-packages/nvidia/*/lib"},
};

enum { PLACES = sizeof places / sizeof places[0], BROKEN_TOLD = 4 };

/* `b` may be a variable's value: not so long that the text's end is lost. */
static void say(struct search *s, struct ebb_str *to, const char *a, const char *b, const char *c)
{
    if (s->status == EBB_OK) s->status = ebb_str_addf(s->ctx, to, "%s%.200s%s", a, b, c);
}

static const char *reason(void)
{
    const char *text = dlerror();
    return text != NULL ? text : "the loader gives no reason";
}

/* Whether the loader's own search found no file, rather than one that is of no use: its message
 * then begins with the bare name, and otherwise with a path or with what the file needs. */
static bool is_nowhere(const struct search *s, const char *text)
{
    size_t length = strlen(s->file);
    return strncmp(text, s->file, length) == 0 && text[length] == ':';
}

static const char *path_of(void *handle, const char *otherwise)
{
    struct link_map *map = NULL;
    bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
    return known ? map->l_name : otherwise;
}

/* Remembers a file that is of no use: "PATH: why". */
static void note_broken(struct search *s, const char *path, const char *why, const char *more)
{
    if (s->broken_count++ >= BROKEN_TOLD) return;
    say(s, &s->broken, s->broken.bytes > 0 ? "\n  found: " : "", path, ": ");
    say(s, &s->broken, "", why, more);
}

/* Drops a copy that does not suit. */
static void judge(struct search *s, const char *name)
{
    char found[96] = "", more[96];
    if (s->version == NULL) return;
    const char *path = path_of(s->handle, name);
    char *file = realpath(path, NULL);
    bool suits =
        s->version->suits(file != NULL ? file : path, dlsym, s->handle, found, sizeof found);
    free(file);
    if (suits) return;
    snprintf(more, sizeof more, "; %s is wanted", s->version->wanted);
    note_broken(s, path, found, more);
    dlclose(s->handle);
    s->handle = NULL;
}

/* What suits stays loaded and needs no count of its users. */
static bool load(struct search *s, const char *name)
{
    s->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (s->handle == NULL) return false;
    judge(s, name);
    if (s->handle != NULL) {
        void *again = dlopen(path_of(s->handle, name), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
        if (again != NULL) dlclose(again);
    }
    return true;
}

static void ask_loader(struct search *s)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    if (path == NULL || path[0] == '\0') path = "not set";
    say(s, &s->looked, "the loader's folders (LD_LIBRARY_PATH: ", path, ")");
    if (load(s, s->file)) return;
    const char *text = reason();
    if (!is_nowhere(s, text)) note_broken(s, "in one of the loader's folders", text, "");
}

/* ---- folders --------------------------------------------------------------------------------- */

static void try_path(struct search *s, const char *path)
{
    if (!load(s, path)) note_broken(s, path, reason(), "");
}

/* "libcudnn.so.9" of another version in the same folder. */
static void note_others(struct search *s, const char *pattern)
{
    const char *major = strstr(pattern, ".so.");
    glob_t found;
    if (major == NULL || s->instead.bytes > 0) return;
    char *any = ebb_mem_format(s->ctx, "%.*s.so.*", (int)(major - pattern), pattern);
    if (any == NULL) {
        s->status = EBB_NO_MEMORY;
        return;
    }
    if (glob(any, 0, NULL, &found) == 0) {
        say(s, &s->instead, found.gl_pathv[0], "", "");
        globfree(&found);
    }
    ebb_mem_free(s->ctx, any);
}

/* Tries the file in each folder that the pattern fits. */
static void try_pattern(struct search *s, const char *folders)
{
    glob_t found;
    if (s->handle != NULL || s->status != EBB_OK) return;
    char *pattern = ebb_path_join(s->ctx, folders, s->file);
    if (pattern == NULL) {
        s->status = EBB_NO_MEMORY;
        return;
    }
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && s->handle == NULL; i++)
            try_path(s, found.gl_pathv[i]);
        globfree(&found);
    } else {
        note_others(s, pattern);
    }
    ebb_mem_free(s->ctx, pattern);
}

/* Appends a folder's name as a pattern that fits it alone. */
static void add_literal(struct search *s, struct ebb_str *pattern, const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const char one[2] = {name[i], '\0'};
        say(s, pattern, strchr("*?[\\", name[i]) != NULL ? "\\" : "", one, "");
    }
}

/* The folders that a variable lists with ':' between them. */
static void try_list(struct search *s, const char *list)
{
    while (s->handle == NULL && s->status == EBB_OK) {
        struct ebb_str folder = {0};
        size_t bytes = strcspn(list, ":");
        add_literal(s, &folder, list, bytes);
        if (bytes > 0) try_pattern(s, folder.data);
        ebb_str_free(s->ctx, &folder);
        if (list[bytes] == '\0') return;
        list += bytes + 1;
    }
}

static void ask_variable(struct search *s)
{
    const char *list = getenv("EBB_LIBRARY_PATH");
    bool set = list != NULL && list[0] != '\0';
    say(s, &s->looked, "EBB_LIBRARY_PATH (", set ? list : "not set", "), ");
    if (set) try_list(s, list);
}

static void ask_place(struct search *s, int i)
{
    const char *below = places[i].below, *folder = below == NULL ? "" : getenv(below);
    bool set = folder != NULL && (below == NULL || folder[0] != '\0');
    struct ebb_str pattern = {0};
    if (below == NULL) {
        say(s, &s->looked, ", ", places[i].pattern, "");
    } else if (i == 0 || places[i - 1].below == NULL || strcmp(places[i - 1].below, below) != 0) {
        say(s, &s->looked, ", ", below, "");
        say(s, &s->looked, " (", set ? folder : "not set", ")");
    }
    if (!set) return;
    add_literal(s, &pattern, folder, strlen(folder));
    say(s, &pattern, places[i].pattern, "", "");
    if (s->status == EBB_OK) try_pattern(s, pattern.data);
    ebb_str_free(s->ctx, &pattern);
}

/* The environment whose python3 the shell would run, though VIRTUAL_ENV may not be set. */
static void ask_path(struct search *s)
{
    const char *list = getenv("PATH");
    while (list != NULL && *list != '\0' && s->handle == NULL && s->status == EBB_OK) {
        size_t bytes = strcspn(list, ":");
        char *python = ebb_mem_format(s->ctx, "%.*s/python3", (int)bytes, list);
        struct ebb_str pattern = {0};
        if (python == NULL) s->status = EBB_NO_MEMORY;
        bool here = bytes > 0 && python != NULL && ebb_file_exists(python);
        ebb_mem_free(s->ctx, python);
        if (here) {
            add_literal(s, &pattern, list, bytes);
            say(s, &pattern, "/../lib/python3*/site-packages/nvidia/*/lib", "", "");
            say(s, &s->looked, ", the wheels of python3 in ", pattern.data, "");
            if (s->status == EBB_OK) try_pattern(s, pattern.data);
            ebb_str_free(s->ctx, &pattern);
            return;
        }
        list += bytes + (list[bytes] == ':');
    }
}

static void look(struct search *s)
{
    ask_variable(s);
    if (s->handle == NULL) ask_loader(s);
    for (int i = 0; i < PLACES && s->handle == NULL && s->status == EBB_OK; i++) ask_place(s, i);
    if (s->handle == NULL && s->status == EBB_OK) ask_path(s);
}

/* ---- what came of it ------------------------------------------------------------------------- */

static void tell(struct search *s, struct ebb_str *why)
{
    if (s->broken.bytes > 0) {
        say(s, why, s->file, " cannot be used\n  found: ", s->broken.data);
    } else {
        say(s, why, s->file, " was not found\n  looked in: ", s->looked.data);
        if (s->instead.bytes > 0)
            say(s, why, "\n  another version is there: ", s->instead.data, "");
    }
}

/* Takes the handle over. */
static enum ebb_status make(struct search *s, struct ebb_library **library_out)
{
    struct ebb_library *library = ebb_mem_alloc(s->ctx, sizeof *library);
    if (library == NULL) {
        dlclose(s->handle);
        return EBB_NO_MEMORY;
    }
    library->ctx = s->ctx;
    library->handle = s->handle;
    library->file = ebb_mem_strdup(s->ctx, s->file);
    library->path = ebb_mem_strdup(s->ctx, path_of(s->handle, s->file));
    if (library->file == NULL || library->path == NULL) {
        ebb_library_close(library);
        return EBB_NO_MEMORY;
    }
    ebb_log(s->ctx, EBB_LOG_DEBUG, "library", "%s is %s", library->file, library->path);
    *library_out = library;
    return EBB_OK;
}

static enum ebb_status search(struct ebb_ctx *ctx, const char *file,
                              const struct ebb_library_version *version,
                              struct ebb_library **library, struct ebb_str *why)
{
    struct search s = {.ctx = ctx, .file = file, .version = version};
    *library = NULL;
    look(&s);
    if (s.status != EBB_OK && s.handle != NULL)
        dlclose(s.handle);
    else if (s.handle != NULL)
        s.status = make(&s, library);
    else if (why != NULL)
        tell(&s, why);
    ebb_str_free(ctx, &s.looked);
    ebb_str_free(ctx, &s.broken);
    ebb_str_free(ctx, &s.instead);
    return s.status;
}

enum ebb_status ebb_library_try(struct ebb_ctx *ctx, const char *file, struct ebb_library **library,
                                struct ebb_str *why)
{
    return search(ctx, file, NULL, library, why);
}

enum ebb_status ebb_library_open(struct ebb_ctx *ctx, const char *file, const char *hint,
                                 struct ebb_library **library)
{
    return ebb_library_open_version(ctx, file, hint, NULL, library);
}

enum ebb_status ebb_library_open_version(struct ebb_ctx *ctx, const char *file, const char *hint,
                                         const struct ebb_library_version *version,
                                         struct ebb_library **library)
{
    struct ebb_str why = {0};
    enum ebb_status status = search(ctx, file, version, library, &why);
    if (status == EBB_OK && *library == NULL)
        status = EBB_FAIL(ctx, EBB_UNSUPPORTED,
                          "%s\n  %s\n  elsewhere? name its folder: "
                          "EBB_LIBRARY_PATH=FOLDER",
                          why.data, hint);
    ebb_str_free(ctx, &why);
    return status;
}

void ebb_library_close(struct ebb_library *library)
{
    if (library == NULL) return;
    dlclose(library->handle);
    ebb_mem_free(library->ctx, library->file);
    ebb_mem_free(library->ctx, library->path);
    ebb_mem_free(library->ctx, library);
}

const char *ebb_library_path(const struct ebb_library *library)
{
    return library->path;
}

void *ebb_library_symbol(struct ebb_library *library, const char *name)
{
    return dlsym(library->handle, name);
}

enum ebb_status ebb_library_find(struct ebb_library *library,
                                 const struct ebb_library_function *functions, size_t count,
                                 void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *symbol = ebb_library_symbol(library, functions[i].name);
        if (symbol == NULL)
            return EBB_FAIL(library->ctx, EBB_UNSUPPORTED,
                            "%s (%s) has no function '%s': it is of another version than this "
                            "program was built for",
                            library->file, library->path, functions[i].name);
        memcpy((char *)table + functions[i].at, &symbol, sizeof symbol);
    }
    return EBB_OK;
}

enum ebb_status ebb_library_refuse(struct ebb_library *library, const char *found,
                                   const char *wanted, const char *hint)
{
    return EBB_FAIL(library->ctx, EBB_UNSUPPORTED,
                    "%s (%s) is of an unsuitable version: %s is wanted\n  %s\n  "
                    "elsewhere? name its folder: EBB_LIBRARY_PATH=FOLDER",
                    found, library->path, wanted, hint);
}
