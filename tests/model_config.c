/* config.json to a shape and a list of weights: what each family says, and every way in which a
 * file can be wrong.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_test.h"

#include <math.h>

#include "model/family.h"
#include "model/weights.h"

static const char *const llama = "{'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', "
                                 "'hidden_size': 64, 'intermediate_size': 96, "
                                 "'num_hidden_layers': 3, 'num_attention_heads': 8, "
                                 "'num_key_value_heads': 2, 'vocab_size': 320, "
                                 "'max_position_embeddings': 2048, 'rms_norm_eps': 1e-05, "
                                 "'rope_theta': 10000.0, 'hidden_act': 'silu', "
                                 "'torch_dtype': 'bfloat16', 'bos_token_id': 1, 'eos_token_id': 2}";
static const char *const mistral = "{'architectures': ['MistralForCausalLM'], 'model_type': "
                                   "'mistral', 'hidden_size': 64, 'intermediate_size': 96, "
                                   "'num_hidden_layers': 2, 'num_attention_heads': 8, "
                                   "'num_key_value_heads': 2, 'vocab_size': 320, 'head_dim': 16, "
                                   "'max_position_embeddings': 2048, 'rms_norm_eps': 1e-05, "
                                   "'rope_theta': 1000000.0, 'hidden_act': 'silu', "
                                   "'sliding_window': 128}";
static const char *const qwen2 = "{'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2', "
                                 "'hidden_size': 64, 'intermediate_size': 96, "
                                 "'num_hidden_layers': 4, 'num_attention_heads': 8, "
                                 "'num_key_value_heads': 2, 'vocab_size': 320, "
                                 "'max_position_embeddings': 2048, 'rms_norm_eps': 1e-06, "
                                 "'rope_theta': 1000000.0, 'hidden_act': 'silu', "
                                 "'use_sliding_window': false, 'sliding_window': 64, "
                                 "'max_window_layers': 3, 'tie_word_embeddings': true}";
static const char *const qwen3 =
    "{'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', 'hidden_size': 64, "
    "'intermediate_size': 96, "
    "'num_hidden_layers': 2, 'num_attention_heads': 8, 'num_key_value_heads': 2, 'vocab_size': "
    "320, 'head_dim': 16, "
    "'max_position_embeddings': 2048, 'rms_norm_eps': 1e-06, 'hidden_act': 'silu', 'dtype': "
    "'float16', "
    "'rope_parameters': {'rope_type': 'default', 'rope_theta': 1000000.0}, 'sliding_window': null}";

/* JSON with single quotes, which stands better in C. */
static json_t *json_of(const char *text)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    json_t *json = json_loads(copy, JSON_DECODE_ANY, NULL);
    if (json == NULL) fail_msg("not JSON: %s", copy);
    return json;
}

/* Loads `base` with the keys of the object `change` set in it; the value '-' takes a key out. */
static enum ebb_status load(struct room *room, const char *base, const char *change,
                            struct ebb_model_config **config)
{
    char path[256];
    const char *key;
    json_t *json = json_of(base), *changes = json_of(change), *value;
    json_object_foreach(changes, key, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), "-") == 0)
            json_object_del(json, key);
        else
            json_object_set(json, key, value);
    }
    ROOM_OK(room, ebb_json_save(room->ctx, room_path(room, "config.json", path), json));
    json_decref(json);
    json_decref(changes);
    return ebb_model_config_load_file(room->ctx, path, config);
}

static struct ebb_model_config *loaded(struct room *room, const char *base, const char *change)
{
    struct ebb_model_config *config;
    ROOM_OK(room, load(room, base, change, &config));
    return config;
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void a_llama_config_gives_its_shape(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config = loaded(room, llama, "{}");
    assert_string_equal(config->family->name, "llama");
    assert_int_equal(config->layers, 3);
    assert_int_equal(config->width, 64);
    assert_int_equal(config->heads, 8);
    assert_int_equal(config->kv_heads, 2);
    assert_int_equal(config->head_dim, 8);
    assert_int_equal(config->ffn, 96);
    assert_int_equal(config->vocab, 320);
    assert_int_equal(config->max_positions, 2048);
    assert_true(config->norm_eps == 1e-5);
    assert_false(config->tied || config->qkv_bias || config->o_bias || config->mlp_bias ||
                 config->qk_norm);
    assert_int_equal(config->rope.kind, EBB_ROPE_DEFAULT);
    assert_true(config->rope.theta == 10000 && config->rope.attention_factor == 1);
    assert_int_equal(config->dtype, EBB_BF16);
    assert_int_equal(config->bos_id, 1);
    assert_int_equal(config->pad_id, -1);
    assert_int_equal(config->eos_count, 1);
    assert_int_equal(config->eos_ids[0], 2);
    for (int l = 0; l < 3; l++) assert_int_equal(config->window[l], 0);
    ebb_model_config_free(room->ctx, config);
}

static void missing_kv_heads_head_dim_and_dtype_have_their_defaults(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config = loaded(
        room, llama,
        "{'num_key_value_heads': '-', 'head_dim': null, 'torch_dtype': '-', 'eos_token_id': null}");
    assert_int_equal(config->kv_heads, 8);
    assert_int_equal(config->head_dim, 8);
    assert_int_equal(config->dtype, EBB_F32);
    assert_int_equal(config->eos_count, 0);
    ebb_model_config_free(room->ctx, config);
}

static void biases_and_norms_follow_the_family_or_the_key(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config =
        loaded(room, llama, "{'attention_bias': true, 'mlp_bias': true}");
    assert_true(config->qkv_bias && config->o_bias && config->mlp_bias && !config->qk_norm);
    ebb_model_config_free(room->ctx, config);
    config = loaded(room, qwen2, "{}");
    assert_true(config->qkv_bias && !config->o_bias && !config->mlp_bias && !config->qk_norm &&
                config->tied);
    ebb_model_config_free(room->ctx, config);
    config = loaded(room, qwen3, "{}");
    assert_true(!config->qkv_bias && !config->o_bias && config->qk_norm &&
                config->dtype == EBB_F16);
    assert_int_equal(config->head_dim, 16);
    ebb_model_config_free(room->ctx, config);
    config = loaded(room, qwen3, "{'attention_bias': true}");
    assert_true(config->qkv_bias && config->o_bias && config->qk_norm);
    ebb_model_config_free(room->ctx, config);
}

static void windows_follow_the_family(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *const *base;
        const char *change;
        int64_t windows[4];
    } cases[] = {
        {&mistral, "{}", {128, 128, 0, 0}},
        {&mistral, "{'sliding_window': null}", {0, 0, 0, 0}},
        {&mistral, "{'layer_types': ['sliding_attention', 'sliding_attention']}", {128, 128, 0, 0}},
        {&qwen2, "{}", {0, 0, 0, 0}},
        {&qwen2, "{'use_sliding_window': true}", {0, 0, 0, 64}},
        {&qwen2, "{'use_sliding_window': true, 'max_window_layers': 9}", {0, 0, 0, 0}},
        {&qwen2, "{'use_sliding_window': true, 'sliding_window': null}", {0, 0, 0, 0}},
        {&qwen2,
         "{'use_sliding_window': true, 'layer_types': ['sliding_attention', 'full_attention', "
         "'sliding_attention', "
         "'full_attention']}",
         {64, 0, 64, 0}},
        {&qwen3, "{}", {0, 0, 0, 0}},
        {&llama,
         "{'layer_types': ['full_attention', 'full_attention', 'full_attention']}",
         {0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_model_config *config = loaded(room, *cases[i].base, cases[i].change);
        for (int64_t l = 0; l < config->layers && l < 4; l++)
            if (config->window[l] != cases[i].windows[l])
                fail_msg("%s: layer %d has window %d", cases[i].change, (int)l,
                         (int)config->window[l]);
        ebb_model_config_free(room->ctx, config);
    }
}

static void model_type_alone_names_the_family(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config = loaded(room, mistral, "{'architectures': '-'}");
    assert_string_equal(config->family->name, "mistral");
    ebb_model_config_free(room->ctx, config);
}

static void both_spellings_of_rope_are_read(void **state)
{
    struct room *room = *state;
    static const char *const llama3[] = {
        "{'rope_theta': 500000.0, 'rope_scaling': {'rope_type': 'llama3', 'factor': 32.0, "
        "'low_freq_factor': 1.0, "
        "'high_freq_factor': 4.0, 'original_max_position_embeddings': 1024}}",
        "{'rope_theta': '-', 'rope_parameters': {'rope_type': 'llama3', 'rope_theta': 500000.0, "
        "'factor': 32.0, "
        "'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': "
        "1024}}",
        "{'rope_theta': 500000, 'rope_parameters': {'type': 'llama3', 'rope_theta': 500000.0, "
        "'factor': 32, "
        "'low_freq_factor': 1, 'high_freq_factor': 4, 'original_max_position_embeddings': 1024}, "
        "'rope_scaling': {'rope_type': 'llama3', 'factor': 32.0, 'low_freq_factor': 1.0, "
        "'high_freq_factor': 4.0, 'original_max_position_embeddings': 1024}}",
    };
    for (int i = 0; i < 3; i++) {
        struct ebb_model_config *config = loaded(room, llama, llama3[i]);
        assert_int_equal(config->rope.kind, EBB_ROPE_LLAMA3);
        assert_true(config->rope.theta == 500000 && config->rope.factor == 32 &&
                    config->rope.low_freq_factor == 1 && config->rope.high_freq_factor == 4 &&
                    config->rope.original_max_positions == 1024);
        ebb_model_config_free(room->ctx, config);
    }
    struct ebb_model_config *config =
        loaded(room, llama, "{'rope_scaling': {'type': 'linear', 'factor': 4}}");
    assert_int_equal(config->rope.kind, EBB_ROPE_LINEAR);
    assert_true(config->rope.factor == 4 && config->rope.theta == 10000);
    ebb_model_config_free(room->ctx, config);
}

static void yarn_has_transformers_defaults(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config = loaded(room, llama,
                                             "{'rope_scaling': {'type': 'yarn', 'factor': 4.0, "
                                             "'original_max_position_embeddings': 512}}");
    const struct ebb_rope *rope = &config->rope;
    assert_int_equal(rope->kind, EBB_ROPE_YARN);
    assert_true(rope->beta_fast == 32 && rope->beta_slow == 1 && rope->truncate &&
                rope->factor == 4);
    assert_true(rope->attention_factor == 0.1 * log(4) + 1);
    ebb_model_config_free(room->ctx, config);
    config = loaded(
        room, llama,
        "{'rope_scaling': {'type': 'yarn', 'factor': 40, 'original_max_position_embeddings': 512, "
        "'mscale': 1.0, 'mscale_all_dim': 0.5, 'truncate': false, 'beta_fast': 24}}");
    assert_true(fabs(config->rope.attention_factor - 1.1557219901962608) < 1e-15);
    assert_true(!config->rope.truncate && config->rope.beta_fast == 24);
    ebb_model_config_free(room->ctx, config);
    config =
        loaded(room, llama,
               "{'rope_scaling': {'rope_type': 'yarn', 'factor': null, 'attention_factor': 1.5, "
               "'original_max_position_embeddings': 512}}");
    assert_true(config->rope.factor == 4 && config->rope.attention_factor == 1.5);
    ebb_model_config_free(room->ctx, config);
}

static void keys_that_switch_a_feature_off_are_accepted(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config = loaded(
        room, llama,
        "{'attention_dropout': 0.0, 'partial_rotary_factor': 1.0, 'quantization_config': null, "
        "'num_experts': 0, 'final_logit_softcapping': null, 'pretraining_tp': 1, 'use_cache': "
        "true, "
        "'sliding_window': null, 'rope_scaling': null}");
    ebb_model_config_free(room->ctx, config);
}

static void generation_config_has_the_last_word_on_tokens(void **state)
{
    struct room *room = *state;
    const char *generation =
        "{\"eos_token_id\": [5, 7], \"pad_token_id\": 9, \"temperature\": 0.6}";
    struct ebb_model_config *config = loaded(room, llama, "{'eos_token_id': [2, 3]}");
    assert_int_equal(config->eos_count, 2);
    assert_int_equal(config->eos_ids[1], 3);
    ebb_model_config_free(room->ctx, config);
    room_write(room, "generation_config.json", generation, strlen(generation));
    ROOM_OK(room, ebb_model_config_load(room->ctx, room->dir, &config));
    assert_int_equal(config->eos_count, 2);
    assert_int_equal(config->eos_ids[0], 5);
    assert_int_equal(config->eos_ids[1], 7);
    assert_int_equal(config->bos_id, 1);
    assert_int_equal(config->pad_id, 9);
    ebb_model_config_free(room->ctx, config);
    room_write(room, "generation_config.json", "[]", 2);
    room_failed(room, ebb_model_config_load(room->ctx, room->dir, &config), EBB_BAD_FILE,
                "generation_config.json: must be a JSON object");
    assert_null(config);
}

static void token_ids_outside_the_vocabulary_are_left_out_with_a_warning(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config = loaded(room, llama, "{'pad_token_id': -1}");
    assert_int_equal(config->pad_id, -1);
    assert_string_equal(room->warning, "");
    ebb_model_config_free(room->ctx, config);
    config = loaded(room, llama, "{'eos_token_id': [2, 320]}");
    assert_int_equal(config->eos_count, 1);
    assert_non_null(
        strstr(room->warning, "'eos_token_id' is 320, outside the vocabulary of 320 tokens"));
    ebb_model_config_free(room->ctx, config);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const struct {
    const char *const *base;
    const char *change;
    enum ebb_status status;
    const char *text;
} wrong[] = {
    {&llama, "{'architectures': ['GPT2LMHeadModel']}", EBB_UNSUPPORTED,
     "architecture 'GPT2LMHeadModel' is not supported\nthis version of ebb knows LlamaForCausalLM, "
     "MistralForCausalLM, "
     "Qwen2ForCausalLM, Qwen3ForCausalLM"},
    {&llama, "{'architectures': '-', 'model_type': 'gpt2'}", EBB_UNSUPPORTED,
     "model_type 'gpt2' is not supported"},
    {&llama, "{'architectures': '-', 'model_type': '-'}", EBB_BAD_FILE,
     "neither 'architectures' nor 'model_type'"},
    {&llama, "{'architectures': []}", EBB_BAD_FILE, "'architectures' must be a list of names"},
    {&llama, "{'model_type': 'mistral'}", EBB_BAD_FILE,
     "'model_type' is 'mistral', but 'architectures' says 'LlamaForCausalLM'"},
    {&llama, "{'hidden_size': '-'}", EBB_BAD_FILE, "'hidden_size' is missing"},
    {&llama, "{'hidden_size': 0}", EBB_BAD_FILE, "'hidden_size' is 0, must be from 1"},
    {&llama, "{'hidden_size': 'wide'}", EBB_BAD_FILE, "'hidden_size' is the string"},
    {&llama, "{'hidden_size': 60}", EBB_BAD_FILE,
     "'hidden_size' (60) is not a multiple of 'num_attention_heads' (8)"},
    {&llama, "{'intermediate_size': -5}", EBB_BAD_FILE, "'intermediate_size' is -5"},
    {&llama, "{'num_hidden_layers': '-'}", EBB_BAD_FILE, "'num_hidden_layers' is missing"},
    {&llama, "{'num_hidden_layers': 100001}", EBB_BAD_FILE, "'num_hidden_layers' is 100001"},
    {&llama, "{'num_attention_heads': 2147483648}", EBB_BAD_FILE,
     "'num_attention_heads' is 2147483648"},
    {&llama, "{'num_key_value_heads': 3}", EBB_BAD_FILE,
     "'num_attention_heads' (8) is not a multiple of 'num_key_value_heads' (3)"},
    {&llama, "{'vocab_size': '-'}", EBB_BAD_FILE, "'vocab_size' is missing"},
    {&llama, "{'head_dim': 7}", EBB_BAD_FILE, "the head size is 7, must be even"},
    {&llama, "{'hidden_size': 2147483647, 'vocab_size': 2147483647, 'head_dim': 64}", EBB_BAD_FILE,
     "multiply to more parameters than can be counted"},
    {&llama, "{'max_position_embeddings': '-'}", EBB_BAD_FILE,
     "'max_position_embeddings' is missing"},
    {&llama, "{'rms_norm_eps': '-'}", EBB_BAD_FILE, "'rms_norm_eps' is missing"},
    {&llama, "{'rms_norm_eps': -1e-5}", EBB_BAD_FILE, "'rms_norm_eps' is -1e-05"},
    {&llama, "{'hidden_act': 'gelu'}", EBB_UNSUPPORTED,
     "'hidden_act' is 'gelu'; this version of ebb computes 'silu'"},
    {&llama, "{'hidden_act': '-'}", EBB_BAD_FILE, "'hidden_act' is missing"},
    {&llama, "{'torch_dtype': 'float64'}", EBB_UNSUPPORTED, "'torch_dtype' is 'float64'"},
    {&llama, "{'dtype': 'float32'}", EBB_BAD_FILE,
     "'torch_dtype' is 'bfloat16', but 'dtype' is 'float32'"},
    {&llama, "{'attention_bias': 1}", EBB_BAD_FILE, "'attention_bias' is the number 1"},
    {&llama, "{'eos_token_id': 'end'}", EBB_BAD_FILE,
     "'eos_token_id' must be a token id or a list"},
    {&llama, "{'eos_token_id': [1, 2, 3, 4, 5, 6, 7, 8, 9]}", EBB_UNSUPPORTED,
     "'eos_token_id' has 9 tokens, at most 8"},
    /* features */
    {&llama, "{'quantization_config': {'quant_method': 'gptq', 'bits': 4}}", EBB_UNSUPPORTED,
     "'quantization_config' is {\"quant_method\":\"gptq\",\"bits\":4}, which this version of ebb "
     "does not compute"},
    {&llama, "{'partial_rotary_factor': 0.5}", EBB_UNSUPPORTED, "'partial_rotary_factor' is 0.5"},
    {&llama, "{'attn_logit_softcapping': 50.0}", EBB_UNSUPPORTED,
     "'attn_logit_softcapping' is 50.0"},
    {&llama, "{'final_logit_softcapping': 30.0}", EBB_UNSUPPORTED,
     "'final_logit_softcapping' is 30.0"},
    {&llama, "{'num_local_experts': 8}", EBB_UNSUPPORTED, "'num_local_experts' is 8"},
    {&llama, "{'attention_dropout': 0.1}", EBB_UNSUPPORTED, "'attention_dropout' is 0.1"},
    {&llama, "{'is_causal': false}", EBB_UNSUPPORTED, "'is_causal' is false"},
    {&llama, "{'sliding_window': 4096}", EBB_UNSUPPORTED, "'sliding_window' is 4096"},
    {&mistral, "{'attention_bias': true}", EBB_UNSUPPORTED, "'attention_bias' is true"},
    {&qwen2, "{'mlp_bias': true}", EBB_UNSUPPORTED, "'mlp_bias' is true"},
    {&qwen3, "{'head_dim': '-'}", EBB_BAD_FILE,
     "'head_dim' is missing; a qwen3 model must give it"},
    /* windows */
    {&mistral, "{'sliding_window': '-'}", EBB_BAD_FILE, "'sliding_window' is missing"},
    {&mistral, "{'sliding_window': 0}", EBB_BAD_FILE, "'sliding_window' is 0, must be at least 1"},
    {&mistral, "{'layer_types': ['full_attention', 'sliding_attention']}", EBB_UNSUPPORTED,
     "'layer_types' makes layer 0 'full_attention'"},
    {&qwen2, "{'use_sliding_window': true, 'sliding_window': '-'}", EBB_BAD_FILE,
     "'sliding_window' is missing"},
    {&qwen2, "{'use_sliding_window': true, 'max_window_layers': '-'}", EBB_BAD_FILE,
     "'max_window_layers' (the first layer with a window) is missing"},
    {&qwen2, "{'layer_types': ['full_attention']}", EBB_BAD_FILE, "'layer_types' has 1 entries"},
    {&qwen2, "{'layer_types': 'full_attention'}", EBB_BAD_FILE, "'layer_types' must be a list"},
    {&qwen2,
     "{'layer_types': ['sliding_attention', 'full_attention', 'full_attention', 'full_attention']}",
     EBB_BAD_FILE, "gives layer 0 a window, but 'use_sliding_window' is not true"},
    {&qwen2,
     "{'layer_types': ['linear_attention', 'full_attention', 'full_attention', 'full_attention']}",
     EBB_UNSUPPORTED, "'linear_attention' for layer 0"},
    /* rope */
    {&llama, "{'rope_theta': '-'}", EBB_BAD_FILE, "'rope_theta' is missing"},
    {&llama, "{'rope_theta': 0}", EBB_BAD_FILE, "'rope_theta' is 0, must be above 1"},
    {&llama, "{'rope_theta': '-', 'rope_parameters': {'rope_type': 'default'}}", EBB_BAD_FILE,
     "'rope_theta' is missing"},
    {&llama, "{'rope_parameters': {'rope_type': 'default', 'rope_theta': 500000.0}}", EBB_BAD_FILE,
     "'rope_theta' is 10000, but 500000 in 'rope_parameters'"},
    {&llama, "{'rope_scaling': {'rope_type': 'dynamic', 'factor': 2.0}}", EBB_UNSUPPORTED,
     "rope type 'dynamic' in 'rope_scaling' is not supported"},
    {&llama,
     "{'rope_scaling': {'rope_type': 'longrope', 'short_factor': [1.0], 'long_factor': [1.0]}}",
     EBB_UNSUPPORTED, "'short_factor' to [1.0]"},
    {&llama, "{'rope_scaling': {'rope_type': 'longrope'}}", EBB_UNSUPPORTED,
     "rope type 'longrope'"},
    {&llama, "{'rope_scaling': {'type': 'mrope', 'mrope_section': [16, 24, 24]}}", EBB_UNSUPPORTED,
     "'mrope_section'"},
    {&llama, "{'rope_scaling': {'type': 'linear', 'rope_type': 'yarn', 'factor': 2.0}}",
     EBB_BAD_FILE, "'rope_type' is 'yarn', 'type' is 'linear'"},
    {&llama, "{'rope_scaling': {'type': 'linear'}}", EBB_BAD_FILE,
     "'factor' is missing in 'rope_scaling'"},
    {&llama, "{'rope_scaling': {'type': 'linear', 'factor': -2}}", EBB_BAD_FILE,
     "'factor' in 'rope_scaling' is -2"},
    {&llama, "{'rope_scaling': 'linear'}", EBB_BAD_FILE, "'rope_scaling' must be an object"},
    {&llama,
     "{'rope_scaling': {'type': 'linear', 'factor': 2}, 'rope_parameters': {'rope_type': 'linear', "
     "'factor': 4}}",
     EBB_BAD_FILE, "'rope_scaling' (linear) and 'rope_parameters' (linear) contradict each other"},
    {&llama,
     "{'rope_scaling': {'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 1, "
     "'high_freq_factor': 4}}",
     EBB_BAD_FILE, "'original_max_position_embeddings' is missing in 'rope_scaling'"},
    {&llama,
     "{'rope_scaling': {'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 4, "
     "'high_freq_factor': 4, "
     "'original_max_position_embeddings': 8192}}",
     EBB_BAD_FILE, "'high_freq_factor' (4) in 'rope_scaling' must be above 'low_freq_factor' (4)"},
    {&llama, "{'rope_scaling': {'rope_type': 'yarn'}}", EBB_BAD_FILE, "'factor' is missing"},
    {&llama, "{'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'beta_fast': 1}}", EBB_BAD_FILE,
     "'beta_fast' (1)"},
    {&llama,
     "{'original_max_position_embeddings': 4096, 'rope_scaling': {'rope_type': 'yarn', 'factor': "
     "2, "
     "'original_max_position_embeddings': 1024}}",
     EBB_BAD_FILE, "'original_max_position_embeddings' is 4096, but 1024 in 'rope_scaling'"},
    {&qwen3,
     "{'rope_parameters': {'full_attention': {'rope_type': 'default', 'rope_theta': 1e6}, "
     "'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4}}}",
     EBB_UNSUPPORTED, "'rope_parameters' has parameters of its own for 'full_attention' layers"},
    {&llama, "{'rope_scaling': {'type': 'linear', 'factor': 2, 'partial_rotary_factor': 0.25}}",
     EBB_UNSUPPORTED, "'partial_rotary_factor' is 0.25"},
};

static void wrong_configs_are_refused_by_name(void **state)
{
    struct room *room = *state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct ebb_model_config *config;
        enum ebb_status status = load(room, *wrong[i].base, wrong[i].change, &config);
        if (status == EBB_OK) fail_msg("accepted: %s", wrong[i].change);
        assert_null(config);
        if (strstr(ebb_error_text(room->ctx), "config.json:") == NULL)
            fail_msg("no file in \"%s\"", ebb_error_text(room->ctx));
        room_failed(room, status, wrong[i].status, wrong[i].text);
    }
}

static void places_without_a_model_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config;
    char path[256];
    room_failed(room, ebb_model_config_load(room->ctx, room_path(room, "nothing", path), &config),
                EBB_BAD_CONFIG, "no model directory");
    room_failed(room, ebb_model_config_load(room->ctx, room->dir, &config), EBB_BAD_FILE,
                "it has no config.json");
    room_failed(room,
                ebb_model_config_load_file(room->ctx, room_path(room, "x.json", path), &config),
                EBB_IO, "x.json");
    room_write(room, "config.json", "{\"a\": }", 7);
    room_failed(room, ebb_model_config_load(room->ctx, room->dir, &config), EBB_BAD_FILE,
                "config.json:1:");
    room_write(room, "config.json", "[1]", 3);
    room_failed(room, ebb_model_config_load(room->ctx, room->dir, &config), EBB_BAD_FILE,
                "must be a JSON object");
}

static void running_out_of_memory_anywhere_is_an_error_without_leaks(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config = loaded(room, qwen2, "{}");
    struct ebb_weight_list list = {0};
    ebb_model_config_free(room->ctx, config);
    for (int nth = 1; nth < 1000; nth++) {
        ebb_mem_fail_nth(room->ctx, nth, false);
        enum ebb_status status = ebb_model_config_load(room->ctx, room->dir, &config);
        if (status == EBB_OK) {
            status = ebb_weight_list_create(room->ctx, config, &list);
            ebb_weight_list_free(room->ctx, &list);
            ebb_model_config_free(room->ctx, config);
        }
        ebb_mem_fail_nth(room->ctx, 0, false);
        if (status == EBB_OK) {
            assert_true(nth > 20);
            return;
        }
        assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
    }
    fail_msg("never enough memory");
}

/* ---- weights --------------------------------------------------------------------------------- */

static const struct ebb_weight *find(const struct ebb_weight_list *list, const char *name)
{
    for (int64_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0) return &list->items[i];
    return NULL;
}

static void weights_stand_in_their_fields(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config = loaded(room, qwen2, "{}");
    struct ebb_weight_list list;
    ROOM_OK(room, ebb_weight_list_create(room->ctx, config, &list));
    assert_int_equal(list.count, 2 + 4 * 12);
    const struct ebb_weight *k = find(&list, "model.layers.2.self_attn.k_proj.weight");
    assert_non_null(k);
    assert_string_equal(k->module, "model.layers.2.self_attn.k_proj");
    assert_string_equal(k->target, "k_proj");
    assert_int_equal(k->field, EBB_FIELD_QKV);
    assert_int_equal(k->layer, 2);
    assert_int_equal(k->row0, 64);
    assert_int_equal(k->rows, 16);
    assert_int_equal(k->cols, 64);
    const struct ebb_weight *v = find(&list, "model.layers.2.self_attn.v_proj.bias");
    assert_int_equal(v->row0, 80);
    assert_int_equal(v->rows, 1);
    assert_int_equal(v->cols, 16);
    assert_null(v->module);
    assert_int_equal(find(&list, "model.layers.3.mlp.up_proj.weight")->row0, 96);
    assert_int_equal(find(&list, "model.layers.3.mlp.down_proj.weight")->row0, 0);
    assert_string_equal(list.items[0].name, "model.embed_tokens.weight");
    assert_int_equal(list.items[0].layer, -1);
    assert_string_equal(list.items[list.count - 1].name, "model.norm.weight");
    assert_null(find(&list, "lm_head.weight"));
    for (int64_t i = 1; i < list.count; i++) { /* layers in order, fields in order inside */
        const struct ebb_weight *a = &list.items[i - 1], *b = &list.items[i];
        if (a->layer >= 0 && b->layer >= 0)
            assert_true(b->layer > a->layer || b->field >= a->field);
    }
    ebb_weight_list_free(room->ctx, &list);
    ebb_model_config_free(room->ctx, config);
}

static void optional_weights_are_there_when_the_config_has_them(void **state)
{
    struct room *room = *state;
    struct ebb_weight_list list;
    struct ebb_model_config *config = loaded(room, qwen3, "{}");
    ROOM_OK(room, ebb_weight_list_create(room->ctx, config, &list));
    const struct ebb_weight *norm = find(&list, "model.layers.1.self_attn.q_norm.weight");
    assert_true(norm && norm->cols == 16 && norm->rows == 1 && norm->field == EBB_FIELD_Q_NORM);
    assert_int_equal(find(&list, "model.layers.1.self_attn.o_proj.weight")->cols, 128);
    assert_string_equal(list.items[list.count - 1].name, "lm_head.weight");
    assert_null(list.items[list.count - 1].module);
    ebb_weight_list_free(room->ctx, &list);
    ebb_model_config_free(room->ctx, config);
    config = loaded(room, llama, "{'attention_bias': true, 'mlp_bias': true}");
    ROOM_OK(room, ebb_weight_list_create(room->ctx, config, &list));
    assert_non_null(find(&list, "model.layers.0.self_attn.o_proj.bias"));
    assert_int_equal(find(&list, "model.layers.0.mlp.up_proj.bias")->row0, 96);
    ebb_weight_list_free(room->ctx, &list);
    ebb_model_config_free(room->ctx, config);
}

static void parameters_are_the_sum_of_the_weights(void **state)
{
    struct room *room = *state;
    static const char *const *const bases[] = {&llama, &mistral, &qwen2, &qwen3};
    for (int f = 0; f < 4; f++) {
        struct ebb_model_config *config = loaded(room, *bases[f], "{}");
        struct ebb_weight_list list;
        int64_t sum = 0;
        ROOM_OK(room, ebb_weight_list_create(room->ctx, config, &list));
        for (int64_t i = 0; i < list.count; i++) sum += list.items[i].rows * list.items[i].cols;
        assert_int_equal(ebb_model_config_parameters(config), sum);
        ebb_weight_list_free(room->ctx, &list);
        ebb_model_config_free(room->ctx, config);
    }
    /* Llama 3.2 1B, whose size is known. */
    struct ebb_model_config *config =
        loaded(room, llama,
               "{'hidden_size': 2048, 'intermediate_size': 8192, 'num_hidden_layers': 16, "
               "'num_attention_heads': 32, 'num_key_value_heads': 8, 'vocab_size': 128256, "
               "'tie_word_embeddings': true}");
    assert_int_equal(ebb_model_config_parameters(config), 1235814400);
    ebb_model_config_free(room->ctx, config);
}

static void rows_of_every_family_stand_in_the_order_of_the_fields(void **state)
{
    (void)state;
    const struct ebb_family *family;
    int64_t f = 0;
    for (; (family = ebb_family_at(f)) != NULL; f++) {
        for (int64_t r = 1; r < family->row_count; r++)
            assert_true(family->rows[r].field >= family->rows[r - 1].field);
        assert_ptr_equal(ebb_family_find_model_type(family->model_type), family);
        for (int a = 0; family->architectures[a]; a++)
            assert_ptr_equal(ebb_family_find_architecture(family->architectures[a]), family);
    }
    assert_int_equal(f, 4);
    assert_string_equal(ebb_field_name(EBB_FIELD_GATE_UP), "gate_up");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_CASE(a_llama_config_gives_its_shape),
        ROOM_CASE(missing_kv_heads_head_dim_and_dtype_have_their_defaults),
        ROOM_CASE(biases_and_norms_follow_the_family_or_the_key),
        ROOM_CASE(windows_follow_the_family),
        ROOM_CASE(model_type_alone_names_the_family),
        ROOM_CASE(both_spellings_of_rope_are_read),
        ROOM_CASE(yarn_has_transformers_defaults),
        ROOM_CASE(keys_that_switch_a_feature_off_are_accepted),
        ROOM_CASE(generation_config_has_the_last_word_on_tokens),
        ROOM_CASE(token_ids_outside_the_vocabulary_are_left_out_with_a_warning),
        ROOM_CASE(wrong_configs_are_refused_by_name),
        ROOM_CASE(places_without_a_model_are_refused),
        ROOM_CASE(running_out_of_memory_anywhere_is_an_error_without_leaks),
        ROOM_CASE(weights_stand_in_their_fields),
        ROOM_CASE(optional_weights_are_there_when_the_config_has_them),
        ROOM_CASE(parameters_are_the_sum_of_the_weights),
        cmocka_unit_test(rows_of_every_family_stand_in_the_order_of_the_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
