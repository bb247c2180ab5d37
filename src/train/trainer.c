/* The training loop.
 *
 * One turn of the loop stands between two optimizer steps: evaluate, show samples and save where
 * that is due, stop or step. Whether something is due depends on the state alone, so that a run
 * that was stopped anywhere finds at its next start what it still owes at that step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "device/device.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/trainer_int.h"

enum {
    SKIPPED_ROW_MAX = 10, /* steps in a row without finite gradients that end a run */
    WINDOW_STEPS = 10,    /* of the reported loss where nothing is printed */
    SHORT_TEXT = 32
};

struct trainer {
    struct ebb_ctx *ctx;
    const struct ebb_trainer_request *request;
    struct ebb_train_state state;
    struct ebb_metrics *metrics;
    struct ebb_run_record *run;
    struct ebb_progress *progress;
    json_t *identity;
    int64_t total;      /* optimizer steps of the whole run */
    int64_t first;      /* steps that were done when this session began */
    int64_t saved_step; /* that has a checkpoint in output_dir; -1: none yet */
    int64_t kept_step;  /* of the latest checkpoint there, whatever it lacks; -1: none */
    double pace;        /* smoothed seconds of a step; 0: none yet */
    double started;     /* the clock at this session's start */
    double seconds_before;
    int signals; /* one: finish the step; two: leave it */
};

/* What one step adds up to. */
struct work {
    int64_t tokens, weight; /* what loss and gradients are divided by: ebb_objective_weight */
    double rate, seconds;
    bool left; /* given up after a second signal */
    struct ebb_sums sums;
    struct ebb_engine_usage usage; /* moves: of this step */
};

/* ---- before the first step ------------------------------------------------------------------- */

static enum ebb_status check_request(struct ebb_ctx *ctx, const struct ebb_trainer_request *r)
{
    if (r->world > 1)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "rank %" PRIu32 " of %" PRIu32 ": training by several processes is not "
                        "offered yet",
                        r->rank, r->world);
    if (r->accumulation < 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "gradient_accumulation_steps is %" PRId64 ", at least 1 is wanted",
                        r->accumulation);
    if (r->max_steps <= 0 && !(r->epochs > 0))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "num_train_epochs is %g: there is nothing to train",
                        r->epochs);
    if (r->eval_strategy == EBB_WHEN_STEPS && r->eval_steps < 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "eval_steps is %" PRId64 ", at least 1 is wanted",
                        r->eval_steps);
    if (r->save_strategy == EBB_WHEN_STEPS && r->save_steps < 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "save_steps is %" PRId64 ", at least 1 is wanted",
                        r->save_steps);
    bool evaluates = r->eval && r->eval_strategy != EBB_WHEN_NO;
    if (!evaluates && (r->load_best_at_end || r->early_stopping_patience > 0))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "%s needs a validation set and eval_strategy 'steps' or 'epoch'",
                        r->load_best_at_end ? "load_best_model_at_end" : "early_stopping_patience");
    return EBB_OK;
}

/* As transformers counts: an epoch's last step may be short, a broken number of epochs is rounded
 * up to a step. */
static int64_t total_steps(const struct ebb_trainer_request *r)
{
    int64_t micros = ebb_loader_describe(r->train)->micros_per_epoch;
    int64_t steps_per_epoch = (micros + r->accumulation - 1) / r->accumulation;
    if (r->max_steps > 0) return r->max_steps;
    double steps = r->epochs * (double)steps_per_epoch;
    return (int64_t)ceil(steps - 1e-9 * steps);
}

static enum ebb_status resume(struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    EBB_TRY(ebb_checkpoint_load(t->ctx, r, r->resume, t->identity, &t->state));
    char *own = ebb_checkpoint_path(t->ctx, r->output_dir, t->state.step);
    if (!own) return EBB_NO_MEMORY;
    if (ebb_dir_exists(own)) t->saved_step = t->kept_step = t->state.step;
    ebb_mem_free(t->ctx, own);
    EBB_TRY(ebb_checkpoint_warn_newer(t->ctx, r->output_dir, t->state.step));
    ebb_log(t->ctx, EBB_LOG_INFO, "resume", "going on from '%s' after step %" PRId64 " of %" PRId64,
            r->resume, t->state.step, t->total);
    return EBB_OK;
}

static enum ebb_status prepare(struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    const struct ebb_loader_place start = {0, 0};
    EBB_TRY(check_request(t->ctx, r));
    t->total = total_steps(r);
    t->state = ebb_train_state_start();
    t->saved_step = t->kept_step = -1;
    EBB_TRY(ebb_output_clean(t->ctx, r->output_dir));
    EBB_TRY(ebb_identity_create(t->ctx, r, t->total, &t->identity));
    EBB_TRY(ebb_loader_seek(t->ctx, r->train, start));
    if (r->resume) EBB_TRY(resume(t));
    t->first = t->state.step;
    t->seconds_before = t->state.seconds;
    EBB_TRY(ebb_metrics_open(t->ctx, r->output_dir, !r->resume, &t->metrics));
    if (r->events_dir)
        EBB_TRY(ebb_metrics_report(t->metrics, r->events_dir, r->resume ? t->state.step + 1 : 0));
    t->progress = ebb_progress_create(t->ctx);
    if (!t->progress) return EBB_NO_MEMORY;
    EBB_TRY(ebb_run_record_open(t->ctx, r, &t->run));
    return ebb_run_record_begin(t->run, t->state.step, t->total);
}

/* ---- signals --------------------------------------------------------------------------------- */

static void look_for_signal(struct trainer *t)
{
    struct signalfd_siginfo info;
    if (!ebb_stop_wanted(t->request->stop_fd)) return;
    if (read(t->request->stop_fd, &info, sizeof info) <= 0) return;
    t->signals++;
    if (t->signals == 1)
        ebb_log(t->ctx, EBB_LOG_INFO, "train",
                "stopping: this step is finished and a checkpoint written first; once more leaves "
                "the step unfinished");
}

/* ---- what is shown and recorded -------------------------------------------------------------- */

static double epoch_now(const struct trainer *t)
{
    struct ebb_loader_place place = t->state.place;
    return (double)place.epoch +
           (double)place.micro / (double)ebb_loader_describe(t->request->train)->micros_per_epoch;
}

static double window_mean(const struct trainer *t)
{
    return t->state.window_labels > 0 ? t->state.window_loss / (double)t->state.window_labels
                                      : t->state.logged_loss;
}

/* What matters most comes first: a narrow terminal cuts the rest. */
static void show_step(struct trainer *t, const struct work *w, bool keep)
{
    char memory[SHORT_TEXT], predicted[SHORT_TEXT], left[SHORT_TEXT], norm[SHORT_TEXT];
    ebb_text_bytes(w->usage.peak_device_bytes, memory, sizeof memory);
    ebb_text_bytes(w->usage.predicted_device_bytes, predicted, sizeof predicted);
    ebb_text_seconds(t->pace * (double)(t->total - t->state.step), left, sizeof left);
    snprintf(norm, sizeof norm, "-");
    if (w->weight > 0) snprintf(norm, sizeof norm, "%.4g", w->sums.grad_norm);
    ebb_progress_show(t->progress, keep,
                      "step %lld/%lld  loss \033[1m%.4f\033[0m  grad norm %s  lr %.3g  %.0f tok/s  "
                      "ETA %s  memory %s of %s  epoch %.2f",
                      (long long)t->state.step, (long long)t->total, window_mean(t), norm, w->rate,
                      w->seconds > 0 ? (double)w->tokens / w->seconds : 0, left, memory, predicted,
                      epoch_now(t));
}

/* The printed loss is the mean since the last line that stays. */
static void report_step(struct trainer *t, const struct work *w)
{
    int64_t every = t->request->logging_steps, step = t->state.step;
    bool printed = every > 0;
    if (!printed) every = WINDOW_STEPS;
    bool due = step % every == 0 || step == t->total, begins = step == t->first + 1;
    if (printed && (due || begins || ebb_progress_is_live(t->progress)))
        show_step(t, w, due || begins);
    if (!due) return;
    t->state.logged_loss = window_mean(t);
    t->state.window_loss = 0;
    t->state.window_labels = 0;
}

static enum ebb_status record_step(struct trainer *t, const struct work *w)
{
    struct ebb_step_record record;
    memset(&record, 0, sizeof record);
    record.step = t->state.step;
    record.epoch = epoch_now(t);
    record.loss = w->weight > 0 ? w->sums.loss / (double)w->weight : NAN;
    record.objective = ebb_engine_objective(t->request->engine);
    record.sums = w->sums;
    record.accuracy = w->sums.labels > 0 ? (double)w->sums.correct / (double)w->sums.labels : NAN;
    record.grad_norm = w->weight > 0 ? w->sums.grad_norm : NAN;
    record.learning_rate = w->rate;
    record.tokens = t->state.tokens;
    record.step_tokens = w->tokens;
    record.seconds = w->seconds;
    record.skipped = w->weight > 0 && !w->sums.finite;
    record.usage = w->usage;
    return ebb_metrics_add(t->metrics, ebb_step_record_json(&record));
}

/* ---- a step ---------------------------------------------------------------------------------- */

static enum ebb_status run_micros(struct trainer *t, struct work *w)
{
    const struct ebb_trainer_request *r = t->request;
    ebb_engine_begin(r->engine);
    for (int64_t m = 0; m < r->accumulation; m++) {
        const struct ebb_batch *batch;
        if (m > 0) look_for_signal(t);
        if (t->signals > 1) {
            w->left = true;
            return EBB_OK;
        }
        EBB_TRY(ebb_loader_next(t->ctx, r->train, &batch));
        if (r->train_feed) EBB_TRY(ebb_feed_put(r->train_feed, r->engine, r->train, batch));
        EBB_TRY(ebb_engine_micro(r->engine, EBB_PROGRAM_TRAIN, batch, (uint64_t)t->state.step + 1,
                                 (uint32_t)m));
        w->tokens += batch->tokens;
        if (ebb_loader_tell(r->train).micro == 0)
            break; /* a step does not reach into the next epoch */
    }
    return ebb_engine_flush(r->engine);
}

/* A step without labels, or one whose gradients are not finite, changes no weight and counts as no
 * update. */
static enum ebb_status update(struct trainer *t, struct work *w)
{
    struct ebb_engine *engine = t->request->engine;
    int64_t step = t->state.step + 1;
    w->sums = ebb_engine_sums(engine);
    w->weight = ebb_objective_weight(ebb_engine_objective(engine), &w->sums);
    w->rate = ebb_schedule_rate(&t->request->schedule, step, t->total);
    if (w->weight == 0) {
        ebb_warn_once(t->ctx, "train.no_labels",
                      "step %" PRId64
                      " holds no token that is trained: its loss is null and it changes nothing",
                      step);
        return EBB_OK;
    }
    EBB_TRY(ebb_engine_update(engine, (uint64_t)t->state.updates + 1, w->rate, (double)w->weight));
    w->sums = ebb_engine_sums(engine);
    if (w->sums.finite) {
        t->state.updates++;
        t->state.skipped_row = 0;
        return EBB_OK;
    }
    t->state.skipped++;
    t->state.skipped_row++;
    ebb_log(t->ctx, EBB_LOG_WARNING, "train",
            "step %" PRId64 ": the gradients are not finite, no weight was changed (%" PRId64
            " such steps so far; %d "
            "in a row end the run)",
            step, t->state.skipped, SKIPPED_ROW_MAX);
    return EBB_OK;
}

static void count_step(struct trainer *t, const struct work *w)
{
    struct ebb_train_state *s = &t->state;
    s->step++;
    s->tokens += w->tokens;
    s->place = ebb_loader_tell(t->request->train);
    s->seconds = t->seconds_before + ebb_clock_seconds() - t->started;
    if (isfinite(w->sums.loss)) {
        s->window_loss += w->sums.loss;
        s->window_labels += w->weight;
    }
    t->pace = t->pace > 0 ? 0.9 * t->pace + 0.1 * w->seconds : w->seconds;
}

static enum ebb_status step(struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    struct ebb_device_counters before;
    struct work work;
    double began = ebb_clock_seconds();
    memset(&work, 0, sizeof work);
    struct ebb_profile *profile = ebb_engine_profile(r->engine);
    ebb_device_counters(ebb_engine_device(r->engine), &before);
    if (profile) ebb_profile_begin(profile);
    EBB_TRY(run_micros(t, &work));
    if (work.left) {
        EBB_TRY(ebb_engine_drop_gradients(r->engine));
        return ebb_loader_seek(t->ctx, r->train, t->state.place);
    }
    EBB_TRY(update(t, &work));
    work.seconds = ebb_clock_seconds() - began;
    if (profile) ebb_profile_end(profile, work.seconds);
    count_step(t, &work);
    work.usage = ebb_engine_usage(r->engine);
    work.usage.bytes_out -= before.bytes_out;
    work.usage.bytes_in -= before.bytes_in;
    work.usage.stall_seconds -= before.stall_seconds;
    EBB_TRY(record_step(t, &work));
    report_step(t, &work);
    if (r->die_after_step > 0 && t->state.step == r->die_after_step) (void)raise(SIGKILL);
    if (t->state.skipped_row >= SKIPPED_ROW_MAX)
        return EBB_FAIL(t->ctx, EBB_FAILED,
                        "the gradients of %" PRId64
                        " steps in a row were not finite, the last of them step %" PRId64
                        "\na lower learning_rate, a longer warm-up or a max_grad_norm may help; a "
                        "model whose weights "
                        "are not finite cannot be trained",
                        t->state.skipped_row, t->state.step);
    return EBB_OK;
}

/* ---- between steps --------------------------------------------------------------------------- */

static bool at(const struct trainer *t, enum ebb_when when, int64_t every)
{
    if (when == EBB_WHEN_NO || t->state.step == 0) return false;
    if (t->state.step >= t->total) return true;
    return when == EBB_WHEN_STEPS ? t->state.step % every == 0 : t->state.place.micro == 0;
}

static bool eval_due(const struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    return r->eval && t->state.eval_step != t->state.step && at(t, r->eval_strategy, r->eval_steps);
}

static bool stops_early(const struct trainer *t)
{
    int64_t patience = t->request->early_stopping_patience;
    return patience > 0 && t->state.evals_worse >= patience;
}

static bool save_due(const struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    if (t->saved_step == t->state.step || t->state.step == 0) return false;
    if (r->load_best_at_end && t->state.best_step == t->state.step) return true;
    return at(t, r->save_strategy, r->save_steps) ||
           (r->save_strategy != EBB_WHEN_NO && stops_early(t));
}

static void note_eval(struct trainer *t, double loss)
{
    struct ebb_train_state *s = &t->state;
    bool first = isnan(s->best_loss);
    s->eval_step = s->step;
    bool enough =
        isfinite(loss) && (first || loss < s->best_loss - t->request->early_stopping_threshold);
    s->evals_worse = enough ? 0 : s->evals_worse + 1;
    if (isfinite(loss) && (first || loss < s->best_loss)) {
        s->best_loss = loss;
        s->best_step = s->step;
    }
}

/* A signal ended what was to be done between two steps. */
static enum ebb_status put_off(struct trainer *t)
{
    ebb_error_clear(t->ctx);
    look_for_signal(t);
    if (t->signals == 0) t->signals = 1;
    return EBB_OK;
}

/* Mean rewards of either kind of answers, where there are any. */
static void show_rewards(const struct ebb_preference_sums *p, char *out, size_t room)
{
    int used = snprintf(out, room, "rewards");
    if (p->desirable > 0)
        used += snprintf(out + used, room - (size_t)used, " %.4g of chosen",
                         p->rewards_chosen / (double)p->desirable);
    if (p->undesirable > 0)
        snprintf(out + used, room - (size_t)used, "%s %.4g of rejected",
                 p->desirable > 0 ? "," : "", p->rewards_rejected / (double)p->undesirable);
}

static void show_eval(struct trainer *t, const struct ebb_eval_result *result)
{
    char seconds[SHORT_TEXT], quality[96];
    const struct ebb_preference_sums *p = &result->sums.preference;
    double pairs = (double)p->examples;
    if (!ebb_objective_prefers(&result->objective))
        snprintf(quality, sizeof quality, "accuracy %.4f  perplexity %.4g", result->accuracy,
                 exp(result->cross_entropy));
    else if (ebb_objective_has_kinds(&result->objective))
        show_rewards(p, quality, sizeof quality);
    else
        snprintf(quality, sizeof quality, "reward accuracy %.4f  margin %.4g",
                 (double)p->accuracies / pairs, p->margins / pairs);
    ebb_progress_show(t->progress, true,
                      "evaluation after step %" PRId64
                      "  eval_loss \033[1m%.4f\033[0m%s  %s  in %s",
                      t->state.step, result->loss,
                      t->state.best_step == t->state.step ? " (the best)" : "", quality,
                      ebb_text_seconds(result->seconds, seconds, sizeof seconds));
}

/* An evaluation that a signal ends is owed: the run that goes on makes it. */
static enum ebb_status evaluate(struct trainer *t)
{
    struct ebb_eval_result result;
    const struct ebb_trainer_request *r = t->request;
    enum ebb_status status =
        ebb_evaluate(t->ctx, r->engine, r->eval, r->eval_feed, r->stop_fd, &result);
    if (status == EBB_INTERRUPTED) return put_off(t);
    EBB_TRY(status);
    note_eval(t, result.loss);
    if (t->saved_step == t->state.step) t->saved_step = -1; /* it lacks this evaluation */
    EBB_TRY(
        ebb_metrics_add(t->metrics, ebb_eval_record_json(t->state.step, epoch_now(t), &result)));
    if (r->logging_steps > 0) show_eval(t, &result);
    return EBB_OK;
}

static bool samples_due(const struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    if (r->samples == NULL || t->state.sample_step == t->state.step) return false;
    return t->state.step == 0 || t->state.step >= t->total || stops_early(t) ||
           at(t, r->eval_strategy, r->eval_steps);
}

/* Like an evaluation, owed where a signal ends it. */
static enum ebb_status sample(struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    json_t *list;
    enum ebb_status status = ebb_samples_run(t->ctx, r->engine, r->samples, r->stop_fd, &list);
    if (status == EBB_INTERRUPTED) return put_off(t);
    EBB_TRY(status);
    t->state.sample_step = t->state.step;
    if (t->saved_step == t->state.step) t->saved_step = -1; /* it lacks these */
    if (r->logging_steps > 0) status = ebb_samples_log(t->ctx, t->state.step, list);
    json_t *record = ebb_sample_record_json(t->state.step, epoch_now(t), list);
    enum ebb_status added = ebb_metrics_add(t->metrics, record);
    return status == EBB_OK ? added : status;
}

static enum ebb_status save(struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    t->state.seconds = t->seconds_before + ebb_clock_seconds() - t->started;
    EBB_TRY(ebb_metrics_flush(t->metrics));
    EBB_TRY(ebb_checkpoint_save(t->ctx, r, &t->state, t->identity));
    t->saved_step = t->kept_step = t->state.step;
    ebb_log(t->ctx, EBB_LOG_DEBUG, "checkpoint", "saved step %" PRId64, t->state.step);
    return ebb_checkpoint_rotate(t->ctx, r->output_dir, r->save_total_limit, t->state.step,
                                 t->state.best_step);
}

static enum ebb_status interrupted(struct trainer *t)
{
    if (t->saved_step != t->state.step) EBB_TRY(save(t));
    return EBB_FAIL(t->ctx, EBB_INTERRUPTED,
                    "stopped by a signal after step %" PRId64 " of %" PRId64
                    "; '%s/checkpoint-%" PRId64 "' is written\n"
                    "resume_from_checkpoint: true goes on from it",
                    t->state.step, t->total, t->request->output_dir, t->state.step);
}

/* A device that fails takes the steps since the last checkpoint with it, and no more. */
static void tell_what_is_kept(struct trainer *t)
{
    char text[EBB_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", ebb_error_text(t->ctx));
    ebb_error_clear(t->ctx);
    if (t->kept_step >= 0)
        (void)EBB_FAIL(t->ctx, EBB_DEVICE,
                       "%s\nkept:  '%s/checkpoint-%" PRId64 "' is whole (the run had done %" PRId64
                       " steps); resume_from_checkpoint: true goes on from it",
                       text, t->request->output_dir, t->kept_step, t->state.step);
    else
        (void)EBB_FAIL(t->ctx, EBB_DEVICE,
                       "%s\nkept:  nothing, the run had written no checkpoint in %" PRId64
                       " steps; save_strategy and save_steps say when it does",
                       text, t->state.step);
}

static enum ebb_status loop(struct trainer *t)
{
    for (;;) {
        if (eval_due(t)) EBB_TRY(evaluate(t));
        if (!eval_due(t) && samples_due(t)) EBB_TRY(sample(t));
        if (save_due(t)) EBB_TRY(save(t));
        bool over = t->state.step >= t->total || stops_early(t);
        bool owes = eval_due(t) || samples_due(t);
        if (over) return t->signals > 0 && owes ? interrupted(t) : EBB_OK;
        look_for_signal(t);
        if (t->signals > 0) return interrupted(t);
        EBB_TRY(step(t));
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Puts the best step's parameters in place, unless they are there already. */
static enum ebb_status load_best(struct trainer *t)
{
    const struct ebb_trainer_request *r = t->request;
    int64_t best = t->state.best_step;
    if (!r->load_best_at_end || best < 0 || best == t->state.step) return EBB_OK;
    char *dir = ebb_checkpoint_path(t->ctx, r->output_dir, best);
    if (!dir) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    if (!ebb_dir_exists(dir)) {
        ebb_log(
            t->ctx, EBB_LOG_WARNING, "train",
            "the best checkpoint '%s' is gone: the result is the last step's model, not the best",
            dir);
    } else {
        status = ebb_checkpoint_load_weights(t->ctx, r, dir);
        if (status == EBB_OK)
            ebb_log(t->ctx, EBB_LOG_INFO, "train",
                    "the result is the best model, of step %" PRId64 " (eval_loss %.4f)", best,
                    t->state.best_loss);
    }
    ebb_mem_free(t->ctx, dir);
    return status;
}

/* One line after the other, so that each is a line of the log. */
static void log_lines(struct trainer *t, const char *topic, const char *text)
{
    while (*text) {
        int length = (int)strcspn(text, "\n");
        ebb_log(t->ctx, EBB_LOG_INFO, topic, "%.*s", length, text);
        text += length + (text[length] == '\n');
    }
}

static enum ebb_status record_profile(struct trainer *t, const struct ebb_profile_step *mean,
                                      const struct ebb_ceilings *ceilings)
{
    struct ebb_profile_op *ops;
    int64_t count;
    enum ebb_status status = ebb_profile_ops(ebb_engine_profile(t->request->engine), &ops, &count);
    if (status == EBB_OK)
        status = ebb_run_record_profile(t->run, ebb_profile_json(mean, ops, count, ceilings));
    ebb_mem_free(t->ctx, ops);
    return status;
}

/* Ceilings are measured after the run: they need the place where programs work, and the device as
 * warm as it was. A run that a signal ends does not wait for them. */
static enum ebb_status report_profile(struct trainer *t, bool measure)
{
    struct ebb_engine *engine = t->request->engine;
    struct ebb_profile_step mean;
    struct ebb_ceilings ceilings;
    struct ebb_str text = {0};
    memset(&ceilings, 0, sizeof ceilings);
    if (!ebb_engine_profile(engine)) return EBB_OK;
    mean = ebb_profile_mean(ebb_engine_profile(engine));
    if (mean.steps == 0) return EBB_OK;
    if (measure && ebb_engine_ceilings(engine, &ceilings) != EBB_OK) {
        /* The run is over and saved: it does not fail for want of something to compare with. */
        ebb_warn_once(t->ctx, "profile.ceilings", "the profile is without ceilings: %s",
                      ebb_error_text(t->ctx));
        ebb_error_clear(t->ctx);
        memset(&ceilings, 0, sizeof ceilings);
    }
    EBB_TRY(record_profile(t, &mean, &ceilings));
    enum ebb_status status = ebb_profile_table(t->ctx, &mean, &ceilings, &text);
    if (status == EBB_OK) log_lines(t, "profile", text.data);
    ebb_str_free(t->ctx, &text);
    return status;
}

static void fill_result(const struct trainer *t, struct ebb_trainer_result *result)
{
    result->steps = t->state.step;
    result->final_loss = window_mean(t);
    result->best_eval_loss = t->state.best_loss;
    result->seconds = ebb_clock_seconds() - t->started;
    result->tokens = t->state.tokens;
    result->skipped_steps = t->state.skipped;
    result->stopped_early = stops_early(t) && t->state.step < t->total;
}

static void clear(struct trainer *t)
{
    ebb_run_record_free(t->run);
    ebb_progress_free(t->progress);
    ebb_metrics_close(t->metrics);
    json_decref(t->identity);
}

enum ebb_status ebb_trainer_run(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                struct ebb_trainer_result *result)
{
    struct trainer t;
    memset(&t, 0, sizeof t);
    memset(result, 0, sizeof *result);
    t.ctx = ctx;
    t.request = request;
    t.started = ebb_clock_seconds();
    enum ebb_status status = prepare(&t);
    if (status == EBB_OK) {
        status = loop(&t);
        if (status == EBB_OK) status = load_best(&t);
        if (status == EBB_OK) status = ebb_result_save(ctx, request);
        fill_result(&t, result); /* before ceilings are measured, whose time is not the run's */
        if (status == EBB_OK || status == EBB_INTERRUPTED) {
            enum ebb_status reported = report_profile(&t, status == EBB_OK);
            if (status == EBB_OK) status = reported;
        }
        if (status == EBB_DEVICE) tell_what_is_kept(&t);
        enum ebb_status noted = ebb_run_record_end(t.run, status, t.state.step, result);
        if (status == EBB_OK) status = noted;
    }
    clear(&t);
    return status;
}
