/* run.json: what a run is, on what machine, and how each of its sessions ended.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "train/checkpoint.h"
#include "train/metrics.h"

struct ebb_run_record {
    struct ebb_ctx *ctx;
    char *path;
    json_t *json;
    json_t *session; /* borrowed from json */
};

static bool set(json_t *json, const char *key, json_t *value)
{
    return json && json_object_set_new(json, key, value) == 0;
}

static json_t *integer(int64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *checked(json_t *json, bool ok)
{
    if (ok) return json;
    json_decref(json);
    return NULL;
}

/* ---- plan ------------------------------------------------------------------------------------ */

static json_t *describe_kinds(const int64_t bytes[EBB_KIND_COUNT])
{
    json_t *json = json_object();
    bool ok = true;
    for (int i = 0; i < EBB_KIND_COUNT; i++)
        ok = ok && set(json, ebb_kind_name((enum ebb_kind)i), integer(bytes[i]));
    return checked(json, ok);
}

static json_t *describe_units(const struct ebb_plan *plan, enum ebb_unit kind)
{
    int32_t all, away = ebb_plan_away(plan, kind, &all);
    json_t *json = json_object();
    bool ok = set(json, "parts", integer(all)) && set(json, "in_host_memory", integer(away));
    return checked(json, ok);
}

/* Layers that are treated alike stand together. */
static json_t *describe_policies(const struct ebb_plan *plan)
{
    const struct ebb_net *net = plan->request.net;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int64_t first = 0, last; ok && first < plan->policies.layers; first = last + 1) {
        last = first;
        while (last + 1 < plan->policies.layers &&
               memcmp(plan->policies.at[last + 1], plan->policies.at[first],
                      (size_t)net->slot_count) == 0)
            last++;
        json_t *range = json_object();
        ok = set(range, "first_layer", integer(first)) && set(range, "last_layer", integer(last));
        for (int s = 0; ok && s < net->slot_count; s++)
            ok = set(range, net->slots[s].name,
                     json_string(ebb_policy_name((enum ebb_policy)plan->policies.at[first][s])));
        ok = json_array_append_new(list, range) == 0 && ok;
    }
    return checked(list, ok);
}

static json_t *describe_plan(const struct ebb_plan *plan)
{
    json_t *json = json_object();
    bool ok = set(json, "what", json_string(plan->what ? plan->what : "")) &&
              set(json, "device_bytes", integer(plan->device_bytes)) &&
              set(json, "overhead_bytes", integer(plan->request.overhead_bytes)) &&
              set(json, "total_bytes", integer(plan->total_bytes)) &&
              set(json, "host_bytes", integer(plan->host_bytes)) &&
              set(json, "device_budget", integer(plan->request.device_budget)) &&
              set(json, "pageable_bytes", integer(plan->pageable_bytes)) &&
              set(json, "host_budget", integer(plan->request.host_budget)) &&
              set(json, "pinned_budget", integer(plan->request.pinned_budget)) &&
              set(json, "bytes_by_kind", describe_kinds(plan->kind_bytes)) &&
              set(json, "host_bytes_by_kind", describe_kinds(plan->host_kind_bytes)) &&
              set(json, "frozen_matrices", describe_units(plan, EBB_UNIT_PARAMS)) &&
              set(json, "optimizer_state", describe_units(plan, EBB_UNIT_OPTIMIZER)) &&
              set(json, "policies", describe_policies(plan)) &&
              set(json, "micro_batches_at_once", integer(plan->micros)) &&
              set(json, "bytes_out", integer(plan->bytes_out)) &&
              set(json, "bytes_in", integer(plan->bytes_in)) &&
              set(json, "update_bytes_out", integer(plan->update_out)) &&
              set(json, "update_bytes_in", integer(plan->update_in)) &&
              set(json, "capacity_tokens", integer(plan->request.capacity.tokens)) &&
              set(json, "capacity_documents", integer(plan->request.capacity.docs)) &&
              set(json, "capacity_longest", integer(plan->request.capacity.doc_tokens));
    return checked(json, ok);
}

/* ---- machine --------------------------------------------------------------------------------- */

static json_t *describe_machine(const struct ebb_engine *engine)
{
    char name[256];
    json_t *json = json_object();
    ebb_cpu_name(name, sizeof name);
    if (ebb_text_utf8_valid(name, strlen(name)) != strlen(name)) name[0] = '\0';
    bool ok = set(json, "cpu", json_string(name)) &&
              set(json, "processors", integer(ebb_cpu_count())) &&
              set(json, "threads", integer(ebb_engine_plan(engine)->request.numerics.threads)) &&
              set(json, "memory_bytes", integer(ebb_host_bytes_total())) &&
              set(json, "device", json_string(ebb_engine_plan(engine)->request.numerics.backend)) &&
              set(json, "device_name", json_string(ebb_device_name(ebb_engine_device(engine))));
    return checked(json, ok);
}

static json_t *describe_versions(const struct ebb_engine *engine)
{
    json_t *json = json_object();
    bool ok = set(json, "ebb", json_string(EBB_VERSION)) &&
              set(json, "matmul", json_string(ebb_engine_plan(engine)->request.numerics.matmul)) &&
              set(json, "attention",
                  json_string(ebb_engine_plan(engine)->request.numerics.attention_library)) &&
              set(json, "jansson", json_string(jansson_version_str())) &&
              set(json, "compiler", json_string(__VERSION__));
    return checked(json, ok);
}

static json_t *describe_training(const struct ebb_trainer_request *request)
{
    const struct ebb_loader_facts *facts = ebb_loader_describe(request->train);
    int64_t trained, all;
    json_t *json = json_object();
    ebb_engine_parameters(request->engine, &trained, &all);
    bool ok = set(json, "parameters", integer(all)) &&
              set(json, "trained_parameters", integer(trained)) &&
              set(json, "samples", integer(facts->docs)) &&
              set(json, "tokens_per_epoch", integer(facts->tokens)) &&
              set(json, "labels_per_epoch", integer(facts->labels)) &&
              set(json, "micro_batches_per_epoch", integer(facts->micros_per_epoch)) &&
              set(json, "gradient_accumulation_steps", integer(request->accumulation));
    return checked(json, ok);
}

/* ---- file ------------------------------------------------------------------------------------ */

static enum ebb_status no_memory(struct ebb_ctx *ctx)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while making %s", EBB_RUN_FILE);
}

/* Sessions of an earlier run.json, where there is one that can be read; a new list otherwise. */
static json_t *earlier_sessions(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                const char *path)
{
    json_t *json = NULL, *sessions = NULL;
    if (request->resume && ebb_file_exists(path)) {
        if (ebb_json_load(ctx, path, &json) != EBB_OK) {
            ebb_log(ctx, EBB_LOG_WARNING, "resume", "the earlier sessions in '%s' are lost: %s",
                    path, ebb_error_text(ctx));
            ebb_error_clear(ctx);
        }
        sessions = json_object_get(json, "sessions");
        if (json_is_array(sessions))
            json_incref(sessions);
        else
            sessions = NULL;
    }
    json_decref(json);
    return sessions ? sessions : json_array();
}

enum ebb_status ebb_run_record_open(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                    struct ebb_run_record **record)
{
    *record = NULL;
    struct ebb_run_record *made = (struct ebb_run_record *)ebb_mem_alloc(ctx, sizeof *made);
    if (!made) return EBB_NO_MEMORY;
    made->ctx = ctx;
    made->path = ebb_path_join(ctx, request->output_dir, EBB_RUN_FILE);
    if (!made->path) {
        ebb_run_record_free(made);
        return EBB_NO_MEMORY;
    }
    made->json =
        json_is_object(request->run) ? json_copy((json_t *)(uintptr_t)request->run) : json_object();
    const struct ebb_plan *plan = ebb_engine_plan(request->engine);
    bool ok = set(made->json, "training", describe_training(request)) &&
              set(made->json, "plan", describe_plan(plan)) &&
              set(made->json, "numerics", ebb_numerics_json(&plan->request.numerics)) &&
              set(made->json, "machine", describe_machine(request->engine)) &&
              set(made->json, "load_seconds",
                  ebb_json_number(ebb_engine_usage(request->engine).load_seconds)) &&
              set(made->json, "versions", describe_versions(request->engine)) &&
              set(made->json, "sessions", earlier_sessions(ctx, request, made->path));
    if (!ok) {
        ebb_run_record_free(made);
        return no_memory(ctx);
    }
    *record = made;
    return EBB_OK;
}

void ebb_run_record_free(struct ebb_run_record *record)
{
    if (!record) return;
    json_decref(record->json);
    ebb_mem_free(record->ctx, record->path);
    ebb_mem_free(record->ctx, record);
}

enum ebb_status ebb_run_record_begin(struct ebb_run_record *record, int64_t step,
                                     int64_t total_steps)
{
    char now[32];
    ebb_clock_iso(now);
    record->session = json_object();
    bool ok = set(record->session, "started", json_string(now)) &&
              set(record->session, "first_step", integer(step + 1)) &&
              set(record->json, "total_steps", integer(total_steps));
    ok = json_array_append_new(json_object_get(record->json, "sessions"), record->session) == 0 &&
         ok;
    if (!ok) return no_memory(record->ctx);
    return ebb_json_save(record->ctx, record->path, record->json);
}

enum ebb_status ebb_run_record_profile(struct ebb_run_record *record, json_t *profile)
{
    return set(record->json, "profile", profile) ? EBB_OK : no_memory(record->ctx);
}

static json_t *describe_result(const struct ebb_trainer_result *result)
{
    json_t *json = json_object();
    bool ok = set(json, "steps", integer(result->steps)) &&
              set(json, "loss", ebb_json_number(result->final_loss)) &&
              set(json, "best_eval_loss", ebb_json_number(result->best_eval_loss)) &&
              set(json, "num_tokens", integer(result->tokens)) &&
              set(json, "skipped_steps", integer(result->skipped_steps)) &&
              set(json, "stopped_early", json_boolean(result->stopped_early));
    return checked(json, ok);
}

enum ebb_status ebb_run_record_end(struct ebb_run_record *record, enum ebb_status run, int64_t step,
                                   const struct ebb_trainer_result *result)
{
    char now[32];
    ebb_clock_iso(now);
    json_t *session = record->session;
    bool ok = set(session, "ended", json_string(now)) && set(session, "last_step", integer(step)) &&
              set(session, "seconds", ebb_json_number(result->seconds)) &&
              set(session, "status", json_string(ebb_status_name(run))) &&
              set(session, "exit_code", integer(ebb_status_exit_code(run)));
    const char *error = ebb_error_text(record->ctx);
    bool readable = ebb_text_utf8_valid(error, strlen(error)) == strlen(error);
    if (ok && run != EBB_OK)
        ok = set(session, "error", json_string(readable ? error : "not UTF-8"));
    if (ok && run == EBB_OK) ok = set(record->json, "result", describe_result(result));
    if (!ok) return no_memory(record->ctx);
    return ebb_json_save(record->ctx, record->path, record->json);
}

static enum ebb_status read_budgets(struct ebb_ctx *ctx, const char *path,
                                    struct ebb_run_budgets *budgets)
{
    json_t *json;
    struct ebb_run_budgets read = {0};
    bool found;
    EBB_TRY(ebb_json_load(ctx, path, &json));
    const json_t *plan = json_object_get(json, "plan");
    enum ebb_status status = ebb_json_int64(ctx, path, plan, "device_budget", &read.device, &found);
    if (status == EBB_OK)
        status = ebb_json_int64(ctx, path, plan, "host_budget", &read.host, &found);
    if (status == EBB_OK)
        status = ebb_json_int64(ctx, path, plan, "pinned_budget", &read.pinned, &found);
    json_decref(json);
    if (status == EBB_OK && read.device >= 0 && read.host >= 0 && read.pinned >= 0) *budgets = read;
    return status;
}

enum ebb_status ebb_run_record_budgets(struct ebb_ctx *ctx, const char *checkpoint,
                                       struct ebb_run_budgets *budgets)
{
    char *path = ebb_path_join(ctx, checkpoint, "../" EBB_RUN_FILE);
    enum ebb_status status = EBB_OK;
    memset(budgets, 0, sizeof *budgets);
    if (!path) return EBB_NO_MEMORY;
    if (ebb_file_exists(path)) status = read_budgets(ctx, path, budgets);
    ebb_mem_free(ctx, path);
    if (status == EBB_OK || status == EBB_NO_MEMORY) return status;
    ebb_log(ctx, EBB_LOG_WARNING, "resume",
            "the budgets of the run that is resumed are not known: %s", ebb_error_text(ctx));
    ebb_error_clear(ctx);
    return EBB_OK;
}
