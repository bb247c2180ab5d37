/* Tokenizers of real models against ids written by Hugging Face's tokenizers. Their files are large
 * and not ours: found in the folder EBB_SHARED, else beside the source tree; without them this test
 * is skipped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_golden.h"

#include "base/clock.h"

static char shared[512];

static void check_real(struct room *room, const char *name)
{
    char path[1024];
    struct ebb_tokenizer *tokenizer;
    json_t *golden;
    snprintf(path, sizeof path, "%s/tokenizers/%s", shared, name);
    if (!ebb_dir_exists(path)) {
        print_message("no %s\n", path);
        skip();
    }
    assert_ok(room, ebb_tokenizer_load(room->ctx, path, &tokenizer));
    snprintf(path, sizeof path, "%s/tests/golden/tokenizer_%s.json", EBB_SOURCE_DIR, name);
    assert_ok(room, ebb_json_load(room->ctx, path, &golden));
    check_cases(room, tokenizer, json_array_get(golden, 0));
    json_decref(golden);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void qwen3_ids_equal_hugging_face(void **state)
{
    check_real(*state, "qwen3");
}

static void deepseek_v3_ids_equal_hugging_face(void **state)
{
    check_real(*state, "deepseek_v3");
}

static void qwen3_special_tokens_come_from_its_config(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizers/qwen3", shared);
    if (!ebb_dir_exists(path)) skip();
    assert_ok(room, ebb_tokenizer_load(room->ctx, path, &tokenizer));
    assert_int_equal(ebb_tokenizer_eos(tokenizer), 151645);
    assert_int_equal(ebb_tokenizer_pad(tokenizer), 151643);
    assert_int_equal(ebb_tokenizer_bos(tokenizer), -1);
    assert_int_equal(ebb_tokenizer_vocab_size(tokenizer), 151669);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* Its config asks for BOS, its tokenizer.json puts none: transformers 5 follows the latter. */
static void deepseek_v3_gets_no_bos_and_a_warning(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizers/deepseek_v3", shared);
    if (!ebb_dir_exists(path)) skip();
    assert_ok(room, ebb_tokenizer_load(room->ctx, path, &tokenizer));
    struct ebb_ids ids = {0};
    assert_ok(room, ebb_tokenizer_encode(room->ctx, tokenizer, "a", 1, EBB_ENCODE_SPECIAL, &ids));
    assert_int_equal(ids.count, 1);
    assert_int_equal(ebb_tokenizer_bos(tokenizer), 0);
    assert_non_null(strstr(room->warning, "add_bos_token: true"));
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void llama2_ids_equal_hugging_face(void **state)
{
    check_real(*state, "llama2");
}

static void llama2_begins_with_bos(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizers/llama2", shared);
    if (!ebb_dir_exists(path)) skip();
    assert_ok(room, ebb_tokenizer_load(room->ctx, path, &tokenizer));
    assert_int_equal(ebb_tokenizer_bos(tokenizer), 1);
    assert_int_equal(ebb_tokenizer_eos(tokenizer), 2);
    assert_int_equal(ebb_tokenizer_unk(tokenizer), 0);
    assert_int_equal(ebb_tokenizer_prefix_count(tokenizer, 1), 1);
    assert_int_equal(ebb_tokenizer_vocab_size(tokenizer), 32000);
    assert_string_equal(room->warning, "");
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void qwen3_loads_in_bounded_time_and_memory(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizers/qwen3", shared);
    if (!ebb_dir_exists(path)) skip();
    double start = ebb_clock_seconds();
    assert_ok(room, ebb_tokenizer_load(room->ctx, path, &tokenizer));
    double seconds = ebb_clock_seconds() - start;
    print_message("%.3f s, %.1f MB at most\n", seconds,
                  (double)ebb_mem_bytes_peak(room->ctx) / 1e6);
    assert_true(
        seconds <
        5); /* 0.15 s on an idle machine; the bound allows for a busy one under a sanitizer */
    assert_true(ebb_mem_bytes_peak(room->ctx) < 32000000);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

int main(void)
{
    const char *folder = getenv("EBB_SHARED");
    char tokenizers[600];
    snprintf(shared, sizeof shared, "%s", folder != NULL ? folder : EBB_SOURCE_DIR "/../shared");
    snprintf(tokenizers, sizeof tokenizers, "%s/tokenizers", shared);
    if (!ebb_dir_exists(tokenizers)) {
        fprintf(stderr, "skipped: there is no folder %s (EBB_SHARED names another place)\n",
                tokenizers);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        ROOM_TEST(qwen3_ids_equal_hugging_face),
        ROOM_TEST(deepseek_v3_ids_equal_hugging_face),
        ROOM_TEST(qwen3_special_tokens_come_from_its_config),
        ROOM_TEST(deepseek_v3_gets_no_bos_and_a_warning),
        ROOM_TEST(llama2_ids_equal_hugging_face),
        ROOM_TEST(llama2_begins_with_bos),
        ROOM_TEST(qwen3_loads_in_bounded_time_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
