/* `ebb probe`: measure what work costs on this machine, and keep it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "recipe/machine.h"
#include "train/probe.h"

enum { ATTENTION_TOKENS = 8192, ATTENTION_WIDTH = 4096 };

struct probe {
    struct ebb_cli *cli;
    struct ebb_ctx *ctx;
    struct ebb_machine machine;
    struct ebb_probe_result result;
    char *path;                /* where the rates are kept; NULL: nowhere */
    char why[EBB_MACHINE_WHY]; /* that is so */
};

/* ---- numbers ---- */

/* "741 TFLOP/s", "55.5 GB/s": three digits of what is done in a second. */
static const char *rate_text(double rate, const char *unit, char out[32])
{
    const bool tera = rate >= 1e12;
    const double value = rate / (tera ? 1e12 : 1e9);
    snprintf(out, 32, "%.*f %s%s/s",
             value >= 100  ? 0
             : value >= 10 ? 1
                           : 2,
             value, tera ? "T" : "G", unit);
    return out;
}

static const char *time_text(double seconds, char out[32])
{
    const bool milli = seconds >= 1e-3;
    const double value = seconds * (milli ? 1e3 : 1e6);
    snprintf(out, 32, "%.*f %s",
             value >= 100  ? 0
             : value >= 10 ? 1
                           : 2,
             value, milli ? "ms" : "us");
    return out;
}

/* What a class is bound by at most: its rates where it has any, and what a call takes. */
static enum ebb_status add_cost(struct probe *p, const char *what, enum ebb_cost_class which,
                                struct ebb_str *out)
{
    const struct ebb_cost *cost = &p->result.rates.costs[which];
    char text[32];
    const char *comma = "";
    EBB_TRY(ebb_str_addf(p->ctx, out, "  %-28s", what));
    if (!ebb_cost_known(cost)) return ebb_str_addf(p->ctx, out, "not measured\n");
    if (cost->flop > 0) {
        EBB_TRY(ebb_str_addf(p->ctx, out, "%s", rate_text(1 / cost->flop, "FLOP", text)));
        comma = ", ";
    }
    if (cost->byte > 0) {
        EBB_TRY(ebb_str_addf(p->ctx, out, "%s%s", comma, rate_text(1 / cost->byte, "B", text)));
        comma = ", ";
    }
    if (cost->call > 0)
        EBB_TRY(ebb_str_addf(p->ctx, out, "%s%s a call", comma, time_text(cost->call, text)));
    return ebb_str_addf(p->ctx, out, "\n");
}

/* "0.22 s a GiB": of what is done once. */
static enum ebb_status add_pinning(struct probe *p, struct ebb_str *out)
{
    const struct ebb_cost *cost = &p->result.rates.costs[EBB_COST_PIN];
    const struct ebb_op_work gib = {.bytes = 1 << 30};
    char text[32];
    EBB_TRY(ebb_str_addf(p->ctx, out, "  %-28s", "pinning host memory"));
    if (!ebb_cost_known(cost)) return ebb_str_addf(p->ctx, out, "not measured\n");
    return ebb_str_addf(p->ctx, out, "%s a GiB\n", time_text(ebb_cost_seconds(cost, &gib), text));
}

/* Attention over one document of ATTENTION_TOKENS, queries ATTENTION_WIDTH wide and a quarter as
 * many heads of keys, all it takes counted in; 0: not known. */
static double attention_rate(const struct probe *p, enum ebb_cost_class which, bool backward)
{
    const struct ebb_cost *cost = &p->result.rates.costs[which];
    const double tokens = ATTENTION_TOKENS, width = ATTENTION_WIDTH, products = backward ? 5 : 2;
    const double elements = tokens * width * (backward ? 4 * 1.25 : 2 * 1.25);
    const struct ebb_op_work work = {.flops = products * width * tokens * (tokens + 1),
                                     .bytes =
                                         elements * (double)ebb_dtype_bytes(p->machine.storage)};
    return ebb_cost_known(cost) ? work.flops / ebb_cost_seconds(cost, &work) : 0;
}

static enum ebb_status add_attention(struct probe *p, const char *what, enum ebb_cost_class forward,
                                     enum ebb_cost_class backward, struct ebb_str *out)
{
    const double rates[] = {attention_rate(p, forward, false), attention_rate(p, backward, true)};
    char text[2][32];
    if (!(rates[0] > 0) && !(rates[1] > 0)) return EBB_OK; /* not on this device */
    for (int i = 0; i < 2; i++)
        if (rates[i] > 0)
            rate_text(rates[i], "FLOP", text[i]);
        else
            snprintf(text[i], sizeof text[i], "not measured");
    return ebb_str_addf(p->ctx, out, "  %-28s%s forward, %s backward\n", what, text[0], text[1]);
}

/* ---- the table ---- */

static enum ebb_status add_rates(struct probe *p, struct ebb_str *out)
{
    EBB_TRY(add_cost(p, "large products", EBB_COST_PRODUCT, out));
    EBB_TRY(add_cost(p, "thin products", EBB_COST_THIN, out));
    EBB_TRY(add_attention(p, "attention, heads of 64", EBB_COST_ATTENTION_FORWARD_64,
                          EBB_COST_ATTENTION_BACKWARD_64, out));
    EBB_TRY(add_attention(p, "attention, heads of 128", EBB_COST_ATTENTION_FORWARD_128,
                          EBB_COST_ATTENTION_BACKWARD_128, out));
    if (p->machine.backend == EBB_BACKEND_CUDA) {
        EBB_TRY(add_attention(p, "  deterministic, 64", EBB_COST_ATTENTION_FORWARD_64,
                              EBB_COST_ATTENTION_FIXED_64, out));
        EBB_TRY(add_attention(p, "  deterministic, 128", EBB_COST_ATTENTION_FORWARD_128,
                              EBB_COST_ATTENTION_FIXED_128, out));
        EBB_TRY(add_attention(p, "  plain kernels", EBB_COST_ATTENTION_PLAIN_FORWARD,
                              EBB_COST_ATTENTION_PLAIN_BACKWARD, out));
    }
    EBB_TRY(add_cost(p, "norms, SwiGLU and the like", EBB_COST_MEMORY, out));
    EBB_TRY(add_cost(p, "loss", EBB_COST_LOSS, out));
    EBB_TRY(add_cost(p, "optimizer", EBB_COST_OPTIMIZER, out));
    EBB_TRY(add_cost(p, "copies out", EBB_COST_COPY_OUT, out));
    EBB_TRY(add_cost(p, "copies in", EBB_COST_COPY_IN, out));
    if (p->machine.backend == EBB_BACKEND_CUDA) {
        EBB_TRY(add_cost(p, "  of what is not pinned, out", EBB_COST_BOUNCE_OUT, out));
        EBB_TRY(add_cost(p, "  of what is not pinned, in", EBB_COST_BOUNCE_IN, out));
        EBB_TRY(add_pinning(p, out));
    }
    EBB_TRY(add_cost(p, "between two ops", EBB_COST_GAP, out));
    return add_cost(p, "host, around a program", EBB_COST_HOST, out);
}

/* "4096 wide, LoRA, 16384 tokens, moves". What rates were not fitted to is marked: it is the
 * fairest check. */
static void describe_job(const struct ebb_probe_job *job, char *out, size_t room)
{
    snprintf(out, room, "%lld wide, %s, %lld tokens%s%s%s%s%s", (long long)job->model->width,
             job->lora ? "LoRA" : "every weight", (long long)job->tokens,
             job->moves ? ", moves" : "", job->pageable ? " unpinned" : "",
             job->deterministic ? ", deterministic" : "", job->plain ? ", plain attention" : "",
             job->held_out ? " (not fitted)" : "");
}

static enum ebb_status add_checks(struct probe *p, struct ebb_str *out)
{
    char what[96], measured[32], forecast[32];
    EBB_TRY(ebb_str_addf(p->ctx, out, "\n  %-50s %9s %9s\n", "a step of what was run", "took",
                         "forecast"));
    for (int64_t i = 0; i < p->result.check_count; i++) {
        const struct ebb_probe_check *check = &p->result.checks[i];
        describe_job(&check->job, what, sizeof what);
        EBB_TRY(
            ebb_str_addf(p->ctx, out, "  %-50s %9s ", what, time_text(check->seconds, measured)));
        if (check->forecast > 0)
            EBB_TRY(ebb_str_addf(p->ctx, out, "%9s  %+.1f %%\n",
                                 time_text(check->forecast, forecast),
                                 100 * (check->forecast / check->seconds - 1)));
        else
            EBB_TRY(ebb_str_addf(p->ctx, out, "%9s\n", "none"));
    }
    return EBB_OK;
}

static enum ebb_status print_table(struct probe *p)
{
    const struct ebb_rates *rates = &p->result.rates;
    struct ebb_str out = {0};
    char took[32];
    enum ebb_status status =
        ebb_str_addf(p->ctx, &out, "%s, %s: %s\n\n", rates->device,
                     rates->storage == EBB_BF16 ? "bfloat16" : "float32", rates->versions);
    if (status == EBB_OK) status = add_rates(p, &out);
    if (status == EBB_OK) status = add_checks(p, &out);
    if (status == EBB_OK)
        status = ebb_str_addf(p->ctx, &out,
                              "\n  an op takes the sum of what stands there; attention: all of it, "
                              "at %d tokens of one document\n",
                              (int)ATTENTION_TOKENS);
    ebb_text_seconds(p->result.seconds, took, sizeof took);
    if (status == EBB_OK && p->path)
        status = ebb_str_addf(p->ctx, &out, "  measured in %s, kept in %s\n", took, p->path);
    else if (status == EBB_OK)
        status = ebb_str_addf(p->ctx, &out, "  measured in %s, not kept: %s\n", took, p->why);
    if (status == EBB_OK) ebb_cli_print(&out);
    ebb_str_free(p->ctx, &out);
    return status;
}

/* ---- JSON ---- */

static json_t *check_json(const struct ebb_probe_check *check)
{
    const struct ebb_probe_job *job = &check->job;
    json_t *json =
        json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:b, s:b, s:b, s:I, s:f}", "width",
                  (json_int_t)job->model->width, "heads", (json_int_t)job->model->heads, "layers",
                  (json_int_t)job->model->layers, "tokens", (json_int_t)job->tokens, "lora",
                  (int)job->lora, "moves", (int)job->moves, "pageable", (int)job->pageable,
                  "deterministic", (int)job->deterministic, "plain_attention", (int)job->plain,
                  "fitted", (int)!job->held_out, "steps", (json_int_t)check->steps, "step_seconds",
                  check->seconds);
    const bool known = check->forecast > 0;
    json_t *forecast = known ? json_real(check->forecast) : json_null();
    json_t *error = known ? json_real(check->forecast / check->seconds - 1) : json_null();
    if (json && json_object_set_new(json, "forecast_seconds", forecast) == 0 &&
        json_object_set_new(json, "forecast_error", error) == 0)
        return json;
    json_decref(json);
    return NULL;
}

static enum ebb_status print_json(struct probe *p)
{
    json_t *json = ebb_rates_json(&p->result.rates), *checks = json_array();
    bool ok = json && checks;
    for (int64_t i = 0; ok && i < p->result.check_count; i++)
        ok = json_array_append_new(checks, check_json(&p->result.checks[i])) == 0;
    ok = ok && json_object_set(json, "check", checks) == 0 &&
         json_object_set_new(json, "probe_seconds", json_real(p->result.seconds)) == 0 &&
         json_object_set_new(json, "path", p->path ? json_string(p->path) : json_null()) == 0;
    json_decref(checks);
    if (ok) return ebb_cli_print_json(p->cli, json);
    json_decref(json);
    return EBB_FAIL(p->ctx, EBB_FAILED, "what was measured cannot be written as JSON");
}

/* ---- the command ---- */

static enum ebb_status run(struct probe *p, const struct ebb_config *config)
{
    char *attention;
    struct ebb_rates named = {0};
    const struct ebb_machine *machine = &p->machine;
    EBB_TRY(ebb_machine_describe(p->ctx, machine, &named));
    EBB_TRY(ebb_setup_cache(p->ctx, machine->env, "attention", &attention));
    const struct ebb_probe_request request = {.backend = machine->backend,
                                              .storage = machine->storage,
                                              .threads = machine->threads,
                                              .cache_dir = attention,
                                              .device_bytes =
                                                  ebb_setup_free_bytes(p->ctx, machine->backend),
                                              .overhead_bytes =
                                                  ebb_setup_overhead(machine->backend)};
    enum ebb_status status = ebb_probe_run(p->ctx, &request, &p->result);
    ebb_mem_free(p->ctx, attention);
    memcpy(p->result.rates.device, named.device, sizeof named.device);
    memcpy(p->result.rates.versions, named.versions, sizeof named.versions);
    p->result.rates.threads = named.threads;
    if (status == EBB_OK)
        status = ebb_machine_keep_rates(p->ctx, machine, &p->result.rates, &p->path, p->why);
    if (status == EBB_OK) status = config->json ? print_json(p) : print_table(p);
    ebb_mem_free(p->ctx, p->path);
    return status;
}

enum ebb_status ebb_cli_probe(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_PROBE, &config, &options));
    struct probe *p = (struct probe *)ebb_mem_alloc(cli->ctx, sizeof *p);
    enum ebb_status status = EBB_NO_MEMORY;
    if (p) {
        p->cli = cli;
        p->ctx = cli->ctx;
        p->machine =
            (struct ebb_machine){.env = &cli->env,
                                 .backend = ebb_config_backend(&config),
                                 .storage =
                                     config.dtype == EBB_DTYPE_KEY_FLOAT32 ? EBB_F32 : EBB_BF16,
                                 .threads = (int)config.threads};
        status = run(p, &config);
    }
    ebb_mem_free(cli->ctx, p);
    ebb_options_free(options);
    return status;
}
