/* Formats: which one a record is of, what becomes of texts and token ids, and what of them is
 * learned.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_format_kit.h"

/* ---- texts ---- */

static void texts_have_their_prompt_apart_from_what_is_learned(void **state)
{
    struct room *room = *state;
    struct ebb_format_env env = {.text_field = "text"};
    assert_reads(room, NULL, &env, "{\"text\": \"a b\", \"id\": 1}", "text", "[a b]");
    assert_reads(room, NULL, &env, "{\"prompt\": \"a\", \"completion\": \"b\"}",
                 "prompt_completion", "a[b]");
    assert_reads(room, "auto", &env, "{\"prompt\": \"\", \"completion\": \"b\"}",
                 "prompt_completion", "[b]");
    assert_reads(room, NULL, &env, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
                 "preference", "a[b]");
    assert_reads(room, NULL, &env, "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}",
                 "unpaired", "a[b]");
    assert_reads(room, NULL, &env,
                 "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\", \"system\": \"\", "
                 "\"history\": []}",
                 "alpaca",
                 "Below is an instruction that describes a task. Write a response that "
                 "appropriately completes the request.\n\n### Instruction:\na\n\n### "
                 "Response:[b]");
    env.completion_only = EBB_LOSS_PART_FALSE;
    assert_reads(room, NULL, &env, "{\"prompt\": \"a\", \"completion\": \"b\"}",
                 "prompt_completion", "[a][b]");
    env.text_field = "body";
    assert_reads(room, "text", &env, "{\"text\": \"a\", \"body\": \"b\"}", "text", "[b]");
}

static void a_pair_is_two_samples_for_preferences_and_one_for_imitation(void **state)
{
    struct room *room = *state;
    struct ebb_format_env env = {.purpose = EBB_PURPOSE_PREFERENCE};
    assert_reads(room, NULL, &env, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
                 "preference", "a[b]\na[c]");
    /* Without a prompt: what both begin with, to the word that differs. */
    assert_reads(room, NULL, &env,
                 "{\"chosen\": \"\\n\\nHuman: Hi\\n\\nAssistant: I do.\", \"rejected\": "
                 "\"\\n\\nHuman: Hi\\n\\nAssistant: I don't.\"}",
                 "preference",
                 "\n\nHuman: Hi\n\nAssistant: I[ do.]\n\n\nHuman: Hi\n\nAssistant: I[ don't.]");
    assert_reads(room, NULL, &env, "{\"chosen\": \"Q:\\na\", \"rejected\": \"Q:\\nab\"}",
                 "preference", "Q:\n[a]\nQ:\n[ab]");
    env.purpose = EBB_PURPOSE_SFT;
    assert_reads(room, NULL, &env, "{\"chosen\": \"Q: a\", \"rejected\": \"Q: b\"}", "preference",
                 "Q:[ a]");
    static const struct bad bad[] = {
        {"{\"chosen\": \"a\", \"rejected\": \"b\"}", "has no 'prompt'", "no beginning in common"},
        {"{\"instruction\": \"q\", \"chosen\": \"I a\", \"rejected\": \"I b\"}", "'instruction'",
         "dataset_columns: {prompt: ...}"},
        {"{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"a\"}",
         "r.json:1: record 1: 'chosen' and 'rejected' are the same", NULL},
        {"{\"prompt\": 1, \"chosen\": \"a\", \"rejected\": \"b\"}",
         "'prompt' is a number, a string is wanted", NULL},
    };
    assert_refused(room, &env, NULL, EBB_BAD_FILE, bad, COUNT(bad));
}

static void a_verdict_comes_with_its_answer(void **state)
{
    struct room *room = *state;
    static const char *const records[] = {
        "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}",
        "{\"completion\": \"b\", \"kto_tag\": false}"};
    for (int i = 0; i < 4; i++) {
        struct ebb_format_env env = {.purpose = i < 2 ? EBB_PURPOSE_PREFERENCE : EBB_PURPOSE_SFT};
        struct ebb_rendering out = {0};
        const struct ebb_format *format;
        assert_ok(room, read_one(room, NULL, &env, records[i % 2], &format, &out));
        assert_string_equal(format->name, "unpaired");
        assert_true(format->unpaired);
        assert_int_equal(out.desirable, i % 2 == 0);
        /* What is not desirable is nothing to imitate. */
        assert_int_equal(out.samples, i == 3 ? 0 : 1);
        assert_int_equal(out.whole, false);
        ebb_rendering_free(room->ctx, &out);
    }
    struct ebb_format_env env = {0};
    static const struct bad bad[] = {
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": 1}",
         "'label' is a number, a boolean is wanted", NULL},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}", "has no key 'label'", NULL},
    };
    assert_refused(room, &env, "unpaired", EBB_BAD_FILE, bad, COUNT(bad));
}

static void a_rendering_is_used_again(void **state)
{
    struct room *room = *state;
    struct ebb_format_env env = {.purpose = EBB_PURPOSE_PREFERENCE};
    struct ebb_rendering out = {0};
    const struct ebb_format *format;
    assert_ok(room, read_one(room, NULL, &env,
                             "{\"prompt\": \"long long\", \"chosen\": \"b\", \"rejected\": \"c\"}",
                             &format, &out));
    ebb_rendering_clear(&out);
    assert_ok(room,
              read_one(room, NULL, &env,
                       "{\"prompt\": \"\", \"chosen\": \"x\", \"rejected\": \"\"}", &format, &out));
    assert_int_equal(out.samples, 2);
    assert_int_equal(out.part_ends[0], 2);
    assert_int_equal(out.part_ends[1], 4);
    assert_marks(room, &out, "[x]\n[]");
    ebb_rendering_clear(&out);
    env.purpose = EBB_PURPOSE_SFT;
    assert_ok(room, read_one(room, NULL, &env, "{\"input_ids\": [5, 6]}", &format, &out));
    assert_marks(room, &out, "[5] [6]");
    assert_true(out.tokenized && out.whole);
    ebb_rendering_clear(&out);
    assert_ok(room, read_one(room, NULL, &env, "{\"text\": \"a\"}", &format, &out));
    assert_false(out.tokenized || out.whole);
    assert_marks(room, &out, "[a]");
    ebb_rendering_free(room->ctx, &out);
}

/* ---- token ids ---- */

static void token_ids_are_taken_as_they_are_marked(void **state)
{
    struct room *room = *state;
    struct ebb_format_env env = {0};
    static const char *const good[][2] = {
        {"{\"input_ids\": [1, 2, 3]}", "[1] [2] [3]"},
        {"{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}", "1 [2] [3]"},
        {"{\"input_ids\": [0, 1, 2, 0], \"labels\": [-100, -100, 2, -100], \"attention_mask\": "
         "[0, 1, 1, 0]}",
         "1 [2]"},
        {"{\"input_ids\": [9, 1], \"attention_mask\": [0, 1]}", "[1]"},
        {"{\"input_ids\": [1, 2, 3], \"completion_mask\": [0, 1, 1]}", "1 [2] [3]"},
        {"{\"input_ids\": [1, 2, 3], \"assistant_masks\": [false, true, false]}", "1 [2] 3"},
        {"{\"input_ids\": [1, 2, 3], \"completion_mask\": [0, 1, 1], \"assistant_masks\": [1, 1, "
         "0]}",
         "1 [2] 3"},
        {"{\"input_ids\": [1, 2], \"labels\": null, \"position_ids\": [0, 1], \"seq_lengths\": "
         "[2]}",
         "[1] [2]"},
        {"{\"input_ids\": [151643], \"text\": \"x\"}", "[151643]"},
    };
    for (size_t i = 0; i < COUNT(good); i++)
        assert_reads(room, NULL, &env, good[i][0], "tokenized", good[i][1]);
    /* As in TRL, completion_only_loss: false has no regard for the mask. */
    env.completion_only = EBB_LOSS_PART_FALSE;
    assert_reads(room, NULL, &env, good[4][0], "tokenized", "[1] [2] [3]");
    env = (struct ebb_format_env){.assistant_only = EBB_LOSS_PART_FALSE};
    assert_reads(room, NULL, &env, good[6][0], "tokenized", "1 [2] [3]");
}

static void token_ids_that_contradict_their_marks_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_format_env env = {0};
    static const struct bad bad[] = {
        {"{\"input_ids\": []}", "r.json:1: record 1: input_ids is empty", NULL},
        {"{\"input_ids\": \"a\"}", "'input_ids' is a string, a list is wanted", NULL},
        {"{\"ids\": [1]}", "has no key 'input_ids'", "'ids'"},
        {"{\"input_ids\": [1, \"a\"]}", "'input_ids', item 2 is a string, an integer is wanted",
         NULL},
        {"{\"input_ids\": [1, -1]}", "item 2 is -1, which is no token id", NULL},
        {"{\"input_ids\": [2147483648]}", "item 1 is 2147483648, which is no token id", NULL},
        {"{\"input_ids\": [1, 2], \"labels\": [2]}", "'labels' has 1 items, input_ids has 2", NULL},
        {"{\"input_ids\": [1, 2], \"labels\": 5}", "'labels' is a number, a list is wanted", NULL},
        {"{\"input_ids\": [1, 2], \"labels\": [2, 2]}", "item 1 is 2, input_ids has 1 there",
         "labels are not shifted"},
        {"{\"input_ids\": [1, 2], \"labels\": [-100, -100]}", "nothing to learn", NULL},
        {"{\"input_ids\": [1, 2], \"attention_mask\": [1, 2]}", "item 2 is 2, 0 or 1 is wanted",
         NULL},
        {"{\"input_ids\": [1, 2], \"attention_mask\": [0, 0]}", "nothing to learn", NULL},
        {"{\"input_ids\": [1, 2, 3], \"attention_mask\": [1, 0, 1]}", "between others", NULL},
        {"{\"input_ids\": [1, 2], \"labels\": [1, 2], \"attention_mask\": [0, 1]}",
         "'labels' trains item 1, which 'attention_mask' leaves out", NULL},
        {"{\"input_ids\": [1, 2, 3], \"position_ids\": [0, 1, 0]}", "several documents in one row",
         "packing: true"},
        {"{\"input_ids\": [1, 2, 3], \"seq_lengths\": [1, 2]}", "several documents in one row",
         NULL},
    };
    assert_refused(room, &env, "tokenized", EBB_BAD_FILE, bad, COUNT(bad));
}

/* ---- finding ---- */

static void formats_are_told_by_keys_and_types(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(room, PLAIN);
    struct ebb_format_env env = {.chat = chat};
    static const struct {
        const char *record, *format;
        bool chat;
    } cases[] = {
        {"{\"text\": \"a\", \"messages\": [], \"input_ids\": [1]}", "tokenized", false},
        {"{\"text\": \"a\", \"messages\": []}", "messages", true},
        {"{\"text\": \"a\", \"messages\": null, \"prompt\": null}", "text", false},
        {"{\"messages\": [], \"prompt\": \"a\", \"chosen\": [], \"rejected\": []}", "preference",
         true},
        {"{\"chosen\": \"a\", \"rejected\": \"b\"}", "preference", false},
        {"{\"conversations\": [], \"chosen\": {}, \"rejected\": {}}", "preference", true},
        {"{\"messages\": [], \"label\": 3}", "messages", true},
        {"{\"messages\": [], \"label\": false}", "unpaired", true},
        {"{\"conversations\": [], \"kto_tag\": true}", "unpaired", true},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}", "unpaired", false},
        {"{\"prompt\": [], \"completion\": [], \"label\": true}", "unpaired", true},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"x\"}", "prompt_completion",
         false},
        {"{\"prompt\": [], \"completion\": []}", "prompt_completion", true},
        {"{\"conversations\": []}", "sharegpt", true},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"text\": \"c\"}", "alpaca", false},
        {"{\"text\": 5}", "text", false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct subject subject;
        const struct ebb_format *format;
        open_subject(room, cases[i].record, &subject);
        assert_ok(room, ebb_format_find(room->ctx, NULL, &env, &subject.record, &format));
        if (strcmp(format->name, cases[i].format) != 0) print_error("%s\n", cases[i].record);
        assert_string_equal(format->name, cases[i].format);
        assert_int_equal(format->chat, cases[i].chat);
        /* By name it is the same. */
        const struct ebb_format *named;
        assert_ok(room, ebb_format_find(room->ctx, format->name, &env, &subject.record, &named));
        assert_ptr_equal(named, format);
        close_subject(room, &subject);
    }
    static const struct bad unknown[] = {
        {"{\"a\": 1, \"b\": 2}", "r.json:1: record 1 has the keys 'a', 'b', which are of no known",
         "messages {messages}, sharegpt {conversations}, preference {chosen rejected}, unpaired "
         "{completion label}"},
        {"{}", "has the keys none",
         "alpaca_chat {instruction output} (by name only), tokenized {input_ids}, text {text}"},
        {"{\"prompt\": \"a\", \"completion\": 5}",
         "record 1: 'completion' is a number, a text or a list of messages is wanted", NULL},
        {"{\"completion\": \"a\", \"label\": 1}", "'label' is a number, a boolean is wanted",
         NULL},
        {"{\"messages\": \"[]\"}", "'messages' is a string, a list of messages is wanted", NULL},
        {"{\"instruction\": \"a\", \"output\": null}", "'output' is null, a text is wanted", NULL},
        {"{\"prompt\": 5}", "no known format", NULL},
    };
    assert_refused(room, &env, NULL, EBB_BAD_FILE, unknown, COUNT(unknown));
    assert_refused(room, &env, "auto", EBB_BAD_FILE, unknown, COUNT(unknown));
    static const struct bad named[] = {
        {"{\"a\": 1}", "dataset_format 'csv' is unknown\n", "offered: auto, messages {messages}"}};
    assert_refused(room, &env, "csv", EBB_BAD_CONFIG, named, 1);
    static const struct bad near[] = {
        {"{\"a\": 1}", "dataset_format 'sharegtp' is unknown; try 'sharegpt'", NULL}};
    assert_refused(room, &env, "sharegtp", EBB_BAD_CONFIG, near, 1);
    ebb_chat_template_free(room->ctx, chat);
}

static void a_missing_key_is_told_by_the_name_that_the_data_has(void **state)
{
    struct room *room = *state;
    static const char columns_text[] = "{prompt: question, completion: answer}";
    struct ebb_yaml *columns;
    assert_ok(room,
              ebb_yaml_parse(room->ctx, "columns", columns_text, strlen(columns_text), &columns));
    struct ebb_records_options options = {.path = room_write(room, "c.jsonl",
                                                             "{\"question\": \"a\", \"id\": 1}\n"),
                                          .columns = columns};
    struct ebb_records records;
    struct ebb_rendering out = {0};
    struct ebb_format_env env = {0};
    const struct ebb_format *format;
    json_t *json;
    assert_ok(room, ebb_records_open(room->ctx, &options, &records));
    assert_ok(room, ebb_records_parse(room->ctx, &records, 0, &json));
    struct ebb_format_record record = {&records, 0, json};
    assert_ok(room, ebb_format_find(room->ctx, "prompt_completion", &env, &record, &format));
    assert_failed(room, format->render(room->ctx, &env, &record, &out), EBB_BAD_FILE,
                  "c.jsonl:1: record 1 has no key 'answer', which dataset_columns reads as "
                  "'completion'",
                  NULL);
    json_decref(json);
    ebb_rendering_free(room->ctx, &out);
    ebb_records_close(room->ctx, &records);
    ebb_yaml_free(room->ctx, columns);
}

static void a_chat_without_a_template_says_what_to_do(void **state)
{
    struct room *room = *state;
    struct ebb_format_env env = {0};
    static const struct bad bad[] = {
        {CHAT(HI ", " HO), "r.json:1: record 1 is of format 'messages' (chat messages)",
         "chat_template: names a file"},
        {SENT(""), "format 'sharegpt'", "directory has none"},
        {"{\"chosen\": [], \"rejected\": []}", "format 'preference'", "built-in"},
    };
    static const char good[] = "{\"conversations\": []}";
    for (size_t i = 0; i < COUNT(bad); i++) {
        const struct bad one[] = {{i == 1 ? good : bad[i].record, bad[i].says, bad[i].more}};
        assert_refused(room, &env, NULL, EBB_BAD_CONFIG, one, 1);
    }
    /* Texts of the same name need none. */
    assert_reads(room, "preference", &env,
                 "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}", "preference",
                 "a[b]");
}

static void options_that_mean_nothing_for_a_format_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(room, PLAIN);
    static const char text[] = "{\"text\": \"a\"}",
                      pair[] = "{\"prompt\": \"a\", \"completion\": "
                               "\"b\"}",
                      talk[] = CHAT(HI ", " HO), both[] = "{\"prompt\": [], \"completion\": []}",
                      prefer[] = "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}";
    const enum ebb_loss_part on = EBB_LOSS_PART_TRUE, off = EBB_LOSS_PART_FALSE, dont = 0;
    const struct {
        const char *record;
        enum ebb_purpose purpose;
        enum ebb_loss_part completion_only, assistant_only;
        bool last_turn_only;
        const char *says, *more;
    } cases[] = {
        {text, EBB_PURPOSE_SFT, on, dont, false, "format 'text'", "completion_only_loss at auto"},
        {talk, EBB_PURPOSE_SFT, on, dont, false, "format 'messages'", "assistant_only_loss leaves"},
        {text, EBB_PURPOSE_SFT, dont, on, false, "format 'text'", "assistant_only_loss at auto"},
        {pair, EBB_PURPOSE_SFT, dont, on, false, "format 'prompt_completion'", "no assistant"},
        {text, EBB_PURPOSE_SFT, dont, dont, true, "format 'text'", "no turns"},
        {talk, EBB_PURPOSE_SFT, dont, off, true, "format 'messages'", "leave out one of the two"},
        {both, EBB_PURPOSE_SFT, off, dont, true, "prompt_completion", "leave out one of the two"},
        {text, EBB_PURPOSE_PREFERENCE, dont, dont, false, "format 'text'", "has no preferences"},
        {talk, EBB_PURPOSE_PREFERENCE, dont, dont, false, "'messages'", "wanted: preference"},
        {"{\"input_ids\": [1]}", EBB_PURPOSE_PREFERENCE, dont, dont, false, "'tokenized'",
         "or unpaired {completion label}"},
        {prefer, EBB_PURPOSE_PREFERENCE, off, dont, false, "'preference'", "only the answers"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ebb_format_env env = {.chat = chat,
                                     .purpose = cases[i].purpose,
                                     .completion_only = cases[i].completion_only,
                                     .assistant_only = cases[i].assistant_only,
                                     .last_turn_only = cases[i].last_turn_only};
        const struct bad one[] = {{cases[i].record, cases[i].says, cases[i].more}};
        assert_refused(room, &env, NULL, EBB_BAD_CONFIG, one, 1);
    }
    /* What leaves nothing out suits every format. */
    struct ebb_format_env env = {.chat = chat, .completion_only = off, .assistant_only = off};
    assert_reads(room, NULL, &env, text, "text", "[a]");
    assert_reads(room, NULL, &env, talk, "messages", "[[user]Hi</s>[assistant]Ho</s>]");
    ebb_chat_template_free(room->ctx, chat);
    enum ebb_loss_part part;
    assert_true(ebb_loss_part_parse("Auto", &part) && part == EBB_LOSS_PART_AUTO);
    assert_true(ebb_loss_part_parse("true", &part) && part == EBB_LOSS_PART_TRUE);
    assert_true(ebb_loss_part_parse("no", &part) && part == EBB_LOSS_PART_FALSE);
    assert_false(ebb_loss_part_parse("sometimes", &part));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(texts_have_their_prompt_apart_from_what_is_learned),
        ROOM_TEST(a_pair_is_two_samples_for_preferences_and_one_for_imitation),
        ROOM_TEST(a_verdict_comes_with_its_answer),
        ROOM_TEST(a_rendering_is_used_again),
        ROOM_TEST(token_ids_are_taken_as_they_are_marked),
        ROOM_TEST(token_ids_that_contradict_their_marks_are_refused),
        ROOM_TEST(formats_are_told_by_keys_and_types),
        ROOM_TEST(a_missing_key_is_told_by_the_name_that_the_data_has),
        ROOM_TEST(a_chat_without_a_template_says_what_to_do),
        ROOM_TEST(options_that_mean_nothing_for_a_format_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
