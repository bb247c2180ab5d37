/* Tests of Jinja: what stands behind `is`.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <string.h>

enum test {
    TEST_DEFINED,
    TEST_UNDEFINED,
    TEST_NONE,
    TEST_BOOLEAN,
    TEST_TRUE,
    TEST_FALSE,
    TEST_INTEGER,
    TEST_FLOAT,
    TEST_NUMBER,
    TEST_STRING,
    TEST_MAPPING,
    TEST_SEQUENCE,
    TEST_ITERABLE,
    TEST_CALLABLE,
    TEST_ESCAPED,
    TEST_LOWER,
    TEST_UPPER,
    TEST_ODD,
    TEST_EVEN,
    TEST_FILTER,
    TEST_TEST,
    /* with one argument */
    TEST_DIVISIBLEBY,
    TEST_SAMEAS,
    TEST_IN,
    TEST_EQ,
    TEST_NE,
    TEST_GT,
    TEST_GE,
    TEST_LT,
    TEST_LE
};

static const struct test_row {
    const char *name;
    enum test test;
} rows[] = {
    {"!=", TEST_NE},
    {"<", TEST_LT},
    {"<=", TEST_LE},
    {"==", TEST_EQ},
    {">", TEST_GT},
    {">=", TEST_GE},
    {"boolean", TEST_BOOLEAN},
    {"callable", TEST_CALLABLE},
    {"defined", TEST_DEFINED},
    {"divisibleby", TEST_DIVISIBLEBY},
    {"eq", TEST_EQ},
    {"equalto", TEST_EQ},
    {"escaped", TEST_ESCAPED},
    {"even", TEST_EVEN},
    {"false", TEST_FALSE},
    {"filter", TEST_FILTER},
    {"float", TEST_FLOAT},
    {"ge", TEST_GE},
    {"greaterthan", TEST_GT},
    {"gt", TEST_GT},
    {"in", TEST_IN},
    {"integer", TEST_INTEGER},
    {"iterable", TEST_ITERABLE},
    {"le", TEST_LE},
    {"lessthan", TEST_LT},
    {"lower", TEST_LOWER},
    {"lt", TEST_LT},
    {"mapping", TEST_MAPPING},
    {"ne", TEST_NE},
    {"none", TEST_NONE},
    {"number", TEST_NUMBER},
    {"odd", TEST_ODD},
    {"sameas", TEST_SAMEAS},
    {"sequence", TEST_SEQUENCE},
    {"string", TEST_STRING},
    {"test", TEST_TEST},
    {"true", TEST_TRUE},
    {"undefined", TEST_UNDEFINED},
    {"upper", TEST_UPPER},
};

static const struct test_row *find_test(struct ebb_jin_value name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (ebb_jin_str_is(name, rows[i].name)) return &rows[i];
    return NULL;
}

bool ebb_jin_has_test(struct ebb_jin_value name)
{
    return find_test(name) != NULL;
}

/* Is the text in one case, with a letter in it? */
static enum ebb_status is_cased(struct ebb_jin_run *run, struct ebb_jin_value value,
                                const char *method, bool *holds)
{
    static const struct ebb_jin_args none = {NULL, 0, NULL, 0};
    struct ebb_jin_value name, out;
    EBB_TRY(ebb_jin_to_str(run, &value));
    EBB_TRY(ebb_jin_str_borrow(&run->base, method, strlen(method), &name));
    EBB_TRY(ebb_jin_find(ebb_jin_str_methods(), name)->call(run, value, &none, &out));
    *holds = ebb_jin_truth(out);
    return EBB_OK;
}

/* value % divisor == rest; text takes the way of %-formatting, as in Python. */
static enum ebb_status has_rest(struct ebb_jin_run *run, struct ebb_jin_value value,
                                struct ebb_jin_value divisor, int64_t rest, bool *holds)
{
    struct ebb_jin_value out;
    EBB_TRY(ebb_jin_binary(run, EBB_JIN_TOK_MOD, value, divisor, &out));
    return ebb_jin_equal(run, out, ebb_jin_int(rest), holds);
}

static bool is_callable(struct ebb_jin_value value)
{
    return value.type == EBB_JIN_MACRO || value.type == EBB_JIN_FUNC ||
           value.type == EBB_JIN_JOINER || value.type == EBB_JIN_LOOP ||
           value.type == EBB_JIN_UNDEFINED;
}

static bool is_sequence(struct ebb_jin_value value)
{
    int64_t length;
    return ebb_jin_length(value, &length) && value.type != EBB_JIN_VIEW;
}

static enum ebb_status test_one(struct ebb_jin_run *run, enum test test, struct ebb_jin_value value,
                                bool *holds)
{
    enum ebb_jin_type type = value.type;
    switch (test) {
    case TEST_DEFINED:
        *holds = type != EBB_JIN_UNDEFINED;
        break;
    case TEST_UNDEFINED:
        *holds = type == EBB_JIN_UNDEFINED;
        break;
    case TEST_NONE:
        *holds = type == EBB_JIN_NONE;
        break;
    case TEST_BOOLEAN:
        *holds = type == EBB_JIN_BOOL;
        break;
    case TEST_TRUE:
        *holds = type == EBB_JIN_BOOL && value.as.truth;
        break;
    case TEST_FALSE:
        *holds = type == EBB_JIN_BOOL && !value.as.truth;
        break;
    case TEST_INTEGER:
        *holds = type == EBB_JIN_INT;
        break;
    case TEST_FLOAT:
        *holds = type == EBB_JIN_FLOAT;
        break;
    case TEST_NUMBER:
        *holds = ebb_jin_is_number(value);
        break;
    case TEST_STRING:
        *holds = type == EBB_JIN_STR;
        break;
    case TEST_MAPPING:
        *holds = type == EBB_JIN_DICT;
        break;
    case TEST_SEQUENCE:
        *holds = is_sequence(value);
        break;
    case TEST_ITERABLE:
        *holds = ebb_jin_is_iterable(value) || type == EBB_JIN_LOOP;
        break;
    case TEST_CALLABLE:
        *holds = is_callable(value);
        break;
    case TEST_ESCAPED:
        *holds = type == EBB_JIN_STR && value.flag != 0;
        break;
    case TEST_LOWER:
        return is_cased(run, value, "islower", holds);
    case TEST_UPPER:
        return is_cased(run, value, "isupper", holds);
    case TEST_ODD:
        return has_rest(run, value, ebb_jin_int(2), 1, holds);
    case TEST_EVEN:
        return has_rest(run, value, ebb_jin_int(2), 0, holds);
    case TEST_FILTER:
        *holds = ebb_jin_has_filter(value);
        break;
    default:
        *holds = ebb_jin_has_test(value);
        break;
    }
    return EBB_OK;
}

static enum ebb_status test_two(struct ebb_jin_run *run, enum test test, struct ebb_jin_value value,
                                struct ebb_jin_value other, bool *holds)
{
    switch (test) {
    case TEST_DIVISIBLEBY:
        return has_rest(run, value, other, 0, holds);
    case TEST_SAMEAS:
        *holds = ebb_jin_same(value, other);
        return EBB_OK;
    case TEST_IN:
        return ebb_jin_contains(run, other, value, holds);
    case TEST_EQ:
        return ebb_jin_equal(run, value, other, holds);
    case TEST_NE:
        EBB_TRY(ebb_jin_equal(run, value, other, holds));
        *holds = !*holds;
        return EBB_OK;
    case TEST_GT:
        return ebb_jin_order(run, EBB_JIN_TOK_GT, value, other, holds);
    case TEST_GE:
        return ebb_jin_order(run, EBB_JIN_TOK_GTEQ, value, other, holds);
    case TEST_LT:
        return ebb_jin_order(run, EBB_JIN_TOK_LT, value, other, holds);
    default:
        return ebb_jin_order(run, EBB_JIN_TOK_LTEQ, value, other, holds);
    }
}

enum ebb_status ebb_jin_test(struct ebb_jin_run *run, struct ebb_jin_value name,
                             struct ebb_jin_value value, const struct ebb_jin_args *args,
                             bool *holds)
{
    const struct test_row *row = find_test(name);
    struct ebb_jin_value other;
    if (row == NULL && name.type == EBB_JIN_STR)
        return ebb_jin_fail(&run->base, "no test named '%.*s'",
                            name.as.str->bytes > 60 ? 60 : (int)name.as.str->bytes,
                            name.as.str->data);
    if (row == NULL)
        return ebb_jin_fail(&run->base, "a test is named by a string, not %s",
                            ebb_jin_type_name(name));
    if (row->test < TEST_DIVISIBLEBY) {
        EBB_TRY(ebb_jin_bind(run, row->name, "", 0, args, NULL));
        return test_one(run, row->test, value, holds);
    }
    EBB_TRY(ebb_jin_bind(run, row->name,
                         row->test == TEST_DIVISIBLEBY ? "num"
                         : row->test == TEST_IN        ? "seq"
                                                       : "other",
                         1, args, &other));
    return test_two(run, row->test, value, other, holds);
}
