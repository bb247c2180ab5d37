/* The training loop on a small model: what it learns, records, keeps and refuses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_run.h"

#include <sys/stat.h>
#include <unistd.h>

static void expect_failure(struct run *run, enum ebb_status wanted, const char *text)
{
    enum ebb_status status = run_go(run);
    if (status != wanted || !strstr(ebb_error_text(run->ctx), text))
        fail_msg("got %s (%s), wanted %s with '%s'", ebb_status_name(status),
                 ebb_error_text(run->ctx), ebb_status_name(wanted), text);
}

static void loss_falls_and_metrics_are_complete(void **state)
{
    static const char *const keys[] = {"step",
                                       "epoch",
                                       "loss",
                                       "grad_norm",
                                       "learning_rate",
                                       "num_tokens",
                                       "mean_token_accuracy",
                                       "tokens_per_second",
                                       "step_seconds",
                                       "peak_device_bytes",
                                       "predicted_device_bytes",
                                       "process_device_bytes",
                                       "host_bytes",
                                       "bytes_out",
                                       "bytes_in",
                                       "stall_seconds"};
    enum { STEPS = 60 };
    struct run run;
    struct run_options o = {.offload = true};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = STEPS;
    run.request.logging_steps = 20;
    run.request.schedule.learning_rate = 1e-2;
    run_must(&run);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    assert_int_equal(json_array_size(metrics), STEPS);
    double tokens = 0;
    for (size_t i = 0; i < STEPS; i++) {
        const json_t *record = json_array_get(metrics, i);
        size_t k = 0;
        const char *key;
        json_t *value;
        assert_int_equal(json_object_size(record), sizeof keys / sizeof keys[0]);
        json_object_foreach((json_t *)(uintptr_t)record, key, value)
        {
            assert_string_equal(key, keys[k++]);
            /* Where the driver does not tell, it is null. */
            bool untold = kit_backend() == EBB_BACKEND_CUDA && json_is_null(value) &&
                          strcmp(key, "process_device_bytes") == 0;
            assert_true(json_is_number(value) || untold);
        }
        assert_int_equal(run_number(record, "step"), i + 1);
        assert_true(run_number(record, "peak_device_bytes") ==
                    run_number(record, "predicted_device_bytes"));
        assert_true(run_number(record, "predicted_device_bytes") > 0);
        if (!json_is_null(json_object_get(record, "process_device_bytes")))
            assert_true(run_number(record, "process_device_bytes") > 0);
        assert_true(run_number(record, "bytes_out") > 0 && run_number(record, "bytes_in") > 0);
        assert_true(run_number(record, "num_tokens") > tokens);
        tokens = run_number(record, "num_tokens");
        double wanted = ebb_schedule_rate(&run.request.schedule, (int64_t)i + 1, STEPS);
        assert_true(run_number(record, "learning_rate") == wanted);
        assert_true(fabs(run_number(record, "epoch") - (double)(i + 1) / 11) < 1e-12);
    }
    double first = run_number(run_record(metrics, 1, false), "loss");
    double last = run_number(run_record(metrics, STEPS, false), "loss");
    if (!(last < 0.5 * first)) fail_msg("loss went from %g to %g", first, last);
    assert_int_equal(run.result.steps, STEPS);
    assert_true(run.result.final_loss < first && run.result.final_loss > 0.5 * last);
    assert_true((double)run.result.tokens == tokens);
    assert_true(isnan(run.result.best_eval_loss) && !run.result.stopped_early);
    assert_true(run_has(run.dir, "model.safetensors") && run_has(run.dir, "config.json"));
    json_decref(metrics);
    run_close(&run);
}

/* Every step's numbers but times and what the process has. */
static void a_run_is_the_same_where_its_engine_was_measured(void **state)
{
    static const char *const keys[] = {"loss", "grad_norm", "bytes_out", "bytes_in",
                                       "peak_device_bytes"};
    enum { STEPS = 3 };
    json_t *metrics[2];
    struct run run;
    for (int i = 0; i < 2; i++) {
        char dir[700];
        const struct run_options o = {.offload = true, .lora_dropout = 0.1, .measure = i == 1};
        run_open(&run, &o, run_path((const char *)*state, i ? "measured" : "not", dir), NULL);
        run.request.max_steps = STEPS;
        run_must(&run);
        metrics[i] = run_metrics(run.ctx, run.dir);
        run_close(&run);
    }
    for (int64_t s = 1; s <= STEPS; s++)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            double a = run_number(run_record(metrics[0], s, false), keys[k]),
                   b = run_number(run_record(metrics[1], s, false), keys[k]);
            if (a != b)
                fail_msg("step %lld: %s is %.17g, measured %.17g", (long long)s, keys[k], a, b);
        }
    json_decref(metrics[0]);
    json_decref(metrics[1]);
}

static void run_json_says_what_ran_and_how_it_ended(void **state)
{
    struct run run;
    struct run_options o = {.lora = true};
    char path[700];
    json_t *json;
    run_open(&run, &o, (const char *)*state, NULL);
    json_t *given = json_pack("{s:{s:s}}", "config", "learning_rate", "0.01");
    run.request.run = given;
    run_must(&run);
    run_ok(run.ctx, ebb_json_load(run.ctx, run_path(run.dir, "run.json", path), &json), path);
    assert_string_equal(json_string_value(
                            json_object_get(json_object_get(json, "config"), "learning_rate")),
                        "0.01");
    const struct ebb_plan *plan = ebb_engine_plan(run.request.engine);
    json_t *told = json_object_get(json, "plan"), *policies = json_object_get(told, "policies");
    assert_int_equal(json_integer_value(json_object_get(told, "device_bytes")), plan->device_bytes);
    assert_int_equal(json_integer_value(
                         json_object_get(json_array_get(policies, 0), "first_layer")),
                     0);
    assert_non_null(json_object_get(json_array_get(policies, 0), "x"));
    int64_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(told, "bytes_by_kind"), key, value) sum +=
        json_integer_value(value);
    assert_int_equal(sum, plan->device_bytes);
    assert_int_equal(json_integer_value(
                         json_object_get(json_object_get(json, "numerics"), "threads")),
                     1);
    assert_true(
        json_integer_value(json_object_get(json_object_get(json, "machine"), "processors")) > 0);
    assert_true(strlen(json_string_value(
                    json_object_get(json_object_get(json, "versions"), "matmul"))) > 0);
    json_t *session = json_array_get(json_object_get(json, "sessions"), 0);
    assert_string_equal(json_string_value(json_object_get(session, "status")), "ok");
    assert_int_equal(json_integer_value(json_object_get(session, "exit_code")), 0);
    assert_int_equal(json_integer_value(json_object_get(session, "last_step")), 6);
    assert_non_null(json_object_get(session, "ended"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "result"), "steps")),
                     6);
    json_decref(json);
    json_decref(given);
    run_close(&run);
}

/* Loss of each step when the same samples come in micro-batches of another size. */
static void losses(const char *dir, const char *name, int64_t batch, int64_t accumulation,
                   double *loss, double *norm, int64_t steps)
{
    struct run run;
    struct run_options o = {.batch = batch};
    char path[700];
    run_open(&run, &o, run_path(dir, name, path), NULL);
    run.request.max_steps = 0;
    run.request.epochs = 2;
    run.request.accumulation = accumulation;
    run_must(&run);
    assert_int_equal(run.result.steps, steps);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    for (int64_t s = 0; s < steps; s++) {
        loss[s] = run_number(run_record(metrics, s + 1, false), "loss");
        norm[s] = run_number(run_record(metrics, s + 1, false), "grad_norm");
    }
    assert_true(run_number(run_record(metrics, steps, false), "epoch") == 2);
    json_decref(metrics);
    run_close(&run);
}

/* 22 samples: steps of 4, 4, 4, 4, 4 and 2, whether a step is one micro-batch, two or four; the
 * last has fewer. */
static void accumulation_changes_nothing_but_rounding(void **state)
{
    enum { STEPS = 12 };
    double a[STEPS], b[STEPS], c[STEPS], na[STEPS], nb[STEPS], nc[STEPS];
    losses((const char *)*state, "a", 4, 1, a, na, STEPS);
    losses((const char *)*state, "b", 2, 2, b, nb, STEPS);
    losses((const char *)*state, "c", 1, 4, c, nc, STEPS);
    for (int s = 0; s < STEPS; s++) {
        if (fabs(a[s] - b[s]) > 1e-4 * a[s] || fabs(a[s] - c[s]) > 1e-4 * a[s])
            fail_msg("step %d: loss %.9g, %.9g, %.9g", s + 1, a[s], b[s], c[s]);
        if (fabs(na[s] - nb[s]) > 1e-3 * na[s] || fabs(na[s] - nc[s]) > 1e-3 * na[s])
            fail_msg("step %d: norm %.9g, %.9g, %.9g", s + 1, na[s], nb[s], nc[s]);
    }
}

static void broken_epochs_are_rounded_up_to_a_step(void **state)
{
    struct run run;
    struct run_options o = {0};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = 0;
    run.request.epochs = 0.5; /* of 11 steps */
    run_must(&run);
    assert_int_equal(run.result.steps, 6);
    run_close(&run);
}

static void evaluation_is_recorded_and_restores_training(void **state)
{
    struct run run, plain;
    struct run_options o = {0};
    char a[700], b[700];
    run_open(&run, &o, run_path((const char *)*state, "a", a), NULL);
    run.request.eval_strategy = EBB_WHEN_STEPS;
    run.request.eval_steps = 4;
    run.request.max_steps = 14;
    run_must(&run);
    run_open(&plain, &o, run_path((const char *)*state, "b", b), NULL);
    plain.request.max_steps = 14;
    run_must(&plain);
    json_t *with = run_metrics(run.ctx, a), *without = run_metrics(run.ctx, b);
    assert_int_equal(json_array_size(with), 14 + 4);
    assert_int_equal(json_array_size(without), 14);
    for (int64_t s = 1; s <= 14; s++) {
        const json_t *eval = run_record(with, s, true);
        assert_true((eval != NULL) == (s % 4 == 0 || s == 14));
        if (eval)
            assert_true(run_number(eval, "eval_loss") > 0 &&
                        run_number(eval, "eval_mean_token_accuracy") >= 0);
        double a_loss = run_number(run_record(with, s, false), "loss");
        assert_true(a_loss == run_number(run_record(without, s, false), "loss"));
    }
    double best = INFINITY;
    for (int64_t s = 1; s <= 14; s++)
        if (run_record(with, s, true))
            best = fmin(best, run_number(run_record(with, s, true), "eval_loss"));
    assert_true(run.result.best_eval_loss == best);
    /* By hand: the engine still holds the last step's weights. */
    struct ebb_eval_result again;
    run_ok(run.ctx, ebb_evaluate(run.ctx, run.request.engine, run.request.eval, NULL, -1, &again),
           "evaluate");
    assert_true(again.loss == run_number(run_record(with, 14, true), "eval_loss"));
    assert_int_equal(again.labels, ebb_loader_describe(run.request.eval)->labels);
    assert_int_equal(again.tokens, ebb_loader_describe(run.request.eval)->tokens);
    json_decref(with);
    json_decref(without);
    run_close(&plain);
    run_close(&run);
}

/* Both parts of the loss are recorded, of training and of evaluation, and make it up. */
static void distillation_records_the_parts_of_its_loss(void **state)
{
    struct run run;
    struct run_options o = {.lora = true, .teacher = "qwen3"};
    o.distill = (struct ebb_distill_keys){.divergence = EBB_JSD,
                                          .beta = 0.5,
                                          .kd_ratio = 0.25,
                                          .temperature = 1};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.eval_strategy = EBB_WHEN_STEPS;
    run.request.eval_steps = 2;
    run.request.max_steps = 30;
    run_must(&run);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    for (int64_t s = 1; s <= 30; s++) {
        const json_t *step = run_record(metrics, s, false), *eval = run_record(metrics, s, true);
        double loss = run_number(step, "loss"), ce = run_number(step, "ce_loss"),
               kd = run_number(step, "kd_loss");
        assert_true(fabs(loss - 0.75 * ce - 0.25 * kd) <= 1e-6 * loss && ce > 0 && kd > 0);
        assert_true((eval != NULL) == (s % 2 == 0));
        if (eval == NULL) continue;
        loss = run_number(eval, "eval_loss");
        ce = run_number(eval, "eval_ce_loss");
        kd = run_number(eval, "eval_kd_loss");
        assert_true(fabs(loss - 0.75 * ce - 0.25 * kd) <= 1e-6 * loss && ce > 0 && kd > 0);
        assert_true(fabs(run_number(eval, "eval_perplexity") - exp(ce)) <= 1e-9 * exp(ce));
    }
    assert_true(run_number(run_record(metrics, 30, true), "eval_loss") <
                run_number(run_record(metrics, 2, true), "eval_loss"));
    json_decref(metrics);
    run_close(&run);
}

/* Nothing of a teacher where there is none. */
static void training_without_a_teacher_records_no_parts(void **state)
{
    struct run run;
    struct run_options o = {.lora = true};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.eval_strategy = EBB_WHEN_STEPS;
    run.request.eval_steps = 1;
    run.request.max_steps = 1;
    run_must(&run);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    assert_null(json_object_get(run_record(metrics, 1, false), "kd_loss"));
    assert_null(json_object_get(run_record(metrics, 1, true), "eval_ce_loss"));
    json_decref(metrics);
    run_close(&run);
}

static void epochs_evaluate_and_save_at_their_ends(void **state)
{
    struct run run;
    struct run_options o = {.lora = true};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = 0;
    run.request.epochs = 2;
    run.request.accumulation = 4; /* 11 micro-batches: 3 steps */
    run.request.eval_strategy = run.request.save_strategy = EBB_WHEN_EPOCH;
    run_must(&run);
    assert_int_equal(run.result.steps, 6);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    for (int64_t s = 1; s <= 6; s++)
        assert_true((run_record(metrics, s, true) != NULL) == (s % 3 == 0));
    assert_true(run_has(run.dir, "checkpoint-3/adapter_model.safetensors"));
    assert_true(run_has(run.dir, "checkpoint-6/adapter_config.json") &&
                !run_has(run.dir, "checkpoint-5"));
    assert_true(run_has(run.dir, "adapter_model.safetensors") &&
                run_has(run.dir, "adapter_config.json"));
    assert_false(run_has(run.dir, "model.safetensors"));
    json_decref(metrics);
    run_close(&run);
}

/* A rate that is far too high: the loss gets worse after the first evaluation or so. */
static void ask_for_divergence(struct run *run)
{
    run->request.schedule.schedule = EBB_SCHEDULE_CONSTANT;
    run->request.schedule.warmup_steps = 0;
    run->request.schedule.learning_rate = 0.01;
    run->request.eval_strategy = EBB_WHEN_STEPS;
    run->request.eval_steps = 1;
    run->request.max_steps = 60;
    run->request.early_stopping_patience = 2;
    run->request.early_stopping_threshold = 1e-3;
}

static void early_stopping_ends_the_run_and_the_best_model_is_kept(void **state)
{
    struct run run;
    struct run_options o = {.lora = true};
    char a[700], b[700];
    run_open(&run, &o, (const char *)*state, NULL);
    ask_for_divergence(&run);
    run.request.schedule.learning_rate = 1.0;
    run.request.load_best_at_end = true;
    run.request.save_strategy = EBB_WHEN_STEPS;
    run.request.save_steps = 3;
    run.request.save_total_limit = 2;
    run_must(&run);
    assert_true(run.result.stopped_early);
    assert_true(run.result.steps < 60);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    int64_t best = 0, worse = 0, checkpoints = 0;
    double best_loss = INFINITY;
    for (int64_t s = 1; s <= run.result.steps; s++) {
        double loss = run_number(run_record(metrics, s, true), "eval_loss");
        worse = loss < best_loss - 1e-3 ? 0 : worse + 1;
        assert_true((worse == 2) == (s == run.result.steps));
        if (loss < best_loss) best = s;
        best_loss = fmin(best_loss, loss);
    }
    assert_true(run.result.best_eval_loss == best_loss);
    /* The best and the last are kept, and the result is the best. */
    char **names, name[64];
    size_t count;
    run_ok(run.ctx, ebb_dir_list(run.ctx, run.dir, &names, &count), "list");
    for (size_t i = 0; i < count; i++) checkpoints += ebb_checkpoint_step(names[i]) >= 0;
    ebb_dir_list_free(run.ctx, names, count);
    assert_int_equal(checkpoints, 2);
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)run.result.steps);
    assert_true(run_has(run.dir, name));
    snprintf(name, sizeof name, "checkpoint-%lld/adapter_model.safetensors", (long long)best);
    assert_true(run_has(run.dir, name));
    uint64_t x, y;
    run_ok(run.ctx, ebb_file_hash(run.ctx, run_path(run.dir, name, a), NULL, &x), a);
    run_ok(run.ctx,
           ebb_file_hash(run.ctx, run_path(run.dir, "adapter_model.safetensors", b), NULL, &y), b);
    assert_true(x == y);
    struct ebb_eval_result again;
    run_ok(run.ctx, ebb_evaluate(run.ctx, run.request.engine, run.request.eval, NULL, -1, &again),
           "evaluate");
    assert_true(again.loss == best_loss);
    json_decref(metrics);
    run_close(&run);
}

static void save_total_limit_removes_the_oldest(void **state)
{
    struct run run;
    struct run_options o = {.lora = true};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.save_strategy = EBB_WHEN_STEPS;
    run.request.save_steps = 2;
    run.request.save_total_limit = 2;
    run.request.max_steps = 9;
    run_must(&run);
    for (int s = 1; s <= 9; s++) {
        char name[64];
        snprintf(name, sizeof name, "checkpoint-%d", s);
        assert_true(run_has(run.dir, name) == (s == 8 || s == 9));
    }
    run_close(&run);
}

/* The embedding row of an id that one sample holds is not finite: only that sample's steps are
 * hurt. */
static void a_step_that_is_not_finite_changes_nothing(void **state)
{
    enum { ID = 2 };
    struct run run;
    struct run_options o = {.model = "llama2", .rare_id = ID, .batch = 1};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = 22; /* an epoch */
    const struct ebb_engine *engine = run.request.engine;
    const struct ebb_weight_list *weights = ebb_engine_weights(engine);
    for (int64_t i = 0; i < weights->count; i++) {
        if (weights->items[i].field != EBB_FIELD_EMBED) continue;
        struct ebb_view view = ebb_decoder_weight(ebb_engine_net(engine), i);
        kit_spoil(engine, &view, ID, view.cols);
    }
    run_must(&run);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    int64_t hurt = 0;
    for (int64_t s = 1; s <= 22; s++) {
        const json_t *record = run_record(metrics, s, false);
        if (!json_object_get(record, "skipped")) {
            assert_true(isfinite(run_number(record, "loss")) &&
                        isfinite(run_number(record, "grad_norm")));
            continue;
        }
        assert_true(json_is_null(json_object_get(record, "grad_norm")));
        hurt = s;
    }
    assert_int_equal(run.result.skipped_steps, 1);
    char text[64];
    snprintf(text, sizeof text, "step %lld: the gradients are not finite", (long long)hurt);
    if (hurt == 0 || !strstr(run.log, text))
        fail_msg("step %lld, log: %s", (long long)hurt, run.log);
    assert_true(isfinite(run.result.final_loss));
    json_decref(metrics);
    run_close(&run);
}

static void ten_steps_in_a_row_that_are_not_finite_end_the_run(void **state)
{
    struct run run;
    struct run_options o = {0};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = 30;
    const struct ebb_param *param = &ebb_engine_net(run.request.engine)->params[0];
    for (int64_t row = 0; row < param->w.rows; row++)
        kit_spoil(run.request.engine, &param->w, row, param->w.cols);
    expect_failure(&run, EBB_FAILED, "10 steps in a row were not finite, the last of them step 10");
    json_t *metrics = run_metrics(run.ctx, run.dir);
    assert_int_equal(json_array_size(metrics), 10);
    assert_false(run_has(run.dir, "model.safetensors"));
    json_decref(metrics);
    run_close(&run);
}

static void a_step_without_labels_is_null_and_changes_nothing(void **state)
{
    struct run run;
    struct run_options o = {.unlabelled = true, .batch = 1};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = 22;
    run_must(&run);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    int64_t empty = 0;
    double tokens = 0;
    for (int64_t s = 1; s <= 22; s++) {
        const json_t *record = run_record(metrics, s, false);
        bool none = json_is_null(json_object_get(record, "loss"));
        assert_true(none == json_is_null(json_object_get(record, "grad_norm")));
        assert_true(none == json_is_null(json_object_get(record, "mean_token_accuracy")));
        assert_null(json_object_get(record, "skipped"));
        assert_true(run_number(record, "num_tokens") > tokens);
        tokens = run_number(record, "num_tokens");
        empty += none;
    }
    assert_int_equal(empty, 11);
    const char *said = strstr(run.log, "no token that is trained");
    assert_non_null(said);
    assert_null(strstr(said + 1, "no token that is trained"));
    json_decref(metrics);
    run_close(&run);
}

/* Every allocation fails in its turn; files of the runs before lie in the way. */
static void running_out_of_memory_leaves_nothing_half_written(void **state)
{
    struct run run;
    struct run_options o = {.lora = true};
    int good = 0;
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.save_strategy = run.request.eval_strategy = EBB_WHEN_STEPS;
    run.request.save_steps = run.request.eval_steps = 2;
    run.request.max_steps = 2;
    run_must(&run); /* what is made once is made */
    int64_t before = ebb_mem_bytes_now(run.ctx), failures = 0;
    for (int64_t nth = 1; good < 3; nth += 3) {
        char **names;
        size_t count;
        ebb_mem_fail_nth(run.ctx, nth, false);
        enum ebb_status status = run_go(&run);
        ebb_mem_fail_nth(run.ctx, 0, false);
        if (status != EBB_OK && status != EBB_NO_MEMORY)
            fail_msg("allocation %lld: %s: %s", (long long)nth, ebb_status_name(status),
                     ebb_error_text(run.ctx));
        good = status == EBB_OK ? good + 1 : 0;
        failures += status != EBB_OK;
        ebb_error_clear(run.ctx);
        assert_int_equal(ebb_mem_bytes_now(run.ctx), before);
        run_ok(run.ctx, ebb_dir_list(run.ctx, run.dir, &names, &count), "list");
        for (size_t i = 0; i < count; i++)
            if (names[i][0] == '.')
                fail_msg("allocation %lld: %s was left behind", (long long)nth, names[i]);
        ebb_dir_list_free(run.ctx, names, count);
    }
    assert_true(failures > 20);
    run_close(&run);
}

static void bad_requests_are_refused(void **state)
{
    struct run run;
    struct run_options o = {0};
    run_open(&run, &o, (const char *)*state, NULL);
    struct ebb_trainer_request good = run.request;
    run.request.accumulation = 0;
    expect_failure(&run, EBB_BAD_CONFIG, "gradient_accumulation_steps is 0");
    ebb_error_clear(run.ctx);
    run.request = good;
    run.request.load_best_at_end = true;
    expect_failure(&run, EBB_BAD_CONFIG, "load_best_model_at_end needs a validation set");
    ebb_error_clear(run.ctx);
    run.request = good;
    run.request.max_steps = 0;
    expect_failure(&run, EBB_BAD_CONFIG, "num_train_epochs is 0");
    ebb_error_clear(run.ctx);
    run.request = good;
    run.request.world = 2;
    expect_failure(&run, EBB_UNSUPPORTED, "rank 0 of 2");
    ebb_error_clear(run.ctx);
    run.request = good;
    run.request.save_strategy = EBB_WHEN_STEPS;
    expect_failure(&run, EBB_BAD_CONFIG, "save_steps is 0");
    run_close(&run);
}

/* ---- older checkpoints ----------------------------------------------------------------------- */

static void train_from(const char *out, const char *from)
{
    struct run run;
    struct run_options o = {0};
    run_open(&run, &o, out, from);
    run.request.max_steps = 4;
    run.request.save_strategy = EBB_WHEN_STEPS;
    run.request.save_steps = 2;
    run_must(&run);
    run_close(&run);
}

static void a_checkpoint_whose_state_has_its_older_name_is_gone_on_from(void **state)
{
    char straight[700], resumed[700], from[700], old[800], new[800];
    struct ebb_ctx *ctx = ebb_ctx_create();
    json_t *manifest;
    int64_t bytes[2];
    uint64_t hash[2];
    train_from(run_path((const char *)*state, "straight", straight), NULL);
    run_path(straight, "checkpoint-2", from);
    snprintf(new, sizeof new, "%s/training_state.ebb", from);
    snprintf(old, sizeof old, "%s/training_state.safetensors", from);
    assert_int_equal(rename(new, old), 0);
    snprintf(new, sizeof new, "%s/manifest.json", from);
    run_ok(ctx, ebb_json_load(ctx, new, &manifest), new);
    json_t *files = json_object_get(manifest, "files");
    json_object_set(files, "training_state.safetensors",
                    json_object_get(files, "training_state.ebb"));
    json_object_del(files, "training_state.ebb");
    run_ok(ctx, ebb_json_save(ctx, new, manifest), new);
    json_decref(manifest);
    train_from(run_path((const char *)*state, "resumed", resumed), from);
    run_ok(ctx, ebb_file_hash(ctx, run_path(straight, "model.safetensors", old), bytes, hash),
           "straight");
    run_ok(ctx,
           ebb_file_hash(ctx, run_path(resumed, "model.safetensors", new), bytes + 1, hash + 1),
           "resumed");
    assert_true(bytes[0] == bytes[1] && hash[0] == hash[1]);
    ebb_ctx_free(ctx);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, train_dir_open, train_dir_close)
    const struct CMUnitTest tests[] = {
        CASE(loss_falls_and_metrics_are_complete),
        CASE(a_run_is_the_same_where_its_engine_was_measured),
        CASE(run_json_says_what_ran_and_how_it_ended),
        CASE(accumulation_changes_nothing_but_rounding),
        CASE(broken_epochs_are_rounded_up_to_a_step),
        CASE(evaluation_is_recorded_and_restores_training),
        CASE(distillation_records_the_parts_of_its_loss),
        CASE(training_without_a_teacher_records_no_parts),
        CASE(epochs_evaluate_and_save_at_their_ends),
        CASE(early_stopping_ends_the_run_and_the_best_model_is_kept),
        CASE(save_total_limit_removes_the_oldest),
        CASE(a_step_that_is_not_finite_changes_nothing),
        CASE(ten_steps_in_a_row_that_are_not_finite_end_the_run),
        CASE(a_step_without_labels_is_null_and_changes_nothing),
        CASE(running_out_of_memory_leaves_nothing_half_written),
        CASE(bad_requests_are_refused),
        CASE(a_checkpoint_whose_state_has_its_older_name_is_gone_on_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
