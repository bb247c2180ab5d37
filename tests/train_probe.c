/* The probe: blank engines, profiles that are forgotten, and rates that tell how long other steps
 * take.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"

#include "plan/forecast.h"
#include "train/probe.h"

enum { WIDTH = 128, VOCAB = 512, TOKENS = 96 };

/* Small, and of the shape of what the probe trains. */
static const struct ebb_probe_model model = {
    .width = WIDTH, .ffn = 256, .heads = 2, .kv_heads = 1, .layers = 2, .vocab = VOCAB};
static const struct ebb_probe_model tied = {.width = WIDTH,
                                            .ffn = 256,
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .layers = 2,
                                            .vocab = VOCAB,
                                            .tied = true};
static const struct ebb_probe_job jobs[] = {
    {.model = &model, .tokens = 768, .lora = true, .moves = true},
    {.model = &model, .tokens = 128, .lora = true, .moves = true},
    {.model = &tied, .tokens = 768},
    {.model = &tied, .tokens = 128},
    /* A third size, which what the four above say has to tell. */
    {.model = &model, .tokens = 384, .lora = true, .moves = true, .held_out = true},
};
enum { JOBS = (int)(sizeof jobs / sizeof jobs[0]) };

struct log {
    int lines, warnings;
};

static void count_line(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    struct log *log = user;
    (void)text;
    log->lines += strcmp(topic, "probe") == 0;
    log->warnings += level <= EBB_LOG_WARNING;
}

static struct ebb_probe_request small_request(void)
{
    const struct ebb_probe_request request = {.backend = EBB_BACKEND_CPU,
                                              .storage = EBB_F32,
                                              .threads = 1,
                                              .jobs = jobs,
                                              .job_count = JOBS,
                                              .warm_seconds = 0.02,
                                              .count_seconds = 0.4};
    return request;
}

/* Every class that a run on the CPU has. */
static void expect_costs(const struct ebb_rates *rates)
{
    static const enum ebb_cost_class classes[] = {
        EBB_COST_PRODUCT,   EBB_COST_THIN,     EBB_COST_ATTENTION_FORWARD_64,
        EBB_COST_MEMORY,    EBB_COST_LOSS,     EBB_COST_ATTENTION_BACKWARD_64,
        EBB_COST_OPTIMIZER, EBB_COST_COPY_OUT, EBB_COST_COPY_IN,
        EBB_COST_HOST};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (!ebb_cost_known(&rates->costs[classes[i]]))
            fail_msg("no cost of '%s'", ebb_cost_key(classes[i]));
    assert_false(ebb_cost_known(&rates->costs[EBB_COST_ATTENTION_FORWARD_128]));
    for (int i = 0; i < EBB_COST_COUNT; i++)
        assert_true(rates->costs[i].call >= 0 && rates->costs[i].byte >= 0 &&
                    rates->costs[i].flop >= 0);
}

/* Others may be at work on the machine, and then it is tried again. The torture build's delays are
 * in no rate. */
static bool is_near(const struct ebb_probe_result *result)
{
#ifdef EBB_TORTURE
    return result->check_count == JOBS;
#else
    const double ratio = result->checks[JOBS - 1].forecast / result->checks[JOBS - 1].seconds;
    return ratio > 0.6 && ratio < 1.4;
#endif
}

static void rates_tell_how_long_a_step_of_another_size_takes(void **state)
{
    (void)state;
    struct log log = {0};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_probe_request request = small_request();
    struct ebb_probe_result *result = (struct ebb_probe_result *)malloc(sizeof *result);
    bool near = false;
    ebb_ctx_set_log(ctx, count_line, &log);
    for (int tries = 0; tries < 6 && !near; tries++) {
        kit_ok(ctx, ebb_probe_run(ctx, &request, result), "the probe");
        near = is_near(result);
    }
    assert_true(log.lines > 0 && log.warnings == 0);
    assert_int_equal(result->check_count, JOBS);
    assert_true(result->rates.measured && result->rates.storage == EBB_F32);
    expect_costs(&result->rates);
    for (int i = 0; i < JOBS; i++) {
        const struct ebb_probe_check *check = &result->checks[i];
        assert_true(check->steps >= 1 && check->seconds > 0 && check->forecast > 0);
        assert_int_equal(check->job.tokens, jobs[i].tokens);
    }
    if (!near)
        fail_msg("forecast %g s, measured %g s", result->checks[JOBS - 1].forecast,
                 result->checks[JOBS - 1].seconds);
    free(result);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
}

static void little_memory_means_fewer_tokens_and_none_is_an_error(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_probe_request request = small_request();
    struct ebb_probe_result *result = (struct ebb_probe_result *)malloc(sizeof *result);
    struct log log = {0};
    ebb_ctx_set_log(ctx, count_line, &log);
    request.job_count = 1;
    request.count_seconds = 0.01;
    request.device_bytes = 4 << 20;
    kit_ok(ctx, ebb_probe_run(ctx, &request, result), "the probe");
    assert_true(result->checks[0].job.tokens < jobs[0].tokens);
    request.device_bytes = 1 << 20;
    assert_int_equal(ebb_probe_run(ctx, &request, result), EBB_DOES_NOT_FIT);
    assert_non_null(strstr(ebb_error_text(ctx), "of device memory, 1"));
    free(result);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
}

/* ---- blank engines ---- */

struct blank {
    struct ebb_ctx *ctx;
    char *dir;
    struct ebb_engine *engine;
    struct ebb_adapter_config adapter;
};

static const char config_text[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 128, "
    "\"intermediate_size\": 256, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"vocab_size\": 512, \"max_position_embeddings\": 96, "
    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
    "\"tie_word_embeddings\": false}";

static void blank_open(struct blank *b, enum ebb_dtype storage, bool lora)
{
    char path[700];
    memset(b, 0, sizeof *b);
    b->ctx = ebb_ctx_create();
    kit_ok(b->ctx, ebb_dir_create_temp(b->ctx, &b->dir), "a folder");
    snprintf(path, sizeof path, "%s/config.json", b->dir);
    kit_ok(b->ctx, ebb_file_write(b->ctx, path, config_text, strlen(config_text)), path);
    b->adapter = (struct ebb_adapter_config){.rank = 4, .alpha = 8, .target_count = 1};
    b->adapter.targets[0] = ebb_mem_strdup(b->ctx, "q_proj");
    const struct ebb_engine_request request = {
        .model_dir = b->dir,
        .new_adapter = lora ? &b->adapter : NULL,
        .blank = true,
        .train = true,
        .storage = storage,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .capacity = {.tokens = TOKENS, .docs = 1, .doc_tokens = TOKENS},
        .streams = true,
        .threads = 1,
        .seed = 1};
    kit_ok(b->ctx, ebb_engine_create(b->ctx, &request, &b->engine), "an engine");
    kit_ok(b->ctx, ebb_engine_open(b->engine), "a blank engine");
}

static void blank_close(struct blank *b)
{
    ebb_engine_free(b->engine);
    ebb_adapter_config_clear(b->ctx, &b->adapter);
    kit_ok(b->ctx, ebb_dir_remove(b->ctx, b->dir), b->dir);
    ebb_mem_free(b->ctx, b->dir);
    assert_int_equal(ebb_mem_bytes_now(b->ctx), 0);
    ebb_ctx_free(b->ctx);
}

/* Matrices have the mean and the deviation of a model that is to be trained; norms are one. */
static void expect_parameter(const struct blank *b, const struct ebb_param *param)
{
    const int64_t count = param->w.rows * param->w.cols;
    float *value = (float *)malloc((size_t)count * sizeof *value);
    double sum = 0, squares = 0;
    kit_ok(b->ctx, ebb_engine_read_param(b->engine, param, value), param->name);
    for (int64_t i = 0; i < count; i++) {
        sum += (double)value[i];
        squares += (double)value[i] * (double)value[i];
    }
    double mean = sum / (double)count, deviation = sqrt(squares / (double)count - mean * mean);
    if (param->w.rows == 1) {
        if (mean != 1 || squares != (double)count) fail_msg("%s: mean %g", param->name, mean);
    } else if (fabs(mean) > 0.002 || fabs(deviation - 0.02) > 0.001) {
        fail_msg("%s: mean %g, deviation %g", param->name, mean, deviation);
    }
    free(value);
}

static double first_loss(struct blank *b)
{
    struct kit_batch batch;
    int32_t ids[TOKENS];
    uint8_t mask[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (int32_t)(i * 37 % VOCAB);
        mask[i] = 1;
    }
    kit_batch_begin(&batch);
    kit_batch_add(&batch, ids, mask, TOKENS);
    ebb_engine_begin(b->engine);
    kit_ok(b->ctx, ebb_engine_micro(b->engine, EBB_PROGRAM_TRAIN, &batch.batch, 1, 0), "a step");
    return ebb_engine_sums(b->engine).loss / (double)batch.batch.labels;
}

static void blank_engines_start_as_new_models_do(void **state)
{
    (void)state;
    static const enum ebb_dtype types[] = {EBB_F32, EBB_BF16};
    for (int i = 0; i < 2; i++) {
        struct blank b;
        blank_open(&b, types[i], false);
        const struct ebb_net *net = ebb_engine_net(b.engine);
        assert_true(net->param_count > 4);
        for (int32_t k = 0; k < net->param_count; k++) expect_parameter(&b, &net->params[k]);
        /* Nothing is known yet, so every token is about as likely. */
        assert_true(fabs(first_loss(&b) - log(VOCAB)) < 0.2);
        blank_close(&b);
    }
}

/* Without a file, a table that is not on the device lies in memory. */
static void a_table_that_is_not_on_the_device_is_random_too(void **state)
{
    (void)state;
    struct blank b;
    blank_open(&b, EBB_BF16, true);
    const int32_t rows = ebb_decoder_rows_tensor(ebb_engine_net(b.engine));
    assert_true(rows >= 0);
    assert_true(fabs(first_loss(&b) - log(VOCAB)) < 0.2);
    const uint16_t *row = (const uint16_t *)ebb_engine_tensor(b.engine, rows);
    double squares = 0;
    for (int i = 0; i < TOKENS * WIDTH; i++)
        squares += (double)ebb_from_bf16(row[i]) * (double)ebb_from_bf16(row[i]);
    assert_true(fabs(sqrt(squares / (TOKENS * WIDTH)) - 0.02) < 0.001);
    assert_memory_not_equal(row, row + WIDTH, WIDTH * sizeof *row);
    blank_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_tell_how_long_a_step_of_another_size_takes),
        cmocka_unit_test(little_memory_means_fewer_tokens_and_none_is_an_error),
        cmocka_unit_test(blank_engines_start_as_new_models_do),
        cmocka_unit_test(a_table_that_is_not_on_the_device_is_random_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
