/* report_to and logging_dir.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/report.h"

#include <string.h>

#include "base/file.h"
#include "recipe/options_int.h"
#include "train/event_file.h"

#define EVENTS_DIR  "runs" /* as transformers has it */
#define WANDB_TAIL  "tools/wandb_tail.py"
#define SEPARATORS  ", \t\n"
#define KNOWN_NAMES "none, tensorboard, wandb or all"

enum reports { REPORT_NONE = 1, REPORT_TENSORBOARD = 2, REPORT_WANDB = 4 };

static const struct {
    const char *name;
    unsigned reports;
} names[] = {
    {"none", REPORT_NONE},
    {"tensorboard", REPORT_TENSORBOARD},
    {"wandb", REPORT_WANDB},
    {"all", REPORT_TENSORBOARD | REPORT_WANDB},
};
enum { NAMES = sizeof names / sizeof names[0] };

/* What a list of names asks for; *bad is the first that is none, *bytes long, or NULL. */
static unsigned parse(const char *text, const char **bad, size_t *bytes)
{
    unsigned reports = 0;
    *bad = NULL;
    for (const char *at = text; *at; at += *bytes) {
        at += strspn(at, SEPARATORS);
        *bytes = strcspn(at, SEPARATORS);
        size_t i = 0;
        while (i < NAMES &&
               (strlen(names[i].name) != *bytes || strncmp(at, names[i].name, *bytes) != 0))
            i++;
        if (i < NAMES) reports |= names[i].reports;
        if (i == NAMES && *bytes > 0) {
            *bad = at;
            break;
        }
    }
    return reports;
}

static unsigned reports_of(const struct ebb_config *config)
{
    const char *bad;
    size_t bytes;
    return parse(config->report_to, &bad, &bytes);
}

static enum ebb_status check_names(struct ebb_ctx *ctx, struct ebb_options *options,
                                   const struct ebb_config *config)
{
    const char *bad;
    size_t bytes;
    unsigned reports = parse(config->report_to, &bad, &bytes);
    if (bad)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "value '%.*s' of 'report_to' is not known: wanted " KNOWN_NAMES
                        ", or a list of them\nwhere: %s\nhelp:  ebb help report_to",
                        (int)bytes, bad, ebb_options_where(options, "report_to"));
    if ((reports & REPORT_NONE) && reports != REPORT_NONE)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'report_to' has none beside other names\nwhere: %s\n"
                        "try:   remove one of them",
                        ebb_options_where(options, "report_to"));
    return EBB_OK;
}

/* A configuration of another project may have the folder without asking for what goes there. */
static enum ebb_status check_dir(struct ebb_ctx *ctx, struct ebb_options *options,
                                 const struct ebb_config *config)
{
    struct ebb_origin origin = ebb_options_origin(options, "logging_dir");
    if (!config->logging_dir) return EBB_OK;
    if (!(reports_of(config) & REPORT_TENSORBOARD)) {
        ebb_log(ctx, EBB_LOG_INFO, "config",
                "'%s' is not used: report_to: tensorboard writes event files there", origin.key);
        return EBB_OK;
    }
    if (strstr(config->logging_dir, "${"))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'%s' names a variable, and no variables are filled in\nwhere: %s\n"
                        "try:   a path, or remove it for " EVENTS_DIR " in output_dir",
                        origin.key, ebb_options_where_origin(options, &origin));
    return EBB_OK;
}

enum ebb_status ebb_report_check(struct ebb_ctx *ctx, struct ebb_options *options,
                                 const struct ebb_config *config)
{
    if (!(EBB_TRAINING_COMMANDS & 1u << ebb_options_command(options))) return EBB_OK;
    EBB_TRY(check_names(ctx, options, config));
    EBB_TRY(check_dir(ctx, options, config));
    if (reports_of(config) & REPORT_WANDB)
        ebb_log(ctx, EBB_LOG_INFO, "config",
                "report_to: wandb is done by a script: 'python " WANDB_TAIL
                " %s' sends metrics.jsonl to Weights & Biases, also while the run goes on",
                config->output_dir ? config->output_dir : "OUTPUT_DIR");
    return EBB_OK;
}

enum ebb_status ebb_report_dir(struct ebb_ctx *ctx, const struct ebb_config *config, char **dir)
{
    *dir = NULL;
    if (!(reports_of(config) & REPORT_TENSORBOARD)) return EBB_OK;
    *dir = config->logging_dir ? ebb_mem_strdup(ctx, config->logging_dir)
                               : ebb_path_join(ctx, config->output_dir, EVENTS_DIR);
    return *dir ? EBB_OK : EBB_NO_MEMORY;
}

enum ebb_status ebb_report_clear(struct ebb_ctx *ctx, const struct ebb_config *config)
{
    char *dir = ebb_path_join(ctx, config->output_dir, EVENTS_DIR);
    if (!dir) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_event_files_remove(ctx, dir);
    ebb_mem_free(ctx, dir);
    return status;
}
