/* Attributes, items and calls in Jinja: what stands behind a dot, in brackets, before parentheses;
 * methods of dicts, lists and numbers; how arguments meet parameters.
 *
 * Both forms of access look at attributes and at items, a dot at attributes first: the keys of a
 * dict named "items" or "get" are reached by brackets only. What would change a list or a dict
 * (append, update, ...) is refused as in Jinja's sandbox.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <math.h>
#include <string.h>

const struct ebb_jin_entry_fn *ebb_jin_find(const struct ebb_jin_entry_fn *table,
                                            struct ebb_jin_value name)
{
    if (name.type != EBB_JIN_STR) return NULL;
    for (; table->name != NULL; table++)
        if (ebb_jin_str_is(name, table->name)) return table;
    return NULL;
}

/* ---- arguments ---- */

static const char *word_end(const char *word)
{
    return word + strcspn(word, " ");
}

static enum ebb_status bind_named(struct ebb_jin_run *run, const char *what, const char *names,
                                  const struct ebb_jin_named *named, struct ebb_jin_value *values)
{
    const struct ebb_jin_str *given = named->name.as.str;
    int at = 0;
    for (const char *word = names; *word != '\0'; at++) {
        const char *end = word_end(word);
        if (given->bytes == (size_t)(end - word) && memcmp(given->data, word, given->bytes) == 0) {
            if (values[at].type != EBB_JIN_MISSING)
                return ebb_jin_fail(&run->base, "%s got multiple values for argument '%.*s'", what,
                                    (int)given->bytes, given->data);
            values[at] = named->value;
            return EBB_OK;
        }
        word = *end == ' ' ? end + 1 : end;
    }
    return ebb_jin_fail(&run->base, "%s got an unexpected keyword argument '%.*s'", what,
                        given->bytes > 60 ? 60 : (int)given->bytes, given->data);
}

enum ebb_status ebb_jin_bind(struct ebb_jin_run *run, const char *what, const char *names,
                             int needed, const struct ebb_jin_args *args,
                             struct ebb_jin_value *values)
{
    int count = 0;
    for (const char *word = names; *word != '\0'; count++) {
        word = word_end(word);
        word += *word == ' ';
        memset(&values[count], 0, sizeof values[count]);
    }
    if (args->count > count)
        return ebb_jin_fail(&run->base, "%s takes at most %d arguments (%lld given)", what, count,
                            (long long)args->count);
    for (int64_t i = 0; i < args->count; i++) values[i] = args->items[i];
    for (int64_t i = 0; i < args->named_count; i++)
        EBB_TRY(bind_named(run, what, names, &args->named[i], values));
    const char *word = names;
    for (int i = 0; i < needed; i++, word = word_end(word) + 1)
        if (values[i].type == EBB_JIN_MISSING)
            return ebb_jin_fail(&run->base, "%s misses its argument '%.*s'", what,
                                (int)(word_end(word) - word), word);
    return EBB_OK;
}

enum ebb_status ebb_jin_want_int(struct ebb_jin_run *run, const char *what,
                                 struct ebb_jin_value value, int64_t *integer)
{
    if (value.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, value);
    if (!ebb_jin_is_int(value))
        return ebb_jin_fail(&run->base, "%s: an integer is wanted, not %s", what,
                            ebb_jin_type_name(value));
    *integer = ebb_jin_integer(value);
    return EBB_OK;
}

/* ---- methods of dicts and lists ---- */

#define METHOD_ARGS                                                                                \
    struct ebb_jin_run *run, struct ebb_jin_value self, const struct ebb_jin_args *args,           \
        struct ebb_jin_value *out

static enum ebb_status view(struct ebb_jin_run *run, struct ebb_jin_value self,
                            const struct ebb_jin_args *args, enum ebb_jin_view which,
                            struct ebb_jin_value *out)
{
    EBB_TRY(ebb_jin_bind(run, "this method", "", 0, args, NULL));
    *out = self;
    out->type = EBB_JIN_VIEW;
    out->flag = (int)which;
    return EBB_OK;
}

static enum ebb_status dict_keys(METHOD_ARGS)
{
    return view(run, self, args, EBB_JIN_KEYS, out);
}

static enum ebb_status dict_values(METHOD_ARGS)
{
    return view(run, self, args, EBB_JIN_VALUES, out);
}

static enum ebb_status dict_items(METHOD_ARGS)
{
    return view(run, self, args, EBB_JIN_ITEMS, out);
}

static enum ebb_status dict_get(METHOD_ARGS)
{
    struct ebb_jin_value values[2];
    const struct ebb_jin_value *found;
    if (args->named_count > 0) return ebb_jin_fail(&run->base, "get() takes no keyword arguments");
    EBB_TRY(ebb_jin_bind(run, "get()", "key default", 1, args, values));
    EBB_TRY(ebb_jin_dict_get(run, self.as.dict, values[0], false, &found));
    *out = found != NULL ? *found : values[1].type == EBB_JIN_MISSING ? ebb_jin_none() : values[1];
    return EBB_OK;
}

/* Nothing changes a dict or a list, so it is its own copy. */
static enum ebb_status copy(METHOD_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "copy()", "", 0, args, NULL));
    *out = self;
    return EBB_OK;
}

static enum ebb_status list_count(METHOD_ARGS)
{
    struct ebb_jin_value wanted;
    int64_t count = 0;
    EBB_TRY(ebb_jin_bind(run, "count()", "value", 1, args, &wanted));
    for (int64_t i = 0; i < self.as.list->count; i++) {
        bool equal;
        EBB_TRY(ebb_jin_equal(run, self.as.list->items[i], wanted, &equal));
        count += equal;
    }
    *out = ebb_jin_int(count);
    return EBB_OK;
}

static enum ebb_status list_index(METHOD_ARGS)
{
    struct ebb_jin_value values[3];
    int64_t from = 0, to = INT64_MAX, count = self.as.list->count;
    EBB_TRY(ebb_jin_bind(run, "index()", "value start stop", 1, args, values));
    if (values[1].type != EBB_JIN_MISSING)
        EBB_TRY(ebb_jin_want_int(run, "index()", values[1], &from));
    if (values[2].type != EBB_JIN_MISSING)
        EBB_TRY(ebb_jin_want_int(run, "index()", values[2], &to));
    if (from < 0) from = from < -count ? 0 : from + count;
    if (to < 0) to = to < -count ? 0 : to + count;
    for (int64_t i = from; i < count && i < to; i++) {
        bool equal;
        EBB_TRY(ebb_jin_equal(run, self.as.list->items[i], values[0], &equal));
        if (!equal) continue;
        *out = ebb_jin_int(i);
        return EBB_OK;
    }
    return ebb_jin_fail(&run->base, "the value is not in list");
}

static enum ebb_status float_is_integer(METHOD_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "is_integer()", "", 0, args, NULL));
    double number = self.as.number;
    *out = ebb_jin_bool(isfinite(number) && floor(number) == number);
    return EBB_OK;
}

static const struct ebb_jin_entry_fn dict_methods[] = {
    {"keys", dict_keys}, {"values", dict_values}, {"items", dict_items}, {"get", dict_get},
    {"copy", copy},      {"fromkeys", NULL},      {NULL, NULL},
};
static const struct ebb_jin_entry_fn list_methods[] = {
    {"count", list_count},
    {"index", list_index},
    {"copy", copy},
    {NULL, NULL},
};
static const struct ebb_jin_entry_fn tuple_methods[] = {
    {"count", list_count},
    {"index", list_index},
    {NULL, NULL},
};
static const struct ebb_jin_entry_fn range_methods[] = {
    {"count", NULL}, {"index", NULL}, {"start", NULL}, {"stop", NULL}, {"step", NULL}, {NULL, NULL},
};
static const struct ebb_jin_entry_fn view_methods[] = {
    {"mapping", NULL},
    {"isdisjoint", NULL},
    {NULL, NULL},
};
static const struct ebb_jin_entry_fn int_methods[] = {
    {"real", NULL},      {"imag", NULL},       {"numerator", NULL}, {"denominator", NULL},
    {"conjugate", NULL}, {"bit_length", NULL}, {"bit_count", NULL}, {"as_integer_ratio", NULL},
    {"to_bytes", NULL},  {"from_bytes", NULL}, {NULL, NULL},
};
static const struct ebb_jin_entry_fn float_methods[] = {
    {"is_integer", float_is_integer}, {"real", NULL}, {"imag", NULL},    {"conjugate", NULL},
    {"as_integer_ratio", NULL},       {"hex", NULL},  {"fromhex", NULL}, {NULL, NULL},
};
static const struct ebb_jin_entry_fn no_methods[] = {{NULL, NULL}};

static const char *const dict_changes[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const list_changes[] = {"append", "clear",  "pop",    "reverse", "insert",
                                           "sort",   "extend", "remove", NULL};

static const struct ebb_jin_entry_fn *methods_of(struct ebb_jin_value value)
{
    switch (value.type) {
    case EBB_JIN_STR:
        return ebb_jin_str_methods();
    case EBB_JIN_DICT:
        return dict_methods;
    case EBB_JIN_LIST:
        return list_methods;
    case EBB_JIN_TUPLE:
        return tuple_methods;
    case EBB_JIN_RANGE:
        return range_methods;
    case EBB_JIN_VIEW:
        return view_methods;
    case EBB_JIN_BOOL:
    case EBB_JIN_INT:
        return int_methods;
    case EBB_JIN_FLOAT:
        return float_methods;
    default:
        return no_methods;
    }
}

/* ---- attributes ---- */

static enum ebb_status make_method(struct ebb_jin_run *run, const struct ebb_jin_entry_fn *entry,
                                   struct ebb_jin_value self, struct ebb_jin_value *out)
{
    struct ebb_jin_func *func = (struct ebb_jin_func *)ebb_jin_alloc(&run->base, sizeof *func);
    if (func == NULL) return ebb_jin_failed(&run->base);
    func->name = entry->name;
    func->call = entry->call;
    func->self = self;
    out->type = EBB_JIN_FUNC;
    out->flag = 0;
    out->as.func = func;
    return EBB_OK;
}

static enum ebb_status cycler_next(METHOD_ARGS)
{
    struct ebb_jin_cycler *cycler = self.as.cycler;
    EBB_TRY(ebb_jin_bind(run, "next()", "", 0, args, NULL));
    *out = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->count;
    return EBB_OK;
}

static enum ebb_status cycler_reset(METHOD_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "reset()", "", 0, args, NULL));
    self.as.cycler->at = 0;
    *out = ebb_jin_none();
    return EBB_OK;
}

static enum ebb_status cycler_attribute(struct ebb_jin_run *run, struct ebb_jin_value object,
                                        struct ebb_jin_value name, struct ebb_jin_value *out,
                                        bool *found)
{
    static const struct ebb_jin_entry_fn methods[] = {{"next", cycler_next},
                                                      {"reset", cycler_reset},
                                                      {NULL, NULL}};
    const struct ebb_jin_entry_fn *entry = ebb_jin_find(methods, name);
    *found = entry != NULL || ebb_jin_str_is(name, "current");
    if (entry != NULL) return make_method(run, entry, object, out);
    if (*found) *out = object.as.cycler->items->items[object.as.cycler->at];
    return EBB_OK;
}

static bool is_change(struct ebb_jin_value object, struct ebb_jin_value name)
{
    const char *const *changes = object.type == EBB_JIN_DICT   ? dict_changes
                                 : object.type == EBB_JIN_LIST ? list_changes
                                                               : NULL;
    for (; changes != NULL && *changes != NULL; changes++)
        if (ebb_jin_str_is(name, *changes)) return true;
    return false;
}

static bool is_dunder(struct ebb_jin_value name)
{
    const struct ebb_jin_str *str = name.as.str;
    return str->bytes > 4 && memcmp(str->data, "__", 2) == 0 &&
           memcmp(str->data + str->bytes - 2, "__", 2) == 0;
}

/* Attributes only, not items. */
static enum ebb_status find_attribute(struct ebb_jin_run *run, struct ebb_jin_value object,
                                      struct ebb_jin_value name, struct ebb_jin_value *out,
                                      bool *found)
{
    const struct ebb_jin_entry_fn *entry = ebb_jin_find(methods_of(object), name);
    *found = true;
    if (entry != NULL && entry->call == NULL)
        return ebb_jin_refuse(&run->base, "'%s' of %s is not offered", entry->name,
                              ebb_jin_type_name(object));
    if (entry != NULL) return make_method(run, entry, object, out);
    if (object.type == EBB_JIN_NAMESPACE) {
        const struct ebb_jin_value *value;
        EBB_TRY(ebb_jin_dict_get(run, object.as.dict, name, true, &value));
        *found = value != NULL;
        if (value != NULL) *out = *value;
        return EBB_OK;
    }
    if (object.type == EBB_JIN_LOOP)
        return ebb_jin_loop_attribute(run, object.as.loop, name, out, found);
    if (object.type == EBB_JIN_CYCLER) return cycler_attribute(run, object, name, out, found);
    if (is_change(object, name) || is_dunder(name))
        return ebb_jin_undefined_hint(run, out,
                                      "access to attribute '%.*s' of '%s' object is unsafe",
                                      name.as.str->bytes > 60 ? 60 : (int)name.as.str->bytes,
                                      name.as.str->data, ebb_jin_type_name(object));
    *found = false;
    return EBB_OK;
}

/* Items only: obj[key] of Python; *found is false where that raises TypeError or LookupError. */
static enum ebb_status find_item(struct ebb_jin_run *run, struct ebb_jin_value object,
                                 struct ebb_jin_value key, struct ebb_jin_value *out, bool *found)
{
    int64_t length, at;
    *found = false;
    if (object.type == EBB_JIN_DICT) {
        const struct ebb_jin_value *value;
        EBB_TRY(ebb_jin_dict_get(run, object.as.dict, key, true, &value));
        *found = value != NULL;
        if (value != NULL) *out = *value;
        return EBB_OK;
    }
    if (!ebb_jin_is_int(key) || (object.type != EBB_JIN_STR && object.type != EBB_JIN_LIST &&
                                 object.type != EBB_JIN_TUPLE && object.type != EBB_JIN_RANGE))
        return EBB_OK;
    (void)ebb_jin_length(object, &length);
    at = ebb_jin_integer(key);
    if (at < -length || at >= length) return EBB_OK;
    if (at < 0) at += length;
    *found = true;
    if (object.type != EBB_JIN_STR) return ebb_jin_at(run, object, at, out);
    struct ebb_jin_str *str = object.as.str;
    size_t begin = ebb_jin_str_offset(str, at), bytes;
    EBB_TRY(ebb_jin_step(run, str->bytes * (str->points != (int64_t)str->bytes)));
    (void)ebb_jin_point(str->data, str->bytes, begin, &bytes);
    EBB_TRY(ebb_jin_str_borrow(&run->base, str->data + begin, bytes, out));
    out->flag = object.flag;
    return EBB_OK;
}

enum ebb_status ebb_jin_attribute(struct ebb_jin_run *run, struct ebb_jin_value object,
                                  struct ebb_jin_value name, struct ebb_jin_value *out)
{
    bool found;
    if (object.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, object);
    EBB_TRY(find_attribute(run, object, name, out, &found));
    if (!found) EBB_TRY(find_item(run, object, name, out, &found));
    return found ? EBB_OK : ebb_jin_undefined(run, ebb_jin_type_name(object), name, out);
}

enum ebb_status ebb_jin_item(struct ebb_jin_run *run, struct ebb_jin_value object,
                             struct ebb_jin_value key, struct ebb_jin_value *out)
{
    bool found;
    if (object.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, object);
    EBB_TRY(find_item(run, object, key, out, &found));
    if (!found && key.type == EBB_JIN_STR) EBB_TRY(find_attribute(run, object, key, out, &found));
    return found ? EBB_OK : ebb_jin_undefined(run, ebb_jin_type_name(object), key, out);
}

/* "12" is a place, anything else a name. */
static enum ebb_status path_part(struct ebb_jin_run *run, const char *data, size_t bytes,
                                 struct ebb_jin_value *key)
{
    int64_t place = 0;
    bool digits = bytes > 0 && bytes < 18;
    for (size_t i = 0; digits && i < bytes; i++) {
        digits = data[i] >= '0' && data[i] <= '9';
        if (digits) place = place * 10 + data[i] - '0';
    }
    if (!digits) return ebb_jin_str_borrow(&run->base, data, bytes, key);
    *key = ebb_jin_int(place);
    return EBB_OK;
}

enum ebb_status ebb_jin_path(struct ebb_jin_run *run, struct ebb_jin_value value,
                             struct ebb_jin_value path, struct ebb_jin_value other,
                             struct ebb_jin_value *out)
{
    bool has_other = other.type != EBB_JIN_MISSING && other.type != EBB_JIN_NONE;
    *out = value;
    if (path.type == EBB_JIN_MISSING || path.type == EBB_JIN_NONE) return EBB_OK;
    if (path.type != EBB_JIN_STR) {
        EBB_TRY(ebb_jin_item(run, value, path, out));
        if (has_other && out->type == EBB_JIN_UNDEFINED) *out = other;
        return EBB_OK;
    }
    const char *data = path.as.str->data;
    size_t bytes = path.as.str->bytes;
    for (size_t i = 0; i <= bytes;) {
        size_t end = i;
        struct ebb_jin_value key, object = *out;
        while (end < bytes && data[end] != '.') end++;
        EBB_TRY(path_part(run, data + i, end - i, &key));
        EBB_TRY(ebb_jin_item(run, object, key, out));
        if (has_other && out->type == EBB_JIN_UNDEFINED) *out = other;
        i = end + 1;
    }
    return EBB_OK;
}

/* ---- calls ---- */

enum ebb_status ebb_jin_call(struct ebb_jin_run *run, struct ebb_jin_value callee,
                             const struct ebb_jin_args *args, struct ebb_jin_value *out)
{
    switch (callee.type) {
    case EBB_JIN_UNDEFINED:
        return ebb_jin_undefined_fail(run, callee);
    case EBB_JIN_MACRO:
        return ebb_jin_call_macro(run, callee.as.macro, args, out);
    case EBB_JIN_FUNC:
        if (callee.as.func->self.type == EBB_JIN_STR && callee.as.func->self.flag != 0 &&
            args->count + args->named_count > 0)
            return ebb_jin_refuse(&run->base,
                                  "'%s' with arguments on text that is marked safe is not offered",
                                  callee.as.func->name);
        return callee.as.func->call(run, callee.as.func->self, args, out);
    case EBB_JIN_JOINER:
        EBB_TRY(ebb_jin_bind(run, "a joiner", "", 0, args, NULL));
        *out = callee.as.joiner->text;
        if (!callee.as.joiner->used) EBB_TRY(ebb_jin_str_borrow(&run->base, "", 0, out));
        callee.as.joiner->used = true;
        return EBB_OK;
    case EBB_JIN_LOOP:
        return ebb_jin_refuse(&run->base, "recursive loops are not offered");
    default:
        return ebb_jin_fail(&run->base, "'%s' object is not callable", ebb_jin_type_name(callee));
    }
}
