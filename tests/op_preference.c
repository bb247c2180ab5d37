/* Preference training against double precision: log-probabilities, every loss with its gradient by
 * finite differences through the three ops, and numbers of PyTorch (tools/golden_preference.py).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_layout.h"
#include "op_preference_kit.h"

#include "base/json.h"

static const char *const names[EBB_PREFERENCES] = {
    [EBB_PREFERENCE_SIGMOID] = "sigmoid", [EBB_PREFERENCE_IPO] = "ipo",
    [EBB_PREFERENCE_HINGE] = "hinge",     [EBB_PREFERENCE_ORPO] = "orpo",
    [EBB_PREFERENCE_SIMPO] = "simpo",     [EBB_PREFERENCE_KTO] = "kto"};

static const struct size usual = {6, 20, 17, EBB_F32, {3, 2, 1, 4, 2, 2}};

static bool takes_smoothing(int type)
{
    return type == EBB_PREFERENCE_SIGMOID || type == EBB_PREFERENCE_SIMPO;
}

static bool takes_reference(int type)
{
    return type != EBB_PREFERENCE_ORPO && type != EBB_PREFERENCE_SIMPO;
}

/* ---- log-probabilities ---- */

static void log_probabilities_agree_with_the_formula(void **state)
{
    (void)state;
    static const struct size sizes[] = {{2, 23, 19, EBB_F32, {3, 2}},
                                        {2, 3001, 3001, EBB_F32, {2, 5}},
                                        {2, 1024, 1024, EBB_F32, {1, 1}},
                                        {1, 1, 1, EBB_F32, {3}}};
    for (int size = 0; size < 4; size++) {
        struct setup s;
        prepare(&s, &sizes[size]);
        op_test_fill(&s.t, &s.logits, -9, 9);
        run_logprobs(&s);
        double *z = op_test_doubles(&s.t, &s.logits), logprob[KIT_LABELS];
        oracle_logprobs(&s, z, logprob);
        for (int64_t i = 0; i < s.labels; i++)
            op_test_close(&s.t, &s.logprob, 0, i, logprob[i], 1e-6, 3e-7);
        free(z);
        op_test_end(&s.t);
    }
}

static void extreme_logits_have_exact_log_probabilities(void **state)
{
    (void)state;
    static const struct size size = {2, 10, 10, EBB_F32, {3, 3}};
    struct setup s;
    prepare(&s, &size);
    for (int64_t i = 0; i < 6; i++) {
        int64_t token = (int64_t)op_test_get(&s.t, &s.label_rows, 0, i);
        op_test_set(&s.t, &s.targets, 0, token, 4);
    }
    for (int64_t j = 0; j < 10; j++) {
        op_test_set(&s.t, &s.logits, 0, j, 3e38);
        op_test_set(&s.t, &s.logits, 1, j, j == 4 ? 1e4 : -1e4);
        op_test_set(&s.t, &s.logits, 2, j, j == 4 ? -1e4 : 1e4);
        op_test_set(&s.t, &s.logits, 3, j, j == 4 ? -2 : (double)-INFINITY);
        op_test_set(&s.t, &s.logits, 4, j, j == 4 ? (double)-INFINITY : 1);
        op_test_set(&s.t, &s.logits, 5, j, j == 3 ? (double)NAN : 1);
    }
    run_logprobs(&s);
    op_test_close(&s.t, &s.logprob, 0, 0, -log(10), 1e-7, 0);
    op_test_close(&s.t, &s.logprob, 0, 1, 0, 0, 0);
    op_test_close(&s.t, &s.logprob, 0, 2, -2e4 - log(9), 1e-7, 0);
    op_test_close(&s.t, &s.logprob, 0, 3, 0, 0, 0);
    assert_true(op_test_get(&s.t, &s.logprob, 0, 4) == (double)-INFINITY);
    assert_true(isnan(op_test_get(&s.t, &s.logprob, 0, 5)));
    op_test_fill(&s.t, &s.coefficient, 0.5, 0.5);
    run_backward(&s);
    for (int64_t j = 0; j < 10; j++) {
        double hit = j == 4 ? 1 : 0;
        op_test_close(&s.t, &s.dlogits, 0, j, 0.5 * (hit - 0.1), 1e-6, 0);
        op_test_close(&s.t, &s.dlogits, 1, j, 0, 0, 0);
        op_test_close(&s.t, &s.dlogits, 2, j, 0.5 * (hit > 0 ? 1 : -1.0 / 9), 1e-6, 0);
        op_test_close(&s.t, &s.dlogits, 3, j, 0, 0, 0);
        op_test_close(&s.t, &s.dlogits, 4, j, 0.5 * (hit > 0 ? 1 : -1.0 / 9), 1e-6, 0);
        assert_true(isnan(op_test_get(&s.t, &s.dlogits, 5, j)));
    }
    op_test_end(&s.t);
}

/* ---- losses ---- */

static void losses_and_gradients_agree_with_the_formulas(void **state)
{
    (void)state;
    static const double betas[] = {0.1, 0.5, 2};
    static const struct size sizes[] = {{6, 20, 17, EBB_F32, {3, 2, 1, 4, 2, 2}},
                                        {4, 13, 13, EBB_BF16, {1, 5, 4, 1}},
                                        {2, 9, 8, EBB_F32, {1, 1}}};
    for (int size = 0; size < 3; size++) {
        struct setup s;
        prepare(&s, &sizes[size]);
        for (int k = 0; k < EBB_PREFERENCES * 3 * 4; k++) {
            int type = k % EBB_PREFERENCES, variant = k / EBB_PREFERENCES / 3;
            choose(&s, (enum ebb_preference)type);
            s.keys.beta = betas[k / EBB_PREFERENCES % 3];
            if (variant % 2 == 1 && !takes_smoothing(type)) continue;
            if (variant >= 2 && !takes_reference(type)) continue;
            if (variant % 2 == 1) s.keys.label_smoothing = s.keys.beta < 1 ? 0.15 : 0.5;
            if (variant >= 2) s.has_reference = false;
            if (getenv("EBB_TEST_VERBOSE"))
                print_message("size %d: %s, beta %g, label_smoothing %g%s\n", size, names[type],
                              s.keys.beta, s.keys.label_smoothing,
                              s.has_reference ? "" : ", no reference");
            check(&s, 1);
        }
        op_test_end(&s.t);
    }
}

static void many_documents_and_long_ones_agree_with_the_formulas(void **state)
{
    (void)state;
    static const struct size sizes[] = {{700, 5, 4, EBB_F32, {1, 2, 3, 1, 0, 2, 2, 1, 4, 1, 1, 2}},
                                        {4, 6, 6, EBB_F32, {900, 700, 1100, 300}}};
    for (int size = 0; size < 2; size++) {
        struct setup s;
        prepare(&s, &sizes[size]);
        for (int type = 0; type < EBB_PREFERENCES; type++) {
            choose(&s, (enum ebb_preference)type);
            s.keys.beta = size == 0 ? 0.5 : 0.01;
            run_all(&s);
            double logprob[KIT_LABELS], reference[KIT_LABELS], h = 1e-5;
            for (int64_t i = 0; i < s.labels; i++) { /* of the same log-probabilities */
                logprob[i] = op_test_get(&s.t, &s.logprob, 0, i);
                reference[i] = op_test_get(&s.t, &s.reference, 0, i);
            }
            struct oracle o = {.s = &s, .reference = s.has_reference ? reference : NULL};
            if (type == EBB_PREFERENCE_KTO) find_z0(&o, logprob);
            oracle_loss(&o, logprob);
            check_sums(&s, &o, type == EBB_PREFERENCE_KTO);
            for (int64_t i = 0; i < s.labels; i += 41) {
                double was = logprob[i];
                logprob[i] = was + h;
                double up = oracle_loss(&o, logprob);
                logprob[i] = was - h;
                double slope = (up - oracle_loss(&o, logprob)) / (2 * h);
                logprob[i] = was;
                op_test_close(&s.t, &s.coefficient, 0, i, slope, 1e-5, 2e-6);
            }
        }
        op_test_end(&s.t);
    }
}

/* Writes log-probabilities of every label of a document. */
static void set_document(struct setup *s, int64_t d, double policy, double reference)
{
    int64_t first = 0;
    for (int64_t k = 0; k < d; k++) first += s->lengths[k];
    for (int64_t i = first; i < first + s->lengths[d]; i++) {
        op_test_set(&s->t, &s->logprob, 0, i, policy);
        op_test_set(&s->t, &s->reference, 0, i, reference);
    }
}

static void a_model_that_is_its_reference_has_the_losses_of_the_start(void **state)
{
    (void)state;
    static const struct size size = {2, 4, 4, EBB_F32, {4, 2}};
    struct setup s;
    prepare(&s, &size);
    static const struct {
        enum ebb_preference type;
        double loss, slopes[2]; /* of a label */
    } starts[] = {{EBB_PREFERENCE_SIGMOID, 0.69314718055994531, {-0.25, 0.25}},
                  {EBB_PREFERENCE_IPO, 1, {-0.5, 1}}, /* 1 / (2 beta) = 1 */
                  {EBB_PREFERENCE_HINGE, 1, {-0.5, 0.5}}};
    for (size_t k = 0; k < 3; k++) {
        choose(&s, starts[k].type);
        set_document(&s, 0, -1.5, -1.5);
        set_document(&s, 1, -0.25, -0.25);
        run_loss(&s);
        assert_true(is_close(sums_of(&s)->loss, starts[k].loss, 0));
        assert_true(sums_of(&s)->preference.margins == 0);
        assert_int_equal(sums_of(&s)->preference.accuracies, 0); /* a tie is no win */
        for (int64_t i = 0; i < 6; i++)
            op_test_close(&s.t, &s.coefficient, 0, i, starts[k].slopes[i >= 4], 1e-7, 0);
    }
    choose(&s, EBB_PREFERENCE_KTO); /* document 0 is undesirable, document 1 desirable */
    run_loss(&s);
    assert_true(is_close(sums_of(&s)->loss, (0.5 + 1.25) / 2, 0));
    op_test_close(&s.t, &s.coefficient, 0, 0, 0.5 * 0.5 / 4, 1e-7, 0);
    op_test_close(&s.t, &s.coefficient, 0, 5, -1.25 * 0.5 / 4, 1e-7, 0);
    op_test_end(&s.t);
}

static void documents_without_labels_count_as_zero(void **state)
{
    (void)state;
    static const struct size sizes[] = {{2, 9, 9, EBB_F32, {0, 3}},
                                        {2, 9, 9, EBB_F32, {3, 0}},
                                        {6, 9, 9, EBB_F32, {2, 0, 0, 0, 0, 2}},
                                        {6, 9, 9, EBB_F32, {0, 3, 0, 0, 1, 0}}};
    for (int size = 0; size < 4; size++) {
        struct setup s;
        prepare(&s, &sizes[size]);
        for (int type = 0; type < EBB_PREFERENCES; type++) {
            choose(&s, (enum ebb_preference)type);
            check(&s, 1);
            assert_true(isfinite(sums_of(&s)->loss));
        }
        op_test_end(&s.t);
    }
}

static void a_micro_batch_of_nothing_is_nothing(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, &usual);
    s.t.step.docs = s.t.step.labels = 0;
    struct ebb_sums nothing = {0};
    for (int type = 0; type < EBB_PREFERENCES; type++) {
        choose(&s, (enum ebb_preference)type);
        op_test_fill(&s.t, &s.coefficient, 5, 6);
        void *gradient = op_test_copy(&s.t, &s.dlogits);
        run_all(&s);
        assert_memory_equal(sums_of(&s), &nothing, sizeof nothing);
        assert_true(op_test_same(&s.t, &s.dlogits, gradient));
        for (int64_t i = 0; i < s.tokens; i++) op_test_close(&s.t, &s.coefficient, 0, i, 0, 0, 0);
        free(gradient);
    }
    op_test_end(&s.t);
}

static void far_apart_answers_keep_loss_and_gradient_finite(void **state)
{
    (void)state;
    static const struct size size = {6, 4, 4, EBB_F32, {4, 2, 1, 1, 3, 2}};
    static const double values[] = {0, -1e-9, -1e-4, -50, -1e4, -1e30};
    struct setup s;
    prepare(&s, &size);
    for (int type = 0; type < EBB_PREFERENCES; type++) {
        for (int k = 0; k < 36; k++) {
            choose(&s, (enum ebb_preference)type);
            if (takes_smoothing(type) && k % 2) s.keys.label_smoothing = 0.1;
            for (int64_t d = 0; d < 6; d++)
                set_document(&s, d, values[(d % 2 ? k : k / 6) % 6], -3);
            run_loss(&s);
            assert_true(isfinite(sums_of(&s)->loss));
            for (int64_t i = 0; i < s.labels; i++)
                assert_true(isfinite(op_test_get(&s.t, &s.coefficient, 0, i)));
        }
    }
    /* Learnt: nothing is left to do. The other way round: all of it. */
    choose(&s, EBB_PREFERENCE_SIGMOID);
    for (int64_t d = 0; d < 6; d++) set_document(&s, d, d % 2 ? -1e5 : -1, -3);
    run_loss(&s);
    assert_true(sums_of(&s)->loss == 0);
    for (int64_t i = 0; i < s.labels; i++) op_test_close(&s.t, &s.coefficient, 0, i, 0, 0, 0);
    for (int64_t d = 0; d < 6; d++) set_document(&s, d, d % 2 ? -3 : -1003, -3);
    run_loss(&s);
    assert_true(is_close(sums_of(&s)->loss, 0.5 * 1000 * (4 + 1 + 3), 0));
    op_test_close(&s.t, &s.coefficient, 0, 0, -0.5, 0, 0);
    op_test_close(&s.t, &s.coefficient, 0, 4, 0.5, 0, 0);
    op_test_end(&s.t);
}

static void a_rejected_answer_that_cannot_be_is_learnt(void **state)
{
    (void)state;
    static const struct size size = {2, 4, 4, EBB_F32, {2, 2}};
    static const enum ebb_preference types[] = {EBB_PREFERENCE_SIGMOID, EBB_PREFERENCE_HINGE,
                                                EBB_PREFERENCE_SIMPO, EBB_PREFERENCE_ORPO};
    struct setup s;
    prepare(&s, &size);
    for (int k = 0; k < 4; k++) { /* one of its tokens is masked: log 0 */
        bool orpo = types[k] == EBB_PREFERENCE_ORPO;
        choose(&s, types[k]);
        set_document(&s, 0, -1, -2);
        set_document(&s, 1, -1, -2);
        op_test_set(&s.t, &s.logprob, 0, 3, (double)-INFINITY);
        run_loss(&s);
        assert_true(sums_of(&s)->loss == (orpo ? 1 : 0));
        assert_int_equal(sums_of(&s)->preference.accuracies, 1);
        for (int64_t i = 0; i < 4; i++)
            op_test_close(&s.t, &s.coefficient, 0, i, orpo && i < 2 ? -0.5 : 0, 0, 0);
    }
    op_test_end(&s.t);
}

static void odds_next_to_certainty_keep_their_digits(void **state)
{
    (void)state;
    static const struct size size = {2, 4, 4, EBB_F32, {1, 1}};
    static const double chosen[] = {-1e-3, -1e-5, -2e-7, -1e-7}, rejected[] = {-0.5, -3, -20, -90};
    struct setup s;
    prepare(&s, &size);
    choose(&s, EBB_PREFERENCE_ORPO);
    for (int k = 0; k < 16; k++) {
        for (int turned = 0; turned < 2; turned++) {
            double c = (double)(float)(turned ? rejected[k / 4] : chosen[k % 4]);
            double r = (double)(float)(turned ? chosen[k % 4] : rejected[k / 4]);
            set_document(&s, 0, c, 0);
            set_document(&s, 1, r, 0);
            run_loss(&s);
            double x = log_odds(c) - log_odds(r), wrong = 1 / (1 + exp(x));
            assert_true(is_close(sums_of(&s)->loss, -c + 0.5 * minus_log_sigmoid(x), 1e-12));
            op_test_close(&s.t, &s.coefficient, 0, 0, -1 + 0.5 * wrong / expm1(c), 1e-6, 1e-9);
            op_test_close(&s.t, &s.coefficient, 0, 1, -0.5 * wrong / expm1(r), 1e-6, 1e-9);
        }
    }
    op_test_end(&s.t);
}

static void smoothing_mixes_in_the_turned_pair(void **state)
{
    (void)state;
    static const struct size size = {2, 4, 4, EBB_F32, {2, 2}};
    struct setup s;
    prepare(&s, &size);
    for (int type = 0; type < EBB_PREFERENCES; type++) {
        double loss[2], slope[2];
        if (!takes_smoothing(type)) continue;
        for (int turned = 0; turned < 2; turned++) {
            choose(&s, (enum ebb_preference)type);
            s.keys.simpo_gamma = 0;
            set_document(&s, 0, turned ? -2 : -1, -1.5);
            set_document(&s, 1, turned ? -1 : -2, -1.5);
            run_loss(&s);
            loss[turned] = sums_of(&s)->loss;
            slope[turned] = op_test_get(&s.t, &s.coefficient, 0, turned ? 2 : 0);
        }
        set_document(&s, 0, -1, -1.5);
        set_document(&s, 1, -2, -1.5);
        s.keys.label_smoothing = 0.25;
        run_loss(&s);
        assert_true(is_close(sums_of(&s)->loss, 0.75 * loss[0] + 0.25 * loss[1], 0));
        op_test_close(&s.t, &s.coefficient, 0, 0, 0.75 * slope[0] + 0.25 * slope[1], 1e-6, 0);
    }
    op_test_end(&s.t);
}

static void ktos_z0_is_a_constant_and_never_negative(void **state)
{
    (void)state;
    static const struct size size = {3, 4, 4, EBB_F32, {2, 3, 2}};
    struct setup s;
    prepare(&s, &size);
    choose(&s, EBB_PREFERENCE_KTO);
    set_document(&s, 0, -1, -2); /* undesirable: S - Sr = 2 */
    set_document(&s, 1, -2, -1); /* desirable: -3 */
    static const struct {
        double policy, z0;
    } kl[] = {{-1, 1}, {-3, 0}, {-1.5, 0}};
    for (int k = 0; k < 3; k++) {
        set_document(&s, 2, kl[k].policy, -1.5); /* twice that */
        run_loss(&s);
        double z0 = kl[k].z0, good = 1 / (1 + exp(0.5 * (-3 - z0))),
               bad = 1 / (1 + exp(-0.5 * (2 - z0)));
        const struct ebb_sums *sums = sums_of(&s);
        assert_true(is_close(sums->loss, 1.25 * good + 0.5 * bad, 0));
        assert_true(sums->preference.kl == z0);
        assert_int_equal(sums->preference.kl_batches, 1);
        assert_int_equal(sums->preference.examples, 2);
        assert_int_equal(sums->labels, 7);
        op_test_close(&s.t, &s.coefficient, 0, 0, 0.5 * 0.5 * bad * (1 - bad), 1e-6, 0);
        op_test_close(&s.t, &s.coefficient, 0, 2, -1.25 * 0.5 * good * (1 - good), 1e-6, 0);
        for (int64_t i = 5; i < 7; i++) op_test_close(&s.t, &s.coefficient, 0, i, 0, 0, 0);
    }
    op_test_fill(&s.t, &s.kinds, 2, 2); /* nothing to learn from */
    run_loss(&s);
    assert_true(sums_of(&s)->loss == 0 && sums_of(&s)->preference.examples == 0);
    assert_int_equal(sums_of(&s)->preference.kl_batches, 1);
    for (int64_t i = 0; i < 7; i++) op_test_close(&s.t, &s.coefficient, 0, i, 0, 0, 0);
    op_test_fill(&s.t, &s.kinds, 1, 1); /* z0 is not known */
    set_document(&s, 2, -1, -1.5);
    run_loss(&s);
    assert_true(sums_of(&s)->preference.kl == 0 && sums_of(&s)->preference.kl_batches == 0);
    assert_true(is_close(sums_of(&s)->loss,
                         1.25 * (1 / (1 + exp(1)) + 1 / (1 + exp(-1.5)) + 1 / (1 + exp(0.5))), 0));
    op_test_end(&s.t);
}

/* ---- what must be the same ---- */

static void threads_and_in_place_give_the_same_bits(void **state)
{
    (void)state;
    static const struct size sizes[] = {{6, 1500, 1290, EBB_F32, {7, 5, 1, 12, 0, 9}},
                                        {4, 2000, 2000, EBB_BF16, {9, 2, 5, 6}}};
    for (int k = 0; k < 2 * EBB_PREFERENCES; k++) {
        struct setup s;
        prepare(&s, &sizes[k % 2]);
        choose(&s, (enum ebb_preference)(k / 2));
        void *logits = op_test_copy(&s.t, &s.logits);
        run_all(&s);
        assert_true(op_test_same(&s.t, &s.logits, logits));
        struct ebb_sums sums = *sums_of(&s);
        void *gradient = op_test_copy(&s.t, &s.dlogits);
        void *coefficient = op_test_copy(&s.t, &s.coefficient);
        void *logprob = op_test_copy(&s.t, &s.logprob);
        s.t.env.threads = 1;
        run_all(&s);
        assert_memory_equal(sums_of(&s), &sums, sizeof sums);
        assert_true(op_test_same(&s.t, &s.dlogits, gradient));
        assert_true(op_test_same(&s.t, &s.coefficient, coefficient));
        assert_true(op_test_same(&s.t, &s.logprob, logprob));
        if (s.dlogits.dtype == EBB_F32) {
            struct ebb_view dlogits = s.dlogits;
            s.dlogits = s.logits;
            run_backward(&s);
            for (int64_t i = 0; i < s.labels; i++)
                assert_memory_equal(op_test_at(&s.t, &s.logits, i, 0),
                                    op_test_at(&s.t, &dlogits, i, 0), 1500 * 4);
        }
        free(logits), free(gradient), free(coefficient), free(logprob);
        op_test_end(&s.t);
    }
}

static void any_layout_of_the_rows_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct size sizes[] = {{2, 9001, 8999, EBB_F32, {1, 2}},
                                        {2, 8192, 8192, EBB_BF16, {2, 1}},
                                        {2, 7, 5, EBB_BF16, {1, 1}}};
    for (int k = 0; k < 3; k++) {
        struct setup s;
        prepare(&s, &sizes[k]);
        choose(&s, EBB_PREFERENCE_SIGMOID);
        run_all(&s);
        void *logprob = op_test_copy(&s.t, &s.logprob);
        struct ebb_view logits = s.logits, dlogits = s.dlogits;
        for (int layout = 0; layout < OP_LAYOUTS; layout++) {
            s.logits = op_layout_copy(&s.t, &logits, layout);
            s.dlogits = op_layout_copy(&s.t, &dlogits, layout);
            op_test_fill(&s.t, &s.dlogits, 5, 6);
            run_all(&s);
            assert_true(op_test_same(&s.t, &s.logprob, logprob));
            assert_true(op_layout_same(&s.t, &s.dlogits, &dlogits));
            op_test_drop_last(&s.t);
            op_test_drop_last(&s.t);
        }
        free(logprob);
        op_test_end(&s.t);
    }
}

static void a_gradient_in_the_upper_half_of_the_rows_has_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * OP_LAYOUT_COLS; k++) {
        struct setup s;
        int64_t vocab = op_layout_cols[k / 2];
        struct size size = {2, vocab + k % 4, vocab, EBB_BF16, {1, 0}};
        if (k % 2) size.lengths[0] = vocab < 1000 ? 60 : 3, size.lengths[1] = 2;
        prepare(&s, &size);
        choose(&s, EBB_PREFERENCE_SIGMOID);
        run_all(&s);
        if (k % 2) op_test_set(&s.t, &s.coefficient, 0, 1, 0); /* whose row is cleared */
        run_backward(&s);
        struct ebb_view logits = s.logits, dlogits = s.dlogits;
        for (int layout = 0; layout < OP_LAYOUTS; layout++) {
            s.logits = op_layout_copy(&s.t, &logits, layout);
            s.dlogits = ebb_view_upper_half(&s.logits);
            run_backward(&s);
            assert_true(op_layout_same(&s.t, &s.dlogits, &dlogits));
            op_test_drop_last(&s.t);
        }
        op_test_end(&s.t);
    }
}

/* A view's rows from `start` on, `rows` of them. */
static struct ebb_view part_of(const struct ebb_view *view, int64_t start, int64_t rows)
{
    struct ebb_view part = *view;
    part.offset += start * view->stride * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
    part.rows = rows;
    part.row0 = start;
    return part;
}

static void chunks_are_the_whole_and_dead_rows_are_left_alone(void **state)
{
    (void)state;
    static const struct size size = {4, 50, 45, EBB_F32, {3, 2, 4, 1}};
    struct setup s;
    prepare(&s, &size);
    s.t.step.labels = 8; /* the last document loses its label, the third one of its own */
    for (int64_t start = 0; start < 12; start += 4) {
        struct ebb_label_logprob args = logprob_args(&s, false);
        args.logits = part_of(&s.logits, start, start == 8 ? 2 : 4);
        assert_op(&s, EBB_OP_label_logprob, &args);
    }
    void *logprob = op_test_copy(&s.t, &s.logprob);
    for (int64_t i = 8; i < s.tokens; i++) assert_true(op_test_get(&s.t, &s.logprob, 0, i) >= 5);
    run_all(&s);
    assert_true(op_test_same(&s.t, &s.logprob, logprob));
    void *gradient = op_test_copy(&s.t, &s.dlogits);
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(op_test_get(&s.t, &s.dlogits, i, 0) >= 5, i >= 8);
    assert_int_equal(sums_of(&s)->labels, 8);
    for (int64_t start = 0; start < 12; start += 4) {
        struct ebb_label_logprob_backward args = backward_args(&s);
        args.logits = part_of(&s.logits, start, start == 8 ? 2 : 4);
        args.dlogits = part_of(&s.dlogits, start, start == 8 ? 2 : 4);
        for (int64_t i = start; i < start + 4 && i < 8; i++)
            for (int64_t j = 0; j < 50; j++) op_test_set(&s.t, &s.dlogits, i, j, 5);
        assert_op(&s, EBB_OP_label_logprob_backward, &args);
    }
    assert_true(op_test_same(&s.t, &s.dlogits, gradient));
    free(logprob), free(gradient);
    op_test_end(&s.t);
}

static void pairs_one_by_one_add_up_to_the_micro_batch(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, &usual);
    for (int type = 0; type < EBB_PREFERENCE_KTO; type++) {
        choose(&s, (enum ebb_preference)type);
        run_logprobs(&s);
        run_loss(&s);
        struct ebb_sums whole = *sums_of(&s);
        double *coefficient = op_test_doubles(&s.t, &s.coefficient);
        memset(sums_of(&s), 0, sizeof(struct ebb_sums));
        int64_t first = 0;
        for (int64_t d = 0; d < 6; d += 2) {
            struct ebb_preference_loss args = loss_args(&s);
            struct ebb_view *labels[] = {&args.logprob, &args.label_rows, &args.coefficient,
                                         &args.reference};
            for (int v = 0; v < (s.has_reference ? 4 : 3); v++)
                *labels[v] = op_test_columns(labels[v], first, labels[v]->cols - first);
            args.doc_starts = op_test_columns(&args.doc_starts, d, 3);
            s.t.step.docs = 2;
            s.t.step.labels = s.lengths[d] + s.lengths[d + 1];
            assert_op(&s, EBB_OP_preference_loss, &args);
            for (int64_t i = first; i < first + s.t.step.labels; i++)
                op_test_close(&s.t, &s.coefficient, 0, i, coefficient[i], 0, 0);
            first += s.t.step.labels;
        }
        s.t.step.docs = s.docs;
        s.t.step.labels = s.labels;
        assert_memory_equal(sums_of(&s), &whole, sizeof whole);
        free(coefficient);
    }
    op_test_end(&s.t);
}

static void columns_behind_the_vocabulary_have_no_part(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, &usual);
    run_all(&s);
    struct ebb_sums sums = *sums_of(&s);
    void *gradient = op_test_copy(&s.t, &s.dlogits);
    for (int64_t i = 0; i < s.labels; i++) {
        for (int64_t j = 17; j < 20; j++) {
            op_test_set(&s.t, &s.logits, i, j, j % 2 ? (double)NAN : 1e30);
            op_test_set(&s.t, &s.reference_logits, i, j, j % 2 ? 1e30 : (double)NAN);
            op_test_close(&s.t, &s.dlogits, i, j, 0, 0, 0);
        }
    }
    run_all(&s);
    assert_memory_equal(sums_of(&s), &sums, sizeof sums);
    assert_true(op_test_same(&s.t, &s.dlogits, gradient));
    free(gradient);
    op_test_end(&s.t);
}

static void a_coefficient_of_nothing_gives_zeros(void **state)
{
    (void)state;
    for (int storage = 0; storage < 2; storage++) {
        struct size size = usual;
        struct setup s;
        size.storage = storage ? EBB_BF16 : EBB_F32;
        prepare(&s, &size);
        op_test_fill(&s.t, &s.coefficient, 0, 0);
        op_test_set(&s.t, &s.coefficient, 0, 3, -0.5);
        op_test_set(&s.t, &s.coefficient, 0, 5, -0.0);
        for (int64_t j = 0; j < 20; j++) op_test_set(&s.t, &s.logits, 6, j, (double)NAN);
        run_backward(&s);
        for (int64_t i = 0; i < s.labels; i++) {
            for (int64_t j = 0; j < 20; j++) {
                double g = op_test_get(&s.t, &s.dlogits, i, j);
                assert_int_equal(g == 0 && !signbit(g), i != 3 || j >= 17);
            }
        }
        op_test_end(&s.t);
    }
}

static void a_broken_logit_spoils_its_pair_visibly(void **state)
{
    (void)state;
    for (int type = 0; type < EBB_PREFERENCES; type++) {
        for (int k = 0; k < 3; k++) {
            struct setup s;
            prepare(&s, &usual);
            choose(&s, (enum ebb_preference)type);
            op_test_set(&s.t, k < 2 ? &s.logits : &s.reference_logits, 4, 6,
                        k == 0 ? (double)NAN : (double)INFINITY);
            op_test_fill(&s.t, &s.kinds, 1, 1);
            run_all(&s);
            bool seen = k < 2 || s.has_reference;
            assert_int_equal(isnan(sums_of(&s)->loss), seen);
            bool spoilt = false; /* labels 3 and 4 are document 1's, 0 to 2 its chosen one's */
            for (int64_t i = 0; i < 5; i++) spoilt |= isnan(op_test_get(&s.t, &s.dlogits, i, 6));
            assert_int_equal(spoilt, seen);
            for (int64_t i = 5; i < s.labels; i++)
                assert_true(isfinite(op_test_get(&s.t, &s.dlogits, i, 6)));
            op_test_end(&s.t);
        }
    }
}

static void sums_are_added_to(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, &usual);
    for (int type = 0; type < EBB_PREFERENCES; type++) {
        choose(&s, (enum ebb_preference)type);
        run_logprobs(&s);
        run_loss(&s);
        struct ebb_sums once = *sums_of(&s);
        struct ebb_preference_loss args = loss_args(&s);
        sums_of(&s)->correct = 5;
        assert_op(&s, EBB_OP_preference_loss, &args);
        const struct ebb_preference_sums *twice = &sums_of(&s)->preference, *one = &once.preference;
        assert_true(is_close(sums_of(&s)->loss, 2 * once.loss, 0));
        assert_true(is_close(twice->rewards_chosen, 2 * one->rewards_chosen, 0));
        assert_true(is_close(twice->kl, 2 * one->kl, 0));
        assert_int_equal(sums_of(&s)->labels, 2 * s.labels);
        assert_int_equal(sums_of(&s)->correct, 5);
        assert_int_equal(twice->examples, 2 * one->examples);
        assert_int_equal(twice->accuracies, 2 * one->accuracies);
        assert_int_equal(twice->undesirable, 2 * one->undesirable);
        assert_int_equal(twice->kl_batches, 2 * one->kl_batches);
    }
    op_test_end(&s.t);
}

/* ---- PyTorch's numbers ---- */

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : 0;
}

static double at(const json_t *array, int64_t i)
{
    const json_t *value = json_array_get(array, (size_t)i);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static enum ebb_preference loss_named(const char *name)
{
    for (int type = 0; type < EBB_PREFERENCES; type++) {
        if (strcmp(name, names[type]) == 0) return (enum ebb_preference)type;
    }
    fail_msg("loss '%s'", name);
    return EBB_PREFERENCES;
}

static void check_golden_case(struct setup *s, const json_t *golden)
{
    const json_t *keys = json_object_get(golden, "keys");
    const struct ebb_preference_keys all = {
        .loss_type = loss_named(json_string_value(json_object_get(keys, "loss_type"))),
        .beta = number(keys, "beta"),
        .label_smoothing = number(keys, "label_smoothing"),
        .simpo_gamma = number(keys, "simpo_gamma"),
        .desirable_weight = number(keys, "desirable_weight"),
        .undesirable_weight = number(keys, "undesirable_weight")};
    s->keys = all;
    s->has_reference = json_is_true(json_object_get(golden, "reference"));
    run_all(s);
    const struct ebb_preference_sums *sums = &sums_of(s)->preference;
    assert_sum("loss", sums_of(s)->loss, number(golden, "loss"), 5e-6);
    assert_sum("rewards_chosen", sums->rewards_chosen, number(golden, "rewards_chosen"), 5e-6);
    assert_sum("rewards_rejected", sums->rewards_rejected, number(golden, "rewards_rejected"),
               5e-6);
    assert_sum("logps_chosen", sums->logps_chosen, number(golden, "logps_chosen"), 5e-6);
    assert_sum("logps_rejected", sums->logps_rejected, number(golden, "logps_rejected"), 5e-6);
    assert_sum("nll_chosen", sums->nll_chosen, number(golden, "nll_chosen"), 5e-6);
    assert_sum("kl", sums->kl, number(golden, "kl"), 5e-6);
    const json_t *gradient = json_object_get(golden, "gradient");
    for (int64_t i = 0; i < s->labels; i++) {
        const json_t *row = json_array_get(gradient, (size_t)i);
        for (int64_t j = 0; j < s->logits.cols; j++)
            op_test_close(&s->t, &s->dlogits, i, j, at(row, j), 5e-6, 2e-6);
    }
}

static void pytorch_has_the_same_losses_and_gradients(void **state)
{
    (void)state;
    static const struct size size = {6, 11, 9, EBB_F32, {3, 2, 1, 4, 2, 2}};
    struct setup s;
    char path[512];
    json_t *golden;
    prepare(&s, &size);
    snprintf(path, sizeof path, "%s/tests/golden/preference.json", EBB_SOURCE_DIR);
    if (ebb_json_load(s.t.env.ctx, path, &golden) != EBB_OK)
        fail_msg("%s", ebb_error_text(s.t.env.ctx));
    for (int64_t d = 0; d < 6; d++) {
        assert_true(at(json_object_get(golden, "lengths"), d) == (double)s.lengths[d]);
        op_test_set(&s.t, &s.kinds, 0, d, at(json_object_get(golden, "kinds"), d));
    }
    for (int64_t i = 0; i < s.labels; i++) {
        int64_t token = (int64_t)op_test_get(&s.t, &s.label_rows, 0, i);
        op_test_set(&s.t, &s.targets, 0, token, at(json_object_get(golden, "targets"), i));
        for (int64_t j = 0; j < 11; j++) {
            op_test_set(&s.t, &s.logits, i, j,
                        at(json_array_get(json_object_get(golden, "logits"), (size_t)i), j));
            op_test_set(&s.t, &s.reference_logits, i, j,
                        at(json_array_get(json_object_get(golden, "reference"), (size_t)i), j));
        }
    }
    const json_t *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) >= 13);
    for (size_t k = 0; k < json_array_size(cases); k++)
        check_golden_case(&s, json_array_get(cases, k));
    json_decref(golden);
    op_test_end(&s.t);
}

/* ---- what is refused ---- */

static void refuses(struct setup *s, enum ebb_op op, const void *args, const char *text)
{
    memset(sums_of(s), 0, sizeof(struct ebb_sums));
    void *gradient = op_test_copy(&s->t, &s->dlogits), *logprob = op_test_copy(&s->t, &s->logprob);
    void *coefficient = op_test_copy(&s->t, &s->coefficient);
    assert_int_equal(op_test_run(&s->t, op, args), EBB_FAILED);
    if (strstr(ebb_error_text(s->t.env.ctx), text) == NULL)
        fail_msg("'%s', wanted '%s'", ebb_error_text(s->t.env.ctx), text);
    assert_true(op_test_same(&s->t, &s->dlogits, gradient));
    assert_true(op_test_same(&s->t, &s->logprob, logprob));
    assert_true(op_test_same(&s->t, &s->coefficient, coefficient));
    assert_int_equal(sums_of(s)->labels, 0);
    ebb_error_clear(s->t.env.ctx);
    free(gradient), free(logprob), free(coefficient);
}

static void constants_that_make_no_sense_are_named(void **state)
{
    (void)state;
    static const struct {
        struct ebb_preference_keys keys;
        const char *text;
    } bad[] = {{{EBB_PREFERENCES, 0.1, 0, 0, 0, 0}, "there is no loss 6"},
               {{EBB_PREFERENCE_SIGMOID, 0, 0, 0, 0, 0}, "beta is 0, wanted more than 0"},
               {{EBB_PREFERENCE_IPO, -0.1, 0, 0, 0, 0}, "beta is -0.1"},
               {{EBB_PREFERENCE_HINGE, (double)NAN, 0, 0, 0, 0}, "beta is"},
               {{EBB_PREFERENCE_IPO, 1e-310, 0, 0, 0, 0}, "beta is 1e-310"},
               {{EBB_PREFERENCE_SIGMOID, 0.1, 0.6, 0, 0, 0}, "label_smoothing is 0.6, wanted 0 to"},
               {{EBB_PREFERENCE_SIMPO, 0.1, -0.1, 0, 0, 0}, "label_smoothing is -0.1"},
               {{EBB_PREFERENCE_IPO, 0.1, 0.1, 0, 0, 0}, "is 0.1, but the loss ipo has none"},
               {{EBB_PREFERENCE_SIMPO, 0.1, 0, -1, 0, 0}, "simpo_gamma is -1, wanted 0 or more"},
               {{EBB_PREFERENCE_KTO, 0.1, 0, 0, -1, 0}, "desirable_weight is -1"},
               {{EBB_PREFERENCE_KTO, 0.1, 0, 0, 1, (double)INFINITY}, "undesirable_weight is inf"}};
    struct setup s;
    prepare(&s, &usual);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        s.keys = bad[k].keys;
        s.has_reference = takes_reference((int)s.keys.loss_type);
        struct ebb_preference_loss args = loss_args(&s);
        refuses(&s, EBB_OP_preference_loss, &args, bad[k].text);
    }
    op_test_end(&s.t);
}

static void views_that_do_not_fit_are_named(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, &usual);
    struct ebb_label_logprob forward = logprob_args(&s, false);
    forward.logits.dtype = EBB_BF16;
    refuses(&s, EBB_OP_label_logprob, &forward, "label_logprob: the logits are bfloat16, wanted");
    forward = logprob_args(&s, false);
    forward.logprob.dtype = EBB_I32;
    refuses(&s, EBB_OP_label_logprob, &forward, "the labels' vector is int32, wanted float32");
    forward = logprob_args(&s, false);
    forward.logprob.cols = 13;
    refuses(&s, EBB_OP_label_logprob, &forward, "a vector of 13 labels, wanted 14");
    forward = logprob_args(&s, false);
    forward.vocab = 21;
    refuses(&s, EBB_OP_label_logprob, &forward, "a vocabulary of 21, wanted 1 to 20");
    forward.vocab = 0;
    refuses(&s, EBB_OP_label_logprob, &forward, "a vocabulary of 0");
    struct ebb_label_logprob_backward backward = backward_args(&s);
    backward.dlogits.cols = 17;
    refuses(&s, EBB_OP_label_logprob_backward, &backward,
            "the gradient is [14, 17], wanted [14, 20]");
    backward = backward_args(&s);
    backward.dlogits.dtype = EBB_I32;
    refuses(&s, EBB_OP_label_logprob_backward, &backward, "the gradient is int32");
    backward = backward_args(&s);
    backward.dlogits = ebb_view_upper_half(&backward.logits);
    backward.dlogits.offset += 4;
    refuses(&s, EBB_OP_label_logprob_backward, &backward,
            "the bfloat16 gradient lies across the logits, wanted all of it elsewhere");
    backward = backward_args(&s);
    backward.coefficient.dtype = EBB_BF16;
    refuses(&s, EBB_OP_label_logprob_backward, &backward, "label_logprob_backward: the labels'");
    struct ebb_preference_loss loss = loss_args(&s);
    loss.logprob.dtype = EBB_BF16;
    refuses(&s, EBB_OP_preference_loss, &loss, "the log-probabilities are bfloat16, wanted");
    loss = loss_args(&s);
    loss.reference.cols = 13;
    refuses(&s, EBB_OP_preference_loss, &loss, "13 reference's log-probabilities, wanted 14");
    loss = loss_args(&s);
    loss.coefficient.cols = 3;
    refuses(&s, EBB_OP_preference_loss, &loss, "3 coefficients, wanted 14");
    loss = loss_args(&s);
    loss.doc_starts.cols = 6;
    refuses(&s, EBB_OP_preference_loss, &loss, "6 starts of documents, wanted 7");
    op_test_end(&s.t);
}

static void what_a_loss_does_not_go_by_is_named(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, &usual);
    choose(&s, EBB_PREFERENCE_ORPO);
    s.has_reference = true;
    struct ebb_preference_loss args = loss_args(&s);
    refuses(&s, EBB_OP_preference_loss, &args, "a reference, but the loss orpo has no use for one");
    choose(&s, EBB_PREFERENCE_SIGMOID);
    args = loss_args(&s);
    args.kinds = s.kinds;
    refuses(&s, EBB_OP_preference_loss, &args, "but the loss sigmoid goes by pairs");
    choose(&s, EBB_PREFERENCE_KTO);
    args = loss_args(&s);
    args.kinds = ebb_view_none();
    refuses(&s, EBB_OP_preference_loss, &args, "the loss kto wants a kind for each document");
    choose(&s, EBB_PREFERENCE_SIGMOID);
    args = loss_args(&s);
    s.t.step.docs = 5;
    refuses(&s, EBB_OP_preference_loss, &args, "5 documents are no pairs");
    op_test_end(&s.t);
}

static void labels_and_documents_that_cannot_be_are_named(void **state)
{
    (void)state;
    op_test_cpu_only("targets, labels, documents and kinds are the host's to check");
    struct setup s;
    prepare(&s, &usual);
    struct ebb_label_logprob forward = logprob_args(&s, false);
    struct ebb_label_logprob_backward backward = backward_args(&s);
    struct ebb_preference_loss loss = loss_args(&s);
    op_test_set(&s.t, &s.targets, 0, 2, 17); /* a column that is only padding */
    refuses(&s, EBB_OP_label_logprob, &forward, "label_logprob: the target of token 2 is 17");
    refuses(&s, EBB_OP_label_logprob_backward, &backward, "outside the vocabulary of 17");
    op_test_set(&s.t, &s.targets, 0, 2, 16);
    op_test_set(&s.t, &s.label_rows, 0, 13, (double)s.tokens);
    refuses(&s, EBB_OP_label_logprob, &forward, "label 13 is about token");
    refuses(&s, EBB_OP_preference_loss, &loss, "which is in no document: they are tokens 0 to");
    op_test_set(&s.t, &s.label_rows, 0, 13, 3);
    refuses(&s, EBB_OP_preference_loss, &loss, "label 13 is about token 3, wanted one behind");
    op_test_set(&s.t, &s.label_rows, 0, 13, (double)s.tokens - 2);
    op_test_set(&s.t, &s.doc_starts, 0, 3, 1000);
    refuses(&s, EBB_OP_preference_loss, &loss, "document 3 begins at token 1000 and ends at");
    lay_documents(&s);
    choose(&s, EBB_PREFERENCE_KTO);
    loss = loss_args(&s);
    op_test_set(&s.t, &s.kinds, 0, 4, 3);
    refuses(&s, EBB_OP_preference_loss, &loss, "document 4 is of kind 3, wanted 0 (undesirable)");
    op_test_end(&s.t);
}

static void what_nobody_checked_makes_the_loss_nan(void **state)
{
    (void)state;
    op_test_gpu_only("such labels are errors");
    for (int k = 0; k < 4; k++) {
        struct setup s;
        prepare(&s, &usual);
        choose(&s, k == 3 ? EBB_PREFERENCE_KTO : EBB_PREFERENCE_SIGMOID);
        op_test_fill(&s.t, &s.kinds, 1, 1);
        if (k == 0) op_test_set(&s.t, &s.targets, 0, 2, 17);
        if (k == 1) op_test_set(&s.t, &s.targets, 0, 2, -100);
        if (k == 2) op_test_set(&s.t, &s.label_rows, 0, 13, (double)s.tokens);
        if (k == 3) op_test_set(&s.t, &s.kinds, 0, 0, 3);
        run_all(&s);
        if (k != 2) assert_true(isnan(sums_of(&s)->loss));
        assert_true(isnan(op_test_get(&s.t, &s.dlogits, k == 2 ? 13 : 1, 0)));
        assert_true(isfinite(op_test_get(&s.t, &s.dlogits, 6, 0)));
        op_test_end(&s.t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probabilities_agree_with_the_formula),
        cmocka_unit_test(extreme_logits_have_exact_log_probabilities),
        cmocka_unit_test(losses_and_gradients_agree_with_the_formulas),
        cmocka_unit_test(many_documents_and_long_ones_agree_with_the_formulas),
        cmocka_unit_test(a_model_that_is_its_reference_has_the_losses_of_the_start),
        cmocka_unit_test(documents_without_labels_count_as_zero),
        cmocka_unit_test(a_micro_batch_of_nothing_is_nothing),
        cmocka_unit_test(far_apart_answers_keep_loss_and_gradient_finite),
        cmocka_unit_test(a_rejected_answer_that_cannot_be_is_learnt),
        cmocka_unit_test(odds_next_to_certainty_keep_their_digits),
        cmocka_unit_test(smoothing_mixes_in_the_turned_pair),
        cmocka_unit_test(ktos_z0_is_a_constant_and_never_negative),
        cmocka_unit_test(threads_and_in_place_give_the_same_bits),
        cmocka_unit_test(any_layout_of_the_rows_gives_the_same_bits),
        cmocka_unit_test(a_gradient_in_the_upper_half_of_the_rows_has_the_same_bits),
        cmocka_unit_test(chunks_are_the_whole_and_dead_rows_are_left_alone),
        cmocka_unit_test(pairs_one_by_one_add_up_to_the_micro_batch),
        cmocka_unit_test(columns_behind_the_vocabulary_have_no_part),
        cmocka_unit_test(a_coefficient_of_nothing_gives_zeros),
        cmocka_unit_test(a_broken_logit_spoils_its_pair_visibly),
        cmocka_unit_test(sums_are_added_to),
        cmocka_unit_test(pytorch_has_the_same_losses_and_gradients),
        cmocka_unit_test(constants_that_make_no_sense_are_named),
        cmocka_unit_test(views_that_do_not_fit_are_named),
        cmocka_unit_test(what_a_loss_does_not_go_by_is_named),
        cmocka_unit_test(labels_and_documents_that_cannot_be_are_named),
        cmocka_unit_test(what_nobody_checked_makes_the_loss_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
