/* The recipe of `ebb kd`: the teacher, and the loss.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/kd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/family.h"
#include "recipe/fit.h"
#include "recipe/second.h"

bool ebb_kd_wanted(const struct ebb_options *options, const struct ebb_config *config)
{
    enum ebb_command command = ebb_options_command(options);
    return command == EBB_COMMAND_KD ||
           ((command == EBB_COMMAND_PLAN || command == EBB_COMMAND_BENCH) &&
            config->recipe == EBB_RECIPE_KEY_KD);
}

/* ---- the teacher ----------------------------------------------------------------------------- */

static enum ebb_status find_teacher(struct ebb_setup *setup)
{
    static const struct ebb_second teacher = {"teacher_model_name_or_path", "teacher", "student",
                                              "distillation compares"};
    int64_t student = setup->model->vocab, vocab;
    EBB_TRY(ebb_second_find(setup, &teacher, setup->config->teacher_model_name_or_path, &vocab));
    /* Columns that both heads have. */
    setup->request.objective.distill.vocab = student < vocab ? student : vocab;
    return EBB_OK;
}

/* ---- the loss -------------------------------------------------------------------------------- */

static double default_beta(enum ebb_divergence divergence)
{
    return divergence == EBB_SKEWED_FORWARD_KL || divergence == EBB_SKEWED_REVERSE_KL ? 0.1 : 0.5;
}

static struct ebb_distill_keys distill_keys(const struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    enum ebb_divergence divergence = (enum ebb_divergence)config->kd_loss;
    struct ebb_distill_keys keys = {
        .divergence = divergence,
        .beta = isnan(config->beta) ? default_beta(divergence) : config->beta,
        .kd_ratio = config->kd_ratio,
        .temperature = ebb_options_is_set(setup->options, "temperature") ? config->temperature : 1,
        .scale_t2 = config->kd_scale_t2};
    return keys;
}

/* The student's columns may be more than the saved teacher's, not fewer. */
static enum ebb_status open_saved(struct ebb_setup *setup)
{
    struct ebb_objective *objective = &setup->request.objective;
    const char *dir = setup->config->teacher_logits;
    if (setup->train_set == NULL)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "teacher_logits belongs to a data set: without one there is nothing to "
                        "plan for\n"
                        "where: %s\n"
                        "try:   dataset_name",
                        ebb_options_where(setup->options, "teacher_logits"));
    if (!ebb_dir_exists(dir))
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "there is no saved teacher '%s'\n"
                        "where: %s\n"
                        "try:   'ebb kd' with save_teacher: %s first",
                        dir, ebb_options_where(setup->options, "teacher_logits"), dir);
    EBB_TRY(ebb_teacher_open(setup->ctx, dir, setup->train_set, &setup->teacher));
    EBB_TRY(ebb_teacher_check_loader(setup->ctx, setup->train));
    const struct ebb_teacher_info *info = ebb_teacher_describe(setup->teacher);
    if (info->vocab > setup->model->vocab)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "the teacher in '%s' chose among %lld tokens, the student has %lld\n"
                        "where: %s\n"
                        "try:   'ebb kd' with save_teacher again, for this student",
                        dir, (long long)info->vocab, (long long)setup->model->vocab,
                        ebb_options_where(setup->options, "teacher_logits"));
    objective->kind = EBB_OBJECTIVE_DISTILL_SAVED;
    objective->top_k = info->k;
    objective->top_dtype = info->dtype;
    objective->distill.vocab = info->vocab;
    objective->distill.temperature = info->temperature;
    return EBB_OK;
}

enum ebb_status ebb_kd_setup(struct ebb_setup *setup)
{
    struct ebb_objective *objective = &setup->request.objective;
    objective->distill = distill_keys(setup);
    if (setup->config->teacher_logits) return open_saved(setup);
    objective->kind = EBB_OBJECTIVE_DISTILL;
    EBB_TRY(find_teacher(setup));
    setup->request.teacher_dir = setup->teacher_dir;
    return EBB_OK;
}

/* ---- saving a teacher ------------------------------------------------------------------------ */

/* A directory that holds something else is no place for a teacher; what an interrupted save left is
 * overwritten. */
static enum ebb_status check_place(struct ebb_ctx *ctx, struct ebb_options *options,
                                   const char *dir)
{
    char **names = NULL;
    size_t count = 0;
    enum ebb_status status = EBB_OK;
    if (!ebb_dir_exists(dir)) return EBB_OK;
    EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    for (size_t i = 0; status == EBB_OK && i < count; i++)
        if (strncmp(names[i], "teacher.", 8) != 0)
            status = EBB_FAIL(ctx, EBB_BAD_CONFIG,
                              "save_teacher '%s' is a directory that holds something else ('%s')\n"
                              "where: %s\n"
                              "try:   another directory",
                              dir, names[i], ebb_options_where(options, "save_teacher"));
    ebb_dir_list_free(ctx, names, count);
    return status;
}

/* The data as a student's run has it, and an engine of the teacher alone. */
static enum ebb_status set_up_teacher(struct ebb_ctx *ctx, struct ebb_options *options,
                                      const struct ebb_config *config,
                                      const struct ebb_recipe_env *env, struct ebb_setup *setup)
{
    struct ebb_engine_request *request = &setup->request;
    struct ebb_objective *objective = &request->objective;
    EBB_TRY(check_place(ctx, options, config->save_teacher));
    EBB_TRY(ebb_setup_model(ctx, options, config, env, setup));
    EBB_TRY(ebb_setup_time(setup, NULL));
    EBB_TRY(ebb_setup_tokenizer(setup));
    EBB_TRY(ebb_setup_data(setup));
    EBB_TRY(ebb_teacher_check_loader(ctx, setup->train));
    objective->distill = distill_keys(setup);
    EBB_TRY(find_teacher(setup));
    objective->kind = EBB_OBJECTIVE_SAVE_TEACHER;
    objective->top_k = config->teacher_top_k;
    if (objective->top_k > objective->distill.vocab) objective->top_k = objective->distill.vocab;
    objective->top_dtype =
        config->teacher_dtype == EBB_TEACHER_DTYPE_KEY_FLOAT32 ? EBB_F32 : EBB_BF16;
    request->model_dir = setup->teacher_dir;
    request->adapter_dir = NULL;
    request->evaluate = true;
    return EBB_OK;
}

static enum ebb_status run_teacher(struct ebb_setup *setup, struct ebb_engine *engine,
                                   struct ebb_teacher_writer *writer, int32_t *ids, void *logprobs)
{
    int64_t micros = ebb_loader_describe(setup->train)->micros_per_epoch;
    ebb_engine_begin(engine);
    for (int64_t m = 0; m < micros; m++) {
        const struct ebb_batch *batch;
        EBB_TRY(ebb_setup_poll(setup->ctx, setup->env));
        EBB_TRY(ebb_loader_next(setup->ctx, setup->train, &batch));
        EBB_TRY(ebb_engine_micro(engine, EBB_PROGRAM_EVAL, batch, 1, (uint32_t)m));
        EBB_TRY(ebb_engine_get_top(engine, batch->labels, ids, logprobs));
        EBB_TRY(
            ebb_teacher_add_batch(writer, batch, ebb_loader_samples(setup->train), ids, logprobs));
    }
    return EBB_OK;
}

static enum ebb_status write_teacher(struct ebb_setup *setup, struct ebb_engine *engine,
                                     struct ebb_teacher_info *info)
{
    struct ebb_ctx *ctx = setup->ctx;
    struct ebb_teacher_writer *writer = NULL;
    size_t count = (size_t)(setup->request.capacity.tokens * info->k);
    int32_t *ids = ebb_mem_alloc(ctx, count * sizeof *ids);
    float *logprobs = ebb_mem_alloc(ctx, count * sizeof *logprobs);
    enum ebb_status status = ids && logprobs ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK)
        status =
            ebb_teacher_create(ctx, setup->config->save_teacher, setup->train_set, info, &writer);
    if (status == EBB_OK) status = run_teacher(setup, engine, writer, ids, logprobs);
    if (status == EBB_OK) status = ebb_teacher_finish(writer, info);
    /* Finishing lent the writer's own, which is gone. */
    info->name = setup->config->teacher_model_name_or_path;
    info->data_time = setup->data_time;
    ebb_teacher_writer_free(ctx, writer);
    ebb_mem_free(ctx, ids);
    ebb_mem_free(ctx, logprobs);
    return status;
}

/* What will be written, before anything is loaded. */
static void announce_save(const struct ebb_setup *setup, const struct ebb_engine *engine,
                          const struct ebb_teacher_info *info)
{
    char size[32], device[32], temperature[EBB_TEXT_DOUBLE];
    int64_t samples = setup->train_set->count, rows = setup->train_set->labels;
    ebb_text_from_double(info->temperature, temperature);
    ebb_log(setup->ctx, EBB_LOG_INFO, "model",
            "teacher: %s; the %lld likeliest of %lld tokens at temperature %s, %s of disk for "
            "%lld labels",
            info->name, (long long)info->k, (long long)info->vocab, temperature,
            ebb_text_bytes(ebb_teacher_bytes(samples, rows, info->k, info->dtype), size,
                           sizeof size),
            (long long)rows);
    ebb_log(setup->ctx, EBB_LOG_INFO, "plan", "plan: %s of device memory",
            ebb_text_bytes(ebb_engine_plan(engine)->total_bytes, device, sizeof device));
}

enum ebb_status ebb_kd_save(struct ebb_ctx *ctx, struct ebb_options *options,
                            const struct ebb_config *config, const struct ebb_recipe_env *env,
                            struct ebb_setup *setup, struct ebb_teacher_info *info)
{
    struct ebb_engine *engine = NULL;
    EBB_TRY(set_up_teacher(ctx, options, config, env, setup));
    const struct ebb_objective *objective = &setup->request.objective;
    *info = (struct ebb_teacher_info){.name = config->teacher_model_name_or_path,
                                      .data_time = setup->data_time,
                                      .k = objective->top_k,
                                      .dtype = objective->top_dtype,
                                      .temperature = objective->distill.temperature,
                                      .vocab = objective->distill.vocab};
    enum ebb_status status = ebb_engine_create(ctx, &setup->request, &engine);
    if (status == EBB_OK) status = ebb_fit_check(setup, engine);
    if (status == EBB_OK) announce_save(setup, engine, info);
    if (status == EBB_OK) status = ebb_engine_open(engine);
    if (status == EBB_OK) status = write_teacher(setup, engine, info);
    ebb_engine_free(engine);
    return status;
}

void ebb_kd_announce(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    const struct ebb_distill_keys *keys = &setup->request.objective.distill;
    const struct ebb_model_config *teacher = ebb_engine_teacher(engine);
    char beta[EBB_TEXT_DOUBLE + 8] = "", text[EBB_TEXT_DOUBLE], count[32];
    bool weighed = keys->divergence > EBB_REVERSE_KL;
    ebb_text_from_double(keys->beta, text);
    if (weighed) snprintf(beta, sizeof beta, ", beta %s", text);
    if (setup->teacher) {
        const struct ebb_teacher_info *info = ebb_teacher_describe(setup->teacher);
        ebb_log(setup->ctx, EBB_LOG_INFO, "model",
                "teacher: %s, saved in '%s' (%lld tokens a label, which leave out %.3g %% of "
                "the probability, at most %.3g %%)",
                info->name, setup->config->teacher_logits, (long long)info->k,
                100 * info->remainder_mean, 100 * info->remainder_most);
    }
    if (teacher)
        ebb_log(setup->ctx, EBB_LOG_INFO, "model", "teacher: %s (%s, %lld layers, %s parameters)",
                setup->config->teacher_model_name_or_path, teacher->family->name,
                (long long)teacher->layers,
                ebb_text_count(ebb_model_config_parameters(teacher), count, sizeof count));
    ebb_log(setup->ctx, EBB_LOG_INFO, "train", "loss: %g cross-entropy + %g %s%s, temperature %g%s",
            1 - keys->kd_ratio, keys->kd_ratio, ebb_divergence_name(keys->divergence), beta,
            keys->temperature, keys->scale_t2 ? ", times its square" : "");
}
