/* Options: one table of rows, from which everything about keys is made: the check of a YAML
 * file, `key=value` and `--key value`, help, docs/CONFIG.md.
 *
 * A key is looked up in this order: rows and their aliases; spellings whose value needs
 * translating ("adapter: lora"); keys of other projects that do not apply here (one line says
 * what Ebb does instead, or an error says that it is not offered); otherwise it is an error that
 * names the nearest key. Every value remembers where it was set.
 *
 * One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_OPTIONS_H
#define EBB_RECIPE_OPTIONS_H

#include <jansson.h>

#include "base/text.h"
#include "recipe/keys.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the table ------------------------------------------------------------------------------- */

/* X(NAME, text, C type of the field) */
#define EBB_OPTION_TYPE_LIST(X)                                                                    \
    X(BOOL, "true or false", bool)                                                                 \
    X(INT, "whole number", int64_t)                                                                \
    X(FLOAT, "number", double)                                                                     \
    X(SIZE, "size such as 20GiB, or share such as 80%", struct ebb_amount)                         \
    X(AUTO_BOOL, "auto, true or false", int) /* enum ebb_auto */                                   \
    X(CHOICE, "choice", int)                 /* index in `choices` */                              \
    X(STRING, "text", char *)                                                                      \
    X(LIST, "list of names", char *)                      /* names joined by commas */             \
    X(TEXTS, "text, or list of texts", struct ebb_yaml *) /* a scalar or a list of them */         \
    X(YAML, "mapping or list", struct ebb_yaml *)

enum ebb_option_type {
#define EBB_OPTION_TYPE_ENUM(name, text, type) EBB_OPTION_##name,
    EBB_OPTION_TYPE_LIST(EBB_OPTION_TYPE_ENUM)
#undef EBB_OPTION_TYPE_ENUM
        EBB_OPTION_TYPE_COUNT
};

/* X(NAME, title): groups in the order of help. */
#define EBB_OPTION_GROUP_LIST(X)                                                                   \
    X(MODEL, "Model")                                                                              \
    X(DATA, "Data")                                                                                \
    X(TRAINING, "Training")                                                                        \
    X(OPTIMIZER, "Optimizer")                                                                      \
    X(LORA, "LoRA")                                                                                \
    X(DISTILLATION, "Distillation")                                                                \
    X(PREFERENCES, "Preferences")                                                                  \
    X(MEMORY, "Memory")                                                                            \
    X(EVALUATION, "Evaluation and checkpoints")                                                    \
    X(GENERATION, "Generation")                                                                    \
    X(BENCHMARK, "Benchmark")                                                                      \
    X(MACHINE, "Machine and output")

enum ebb_option_group {
#define EBB_OPTION_GROUP_ENUM(name, title) EBB_GROUP_##name,
    EBB_OPTION_GROUP_LIST(EBB_OPTION_GROUP_ENUM)
#undef EBB_OPTION_GROUP_ENUM
        EBB_GROUP_COUNT
};

struct ebb_option {
    const char *key;
    enum ebb_option_group group;
    enum ebb_option_type type;
    unsigned commands;   /* bit 1 << enum ebb_command: has the key */
    unsigned required;   /* the same: stops without it */
    const char *text;    /* default, as it would be written; NULL: none */
    bool automatic;      /* INT, FLOAT: "auto" is a value too */
    const char *bare;    /* INT: a word that stands for EBB_LONGEST, and what --KEY alone means, in
                            'ebb plan'; NULL: none */
    bool above;          /* FLOAT: low itself is out of range */
    double low, high;    /* INT, FLOAT: bounds, both included; SIZE: low in bytes */
    const char *choices; /* CHOICE: "linear|cosine"; a choice's other spellings follow it:
                            "float32=fp32|bfloat16=bf16" */
    const char *unit;    /* of the number; of YAML what is wanted ("mapping of names"); or NULL */
    const char *aliases; /* other spellings, separated by blanks; may be NULL */
    const char *help;    /* full sentences: what it does, when to change it */
    size_t offset;       /* in struct ebb_config */
};

const struct ebb_option *ebb_option_table(size_t *count);
/* By key or alias, whatever the command; NULL: none. */
const struct ebb_option *ebb_option_find(const char *key);
const char *ebb_option_group_title(enum ebb_option_group group);
/* "memory" names the group "Memory"; so does the first word of a longer title. */
bool ebb_option_group_is(enum ebb_option_group group, const char *name);
/* The first spelling of choice i, copied into `out`; false past the last. */
bool ebb_option_choice(const struct ebb_option *option, int i, char *out, size_t out_bytes);
/* The i-th word of a list separated by blanks, copied into `out`; false past the last. */
bool ebb_option_word(const char *words, int i, char *out, size_t out_bytes);
/* What a value of it may be, in words: "whole number from 1 to 4096", "linear, cosine or
 * constant". */
enum ebb_status ebb_option_values(struct ebb_ctx *ctx, const struct ebb_option *option,
                                  struct ebb_str *out);

/* A spelling of another project whose value needs translating. */
struct ebb_spelling {
    const char *key;    /* theirs */
    const char *target; /* ours */
    const char *map;    /* "lora=true|none=false|*": their value = ours; '*' at the end: any other
                           value as it is; a value    that maps to '!' is refused with `refusal` */
    const char *refusal;
};
const struct ebb_spelling *ebb_spelling_table(size_t *count);
const struct ebb_spelling *ebb_spelling_find(const char *key); /* NULL: none */

/* A value of another project that is none of a key's here, and what to write for it. */
struct ebb_foreign_value {
    const char *key;    /* ours; its other spellings are meant too */
    const char *values; /* separated by blanks */
    const char *text;
};
const struct ebb_foreign_value *ebb_foreign_value_table(size_t *count);

/* A key of another project that does not apply. */
struct ebb_foreign_key {
    const char *keys; /* separated by blanks; "model." at the end of a name: everything below it */
    bool refused;     /* EBB_UNSUPPORTED unless the value is one of `off` */
    const char *off;  /* values that ask for nothing, separated by blanks */
    const char *text; /* what Ebb does instead */
};
const struct ebb_foreign_key *ebb_foreign_table(size_t *count);
/* NULL: none. A name that ends with '.' stands for everything below it, where nothing else claims
 * that. */
const struct ebb_foreign_key *ebb_foreign_find(const char *key);

/* A project whose configurations are read, and the keys that they have, for docs/COMING_FROM.md
 * (recipe/options_projects.c). */
struct ebb_project {
    const char *name;  /* in 'ebb help --markdown NAME' */
    const char *title; /* as it writes itself */
    const char
        *keys; /* as it spells them, separated by blanks, in the order of a file of its own */
};
const struct ebb_project *ebb_project_table(size_t *count);
const struct ebb_project *ebb_project_find(const char *name); /* NULL: none */

/* ---- the values of one run ------------------------------------------------------------------- */

enum ebb_origin_kind { EBB_ORIGIN_DEFAULT, EBB_ORIGIN_FILE, EBB_ORIGIN_ARGUMENT };

struct ebb_origin {
    enum ebb_origin_kind kind;
    const char *key;  /* as the user spelled it; borrowed from the options */
    const char *text; /* the value as written; borrowed; "" for a tree */
    int line, column; /* of the key, in the file */
};

struct ebb_options;

/* All defaults. `config` is borrowed and filled; what its pointers point at belongs to the
 * options. The caller frees. */
enum ebb_status ebb_options_create(struct ebb_ctx *ctx, enum ebb_command command,
                                   struct ebb_config *config, struct ebb_options **options);
void ebb_options_free(struct ebb_options *options); /* accepts NULL */
/* A YAML file. Keys of another command of the table are left alone with one line: a training
 * configuration serves `ebb eval` too. */
enum ebb_status ebb_options_file(struct ebb_options *options, const char *path);
/* Text from memory; `name` stands for the path. */
enum ebb_status ebb_options_text(struct ebb_options *options, const char *name, const char *text);
/* A command's arguments: `key=value`, `--key=value`, `--key value`, `--flag`; '-' and '_' are
 * the same in keys. What is none of these is positional: for EBB_COMMAND_INIT config and
 * output_dir, for EBB_COMMAND_TOKENIZE the model's directory, else the configuration file, which is
 * read before the other arguments are applied. */
enum ebb_status ebb_options_arguments(struct ebb_options *options, int count,
                                      char *const *arguments);
/* One value, as an argument gives it. */
enum ebb_status ebb_options_set(struct ebb_options *options, const char *key, const char *text);
/* A key's default, as if nobody had set it. */
enum ebb_status ebb_options_unset(struct ebb_options *options, const char *key);
/* Required keys are there, and every key that was set has an effect in this combination
 * (recipe/options_rules.c). Logs the lines that other projects' keys lead to. */
enum ebb_status ebb_options_check(struct ebb_options *options);

bool ebb_options_is_set(const struct ebb_options *options,
                        const char *key); /* by file or argument */
struct ebb_origin ebb_options_origin(const struct ebb_options *options, const char *key);
/* 'ebb plan' with sweep: memory. */
bool ebb_config_sweeps(const struct ebb_config *config);
/* The key device as a backend: auto is the GPU where one is present. */
enum ebb_backend ebb_config_backend(const struct ebb_config *config);
enum ebb_command ebb_options_command(const struct ebb_options *options);
/* The configuration file's path, or NULL; borrowed. */
const char *ebb_options_path(const struct ebb_options *options);
/* "conf.yaml:14:1 lora_r: 16" or "command line lora_r=16" or "default lora_r: 16"; borrowed
 * until the next call. */
const char *ebb_options_where(struct ebb_options *options, const char *key);
/* All values of the command's keys as a JSON object; the caller owns it. NULL after a failure. */
json_t *ebb_options_json(const struct ebb_options *options);

/* A tree as JSON: plain true, false, null and numbers are those values, all else is text. The
 * caller owns it; NULL: no memory. */
json_t *ebb_options_tree_json(const struct ebb_yaml *node);

/* recipe/options_rules.c; called by ebb_options_check. */
enum ebb_status ebb_rules_check(struct ebb_options *options, const struct ebb_config *config,
                                struct ebb_ctx *ctx);

/* ---- activations ----------------------------------------------------------------------------- */

/* A rule of `activations:` before the network's slots are known. */
struct ebb_activation_rule {
    int64_t first, last; /* as struct ebb_policy_rule */
    int64_t every;
    char slot[16];
    enum ebb_policy policy;
    int line, column;             /* of the slot */
    int range_line, range_column; /* of `layers`; 0: there is none */
};
enum { EBB_ACTIVATION_RULES = 4 * EBB_SLOTS }; /* at most */

/* A mapping of slots to policies, or a list of at most four of them with `layers` ("0-11",
 * "12-", "3") and `every`. */
enum ebb_status ebb_activations_parse(struct ebb_ctx *ctx, const char *name,
                                      const struct ebb_yaml *tree,
                                      struct ebb_activation_rule rules[EBB_ACTIVATION_RULES],
                                      int64_t *count);

/* ---- help ------------------------------------------------------------------------------------ */

const char *ebb_command_name(enum ebb_command command);
const char *ebb_command_line(enum ebb_command command);
const char *ebb_command_usage(enum ebb_command command);
bool ebb_command_find(const char *name, enum ebb_command *command);

/* Adds the keys of a command, in groups; with `filter` only that key or that group. *found:
 * something matched. */
enum ebb_status ebb_help_keys(struct ebb_ctx *ctx, enum ebb_command command, const char *filter,
                              struct ebb_str *out, bool *found);
/* Adds one key's text. */
enum ebb_status ebb_help_key(struct ebb_ctx *ctx, const struct ebb_option *option, bool commands,
                             struct ebb_str *out);
/* docs/CONFIG.md. */
enum ebb_status ebb_help_markdown(struct ebb_ctx *ctx, struct ebb_str *out);
/* A project's table in docs/COMING_FROM.md. */
enum ebb_status ebb_help_project(struct ebb_ctx *ctx, const struct ebb_project *project,
                                 struct ebb_str *out);

#ifdef __cplusplus
}
#endif
#endif
