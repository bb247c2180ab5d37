/* The recipe of `ebb dpo`: the loss, and the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/dpo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "recipe/fit.h"
#include "recipe/second.h"

static const char *const loss_names[EBB_PREFERENCES] = {"sigmoid (DPO)", "ipo",   "hinge",
                                                        "orpo",          "simpo", "kto"};

bool ebb_dpo_wanted(const struct ebb_options *options, const struct ebb_config *config)
{
    enum ebb_command command = ebb_options_command(options);
    return command == EBB_COMMAND_DPO ||
           ((command == EBB_COMMAND_PLAN || command == EBB_COMMAND_BENCH) &&
            config->recipe == EBB_RECIPE_KEY_DPO);
}

enum ebb_preference ebb_dpo_loss(const struct ebb_config *config, const struct ebb_dataset *dataset)
{
    if (config->loss_type != EBB_LOSS_TYPE_KEY_AUTO)
        return (enum ebb_preference)(config->loss_type - EBB_LOSS_TYPE_KEY_FIRST);
    return dataset && dataset->desirable ? EBB_PREFERENCE_KTO : EBB_PREFERENCE_SIGMOID;
}

double ebb_dpo_learning_rate(bool lora)
{
    return lora ? 5e-6 : 5e-7;
}

static struct ebb_preference_keys preference_keys(const struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    enum ebb_preference loss = ebb_dpo_loss(config, setup->train_set);
    struct ebb_preference_keys keys = {.loss_type = loss,
                                       .beta = config->beta,
                                       .label_smoothing = config->label_smoothing,
                                       .simpo_gamma = config->simpo_gamma,
                                       .desirable_weight = config->desirable_weight,
                                       .undesirable_weight = config->undesirable_weight};
    if (isnan(config->beta)) keys.beta = loss == EBB_PREFERENCE_SIMPO ? 2 : 0.1;
    return keys;
}

/* Single answers have no other side. */
static enum ebb_status check_loss(const struct ebb_setup *setup, enum ebb_preference loss)
{
    const struct ebb_dataset *sets[] = {setup->train_set, setup->eval_set};
    for (int i = 0; i < 2; i++)
        if (sets[i] && sets[i]->desirable && loss != EBB_PREFERENCE_KTO)
            return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                            "loss_type: %s compares pairs, and the data has single answers with a "
                            "verdict (format %s)\n"
                            "where: %s\n"
                            "try:   loss_type: kto",
                            loss_names[loss], sets[i]->format,
                            ebb_options_where(setup->options, "loss_type"));
    return EBB_OK;
}

/* Keys that this loss does not have. Where the command line says which loss it is, its rules have
 * refused them; here the data said it. */
static enum ebb_status check_keys(const struct ebb_setup *setup, enum ebb_preference loss)
{
    static const char *const weights[] = {"desirable_weight", "undesirable_weight"};
    struct ebb_options *options = setup->options;
    const char *key = NULL;
    for (int i = 0; i < 2; i++)
        if (loss != EBB_PREFERENCE_KTO && ebb_options_is_set(options, weights[i])) key = weights[i];
    if (loss == EBB_PREFERENCE_KTO && setup->config->label_smoothing > 0) key = "label_smoothing";
    if (key == NULL) return EBB_OK;
    return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                    "'%s' has no effect: loss_type auto is %s for this data\n"
                    "where: %s\n"
                    "try:   %s",
                    ebb_options_origin(options, key).key, loss_names[loss],
                    ebb_options_where(options, key),
                    loss == EBB_PREFERENCE_KTO ? "remove it" : "loss_type: kto, or remove it");
}

/* Without a name it is a second copy of the model. */
static enum ebb_status find_second(struct ebb_setup *setup)
{
    static const struct ebb_second reference = {"ref_model_name_or_path", "reference", "model",
                                                "preferences compare"};
    const char *name = setup->config->ref_model_name_or_path;
    int64_t vocab;
    if (name) return ebb_second_find(setup, &reference, name, &vocab);
    setup->teacher_dir = ebb_mem_strdup(setup->ctx, setup->model_dir);
    return setup->teacher_dir ? EBB_OK : EBB_NO_MEMORY;
}

enum ebb_status ebb_dpo_setup(struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    struct ebb_engine_request *request = &setup->request;
    struct ebb_objective *objective = &request->objective;
    objective->kind = EBB_OBJECTIVE_PREFERENCE;
    objective->preference = preference_keys(setup);
    enum ebb_preference loss = objective->preference.loss_type;
    bool adapter = setup->new_adapter || setup->adapter_dir;
    EBB_TRY(check_loss(setup, loss));
    EBB_TRY(check_keys(setup, loss));
    objective->reference = EBB_REFERENCE_NONE;
    if (loss == EBB_PREFERENCE_ORPO || loss == EBB_PREFERENCE_SIMPO) return EBB_OK;
    objective->reference = EBB_REFERENCE_BASE;
    if (config->ref_model_name_or_path || !adapter) {
        EBB_TRY(find_second(setup));
        objective->reference = EBB_REFERENCE_MODEL;
    }
    if (config->precompute_ref_log_probs) objective->reference = EBB_REFERENCE_GIVEN;
    if (objective->reference == EBB_REFERENCE_MODEL) request->teacher_dir = setup->teacher_dir;
    return EBB_OK;
}

/* ---- a reference beforehand ------------------------------------------------------------------ */

/* The reference alone, in the run's capacity and numerics: a run that goes on computes the same
 * again. */
static struct ebb_engine_request reference_request(const struct ebb_setup *setup,
                                                   const struct ebb_numerics *numerics)
{
    struct ebb_engine_request request = setup->request;
    request.objective = (struct ebb_objective){.kind = EBB_OBJECTIVE_LOGPROB};
    request.model_dir = setup->teacher_dir ? setup->teacher_dir : setup->model_dir;
    request.adapter_dir = NULL;
    request.new_adapter = NULL;
    request.train = request.decode = false;
    request.evaluate = true;
    request.numerics = numerics;
    request.memory = (struct ebb_memory_keys){.rules = NULL};
    request.capacity.cache_tokens = 0;
    return request;
}

/* Advice is about what runs: this engine, not the one that trains. */
static enum ebb_status check_fit(struct ebb_setup *setup, const struct ebb_engine_request *request,
                                 const struct ebb_engine *engine)
{
    const struct ebb_engine_request training = setup->request;
    setup->request = *request;
    enum ebb_status status = ebb_fit_check(setup, engine);
    setup->request = training;
    return status;
}

static enum ebb_status run_reference(struct ebb_setup *setup, struct ebb_engine *engine)
{
    EBB_TRY(ebb_engine_open(engine));
    EBB_TRY(ebb_reference_create(setup->ctx, engine, setup->train_set, setup->train,
                                 setup->env->stop_fd, &setup->train_reference));
    if (setup->eval == NULL) return EBB_OK;
    return ebb_reference_create(setup->ctx, engine, setup->eval_set, setup->eval,
                                setup->env->stop_fd, &setup->eval_reference);
}

enum ebb_status ebb_dpo_precompute(struct ebb_setup *setup, const struct ebb_engine *training)
{
    struct ebb_engine *engine = NULL;
    if (!ebb_objective_prefers(&setup->request.objective) ||
        setup->request.objective.reference != EBB_REFERENCE_GIVEN)
        return EBB_OK;
    struct ebb_engine_request request =
        reference_request(setup, &ebb_engine_plan(training)->request.numerics);
    ebb_log(setup->ctx, EBB_LOG_INFO, "train",
            "reference: its log-probabilities are computed once");
    enum ebb_status status = ebb_engine_create(setup->ctx, &request, &engine);
    if (status == EBB_OK) status = check_fit(setup, &request, engine);
    if (status == EBB_OK) status = run_reference(setup, engine);
    ebb_engine_free(engine);
    return status;
}

void ebb_dpo_announce(const struct ebb_setup *setup)
{
    static const char *const references[] = {"no reference",
                                             "the reference is the model without its adapter",
                                             "the reference is a second model",
                                             "the reference was computed beforehand"};
    const struct ebb_objective *objective = &setup->request.objective;
    const struct ebb_preference_keys *keys = &objective->preference;
    char text[EBB_TEXT_DOUBLE];
    ebb_text_from_double(keys->beta, text);
    ebb_log(setup->ctx, EBB_LOG_INFO, "train", "loss: %s, beta %s; %s", loss_names[keys->loss_type],
            text, references[objective->reference]);
}
