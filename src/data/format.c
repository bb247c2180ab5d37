/* The table of formats, those of plain texts, and which one a record is of.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/format.h"

#include <string.h>
#include <strings.h>
#include <stdio.h>

#include "base/yaml.h"
#include "data/format_int.h"

bool ebb_loss_part_parse(const char *text, enum ebb_loss_part *value)
{
    bool flag;
    if (strcasecmp(text, "auto") == 0)
        *value = EBB_LOSS_PART_AUTO;
    else if (ebb_text_bool(text, &flag))
        *value = flag ? EBB_LOSS_PART_TRUE : EBB_LOSS_PART_FALSE;
    else
        return false;
    return true;
}

/* ---- renderings ---- */

static int64_t first_part(const struct ebb_rendering *out)
{
    return out->samples == 0 ? 0 : out->part_ends[out->samples - 1];
}

static enum ebb_status add_part(struct ebb_ctx *ctx, struct ebb_rendering *out, size_t end,
                                bool learned)
{
    if (out->count == out->room) {
        int64_t room = out->room * 2 + 4;
        struct ebb_part *grown =
            (struct ebb_part *)ebb_mem_realloc(ctx, out->items, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        out->items = grown;
        out->room = room;
    }
    out->items[out->count++] = (struct ebb_part){end, learned};
    return EBB_OK;
}

enum ebb_status ebb_rendering_part(struct ebb_ctx *ctx, struct ebb_rendering *out, bool learned)
{
    return add_part(ctx, out, out->text.bytes, learned);
}

enum ebb_status ebb_rendering_cover(struct ebb_ctx *ctx, struct ebb_rendering *out, size_t end,
                                    bool learned)
{
    struct ebb_part *last = out->count > 0 ? &out->items[out->count - 1] : NULL;
    if (end == (last == NULL ? 0 : last->end)) return EBB_OK;
    if (out->count == first_part(out) || last->learned != learned)
        return add_part(ctx, out, end, learned);
    last->end = end;
    return EBB_OK;
}

void ebb_rendering_sample(struct ebb_rendering *out)
{
    EBB_ASSERT(out->samples < 2);
    out->part_ends[out->samples++] = out->count;
}

void ebb_rendering_clear(struct ebb_rendering *out)
{
    out->text.bytes = 0;
    out->ids.count = 0;
    out->marks.bytes = 0;
    out->count = out->samples = 0;
    out->whole = out->tokenized = out->desirable = false;
}

void ebb_rendering_free(struct ebb_ctx *ctx, struct ebb_rendering *out)
{
    ebb_str_free(ctx, &out->text);
    ebb_mem_free(ctx, out->items);
    ebb_ids_free(ctx, &out->ids);
    ebb_str_free(ctx, &out->marks);
    *out = (struct ebb_rendering){0};
}

/* ---- fields ---- */

enum ebb_status ebb_record_bad(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                               const char *format, ...)
{
    char text[1024];
    va_list args;
    char *name = ebb_records_name(ctx, record->records, record->index);
    if (name == NULL) return EBB_NO_MEMORY;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    enum ebb_status status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s", name, text);
    ebb_mem_free(ctx, name);
    return status;
}

enum ebb_status ebb_json_keys(struct ebb_ctx *ctx, const json_t *json, struct ebb_str *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
        EBB_TRY(ebb_str_addf(ctx, out, "%s'%s'", out->bytes == 0 ? "" : ", ", key));
    return out->bytes == 0 ? ebb_str_addf(ctx, out, "none") : EBB_OK;
}

const char *ebb_json_kind(const json_t *value)
{
    if (value == NULL) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_NULL:
        return "null";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "a number";
    }
}

static bool is_table(const struct ebb_format_record *record)
{
    const struct ebb_records *records = record->records;
    int32_t file = records->spans[records->first + record->index].file;
    return records->files[file].kind == EBB_RECORDS_TABLE;
}

/* What dataset_columns reads as this key, or NULL. */
static const char *column_of(const struct ebb_format_record *record, const char *key)
{
    const struct ebb_yaml *columns = record->records->options.columns;
    const struct ebb_yaml *column = columns == NULL ? NULL : ebb_yaml_find(columns, key);
    return column != NULL && column->kind == EBB_YAML_SCALAR ? column->text : NULL;
}

enum ebb_status ebb_record_bad_field(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                     const char *key, const char *wanted)
{
    const json_t *value = json_object_get(record->json, key);
    if (value != NULL)
        return ebb_record_bad(ctx, record, "'%s' is %s, %s is wanted%s", key, ebb_json_kind(value),
                              wanted,
                              is_table(record) ? "\nin CSV and TSV every value is a string; JSON "
                                                 "lines can hold other values"
                                               : "");
    const char *column = column_of(record, key);
    char *name = ebb_records_name(ctx, record->records, record->index);
    struct ebb_str keys = {0};
    enum ebb_status status = name == NULL ? EBB_NO_MEMORY : ebb_json_keys(ctx, record->json, &keys);
    if (status == EBB_OK && column != NULL)
        status = EBB_FAIL(ctx, EBB_BAD_FILE,
                          "%s has no key '%s', which dataset_columns reads as '%s' (it has: %s)",
                          name, column, key, keys.data);
    else if (status == EBB_OK)
        status =
            EBB_FAIL(ctx, EBB_BAD_FILE, "%s has no key '%s' (it has: %s)", name, key, keys.data);
    ebb_str_free(ctx, &keys);
    ebb_mem_free(ctx, name);
    return status;
}

enum ebb_status ebb_record_text(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                const char *key, bool optional, struct ebb_span *text)
{
    const json_t *value = json_object_get(record->json, key);
    *text = (struct ebb_span){"", 0};
    if (optional && (value == NULL || json_is_null(value))) return EBB_OK;
    if (!json_is_string(value)) return ebb_record_bad_field(ctx, record, key, "a string");
    *text = (struct ebb_span){json_string_value(value), json_string_length(value)};
    return EBB_OK;
}

const json_t *ebb_record_verdict(const struct ebb_format_record *record)
{
    const json_t *label = json_object_get(record->json, "label");
    if (!json_is_boolean(label)) label = json_object_get(record->json, "kto_tag");
    return json_is_boolean(label) ? label : NULL;
}

/* ---- plain texts ---- */

static const char *text_field(const struct ebb_format_env *env)
{
    return env->text_field != NULL ? env->text_field : "text";
}

static enum ebb_status add_text(struct ebb_ctx *ctx, struct ebb_rendering *out, const char *text)
{
    return ebb_str_add(ctx, &out->text, text, strlen(text));
}

static enum ebb_status add_field(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                 const char *key, struct ebb_rendering *out)
{
    struct ebb_span text;
    EBB_TRY(ebb_record_text(ctx, record, key, false, &text));
    return ebb_str_add(ctx, &out->text, text.data, text.bytes);
}

static EBB_FORMAT_RENDER(render_text)
{
    EBB_TRY(add_field(ctx, record, text_field(env), out));
    EBB_TRY(ebb_rendering_part(ctx, out, true));
    ebb_rendering_sample(out);
    return EBB_OK;
}

/* What Stanford's prompt has no place for. */
static enum ebb_status refuse_in_alpaca(struct ebb_ctx *ctx, const struct ebb_format_record *record)
{
    static const char *const keys[] = {"system", "history"};
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(record->json, keys[i]);
        if (json_string_length(value) == 0 && json_array_size(value) == 0) continue;
        return ebb_record_bad(ctx, record,
                              "'%s' has no place in the prompt of format 'alpaca'\n"
                              "dataset_format: alpaca_chat writes such records with the model's "
                              "chat template",
                              keys[i]);
    }
    return EBB_OK;
}

/* The prompt of Stanford Alpaca (Taori et al. 2023), with and without an input; the answer
 * follows "### Response:" with nothing between. */
static EBB_FORMAT_RENDER(render_alpaca)
{
    struct ebb_span input;
    EBB_TRY(refuse_in_alpaca(ctx, record));
    EBB_TRY(ebb_record_text(ctx, record, "input", true, &input));
    EBB_TRY(add_text(
        ctx, out,
        input.bytes > 0
            ? "Below is an instruction that describes a task, paired with an input that "
              "provides further context. Write a response that appropriately completes the "
              "request.\n\n### Instruction:\n"
            : "Below is an instruction that describes a task. Write a response that "
              "appropriately completes the request.\n\n### Instruction:\n"));
    EBB_TRY(add_field(ctx, record, "instruction", out));
    if (input.bytes > 0) {
        EBB_TRY(add_text(ctx, out, "\n\n### Input:\n"));
        EBB_TRY(ebb_str_add(ctx, &out->text, input.data, input.bytes));
    }
    EBB_TRY(add_text(ctx, out, "\n\n### Response:"));
    EBB_TRY(ebb_rendering_part(ctx, out, env->completion_only == EBB_LOSS_PART_FALSE));
    EBB_TRY(add_field(ctx, record, "output", out));
    EBB_TRY(ebb_rendering_part(ctx, out, true));
    ebb_rendering_sample(out);
    return EBB_OK;
}

/* ---- which format is it ---- */

static bool is_text(const struct ebb_format_record *record, const char *key)
{
    return json_is_string(json_object_get(record->json, key));
}

/* Messages: a list of them, or one. */
static bool is_talk(const struct ebb_format_record *record, const char *key)
{
    const json_t *value = json_object_get(record->json, key);
    return json_is_array(value) || json_is_object(value);
}

/* Of two fields that should be alike, one is a talk: the format tells what is wrong with the
 * other. */
static bool is_text_or_talk(const struct ebb_format_record *record, const char *key)
{
    return is_text(record, key) || is_talk(record, key);
}

#define FITS(name) static bool name(const struct ebb_format_record *record, const char *field)

FITS(fits_tokenized)
{
    (void)field;
    return json_is_array(json_object_get(record->json, "input_ids"));
}

FITS(fits_preference)
{
    (void)field;
    return is_text(record, "chosen") && is_text(record, "rejected");
}

FITS(fits_preference_chat)
{
    (void)field;
    return !fits_preference(record, field) && is_text_or_talk(record, "chosen") &&
           is_text_or_talk(record, "rejected");
}

FITS(fits_unpaired)
{
    (void)field;
    return ebb_record_verdict(record) != NULL && is_text(record, "completion") &&
           !is_talk(record, "prompt");
}

FITS(fits_unpaired_chat)
{
    (void)field;
    return ebb_record_verdict(record) != NULL &&
           (is_text_or_talk(record, "completion") || is_talk(record, "messages") ||
            is_talk(record, "conversations"));
}

FITS(fits_messages)
{
    (void)field;
    return json_is_array(json_object_get(record->json, "messages"));
}

FITS(fits_sharegpt)
{
    (void)field;
    return json_is_array(json_object_get(record->json, "conversations"));
}

FITS(fits_prompt_completion)
{
    (void)field;
    return is_text(record, "prompt") && is_text(record, "completion");
}

FITS(fits_prompt_completion_chat)
{
    (void)field;
    return (is_talk(record, "prompt") && is_text_or_talk(record, "completion")) ||
           (is_text(record, "prompt") && is_talk(record, "completion"));
}

FITS(fits_alpaca)
{
    (void)field;
    return is_text(record, "instruction") && is_text(record, "output");
}

/* By name only: Stanford's prompt is what such records are usually meant for. */
FITS(fits_never)
{
    (void)record;
    (void)field;
    return false;
}

/* The last resort, so of any type: the message about a text that is a number is better than one
 * about unknown keys. */
FITS(fits_text)
{
    return json_object_get(record->json, field) != NULL;
}

struct row {
    struct ebb_format format;
    const char *keys; /* for people; "": dataset_text_field */
    bool (*fits)(const struct ebb_format_record *record, const char *field);
};

/* In the order in which they are recognised: what has the more telling keys first. A format of two
 * rows is one of texts and one of chats. */
static const struct row rows[] = {
    {{"tokenized", "token ids", false, false, false, false, ebb_format_tokenized},
     "input_ids",
     fits_tokenized},
    {{"preference", "preference pairs", false, true, true, false, ebb_format_preference},
     "chosen rejected",
     fits_preference},
    {{"preference", "preference pairs of chats", true, true, true, false,
      ebb_format_preference_chat},
     "chosen rejected",
     fits_preference_chat},
    {{"unpaired", "answers with a verdict", false, true, false, true, ebb_format_unpaired},
     "completion label",
     fits_unpaired},
    {{"unpaired", "chats with a verdict", true, true, false, true, ebb_format_unpaired_chat},
     "completion label",
     fits_unpaired_chat},
    {{"messages", "chat messages", true, false, false, false, ebb_format_messages},
     "messages",
     fits_messages},
    {{"sharegpt", "chat conversations", true, false, false, false, ebb_format_sharegpt},
     "conversations",
     fits_sharegpt},
    {{"prompt_completion", "prompts and completions", false, true, false, false,
      ebb_format_prompt_completion},
     "prompt completion",
     fits_prompt_completion},
    {{"prompt_completion", "prompts and completions of chats", true, true, false, false,
      ebb_format_prompt_completion_chat},
     "prompt completion",
     fits_prompt_completion_chat},
    {{"alpaca", "instructions", false, true, false, false, render_alpaca},
     "instruction output",
     fits_alpaca},
    {{"alpaca_chat", "instructions as chats", true, false, false, false, ebb_format_alpaca_chat},
     "instruction output",
     fits_never},
    {{"text", "plain text", false, false, false, false, render_text}, "", fits_text},
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static const struct row *find_row(const char *name, const struct ebb_format_env *env,
                                  const struct ebb_format_record *first)
{
    for (int i = 0; i < ROW_COUNT; i++)
        if ((name == NULL || strcmp(name, rows[i].format.name) == 0) &&
            rows[i].fits(first, text_field(env)))
            return &rows[i];
    for (int i = 0; i < ROW_COUNT; i++)
        if (name != NULL && strcmp(name, rows[i].format.name) == 0) return &rows[i];
    return NULL;
}

/* In the order of docs/DATA.md. */
static const char *const names[] = {"messages",    "sharegpt",          "preference",
                                    "unpaired",    "prompt_completion", "alpaca",
                                    "alpaca_chat", "tokenized",         "text"};
enum { NAME_COUNT = sizeof names / sizeof names[0] };

/* "messages {messages}, ..., text {text}" */
static enum ebb_status list_offered(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                    struct ebb_str *out)
{
    for (int i = 0; i < NAME_COUNT; i++) {
        const struct row *row = rows;
        while (strcmp(row->format.name, names[i]) != 0) row++;
        EBB_TRY(ebb_str_addf(ctx, out, "%s%s {%s}%s", i == 0 ? "" : ", ", names[i],
                             row->keys[0] == '\0' ? text_field(env) : row->keys,
                             row->fits == fits_never ? " (by name only)" : ""));
    }
    return EBB_OK;
}

static enum ebb_status fail_name(struct ebb_ctx *ctx, const char *name,
                                 const struct ebb_format_env *env)
{
    const char *near = ebb_text_nearest(name, names, NAME_COUNT);
    struct ebb_str offered = {0};
    enum ebb_status status = list_offered(ctx, env, &offered);
    if (status == EBB_OK)
        status =
            EBB_FAIL(ctx, EBB_BAD_CONFIG, "dataset_format '%s' is unknown%s%s%s\noffered: auto, %s",
                     name, near != NULL ? "; try '" : "", near != NULL ? near : "",
                     near != NULL ? "'" : "", offered.data);
    ebb_str_free(ctx, &offered);
    return status;
}

/* A column that dataset_columns gives a name and the record has not. */
static const struct ebb_yaml *find_missing(const struct ebb_format_record *record)
{
    const struct ebb_yaml *columns = record->records->options.columns;
    for (size_t i = 0; columns != NULL && i < columns->count; i++) {
        const struct ebb_yaml *column = &columns->items[i];
        if (json_object_get(record->json, column->key) == NULL) return column;
    }
    return NULL;
}

/* The record's keys as the data has them, before dataset_columns. */
static enum ebb_status list_columns(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                    struct ebb_str *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)record->json, key, value)
    {
        const char *column = column_of(record, key);
        EBB_TRY(ebb_str_addf(ctx, out, "%s'%s'", out->bytes == 0 ? "" : ", ",
                             column != NULL ? column : key));
    }
    return out->bytes == 0 ? ebb_str_addf(ctx, out, "none") : EBB_OK;
}

static enum ebb_status fail_missing(struct ebb_ctx *ctx, const struct ebb_format_record *first,
                                    const struct ebb_yaml *column)
{
    struct ebb_str keys = {0};
    enum ebb_status status = list_columns(ctx, first, &keys);
    if (status == EBB_OK)
        status = ebb_record_bad(ctx, first,
                                "dataset_columns: there is no '%s' to read as '%s' (it has: %s)",
                                column->text, column->key, keys.data);
    ebb_str_free(ctx, &keys);
    return status;
}

/* What auto asks of the values of keys. */
static const struct asked {
    const char *key;
    bool text, talk, flag;
    const char *wanted;
} asked[] = {
    {"input_ids", false, true, false, "a list of token ids"},
    {"chosen", true, true, false, "a text or a list of messages"},
    {"rejected", true, true, false, "a text or a list of messages"},
    {"prompt", true, true, false, "a text or a list of messages"},
    {"completion", true, true, false, "a text or a list of messages"},
    {"label", false, false, true, "a boolean"},
    {"messages", false, true, false, "a list of messages"},
    {"conversations", false, true, false, "a list of messages"},
    {"instruction", true, false, false, "a text"},
    {"output", true, false, false, "a text"},
};

/* Of the keys in "prompt completion" the first whose value is of another type; NULL where the
 * record lacks one of them. */
static const struct asked *find_wrong(const struct ebb_format_record *record, const char *keys)
{
    const struct asked *wrong = NULL;
    for (size_t bytes; *keys != '\0'; keys += bytes, keys += *keys == ' ') {
        const struct asked *ask = asked;
        bytes = strcspn(keys, " ");
        while (strlen(ask->key) != bytes || memcmp(ask->key, keys, bytes) != 0) ask++;
        const json_t *value = json_object_get(record->json, ask->key);
        if (value == NULL) return NULL;
        bool right = (ask->text && json_is_string(value)) ||
                     (ask->talk && is_talk(record, ask->key)) ||
                     (ask->flag && json_is_boolean(value));
        if (!right && wrong == NULL) wrong = ask;
    }
    return wrong;
}

/* No format fits: a column that is not there, a value of another type, or just other keys. */
static enum ebb_status fail_unknown(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                                    const struct ebb_format_record *first)
{
    const struct ebb_yaml *missing = find_missing(first);
    if (missing != NULL) return fail_missing(ctx, first, missing);
    for (int i = 0; i < ROW_COUNT; i++) {
        const struct asked *wrong = find_wrong(first, rows[i].keys);
        if (wrong != NULL) return ebb_record_bad_field(ctx, first, wrong->key, wrong->wanted);
    }
    struct ebb_str offered = {0}, keys = {0};
    char *where = ebb_records_name(ctx, first->records, first->index);
    enum ebb_status status = where == NULL ? EBB_NO_MEMORY : list_offered(ctx, env, &offered);
    if (status == EBB_OK) status = ebb_json_keys(ctx, first->json, &keys);
    if (status == EBB_OK)
        status =
            EBB_FAIL(ctx, EBB_BAD_FILE,
                     "%s has the keys %s, which are of no known format\noffered: %s\n"
                     "dataset_columns gives keys other names, dataset_text_field names another "
                     "key than '%s' for plain text",
                     where, keys.data, offered.data, text_field(env));
    ebb_mem_free(ctx, where);
    ebb_str_free(ctx, &offered);
    ebb_str_free(ctx, &keys);
    return status;
}

/* ---- what is asked of a format ---- */

/* What options ask that the format has not, or NULL; "record 1 is of format 'text', ...". */
static const char *find_conflict(const struct ebb_format *format, const struct ebb_format_env *env)
{
    bool pairs = env->purpose == EBB_PURPOSE_PREFERENCE;
    if (pairs && !format->preference && !format->unpaired)
        return "which has no preferences, and these are what this method learns from\nwanted: "
               "preference {chosen rejected} or unpaired {completion label}";
    if (env->completion_only == EBB_LOSS_PART_TRUE && !format->has_prompt)
        return format->chat ? "which has no prompt that completion_only_loss could leave out\n"
                              "leave completion_only_loss at auto; assistant_only_loss leaves out "
                              "all that the assistant does not say"
                            : "which has no prompt that completion_only_loss could leave out\n"
                              "leave completion_only_loss at auto";
    if (env->completion_only == EBB_LOSS_PART_FALSE && pairs)
        return "of which only the answers can be trained\nleave completion_only_loss at auto";
    if (env->assistant_only == EBB_LOSS_PART_TRUE && !format->chat)
        return "in which there is no assistant, as assistant_only_loss wants it\nleave "
               "assistant_only_loss at auto";
    if (env->last_turn_only && !format->chat)
        return "in which there are no turns, as training on the last one wants it";
    if (env->last_turn_only &&
        (env->assistant_only == EBB_LOSS_PART_FALSE ||
         (format->has_prompt && env->completion_only == EBB_LOSS_PART_FALSE &&
          env->assistant_only == EBB_LOSS_PART_AUTO)))
        return "of which everything is to be trained and only the assistant's last turn: leave out "
               "one of the two";
    return NULL;
}

static enum ebb_status check_asked(struct ebb_ctx *ctx, const struct ebb_format *format,
                                   const struct ebb_format_env *env,
                                   const struct ebb_format_record *first)
{
    const char *conflict = find_conflict(format, env);
    bool lacks_template = conflict == NULL && format->chat && env->chat == NULL;
    if (conflict == NULL && !lacks_template) return EBB_OK;
    char *where = ebb_records_name(ctx, first->records, first->index);
    if (where == NULL) return EBB_NO_MEMORY;
    enum ebb_status status;
    if (lacks_template)
        status = EBB_FAIL(ctx, EBB_BAD_CONFIG,
                          "%s is of format '%s' (%s), which a chat template renders, and the "
                          "model's directory has none\nchat_template: names a file with one "
                          "(Jinja, or JSON with the key 'chat_template') or a built-in one",
                          where, format->name, format->what);
    else
        status = EBB_FAIL(ctx, EBB_BAD_CONFIG, "%s is of format '%s' (%s), %s", where, format->name,
                          format->what, conflict);
    ebb_mem_free(ctx, where);
    return status;
}

enum ebb_status ebb_format_find(struct ebb_ctx *ctx, const char *name,
                                const struct ebb_format_env *env,
                                const struct ebb_format_record *first,
                                const struct ebb_format **format)
{
    if (name != NULL && (name[0] == '\0' || strcmp(name, "auto") == 0)) name = NULL;
    const struct row *row = find_row(name, env, first);
    if (row == NULL && name != NULL) return fail_name(ctx, name, env);
    if (row == NULL) return fail_unknown(ctx, env, first);
    EBB_TRY(check_asked(ctx, &row->format, env, first));
    *format = &row->format;
    return EBB_OK;
}
