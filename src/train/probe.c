/* The probe: jobs run one after the other, the fit, and the check.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/probe.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "plan/forecast.h"

enum {
    RANK = 16,
    TOKENS_LEAST = 128,
    STEPS_LEAST = 5 /* that are looked at, on the CPU */
};

/* ---- what is run ---- */

/* Heads of 128 and of 64. The table of the first is not on the device, so that the host puts rows
 * together; the second trains every weight, so that large tensors are updated. */
static const struct ebb_probe_model wide = {
    .width = 4096, .ffn = 14336, .heads = 32, .kv_heads = 8, .layers = 2, .vocab = 32768};
static const struct ebb_probe_model narrow = {.width = 2048,
                                              .ffn = 8192,
                                              .heads = 32,
                                              .kv_heads = 8,
                                              .layers = 2,
                                              .vocab = 32768,
                                              .tied = true};
static const struct ebb_probe_model cpu_wide = {
    .width = 512, .ffn = 1536, .heads = 4, .kv_heads = 2, .layers = 2, .vocab = 4096};
static const struct ebb_probe_model cpu_narrow = {
    .width = 384, .ffn = 1024, .heads = 6, .kv_heads = 2, .layers = 2, .vocab = 4096, .tied = true};

static const struct ebb_probe_job gpu_jobs[] = {
    {.model = &wide, .tokens = 16384, .lora = true, .moves = true},
    {.model = &wide, .tokens = 2048, .lora = true, .moves = true},
    {.model = &wide, .tokens = 8192, .lora = true, .held_out = true},
    {.model = &wide, .tokens = 8192, .lora = true, .moves = true, .pageable = true},
    {.model = &narrow, .tokens = 16384},
    {.model = &narrow, .tokens = 2048},
    {.model = &wide, .tokens = 16384, .lora = true, .deterministic = true},
    {.model = &wide, .tokens = 2048, .lora = true, .deterministic = true},
    {.model = &narrow, .tokens = 16384, .deterministic = true},
    {.model = &narrow, .tokens = 2048, .deterministic = true},
    {.model = &wide, .tokens = 4096, .lora = true, .plain = true},
    {.model = &wide, .tokens = 1024, .lora = true, .plain = true},
};
/* No tensor cores: all of it takes long. */
static const struct ebb_probe_job gpu_float_jobs[] = {
    {.model = &wide, .tokens = 2048, .lora = true, .moves = true},
    {.model = &wide, .tokens = 512, .lora = true, .moves = true},
    {.model = &wide, .tokens = 1024, .lora = true, .held_out = true},
    {.model = &wide, .tokens = 2048, .lora = true, .moves = true, .pageable = true},
    {.model = &narrow, .tokens = 2048},
    {.model = &narrow, .tokens = 512},
};
static const struct ebb_probe_job cpu_jobs[] = {
    {.model = &cpu_wide, .tokens = 1024, .lora = true, .moves = true},
    {.model = &cpu_wide, .tokens = 256, .lora = true, .moves = true},
    {.model = &cpu_wide, .tokens = 512, .lora = true, .held_out = true},
    {.model = &cpu_narrow, .tokens = 1024, .moves = true},
    {.model = &cpu_narrow, .tokens = 256, .moves = true},
};

struct prober {
    struct ebb_ctx *ctx;
    struct ebb_probe_request request; /* with what was left open filled in */
    struct ebb_probe_result *result;
    struct ebb_cost_sample *samples; /* [sample_room] */
    int64_t sample_count, sample_room;
};

static void choose_jobs(struct ebb_probe_request *request)
{
    const bool cpu = request->backend == EBB_BACKEND_CPU;
    if (!request->jobs) {
        request->jobs = cpu ? cpu_jobs : request->storage == EBB_BF16 ? gpu_jobs : gpu_float_jobs;
        request->job_count = (int64_t)(cpu ? sizeof cpu_jobs / sizeof cpu_jobs[0]
                                       : request->storage == EBB_BF16
                                           ? sizeof gpu_jobs / sizeof gpu_jobs[0]
                                           : sizeof gpu_float_jobs / sizeof gpu_float_jobs[0]);
    }
    /* A GPU takes a second or two until it has warmed up to its limit of power. */
    if (request->warm_seconds <= 0) request->warm_seconds = cpu ? 0.5 : 2;
    if (request->count_seconds <= 0) request->count_seconds = cpu ? 4 : 1.5;
    EBB_ASSERT(request->job_count <= EBB_PROBE_JOBS);
}

/* ---- a job: its model, engine and batch ---- */

struct job {
    struct ebb_ctx *ctx;
    struct ebb_probe_job job; /* tokens: as they fit */
    char *dir;                /* of the model, by which the engine's request names it */
    struct ebb_model_config *config;
    struct ebb_adapter_config adapter;
    struct ebb_policy_rule rules[2];
    struct ebb_engine *engine;
    struct ebb_batch batch; /* arrays owned */
    uint64_t step;
};

static json_t *config_json(const struct ebb_probe_model *m, int64_t tokens)
{
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:b}",
                     "architectures", "LlamaForCausalLM", "model_type", "llama", "hidden_size",
                     (json_int_t)m->width, "intermediate_size", (json_int_t)m->ffn,
                     "num_hidden_layers", (json_int_t)m->layers, "num_attention_heads",
                     (json_int_t)m->heads, "num_key_value_heads", (json_int_t)m->kv_heads,
                     "vocab_size", (json_int_t)m->vocab, "max_position_embeddings",
                     (json_int_t)tokens, "rms_norm_eps", 1e-5, "rope_theta", 10000.0, "hidden_act",
                     "silu", "tie_word_embeddings", m->tied ? 1 : 0);
}

static enum ebb_status save_config(struct ebb_ctx *ctx, const struct ebb_probe_job *job,
                                   const char *dir)
{
    json_t *json = config_json(job->model, job->tokens);
    char *path = ebb_path_join(ctx, dir, "config.json");
    enum ebb_status status = json && path ? ebb_json_save(ctx, path, json) : EBB_NO_MEMORY;
    json_decref(json);
    ebb_mem_free(ctx, path);
    return status;
}

static enum ebb_status make_adapter(struct job *j)
{
    struct ebb_weight_list weights;
    EBB_TRY(ebb_weight_list_create(j->ctx, j->config, &weights));
    j->adapter.rank = RANK;
    j->adapter.alpha = 2 * RANK;
    enum ebb_status status =
        ebb_adapter_config_targets(j->ctx, &weights, "all-linear", &j->adapter);
    ebb_weight_list_free(j->ctx, &weights);
    return status;
}

/* Slots of a layer, which are the same in every model. */
enum { SLOT_X = 0, SLOT_O = 2 };

static struct ebb_memory_keys memory_keys(struct job *j)
{
    struct ebb_memory_keys keys = {.gradient_checkpointing = EBB_FALSE,
                                   .activation_offloading = EBB_FALSE};
    if (!j->job.moves) return keys;
    for (int i = 0; i < 2; i++)
        j->rules[i] = (struct ebb_policy_rule){.last = -1,
                                               .slot = i == 0 ? SLOT_X : SLOT_O,
                                               .policy = EBB_POLICY_HOST};
    keys = (struct ebb_memory_keys){.rules = j->rules, .rule_count = 2};
    return keys;
}

static enum ebb_status create_engine(const struct prober *p, struct job *j)
{
    const struct ebb_probe_request *wanted = &p->request;
    const struct ebb_engine_request request = {
        .model_dir = j->dir,
        .new_adapter = j->job.lora ? &j->adapter : NULL,
        .blank = true,
        .train = true,
        .storage = wanted->storage,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .capacity = {.tokens = j->job.tokens, .docs = 1, .doc_tokens = j->job.tokens},
        .memory = memory_keys(j),
        .streams = true,
        .device_budget = wanted->device_bytes,
        .overhead_bytes = wanted->overhead_bytes,
        .pinned_budget = j->job.pageable ? 1 : 0, /* less than a page: nothing */
        .backend = wanted->backend,
        .deterministic = j->job.deterministic,
        .attention = j->job.plain ? EBB_ATTENTION_PLAIN : EBB_ATTENTION_AUTO,
        .cache_dir = wanted->cache_dir,
        .threads = wanted->threads,
        .profile = true,
        .seed = 1,
        .max_grad_norm = 1};
    EBB_TRY(ebb_engine_create(j->ctx, &request, &j->engine));
    const struct ebb_net *net = ebb_engine_net(j->engine);
    EBB_ASSERT(strcmp(net->slots[SLOT_X].name, "x") == 0 &&
               strcmp(net->slots[SLOT_O].name, "o") == 0);
    return EBB_OK;
}

/* With fewer tokens, where there is no room for all. */
static enum ebb_status fit_engine(const struct prober *p, struct job *j)
{
    for (;;) {
        EBB_TRY(create_engine(p, j));
        const struct ebb_plan *plan = ebb_engine_plan(j->engine);
        if (plan->fits) return EBB_OK;
        if (j->job.tokens / 2 < TOKENS_LEAST) {
            char wants[32], has[32];
            return EBB_FAIL(j->ctx, EBB_DOES_NOT_FIT,
                            "a step of %lld tokens of the model that is %lld wide takes %s of "
                            "device memory, %s may be used\ntry:   the end of what else runs there",
                            (long long)j->job.tokens, (long long)j->job.model->width,
                            ebb_text_bytes(plan->total_bytes, wants, sizeof wants),
                            ebb_text_bytes(p->request.device_bytes, has, sizeof has));
        }
        ebb_engine_free(j->engine);
        j->engine = NULL;
        j->job.tokens /= 2;
    }
}

/* Every token with its successor as target; any tokens will do. */
static enum ebb_status make_batch(struct job *j)
{
    struct ebb_batch *batch = &j->batch;
    const int64_t tokens = j->job.tokens;
    const size_t bytes = (size_t)(tokens + 1) * sizeof(int32_t);
    int32_t **const arrays[] = {&batch->ids, &batch->targets, &batch->positions, &batch->label_rows,
                                &batch->doc_starts};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        *arrays[i] = (int32_t *)ebb_mem_alloc(j->ctx, bytes);
        if (!*arrays[i]) return EBB_NO_MEMORY;
    }
    for (int64_t i = 0; i < tokens; i++) {
        uint32_t words[4];
        ebb_philox(1, (uint64_t)i, words);
        batch->ids[i] = (int32_t)(words[0] % (uint64_t)j->job.model->vocab);
        batch->positions[i] = batch->label_rows[i] = (int32_t)i;
    }
    for (int64_t i = 0; i < tokens; i++)
        batch->targets[i] = i + 1 < tokens ? batch->ids[i + 1] : EBB_IGNORE;
    batch->tokens = batch->longest = tokens;
    batch->docs = 1;
    batch->labels = tokens - 1;
    batch->doc_starts[1] = (int32_t)tokens;
    return EBB_OK;
}

static void job_close(struct job *j)
{
    ebb_engine_free(j->engine);
    ebb_adapter_config_clear(j->ctx, &j->adapter);
    ebb_model_config_free(j->ctx, j->config);
    ebb_mem_free(j->ctx, j->batch.ids);
    ebb_mem_free(j->ctx, j->batch.targets);
    ebb_mem_free(j->ctx, j->batch.positions);
    ebb_mem_free(j->ctx, j->batch.label_rows);
    ebb_mem_free(j->ctx, j->batch.doc_starts);
    ebb_mem_free(j->ctx, j->dir);
}

/* Plans it. The model's folder is only there meanwhile, so that nothing is left behind if the
 * process is ended. job_close is due after a failure too. */
static enum ebb_status job_open(const struct prober *p, const struct ebb_probe_job *job,
                                struct job *j)
{
    memset(j, 0, sizeof *j);
    j->ctx = p->ctx;
    j->job = *job;
    EBB_TRY(ebb_dir_create_temp(p->ctx, &j->dir));
    enum ebb_status status = save_config(p->ctx, job, j->dir);
    if (status == EBB_OK) status = ebb_model_config_load(p->ctx, j->dir, &j->config);
    if (status == EBB_OK) status = make_adapter(j);
    if (status == EBB_OK) status = fit_engine(p, j);
    enum ebb_status removed = ebb_dir_remove(p->ctx, j->dir);
    if (status == EBB_OK) status = removed;
    return status == EBB_OK ? make_batch(j) : status;
}

/* ---- steps ---- */

static enum ebb_status run_step(struct job *j)
{
    struct ebb_profile *profile = ebb_engine_profile(j->engine);
    double start = ebb_clock_seconds();
    ebb_profile_begin(profile);
    ebb_engine_begin(j->engine);
    j->step++;
    EBB_TRY(ebb_engine_micro(j->engine, EBB_PROGRAM_TRAIN, &j->batch, j->step, 0));
    EBB_TRY(ebb_engine_update(j->engine, j->step, 1e-5, (double)j->batch.labels));
    ebb_profile_end(profile, ebb_clock_seconds() - start);
    return EBB_OK;
}

/* For so long, and so many steps at least. */
static enum ebb_status run_steps(struct job *j, double seconds, int64_t least)
{
    double start = ebb_clock_seconds();
    for (int64_t i = 0; i < least || ebb_clock_seconds() - start < seconds; i++)
        EBB_TRY(run_step(j));
    return EBB_OK;
}

/* ---- samples ---- */

static enum ebb_status add_sample(struct prober *p, const struct ebb_cost_sample *sample)
{
    if (p->sample_count == p->sample_room) {
        int64_t room = p->sample_room ? 2 * p->sample_room : 256;
        struct ebb_cost_sample *samples =
            (struct ebb_cost_sample *)ebb_mem_realloc(p->ctx, p->samples,
                                                      (size_t)room * sizeof *samples);
        if (!samples) return EBB_NO_MEMORY;
        p->samples = samples;
        p->sample_room = room;
    }
    p->samples[p->sample_count++] = *sample;
    return EBB_OK;
}

/* Some steps in a row; means of them. */
struct stretch {
    struct ebb_profile_step mean; /* steps 0: there is none */
    struct ebb_profile_op *ops;   /* [count] owned */
    int64_t count;
};

/* Threads that move bytes from slot to slot take processors from the others, so of a job that
 * bounces nothing else counts. */
static enum ebb_status add_ops(struct prober *p, const struct job *j, const struct stretch *stretch)
{
    for (int64_t i = 0; i < stretch->count; i++) {
        const struct ebb_profile_op *op = &stretch->ops[i];
        const bool bounces = op->which == EBB_COST_BOUNCE_OUT || op->which == EBB_COST_BOUNCE_IN;
        if (j->job.pageable && !bounces) continue;
        const struct ebb_cost_sample sample = {.which = op->which,
                                               .count = op->count,
                                               .seconds = op->time.seconds + op->time.beside,
                                               .flops = op->time.flops,
                                               .bytes = op->time.bytes};
        EBB_TRY(add_sample(p, &sample));
    }
    return EBB_OK;
}

/* What lies between ops, and between runs: a step has two of these. */
static enum ebb_status add_rest(struct prober *p, const struct job *j,
                                const struct ebb_profile_step *mean)
{
    const struct ebb_plan *plan = ebb_engine_plan(j->engine);
    const bool rows = ebb_decoder_rows_tensor(ebb_engine_net(j->engine)) >= 0;
    const double row_bytes = (double)(j->job.model->width * ebb_dtype_bytes(p->request.storage));
    struct ebb_cost_sample gap = {.which = EBB_COST_GAP,
                                  .seconds = mean->parts[EBB_PART_GAP].seconds};
    const struct ebb_cost_sample host = {.which = EBB_COST_HOST,
                                         .count = 2,
                                         .seconds = mean->parts[EBB_PART_HOST].seconds,
                                         .bytes = rows ? (double)j->job.tokens * row_bytes : 0};
    for (int k = 0; k < EBB_PROGRAM_COUNT; k++) {
        const struct ebb_program *program = plan->programs[k];
        for (int32_t e = 0; program && e < ebb_program_entries(program); e++)
            gap.count += ebb_program_entry_at(program, e)->queue == EBB_QUEUE_COMPUTE;
    }
    EBB_TRY(add_sample(p, &gap));
    return add_sample(p, &host);
}

/* ---- jobs ---- */

/* A stretch takes the place of a slower one. */
static enum ebb_status run_stretch(struct job *j, double seconds, struct stretch *best)
{
    struct ebb_profile *profile = ebb_engine_profile(j->engine);
    ebb_profile_forget(profile);
    EBB_TRY(run_steps(j, seconds, 1));
    const struct ebb_profile_step mean = ebb_profile_mean(profile);
    if (mean.steps == 0 || (best->mean.steps > 0 && mean.seconds >= best->mean.seconds))
        return EBB_OK;
    ebb_mem_free(j->ctx, best->ops);
    best->mean = mean;
    return ebb_profile_ops(profile, &best->ops, &best->count);
}

/* A GPU's speed is what it keeps up: the mean of all steps. A CPU is there for others too, who may
 * be at work: there the fastest step counts. */
static enum ebb_status run_stretches(const struct prober *p, struct job *j, struct stretch *best)
{
    const bool cpu = p->request.backend == EBB_BACKEND_CPU;
    const double seconds = p->request.count_seconds, start = ebb_clock_seconds();
    EBB_TRY(run_steps(j, p->request.warm_seconds, EBB_PROFILE_FIRST));
    for (int i = 0; i < (cpu ? STEPS_LEAST : 1) || ebb_clock_seconds() - start < seconds; i++)
        EBB_TRY(run_stretch(j, cpu ? 0 : seconds, best));
    if (best->mean.steps > 0) return EBB_OK;
    return EBB_FAIL(p->ctx, EBB_FAILED, "no step could be timed: the device gave no times");
}

static enum ebb_status measure(struct prober *p, struct job *j)
{
    struct stretch best = {.count = 0};
    EBB_TRY(ebb_engine_open(j->engine));
    enum ebb_status status = run_stretches(p, j, &best);
    if (status == EBB_OK) {
        struct ebb_probe_check *check = &p->result->checks[p->result->check_count++];
        *check = (struct ebb_probe_check){.job = j->job,
                                          .steps = best.mean.steps,
                                          .seconds = best.mean.seconds};
    }
    if (status == EBB_OK && !j->job.held_out) status = add_ops(p, j, &best);
    if (status == EBB_OK && !j->job.held_out && !j->job.pageable)
        status = add_rest(p, j, &best.mean);
    ebb_mem_free(p->ctx, best.ops);
    return status;
}

static enum ebb_status run_job(struct prober *p, int64_t index)
{
    struct job j;
    enum ebb_status status = job_open(p, &p->request.jobs[index], &j);
    if (status == EBB_OK) {
        const struct ebb_probe_job *job = &j.job;
        ebb_log(p->ctx, EBB_LOG_INFO, "probe", "%lld of %lld: %lld wide, %s, %lld tokens%s%s%s%s",
                (long long)index + 1, (long long)p->request.job_count, (long long)job->model->width,
                job->lora ? "LoRA" : "every weight", (long long)job->tokens,
                job->moves ? ", with moves" : "",
                job->pageable ? " of memory that is not pinned" : "",
                job->deterministic ? ", deterministic" : "", job->plain ? ", plain attention" : "");
        status = measure(p, &j);
    }
    job_close(&j);
    return status;
}

/* What backing and pinning host memory takes, as a run does it: some GiB, or an eighth of what is
 * free. Where nothing has to be pinned there is no sample. */
static enum ebb_status measure_pinning(struct prober *p)
{
    static const int64_t most = INT64_C(4) << 30;
    const struct ebb_device_options options = {.backend = p->request.backend};
    struct ebb_device *device;
    int64_t bytes = ebb_backend_bytes_free(p->ctx, EBB_BACKEND_CPU) / 8;
    if (p->request.backend == EBB_BACKEND_CPU) return EBB_OK;
    EBB_TRY(ebb_device_create(p->ctx, &options, &device));
    enum ebb_status status =
        ebb_device_reserve(device, EBB_SPACE_HOST, bytes < most ? bytes : most);
    if (status == EBB_OK) {
        const struct ebb_cost_sample sample = {.which = EBB_COST_PIN,
                                               .count = 1,
                                               .seconds = ebb_device_pin_seconds(device),
                                               .bytes = (double)ebb_device_bytes_pinned(device)};
        if (sample.seconds > 0) status = add_sample(p, &sample);
    }
    ebb_device_free(device);
    return status;
}

/* A step's forecast, with the same plan again. */
static enum ebb_status check_job(struct prober *p, struct ebb_probe_check *check)
{
    struct job j;
    struct ebb_forecast forecast;
    enum ebb_status status = job_open(p, &check->job, &j);
    if (status == EBB_OK) {
        const struct ebb_forecast_load load = {.micro_batches = 1,
                                               .labels = j.batch.labels,
                                               .docs = j.batch.docs,
                                               .doc_starts = j.batch.doc_starts};
        status = ebb_forecast_step(p->ctx, ebb_engine_plan(j.engine), &p->result->rates, &load,
                                   &forecast);
    }
    if (status == EBB_OK) check->forecast = forecast.known ? forecast.seconds : 0;
    job_close(&j);
    return status;
}

enum ebb_status ebb_probe_run(struct ebb_ctx *ctx, const struct ebb_probe_request *request,
                              struct ebb_probe_result *result)
{
    struct prober p = {.ctx = ctx, .request = *request, .result = result};
    double start = ebb_clock_seconds();
    enum ebb_status status = EBB_OK;
    memset(result, 0, sizeof *result);
    choose_jobs(&p.request);
    for (int64_t i = 0; status == EBB_OK && i < p.request.job_count; i++) status = run_job(&p, i);
    if (status == EBB_OK) status = measure_pinning(&p);
    if (status == EBB_OK) {
        ebb_rates_fit(p.samples, p.sample_count, &result->rates);
        result->rates.storage = request->storage;
        result->rates.measured = true;
    }
    for (int64_t i = 0; status == EBB_OK && i < result->check_count; i++)
        status = check_job(&p, &result->checks[i]);
    ebb_mem_free(ctx, p.samples);
    result->seconds = ebb_clock_seconds() - start;
    return status;
}
