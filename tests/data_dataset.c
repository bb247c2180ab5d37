/* Data sets: what a record becomes, token by token, and every message for what can't become one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include "data/format.h"

/* Loads DIR/name with options; the tokenizer is the small fixture. */
static enum ebb_status load(struct room *room, const char *name, struct ebb_dataset_options options,
                            struct ebb_dataset **dataset)
{
    struct ebb_tokenizer *tokenizer = load_small(room);
    char path[256];
    snprintf(path, sizeof path, "%s", room_path(room, name));
    options.path = path;
    enum ebb_status status = ebb_dataset_load(room->ctx, tokenizer, &options, dataset);
    ebb_tokenizer_free(room->ctx, tokenizer);
    return status;
}

/* A sample as text, with '[' before the first trained token of a run and ']' behind its last. */
static void show(struct room *room, const struct ebb_dataset *set, int64_t sample,
                 struct ebb_str *out)
{
    struct ebb_tokenizer *tokenizer = load_small(room);
    bool inside = false;
    out->bytes = 0;
    for (int64_t i = 0; i < ebb_dataset_length(set, sample); i++) {
        bool trained = ebb_dataset_is_trained(set, sample, i);
        if (trained != inside) assert_ok(room, ebb_str_add(room->ctx, out, trained ? "[" : "]", 1));
        inside = trained;
        assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ebb_dataset_ids(set, sample) + i,
                                             1, false, out));
    }
    if (inside) assert_ok(room, ebb_str_add(room->ctx, out, "]", 1));
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void assert_sample(struct room *room, const struct ebb_dataset *set, int64_t sample,
                          const char *wanted)
{
    struct ebb_str out = {0};
    show(room, set, sample, &out);
    assert_string_equal(out.data, wanted);
    ebb_str_free(room->ctx, &out);
}

/* Sums that must agree whatever was read. */
static void assert_consistent(const struct ebb_dataset *set)
{
    int64_t tokens = 0, labels = 0, longest = 0;
    assert_int_equal(set->starts[0], 0);
    for (int64_t s = 0; s < set->count; s++) {
        int64_t length = ebb_dataset_length(set, s), own = 0;
        for (int64_t i = 1; i < length; i++) own += ebb_dataset_is_trained(set, s, i);
        assert_true(own > 0);
        tokens += length;
        labels += own;
        if (length > longest) longest = length;
    }
    assert_int_equal(tokens, set->tokens);
    assert_int_equal(labels, set->labels);
    assert_int_equal(longest, set->longest);
    assert_int_equal(set->starts[set->count], set->tokens);
}

/* ---- formats --------------------------------------------------------------------------------- */

static void text_is_trained_whole_and_ends_with_one_eos(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(
        room, "a.jsonl",
        "{\"text\": \"the tide\"}\n\n  \r\n{\"text\": \"the end<|endoftext|>\", \"id\": 3}\r\n"
        "{\"text\": \"a\\u0000b\"}");
    assert_ok(room, load(room, "a.jsonl", (struct ebb_dataset_options){0}, &set));
    assert_string_equal(set->format, "text");
    assert_int_equal(set->count, 3);
    assert_sample(room, set, 0, "[the tide<|endoftext|>]");
    assert_sample(room, set, 1, "[the end<|endoftext|>]");
    assert_int_equal(set->records[2], 3);
    const int32_t *ids = ebb_dataset_ids(set, 2);
    assert_int_equal(ebb_dataset_length(set, 2), 4); /* NUL is a character */
    assert_int_equal(ids[3], 0);
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
}

static void another_text_field_can_be_named(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", "{\"content\": \"the tide\"}\n");
    assert_failed(room, load(room, "a.jsonl", (struct ebb_dataset_options){0}, &set), EBB_BAD_FILE,
                  "a.jsonl:1: record 1", "'content'", "dataset_text_field",
                  "prompt_completion {prompt completion}", NULL);
    assert_ok(room,
              load(room, "a.jsonl", (struct ebb_dataset_options){.text_field = "content"}, &set));
    assert_sample(room, set, 0, "[the tide<|endoftext|>]");
    ebb_dataset_free(room->ctx, set);
}

static void prompts_are_not_trained_unless_asked_for(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.json",
               "[{\"prompt\": \"What is it?\", \"completion\": \" the tide\"},\n"
               " {\"prompt\": \"\", \"completion\": \"the tide\"},\n"
               " {\"prompt\": \"the \", \"completion\": \"tide\"}]");
    assert_ok(room, load(room, "a.json", (struct ebb_dataset_options){0}, &set));
    assert_string_equal(set->format, "prompt_completion");
    assert_sample(room, set, 0, "What is it?[ the tide<|endoftext|>]");
    assert_sample(room, set, 1, "[the tide<|endoftext|>]");
    assert_sample(room, set, 2,
                  "the [tide<|endoftext|>]"); /* one text would have had the token " tide" */
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
    struct ebb_dataset_options options = {.completion_only = EBB_COMPLETION_ONLY_FALSE};
    assert_ok(room, load(room, "a.json", options, &set));
    assert_sample(room, set, 0, "[What is it? the tide<|endoftext|>]");
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
}

/* The ids of a sample are the prompt's own ids, then the completion's own. */
static void the_boundary_of_prompt_and_completion_is_exact(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    struct ebb_tokenizer *tokenizer = load_small(room);
    struct ebb_ids ids = {0};
    room_write(room, "a.json", "[{\"prompt\": \"in the har\", \"completion\": \"bour\"}]");
    assert_ok(room, load(room, "a.json", (struct ebb_dataset_options){0}, &set));
    assert_ok(room, ebb_tokenizer_encode(room->ctx, tokenizer, "in the har", 10, 0, &ids));
    int64_t prompt = ids.count;
    assert_ok(room, ebb_tokenizer_encode(room->ctx, tokenizer, "bour", 4, 0, &ids));
    assert_int_equal(ebb_dataset_length(set, 0), ids.count + 1);
    assert_memory_equal(ebb_dataset_ids(set, 0), ids.data, (size_t)ids.count * sizeof *ids.data);
    for (int64_t i = 0; i <= ids.count; i++)
        assert_int_equal(ebb_dataset_is_trained(set, 0, i), i >= prompt);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
    ebb_dataset_free(room->ctx, set);
}

static void alpaca_gets_the_prompts_of_stanford(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.json",
               "[{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"},\n"
               " {\"instruction\": \"Greet.\", \"input\": \"\", \"output\": \"Hi\"},\n"
               " {\"instruction\": \"Greet.\", \"output\": \"Hi\"}]");
    assert_ok(room, load(room, "a.json", (struct ebb_dataset_options){0}, &set));
    assert_string_equal(set->format, "alpaca");
    assert_sample(room, set, 0,
                  "Below is an instruction that describes a task, paired with an input that "
                  "provides further context. Write a "
                  "response that appropriately completes the request.\n\n### "
                  "Instruction:\nAdd.\n\n### Input:\n1 2\n\n"
                  "### Response:[3<|endoftext|>]");
    for (int i = 1; i < 3; i++)
        assert_sample(room, set, i,
                      "Below is an instruction that describes a task. Write a response that "
                      "appropriately completes the "
                      "request.\n\n### Instruction:\nGreet.\n\n### Response:[Hi<|endoftext|>]");
    ebb_dataset_free(room->ctx, set);
}

static void a_format_can_be_forced(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.json",
               "[{\"prompt\": \"p\", \"completion\": \"c\", \"text\": \"the tide\"}]");
    assert_ok(room, load(room, "a.json", (struct ebb_dataset_options){.format = "text"}, &set));
    assert_sample(room, set, 0, "[the tide<|endoftext|>]");
    ebb_dataset_free(room->ctx, set);
    assert_failed(room, load(room, "a.json", (struct ebb_dataset_options){.format = "csv"}, &set),
                  EBB_BAD_CONFIG, "dataset_format 'csv'", "alpaca", NULL);
    assert_failed(room,
                  load(room, "a.json", (struct ebb_dataset_options){.format = "alpaca"}, &set),
                  EBB_BAD_FILE, "record 1 has no key 'instruction'",
                  "it has: 'prompt', 'completion', 'text'", NULL);
}

static void chats_and_preferences_are_refused_by_name(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    static const struct {
        const char *text, *name;
    } cases[] = {
        {"[{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}]",
         "format 'messages' (chat messages)"},
        {"[{\"conversations\": []}]", "format 'sharegpt'"},
        {"[{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}]", "format 'preference'"},
    };
    for (int i = 0; i < 3; i++) {
        room_write(room, "a.json", cases[i].text);
        assert_failed(room, load(room, "a.json", (struct ebb_dataset_options){0}, &set),
                      EBB_UNSUPPORTED, cases[i].name, "is not offered", "alpaca", NULL);
    }
}

static void a_post_processors_bos_stands_once(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    struct ebb_dataset *set;
    json_t *whole;
    assert_ok(room,
              ebb_json_load(room->ctx,
                            EBB_SOURCE_DIR "/tests/golden/tokenizer_small/tokenizer.json", &whole));
    json_object_set_new(
        whole, "post_processor",
        json_loads(
            "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"b\"}}, "
            "{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"e\"}}], "
            "\"special_tokens\": {\"b\": {\"ids\": [1]}, \"e\": {\"ids\": [0]}}}",
            0, NULL));
    assert_ok(room, ebb_dir_create(room->ctx, room_path(room, "tok")));
    assert_ok(room, ebb_json_save(room->ctx, room_path(room, "tok/tokenizer.json"), whole));
    json_decref(whole);
    room_write(room, "tok/tokenizer_config.json",
               "{\"bos_token\": \"<|bos|>\", \"eos_token\": \"<|endoftext|>\"}");
    assert_ok(room, ebb_tokenizer_load(room->ctx, room_path(room, "tok"), &tokenizer));
    char path[256];
    snprintf(path, sizeof path, "%s",
             room_write(room, "a.json",
                        "[{\"prompt\": \"What\", \"completion\": \"the\"},"
                        "{\"prompt\": \"<|bos|>What\", \"completion\": "
                        "\"the<|endoftext|>\"}]"));
    struct ebb_dataset_options options = {.path = path};
    assert_ok(room, ebb_dataset_load(room->ctx, tokenizer, &options, &set));
    for (int i = 0; i < 2; i++) assert_sample(room, set, i, "<|bos|>What[the<|endoftext|>]");
    ebb_dataset_free(room->ctx, set);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* ---- files and splits ------------------------------------------------------------------------ */

static void assert_records(struct room *room, const char *name, const char *split, int64_t count,
                           int64_t first)
{
    struct ebb_dataset *set;
    assert_ok(room, load(room, name, (struct ebb_dataset_options){.split = split}, &set));
    assert_int_equal(set->count, count);
    assert_int_equal(set->records[0], first);
    ebb_dataset_free(room->ctx, set);
}

static void splits_are_files_of_a_directory_and_slices(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    const char *two = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    room_write(room, "d/train-00000.jsonl", two);
    room_write(room, "d/data/train-00001.jsonl", two);
    room_write(room, "d/test.json", "[{\"text\": \"three\"}]");
    room_write(room, "d/README.md", "no data");
    room_write(room, "d/dataset_infos.json", "{}");
    assert_records(room, "d", NULL, 4, 1);
    assert_records(room, "d", "train", 4, 1);
    assert_records(room, "d", "test", 1, 1);
    assert_records(room, "d", "train[:75%]", 3, 1);
    assert_records(room, "d", "train[75%:]", 1, 4);
    assert_records(room, "d", "train[1:3]", 2, 2);
    assert_records(room, "d", "train[1:100]", 3, 2);
    assert_failed(room, load(room, "d", (struct ebb_dataset_options){.split = "validation"}, &set),
                  EBB_BAD_CONFIG, "split 'validation'", "test.json, train-00000.jsonl", NULL);
    static const char *const bad[] = {"train[",       "train[a:b]", "train[-1:]",
                                      "train[:101%]", "[1:2]",      "train[3]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_failed(room, load(room, "d", (struct ebb_dataset_options){.split = bad[i]}, &set),
                      EBB_BAD_CONFIG, bad[i], NULL);
    assert_failed(room, load(room, "d", (struct ebb_dataset_options){.split = "train[2:2]"}, &set),
                  EBB_BAD_CONFIG, "none of the 4 records", NULL);
    room_write(room, "plain/some.jsonl", two);
    assert_records(room, "plain", NULL, 2, 1);
    assert_records(room, "plain/some.jsonl", "train[1:]", 1, 2);
    assert_failed(room,
                  load(room, "plain/some.jsonl", (struct ebb_dataset_options){.split = "test"},
                       &set),
                  EBB_BAD_CONFIG, "only the split 'train'", "'test'", NULL);
    assert_failed(room, load(room, "nowhere", (struct ebb_dataset_options){0}, &set),
                  EBB_BAD_CONFIG, "nowhere: no such file or directory", NULL);
}

static void max_samples_takes_the_first_records(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": broken\n");
    assert_ok(room, load(room, "a.jsonl", (struct ebb_dataset_options){.max_samples = 2}, &set));
    assert_int_equal(set->count, 2);
    assert_int_equal(set->dropped, 0);
    ebb_dataset_free(room->ctx, set);
}

/* More records than one block, and the same result as one at a time. */
static void many_records_keep_their_order(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    struct ebb_str text = {0}, wanted = {0};
    for (int i = 0; i < 2000; i++)
        assert_ok(room, ebb_str_addf(room->ctx, &text, "{\"text\": \"the tide %d%s\"}\n", i,
                                     i % 7 == 0 ? " and more" : ""));
    room_write_bytes(room, "a.jsonl", text.data, text.bytes);
    assert_ok(room, load(room, "a.jsonl", (struct ebb_dataset_options){0}, &set));
    assert_int_equal(set->count, 2000);
    assert_consistent(set);
    for (int i = 0; i < 2000; i += 97) {
        wanted.bytes = 0;
        assert_ok(room, ebb_str_addf(room->ctx, &wanted, "[the tide %d%s<|endoftext|>]", i,
                                     i % 7 == 0 ? " and more" : ""));
        assert_sample(room, set, i, wanted.data);
        assert_int_equal(set->records[i], i + 1);
    }
    ebb_dataset_free(room->ctx, set);
    ebb_str_free(room->ctx, &text);
    ebb_str_free(room->ctx, &wanted);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void broken_files_are_told_by_line_and_column(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    static const struct {
        const char *text, *part, *other;
    } cases[] = {
        {"{\"text\": \"a\"}\n{\"text\": \"b\"\n", "a.json:2:", "expected"},
        {"{\"text\": \"a\"}\n{\"text\": }\n", "a.json:2:", "unexpected token"},
        {"{\"text\": \"a\"} x\n", "a.json:1:", "end of file expected"},
        {"[{\"text\": \"a\"},\n {\"text\": \"b\" \"c\"}]", "a.json:2:", "expected"},
        {"[{\"text\": \"a\"},\n {\"text\": \"b\"}", "a.json:2:", "expected"},
        {"[{\"text\": \"a\"}\n {\"text\": \"b\"}]", "a.json:2:", "']' expected"},
        {"[{\"text\": \"a\"}]\n[", "a.json:2:", "end of file expected"},
        {"[{\"text\": \"a\", \"text\": \"b\"}]", "a.json:1:", "duplicate"},
        {"{\"text\": \"a\"}\n{\"text\": \"\xc3(\"}\n",
         "a.json:2: not UTF-8: byte 0xc3 at offset 24", ""},
        {"{\"text\": \"a\"}\n[1]\n", "a.json:2: record 2 is not an object", ""},
        {"[{\"text\": \"a\"}, 3]", "record 2 is not an object", ""},
        {"", "the data set is empty", "a.json"},
        {"[]", "the data set is empty", "a.json"},
        {"\n \n", "the data set is empty", "a.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        room_write(room, "a.json", cases[i].text);
        assert_failed(room, load(room, "a.json", (struct ebb_dataset_options){0}, &set),
                      EBB_BAD_FILE, cases[i].part, cases[i].other, NULL);
        assert_null(set);
    }
}

static void missing_and_wrong_fields_are_named(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    static const struct {
        const char *text, *part, *other;
    } cases[] = {
        {"{\"text\": \"a\"}\n\n{\"txt\": \"b\", \"n\": 1}\n",
         "a.json:3: record 2 has no key 'text'", "it has: 'txt', 'n'"},
        {"{\"text\": \"a\"}\n{}\n", "record 2 has no key 'text'", "it has: none"},
        {"{\"text\": \"a\"}\n{\"text\": 5}\n", "a.json:2: record 2: 'text' is a number",
         "a string is wanted"},
        {"{\"text\": \"a\"}\n{\"text\": null}\n", "'text' is null", "a string is wanted"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n", "no key 'completion'",
         "'prompt'"},
        {"{\"prompt\": [], \"completion\": \"b\"}\n", "'prompt' is a list", "a string is wanted"},
        {"{\"instruction\": \"a\", \"input\": 3, \"output\": \"b\"}\n", "'input' is a number",
         "a string is wanted"},
        {"{\"a\": 1}\n", "record 1 has the keys 'a'", "no known format"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        room_write(room, "a.json", cases[i].text);
        assert_failed(room, load(room, "a.json", (struct ebb_dataset_options){0}, &set),
                      EBB_BAD_FILE, cases[i].part, cases[i].other, NULL);
    }
}

static const char three_lengths[] = "{\"text\": \"the tide\"}\n{\"text\": \"x x x x x x x x\"}\n"
                                    "{\"text\": \"x x x x x x x x x x x x\"}\n";

static void a_long_sample_stops_the_run_by_default(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_lengths);
    assert_failed(room, load(room, "a.jsonl", (struct ebb_dataset_options){.max_length = 5}, &set),
                  EBB_BAD_CONFIG, "a.jsonl:2: record 2 has 9 tokens, max_length is 5",
                  "records above it: 2, the longest has 13", "overlong: truncate",
                  "overlong: drop", NULL);
    assert_ok(room, load(room, "a.jsonl", (struct ebb_dataset_options){.max_length = 13}, &set));
    assert_int_equal(set->count, 3);
    assert_string_equal(room->warning, "");
    ebb_dataset_free(room->ctx, set);
}

static void a_long_sample_can_be_dropped_or_cut(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_lengths);
    struct ebb_dataset_options options = {.max_length = 9, .overlong = EBB_OVERLONG_DROP};
    assert_ok(room, load(room, "a.jsonl", options, &set));
    assert_int_equal(set->count, 2);
    assert_int_equal(set->dropped, 1);
    assert_consistent(set);
    assert_non_null(strstr(room->warning, "left out 1 of 3 records above max_length 9"));
    ebb_dataset_free(room->ctx, set);
    options.overlong = EBB_OVERLONG_TRUNCATE;
    assert_ok(room, load(room, "a.jsonl", options, &set));
    assert_int_equal(set->count, 3);
    assert_int_equal(set->truncated, 1);
    assert_sample(room, set, 1, "[x x x x x x x x<|endoftext|>]");
    assert_sample(room, set, 2, "[x x x x x x x x x]");
    assert_consistent(set);
    assert_non_null(strstr(room->warning, "cut 1 of 3 samples to max_length 9"));
    ebb_dataset_free(room->ctx, set);
    options = (struct ebb_dataset_options){.max_length = 2, .overlong = EBB_OVERLONG_DROP};
    assert_failed(room, load(room, "a.jsonl", options, &set), EBB_BAD_FILE,
                  "every one of its 3 records", NULL);
}

static void a_record_with_nothing_to_train_is_named(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", "{\"text\": \"the tide\"}\n{\"text\": \"\"}\n");
    assert_failed(room, load(room, "a.jsonl", (struct ebb_dataset_options){0}, &set), EBB_BAD_FILE,
                  "a.jsonl:2: record 2 has nothing to train", "empty", NULL);
    room_write(room, "a.jsonl", "{\"prompt\": \"x x x x x x x\", \"completion\": \"y\"}\n");
    struct ebb_dataset_options options = {.max_length = 4, .overlong = EBB_OVERLONG_TRUNCATE};
    assert_failed(room, load(room, "a.jsonl", options, &set), EBB_BAD_FILE,
                  "nothing to train once it is cut", "max_length 4", "overlong: drop", NULL);
    room_write(room, "a.jsonl", "{\"prompt\": \"x<|endoftext|>\", \"completion\": \"\"}\n");
    assert_ok(room, load(room, "a.jsonl", (struct ebb_dataset_options){0}, &set));
    assert_sample(room, set, 0, "x<|endoftext|>[<|endoftext|>]"); /* an empty answer is an answer */
    ebb_dataset_free(room->ctx, set);
}

static void contradicting_options_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", "{\"text\": \"the tide\"}\n");
    struct ebb_dataset_options options = {.completion_only = EBB_COMPLETION_ONLY_TRUE};
    assert_failed(room, load(room, "a.jsonl", options, &set), EBB_BAD_CONFIG,
                  "completion_only_loss", "format 'text'", NULL);
    assert_failed(room, load(room, "a.jsonl", (struct ebb_dataset_options){.max_length = 1}, &set),
                  EBB_BAD_CONFIG, "max_length is 1", NULL);
    assert_failed(room,
                  load(room, "a.jsonl", (struct ebb_dataset_options){.max_samples = -1}, &set),
                  EBB_BAD_CONFIG, "max_samples is -1", NULL);
}

static void a_tokenizer_without_eos_is_refused(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    struct ebb_dataset *set;
    char path[256];
    assert_ok(room, ebb_dir_create(room->ctx, room_path(room, "tok")));
    assert_ok(room, ebb_file_copy(room->ctx,
                                  EBB_SOURCE_DIR "/tests/golden/tokenizer_small/tokenizer.json",
                                  room_path(room, "tok/tokenizer.json")));
    assert_ok(room, ebb_tokenizer_load(room->ctx, room_path(room, "tok"), &tokenizer));
    snprintf(path, sizeof path, "%s", room_write(room, "a.jsonl", "{\"text\": \"the tide\"}\n"));
    struct ebb_dataset_options options = {.path = path};
    assert_failed(room, ebb_dataset_load(room->ctx, tokenizer, &options, &set), EBB_BAD_CONFIG,
                  "no eos_token", "tokenizer_config.json", NULL);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* Threads meet failures in any order; the message is always the first record's. */
static void the_first_broken_record_is_the_one_that_is_told(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    struct ebb_str text = {0};
    for (int i = 0; i < 3000; i++) {
        /* Long texts before the first broken record, so that other threads fail earlier. */
        for (int j = 0; j < 300 && i >= 512 && i < 700; j++)
            assert_ok(room, ebb_str_addf(room->ctx, &text, "%s%dx%d ",
                                         j == 0 ? "{\"text\": \"" : "", i, j));
        bool broken = i >= 700 && i % 100 == 0;
        if (i < 512 || i >= 700)
            assert_ok(room, ebb_str_addf(room->ctx, &text, "{\"%s\": \"the tide",
                                         broken ? "no" : "text"));
        assert_ok(room, ebb_str_addf(room->ctx, &text, "\"}\n"));
    }
    room_write_bytes(room, "a.jsonl", text.data, text.bytes);
    for (int i = 0; i < 5; i++)
        assert_failed(room, load(room, "a.jsonl", (struct ebb_dataset_options){0}, &set),
                      EBB_BAD_FILE, "a.jsonl:701: record 701 has no key 'text'", NULL);
    ebb_str_free(room->ctx, &text);
}

static void option_words_are_read(void **state)
{
    (void)state;
    enum ebb_completion_only only;
    enum ebb_overlong overlong;
    assert_true(ebb_completion_only_parse("auto", &only) && only == EBB_COMPLETION_ONLY_AUTO);
    assert_true(ebb_completion_only_parse("true", &only) && only == EBB_COMPLETION_ONLY_TRUE);
    assert_true(ebb_completion_only_parse("false", &only) && only == EBB_COMPLETION_ONLY_FALSE);
    assert_false(ebb_completion_only_parse("maybe", &only));
    assert_true(ebb_overlong_parse("error", &overlong) && overlong == EBB_OVERLONG_ERROR);
    assert_true(ebb_overlong_parse("drop", &overlong) && overlong == EBB_OVERLONG_DROP);
    assert_true(ebb_overlong_parse("truncate", &overlong) && overlong == EBB_OVERLONG_TRUNCATE);
    assert_false(ebb_overlong_parse("cut", &overlong));
}

static void ids_in_memory_become_a_data_set(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    const int32_t ids[] = {5, 6, 7, 8, 9};
    const int64_t lengths[] = {2, 3}, prompts[] = {0, 2};
    assert_ok(room, ebb_dataset_from_ids(room->ctx, ids, lengths, prompts, 2, &set));
    assert_int_equal(set->labels, 2);
    assert_int_equal(ebb_dataset_ids(set, 1)[2], 9);
    assert_false(ebb_dataset_is_trained(set, 1, 1));
    assert_true(ebb_dataset_is_trained(set, 1, 2));
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
    const int64_t none[] = {0};
    assert_failed(room, ebb_dataset_from_ids(room->ctx, ids, none, NULL, 1, &set), EBB_BAD_CONFIG,
                  "0 tokens", NULL);
    assert_failed(room, ebb_dataset_from_ids(room->ctx, ids, none, NULL, 0, &set), EBB_BAD_CONFIG,
                  "no samples", NULL);
}

static void every_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    char path[256];
    snprintf(path, sizeof path, "%s",
             room_write(
                 room, "a.json",
                 "[{\"instruction\": \"a\", \"input\": \"e\xcc\x81\", \"output\": \"the tide\"}]"));
    struct ebb_dataset_options options = {.path = path};
    int64_t nth = 1;
    for (;; nth++) {
        struct ebb_dataset *set;
        ebb_mem_fail_nth(room->ctx, nth, true);
        enum ebb_status status = ebb_dataset_load(room->ctx, tokenizer, &options, &set);
        ebb_mem_fail_nth(room->ctx, 0, false);
        bool clean = ebb_error_status(room->ctx) == EBB_OK;
        if (status != EBB_OK) assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
        if (status != EBB_OK) continue;
        ebb_dataset_free(room->ctx, set);
        if (clean) break;
    }
    assert_true(nth > 20);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(text_is_trained_whole_and_ends_with_one_eos),
        ROOM_TEST(another_text_field_can_be_named),
        ROOM_TEST(prompts_are_not_trained_unless_asked_for),
        ROOM_TEST(the_boundary_of_prompt_and_completion_is_exact),
        ROOM_TEST(alpaca_gets_the_prompts_of_stanford),
        ROOM_TEST(a_format_can_be_forced),
        ROOM_TEST(chats_and_preferences_are_refused_by_name),
        ROOM_TEST(a_post_processors_bos_stands_once),
        ROOM_TEST(splits_are_files_of_a_directory_and_slices),
        ROOM_TEST(max_samples_takes_the_first_records),
        ROOM_TEST(many_records_keep_their_order),
        ROOM_TEST(broken_files_are_told_by_line_and_column),
        ROOM_TEST(missing_and_wrong_fields_are_named),
        ROOM_TEST(a_long_sample_stops_the_run_by_default),
        ROOM_TEST(a_long_sample_can_be_dropped_or_cut),
        ROOM_TEST(a_record_with_nothing_to_train_is_named),
        ROOM_TEST(contradicting_options_are_refused),
        ROOM_TEST(a_tokenizer_without_eos_is_refused),
        ROOM_TEST(the_first_broken_record_is_the_one_that_is_told),
        ROOM_TEST(option_words_are_read),
        ROOM_TEST(ids_in_memory_become_a_data_set),
        ROOM_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
