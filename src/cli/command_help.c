/* `ebb help`: commands, keys, docs/CONFIG.md.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const char *usage_of(const struct ebb_cli_command *command)
{
    enum ebb_command recipe;
    return command->usage                             ? command->usage
           : ebb_command_find(command->name, &recipe) ? ebb_command_usage(recipe)
                                                      : "";
}

static const char *line_of(const struct ebb_cli_command *command)
{
    enum ebb_command recipe;
    return command->line                              ? command->line
           : ebb_command_find(command->name, &recipe) ? ebb_command_line(recipe)
                                                      : "";
}

static enum ebb_status add_commands(struct ebb_cli *cli, struct ebb_str *out)
{
    size_t count;
    const struct ebb_cli_command *commands = ebb_cli_commands(&count);
    for (size_t i = 0; i < count; i++)
        if (!commands[i].hidden)
            EBB_TRY(ebb_str_addf(cli->ctx, out, "  %-10s%s\n", commands[i].name,
                                 line_of(&commands[i])));
    return EBB_OK;
}

enum ebb_status ebb_cli_short_help(struct ebb_cli *cli, struct ebb_str *out)
{
    EBB_TRY(ebb_str_addf(cli->ctx, out,
                         "usage: ebb COMMAND [CONFIG.yaml] [key=value | --key value ...]\n\n"));
    EBB_TRY(add_commands(cli, out));
    return ebb_str_addf(cli->ctx, out,
                        "\nebb help COMMAND documents every key with its default.\n");
}

static enum ebb_status add_overview(struct ebb_cli *cli, struct ebb_str *out)
{
    EBB_TRY(
        ebb_str_addf(cli->ctx, out, "Ebb fine-tunes language models inside a memory budget.\n\n"));
    EBB_TRY(ebb_str_addf(cli->ctx, out,
                         "usage: ebb COMMAND [CONFIG.yaml] [key=value | --key value ...]\n\n"));
    EBB_TRY(add_commands(cli, out));
    return ebb_str_addf(
        cli->ctx, out,
        "\n"
        "From nothing to a fine-tuned model, without a download:\n"
        "  ebb init tiny-llama model --tokenizer bytes\n"
        "  ebb data model_name_or_path=model dataset_name=data.jsonl\n"
        "  ebb plan model_name_or_path=model dataset_name=data.jsonl use_peft=true\n"
        "  ebb sft model_name_or_path=model dataset_name=data.jsonl use_peft=true "
        "output_dir=run\n"
        "  ebb generate model_name_or_path=run prompt='Once upon'\n"
        "  ebb merge adapter_name_or_path=run output_dir=merged\n"
        "\n"
        "  ebb help sft            every key of a command, with its default\n"
        "  ebb help sft memory     one group of them\n"
        "  ebb help max_length     one key\n"
        "  ebb configs             configurations to start from\n"
        "\n"
        "Exit codes: 0 done, 1 failed while running, 2 bad command or configuration, 3 does not "
        "fit into memory,\n"
        "4 device or driver, 130 interrupted (a checkpoint is written first).\n");
}

/* What a command without keys says of itself. */
static const char *text_of(const char *name)
{
    if (strcmp(name, "configs") == 0)
        return "\n"
               "  ebb configs                  lists the configurations, and the shapes for 'ebb "
               "init'\n"
               "  ebb configs cat NAME         prints one\n"
               "  ebb configs copy NAME DEST   writes one to a new file\n";
    if (strcmp(name, "plot") == 0)
        return "\n"
               "  ebb plot run                         a run's loss, gradient norm, learning rate "
               "and memory\n"
               "  ebb plot run-a run-b                 several runs in one picture\n"
               "  ebb plot results.json                what a sweep measured (docs/FORMATS.md)\n"
               "  ebb plan sweep=memory --json ... >plans.json && ebb plot plans.json\n"
               "                                       what budgets would give\n"
               "\n"
               "FILE is a run's folder, its metrics.jsonl, results, or plans as JSON; its content "
               "tells which.\n"
               "Files of one kind share a picture, results and plans over the same thing too.\n"
               "\n"
               "  --output FILE    plot.png; the ending .png or .svg says what is written\n"
               "  --title TEXT     instead of the file's own, or the run's name\n"
               "  --width N        pixels; with one of both the other follows\n"
               "  --height N\n";
    if (strcmp(name, "help") == 0)
        return "\n"
               "  ebb help                     this program\n"
               "  ebb help COMMAND             a command and its keys\n"
               "  ebb help COMMAND KEY|GROUP   one key, or one group of keys\n"
               "  ebb help KEY                 one key of any command\n"
               "  ebb help --markdown          docs/CONFIG.md\n"
               "  ebb help --markdown PROJECT  what becomes of a project's keys here, as in "
               "docs/COMING_FROM.md\n";
    return "";
}

/* What a command with keys has to say beside them. */
static const char *note_of(const char *name)
{
    if (strcmp(name, "probe") == 0)
        return "Small models of random weights train, for about a minute on a GPU and less on a "
               "CPU; what\n"
               "their steps took tells how long other steps take. It is kept in ebb/rates of "
               "$XDG_CACHE_HOME\n"
               "(~/.cache where that is not set), for each device and dtype. Nothing else should "
               "be at work\n"
               "there meanwhile. After a new driver or library it is worth doing again.\n"
               "\n";
    if (strcmp(name, "bench") == 0)
        return "  ebb bench sft.yaml --sweep length=1k:128k:x2     memory and speed by length\n"
               "  ebb bench sft.yaml --sweep length=1k:16k:+1k --modes none,offload --steps 10\n"
               "  ebb bench sft.yaml --sweep budget=8GiB:64GiB:x2  what the plan makes of budgets\n"
               "  ebb bench --models qwen2.5-7b --sweep length=2k:32k:x2 use_peft=true\n"
               "\n"
               "CONFIG.yaml is a training configuration; recipe says what it trains if that is not "
               "sft. Each\n"
               "point trains for some steps in a process of its own, so one that runs out of "
               "memory or is\n"
               "killed ends its series and nothing else. Everything goes into output_dir: "
               "results.json\n"
               "(docs/FORMATS.md), which the same command goes on with after an interruption, "
               "pictures of\n"
               "it, and bench.log with what the processes said. What a saved teacher "
               "(teacher_logits) teaches\n"
               "belongs to its samples, and cannot be measured on rows of other lengths.\n"
               "\n";
    return "";
}

static enum ebb_status add_command(struct ebb_cli *cli, const struct ebb_cli_command *command,
                                   const char *filter, struct ebb_str *out)
{
    enum ebb_command recipe;
    bool found = true;
    if (!ebb_command_find(command->name, &recipe)) {
        EBB_TRY(ebb_str_addf(cli->ctx, out, "usage: ebb %s %s\n\nebb %s: %s\n", command->name,
                             usage_of(command), command->name, line_of(command)));
        return ebb_str_addf(cli->ctx, out, "%s", text_of(command->name));
    }
    if (!filter)
        EBB_TRY(ebb_str_addf(
            cli->ctx, out,
            "usage: ebb %s %s\n"
            "\n"
            "ebb %s: %s\n"
            "\n"
            "%s"
            "A value on the command line goes before the file's. Shown as \"key: default\".\n",
            command->name, usage_of(command), command->name, line_of(command),
            note_of(command->name)));
    EBB_TRY(ebb_help_keys(cli->ctx, recipe, filter, out, &found));
    if (found) return EBB_OK;
    return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                    "'ebb %s' has no key or group '%s'\nhelp:  ebb help %s", command->name, filter,
                    command->name);
}

enum ebb_status ebb_cli_help_command(struct ebb_cli *cli, const char *name, const char *filter)
{
    const struct ebb_cli_command *command = ebb_cli_find(cli, name);
    struct ebb_str text = {0};
    if (command == NULL) return EBB_BAD_CONFIG;
    enum ebb_status status = add_command(cli, command, filter, &text);
    if (status == EBB_OK) ebb_cli_print(&text);
    ebb_str_free(cli->ctx, &text);
    return status;
}

static const char *foreign_text(const char *key)
{
    size_t count;
    const struct ebb_foreign_key *foreign = ebb_foreign_table(&count);
    char name[64];
    for (size_t i = 0; i < count; i++)
        for (int k = 0; ebb_option_word(foreign[i].keys, k, name, sizeof name); k++)
            if (strcmp(name, key) == 0) return foreign[i].text;
    return NULL;
}

/* "sft memory": the group of a key on a command line, behind the first command that has it. The
 * first word of a title names a group, in any case. */
static void group_words(const struct ebb_option *option, char *out, size_t out_bytes)
{
    const char *title = ebb_option_group_title(option->group);
    int command = 0;
    while (!(option->commands & 1u << command)) command++;
    snprintf(out, out_bytes, "%s %.*s", ebb_command_name((enum ebb_command)command),
             (int)strcspn(title, " "), title);
    for (char *c = out; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
}

/* The name of a group of keys is no topic by itself: says how the group is shown. */
static enum ebb_status fail_group(struct ebb_cli *cli, const char *name)
{
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    char words[64];
    size_t i = 0;
    while (i < rows && !ebb_option_group_is(table[i].group, name)) i++;
    if (i == rows) return EBB_OK;
    group_words(&table[i], words, sizeof words);
    return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "'%s' is a group of keys\ntry:   ebb help %s", name,
                    words);
}

/* A word that several keys have in their names: says which, and their group where it is one. */
static enum ebb_status fail_word(struct ebb_cli *cli, const char *name)
{
    enum { LEAST = 4, NAMED = 4 }; /* bytes of a word, keys that are named */
    size_t rows, keys = 0;
    const struct ebb_option *table = ebb_option_table(&rows), *first = NULL;
    struct ebb_str text = {0};
    bool one_group = true;
    char words[64];
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; strlen(name) >= LEAST && status == EBB_OK && i < rows; i++) {
        if (!strstr(table[i].key, name)) continue;
        if (!first) first = &table[i];
        one_group = one_group && table[i].group == first->group;
        if (++keys <= NAMED)
            status = ebb_str_addf(cli->ctx, &text, "%sebb help %s", keys > 1 ? "\n       " : "",
                                  table[i].key);
    }
    if (status == EBB_OK && keys > 1 && one_group) {
        group_words(first, words, sizeof words);
        status = ebb_str_addf(cli->ctx, &text, "\n       ebb help %s, for the whole group", words);
    }
    if (status == EBB_OK && keys > 1)
        status = EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "no command or key is called '%s'\ntry:   %s",
                          name, text.data);
    ebb_str_free(cli->ctx, &text);
    return status;
}

/* Neither a command nor a key: a group of keys, a word of several, or the nearest of both. */
static enum ebb_status fail_topic(struct ebb_cli *cli, const char *name)
{
    EBB_TRY(fail_group(cli, name));
    EBB_TRY(fail_word(cli, name));
    if (strncmp(name, "exit", 4) == 0)
        return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                        "no command or key is called '%s'\ntry:   ebb help, which ends with the "
                        "exit codes",
                        name);
    const char *names[256];
    size_t rows, count, used = 0;
    const struct ebb_option *table = ebb_option_table(&rows);
    const struct ebb_cli_command *commands = ebb_cli_commands(&count);
    for (size_t i = 0; i < count; i++)
        if (!commands[i].hidden) names[used++] = commands[i].name;
    for (size_t i = 0; i < rows && used < sizeof names / sizeof names[0]; i++)
        names[used++] = table[i].key;
    const char *near = ebb_text_nearest(name, names, used);
    return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG,
                    "no command or key is called '%s'\ntry:   ebb help%s%s", name, near ? " " : "",
                    near ? near : "");
}

/* docs/CONFIG.md, or a project's table of docs/COMING_FROM.md. */
static enum ebb_status add_markdown(struct ebb_cli *cli, const char *name, struct ebb_str *out)
{
    if (name == NULL) return ebb_help_markdown(cli->ctx, out);
    const struct ebb_project *project = ebb_project_find(name);
    if (project) return ebb_help_project(cli->ctx, project, out);
    size_t count;
    const struct ebb_project *table = ebb_project_table(&count);
    struct ebb_str known = {0};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; status == EBB_OK && i < count; i++)
        status = ebb_str_addf(cli->ctx, &known, "%s%s", i ? ", " : "", table[i].name);
    if (status == EBB_OK)
        status = EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "there is no table of keys of '%s'\nknown: %s",
                          name, known.data);
    ebb_str_free(cli->ctx, &known);
    return status;
}

enum ebb_status ebb_cli_help(struct ebb_cli *cli)
{
    const char *name = cli->count > 0 ? cli->words[0] : NULL;
    struct ebb_str text = {0};
    enum ebb_status status;
    if (name && ebb_cli_named(name))
        return ebb_cli_help_command(cli, name, cli->count > 1 ? cli->words[1] : NULL);
    const struct ebb_option *option = name ? ebb_option_find(name) : NULL;
    const char *foreign = name && !option ? foreign_text(name) : NULL;
    if (name == NULL)
        status = add_overview(cli, &text);
    else if (strcmp(name, "--markdown") == 0)
        status = add_markdown(cli, cli->count > 1 ? cli->words[1] : NULL, &text);
    else if (option)
        status = ebb_help_key(cli->ctx, option, true, &text);
    else if (foreign)
        status = ebb_str_addf(cli->ctx, &text,
                              "  %s is a key of other projects that Ebb does not use: %s\n", name,
                              foreign);
    else
        status = fail_topic(cli, name);
    if (status == EBB_OK) ebb_cli_print(&text);
    ebb_str_free(cli->ctx, &text);
    return status;
}
