/* The recipe of `ebb sft`: check the output directory, set up, plan, refuse what does not fit,
 * train.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/sft.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "model/family.h"
#include "recipe/fit.h"
#include "recipe/dpo.h"
#include "recipe/eval_prompts.h"
#include "recipe/kd.h"
#include "recipe/outlook.h"
#include "recipe/report.h"
#include "recipe/second.h"
#include "train/checkpoint.h"

/* ---- the output directory -------------------------------------------------------------------- */

bool ebb_sft_is_output(const char *name)
{
    static const char *const names[] = {
        "run.json",
        "metrics.jsonl",
        "adapter_config.json",
        "adapter_model.safetensors",
        "model.safetensors.index.json",
    };
    if (strncmp(name, "checkpoint-", 11) == 0) return true;
    if (ebb_safetensors_shards(name) >= 0 || ebb_model_is_side_file(name)) return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static bool same_place(const char *a, const char *b)
{
    char real_a[PATH_MAX], real_b[PATH_MAX];
    return a && b && realpath(a, real_a) && realpath(b, real_b) && strcmp(real_a, real_b) == 0;
}

static enum ebb_status remove_output(struct ebb_ctx *ctx, const char *dir, char *const *names,
                                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!ebb_sft_is_output(names[i])) continue;
        char *path = ebb_path_join(ctx, dir, names[i]);
        if (path == NULL) return EBB_NO_MEMORY;
        enum ebb_status status = EBB_OK;
        if (ebb_dir_exists(path))
            status = ebb_dir_remove(ctx, path);
        else if (unlink(path) != 0 && errno != ENOENT)
            status = EBB_FAIL(ctx, EBB_IO, "cannot remove '%s': %s", path, strerror(errno));
        ebb_mem_free(ctx, path);
        EBB_TRY(status);
    }
    return EBB_OK;
}

/* The name of a file that another run left, or NULL. */
static const char *old_output(char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ebb_sft_is_output(names[i])) return names[i];
    return NULL;
}

static enum ebb_status fail_old(struct ebb_ctx *ctx, struct ebb_options *options, const char *dir,
                                const char *name)
{
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "output_dir '%s' holds another run ('%s')\n"
                    "where: %s\n"
                    "try:   resume_from_checkpoint: true to go on with it, overwrite_output_dir: "
                    "true to remove it, or another output_dir",
                    dir, name, ebb_options_where(options, "output_dir"));
}

/* A checkpoint by its path. It need not lie in output_dir, but then no other run may. */
static enum ebb_status check_path(struct ebb_ctx *ctx, struct ebb_options *options, const char *dir,
                                  const char *from, const char *old, char **resume)
{
    if (!ebb_dir_exists(from))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "there is no checkpoint '%s'\n"
                        "where: %s\n"
                        "try:   resume_from_checkpoint: true for the newest in output_dir",
                        from, ebb_options_where(options, "resume_from_checkpoint"));
    if (old != NULL) {
        char *parent = ebb_path_join(ctx, from, "..");
        if (parent == NULL) return EBB_NO_MEMORY;
        bool inside = same_place(parent, dir);
        ebb_mem_free(ctx, parent);
        if (!inside)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "output_dir '%s' holds another run ('%s') than the checkpoint '%s'\n"
                            "where: %s\n"
                            "try:   another output_dir",
                            dir, old, from, ebb_options_where(options, "output_dir"));
    }
    *resume = ebb_mem_strdup(ctx, from);
    return *resume ? EBB_OK : EBB_NO_MEMORY;
}

/* The newest whole checkpoint of output_dir, if there is one; a new run is started in an output_dir
 * without any, and that is said. */
static enum ebb_status find_newest(struct ebb_ctx *ctx, struct ebb_options *options,
                                   const char *dir, const char *old, char **resume)
{
    EBB_TRY(ebb_checkpoint_find(ctx, dir, resume));
    if (*resume) return EBB_OK;
    if (old)
        return EBB_FAIL(
            ctx, EBB_BAD_CONFIG,
            "output_dir '%s' holds a run but no whole checkpoint to go on from\n"
            "where: %s\n"
            "try:   overwrite_output_dir: true without resume_from_checkpoint, or another "
            "output_dir",
            dir, ebb_options_where(options, "resume_from_checkpoint"));
    ebb_log(ctx, EBB_LOG_INFO, "resume",
            "resume_from_checkpoint: '%s' holds no checkpoint yet, the run starts at its first "
            "step",
            dir);
    return EBB_OK;
}

/* Finds the checkpoint to go on from (*resume, NULL: from the start; the caller frees), and
 * whether output_dir may be used. Removes nothing yet. */
static enum ebb_status check_output(struct ebb_ctx *ctx, struct ebb_options *options,
                                    const struct ebb_config *config, char **resume)
{
    const char *dir = config->output_dir, *from = config->resume_from_checkpoint;
    bool wanted = false, is_bool = ebb_text_bool(from, &wanted);
    char **names = NULL;
    size_t count = 0;
    *resume = NULL;
    if (ebb_file_exists(dir) && !ebb_dir_exists(dir))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "output_dir '%s' is a file\nwhere: %s", dir,
                        ebb_options_where(options, "output_dir"));
    if (ebb_dir_exists(dir)) EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    const char *old = old_output(names, count);
    enum ebb_status status = EBB_OK;
    if (!is_bool)
        status = check_path(ctx, options, dir, from, old, resume);
    else if (wanted)
        status = find_newest(ctx, options, dir, old, resume);
    else if (old && !config->overwrite_output_dir)
        status = fail_old(ctx, options, dir, old);
    ebb_dir_list_free(ctx, names, count);
    return status;
}

/* Makes sure that there is an output_dir before the model is read. */
static enum ebb_status prepare_output(const struct ebb_setup *setup)
{
    const char *dir = setup->config->output_dir;
    if (same_place(dir, setup->model_dir) || same_place(dir, setup->adapter_dir))
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "output_dir '%s' is the directory that the run starts from\n"
                        "where: %s\n"
                        "try:   another output_dir",
                        dir, ebb_options_where(setup->options, "output_dir"));
    return ebb_dir_create(setup->ctx, dir);
}

/* Removes an earlier run, once everything that could stop the new one has been read. */
static enum ebb_status clear_output(const struct ebb_setup *setup)
{
    char **names = NULL;
    size_t count = 0;
    const char *dir = setup->config->output_dir;
    EBB_TRY(ebb_dir_list(setup->ctx, dir, &names, &count));
    enum ebb_status status = remove_output(setup->ctx, dir, names, count);
    ebb_dir_list_free(setup->ctx, names, count);
    return status == EBB_OK ? ebb_report_clear(setup->ctx, setup->config) : status;
}

/* ---- plan ------------------------------------------------------------------------------------ */

static enum ebb_status set_up(struct ebb_ctx *ctx, struct ebb_options *options,
                              const struct ebb_config *config, const struct ebb_recipe_env *env,
                              const char *resume, struct ebb_setup *setup)
{
    if (ebb_dpo_wanted(options, config)) setup->purpose = EBB_PURPOSE_PREFERENCE;
    EBB_TRY(ebb_setup_model(ctx, options, config, env, setup));
    EBB_TRY(ebb_setup_time(setup, resume));
    if (ebb_setup_has_data(config) || config->eval_prompts) EBB_TRY(ebb_setup_tokenizer(setup));
    EBB_TRY(ebb_setup_poll(ctx, env));
    EBB_TRY(ebb_setup_data(setup));
    EBB_TRY(ebb_setup_poll(ctx, env));
    EBB_TRY(ebb_setup_samples(setup, setup->train_set != NULL && setup->train_set->chat));
    EBB_TRY(ebb_setup_training(setup));
    if (ebb_kd_wanted(options, config)) return ebb_kd_setup(setup);
    return ebb_dpo_wanted(options, config) ? ebb_dpo_setup(setup) : EBB_OK;
}

enum ebb_status ebb_sft_plan(struct ebb_ctx *ctx, struct ebb_options *options,
                             const struct ebb_config *config, const struct ebb_recipe_env *env,
                             const char *resume, struct ebb_setup *setup,
                             struct ebb_engine **engine)
{
    *engine = NULL;
    EBB_TRY(set_up(ctx, options, config, env, resume, setup));
    if (resume) {
        /* Tile sizes and threads of the checkpoint: without them the run would go on with other
         * last bits. */
        EBB_TRY(ebb_checkpoint_numerics(ctx, resume, &setup->numerics));
        setup->request.numerics = &setup->numerics;
        EBB_TRY(ebb_setup_resumed(setup, resume));
    }
    return ebb_engine_create(ctx, &setup->request, engine);
}

/* ---- training -------------------------------------------------------------------------------- */

double ebb_sft_learning_rate(const struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    bool lora = setup->new_adapter || setup->adapter_dir;
    if (!isnan(config->learning_rate)) return config->learning_rate;
    if (ebb_dpo_wanted(setup->options, config)) return ebb_dpo_learning_rate(lora);
    return lora ? 2e-4 : 2e-5;
}

static enum ebb_dtype save_dtype(const struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    if (config->save_dtype == EBB_DTYPE_KEY_FLOAT32) return EBB_F32;
    if (config->save_dtype == EBB_DTYPE_KEY_BFLOAT16) return EBB_BF16;
    return setup->model->dtype == EBB_F32 ? EBB_F32 : EBB_BF16;
}

/* What run.json says of the configuration: models, and every key's value. The caller owns it. */
static json_t *describe_run(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    json_t *config = ebb_options_json(setup->options);
    if (config == NULL) return NULL;
    const char *command = ebb_command_name(ebb_options_command(setup->options));
    json_t *run = json_pack("{s:s, s:s}", "command", command, "base_model", setup->base_name);
    bool ok = run && ebb_second_json(setup, engine, run) &&
              json_object_set_new(run, "data_time", json_string(setup->data_time)) == 0 &&
              json_object_set(run, "config", config) == 0;
    json_decref(config);
    if (ok) return run;
    json_decref(run);
    EBB_FAIL(setup->ctx, EBB_NO_MEMORY, "no memory for the run's description");
    return NULL;
}

static enum ebb_when when_of(int key)
{
    static const enum ebb_when whens[] = {EBB_WHEN_NO, EBB_WHEN_STEPS, EBB_WHEN_EPOCH};
    return whens[key];
}

static void fill_request(struct ebb_setup *setup, const struct ebb_recipe_env *env,
                         struct ebb_trainer_request *request)
{
    const struct ebb_config *config = setup->config;
    request->train = setup->train;
    request->eval = setup->eval;
    request->train_feed = setup->train_feed;
    request->eval_feed = setup->eval_feed;
    request->output_dir = config->output_dir;
    request->epochs = config->num_train_epochs;
    request->max_steps = config->max_steps > 0 ? config->max_steps : 0;
    request->accumulation = config->gradient_accumulation_steps;
    request->schedule =
        (struct ebb_schedule_keys){.schedule = (enum ebb_schedule)config->lr_scheduler_type,
                                   .learning_rate = ebb_sft_learning_rate(setup),
                                   .warmup_steps = config->warmup_steps,
                                   .warmup_ratio = config->warmup_ratio,
                                   .decay_ratio = config->decay_ratio};
    request->eval_strategy = when_of(config->eval_strategy);
    request->save_strategy = when_of(config->save_strategy);
    request->samples = setup->samples.count > 0 ? &setup->samples : NULL;
    request->eval_steps = config->eval_steps;
    request->save_steps = config->save_steps;
    request->logging_steps = config->logging_steps;
    request->save_total_limit = config->save_total_limit;
    request->load_best_at_end = config->load_best_model_at_end;
    request->early_stopping_patience = config->early_stopping_patience;
    request->early_stopping_threshold = config->early_stopping_threshold;
    request->save_adapter = setup->new_adapter || setup->adapter_dir;
    request->save_dtype = save_dtype(setup);
    request->data_time = setup->data_time;
    request->chat = setup->saved_chat;
    request->stop_fd = env->stop_fd;
    request->seed = (uint64_t)config->seed;
    request->world = 1;
}

/* ---- what is said before the first step ------------------------------------------------------ */

static enum ebb_status say_model(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    const struct ebb_adapter_config *adapter = ebb_engine_adapter(engine);
    char whole[32], part[32];
    int64_t trained = 0, all = 0;
    struct ebb_str targets = {0};
    ebb_engine_parameters(engine, &trained, &all);
    ebb_log(setup->ctx, EBB_LOG_INFO, "model", "model: %s (%s, %lld layers, %s parameters, %s)",
            setup->base_name, setup->model->family->name, (long long)setup->model->layers,
            ebb_text_count(all, whole, sizeof whole), ebb_dtype_name(setup->request.storage));
    ebb_text_count(trained, part, sizeof part);
    if (adapter == NULL) {
        ebb_log(setup->ctx, EBB_LOG_INFO, "model", "method: every weight is trained");
        return EBB_OK;
    }
    enum ebb_status status = EBB_OK;
    for (int i = 0; status == EBB_OK && i < adapter->target_count; i++)
        status = ebb_str_addf(setup->ctx, &targets, "%s%s", i ? ", " : "", adapter->targets[i]);
    if (status == EBB_OK)
        ebb_log(setup->ctx, EBB_LOG_INFO, "model",
                "method: LoRA of rank %lld on %s: %s parameters trained (%.3g %%)",
                (long long)adapter->rank, targets.data ? targets.data : "nothing", part,
                100 * (double)trained / (double)all);
    ebb_str_free(setup->ctx, &targets);
    return status;
}

static void say_plan(const struct ebb_setup *setup, const struct ebb_plan *plan)
{
    char device[32], budget[32], host[32], out[32], in[32], rest[32], slow[32];
    char moves[192] = "", beside[96] = "", pageable[64] = "", run[40] = "in each micro-batch";
    int64_t overhead = plan->request.overhead_bytes;
    const bool named = setup->budget_given || setup->budget_resumed;
    ebb_text_bytes(setup->request.device_budget, budget, sizeof budget);
    if (plan->micros > 1)
        snprintf(run, sizeof run, "for %d micro-batches at once", (int)plan->micros);
    if (plan->bytes_out == 0 && plan->bytes_in > 0 &&
        plan->host_kind_bytes[EBB_KIND_WEIGHTS] + plan->host_kind_bytes[EBB_KIND_TEACHER] == 0)
        snprintf(moves, sizeof moves,
                 "; %s of the embedding's rows from the host %s, %s of host memory",
                 ebb_text_bytes(plan->bytes_in, in, sizeof in), run,
                 ebb_text_bytes(plan->host_bytes, host, sizeof host));
    else if (plan->bytes_out + plan->bytes_in > 0)
        snprintf(moves, sizeof moves,
                 "; %s out to the host and %s in from there %s, %s of host memory",
                 ebb_text_bytes(plan->bytes_out, out, sizeof out),
                 ebb_text_bytes(plan->bytes_in, in, sizeof in), run,
                 ebb_text_bytes(plan->host_bytes, host, sizeof host));
    if (overhead > 0)
        snprintf(beside, sizeof beside, ", %s of it for driver and libraries",
                 ebb_text_bytes(overhead, rest, sizeof rest));
    if (plan->pageable_bytes > 0)
        snprintf(pageable, sizeof pageable, ", %s of it not pinned",
                 ebb_text_bytes(plan->pageable_bytes, slow, sizeof slow));
    ebb_log(setup->ctx, EBB_LOG_INFO, "plan", "plan: %s of device memory (%s%s%s): %s%s%s",
            ebb_text_bytes(plan->total_bytes, device, sizeof device),
            named ? "memory_budget " : "no memory_budget", named ? budget : "", beside, plan->what,
            moves, pageable);
}

/* How long a step will take, where that is known. */
static enum ebb_status say_forecast(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    struct ebb_outlook outlook;
    char time[EBB_OUTLOOK_TIME];
    EBB_TRY(ebb_outlook_step(setup, engine, &outlook));
    if (!outlook.known) return EBB_OK;
    ebb_log(setup->ctx, EBB_LOG_INFO, "plan", "forecast: %s a step, %.0f tokens/s%s",
            ebb_outlook_time(outlook.step.step.seconds, time),
            outlook.step.tokens / outlook.step.step.seconds,
            outlook.rates.measured ? "" : " (by the GPU's data sheet: 'ebb probe' measures)");
    return EBB_OK;
}

/* The system pins less than was planned: what comes of it. `again`: there is a new plan. */
static enum ebb_status warn_of_refused(const struct ebb_setup *setup,
                                       const struct ebb_engine *engine, int64_t refused, bool again)
{
    struct ebb_outlook outlook;
    char size[32], time[EBB_OUTLOOK_TIME], step[96];
    EBB_TRY(ebb_outlook_step(setup, engine, &outlook));
    snprintf(step, sizeof step, "how long a step takes then is not known here");
    if (outlook.known)
        snprintf(step, sizeof step, "a step is forecast to take %s now",
                 ebb_outlook_time(outlook.step.step.seconds, time));
    ebb_warn_once(setup->ctx, again ? "plan.pinned.again" : "plan.pinned",
                  "%s of host memory that were to be pinned are not: %s; %s\n"
                  "pinned_memory_budget says beforehand what may be pinned",
                  ebb_text_bytes(refused, size, sizeof size),
                  again ? "the run is planned again with what is" : "they go through pinned slots",
                  step);
    return EBB_OK;
}

static void say_training(const struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    bool lora = setup->new_adapter || setup->adapter_dir, given = !isnan(config->learning_rate);
    char rate[EBB_TEXT_DOUBLE];
    ebb_text_from_double(ebb_sft_learning_rate(setup), rate);
    ebb_log(setup->ctx, EBB_LOG_INFO, "train", "training: %s, %s schedule, learning_rate: %s%s",
            config->optim == EBB_OPTIM_KEY_SGD ? "sgd" : "adamw",
            ebb_schedule_name((enum ebb_schedule)config->lr_scheduler_type), rate,
            given  ? ""
            : lora ? " (default for LoRA)"
                   : " (default for training every weight)");
}

static enum ebb_status announce(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    EBB_TRY(say_model(setup, engine));
    if (setup->request.backend != EBB_BACKEND_CPU)
        ebb_log(setup->ctx, EBB_LOG_INFO, "plan", "device: %s",
                ebb_device_name(ebb_engine_device(engine)));
    say_plan(setup, ebb_engine_plan(engine));
    EBB_TRY(say_forecast(setup, engine));
    say_training(setup);
    if (ebb_kd_wanted(setup->options, setup->config)) ebb_kd_announce(setup, engine);
    if (ebb_dpo_wanted(setup->options, setup->config)) ebb_dpo_announce(setup);
    bool kwargs = setup->saved_chat != NULL && json_object_size(setup->chat_kwargs) > 0;
    if (kwargs || ebb_chat_is_other(setup->config))
        ebb_log(setup->ctx, EBB_LOG_INFO, "data",
                "chat_template: %s, which is written beside the result as chat_template.jinja%s",
                setup->config->chat_template,
                kwargs ? " with chat_template_kwargs as its defaults" : "");
    return EBB_OK;
}

/* Pinning takes a while where there is much of it. */
static void say_pinning(const struct ebb_setup *setup, const struct ebb_plan *plan)
{
    enum { WORTH_A_LINE = 2 };
    char size[32], time[EBB_OUTLOOK_TIME];
    const double seconds = ebb_fit_pin_seconds(setup, plan);
    if (seconds > WORTH_A_LINE)
        ebb_log(setup->ctx, EBB_LOG_INFO, "plan", "pinning %s of host memory: about %s",
                ebb_text_bytes(ebb_plan_pinned(plan), size, sizeof size),
                ebb_outlook_time(seconds, time));
}

/* Another engine, for what the request says now. */
static enum ebb_status plan_again(const struct ebb_setup *setup, struct ebb_engine **engine)
{
    ebb_engine_free(*engine);
    EBB_TRY(ebb_engine_create(setup->ctx, &setup->request, engine));
    return ebb_fit_check(setup, *engine);
}

enum ebb_status ebb_sft_settle(struct ebb_setup *setup, struct ebb_engine **engine)
{
    enum { WORTH_A_PLAN = 64 << 20 };
    int64_t measured = -1, assumed = setup->request.overhead_bytes;
    if (setup->request.backend != EBB_BACKEND_CUDA) return EBB_OK;
    say_pinning(setup, ebb_engine_plan(*engine));
    EBB_TRY(ebb_engine_measure(*engine, &measured));
    const int64_t refused = ebb_engine_refused(*engine);
    if (refused > 0) {
        int64_t pinned = ebb_plan_pinned(ebb_engine_plan(*engine));
        setup->request.pinned_budget = pinned > 0 ? pinned : 1;
    }
    if (measured < 0) {
        char size[32];
        ebb_warn_once(setup->ctx, "plan.overhead",
                      "the driver does not tell what this process uses of the GPU's memory: %s are "
                      "assumed for driver and libraries",
                      ebb_text_bytes(assumed, size, sizeof size));
    } else {
        setup->request.overhead_bytes = measured;
        ebb_engine_set_overhead(*engine, measured);
    }
    bool best = measured < 0 || ebb_engine_plan(*engine)->rung == 0;
    if (refused == 0 && ebb_fit_holds(setup, *engine) &&
        (best || measured >= assumed - WORTH_A_PLAN))
        return EBB_OK;
    EBB_TRY(plan_again(setup, engine));
    return refused > 0 ? warn_of_refused(setup, *engine, refused, true) : EBB_OK;
}

/* From the plan on; the engine is the caller's to free, also where it is another one then. */
static enum ebb_status train(struct ebb_setup *setup, const struct ebb_recipe_env *env,
                             struct ebb_engine **engine_in_out, const char *resume,
                             struct ebb_trainer_result *result)
{
    EBB_TRY(ebb_fit_check(setup, *engine_in_out));
    EBB_TRY(ebb_dpo_precompute(setup, *engine_in_out)); /* before the engine takes device memory */
    EBB_TRY(ebb_sft_settle(setup, engine_in_out));
    struct ebb_engine *engine = *engine_in_out;
    struct ebb_trainer_request request = {.engine = engine, .resume = resume};
    EBB_TRY(ebb_setup_saved_chat(setup));
    EBB_TRY(announce(setup, engine));
    EBB_TRY(ebb_setup_poll(setup->ctx, env));
    EBB_TRY(prepare_output(setup));
    EBB_TRY(ebb_engine_open(engine));
    if (ebb_engine_refused(engine) > 0)
        EBB_TRY(warn_of_refused(setup, engine, ebb_engine_refused(engine), false));
    if (resume == NULL && setup->config->overwrite_output_dir) EBB_TRY(clear_output(setup));
    EBB_TRY(ebb_setup_feeds(setup, engine));
    fill_request(setup, env, &request);
    char *events_dir;
    EBB_TRY(ebb_report_dir(setup->ctx, setup->config, &events_dir));
    json_t *run = describe_run(setup, engine);
    request.events_dir = events_dir;
    request.run = run;
    enum ebb_status status =
        run ? ebb_trainer_run(setup->ctx, &request, result) : ebb_error_status(setup->ctx);
    json_decref(run);
    ebb_mem_free(setup->ctx, events_dir);
    return status;
}

enum ebb_status ebb_sft_run(struct ebb_ctx *ctx, struct ebb_options *options,
                            const struct ebb_config *config, const struct ebb_recipe_env *env,
                            struct ebb_trainer_result *result)
{
    struct ebb_setup *setup = ebb_mem_alloc(ctx, sizeof *setup);
    struct ebb_engine *engine = NULL;
    char *resume = NULL;
    if (setup == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = check_output(ctx, options, config, &resume);
    if (status == EBB_OK) status = ebb_sft_plan(ctx, options, config, env, resume, setup, &engine);
    if (status == EBB_OK) status = train(setup, env, &engine, resume, result);
    ebb_engine_free(engine);
    ebb_setup_free(setup);
    ebb_mem_free(ctx, resume);
    ebb_mem_free(ctx, setup);
    return status;
}
