/* Keys of data: spellings of other projects, sources of `datasets`, variables and names of chat
 * templates.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "recipe/chat.h"
#include "recipe/sources.h"

#define MODEL "model_name_or_path: m\noutput_dir: o\n"
#define BASE  MODEL "dataset_name: d\n"

struct fixture {
    struct ebb_ctx *ctx;
    struct ebb_config config;
    struct ebb_options *options;
};

/* Reads and checks the keys of a command. */
static enum ebb_status begin(struct fixture *f, enum ebb_command command, const char *text)
{
    memset(f, 0, sizeof *f);
    f->ctx = ebb_ctx_create();
    assert_non_null(f->ctx);
    assert_int_equal(ebb_options_create(f->ctx, command, &f->config, &f->options), EBB_OK);
    enum ebb_status status = ebb_options_text(f->options, "conf.yaml", text);
    return status == EBB_OK ? ebb_options_check(f->options) : status;
}

static void begin_well(struct fixture *f, enum ebb_command command, const char *text)
{
    if (begin(f, command, text) != EBB_OK) fail_msg("%s: %s", text, ebb_error_text(f->ctx));
}

static void end(struct fixture *f)
{
    ebb_options_free(f->options);
    assert_int_equal(ebb_mem_bytes_now(f->ctx), 0);
    ebb_ctx_free(f->ctx);
}

static void assert_fails(enum ebb_command command, const char *text, enum ebb_status wanted,
                         const char *part)
{
    struct fixture f;
    enum ebb_status status = begin(&f, command, text);
    if (status != wanted || strstr(ebb_error_text(f.ctx), part) == NULL)
        fail_msg("%s gives %s: %s\nwanted: %s", text, ebb_status_name(status),
                 ebb_error_text(f.ctx), part);
    end(&f);
}

/* ---- spellings ------------------------------------------------------------------------------- */

static void data_keys_of_other_projects_are_translated(void **state)
{
    (void)state;
    struct fixture f;
    begin_well(&f, EBB_COMMAND_SFT,
               BASE "mask_history: true\n"
                    "chat_template_path: templates/mine.jinja\n"
                    "excess_length_strategy: truncate\n"
                    "truncation_mode: keep_end\n"
                    "train_sampling_strategy: group_by_length\n"
                    "dataset_prepared_path: prepared\n"
                    "train_on_eos: turn\n"
                    "roles_to_train: assistant\n"
                    "dataset: {column_map: {prompt: question}}\n");
    assert_true(f.config.last_turn_only_loss && f.config.group_by_length);
    assert_string_equal(f.config.chat_template, "templates/mine.jinja");
    assert_int_equal(f.config.overlong, EBB_OVERLONG_TRUNCATE);
    assert_int_equal(f.config.truncation_side, EBB_TRUNCATE_LEFT);
    assert_string_equal(f.config.dataset_cache, "prepared");
    assert_string_equal(ebb_yaml_find(f.config.dataset_columns, "prompt")->text, "question");
    end(&f);
}

static void what_is_not_offered_says_what_is(void **state)
{
    (void)state;
    assert_fails(EBB_COMMAND_SFT, BASE "template: qwen\n", EBB_UNSUPPORTED, "chat_template");
    assert_fails(EBB_COMMAND_SFT, BASE "enable_thinking: false\n", EBB_UNSUPPORTED,
                 "chat_template_kwargs: {enable_thinking: false}");
    assert_fails(EBB_COMMAND_SFT, BASE "roles_to_train: [user]\n", EBB_UNSUPPORTED,
                 "assistant_only_loss: false");
    assert_fails(EBB_COMMAND_SFT, BASE "train_on_eos: last\n", EBB_UNSUPPORTED,
                 "is always trained");
    assert_fails(EBB_COMMAND_SFT, BASE "train_sampling_strategy: sequential\n", EBB_UNSUPPORTED,
                 "shuffle: false");
    assert_fails(EBB_COMMAND_SFT, MODEL, EBB_BAD_CONFIG, "'ebb sft' needs 'dataset_name'");
    assert_fails(EBB_COMMAND_DATA, "model: m\n", EBB_BAD_CONFIG, "'ebb data' needs 'dataset_name'");
}

static void a_training_file_serves_the_data_command(void **state)
{
    (void)state;
    struct fixture f;
    begin_well(&f, EBB_COMMAND_DATA, BASE "packing: true\nlearning_rate: 1e-4\nuse_peft: true\n");
    assert_true(f.config.packing);
    assert_int_equal(f.config.show_samples, 3);
    assert_int_equal(ebb_options_set(f.options, "samples", "7"), EBB_OK);
    assert_int_equal(f.config.show_samples, 7);
    end(&f);
}

/* ---- sources --------------------------------------------------------------------------------- */

static void read_sources(struct fixture *f, const char *text, enum ebb_share share,
                         struct ebb_sources *sources)
{
    begin_well(f, EBB_COMMAND_SFT, text);
    assert_int_equal(ebb_sources_create(f->ctx, f->options, &f->config, share, sources), EBB_OK);
}

static const char *const two = MODEL "datasets:\n"
                                     "  - a.jsonl\n"
                                     "  - path: b.jsonl\n"
                                     "    split: extra\n"
                                     "    format: alpaca\n"
                                     "    weight: 2.5\n"
                                     "    roles: {user: human, assistant: [gpt, bot]}\n"
                                     "dataset_format: text\n"
                                     "dataset_text_field: body\n"
                                     "dataset_columns: {text: body}\n"
                                     "validation_split: 0.1\n"
                                     "eval_strategy: epoch\n";

static void items_say_what_they_do_not_take_from_the_other_keys(void **state)
{
    (void)state;
    struct fixture f;
    struct ebb_sources sources;
    read_sources(&f, two, EBB_SHARE_TRAIN, &sources);
    assert_int_equal(sources.count, 2);
    assert_string_equal(sources.items[0].path, "a.jsonl");
    assert_string_equal(sources.items[0].format, "text");
    assert_string_equal(sources.items[0].text_field, "body");
    assert_true(sources.items[0].columns != NULL && sources.items[0].roles == NULL);
    assert_string_equal(sources.items[1].path, "b.jsonl");
    assert_string_equal(sources.items[1].format, "alpaca");
    assert_float_equal(sources.items[0].weight, 1, 0);
    assert_float_equal(sources.items[1].weight, 2.5, 0);
    assert_string_equal(ebb_yaml_find(sources.items[1].roles, "user")->text, "human");
    ebb_sources_free(f.ctx, &sources);
    end(&f);
}

static void validation_split_cuts_every_source_and_counts_records_once(void **state)
{
    (void)state;
    struct fixture f;
    struct ebb_sources sources;
    read_sources(&f, two, EBB_SHARE_TRAIN, &sources);
    assert_string_equal(sources.items[0].split, "train[:90%]");
    assert_string_equal(sources.items[1].split, "extra[:90%]");
    ebb_sources_free(f.ctx, &sources);
    end(&f);
    read_sources(&f, two, EBB_SHARE_EVAL, &sources);
    assert_int_equal(sources.count, 2);
    assert_string_equal(sources.items[0].split, "train[90%:]");
    assert_string_equal(sources.items[1].split, "extra[90%:]");
    assert_float_equal(sources.items[1].weight, 1, 0);
    ebb_sources_free(f.ctx, &sources);
    end(&f);
}

static void validation_data_is_its_own_or_another_split_of_all(void **state)
{
    (void)state;
    struct fixture f;
    struct ebb_sources sources;
    read_sources(&f, MODEL "datasets: [a, b]\ndataset_test_split: test\neval_strategy: epoch\n",
                 EBB_SHARE_EVAL, &sources);
    assert_int_equal(sources.count, 2);
    assert_string_equal(sources.items[1].split, "test");
    ebb_sources_free(f.ctx, &sources);
    end(&f);
    read_sources(&f, MODEL "datasets: [a, b]\neval_dataset: c\neval_strategy: epoch\n",
                 EBB_SHARE_EVAL, &sources);
    assert_int_equal(sources.count, 1);
    assert_string_equal(sources.items[0].path, "c");
    assert_null(sources.items[0].split);
    ebb_sources_free(f.ctx, &sources);
    end(&f);
}

/* `ebb eval` without validation data: the training data, each record once. */
static void what_is_measured_has_no_weight(void **state)
{
    (void)state;
    struct fixture f;
    struct ebb_sources sources;
    read_sources(&f,
                 MODEL "datasets: [{path: a, weight: 0.5}, {path: b, split: 'train[:50%]'}]\n"
                       "dataset_train_split: train[10:]\n",
                 EBB_SHARE_EVAL, &sources);
    assert_int_equal(sources.count, 2);
    assert_float_equal(sources.items[0].weight, 1, 0);
    assert_string_equal(sources.items[0].split, "train[10:]");
    assert_string_equal(sources.items[1].split, "train[:50%]");
    ebb_sources_free(f.ctx, &sources);
    end(&f);
}

static void errors_in_data_sets_name_item_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"datasets: {path: a}\n", "datasets: wants a list of paths or mappings"},
        {"datasets: []\n", "datasets: wants a list"},
        {"datasets: [a, [b]]\n", "item 2: wanted a path, or a mapping with path"},
        {"datasets:\n  - path: a\n    wieght: 2\n",
         "item 1: unknown key 'wieght'; try 'weight'\nwhere: conf.yaml:5:5"},
        {"datasets: [{path: a, type: sharegpt.load_role}]\n", "unknown key 'type'; try 'format'"},
        {"datasets: [{path: a, ds_type: json}]\n", "it may have path, split, format"},
        {"datasets: [{format: text}]\n", "item 1: it has no path"},
        {"datasets: [{path: [a]}]\n", "path wants one text"},
        {"datasets: [{path: a, weight: 0}]\n", "weight wants a number above 0"},
        {"datasets: [{path: a, weight: many}]\n", "weight wants a number above 0"},
        {"datasets: [{path: a, columns: x}]\n", "columns wants a mapping"},
        {"datasets: [{path: a, columns: {prompt: [a]}}]\n", "columns wants a mapping"},
        {"datasets: [{path: a, roles: {user: {a: b}}}]\n", "roles wants a mapping"},
        {"datasets: [a]\ndataset_columns: [a]\n", "dataset_columns: wants a mapping"},
        {"datasets: [{path: a, split: 'train[:5]'}]\n"
         "validation_split: 0.5\n"
         "eval_strategy: epoch\n",
         "validation_split cannot cut a slice again: 'train[:5]' of 'a'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, MODEL "%s", bad[i].text);
        assert_fails(EBB_COMMAND_SFT, text, EBB_BAD_CONFIG, bad[i].part);
    }
}

static void data_sets_may_stand_on_the_command_line(void **state)
{
    (void)state;
    struct fixture f;
    begin_well(&f, EBB_COMMAND_SFT, MODEL "datasets: [a]\n");
    assert_int_equal(ebb_options_set(f.options, "datasets", "[b, {path: c, split: []}]"), EBB_OK);
    assert_int_equal(ebb_options_check(f.options), EBB_BAD_CONFIG);
    assert_non_null(strstr(ebb_error_text(f.ctx),
                           "datasets: item 2: split wants one text\nwhere: command line:1:"));
    end(&f);
}

/* ---- chat templates -------------------------------------------------------------------------- */

static void variables_of_a_template_have_the_types_they_look_like(void **state)
{
    (void)state;
    struct fixture f;
    json_t *kwargs = NULL;
    begin_well(&f, EBB_COMMAND_SFT,
               BASE "chat_template_kwargs:\n"
                    "  enable_thinking: false\n"
                    "  deep: {a: [1, 2.5, True, ~]}\n"
                    "  text: '5'\n"
                    "  word: on\n");
    assert_int_equal(ebb_chat_kwargs(f.ctx, &f.config, &kwargs), EBB_OK);
    json_t *wanted = json_pack("{s:b, s:{s:[i, f, b, n]}, s:s, s:s}", "enable_thinking", 0, "deep",
                               "a", 1, 2.5, 1, "text", "5", "word", "on");
    assert_true(json_equal(kwargs, wanted));
    json_decref(wanted);
    json_decref(kwargs);
    end(&f);
}

static void variables_that_a_template_has_anyway_are_refused(void **state)
{
    (void)state;
    assert_fails(EBB_COMMAND_SFT, BASE "chat_template_kwargs: [a]\n", EBB_BAD_CONFIG,
                 "wants a mapping");
    assert_fails(EBB_COMMAND_SFT, BASE "chat_template_kwargs: {messages: 1}\n", EBB_BAD_CONFIG,
                 "cannot set 'messages', which each conversation has of its own\n"
                 "where: conf.yaml:4:24");
    assert_fails(EBB_COMMAND_SFT, BASE "chat_template: ''\n", EBB_BAD_CONFIG,
                 "'chat_template' is empty");
}

static void built_in_templates_are_named_in_their_help(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    char **names = NULL;
    size_t count = 0;
    const struct ebb_option *option = ebb_option_find("chat_template");
    assert_int_equal(ebb_dir_list(ctx, EBB_SOURCE_DIR "/configs/chat_templates", &names, &count),
                     EBB_OK);
    assert_true(count >= 3);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(names[i], "."), names[i]);
        if (strstr(option->help, name) == NULL) fail_msg("'%s' is not in the help", name);
    }
    ebb_dir_list_free(ctx, names, count);
    ebb_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_keys_of_other_projects_are_translated),
        cmocka_unit_test(what_is_not_offered_says_what_is),
        cmocka_unit_test(a_training_file_serves_the_data_command),
        cmocka_unit_test(items_say_what_they_do_not_take_from_the_other_keys),
        cmocka_unit_test(validation_split_cuts_every_source_and_counts_records_once),
        cmocka_unit_test(validation_data_is_its_own_or_another_split_of_all),
        cmocka_unit_test(what_is_measured_has_no_weight),
        cmocka_unit_test(errors_in_data_sets_name_item_line_and_column),
        cmocka_unit_test(data_sets_may_stand_on_the_command_line),
        cmocka_unit_test(variables_of_a_template_have_the_types_they_look_like),
        cmocka_unit_test(variables_that_a_template_has_anyway_are_refused),
        cmocka_unit_test(built_in_templates_are_named_in_their_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
