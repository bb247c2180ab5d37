/* The option table and the reading of values: names, defaults, help, files, arguments, the texts
 * of errors, rules.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/packing.h"
#include "optim/schedule.h"
#include "op/distill.h"
#include "recipe/options.h"

/* ---- helpers --------------------------------------------------------------------------------- */

struct fixture {
    struct ebb_ctx *ctx;
    struct ebb_config config;
    struct ebb_options *options;
    char log[8192]; /* all log lines */
};

static void keep_log(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    struct fixture *f = user;
    size_t used = strlen(f->log);
    (void)level;
    (void)topic;
    snprintf(f->log + used, sizeof f->log - used, "%s\n", text);
}

static void begin(struct fixture *f, enum ebb_command command)
{
    memset(f, 0, sizeof *f);
    f->ctx = ebb_ctx_create();
    assert_non_null(f->ctx);
    ebb_ctx_set_log(f->ctx, keep_log, f);
    assert_int_equal(ebb_options_create(f->ctx, command, &f->config, &f->options), EBB_OK);
}

static void end(struct fixture *f)
{
    ebb_options_free(f->options);
    assert_int_equal(ebb_mem_bytes_now(f->ctx), 0);
    ebb_ctx_free(f->ctx);
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("'%s' does not contain '%s'", text, part);
}

/* A command's keys from YAML text, read and checked. */
static enum ebb_status read_text(struct fixture *f, const char *text)
{
    enum ebb_status status = ebb_options_text(f->options, "conf.yaml", text);
    return status == EBB_OK ? ebb_options_check(f->options) : status;
}

#define BASE "model_name_or_path: m\ndataset_name: d\noutput_dir: o\n"

static void assert_fails(enum ebb_command command, const char *text, enum ebb_status status,
                         const char *part)
{
    struct fixture f;
    begin(&f, command);
    enum ebb_status got = read_text(&f, text);
    if (got != status)
        fail_msg("status %s instead of %s: %s", ebb_status_name(got), ebb_status_name(status),
                 ebb_error_text(f.ctx));
    assert_contains(ebb_error_text(f.ctx), part);
    end(&f);
}

static void assert_works(enum ebb_command command, const char *text)
{
    struct fixture f;
    begin(&f, command);
    if (read_text(&f, text) != EBB_OK) fail_msg("%s\nfailed: %s", text, ebb_error_text(f.ctx));
    end(&f);
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { NAMES = 2048 };
static void add_name(const char **names, size_t *count, const char *name)
{
    char *copy = strdup(name);
    for (size_t i = 0; i < *count; i++)
        if (strcmp(names[i], name) == 0) fail_msg("'%s' is there twice", name);
    assert_true(*count < NAMES);
    names[(*count)++] = copy;
}

static void names_and_aliases_are_unique(void **state)
{
    (void)state;
    const char *names[NAMES];
    size_t count = 0, rows;
    char word[64];
    const struct ebb_option *table = ebb_option_table(&rows);
    for (size_t i = 0; i < rows; i++) {
        add_name(names, &count, table[i].key);
        for (int k = 0; ebb_option_word(table[i].aliases, k, word, sizeof word); k++)
            add_name(names, &count, word);
    }
    const struct ebb_spelling *spellings = ebb_spelling_table(&rows);
    for (size_t i = 0; i < rows; i++) add_name(names, &count, spellings[i].key);
    const struct ebb_foreign_key *foreign = ebb_foreign_table(&rows);
    for (size_t i = 0; i < rows; i++)
        for (int k = 0; ebb_option_word(foreign[i].keys, k, word, sizeof word); k++)
            add_name(names, &count, word);
    for (size_t i = 0; i < count; i++) free((void *)(uintptr_t)names[i]);
}

static void every_row_says_what_it_does_in_full_sentences(void **state)
{
    (void)state;
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    for (size_t i = 0; i < rows; i++) {
        size_t bytes = table[i].help ? strlen(table[i].help) : 0;
        if (bytes < 20 || table[i].help[bytes - 1] != '.') fail_msg("help of '%s'", table[i].key);
        assert_true(table[i].help[0] >= '0' && table[i].help[0] <= 'Z');
        assert_true(table[i].commands != 0);
        assert_true(table[i].commands < 1u << EBB_COMMAND_COUNT);
        assert_int_equal(table[i].required & ~table[i].commands, 0);
        assert_true(table[i].group < EBB_GROUP_COUNT && table[i].type < EBB_OPTION_TYPE_COUNT);
        assert_true((table[i].type == EBB_OPTION_CHOICE) == (table[i].choices != NULL));
        if (table[i].type == EBB_OPTION_INT || table[i].type == EBB_OPTION_FLOAT)
            assert_true(table[i].low < table[i].high);
    }
}

static void fields_do_not_overlap_and_fill_the_struct(void **state)
{
    (void)state;
    static const size_t sizes[] = {
#define SIZE(name, text, type) sizeof(type),
        EBB_OPTION_TYPE_LIST(SIZE)
#undef SIZE
    };
    size_t rows, used = 0;
    unsigned char owner[sizeof(struct ebb_config)];
    memset(owner, 0xff, sizeof owner);
    const struct ebb_option *table = ebb_option_table(&rows);
    assert_true(rows < 0xff);
    for (size_t i = 0; i < rows; i++) {
        size_t bytes = sizes[table[i].type];
        assert_true(table[i].offset + bytes <= sizeof owner);
        for (size_t k = 0; k < bytes; k++) {
            if (owner[table[i].offset + k] != 0xff)
                fail_msg("'%s' overlaps '%s'", table[i].key, table[owner[table[i].offset + k]].key);
            owner[table[i].offset + k] = (unsigned char)i;
        }
        used += bytes;
    }
    assert_true(used + rows * 8 >=
                sizeof owner); /* what is left is padding: no field without a row */
}

static void defaults_read_as_values_in_bounds(void **state)
{
    (void)state;
    size_t rows;
    const struct ebb_option *table = ebb_option_table(&rows);
    for (int command = 0; command < EBB_COMMAND_COUNT; command++) {
        struct fixture f;
        begin(&f, (enum ebb_command)command);
        for (size_t i = 0; i < rows; i++) {
            if (!(table[i].commands & 1u << command) || table[i].text == NULL) continue;
            assert_int_equal(ebb_options_set(f.options, table[i].key, table[i].text), EBB_OK);
            assert_true(ebb_options_is_set(f.options, table[i].key));
        }
        end(&f);
    }
}

static void bounds_are_kept(void **state)
{
    (void)state;
    size_t rows;
    char text[64], low[64], high[64];
    const struct ebb_option *table = ebb_option_table(&rows);
    for (size_t i = 0; i < rows; i++) {
        const struct ebb_option *row = &table[i];
        if (row->type != EBB_OPTION_INT && row->type != EBB_OPTION_FLOAT) continue;
        enum ebb_command command = EBB_COMMAND_SFT;
        while (!(row->commands & 1u << command)) command = (enum ebb_command)(command + 1);
        snprintf(low, sizeof low, "%.17g", row->above ? row->low : row->low - 1);
        snprintf(high, sizeof high, "%.17g",
                 row->type == EBB_OPTION_INT ? row->high + 1 : row->high * 1.5);
        snprintf(text, sizeof text, "%.17g", row->high);
        const char *values[] = {low, high};
        for (int k = 0; k < 2; k++) {
            struct fixture f;
            if (k == 1 && row->high > 9e15) continue; /* beyond what a double counts exactly */
            begin(&f, command);
            assert_int_equal(ebb_options_set(f.options, row->key, values[k]), EBB_BAD_CONFIG);
            assert_contains(ebb_error_text(f.ctx), "out of range");
            assert_contains(ebb_error_text(f.ctx), row->key);
            end(&f);
        }
        struct fixture f;
        begin(&f, command);
        assert_int_equal(ebb_options_set(f.options, row->key, text), EBB_OK);
        end(&f);
    }
}

static void every_choice_and_its_other_spellings_are_taken(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(ebb_options_set(f.options, "dtype", "bf16"), EBB_OK);
    assert_int_equal(f.config.dtype, EBB_DTYPE_KEY_BFLOAT16);
    assert_int_equal(ebb_options_set(f.options, "dtype", "fp32"), EBB_OK);
    assert_int_equal(f.config.dtype, EBB_DTYPE_KEY_FLOAT32);
    assert_int_equal(ebb_options_set(f.options, "optim", "adamw_torch_fused"), EBB_OK);
    assert_int_equal(f.config.optim, EBB_OPTIM_KEY_ADAMW);
    for (int i = 0; i < EBB_SCHEDULE_COUNT; i++) {
        assert_int_equal(ebb_options_set(f.options, "lr_scheduler_type",
                                         ebb_schedule_name((enum ebb_schedule)i)),
                         EBB_OK);
        assert_int_equal(f.config.lr_scheduler_type, i);
    }
    end(&f);
}

/* docs/COMING_FROM.md is made of them; a key that no table knows would be an error there. */
static void every_key_of_a_project_is_in_a_table(void **state)
{
    (void)state;
    size_t count;
    char key[64], row[80];
    const struct ebb_project *projects = ebb_project_table(&count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        struct fixture f;
        struct ebb_str text = {0};
        begin(&f, EBB_COMMAND_SFT);
        assert_ptr_equal(ebb_project_find(projects[i].name), &projects[i]);
        if (ebb_help_project(f.ctx, &projects[i], &text) != EBB_OK)
            fail_msg("%s: %s", projects[i].name, ebb_error_text(f.ctx));
        int keys = 0;
        for (; ebb_option_word(projects[i].keys, keys, key, sizeof key); keys++) {
            snprintf(row, sizeof row, "| `%s` | ", key);
            assert_contains(text.data, row);
        }
        assert_true(keys > 20);
        const struct ebb_project stranger = {"x", "X", "lora_r no_such_key"};
        assert_int_equal(ebb_help_project(f.ctx, &stranger, &text), EBB_BAD_CONFIG);
        assert_contains(ebb_error_text(f.ctx), "no_such_key");
        ebb_str_free(f.ctx, &text);
        end(&f);
    }
    assert_null(ebb_project_find("peft"));
}

static void translated_spellings_name_a_row_and_a_value_it_takes(void **state)
{
    (void)state;
    size_t count;
    const struct ebb_spelling *spellings = ebb_spelling_table(&count);
    for (size_t i = 0; i < count; i++) {
        const struct ebb_option *option = ebb_option_find(spellings[i].target);
        assert_non_null(option);
        for (const char *at = spellings[i].map; *at;) {
            size_t bytes = strcspn(at, "|"), left = strcspn(at, "=|");
            char from[64], to[64];
            snprintf(from, sizeof from, "%.*s", (int)left, at);
            snprintf(to, sizeof to, "%.*s", left < bytes ? (int)(bytes - left - 1) : 0,
                     at + left + (left < bytes));
            if (strcmp(from, "*") != 0) {
                struct fixture f;
                enum ebb_command command = EBB_COMMAND_SFT;
                if (!(option->commands & 1u << command)) command = EBB_COMMAND_KD;
                if (!(option->commands & 1u << command)) command = EBB_COMMAND_DPO;
                if (!(option->commands & 1u << command)) command = EBB_COMMAND_GENERATE;
                begin(&f, command);
                enum ebb_status wanted = strcmp(to, "!") == 0 ? EBB_UNSUPPORTED : EBB_OK;
                assert_int_equal(ebb_options_set(f.options, spellings[i].key, from), wanted);
                if (wanted != EBB_OK) assert_contains(ebb_error_text(f.ctx), spellings[i].refusal);
                end(&f);
            }
            at += bytes;
            at += *at == '|';
        }
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void values_remember_where_they_were_set(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(ebb_options_text(f.options, "conf.yaml",
                                      "base_model: here\nuse_peft: yes\n\nlora_rank: 8\n"),
                     EBB_OK);
    assert_string_equal(f.config.model_name_or_path, "here");
    assert_true(f.config.use_peft);
    assert_int_equal(f.config.lora_r, 8);
    assert_string_equal(ebb_options_where(f.options, "lora_r"), "conf.yaml:4:1  lora_rank: 8");
    assert_string_equal(ebb_options_where(f.options, "seed"), "default  seed: 42");
    assert_int_equal(ebb_options_set(f.options, "lora_r", "4"), EBB_OK);
    assert_string_equal(ebb_options_where(f.options, "lora_r"), "command line  lora_r=4");
    assert_false(ebb_options_is_set(f.options, "seed"));
    end(&f);
}

static void null_means_the_default(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(ebb_options_text(f.options, "conf.yaml",
                                      "max_steps: null\nlora_r:\nmemory_budget: ~\n"),
                     EBB_OK);
    assert_int_equal(f.config.lora_r, 16);
    assert_false(ebb_options_is_set(f.options, "max_steps"));
    assert_int_equal(ebb_options_set(f.options, "max_length", "1024"), EBB_OK);
    assert_int_equal(ebb_options_set(f.options, "max_length", "None"), EBB_OK);
    assert_int_equal(f.config.max_length, EBB_AUTO_INT);
    end(&f);
}

static void nested_mappings_of_torchtune_are_dotted_keys(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    const char *text = "tokenizer:\n"
                       "  path: /x\n"
                       "  max_seq_len: 512\n"
                       "optimizer:\n"
                       "  _component_: torch.optim.AdamW\n"
                       "  lr: 3e-4\n"
                       "model:\n"
                       "  _component_: x\n"
                       "  lora_rank: 4\n"
                       "metric_logger:\n"
                       "  _component_: torchtune.training.metric_logging.TensorBoardLogger\n"
                       "  log_dir: z\n"
                       "  prefix: p\n";
    assert_int_equal(ebb_options_text(f.options, "conf.yaml", text), EBB_OK);
    assert_int_equal(f.config.max_length, 512);
    assert_float_equal(f.config.learning_rate, 3e-4, 1e-12);
    assert_int_equal(f.config.lora_r, 4);
    assert_string_equal(f.config.report_to, "tensorboard");
    assert_string_equal(f.config.logging_dir, "z");
    assert_contains(f.log, "'metric_logger.prefix' is not used: metrics go to output_dir/metric");
    assert_contains(f.log, "'model._component_' is not used");
    end(&f);
}

/* What its recipe of distillation names beside the student, value by value. */
static void a_distillation_of_torchtune_means_the_same(void **state)
{
    static const struct {
        const char *component;
        int wanted;
    } losses[] = {{"ForwardKLLoss", EBB_FORWARD_KL},
                  {"ForwardKLWithChunkedOutputLoss", EBB_FORWARD_KL},
                  {"ReverseKLWithChunkedOutputLoss", EBB_REVERSE_KL},
                  {"SymmetricKLWithChunkedOutputLoss", EBB_SYMMETRIC_KL}};
    (void)state;
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        struct fixture f;
        char text[1024];
        bool symmetric = losses[i].wanted == EBB_SYMMETRIC_KL;
        begin(&f, EBB_COMMAND_KD);
        snprintf(text, sizeof text,
                 "teacher_model:\n"
                 "  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
                 "checkpointer:\n"
                 "  checkpoint_dir: /student\n"
                 "teacher_checkpointer:\n"
                 "  _component_: torchtune.training.FullModelHFCheckpointer\n"
                 "  checkpoint_dir: /teacher\n"
                 "  checkpoint_files: [a.safetensors]\n"
                 "  model_type: LLAMA3\n"
                 "dataset: d.jsonl\n"
                 "output_dir: o\n"
                 "kd_loss:\n"
                 "  _component_: torchtune.modules.loss.%s\n"
                 "  num_output_chunks: 8\n"
                 "%s"
                 "kd_ratio: 0.25\n",
                 losses[i].component, symmetric ? "  sym_kd_ratio: 0.75\n" : "");
        if (ebb_options_text(f.options, "conf.yaml", text) != EBB_OK ||
            ebb_options_check(f.options) != EBB_OK)
            fail_msg("%s: %s", losses[i].component, ebb_error_text(f.ctx));
        assert_string_equal(f.config.model_name_or_path, "/student");
        assert_string_equal(f.config.teacher_model_name_or_path, "/teacher");
        assert_int_equal(f.config.kd_loss, losses[i].wanted);
        assert_float_equal(f.config.kd_ratio, 0.25, 0);
        if (symmetric) assert_float_equal(f.config.beta, 0.75, 0);
        assert_contains(f.log, "'teacher_model._component_' is not used");
        assert_contains(f.log, "'kd_loss.num_output_chunks' is not used");
        end(&f);
    }
}

static void a_distillation_of_trl_means_the_same_or_stops(void **state)
{
    static const char *const refused[] = {"lmbda: 0.5\n", "seq_kd: true\n"};
    struct fixture f;
    (void)state;
    begin(&f, EBB_COMMAND_KD);
    const char *text = "model_name_or_path: s\nteacher_model_name_or_path: t\n"
                       "dataset_name: d.jsonl\noutput_dir: o\nlmbda: 0.0\nseq_kd: false\n"
                       "kd_loss: jsd\nkd_ratio: 1\nbeta: 0.1\ntemperature: 0.9\n";
    assert_int_equal(ebb_options_text(f.options, "conf.yaml", text), EBB_OK);
    assert_int_equal(ebb_options_check(f.options), EBB_OK);
    assert_int_equal(f.config.kd_loss, EBB_JSD);
    assert_float_equal(f.config.beta, 0.1, 0);
    assert_float_equal(f.config.temperature, 0.9, 0);
    end(&f);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        begin(&f, EBB_COMMAND_KD);
        assert_int_equal(ebb_options_text(f.options, "conf.yaml", refused[i]), EBB_UNSUPPORTED);
        assert_contains(ebb_error_text(f.ctx), "is not offered");
        ebb_error_clear(f.ctx);
        end(&f);
    }
}

/* A file of 'ebb kd' also serves 'ebb plan', which has to be told what is planned. */
static void recipe_in_a_file_may_name_the_command(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, EBB_COMMAND_KD);
    assert_int_equal(ebb_options_text(f.options, "conf.yaml", "recipe: kd\n"), EBB_OK);
    end(&f);
    begin(&f, EBB_COMMAND_EVAL);
    assert_int_equal(ebb_options_text(f.options, "conf.yaml", "recipe: kd\nkd_ratio: 1\n"), EBB_OK);
    assert_contains(f.log, "2 keys of 'ebb sft' are not used by 'ebb eval'");
    end(&f);
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(ebb_options_text(f.options, "conf.yaml", "recipe: kd\n"), EBB_BAD_CONFIG);
    assert_contains(ebb_error_text(f.ctx), "'ebb sft' has no use for it");
    ebb_error_clear(f.ctx);
    end(&f);
}

/* It would change which weights are trained: never passed over. */
static void modules_of_torchtune_stop_and_name_the_key(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    const char *text = "model:\n  lora_attn_modules: [q_proj, v_proj]\n";
    assert_int_equal(ebb_options_text(f.options, "conf.yaml", text), EBB_UNSUPPORTED);
    assert_contains(ebb_error_text(f.ctx), "lora_target_modules");
    ebb_error_clear(f.ctx);
    end(&f);
}

static void lists_of_names_are_taken_as_lists_and_as_text(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(ebb_options_text(f.options, "conf.yaml",
                                      "lora_target_modules: [q_proj, v_proj]\n"),
                     EBB_OK);
    assert_string_equal(f.config.lora_target_modules, "q_proj,v_proj");
    assert_int_equal(ebb_options_set(f.options, "lora_target", "all"), EBB_OK);
    assert_string_equal(f.config.lora_target_modules, "all-linear");
    end(&f);
}

static void sizes_and_shares_are_told_apart(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(ebb_options_set(f.options, "memory_budget", "20GiB"), EBB_OK);
    assert_int_equal(f.config.memory_budget.bytes, (int64_t)20 << 30);
    assert_int_equal(ebb_options_set(f.options, "memory_budget", "12.5%"), EBB_OK);
    assert_int_equal(f.config.memory_budget.bytes, 0);
    assert_float_equal(f.config.memory_budget.percent, 12.5, 0);
    const char *bad[] = {"0%", "101%", "-1", "many", "%", "nan%", "1KiB"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ebb_options_set(f.options, "memory_budget", bad[i]), EBB_BAD_CONFIG);
        ebb_error_clear(f.ctx);
    }
    end(&f);
}

static void a_training_file_serves_evaluation_and_says_what_it_leaves(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_EVAL);
    assert_int_equal(read_text(&f, BASE "use_peft: true\nlora_r: 8\nlearning_rate: 1e-4\n"),
                     EBB_OK);
    assert_contains(f.log, "conf.yaml: 4 keys of 'ebb sft' are not used by 'ebb eval'");
    end(&f);
    assert_fails(EBB_COMMAND_EVAL, "top_p: 0.5\n", EBB_BAD_CONFIG,
                 "key 'top_p' belongs to 'ebb generate'");
    /* Rows are what is measured, as in training. */
    begin(&f, EBB_COMMAND_EVAL);
    assert_int_equal(read_text(&f, BASE "packing: true\npacking_strategy: wrapped\n"), EBB_OK);
    assert_true(f.config.packing && f.config.packing_strategy == EBB_PACKING_WRAPPED);
    end(&f);
    assert_fails(EBB_COMMAND_EVAL, BASE "packing_strategy: wrapped\n", EBB_BAD_CONFIG,
                 "has no effect without packing");
    assert_fails(EBB_COMMAND_EVAL,
                 BASE "packing: true\npacking_strategy: wrapped\noverlong: drop\n", EBB_BAD_CONFIG,
                 "has no effect with this packing_strategy");
    /* It decides what a weight draws. */
    begin(&f, EBB_COMMAND_PLAN);
    assert_int_equal(read_text(&f, BASE "seed: 4\n"), EBB_OK);
    assert_int_equal(f.config.seed, 4);
    end(&f);
}

static void errors_name_file_line_column_and_the_nearest_key(void **state)
{
    (void)state;
    assert_fails(EBB_COMMAND_SFT, "packing: true\n\n  # x\nlernaing_rate: 1\n", EBB_BAD_CONFIG,
                 "unknown key 'lernaing_rate'\n"
                 "where: conf.yaml:4:1  lernaing_rate: 1\n"
                 "try:   'learning_rate'");
    assert_fails(EBB_COMMAND_SFT, "max_seq_lenght: 1\n", EBB_BAD_CONFIG,
                 "which is another spelling of 'max_length'");
    assert_fails(EBB_COMMAND_SFT, "optimizer:\n  beta: 1\n", EBB_BAD_CONFIG,
                 "unknown key 'optimizer.beta'\nwhere: conf.yaml:2:3");
    assert_fails(EBB_COMMAND_SFT, "zzzzqqqq: 1\n", EBB_BAD_CONFIG, "help:  ebb help sft");
    assert_fails(EBB_COMMAND_SFT, "lora_r: 0\n", EBB_BAD_CONFIG,
                 "value '0' of 'lora_r' is out of range: wanted whole number from 1 to 4096\n"
                 "where: conf.yaml:1:1  lora_r: 0");
    assert_fails(EBB_COMMAND_SFT, "lora_r: 1.5\n", EBB_BAD_CONFIG, "is no whole number");
    assert_fails(EBB_COMMAND_SFT, "learning_rate: fast\n", EBB_BAD_CONFIG,
                 "is no number: wanted number above 0, at most 100, or auto");
    assert_fails(EBB_COMMAND_SFT, "packing: [true]\n", EBB_BAD_CONFIG,
                 "'packing' wants one value, not a list");
    assert_fails(EBB_COMMAND_SFT, "packing: {a: b}\n", EBB_BAD_CONFIG, "unknown key 'packing.a'");
    assert_fails(EBB_COMMAND_SFT, "activations: keep\n", EBB_BAD_CONFIG, "wanted mapping or list");
    assert_fails(EBB_COMMAND_SFT, "datasets: a.jsonl\n", EBB_BAD_CONFIG,
                 "wanted list of paths or mappings");
    assert_fails(EBB_COMMAND_SFT, "lr: 1\nlearning_rate: 1\n", EBB_BAD_CONFIG,
                 "set twice: 'lr' on line 1 and 'learning_rate' on line 2");
    assert_fails(EBB_COMMAND_GENERATE, "stop: ['.']\nstop_strings: ['!']\n", EBB_BAD_CONFIG,
                 "set twice: 'stop' on line 1 and 'stop_strings' on line 2");
    assert_fails(EBB_COMMAND_SFT, "- a\n", EBB_BAD_CONFIG, "a configuration is a mapping");
    assert_fails(EBB_COMMAND_SFT, "dataset_name: d\noutput_dir: o\n", EBB_BAD_CONFIG,
                 "'ebb sft' needs 'model_name_or_path'");
}

static void keys_of_other_projects_are_explained_or_refused(void **state)
{
    (void)state;
    assert_fails(EBB_COMMAND_SFT, "fp16: true\n", EBB_UNSUPPORTED, "dtype: bfloat16");
    assert_fails(EBB_COMMAND_SFT, "load_in_4bit: true\n", EBB_UNSUPPORTED,
                 "'load_in_4bit: true' is not offered");
    assert_fails(EBB_COMMAND_SFT, "optimizer_in_bwd: true\n", EBB_UNSUPPORTED,
                 "norm of all gradients");
    assert_fails(EBB_COMMAND_SFT, "deepspeed: ds.json\n", EBB_UNSUPPORTED, "one device");
    assert_works(EBB_COMMAND_SFT, BASE
                 "fp16: false\nload_in_4bit: False\noptimizer_in_bwd: false\ndeepspeed: null\n");
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    const char *text =
        BASE "use_liger_kernel: true\n"
             "use_pin_memory: true\n"
             "min_offload_size: 1024\n"
             "max_fwd_stash_size: 5\n"
             "gradient_checkpointing_kwargs: {use_reentrant: false}\n"
             "neat_packing: true\n"
             "dataloader_num_workers: 4\n"
             "use_wandb: true\n"
             "compile: true\n";
    assert_int_equal(read_text(&f, text), EBB_OK);
    const char *keys[] = {"use_liger_kernel",
                          "use_pin_memory",
                          "min_offload_size",
                          "max_fwd_stash_size",
                          "gradient_checkpointing_kwargs",
                          "neat_packing",
                          "dataloader_num_workers",
                          "use_wandb",
                          "compile"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char line[80];
        snprintf(line, sizeof line, "'%s' is not used: ", keys[i]);
        assert_contains(f.log, line);
    }
    end(&f);
}

static void report_to_takes_known_names_and_refuses_others(void **state)
{
    (void)state;
    static const char *const good[] = {
        "report_to: none\n",
        "report_to: [tensorboard, wandb]\n",
        "report_to: all\n",
        "report_to: null\n",
        "report_to: []\n",
        "use_tensorboard: true\n",
        "use_tensorboard: false\n",
        "report_to: [tensorboard, tensorboard]\n",
        "metric_logger:\n  _component_: torchtune.training.metric_logging.DiskLogger\n"
        "  log_dir: ${output_dir}/logs\n"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, BASE "%s", good[i]);
        assert_works(EBB_COMMAND_SFT, text);
    }
    assert_fails(EBB_COMMAND_SFT, BASE "report_to: mlflow\n", EBB_BAD_CONFIG,
                 "value 'mlflow' of 'report_to' is not known: wanted none, tensorboard, wandb or "
                 "all, or a list of them\nwhere: conf.yaml:4:1  report_to: mlflow");
    assert_fails(EBB_COMMAND_SFT, BASE "report_to: [tensorboard, tensor]\n", EBB_BAD_CONFIG,
                 "value 'tensor' of 'report_to' is not known");
    assert_fails(EBB_COMMAND_SFT, BASE "report_to: [tensorboard, none]\n", EBB_BAD_CONFIG,
                 "'report_to' has none beside other names");
    assert_fails(EBB_COMMAND_SFT, BASE "report_to: wandb\nuse_tensorboard: true\n", EBB_BAD_CONFIG,
                 "'report_to' is set twice");
    assert_fails(EBB_COMMAND_SFT, BASE "report_to: tensorboard\nlogging_dir: ${output_dir}/x\n",
                 EBB_BAD_CONFIG, "'logging_dir' names a variable");
    assert_fails(EBB_COMMAND_SFT,
                 "metric_logger:\n  _component_: torchtune.training.metric_logging.CometLogger\n"
                 "  log_dir: x\n",
                 EBB_UNSUPPORTED, "report_to: tensorboard");
}

static void report_to_says_what_ebb_leaves_to_others(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(read_text(&f, BASE "report_to: [wandb]\nlogging_dir: logs\n"), EBB_OK);
    assert_contains(f.log, "report_to: wandb is done by a script: 'python tools/wandb_tail.py o'");
    assert_contains(f.log, "'logging_dir' is not used");
    end(&f);
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(read_text(&f, BASE "report_to: tensorboard\nlogging_dir: logs\n"), EBB_OK);
    assert_string_equal(f.log, "");
    end(&f);
}

static void configurations_of_other_projects_are_understood(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(
        read_text(&f,
                  "base_model: m\n"
                  "dataset_name: d\n"
                  "output_dir: o\n"
                  "adapter: lora\n"
                  "lora_r: 8\n"
                  "lora_target_linear: true\n"
                  "sequence_len: 512\n"
                  "sample_packing: true\n"
                  "micro_batch_size: 2\n"
                  "num_epochs: 1\n"
                  "val_set_size: 0.05\n"
                  "eval_strategy: epoch\n"
                  "bf16: auto\n"
                  "train_on_inputs: false\n"),
        EBB_OK);
    assert_true(f.config.use_peft && f.config.packing);
    assert_int_equal(f.config.max_length, 512);
    assert_int_equal(f.config.per_device_train_batch_size, 2);
    /* false asks for what auto does; true would be an error of a format without prompts. */
    assert_int_equal(f.config.completion_only_loss, EBB_AUTO);
    end(&f);
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(
        read_text(&f,
                  "model_name_or_path: m\n"
                  "dataset: d\n"
                  "output_dir: o\n"
                  "finetuning_type: lora\n"
                  "lora_target: all\n"
                  "lora_rank: 8\n"
                  "cutoff_len: 1024\n"
                  "stage: sft\n"
                  "do_train: true\n"
                  "bf16: true\n"),
        EBB_OK);
    assert_true(f.config.use_peft);
    assert_int_equal(f.config.dtype, EBB_DTYPE_KEY_BFLOAT16);
    end(&f);
    assert_fails(EBB_COMMAND_SFT, "finetuning_type: freeze\n", EBB_UNSUPPORTED, "LoRA adapter");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void arguments_come_in_every_usual_form(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    char *words[] = {"model=a=b",  "--dataset-name", "d",         "--output_dir=o",
                     "--packing",  "--shuffle",      "false",     "--gradient-checkpointing",
                     "--use-peft", "lora-r=4",       "--adapter", "lora"};
    assert_int_equal(ebb_options_arguments(f.options, (int)(sizeof words / sizeof words[0]), words),
                     EBB_OK);
    assert_string_equal(f.config.model_name_or_path, "a=b");
    assert_string_equal(f.config.dataset_name, "d");
    assert_string_equal(f.config.output_dir, "o");
    assert_true(f.config.packing && f.config.use_peft);
    assert_false(f.config.shuffle);
    assert_int_equal(f.config.gradient_checkpointing, EBB_TRUE);
    assert_int_equal(f.config.lora_r, 4);
    assert_int_equal(ebb_options_check(f.options), EBB_OK);
    end(&f);
}

static void arguments_go_before_the_file_wherever_it_stands(void **state)
{
    (void)state;
    struct fixture f;
    char path[] = "/tmp/ebb_options_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    fputs("lora_r: 8\nseed: 7\n", file);
    fclose(file);
    begin(&f, EBB_COMMAND_SFT);
    char *words[] = {"lora_r=4", path};
    assert_int_equal(ebb_options_arguments(f.options, 2, words), EBB_OK);
    assert_int_equal(f.config.lora_r, 4);
    assert_int_equal(f.config.seed, 7);
    assert_string_equal(ebb_options_path(f.options), path);
    end(&f);
    remove(path);
}

static void an_argument_that_silences_a_key_of_the_file_only_says_so(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(ebb_options_text(f.options, "conf.yaml",
                                      BASE "use_peft: true\nlora_r: 8\nnum_train_epochs: 2\n"),
                     EBB_OK);
    assert_int_equal(ebb_options_set(f.options, "use_peft", "false"), EBB_OK);
    assert_int_equal(ebb_options_set(f.options, "max_steps", "10"), EBB_OK);
    assert_int_equal(ebb_options_check(f.options), EBB_OK);
    assert_contains(f.log, "'lora_r' has no effect");
    assert_contains(f.log, "'num_train_epochs' has no effect");
    end(&f);
}

static void bad_arguments_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *word, *part;
    } cases[] = {{"--lora_r", "key 'lora_r' needs a value"},
                 {"-x", "unknown option '-x'"},
                 {"--=3", "argument '--=3' is no key"},
                 {"nofile.yaml", "there is no configuration file 'nofile.yaml'"},
                 {"lora_q=3", "unknown key 'lora_q'"},
                 {"output_dir=a\xff", "value 'a?' of 'output_dir' is not UTF-8"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        begin(&f, EBB_COMMAND_SFT);
        char *words[] = {strdup(cases[i].word)};
        assert_int_equal(ebb_options_arguments(f.options, 1, words), EBB_BAD_CONFIG);
        assert_contains(ebb_error_text(f.ctx), cases[i].part);
        free(words[0]);
        end(&f);
    }
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void a_key_without_effect_is_an_error(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "lora_r: 8\n",
        "lora_dropout: 0.1\n",
        "use_rslora: true\n",
        "adapter_name_or_path: a\nlora_r: 8\n",
        "use_peft: true\nsave_dtype: float32\n",
        "momentum: 0.9\n",
        "optim: sgd\nadam_beta2: 0.95\n",
        "decay_ratio: 0.2\n",
        "lr_scheduler_type: constant\nwarmup_steps: 5\n",
        "warmup_steps: 5\nwarmup_ratio: 0.1\n",
        "max_steps: 5\nnum_train_epochs: 1\n",
        "use_peft: true\nstochastic_rounding: true\n",
        "dtype: float32\nstochastic_rounding: true\n",
        "eval_dataset: e\n",
        "per_device_eval_batch_size: 2\n",
        "validation_split: 0.1\n",
        "eval_steps: 5\n",
        "eval_strategy: epoch\nvalidation_split: 0.1\neval_steps: 5\n",
        "save_steps: 5\n",
        "save_strategy: no\nsave_total_limit: 1\n",
        "early_stopping_threshold: 0.1\n",
        "memory_budget: 1GiB\n"
        "activation_offloading: false\n"
        "activation_offloading_use_streams: false\n",
        "activation_offloading: false\nhost_memory_budget: 1GiB\n",
        "host_memory_budget: 1GiB\n",
        "memory_budget: 1GiB\npinned_memory_budget: 1GiB\n",
        "activation_offloading_use_streams: true\n",
        "dataset_format: alpaca\ndataset_text_field: body\n",
        "packing_strategy: wrapped\n",
        "packing: true\ngroup_by_length: true\n",
        "packing: true\npacking_strategy: bfd_split\noverlong: drop\n",
        "packing: true\npacking_strategy: wrapped\ntruncation_side: left\n",
        "truncation_side: left\n",
        "overlong: drop\ntruncation_mode: keep_end\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, BASE "%s", texts[i]);
        assert_fails(EBB_COMMAND_SFT, text, EBB_BAD_CONFIG, "has no effect");
        assert_fails(EBB_COMMAND_SFT, text, EBB_BAD_CONFIG, "\nwhere: conf.yaml:");
        assert_fails(EBB_COMMAND_SFT, text, EBB_BAD_CONFIG, "\ntry:   ");
    }
    assert_fails(EBB_COMMAND_DATA, "model: m\ndataset: d\nrecords: [1]\nshow_samples: 2\n",
                 EBB_BAD_CONFIG, "has no effect beside records");
    assert_fails(EBB_COMMAND_DATA, "model: m\ndataset: d\njson: true\ncolor: never\n",
                 EBB_BAD_CONFIG, "has no effect with json");
    assert_fails(EBB_COMMAND_GENERATE, "model: m\ntop_p: 0.9\n", EBB_BAD_CONFIG,
                 "has no effect with temperature: 0");
    assert_fails(EBB_COMMAND_GENERATE, "model: m\ntop_k: 9\n", EBB_BAD_CONFIG,
                 "has no effect with temperature: 0");
}

static void a_contradiction_is_an_error(void **state)
{
    (void)state;
    assert_fails(EBB_COMMAND_SFT, BASE "use_peft: false\nadapter_name_or_path: a\n", EBB_BAD_CONFIG,
                 "contradicts adapter_name_or_path");
    assert_fails(EBB_COMMAND_SFT, BASE "eval_strategy: epoch\n", EBB_BAD_CONFIG,
                 "eval_strategy needs data to evaluate on");
    assert_fails(EBB_COMMAND_SFT,
                 BASE "eval_strategy: epoch\nvalidation_split: 0.1\neval_dataset: e\n",
                 EBB_BAD_CONFIG, "contradicts eval_dataset");
    assert_fails(EBB_COMMAND_SFT, BASE "eval_strategy: epoch\nvalidation_split: 0.125\n",
                 EBB_BAD_CONFIG, "whole percents");
    assert_fails(EBB_COMMAND_SFT, BASE "load_best_model_at_end: true\n", EBB_BAD_CONFIG,
                 "needs evaluations");
    assert_fails(EBB_COMMAND_SFT, BASE "early_stopping_patience: 2\n", EBB_BAD_CONFIG,
                 "needs evaluations");
    assert_fails(EBB_COMMAND_SFT,
                 BASE "validation_split: 0.1\neval_strategy: steps\nload_best_model_at_end: true\n",
                 EBB_BAD_CONFIG, "eval_strategy and save_strategy differ");
    assert_fails(
        EBB_COMMAND_SFT,
        BASE "validation_split: 0.1\n"
             "eval_strategy: steps\n"
             "eval_steps: 10\n"
             "save_strategy: steps\n"
             "save_steps: 15\n"
             "load_best_model_at_end: true\n",
        EBB_BAD_CONFIG, "try:   save_steps: 20");
    assert_fails(EBB_COMMAND_SFT, BASE "overwrite_output_dir: true\nresume_from_checkpoint: true\n",
                 EBB_BAD_CONFIG, "would remove the checkpoint");
    assert_fails(EBB_COMMAND_SFT, BASE "datasets: [e]\n", EBB_BAD_CONFIG,
                 "contradicts dataset_name");
    assert_fails(EBB_COMMAND_SFT, BASE "assistant_only_loss: false\nlast_turn_only_loss: true\n",
                 EBB_BAD_CONFIG, "contradicts assistant_only_loss: false");
    if (!ebb_backend_is_there(EBB_BACKEND_CUDA, NULL, 0))
        assert_fails(EBB_COMMAND_SFT, BASE "device: cuda\n",
                     ebb_backend_is_built(EBB_BACKEND_CUDA) ? EBB_DEVICE : EBB_UNSUPPORTED,
                     "device: cuda is not to be had");
    static const char *const without_effect[] = {
        "offload_params: cpu\nuse_peft: true\n",    "offload_optimizer: cpu\n",
        "memory_budget: 1GiB\noffload_params: cpu\n",
        "memory_budget: 1GiB\noffload_optimizer: cpu\nuse_peft: true\n",
    };
    for (size_t i = 0; i < sizeof without_effect / sizeof without_effect[0]; i++) {
        char text[400];
        snprintf(text, sizeof text, "%s%s", BASE, without_effect[i]);
        assert_fails(EBB_COMMAND_SFT, text, EBB_BAD_CONFIG, "has no effect");
    }
    assert_works(EBB_COMMAND_SFT, BASE "memory_budget: 1GiB\noffload_optimizer: cpu\n");
    assert_works(EBB_COMMAND_SFT,
                 BASE "memory_budget: 1GiB\noffload_params: true\nuse_peft: true\n");
}

static void offloading_has_the_rules_of_the_spelling(void **state)
{
    (void)state;
    assert_fails(EBB_COMMAND_SFT, BASE "memory_budget: 1GiB\nenable_activation_offloading: true\n",
                 EBB_BAD_CONFIG,
                 "enable_activation_offloading should only be True when "
                 "enable_activation_checkpointing is True");
    assert_fails(EBB_COMMAND_SFT,
                 BASE "enable_activation_offloading: true\nenable_activation_checkpointing: true\n",
                 EBB_BAD_CONFIG,
                 "enable_activation_offloading should only be True when training on CUDA or XPU");
    assert_fails(EBB_COMMAND_SFT, BASE "activation_offloading: true\n", EBB_BAD_CONFIG,
                 "needs memory_budget");
    assert_fails(EBB_COMMAND_SFT, BASE "activations: {x: host}\n", EBB_BAD_CONFIG,
                 "needs memory_budget");
    assert_works(EBB_COMMAND_SFT, BASE "memory_budget: 50%\n"
                                       "enable_activation_offloading: true\n"
                                       "enable_activation_checkpointing: true\n");
    assert_works(
        EBB_COMMAND_SFT,
        BASE "memory_budget: 1GiB\nactivation_offloading: true\ngradient_checkpointing: false\n");
    assert_works(EBB_COMMAND_SFT, BASE "enable_activation_offloading: false\n");
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(read_text(&f, BASE "memory_budget: 1GiB\n"
                                        "enable_activation_checkpointing: true\n"
                                        "enable_activation_offloading: false\n"),
                     EBB_OK);
    assert_contains(
        f.log,
        "Hint: enable_activation_checkpointing is True, but enable_activation_offloading isn't.");
    end(&f);
}

static void parse_activations(const char *text, enum ebb_status status, const char *part,
                              struct ebb_activation_rule rules[EBB_ACTIVATION_RULES],
                              int64_t *count)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_yaml *tree = NULL;
    assert_int_equal(ebb_yaml_parse(ctx, "conf.yaml", text, strlen(text), &tree), EBB_OK);
    assert_int_equal(ebb_activations_parse(ctx, "conf.yaml", tree, rules, count), status);
    if (part) assert_contains(ebb_error_text(ctx), part);
    ebb_yaml_free(ctx, tree);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
}

static void activations_become_rules(void **state)
{
    (void)state;
    struct ebb_activation_rule rules[EBB_ACTIVATION_RULES];
    int64_t count = 0;
    parse_activations("{x: host, o: keep}", EBB_OK, NULL, rules, &count);
    assert_int_equal(count, 2);
    assert_string_equal(rules[0].slot, "x");
    assert_int_equal(rules[0].policy, EBB_POLICY_HOST);
    assert_int_equal(rules[1].policy, EBB_POLICY_KEEP);
    assert_int_equal(rules[0].last, -1);
    parse_activations("[{layers: 0-11, every: 4, x: host, o: keep}, {layers: 12, x: keep}, "
                      "{layers: 13-, gate_up: recompute}]",
                      EBB_OK, NULL, rules, &count);
    assert_int_equal(count, 4);
    assert_int_equal(rules[0].every, 4);
    assert_int_equal(rules[1].every, 0); /* 'every' is about x */
    assert_int_equal(rules[1].last, 11);
    assert_int_equal(rules[2].first, 12);
    assert_int_equal(rules[2].last, 12);
    assert_int_equal(rules[3].last, -1);
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"{x: away}", "'away' is no policy of slot 'x'"},
        {"{x: [host]}", "a slot wants keep, host, host_half or recompute"},
        {"{layers: 0-1, x: host}", "belongs into a list"},
        {"[{x: host}]", "needs layers"},
        {"[{layers: a-b, x: host}]", "layers wants"},
        {"[{layers: 5-2, x: host}]", "layers wants"},
        {"[{layers: 0-3, x: host}, {layers: 3-, x: keep}]", "must ascend and not overlap"},
        {"[{layers: 4-, x: host}, {layers: 9-, x: keep}]", "must ascend and not overlap"},
        {"[{layers: 0, x: host}, {layers: 1, x: host}, {layers: 2, x: host}, {layers: 3, x: "
         "host}, {layers: 4, x: host}]",
         "at most four ranges"},
        {"{every: 2, o: host}", "every has no effect without x"},
        {"{every: 0, x: host}", "every wants a whole number"},
        {"{}", "names no slot"},
        {"[]", "names no slot"},
        {"{a_slot_with_a_very_long_name: host}", "no slot has the name"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        parse_activations(bad[i].text, EBB_BAD_CONFIG, bad[i].part, rules, &count);
}

/* ---- ready configurations, JSON, memory ------------------------------------------------------ */

static void ready_configurations_are_valid(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    char **names = NULL;
    size_t count = 0;
    int seen = 0;
    assert_int_equal(ebb_dir_list(ctx, EBB_SOURCE_DIR "/configs", &names, &count), EBB_OK);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(names[i]);
        if (bytes < 5 || strcmp(names[i] + bytes - 5, ".yaml") != 0) continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/configs/%s", EBB_SOURCE_DIR, names[i]);
        bool kd = strncmp(names[i], "kd-", 3) == 0, dpo = strncmp(names[i], "dpo-", 4) == 0;
        const enum ebb_command commands[] = {kd    ? EBB_COMMAND_KD
                                             : dpo ? EBB_COMMAND_DPO
                                                   : EBB_COMMAND_SFT,
                                             EBB_COMMAND_PLAN, EBB_COMMAND_EVAL};
        for (int k = 0; k < 3; k++) {
            struct fixture f;
            begin(&f, commands[k]);
            /* Those of large models leave their data to the command line. */
            if (kd || dpo)
                assert_int_equal(ebb_options_set(f.options, "dataset_name", "d.jsonl"), EBB_OK);
            if (ebb_options_file(f.options, path) != EBB_OK ||
                ebb_options_check(f.options) != EBB_OK)
                fail_msg("%s: %s", names[i], ebb_error_text(f.ctx));
            end(&f);
        }
        seen++;
    }
    assert_true(seen >= 3);
    ebb_dir_list_free(ctx, names, count);
    ebb_ctx_free(ctx);
}

static void the_configuration_as_json_has_every_key_of_the_command(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, EBB_COMMAND_SFT);
    assert_int_equal(
        read_text(
            &f, BASE
            "memory_budget: 50%\nactivations: {x: host}\nuse_peft: true\nlearning_rate: 1e-3\n"),
        EBB_OK);
    json_t *json = ebb_options_json(f.options);
    assert_non_null(json);
    size_t rows, keys = 0;
    const struct ebb_option *table = ebb_option_table(&rows);
    for (size_t i = 0; i < rows; i++) keys += (table[i].commands & 1u << EBB_COMMAND_SFT) != 0;
    assert_int_equal(json_object_size(json), keys);
    assert_string_equal(json_string_value(json_object_get(json, "memory_budget")), "50%");
    assert_string_equal(json_string_value(json_object_get(json, "max_length")), "auto");
    assert_string_equal(json_string_value(json_object_get(json, "optim")), "adamw");
    assert_float_equal(json_real_value(json_object_get(json, "learning_rate")), 1e-3, 0);
    assert_true(json_is_true(json_object_get(json, "use_peft")));
    assert_string_equal(json_string_value(
                            json_object_get(json_object_get(json, "activations"), "x")),
                        "host");
    json_decref(json);
    end(&f);
}

static void running_out_of_memory_leaves_nothing_behind(void **state)
{
    (void)state;
    const char *text = BASE "use_peft: true\n"
                            "lora_target_modules: [q_proj, v_proj]\n"
                            "activations: {x: keep}\n"
                            "chat_template_kwargs: {a: 1}\n"
                            "lernaing: 1\n";
    for (int64_t nth = 1; nth < 1000; nth++) {
        struct fixture f;
        memset(&f, 0, sizeof f);
        f.ctx = ebb_ctx_create();
        ebb_ctx_set_log(f.ctx, keep_log, &f);
        ebb_mem_fail_nth(f.ctx, nth, true);
        enum ebb_status status = ebb_options_create(f.ctx, EBB_COMMAND_SFT, &f.config, &f.options);
        if (status == EBB_OK) status = read_text(&f, text);
        ebb_mem_fail_nth(f.ctx, 0, false);
        end(&f);
        if (status == EBB_BAD_CONFIG) return; /* the unknown key: nothing failed on the way */
        assert_int_equal(status, EBB_NO_MEMORY);
    }
    fail_msg("never got through");
}

static void texts_are_one_or_a_list_of_them(void **state)
{
    static const char *const bad[] = {"stop: []\n", "stop: \"\"\n", "stop: [a, \"\"]\n",
                                      "stop: [[a]]\n", "stop: [{a: b}]\n"};
    struct fixture f;
    (void)state;
    begin(&f, EBB_COMMAND_GENERATE);
    assert_null(f.config.stop);
    assert_int_equal(read_text(&f, "stop: [\"a, b\", \"\\n\", 5]\n"), EBB_OK);
    assert_int_equal(f.config.stop->count, 3);
    assert_string_equal(f.config.stop->items[0].text, "a, b");
    assert_string_equal(f.config.stop->items[1].text, "\n");
    json_t *json = ebb_options_json(f.options);
    const json_t *list = json_object_get(json, "stop");
    assert_string_equal(json_string_value(json_array_get(list, 2)), "5");
    json_decref(json);
    assert_int_equal(ebb_options_set(f.options, "stop", "a: [b"), EBB_OK); /* as it stands */
    assert_int_equal(f.config.stop->kind, EBB_YAML_SCALAR);
    assert_string_equal(f.config.stop->text, "a: [b");
    assert_int_equal(ebb_options_set(f.options, "stop", "[\"x\", y]"), EBB_OK);
    assert_int_equal(f.config.stop->count, 2);
    assert_int_equal(ebb_options_set(f.options, "stop", "[]"), EBB_BAD_CONFIG);
    ebb_error_clear(f.ctx);
    assert_int_equal(f.config.stop->count, 2); /* what was there stays */
    assert_int_equal(ebb_options_set(f.options, "stop", "[broken"), EBB_BAD_CONFIG);
    ebb_error_clear(f.ctx);
    assert_int_equal(ebb_options_set(f.options, "stop", "null"), EBB_OK);
    assert_null(f.config.stop);
    end(&f);
    begin(&f, EBB_COMMAND_CHAT);
    assert_int_equal(read_text(&f, "stop: \"User:\"\n"), EBB_OK);
    assert_string_equal(f.config.stop->text, "User:");
    assert_int_equal(f.config.max_new_tokens, EBB_AUTO_INT);
    end(&f);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(EBB_COMMAND_CHAT, bad[i], EBB_BAD_CONFIG, "'stop' wants a text, or a list");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_aliases_are_unique),
        cmocka_unit_test(every_row_says_what_it_does_in_full_sentences),
        cmocka_unit_test(fields_do_not_overlap_and_fill_the_struct),
        cmocka_unit_test(defaults_read_as_values_in_bounds),
        cmocka_unit_test(bounds_are_kept),
        cmocka_unit_test(every_choice_and_its_other_spellings_are_taken),
        cmocka_unit_test(translated_spellings_name_a_row_and_a_value_it_takes),
        cmocka_unit_test(every_key_of_a_project_is_in_a_table),
        cmocka_unit_test(values_remember_where_they_were_set),
        cmocka_unit_test(null_means_the_default),
        cmocka_unit_test(nested_mappings_of_torchtune_are_dotted_keys),
        cmocka_unit_test(a_distillation_of_torchtune_means_the_same),
        cmocka_unit_test(a_distillation_of_trl_means_the_same_or_stops),
        cmocka_unit_test(recipe_in_a_file_may_name_the_command),
        cmocka_unit_test(modules_of_torchtune_stop_and_name_the_key),
        cmocka_unit_test(lists_of_names_are_taken_as_lists_and_as_text),
        cmocka_unit_test(sizes_and_shares_are_told_apart),
        cmocka_unit_test(a_training_file_serves_evaluation_and_says_what_it_leaves),
        cmocka_unit_test(errors_name_file_line_column_and_the_nearest_key),
        cmocka_unit_test(keys_of_other_projects_are_explained_or_refused),
        cmocka_unit_test(report_to_takes_known_names_and_refuses_others),
        cmocka_unit_test(report_to_says_what_ebb_leaves_to_others),
        cmocka_unit_test(configurations_of_other_projects_are_understood),
        cmocka_unit_test(arguments_come_in_every_usual_form),
        cmocka_unit_test(arguments_go_before_the_file_wherever_it_stands),
        cmocka_unit_test(an_argument_that_silences_a_key_of_the_file_only_says_so),
        cmocka_unit_test(bad_arguments_are_refused_by_name),
        cmocka_unit_test(a_key_without_effect_is_an_error),
        cmocka_unit_test(a_contradiction_is_an_error),
        cmocka_unit_test(offloading_has_the_rules_of_the_spelling),
        cmocka_unit_test(activations_become_rules),
        cmocka_unit_test(ready_configurations_are_valid),
        cmocka_unit_test(the_configuration_as_json_has_every_key_of_the_command),
        cmocka_unit_test(running_out_of_memory_leaves_nothing_behind),
        cmocka_unit_test(texts_are_one_or_a_list_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
