/* Reading values by the option table: files, arguments, translations, messages.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/options.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "recipe/options_int.h"

static const char *const command_names[] = {
#define COMMAND_NAME(name, text, usage, line) text,
    EBB_COMMAND_LIST(COMMAND_NAME)
#undef COMMAND_NAME
};
static const char *const command_usages[] = {
#define COMMAND_USAGE(name, text, usage, line) usage,
    EBB_COMMAND_LIST(COMMAND_USAGE)
#undef COMMAND_USAGE
};
static const char *const command_lines[] = {
#define COMMAND_LINE(name, text, usage, line) line,
    EBB_COMMAND_LIST(COMMAND_LINE)
#undef COMMAND_LINE
};

const char *ebb_command_name(enum ebb_command command)
{
    return command_names[command];
}

const char *ebb_command_line(enum ebb_command command)
{
    return command_lines[command];
}

const char *ebb_command_usage(enum ebb_command command)
{
    return command_usages[command];
}

bool ebb_command_find(const char *name, enum ebb_command *command)
{
    for (int i = 0; i < EBB_COMMAND_COUNT; i++) {
        if (strcmp(name, command_names[i]) != 0) continue;
        *command = (enum ebb_command)i;
        return true;
    }
    return false;
}

/* ---- looking up ------------------------------------------------------------------------------ */

bool ebb_option_word(const char *words, int i, char *out, size_t out_bytes)
{
    if (words == NULL) return false;
    for (const char *at = words; *at;) {
        size_t bytes = strcspn(at, " ");
        if (i-- == 0) {
            EBB_ASSERT(bytes < out_bytes);
            memcpy(out, at, bytes);
            out[bytes] = 0;
            return true;
        }
        at += bytes;
        at += strspn(at, " ");
    }
    return false;
}

static bool is_word_of(const char *words, const char *word)
{
    char name[EBB_WORD_BYTES];
    for (int i = 0; ebb_option_word(words, i, name, sizeof name); i++)
        if (strcmp(name, word) == 0) return true;
    return false;
}

const struct ebb_option *ebb_option_find(const char *key)
{
    size_t count;
    const struct ebb_option *table = ebb_option_table(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].key, key) == 0 || is_word_of(table[i].aliases, key)) return &table[i];
    return NULL;
}

const struct ebb_spelling *ebb_spelling_find(const char *key)
{
    size_t count;
    const struct ebb_spelling *table = ebb_spelling_table(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].key, key) == 0) return &table[i];
    return NULL;
}

const struct ebb_foreign_key *ebb_foreign_find(const char *key)
{
    size_t count;
    const struct ebb_foreign_key *table = ebb_foreign_table(&count);
    char name[EBB_WORD_BYTES];
    for (size_t i = 0; i < count; i++)
        if (is_word_of(table[i].keys, key)) return &table[i];
    for (size_t i = 0; i < count; i++)
        for (int k = 0; ebb_option_word(table[i].keys, k, name, sizeof name); k++) {
            size_t bytes = strlen(name);
            if (name[bytes - 1] == '.' && strncmp(key, name, bytes) == 0) return &table[i];
        }
    return NULL;
}

static size_t row_of(const struct ebb_option *option)
{
    size_t count;
    return (size_t)(option - ebb_option_table(&count));
}

bool ebb_options_is_set(const struct ebb_options *options, const char *key)
{
    return ebb_options_origin(options, key).kind != EBB_ORIGIN_DEFAULT;
}

struct ebb_origin ebb_options_origin(const struct ebb_options *options, const char *key)
{
    const struct ebb_option *option = ebb_option_find(key);
    EBB_ASSERT(option != NULL);
    return options->origins[row_of(option)];
}

enum ebb_command ebb_options_command(const struct ebb_options *options)
{
    return options->command;
}

const char *ebb_options_path(const struct ebb_options *options)
{
    return options->path;
}

const char *ebb_options_where_origin(struct ebb_options *options, const struct ebb_origin *origin)
{
    char *out = options->where;
    size_t room = sizeof options->where;
    if (origin->kind == EBB_ORIGIN_FILE)
        snprintf(out, room, "%s:%d:%d  %s: %s", options->path ? options->path : "", origin->line,
                 origin->column, origin->key, origin->text);
    else if (origin->kind == EBB_ORIGIN_ARGUMENT)
        snprintf(out, room, "command line  %s=%s", origin->key, origin->text);
    else
        snprintf(out, room, "default  %s: %s", origin->key, origin->text);
    return out;
}

const char *ebb_options_where(struct ebb_options *options, const char *key)
{
    struct ebb_origin origin = ebb_options_origin(options, key);
    return ebb_options_where_origin(options, &origin);
}

/* ---- what a value may be --------------------------------------------------------------------- */

/* The k-th spelling of choice i. */
static bool choice_spelling(const struct ebb_option *option, int i, int k, char *out,
                            size_t out_bytes)
{
    const char *at = option->choices;
    for (; i > 0; i--) {
        at = strchr(at, '|');
        if (at == NULL) return false;
        at++;
    }
    size_t end = strcspn(at, "|");
    size_t begin = 0;
    for (;;) {
        size_t bytes = strcspn(at + begin, "=|");
        if (k-- == 0) {
            EBB_ASSERT(bytes < out_bytes);
            memcpy(out, at + begin, bytes);
            out[bytes] = 0;
            return true;
        }
        begin += bytes + 1;
        if (begin >= end) return false;
    }
}

bool ebb_option_choice(const struct ebb_option *option, int i, char *out, size_t out_bytes)
{
    return choice_spelling(option, i, 0, out, out_bytes);
}

static enum ebb_status add_number(struct ebb_ctx *ctx, struct ebb_str *out, double value)
{
    return ebb_str_addf(ctx, out, "%.15g", value);
}

static enum ebb_status add_bounds(struct ebb_ctx *ctx, const struct ebb_option *option,
                                  struct ebb_str *out)
{
    EBB_TRY(ebb_str_addf(ctx, out, "%s", option->above ? " above " : " from "));
    EBB_TRY(add_number(ctx, out, option->low));
    EBB_TRY(ebb_str_addf(ctx, out, "%s", option->above ? ", at most " : " to "));
    return add_number(ctx, out, option->high);
}

enum ebb_status ebb_option_values(struct ebb_ctx *ctx, const struct ebb_option *option,
                                  struct ebb_str *out)
{
    static const char *const texts[] = {
#define TYPE_TEXT(name, text, type) text,
        EBB_OPTION_TYPE_LIST(TYPE_TEXT)
#undef TYPE_TEXT
    };
    if (option->type == EBB_OPTION_CHOICE) {
        char name[EBB_WORD_BYTES], next[EBB_WORD_BYTES];
        for (int i = 0; ebb_option_choice(option, i, name, sizeof name); i++) {
            bool last = !ebb_option_choice(option, i + 1, next, sizeof next);
            EBB_TRY(ebb_str_addf(ctx, out, "%s%s", i == 0 ? "" : last ? " or " : ", ", name));
        }
        return EBB_OK;
    }
    if (option->type == EBB_OPTION_YAML && option->unit)
        return ebb_str_addf(ctx, out, "%s", option->unit);
    EBB_TRY(ebb_str_addf(ctx, out, "%s", texts[option->type]));
    if (option->type == EBB_OPTION_INT || option->type == EBB_OPTION_FLOAT)
        EBB_TRY(add_bounds(ctx, option, out));
    if (option->unit) EBB_TRY(ebb_str_addf(ctx, out, " (%s)", option->unit));
    if (option->automatic) EBB_TRY(ebb_str_addf(ctx, out, ", or auto"));
    return EBB_OK;
}

/* What of ours another project's value asks for; NULL: not known. */
static const char *advice_for(const struct ebb_option *option, const char *value)
{
    size_t count;
    const struct ebb_foreign_value *table = ebb_foreign_value_table(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].key, option->key) == 0 && is_word_of(table[i].values, value))
            return table[i].text;
    return NULL;
}

/* "value '0' of 'lora_r' is ...". */
static enum ebb_status fail_value(struct ebb_options *options, const struct ebb_option *option,
                                  const struct ebb_origin *origin, const char *what)
{
    struct ebb_str wanted = {0};
    const char *advice = advice_for(option, origin->text);
    enum ebb_status status = ebb_option_values(options->ctx, option, &wanted);
    if (status == EBB_OK)
        status = EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                          "value '%s' of '%s' is %s: wanted %s\nwhere: %s%s%s\nhelp:  ebb help %s",
                          origin->text, origin->key, what, wanted.data,
                          ebb_options_where_origin(options, origin), advice ? "\ntry:   " : "",
                          advice ? advice : "", option->key);
    ebb_str_free(options->ctx, &wanted);
    return status;
}

/* ---- values from text ------------------------------------------------------------------------ */

static enum ebb_status set_int(struct ebb_options *options, const struct ebb_option *option,
                               const struct ebb_origin *origin, int64_t *field)
{
    int64_t value;
    double wide;
    if (option->automatic && strcmp(origin->text, "auto") == 0) {
        *field = EBB_AUTO_INT;
        return EBB_OK;
    }
    if (option->bare && options->command == EBB_COMMAND_PLAN &&
        strcmp(origin->text, option->bare) == 0) {
        *field = EBB_LONGEST;
        return EBB_OK;
    }
    if (!ebb_text_int64(origin->text, &value)) {
        /* "1e3" and "1.0" are whole too. */
        if (!ebb_text_double(origin->text, &wide))
            return fail_value(options, option, origin, "no whole number");
        if (wide != floor(wide) || fabs(wide) > 9007199254740992.0)
            return fail_value(options, option, origin, "no whole number");
        value = (int64_t)wide;
    }
    if ((double)value < option->low || (double)value > option->high)
        return fail_value(options, option, origin, "out of range");
    *field = value;
    return EBB_OK;
}

static enum ebb_status set_float(struct ebb_options *options, const struct ebb_option *option,
                                 const struct ebb_origin *origin, double *field)
{
    double value;
    if (option->automatic && strcmp(origin->text, "auto") == 0) {
        *field = NAN;
        return EBB_OK;
    }
    if (!ebb_text_double(origin->text, &value))
        return fail_value(options, option, origin, "no number");
    if (value < option->low || value > option->high || (option->above && !(value > option->low)))
        return fail_value(options, option, origin, "out of range");
    *field = value;
    return EBB_OK;
}

/* A number without a unit that is too small to be meant in bytes: "20" is meant in GiB, "24000" in
 * MiB, "0.8" as a share. */
static enum ebb_status fail_size(struct ebb_options *options, const struct ebb_option *option,
                                 const struct ebb_origin *origin, double number)
{
    char least[32], text[EBB_TEXT_DOUBLE];
    const char *unit = number < 1 ? "%" : number < 1000 ? "GiB" : "MiB";
    if (number < 1) number = round(1e4 * number) / 100;
    return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                    "value '%s' of '%s' is too small: at least %s\n"
                    "where: %s\n"
                    "try:   %s: %s%s\n"
                    "help:  ebb help %s",
                    origin->text, origin->key,
                    ebb_text_bytes((int64_t)option->low, least, sizeof least),
                    ebb_options_where_origin(options, origin), origin->key,
                    ebb_text_from_double(number, text), unit, option->key);
}

static enum ebb_status set_size(struct ebb_options *options, const struct ebb_option *option,
                                const struct ebb_origin *origin, struct ebb_amount *field)
{
    double bare;
    struct ebb_amount amount = {0, 0};
    size_t bytes = strlen(origin->text);
    if (bytes > 1 && bytes < EBB_WORD_BYTES && origin->text[bytes - 1] == '%') {
        char number[EBB_WORD_BYTES];
        memcpy(number, origin->text, bytes - 1);
        number[bytes - 1] = 0;
        if (!ebb_text_double(number, &amount.percent))
            return fail_value(options, option, origin, "no size");
        if (!(amount.percent > 0) || amount.percent > 100)
            return fail_value(options, option, origin, "out of range");
    } else {
        if (ebb_text_double(origin->text, &bare) && bare > 0 && bare < option->low)
            return fail_size(options, option, origin, bare);
        if (!ebb_text_size(origin->text, &amount.bytes))
            return fail_value(options, option, origin, "no size");
        if ((double)amount.bytes < option->low) {
            char least[32];
            return EBB_FAIL(
                options->ctx, EBB_BAD_CONFIG,
                "value '%s' of '%s' is too small: at least %s\nwhere: %s\nhelp:  ebb help %s",
                origin->text, origin->key,
                ebb_text_bytes((int64_t)option->low, least, sizeof least),
                ebb_options_where_origin(options, origin), option->key);
        }
    }
    *field = amount;
    return EBB_OK;
}

static enum ebb_status set_choice(struct ebb_options *options, const struct ebb_option *option,
                                  const struct ebb_origin *origin, int *field)
{
    char name[EBB_WORD_BYTES];
    for (int i = 0; choice_spelling(option, i, 0, name, sizeof name); i++)
        for (int k = 0; choice_spelling(option, i, k, name, sizeof name); k++)
            if (strcmp(name, origin->text) == 0) {
                *field = i;
                return EBB_OK;
            }
    return fail_value(options, option, origin, "none of its choices");
}

static enum ebb_status set_bool(struct ebb_options *options, const struct ebb_option *option,
                                const struct ebb_origin *origin, void *field)
{
    bool value;
    if (option->type == EBB_OPTION_AUTO_BOOL && strcmp(origin->text, "auto") == 0) {
        *(int *)field = EBB_AUTO;
        return EBB_OK;
    }
    if (!ebb_text_bool(origin->text, &value)) {
        bool is_auto = option->type == EBB_OPTION_AUTO_BOOL;
        return fail_value(options, option, origin,
                          is_auto ? "none of its choices" : "not understood");
    }
    if (option->type == EBB_OPTION_BOOL)
        *(bool *)field = value;
    else
        *(int *)field = value ? EBB_TRUE : EBB_FALSE;
    return EBB_OK;
}

static enum ebb_status set_string(struct ebb_options *options, const char *text, char **field)
{
    char *copy = NULL;
    if (text) {
        copy = ebb_mem_strdup(options->ctx, text);
        if (copy == NULL) return EBB_NO_MEMORY;
    }
    ebb_mem_free(options->ctx, *field);
    *field = copy;
    return EBB_OK;
}

static enum ebb_status set_tree(struct ebb_options *options, const struct ebb_option *option,
                                const struct ebb_origin *origin, struct ebb_yaml **field)
{
    struct ebb_yaml *tree = NULL;
    const char *name = origin->kind == EBB_ORIGIN_ARGUMENT ? "command line" : option->key;
    EBB_TRY(ebb_yaml_parse(options->ctx, name, origin->text, strlen(origin->text), &tree));
    if (tree->kind != EBB_YAML_MAP && tree->kind != EBB_YAML_LIST) {
        ebb_yaml_free(options->ctx, tree);
        return fail_value(options, option, origin, "one plain value");
    }
    ebb_yaml_free(options->ctx, *field);
    *field = tree;
    return EBB_OK;
}

static bool is_text(const struct ebb_yaml *node)
{
    return node->kind == EBB_YAML_SCALAR && node->text[0];
}

static enum ebb_status check_texts(struct ebb_options *options, const struct ebb_origin *origin,
                                   const struct ebb_yaml *tree)
{
    bool good = is_text(tree) || (tree->kind == EBB_YAML_LIST && tree->count > 0);
    for (size_t i = 0; good && tree->kind == EBB_YAML_LIST && i < tree->count; i++)
        good = is_text(&tree->items[i]);
    if (good) return EBB_OK;
    return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                    "'%s' wants a text, or a list of texts of which none is empty\nwhere: %s",
                    origin->key, ebb_options_where_origin(options, origin));
}

/* "[" begins a list in YAML's flow style; anything else is one text as it stands. */
static enum ebb_status set_texts(struct ebb_options *options, const struct ebb_origin *origin,
                                 struct ebb_yaml **field)
{
    struct ebb_yaml *tree = NULL;
    enum ebb_status status = EBB_OK;
    if (origin->text[0] == '[') {
        EBB_TRY(ebb_yaml_parse(options->ctx, "command line", origin->text, strlen(origin->text),
                               &tree));
    } else {
        tree = ebb_mem_alloc(options->ctx, sizeof *tree);
        if (tree == NULL) return EBB_NO_MEMORY;
        tree->kind = EBB_YAML_SCALAR;
        tree->quoted = true;
        tree->text = ebb_mem_strdup(options->ctx, origin->text);
        if (tree->text == NULL) status = EBB_NO_MEMORY;
    }
    if (status == EBB_OK) status = check_texts(options, origin, tree);
    if (status != EBB_OK) {
        ebb_yaml_free(options->ctx, tree);
        return status;
    }
    ebb_yaml_free(options->ctx, *field);
    *field = tree;
    return EBB_OK;
}

static enum ebb_status set_field(struct ebb_options *options, const struct ebb_option *option,
                                 const struct ebb_origin *origin)
{
    void *field = (char *)options->config + option->offset;
    switch (option->type) {
    case EBB_OPTION_BOOL:
    case EBB_OPTION_AUTO_BOOL:
        return set_bool(options, option, origin, field);
    case EBB_OPTION_INT:
        return set_int(options, option, origin, (int64_t *)field);
    case EBB_OPTION_FLOAT:
        return set_float(options, option, origin, (double *)field);
    case EBB_OPTION_SIZE:
        return set_size(options, option, origin, (struct ebb_amount *)field);
    case EBB_OPTION_CHOICE:
        return set_choice(options, option, origin, (int *)field);
    case EBB_OPTION_STRING:
    case EBB_OPTION_LIST:
        return set_string(options, origin->text, (char **)field);
    case EBB_OPTION_TEXTS:
        return set_texts(options, origin, (struct ebb_yaml **)field);
    case EBB_OPTION_YAML:
        return set_tree(options, option, origin, (struct ebb_yaml **)field);
    case EBB_OPTION_TYPE_COUNT:
        break;
    }
    EBB_ASSERT(!"option type");
    return EBB_FAILED;
}

/* A row back at its default. */
static enum ebb_status set_default(struct ebb_options *options, const struct ebb_option *option)
{
    void *field = (char *)options->config + option->offset;
    struct ebb_origin origin = {EBB_ORIGIN_DEFAULT, option->key, option->text ? option->text : "",
                                0, 0};
    options->origins[row_of(option)] = origin;
    if (option->text) return set_field(options, option, &origin);
    if (option->type == EBB_OPTION_STRING || option->type == EBB_OPTION_LIST)
        return set_string(options, NULL, (char **)field);
    if (option->type == EBB_OPTION_SIZE) *(struct ebb_amount *)field = (struct ebb_amount){0, 0};
    if (option->type == EBB_OPTION_TEXTS || option->type == EBB_OPTION_YAML) {
        ebb_yaml_free(options->ctx, *(struct ebb_yaml **)field);
        *(struct ebb_yaml **)field = NULL;
    }
    return EBB_OK;
}

/* Keeps a copy for as long as the options live, so that origins can borrow it. */
static enum ebb_status keep_text(struct ebb_options *options, const char *text, const char **kept)
{
    if (options->kept_count == options->kept_room) {
        size_t room = options->kept_room ? 2 * options->kept_room : 64;
        char **bigger = ebb_mem_realloc(options->ctx, options->kept, room * sizeof *bigger);
        if (bigger == NULL) return EBB_NO_MEMORY;
        options->kept = bigger;
        options->kept_room = room;
    }
    char *copy = ebb_mem_strdup(options->ctx, text);
    if (copy == NULL) return EBB_NO_MEMORY;
    options->kept[options->kept_count++] = copy;
    *kept = copy;
    return EBB_OK;
}

static enum ebb_status keep_origin(struct ebb_options *options, const struct ebb_origin *given,
                                   struct ebb_origin *origin)
{
    *origin = *given;
    EBB_TRY(keep_text(options, given->key, &origin->key));
    return keep_text(options, given->text, &origin->text);
}

/* ---- one key --------------------------------------------------------------------------------- */

static bool is_null_text(const char *text)
{
    return strcmp(text, "null") == 0 || strcmp(text, "None") == 0 || strcmp(text, "~") == 0;
}

/* What of the key table is near an unknown key. */
static enum ebb_status fail_unknown(struct ebb_options *options, const struct ebb_origin *origin)
{
    size_t rows, count = 0;
    const struct ebb_option *table = ebb_option_table(&rows);
    enum { NAMES = 1024 };
    const char **names = ebb_mem_alloc(options->ctx, NAMES * sizeof *names);
    char(*words)[EBB_WORD_BYTES] = ebb_mem_alloc(options->ctx, NAMES * sizeof *words);
    enum ebb_status status = EBB_NO_MEMORY;
    if (names && words) {
        for (size_t i = 0; i < rows; i++) {
            if (!(table[i].commands & 1u << options->command)) continue;
            EBB_ASSERT(count < NAMES);
            names[count++] = table[i].key;
            for (int k = 0; count < NAMES &&
                            ebb_option_word(table[i].aliases, k, words[count], EBB_WORD_BYTES);
                 k++) {
                names[count] = words[count];
                count++;
            }
        }
        const char *dot = strrchr(origin->key, '.');
        const char *near = ebb_text_nearest(origin->key, names, count);
        if (near == NULL && dot) near = ebb_text_nearest(dot + 1, names, count);
        const struct ebb_option *option = near ? ebb_option_find(near) : NULL;
        const char *command = ebb_command_name(options->command);
        if (near && strcmp(near, option->key) != 0)
            status = EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                              "unknown key '%s'\n"
                              "where: %s\n"
                              "try:   '%s', which is another spelling of '%s' (ebb help %s)",
                              origin->key, ebb_options_where_origin(options, origin), near,
                              option->key, command);
        else if (near)
            status = EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                              "unknown key '%s'\nwhere: %s\ntry:   '%s' (ebb help %s)", origin->key,
                              ebb_options_where_origin(options, origin), near, command);
        else
            status = EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                              "unknown key '%s'\nwhere: %s\nhelp:  ebb help %s", origin->key,
                              ebb_options_where_origin(options, origin), command);
    }
    ebb_mem_free(options->ctx, words);
    ebb_mem_free(options->ctx, names);
    return status;
}

/* A key of another command: refused as an argument; that of a training run is left alone in a file
 * which may also serve to plan, evaluate or generate, and where a run's own arguments are given to
 * 'ebb plan' or 'ebb bench'. So is 'recipe: kd' in a file of 'ebb kd'. */
static enum ebb_status other_command(struct ebb_options *options, const struct ebb_option *option,
                                     const struct ebb_origin *origin)
{
    const char *first = NULL, *command = ebb_command_name(options->command);
    bool file = origin->kind == EBB_ORIGIN_FILE, recipe = strcmp(option->key, "recipe") == 0,
         trains = EBB_TRAINING_COMMANDS & 1u << options->command;
    for (int i = 0; i < EBB_COMMAND_COUNT && first == NULL; i++)
        if (option->commands & 1u << i) first = ebb_command_name((enum ebb_command)i);
    if (file && recipe && trains && strcmp(origin->text, command) == 0) return EBB_OK;
    bool looks = options->command == EBB_COMMAND_PLAN || options->command == EBB_COMMAND_BENCH;
    if ((file || looks) && !trains && (recipe || (option->commands & EBB_TRAINING_COMMANDS))) {
        options->left_alone++;
        return EBB_OK;
    }
    return EBB_FAIL(
        options->ctx, EBB_BAD_CONFIG,
        "key '%s' belongs to 'ebb %s'; 'ebb %s' has no use for it\nwhere: %s\nhelp:  ebb help %s",
        origin->key, first, command, ebb_options_where_origin(options, origin), command);
}

/* A file says what a run is, so it names a key once, whatever the spelling. */
static enum ebb_status check_once(struct ebb_options *options, const struct ebb_option *option,
                                  const struct ebb_origin *given)
{
    const struct ebb_origin *held = &options->origins[row_of(option)];
    if (given->kind != EBB_ORIGIN_FILE || held->kind != EBB_ORIGIN_FILE) return EBB_OK;
    return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                    "'%s' is set twice: '%s' on line %d and '%s' on line %d\n"
                    "where: %s\n"
                    "try:   keep one of them",
                    option->key, held->key, held->line, given->key, given->line,
                    ebb_options_where_origin(options, given));
}

static enum ebb_status set_row(struct ebb_options *options, const struct ebb_option *option,
                               const struct ebb_origin *given)
{
    if (!(option->commands & 1u << options->command)) return other_command(options, option, given);
    EBB_TRY(check_once(options, option, given));
    struct ebb_origin *held = &options->origins[row_of(option)];
    if (is_null_text(given->text) && option->type != EBB_OPTION_STRING)
        return set_default(options, option);
    struct ebb_origin origin;
    EBB_TRY(keep_origin(options, given, &origin));
    EBB_TRY(set_field(options, option, &origin));
    *held = origin;
    return EBB_OK;
}

/* A value of a translated spelling, by its map. */
static enum ebb_status set_spelling(struct ebb_options *options,
                                    const struct ebb_spelling *spelling,
                                    const struct ebb_origin *given)
{
    const struct ebb_option *option = ebb_option_find(spelling->target);
    EBB_ASSERT(option != NULL);
    struct ebb_origin origin = *given;
    char from[EBB_WORD_BYTES], to[128];
    for (const char *at = spelling->map; *at;) {
        size_t bytes = strcspn(at, "|");
        size_t left = strcspn(at, "=|");
        bool any = left == 1 && at[0] == '*';
        EBB_ASSERT(left < sizeof from && bytes - left < sizeof to);
        memcpy(from, at, left);
        from[left] = 0;
        if (any) return set_row(options, option, given);
        if (strcmp(from, given->text) == 0) {
            memcpy(to, at + left + 1, bytes - left - 1);
            to[bytes - left - 1] = 0;
            if (strcmp(to, "!") == 0)
                return EBB_FAIL(options->ctx, EBB_UNSUPPORTED,
                                "'%s: %s' is not offered: %s\nwhere: %s", given->key, given->text,
                                spelling->refusal, ebb_options_where_origin(options, given));
            origin.text = to;
            EBB_TRY(set_row(options, option, &origin));
            /* Messages show the value as the user wrote it. */
            struct ebb_origin *held = &options->origins[row_of(option)];
            return held->kind == given->kind ? keep_text(options, given->text, &held->text)
                                             : EBB_OK;
        }
        at += bytes;
        at += *at == '|';
    }
    return set_row(options, option, given);
}

static enum ebb_status set_foreign(struct ebb_options *options,
                                   const struct ebb_foreign_key *foreign,
                                   const struct ebb_origin *origin)
{
    char text[EBB_WORD_BYTES];
    bool off = is_null_text(origin->text);
    if (strlen(origin->text) < sizeof text) {
        snprintf(text, sizeof text, "%s", origin->text);
        for (char *c = text; *c; c++)
            if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
        off = off || is_word_of(foreign->off, text);
    }
    if (foreign->refused && !off)
        return EBB_FAIL(options->ctx, EBB_UNSUPPORTED, "'%s: %s' is not offered: %s\nwhere: %s",
                        origin->key, origin->text, foreign->text,
                        ebb_options_where_origin(options, origin));
    if (!foreign->refused)
        ebb_log(options->ctx, EBB_LOG_INFO, "config", "'%s' is not used: %s", origin->key,
                foreign->text);
    return EBB_OK;
}

/* Sets one key from its text, whoever's spelling it is. */
static enum ebb_status set_key(struct ebb_options *options, const struct ebb_origin *origin)
{
    const struct ebb_option *option = ebb_option_find(origin->key);
    if (option) return set_row(options, option, origin);
    const struct ebb_spelling *spelling = ebb_spelling_find(origin->key);
    if (spelling) return set_spelling(options, spelling, origin);
    const struct ebb_foreign_key *foreign = ebb_foreign_find(origin->key);
    if (foreign) return set_foreign(options, foreign, origin);
    return fail_unknown(options, origin);
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum ebb_status fail_shape(struct ebb_options *options, const struct ebb_origin *origin,
                                  const char *wanted, const char *got)
{
    return EBB_FAIL(options->ctx, EBB_BAD_CONFIG, "'%s' wants %s, not %s\nwhere: %s:%d:%d",
                    origin->key, wanted, got, options->path, origin->line, origin->column);
}

/* Takes a subtree out of the file's tree. */
static enum ebb_status take_tree(struct ebb_options *options, const struct ebb_option *option,
                                 const struct ebb_origin *given, struct ebb_yaml *node)
{
    if (!(option->commands & 1u << options->command)) return other_command(options, option, given);
    EBB_TRY(check_once(options, option, given));
    if (option->type == EBB_OPTION_TEXTS) EBB_TRY(check_texts(options, given, node));
    struct ebb_yaml *tree = ebb_mem_alloc(options->ctx, sizeof *tree);
    if (tree == NULL) return EBB_NO_MEMORY;
    *tree = *node;
    tree->key = NULL;
    node->kind = EBB_YAML_NULL;
    node->text = NULL;
    node->items = NULL;
    node->count = 0;
    struct ebb_yaml **field =
        (struct ebb_yaml **)(void *)((char *)options->config + option->offset);
    ebb_yaml_free(options->ctx, *field);
    *field = tree;
    return keep_origin(options, given, &options->origins[row_of(option)]);
}

/* A list of names as one text. */
static enum ebb_status set_list(struct ebb_options *options, const struct ebb_yaml *node,
                                struct ebb_origin *origin)
{
    struct ebb_str text = {0};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; status == EBB_OK && i < node->count; i++) {
        if (node->items[i].kind != EBB_YAML_SCALAR)
            status = fail_shape(options, origin, "a list of plain values",
                                "a list with something else in it");
        else
            status = ebb_str_addf(options->ctx, &text, "%s%s", i ? "," : "", node->items[i].text);
    }
    if (status == EBB_OK) {
        origin->text = text.data ? text.data : "";
        status = set_key(options, origin);
    }
    ebb_str_free(options->ctx, &text);
    return status;
}

static enum ebb_status set_map(struct ebb_options *options, const char *prefix,
                               struct ebb_yaml *map);

/* A mapping that is nothing here may hold keys that are: torchtune's loss of DPO has "beta". */
static bool has_option(const struct ebb_options *options, const char *prefix,
                       const struct ebb_yaml *map)
{
    bool found = false;
    for (size_t i = 0; i < map->count && !found; i++) {
        char *key = ebb_mem_format(options->ctx, "%s.%s", prefix, map->items[i].key);
        found = key && ebb_option_find(key) != NULL;
        ebb_mem_free(options->ctx, key);
    }
    return found;
}

static enum ebb_status set_node(struct ebb_options *options, const char *key, struct ebb_yaml *node)
{
    struct ebb_origin origin = {EBB_ORIGIN_FILE, key, "", node->key_line, node->key_column};
    const struct ebb_option *option = ebb_option_find(key);
    const struct ebb_spelling *spelling = option ? NULL : ebb_spelling_find(key);
    const struct ebb_foreign_key *foreign = option || spelling ? NULL : ebb_foreign_find(key);
    bool list = (option && option->type == EBB_OPTION_LIST) ||
                (spelling && ebb_option_find(spelling->target)->type == EBB_OPTION_LIST);
    switch (node->kind) {
    case EBB_YAML_NULL:
        if (option || spelling || foreign) return EBB_OK; /* null: the default */
        return fail_unknown(options, &origin);
    case EBB_YAML_SCALAR:
        origin.text = node->text;
        if (option && option->type == EBB_OPTION_TEXTS)
            return take_tree(options, option, &origin, node);
        return set_key(options, &origin);
    case EBB_YAML_LIST:
        if (option && (option->type == EBB_OPTION_TEXTS || option->type == EBB_OPTION_YAML))
            return take_tree(options, option, &origin, node);
        if (list) return set_list(options, node, &origin);
        if (option || spelling) return fail_shape(options, &origin, "one value", "a list");
        origin.text = node->count ? "[...]" : "none";
        return foreign ? set_foreign(options, foreign, &origin) : fail_unknown(options, &origin);
    case EBB_YAML_MAP:
        if (option && option->type == EBB_OPTION_YAML)
            return take_tree(options, option, &origin, node);
        if (foreign && !has_option(options, key, node)) {
            origin.text = node->count ? "{...}" : "none";
            return set_foreign(options, foreign, &origin);
        }
        if (spelling) return fail_shape(options, &origin, "one value", "a mapping");
        return set_map(options, key,
                       node); /* torchtune's "optimizer: {lr: ...}" is "optimizer.lr" */
    }
    EBB_ASSERT(!"yaml kind");
    return EBB_FAILED;
}

static enum ebb_status set_map(struct ebb_options *options, const char *prefix,
                               struct ebb_yaml *map)
{
    for (size_t i = 0; i < map->count; i++) {
        struct ebb_yaml *node = &map->items[i];
        char *key = prefix ? ebb_mem_format(options->ctx, "%s.%s", prefix, node->key)
                           : ebb_mem_strdup(options->ctx, node->key);
        if (key == NULL) return EBB_NO_MEMORY;
        enum ebb_status status = set_node(options, key, node);
        ebb_mem_free(options->ctx, key);
        EBB_TRY(status);
    }
    return EBB_OK;
}

/* Once a file, and once for all arguments. */
static void say_left_alone(struct ebb_options *options, const char *where)
{
    const int count = options->left_alone;
    options->left_alone = 0;
    if (count > 0)
        ebb_log(options->ctx, EBB_LOG_INFO, "config",
                "%s: %d key%s of 'ebb sft' %s not used by 'ebb %s'", where, count,
                count == 1 ? "" : "s", count == 1 ? "is" : "are",
                ebb_command_name(options->command));
}

static enum ebb_status set_root(struct ebb_options *options, struct ebb_yaml *root)
{
    if (root->kind != EBB_YAML_MAP)
        return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                        "%s:%d:%d: a configuration is a mapping of keys to values", options->path,
                        root->line, root->column);
    options->left_alone = 0;
    EBB_TRY(set_map(options, NULL, root));
    say_left_alone(options, options->path);
    return EBB_OK;
}

enum ebb_status ebb_options_file(struct ebb_options *options, const char *path)
{
    struct ebb_yaml *root = NULL;
    EBB_TRY(keep_text(options, path, &options->path));
    EBB_TRY(ebb_yaml_load(options->ctx, path, &root));
    enum ebb_status status = set_root(options, root);
    ebb_yaml_free(options->ctx, root);
    return status;
}

enum ebb_status ebb_options_text(struct ebb_options *options, const char *name, const char *text)
{
    struct ebb_yaml *root = NULL;
    EBB_TRY(keep_text(options, name, &options->path));
    EBB_TRY(ebb_yaml_parse(options->ctx, name, text, strlen(text), &root));
    enum ebb_status status = set_root(options, root);
    ebb_yaml_free(options->ctx, root);
    return status;
}

/* ---- arguments ------------------------------------------------------------------------------- */

enum ebb_status ebb_options_set(struct ebb_options *options, const char *key, const char *text)
{
    struct ebb_origin origin = {EBB_ORIGIN_ARGUMENT, key, text, 0, 0};
    size_t bytes = strlen(text);
    /* The run's record keeps it as JSON; without this it would end there, as a lack of memory. */
    if (ebb_text_utf8_valid(text, bytes) != bytes)
        return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                        "value '%s' of '%s' is not UTF-8\nwhere: command line  %s=%s", text, key,
                        key, text);
    return set_key(options, &origin);
}

enum ebb_status ebb_options_unset(struct ebb_options *options, const char *key)
{
    const struct ebb_option *option = ebb_option_find(key);
    EBB_ASSERT(option != NULL);
    return set_default(options, option);
}

struct argument {
    char key[EBB_WORD_BYTES];
    const char *text; /* borrowed from the command line */
};

static bool is_key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* Copies a key of `bytes`, '-' as '_'; false if it cannot be one. */
static bool copy_key(const char *from, size_t bytes, char out[EBB_WORD_BYTES])
{
    if (bytes == 0 || bytes >= EBB_WORD_BYTES) return false;
    for (size_t i = 0; i < bytes; i++) {
        if (!is_key_char(from[i])) return false;
        out[i] = from[i] == '-' ? '_' : from[i];
    }
    out[bytes] = 0;
    return true;
}

static bool is_flag(const char *key)
{
    const struct ebb_option *option = ebb_option_find(key);
    if (option) return option->type == EBB_OPTION_BOOL || option->type == EBB_OPTION_AUTO_BOOL;
    const struct ebb_spelling *spelling = ebb_spelling_find(key);
    return spelling && strncmp(spelling->map, "true=", 5) == 0;
}

/* "--key=value", "--key value" or "--flag" at arguments[*i]; moves *i on to the last word it
 * took. */
static enum ebb_status read_dashed(struct ebb_options *options, int count, char *const *arguments,
                                   int *i, struct argument *out)
{
    const char *name = arguments[*i] + 2;
    size_t bytes = strcspn(name, "=");
    if (!copy_key(name, bytes, out->key))
        return EBB_FAIL(
            options->ctx, EBB_BAD_CONFIG,
            "argument '%s' is no key\ntry:   key=value, --key=value or --key value (ebb help %s)",
            arguments[*i], ebb_command_name(options->command));
    if (name[bytes] == '=') {
        out->text = name + bytes + 1;
        return EBB_OK;
    }
    const char *next = *i + 1 < count ? arguments[*i + 1] : NULL;
    bool value;
    if (is_flag(out->key)) {
        bool takes = next && (ebb_text_bool(next, &value) || strcmp(next, "auto") == 0);
        out->text = takes ? next : "true";
        *i += takes;
        return EBB_OK;
    }
    if (next == NULL || strncmp(next, "--", 2) == 0) {
        const struct ebb_option *option = ebb_option_find(out->key);
        if (option && option->bare && options->command == EBB_COMMAND_PLAN) {
            out->text = option->bare;
            return EBB_OK;
        }
        return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                        "key '%s' needs a value\nwhere: command line  %s\ntry:   %s=VALUE",
                        out->key, arguments[*i], out->key);
    }
    out->text = next;
    ++*i;
    return EBB_OK;
}

static enum ebb_status positional(struct ebb_options *options, const char *word, int *places)
{
    static const struct {
        enum ebb_command command;
        int count;
        const char *keys[2];
    } own[] = {{EBB_COMMAND_INIT, 2, {"config", "output_dir"}},
               {EBB_COMMAND_TOKENIZE, 1, {"model_name_or_path", NULL}}};
    size_t row = 0;
    while (row < sizeof own / sizeof own[0] && own[row].command != options->command) row++;
    bool has_own = row < sizeof own / sizeof own[0];
    if (word[0] == '-' && word[1])
        return EBB_FAIL(
            options->ctx, EBB_BAD_CONFIG,
            "unknown option '%s'\ntry:   key=value, --key=value or --key value (ebb help %s)", word,
            ebb_command_name(options->command));
    if (*places >= (has_own ? own[row].count : 1))
        return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                        "argument '%s' is one too many\nusage: ebb %s %s", word,
                        ebb_command_name(options->command), ebb_command_usage(options->command));
    ++*places;
    if (has_own) return ebb_options_set(options, own[row].keys[*places - 1], word);
    if (ebb_dir_exists(word))
        return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                        "'%s' is a directory, a configuration file is wanted here\n"
                        "try:   model_name_or_path=%s",
                        word, word);
    if (!ebb_file_exists(word))
        return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                        "there is no configuration file '%s'\n"
                        "try:   'ebb configs copy NAME %s' writes one to start from",
                        word, word);
    return ebb_options_file(options, word);
}

/* Whose key it is, by whatever spelling; NULL: of no option. */
static const struct ebb_option *option_of(const char *key)
{
    const struct ebb_option *option = ebb_option_find(key);
    const struct ebb_spelling *spelling = option ? NULL : ebb_spelling_find(key);
    return spelling ? ebb_option_find(spelling->target) : option;
}

/* The last one holds, so that scripts can end in "$@"; but a key that was named before with another
 * value may as well be a slip. */
static void tell_of_twice(struct ebb_options *options, const struct argument *list, int now)
{
    const struct ebb_option *option = option_of(list[now].key);
    const struct argument *given = &list[now];
    for (int i = now; option && i-- > 0;) {
        if (option_of(list[i].key) != option) continue;
        if (strcmp(list[i].key, given->key) != 0 || strcmp(list[i].text, given->text) != 0)
            ebb_log(options->ctx, EBB_LOG_WARNING, "config",
                    "'%s' is set twice on the command line: %s=%s, then %s=%s, which holds",
                    option->key, list[i].key, list[i].text, given->key, given->text);
        return;
    }
}

enum ebb_status ebb_options_arguments(struct ebb_options *options, int count,
                                      char *const *arguments)
{
    struct argument *list =
        ebb_mem_alloc(options->ctx, (size_t)(count > 0 ? count : 1) * sizeof *list);
    if (list == NULL) return EBB_NO_MEMORY;
    int used = 0, places = 0;
    enum ebb_status status = EBB_OK;
    for (int i = 0; status == EBB_OK && i < count; i++) {
        const char *word = arguments[i];
        size_t left = strcspn(word, "=");
        if (strncmp(word, "--", 2) == 0) {
            status = read_dashed(options, count, arguments, &i, &list[used++]);
        } else if (word[left] == '=' && word[0] != '-' && copy_key(word, left, list[used].key)) {
            list[used++].text = word + left + 1;
        } else {
            status = positional(options, word, &places);
        }
    }
    for (int i = 0; status == EBB_OK && i < used; i++) {
        status = ebb_options_set(options, list[i].key, list[i].text);
        if (status == EBB_OK) tell_of_twice(options, list, i);
    }
    say_left_alone(options, "command line");
    ebb_mem_free(options->ctx, list);
    return status;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum ebb_status ebb_options_create(struct ebb_ctx *ctx, enum ebb_command command,
                                   struct ebb_config *config, struct ebb_options **out)
{
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    struct ebb_options *options = ebb_mem_alloc(ctx, sizeof *options);
    if (options == NULL) return EBB_NO_MEMORY;
    options->ctx = ctx;
    options->command = command;
    options->config = config;
    memset(config, 0, sizeof *config);
    options->origins = ebb_mem_alloc(ctx, rows * sizeof *options->origins);
    enum ebb_status status = options->origins ? EBB_OK : EBB_NO_MEMORY;
    for (size_t i = 0; status == EBB_OK && i < rows; i++) status = set_default(options, &table[i]);
    if (status != EBB_OK) {
        ebb_options_free(options);
        return status;
    }
    *out = options;
    return EBB_OK;
}

void ebb_options_free(struct ebb_options *options)
{
    if (options == NULL) return;
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    for (size_t i = 0; i < rows; i++) {
        void *field = (char *)options->config + table[i].offset;
        if (table[i].type == EBB_OPTION_STRING || table[i].type == EBB_OPTION_LIST) {
            ebb_mem_free(options->ctx, *(char **)field);
            *(char **)field = NULL;
        } else if (table[i].type == EBB_OPTION_TEXTS || table[i].type == EBB_OPTION_YAML) {
            ebb_yaml_free(options->ctx, *(struct ebb_yaml **)field);
            *(struct ebb_yaml **)field = NULL;
        }
    }
    for (size_t i = 0; i < options->kept_count; i++) ebb_mem_free(options->ctx, options->kept[i]);
    ebb_mem_free(options->ctx, options->kept);
    ebb_mem_free(options->ctx, options->origins);
    ebb_mem_free(options->ctx, options);
}

/* ---- check and print ------------------------------------------------------------------------- */

enum ebb_status ebb_options_check(struct ebb_options *options)
{
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    const char *command = ebb_command_name(options->command);
    for (size_t i = 0; i < rows; i++) {
        if (!(table[i].required & 1u << options->command)) continue;
        if (options->origins[i].kind != EBB_ORIGIN_DEFAULT && options->origins[i].text[0]) continue;
        return EBB_FAIL(options->ctx, EBB_BAD_CONFIG,
                        "'ebb %s' needs '%s'\nwhere: %s\nusage: ebb %s %s\nhelp:  ebb help %s",
                        command, table[i].key, options->path ? options->path : "command line",
                        command, ebb_command_usage(options->command), table[i].key);
    }
    return ebb_rules_check(options, options->config, options->ctx);
}

static json_t *scalar_json(const struct ebb_yaml *node)
{
    int64_t whole;
    double real;
    if (node->quoted) return json_string(node->text);
    if (strcmp(node->text, "true") == 0 || strcmp(node->text, "True") == 0) return json_true();
    if (strcmp(node->text, "false") == 0 || strcmp(node->text, "False") == 0) return json_false();
    if (ebb_text_int64(node->text, &whole)) return json_integer(whole);
    if (ebb_text_double(node->text, &real)) return json_real(real);
    return json_string(node->text);
}

json_t *ebb_options_tree_json(const struct ebb_yaml *node)
{
    if (node->kind == EBB_YAML_NULL) return json_null();
    if (node->kind == EBB_YAML_SCALAR) return scalar_json(node);
    json_t *json = node->kind == EBB_YAML_MAP ? json_object() : json_array();
    for (size_t i = 0; json && i < node->count; i++) {
        json_t *item = ebb_options_tree_json(&node->items[i]);
        int failed = node->kind == EBB_YAML_MAP
                         ? json_object_set_new(json, node->items[i].key, item)
                         : json_array_append_new(json, item);
        if (failed) {
            json_decref(json);
            json = NULL;
        }
    }
    return json;
}

static json_t *texts_json(const struct ebb_yaml *node)
{
    if (node->kind == EBB_YAML_SCALAR) return json_string(node->text);
    json_t *json = json_array();
    for (size_t i = 0; json && i < node->count; i++) {
        if (json_array_append_new(json, json_string(node->items[i].text)) == 0) continue;
        json_decref(json);
        json = NULL;
    }
    return json;
}

static json_t *field_json(const struct ebb_option *option, const void *field)
{
    static const char *const autos[] = {"auto", "false", "true"};
    char name[EBB_WORD_BYTES];
    switch (option->type) {
    case EBB_OPTION_BOOL:
        return json_boolean(*(const bool *)field);
    case EBB_OPTION_INT: {
        int64_t value = *(const int64_t *)field;
        if (option->bare && value == EBB_LONGEST) return json_string(option->bare);
        return option->automatic && value == EBB_AUTO_INT ? json_string("auto")
                                                          : json_integer(value);
    }
    case EBB_OPTION_FLOAT: {
        double value = *(const double *)field;
        return isnan(value) ? json_string("auto") : json_real(value);
    }
    case EBB_OPTION_SIZE: {
        const struct ebb_amount *amount = field;
        if (amount->bytes > 0) return json_integer(amount->bytes);
        if (amount->percent > 0) return json_sprintf("%.15g%%", amount->percent);
        return json_null();
    }
    case EBB_OPTION_AUTO_BOOL: {
        int value = *(const int *)field;
        return value == EBB_AUTO ? json_string(autos[value]) : json_boolean(value == EBB_TRUE);
    }
    case EBB_OPTION_CHOICE:
        return ebb_option_choice(option, *(const int *)field, name, sizeof name) ? json_string(name)
                                                                                 : json_null();
    case EBB_OPTION_STRING:
    case EBB_OPTION_LIST: {
        const char *text = *(char *const *)field;
        return text ? json_string(text) : json_null();
    }
    case EBB_OPTION_TEXTS: {
        const struct ebb_yaml *texts = *(struct ebb_yaml *const *)field;
        return texts ? texts_json(texts) : json_null();
    }
    case EBB_OPTION_YAML: {
        const struct ebb_yaml *tree = *(struct ebb_yaml *const *)field;
        return tree ? ebb_options_tree_json(tree) : json_null();
    }
    case EBB_OPTION_TYPE_COUNT:
        break;
    }
    return NULL;
}

json_t *ebb_options_json(const struct ebb_options *options)
{
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    json_t *json = json_object();
    for (size_t i = 0; json && i < rows; i++) {
        if (!(table[i].commands & 1u << options->command)) continue;
        json_t *value = field_json(&table[i], (const char *)options->config + table[i].offset);
        if (value == NULL || json_object_set_new(json, table[i].key, value) != 0) {
            json_decref(json);
            EBB_FAIL(options->ctx, EBB_NO_MEMORY,
                     "no memory for the configuration as JSON (key '%s')", table[i].key);
            return NULL;
        }
    }
    return json;
}
