/* `ebb bench`: finds the models, runs the sweep, shows and draws what came out; and the command
 * that its processes run. SPDX-License-Identifier: Apache-2.0 */
#include "recipe/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "cli/cli.h"
#include "plot/figure_draw.h"
#include "plot/inputs.h"

static const char child_command[] = "bench-point";
static const char *const pictures[] = {"results.png", "results.svg"};
static const char *const made_models = "models"; /* folder of those that are only a config.json */

struct bench_run {
    struct ebb_cli *cli;
    struct ebb_config config;
    struct ebb_options *options;
    struct ebb_bench_model models[EBB_BENCH_MODELS];
    char *names[EBB_BENCH_MODELS], *paths[EBB_BENCH_MODELS]; /* owned: what `models` borrows */
    bool made[EBB_BENCH_MODELS]; /* the path is to be written into output_dir */
    int count;
    char *output_dir;
    bool new_dir; /* it was not there before */
};

/* ---- models ---- */

/* "qwen" of "models/qwen/", of "qwen.json", and of "qwen/config.json". The caller frees. */
static char *name_of(struct ebb_ctx *ctx, const char *text, bool file)
{
    size_t end = strlen(text);
    if (file && end > 11 && strcmp(text + end - 12, "/config.json") == 0)
        end -= 12;
    else if (file)
        end = (size_t)ebb_cli_stem(text);
    while (end > 1 && text[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] != '/') begin--;
    return ebb_mem_strndup(ctx, text + begin, end - begin);
}

static const char *shape_of(const char *text)
{
    return ebb_cli_embedded("shapes/", text, ".json");
}

static enum ebb_status add_model(struct bench_run *b, const char *text)
{
    struct ebb_ctx *ctx = b->cli->ctx;
    const bool dir = ebb_dir_exists(text), file = !dir && ebb_file_exists(text);
    if (b->count == EBB_BENCH_MODELS)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "more than %d models", (int)EBB_BENCH_MODELS);
    const int i = b->count++;
    b->names[i] = name_of(ctx, text, file);
    b->paths[i] = ebb_mem_strdup(ctx, text);
    b->made[i] = file || (!dir && shape_of(text));
    if (b->names[i] == NULL || b->paths[i] == NULL) return EBB_NO_MEMORY;
    for (int k = 0; k < i; k++)
        if (strcmp(b->names[k], b->names[i]) == 0)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "two models are called '%s': '%s' and '%s'\n"
                            "try:   one of them in a folder of another name",
                            b->names[i], b->paths[k], text);
    return EBB_OK;
}

static enum ebb_status find_models(struct bench_run *b)
{
    const struct ebb_config *config = &b->config;
    struct ebb_ctx *ctx = b->cli->ctx;
    const char *at = config->models, *name;
    size_t bytes;
    if (config->models &&
        ebb_options_origin(b->options, "model_name_or_path").kind == EBB_ORIGIN_ARGUMENT)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'model_name_or_path' has no effect beside models\nwhere: %s\ntry:   keep "
                        "one of them",
                        ebb_options_where(b->options, "model_name_or_path"));
    while (at && ebb_bench_next_name(&at, &name, &bytes)) {
        char *word = ebb_mem_strndup(ctx, name, bytes);
        if (word == NULL) return EBB_NO_MEMORY;
        enum ebb_status status = add_model(b, word);
        ebb_mem_free(ctx, word);
        EBB_TRY(status);
    }
    if (config->models == NULL && config->model_name_or_path)
        EBB_TRY(add_model(b, config->model_name_or_path));
    if (b->count > 0) return EBB_OK;
    if (config->models || config->adapter_name_or_path == NULL)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'ebb bench' needs 'model_name_or_path', 'models' or "
                        "'adapter_name_or_path'\n"
                        "help:  ebb help models");
    /* The adapter's base model, which the adapter names. */
    EBB_TRY(add_model(b, config->adapter_name_or_path));
    b->paths[0][0] = '\0';
    return EBB_OK;
}

/* Of a file or a built-in shape there is a folder while the sweep runs, with nothing but its
 * config.json. */
static enum ebb_status make_model(struct bench_run *b, int i)
{
    struct ebb_ctx *ctx = b->cli->ctx;
    char *dir = ebb_mem_format(ctx, "%s/%s/%s", b->output_dir, made_models, b->names[i]);
    char *path = dir ? ebb_path_join(ctx, dir, "config.json") : NULL;
    enum ebb_status status = path ? ebb_dir_create(ctx, dir) : EBB_NO_MEMORY;
    if (status == EBB_OK && ebb_file_exists(b->paths[i])) {
        status = ebb_file_copy(ctx, b->paths[i], path);
    } else if (status == EBB_OK) {
        const char *shape = shape_of(b->paths[i]);
        status = ebb_file_write(ctx, path, shape, strlen(shape));
    }
    ebb_mem_free(ctx, path);
    ebb_mem_free(ctx, b->paths[i]);
    b->paths[i] = dir;
    return status;
}

static enum ebb_status remove_models(struct bench_run *b)
{
    char *dir = ebb_path_join(b->cli->ctx, b->output_dir, made_models);
    if (dir == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_dir_remove(b->cli->ctx, dir);
    ebb_mem_free(b->cli->ctx, dir);
    return status;
}

/* ---- where it goes ---- */

/* A file's output_dir is a training run's. Without a date, so that the same command finds it. */
static enum ebb_status choose_output(struct bench_run *b)
{
    struct ebb_ctx *ctx = b->cli->ctx;
    if (ebb_options_origin(b->options, "output_dir").kind == EBB_ORIGIN_ARGUMENT)
        b->output_dir = ebb_mem_strdup(ctx, b->config.output_dir);
    else if (b->count == 1)
        b->output_dir = ebb_mem_format(ctx, "bench-%s", b->names[0]);
    else
        b->output_dir = ebb_mem_format(ctx, "bench-%s-and-%d-more", b->names[0], b->count - 1);
    if (b->output_dir == NULL) return EBB_NO_MEMORY;
    if (ebb_file_exists(b->output_dir) && !ebb_dir_exists(b->output_dir))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "output_dir '%s' is a file", b->output_dir);
    b->new_dir = !ebb_dir_exists(b->output_dir);
    return ebb_dir_create(ctx, b->output_dir);
}

/* ---- what came out ---- */

static enum ebb_status draw_one(struct bench_run *b, const struct ebb_figure *figure,
                                const char *name)
{
    int width = 0, height = 0;
    int64_t bytes;
    char *path = ebb_path_join(b->cli->ctx, b->output_dir, name);
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_figure_draw(figure, path, &width, &height, &bytes);
    ebb_mem_free(b->cli->ctx, path);
    return status;
}

static enum ebb_status draw(struct bench_run *b)
{
    struct ebb_figure *figure = NULL;
    char *path = ebb_path_join(b->cli->ctx, b->output_dir, EBB_BENCH_FILE);
    if (path == NULL) return EBB_NO_MEMORY;
    const struct ebb_plot_input input = {path, "results"};
    enum ebb_status status = ebb_inputs_figure(b->cli->ctx, &input, 1, &figure);
    for (int i = 0; status == EBB_OK && i < 2; i++) status = draw_one(b, figure, pictures[i]);
    ebb_figure_free(figure);
    ebb_mem_free(b->cli->ctx, path);
    return status;
}

static enum ebb_status print(struct bench_run *b, const struct ebb_results *results)
{
    struct ebb_ctx *ctx = b->cli->ctx;
    struct ebb_str text = {0};
    if (b->config.json) {
        json_t *json = ebb_results_json(results);
        return json ? ebb_cli_print_json(b->cli, json)
                    : EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for the results as JSON");
    }
    enum ebb_status status = ebb_bench_table(ctx, results, &text);
    if (status == EBB_OK)
        status = ebb_str_addf(ctx, &text, "%s: %s, %s, %s\n", b->output_dir, EBB_BENCH_FILE,
                              pictures[0], pictures[1]);
    if (status == EBB_OK) ebb_cli_print(&text);
    ebb_str_free(ctx, &text);
    return status;
}

/* ---- the command ---- */

static enum ebb_status run(struct bench_run *b)
{
    struct ebb_results *results = NULL;
    EBB_TRY(find_models(b));
    EBB_TRY(choose_output(b));
    for (int i = 0; i < b->count; i++) {
        if (b->made[i]) EBB_TRY(make_model(b, i));
        b->models[i] = (struct ebb_bench_model){b->names[i], b->paths[i]};
    }
    const bool overwrite =
        b->config.overwrite_output_dir &&
        ebb_options_origin(b->options, "overwrite_output_dir").kind == EBB_ORIGIN_ARGUMENT;
    const struct ebb_bench_request request = {.options = b->options,
                                              .config = &b->config,
                                              .env = &b->cli->env,
                                              .output_dir = b->output_dir,
                                              .overwrite = overwrite,
                                              .models = b->models,
                                              .model_count = b->count,
                                              .child_command = child_command,
                                              .words = b->cli->words,
                                              .word_count = b->cli->count};
    EBB_TRY(ebb_bench_run(b->cli->ctx, &request, &results));
    enum ebb_status status = draw(b);
    if (status == EBB_OK) status = print(b, results);
    ebb_results_free(results);
    return status;
}

enum ebb_status ebb_cli_bench(struct ebb_cli *cli)
{
    struct bench_run *b = ebb_mem_alloc(cli->ctx, sizeof *b);
    if (b == NULL) return EBB_NO_MEMORY;
    b->cli = cli;
    enum ebb_status status = ebb_cli_options(cli, EBB_COMMAND_BENCH, &b->config, &b->options);
    if (status == EBB_OK) status = run(b);
    if (b->output_dir) {
        enum ebb_status removed = remove_models(b);
        if (status == EBB_OK) status = removed;
        if (b->new_dir) (void)rmdir(b->output_dir); /* where a mistake left it empty */
    }
    for (int i = 0; i < b->count; i++) {
        ebb_mem_free(cli->ctx, b->names[i]);
        ebb_mem_free(cli->ctx, b->paths[i]);
    }
    ebb_mem_free(cli->ctx, b->output_dir);
    ebb_options_free(b->options);
    ebb_mem_free(cli->ctx, b);
    return status;
}

/* ---- a point ---- */

enum { MODEL, MODE, BUDGET, LENGTH, WORDS };

static enum ebb_status print_point(struct ebb_cli *cli, const struct ebb_results_point *point)
{
    struct ebb_results *results;
    struct ebb_results_series *series;
    struct ebb_results_point *copy;
    struct ebb_str text = {0};
    EBB_TRY(ebb_results_create(cli->ctx, EBB_RESULTS_OF_LENGTHS, &results));
    enum ebb_status status = ebb_results_add(results, "point", &series);
    if (status == EBB_OK) status = ebb_results_point(results, series, &copy);
    if (status == EBB_OK) {
        *copy = *point;
        json_t *json = ebb_results_json(results);
        status = json ? ebb_json_text(cli->ctx, json, 0, &text)
                      : EBB_FAIL(cli->ctx, EBB_NO_MEMORY, "no memory for the point");
        json_decref(json);
    }
    if (status == EBB_OK) status = ebb_str_addf(cli->ctx, &text, "\n");
    if (status == EBB_OK) ebb_cli_print(&text);
    ebb_str_free(cli->ctx, &text);
    ebb_results_free(results);
    return status;
}

/* The words of recipe/bench.h. */
static enum ebb_status read_job(struct ebb_cli *cli, struct ebb_bench_job *job)
{
    if (cli->count < WORDS || !ebb_text_int64(cli->words[BUDGET], &job->mode.budget) ||
        !ebb_text_int64(cli->words[LENGTH], &job->length))
        return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                        "'ebb %s' is run by 'ebb bench' alone\ntry:   ebb bench", child_command);
    job->model = cli->words[MODEL];
    job->mode.name = cli->words[MODE];
    cli->words += WORDS;
    cli->count -= WORDS;
    return EBB_OK;
}

enum ebb_status ebb_cli_bench_point(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    struct ebb_bench_job job;
    struct ebb_results_point point;
    ebb_process_follow_parent();
    for (int i = 0; i < EBB_RESULTS_FIELDS; i++) point.values[i] = NAN;
    EBB_TRY(read_job(cli, &job));
    ebb_log(cli->ctx, EBB_LOG_INFO, "bench", "---- %s, %s, %lld tokens ----", job.model,
            job.mode.name, (long long)job.length);
    EBB_TRY(ebb_options_create(cli->ctx, EBB_COMMAND_BENCH, &config, &options));
    enum ebb_status status = ebb_options_arguments(options, cli->count, cli->words);
    if (status == EBB_OK)
        status = ebb_bench_point(cli->ctx, options, &config, &cli->env, &job, &point);
    if (status == EBB_OK) status = print_point(cli, &point);
    ebb_options_free(options);
    return status;
}
