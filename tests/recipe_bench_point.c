/* A measured point: rows of the length, the sizes that it tells, and what modes keep between
 * forward and backward, by formulas of the model's slots. SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/init.h"
#include "recipe/bench_point.h"

enum { WIDTH = 64, FFN = 192, HEADS = 2, KV_HEADS = 1, HEAD = 32, LAYERS = 3, TOKENS = 128 };

static const char model_text[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64, "
    "\"intermediate_size\": 192, \"num_hidden_layers\": 3, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"vocab_size\": 264, \"max_position_embeddings\": 512, "
    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"float32\"}";

struct fixture {
    struct ebb_ctx *ctx;
    char *dir, *model, *blank, *data;
    struct ebb_results_point point; /* of the last measure */
};

static void ignore_log(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

static void ok(struct ebb_ctx *ctx, enum ebb_status status)
{
    if (status != EBB_OK) fail_msg("%s (%s)", ebb_error_text(ctx), ebb_error_where(ctx));
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct ebb_str text = {0};
    f->ctx = ebb_ctx_create();
    ebb_ctx_set_log(f->ctx, ignore_log, NULL);
    ok(f->ctx, ebb_dir_create_temp(f->ctx, &f->dir));
    f->model = ebb_path_join(f->ctx, f->dir, "model");
    f->blank = ebb_path_join(f->ctx, f->dir, "blank");
    f->data = ebb_path_join(f->ctx, f->dir, "data.jsonl");
    char *shape = ebb_path_join(f->ctx, f->blank, "config.json");
    ok(f->ctx, ebb_dir_create(f->ctx, f->blank));
    ok(f->ctx, ebb_file_write(f->ctx, shape, model_text, strlen(model_text)));
    ok(f->ctx, ebb_model_init(f->ctx, shape, "bytes", f->model, EBB_F32, 1));
    for (int i = 0; i < 3; i++)
        ok(f->ctx, ebb_str_addf(f->ctx, &text,
                                "{\"prompt\": \"q%d\", \"completion\": \"answer %d\"}\n", i, i));
    ok(f->ctx, ebb_file_write(f->ctx, f->data, text.data, text.bytes));
    ebb_str_free(f->ctx, &text);
    ebb_mem_free(f->ctx, shape);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    ok(f->ctx, ebb_dir_remove(f->ctx, f->dir));
    char *texts[] = {f->dir, f->model, f->blank, f->data};
    for (int i = 0; i < 4; i++) ebb_mem_free(f->ctx, texts[i]);
    int64_t left = ebb_mem_bytes_now(f->ctx);
    ebb_ctx_free(f->ctx);
    free(f);
    return left == 0 ? 0 : -1;
}

/* Measures one point of a configuration in YAML. */
static enum ebb_status measure(struct fixture *f, const char *model, const char *text,
                               const char *mode, int64_t length)
{
    struct ebb_config config;
    struct ebb_options *options;
    const struct ebb_recipe_env env = {.stop_fd = -1};
    const struct ebb_bench_job job = {model, {(char *)mode, 0}, length};
    for (int i = 0; i < EBB_RESULTS_FIELDS; i++) f->point.values[i] = NAN;
    ok(f->ctx, ebb_options_create(f->ctx, EBB_COMMAND_BENCH, &config, &options));
    ok(f->ctx, ebb_options_text(options, "conf.yaml", text));
    ok(f->ctx, ebb_options_set(options, "sweep", "length=64"));
    ok(f->ctx, ebb_options_set(options, "device", "cpu"));
    ok(f->ctx, ebb_options_set(options, "threads", "1"));
    ok(f->ctx, ebb_options_set(options, "memory_budget", "64MiB"));
    ok(f->ctx, ebb_options_set(options, "steps", "2"));
    enum ebb_status status = ebb_bench_point(f->ctx, options, &config, &env, &job, &f->point);
    ebb_options_free(options);
    return status;
}

static double value(const struct fixture *f, enum ebb_results_field field)
{
    assert_true(isfinite(f->point.values[field]));
    return f->point.values[field];
}

static double rounded(double bytes)
{
    return 256 * ceil(bytes / 256);
}

/* Bytes of a layer's slots for TOKENS tokens in float32, each laid out at 256 bytes. */
static double x_bytes(void)
{
    return rounded(4.0 * TOKENS * WIDTH);
}

/* With the low-rank inputs of o_proj (`rank` columns) and of gate and up (twice as many). */
static double rest_bytes(int rank)
{
    return rounded(4.0 * TOKENS * (HEADS + 2 * KV_HEADS) * HEAD) + /* qkv */
           rounded(4.0 * TOKENS * (HEADS * HEAD + rank)) +         /* o */
           rounded(4.0 * TOKENS * HEADS) +                         /* log-sum-exp */
           rounded(4.0 * TOKENS * WIDTH) +                         /* x2 */
           rounded(4.0 * TOKENS * (2 * FFN + 2 * rank));           /* gate_up */
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void memory_is_as_predicted_in_every_mode(void **state)
{
    struct fixture *f = *state;
    static const char *const modes[] = {"none",       "offload",
                                        "checkpoint", "checkpoint+offload",
                                        "plan",       "activations={x: host, o: keep}"};
    double loss = 0;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        ok(f->ctx, measure(f, f->model, "lora_r: 4\nuse_peft: true\n", modes[i], TOKENS));
        assert_true(value(f, EBB_RESULTS_LENGTH) == TOKENS);
        assert_true(value(f, EBB_RESULTS_PEAK) == value(f, EBB_RESULTS_PREDICTED_PEAK));
        assert_true(value(f, EBB_RESULTS_HOST) == value(f, EBB_RESULTS_PREDICTED_HOST));
        assert_true(value(f, EBB_RESULTS_RESIDENT) <= value(f, EBB_RESULTS_PEAK));
        assert_true(value(f, EBB_RESULTS_EVAL_PEAK) <= value(f, EBB_RESULTS_PEAK));
        assert_true(value(f, EBB_RESULTS_SPEED) > 0);
        assert_true(fabs(value(f, EBB_RESULTS_SPEED) * value(f, EBB_RESULTS_SECONDS) - TOKENS) <
                    1e-6);
        assert_true(isnan(f->point.values[EBB_RESULTS_PROCESS])); /* a CPU has no driver */
        /* The same numbers whatever the mode. */
        if (i > 0) assert_true(value(f, EBB_RESULTS_LOSS) == loss);
        loss = value(f, EBB_RESULTS_LOSS);
    }
}

static double resident(struct fixture *f, const char *text, const char *mode)
{
    ok(f->ctx, measure(f, f->model, text, mode, TOKENS));
    return value(f, EBB_RESULTS_RESIDENT);
}

static void what_stays_between_forward_and_backward_is_the_modes_slots(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *text;
        int rank;
    } cases[] = {{"use_peft: false\n", 0}, {"use_peft: true\nlora_r: 8\n", 8}};
    for (int i = 0; i < 2; i++) {
        const double kept = resident(f, cases[i].text, "none"),
                     inputs = resident(f, cases[i].text, "checkpoint"),
                     nothing = resident(f, cases[i].text, "checkpoint+offload"),
                     slots = LAYERS * rest_bytes(cases[i].rank);
        if (kept - inputs != slots)
            fail_msg("%g of the layers' slots, %g wanted", kept - inputs, slots);
        if (inputs - nothing != LAYERS * x_bytes())
            fail_msg("%g of the layers' inputs, %g wanted", inputs - nothing, LAYERS * x_bytes());
        assert_true(resident(f, cases[i].text, "offload") <= nothing);
    }
}

/* A step's moves, micro-batches added up. The first layer's input is the frozen embedding's rows,
 * which are in host memory already. */
static void moves_are_those_of_a_step(void **state)
{
    struct fixture *f = *state;
    static const char twice[] = "use_peft: true\ngradient_accumulation_steps: 2\n";
    ok(f->ctx, measure(f, f->model, "use_peft: true\n", "checkpoint+offload", TOKENS));
    assert_true(value(f, EBB_RESULTS_BYTES_OUT) == (LAYERS - 1) * x_bytes());
    double in = value(f, EBB_RESULTS_BYTES_IN);
    ok(f->ctx, measure(f, f->model, twice, "checkpoint+offload", TOKENS));
    assert_true(value(f, EBB_RESULTS_BYTES_OUT) == 2 * (LAYERS - 1) * x_bytes());
    assert_true(value(f, EBB_RESULTS_BYTES_IN) == 2 * in);
    assert_true(fabs(value(f, EBB_RESULTS_SPEED) * value(f, EBB_RESULTS_SECONDS) - 2 * TOKENS) <
                1e-6);
}

static void what_does_not_fit_says_what_it_needs(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(measure(f, f->model, "per_device_train_batch_size: 64\n", "none", 512),
                     EBB_DOES_NOT_FIT);
    assert_non_null(strstr(ebb_error_text(f->ctx), "of device memory, 64 MiB may be used"));
    ebb_error_clear(f->ctx);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The samples, end to end, and from the first one again: more tokens than there are. */
static void rows_are_the_samples_end_to_end(void **state)
{
    struct fixture *f = *state;
    struct ebb_config config;
    struct ebb_options *options;
    const struct ebb_recipe_env env = {.stop_fd = -1};
    const struct ebb_batch *batch;
    struct ebb_setup *setup = ebb_mem_alloc(f->ctx, sizeof *setup);
    ok(f->ctx, ebb_options_create(f->ctx, EBB_COMMAND_BENCH, &config, &options));
    ok(f->ctx, ebb_options_set(options, "model_name_or_path", f->model));
    ok(f->ctx, ebb_options_set(options, "dataset_name", f->data));
    ok(f->ctx, ebb_options_set(options, "device", "cpu"));
    ok(f->ctx, ebb_setup_model(f->ctx, options, &config, &env, setup));
    ok(f->ctx, ebb_setup_tokenizer(setup));
    ok(f->ctx, ebb_setup_data(setup));
    int32_t stream[100], count = 0;
    for (int64_t sample = 0; sample < setup->train_set->count; sample++)
        for (int64_t i = 0; i < ebb_dataset_length(setup->train_set, sample); i++)
            stream[count++] = ebb_dataset_ids(setup->train_set, sample)[i];
    ok(f->ctx, ebb_bench_rows(setup, 10));
    assert_int_equal(setup->train_set->count, 5);
    assert_true(count < 50);
    for (int32_t at = 0, row = 0; row < 5; row++) {
        ok(f->ctx, ebb_loader_next(f->ctx, setup->train, &batch));
        assert_int_equal(batch->tokens, 10);
        assert_int_equal(batch->docs, 1);
        assert_int_equal(batch->labels, 9);
        for (int i = 0; i < 10; i++, at++) assert_int_equal(batch->ids[i], stream[at % count]);
    }
    assert_int_equal(setup->request.capacity.tokens, 10);
    ebb_setup_free(setup);
    ebb_mem_free(f->ctx, setup);
    ebb_options_free(options);
}

static void data_and_random_ids_have_other_losses(void **state)
{
    struct fixture *f = *state;
    char text[512];
    snprintf(text, sizeof text, "dataset_name: %s\ndataset_cache: 'false'\n", f->data);
    ok(f->ctx, measure(f, f->model, text, "none", 64));
    double of_data = value(f, EBB_RESULTS_LOSS);
    ok(f->ctx, measure(f, f->model, "seed: 42\n", "none", 64));
    double of_ids = value(f, EBB_RESULTS_LOSS);
    snprintf(text, sizeof text, "dataset_name: %s\ndata: random\n", f->data);
    ok(f->ctx, measure(f, f->model, text, "none", 64));
    assert_true(value(f, EBB_RESULTS_LOSS) == of_ids);
    assert_true(of_data != of_ids);
}

/* ---- models and methods ---------------------------------------------------------------------- */

static void a_model_without_weights_gets_random_ones(void **state)
{
    struct fixture *f = *state;
    bool blank;
    ok(f->ctx, ebb_bench_is_blank(f->ctx, f->blank, &blank));
    assert_true(blank);
    ok(f->ctx, ebb_bench_is_blank(f->ctx, f->model, &blank));
    assert_false(blank);
    ok(f->ctx, measure(f, f->blank, "use_peft: true\n", "none", TOKENS));
    /* As a model that knows nothing: about the logarithm of the vocabulary. */
    assert_true(fabs(value(f, EBB_RESULTS_LOSS) - log(264)) < 0.2);
    double peak = value(f, EBB_RESULTS_PEAK);
    ok(f->ctx, measure(f, f->model, "use_peft: true\n", "none", TOKENS));
    assert_true(value(f, EBB_RESULTS_PEAK) == peak);
}

static void other_recipes_are_measured_too(void **state)
{
    struct fixture *f = *state;
    char text[512];
    snprintf(text, sizeof text, "recipe: kd\nteacher_model_name_or_path: %s\nuse_peft: true\n",
             f->model);
    ok(f->ctx, measure(f, f->model, text, "checkpoint", TOKENS));
    ok(f->ctx, measure(f, f->model, "recipe: dpo\nuse_peft: true\n", "offload", TOKENS));
    /* Nothing has been learned yet, to the first step's rounding: both sides are as likely. */
    assert_true(fabs(value(f, EBB_RESULTS_LOSS) - log(2)) < 0.05);
    /* A pair is two rows of the length. */
    assert_true(fabs(value(f, EBB_RESULTS_SPEED) * value(f, EBB_RESULTS_SECONDS) - 2 * TOKENS) <
                1e-6);
    static const char kto[] = "recipe: dpo\nloss_type: kto\nprecompute_ref_log_probs: true\n"
                              "use_peft: true\n";
    ok(f->ctx, measure(f, f->model, kto, "plan", TOKENS));
    assert_true(fabs(value(f, EBB_RESULTS_LOSS) - 0.5) < 0.05);
}

static void a_saved_teacher_cannot_be_measured(void **state)
{
    struct fixture *f = *state;
    char text[512];
    snprintf(text, sizeof text, "recipe: kd\nteacher_logits: %s\n", f->dir);
    assert_int_equal(measure(f, f->model, text, "none", TOKENS), EBB_UNSUPPORTED);
    assert_non_null(strstr(ebb_error_text(f->ctx), "teacher_logits belongs to the samples"));
    ebb_error_clear(f->ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_predicted_in_every_mode),
        cmocka_unit_test(what_stays_between_forward_and_backward_is_the_modes_slots),
        cmocka_unit_test(moves_are_those_of_a_step),
        cmocka_unit_test(what_does_not_fit_says_what_it_needs),
        cmocka_unit_test(rows_are_the_samples_end_to_end),
        cmocka_unit_test(data_and_random_ids_have_other_losses),
        cmocka_unit_test(a_model_without_weights_gets_random_ones),
        cmocka_unit_test(other_recipes_are_measured_too),
        cmocka_unit_test(a_saved_teacher_cannot_be_measured),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
