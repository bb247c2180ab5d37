/* What can be looped over in Jinja: sequences by place, and generators that compute each item when
 * it is asked for, as Python's do.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <string.h>

bool ebb_jin_is_iterable(struct ebb_jin_value value)
{
    switch (value.type) {
    case EBB_JIN_UNDEFINED:
    case EBB_JIN_STR:
    case EBB_JIN_LIST:
    case EBB_JIN_TUPLE:
    case EBB_JIN_DICT:
    case EBB_JIN_VIEW:
    case EBB_JIN_RANGE:
    case EBB_JIN_ITER:
        return true;
    default:
        return false;
    }
}

bool ebb_jin_length(struct ebb_jin_value value, int64_t *length)
{
    *length = 0;
    switch (value.type) {
    case EBB_JIN_UNDEFINED:
        return true;
    case EBB_JIN_STR:
        *length = ebb_jin_str_points(value.as.str);
        return true;
    case EBB_JIN_LIST:
    case EBB_JIN_TUPLE:
        *length = value.as.list->count;
        return true;
    case EBB_JIN_DICT:
    case EBB_JIN_VIEW:
        *length = value.as.dict->count;
        return true;
    case EBB_JIN_RANGE:
        *length = value.as.range->count;
        return true;
    default:
        return false;
    }
}

enum ebb_status ebb_jin_iter_value(struct ebb_jin_run *run, enum ebb_jin_iter_kind kind,
                                   struct ebb_jin_value *out, struct ebb_jin_iter **iter)
{
    *iter = (struct ebb_jin_iter *)ebb_jin_alloc(&run->base, sizeof **iter);
    if (*iter == NULL) return ebb_jin_failed(&run->base);
    memset(*iter, 0, sizeof **iter);
    (*iter)->kind = kind;
    out->type = EBB_JIN_ITER;
    out->flag = 0;
    out->as.iter = *iter;
    return EBB_OK;
}

enum ebb_status ebb_jin_iterate(struct ebb_jin_run *run, struct ebb_jin_value value,
                                struct ebb_jin_iter **iter)
{
    struct ebb_jin_value made;
    int64_t length;
    if (value.type == EBB_JIN_ITER) {
        *iter = value.as.iter;
        return EBB_OK;
    }
    if (!ebb_jin_is_iterable(value))
        return ebb_jin_fail(&run->base, "'%s' object is not iterable", ebb_jin_type_name(value));
    EBB_TRY(ebb_jin_iter_value(run, value.type == EBB_JIN_STR ? EBB_ITER_CHARS : EBB_ITER_ITEMS,
                               &made, iter));
    (*iter)->over = value;
    if (value.type == EBB_JIN_UNDEFINED) (*iter)->kind = EBB_ITER_EMPTY;
    if (value.type == EBB_JIN_STR)
        (*iter)->count = (int64_t)value.as.str->bytes;
    else if (ebb_jin_length(value, &length))
        (*iter)->count = length;
    return EBB_OK;
}

enum ebb_status ebb_jin_at(struct ebb_jin_run *run, struct ebb_jin_value value, int64_t at,
                           struct ebb_jin_value *out)
{
    switch (value.type) {
    case EBB_JIN_LIST:
    case EBB_JIN_TUPLE:
        *out = value.as.list->items[at];
        return EBB_OK;
    case EBB_JIN_RANGE:
        *out = ebb_jin_int(value.as.range->start + at * value.as.range->step);
        return EBB_OK;
    default:
        break;
    }
    const struct ebb_jin_entry *entry = &value.as.dict->items[at];
    int view = value.type == EBB_JIN_DICT ? EBB_JIN_KEYS : value.flag;
    if (view == EBB_JIN_KEYS) *out = entry->key;
    if (view == EBB_JIN_VALUES) *out = entry->value;
    if (view == EBB_JIN_ITEMS) {
        struct ebb_jin_value *items;
        struct ebb_jin_value key = entry->key, held = entry->value;
        EBB_TRY(ebb_jin_list_new(run, EBB_JIN_TUPLE, 2, out, &items));
        items[0] = key;
        items[1] = held;
    }
    return EBB_OK;
}

/* The next of the source that the test lets through. */
static enum ebb_status next_selected(struct ebb_jin_run *run, struct ebb_jin_iter *iter,
                                     struct ebb_jin_value *value, bool *more)
{
    while (true) {
        struct ebb_jin_value looked, none = {EBB_JIN_MISSING, 0, {false}};
        bool holds;
        EBB_TRY(ebb_jin_next(run, iter->source, value, more));
        if (!*more) return EBB_OK;
        EBB_TRY(ebb_jin_path(run, *value, iter->path, none, &looked));
        if (iter->name.type == EBB_JIN_MISSING)
            holds = ebb_jin_truth(looked);
        else
            EBB_TRY(ebb_jin_test(run, iter->name, looked, &iter->args, &holds));
        if (holds == iter->wanted) return EBB_OK;
    }
}

static enum ebb_status next_for_test(struct ebb_jin_run *run, struct ebb_jin_iter *iter,
                                     struct ebb_jin_value *value, bool *more)
{
    while (true) {
        struct ebb_jin_value holds;
        EBB_TRY(ebb_jin_next(run, iter->source, value, more));
        if (!*more) return EBB_OK;
        struct ebb_jin_scope scope = {.parent = iter->scope};
        EBB_TRY(ebb_jin_assign(run, iter->node->a, &scope, *value));
        EBB_TRY(ebb_jin_eval(run, iter->node->c, &scope, &holds));
        if (ebb_jin_truth(holds)) return EBB_OK;
    }
}

/* Lower case of a string; anything else as it is. */
static enum ebb_status fold(struct ebb_jin_run *run, struct ebb_jin_value *value)
{
    if (value->type != EBB_JIN_STR) return EBB_OK;
    struct ebb_jin_buf buf = {0};
    size_t length;
    const struct ebb_jin_str *str = value->as.str;
    for (size_t i = 0; i < str->bytes; i += length) {
        (void)ebb_jin_point(str->data, str->bytes, i, &length);
        EBB_TRY(ebb_jin_add_cased(run, &buf, EBB_CASE_LOWER, str->data, str->bytes, i));
    }
    return ebb_jin_str_of(&run->base, &buf, value);
}

static enum ebb_status next_unique(struct ebb_jin_run *run, struct ebb_jin_iter *iter,
                                   struct ebb_jin_value *value, bool *more)
{
    while (true) {
        struct ebb_jin_value key, none = {EBB_JIN_MISSING, 0, {false}};
        const struct ebb_jin_value *found;
        EBB_TRY(ebb_jin_next(run, iter->source, value, more));
        if (!*more) return EBB_OK;
        EBB_TRY(ebb_jin_path(run, *value, iter->path, none, &key));
        if (!iter->sensitive) EBB_TRY(fold(run, &key));
        EBB_TRY(ebb_jin_dict_get(run, iter->seen, key, false, &found));
        if (found != NULL) continue;
        return ebb_jin_dict_set(run, iter->seen, key, ebb_jin_none());
    }
}

static enum ebb_status next_batch(struct ebb_jin_run *run, struct ebb_jin_iter *iter,
                                  struct ebb_jin_value *value, bool *more)
{
    struct ebb_jin_growing list = {0};
    while (list.count < iter->size) {
        struct ebb_jin_value item;
        EBB_TRY(ebb_jin_next(run, iter->source, &item, more));
        if (!*more) break;
        EBB_TRY(ebb_jin_growing_add(run, &list, item));
    }
    *more = list.count > 0;
    if (!*more) return EBB_OK;
    while (iter->other.type != EBB_JIN_NONE && list.count < iter->size)
        EBB_TRY(ebb_jin_growing_add(run, &list, iter->other));
    return ebb_jin_growing_end(run, &list, value);
}

/* `over` is a list, cut into `size` parts, the first ones longer by one. */
static enum ebb_status next_slice(struct ebb_jin_run *run, struct ebb_jin_iter *iter,
                                  struct ebb_jin_value *value, bool *more)
{
    const struct ebb_jin_list *list = iter->over.as.list;
    struct ebb_jin_growing part = {0};
    *more = iter->at < iter->size;
    if (!*more) return EBB_OK;
    int64_t each = list->count / iter->size, extra = list->count % iter->size, at = iter->at++;
    int64_t start = at * each + (at < extra ? at : extra), end = start + each + (at < extra);
    for (int64_t i = start; i < end; i++) EBB_TRY(ebb_jin_growing_add(run, &part, list->items[i]));
    if (iter->other.type != EBB_JIN_NONE && at >= extra)
        EBB_TRY(ebb_jin_growing_add(run, &part, iter->other));
    return ebb_jin_growing_end(run, &part, value);
}

static enum ebb_status next_any(struct ebb_jin_run *run, struct ebb_jin_iter *iter,
                                struct ebb_jin_value *value, bool *more)
{
    size_t length;
    switch (iter->kind) {
    case EBB_ITER_EMPTY:
        *more = false;
        return EBB_OK;
    case EBB_ITER_ITEMS:
        *more = iter->at < iter->count;
        return *more ? ebb_jin_at(run, iter->over, iter->at++, value) : EBB_OK;
    case EBB_ITER_REVERSE:
        *more = iter->at < iter->count;
        if (!*more) return EBB_OK;
        iter->at++;
        return ebb_jin_at(run, iter->over, iter->count - iter->at, value);
    case EBB_ITER_CHARS: {
        const struct ebb_jin_str *str = iter->over.as.str;
        *more = iter->at < iter->count;
        if (!*more) return EBB_OK;
        size_t at = (size_t)iter->at;
        (void)ebb_jin_point(str->data, str->bytes, at, &length);
        iter->at += (int64_t)length;
        return ebb_jin_str_borrow(&run->base, str->data + at, length, value);
    }
    case EBB_ITER_MAP: {
        struct ebb_jin_value item;
        EBB_TRY(ebb_jin_next(run, iter->source, &item, more));
        if (!*more) return EBB_OK;
        if (iter->name.type == EBB_JIN_MISSING)
            return ebb_jin_path(run, item, iter->path, iter->other, value);
        return ebb_jin_filter(run, iter->name, item, &iter->args, value);
    }
    case EBB_ITER_SELECT:
        return next_selected(run, iter, value, more);
    case EBB_ITER_UNIQUE:
        return next_unique(run, iter, value, more);
    case EBB_ITER_FOR_TEST:
        return next_for_test(run, iter, value, more);
    case EBB_ITER_BATCH:
        return next_batch(run, iter, value, more);
    case EBB_ITER_SLICES:
        return next_slice(run, iter, value, more);
    }
    return EBB_OK;
}

enum ebb_status ebb_jin_next(struct ebb_jin_run *run, struct ebb_jin_iter *iter,
                             struct ebb_jin_value *value, bool *more)
{
    EBB_TRY(ebb_jin_step(run, 0));
    EBB_TRY(ebb_jin_enter(run));
    enum ebb_status status = next_any(run, iter, value, more);
    run->depth--;
    return status;
}

enum ebb_status ebb_jin_collect(struct ebb_jin_run *run, struct ebb_jin_value value,
                                struct ebb_jin_value *list)
{
    struct ebb_jin_iter *iter;
    struct ebb_jin_growing items = {0};
    EBB_TRY(ebb_jin_iterate(run, value, &iter));
    while (true) {
        struct ebb_jin_value item;
        bool more;
        EBB_TRY(ebb_jin_next(run, iter, &item, &more));
        if (!more) break;
        EBB_TRY(ebb_jin_growing_add(run, &items, item));
    }
    return ebb_jin_growing_end(run, &items, list);
}
