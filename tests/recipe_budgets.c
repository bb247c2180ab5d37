/* Budgets that nobody names: what a run may take then.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "recipe/fit.h"
#include "recipe/machine.h"
#include "recipe/sft.h"
#include "train/metrics.h"

#define MIB (INT64_C(1) << 20)

static void ok(struct ebb_ctx *ctx, enum ebb_status status)
{
    if (status != EBB_OK) fail_msg("%s (%s)", ebb_error_text(ctx), ebb_error_where(ctx));
}

static void host_memory_is_a_share_of_what_is_free(void **state)
{
    (void)state;
    assert_int_equal(ebb_setup_host_share(8192 * MIB), 6144 * MIB);
    assert_int_equal(ebb_setup_host_share(100 * MIB), 75 * MIB);
    /* What fits without moves is not refused for want of a few rows. */
    assert_int_equal(ebb_setup_host_share(80 * MIB), 64 * MIB);
    assert_int_equal(ebb_setup_host_share(1), 64 * MIB);
}

static void free_memory_that_is_not_known_bounds_nothing(void **state)
{
    (void)state;
    assert_int_equal(ebb_setup_host_share(0), 0);
    assert_int_equal(ebb_setup_host_share(-1), 0);
}

static void a_resumed_run_has_the_budgets_that_it_had(void **state)
{
    (void)state;
    assert_int_equal(ebb_setup_resumed_budget(70 * MIB, 80 * MIB, 90 * MIB), 80 * MIB);
    assert_int_equal(ebb_setup_resumed_budget(90 * MIB, 80 * MIB, 0), 80 * MIB);
    /* Not where there is less now, nor where there was none. */
    assert_int_equal(ebb_setup_resumed_budget(50 * MIB, 80 * MIB, 60 * MIB), 50 * MIB);
    assert_int_equal(ebb_setup_resumed_budget(50 * MIB, 0, 60 * MIB), 50 * MIB);
}

static struct ebb_run_budgets read_budgets(struct ebb_ctx *ctx, const char *dir, const char *run)
{
    struct ebb_run_budgets budgets;
    char *path = ebb_path_join(ctx, dir, EBB_RUN_FILE), *checkpoint;
    checkpoint = ebb_path_join(ctx, dir, "checkpoint-2");
    ok(ctx, ebb_file_write(ctx, path, run, strlen(run)));
    ok(ctx, ebb_dir_create(ctx, checkpoint));
    ok(ctx, ebb_run_record_budgets(ctx, checkpoint, &budgets));
    ebb_mem_free(ctx, checkpoint);
    ebb_mem_free(ctx, path);
    return budgets;
}

/* Runs of earlier versions say nothing of what is pinned. */
static void budgets_of_a_run_are_read_from_its_record(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    char *dir;
    ok(ctx, ebb_dir_create_temp(ctx, &dir));
    struct ebb_run_budgets b = read_budgets(
        ctx, dir, "{\"plan\": {\"device_budget\": 5, \"host_budget\": 6, \"pinned_budget\": 7}}");
    assert_true(b.device == 5 && b.host == 6 && b.pinned == 7);
    b = read_budgets(ctx, dir, "{\"plan\": {\"device_budget\": 5, \"host_budget\": 6}}");
    assert_true(b.device == 5 && b.host == 6 && b.pinned == 0);
    b = read_budgets(
        ctx, dir, "{\"plan\": {\"device_budget\": 5, \"host_budget\": 6, \"pinned_budget\": -7}}");
    assert_true(b.device == 0 && b.host == 0 && b.pinned == 0);
    ok(ctx, ebb_dir_remove(ctx, dir));
    ebb_mem_free(ctx, dir);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
}

/* ---- of a plan ------------------------------------------------------------------------------- */

static const char model_text[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64, "
    "\"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"vocab_size\": 512, \"max_position_embeddings\": 128, "
    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"float32\"}";

/* Rates of one thread of this CPU, all alike: enough for a plan to be searched. */
static void keep_rates(struct ebb_ctx *ctx, const struct ebb_recipe_env *env)
{
    const struct ebb_machine machine = {.env = env,
                                        .backend = EBB_BACKEND_CPU,
                                        .storage = EBB_F32,
                                        .threads = 1};
    struct ebb_rates rates = {.measured = true};
    char *path;
    ok(ctx, ebb_machine_describe(ctx, &machine, &rates));
    for (int i = 0; i < EBB_COST_COUNT; i++) rates.costs[i] = (struct ebb_cost){1e-6, 1e-10, 1e-11};
    ok(ctx, ebb_machine_save_rates(ctx, &machine, &rates, &path));
    ebb_mem_free(ctx, path);
}

/* More device memory than any machine has: what is left of it for the host is not below zero. */
static void a_memory_budget_beyond_the_machine_leaves_the_host_its_share(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_config config;
    struct ebb_options *options;
    struct ebb_engine *engine;
    struct ebb_setup *setup = ebb_mem_alloc(ctx, sizeof *setup);
    char *dir, text[600];
    ok(ctx, ebb_dir_create_temp(ctx, &dir));
    const struct ebb_recipe_env env = {.stop_fd = -1, .cache_home = dir};
    char *path = ebb_path_join(ctx, dir, "config.json");
    ok(ctx, ebb_file_write(ctx, path, model_text, strlen(model_text)));
    keep_rates(ctx, &env);
    snprintf(text, sizeof text,
             "model_name_or_path: %s\nmax_length: 96\nuse_peft: true\ndevice: cpu\nthreads: 1\n"
             "memory_budget: 900000GiB\n",
             dir);
    ok(ctx, ebb_options_create(ctx, EBB_COMMAND_PLAN, &config, &options));
    ok(ctx, ebb_options_text(options, "conf.yaml", text));
    ok(ctx, ebb_options_check(options));
    ok(ctx, ebb_sft_plan(ctx, options, &config, &env, NULL, setup, &engine));
    assert_non_null(setup->request.rates);
    assert_true(setup->request.host_budget == 0 || setup->request.host_budget >= 64 * MIB);
    assert_int_equal(setup->request.pinned_budget, 0); /* a CPU's memory is not pinned */
    assert_true(setup->request.free_bytes[EBB_SPACE_DEVICE] > 0);
    assert_int_equal(setup->request.free_bytes[EBB_SPACE_DEVICE],
                     setup->request.free_bytes[EBB_SPACE_HOST]);
    ok(ctx, ebb_fit_check(setup, engine));
    ebb_engine_free(engine);
    ebb_setup_free(setup);
    ebb_options_free(options);
    ok(ctx, ebb_dir_remove(ctx, dir));
    ebb_mem_free(ctx, setup);
    ebb_mem_free(ctx, path);
    ebb_mem_free(ctx, dir);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_is_a_share_of_what_is_free),
        cmocka_unit_test(free_memory_that_is_not_known_bounds_nothing),
        cmocka_unit_test(a_resumed_run_has_the_budgets_that_it_had),
        cmocka_unit_test(budgets_of_a_run_are_read_from_its_record),
        cmocka_unit_test(a_memory_budget_beyond_the_machine_leaves_the_host_its_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
