/* Loading a data set: its sources opened, their formats found, the cache asked, what came out said.
 * dataset_build.c does the work between.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/dataset_cache.h"
#include "data/dataset_int.h"

/* Beyond it a weight is a slip of the hand. */
static const double weight_max = 1e6;

/* ---- options ---- */

bool ebb_overlong_parse(const char *text, enum ebb_overlong *value)
{
    if (strcmp(text, "error") == 0)
        *value = EBB_OVERLONG_ERROR;
    else if (strcmp(text, "drop") == 0)
        *value = EBB_OVERLONG_DROP;
    else if (strcmp(text, "truncate") == 0)
        *value = EBB_OVERLONG_TRUNCATE;
    else
        return false;
    return true;
}

struct ebb_set_weight ebb_set_weight(const struct ebb_dataset_source *source)
{
    double weight = source->weight == 0 ? 1 : source->weight, whole = floor(weight);
    return (struct ebb_set_weight){(int64_t)whole, weight - whole};
}

static enum ebb_status check_source(struct ebb_ctx *ctx, const struct ebb_dataset_source *source)
{
    if (source->path == NULL || source->path[0] == '\0')
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "dataset_name is missing: the path of a data set is wanted");
    if (!(source->weight >= 0 && source->weight <= weight_max))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "%s: its weight is %g, 0 < weight <= %g is wanted",
                        source->path, source->weight, weight_max);
    return EBB_OK;
}

static enum ebb_status check_options(struct ebb_ctx *ctx, const struct ebb_dataset_options *options)
{
    if (options->source_count < 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "dataset_name is missing: the path of a data set is wanted");
    for (int64_t i = 0; i < options->source_count; i++)
        EBB_TRY(check_source(ctx, &options->sources[i]));
    if (options->max_length < 0 || options->max_length == 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "max_length is %" PRId64 ", at least 2 is wanted",
                        options->max_length);
    if (options->max_samples < 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "max_samples is %" PRId64 ", 0 (all) or more is wanted",
                        options->max_samples);
    if (options->max_bad_records < 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "max_bad_records is %" PRId64 ", 0 (none) or more is wanted",
                        options->max_bad_records);
    return EBB_OK;
}

/* ---- the data set ---- */

enum ebb_status ebb_dataset_create(struct ebb_ctx *ctx, int64_t samples, int64_t stored,
                                   bool desirable, struct ebb_dataset **dataset)
{
    struct ebb_dataset *set = ebb_mem_alloc(ctx, sizeof *set);
    *dataset = set;
    if (set == NULL) return EBB_NO_MEMORY;
    size_t count = (size_t)samples;
    set->count = samples;
    set->stored = stored;
    set->group = 1;
    set->starts = ebb_mem_alloc(ctx, count * sizeof *set->starts);
    set->lengths = ebb_mem_alloc(ctx, count * sizeof *set->lengths);
    set->records = ebb_mem_alloc(ctx, count * sizeof *set->records);
    set->sources = ebb_mem_alloc(ctx, count * sizeof *set->sources);
    set->ids = ebb_mem_alloc(ctx, (size_t)stored * sizeof *set->ids);
    set->trained = ebb_mem_alloc(ctx, (size_t)(stored / 32 + 1) * sizeof *set->trained);
    if (desirable) set->desirable = ebb_mem_alloc(ctx, count);
    if (set->starts != NULL && set->lengths != NULL && set->records != NULL &&
        set->sources != NULL && set->ids != NULL && set->trained != NULL &&
        (!desirable || set->desirable != NULL))
        return EBB_OK;
    ebb_dataset_free(ctx, set);
    *dataset = NULL;
    return EBB_NO_MEMORY;
}

void ebb_dataset_free(struct ebb_ctx *ctx, struct ebb_dataset *dataset)
{
    if (dataset == NULL) return;
    for (int64_t i = 0; dataset->refusals != NULL && i < EBB_REFUSALS; i++)
        ebb_mem_free(ctx, dataset->refusals[i].text);
    ebb_mem_free(ctx, dataset->refusals);
    ebb_mem_free(ctx, dataset->desirable);
    ebb_mem_free(ctx, dataset->starts);
    ebb_mem_free(ctx, dataset->lengths);
    ebb_mem_free(ctx, dataset->records);
    ebb_mem_free(ctx, dataset->sources);
    ebb_mem_free(ctx, dataset->ids);
    ebb_mem_free(ctx, dataset->trained);
    ebb_mem_free(ctx, dataset);
}

void ebb_dataset_sum(struct ebb_dataset *set)
{
    set->tokens = set->labels = set->longest = 0;
    for (int64_t i = 0; i < set->count; i++) {
        int64_t length = set->lengths[i];
        set->tokens += length;
        if (length > set->longest) set->longest = length;
        set->labels += ebb_dataset_labels(set, i);
    }
}

enum ebb_status ebb_dataset_from_ids(struct ebb_ctx *ctx, const int32_t *ids,
                                     const int64_t *lengths, const int64_t *prompts, int64_t count,
                                     struct ebb_dataset **dataset)
{
    int64_t tokens = 0;
    *dataset = NULL;
    for (int64_t i = 0; i < count; i++) {
        if (lengths[i] < 1)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG, "sample %" PRId64 " has %" PRId64 " tokens", i,
                            lengths[i]);
        tokens += lengths[i];
    }
    if (count < 1) return EBB_FAIL(ctx, EBB_BAD_CONFIG, "a data set of no samples");
    EBB_TRY(ebb_dataset_create(ctx, count, tokens, false, dataset));
    struct ebb_dataset *set = *dataset;
    set->format = "ids";
    set->record_count = count;
    memcpy(set->ids, ids, (size_t)tokens * sizeof *ids);
    for (int64_t i = 0, at = 0; i < count; at += lengths[i++]) {
        set->starts[i] = at;
        set->lengths[i] = lengths[i];
        set->records[i] = i + 1;
        for (int64_t t = at + (prompts == NULL ? 0 : prompts[i]); t < at + lengths[i]; t++)
            set->trained[t >> 5] |= 1u << (t & 31);
    }
    ebb_dataset_sum(set);
    return EBB_OK;
}

/* ---- sources ---- */

enum ebb_status ebb_dataset_refuse(struct ebb_ctx *ctx, const struct ebb_dataset_options *options)
{
    char text[EBB_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", ebb_error_text(ctx));
    ebb_error_clear(ctx);
    if (options->max_bad_records == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s\nmax_bad_records: N leaves up to N such records out",
                        text);
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s\nthere are more unusable records than max_bad_records (%" PRId64
                    ") allows, this is the first: mend them or raise it",
                    text, options->max_bad_records);
}

/* One record's say in what the format is. */
static enum ebb_status ask_record(struct ebb_ctx *ctx, struct ebb_set_source *source, int64_t index,
                                  bool *parsed)
{
    json_t *json;
    *parsed = false;
    EBB_TRY(ebb_records_parse(ctx, &source->records, index, &json));
    *parsed = true;
    struct ebb_format_record record = {&source->records, index, json};
    enum ebb_status status =
        ebb_format_find(ctx, source->wanted->format, &source->env, &record, &source->format);
    json_decref(json);
    return status;
}

/* The first record decides, or, where some may be unusable, the first that can be used. */
static enum ebb_status choose_format(struct ebb_ctx *ctx, const struct ebb_dataset_options *options,
                                     struct ebb_set_source *source)
{
    bool parsed;
    for (int64_t i = 0; i <= options->max_bad_records && i < source->record_count; i++) {
        enum ebb_status status = ask_record(ctx, source, i, &parsed);
        if (status != EBB_BAD_FILE) return status;
        ebb_error_clear(ctx);
    }
    /* The first record's words are the most telling. */
    enum ebb_status status = ask_record(ctx, source, 0, &parsed);
    return parsed || status != EBB_BAD_FILE ? status : ebb_dataset_refuse(ctx, options);
}

static enum ebb_status open_source(struct ebb_ctx *ctx, const struct ebb_dataset_options *options,
                                   const struct ebb_dataset_source *wanted,
                                   struct ebb_set_source *source)
{
    struct ebb_records_options records = {.path = wanted->path,
                                          .split = wanted->split,
                                          .columns = wanted->columns,
                                          .roles = wanted->roles};
    bool named = wanted->text_field != NULL && wanted->text_field[0] != '\0';
    source->wanted = wanted;
    source->env = (struct ebb_format_env){.purpose = options->purpose,
                                          .text_field = named ? wanted->text_field : "text",
                                          .chat = options->chat,
                                          .now = options->now,
                                          .chat_kwargs = options->chat_kwargs};
    EBB_TRY(ebb_records_open(ctx, &records, &source->records));
    source->record_count = source->records.count;
    if (options->max_samples > 0 && options->max_samples < source->record_count)
        source->record_count = options->max_samples;
    return choose_format(ctx, options, source);
}

/* What is trained of each source. Where formats are mixed, what only some can do is asked of those
 * alone; what none can do is asked of all, and the first one's error says so. */
static enum ebb_status ask_parts(struct ebb_ctx *ctx, struct ebb_set_job *job)
{
    const struct ebb_dataset_options *options = job->options;
    bool some_prompt = false, some_chat = false;
    for (int64_t i = 0; i < options->source_count; i++) {
        some_prompt = some_prompt || job->sources[i].format->has_prompt;
        some_chat = some_chat || job->sources[i].format->chat;
    }
    for (int64_t i = 0; i < options->source_count; i++) {
        struct ebb_set_source *source = &job->sources[i];
        bool completion = options->completion_only != EBB_LOSS_PART_TRUE || !some_prompt ||
                          source->format->has_prompt;
        bool chat = source->format->chat || !some_chat;
        if (completion) source->env.completion_only = options->completion_only;
        if (chat || options->assistant_only != EBB_LOSS_PART_TRUE)
            source->env.assistant_only = options->assistant_only;
        source->env.last_turn_only = options->last_turn_only && chat;
        EBB_TRY(choose_format(ctx, options, source));
    }
    return EBB_OK;
}

static enum ebb_status open_sources(struct ebb_ctx *ctx, struct ebb_set_job *job)
{
    const struct ebb_dataset_options *options = job->options;
    bool preference = options->purpose == EBB_PURPOSE_PREFERENCE;
    for (int64_t i = 0; i < options->source_count; i++)
        EBB_TRY(open_source(ctx, options, &options->sources[i], &job->sources[i]));
    EBB_TRY(ask_parts(ctx, job));
    for (int64_t i = 0; i < options->source_count; i++) {
        const struct ebb_set_source *source = &job->sources[i];
        int64_t group = preference && source->format->preference ? 2 : 1;
        if (i > 0 && group != job->group)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "%s is of format '%s' and %s of format '%s': pairs of answers and "
                            "single ones do not go into one data set",
                            job->sources[0].wanted->path, job->sources[0].format->name,
                            source->wanted->path, source->format->name);
        job->group = group;
        job->unpaired = preference && group == 1;
    }
    return EBB_OK;
}

static const char *format_name(const struct ebb_set_job *job)
{
    for (int64_t i = 1; i < job->options->source_count; i++)
        if (job->sources[i].format != job->sources[0].format) return "several";
    return job->sources[0].format->name;
}

/* ---- what is said ---- */

static void report_refused(struct ebb_ctx *ctx, const struct ebb_set_job *job, const char *what,
                           const struct ebb_dataset *set)
{
    enum { SHOWN = 3, LINE = 512 };
    char lines[SHOWN * LINE] = "";
    size_t at = 0;
    for (int64_t i = 0; i < set->refused && i < SHOWN; i++) {
        const char *text = set->refusals[i].text;
        int bytes = (int)strcspn(text, "\n"); /* hints are for who is stopped */
        if (bytes > LINE - 4) bytes = LINE - 4;
        at += (size_t)snprintf(lines + at, sizeof lines - at, "\n  %.*s", bytes, text);
    }
    ebb_log(ctx, EBB_LOG_WARNING, "data",
            "%s: left out %" PRId64 " of %" PRId64 " records as unusable (max_bad_records %" PRId64
            ")%s%s",
            what, set->refused, set->record_count, job->options->max_bad_records,
            set->refused > SHOWN ? ", the first of them:" : ":", lines);
}

static enum ebb_status report(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                              const struct ebb_dataset *set)
{
    const struct ebb_dataset_options *options = job->options;
    char *what = options->source_count == 1
                     ? ebb_mem_strdup(ctx, options->sources[0].path)
                     : ebb_mem_format(ctx, "%s and %" PRId64 " more", options->sources[0].path,
                                      options->source_count - 1);
    int64_t units = set->count / set->group;
    const char *unit = set->group == 2 ? "pair" : "sample";
    char passed[96] = "";
    if (what == NULL) return EBB_NO_MEMORY;
    if (set->passed > 0)
        snprintf(passed, sizeof passed, "; %" PRId64 " %s nothing to train", set->passed,
                 set->passed == 1 ? "record has" : "records have");
    ebb_log(ctx, EBB_LOG_INFO, "data",
            "%s: %" PRId64 " %s%s of format %s, %" PRId64 " tokens, %" PRId64
            " trained, longest %" PRId64 "%s",
            what, units, unit, units == 1 ? "" : "s", set->format,
            set->tokens, set->labels, set->longest, passed);
    if (set->dropped > 0)
        ebb_log(ctx, EBB_LOG_WARNING, "data",
                "%s: left out %" PRId64 " of %" PRId64 " records above max_length %" PRId64
                " (overlong: drop)",
                what, set->dropped, set->record_count, options->max_length);
    if (set->truncated > 0)
        ebb_log(ctx, EBB_LOG_WARNING, "data",
                "%s: cut %" PRId64 " of %" PRId64 " samples to max_length %" PRId64
                " (overlong: truncate)",
                what, set->truncated, set->record_count * set->group, options->max_length);
    if (set->refused > 0) report_refused(ctx, job, what, set);
    ebb_mem_free(ctx, what);
    return EBB_OK;
}

/* ---- loading ---- */

/* From the cache, or built and put there, unless something was warned of: it would not be told
 * again. */
static enum ebb_status obtain(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                              struct ebb_dataset **dataset)
{
    struct ebb_dataset_cache cache = {0};
    EBB_TRY(ebb_dataset_cache_open(ctx, job, &cache));
    enum ebb_status status = ebb_dataset_cache_read(ctx, &cache, dataset);
    if (status == EBB_OK && *dataset == NULL) {
        int64_t warned = ebb_warn_count(ctx);
        status = ebb_dataset_build(ctx, job, dataset);
        if (status == EBB_OK && ebb_warn_count(ctx) == warned)
            ebb_dataset_cache_write(ctx, &cache, *dataset);
    }
    ebb_dataset_cache_close(ctx, &cache);
    return status;
}

enum ebb_status ebb_dataset_load(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                 const struct ebb_dataset_options *options,
                                 struct ebb_dataset **dataset)
{
    *dataset = NULL;
    EBB_TRY(check_options(ctx, options));
    struct ebb_set_job job = {.tokenizer = tokenizer, .options = options, .group = 1};
    job.sources = ebb_mem_alloc(ctx, (size_t)options->source_count * sizeof *job.sources);
    if (job.sources == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = open_sources(ctx, &job);
    if (status == EBB_OK) status = obtain(ctx, &job, dataset);
    if (status == EBB_OK) {
        (*dataset)->format = format_name(&job);
        status = report(ctx, &job, *dataset);
    }
    if (status != EBB_OK) {
        ebb_dataset_free(ctx, *dataset);
        *dataset = NULL;
    }
    for (int64_t i = 0; i < options->source_count; i++)
        ebb_records_close(ctx, &job.sources[i].records);
    ebb_mem_free(ctx, job.sources);
    return status;
}
