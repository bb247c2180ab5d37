/* `ebb chat`: a conversation on the terminal, or through a pipe.
 *
 * Answers go to stdout, everything else to stderr. On a terminal there is a prompt, and Ctrl-C ends
 * the answer that is being made; without one a line of standard input is what the user says, an
 * answer is followed by a newline, and whatever goes wrong ends the program. Lines are read with
 * read(), so that a signal can end the wait for one (cli/lines.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "recipe/fit.h"
#include "train/conversation.h"

enum { PROMPT_CHUNK = 512, EXAMPLE_TOKENS = 16 };

struct chat {
    struct ebb_cli *cli;
    struct ebb_ctx *ctx;
    struct ebb_config config;
    struct ebb_options *options;
    struct ebb_setup setup;
    struct ebb_engine *engine;
    struct ebb_conversation *talk;
    struct ebb_lines lines;
    const char *stops[EBB_CLI_STOPS]; /* borrowed from config.stop */
    int64_t stop_count;
    bool terminal;  /* stdin is one */
    bool dim;       /* stderr takes colours */
    bool leaving;   /* SIGTERM, or /exit */
    int interrupts; /* Ctrl-C at the prompt, in a row */
    char *saved_as; /* where /save wrote last, and what; NULL: nowhere */
    struct ebb_str saved;
};

/* ---- notes ----------------------------------------------------------------------------------- */

/* A line for people, beside the answers. */
static void note(const struct chat *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(const struct chat *c, const char *format, ...)
{
    va_list args;
    fflush(stdout);
    if (c->dim) fputs("\033[2m", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs(c->dim ? "\033[0m\n" : "\n", stderr);
}

/* The error's first line, which the conversation survives. */
static void note_error(const struct chat *c)
{
    const char *text = ebb_error_text(c->ctx);
    note(c, "%.*s", (int)strcspn(text, "\n"), text);
    ebb_error_clear(c->ctx);
}

/* ---- room ------------------------------------------------------------------------------------ */

/* Plans for a conversation of so many tokens. */
static enum ebb_status plan_room(struct chat *c, int64_t tokens)
{
    struct ebb_capacity *capacity = &c->setup.request.capacity;
    ebb_engine_free(c->engine);
    c->engine = NULL;
    c->setup.request.decode = true;
    capacity->cache_tokens = tokens;
    capacity->tokens = tokens < PROMPT_CHUNK ? tokens : PROMPT_CHUNK;
    capacity->docs = 1;
    capacity->doc_tokens = capacity->tokens;
    return ebb_engine_create(c->ctx, &c->setup.request, &c->engine);
}

/* As many tokens as the model takes and memory allows: plans are asked, by halving the interval
 * between what fits and what does not. */
static enum ebb_status find_room(struct chat *c)
{
    int64_t fits = 0, most = c->setup.model->max_positions, above = most + 1, tokens = most;
    while (above - fits > 1) {
        EBB_TRY(plan_room(c, tokens));
        if (ebb_fit_holds(&c->setup, c->engine))
            fits = tokens;
        else
            above = tokens;
        if (above - fits <= fits / 64) break; /* near enough */
        tokens = fits + (above - fits) / 2;
    }
    if (fits < EXAMPLE_TOKENS) { /* the weights alone are too much: the plan's own error says so */
        EBB_TRY(plan_room(c, most < EXAMPLE_TOKENS ? most : EXAMPLE_TOKENS));
        return ebb_fit_check(&c->setup, c->engine);
    }
    if (fits < most)
        ebb_log(c->ctx, EBB_LOG_INFO, "chat",
                "memory has room for a conversation of %lld tokens (the model takes %lld)",
                (long long)fits, (long long)most);
    return plan_room(c, fits);
}

static enum ebb_status make_room(struct chat *c)
{
    int64_t wanted = c->config.max_length, most = c->setup.model->max_positions;
    if (wanted == EBB_AUTO_INT) return find_room(c);
    if (wanted > most)
        return EBB_FAIL(c->ctx, EBB_BAD_CONFIG,
                        "max_length %lld is more than the model's %lld positions\n"
                        "where: %s\n"
                        "try:   max_length=%lld",
                        (long long)wanted, (long long)most,
                        ebb_options_where(c->options, "max_length"), (long long)most);
    EBB_TRY(plan_room(c, wanted));
    return ebb_fit_check(&c->setup, c->engine);
}

/* ---- start ----------------------------------------------------------------------------------- */

static enum ebb_status load_template(struct chat *c)
{
    EBB_TRY(ebb_setup_chat(&c->setup));
    if (c->setup.chat) return EBB_OK;
    return EBB_FAIL(c->ctx, EBB_BAD_CONFIG,
                    "there is no chat template in '%s'\n"
                    "try:   chat_template=FILE, or 'ebb generate' to continue a text",
                    c->setup.model_dir);
}

static enum ebb_status start(struct chat *c)
{
    EBB_TRY(ebb_setup_model(c->ctx, c->options, &c->config, &c->cli->env, &c->setup));
    EBB_TRY(ebb_setup_tokenizer(&c->setup));
    EBB_TRY(load_template(c));
    EBB_TRY(ebb_cli_stops(c->cli, &c->config, c->stops, &c->stop_count));
    EBB_TRY(make_room(c));
    EBB_TRY(ebb_engine_open(c->engine));
    EBB_TRY(ebb_conversation_create(c->ctx, c->engine, c->setup.tokenizer, c->setup.chat,
                                    c->setup.chat_kwargs, &c->talk));
    return ebb_conversation_system(c->talk, c->config.system_prompt);
}

/* ---- an answer ------------------------------------------------------------------------------- */

static void print_piece(void *user, const char *text, size_t bytes)
{
    (void)user;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

/* Takes a signal that waits; 0: none does. */
static int take_signal(int stop_fd)
{
    struct signalfd_siginfo info;
    if (stop_fd < 0 || read(stop_fd, &info, sizeof info) != (ssize_t)sizeof info) return 0;
    return (int)info.ssi_signo;
}

static bool interrupted(void *user)
{
    struct chat *c = (struct chat *)user;
    int signal = take_signal(c->cli->env.stop_fd);
    if (signal == SIGTERM) c->leaving = true;
    return signal != 0;
}

static void note_speed(const struct chat *c, const struct ebb_generate_result *r)
{
    note(c,
         "%lld tokens in, %lld of them from the cache, %.2f s; %lld out, %.1f tokens/s; "
         "%lld of %lld used",
         (long long)r->prompt_tokens, (long long)r->reused_tokens, r->prompt_seconds,
         (long long)r->new_tokens, r->seconds > 0 ? (double)r->new_tokens / r->seconds : 0,
         (long long)ebb_conversation_tokens(c->talk), (long long)ebb_conversation_room(c->talk));
}

/* Why an answer ended, where that was not its own end. */
static void note_end(const struct chat *c, const struct ebb_generate_result *r)
{
    if (r->interrupted && r->new_tokens == 0)
        note(c, "interrupted before the answer began: the message is taken back");
    else if (r->interrupted)
        note(c, "interrupted");
    else if (r->full)
        note(c,
             "the answer ends here: the conversation fills the %lld tokens that there is room "
             "for; /undo, /reset or a larger max_length makes room",
             (long long)ebb_conversation_room(c->talk));
    else if (!r->ended && !r->stopped)
        note(c, "the answer was cut at max_new_tokens %lld", (long long)c->config.max_new_tokens);
}

static enum ebb_status answer(struct chat *c, const char *text)
{
    const struct ebb_config *config = &c->config;
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = {.max_new_tokens = config->max_new_tokens,
                                     .temperature = config->temperature,
                                     .top_p = config->top_p,
                                     .top_k = config->top_k,
                                     .repetition_penalty = config->repetition_penalty,
                                     .seed = (uint64_t)config->seed,
                                     .stops = c->stops,
                                     .stop_count = c->stop_count,
                                     .interrupted = interrupted,
                                     .interrupted_user = c};
    enum ebb_status status = ebb_conversation_say(c->talk, text, &keys, print_piece, NULL, &result);
    if (status == EBB_DOES_NOT_FIT && c->terminal) {
        note_error(c);
        note(c, "the message is taken back; /undo, /reset or a larger max_length makes room");
        return EBB_OK;
    }
    if (status == EBB_BAD_FILE && c->terminal) { /* the template refuses it */
        note_error(c);
        return EBB_OK;
    }
    EBB_TRY(status);
    if (result.new_tokens > 0 || !c->terminal) fputc('\n', stdout);
    fflush(stdout);
    if (ferror(stdout)) return EBB_FAIL(c->ctx, EBB_IO, "cannot write to standard output");
    note_end(c, &result);
    if (config->verbose) note_speed(c, &result);
    if (!result.interrupted || (c->terminal && !c->leaving)) return EBB_OK;
    return EBB_FAIL(c->ctx, EBB_INTERRUPTED, "interrupted");
}

/* ---- commands at the prompt ------------------------------------------------------------------ */

typedef enum ebb_status (*command_fn)(struct chat *c, const char *rest);

static enum ebb_status command_help(struct chat *c, const char *rest);

static enum ebb_status command_reset(struct chat *c, const char *rest)
{
    (void)rest;
    ebb_conversation_reset(c->talk);
    note(c, "the conversation begins anew");
    return EBB_OK;
}

static enum ebb_status command_system(struct chat *c, const char *rest)
{
    EBB_TRY(ebb_conversation_system(c->talk, rest));
    note(c, rest[0] ? "the system message is set" : "there is no system message now");
    return EBB_OK;
}

static enum ebb_status command_undo(struct chat *c, const char *rest)
{
    (void)rest;
    note(c, ebb_conversation_undo(c->talk) ? "the last exchange is taken back"
                                           : "there is nothing to take back");
    return EBB_OK;
}

/* Whether the file's last line lacks its end; a file that cannot be read is left to the writer. */
static bool lacks_newline(const char *path)
{
    FILE *file = fopen(path, "rb");
    int last = '\n';
    if (file && fseek(file, -1, SEEK_END) == 0) last = fgetc(file);
    if (file) fclose(file);
    return last != '\n';
}

static enum ebb_status append_line(struct chat *c, const char *path, const struct ebb_str *line)
{
    bool lacks = lacks_newline(path);
    FILE *file = fopen(path, "ab");
    bool good = file && (!lacks || fputc('\n', file) != EOF) &&
                fwrite(line->data, 1, line->bytes, file) == line->bytes && fputc('\n', file) != EOF;
    int error = errno;
    if (file && fclose(file) != 0 && good) {
        error = errno;
        good = false;
    }
    if (good) return EBB_OK;
    return EBB_FAIL(c->ctx, EBB_IO, "cannot add to '%s': %s", path, strerror(error));
}

/* A file that is there must hold conversations already: what else people have is not to be spoilt
 * by a slip. Its first line tells. */
static enum ebb_status check_target(struct chat *c, const char *path)
{
    const char *line = NULL;
    enum ebb_line_event event = EBB_LINE_END;
    struct stat about;
    struct ebb_lines lines = {.fd = -1};
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode))
        lines.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (lines.fd < 0) return EBB_OK; /* a new one; all else is told when it is written */
    enum ebb_status status = ebb_lines_next(c->ctx, &lines, -1, &line, &event);
    json_t *json = NULL;
    if (status == EBB_OK && event == EBB_LINE_TEXT) json = json_loads(line, 0, NULL);
    bool good = status == EBB_OK && (event == EBB_LINE_END || json_object_get(json, "messages"));
    json_decref(json);
    ebb_lines_free(c->ctx, &lines);
    close(lines.fd);
    if (good || status == EBB_NO_MEMORY) return status;
    ebb_error_clear(c->ctx);
    return EBB_FAIL(c->ctx, EBB_BAD_CONFIG,
                    "'%s' is there and holds no conversations: nothing is added to it; /save wants "
                    "a new file, or one that /save made",
                    path);
}

/* What the conversation has beside a system message. */
static bool has_exchange(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && strcmp(role, "system") != 0;
}

static enum ebb_status keep_saved(struct chat *c, const char *path, const struct ebb_str *line)
{
    char *copy = ebb_mem_strdup(c->ctx, path);
    if (copy == NULL) return EBB_NO_MEMORY;
    ebb_mem_free(c->ctx, c->saved_as);
    c->saved_as = copy;
    c->saved.bytes = 0;
    return ebb_str_add(c->ctx, &c->saved, line->data, line->bytes);
}

static enum ebb_status save_line(struct chat *c, const char *path, const struct ebb_str *line)
{
    if (c->saved_as && strcmp(c->saved_as, path) == 0 && c->saved.bytes == line->bytes &&
        memcmp(c->saved.data, line->data, line->bytes) == 0) {
        note(c, "'%s' has this conversation already: nothing is added", path);
        return EBB_OK;
    }
    EBB_TRY(check_target(c, path));
    EBB_TRY(append_line(c, path, line));
    EBB_TRY(keep_saved(c, path, line));
    note(c, "the conversation is added to '%s' as a line", path);
    return EBB_OK;
}

/* A line {"messages": [...]}, as data sets have them. */
static enum ebb_status command_save(struct chat *c, const char *rest)
{
    const json_t *messages = ebb_conversation_messages(c->talk);
    struct ebb_str line = {0};
    if (rest[0] == 0) return EBB_FAIL(c->ctx, EBB_BAD_CONFIG, "/save wants the name of a file");
    if (!has_exchange(messages))
        return EBB_FAIL(c->ctx, EBB_BAD_CONFIG, "there is nothing to save: nothing was said yet");
    json_t *record = json_pack("{s:O}", "messages", messages);
    enum ebb_status status = record ? ebb_json_text(c->ctx, record, 0, &line)
                                    : EBB_FAIL(c->ctx, EBB_NO_MEMORY, "out of host memory");
    if (status == EBB_OK) status = save_line(c, rest, &line);
    ebb_str_free(c->ctx, &line);
    json_decref(record);
    return status;
}

static const char *const settable[] = {"temperature", "top_p",
                                       "top_k",       "repetition_penalty",
                                       "seed",        "max_new_tokens",
                                       "stop"};
enum { SETTABLE = sizeof settable / sizeof settable[0] };

static enum ebb_status show_settings(const struct chat *c)
{
    json_t *all = ebb_options_json(c->options);
    enum ebb_status status = all ? EBB_OK : ebb_error_status(c->ctx);
    for (size_t i = 0; status == EBB_OK && i < SETTABLE; i++) {
        struct ebb_str text = {0};
        status = ebb_json_text(c->ctx, json_object_get(all, settable[i]), 0, &text);
        if (status == EBB_OK) note(c, "%s %s", settable[i], text.data);
        ebb_str_free(c->ctx, &text);
    }
    json_decref(all);
    return status;
}

/* Whether the command line would take the value: it has an effect at this temperature, the key that
 * others hang on, and is not too much. Other options than the conversation's are asked, so that a
 * value that is refused changes nothing. */
static enum ebb_status try_setting(struct chat *c, const char *key, const char *value)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    const char *stops[EBB_CLI_STOPS];
    int64_t stop_count;
    char temperature[EBB_TEXT_DOUBLE];
    ebb_text_from_double(c->config.temperature, temperature);
    EBB_TRY(ebb_options_create(c->ctx, EBB_COMMAND_CHAT, &config, &options));
    enum ebb_status status = ebb_options_set(options, "temperature", temperature);
    if (status == EBB_OK) status = ebb_options_set(options, key, value);
    if (status == EBB_OK) status = ebb_rules_check(options, &config, c->ctx);
    if (status == EBB_OK) status = ebb_cli_stops(c->cli, &config, stops, &stop_count);
    ebb_options_free(options);
    return status;
}

static enum ebb_status command_set(struct chat *c, const char *rest)
{
    char key[32];
    size_t bytes = strcspn(rest, " =");
    if (bytes == 0) return show_settings(c);
    snprintf(key, sizeof key, "%.*s", (int)bytes, rest);
    const char *value = rest + bytes + strspn(rest + bytes, " =");
    size_t i = 0;
    while (i < SETTABLE && strcmp(key, settable[i]) != 0) i++;
    if (i == SETTABLE)
        return EBB_FAIL(c->ctx, EBB_BAD_CONFIG,
                        "'%s' cannot be set here; these can: temperature, top_p, top_k, "
                        "repetition_penalty, seed, max_new_tokens, stop",
                        key);
    if (value[0] == 0) return EBB_FAIL(c->ctx, EBB_BAD_CONFIG, "/set %s wants a value", key);
    EBB_TRY(try_setting(c, key, value));
    EBB_TRY(ebb_options_set(c->options, key, value));
    return ebb_cli_stops(c->cli, &c->config, c->stops, &c->stop_count);
}

static enum ebb_status command_exit(struct chat *c, const char *rest)
{
    (void)rest;
    c->leaving = true;
    return EBB_OK;
}

static const struct {
    const char *name, *usage, *what;
    command_fn run;
} commands[] = {
    {"help", "", "this list", command_help},
    {"reset", "", "begin a new conversation; the system message stays", command_reset},
    {"clear", "", "the same", command_reset},
    {"system", " TEXT", "set the system message; without TEXT there is none", command_system},
    {"undo", "", "take the last exchange back", command_undo},
    {"save", " FILE", "add the conversation to FILE, as a line of messages", command_save},
    {"set", " KEY VALUE", "change how answers are drawn; without KEY: show it", command_set},
    {"exit", "", "leave, as the end of input does", command_exit},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static enum ebb_status command_help(struct chat *c, const char *rest)
{
    (void)rest;
    for (size_t i = 0; i < COMMANDS; i++) {
        char left[32];
        snprintf(left, sizeof left, "/%s%s", commands[i].name, commands[i].usage);
        note(c, "%-18s%s", left, commands[i].what);
    }
    note(c, "%-18s%s", "\"\"\"", "begins a message of several lines, and ends it");
    note(c, "%-18s%s", "//", "begins a message with a slash");
    return EBB_OK;
}

/* `line` begins behind the slash. */
static enum ebb_status run_command(struct chat *c, const char *line)
{
    const char *names[COMMANDS];
    char name[32];
    size_t bytes = strcspn(line, " ");
    snprintf(name, sizeof name, "%.*s", (int)bytes, line);
    for (size_t i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, names[i]) == 0)
            return commands[i].run(c, line + bytes + strspn(line + bytes, " "));
    }
    const char *near = ebb_text_nearest(name, names, COMMANDS);
    return EBB_FAIL(c->ctx, EBB_BAD_CONFIG,
                    "there is no command '/%s'%s%s; /help lists them, // begins a message with a "
                    "slash",
                    name, near ? ", but /" : "", near ? near : "");
}

/* What a command does wrong does not end a conversation that people have. */
static enum ebb_status command(struct chat *c, const char *line)
{
    enum ebb_status status = run_command(c, line);
    if (status == EBB_OK || status == EBB_NO_MEMORY || !c->terminal) return status;
    note_error(c);
    return EBB_OK;
}

/* ---- the conversation ------------------------------------------------------------------------ */

static void print_prompt(const struct chat *c, bool more)
{
    if (!c->terminal) return;
    fflush(stdout);
    fputs(more ? "... " : "> ", stderr);
    fflush(stderr);
}

/* The next line of input. On a terminal one that is not text is only said: a slip of a key is not
 * to cost a conversation. */
static enum ebb_status next_line(struct chat *c, bool more, const char **line,
                                 enum ebb_line_event *event)
{
    for (;;) {
        print_prompt(c, more);
        enum ebb_status status =
            ebb_lines_next(c->ctx, &c->lines, c->cli->env.stop_fd, line, event);
        if (status != EBB_BAD_FILE || !c->terminal) return status;
        note_error(c);
        note(c, "that line is left out");
    }
}

/* Ctrl-C at the prompt: the line that was begun is gone; a second one in a row leaves. */
static enum ebb_status at_signal(struct chat *c)
{
    bool leaves = take_signal(c->cli->env.stop_fd) == SIGTERM || !c->terminal || c->interrupts > 0;
    if (c->terminal) fputc('\n', stderr);
    if (leaves) return EBB_FAIL(c->ctx, EBB_INTERRUPTED, "interrupted");
    c->interrupts++;
    note(c, "Ctrl-C once more leaves, and so does /exit");
    return EBB_OK;
}

/* A message of several lines between two `"""`, the first of which is gone from `line`. What stands
 * beside neither is a line of it; nothing is none. */
static enum ebb_status read_block(struct chat *c, const char *line, struct ebb_str *message)
{
    enum ebb_line_event event;
    bool first = true, begun = false;
    for (;; first = false) {
        size_t bytes = strlen(line);
        bool last = bytes >= 3 && strcmp(line + bytes - 3, "\"\"\"") == 0;
        if (last) bytes -= 3;
        if (bytes > 0 || !(first || last)) {
            EBB_TRY(ebb_str_addf(c->ctx, message, "%s%.*s", begun ? "\n" : "", (int)bytes, line));
            begun = true;
        }
        if (last) return EBB_OK;
        EBB_TRY(next_line(c, true, &line, &event));
        if (event == EBB_LINE_END) return EBB_OK;
        if (event == EBB_LINE_STOP) {
            message->bytes = 0;
            return at_signal(c);
        }
    }
}

/* Keys that a terminal sends as more than a character (arrows, Home) come as escape sequences,
 * since nothing edits the line here; a model would take them for text. A pipe sends what it means.
 */
static bool has_escape(const struct chat *c, const char *text)
{
    if (!c->terminal || strchr(text, '\033') == NULL) return false;
    note(c, "an escape sequence is in that (an arrow key?): it is not sent; only Backspace, Ctrl-W "
            "and Ctrl-U edit a line, 'rlwrap ebb chat ...' does more");
    return true;
}

static enum ebb_status take_line(struct chat *c, const char *line)
{
    if (line[0] == 0 || has_escape(c, line)) return EBB_OK;
    if (line[0] == '/' && line[1] != '/') return command(c, line + 1);
    if (strncmp(line, "\"\"\"", 3) != 0) return answer(c, line + (line[0] == '/'));
    struct ebb_str message = {0};
    enum ebb_status status = read_block(c, line + 3, &message);
    if (status == EBB_OK && message.bytes > 0 && !has_escape(c, message.data))
        status = answer(c, message.data);
    ebb_str_free(c->ctx, &message);
    return status;
}

static enum ebb_status converse(struct chat *c)
{
    const char *line;
    enum ebb_line_event event;
    if (take_signal(c->cli->env.stop_fd)) /* while the model was read */
        return EBB_FAIL(c->ctx, EBB_INTERRUPTED, "interrupted");
    if (c->terminal) note(c, "%s; /help lists the commands", c->setup.base_name);
    while (!c->leaving) {
        EBB_TRY(next_line(c, false, &line, &event));
        if (event == EBB_LINE_END) break;
        if (event == EBB_LINE_STOP) {
            EBB_TRY(at_signal(c));
            continue;
        }
        c->interrupts = 0;
        EBB_TRY(take_line(c, line));
    }
    if (c->terminal && !c->leaving) fputc('\n', stderr);
    return EBB_OK;
}

static void clear(struct chat *c)
{
    ebb_lines_free(c->ctx, &c->lines);
    ebb_mem_free(c->ctx, c->saved_as);
    ebb_str_free(c->ctx, &c->saved);
    ebb_conversation_free(c->talk);
    ebb_engine_free(c->engine);
    ebb_setup_free(&c->setup);
    ebb_options_free(c->options);
}

enum ebb_status ebb_cli_chat(struct ebb_cli *cli)
{
    struct chat *c = ebb_mem_alloc(cli->ctx, sizeof *c);
    if (c == NULL) return EBB_NO_MEMORY;
    c->cli = cli;
    c->ctx = cli->ctx;
    c->terminal = isatty(STDIN_FILENO) == 1;
    c->dim = isatty(STDERR_FILENO) == 1 && getenv("NO_COLOR") == NULL;
    c->lines.fd = STDIN_FILENO;
    enum ebb_status status = ebb_cli_options(cli, EBB_COMMAND_CHAT, &c->config, &c->options);
    if (status == EBB_OK) status = start(c);
    if (status == EBB_OK) status = converse(c);
    clear(c);
    ebb_mem_free(cli->ctx, c);
    return status;
}
