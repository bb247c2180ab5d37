/* Filters of Jinja over sequences and mappings.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <string.h>

#define FILTER_ARGS                                                                                \
    struct ebb_jin_run *run, struct ebb_jin_value self, const struct ebb_jin_args *args,           \
        struct ebb_jin_value *out

static const struct ebb_jin_value missing = {EBB_JIN_MISSING, 0, {false}};

static enum ebb_status do_length(FILTER_ARGS)
{
    int64_t length;
    EBB_TRY(ebb_jin_bind(run, "length", "", 0, args, NULL));
    if (!ebb_jin_length(self, &length))
        return ebb_jin_fail(&run->base, "object of type '%s' has no len()",
                            ebb_jin_type_name(self));
    *out = ebb_jin_int(length);
    return EBB_OK;
}

static enum ebb_status do_list(FILTER_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "list", "", 0, args, NULL));
    return ebb_jin_collect(run, self, out);
}

static enum ebb_status do_default(FILTER_ARGS)
{
    struct ebb_jin_value values[2];
    EBB_TRY(ebb_jin_bind(run, "default", "default_value boolean", 0, args, values));
    bool replaced =
        self.type == EBB_JIN_UNDEFINED || (ebb_jin_truth(values[1]) && !ebb_jin_truth(self));
    *out = replaced ? values[0] : self;
    if (out->type == EBB_JIN_MISSING) return ebb_jin_str_borrow(&run->base, "", 0, out);
    return EBB_OK;
}

static enum ebb_status do_first(FILTER_ARGS)
{
    struct ebb_jin_iter *iter;
    bool more;
    EBB_TRY(ebb_jin_bind(run, "first", "", 0, args, NULL));
    EBB_TRY(ebb_jin_iterate(run, self, &iter));
    EBB_TRY(ebb_jin_next(run, iter, out, &more));
    if (more) return EBB_OK;
    return ebb_jin_undefined_hint(run, out, "No first item, sequence was empty.");
}

static bool is_reversible(struct ebb_jin_value value)
{
    return value.type == EBB_JIN_LIST || value.type == EBB_JIN_TUPLE ||
           value.type == EBB_JIN_DICT || value.type == EBB_JIN_VIEW || value.type == EBB_JIN_RANGE;
}

static enum ebb_status do_last(FILTER_ARGS)
{
    int64_t length = 0;
    struct ebb_jin_value bounds[3] = {ebb_jin_int(-1), missing, missing};
    EBB_TRY(ebb_jin_bind(run, "last", "", 0, args, NULL));
    if (!is_reversible(self) && self.type != EBB_JIN_STR && self.type != EBB_JIN_UNDEFINED)
        return ebb_jin_fail(&run->base, "'%s' object is not reversible", ebb_jin_type_name(self));
    (void)ebb_jin_length(self, &length);
    if (length == 0) return ebb_jin_undefined_hint(run, out, "No last item, sequence was empty.");
    if (self.type == EBB_JIN_STR) return ebb_jin_slice(run, self, bounds, out);
    return ebb_jin_at(run, self, length - 1, out);
}

static enum ebb_status do_reverse(FILTER_ARGS)
{
    struct ebb_jin_value bounds[3] = {missing, missing, ebb_jin_int(-1)};
    struct ebb_jin_iter *iter;
    EBB_TRY(ebb_jin_bind(run, "reverse", "", 0, args, NULL));
    if (self.type == EBB_JIN_STR) return ebb_jin_slice(run, self, bounds, out);
    if (!is_reversible(self)) {
        if (!ebb_jin_is_iterable(self))
            return ebb_jin_fail(&run->base, "argument must be iterable");
        /* What cannot be walked backwards becomes a list, which is. */
        EBB_TRY(ebb_jin_collect(run, self, &self));
        return ebb_jin_slice(run, self, bounds, out);
    }
    EBB_TRY(ebb_jin_iter_value(run, EBB_ITER_REVERSE, out, &iter));
    iter->over = self;
    (void)ebb_jin_length(self, &iter->count);
    return EBB_OK;
}

static enum ebb_status do_items(FILTER_ARGS)
{
    struct ebb_jin_iter *iter;
    EBB_TRY(ebb_jin_bind(run, "items", "", 0, args, NULL));
    EBB_TRY(ebb_jin_iter_value(run, EBB_ITER_EMPTY, out, &iter));
    if (self.type == EBB_JIN_UNDEFINED) return EBB_OK;
    if (self.type != EBB_JIN_DICT)
        return ebb_jin_fail(&run->base, "Can only get item pairs from a mapping.");
    iter->kind = EBB_ITER_ITEMS;
    iter->over = self;
    iter->over.type = EBB_JIN_VIEW;
    iter->over.flag = EBB_JIN_ITEMS;
    iter->count = self.as.dict->count;
    return EBB_OK;
}

static enum ebb_status do_join(FILTER_ARGS)
{
    struct ebb_jin_value values[2], item;
    struct ebb_jin_iter *iter;
    struct ebb_jin_buf buf = {0};
    bool more;
    EBB_TRY(ebb_jin_bind(run, "join", "d attribute", 0, args, values));
    if (values[0].type == EBB_JIN_MISSING) EBB_TRY(ebb_jin_str_borrow(&run->base, "", 0, values));
    EBB_TRY(ebb_jin_to_str(run, &values[0]));
    EBB_TRY(ebb_jin_iterate(run, self, &iter));
    for (int64_t i = 0;; i++) {
        EBB_TRY(ebb_jin_next(run, iter, &item, &more));
        if (!more) break;
        EBB_TRY(ebb_jin_path(run, item, values[1], missing, &item));
        if (i > 0) EBB_TRY(ebb_jin_print(run, values[0], &buf));
        EBB_TRY(ebb_jin_print(run, item, &buf));
    }
    return ebb_jin_str_of(&run->base, &buf, out);
}

/* ---- generators ---- */

/* Arguments behind the first `skip`, which live as long as the run. */
static enum ebb_status keep_args(struct ebb_jin_run *run, const struct ebb_jin_args *args,
                                 int64_t skip, struct ebb_jin_args *kept)
{
    *kept = *args;
    kept->count = args->count > skip ? args->count - skip : 0;
    size_t bytes = (size_t)kept->count * sizeof *kept->items;
    size_t named = (size_t)kept->named_count * sizeof *kept->named;
    kept->items = (struct ebb_jin_value *)ebb_jin_alloc(&run->base, bytes);
    kept->named = (struct ebb_jin_named *)ebb_jin_alloc(&run->base, named);
    if (kept->items == NULL || kept->named == NULL) return ebb_jin_failed(&run->base);
    if (bytes > 0) memcpy(kept->items, args->items + skip, bytes);
    if (named > 0) memcpy(kept->named, args->named, named);
    return EBB_OK;
}

/* Nothing is looked at before the first item is asked for, in Python; a wrong argument is told now
 * all the same. */
static enum ebb_status start(struct ebb_jin_run *run, enum ebb_jin_iter_kind kind,
                             struct ebb_jin_value self, struct ebb_jin_value *out,
                             struct ebb_jin_iter **iter)
{
    EBB_TRY(ebb_jin_iter_value(run, kind, out, iter));
    if (ebb_jin_truth(self) || kind == EBB_ITER_UNIQUE || kind == EBB_ITER_BATCH)
        return ebb_jin_iterate(run, self, &(*iter)->source);
    (*iter)->kind = EBB_ITER_EMPTY;
    return EBB_OK;
}

static enum ebb_status do_map(FILTER_ARGS)
{
    struct ebb_jin_iter *iter;
    struct ebb_jin_value values[2] = {missing, missing};
    EBB_TRY(start(run, EBB_ITER_MAP, self, out, &iter));
    if (args->count > 0) {
        iter->name = args->items[0];
        return keep_args(run, args, 1, &iter->args);
    }
    for (int64_t i = 0; i < args->named_count; i++) {
        const struct ebb_jin_named *named = &args->named[i];
        bool attribute = ebb_jin_str_is(named->name, "attribute");
        if (!attribute && !ebb_jin_str_is(named->name, "default"))
            return ebb_jin_fail(&run->base, "map got an unexpected keyword argument");
        values[attribute ? 0 : 1] = named->value;
    }
    if (values[0].type == EBB_JIN_MISSING)
        return ebb_jin_fail(&run->base, "map requires a filter argument");
    iter->path = values[0];
    iter->other = values[1];
    return EBB_OK;
}

static enum ebb_status select_items(struct ebb_jin_run *run, struct ebb_jin_value self,
                                    const struct ebb_jin_args *args, bool wanted, bool attribute,
                                    struct ebb_jin_value *out)
{
    struct ebb_jin_iter *iter;
    int64_t at = attribute ? 1 : 0;
    EBB_TRY(start(run, EBB_ITER_SELECT, self, out, &iter));
    iter->wanted = wanted;
    if (args->count < at) return ebb_jin_fail(&run->base, "Missing parameter for attribute name");
    if (attribute) iter->path = args->items[0];
    if (args->count > at) iter->name = args->items[at];
    return keep_args(run, args, at + 1, &iter->args);
}

static enum ebb_status do_select(FILTER_ARGS)
{
    return select_items(run, self, args, true, false, out);
}

static enum ebb_status do_reject(FILTER_ARGS)
{
    return select_items(run, self, args, false, false, out);
}

static enum ebb_status do_selectattr(FILTER_ARGS)
{
    return select_items(run, self, args, true, true, out);
}

static enum ebb_status do_rejectattr(FILTER_ARGS)
{
    return select_items(run, self, args, false, true, out);
}

static enum ebb_status do_unique(FILTER_ARGS)
{
    struct ebb_jin_iter *iter;
    struct ebb_jin_value values[2], seen;
    EBB_TRY(ebb_jin_bind(run, "unique", "case_sensitive attribute", 0, args, values));
    EBB_TRY(start(run, EBB_ITER_UNIQUE, self, out, &iter));
    EBB_TRY(ebb_jin_dict_new(run, &seen));
    iter->seen = seen.as.dict;
    iter->sensitive = ebb_jin_truth(values[0]);
    iter->path = values[1];
    return EBB_OK;
}

static enum ebb_status do_batch(FILTER_ARGS)
{
    struct ebb_jin_iter *iter;
    struct ebb_jin_value values[2];
    int64_t size;
    EBB_TRY(ebb_jin_bind(run, "batch", "linecount fill_with", 1, args, values));
    EBB_TRY(ebb_jin_want_int(run, "batch", values[0], &size));
    if (size < 1) return ebb_jin_fail(&run->base, "batch: the count must be positive");
    EBB_TRY(start(run, EBB_ITER_BATCH, self, out, &iter));
    iter->size = size;
    iter->other = values[1].type == EBB_JIN_MISSING ? ebb_jin_none() : values[1];
    return EBB_OK;
}

static enum ebb_status do_slice(FILTER_ARGS)
{
    struct ebb_jin_iter *iter;
    struct ebb_jin_value values[2];
    int64_t size;
    EBB_TRY(ebb_jin_bind(run, "slice", "slices fill_with", 1, args, values));
    EBB_TRY(ebb_jin_want_int(run, "slice", values[0], &size));
    if (size < 1) return ebb_jin_fail(&run->base, "slice: the count must be positive");
    EBB_TRY(ebb_jin_iter_value(run, EBB_ITER_SLICES, out, &iter));
    EBB_TRY(ebb_jin_collect(run, self, &iter->over));
    iter->size = size;
    iter->other = values[1].type == EBB_JIN_MISSING ? ebb_jin_none() : values[1];
    return EBB_OK;
}

/* ---- order ---- */

/* What an item is sorted by: lower case unless sensitive. */
static enum ebb_status sort_key(struct ebb_jin_run *run, struct ebb_jin_value item,
                                struct ebb_jin_value path, bool sensitive,
                                struct ebb_jin_value *key)
{
    static const struct ebb_jin_args none = {NULL, 0, NULL, 0};
    struct ebb_jin_value lower;
    EBB_TRY(ebb_jin_path(run, item, path, missing, key));
    if (sensitive || key->type != EBB_JIN_STR) return EBB_OK;
    EBB_TRY(ebb_jin_str_borrow(&run->base, "lower", 5, &lower));
    return ebb_jin_filter(run, lower, *key, &none, key);
}

/* Keys of one attribute or of several, "a,b.c", as a list. */
static enum ebb_status sort_keys(struct ebb_jin_run *run, struct ebb_jin_value item,
                                 struct ebb_jin_value path, bool sensitive,
                                 struct ebb_jin_value *key)
{
    struct ebb_jin_growing keys = {0};
    if (path.type != EBB_JIN_STR || memchr(path.as.str->data, ',', path.as.str->bytes) == NULL)
        return sort_key(run, item, path, sensitive, key);
    const char *data = path.as.str->data;
    size_t bytes = path.as.str->bytes;
    for (size_t i = 0; i <= bytes;) {
        size_t end = i;
        struct ebb_jin_value one, part;
        while (end < bytes && data[end] != ',') end++;
        EBB_TRY(ebb_jin_str_borrow(&run->base, data + i, end - i, &one));
        EBB_TRY(sort_key(run, item, one, sensitive, &part));
        EBB_TRY(ebb_jin_growing_add(run, &keys, part));
        i = end + 1;
    }
    return ebb_jin_growing_end(run, &keys, key);
}

struct sorting {
    struct ebb_jin_value key, item;
};

/* Merges two sorted runs of `from` into `to`, equal ones in their order. */
static enum ebb_status merge(struct ebb_jin_run *run, const struct sorting *from, int64_t begin,
                             int64_t middle, int64_t end, bool reverse, struct sorting *to)
{
    int64_t left = begin, right = middle;
    for (int64_t at = begin; at < end; at++) {
        bool take_right = left >= middle;
        if (!take_right && right < end) {
            if (reverse)
                EBB_TRY(ebb_jin_order(run, EBB_JIN_TOK_LT, from[left].key, from[right].key,
                                      &take_right));
            else
                EBB_TRY(ebb_jin_order(run, EBB_JIN_TOK_LT, from[right].key, from[left].key,
                                      &take_right));
        }
        to[at] = take_right ? from[right++] : from[left++];
    }
    return EBB_OK;
}

static enum ebb_status sort_all(struct ebb_jin_run *run, struct sorting *items, int64_t count,
                                bool reverse, struct ebb_jin_value *out)
{
    struct ebb_jin_value *result;
    struct sorting *other =
        (struct sorting *)ebb_jin_alloc(&run->base, (size_t)count * sizeof *other);
    if (other == NULL) return ebb_jin_failed(&run->base);
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * width) {
            int64_t middle = begin + width < count ? begin + width : count;
            int64_t end = middle + width < count ? middle + width : count;
            EBB_TRY(merge(run, items, begin, middle, end, reverse, other));
        }
        struct sorting *swap = items;
        items = other;
        other = swap;
    }
    EBB_TRY(ebb_jin_list_new(run, EBB_JIN_LIST, count, out, &result));
    for (int64_t i = 0; i < count; i++) result[i] = items[i].item;
    return EBB_OK;
}

static enum ebb_status do_sort(FILTER_ARGS)
{
    struct ebb_jin_value values[3], list;
    EBB_TRY(ebb_jin_bind(run, "sort", "reverse case_sensitive attribute", 0, args, values));
    EBB_TRY(ebb_jin_collect(run, self, &list));
    int64_t count = list.as.list->count;
    struct sorting *items =
        (struct sorting *)ebb_jin_alloc(&run->base, (size_t)count * sizeof *items);
    if (items == NULL) return ebb_jin_failed(&run->base);
    for (int64_t i = 0; i < count; i++) {
        items[i].item = list.as.list->items[i];
        EBB_TRY(sort_keys(run, items[i].item, values[2], ebb_jin_truth(values[1]), &items[i].key));
    }
    return sort_all(run, items, count, ebb_jin_truth(values[0]), out);
}

static enum ebb_status do_dictsort(FILTER_ARGS)
{
    struct ebb_jin_value values[3];
    EBB_TRY(ebb_jin_bind(run, "dictsort", "case_sensitive by reverse", 0, args, values));
    bool by_key = values[1].type == EBB_JIN_MISSING || ebb_jin_str_is(values[1], "key");
    if (!by_key && !ebb_jin_str_is(values[1], "value"))
        return ebb_jin_fail(&run->base, "You can only sort by either \"key\" or \"value\"");
    if (self.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, self);
    if (self.type != EBB_JIN_DICT)
        return ebb_jin_fail(&run->base, "'%s' object has no attribute 'items'",
                            ebb_jin_type_name(self));
    int64_t count = self.as.dict->count;
    struct ebb_jin_value view = self;
    view.type = EBB_JIN_VIEW;
    view.flag = EBB_JIN_ITEMS;
    struct sorting *items =
        (struct sorting *)ebb_jin_alloc(&run->base, (size_t)count * sizeof *items);
    if (items == NULL) return ebb_jin_failed(&run->base);
    for (int64_t i = 0; i < count; i++) {
        EBB_TRY(ebb_jin_at(run, view, i, &items[i].item));
        EBB_TRY(sort_key(run, items[i].item.as.list->items[by_key ? 0 : 1], missing,
                         ebb_jin_truth(values[0]), &items[i].key));
    }
    return sort_all(run, items, count, ebb_jin_truth(values[2]), out);
}

static enum ebb_status extreme(struct ebb_jin_run *run, const char *what, struct ebb_jin_value self,
                               const struct ebb_jin_args *args, int op, struct ebb_jin_value *out)
{
    struct ebb_jin_value values[2], item, key, best = missing;
    struct ebb_jin_iter *iter;
    bool more, better;
    EBB_TRY(ebb_jin_bind(run, what, "case_sensitive attribute", 0, args, values));
    EBB_TRY(ebb_jin_iterate(run, self, &iter));
    while (true) {
        EBB_TRY(ebb_jin_next(run, iter, &item, &more));
        if (!more) break;
        EBB_TRY(sort_key(run, item, values[1], ebb_jin_truth(values[0]), &key));
        better = best.type == EBB_JIN_MISSING;
        if (!better) EBB_TRY(ebb_jin_order(run, op, key, best, &better));
        if (!better) continue;
        best = key;
        *out = item;
    }
    if (best.type != EBB_JIN_MISSING) return EBB_OK;
    return ebb_jin_undefined_hint(run, out, "No aggregated item, sequence was empty.");
}

static enum ebb_status do_min(FILTER_ARGS)
{
    return extreme(run, "min", self, args, EBB_JIN_TOK_LT, out);
}

static enum ebb_status do_max(FILTER_ARGS)
{
    return extreme(run, "max", self, args, EBB_JIN_TOK_GT, out);
}

static enum ebb_status do_sum(FILTER_ARGS)
{
    struct ebb_jin_value values[2], item, total;
    struct ebb_jin_iter *iter;
    bool more;
    EBB_TRY(ebb_jin_bind(run, "sum", "attribute start", 0, args, values));
    total = values[1].type == EBB_JIN_MISSING ? ebb_jin_int(0) : values[1];
    if (total.type == EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "sum() can't sum strings [use ''.join(seq) instead]");
    EBB_TRY(ebb_jin_iterate(run, self, &iter));
    while (true) {
        EBB_TRY(ebb_jin_next(run, iter, &item, &more));
        if (!more) break;
        EBB_TRY(ebb_jin_path(run, item, values[0], missing, &item));
        EBB_TRY(ebb_jin_binary(run, EBB_JIN_TOK_ADD, total, item, &total));
    }
    *out = total;
    return EBB_OK;
}

/* foo|attr("bar") is foo.bar without a look at items. */
static enum ebb_status do_attr(FILTER_ARGS)
{
    struct ebb_jin_value name;
    EBB_TRY(ebb_jin_bind(run, "attr", "name", 1, args, &name));
    if (name.type != EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "attr: a string is wanted, not %s",
                            ebb_jin_type_name(name));
    if (self.type == EBB_JIN_DICT) {
        /* An empty dict has the same attributes and no items. */
        struct ebb_jin_value empty;
        EBB_TRY(ebb_jin_dict_new(run, &empty));
        EBB_TRY(ebb_jin_attribute(run, empty, name, out));
        if (out->type == EBB_JIN_UNDEFINED) return EBB_OK;
    }
    return ebb_jin_attribute(run, self, name, out);
}

const struct ebb_jin_entry_fn *ebb_jin_list_filters(void)
{
    static const struct ebb_jin_entry_fn filters[] = {
        {"attr", do_attr},
        {"batch", do_batch},
        {"count", do_length},
        {"d", do_default},
        {"default", do_default},
        {"dictsort", do_dictsort},
        {"first", do_first},
        {"items", do_items},
        {"join", do_join},
        {"last", do_last},
        {"length", do_length},
        {"list", do_list},
        {"map", do_map},
        {"max", do_max},
        {"min", do_min},
        {"reject", do_reject},
        {"rejectattr", do_rejectattr},
        {"reverse", do_reverse},
        {"select", do_select},
        {"selectattr", do_selectattr},
        {"slice", do_slice},
        {"sort", do_sort},
        {"sum", do_sum},
        {"unique", do_unique},
        {NULL, NULL},
    };
    return filters;
}
