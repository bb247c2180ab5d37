/* The table of formats.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/format.h"

#include <string.h>

/* ---- parts ---- */

enum ebb_status ebb_parts_end(struct ebb_ctx *ctx, struct ebb_parts *parts, bool learned)
{
    if (parts->count == parts->room) {
        int64_t room = parts->room * 2 + 4;
        struct ebb_part *grown = ebb_mem_realloc(ctx, parts->items, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        parts->items = grown;
        parts->room = room;
    }
    parts->items[parts->count++] = (struct ebb_part){parts->text.bytes, learned};
    return EBB_OK;
}

void ebb_parts_free(struct ebb_ctx *ctx, struct ebb_parts *parts)
{
    ebb_str_free(ctx, &parts->text);
    ebb_mem_free(ctx, parts->items);
    *parts = (struct ebb_parts){0};
}

/* ---- fields ---- */

/* "a, b, c": the keys that a record has. */
static enum ebb_status list_keys(struct ebb_ctx *ctx, const json_t *json, struct ebb_str *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json, key, value)
        EBB_TRY(ebb_str_addf(ctx, out, "%s'%s'", out->bytes == 0 ? "" : ", ", key));
    return out->bytes == 0 ? ebb_str_addf(ctx, out, "none") : EBB_OK;
}

static const char *type_name(const json_t *value)
{
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

static enum ebb_status bad_field(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                 const char *key, const json_t *value)
{
    char *name = ebb_records_name(ctx, record->records, record->index);
    struct ebb_str keys = {0};
    enum ebb_status status = name == NULL ? EBB_NO_MEMORY : list_keys(ctx, record->json, &keys);
    if (status == EBB_OK && value == NULL)
        status =
            EBB_FAIL(ctx, EBB_BAD_FILE, "%s has no key '%s' (it has: %s)", name, key, keys.data);
    else if (status == EBB_OK)
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is %s, a string is wanted", name, key,
                          type_name(value));
    ebb_str_free(ctx, &keys);
    ebb_mem_free(ctx, name);
    return status;
}

/* The record's string; with `optional`, a missing one and null are "". */
static enum ebb_status field(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                             const char *key, bool optional, struct ebb_span *text)
{
    const json_t *value = json_object_get(record->json, key);
    *text = (struct ebb_span){"", 0};
    if (optional && (value == NULL || json_is_null(value))) return EBB_OK;
    if (!json_is_string(value)) return bad_field(ctx, record, key, value);
    *text = (struct ebb_span){json_string_value(value), json_string_length(value)};
    return EBB_OK;
}

static enum ebb_status add_text(struct ebb_ctx *ctx, struct ebb_parts *parts, const char *text)
{
    return ebb_str_add(ctx, &parts->text, text, strlen(text));
}

static enum ebb_status add_field(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                 const char *key, struct ebb_parts *parts)
{
    struct ebb_span text;
    EBB_TRY(field(ctx, record, key, false, &text));
    return ebb_str_add(ctx, &parts->text, text.data, text.bytes);
}

/* ---- formats ---- */

static enum ebb_status render_text(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                   struct ebb_parts *parts)
{
    EBB_TRY(add_field(ctx, record, record->text_field, parts));
    return ebb_parts_end(ctx, parts, true);
}

static enum ebb_status render_prompt_completion(struct ebb_ctx *ctx,
                                                const struct ebb_format_record *record,
                                                struct ebb_parts *parts)
{
    EBB_TRY(add_field(ctx, record, "prompt", parts));
    EBB_TRY(ebb_parts_end(ctx, parts, false));
    EBB_TRY(add_field(ctx, record, "completion", parts));
    return ebb_parts_end(ctx, parts, true);
}

/* The prompt of Stanford Alpaca (Taori et al. 2023), with and without an input; the answer
 * follows "### Response:" with nothing between. */
static enum ebb_status render_alpaca(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                                     struct ebb_parts *parts)
{
    struct ebb_span input;
    EBB_TRY(field(ctx, record, "input", true, &input));
    EBB_TRY(add_text(
        ctx, parts,
        input.bytes > 0
            ? "Below is an instruction that describes a task, paired with an input that "
              "provides further context. Write a response that appropriately completes the "
              "request.\n\n### Instruction:\n"
            : "Below is an instruction that describes a task. Write a response that "
              "appropriately completes the request.\n\n### Instruction:\n"));
    EBB_TRY(add_field(ctx, record, "instruction", parts));
    if (input.bytes > 0) {
        EBB_TRY(add_text(ctx, parts, "\n\n### Input:\n"));
        EBB_TRY(ebb_str_add(ctx, &parts->text, input.data, input.bytes));
    }
    EBB_TRY(add_text(ctx, parts, "\n\n### Response:"));
    EBB_TRY(ebb_parts_end(ctx, parts, false));
    EBB_TRY(add_field(ctx, record, "output", parts));
    return ebb_parts_end(ctx, parts, true);
}

/* In the order in which they are recognised. */
static const struct ebb_format formats[] = {
    {"messages", "messages", true, "chat messages", NULL},
    {"sharegpt", "conversations", true, "chat conversations", NULL},
    {"preference", "chosen rejected", true, "preference pairs", NULL},
    {"prompt_completion", "prompt completion", true, NULL, render_prompt_completion},
    {"alpaca", "instruction output", true, NULL, render_alpaca},
    {"text", "", false, NULL, render_text},
};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

/* ---- finding ---- */

static bool has_keys(const struct ebb_format *format, const struct ebb_format_record *record)
{
    char key[64];
    const char *at = format->keys[0] == '\0' ? record->text_field : format->keys;
    if (format->keys[0] == '\0') return json_object_get(record->json, at) != NULL;
    while (*at != '\0') {
        size_t bytes = strcspn(at, " ");
        memcpy(key, at, bytes);
        key[bytes] = '\0';
        if (json_object_get(record->json, key) == NULL) return false;
        at += bytes + (at[bytes] == ' ');
    }
    return true;
}

/* "text {text}, prompt_completion {prompt completion}" */
static enum ebb_status list_offered(struct ebb_ctx *ctx, const char *text_field,
                                    struct ebb_str *out)
{
    for (int i = FORMAT_COUNT - 1; i >= 0; i--) {
        if (formats[i].refused != NULL) continue;
        EBB_TRY(ebb_str_addf(ctx, out, "%s%s {%s}", out->bytes == 0 ? "" : ", ", formats[i].name,
                             formats[i].keys[0] == '\0' ? text_field : formats[i].keys));
    }
    return EBB_OK;
}

static enum ebb_status fail_unknown(struct ebb_ctx *ctx, const char *name,
                                    const struct ebb_format_record *first,
                                    const struct ebb_format *refused)
{
    struct ebb_str offered = {0}, keys = {0};
    char *where = ebb_records_name(ctx, first->records, first->index);
    enum ebb_status status =
        where == NULL ? EBB_NO_MEMORY : list_offered(ctx, first->text_field, &offered);
    if (status == EBB_OK) status = list_keys(ctx, first->json, &keys);
    if (status == EBB_OK && refused != NULL)
        status = EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: format '%s' (%s) is not offered\noffered: %s",
                          where, refused->name, refused->refused, offered.data);
    else if (status == EBB_OK && name != NULL)
        status = EBB_FAIL(ctx, EBB_BAD_CONFIG, "dataset_format '%s' is unknown\noffered: auto, %s",
                          name, offered.data);
    else if (status == EBB_OK)
        status = EBB_FAIL(ctx, EBB_BAD_FILE,
                          "%s has the keys %s, which are of no known format\noffered: %s; "
                          "dataset_text_field names another key "
                          "than '%s' for plain text",
                          where, keys.data, offered.data, first->text_field);
    ebb_mem_free(ctx, where);
    ebb_str_free(ctx, &offered);
    ebb_str_free(ctx, &keys);
    return status;
}

enum ebb_status ebb_format_find(struct ebb_ctx *ctx, const char *name,
                                const struct ebb_format_record *first,
                                const struct ebb_format **format)
{
    if (name != NULL && (name[0] == '\0' || strcmp(name, "auto") == 0)) name = NULL;
    const struct ebb_format *found = NULL;
    for (int i = 0; i < FORMAT_COUNT && found == NULL; i++)
        if (name != NULL ? strcmp(name, formats[i].name) == 0 : has_keys(&formats[i], first))
            found = &formats[i];
    if (found == NULL || found->refused != NULL) return fail_unknown(ctx, name, first, found);
    *format = found;
    return EBB_OK;
}
