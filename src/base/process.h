/* A child process: this program once more, with other words, its standard output read through a
 * pipe. What happens to it (a crash, the system's out-of-memory killer) does not happen to its
 * parent.
 *
 * A child starts with the signals' default actions, whatever the parent blocks or ignores. One
 * thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PROCESS_H
#define EBB_PROCESS_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_process;

/* words: NULL at the end, the first by custom the program's name. Standard error is appended to the
 * file `log`, standard input is empty. The caller frees. */
enum ebb_status ebb_process_start(struct ebb_ctx *ctx, char *const *words, const char *log,
                                  struct ebb_process **process);
/* Ends it where it still runs. Accepts NULL. */
void ebb_process_free(struct ebb_process *process);

enum ebb_process_state {
    EBB_PROCESS_RUNS,   /* the time is over */
    EBB_PROCESS_ENDED,  /* its end can be asked for */
    EBB_PROCESS_STOPPED /* something is to be read from stop_fd: the child runs on */
};

/* Waits for at most so many seconds, and adds what it writes meanwhile to *out. stop_fd -1: none.
 */
enum ebb_status ebb_process_wait(struct ebb_process *process, int stop_fd, double seconds,
                                 struct ebb_str *out, enum ebb_process_state *state);

/* How it ended: one of both is not 0 where it was no success. */
struct ebb_process_end {
    int exit_code; /* 0 where a signal ended it */
    int signal;    /* 0: none did */
};
struct ebb_process_end ebb_process_end(const struct ebb_process *process); /* after ENDED */

/* For the child: it is killed when its parent ends, so that none is left behind. */
void ebb_process_follow_parent(void);

#ifdef __cplusplus
}
#endif
#endif
