/* Methods of strings in Jinja, as Python's str has them. Text is UTF-8, places count characters.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <string.h>

#define METHOD_ARGS                                                                                \
    struct ebb_jin_run *run, struct ebb_jin_value self, const struct ebb_jin_args *args,           \
        struct ebb_jin_value *out

/* A string or MISSING for one that was not given (None counts as that where `none`). */
static enum ebb_status want_str(struct ebb_jin_run *run, const char *what,
                                struct ebb_jin_value *value, bool none)
{
    if (none && value->type == EBB_JIN_NONE) value->type = EBB_JIN_MISSING;
    if (value->type == EBB_JIN_STR || (none && value->type == EBB_JIN_MISSING)) return EBB_OK;
    if (value->type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, *value);
    return ebb_jin_fail(&run->base, "%s: a string is wanted, not %s", what,
                        ebb_jin_type_name(*value));
}

static enum ebb_status part(struct ebb_jin_run *run, struct ebb_jin_value whole, size_t begin,
                            size_t end, struct ebb_jin_value *out)
{
    EBB_TRY(ebb_jin_str_borrow(&run->base, whole.as.str->data + begin, end - begin, out));
    out->flag = whole.flag;
    return EBB_OK;
}

/* ---- case ---- */

static enum ebb_status change_case(struct ebb_jin_run *run, struct ebb_jin_value self,
                                   enum ebb_jin_case first, enum ebb_jin_case rest,
                                   struct ebb_jin_value *out)
{
    const struct ebb_jin_str *str = self.as.str;
    struct ebb_jin_buf buf = {0};
    size_t length;
    EBB_TRY(ebb_jin_step(run, str->bytes * 16));
    for (size_t i = 0; i < str->bytes; i += length) {
        (void)ebb_jin_point(str->data, str->bytes, i, &length);
        EBB_TRY(ebb_jin_add_cased(run, &buf, i == 0 ? first : rest, str->data, str->bytes, i));
    }
    EBB_TRY(ebb_jin_str_of(&run->base, &buf, out));
    out->flag = self.flag;
    return EBB_OK;
}

static enum ebb_status str_upper(METHOD_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "upper", "", 0, args, NULL));
    return change_case(run, self, EBB_CASE_UPPER, EBB_CASE_UPPER, out);
}

static enum ebb_status str_lower(METHOD_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "lower", "", 0, args, NULL));
    return change_case(run, self, EBB_CASE_LOWER, EBB_CASE_LOWER, out);
}

static enum ebb_status str_capitalize(METHOD_ARGS)
{
    EBB_TRY(ebb_jin_bind(run, "capitalize", "", 0, args, NULL));
    return change_case(run, self, EBB_CASE_TITLE, EBB_CASE_LOWER, out);
}

static bool is_cased(int32_t point)
{
    return ebb_jin_is_upper(point) || ebb_jin_is_lower(point) || ebb_jin_is_title(point);
}

static enum ebb_status str_title(METHOD_ARGS)
{
    const struct ebb_jin_str *str = self.as.str;
    struct ebb_jin_buf buf = {0};
    size_t length;
    bool inside = false;
    EBB_TRY(ebb_jin_bind(run, "title", "", 0, args, NULL));
    EBB_TRY(ebb_jin_step(run, str->bytes * 16));
    for (size_t i = 0; i < str->bytes; i += length) {
        int32_t point = ebb_jin_point(str->data, str->bytes, i, &length);
        EBB_TRY(ebb_jin_add_cased(run, &buf, inside ? EBB_CASE_LOWER : EBB_CASE_TITLE, str->data,
                                  str->bytes, i));
        inside = is_cased(point);
    }
    return ebb_jin_str_of(&run->base, &buf, out);
}

static enum ebb_status str_swapcase(METHOD_ARGS)
{
    const struct ebb_jin_str *str = self.as.str;
    struct ebb_jin_buf buf = {0};
    size_t length;
    EBB_TRY(ebb_jin_bind(run, "swapcase", "", 0, args, NULL));
    EBB_TRY(ebb_jin_step(run, str->bytes * 16));
    for (size_t i = 0; i < str->bytes; i += length) {
        int32_t point = ebb_jin_point(str->data, str->bytes, i, &length);
        if (ebb_jin_is_upper(point))
            EBB_TRY(ebb_jin_add_cased(run, &buf, EBB_CASE_LOWER, str->data, str->bytes, i));
        else if (ebb_jin_is_lower(point))
            EBB_TRY(ebb_jin_add_cased(run, &buf, EBB_CASE_UPPER, str->data, str->bytes, i));
        else
            EBB_TRY(ebb_jin_buf_add(run, &buf, str->data + i, length));
    }
    return ebb_jin_str_of(&run->base, &buf, out);
}

/* ---- strip ---- */

/* Is the character at `at` one of `set`? */
static bool among(const struct ebb_jin_str *set, const char *data, size_t length)
{
    return memmem(set->data, set->bytes, data, length) != NULL;
}

static enum ebb_status strip(struct ebb_jin_run *run, const char *what, struct ebb_jin_value self,
                             const struct ebb_jin_args *args, bool left, bool right,
                             struct ebb_jin_value *out)
{
    const struct ebb_jin_str *str = self.as.str;
    struct ebb_jin_value chars;
    size_t begin = 0, end = str->bytes, length;
    EBB_TRY(ebb_jin_bind(run, what, "chars", 0, args, &chars));
    EBB_TRY(want_str(run, what, &chars, true));
    if (chars.type == EBB_JIN_MISSING) {
        if (left) begin = ebb_jin_space_prefix(str->data, end);
        if (right) end -= ebb_jin_space_suffix(str->data + begin, end - begin);
        return part(run, self, begin, end, out);
    }
    const struct ebb_jin_str *set = chars.as.str;
    while (left && begin < end) {
        EBB_TRY(ebb_jin_step(run, set->bytes));
        (void)ebb_jin_point(str->data, end, begin, &length);
        if (!among(set, str->data + begin, length)) break;
        begin += length;
    }
    while (right && end > begin) {
        size_t at = end;
        EBB_TRY(ebb_jin_step(run, set->bytes));
        do at--;
        while (at > begin && ((unsigned char)str->data[at] & 0xc0) == 0x80);
        if (!among(set, str->data + at, end - at)) break;
        end = at;
    }
    return part(run, self, begin, end, out);
}

static enum ebb_status str_strip(METHOD_ARGS)
{
    return strip(run, "strip", self, args, true, true, out);
}

static enum ebb_status str_lstrip(METHOD_ARGS)
{
    return strip(run, "lstrip", self, args, true, false, out);
}

static enum ebb_status str_rstrip(METHOD_ARGS)
{
    return strip(run, "rstrip", self, args, false, true, out);
}

/* ---- searching ---- */

/* Where `needle` begins in data[begin, end), the last one if `last`; SIZE_MAX: nowhere. */
static size_t search(const char *data, size_t begin, size_t end, const struct ebb_jin_str *needle,
                     bool last)
{
    if (end < begin || end - begin < needle->bytes) return SIZE_MAX;
    if (!last) {
        if (needle->bytes == 0) return begin;
        const char *found =
            (const char *)memmem(data + begin, end - begin, needle->data, needle->bytes);
        return found != NULL ? (size_t)(found - data) : SIZE_MAX;
    }
    for (size_t at = end - needle->bytes;; at--) {
        if (memcmp(data + at, needle->data, needle->bytes) == 0) return at;
        if (at == begin) return SIZE_MAX;
    }
}

/* Optional start and stop, in characters, to bytes. */
static enum ebb_status bounds(struct ebb_jin_run *run, const char *what, struct ebb_jin_str *str,
                              const struct ebb_jin_value values[2], size_t *begin, size_t *end)
{
    int64_t points = ebb_jin_str_points(str), from = 0, to = points;
    if (values[0].type != EBB_JIN_MISSING && values[0].type != EBB_JIN_NONE)
        EBB_TRY(ebb_jin_want_int(run, what, values[0], &from));
    if (values[1].type != EBB_JIN_MISSING && values[1].type != EBB_JIN_NONE)
        EBB_TRY(ebb_jin_want_int(run, what, values[1], &to));
    if (from < 0) from = from < -points ? 0 : from + points;
    if (to < 0) to = to < -points ? 0 : to + points;
    if (to > points) to = points;
    if (from > points) {
        /* Not even the empty string is found there. */
        *begin = str->bytes + 1;
        *end = str->bytes;
        return EBB_OK;
    }
    *begin = ebb_jin_str_offset(str, from);
    *end = ebb_jin_str_offset(str, to);
    return EBB_OK;
}

static enum ebb_status find(struct ebb_jin_run *run, const char *what, struct ebb_jin_value self,
                            const struct ebb_jin_args *args, bool last, bool must,
                            struct ebb_jin_value *out)
{
    struct ebb_jin_value values[3];
    size_t begin, end;
    struct ebb_jin_str *str = self.as.str;
    EBB_TRY(ebb_jin_bind(run, what, "sub start end", 1, args, values));
    EBB_TRY(want_str(run, what, &values[0], false));
    EBB_TRY(bounds(run, what, str, values + 1, &begin, &end));
    /* The backward search is plain: its cost is the product. */
    EBB_TRY(ebb_jin_step(run, last ? str->bytes * (1 + values[0].as.str->bytes / 16) : str->bytes));
    size_t at = search(str->data, begin, end, values[0].as.str, last);
    if (at == SIZE_MAX) {
        if (must) return ebb_jin_fail(&run->base, "substring not found");
        *out = ebb_jin_int(-1);
        return EBB_OK;
    }
    struct ebb_jin_str before = {str->data, at, -1};
    *out = ebb_jin_int(ebb_jin_str_points(&before));
    return EBB_OK;
}

static enum ebb_status str_find(METHOD_ARGS)
{
    return find(run, "find", self, args, false, false, out);
}

static enum ebb_status str_rfind(METHOD_ARGS)
{
    return find(run, "rfind", self, args, true, false, out);
}

static enum ebb_status str_index(METHOD_ARGS)
{
    return find(run, "index", self, args, false, true, out);
}

static enum ebb_status str_rindex(METHOD_ARGS)
{
    return find(run, "rindex", self, args, true, true, out);
}

static enum ebb_status str_count(METHOD_ARGS)
{
    struct ebb_jin_value values[3];
    size_t begin, end;
    int64_t count = 0;
    EBB_TRY(ebb_jin_bind(run, "count", "sub start end", 1, args, values));
    EBB_TRY(want_str(run, "count", &values[0], false));
    EBB_TRY(bounds(run, "count", self.as.str, values + 1, &begin, &end));
    EBB_TRY(ebb_jin_step(run, self.as.str->bytes));
    const struct ebb_jin_str *needle = values[0].as.str;
    if (needle->bytes == 0) {
        if (begin <= end) {
            struct ebb_jin_str inside = {self.as.str->data + begin, end - begin, -1};
            count = ebb_jin_str_points(&inside) + 1;
        }
    } else {
        size_t at;
        while ((at = search(self.as.str->data, begin, end, needle, false)) != SIZE_MAX) {
            count++;
            begin = at + needle->bytes;
        }
    }
    *out = ebb_jin_int(count);
    return EBB_OK;
}

/* startswith and endswith: one string or a tuple of them. */
static enum ebb_status affix(struct ebb_jin_run *run, const char *what, struct ebb_jin_value self,
                             const struct ebb_jin_args *args, bool start, struct ebb_jin_value *out)
{
    struct ebb_jin_value values[3];
    size_t begin, end;
    EBB_TRY(ebb_jin_bind(run, what, "prefix start end", 1, args, values));
    EBB_TRY(bounds(run, what, self.as.str, values + 1, &begin, &end));
    bool many = values[0].type == EBB_JIN_TUPLE, holds = false;
    int64_t count = many ? values[0].as.list->count : 1;
    for (int64_t i = 0; !holds && i < count; i++) {
        struct ebb_jin_value one = many ? values[0].as.list->items[i] : values[0];
        EBB_TRY(want_str(run, what, &one, false));
        EBB_TRY(ebb_jin_step(run, one.as.str->bytes));
        size_t bytes = one.as.str->bytes;
        holds =
            begin <= end && bytes <= end - begin &&
            memcmp(self.as.str->data + (start ? begin : end - bytes), one.as.str->data, bytes) == 0;
    }
    *out = ebb_jin_bool(holds);
    return EBB_OK;
}

static enum ebb_status str_startswith(METHOD_ARGS)
{
    return affix(run, "startswith", self, args, true, out);
}

static enum ebb_status str_endswith(METHOD_ARGS)
{
    return affix(run, "endswith", self, args, false, out);
}

static enum ebb_status remove_affix(struct ebb_jin_run *run, const char *what,
                                    struct ebb_jin_value self, const struct ebb_jin_args *args,
                                    bool start, struct ebb_jin_value *out)
{
    struct ebb_jin_value value;
    const struct ebb_jin_str *str = self.as.str;
    EBB_TRY(ebb_jin_bind(run, what, "affix", 1, args, &value));
    EBB_TRY(want_str(run, what, &value, false));
    size_t bytes = value.as.str->bytes;
    bool has = bytes <= str->bytes &&
               memcmp(str->data + (start ? 0 : str->bytes - bytes), value.as.str->data, bytes) == 0;
    if (!has) bytes = 0;
    return part(run, self, start ? bytes : 0, start ? str->bytes : str->bytes - bytes, out);
}

static enum ebb_status str_removeprefix(METHOD_ARGS)
{
    return remove_affix(run, "removeprefix", self, args, true, out);
}

static enum ebb_status str_removesuffix(METHOD_ARGS)
{
    return remove_affix(run, "removesuffix", self, args, false, out);
}

static enum ebb_status str_replace(METHOD_ARGS)
{
    struct ebb_jin_value values[3];
    struct ebb_jin_buf buf = {0};
    int64_t left = -1;
    size_t at = 0, length;
    EBB_TRY(ebb_jin_bind(run, "replace", "old new count", 2, args, values));
    EBB_TRY(want_str(run, "replace", &values[0], false));
    EBB_TRY(want_str(run, "replace", &values[1], false));
    if (values[2].type != EBB_JIN_MISSING)
        EBB_TRY(ebb_jin_want_int(run, "replace", values[2], &left));
    const struct ebb_jin_str *str = self.as.str, *old = values[0].as.str, *new = values[1].as.str;
    EBB_TRY(ebb_jin_step(run, str->bytes));
    while (left != 0) {
        size_t found = search(str->data, at, str->bytes, old, false);
        if (found == SIZE_MAX) break;
        EBB_TRY(ebb_jin_step(run, 0));
        EBB_TRY(ebb_jin_buf_add(run, &buf, str->data + at, found - at));
        EBB_TRY(ebb_jin_buf_add(run, &buf, new->data, new->bytes));
        at = found + old->bytes;
        if (left > 0) left--;
        if (old->bytes > 0) continue;
        /* Between all characters and at both ends. */
        if (at >= str->bytes) break;
        (void)ebb_jin_point(str->data, str->bytes, at, &length);
        EBB_TRY(ebb_jin_buf_add(run, &buf, str->data + at, length));
        at += length;
    }
    EBB_TRY(ebb_jin_buf_add(run, &buf, str->data + at, str->bytes - at));
    return ebb_jin_str_of(&run->base, &buf, out);
}

/* ---- splitting and joining ---- */

/* Cuts at white space. From the right, parts are collected in reverse. */
static enum ebb_status split_space(struct ebb_jin_run *run, struct ebb_jin_value self, int64_t most,
                                   bool right, struct ebb_jin_growing *list)
{
    const struct ebb_jin_str *str = self.as.str;
    size_t begin = ebb_jin_space_prefix(str->data, str->bytes);
    size_t end = str->bytes - ebb_jin_space_suffix(str->data, str->bytes);
    struct ebb_jin_value value;
    if (most >= 0) { /* the last part keeps the space at the far side */
        if (!right) end = str->bytes;
        if (right) begin = 0;
    }
    while (begin < end) {
        size_t from = begin, to = end, length;
        bool rest = most >= 0 && list->count == most;
        if (!right) {
            for (to = begin; to < end; to += length)
                if (ebb_jin_is_space(ebb_jin_point(str->data, end, to, &length))) break;
            if (rest) to = end;
        } else {
            for (from = end; from > begin; from = length) {
                size_t ignored;
                length = from;
                do length--;
                while (length > begin && ((unsigned char)str->data[length] & 0xc0) == 0x80);
                if (ebb_jin_is_space(ebb_jin_point(str->data, end, length, &ignored))) break;
            }
            if (rest) from = begin;
        }
        EBB_TRY(part(run, self, from, to, &value));
        EBB_TRY(ebb_jin_growing_add(run, list, value));
        if (right)
            end = from - ebb_jin_space_suffix(str->data + begin, from - begin);
        else
            begin = to + ebb_jin_space_prefix(str->data + to, end - to);
    }
    return EBB_OK;
}

static enum ebb_status split_at(struct ebb_jin_run *run, struct ebb_jin_value self,
                                const struct ebb_jin_str *separator, int64_t most, bool right,
                                struct ebb_jin_growing *list)
{
    const struct ebb_jin_str *str = self.as.str;
    size_t begin = 0, end = str->bytes;
    struct ebb_jin_value value;
    if (separator->bytes == 0) return ebb_jin_fail(&run->base, "empty separator");
    while (most < 0 || list->count < most) {
        size_t at = search(str->data, begin, end, separator, right);
        if (at == SIZE_MAX) break;
        size_t behind = at + separator->bytes;
        EBB_TRY(right ? part(run, self, behind, end, &value) : part(run, self, begin, at, &value));
        EBB_TRY(ebb_jin_growing_add(run, list, value));
        if (right)
            end = at;
        else
            begin = behind;
    }
    EBB_TRY(part(run, self, begin, end, &value));
    return ebb_jin_growing_add(run, list, value);
}

static enum ebb_status split(struct ebb_jin_run *run, const char *what, struct ebb_jin_value self,
                             const struct ebb_jin_args *args, bool right, struct ebb_jin_value *out)
{
    struct ebb_jin_value values[2];
    struct ebb_jin_growing list = {0};
    int64_t most = -1;
    EBB_TRY(ebb_jin_bind(run, what, "sep maxsplit", 0, args, values));
    EBB_TRY(want_str(run, what, &values[0], true));
    if (values[1].type != EBB_JIN_MISSING) EBB_TRY(ebb_jin_want_int(run, what, values[1], &most));
    bool space = values[0].type == EBB_JIN_MISSING;
    EBB_TRY(ebb_jin_step(run, self.as.str->bytes * (space || !right ? 1 : 4)));
    EBB_TRY(space ? split_space(run, self, most, right, &list)
                  : split_at(run, self, values[0].as.str, most, right, &list));
    for (int64_t i = 0; right && i < list.count / 2; i++) {
        struct ebb_jin_value other = list.items[i];
        list.items[i] = list.items[list.count - 1 - i];
        list.items[list.count - 1 - i] = other;
    }
    return ebb_jin_growing_end(run, &list, out);
}

static enum ebb_status str_split(METHOD_ARGS)
{
    return split(run, "split", self, args, false, out);
}

static enum ebb_status str_rsplit(METHOD_ARGS)
{
    return split(run, "rsplit", self, args, true, out);
}

static enum ebb_status str_splitlines(METHOD_ARGS)
{
    struct ebb_jin_value keep, line;
    struct ebb_jin_growing list = {0};
    const struct ebb_jin_str *str = self.as.str;
    size_t begin = 0, length;
    EBB_TRY(ebb_jin_bind(run, "splitlines", "keepends", 0, args, &keep));
    EBB_TRY(ebb_jin_step(run, str->bytes * 4));
    for (size_t i = 0; i < str->bytes;) {
        size_t end = ebb_jin_line_end(str->data, str->bytes, i);
        if (end == 0) {
            (void)ebb_jin_point(str->data, str->bytes, i, &length);
            i += length;
            continue;
        }
        EBB_TRY(part(run, self, begin, ebb_jin_truth(keep) ? i + end : i, &line));
        EBB_TRY(ebb_jin_growing_add(run, &list, line));
        begin = i = i + end;
    }
    if (begin < str->bytes) {
        EBB_TRY(part(run, self, begin, str->bytes, &line));
        EBB_TRY(ebb_jin_growing_add(run, &list, line));
    }
    return ebb_jin_growing_end(run, &list, out);
}

static enum ebb_status partition(struct ebb_jin_run *run, const char *what,
                                 struct ebb_jin_value self, const struct ebb_jin_args *args,
                                 bool right, struct ebb_jin_value *out)
{
    struct ebb_jin_value separator, *items;
    EBB_TRY(ebb_jin_bind(run, what, "sep", 1, args, &separator));
    EBB_TRY(want_str(run, what, &separator, false));
    size_t bytes = self.as.str->bytes, width = separator.as.str->bytes;
    if (width == 0) return ebb_jin_fail(&run->base, "empty separator");
    EBB_TRY(ebb_jin_step(run, bytes * (right ? 4 : 1)));
    size_t at = search(self.as.str->data, 0, bytes, separator.as.str, right);
    EBB_TRY(ebb_jin_list_new(run, EBB_JIN_TUPLE, 3, out, &items));
    size_t cut = at != SIZE_MAX ? at
                 : right        ? 0
                                : bytes,
           behind = at != SIZE_MAX ? at + width : cut;
    EBB_TRY(part(run, self, 0, cut, &items[0]));
    EBB_TRY(part(run, self, cut, behind, &items[1]));
    return part(run, self, behind, bytes, &items[2]);
}

static enum ebb_status str_partition(METHOD_ARGS)
{
    return partition(run, "partition", self, args, false, out);
}

static enum ebb_status str_rpartition(METHOD_ARGS)
{
    return partition(run, "rpartition", self, args, true, out);
}

static enum ebb_status str_join(METHOD_ARGS)
{
    struct ebb_jin_value values, item;
    struct ebb_jin_iter *iter;
    struct ebb_jin_buf buf = {0};
    bool more;
    EBB_TRY(ebb_jin_bind(run, "join", "iterable", 1, args, &values));
    EBB_TRY(ebb_jin_iterate(run, values, &iter));
    for (int64_t i = 0;; i++) {
        EBB_TRY(ebb_jin_next(run, iter, &item, &more));
        if (!more) break;
        if (item.type != EBB_JIN_STR)
            return ebb_jin_fail(&run->base, "sequence item %lld: expected str instance, %s found",
                                (long long)i, ebb_jin_type_name(item));
        if (i > 0) EBB_TRY(ebb_jin_buf_add(run, &buf, self.as.str->data, self.as.str->bytes));
        EBB_TRY(ebb_jin_buf_add(run, &buf, item.as.str->data, item.as.str->bytes));
    }
    return ebb_jin_str_of(&run->base, &buf, out);
}

/* ---- padding ---- */

static enum ebb_status add_fill(struct ebb_jin_run *run, struct ebb_jin_buf *buf, int64_t count,
                                const struct ebb_jin_str *fill)
{
    for (int64_t i = 0; i < count; i++) {
        EBB_TRY(ebb_jin_step(run, 0));
        EBB_TRY(ebb_jin_buf_add(run, buf, fill->data, fill->bytes));
    }
    return EBB_OK;
}

static enum ebb_status justify(struct ebb_jin_run *run, const char *what, struct ebb_jin_value self,
                               const struct ebb_jin_args *args, int side, struct ebb_jin_value *out)
{
    struct ebb_jin_value values[2];
    struct ebb_jin_str blank = {" ", 1, 1};
    struct ebb_jin_buf buf = {0};
    int64_t width, left = 0;
    EBB_TRY(ebb_jin_bind(run, what, "width fillchar", 1, args, values));
    EBB_TRY(ebb_jin_want_int(run, what, values[0], &width));
    if (values[1].type != EBB_JIN_MISSING) {
        EBB_TRY(want_str(run, what, &values[1], false));
        if (ebb_jin_str_points(values[1].as.str) != 1)
            return ebb_jin_fail(&run->base,
                                "The fill character must be exactly one character long");
        blank = *values[1].as.str;
    }
    int64_t points = ebb_jin_str_points(self.as.str), missing = width > points ? width - points : 0;
    if (side > 0) left = missing;
    if (side == 0) left = missing / 2 + (missing & width & 1);
    EBB_TRY(add_fill(run, &buf, left, &blank));
    EBB_TRY(ebb_jin_buf_add(run, &buf, self.as.str->data, self.as.str->bytes));
    EBB_TRY(add_fill(run, &buf, missing - left, &blank));
    return ebb_jin_str_of(&run->base, &buf, out);
}

static enum ebb_status str_ljust(METHOD_ARGS)
{
    return justify(run, "ljust", self, args, -1, out);
}

static enum ebb_status str_rjust(METHOD_ARGS)
{
    return justify(run, "rjust", self, args, 1, out);
}

static enum ebb_status str_center(METHOD_ARGS)
{
    return justify(run, "center", self, args, 0, out);
}

static enum ebb_status str_zfill(METHOD_ARGS)
{
    struct ebb_jin_value value;
    struct ebb_jin_str zero = {"0", 1, 1};
    struct ebb_jin_buf buf = {0};
    int64_t width;
    const char *data = self.as.str->data;
    size_t bytes = self.as.str->bytes, sign = bytes > 0 && (data[0] == '-' || data[0] == '+');
    EBB_TRY(ebb_jin_bind(run, "zfill", "width", 1, args, &value));
    EBB_TRY(ebb_jin_want_int(run, "zfill", value, &width));
    EBB_TRY(ebb_jin_buf_add(run, &buf, data, sign));
    EBB_TRY(add_fill(run, &buf, width - ebb_jin_str_points(self.as.str), &zero));
    EBB_TRY(ebb_jin_buf_add(run, &buf, data + sign, bytes - sign));
    return ebb_jin_str_of(&run->base, &buf, out);
}

static enum ebb_status str_expandtabs(METHOD_ARGS)
{
    struct ebb_jin_value value;
    struct ebb_jin_str blank = {" ", 1, 1};
    struct ebb_jin_buf buf = {0};
    int64_t size = 8, column = 0;
    const struct ebb_jin_str *str = self.as.str;
    EBB_TRY(ebb_jin_bind(run, "expandtabs", "tabsize", 0, args, &value));
    if (value.type != EBB_JIN_MISSING) EBB_TRY(ebb_jin_want_int(run, "expandtabs", value, &size));
    for (size_t i = 0; i < str->bytes; i++) {
        char c = str->data[i];
        if (c == '\t') {
            int64_t width = size > 0 ? size - column % size : 0;
            EBB_TRY(add_fill(run, &buf, width, &blank));
            column += width;
            continue;
        }
        EBB_TRY(ebb_jin_buf_add(run, &buf, &c, 1));
        column = c == '\n' || c == '\r' ? 0 : column + (((unsigned char)c & 0xc0) != 0x80);
    }
    EBB_TRY(ebb_jin_step(run, str->bytes * 16));
    return ebb_jin_str_of(&run->base, &buf, out);
}

/* ---- classes of characters ---- */

static bool is_alnum(int32_t point)
{
    return ebb_jin_is_alpha(point) || ebb_jin_is_numeric(point);
}

static bool is_ascii(int32_t point)
{
    return point < 0x80;
}

static enum ebb_status all_are(struct ebb_jin_run *run, struct ebb_jin_value self,
                               const struct ebb_jin_args *args, bool (*is)(int32_t), bool empty,
                               struct ebb_jin_value *out)
{
    const struct ebb_jin_str *str = self.as.str;
    bool all = str->bytes > 0 || empty;
    size_t length;
    EBB_TRY(ebb_jin_bind(run, "this method", "", 0, args, NULL));
    EBB_TRY(ebb_jin_step(run, str->bytes * 8));
    for (size_t i = 0; all && i < str->bytes; i += length)
        all = is(ebb_jin_point(str->data, str->bytes, i, &length));
    *out = ebb_jin_bool(all);
    return EBB_OK;
}

static enum ebb_status str_isalnum(METHOD_ARGS)
{
    return all_are(run, self, args, is_alnum, false, out);
}

static enum ebb_status str_isalpha(METHOD_ARGS)
{
    return all_are(run, self, args, ebb_jin_is_alpha, false, out);
}

static enum ebb_status str_isascii(METHOD_ARGS)
{
    return all_are(run, self, args, is_ascii, true, out);
}

static enum ebb_status str_isdecimal(METHOD_ARGS)
{
    return all_are(run, self, args, ebb_jin_is_decimal, false, out);
}

static enum ebb_status str_isdigit(METHOD_ARGS)
{
    return all_are(run, self, args, ebb_jin_is_digit, false, out);
}

static enum ebb_status str_isnumeric(METHOD_ARGS)
{
    return all_are(run, self, args, ebb_jin_is_numeric, false, out);
}

static enum ebb_status str_isprintable(METHOD_ARGS)
{
    return all_are(run, self, args, ebb_jin_is_printable, true, out);
}

static enum ebb_status str_isspace(METHOD_ARGS)
{
    return all_are(run, self, args, ebb_jin_is_space, false, out);
}

static enum ebb_status str_isidentifier(METHOD_ARGS)
{
    EBB_TRY(all_are(run, self, args, ebb_jin_is_word, false, out));
    char first = self.as.str->bytes > 0 ? self.as.str->data[0] : '0';
    if (first >= '0' && first <= '9') *out = ebb_jin_bool(false);
    return EBB_OK;
}

/* Some cased character, and none of the other case. */
static enum ebb_status one_case(struct ebb_jin_run *run, struct ebb_jin_value self,
                                const struct ebb_jin_args *args, bool upper,
                                struct ebb_jin_value *out)
{
    const struct ebb_jin_str *str = self.as.str;
    bool some = false, other = false;
    size_t length;
    EBB_TRY(ebb_jin_bind(run, upper ? "isupper" : "islower", "", 0, args, NULL));
    EBB_TRY(ebb_jin_step(run, str->bytes * 8));
    for (size_t i = 0; !other && i < str->bytes; i += length) {
        int32_t point = ebb_jin_point(str->data, str->bytes, i, &length);
        some |= upper ? ebb_jin_is_upper(point) : ebb_jin_is_lower(point);
        other =
            (upper ? ebb_jin_is_lower(point) : ebb_jin_is_upper(point)) || ebb_jin_is_title(point);
    }
    *out = ebb_jin_bool(some && !other);
    return EBB_OK;
}

static enum ebb_status str_isupper(METHOD_ARGS)
{
    return one_case(run, self, args, true, out);
}

static enum ebb_status str_islower(METHOD_ARGS)
{
    return one_case(run, self, args, false, out);
}

static enum ebb_status str_istitle(METHOD_ARGS)
{
    const struct ebb_jin_str *str = self.as.str;
    bool inside = false, some = false, good = true;
    size_t length;
    EBB_TRY(ebb_jin_bind(run, "istitle", "", 0, args, NULL));
    EBB_TRY(ebb_jin_step(run, str->bytes * 8));
    for (size_t i = 0; good && i < str->bytes; i += length) {
        int32_t point = ebb_jin_point(str->data, str->bytes, i, &length);
        bool high = ebb_jin_is_upper(point) || ebb_jin_is_title(point);
        bool low = ebb_jin_is_lower(point);
        if (high) good = !inside;
        if (low) good = inside;
        some |= high || low;
        inside = high || low;
    }
    *out = ebb_jin_bool(some && good);
    return EBB_OK;
}

const struct ebb_jin_entry_fn *ebb_jin_str_methods(void)
{
    static const struct ebb_jin_entry_fn methods[] = {
        {"capitalize", str_capitalize},
        {"casefold", NULL},
        {"center", str_center},
        {"count", str_count},
        {"encode", NULL},
        {"endswith", str_endswith},
        {"expandtabs", str_expandtabs},
        {"find", str_find},
        {"format", ebb_jin_format},
        {"format_map", NULL},
        {"index", str_index},
        {"isalnum", str_isalnum},
        {"isalpha", str_isalpha},
        {"isascii", str_isascii},
        {"isdecimal", str_isdecimal},
        {"isdigit", str_isdigit},
        {"isidentifier", str_isidentifier},
        {"islower", str_islower},
        {"isnumeric", str_isnumeric},
        {"isprintable", str_isprintable},
        {"isspace", str_isspace},
        {"istitle", str_istitle},
        {"isupper", str_isupper},
        {"join", str_join},
        {"ljust", str_ljust},
        {"lower", str_lower},
        {"lstrip", str_lstrip},
        {"maketrans", NULL},
        {"partition", str_partition},
        {"removeprefix", str_removeprefix},
        {"removesuffix", str_removesuffix},
        {"replace", str_replace},
        {"rfind", str_rfind},
        {"rindex", str_rindex},
        {"rjust", str_rjust},
        {"rpartition", str_rpartition},
        {"rsplit", str_rsplit},
        {"rstrip", str_rstrip},
        {"split", str_split},
        {"splitlines", str_splitlines},
        {"startswith", str_startswith},
        {"strip", str_strip},
        {"swapcase", str_swapcase},
        {"title", str_title},
        {"translate", NULL},
        {"upper", str_upper},
        {"zfill", str_zfill},
        {NULL, NULL},
    };
    return methods;
}
