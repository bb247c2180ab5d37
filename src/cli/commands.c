/* The table of commands, and what several of them use.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/embedded.h"
#include "recipe/machine.h"

static const struct ebb_cli_command commands[] = {
    {"sft", NULL, NULL, ebb_cli_sft, true, false},
    {"kd", NULL, NULL, ebb_cli_kd, true, false},
    {"dpo", NULL, NULL, ebb_cli_dpo, true, false},
    {"plan", NULL, NULL, ebb_cli_plan, false, false},
    {"bench", NULL, NULL, ebb_cli_bench, true, false},
    {"probe", NULL, NULL, ebb_cli_probe, false, false},
    {"data", NULL, NULL, ebb_cli_data, false, false},
    {"eval", NULL, NULL, ebb_cli_eval, true, false},
    {"generate", NULL, NULL, ebb_cli_generate, false, false},
    {"chat", NULL, NULL, ebb_cli_chat, true, false},
    {"merge", NULL, NULL, ebb_cli_merge, false, false},
    {"init", NULL, NULL, ebb_cli_init, false, false},
    {"tokenize", NULL, NULL, ebb_cli_tokenize, false, false},
    {"plot", "FILE... [--output plot.png] [--title TEXT] [--width N] [--height N]",
     "draw runs' metrics, results or plans as PNG or SVG", ebb_cli_plot, false, false},
    {"configs", "[cat NAME | copy NAME DEST]", "list, print or copy the ready configurations",
     ebb_cli_configs, false, false},
    {"help", "[COMMAND [KEY|GROUP] | KEY | --markdown]", "explain commands and keys", ebb_cli_help,
     false, false},
    {"version", "", "print version and libraries", ebb_cli_version, false, false},
    {"bench-point", "", "measure one point of 'ebb bench'", ebb_cli_bench_point, false, true},
};

/* Other names that commands go by. */
static const char *const other_names[][2] = {{"distill", "kd"}, {"kto", "dpo"}};

const struct ebb_cli_command *ebb_cli_commands(size_t *count)
{
    *count = sizeof commands / sizeof commands[0];
    return commands;
}

const struct ebb_cli_command *ebb_cli_named(const char *name)
{
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++)
        if (strcmp(other_names[i][0], name) == 0) name = other_names[i][1];
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

const struct ebb_cli_command *ebb_cli_find(struct ebb_cli *cli, const char *name)
{
    enum { OTHERS = sizeof other_names / sizeof other_names[0] };
    const char *names[sizeof commands / sizeof commands[0] + OTHERS];
    size_t count = 0;
    const struct ebb_cli_command *command = ebb_cli_named(name);
    if (command) return command;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!commands[i].hidden) names[count++] = commands[i].name;
    for (size_t i = 0; i < OTHERS; i++) names[count++] = other_names[i][0];
    const char *near = ebb_text_nearest(name, names, count);
    if (near)
        EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                 "unknown command '%s'\ntry:   ebb %s (ebb help lists all)", name, near);
    else
        EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "unknown command '%s'\nhelp:  ebb help", name);
    return NULL;
}

enum ebb_status ebb_cli_options(struct ebb_cli *cli, enum ebb_command command,
                                struct ebb_config *config, struct ebb_options **options)
{
    EBB_TRY(ebb_options_create(cli->ctx, command, config, options));
    enum ebb_status status = ebb_options_arguments(*options, cli->count, cli->words);
    if (status == EBB_OK) status = ebb_options_check(*options);
    if (status == EBB_OK && ebb_option_find("device")->commands & 1u << command)
        ebb_machine_tell_unused(cli->ctx, config, "");
    if (status == EBB_OK) return EBB_OK;
    ebb_options_free(*options);
    *options = NULL;
    return status;
}

enum ebb_status ebb_cli_stops(struct ebb_cli *cli, const struct ebb_config *config,
                              const char *stops[EBB_CLI_STOPS], int64_t *count)
{
    const struct ebb_yaml *stop = config->stop;
    *count = 0;
    if (stop == NULL) return EBB_OK;
    size_t texts = stop->kind == EBB_YAML_LIST ? stop->count : 1;
    const struct ebb_yaml *items = stop->kind == EBB_YAML_LIST ? stop->items : stop;
    if (texts > EBB_CLI_STOPS)
        return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "'stop' has %zu texts, %d at most are offered",
                        texts, EBB_CLI_STOPS);
    for (size_t i = 0; i < texts; i++) stops[(*count)++] = items[i].text;
    return EBB_OK;
}

void ebb_cli_print(const struct ebb_str *text)
{
    if (text->data) fwrite(text->data, 1, text->bytes, stdout);
}

enum ebb_status ebb_cli_print_json(struct ebb_cli *cli, json_t *json)
{
    struct ebb_str text = {0};
    enum ebb_status status = ebb_json_text(cli->ctx, json, 2, &text);
    if (status == EBB_OK) status = ebb_str_addf(cli->ctx, &text, "\n");
    if (status == EBB_OK) ebb_cli_print(&text);
    ebb_str_free(cli->ctx, &text);
    json_decref(json);
    return status;
}

const char *ebb_cli_embedded(const char *folder, const char *name, const char *ending)
{
    size_t count;
    const struct ebb_embedded *files = ebb_embedded_files(&count);
    char whole[256];
    for (size_t i = 0; i < count; i++) {
        snprintf(whole, sizeof whole, "%s%s", folder, name);
        if (strcmp(whole, files[i].name) == 0) return files[i].text;
        snprintf(whole, sizeof whole, "%s%s%s", folder, name, ending);
        if (strcmp(whole, files[i].name) == 0) return files[i].text;
    }
    return NULL;
}

const char *ebb_cli_embedded_name(const char *name, const char *folder)
{
    size_t bytes = strlen(folder);
    return strncmp(name, folder, bytes) == 0 ? name + bytes : NULL;
}

int ebb_cli_stem(const char *name)
{
    const char *dot = strrchr(name, '.');
    return (int)(dot ? (size_t)(dot - name) : strlen(name));
}

const char *ebb_cli_chat_template(int i, const char **name)
{
    /* Their names without folder and ending, as the table of files has them. */
    static const char *const names[] = {"alpaca", "chatml", "llama2", "llama3", "zephyr"};
    if (i < 0 || (size_t)i >= sizeof names / sizeof names[0]) return NULL;
    *name = names[i];
    return ebb_cli_embedded("chat_templates/", names[i], ".jinja");
}
