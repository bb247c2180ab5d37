/* Help from the option table: for a terminal, and as docs/CONFIG.md.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "recipe/options_int.h"

enum { HELP_COLUMNS = 88 };

const char *ebb_option_group_title(enum ebb_option_group group)
{
    static const char *const titles[] = {
#define GROUP_TITLE(name, title) title,
        EBB_OPTION_GROUP_LIST(GROUP_TITLE)
#undef GROUP_TITLE
    };
    return titles[group];
}

/* Adds `text` in lines of at most HELP_COLUMNS, each behind `indent` blanks. */
static enum ebb_status add_wrapped(struct ebb_ctx *ctx, struct ebb_str *out, int indent,
                                   const char *text)
{
    int column = 0;
    while (*text) {
        text += strspn(text, " ");
        int bytes = (int)strcspn(text, " ");
        if (bytes == 0) break;
        if (column > 0 && column + 1 + bytes > HELP_COLUMNS) {
            EBB_TRY(ebb_str_addf(ctx, out, "\n"));
            column = 0;
        }
        if (column == 0) {
            EBB_TRY(ebb_str_addf(ctx, out, "%*s", indent, ""));
            column = indent;
        } else {
            EBB_TRY(ebb_str_addf(ctx, out, " "));
            column++;
        }
        EBB_TRY(ebb_str_add(ctx, out, text, (size_t)bytes));
        column += bytes;
        text += bytes;
    }
    return ebb_str_addf(ctx, out, "\n");
}

static enum ebb_status add_aliases(struct ebb_ctx *ctx, const struct ebb_option *option,
                                   struct ebb_str *out)
{
    char name[EBB_WORD_BYTES];
    struct ebb_str line = {0};
    enum ebb_status status = EBB_OK;
    for (int i = 0; status == EBB_OK && ebb_option_word(option->aliases, i, name, sizeof name); i++)
        status = ebb_str_addf(ctx, &line, "%s%s", i ? ", " : "also spelled: ", name);
    if (status == EBB_OK && line.data) status = add_wrapped(ctx, out, 6, line.data);
    ebb_str_free(ctx, &line);
    return status;
}

static enum ebb_status add_commands(struct ebb_ctx *ctx, const struct ebb_option *option,
                                    struct ebb_str *out)
{
    bool first = true;
    for (int i = 0; i < EBB_COMMAND_COUNT; i++) {
        if (!(option->commands & 1u << i)) continue;
        EBB_TRY(ebb_str_addf(ctx, out, "%s%s", first ? "" : ", ",
                             ebb_command_name((enum ebb_command)i)));
        first = false;
    }
    return EBB_OK;
}

enum ebb_status ebb_help_key(struct ebb_ctx *ctx, const struct ebb_option *option, bool commands,
                             struct ebb_str *out)
{
    struct ebb_str values = {0};
    enum ebb_status status = ebb_option_values(ctx, option, &values);
    if (status == EBB_OK)
        status = ebb_str_addf(ctx, out, "  %s: %s\n", option->key,
                              option->text ? option->text : "(none)");
    if (status == EBB_OK) status = add_wrapped(ctx, out, 6, option->help);
    if (status == EBB_OK) status = ebb_str_addf(ctx, out, "      ");
    if (status == EBB_OK) status = ebb_str_addf(ctx, out, "values: %s\n", values.data);
    if (status == EBB_OK) status = add_aliases(ctx, option, out);
    if (status == EBB_OK && commands) {
        status = ebb_str_addf(ctx, out, "      commands: ");
        if (status == EBB_OK) status = add_commands(ctx, option, out);
        if (status == EBB_OK) status = ebb_str_addf(ctx, out, "\n");
    }
    ebb_str_free(ctx, &values);
    return status;
}

bool ebb_option_group_is(enum ebb_option_group group, const char *name)
{
    const char *title = ebb_option_group_title(group);
    size_t bytes = strlen(name);
    if (bytes == 0 || strlen(title) < bytes) return false;
    for (size_t i = 0; i < bytes; i++) {
        char a = title[i], b = name[i];
        if (a >= 'A' && a <= 'Z') a = (char)(a - 'A' + 'a');
        if (b >= 'A' && b <= 'Z') b = (char)(b - 'A' + 'a');
        if (a != b) return false;
    }
    return title[bytes] == 0 || title[bytes] == ' ';
}

enum ebb_status ebb_help_keys(struct ebb_ctx *ctx, enum ebb_command command, const char *filter,
                              struct ebb_str *out, bool *found)
{
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    const struct ebb_option *one = filter ? ebb_option_find(filter) : NULL;
    *found = false;
    for (int group = 0; group < EBB_GROUP_COUNT; group++) {
        bool titled = false;
        if (filter && !one && !ebb_option_group_is((enum ebb_option_group)group, filter)) continue;
        for (size_t i = 0; i < rows; i++) {
            if ((int)table[i].group != group || !(table[i].commands & 1u << command)) continue;
            if (one && one != &table[i]) continue;
            if (!titled)
                EBB_TRY(ebb_str_addf(ctx, out, "\n%s\n\n",
                                     ebb_option_group_title((enum ebb_option_group)group)));
            titled = *found = true;
            EBB_TRY(ebb_help_key(ctx, &table[i], false, out));
        }
    }
    return EBB_OK;
}

/* ---- docs/CONFIG.md -------------------------------------------------------------------------- */

enum ebb_status ebb_help_cell(struct ebb_ctx *ctx, struct ebb_str *out, const char *text)
{
    for (const char *c = text; *c; c++)
        EBB_TRY(*c == '|' ? ebb_str_addf(ctx, out, "\\|") : ebb_str_add(ctx, out, c, 1));
    return EBB_OK;
}

static enum ebb_status add_row(struct ebb_ctx *ctx, const struct ebb_option *option,
                               struct ebb_str *out)
{
    char name[EBB_WORD_BYTES];
    struct ebb_str values = {0};
    enum ebb_status status = ebb_option_values(ctx, option, &values);
    if (status == EBB_OK)
        status = ebb_str_addf(ctx, out, "| `%s` | %s%s%s | ", option->key, option->text ? "`" : "",
                              option->text ? option->text : "", option->text ? "`" : "");
    if (status == EBB_OK) status = ebb_help_cell(ctx, out, option->help);
    if (status == EBB_OK) status = ebb_str_addf(ctx, out, " Values: ");
    if (status == EBB_OK) status = ebb_help_cell(ctx, out, values.data);
    if (status == EBB_OK) status = ebb_str_addf(ctx, out, ".");
    for (int i = 0; status == EBB_OK && ebb_option_word(option->aliases, i, name, sizeof name); i++)
        status = ebb_str_addf(ctx, out, "%s`%s`", i ? ", " : " Also spelled: ", name);
    if (status == EBB_OK) status = ebb_str_addf(ctx, out, "%s | ", option->aliases ? "." : "");
    if (status == EBB_OK) status = add_commands(ctx, option, out);
    if (status == EBB_OK) status = ebb_str_addf(ctx, out, " |\n");
    ebb_str_free(ctx, &values);
    return status;
}

enum ebb_status ebb_help_spelling(struct ebb_ctx *ctx, struct ebb_str *out,
                                  const struct ebb_spelling *spelling)
{
    bool first = true;
    EBB_TRY(ebb_str_addf(ctx, out, "`%s`: ", spelling->target));
    for (const char *at = spelling->map; *at;) {
        size_t bytes = strcspn(at, "|"), left = strcspn(at, "=|");
        if (left < bytes && at[left + 1] != '!') {
            EBB_TRY(ebb_str_addf(ctx, out, "%s%.*s is %.*s", first ? "" : ", ", (int)left, at,
                                 (int)(bytes - left - 1), at + left + 1));
            first = false;
        }
        at += bytes;
        at += *at == '|';
    }
    return EBB_OK;
}

static enum ebb_status add_foreign(struct ebb_ctx *ctx, struct ebb_str *out)
{
    size_t count;
    char name[EBB_WORD_BYTES];
    const struct ebb_spelling *spellings = ebb_spelling_table(&count);
    EBB_TRY(ebb_str_addf(ctx, out,
                         "\n"
                         "## Spellings of other projects\n"
                         "\n"
                         "Beside the spellings above, these are translated:\n"
                         "\n"
                         "| theirs | means |\n"
                         "| --- | --- |\n"));
    for (size_t i = 0; i < count; i++) {
        EBB_TRY(ebb_str_addf(ctx, out, "| `%s` | ", spellings[i].key));
        EBB_TRY(ebb_help_spelling(ctx, out, &spellings[i]));
        EBB_TRY(ebb_str_addf(ctx, out, " |\n"));
    }
    const struct ebb_foreign_key *foreign = ebb_foreign_table(&count);
    EBB_TRY(ebb_str_addf(ctx, out,
                         "\n"
                         "## Keys that do not apply\n"
                         "\n"
                         "Known keys of torchtune, TRL, Axolotl and LLaMA-Factory. \"Accepted\" "
                         "prints one line and goes on; \"refused\" is an error unless the value "
                         "asks for nothing.\n"
                         "\n"
                         "| keys | | what Ebb does instead |\n"
                         "| --- | --- | --- |\n"));
    for (size_t i = 0; i < count; i++) {
        EBB_TRY(ebb_str_addf(ctx, out, "| "));
        for (int k = 0; ebb_option_word(foreign[i].keys, k, name, sizeof name); k++)
            EBB_TRY(ebb_str_addf(ctx, out, "%s`%s%s`", k ? ", " : "", name,
                                 name[strlen(name) - 1] == '.' ? "*" : ""));
        EBB_TRY(ebb_str_addf(ctx, out, " | %s | ", foreign[i].refused ? "refused" : "accepted"));
        EBB_TRY(ebb_help_cell(ctx, out, foreign[i].text));
        EBB_TRY(ebb_str_addf(ctx, out, " |\n"));
    }
    return EBB_OK;
}

enum ebb_status ebb_help_markdown(struct ebb_ctx *ctx, struct ebb_str *out)
{
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    EBB_TRY(ebb_str_addf(
        ctx, out,
        "<!-- Made by `ebb help --markdown`; change src/recipe/options_table.c instead. -->\n"
        "# Configuration keys\n"
        "\n"
        "A configuration is a YAML file of the keys below; `key=value` or `--key value` on the "
        "command line goes before the file. A key that a file sets twice, by whatever spelling, is "
        "an error; on the command line the last one holds, with a warning where values differ. An "
        "unknown key is an error that names the nearest "
        "one; so is a key that has no effect in its combination with others. Sizes are written "
        "`20GiB`, `512MB` or plain bytes.\n"));
    for (int group = 0; group < EBB_GROUP_COUNT; group++) {
        EBB_TRY(ebb_str_addf(
            ctx, out,
            "\n## %s\n\n| key | default | meaning | commands |\n| --- | --- | --- | --- |\n",
            ebb_option_group_title((enum ebb_option_group)group)));
        for (size_t i = 0; i < rows; i++)
            if ((int)table[i].group == group) EBB_TRY(add_row(ctx, &table[i], out));
    }
    return add_foreign(ctx, out);
}
