/* Runs of preference training through the training loop: what metrics and evaluations say, and that
 * it learns what it is to prefer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_run.h"

#include <unistd.h>

static const char *const loss_names[EBB_PREFERENCES] = {"sigmoid", "ipo",   "hinge",
                                                        "orpo",    "simpo", "kto"};

static struct run_options options_of(enum ebb_preference loss, bool lora)
{
    struct run_options o = {.lora = lora, .batch = 4};
    bool alone = loss == EBB_PREFERENCE_ORPO || loss == EBB_PREFERENCE_SIMPO;
    o.objective.kind = EBB_OBJECTIVE_PREFERENCE;
    o.objective.preference =
        (struct ebb_preference_keys){.loss_type = loss,
                                     .beta = loss == EBB_PREFERENCE_SIMPO ? 2 : 0.1,
                                     .simpo_gamma = 0.5,
                                     .desirable_weight = 1,
                                     .undesirable_weight = 1};
    o.objective.reference = alone  ? EBB_REFERENCE_NONE
                            : lora ? EBB_REFERENCE_BASE
                                   : EBB_REFERENCE_MODEL;
    return o;
}

/* Opens, runs and leaves metrics. `steps` with an evaluation at the end of each 10. */
static json_t *run_steps(struct run *run, const struct run_options *o, const char *dir,
                         int64_t steps)
{
    run_open(run, o, dir, NULL);
    run->request.max_steps = steps;
    run->request.eval_strategy = EBB_WHEN_STEPS;
    run->request.eval_steps = 10;
    run_must(run);
    return run_metrics(run->ctx, dir);
}

static void has(const json_t *record, const char *prefix, const char *name, bool wanted)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    const json_t *value = json_object_get(record, key);
    if ((value != NULL) != wanted)
        fail_msg("'%s' is %s in the record", key, wanted ? "missing" : "needless");
    if (wanted && !json_is_real(value)) fail_msg("'%s' is no number", key);
}

/* Names of a record by its loss. */
static void check_names(const json_t *record, const char *prefix, enum ebb_preference loss)
{
    bool pairs = loss != EBB_PREFERENCE_KTO;
    has(record, prefix, "loss", true);
    has(record, prefix, "rewards/chosen", true);
    has(record, prefix, "rewards/rejected", true);
    has(record, prefix, "rewards/margins", pairs);
    has(record, prefix, "rewards/accuracies", pairs);
    has(record, prefix, "logps/chosen", true);
    has(record, prefix, "logps/rejected", true);
    has(record, prefix, "nll_loss", loss == EBB_PREFERENCE_ORPO);
    has(record, prefix, "kl", !pairs);
    has(record, prefix, "mean_token_accuracy", false);
    has(record, prefix, "perplexity", false);
}

static void metrics_have_the_names_of_trl(void **state)
{
    char dir[700], name[64];
    for (int loss = 0; loss < EBB_PREFERENCES; loss++) {
        struct run run;
        struct run_options o = options_of((enum ebb_preference)loss, loss % 2 == 0);
        snprintf(name, sizeof name, "names-%s", loss_names[loss]);
        json_t *metrics = run_steps(&run, &o, run_path((const char *)*state, name, dir), 10);
        const json_t *step = run_record(metrics, 10, false), *eval = run_record(metrics, 10, true);
        assert_non_null(step);
        assert_non_null(eval);
        check_names(step, "", (enum ebb_preference)loss);
        check_names(eval, "eval_", (enum ebb_preference)loss);
        if (loss == EBB_PREFERENCE_SIGMOID) {
            double margin =
                run_number(eval, "eval_rewards/chosen") - run_number(eval, "eval_rewards/rejected");
            assert_true(fabs(margin - run_number(eval, "eval_rewards/margins")) < 1e-9);
        }
        json_decref(metrics);
        run_close(&run);
    }
}

/* The losses of one epoch after another of the same 11 pairs: chosen answers win. */
static void every_loss_learns_to_prefer(void **state)
{
    char dir[700], name[64];
    for (int loss = 0; loss < EBB_PREFERENCES; loss++) {
        struct run run;
        struct run_options o = options_of((enum ebb_preference)loss, true);
        snprintf(name, sizeof name, "learns-%s", loss_names[loss]);
        json_t *metrics = run_steps(&run, &o, run_path((const char *)*state, name, dir), 60);
        const json_t *first = run_record(metrics, 1, false), *last = run_record(metrics, 60, false);
        if (!(run_number(last, "loss") < run_number(first, "loss")))
            fail_msg("%s: the loss went from %g to %g", loss_names[loss], run_number(first, "loss"),
                     run_number(last, "loss"));
        if (!(run_number(last, "rewards/chosen") > run_number(last, "rewards/rejected")))
            fail_msg("%s: rewards are %g and %g", loss_names[loss],
                     run_number(last, "rewards/chosen"), run_number(last, "rewards/rejected"));
        if (loss != EBB_PREFERENCE_KTO) assert_true(run_number(last, "rewards/accuracies") > 0.7);
        json_decref(metrics);
        run_close(&run);
    }
}

/* An evaluation trains nothing and says the same twice. */
static void an_evaluation_is_repeatable(void **state)
{
    char dir[700];
    struct run run;
    struct ebb_eval_result a, b;
    struct run_options o = options_of(EBB_PREFERENCE_SIGMOID, true);
    o.lora_dropout = 0.3;
    run_open(&run, &o, run_path((const char *)*state, "evaluation", dir), NULL);
    for (int i = 0; i < 2; i++)
        run_ok(run.ctx,
               ebb_evaluate(run.ctx, run.request.engine, run.request.eval, run.eval_feed, -1,
                            i ? &b : &a),
               "evaluation");
    assert_memory_equal(&a.sums, &b.sums, sizeof a.sums);
    assert_int_equal(a.sums.preference.examples, RUN_EVAL_SAMPLES / 2);
    /* A fresh adapter: the reference itself, but for rounding. */
    assert_true(fabs(a.loss - log(2)) < 1e-5 && isnan(a.cross_entropy) && isnan(a.accuracy));
    run_close(&run);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, train_dir_open, train_dir_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(metrics_have_the_names_of_trl),
        CASE(every_loss_learns_to_prefer),
        CASE(an_evaluation_is_repeatable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
