/* The engine: from a model directory to a planned network that runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/engine.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "model/rope.h"
#include "op/optimizer.h"
#include "train/engine_int.h"

/* ---- creation ---- */

static enum ebb_status load_adapter_config(struct ebb_engine *engine)
{
    const struct ebb_engine_request *request = &engine->request;
    if (request->new_adapter) {
        engine->adapter_config = *request->new_adapter;
        return EBB_OK;
    }
    if (!request->adapter_dir) return EBB_OK;
    EBB_TRY(ebb_adapter_config_load(engine->ctx, request->adapter_dir, &engine->adapter_config));
    engine->owns_adapter = true;
    return ebb_adapter_config_check(engine->ctx, &engine->weights, &engine->adapter_config);
}

static enum ebb_status load_teacher_config(struct ebb_engine *engine)
{
    const struct ebb_engine_request *request = &engine->request;
    EBB_ASSERT((request->teacher_dir != NULL) == ebb_objective_has_second(&request->objective));
    if (!request->teacher_dir) return EBB_OK;
    EBB_TRY(ebb_model_config_load(engine->ctx, request->teacher_dir, &engine->teacher));
    return ebb_weight_list_create(engine->ctx, engine->teacher, &engine->teacher_weights);
}

/* `rows`: tables of input embeddings may stay in their files. *used: whether one does. */
static enum ebb_status create_net(struct ebb_engine *engine, bool rows, struct ebb_net **net,
                                  bool *used)
{
    const struct ebb_engine_request *request = &engine->request;
    struct ebb_decoder_options options = {.storage = request->storage,
                                          .train = request->train,
                                          .stochastic_rounding = request->stochastic_rounding,
                                          .sgd = request->optimizer.sgd,
                                          .momentum = request->optimizer.momentum,
                                          .capacity = request->capacity,
                                          .objective = request->objective,
                                          .teacher = engine->teacher,
                                          .teacher_weights = &engine->teacher_weights};
    if (engine->adapter_config.rank > 0) options.adapter = &engine->adapter_config;
    int64_t bytes = ebb_decoder_host_rows_bytes(engine->config, &options);
    options.host_rows = *used =
        rows && bytes > 0 && (request->host_budget == 0 || bytes <= request->host_budget);
    return ebb_decoder_create(engine->ctx, engine->config, &engine->weights, &options, net);
}

/* Another version of a library computes with other bits. */
static void warn_of_version(struct ebb_engine *engine, const char *key, const char *had,
                            const char *now)
{
    if (had[0] && strcmp(had, now) != 0)
        ebb_warn_once(engine->ctx, key,
                      "the checkpoint was made with %s, this machine has %s: the run goes on, but "
                      "not bit for bit",
                      had, now);
}

/* A run that goes on keeps its numbers, so it may not ask for others. */
static enum ebb_status check_way(struct ebb_engine *engine, const struct ebb_attention_way *had)
{
    const struct ebb_engine_request *request = &engine->request;
    if (request->deterministic && !had->deterministic)
        return EBB_FAIL(engine->ctx, EBB_BAD_CONFIG,
                        "the checkpoint was made without deterministic: true, and a run that goes "
                        "on from it keeps its numbers\ntry:   deterministic: false");
    if (request->attention == EBB_ATTENTION_PLAIN && had->library)
        return EBB_FAIL(engine->ctx, EBB_BAD_CONFIG,
                        "the checkpoint was made with attention through cuDNN, and a run that goes "
                        "on from it keeps its numbers\ntry:   attn_implementation: auto");
    if (request->attention == EBB_ATTENTION_CUDNN && !had->library)
        return EBB_FAIL(engine->ctx, EBB_BAD_CONFIG,
                        "the checkpoint was made with attention by plain kernels, and a run that "
                        "goes on from it keeps its numbers\ntry:   attn_implementation: auto");
    return EBB_OK;
}

static void warn_of_plain(struct ebb_engine *engine, const char *cause, const char *why)
{
    if (engine->request.storage == EBB_BF16)
        ebb_warn_once(engine->ctx, "attention.plain",
                      "attention runs on Ebb's own kernels, which use no tensor cores: %s%s", cause,
                      why);
}

/* The best way for this model, within what was asked for. */
static enum ebb_status choose_way(struct ebb_engine *engine, struct ebb_attention_way *way)
{
    const struct ebb_engine_request *request = &engine->request;
    const struct ebb_model_config *c = engine->config;
    const struct ebb_attention_shape shape = {.heads = c->heads,
                                              .kv_heads = c->kv_heads,
                                              .qk_dim = c->head_dim,
                                              .v_dim = c->head_dim};
    char why[160] = "";
    if (request->attention == EBB_ATTENTION_PLAIN) {
        way->deterministic = true;
        if (!request->blank) warn_of_plain(engine, "attn_implementation asks for them", "");
        return EBB_OK;
    }
    *way = ebb_attention_way(&shape, request->storage, request->capacity.doc_tokens,
                             request->deterministic, why, sizeof why);
    if (way->library) return EBB_OK;
    if (request->attention == EBB_ATTENTION_CUDNN)
        return EBB_FAIL(engine->ctx, EBB_BAD_CONFIG,
                        "attn_implementation: cudnn: cuDNN cannot take this model's attention: "
                        "%s\ntry:   attn_implementation: auto",
                        why);
    warn_of_plain(engine, "cuDNN cannot take this model's: ", why);
    return EBB_OK;
}

/* How attention runs: as the checkpoint's did, or the best way. */
static enum ebb_status settle_attention(struct ebb_engine *engine, struct ebb_numerics *numerics)
{
    const struct ebb_engine_request *request = &engine->request;
    struct ebb_attention_way *way = &numerics->attention;
    if (request->backend == EBB_BACKEND_CPU) {
        way->deterministic = true;
        return EBB_OK;
    }
    if (request->numerics) {
        EBB_TRY(check_way(engine, &request->numerics->attention));
        *way = request->numerics->attention;
    } else {
        EBB_TRY(choose_way(engine, way));
    }
    /* Decoding is by plain kernels in any case. */
    if (!way->library || request->planned || (!request->train && !request->evaluate)) return EBB_OK;
    EBB_TRY(
        ebb_attention_lib_create(engine->ctx, way, request->cache_dir, &engine->libs.attention));
    snprintf(numerics->attention_library, sizeof numerics->attention_library, "%s",
             ebb_attention_lib_version(engine->libs.attention));
    if (request->numerics)
        warn_of_version(engine, "numerics.attention", request->numerics->attention_library,
                        numerics->attention_library);
    return EBB_OK;
}

/* The numerics of a checkpoint are binding: where this machine cannot follow, that is an error
 * and not a surprise. */
static enum ebb_status settle_numerics(struct ebb_engine *engine, struct ebb_numerics *numerics)
{
    const struct ebb_engine_request *request = &engine->request;
    memset(numerics, 0, sizeof *numerics);
    numerics->storage = request->storage;
    numerics->threads = request->numerics      ? request->numerics->threads
                        : request->threads > 0 ? request->threads
                                               : ebb_cpu_count();
    snprintf(numerics->backend, sizeof numerics->backend, "%s", ebb_backend_name(request->backend));
    if (request->numerics && strcmp(request->numerics->backend, numerics->backend) != 0)
        return EBB_FAIL(engine->ctx, EBB_BAD_CONFIG,
                        "the checkpoint was made on device '%s', this run is on '%s': it would not "
                        "go on with the same numbers\ntry:   device: %s",
                        request->numerics->backend, numerics->backend, request->numerics->backend);
    struct ebb_op_target target = ebb_numerics_target(numerics);
    EBB_TRY((request->planned ? ebb_matmul_lib_create_planned
                              : ebb_matmul_lib_create)(engine->ctx, &target, &engine->libs.matmul));
    snprintf(numerics->matmul, sizeof numerics->matmul, "%s",
             ebb_matmul_lib_version(engine->libs.matmul));
    /* Logits of a teacher stand beside the model's own, those of a reference are gone before. */
    int64_t logits = engine->config->vocab, second = engine->teacher ? engine->teacher->vocab : 0;
    if (!ebb_objective_prefers(&request->objective))
        logits += second;
    else if (second > logits)
        logits = second;
    int64_t ffn = engine->config->ffn;
    if (engine->teacher && engine->teacher->ffn > ffn) ffn = engine->teacher->ffn;
    ebb_numerics_choose(numerics, logits, ffn, &request->capacity);
    EBB_TRY(settle_attention(engine, numerics));
    if (!request->numerics) return EBB_OK;
    warn_of_version(engine, "numerics.matmul", request->numerics->matmul, numerics->matmul);
    numerics->tile_tokens = request->numerics->tile_tokens;
    numerics->head_chunk = request->numerics->head_chunk;
    return EBB_OK;
}

static enum ebb_status create_plan(struct ebb_engine *engine, const struct ebb_net *net,
                                   const struct ebb_numerics *numerics, struct ebb_plan **made)
{
    const struct ebb_engine_request *request = &engine->request;
    struct ebb_plan_request plan = {.net = net,
                                    .numerics = *numerics,
                                    .matmul = engine->libs.matmul,
                                    .capacity = request->capacity,
                                    .memory = request->memory,
                                    .accumulation = request->accumulation,
                                    .breadth_first = request->breadth_first,
                                    .optimizer = request->optimizer,
                                    .streams = request->streams,
                                    .rates = request->rates,
                                    .load = request->load,
                                    .device_budget = request->device_budget,
                                    .overhead_bytes = request->overhead_bytes,
                                    .host_budget = request->host_budget,
                                    .pinned_budget = request->pinned_budget,
                                    .poison = request->poison,
                                    .apart = request->apart,
                                    .one_buffer = request->one_buffer};
    plan.programs[EBB_PROGRAM_TRAIN] = plan.programs[EBB_PROGRAM_UPDATE] = request->train;
    plan.programs[EBB_PROGRAM_EVAL] = request->evaluate;
    plan.programs[EBB_PROGRAM_DECODE] = request->decode;
    return ebb_plan_create(engine->ctx, &plan, made);
}

/* Rows of embeddings take host memory. Where a run would fit but for that, their tables stand on
 * the device. */
static enum ebb_status try_tables(struct ebb_engine *engine, const struct ebb_numerics *numerics)
{
    struct ebb_net *net = NULL;
    struct ebb_plan *plan = NULL;
    bool used;
    EBB_TRY(create_net(engine, false, &net, &used));
    enum ebb_status status = create_plan(engine, net, numerics, &plan);
    if (status == EBB_OK && plan->fits) {
        struct ebb_net *other_net = engine->net;
        struct ebb_plan *other_plan = engine->plan;
        engine->net = net;
        engine->plan = plan;
        net = other_net;
        plan = other_plan;
    }
    ebb_plan_free(engine->ctx, plan);
    ebb_decoder_free(engine->ctx, net);
    return status;
}

static enum ebb_status create_net_and_plan(struct ebb_engine *engine)
{
    struct ebb_numerics numerics;
    bool rows;
    EBB_TRY(create_net(engine, true, &engine->net, &rows));
    EBB_TRY(settle_numerics(engine, &numerics));
    EBB_TRY(create_plan(engine, engine->net, &numerics, &engine->plan));
    if (engine->plan->fits || !rows || engine->request.host_budget == 0) return EBB_OK;
    return try_tables(engine, &numerics);
}

enum ebb_status ebb_engine_create(struct ebb_ctx *ctx, const struct ebb_engine_request *request,
                                  struct ebb_engine **engine_out)
{
    struct ebb_engine *engine = (struct ebb_engine *)ebb_mem_alloc(ctx, sizeof *engine);
    *engine_out = NULL;
    if (!engine) return EBB_NO_MEMORY;
    engine->ctx = ctx;
    engine->no_gradients = true;
    engine->request = *request;
    enum ebb_status status = ebb_model_config_load(ctx, request->model_dir, &engine->config);
    if (status == EBB_OK) status = ebb_weight_list_create(ctx, engine->config, &engine->weights);
    if (status == EBB_OK) status = load_adapter_config(engine);
    if (status == EBB_OK) status = load_teacher_config(engine);
    if (status == EBB_OK) status = create_net_and_plan(engine);
    if (status != EBB_OK) {
        ebb_engine_free(engine);
        return status;
    }
    *engine_out = engine;
    return EBB_OK;
}

void ebb_engine_free(struct ebb_engine *engine)
{
    if (!engine) return;
    struct ebb_ctx *ctx = engine->ctx;
    if (engine->device) (void)ebb_device_sync(engine->device);
    for (int i = EBB_PROGRAM_COUNT - 1; i >= 0; i--)
        if (engine->executors[i] != engine->first) ebb_executor_free(engine->executors[i]);
    ebb_executor_free(engine->first);
    ebb_engine_close_tables(engine);
    ebb_device_free(engine->device);
    ebb_profile_free(engine->profile);
    ebb_mem_free(ctx, engine->logits);
    ebb_plan_free(ctx, engine->plan);
    ebb_decoder_free(ctx, engine->net);
    ebb_matmul_lib_free(engine->libs.matmul);
    ebb_attention_lib_free(engine->libs.attention);
    ebb_mem_free(ctx, engine->doc_starts);
    if (engine->owns_adapter) ebb_adapter_config_clear(ctx, &engine->adapter_config);
    ebb_weight_list_free(ctx, &engine->weights);
    ebb_model_config_free(ctx, engine->config);
    ebb_weight_list_free(ctx, &engine->teacher_weights);
    ebb_model_config_free(ctx, engine->teacher);
    ebb_mem_free(ctx, engine);
}

/* ---- opening ---- */

/* Programs that training's steps are made of. */
static bool has_steps(enum ebb_program_kind kind)
{
    return kind == EBB_PROGRAM_TRAIN || kind == EBB_PROGRAM_UPDATE;
}

static enum ebb_status create_executors(struct ebb_engine *engine)
{
    struct ebb_executor_options options = {.checksums = engine->request.checksums,
                                           .own_allocations = engine->request.own_allocations,
                                           .doc_starts = engine->doc_starts,
                                           .doc_starts_stride = engine->request.capacity.docs + 1};
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++) {
        if (!engine->plan->programs[i]) continue;
        options.share = engine->first;
        options.profile = engine->profile && has_steps((enum ebb_program_kind)i);
        EBB_TRY(ebb_executor_create(engine->ctx, engine->device, &engine->libs,
                                    engine->plan->programs[i], &options, &engine->executors[i]));
        if (!engine->first) engine->first = engine->executors[i];
    }
    return EBB_OK;
}

static enum ebb_status fill_rope(struct ebb_engine *engine, const struct ebb_net *net,
                                 const struct ebb_model_config *config)
{
    int64_t rows, dim = config->head_dim;
    int32_t tensor = ebb_decoder_rope_tensor(net, &rows);
    size_t bytes = (size_t)(rows * dim) * sizeof(float);
    float *table = (float *)ebb_mem_alloc(engine->ctx, bytes);
    if (!table) return EBB_NO_MEMORY;
    ebb_rope_table(&config->rope, dim, 0, rows, table);
    enum ebb_status status =
        ebb_device_copy(engine->device, ebb_engine_tensor(engine, tensor), table, (int64_t)bytes);
    ebb_mem_free(engine->ctx, table);
    return status;
}

/* Whatever attention may ask its library for is made before the first step. */
static enum ebb_status prepare_attention(struct ebb_engine *engine)
{
    const struct ebb_capacity *capacity = &engine->request.capacity;
    if (!engine->libs.attention) return EBB_OK;
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++) {
        const struct ebb_program *program = engine->plan->programs[i];
        if (!program) continue;
        for (int32_t e = 0; e < ebb_program_entries(program); e++) {
            const struct ebb_entry *entry = ebb_program_entry_at(program, e);
            if (entry->kind != EBB_ENTRY_OP) continue;
            EBB_TRY(ebb_attention_prepare(engine->libs.attention, (enum ebb_op)entry->op,
                                          ebb_program_args(program, entry), capacity->docs,
                                          capacity->doc_tokens));
        }
    }
    return EBB_OK;
}

enum ebb_status ebb_engine_make_ready(struct ebb_engine *engine)
{
    EBB_TRY(ebb_engine_reserve(engine));
    size_t starts = (size_t)(engine->plan->micros * (engine->request.capacity.docs + 1));
    engine->doc_starts = (int32_t *)ebb_mem_alloc(engine->ctx, starts * sizeof *engine->doc_starts);
    if (!engine->doc_starts) return EBB_NO_MEMORY;
    if (engine->request.profile)
        EBB_TRY(ebb_profile_create(engine->ctx, &engine->plan->request.numerics, &engine->profile));
    EBB_TRY(create_executors(engine));
    EBB_TRY(prepare_attention(engine));
    engine->ready = true;
    return EBB_OK;
}

enum ebb_status ebb_engine_open(struct ebb_engine *engine)
{
    if (!engine->ready) EBB_TRY(ebb_engine_make_ready(engine));
    if (engine->request.decode) {
        engine->logits = (float *)ebb_mem_alloc(engine->ctx, (size_t)engine->config->vocab *
                                                                 sizeof *engine->logits);
        if (!engine->logits) return EBB_NO_MEMORY;
    }
    EBB_TRY(fill_rope(engine, engine->net, engine->config));
    if (engine->teacher)
        EBB_TRY(fill_rope(engine, ebb_decoder_teacher(engine->net), engine->teacher));
    double start = ebb_clock_seconds();
    EBB_TRY(ebb_engine_load_weights(engine));
    engine->load_seconds = ebb_clock_seconds() - start;
    return ebb_engine_settle_pins(engine);
}

void *ebb_engine_tensor(const struct ebb_engine *engine, int32_t tensor)
{
    return ebb_executor_tensor(engine->first, tensor);
}

void *ebb_engine_input(const struct ebb_engine *engine, int32_t tensor, int32_t slot)
{
    return (char *)ebb_engine_tensor(engine, tensor) +
           slot * ebb_net_input_stride(engine->net->tensors[tensor].bytes);
}

/* ---- steps ---- */

void ebb_engine_begin(struct ebb_engine *engine)
{
    engine->waiting_count = 0;
    memset(&engine->sums, 0, sizeof engine->sums);
    engine->fresh = true;
}

struct ebb_sums ebb_engine_sums(const struct ebb_engine *engine)
{
    return engine->sums;
}

static enum ebb_status put(struct ebb_engine *engine, int32_t tensor, int32_t slot,
                           const int32_t *values, int64_t count)
{
    return ebb_device_copy(engine->device, ebb_engine_input(engine, tensor, slot), values,
                           count * (int64_t)sizeof *values);
}

static int32_t *starts_of(const struct ebb_engine *engine, int32_t slot)
{
    return engine->doc_starts + slot * (engine->request.capacity.docs + 1);
}

static enum ebb_status add_to_profile(struct ebb_engine *engine, enum ebb_program_kind kind,
                                      const struct ebb_step *steps, int32_t count)
{
    struct ebb_op_env envs[EBB_MICROS_MOST];
    for (int32_t i = 0; i < count; i++)
        envs[i] = (struct ebb_op_env){.ctx = engine->ctx,
                                      .step = &steps[i],
                                      .doc_starts = starts_of(engine, i)};
    return ebb_profile_add(engine->profile, engine->executors[kind], engine->plan->programs[kind],
                           envs, count, kind == EBB_PROGRAM_UPDATE);
}

/* Sets gradients to zero, those too that live in host memory. */
static enum ebb_status zero_gradients(struct ebb_engine *engine)
{
    for (int32_t i = 0; i < engine->net->param_count; i++) {
        const struct ebb_param *param = &engine->net->params[i];
        int64_t bytes = param->w.rows * param->w.cols * (int64_t)sizeof(float);
        void *grad = ebb_engine_tensor(engine, param->grad);
        if (engine->plan->persistent[param->grad].space == EBB_SPACE_HOST) {
            ebb_device_host_ready(engine->device);
            memset(grad, 0, (size_t)bytes);
        } else {
            EBB_TRY(ebb_device_fill(engine->device, grad, 0, bytes));
        }
    }
    return EBB_OK;
}

/* Runs a program on micro-batches that have been put, and waits. */
static enum ebb_status run_steps(struct ebb_engine *engine, enum ebb_program_kind kind,
                                 struct ebb_step *steps, int32_t count)
{
    EBB_ASSERT(engine->executors[kind]);
    void *step = ebb_engine_tensor(engine, engine->net->inputs.step),
         *sums = ebb_engine_tensor(engine, engine->net->inputs.sums);
    if (kind == EBB_PROGRAM_UPDATE && engine->no_gradients) EBB_TRY(zero_gradients(engine));
    for (int32_t i = 0; i < count; i++) {
        steps[i].seed = engine->request.seed;
        steps[i].max_grad_norm = engine->request.max_grad_norm;
        steps[i].first = engine->no_gradients;
    }
    if (kind == EBB_PROGRAM_TRAIN) engine->no_gradients = false;
    if (kind == EBB_PROGRAM_UPDATE) engine->no_gradients = true;
    EBB_TRY(ebb_device_copy(engine->device, step, steps, sizeof *steps));
    if (engine->fresh)
        EBB_TRY(ebb_device_copy(engine->device, sums, &engine->sums, sizeof engine->sums));
    engine->fresh = false;
    EBB_TRY(ebb_executor_run(engine->executors[kind], steps, count));
    EBB_TRY(ebb_device_sync(engine->device));
    if (engine->profile && has_steps(kind)) EBB_TRY(add_to_profile(engine, kind, steps, count));
    return ebb_device_copy(engine->device, &engine->sums, sums, sizeof engine->sums);
}

enum ebb_status ebb_engine_run(struct ebb_engine *engine, enum ebb_program_kind kind)
{
    return run_steps(engine, kind, &engine->step, 1);
}

enum ebb_status ebb_engine_flush(struct ebb_engine *engine)
{
    int32_t count = engine->waiting_count;
    if (count == 0) return EBB_OK;
    engine->waiting_count = 0;
    return run_steps(engine, EBB_PROGRAM_TRAIN, engine->waiting, count);
}

/* What a program reads of a micro-batch. */
static enum ebb_status put_batch(struct ebb_engine *engine, int32_t slot,
                                 const struct ebb_batch *batch)
{
    const struct ebb_net_inputs *in = &engine->net->inputs;
    EBB_TRY(ebb_engine_put_ids(engine, slot, batch->ids, batch->tokens, true));
    EBB_TRY(put(engine, in->targets, slot, batch->targets, batch->tokens));
    EBB_TRY(put(engine, in->positions, slot, batch->positions, batch->tokens));
    EBB_TRY(put(engine, in->doc_starts, slot, batch->doc_starts, batch->docs + 1));
    memcpy(starts_of(engine, slot), batch->doc_starts,
           (size_t)(batch->docs + 1) * sizeof *engine->doc_starts);
    return put(engine, in->label_rows, slot, batch->label_rows, batch->labels);
}

enum ebb_status ebb_engine_micro(struct ebb_engine *engine, enum ebb_program_kind kind,
                                 const struct ebb_batch *batch, uint64_t step, uint32_t micro)
{
    const struct ebb_capacity *capacity = &engine->request.capacity;
    const bool waits = kind == EBB_PROGRAM_TRAIN && engine->plan->micros > 1;
    EBB_ASSERT(waits || engine->waiting_count == 0);
    if (batch->tokens > capacity->tokens || batch->docs > capacity->docs ||
        batch->longest > capacity->doc_tokens)
        return EBB_FAIL(engine->ctx, EBB_FAILED,
                        "a micro-batch of %lld tokens in %lld documents (longest %lld) is beyond "
                        "the plan's capacity "
                        "of %lld tokens in %lld documents (longest %lld)",
                        (long long)batch->tokens, (long long)batch->docs, (long long)batch->longest,
                        (long long)capacity->tokens, (long long)capacity->docs,
                        (long long)capacity->doc_tokens);
    if (batch->tokens == 0) return EBB_OK;
    EBB_TRY(put_batch(engine, engine->waiting_count, batch));
    engine->step.tokens = batch->tokens;
    engine->step.docs = batch->docs;
    engine->step.labels = batch->labels;
    engine->step.longest = batch->longest;
    engine->step.cached = 0;
    engine->step.step = step;
    engine->step.micro = micro;
    if (!waits) return ebb_engine_run(engine, kind);
    engine->waiting[engine->waiting_count++] = engine->step;
    return engine->waiting_count == engine->plan->micros ? ebb_engine_flush(engine) : EBB_OK;
}

enum ebb_status ebb_engine_put_top(struct ebb_engine *engine, int64_t labels, const int32_t *ids,
                                   const void *logprobs)
{
    const struct ebb_objective *objective = &engine->request.objective;
    const struct ebb_net_inputs *in = &engine->net->inputs;
    int64_t count = labels * objective->top_k;
    EBB_ASSERT(in->top_ids >= 0 && labels <= engine->request.capacity.tokens);
    EBB_TRY(put(engine, in->top_ids, 0, ids, count));
    return ebb_device_copy(engine->device, ebb_engine_tensor(engine, in->top_logprobs), logprobs,
                           count * ebb_dtype_bytes(objective->top_dtype));
}

enum ebb_status ebb_engine_get_top(const struct ebb_engine *engine, int64_t labels, int32_t *ids,
                                   void *logprobs)
{
    const struct ebb_objective *objective = &engine->request.objective;
    const struct ebb_net_inputs *in = &engine->net->inputs;
    int64_t count = labels * objective->top_k;
    EBB_ASSERT(in->top_ids >= 0 && labels <= engine->request.capacity.tokens);
    EBB_TRY(ebb_device_copy(engine->device, ids, ebb_engine_tensor(engine, in->top_ids),
                            count * (int64_t)sizeof *ids));
    return ebb_device_copy(engine->device, logprobs, ebb_engine_tensor(engine, in->top_logprobs),
                           count * ebb_dtype_bytes(objective->top_dtype));
}

enum ebb_status ebb_engine_put_logprobs(struct ebb_engine *engine, int64_t labels,
                                        const float *logprobs)
{
    int32_t tensor = engine->net->inputs.logprobs;
    EBB_ASSERT(tensor >= 0 && labels <= engine->request.capacity.tokens);
    return ebb_device_copy(engine->device, ebb_engine_tensor(engine, tensor), logprobs,
                           labels * (int64_t)sizeof *logprobs);
}

enum ebb_status ebb_engine_get_logprobs(const struct ebb_engine *engine, int64_t labels,
                                        float *logprobs)
{
    int32_t tensor = engine->net->inputs.logprobs;
    EBB_ASSERT(tensor >= 0 && labels <= engine->request.capacity.tokens);
    return ebb_device_copy(engine->device, logprobs, ebb_engine_tensor(engine, tensor),
                           labels * (int64_t)sizeof *logprobs);
}

enum ebb_status ebb_engine_put_kinds(struct ebb_engine *engine, int64_t docs, const int32_t *kinds)
{
    EBB_ASSERT(engine->net->inputs.kinds >= 0 && docs <= engine->request.capacity.docs);
    return put(engine, engine->net->inputs.kinds, 0, kinds, docs);
}

enum ebb_status ebb_engine_update(struct ebb_engine *engine, uint64_t step, double learning_rate,
                                  double total_weight)
{
    const struct ebb_optimizer_keys *keys = &engine->request.optimizer;
    EBB_ASSERT(engine->waiting_count == 0);
    engine->step.step = step;
    engine->step.micro = 0;
    engine->step.learning_rate = learning_rate;
    engine->step.total_weight = total_weight;
    engine->step.bias1 = 1 - pow(keys->beta1, (double)step);
    engine->step.bias2 = 1 - pow(keys->beta2, (double)step);
    return ebb_engine_run(engine, EBB_PROGRAM_UPDATE);
}

enum ebb_status ebb_engine_drop_gradients(struct ebb_engine *engine)
{
    engine->no_gradients = true;
    engine->waiting_count = 0;
    return zero_gradients(engine);
}

enum ebb_status ebb_engine_decode(struct ebb_engine *engine, const int32_t *ids, int64_t count,
                                  int64_t cached, const float **logits)
{
    const struct ebb_net_inputs *in = &engine->net->inputs;
    int64_t cache = engine->request.capacity.cache_tokens,
            tile = engine->plan->request.numerics.tile_tokens;
    if (tile > engine->request.capacity.tokens) tile = engine->request.capacity.tokens;
    if (tile > cache) tile = cache;
    if (cached + count > cache)
        return EBB_FAIL(engine->ctx, EBB_FAILED,
                        "%lld tokens do not fit the key and value cache of %lld",
                        (long long)(cached + count), (long long)cache);
    for (int64_t at = 0; at < count; at += tile) {
        int64_t n = count - at < tile ? count - at : tile;
        int32_t last = (int32_t)(n - 1);
        EBB_TRY(ebb_engine_put_ids(engine, 0, ids + at, n, false));
        EBB_TRY(put(engine, in->label_rows, 0, &last, 1));
        engine->step.tokens = n;
        engine->step.docs = 1;
        engine->step.labels = 1;
        engine->step.longest = n;
        engine->step.cached = cached + at;
        EBB_TRY(ebb_engine_run(engine, EBB_PROGRAM_DECODE));
    }
    *logits = engine->logits;
    return ebb_device_copy(engine->device, engine->logits,
                           ebb_executor_tensor(engine->executors[EBB_PROGRAM_DECODE],
                                               ebb_decoder_logits_tensor(engine->net)),
                           engine->config->vocab * (int64_t)sizeof *engine->logits);
}

/* ---- what callers read ---- */

const struct ebb_plan *ebb_engine_plan(const struct ebb_engine *engine)
{
    return engine->plan;
}

const struct ebb_net *ebb_engine_net(const struct ebb_engine *engine)
{
    return engine->net;
}

const struct ebb_model_config *ebb_engine_config(const struct ebb_engine *engine)
{
    return engine->config;
}

const struct ebb_weight_list *ebb_engine_weights(const struct ebb_engine *engine)
{
    return &engine->weights;
}

const struct ebb_model_config *ebb_engine_teacher(const struct ebb_engine *engine)
{
    return engine->teacher;
}

const struct ebb_adapter_config *ebb_engine_adapter(const struct ebb_engine *engine)
{
    return engine->adapter_config.rank > 0 ? &engine->adapter_config : NULL;
}

struct ebb_ctx *ebb_engine_context(const struct ebb_engine *engine)
{
    return engine->ctx;
}

const struct ebb_objective *ebb_engine_objective(const struct ebb_engine *engine)
{
    return &engine->request.objective;
}

struct ebb_device *ebb_engine_device(const struct ebb_engine *engine)
{
    return engine->device;
}

struct ebb_profile *ebb_engine_profile(const struct ebb_engine *engine)
{
    return engine->profile;
}

void ebb_engine_parameters(const struct ebb_engine *engine, int64_t *trained, int64_t *all)
{
    *trained = 0;
    *all = ebb_model_config_parameters(engine->config);
    for (int32_t i = 0; i < engine->net->param_count; i++)
        *trained += engine->net->params[i].w.rows * engine->net->params[i].w.cols;
}

struct ebb_engine_usage ebb_engine_usage(const struct ebb_engine *engine)
{
    struct ebb_engine_usage usage;
    struct ebb_device_counters counters;
    memset(&usage, 0, sizeof usage);
    usage.predicted_device_bytes = engine->plan->device_bytes;
    usage.load_seconds = engine->load_seconds;
    if (!engine->device) return usage;
    ebb_device_counters(engine->device, &counters);
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++) {
        if (!engine->executors[i]) continue;
        int64_t peak = ebb_executor_peak_bytes(engine->executors[i]);
        if (peak > usage.peak_device_bytes) usage.peak_device_bytes = peak;
    }
    usage.process_device_bytes = ebb_device_bytes_process(engine->device, NULL);
    usage.host_bytes = ebb_device_bytes(engine->device, EBB_SPACE_HOST);
    usage.bytes_out = counters.bytes_out;
    usage.bytes_in = counters.bytes_in;
    usage.stall_seconds = counters.stall_seconds;
    return usage;
}
