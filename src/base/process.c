/* Child processes by posix_spawn.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static const char program[] = "/proc/self/exe";
enum { LOG_MODE = 0666 };

struct ebb_process {
    struct ebb_ctx *ctx;
    pid_t pid;  /* 0: it has ended and been waited for */
    int output; /* the pipe's end to read; -1: closed */
    struct ebb_process_end end;
};

/* ---- starting ---- */

static bool set_files(posix_spawn_file_actions_t *actions, const char *log, int output)
{
    return posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
           posix_spawn_file_actions_adddup2(actions, output, STDOUT_FILENO) == 0 &&
           posix_spawn_file_actions_addopen(actions, STDERR_FILENO, log,
                                            O_WRONLY | O_CREAT | O_APPEND, LOG_MODE) == 0;
}

static bool set_signals(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    return posix_spawnattr_setsigmask(attributes, &none) == 0 &&
           posix_spawnattr_setsigdefault(attributes, &all) == 0 &&
           posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) ==
               0;
}

/* The error number; 0: it runs. */
static int spawn(char *const *words, const char *log, int output, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&actions) != 0) return ENOMEM;
    int error = ENOMEM;
    if (posix_spawnattr_init(&attributes) == 0) {
        if (set_files(&actions, log, output) && set_signals(&attributes))
            error = posix_spawn(pid, program, &actions, &attributes, words, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

enum ebb_status ebb_process_start(struct ebb_ctx *ctx, char *const *words, const char *log,
                                  struct ebb_process **process)
{
    int ends[2];
    *process = NULL;
    struct ebb_process *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->ctx = ctx;
    int error = pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
    if (error == 0) {
        error = spawn(words, log, ends[1], &made->pid);
        close(ends[1]);
        if (error != 0) close(ends[0]);
    }
    if (error != 0) {
        ebb_mem_free(ctx, made);
        return EBB_FAIL(ctx, EBB_FAILED, "cannot start a process of this program: %s",
                        strerror(error));
    }
    made->output = ends[0];
    *process = made;
    return EBB_OK;
}

/* ---- running ---- */

static void collect(struct ebb_process *process)
{
    int status = 0;
    while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR) continue;
    process->pid = 0;
    if (WIFSIGNALED(status))
        process->end.signal = WTERMSIG(status);
    else
        process->end.exit_code = WEXITSTATUS(status);
}

/* *open false: there is no more to come. */
static enum ebb_status read_some(struct ebb_process *process, struct ebb_str *out, bool *open)
{
    char buffer[4096];
    ssize_t got = read(process->output, buffer, sizeof buffer);
    *open = got > 0 || (got < 0 && errno == EINTR);
    return got > 0 ? ebb_str_add(process->ctx, out, buffer, (size_t)got) : EBB_OK;
}

enum ebb_status ebb_process_wait(struct ebb_process *process, int stop_fd, double seconds,
                                 struct ebb_str *out, enum ebb_process_state *state)
{
    const double until = ebb_clock_seconds() + seconds;
    *state = EBB_PROCESS_ENDED;
    while (process->pid != 0) {
        struct pollfd files[] = {{.fd = process->output, .events = POLLIN},
                                 {.fd = stop_fd, .events = POLLIN}};
        const double left = until - ebb_clock_seconds();
        int ready = poll(files, 2, left > 0 ? (int)(1e3 * left) + 1 : 0);
        if (ready > 0 && files[0].revents) {
            bool open;
            EBB_TRY(read_some(process, out, &open));
            if (!open) collect(process);
        } else if (ready > 0 && files[1].revents) {
            *state = EBB_PROCESS_STOPPED;
            return EBB_OK;
        } else if (ready == 0) {
            *state = EBB_PROCESS_RUNS;
            return EBB_OK;
        }
    }
    return EBB_OK;
}

struct ebb_process_end ebb_process_end(const struct ebb_process *process)
{
    EBB_ASSERT(process->pid == 0);
    return process->end;
}

void ebb_process_free(struct ebb_process *process)
{
    if (process == NULL) return;
    if (process->pid != 0) {
        (void)kill(process->pid, SIGKILL);
        collect(process);
    }
    close(process->output);
    ebb_mem_free(process->ctx, process);
}

void ebb_process_follow_parent(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}
