/* The command line: one function a command, one table of them.
 *
 * A command prints its result to stdout and leaves errors to main.c, which prints them in one
 * form and turns the status into the exit code. Messages on the way are log lines on stderr.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CLI_H
#define EBB_CLI_H

#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_cli {
    struct ebb_ctx *ctx;
    struct ebb_recipe_env env;
    int count;          /* of the words after the command */
    char *const *words; /* borrowed */
};

typedef enum ebb_status (*ebb_cli_fn)(struct ebb_cli *cli);

struct ebb_cli_command {
    const char *name;
    const char *usage; /* what follows the name */
    const char *line;  /* what it does, in one line */
    ebb_cli_fn run;
    bool stops;  /* SIGINT and SIGTERM are for it to end by itself, with a checkpoint */
    bool hidden; /* for this program alone: help and advice do not name it */
};

/* In the order of help. */
const struct ebb_cli_command *ebb_cli_commands(size_t *count);
/* By its name, or by another that it goes by; NULL: none. */
const struct ebb_cli_command *ebb_cli_named(const char *name);
/* The same; NULL after an error that names the nearest. */
const struct ebb_cli_command *ebb_cli_find(struct ebb_cli *cli, const char *name);

enum ebb_status ebb_cli_sft(struct ebb_cli *cli);
enum ebb_status ebb_cli_kd(struct ebb_cli *cli);
enum ebb_status ebb_cli_dpo(struct ebb_cli *cli);
enum ebb_status ebb_cli_plan(struct ebb_cli *cli);
enum ebb_status ebb_cli_bench(struct ebb_cli *cli);
enum ebb_status ebb_cli_bench_point(struct ebb_cli *cli);
enum ebb_status ebb_cli_probe(struct ebb_cli *cli);
enum ebb_status ebb_cli_data(struct ebb_cli *cli);
enum ebb_status ebb_cli_eval(struct ebb_cli *cli);
enum ebb_status ebb_cli_generate(struct ebb_cli *cli);
enum ebb_status ebb_cli_chat(struct ebb_cli *cli);
enum ebb_status ebb_cli_merge(struct ebb_cli *cli);
enum ebb_status ebb_cli_init(struct ebb_cli *cli);
enum ebb_status ebb_cli_tokenize(struct ebb_cli *cli);
enum ebb_status ebb_cli_plot(struct ebb_cli *cli);
enum ebb_status ebb_cli_configs(struct ebb_cli *cli);
enum ebb_status ebb_cli_help(struct ebb_cli *cli);
enum ebb_status ebb_cli_version(struct ebb_cli *cli);

/* The few lines of `ebb` alone. */
enum ebb_status ebb_cli_short_help(struct ebb_cli *cli, struct ebb_str *out);
/* One command's whole help on stdout. */
enum ebb_status ebb_cli_help_command(struct ebb_cli *cli, const char *name, const char *filter);

/* Options from the words, checked. The caller frees *options. */
enum ebb_status ebb_cli_options(struct ebb_cli *cli, enum ebb_command command,
                                struct ebb_config *config, struct ebb_options **options);
/* The texts of `stop`, borrowed from the configuration. */
enum { EBB_CLI_STOPS = 64 };
enum ebb_status ebb_cli_stops(struct ebb_cli *cli, const struct ebb_config *config,
                              const char *stops[EBB_CLI_STOPS], int64_t *count);
/* Writes to stdout; false results show at the end, when main flushes. */
void ebb_cli_print(const struct ebb_str *text);
/* An object as JSON on stdout; takes the reference. */
enum ebb_status ebb_cli_print_json(struct ebb_cli *cli, json_t *json);
/* "sft-lora.yaml", "sft-lora" or a shape's name: the embedded text, or NULL. */
const char *ebb_cli_embedded(const char *folder, const char *name, const char *ending);
/* "tiny-llama.json" of "shapes/tiny-llama.json" in "shapes/"; NULL for a file that is not there. */
const char *ebb_cli_embedded_name(const char *name, const char *folder);
/* How long a file's name is without its ending: "qwen2.5-7b.json" is "qwen2.5-7b". */
int ebb_cli_stem(const char *name);
/* The chat templates among them, for struct ebb_recipe_env. */
const char *ebb_cli_chat_template(int i, const char **name);

#ifdef __cplusplus
}
#endif
#endif
