/* Input embedding and the sum of its gradient.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "op/embed.h"

struct setup {
    struct op_test t;
    struct ebb_view ids, table, x, dtable, scratch;
};

static void prepare(struct setup *s, enum ebb_dtype dtype, int64_t tokens, int64_t vocab,
                    int64_t cols)
{
    op_test_start(&s->t);
    s->t.step.tokens = tokens;
    s->ids = op_test_tensor(&s->t, EBB_I32, 1, tokens, tokens);
    s->table = op_test_tensor(&s->t, dtype, vocab, cols, cols + 2);
    s->x = op_test_tensor(&s->t, dtype, tokens, cols, cols + 1);
    s->dtable = op_test_tensor(&s->t, EBB_F32, vocab, cols, cols);
    int64_t bytes = ebb_embed_backward_scratch(tokens, &s->t.target);
    s->scratch = op_test_scratch(&s->t, bytes);
    op_test_live(&s->x, EBB_EXTENT_TOKENS, 0);
    op_test_fill(&s->t, &s->table, -1, 1);
    op_test_fill(&s->t, &s->x, -1, 1);
    op_test_fill(&s->t, &s->dtable, -1, 1);
    for (int64_t i = 0; i < tokens; i++) { /* many repeats of few ids, and the ends of the table */
        double u = op_test_uniform(&s->t);
        double id = u < 0.5 ? floor(u * 8) : floor(op_test_uniform(&s->t) * (double)vocab);
        if (id >= (double)vocab) id = (double)vocab - 1;
        op_test_set(&s->t, &s->ids, 0, i, id);
    }
    op_test_set(&s->t, &s->ids, 0, tokens - 1, (double)(vocab - 1));
}

static const struct {
    enum ebb_dtype dtype;
    int64_t tokens, vocab, cols;
} sizes[] = {
    {EBB_F32, 1, 1, 1},       {EBB_F32, 77, 300, 33},   {EBB_BF16, 200, 70000, 16},
    {EBB_BF16, 600, 50, 520}, {EBB_F32, 40, 256, 1100}, {EBB_F32, 900, 600, 24},
};

static void forward_takes_the_row_of_each_id(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct setup s;
        prepare(&s, sizes[k].dtype, sizes[k].tokens, sizes[k].vocab, sizes[k].cols);
        struct ebb_embed_forward args = {.ids = s.ids, .table = s.table, .y = s.x};
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_forward, &args), EBB_OK);
        for (int64_t i = 0; i < sizes[k].tokens; i++) {
            int64_t id = (int64_t)op_test_get(&s.t, &s.ids, 0, i);
            for (int64_t j = 0; j < sizes[k].cols; j++) {
                assert_true(op_test_get(&s.t, &s.x, i, j) == op_test_get(&s.t, &s.table, id, j));
            }
        }
        op_test_end(&s.t);
    }
}

static void a_tile_takes_its_own_tokens(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, EBB_F32, 20, 30, 5);
    s.x.rows = 6; /* rows 6 .. 20 of the tensor stay */
    op_test_live(&s.x, EBB_EXTENT_TOKENS, 16);
    struct ebb_embed_forward args = {.ids = s.ids, .table = s.table, .y = s.x};
    double before = op_test_get(&s.t, &s.x, 4, 0);
    assert_int_equal(op_test_run(&s.t, EBB_OP_embed_forward, &args), EBB_OK);
    for (int64_t i = 0; i < 4; i++) {
        int64_t id = (int64_t)op_test_get(&s.t, &s.ids, 0, 16 + i);
        assert_true(op_test_get(&s.t, &s.x, i, 3) == op_test_get(&s.t, &s.table, id, 3));
    }
    assert_true(op_test_get(&s.t, &s.x, 4, 0) == before);
    op_test_end(&s.t);
}

static void backward_adds_tokens_in_ascending_order(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct setup s;
        int64_t cols = sizes[k].cols;
        prepare(&s, sizes[k].dtype, sizes[k].tokens, sizes[k].vocab, cols);
        s.t.step.tokens = sizes[k].tokens > 1 ? sizes[k].tokens - 1 : 1;
        struct ebb_embed_backward args = {
            .ids = s.ids, .dx = s.x, .dtable = s.dtable, .scratch = s.scratch};
        int64_t values = sizes[k].vocab * cols;
        float *want = malloc((size_t)values * sizeof *want);
        assert_non_null(want);
        for (int64_t i = 0; i < values; i++)
            want[i] = (float)op_test_get(&s.t, &s.dtable, i / cols, i % cols);
        void *start = op_test_copy(&s.t, &s.dtable);
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_backward, &args), EBB_OK);
        for (int run = 0; run < 2; run++) { /* the second run adds the same again */
            for (int64_t i = 0; i < s.t.step.tokens; i++) {
                int64_t id = (int64_t)op_test_get(&s.t, &s.ids, 0, i);
                for (int64_t j = 0; j < cols; j++)
                    want[id * cols + j] += (float)op_test_get(&s.t, &s.x, i, j);
            }
            for (int64_t i = 0; i < values; i++) {
                assert_true(op_test_get(&s.t, &s.dtable, i / cols, i % cols) == (double)want[i]);
            }
            if (run == 0) assert_int_equal(op_test_run(&s.t, EBB_OP_embed_backward, &args), EBB_OK);
        }
        void *two = op_test_copy(&s.t, &s.dtable);
        op_test_restore(&s.t, &s.dtable, start);
        s.t.env.threads = 1;
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_backward, &args), EBB_OK);
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_backward, &args), EBB_OK);
        assert_true(op_test_same(&s.t, &s.dtable, two));
        free(want), free(start), free(two);
        op_test_end(&s.t);
    }
}

/* Where rows are aligned the GPU takes eight elements at a time. An id has more tokens than a block
 * has threads. */
static void aligned_rows_are_read_and_added_like_others(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct op_test t;
        op_test_start(&t);
        enum { TOKENS = 700, VOCAB = 30, COLS = 1032 };
        enum ebb_dtype dtype = k ? EBB_BF16 : EBB_F32;
        struct ebb_view ids = op_test_tensor(&t, EBB_I32, 1, TOKENS, TOKENS);
        struct ebb_view table = op_test_tensor(&t, dtype, VOCAB, COLS, COLS);
        struct ebb_view x = op_test_tensor(&t, dtype, TOKENS, COLS, COLS + 8);
        struct ebb_view dtable = op_test_tensor(&t, EBB_F32, VOCAB, COLS, COLS);
        struct ebb_view scratch =
            op_test_scratch(&t, ebb_embed_backward_scratch(TOKENS, &t.target));
        float *want = calloc(VOCAB * COLS, sizeof *want);
        assert_non_null(want);
        op_test_live(&x, EBB_EXTENT_TOKENS, 0);
        t.step.tokens = TOKENS;
        op_test_fill(&t, &table, -1, 1);
        op_test_zero(&t, &dtable);
        for (int64_t i = 0; i < TOKENS; i++)
            op_test_set(&t, &ids, 0, i, (double)(i % 3 == 0 ? i % VOCAB : 7));
        struct ebb_embed_forward forward = {.ids = ids, .table = table, .y = x};
        assert_int_equal(op_test_run(&t, EBB_OP_embed_forward, &forward), EBB_OK);
        struct ebb_embed_backward backward = {
            .ids = ids, .dx = x, .dtable = dtable, .scratch = scratch};
        assert_int_equal(op_test_run(&t, EBB_OP_embed_backward, &backward), EBB_OK);
        for (int64_t i = 0; i < TOKENS; i++) {
            int64_t id = (int64_t)op_test_get(&t, &ids, 0, i);
            for (int64_t j = 0; j < COLS; j++) {
                assert_true(op_test_get(&t, &x, i, j) == op_test_get(&t, &table, id, j));
                want[id * COLS + j] += (float)op_test_get(&t, &x, i, j);
            }
        }
        for (int64_t i = 0; i < VOCAB * COLS; i++)
            assert_true(op_test_get(&t, &dtable, i / COLS, i % COLS) == (double)want[i]);
        free(want);
        op_test_end(&t);
    }
}

static void no_tokens_change_nothing(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, EBB_F32, 10, 12, 7);
    s.t.step.tokens = 0;
    struct ebb_embed_backward backward = {
        .ids = s.ids, .dx = s.x, .dtable = s.dtable, .scratch = s.scratch};
    struct ebb_embed_forward forward = {.ids = s.ids, .table = s.table, .y = s.x};
    void *dtable = op_test_copy(&s.t, &s.dtable), *x = op_test_copy(&s.t, &s.x);
    assert_int_equal(op_test_run(&s.t, EBB_OP_embed_backward, &backward), EBB_OK);
    assert_int_equal(op_test_run(&s.t, EBB_OP_embed_forward, &forward), EBB_OK);
    assert_true(op_test_same(&s.t, &s.dtable, dtable));
    assert_true(op_test_same(&s.t, &s.x, x));
    free(dtable), free(x);
    op_test_end(&s.t);
}

static void an_id_outside_the_vocabulary_is_an_error_that_names_it(void **state)
{
    (void)state;
    op_test_cpu_only("ids are the host's to check");
    static const int32_t bad[] = {12, -1};
    for (int k = 0; k < 2; k++) {
        struct setup s;
        prepare(&s, EBB_F32, 10, 12, 7);
        op_test_set(&s.t, &s.ids, 0, 4, bad[k]);
        struct ebb_embed_forward forward = {.ids = s.ids, .table = s.table, .y = s.x};
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_forward, &forward), EBB_FAILED);
        assert_non_null(strstr(ebb_error_text(s.t.env.ctx),
                               k == 0 ? "token 4 has id 12" : "token 4 has id -1"));
        assert_non_null(strstr(ebb_error_text(s.t.env.ctx), "vocabulary of 12"));
        struct ebb_embed_backward backward = {
            .ids = s.ids, .dx = s.x, .dtable = s.dtable, .scratch = s.scratch};
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_backward, &backward), EBB_FAILED);
        op_test_end(&s.t);
    }
}

static void an_id_that_nobody_checked_reads_nan_and_adds_nothing(void **state)
{
    (void)state;
    op_test_gpu_only("such an id is an error");
    static const int32_t bad[] = {12, -1};
    for (int k = 0; k < 2; k++) {
        struct setup s;
        prepare(&s, EBB_F32, 10, 12, 7);
        struct ebb_embed_backward backward = {
            .ids = s.ids, .dx = s.x, .dtable = s.dtable, .scratch = s.scratch};
        void *start = op_test_copy(&s.t, &s.dtable), *x = op_test_copy(&s.t, &s.x);
        for (int64_t j = 0; j < 7; j++) op_test_set(&s.t, &s.x, 4, j, 0);
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_backward, &backward), EBB_OK);
        void *without = op_test_copy(&s.t, &s.dtable); /* token 4 has added zeros */
        op_test_restore(&s.t, &s.dtable, start);
        op_test_restore(&s.t, &s.x, x);
        op_test_set(&s.t, &s.ids, 0, 4, bad[k]);
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_backward, &backward), EBB_OK);
        assert_true(op_test_same(&s.t, &s.dtable, without));
        struct ebb_embed_forward forward = {.ids = s.ids, .table = s.table, .y = s.x};
        assert_int_equal(op_test_run(&s.t, EBB_OP_embed_forward, &forward), EBB_OK);
        for (int64_t i = 0; i < 10; i++)
            assert_int_equal(isnan(op_test_get(&s.t, &s.x, i, 6)) != 0, i == 4);
        free(start), free(x), free(without);
        op_test_end(&s.t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_takes_the_row_of_each_id),
        cmocka_unit_test(a_tile_takes_its_own_tokens),
        cmocka_unit_test(backward_adds_tokens_in_ascending_order),
        cmocka_unit_test(aligned_rows_are_read_and_added_like_others),
        cmocka_unit_test(no_tokens_change_nothing),
        cmocka_unit_test(an_id_outside_the_vocabulary_is_an_error_that_names_it),
        cmocka_unit_test(an_id_that_nobody_checked_reads_nan_and_adds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
