/* The grammar of sweeps and modes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/bench_sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_TOKENS = 2, MOST_TOKENS = 1 << 27, LEAST_BUDGET = 1 << 16, WORD = 64, SIZE = 32 };
static const int64_t most_bytes = INT64_C(1) << 50;

/* ---- a row of values ---- */

/* What is being read, for messages. */
struct reading {
    struct ebb_ctx *ctx;
    const char *text, *where;
    struct ebb_bench_sweep *sweep;
};

static enum ebb_status fail(const struct reading *r, const char *what)
{
    return EBB_FAIL(r->ctx, EBB_BAD_CONFIG,
                    "sweep '%s': %s\n"
                    "where: %s\n"
                    "try:   length=1k:128k:x2, length=1k:16k:+1k, length=1k,3k,9k, "
                    "budget=8GiB:64GiB:x2 or budget=6GiB,8GiB\n"
                    "help:  ebb help sweep",
                    r->text, what, r->where);
}

static bool is_length(const struct reading *r)
{
    return r->sweep->kind == EBB_RESULTS_OF_LENGTHS;
}

/* "1k", "1536", "1.5k" tokens; a size. */
static bool parse_value(const struct reading *r, const char *word, int64_t *value)
{
    static const struct {
        char letter;
        double factor;
    } units[] = {{'k', 1024}, {'K', 1024}, {'m', 1048576}, {'M', 1048576}};
    char number[WORD];
    double factor = 1, real;
    size_t bytes = strlen(word);
    if (!is_length(r)) return ebb_text_size(word, value);
    if (bytes == 0) return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (word[bytes - 1] == units[i].letter) factor = units[i].factor;
    snprintf(number, sizeof number, "%.*s", (int)(factor > 1 ? bytes - 1 : bytes), word);
    if (!ebb_text_double(number, &real) || !(fabs(real) < 1e12)) return false;
    *value = (int64_t)(real * factor);
    return (double)*value == real * factor;
}

static enum ebb_status read_value(const struct reading *r, const char *word, int64_t *value)
{
    char what[160];
    const int64_t least = is_length(r) ? LEAST_TOKENS : LEAST_BUDGET;
    const int64_t most = is_length(r) ? MOST_TOKENS : most_bytes;
    if (!parse_value(r, word, value)) {
        snprintf(what, sizeof what, "'%s' is no %s", word,
                 is_length(r) ? "length in tokens (k is 1024)" : "size such as 8GiB");
        return fail(r, what);
    }
    if (*value >= least && *value <= most) return EBB_OK;
    if (is_length(r))
        snprintf(what, sizeof what, "'%s' is out of range: wanted %d to %d tokens", word,
                 (int)LEAST_TOKENS, (int)MOST_TOKENS);
    else
        snprintf(what, sizeof what, "'%s' is out of range: wanted 64KiB to 1024TiB", word);
    return fail(r, what);
}

static enum ebb_status add_value(const struct reading *r, int64_t value)
{
    struct ebb_bench_sweep *sweep = r->sweep;
    char what[96];
    for (int i = 0; i < sweep->count; i++)
        if (sweep->values[i] == value) {
            snprintf(what, sizeof what, "%lld is there twice", (long long)value);
            return fail(r, what);
        }
    if (sweep->count == EBB_BENCH_VALUES) {
        snprintf(what, sizeof what, "more than %d values", (int)EBB_BENCH_VALUES);
        return fail(r, what);
    }
    sweep->values[sweep->count++] = value;
    return EBB_OK;
}

/* "x2" or "+1k": the value after `value`; 0: no step. */
static enum ebb_status read_step(const struct reading *r, const char *word, double *factor,
                                 int64_t *more)
{
    char what[128];
    *factor = 1;
    *more = 0;
    if (word[0] == '+') return read_value(r, word + 1, more);
    if (word[0] == 'x' && ebb_text_double(word + 1, factor) && *factor > 1 && *factor <= 1024)
        return EBB_OK;
    snprintf(what, sizeof what,
             "'%s' is no step: wanted x and a factor above 1 (x2), or + and what is added", word);
    return fail(r, what);
}

static enum ebb_status add_range(const struct reading *r, char *words[3])
{
    int64_t first, last, more;
    double factor;
    EBB_TRY(read_value(r, words[0], &first));
    EBB_TRY(read_value(r, words[1], &last));
    EBB_TRY(read_step(r, words[2], &factor, &more));
    if (last < first) return fail(r, "the last value is below the first");
    for (int64_t value = first; value <= last;) {
        EBB_TRY(add_value(r, value));
        const double next = (double)value * factor + (double)more;
        if (next > (double)last) break;
        value = (int64_t)next > value ? (int64_t)next : value + 1;
    }
    return EBB_OK;
}

/* A word is a value, or a range of three words. Cuts the word up. */
static enum ebb_status add_word(const struct reading *r, char *word)
{
    char *words[3] = {word, NULL, NULL};
    int64_t value;
    for (int i = 1; i < 3; i++) {
        words[i] = strchr(words[i - 1], ':');
        if (words[i] == NULL)
            return i == 1 ? (read_value(r, word, &value) == EBB_OK ? add_value(r, value)
                                                                   : EBB_BAD_CONFIG)
                          : fail(r, "a range is FIRST:LAST:STEP");
        *words[i]++ = '\0';
    }
    if (strchr(words[2], ':')) return fail(r, "a range is FIRST:LAST:STEP");
    return add_range(r, words);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int descending(const void *a, const void *b)
{
    return ascending(b, a);
}

enum ebb_status ebb_bench_sweep_parse(struct ebb_ctx *ctx, const char *text, const char *where,
                                      struct ebb_bench_sweep *sweep)
{
    struct reading r = {.ctx = ctx, .text = text, .where = where, .sweep = sweep};
    const char *at = strchr(text, '='), *name;
    size_t bytes = at ? (size_t)(at - text) : 0;
    memset(sweep, 0, sizeof *sweep);
    if (bytes == 6 && memcmp(text, "length", bytes) == 0)
        sweep->kind = EBB_RESULTS_OF_LENGTHS;
    else if (bytes == 6 && memcmp(text, "budget", bytes) == 0)
        sweep->kind = EBB_RESULTS_OF_BUDGETS;
    else
        return fail(&r, "it begins with length= or budget=");
    for (at++; ebb_bench_next_name(&at, &name, &bytes);) {
        char word[WORD];
        if (bytes >= sizeof word) return fail(&r, "a value is too long");
        snprintf(word, sizeof word, "%.*s", (int)bytes, name);
        EBB_TRY(add_word(&r, word));
    }
    if (sweep->count == 0) return fail(&r, "it has no values");
    qsort(sweep->values, (size_t)sweep->count, sizeof *sweep->values,
          is_length(&r) ? ascending : descending);
    return EBB_OK;
}

/* ---- lists ---- */

bool ebb_bench_next_name(const char **at, const char **name, size_t *bytes)
{
    const char *from = *at + strspn(*at, " ");
    int depth = 0;
    if (*from == '\0') return false;
    const char *end = from;
    for (; *end && (depth > 0 || *end != ','); end++) {
        depth += *end == '{' || *end == '[';
        depth -= *end == '}' || *end == ']';
    }
    *at = *end ? end + 1 : end;
    while (end > from && end[-1] == ' ') end--;
    *name = from;
    *bytes = (size_t)(end - from);
    return true;
}

/* ---- modes ---- */

/* What a mode makes of the keys; NULL: the key's default. */
static const struct mode {
    const char *name, *checkpointing, *offloading;
    bool moves, plans;
} table[] = {
    {"none", "false", "false", false, false},
    {"offload", "false", "true", true, false},
    {"checkpoint", "true", "false", false, false},
    {"checkpoint+offload", "true", "true", true, false},
    {"plan", NULL, NULL, false, true},
};
enum { TABLE = sizeof table / sizeof table[0] };
static const char by_hand[] = "activations=";

static const struct mode *find_mode(const char *name)
{
    for (int i = 0; i < TABLE; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

static bool is_by_hand(const char *name)
{
    return strncmp(name, by_hand, sizeof by_hand - 1) == 0;
}

bool ebb_bench_mode_plans(const char *name)
{
    const struct mode *mode = find_mode(name);
    return mode && mode->plans;
}

static enum ebb_status add_mode(struct ebb_ctx *ctx, struct ebb_bench_modes *modes,
                                const char *name, size_t bytes, int64_t budget)
{
    if (modes->count == EBB_BENCH_MODES)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "more than %d modes", (int)EBB_BENCH_MODES);
    struct ebb_bench_mode *mode = &modes->items[modes->count];
    *mode = (struct ebb_bench_mode){ebb_mem_strndup(ctx, name, bytes), budget};
    if (mode->name == NULL) return EBB_NO_MEMORY;
    modes->count++;
    return EBB_OK;
}

static enum ebb_status fail_mode(struct ebb_ctx *ctx, struct ebb_options *options, const char *name)
{
    const char *names[TABLE];
    for (int i = 0; i < TABLE; i++) names[i] = table[i].name;
    const char *near = ebb_text_nearest(name, names, TABLE);
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "there is no mode '%s'\n"
                    "where: %s\n"
                    "try:   %s%snone, offload, checkpoint, checkpoint+offload, plan, or "
                    "activations={x: host, o: keep}",
                    name, ebb_options_where(options, "modes"), near ? near : "",
                    near ? "; there are " : "");
}

static enum ebb_status fail_twice(struct ebb_ctx *ctx, struct ebb_options *options, const char *key,
                                  const char *what)
{
    return EBB_FAIL(ctx, EBB_BAD_CONFIG, "'%s' has %s twice\nwhere: %s", key, what,
                    ebb_options_where(options, key));
}

/* The mode plan once for each of budgets. */
static enum ebb_status add_plans(struct ebb_ctx *ctx, struct ebb_options *options,
                                 const struct ebb_config *config, struct ebb_bench_modes *modes)
{
    static const char plan[] = "plan";
    const char *at = config->budgets, *name;
    const int first = modes->count;
    size_t bytes;
    if (at == NULL) return add_mode(ctx, modes, plan, strlen(plan), 0);
    while (ebb_bench_next_name(&at, &name, &bytes)) {
        int64_t budget;
        char *word = ebb_mem_strndup(ctx, name, bytes);
        if (word == NULL) return EBB_NO_MEMORY;
        enum ebb_status status = EBB_OK;
        if (!ebb_text_size(word, &budget) || budget < LEAST_BUDGET)
            status =
                EBB_FAIL(ctx, EBB_BAD_CONFIG,
                         "'%s' is no memory budget: wanted a size from 64KiB on, such as 8GiB\n"
                         "where: %s",
                         word, ebb_options_where(options, "budgets"));
        for (int i = first; status == EBB_OK && i < modes->count; i++)
            if (modes->items[i].budget == budget)
                status = fail_twice(ctx, options, "budgets", word);
        if (status == EBB_OK) status = add_mode(ctx, modes, plan, strlen(plan), budget);
        ebb_mem_free(ctx, word);
        EBB_TRY(status);
    }
    if (modes->count > first) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG, "'budgets' names no size\nwhere: %s",
                    ebb_options_where(options, "budgets"));
}

static enum ebb_status add_all(struct ebb_ctx *ctx, struct ebb_options *options,
                               const struct ebb_config *config, bool moves,
                               struct ebb_bench_modes *modes)
{
    for (int i = 0; i < TABLE; i++)
        if (table[i].plans)
            EBB_TRY(add_plans(ctx, options, config, modes));
        else if (moves || !table[i].moves)
            EBB_TRY(add_mode(ctx, modes, table[i].name, strlen(table[i].name), 0));
    return EBB_OK;
}

static enum ebb_status add_named(struct ebb_ctx *ctx, struct ebb_options *options,
                                 const struct ebb_config *config, const char *name,
                                 struct ebb_bench_modes *modes)
{
    const struct mode *mode = find_mode(name);
    if (mode == NULL && !is_by_hand(name)) return fail_mode(ctx, options, name);
    for (int i = 0; i < modes->count; i++)
        if (strcmp(modes->items[i].name, name) == 0) return fail_twice(ctx, options, "modes", name);
    if (mode && mode->plans) return add_plans(ctx, options, config, modes);
    return add_mode(ctx, modes, name, strlen(name), 0);
}

enum ebb_status ebb_bench_modes_parse(struct ebb_ctx *ctx, struct ebb_options *options,
                                      const struct ebb_config *config, bool moves,
                                      struct ebb_bench_modes *modes)
{
    const char *at = config->modes, *name;
    bool plans = false;
    size_t bytes;
    memset(modes, 0, sizeof *modes);
    if (strcmp(at, "auto") == 0) return add_all(ctx, options, config, moves, modes);
    while (ebb_bench_next_name(&at, &name, &bytes)) {
        char *word = ebb_mem_strndup(ctx, name, bytes);
        if (word == NULL) return EBB_NO_MEMORY;
        enum ebb_status status = add_named(ctx, options, config, word, modes);
        plans = plans || ebb_bench_mode_plans(word);
        ebb_mem_free(ctx, word);
        EBB_TRY(status);
    }
    if (modes->count == 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "'modes' names no mode\nwhere: %s",
                        ebb_options_where(options, "modes"));
    if (config->budgets && !plans)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'budgets' has no effect without the mode plan\n"
                        "where: %s\n"
                        "try:   modes: %s,plan, or remove it",
                        ebb_options_where(options, "budgets"), config->modes);
    return EBB_OK;
}

void ebb_bench_modes_free(struct ebb_ctx *ctx, struct ebb_bench_modes *modes)
{
    for (int i = 0; i < modes->count; i++) ebb_mem_free(ctx, modes->items[i].name);
    modes->count = 0;
}

const char *ebb_bench_mode_text(const struct ebb_bench_mode *mode, char *out, size_t out_bytes)
{
    char size[SIZE];
    if (mode->budget > 0)
        snprintf(out, out_bytes, "%s within %s", mode->name,
                 ebb_text_bytes(mode->budget, size, sizeof size));
    else
        snprintf(out, out_bytes, "%s", mode->name);
    return out;
}

/* Sets a key, or takes it back to its default where `text` is NULL. */
static enum ebb_status put(struct ebb_options *options, const char *key, const char *text)
{
    EBB_TRY(ebb_options_unset(options, key));
    return text ? ebb_options_set(options, key, text) : EBB_OK;
}

enum ebb_status ebb_bench_mode_set(struct ebb_options *options, const struct ebb_bench_mode *mode)
{
    static const char *const units[] = {"offload_params", "offload_optimizer"};
    const struct mode *row = find_mode(mode->name);
    EBB_TRY(put(options, "gradient_checkpointing", row ? row->checkpointing : NULL));
    EBB_TRY(put(options, "activation_offloading", row ? row->offloading : NULL));
    EBB_TRY(put(options, "activations", row ? NULL : mode->name + sizeof by_hand - 1));
    for (int i = 0; i < 2; i++)
        if (!(row && row->plans) && !ebb_options_is_set(options, units[i]))
            EBB_TRY(put(options, units[i], "false"));
    /* A key of what moves would be refused where nothing does. */
    if (row && !row->moves && !row->plans)
        EBB_TRY(ebb_options_unset(options, "activation_offloading_use_streams"));
    if (mode->budget > 0) {
        char bytes[SIZE];
        snprintf(bytes, sizeof bytes, "%lld", (long long)mode->budget);
        EBB_TRY(put(options, "memory_budget", bytes));
    }
    return EBB_OK;
}
