/* Conversations: what is read again, where a turn ends, what is taken back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"

#include "model/init.h"
#include "train/conversation.h"

enum { ROOM = 300, MOST = 4096, BYTES_END = 256, BYTES_BEGIN = 257 };

/* A model of random weights with the byte tokenizer and its template, in a folder of its own. */
struct place {
    struct ebb_ctx *ctx;
    char dir[64], model[80];
    struct ebb_tokenizer *tokenizer;
    struct ebb_chat_template *chat;
    struct ebb_engine *engine;
};

struct said {
    char text[MOST];
    size_t bytes;
};

static void open_engine(struct place *p)
{
    struct ebb_engine_request request;
    struct ebb_numerics numerics = kit_numerics(EBB_F32);
    memset(&request, 0, sizeof request);
    request.backend = kit_backend();
    request.pageable = kit_pageable();
    numerics.tile_tokens = 6;
    numerics.threads = request.threads = 1;
    request.model_dir = p->model;
    request.storage = EBB_F32;
    request.decode = true;
    request.poison = true; /* NaN in what is not held, so that the cache must be */
    request.capacity.tokens = request.capacity.doc_tokens = 6;
    request.capacity.docs = 1;
    request.capacity.cache_tokens = ROOM;
    request.numerics = &numerics;
    p->engine = kit_engine(p->ctx, &request);
}

static void place_open(struct place *p)
{
    static const char json[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
        "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 258, "
        "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
        "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"initializer_range\": 0.1, "
        "\"torch_dtype\": \"float32\"}";
    char config[80];
    memset(p, 0, sizeof *p);
    p->ctx = ebb_ctx_create();
    snprintf(p->dir, sizeof p->dir, "/tmp/ebb_talk_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->model, sizeof p->model, "%s/model", p->dir);
    snprintf(config, sizeof config, "%s/config.json", p->dir);
    kit_ok(p->ctx, ebb_file_write(p->ctx, config, json, strlen(json)), "config");
    kit_ok(p->ctx, ebb_model_init(p->ctx, config, EBB_TOKENIZER_BYTES, p->model, EBB_F32, 3),
           "init");
    kit_ok(p->ctx, ebb_tokenizer_load(p->ctx, p->model, &p->tokenizer), "tokenizer");
    kit_ok(p->ctx, ebb_chat_template_load(p->ctx, p->model, &p->chat, NULL), "template");
    open_engine(p);
}

static void place_close(struct place *p)
{
    ebb_engine_free(p->engine);
    ebb_chat_template_free(p->ctx, p->chat);
    ebb_tokenizer_free(p->ctx, p->tokenizer);
    kit_ok(p->ctx, ebb_dir_remove(p->ctx, p->dir), "remove");
    assert_int_equal(ebb_mem_bytes_now(p->ctx), 0);
    ebb_ctx_free(p->ctx);
}

static struct ebb_conversation *talk_of(struct place *p)
{
    struct ebb_conversation *talk;
    kit_ok(p->ctx, ebb_conversation_create(p->ctx, p->engine, p->tokenizer, p->chat, NULL, &talk),
           "conversation");
    return talk;
}

static void keep_text(void *user, const char *text, size_t bytes)
{
    struct said *said = (struct said *)user;
    assert_true(said->bytes + bytes < MOST);
    memcpy(said->text + said->bytes, text, bytes);
    said->bytes += bytes;
}

static struct ebb_generate_keys keys_of(int64_t tokens)
{
    struct ebb_generate_keys keys = {.max_new_tokens = tokens,
                                     .top_p = 1,
                                     .repetition_penalty = 1,
                                     .seed = 4};
    return keys;
}

static struct ebb_generate_result say(struct place *p, struct ebb_conversation *talk,
                                      const char *text, struct said *said)
{
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = keys_of(15);
    said->bytes = 0;
    kit_ok(p->ctx, ebb_conversation_say(talk, text, &keys, keep_text, said, &result), "say");
    return result;
}

static const char *content(const struct ebb_conversation *talk, size_t i)
{
    const json_t *message = json_array_get(ebb_conversation_messages(talk), i);
    return json_string_value(json_object_get(message, "content"));
}

static size_t messages(const struct ebb_conversation *talk)
{
    return json_array_size(ebb_conversation_messages(talk));
}

/* A second conversation that is given the same messages reads all of them. */
static void each_turn_reads_what_is_new_and_says_what_a_fresh_reader_would(void **state)
{
    static const char *const lines[] = {"good morning", "and then?", "na\xc3\xafve", "the last"};
    struct place p;
    struct said said, again;
    (void)state;
    place_open(&p);
    struct place fresh = p;
    open_engine(&fresh);
    struct ebb_conversation *talk = talk_of(&p);
    int64_t known = 0;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct ebb_conversation *other = talk_of(&fresh);
        json_t *copy = json_deep_copy(ebb_conversation_messages(talk));
        json_array_extend((json_t *)(uintptr_t)ebb_conversation_messages(other), copy);
        json_decref(copy);
        struct ebb_generate_result one = say(&p, talk, lines[i], &said);
        struct ebb_generate_result two = say(&fresh, other, lines[i], &again);
        assert_int_equal(two.reused_tokens, 0);
        assert_int_equal(one.prompt_tokens, two.prompt_tokens);
        /* Bytes of an answer that are no characters come back as U+FFFD, so not all of an answer
         * is found again; what stood before it is. */
        assert_true(one.reused_tokens >= known && one.reused_tokens < one.prompt_tokens);
        assert_true(i == 0 || one.reused_tokens > 0);
        assert_int_equal(said.bytes, again.bytes);
        assert_memory_equal(said.text, again.text, said.bytes);
        known = one.prompt_tokens;
        ebb_conversation_free(other);
    }
    assert_int_equal(messages(talk), 8);
    assert_string_equal(content(talk, 2), "and then?");
    ebb_conversation_free(talk);
    ebb_engine_free(fresh.engine);
    place_close(&p);
}

static void what_is_taken_back_was_never_said(void **state)
{
    struct place p;
    struct said first, again;
    (void)state;
    place_open(&p);
    struct ebb_conversation *talk = talk_of(&p);
    assert_false(ebb_conversation_undo(talk));
    kit_ok(p.ctx, ebb_conversation_system(talk, "Be brief."), "system");
    assert_false(ebb_conversation_undo(talk));
    assert_int_equal(ebb_conversation_tokens(talk), 0);
    say(&p, talk, "one", &first);
    int64_t one = ebb_conversation_tokens(talk);
    say(&p, talk, "two", &first);
    int64_t two = ebb_conversation_tokens(talk);
    assert_true(0 < one && one < two);
    assert_true(ebb_conversation_undo(talk));
    assert_int_equal(messages(talk), 3);
    assert_int_equal(ebb_conversation_tokens(talk), one);
    say(&p, talk, "two", &again);
    assert_int_equal(ebb_conversation_tokens(talk), two);
    assert_int_equal(again.bytes, first.bytes);
    assert_memory_equal(again.text, first.text, first.bytes);
    ebb_conversation_reset(talk);
    assert_int_equal(messages(talk), 1);
    assert_int_equal(ebb_conversation_tokens(talk), 0);
    assert_string_equal(content(talk, 0), "Be brief.");
    kit_ok(p.ctx, ebb_conversation_system(talk, "Be long."), "system");
    assert_string_equal(content(talk, 0), "Be long.");
    kit_ok(p.ctx, ebb_conversation_system(talk, ""), "system");
    assert_int_equal(messages(talk), 0);
    ebb_conversation_free(talk);
    place_close(&p);
}

static void a_conversation_without_room_says_so_and_stays_as_it_was(void **state)
{
    struct place p;
    struct said said = {.bytes = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = keys_of(-1);
    char text[ROOM + 1];
    (void)state;
    place_open(&p);
    struct ebb_conversation *talk = talk_of(&p);
    memset(text, 'a', ROOM);
    text[ROOM] = 0;
    assert_int_equal(ebb_conversation_say(talk, text, &keys, keep_text, &said, &result),
                     EBB_DOES_NOT_FIT);
    assert_non_null(strstr(ebb_error_text(p.ctx), "there is room for 300"));
    ebb_error_clear(p.ctx);
    assert_int_equal(messages(talk), 0);
    /* "<|begin|>user\n", the text, "<|endoftext|>\n<|begin|>assistant\n": 19 tokens around it */
    text[ROOM - 19 - 3] = 0;
    keys.temperature = 1; /* so that the end token hardly comes */
    kit_ok(p.ctx, ebb_conversation_say(talk, text, &keys, keep_text, &said, &result), "say");
    assert_int_equal(result.prompt_tokens, ROOM - 3);
    assert_true(result.full && !result.ended);
    assert_int_equal(result.new_tokens, 4); /* the last of them is not read back */
    assert_int_equal(messages(talk), 2);
    ebb_conversation_free(talk);
    place_close(&p);
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void an_interruption_before_the_answer_takes_the_message_back(void **state)
{
    struct place p;
    struct said said = {.bytes = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = keys_of(10);
    (void)state;
    place_open(&p);
    struct ebb_conversation *talk = talk_of(&p);
    keys.interrupted = at_once;
    kit_ok(p.ctx, ebb_conversation_say(talk, "hello", &keys, keep_text, &said, &result), "say");
    assert_true(result.interrupted && said.bytes == 0);
    assert_int_equal(messages(talk), 0);
    assert_int_equal(ebb_conversation_tokens(talk), 0);
    assert_true(say(&p, talk, "hello", &said).prompt_tokens > 0);
    ebb_conversation_free(talk);
    place_close(&p);
}

static void a_template_that_refuses_leaves_the_conversation_as_it_was(void **state)
{
    static const char refuses[] = "{%- for m in messages -%}{%- if m.content == 'no' -%}"
                                  "{{- raise_exception('not that word') -}}{%- endif -%}"
                                  "{{- m.content + eos_token -}}{%- endfor -%}";
    struct place p;
    struct said said = {.bytes = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = keys_of(5);
    (void)state;
    place_open(&p);
    ebb_chat_template_free(p.ctx, p.chat);
    kit_ok(p.ctx, ebb_chat_template_create(p.ctx, "t", refuses, strlen(refuses), &p.chat), "t");
    kit_ok(p.ctx, ebb_chat_template_set_token(p.ctx, p.chat, "eos_token", "<|endoftext|>"), "eos");
    struct ebb_conversation *talk = talk_of(&p);
    say(&p, talk, "yes", &said);
    int64_t tokens = ebb_conversation_tokens(talk);
    assert_int_equal(ebb_conversation_say(talk, "no", &keys, keep_text, &said, &result),
                     EBB_BAD_FILE);
    assert_non_null(strstr(ebb_error_text(p.ctx), "not that word"));
    ebb_error_clear(p.ctx);
    assert_int_equal(messages(talk), 2);
    assert_int_equal(ebb_conversation_tokens(talk), tokens);
    say(&p, talk, "yes", &said);
    ebb_conversation_free(talk);
    place_close(&p);
}

static void the_end_of_a_turn_is_what_the_template_puts_behind_an_answer(void **state)
{
    static const struct {
        const char *text;
        int32_t id;
    } templates[] = {
        {"{% for m in messages %}{{ m.role + m.content }}<|begin|>\n{% endfor %}", BYTES_BEGIN},
        {"{% for m in messages %}{{ m.content }} \n <|endoftext|>{% endfor %}", BYTES_END},
        {"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", -1},
        {"{% for m in messages %}{{ m.content }}.<|begin|>{% endfor %}", -1},
        {"{% for m in messages %}<|begin|>{{ m.role }}{% endfor %}", -1},
    };
    struct place p;
    int32_t id;
    (void)state;
    place_open(&p);
    json_t *asked = json_pack("[{s:s, s:s}]", "role", "user", "content", "Aye?");
    kit_ok(p.ctx, ebb_conversation_end_token(p.ctx, p.tokenizer, p.chat, NULL, asked, &id), "own");
    assert_int_equal(id, BYTES_END);
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        struct ebb_chat_template *chat;
        kit_ok(p.ctx,
               ebb_chat_template_create(p.ctx, "t", templates[i].text, strlen(templates[i].text),
                                        &chat),
               templates[i].text);
        kit_ok(p.ctx, ebb_conversation_end_token(p.ctx, p.tokenizer, chat, NULL, asked, &id),
               templates[i].text);
        assert_int_equal(id, templates[i].id);
        ebb_chat_template_free(p.ctx, chat);
    }
    json_decref(asked);
    place_close(&p);
}

/* Every allocation of a turn fails once: the message is taken back, and the next turn is right. */
static void running_out_of_memory_takes_the_message_back(void **state)
{
    struct place p;
    struct said said = {.bytes = 0}, first;
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = keys_of(15);
    int failures = 0;
    (void)state;
    place_open(&p);
    struct ebb_conversation *talk = talk_of(&p);
    say(&p, talk, "hello", &first);
    ebb_conversation_free(talk);
    for (int64_t nth = 1; nth < 200; nth++) {
        talk = talk_of(&p);
        said.bytes = 0;
        ebb_mem_fail_nth(p.ctx, nth, false);
        enum ebb_status status =
            ebb_conversation_say(talk, "hello", &keys, keep_text, &said, &result);
        ebb_mem_fail_nth(p.ctx, 0, false);
        if (status != EBB_OK) {
            failures++;
            assert_int_equal(status, EBB_NO_MEMORY);
            ebb_error_clear(p.ctx);
            assert_int_equal(messages(talk), 0);
            assert_int_equal(ebb_conversation_tokens(talk), 0);
            say(&p, talk, "hello", &said);
        }
        assert_int_equal(said.bytes, first.bytes);
        assert_memory_equal(said.text, first.text, first.bytes);
        ebb_conversation_free(talk);
    }
    if (failures < 10) fail_msg("%d of 200 allocations failed", failures);
    place_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_turn_reads_what_is_new_and_says_what_a_fresh_reader_would),
        cmocka_unit_test(what_is_taken_back_was_never_said),
        cmocka_unit_test(a_conversation_without_room_says_so_and_stays_as_it_was),
        cmocka_unit_test(an_interruption_before_the_answer_takes_the_message_back),
        cmocka_unit_test(a_template_that_refuses_leaves_the_conversation_as_it_was),
        cmocka_unit_test(running_out_of_memory_takes_the_message_back),
        cmocka_unit_test(the_end_of_a_turn_is_what_the_template_puts_behind_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
