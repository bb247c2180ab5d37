/* Kept data sets: what comes back is bit for bit what was kept, every change of what it was made
 * from makes another, and nothing that is wrong with the directory stops a run.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/yaml.h"

enum { RECORDS = 280 };

/* Everything that a data set may be made from, so that each can be changed alone. */
struct setting {
    char path[256], other[256], cache[256], tokenizer[256];
    struct ebb_dataset_source sources[2];
    struct ebb_dataset_options options;
};

/* A file of more text than the least that is kept, most of it in a key that nobody reads, with two
 * records that are unusable. */
static const char *write_data(struct room *room, const char *name, const char *word)
{
    struct ebb_str text = {0};
    for (int i = 0; i < RECORDS; i++) {
        assert_ok(room, ebb_str_addf(room->ctx, &text,
                                     "{\"note\": \"%04000d\", \"prompt\": \"What is number %d?\", "
                                     "\"completion\": \" ",
                                     i, i));
        for (int k = 0; k < i % 60; k++)
            assert_ok(room, ebb_str_addf(room->ctx, &text, "%s %d ", word, k * i % 17));
        assert_ok(room, ebb_str_addf(room->ctx, &text, "\"}\n%s",
                                     i == 7 || i == 250 ? "{\"prompt\": \"no answer\"}\n" : ""));
    }
    assert_true(text.bytes > (1 << 20));
    const char *path = room_write_bytes(room, name, text.data, text.bytes);
    ebb_str_free(room->ctx, &text);
    return path;
}

static void copy_tokenizer(struct room *room, const char *name, struct setting *setting)
{
    char from[512], to[512];
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    snprintf(setting->tokenizer, sizeof setting->tokenizer, "%s", room_path(room, name));
    assert_ok(room, ebb_dir_create(room->ctx, setting->tokenizer));
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, EBB_SOURCE_DIR "/tests/golden/tokenizer_small/%s", files[i]);
        snprintf(to, sizeof to, "%s/%s", setting->tokenizer, files[i]);
        assert_ok(room, ebb_file_copy(room->ctx, from, to));
    }
}

static struct setting *make_setting(struct room *room)
{
    struct setting *setting = ebb_mem_alloc(room->ctx, sizeof *setting);
    assert_non_null(setting);
    snprintf(setting->path, sizeof setting->path, "%s", write_data(room, "a.jsonl", "the tide"));
    snprintf(setting->other, sizeof setting->other, "%s",
             room_write(room, "b.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n"));
    snprintf(setting->cache, sizeof setting->cache, "%s", room_path(room, "kept/sets"));
    copy_tokenizer(room, "tok", setting);
    setting->sources[0].path = setting->path;
    setting->sources[1].path = setting->other;
    setting->options = (struct ebb_dataset_options){.sources = setting->sources,
                                                    .source_count = 1,
                                                    .max_length = 400,
                                                    .overlong = EBB_OVERLONG_TRUNCATE,
                                                    .max_bad_records = 5,
                                                    .cache_dir = setting->cache};
    return setting;
}

static void free_setting(struct room *room, struct setting *setting)
{
    ebb_mem_free(room->ctx, setting);
}

static struct ebb_dataset *load(struct room *room, const struct setting *setting)
{
    struct ebb_tokenizer *tokenizer;
    struct ebb_dataset *set;
    room->info[0] = room->warning[0] = room->first_warning[0] = '\0';
    room->warnings = 0;
    assert_ok(room, ebb_tokenizer_load(room->ctx, setting->tokenizer, &tokenizer));
    assert_ok(room, ebb_dataset_load(room->ctx, tokenizer, &setting->options, &set));
    ebb_tokenizer_free(room->ctx, tokenizer);
    return set;
}

static bool was_read(const struct room *room)
{
    return strstr(room->info, "read from cache ") != NULL;
}

/* Files in the cache; *last gets the path of the last one. */
static int64_t kept_files(struct room *room, const struct setting *setting, char last[512])
{
    char **names = NULL;
    size_t count = 0;
    if (!ebb_dir_exists(setting->cache)) return 0;
    assert_ok(room, ebb_dir_list(room->ctx, setting->cache, &names, &count));
    for (size_t i = 0; i < count; i++) {
        assert_non_null(strstr(names[i], ".ebbdata")); /* and nothing half-written */
        assert_int_equal(strlen(names[i]), 32 + 8);
        if (last != NULL) snprintf(last, 512, "%s/%s", setting->cache, names[i]);
    }
    ebb_dir_list_free(room->ctx, names, count);
    return (int64_t)count;
}

#define ASSERT_SAME(a, b, field) assert_int_equal((a)->field, (b)->field)

static void assert_equal_sets(const struct ebb_dataset *a, const struct ebb_dataset *b)
{
    ASSERT_SAME(a, b, count);
    ASSERT_SAME(a, b, tokens);
    ASSERT_SAME(a, b, labels);
    ASSERT_SAME(a, b, longest);
    ASSERT_SAME(a, b, record_count);
    ASSERT_SAME(a, b, dropped);
    ASSERT_SAME(a, b, truncated);
    ASSERT_SAME(a, b, refused);
    ASSERT_SAME(a, b, passed);
    ASSERT_SAME(a, b, chat);
    ASSERT_SAME(a, b, group);
    ASSERT_SAME(a, b, stored);
    assert_ptr_equal(a->format, b->format);
    size_t count = (size_t)a->count, stored = (size_t)a->stored;
    assert_memory_equal(a->records, b->records, count * sizeof *a->records);
    assert_memory_equal(a->sources, b->sources, count * sizeof *a->sources);
    assert_memory_equal(a->starts, b->starts, count * sizeof *a->starts);
    assert_memory_equal(a->lengths, b->lengths, count * sizeof *a->lengths);
    assert_memory_equal(a->ids, b->ids, stored * sizeof *a->ids);
    assert_memory_equal(a->trained, b->trained, (stored + 31) / 32 * sizeof *a->trained);
    assert_int_equal(a->desirable != NULL, b->desirable != NULL);
    if (a->desirable != NULL) assert_memory_equal(a->desirable, b->desirable, count);
    for (int64_t i = 0; i < a->refused && i < EBB_REFUSALS; i++)
        assert_string_equal(a->refusals[i].text, b->refusals[i].text);
}

/* Loads twice, the second time from the cache, and once without one: all three are equal. */
static void assert_comes_back(struct room *room, struct setting *setting)
{
    struct ebb_dataset *made = load(room, setting);
    assert_false(was_read(room));
    char warning[EBB_ERROR_TEXT];
    memcpy(warning, room->warning, sizeof warning);
    int64_t before = kept_files(room, setting, NULL);
    struct ebb_dataset *kept = load(room, setting);
    assert_true(was_read(room));
    assert_string_equal(room->warning, warning); /* what was left out is said again */
    assert_int_equal(kept_files(room, setting, NULL), before);
    setting->options.cache_dir = NULL;
    struct ebb_dataset *without = load(room, setting);
    assert_false(was_read(room));
    setting->options.cache_dir = setting->cache;
    assert_equal_sets(made, kept);
    assert_equal_sets(made, without);
    ebb_dataset_free(room->ctx, made);
    ebb_dataset_free(room->ctx, kept);
    ebb_dataset_free(room->ctx, without);
}

/* ---- the same comes back --------------------------------------------------------------------- */

static void a_kept_data_set_is_bitwise_the_same(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    assert_comes_back(room, setting);
    assert_non_null(strstr(room->warning, "left out 2 of 282 records"));
    setting->options.source_count = 2;
    setting->sources[0].weight = 1.25;
    setting->sources[1].weight = 3;
    assert_comes_back(room, setting);
    assert_int_equal(kept_files(room, setting, NULL), 2);
    free_setting(room, setting);
}

static void pairs_and_verdicts_come_back(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    static const char *const shapes[] = {
        "{\"prompt\": \"What is %d?\", \"chosen\": \" the %s\", \"rejected\": \" a %s\"}\n",
        "{\"prompt\": \"What is %d?\", \"completion\": \" the %s\", \"x\": \"%s\", \"label\": "
        "%s}\n"};
    char filler[301];
    memset(filler, 'e', 300);
    filler[300] = '\0';
    setting->options.purpose = EBB_PURPOSE_PREFERENCE;
    for (int shape = 0; shape < 2; shape++) {
        struct ebb_str text = {0};
        for (int i = 0; i < 2500; i++)
            assert_ok(room, shape == 0
                                ? ebb_str_addf(room->ctx, &text, shapes[0], i, filler, filler)
                                : ebb_str_addf(room->ctx, &text, shapes[1], i, filler, filler,
                                               i % 3 == 0 ? "true" : "false"));
        room_write_bytes(room, "a.jsonl", text.data, text.bytes);
        ebb_str_free(room->ctx, &text);
        assert_comes_back(room, setting);
    }
    free_setting(room, setting);
}

static void small_data_sets_are_not_kept(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    setting->sources[0].path = setting->other;
    ebb_dataset_free(room->ctx, load(room, setting));
    assert_int_equal(kept_files(room, setting, NULL), 0);
    setting->sources[0].path = setting->path;
    setting->sources[0].split = "train[:10]";
    ebb_dataset_free(room->ctx, load(room, setting));
    assert_int_equal(kept_files(room, setting, NULL), 0);
    free_setting(room, setting);
}

/* ---- a change of anything makes another ------------------------------------------------------ */

typedef void (*change_fn)(struct room *room, struct setting *setting);

static void change_max_length(struct room *room, struct setting *setting)
{
    (void)room;
    setting->options.max_length = 401;
}
static void change_overlong(struct room *room, struct setting *setting)
{
    (void)room;
    setting->options.overlong = EBB_OVERLONG_DROP;
}
static void change_side(struct room *room, struct setting *setting)
{
    (void)room;
    setting->options.truncation_side = EBB_TRUNCATE_LEFT;
}
static void change_keep_overlong(struct room *room, struct setting *setting)
{
    (void)room;
    setting->options.keep_overlong = true;
}
static void change_max_samples(struct room *room, struct setting *setting)
{
    (void)room;
    setting->options.max_samples = RECORDS - 1;
}
static void change_max_bad_records(struct room *room, struct setting *setting)
{
    (void)room;
    setting->options.max_bad_records = 6;
}
static void change_completion_only(struct room *room, struct setting *setting)
{
    (void)room;
    setting->options.completion_only = EBB_LOSS_PART_FALSE;
}
static void change_slice(struct room *room, struct setting *setting)
{
    (void)room;
    setting->sources[0].split = "train[1:]";
}
static void change_weight(struct room *room, struct setting *setting)
{
    (void)room;
    setting->sources[0].weight = 1.5;
}
static void change_source_count(struct room *room, struct setting *setting)
{
    (void)room;
    setting->options.source_count = 2;
}
static void change_data(struct room *room, struct setting *setting)
{
    (void)setting;
    write_data(room, "a.jsonl", "the side"); /* as many bytes as before */
}
static void change_tokenizer(struct room *room, struct setting *setting)
{
    char path[512];
    json_t *json;
    snprintf(path, sizeof path, "%s/tokenizer.json", setting->tokenizer);
    assert_ok(room, ebb_json_load(room->ctx, path, &json));
    json_object_set_new(json, "post_processor", json_null());
    assert_ok(room, ebb_json_save(room->ctx, path, json));
    json_decref(json);
}
static void change_eos(struct room *room, struct setting *setting)
{
    (void)setting;
    room_write(room, "tok/tokenizer_config.json", "{\"eos_token\": \"<|bos|>\"}");
}

static void every_change_of_what_it_is_made_from_is_seen(void **state)
{
    struct room *room = *state;
    static const change_fn changes[] = {change_max_length,
                                        change_overlong,
                                        change_side,
                                        change_keep_overlong,
                                        change_max_samples,
                                        change_max_bad_records,
                                        change_completion_only,
                                        change_slice,
                                        change_weight,
                                        change_source_count,
                                        change_data,
                                        change_tokenizer,
                                        change_eos};
    struct setting *setting = make_setting(room);
    struct setting *first = ebb_mem_alloc(room->ctx, sizeof *first);
    ebb_dataset_free(room->ctx, load(room, setting));
    memcpy(first, setting, sizeof *first);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        /* Sources and options that were borrowed keep pointing at `setting`. */
        memcpy(setting, first, sizeof *setting);
        changes[i](room, setting);
        ebb_dataset_free(room->ctx, load(room, setting));
        if (was_read(room)) print_error("change %zu was not seen\n", i);
        assert_false(was_read(room));
        assert_int_equal(kept_files(room, setting, NULL), 2 + (int64_t)i);
        ebb_dataset_free(room->ctx, load(room, setting));
        assert_true(was_read(room));
    }
    ebb_mem_free(room->ctx, first);
    free_setting(room, setting);
}

static void the_seed_counts_where_it_draws(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    ebb_dataset_free(room->ctx, load(room, setting));
    setting->options.seed = 5;
    ebb_dataset_free(room->ctx, load(room, setting));
    assert_true(was_read(room));
    setting->sources[0].weight = 0.5;
    ebb_dataset_free(room->ctx, load(room, setting));
    setting->options.seed = 6;
    ebb_dataset_free(room->ctx, load(room, setting));
    assert_false(was_read(room));
    free_setting(room, setting);
}

static struct ebb_yaml *parse_yaml(struct room *room, const char *text)
{
    struct ebb_yaml *yaml;
    assert_ok(room, ebb_yaml_parse(room->ctx, "test", text, strlen(text), &yaml));
    return yaml;
}

static void other_columns_and_texts_make_another(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    static const char *const columns[] = {"{text: prompt}", "{text: completion}"};
    setting->sources[0].format = "text";
    for (int i = 0; i < 2; i++) {
        struct ebb_yaml *yaml = parse_yaml(room, columns[i]);
        setting->sources[0].columns = yaml;
        ebb_dataset_free(room->ctx, load(room, setting));
        assert_false(was_read(room));
        ebb_dataset_free(room->ctx, load(room, setting));
        assert_true(was_read(room));
        ebb_yaml_free(room->ctx, yaml);
    }
    setting->sources[0].columns = NULL;
    setting->sources[0].text_field = "prompt";
    ebb_dataset_free(room->ctx, load(room, setting));
    assert_false(was_read(room));
    struct ebb_yaml *roles = parse_yaml(room, "{user: human}");
    setting->sources[0].roles = roles;
    ebb_dataset_free(room->ctx, load(room, setting));
    assert_false(was_read(room));
    assert_int_equal(kept_files(room, setting, NULL), 4);
    ebb_yaml_free(room->ctx, roles);
    free_setting(room, setting);
}

/* ---- chats ----------------------------------------------------------------------------------- */

static struct ebb_chat_template *make_chat(struct room *room, const char *text)
{
    struct ebb_chat_template *chat;
    assert_ok(room, ebb_chat_template_create(room->ctx, "plain", text, strlen(text), &chat));
    assert_ok(room, ebb_chat_template_set_token(room->ctx, chat, "eos_token", "<|endoftext|>"));
    return chat;
}

static void other_templates_and_their_variables_make_another(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    struct ebb_str text = {0};
    for (int i = 0; i < 2000; i++)
        assert_ok(room,
                  ebb_str_addf(room->ctx, &text,
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"What is "
                               "%d?\"}, {\"role\": \"assistant\", \"content\": \"%0500d\"}]}\n",
                               i, i));
    room_write_bytes(room, "a.jsonl", text.data, text.bytes);
    ebb_str_free(room->ctx, &text);
    static const char *const templates[] = {
        "{% for m in messages %}{{ m.role }}:{{ m.content }}<|endoftext|>{% endfor %}",
        "{% for m in messages %}{{ m.role }}={{ m.content }}<|endoftext|>{% endfor %}"};
    struct ebb_chat_template *first = make_chat(room, templates[0]);
    struct ebb_chat_template *other = make_chat(room, templates[1]);
    setting->options.max_length = 0;
    setting->options.chat = first;
    assert_comes_back(room, setting);
    setting->options.chat = other;
    assert_comes_back(room, setting);
    json_t *kwargs = json_pack("{s:b}", "enable_thinking", 0);
    setting->options.chat_kwargs = kwargs;
    assert_comes_back(room, setting);
    setting->options.assistant_only = EBB_LOSS_PART_FALSE;
    assert_comes_back(room, setting);
    setting->options.assistant_only = EBB_LOSS_PART_AUTO;
    setting->options.last_turn_only = true;
    assert_comes_back(room, setting);
    assert_ok(room, ebb_chat_template_set_token(room->ctx, other, "pad_token", "<|pad|>"));
    assert_comes_back(room, setting);
    assert_int_equal(kept_files(room, setting, NULL), 6);
    json_decref(kwargs);
    ebb_chat_template_free(room->ctx, first);
    ebb_chat_template_free(room->ctx, other);
    free_setting(room, setting);
}

/* Records, large enough, of which one has a message that the template leaves out. */
static void what_was_warned_of_is_told_again(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    struct ebb_str text = {0};
    for (int i = 0; i < 2000; i++)
        assert_ok(room,
                  ebb_str_addf(room->ctx, &text,
                               "{\"messages\": [%s{\"role\": \"user\", \"content\": \"What is "
                               "%d?\"}, {\"role\": \"assistant\", \"content\": \"%0500d\"}]}\n",
                               i == 7 ? "{\"role\": \"system\", \"content\": \"Be kind.\"}, " : "",
                               i, i));
    room_write_bytes(room, "a.jsonl", text.data, text.bytes);
    ebb_str_free(room->ctx, &text);
    struct ebb_chat_template *chat =
        make_chat(room, "{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content "
                        "}}<|endoftext|>{% endfor %}");
    setting->options.max_length = 0;
    setting->options.chat = chat;
    ebb_dataset_free(room->ctx, load(room, setting));
    assert_non_null(strstr(room->warning, "leaves out or rewrites message 1 (system)"));
    assert_int_equal(kept_files(room, setting, NULL), 0);
    ebb_dataset_free(room->ctx, load(room, setting)); /* another time in the same run */
    assert_int_equal(kept_files(room, setting, NULL), 0);
    ebb_chat_template_free(room->ctx, chat);
    free_setting(room, setting);
}

/* Only messages about refused records have a path in them. */
static void the_path_counts_where_refusals_may_be_kept(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    struct ebb_str text = {0};
    for (int i = 0; i < 300; i++)
        assert_ok(room, ebb_str_addf(room->ctx, &text, "{\"text\": \"%04000d\"}\n", i));
    room_write_bytes(room, "a.jsonl", text.data, text.bytes);
    room_write_bytes(room, "moved.jsonl", text.data, text.bytes);
    ebb_str_free(room->ctx, &text);
    char moved[256];
    snprintf(moved, sizeof moved, "%s", room_path(room, "moved.jsonl"));
    for (int64_t bad = 0; bad < 2; bad++) {
        setting->options.max_bad_records = bad;
        setting->sources[0].path = setting->path;
        ebb_dataset_free(room->ctx, load(room, setting));
        assert_false(was_read(room));
        assert_non_null(strstr(room->info, "kept in "));
        assert_non_null(strstr(room->info, ".ebbdata (4")); /* MiB, or fewer KiB */
        setting->sources[0].path = moved;
        ebb_dataset_free(room->ctx, load(room, setting));
        assert_int_equal(was_read(room), bad == 0);
    }
    free_setting(room, setting);
}

static void a_template_that_asks_for_the_time_counts_by_the_day(void **state)
{
    struct room *room = *state;
    static const char text[] = "{{ strftime_now('%d %b %Y') }}";
    struct ebb_chat_template *dated = make_chat(room, text);
    struct ebb_chat_template *same = make_chat(room, text);
    uint64_t hash = ebb_chat_template_hash(dated, 0), then = ebb_chat_template_hash(dated, 86400);
    assert_true(hash == ebb_chat_template_hash(same, 0)); /* unless midnight passes here */
    assert_true(then == ebb_chat_template_hash(same, 86400 + 60) && then != hash);
    setenv("TZ", "ABC-24", 1);                         /* tomorrow */
    tzset();
    assert_false(hash == ebb_chat_template_hash(dated, 0));
    unsetenv("TZ");
    tzset();
    ebb_chat_template_free(room->ctx, dated);
    ebb_chat_template_free(room->ctx, same);
}

/* ---- what may be wrong ----------------------------------------------------------------------- */

/* Writes the file again with one change. */
static void rewrite(struct room *room, const char *path, int64_t cut, int64_t flip,
                    const char *text)
{
    struct ebb_map map;
    assert_ok(room, ebb_map_open(room->ctx, path, &map));
    size_t bytes = text != NULL ? strlen(text) : map.bytes - (size_t)cut;
    char *copy = ebb_mem_alloc(room->ctx, bytes);
    memcpy(copy, text != NULL ? text : (const char *)map.data, bytes);
    ebb_map_close(&map);
    if (flip >= 0) copy[flip < (int64_t)bytes ? (size_t)flip : bytes - 1] ^= 0x10;
    assert_ok(room, ebb_file_write(room->ctx, path, copy, bytes));
    ebb_mem_free(room->ctx, copy);
}

/* A context of its own: a warning appears once a run. */
static void assert_made_again(const struct setting *setting, const struct ebb_dataset *wanted,
                              const char *why)
{
    struct room run = {.ctx = ebb_ctx_create()};
    ebb_ctx_set_log(run.ctx, room_log, &run);
    struct ebb_dataset *set = load(&run, setting);
    assert_false(was_read(&run));
    assert_int_equal(run.warnings, 2); /* this one, and the records that were left out */
    assert_non_null(strstr(run.first_warning, why));
    assert_equal_sets(set, wanted);
    ebb_dataset_free(run.ctx, set);
    set = load(&run, setting);
    assert_true(was_read(&run));
    assert_int_equal(run.warnings, 1);
    ebb_dataset_free(run.ctx, set);
    assert_int_equal(ebb_mem_bytes_now(run.ctx), 0);
    ebb_ctx_free(run.ctx);
}

static void a_damaged_file_is_made_again(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    struct ebb_dataset *set = load(room, setting);
    char path[512];
    assert_int_equal(kept_files(room, setting, path), 1);
    static const int64_t flips[] = {0, 9, 20, 130, 250, 300, 2000, 100000, INT64_MAX};
    for (size_t i = 0; i < sizeof flips / sizeof flips[0]; i++) {
        rewrite(room, path, 0, flips[i], NULL);
        assert_made_again(setting, set, "damaged");
    }
    static const int64_t cuts[] = {1, 4096};
    for (size_t i = 0; i < 2; i++) {
        rewrite(room, path, cuts[i], -1, NULL);
        assert_made_again(setting, set, "damaged");
    }
    static const char *const foreign[] = {"", "EBBDATA", "hello, I am another file altogether"};
    for (size_t i = 0; i < 3; i++) {
        rewrite(room, path, 0, -1, foreign[i]);
        assert_made_again(setting, set, "damaged");
    }
    ebb_dataset_free(room->ctx, set);
    free_setting(room, setting);
}

/* A file under another's name, as if the two had the same hash. */
static void a_file_of_another_data_set_is_told_apart(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    char path[512], other[512], **names;
    size_t count;
    struct ebb_dataset *set = load(room, setting);
    assert_int_equal(kept_files(room, setting, path), 1);
    setting->options.max_length = 300;
    ebb_dataset_free(room->ctx, load(room, setting));
    setting->options.max_length = 400;
    assert_ok(room, ebb_dir_list(room->ctx, setting->cache, &names, &count));
    assert_int_equal(count, 2);
    snprintf(other, sizeof other, "%s/%s", setting->cache,
             names[strstr(path, names[0]) != NULL ? 1 : 0]);
    ebb_dir_list_free(room->ctx, names, count);
    assert_ok(room, ebb_file_copy(room->ctx, other, path));
    assert_made_again(setting, set, "another data set");
    ebb_dataset_free(room->ctx, set);
    free_setting(room, setting);
}

static void a_directory_that_cannot_be_written_stops_nothing(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    setting->options.max_bad_records = 100;
    snprintf(setting->cache, sizeof setting->cache, "%s",
             room_write(room, "file", "in the way")); /* a file where the directory would be */
    struct ebb_dataset *set = load(room, setting);
    assert_int_equal(room->warnings, 2);
    assert_non_null(strstr(room->first_warning, "is not kept, the next run tokenizes again"));
    assert_non_null(strstr(room->first_warning, "dataset_cache"));
    assert_int_equal(ebb_error_status(room->ctx), EBB_OK);
    ebb_dataset_free(room->ctx, set);
    set = load(room, setting);
    assert_int_equal(room->warnings, 1); /* said once */
    ebb_dataset_free(room->ctx, set);
    snprintf(setting->cache, sizeof setting->cache, "/proc/ebb"); /* nobody may write there */
    struct room run = {.ctx = ebb_ctx_create()};
    ebb_ctx_set_log(run.ctx, room_log, &run);
    set = load(&run, setting);
    assert_int_equal(run.warnings, 2);
    ebb_dataset_free(run.ctx, set);
    ebb_ctx_free(run.ctx);
    free_setting(room, setting);
}

static void a_full_disk_stops_nothing(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    struct rlimit old, small = {4096, 4096};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct ebb_dataset *set = load(room, setting);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(room->warnings, 2);
    assert_non_null(strstr(room->first_warning, "is not kept"));
    assert_int_equal(kept_files(room, setting, NULL), 0); /* nothing half-written */
    ebb_dataset_free(room->ctx, set);
    free_setting(room, setting);
}

/* What stands under the name is a device, which can't be read. */
static void a_name_that_is_no_file_stops_nothing(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    char path[512];
    ebb_dataset_free(room->ctx, load(room, setting));
    assert_int_equal(kept_files(room, setting, path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/null", path), 0);
    struct ebb_dataset *set = load(room, setting);
    assert_false(was_read(room));
    assert_non_null(strstr(room->first_warning, "the kept data set is not used: "));
    assert_int_equal(ebb_error_status(room->ctx), EBB_OK);
    ebb_dataset_free(room->ctx, set);
    free_setting(room, setting);
}

/* ---- several at once ------------------------------------------------------------------------- */

struct runner {
    pthread_t thread;
    const struct setting *setting;
    struct room room;
    struct ebb_dataset *set;
};

static void *run_load(void *user)
{
    struct runner *runner = user;
    struct ebb_tokenizer *tokenizer;
    struct ebb_ctx *ctx = runner->room.ctx;
    if (ebb_tokenizer_load(ctx, runner->setting->tokenizer, &tokenizer) != EBB_OK) return NULL;
    if (ebb_dataset_load(ctx, tokenizer, &runner->setting->options, &runner->set) != EBB_OK)
        runner->set = NULL;
    ebb_tokenizer_free(ctx, tokenizer);
    return NULL;
}

static void writers_at_the_same_time_do_no_harm(void **state)
{
    enum { RUNNERS = 4 };
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    struct runner *runners = ebb_mem_alloc(room->ctx, RUNNERS * sizeof *runners);
    for (int i = 0; i < RUNNERS; i++) {
        runners[i].setting = setting;
        runners[i].room.ctx = ebb_ctx_create();
        ebb_ctx_set_log(runners[i].room.ctx, room_log, &runners[i].room);
        assert_int_equal(pthread_create(&runners[i].thread, NULL, run_load, &runners[i]), 0);
    }
    for (int i = 0; i < RUNNERS; i++) assert_int_equal(pthread_join(runners[i].thread, NULL), 0);
    for (int i = 0; i < RUNNERS; i++) {
        assert_non_null(runners[i].set);
        assert_equal_sets(runners[i].set, runners[0].set);
        assert_int_equal(runners[i].room.warnings, 1); /* records left out; nothing else */
    }
    assert_int_equal(kept_files(room, setting, NULL), 1);
    struct ebb_dataset *set = load(room, setting);
    assert_true(was_read(room));
    assert_equal_sets(set, runners[0].set);
    ebb_dataset_free(room->ctx, set);
    for (int i = 0; i < RUNNERS; i++) {
        ebb_dataset_free(runners[i].room.ctx, runners[i].set);
        ebb_ctx_free(runners[i].room.ctx);
    }
    ebb_mem_free(room->ctx, runners);
    free_setting(room, setting);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Reading one back, and keeping one, with each allocation failed from some place on. The number of
 * allocations of tokenizing is large, so it is done with steps. */
static void failed_allocations_leave_the_cache_whole(void **state)
{
    struct room *room = *state;
    struct setting *setting = make_setting(room);
    struct ebb_tokenizer *tokenizer;
    struct ebb_dataset *wanted = load(room, setting), *set;
    assert_ok(room, ebb_tokenizer_load(room->ctx, setting->tokenizer, &tokenizer));
    for (int64_t nth = 1;; nth++) {
        int64_t before = ebb_mem_bytes_now(room->ctx);
        ebb_mem_fail_nth(room->ctx, nth, true);
        enum ebb_status status = ebb_dataset_load(room->ctx, tokenizer, &setting->options, &set);
        ebb_mem_fail_nth(room->ctx, 0, false);
        ebb_error_clear(room->ctx);
        if (status == EBB_OK) assert_equal_sets(set, wanted);
        if (status != EBB_OK) assert_int_equal(status, EBB_NO_MEMORY);
        ebb_dataset_free(room->ctx, set);
        assert_int_equal(ebb_mem_bytes_now(room->ctx), before);
        if (status == EBB_OK) break;
    }
    ebb_dataset_free(room->ctx, wanted);
    ebb_tokenizer_free(room->ctx, tokenizer);
    free_setting(room, setting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(a_kept_data_set_is_bitwise_the_same),
        ROOM_TEST(pairs_and_verdicts_come_back),
        ROOM_TEST(small_data_sets_are_not_kept),
        ROOM_TEST(every_change_of_what_it_is_made_from_is_seen),
        ROOM_TEST(the_seed_counts_where_it_draws),
        ROOM_TEST(other_columns_and_texts_make_another),
        ROOM_TEST(other_templates_and_their_variables_make_another),
        ROOM_TEST(what_was_warned_of_is_told_again),
        ROOM_TEST(the_path_counts_where_refusals_may_be_kept),
        ROOM_TEST(a_template_that_asks_for_the_time_counts_by_the_day),
        ROOM_TEST(a_damaged_file_is_made_again),
        ROOM_TEST(a_file_of_another_data_set_is_told_apart),
        ROOM_TEST(a_directory_that_cannot_be_written_stops_nothing),
        ROOM_TEST(a_full_disk_stops_nothing),
        ROOM_TEST(a_name_that_is_no_file_stops_nothing),
        ROOM_TEST(writers_at_the_same_time_do_no_harm),
        ROOM_TEST(failed_allocations_leave_the_cache_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
