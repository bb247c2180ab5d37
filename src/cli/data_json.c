/* `ebb data` as JSON; docs/DATA.md says what its keys mean.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/data_view.h"

/* Every failure of jansson here is one of memory, or a path that is no UTF-8: NULL, and the end
 * says so. An append with NULL fails and frees. */
static json_t *append(json_t *list, json_t *item)
{
    if (list && json_array_append_new(list, item) == 0) return list;
    if (list == NULL) json_decref(item);
    json_decref(list);
    return NULL;
}

static json_t *sample_ids(const struct ebb_dataset *set, int64_t sample, bool labels)
{
    const int32_t *ids = ebb_dataset_ids(set, sample);
    json_t *list = json_array();
    for (int64_t i = 0; list && i < ebb_dataset_length(set, sample); i++)
        list = append(list, json_integer(labels && !ebb_survey_is_target(set, sample, i) ? -100
                                                                                         : ids[i]));
    return list;
}

static json_t *stretches(const struct ebb_data_sample *sample)
{
    json_t *list = json_array();
    size_t begin = 0;
    for (int64_t i = 0; list && i < sample->count; i++) {
        const struct ebb_data_stretch *stretch = &sample->items[i];
        list = append(list, json_pack("{s:o, s:b}", "text",
                                      json_stringn(sample->text.data + begin, stretch->end - begin),
                                      "trained", stretch->trained));
        begin = stretch->end;
    }
    return list;
}

static enum ebb_status one_sample(const struct ebb_data_view *view, int64_t sample,
                                  struct ebb_data_sample *text, json_t **json)
{
    const struct ebb_dataset *set = view->dataset;
    const char *side = ebb_data_side(set, sample);
    EBB_TRY(ebb_data_sample_read(view->cli->ctx, set, view->setup->tokenizer, sample, text));
    *json =
        json_pack("{s:I, s:I, s:o, s:o, s:o}", "tokens",
                  (json_int_t)ebb_dataset_length(set, sample), "trained",
                  (json_int_t)ebb_survey_targets(set, sample), "text", stretches(text), "input_ids",
                  sample_ids(set, sample, false), "labels", sample_ids(set, sample, true));
    if (*json && side) json_object_set_new(*json, "side", json_string(side));
    if (*json && set->desirable)
        json_object_set_new(*json, "desirable", json_boolean(set->desirable[sample]));
    return EBB_OK;
}

/* The samples of one record: one, or both sides of a pair. */
static enum ebb_status shown_record(const struct ebb_data_view *view, int64_t sample,
                                    struct ebb_data_sample *text, json_t **json)
{
    const struct ebb_dataset *set = view->dataset;
    json_t *samples = json_array();
    for (int64_t i = 0; i < set->group; i++) {
        json_t *one = NULL;
        enum ebb_status status = one_sample(view, sample + i, text, &one);
        samples = append(samples, one);
        if (status == EBB_OK) continue;
        json_decref(samples);
        return status;
    }
    *json = json_pack("{s:s, s:I, s:I, s:o}", "path",
                      view->setup->train_sources.items[set->sources[sample]].path, "record",
                      (json_int_t)set->records[sample], "sample", (json_int_t)sample + 1, "samples",
                      samples);
    return EBB_OK;
}

static enum ebb_status shown_records(const struct ebb_data_view *view, json_t **json)
{
    struct ebb_data_sample text = {0};
    enum ebb_status status = EBB_OK;
    *json = json_array();
    for (int64_t k = 0; status == EBB_OK && k < view->shown_count; k++) {
        json_t *one = NULL;
        status = shown_record(view, view->shown[k], &text, &one);
        *json = append(*json, one);
    }
    ebb_data_sample_free(view->cli->ctx, &text);
    return status;
}

static json_t *sources_json(const struct ebb_data_view *view)
{
    json_t *list = json_array();
    for (int64_t s = 0; list && s < view->setup->train_sources.count; s++) {
        const struct ebb_dataset_source *source = &view->setup->train_sources.items[s];
        int64_t samples = 0, tokens = 0;
        for (int64_t i = 0; i < view->dataset->count; i++) {
            if (view->dataset->sources[i] != s) continue;
            samples++;
            tokens += ebb_dataset_length(view->dataset, i);
        }
        list = append(list, json_pack("{s:s, s:s, s:f, s:I, s:I}", "path", source->path, "split",
                                      source->split, "weight", source->weight, "samples",
                                      (json_int_t)samples, "tokens", (json_int_t)tokens));
    }
    return list;
}

static json_t *lengths_json(const struct ebb_data_view *view)
{
    json_t *list = json_array();
    for (int i = 0; list && i < view->survey.bucket_count; i++) {
        const struct ebb_survey_bucket *bucket = &view->survey.buckets[i];
        list =
            append(list, json_pack("{s:I, s:I, s:I, s:I}", "from", (json_int_t)bucket->low, "to",
                                   (json_int_t)bucket->high, "samples", (json_int_t)bucket->samples,
                                   "tokens", (json_int_t)bucket->tokens));
    }
    return list;
}

/* null where no rows are made, as of pairs. */
static json_t *packing_json(const struct ebb_data_view *view)
{
    const struct ebb_config *config = view->config;
    if (view->setup->train == NULL) return json_null();
    const struct ebb_loader_facts *facts = ebb_loader_describe(view->setup->train);
    json_t *list = json_object();
    for (int i = 0; list && i < EBB_SURVEY_STRATEGIES; i++) {
        const struct ebb_survey_rows *rows = &view->survey.rows[i];
        json_t *one = rows->possible
                          ? json_pack("{s:I, s:f, s:I}", "rows", (json_int_t)rows->rows, "fill",
                                      rows->fill, "pieces", (json_int_t)rows->pieces)
                          : json_null();
        if (json_object_set_new(list, rows->name, one) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return json_pack("{s:b, s:s, s:I, s:I, s:I, s:f, s:o}", "packing", config->packing, "strategy",
                     view->survey.rows[config->packing_strategy].name, "max_length",
                     (json_int_t)view->survey.capacity, "micro_batches",
                     (json_int_t)facts->micros_per_epoch, "micro_batch_tokens",
                     (json_int_t)facts->tokens_max, "fill", facts->fill, "strategies", list);
}

static json_t *refusals_json(const struct ebb_dataset *set)
{
    json_t *list = json_array();
    for (int64_t i = 0; list && i < set->refused && i < EBB_REFUSALS; i++)
        list = append(list, json_string(set->refusals[i].text));
    return list;
}

static json_t *all_json(const struct ebb_data_view *view, json_t *shown)
{
    const struct ebb_dataset *set = view->dataset;
    return json_pack(
        "{s:s, s:o, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, "
        "s:o}",
        "recipe", view->config->recipe == EBB_RECIPE_KEY_DPO ? "dpo" : "sft", "sources",
        sources_json(view), "format", set->format, "chat", set->chat, "records",
        (json_int_t)set->record_count, "samples", (json_int_t)set->count, "tokens",
        (json_int_t)set->tokens, "trained_tokens", (json_int_t)set->labels, "longest",
        (json_int_t)set->longest, "dropped", (json_int_t)set->dropped, "truncated",
        (json_int_t)set->truncated, "refused", (json_int_t)set->refused, "passed",
        (json_int_t)set->passed, "ended", (json_int_t)view->survey.ended, "lengths",
        lengths_json(view), "packing", packing_json(view), "refusals", refusals_json(set), "shown",
        shown);
}

enum ebb_status ebb_data_print_json(const struct ebb_data_view *view)
{
    json_t *shown = NULL;
    enum ebb_status status = shown_records(view, &shown);
    if (status != EBB_OK) {
        json_decref(shown);
        return status;
    }
    json_t *json = all_json(view, shown);
    if (json) return ebb_cli_print_json(view->cli, json);
    return EBB_FAIL(view->cli->ctx, EBB_FAILED,
                    "the result cannot be written as JSON: no memory, or a path or message that is "
                    "not UTF-8");
}
