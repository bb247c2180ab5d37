/* Global functions of Jinja templates: range, dict, namespace, cycler, joiner, and transformers'
 * raise_exception and strftime_now.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define FUNCTION_ARGS                                                                              \
    struct ebb_jin_run *run, struct ebb_jin_value self, const struct ebb_jin_args *args,           \
        struct ebb_jin_value *out

enum { RANGE_MOST = 100000 };

static enum ebb_status call_range(FUNCTION_ARGS)
{
    int64_t values[3] = {0, 0, 1};
    (void)self;
    if (args->named_count > 0 || args->count < 1 || args->count > 3)
        return ebb_jin_fail(&run->base, "range takes one to three integers");
    for (int64_t i = 0; i < args->count; i++)
        EBB_TRY(ebb_jin_want_int(run, "range", args->items[i], &values[args->count == 1 ? 1 : i]));
    int64_t start = values[0], stop = values[1], step = values[2], count = 0, width = 0;
    if (step == 0) return ebb_jin_fail(&run->base, "range's step must not be zero");
    bool some = step > 0 ? start < stop : start > stop;
    if (some) {
        int64_t each = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
        bool wide = step > 0 ? __builtin_sub_overflow(stop, start, &width)
                             : __builtin_sub_overflow(start, stop, &width);
        count = wide ? INT64_MAX : (width - 1) / each + 1;
    }
    if (count > RANGE_MOST)
        return ebb_jin_fail(&run->base, "the limit of %d items in a range is reached",
                            (int)RANGE_MOST);
    struct ebb_jin_range *range = (struct ebb_jin_range *)ebb_jin_alloc(&run->base, sizeof *range);
    if (range == NULL) return ebb_jin_failed(&run->base);
    range->start = start;
    range->stop = stop;
    range->step = step;
    range->count = count;
    out->type = EBB_JIN_RANGE;
    out->flag = 0;
    out->as.range = range;
    return EBB_OK;
}

/* dict(mapping or pairs, name=value, ...) */
static enum ebb_status make_dict(struct ebb_jin_run *run, const char *what,
                                 const struct ebb_jin_args *args, struct ebb_jin_value *out)
{
    EBB_TRY(ebb_jin_dict_new(run, out));
    struct ebb_jin_dict *dict = out->as.dict;
    if (args->count > 1)
        return ebb_jin_fail(&run->base, "%s expected at most 1 argument, got %lld", what,
                            (long long)args->count);
    if (args->count == 1 && args->items[0].type == EBB_JIN_DICT) {
        const struct ebb_jin_dict *from = args->items[0].as.dict;
        for (int64_t i = 0; i < from->count; i++)
            EBB_TRY(ebb_jin_dict_set(run, dict, from->items[i].key, from->items[i].value));
    } else if (args->count == 1) {
        struct ebb_jin_iter *iter;
        EBB_TRY(ebb_jin_iterate(run, args->items[0], &iter));
        while (true) {
            struct ebb_jin_value item, pair;
            bool more;
            EBB_TRY(ebb_jin_next(run, iter, &item, &more));
            if (!more) break;
            EBB_TRY(ebb_jin_collect(run, item, &pair));
            if (pair.as.list->count != 2)
                return ebb_jin_fail(&run->base, "%s wants pairs, an element has length %lld", what,
                                    (long long)pair.as.list->count);
            EBB_TRY(ebb_jin_dict_set(run, dict, pair.as.list->items[0], pair.as.list->items[1]));
        }
    }
    for (int64_t i = 0; i < args->named_count; i++)
        EBB_TRY(ebb_jin_dict_set(run, dict, args->named[i].name, args->named[i].value));
    return EBB_OK;
}

static enum ebb_status call_dict(FUNCTION_ARGS)
{
    (void)self;
    return make_dict(run, "dict", args, out);
}

static enum ebb_status call_namespace(FUNCTION_ARGS)
{
    (void)self;
    EBB_TRY(make_dict(run, "namespace", args, out));
    const struct ebb_jin_dict *dict = out->as.dict;
    for (int64_t i = 0; i < dict->count; i++) {
        struct ebb_jin_value key = dict->items[i].key;
        if (key.type == EBB_JIN_STR && key.as.str->bytes > 0 && key.as.str->data[0] == '_')
            return ebb_jin_fail(&run->base, "a namespace has no names that begin with '_'");
    }
    out->type = EBB_JIN_NAMESPACE;
    return EBB_OK;
}

static enum ebb_status call_cycler(FUNCTION_ARGS)
{
    struct ebb_jin_value list, *items;
    (void)self;
    if (args->count == 0 || args->named_count > 0)
        return ebb_jin_fail(&run->base, "at least one item has to be provided");
    EBB_TRY(ebb_jin_list_new(run, EBB_JIN_LIST, args->count, &list, &items));
    memcpy(items, args->items, (size_t)args->count * sizeof *items);
    struct ebb_jin_cycler *cycler =
        (struct ebb_jin_cycler *)ebb_jin_alloc(&run->base, sizeof *cycler);
    if (cycler == NULL) return ebb_jin_failed(&run->base);
    cycler->items = list.as.list;
    cycler->at = 0;
    out->type = EBB_JIN_CYCLER;
    out->flag = 0;
    out->as.cycler = cycler;
    return EBB_OK;
}

static enum ebb_status call_joiner(FUNCTION_ARGS)
{
    struct ebb_jin_value text;
    (void)self;
    EBB_TRY(ebb_jin_bind(run, "joiner", "sep", 0, args, &text));
    if (text.type == EBB_JIN_MISSING) EBB_TRY(ebb_jin_str_borrow(&run->base, ", ", 2, &text));
    struct ebb_jin_joiner *joiner =
        (struct ebb_jin_joiner *)ebb_jin_alloc(&run->base, sizeof *joiner);
    if (joiner == NULL) return ebb_jin_failed(&run->base);
    joiner->text = text;
    joiner->used = false;
    out->type = EBB_JIN_JOINER;
    out->flag = 0;
    out->as.joiner = joiner;
    return EBB_OK;
}

static enum ebb_status call_raise(FUNCTION_ARGS)
{
    struct ebb_jin_value message;
    struct ebb_jin_buf buf = {0};
    (void)self;
    (void)out;
    EBB_TRY(ebb_jin_bind(run, "raise_exception", "message", 1, args, &message));
    EBB_TRY(ebb_jin_print(run, message, &buf));
    int bytes = buf.bytes > 800 ? 800 : (int)buf.bytes;
    return ebb_jin_fail(&run->base, "the template refuses: %.*s", bytes,
                        buf.data != NULL ? buf.data : "");
}

/* %f, %z and %Z are Python's own; the rest is the C library's, as in Python. */
static enum ebb_status call_strftime(FUNCTION_ARGS)
{
    struct ebb_jin_value format;
    struct ebb_jin_buf plain = {0}, text = {0};
    (void)self;
    EBB_TRY(ebb_jin_bind(run, "strftime_now", "format", 1, args, &format));
    if (format.type != EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "strftime_now: a string is wanted, not %s",
                            ebb_jin_type_name(format));
    struct timespec now = {0};
    if (run->options->now != 0)
        now.tv_sec = (time_t)run->options->now;
    else
        clock_gettime(CLOCK_REALTIME, &now);
    struct tm local;
    if (localtime_r(&now.tv_sec, &local) == NULL)
        return ebb_jin_fail(&run->base, "strftime_now: the time is out of range");
    const char *data = format.as.str->data;
    for (size_t i = 0; i < format.as.str->bytes; i++) {
        char next = i + 1 < format.as.str->bytes ? data[i + 1] : '\0', micro[24];
        if (data[i] != '%' || (next != 'f' && next != 'z' && next != 'Z')) {
            /* "%%f" is a percent sign and an f. */
            size_t bytes = data[i] == '%' && next != '\0' ? 2 : 1;
            EBB_TRY(ebb_jin_buf_add(run, &plain, data + i, bytes));
            i += bytes - 1;
            continue;
        }
        snprintf(micro, sizeof micro, "%06ld", now.tv_nsec / 1000);
        if (next == 'f') EBB_TRY(ebb_jin_buf_text(run, &plain, micro));
        i++;
    }
    /* The blank in front tells an empty result from one that does not fit. */
    struct ebb_jin_buf guarded = {0};
    char out_text[1024];
    EBB_TRY(ebb_jin_buf_text(run, &guarded, " "));
    EBB_TRY(ebb_jin_buf_add(run, &guarded, plain.data, plain.bytes));
    EBB_TRY(ebb_jin_buf_add(run, &guarded, "", 1));
    if (memchr(guarded.data, '\0', guarded.bytes - 1) != NULL)
        return ebb_jin_fail(&run->base, "strftime_now: embedded null character");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t bytes = strftime(out_text, sizeof out_text, guarded.data, &local);
#pragma GCC diagnostic pop
    if (bytes == 0)
        return ebb_jin_fail(&run->base, "strftime_now: more than 1000 characters of text");
    EBB_TRY(ebb_jin_buf_add(run, &text, out_text + 1, bytes - 1));
    return ebb_jin_str_of(&run->base, &text, out);
}

static enum ebb_status call_lipsum(FUNCTION_ARGS)
{
    (void)self;
    (void)args;
    (void)out;
    return ebb_jin_refuse(&run->base, "the function 'lipsum' is not offered");
}

bool ebb_jin_global(struct ebb_jin_run *run, struct ebb_jin_value name, struct ebb_jin_value *value)
{
    static const struct ebb_jin_func functions[] = {
        {"range", call_range, {EBB_JIN_MISSING, 0, {false}}},
        {"dict", call_dict, {EBB_JIN_MISSING, 0, {false}}},
        {"namespace", call_namespace, {EBB_JIN_MISSING, 0, {false}}},
        {"cycler", call_cycler, {EBB_JIN_MISSING, 0, {false}}},
        {"joiner", call_joiner, {EBB_JIN_MISSING, 0, {false}}},
        {"lipsum", call_lipsum, {EBB_JIN_MISSING, 0, {false}}},
        {"raise_exception", call_raise, {EBB_JIN_MISSING, 0, {false}}},
        {"strftime_now", call_strftime, {EBB_JIN_MISSING, 0, {false}}},
    };
    (void)run;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (!ebb_jin_str_is(name, functions[i].name)) continue;
        value->type = EBB_JIN_FUNC;
        value->flag = 0;
        value->as.func = &functions[i];
        return true;
    }
    return false;
}
