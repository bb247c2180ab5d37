/* What keys mean together: a key without effect in this combination is an error, and so is a
 * contradiction.
 *
 * One leniency: where a command-line argument is what takes a file's key its effect
 * (`use_peft=false` over a file with lora_r), that was meant, and a line says so instead.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "data/dataset.h"
#include "data/packing.h"
#include "optim/schedule.h"
#include "recipe/chat.h"
#include "recipe/dpo.h"
#include "recipe/kd.h"
#include "recipe/options_int.h"
#include "recipe/report.h"
#include "recipe/sources.h"

typedef bool (*idle_fn)(const struct ebb_config *config);

struct rule {
    const char *keys;   /* separated by blanks: each is an error if it was set and the rule holds */
    unsigned commands;  /* bits of enum ebb_command */
    bool arguments;     /* only where it was set on the command line */
    idle_fn idle;       /* the rule holds */
    const char *causes; /* keys that make it so */
    const char *why;    /* follows "'key' " */
    const char *advice; /* follows "try:   " */
};

/* ---- conditions ------------------------------------------------------------------------------ */

static bool lora(const struct ebb_config *config)
{
    return config->use_peft || config->adapter_name_or_path;
}
static bool no_lora(const struct ebb_config *config)
{
    return !lora(config);
}
static bool has_adapter(const struct ebb_config *config)
{
    return config->adapter_name_or_path != NULL;
}
static bool peft_refused(const struct ebb_config *config)
{
    return config->adapter_name_or_path && !config->use_peft;
}
static bool adamw(const struct ebb_config *config)
{
    return config->optim == EBB_OPTIM_KEY_ADAMW && config->momentum > 0;
}
static bool sgd(const struct ebb_config *config)
{
    return config->optim == EBB_OPTIM_KEY_SGD;
}
static bool no_wsd(const struct ebb_config *config)
{
    return config->lr_scheduler_type != EBB_SCHEDULE_WARMUP_STABLE_DECAY;
}
static bool idle_warmup(const struct ebb_config *config)
{
    return config->lr_scheduler_type == EBB_SCHEDULE_CONSTANT &&
           (config->warmup_steps > 0 || config->warmup_ratio > 0);
}
static bool two_warmups(const struct ebb_config *config)
{
    return config->warmup_steps > 0 && config->warmup_ratio > 0;
}
static bool by_steps(const struct ebb_config *config)
{
    return config->max_steps > 0;
}
static bool rounding_lora(const struct ebb_config *config)
{
    return config->stochastic_rounding && lora(config);
}
static bool rounding_float32(const struct ebb_config *config)
{
    return config->stochastic_rounding && config->dtype == EBB_DTYPE_KEY_FLOAT32;
}
static bool no_eval(const struct ebb_config *config)
{
    return config->eval_strategy == EBB_STRATEGY_KEY_NO;
}
static bool no_eval_split(const struct ebb_config *config)
{
    /* A teacher is saved for what a run with this key trains. */
    return no_eval(config) && config->validation_split > 0 && config->save_teacher == NULL;
}
static bool no_eval_steps(const struct ebb_config *config)
{
    return config->eval_strategy != EBB_STRATEGY_KEY_STEPS;
}
static bool no_save(const struct ebb_config *config)
{
    return config->save_strategy == EBB_STRATEGY_KEY_NO && config->save_total_limit > 0;
}
static bool no_save_steps(const struct ebb_config *config)
{
    return config->save_strategy != EBB_STRATEGY_KEY_STEPS;
}
static bool best_without_eval(const struct ebb_config *config)
{
    return config->load_best_model_at_end && no_eval(config);
}
static bool patience_without_eval(const struct ebb_config *config)
{
    return config->early_stopping_patience > 0 && no_eval(config);
}
static bool no_patience(const struct ebb_config *config)
{
    return config->early_stopping_patience == 0 && config->early_stopping_threshold > 0;
}
static bool split_and_set(const struct ebb_config *config)
{
    return config->validation_split > 0 && (config->eval_dataset || config->dataset_test_split);
}
static bool by_hand(const struct ebb_config *config)
{
    return config->activations != NULL;
}
static bool nothing_moves(const struct ebb_config *config)
{
    return config->activation_offloading == EBB_FALSE && !config->activations;
}
/* 'ebb bench' names budgets in other keys too. */
static bool no_budget(const struct ebb_config *config)
{
    if (config->budgets || strncmp(config->sweep, "budget=", 7) == 0) return false;
    return config->memory_budget.bytes == 0 && !(config->memory_budget.percent > 0) &&
           ebb_config_backend(config) == EBB_BACKEND_CPU;
}
static bool on_cpu(const struct ebb_config *config)
{
    return ebb_config_backend(config) == EBB_BACKEND_CPU;
}
static bool sends_units(const struct ebb_config *config)
{
    return config->offload_params == EBB_TIER_KEY_CPU ||
           config->offload_optimizer == EBB_TIER_KEY_CPU;
}
static bool units_without_budget(const struct ebb_config *config)
{
    return sends_units(config) && no_budget(config);
}
static bool no_frozen_weights(const struct ebb_config *config)
{
    return config->offload_params == EBB_TIER_KEY_CPU && no_lora(config) &&
           !config->teacher_model_name_or_path && !config->ref_model_name_or_path;
}
static bool no_large_state(const struct ebb_config *config)
{
    return config->offload_optimizer == EBB_TIER_KEY_CPU && lora(config);
}
static bool breadth_first(const struct ebb_config *config)
{
    return config->gradient_accumulation_order == EBB_ORDER_KEY_BREADTH_FIRST;
}
static bool breadth_first_of_others(const struct ebb_config *config)
{
    return breadth_first(config) && config->recipe != EBB_RECIPE_KEY_SFT;
}
static bool order_of_one(const struct ebb_config *config)
{
    return config->gradient_accumulation_order != EBB_ORDER_KEY_AUTO &&
           config->gradient_accumulation_steps == 1;
}
static bool other_eval_data(const struct ebb_config *config)
{
    return config->eval_dataset || config->dataset_test_split;
}
static bool greedy(const struct ebb_config *config)
{
    return config->temperature <= 0;
}
static bool greedy_top_p(const struct ebb_config *config)
{
    return greedy(config) && config->top_p < 1;
}
static bool greedy_top_k(const struct ebb_config *config)
{
    return greedy(config) && config->top_k > 0;
}
static bool has_prompt(const struct ebb_config *config)
{
    return config->prompt && config->prompt_lines;
}
static bool decoding(const struct ebb_config *config)
{
    return config->decode && !config->add_special_tokens;
}
static bool encoding(const struct ebb_config *config)
{
    return !config->decode && !config->skip_special_tokens;
}
/* Items of datasets have formats of their own. */
static bool other_format(const struct ebb_config *config)
{
    return strcmp(config->dataset_format, "auto") != 0 &&
           strcmp(config->dataset_format, "text") != 0 && !config->datasets;
}
static bool two_datas(const struct ebb_config *config)
{
    return config->dataset_name && config->datasets;
}
static bool other_gpu(const struct ebb_config *config)
{
    return config->gpu != NULL;
}
static bool has_data(const struct ebb_config *config)
{
    return config->dataset_name || config->datasets;
}
static bool longest(const struct ebb_config *config)
{
    return config->max_length == EBB_LONGEST && ebb_config_sweeps(config);
}
static bool longest_of_data(const struct ebb_config *config)
{
    return config->max_length == EBB_LONGEST && has_data(config);
}
static bool sweeping(const struct ebb_config *config)
{
    return ebb_config_sweeps(config);
}
static bool short_docs(const struct ebb_config *config)
{
    return config->doc_length > 0 && config->doc_length < EBB_ASSUMED_DOC_LEAST;
}

static bool no_packing(const struct ebb_config *config)
{
    return !config->packing;
}
static bool packed(const struct ebb_config *config)
{
    return config->packing && config->group_by_length;
}
static bool splitting(const struct ebb_config *config)
{
    return config->packing && config->packing_strategy != EBB_PACKING_BFD;
}
static bool no_truncation(const struct ebb_config *config)
{
    return config->overlong != EBB_OVERLONG_TRUNCATE;
}
static bool whole_chats(const struct ebb_config *config)
{
    return config->assistant_only_loss == EBB_FALSE && config->last_turn_only_loss;
}
static bool chosen_records(const struct ebb_config *config)
{
    return config->records != NULL;
}
static bool packed_pairs(const struct ebb_config *config)
{
    return config->recipe == EBB_RECIPE_KEY_DPO;
}
static bool no_kd(const struct ebb_config *config)
{
    return config->recipe != EBB_RECIPE_KEY_KD;
}
static bool no_dpo(const struct ebb_config *config)
{
    return config->recipe != EBB_RECIPE_KEY_DPO;
}
static bool is_loss(const struct ebb_config *config, enum ebb_preference loss)
{
    return config->loss_type == EBB_LOSS_TYPE_KEY_FIRST + (int)loss;
}
static bool no_reference(const struct ebb_config *config)
{
    return is_loss(config, EBB_PREFERENCE_ORPO) || is_loss(config, EBB_PREFERENCE_SIMPO);
}
static bool no_smoothing(const struct ebb_config *config)
{
    return config->label_smoothing > 0 && config->loss_type != EBB_LOSS_TYPE_KEY_AUTO &&
           !is_loss(config, EBB_PREFERENCE_SIGMOID) && !is_loss(config, EBB_PREFERENCE_SIMPO);
}
static bool no_simpo(const struct ebb_config *config)
{
    return !is_loss(config, EBB_PREFERENCE_SIMPO);
}
static bool no_kto(const struct ebb_config *config)
{
    return config->loss_type != EBB_LOSS_TYPE_KEY_AUTO && !is_loss(config, EBB_PREFERENCE_KTO);
}
static bool no_kd_beta(const struct ebb_config *config)
{
    return config->recipe == EBB_RECIPE_KEY_SFT;
}
static bool two_teachers(const struct ebb_config *config)
{
    return config->teacher_model_name_or_path && config->teacher_logits;
}
static bool saving_teacher(const struct ebb_config *config)
{
    return config->save_teacher != NULL;
}
static bool not_saving_teacher(const struct ebb_config *config)
{
    return config->save_teacher == NULL;
}
static bool from_saved_teacher(const struct ebb_config *config)
{
    return config->teacher_logits != NULL;
}
static bool no_beta(const struct ebb_config *config)
{
    return config->kd_loss == EBB_FORWARD_KL || config->kd_loss == EBB_REVERSE_KL;
}
static bool no_beta_in_plan(const struct ebb_config *config)
{
    return config->recipe == EBB_RECIPE_KEY_KD && no_beta(config);
}
static bool as_json(const struct ebb_config *config)
{
    return config->json;
}
static bool no_eval_prompts(const struct ebb_config *config)
{
    return config->eval_prompts == NULL;
}
static bool resumed(const struct ebb_config *config)
{
    return config->overwrite_output_dir && strcmp(config->resume_from_checkpoint, "false") != 0;
}

#define KD       (1u << EBB_COMMAND_KD)
#define DPO      (1u << EBB_COMMAND_DPO)
#define FIT      EBB_TRAINING_COMMANDS
#define PLAN     (1u << EBB_COMMAND_PLAN)
#define DATA     (1u << EBB_COMMAND_DATA)
#define EVAL     (1u << EBB_COMMAND_EVAL)
#define GENERATE (1u << EBB_COMMAND_GENERATE)
#define CHAT     (1u << EBB_COMMAND_CHAT)
#define TOKENIZE (1u << EBB_COMMAND_TOKENIZE)
#define BENCH    (1u << EBB_COMMAND_BENCH)
#define PLANS    (PLAN | BENCH) /* of any recipe */
#define TRAIN    (FIT | PLAN | BENCH)
#define READ     (FIT | PLAN | BENCH | EVAL | DATA)

static const struct rule rules[] = {
    {"lora_r lora_alpha lora_dropout lora_target_modules use_rslora", TRAIN, false, has_adapter,
     "adapter_name_or_path",
     "has no effect: rank, scale and targets come from the adapter that adapter_name_or_path names",
     "remove it, or remove adapter_name_or_path to start a new adapter"},
    {"lora_r lora_alpha lora_dropout lora_target_modules use_rslora", TRAIN, false, no_lora,
     "use_peft", "has no effect while every weight is trained",
     "use_peft: true to train a LoRA adapter, or remove it to train every weight"},
    {"use_peft", TRAIN, false, peft_refused, "adapter_name_or_path",
     "contradicts adapter_name_or_path",
     "use_peft: true to go on training the adapter; 'ebb merge' folds it in to train every weight"},
    {"save_dtype", FIT, false, lora, "use_peft adapter_name_or_path",
     "has no effect: adapters are always saved in float32", "remove it"},
    {"momentum", TRAIN, false, adamw, "optim", "has no effect with optim: adamw",
     "optim: sgd, or remove it"},
    {"adam_beta1 adam_beta2 adam_epsilon", TRAIN, false, sgd, "optim",
     "has no effect with optim: sgd", "optim: adamw, or remove it"},
    {"decay_ratio", FIT, false, no_wsd, "lr_scheduler_type",
     "has no effect with this lr_scheduler_type",
     "lr_scheduler_type: warmup_stable_decay, or remove it"},
    {"warmup_steps warmup_ratio", FIT, false, idle_warmup, "lr_scheduler_type",
     "has no effect with lr_scheduler_type: constant",
     "lr_scheduler_type: constant_with_warmup, or remove it"},
    {"warmup_ratio", FIT, false, two_warmups, "warmup_steps", "has no effect beside warmup_steps",
     "keep one of them"},
    {"num_train_epochs", FIT, false, by_steps, "max_steps", "has no effect: max_steps ends the run",
     "keep one of them"},
    {"stochastic_rounding", TRAIN, false, rounding_lora, "use_peft adapter_name_or_path",
     "has no effect with LoRA: adapters have exact float32 masters", "remove it"},
    {"stochastic_rounding", TRAIN, false, rounding_float32, "dtype",
     "has no effect with dtype: float32", "dtype: bfloat16, or remove it"},
    {"validation_split", TRAIN | EVAL, false, split_and_set, "eval_dataset dataset_test_split",
     "contradicts eval_dataset or dataset_test_split", "keep one of them"},
    {"eval_dataset dataset_test_split per_device_eval_batch_size", TRAIN, false, no_eval,
     "eval_strategy", "has no effect while eval_strategy is no",
     "eval_strategy: epoch, or eval_strategy: steps with eval_steps; or remove it"},
    {"validation_split", TRAIN, false, no_eval_split, "eval_strategy",
     "has no effect while eval_strategy is no",
     "eval_strategy: epoch, or eval_strategy: steps with eval_steps; or remove it"},
    {"eval_steps", FIT, false, no_eval_steps, "eval_strategy",
     "has no effect without eval_strategy: steps", "eval_strategy: steps, or remove it"},
    {"save_steps", FIT, false, no_save_steps, "save_strategy",
     "has no effect without save_strategy: steps", "save_strategy: steps, or remove it"},
    {"save_total_limit", FIT, false, no_save, "save_strategy",
     "has no effect with save_strategy: no", "save_strategy: epoch or steps, or remove it"},
    {"load_best_model_at_end", FIT, false, best_without_eval, "eval_strategy",
     "needs evaluations to know the best",
     "eval_strategy: epoch and a validation set (eval_dataset or validation_split)"},
    {"early_stopping_patience", FIT, false, patience_without_eval, "eval_strategy",
     "needs evaluations",
     "eval_strategy: epoch and a validation set (eval_dataset or validation_split)"},
    {"early_stopping_threshold", FIT, false, no_patience, "early_stopping_patience",
     "has no effect without early_stopping_patience", "early_stopping_patience: 3, or remove it"},
    {"gradient_checkpointing activation_offloading", TRAIN, false, by_hand, "activations",
     "contradicts 'activations', which decides the same by hand", "keep one of them"},
    {"activation_offloading_use_streams", TRAIN, false, nothing_moves, "activation_offloading",
     "has no effect with activation_offloading: false",
     "activation_offloading: auto or true, or remove it"},
    {"pinned_memory_budget", TRAIN, false, on_cpu, "device",
     "has no effect on the CPU, where copies need nothing pinned", "remove it"},
    {"activation_offloading_use_streams host_memory_budget", TRAIN, false, no_budget,
     "memory_budget", "has no effect on the CPU without memory_budget: nothing moves",
     "memory_budget: 80%, or remove it"},
    {"offload_params offload_optimizer", TRAIN, false, units_without_budget, "memory_budget",
     "has no effect on the CPU without memory_budget: nothing moves",
     "memory_budget: 80%, or remove it"},
    {"offload_params", TRAIN, false, no_frozen_weights, "use_peft",
     "has no effect: every weight is trained, and trained weights stay on the device",
     "offload_optimizer: cpu, or use_peft: true"},
    {"offload_optimizer", TRAIN, false, no_large_state, "use_peft adapter_name_or_path",
     "has no effect with LoRA: adapters have little state, which stays on the device",
     "offload_params: cpu, or remove it"},
    {"gradient_accumulation_order", KD | DPO, false, breadth_first, "gradient_accumulation_order",
     "is depth_first where the loss needs more than tokens: in distillation and preferences",
     "remove it"},
    {"gradient_accumulation_order", PLAN, false, breadth_first_of_others, "recipe",
     "is depth_first where the loss needs more than tokens: in distillation and preferences",
     "remove it"},
    {"gradient_accumulation_order", TRAIN, false, order_of_one, "gradient_accumulation_steps",
     "has no effect: a step has one micro-batch", "gradient_accumulation_steps: 8, or remove it"},
    {"dataset_train_split", EVAL, true, other_eval_data, "eval_dataset dataset_test_split",
     "has no effect beside eval_dataset or dataset_test_split", "keep one of them"},
    {"dataset_text_field", READ, false, other_format, "dataset_format",
     "has no effect with this dataset_format", "dataset_format: text, or remove it"},
    {"datasets", READ, false, two_datas, "dataset_name",
     "contradicts dataset_name: both say what the data is",
     "dataset_name for one data set, or all of them as items of datasets"},
    {"packing_strategy", READ, false, no_packing, "packing", "has no effect without packing",
     "packing: true, or remove it"},
    {"group_by_length", TRAIN | DATA, false, packed, "packing",
     "has no effect with packing: rows are equally full already", "keep one of them"},
    {"packing packing_strategy group_by_length", DATA, true, packed_pairs, "recipe",
     "has no effect with recipe: dpo, which lays no samples into rows", "remove it"},
    {"overlong", READ, false, splitting, "packing packing_strategy",
     "has no effect with this packing_strategy, which splits samples above max_length",
     "packing_strategy: bfd, or remove it"},
    {"truncation_side", READ, false, splitting, "packing packing_strategy",
     "has no effect with this packing_strategy, which cuts nothing off",
     "packing_strategy: bfd with overlong: truncate, or remove it"},
    {"truncation_side", READ, false, no_truncation, "overlong",
     "has no effect without overlong: truncate: nothing is cut",
     "overlong: truncate, or remove it"},
    {"last_turn_only_loss", READ, false, whole_chats, "assistant_only_loss",
     "contradicts assistant_only_loss: false, which trains whole conversations",
     "keep one of them"},
    {"loss_type label_smoothing simpo_gamma desirable_weight undesirable_weight "
     "ref_model_name_or_path precompute_ref_log_probs",
     PLANS, false, no_dpo, "recipe", "has no effect without recipe: dpo",
     "recipe: dpo, or remove it"},
    {"beta", PLANS, false, no_kd_beta, "recipe", "has no effect without recipe: kd or dpo",
     "recipe: kd or dpo, or remove it"},
    {"ref_model_name_or_path precompute_ref_log_probs", DPO | PLANS, false, no_reference,
     "loss_type", "has no effect with this loss_type, which has no reference", "remove it"},
    {"label_smoothing", DPO | PLANS, false, no_smoothing, "loss_type",
     "has no effect with this loss_type", "loss_type: sigmoid or simpo, or remove it"},
    {"simpo_gamma", DPO | PLANS, false, no_simpo, "loss_type",
     "has no effect without loss_type: simpo", "loss_type: simpo, or remove it"},
    {"desirable_weight undesirable_weight", DPO | PLANS, false, no_kto, "loss_type",
     "has no effect with this loss_type", "loss_type: kto, or remove it"},
    {"teacher_model_name_or_path teacher_logits kd_loss kd_ratio kd_scale_t2 temperature", PLANS,
     false, no_kd, "recipe", "has no effect without recipe: kd", "recipe: kd, or remove it"},
    {"teacher_model_name_or_path", KD | PLANS, false, two_teachers, "teacher_logits",
     "contradicts teacher_logits: either says what the student learns from", "keep one of them"},
    {"teacher_top_k teacher_dtype", KD, false, not_saving_teacher, "save_teacher",
     "has no effect without save_teacher", "save_teacher: DIR, or remove it"},
    {"teacher_logits kd_loss kd_ratio beta kd_scale_t2 output_dir use_peft learning_rate "
     "max_steps num_train_epochs gradient_accumulation_steps profile",
     KD, false, saving_teacher, "save_teacher",
     "has no effect with save_teacher, which trains nothing", "remove it"},
    {"temperature", KD | PLANS, false, from_saved_teacher, "teacher_logits",
     "has no effect with teacher_logits, which has the temperature that it was saved at",
     "remove it"},
    {"beta", KD, false, no_beta, "kd_loss", "has no effect with this kd_loss",
     "kd_loss: jsd, symmetric_kl or a skewed one, or remove it"},
    {"beta", PLANS, false, no_beta_in_plan, "kd_loss", "has no effect with this kd_loss",
     "kd_loss: jsd, symmetric_kl or a skewed one, or remove it"},
    {"device", PLAN, false, other_gpu, "gpu", "has no effect beside gpu, which names the device",
     "keep one of them"},
    {"threads", PLAN, false, other_gpu, "gpu", "has no effect beside gpu", "remove it"},
    {"doc_length", PLAN, false, no_packing, "packing", "has no effect without packing",
     "packing: true, or remove it"},
    {"doc_length", PLAN, false, short_docs, "doc_length",
     "is too short: rows without data have room for a document every 16 tokens",
     "doc_length: 16, or a data set"},
    {"doc_length", PLAN, false, has_data, "dataset_name datasets",
     "has no effect with a data set, whose own lengths are taken", "remove it"},
    {"max_length", PLAN, false, longest_of_data, "dataset_name datasets",
     "asks for the longest row that fits, but a data set has its own lengths",
     "a number, auto, or no data set"},
    {"sweep", PLAN, false, longest, "max_length", "contradicts max_length: longest",
     "keep one of them"},
    {"memory_budget", PLAN, false, sweeping, "sweep",
     "contradicts sweep: memory, which looks at a row of budgets", "keep one of them"},
    {"show_samples", DATA, false, chosen_records, "records",
     "has no effect beside records, which names what is shown", "keep one of them"},
    {"color", DATA, false, as_json, "json", "has no effect with json", "remove it"},
    {"overwrite_output_dir", FIT, false, resumed, "resume_from_checkpoint",
     "would remove the checkpoint that resume_from_checkpoint asks for", "keep one of them"},
    {"top_p", GENERATE | CHAT, false, greedy_top_p, "temperature",
     "has no effect with temperature: 0", "temperature: 1, or remove it"},
    {"top_k", GENERATE | CHAT, false, greedy_top_k, "temperature",
     "has no effect with temperature: 0", "temperature: 1, or remove it"},
    {"seed", GENERATE | CHAT, true, greedy, "temperature", "has no effect with temperature: 0",
     "temperature: 1, or remove it"},
    {"eval_max_new_tokens", TRAIN, false, no_eval_prompts, "eval_prompts",
     "has no effect without eval_prompts", "eval_prompts, or remove it"},
    {"add_special_tokens", TOKENIZE, false, decoding, "decode", "has no effect with decode",
     "keep one of them"},
    {"skip_special_tokens", TOKENIZE, false, encoding, "decode", "has no effect without decode",
     "decode: true, or remove it"},
    {"prompt_lines", GENERATE, false, has_prompt, "prompt", "has no effect with prompt",
     "keep one of them"},
};

/* ---- the table's rules ----------------------------------------------------------------------- */

/* An argument took a file's key its effect: meant, so only said. */
static bool is_override(const struct ebb_options *options, const struct rule *rule,
                        const struct ebb_origin *origin)
{
    char cause[EBB_WORD_BYTES];
    if (origin->kind != EBB_ORIGIN_FILE) return false;
    for (int i = 0; ebb_option_word(rule->causes, i, cause, sizeof cause); i++)
        if (ebb_options_origin(options, cause).kind == EBB_ORIGIN_ARGUMENT) return true;
    return false;
}

static enum ebb_status check_rule(struct ebb_options *options, const struct rule *rule,
                                  struct ebb_ctx *ctx)
{
    char key[EBB_WORD_BYTES];
    for (int i = 0; ebb_option_word(rule->keys, i, key, sizeof key); i++) {
        struct ebb_origin origin = ebb_options_origin(options, key);
        if (origin.kind == EBB_ORIGIN_DEFAULT) continue;
        if (rule->arguments && origin.kind != EBB_ORIGIN_ARGUMENT) continue;
        if (is_override(options, rule, &origin)) {
            ebb_log(ctx, EBB_LOG_INFO, "config",
                    "the command line leaves a key of the file without effect: '%s' %s", key,
                    rule->why);
            continue;
        }
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "'%s' %s\nwhere: %s\ntry:   %s", origin.key, rule->why,
                        ebb_options_where_origin(options, &origin), rule->advice);
    }
    return EBB_OK;
}

/* ---- rules with more to say ------------------------------------------------------------------ */

enum ebb_backend ebb_config_backend(const struct ebb_config *config)
{
    if (config->gpu) return EBB_BACKEND_CUDA;
    bool gpu = config->device == EBB_DEVICE_KEY_CUDA ||
               (config->device == EBB_DEVICE_KEY_AUTO &&
                ebb_backend_is_there(EBB_BACKEND_CUDA, NULL, 0));
    return gpu ? EBB_BACKEND_CUDA : EBB_BACKEND_CPU;
}

bool ebb_config_sweeps(const struct ebb_config *config)
{
    return strcmp(config->sweep, "memory") == 0;
}

/* What 'ebb plan' makes of it; 'ebb bench' reads its own (recipe/bench_sweep.h). */
static enum ebb_status check_sweep(struct ebb_options *options, const struct ebb_config *config,
                                   struct ebb_ctx *ctx)
{
    static const char *const none[] = {"no", "none", "false"};
    if (options->command != EBB_COMMAND_PLAN || ebb_config_sweeps(config)) return EBB_OK;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (strcmp(config->sweep, none[i]) == 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "value '%s' of 'sweep' is none of its choices: wanted no or memory\n"
                    "where: %s\n"
                    "help:  ebb help sweep",
                    config->sweep, ebb_options_where(options, "sweep"));
}

/* Is there device memory that activations can be moved out of? */
static bool has_device_memory(const struct ebb_config *config)
{
    return config->memory_budget.bytes > 0 || config->memory_budget.percent > 0 ||
           ebb_config_backend(config) == EBB_BACKEND_CUDA;
}

static enum ebb_status check_offered(struct ebb_options *options, const struct ebb_config *config,
                                     struct ebb_ctx *ctx)
{
    char why[EBB_BACKEND_WHY];
    if (config->device == EBB_DEVICE_KEY_CUDA &&
        !ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why))
        return EBB_FAIL(ctx, ebb_backend_is_built(EBB_BACKEND_CUDA) ? EBB_DEVICE : EBB_UNSUPPORTED,
                        "device: cuda is not to be had: %s\n"
                        "where: %s\n"
                        "try:   device: cpu",
                        why, ebb_options_where(options, "device"));
    return EBB_OK;
}

/* torchtune's spellings have torchtune's rules; TRL's have TRL's. */
static enum ebb_status check_offloading(struct ebb_options *options,
                                        const struct ebb_config *config, struct ebb_ctx *ctx)
{
    struct ebb_origin offload = ebb_options_origin(options, "activation_offloading");
    struct ebb_origin remake = ebb_options_origin(options, "gradient_checkpointing");
    bool budget = has_device_memory(config);
    bool torchtune = strcmp(offload.key, "enable_activation_offloading") == 0;
    if (config->activation_offloading == EBB_TRUE && torchtune &&
        config->gradient_checkpointing != EBB_TRUE)
        return EBB_FAIL(
            ctx, EBB_BAD_CONFIG,
            "enable_activation_offloading should only be True when "
            "enable_activation_checkpointing is True\n"
            "where: %s\n"
            "try:   enable_activation_checkpointing: true, or activation_offloading: true with "
            "gradient_checkpointing: false to move everything that is saved",
            ebb_options_where_origin(options, &offload));
    if (config->activation_offloading == EBB_TRUE && !budget)
        return EBB_FAIL(
            ctx, EBB_BAD_CONFIG,
            "%s\n"
            "where: %s\n"
            "try:   memory_budget: 80%%, which makes the CPU a simulated accelerator, or remove it",
            torchtune
                ? "enable_activation_offloading should only be True when training on CUDA or XPU, "
                  "or on the CPU with a memory_budget"
                : "on the CPU activation_offloading needs memory_budget: without one there is no "
                  "device memory to move activations out of",
            ebb_options_where_origin(options, &offload));
    if (strcmp(remake.key, "enable_activation_checkpointing") == 0 &&
        config->gradient_checkpointing == EBB_TRUE && config->activation_offloading == EBB_FALSE &&
        budget)
        ebb_log(ctx, EBB_LOG_INFO, "config",
                "Hint: enable_activation_checkpointing is True, but enable_activation_offloading "
                "isn't. Enabling activation offloading should reduce memory further.");
    return EBB_OK;
}

static enum ebb_status check_activations(struct ebb_options *options,
                                         const struct ebb_config *config, struct ebb_ctx *ctx)
{
    if (config->activations == NULL) return EBB_OK;
    struct ebb_activation_rule list[EBB_ACTIVATION_RULES];
    int64_t count = 0;
    bool argument = ebb_options_origin(options, "activations").kind == EBB_ORIGIN_ARGUMENT;
    EBB_TRY(ebb_activations_parse(ctx, argument ? "command line" : options->path,
                                  config->activations, list, &count));
    bool budget = has_device_memory(config);
    for (int64_t i = 0; i < count; i++)
        if (ebb_policy_moves(list[i].policy) && !budget)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "on the CPU 'activations: {%s: %s}' needs memory_budget: without "
                            "one there is no device memory to move activations out of\n"
                            "where: %s:%d:%d\n"
                            "try:   memory_budget: 80%%, which makes the CPU a simulated "
                            "accelerator",
                            list[i].slot, ebb_policy_name(list[i].policy),
                            argument ? "command line" : options->path, list[i].line,
                            list[i].column);
    return EBB_OK;
}

/* Data sets are there, and what is written as a tree makes sense. */
static enum ebb_status check_data(struct ebb_options *options, const struct ebb_config *config,
                                  struct ebb_ctx *ctx)
{
    enum ebb_command command = options->command;
    struct ebb_sources sources = {0};
    if (!(READ & 1u << command)) return EBB_OK;
    bool wanted = (FIT | DATA) & 1u << command;
    if (wanted && !config->dataset_name && !config->datasets)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'ebb %s' needs 'dataset_name'\nwhere: %s\nusage: ebb %s %s\nhelp:  ebb "
                        "help dataset_name",
                        ebb_command_name(command), options->path ? options->path : "command line",
                        ebb_command_name(command), ebb_command_usage(command));
    enum ebb_status status = ebb_sources_create(ctx, options, config, EBB_SHARE_TRAIN, &sources);
    ebb_sources_free(ctx, &sources);
    return status == EBB_OK ? ebb_chat_check(ctx, options, config) : status;
}

static enum ebb_status check_evaluation(struct ebb_options *options,
                                        const struct ebb_config *config, struct ebb_ctx *ctx)
{
    enum ebb_command command = options->command;
    bool data = config->eval_dataset || config->dataset_test_split || config->validation_split > 0;
    if ((TRAIN & 1u << command) && config->eval_strategy != EBB_STRATEGY_KEY_NO && !data)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "eval_strategy needs data to evaluate on\n"
                        "where: %s\n"
                        "try:   validation_split: 0.1, or eval_dataset with another file, or "
                        "dataset_test_split",
                        ebb_options_where(options, "eval_strategy"));
    double percent = config->validation_split * 100;
    if (config->validation_split > 0 && fabs(percent - round(percent)) > 1e-6)
        return EBB_FAIL(
            ctx, EBB_BAD_CONFIG,
            "validation_split is taken in whole percents: %g is %g %%\n"
            "where: %s\n"
            "try:   validation_split: %g, or slices: dataset_train_split: train[:900] and "
            "dataset_test_split: train[900:]",
            config->validation_split, percent, ebb_options_where(options, "validation_split"),
            fmax(1, round(percent)) / 100);
    if (!(FIT & 1u << command) || !config->load_best_model_at_end) return EBB_OK;
    if (config->save_strategy != config->eval_strategy)
        return EBB_FAIL(
            ctx, EBB_BAD_CONFIG,
            "load_best_model_at_end needs a checkpoint of each evaluated state: eval_strategy and "
            "save_strategy differ\n"
            "where: %s\n"
            "try:   the same for both",
            ebb_options_where(options, "load_best_model_at_end"));
    if (config->save_strategy == EBB_STRATEGY_KEY_STEPS &&
        config->save_steps % config->eval_steps != 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "load_best_model_at_end needs an evaluation at each checkpoint: "
                        "save_steps %lld is no multiple of eval_steps %lld\n"
                        "where: %s\n"
                        "try:   save_steps: %lld",
                        (long long)config->save_steps, (long long)config->eval_steps,
                        ebb_options_where(options, "load_best_model_at_end"),
                        (long long)(config->eval_steps *
                                    (config->save_steps / config->eval_steps + 1)));
    return EBB_OK;
}

/* Distillation: a teacher is named, and where the result goes. */
static enum ebb_status check_kd(struct ebb_options *options, const struct ebb_config *config,
                                struct ebb_ctx *ctx)
{
    if (!ebb_kd_wanted(options, config)) return EBB_OK;
    if (config->save_teacher && config->teacher_model_name_or_path == NULL)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "save_teacher needs the teacher that is to be saved\n"
                        "try:   teacher_model_name_or_path: MODEL");
    if (config->teacher_model_name_or_path == NULL && config->teacher_logits == NULL)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "distillation needs a teacher\n"
                        "try:   teacher_model_name_or_path: MODEL, or teacher_logits: DIR that "
                        "'ebb kd' with save_teacher: DIR wrote\n"
                        "help:  ebb help teacher_model_name_or_path");
    if (ebb_options_is_set(options, "temperature") && !(config->temperature > 0))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "temperature is %g, and logits are divided by it\n"
                        "where: %s\n"
                        "try:   temperature: 1",
                        config->temperature, ebb_options_where(options, "temperature"));
    if (config->beta > 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "beta is %g, kd_loss takes 0 to 1\nwhere: %s",
                        config->beta, ebb_options_where(options, "beta"));
    bool plans = PLANS & 1u << options->command;
    if (config->output_dir || config->save_teacher || plans) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "'ebb kd' needs 'output_dir', or save_teacher\n"
                    "help:  ebb help output_dir");
}

static enum ebb_status check_dpo(struct ebb_options *options, const struct ebb_config *config,
                                 struct ebb_ctx *ctx)
{
    if (!ebb_dpo_wanted(options, config) || !(config->beta <= 0)) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "beta is %g: a preference loss takes one above 0\n"
                    "where: %s\n"
                    "try:   beta: 0.1",
                    config->beta, ebb_options_where(options, "beta"));
}

enum ebb_status ebb_rules_check(struct ebb_options *options, const struct ebb_config *config,
                                struct ebb_ctx *ctx)
{
    EBB_TRY(check_offered(options, config, ctx));
    EBB_TRY(check_sweep(options, config, ctx));
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if ((rules[i].commands & 1u << options->command) && rules[i].idle(config))
            EBB_TRY(check_rule(options, &rules[i], ctx));
    EBB_TRY(check_kd(options, config, ctx));
    EBB_TRY(check_dpo(options, config, ctx));
    EBB_TRY(check_activations(options, config, ctx));
    EBB_TRY(check_offloading(options, config, ctx));
    EBB_TRY(check_data(options, config, ctx));
    EBB_TRY(ebb_report_check(ctx, options, config));
    return check_evaluation(options, config, ctx);
}
