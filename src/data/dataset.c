/* Building a data set: records to samples, in parallel blocks laid end to end in the records'
 * order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "data/format.h"

enum { BLOCK_RECORDS = 256 };

/* ---- options ---- */

bool ebb_completion_only_parse(const char *text, enum ebb_completion_only *value)
{
    bool flag;
    if (strcasecmp(text, "auto") == 0)
        *value = EBB_COMPLETION_ONLY_AUTO;
    else if (ebb_text_bool(text, &flag))
        *value = flag ? EBB_COMPLETION_ONLY_TRUE : EBB_COMPLETION_ONLY_FALSE;
    else
        return false;
    return true;
}

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

/* ---- one block of records ---- */

struct job {
    const struct ebb_tokenizer *tokenizer;
    const struct ebb_dataset_options *options;
    const struct ebb_format *format;
    const char *text_field;
    struct ebb_records records;
    int64_t record_count;
    bool completion_only;
};

struct overlong_facts {
    int64_t count, first, first_tokens, longest; /* first: index of the record */
};

struct block {
    enum ebb_status status;
    struct ebb_ids ids;
    struct ebb_str trained; /* a byte a token */
    int64_t samples;
    int64_t lengths[BLOCK_RECORDS], records[BLOCK_RECORDS];
    int64_t truncated, labels;
    struct overlong_facts overlong;
};

/* What a thread works with. */
struct worker {
    struct ebb_encoder *encoder;
    struct ebb_parts parts;
};

static void block_free(struct ebb_ctx *ctx, struct block *block)
{
    ebb_ids_free(ctx, &block->ids);
    ebb_str_free(ctx, &block->trained);
    *block = (struct block){0};
}

static enum ebb_status mark(struct ebb_ctx *ctx, struct block *block, bool trained)
{
    char byte = trained ? 1 : 0;
    while ((int64_t)block->trained.bytes < block->ids.count)
        EBB_TRY(ebb_str_add(ctx, &block->trained, &byte, 1));
    return EBB_OK;
}

/* Text that brings its own BOS or EOS (rendered from a template, say) gets no second one. */
static void drop_double_bos(const struct ebb_tokenizer *tokenizer, struct ebb_ids *ids,
                            int64_t start)
{
    int32_t bos = ebb_tokenizer_bos(tokenizer);
    if (bos < 0 || ebb_tokenizer_prefix_count(tokenizer, bos) == 0 || ids->count - start < 2)
        return;
    if (ids->data[start] != bos || ids->data[start + 1] != bos) return;
    ids->count--;
    memmove(ids->data + start, ids->data + start + 1,
            (size_t)(ids->count - start) * sizeof *ids->data);
}

static enum ebb_status end_with_eos(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                    struct ebb_ids *ids, int64_t start)
{
    int32_t eos = ebb_tokenizer_eos(tokenizer);
    int64_t count = ids->count - start;
    bool ends = count >= 1 && ids->data[ids->count - 1] == eos;
    if (ends && count >= 2 && ids->data[ids->count - 2] == eos &&
        ebb_tokenizer_suffix_count(tokenizer, eos) > 0)
        ids->count--;
    return ends ? EBB_OK : ebb_ids_add(ctx, ids, &eos, 1);
}

/* Appends the record's tokens and marks. */
static enum ebb_status encode_parts(struct ebb_ctx *ctx, const struct job *job,
                                    struct worker *worker, struct block *block)
{
    const struct ebb_parts *parts = &worker->parts;
    int64_t start = block->ids.count;
    size_t from = 0;
    for (int64_t i = 0; i < parts->count; i++) {
        bool last = i + 1 == parts->count;
        unsigned flags =
            (i == 0 ? EBB_ENCODE_PREFIX : EBB_ENCODE_CONTINUES) | (last ? EBB_ENCODE_SUFFIX : 0);
        const char *text = parts->text.data == NULL ? "" : parts->text.data + from;
        EBB_TRY(
            ebb_encode(ctx, worker->encoder, text, parts->items[i].end - from, flags, &block->ids));
        if (i == 0) drop_double_bos(job->tokenizer, &block->ids, start);
        if (!last) EBB_TRY(mark(ctx, block, !job->completion_only || parts->items[i].learned));
        from = parts->items[i].end;
    }
    /* A prompt that ends with EOS is not the sample's end: an empty completion still gets its
     * own. */
    int64_t last_start =
        (int64_t)block->trained.bytes > start ? (int64_t)block->trained.bytes : start;
    EBB_TRY(end_with_eos(ctx, job->tokenizer, &block->ids, last_start));
    return mark(ctx, block, true);
}

static enum ebb_status nothing_to_train(struct ebb_ctx *ctx, const struct job *job, int64_t index,
                                        int64_t tokens, bool truncated)
{
    char *name = ebb_records_name(ctx, &job->records, index);
    if (name == NULL) return EBB_NO_MEMORY;
    enum ebb_status status;
    if (truncated)
        status = EBB_FAIL(ctx, EBB_BAD_FILE,
                          "%s has nothing to train once it is cut to max_length %" PRId64
                          " tokens: its prompt fills them\nraise max_length or set overlong: drop",
                          name, tokens);
    else
        status = EBB_FAIL(ctx, EBB_BAD_FILE,
                          "%s has nothing to train: its text is empty (%" PRId64 " tokens in all)",
                          name, tokens);
    ebb_mem_free(ctx, name);
    return status;
}

/* The sample whose tokens were just appended: its length against max_length, its labels. */
static enum ebb_status finish_sample(struct ebb_ctx *ctx, const struct job *job, int64_t index,
                                     int64_t start, struct block *block)
{
    int64_t length = block->ids.count - start, limit = job->options->max_length;
    bool overlong = limit > 0 && length > limit;
    if (overlong) {
        struct overlong_facts *facts = &block->overlong;
        if (facts->count++ == 0) {
            facts->first = index;
            facts->first_tokens = length;
        }
        if (length > facts->longest) facts->longest = length;
        int64_t kept = job->options->overlong == EBB_OVERLONG_TRUNCATE ? limit : 0;
        block->ids.count = start + kept;
        block->trained.bytes = (size_t)(start + kept);
        if (kept == 0) return EBB_OK;
        length = kept;
        block->truncated++;
    }
    int64_t labels = 0;
    for (int64_t i = 1; i < length; i++) labels += block->trained.data[start + i];
    if (labels == 0) return nothing_to_train(ctx, job, index, length, overlong);
    block->labels += labels;
    block->lengths[block->samples] = length;
    block->records[block->samples++] = job->records.first + index + 1;
    return EBB_OK;
}

static enum ebb_status add_record(struct ebb_ctx *ctx, const struct job *job, int64_t index,
                                  struct worker *worker, struct block *block)
{
    json_t *json;
    EBB_TRY(ebb_records_parse(ctx, &job->records, index, &json));
    struct ebb_format_record record = {&job->records, index, json, job->text_field};
    int64_t start = block->ids.count;
    worker->parts.text.bytes = 0;
    worker->parts.count = 0;
    enum ebb_status status = job->format->render(ctx, &record, &worker->parts);
    json_decref(json);
    EBB_TRY(status);
    EBB_TRY(encode_parts(ctx, job, worker, block));
    return finish_sample(ctx, job, index, start, block);
}

static enum ebb_status run_block(struct ebb_ctx *ctx, const struct job *job, int64_t first,
                                 struct worker *worker, struct block *block)
{
    if (worker->encoder == NULL) EBB_TRY(ebb_encoder_create(ctx, job->tokenizer, &worker->encoder));
    for (int64_t i = first; i < first + BLOCK_RECORDS && i < job->record_count; i++)
        EBB_TRY(add_record(ctx, job, i, worker, block));
    return EBB_OK;
}

static void worker_free(struct ebb_ctx *ctx, struct worker *worker)
{
    ebb_encoder_free(ctx, worker->encoder);
    ebb_parts_free(ctx, &worker->parts);
}

/* ---- all blocks ---- */

/* Which thread fails first is chance; the error shall be the first record's, so its block runs
 * again, alone. */
static enum ebb_status retry_block(struct ebb_ctx *ctx, const struct job *job, int64_t b,
                                   struct block *block)
{
    struct worker worker = {0};
    ebb_error_clear(ctx);
    block_free(ctx, block);
    enum ebb_status status = run_block(ctx, job, b * BLOCK_RECORDS, &worker, block);
    worker_free(ctx, &worker);
    return status;
}

static enum ebb_status run_blocks(struct ebb_ctx *ctx, const struct job *job, struct block *blocks,
                                  int64_t count)
{
    int64_t failed = count;
#pragma omp parallel if (count > 1)
    {
        struct worker worker = {0};
#pragma omp for schedule(dynamic, 1)
        for (int64_t b = 0; b < count; b++) {
            int64_t failed_now;
#pragma omp atomic read
            failed_now = failed;
            if (b > failed_now) continue; /* what comes behind a failure does not matter */
            blocks[b].status = run_block(ctx, job, b * BLOCK_RECORDS, &worker, &blocks[b]);
            if (blocks[b].status != EBB_OK) {
#pragma omp critical(ebb_dataset_failed)
                {
                    if (b < failed) {
#pragma omp atomic write
                        failed = b;
                    }
                }
            }
        }
        worker_free(ctx, &worker);
    }
    for (int64_t b = failed; b < count; b++) EBB_TRY(retry_block(ctx, job, b, &blocks[b]));
    return EBB_OK;
}

static enum ebb_status fail_overlong(struct ebb_ctx *ctx, const struct job *job,
                                     const struct overlong_facts *facts)
{
    char *name = ebb_records_name(ctx, &job->records, facts->first);
    if (name == NULL) return EBB_NO_MEMORY;
    enum ebb_status status =
        EBB_FAIL(ctx, EBB_BAD_CONFIG,
                 "%s has %" PRId64 " tokens, max_length is %" PRId64 " (records above it: %" PRId64
                 ", the longest has %" PRId64
                 " tokens)\nraise max_length, or set overlong: truncate or overlong: drop",
                 name, facts->first_tokens, job->options->max_length, facts->count, facts->longest);
    ebb_mem_free(ctx, name);
    return status;
}

static void sum_overlong(const struct block *blocks, int64_t count, struct overlong_facts *sum)
{
    *sum = (struct overlong_facts){0};
    for (int64_t b = 0; b < count; b++) {
        const struct overlong_facts *facts = &blocks[b].overlong;
        if (facts->count > 0 && sum->count == 0) {
            sum->first = facts->first;
            sum->first_tokens = facts->first_tokens;
        }
        if (facts->longest > sum->longest) sum->longest = facts->longest;
        sum->count += facts->count;
    }
}

/* ---- the data set ---- */

static enum ebb_status dataset_create(struct ebb_ctx *ctx, int64_t samples, int64_t tokens,
                                      struct ebb_dataset **dataset)
{
    struct ebb_dataset *set = ebb_mem_alloc(ctx, sizeof *set);
    *dataset = set;
    if (set == NULL) return EBB_NO_MEMORY;
    set->count = samples;
    set->tokens = tokens;
    set->starts = ebb_mem_alloc(ctx, (size_t)(samples + 1) * sizeof *set->starts);
    set->records = ebb_mem_alloc(ctx, (size_t)(samples + 1) * sizeof *set->records);
    set->ids = ebb_mem_alloc(ctx, (size_t)(tokens + 1) * sizeof *set->ids);
    set->trained = ebb_mem_alloc(ctx, (size_t)(tokens / 32 + 1) * sizeof *set->trained);
    if (set->starts != NULL && set->records != NULL && set->ids != NULL && set->trained != NULL)
        return EBB_OK;
    ebb_dataset_free(ctx, set);
    *dataset = NULL;
    return EBB_NO_MEMORY;
}

void ebb_dataset_free(struct ebb_ctx *ctx, struct ebb_dataset *dataset)
{
    if (dataset == NULL) return;
    ebb_mem_free(ctx, dataset->starts);
    ebb_mem_free(ctx, dataset->records);
    ebb_mem_free(ctx, dataset->ids);
    ebb_mem_free(ctx, dataset->trained);
    ebb_mem_free(ctx, dataset);
}

static void set_trained(struct ebb_dataset *set, int64_t token)
{
    set->trained[token >> 5] |= 1u << (token & 31);
}

static enum ebb_status join_blocks(struct ebb_ctx *ctx, const struct job *job, struct block *blocks,
                                   int64_t count, struct ebb_dataset **dataset)
{
    int64_t samples = 0, tokens = 0;
    for (int64_t b = 0; b < count; b++) {
        samples += blocks[b].samples;
        tokens += blocks[b].ids.count;
    }
    if (samples == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: every one of its %" PRId64 " records is above max_length %" PRId64
                        " and was dropped",
                        job->options->path, job->record_count, job->options->max_length);
    EBB_TRY(dataset_create(ctx, samples, tokens, dataset));
    struct ebb_dataset *set = *dataset;
    int64_t at = 0, sample = 0;
    for (int64_t b = 0; b < count; b++) {
        struct block *block = &blocks[b];
        if (block->ids.count > 0)
            memcpy(set->ids + at, block->ids.data, (size_t)block->ids.count * sizeof *set->ids);
        for (int64_t i = 0; i < block->ids.count; i++)
            if (block->trained.data[i]) set_trained(set, at + i);
        for (int64_t i = 0; i < block->samples; i++) {
            set->starts[sample + 1] = set->starts[sample] + block->lengths[i];
            set->records[sample++] = block->records[i];
            if (block->lengths[i] > set->longest) set->longest = block->lengths[i];
        }
        at += block->ids.count;
        set->labels += block->labels;
        set->truncated += block->truncated;
        block_free(ctx, block);
    }
    set->dropped = job->record_count - samples;
    set->format = job->format->name;
    return EBB_OK;
}

static void report(struct ebb_ctx *ctx, const struct job *job, const struct ebb_dataset *set)
{
    const char *path = job->options->path;
    ebb_log(ctx, EBB_LOG_INFO, "data",
            "%s: %" PRId64 " samples of format %s, %" PRId64 " tokens, %" PRId64
            " trained, longest %" PRId64,
            path, set->count, set->format, set->tokens, set->labels, set->longest);
    if (set->dropped > 0)
        ebb_log(ctx, EBB_LOG_WARNING, "data",
                "%s: left out %" PRId64 " of %" PRId64 " records above max_length %" PRId64
                " (overlong: drop)",
                path, set->dropped, job->record_count, job->options->max_length);
    if (set->truncated > 0)
        ebb_log(ctx, EBB_LOG_WARNING, "data",
                "%s: cut %" PRId64 " of %" PRId64 " samples to max_length %" PRId64
                " (overlong: truncate)",
                path, set->truncated, job->record_count, job->options->max_length);
}

static enum ebb_status run_job(struct ebb_ctx *ctx, const struct job *job,
                               struct ebb_dataset **dataset)
{
    int64_t count = (job->record_count + BLOCK_RECORDS - 1) / BLOCK_RECORDS;
    struct block *blocks = ebb_mem_alloc(ctx, (size_t)count * sizeof *blocks);
    if (blocks == NULL) return EBB_NO_MEMORY;
    struct overlong_facts overlong;
    enum ebb_status status = run_blocks(ctx, job, blocks, count);
    sum_overlong(blocks, count, &overlong);
    if (status == EBB_OK && overlong.count > 0 && job->options->overlong == EBB_OVERLONG_ERROR)
        status = fail_overlong(ctx, job, &overlong);
    if (status == EBB_OK) status = join_blocks(ctx, job, blocks, count, dataset);
    for (int64_t b = 0; b < count; b++) block_free(ctx, &blocks[b]);
    ebb_mem_free(ctx, blocks);
    if (status == EBB_OK) report(ctx, job, *dataset);
    return status;
}

/* The format, and what the options say of it. */
static enum ebb_status choose_format(struct ebb_ctx *ctx, struct job *job)
{
    const struct ebb_dataset_options *options = job->options;
    json_t *json;
    EBB_TRY(ebb_records_parse(ctx, &job->records, 0, &json));
    struct ebb_format_record first = {&job->records, 0, json, job->text_field};
    enum ebb_status status = ebb_format_find(ctx, options->format, &first, &job->format);
    json_decref(json);
    EBB_TRY(status);
    if (options->completion_only == EBB_COMPLETION_ONLY_TRUE && !job->format->has_prompt)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "completion_only_loss needs a prompt to leave out, and %s is of format "
                        "'%s', which has none\nleave "
                        "completion_only_loss at auto",
                        options->path, job->format->name);
    job->completion_only =
        job->format->has_prompt && options->completion_only != EBB_COMPLETION_ONLY_FALSE;
    return EBB_OK;
}

static enum ebb_status check_options(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                     const struct ebb_dataset_options *options)
{
    if (options->path == NULL || options->path[0] == '\0')
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "dataset_name is missing: the path of a data set is wanted");
    if (options->max_length < 0 || options->max_length == 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "max_length is %" PRId64 ", at least 2 is wanted",
                        options->max_length);
    if (options->max_samples < 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "max_samples is %" PRId64 ", 0 (all) or more is wanted",
                        options->max_samples);
    if (ebb_tokenizer_eos(tokenizer) >= 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "the tokenizer names no eos_token, so a sample's end could not be learned\nadd "
                    "\"eos_token\" to its tokenizer_config.json");
}

enum ebb_status ebb_dataset_load(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                 const struct ebb_dataset_options *options,
                                 struct ebb_dataset **dataset)
{
    *dataset = NULL;
    EBB_TRY(check_options(ctx, tokenizer, options));
    struct job job = {.tokenizer = tokenizer, .options = options};
    job.text_field = options->text_field == NULL || options->text_field[0] == '\0'
                         ? "text"
                         : options->text_field;
    EBB_TRY(ebb_records_open(ctx, options->path, options->split, &job.records));
    job.record_count = job.records.count;
    if (options->max_samples > 0 && options->max_samples < job.record_count)
        job.record_count = options->max_samples;
    enum ebb_status status = choose_format(ctx, &job);
    if (status == EBB_OK) status = run_job(ctx, &job, dataset);
    ebb_records_close(ctx, &job.records);
    return status;
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
    EBB_TRY(dataset_create(ctx, count, tokens, dataset));
    struct ebb_dataset *set = *dataset;
    set->format = "ids";
    memcpy(set->ids, ids, (size_t)tokens * sizeof *ids);
    for (int64_t i = 0; i < count; i++) {
        set->starts[i + 1] = set->starts[i] + lengths[i];
        set->records[i] = i + 1;
        if (lengths[i] > set->longest) set->longest = lengths[i];
        for (int64_t t = prompts == NULL ? 0 : prompts[i]; t < lengths[i]; t++) {
            set_trained(set, set->starts[i] + t);
            set->labels += t > 0;
        }
    }
    return EBB_OK;
}
