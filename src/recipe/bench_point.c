/* Measuring one point.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/bench_point.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "recipe/dpo.h"
#include "recipe/fit.h"
#include "recipe/kd.h"
#include "recipe/outlook.h"
#include "recipe/sft.h"

/* What is measured, step by step. */
struct measuring {
    struct ebb_setup *setup;
    struct ebb_engine *engine;
    struct ebb_results_point *point;
    double *seconds;                 /* [steps] */
    int64_t steps, counted;          /* counted: those whose seconds count, the last of `seconds` */
    int64_t tokens;                  /* of a step */
    struct ebb_engine_usage started; /* counters before the first step that counts */
};

/* ---- setting up ---- */

static enum ebb_status set_keys(struct ebb_options *options, const struct ebb_bench_job *job)
{
    char length[32];
    snprintf(length, sizeof length, "%lld", (long long)job->length);
    EBB_TRY(ebb_bench_mode_set(options, &job->mode));
    if (job->model[0]) {
        EBB_TRY(ebb_options_unset(options, "model_name_or_path"));
        EBB_TRY(ebb_options_set(options, "model_name_or_path", job->model));
    }
    EBB_TRY(ebb_options_unset(options, "max_length"));
    EBB_TRY(ebb_options_set(options, "max_length", length));
    return ebb_options_check(options);
}

/* Samples of any length will do, and are the same, from the cache, for every point. */
static enum ebb_status load_samples(struct ebb_setup *setup, struct ebb_config *config)
{
    const int64_t length = config->max_length;
    config->max_length = EBB_AUTO_INT;
    config->overlong = EBB_OVERLONG_KEEP;
    EBB_TRY(ebb_setup_tokenizer(setup));
    EBB_TRY(ebb_setup_data(setup));
    config->max_length = length;
    return EBB_OK;
}

static enum ebb_status set_up(struct ebb_setup *setup, struct ebb_ctx *ctx,
                              struct ebb_options *options, struct ebb_config *config,
                              const struct ebb_recipe_env *env, int64_t length)
{
    const bool kd = ebb_kd_wanted(options, config), dpo = ebb_dpo_wanted(options, config);
    if (kd && config->teacher_logits)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "teacher_logits belongs to the samples that it was saved for, and 'ebb "
                        "bench' trains on rows of one length\n"
                        "where: %s\n"
                        "try:   teacher_model_name_or_path",
                        ebb_options_where(options, "teacher_logits"));
    if (dpo) setup->purpose = EBB_PURPOSE_PREFERENCE;
    EBB_TRY(ebb_setup_model(ctx, options, config, env, setup));
    EBB_TRY(ebb_setup_time(setup, NULL));
    EBB_TRY(ebb_bench_is_blank(ctx, setup->model_dir, &setup->request.blank));
    if (ebb_bench_has_data(config)) EBB_TRY(load_samples(setup, config));
    EBB_TRY(ebb_bench_rows(setup, length));
    EBB_TRY(ebb_setup_training(setup));
    setup->request.evaluate = true;
    if (kd) return ebb_kd_setup(setup);
    return dpo ? ebb_dpo_setup(setup) : EBB_OK;
}

/* ---- steps ---- */

static enum ebb_status next_batch(struct measuring *m, const struct ebb_batch **batch)
{
    struct ebb_setup *setup = m->setup;
    EBB_TRY(ebb_loader_next(setup->ctx, setup->train, batch));
    return setup->train_feed ? ebb_feed_put(setup->train_feed, m->engine, setup->train, *batch)
                             : EBB_OK;
}

/* First, so that what the engine says of its peak is this program's alone. */
static enum ebb_status evaluate(struct measuring *m)
{
    const struct ebb_batch *batch;
    ebb_engine_begin(m->engine);
    EBB_TRY(next_batch(m, &batch));
    EBB_TRY(ebb_engine_micro(m->engine, EBB_PROGRAM_EVAL, batch, 1, 0));
    m->point->values[EBB_RESULTS_EVAL_PEAK] = (double)ebb_engine_usage(m->engine).peak_device_bytes;
    return ebb_loader_seek(m->setup->ctx, m->setup->train, (struct ebb_loader_place){0, 0});
}

static enum ebb_status run_step(struct measuring *m, int64_t step, double *seconds)
{
    const struct ebb_objective *objective = ebb_engine_objective(m->engine);
    const double rate = ebb_sft_learning_rate(m->setup), began = ebb_clock_seconds();
    const struct ebb_batch *batch;
    m->tokens = 0;
    ebb_engine_begin(m->engine);
    for (int64_t i = 0; i < m->setup->config->gradient_accumulation_steps; i++) {
        EBB_TRY(next_batch(m, &batch));
        EBB_TRY(ebb_engine_micro(m->engine, EBB_PROGRAM_TRAIN, batch, (uint64_t)step, (uint32_t)i));
        m->tokens += batch->tokens;
    }
    const struct ebb_sums sums = ebb_engine_sums(m->engine);
    const double weight = (double)ebb_objective_weight(objective, &sums);
    EBB_TRY(ebb_engine_update(m->engine, (uint64_t)step, rate, weight));
    *seconds = ebb_clock_seconds() - began;
    m->point->values[EBB_RESULTS_LOSS] = sums.loss / weight;
    return EBB_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static double median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

static enum ebb_status run_steps(struct measuring *m)
{
    m->steps = m->setup->config->steps;
    m->counted = m->steps > 1 ? m->steps - 1 : 1;
    m->seconds = ebb_mem_alloc(m->setup->ctx, (size_t)m->steps * sizeof *m->seconds);
    if (m->seconds == NULL) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < m->steps; i++) {
        if (i == m->steps - m->counted) m->started = ebb_engine_usage(m->engine);
        EBB_TRY(run_step(m, i + 1, &m->seconds[i]));
    }
    return EBB_OK;
}

/* ---- what came out ---- */

static void fill_measured(struct measuring *m)
{
    double *values = m->point->values;
    const struct ebb_engine_usage usage = ebb_engine_usage(m->engine);
    const double seconds = median(m->seconds + m->steps - m->counted, m->counted);
    const double count = (double)m->counted;
    values[EBB_RESULTS_LENGTH] = (double)m->setup->max_length;
    values[EBB_RESULTS_PEAK] = (double)usage.peak_device_bytes;
    values[EBB_RESULTS_HOST] = (double)usage.host_bytes;
    /* The CPU has no driver that counts: its number is of pages of the arena. */
    if (m->setup->request.backend == EBB_BACKEND_CUDA && usage.process_device_bytes >= 0)
        values[EBB_RESULTS_PROCESS] = (double)usage.process_device_bytes;
    values[EBB_RESULTS_BYTES_OUT] = round((double)(usage.bytes_out - m->started.bytes_out) / count);
    values[EBB_RESULTS_BYTES_IN] = round((double)(usage.bytes_in - m->started.bytes_in) / count);
    values[EBB_RESULTS_STALL] = (usage.stall_seconds - m->started.stall_seconds) / count;
    values[EBB_RESULTS_SECONDS] = seconds;
    values[EBB_RESULTS_SPEED] = (double)m->tokens / seconds;
}

static enum ebb_status fill_predicted(struct measuring *m)
{
    double *values = m->point->values;
    const struct ebb_plan *plan = ebb_engine_plan(m->engine);
    struct ebb_outlook outlook;
    EBB_TRY(ebb_outlook_step(m->setup, m->engine, &outlook));
    if (outlook.known) {
        values[EBB_RESULTS_FORECAST_SECONDS] = outlook.step.step.seconds;
        values[EBB_RESULTS_FORECAST_SPEED] = outlook.step.tokens / outlook.step.step.seconds;
    }
    values[EBB_RESULTS_PREDICTED_PEAK] = (double)plan->device_bytes;
    values[EBB_RESULTS_PREDICTED_HOST] = (double)plan->host_bytes;
    if (m->setup->request.backend == EBB_BACKEND_CUDA)
        values[EBB_RESULTS_PREDICTED_PROCESS] = (double)plan->total_bytes;
    values[EBB_RESULTS_RESIDENT] = (double)ebb_plan_resident_bytes(plan);
    return EBB_OK;
}

/* ---- the point ---- */

/* In short: it becomes a series' end, and there is nobody here to advise. */
static enum ebb_status check_fit(const struct measuring *m)
{
    const struct ebb_setup *setup = m->setup;
    const struct ebb_plan *plan = ebb_engine_plan(m->engine);
    int64_t budget = setup->request.device_budget;
    char needs[32], has[32];
    if (ebb_fit_holds(setup, m->engine)) return EBB_OK;
    const bool host = budget > 0 && plan->total_bytes <= budget;
    if (budget == 0) budget = ebb_host_bytes_total();
    ebb_text_bytes_apart(host ? plan->host_bytes : plan->total_bytes,
                         host ? setup->request.host_budget : budget, needs, has, sizeof needs);
    return EBB_FAIL(setup->ctx, EBB_DOES_NOT_FIT, "needs %s of %s memory, %s may be used", needs,
                    host ? "host" : "device", has);
}

static enum ebb_status measure(struct measuring *m)
{
    struct ebb_setup *setup = m->setup;
    EBB_TRY(ebb_engine_create(setup->ctx, &setup->request, &m->engine));
    EBB_TRY(check_fit(m));
    EBB_TRY(ebb_dpo_precompute(setup, m->engine));
    EBB_TRY(ebb_sft_settle(setup, &m->engine));
    ebb_log(setup->ctx, EBB_LOG_INFO, "bench", "plan: %s%s", ebb_engine_plan(m->engine)->what,
            setup->request.blank ? "; the model has no weights: they are random numbers" : "");
    EBB_TRY(ebb_engine_open(m->engine));
    EBB_TRY(fill_predicted(m)); /* before the loader has moved */
    EBB_TRY(ebb_setup_feeds(setup, m->engine));
    EBB_TRY(evaluate(m));
    EBB_TRY(run_steps(m));
    fill_measured(m);
    return EBB_OK;
}

enum ebb_status ebb_bench_point(struct ebb_ctx *ctx, struct ebb_options *options,
                                struct ebb_config *config, const struct ebb_recipe_env *env,
                                const struct ebb_bench_job *job, struct ebb_results_point *point)
{
    struct measuring m = {.point = point};
    EBB_TRY(set_keys(options, job));
    m.setup = ebb_mem_alloc(ctx, sizeof *m.setup);
    if (m.setup == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = set_up(m.setup, ctx, options, config, env, job->length);
    if (status == EBB_OK) status = measure(&m);
    ebb_mem_free(ctx, m.seconds);
    ebb_engine_free(m.engine);
    ebb_setup_free(m.setup);
    ebb_mem_free(ctx, m.setup);
    return status;
}
