/* Data sets: what a record becomes, token by token, and every message for what can't become one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include <math.h>

#include "data/format.h"

/* What a case asks for: one source, and options. */
struct wanted {
    struct ebb_dataset_source source;
    struct ebb_dataset_options options;
};

/* Loads DIR/name; the tokenizer is the small fixture. */
static enum ebb_status load(struct room *room, const char *name, struct wanted wanted,
                            struct ebb_dataset **dataset)
{
    struct ebb_tokenizer *tokenizer = load_small(room);
    char path[256];
    snprintf(path, sizeof path, "%s", room_path(room, name));
    wanted.source.path = path;
    wanted.options.sources = &wanted.source;
    wanted.options.source_count = 1;
    enum ebb_status status = ebb_dataset_load(room->ctx, tokenizer, &wanted.options, dataset);
    ebb_tokenizer_free(room->ctx, tokenizer);
    return status;
}

/* The same with several files, each with a source of its own. */
static enum ebb_status load_several(struct room *room, const char *const *names,
                                    struct ebb_dataset_source *sources, int64_t count,
                                    struct ebb_dataset_options options,
                                    struct ebb_dataset **dataset)
{
    struct ebb_tokenizer *tokenizer = load_small(room);
    char paths[4][256];
    assert_true(count <= 4);
    for (int64_t i = 0; i < count; i++) {
        snprintf(paths[i], sizeof paths[i], "%s", room_path(room, names[i]));
        sources[i].path = paths[i];
    }
    options.sources = sources;
    options.source_count = count;
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
    for (int64_t s = 0; s < set->count; s++) {
        int64_t length = ebb_dataset_length(set, s), own = 0;
        assert_true(set->starts[s] >= 0 && set->starts[s] + length <= set->stored);
        for (int64_t i = 1; i < length; i++) own += ebb_dataset_is_trained(set, s, i);
        assert_true(own > 0);
        tokens += length;
        labels += own;
        if (length > longest) longest = length;
    }
    assert_int_equal(tokens, set->tokens);
    assert_int_equal(labels, set->labels);
    assert_int_equal(longest, set->longest);
    assert_true(set->stored <= set->tokens);
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
    assert_ok(room, load(room, "a.jsonl", (struct wanted){0}, &set));
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
    assert_failed(room, load(room, "a.jsonl", (struct wanted){0}, &set), EBB_BAD_FILE,
                  "a.jsonl:1: record 1", "'content'", "dataset_text_field",
                  "prompt_completion {prompt completion}", NULL);
    assert_ok(room, load(room, "a.jsonl", (struct wanted){.source.text_field = "content"}, &set));
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
    assert_ok(room, load(room, "a.json", (struct wanted){0}, &set));
    assert_string_equal(set->format, "prompt_completion");
    assert_sample(room, set, 0, "What is it?[ the tide<|endoftext|>]");
    assert_sample(room, set, 1, "[the tide<|endoftext|>]");
    assert_sample(room, set, 2,
                  "the [tide<|endoftext|>]"); /* one text would have had the token " tide" */
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
    struct wanted options = {.options.completion_only = EBB_LOSS_PART_FALSE};
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
    assert_ok(room, load(room, "a.json", (struct wanted){0}, &set));
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
    assert_ok(room, load(room, "a.json", (struct wanted){0}, &set));
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
    assert_ok(room, load(room, "a.json", (struct wanted){.source.format = "text"}, &set));
    assert_sample(room, set, 0, "[the tide<|endoftext|>]");
    ebb_dataset_free(room->ctx, set);
    assert_failed(room, load(room, "a.json", (struct wanted){.source.format = "csv"}, &set),
                  EBB_BAD_CONFIG, "dataset_format 'csv'", "alpaca", NULL);
    assert_failed(room, load(room, "a.json", (struct wanted){.source.format = "alpaca"}, &set),
                  EBB_BAD_FILE, "record 1 has no key 'instruction'",
                  "it has: 'prompt', 'completion', 'text'", NULL);
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
    struct ebb_dataset_source source = {.path = path};
    struct ebb_dataset_options options = {.sources = &source, .source_count = 1};
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
    assert_ok(room, load(room, name, (struct wanted){.source.split = split}, &set));
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
    assert_failed(room, load(room, "d", (struct wanted){.source.split = "validation"}, &set),
                  EBB_BAD_CONFIG, "split 'validation'", "test.json, train-00000.jsonl", NULL);
    static const char *const bad[] = {"train[",       "train[a:b]", "train[-1:]",
                                      "train[:101%]", "[1:2]",      "train[3]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_failed(room, load(room, "d", (struct wanted){.source.split = bad[i]}, &set),
                      EBB_BAD_CONFIG, bad[i], NULL);
    assert_failed(room, load(room, "d", (struct wanted){.source.split = "train[2:2]"}, &set),
                  EBB_BAD_CONFIG, "none of the 4 records", NULL);
    room_write(room, "plain/some.jsonl", two);
    assert_records(room, "plain", NULL, 2, 1);
    assert_records(room, "plain/some.jsonl", "train[1:]", 1, 2);
    assert_failed(room,
                  load(room, "plain/some.jsonl", (struct wanted){.source.split = "test"}, &set),
                  EBB_BAD_CONFIG, "only the split 'train'", "'test'", NULL);
    assert_failed(room, load(room, "nowhere", (struct wanted){0}, &set), EBB_BAD_CONFIG,
                  "nowhere: no such file or directory", NULL);
}

static void max_samples_takes_the_first_records(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": broken\n");
    assert_ok(room, load(room, "a.jsonl", (struct wanted){.options.max_samples = 2}, &set));
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
    assert_ok(room, load(room, "a.jsonl", (struct wanted){0}, &set));
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

/* ---- several sources ------------------------------------------------------------------------- */

static void sources_are_laid_end_to_end_each_with_its_format(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl",
               "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n");
    room_write(room, "b.json", "[{\"prompt\": \"What?\", \"completion\": \" the tide\"}]");
    room_write(room, "c.jsonl", "{\"story\": \"four\"}\n{\"story\": \"five\"}\n");
    struct ebb_dataset_source sources[3] = {{.split = "train[1:]"},
                                            {0},
                                            {.text_field = "story", .format = "text"}};
    const char *const names[] = {"a.jsonl", "b.json", "c.jsonl"};
    assert_ok(room, load_several(room, names, sources, 3, (struct ebb_dataset_options){0}, &set));
    assert_string_equal(set->format, "several");
    assert_int_equal(set->count, 5);
    assert_int_equal(set->record_count, 5);
    assert_int_equal(set->group, 1);
    assert_null(set->desirable);
    assert_false(set->chat);
    assert_sample(room, set, 0, "[two<|endoftext|>]");
    assert_sample(room, set, 2, "What?[ the tide<|endoftext|>]");
    assert_sample(room, set, 4, "[five<|endoftext|>]");
    const int32_t wanted_sources[] = {0, 0, 1, 2, 2};
    const int64_t wanted_records[] = {2, 3, 1, 1, 2};
    assert_memory_equal(set->sources, wanted_sources, sizeof wanted_sources);
    assert_memory_equal(set->records, wanted_records, sizeof wanted_records);
    assert_consistent(set);
    assert_non_null(strstr(room->info, "a.jsonl and 2 more: 5 samples of format several"));
    ebb_dataset_free(room->ctx, set);
    struct ebb_dataset_options options = {.max_samples = 1};
    assert_ok(room, load_several(room, names, sources, 3, options, &set));
    assert_int_equal(set->count, 3); /* of each source's split */
    ebb_dataset_free(room->ctx, set);
    sources[1].path = NULL;
    assert_failed(room, load_several(room, names, sources, 0, options, &set), EBB_BAD_CONFIG,
                  "dataset_name is missing", NULL);
}

static void write_numbers(struct room *room, const char *name, int count)
{
    struct ebb_str text = {0};
    for (int i = 0; i < count; i++)
        assert_ok(room, ebb_str_addf(room->ctx, &text, "{\"text\": \"the tide %d\"}\n", i));
    room_write_bytes(room, name, text.data, text.bytes);
    ebb_str_free(room->ctx, &text);
}

/* A signal that comes before the third block. */
static bool stop_at_third(void *user)
{
    int *asked = user;
    return ++*asked >= 3;
}

static void loading_ends_between_blocks_where_it_is_interrupted(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    write_numbers(room, "a.jsonl", 3000);
    int asked = 0;
    struct wanted wanted = {.options = {.interrupted = stop_at_third, .interrupted_user = &asked}};
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_INTERRUPTED,
                  "while data was tokenized", NULL);
    assert_null(set);
    assert_int_equal(asked, 3); /* never again once it said true */
    asked = 0;
    write_numbers(room, "a.jsonl", 3);
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    ebb_dataset_free(room->ctx, set);
}

/* A weight of 2.5: everything twice, then half of it. */
static void weights_repeat_samples_that_share_their_tokens(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set, *other;
    write_numbers(room, "a.jsonl", 700);
    write_numbers(room, "b.jsonl", 10);
    const char *const names[] = {"b.jsonl", "a.jsonl"};
    struct ebb_dataset_source sources[2] = {{.weight = 1}, {.weight = 2.5}};
    struct ebb_dataset_options options = {.seed = 7};
    assert_ok(room, load_several(room, names, sources, 2, options, &set));
    assert_int_equal(set->count, 10 + 1400 + 350);
    assert_consistent(set);
    int64_t stored = 0, last = 0;
    for (int i = 0; i < 710; i++) stored += set->lengths[i];
    assert_int_equal(set->stored, stored);
    for (int i = 0; i < 700; i++) {
        assert_int_equal(set->records[10 + i], i + 1);
        assert_int_equal(set->records[710 + i], i + 1);
        assert_int_equal(set->starts[710 + i], set->starts[10 + i]);
    }
    for (int64_t i = 1410; i < set->count; i++) {
        int64_t record = set->records[i];
        assert_true(record > last && record <= 700); /* no record twice, in their order */
        assert_int_equal(set->starts[i], set->starts[10 + record - 1]);
        assert_int_equal(set->sources[i], 1);
        last = record;
    }
    assert_ok(room, load_several(room, names, sources, 2, options, &other));
    assert_memory_equal(set->records, other->records, (size_t)set->count * sizeof *set->records);
    ebb_dataset_free(room->ctx, other);
    options.seed = 8;
    assert_ok(room, load_several(room, names, sources, 2, options, &other));
    assert_memory_not_equal(set->records + 1410, other->records + 1410, 350 * sizeof *set->records);
    ebb_dataset_free(room->ctx, other);
    ebb_dataset_free(room->ctx, set);
}

static void a_weight_below_one_takes_a_part_of_the_samples(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    int drawn[200] = {0};
    write_numbers(room, "a.jsonl", 200);
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct wanted wanted = {.source.weight = 0.25, .options.seed = seed};
        assert_ok(room, load(room, "a.jsonl", wanted, &set));
        assert_int_equal(set->count, 50);
        assert_int_equal(set->record_count, 200);
        assert_int_equal(set->stored, set->tokens); /* what was not drawn is not kept */
        assert_consistent(set);
        for (int i = 0; i < 50; i++) drawn[set->records[i] - 1]++;
        ebb_dataset_free(room->ctx, set);
    }
    /* 12.5 expected, standard deviation 3: every record is drawn, none always. */
    for (int i = 0; i < 200; i++) assert_in_range(drawn[i], 1, 28);
    /* Equal sources have draws of their own. */
    const char *const names[] = {"a.jsonl", "a.jsonl"};
    struct ebb_dataset_source sources[2] = {{.weight = 0.5}, {.weight = 0.5}};
    assert_ok(room, load_several(room, names, sources, 2, (struct ebb_dataset_options){0}, &set));
    assert_int_equal(set->count, 200);
    assert_memory_not_equal(set->records, set->records + 100, 100 * sizeof *set->records);
    ebb_dataset_free(room->ctx, set);
}

static void weights_that_cannot_be_meant_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    static const double bad[] = {-1, 1e9, NAN, INFINITY};
    write_numbers(room, "a.jsonl", 3);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_failed(room, load(room, "a.jsonl", (struct wanted){.source.weight = bad[i]}, &set),
                      EBB_BAD_CONFIG, "a.jsonl: its weight is", NULL);
    assert_failed(room, load(room, "a.jsonl", (struct wanted){.source.weight = 0.1}, &set),
                  EBB_BAD_FILE, "no sample is left of 3 records", "the weight takes none", NULL);
}

/* ---- chats ----------------------------------------------------------------------------------- */

static const char plain_chat[] =
    "{% for m in messages %}<|bos|>{{ m.role }}\n{{ m.content }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|bos|>assistant\n{% endif %}";

static struct ebb_chat_template *make_chat(struct room *room)
{
    struct ebb_chat_template *chat;
    struct ebb_tokenizer *tokenizer = load_small(room);
    assert_ok(room,
              ebb_chat_template_create(room->ctx, "plain", plain_chat, strlen(plain_chat), &chat));
    assert_ok(room, ebb_chat_template_use_tokenizer(room->ctx, chat, tokenizer));
    ebb_tokenizer_free(room->ctx, tokenizer);
    return chat;
}

/* The template's text and nothing else: no BOS before it, no EOS behind its newline. */
static void a_chat_is_what_its_template_wrote(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    struct ebb_chat_template *chat = make_chat(room);
    room_write(room, "a.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"What?\"}, "
               "{\"role\": \"assistant\", \"content\": \"the tide\"}]}\n");
    struct wanted wanted = {.options.chat = chat};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_string_equal(set->format, "messages");
    assert_true(set->chat);
    assert_sample(room, set, 0,
                  "<|bos|>user\nWhat?<|endoftext|>\n<|bos|>assistant\n"
                  "[the tide<|endoftext|>]\n");
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
    wanted.options.assistant_only = EBB_LOSS_PART_FALSE;
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_sample(room, set, 0,
                  "[<|bos|>user\nWhat?<|endoftext|>\n<|bos|>assistant\n"
                  "the tide<|endoftext|>\n]");
    ebb_dataset_free(room->ctx, set);
    ebb_chat_template_free(room->ctx, chat);
}

static void a_chat_without_an_answer_has_nothing_to_train(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    struct ebb_chat_template *chat = make_chat(room);
    room_write(room, "a.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"What?\"}]}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"What?\"}, "
               "{\"role\": \"assistant\", \"content\": \"the tide\"}]}\n");
    struct wanted wanted = {.options = {.chat = chat, .max_bad_records = 1}};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->refused, 1);
    assert_non_null(strstr(set->refusals[0].text, "a.jsonl:1: record 1"));
    ebb_dataset_free(room->ctx, set);
    ebb_chat_template_free(room->ctx, chat);
}

/* What only some formats have is asked of those; what none has is asked of the first. */
static void mixed_sources_are_asked_for_the_parts_they_have(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    struct ebb_chat_template *chat = make_chat(room);
    room_write(room, "text.jsonl", "{\"text\": \"the tide\"}\n");
    room_write(room, "pair.jsonl", "{\"prompt\": \"What?\", \"completion\": \" the tide\"}\n");
    room_write(room, "chat.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"What?\"}, "
               "{\"role\": \"assistant\", \"content\": \"one\"}, "
               "{\"role\": \"assistant\", \"content\": \"two\"}]}\n");
    const char *const all[] = {"text.jsonl", "pair.jsonl", "chat.jsonl"};
    struct ebb_dataset_source sources[3] = {{0}, {0}, {0}};
    struct ebb_dataset_options options = {.chat = chat,
                                          .completion_only = EBB_LOSS_PART_TRUE,
                                          .assistant_only = EBB_LOSS_PART_TRUE,
                                          .last_turn_only = true};
    assert_ok(room, load_several(room, all, sources, 3, options, &set));
    assert_sample(room, set, 0, "[the tide<|endoftext|>]");
    assert_sample(room, set, 1, "What?[ the tide<|endoftext|>]");
    assert_sample(room, set, 2,
                  "<|bos|>user\nWhat?<|endoftext|>\n<|bos|>assistant\none<|endoftext|>\n"
                  "<|bos|>assistant\n[two<|endoftext|>]\n");
    ebb_dataset_free(room->ctx, set);
    const char *const no_prompt[] = {"text.jsonl", "chat.jsonl"};
    assert_failed(room, load_several(room, no_prompt, sources, 2, options, &set), EBB_BAD_CONFIG,
                  "text.jsonl", "completion_only_loss", NULL);
    options.assistant_only = EBB_LOSS_PART_FALSE;
    assert_failed(room, load_several(room, all, sources, 3, options, &set), EBB_BAD_CONFIG,
                  "chat.jsonl", "only the assistant's last turn", NULL);
    options.assistant_only = EBB_LOSS_PART_TRUE;
    assert_failed(room, load_several(room, all, sources, 2, options, &set), EBB_BAD_CONFIG,
                  "text.jsonl", "assistant_only_loss", NULL);
    options.assistant_only = EBB_LOSS_PART_AUTO;
    assert_failed(room, load_several(room, all, sources, 2, options, &set), EBB_BAD_CONFIG,
                  "text.jsonl", "there are no turns", NULL);
    ebb_chat_template_free(room->ctx, chat);
}

/* For the thread sanitizer: what all renderings have in common is in nobody's hands alone. */
static void threads_share_a_template_and_its_variables(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    struct ebb_str text = {0};
    static const char template[] =
        "{{ bos_token }}{% for m in messages %}{{ m.role }}{{ names[0] }}{{ m.content }}"
        "{{ eos_token }}{% endfor %}";
    struct ebb_chat_template *chat;
    assert_ok(room,
              ebb_chat_template_create(room->ctx, "t", template, strlen(template), &chat));
    assert_ok(room, ebb_chat_template_set_token(room->ctx, chat, "bos_token", "<|bos|>"));
    assert_ok(room, ebb_chat_template_set_token(room->ctx, chat, "eos_token", "<|endoftext|>"));
    for (int i = 0; i < 2000; i++)
        assert_ok(room, ebb_str_addf(room->ctx, &text,
                                     "{\"messages\": [{\"role\": \"user\", \"content\": \"%d\"}, "
                                     "{\"role\": \"assistant\", \"content\": \"the tide\"}]}\n",
                                     i));
    room_write_bytes(room, "a.jsonl", text.data, text.bytes);
    ebb_str_free(room->ctx, &text);
    json_t *kwargs = json_pack("{s:[s], s:{s:s}}", "names", ": ", "more", "a", "b");
    struct wanted wanted = {.options = {.chat = chat, .chat_kwargs = kwargs}};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->count, 2000);
    assert_sample(room, set, 1999,
                  "<|bos|>user: 1999<|endoftext|>assistant:[ the tide<|endoftext|>]");
    ebb_dataset_free(room->ctx, set);
    assert_int_equal(kwargs->refcount, 1);
    json_decref(kwargs);
    ebb_chat_template_free(room->ctx, chat);
}

/* ---- preferences ----------------------------------------------------------------------------- */

static const char three_pairs[] =
    "{\"prompt\": \"x x\", \"chosen\": \" the\", \"rejected\": \" and\"}\n"
    "{\"prompt\": \"x x\", \"chosen\": \" the\", \"rejected\": \" and and and and and and and "
    "and\"}\n"
    "{\"prompt\": \"x\", \"chosen\": \" the the\", \"rejected\": \" and\"}\n";

static void pairs_are_two_samples_of_one_record(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_pairs);
    struct wanted wanted = {.options.purpose = EBB_PURPOSE_PREFERENCE};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_string_equal(set->format, "preference");
    assert_int_equal(set->group, 2);
    assert_int_equal(set->count, 6);
    assert_sample(room, set, 0, "x x[ the<|endoftext|>]");
    assert_sample(room, set, 1, "x x[ and<|endoftext|>]");
    assert_sample(room, set, 4, "x[ the the<|endoftext|>]");
    assert_sample(room, set, 5, "x[ and<|endoftext|>]");
    for (int i = 0; i < 6; i++) assert_int_equal(set->records[i], i / 2 + 1);
    assert_consistent(set);
    assert_non_null(strstr(room->info, "a.jsonl: 3 pairs of format preference"));
    ebb_dataset_free(room->ctx, set);
    wanted.options.purpose = EBB_PURPOSE_SFT; /* the chosen answers */
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->group, 1);
    assert_int_equal(set->count, 3);
    assert_sample(room, set, 1, "x x[ the<|endoftext|>]");
    ebb_dataset_free(room->ctx, set);
}

static void a_pair_with_one_long_side_goes_whole(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_pairs);
    struct wanted wanted = {.options = {.purpose = EBB_PURPOSE_PREFERENCE, .max_length = 6}};
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_CONFIG,
                  "a.jsonl:2: record 2 has 11 tokens, max_length is 6", "records above it: 1",
                  NULL);
    wanted.options.overlong = EBB_OVERLONG_DROP;
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->count, 4);
    assert_int_equal(set->dropped, 1);
    assert_int_equal(set->records[2], 3);
    assert_sample(room, set, 3, "x[ and<|endoftext|>]");
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
    wanted.options.overlong = EBB_OVERLONG_TRUNCATE;
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->count, 6);
    assert_int_equal(set->truncated, 1);
    assert_sample(room, set, 2, "x x[ the<|endoftext|>]");
    assert_sample(room, set, 3, "x x[ and and and and]");
    assert_non_null(strstr(room->warning, "cut 1 of 6 samples"));
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
}

/* Answers to two prompts would be no pair. */
static void a_pair_that_is_cut_on_the_left_keeps_one_prompt(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl",
               "{\"prompt\": \"x x x x\", \"chosen\": \" the the\", \"rejected\": \" and\"}\n"
               "{\"prompt\": \"x x x\", \"chosen\": \" the\", \"rejected\": \" and and and\"}\n"
               "{\"prompt\": \"x\", \"chosen\": \" the\", \"rejected\": \" and and and and and\"}\n"
               "{\"prompt\": \"x x\", \"chosen\": \" the\", \"rejected\": \" and\"}\n");
    struct wanted wanted = {.options = {.purpose = EBB_PURPOSE_PREFERENCE,
                                        .max_length = 5,
                                        .overlong = EBB_OVERLONG_TRUNCATE,
                                        .truncation_side = EBB_TRUNCATE_LEFT}};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->truncated, 6);
    assert_sample(room, set, 0, " x x[ the the<|endoftext|>]");
    assert_sample(room, set, 1, " x x[ and<|endoftext|>]");
    assert_sample(room, set, 2, " x[ the<|endoftext|>]");
    assert_sample(room, set, 3, " x[ and and and<|endoftext|>]");
    /* All of the prompt goes, and only the longer answer loses more. */
    assert_sample(room, set, 4, "[ the<|endoftext|>]");
    assert_sample(room, set, 5, "[ and and and and<|endoftext|>]");
    assert_sample(room, set, 6, "x x[ the<|endoftext|>]");
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
}

static void a_pair_whose_sides_become_the_same_is_no_pair(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    const char *says = "a.jsonl:1: record 1: 'chosen' and 'rejected' are the same once they are "
                       "cut to max_length 4 tokens\nraise max_length or set overlong: drop";
    room_write(room, "a.jsonl",
               "{\"prompt\": \"x\", \"chosen\": \" a a a a a\", \"rejected\": \" a a a b\"}\n"
               "{\"prompt\": \"x\", \"chosen\": \" a\", \"rejected\": \" b\"}\n");
    struct wanted wanted = {.options = {.purpose = EBB_PURPOSE_PREFERENCE,
                                        .max_length = 4,
                                        .overlong = EBB_OVERLONG_TRUNCATE}};
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_FILE, says, NULL);
    wanted.options.max_bad_records = 1;
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->refused, 1);
    assert_int_equal(set->truncated, 0);
    assert_int_equal(set->count, 2);
    assert_sample(room, set, 0, "x[ a<|endoftext|>]");
    ebb_dataset_free(room->ctx, set);
    wanted.options.max_bad_records = 0;
    wanted.options.truncation_side = EBB_TRUNCATE_LEFT;
    room_write(room, "a.jsonl",
               "{\"prompt\": \"x\", \"chosen\": \" b a a a a\", \"rejected\": \" c a a a a\"}\n");
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_FILE, says, NULL);
    /* Nor one whose sides are other texts only: both end with EOS. */
    room_write(room, "a.jsonl",
               "{\"prompt\": \"x\", \"chosen\": \" a\", \"rejected\": \" a<|endoftext|>\"}\n");
    wanted.options.max_length = 0;
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_FILE,
                  "'chosen' and 'rejected' become the same tokens", NULL);
}

static void weights_keep_pairs_together(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_pairs);
    struct wanted wanted = {.source.weight = 1.34, .options.purpose = EBB_PURPOSE_PREFERENCE};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->count, 8);
    assert_int_equal(set->records[6], set->records[7]);
    assert_int_equal(set->starts[6], set->starts[2 * (set->records[6] - 1)]);
    assert_int_equal(set->starts[7], set->starts[2 * (set->records[7] - 1) + 1]);
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
}

static const char verdicts[] = "{\"prompt\": \"x\", \"completion\": \" y\", \"label\": true}\n"
                               "{\"prompt\": \"x\", \"completion\": \" z\", \"label\": false}\n"
                               "{\"prompt\": \"x\", \"completion\": \" w\", \"label\": true}\n";

static void verdicts_are_kept_and_bad_answers_are_not_taught(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", verdicts);
    struct wanted wanted = {.source.weight = 2, .options.purpose = EBB_PURPOSE_PREFERENCE};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_string_equal(set->format, "unpaired");
    assert_int_equal(set->group, 1);
    assert_int_equal(set->count, 6);
    assert_int_equal(set->passed, 0);
    for (int i = 0; i < 6; i++) assert_int_equal(set->desirable[i], i % 3 != 1);
    ebb_dataset_free(room->ctx, set);
    assert_ok(room, load(room, "a.jsonl", (struct wanted){0}, &set));
    assert_int_equal(set->count, 2);
    assert_int_equal(set->passed, 1);
    assert_int_equal(set->record_count, 3);
    assert_null(set->desirable);
    assert_int_equal(set->records[1], 3);
    assert_non_null(strstr(room->info, "1 record has nothing to train"));
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
}

static void pairs_and_single_answers_do_not_mix(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_pairs);
    room_write(room, "b.jsonl", verdicts);
    const char *const names[] = {"a.jsonl", "b.jsonl"};
    struct ebb_dataset_source sources[2] = {{0}, {0}};
    struct ebb_dataset_options options = {.purpose = EBB_PURPOSE_PREFERENCE};
    assert_failed(room, load_several(room, names, sources, 2, options, &set), EBB_BAD_CONFIG,
                  "a.jsonl is of format 'preference'", "b.jsonl of format 'unpaired'",
                  "do not go into one data set", NULL);
    options.purpose = EBB_PURPOSE_SFT;
    assert_ok(room, load_several(room, names, sources, 2, options, &set));
    assert_int_equal(set->count, 5);
    ebb_dataset_free(room->ctx, set);
}

/* ---- ids in the file ------------------------------------------------------------------------- */

static void ids_in_records_are_taken_as_they_are(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl",
               "{\"input_ids\": [40, 41, 42], \"labels\": [-100, -100, 42]}\n"
               "{\"input_ids\": [40, 41, 700], \"labels\": [-100, -100, 700]}\n"
               "{\"input_ids\": [40, 41], \"labels\": [-100, -100]}\n"
               "{\"input_ids\": [40, 0], \"labels\": [-100, 0]}\n");
    assert_failed(room, load(room, "a.jsonl", (struct wanted){0}, &set), EBB_BAD_FILE,
                  "a.jsonl:2: record 2: token 3 has the id 700", "another tokenizer", NULL);
    struct wanted wanted = {.options.max_bad_records = 2};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_string_equal(set->format, "tokenized");
    assert_int_equal(set->count, 2);
    assert_int_equal(set->refused, 2);
    assert_non_null(strstr(set->refusals[1].text, "a.jsonl:3: record 3"));
    const int32_t ids[] = {40, 41, 42, 40, 0};
    assert_memory_equal(set->ids, ids, sizeof ids);
    assert_int_equal(set->labels, 2);
    assert_false(set->chat);
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
}

/* ---- unusable records ------------------------------------------------------------------------ */

static void unusable_records_are_left_out_and_listed(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl",
               "{\"text\": broken}\n{\"text\": \"one\"}\n{\"txt\": 1}\n{\"text\": \"\"}\n"
               "{\"text\": 7}\n{\"text\": \"two\"}\n");
    struct wanted wanted = {.options.max_bad_records = 4};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->count, 2);
    assert_int_equal(set->refused, 4);
    assert_int_equal(set->record_count, 6);
    assert_sample(room, set, 0, "[one<|endoftext|>]");
    assert_int_equal(set->records[1], 6);
    assert_non_null(strstr(set->refusals[0].text, "a.jsonl:1:"));
    assert_non_null(strstr(set->refusals[1].text, "a.jsonl:3: record 3 has no key 'text'"));
    assert_non_null(strstr(set->refusals[2].text, "a.jsonl:4: record 4 has nothing to train"));
    assert_non_null(strstr(set->refusals[3].text, "a.jsonl:5: record 5: 'text' is a number"));
    assert_int_equal(room->warnings, 1);
    assert_non_null(strstr(room->warning, "a.jsonl: left out 4 of 6 records as unusable "
                                          "(max_bad_records 4), the first of them:\n"));
    assert_non_null(strstr(room->warning, "record 4 has nothing"));
    assert_null(strstr(room->warning, "record 5"));
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
    wanted.options.max_bad_records = 3;
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_FILE,
                  "a.jsonl:1:", "more unusable records than max_bad_records (3) allows",
                  "or raise it", NULL);
    wanted.options.max_bad_records = 0;
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_FILE,
                  "a.jsonl:1:", "max_bad_records: N leaves", NULL);
    wanted.options.max_bad_records = -1;
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_CONFIG,
                  "max_bad_records is -1", NULL);
    wanted = (struct wanted){.source.split = "train[2:5]", .options.max_bad_records = 9};
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_FILE, NULL);
}

/* Which thread comes first is chance; what is listed and told is not. */
static void unusable_records_are_told_in_their_order(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    struct ebb_str text = {0};
    for (int i = 0; i < 4000; i++) {
        const char *more = i >= 300 && i < 1000 ? "the tide comes and goes and comes again " : "";
        assert_ok(room, ebb_str_addf(room->ctx, &text, "{\"%s\": \"the tide %s%s%s%d\"}\n",
                                     i % 10 == 3 && i > 250 ? "no" : "text", more, more, more, i));
    }
    room_write_bytes(room, "a.jsonl", text.data, text.bytes);
    ebb_str_free(room->ctx, &text);
    for (int i = 0; i < 4; i++) {
        struct wanted wanted = {.options.max_bad_records = 375};
        assert_ok(room, load(room, "a.jsonl", wanted, &set));
        assert_int_equal(set->refused, 375);
        assert_int_equal(set->count, 3625);
        for (int r = 0; r < EBB_REFUSALS; r++) {
            char part[64];
            snprintf(part, sizeof part, "a.jsonl:%d: record %d has", 254 + 10 * r, 254 + 10 * r);
            assert_non_null(strstr(set->refusals[r].text, part));
        }
        assert_consistent(set);
        ebb_dataset_free(room->ctx, set);
        for (int64_t max = 374; max >= 0; max = max * 7 / 8 - 1) {
            wanted.options.max_bad_records = max;
            assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_FILE,
                          "a.jsonl:254: record 254 has no key 'text'", "max_bad_records", NULL);
        }
    }
}

/* max_bad_records is for all sources together. */
static void unusable_records_of_all_sources_count_together(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", "{\"text\": \"one\"}\n{\"txt\": 1}\n");
    room_write(room, "b.jsonl", "{\"text\": 1}\n{\"text\": \"two\"}\n");
    const char *const names[] = {"a.jsonl", "b.jsonl"};
    struct ebb_dataset_source sources[2] = {{.weight = 3}, {.format = "text"}};
    struct ebb_dataset_options options = {.max_bad_records = 2};
    assert_ok(room, load_several(room, names, sources, 2, options, &set));
    assert_int_equal(set->count, 4);
    assert_int_equal(set->refused, 2);
    assert_non_null(strstr(set->refusals[0].text, "a.jsonl:2"));
    assert_non_null(strstr(set->refusals[1].text, "b.jsonl:1"));
    ebb_dataset_free(room->ctx, set);
    options.max_bad_records = 1;
    assert_failed(room, load_several(room, names, sources, 2, options, &set), EBB_BAD_FILE,
                  "a.jsonl:2: record 2", "max_bad_records (1) allows", NULL);
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
        {"{\"text\": \"a\"} x\n", "a.json:1:", "expected"},
        {"[{\"text\": \"a\"},\n {\"text\": \"b\" \"c\"}]", "a.json:2:", "expected"},
        {"[{\"text\": \"a\"},\n {\"text\": \"b\"}", "a.json:2:", "expected"},
        {"[{\"text\": \"a\"}\n {\"text\": \"b\"}]", "a.json:2:", "']' expected"},
        {"[{\"text\": \"a\"}]\n[", "a.json:2:", "end of the file expected"},
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
        assert_failed(room, load(room, "a.json", (struct wanted){0}, &set), EBB_BAD_FILE,
                      cases[i].part, cases[i].other, NULL);
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
        {"{\"instruction\": \"a\", \"input\": 3, \"output\": \"b\"}\n", "'input' is a number",
         "a string is wanted"},
        {"{\"a\": 1}\n", "record 1 has the keys 'a'", "no known format"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        room_write(room, "a.json", cases[i].text);
        assert_failed(room, load(room, "a.json", (struct wanted){0}, &set), EBB_BAD_FILE,
                      cases[i].part, cases[i].other, NULL);
    }
}

static const char three_lengths[] = "{\"text\": \"the tide\"}\n{\"text\": \"x x x x x x x x\"}\n"
                                    "{\"text\": \"x x x x x x x x x x x x\"}\n";

static void a_long_sample_stops_the_run_by_default(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_lengths);
    assert_failed(room, load(room, "a.jsonl", (struct wanted){.options.max_length = 5}, &set),
                  EBB_BAD_CONFIG, "a.jsonl:2: record 2 has 9 tokens, max_length is 5",
                  "records above it: 2, the longest has 13", "overlong: truncate", "overlong: drop",
                  NULL);
    assert_ok(room, load(room, "a.jsonl", (struct wanted){.options.max_length = 13}, &set));
    assert_int_equal(set->count, 3);
    assert_string_equal(room->warning, "");
    ebb_dataset_free(room->ctx, set);
}

static void a_long_sample_can_be_dropped_or_cut(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_lengths);
    struct wanted options = {.options = {.max_length = 9, .overlong = EBB_OVERLONG_DROP}};
    assert_ok(room, load(room, "a.jsonl", options, &set));
    assert_int_equal(set->count, 2);
    assert_int_equal(set->dropped, 1);
    assert_consistent(set);
    assert_non_null(strstr(room->warning, "left out 1 of 3 records above max_length 9"));
    ebb_dataset_free(room->ctx, set);
    options.options.overlong = EBB_OVERLONG_TRUNCATE;
    assert_ok(room, load(room, "a.jsonl", options, &set));
    assert_int_equal(set->count, 3);
    assert_int_equal(set->truncated, 1);
    assert_sample(room, set, 1, "[x x x x x x x x<|endoftext|>]");
    assert_sample(room, set, 2, "[x x x x x x x x x]");
    assert_consistent(set);
    assert_non_null(strstr(room->warning, "cut 1 of 3 samples to max_length 9"));
    ebb_dataset_free(room->ctx, set);
    options.options = (struct ebb_dataset_options){.max_length = 2, .overlong = EBB_OVERLONG_DROP};
    assert_failed(room, load(room, "a.jsonl", options, &set), EBB_BAD_FILE,
                  "every one of its records (3)", NULL);
}

static void a_long_sample_can_be_cut_on_the_left(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl",
               "{\"prompt\": \"x x x x x x x\", \"completion\": \" a\"}\n"
               "{\"prompt\": \"x\", \"completion\": \" a a a a a a a\"}\n");
    struct wanted wanted = {.options = {.max_length = 4,
                                        .overlong = EBB_OVERLONG_TRUNCATE,
                                        .truncation_side = EBB_TRUNCATE_LEFT}};
    assert_ok(room, load(room, "a.jsonl", wanted, &set));
    assert_int_equal(set->truncated, 2);
    assert_sample(room, set, 0, " x x[ a<|endoftext|>]");
    assert_sample(room, set, 1, "[ a a a<|endoftext|>]");
    assert_consistent(set);
    ebb_dataset_free(room->ctx, set);
    room_write(room, "a.jsonl",
               "{\"input_ids\": [5, 6, 7, 8, 9], \"labels\": [-100, 6, -100, -100, -100]}\n");
    assert_failed(room, load(room, "a.jsonl", wanted, &set), EBB_BAD_FILE,
                  "nothing to train once it is cut to max_length 4", "its last ones", NULL);
}

/* Packing will split them: overlong has no say. */
static void long_samples_can_stay_whole(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", three_lengths);
    for (int overlong = 0; overlong < 3; overlong++) {
        struct wanted wanted = {.options = {.max_length = 5,
                                            .keep_overlong = true,
                                            .overlong = (enum ebb_overlong)overlong}};
        assert_ok(room, load(room, "a.jsonl", wanted, &set));
        assert_int_equal(set->count, 3);
        assert_int_equal(set->longest, 13);
        assert_int_equal(set->dropped + set->truncated, 0);
        assert_string_equal(room->warning, "");
        assert_consistent(set);
        ebb_dataset_free(room->ctx, set);
    }
}

static void a_record_with_nothing_to_train_is_named(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", "{\"text\": \"the tide\"}\n{\"text\": \"\"}\n");
    assert_failed(room, load(room, "a.jsonl", (struct wanted){0}, &set), EBB_BAD_FILE,
                  "a.jsonl:2: record 2 has nothing to train", "empty", NULL);
    room_write(room, "a.jsonl", "{\"prompt\": \"x x x x x x x\", \"completion\": \"y\"}\n");
    struct wanted options = {.options = {.max_length = 4, .overlong = EBB_OVERLONG_TRUNCATE}};
    assert_failed(room, load(room, "a.jsonl", options, &set), EBB_BAD_FILE,
                  "nothing to train once it is cut", "max_length 4", "overlong: drop", NULL);
    room_write(room, "a.jsonl", "{\"prompt\": \"x<|endoftext|>\", \"completion\": \"\"}\n");
    assert_ok(room, load(room, "a.jsonl", (struct wanted){0}, &set));
    assert_sample(room, set, 0, "x<|endoftext|>[<|endoftext|>]"); /* an empty answer is an answer */
    ebb_dataset_free(room->ctx, set);
}

static void contradicting_options_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set;
    room_write(room, "a.jsonl", "{\"text\": \"the tide\"}\n");
    struct wanted options = {.options.completion_only = EBB_LOSS_PART_TRUE};
    assert_failed(room, load(room, "a.jsonl", options, &set), EBB_BAD_CONFIG,
                  "completion_only_loss", "format 'text'", NULL);
    assert_failed(room, load(room, "a.jsonl", (struct wanted){.options.max_length = 1}, &set),
                  EBB_BAD_CONFIG, "max_length is 1", NULL);
    assert_failed(room, load(room, "a.jsonl", (struct wanted){.options.max_samples = -1}, &set),
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
    struct ebb_dataset_source source = {.path = path};
    struct ebb_dataset_options options = {.sources = &source, .source_count = 1};
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
        assert_failed(room, load(room, "a.jsonl", (struct wanted){0}, &set), EBB_BAD_FILE,
                      "a.jsonl:701: record 701 has no key 'text'", NULL);
    ebb_str_free(room->ctx, &text);
}

static void option_words_are_read(void **state)
{
    (void)state;
    enum ebb_overlong overlong;
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

/* Loads with the nth allocation failed, for each n: once, or all from there on. Returns how often
 * that was an error. What fails once in a thread's block of records is run again and got over, so
 * that count hangs on how the threads meet. */
static int64_t fail_each_allocation(struct room *room, const struct ebb_dataset_options *options,
                                 bool persist)
{
    struct ebb_tokenizer *tokenizer = load_small(room);
    int64_t nth = 1, failures = 0;
    for (;; nth++) {
        struct ebb_dataset *set;
        int64_t before = ebb_mem_bytes_now(room->ctx);
        ebb_mem_fail_nth(room->ctx, nth, persist);
        enum ebb_status status = ebb_dataset_load(room->ctx, tokenizer, options, &set);
        ebb_mem_fail_nth(room->ctx, 0, false);
        if (status != EBB_OK) {
            assert_int_equal(status, EBB_NO_MEMORY);
            assert_null(set);
            failures++;
        } else {
            assert_consistent(set);
        }
        ebb_error_clear(room->ctx);
        ebb_dataset_free(room->ctx, set);
        assert_int_equal(ebb_mem_bytes_now(room->ctx), before);
        if (status == EBB_OK && persist) break;
        if (status == EBB_OK && nth > 2000) break; /* a single failure may be got over */
    }
    ebb_tokenizer_free(room->ctx, tokenizer);
    return failures;
}

static void every_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    char path[256], pairs[256];
    snprintf(path, sizeof path, "%s",
             room_write(room, "a.json",
                        "[{\"instruction\": \"a\", \"input\": \"e\xcc\x81\", \"output\": \"the "
                        "tide\"}, {\"instruction\": 5}]"));
    struct ebb_dataset_source source = {.path = path, .weight = 1.5};
    struct ebb_dataset_options options = {.sources = &source,
                                          .source_count = 1,
                                          .max_bad_records = 1};
    assert_true(fail_each_allocation(room, &options, true) > 20);
    snprintf(pairs, sizeof pairs, "%s", room_write(room, "b.jsonl", three_pairs));
    struct ebb_dataset_source two[] = {{.path = pairs}, {.path = pairs, .weight = 0.5}};
    options = (struct ebb_dataset_options){.sources = two,
                                           .source_count = 2,
                                           .purpose = EBB_PURPOSE_PREFERENCE};
    assert_true(fail_each_allocation(room, &options, true) > 20);
    assert_true(fail_each_allocation(room, &options, false) > 0);
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
        ROOM_TEST(a_post_processors_bos_stands_once),
        ROOM_TEST(splits_are_files_of_a_directory_and_slices),
        ROOM_TEST(max_samples_takes_the_first_records),
        ROOM_TEST(many_records_keep_their_order),
        ROOM_TEST(sources_are_laid_end_to_end_each_with_its_format),
        ROOM_TEST(loading_ends_between_blocks_where_it_is_interrupted),
        ROOM_TEST(weights_repeat_samples_that_share_their_tokens),
        ROOM_TEST(a_weight_below_one_takes_a_part_of_the_samples),
        ROOM_TEST(weights_that_cannot_be_meant_are_refused),
        ROOM_TEST(a_chat_is_what_its_template_wrote),
        ROOM_TEST(a_chat_without_an_answer_has_nothing_to_train),
        ROOM_TEST(pairs_are_two_samples_of_one_record),
        ROOM_TEST(a_pair_with_one_long_side_goes_whole),
        ROOM_TEST(mixed_sources_are_asked_for_the_parts_they_have),
        ROOM_TEST(threads_share_a_template_and_its_variables),
        ROOM_TEST(a_pair_that_is_cut_on_the_left_keeps_one_prompt),
        ROOM_TEST(a_pair_whose_sides_become_the_same_is_no_pair),
        ROOM_TEST(weights_keep_pairs_together),
        ROOM_TEST(verdicts_are_kept_and_bad_answers_are_not_taught),
        ROOM_TEST(pairs_and_single_answers_do_not_mix),
        ROOM_TEST(ids_in_records_are_taken_as_they_are),
        ROOM_TEST(unusable_records_are_left_out_and_listed),
        ROOM_TEST(unusable_records_are_told_in_their_order),
        ROOM_TEST(unusable_records_of_all_sources_count_together),
        ROOM_TEST(broken_files_are_told_by_line_and_column),
        ROOM_TEST(missing_and_wrong_fields_are_named),
        ROOM_TEST(a_long_sample_stops_the_run_by_default),
        ROOM_TEST(a_long_sample_can_be_dropped_or_cut),
        ROOM_TEST(a_long_sample_can_be_cut_on_the_left),
        ROOM_TEST(long_samples_can_stay_whole),
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
