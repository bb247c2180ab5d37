/* Cross-entropy, its gradient and its counts, against double precision.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_layout.h"

#include "op/cross_entropy.h"

struct setup {
    struct op_test t;
    struct ebb_view logits, targets, label_rows, dlogits, sums, scratch;
    int64_t rows, vocab;
};

static struct ebb_sums *sums_of(struct setup *s)
{
    return ebb_view_data(&s->t.env, &s->sums);
}

static int64_t target_of(const struct setup *s, int64_t row)
{
    int64_t token = (int64_t)op_test_get(&s->t, &s->label_rows, 0, row);
    return (int64_t)op_test_get(&s->t, &s->targets, 0, token);
}

static void prepare(struct setup *s, int64_t rows, int64_t vocab, enum ebb_dtype dtype)
{
    struct op_test *t = &s->t;
    op_test_start(t);
    s->rows = rows;
    s->vocab = vocab;
    s->logits = op_test_tensor(t, EBB_F32, rows, vocab, vocab + 5);
    s->targets = op_test_tensor(t, EBB_I32, 1, 2 * rows, 2 * rows);
    s->label_rows = op_test_tensor(t, EBB_I32, 1, 2 * rows, 2 * rows);
    s->dlogits = op_test_tensor(t, dtype, rows, vocab, vocab + 2);
    s->sums = op_test_tensor(t, EBB_U8, 1, sizeof(struct ebb_sums), sizeof(struct ebb_sums));
    s->scratch = op_test_scratch(t, ebb_cross_entropy_scratch(rows, &t->target));
    memset(sums_of(s), 0, sizeof(struct ebb_sums));
    t->step.tokens = 2 * rows;
    t->step.labels = rows;
    op_test_live(&s->logits, EBB_EXTENT_LABELS, 0);
    op_test_fill(t, &s->logits, -8, 8);
    op_test_fill(t, &s->dlogits, 5, 6);
    for (int64_t i = 0; i < 2 * rows; i++) {
        op_test_set(t, &s->targets, 0, i, -100); /* every other token is trained */
        if (i % 2) op_test_set(t, &s->targets, 0, i, floor(op_test_uniform(t) * (double)vocab));
        op_test_set(t, &s->label_rows, 0, i, i < rows ? (double)(2 * i + 1) : -1);
    }
}

static struct ebb_cross_entropy args_of(const struct setup *s)
{
    struct ebb_cross_entropy args = {.logits = s->logits,
                                     .targets = s->targets,
                                     .label_rows = s->label_rows,
                                     .dlogits = s->dlogits,
                                     .sums = s->sums,
                                     .scratch = s->scratch};
    return args;
}

static double oracle(const double *z, int64_t vocab, int64_t target)
{
    double max = z[0], sum = 0;
    for (int64_t j = 1; j < vocab; j++) max = fmax(max, z[j]);
    for (int64_t j = 0; j < vocab; j++) sum += exp(z[j] - max);
    return log(sum) + max - z[target];
}

static const struct {
    enum ebb_dtype dtype;
    int64_t rows, vocab;
} sizes[] = {{EBB_F32, 1, 1},    {EBB_F32, 13, 77},    {EBB_F32, 600, 33},
             {EBB_F32, 3, 5003}, {EBB_BF16, 20, 1500}, {EBB_BF16, 1, 3}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void loss_and_gradient_agree_with_the_formula(void **state)
{
    (void)state;
    for (int k = 0; k < SIZES; k++) {
        struct setup s;
        prepare(&s, sizes[k].rows, sizes[k].vocab, sizes[k].dtype);
        struct ebb_cross_entropy args = args_of(&s);
        sums_of(&s)->loss = 0.5; /* sums are added to */
        sums_of(&s)->labels = 7;
        sums_of(&s)->correct = 3;
        double *z = op_test_doubles(&s.t, &s.logits);
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        double loss = 0.5;
        int64_t correct = 3;
        for (int64_t i = 0; i < s.rows; i++) {
            double *row = z + i * s.vocab;
            int64_t target = target_of(&s, i), best = 0;
            double row_loss = oracle(row, s.vocab, target);
            for (int64_t j = 0; j < s.vocab; j++) {
                if (row[j] > row[best]) best = j;
                double exact = exp(row[j] - row[target] - row_loss) - (j == target);
                op_test_close(&s.t, &s.dlogits, i, j, exact, 1e-6, 1.2e-7);
            }
            for (int64_t j = 0; j < s.vocab && j < 40;
                 j++) { /* the formula of the gradient itself */
                double at = row[j], h = 1e-5;
                row[j] = at + h;
                double up = oracle(row, s.vocab, target);
                row[j] = at - h;
                double down = oracle(row, s.vocab, target);
                row[j] = at;
                op_test_close(&s.t, &s.dlogits, i, j, (up - down) / (2 * h), 1e-6, 1e-6);
            }
            loss += row_loss;
            correct += best == target;
        }
        assert_true(fabs(sums_of(&s)->loss - loss) <= 2e-7 * (double)s.rows + 1e-7 * fabs(loss));
        assert_int_equal(sums_of(&s)->labels, 7 + s.rows);
        assert_true(sums_of(&s)->correct == correct);
        free(z);
        op_test_end(&s.t);
    }
}

static void threads_in_place_and_loss_only_give_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < SIZES; k++) {
        struct setup s;
        prepare(&s, sizes[k].rows, sizes[k].vocab, sizes[k].dtype);
        struct ebb_cross_entropy args = args_of(&s);
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        struct ebb_sums first = *sums_of(&s);
        void *gradient = op_test_copy(&s.t, &s.dlogits), *logits = op_test_copy(&s.t, &s.logits);
        memset(sums_of(&s), 0, sizeof first);
        s.t.env.threads = 1;
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        assert_memory_equal(sums_of(&s), &first, sizeof first);
        assert_true(op_test_same(&s.t, &s.dlogits, gradient));
        memset(sums_of(&s), 0, sizeof first);
        args.dlogits = ebb_view_none();
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        assert_memory_equal(sums_of(&s), &first, sizeof first);
        assert_true(op_test_same(&s.t, &s.logits, logits));
        if (sizes[k].dtype == EBB_F32) {
            memset(sums_of(&s), 0, sizeof first);
            args.dlogits = args.logits;
            assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
            assert_memory_equal(sums_of(&s), &first, sizeof first);
            for (int64_t i = 0; i < s.rows; i++) {
                assert_memory_equal(op_test_at(&s.t, &s.logits, i, 0),
                                    op_test_at(&s.t, &s.dlogits, i, 0), (size_t)s.vocab * 4);
            }
        }
        free(gradient), free(logits);
        op_test_end(&s.t);
    }
}

static void any_layout_of_the_rows_gives_the_same_bits(void **state)
{
    (void)state;
    static const int64_t vocab[] = {1, 6, 2048, 8192, 8195, 20001};
    for (int k = 0; k < 12; k++) {
        struct setup s;
        prepare(&s, 3, vocab[k / 2], k % 2 ? EBB_BF16 : EBB_F32);
        struct ebb_cross_entropy args = args_of(&s);
        struct ebb_view logits = s.logits;
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        struct ebb_sums first = *sums_of(&s);
        for (int layout = 0; layout < OP_LAYOUTS; layout++) {
            args.logits = op_layout_copy(&s.t, &logits, layout);
            args.dlogits = op_layout_copy(&s.t, &s.dlogits, layout);
            op_test_fill(&s.t, &args.dlogits, 5, 6);
            for (int in_place = 0; in_place < 2; in_place++) {
                if (in_place && s.dlogits.dtype != EBB_F32) break;
                if (in_place) args.dlogits = args.logits;
                memset(sums_of(&s), 0, sizeof first);
                assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
                assert_memory_equal(sums_of(&s), &first, sizeof first);
                assert_true(op_layout_same(&s.t, &args.dlogits, &s.dlogits));
            }
            op_test_drop_last(&s.t);
            op_test_drop_last(&s.t);
        }
        op_test_end(&s.t);
    }
}

static void a_gradient_in_the_upper_half_of_the_rows_has_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * OP_LAYOUT_COLS; k++) {
        struct setup s;
        int64_t vocab = op_layout_cols[k / 2];
        prepare(&s, k % 2 ? 1 : vocab < 1000 ? 600 : 5, vocab, EBB_BF16);
        struct ebb_cross_entropy args = args_of(&s);
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        struct ebb_sums first = *sums_of(&s);
        for (int layout = 0; layout < OP_LAYOUTS; layout++) {
            args.logits = op_layout_copy(&s.t, &s.logits, layout);
            args.dlogits = ebb_view_upper_half(&args.logits);
            memset(sums_of(&s), 0, sizeof first);
            assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
            assert_memory_equal(sums_of(&s), &first, sizeof first);
            assert_true(op_layout_same(&s.t, &args.dlogits, &s.dlogits));
            op_test_drop_last(&s.t);
        }
        op_test_end(&s.t);
    }
}

static void long_rows_agree_with_the_formula(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct setup s;
        prepare(&s, 2, 30002, EBB_F32);
        struct ebb_cross_entropy args = args_of(&s);
        for (int64_t j = 0; j < s.vocab; j++) { /* a new maximum at every step, or one for all */
            op_test_set(&s.t, &s.logits, 0, j, (k == 0 ? 1 : -1) * 0.01 * (double)j);
            op_test_set(&s.t, &s.logits, 1, j, k == 0 ? 2 : (double)(j % 31));
        }
        args.logits = op_layout_copy(&s.t, &s.logits, 0);
        args.dlogits = op_layout_copy(&s.t, &s.dlogits, 0);
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        double *z = op_test_doubles(&s.t, &s.logits), loss = 0;
        for (int64_t i = 0; i < 2; i++) {
            double *row = z + i * s.vocab;
            int64_t target = target_of(&s, i);
            double row_loss = oracle(row, s.vocab, target);
            for (int64_t j = 0; j < s.vocab; j++) {
                double exact = exp(row[j] - row[target] - row_loss) - (j == target);
                op_test_close(&s.t, &args.dlogits, i, j, exact, 1e-6, 1.2e-7);
            }
            loss += row_loss;
        }
        assert_true(fabs(sums_of(&s)->loss - loss) <= 4e-7 + 1e-7 * fabs(loss));
        free(z);
        op_test_end(&s.t);
    }
}

static void chunks_add_up_to_the_whole_and_dead_rows_are_left_alone(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 10, 50, EBB_F32);
    struct ebb_cross_entropy args = args_of(&s);
    s.t.step.labels = 7;
    assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
    struct ebb_sums whole = *sums_of(&s);
    assert_int_equal(whole.labels, 7);
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(op_test_get(&s.t, &s.dlogits, i, 0) >= 5, i >= 7);
    memset(sums_of(&s), 0, sizeof whole);
    for (int64_t start = 0; start < 12; start += 4) {
        struct ebb_cross_entropy chunk = args;
        chunk.logits.offset = start * s.logits.stride * 4;
        chunk.dlogits.offset = start * s.dlogits.stride * 4;
        chunk.logits.row0 = start;
        chunk.logits.rows = chunk.dlogits.rows = start == 8 ? 2 : 4;
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &chunk), EBB_OK);
    }
    if (op_test_on_gpu()) { /* there a chunk's rows are added up before the sum gets them */
        assert_true(fabs(sums_of(&s)->loss - whole.loss) <= 1e-14 * whole.loss);
        whole.loss = sums_of(&s)->loss;
    }
    assert_memory_equal(sums_of(&s), &whole, sizeof whole);
    s.t.step.labels = 0;
    assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
    assert_memory_equal(sums_of(&s), &whole, sizeof whole);
    op_test_end(&s.t);
}

static void the_first_of_equal_logits_wins(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 3, 60, EBB_F32);
    struct ebb_cross_entropy args = args_of(&s);
    op_test_fill(&s.t, &s.logits, -1, 1);
    static const int64_t target[3] = {10, 40, 0};
    for (int64_t i = 0; i < 3; i++) {
        op_test_set(&s.t, &s.targets, 0, 2 * i + 1, (double)target[i]);
        if (i < 2) op_test_set(&s.t, &s.logits, i, 10, 3);
        if (i < 2) op_test_set(&s.t, &s.logits, i, 40, 3);
    }
    for (int64_t j = 0; j < 60; j++) op_test_set(&s.t, &s.logits, 2, j, 0);
    assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
    assert_int_equal(sums_of(&s)->correct, 2);
    op_test_end(&s.t);
}

static void the_first_of_equal_logits_wins_wherever_they_stand(void **state)
{
    (void)state;
    /* One behind the other at distances at which a thread, its neighbour or another has both. */
    static const int64_t at[][2] = {{0, 1},       {3, 4},       {5, 2053},      {7, 8199},
                                    {8191, 8192}, {100, 19999}, {16384, 20000}, {12000, 12003}};
    for (int k = 0; k < 8; k++) {
        struct setup s;
        prepare(&s, 2, 20001, EBB_F32);
        for (int64_t i = 0; i < 2; i++) { /* the target is the first, the second */
            op_test_set(&s.t, &s.targets, 0, 2 * i + 1, (double)at[k][i]);
            for (int c = 0; c < 2; c++) op_test_set(&s.t, &s.logits, i, at[k][c], 9);
        }
        struct ebb_cross_entropy args = args_of(&s);
        for (int layout = 0; layout < OP_LAYOUTS; layout += 2) {
            args.logits = op_layout_copy(&s.t, &s.logits, layout);
            memset(sums_of(&s), 0, sizeof(struct ebb_sums));
            s.t.step.labels = 1;
            assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
            assert_int_equal(sums_of(&s)->correct, 1);
            s.t.step.labels = 2;
            assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
            assert_int_equal(sums_of(&s)->correct, 2);
        }
        op_test_end(&s.t);
    }
}

static void large_masked_and_broken_logits_behave(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 5, 40, EBB_F32);
    struct ebb_cross_entropy args = args_of(&s);
    double want = 0;
    for (int64_t j = 0; j < 40; j++) {
        op_test_set(&s.t, &s.logits, 0, j, 1e4 + (double)j);               /* no overflow */
        op_test_set(&s.t, &s.logits, 1, j, j % 2 ? (double)-INFINITY : 0); /* masked columns */
        op_test_set(&s.t, &s.logits, 2, j, -3e38);                         /* all the same */
    }
    op_test_set(&s.t, &s.targets, 0, 1, 39);
    op_test_set(&s.t, &s.targets, 0, 3, 6);
    s.t.step.labels = 3;
    double powers = 0;
    for (int j = 0; j < 40; j++) powers += exp(j - 39.0);
    want = log(powers) + log(20) + log(40);
    assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
    assert_true(fabs(sums_of(&s)->loss - want) < 1e-6);
    op_test_close(&s.t, &s.dlogits, 1, 1, 0, 0, 0);
    op_test_close(&s.t, &s.dlogits, 1, 6, 0.05 - 1, 1e-6, 0);
    op_test_close(&s.t, &s.dlogits, 2, 3, 0.025 - (target_of(&s, 2) == 3), 1e-6, 0);
    int64_t correct = sums_of(&s)->correct;
    op_test_set(&s.t, &s.logits, 3, 0,
                (double)NAN); /* one bad logit spoils its row and the sum, visibly */
    s.t.step.labels = 4;
    memset(sums_of(&s), 0, sizeof(struct ebb_sums));
    assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
    assert_true(isnan(sums_of(&s)->loss));
    assert_true(sums_of(&s)->correct == correct);
    for (int64_t j = 0; j < 40; j++) assert_true(isnan(op_test_get(&s.t, &s.dlogits, 3, j)));
    for (int k = 0; k < 3; k++) { /* all of a row NaN, all -inf, one +inf */
        memset(sums_of(&s), 0, sizeof(struct ebb_sums));
        for (int64_t j = 0; j < 40; j++) {
            double z = k == 0   ? (double)NAN
                       : k == 1 ? (double)-INFINITY
                       : j == 5 ? (double)INFINITY
                                : 0;
            op_test_set(&s.t, &s.logits, 3, j, z);
        }
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        assert_true(!isfinite(sums_of(&s)->loss));
        assert_true(!isfinite(op_test_get(&s.t, &s.dlogits, 3, 5)));
    }
    op_test_end(&s.t);
}

static void a_target_outside_the_vocabulary_is_an_error_that_names_it(void **state)
{
    (void)state;
    op_test_cpu_only("targets and labels are the host's to check");
    static const double bad[] = {77, -100};
    for (int k = 0; k < 2; k++) {
        struct setup s;
        prepare(&s, 13, 77, EBB_F32);
        struct ebb_cross_entropy args = args_of(&s);
        op_test_set(&s.t, &s.targets, 0, 9, bad[k]);
        void *gradient = op_test_copy(&s.t, &s.dlogits);
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_FAILED);
        const char *text = ebb_error_text(s.t.env.ctx);
        assert_non_null(
            strstr(text, k == 0 ? "target of token 9 is 77" : "target of token 9 is -100"));
        assert_non_null(strstr(text, "vocabulary of 77"));
        assert_true(op_test_same(&s.t, &s.dlogits, gradient));
        assert_int_equal(sums_of(&s)->labels, 0);
        ebb_error_clear(s.t.env.ctx);
        op_test_set(&s.t, &s.label_rows, 0, 2, 26);
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_FAILED);
        assert_non_null(
            strstr(ebb_error_text(s.t.env.ctx), "label 2 is about token 26 of a batch of 26"));
        free(gradient);
        op_test_end(&s.t);
    }
}

static void a_target_or_label_that_nobody_checked_makes_the_loss_nan(void **state)
{
    (void)state;
    op_test_gpu_only("such a target is an error");
    for (int k = 0; k < 4; k++) {
        struct setup s;
        prepare(&s, 13, 77, EBB_F32);
        struct ebb_cross_entropy args = args_of(&s);
        if (k < 2) op_test_set(&s.t, &s.targets, 0, 9, k == 0 ? 77 : -100);
        if (k >= 2) op_test_set(&s.t, &s.label_rows, 0, 4, k == 2 ? 26 : -1);
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &args), EBB_OK);
        assert_true(isnan(sums_of(&s)->loss));
        assert_int_equal(sums_of(&s)->labels, 13);
        for (int64_t i = 0; i < 13; i++) { /* other rows learn as ever */
            if (i != 4) assert_true(op_test_get(&s.t, &s.dlogits, i, target_of(&s, i)) < 0);
        }
        op_test_end(&s.t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_agree_with_the_formula),
        cmocka_unit_test(threads_in_place_and_loss_only_give_the_same_bits),
        cmocka_unit_test(any_layout_of_the_rows_gives_the_same_bits),
        cmocka_unit_test(a_gradient_in_the_upper_half_of_the_rows_has_the_same_bits),
        cmocka_unit_test(long_rows_agree_with_the_formula),
        cmocka_unit_test(chunks_add_up_to_the_whole_and_dead_rows_are_left_alone),
        cmocka_unit_test(the_first_of_equal_logits_wins),
        cmocka_unit_test(the_first_of_equal_logits_wins_wherever_they_stand),
        cmocka_unit_test(large_masked_and_broken_logits_behave),
        cmocka_unit_test(a_target_outside_the_vocabulary_is_an_error_that_names_it),
        cmocka_unit_test(a_target_or_label_that_nobody_checked_makes_the_loss_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
