/* The wiring that recipes and commands share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/setup.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "recipe/dpo.h"
#include "recipe/machine.h"
#include "recipe/outlook.h"
#include "recipe/survey.h"
#include "train/metrics.h"

static bool holds(struct ebb_ctx *ctx, const char *dir, const char *name, enum ebb_status *status)
{
    char *path = ebb_path_join(ctx, dir, name);
    if (path == NULL) {
        *status = EBB_NO_MEMORY;
        return false;
    }
    bool found = ebb_file_exists(path);
    ebb_mem_free(ctx, path);
    return found;
}

/* ---- model ----------------------------------------------------------------------------------- */

/* The base model that an adapter names, unless the user named one. */
static enum ebb_status find_base(struct ebb_setup *setup, const struct ebb_recipe_env *env)
{
    struct ebb_adapter_config adapter = {0};
    EBB_TRY(ebb_adapter_config_load(setup->ctx, setup->adapter_dir, &adapter));
    enum ebb_status status = EBB_OK;
    if (adapter.base_model == NULL || adapter.base_model[0] == 0)
        status = EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                          "the adapter in '%s' does not name its base model\n"
                          "try:   model_name_or_path=BASE adapter_name_or_path=%s",
                          setup->adapter_dir, setup->adapter_dir);
    if (status == EBB_OK) {
        setup->base_name = ebb_mem_strdup(setup->ctx, adapter.base_model);
        status = setup->base_name
                     ? ebb_model_find(setup->ctx, adapter.base_model, &env->hub, &setup->model_dir)
                     : EBB_NO_MEMORY;
    }
    ebb_adapter_config_clear(setup->ctx, &adapter);
    return status;
}

static enum ebb_status find_dirs(struct ebb_setup *setup, const struct ebb_recipe_env *env)
{
    struct ebb_ctx *ctx = setup->ctx;
    const struct ebb_config *config = setup->config;
    enum ebb_status status = EBB_OK;
    if (config->model_name_or_path == NULL && config->adapter_name_or_path == NULL)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'ebb %s' needs 'model_name_or_path' or 'adapter_name_or_path'\n"
                        "help:  ebb help model_name_or_path",
                        ebb_command_name(ebb_options_command(setup->options)));
    if (config->adapter_name_or_path)
        EBB_TRY(ebb_model_find(ctx, config->adapter_name_or_path, &env->hub, &setup->adapter_dir));
    if (config->model_name_or_path == NULL) return find_base(setup, env);
    EBB_TRY(ebb_model_find(ctx, config->model_name_or_path, &env->hub, &setup->model_dir));
    bool adapter = holds(ctx, setup->model_dir, "adapter_config.json", &status);
    bool model = holds(ctx, setup->model_dir, "config.json", &status);
    EBB_TRY(status);
    if (adapter && !model) {
        if (setup->adapter_dir)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "both model_name_or_path ('%s') and adapter_name_or_path ('%s') are "
                            "adapters\n"
                            "try:   the base model as model_name_or_path",
                            config->model_name_or_path, config->adapter_name_or_path);
        setup->adapter_dir = setup->model_dir;
        setup->model_dir = NULL;
        EBB_TRY(find_base(setup, env));
        ebb_log(ctx, EBB_LOG_INFO, "model", "%s is an adapter of %s", config->model_name_or_path,
                setup->base_name);
        return EBB_OK;
    }
    setup->base_name = ebb_mem_strdup(ctx, config->model_name_or_path);
    return setup->base_name ? EBB_OK : EBB_NO_MEMORY;
}

enum ebb_status ebb_setup_cache(struct ebb_ctx *ctx, const struct ebb_recipe_env *env,
                                const char *name, char **dir)
{
    const char *home = env->hub.home, *cache = env->cache_home;
    *dir = NULL;
    if (cache && cache[0] == '/') /* XDG: what is not absolute is ignored */
        *dir = ebb_mem_format(ctx, "%s/ebb/%s", cache, name);
    else if (home && home[0])
        *dir = ebb_mem_format(ctx, "%s/.cache/ebb/%s", home, name);
    else
        return EBB_OK;
    return *dir ? EBB_OK : EBB_NO_MEMORY;
}

/* GPU: what driver and libraries take, until a dry step has measured it (536 MiB on an H200 with
 * driver 580, cuBLASLt 13.1 and cuDNN 9.19), and what is left free where no budget is named. */
enum { OVERHEAD_BYTES = 560 << 20, SPARE_BYTES = 256 << 20 };

int64_t ebb_setup_overhead(enum ebb_backend backend)
{
    return backend == EBB_BACKEND_CUDA ? OVERHEAD_BYTES : 0;
}

int64_t ebb_setup_free_bytes(struct ebb_ctx *ctx, enum ebb_backend backend)
{
    int64_t available = backend == EBB_BACKEND_CUDA ? ebb_backend_bytes_free(ctx, backend) : 0;
    return available > SPARE_BYTES ? available - SPARE_BYTES : available > 0 ? 1 : 0;
}

/* The GPU that a plan is for, by its name. */
static enum ebb_status find_gpu(struct ebb_setup *setup)
{
    struct ebb_str names = {0};
    enum ebb_status status = EBB_OK;
    int64_t count;
    const struct ebb_gpu *gpus = ebb_gpus(&count);
    setup->gpu = ebb_gpu_find(setup->config->gpu);
    if (setup->gpu) return EBB_OK;
    for (int64_t i = 0; status == EBB_OK && i < count; i++)
        status = ebb_str_addf(setup->ctx, &names, "%s%s", i ? ", " : "", gpus[i].name);
    if (status == EBB_OK)
        status = EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                          "gpu: there is no data sheet of '%s'\n"
                          "where: %s\n"
                          "try:   one of these: %s; or memory_budget: SIZE on this machine",
                          setup->config->gpu, ebb_options_where(setup->options, "gpu"), names.data);
    ebb_str_free(setup->ctx, &names);
    return status;
}

/* What work costs there: the plan is searched by it, and its steps are forecast. */
static enum ebb_status find_rates(struct ebb_setup *setup)
{
    struct ebb_engine_request *request = &setup->request;
    const struct ebb_machine machine = {.env = setup->env,
                                        .backend = request->backend,
                                        .storage = request->storage,
                                        .threads = request->threads};
    bool found = setup->gpu != NULL;
    if (setup->gpu)
        ebb_gpu_rates(setup->gpu, request->storage, &setup->rates);
    else
        EBB_TRY(ebb_machine_rates(setup->ctx, &machine, &setup->rates, &found));
    if (!found) return EBB_OK;
    request->rates = &setup->rates;
    return ebb_outlook_load(setup);
}

/* Where the model runs, and what of it is a matter of taste there. */
static enum ebb_status fill_machine(struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    struct ebb_engine_request *request = &setup->request;
    request->threads = (int)config->threads;
    request->profile = config->profile;
    request->backend = ebb_config_backend(config);
    request->deterministic = config->deterministic;
    request->attention = (enum ebb_attention_choice)config->attn_implementation;
    if (config->gpu) EBB_TRY(find_gpu(setup));
    request->device_budget =
        setup->gpu && config->memory_budget.percent > 0
            ? (int64_t)(config->memory_budget.percent / 100 * (double)setup->gpu->bytes)
            : ebb_setup_budget(&config->memory_budget, request->backend);
    setup->budget_given = request->device_budget > 0;
    if (setup->gpu) {
        request->planned = true;
        request->overhead_bytes = OVERHEAD_BYTES;
        if (!setup->budget_given) request->device_budget = setup->gpu->bytes - SPARE_BYTES;
    } else if (request->backend == EBB_BACKEND_CUDA) {
        request->overhead_bytes = ebb_setup_overhead(request->backend);
        request->free_bytes[EBB_SPACE_DEVICE] =
            ebb_backend_bytes_free(setup->ctx, request->backend);
        if (!setup->budget_given)
            request->device_budget = ebb_setup_free_bytes(setup->ctx, request->backend);
    }
    EBB_TRY(ebb_setup_cache(setup->ctx, setup->env, "attention", &setup->attention_cache));
    request->cache_dir = setup->attention_cache;
    return EBB_OK;
}

enum ebb_status ebb_setup_model(struct ebb_ctx *ctx, struct ebb_options *options,
                                const struct ebb_config *config, const struct ebb_recipe_env *env,
                                struct ebb_setup *setup)
{
    setup->ctx = ctx;
    setup->options = options;
    setup->config = config;
    setup->env = env;
    EBB_TRY(find_dirs(setup, env));
    EBB_TRY(ebb_model_config_load(ctx, setup->model_dir, &setup->model));
    EBB_TRY(ebb_weight_list_create(ctx, setup->model, &setup->weights));
    struct ebb_engine_request *request = &setup->request;
    request->model_dir = setup->model_dir;
    request->adapter_dir = setup->adapter_dir;
    if (config->dtype == EBB_DTYPE_KEY_AUTO)
        request->storage = setup->model->dtype == EBB_F32 ? EBB_F32 : EBB_BF16;
    else
        request->storage = config->dtype == EBB_DTYPE_KEY_FLOAT32 ? EBB_F32 : EBB_BF16;
    request->seed = (uint64_t)config->seed;
    request->streams = config->activation_offloading_use_streams;
    EBB_TRY(fill_machine(setup));
    return ebb_setup_activations(setup);
}

int64_t ebb_setup_budget(const struct ebb_amount *amount, enum ebb_backend backend)
{
    if (amount->bytes > 0) return amount->bytes;
    if (amount->percent > 0)
        return (int64_t)(amount->percent / 100 * (double)ebb_backend_bytes_total(backend));
    return 0;
}

/* A model directory without a tokenizer that Ebb reads. */
static enum ebb_status want_tokenizer(struct ebb_setup *setup)
{
    char *path = ebb_path_join(setup->ctx, setup->model_dir, "tokenizer.json");
    if (path == NULL) return EBB_NO_MEMORY;
    bool there = ebb_file_exists(path);
    ebb_mem_free(setup->ctx, path);
    if (there) return EBB_OK;
    return EBB_FAIL(setup->ctx, EBB_BAD_FILE,
                    "there is no tokenizer.json in '%s'\n"
                    "try:   copy the model's tokenizer there; transformers' "
                    "AutoTokenizer...save_pretrained makes one from a tokenizer.model\n"
                    "       for a model of 'ebb init': --tokenizer bytes",
                    setup->model_dir);
}

enum ebb_status ebb_setup_tokenizer(struct ebb_setup *setup)
{
    EBB_TRY(want_tokenizer(setup));
    EBB_TRY(ebb_tokenizer_load(setup->ctx, setup->model_dir, &setup->tokenizer));
    int64_t tokens = ebb_tokenizer_vocab_size(setup->tokenizer);
    if (tokens > setup->model->vocab)
        return EBB_FAIL(setup->ctx, EBB_BAD_FILE,
                        "the tokenizer in '%s' has %lld tokens, but the model's embedding has "
                        "%lld rows: they do not belong together",
                        setup->model_dir, (long long)tokens, (long long)setup->model->vocab);
    return EBB_OK;
}

/* ---- the time -------------------------------------------------------------------------------- */

/* It is kept as the clock on the wall showed it, so that another time zone shows the same day. */
static enum ebb_status read_time(struct ebb_setup *setup, const char *format, const char *from)
{
    struct tm parts;
    memset(&parts, 0, sizeof parts);
    const char *end = strptime(setup->data_time, format, &parts);
    parts.tm_isdst = -1; /* to be found out */
    time_t now = mktime(&parts);
    if (end == NULL || *end || now == (time_t)-1)
        return EBB_FAIL(setup->ctx, EBB_BAD_FILE,
                        "%s: 'data_time' is no time: '%s'\n"
                        "try:   another one; this one was changed after it was written",
                        from, setup->data_time);
    setup->now = now;
    return EBB_OK;
}

enum ebb_status ebb_setup_time(struct ebb_setup *setup, const char *resume)
{
    static const char format[] = "%Y-%m-%dT%H:%M:%S";
    const char *saved = setup->config->teacher_logits;
    char *text = setup->data_time;
    struct tm parts;
    time_t now = time(NULL);
    if (resume)
        EBB_TRY(ebb_checkpoint_data_time(setup->ctx, resume, text));
    else if (saved)
        EBB_TRY(ebb_teacher_data_time(setup->ctx, saved, text, EBB_DATA_TIME));
    if (text[0]) return read_time(setup, format, resume ? resume : saved);
    if (localtime_r(&now, &parts) == NULL || strftime(text, EBB_DATA_TIME, format, &parts) == 0)
        return EBB_FAIL(setup->ctx, EBB_FAILED, "the clock shows no time that can be written down");
    setup->now = now;
    return EBB_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* What samples may be at most: max_length, or what the model takes. */
static int64_t length_limit(struct ebb_setup *setup)
{
    int64_t model = setup->model->max_positions;
    if (setup->config->max_length == EBB_AUTO_INT) return model;
    if (setup->config->max_length > model)
        ebb_warn_once(setup->ctx, "max_length",
                      "max_length %lld is beyond the %lld positions that the model was made for",
                      (long long)setup->config->max_length, (long long)model);
    return setup->config->max_length;
}

bool ebb_setup_has_data(const struct ebb_config *config)
{
    return config->dataset_name || config->datasets;
}

/* Packing that takes samples of any length. */
static bool splits_samples(const struct ebb_config *config)
{
    return config->packing && config->packing_strategy != EBB_PACKING_BFD;
}

/* Where tokenized sets are kept; the caller frees. NULL: nowhere. */
static enum ebb_status find_cache(struct ebb_setup *setup, char **dir)
{
    const char *key = setup->config->dataset_cache;
    bool wanted = true;
    *dir = NULL;
    if (strcmp(key, "auto") != 0 && !ebb_text_bool(key, &wanted)) {
        *dir = ebb_mem_strdup(setup->ctx, key);
        return *dir ? EBB_OK : EBB_NO_MEMORY;
    }
    return wanted ? ebb_setup_cache(setup->ctx, setup->env, "datasets", dir) : EBB_OK;
}

static enum ebb_loss_part loss_part(int key)
{
    return key == EBB_AUTO   ? EBB_LOSS_PART_AUTO
           : key == EBB_TRUE ? EBB_LOSS_PART_TRUE
                             : EBB_LOSS_PART_FALSE;
}

static bool signal_waits(const struct ebb_recipe_env *env)
{
    struct pollfd wait = {.fd = env->stop_fd, .events = POLLIN};
    return env->stop_fd >= 0 && poll(&wait, 1, 0) > 0;
}

static bool is_interrupted(void *user)
{
    const struct ebb_setup *setup = user;
    return signal_waits(setup->env);
}

static enum ebb_status load_set(struct ebb_setup *setup, const struct ebb_sources *sources,
                                struct ebb_dataset **dataset)
{
    const struct ebb_config *config = setup->config;
    char *cache = NULL;
    EBB_TRY(find_cache(setup, &cache));
    struct ebb_dataset_options options = {.sources = sources->items,
                                          .source_count = sources->count,
                                          .purpose = setup->purpose,
                                          .chat = setup->chat,
                                          .chat_kwargs = setup->chat_kwargs,
                                          .now = setup->now,
                                          .completion_only =
                                              loss_part(config->completion_only_loss),
                                          .assistant_only = loss_part(config->assistant_only_loss),
                                          .last_turn_only = config->last_turn_only_loss,
                                          .max_length = length_limit(setup),
                                          .overlong = (enum ebb_overlong)config->overlong,
                                          .truncation_side =
                                              (enum ebb_truncation_side)config->truncation_side,
                                          .keep_overlong = splits_samples(config),
                                          .max_samples = config->dataset_max_samples,
                                          .max_bad_records = config->max_bad_records,
                                          .seed = (uint64_t)config->seed,
                                          .cache_dir = cache,
                                          .interrupted = is_interrupted,
                                          .interrupted_user = setup};
    enum ebb_status status = ebb_dataset_load(setup->ctx, setup->tokenizer, &options, dataset);
    ebb_mem_free(setup->ctx, cache);
    return status;
}

/* An adapter that was trained with a template of its own has it beside it. */
enum ebb_status ebb_setup_chat(struct ebb_setup *setup)
{
    enum ebb_status status = EBB_OK;
    if (setup->chat_known) return EBB_OK;
    bool beside =
        setup->adapter_dir && holds(setup->ctx, setup->adapter_dir, "chat_template.jinja", &status);
    EBB_TRY(status);
    setup->other_chat = beside || ebb_chat_is_other(setup->config);
    if (setup->chat_kwargs == NULL)
        EBB_TRY(ebb_chat_kwargs(setup->ctx, setup->config, &setup->chat_kwargs));
    EBB_TRY(ebb_chat_load(setup->ctx, setup->options, setup->config, setup->env->chat_builtin,
                          beside ? setup->adapter_dir : setup->model_dir, setup->tokenizer,
                          &setup->chat));
    setup->chat_known = true;
    return EBB_OK;
}

enum ebb_status ebb_setup_saved_chat(struct ebb_setup *setup)
{
    bool kwargs = json_object_size(setup->chat_kwargs) > 0;
    if (setup->saved_chat || setup->chat == NULL || !(kwargs || setup->other_chat)) return EBB_OK;
    return ebb_chat_template_with_defaults(setup->ctx, setup->chat, setup->chat_kwargs,
                                           &setup->saved_chat);
}

/* The keys of chat templates have an effect where one of the sets is chats. */
static enum ebb_status check_chat_keys(struct ebb_setup *setup)
{
    static const char *const keys[] = {"chat_template", "chat_template_kwargs"};
    const struct ebb_dataset *sets[] = {setup->train_set, setup->eval_set};
    const char *format = NULL;
    if (setup->config->eval_prompts) return EBB_OK; /* they may be messages */
    for (int i = 0; i < 2; i++) {
        if (sets[i] && sets[i]->chat) return EBB_OK;
        if (sets[i]) format = sets[i]->format;
    }
    for (int i = 0; i < 2; i++)
        if (ebb_options_is_set(setup->options, keys[i]) &&
            (i == 1 || ebb_chat_is_other(setup->config)))
            return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                            "'%s' has no effect: the data has no chats (format %s)\n"
                            "where: %s\n"
                            "try:   remove it, or records with 'messages'",
                            keys[i], format, ebb_options_where(setup->options, keys[i]));
    return EBB_OK;
}

/* completion_only_loss: false asks for prompts to be trained, and of whole chats that is another
 * key's. Axolotl's train_on_inputs: true is both there. */
static enum ebb_status check_prompts(struct ebb_setup *setup)
{
    const struct ebb_dataset *set = setup->train_set ? setup->train_set : setup->eval_set;
    struct ebb_origin origin = ebb_options_origin(setup->options, "completion_only_loss");
    if (setup->config->completion_only_loss != EBB_FALSE || !set->chat) return EBB_OK;
    if (strcmp(set->format, "messages") != 0 && strcmp(set->format, "sharegpt") != 0) return EBB_OK;
    return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                    "'%s' has no effect: chats have no prompt beside them (format %s)\n"
                    "where: %s\n"
                    "try:   assistant_only_loss: false, which trains whole conversations",
                    origin.key, set->format,
                    ebb_options_where(setup->options, "completion_only_loss"));
}

/* A chat template whose end of a turn is no special token of this tokenizer teaches the model to
 * talk on. */
static void warn_of_no_end(struct ebb_setup *setup)
{
    const struct ebb_dataset *set = setup->train_set;
    if (!set->chat || ebb_survey_ended(set, setup->tokenizer) > 0) return;
    ebb_warn_once(
        setup->ctx, "no end",
        "no sample ends with a trained special token, so the model will not learn to "
        "stop: the chat template ends a turn with something that is no special token of "
        "this tokenizer ('ebb data' shows samples; chat_template names another template)");
}

static enum ebb_status load_sets(struct ebb_setup *setup)
{
    struct ebb_ctx *ctx = setup->ctx;
    const struct ebb_config *config = setup->config;
    EBB_TRY(ebb_setup_chat(setup));
    EBB_TRY(
        ebb_sources_create(ctx, setup->options, config, EBB_SHARE_TRAIN, &setup->train_sources));
    EBB_TRY(load_set(setup, &setup->train_sources, &setup->train_set));
    warn_of_no_end(setup);
    if (config->eval_strategy != EBB_STRATEGY_KEY_NO) {
        EBB_TRY(
            ebb_sources_create(ctx, setup->options, config, EBB_SHARE_EVAL, &setup->eval_sources));
        EBB_TRY(load_set(setup, &setup->eval_sources, &setup->eval_set));
    }
    EBB_TRY(check_prompts(setup));
    return check_chat_keys(setup);
}

/* max_length: auto is the longest sample; where packing splits samples, the data may hold some that
 * the model has no positions for. */
static void settle_length(struct ebb_setup *setup)
{
    int64_t longest = setup->train_set ? setup->train_set->longest : 0;
    if (setup->eval_set && setup->eval_set->longest > longest) longest = setup->eval_set->longest;
    setup->max_length = setup->config->max_length;
    if (setup->max_length != EBB_AUTO_INT) return;
    bool split = longest > setup->model->max_positions;
    setup->max_length = split ? setup->model->max_positions : longest;
    ebb_log(setup->ctx, EBB_LOG_INFO, "data", "max_length: %lld, %s", (long long)setup->max_length,
            split ? "what the model has positions for" : "the longest sample");
}

/* With packing a pair goes into one row, so a row's length is the longest pair's. */
static void settle_rows(struct ebb_setup *setup)
{
    const struct ebb_dataset *sets[] = {setup->train_set, setup->eval_set};
    int64_t longest = setup->max_length;
    if (setup->config->max_length != EBB_AUTO_INT || !setup->config->packing) return;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; sets[k] && sets[k]->group == 2 && i + 1 < sets[k]->count; i += 2) {
            int64_t pair = ebb_dataset_length(sets[k], i) + ebb_dataset_length(sets[k], i + 1);
            if (pair > longest) longest = pair;
        }
    if (longest == setup->max_length) return;
    setup->max_length = longest;
    ebb_log(setup->ctx, EBB_LOG_INFO, "data", "max_length: %lld for a row, the longest pair",
            (long long)longest);
}

static void widen(struct ebb_capacity *capacity, const struct ebb_loader *loader)
{
    const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
    if (facts->tokens_max > capacity->tokens) capacity->tokens = facts->tokens_max;
    if (facts->docs_max > capacity->docs) capacity->docs = facts->docs_max;
    if (facts->longest > capacity->doc_tokens) capacity->doc_tokens = facts->longest;
}

static enum ebb_status create_loader(struct ebb_setup *setup, const struct ebb_dataset *dataset,
                                     int64_t batch, bool train, struct ebb_loader **loader)
{
    const struct ebb_config *config = setup->config;
    struct ebb_loader_options options = {.packing = config->packing,
                                         .strategy =
                                             (enum ebb_packing_strategy)config->packing_strategy,
                                         .shuffle = train && config->shuffle,
                                         .group_by_length = train && config->group_by_length,
                                         .per_device_batch_size = batch,
                                         .max_length = setup->max_length,
                                         .seed = (uint64_t)config->seed,
                                         .world = 1};
    EBB_TRY(ebb_loader_create(setup->ctx, dataset, &options, loader));
    widen(&setup->request.capacity, *loader);
    return EBB_OK;
}

/* Without data: a micro-batch of whole rows. Packed rows may hold many documents, of which only
 * the table of their starts grows. */
enum ebb_status ebb_setup_assume(struct ebb_setup *setup, int64_t max_length)
{
    const struct ebb_config *config = setup->config;
    struct ebb_capacity *capacity = &setup->request.capacity;
    setup->max_length = max_length;
    int64_t batch = config->per_device_train_batch_size;
    if (config->eval_strategy != EBB_STRATEGY_KEY_NO && setup->eval_batch > batch)
        batch = setup->eval_batch;
    if (setup->purpose == EBB_PURPOSE_PREFERENCE) batch *= 2; /* a pair is two rows */
    capacity->tokens = batch * setup->max_length;             /* at most 2^17 * 1e8 */
    if (capacity->tokens > INT32_MAX)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "a micro-batch of %lld rows of max_length %lld would have %lld tokens, "
                        "more than 2^31\n"
                        "where: %s",
                        (long long)batch, (long long)setup->max_length, (long long)capacity->tokens,
                        ebb_options_where(setup->options, "max_length"));
    capacity->docs = config->packing ? batch + capacity->tokens / EBB_ASSUMED_DOC_LEAST : batch;
    capacity->doc_tokens = setup->max_length;
    return EBB_OK;
}

static enum ebb_status assume_capacity(struct ebb_setup *setup)
{
    const int64_t max_length = setup->config->max_length;
    if (max_length == EBB_AUTO_INT)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "without dataset_name 'ebb plan' needs max_length\n"
                        "try:   max_length=2048, or dataset_name=FILE to plan for its samples");
    return ebb_setup_assume(setup, max_length == EBB_LONGEST ? 512 : max_length);
}

/* KTO trains each answer beside one that belongs to another prompt. */
static enum ebb_status add_kl(struct ebb_setup *setup)
{
    struct ebb_dataset **sets[] = {&setup->train_set, &setup->eval_set};
    if (ebb_dpo_loss(setup->config, setup->train_set) != EBB_PREFERENCE_KTO) return EBB_OK;
    for (int i = 0; i < 2; i++) {
        struct ebb_dataset *with;
        if (*sets[i] == NULL) continue;
        EBB_TRY(ebb_dataset_add_kl(setup->ctx, *sets[i], setup->max_length, &with));
        ebb_dataset_free(setup->ctx, *sets[i]);
        *sets[i] = with;
    }
    return EBB_OK;
}

enum ebb_status ebb_setup_feeds(struct ebb_setup *setup, const struct ebb_engine *engine)
{
    const struct ebb_objective *objective = ebb_engine_objective(engine);
    bool given = ebb_objective_has_logprobs(objective), kinds = ebb_objective_has_kinds(objective);
    struct ebb_feed_sources sources = {.dataset = setup->train_set,
                                       .teacher = setup->teacher,
                                       .reference = given ? &setup->train_reference : NULL};
    if (setup->teacher || given || kinds)
        EBB_TRY(ebb_feed_create(setup->ctx, engine, &sources, &setup->train_feed));
    if (setup->eval == NULL || (!given && !kinds)) return EBB_OK;
    sources = (struct ebb_feed_sources){.dataset = setup->eval_set,
                                        .reference = given ? &setup->eval_reference : NULL};
    return ebb_feed_create(setup->ctx, engine, &sources, &setup->eval_feed);
}

enum ebb_status ebb_setup_data(struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    setup->eval_batch = config->per_device_eval_batch_size;
    if (setup->eval_batch == EBB_AUTO_INT) setup->eval_batch = config->per_device_train_batch_size;
    if (!ebb_setup_has_data(config)) return assume_capacity(setup);
    EBB_TRY(load_sets(setup));
    settle_length(setup);
    if (setup->purpose == EBB_PURPOSE_PREFERENCE) {
        if (ebb_options_command(setup->options) == EBB_COMMAND_DATA) return EBB_OK;
        EBB_TRY(add_kl(setup));
        settle_rows(setup);
    }
    EBB_TRY(create_loader(setup, setup->train_set, config->per_device_train_batch_size, true,
                          &setup->train));
    if (setup->eval_set)
        EBB_TRY(create_loader(setup, setup->eval_set, setup->eval_batch, false, &setup->eval));
    return EBB_OK;
}

enum ebb_status ebb_setup_eval_data(struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    if (!config->eval_dataset && !ebb_setup_has_data(config))
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "'ebb eval' needs 'dataset_name' or 'eval_dataset'\n"
                        "help:  ebb help dataset_name");
    setup->eval_batch =
        config->per_device_eval_batch_size == EBB_AUTO_INT ? 1 : config->per_device_eval_batch_size;
    EBB_TRY(ebb_setup_chat(setup));
    EBB_TRY(ebb_sources_create(setup->ctx, setup->options, config, EBB_SHARE_EVAL,
                               &setup->eval_sources));
    EBB_TRY(load_set(setup, &setup->eval_sources, &setup->eval_set));
    EBB_TRY(check_prompts(setup));
    EBB_TRY(check_chat_keys(setup));
    settle_length(setup);
    return create_loader(setup, setup->eval_set, setup->eval_batch, false, &setup->eval);
}

/* ---- training -------------------------------------------------------------------------------- */

static enum ebb_status make_adapter(struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    setup->new_adapter = config->use_peft && setup->adapter_dir == NULL;
    if (!setup->new_adapter) return EBB_OK;
    struct ebb_adapter_config *adapter = &setup->adapter;
    adapter->rank = config->lora_r;
    adapter->alpha = config->lora_alpha;
    adapter->dropout = config->lora_dropout;
    adapter->rslora = config->use_rslora;
    adapter->base_model = ebb_mem_strdup(setup->ctx, setup->base_name);
    if (adapter->base_model == NULL) return EBB_NO_MEMORY;
    EBB_TRY(ebb_adapter_config_targets(setup->ctx, &setup->weights, config->lora_target_modules,
                                       adapter));
    setup->request.new_adapter = adapter;
    return EBB_OK;
}

int64_t ebb_setup_host_share(int64_t free_bytes)
{
    static const int64_t least = INT64_C(64) << 20;
    if (free_bytes <= 0) return 0;
    return free_bytes / 4 * 3 > least ? free_bytes / 4 * 3 : least;
}

/* Where no budget is named, a share of what is free now. Beside a GPU that is not here it is not
 * known, and so much is assumed. A CPU that stands in for a GPU has one memory for both, of which
 * memory_budget may name more than there is: the share is of all that is free, and only where a
 * plan is searched, which would take all it can get. */
static void settle_host_budget(struct ebb_setup *setup)
{
    static const int64_t assumed = INT64_C(64) << 30;
    struct ebb_engine_request *request = &setup->request;
    const bool gpu = request->backend == EBB_BACKEND_CUDA;
    const int64_t free_bytes = ebb_backend_bytes_free(setup->ctx, EBB_BACKEND_CPU);
    if (!setup->gpu) request->free_bytes[EBB_SPACE_HOST] = free_bytes;
    if (!setup->gpu && !gpu) request->free_bytes[EBB_SPACE_DEVICE] = free_bytes;
    const int64_t share = setup->gpu ? assumed : ebb_setup_host_share(free_bytes);
    request->host_budget = ebb_setup_budget(&setup->config->host_memory_budget, EBB_BACKEND_CPU);
    request->pinned_budget =
        ebb_setup_budget(&setup->config->pinned_memory_budget, EBB_BACKEND_CPU);
    setup->host_given = request->host_budget > 0;
    setup->pinned_given = request->pinned_budget > 0;
    /* A GPU that is not here may be in a machine with more memory, if somebody says so. */
    if (gpu && !setup->gpu && !setup->pinned_given) request->pinned_budget = share;
    if (!setup->host_given && (gpu || request->rates != NULL)) request->host_budget = share;
}

int64_t ebb_setup_resumed_budget(int64_t now, int64_t recorded, int64_t free_bytes)
{
    return recorded <= 0 || (free_bytes > 0 && recorded > free_bytes) ? now : recorded;
}

/* Takes over one budget. False: that of now stands. */
static bool take_budget(int64_t recorded, int64_t free_bytes, int64_t *budget)
{
    int64_t taken = ebb_setup_resumed_budget(*budget, recorded, free_bytes);
    if (recorded <= 0 || taken != recorded) return false;
    *budget = taken;
    return true;
}

enum ebb_status ebb_setup_resumed(struct ebb_setup *setup, const char *resume)
{
    struct ebb_engine_request *request = &setup->request;
    struct ebb_run_budgets kept;
    char device[64] = "", host[64] = "", pinned[64] = "", bytes[32];
    EBB_TRY(ebb_run_record_budgets(setup->ctx, resume, &kept));
    /* On a CPU somebody named it, whatever is free. */
    int64_t free_bytes = request->backend == EBB_BACKEND_CUDA
                             ? ebb_backend_bytes_free(setup->ctx, request->backend)
                             : 0;
    if (!setup->budget_given)
        setup->budget_resumed = take_budget(kept.device, free_bytes, &request->device_budget);
    if (!setup->host_given)
        setup->host_resumed =
            take_budget(kept.host, ebb_backend_bytes_free(setup->ctx, EBB_BACKEND_CPU),
                        &request->host_budget);
    if (kept.pinned == 0 && setup->host_resumed) kept.pinned = kept.host; /* once all was pinned */
    if (!setup->pinned_given && request->backend == EBB_BACKEND_CUDA)
        setup->pinned_resumed =
            take_budget(kept.pinned, ebb_backend_bytes_free(setup->ctx, EBB_BACKEND_CPU),
                        &request->pinned_budget);
    if (setup->budget_resumed)
        snprintf(device, sizeof device, " memory_budget %s",
                 ebb_text_bytes(request->device_budget, bytes, sizeof bytes));
    if (setup->host_resumed)
        snprintf(host, sizeof host, "%s host_memory_budget %s", setup->budget_resumed ? "," : "",
                 ebb_text_bytes(request->host_budget, bytes, sizeof bytes));
    if (setup->pinned_resumed)
        snprintf(pinned, sizeof pinned, "%s pinned_memory_budget %s",
                 setup->budget_resumed || setup->host_resumed ? "," : "",
                 ebb_text_bytes(request->pinned_budget, bytes, sizeof bytes));
    if (setup->budget_resumed || setup->host_resumed || setup->pinned_resumed)
        ebb_log(setup->ctx, EBB_LOG_INFO, "resume", "budgets of the run that is resumed:%s%s%s",
                device, host, pinned);
    return EBB_OK;
}

enum ebb_status ebb_setup_training(struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    struct ebb_engine_request *request = &setup->request;
    EBB_TRY(make_adapter(setup));
    EBB_TRY(find_rates(setup));
    request->train = true;
    request->evaluate = setup->eval != NULL || config->eval_strategy != EBB_STRATEGY_KEY_NO;
    request->stochastic_rounding = config->stochastic_rounding;
    if (config->stochastic_rounding && request->storage == EBB_F32)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "stochastic_rounding has no effect: dtype auto is float32 for this model\n"
                        "where: %s\n"
                        "try:   dtype: bfloat16, or remove it",
                        ebb_options_where(setup->options, "stochastic_rounding"));
    request->optimizer = (struct ebb_optimizer_keys){.sgd = config->optim == EBB_OPTIM_KEY_SGD,
                                                     .beta1 = config->adam_beta1,
                                                     .beta2 = config->adam_beta2,
                                                     .eps = config->adam_epsilon,
                                                     .momentum = config->momentum,
                                                     .weight_decay = config->weight_decay};
    request->memory.gradient_checkpointing = (enum ebb_auto)config->gradient_checkpointing;
    request->memory.offload_params = (enum ebb_auto)config->offload_params;
    request->memory.offload_optimizer = (enum ebb_auto)config->offload_optimizer;
    request->memory.activation_offloading = (enum ebb_auto)config->activation_offloading;
    request->accumulation = config->gradient_accumulation_steps;
    request->breadth_first = (enum ebb_auto)config->gradient_accumulation_order;
    EBB_TRY(ebb_setup_check_order(setup));
    settle_host_budget(setup);
    request->max_grad_norm = config->max_grad_norm;
    return EBB_OK;
}

void ebb_setup_free(struct ebb_setup *setup)
{
    struct ebb_ctx *ctx = setup->ctx;
    if (ctx == NULL) return;
    ebb_feed_free(ctx, setup->train_feed);
    ebb_feed_free(ctx, setup->eval_feed);
    ebb_reference_free(ctx, &setup->train_reference);
    ebb_reference_free(ctx, &setup->eval_reference);
    ebb_teacher_free(ctx, setup->teacher);
    ebb_loader_free(ctx, setup->train);
    ebb_loader_free(ctx, setup->eval);
    ebb_dataset_free(ctx, setup->train_set);
    ebb_dataset_free(ctx, setup->eval_set);
    ebb_sources_free(ctx, &setup->train_sources);
    ebb_sources_free(ctx, &setup->eval_sources);
    ebb_samples_free(ctx, &setup->samples);
    ebb_chat_template_free(ctx, setup->chat);
    ebb_chat_template_free(ctx, setup->saved_chat);
    json_decref(setup->chat_kwargs);
    ebb_tokenizer_free(ctx, setup->tokenizer);
    ebb_adapter_config_clear(ctx, &setup->adapter);
    ebb_weight_list_free(ctx, &setup->weights);
    ebb_model_config_free(ctx, setup->model);
    ebb_mem_free(ctx, setup->model_dir);
    ebb_mem_free(ctx, setup->adapter_dir);
    ebb_mem_free(ctx, setup->teacher_dir);
    ebb_mem_free(ctx, setup->attention_cache);
    ebb_mem_free(ctx, setup->load_starts);
    ebb_mem_free(ctx, setup->base_name);
    memset(setup, 0, sizeof *setup);
}

enum ebb_status ebb_setup_poll(struct ebb_ctx *ctx, const struct ebb_recipe_env *env)
{
    if (!signal_waits(env)) return EBB_OK;
    return EBB_FAIL(ctx, EBB_INTERRUPTED, "interrupted before the first step: nothing was written");
}
