/* Whole models against PyTorch, transformers and PEFT: loss, every gradient, and parameters
 * after ten steps of SGD and of AdamW. The golden files and what they hold:
 * tests/golden/models/README.md.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"

#include "model/safetensors.h"

struct golden {
    struct kit_case c;
    struct ebb_safetensors *expected;
    struct ebb_engine *engine;
};

struct tolerance {
    double abs, rel;
};

static struct tolerance tolerance_of(const struct golden *g, const char *kind)
{
    const json_t *t = json_object_get(json_object_get(g->c.json, "tolerance"), kind);
    struct tolerance tolerance = {json_number_value(json_object_get(t, "abs")),
                                  json_number_value(json_object_get(t, "rel"))};
    assert_non_null(t);
    return tolerance;
}

/* The golden tensor as fp32 [count]; the caller frees. */
static float *want(const struct golden *g, const char *prefix, const char *name, int64_t count)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const struct ebb_tensor_info *info = ebb_safetensors_find(g->expected, full);
    if (!info) fail_msg("no golden tensor %s", full);
    int64_t have = 1;
    for (int i = 0; i < info->dims; i++) have *= info->shape[i];
    if (have != count)
        fail_msg("%s has %lld values, not %lld", full, (long long)have, (long long)count);
    float *values = (float *)malloc((size_t)count * sizeof *values);
    ebb_tensor_copy(info, 1, count, values, EBB_F32, count);
    return values;
}

static void compare(const struct golden *g, const char *kind, const char *name, const float *got,
                    const float *wanted, int64_t count)
{
    struct tolerance t = tolerance_of(g, kind);
    double worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        double over =
            fabs((double)got[i] - (double)wanted[i]) / (t.abs + t.rel * fabs((double)wanted[i]));
        if (!(over <= worst)) {
            worst = over;
            at = i;
        }
    }
    if (!(worst <= 1))
        fail_msg("%s: %s %s[%lld]: got %.9g, want %.9g (%.2f of the tolerance)", g->c.dir, kind,
                 name, (long long)at, (double)got[at], (double)wanted[at], worst);
}

static void compare_scalar(const struct golden *g, const char *kind, const char *tensor,
                           int64_t step, double got)
{
    float *values = want(g, "", tensor, g->c.steps), one = (float)got;
    compare(g, kind, tensor, &one, &values[step], 1);
    free(values);
}

/* Calls for every trained tensor of the files: its golden name, its parameter, and the part of
 * it. */
static void each_trained(struct golden *g, const char *prefix, const char *kind, bool gradient,
                         double scale)
{
    const struct ebb_weight_list *weights = ebb_engine_weights(g->engine);
    int64_t compared = 0;
    for (int64_t i = 0; i < weights->count; i++)
        for (int which = 0; which < 3; which++) {
            const struct ebb_weight *w = &weights->items[i];
            int64_t at = 0;
            const struct ebb_param *p =
                which == 0
                    ? ebb_decoder_param(ebb_engine_net(g->engine), i, &at)
                    : ebb_decoder_adapter(ebb_engine_net(g->engine), i, which == 1 ? 'A' : 'B');
            if (!p) continue;
            int64_t all = p->w.rows * p->w.cols, count = which == 0 ? w->rows * w->cols : all;
            int64_t begin = which != 0 ? 0 : p->w.rows == 1 ? at : at * p->w.cols;
            char *name = which == 0 ? ebb_mem_strdup(g->c.ctx, w->name)
                                    : ebb_adapter_tensor_name(g->c.ctx, w, which == 1 ? 'A' : 'B');
            float *got = (float *)malloc((size_t)all * sizeof *got),
                  *wanted = want(g, prefix, name, count);
            if (gradient)
                ebb_engine_read_grad(g->engine, p, got);
            else
                ebb_engine_read_param(g->engine, p, got);
            for (int64_t k = 0; k < count; k++)
                got[begin + k] = (float)((double)got[begin + k] * scale);
            compare(g, kind, name, got + begin, wanted, count);
            compared++;
            free(got);
            free(wanted);
            ebb_mem_free(g->c.ctx, name);
        }
    assert_true(compared > 0);
}

static void open_golden(struct golden *g, const char *name, bool sgd)
{
    char path[600];
    struct ebb_numerics numerics = kit_numerics(EBB_F32);
    kit_case_open(&g->c, name);
    snprintf(path, sizeof path, "%s/expected.safetensors", g->c.dir);
    kit_ok(g->c.ctx, ebb_safetensors_open_file(g->c.ctx, path, &g->expected), path);
    struct ebb_engine_request request = kit_request(&g->c, &numerics);
    request.evaluate = request.decode = true;
    request.capacity.cache_tokens = KIT_TOKENS;
    request.optimizer.sgd = sgd;
    if (sgd) {
        request.optimizer.weight_decay = 0;
        request.max_grad_norm = 1;
    }
    g->engine = kit_engine(g->c.ctx, &request);
}

static void close_golden(struct golden *g)
{
    ebb_engine_free(g->engine);
    ebb_safetensors_close(g->c.ctx, g->expected);
    assert_int_equal(ebb_mem_bytes_now(g->c.ctx), 0);
    kit_case_close(&g->c);
}

/* Logits of the first document through the decode program: a few tokens, then one by one. */
static void check_logits(struct golden *g)
{
    const struct ebb_batch *batch = &g->c.batches[0][0]->batch;
    int64_t n = batch->doc_starts[1], vocab = ebb_engine_config(g->engine)->vocab;
    float *wanted = want(g, "", "logits", n * vocab);
    const float *logits;
    for (int64_t done = 0; done < n;) {
        int64_t count = done == 0 ? n / 2 + 1 : 1;
        kit_ok(g->c.ctx, ebb_engine_decode(g->engine, batch->ids + done, count, done, &logits),
               "decode");
        done += count;
        compare(g, "logits", "logits", logits, wanted + (done - 1) * vocab, vocab);
    }
    free(wanted);
}

static void check_adamw(const char *name)
{
    struct golden g;
    open_golden(&g, name, false);
    check_logits(&g);
    for (int64_t s = 0; s < g.c.steps; s++) {
        ebb_engine_begin(g.engine);
        for (int64_t m = 0; s == 0 && m < g.c.micros[s]; m++)
            kit_ok(g.c.ctx,
                   ebb_engine_micro(g.engine, EBB_PROGRAM_EVAL, &g.c.batches[s][m]->batch, 1,
                                    (uint32_t)m),
                   "evaluation");
        double evaluated = ebb_engine_sums(g.engine).loss / g.c.weight[s],
               loss = kit_backward(&g.c, g.engine, s);
        compare_scalar(&g, "loss", "loss", s, loss);
        if (s == 0) assert_true(memcmp(&evaluated, &loss, sizeof loss) == 0);
        if (s == 0) each_trained(&g, "grad.", "grad", true, 1 / g.c.weight[s]);
        kit_update(&g.c, g.engine, s, 1e-3);
        compare_scalar(&g, "grad_norm", "grad_norms", s, ebb_engine_sums(g.engine).grad_norm);
    }
    each_trained(&g, "adamw.", "adamw", false, 1);
    close_golden(&g);
}

static void check_sgd(const char *name)
{
    struct golden g;
    open_golden(&g, name, true);
    for (int64_t s = 0; s < g.c.steps; s++) {
        compare_scalar(&g, "loss", "sgd_loss", s, kit_backward(&g.c, g.engine, s));
        kit_update(&g.c, g.engine, s, 0.1);
        compare_scalar(&g, "grad_norm", "sgd_grad_norms", s, ebb_engine_sums(g.engine).grad_norm);
    }
    each_trained(&g, "sgd.", "sgd", false, 1);
    close_golden(&g);
}

static void golden_case(void **state)
{
    const char *name = (const char *)*state;
    check_adamw(name);
    check_sgd(name);
}

/* The case's adapter with other target_modules, in a directory of its own. */
static void write_adapter(struct kit_case *c, const char *dir, json_t *targets)
{
    char from[700], to[700];
    json_t *config;
    snprintf(from, sizeof from, "%s/adapter_model.safetensors", c->adapter_dir);
    snprintf(to, sizeof to, "%s/adapter_model.safetensors", dir);
    kit_ok(c->ctx, ebb_file_copy(c->ctx, from, to), to);
    snprintf(from, sizeof from, "%s/adapter_config.json", c->adapter_dir);
    snprintf(to, sizeof to, "%s/adapter_config.json", dir);
    kit_ok(c->ctx, ebb_json_load(c->ctx, from, &config), from);
    assert_int_equal(json_object_set_new(config, "target_modules", targets), 0);
    kit_ok(c->ctx, ebb_json_save(c->ctx, to, config), to);
    json_decref(config);
}

static void an_adapter_that_the_model_does_not_use_whole_is_refused(void **state)
{
    struct kit_case c;
    struct ebb_numerics numerics = kit_numerics(EBB_F32);
    struct ebb_engine *engine;
    char dir[] = "/tmp/ebb-adapter-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(dir));
    kit_case_open(&c, "llama3_lora");
    struct ebb_engine_request request = kit_request(&c, &numerics);
    request.adapter_dir = dir;
    /* A target that Ebb does not adapt would be left out. */
    write_adapter(&c, dir, json_pack("[s, s]", "q_proj", "lm_head"));
    assert_int_equal(ebb_engine_create(c.ctx, &request, &engine), EBB_UNSUPPORTED);
    assert_non_null(strstr(ebb_error_text(c.ctx), "'lm_head'"));
    ebb_error_clear(c.ctx);
    /* So would tensors of modules that the configuration does not name. */
    write_adapter(&c, dir, json_pack("[s]", "q_proj"));
    kit_ok(c.ctx, ebb_engine_create(c.ctx, &request, &engine), "create");
    assert_int_equal(ebb_engine_open(engine), EBB_BAD_FILE);
    assert_non_null(strstr(ebb_error_text(c.ctx), "adapter_model.safetensors' holds"));
    ebb_error_clear(c.ctx);
    ebb_engine_free(engine);
    kit_ok(c.ctx, ebb_dir_remove(c.ctx, dir), "remove");
    kit_case_close(&c);
}

int main(void)
{
    static char names[][24] = {"llama2",      "llama3",         "smollm2",      "mistral",
                               "qwen2",       "qwen3",          "llama_linear", "llama_yarn",
                               "llama3_lora", "llama3_lora_qv", "mistral_lora", "qwen2_lora_rslora",
                               "qwen3_lora"};
    enum { COUNT = (int)(sizeof names / sizeof names[0]) };
    struct CMUnitTest tests[COUNT + 1];
    memset(tests, 0, sizeof tests);
    for (int i = 0; i < COUNT; i++) {
        tests[i].name = names[i];
        tests[i].test_func = golden_case;
        tests[i].initial_state = names[i];
    }
    tests[COUNT].name = "an_adapter_that_the_model_does_not_use_whole_is_refused";
    tests[COUNT].test_func = an_adapter_that_the_model_does_not_use_whole_is_refused;
    return cmocka_run_group_tests_name("models_agree_with_pytorch", tests, NULL, NULL);
}
