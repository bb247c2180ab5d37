/* metrics.jsonl: records, and the file that they are added to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "train/event_file.h"

struct ebb_metrics {
    struct ebb_ctx *ctx;
    char *path;
    int fd;
    struct ebb_event_file *events; /* NULL: none */
};

json_t *ebb_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- file ------------------------------------------------------------------------------------ */

enum ebb_status ebb_metrics_open(struct ebb_ctx *ctx, const char *dir, bool fresh,
                                 struct ebb_metrics **metrics)
{
    *metrics = NULL;
    struct ebb_metrics *made = (struct ebb_metrics *)ebb_mem_alloc(ctx, sizeof *made);
    if (!made) return EBB_NO_MEMORY;
    made->ctx = ctx;
    made->fd = -1;
    made->path = ebb_path_join(ctx, dir, EBB_METRICS_FILE);
    enum ebb_status status = made->path ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK && fresh) status = ebb_file_write(ctx, made->path, "", 0);
    if (status == EBB_OK) {
        made->fd = open(made->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (made->fd < 0)
            status = EBB_FAIL(ctx, EBB_IO, "cannot open '%s': %s", made->path, strerror(errno));
    }
    if (status != EBB_OK) {
        ebb_metrics_close(made);
        return status;
    }
    *metrics = made;
    return EBB_OK;
}

void ebb_metrics_close(struct ebb_metrics *metrics)
{
    if (!metrics) return;
    ebb_event_file_close(metrics->events);
    if (metrics->fd >= 0) close(metrics->fd);
    ebb_mem_free(metrics->ctx, metrics->path);
    ebb_mem_free(metrics->ctx, metrics);
}

enum ebb_status ebb_metrics_report(struct ebb_metrics *metrics, const char *dir, int64_t first)
{
    return ebb_event_file_open(metrics->ctx, dir, first, &metrics->events);
}

enum ebb_status ebb_metrics_add(struct ebb_metrics *metrics, json_t *record)
{
    struct ebb_str line = {0};
    if (!record)
        return EBB_FAIL(metrics->ctx, EBB_NO_MEMORY,
                        "out of host memory while making a line of metrics");
    enum ebb_status status = ebb_json_text(metrics->ctx, record, 0, &line);
    if (status == EBB_OK) status = ebb_str_add(metrics->ctx, &line, "\n", 1);
    if (status == EBB_OK)
        status = ebb_file_append(metrics->ctx, metrics->fd, metrics->path, "a line", line.data,
                                 line.bytes);
    if (status == EBB_OK && metrics->events) status = ebb_event_file_add(metrics->events, record);
    ebb_str_free(metrics->ctx, &line);
    json_decref(record);
    return status;
}

enum ebb_status ebb_metrics_flush(struct ebb_metrics *metrics)
{
    if (fsync(metrics->fd) != 0)
        return EBB_FAIL(metrics->ctx, EBB_IO, "cannot flush '%s': %s", metrics->path,
                        strerror(errno));
    return metrics->events ? ebb_event_file_flush(metrics->events) : EBB_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

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

/* Adds sum / count, or nothing where there was nothing to count. */
static bool set_mean(json_t *json, const char *prefix, const char *name, double sum, int64_t count)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    return count == 0 || set(json, key, ebb_json_number(sum / (double)count));
}

/* By TRL's names. */
static bool set_preference(json_t *json, const char *prefix, const struct ebb_objective *objective,
                           const struct ebb_preference_sums *p)
{
    const enum ebb_preference type = objective->preference.loss_type;
    bool kto = type == EBB_PREFERENCE_KTO;
    int64_t chosen = kto ? p->desirable : p->examples, rejected = kto ? p->undesirable : chosen,
            pairs = kto ? 0 : p->examples;
    return set_mean(json, prefix, "rewards/chosen", p->rewards_chosen, chosen) &&
           set_mean(json, prefix, "rewards/rejected", p->rewards_rejected, rejected) &&
           set_mean(json, prefix, "rewards/margins", p->margins, pairs) &&
           set_mean(json, prefix, "rewards/accuracies", (double)p->accuracies, pairs) &&
           set_mean(json, prefix, "logps/chosen", p->logps_chosen, chosen) &&
           set_mean(json, prefix, "logps/rejected", p->logps_rejected, rejected) &&
           set_mean(json, prefix, "nll_loss", p->nll_chosen,
                    type == EBB_PREFERENCE_ORPO ? chosen : 0) &&
           set_mean(json, prefix, "kl", p->kl, p->kl_batches);
}

/* What a loss is made of. */
static bool set_parts(json_t *json, const char *prefix, const struct ebb_objective *objective,
                      const struct ebb_sums *sums)
{
    if (ebb_objective_prefers(objective))
        return set_preference(json, prefix, objective, &sums->preference);
    return !ebb_objective_distills(objective) ||
           (set_mean(json, prefix, "ce_loss", sums->cross_entropy, sums->labels) &&
            set_mean(json, prefix, "kd_loss", sums->divergence, sums->labels));
}

json_t *ebb_step_record_json(const struct ebb_step_record *r)
{
    json_t *json = json_object();
    double rate = r->seconds > 0 ? (double)r->step_tokens / r->seconds : NAN;
    bool tokens = !ebb_objective_prefers(r->objective);
    bool ok = set(json, "step", integer(r->step)) &&
              set(json, "epoch", ebb_json_number(r->epoch)) &&
              set(json, "loss", ebb_json_number(r->loss)) &&
              set_parts(json, "", r->objective, &r->sums) &&
              set(json, "grad_norm", ebb_json_number(r->grad_norm)) &&
              set(json, "learning_rate", ebb_json_number(r->learning_rate)) &&
              set(json, "num_tokens", integer(r->tokens)) &&
              (!tokens || set(json, "mean_token_accuracy", ebb_json_number(r->accuracy))) &&
              set(json, "tokens_per_second", ebb_json_number(rate)) &&
              set(json, "step_seconds", ebb_json_number(r->seconds)) &&
              set(json, "peak_device_bytes", integer(r->usage.peak_device_bytes)) &&
              set(json, "predicted_device_bytes", integer(r->usage.predicted_device_bytes)) &&
              set(json, "process_device_bytes",
                  r->usage.process_device_bytes < 0 ? json_null()
                                                    : integer(r->usage.process_device_bytes)) &&
              set(json, "host_bytes", integer(r->usage.host_bytes)) &&
              set(json, "bytes_out", integer(r->usage.bytes_out)) &&
              set(json, "bytes_in", integer(r->usage.bytes_in)) &&
              set(json, "stall_seconds", ebb_json_number(r->usage.stall_seconds));
    if (ok && r->skipped) ok = set(json, "skipped", json_true());
    return checked(json, ok);
}

json_t *ebb_eval_record_json(int64_t step, double epoch, const struct ebb_eval_result *r)
{
    json_t *json = json_object();
    double rate = r->seconds > 0 ? (double)r->tokens / r->seconds : NAN;
    bool tokens = !ebb_objective_prefers(&r->objective);
    bool ok = set(json, "step", integer(step)) && set(json, "epoch", ebb_json_number(epoch)) &&
              set(json, "eval_loss", ebb_json_number(r->loss)) &&
              set_parts(json, "eval_", &r->objective, &r->sums) &&
              (!tokens || (set(json, "eval_mean_token_accuracy", ebb_json_number(r->accuracy)) &&
                           set(json, "eval_perplexity", ebb_json_number(exp(r->cross_entropy))))) &&
              set(json, "eval_num_tokens", integer(r->tokens)) &&
              set(json, "eval_num_labels", integer(r->labels)) &&
              set(json, "eval_runtime", ebb_json_number(r->seconds)) &&
              set(json, "eval_tokens_per_second", ebb_json_number(rate));
    return checked(json, ok);
}

json_t *ebb_sample_record_json(int64_t step, double epoch, json_t *list)
{
    json_t *json = json_object();
    bool ok = set(json, "step", integer(step)) && set(json, "epoch", ebb_json_number(epoch));
    if (ok)
        ok = set(json, "samples", list);
    else
        json_decref(list);
    return checked(json, ok);
}
