/* LoRA adapters in PEFT's format. Formula and file layout: model/adapter.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "model/config_int.h"

#define CONFIG_NAME "adapter_config.json"

/* ---- targets ---- */

void ebb_adapter_config_clear(struct ebb_ctx *ctx, struct ebb_adapter_config *config)
{
    for (int i = 0; i < config->target_count; i++) ebb_mem_free(ctx, config->targets[i]);
    ebb_mem_free(ctx, config->base_model);
    memset(config, 0, sizeof *config);
}

static void clear_targets(struct ebb_ctx *ctx, struct ebb_adapter_config *config)
{
    while (config->target_count > 0) ebb_mem_free(ctx, config->targets[--config->target_count]);
}

/* Adds a target once. `where` names its place for the message. */
static enum ebb_status add_target(struct ebb_ctx *ctx, const char *where, const char *name,
                                  size_t bytes, struct ebb_adapter_config *config)
{
    for (int i = 0; i < config->target_count; i++)
        if (strlen(config->targets[i]) == bytes && memcmp(config->targets[i], name, bytes) == 0)
            return EBB_OK;
    if (config->target_count == EBB_ADAPTER_TARGETS)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: more than %d different targets are not supported", where,
                        EBB_ADAPTER_TARGETS);
    char *copy = ebb_mem_strndup(ctx, name, bytes);
    if (copy == NULL) return EBB_NO_MEMORY;
    config->targets[config->target_count++] = copy;
    return EBB_OK;
}

static bool matches(const char *target, const struct ebb_weight *weight)
{
    size_t end = strlen(weight->module), bytes = strlen(target);
    if (bytes > end || memcmp(weight->module + end - bytes, target, bytes) != 0) return false;
    return bytes == end || weight->module[end - bytes - 1] == '.';
}

bool ebb_adapter_has(const struct ebb_adapter_config *config, const struct ebb_weight *weight)
{
    for (int i = 0; weight->module && i < config->target_count; i++)
        if (matches(config->targets[i], weight)) return true;
    return false;
}

static bool is_target(const struct ebb_weight_list *weights, const char *name)
{
    for (int64_t i = 0; i < weights->count; i++)
        if (weights->items[i].module && matches(name, &weights->items[i])) return true;
    return false;
}

/* All targets of the model, each once, in the order of the forward pass. Returns their number. */
static size_t list_targets(const struct ebb_weight_list *weights,
                           const char *names[EBB_ADAPTER_TARGETS])
{
    size_t count = 0;
    for (int64_t i = 0; i < weights->count; i++) {
        const char *target = weights->items[i].target;
        size_t t = 0;
        while (target && t < count && strcmp(names[t], target) != 0) t++;
        if (target && t == count && count < EBB_ADAPTER_TARGETS) names[count++] = target;
    }
    return count;
}

static enum ebb_status fail_target(struct ebb_ctx *ctx, enum ebb_status code, const char *where,
                                   const char *name, const struct ebb_weight_list *weights)
{
    const char *names[EBB_ADAPTER_TARGETS] = {NULL};
    size_t count = list_targets(weights, names);
    const char *near = ebb_text_nearest(name, names, count);
    struct ebb_str list = {0};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; status == EBB_OK && i < count; i++)
        status = ebb_str_addf(ctx, &list, "%s%s", i ? ", " : "", names[i]);
    if (status == EBB_OK)
        status = EBB_FAIL(
            ctx, code,
            "%s: the model has no '%s' that LoRA can go to%s%s%s\nit has %s, or all-linear for "
            "all of them",
            where, name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
            list.data ? list.data : "none");
    ebb_str_free(ctx, &list);
    return status;
}

static enum ebb_status parse_targets(struct ebb_ctx *ctx, const struct ebb_weight_list *weights,
                                     const char *text, struct ebb_adapter_config *config)
{
    const char *where = "lora_target_modules";
    for (const char *at = text; *at;) {
        size_t bytes = strcspn(at, ", \t\n");
        if (bytes == strlen("all-linear") && memcmp(at, "all-linear", bytes) == 0) {
            const char *names[EBB_ADAPTER_TARGETS];
            size_t count = list_targets(weights, names);
            for (size_t i = 0; i < count; i++)
                EBB_TRY(add_target(ctx, where, names[i], strlen(names[i]), config));
        } else if (bytes > 0) {
            EBB_TRY(add_target(ctx, where, at, bytes, config));
            const char *name = config->targets[config->target_count - 1];
            if (!is_target(weights, name))
                return fail_target(ctx, EBB_BAD_CONFIG, where, name, weights);
        }
        at += bytes;
        at += strspn(at, ", \t\n");
    }
    if (config->target_count == 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "%s: names no module\nall-linear takes every linear layer", where);
    return EBB_OK;
}

enum ebb_status ebb_adapter_config_targets(struct ebb_ctx *ctx,
                                           const struct ebb_weight_list *weights, const char *text,
                                           struct ebb_adapter_config *config)
{
    clear_targets(ctx, config);
    enum ebb_status status = parse_targets(ctx, weights, text, config);
    if (status != EBB_OK) clear_targets(ctx, config);
    return status;
}

enum ebb_status ebb_adapter_config_check(struct ebb_ctx *ctx, const struct ebb_weight_list *weights,
                                         const struct ebb_adapter_config *config)
{
    for (int i = 0; i < config->target_count; i++)
        if (!is_target(weights, config->targets[i]))
            return fail_target(ctx, EBB_UNSUPPORTED, CONFIG_NAME, config->targets[i], weights);
    return EBB_OK;
}

double ebb_adapter_scale(const struct ebb_adapter_config *config)
{
    return config->rslora ? config->alpha / sqrt((double)config->rank)
                          : config->alpha / (double)config->rank;
}

/* ---- adapter_config.json ---- */

/* PEFT's features that change the numbers or the files, and that Ebb does not have. */
static const struct ebb_refused_key refused[] = {
    {"use_dora", 0},
    {"modules_to_save", 0},
    {"rank_pattern", 0},
    {"alpha_pattern", 0},
    {"lora_bias", 0},
    {"layers_to_transform", 0},
    {"layers_pattern", 0},
    {"exclude_modules", 0},
    {"fan_in_fan_out", 0},
    {"layer_replication", 0},
    {"megatron_config", 0},
    {"trainable_token_indices", 0},
    {"target_parameters", 0},
    {"use_qalora", 0},
    {"use_bdlora", 0},
    {"alora_invocation_tokens", 0},
    {"arrow_config", 0},
    {"kasa_config", 0},
    {"velora_config", 0},
    {"monteclora_config", 0},
    {"ensure_weight_tying", 0},
    {"loftq_config", 0},
    {"corda_config", 0},
    {"lora_ga_config", 0},
    {NULL, 0},
};

/* Keys that are read here or that change nothing for one who only uses the adapter. */
static const char *const known[] = {
    "r",
    "lora_alpha",
    "lora_dropout",
    "use_rslora",
    "target_modules",
    "base_model_name_or_path",
    "peft_type",
    "task_type",
    "bias",
    "init_lora_weights",
    "auto_mapping",
    "inference_mode",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "eva_config",
};

static enum ebb_status read_targets(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                    struct ebb_adapter_config *config)
{
    const json_t *list = json_object_get(json, "target_modules");
    char text[EBB_JSON_SHOW];
    if (json_is_string(list))
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: 'target_modules' is the pattern %s; this version of ebb reads a list "
                        "of module names",
                        where, ebb_json_show(list, text));
    if (json_array_size(list) == 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'target_modules' must be a list of module names, found %s", where,
                        ebb_json_show(list, text));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        if (json_string_length(name) == 0)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: 'target_modules' must be a list of module names, found %s", where,
                            ebb_json_show(list, text));
        EBB_TRY(add_target(ctx, where, json_string_value(name), json_string_length(name), config));
    }
    return EBB_OK;
}

/* Text keys that may have few values. */
static enum ebb_status check_texts(struct ebb_ctx *ctx, const char *where, const json_t *json)
{
    const char *type = NULL, *task = NULL, *bias = NULL;
    char text[EBB_JSON_SHOW];
    bool found;
    EBB_TRY(ebb_json_string(ctx, where, json, "peft_type", &type, NULL));
    if (strcmp(type, "LORA") != 0)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: 'peft_type' is '%s'; this version of ebb reads LORA", where, type);
    EBB_TRY(ebb_json_string(ctx, where, json, "task_type", &task, &found));
    if (found && strcmp(task, "CAUSAL_LM") != 0)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: 'task_type' is '%s'; this version of ebb reads CAUSAL_LM", where,
                        task);
    EBB_TRY(ebb_json_string(ctx, where, json, "bias", &bias, &found));
    if (found && strcmp(bias, "none") != 0)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: 'bias' is '%s', trained biases are not supported", where, bias);
    /* PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA change the base weights as well, so the adapter
     * alone does not say enough. */
    const json_t *init = json_object_get(json, "init_lora_weights");
    const char *how = json_string_value(init);
    if (how && strcmp(how, "gaussian") != 0 && strcmp(how, "orthogonal") != 0 &&
        strcmp(how, "eva") != 0)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: 'init_lora_weights' is %s, which changes the base weights too\nsave "
                        "the adapter with PEFT's "
                        "path_initial_model_for_weight_conversion first",
                        where, ebb_json_show(init, text));
    return EBB_OK;
}

static enum ebb_status check_unknown(struct ebb_ctx *ctx, const char *where, json_t *json)
{
    const char *key;
    json_t *value;
    char text[EBB_JSON_SHOW];
    json_object_foreach(json, key, value)
    {
        bool is_known = ebb_json_is_neutral(value, 0);
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            is_known = is_known || strcmp(known[k], key) == 0;
        for (const struct ebb_refused_key *r = refused; r->key; r++)
            is_known = is_known || strcmp(r->key, key) == 0;
        if (!is_known)
            ebb_warn_once(
                ctx, key,
                "%s: '%s' is %s, a key that this version of ebb does not know; it is not used",
                where, key, ebb_json_show(value, text));
    }
    return EBB_OK;
}

static enum ebb_status read_config(struct ebb_ctx *ctx, const char *where, json_t *json,
                                   struct ebb_adapter_config *config)
{
    const char *base = NULL;
    bool found;
    if (!json_is_object(json))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: must be a JSON object", where);
    EBB_TRY(check_texts(ctx, where, json));
    EBB_TRY(ebb_json_refuse(ctx, where, json, refused));
    EBB_TRY(check_unknown(ctx, where, json));
    EBB_TRY(ebb_json_int64(ctx, where, json, "r", &config->rank, NULL));
    if (config->rank < 1 || config->rank > INT32_MAX)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'r' is %lld, must be at least 1", where,
                        (long long)config->rank);
    EBB_TRY(ebb_json_double(ctx, where, json, "lora_alpha", &config->alpha, NULL));
    EBB_TRY(ebb_json_double(ctx, where, json, "lora_dropout", &config->dropout, &found));
    if (!(config->dropout >= 0 && config->dropout < 1))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'lora_dropout' is %g, must be from 0 to below 1",
                        where, config->dropout);
    EBB_TRY(ebb_json_bool(ctx, where, json, "use_rslora", &config->rslora, &found));
    EBB_TRY(read_targets(ctx, where, json, config));
    EBB_TRY(ebb_json_string(ctx, where, json, "base_model_name_or_path", &base, &found));
    if (!found) return EBB_OK;
    config->base_model = ebb_mem_strdup(ctx, base);
    return config->base_model ? EBB_OK : EBB_NO_MEMORY;
}

enum ebb_status ebb_adapter_config_load(struct ebb_ctx *ctx, const char *dir,
                                        struct ebb_adapter_config *config)
{
    json_t *json = NULL;
    memset(config, 0, sizeof *config);
    char *path = ebb_path_join(ctx, dir, CONFIG_NAME);
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status;
    if (!ebb_file_exists(path))
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "'%s' is no adapter: it has no " CONFIG_NAME, dir);
    else
        status = ebb_json_load(ctx, path, &json);
    if (status == EBB_OK) status = read_config(ctx, path, json, config);
    json_decref(json);
    if (status != EBB_OK) ebb_adapter_config_clear(ctx, config);
    ebb_mem_free(ctx, path);
    return status;
}

/* PEFT writes whole alphas as integers. */
static json_t *alpha_json(double alpha)
{
    return alpha == floor(alpha) && fabs(alpha) < 1e15 ? json_integer((json_int_t)alpha)
                                                       : json_real(alpha);
}

static json_t *config_json(const struct ebb_adapter_config *config)
{
    json_t *targets = json_array();
    for (int i = 0; targets && i < config->target_count; i++)
        if (json_array_append_new(targets, json_string(config->targets[i])) != 0) {
            json_decref(targets);
            return NULL;
        }
    return json_pack("{s:{}, s:n, s:s?, s:s, s:b, s:b, s:b, s:n, s:n, s:n, s:{}, s:o, s:f, s:n, "
                     "s:s, s:n, s:s, s:I, "
                     "s:{}, s:n, s:o, s:s, s:b, s:b}",
                     "alpha_pattern", "auto_mapping", "base_model_name_or_path", config->base_model,
                     "bias", "none", "fan_in_fan_out", 0, "inference_mode", 1, "init_lora_weights",
                     1, "layer_replication", "layers_pattern", "layers_to_transform",
                     "loftq_config", "lora_alpha", alpha_json(config->alpha), "lora_dropout",
                     config->dropout, "megatron_config", "megatron_core", "megatron.core",
                     "modules_to_save", "peft_type", "LORA", "r", (json_int_t)config->rank,
                     "rank_pattern", "revision", "target_modules", targets, "task_type",
                     "CAUSAL_LM", "use_dora", 0, "use_rslora", (int)config->rslora);
}

enum ebb_status ebb_adapter_config_save(struct ebb_ctx *ctx, const char *dir,
                                        const struct ebb_adapter_config *config)
{
    char *path = ebb_path_join(ctx, dir, CONFIG_NAME);
    if (path == NULL) return EBB_NO_MEMORY;
    json_t *json = config_json(config);
    enum ebb_status status =
        json ? ebb_json_save(ctx, path, json)
             : EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while writing '%s'", path);
    json_decref(json);
    ebb_mem_free(ctx, path);
    return status;
}

/* ---- weights ---- */

char *ebb_adapter_tensor_name(struct ebb_ctx *ctx, const struct ebb_weight *weight, char which)
{
    EBB_ASSERT(weight->module && (which == 'A' || which == 'B'));
    return ebb_mem_format(ctx, "base_model.model.%s.lora_%c.weight", weight->module, which);
}

void ebb_adapter_init_a(const struct ebb_adapter_config *config, const struct ebb_weight *weight,
                        uint64_t seed, uint32_t instance, float *a)
{
    /* No training step has this number, so dropout never draws from the same stream. */
    uint64_t key = ebb_random_key(seed, UINT64_MAX, 0, 0, instance);
    float bound = (float)(1 / sqrt((double)weight->cols));
    int64_t count = config->rank * weight->cols;
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t words[4];
        ebb_philox(key, (uint64_t)i / 4, words);
        for (int64_t j = 0; j < 4 && i + j < count; j++)
            a[i + j] = (2 * ebb_uniform(words[j]) - 1) * bound;
    }
}

enum { MERGE_COLS = 512 };

/* sum[j] = (B A)[row, col0 + j], k in ascending order. */
static void low_rank_row(const float *a, const float *b_row, int64_t rank, int64_t cols,
                         int64_t col0, int64_t n, float *sum)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t k = 0; k < rank; k++) {
        const float *a_row = a + k * cols + col0;
        for (int64_t j = 0; j < n; j++) sum[j] += b_row[k] * a_row[j];
    }
}

static void store(const float *from, int64_t n, enum ebb_dtype dtype, void *out, int64_t at)
{
    for (int64_t j = 0; j < n; j++) {
        if (dtype == EBB_F32)
            ((float *)out)[at + j] = from[j];
        else
            ((uint16_t *)out)[at + j] =
                dtype == EBB_BF16 ? ebb_to_bf16(from[j]) : ebb_to_f16(from[j]);
    }
}

void ebb_adapter_merge(const struct ebb_adapter_config *config, const struct ebb_tensor_info *base,
                       const float *a, const float *b, int64_t row0, int64_t rows,
                       enum ebb_dtype dtype, void *out)
{
    EBB_ASSERT(base->dims == 2 && row0 >= 0 && row0 + rows <= base->shape[0]);
    EBB_ASSERT(dtype == EBB_F32 || dtype == EBB_BF16 || dtype == EBB_F16);
    int64_t cols = base->shape[1], rank = config->rank;
    float scale = (float)ebb_adapter_scale(config);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t col0 = 0; col0 < cols; col0 += MERGE_COLS) {
            float sum[MERGE_COLS], value[MERGE_COLS];
            int64_t n = cols - col0 < MERGE_COLS ? cols - col0 : MERGE_COLS;
            struct ebb_tensor_info part = *base;
            int64_t skip = ((row0 + r) * cols + col0) * ebb_dtype_bytes(base->dtype);
            part.data = (const unsigned char *)base->data + skip;
            part.bytes -= skip;
            ebb_tensor_copy(&part, 1, n, value, EBB_F32, n);
            low_rank_row(a, b + (row0 + r) * rank, rank, cols, col0, n, sum);
            for (int64_t j = 0; j < n; j++) value[j] += scale * sum[j];
            store(value, n, dtype, out, r * cols + col0);
        }
    }
}
