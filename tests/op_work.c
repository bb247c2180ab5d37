/* What ops are said to do, against counts by hand.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "op/attention.h"
#include "op/embed.h"
#include "op/matmul.h"
#include "op/rmsnorm.h"
#include "op/rotary.h"
#include "op/rows.h"
#include "op/work.h"

/* Tensor 0 stands for all of them: nothing is read. */
static struct ebb_view view(enum ebb_dtype dtype, enum ebb_extent extent, int64_t rows,
                            int64_t cols)
{
    struct ebb_view v = {.dtype = (uint8_t)dtype,
                         .extent = (uint8_t)extent,
                         .rows = rows,
                         .cols = cols,
                         .stride = cols + 8};
    return v;
}

static struct ebb_op_work count(const struct ebb_step *step, const int32_t *doc_starts,
                                enum ebb_op op, const void *args)
{
    const struct ebb_op_env env = {.step = step, .doc_starts = doc_starts};
    return ebb_op_work(&env, op, args);
}

static void expect(struct ebb_op_work work, double flops, double bytes)
{
    if (work.flops != flops || work.bytes != bytes)
        fail_msg("%g operations and %g bytes, wanted %g and %g", work.flops, work.bytes, flops,
                 bytes);
}

static void a_product_counts_live_rows_and_what_it_adds_to(void **state)
{
    (void)state;
    const struct ebb_step step = {.tokens = 5};
    struct ebb_matmul m = {.a = view(EBB_BF16, EBB_EXTENT_TOKENS, 8, 16),
                           .b = view(EBB_BF16, EBB_EXTENT_FIXED, 24, 16),
                           .bias = ebb_view_none(),
                           .add = ebb_view_none(),
                           .y = view(EBB_BF16, EBB_EXTENT_TOKENS, 8, 24),
                           .scratch = view(EBB_U8, EBB_EXTENT_FIXED, 1, 1000),
                           .form = EBB_MATMUL_NT};
    expect(count(&step, NULL, EBB_OP_matmul, &m), 2 * 5 * 16 * 24, 2 * (5 * 16 + 24 * 16 + 5 * 24));
    m.add = m.y;
    expect(count(&step, NULL, EBB_OP_matmul, &m), 2 * 5 * 16 * 24,
           2 * (5 * 16 + 24 * 16 + 2 * 5 * 24));
    struct ebb_matmul gradient = {.a = view(EBB_F32, EBB_EXTENT_TOKENS, 8, 24),
                                  .b = view(EBB_F32, EBB_EXTENT_TOKENS, 8, 16),
                                  .bias = ebb_view_none(),
                                  .add = ebb_view_none(),
                                  .y = view(EBB_F32, EBB_EXTENT_FIXED, 24, 16),
                                  .scratch = ebb_view_none(),
                                  .form = EBB_MATMUL_TN,
                                  .accumulate = 1};
    expect(count(&step, NULL, EBB_OP_matmul, &gradient), 2 * 5 * 16 * 24,
           4 * (5 * 24 + 5 * 16 + 2 * 24 * 16));
}

static void attention_counts_the_pairs_that_each_document_has(void **state)
{
    (void)state;
    const int32_t starts[] = {0, 7, 8, 20};
    for (int64_t window = 0; window < 15; window++) {
        const struct ebb_step step = {.tokens = 20, .docs = 3, .longest = 12};
        struct ebb_attention_forward forward = {
            .q = ebb_view_none(),
            .k = ebb_view_none(),
            .v = ebb_view_none(),
            .doc_starts = ebb_view_none(),
            .o = ebb_view_none(),
            .lse = ebb_view_none(),
            .scratch = ebb_view_none(),
            .shape = {.heads = 3, .kv_heads = 1, .qk_dim = 16, .v_dim = 8, .window = window}};
        struct ebb_attention_backward backward = {.shape = forward.shape};
        double pairs = 0;
        for (int d = 0; d < 3; d++)
            for (int i = starts[d]; i < starts[d + 1]; i++)
                for (int j = starts[d]; j <= i; j++) pairs += window == 0 || i - j < window;
        expect(count(&step, starts, EBB_OP_attention_forward, &forward), 2 * 3 * 24 * pairs, 0);
        double flops = count(&step, starts, EBB_OP_attention_backward, &backward).flops;
        assert_true(flops == 2 * 3 * (3 * 16 + 2 * 8) * pairs);
    }
}

static void attention_on_a_cache_counts_what_is_in_it(void **state)
{
    (void)state;
    for (int64_t window = 0; window < 15; window++) {
        const struct ebb_step step = {.tokens = 3, .cached = 9};
        const struct ebb_attention_cached cached = {
            .q = view(EBB_F32, EBB_EXTENT_TOKENS, 4, 32),
            .k = view(EBB_F32, EBB_EXTENT_FIXED, 100, 16),
            .v = view(EBB_F32, EBB_EXTENT_FIXED, 100, 16),
            .o = view(EBB_F32, EBB_EXTENT_TOKENS, 4, 32),
            .scratch = ebb_view_none(),
            .shape = {.heads = 2, .kv_heads = 1, .qk_dim = 16, .v_dim = 16, .window = window}};
        double pairs = 0;
        for (int i = 9; i < 12; i++)
            for (int j = 0; j <= i; j++) pairs += window == 0 || i - j < window;
        expect(count(&step, NULL, EBB_OP_attention_cached, &cached), 2 * 2 * 32 * pairs,
               4 * (2 * 3 * 32 + 2 * 12 * 16));
    }
}

static void what_is_looked_up_counts_by_the_look(void **state)
{
    (void)state;
    const struct ebb_step step = {.tokens = 5, .labels = 3};
    struct ebb_view ids = view(EBB_I32, EBB_EXTENT_FIXED, 1, 64);
    const struct ebb_embed_forward embed = {.ids = ids,
                                            .table = view(EBB_BF16, EBB_EXTENT_FIXED, 1000, 32),
                                            .y = view(EBB_BF16, EBB_EXTENT_TOKENS, 8, 32)};
    expect(count(&step, NULL, EBB_OP_embed_forward, &embed), 0, 5 * 4 + 2 * 5 * 32 * 2);
    const struct ebb_gather_rows gather = {.x = view(EBB_F32, EBB_EXTENT_TOKENS, 64, 32),
                                           .rows = ids,
                                           .y = view(EBB_F32, EBB_EXTENT_LABELS, 64, 32)};
    expect(count(&step, NULL, EBB_OP_gather_rows, &gather), 0, 3 * 4 + 2 * 3 * 32 * 4);
}

static void a_result_that_is_set_is_only_written(void **state)
{
    (void)state;
    const struct ebb_step step = {.tokens = 5};
    struct ebb_rmsnorm_backward norm = {.x = view(EBB_BF16, EBB_EXTENT_TOKENS, 8, 32),
                                        .w = view(EBB_BF16, EBB_EXTENT_FIXED, 1, 32),
                                        .dy = view(EBB_BF16, EBB_EXTENT_TOKENS, 8, 32),
                                        .dx = view(EBB_BF16, EBB_EXTENT_TOKENS, 8, 32),
                                        .dw = ebb_view_none(),
                                        .scratch = ebb_view_none()};
    expect(count(&step, NULL, EBB_OP_rmsnorm_backward, &norm), 0, 2 * (4 * 5 * 32 + 32));
    norm.overwrite = 1;
    expect(count(&step, NULL, EBB_OP_rmsnorm_backward, &norm), 0, 2 * (3 * 5 * 32 + 32));
}

static void a_label_has_the_size_of_a_view_that_is_there(void **state)
{
    (void)state;
    char label[EBB_OP_LABEL];
    const struct ebb_view none = ebb_view_none();
    const struct ebb_rotary_backward rotary = {
        .x = none, /* which only norms need */
        .positions = view(EBB_I32, EBB_EXTENT_FIXED, 1, 64),
        .table = view(EBB_F32, EBB_EXTENT_FIXED, 64, 16),
        .q_norm = none,
        .k_norm = none,
        .dy = view(EBB_BF16, EBB_EXTENT_TOKENS, 8, 32),
        .dq_norm = none,
        .dk_norm = none,
        .scratch = none};
    ebb_op_label(EBB_OP_rotary_backward, &rotary, label);
    assert_string_equal(label, "rotary_backward [8, 32]");
    const struct ebb_attention_cached cached = {.q = none,
                                                .k = view(EBB_F32, EBB_EXTENT_FIXED, 100, 16),
                                                .v = none,
                                                .o = none,
                                                .scratch = none};
    ebb_op_label(EBB_OP_attention_cached, &cached, label);
    assert_string_equal(label, "attention_cached [100, 16]");
    const struct ebb_copy_rows copy = {.x = view(EBB_F32, EBB_EXTENT_TOKENS, 8, 32),
                                       .y = view(EBB_F32, EBB_EXTENT_TOKENS, 8, 32)};
    ebb_op_label(EBB_OP_copy_rows, &copy, label);
    assert_string_equal(label, "copy_rows [8, 32]");
}

static void ops_without_live_rows_do_nothing(void **state)
{
    (void)state;
    const struct ebb_step step = {.tokens = 0};
    const struct ebb_copy_rows copy = {.x = view(EBB_F32, EBB_EXTENT_TOKENS, 8, 32),
                                       .y = view(EBB_F32, EBB_EXTENT_TOKENS, 8, 32)};
    expect(count(&step, NULL, EBB_OP_copy_rows, &copy), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_counts_live_rows_and_what_it_adds_to),
        cmocka_unit_test(attention_counts_the_pairs_that_each_document_has),
        cmocka_unit_test(attention_on_a_cache_counts_what_is_in_it),
        cmocka_unit_test(what_is_looked_up_counts_by_the_look),
        cmocka_unit_test(a_result_that_is_set_is_only_written),
        cmocka_unit_test(a_label_has_the_size_of_a_view_that_is_there),
        cmocka_unit_test(ops_without_live_rows_do_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
