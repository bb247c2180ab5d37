/* Memory, strings, lists, dicts and undefined values of the Jinja interpreter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <stdio.h>
#include <string.h>

/* ---- memory and errors ---- */

struct ebb_jin_block {
    struct ebb_jin_block *next;
    size_t used, room;
    /* the room follows */
};

enum { BLOCK_ROOM = 1 << 15, BLOCK_HEAD = 64 };

static enum ebb_status fail_text(struct ebb_jin_base *base, enum ebb_status status,
                                 const char *format, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    /* A message of several lines would read as a message and its hints. */
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n' || *c == '\r') *c = ' ';
    return EBB_FAIL(base->ctx, status, "%s%s%s:%d: %s", base->subject != NULL ? base->subject : "",
                    base->subject != NULL ? ": " : "", base->name, base->line, text);
}

enum ebb_status ebb_jin_fail(struct ebb_jin_base *base, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enum ebb_status status = fail_text(base, EBB_BAD_FILE, format, args);
    va_end(args);
    return status;
}

enum ebb_status ebb_jin_refuse(struct ebb_jin_base *base, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enum ebb_status status = fail_text(base, EBB_UNSUPPORTED, format, args);
    va_end(args);
    return status;
}

static char *block_data(struct ebb_jin_block *block)
{
    return (char *)block + BLOCK_HEAD;
}

static struct ebb_jin_block *add_block(struct ebb_jin_base *base, size_t bytes)
{
    size_t room = BLOCK_ROOM;
    if (base->blocks != NULL && base->blocks->room >= room && base->blocks->room < (1u << 20))
        room = base->blocks->room * 2;
    if (room < bytes) room = bytes;
    if ((int64_t)room > base->bytes_limit - base->bytes) room = bytes;
    if ((int64_t)room > base->bytes_limit - base->bytes) {
        base->failure = ebb_jin_fail(base, "the limit of %lld bytes of memory is reached",
                                     (long long)base->bytes_limit);
        return NULL;
    }
    struct ebb_jin_block *block =
        (struct ebb_jin_block *)ebb_mem_alloc(base->ctx, BLOCK_HEAD + room);
    if (block == NULL) {
        base->failure = EBB_NO_MEMORY;
        return NULL;
    }
    block->room = room;
    block->next = base->blocks;
    base->blocks = block;
    base->bytes += (int64_t)room;
    return block;
}

void *ebb_jin_alloc(struct ebb_jin_base *base, size_t bytes)
{
    size_t wanted = (bytes + 15) & ~(size_t)15;
    struct ebb_jin_block *block = base->blocks;
    if (wanted < bytes || (int64_t)wanted > base->bytes_limit || (int64_t)wanted < 0) {
        base->failure = ebb_jin_fail(base, "the limit of %lld bytes of memory is reached",
                                     (long long)base->bytes_limit);
        return NULL;
    }
    if (block == NULL || block->room - block->used < wanted) {
        block = add_block(base, wanted);
        if (block == NULL) return NULL;
    }
    char *data = block_data(block) + block->used;
    block->used += wanted;
    return data;
}

void *ebb_jin_grow(struct ebb_jin_base *base, void *old, size_t old_bytes, size_t new_bytes)
{
    struct ebb_jin_block *block = base->blocks;
    size_t had = (old_bytes + 15) & ~(size_t)15, wanted = (new_bytes + 15) & ~(size_t)15;
    if (old != NULL && block != NULL && block->used >= had &&
        (char *)old == block_data(block) + block->used - had && wanted >= new_bytes &&
        wanted - had <= block->room - block->used) {
        block->used += wanted - had;
        return old;
    }
    char *data = (char *)ebb_jin_alloc(base, new_bytes);
    if (data != NULL && old_bytes > 0) memcpy(data, old, old_bytes);
    return data;
}

void ebb_jin_release(struct ebb_jin_base *base)
{
    struct ebb_jin_block *block = base->blocks;
    while (block != NULL) {
        struct ebb_jin_block *next = block->next;
        ebb_mem_free(base->ctx, block);
        block = next;
    }
    base->blocks = NULL;
}

enum ebb_status ebb_jin_step(struct ebb_jin_run *run, size_t bytes)
{
    run->steps += 1 + (int64_t)(bytes / 256);
    if (run->steps <= run->limits.steps) return EBB_OK;
    return ebb_jin_fail(&run->base, "the limit of %lld steps is reached",
                        (long long)run->limits.steps);
}

enum ebb_status ebb_jin_enter(struct ebb_jin_run *run)
{
    if (run->depth >= run->limits.depth)
        return ebb_jin_fail(&run->base, "the limit of %lld nested levels is reached",
                            (long long)run->limits.depth);
    run->depth++;
    return EBB_OK;
}

/* ---- strings ---- */

enum ebb_status ebb_jin_str_borrow(struct ebb_jin_base *base, const char *data, size_t bytes,
                                   struct ebb_jin_value *out)
{
    struct ebb_jin_str *str = (struct ebb_jin_str *)ebb_jin_alloc(base, sizeof *str);
    if (str == NULL) return ebb_jin_failed(base);
    str->data = bytes > 0 ? data : "";
    str->bytes = bytes;
    str->points = -1;
    out->type = EBB_JIN_STR;
    out->flag = 0;
    out->as.str = str;
    return EBB_OK;
}

enum ebb_status ebb_jin_str_copy(struct ebb_jin_base *base, const char *data, size_t bytes,
                                 struct ebb_jin_value *out)
{
    char *copy = (char *)ebb_jin_alloc(base, bytes + 1);
    if (copy == NULL) return ebb_jin_failed(base);
    if (bytes > 0) memcpy(copy, data, bytes);
    copy[bytes] = '\0';
    return ebb_jin_str_borrow(base, copy, bytes, out);
}

enum ebb_status ebb_jin_str_of(struct ebb_jin_base *base, const struct ebb_jin_buf *buf,
                               struct ebb_jin_value *out)
{
    return ebb_jin_str_borrow(base, buf->data, buf->bytes, out);
}

bool ebb_jin_str_is(struct ebb_jin_value value, const char *text)
{
    size_t bytes = strlen(text);
    return value.type == EBB_JIN_STR && value.as.str->bytes == bytes &&
           memcmp(value.as.str->data, text, bytes) == 0;
}

int64_t ebb_jin_str_points(struct ebb_jin_str *str)
{
    if (str->points >= 0) return str->points;
    int64_t points = 0;
    for (size_t i = 0; i < str->bytes; i++) points += ((unsigned char)str->data[i] & 0xc0) != 0x80;
    str->points = points;
    return points;
}

size_t ebb_jin_str_offset(struct ebb_jin_str *str, int64_t point)
{
    if (ebb_jin_str_points(str) == (int64_t)str->bytes) return (size_t)point;
    size_t at = 0;
    for (int64_t seen = 0; at < str->bytes; at++)
        if (((unsigned char)str->data[at] & 0xc0) != 0x80 && seen++ == point) break;
    return at;
}

const char *ebb_jin_str_text(struct ebb_jin_base *base, struct ebb_jin_value value)
{
    struct ebb_jin_value copy;
    if (ebb_jin_str_copy(base, value.as.str->data, value.as.str->bytes, &copy) != EBB_OK)
        return NULL;
    return copy.as.str->data;
}

enum ebb_status ebb_jin_buf_add(struct ebb_jin_run *run, struct ebb_jin_buf *buf, const char *data,
                                size_t bytes)
{
    if (bytes > (size_t)run->limits.output_bytes ||
        buf->bytes + bytes > (size_t)run->limits.output_bytes)
        return ebb_jin_fail(&run->base, "the limit of %lld bytes of output is reached",
                            (long long)run->limits.output_bytes);
    if (buf->room - buf->bytes < bytes) {
        size_t room = buf->room * 2 > buf->bytes + bytes ? buf->room * 2 : buf->bytes + bytes;
        if (room < 64) room = 64;
        char *grown = (char *)ebb_jin_grow(&run->base, buf->data, buf->room, room);
        if (grown == NULL) return ebb_jin_failed(&run->base);
        buf->data = grown;
        buf->room = room;
    }
    if (bytes > 0) memcpy(buf->data + buf->bytes, data, bytes);
    buf->bytes += bytes;
    return bytes >= 256 ? ebb_jin_step(run, bytes) : EBB_OK;
}

enum ebb_status ebb_jin_buf_text(struct ebb_jin_run *run, struct ebb_jin_buf *buf, const char *text)
{
    return ebb_jin_buf_add(run, buf, text, strlen(text));
}

/* ---- lists ---- */

enum ebb_status ebb_jin_list_new(struct ebb_jin_run *run, enum ebb_jin_type type, int64_t count,
                                 struct ebb_jin_value *out, struct ebb_jin_value **items)
{
    EBB_TRY(ebb_jin_step(run, (size_t)count * sizeof **items));
    struct ebb_jin_list *list = (struct ebb_jin_list *)ebb_jin_alloc(&run->base, sizeof *list);
    if (list == NULL) return ebb_jin_failed(&run->base);
    list->count = count;
    list->items = (struct ebb_jin_value *)ebb_jin_alloc(&run->base, (size_t)count * sizeof **items);
    if (list->items == NULL) return ebb_jin_failed(&run->base);
    out->type = type;
    out->flag = 0;
    out->as.list = list;
    if (items != NULL) *items = list->items;
    return EBB_OK;
}

enum ebb_status ebb_jin_growing_add(struct ebb_jin_run *run, struct ebb_jin_growing *list,
                                    struct ebb_jin_value value)
{
    EBB_TRY(ebb_jin_step(run, 0));
    if (list->count == list->room) {
        int64_t room = list->room > 0 ? list->room * 2 : 8;
        struct ebb_jin_value *grown =
            (struct ebb_jin_value *)ebb_jin_grow(&run->base, list->items,
                                                 (size_t)list->room * sizeof value,
                                                 (size_t)room * sizeof value);
        if (grown == NULL) return ebb_jin_failed(&run->base);
        list->items = grown;
        list->room = room;
    }
    list->items[list->count++] = value;
    return EBB_OK;
}

enum ebb_status ebb_jin_growing_end(struct ebb_jin_run *run, const struct ebb_jin_growing *list,
                                    struct ebb_jin_value *out)
{
    struct ebb_jin_list *made = (struct ebb_jin_list *)ebb_jin_alloc(&run->base, sizeof *made);
    if (made == NULL) return ebb_jin_failed(&run->base);
    made->items = list->items;
    made->count = list->count;
    out->type = EBB_JIN_LIST;
    out->flag = 0;
    out->as.list = made;
    return EBB_OK;
}

/* ---- dicts ---- */

enum { SMALL_DICT = 8 };

enum ebb_status ebb_jin_dict_new(struct ebb_jin_run *run, struct ebb_jin_value *out)
{
    struct ebb_jin_dict *dict = (struct ebb_jin_dict *)ebb_jin_alloc(&run->base, sizeof *dict);
    if (dict == NULL) return ebb_jin_failed(&run->base);
    memset(dict, 0, sizeof *dict);
    out->type = EBB_JIN_DICT;
    out->flag = 0;
    out->as.dict = dict;
    return EBB_OK;
}

/* The entry's place, or -1. */
static enum ebb_status find_entry(struct ebb_jin_run *run, const struct ebb_jin_dict *dict,
                                  struct ebb_jin_value key, uint64_t hash, int64_t *place)
{
    bool equal = false;
    *place = -1;
    if (dict->slots == NULL) {
        for (int64_t i = 0; i < dict->count; i++) {
            if (dict->items[i].hash != hash) continue;
            EBB_TRY(ebb_jin_equal(run, dict->items[i].key, key, &equal));
            if (!equal) continue;
            *place = i;
            break;
        }
        return EBB_OK;
    }
    uint64_t mask = (uint64_t)dict->slot_count - 1;
    for (uint64_t slot = hash & mask; dict->slots[slot] != 0; slot = (slot + 1) & mask) {
        int64_t i = dict->slots[slot] - 1;
        EBB_TRY(ebb_jin_step(run, 0));
        if (dict->items[i].hash != hash) continue;
        EBB_TRY(ebb_jin_equal(run, dict->items[i].key, key, &equal));
        if (!equal) continue;
        *place = i;
        break;
    }
    return EBB_OK;
}

static void put_slot(struct ebb_jin_dict *dict, int64_t place)
{
    uint64_t mask = (uint64_t)dict->slot_count - 1, slot = dict->items[place].hash & mask;
    while (dict->slots[slot] != 0) slot = (slot + 1) & mask;
    dict->slots[slot] = (int32_t)place + 1;
}

static enum ebb_status grow_dict(struct ebb_jin_run *run, struct ebb_jin_dict *dict)
{
    int64_t room = dict->room > 0 ? dict->room * 2 : 4;
    struct ebb_jin_entry *items =
        (struct ebb_jin_entry *)ebb_jin_grow(&run->base, dict->items,
                                             (size_t)dict->room * sizeof *items,
                                             (size_t)room * sizeof *items);
    if (items == NULL) return ebb_jin_failed(&run->base);
    dict->items = items;
    dict->room = room;
    if (room <= SMALL_DICT) return EBB_OK;
    size_t bytes = (size_t)room * 2 * sizeof *dict->slots;
    dict->slots = (int32_t *)ebb_jin_alloc(&run->base, bytes);
    if (dict->slots == NULL) return ebb_jin_failed(&run->base);
    memset(dict->slots, 0, bytes);
    dict->slot_count = room * 2;
    for (int64_t i = 0; i < dict->count; i++) put_slot(dict, i);
    return ebb_jin_step(run, bytes);
}

enum ebb_status ebb_jin_dict_set(struct ebb_jin_run *run, struct ebb_jin_dict *dict,
                                 struct ebb_jin_value key, struct ebb_jin_value value)
{
    uint64_t hash;
    int64_t place;
    EBB_TRY(ebb_jin_step(run, 0));
    EBB_TRY(ebb_jin_hash(run, key, false, NULL, &hash));
    EBB_TRY(find_entry(run, dict, key, hash, &place));
    if (place >= 0) {
        dict->items[place].value = value;
        return EBB_OK;
    }
    if (dict->count == dict->room) EBB_TRY(grow_dict(run, dict));
    dict->items[dict->count].key = key;
    dict->items[dict->count].value = value;
    dict->items[dict->count].hash = hash;
    dict->count++;
    if (dict->slots != NULL) put_slot(dict, dict->count - 1);
    return EBB_OK;
}

enum ebb_status ebb_jin_dict_get(struct ebb_jin_run *run, const struct ebb_jin_dict *dict,
                                 struct ebb_jin_value key, bool quiet,
                                 const struct ebb_jin_value **found)
{
    uint64_t hash;
    int64_t place;
    bool possible;
    *found = NULL;
    EBB_TRY(ebb_jin_hash(run, key, quiet, &possible, &hash));
    if (!possible) return EBB_OK;
    EBB_TRY(find_entry(run, dict, key, hash, &place));
    if (place >= 0) *found = &dict->items[place].value;
    return EBB_OK;
}

const struct ebb_jin_value *ebb_jin_dict_text(struct ebb_jin_run *run,
                                              const struct ebb_jin_dict *dict, const char *key)
{
    (void)run;
    for (int64_t i = 0; i < dict->count; i++)
        if (ebb_jin_str_is(dict->items[i].key, key)) return &dict->items[i].value;
    return NULL;
}

/* ---- undefined ---- */

enum ebb_status ebb_jin_undefined(struct ebb_jin_run *run, const char *object,
                                  struct ebb_jin_value name, struct ebb_jin_value *out)
{
    struct ebb_jin_undefined *made =
        (struct ebb_jin_undefined *)ebb_jin_alloc(&run->base, sizeof *made);
    if (made == NULL) return ebb_jin_failed(&run->base);
    made->hint = NULL;
    made->object = object;
    made->name = name;
    out->type = EBB_JIN_UNDEFINED;
    out->flag = 0;
    out->as.undefined = made;
    return EBB_OK;
}

enum ebb_status ebb_jin_undefined_hint(struct ebb_jin_run *run, struct ebb_jin_value *out,
                                       const char *format, ...)
{
    char text[256];
    struct ebb_jin_value hint, name = {EBB_JIN_MISSING, 0, {false}};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    EBB_TRY(ebb_jin_str_copy(&run->base, text, strlen(text), &hint));
    EBB_TRY(ebb_jin_undefined(run, NULL, name, out));
    ((struct ebb_jin_undefined *)(uintptr_t)out->as.undefined)->hint = hint.as.str->data;
    return EBB_OK;
}

enum ebb_status ebb_jin_undefined_fail(struct ebb_jin_run *run, struct ebb_jin_value value)
{
    const struct ebb_jin_undefined *undefined = value.as.undefined;
    if (undefined->hint != NULL) return ebb_jin_fail(&run->base, "%s", undefined->hint);
    struct ebb_jin_buf name = {0};
    EBB_TRY(ebb_jin_repr(run, undefined->name, &name));
    int bytes = name.bytes > 200 ? 200 : (int)name.bytes;
    if (undefined->object == NULL)
        return ebb_jin_fail(&run->base, "%.*s is undefined", bytes, name.data);
    bool none = strcmp(undefined->object, "NoneType") == 0;
    const char *object = none ? "None" : undefined->object, *kind = none ? "" : " object";
    if (undefined->name.type != EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "%s%s has no element %.*s", object, kind, bytes, name.data);
    return ebb_jin_fail(&run->base, "'%s%s' has no attribute %.*s", object, kind, bytes, name.data);
}

/* ---- from JSON ---- */

static enum ebb_status from_array(struct ebb_jin_run *run, const json_t *json,
                                  struct ebb_jin_value *out)
{
    struct ebb_jin_value *items;
    size_t count = json_array_size(json);
    EBB_TRY(ebb_jin_list_new(run, EBB_JIN_LIST, (int64_t)count, out, &items));
    for (size_t i = 0; i < count; i++)
        EBB_TRY(ebb_jin_from_json(run, json_array_get(json, i), &items[i]));
    return EBB_OK;
}

static enum ebb_status from_object(struct ebb_jin_run *run, const json_t *json,
                                   struct ebb_jin_value *out)
{
    EBB_TRY(ebb_jin_dict_new(run, out));
    /* jansson's iterators take a plain pointer, but change nothing. */
    json_t *object = (json_t *)(uintptr_t)json;
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        struct ebb_jin_value key, value;
        const char *name = json_object_iter_key(at);
        EBB_TRY(ebb_jin_str_borrow(&run->base, name, strlen(name), &key));
        EBB_TRY(ebb_jin_from_json(run, json_object_iter_value(at), &value));
        EBB_TRY(ebb_jin_dict_set(run, out->as.dict, key, value));
    }
    return EBB_OK;
}

enum ebb_status ebb_jin_from_json(struct ebb_jin_run *run, const json_t *json,
                                  struct ebb_jin_value *out)
{
    enum ebb_status status = EBB_OK;
    EBB_TRY(ebb_jin_step(run, 0));
    switch (json_typeof(json)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        EBB_TRY(ebb_jin_enter(run));
        status = json_is_object(json) ? from_object(run, json, out) : from_array(run, json, out);
        run->depth--;
        return status;
    case JSON_STRING:
        return ebb_jin_str_borrow(&run->base, json_string_value(json), json_string_length(json),
                                  out);
    case JSON_INTEGER:
        *out = ebb_jin_int(json_integer_value(json));
        return EBB_OK;
    case JSON_REAL:
        *out = ebb_jin_float(json_real_value(json));
        return EBB_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = ebb_jin_bool(json_is_true(json));
        return EBB_OK;
    case JSON_NULL:
        *out = ebb_jin_none();
        return EBB_OK;
    }
    return EBB_OK;
}

const char *ebb_jin_type_name(struct ebb_jin_value value)
{
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    switch (value.type) {
    case EBB_JIN_MISSING:
        return "missing";
    case EBB_JIN_UNDEFINED:
        return "Undefined";
    case EBB_JIN_NONE:
        return "NoneType";
    case EBB_JIN_BOOL:
        return "bool";
    case EBB_JIN_INT:
        return "int";
    case EBB_JIN_FLOAT:
        return "float";
    case EBB_JIN_STR:
        return value.flag != 0 ? "Markup" : "str";
    case EBB_JIN_LIST:
        return "list";
    case EBB_JIN_TUPLE:
        return "tuple";
    case EBB_JIN_DICT:
        return "dict";
    case EBB_JIN_VIEW:
        return views[value.flag];
    case EBB_JIN_RANGE:
        return "range";
    case EBB_JIN_ITER:
        return "generator";
    case EBB_JIN_NAMESPACE:
        return "Namespace";
    case EBB_JIN_MACRO:
        return "Macro";
    case EBB_JIN_FUNC:
        return value.as.func->self.type == EBB_JIN_MISSING ? "function"
                                                           : "builtin_function_or_method";
    case EBB_JIN_LOOP:
        return "LoopContext";
    case EBB_JIN_CYCLER:
        return "Cycler";
    case EBB_JIN_JOINER:
        return "Joiner";
    }
    return "object";
}
