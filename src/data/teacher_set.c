/* What ties a saved teacher to its data set, micro-batches to its rows, and what a row may hold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/teacher.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/teacher_int.h"
#include "op/distill.h"

/* ---- counts ---- */

/* Labels of a sample; marks, where it is there, gets a byte for each target: [length - 1]. */
static int64_t count_labels(const struct ebb_dataset *dataset, int64_t sample, uint8_t *marks)
{
    int64_t count = 0, length = ebb_dataset_length(dataset, sample);
    for (int64_t place = 1; place < length; place++) {
        bool trained = ebb_dataset_is_trained(dataset, sample, place);
        if (marks != NULL) marks[place - 1] = trained;
        count += trained;
    }
    return count;
}

int64_t ebb_teacher_rows(const struct ebb_dataset *dataset)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < dataset->count; i++) rows += count_labels(dataset, i, NULL);
    return rows;
}

int64_t ebb_teacher_bytes(int64_t samples, int64_t rows, int64_t k, enum ebb_dtype dtype)
{
    return EBB_TEACHER_HEAD + (samples + 1) * (int64_t)sizeof(int64_t) +
           rows * k * ((int64_t)sizeof(int32_t) + ebb_dtype_bytes(dtype));
}

enum ebb_status ebb_teacher_check_loader(struct ebb_ctx *ctx, const struct ebb_loader *loader)
{
    int64_t split = ebb_loader_describe(loader)->split;
    if (split == 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "packing cuts %" PRId64
                    " samples into pieces, and a saved teacher has read each"
                    " sample whole\nset packing_strategy: bfd (wrapped and bfd_split cut), or"
                    " packing: false",
                    split);
}

/* ---- the data set ---- */

enum ebb_status ebb_teacher_set_make(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                     struct ebb_teacher_set *set, int64_t **offsets)
{
    size_t count = (size_t)dataset->count, longest = 1;
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count; i++)
        if ((size_t)dataset->lengths[i] > longest) longest = (size_t)dataset->lengths[i];
    uint64_t *ids = ebb_mem_alloc(ctx, count * sizeof *ids);
    uint64_t *targets = ebb_mem_alloc(ctx, count * sizeof *targets);
    uint8_t *marks = ebb_mem_alloc(ctx, longest);
    *offsets = ebb_mem_alloc(ctx, (count + 1) * sizeof **offsets);
    *set = (struct ebb_teacher_set){.samples = dataset->count};
    if (ids == NULL || targets == NULL || marks == NULL || *offsets == NULL) {
        status = EBB_NO_MEMORY;
        ebb_mem_free(ctx, *offsets);
        *offsets = NULL;
    }
    for (int64_t i = 0; i < dataset->count && status == EBB_OK; i++) {
        int64_t length = ebb_dataset_length(dataset, i);
        (*offsets)[i] = set->rows;
        set->rows += count_labels(dataset, i, marks);
        set->tokens += length;
        ids[i] = ebb_hash_bytes(ebb_dataset_ids(dataset, i), (size_t)length * sizeof(int32_t));
        targets[i] = ebb_hash_bytes(marks, (size_t)(length - 1));
    }
    if (status == EBB_OK) {
        (*offsets)[dataset->count] = set->rows;
        set->lengths = ebb_hash_bytes(dataset->lengths, count * sizeof *dataset->lengths);
        set->ids = ebb_hash_bytes(ids, count * sizeof *ids);
        set->targets = ebb_hash_bytes(targets, count * sizeof *targets);
    }
    ebb_mem_free(ctx, marks);
    ebb_mem_free(ctx, targets);
    ebb_mem_free(ctx, ids);
    return status;
}

void ebb_teacher_write_hash(uint64_t hash, char text[17])
{
    snprintf(text, 17, "%016" PRIx64, hash);
}

json_t *ebb_teacher_set_json(const struct ebb_teacher_set *set)
{
    char lengths[17], ids[17], targets[17];
    ebb_teacher_write_hash(set->lengths, lengths);
    ebb_teacher_write_hash(set->ids, ids);
    ebb_teacher_write_hash(set->targets, targets);
    return json_pack("{s:I, s:I, s:I, s:s, s:s, s:s}", "samples", (json_int_t)set->samples,
                     "tokens", (json_int_t)set->tokens, "labels", (json_int_t)set->rows,
                     "lengths_hash", lengths, "ids_hash", ids, "targets_hash", targets);
}

enum ebb_status ebb_teacher_parse_hash(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                       const char *key, uint64_t *hash)
{
    const char *text;
    char *end;
    EBB_TRY(ebb_json_string(ctx, path, json, key, &text, NULL));
    *hash = strtoull(text, &end, 16);
    if (strlen(text) == 16 && *end == '\0') return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is '%s', wanted 16 hexadecimal digits", path, key,
                    text);
}

enum ebb_status ebb_teacher_set_parse(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                      struct ebb_teacher_set *set)
{
    const json_t *data = json_object_get(json, "data");
    if (!json_is_object(data))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no object 'data' about the data set", path);
    EBB_TRY(ebb_json_int64(ctx, path, data, "samples", &set->samples, NULL));
    EBB_TRY(ebb_json_int64(ctx, path, data, "tokens", &set->tokens, NULL));
    EBB_TRY(ebb_json_int64(ctx, path, data, "labels", &set->rows, NULL));
    EBB_TRY(ebb_teacher_parse_hash(ctx, path, data, "lengths_hash", &set->lengths));
    EBB_TRY(ebb_teacher_parse_hash(ctx, path, data, "ids_hash", &set->ids));
    return ebb_teacher_parse_hash(ctx, path, data, "targets_hash", &set->targets);
}

enum ebb_status ebb_teacher_set_same(struct ebb_ctx *ctx, const char *dir,
                                     const struct ebb_teacher_set *saved,
                                     const struct ebb_teacher_set *now)
{
    static const char hint[] =
        "\ngive the data as it was when the teacher was saved, or save one for"
        " this data set";
    if (saved->samples != now->samples)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "the teacher in '%s' was saved for %" PRId64 " samples, this data set has"
                        " %" PRId64 ": other files, another split, dataset_max_samples, weights, or"
                        " samples that were left out%s",
                        dir, saved->samples, now->samples, hint);
    if (saved->tokens != now->tokens || saved->lengths != now->lengths)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "the teacher in '%s' was saved for samples of other lengths, %" PRId64
                        " tokens together where this data set has %" PRId64
                        ": another tokenizer, chat template or max_length, or other records%s",
                        dir, saved->tokens, now->tokens, hint);
    if (saved->ids != now->ids)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "the teacher in '%s' was saved for other tokens in samples of the same"
                        " lengths: another tokenizer or chat template, or other records%s",
                        dir, hint);
    if (saved->rows != now->rows || saved->targets != now->targets)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "the teacher in '%s' was saved for the same tokens, but others of them are"
                        " trained: %" PRId64 " labels there, %" PRId64
                        " here: completion_only_loss,"
                        " assistant_only_loss or last_turn_only_loss differs%s",
                        dir, saved->rows, now->rows, hint);
    return EBB_OK;
}

enum ebb_status ebb_teacher_checksum(struct ebb_ctx *ctx, const json_t *json, char text[17])
{
    struct ebb_str all = {0};
    json_t *copy = json_copy((json_t *)(uintptr_t)json);
    if (copy == NULL) return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory at a saved teacher");
    (void)json_object_del(copy, "checksum"); /* it may not be there yet */
    enum ebb_status status = ebb_json_text(ctx, copy, 0, &all);
    if (status == EBB_OK) ebb_teacher_write_hash(ebb_hash_bytes(all.data, all.bytes), text);
    ebb_str_free(ctx, &all);
    json_decref(copy);
    return status;
}

/* ---- micro-batches ---- */

enum ebb_status ebb_teacher_document(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                     const int64_t *offsets, const struct ebb_batch *batch,
                                     const int64_t *samples, int64_t doc, int64_t at, int64_t *rows)
{
    int64_t sample = samples[doc], end = batch->doc_starts[doc + 1];
    int64_t tokens = end - batch->doc_starts[doc], count = 0;
    if (sample < 0 || sample >= dataset->count)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "a micro-batch has sample %" PRId64 " of a saved teacher's %" PRId64
                        ": it is of another data set",
                        sample + 1, dataset->count);
    int64_t length = ebb_dataset_length(dataset, sample),
            saved = offsets[sample + 1] - offsets[sample];
    if (tokens != length)
        return EBB_FAIL(
            ctx, EBB_BAD_CONFIG,
            "a micro-batch has a piece of sample %" PRId64 ", %" PRId64 " of its %" PRId64
            " tokens, and a saved teacher has read each sample whole"
            "\nset packing_strategy: bfd (wrapped and bfd_split cut), or packing: false",
            sample + 1, tokens, length);
    while (at + count < batch->labels && batch->label_rows[at + count] < end) count++;
    if (count != saved)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "a micro-batch has %" PRId64 " labels of sample %" PRId64
                        ", the saved teacher has %" PRId64 ": it is of another data set",
                        count, sample + 1, saved);
    *rows = count;
    return EBB_OK;
}

/* ---- rows ---- */

enum ebb_status ebb_teacher_rows_open(struct ebb_teacher_rows *rows)
{
    rows->seen = ebb_mem_alloc(rows->ctx, EBB_TEACHER_SLOTS * sizeof *rows->seen);
    rows->number = 0;
    return rows->seen == NULL ? EBB_NO_MEMORY : EBB_OK;
}

/* Slots of earlier rows count as empty, so that nothing is cleared between rows. */
static void next_row(struct ebb_teacher_rows *rows)
{
    if (++rows->number != 0) return;
    memset(rows->seen, 0, EBB_TEACHER_SLOTS * sizeof *rows->seen);
    rows->number = 1;
}

/* Notes the token; false where the row had it before. */
static bool is_new(struct ebb_teacher_rows *rows, int32_t id)
{
    uint64_t entry = (uint64_t)rows->number << 32 | (uint32_t)id;
    uint32_t at = (uint32_t)id * 2654435769u >> 20; /* Fibonacci hashing to 12 bits */
    static_assert(EBB_TEACHER_SLOTS == 1 << 12 && EBB_TEACHER_SLOTS >= 2 * EBB_DISTILL_TOPK,
                  "a row leaves slots empty");
    while (rows->seen[at] >> 32 == rows->number) {
        if (rows->seen[at] == entry) return false;
        at = (at + 1) % EBB_TEACHER_SLOTS;
    }
    rows->seen[at] = entry;
    return true;
}

static enum ebb_status fail_token(const struct ebb_teacher_rows *rows, int64_t sample,
                                  int64_t label, int32_t id)
{
    if (id < 0 || id >= rows->vocab)
        return EBB_FAIL(rows->ctx, rows->status,
                        "%s: token %d of sample %" PRId64 ", label %" PRId64
                        " is outside the vocabulary of %" PRId64 "%s",
                        rows->where, (int)id, sample + 1, label + 1, rows->vocab, rows->hint);
    return EBB_FAIL(rows->ctx, rows->status,
                    "%s: token %d stands twice at sample %" PRId64 ", label %" PRId64 "%s",
                    rows->where, (int)id, sample + 1, label + 1, rows->hint);
}

static enum ebb_status fail_logprob(const struct ebb_teacher_rows *rows, int64_t sample,
                                    int64_t label, float value, float before)
{
    if (isnan(value) || value > 0)
        return EBB_FAIL(rows->ctx, rows->status,
                        "%s: a log-probability of sample %" PRId64 ", label %" PRId64
                        " is %g, wanted at most 0%s",
                        rows->where, sample + 1, label + 1, (double)value, rows->hint);
    return EBB_FAIL(rows->ctx, rows->status,
                    "%s: the log-probabilities of sample %" PRId64 ", label %" PRId64
                    " have %g after %g, wanted descending ones%s",
                    rows->where, sample + 1, label + 1, (double)value, (double)before, rows->hint);
}

enum ebb_status ebb_teacher_rows_check(struct ebb_teacher_rows *rows, int64_t sample, int64_t count,
                                       const int32_t *ids, const void *logprobs)
{
    for (int64_t label = 0; label < count; label++) {
        float before = 0;
        next_row(rows);
        for (int64_t i = label * rows->k; i < (label + 1) * rows->k; i++) {
            float value = ebb_teacher_logprob(rows->dtype, logprobs, i);
            if (ids[i] < 0 || ids[i] >= rows->vocab || !is_new(rows, ids[i]))
                return fail_token(rows, sample, label, ids[i]);
            if (!(value <= before)) return fail_logprob(rows, sample, label, value, before);
            before = value;
        }
    }
    return EBB_OK;
}
