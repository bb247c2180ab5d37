/* Times training steps on the CPU: tokens per second, start-up, and where a step's time goes.
 *
 *   bench_step MODEL [--method full|lora] [--dtype float32|bfloat16] [--tokens 1024]
 *              [--documents 1] [--threads 2] [--steps 5] [--warmup 2] [--checkpointing]
 *              [--lora-r 16] [--tile N] [--chunk N] [--ops] [--cpu-time] [--seed 1]
 *
 * MODEL is a model directory, or a config.json from which one with random weights is made in
 * TMPDIR and removed again. One step is one micro-batch of --tokens tokens (--documents of equal
 * length), every token but the last of a document with its successor as target, and the update:
 * forward, loss, backward, gradient norm, AdamW. The same batch is used throughout, so the loss
 * falls. tools/bench_torch.py measures the same with PyTorch and takes the same options.
 *
 * Prints one JSON object: tokens_per_second from the median of --steps steps after --warmup, each
 * step's seconds, seconds of start-up by stage, memory, first and last loss. --ops also prints,
 * on stderr, a table of where the time goes: the program's entries are then run once more, one by
 * one on the compute queue, each --steps times over whole steps, and the median of each is taken.
 * Nothing else should run on the machine meanwhile; load_before says whether something did. Where
 * that cannot be had, --cpu-time with --threads 1 counts processor seconds instead, which others
 * disturb less.
 * SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "kit.h"
#include "model/init.h"
#include "op/matmul.h"
#include "op/work.h"
#include "train/engine_int.h"

enum { STEPS_MAX = 1000 };

struct options {
    const char *model;
    bool lora, checkpointing, ops, cpu_time;
    enum ebb_dtype dtype;
    int64_t tokens, documents, threads, steps, warmup, lora_r, tile, chunk, seed;
};

struct bench {
    struct ebb_ctx *ctx;
    struct options options;
    char dir[512];
    bool made_dir;
    double load;
    struct ebb_batch batch;
    struct ebb_adapter_config adapter;
    struct ebb_numerics numerics;
    struct ebb_engine *engine;
    double create_seconds, open_seconds;
    double seconds[STEPS_MAX], loss[STEPS_MAX];
    uint64_t step;
};

/* ---- options ---- */

static int usage(void)
{
    fprintf(stderr,
            "usage: bench_step MODEL [--method full|lora] [--dtype float32|bfloat16] [--tokens N]\n"
            "       [--documents N] [--threads N] [--steps N] [--warmup N] [--checkpointing]\n"
            "       [--lora-r N] [--tile N] [--chunk N] [--ops] [--cpu-time] [--seed N]\n");
    return 2;
}

static bool set_number(const char *text, int64_t low, int64_t *value)
{
    if (ebb_text_int64(text, value) && *value >= low) return true;
    fprintf(stderr, "bench_step: '%s' is not a number from %lld on\n", text, (long long)low);
    return false;
}

static bool set_word(const char *text, const char *no, const char *yes, bool *value)
{
    *value = strcmp(text, yes) == 0;
    if (*value || strcmp(text, no) == 0) return true;
    fprintf(stderr, "bench_step: '%s' is neither %s nor %s\n", text, no, yes);
    return false;
}

static bool read_options(int argc, char **argv, struct options *o)
{
    enum { METHOD, DTYPE, CHECKPOINTING, OPS, CPU_TIME, NUMBERS };
    static const struct option known[] = {
        {"method", required_argument, NULL, METHOD},
        {"dtype", required_argument, NULL, DTYPE},
        {"checkpointing", no_argument, NULL, CHECKPOINTING},
        {"ops", no_argument, NULL, OPS},
        {"cpu-time", no_argument, NULL, CPU_TIME},
        {"tokens", required_argument, NULL, NUMBERS},
        {"documents", required_argument, NULL, NUMBERS + 1},
        {"threads", required_argument, NULL, NUMBERS + 2},
        {"steps", required_argument, NULL, NUMBERS + 3},
        {"warmup", required_argument, NULL, NUMBERS + 4},
        {"lora-r", required_argument, NULL, NUMBERS + 5},
        {"tile", required_argument, NULL, NUMBERS + 6},
        {"chunk", required_argument, NULL, NUMBERS + 7},
        {"seed", required_argument, NULL, NUMBERS + 8},
        {NULL, 0, NULL, 0},
    };
    int64_t *const numbers[] = {&o->tokens, &o->documents, &o->threads, &o->steps, &o->warmup,
                                &o->lora_r, &o->tile,      &o->chunk,   &o->seed};
    bool bf16 = false;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        bool good = c != '?';
        if (c == METHOD) good = set_word(optarg, "full", "lora", &o->lora);
        if (c == DTYPE) good = set_word(optarg, "float32", "bfloat16", &bf16);
        if (c == CHECKPOINTING) o->checkpointing = true;
        if (c == OPS) o->ops = true;
        if (c == CPU_TIME) o->cpu_time = true;
        if (good && c >= NUMBERS && c != '?')
            good = set_number(optarg, c == NUMBERS + 4 ? 0 : 1, numbers[c - NUMBERS]);
        if (!good) return false;
    }
    o->dtype = bf16 ? EBB_BF16 : EBB_F32;
    if (optind + 1 != argc || o->steps + o->warmup > STEPS_MAX) return false;
    if (o->tokens % o->documents != 0 || o->tokens / o->documents < 2) return false;
    o->model = argv[optind];
    return true;
}

/* ---- model, batch, engine ---- */

static double now(const struct bench *b)
{
    struct timespec time;
    clock_gettime(b->options.cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static enum ebb_status make_model(struct bench *b)
{
    struct stat info;
    if (stat(b->options.model, &info) == 0 && S_ISDIR(info.st_mode)) {
        snprintf(b->dir, sizeof b->dir, "%s", b->options.model);
        return EBB_OK;
    }
    const char *tmp = getenv("TMPDIR");
    snprintf(b->dir, sizeof b->dir, "%s/bench_step_XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(b->dir))
        return EBB_FAIL(b->ctx, EBB_IO, "cannot make a folder '%s' for the model", b->dir);
    b->made_dir = true;
    return ebb_model_init(b->ctx, b->options.model, NULL, b->dir, b->options.dtype,
                          (uint64_t)b->options.seed);
}

static struct ebb_engine_request make_request(const struct bench *b)
{
    const struct options *o = &b->options;
    struct ebb_engine_request request;
    memset(&request, 0, sizeof request);
    request.model_dir = b->dir;
    request.new_adapter = o->lora ? &b->adapter : NULL;
    request.train = true;
    request.storage = o->dtype;
    request.optimizer = (struct ebb_optimizer_keys){.beta1 = 0.9,
                                                    .beta2 = 0.999,
                                                    .eps = 1e-8,
                                                    .weight_decay = 0.01};
    request.capacity = (struct ebb_capacity){.tokens = o->tokens,
                                             .docs = o->documents,
                                             .doc_tokens = o->tokens / o->documents};
    request.memory.gradient_checkpointing = o->checkpointing ? EBB_TRUE : EBB_AUTO;
    request.memory.activation_offloading = EBB_FALSE;
    request.streams = true;
    request.threads = (int)o->threads;
    request.seed = (uint64_t)o->seed;
    request.max_grad_norm = 1;
    request.numerics = o->tile > 0 || o->chunk > 0 ? &b->numerics : NULL;
    return request;
}

/* What --tile and --chunk leave open is chosen as ever. */
static void make_numerics(struct bench *b, int64_t vocab)
{
    const struct options *o = &b->options;
    struct ebb_capacity capacity = {.tokens = o->tokens};
    b->numerics.storage = o->dtype;
    b->numerics.threads = (int)o->threads;
    snprintf(b->numerics.backend, sizeof b->numerics.backend, "cpu");
    ebb_numerics_choose(&b->numerics, vocab, 0, &capacity); /* one tile for all widths */
    if (o->tile > 0) b->numerics.tile_tokens = o->tile;
    if (o->chunk > 0) b->numerics.head_chunk = o->chunk;
}

static enum ebb_status open_engine(struct bench *b)
{
    struct ebb_model_config *config;
    EBB_TRY(make_model(b));
    EBB_TRY(ebb_model_config_load(b->ctx, b->dir, &config));
    make_numerics(b, config->vocab);
    const struct options *o = &b->options;
    enum ebb_status status = bench_batch_create(b->ctx, o->tokens, o->documents, config->vocab,
                                                (uint64_t)o->seed, &b->batch);
    if (status == EBB_OK && o->lora) status = bench_adapter(b->ctx, config, o->lora_r, &b->adapter);
    ebb_model_config_free(b->ctx, config);
    if (status != EBB_OK) return status;
    struct ebb_engine_request request = make_request(b);
    double start = now(b);
    EBB_TRY(ebb_engine_create(b->ctx, &request, &b->engine));
    double created = now(b);
    EBB_TRY(ebb_engine_open(b->engine));
    b->create_seconds = created - start;
    b->open_seconds = now(b) - created;
    return EBB_OK;
}

static void close_bench(struct bench *b)
{
    ebb_engine_free(b->engine);
    ebb_adapter_config_clear(b->ctx, &b->adapter);
    bench_batch_free(b->ctx, &b->batch);
    if (b->made_dir) (void)ebb_dir_remove(b->ctx, b->dir);
    ebb_ctx_free(b->ctx);
}

/* ---- whole steps ---- */

static enum ebb_status run_step(struct bench *b, double *seconds, double *loss)
{
    double start = now(b);
    b->step++;
    ebb_engine_begin(b->engine);
    EBB_TRY(ebb_engine_micro(b->engine, EBB_PROGRAM_TRAIN, &b->batch, b->step, 0));
    EBB_TRY(ebb_engine_update(b->engine, b->step, 1e-4, (double)b->batch.labels));
    *seconds = now(b) - start;
    *loss = ebb_engine_sums(b->engine).loss / (double)b->batch.labels;
    return EBB_OK;
}

static json_t *json_seconds(const double *values, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < count; i++) {
        char text[32];
        double rounded;
        snprintf(text, sizeof text, "%.4f", values[i]);
        (void)ebb_text_double(text, &rounded);
        json_array_append_new(array, json_real(rounded));
    }
    return array;
}

static void add_options(const struct bench *b, json_t *json)
{
    const struct options *o = &b->options;
    const struct ebb_numerics *numerics = &ebb_engine_plan(b->engine)->request.numerics;
    json_object_set_new(json, "config", json_string(o->model));
    json_object_set_new(json, "method", json_string(o->lora ? "lora" : "full"));
    json_object_set_new(json, "dtype", json_string(o->dtype == EBB_BF16 ? "bfloat16" : "float32"));
    json_object_set_new(json, "tokens", json_integer(o->tokens));
    json_object_set_new(json, "documents", json_integer(o->documents));
    json_object_set_new(json, "threads", json_integer(o->threads));
    json_object_set_new(json, "checkpointing", json_boolean(o->checkpointing));
    json_object_set_new(json, "clock", json_string(o->cpu_time ? "processor" : "wall"));
    json_object_set_new(json, "tile_tokens", json_integer(numerics->tile_tokens));
    json_object_set_new(json, "head_chunk", json_integer(numerics->head_chunk));
    json_object_set_new(json, "matmul", json_string(numerics->matmul));
}

static enum ebb_status print_result(struct bench *b)
{
    const struct options *o = &b->options;
    struct ebb_str text = {0};
    double timed[STEPS_MAX];
    int64_t trained, all;
    json_t *json = json_object();
    memcpy(timed, b->seconds + o->warmup, (size_t)o->steps * sizeof *timed);
    double middle = bench_median(timed, o->steps);
    ebb_engine_parameters(b->engine, &trained, &all);
    add_options(b, json);
    json_object_set_new(json, "parameters", json_integer(all));
    json_object_set_new(json, "trainable", json_integer(trained));
    json_object_set_new(json, "tokens_per_second", json_real((double)o->tokens / middle));
    json_object_set_new(json, "step_seconds_median", json_real(middle));
    json_object_set_new(json, "step_seconds", json_seconds(b->seconds + o->warmup, o->steps));
    json_object_set_new(json, "warmup_seconds", json_seconds(b->seconds, o->warmup));
    json_object_set_new(json, "create_seconds", json_real(b->create_seconds));
    json_object_set_new(json, "open_seconds", json_real(b->open_seconds));
    json_object_set_new(json, "device_bytes",
                        json_integer(ebb_engine_plan(b->engine)->device_bytes));
    json_object_set_new(json, "peak_rss_bytes", json_integer(ebb_process_bytes_peak()));
    json_object_set_new(json, "first_loss", json_real(b->loss[0]));
    json_object_set_new(json, "last_loss", json_real(b->loss[o->warmup + o->steps - 1]));
    json_object_set_new(json, "load_before", json_real(b->load));
    enum ebb_status status = ebb_json_text(b->ctx, json, 2, &text);
    if (status == EBB_OK) printf("%.*s\n", (int)text.bytes, text.data);
    ebb_str_free(b->ctx, &text);
    json_decref(json);
    return status;
}

/* ---- where the time goes ---- */

/* Runs a program's entries one by one, as the executor does, with a clock around each. */
struct profile {
    const struct bench *b;
    struct ebb_engine *engine;
    enum ebb_program_kind kind;
    void **base;
    double *seconds; /* [entries] of this pass */
};

static enum ebb_status run_profile(const struct ebb_queue_env *queue, const void *args)
{
    const struct profile *p = (const struct profile *)args;
    const struct ebb_program *program = p->engine->plan->programs[p->kind];
    struct ebb_op_env env = {.ctx = p->engine->ctx,
                             .base = p->base,
                             .step = &p->engine->step,
                             .libs = p->engine->libs,
                             .stream = queue->stream,
                             .threads = queue->threads};
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        double start = now(p->b);
        EBB_TRY(ebb_op_info((enum ebb_op)entry->op)->cpu(&env, ebb_program_args(program, entry)));
        p->seconds[e] = now(p->b) - start;
    }
    return EBB_OK;
}

/* One line of the table: an op of one size. */
struct line {
    char label[EBB_OP_LABEL];
    double seconds, flops;
    int64_t count;
    bool matmul;
};

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct line *)a)->seconds, y = ((const struct line *)b)->seconds;
    return x > y ? -1 : x < y;
}

static void print_lines(struct line *lines, int count, const char *name)
{
    double total = 0, matmul = 0;
    qsort(lines, (size_t)count, sizeof *lines, by_seconds);
    for (int i = 0; i < count; i++) {
        total += lines[i].seconds;
        matmul += lines[i].matmul ? lines[i].seconds : 0;
    }
    fprintf(stderr, "%s: %.1f ms, of them matmul %.1f\n", name, total * 1e3, matmul * 1e3);
    for (int i = 0; i < count; i++) {
        fprintf(stderr, "  %8.2f ms %5.1f %%  %5lld x  %-44s", lines[i].seconds * 1e3,
                lines[i].seconds / total * 100, (long long)lines[i].count, lines[i].label);
        if (lines[i].flops > 0)
            fprintf(stderr, " %7.1f GFLOP/s", lines[i].flops / lines[i].seconds * 1e-9);
        fprintf(stderr, "\n");
    }
}

/* Adds up entries by label. `passes` [steps][entries]; the median of each entry counts. */
static enum ebb_status print_profile(struct bench *b, enum ebb_program_kind kind,
                                     const double *passes)
{
    const struct ebb_program *program = b->engine->plan->programs[kind];
    const struct ebb_op_env env = {.step = &b->engine->step, .doc_starts = b->engine->doc_starts};
    int32_t entries = ebb_program_entries(program);
    int count = 0;
    struct line *lines = (struct line *)ebb_mem_alloc(b->ctx, (size_t)entries * sizeof *lines);
    if (!lines) return EBB_NO_MEMORY;
    for (int32_t e = 0; e < entries; e++) {
        char label[EBB_OP_LABEL];
        double values[STEPS_MAX];
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        int at = 0;
        for (int64_t s = 0; s < b->options.steps; s++) values[s] = passes[s * entries + e];
        ebb_op_label((enum ebb_op)entry->op, ebb_program_args(program, entry), label);
        while (at < count && strcmp(lines[at].label, label) != 0) at++;
        if (at == count) memcpy(lines[count++].label, label, sizeof label);
        lines[at].seconds += bench_median(values, b->options.steps);
        lines[at].flops +=
            ebb_op_work(&env, (enum ebb_op)entry->op, ebb_program_args(program, entry)).flops;
        lines[at].matmul = entry->op == EBB_OP_matmul;
        lines[at].count++;
    }
    print_lines(lines, count, ebb_program_kind_name(kind));
    ebb_mem_free(b->ctx, lines);
    return EBB_OK;
}

static enum ebb_status profile_program(struct bench *b, enum ebb_program_kind kind, double *passes,
                                       void **base)
{
    const struct ebb_program *program = b->engine->plan->programs[kind];
    struct profile p = {.b = b, .engine = b->engine, .kind = kind, .base = base};
    for (int32_t t = 0; t < ebb_program_tensors(program); t++)
        base[t] = ebb_executor_tensor(b->engine->executors[kind], t);
    for (int64_t s = 0; s < b->options.steps; s++) {
        p.seconds = passes + s * ebb_program_entries(program);
        EBB_TRY(ebb_queue_launch(b->engine->device, EBB_QUEUE_COMPUTE, run_profile, &p));
        EBB_TRY(ebb_device_sync(b->engine->device));
    }
    return print_profile(b, kind, passes);
}

static enum ebb_status profile(struct bench *b)
{
    static const enum ebb_program_kind kinds[] = {EBB_PROGRAM_TRAIN, EBB_PROGRAM_UPDATE};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && status == EBB_OK; i++) {
        const struct ebb_program *program = b->engine->plan->programs[kinds[i]];
        size_t entries = (size_t)ebb_program_entries(program);
        double *passes =
            (double *)ebb_mem_alloc(b->ctx, (size_t)b->options.steps * entries * sizeof *passes);
        void **base =
            (void **)ebb_mem_alloc(b->ctx, (size_t)ebb_program_tensors(program) * sizeof *base);
        status = passes && base ? profile_program(b, kinds[i], passes, base) : EBB_NO_MEMORY;
        ebb_mem_free(b->ctx, passes);
        ebb_mem_free(b->ctx, (void *)base);
    }
    return status;
}

static enum ebb_status run_bench(struct bench *b)
{
    if (getloadavg(&b->load, 1) != 1) b->load = -1;
    EBB_TRY(open_engine(b));
    for (int64_t i = 0; i < b->options.warmup + b->options.steps; i++)
        EBB_TRY(run_step(b, &b->seconds[i], &b->loss[i]));
    EBB_TRY(print_result(b));
    return b->options.ops ? profile(b) : EBB_OK;
}

int main(int argc, char **argv)
{
    struct bench *b = (struct bench *)calloc(1, sizeof *b);
    if (!b || !(b->ctx = ebb_ctx_create())) return 1;
    b->options = (struct options){.tokens = 1024,
                                  .documents = 1,
                                  .threads = 2,
                                  .steps = 5,
                                  .warmup = 2,
                                  .lora_r = 16,
                                  .seed = 1};
    if (!read_options(argc, argv, &b->options)) {
        close_bench(b);
        free(b);
        return usage();
    }
    enum ebb_status status = run_bench(b);
    if (status != EBB_OK) fprintf(stderr, "bench_step: %s\n", ebb_error_text(b->ctx));
    close_bench(b);
    free(b);
    return status == EBB_OK ? 0 : 1;
}
