/* Samples in a training run: they change no number of it, are made when they are due, and once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_run.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "model/init.h"
#include "train/generate.h"

struct place {
    struct ebb_ctx *ctx; /* of model, tokenizer and prompts */
    char dir[64], model[80];
    struct ebb_tokenizer *tokenizer;
    struct ebb_samples samples;
};

/* A model of random weights with the byte tokenizer. */
static void place_open(struct place *p)
{
    static const char json[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
        "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 258, "
        "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
        "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"initializer_range\": 0.1, "
        "\"torch_dtype\": \"float32\"}";
    static const char *const prompts[] = {"what is 7?", "a rather longer prompt than this one was"};
    char config[80];
    memset(p, 0, sizeof *p);
    p->ctx = ebb_ctx_create();
    snprintf(p->dir, sizeof p->dir, "/tmp/ebb_samples_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->model, sizeof p->model, "%s/model", p->dir);
    snprintf(config, sizeof config, "%s/config.json", p->dir);
    run_ok(p->ctx, ebb_file_write(p->ctx, config, json, strlen(json)), "config");
    run_ok(p->ctx, ebb_model_init(p->ctx, config, EBB_TOKENIZER_BYTES, p->model, EBB_F32, 3),
           "init");
    run_ok(p->ctx, ebb_tokenizer_load(p->ctx, p->model, &p->tokenizer), "tokenizer");
    p->samples.tokenizer = p->tokenizer;
    p->samples.max_new_tokens = 12;
    for (size_t i = 0; i < 2; i++) {
        struct ebb_ids ids = {0};
        run_ok(p->ctx,
               ebb_tokenizer_encode(p->ctx, p->tokenizer, prompts[i], strlen(prompts[i]), 0, &ids),
               "encode");
        run_ok(p->ctx, ebb_samples_add(p->ctx, &p->samples, prompts[i], &ids, 256), "add");
        ebb_ids_free(p->ctx, &ids);
    }
}

static void place_close(struct place *p)
{
    ebb_samples_free(p->ctx, &p->samples);
    ebb_tokenizer_free(p->ctx, p->tokenizer);
    run_ok(p->ctx, ebb_dir_remove(p->ctx, p->dir), "remove");
    assert_int_equal(ebb_mem_bytes_now(p->ctx), 0);
    ebb_ctx_free(p->ctx);
}

/* A run of six steps into the place's folder `name`, with or without samples. */
static void open_run(struct run *run, const struct place *p, const struct run_options *base,
                     const char *name, bool samples, const char *resume)
{
    struct run_options o = *base;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/%s", p->dir, name);
    o.model_dir = p->model;
    if (samples) o.cache_tokens = ebb_samples_cache_tokens(&p->samples);
    run_open(run, &o, dir, resume);
    run->request.eval_strategy = run->request.save_strategy = EBB_WHEN_STEPS;
    run->request.eval_steps = 2;
    run->request.save_steps = 3;
    if (samples) run->request.samples = &p->samples;
}

static void assert_same_file(struct run *run, const char *a, const char *b, const char *name)
{
    char path[700];
    uint64_t hash_a, hash_b;
    run_ok(run->ctx, ebb_file_hash(run->ctx, run_path(a, name, path), NULL, &hash_a), path);
    run_ok(run->ctx, ebb_file_hash(run->ctx, run_path(b, name, path), NULL, &hash_b), path);
    if (hash_a != hash_b) fail_msg("'%s' differs in '%s' and '%s'", name, a, b);
}

static const json_t *samples_at(const json_t *metrics, int64_t step)
{
    const json_t *found = NULL;
    size_t i;
    json_t *record;
    json_array_foreach(metrics, i, record)
    {
        const json_t *list = json_object_get(record, "samples");
        if (list == NULL || json_integer_value(json_object_get(record, "step")) != step) continue;
        if (found) fail_msg("two records of samples at step %lld", (long long)step);
        found = list;
    }
    return found;
}

/* Everything but times, speeds and memory. */
static void assert_same_numbers(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"loss", "grad_norm", "learning_rate", "mean_token_accuracy",
                                       "num_tokens"};
    for (int64_t step = 1; step <= 6; step++) {
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            double x = run_number(run_record(a, step, false), keys[k]);
            double y = run_number(run_record(b, step, false), keys[k]);
            if (memcmp(&x, &y, sizeof x) != 0)
                fail_msg("%s of step %lld", keys[k], (long long)step);
        }
        if (step % 2 != 0) continue;
        double x = run_number(run_record(a, step, true), "eval_loss");
        double y = run_number(run_record(b, step, true), "eval_loss");
        assert_memory_equal(&x, &y, sizeof x);
    }
}

static void samples_change_no_number_of_a_run(void **state)
{
    static const struct run_options all[] = {{.lora = false},
                                             {.lora = true, .lora_dropout = 0.2},
                                             {.poison = true},
                                             {.bf16 = true, .offload = true}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct place p;
        struct run with, without;
        place_open(&p);
        open_run(&with, &p, &all[i], "with", true, NULL);
        run_must(&with);
        struct ebb_engine_usage usage = ebb_engine_usage(with.request.engine);
        assert_int_equal(usage.peak_device_bytes, usage.predicted_device_bytes);
        open_run(&without, &p, &all[i], "without", false, NULL);
        run_must(&without);
        json_t *a = run_metrics(with.ctx, with.dir), *b = run_metrics(with.ctx, without.dir);
        assert_same_numbers(a, b);
        for (int64_t step = 0; step <= 6; step++) {
            assert_true((samples_at(a, step) != NULL) == (step % 2 == 0));
            assert_null(samples_at(b, step));
        }
        json_decref(a);
        json_decref(b);
        assert_same_file(&with, with.dir, without.dir,
                         all[i].lora ? "adapter_model.safetensors" : "model.safetensors");
        assert_same_file(&with, with.dir, without.dir, "checkpoint-6/training_state.ebb");
        run_close(&with);
        run_close(&without);
        place_close(&p);
    }
}

struct said {
    char text[256];
    size_t bytes;
};

static void keep_text(void *user, const char *text, size_t bytes)
{
    struct said *said = (struct said *)user;
    assert_true(said->bytes + bytes <= sizeof said->text);
    memcpy(said->text + said->bytes, text, bytes);
    said->bytes += bytes;
}

/* What the result says when it is asked alone. */
static void the_last_samples_are_the_results_answers(void **state)
{
    struct place p;
    struct run run;
    struct run_options o = {.lora = false};
    (void)state;
    place_open(&p);
    open_run(&run, &p, &o, "run", true, NULL);
    run_must(&run);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    const json_t *list = samples_at(metrics, 6);
    assert_int_equal(json_array_size(list), p.samples.count);
    for (int64_t i = 0; i < p.samples.count; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        const struct ebb_sample_prompt *prompt = &p.samples.items[i];
        struct said alone = {.bytes = 0};
        struct ebb_generate_result result;
        struct ebb_generate_keys keys = {.max_new_tokens = 12, .top_p = 1, .repetition_penalty = 1};
        run_ok(run.ctx,
               ebb_generate_text(run.ctx, run.request.engine, p.tokenizer, prompt->ids.data,
                                 prompt->ids.count, &keys, keep_text, &alone, NULL, &result),
               "generate");
        assert_string_equal(json_string_value(json_object_get(one, "prompt")), prompt->text);
        const json_t *said = json_object_get(one, "text");
        assert_int_equal(json_string_length(said), alone.bytes);
        assert_memory_equal(json_string_value(said), alone.text, alone.bytes);
        assert_int_equal(json_integer_value(json_object_get(one, "num_tokens")), result.new_tokens);
        assert_true(json_is_true(json_object_get(one, "ended")) == result.ended);
    }
    json_decref(metrics);
    run_close(&run);
    place_close(&p);
}

static void a_resumed_run_has_the_same_samples_once(void **state)
{
    struct place p;
    struct run whole, resumed;
    struct run_options o = {.lora = true};
    char checkpoint[700];
    (void)state;
    place_open(&p);
    open_run(&whole, &p, &o, "whole", true, NULL);
    run_must(&whole);
    for (int step = 3; step <= 6; step += 3) {
        char name[16];
        snprintf(name, sizeof name, "from%d", step);
        snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-%d", whole.dir, step);
        open_run(&resumed, &p, &o, name, true, checkpoint);
        run_must(&resumed);
        json_t *a = run_metrics(whole.ctx, whole.dir), *b = run_metrics(whole.ctx, resumed.dir);
        assert_same_numbers(a, b);
        for (int64_t at = 0; at <= 6; at += 2)
            assert_true(json_equal(samples_at(a, at), samples_at(b, at)));
        json_decref(a);
        json_decref(b);
        assert_same_file(&whole, whole.dir, resumed.dir, "adapter_model.safetensors");
        run_close(&resumed);
    }
    run_close(&whole);
    place_close(&p);
}

static void without_evaluations_there_are_samples_at_both_ends(void **state)
{
    struct place p;
    struct run run;
    struct run_options o = {.lora = true};
    (void)state;
    place_open(&p);
    open_run(&run, &p, &o, "run", true, NULL);
    run.request.eval_strategy = EBB_WHEN_NO;
    run_must(&run);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    for (int64_t step = 0; step <= 6; step++)
        assert_true((samples_at(metrics, step) != NULL) == (step == 0 || step == 6));
    json_decref(metrics);
    run_close(&run);
    place_close(&p);
}

/* A signal that waits when the first samples are due: the run that goes on makes them. */
static void samples_that_a_signal_ends_are_owed(void **state)
{
    struct place p;
    struct run run, next;
    struct run_options o = {.lora = true};
    struct signalfd_siginfo info;
    char checkpoint[700];
    int pipes[2];
    (void)state;
    place_open(&p);
    open_run(&run, &p, &o, "run", true, NULL);
    memset(&info, 0, sizeof info);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(write(pipes[1], &info, sizeof info), sizeof info);
    run.request.stop_fd = pipes[0];
    assert_int_equal(run_go(&run), EBB_INTERRUPTED);
    json_t *metrics = run_metrics(run.ctx, run.dir);
    assert_null(samples_at(metrics, 0));
    json_decref(metrics);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-0", run.dir);
    open_run(&next, &p, &o, "next", true, checkpoint);
    run_must(&next);
    metrics = run_metrics(next.ctx, next.dir);
    assert_non_null(samples_at(metrics, 0));
    json_decref(metrics);
    close(pipes[0]);
    close(pipes[1]);
    run_close(&run);
    run_close(&next);
    place_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_change_no_number_of_a_run),
        cmocka_unit_test(the_last_samples_are_the_results_answers),
        cmocka_unit_test(a_resumed_run_has_the_same_samples_once),
        cmocka_unit_test(without_evaluations_there_are_samples_at_both_ends),
        cmocka_unit_test(samples_that_a_signal_ends_are_owed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
