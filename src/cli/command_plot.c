/* `ebb plot`: pictures of runs, results and plans.
 *
 * Its few keys are not those of configurations, so they are read here.
 * SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "plot/canvas.h"
#include "plot/figure_draw.h"
#include "plot/inputs.h"
#include "train/metrics.h"

enum { LEAST_SIDE = 100 };

struct plot_options {
    const char *output, *title; /* title NULL: by what is drawn */
    int width, height;          /* 0: by what is drawn */
    const char **files;         /* owned; the words are borrowed */
    int file_count;
};

/* ---- the words ---- */

static const char *const keys[] = {"output", "title", "width", "height"};
enum { KEYS = sizeof keys / sizeof keys[0] };

/* Which key the word begins with; -1: none. *value: behind '=', NULL where there is none. */
static int find_key(const char *word, const char **value)
{
    size_t bytes = strcspn(word, "=");
    *value = word[bytes] ? word + bytes + 1 : NULL;
    for (int i = 0; i < KEYS; i++)
        if (strlen(keys[i]) == bytes && memcmp(word, keys[i], bytes) == 0) return i;
    return -1;
}

static enum ebb_status set_side(struct ebb_cli *cli, const char *key, const char *text, int *side)
{
    int64_t value;
    if (ebb_text_int64(text, &value) && value >= LEAST_SIDE && value <= EBB_CANVAS_SIDE) {
        *side = (int)value;
        return EBB_OK;
    }
    return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                    "value '%s' of '%s' is no number of pixels from %d to %d\nhelp:  ebb help plot",
                    text, key, (int)LEAST_SIDE, (int)EBB_CANVAS_SIDE);
}

static enum ebb_status set_key(struct ebb_cli *cli, struct plot_options *options, int key,
                               const char *value)
{
    if (value == NULL || (key == 0 && value[0] == 0))
        return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "'--%s' needs a value\nhelp:  ebb help plot",
                        keys[key]);
    if (key == 0) options->output = value;
    if (key == 1) options->title = value;
    if (key == 2) return set_side(cli, keys[key], value, &options->width);
    if (key == 3) return set_side(cli, keys[key], value, &options->height);
    return EBB_OK;
}

static enum ebb_status fail_key(struct ebb_cli *cli, const char *word)
{
    const char *near;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    near = ebb_text_nearest(name, keys, KEYS);
    return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "'ebb plot' has no key '%s'\n%s%s", name,
                    near ? "try:   --" : "help:  ebb help plot", near ? near : "");
}

/* `--key value`, `--key=value`, `key=value`, and files; after "--" files alone. */
static enum ebb_status read_words(struct ebb_cli *cli, struct plot_options *options)
{
    bool only_files = false;
    for (int i = 0; i < cli->count; i++) {
        const char *word = cli->words[i], *value;
        bool dashes = !only_files && strncmp(word, "--", 2) == 0;
        if (dashes && word[2] == 0) {
            only_files = true;
            continue;
        }
        int key = only_files ? -1 : find_key(dashes ? word + 2 : word, &value);
        if (dashes && key < 0) return fail_key(cli, word + 2);
        if (key < 0 || (!dashes && value == NULL)) {
            options->files[options->file_count++] = word;
            continue;
        }
        if (value == NULL && i + 1 < cli->count) value = cli->words[++i];
        EBB_TRY(set_key(cli, options, key, value));
    }
    if (options->file_count > 0) return EBB_OK;
    return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                    "'ebb plot' needs a file: a run's folder, results, or plans as JSON\n"
                    "help:  ebb help plot");
}

/* ---- files and what they are called ---- */

/* The last part of a path; "." and the like by what they stand for. The caller frees. */
static char *last_part(struct ebb_ctx *ctx, const char *path)
{
    char whole[PATH_MAX];
    if (realpath(path, whole) == NULL) snprintf(whole, sizeof whole, "%s", path);
    const char *slash = strrchr(whole, '/');
    return ebb_mem_strdup(ctx, slash && slash[1] ? slash + 1 : whole);
}

/* A run's metrics are called by their folder, other files by their name without its ending. */
static char *name_of(struct ebb_ctx *ctx, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (ebb_dir_exists(path)) return last_part(ctx, path);
    if (strcmp(base, EBB_METRICS_FILE) != 0)
        return ebb_mem_strndup(ctx, base, (size_t)ebb_cli_stem(base));
    char *folder =
        slash ? ebb_mem_strndup(ctx, path, (size_t)(slash - path)) : ebb_mem_strdup(ctx, ".");
    char *name = folder ? last_part(ctx, folder[0] ? folder : "/") : NULL;
    ebb_mem_free(ctx, folder);
    return name;
}

/* Both texts are the caller's. A folder's file is its metrics; names that clash are whole paths. */
static enum ebb_status find_input(struct ebb_cli *cli, const char *word, char **path, char **name)
{
    *path = ebb_dir_exists(word) ? ebb_path_join(cli->ctx, word, EBB_METRICS_FILE)
                                 : ebb_mem_strdup(cli->ctx, word);
    *name = name_of(cli->ctx, word);
    if (*path == NULL || *name == NULL) return EBB_NO_MEMORY;
    if (ebb_file_exists(*path)) return EBB_OK;
    if (ebb_dir_exists(word))
        return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "there is no %s in '%s': it is no run's folder",
                        EBB_METRICS_FILE, word);
    return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "there is no file '%s'", word);
}

static enum ebb_status tell_apart(struct ebb_ctx *ctx, const char *const *words, char **names,
                                  int count)
{
    for (int i = 0; i < count; i++) {
        bool clash = false;
        for (int k = 0; k < count; k++)
            clash = clash || (k != i && strcmp(names[i], names[k]) == 0);
        if (!clash) continue;
        /* From the last to this one, whose name is compared with: all of one name change. */
        for (int k = count - 1; k >= i; k--) {
            if (strcmp(names[k], names[i]) != 0) continue;
            char *longer = ebb_mem_strdup(ctx, words[k]);
            if (longer == NULL) return EBB_NO_MEMORY;
            ebb_mem_free(ctx, names[k]);
            names[k] = longer;
        }
    }
    return EBB_OK;
}

/* ---- the picture ---- */

static enum ebb_status draw(struct ebb_cli *cli, struct plot_options *options,
                            const struct ebb_plot_input *inputs)
{
    struct ebb_figure *figure;
    char size[32];
    int64_t bytes = 0;
    EBB_TRY(ebb_inputs_figure(cli->ctx, inputs, options->file_count, &figure));
    enum ebb_status status = EBB_OK;
    if (options->title)
        status = ebb_figure_title(figure, options->title);
    else if (figure->title[0] == 0 && options->file_count == 1)
        status = ebb_figure_title(figure, inputs[0].name);
    if (status == EBB_OK)
        status =
            ebb_figure_draw(figure, options->output, &options->width, &options->height, &bytes);
    if (status == EBB_OK)
        printf("%s: %d by %d pixels, %s\n", options->output, options->width, options->height,
               ebb_text_bytes(bytes, size, sizeof size));
    ebb_figure_free(figure);
    return status;
}

static enum ebb_status plot(struct ebb_cli *cli, struct plot_options *options)
{
    struct ebb_ctx *ctx = cli->ctx;
    const int count = options->file_count;
    enum ebb_canvas_kind kind;
    EBB_TRY(ebb_canvas_kind_of(ctx, options->output, &kind)); /* before anything is read */
    struct ebb_plot_input *inputs = ebb_mem_alloc(ctx, (size_t)count * sizeof *inputs);
    char **paths = ebb_mem_alloc(ctx, (size_t)count * sizeof *paths);
    char **names = ebb_mem_alloc(ctx, (size_t)count * sizeof *names);
    enum ebb_status status = inputs && paths && names ? EBB_OK : EBB_NO_MEMORY;
    for (int i = 0; status == EBB_OK && i < count; i++)
        status = find_input(cli, options->files[i], &paths[i], &names[i]);
    if (status == EBB_OK) status = tell_apart(ctx, options->files, names, count);
    for (int i = 0; status == EBB_OK && i < count; i++)
        inputs[i] = (struct ebb_plot_input){paths[i], names[i]};
    if (status == EBB_OK) status = draw(cli, options, inputs);
    for (int i = 0; paths && names && i < count; i++) {
        ebb_mem_free(ctx, paths[i]);
        ebb_mem_free(ctx, names[i]);
    }
    ebb_mem_free(ctx, inputs);
    ebb_mem_free(ctx, paths);
    ebb_mem_free(ctx, names);
    return status;
}

enum ebb_status ebb_cli_plot(struct ebb_cli *cli)
{
    struct plot_options options = {.output = "plot.png"};
    size_t words = cli->count > 0 ? (size_t)cli->count : 1;
    options.files = ebb_mem_alloc(cli->ctx, words * sizeof *options.files);
    if (options.files == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = read_words(cli, &options);
    if (status == EBB_OK) status = plot(cli, &options);
    ebb_mem_free(cli->ctx, options.files);
    return status;
}
