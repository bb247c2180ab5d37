/* Shared libraries that are loaded when they are first needed: oneDNN, cuBLASLt, cuDNN, NVML.
 *
 * NVIDIA's come with the driver, the toolkit or a Python environment's wheels, and only some of
 * these places are known to the loader. The order in which they are looked for:
 *
 *   1. EBB_LIBRARY_PATH: folders with ':' between them. First, so that it can replace a copy that
 *      the loader knows and that is too old.
 *   2. the loader's own search: what the process has loaded already, LD_LIBRARY_PATH, the program's
 *      RUNPATH, ldconfig's cache.
 *   3. the toolkit's and the system's folders: /usr/local/cuda/lib64 and the like.
 *   4. an active Python environment: the wheels' nvidia/NAME/lib below VIRTUAL_ENV and
 *      CONDA_PREFIX, and conda's own lib.
 *   5. the wheels below /usr/local/lib, where containers have them.
 *   6. the wheels beside the python3 that is first on PATH, which may be an environment's though
 *      VIRTUAL_ENV is not set.
 *
 * A file that is found but cannot be loaded is passed over, and named if no other can be. What was
 * loaded stays loaded: NVIDIA's libraries have threads and caches of their own.
 *
 * EBB_LOG=library tells what was loaded from where.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_LIBRARY_H
#define EBB_LIBRARY_H

#include "base/context.h"
#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_library;

/* `file` is the name with its major version: "libcudnn.so.9". `hint` ends the message with what to
 * install: "install cuDNN 9.18 or newer (apt install ..., or pip install ...)". Both are borrowed
 * until the call returns. EBB_UNSUPPORTED says where was looked and, if a file was there, why it
 * could not be loaded. The caller closes. */
enum ebb_status ebb_library_open(struct ebb_ctx *ctx, const char *file, const char *hint,
                                 struct ebb_library **library);
/* The same where versions matter that have one file name: a copy that does not suit is passed over
 * and named if no other does. */
struct ebb_library_version {
    const char *wanted; /* "9.18 or newer" */
    /* Writes the copy's version, "cuDNN 9.14.0". `file` is the copy's, links followed; `symbol`
     * looks a function up in it. */
    bool (*suits)(const char *file, void *(*symbol)(void *handle, const char *name), void *handle,
                  char *found, size_t found_bytes);
};
enum ebb_status ebb_library_open_version(struct ebb_ctx *ctx, const char *file, const char *hint,
                                         const struct ebb_library_version *version,
                                         struct ebb_library **library);
/* For a library that one can do without: no failure is recorded. Where it is not there, `library`
 * is NULL and `why` (may be NULL) has the text. Fails only for want of memory. */
enum ebb_status ebb_library_try(struct ebb_ctx *ctx, const char *file, struct ebb_library **library,
                                struct ebb_str *why);
void ebb_library_close(struct ebb_library *library); /* accepts NULL */

/* The file it was loaded from; borrowed. */
const char *ebb_library_path(const struct ebb_library *library);

/* A table of functions is a struct of function pointers, made from one X-macro list:
 *
 *     #define CALLS(X) X(cublasLtCreate) X(cublasLtDestroy)
 *     struct calls {
 *     #define MEMBER(name) __typeof__(name) *name;
 *         CALLS(MEMBER)
 *     #undef MEMBER
 *     };
 *     static const struct ebb_library_function functions[] = {
 *     #define FUNCTION(name) {#name, offsetof(struct calls, name)},
 *         CALLS(FUNCTION)
 *     #undef FUNCTION
 *     };
 */
struct ebb_library_function {
    const char *name;
    size_t at; /* of its pointer in the table */
};
/* Fills the table. EBB_UNSUPPORTED names the first function that is not there, and the file. */
enum ebb_status ebb_library_find(struct ebb_library *library,
                                 const struct ebb_library_function *functions, size_t count,
                                 void *table);
/* One function, to be cast; NULL where it is not there, which is no failure. */
void *ebb_library_symbol(struct ebb_library *library, const char *name);

/* EBB_UNSUPPORTED for a library of an unsuitable version: "cuDNN 9.13.0 (PATH) is of an unsuitable
 * version: 9.18 or newer is wanted", from found "cuDNN 9.13.0" and wanted "9.18 or newer". */
enum ebb_status ebb_library_refuse(struct ebb_library *library, const char *found,
                                   const char *wanted, const char *hint);

#ifdef __cplusplus
}
#endif
#endif
