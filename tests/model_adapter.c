/* LoRA adapters: targets, PEFT's configuration, starting values and merging.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_test.h"

#include <math.h>

#include "model/adapter.h"

static const char *const model =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, \"intermediate_size\": 96, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, "
    "\"vocab_size\": 320, "
    "\"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
    "\"hidden_act\": \"silu\"}";

static struct ebb_weight_list weights_of(struct room *room)
{
    struct ebb_model_config *config;
    struct ebb_weight_list list;
    char path[256];
    room_write(room, "config.json", model, strlen(model));
    ROOM_OK(room,
            ebb_model_config_load_file(room->ctx, room_path(room, "config.json", path), &config));
    ROOM_OK(room, ebb_weight_list_create(room->ctx, config, &list));
    ebb_model_config_free(room->ctx, config);
    return list;
}

/* ---- targets --------------------------------------------------------------------------------- */

static void all_linear_is_every_linear_layer_but_the_head(void **state)
{
    struct room *room = *state;
    static const char *const names[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                        "gate_proj", "up_proj", "down_proj"};
    struct ebb_weight_list list = weights_of(room);
    struct ebb_adapter_config config = {0};
    ROOM_OK(room, ebb_adapter_config_targets(room->ctx, &list, "all-linear", &config));
    assert_int_equal(config.target_count, 7);
    for (int i = 0; i < 7; i++) assert_string_equal(config.targets[i], names[i]);
    int adapted = 0;
    for (int64_t i = 0; i < list.count; i++) adapted += ebb_adapter_has(&config, &list.items[i]);
    assert_int_equal(adapted, 14);
    ebb_adapter_config_clear(room->ctx, &config);
    ebb_weight_list_free(room->ctx, &list);
}

static void targets_are_named_with_commas_or_spaces(void **state)
{
    struct room *room = *state;
    struct ebb_weight_list list = weights_of(room);
    struct ebb_adapter_config config = {0};
    ROOM_OK(room, ebb_adapter_config_targets(room->ctx, &list, " v_proj,q_proj  v_proj ", &config));
    assert_int_equal(config.target_count, 2);
    assert_string_equal(config.targets[0], "v_proj");
    assert_string_equal(config.targets[1], "q_proj");
    ROOM_OK(room, ebb_adapter_config_targets(room->ctx, &list, "layers.1.mlp.up_proj", &config));
    int adapted = 0;
    for (int64_t i = 0; i < list.count; i++) adapted += ebb_adapter_has(&config, &list.items[i]);
    assert_int_equal(adapted, 1);
    ebb_adapter_config_clear(room->ctx, &config);
    ebb_weight_list_free(room->ctx, &list);
}

static void unknown_targets_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_weight_list list = weights_of(room);
    struct ebb_adapter_config config = {0};
    room_failed(room, ebb_adapter_config_targets(room->ctx, &list, "q_proj,q_porj", &config),
                EBB_BAD_CONFIG,
                "no 'q_porj' that LoRA can go to; did you mean 'q_proj'?\nit has q_proj, k_proj, "
                "v_proj, o_proj, "
                "gate_proj, up_proj, down_proj");
    assert_int_equal(config.target_count, 0);
    room_failed(room, ebb_adapter_config_targets(room->ctx, &list, "lm_head", &config),
                EBB_BAD_CONFIG, "no 'lm_head'");
    room_failed(room, ebb_adapter_config_targets(room->ctx, &list, "proj", &config), EBB_BAD_CONFIG,
                "no 'proj'");
    room_failed(room, ebb_adapter_config_targets(room->ctx, &list, " ,", &config), EBB_BAD_CONFIG,
                "names no module");
    ebb_weight_list_free(room->ctx, &list);
}

static void the_scale_is_alpha_over_rank_or_its_root(void **state)
{
    (void)state;
    struct ebb_adapter_config config = {.rank = 16, .alpha = 32};
    assert_true(ebb_adapter_scale(&config) == 2);
    config.rslora = true;
    assert_true(ebb_adapter_scale(&config) == 8);
}

/* ---- adapter_config.json --------------------------------------------------------------------- */

static const char *const peft =
    "{'peft_type': 'LORA', 'task_type': 'CAUSAL_LM', 'r': 8, 'lora_alpha': 16, 'lora_dropout': "
    "0.05, 'bias': 'none', "
    "'target_modules': ['v_proj', 'q_proj'], 'base_model_name_or_path': 'org/model', 'use_rslora': "
    "true, "
    "'use_dora': false, 'rank_pattern': {}, 'alpha_pattern': {}, 'modules_to_save': null, "
    "'fan_in_fan_out': false, "
    "'init_lora_weights': true, 'layers_to_transform': null, 'megatron_core': 'megatron.core', "
    "'loftq_config': {}, "
    "'peft_version': '0.19.0', 'qalora_group_size': 16, 'inference_mode': true}";

static enum ebb_status load(struct room *room, const char *change,
                            struct ebb_adapter_config *config)
{
    char copy[2][2048], path[256];
    const char *key;
    snprintf(copy[0], sizeof copy[0], "%s", peft);
    snprintf(copy[1], sizeof copy[1], "%s", change);
    for (int i = 0; i < 2; i++)
        for (char *c = copy[i]; *c; c++)
            if (*c == '\'') *c = '"';
    json_t *json = json_loads(copy[0], 0, NULL), *changes = json_loads(copy[1], 0, NULL), *value;
    assert_true(json && changes);
    json_object_foreach(changes, key, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), "-") == 0)
            json_object_del(json, key);
        else
            json_object_set(json, key, value);
    }
    ROOM_OK(room, ebb_json_save(room->ctx, room_path(room, "adapter_config.json", path), json));
    json_decref(json);
    json_decref(changes);
    return ebb_adapter_config_load(room->ctx, room->dir, config);
}

static void pefts_configuration_is_read(void **state)
{
    struct room *room = *state;
    struct ebb_adapter_config config;
    ROOM_OK(room, load(room, "{}", &config));
    assert_int_equal(config.rank, 8);
    assert_true(config.alpha == 16 && config.dropout == 0.05 && config.rslora);
    assert_int_equal(config.target_count, 2);
    assert_string_equal(config.targets[1], "q_proj");
    assert_string_equal(config.base_model, "org/model");
    assert_string_equal(room->warning, "");
    ebb_adapter_config_clear(room->ctx, &config);
    ROOM_OK(room,
            load(room, "{'base_model_name_or_path': null, 'lora_dropout': '-', 'use_rslora': '-'}",
                 &config));
    assert_null(config.base_model);
    assert_true(config.dropout == 0 && !config.rslora);
    ebb_adapter_config_clear(room->ctx, &config);
}

static void a_saved_configuration_reads_back(void **state)
{
    struct room *room = *state;
    struct ebb_adapter_config config, again;
    ROOM_OK(room, load(room, "{'lora_alpha': 24.5}", &config));
    ROOM_OK(room, ebb_adapter_config_save(room->ctx, room->dir, &config));
    ROOM_OK(room, ebb_adapter_config_load(room->ctx, room->dir, &again));
    assert_true(again.rank == 8 && again.alpha == 24.5 && again.dropout == 0.05 && again.rslora);
    assert_int_equal(again.target_count, 2);
    assert_string_equal(again.targets[0], "v_proj");
    assert_string_equal(again.base_model, "org/model");
    ebb_adapter_config_clear(room->ctx, &again);
    ebb_adapter_config_clear(room->ctx, &config);
}

static void features_that_are_not_computed_are_refused_by_name(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *change;
        enum ebb_status status;
        const char *text;
    } cases[] = {
        {"{'peft_type': 'IA3'}", EBB_UNSUPPORTED,
         "'peft_type' is 'IA3'; this version of ebb reads LORA"},
        {"{'peft_type': '-'}", EBB_BAD_FILE, "'peft_type' is missing"},
        {"{'task_type': 'SEQ_CLS'}", EBB_UNSUPPORTED, "'task_type' is 'SEQ_CLS'"},
        {"{'bias': 'all'}", EBB_UNSUPPORTED, "'bias' is 'all'"},
        {"{'use_dora': true}", EBB_UNSUPPORTED,
         "'use_dora' is true, which this version of ebb does not compute"},
        {"{'modules_to_save': ['lm_head']}", EBB_UNSUPPORTED, "'modules_to_save' is [\"lm_head\"]"},
        {"{'rank_pattern': {'q_proj': 4}}", EBB_UNSUPPORTED, "'rank_pattern' is {\"q_proj\":4}"},
        {"{'alpha_pattern': {'q_proj': 4}}", EBB_UNSUPPORTED, "'alpha_pattern' is"},
        {"{'layers_to_transform': [0]}", EBB_UNSUPPORTED, "'layers_to_transform' is [0]"},
        {"{'fan_in_fan_out': true}", EBB_UNSUPPORTED, "'fan_in_fan_out' is true"},
        {"{'lora_bias': true}", EBB_UNSUPPORTED, "'lora_bias' is true"},
        {"{'target_parameters': ['x']}", EBB_UNSUPPORTED, "'target_parameters' is"},
        {"{'init_lora_weights': 'pissa'}", EBB_UNSUPPORTED, "'init_lora_weights' is \"pissa\""},
        {"{'target_modules': '.*_proj'}", EBB_UNSUPPORTED,
         "'target_modules' is the pattern \".*_proj\""},
        {"{'target_modules': []}", EBB_BAD_FILE,
         "'target_modules' must be a list of module names, found []"},
        {"{'target_modules': null}", EBB_BAD_FILE,
         "'target_modules' must be a list of module names, found null"},
        {"{'target_modules': ['q_proj', 1]}", EBB_BAD_FILE,
         "'target_modules' must be a list of module names"},
        {"{'target_modules': "
         "['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q']}",
         EBB_UNSUPPORTED, "more than 16 different targets"},
        {"{'r': 0}", EBB_BAD_FILE, "'r' is 0, must be at least 1"},
        {"{'r': '-'}", EBB_BAD_FILE, "'r' is missing"},
        {"{'lora_alpha': '-'}", EBB_BAD_FILE, "'lora_alpha' is missing"},
        {"{'lora_dropout': 1.0}", EBB_BAD_FILE, "'lora_dropout' is 1, must be from 0 to below 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_adapter_config config;
        enum ebb_status status = load(room, cases[i].change, &config);
        if (status == EBB_OK) fail_msg("accepted: %s", cases[i].change);
        assert_int_equal(config.target_count, 0);
        room_failed(room, status, cases[i].status, cases[i].text);
    }
    struct ebb_adapter_config config;
    ROOM_OK(room, load(room, "{'future_key': 3}", &config));
    assert_non_null(
        strstr(room->warning, "'future_key' is 3, a key that this version of ebb does not know"));
    ebb_adapter_config_clear(room->ctx, &config);
}

static void a_directory_without_an_adapter_is_refused(void **state)
{
    struct room *room = *state;
    struct ebb_adapter_config config;
    room_failed(room, ebb_adapter_config_load(room->ctx, room->dir, &config), EBB_BAD_FILE,
                "is no adapter: it has no adapter_config.json");
}

static void a_loaded_adapter_must_fit_the_model(void **state)
{
    struct room *room = *state;
    struct ebb_weight_list list = weights_of(room);
    struct ebb_adapter_config config;
    ROOM_OK(room, load(room, "{'target_modules': ['self_attn.q_proj', 'up_proj']}", &config));
    ROOM_OK(room, ebb_adapter_config_check(room->ctx, &list, &config));
    ebb_adapter_config_clear(room->ctx, &config);
    ROOM_OK(room, load(room, "{'target_modules': ['q_proj', 'lm_head']}", &config));
    room_failed(room, ebb_adapter_config_check(room->ctx, &list, &config), EBB_UNSUPPORTED,
                "adapter_config.json: the model has no 'lm_head' that LoRA can go to");
    ebb_adapter_config_clear(room->ctx, &config);
    ebb_weight_list_free(room->ctx, &list);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void tensors_have_pefts_names(void **state)
{
    struct room *room = *state;
    struct ebb_weight_list list = weights_of(room);
    char *name = NULL;
    for (int64_t i = 0; i < list.count && !name; i++)
        if (list.items[i].layer == 1 && list.items[i].module)
            name = ebb_adapter_tensor_name(room->ctx, &list.items[i], 'B');
    assert_string_equal(name, "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight");
    ebb_mem_free(room->ctx, name);
    ebb_weight_list_free(room->ctx, &list);
}

static void a_starts_uniform_within_its_bound(void **state)
{
    (void)state;
    enum { RANK = 64, IN = 256, COUNT = RANK * IN };
    static float a[COUNT], b[COUNT];
    struct ebb_adapter_config config = {.rank = RANK};
    struct ebb_weight weight = {.rows = 8, .cols = IN};
    ebb_adapter_init_a(&config, &weight, 7, 3, a);
    ebb_adapter_init_a(&config, &weight, 7, 3, b);
    assert_memory_equal(a, b, sizeof a);
    double sum = 0, square = 0, most = 0;
    for (int i = 0; i < COUNT; i++) {
        sum += (double)a[i];
        square += (double)a[i] * (double)a[i];
        if (fabs((double)a[i]) > most) most = fabs((double)a[i]);
    }
    double bound = 1.0 / 16;
    assert_true(most <= bound && most > 0.999 * bound);
    assert_true(fabs(sum / COUNT) < 4 * bound / sqrt(3.0 * COUNT)); /* four standard errors */
    assert_true(fabs(square / COUNT / (bound * bound / 3) - 1) <
                0.03); /* a uniform variable's variance */
    ebb_adapter_init_a(&config, &weight, 7, 4, b);
    int equal = 0;
    for (int i = 0; i < COUNT; i++) equal += a[i] == b[i];
    assert_true(equal < 10);
}

static void merging_adds_the_scaled_product(void **state)
{
    (void)state;
    enum { OUT = 5, IN = 700, RANK = 3 };
    static float base[OUT * IN], a[RANK * IN], b[OUT * RANK], merged[OUT * IN];
    static uint16_t half[OUT * IN], base_half[OUT * IN];
    for (int i = 0; i < OUT * IN; i++) base[i] = (float)((i * 37) % 101) / 50 - 1;
    for (int i = 0; i < OUT * IN; i++) base_half[i] = ebb_to_bf16(base[i]);
    for (int i = 0; i < RANK * IN; i++) a[i] = (float)((i * 53) % 97) / 97;
    for (int i = 0; i < OUT * RANK; i++) b[i] = (float)(i - 7) / 8;
    struct ebb_adapter_config config = {.rank = RANK, .alpha = 6};
    struct ebb_tensor_info info = {
        .dtype = EBB_F32, .dims = 2, .shape = {OUT, IN}, .data = base, .bytes = sizeof base};
    ebb_adapter_merge(&config, &info, a, b, 0, 2, EBB_F32, merged);
    ebb_adapter_merge(&config, &info, a, b, 2, 3, EBB_F32, merged + 2 * IN);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            double want = 0;
            for (int k = 0; k < RANK; k++) want += (double)b[o * RANK + k] * (double)a[k * IN + i];
            want = (double)base[o * IN + i] + 2 * want;
            assert_true(fabs((double)merged[o * IN + i] - want) < 1e-6);
        }
    /* bf16 in and out: the sum is made in fp32 and rounded once. */
    info.dtype = EBB_BF16;
    info.data = base_half;
    info.bytes = sizeof base_half;
    ebb_adapter_merge(&config, &info, a, b, 0, OUT, EBB_BF16, half);
    for (int i = 0; i < OUT * IN; i++) base[i] = ebb_from_bf16(base_half[i]);
    info.dtype = EBB_F32;
    info.data = base;
    info.bytes = sizeof base;
    ebb_adapter_merge(&config, &info, a, b, 0, OUT, EBB_F32, merged);
    for (int i = 0; i < OUT * IN; i++) assert_int_equal(half[i], ebb_to_bf16(merged[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_CASE(all_linear_is_every_linear_layer_but_the_head),
        ROOM_CASE(targets_are_named_with_commas_or_spaces),
        ROOM_CASE(unknown_targets_are_refused),
        cmocka_unit_test(the_scale_is_alpha_over_rank_or_its_root),
        ROOM_CASE(pefts_configuration_is_read),
        ROOM_CASE(a_saved_configuration_reads_back),
        ROOM_CASE(features_that_are_not_computed_are_refused_by_name),
        ROOM_CASE(a_directory_without_an_adapter_is_refused),
        ROOM_CASE(a_loaded_adapter_must_fit_the_model),
        ROOM_CASE(tensors_have_pefts_names),
        cmocka_unit_test(a_starts_uniform_within_its_bound),
        cmocka_unit_test(merging_adds_the_scaled_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
