/* The sweep: which points are due, a process for each, and how far it is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/bench.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"

enum { NAME = 160, REASON = 400, NUMBER = 32 };
static const double redraw_seconds = 1;
static const char error_prefix[] = "ebb: error: ";

struct bench {
    struct ebb_ctx *ctx;
    const struct ebb_bench_request *request;
    struct ebb_bench_sweep sweep;
    struct ebb_bench_modes modes;
    struct ebb_results *results;
    char *path, *log; /* of the results, of what children say */
    struct ebb_progress *progress;
    /* How long points of each value took, for how long is left. */
    double seconds[EBB_BENCH_VALUES];
    int64_t taken[EBB_BENCH_VALUES];
    int64_t done, due; /* points of this sweep that are over, those of earlier calls included */
    /* The first that is still to come, or runs: those before it are not waited for. */
    int model, mode, value;
};

/* A point that is due. */
struct turn {
    const struct ebb_bench_model *model;
    struct ebb_bench_mode mode; /* with the budget of a sweep over budgets */
    const char *mode_text;
    int value; /* index in the sweep */
    int64_t length;
};

/* ---- how far it is ---- */

/* Of one value: the mean of what is known, else by the nearest value that is. */
static double expect(const struct bench *b, int value)
{
    int nearest = -1;
    for (int i = 0; i < b->sweep.count; i++)
        if (b->taken[i] > 0 && (nearest < 0 || abs(i - value) < abs(nearest - value))) nearest = i;
    if (nearest < 0) return NAN;
    double seconds = b->seconds[nearest] / (double)b->taken[nearest];
    if (b->sweep.kind == EBB_RESULTS_OF_LENGTHS)
        seconds *= (double)b->sweep.values[value] / (double)b->sweep.values[nearest];
    return seconds;
}

/* Seconds of what is due of a series from a value on. */
static double series_left(const struct bench *b, int model, int mode, int value)
{
    const char *name = b->request->models[model].name;
    const struct ebb_results_series *series = NULL;
    char text[NAME];
    double sum = 0;
    ebb_bench_mode_text(&b->modes.items[mode], text, sizeof text);
    for (int64_t i = 0; i < b->results->count; i++) {
        const struct ebb_results_series *s = &b->results->series[i];
        if (s->model && s->mode && strcmp(s->model, name) == 0 && strcmp(s->mode, text) == 0)
            series = s;
    }
    for (int i = value; i < b->sweep.count; i++)
        if (!series || !ebb_bench_is_done(b->results, series, b->sweep.values[i]))
            sum += expect(b, i);
    return sum;
}

/* Seconds of all that is due; NaN: not known yet. */
static double time_left(const struct bench *b)
{
    double sum = series_left(b, b->model, b->mode, b->value);
    for (int mode = b->mode + 1; mode < b->modes.count; mode++)
        sum += series_left(b, b->model, mode, 0);
    for (int model = b->model + 1; model < b->request->model_count; model++)
        for (int mode = 0; mode < b->modes.count; mode++) sum += series_left(b, model, mode, 0);
    return sum;
}

static const char *value_text(const struct bench *b, int value, char *out, size_t out_bytes)
{
    char size[NUMBER];
    if (b->sweep.kind == EBB_RESULTS_OF_LENGTHS)
        snprintf(out, out_bytes, "%lld tokens", (long long)b->sweep.values[value]);
    else
        snprintf(out, out_bytes, "within %s",
                 ebb_text_bytes(b->sweep.values[value], size, sizeof size));
    return out;
}

/* "2/8  tiny-llama, checkpoint, 4096 tokens: " and what follows it. `keep`: the point is over; else
 * it has been running for `elapsed` seconds. */
static void show(const struct bench *b, const struct turn *turn, bool keep, double elapsed,
                 const char *what)
{
    char value[NUMBER * 2], time[NUMBER], left[NUMBER * 2] = "";
    const double seconds = time_left(b) - elapsed;
    if (isfinite(seconds) && seconds > 0)
        snprintf(left, sizeof left, "; about %s left",
                 ebb_text_seconds(seconds, time, sizeof time));
    ebb_progress_show(b->progress, keep, "%lld/%lld  %s, %s, %s: %s%s",
                      (long long)(keep ? b->done : b->done + 1), (long long)b->due,
                      turn->model->name, turn->mode_text,
                      value_text(b, turn->value, value, sizeof value), what, left);
}

static void show_point(const struct bench *b, const struct turn *turn,
                       const struct ebb_results_point *point)
{
    const bool process = isfinite(point->values[EBB_RESULTS_PROCESS]);
    char size[NUMBER], what[NAME];
    ebb_text_bytes((int64_t)point->values[process ? EBB_RESULTS_PROCESS : EBB_RESULTS_PEAK], size,
                   sizeof size);
    snprintf(what, sizeof what, "%s, %.0f tokens/s", size, point->values[EBB_RESULTS_SPEED]);
    show(b, turn, true, 0, what);
}

/* ---- a child ---- */

struct outcome {
    bool interrupted;
    struct ebb_process_end end;
    char reason[REASON]; /* "": a point came out */
    const char *status;  /* of a series that ends with it */
    double seconds;      /* that it took */
    struct ebb_results_point point;
};

/* What the child said last as an error, in one line; `from`: where the log ended before it. */
static enum ebb_status read_reason(const struct bench *b, size_t from, struct outcome *out)
{
    struct ebb_map map;
    EBB_TRY(ebb_map_open(b->ctx, b->log, &map));
    const char *text = (const char *)map.data;
    const size_t prefix = sizeof error_prefix - 1;
    for (size_t at = from; text && at + prefix <= map.bytes; at++) {
        if (at > 0 && text[at - 1] != '\n') continue;
        if (memcmp(text + at, error_prefix, prefix) != 0) continue;
        size_t bytes = 0;
        const char *line = text + at + prefix;
        while (at + prefix + bytes < map.bytes && line[bytes] != '\n') bytes++;
        snprintf(out->reason, sizeof out->reason, "%.*s",
                 (int)(bytes < REASON - 1 ? bytes : REASON - 1), line);
    }
    out->reason[ebb_text_utf8_valid(out->reason, strlen(out->reason))] = '\0';
    ebb_map_close(&map);
    return EBB_OK;
}

static enum ebb_status explain(const struct bench *b, size_t from, struct outcome *out)
{
    const struct ebb_process_end end = out->end;
    if (end.signal != 0) {
        out->status = end.signal == SIGKILL ? "killed" : "failed";
        snprintf(out->reason, sizeof out->reason, "killed by signal %d%s", end.signal,
                 end.signal == SIGKILL ? ", as systems do that are out of memory" : "");
        return EBB_OK;
    }
    out->status =
        end.exit_code == ebb_status_exit_code(EBB_DOES_NOT_FIT) ? "does not fit" : "failed";
    EBB_TRY(read_reason(b, from, out));
    if (out->reason[0] == '\0')
        snprintf(out->reason, sizeof out->reason, "ended with exit code %d", end.exit_code);
    return EBB_OK;
}

/* What the child wrote: results of one series with one point. */
static enum ebb_status read_point(const struct bench *b, const struct ebb_str *text,
                                  struct outcome *out)
{
    struct ebb_results *results = NULL;
    json_t *json = NULL;
    const char *data = text->data ? text->data : "";
    EBB_TRY(ebb_json_parse(b->ctx, "a point", 1, data, text->bytes, &json));
    enum ebb_status status = ebb_results_read(b->ctx, "a point", json, &results);
    json_decref(json);
    EBB_TRY(status);
    if (results->count == 1 && results->series[0].count == 1)
        out->point = results->series[0].points[0];
    else
        status = EBB_FAIL(b->ctx, EBB_FAILED, "a process wrote no point");
    ebb_results_free(results);
    return status;
}

static enum ebb_status wait_for(struct bench *b, const struct turn *turn,
                                struct ebb_process *process, struct ebb_str *text,
                                struct outcome *out)
{
    const double began = ebb_clock_seconds();
    enum ebb_process_state state = EBB_PROCESS_RUNS;
    while (state == EBB_PROCESS_RUNS) {
        const double elapsed = ebb_clock_seconds() - began;
        char time[NUMBER];
        if (ebb_progress_is_live(b->progress))
            show(b, turn, false, elapsed, ebb_text_seconds(elapsed, time, sizeof time));
        EBB_TRY(ebb_process_wait(process, b->request->env->stop_fd, redraw_seconds, text, &state));
    }
    out->interrupted = state == EBB_PROCESS_STOPPED;
    if (out->interrupted) return EBB_OK;
    out->end = ebb_process_end(process);
    /* A terminal's Ctrl-C reaches the child too, which may be gone first. */
    out->interrupted = out->end.signal == SIGINT || out->end.signal == SIGTERM;
    out->seconds = ebb_clock_seconds() - began;
    return EBB_OK;
}

static enum ebb_status log_bytes(const struct bench *b, size_t *bytes)
{
    struct ebb_map map;
    *bytes = 0;
    if (!ebb_file_exists(b->log)) return EBB_OK;
    EBB_TRY(ebb_map_open(b->ctx, b->log, &map));
    *bytes = map.bytes;
    ebb_map_close(&map);
    return EBB_OK;
}

/* The child's words: `words` [count + 7] is filled, what is made for it lies in `numbers`. */
static void make_words(const struct bench *b, const struct turn *turn, char numbers[2][NUMBER],
                       char **words)
{
    const struct ebb_bench_request *r = b->request;
    int at = 0;
    snprintf(numbers[0], NUMBER, "%lld", (long long)turn->mode.budget);
    snprintf(numbers[1], NUMBER, "%lld", (long long)turn->length);
    words[at++] = (char *)"ebb";
    words[at++] = (char *)r->child_command;
    words[at++] = (char *)turn->model->path;
    words[at++] = turn->mode.name;
    words[at++] = numbers[0];
    words[at++] = numbers[1];
    for (int i = 0; i < r->word_count; i++) words[at++] = r->words[i];
    words[at] = NULL;
}

static enum ebb_status run_child(struct bench *b, const struct turn *turn, struct outcome *out)
{
    struct ebb_process *process = NULL;
    struct ebb_str text = {0};
    char numbers[2][NUMBER];
    size_t from;
    memset(out, 0, sizeof *out);
    EBB_TRY(log_bytes(b, &from));
    char **words = ebb_mem_alloc(b->ctx, (size_t)(b->request->word_count + 7) * sizeof *words);
    if (words == NULL) return EBB_NO_MEMORY;
    make_words(b, turn, numbers, words);
    enum ebb_status status = ebb_process_start(b->ctx, words, b->log, &process);
    if (status == EBB_OK) status = wait_for(b, turn, process, &text, out);
    ebb_process_free(process);
    if (status == EBB_OK && !out->interrupted) {
        const bool success = out->end.signal == 0 && out->end.exit_code == 0;
        status = success ? read_point(b, &text, out) : explain(b, from, out);
    }
    ebb_str_free(b->ctx, &text);
    ebb_mem_free(b->ctx, words);
    return status;
}

/* ---- the sweep ---- */

static enum ebb_status add_point(struct bench *b, const struct turn *turn,
                                 const struct outcome *out)
{
    struct ebb_results_series *series;
    struct ebb_results_point *point;
    EBB_TRY(ebb_bench_series(b->results, turn->model->name, turn->mode_text, &series));
    if (out->reason[0]) {
        series->ended_at = (double)b->sweep.values[turn->value];
        EBB_TRY(ebb_results_text(b->results, &series->reason, out->reason));
        EBB_TRY(ebb_results_text(b->results, &series->status, out->status));
        return EBB_OK;
    }
    EBB_TRY(ebb_results_point(b->results, series, &point));
    *point = out->point;
    if (b->sweep.kind == EBB_RESULTS_OF_BUDGETS)
        point->values[EBB_RESULTS_BUDGET] = (double)b->sweep.values[turn->value];
    return EBB_OK;
}

static enum ebb_status interrupted(const struct bench *b)
{
    return EBB_FAIL(b->ctx, EBB_INTERRUPTED,
                    "interrupted: %lld of %lld points are over, and what they gave is in '%s'\n"
                    "the same command goes on from there",
                    (long long)b->done, (long long)b->due, b->path);
}

/* *over: the series ends here. */
static enum ebb_status run_point(struct bench *b, const struct turn *turn, bool *over)
{
    struct outcome out;
    EBB_TRY(run_child(b, turn, &out));
    if (out.interrupted) return interrupted(b);
    EBB_TRY(add_point(b, turn, &out));
    EBB_TRY(ebb_bench_save(b->results, b->path));
    *over = out.reason[0] != '\0';
    b->done += *over ? b->sweep.count - turn->value : 1;
    b->value = *over ? b->sweep.count : turn->value + 1;
    if (!*over) { /* what does not fit is over soon, which says nothing of others */
        b->seconds[turn->value] += out.seconds;
        b->taken[turn->value]++;
    }
    if (*over)
        show(b, turn, true, 0, out.reason);
    else
        show_point(b, turn, &out.point);
    return EBB_OK;
}

static struct turn turn_of(const struct bench *b, int model, int mode, int value)
{
    struct turn turn = {.model = &b->request->models[model],
                        .mode = b->modes.items[mode],
                        .value = value,
                        .length = b->request->config->max_length};
    if (b->sweep.kind == EBB_RESULTS_OF_BUDGETS)
        turn.mode.budget = b->sweep.values[value];
    else
        turn.length = b->sweep.values[value];
    return turn;
}

static enum ebb_status run_series(struct bench *b, int model, int mode)
{
    char text[NAME];
    bool over = false;
    ebb_bench_mode_text(&b->modes.items[mode], text, sizeof text);
    for (int i = 0; i < b->sweep.count && !over; i++) {
        struct ebb_results_series *series;
        EBB_TRY(ebb_bench_series(b->results, b->request->models[model].name, text, &series));
        if (ebb_bench_is_done(b->results, series, b->sweep.values[i])) continue;
        /* A failure that may have been by chance is tried again. */
        if (series->status && strcmp(series->status, "failed") == 0) {
            series->ended_at = NAN;
            EBB_TRY(ebb_results_text(b->results, &series->reason, NULL));
            EBB_TRY(ebb_results_text(b->results, &series->status, NULL));
        }
        struct turn turn = turn_of(b, model, mode, i);
        turn.mode_text = text;
        b->model = model;
        b->mode = mode;
        b->value = i;
        EBB_TRY(run_point(b, &turn, &over));
    }
    return EBB_OK;
}

/* What earlier calls have left to do. */
static enum ebb_status count_points(struct bench *b)
{
    b->due = (int64_t)b->request->model_count * b->modes.count * b->sweep.count;
    for (int model = 0; model < b->request->model_count; model++)
        for (int mode = 0; mode < b->modes.count; mode++) {
            struct ebb_results_series *series;
            char text[NAME];
            EBB_TRY(ebb_bench_series(b->results, b->request->models[model].name,
                                     ebb_bench_mode_text(&b->modes.items[mode], text, sizeof text),
                                     &series));
            for (int i = 0; i < b->sweep.count; i++)
                b->done += ebb_bench_is_done(b->results, series, b->sweep.values[i]);
        }
    if (b->done > 0)
        ebb_log(b->ctx, EBB_LOG_INFO, "bench", "%lld of %lld points are in '%s' already",
                (long long)b->done, (long long)b->due, b->path);
    return EBB_OK;
}

static enum ebb_status run_all(struct bench *b)
{
    EBB_TRY(count_points(b));
    for (int model = 0; model < b->request->model_count; model++)
        for (int mode = 0; mode < b->modes.count; mode++) EBB_TRY(run_series(b, model, mode));
    for (int64_t i = 0; i < b->results->count; i++)
        if (b->results->series[i].count > 0) return ebb_bench_save(b->results, b->path);
    return EBB_FAIL(b->ctx, EBB_FAILED,
                    "nothing could be measured: %s\n"
                    "try:   '%s' has what was said",
                    b->results->series[0].reason ? b->results->series[0].reason : "no point ran",
                    b->log);
}

/* ---- before it ---- */

static void say_nothing(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

static enum ebb_status read_mode(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                                 const struct ebb_bench_mode *mode)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    EBB_TRY(ebb_options_create(ctx, EBB_COMMAND_BENCH, &config, &options));
    enum ebb_status status = ebb_options_arguments(options, request->word_count, request->words);
    if (status == EBB_OK) status = ebb_bench_mode_set(options, mode);
    if (status == EBB_OK) status = ebb_options_check(options);
    ebb_options_free(options);
    return status;
}

/* Each mode's keys are checked before anything runs. What reading the words says has been said: the
 * context is another one, and quiet. */
static enum ebb_status check_mode(const struct bench *b, const struct ebb_bench_mode *mode)
{
    struct ebb_ctx *quiet = ebb_ctx_create();
    if (quiet == NULL) return EBB_FAIL(b->ctx, EBB_NO_MEMORY, "no memory to check the modes");
    ebb_ctx_set_log(quiet, say_nothing, NULL);
    enum ebb_status status = read_mode(quiet, b->request, mode);
    if (status != EBB_OK)
        status = EBB_FAIL(b->ctx, status, "mode %s: %s", mode->name, ebb_error_text(quiet));
    ebb_ctx_free(quiet);
    return status;
}

/* Keys that the sweep or the mode sets. A file may have them for other commands. */
static enum ebb_status check_keys(const struct bench *b)
{
    const bool lengths = b->sweep.kind == EBB_RESULTS_OF_LENGTHS;
    const struct {
        const char *key, *why, *advice;
        bool refused;
    } rows[] = {
        {"gradient_checkpointing", "modes say what becomes of activations", "modes: checkpoint",
         true},
        {"activation_offloading", "modes say what becomes of activations", "modes: offload", true},
        {"activations", "modes say what becomes of activations",
         "modes: 'activations={x: host, o: keep}'", true},
        {"max_length", "the sweep says how long sequences are", "remove it", lengths},
        {"memory_budget", "the sweep says what the budgets are", "remove it", !lengths},
        {"modes", "a sweep over budgets is of the mode plan", "remove it", !lengths},
        {"budgets", "the sweep says what the budgets are", "remove it", !lengths},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].refused &&
            ebb_options_origin(b->request->options, rows[i].key).kind == EBB_ORIGIN_ARGUMENT)
            return EBB_FAIL(b->ctx, EBB_BAD_CONFIG,
                            "'%s' has no effect here: %s\nwhere: %s\ntry:   %s", rows[i].key,
                            rows[i].why, ebb_options_where(b->request->options, rows[i].key),
                            rows[i].advice);
    if (lengths || b->request->config->max_length > 0) return EBB_OK;
    return EBB_FAIL(b->ctx, EBB_BAD_CONFIG,
                    "a sweep over budgets needs max_length, how long sequences are\n"
                    "try:   max_length=4096");
}

static enum ebb_status set_modes(struct bench *b)
{
    const struct ebb_config *config = b->request->config;
    const bool moves = ebb_config_backend(config) != EBB_BACKEND_CPU ||
                       config->memory_budget.bytes > 0 || config->memory_budget.percent > 0;
    if (b->sweep.kind == EBB_RESULTS_OF_BUDGETS) {
        b->modes.items[0].name = ebb_mem_strdup(b->ctx, "plan");
        b->modes.count = 1;
        return b->modes.items[0].name ? EBB_OK : EBB_NO_MEMORY;
    }
    EBB_TRY(ebb_bench_modes_parse(b->ctx, b->request->options, config, moves, &b->modes));
    if (!moves && strcmp(config->modes, "auto") == 0)
        ebb_log(b->ctx, EBB_LOG_INFO, "bench",
                "modes: those that move nothing; memory_budget, which makes the CPU a simulated "
                "accelerator, adds those that offload");
    for (int i = 0; i < b->modes.count; i++) EBB_TRY(check_mode(b, &b->modes.items[i]));
    return EBB_OK;
}

static enum ebb_status prepare(struct bench *b)
{
    const struct ebb_bench_request *r = b->request;
    EBB_TRY(ebb_bench_sweep_parse(b->ctx, r->config->sweep, ebb_options_where(r->options, "sweep"),
                                  &b->sweep));
    EBB_TRY(check_keys(b));
    EBB_TRY(set_modes(b));
    b->path = ebb_path_join(b->ctx, r->output_dir, EBB_BENCH_FILE);
    b->log = ebb_path_join(b->ctx, r->output_dir, EBB_BENCH_LOG);
    if (b->path == NULL || b->log == NULL) return EBB_NO_MEMORY;
    EBB_TRY(ebb_bench_open(b->ctx, r, &b->sweep, b->path, &b->results));
    b->progress = ebb_progress_create(b->ctx);
    return b->progress ? EBB_OK : EBB_NO_MEMORY;
}

enum ebb_status ebb_bench_run(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                              struct ebb_results **results)
{
    struct bench b = {.ctx = ctx, .request = request};
    *results = NULL;
    enum ebb_status status = prepare(&b);
    if (status == EBB_OK) status = run_all(&b);
    ebb_progress_free(b.progress);
    ebb_bench_modes_free(ctx, &b.modes);
    ebb_mem_free(ctx, b.path);
    ebb_mem_free(ctx, b.log);
    if (status == EBB_OK)
        *results = b.results;
    else
        ebb_results_free(b.results);
    return status;
}
