/* Writes what a model's backward pass gives: losses and every gradient, for comparison with others.
 *
 *   gradients MODEL_DIR BATCHES.json OUT_DIR [--adapter DIR] [--device cpu|cuda]
 *             [--dtype float32|bfloat16] [--attention auto|cudnn|plain] [--deterministic]
 *             [--activations SLOT=POLICY,...] [--memory-budget SIZE] [--no-streams] [--threads N]
 *
 * Without --adapter every weight has a gradient; with it (an adapter in PEFT's format) only its
 * matrices. BATCHES is a list of steps; a step is a list of micro-batches; a micro-batch is
 * {"ids": [T], "targets": [T], "doc_starts": [documents + 1]}: documents laid end to end, targets
 * already shifted, -100 where nothing is trained. Each step starts with gradients of zero.
 *
 * OUT_DIR/gradients-N.safetensors holds step N's (from 0) gradients of the sum of all its labels'
 * losses, not divided by anything, in float32 under the names of the model's files, adapters under
 * PEFT's. OUT_DIR/result.json holds each step's loss sum, labels and right predictions, seconds,
 * what ran (device, type, policies, libraries) and what memory it took.
 * SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "train/engine_int.h"

enum { RULES_MAX = EBB_SLOTS };

struct options {
    const char *model, *batches, *out, *adapter, *activations;
    enum ebb_attention_choice attention;
    bool cuda, bf16, deterministic, no_streams;
    int64_t threads, budget;
};

/* The micro-batches of all steps, one behind the other. */
struct micros {
    struct ebb_batch *at;
    int64_t count;
    int64_t *ends; /* [steps] the first micro-batch behind step s */
    int64_t steps;
};

struct run {
    struct ebb_ctx *ctx;
    struct options options;
    struct micros micros;
    struct ebb_capacity capacity;
    struct ebb_policy_rule rules[RULES_MAX];
    int64_t rule_count;
    struct ebb_engine *engine;
    double open_seconds;
};

/* ---- options --------------------------------------------------------------------------------- */

static int usage(void)
{
    fprintf(stderr,
            "usage: gradients MODEL_DIR BATCHES.json OUT_DIR [--adapter DIR] [--device cpu|cuda]\n"
            "       [--dtype float32|bfloat16] [--attention auto|cudnn|plain] [--deterministic]\n"
            "       [--activations SLOT=POLICY,...] [--memory-budget SIZE] [--no-streams]\n"
            "       [--threads N]\n");
    return 2;
}

static bool set_number(const char *text, int64_t *value)
{
    if (ebb_text_int64(text, value) && *value >= 1) return true;
    fprintf(stderr, "gradients: '%s' is not a number from 1 on\n", text);
    return false;
}

static bool set_size(const char *text, int64_t *value)
{
    if (ebb_text_size(text, value)) return true;
    fprintf(stderr, "gradients: '%s' is not a size such as 20GiB\n", text);
    return false;
}

static bool set_word(const char *text, const char *no, const char *yes, bool *value)
{
    *value = strcmp(text, yes) == 0;
    if (*value || strcmp(text, no) == 0) return true;
    fprintf(stderr, "gradients: '%s' is neither %s nor %s\n", text, no, yes);
    return false;
}

static bool set_attention(const char *text, struct options *o)
{
    o->attention = strcmp(text, "cudnn") == 0   ? EBB_ATTENTION_CUDNN
                   : strcmp(text, "plain") == 0 ? EBB_ATTENTION_PLAIN
                                                : EBB_ATTENTION_AUTO;
    if (o->attention != EBB_ATTENTION_AUTO || strcmp(text, "auto") == 0) return true;
    fprintf(stderr, "gradients: '%s' is neither auto nor cudnn nor plain\n", text);
    return false;
}

static bool read_options(int argc, char **argv, struct options *o)
{
    enum { ADAPTER, DEVICE, DTYPE, ATTENTION, EXACT, ACTIVATIONS, BUDGET, NO_STREAMS, THREADS };
    static const struct option known[] = {
        {"adapter", required_argument, NULL, ADAPTER},
        {"device", required_argument, NULL, DEVICE},
        {"dtype", required_argument, NULL, DTYPE},
        {"attention", required_argument, NULL, ATTENTION},
        {"deterministic", no_argument, NULL, EXACT},
        {"activations", required_argument, NULL, ACTIVATIONS},
        {"memory-budget", required_argument, NULL, BUDGET},
        {"no-streams", no_argument, NULL, NO_STREAMS},
        {"threads", required_argument, NULL, THREADS},
        {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        bool good = c != '?';
        if (c == ADAPTER) o->adapter = optarg;
        if (c == DEVICE) good = set_word(optarg, "cpu", "cuda", &o->cuda);
        if (c == DTYPE) good = set_word(optarg, "float32", "bfloat16", &o->bf16);
        if (c == ATTENTION) good = set_attention(optarg, o);
        if (c == EXACT) o->deterministic = true;
        if (c == ACTIVATIONS) o->activations = optarg;
        if (c == BUDGET) good = set_size(optarg, &o->budget);
        if (c == NO_STREAMS) o->no_streams = true;
        if (c == THREADS) good = set_number(optarg, &o->threads);
        if (!good) return false;
    }
    if (optind + 3 != argc) return false;
    o->model = argv[optind];
    o->batches = argv[optind + 1];
    o->out = argv[optind + 2];
    return true;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* An array of integers; the caller frees *values, which has room for one more. */
static enum ebb_status read_integers(struct run *run, const json_t *object, const char *key,
                                     int32_t **values, int64_t *count)
{
    const json_t *list = json_object_get(object, key);
    *count = (int64_t)json_array_size(list);
    if (*count == 0)
        return EBB_FAIL(run->ctx, EBB_BAD_FILE, "'%s': a micro-batch has no list '%s'",
                        run->options.batches, key);
    *values = (int32_t *)ebb_mem_alloc(run->ctx, ((size_t)*count + 1) * sizeof **values);
    if (!*values) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < *count; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        if (!json_is_integer(value) || json_integer_value(value) > INT32_MAX ||
            json_integer_value(value) < INT32_MIN)
            return EBB_FAIL(run->ctx, EBB_BAD_FILE, "'%s': '%s' has an element that is no id",
                            run->options.batches, key);
        (*values)[i] = (int32_t)json_integer_value(value);
    }
    return EBB_OK;
}

/* Positions and label rows follow from documents and targets. */
static enum ebb_status complete_batch(struct run *run, struct ebb_batch *batch)
{
    size_t bytes = ((size_t)batch->tokens + 1) * sizeof(int32_t);
    batch->positions = (int32_t *)ebb_mem_alloc(run->ctx, bytes);
    batch->label_rows = (int32_t *)ebb_mem_alloc(run->ctx, bytes);
    if (!batch->positions || !batch->label_rows) return EBB_NO_MEMORY;
    if (batch->doc_starts[0] != 0 || batch->doc_starts[batch->docs] != batch->tokens)
        return EBB_FAIL(run->ctx, EBB_BAD_FILE,
                        "'%s': 'doc_starts' of a micro-batch goes from %ld to %ld, wanted 0 to "
                        "%lld, the number of its ids",
                        run->options.batches, (long)batch->doc_starts[0],
                        (long)batch->doc_starts[batch->docs], (long long)batch->tokens);
    for (int64_t d = 0; d < batch->docs; d++) {
        int64_t begin = batch->doc_starts[d], end = batch->doc_starts[d + 1];
        if (end < begin || end > batch->tokens)
            return EBB_FAIL(run->ctx, EBB_BAD_FILE, "'%s': 'doc_starts' does not ascend",
                            run->options.batches);
        for (int64_t i = begin; i < end; i++) batch->positions[i] = (int32_t)(i - begin);
        if (end - begin > batch->longest) batch->longest = end - begin;
    }
    for (int64_t i = 0; i < batch->tokens; i++)
        if (batch->targets[i] != EBB_IGNORE) batch->label_rows[batch->labels++] = (int32_t)i;
    return EBB_OK;
}

static enum ebb_status read_micro(struct run *run, const json_t *json, struct ebb_batch *batch)
{
    struct ebb_capacity *capacity = &run->capacity;
    int64_t targets = 0, starts = 0;
    EBB_TRY(read_integers(run, json, "ids", &batch->ids, &batch->tokens));
    EBB_TRY(read_integers(run, json, "targets", &batch->targets, &targets));
    EBB_TRY(read_integers(run, json, "doc_starts", &batch->doc_starts, &starts));
    if (targets != batch->tokens || starts < 2)
        return EBB_FAIL(run->ctx, EBB_BAD_FILE,
                        "'%s': a micro-batch has %lld ids, %lld targets and %lld doc_starts, "
                        "wanted as many targets as ids and at least two doc_starts",
                        run->options.batches, (long long)batch->tokens, (long long)targets,
                        (long long)starts);
    batch->docs = starts - 1;
    EBB_TRY(complete_batch(run, batch));
    if (batch->tokens > capacity->tokens) capacity->tokens = batch->tokens;
    if (batch->docs > capacity->docs) capacity->docs = batch->docs;
    if (batch->longest > capacity->doc_tokens) capacity->doc_tokens = batch->longest;
    return EBB_OK;
}

static enum ebb_status read_steps(struct run *run, const json_t *steps)
{
    struct micros *micros = &run->micros;
    size_t s, m, all = 0;
    json_t *step, *micro;
    json_array_foreach(steps, s, step) all += json_array_size(step);
    if (all == 0)
        return EBB_FAIL(run->ctx, EBB_BAD_FILE, "'%s': wanted a list of lists of micro-batches",
                        run->options.batches);
    micros->at = (struct ebb_batch *)ebb_mem_alloc(run->ctx, all * sizeof *micros->at);
    micros->ends =
        (int64_t *)ebb_mem_alloc(run->ctx, json_array_size(steps) * sizeof *micros->ends);
    if (!micros->at || !micros->ends) return EBB_NO_MEMORY;
    memset(micros->at, 0, all * sizeof *micros->at);
    json_array_foreach(steps, s, step)
    {
        json_array_foreach(step, m, micro)
            EBB_TRY(read_micro(run, micro, &micros->at[micros->count++]));
        micros->ends[micros->steps++] = micros->count;
    }
    return EBB_OK;
}

static void free_micros(struct run *run)
{
    for (int64_t i = 0; i < run->micros.count; i++) {
        struct ebb_batch *batch = &run->micros.at[i];
        ebb_mem_free(run->ctx, batch->ids);
        ebb_mem_free(run->ctx, batch->targets);
        ebb_mem_free(run->ctx, batch->positions);
        ebb_mem_free(run->ctx, batch->doc_starts);
        ebb_mem_free(run->ctx, batch->label_rows);
    }
    ebb_mem_free(run->ctx, run->micros.at);
    ebb_mem_free(run->ctx, run->micros.ends);
}

/* ---- policies -------------------------------------------------------------------------------- */

/* "SLOT=POLICY" for all layers. */
static enum ebb_status read_rule(struct run *run, const struct ebb_net *net, char *text)
{
    struct ebb_policy_rule rule = {.last = -1, .slot = -1};
    char *policy = strchr(text, '=');
    if (policy) *policy++ = '\0';
    for (int i = 0; i < net->slot_count; i++)
        if (strcmp(net->slots[i].name, text) == 0) rule.slot = i;
    if (!policy || rule.slot < 0 || !ebb_policy_parse(policy, &rule.policy) ||
        run->rule_count == RULES_MAX)
        return EBB_FAIL(run->ctx, EBB_BAD_CONFIG,
                        "--activations: '%s': wanted SLOT=POLICY, with a slot of the model (x, "
                        "qkv, o, x2, gate_up) and keep, host or recompute",
                        text);
    run->rules[run->rule_count++] = rule;
    return EBB_OK;
}

static enum ebb_status read_rules(struct run *run, const struct ebb_net *net)
{
    char *text = ebb_mem_strdup(run->ctx, run->options.activations);
    if (!text) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    for (char *rule = text, *next; rule && status == EBB_OK; rule = next) {
        next = strchr(rule, ',');
        if (next) *next++ = '\0';
        status = read_rule(run, net, rule);
    }
    ebb_mem_free(run->ctx, text);
    return status;
}

/* ---- engine ---------------------------------------------------------------------------------- */

static struct ebb_engine_request make_request(const struct run *run)
{
    const struct options *o = &run->options;
    struct ebb_engine_request request;
    memset(&request, 0, sizeof request);
    request.model_dir = o->model;
    request.adapter_dir = o->adapter;
    request.train = true;
    request.storage = o->bf16 ? EBB_BF16 : EBB_F32;
    request.backend = o->cuda ? EBB_BACKEND_CUDA : EBB_BACKEND_CPU;
    /* No update runs: the optimizer with the least state. */
    request.optimizer.sgd = true;
    request.capacity = run->capacity;
    request.memory.rules = run->rules;
    request.memory.rule_count = run->rule_count;
    request.streams = !o->no_streams;
    request.device_budget = o->budget;
    request.deterministic = o->deterministic;
    request.attention = o->attention;
    request.threads = (int)o->threads;
    request.seed = 1;
    return request;
}

/* Slots are the model's; the smallest engine knows them. */
static enum ebb_status settle_rules(struct run *run)
{
    struct ebb_engine_request request = make_request(run);
    struct ebb_engine *small = NULL;
    if (!run->options.activations) return EBB_OK;
    request.capacity = (struct ebb_capacity){1, 1, 1, 0};
    request.backend = EBB_BACKEND_CPU;
    request.device_budget = 0;
    EBB_TRY(ebb_engine_create(run->ctx, &request, &small));
    enum ebb_status status = read_rules(run, ebb_engine_net(small));
    ebb_engine_free(small);
    return status;
}

static enum ebb_status open_engine(struct run *run)
{
    double start = ebb_clock_seconds();
    EBB_TRY(settle_rules(run));
    struct ebb_engine_request request = make_request(run);
    EBB_TRY(ebb_engine_create(run->ctx, &request, &run->engine));
    const struct ebb_plan *plan = ebb_engine_plan(run->engine);
    if (!plan->fits)
        return EBB_FAIL(run->ctx, EBB_DOES_NOT_FIT,
                        "the smallest plan needs %lld bytes, --memory-budget allows %lld",
                        (long long)plan->device_bytes, (long long)run->options.budget);
    EBB_TRY(ebb_engine_open(run->engine));
    run->open_seconds = ebb_clock_seconds() - start;
    return EBB_OK;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* One tensor of the file: rows of a parameter's gradient; or, where the parameter is a vector,
 * columns of it. */
struct gradient {
    const struct run *run;
    const struct ebb_param *param;
    int64_t row0, col0, rows, cols;
    char *name; /* owned, or NULL: the weight's */
};

static enum ebb_status fill(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows, void *out)
{
    const struct gradient *g = (const struct gradient *)user;
    int64_t cols = g->param->w.cols;
    if (g->cols == cols)
        return ebb_engine_read_moment(g->run->engine, g->param, g->param->grad, g->row0 + row0,
                                      rows, (float *)out);
    float *whole = (float *)ebb_mem_alloc(ctx, (size_t)cols * sizeof *whole);
    if (!whole) return EBB_NO_MEMORY;
    enum ebb_status status =
        ebb_engine_read_moment(g->run->engine, g->param, g->param->grad, 0, 1, whole);
    if (status == EBB_OK) memcpy(out, whole + g->col0, (size_t)g->cols * sizeof *whole);
    ebb_mem_free(ctx, whole);
    return status;
}

/* Weight i itself (which 0) or its adapter's matrices ('A', 'B'); false: it has no gradient. */
static bool find_gradient(const struct run *run, int64_t i, char which, struct gradient *g)
{
    const struct ebb_net *net = ebb_engine_net(run->engine);
    const struct ebb_weight *weight = &ebb_engine_weights(run->engine)->items[i];
    int64_t at = 0;
    *g = (struct gradient){.run = run, .rows = weight->rows, .cols = weight->cols};
    g->param = which ? ebb_decoder_adapter(net, i, which) : ebb_decoder_param(net, i, &at);
    if (!g->param || !g->param->trained) return false;
    if (which) {
        g->rows = g->param->w.rows;
        g->cols = g->param->w.cols;
    } else if (g->param->w.rows == 1) {
        g->col0 = at;
    } else {
        g->row0 = at;
    }
    return true;
}

static enum ebb_status name_source(const struct run *run, int64_t i, char which, struct gradient *g,
                                   struct ebb_tensor_source *source)
{
    const struct ebb_weight *weight = &ebb_engine_weights(run->engine)->items[i];
    if (which) {
        g->name = ebb_adapter_tensor_name(run->ctx, weight, which);
        if (!g->name) return EBB_NO_MEMORY;
    }
    bool vector = !which && weight->rows == 1;
    *source = (struct ebb_tensor_source){.name = g->name ? g->name : weight->name,
                                         .dtype = EBB_F32,
                                         .dims = vector ? 1 : 2,
                                         .fill = fill,
                                         .user = g};
    source->shape[0] = vector ? g->cols : g->rows;
    source->shape[1] = vector ? 0 : g->cols;
    return EBB_OK;
}

static enum ebb_status write_gradients(const struct run *run, int64_t step)
{
    int64_t all = 3 * ebb_engine_weights(run->engine)->count, count = 0;
    struct gradient *gradients =
        (struct gradient *)ebb_mem_alloc(run->ctx, (size_t)all * sizeof *gradients);
    struct ebb_tensor_source *sources =
        (struct ebb_tensor_source *)ebb_mem_alloc(run->ctx, (size_t)all * sizeof *sources);
    char *path = ebb_mem_format(run->ctx, "%s/gradients-%lld.safetensors", run->options.out,
                                (long long)step);
    enum ebb_status status = gradients && sources && path ? EBB_OK : EBB_NO_MEMORY;
    for (int64_t i = 0; i < all && status == EBB_OK; i++) {
        char which = i % 3 == 0 ? '\0' : i % 3 == 1 ? 'A' : 'B';
        if (!find_gradient(run, i / 3, which, &gradients[count])) continue;
        status = name_source(run, i / 3, which, &gradients[count], &sources[count]);
        count++;
    }
    if (status == EBB_OK) status = ebb_safetensors_save_file(run->ctx, path, sources, count, NULL);
    for (int64_t i = 0; i < count; i++) ebb_mem_free(run->ctx, gradients[i].name);
    ebb_mem_free(run->ctx, path);
    ebb_mem_free(run->ctx, sources);
    ebb_mem_free(run->ctx, gradients);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static enum ebb_status run_step(struct run *run, int64_t s, json_t *list)
{
    int64_t begin = s == 0 ? 0 : run->micros.ends[s - 1], end = run->micros.ends[s], tokens = 0;
    double start = ebb_clock_seconds();
    ebb_engine_begin(run->engine);
    for (int64_t m = begin; m < end; m++) {
        EBB_TRY(ebb_engine_micro(run->engine, EBB_PROGRAM_TRAIN, &run->micros.at[m],
                                 (uint64_t)s + 1, (uint32_t)(m - begin)));
        tokens += run->micros.at[m].tokens;
    }
    double seconds = ebb_clock_seconds() - start;
    struct ebb_sums sums = ebb_engine_sums(run->engine);
    json_array_append_new(list,
                          json_pack("{s:f, s:I, s:I, s:I, s:f}", "loss_sum", sums.loss, "labels",
                                    (json_int_t)sums.labels, "correct", (json_int_t)sums.correct,
                                    "tokens", (json_int_t)tokens, "seconds", seconds));
    EBB_TRY(write_gradients(run, s));
    return ebb_engine_drop_gradients(run->engine);
}

static enum ebb_status write_result(struct run *run, json_t *steps)
{
    const struct ebb_plan *plan = ebb_engine_plan(run->engine);
    const struct ebb_numerics *numerics = &plan->request.numerics;
    struct ebb_engine_usage usage = ebb_engine_usage(run->engine);
    json_t *json = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:s, s:b, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:O}",
        "device", numerics->backend, "dtype", ebb_dtype_name(numerics->storage), "tile_tokens",
        (json_int_t)numerics->tile_tokens, "head_chunk", (json_int_t)numerics->head_chunk, "matmul",
        numerics->matmul, "attention",
        numerics->attention.library ? numerics->attention_library : "own kernels", "deterministic",
        numerics->attention.deterministic || !run->options.cuda, "plan",
        plan->what ? plan->what : "", "open_seconds", run->open_seconds, "predicted_device_bytes",
        (json_int_t)usage.predicted_device_bytes, "peak_device_bytes",
        (json_int_t)usage.peak_device_bytes, "process_device_bytes",
        (json_int_t)usage.process_device_bytes, "host_bytes", (json_int_t)usage.host_bytes,
        "bytes_out", (json_int_t)usage.bytes_out, "bytes_in", (json_int_t)usage.bytes_in, "steps",
        steps);
    char *path = ebb_path_join(run->ctx, run->options.out, "result.json");
    enum ebb_status status = json && path ? ebb_json_save(run->ctx, path, json) : EBB_NO_MEMORY;
    ebb_mem_free(run->ctx, path);
    json_decref(json);
    return status;
}

static enum ebb_status run_all(struct run *run)
{
    json_t *batches = NULL, *list = json_array();
    enum ebb_status status = ebb_json_load(run->ctx, run->options.batches, &batches);
    if (status == EBB_OK) status = read_steps(run, batches);
    json_decref(batches);
    if (status == EBB_OK) status = ebb_dir_create(run->ctx, run->options.out);
    if (status == EBB_OK) status = open_engine(run);
    for (int64_t s = 0; s < run->micros.steps && status == EBB_OK; s++)
        status = run_step(run, s, list);
    if (status == EBB_OK) status = write_result(run, list);
    json_decref(list);
    return status;
}

int main(int argc, char **argv)
{
    struct run run;
    memset(&run, 0, sizeof run);
    if (!read_options(argc, argv, &run.options)) return usage();
    run.ctx = ebb_ctx_create();
    if (!run.ctx) return 1;
    enum ebb_status status = run_all(&run);
    if (status != EBB_OK) fprintf(stderr, "gradients: %s\n", ebb_error_text(run.ctx));
    ebb_engine_free(run.engine);
    free_micros(&run);
    ebb_ctx_free(run.ctx);
    return ebb_status_exit_code(status);
}
