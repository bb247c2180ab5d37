/* The option table: one row a key. A new key is a field in keys.h and a row here; parser,
 * checks, help and docs/CONFIG.md follow.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/options.h"

#include <stddef.h>

#include "op/distill.h"

#define KD       (1u << EBB_COMMAND_KD)
#define DPO      (1u << EBB_COMMAND_DPO)
#define FIT      EBB_TRAINING_COMMANDS
#define PLAN     (1u << EBB_COMMAND_PLAN)
#define PROBE    (1u << EBB_COMMAND_PROBE)
#define DATA     (1u << EBB_COMMAND_DATA)
#define EVAL     (1u << EBB_COMMAND_EVAL)
#define GENERATE (1u << EBB_COMMAND_GENERATE)
#define MERGE    (1u << EBB_COMMAND_MERGE)
#define INIT     (1u << EBB_COMMAND_INIT)
#define TOKENIZE (1u << EBB_COMMAND_TOKENIZE)
#define CHAT     (1u << EBB_COMMAND_CHAT)
#define BENCH    (1u << EBB_COMMAND_BENCH)
#define STEP     (FIT | BENCH) /* takes optimizer steps */
#define PLANS    (PLAN | BENCH) /* of any recipe */
#define TRAIN    (FIT | PLAN | BENCH)
#define RUN      (FIT | PLAN | BENCH | EVAL | GENERATE | CHAT)
#define READ     (FIT | PLAN | BENCH | EVAL | DATA) /* reads a data set */
#define ROWS     (FIT | PLAN | EVAL | DATA)         /* and makes rows of samples as they are */

#define KEY(name) .key = #name, .offset = offsetof(struct ebb_config, name)

static const struct ebb_option table[] = {
    /* ---- model ------------------------------------------------------------------------------- */
    {KEY(model_name_or_path), .group = EBB_GROUP_MODEL, .type = EBB_OPTION_STRING,
     .commands = RUN | MERGE | TOKENIZE | DATA, .required = FIT | PLAN | TOKENIZE,
     .aliases = "model model_name base_model base_model_name_or_path "
                "pretrained_model_name_or_path checkpointer.checkpoint_dir",
     .help = "The model: a directory with config.json, safetensors and tokenizer.json as "
             "transformers saves them, or a Hub id that is in the local Hugging Face cache. "
             "Where it names a directory with an adapter, the adapter's base model is loaded and "
             "the adapter on top. 'ebb tokenize' reads its tokenizer files only, 'ebb data' also "
             "config.json and the chat template."},
    {KEY(adapter_name_or_path), .group = EBB_GROUP_MODEL, .type = EBB_OPTION_STRING,
     .commands = RUN | MERGE | DATA,
     .aliases = "adapter_path lora_model_dir peft_model_name_or_path",
     .help = "A directory with a LoRA adapter in PEFT's format. Training goes on from it with "
             "its rank and targets; evaluation and generation apply it; 'ebb merge' folds it "
             "into the weights."},
    {KEY(dtype), .group = EBB_GROUP_MODEL, .type = EBB_OPTION_CHOICE,
     .commands = RUN | PROBE | INIT, .text = "auto",
     .choices = "auto|float32=fp32=f32|bfloat16=bf16",
     .aliases = "torch_dtype precision",
     .help = "How weights and activations are stored. auto: float32 for a model saved in "
             "float32, bfloat16 otherwise (float32 in 'ebb init', bfloat16 in 'ebb probe'). Sums, "
             "norms, the loss and optimizer state are float32 in either case."},
    {KEY(save_dtype), .group = EBB_GROUP_MODEL, .type = EBB_OPTION_CHOICE, .commands = FIT | MERGE,
     .text = "auto", .choices = "auto|float32=fp32=f32|bfloat16=bf16",
     .help = "The type of saved weights. auto: that of the model's own files. Saving float32 "
             "keeps what bfloat16 would round away, at twice the size. Adapters are always saved "
             "in float32."},

    /* ---- init -------------------------------------------------------------------------------- */
    {KEY(config), .group = EBB_GROUP_MODEL, .type = EBB_OPTION_STRING, .commands = INIT,
     .required = INIT,
     .help = "The model's shape: a config.json as transformers writes it, or the name of a "
             "built-in shape ('ebb configs' lists them)."},
    {KEY(tokenizer), .group = EBB_GROUP_MODEL, .type = EBB_OPTION_STRING, .commands = INIT,
     .aliases = "tokenizer_name_or_path",
     .help = "A directory whose tokenizer files are copied, or bytes: a tokenizer with one token "
             "a byte, which needs no download. A built-in shape takes a directory's vocabulary "
             "size. Without it none is written."},

    /* ---- tokenize ---------------------------------------------------------------------------- */
    {KEY(decode), .group = EBB_GROUP_DATA, .type = EBB_OPTION_BOOL, .commands = TOKENIZE,
     .text = "false",
     .help = "Turns lines of ids into text instead. A text may have line ends of its own; with "
             "'json' it is one line in any case."},
    {KEY(add_special_tokens), .group = EBB_GROUP_DATA, .type = EBB_OPTION_BOOL,
     .commands = TOKENIZE, .text = "true",
     .help = "Puts what the tokenizer's post-processor puts before and after a text, such as its "
             "BOS token."},
    {KEY(skip_special_tokens), .group = EBB_GROUP_DATA, .type = EBB_OPTION_BOOL,
     .commands = TOKENIZE, .text = "true",
     .help = "Leaves special tokens out of decoded text. false shows them."},

    /* ---- data -------------------------------------------------------------------------------- */
    {KEY(dataset_name), .group = EBB_GROUP_DATA, .type = EBB_OPTION_STRING, .commands = READ,
     .aliases = "dataset data_path train_file dataset_path dataset.source dataset.data_files",
     .help = "The data: a JSON, JSON lines, CSV or TSV file (also .gz and .zst), or a directory of "
             "them. 'ebb plan' works without: it then takes max_length and the batch size as they "
             "are. docs/DATA.md says what files and records may look like."},
    {KEY(datasets), .group = EBB_GROUP_DATA, .type = EBB_OPTION_YAML, .commands = READ,
     .unit = "list of paths or mappings",
     .help = "Several data sets as one, instead of dataset_name: a list of paths, or of mappings "
             "with path and, where wanted, split, format, text_field, columns, roles and weight. "
             "What an item does not say is as dataset_train_split, dataset_format, "
             "dataset_text_field, dataset_columns and dataset_roles have it. weight says how "
             "often an epoch has each sample: [{path: a.jsonl}, {path: b.jsonl, format: alpaca, "
             "weight: 2.5}]."},
    {KEY(dataset_train_split), .group = EBB_GROUP_DATA, .type = EBB_OPTION_STRING, .commands = READ,
     .text = "train", .aliases = "dataset.split split",
     .help = "Which part of the data set is trained on: a split's name, or a slice such as "
             "train[:90%] or train[100:200]. 'ebb eval' measures it where no validation data is "
             "named."},
    {KEY(eval_dataset), .group = EBB_GROUP_DATA, .type = EBB_OPTION_STRING,
     .commands = FIT | PLAN | EVAL,
     .aliases = "validation_file eval_file dataset_val dataset_val.source eval_dataset_name",
     .help = "A data set for validation, read as dataset_name is. 'ebb eval' takes it before "
             "dataset_name."},
    {KEY(dataset_test_split), .group = EBB_GROUP_DATA, .type = EBB_OPTION_STRING,
     .commands = FIT | PLAN | EVAL, .aliases = "dataset_val.split eval_split",
     .help = "Which part of eval_dataset (or, without it, of dataset_name) is for validation: a "
             "split's name or a slice, such as test or train[90%:]."},
    {KEY(validation_split), .group = EBB_GROUP_DATA, .type = EBB_OPTION_FLOAT, .commands = ROWS,
     .text = "0", .low = 0, .high = 0.9, .unit = "share of the records",
     .aliases = "val_set_size val_size",
     .help = "Keeps the last share of the records of dataset_name for validation, in whole "
             "percents: 0.1 trains on the first 90 % and validates on the rest, which is also "
             "what 'ebb eval' then measures. 0: none."},
    {KEY(dataset_format), .group = EBB_GROUP_DATA, .type = EBB_OPTION_STRING, .commands = READ,
     .text = "auto", .aliases = "dataset_type",
     .help = "What a record's keys mean: messages, sharegpt, preference, unpaired, "
             "prompt_completion, alpaca, alpaca_chat, tokenized or text. auto: by the keys of the "
             "first record (alpaca_chat, which has alpaca's keys and is rendered by the chat "
             "template, only by name)."},
    {KEY(dataset_text_field), .group = EBB_GROUP_DATA, .type = EBB_OPTION_STRING, .commands = READ,
     .text = "text", .aliases = "text_field text_column dataset.column",
     .help = "The key that holds the text in records of format text."},
    {KEY(dataset_columns), .group = EBB_GROUP_DATA, .type = EBB_OPTION_YAML, .commands = READ,
     .unit = "mapping of names", .aliases = "dataset.column_map",
     .help = "Other names of a format's keys: with {prompt: question, completion: answer} a "
             "record's key question is read as prompt and answer as completion. Works inside "
             "messages too: {role: speaker, content: text}."},
    {KEY(dataset_roles), .group = EBB_GROUP_DATA, .type = EBB_OPTION_YAML, .commands = READ,
     .unit = "mapping of names",
     .help = "Other names of the roles in messages: {user: customer, assistant: [agent, bot]}."},
    {KEY(dataset_max_samples), .group = EBB_GROUP_DATA, .type = EBB_OPTION_INT, .commands = READ,
     .text = "0", .low = 0, .high = 1e12, .unit = "records",
     .aliases = "max_samples max_train_samples",
     .help =
         "Takes only the first so many records of each data set: for trying things out. 0: all."},
    {KEY(max_bad_records), .group = EBB_GROUP_DATA, .type = EBB_OPTION_INT, .commands = READ,
     .text = "0", .low = 0, .high = 1e12, .unit = "records",
     .help = "So many records that cannot be used (broken JSON, a key missing, a chat that the "
             "template refuses) are left out with a warning before one more stops the run. 'ebb "
             "data' shows why each was refused. What cannot be read past (a broken array in a JSON "
             "file, an open quote in CSV) stops the run in any case. 0: the first one stops the "
             "run."},
    {KEY(dataset_cache), .group = EBB_GROUP_DATA, .type = EBB_OPTION_STRING, .commands = READ,
     .text = "auto", .aliases = "dataset_prepared_path",
     .help = "Where tokenized data sets are kept, so that the next run with the same files and "
             "keys need not tokenize again: a directory, or false for nowhere. auto: "
             "ebb/datasets in $XDG_CACHE_HOME, which is ~/.cache where it is not set."},
    {KEY(max_length), .group = EBB_GROUP_DATA, .type = EBB_OPTION_INT, .commands = READ | CHAT,
     .text = "auto", .automatic = true, .bare = "longest", .low = 2, .high = 1e8, .unit = "tokens",
     .aliases = "max_seq_length max_seq_len seq_length seq_len sequence_len sequence_length "
                "cutoff_len model_max_length block_size tokenizer.max_seq_len",
     .help = "The longest sample in tokens, and the size of a bin with packing. auto: the "
             "longest sample there is, at most what the model has positions for. A longer sample "
             "stops the run unless overlong or packing_strategy says otherwise: nothing is cut "
             "silently. In 'ebb chat' the room for the whole conversation; auto: as much as the "
             "model takes and memory allows. In 'ebb plan' also longest (or --max-length with "
             "nothing behind it): the longest row that memory allows."},
    {KEY(overlong), .group = EBB_GROUP_DATA, .type = EBB_OPTION_CHOICE, .commands = ROWS,
     .text = "error", .choices = "error=raise|drop|truncate", .aliases = "excess_length_strategy",
     .help = "What happens to samples above max_length: error stops before training and names "
             "the first, drop leaves them out, truncate keeps max_length of their tokens "
             "(truncation_side says which). Both say how many there were."},
    {KEY(truncation_side), .group = EBB_GROUP_DATA, .type = EBB_OPTION_CHOICE, .commands = ROWS,
     .text = "right", .choices = "right|left",
     .aliases = "truncation_type tokenizer.truncation_type",
     .help = "Which end overlong: truncate cuts off. right keeps a sample's beginning and loses "
             "its end with EOS, left keeps its end."},
    {KEY(packing), .group = EBB_GROUP_DATA, .type = EBB_OPTION_BOOL, .commands = ROWS,
     .text = "false", .aliases = "sample_packing pack dataset.packed",
     .help = "Puts several samples into one row of max_length tokens. They never see each other: "
             "attention and labels stop at each boundary, and positions begin again. Worth it "
             "where samples are much shorter than the row."},
    {KEY(packing_strategy), .group = EBB_GROUP_DATA, .type = EBB_OPTION_CHOICE, .commands = ROWS,
     .text = "bfd", .choices = "bfd|bfd_split|wrapped",
     .help = "How packing fills rows. bfd: whole samples, from the longest down, each into the "
             "fullest row that has room. bfd_split: samples above max_length are split into rows "
             "of their own and a rest first, so that no token is lost. wrapped: samples end to "
             "end in their order, cut every max_length tokens. Pieces of a sample do not see each "
             "other. 'ebb data' shows how full the rows get with each."},
    {KEY(shuffle), .group = EBB_GROUP_DATA, .type = EBB_OPTION_BOOL, .commands = FIT,
     .text = "true", .aliases = "shuffle_dataset",
     .help = "A new order of the samples in each epoch, made from the seed. false: as they stand "
             "in the files."},
    {KEY(group_by_length), .group = EBB_GROUP_DATA, .type = EBB_OPTION_BOOL,
     .commands = FIT | PLAN | DATA, .text = "false",
     .help = "Puts samples of about the same length into one micro-batch: the order stays random "
             "in the large, and micro-batches get more alike in themselves and less alike one to "
             "another. The longest sample comes first, so that what does not fit shows at once."},
    {KEY(completion_only_loss), .group = EBB_GROUP_DATA, .type = EBB_OPTION_AUTO_BOOL,
     .commands = ROWS, .text = "auto",
     .help = "Whether only completions are trained, not prompts. auto: where the format has "
             "prompts. true asks for them; of several data sets, for one that has them."},
    {KEY(assistant_only_loss), .group = EBB_GROUP_DATA, .type = EBB_OPTION_AUTO_BOOL,
     .commands = ROWS, .text = "auto",
     .help = "Whether of a chat only what the assistant says is trained, with the token that ends "
             "its turn. auto: yes. false trains the whole conversation. A message's train: false "
             "takes that one out. true asks for chats; of several data sets, for one of chats."},
    {KEY(last_turn_only_loss), .group = EBB_GROUP_DATA, .type = EBB_OPTION_BOOL, .commands = ROWS,
     .text = "false", .aliases = "mask_history",
     .help = "Of the assistant's turns only the last one is trained. Asks for chats; of several "
             "data sets, for one of chats."},
    {KEY(chat_template), .group = EBB_GROUP_DATA, .type = EBB_OPTION_STRING,
     .commands = READ | CHAT, .text = "auto", .aliases = "chat_template_path",
     .help = "How a chat becomes text. auto: the model's own template. Or one that Ebb carries: "
             "alpaca, chatml, llama2, llama3 or zephyr ('ebb configs' lists them). Or a file "
             "(.jinja, or .json with the key chat_template), or the directory of another model; "
             "./llama3 is a directory of that name. A run writes the template that was named "
             "here beside its result as chat_template.jinja."},
    {KEY(chat_template_kwargs), .group = EBB_GROUP_DATA, .type = EBB_OPTION_YAML,
     .commands = READ | CHAT, .unit = "mapping of variables",
     .help = "Variables for the chat template, such as {enable_thinking: false}. true, false, null "
             "and numbers are what they look like; quoted they are text."},

    /* ---- data: what is shown ----------------------------------------------------------------- */
    {KEY(recipe), .group = EBB_GROUP_DATA, .type = EBB_OPTION_CHOICE, .commands = DATA | PLANS,
     .text = "sft", .choices = "sft|kd|dpo",
     .help = "What the data, the plan or the benchmark is for. sft and kd show what 'ebb sft' and "
             "'ebb kd' would train on; dpo shows preference pairs with both sides, or answers with "
             "a verdict. In a file of 'ebb kd' or 'ebb dpo' this may say which, so that the same "
             "file serves 'ebb plan' and 'ebb bench'."},
    {KEY(show_samples), .group = EBB_GROUP_DATA, .type = EBB_OPTION_INT, .commands = DATA,
     .text = "3", .low = 0, .high = 1e6, .unit = "samples", .aliases = "samples",
     .help = "How many samples are shown, spread over the set: text with special tokens, and "
             "marked what is trained. A character that several tokens make up is shown with the "
             "last of them. Control characters are written as \\x1b."},
    {KEY(records), .group = EBB_GROUP_DATA, .type = EBB_OPTION_LIST, .commands = DATA,
     .help = "Which records are shown instead, by their numbers in the file: 1,5. With several "
             "data sets: those records of each."},
    {KEY(color), .group = EBB_GROUP_DATA, .type = EBB_OPTION_CHOICE, .commands = DATA,
     .text = "auto", .choices = "auto|always|never", .aliases = "colour",
     .help = "How what is trained is marked: with colour, or with the brackets ⟦ and ⟧ around "
             "it. auto: colour on a terminal, unless NO_COLOR is set."},

    /* ---- training ---------------------------------------------------------------------------- */
    {KEY(output_dir), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_STRING,
     .commands = TRAIN | MERGE | INIT, .required = (1u << EBB_COMMAND_SFT) | DPO | MERGE | INIT,
     .aliases = "out_dir output output_directory",
     .help = "The directory for the result; for training also checkpoints, metrics.jsonl and "
             "run.json. It is made where it does not exist. One that holds another run is refused: "
             "see resume_from_checkpoint and overwrite_output_dir. 'ebb bench' takes it from the "
             "command line alone, since that of a file is a training run's, and is else "
             "bench-MODEL here; what is there is gone on with."},
    {KEY(overwrite_output_dir), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_BOOL,
     .commands = STEP, .text = "false", .aliases = "overwrite",
     .help = "Removes checkpoints, metrics and results of an earlier run in output_dir before "
             "starting. In 'ebb bench' (on the command line) what was measured there."},
    {KEY(per_device_train_batch_size), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_INT,
     .commands = TRAIN | DATA, .text = "1", .low = 1, .high = 65536, .unit = "samples",
     .aliases = "batch_size micro_batch_size train_batch_size train_micro_batch_size_per_gpu "
                "per_gpu_train_batch_size",
     .help = "Samples (with packing: rows) of one micro-batch. More use the machine better and "
             "need more memory. The batch that an optimizer step sees is this times "
             "gradient_accumulation_steps."},
    {KEY(per_device_eval_batch_size), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_INT,
     .commands = FIT | PLAN | EVAL, .text = "auto", .automatic = true, .low = 1, .high = 65536,
     .unit = "samples", .aliases = "batch_size_val eval_batch_size per_gpu_eval_batch_size",
     .help = "Samples of one micro-batch in evaluation. auto: as in training (1 in 'ebb eval'), "
             "so that evaluation never needs more memory than training."},
    {KEY(gradient_accumulation_steps), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_INT,
     .commands = TRAIN, .text = "1", .low = 1, .high = 65536, .unit = "micro-batches",
     .aliases = "grad_accum_steps accumulation_steps",
     .help = "Micro-batches of one optimizer step. Raises the batch without raising memory. The "
             "loss is divided by the labels of the whole step, so the result is that of one "
             "large batch."},
    {KEY(num_train_epochs), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_FLOAT, .commands = FIT,
     .text = "3", .low = 0, .above = true, .high = 1e6, .unit = "epochs",
     .aliases = "num_epochs epochs n_epochs max_epochs",
     .help = "How often the data is gone through. A fraction stops within an epoch."},
    {KEY(max_steps), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_INT, .commands = FIT,
     .text = "0", .low = -1, .high = 1e12, .unit = "optimizer steps",
     .aliases = "max_train_steps num_train_steps",
     .help = "Ends the run after so many optimizer steps instead of after num_train_epochs. 0 or "
             "-1: by epochs."},
    {KEY(seed), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_INT,
     .commands = TRAIN | GENERATE | CHAT | INIT | DATA, .text = "42", .low = 0,
     .high = 9007199254740991.0, .aliases = "random_seed random_state data_seed",
     .help = "Decides the order of the data and what a weight draws of it, starts of adapters and "
             "weights, dropout and sampling. The same seed gives the same run, bit for bit, on "
             "the same machine."},
    {KEY(logging_steps), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_INT, .commands = FIT,
     .text = "1", .low = 1, .high = 1e9, .unit = "optimizer steps", .aliases = "log_every_n_steps",
     .help = "How often a line with the loss is printed, which is the mean over the trained tokens "
             "of these steps; the first step has a line too, and the line at the end of a run has "
             "the last mean. metrics.jsonl has every step in any case."},
    {KEY(report_to), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_LIST, .commands = FIT,
     .text = "none",
     .help = "Who gets the numbers of metrics.jsonl as well: none, tensorboard, wandb, all, or a "
             "list. tensorboard: event files in logging_dir, which 'tensorboard --logdir "
             "OUTPUT_DIR' draws, each step by transformers' names (train/loss, eval/loss). wandb: "
             "Ebb only says how tools/wandb_tail.py sends them to Weights & Biases."},
    {KEY(logging_dir), .group = EBB_GROUP_TRAINING, .type = EBB_OPTION_STRING, .commands = FIT,
     .aliases = "metric_logger.log_dir",
     .help = "Where report_to: tensorboard puts event files. Without it they are in 'runs' in "
             "output_dir. A resumed run adds a file, and TensorBoard draws all files of the "
             "directory as one run."},

    /* ---- optimizer --------------------------------------------------------------------------- */
    {KEY(learning_rate), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = STEP,
     .text = "auto", .automatic = true, .low = 0, .above = true, .high = 100,
     .aliases = "lr optimizer.lr",
     .help = "The highest learning rate of the schedule. auto: 2e-4 for LoRA, 2e-5 for every "
             "weight, and in 'ebb dpo' 5e-6 and 5e-7; the run prints it. Lower it where the loss "
             "jumps, raise it where it hardly falls."},
    {KEY(lr_scheduler_type), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_CHOICE,
     .commands = FIT, .text = "linear",
     .choices = "constant|constant_with_warmup|linear|cosine|warmup_stable_decay=wsd",
     .aliases = "lr_scheduler scheduler_type",
     .help = "How the learning rate goes over the run: linear or cosine down to 0, constant, "
             "constant after a warmup, or warmup, constant, then a linear decay over the last "
             "decay_ratio of the steps."},
    {KEY(warmup_steps), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_INT, .commands = FIT,
     .text = "0", .low = 0, .high = 1e9, .unit = "optimizer steps",
     .aliases = "num_warmup_steps lr_scheduler.num_warmup_steps lr_warmup_steps",
     .help = "The learning rate climbs from 0 over so many optimizer steps. Steadies the start "
             "of training."},
    {KEY(warmup_ratio), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = FIT,
     .text = "0", .low = 0, .high = 1, .unit = "share of all steps", .aliases = "lr_warmup_ratio",
     .help = "The same as a share of all steps, rounded up. Set this or warmup_steps, not both."},
    {KEY(decay_ratio), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = FIT,
     .text = "0.1", .low = 0, .high = 1, .unit = "share of all steps", .aliases = "lr_decay_ratio",
     .help = "The last part of a warmup_stable_decay schedule, in which the learning rate falls."},
    {KEY(optim), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_CHOICE, .commands = TRAIN,
     .text = "adamw",
     .choices = "adamw=adamw_torch=adamw_torch_fused=adamw_hf=adamw_apex_fused=torch.optim.AdamW|"
                "sgd=torch.optim.SGD",
     .aliases = "optimizer optimizer._component_",
     .help = "The optimizer. adamw keeps two float32 numbers for every trained one, sgd one with "
             "momentum and none without: for training every weight where AdamW's state does not "
             "fit."},
    {KEY(weight_decay), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = STEP,
     .text = "0", .low = 0, .high = 100, .aliases = "optimizer.weight_decay",
     .help = "Pulls weights towards zero by learning rate times this in each step. Norms and "
             "biases are left out."},
    {KEY(adam_beta1), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = STEP,
     .text = "0.9", .low = 0, .high = 0.9999999,
     .help = "AdamW: how slowly the mean of the gradients changes."},
    {KEY(adam_beta2), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = STEP,
     .text = "0.999", .low = 0, .high = 0.9999999,
     .help = "AdamW: how slowly the mean of their squares changes. 0.95 follows changes faster."},
    {KEY(adam_epsilon), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = STEP,
     .text = "1e-8", .low = 0, .above = true, .high = 1, .aliases = "adam_eps",
     .help = "AdamW: added to the root of that mean, so that tiny gradients do not become large "
             "steps."},
    {KEY(momentum), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = TRAIN,
     .text = "0", .low = 0, .high = 0.9999999, .aliases = "optimizer.momentum",
     .help = "SGD: how much of the last step goes on. 0.9 is usual; 0 needs no state."},
    {KEY(max_grad_norm), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_FLOAT, .commands = STEP,
     .text = "1", .low = 0, .high = 1e9, .aliases = "clip_grad_norm gradient_clipping grad_clip",
     .help = "Gradients whose norm is above this are scaled down to it. 0: never. The norm is "
             "printed in any case."},
    {KEY(stochastic_rounding), .group = EBB_GROUP_OPTIMIZER, .type = EBB_OPTION_BOOL,
     .commands = TRAIN, .text = "false",
     .help = "Trains bfloat16 weights without an exact float32 master: each update is rounded up "
             "or down at random, right on average. Saves 2 bytes a weight. Only for training "
             "every weight in bfloat16."},

    /* ---- LoRA -------------------------------------------------------------------------------- */
    {KEY(use_peft), .group = EBB_GROUP_LORA, .type = EBB_OPTION_BOOL, .commands = TRAIN,
     .text = "false", .aliases = "use_lora lora",
     .help = "Trains a LoRA adapter: two thin matrices beside each chosen weight, which itself "
             "stays as it is. Needs far less memory than training every weight, and the result "
             "is a small file."},
    {KEY(lora_r), .group = EBB_GROUP_LORA, .type = EBB_OPTION_INT, .commands = TRAIN, .text = "16",
     .low = 1, .high = 4096, .aliases = "lora_rank r peft_r model.lora_rank",
     .help = "The rank: width of the thin matrices. A higher one can learn more and costs memory "
             "and time in proportion."},
    {KEY(lora_alpha), .group = EBB_GROUP_LORA, .type = EBB_OPTION_FLOAT, .commands = TRAIN,
     .text = "32", .low = 0, .above = true, .high = 1e6, .aliases = "model.lora_alpha",
     .help = "The adapter's output is scaled by lora_alpha / lora_r (with use_rslora by "
             "lora_alpha / sqrt(lora_r))."},
    {KEY(lora_dropout), .group = EBB_GROUP_LORA, .type = EBB_OPTION_FLOAT, .commands = TRAIN,
     .text = "0", .low = 0, .high = 0.95, .aliases = "model.lora_dropout",
     .help = "The share of the adapter's inputs that are set to zero at random while training. "
             "Helps small data sets against overfitting."},
    {KEY(lora_target_modules), .group = EBB_GROUP_LORA, .type = EBB_OPTION_LIST, .commands = TRAIN,
     .text = "all-linear", .aliases = "lora_targets target_modules",
     .help = "Which weights get an adapter: all-linear (every matrix of the layers), or names "
             "such as q_proj,v_proj."},
    {KEY(use_rslora), .group = EBB_GROUP_LORA, .type = EBB_OPTION_BOOL, .commands = TRAIN,
     .text = "false", .aliases = "lora_use_rslora peft_use_rslora",
     .help = "Scales by lora_alpha / sqrt(lora_r), which keeps high ranks (64 and more) learning."},

    /* ---- distillation ------------------------------------------------------------------------ */
    {KEY(teacher_model_name_or_path), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_STRING,
     .commands = KD | PLANS, .aliases = "teacher teacher_model teacher_checkpointer.checkpoint_dir",
     .help = "The teacher: a model as model_name_or_path takes one, of any family, with the "
             "student's tokens (its table may be padded to another size). It is frozen, runs in "
             "the run's dtype, and its weights are in the plan."},
    {KEY(teacher_logits), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_STRING,
     .commands = KD | PLANS,
     .help = "A directory that save_teacher wrote for this data: the student learns from it, and "
             "no teacher is in memory. What the teacher's other tokens had together is one more "
             "class. Validation measures the cross-entropy then, for its data has no teacher."},
    {KEY(save_teacher), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_STRING, .commands = KD,
     .help = "Trains nothing: runs the teacher over the training data and writes, for each token "
             "that is trained, its likeliest next tokens and their log-probabilities at this "
             "temperature into this directory, for teacher_logits."},
    {KEY(teacher_top_k), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_INT, .commands = KD,
     .text = "64", .low = 1, .high = EBB_DISTILL_TOPK, .unit = "tokens",
     .help = "How many tokens save_teacher keeps of each place. More are closer to the whole "
             "teacher and take more disk: each takes 6 bytes (8 with teacher_dtype: float32)."},
    {KEY(teacher_dtype), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_CHOICE, .commands = KD,
     .text = "bfloat16", .choices = "bfloat16=bf16|float32=fp32=f32",
     .help = "How save_teacher stores log-probabilities. bfloat16 rounds each to a part in 500."},
    {KEY(kd_loss), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_CHOICE,
     .commands = KD | PLANS, .text = "forward_kl",
     .choices = "forward_kl=fkl|reverse_kl=rkl|jsd|symmetric_kl|skewed_forward_kl=skl|"
                "skewed_reverse_kl=srkl",
     .help = "How far the student q is from the teacher p, of each token. forward_kl: KL(p, q), "
             "which covers all that the teacher may say. reverse_kl: KL(q, p), which keeps to what "
             "it says most. jsd: beta KL(p, m) + (1 - beta) KL(q, m) with m = beta p + (1 - beta) "
             "q; as in TRL's GKD 0 stands for forward_kl and 1 for reverse_kl. symmetric_kl: beta "
             "KL(p, q) + (1 - beta) KL(q, p). skewed_forward_kl: KL(p, beta p + (1 - beta) q). "
             "skewed_reverse_kl: KL(q, (1 - beta) p + beta q)."},
    {KEY(kd_ratio), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_FLOAT,
     .commands = KD | PLANS, .text = "0.5", .low = 0, .high = 1,
     .help = "The teacher's share of the loss: (1 - kd_ratio) cross-entropy + kd_ratio kd_loss. 1 "
             "learns from the teacher alone. metrics.jsonl has both parts unweighted, as ce_loss "
             "and kd_loss."},
    {KEY(beta), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_FLOAT,
     .commands = KD | DPO | PLANS, .text = "auto", .automatic = true, .low = 0, .high = 1000,
     .aliases = "sym_kd_ratio kd_loss.sym_kd_ratio pref_beta rl_beta orpo_alpha loss.beta",
     .help = "Distillation: the weight in kd_loss, from 0 to 1, which says what it weighs: in "
             "symmetric_kl the share of KL(p, q) (torchtune's sym_kd_ratio), in jsd and the skewed "
             "ones what the mixture has of the other side (DistiLLM's alpha). auto: 0.5, and 0.1 "
             "for the skewed ones. Preferences: how strongly log-probabilities count, above 0; "
             "larger keeps the model closer to the reference. auto: 0.1, and 2 for simpo."},
    {KEY(kd_scale_t2), .group = EBB_GROUP_DISTILLATION, .type = EBB_OPTION_BOOL,
     .commands = KD | PLANS, .text = "false",
     .help = "Multiplies kd_loss by temperature squared, as Hinton's paper does, so that its "
             "gradient keeps its size when temperature changes. TRL and torchtune do not."},

    /* ---- preferences ------------------------------------------------------------------------- */
    {KEY(loss_type), .group = EBB_GROUP_PREFERENCES, .type = EBB_OPTION_CHOICE,
     .commands = DPO | PLANS, .text = "auto",
     .choices = "auto|sigmoid=dpo|ipo|hinge|orpo|simpo|kto",
     .aliases = "pref_loss",
     .help = "The loss. sigmoid: DPO. ipo, hinge: other shapes of it. orpo, simpo: without a "
             "reference. kto: of single answers that are good or bad; it also takes pairs. "
             "auto: sigmoid for pairs, kto for single answers. docs/PREFERENCES.md has the "
             "formulas."},
    {KEY(label_smoothing), .group = EBB_GROUP_PREFERENCES, .type = EBB_OPTION_FLOAT,
     .commands = DPO | PLANS, .text = "0", .low = 0, .high = 0.5,
     .aliases = "dpo_label_smoothing loss.label_smoothing",
     .help = "The share of pairs whose verdict may be wrong (cDPO). For sigmoid and simpo."},
    {KEY(simpo_gamma), .group = EBB_GROUP_PREFERENCES, .type = EBB_OPTION_FLOAT,
     .commands = DPO | PLANS, .text = "0.5", .low = 0, .high = 1000,
     .help = "Of simpo: the margin that the chosen answer shall have, beside beta times the "
             "difference of mean log-probabilities. SimPO's gamma_beta_ratio is simpo_gamma / "
             "beta."},
    {KEY(desirable_weight), .group = EBB_GROUP_PREFERENCES, .type = EBB_OPTION_FLOAT,
     .commands = DPO | PLANS, .text = "1", .low = 0, .high = 1000,
     .aliases = "kto_chosen_weight kto_desirable_weight",
     .help = "Of kto: the weight of good answers. The paper wants this weight times their number "
             "to be 1 to 4/3 of the same of bad ones."},
    {KEY(undesirable_weight), .group = EBB_GROUP_PREFERENCES, .type = EBB_OPTION_FLOAT,
     .commands = DPO | PLANS, .text = "1", .low = 0, .high = 1000,
     .aliases = "kto_rejected_weight kto_undesirable_weight",
     .help = "Of kto: the weight of bad answers."},
    {KEY(ref_model_name_or_path), .group = EBB_GROUP_PREFERENCES, .type = EBB_OPTION_STRING,
     .commands = DPO | PLANS, .aliases = "ref_model reference_model",
     .help = "The reference: a second model, frozen and in the plan. Without it the reference is "
             "what training starts from: with LoRA the same weights without the adapter, which "
             "take no memory; else a second copy of the model."},
    {KEY(precompute_ref_log_probs), .group = EBB_GROUP_PREFERENCES, .type = EBB_OPTION_BOOL,
     .commands = DPO | PLANS, .text = "false",
     .help = "Runs the reference once over the data before the first step and keeps its "
             "log-probabilities (4 bytes a trained token) in host memory, so that no step runs it "
             "and it takes no device memory then."},

    /* ---- memory ------------------------------------------------------------------------------ */
    {KEY(memory_budget), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_SIZE, .commands = RUN,
     .low = 1 << 16, .aliases = "device_memory_budget",
     .help = "How much device memory the run may use, as a size or as a share of what there is. "
             "Within it Ebb decides what stays, what goes to host memory and comes back, and "
             "what is computed again; what cannot fit is refused before the run. On the CPU, "
             "device memory is a part of main memory that is reserved for the run, which makes "
             "the CPU a simulated accelerator; without it there is no bound. On a GPU it is the "
             "whole process's memory, driver and libraries included, and without it what is free "
             "there. A run that is resumed has the budgets that it had, unless they are named "
             "again."},
    {KEY(host_memory_budget), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_SIZE, .commands = TRAIN,
     .low = 1 << 12,
     .help = "How much host memory may be taken by what moves out and by the rows of an input "
             "embedding that is not on the device. Without it three quarters of what is free; "
             "for a gpu that is not here 64 GiB; no bound on the CPU where 'ebb probe' has not "
             "run."},
    {KEY(pinned_memory_budget), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_SIZE,
     .commands = TRAIN, .low = 1 << 12,
     .help = "GPU: how much of that host memory may be pinned, which the GPU's copy engines need "
             "and other programs cannot use. Without it three quarters of what is free, which is "
             "all unless host_memory_budget names more. The rest is reached through a ring of "
             "pinned slots, several times slower: optimizer state first, which moves once a step. "
             "Where the system pins less than that, the run is planned again with what it pins."},
    {KEY(gradient_checkpointing), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_AUTO_BOOL,
     .commands = TRAIN, .text = "auto",
     .aliases =
         "enable_activation_checkpointing use_gradient_checkpointing activation_checkpointing",
     .help = "Keeps only the input of each layer and computes the rest again in the backward "
             "pass: about a third more work, far less memory. auto: as little of it as "
             "memory_budget allows. The numbers are the same, bit for bit."},
    {KEY(activation_offloading), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_AUTO_BOOL,
     .commands = TRAIN, .text = "auto", .aliases = "enable_activation_offloading",
     .help = "Moves what the backward pass needs out to host memory and back in time. true with "
             "gradient_checkpointing: true moves the layers' inputs; with "
             "gradient_checkpointing: false everything that is saved, as TRL does. auto: what "
             "memory_budget makes necessary. On the CPU it needs memory_budget."},
    {KEY(activation_offloading_use_streams), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_BOOL,
     .commands = TRAIN, .text = "true",
     .aliases = "enable_activation_offloading_use_streams offload_with_streams",
     .help = "Copies on queues of their own while computing goes on. false copies in between: "
             "simpler to reason about, and slower."},
    {KEY(activations), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_YAML, .commands = TRAIN,
     .help =
         "Decides by hand what becomes of each saved tensor: {x: host, o: keep, gate_up: "
         "recompute}. Slots are x (a layer's input), qkv, o (attention's output), x2 (after "
         "attention), gate_up; policies are keep, host, recompute and, of x2 and gate_up, "
         "host_half: every second tile of tokens goes to the host, the others are recomputed. "
         "What is not named is recomputed, x kept. A list of at most four such mappings gives "
         "ranges of layers their own: [{layers: 0-11, x: host, every: 4}, {layers: 12-, o: "
         "keep}]. every may stand beside x, in a list or without one: from the first layer of its "
         "range on, every so many-th layer has x as it says, and the others' x is recomputed. "
         "Replaces gradient_checkpointing and activation_offloading."},
    {KEY(offload_params), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_CHOICE, .commands = TRAIN,
     .text = "auto", .choices = "auto|false|cpu=true", .aliases = "cpu_offload fsdp_cpu_offload",
     .help =
         "Where weights that are not trained live between uses: cpu keeps the layers' and the "
         "head's in host memory, and each comes in before it is used; false keeps all on the "
         "device; auto lets the plan choose how many. Results are the same bits."},
    {KEY(offload_optimizer), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_CHOICE,
     .commands = TRAIN, .text = "auto", .choices = "auto|false|cpu=true",
     .help = "Where gradients and optimizer state live while all weights are trained: cpu keeps "
             "those of matrices in host memory, where gradients go when their layer is done and "
             "from where the optimizer takes them block by block; false keeps all on the device; "
             "auto lets the plan choose how much. Results are the same bits."},
    {KEY(gradient_accumulation_order), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_CHOICE,
     .commands = TRAIN, .text = "auto",
     .choices = "auto|depth_first=one_by_one|breadth_first=layer_by_layer",
     .help = "In which order the micro-batches of a step are worked on: depth_first, one after the "
             "other; breadth_first, layer by layer across up to 16 of them, so that what lives in "
             "host memory comes in once for all (offload_params, offload_optimizer) while each "
             "saves its activations; auto, depth_first unless something lives there and the plan "
             "forecasts less time for the other. Results are the same bits. Distillation, "
             "preferences and the training of tied embeddings are depth_first always."},

    /* ---- evaluation and checkpoints ---------------------------------------------------------- */
    {KEY(eval_strategy), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_CHOICE,
     .commands = FIT | PLAN, .text = "no", .choices = "no|steps|epoch",
     .aliases = "evaluation_strategy",
     .help = "When the validation data's loss is measured: never, every eval_steps optimizer "
             "steps, or after each epoch. Needs eval_dataset, dataset_test_split or "
             "validation_split."},
    {KEY(eval_steps), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_INT, .commands = FIT,
     .text = "100", .low = 1, .high = 1e9, .unit = "optimizer steps",
     .aliases = "run_val_every_n_steps evals_every",
     .help = "How often, with eval_strategy: steps."},
    {KEY(save_strategy), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_CHOICE, .commands = FIT,
     .text = "epoch", .choices = "no|steps|epoch",
     .help = "When a checkpoint is written, from which a run goes on exactly as if it had never "
             "stopped: never, every save_steps optimizer steps, or after each epoch. The result "
             "is saved at the end in any case, and a checkpoint when the run is interrupted."},
    {KEY(save_steps), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_INT, .commands = FIT,
     .text = "100", .low = 1, .high = 1e9, .unit = "optimizer steps",
     .aliases = "save_every_n_steps", .help = "How often, with save_strategy: steps."},
    {KEY(save_total_limit), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_INT, .commands = FIT,
     .text = "0", .low = 0, .high = 1e6, .unit = "checkpoints",
     .aliases = "keep_last_n_checkpoints max_checkpoints",
     .help = "How many checkpoints are kept; older ones are removed, the best one never. 0: all."},
    {KEY(load_best_model_at_end), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_BOOL,
     .commands = FIT, .text = "false",
     .help = "The result is the checkpoint with the lowest validation loss instead of the last "
             "state. Evaluation and checkpoints must then fall on the same steps."},
    {KEY(early_stopping_patience), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_INT,
     .commands = FIT, .text = "0", .low = 0, .high = 1e6, .unit = "evaluations",
     .help = "Stops after so many evaluations in a row without a lower validation loss. 0: never."},
    {KEY(early_stopping_threshold), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_FLOAT,
     .commands = FIT, .text = "0", .low = 0, .high = 1e6,
     .help = "How much lower counts as lower for early_stopping_patience."},
    {KEY(resume_from_checkpoint), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_STRING,
     .commands = FIT, .text = "false", .aliases = "resume auto_resume_from_checkpoints",
     .help = "Goes on from a checkpoint: true takes the newest whole one in output_dir, a path "
             "that one. Weights, optimizer, data order and numerics are taken from it, so that "
             "the result is that of an uninterrupted run."},
    {KEY(eval_prompts), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_TEXTS,
     .commands = FIT | PLAN,
     .help = "Prompts that the model answers before the first step, at each evaluation and at the "
             "end, by the likeliest token each: printed, and kept in metrics.jsonl. A list of "
             "texts, or a file: JSON lines (.jsonl) with 'messages' or 'prompt', otherwise one "
             "prompt a line. Messages go through the chat template, without a last one of the "
             "assistant; so do texts where the data is chats. Other texts are continued. The "
             "training is the same, bit for bit, as without."},
    {KEY(eval_max_new_tokens), .group = EBB_GROUP_EVALUATION, .type = EBB_OPTION_INT,
     .commands = FIT | PLAN, .text = "64", .low = 1, .high = 1e6, .unit = "tokens",
     .help = "How long an answer to eval_prompts may be."},

    /* ---- generation -------------------------------------------------------------------------- */
    {KEY(prompt), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_STRING, .commands = GENERATE,
     .help = "The text to continue. Without it the prompt is read from standard input."},
    {KEY(prompt_lines), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_BOOL,
     .commands = GENERATE, .text = "false",
     .help =
         "Takes each line of standard input as a prompt of its own, instead of all of it as one."},
    {KEY(max_new_tokens), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_INT,
     .commands = GENERATE | CHAT, .text = "auto", .automatic = true, .low = 1, .high = 1e7,
     .unit = "tokens",
     .help = "Stops after so many tokens, if no end of text comes first. auto: 128 in 'ebb "
             "generate', as many as there is room for in 'ebb chat'."},
    {KEY(temperature), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_FLOAT,
     .commands = GENERATE | CHAT | KD | PLANS, .text = "0", .low = 0, .high = 100,
     .help = "Generation: 0 always takes the likeliest token. Above it tokens are drawn at random; "
             "lower is closer to the likeliest, 1 is the model's own distribution. Distillation: "
             "what both models' logits are divided by before they are compared; above 1 the less "
             "likely tokens weigh more. Without it 1."},
    {KEY(top_p), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_FLOAT,
     .commands = GENERATE | CHAT, .text = "1", .low = 0, .above = true, .high = 1,
     .help =
         "Draws only from the likeliest tokens that together have this probability. 1: from all."},
    {KEY(top_k), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_INT, .commands = GENERATE | CHAT,
     .text = "0", .low = 0, .high = 1e7, .unit = "tokens",
     .help = "Draws only from the so many likeliest tokens. 0: from all."},
    {KEY(repetition_penalty), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_FLOAT,
     .commands = GENERATE | CHAT, .text = "1", .low = 0, .above = true, .high = 100,
     .help = "Above 1 makes tokens that already occurred less likely. 1: off."},
    {KEY(stop), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_TEXTS,
     .commands = GENERATE | CHAT, .aliases = "stop_strings stop_sequences",
     .help = "Ends before this text, or before the first of several, and does not print it: "
             "stop='User:' or stop='[\"\\n\\n\", \"###\"]'."},
    {KEY(system_prompt), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_STRING, .commands = CHAT,
     .aliases = "system",
     .help = "The system message that stands before the conversation. Without it there is none, "
             "but for what the template itself writes."},
    {KEY(verbose), .group = EBB_GROUP_GENERATION, .type = EBB_OPTION_BOOL, .commands = CHAT,
     .text = "false",
     .help = "Says after each answer how many tokens were read, found in the cache and made, and "
             "how fast."},

    /* ---- machine and output ------------------------------------------------------------------ */
    {KEY(device), .group = EBB_GROUP_MACHINE, .type = EBB_OPTION_CHOICE,
     .commands = RUN | PROBE, .text = "auto", .choices = "auto|cpu|cuda=cuda:0=gpu",
     .aliases = "device_map",
     .help = "Where the run computes. cuda: an NVIDIA GPU of compute capability 8.0 or higher, in "
             "builds that found the CUDA toolkit; its driver, cuBLAS and cuDNN are looked for when "
             "the run starts. auto: cuda where a GPU can be used, else the CPU, with one warning "
             "where the machine seems to have one."},
    {KEY(deterministic), .group = EBB_GROUP_MACHINE, .type = EBB_OPTION_BOOL, .commands = RUN,
     .text = "false", .aliases = "full_determinism cudnn_deterministic_mode",
     .help = "GPU: the same bits every time, whatever the plan and the budget. Without it the loss "
             "of a step is, but the gradients of attention are added up in any order and differ in "
             "their last bits; with it, attention's backward takes somewhat longer. The CPU is "
             "deterministic in any case."},
    {KEY(attn_implementation), .group = EBB_GROUP_MACHINE, .type = EBB_OPTION_CHOICE,
     .commands = RUN, .text = "auto",
     .choices = "auto=sdpa=flash_attention_2=flash_attention_3=flex_attention|cudnn|plain=eager",
     .help = "GPU: what computes attention in bfloat16. cudnn: cuDNN, which uses tensor cores, and "
             "an error where it does not take the model's heads. plain: Ebb's own kernels, slower "
             "by far and always deterministic. auto: cuDNN where it takes the model's heads, else "
             "plain. In float32, and for layers with a sliding window, it is plain. Of "
             "transformers' names sdpa, flash_attention_2, flash_attention_3 and flex_attention "
             "are auto, and eager is plain. On the CPU nothing depends on it."},
    {KEY(threads), .group = EBB_GROUP_MACHINE, .type = EBB_OPTION_INT, .commands = RUN | PROBE,
     .text = "0", .low = 0, .high = 4096, .unit = "threads", .aliases = "num_threads",
     .help = "CPU threads that compute. 0: every processor that the process may use. Sums of a "
             "run depend on it in the last bits, so it is part of what a resumed run takes from "
             "its checkpoint."},
    {KEY(profile), .group = EBB_GROUP_MACHINE, .type = EBB_OPTION_BOOL, .commands = FIT,
     .text = "false",
     .help = "Prints after the run where a step's time goes, by part: matrix products, attention, "
             "what memory bounds, head and loss, optimizer, copies, waiting, and the host; with "
             "what each reaches of this device's ceilings, which are measured then. run.json gets "
             "the same as 'profile'. Numbers stay what they are; a step takes a little longer."},
    {KEY(gpu), .group = EBB_GROUP_MACHINE, .type = EBB_OPTION_STRING, .commands = PLAN,
     .help = "Plans for a GPU that is not here, by its data sheet: gpu='RTX 4090'. Its memory is "
             "the budget where memory_budget names none. What a step takes is then a guess, from "
             "what a GPU that was measured reaches of its own data sheet; the bytes are exact but "
             "for the driver's. A name that is not known gets a list of those that are."},
    {KEY(sweep), .group = EBB_GROUP_BENCHMARK, .type = EBB_OPTION_STRING, .commands = PLANS,
     .required = BENCH, .text = "no",
     .unit = "in 'ebb plan' no or memory, in 'ebb bench' length=VALUES or budget=VALUES",
     .help = "In 'ebb plan' several plans in place of one. memory: for a row of budgets, from the "
             "least that will do to what keeps everything on the device, with what each gives in "
             "tokens a second. In 'ebb bench' what is measured: length=1k:128k:x2 sequences of "
             "1024 tokens, twice as many, and so on; length=1k:16k:+1k in steps of 1024; "
             "length=1k,3k,9k these. k is 1024. budget=8GiB:64GiB:x2 and budget=6GiB,8GiB measure "
             "what the plan makes of budgets for sequences of max_length tokens."},
    {KEY(modes), .group = EBB_GROUP_BENCHMARK, .type = EBB_OPTION_LIST, .commands = BENCH,
     .text = "auto",
     .help = "Ways to hold activations that are compared over lengths. none: everything stays on "
             "the device. offload: everything that is saved goes to host memory. checkpoint: "
             "layers' inputs stay, the rest is computed again. checkpoint+offload: layers' inputs "
             "go to host memory. plan: as the plan chooses within memory_budget, or within each "
             "of budgets. activations={x: host, o: keep}: any set that the key activations takes. "
             "Only plan moves weights and optimizer state, unless offload_params or "
             "offload_optimizer says so. auto: the first five, on the CPU without memory_budget "
             "those of them that move nothing."},
    {KEY(budgets), .group = EBB_GROUP_MEMORY, .type = EBB_OPTION_LIST, .commands = BENCH,
     .help = "Memory budgets for the mode plan of 'ebb bench', each a series of its own: "
             "8GiB,16GiB. Without them memory_budget, or the whole device."},
    {KEY(models), .group = EBB_GROUP_BENCHMARK, .type = EBB_OPTION_LIST, .commands = BENCH,
     .help = "Several models in place of model_name_or_path. Each may also be a config.json or "
             "the name of a built-in shape ('ebb configs' lists them), and a directory may lack "
             "weights: then they are random numbers, made where they are used."},
    {KEY(data), .group = EBB_GROUP_BENCHMARK, .type = EBB_OPTION_CHOICE, .commands = BENCH,
     .text = "auto", .choices = "auto|random",
     .help = "What is trained on. auto: the data set that the configuration names, its samples "
             "laid end to end and cut into documents of the length, every token trained; without "
             "one, random token ids, which random asks for in any case."},
    {KEY(steps), .group = EBB_GROUP_BENCHMARK, .type = EBB_OPTION_INT, .commands = BENCH,
     .text = "5", .low = 1, .high = 1e6, .unit = "optimizer steps",
     .help = "Training steps of a point. The first is a warm-up and does not count where there "
             "are more; the time of a step is their median."},
    {KEY(doc_length), .group = EBB_GROUP_DATA, .type = EBB_OPTION_INT, .commands = PLAN,
     .text = "0", .low = 0, .high = 1e8, .unit = "tokens",
     .help = "With packing and without a data set: how long a document is, for what attention "
             "takes; at least 16. 0: as long as a row. With a data set its own lengths are taken."},
    {KEY(json), .group = EBB_GROUP_MACHINE, .type = EBB_OPTION_BOOL,
     .commands = PLANS | PROBE | DATA | EVAL | TOKENIZE, .text = "false",
     .help = "Prints the result as one JSON object instead of a table. 'ebb tokenize' prints one a "
             "line: ids, pieces (the tokens as tokenizer.json writes them) and offsets (the bytes "
             "of the line, from 0, that each stands for), and with 'decode' reads such objects "
             "and prints text."},
};

/* ---- other projects' spellings --------------------------------------------------------------- */

static const struct ebb_spelling spellings[] = {
    {"adapter", "use_peft", "lora=true|none=false|full=false|qlora=!|*",
     "Ebb does not train on quantised weights: adapter: lora trains on the weights as they are"},
    {"finetuning_type", "use_peft", "lora=true|full=false|freeze=!|oft=!|*",
     "Ebb trains a LoRA adapter (finetuning_type: lora) or every weight (full)"},
    {"full_finetuning", "use_peft", "true=false|false=true", NULL},
    {"lora_target", "lora_target_modules", "all=all-linear|*", NULL},
    {"lora_target_linear", "lora_target_modules", "true=all-linear|false=!",
     "name the modules with lora_target_modules instead, such as q_proj,v_proj"},
    {"model.apply_lora_to_mlp", "lora_target_modules",
     "true=all-linear|false=q_proj,k_proj,v_proj,o_proj", NULL},
    {"bf16", "dtype", "true=bfloat16|false=float32|auto=auto|full=bfloat16", NULL},
    {"train_on_inputs", "completion_only_loss", "true=false|false=auto", NULL},
    {"train_on_prompt", "completion_only_loss", "true=false|false=auto", NULL},
    {"dataset.train_on_input", "completion_only_loss", "true=false|false=auto", NULL},
    {"truncation_mode", "truncation_side", "keep_start=right|keep_end=left", NULL},
    {"train_sampling_strategy", "group_by_length", "group_by_length=true|random=false|sequential=!",
     "shuffle: false keeps the samples in the order of the files"},
    {"do_sample", "temperature", "true=1|false=0", NULL},
    {"kd_loss._component_", "kd_loss",
     "torchtune.modules.loss.ForwardKLLoss=forward_kl|"
     "torchtune.modules.loss.ForwardKLWithChunkedOutputLoss=forward_kl|"
     "torchtune.modules.loss.ReverseKLLoss=reverse_kl|"
     "torchtune.modules.loss.ReverseKLWithChunkedOutputLoss=reverse_kl|"
     "torchtune.modules.loss.SymmetricKLLoss=symmetric_kl|"
     "torchtune.modules.loss.SymmetricKLWithChunkedOutputLoss=symmetric_kl|*",
     NULL},
    {"rl", "loss_type", "dpo=sigmoid|ipo=ipo|kto=kto|orpo=orpo|simpo=simpo|grpo=!|gdpo=!|ppo=!",
     "Ebb learns from preferences that are there, not from answers that it writes and scores"},
    {"loss._component_", "loss_type", "torchtune.rlhf.loss.DPOLoss=sigmoid", NULL},
    {"use_cpu", "device", "true=cpu|false=auto", NULL},
    {"no_cuda", "device", "true=cpu|false=auto", NULL},
    {"use_tensorboard", "report_to", "true=tensorboard|false=none", NULL},
    {"metric_logger._component_", "report_to",
     "torchtune.training.metric_logging.DiskLogger=none|"
     "torchtune.training.metric_logging.StdoutLogger=none|"
     "torchtune.training.metric_logging.TensorBoardLogger=tensorboard|"
     "torchtune.training.metric_logging.WandBLogger=wandb|"
     "torchtune.training.metric_logging.CometLogger=!|"
     "torchtune.training.metric_logging.MLFlowLogger=!|*",
     "metrics go to output_dir/metrics.jsonl, and to event files with report_to: tensorboard"},
    {"disable_gradient_checkpointing", "gradient_checkpointing", "true=false|false=auto", NULL},
};

static const struct ebb_foreign_value foreign_values[] = {
    {"gradient_checkpointing", "unsloth offload",
     "gradient_checkpointing: true with activation_offloading: true, which is what that does"},
    {"loss_type", "nll chunked_nll",
     "nothing, for 'ebb sft' trains cross-entropy, always in chunks of the labels"},
};

static const struct ebb_foreign_key foreign[] = {
    {"fp16 float16 half", true, "false auto",
     "Ebb trains in bfloat16 or float32, which need no loss scaling: dtype: bfloat16"},
    {"load_in_4bit load_in_8bit quantization_bit quantize_base model.quantize_base "
     "quantization_config",
     true, "false none 0 16",
     "Ebb trains on weights as they are: leave it out, and use memory_budget if they are tight"},
    {"use_dora lora_use_dora model.use_dora peft_use_dora", true, "false",
     "Ebb trains plain and rank-stabilised LoRA: use_rslora: true"},
    {"lora_modules_to_save modules_to_save additional_target", true, "none false",
     "an adapter of Ebb holds LoRA matrices only"},
    {"model.apply_lora_to_output", true, "false", "Ebb puts no adapter on the output head"},
    {"deepspeed fsdp fsdp_config fsdp2 ddp_backend tensor_parallel_dim context_parallel_dim "
     "parallelism_config custom_sharded_layers use_mps_device",
     true, "none false 1",
     "Ebb trains on one device: use memory_budget and activation_offloading where it is short of "
     "memory"},
    {"neftune_noise_alpha", true, "none 0", "Ebb adds no noise to embeddings: leave it out"},
    {"label_smoothing_factor", true, "0 0.0 none",
     "Ebb trains on plain cross-entropy: leave it out"},
    {"max_prompt_length max_completion_length max_target_length", true, "none",
     "max_length bounds a prompt and its answer together; overlong and truncation_side say what "
     "becomes of longer ones"},
    {"reference_free", true, "false none",
     "a loss without a reference is loss_type: simpo or orpo"},
    {"sync_ref_model", true, "false none",
     "the reference stays what it is when the run starts: leave it out"},
    {"ref_model_mixup_alpha ref_model_sync_steps", false, "",
     "the reference stays what it is when the run starts"},
    {"rpo_alpha dpo_alpha cpo_alpha pref_ftx", true, "none 0 0.0",
     "no cross-entropy of the chosen answer is added to a preference loss: loss_type: orpo is one "
     "that has it"},
    {"loss_weights use_weighting dpo_use_weighting dpo_norm_loss ld_alpha discopop_tau "
     "pref_bco_weight",
     true, "none false 0 0.0",
     "every pair weighs alike in one loss, and every label of an answer: leave it out"},
    {"f_divergence_type", true, "reverse_kl none",
     "preference losses go by the plain log-ratio (reverse_kl)"},
    {"f_alpha_divergence_coef", false, "",
     "preference losses go by the plain log-ratio (reverse_kl)"},
    {"gamma_beta_ratio", true, "none",
     "simpo_gamma is beta times it: for a ratio of 0.25 and beta: 2 it is 0.5"},
    {"force_use_ref_model", true, "false none",
     "ref_model_name_or_path names a reference; without it the reference is where training starts"},
    {"ref_adapter_name ref_model_adapters ref_model_quantization_bit", true, "none",
     "a reference is a whole model as it is: 'ebb merge' on its adapter, and "
     "ref_model_name_or_path names the result"},
    {"model_adapter_name ref_model_init_kwargs base_model_attribute_name", false, "",
     "there is one adapter, and a reference without a name is the model without it"},
    {"precompute_ref_batch_size", false, "", "the reference runs in the micro-batches of the run"},
    {"generate_during_eval dpo_generate_during_eval", true, "false none",
     "eval_prompts has prompts answered at every evaluation"},
    {"use_logits_to_keep dpo_use_logits_to_keep dpo_padding_free use_liger_loss "
     "label_pad_token_id padding_value",
     false, "", "logits are made of trained tokens only, in chunks, and padding is never computed"},
    {"is_encoder_decoder", true, "false none", "Ebb trains decoders"},
    {"push_to_hub hub_model_id hub_token", true, "false none",
     "Ebb never uploads: the result in output_dir is laid out as the Hub wants it"},
    {"test_datasets", true, "none", "name the validation data with eval_dataset"},
    {"template prompt_template tokenizer.prompt_template", true, "none default",
     "name a chat template with chat_template"},
    {"chat_template_jinja", true, "none",
     "save the template as a file and name that: chat_template: FILE.jinja"},
    {"enable_thinking", true, "none", "chat_template_kwargs: {enable_thinking: false}"},
    {"roles_to_train", true, "none assistant",
     "what assistants say is trained: leave it out, or assistant_only_loss: false to train whole "
     "conversations"},
    {"train_on_eos", true, "turn",
     "the token that ends a trained turn is always trained: leave it out"},
    {"eot_tokens default_system_message", true, "none",
     "a chat template says how turns begin and end: name one with chat_template"},
    {"resize_token_embeddings resize_vocab resize_token_embeddings_to_32x", true, "false",
     "the model's vocabulary stays as it is"},
    {"use_liger_kernel use_liger liger_kernel enable_liger_kernel liger_kernel_config plugins",
     false, "", "Ebb always computes the loss in chunks, so that logits never exist whole"},
    {"loss chunked_nll loss.", false, "",
     "the command decides the loss (kd_loss, loss_type), computed in chunks of the labels"},
    {"kd_loss.num_output_chunks kd_loss.ignore_index", false, "",
     "the loss is always computed in chunks of the labels, and only of what is trained"},
    {"teacher_model. teacher_checkpointer.", false, "",
     "the teacher is what the directory of teacher_model_name_or_path says"},
    {"lmbda", true, "0 0.0",
     "Ebb distils on the data as it is, which is lmbda: 0 in TRL (whose default is 0.5)"},
    {"seq_kd", true, "false",
     "have the teacher write the answers with 'ebb generate', and train on them with 'ebb sft'"},
    {"disable_dropout", false, "", "there is no dropout but lora_dropout, whose default is 0"},
    {"teacher_model_init_kwargs", true, "none", "the teacher is what its config.json says"},
    {"flash_attention flash_attn sdp_attention xformers_attention padding_free", false, "",
     "attention never stores its scores, and padding is never computed"},
    {"pad_to_multiple_of pad_to_sequence_len eval_packing length_column_name", false, "",
     "Ebb lays samples end to end without padding"},
    {"packing_efficiency_threshold neat_packing sample_packing_eff_est dataset.split_across_pack",
     false, "",
     "packed samples never see each other, and packing_strategy says how rows are filled"},
    {"dataloader_num_workers dataloader_pin_memory dataloader_prefetch_factor "
     "dataloader_drop_last dataloader_persistent_workers dataset_num_proc dataset_processes "
     "preprocessing_num_workers dataset_batch_size collate_fn remove_unused_columns dataset_kwargs",
     false, "",
     "the whole data set is tokenized before step 1, and its last, smaller batch is trained too"},
    {"overwrite_cache", false, "",
     "a tokenized data set is taken from dataset_cache only where nothing that made it has "
     "changed"},
    {"gradient_checkpointing_kwargs ac_mode ac_option selective_ac_option", false, "",
     "Ebb recomputes what the plan says; 'activations' chooses by hand"},
    {"use_pin_memory pin_memory", false, "",
     "host memory for moves is reserved and pinned once, before step 1; pinned_memory_budget says "
     "how much of it; on the CPU there is nothing to pin"},
    {"min_offload_size", false, "",
     "Ebb moves the few tensors that are worth it, chosen by the plan, not by size"},
    {"max_fwd_stash_size", false, "", "how many moves are under way at once is part of the plan"},
    {"optimizer_in_bwd optimizer_in_backward", true, "false",
     "the update waits for the norm of all gradients: leave it out"},
    {"optim_args optim_target_modules optimizer_kwargs", true, "none",
     "use adam_beta1, adam_beta2, adam_epsilon, momentum and weight_decay"},
    {"optimizer.fused optimizer.foreach optimizer.amsgrad", false, "",
     "the update is always one sweep over all weights"},
    {"compile torch_compile torch_compile_backend torch_compile_mode", false, "",
     "there is nothing to compile: a step is planned before the run"},
    {"use_wandb wandb_project wandb_run_name wandb_entity wandb_name wandb_watch", false, "",
     "tools/wandb_tail.py sends output_dir/metrics.jsonl to Weights & Biases"},
    {"run_name metric_logger plot_loss metric_logger. project trackio_space_id eval_table_size",
     false, "", "metrics go to output_dir/metrics.jsonl, one JSON object a step"},
    {"log_level log_peak_memory_stats logging_first_step logging_strategy disable_tqdm "
     "include_tokens_per_second include_num_input_tokens_seen skip_memory_metrics log_on_each_node",
     false, "", "memory, speed and tokens of every step are in output_dir/metrics.jsonl"},
    {"profiler profiler.", false, "", "profile: true prints where a step's time goes"},
    {"save_safetensors save_only_model save_adapter_weights_only enable_async_checkpointing "
     "save_on_each_node",
     false, "", "results are safetensors; checkpoints hold all that a resumed run needs"},
    {"ddp_find_unused_parameters local_rank ddp_timeout world_size average_tokens_across_devices",
     false, "", "one process trains on one device"},
    {"metric_for_best_model greater_is_better", false, "",
     "the best model is the one with the lowest eval_loss"},
    {"do_train do_eval do_predict stage prediction_loss_only eval_accumulation_steps "
     "batch_eval_metrics",
     false, "",
     "the command trains (ebb sft, kd, dpo), and evaluates as eval_strategy says; evaluation keeps "
     "no logits"},
    {"lora_bias bias lora_task_type task_type init_lora_weights peft_type lora_fan_in_fan_out",
     false, "", "adapters start and are saved as PEFT's plain LoRA without biases"},
    {"model_type tokenizer_type trust_remote_code use_fast_tokenizer model_revision revision "
     "model_code_revision "
     "cache_dir special_tokens strict attn_bias use_cache is_llama_derived_model tokenizer.path "
     "tokenizer.merges_file",
     false, "",
     "model and tokenizer are what the model's directory says; no code is ever loaded from it"},
    {"model._component_ tokenizer._component_ dataset._component_ checkpointer._component_ "
     "checkpointer. lr_scheduler._component_",
     false, "",
     "Ebb has no components: model and data are named by model_name_or_path and dataset_name, "
     "LoRA by lora_*"},
    {"model.lora_attn_modules", true, "",
     "lora_target_modules names the projections to adapt: q_proj, k_proj, v_proj, o_proj "
     "(torchtune's output_proj), gate_proj, up_proj, down_proj"},
    {"max_steps_per_epoch", true, "none", "max_steps ends the run after so many optimizer steps"},
    {"tf32", false, "", "products of float32 values are computed in float32"},
    {"bf16_full_eval fp16_full_eval auto_find_batch_size accelerator_config", false, "",
     "evaluation runs inside the plan in the type of training"},
    {"eos_token tokens special_tokens.", true, "none",
     "special tokens are what the model's tokenizer_config.json names"},
    {"pad_token special_tokens.pad_token", false, "",
     "padding is never computed, so no pad token is needed"},
    {"dataset_streaming streaming buffer_size", true, "false none",
     "the whole data set is tokenized before step 1"},
    {"dataset_config dataset_dir", true, "none default",
     "dataset_name is the path of one file, or of a directory of files"},
    {"interleave_probs mix_strategy", true, "none concat",
     "the weight of each item of datasets says how often its samples are seen"},
    {"eval_delay eval_on_start saves_per_epoch evals_per_epoch", true, "none false 0",
     "eval_strategy with eval_steps and save_strategy with save_steps say when"},
    {"lr_scheduler_kwargs lr_scheduler.num_cycles cosine_min_lr_ratio", true, "none 0 0.5",
     "schedules have no settings beside warmup_steps, warmup_ratio and decay_ratio"},
    {"model_init_kwargs rope_scaling", true, "none", "the model is what its config.json says"},
    {"ignore_data_skip", true, "false", "a resumed run goes on at its place in the data"},
    {"s2_attention", true, "false", "attention is always over the whole document"},
    {"peft_layers_to_transform layers_to_transform pissa_init loraplus_lr_ratio use_llama_pro "
     "freeze_trainable_layers freeze_trainable_modules unfrozen_parameters",
     true, "none false 0", "Ebb trains plain LoRA on every layer, or every weight"},
    {"hub_strategy hub_private_repo hub_always_push hub_revision hf_use_auth_token", false, "",
     "Ebb never uploads, and reads models that are on this machine"},
    {"bnb_4bit_quant_type bnb_4bit_compute_dtype bnb_4bit_use_double_quant use_bnb_nested_quant",
     false, "", "Ebb does not quantise weights"},
    {"eval_sample_packing sample_packing_sequence_len", false, "",
     "with packing, rows of training and validation have max_length tokens"},
    {"logging_nan_inf_filter loss_watchdog_threshold loss_watchdog_patience", false, "",
     "a step whose gradients are not finite changes nothing, and ten of them in a row end the run"},
    {"debug past_index jit_mode_eval torchdynamo include_inputs_for_metrics include_for_metrics "
     "eval_use_gather_object restore_callback_states_from_checkpoint ignore_bias_buffers "
     "infer_backend upcast_layernorm",
     false, "", "there is no such machinery here to be set"},
    {"lora_mlp_kernel lora_qkv_kernel lora_o_kernel", false, "",
     "an adapter lies around its weight, so that one product serves both"},
    {"loftq_config", true, "none", "Ebb trains on weights as they are: leave it out"},
    {"fast_inference gpu_memory_utilization", false, "",
     "'ebb generate' and 'ebb chat' run inside memory_budget"},
    {"low_cpu_ram gc_steps torch_empty_cache_steps", false, "",
     "nothing is allocated after step 1"},
};

const struct ebb_option *ebb_option_table(size_t *count)
{
    *count = sizeof table / sizeof table[0];
    return table;
}

const struct ebb_spelling *ebb_spelling_table(size_t *count)
{
    *count = sizeof spellings / sizeof spellings[0];
    return spellings;
}

const struct ebb_foreign_value *ebb_foreign_value_table(size_t *count)
{
    *count = sizeof foreign_values / sizeof foreign_values[0];
    return foreign_values;
}

const struct ebb_foreign_key *ebb_foreign_table(size_t *count)
{
    *count = sizeof foreign / sizeof foreign[0];
    return foreign;
}
