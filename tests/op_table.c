/* The list of ops as data.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include <ctype.h>

#include "op/rows.h"

static void every_op_has_a_name_and_a_function(void **state)
{
    (void)state;
    for (int op = 0; op < EBB_OP_COUNT; op++) {
        const struct ebb_op_info *info = ebb_op_info((enum ebb_op)op);
        assert_non_null(info);
        assert_non_null(info->cpu);
        assert_true(strlen(info->name) > 1);
        for (const char *c = info->name; *c != '\0'; c++)
            assert_true(islower((unsigned char)*c) || *c == '_');
        for (int other = 0; other < op; other++) {
            assert_string_not_equal(info->name, ebb_op_info((enum ebb_op)other)->name);
        }
    }
}

static void every_view_has_one_letter_of_access(void **state)
{
    (void)state;
    for (int op = 0; op < EBB_OP_COUNT; op++) {
        const struct ebb_op_info *info = ebb_op_info((enum ebb_op)op);
        assert_int_equal((int)strlen(info->access), info->views);
        assert_in_range(info->views, 1, EBB_OP_VIEWS);
        assert_int_equal((int)strspn(info->access, "rw+"), info->views);
        assert_true(strcspn(info->access, "w+") <
                    strlen(info->access)); /* an op that writes nothing does nothing */
    }
}

static void arguments_hold_at_least_their_views(void **state)
{
    (void)state;
    for (int op = 0; op < EBB_OP_COUNT; op++) {
        const struct ebb_op_info *info = ebb_op_info((enum ebb_op)op);
        assert_true(info->args_bytes >= (size_t)info->views * sizeof(struct ebb_view));
        assert_true(info->args_bytes % _Alignof(struct ebb_view) == 0);
    }
}

static void names_follow_the_enum(void **state)
{
    (void)state;
    assert_string_equal(ebb_op_info(EBB_OP_fill)->name, "fill");
    assert_string_equal(ebb_op_info(EBB_OP_matmul)->name, "matmul");
    assert_string_equal(ebb_op_info(EBB_OP_cross_entropy)->name, "cross_entropy");
    assert_string_equal(ebb_op_info(EBB_OP_sgd)->name, "sgd");
    assert_null(ebb_op_info(EBB_OP_COUNT));
}

static void a_function_from_the_table_does_the_op(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_copy_rows copy = {.x = op_test_tensor(&t, EBB_F32, 3, 5, 6),
                                 .y = op_test_tensor(&t, EBB_F32, 3, 5, 5)};
    op_test_fill(&t, &copy.x, -1, 1);
    assert_int_equal(ebb_op_info(EBB_OP_copy_rows)->cpu(&t.env, &copy), EBB_OK);
    for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 5; j++)
            op_test_close(&t, &copy.y, i, j, op_test_get(&t, &copy.x, i, j), 0, 0);
    }
    op_test_end(&t);
}

static void live_rows_follow_the_step(void **state)
{
    (void)state;
    struct op_test t;
    op_test_start(&t);
    struct ebb_view view = op_test_tensor(&t, EBB_BF16, 8, 4, 6);
    t.step.tokens = 21;
    t.step.labels = 3;
    assert_int_equal(ebb_view_rows(&t.env, &view), 8);
    op_test_live(&view, EBB_EXTENT_TOKENS, 16);
    assert_int_equal(ebb_view_rows(&t.env, &view), 5);
    op_test_live(&view, EBB_EXTENT_TOKENS, 8);
    assert_int_equal(ebb_view_rows(&t.env, &view), 8);
    op_test_live(&view, EBB_EXTENT_TOKENS, 24);
    assert_int_equal(ebb_view_rows(&t.env, &view), 0);
    op_test_live(&view, EBB_EXTENT_LABELS, 0);
    assert_int_equal(ebb_view_rows(&t.env, &view), 3);
    assert_int_equal(ebb_view_span(&view), (7 * 6 + 4) * 2);
    view = ebb_view_none();
    assert_int_equal(ebb_view_span(&view), 0);
    assert_null(ebb_view_data(&t.env, &view));
    op_test_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_name_and_a_function),
        cmocka_unit_test(every_view_has_one_letter_of_access),
        cmocka_unit_test(arguments_hold_at_least_their_views),
        cmocka_unit_test(names_follow_the_enum),
        cmocka_unit_test(a_function_from_the_table_does_the_op),
        cmocka_unit_test(live_rows_follow_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
