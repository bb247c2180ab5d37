/* Model directories: random weights, side files, the byte tokenizer, and the Hub's cache.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_test.h"

#include <math.h>

#include "model/init.h"
#include "model/safetensors.h"

static const char *const model =
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_size\": 64, \"intermediate_size\": 96, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, "
    "\"vocab_size\": 320, "
    "\"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
    "\"hidden_act\": \"silu\", "
    "\"initializer_range\": 0.05, \"pad_token_id\": 3, \"torch_dtype\": \"float32\", \"a_key\": "
    "[1.5]}";

static const char *place(struct room *room, const char *name)
{
    static char paths[4][256]; /* in turn; the test's own memory */
    static int next;
    return room_path(room, name, paths[next++ % 4]);
}

static void write_config(struct room *room, const char *name)
{
    room_write(room, name, model, strlen(model));
}

static json_t *json_at(struct room *room, const char *name)
{
    json_t *json;
    ROOM_OK(room, ebb_json_load(room->ctx, place(room, name), &json));
    return json;
}

static void write_at(struct room *room, const char *dir, const char *name, const char *text)
{
    char path[160];
    ROOM_OK(room, ebb_dir_create(room->ctx, place(room, dir)));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    room_write(room, path, text, strlen(text));
}

/* ---- ebb_model_init -------------------------------------------------------------------------- */

static void a_new_model_loads_with_every_weight(void **state)
{
    struct room *room = *state;
    struct ebb_model_config *config;
    struct ebb_weight_list list;
    struct ebb_safetensors *set;
    write_config(room, "c.json");
    ROOM_OK(room,
            ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "m"), EBB_BF16, 42));
    assert_false(ebb_dir_exists(place(room, "m.partial")));
    ROOM_OK(room, ebb_model_config_load(room->ctx, place(room, "m"), &config));
    assert_int_equal(config->dtype, EBB_BF16);
    ROOM_OK(room, ebb_weight_list_create(room->ctx, config, &list));
    ROOM_OK(room, ebb_safetensors_open_dir(room->ctx, place(room, "m"), &set));
    assert_int_equal(ebb_safetensors_count(set), list.count);
    for (int64_t i = 0; i < list.count; i++) {
        const struct ebb_weight *weight = &list.items[i];
        const struct ebb_tensor_info *info;
        ROOM_OK(room, ebb_safetensors_want(room->ctx, set, weight->name, weight->rows, weight->cols,
                                           &info));
        assert_int_equal(info->dtype, EBB_BF16);
        assert_int_equal(info->dims, weight->rows == 1 ? 1 : 2);
    }
    json_t *json = json_at(room, "m/config.json");
    assert_string_equal(json_string_value(json_object_get(json, "torch_dtype")), "bfloat16");
    assert_null(json_object_get(json, "dtype"));
    assert_int_equal(json_array_size(json_object_get(json, "a_key")), 1);
    json_decref(json);
    ebb_safetensors_close(room->ctx, set);
    ebb_weight_list_free(room->ctx, &list);
    ebb_model_config_free(room->ctx, config);
}

static void weights_start_as_in_transformers(void **state)
{
    struct room *room = *state;
    struct ebb_safetensors *set;
    const struct ebb_tensor_info *info;
    static float values[320 * 64];
    write_config(room, "c.json");
    ROOM_OK(room,
            ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "m"), EBB_F32, 42));
    ROOM_OK(room, ebb_safetensors_open_dir(room->ctx, place(room, "m"), &set));
    ROOM_OK(room, ebb_safetensors_want(room->ctx, set, "lm_head.weight", 320, 64, &info));
    ebb_tensor_copy(info, 320, 64, values, EBB_F32, 64);
    double sum = 0, square = 0;
    for (int i = 0; i < 320 * 64; i++)
        sum += (double)values[i], square += (double)values[i] * (double)values[i];
    assert_true(fabs(sum / (320 * 64)) < 4 * 0.05 / sqrt(320 * 64));
    assert_true(fabs(sqrt(square / (320 * 64)) / 0.05 - 1) < 0.03);
    ROOM_OK(room,
            ebb_safetensors_want(room->ctx, set, "model.embed_tokens.weight", 320, 64, &info));
    ebb_tensor_copy(info, 320, 64, values, EBB_F32, 64);
    for (int c = 0; c < 64; c++) {
        assert_true(values[3 * 64 + c] == 0); /* pad_token_id */
        assert_true(values[2 * 64 + c] != 0);
    }
    ROOM_OK(room, ebb_safetensors_want(room->ctx, set, "model.layers.1.input_layernorm.weight", 1,
                                       64, &info));
    ebb_tensor_copy(info, 1, 64, values, EBB_F32, 64);
    for (int c = 0; c < 64; c++) assert_true(values[c] == 1);
    ROOM_OK(room, ebb_safetensors_want(room->ctx, set, "model.layers.1.self_attn.k_proj.bias", 1,
                                       16, &info));
    ebb_tensor_copy(info, 1, 16, values, EBB_F32, 16);
    for (int c = 0; c < 16; c++) assert_true(values[c] == 0);
    ebb_safetensors_close(room->ctx, set);
}

static uint64_t hash_at(struct room *room, const char *name)
{
    uint64_t hash;
    ROOM_OK(room, ebb_file_hash(room->ctx, place(room, name), NULL, &hash));
    return hash;
}

static void the_same_seed_gives_the_same_bytes(void **state)
{
    struct room *room = *state;
    write_config(room, "c.json");
    ROOM_OK(room,
            ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "a"), EBB_F16, 1));
    ROOM_OK(room,
            ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "b"), EBB_F16, 1));
    ROOM_OK(room,
            ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "c"), EBB_F16, 2));
    assert_true(hash_at(room, "a/model.safetensors") == hash_at(room, "b/model.safetensors"));
    assert_true(hash_at(room, "a/model.safetensors") != hash_at(room, "c/model.safetensors"));
}

static void a_model_is_never_written_over(void **state)
{
    struct room *room = *state;
    write_config(room, "c.json");
    ROOM_OK(room,
            ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "m"), EBB_F32, 1));
    room_failed(room,
                ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "m"), EBB_F32,
                               1),
                EBB_BAD_CONFIG, "holds a model already ('model.safetensors')");
    write_at(room, "n", "config.json", "{}");
    room_failed(room,
                ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "n"), EBB_F32,
                               1),
                EBB_BAD_CONFIG, "holds a model already ('config.json')");
    /* A directory that holds only the config.json to use is filled. */
    write_at(room, "o", "config.json", model);
    ROOM_OK(room, ebb_model_init(room->ctx, place(room, "o/config.json"), NULL, place(room, "o"),
                                 EBB_F32, 1));
    assert_true(ebb_file_exists(place(room, "o/model.safetensors")));
}

static void wrong_requests_are_refused(void **state)
{
    struct room *room = *state;
    write_config(room, "c.json");
    room_failed(room,
                ebb_model_init(room->ctx, place(room, "x.json"), NULL, place(room, "m"), EBB_F32,
                               1),
                EBB_IO, "x.json");
    room_failed(room,
                ebb_model_init(room->ctx, place(room, "c.json"), NULL, place(room, "m"), EBB_I32,
                               1),
                EBB_BAD_CONFIG, "weights cannot be int32");
    room_failed(room,
                ebb_model_init(room->ctx, place(room, "c.json"), place(room, "t"), place(room, "m"),
                               EBB_F32, 1),
                EBB_BAD_CONFIG, "no tokenizer directory");
    ROOM_OK(room, ebb_dir_create(room->ctx, place(room, "t")));
    room_failed(room,
                ebb_model_init(room->ctx, place(room, "c.json"), place(room, "t"), place(room, "m"),
                               EBB_F32, 1),
                EBB_BAD_CONFIG, "holds no tokenizer");
    assert_false(ebb_dir_exists(place(room, "m")));
    assert_false(ebb_dir_exists(place(room, "m.partial")));
    json_t *json = json_at(room, "c.json");
    json_object_set_new(json, "vocab_size", json_integer(257));
    ROOM_OK(room, ebb_json_save(room->ctx, place(room, "v.json"), json));
    json_object_set_new(json, "initializer_range", json_real(-1));
    ROOM_OK(room, ebb_json_save(room->ctx, place(room, "r.json"), json));
    json_decref(json);
    room_failed(room,
                ebb_model_init(room->ctx, place(room, "v.json"), EBB_TOKENIZER_BYTES,
                               place(room, "m"), EBB_F32, 1),
                EBB_BAD_CONFIG, "'vocab_size' is 257, the byte tokenizer needs 258");
    room_failed(room,
                ebb_model_init(room->ctx, place(room, "r.json"), NULL, place(room, "m"), EBB_F32,
                               1),
                EBB_BAD_FILE, "'initializer_range' is -1");
}

/* ---- side files and the byte tokenizer ------------------------------------------------------- */

static void a_tokenizer_directory_is_copied(void **state)
{
    struct room *room = *state;
    write_config(room, "c.json");
    write_at(room, "t", "tokenizer.json", "{}");
    write_at(room, "t", "chat_template.jinja", "hello");
    write_at(room, "t", "notes.txt", "not for the model");
    ROOM_OK(room, ebb_model_init(room->ctx, place(room, "c.json"), place(room, "t"),
                                 place(room, "m"), EBB_F32, 1));
    assert_true(ebb_file_exists(place(room, "m/tokenizer.json")));
    assert_true(ebb_file_exists(place(room, "m/chat_template.jinja")));
    assert_false(ebb_file_exists(place(room, "m/notes.txt")));
}

static void side_files_go_beside_saved_weights(void **state)
{
    struct room *room = *state;
    write_at(room, "a", "config.json",
             "{\"dtype\": \"float32\", \"rms_norm_eps\": 1e-05, \"x\": {\"y\": [1, 2.5]}}");
    write_at(room, "a", "generation_config.json", "{\"eos_token_id\": 1}");
    write_at(room, "a", "tokenizer.model", "spm");
    ROOM_OK(room, ebb_dir_create(room->ctx, place(room, "b")));
    ROOM_OK(room,
            ebb_model_copy_side_files(room->ctx, place(room, "a"), place(room, "b"), EBB_BF16));
    json_t *json = json_at(room, "b/config.json");
    assert_string_equal(json_string_value(json_object_get(json, "dtype")), "bfloat16");
    assert_null(json_object_get(json, "torch_dtype"));
    assert_true(json_real_value(json_object_get(json, "rms_norm_eps")) == 1e-5);
    assert_int_equal(json_object_size(json), 3);
    json_decref(json);
    assert_true(ebb_file_exists(place(room, "b/generation_config.json")));
    assert_true(ebb_file_exists(place(room, "b/tokenizer.model")));
    /* Onto itself: nothing is lost. */
    ROOM_OK(room,
            ebb_model_copy_side_files(room->ctx, place(room, "b"), place(room, "b"), EBB_F32));
    assert_int_equal(hash_at(room, "a/tokenizer.model") == hash_at(room, "b/tokenizer.model"), 1);
}

static void the_byte_tokenizer_has_a_token_for_each_byte(void **state)
{
    struct room *room = *state;
    write_config(room, "c.json");
    ROOM_OK(room, ebb_model_init(room->ctx, place(room, "c.json"), EBB_TOKENIZER_BYTES,
                                 place(room, "m"), EBB_F32, 1));
    json_t *json = json_at(room, "m/tokenizer.json");
    const json_t *vocab = json_object_get(json_object_get(json, "model"), "vocab");
    assert_int_equal(json_object_size(vocab), 256);
    assert_int_equal(json_integer_value(json_object_get(vocab, "A")), 65);
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc4\xa0")), ' ');  /* U+0120 */
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc4\x8a")), '\n'); /* U+010A */
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc4\x80")), 0);    /* U+0100 */
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc5\x83")),
                     0xad); /* U+0143, the last of the others */
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc3\xbf")), 0xff);
    const json_t *added = json_object_get(json, "added_tokens");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(added, 0), "id")),
                     EBB_BYTES_EOS);
    assert_string_equal(json_string_value(json_object_get(json_array_get(added, 1), "content")),
                        "<|begin|>");
    json_decref(json);
    struct ebb_model_config *config;
    ROOM_OK(room, ebb_model_config_load(room->ctx, place(room, "m"), &config));
    assert_int_equal(config->eos_ids[0], EBB_BYTES_EOS);
    assert_int_equal(config->bos_id, EBB_BYTES_BOS);
    assert_int_equal(config->pad_id, -1);
    ebb_model_config_free(room->ctx, config);
}

static void running_out_of_memory_anywhere_is_an_error_without_leaks(void **state)
{
    struct room *room = *state;
    write_config(room, "c.json");
    for (int nth = 1; nth < 2000; nth++) {
        ROOM_OK(room, ebb_dir_remove(room->ctx, place(room, "m")));
        ebb_mem_fail_nth(room->ctx, nth, false);
        enum ebb_status status = ebb_model_init(room->ctx, place(room, "c.json"),
                                                EBB_TOKENIZER_BYTES, place(room, "m"), EBB_BF16, 1);
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

/* ---- finding --------------------------------------------------------------------------------- */

static void a_hub_id_is_found_in_the_cache(void **state)
{
    struct room *room = *state;
    struct ebb_hub_env env = {0};
    char *dir;
    write_at(room, "hf/hub/models--org--name/refs", "main", "abc123\n");
    write_at(room, "hf/hub/models--org--name/snapshots/abc123", "config.json", "{}");
    env.hf_home = place(room, "hf");
    ROOM_OK(room, ebb_model_find(room->ctx, "org/name", &env, &dir));
    assert_string_equal(dir, place(room, "hf/hub/models--org--name/snapshots/abc123"));
    ebb_mem_free(room->ctx, dir);
    env.hf_hub_cache = place(room, "hf/hub");
    env.hf_home = "/nowhere";
    ROOM_OK(room, ebb_model_find(room->ctx, "org/name", &env, &dir));
    ebb_mem_free(room->ctx, dir);
    write_at(room, ".cache/huggingface/hub/models--gpt/refs", "main", "f");
    write_at(room, ".cache/huggingface/hub/models--gpt/snapshots/f", "config.json", "{}");
    struct ebb_hub_env home = {.home = room->dir};
    ROOM_OK(room, ebb_model_find(room->ctx, "gpt", &home, &dir));
    ebb_mem_free(room->ctx, dir);
}

static void a_directory_is_taken_as_it_is(void **state)
{
    struct room *room = *state;
    char *dir;
    ROOM_OK(room, ebb_model_find(room->ctx, room->dir, NULL, &dir));
    assert_string_equal(dir, room->dir);
    ebb_mem_free(room->ctx, dir);
}

static void what_is_not_there_says_how_to_get_it(void **state)
{
    struct room *room = *state;
    struct ebb_hub_env env = {.hf_hub_cache = room->dir};
    char *dir;
    room_failed(room, ebb_model_find(room->ctx, "org/name", &env, &dir), EBB_BAD_CONFIG,
                "model 'org/name' is neither a directory nor in the Hugging Face cache");
    assert_null(dir);
    room_failed(room, ebb_model_find(room->ctx, "org/name", &env, &dir), EBB_BAD_CONFIG,
                "\ndownload it: hf download org/name");
    room_failed(room, ebb_model_find(room->ctx, "org/name", NULL, &dir), EBB_BAD_CONFIG,
                "hf download org/name");
    room_failed(room, ebb_model_find(room->ctx, "./org/name", &env, &dir), EBB_BAD_CONFIG,
                "there is no model directory './org/name'");
    room_failed(room, ebb_model_find(room->ctx, "a/b/c", &env, &dir), EBB_BAD_CONFIG,
                "no model directory 'a/b/c'");
    room_failed(room, ebb_model_find(room->ctx, "org/", &env, &dir), EBB_BAD_CONFIG,
                "no model directory 'org/'");
    room_failed(room, ebb_model_find(room->ctx, "", &env, &dir), EBB_BAD_CONFIG,
                "no model directory ''");
    write_config(room, "f");
    room_failed(room, ebb_model_find(room->ctx, place(room, "f"), &env, &dir), EBB_BAD_CONFIG,
                "is a file");
    /* A download that was broken off: a name of a commit without its files. */
    write_at(room, "models--org--name/refs", "main", "abc");
    room_failed(room, ebb_model_find(room->ctx, "org/name", &env, &dir), EBB_BAD_CONFIG,
                "hf download org/name");
    write_at(room, "models--org--name/refs", "main", "\n");
    room_failed(room, ebb_model_find(room->ctx, "org/name", &env, &dir), EBB_BAD_FILE,
                "must hold the name of a commit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_CASE(a_new_model_loads_with_every_weight),
        ROOM_CASE(weights_start_as_in_transformers),
        ROOM_CASE(the_same_seed_gives_the_same_bytes),
        ROOM_CASE(a_model_is_never_written_over),
        ROOM_CASE(wrong_requests_are_refused),
        ROOM_CASE(a_tokenizer_directory_is_copied),
        ROOM_CASE(side_files_go_beside_saved_weights),
        ROOM_CASE(the_byte_tokenizer_has_a_token_for_each_byte),
        ROOM_CASE(running_out_of_memory_anywhere_is_an_error_without_leaks),
        ROOM_CASE(a_hub_id_is_found_in_the_cache),
        ROOM_CASE(a_directory_is_taken_as_it_is),
        ROOM_CASE(what_is_not_there_says_how_to_get_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
