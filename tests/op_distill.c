/* Knowledge distillation against double precision: every divergence, its gradient by finite
 * differences, saved teachers, and numbers of PyTorch (tools/golden_distill.py).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_distill_kit.h"
#include "op_layout.h"

#include "base/json.h"
#include "op/cross_entropy.h"

static const double betas[] = {0, 0.1, 0.5, 0.9, 1}, temperatures[] = {1, 2, 0.5},
                    ratios[] = {0, 0.5, 1};
enum { BETAS = 5, TEMPERATURES = 3, RATIOS = 3, SETTINGS = EBB_DIVERGENCES * 5 * 3 * 3 };

static void choose(struct setup *s, int setting)
{
    s->keys.beta = betas[setting % BETAS];
    s->keys.temperature = temperatures[setting / BETAS % TEMPERATURES];
    s->keys.kd_ratio = ratios[setting / BETAS / TEMPERATURES % RATIOS];
    s->keys.divergence =
        (enum ebb_divergence)(setting / BETAS / TEMPERATURES / RATIOS % EBB_DIVERGENCES);
    s->keys.scale_t2 = setting % 2 == 1;
}

/* All of them; where a tool follows every instruction (EBB_TEST_MEMORY), every seventh, which still
 * has each value of each constant. */
static int next(const struct setup *s, int setting)
{
    return setting + (s->t.apart != NULL ? 7 : 1);
}

static void name_setting(const struct setup *s)
{
    print_message("divergence %d, beta %g, temperature %g%s, kd_ratio %g\n",
                  (int)s->keys.divergence, s->keys.beta, s->keys.temperature,
                  s->keys.scale_t2 ? " with its square" : "", s->keys.kd_ratio);
}

static void loss_and_gradient_agree_with_the_formula(void **state)
{
    (void)state;
    static const struct size sizes[] = {{3, 23, 21, 19, 0, EBB_F32, EBB_F32},
                                        {2, 17, 30, 17, 0, EBB_BF16, EBB_F32}};
    for (int size = 0; size < 2; size++) {
        struct setup s;
        prepare(&s, &sizes[size]);
        for (int setting = 0; setting < SETTINGS; setting = next(&s, setting)) {
            choose(&s, setting);
            if (getenv("EBB_TEST_VERBOSE")) name_setting(&s);
            check(&s, false, 1);
        }
        op_test_end(&s.t);
    }
}

static void rows_of_many_chunks_agree_with_the_formula(void **state)
{
    (void)state;
    static const struct size sizes[] = {{2, 3001, 2900, 2900, 0, EBB_F32, EBB_F32},
                                        {1, 1024, 1024, 1024, 0, EBB_BF16, EBB_F32},
                                        {1, 1, 1, 1, 0, EBB_F32, EBB_F32},
                                        {600, 5, 4, 3, 0, EBB_F32, EBB_F32}};
    for (int size = 0; size < 4; size++) {
        struct setup s;
        prepare(&s, &sizes[size]);
        for (int kind = 0; kind < EBB_DIVERGENCES; kind++) {
            s.keys.divergence = (enum ebb_divergence)kind;
            s.keys.beta = 0.3;
            s.keys.temperature = kind % 2 ? 1.5 : 1;
            check(&s, false, sizes[size].cols > 100 ? 97 : 1);
        }
        op_test_end(&s.t);
    }
}

static void a_beta_next_to_an_end_agrees_with_the_formula(void **state)
{
    (void)state;
    static const struct size size = {2, 17, 17, 17, 0, EBB_F32, EBB_F32};
    static const double near[] = {1e-30, 1e-9, 1e-7, 1 - 1e-7, 1 - 1e-9, 1 - 1e-15};
    struct setup s;
    prepare(&s, &size);
    op_test_set(&s.t, &s.logits, 0, 4, 200); /* powers that are 0 in fp32 */
    op_test_set(&s.t, &s.teacher, 1, 5, 200);
    for (int kind = EBB_JSD; kind < EBB_DIVERGENCES; kind++) {
        for (int k = 0; k < 6; k++) {
            s.keys.divergence = (enum ebb_divergence)kind;
            s.keys.beta = near[k];
            assert_runs(&s, false);
            double z[17], p[17], q[17], want = 0;
            for (int64_t i = 0; i < 2; i++) {
                for (int64_t j = 0; j < 17; j++) z[j] = op_test_get(&s.t, &s.logits, i, j);
                softmax(z, 17, 1, q);
                for (int64_t j = 0; j < 17; j++) z[j] = op_test_get(&s.t, &s.teacher, i, j);
                softmax(z, 17, 1, p);
                want += divergence_of(&s.keys, p, q, 17);
                for (int64_t j = 0; j < 17; j++)
                    assert_true(isfinite(op_test_get(&s.t, &s.dlogits, i, j)));
            }
            assert_true(is_close(sums_of(&s)->divergence, want, 1e-6));
        }
    }
    op_test_end(&s.t);
}

/* The teacher's k likeliest tokens of each label, from its logits. */
static void save_teacher(struct setup *s)
{
    int64_t n = s->keys.vocab;
    double z[ORACLE_VOCAB], p[ORACLE_VOCAB];
    for (int64_t i = 0; i < s->rows; i++) {
        for (int64_t j = 0; j < n; j++) z[j] = op_test_get(&s->t, &s->teacher, i, j);
        softmax(z, n, s->keys.temperature, p);
        for (int64_t c = 0; c < s->k; c++) {
            int64_t best = 0;
            for (int64_t j = 1; j < n; j++) {
                if (p[j] > p[best]) best = j;
            }
            op_test_set(&s->t, &s->ids, i, c, (double)best);
            op_test_set(&s->t, &s->logprobs, i, c, log(p[best]));
            p[best] = -1;
        }
    }
}

static void a_saved_teacher_agrees_with_the_formula_over_its_classes(void **state)
{
    (void)state;
    static const struct size sizes[] = {{3, 23, 21, 19, 4, EBB_F32, EBB_F32},
                                        {2, 17, 30, 17, 16, EBB_BF16, EBB_BF16},
                                        {2, 17, 30, 17, 1, EBB_F32, EBB_BF16},
                                        {2, 12, 12, 11, 11, EBB_F32, EBB_F32}};
    for (int size = 0; size < 4; size++) {
        struct setup s;
        prepare(&s, &sizes[size]);
        for (int setting = 0; setting < SETTINGS; setting = next(&s, setting)) {
            choose(&s, setting);
            if (getenv("EBB_TEST_VERBOSE")) name_setting(&s);
            save_teacher(&s);
            check(&s, true, 1);
        }
        op_test_end(&s.t);
    }
}

static void a_saved_teacher_of_many_tokens_agrees_with_the_formula(void **state)
{
    (void)state;
    static const struct size size = {2, 3001, 2900, 2900, EBB_DISTILL_TOPK, EBB_F32, EBB_F32};
    struct setup s;
    prepare(&s, &size);
    save_teacher(&s);
    for (int kind = 0; kind < EBB_DIVERGENCES; kind++) {
        s.keys.divergence = (enum ebb_divergence)kind;
        s.keys.beta = 0.3;
        check(&s, true, 97);
    }
    op_test_end(&s.t);
}

/* ---- what must be the same ---- */

static void assert_same_numbers(struct setup *s, struct ebb_sums sums, const void *gradient)
{
    assert_memory_equal(sums_of(s), &sums, sizeof sums);
    assert_true(op_test_same(&s->t, &s->dlogits, gradient));
}

static const struct size usual = {5, 60, 55, 50, 7, EBB_F32, EBB_F32};

static void the_ends_of_beta_are_what_the_header_says(void **state)
{
    (void)state;
    static const struct {
        enum ebb_divergence divergence;
        double beta;
        enum ebb_divergence same;
    } ends[] = {{EBB_JSD, 0, EBB_FORWARD_KL},
                {EBB_JSD, 1, EBB_REVERSE_KL},
                {EBB_SYMMETRIC_KL, 1, EBB_FORWARD_KL},
                {EBB_SYMMETRIC_KL, 0, EBB_REVERSE_KL},
                {EBB_SKEWED_FORWARD_KL, 0, EBB_FORWARD_KL},
                {EBB_SKEWED_REVERSE_KL, 0, EBB_REVERSE_KL}};
    for (int saved = 0; saved < 2; saved++) {
        struct setup s;
        prepare(&s, &usual);
        save_teacher(&s);
        for (int k = 0; k < 6; k++) {
            s.keys.divergence = ends[k].same;
            s.keys.beta = 0.7; /* without effect */
            assert_runs(&s, saved);
            struct ebb_sums sums = *sums_of(&s);
            void *gradient = op_test_copy(&s.t, &s.dlogits);
            s.keys.divergence = ends[k].divergence;
            s.keys.beta = ends[k].beta;
            assert_runs(&s, saved);
            assert_same_numbers(&s, sums, gradient);
            free(gradient);
        }
        for (int kind = EBB_SKEWED_FORWARD_KL; kind <= EBB_SKEWED_REVERSE_KL; kind++) {
            s.keys.divergence = (enum ebb_divergence)kind;
            s.keys.beta = 1; /* nothing to learn */
            s.keys.kd_ratio = 1;
            assert_runs(&s, saved);
            assert_true(sums_of(&s)->loss == 0 && sums_of(&s)->divergence == 0);
            for (int64_t j = 0; j < 60; j++) assert_true(op_test_get(&s.t, &s.dlogits, 1, j) == 0);
        }
        op_test_end(&s.t);
    }
}

static void a_teacher_that_is_the_student_teaches_nothing(void **state)
{
    (void)state;
    static const struct size size = {5, 60, 55, 50, 50, EBB_F32, EBB_F32};
    for (int saved = 0; saved < 3; saved++) { /* logits; 12 tokens; all tokens */
        struct setup s;
        prepare(&s, &size);
        s.k = saved == 1 ? 12 : 50;
        s.ids.cols = s.logprobs.cols = s.k;
        for (int setting = 0; setting < SETTINGS; setting = next(&s, setting)) {
            choose(&s, setting);
            s.keys.kd_ratio = 1;
            for (int64_t i = 0; i < s.rows; i++) { /* the padding differs */
                for (int64_t j = 0; j < 50; j++)
                    op_test_set(&s.t, &s.teacher, i, j, op_test_get(&s.t, &s.logits, i, j));
            }
            if (saved) save_teacher(&s);
            assert_runs(&s, saved > 0);
            assert_true(fabs(sums_of(&s)->divergence) <= (saved ? 1e-6 : 0));
            assert_true(fabs(sums_of(&s)->loss) <= (saved ? 1e-6 : 0));
            for (int64_t i = 0; i < s.rows; i++) {
                for (int64_t j = 0; j < 60; j++)
                    op_test_close(&s.t, &s.dlogits, i, j, 0, 0, saved ? 5e-7 : 0);
            }
        }
        op_test_end(&s.t);
    }
}

static void without_a_teachers_share_it_is_cross_entropy(void **state)
{
    (void)state;
    static const struct size size = {20, 1500, 1500, 1500, 7, EBB_F32, EBB_F32};
    for (int saved = 0; saved < 2; saved++) {
        struct setup s;
        prepare(&s, &size);
        save_teacher(&s);
        struct ebb_cross_entropy plain = {.logits = s.logits,
                                          .targets = s.targets,
                                          .label_rows = s.label_rows,
                                          .dlogits = s.dlogits,
                                          .sums = s.sums,
                                          .scratch = s.scratch};
        clear_sums(&s);
        assert_int_equal(op_test_run(&s.t, EBB_OP_cross_entropy, &plain), EBB_OK);
        struct ebb_sums sums = *sums_of(&s);
        double *gradient = op_test_doubles(&s.t, &s.dlogits);
        assert_true(sums.cross_entropy == 0 && sums.divergence == 0);
        s.keys.kd_ratio = 0;
        for (int kind = 0; kind < EBB_DIVERGENCES; kind++) {
            s.keys.divergence = (enum ebb_divergence)kind;
            s.keys.temperature = kind % 2 ? 3 : 1;
            assert_runs(&s, saved);
            assert_true(sums_of(&s)->loss == sums.loss);
            assert_true(sums_of(&s)->cross_entropy == sums.loss);
            assert_true(sums_of(&s)->divergence > 0); /* reported, though it has no share */
            assert_int_equal(sums_of(&s)->labels, sums.labels);
            assert_int_equal(sums_of(&s)->correct, sums.correct);
            op_test_all_close(&s.t, &s.dlogits, gradient, op_test_on_gpu() ? 1e-6 : 0,
                              op_test_on_gpu() ? 1e-7 : 0);
        }
        free(gradient);
        op_test_end(&s.t);
    }
}

static void the_first_of_equal_logits_wins(void **state)
{
    (void)state;
    for (int saved = 0; saved < 2; saved++) {
        struct setup s;
        prepare(&s, &usual);
        save_teacher(&s);
        for (int64_t i = 0; i < s.rows; i++) {
            op_test_set(&s.t, &s.logits, i, 10, 6);
            op_test_set(&s.t, &s.logits, i, 40, 6);
            op_test_set(&s.t, &s.logits, i, 55, 9); /* behind the vocabulary */
            op_test_set(&s.t, &s.targets, 0, 2 * i + 1, i < 2 ? 10 : 40);
        }
        assert_runs(&s, saved);
        assert_int_equal(sums_of(&s)->correct, 2);
        op_test_end(&s.t);
    }
}

static void with_all_of_the_share_the_target_has_no_part(void **state)
{
    (void)state;
    for (int saved = 0; saved < 2; saved++) {
        struct setup s;
        prepare(&s, &usual);
        save_teacher(&s);
        s.keys.kd_ratio = 1;
        assert_runs(&s, saved);
        void *gradient = op_test_copy(&s.t, &s.dlogits);
        struct ebb_sums sums = *sums_of(&s);
        assert_true(sums.loss == sums.divergence && sums.cross_entropy > 0);
        for (int64_t i = 0; i < s.rows; i++) /* other targets */
            op_test_set(&s.t, &s.targets, 0, 2 * i + 1, (double)((target_of(&s, i) + 3) % 50));
        assert_runs(&s, saved);
        assert_true(op_test_same(&s.t, &s.dlogits, gradient));
        assert_true(sums_of(&s)->loss == sums.loss);
        assert_true(sums_of(&s)->cross_entropy != sums.cross_entropy);
        free(gradient);
        /* A target that the student masks: its cross-entropy is infinite, the loss is not. */
        int64_t masked = (int64_t)op_test_get(&s.t, &s.ids, 0, 0) == 4 ? 5 : 4;
        op_test_set(&s.t, &s.logits, 0, masked, (double)-INFINITY);
        op_test_set(&s.t, &s.targets, 0, 1, (double)masked);
        assert_runs(&s, saved);
        assert_true(isinf(sums_of(&s)->cross_entropy) && isfinite(sums_of(&s)->loss));
        for (int64_t j = 0; j < 60; j++) assert_true(isfinite(op_test_get(&s.t, &s.dlogits, 0, j)));
        op_test_end(&s.t);
    }
}

static void threads_in_place_and_loss_only_give_the_same_bits(void **state)
{
    (void)state;
    static const struct size sizes[] = {{40, 1500, 1300, 1290, 30, EBB_F32, EBB_F32},
                                        {20, 2000, 2500, 2000, 64, EBB_BF16, EBB_BF16}};
    for (int kind = 0; kind < 4 * EBB_DIVERGENCES; kind++) {
        struct setup s;
        bool saved = kind % 2 == 1;
        const struct size *size = &sizes[kind / 2 % 2];
        prepare(&s, size);
        s.keys.divergence = (enum ebb_divergence)(kind / 4);
        s.keys.temperature = 2;
        save_teacher(&s);
        void *logits = op_test_copy(&s.t, &s.logits);
        assert_runs(&s, saved);
        struct ebb_sums sums = *sums_of(&s);
        void *gradient = op_test_copy(&s.t, &s.dlogits);
        assert_true(op_test_same(&s.t, &s.logits, logits));
        s.t.env.threads = 1;
        assert_runs(&s, saved);
        assert_same_numbers(&s, sums, gradient);
        struct ebb_view dlogits = s.dlogits;
        s.dlogits = ebb_view_none();
        assert_runs(&s, saved);
        s.dlogits = dlogits;
        assert_same_numbers(&s, sums, gradient);
        assert_true(op_test_same(&s.t, &s.logits, logits));
        if (size->storage == EBB_F32) {
            s.dlogits = s.logits;
            assert_runs(&s, saved);
            assert_memory_equal(sums_of(&s), &sums, sizeof sums);
            for (int64_t i = 0; i < s.rows; i++) {
                assert_memory_equal(op_test_at(&s.t, &s.logits, i, 0),
                                    op_test_at(&s.t, &dlogits, i, 0), (size_t)size->cols * 4);
            }
        }
        free(gradient), free(logits);
        op_test_end(&s.t);
    }
}

static void any_layout_of_the_rows_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct size sizes[] = {{2, 4100, 4099, 4095, 30, EBB_F32, EBB_F32},
                                        {2, 4096, 4096, 4096, 64, EBB_BF16, EBB_BF16},
                                        {3, 9, 8, 6, 3, EBB_BF16, EBB_F32}};
    for (int kind = 0; kind < 6 * EBB_DIVERGENCES; kind++) {
        struct setup s;
        bool saved = kind % 2 == 1;
        prepare(&s, &sizes[kind / 2 % 3]);
        s.keys.divergence = (enum ebb_divergence)(kind / 6);
        s.keys.temperature = kind % 3 ? 2 : 1;
        save_teacher(&s);
        assert_runs(&s, saved);
        struct ebb_sums sums = *sums_of(&s);
        struct ebb_view logits = s.logits, teacher = s.teacher, dlogits = s.dlogits;
        for (int layout = 0; layout < OP_LAYOUTS; layout++) {
            s.logits = op_layout_copy(&s.t, &logits, layout);
            s.teacher = op_layout_copy(&s.t, &teacher, layout);
            s.dlogits = op_layout_copy(&s.t, &dlogits, layout);
            op_test_fill(&s.t, &s.dlogits, 5, 6);
            assert_runs(&s, saved);
            assert_memory_equal(sums_of(&s), &sums, sizeof sums);
            assert_true(op_layout_same(&s.t, &s.dlogits, &dlogits));
            assert_true(op_layout_same(&s.t, &s.logits, &logits));
            for (int i = 0; i < 3; i++) op_test_drop_last(&s.t);
        }
        op_test_end(&s.t);
    }
}

/* Half of a label's probability on tokens all over a row, however long it is. */
static void save_anything(struct setup *s)
{
    for (int64_t i = 0; i < s->rows; i++) {
        for (int64_t c = 0; c < s->k; c++) {
            op_test_set(&s->t, &s->ids, i, c, (double)(c * s->keys.vocab / s->k));
            op_test_set(&s->t, &s->logprobs, i, c, log(0.5 / (double)s->k));
        }
    }
}

static void a_gradient_in_the_upper_half_of_the_rows_has_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < 4 * OP_LAYOUT_COLS; k++) {
        struct setup s;
        bool saved = k % 2 == 1, one = k / 2 % 2 == 1;
        int64_t vocab = op_layout_cols[k / 4], behind = k % 3 == 0 ? 3 : 0;
        const struct size size = {one ? 1 : vocab < 100 ? 530 : 4, vocab + behind, vocab + 7, vocab,
                                  vocab < 40 ? vocab : 40,         EBB_BF16,       EBB_BF16};
        prepare(&s, &size);
        s.keys.divergence = (enum ebb_divergence)((k + k / 4) % EBB_DIVERGENCES);
        s.keys.temperature = k % 5 ? 2 : 1;
        s.keys.kd_ratio = ratios[(k + 1) % RATIOS];
        save_anything(&s);
        assert_runs(&s, saved);
        struct ebb_sums sums = *sums_of(&s);
        struct ebb_view logits = s.logits, teacher = s.teacher, dlogits = s.dlogits;
        for (int layout = 0; layout < OP_LAYOUTS; layout++) {
            s.logits = op_layout_copy(&s.t, &logits, layout);
            s.teacher = op_layout_copy(&s.t, &teacher, layout);
            s.dlogits = ebb_view_upper_half(&s.logits);
            assert_runs(&s, saved);
            assert_memory_equal(sums_of(&s), &sums, sizeof sums);
            assert_true(op_layout_same(&s.t, &s.dlogits, &dlogits));
            for (int i = 0; i < 2; i++) op_test_drop_last(&s.t);
        }
        op_test_end(&s.t);
    }
}

static void long_aligned_rows_agree_with_the_formula(void **state)
{
    (void)state;
    static const struct size size = {1, 4096, 4096, ORACLE_VOCAB, 500, EBB_F32, EBB_F32};
    struct setup s;
    prepare(&s, &size);
    save_teacher(&s);
    s.logits = op_layout_copy(&s.t, &s.logits, 0);
    s.teacher = op_layout_copy(&s.t, &s.teacher, 0);
    s.dlogits = op_layout_copy(&s.t, &s.dlogits, 0);
    for (int kind = 0; kind < EBB_DIVERGENCES; kind++) {
        s.keys.divergence = (enum ebb_divergence)kind;
        s.keys.beta = 0.3;
        check(&s, kind % 2 == 1, 397);
        check(&s, kind % 2 == 0, 397);
    }
    op_test_end(&s.t);
}

static void chunks_add_up_to_the_whole_and_dead_rows_are_left_alone(void **state)
{
    (void)state;
    static const struct size size = {10, 50, 45, 45, 6, EBB_F32, EBB_F32};
    for (int saved = 0; saved < 2; saved++) {
        struct setup s;
        prepare(&s, &size);
        save_teacher(&s);
        s.t.step.labels = 7;
        assert_runs(&s, saved);
        struct ebb_sums whole = *sums_of(&s);
        void *gradient = op_test_copy(&s.t, &s.dlogits);
        assert_int_equal(whole.labels, 7);
        for (int64_t i = 0; i < 10; i++)
            assert_int_equal(op_test_get(&s.t, &s.dlogits, i, 0) >= 5, i >= 7);
        op_test_fill(&s.t, &s.dlogits, 5, 6);
        clear_sums(&s);
        for (int64_t start = 0; start < 12; start += 4) {
            struct setup chunk = s;
            struct ebb_view *views[] = {&chunk.logits, &chunk.teacher, &chunk.dlogits, &chunk.ids,
                                        &chunk.logprobs};
            for (int v = 0; v < 5; v++) {
                views[v]->offset = start * views[v]->stride * 4;
                views[v]->rows = start == 8 ? 2 : 4;
                views[v]->row0 = start;
            }
            struct ebb_distill args = args_of(&chunk);
            struct ebb_distill_topk topk = topk_args_of(&chunk);
            assert_int_equal(op_test_run(&s.t, saved ? EBB_OP_distill_topk : EBB_OP_distill,
                                         saved ? (const void *)&topk : &args),
                             EBB_OK);
        }
        for (int64_t i = 0; i < 7; i++) {
            int64_t at = i * s.dlogits.stride * 4;
            assert_memory_equal(op_test_at(&s.t, &s.dlogits, i, 0), (char *)gradient + at, 50 * 4);
        }
        if (op_test_on_gpu()) { /* there a chunk's rows are added up before the sum gets them */
            assert_true(fabs(sums_of(&s)->loss - whole.loss) <= 1e-14 * whole.loss);
            whole.loss = sums_of(&s)->loss;
            whole.cross_entropy = sums_of(&s)->cross_entropy;
            whole.divergence = sums_of(&s)->divergence;
        }
        assert_memory_equal(sums_of(&s), &whole, sizeof whole);
        free(gradient);
        gradient = op_test_copy(&s.t, &s.dlogits);
        s.t.step.labels = 0;
        assert_runs(&s, saved);
        struct ebb_sums nothing = {0};
        assert_same_numbers(&s, nothing, gradient);
        free(gradient);
        op_test_end(&s.t);
    }
}

static void columns_behind_the_vocabulary_have_no_part(void **state)
{
    (void)state;
    for (int saved = 0; saved < 2; saved++) {
        struct setup s;
        prepare(&s, &usual);
        save_teacher(&s);
        s.keys.temperature = 2;
        assert_runs(&s, saved);
        struct ebb_sums sums = *sums_of(&s);
        void *gradient = op_test_copy(&s.t, &s.dlogits);
        for (int64_t i = 0; i < s.rows; i++) {
            for (int64_t j = 50; j < 60; j++) {
                op_test_set(&s.t, &s.logits, i, j, j % 2 ? (double)NAN : 1e30);
                if (j < 55) op_test_set(&s.t, &s.teacher, i, j, j % 2 ? 1e30 : (double)NAN);
                assert_true(op_test_get(&s.t, &s.dlogits, i, j) == 0);
            }
        }
        assert_runs(&s, saved);
        assert_same_numbers(&s, sums, gradient);
        free(gradient);
        op_test_end(&s.t);
    }
}

/* ---- logits at the edges ---- */

static void extreme_logits_keep_loss_and_gradient_finite(void **state)
{
    (void)state;
    static const struct size size = {6, 40, 40, 40, 6, EBB_F32, EBB_F32};
    struct setup s;
    prepare(&s, &size);
    for (int64_t i = 0; i < s.rows; i++) op_test_set(&s.t, &s.targets, 0, 2 * i + 1, 8);
    for (int64_t j = 0; j < 40; j++) {
        op_test_set(&s.t, &s.logits, 0, j, 1e4 + (double)j);
        op_test_set(&s.t, &s.teacher, 0, j, -1e4 - (double)j);
        op_test_set(&s.t, &s.logits, 1, j, j == 3 ? 1e4 : -1e4); /* far apart */
        op_test_set(&s.t, &s.teacher, 1, j, j == 4 ? 1e4 : -1e4);
        if (j % 2) { /* masked by both, by the teacher, by the student */
            op_test_set(&s.t, &s.logits, 2, j, (double)-INFINITY);
            op_test_set(&s.t, &s.teacher, 2, j, (double)-INFINITY);
            op_test_set(&s.t, &s.teacher, 3, j, (double)-INFINITY);
            op_test_set(&s.t, &s.logits, 4, j, (double)-INFINITY);
        }
        op_test_set(&s.t, &s.logits, 5, j, j == 8 ? 3e38 : -3e38);
        op_test_set(&s.t, &s.teacher, 5, j, j == 9 ? 3e38 : -3e38);
    }
    for (int setting = 0; setting < SETTINGS; setting = next(&s, setting)) {
        choose(&s, setting);
        for (int saved = 0; saved < 2; saved++) {
            for (int64_t i = 0; i < s.rows; i++) { /* any six tokens */
                for (int64_t c = 0; c < 6; c++) {
                    op_test_set(&s.t, &s.ids, i, c, (double)(c == 5 ? 3 : 2 * c + 2));
                    op_test_set(&s.t, &s.logprobs, i, c,
                                i == 5 && c > 0 ? (double)-INFINITY : -2 - (double)(c * i));
                }
            }
            assert_runs(&s, saved);
            assert_true(isfinite(sums_of(&s)->divergence));
            if (s.keys.kd_ratio >= 1) assert_true(isfinite(sums_of(&s)->loss));
            for (int64_t i = 0; i < s.rows; i++) {
                for (int64_t j = 0; j < 40; j++)
                    assert_true(isfinite(op_test_get(&s.t, &s.dlogits, i, j)));
            }
        }
    }
    op_test_end(&s.t);
}

/* One label, with the divergence alone; its value. */
static double divergence_alone(struct setup *s, bool saved)
{
    s->keys.kd_ratio = 1;
    s->t.step.labels = 1;
    assert_runs(s, saved);
    return sums_of(s)->divergence;
}

static void masked_tokens_count_as_the_header_says(void **state)
{
    (void)state;
    static const struct size size = {1, 4, 4, 4, 1, EBB_F32, EBB_F32};
    struct setup s;
    prepare(&s, &size);
    for (int64_t j = 0; j < 4; j++) { /* p: 1/2, 1/2, 0, 0; q: 1/3, 1/3, 1/3, 0 */
        op_test_set(&s.t, &s.teacher, 0, j, j < 2 ? 1 : (double)-INFINITY);
        op_test_set(&s.t, &s.logits, 0, j, j < 3 ? -7 : (double)-INFINITY);
    }
    s.keys.divergence = EBB_FORWARD_KL;
    assert_true(is_close(divergence_alone(&s, false), log(1.5), 1e-6));
    op_test_close(&s.t, &s.dlogits, 0, 0, 1.0 / 3 - 0.5, 0, 1e-6);
    op_test_close(&s.t, &s.dlogits, 0, 2, 1.0 / 3, 0, 1e-6);
    op_test_close(&s.t, &s.dlogits, 0, 3, 0, 0, 0);
    s.keys.divergence = EBB_REVERSE_KL;
    double third = 1.0 / 3, reverse = 2 * third * log(2.0 / 3) + third * (log(third) + 100);
    assert_true(is_close(divergence_alone(&s, false), reverse, 1e-5));
    op_test_close(&s.t, &s.dlogits, 0, 2, third * (log(third) + 100 - reverse), 1e-6, 1e-5);
    op_test_close(&s.t, &s.dlogits, 0, 3, 0, 0, 0);
    s.keys.divergence = EBB_JSD;
    double half = 0.5 * log(0.5 / (0.25 + third / 2)),
           jsd = half + 0.5 * (2 * third * log(third / (0.25 + third / 2)) + third * log(2));
    assert_true(is_close(divergence_alone(&s, false), jsd, 1e-6));
    for (int64_t j = 0; j < 4; j++) { /* the other way round */
        op_test_set(&s.t, &s.logits, 0, j, j < 2 ? 1 : (double)-INFINITY);
        op_test_set(&s.t, &s.teacher, 0, j, j < 3 ? -7 : (double)-INFINITY);
    }
    s.keys.divergence = EBB_FORWARD_KL;
    assert_true(is_close(divergence_alone(&s, false), reverse, 1e-5));
    s.keys.divergence = EBB_REVERSE_KL;
    assert_true(is_close(divergence_alone(&s, false), log(1.5), 1e-6));
    s.keys.divergence = EBB_JSD;
    assert_true(is_close(divergence_alone(&s, false), jsd, 1e-6));
    op_test_end(&s.t);
}

static void a_broken_logit_spoils_its_row_visibly(void **state)
{
    (void)state;
    for (int k = 0; k < 6; k++) { /* NaN, +inf or nothing but -inf; of the student, the teacher */
        for (int kind = 0; kind < EBB_DIVERGENCES; kind++) {
            struct setup s;
            prepare(&s, &usual);
            struct ebb_view *view = k < 3 ? &s.logits : &s.teacher;
            for (int64_t j = 0; j < 50; j++) {
                double bad = k % 3 == 0   ? (double)NAN
                             : k % 3 == 1 ? (double)INFINITY
                                          : (double)-INFINITY;
                if (k % 3 == 2 || j == 5) op_test_set(&s.t, view, 2, j, bad);
            }
            s.keys.divergence = (enum ebb_divergence)kind;
            s.keys.beta = 0.4;
            assert_runs(&s, false);
            assert_true(!isfinite(sums_of(&s)->loss));
            assert_true(!isfinite(op_test_get(&s.t, &s.dlogits, 2, 5)));
            assert_true(isfinite(op_test_get(&s.t, &s.dlogits, 1, 5)));
            if (k < 3) {
                save_teacher(&s);
                assert_runs(&s, true);
                assert_true(!isfinite(sums_of(&s)->loss));
                assert_true(!isfinite(op_test_get(&s.t, &s.dlogits, 2, 5)));
            }
            op_test_end(&s.t);
        }
    }
}

static void others_that_have_hardly_anything_keep_their_shares(void **state)
{
    (void)state;
    static const struct size size = {1, 30, 30, 30, 4, EBB_F32, EBB_F32};
    struct setup s;
    prepare(&s, &size);
    for (int64_t j = 0; j < 30; j++) /* the student has everything in the first four */
        op_test_set(&s.t, &s.logits, 0, j, (j < 4 ? 300 : 0) + 0.1 * (double)j);
    for (int64_t c = 0; c < 4; c++) {
        op_test_set(&s.t, &s.ids, 0, c, (double)c);
        op_test_set(&s.t, &s.logprobs, 0, c, log(0.2));
    }
    s.keys.divergence = EBB_FORWARD_KL;
    double others = 0, tops = 0;
    for (int j = 0; j < 30; j++) {
        if (j < 4) tops += exp(0.1 * j);
        if (j >= 4) others += exp(0.1 * j);
    }
    double want = 0.2 * (log(0.2) + 300 + log(tops) - log(others));
    for (int j = 0; j < 4; j++) want += 0.2 * (log(0.2) - 0.1 * j + log(tops));
    assert_true(is_close(divergence_alone(&s, true), want, 1e-5));
    for (int64_t j = 4; j < 30; j++) /* -0.2, shared out by what the student makes of them */
        op_test_close(&s.t, &s.dlogits, 0, j, -0.2 * exp(0.1 * (double)j) / others, 2e-5, 1e-7);
    op_test_end(&s.t);
}

/* ---- a saved teacher and the whole one ---- */

static void all_tokens_saved_are_the_whole_teacher(void **state)
{
    (void)state;
    static const struct size size = {3, 40, 37, 37, 37, EBB_F32, EBB_F32};
    struct setup s;
    prepare(&s, &size);
    for (int setting = 0; setting < SETTINGS; setting = next(&s, setting)) {
        choose(&s, setting);
        save_teacher(&s);
        assert_runs(&s, false);
        struct ebb_sums whole = *sums_of(&s);
        double *gradient = op_test_doubles(&s.t, &s.dlogits);
        assert_runs(&s, true);
        assert_true(is_close(sums_of(&s)->loss, whole.loss, 1e-5));
        assert_true(is_close(sums_of(&s)->divergence, whole.divergence, 1e-5));
        assert_true(sums_of(&s)->cross_entropy == whole.cross_entropy);
        assert_int_equal(sums_of(&s)->correct, whole.correct);
        op_test_all_close(&s.t, &s.dlogits, gradient, 3e-6, 2e-6);
        free(gradient);
    }
    op_test_end(&s.t);
}

static void fewer_tokens_bound_the_divergence_from_below(void **state)
{
    (void)state;
    static const struct size size = {1, 40, 40, 40, 40, EBB_F32, EBB_F32};
    static const int64_t saved[] = {1, 2, 3, 8, 21, 39, 40};
    struct setup s;
    prepare(&s, &size);
    for (int setting = 0; setting < SETTINGS; setting = next(&s, setting)) {
        choose(&s, setting);
        save_teacher(&s);
        double whole = divergence_alone(&s, false), before = 0;
        for (size_t c = 0; c < sizeof saved / sizeof saved[0]; c++) {
            const int64_t k = saved[c];
            s.ids.cols = s.logprobs.cols = k;
            double part = divergence_alone(&s, true);
            assert_true(part <= whole * (1 + 1e-6) + 4e-6 && part >= before - 4e-6);
            before = part;
            if (s.keys.divergence != EBB_FORWARD_KL || k == 40) continue;
            /* What is missing is the others' own divergence. */
            double p[40], q[40], sum_p = 0, sum_q = 0, missing = 0;
            for (int64_t j = 0; j < 40; j++) {
                int64_t id = (int64_t)op_test_get(&s.t, &s.ids, 0, j);
                p[j] = exp(op_test_get(&s.t, &s.teacher, 0, id) / s.keys.temperature);
                q[j] = exp(op_test_get(&s.t, &s.logits, 0, id) / s.keys.temperature);
                sum_p += p[j];
                sum_q += q[j];
            }
            double rest_p = 0, rest_q = 0;
            for (int64_t j = k; j < 40; j++) rest_p += p[j], rest_q += q[j];
            for (int64_t j = k; j < 40; j++)
                missing += p[j] / sum_p * log(p[j] / rest_p * rest_q / q[j]);
            if (s.keys.scale_t2) missing *= s.keys.temperature * s.keys.temperature;
            assert_true(is_close(whole - part, missing, 2e-5));
        }
    }
    op_test_end(&s.t);
}

static void rounded_probabilities_above_one_leave_the_others_masked(void **state)
{
    (void)state;
    static const struct size size = {1, 10, 10, 10, 2, EBB_F32, EBB_BF16};
    struct setup s;
    prepare(&s, &size);
    op_test_set(&s.t, &s.ids, 0, 0, 3);
    op_test_set(&s.t, &s.ids, 0, 1, 6);
    op_test_set(&s.t, &s.logprobs, 0, 0, log(0.502));
    op_test_set(&s.t, &s.logprobs, 0, 1, log(0.502));
    s.keys.divergence = EBB_FORWARD_KL;
    double q[10], z[10];
    for (int64_t j = 0; j < 10; j++) z[j] = op_test_get(&s.t, &s.logits, 0, j);
    softmax(z, 10, 1, q);
    double want = -log(2) - 0.5 * (log(q[3]) + log(q[6]));
    assert_true(is_close(divergence_alone(&s, true), want, 1e-6));
    op_test_close(&s.t, &s.dlogits, 0, 3, q[3] - 0.5, 1e-6, 1e-6);
    op_test_close(&s.t, &s.dlogits, 0, 4, q[4], 1e-6, 1e-6);
    op_test_end(&s.t);
}

/* ---- PyTorch's numbers ---- */

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static double element(const json_t *rows, int64_t i, int64_t j)
{
    const json_t *value = json_array_get(json_array_get(rows, (size_t)i), (size_t)j);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void fill_from(struct setup *s, const struct ebb_view *view, const json_t *rows)
{
    for (int64_t i = 0; i < view->rows; i++) {
        for (int64_t j = 0; j < view->cols; j++)
            op_test_set(&s->t, view, i, j, element(rows, i, j));
    }
}

static enum ebb_divergence divergence_named(const char *name)
{
    static const char *const names[EBB_DIVERGENCES] = {[EBB_FORWARD_KL] = "forward_kl",
                                                       [EBB_REVERSE_KL] = "reverse_kl",
                                                       [EBB_JSD] = "jsd",
                                                       [EBB_SYMMETRIC_KL] = "symmetric_kl",
                                                       [EBB_SKEWED_FORWARD_KL] =
                                                           "skewed_forward_kl",
                                                       [EBB_SKEWED_REVERSE_KL] =
                                                           "skewed_reverse_kl"};
    for (int kind = 0; kind < EBB_DIVERGENCES; kind++) {
        if (strcmp(name, names[kind]) == 0) return (enum ebb_divergence)kind;
    }
    fail_msg("divergence '%s'", name);
    return EBB_DIVERGENCES;
}

static void check_golden_case(struct setup *s, const json_t *golden)
{
    const struct ebb_distill_keys keys = {.divergence = divergence_named(
                                              json_string_value(json_object_get(golden, "name"))),
                                          .beta = number(golden, "beta"),
                                          .kd_ratio = number(golden, "kd_ratio"),
                                          .temperature = number(golden, "temperature"),
                                          .scale_t2 =
                                              json_is_true(json_object_get(golden, "scale_t2")),
                                          .vocab = (int64_t)number(golden, "vocab")};
    const json_t *ids = json_object_get(golden, "ids"),
                 *gradient = json_object_get(golden, "gradient");
    s->keys = keys;
    if (ids != NULL) {
        fill_from(s, &s->ids, ids);
        fill_from(s, &s->logprobs, json_object_get(golden, "logprobs"));
    }
    assert_runs(s, ids != NULL);
    assert_true(is_close(sums_of(s)->loss, number(golden, "loss"), 3e-6));
    assert_true(is_close(sums_of(s)->cross_entropy, number(golden, "cross_entropy"), 3e-6));
    assert_true(is_close(sums_of(s)->divergence, number(golden, "divergence"), 3e-6));
    for (int64_t i = 0; i < s->rows; i++) {
        for (int64_t j = 0; j < s->logits.cols; j++)
            op_test_close(&s->t, &s->dlogits, i, j, element(gradient, i, j), 3e-6, 2e-6);
    }
}

static void pytorch_has_the_same_losses_and_gradients(void **state)
{
    (void)state;
    static const struct size size = {3, 12, 10, 10, 4, EBB_F32, EBB_F32};
    struct setup s;
    char path[512];
    json_t *golden;
    prepare(&s, &size);
    snprintf(path, sizeof path, "%s/tests/golden/distill.json", EBB_SOURCE_DIR);
    if (ebb_json_load(s.t.env.ctx, path, &golden) != EBB_OK)
        fail_msg("%s", ebb_error_text(s.t.env.ctx));
    fill_from(&s, &s.logits, json_object_get(golden, "student"));
    fill_from(&s, &s.teacher, json_object_get(golden, "teacher"));
    for (int64_t i = 0; i < 3; i++) {
        const json_t *target = json_array_get(json_object_get(golden, "targets"), (size_t)i);
        op_test_set(&s.t, &s.targets, 0, 2 * i + 1, json_number_value(target));
    }
    const json_t *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) >= 28);
    for (size_t k = 0; k < json_array_size(cases); k++)
        check_golden_case(&s, json_array_get(cases, k));
    json_decref(golden);
    op_test_end(&s.t);
}

/* ---- what is refused ---- */

static void refuses(struct setup *s, enum ebb_op op, const void *args, const char *text)
{
    clear_sums(s);
    void *gradient = op_test_copy(&s->t, &s->dlogits);
    assert_int_equal(op_test_run(&s->t, op, args), EBB_FAILED);
    if (strstr(ebb_error_text(s->t.env.ctx), text) == NULL)
        fail_msg("'%s', wanted '%s'", ebb_error_text(s->t.env.ctx), text);
    assert_true(op_test_same(&s->t, &s->dlogits, gradient));
    assert_int_equal(sums_of(s)->labels, 0);
    ebb_error_clear(s->t.env.ctx);
    free(gradient);
}

static void constants_that_make_no_sense_are_named(void **state)
{
    (void)state;
    static const struct {
        struct ebb_distill_keys keys;
        const char *text;
    } bad[] = {{{EBB_JSD, 1.5, 0.5, 1, false, 50}, "beta is 1.5, wanted 0 to 1"},
               {{EBB_JSD, -0.1, 0.5, 1, false, 50}, "beta is -0.1"},
               {{EBB_JSD, (double)NAN, 0.5, 1, false, 50}, "beta is"},
               {{EBB_JSD, 0.5, 2, 1, false, 50}, "kd_ratio is 2, wanted 0 to 1"},
               {{EBB_JSD, 0.5, 0.5, 0, false, 50}, "the temperature is 0, wanted more than 0"},
               {{EBB_JSD, 0.5, 0.5, -1, false, 50}, "the temperature is -1"},
               {{EBB_JSD, 0.5, 0.5, 1e300, false, 50}, "the temperature is 1e+300"},
               {{EBB_DIVERGENCES, 0.5, 0.5, 1, false, 50}, "there is no divergence 6"},
               {{EBB_JSD, 0.5, 0.5, 1, false, 0}, "0 columns to compare"},
               {{EBB_JSD, 0.5, 0.5, 1, false, 61}, "61 columns to compare, of a student's 60"}};
    struct setup s;
    prepare(&s, &usual);
    save_teacher(&s);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        s.keys = bad[k].keys;
        struct ebb_distill args = args_of(&s);
        struct ebb_distill_topk topk = topk_args_of(&s);
        refuses(&s, EBB_OP_distill, &args, bad[k].text);
        refuses(&s, EBB_OP_distill_topk, &topk, bad[k].text);
    }
    s.keys = bad[0].keys;
    s.keys.beta = 0.5;
    s.keys.vocab = 56;
    struct ebb_distill args = args_of(&s);
    refuses(&s, EBB_OP_distill, &args, "a student's 60 and a teacher's 55");
    op_test_end(&s.t);
}

static void views_of_the_wrong_shape_or_type_are_named(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, &usual);
    save_teacher(&s);
    struct ebb_distill args = args_of(&s);
    args.logits.dtype = EBB_BF16;
    refuses(&s, EBB_OP_distill, &args, "the student's logits are bfloat16, wanted float32");
    args = args_of(&s);
    args.teacher.dtype = EBB_BF16;
    refuses(&s, EBB_OP_distill, &args, "the teacher's logits are bfloat16, wanted float32");
    args = args_of(&s);
    args.teacher.rows = 4;
    refuses(&s, EBB_OP_distill, &args, "a teacher of 4 labels, wanted 5");
    args = args_of(&s);
    args.dlogits.cols = 50;
    refuses(&s, EBB_OP_distill, &args, "the gradient is [5, 50], wanted [5, 60]");
    args = args_of(&s);
    args.dlogits.dtype = EBB_I32;
    refuses(&s, EBB_OP_distill, &args, "the gradient is int32");
    args = args_of(&s);
    args.dlogits = args.logits;
    args.dlogits.dtype = EBB_BF16; /* the lower half, with rows of half the length */
    refuses(&s, EBB_OP_distill, &args, "distill: the bfloat16 gradient lies across the logits");
    args.dlogits = ebb_view_upper_half(&args.logits);
    args.dlogits.offset -= 2;
    refuses(&s, EBB_OP_distill, &args, "the bfloat16 gradient lies across the logits, wanted all");
    args.dlogits = args.logits;
    args.dlogits.offset += args.logits.stride * 4;
    refuses(&s, EBB_OP_distill, &args, "the float32 gradient lies across the logits");
    struct ebb_distill_topk topk = topk_args_of(&s);
    topk.ids.dtype = EBB_F32;
    refuses(&s, EBB_OP_distill_topk, &topk, "the ids are float32, wanted int32");
    topk = topk_args_of(&s);
    topk.logprobs.dtype = EBB_I32;
    refuses(&s, EBB_OP_distill_topk, &topk, "the log-probabilities are int32");
    topk = topk_args_of(&s);
    topk.ids.cols = 6;
    refuses(&s, EBB_OP_distill_topk, &topk, "6 ids and 7 log-probabilities a label");
    topk = topk_args_of(&s);
    topk.keys.vocab = 5;
    refuses(&s, EBB_OP_distill_topk, &topk, "wanted as many of both, 1 to 5");
    topk = topk_args_of(&s);
    topk.ids.rows = 3;
    refuses(&s, EBB_OP_distill_topk, &topk, "ids of 3 labels and log-probabilities of 5, wanted 5");
    op_test_end(&s.t);
}

static void targets_and_saved_teachers_that_cannot_be_are_named(void **state)
{
    (void)state;
    op_test_cpu_only("targets, labels and saved teachers are the host's to check");
    struct setup s;
    prepare(&s, &usual);
    save_teacher(&s);
    struct ebb_distill args = args_of(&s);
    struct ebb_distill_topk topk = topk_args_of(&s);
    op_test_set(&s.t, &s.targets, 0, 5, 50); /* a column that is only padding */
    refuses(&s, EBB_OP_distill, &args, "target of token 5 is 50, outside the vocabulary of 50");
    refuses(&s, EBB_OP_distill_topk, &topk, "distill_topk: the target of token 5 is 50");
    op_test_set(&s.t, &s.targets, 0, 5, 49);
    op_test_set(&s.t, &s.label_rows, 0, 3, 10);
    refuses(&s, EBB_OP_distill, &args, "label 3 is about token 10 of a batch of 10");
    op_test_set(&s.t, &s.label_rows, 0, 3, 7);
    void *ids = op_test_copy(&s.t, &s.ids), *logprobs = op_test_copy(&s.t, &s.logprobs);
    op_test_set(&s.t, &s.ids, 2, 3, 50);
    refuses(&s, EBB_OP_distill_topk, &topk, "token 50 of label 2 is outside the vocabulary of 50");
    op_test_set(&s.t, &s.ids, 2, 3, -1);
    refuses(&s, EBB_OP_distill_topk, &topk, "token -1 of label 2");
    op_test_set(&s.t, &s.ids, 2, 3, op_test_get(&s.t, &s.ids, 2, 1));
    refuses(&s, EBB_OP_distill_topk, &topk, "stands twice at label 2");
    op_test_restore(&s.t, &s.ids, ids);
    op_test_set(&s.t, &s.logprobs, 4, 6, -0.25);
    refuses(&s, EBB_OP_distill_topk, &topk, "log-probabilities of label 4 have -0.25 after");
    op_test_set(&s.t, &s.logprobs, 4, 6, (double)NAN);
    refuses(&s, EBB_OP_distill_topk, &topk, "log-probabilities of label 4 have");
    op_test_restore(&s.t, &s.logprobs, logprobs);
    op_test_set(&s.t, &s.logprobs, 1, 0, 3);
    refuses(&s, EBB_OP_distill_topk, &topk, "of label 1 have 3 after 0, wanted descending ones");
    for (int64_t c = 0; c < 7; c++) op_test_set(&s.t, &s.logprobs, 1, c, -0.5);
    refuses(&s, EBB_OP_distill_topk, &topk, "probabilities of label 1 sum to 4.24");
    free(ids), free(logprobs);
    op_test_end(&s.t);
}

static void rows_that_nobody_checked_make_the_loss_nan(void **state)
{
    (void)state;
    op_test_gpu_only("such rows are errors");
    for (int k = 0; k < 5; k++) {
        for (int saved = k == 4; saved < 2; saved++) {
            struct setup s;
            prepare(&s, &usual);
            save_teacher(&s);
            s.keys.kd_ratio = k % 2 ? 1 : 0.5;
            if (k < 2) op_test_set(&s.t, &s.targets, 0, 9, k == 0 ? 50 : -100);
            if (k == 2 || k == 3) op_test_set(&s.t, &s.label_rows, 0, 4, k == 2 ? 10 : -1);
            if (k == 4) op_test_set(&s.t, &s.ids, 4, 2, 50);
            void *logits = op_test_copy(&s.t, &s.logits);
            assert_runs(&s, saved);
            assert_true(isnan(sums_of(&s)->loss));
            assert_int_equal(sums_of(&s)->labels, 5);
            for (int64_t i = 0; i < 4; i++) /* other rows learn as ever */
                assert_true(isfinite(op_test_get(&s.t, &s.dlogits, i, 0)));
            assert_true(op_test_same(&s.t, &s.logits, logits));
            free(logits);
            op_test_end(&s.t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_agree_with_the_formula),
        cmocka_unit_test(a_beta_next_to_an_end_agrees_with_the_formula),
        cmocka_unit_test(rows_of_many_chunks_agree_with_the_formula),
        cmocka_unit_test(a_saved_teacher_agrees_with_the_formula_over_its_classes),
        cmocka_unit_test(a_saved_teacher_of_many_tokens_agrees_with_the_formula),
        cmocka_unit_test(the_ends_of_beta_are_what_the_header_says),
        cmocka_unit_test(a_teacher_that_is_the_student_teaches_nothing),
        cmocka_unit_test(without_a_teachers_share_it_is_cross_entropy),
        cmocka_unit_test(the_first_of_equal_logits_wins),
        cmocka_unit_test(with_all_of_the_share_the_target_has_no_part),
        cmocka_unit_test(threads_in_place_and_loss_only_give_the_same_bits),
        cmocka_unit_test(any_layout_of_the_rows_gives_the_same_bits),
        cmocka_unit_test(a_gradient_in_the_upper_half_of_the_rows_has_the_same_bits),
        cmocka_unit_test(long_aligned_rows_agree_with_the_formula),
        cmocka_unit_test(chunks_add_up_to_the_whole_and_dead_rows_are_left_alone),
        cmocka_unit_test(columns_behind_the_vocabulary_have_no_part),
        cmocka_unit_test(extreme_logits_keep_loss_and_gradient_finite),
        cmocka_unit_test(masked_tokens_count_as_the_header_says),
        cmocka_unit_test(a_broken_logit_spoils_its_row_visibly),
        cmocka_unit_test(others_that_have_hardly_anything_keep_their_shares),
        cmocka_unit_test(all_tokens_saved_are_the_whole_teacher),
        cmocka_unit_test(fewer_tokens_bound_the_divergence_from_below),
        cmocka_unit_test(rounded_probabilities_above_one_leave_the_others_masked),
        cmocka_unit_test(pytorch_has_the_same_losses_and_gradients),
        cmocka_unit_test(constants_that_make_no_sense_are_named),
        cmocka_unit_test(views_of_the_wrong_shape_or_type_are_named),
        cmocka_unit_test(targets_and_saved_teachers_that_cannot_be_are_named),
        cmocka_unit_test(rows_that_nobody_checked_make_the_loss_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
