/* Other projects' keys, project by project, and what becomes of each here: docs/COMING_FROM.md.
 * A list has what their own files and examples set, in that order; what a key means here is
 * looked up in the option table, so that this file cannot say anything else than the parser does.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "recipe/options_int.h"

static const struct ebb_project projects[] = {
    {"torchtune", "torchtune",
     "output_dir model._component_ model.lora_attn_modules model.apply_lora_to_mlp "
     "model.apply_lora_to_output model.lora_rank model.lora_alpha model.lora_dropout "
     "model.use_dora model.quantize_base tokenizer._component_ tokenizer.path "
     "tokenizer.max_seq_len tokenizer.prompt_template tokenizer.truncation_type "
     "checkpointer._component_ checkpointer.checkpoint_dir checkpointer.checkpoint_files "
     "resume_from_checkpoint save_adapter_weights_only dataset._component_ dataset.source "
     "dataset.data_files dataset.split dataset.column dataset.column_map dataset.train_on_input "
     "dataset.packed dataset_val run_val_every_n_steps seed shuffle batch_size batch_size_val "
     "epochs max_steps_per_epoch gradient_accumulation_steps optimizer._component_ optimizer.lr "
     "optimizer.weight_decay optimizer.fused optimizer_in_bwd lr_scheduler._component_ "
     "lr_scheduler.num_warmup_steps loss._component_ clip_grad_norm save_every_n_steps device "
     "dtype compile low_cpu_ram enable_activation_checkpointing enable_activation_offloading "
     "activation_offloading_use_streams fsdp_cpu_offload custom_sharded_layers "
     "tensor_parallel_dim teacher_model.* teacher_checkpointer.checkpoint_dir "
     "kd_loss._component_ kd_ratio metric_logger._component_ log_every_n_steps "
     "log_peak_memory_stats log_level profiler.enabled"},
    {"trl", "TRL",
     "model_name_or_path model_revision torch_dtype trust_remote_code attn_implementation "
     "dataset_name dataset_config dataset_train_split dataset_test_split dataset_text_field "
     "dataset_num_proc dataset_kwargs output_dir per_device_train_batch_size "
     "per_device_eval_batch_size gradient_accumulation_steps num_train_epochs max_steps "
     "learning_rate lr_scheduler_type warmup_steps warmup_ratio weight_decay adam_beta1 "
     "adam_beta2 adam_epsilon max_grad_norm optim seed bf16 fp16 tf32 max_length "
     "truncation_mode packing packing_strategy eval_packing padding_free pad_to_multiple_of "
     "completion_only_loss assistant_only_loss chat_template_path loss_type use_liger_kernel "
     "gradient_checkpointing gradient_checkpointing_kwargs activation_offloading "
     "torch_compile group_by_length neftune_noise_alpha use_peft lora_r lora_alpha lora_dropout "
     "lora_target_modules lora_modules_to_save lora_task_type use_rslora use_dora load_in_4bit "
     "load_in_8bit eval_strategy eval_steps eval_on_start save_strategy save_steps "
     "save_total_limit load_best_model_at_end metric_for_best_model resume_from_checkpoint "
     "logging_steps logging_first_step report_to run_name push_to_hub deepspeed fsdp "
     "ddp_find_unused_parameters beta label_smoothing precompute_ref_log_probs sync_ref_model "
     "reference_free max_prompt_length max_completion_length disable_dropout simpo_gamma "
     "cpo_alpha desirable_weight undesirable_weight teacher_model_name_or_path temperature lmbda "
     "seq_kd"},
    {"axolotl", "Axolotl",
     "base_model model_type tokenizer_type trust_remote_code load_in_4bit "
     "load_in_8bit adapter lora_model_dir lora_r lora_alpha lora_dropout lora_target_modules "
     "lora_target_linear lora_modules_to_save peft_use_dora peft_use_rslora lora_mlp_kernel "
     "lora_qkv_kernel lora_o_kernel datasets test_datasets dataset_prepared_path val_set_size "
     "chat_template chat_template_jinja roles_to_train train_on_eos train_on_inputs "
     "eot_tokens special_tokens.pad_token sequence_len excess_length_strategy sample_packing "
     "eval_sample_packing pad_to_sequence_len group_by_length micro_batch_size eval_batch_size "
     "gradient_accumulation_steps num_epochs max_steps optimizer learning_rate lr_scheduler "
     "warmup_steps warmup_ratio weight_decay max_grad_norm adam_beta2 bf16 fp16 tf32 "
     "gradient_checkpointing gradient_checkpointing_kwargs activation_offloading "
     "flash_attention sdp_attention xformers_attention s2_attention plugins liger_kernel_config "
     "torch_compile rl rl_beta dpo_label_smoothing orpo_alpha rpo_alpha kto_desirable_weight "
     "kto_undesirable_weight output_dir resume_from_checkpoint auto_resume_from_checkpoints "
     "eval_steps evals_per_epoch save_steps saves_per_epoch save_total_limit "
     "early_stopping_patience logging_steps wandb_project use_tensorboard debug deepspeed fsdp "
     "fsdp_config seed"},
    {"unsloth", "Unsloth",
     "model_name max_seq_length dtype load_in_4bit load_in_8bit full_finetuning fast_inference "
     "gpu_memory_utilization r lora_alpha lora_dropout target_modules bias use_rslora "
     "loftq_config use_gradient_checkpointing random_state "
     "dataset_text_field dataset_num_proc packing per_device_train_batch_size "
     "gradient_accumulation_steps warmup_steps num_train_epochs max_steps learning_rate fp16 "
     "bf16 logging_steps optim weight_decay lr_scheduler_type seed output_dir report_to"},
};
enum { PROJECTS = (int)(sizeof projects / sizeof projects[0]) };

const struct ebb_project *ebb_project_table(size_t *count)
{
    *count = PROJECTS;
    return projects;
}

const struct ebb_project *ebb_project_find(const char *name)
{
    for (int i = 0; i < PROJECTS; i++)
        if (strcmp(projects[i].name, name) == 0) return &projects[i];
    return NULL;
}

/* The text about values that a key does not take here, in brackets. */
static enum ebb_status add_values(struct ebb_ctx *ctx, struct ebb_str *out, const char *key)
{
    size_t count;
    char value[EBB_WORD_BYTES];
    const struct ebb_foreign_value *table = ebb_foreign_value_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].key, key) != 0) continue;
        for (int k = 0; ebb_option_word(table[i].values, k, value, sizeof value); k++)
            EBB_TRY(ebb_str_addf(ctx, out, "%s`%s`", k ? ", " : "; for ", value));
        EBB_TRY(ebb_str_addf(ctx, out, " write %s", table[i].text));
    }
    return EBB_OK;
}

/* What becomes of their key here. */
static enum ebb_status add_meaning(struct ebb_ctx *ctx, struct ebb_str *out, const char *key)
{
    const struct ebb_option *option = ebb_option_find(key);
    const struct ebb_spelling *spelling = option ? NULL : ebb_spelling_find(key);
    const struct ebb_foreign_key *foreign = option || spelling ? NULL : ebb_foreign_find(key);
    if (option) {
        if (strcmp(option->key, key) == 0)
            EBB_TRY(ebb_str_addf(ctx, out, "the same"));
        else
            EBB_TRY(ebb_str_addf(ctx, out, "`%s`", option->key));
        return add_values(ctx, out, option->key);
    }
    if (spelling) {
        EBB_TRY(ebb_help_spelling(ctx, out, spelling));
        if (!spelling->refusal) return EBB_OK;
        EBB_TRY(ebb_str_addf(ctx, out, "; else refused: "));
        return ebb_help_cell(ctx, out, spelling->refusal);
    }
    if (!foreign)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "key '%s' of another project is known nowhere", key);
    EBB_TRY(ebb_str_addf(ctx, out, foreign->refused ? "refused: " : "not used: "));
    return ebb_help_cell(ctx, out, foreign->text);
}

enum ebb_status ebb_help_project(struct ebb_ctx *ctx, const struct ebb_project *project,
                                 struct ebb_str *out)
{
    char key[EBB_WORD_BYTES];
    EBB_TRY(ebb_str_addf(ctx, out, "| %s | here |\n| --- | --- |\n", project->title));
    for (int i = 0; ebb_option_word(project->keys, i, key, sizeof key); i++) {
        EBB_TRY(ebb_str_addf(ctx, out, "| `%s` | ", key));
        EBB_TRY(add_meaning(ctx, out, key));
        EBB_TRY(ebb_str_addf(ctx, out, " |\n"));
    }
    return EBB_OK;
}
