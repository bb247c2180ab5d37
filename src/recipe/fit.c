/* Plans as tables, and the advice where a run does not fit: every number in it comes from a plan
 * of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/fit.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "model/family.h"
#include "recipe/outlook.h"
#include "recipe/second.h"

enum { SIZE_TEXT = 32 };

/* ---- policies in words ----------------------------------------------------------------------- */

static bool same_policies(const struct ebb_plan *plan, const struct ebb_net *net, int64_t a,
                          int64_t b)
{
    return memcmp(plan->policies.at[a], plan->policies.at[b], (size_t)net->slot_count) == 0;
}

/* The first layer after `first` whose policies differ. */
static int64_t range_end(const struct ebb_plan *plan, const struct ebb_net *net, int64_t first)
{
    int64_t end = first + 1;
    while (end < net->layers && same_policies(plan, net, first, end)) end++;
    return end;
}

/* The period of the policies over the layers: 1, 2 or 4 for the plans that Ebb makes by itself,
 * where the first layer of a period has one setting and the others another; 0: none of these. */
static int64_t policy_period(const struct ebb_plan *plan, const struct ebb_net *net)
{
    static const int64_t periods[] = {1, 2, 4};
    for (size_t i = 0; i < sizeof periods / sizeof periods[0]; i++) {
        bool holds = periods[i] == 1 || net->layers > periods[i];
        for (int64_t layer = 2; holds && layer < periods[i]; layer++)
            holds = same_policies(plan, net, layer, 1);
        for (int64_t layer = periods[i]; holds && layer < net->layers; layer++)
            holds = same_policies(plan, net, layer, layer - periods[i]);
        if (holds) return periods[i];
    }
    return 0;
}

static enum ebb_status add_slots(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                 const struct ebb_net *net, int64_t layer, struct ebb_str *out)
{
    for (int slot = 0; slot < net->slot_count; slot++)
        EBB_TRY(ebb_str_addf(setup->ctx, out, "%s%s %s", slot ? ", " : "", net->slots[slot].name,
                             ebb_policy_name((enum ebb_policy)plan->policies.at[layer][slot])));
    return ebb_str_addf(setup->ctx, out, "\n");
}

/* The end of the layers from `first` on of which every k-th is as it is and the others as the next
 * one; *every 1: they are all alike. */
static int64_t stretch_end(const struct ebb_plan *plan, const struct ebb_net *net, int64_t first,
                           int64_t *every)
{
    int64_t longest = range_end(plan, net, first);
    *every = 1;
    for (int64_t k = 2; k <= 4; k *= 2) {
        int64_t end = first + 1;
        while (end < net->layers &&
               same_policies(plan, net, end, (end - first) % k == 0 ? first : first + 1))
            end++;
        if (end <= longest || end - first <= k) continue;
        longest = end;
        *every = k;
    }
    return longest;
}

static enum ebb_status add_stretch(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                   const struct ebb_net *net, int64_t first, int64_t end,
                                   int64_t every, struct ebb_str *out)
{
    char name[96];
    snprintf(name, sizeof name, "layers %lld, %lld, ... %lld", (long long)first,
             (long long)(first + every), (long long)(first + (end - 1 - first) / every * every));
    EBB_TRY(ebb_str_addf(setup->ctx, out, "%-22s", name));
    EBB_TRY(add_slots(setup, plan, net, first, out));
    EBB_TRY(ebb_str_addf(setup->ctx, out, "%-22s", "  layers between"));
    return add_slots(setup, plan, net, first + 1, out);
}

static enum ebb_status add_policies(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                    const struct ebb_net *net, struct ebb_str *out)
{
    int64_t period = policy_period(plan, net);
    if (period == 1) {
        EBB_TRY(ebb_str_addf(setup->ctx, out, "every layer           "));
        return add_slots(setup, plan, net, 0, out);
    }
    for (int64_t layer = 0; period > 1 && layer < 2; layer++) {
        EBB_TRY(ebb_str_addf(setup->ctx, out,
                             layer == 0 ? "layers 0, %lld, ...      " : "layers between        ",
                             (long long)period));
        EBB_TRY(add_slots(setup, plan, net, layer, out));
    }
    for (int64_t first = 0; period == 0 && first < net->layers;) {
        int64_t every, end = stretch_end(plan, net, first, &every);
        char name[64];
        if (every > 1) {
            EBB_TRY(add_stretch(setup, plan, net, first, end, every, out));
            first = end;
            continue;
        }
        if (end - first == 1)
            snprintf(name, sizeof name, "layer %lld", (long long)first);
        else
            snprintf(name, sizeof name, "layers %lld-%lld", (long long)first, (long long)end - 1);
        EBB_TRY(ebb_str_addf(setup->ctx, out, "%-22s", name));
        EBB_TRY(add_slots(setup, plan, net, first, out));
        first = end;
    }
    return EBB_OK;
}

/* ---- table ----------------------------------------------------------------------------------- */

static const char *kind_name(const struct ebb_setup *setup, enum ebb_kind kind)
{
    return kind == EBB_KIND_TEACHER ? ebb_second_role(setup) : ebb_kind_name(kind);
}

static enum ebb_status add_head(const struct ebb_setup *setup, const struct ebb_engine *engine,
                                struct ebb_str *out)
{
    struct ebb_ctx *ctx = setup->ctx;
    const struct ebb_capacity *capacity = &setup->request.capacity;
    const struct ebb_model_config *second = ebb_engine_teacher(engine);
    const struct ebb_adapter_config *adapter = ebb_engine_adapter(engine);
    int64_t trained = 0, all = 0;
    char number[SIZE_TEXT];
    ebb_engine_parameters(engine, &trained, &all);
    EBB_TRY(
        ebb_str_addf(ctx, out, "model                 %s (%s, %lld layers, %s parameters, %s)\n",
                     setup->base_name, setup->model->family->name, (long long)setup->model->layers,
                     ebb_text_count(all, number, sizeof number),
                     ebb_dtype_name(setup->request.storage)));
    if (adapter)
        EBB_TRY(ebb_str_addf(ctx, out, "trained               LoRA of rank %lld, %s parameters\n",
                             (long long)adapter->rank,
                             ebb_text_count(trained, number, sizeof number)));
    else
        EBB_TRY(ebb_str_addf(ctx, out, "trained               every weight\n"));
    if (second)
        EBB_TRY(ebb_str_addf(ctx, out, "%-22s%s (%s, %lld layers, %s parameters)\n",
                             ebb_second_role(setup), ebb_second_name(setup), second->family->name,
                             (long long)second->layers,
                             ebb_text_count(ebb_model_config_parameters(second), number,
                                            sizeof number)));
    return ebb_str_addf(
        ctx, out, "micro-batch           up to %lld tokens in %lld document%s, the longest %lld\n",
        (long long)capacity->tokens, (long long)capacity->docs, capacity->docs == 1 ? "" : "s",
        (long long)capacity->doc_tokens);
}

static enum ebb_status add_size(struct ebb_ctx *ctx, struct ebb_str *out, const char *name,
                                int64_t bytes)
{
    char size[SIZE_TEXT];
    return ebb_str_addf(ctx, out, "%-22s%12s\n", name, ebb_text_bytes(bytes, size, sizeof size));
}

static enum ebb_status add_verdict(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                   struct ebb_str *out)
{
    char budget[SIZE_TEXT], over[SIZE_TEXT];
    int64_t device = setup->request.device_budget, host = setup->request.host_budget;
    if (!setup->budget_given)
        EBB_TRY(ebb_str_addf(setup->ctx, out, "memory_budget         none given\n"));
    if (device == 0) return EBB_OK;
    int64_t spare = device - plan->total_bytes;
    EBB_TRY(ebb_str_addf(setup->ctx, out, "%s%12s: %s, %s %s\n",
                         setup->budget_given ? "memory_budget         "
                         : setup->gpu        ? "the GPU's memory      "
                                             : "free on the GPU       ",
                         ebb_text_bytes(device, budget, sizeof budget),
                         spare >= 0 ? "fits" : "does not fit",
                         ebb_text_bytes(spare >= 0 ? spare : -spare, over, sizeof over),
                         spare >= 0 ? "to spare" : "short"));
    if (host == 0) return EBB_OK;
    spare = host - plan->host_bytes;
    return ebb_str_addf(setup->ctx, out, "%s%12s: %s, %s %s\n",
                        setup->host_given ? "host_memory_budget    "
                        : setup->gpu      ? "host memory, assumed  "
                                          : "3/4 of host, free     ",
                        ebb_text_bytes(host, budget, sizeof budget),
                        spare >= 0 ? "fits" : "does not fit",
                        ebb_text_bytes(spare >= 0 ? spare : -spare, over, sizeof over),
                        spare >= 0 ? "to spare" : "short");
}

/* Host memory, by kind where more than saved activations and inputs is there. */
static enum ebb_status add_host(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                struct ebb_str *out)
{
    char name[48];
    bool several = false;
    for (int kind = 0; kind < EBB_KIND_INPUTS; kind++)
        several = several || plan->host_kind_bytes[kind] > 0;
    EBB_TRY(add_size(setup->ctx, out, "host memory", plan->host_bytes));
    for (int kind = 0; several && kind < EBB_KIND_COUNT; kind++) {
        if (plan->host_kind_bytes[kind] == 0) continue;
        snprintf(name, sizeof name, "  %s", kind_name(setup, (enum ebb_kind)kind));
        EBB_TRY(add_size(setup->ctx, out, name, plan->host_kind_bytes[kind]));
    }
    return EBB_OK;
}

double ebb_fit_pin_seconds(const struct ebb_setup *setup, const struct ebb_plan *plan)
{
    const struct ebb_rates *rates = setup->request.rates;
    const struct ebb_op_work work = {.bytes = (double)ebb_plan_pinned(plan)};
    if (setup->request.backend != EBB_BACKEND_CUDA || rates == NULL) return 0;
    return work.bytes > 0 ? ebb_cost_seconds(&rates->costs[EBB_COST_PIN], &work) : 0;
}

/* By how much copies of what is not pinned are slower; 0: not known. */
static double slowness(const struct ebb_rates *rates)
{
    if (rates == NULL || !(rates->costs[EBB_COST_COPY_OUT].byte > 0)) return 0;
    return rates->costs[EBB_COST_BOUNCE_OUT].byte / rates->costs[EBB_COST_COPY_OUT].byte;
}

/* A GPU's: what of the host memory is pinned, how long that takes, and what the rest costs. */
static enum ebb_status add_pinned(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                  struct ebb_str *out)
{
    char size[SIZE_TEXT], time[EBB_OUTLOOK_TIME], takes[96] = "", slow[96] = "";
    const double seconds = ebb_fit_pin_seconds(setup, plan), times = slowness(setup->request.rates);
    if (setup->request.backend != EBB_BACKEND_CUDA || plan->host_bytes == 0) return EBB_OK;
    if (seconds > 0)
        snprintf(takes, sizeof takes, ", about %s before the first step",
                 ebb_outlook_time(seconds, time));
    EBB_TRY(ebb_str_addf(setup->ctx, out, "%-22s%12s%s\n", "  pinned",
                         ebb_text_bytes(ebb_plan_pinned(plan), size, sizeof size), takes));
    if (plan->pageable_bytes == 0) return EBB_OK;
    if (times > 1) snprintf(slow, sizeof slow, ", copied %.*f times slower", times < 10, times);
    return ebb_str_addf(setup->ctx, out, "%-22s%12s%s\n", "  through pinned slots",
                        ebb_text_bytes(plan->pageable_bytes, size, sizeof size), slow);
}

enum ebb_status ebb_fit_table(const struct ebb_setup *setup, const struct ebb_engine *engine,
                              struct ebb_str *out)
{
    struct ebb_ctx *ctx = setup->ctx;
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    EBB_TRY(add_head(setup, engine, out));
    EBB_TRY(ebb_str_addf(ctx, out, "choice                %s\n", plan->what));
    EBB_TRY(add_policies(setup, plan, ebb_engine_net(engine), out));
    EBB_TRY(ebb_str_addf(ctx, out, "\n"));
    for (int kind = 0; kind < EBB_KIND_COUNT; kind++)
        if (kind != EBB_KIND_TEACHER || plan->kind_bytes[kind] > 0)
            EBB_TRY(
                add_size(ctx, out, kind_name(setup, (enum ebb_kind)kind), plan->kind_bytes[kind]));
    if (plan->request.overhead_bytes > 0)
        EBB_TRY(add_size(ctx, out, "driver and libraries", plan->request.overhead_bytes));
    EBB_TRY(add_size(ctx, out, "device memory", plan->total_bytes));
    EBB_TRY(add_host(setup, plan, out));
    EBB_TRY(add_pinned(setup, plan, out));
    if (plan->micros > 1)
        EBB_TRY(
            ebb_str_addf(ctx, out, "\nmoved for %d micro-batches at once\n", (int)plan->micros));
    else
        EBB_TRY(ebb_str_addf(ctx, out, "\nmoved in each micro-batch\n"));
    EBB_TRY(add_size(ctx, out, "  to the host", plan->bytes_out));
    EBB_TRY(add_size(ctx, out, "  from the host", plan->bytes_in));
    if (plan->update_in > 0) {
        EBB_TRY(ebb_str_addf(ctx, out, "moved by each optimizer step\n"));
        EBB_TRY(add_size(ctx, out, "  to the host", plan->update_out));
        EBB_TRY(add_size(ctx, out, "  from the host", plan->update_in));
    }
    EBB_TRY(ebb_str_addf(ctx, out, "\n"));
    return add_verdict(setup, plan, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Adds to an object, which is lost where that fails. */
static json_t *with(json_t *object, const char *key, json_t *value)
{
    if (object && json_object_set_new(object, key, value) == 0) return object;
    json_decref(object);
    return NULL;
}

static json_t *kinds_json(const struct ebb_setup *setup, const int64_t bytes[EBB_KIND_COUNT])
{
    json_t *json = json_object();
    for (int kind = 0; kind < EBB_KIND_COUNT; kind++)
        json = with(json, kind_name(setup, (enum ebb_kind)kind), json_integer(bytes[kind]));
    return json;
}

/* Units of a kind: how many there are, and how many are in host memory. */
static json_t *units_json(const struct ebb_plan *plan, enum ebb_unit kind)
{
    int32_t all, away = ebb_plan_away(plan, kind, &all);
    json_t *json = with(json_object(), "parts", json_integer(all));
    return with(json, "in_host_memory", json_integer(away));
}

static json_t *policies_json(const struct ebb_plan *plan, const struct ebb_net *net)
{
    json_t *list = json_array();
    for (int64_t first = 0; list && first < net->layers;) {
        int64_t end = range_end(plan, net, first);
        json_t *range = json_object();
        range = with(range, "first", json_integer(first));
        range = with(range, "last", json_integer(end - 1));
        for (int slot = 0; slot < net->slot_count; slot++)
            range =
                with(range, net->slots[slot].name,
                     json_string(ebb_policy_name((enum ebb_policy)plan->policies.at[first][slot])));
        if (json_array_append_new(list, range) != 0) {
            json_decref(list);
            return NULL;
        }
        first = end;
    }
    return list;
}

json_t *ebb_fit_json(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    const struct ebb_capacity *capacity = &setup->request.capacity;
    const bool gpu = setup->request.backend == EBB_BACKEND_CUDA;
    const double seconds = ebb_fit_pin_seconds(setup, plan);
    int64_t trained = 0, all = 0;
    ebb_engine_parameters(engine, &trained, &all);
    json_t *json = json_object();
    json = with(json, "model", json_string(setup->base_name));
    json = with(json, "dtype", json_string(ebb_dtype_name(setup->request.storage)));
    json = with(json, "parameters", json_integer(all));
    json = with(json, "trained_parameters", json_integer(trained));
    if (!ebb_second_json(setup, engine, json)) {
        json_decref(json);
        json = NULL;
    }
    json = with(json, "tokens", json_integer(capacity->tokens));
    json = with(json, "documents", json_integer(capacity->docs));
    json = with(json, "longest", json_integer(capacity->doc_tokens));
    json = with(json, "fits", json_boolean(plan->fits));
    json = with(json, "choice", json_string(plan->what));
    json = with(json, "memory_budget",
                json_integer(setup->budget_given ? setup->request.device_budget : 0));
    if (!setup->budget_given && setup->request.device_budget > 0)
        json = with(json, "free_bytes", json_integer(setup->request.device_budget));
    json = with(json, "host_memory_budget", json_integer(setup->request.host_budget));
    json = with(json, "device_bytes", json_integer(plan->device_bytes));
    json = with(json, "overhead_bytes", json_integer(plan->request.overhead_bytes));
    json = with(json, "total_bytes", json_integer(plan->total_bytes));
    json = with(json, "host_bytes", json_integer(plan->host_bytes));
    json = with(json, "pinned_bytes", json_integer(gpu ? ebb_plan_pinned(plan) : 0));
    json = with(json, "pageable_bytes", json_integer(plan->pageable_bytes));
    json = with(json, "pin_seconds", seconds > 0 ? json_real(seconds) : json_null());
    json = with(json, "micro_batches_at_once", json_integer(plan->micros));
    json = with(json, "bytes_out", json_integer(plan->bytes_out));
    json = with(json, "bytes_in", json_integer(plan->bytes_in));
    json = with(json, "update_bytes_out", json_integer(plan->update_out));
    json = with(json, "update_bytes_in", json_integer(plan->update_in));
    json = with(json, "device_bytes_by_kind", kinds_json(setup, plan->kind_bytes));
    json = with(json, "host_bytes_by_kind", kinds_json(setup, plan->host_kind_bytes));
    json = with(json, "frozen_matrices", units_json(plan, EBB_UNIT_PARAMS));
    json = with(json, "optimizer_state", units_json(plan, EBB_UNIT_OPTIMIZER));
    json = with(json, "layers", policies_json(plan, ebb_engine_net(engine)));
    if (json == NULL) EBB_FAIL(setup->ctx, EBB_NO_MEMORY, "no memory for the plan as JSON");
    return json;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* A run with one thing changed. `adapter` is there for changes that need one. */
struct trial {
    struct ebb_engine_request request;
    struct ebb_adapter_config adapter;
    char text[160];
};

/* Changes the trial; false where that change is none here. */
typedef bool (*change_fn)(const struct ebb_setup *setup, struct trial *trial);

static bool drop_rules(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->request.memory.rule_count == 0) return false;
    trial->request.memory = (struct ebb_memory_keys){.rule_count = 0};
    snprintf(trial->text, sizeof trial->text, "leave 'activations' out, so that the plan decides");
    return true;
}

static bool allow_offloading(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->request.memory.rule_count > 0 ||
        setup->request.memory.activation_offloading != EBB_FALSE)
        return false;
    trial->request.memory.activation_offloading = EBB_TRUE;
    snprintf(trial->text, sizeof trial->text, "activation_offloading: true");
    return true;
}

static bool allow_checkpointing(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->request.memory.rule_count > 0 ||
        setup->request.memory.gradient_checkpointing != EBB_FALSE)
        return false;
    trial->request.memory.gradient_checkpointing = EBB_TRUE;
    snprintf(trial->text, sizeof trial->text, "gradient_checkpointing: true");
    return true;
}

static bool allow_both(const struct ebb_setup *setup, struct trial *trial)
{
    const struct ebb_memory_keys *memory = &setup->request.memory;
    if (memory->rule_count > 0 || memory->gradient_checkpointing == EBB_AUTO) return false;
    if (memory->gradient_checkpointing == EBB_TRUE && memory->activation_offloading == EBB_AUTO)
        return false;
    trial->request.memory.gradient_checkpointing = trial->request.memory.activation_offloading =
        EBB_AUTO;
    snprintf(trial->text, sizeof trial->text,
             "gradient_checkpointing: auto and activation_offloading: auto");
    return true;
}

static bool halve_batch(const struct ebb_setup *setup, struct trial *trial)
{
    int64_t batch = setup->config->per_device_train_batch_size;
    struct ebb_capacity *capacity = &trial->request.capacity;
    if (batch < 2) return false;
    int64_t half = batch / 2;
    capacity->tokens = (capacity->tokens * half + batch - 1) / batch;
    capacity->docs = (capacity->docs * half + batch - 1) / batch;
    if (capacity->tokens < capacity->doc_tokens) capacity->tokens = capacity->doc_tokens;
    snprintf(trial->text, sizeof trial->text,
             "per_device_train_batch_size: %lld with gradient_accumulation_steps: %lld",
             (long long)half,
             (long long)((setup->config->gradient_accumulation_steps * batch + half - 1) / half));
    return true;
}

static bool halve_length(const struct ebb_setup *setup, struct trial *trial)
{
    int64_t half = setup->max_length / 2;
    struct ebb_capacity *capacity = &trial->request.capacity;
    if (half < 32) return false;
    bool pairs = ebb_objective_prefers(&setup->request.objective) && !setup->config->packing;
    int64_t tokens = half * setup->config->per_device_train_batch_size * (pairs ? 2 : 1);
    if (capacity->tokens > tokens) capacity->tokens = tokens;
    if (capacity->doc_tokens > half) capacity->doc_tokens = half;
    snprintf(trial->text, sizeof trial->text, "max_length: %lld%s", (long long)half,
             setup->config->overlong == EBB_OVERLONG_ERROR ? " with overlong: drop" : "");
    return true;
}

static bool use_lora(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->new_adapter || setup->adapter_dir) return false;
    trial->adapter.rank = setup->config->lora_r;
    trial->adapter.alpha = setup->config->lora_alpha;
    if (ebb_adapter_config_targets(setup->ctx, &setup->weights, "all-linear", &trial->adapter) !=
        EBB_OK)
        return false;
    trial->request.new_adapter = &trial->adapter;
    trial->request.stochastic_rounding = false;
    /* The reference is then the model without it, unless another one was asked for. */
    if (setup->request.objective.reference == EBB_REFERENCE_MODEL &&
        setup->config->ref_model_name_or_path == NULL) {
        trial->request.objective.reference = EBB_REFERENCE_BASE;
        trial->request.teacher_dir = NULL;
    }
    snprintf(trial->text, sizeof trial->text, "use_peft: true");
    return true;
}

static bool halve_rank(const struct ebb_setup *setup, struct trial *trial)
{
    int64_t half = setup->config->lora_r / 2;
    if (!setup->new_adapter || half < 1) return false;
    trial->adapter.rank = half;
    trial->adapter.alpha = setup->config->lora_alpha;
    trial->adapter.dropout = setup->config->lora_dropout;
    trial->adapter.rslora = setup->config->use_rslora;
    if (ebb_adapter_config_targets(setup->ctx, &setup->weights, setup->config->lora_target_modules,
                                   &trial->adapter) != EBB_OK)
        return false;
    trial->request.new_adapter = &trial->adapter;
    snprintf(trial->text, sizeof trial->text, "lora_r: %lld", (long long)half);
    return true;
}

static bool use_bfloat16(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->request.storage == EBB_BF16) return false;
    trial->request.storage = EBB_BF16;
    snprintf(trial->text, sizeof trial->text, "dtype: bfloat16");
    return true;
}

static bool use_sgd(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->request.optimizer.sgd || setup->new_adapter || setup->adapter_dir) return false;
    trial->request.optimizer.sgd = true;
    trial->request.optimizer.momentum = 0;
    snprintf(trial->text, sizeof trial->text, "optim: sgd");
    return true;
}

static bool round_stochastically(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->request.storage != EBB_BF16 || setup->request.stochastic_rounding ||
        setup->new_adapter || setup->adapter_dir)
        return false;
    trial->request.stochastic_rounding = true;
    snprintf(trial->text, sizeof trial->text, "stochastic_rounding: true");
    return true;
}

/* As its likeliest tokens, which save_teacher writes unless told otherwise. */
static bool save_teacher(const struct ebb_setup *setup, struct trial *trial)
{
    struct ebb_objective *objective = &trial->request.objective;
    if (setup->request.objective.kind != EBB_OBJECTIVE_DISTILL) return false;
    objective->kind = EBB_OBJECTIVE_DISTILL_SAVED;
    objective->top_k = setup->config->teacher_top_k;
    if (objective->top_k > objective->distill.vocab) objective->top_k = objective->distill.vocab;
    objective->top_dtype = EBB_BF16;
    trial->request.teacher_dir = NULL;
    snprintf(trial->text, sizeof trial->text,
             "run 'ebb kd' with save_teacher: DIR first, then teacher_logits: DIR");
    return true;
}

/* A second model that is gone before training starts. */
static bool precompute(const struct ebb_setup *setup, struct trial *trial)
{
    const struct ebb_objective *objective = &setup->request.objective;
    if (!ebb_objective_prefers(objective) || objective->reference != EBB_REFERENCE_MODEL)
        return false;
    trial->request.objective.reference = EBB_REFERENCE_GIVEN;
    trial->request.teacher_dir = NULL;
    snprintf(trial->text, sizeof trial->text, "precompute_ref_log_probs: true");
    return true;
}

static bool drop_prompts(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->samples.count == 0) return false;
    trial->request.decode = false;
    trial->request.capacity.cache_tokens = 0;
    snprintf(trial->text, sizeof trial->text, "leave 'eval_prompts' out");
    return true;
}

/* Without a budget the plan on a processor keeps everything. */
static bool set_budget(const struct ebb_setup *setup, struct trial *trial)
{
    if (setup->request.device_budget > 0) return false;
    trial->request.device_budget = ebb_host_bytes_total() / 5 * 4;
    snprintf(trial->text, sizeof trial->text, "memory_budget: 80%%");
    return trial->request.device_budget > 0;
}

static const change_fn change_table[] = {drop_rules,   allow_offloading, allow_checkpointing,
                                         allow_both,   halve_batch,      halve_length,
                                         use_lora,     halve_rank,       use_bfloat16,
                                         use_sgd,      save_teacher,     precompute,
                                         drop_prompts, set_budget,       round_stochastically};
static_assert(sizeof change_table / sizeof change_table[0] <= EBB_FIT_CHANGES,
              "room for every change");

/* Without memory_budget every plan fits its budget, but not every machine. */
static bool fits_here(const struct ebb_setup *setup, const struct ebb_plan *plan)
{
    int64_t machine = setup->request.device_budget == 0 ? ebb_host_bytes_total() : 0;
    return plan->fits && (machine == 0 || plan->total_bytes + plan->host_bytes <= machine);
}

/* Plans the trial. A change that cannot be planned is no advice: its error is forgotten, for the
 * caller is about to report the one that matters. */
static void plan_trial(const struct ebb_setup *setup, const struct trial *trial,
                       const struct ebb_plan *now, struct ebb_fit_change *changes, int *count)
{
    struct ebb_engine *engine = NULL;
    enum ebb_status status = ebb_engine_create(setup->ctx, &trial->request, &engine);
    if (status == EBB_OK) {
        const struct ebb_plan *plan = ebb_engine_plan(engine);
        bool fits = fits_here(setup, plan);
        bool less = plan->total_bytes < now->total_bytes || (fits && !fits_here(setup, now));
        if (less) {
            struct ebb_fit_change *change = &changes[(*count)++];
            memcpy(change->text, trial->text, sizeof change->text);
            change->device_bytes = plan->total_bytes;
            change->host_bytes = plan->host_bytes;
            change->fits = fits;
        }
    } else {
        ebb_error_clear(setup->ctx);
    }
    ebb_engine_free(engine);
}

static bool is_better(const struct ebb_fit_change *a, const struct ebb_fit_change *b)
{
    if (a->fits != b->fits) return a->fits;
    return a->device_bytes < b->device_bytes;
}

enum ebb_status ebb_fit_changes(const struct ebb_setup *setup, const struct ebb_engine *engine,
                                struct ebb_fit_change changes[EBB_FIT_CHANGES], int *count)
{
    const struct ebb_plan *now = ebb_engine_plan(engine);
    *count = 0;
    for (size_t i = 0; i < sizeof change_table / sizeof change_table[0]; i++) {
        struct trial *trial = ebb_mem_alloc(setup->ctx, sizeof *trial);
        if (trial == NULL) return EBB_NO_MEMORY;
        trial->request = setup->request;
        trial->request.numerics = NULL;
        trial->request.pinned_budget = 0; /* what fits does not depend on it */
        trial->request.rates = NULL; /* a search would take all of the budget: less is asked for */
        if (change_table[i](setup, trial))
            plan_trial(setup, trial, now, changes, count);
        else
            ebb_error_clear(setup->ctx);
        ebb_adapter_config_clear(setup->ctx, &trial->adapter);
        ebb_mem_free(setup->ctx, trial);
    }
    for (int i = 1; i < *count; i++)
        for (int k = i; k > 0 && is_better(&changes[k], &changes[k - 1]); k--) {
            struct ebb_fit_change other = changes[k];
            changes[k] = changes[k - 1];
            changes[k - 1] = other;
        }
    return EBB_OK;
}

/* ---- the message ----------------------------------------------------------------------------- */

/* Budgets are printed in whole KiB or MiB. */
static int64_t printed_unit(int64_t bytes)
{
    return bytes < (int64_t)16 << 20 ? 1024 : 1024 * 1024;
}

/* The next budget that can be printed. */
static int64_t round_up(int64_t bytes)
{
    const int64_t unit = printed_unit(bytes);
    return (bytes + unit - 1) / unit * unit;
}

/* A budget that is enough, in a form that reads back, rounded up. */
static const char *enough(int64_t bytes, char out[SIZE_TEXT])
{
    const int64_t unit = printed_unit(bytes);
    snprintf(out, SIZE_TEXT, "%lld%s", (long long)(round_up(bytes) / unit),
             unit == 1024 ? "KiB" : "MiB");
    return out;
}

static enum ebb_status add_needs(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                 struct ebb_str *out)
{
    char size[SIZE_TEXT];
    bool first = true;
    for (int kind = 0; kind < EBB_KIND_COUNT; kind++) {
        if (plan->kind_bytes[kind] == 0) continue;
        EBB_TRY(ebb_str_addf(setup->ctx, out, "%s%s %s", first ? "" : ", ",
                             kind_name(setup, (enum ebb_kind)kind),
                             ebb_text_bytes(plan->kind_bytes[kind], size, sizeof size)));
        first = false;
    }
    if (plan->request.overhead_bytes > 0)
        EBB_TRY(ebb_str_addf(setup->ctx, out, ", driver and libraries %s",
                             ebb_text_bytes(plan->request.overhead_bytes, size, sizeof size)));
    return EBB_OK;
}

/* "\n       use_peft: true (needs 5.1 GiB, 13.9 GiB less: fits)" for the three best. */
static enum ebb_status add_advice(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                  const struct ebb_fit_change *changes, int count,
                                  struct ebb_str *out)
{
    char needs[SIZE_TEXT], less[SIZE_TEXT];
    for (int i = 0; i < count && i < 3; i++) {
        int64_t saved = plan->total_bytes - changes[i].device_bytes;
        EBB_TRY(ebb_str_addf(setup->ctx, out, "\n       %s (needs %s", changes[i].text,
                             ebb_text_bytes(changes[i].device_bytes, needs, sizeof needs)));
        if (saved > 0)
            EBB_TRY(ebb_str_addf(setup->ctx, out, ", %s less",
                                 ebb_text_bytes(saved, less, sizeof less)));
        EBB_TRY(
            ebb_str_addf(setup->ctx, out, "%s)", changes[i].fits ? ": fits" : ": still too much"));
    }
    return EBB_OK;
}

/* Who says how large a budget is; borrowed until the next call. */
static const char *budget_where(const struct ebb_setup *setup, const char *key, bool resumed)
{
    return resumed ? "run.json of the run that is resumed, as nobody names it now"
                   : ebb_options_where(setup->options, key);
}

static enum ebb_status fail_device(const struct ebb_setup *setup, const struct ebb_engine *engine,
                                   int64_t budget, const struct ebb_fit_change *changes, int count)
{
    struct ebb_ctx *ctx = setup->ctx;
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    char needs[SIZE_TEXT], has[SIZE_TEXT], would[SIZE_TEXT];
    struct ebb_str kinds = {0}, advice = {0};
    bool given = setup->budget_given || setup->budget_resumed;
    enum ebb_status status = add_needs(setup, plan, &kinds);
    if (status == EBB_OK) status = add_advice(setup, plan, changes, count, &advice);
    ebb_text_bytes_apart(plan->total_bytes, budget, needs, has, SIZE_TEXT);
    if (status == EBB_OK && given)
        status =
            EBB_FAIL(ctx, EBB_DOES_NOT_FIT,
                     "run does not fit: it needs %s of device memory at least, memory_budget is "
                     "%s\n"
                     "where: %s\n"
                     "needs: %s\n"
                     "try:   memory_budget: %s%s",
                     needs, has, budget_where(setup, "memory_budget", setup->budget_resumed),
                     kinds.data, enough(plan->total_bytes, would), advice.data ? advice.data : "");
    else if (status == EBB_OK)
        status =
            EBB_FAIL(ctx, EBB_DOES_NOT_FIT,
                     "run does not fit: it needs %s of memory, this %s %s\nneeds: %s\ntry:   %s",
                     needs,
                     setup->gpu                         ? "GPU has"
                     : setup->request.device_budget > 0 ? "GPU has free"
                                                        : "machine has",
                     has, kinds.data,
                     advice.data ? advice.data + strlen("\n       ") : "a smaller model");
    ebb_str_free(ctx, &advice);
    ebb_str_free(ctx, &kinds);
    return status;
}

/* How near a host budget comes to the least one: 1/64, at least what is printed. */
static int64_t host_grain(int64_t bytes)
{
    const int64_t unit = printed_unit(bytes);
    return bytes / 64 > unit ? bytes / 64 : unit;
}

/* The search for a host budget that is advised. A search for policies may find a plan within a
 * budget and none within a larger one, so only what was tried is advised. */
struct host_search {
    const struct ebb_setup *setup;
    struct ebb_engine_request request;
    int64_t low;   /* the largest that is known not to do */
    int64_t least; /* the smallest that is known to do; 0: none is */
};

/* Plans within a budget, and where that fits again within what the plan takes of it. */
static enum ebb_status try_host(struct host_search *h, int64_t budget)
{
    for (bool fits = true; fits && budget > h->low && (h->least == 0 || budget < h->least);) {
        struct ebb_engine *engine = NULL;
        h->request.host_budget = budget;
        EBB_TRY(ebb_engine_create(h->setup->ctx, &h->request, &engine));
        fits = ebb_engine_plan(engine)->fits;
        *(fits ? &h->least : &h->low) = budget;
        budget = round_up(ebb_engine_plan(engine)->host_bytes);
        ebb_engine_free(engine);
    }
    return EBB_OK;
}

/* A host budget that is enough, between the one that is not and the first that is from `high` on,
 * which the smallest plan takes; 0: none was found. */
static enum ebb_status least_host(const struct ebb_setup *setup, int64_t high, int64_t *least)
{
    enum { STEPS_UP = 8 };
    struct host_search h = {.setup = setup,
                            .request = setup->request,
                            .low = setup->request.host_budget};
    h.request.numerics = NULL;
    for (int i = 0; i < STEPS_UP && h.least == 0; i++, high += high / 2)
        EBB_TRY(try_host(&h, round_up(high)));
    while (h.least - h.low > host_grain(h.least)) {
        int64_t middle = round_up(h.low + (h.least - h.low) / 2);
        if (middle >= h.least) break;
        EBB_TRY(try_host(&h, middle));
    }
    *least = h.least;
    return EBB_OK;
}

static enum ebb_status fail_host(const struct ebb_setup *setup, const struct ebb_plan *plan)
{
    char needs[SIZE_TEXT], has[SIZE_TEXT], would[SIZE_TEXT], advice[96] = "";
    const bool named = setup->host_given || setup->host_resumed;
    int64_t least;
    EBB_TRY(least_host(setup, plan->host_bytes, &least));
    ebb_text_bytes_apart(least > 0 ? least : plan->host_bytes, setup->request.host_budget, needs,
                         has, SIZE_TEXT);
    if (least > 0)
        snprintf(advice, sizeof advice, "host_memory_budget: %s%s, or ", enough(least, would),
                 named ? "" : " if there is as much");
    if (!named)
        return EBB_FAIL(setup->ctx, EBB_DOES_NOT_FIT,
                        "run does not fit: it needs %s of host memory for what moves, %s %s\n"
                        "try:   %sa larger memory_budget, so that less moves",
                        needs, has, setup->gpu ? "are assumed" : "may be taken of what is free",
                        advice);
    return EBB_FAIL(setup->ctx, EBB_DOES_NOT_FIT,
                    "run does not fit: it needs %s of host memory for what moves, "
                    "host_memory_budget is %s\n"
                    "where: %s\n"
                    "try:   %sa larger memory_budget, so that less moves",
                    needs, has, budget_where(setup, "host_memory_budget", setup->host_resumed),
                    advice);
}

bool ebb_fit_holds(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    return fits_here(setup, ebb_engine_plan(engine));
}

enum ebb_status ebb_fit_check(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    int64_t budget = setup->request.device_budget;
    if (ebb_fit_holds(setup, engine)) return EBB_OK;
    struct ebb_fit_change changes[EBB_FIT_CHANGES];
    int count = 0;
    if (budget > 0 && plan->total_bytes <= budget) return fail_host(setup, plan);
    if (budget == 0) budget = ebb_host_bytes_total();
    if (setup->request.train) EBB_TRY(ebb_fit_changes(setup, engine, changes, &count));
    return fail_device(setup, engine, budget, changes, count);
}
