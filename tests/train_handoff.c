/* What a run and a merge leave, against what the programs that load it ask for: names of files and
 * tensors, shapes, types, keys of configurations. Each expectation names the file and function of
 * the project that has it. tools/handoff_families.py does the same with those projects themselves.
 *
 * Files are read by a reader of the test's own. The oracle for a whole model is the golden model
 * that the run began with, which transformers saved.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_run.h"

#include "train/merge.h"

#define ADAPTER "adapter_model.safetensors"

/* ---- reading --------------------------------------------------------------------------------- */

static json_t *load_json(const char *dir, const char *name)
{
    char path[700];
    json_error_t error;
    json_t *json = json_load_file(run_path(dir, name, path), 0, &error);
    if (!json) fail_msg("%s: %s", path, error.text);
    return json;
}

/* A safetensors file's header: {"name": {"dtype", "shape", "data_offsets"}, "__metadata__"}. */
static json_t *load_header(const char *dir, const char *name)
{
    char path[700];
    unsigned char head[8];
    size_t bytes = 0;
    FILE *file = fopen(run_path(dir, name, path), "rb");
    if (!file || fread(head, 1, 8, file) != 8) fail_msg("cannot read %s", path);
    for (int i = 7; i >= 0; i--) bytes = bytes << 8 | head[i];
    char *text = (char *)malloc(bytes);
    assert_int_equal(fread(text, 1, bytes, file), bytes);
    (void)fclose(file);
    json_error_t error;
    json_t *json = json_loadb(text, bytes, 0, &error);
    free(text);
    if (!json) fail_msg("%s: %s", path, error.text);
    return json;
}

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    if (!text) fail_msg("no text '%s'", key);
    return text;
}

static json_int_t side(const json_t *tensor, size_t which)
{
    const json_t *shape = json_object_get(tensor, "shape");
    assert_int_equal(json_array_size(shape), 2);
    return json_integer_value(json_array_get(shape, which));
}

/* transformers 4's load_state_dict (modeling_utils.py) refuses a file whose metadata does not say
 * which library's it is; save_pretrained of any release says "pt". */
static void check_format(const json_t *header)
{
    assert_string_equal(text_of(json_object_get(header, "__metadata__"), "format"), "pt");
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- an adapter ------------------------------------------------------------------------------ */

static void train(const char *dir, struct run_options o)
{
    struct run run;
    run_open(&run, &o, dir, NULL);
    run.request.max_steps = 2;
    run.request.save_strategy = EBB_WHEN_STEPS;
    run.request.save_steps = 2;
    run_must(&run);
    run_close(&run);
}

static void train_adapter(const char *dir, struct run_options o)
{
    o.lora = true;
    train(dir, o);
}

/* Keys that PEFT has had in LoraConfig since 0.10 (tuners/lora/config.py): older
 * releases give the whole file to its constructor, which refuses another key. */
static const char *const lora_config[] = {
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "fan_in_fan_out",
    "inference_mode",
    "init_lora_weights",
    "layer_replication",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "megatron_config",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "r",
    "rank_pattern",
    "revision",
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
};

static void an_adapters_configuration_is_one_that_peft_takes(void **state)
{
    train_adapter((const char *)*state, (struct run_options){.all_linear = true, .rslora = true});
    json_t *config = load_json((const char *)*state, "adapter_config.json");
    const char *key;
    json_t *value;
    json_object_foreach(config, key, value)
    {
        size_t i = 0, count = sizeof lora_config / sizeof lora_config[0];
        while (i < count && strcmp(lora_config[i], key) != 0) i++;
        if (i == count) fail_msg("PEFT has no '%s'", key);
    }
    /* PeftConfigMixin._get_peft_type, PeftModel.from_pretrained: by these two the classes are
     * found. */
    assert_string_equal(text_of(config, "peft_type"), "LORA");
    assert_string_equal(text_of(config, "task_type"), "CAUSAL_LM");
    /* PeftModel.from_pretrained trains no loaded adapter unless asked, whatever this says; loaders
     * that only serve look at it. */
    assert_true(json_is_true(json_object_get(config, "inference_mode")));
    assert_true(json_is_true(json_object_get(config, "use_rslora")));
    assert_true(json_is_false(json_object_get(config, "use_dora")));
    assert_true(json_is_false(json_object_get(config, "fan_in_fan_out")));
    assert_int_equal(json_array_size(json_object_get(config, "target_modules")), 7);
    json_decref(config);
}

/* vLLM's PEFTHelper (lora/peft_helper.py) declares r and lora_alpha as int; Ollama's
 * AdapterParameters (convert/convert.go) reads lora_alpha into an unsigned integer, for which Go
 * refuses 8.0 as well as 8.5. */
static void a_whole_alpha_is_written_as_an_integer(void **state)
{
    char dir[700];
    for (int i = 0; i < 2; i++) {
        train_adapter(run_path((const char *)*state, i ? "broken" : "whole", dir),
                      (struct run_options){.lora_alpha = i ? 8.5 : 16});
        json_t *config = load_json(dir, "adapter_config.json");
        assert_true(json_is_integer(json_object_get(config, "r")));
        const json_t *alpha = json_object_get(config, "lora_alpha");
        assert_true(i ? json_real_value(alpha) == 8.5 : json_integer_value(alpha) == 16);
        json_decref(config);
    }
}

/* vLLM's PEFTHelper._validate_features and validate_legal: what it does not serve must be off.
 * llama.cpp's convert_lora_to_gguf.py has no rank_pattern and no alpha_pattern. */
static void an_adapter_asks_for_nothing_that_servers_refuse(void **state)
{
    train_adapter((const char *)*state, (struct run_options){.all_linear = true});
    json_t *config = load_json((const char *)*state, "adapter_config.json");
    assert_true(json_is_null(json_object_get(config, "modules_to_save")));
    assert_string_equal(text_of(config, "bias"), "none");
    assert_int_equal(json_object_size(json_object_get(config, "rank_pattern")), 0);
    assert_int_equal(json_object_size(json_object_get(config, "alpha_pattern")), 0);
    assert_true(json_is_null(json_object_get(config, "layers_to_transform")));
    json_decref(config);
}

/* Both tensors of each adapted matrix, and nothing else.
 *   PEFT, set_peft_model_state_dict (utils/save_and_load.py): the module's name behind
 *     base_model.model., then lora_A.weight or lora_B.weight; it puts the adapter's name in.
 *   vLLM, parse_fine_tuned_lora_name (lora/utils.py), and check_unexpected_modules of
 *     LoRAModel.from_local_checkpoint: the module's last name is a linear layer of the model.
 *   llama.cpp, convert_lora_to_gguf.py: other tensors end it, and so does one of a pair alone;
 *     LoraTorchTensor wants A's rows to be B's columns. */
static void check_adapter(const char *dir, const char *model, const char *const *targets,
                          size_t target_count)
{
    char model_dir[600];
    snprintf(model_dir, sizeof model_dir, "%s/tests/golden/models/%s", EBB_SOURCE_DIR, model);
    json_t *base = load_header(model_dir, "model.safetensors");
    json_t *low = load_header(dir, ADAPTER);
    const char *name;
    json_t *weight;
    size_t pairs = 0;
    check_format(low);
    json_object_foreach(base, name, weight)
    {
        bool adapted = false;
        for (size_t i = 0; i < target_count; i++) {
            char end[40];
            snprintf(end, sizeof end, ".%s.weight", targets[i]);
            adapted = adapted || ends_with(name, end);
        }
        if (!adapted) continue;
        char a_name[256], b_name[256];
        int module = (int)(strlen(name) - strlen(".weight"));
        snprintf(a_name, sizeof a_name, "base_model.model.%.*s.lora_A.weight", module, name);
        snprintf(b_name, sizeof b_name, "base_model.model.%.*s.lora_B.weight", module, name);
        const json_t *a = json_object_get(low, a_name), *b = json_object_get(low, b_name);
        if (!a || !b) fail_msg("%s: no pair of '%s'", model, name);
        assert_int_equal(side(a, 0), 4);
        assert_int_equal(side(a, 1), side(weight, 1));
        assert_int_equal(side(b, 0), side(weight, 0));
        assert_int_equal(side(b, 1), 4);
        assert_string_equal(text_of(a, "dtype"), "F32");
        assert_string_equal(text_of(b, "dtype"), "F32");
        pairs++;
    }
    assert_true(pairs > 0);
    assert_int_equal(json_object_size(low), 2 * pairs + 1); /* __metadata__ */
    json_decref(base);
    json_decref(low);
}

static const char *const families[] = {"llama3", "smollm2", "mistral", "qwen2", "qwen3"};
enum { FAMILIES = sizeof families / sizeof families[0] };

static void an_adapters_tensors_are_pairs_of_the_models_modules(void **state)
{
    static const char *const all[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                      "gate_proj", "up_proj", "down_proj"};
    static const char *const some[] = {"q_proj", "v_proj"};
    char dir[700], name[64];
    for (size_t i = 0; i < FAMILIES; i++) {
        snprintf(name, sizeof name, "%s_all", families[i]);
        train_adapter(run_path((const char *)*state, name, dir),
                      (struct run_options){.model = families[i], .all_linear = true});
        check_adapter(dir, families[i], all, 7);
        snprintf(name, sizeof name, "%s_some", families[i]);
        train_adapter(run_path((const char *)*state, name, dir),
                      (struct run_options){.model = families[i]});
        check_adapter(dir, families[i], some, 2);
    }
}

/* ---- a whole model --------------------------------------------------------------------------- */

/* Architectures that transformers' AutoModelForCausalLM, vLLM's registry
 * (model_executor/models/registry.py) and llama.cpp's converter (conversion/, @ModelBase.register)
 * know under these names. */
static const char *const architectures[FAMILIES] = {"LlamaForCausalLM", "LlamaForCausalLM",
                                                    "MistralForCausalLM", "Qwen2ForCausalLM",
                                                    "Qwen3ForCausalLM"};

static void add_weights(json_t *all, const char *dir, const char *file, const char *dtype)
{
    json_t *header = load_header(dir, file);
    const char *name;
    json_t *tensor;
    check_format(header);
    json_object_foreach(header, name, tensor)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        assert_null(json_object_get(all, name));
        assert_string_equal(text_of(tensor, "dtype"), dtype);
        json_object_set(all, name, json_object_get(tensor, "shape"));
    }
    json_decref(header);
}

/* llama.cpp's ModelBase.index_tensors (conversion/base.py) compares the index with the tensors that
 * it found and ends at one too many or too few; vLLM's filter_duplicate_safetensors_files
 * (model_loader/weight_utils.py) reads the files that the index names. */
static void check_index(json_t *all, const char *dir, const char *dtype)
{
    json_t *index = load_json(dir, "model.safetensors.index.json");
    json_t *map = json_object_get(index, "weight_map"), *files = json_object();
    const char *name;
    json_t *file;
    assert_true(json_is_integer(json_object_get(json_object_get(index, "metadata"), "total_size")));
    json_object_foreach(map, name, file) json_object_set(files, json_string_value(file), file);
    assert_true(json_object_size(files) > 1);
    json_object_foreach(files, name, file) add_weights(all, dir, name, dtype);
    assert_int_equal(json_object_size(all), json_object_size(map));
    json_object_foreach(map, name, file) assert_non_null(json_object_get(all, name));
    json_decref(files);
    json_decref(index);
}

/* Of everything in the directory that ends in .safetensors: vLLM's DefaultModelLoader
 * (model_loader/default_loader.py, _prepare_weights), SGLang's after it, and Ollama's parseTensors
 * (convert/reader.go) load all such files of a directory without an index as the model's weights;
 * llama.cpp's get_model_part_names takes those that begin with "model". */
static void check_only_weights(const char *dir, bool adapter)
{
    char **names;
    size_t count, weights = 0;
    struct ebb_ctx *ctx = ebb_ctx_create();
    run_ok(ctx, ebb_dir_list(ctx, dir, &names, &count), dir);
    for (size_t i = 0; i < count; i++) {
        bool model = strncmp(names[i], "model", 5) == 0 && ends_with(names[i], ".safetensors");
        bool low = strcmp(names[i], ADAPTER) == 0;
        weights += adapter ? low : model;
        for (const char *const *end =
                 (const char *const[]){".safetensors", ".bin", ".pt", ".pth", NULL};
             *end; end++)
            if (ends_with(names[i], *end) && !(adapter ? low : model))
                fail_msg("%s/%s would be loaded as weights", dir, names[i]);
    }
    assert_true(weights > 0);
    ebb_dir_list_free(ctx, names, count);
    ebb_ctx_free(ctx);
}

/* As transformers saved the model that it came from: the same tensors, and what loaders choose by
 * in config.json. */
static void check_model(const char *dir, size_t family, const char *dtype, const char *dtype_name)
{
    char model_dir[600];
    snprintf(model_dir, sizeof model_dir, "%s/tests/golden/models/%s", EBB_SOURCE_DIR,
             families[family]);
    json_t *wanted = json_object(), *got = json_object();
    add_weights(wanted, model_dir, "model.safetensors", "F32");
    if (run_has(dir, "model.safetensors"))
        add_weights(got, dir, "model.safetensors", dtype);
    else
        check_index(got, dir, dtype);
    if (!json_equal(wanted, got)) fail_msg("%s: other tensors than its base", dir);
    json_t *config = load_json(dir, "config.json"), *base = load_json(model_dir, "config.json");
    const char *arch =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    assert_string_equal(arch, architectures[family]);
    /* Everything but the type is the base's; the type is under the key that the base has it under,
     * "torch_dtype" or, since transformers 4.56, "dtype". */
    const char *key = json_object_get(base, "dtype") ? "dtype" : "torch_dtype";
    assert_string_equal(text_of(config, key), dtype_name);
    json_object_set(config, key, json_object_get(base, key));
    if (!json_equal(config, base)) fail_msg("%s: another config.json than its base", dir);
    assert_true(run_has(dir, "generation_config.json"));
    json_decref(wanted);
    json_decref(got);
    json_decref(config);
    json_decref(base);
}

static void train_model(const char *dir, size_t family, bool bf16)
{
    const struct run_options o = {.model = families[family], .bf16 = bf16};
    train(dir, o);
}

static void a_model_trained_whole_has_what_its_base_has(void **state)
{
    char dir[700], path[700];
    for (size_t i = 0; i < FAMILIES; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            char name[64];
            snprintf(name, sizeof name, "%s_%d", families[i], bf16);
            train_model(run_path((const char *)*state, name, dir), i, bf16);
            check_model(dir, i, bf16 ? "BF16" : "F32", bf16 ? "bfloat16" : "float32");
            run_path(dir, "checkpoint-2", path);
            check_model(path, i, bf16 ? "BF16" : "F32", bf16 ? "bfloat16" : "float32");
        }
}

static void a_merged_model_has_what_its_base_has(void **state)
{
    char dir[700], merged[700], model_dir[600];
    struct ebb_ctx *ctx = ebb_ctx_create();
    for (size_t i = 0; i < FAMILIES; i++) {
        train_adapter(run_path((const char *)*state, families[i], dir),
                      (struct run_options){.model = families[i], .all_linear = true});
        snprintf(model_dir, sizeof model_dir, "%s/tests/golden/models/%s", EBB_SOURCE_DIR,
                 families[i]);
        for (int shards = 0; shards < 2; shards++) {
            char name[64];
            snprintf(name, sizeof name, "%s_merged_%d", families[i], shards);
            run_path((const char *)*state, name, merged);
            run_ok(ctx,
                   ebb_merge_sharded(ctx, model_dir, dir, merged, false, EBB_BF16,
                                     shards ? 10000 : INT64_C(1) << 30),
                   "merge");
            assert_int_equal(run_has(merged, "model.safetensors"), !shards);
            check_model(merged, i, "BF16", "bfloat16");
            check_only_weights(merged, false);
            /* PEFT's integration in transformers (integrations/peft.py) loads an adapter that lies
             * beside a model on top of it: a merged model must have none. */
            assert_false(run_has(merged, "adapter_config.json"));
        }
    }
    ebb_ctx_free(ctx);
}

static void checkpoints_and_results_hold_no_other_weights_than_the_models(void **state)
{
    char dir[700], path[700];
    train_model(run_path((const char *)*state, "whole", dir), 0, false);
    check_only_weights(dir, false);
    check_only_weights(run_path(dir, "checkpoint-2", path), false);
    train_adapter(run_path((const char *)*state, "lora", dir), (struct run_options){0});
    check_only_weights(dir, true);
    check_only_weights(run_path(dir, "checkpoint-2", path), true);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, train_dir_open, train_dir_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_adapters_configuration_is_one_that_peft_takes),
        CASE(a_whole_alpha_is_written_as_an_integer),
        CASE(an_adapter_asks_for_nothing_that_servers_refuse),
        CASE(an_adapters_tensors_are_pairs_of_the_models_modules),
        CASE(a_model_trained_whole_has_what_its_base_has),
        CASE(a_merged_model_has_what_its_base_has),
        CASE(checkpoints_and_results_hold_no_other_weights_than_the_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
