/* config.json to a shape. What differs between families is in their tables (model/family.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "model/config_int.h"

/* Keys that no family here computes, whatever the architecture says of them. */
static const struct ebb_refused_key refused_by_all[] = {
    {"quantization_config", 0},
    {"compression_config", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"logits_soft_cap", 0},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"n_routed_experts", 0},
    {"num_experts_per_tok", 0},
    {"moe_intermediate_size", 0},
    {"partial_rotary_factor", 1},
    {"rotary_pct", 1},
    {"use_mrope", 0},
    {"no_rope_layers", 0},
    {"attention_dropout", 0},
    {"attention_chunk_size", 0},
    {"attention_multiplier", 0},
    {"query_pre_attn_scalar", 0},
    {"use_bidirectional_attention", 0},
    {"is_causal", 1},
    {"is_encoder_decoder", 0},
    {"add_cross_attention", 0},
    {"q_lora_rank", 0},
    {"kv_lora_rank", 0},
    {"logit_scale", 1},
    {"logits_scaling", 1},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {NULL, 0},
};

/* ---- helpers shared with config_rope.c and family.c ---- */

const char *ebb_json_show(const json_t *value, char out[EBB_JSON_SHOW])
{
    size_t room = EBB_JSON_SHOW - 1;
    size_t bytes = value ? json_dumpb(value, out, room,
                                      JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))
                         : 0;
    if (bytes > room) {
        size_t cut = ebb_text_utf8_valid(out, room - 3);
        memcpy(out + cut, "...", 4);
    } else {
        out[bytes] = '\0';
    }
    if (bytes == 0) memcpy(out, "nothing", 8);
    return out;
}

bool ebb_json_is_neutral(const json_t *value, double neutral)
{
    if (value == NULL) return true;
    switch (json_typeof(value)) {
    case JSON_NULL:
        return true;
    case JSON_TRUE:
        return neutral == 1;
    case JSON_FALSE:
        return neutral == 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(value) == neutral;
    case JSON_STRING:
        return json_string_length(value) == 0;
    case JSON_ARRAY:
        return json_array_size(value) == 0;
    case JSON_OBJECT:
        return json_object_size(value) == 0;
    }
    return false;
}

enum ebb_status ebb_json_refuse(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                const struct ebb_refused_key *keys)
{
    char text[EBB_JSON_SHOW];
    for (; keys->key; keys++) {
        const json_t *value = json_object_get(json, keys->key);
        if (!ebb_json_is_neutral(value, keys->neutral))
            return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                            "%s: '%s' is %s, which this version of ebb does not compute", where,
                            keys->key, ebb_json_show(value, text));
    }
    return EBB_OK;
}

/* ---- architecture ---- */

static enum ebb_status fail_unknown(struct ebb_ctx *ctx, const char *where, const char *key,
                                    const char *name)
{
    struct ebb_str known = {0};
    const struct ebb_family *family;
    enum ebb_status status = EBB_OK;
    for (int64_t f = 0; status == EBB_OK && (family = ebb_family_at(f)) != NULL; f++)
        for (int a = 0; status == EBB_OK && family->architectures[a]; a++)
            status = ebb_str_addf(ctx, &known, "%s%s", known.bytes ? ", " : "",
                                  family->architectures[a]);
    if (status == EBB_OK)
        status = EBB_FAIL(ctx, EBB_UNSUPPORTED,
                          "%s: %s '%s' is not supported\nthis version of ebb knows %s", where, key,
                          name, known.data);
    ebb_str_free(ctx, &known);
    return status;
}

static enum ebb_status read_family(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                   const struct ebb_family **family)
{
    const json_t *list = json_object_get(json, "architectures");
    const char *type = NULL;
    bool has_type;
    EBB_TRY(ebb_json_string(ctx, where, json, "model_type", &type, &has_type));
    *family = NULL;
    if (list && !json_is_null(list)) {
        const char *first = json_string_value(json_array_get(list, 0));
        if (first == NULL)
            return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'architectures' must be a list of names",
                            where);
        *family = ebb_family_find_architecture(first);
        if (*family == NULL) return fail_unknown(ctx, where, "architecture", first);
    } else if (has_type) {
        *family = ebb_family_find_model_type(type);
        if (*family == NULL) return fail_unknown(ctx, where, "model_type", type);
    } else {
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: neither 'architectures' nor 'model_type' says what model this is",
                        where);
    }
    if (has_type && strcmp(type, (*family)->model_type) != 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'model_type' is '%s', but 'architectures' says '%s' (model_type '%s')",
                        where, type, (*family)->architectures[0], (*family)->model_type);
    return EBB_OK;
}

/* ---- sizes ---- */

/* Token ids are int32, and no size of a model comes near this. */
static enum ebb_status in_range(struct ebb_ctx *ctx, const char *where, const char *key,
                                int64_t value)
{
    if (value < 1 || value > INT32_MAX)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is %lld, must be from 1 to %d", where, key,
                        (long long)value, INT32_MAX);
    return EBB_OK;
}

static enum ebb_status read_size(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                 const char *key, int64_t *value)
{
    EBB_TRY(ebb_json_int64(ctx, where, json, key, value, NULL));
    return in_range(ctx, where, key, *value);
}

/* The same for a key that may be missing: *value keeps its default. */
static enum ebb_status read_size_or(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                    const char *key, int64_t *value, bool *found)
{
    EBB_TRY(ebb_json_int64(ctx, where, json, key, value, found));
    return *found ? in_range(ctx, where, key, *value) : EBB_OK;
}

static enum ebb_status read_head_dim(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                     struct ebb_model_config *config)
{
    bool found;
    EBB_TRY(read_size_or(ctx, where, json, "head_dim", &config->head_dim, &found));
    if (!found) {
        if (config->family->head_dim_needed)
            return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'head_dim' is missing; a %s model must give it",
                            where, config->family->name);
        if (config->width % config->heads != 0)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: 'hidden_size' (%lld) is not a multiple of 'num_attention_heads' "
                            "(%lld), and there is no "
                            "'head_dim'",
                            where, (long long)config->width, (long long)config->heads);
        config->head_dim = config->width / config->heads;
    }
    if (config->head_dim % 2 != 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: the head size is %lld, must be even for rotary embedding", where,
                        (long long)config->head_dim);
    return EBB_OK;
}

static enum ebb_status read_sizes(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                  struct ebb_model_config *config)
{
    enum { LAYERS_MOST = 100000 }; /* a window is kept per layer; more than this is a broken file */
    bool found;
    EBB_TRY(read_size(ctx, where, json, "hidden_size", &config->width));
    EBB_TRY(read_size(ctx, where, json, "intermediate_size", &config->ffn));
    EBB_TRY(read_size(ctx, where, json, "num_hidden_layers", &config->layers));
    EBB_TRY(read_size(ctx, where, json, "num_attention_heads", &config->heads));
    EBB_TRY(read_size(ctx, where, json, "vocab_size", &config->vocab));
    EBB_TRY(read_size(ctx, where, json, "max_position_embeddings", &config->max_positions));
    config->kv_heads = config->heads;
    EBB_TRY(read_size_or(ctx, where, json, "num_key_value_heads", &config->kv_heads, &found));
    if (config->heads % config->kv_heads != 0)
        return EBB_FAIL(
            ctx, EBB_BAD_FILE,
            "%s: 'num_attention_heads' (%lld) is not a multiple of 'num_key_value_heads' (%lld)",
            where, (long long)config->heads, (long long)config->kv_heads);
    if (config->layers > LAYERS_MOST)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'num_hidden_layers' is %lld, must be from 1 to %d",
                        where, (long long)config->layers, LAYERS_MOST);
    return read_head_dim(ctx, where, json, config);
}

/* ---- the rest ---- */

static enum ebb_status read_flag(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                 const struct ebb_family_flag *flag, bool *value)
{
    bool found;
    *value = flag->value;
    return flag->key ? ebb_json_bool(ctx, where, json, flag->key, value, &found) : EBB_OK;
}

static enum ebb_status read_flags(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                  struct ebb_model_config *config)
{
    const struct ebb_family *family = config->family;
    EBB_TRY(read_flag(ctx, where, json, &family->tied, &config->tied));
    EBB_TRY(read_flag(ctx, where, json, &family->qkv_bias, &config->qkv_bias));
    EBB_TRY(read_flag(ctx, where, json, &family->o_bias, &config->o_bias));
    EBB_TRY(read_flag(ctx, where, json, &family->mlp_bias, &config->mlp_bias));
    return read_flag(ctx, where, json, &family->qk_norm, &config->qk_norm);
}

static enum ebb_status read_numbers(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                    struct ebb_model_config *config)
{
    const char *act;
    EBB_TRY(ebb_json_double(ctx, where, json, "rms_norm_eps", &config->norm_eps, NULL));
    if (!(config->norm_eps > 0 && config->norm_eps < 1))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'rms_norm_eps' is %g, must be above 0 and below 1",
                        where, config->norm_eps);
    EBB_TRY(ebb_json_string(ctx, where, json, "hidden_act", &act, NULL));
    if (strcmp(act, "silu") != 0)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: 'hidden_act' is '%s'; this version of ebb computes 'silu'", where,
                        act);
    return ebb_rope_read(ctx, where, json, config->max_positions, &config->rope);
}

static enum ebb_status read_dtype(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                  enum ebb_dtype *dtype)
{
    static const enum ebb_dtype known[] = {EBB_F32, EBB_BF16, EBB_F16};
    const char *old = NULL, *new = NULL;
    bool has_old, has_new;
    EBB_TRY(ebb_json_string(ctx, where, json, "torch_dtype", &old, &has_old));
    EBB_TRY(ebb_json_string(ctx, where, json, "dtype", &new, &has_new));
    if (has_old && has_new && strcmp(old, new) != 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'torch_dtype' is '%s', but 'dtype' is '%s'", where,
                        old, new);
    *dtype = EBB_F32; /* what transformers takes where nothing is said */
    if (!has_old && !has_new) return EBB_OK;
    for (size_t d = 0; d < sizeof known / sizeof known[0]; d++)
        if (strcmp(ebb_dtype_name(known[d]), has_new ? new : old) == 0) {
            *dtype = known[d];
            return EBB_OK;
        }
    return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                    "%s: '%s' is '%s'; this version of ebb reads float32, bfloat16 and float16",
                    where, has_new ? "dtype" : "torch_dtype", has_new ? new : old);
}

/* ---- special tokens ---- */

/* An id outside the vocabulary can never be met; some tools write -1 for "none". */
static bool usable_id(struct ebb_ctx *ctx, const char *where, const char *key, int64_t id,
                      int64_t vocab)
{
    if (id >= 0 && id < vocab) return true;
    if (id != -1)
        ebb_warn_once(ctx, key,
                      "%s: '%s' is %lld, outside the vocabulary of %lld tokens; it is not used",
                      where, key, (long long)id, (long long)vocab);
    return false;
}

static enum ebb_status read_eos(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                struct ebb_model_config *config, bool *found)
{
    enum { MOST = sizeof config->eos_ids / sizeof config->eos_ids[0] };
    const json_t *value = json_object_get(json, "eos_token_id");
    char text[EBB_JSON_SHOW];
    *found = value && !json_is_null(value);
    if (!*found) return EBB_OK;
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count > MOST)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: 'eos_token_id' has %zu tokens, at most %d are supported", where, count,
                        (int)MOST);
    config->eos_count = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id))
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: 'eos_token_id' must be a token id or a list of them, found %s",
                            where, ebb_json_show(value, text));
        if (usable_id(ctx, where, "eos_token_id", json_integer_value(id), config->vocab))
            config->eos_ids[config->eos_count++] = json_integer_value(id);
    }
    return EBB_OK;
}

static enum ebb_status read_id(struct ebb_ctx *ctx, const char *where, const json_t *json,
                               const char *key, int64_t vocab, int64_t *id)
{
    int64_t value = -1;
    bool found;
    EBB_TRY(ebb_json_int64(ctx, where, json, key, &value, &found));
    if (found) *id = usable_id(ctx, where, key, value, vocab) ? value : -1;
    return EBB_OK;
}

static enum ebb_status read_tokens(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                   struct ebb_model_config *config)
{
    bool found;
    EBB_TRY(read_eos(ctx, where, json, config, &found));
    EBB_TRY(read_id(ctx, where, json, "bos_token_id", config->vocab, &config->bos_id));
    return read_id(ctx, where, json, "pad_token_id", config->vocab, &config->pad_id);
}

/* generation_config.json, where present, has the last word on tokens. */
static enum ebb_status read_generation(struct ebb_ctx *ctx, const char *dir,
                                       struct ebb_model_config *config)
{
    enum ebb_status status = EBB_OK;
    json_t *json = NULL;
    char *path = ebb_path_join(ctx, dir, "generation_config.json");
    if (path == NULL) return EBB_NO_MEMORY;
    if (ebb_file_exists(path)) {
        status = ebb_json_load(ctx, path, &json);
        if (status == EBB_OK && !json_is_object(json))
            status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: must be a JSON object", path);
        if (status == EBB_OK) status = read_tokens(ctx, path, json, config);
        json_decref(json);
    }
    ebb_mem_free(ctx, path);
    return status;
}

/* ---- loading ---- */

static enum ebb_status fill(struct ebb_ctx *ctx, const char *where, struct ebb_model_config *config)
{
    const json_t *json = config->json;
    int64_t elements;
    if (!json_is_object(json))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: must be a JSON object", where);
    EBB_TRY(read_family(ctx, where, json, &config->family));
    EBB_TRY(ebb_json_refuse(ctx, where, json, refused_by_all));
    EBB_TRY(ebb_json_refuse(ctx, where, json, config->family->refused));
    EBB_TRY(read_sizes(ctx, where, json, config));
    EBB_TRY(read_flags(ctx, where, json, config));
    EBB_TRY(read_numbers(ctx, where, json, config));
    EBB_TRY(read_dtype(ctx, where, json, &config->dtype));
    if (!ebb_weight_elements(config, &elements))
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: the sizes multiply to more parameters than can be counted", where);
    config->window = ebb_mem_alloc(ctx, (size_t)config->layers * sizeof *config->window);
    if (config->window == NULL) return EBB_NO_MEMORY;
    EBB_TRY(config->family->windows(ctx, where, json, config));
    config->bos_id = config->pad_id = -1;
    return read_tokens(ctx, where, json, config);
}

enum ebb_status ebb_model_config_load_file(struct ebb_ctx *ctx, const char *path,
                                           struct ebb_model_config **config)
{
    *config = NULL;
    struct ebb_model_config *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_json_load(ctx, path, &made->json);
    if (status == EBB_OK) status = fill(ctx, path, made);
    if (status != EBB_OK) {
        ebb_model_config_free(ctx, made);
        return status;
    }
    *config = made;
    return EBB_OK;
}

enum ebb_status ebb_model_config_load(struct ebb_ctx *ctx, const char *dir,
                                      struct ebb_model_config **config)
{
    *config = NULL;
    if (!ebb_dir_exists(dir)) return EBB_FAIL(ctx, EBB_BAD_CONFIG, "no model directory '%s'", dir);
    char *path = ebb_path_join(ctx, dir, "config.json");
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status;
    if (!ebb_file_exists(path))
        status =
            EBB_FAIL(ctx, EBB_BAD_FILE, "'%s' is no model directory: it has no config.json", dir);
    else
        status = ebb_model_config_load_file(ctx, path, config);
    if (status == EBB_OK) status = read_generation(ctx, dir, *config);
    if (status != EBB_OK) {
        ebb_model_config_free(ctx, *config);
        *config = NULL;
    }
    ebb_mem_free(ctx, path);
    return status;
}

void ebb_model_config_free(struct ebb_ctx *ctx, struct ebb_model_config *config)
{
    if (config == NULL) return;
    json_decref(config->json);
    ebb_mem_free(ctx, config->window);
    ebb_mem_free(ctx, config);
}

int64_t ebb_model_config_parameters(const struct ebb_model_config *config)
{
    int64_t elements = 0;
    bool counted = ebb_weight_elements(config, &elements);
    EBB_ASSERT(counted); /* loading has refused what cannot be counted */
    return elements;
}
