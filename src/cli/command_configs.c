/* `ebb configs`: the ready configurations, shapes and chat templates.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/embedded.h"

/* The first comment of a configuration says what it is for. */
static enum ebb_status list(struct ebb_cli *cli)
{
    size_t count;
    const struct ebb_embedded *files = ebb_embedded_files(&count);
    (void)cli;
    printf("Configurations ('ebb configs copy NAME DEST' writes one):\n");
    for (size_t i = 0; i < count; i++) {
        if (strchr(files[i].name, '/')) continue;
        const char *text = files[i].text;
        size_t skip = strspn(text, "# ");
        printf("  %-31s%.*s\n", files[i].name, (int)strcspn(text + skip, "\n"), text + skip);
    }
    printf("\nShapes for 'ebb init SHAPE OUT_DIR':\n");
    for (size_t i = 0; i < count; i++) {
        const char *name = ebb_cli_embedded_name(files[i].name, "shapes/");
        if (name) printf("  %.*s\n", ebb_cli_stem(name), name);
    }
    printf("\nChat templates for 'chat_template: NAME':\n");
    for (size_t i = 0; i < count; i++) {
        const char *name = ebb_cli_embedded_name(files[i].name, "chat_templates/");
        const char *text = files[i].text + strspn(files[i].text, "{#- ");
        const char *end = strstr(text, " -#}");
        if (name && end)
            printf("  %-10.*s%.*s\n", ebb_cli_stem(name), name, (int)(end - text), text);
    }
    return EBB_OK;
}

static const char *find(struct ebb_cli *cli, const char *name)
{
    const char *text = ebb_cli_embedded("", name, ".yaml");
    if (text == NULL) text = ebb_cli_embedded("shapes/", name, ".json");
    if (text == NULL) text = ebb_cli_embedded("chat_templates/", name, ".jinja");
    if (text) return text;
    size_t count;
    const struct ebb_embedded *files = ebb_embedded_files(&count);
    enum { NAMES = 64 };
    char shorts[NAMES][64];
    const char *names[NAMES];
    size_t used = 0;
    for (size_t i = 0; i < count && used < NAMES; i++) {
        const char *slash = strchr(files[i].name, '/');
        const char *begin = slash ? slash + 1 : files[i].name;
        snprintf(shorts[used], sizeof shorts[used], "%.*s", ebb_cli_stem(begin), begin);
        names[used] = shorts[used];
        used++;
    }
    const char *near = ebb_text_nearest(name, names, used);
    EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "there is no configuration '%s'\ntry:   %s%s", name,
             near ? near : "ebb configs", near ? " (ebb configs lists all)" : "");
    return NULL;
}

static enum ebb_status copy(struct ebb_cli *cli, const char *name, const char *to)
{
    const char *text = find(cli, name);
    if (text == NULL) return EBB_BAD_CONFIG;
    if (ebb_file_exists(to) || ebb_dir_exists(to))
        return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "'%s' exists already\ntry:   another name", to);
    EBB_TRY(ebb_file_write(cli->ctx, to, text, strlen(text)));
    printf("%s\n", to);
    return EBB_OK;
}

enum ebb_status ebb_cli_configs(struct ebb_cli *cli)
{
    const char *verb = cli->count > 0 ? cli->words[0] : "list";
    if (strcmp(verb, "list") == 0 && cli->count <= 1) return list(cli);
    if (strcmp(verb, "cat") == 0 && cli->count == 2) {
        const char *text = find(cli, cli->words[1]);
        if (text == NULL) return EBB_BAD_CONFIG;
        fputs(text, stdout);
        return EBB_OK;
    }
    if ((strcmp(verb, "copy") == 0 || strcmp(verb, "cp") == 0) && cli->count == 3)
        return copy(cli, cli->words[1], cli->words[2]);
    return EBB_FAIL(
        cli->ctx, EBB_BAD_CONFIG,
        "'ebb configs %s' is not understood\nusage: ebb configs [cat NAME | copy NAME DEST]", verb);
}
