/* The program: signals, the environment, dispatch, and the one form of errors and exit codes.
 *
 *   ebb: error: what happened, with the numbers
 *     where: file:line:column  key: value
 *     try:   what to change
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/cli.h"

/* Topics of debug lines; who adds one adds it here. */
static const char *const log_topics[] = {"all", "checkpoint", "error", "library", "mem"};

/* A topic that nothing has would be taken for a run with nothing to say. */
static void check_log_topics(struct ebb_ctx *ctx)
{
    size_t count = sizeof log_topics / sizeof log_topics[0], bytes;
    const char *at = getenv("EBB_LOG");
    for (; at != NULL && *at != '\0'; at += bytes, at += strspn(at, ", ")) {
        bytes = strcspn(at, ", ");
        size_t i = 0;
        while (i < count && (strlen(log_topics[i]) != bytes || memcmp(log_topics[i], at, bytes)))
            i++;
        if (i < count || bytes == 0) continue;
        ebb_log(
            ctx, EBB_LOG_WARNING, "log",
            "EBB_LOG: there is no topic '%.*s'; all, or with commas between: checkpoint, error, "
            "library, mem",
            (int)bytes, at);
        return;
    }
}

/* Prints the context's error, each further line behind two blanks. */
static void print_error(const struct ebb_ctx *ctx, enum ebb_status status)
{
    const char *text = ebb_error_text(ctx);
    if (text[0] == 0) text = ebb_status_name(status);
    fflush(stdout);
    fprintf(stderr, status == EBB_INTERRUPTED ? "ebb: " : "ebb: error: ");
    for (const char *c = text; *c; c++) {
        fputc(*c, stderr);
        if (*c == '\n') fputs("  ", stderr);
    }
    fputc('\n', stderr);
    if (getenv("EBB_LOG") && ebb_error_where(ctx)[0])
        fprintf(stderr, "  code:  %s\n", ebb_error_where(ctx));
}

/* SIGINT and SIGTERM become readable instead of ending the process. Before any thread starts, so
 * that all have it so. */
static int open_stop_fd(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Has OpenMP's threads spin for a tenth of a millisecond while they wait, then sleep. By default
 * they spin for some milliseconds at the end of each of the thousands of parallel regions of a
 * step, which slows a busy machine down many times (docs/SPEED.md). The library reads this when it
 * is loaded, so the program starts once more; whoever sets either variable decides for himself. */
static void start_with_short_spins(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0) execv("/proc/self/exe", argv);
}

static bool wants_help(int count, char *const *words)
{
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0) return true;
    return false;
}

static enum ebb_status run(struct ebb_cli *cli, const char *name)
{
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    const struct ebb_cli_command *command = ebb_cli_find(cli, name);
    if (command == NULL) return EBB_BAD_CONFIG;
    if (wants_help(cli->count, cli->words)) return ebb_cli_help_command(cli, command->name, NULL);
    if (command->stops) cli->env.stop_fd = open_stop_fd();
    enum ebb_status status = command->run(cli);
    if (cli->env.stop_fd >= 0) close(cli->env.stop_fd);
    return status;
}

int main(int argc, char **argv)
{
    start_with_short_spins(argv);
    setlocale(LC_CTYPE, "");
    /* A closed pipe or a full quota is then an error that a write reports. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    struct ebb_ctx *ctx = ebb_ctx_create();
    if (ctx == NULL) {
        fputs("ebb: error: no memory to start\n", stderr);
        return ebb_status_exit_code(EBB_NO_MEMORY);
    }
    check_log_topics(ctx);
    struct ebb_cli cli = {ctx,
                          {{getenv("HF_HUB_CACHE"), getenv("HF_HOME"), getenv("HOME")},
                           -1,
                           getenv("XDG_CACHE_HOME"),
                           ebb_cli_chat_template},
                          argc - 2,
                          argv + 2};
    enum ebb_status status = EBB_OK;
    int code = 0;
    if (argc < 2) {
        struct ebb_str text = {0};
        status = ebb_cli_short_help(&cli, &text);
        if (status == EBB_OK) fwrite(text.data, 1, text.bytes, stderr);
        ebb_str_free(ctx, &text);
        code = ebb_status_exit_code(EBB_BAD_CONFIG);
    } else {
        status = run(&cli, argv[1]);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        int error = errno;
        if (status == EBB_OK)
            status = EBB_FAIL(ctx, EBB_IO, "cannot write to standard output: %s", strerror(error));
    }
    if (status != EBB_OK) {
        print_error(ctx, status);
        code = ebb_status_exit_code(status);
    }
    ebb_ctx_free(ctx);
    return code;
}
