/* Identity: texts that say what a run is, so that a checkpoint of another run is refused with the
 * reason.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "train/checkpoint.h"
#include "train/engine_int.h"
#include "train/feed.h"

enum { SAMPLED_MICROS = 4096, SAMPLED_ROWS = 256, TEXT_BYTES = 512 };

/* What each key is called in messages. Those of the second table may differ; the run is then
 * another from here on. `absent`: what a checkpoint says that was written before there was the key;
 * NULL: it is a broken one. */
struct key {
    const char *key, *words, *absent;
};
#define CROSS_ENTROPY "cross-entropy"
#define NO_MODEL      "none"
static const struct key strict_keys[] = {
    {"model", "another model", NULL},
    {"method", "another method", NULL},
    {"storage", "another storage type", NULL},
    {"weights", "other base weights", NULL},
    {"objective", "another loss", CROSS_ENTROPY},
    {"teacher", "another teacher", NO_MODEL},
    {"reference", "another reference", NO_MODEL},
    {"optimizer", "another optimizer", NULL},
    {"data", "other training data or another order of it", NULL},
    {"accumulation", "another gradient_accumulation_steps", NULL},
    {"seed", "another seed", NULL},
    {"world", "another number of processes", NULL},
};
static const struct key soft_keys[] = {
    {"schedule", "learning-rate schedule", NULL},
    {"optimizer_keys", "optimizer settings", NULL},
};

/* ---- making one ------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    uint64_t pair[2] = {hash, ebb_hash_bytes(data, bytes)};
    return ebb_hash_bytes(pair, sizeof pair);
}

/* First, middle and last row of every weight as the engine holds it: enough to tell two models of
 * one shape apart. */
static enum ebb_status hash_weights(const struct ebb_engine *engine, const struct ebb_net *net,
                                    const struct ebb_weight_list *weights, uint64_t *hash)
{
    enum ebb_status status = EBB_OK;
    *hash = 0;
    for (int64_t i = 0; i < weights->count && status == EBB_OK; i++) {
        struct ebb_view view = ebb_decoder_weight(net, i);
        int64_t rows = weights->items[i].rows,
                bytes = view.cols * ebb_dtype_bytes((enum ebb_dtype)view.dtype);
        const int64_t picks[3] = {0, rows / 2, rows - 1};
        void *row = ebb_mem_alloc(engine->ctx, (size_t)bytes);
        if (row == NULL) return EBB_NO_MEMORY;
        for (int k = 0; k < 3 && status == EBB_OK; k++) {
            status = ebb_engine_get_weight(engine, net, i, picks[k], 1, row);
            if (status == EBB_OK) *hash = mix(*hash, row, (size_t)bytes);
        }
        ebb_mem_free(engine->ctx, row);
    }
    return status;
}

/* The verdict on a document is training data too, and stands in no token of it. */
static enum ebb_status mix_kinds(const struct ebb_trainer_request *request,
                                 const struct ebb_batch *batch, uint64_t *hash)
{
    if (!request->train_feed || !ebb_objective_has_kinds(&request->engine->request.objective))
        return EBB_OK;
    EBB_TRY(ebb_feed_put(request->train_feed, request->engine, request->train, batch));
    *hash = mix(*hash, ebb_feed_kinds(request->train_feed), (size_t)batch->docs * sizeof(int32_t));
    return EBB_OK;
}

/* Micro-batch i of `count` that are spread over an epoch. */
static enum ebb_status spread_micro(struct ebb_ctx *ctx, struct ebb_loader *loader, int64_t i,
                                    int64_t count, const struct ebb_batch **batch)
{
    int64_t micros = ebb_loader_describe(loader)->micros_per_epoch;
    struct ebb_loader_place at = {0, count > 1 ? i * (micros - 1) / (count - 1) : 0};
    EBB_TRY(ebb_loader_seek(ctx, loader, at));
    return ebb_loader_next(ctx, loader, batch);
}

static enum ebb_status hash_data(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                 uint64_t *hash)
{
    struct ebb_loader *loader = request->train;
    const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
    struct ebb_loader_place place = ebb_loader_tell(loader);
    int64_t micros = facts->micros_per_epoch,
            count = micros < SAMPLED_MICROS ? micros : SAMPLED_MICROS;
    *hash = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct ebb_batch *batch;
        EBB_TRY(spread_micro(ctx, loader, i, count, &batch));
        *hash = mix(*hash, batch->ids, (size_t)batch->tokens * sizeof *batch->ids);
        *hash = mix(*hash, batch->targets, (size_t)batch->tokens * sizeof *batch->targets);
        *hash =
            mix(*hash, batch->doc_starts, (size_t)(batch->docs + 1) * sizeof *batch->doc_starts);
        EBB_TRY(mix_kinds(request, batch, hash));
    }
    return ebb_loader_seek(ctx, loader, place);
}

/* What a saved teacher says of some micro-batches, which are spread over the data. */
static enum ebb_status hash_saved(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                  uint64_t *hash)
{
    struct ebb_loader *loader = request->train;
    struct ebb_loader_place place = ebb_loader_tell(loader);
    int64_t micros = ebb_loader_describe(loader)->micros_per_epoch,
            count = micros < SAMPLED_ROWS ? micros : SAMPLED_ROWS;
    *hash = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct ebb_batch *batch;
        EBB_TRY(spread_micro(ctx, loader, i, count, &batch));
        EBB_TRY(ebb_feed_put(request->train_feed, request->engine, loader, batch));
        uint64_t fed = ebb_feed_hash(request->train_feed, batch);
        *hash = mix(*hash, &fed, sizeof fed);
    }
    return ebb_loader_seek(ctx, loader, place);
}

static void describe_method(const struct ebb_engine *engine, char *out, size_t room)
{
    const struct ebb_adapter_config *adapter = ebb_engine_adapter(engine);
    if (!adapter) {
        snprintf(out, room, "every weight");
        return;
    }
    char alpha[EBB_TEXT_DOUBLE], dropout[EBB_TEXT_DOUBLE];
    int used = snprintf(out, room, "LoRA of rank %" PRId64 ", alpha %s, dropout %s%s, on",
                        adapter->rank, ebb_text_from_double(adapter->alpha, alpha),
                        ebb_text_from_double(adapter->dropout, dropout),
                        adapter->rslora ? ", rsLoRA" : "");
    for (int i = 0; i < adapter->target_count && used > 0 && (size_t)used < room; i++)
        used += snprintf(out + used, room - (size_t)used, " %s", adapter->targets[i]);
}

/* What of a config.json changes numbers and shows in no weight. */
static uint64_t hash_config(const struct ebb_model_config *c)
{
    const struct ebb_rope *rope = &c->rope;
    const double numbers[] = {c->norm_eps,
                              rope->kind,
                              rope->theta,
                              rope->factor,
                              rope->low_freq_factor,
                              rope->high_freq_factor,
                              rope->original_max_positions,
                              rope->beta_fast,
                              rope->beta_slow,
                              rope->attention_factor,
                              rope->truncate};
    return mix(mix(0, numbers, sizeof numbers), c->window, (size_t)c->layers * sizeof *c->window);
}

static void describe_model(const struct ebb_model_config *c, char *out, size_t room)
{
    const char *name =
        json_string_value(json_array_get(json_object_get(c->json, "architectures"), 0));
    snprintf(out, room,
             "%s of %" PRId64 " layers, width %" PRId64 ", %" PRId64 " heads of %" PRId64
             " (%" PRId64 " for keys), MLP %" PRId64 ", vocabulary %" PRId64
             "%s, positions, windows and norms %016" PRIx64,
             name ? name : "model", c->layers, c->width, c->heads, c->head_dim, c->kv_heads, c->ffn,
             c->vocab, c->tied ? ", tied head" : "", hash_config(c));
}

static void describe_distillation(const struct ebb_distill_keys *keys, char *out, size_t room)
{
    char ratio[EBB_TEXT_DOUBLE], beta[EBB_TEXT_DOUBLE], temperature[EBB_TEXT_DOUBLE];
    bool weighed = keys->divergence > EBB_REVERSE_KL;
    snprintf(out, room, "%s%s%s, kd_ratio %s, temperature %s%s",
             ebb_divergence_name(keys->divergence), weighed ? " with beta " : "",
             weighed ? ebb_text_from_double(keys->beta, beta) : "",
             ebb_text_from_double(keys->kd_ratio, ratio),
             ebb_text_from_double(keys->temperature, temperature),
             keys->scale_t2 ? ", times its square" : "");
}

static void describe_preference(const struct ebb_preference_keys *keys, char *out, size_t room)
{
    char a[EBB_TEXT_DOUBLE], b[EBB_TEXT_DOUBLE], c[EBB_TEXT_DOUBLE];
    int used = snprintf(out, room, "%s with beta %s, label_smoothing %s",
                        ebb_preference_name(keys->loss_type), ebb_text_from_double(keys->beta, a),
                        ebb_text_from_double(keys->label_smoothing, b));
    if (used < 0 || (size_t)used >= room) return;
    if (keys->loss_type == EBB_PREFERENCE_SIMPO)
        snprintf(out + used, room - (size_t)used, ", simpo_gamma %s",
                 ebb_text_from_double(keys->simpo_gamma, c));
    if (keys->loss_type == EBB_PREFERENCE_KTO)
        snprintf(out + used, room - (size_t)used, ", desirable_weight %s, undesirable_weight %s",
                 ebb_text_from_double(keys->desirable_weight, a),
                 ebb_text_from_double(keys->undesirable_weight, b));
}

/* What the loss is: every number of it. */
static void describe_objective(const struct ebb_objective *objective, char *out, size_t room)
{
    if (ebb_objective_distills(objective))
        describe_distillation(&objective->distill, out, room);
    else if (ebb_objective_prefers(objective))
        describe_preference(&objective->preference, out, room);
    else
        snprintf(out, room, CROSS_ENTROPY);
}

static void describe_schedule(const struct ebb_schedule_keys *keys, int64_t total, char *out,
                              size_t room)
{
    char rate[EBB_TEXT_DOUBLE], warmup[EBB_TEXT_DOUBLE], decay[EBB_TEXT_DOUBLE];
    snprintf(out, room,
             "%s at %s over %" PRId64 " steps, warmup_steps %" PRId64
             ", warmup_ratio %s, decay_ratio %s",
             ebb_schedule_name(keys->schedule), ebb_text_from_double(keys->learning_rate, rate),
             total, keys->warmup_steps, ebb_text_from_double(keys->warmup_ratio, warmup),
             ebb_text_from_double(keys->decay_ratio, decay));
}

static void describe_optimizer(const struct ebb_engine_request *request, char *out, size_t room)
{
    const struct ebb_optimizer_keys *keys = &request->optimizer;
    char a[EBB_TEXT_DOUBLE], b[EBB_TEXT_DOUBLE], c[EBB_TEXT_DOUBLE];
    int used =
        keys->sgd
            ? snprintf(out, room, "momentum %s", ebb_text_from_double(keys->momentum, a))
            : snprintf(out, room, "betas %s and %s, epsilon %s",
                       ebb_text_from_double(keys->beta1, a), ebb_text_from_double(keys->beta2, b),
                       ebb_text_from_double(keys->eps, c));
    if (used > 0 && (size_t)used < room)
        snprintf(out + used, room - (size_t)used, ", weight_decay %s, max_grad_norm %s",
                 ebb_text_from_double(keys->weight_decay, a),
                 ebb_text_from_double(request->max_grad_norm, b));
}

static void describe_data(const struct ebb_loader_facts *facts, uint64_t hash, char *out,
                          size_t room)
{
    snprintf(out, room,
             "%" PRId64 " samples of %" PRId64 " tokens, %" PRId64 " of them trained, in %" PRId64
             " micro-batches (%016" PRIx64 ")",
             facts->docs, facts->tokens, facts->labels, facts->micros_per_epoch, hash);
}

static bool set_text(json_t *object, const char *key, const char *text)
{
    return json_object_set_new(object, key, json_string(text)) == 0;
}

struct hashes {
    uint64_t weights, second, data, saved; /* second: of a teacher's or reference's weights */
};

static void describe_teacher(const struct ebb_engine *engine, const struct hashes *hashes,
                             char *out, size_t room)
{
    const struct ebb_objective *objective = &engine->request.objective;
    snprintf(out, room, NO_MODEL);
    if (objective->kind == EBB_OBJECTIVE_DISTILL_SAVED)
        snprintf(out, room, "saved, %" PRId64 " tokens of each label (%016" PRIx64 ")",
                 objective->top_k, hashes->saved);
    if (objective->kind != EBB_OBJECTIVE_DISTILL) return;
    describe_model(engine->teacher, out, room);
    size_t used = strlen(out);
    snprintf(out + used, room - used, " (%016" PRIx64 ")", hashes->second);
}

static void describe_reference(const struct ebb_engine *engine, const struct hashes *hashes,
                               char *out, size_t room)
{
    static const char *const names[] = {NO_MODEL, "the model without its adapter", "a second model",
                                        "computed beforehand"};
    const struct ebb_objective *objective = &engine->request.objective;
    bool prefers = ebb_objective_prefers(objective);
    snprintf(out, room, "%s", names[prefers ? objective->reference : EBB_REFERENCE_NONE]);
    if (!prefers || objective->reference != EBB_REFERENCE_MODEL) return;
    describe_model(engine->teacher, out, room);
    size_t used = strlen(out);
    snprintf(out + used, room - used, " (%016" PRIx64 ")", hashes->second);
}

/* `text` is working memory. */
static bool fill_identity(const struct ebb_trainer_request *request, int64_t total_steps,
                          const struct hashes *hashes, json_t *identity, char text[TEXT_BYTES])
{
    const struct ebb_engine *engine = request->engine;
    const struct ebb_engine_request *wanted = &engine->request;
    describe_model(engine->config, text, TEXT_BYTES);
    bool ok = set_text(identity, "model", text);
    describe_method(engine, text, TEXT_BYTES);
    ok = ok && set_text(identity, "method", text);
    ok = ok && set_text(identity, "storage", ebb_dtype_name(wanted->storage));
    snprintf(text, TEXT_BYTES, "%016" PRIx64, hashes->weights);
    ok = ok && set_text(identity, "weights", text);
    describe_objective(&wanted->objective, text, TEXT_BYTES);
    ok = ok && set_text(identity, "objective", text);
    describe_teacher(engine, hashes, text, TEXT_BYTES);
    ok = ok && set_text(identity, "teacher", text);
    describe_reference(engine, hashes, text, TEXT_BYTES);
    ok = ok && set_text(identity, "reference", text);
    snprintf(text, TEXT_BYTES, "%s%s%s", wanted->optimizer.sgd ? "SGD" : "AdamW",
             wanted->optimizer.sgd && wanted->optimizer.momentum > 0 ? " with momentum" : "",
             wanted->stochastic_rounding ? ", stochastic rounding" : "");
    ok = ok && set_text(identity, "optimizer", text);
    describe_data(ebb_loader_describe(request->train), hashes->data, text, TEXT_BYTES);
    ok = ok && set_text(identity, "data", text);
    snprintf(text, TEXT_BYTES, "%" PRId64, request->accumulation);
    ok = ok && set_text(identity, "accumulation", text);
    snprintf(text, TEXT_BYTES, "%" PRIu64, request->seed);
    ok = ok && set_text(identity, "seed", text);
    snprintf(text, TEXT_BYTES, "%" PRIu32, request->world > 0 ? request->world : 1);
    ok = ok && set_text(identity, "world", text);
    describe_schedule(&request->schedule, total_steps, text, TEXT_BYTES);
    ok = ok && set_text(identity, "schedule", text);
    describe_optimizer(wanted, text, TEXT_BYTES);
    return ok && set_text(identity, "optimizer_keys", text);
}

enum ebb_status ebb_identity_create(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                    int64_t total_steps, json_t **identity)
{
    char text[TEXT_BYTES];
    struct hashes hashes = {0};
    const struct ebb_engine *engine = request->engine;
    *identity = NULL;
    EBB_TRY(hash_weights(engine, engine->net, &engine->weights, &hashes.weights));
    if (engine->teacher)
        EBB_TRY(hash_weights(engine, ebb_decoder_teacher(engine->net), &engine->teacher_weights,
                             &hashes.second));
    EBB_TRY(hash_data(ctx, request, &hashes.data));
    if (engine->request.objective.kind == EBB_OBJECTIVE_DISTILL_SAVED && request->train_feed)
        EBB_TRY(hash_saved(ctx, request, &hashes.saved));
    json_t *made = json_object();
    if (!made || !fill_identity(request, total_steps, &hashes, made, text)) {
        json_decref(made);
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while describing the run");
    }
    *identity = made;
    return EBB_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* What the checkpoint has under a key. */
static enum ebb_status had_text(struct ebb_ctx *ctx, const char *checkpoint, const json_t *saved,
                                const struct key *key, const char **had)
{
    bool found = false;
    *had = key->absent;
    return ebb_json_string(ctx, checkpoint, saved, key->key, had, key->absent ? &found : NULL);
}

enum ebb_status ebb_identity_compare(struct ebb_ctx *ctx, const char *checkpoint,
                                     const json_t *saved, const json_t *now)
{
    for (size_t i = 0; i < sizeof strict_keys / sizeof strict_keys[0]; i++) {
        const char *had = NULL, *has = json_string_value(json_object_get(now, strict_keys[i].key));
        EBB_TRY(had_text(ctx, checkpoint, saved, &strict_keys[i], &had));
        if (strcmp(had, has) != 0)
            return EBB_FAIL(
                ctx, EBB_BAD_CONFIG,
                "cannot resume from '%s': it was made with %s\nits %s: %s\nthis run's %s: %s\n"
                "resume with what the run was started with, or start afresh in another output_dir",
                checkpoint, strict_keys[i].words, strict_keys[i].key, had, strict_keys[i].key, has);
    }
    for (size_t i = 0; i < sizeof soft_keys / sizeof soft_keys[0]; i++) {
        const char *had = NULL, *has = json_string_value(json_object_get(now, soft_keys[i].key));
        EBB_TRY(had_text(ctx, checkpoint, saved, &soft_keys[i], &had));
        if (strcmp(had, has) != 0)
            ebb_log(ctx, EBB_LOG_WARNING, "resume",
                    "the %s changes from here on: '%s' had '%s', this run has '%s'",
                    soft_keys[i].words, checkpoint, had, has);
    }
    return EBB_OK;
}
