/* Status codes, their names and the exit code each leads to: one list, everything is made from it.
 *
 * Everything that a user, a file, a device or an allocator can make fail returns enum ebb_status;
 * results come by pointer. The first failure also fills the context's error text (context.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_STATUS_H
#define EBB_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, exit code, name in messages) */
#define EBB_STATUS_LIST(X)                                                                        \
    X(OK, 0, "ok")                                                                                \
    X(FAILED, 1, "failed")               /* a run went wrong for a reason the text gives */       \
    X(NO_MEMORY, 1, "out of memory")     /* host memory; the text says how much was wanted */     \
    X(IO, 1, "input/output error")       /* reading or writing a file failed */                   \
    X(BAD_FILE, 2, "bad file")           /* a file's content is not what its format says */       \
    X(BAD_CONFIG, 2, "bad config")       /* command line or configuration */                      \
    X(UNSUPPORTED, 2, "unsupported")     /* known, but not offered here */                        \
    X(DOES_NOT_FIT, 3, "does not fit")   /* the plan needs more memory than the budget */         \
    X(DEVICE, 4, "device error")         /* device or driver */                                   \
    X(INTERRUPTED, 130, "interrupted")   /* SIGINT or SIGTERM; a checkpoint was written */

enum ebb_status {
#define EBB_STATUS_ENUM(name, exit_code, text) EBB_##name,
    EBB_STATUS_LIST(EBB_STATUS_ENUM)
#undef EBB_STATUS_ENUM
    EBB_STATUS_COUNT
};

const char *ebb_status_name(enum ebb_status status);
int ebb_status_exit_code(enum ebb_status status);

/* Forwards a failure to the caller. The only macro of this project that hides a return. */
#define EBB_TRY(call)                                                                             \
    do {                                                                                          \
        enum ebb_status ebb_try_status = (call);                                                  \
        if (ebb_try_status != EBB_OK) return ebb_try_status;                                      \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
