/* The recipe of `ebb kd`: the teacher, and the loss.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/kd.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "model/family.h"

bool ebb_kd_wanted(const struct ebb_options *options, const struct ebb_config *config)
{
    enum ebb_command command = ebb_options_command(options);
    return command == EBB_COMMAND_KD ||
           (command == EBB_COMMAND_PLAN && config->recipe == EBB_RECIPE_KEY_KD);
}

/* ---- the teacher ----------------------------------------------------------------------------- */

/* A token that the two tokenizers have under different ids; -1: none. */
static int32_t first_other(const struct ebb_tokenizer *a, const struct ebb_tokenizer *b,
                           int64_t count)
{
    for (int32_t id = 0; id < count; id++) {
        size_t bytes_a = 0, bytes_b = 0;
        const char *text_a = ebb_tokenizer_text(a, id, &bytes_a),
                   *text_b = ebb_tokenizer_text(b, id, &bytes_b);
        bool same = text_a && text_b ? bytes_a == bytes_b && memcmp(text_a, text_b, bytes_a) == 0
                                     : text_a == text_b;
        if (!same) return id;
    }
    return -1;
}

static enum ebb_status compare_tokenizers(const struct ebb_setup *setup,
                                          const struct ebb_tokenizer *teacher)
{
    int64_t own = ebb_tokenizer_vocab_size(setup->tokenizer),
            others = ebb_tokenizer_vocab_size(teacher);
    int32_t id = first_other(setup->tokenizer, teacher, own < others ? own : others);
    size_t own_bytes = 0, other_bytes = 0;
    if (id < 0) return EBB_OK; /* one may have a few more at its end */
    const char *own_text = ebb_tokenizer_text(setup->tokenizer, id, &own_bytes),
               *other_text = ebb_tokenizer_text(teacher, id, &other_bytes);
    return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                    "the teacher has other tokens than the student: %ld is '%.*s' there and '%.*s' "
                    "here\n"
                    "where: %s\n"
                    "try:   a teacher of the student's family; distillation compares token by "
                    "token",
                    (long)id, (int)other_bytes, other_text ? other_text : "", (int)own_bytes,
                    own_text ? own_text : "",
                    ebb_options_where(setup->options, "teacher_model_name_or_path"));
}

/* Of the same tokenizer as the student; a teacher without one is taken at its word. */
static enum ebb_status check_tokens(const struct ebb_setup *setup, const char *dir)
{
    struct ebb_tokenizer *tokenizer = NULL;
    if (setup->tokenizer == NULL) return EBB_OK;
    char *path = ebb_path_join(setup->ctx, dir, "tokenizer.json");
    if (path == NULL) return EBB_NO_MEMORY;
    bool there = ebb_file_exists(path);
    ebb_mem_free(setup->ctx, path);
    if (!there) return EBB_OK;
    EBB_TRY(ebb_tokenizer_load(setup->ctx, dir, &tokenizer));
    enum ebb_status status = EBB_OK;
    if (ebb_tokenizer_hash(tokenizer) != ebb_tokenizer_hash(setup->tokenizer))
        status = compare_tokenizers(setup, tokenizer);
    ebb_tokenizer_free(setup->ctx, tokenizer);
    return status;
}

/* Columns that both heads have; whatever the data may hold must be among them. */
static enum ebb_status settle_vocab(struct ebb_setup *setup, int64_t teacher)
{
    int64_t student = setup->model->vocab, both = student < teacher ? student : teacher;
    int64_t tokens = setup->tokenizer ? ebb_tokenizer_vocab_size(setup->tokenizer) : 0;
    if (tokens > both)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "the teacher's vocabulary of %lld is smaller than the tokenizer's %lld "
                        "tokens\n"
                        "where: %s\n"
                        "try:   a teacher of the student's family",
                        (long long)teacher, (long long)tokens,
                        ebb_options_where(setup->options, "teacher_model_name_or_path"));
    setup->request.objective.distill.vocab = both;
    return EBB_OK;
}

static enum ebb_status find_teacher(struct ebb_setup *setup)
{
    struct ebb_ctx *ctx = setup->ctx;
    struct ebb_model_config *teacher = NULL;
    EBB_TRY(ebb_model_find(ctx, setup->config->teacher_model_name_or_path, &setup->env->hub,
                           &setup->teacher_dir));
    EBB_TRY(ebb_model_config_load(ctx, setup->teacher_dir, &teacher));
    enum ebb_status status = check_tokens(setup, setup->teacher_dir);
    if (status == EBB_OK) status = settle_vocab(setup, teacher->vocab);
    if (status == EBB_OK && setup->request.capacity.doc_tokens > teacher->max_positions)
        ebb_warn_once(ctx, "teacher.positions",
                      "documents of %lld tokens are beyond the %lld positions that the teacher was "
                      "made for",
                      (long long)setup->request.capacity.doc_tokens,
                      (long long)teacher->max_positions);
    ebb_model_config_free(ctx, teacher);
    setup->request.teacher_dir = setup->teacher_dir;
    return status;
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
        .temperature =
            ebb_options_is_set(setup->options, "temperature") ? config->temperature : 1,
        .scale_t2 = config->kd_scale_t2};
    return keys;
}

enum ebb_status ebb_kd_setup(struct ebb_setup *setup)
{
    struct ebb_objective *objective = &setup->request.objective;
    objective->kind = EBB_OBJECTIVE_DISTILL;
    objective->distill = distill_keys(setup);
    return find_teacher(setup);
}

enum ebb_status ebb_kd_announce(const struct ebb_setup *setup, const struct ebb_engine *engine)
{
    static const char *const names[EBB_DIVERGENCES] = {
        "forward KL",   "reverse KL",        "generalised JSD",
        "symmetric KL", "skewed forward KL", "skewed reverse KL"};
    const struct ebb_distill_keys *keys = &setup->request.objective.distill;
    const struct ebb_model_config *teacher = ebb_engine_teacher(engine);
    char beta[EBB_TEXT_DOUBLE + 8] = "", text[EBB_TEXT_DOUBLE], count[32];
    bool weighed = keys->divergence > EBB_REVERSE_KL;
    ebb_text_from_double(keys->beta, text);
    if (weighed) snprintf(beta, sizeof beta, ", beta %s", text);
    if (teacher)
        ebb_log(setup->ctx, EBB_LOG_INFO, "model", "teacher: %s (%s, %lld layers, %s parameters)",
                setup->config->teacher_model_name_or_path, teacher->family->name,
                (long long)teacher->layers,
                ebb_text_count(ebb_model_config_parameters(teacher), count, sizeof count));
    ebb_log(setup->ctx, EBB_LOG_INFO, "train",
            "loss: %g cross-entropy + %g %s%s, temperature %g%s", 1 - keys->kd_ratio,
            keys->kd_ratio, names[keys->divergence], beta, keys->temperature,
            keys->scale_t2 ? ", times its square" : "");
    return EBB_OK;
}
