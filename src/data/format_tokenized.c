/* Records that bring token ids, with marks in any of the forms that such data has.
 *
 * labels: each -100 or the id at its own place (not shifted), as transformers' models take them.
 * attention_mask: padding has 0 and is left out. completion_mask, assistant_masks: TRL's, 1 is
 * trained. Where several are there, a token is trained that all of them train.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/format_int.h"

#include <inttypes.h>
#include <string.h>

enum { NOT_TRAINED = -100 };

struct columns {
    const json_t *ids, *labels, *attention, *completion, *assistant;
    size_t count;
};

/* A list as long as input_ids; NULL where the record has none, or null. */
static enum ebb_status find_column(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                   const char *key, size_t count, const json_t **column)
{
    const json_t *value = json_object_get(record->json, key);
    *column = NULL;
    if (value == NULL || json_is_null(value)) return EBB_OK;
    if (!json_is_array(value)) return ebb_record_bad_field(ctx, record, key, "a list");
    if (json_array_size(value) != count)
        return ebb_record_bad(ctx, record, "'%s' has %zu items, input_ids has %zu", key,
                              json_array_size(value), count);
    *column = value;
    return EBB_OK;
}

static enum ebb_status find_columns(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                    const struct ebb_format_record *record, struct columns *columns)
{
    columns->ids = json_object_get(record->json, "input_ids");
    if (!json_is_array(columns->ids))
        return ebb_record_bad_field(ctx, record, "input_ids", "a list");
    columns->count = json_array_size(columns->ids);
    if (columns->count == 0) return ebb_record_bad(ctx, record, "input_ids is empty");
    EBB_TRY(find_column(ctx, record, "labels", columns->count, &columns->labels));
    EBB_TRY(find_column(ctx, record, "attention_mask", columns->count, &columns->attention));
    EBB_TRY(find_column(ctx, record, "completion_mask", columns->count, &columns->completion));
    EBB_TRY(find_column(ctx, record, "assistant_masks", columns->count, &columns->assistant));
    if (env->completion_only == EBB_LOSS_PART_FALSE) columns->completion = NULL;
    if (env->assistant_only == EBB_LOSS_PART_FALSE) columns->assistant = NULL;
    return EBB_OK;
}

/* Rows that somebody packed: tokens of one document would see those of another. */
static enum ebb_status refuse_packed(struct ebb_ctx *ctx, const struct ebb_format_record *record)
{
    const json_t *positions = json_object_get(record->json, "position_ids");
    size_t i, documents = json_array_size(json_object_get(record->json, "seq_lengths"));
    json_t *one;
    json_array_foreach(positions, i, one)
    {
        if (i > 0 && json_is_integer(one) && json_integer_value(one) == 0) documents = 2;
    }
    if (documents < 2) return EBB_OK;
    return ebb_record_bad(ctx, record,
                          "has several documents in one row\ngive one a record; "
                          "packing: true lays them into rows");
}

static enum ebb_status read_integer(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                    const char *key, const json_t *column, size_t at,
                                    json_int_t *value)
{
    const json_t *item = json_array_get(column, at);
    if (!json_is_integer(item))
        return ebb_record_bad(ctx, record, "'%s', item %zu is %s, an integer is wanted", key,
                              at + 1, ebb_json_kind(item));
    *value = json_integer_value(item);
    return EBB_OK;
}

/* 0, 1 or a boolean; a column that is not there has 1. */
static enum ebb_status read_flag(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                 const char *key, const json_t *column, size_t at, bool *flag)
{
    const json_t *item = json_array_get(column, at);
    json_int_t value = 1;
    *flag = column == NULL || json_is_true(item);
    if (column == NULL || json_is_boolean(item)) return EBB_OK;
    EBB_TRY(read_integer(ctx, record, key, column, at, &value));
    if (value != 0 && value != 1)
        return ebb_record_bad(ctx, record,
                              "'%s', item %zu is %" JSON_INTEGER_FORMAT ", 0 or 1 is "
                              "wanted",
                              key, at + 1, value);
    *flag = value == 1;
    return EBB_OK;
}

static enum ebb_status read_label(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                  const struct columns *columns, size_t at, json_int_t id,
                                  bool *trained)
{
    json_int_t label = 0;
    *trained = true;
    if (columns->labels == NULL) return EBB_OK;
    EBB_TRY(read_integer(ctx, record, "labels", columns->labels, at, &label));
    *trained = label != NOT_TRAINED;
    if (!*trained || label == id) return EBB_OK;
    return ebb_record_bad(ctx, record,
                          "'labels', item %zu is %" JSON_INTEGER_FORMAT
                          ", input_ids has %" JSON_INTEGER_FORMAT
                          " there\na label is -100 or the id at its own place: "
                          "labels are not shifted",
                          at + 1, label, id);
}

struct padding {
    bool begun, ended; /* a token was there; padding after one */
};

static enum ebb_status check_padding(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                     size_t at, bool there, bool labelled, struct padding *padding)
{
    if (there && padding->ended)
        return ebb_record_bad(ctx, record,
                              "'attention_mask' leaves out tokens before item %zu which stand "
                              "between others\nonly padding at the beginning or the end can be "
                              "left out",
                              at + 1);
    if (!there && labelled)
        return ebb_record_bad(ctx, record,
                              "'labels' trains item %zu, which 'attention_mask' leaves out",
                              at + 1);
    if (there) padding->begun = true;
    if (!there && padding->begun) padding->ended = true;
    return EBB_OK;
}

static enum ebb_status add_token(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                 const struct columns *columns, size_t at, struct padding *padding,
                                 struct ebb_rendering *out)
{
    json_int_t value = 0;
    bool trained = false, there = true, completes = true, says = true;
    EBB_TRY(read_integer(ctx, record, "input_ids", columns->ids, at, &value));
    EBB_TRY(read_flag(ctx, record, "attention_mask", columns->attention, at, &there));
    EBB_TRY(read_flag(ctx, record, "completion_mask", columns->completion, at, &completes));
    EBB_TRY(read_flag(ctx, record, "assistant_masks", columns->assistant, at, &says));
    EBB_TRY(read_label(ctx, record, columns, at, value, &trained));
    EBB_TRY(check_padding(ctx, record, at, there, columns->labels != NULL && trained, padding));
    if (!there) return EBB_OK;
    if (value < 0 || value > INT32_MAX)
        return ebb_record_bad(ctx, record,
                              "'input_ids', item %zu is %" JSON_INTEGER_FORMAT ", which is no "
                              "token id",
                              at + 1, value);
    int32_t id = (int32_t)value;
    char mark = trained && completes && says;
    EBB_TRY(ebb_ids_add(ctx, &out->ids, &id, 1));
    return ebb_str_add(ctx, &out->marks, &mark, 1);
}

EBB_FORMAT_RENDER(ebb_format_tokenized)
{
    struct columns columns = {0};
    struct padding padding = {false, false};
    EBB_TRY(find_columns(ctx, env, record, &columns));
    EBB_TRY(refuse_packed(ctx, record));
    out->whole = out->tokenized = true;
    for (size_t i = 0; i < columns.count; i++)
        EBB_TRY(add_token(ctx, record, &columns, i, &padding, out));
    if (out->marks.bytes == 0 || memchr(out->marks.data, 1, out->marks.bytes) == NULL)
        return ebb_record_bad(ctx, record,
                              "there is nothing to learn: no token is marked as "
                              "trained");
    ebb_rendering_sample(out);
    return EBB_OK;
}
