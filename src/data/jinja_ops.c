/* Operators of the Jinja interpreter, with Python's meaning: truth, equality, order, arithmetic,
 * membership, slices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include "base/file.h"

#include <math.h>
#include <string.h>

bool ebb_jin_truth(struct ebb_jin_value value)
{
    int64_t length;
    switch (value.type) {
    case EBB_JIN_MISSING:
    case EBB_JIN_UNDEFINED:
    case EBB_JIN_NONE:
        return false;
    case EBB_JIN_BOOL:
        return value.as.truth;
    case EBB_JIN_INT:
        return value.as.integer != 0;
    case EBB_JIN_FLOAT:
        return value.as.number != 0.0;
    case EBB_JIN_ITER:
    case EBB_JIN_NAMESPACE:
    case EBB_JIN_MACRO:
    case EBB_JIN_FUNC:
    case EBB_JIN_CYCLER:
    case EBB_JIN_LOOP:
    case EBB_JIN_JOINER:
        return true;
    default:
        return !ebb_jin_length(value, &length) || length != 0;
    }
}

bool ebb_jin_same(struct ebb_jin_value a, struct ebb_jin_value b)
{
    if (a.type != b.type) return false;
    switch (a.type) {
    case EBB_JIN_NONE:
        return true;
    case EBB_JIN_BOOL:
        return a.as.truth == b.as.truth;
    case EBB_JIN_INT:
        return a.as.integer == b.as.integer;
    case EBB_JIN_FLOAT:
        return false;
    case EBB_JIN_STR:
        return a.as.str->data == b.as.str->data && a.as.str->bytes == b.as.str->bytes;
    default:
        return a.as.list == b.as.list;
    }
}

/* ---- equality and hashes ---- */

static bool numbers_equal(struct ebb_jin_value a, struct ebb_jin_value b)
{
    if (ebb_jin_is_int(a) && ebb_jin_is_int(b)) return ebb_jin_integer(a) == ebb_jin_integer(b);
    return ebb_jin_number(a) == ebb_jin_number(b);
}

static enum ebb_status lists_equal(struct ebb_jin_run *run, const struct ebb_jin_list *a,
                                   const struct ebb_jin_list *b, bool *equal)
{
    *equal = a->count == b->count;
    if (a == b) return EBB_OK;
    for (int64_t i = 0; *equal && i < a->count; i++)
        EBB_TRY(ebb_jin_equal(run, a->items[i], b->items[i], equal));
    return EBB_OK;
}

static enum ebb_status dicts_equal(struct ebb_jin_run *run, const struct ebb_jin_dict *a,
                                   const struct ebb_jin_dict *b, bool *equal)
{
    *equal = a->count == b->count;
    if (a == b) return EBB_OK;
    for (int64_t i = 0; *equal && i < a->count; i++) {
        const struct ebb_jin_value *found;
        EBB_TRY(ebb_jin_dict_get(run, b, a->items[i].key, false, &found));
        *equal = found != NULL;
        if (found != NULL) EBB_TRY(ebb_jin_equal(run, a->items[i].value, *found, equal));
    }
    return EBB_OK;
}

enum ebb_status ebb_jin_equal(struct ebb_jin_run *run, struct ebb_jin_value a,
                              struct ebb_jin_value b, bool *equal)
{
    enum ebb_status status = EBB_OK;
    EBB_TRY(ebb_jin_step(run, 0));
    if (ebb_jin_is_number(a) && ebb_jin_is_number(b)) {
        *equal = numbers_equal(a, b);
        return EBB_OK;
    }
    *equal = false;
    if (a.type != b.type) return EBB_OK;
    switch (a.type) {
    case EBB_JIN_NONE:
    case EBB_JIN_UNDEFINED:
        *equal = true;
        return EBB_OK;
    case EBB_JIN_STR:
        if (a.as.str->bytes != b.as.str->bytes) return EBB_OK;
        *equal = memcmp(a.as.str->data, b.as.str->data, a.as.str->bytes) == 0;
        return ebb_jin_step(run, a.as.str->bytes);
    case EBB_JIN_LIST:
    case EBB_JIN_TUPLE:
    case EBB_JIN_DICT:
        EBB_TRY(ebb_jin_enter(run));
        status = a.type == EBB_JIN_DICT ? dicts_equal(run, a.as.dict, b.as.dict, equal)
                                        : lists_equal(run, a.as.list, b.as.list, equal);
        run->depth--;
        return status;
    case EBB_JIN_RANGE: {
        const struct ebb_jin_range *x = a.as.range, *y = b.as.range;
        *equal = x->count == y->count &&
                 (x->count == 0 || (x->start == y->start && (x->count == 1 || x->step == y->step)));
        return EBB_OK;
    }
    default:
        *equal = ebb_jin_same(a, b);
        return EBB_OK;
    }
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t pair[2] = {a, b};
    return ebb_hash_bytes(pair, sizeof pair);
}

enum ebb_status ebb_jin_hash(struct ebb_jin_run *run, struct ebb_jin_value value, bool quiet,
                             bool *possible, uint64_t *hash)
{
    if (possible != NULL) *possible = true;
    *hash = (uint64_t)value.type;
    switch (value.type) {
    case EBB_JIN_BOOL:
    case EBB_JIN_INT:
    case EBB_JIN_FLOAT: {
        /* Equal numbers hash alike, whatever their type. */
        double number = ebb_jin_number(value);
        if (number == 0.0) number = 0.0;
        *hash = ebb_hash_bytes(&number, sizeof number);
        return EBB_OK;
    }
    case EBB_JIN_STR:
        *hash = ebb_hash_bytes(value.as.str->data, value.as.str->bytes);
        return value.as.str->bytes >= 256 ? ebb_jin_step(run, value.as.str->bytes) : EBB_OK;
    case EBB_JIN_TUPLE:
        EBB_TRY(ebb_jin_enter(run));
        for (int64_t i = 0; i < value.as.list->count; i++) {
            uint64_t inner;
            EBB_TRY(ebb_jin_step(run, 0));
            EBB_TRY(ebb_jin_hash(run, value.as.list->items[i], quiet, possible, &inner));
            if (possible != NULL && !*possible) break;
            *hash = mix(*hash, inner);
        }
        run->depth--;
        return EBB_OK;
    case EBB_JIN_LIST:
    case EBB_JIN_DICT:
    case EBB_JIN_VIEW:
        if (possible != NULL) *possible = false;
        if (quiet) return EBB_OK;
        return ebb_jin_fail(&run->base, "unhashable type: '%s'", ebb_jin_type_name(value));
    case EBB_JIN_UNDEFINED:
    case EBB_JIN_NONE:
        return EBB_OK;
    case EBB_JIN_RANGE:
        *hash = mix(*hash, (uint64_t)value.as.range->count);
        return EBB_OK;
    default:
        *hash = mix(*hash, (uint64_t)(uintptr_t)value.as.list);
        return EBB_OK;
    }
}

/* ---- order ---- */

static bool holds(int op, int order)
{
    switch (op) {
    case EBB_JIN_TOK_LT:
        return order < 0;
    case EBB_JIN_TOK_LTEQ:
        return order <= 0;
    case EBB_JIN_TOK_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

static bool numbers_hold(int op, struct ebb_jin_value a, struct ebb_jin_value b)
{
    if (ebb_jin_is_int(a) && ebb_jin_is_int(b)) {
        int64_t x = ebb_jin_integer(a), y = ebb_jin_integer(b);
        return holds(op, x < y ? -1 : x > y);
    }
    double x = ebb_jin_number(a), y = ebb_jin_number(b);
    switch (op) { /* NaN is in no order */
    case EBB_JIN_TOK_LT:
        return x < y;
    case EBB_JIN_TOK_LTEQ:
        return x <= y;
    case EBB_JIN_TOK_GT:
        return x > y;
    default:
        return x >= y;
    }
}

static enum ebb_status lists_hold(struct ebb_jin_run *run, int op, const struct ebb_jin_list *a,
                                  const struct ebb_jin_list *b, bool *result)
{
    int64_t both = a->count < b->count ? a->count : b->count;
    for (int64_t i = 0; i < both; i++) {
        bool equal;
        EBB_TRY(ebb_jin_equal(run, a->items[i], b->items[i], &equal));
        if (!equal) return ebb_jin_order(run, op, a->items[i], b->items[i], result);
    }
    *result = holds(op, a->count < b->count ? -1 : a->count > b->count);
    return EBB_OK;
}

enum ebb_status ebb_jin_order(struct ebb_jin_run *run, int op, struct ebb_jin_value a,
                              struct ebb_jin_value b, bool *result)
{
    EBB_TRY(ebb_jin_step(run, 0));
    if (a.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, a);
    if (b.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, b);
    if (ebb_jin_is_number(a) && ebb_jin_is_number(b)) {
        *result = numbers_hold(op, a, b);
        return EBB_OK;
    }
    if (a.type == b.type && a.type == EBB_JIN_STR) {
        size_t x = a.as.str->bytes, y = b.as.str->bytes, both = x < y ? x : y;
        int order = memcmp(a.as.str->data, b.as.str->data, both);
        *result = holds(op, order != 0 ? order : x < y ? -1 : x > y);
        return ebb_jin_step(run, both);
    }
    if (a.type == b.type && (a.type == EBB_JIN_LIST || a.type == EBB_JIN_TUPLE)) {
        EBB_TRY(ebb_jin_enter(run));
        enum ebb_status status = lists_hold(run, op, a.as.list, b.as.list, result);
        run->depth--;
        return status;
    }
    return ebb_jin_fail(&run->base, "'%s' not supported between instances of '%s' and '%s'",
                        ebb_jin_token_text((enum ebb_jin_token_type)op), ebb_jin_type_name(a),
                        ebb_jin_type_name(b));
}

/* ---- membership ---- */

enum ebb_status ebb_jin_contains(struct ebb_jin_run *run, struct ebb_jin_value container,
                                 struct ebb_jin_value item, bool *found)
{
    *found = false;
    if (container.type == EBB_JIN_STR) {
        if (item.type != EBB_JIN_STR)
            return ebb_jin_fail(&run->base, "'in <string>' requires string as left operand, not %s",
                                ebb_jin_type_name(item));
        const struct ebb_jin_str *in = container.as.str, *part = item.as.str;
        *found = part->bytes == 0 || memmem(in->data, in->bytes, part->data, part->bytes) != NULL;
        return ebb_jin_step(run, in->bytes);
    }
    if (container.type == EBB_JIN_DICT ||
        (container.type == EBB_JIN_VIEW && container.flag == EBB_JIN_KEYS)) {
        const struct ebb_jin_value *value;
        EBB_TRY(ebb_jin_dict_get(run, container.as.dict, item, false, &value));
        *found = value != NULL;
        return EBB_OK;
    }
    if (!ebb_jin_is_iterable(container))
        return ebb_jin_fail(&run->base, "argument of type '%s' is not iterable",
                            ebb_jin_type_name(container));
    struct ebb_jin_iter *iter;
    struct ebb_jin_value value;
    bool more = true;
    EBB_TRY(ebb_jin_iterate(run, container, &iter));
    while (!*found) {
        EBB_TRY(ebb_jin_next(run, iter, &value, &more));
        if (!more) break;
        *found = ebb_jin_same(value, item);
        if (!*found) EBB_TRY(ebb_jin_equal(run, value, item, found));
    }
    return EBB_OK;
}

/* ---- arithmetic ---- */

static enum ebb_status too_large(struct ebb_jin_run *run)
{
    return ebb_jin_fail(&run->base, "an integer has more than 64 bits");
}

static enum ebb_status int_power(struct ebb_jin_run *run, int64_t base, int64_t exponent,
                                 struct ebb_jin_value *out)
{
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
            return too_large(run);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large(run);
    }
    *out = ebb_jin_int(result);
    return EBB_OK;
}

static enum ebb_status int_binary(struct ebb_jin_run *run, int op, int64_t a, int64_t b,
                                  struct ebb_jin_value *out)
{
    int64_t result = 0;
    switch (op) {
    case EBB_JIN_TOK_ADD:
        if (__builtin_add_overflow(a, b, &result)) return too_large(run);
        break;
    case EBB_JIN_TOK_SUB:
        if (__builtin_sub_overflow(a, b, &result)) return too_large(run);
        break;
    case EBB_JIN_TOK_MUL:
        if (__builtin_mul_overflow(a, b, &result)) return too_large(run);
        break;
    case EBB_JIN_TOK_POW:
        return int_power(run, a, b, out);
    default: /* FLOORDIV, MOD: rounded down, as the divisor has the remainder's sign */
        if (b == 0) return ebb_jin_fail(&run->base, "integer division or modulo by zero");
        if (b == -1) {
            if (op == EBB_JIN_TOK_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &result))
                return too_large(run);
            break;
        }
        result = op == EBB_JIN_TOK_FLOORDIV ? a / b : a % b;
        if (a % b != 0 && (a % b < 0) != (b < 0)) result += op == EBB_JIN_TOK_FLOORDIV ? -1 : b;
        break;
    }
    *out = ebb_jin_int(result);
    return EBB_OK;
}

static enum ebb_status float_binary(struct ebb_jin_run *run, int op, double a, double b,
                                    struct ebb_jin_value *out)
{
    double result = 0.0;
    if ((op == EBB_JIN_TOK_DIV || op == EBB_JIN_TOK_FLOORDIV || op == EBB_JIN_TOK_MOD) && b == 0.0)
        return ebb_jin_fail(&run->base, "division by zero");
    switch (op) {
    case EBB_JIN_TOK_ADD:
        result = a + b;
        break;
    case EBB_JIN_TOK_SUB:
        result = a - b;
        break;
    case EBB_JIN_TOK_MUL:
        result = a * b;
        break;
    case EBB_JIN_TOK_DIV:
        result = a / b;
        break;
    case EBB_JIN_TOK_POW:
        if (a == 0.0 && b < 0.0)
            return ebb_jin_fail(&run->base, "0.0 cannot be raised to a negative power");
        if (a < 0.0 && b != floor(b) && isfinite(b))
            return ebb_jin_refuse(&run->base, "complex numbers are not offered");
        result = pow(a, b);
        if (!isfinite(result) && isfinite(a) && isfinite(b))
            return ebb_jin_fail(&run->base, "numerical result out of range");
        break;
    default: { /* FLOORDIV, MOD */
        double rest = fmod(a, b);
        double quotient = (a - rest) / b;
        if (rest != 0.0) {
            if ((b < 0.0) != (rest < 0.0)) {
                rest += b;
                quotient -= 1.0;
            }
        } else {
            rest = copysign(0.0, b);
        }
        if (quotient != 0.0) {
            double whole = floor(quotient);
            quotient = quotient - whole > 0.5 ? whole + 1.0 : whole;
        } else {
            quotient = copysign(0.0, a / b);
        }
        result = op == EBB_JIN_TOK_MOD ? rest : quotient;
    }
    }
    *out = ebb_jin_float(result);
    return EBB_OK;
}

static void escape_add(struct ebb_jin_buf *buf, const char *data, size_t bytes,
                       struct ebb_jin_run *run, enum ebb_status *status)
{
    for (size_t i = 0; i < bytes && *status == EBB_OK; i++) {
        const char *text = NULL;
        switch (data[i]) {
        case '&':
            text = "&amp;";
            break;
        case '<':
            text = "&lt;";
            break;
        case '>':
            text = "&gt;";
            break;
        case '\'':
            text = "&#39;";
            break;
        case '"':
            text = "&#34;";
            break;
        default:
            break;
        }
        *status = text != NULL ? ebb_jin_buf_text(run, buf, text)
                               : ebb_jin_buf_add(run, buf, data + i, 1);
    }
}

/* Text marked safe stays so; what is added to it is escaped. */
static enum ebb_status add_strings(struct ebb_jin_run *run, struct ebb_jin_value a,
                                   struct ebb_jin_value b, struct ebb_jin_value *out)
{
    struct ebb_jin_buf buf = {0};
    enum ebb_status status = EBB_OK;
    bool safe = a.flag != 0 || b.flag != 0;
    if (safe && a.flag == 0)
        escape_add(&buf, a.as.str->data, a.as.str->bytes, run, &status);
    else
        status = ebb_jin_buf_add(run, &buf, a.as.str->data, a.as.str->bytes);
    if (status == EBB_OK && safe && b.flag == 0)
        escape_add(&buf, b.as.str->data, b.as.str->bytes, run, &status);
    else if (status == EBB_OK)
        status = ebb_jin_buf_add(run, &buf, b.as.str->data, b.as.str->bytes);
    EBB_TRY(status);
    EBB_TRY(ebb_jin_str_of(&run->base, &buf, out));
    out->flag = safe ? 1 : 0;
    return EBB_OK;
}

static enum ebb_status add_lists(struct ebb_jin_run *run, struct ebb_jin_value a,
                                 struct ebb_jin_value b, struct ebb_jin_value *out)
{
    struct ebb_jin_value *items;
    int64_t first = a.as.list->count, second = b.as.list->count;
    EBB_TRY(ebb_jin_list_new(run, a.type, first + second, out, &items));
    if (first > 0) memcpy(items, a.as.list->items, (size_t)first * sizeof *items);
    if (second > 0) memcpy(items + first, b.as.list->items, (size_t)second * sizeof *items);
    return EBB_OK;
}

static enum ebb_status repeat(struct ebb_jin_run *run, struct ebb_jin_value value, int64_t times,
                              struct ebb_jin_value *out)
{
    int64_t each = value.type == EBB_JIN_STR ? (int64_t)value.as.str->bytes : value.as.list->count;
    int64_t total = 0, limit = run->limits.memory_bytes;
    if (times < 0) times = 0;
    if (__builtin_mul_overflow(each, times, &total) || total > limit ||
        (value.type != EBB_JIN_STR && total > limit / (int64_t)sizeof value))
        return ebb_jin_fail(&run->base, "the limit of %lld bytes of memory is reached",
                            (long long)limit);
    if (value.type == EBB_JIN_STR) {
        if (total > run->limits.output_bytes)
            return ebb_jin_fail(&run->base, "the limit of %lld bytes of output is reached",
                                (long long)run->limits.output_bytes);
        EBB_TRY(ebb_jin_step(run, (size_t)total));
        char *text = (char *)ebb_jin_alloc(&run->base, (size_t)total + 1);
        if (text == NULL) return ebb_jin_failed(&run->base);
        if (total > 0) memcpy(text, value.as.str->data, (size_t)each);
        for (int64_t done = each; done < total; done *= 2)
            memcpy(text + done, text, (size_t)(total - done < done ? total - done : done));
        EBB_TRY(ebb_jin_str_borrow(&run->base, text, (size_t)total, out));
        out->flag = value.flag;
        return EBB_OK;
    }
    struct ebb_jin_value *items;
    EBB_TRY(ebb_jin_list_new(run, value.type, total, out, &items));
    for (int64_t i = 0; i < total; i++) items[i] = value.as.list->items[i % each];
    return EBB_OK;
}

static bool is_sequence(struct ebb_jin_value value)
{
    return value.type == EBB_JIN_STR || value.type == EBB_JIN_LIST || value.type == EBB_JIN_TUPLE;
}

static enum ebb_status numbers(struct ebb_jin_run *run, int op, struct ebb_jin_value a,
                               struct ebb_jin_value b, struct ebb_jin_value *out)
{
    bool whole = ebb_jin_is_int(a) && ebb_jin_is_int(b) && op != EBB_JIN_TOK_DIV &&
                 !(op == EBB_JIN_TOK_POW && ebb_jin_integer(b) < 0);
    if (whole) return int_binary(run, op, ebb_jin_integer(a), ebb_jin_integer(b), out);
    return float_binary(run, op, ebb_jin_number(a), ebb_jin_number(b), out);
}

enum ebb_status ebb_jin_binary(struct ebb_jin_run *run, int op, struct ebb_jin_value a,
                               struct ebb_jin_value b, struct ebb_jin_value *out)
{
    if (op == EBB_JIN_TOK_MOD && a.type == EBB_JIN_STR) {
        /* Python asks the text first, whatever the other side is. */
        return ebb_jin_percent(run, a, b, out);
    }
    if (a.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, a);
    if (b.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, b);
    if (ebb_jin_is_number(a) && ebb_jin_is_number(b)) return numbers(run, op, a, b, out);
    if (op == EBB_JIN_TOK_ADD && a.type == b.type) {
        if (a.type == EBB_JIN_STR) return add_strings(run, a, b, out);
        if (a.type == EBB_JIN_LIST || a.type == EBB_JIN_TUPLE) return add_lists(run, a, b, out);
    }
    if (op == EBB_JIN_TOK_MUL && is_sequence(a) && ebb_jin_is_int(b))
        return repeat(run, a, ebb_jin_integer(b), out);
    if (op == EBB_JIN_TOK_MUL && is_sequence(b) && ebb_jin_is_int(a))
        return repeat(run, b, ebb_jin_integer(a), out);
    if (op == EBB_JIN_TOK_ADD && a.type == EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "can only concatenate str (not \"%s\") to str",
                            ebb_jin_type_name(b));
    return ebb_jin_fail(&run->base, "unsupported operand type(s) for %s: '%s' and '%s'",
                        ebb_jin_token_text((enum ebb_jin_token_type)op), ebb_jin_type_name(a),
                        ebb_jin_type_name(b));
}

/* ---- slices ---- */

static enum ebb_status slice_bound(struct ebb_jin_run *run, struct ebb_jin_value value,
                                   int64_t fallback, int64_t *bound)
{
    *bound = fallback;
    if (value.type == EBB_JIN_MISSING || value.type == EBB_JIN_NONE) return EBB_OK;
    if (!ebb_jin_is_int(value))
        return ebb_jin_fail(&run->base, "slice indices must be integers or None, not %s",
                            ebb_jin_type_name(value));
    *bound = ebb_jin_integer(value);
    return EBB_OK;
}

/* A bound between 0 and length (or -1 and length - 1 from behind). */
static int64_t clip(int64_t bound, int64_t length, bool backward)
{
    int64_t low = backward ? -1 : 0, high = backward ? length - 1 : length;
    if (bound < 0) bound = bound < -length ? -length - 1 : bound;
    if (bound < 0) bound += length;
    if (bound < low) return low;
    return bound > high ? high : bound;
}

static enum ebb_status slice_string(struct ebb_jin_run *run, struct ebb_jin_value value,
                                    int64_t start, int64_t step, int64_t count,
                                    struct ebb_jin_value *out)
{
    struct ebb_jin_str *str = value.as.str;
    EBB_TRY(ebb_jin_step(run, str->bytes));
    if (step == 1) {
        size_t from = ebb_jin_str_offset(str, start), to = ebb_jin_str_offset(str, start + count);
        EBB_TRY(ebb_jin_str_borrow(&run->base, str->data + from, to - from, out));
    } else if (count == 0) {
        EBB_TRY(ebb_jin_str_borrow(&run->base, "", 0, out));
    } else {
        /* Offsets of all characters first: seeking each would be quadratic. */
        int64_t points = ebb_jin_str_points(str), seen = 0;
        size_t *offsets =
            (size_t *)ebb_jin_alloc(&run->base, (size_t)(points + 1) * sizeof *offsets);
        if (offsets == NULL) return ebb_jin_failed(&run->base);
        for (size_t i = 0; i < str->bytes; i++)
            if (((unsigned char)str->data[i] & 0xc0) != 0x80) offsets[seen++] = i;
        offsets[points] = str->bytes;
        struct ebb_jin_buf buf = {0};
        for (int64_t i = 0; i < count; i++) {
            int64_t point = start + i * step;
            EBB_TRY(ebb_jin_buf_add(run, &buf, str->data + offsets[point],
                                    offsets[point + 1] - offsets[point]));
        }
        EBB_TRY(ebb_jin_step(run, (size_t)count * 32));
        EBB_TRY(ebb_jin_str_of(&run->base, &buf, out));
    }
    out->flag = value.flag;
    return EBB_OK;
}

enum ebb_status ebb_jin_slice(struct ebb_jin_run *run, struct ebb_jin_value value,
                              const struct ebb_jin_value bounds[3], struct ebb_jin_value *out)
{
    int64_t length, start, stop, step, count = 0;
    if (value.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, value);
    if (value.type == EBB_JIN_DICT) return ebb_jin_fail(&run->base, "unhashable type: 'slice'");
    if (!is_sequence(value) && value.type != EBB_JIN_RANGE)
        return ebb_jin_fail(&run->base, "'%s' object is not subscriptable",
                            ebb_jin_type_name(value));
    if (value.type == EBB_JIN_STR)
        length = ebb_jin_str_points(value.as.str);
    else
        (void)ebb_jin_length(value, &length);
    EBB_TRY(slice_bound(run, bounds[2], 1, &step));
    if (step == 0) return ebb_jin_fail(&run->base, "slice step cannot be zero");
    if (step < -length - 1) step = -length - 1;
    if (step > length + 1) step = length + 1;
    bool backward = step < 0;
    EBB_TRY(slice_bound(run, bounds[0], backward ? INT64_MAX : 0, &start));
    EBB_TRY(slice_bound(run, bounds[1], backward ? INT64_MIN : INT64_MAX, &stop));
    start = clip(start, length, backward);
    stop = clip(stop, length, backward);
    if (!backward && stop > start) count = (stop - start + step - 1) / step;
    if (backward && start > stop) count = (start - stop - step - 1) / -step;
    if (value.type == EBB_JIN_STR) return slice_string(run, value, start, step, count, out);
    if (value.type == EBB_JIN_RANGE) {
        struct ebb_jin_range *range =
            (struct ebb_jin_range *)ebb_jin_alloc(&run->base, sizeof *range);
        if (range == NULL) return ebb_jin_failed(&run->base);
        const struct ebb_jin_range *old = value.as.range;
        range->start = old->start + start * old->step;
        range->step = old->step * step;
        range->count = count;
        range->stop = old->start + stop * old->step;
        *out = value;
        out->as.range = range;
        return EBB_OK;
    }
    struct ebb_jin_value *items;
    EBB_TRY(ebb_jin_list_new(run, value.type, count, out, &items));
    for (int64_t i = 0; i < count; i++) items[i] = value.as.list->items[start + i * step];
    return EBB_OK;
}
