/* Everything a user can set, as one struct: recipe/options_table.c says what each field is
 * called, takes and means.
 *
 * Commands share the struct; a command's own keys are the rows that carry its bit. Strings and
 * trees are owned by the options they were read with (recipe/options.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_KEYS_H
#define EBB_RECIPE_KEYS_H

#include "base/yaml.h"
#include "plan/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, command, what follows it, one line) */
#define EBB_COMMAND_LIST(X)                                                                        \
    X(SFT, "sft", EBB_USAGE_CONFIG, "fine-tune a model on examples (LoRA or every weight)")        \
    X(KD, "kd", EBB_USAGE_CONFIG,                                                                  \
      "distil a teacher into a student, or save what the teacher says; also 'ebb "                 \
      "distill'")                                                                                  \
    X(DPO, "dpo", EBB_USAGE_CONFIG,                                                                \
      "train on preferences: DPO, IPO, hinge, ORPO, SimPO, KTO; also 'ebb kto'")                   \
    X(PLAN, "plan", EBB_USAGE_CONFIG, "say what a training run would need, without running it")    \
    X(BENCH, "bench", EBB_USAGE_CONFIG,                                                            \
      "measure memory and speed of training over lengths or budgets, and draw them")               \
    X(PROBE, "probe", EBB_USAGE_CONFIG, "measure what work costs on this machine, and keep it")    \
    X(DATA, "data", EBB_USAGE_CONFIG, "show what becomes of a data set: samples, marks, lengths")  \
    X(EVAL, "eval", EBB_USAGE_CONFIG, "loss of a data set, with or without an adapter")            \
    X(GENERATE, "generate", EBB_USAGE_CONFIG, "continue a prompt")                                 \
    X(CHAT, "chat", EBB_USAGE_CONFIG, "talk to a model through its chat template")                 \
    X(MERGE, "merge", EBB_USAGE_CONFIG, "fold an adapter into the weights")                        \
    X(INIT, "init", EBB_USAGE_INIT, "make a model directory with random weights")                  \
    X(TOKENIZE, "tokenize", EBB_USAGE_MODEL, "turn lines of text into token ids, or back")
#define EBB_USAGE_CONFIG "[CONFIG.yaml] [key=value | --key value ...]"
#define EBB_USAGE_INIT   "CONFIG.json|SHAPE OUT_DIR [key=value | --key value ...]"
#define EBB_USAGE_MODEL  "MODEL_DIR [key=value | --key value ...]"

enum ebb_command {
#define EBB_COMMAND_ENUM(name, text, usage, line) EBB_COMMAND_##name,
    EBB_COMMAND_LIST(EBB_COMMAND_ENUM)
#undef EBB_COMMAND_ENUM
        EBB_COMMAND_COUNT
};

/* Bits of those that train. */
#define EBB_TRAINING_COMMANDS (1u << EBB_COMMAND_SFT | 1u << EBB_COMMAND_KD | 1u << EBB_COMMAND_DPO)

/* "20GiB" or "80%". Both 0: none given. */
struct ebb_amount {
    int64_t bytes;
    double percent;
};

/* Values of choices, in the order in which options_table.c lists them. */
enum ebb_dtype_key { EBB_DTYPE_KEY_AUTO, EBB_DTYPE_KEY_FLOAT32, EBB_DTYPE_KEY_BFLOAT16 };
enum ebb_device_key { EBB_DEVICE_KEY_AUTO, EBB_DEVICE_KEY_CPU, EBB_DEVICE_KEY_CUDA };
enum ebb_optim_key { EBB_OPTIM_KEY_ADAMW, EBB_OPTIM_KEY_SGD };
enum ebb_strategy_key { EBB_STRATEGY_KEY_NO, EBB_STRATEGY_KEY_STEPS, EBB_STRATEGY_KEY_EPOCH };
enum ebb_tier_key { EBB_TIER_KEY_AUTO, EBB_TIER_KEY_FALSE, EBB_TIER_KEY_CPU };
enum ebb_color_key { EBB_COLOR_KEY_AUTO, EBB_COLOR_KEY_ALWAYS, EBB_COLOR_KEY_NEVER };
enum ebb_data_key { EBB_DATA_KEY_AUTO, EBB_DATA_KEY_RANDOM };
/* As enum ebb_auto of breadth-first (plan/plan.h). */
enum ebb_order_key { EBB_ORDER_KEY_AUTO, EBB_ORDER_KEY_DEPTH_FIRST, EBB_ORDER_KEY_BREADTH_FIRST };
enum ebb_recipe_key { EBB_RECIPE_KEY_SFT, EBB_RECIPE_KEY_KD, EBB_RECIPE_KEY_DPO };
enum ebb_loss_type_key {
    EBB_LOSS_TYPE_KEY_AUTO,
    EBB_LOSS_TYPE_KEY_FIRST
}; /* enum ebb_preference */
enum ebb_teacher_dtype_key { EBB_TEACHER_DTYPE_KEY_BFLOAT16, EBB_TEACHER_DTYPE_KEY_FLOAT32 };

/* Numbers whose default is "auto" hold EBB_AUTO_INT or NaN then. */
enum { EBB_AUTO_INT = -1 };
/* max_length of `ebb plan`: as long as it fits. */
enum { EBB_LONGEST = -2 };

/* Tokens of a document, at least, in packed rows that no data set fills: they have room for so
 * many. */
enum { EBB_ASSUMED_DOC_LEAST = 16 };

struct ebb_config {
    /* model */
    char *model_name_or_path;
    char *adapter_name_or_path;
    int dtype;      /* enum ebb_dtype_key */
    int save_dtype; /* enum ebb_dtype_key */
    /* data */
    char *dataset_name;
    struct ebb_yaml *datasets;
    char *dataset_train_split;
    char *eval_dataset;
    char *dataset_test_split;
    double validation_split;
    char *dataset_format;
    char *dataset_text_field;
    struct ebb_yaml *dataset_columns, *dataset_roles;
    int64_t dataset_max_samples;
    int64_t max_bad_records;
    char *dataset_cache; /* "auto", "false" or a directory */
    int64_t max_length;  /* or EBB_AUTO_INT, EBB_LONGEST */
    int overlong;        /* enum ebb_overlong */
    int truncation_side; /* enum ebb_truncation_side */
    bool packing;
    int packing_strategy; /* enum ebb_packing_strategy */
    bool shuffle;
    bool group_by_length;
    int completion_only_loss; /* enum ebb_auto */
    int assistant_only_loss;  /* enum ebb_auto */
    bool last_turn_only_loss;
    char *chat_template; /* "auto", a built-in name or a path */
    struct ebb_yaml *chat_template_kwargs;
    /* data */
    int recipe;           /* enum ebb_recipe_key */
    int64_t show_samples; /* at most; without records */
    char *records;        /* numbers separated by commas; NULL: spread over the set */
    int color;            /* enum ebb_color_key */
    /* training */
    char *output_dir;
    bool overwrite_output_dir;
    int64_t per_device_train_batch_size;
    int64_t per_device_eval_batch_size; /* or EBB_AUTO_INT */
    int64_t gradient_accumulation_steps;
    double num_train_epochs;
    int64_t max_steps; /* 0: by epochs */
    int64_t seed;
    int64_t logging_steps;
    char *report_to;   /* names separated by commas */
    char *logging_dir; /* NULL: in output_dir */
    /* optimizer */
    int optim;             /* enum ebb_optim_key */
    double learning_rate;  /* or NaN */
    int lr_scheduler_type; /* enum ebb_schedule */
    int64_t warmup_steps;
    double warmup_ratio;
    double decay_ratio;
    double weight_decay;
    double adam_beta1, adam_beta2, adam_epsilon;
    double momentum;
    double max_grad_norm;
    bool stochastic_rounding;
    /* LoRA */
    bool use_peft;
    int64_t lora_r;
    double lora_alpha;
    double lora_dropout;
    char *lora_target_modules; /* "all-linear" or names separated by commas */
    bool use_rslora;
    /* distillation */
    char *teacher_model_name_or_path;
    char *teacher_logits; /* a directory of save_teacher; NULL: none */
    char *save_teacher;   /* NULL: train */
    int64_t teacher_top_k;
    int teacher_dtype; /* enum ebb_teacher_dtype_key */
    int kd_loss;       /* enum ebb_divergence */
    double kd_ratio;
    double beta; /* or NaN; of distillation and of preferences */
    bool kd_scale_t2;
    /* preferences */
    int loss_type; /* enum ebb_loss_type_key */
    double label_smoothing;
    double simpo_gamma;
    double desirable_weight, undesirable_weight;
    char *ref_model_name_or_path;
    bool precompute_ref_log_probs;
    /* memory */
    struct ebb_amount memory_budget;
    struct ebb_amount host_memory_budget;
    struct ebb_amount pinned_memory_budget;
    int gradient_checkpointing; /* enum ebb_auto */
    int activation_offloading;  /* enum ebb_auto */
    bool activation_offloading_use_streams;
    struct ebb_yaml *activations;
    int offload_params;              /* enum ebb_tier_key */
    int offload_optimizer;           /* enum ebb_tier_key */
    int gradient_accumulation_order; /* enum ebb_order_key */
    /* evaluation and checkpoints */
    int eval_strategy; /* enum ebb_strategy_key */
    int64_t eval_steps;
    int save_strategy; /* enum ebb_strategy_key */
    int64_t save_steps;
    int64_t save_total_limit; /* 0: keep all */
    bool load_best_model_at_end;
    int64_t early_stopping_patience; /* 0: off */
    double early_stopping_threshold;
    char *resume_from_checkpoint;  /* "false", "true" or a path */
    struct ebb_yaml *eval_prompts; /* texts, or one text: a file */
    int64_t eval_max_new_tokens;
    /* machine */
    int device; /* enum ebb_device_key */
    int64_t threads;
    bool deterministic;
    bool profile;
    int attn_implementation; /* enum ebb_attention_choice */
    /* plan */
    char *gpu;          /* one that is not here; NULL: this machine */
    int64_t doc_length; /* of packed documents; 0: max_length */
    /* plan and bench: "no", "memory"; what is measured */
    char *sweep;
    /* bench */
    char *modes, *budgets, *models; /* names and sizes separated by commas; NULL: none */
    int data;                       /* enum ebb_data_key */
    int64_t steps;
    /* output of plan, bench, data, eval and tokenize */
    bool json;
    /* generation */
    char *prompt;
    bool prompt_lines;
    int64_t max_new_tokens; /* or EBB_AUTO_INT */
    double temperature;     /* of generation and of distillation */
    double top_p;
    int64_t top_k;
    double repetition_penalty;
    struct ebb_yaml *stop; /* texts */
    /* chat */
    char *system_prompt;
    bool verbose;
    /* init */
    char *config;
    char *tokenizer;
    /* tokenize */
    bool decode;
    bool add_special_tokens;
    bool skip_special_tokens;
};

#ifdef __cplusplus
}
#endif
#endif
