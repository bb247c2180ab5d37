/* dataset_columns and dataset_roles: the names that a data set's author chose, as the names that
 * formats know.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/records_int.h"

/* ---- checks, once ---- */

/* A name that `map` gives a second time, looking from its item `at`, `place` on. */
static const struct ebb_yaml *other_use(const struct ebb_yaml *map, size_t at, size_t place,
                                        const char *text)
{
    for (size_t i = at; i < map->count; i++) {
        const struct ebb_yaml *item = &map->items[i];
        bool list = item->kind == EBB_YAML_LIST;
        size_t count = list ? item->count : 1;
        for (size_t k = i == at ? place : 0; k < count; k++) {
            const char *other = list ? item->items[k].text : item->text;
            if (other != NULL && strcmp(other, text) == 0) return item;
        }
    }
    return NULL;
}

static enum ebb_status check_text(struct ebb_ctx *ctx, const char *option,
                                  const struct ebb_yaml *map, size_t at, size_t place,
                                  const struct ebb_yaml *value)
{
    const char *key = map->items[at].key;
    if (value->kind != EBB_YAML_SCALAR || value->text[0] == '\0')
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "%s: '%s' is no text: the name in the data is wanted",
                        option, key);
    const struct ebb_yaml *other = other_use(map, at, place + 1, value->text);
    if (other == NULL) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG, "%s: '%s' is named twice, for '%s' and for '%s'", option,
                    value->text, key, other->key);
}

static enum ebb_status check_map(struct ebb_ctx *ctx, const char *option,
                                 const struct ebb_yaml *map, bool lists)
{
    if (map == NULL || map->kind == EBB_YAML_NULL) return EBB_OK;
    if (map->kind != EBB_YAML_MAP)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "%s: {name: name in the data, ...} is wanted", option);
    for (size_t i = 0; i < map->count; i++) {
        const struct ebb_yaml *value = &map->items[i];
        if (!lists || value->kind != EBB_YAML_LIST) {
            EBB_TRY(check_text(ctx, option, map, i, 0, value));
            continue;
        }
        for (size_t k = 0; k < value->count; k++)
            EBB_TRY(check_text(ctx, option, map, i, k, &value->items[k]));
    }
    return EBB_OK;
}

enum ebb_status ebb_records_check_names(struct ebb_ctx *ctx,
                                        const struct ebb_records_options *options)
{
    EBB_TRY(check_map(ctx, "dataset_columns", options->columns, false));
    return check_map(ctx, "dataset_roles", options->roles, true);
}

/* ---- keys ---- */

/* A message's own keys; all others are a record's. */
static bool is_message_key(const char *key)
{
    static const char *const keys[] = {"role",
                                       "content",
                                       "from",
                                       "value",
                                       "name",
                                       "tool_calls",
                                       "weight",
                                       "train",
                                       "tool_call_id",
                                       "thinking",
                                       "reasoning_content"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

/* Which of the columns' entries hold at a place. */
enum level { RECORD_KEYS, MESSAGE_KEYS };

static bool holds(const struct ebb_yaml *entry, enum level level)
{
    return is_message_key(entry->key) == (level == MESSAGE_KEYS);
}

/* What an object's key is read as: another name, itself, or NULL where another key has been given
 * its name, even if the object lacks that one: what stands under the name is something else. */
static const char *read_as(const struct ebb_yaml *columns, enum level level, const char *key)
{
    const char *name = key;
    for (size_t i = 0; i < columns->count; i++) {
        const struct ebb_yaml *entry = &columns->items[i];
        if (!holds(entry, level)) continue;
        if (strcmp(entry->text, key) == 0) return entry->key;
        if (strcmp(entry->key, key) == 0) name = NULL;
    }
    return name;
}

static bool has_any(const struct ebb_yaml *columns, enum level level, const json_t *object)
{
    for (size_t i = 0; i < columns->count; i++) {
        const struct ebb_yaml *entry = &columns->items[i];
        if (holds(entry, level) && (json_object_get(object, entry->text) != NULL ||
                                    json_object_get(object, entry->key) != NULL))
            return true;
    }
    return false;
}

/* Into another object, so that keys keep their order: a template may write them all. */
static enum ebb_status rename_keys(struct ebb_ctx *ctx, const struct ebb_yaml *columns,
                                   enum level level, json_t *object, json_t **renamed)
{
    *renamed = NULL;
    if (!has_any(columns, level, object)) return EBB_OK;
    json_t *fresh = json_object();
    const char *key;
    json_t *value;
    bool failed = fresh == NULL;
    if (!failed) {
        json_object_foreach(object, key, value)
        {
            const char *name = read_as(columns, level, key);
            if (name != NULL && json_object_set(fresh, name, value) != 0) failed = true;
        }
    }
    if (!failed) {
        *renamed = fresh;
        return EBB_OK;
    }
    json_decref(fresh);
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading a record");
}

/* ---- roles ---- */

static bool gives(const struct ebb_yaml *entry, const char *text)
{
    if (entry->kind != EBB_YAML_LIST) return strcmp(entry->text, text) == 0;
    for (size_t i = 0; i < entry->count; i++)
        if (strcmp(entry->items[i].text, text) == 0) return true;
    return false;
}

static enum ebb_status rename_role(struct ebb_ctx *ctx, const struct ebb_yaml *roles,
                                   json_t *message, const char *key)
{
    const char *role = json_string_value(json_object_get(message, key));
    for (size_t i = 0; role != NULL && i < roles->count; i++) {
        if (!gives(&roles->items[i], role)) continue;
        if (json_object_set_new(message, key, json_string(roles->items[i].key)) != 0)
            return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading a record");
        return EBB_OK;
    }
    return EBB_OK;
}

/* ---- records ---- */

static bool is_message_list(const json_t *value)
{
    return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

/* Where formats have messages: lists of them, or one (of a pair of preferences). */
static const char *const message_places[] = {"messages",   "conversations", "prompt",
                                             "completion", "chosen",        "rejected"};
enum { MESSAGE_PLACES = sizeof message_places / sizeof message_places[0] };

static bool has_messages(const json_t *record)
{
    for (size_t i = 0; i < MESSAGE_PLACES; i++) {
        const json_t *value = json_object_get(record, message_places[i]);
        if (json_is_object(value) || is_message_list(value)) return true;
    }
    return false;
}

/* *renamed: what stands in place of the message; NULL: it does itself. */
static enum ebb_status rename_message(struct ebb_ctx *ctx,
                                      const struct ebb_records_options *options, json_t *message,
                                      json_t **renamed)
{
    *renamed = NULL;
    if (!json_is_object(message)) return EBB_OK;
    if (options->columns != NULL)
        EBB_TRY(rename_keys(ctx, options->columns, MESSAGE_KEYS, message, renamed));
    if (options->roles == NULL) return EBB_OK;
    if (*renamed != NULL) message = *renamed;
    enum ebb_status status = rename_role(ctx, options->roles, message, "role");
    if (status == EBB_OK) status = rename_role(ctx, options->roles, message, "from");
    if (status == EBB_OK) return EBB_OK;
    json_decref(*renamed);
    *renamed = NULL;
    return status;
}

static enum ebb_status rename_messages(struct ebb_ctx *ctx,
                                       const struct ebb_records_options *options, json_t *record,
                                       const char *place)
{
    json_t *value = json_object_get(record, place), *renamed;
    int failed = 0;
    if (json_is_object(value)) {
        EBB_TRY(rename_message(ctx, options, value, &renamed));
        if (renamed != NULL) failed = json_object_set_new(record, place, renamed);
    } else if (is_message_list(value)) {
        for (size_t i = 0; i < json_array_size(value) && failed == 0; i++) {
            EBB_TRY(rename_message(ctx, options, json_array_get(value, i), &renamed));
            if (renamed != NULL) failed = json_array_set_new(value, i, renamed);
        }
    }
    if (failed == 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading a record");
}

static enum ebb_status rename_record(struct ebb_ctx *ctx, const struct ebb_records_options *options,
                                     enum level level, json_t **json)
{
    json_t *renamed = NULL;
    if (options->columns == NULL) return EBB_OK;
    EBB_TRY(rename_keys(ctx, options->columns, level, *json, &renamed));
    if (renamed == NULL) return EBB_OK;
    json_decref(*json);
    *json = renamed;
    return EBB_OK;
}

enum ebb_status ebb_records_rename(struct ebb_ctx *ctx, const struct ebb_records_options *options,
                                   json_t **json)
{
    if (options->columns == NULL && options->roles == NULL) return EBB_OK;
    EBB_TRY(rename_record(ctx, options, RECORD_KEYS, json));
    /* Without messages "content" can only mean the record's own. */
    if (!has_messages(*json)) return rename_record(ctx, options, MESSAGE_KEYS, json);
    for (size_t i = 0; i < MESSAGE_PLACES; i++)
        EBB_TRY(rename_messages(ctx, options, *json, message_places[i]));
    return EBB_OK;
}
