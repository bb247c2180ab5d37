/* The k likeliest tokens against a sort in double precision: which tokens and in what order is
 * exact, log-probabilities are close. SPDX-License-Identifier: Apache-2.0 */
#include "op_layout.h"

#include "op/topk.h"

struct setup {
    struct op_test t;
    struct ebb_topk args;
};

static void prepare(struct setup *s, int64_t rows, int64_t cols, int64_t vocab, int64_t k,
                    enum ebb_dtype dtype)
{
    memset(s, 0, sizeof *s);
    op_test_start(&s->t);
    s->args.logits = op_test_tensor(&s->t, EBB_F32, rows, cols, cols + 3);
    s->args.ids = op_test_tensor(&s->t, EBB_I32, rows, k, k + 1);
    s->args.logprobs = op_test_tensor(&s->t, dtype, rows, k, k + 5);
    s->args.temperature = 1;
    s->args.vocab = vocab;
    s->t.step.labels = rows;
    op_test_live(&s->args.logits, EBB_EXTENT_LABELS, 0);
    op_test_live(&s->args.ids, EBB_EXTENT_LABELS, 0);
    op_test_live(&s->args.logprobs, EBB_EXTENT_LABELS, 0);
    op_test_fill(&s->t, &s->args.logits, -8, 8);
}

static void assert_runs(struct setup *s)
{
    if (op_test_run(&s->t, EBB_OP_topk, &s->args) != EBB_OK)
        fail_msg("%s", ebb_error_text(s->t.env.ctx));
}

/* ---- the oracle ---- */

struct token {
    double z;
    int64_t id;
};

static int by_likelihood(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    bool x_nan = isnan(x->z), y_nan = isnan(y->z);
    if (x_nan != y_nan) return x_nan ? 1 : -1;
    if (!x_nan && x->z != y->z) return x->z > y->z ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Logarithm of the sum of powers, relative to the largest. */
static double log_sum_exp(const struct token *sorted, int64_t n, double tau)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += exp((sorted[j].z - sorted[0].z) / tau);
    return log(sum);
}

/* The ids are those of the sort; where the row has a distribution, log-probabilities agree, are at
 * most 0 and descend; elsewhere they are NaN. */
static void check_row(const struct setup *s, int64_t i)
{
    const struct op_test *t = &s->t;
    const struct ebb_topk *args = &s->args;
    int64_t n = args->vocab, k = args->ids.cols;
    struct token *tokens = malloc((size_t)n * sizeof *tokens);
    bool sound = false;
    for (int64_t j = 0; j < n; j++) {
        tokens[j] = (struct token){op_test_get(t, &args->logits, i, j), j};
        sound |= tokens[j].z > -(double)INFINITY;
    }
    for (int64_t j = 0; j < n; j++) sound &= tokens[j].z < (double)INFINITY; /* nor NaN */
    qsort(tokens, (size_t)n, sizeof *tokens, by_likelihood);
    double log_sum = log_sum_exp(tokens, n, args->temperature), before = 0;
    for (int64_t c = 0; c < k; c++) {
        int64_t id = (int64_t)op_test_get(t, &args->ids, i, c);
        double got = op_test_get(t, &args->logprobs, i, c);
        double want = (tokens[c].z - tokens[0].z) / args->temperature - log_sum;
        if (id != tokens[c].id)
            fail_msg("row %lld: token %lld is %lld (%.9g), wanted %lld (%.9g)", (long long)i,
                     (long long)c, (long long)id, op_test_get(t, &args->logits, i, id),
                     (long long)tokens[c].id, tokens[c].z);
        if (!sound) {
            assert_true(isnan(got));
            continue;
        }
        assert_true(got <= before);
        before = got;
        if (isinf(want))
            assert_true(isinf(got) && got < 0);
        else
            op_test_close(t, &args->logprobs, i, c, want, 5e-7, 1e-6);
    }
    free(tokens);
}

static void check(struct setup *s)
{
    void *logits = op_test_copy(&s->t, &s->args.logits);
    assert_runs(s);
    assert_true(op_test_same(&s->t, &s->args.logits, logits));
    for (int64_t i = 0; i < s->args.logits.rows; i++) check_row(s, i);
    free(logits);
}

/* ---- cases ---- */

static void tokens_and_probabilities_agree_with_a_sort(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, cols, vocab, k;
    } sizes[] = {{3, 50, 50, 7},          {2, 60, 50, 50},         {4, 1, 1, 1},
                 {3, 1030, 1025, 1},      {2, 2100, 2049, 1024},   {2, 1024, 1024, 1024},
                 {2, 5000, 4999, 3},      {1, 40000, 39000, 1000}, {5, 513, 512, 512},
                 {1, 152064, 151936, 512}};
    static const double temperatures[] = {1, 2, 0.5, 7};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct setup s;
            prepare(&s, sizes[k].rows, sizes[k].cols, sizes[k].vocab, sizes[k].k,
                    bf16 ? EBB_BF16 : EBB_F32);
            s.args.temperature = temperatures[(k + (size_t)bf16) % 4];
            check(&s);
            op_test_end(&s.t);
        }
    }
}

static void padded_columns_are_never_chosen(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 3, 80, 70, 70, EBB_F32);
    for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 70; j < 80; j++)
            op_test_set(&s.t, &s.args.logits, i, j, j % 2 ? 100 : (double)NAN);
    }
    check(&s);
    op_test_end(&s.t);
}

/* Few values, so that the k-th place is among equals; more than a pass's digit of them too. */
static void of_equal_logits_the_lower_id_comes_first(void **state)
{
    (void)state;
    static const int64_t ks[] = {1, 5, 100, 257, 1024};
    for (int k = 0; k < 5; k++) {
        struct setup s;
        prepare(&s, 5, 3000, 3000, ks[k], EBB_F32);
        for (int64_t j = 0; j < 3000; j++) {
            double u = op_test_uniform(&s.t);
            op_test_set(&s.t, &s.args.logits, 0, j, floor(5 * u));
            op_test_set(&s.t, &s.args.logits, 1, j, 3);
            op_test_set(&s.t, &s.args.logits, 2, j, u < 0.5 ? -0.0 : u < 0.9 ? 0.0 : -1e-30);
            op_test_set(&s.t, &s.args.logits, 3, j, j < 2500 ? 1 : 1 + 1e-6 * (u < 0.5));
            op_test_set(&s.t, &s.args.logits, 4, j, j % 7 == 0 ? 4 : -(double)j);
        }
        check(&s);
        op_test_end(&s.t);
    }
}

static void ascending_and_descending_rows_are_sorted(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 2, 5000, 5000, 1024, EBB_F32);
    for (int64_t j = 0; j < 5000; j++) {
        op_test_set(&s.t, &s.args.logits, 0, j, (double)j / 100);
        op_test_set(&s.t, &s.args.logits, 1, j, (double)-j / 100);
    }
    check(&s);
    op_test_end(&s.t);
}

static void masked_tokens_come_last_with_no_probability(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct setup s;
        prepare(&s, 3, 40, 40, 40, bf16 ? EBB_BF16 : EBB_F32);
        for (int64_t j = 0; j < 40; j++) {
            if (j % 3) op_test_set(&s.t, &s.args.logits, 0, j, -(double)INFINITY);
            if (j != 17) op_test_set(&s.t, &s.args.logits, 1, j, -(double)INFINITY);
        }
        check(&s);
        assert_true(op_test_get(&s.t, &s.args.logprobs, 1, 0) == 0);
        assert_int_equal((int)op_test_get(&s.t, &s.args.ids, 1, 0), 17);
        op_test_end(&s.t);
    }
}

/* check_row wants NaN there and the ids of the sort; here that no other row is touched by it. */
static void rows_without_a_distribution_are_nan_with_valid_ids(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct setup s;
        prepare(&s, 6, 3000, 3000, 900, bf16 ? EBB_BF16 : EBB_F32);
        for (int64_t j = 0; j < 3000; j++) {
            op_test_set(&s.t, &s.args.logits, 1, j, (double)NAN);
            op_test_set(&s.t, &s.args.logits, 2, j, -(double)INFINITY);
            if (j > 100) op_test_set(&s.t, &s.args.logits, 5, j, j % 2 ? (double)-NAN : -INFINITY);
        }
        op_test_set(&s.t, &s.args.logits, 0, 2999, (double)NAN);
        op_test_set(&s.t, &s.args.logits, 3, 7, (double)INFINITY);
        check(&s);
        assert_true(isnan(op_test_get(&s.t, &s.args.logprobs, 0, 899)));
        assert_true(isfinite(op_test_get(&s.t, &s.args.logprobs, 4, 899)));
        op_test_end(&s.t);
    }
}

static void large_logits_neither_over_nor_underflow(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 2, 100, 100, 100, EBB_F32);
    for (int64_t j = 0; j < 100; j++) {
        op_test_set(&s.t, &s.args.logits, 0, j, (double)(j % 10) * 1000 + 3e4);
        op_test_set(&s.t, &s.args.logits, 1, j, j % 2 ? -3e38 : -3.1e38);
    }
    check(&s);
    op_test_end(&s.t);
}

static void k_tokens_are_the_first_of_more_tokens(void **state)
{
    (void)state;
    struct setup s, more;
    prepare(&s, 3, 2000, 2000, 10, EBB_BF16);
    prepare(&more, 3, 2000, 2000, 700, EBB_BF16); /* the same logits */
    assert_runs(&s);
    assert_runs(&more);
    for (int64_t i = 0; i < 3; i++) {
        for (int64_t c = 0; c < 10; c++) {
            assert_true(op_test_get(&s.t, &s.args.ids, i, c) ==
                        op_test_get(&more.t, &more.args.ids, i, c));
            assert_true(op_test_get(&s.t, &s.args.logprobs, i, c) ==
                        op_test_get(&more.t, &more.args.logprobs, i, c));
        }
    }
    op_test_end(&s.t);
    op_test_end(&more.t);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 17, 3000, 3000, 200, EBB_F32);
    s.t.env.threads = 1;
    assert_runs(&s);
    void *ids = op_test_copy(&s.t, &s.args.ids), *logprobs = op_test_copy(&s.t, &s.args.logprobs);
    for (int threads = 2; threads < 6; threads++) {
        op_test_fill(&s.t, &s.args.ids, 0, 5);
        op_test_fill(&s.t, &s.args.logprobs, -1, 0);
        s.t.env.threads = threads;
        assert_runs(&s);
        assert_true(op_test_same(&s.t, &s.args.ids, ids));
        assert_true(op_test_same(&s.t, &s.args.logprobs, logprobs));
    }
    free(ids), free(logprobs);
    op_test_end(&s.t);
}

static void any_layout_of_the_rows_gives_the_same_bits(void **state)
{
    (void)state;
    static const int64_t cols[] = {5, 8192, 8201, 20000};
    for (int k = 0; k < 4; k++) {
        struct setup s;
        prepare(&s, 2, cols[k], cols[k] - k % 3, k == 0 ? 3 : 200, EBB_F32);
        struct ebb_view logits = s.args.logits;
        check(&s);
        void *ids = op_test_copy(&s.t, &s.args.ids);
        void *logprobs = op_test_copy(&s.t, &s.args.logprobs);
        for (int layout = 0; layout < OP_LAYOUTS; layout++) {
            s.args.logits = op_layout_copy(&s.t, &logits, layout);
            op_test_fill(&s.t, &s.args.ids, 0, 5);
            op_test_fill(&s.t, &s.args.logprobs, -1, 0);
            assert_runs(&s);
            assert_true(op_test_same(&s.t, &s.args.ids, ids));
            assert_true(op_test_same(&s.t, &s.args.logprobs, logprobs));
            op_test_drop_last(&s.t);
        }
        free(ids), free(logprobs);
        op_test_end(&s.t);
    }
}

static void only_live_rows_are_written(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 6, 30, 30, 4, EBB_F32);
    op_test_live(&s.args.logits, EBB_EXTENT_LABELS, 10);
    s.t.step.labels = 12; /* two rows live */
    op_test_fill(&s.t, &s.args.ids, -7, -7);
    op_test_fill(&s.t, &s.args.logprobs, 5, 5);
    assert_runs(&s);
    for (int64_t i = 0; i < 2; i++) check_row(&s, i);
    for (int64_t i = 2; i < 6; i++) {
        for (int64_t c = 0; c < 4; c++) {
            assert_true(op_test_get(&s.t, &s.args.ids, i, c) == -7);
            assert_true(op_test_get(&s.t, &s.args.logprobs, i, c) == 5);
        }
    }
    s.t.step.labels = 10; /* none */
    assert_runs(&s);
    op_test_end(&s.t);
}

/* ---- what is refused ---- */

static void refuses(struct setup *s, const struct ebb_topk *args, const char *text)
{
    void *ids = op_test_copy(&s->t, &s->args.ids);
    assert_int_equal(op_test_run(&s->t, EBB_OP_topk, args), EBB_FAILED);
    if (strstr(ebb_error_text(s->t.env.ctx), text) == NULL)
        fail_msg("'%s', wanted '%s'", ebb_error_text(s->t.env.ctx), text);
    assert_true(op_test_same(&s->t, &s->args.ids, ids));
    ebb_error_clear(s->t.env.ctx);
    free(ids);
}

static void arguments_that_make_no_sense_are_named(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 3, 20, 18, 6, EBB_F32);
    struct ebb_topk args = s.args;
    args.logits.dtype = EBB_BF16;
    refuses(&s, &args, "topk: the logits are bfloat16, wanted float32");
    args = s.args;
    args.ids.dtype = EBB_F32;
    refuses(&s, &args, "topk: the ids are float32, wanted int32");
    args = s.args;
    args.logprobs.dtype = EBB_I32;
    refuses(&s, &args, "topk: the log-probabilities are int32, wanted float32 or bfloat16");
    static const double temperatures[] = {0, -1, (double)NAN, 1e300};
    for (int k = 0; k < 4; k++) {
        args = s.args;
        args.temperature = temperatures[k];
        refuses(&s, &args, "topk: the temperature is");
    }
    args = s.args;
    args.vocab = 21;
    refuses(&s, &args, "topk: a vocabulary of 21 in logits of 20 columns");
    args.vocab = 0;
    refuses(&s, &args, "topk: a vocabulary of 0");
    args.vocab = 5;
    refuses(&s, &args,
            "topk: 6 ids and 6 log-probabilities a label, wanted as many of both, 1 to 5");
    args = s.args;
    args.logprobs.cols = 5;
    refuses(&s, &args, "topk: 6 ids and 5 log-probabilities a label");
    args = s.args;
    args.ids.rows = 2;
    refuses(&s, &args, "topk: ids of 2 labels and log-probabilities of 3, wanted 3");
    op_test_end(&s.t);
}

static void more_tokens_than_a_saved_teacher_has_are_refused(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 1, 1100, 1100, EBB_DISTILL_TOPK + 1, EBB_F32);
    refuses(&s, &s.args, "topk: 1025 ids and 1025 log-probabilities a label");
    refuses(&s, &s.args, "1 to 1024");
    op_test_end(&s.t);
}

/* What the op writes is what distillation reads: against the same logits nothing is left to learn.
 */
static void a_teacher_distilled_into_itself_has_no_divergence(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct setup s;
        prepare(&s, 4, 3000, 2900, 300, bf16 ? EBB_BF16 : EBB_F32);
        s.args.temperature = 2;
        assert_runs(&s);
        struct op_test *t = &s.t;
        struct ebb_distill_topk d = {.logits = s.args.logits,
                                     .ids = s.args.ids,
                                     .logprobs = s.args.logprobs,
                                     .targets = op_test_tensor(t, EBB_I32, 1, 4, 4),
                                     .label_rows = op_test_tensor(t, EBB_I32, 1, 4, 4),
                                     .dlogits = ebb_view_none(),
                                     .sums = op_test_tensor(t, EBB_U8, 1, sizeof(struct ebb_sums),
                                                            sizeof(struct ebb_sums)),
                                     .scratch =
                                         op_test_scratch(t, ebb_distill_scratch(4, &t->target)),
                                     .keys = {EBB_FORWARD_KL, 0, 1, 2, false, 2900}};
        t->step.tokens = 4;
        op_test_zero(t, &d.sums);
        for (int64_t i = 0; i < 4; i++) {
            op_test_set(t, &d.targets, 0, i, (double)i);
            op_test_set(t, &d.label_rows, 0, i, (double)i);
        }
        if (op_test_run(t, EBB_OP_distill_topk, &d) != EBB_OK)
            fail_msg("%s", ebb_error_text(t->env.ctx));
        struct ebb_sums *sums = ebb_view_data(&t->env, &d.sums);
        assert_true(fabs(sums->divergence) < (bf16 ? 1e-3 : 1e-6));
        op_test_end(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_probabilities_agree_with_a_sort),
        cmocka_unit_test(padded_columns_are_never_chosen),
        cmocka_unit_test(of_equal_logits_the_lower_id_comes_first),
        cmocka_unit_test(ascending_and_descending_rows_are_sorted),
        cmocka_unit_test(masked_tokens_come_last_with_no_probability),
        cmocka_unit_test(rows_without_a_distribution_are_nan_with_valid_ids),
        cmocka_unit_test(large_logits_neither_over_nor_underflow),
        cmocka_unit_test(k_tokens_are_the_first_of_more_tokens),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(any_layout_of_the_rows_gives_the_same_bits),
        cmocka_unit_test(only_live_rows_are_written),
        cmocka_unit_test(arguments_that_make_no_sense_are_named),
        cmocka_unit_test(more_tokens_than_a_saved_teacher_has_are_refused),
        cmocka_unit_test(a_teacher_distilled_into_itself_has_no_divergence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
