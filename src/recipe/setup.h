/* From a configuration to what an engine is asked for: the model's place, tokenizer, data,
 * loaders, capacity, adapter, policies, budgets. What recipes and commands share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_SETUP_H
#define EBB_RECIPE_SETUP_H

#include "data/chat_template.h"
#include "data/loader.h"
#include "model/init.h"
#include "plan/forecast.h"
#include "recipe/chat.h"
#include "recipe/options.h"
#include "recipe/sources.h"
#include "train/engine.h"
#include "train/samples.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the command line knows and the rooms below may not ask for themselves. */
struct ebb_recipe_env {
    struct ebb_hub_env hub;
    int stop_fd;                      /* signalfd for SIGINT and SIGTERM; -1: none */
    const char *cache_home;           /* XDG_CACHE_HOME; NULL: ~/.cache */
    ebb_chat_builtin_fn chat_builtin; /* NULL: none */
};

/* {0} is a valid empty value. Everything is owned but for what `request` points at inside. Not
 * to be moved. */
struct ebb_setup {
    struct ebb_ctx *ctx;
    struct ebb_options *options;      /* borrowed */
    const struct ebb_config *config;  /* borrowed */
    const struct ebb_recipe_env *env; /* borrowed */
    enum ebb_purpose purpose;         /* of the data; set before ebb_setup_data */
    char *model_dir, *adapter_dir;    /* adapter_dir may be NULL */
    char *teacher_dir;                /* the second model's, a teacher or a reference; NULL: none */
    struct ebb_teacher *teacher;      /* a saved one; NULL: none */
    /* Of precompute_ref_log_probs; {0}: none. */
    struct ebb_reference_set train_reference, eval_reference;
    struct ebb_feed *train_feed, *eval_feed; /* NULL: none */
    char *attention_cache;                   /* NULL: there is no place for one */
    char *base_name; /* the base model as the user or the adapter named it */
    struct ebb_model_config *model;
    struct ebb_weight_list weights;
    struct ebb_tokenizer *tokenizer; /* NULL where no text is needed */
    struct ebb_chat_template *chat;  /* NULL: none, or nobody asked for it */
    bool chat_known;                 /* somebody asked for it */
    bool other_chat;                 /* it is not the one in model_dir */
    json_t *chat_kwargs;             /* NULL: none */
    int64_t now;                     /* what chat templates take for the time; 0: the clock */
    char data_time[EBB_DATA_TIME];   /* of what trains or saves: `now` by its clock; else "" */
    /* What is written beside a result: the template with chat_kwargs as its defaults. NULL: that of
     * model_dir serves. */
    struct ebb_chat_template *saved_chat;
    struct ebb_sources train_sources, eval_sources;
    struct ebb_dataset *train_set, *eval_set;
    struct ebb_loader *train, *eval;   /* NULL: none */
    int64_t max_length;                /* resolved */
    int64_t eval_batch;                /* resolved */
    struct ebb_adapter_config adapter; /* of a new adapter */
    bool new_adapter;
    struct ebb_policy_rule rules[EBB_ACTIVATION_RULES];
    struct ebb_samples samples;   /* of eval_prompts: recipe/eval_prompts.h */
    struct ebb_numerics numerics; /* of a checkpoint, where the run goes on from one */
    bool budget_given;            /* memory_budget; else the GPU's free memory, or none */
    bool host_given;              /* host_memory_budget; else a share of what is free, or none */
    bool pinned_given;            /* pinned_memory_budget; the same */
    /* Nobody named it: that of the run that is resumed. */
    bool budget_resumed, host_resumed, pinned_resumed;
    const struct ebb_gpu *gpu;         /* one that is not here, for its plan; NULL: this machine */
    struct ebb_rates rates;        /* of the device; request.rates says whether they are known */
    struct ebb_forecast_load load; /* that its plan is searched by, where rates are known */
    int32_t *load_starts;          /* its documents' */
    struct ebb_engine_request request;
};

/* The model's directory and shape, an adapter's directory, the storage type, and `activations:`,
 * which is judged by the model's slots and layers before any data is read. An adapter alone is
 * enough: its base model is then loaded. */
enum ebb_status ebb_setup_model(struct ebb_ctx *ctx, struct ebb_options *options,
                                const struct ebb_config *config, const struct ebb_recipe_env *env,
                                struct ebb_setup *setup);
/* Of ebb_setup_model; recipe/activations.c. */
enum ebb_status ebb_setup_activations(struct ebb_setup *setup);
/* Tokenizer; checks it against the model's vocabulary. */
enum ebb_status ebb_setup_tokenizer(struct ebb_setup *setup);
/* setup->chat, the template of the key chat_template; without it the adapter directory's own, then
 * the model directory's; NULL where there is none. And setup->chat_kwargs. The setup has its
 * tokenizer. A second call does nothing. */
enum ebb_status ebb_setup_chat(struct ebb_setup *setup);
/* setup->saved_chat. */
enum ebb_status ebb_setup_saved_chat(struct ebb_setup *setup);
/* Chat templates may ask for the date. A run has one time, and goes on with it (`resume`: from this
 * checkpoint): on another day its data would be other data. A student of a saved teacher has the
 * time at which that was saved, for the same reason. Before ebb_setup_data. */
enum ebb_status ebb_setup_time(struct ebb_setup *setup, const char *resume);
/* The configuration names data: dataset_name or datasets. */
bool ebb_setup_has_data(const struct ebb_config *config);
/* Chat template, data sets, max_length, loaders and the capacity that they need. Without data (ebb
 * plan): the capacity of max_length and batch size. 'ebb data' makes no loaders for preferences. */
enum ebb_status ebb_setup_data(struct ebb_setup *setup);
/* Rows of another max_length, without data. */
enum ebb_status ebb_setup_assume(struct ebb_setup *setup, int64_t max_length);
/* The one data set of `ebb eval`. */
enum ebb_status ebb_setup_eval_data(struct ebb_setup *setup);
/* The feeds of both loaders, where the engine's objective has any. */
enum ebb_status ebb_setup_feeds(struct ebb_setup *setup, const struct ebb_engine *engine);
/* EBB_BAD_CONFIG where the model cannot take micro-batches in the order that is asked for
 * (model/decoder.c says which can). */
enum ebb_status ebb_setup_check_order(const struct ebb_setup *setup);
/* Adapter, optimizer, memory keys and budgets, for training. */
enum ebb_status ebb_setup_training(struct ebb_setup *setup);
/* Budgets that nobody names are those of the run that is resumed from this checkpoint, so that what
 * is free at the moment does not change its plan; not where more than is free would be taken. */
enum ebb_status ebb_setup_resumed(struct ebb_setup *setup, const char *resume);
void ebb_setup_free(struct ebb_setup *setup);

/* A folder of the user's cache, "ebb/NAME" in it, which may not exist yet; the caller frees. NULL:
 * there is no place for one. */
enum ebb_status ebb_setup_cache(struct ebb_ctx *ctx, const struct ebb_recipe_env *env,
                                const char *name, char **dir);
/* GPU: what of its free memory a run may take where no budget is named, and what driver and
 * libraries take of that until it has been measured. */
int64_t ebb_setup_free_bytes(struct ebb_ctx *ctx, enum ebb_backend backend);
int64_t ebb_setup_overhead(enum ebb_backend backend);
/* Host memory that a run may take where no budget is named, of so much that is free: three
 * quarters, and 64 MiB at least, which moves little and is always to be had. 0, no bound, where it
 * is not known how much is free. */
int64_t ebb_setup_host_share(int64_t free_bytes);
/* A budget of a resumed run: as `recorded`, unless that is none (0) or more than what is free now
 * (free_bytes; 0: not known); then `now`. */
int64_t ebb_setup_resumed_budget(int64_t now, int64_t recorded, int64_t free_bytes);
/* EBB_INTERRUPTED where a signal waits. The signal stays where it is. */
enum ebb_status ebb_setup_poll(struct ebb_ctx *ctx, const struct ebb_recipe_env *env);
/* "memory_budget" in bytes; 0: none. A share is of the backend's memory. */
int64_t ebb_setup_budget(const struct ebb_amount *amount, enum ebb_backend backend);

#ifdef __cplusplus
}
#endif
#endif
