/* The words of `ebb bench`: sweeps, modes, and what modes make of the keys.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "recipe/bench_sweep.h"

#define GIB (INT64_C(1) << 30)

struct fixture {
    struct ebb_ctx *ctx;
    struct ebb_config config;
    struct ebb_options *options;
};

static void ignore_log(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

static void begin(struct fixture *f, const char *text)
{
    f->ctx = ebb_ctx_create();
    ebb_ctx_set_log(f->ctx, ignore_log, NULL);
    assert_int_equal(ebb_options_create(f->ctx, EBB_COMMAND_BENCH, &f->config, &f->options),
                     EBB_OK);
    if (ebb_options_text(f->options, "conf.yaml", text) != EBB_OK)
        fail_msg("%s", ebb_error_text(f->ctx));
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

/* ---- sweeps ---------------------------------------------------------------------------------- */

static void assert_sweep(const char *text, enum ebb_results_kind kind, const int64_t *values,
                         int count)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_bench_sweep sweep;
    if (ebb_bench_sweep_parse(ctx, text, "here", &sweep) != EBB_OK)
        fail_msg("%s", ebb_error_text(ctx));
    assert_int_equal(sweep.kind, kind);
    assert_int_equal(sweep.count, count);
    for (int i = 0; i < count; i++) assert_int_equal(sweep.values[i], values[i]);
    ebb_ctx_free(ctx);
}

static void lengths_double_step_or_are_listed(void **state)
{
    (void)state;
    assert_sweep("length=1k:8k:x2", EBB_RESULTS_OF_LENGTHS,
                 (const int64_t[]){1024, 2048, 4096, 8192}, 4);
    assert_sweep("length=1k:4k:+1k", EBB_RESULTS_OF_LENGTHS,
                 (const int64_t[]){1024, 2048, 3072, 4096}, 4);
    assert_sweep("length=9k, 1k,3000", EBB_RESULTS_OF_LENGTHS, (const int64_t[]){1024, 3000, 9216},
                 3);
    assert_sweep("length=128", EBB_RESULTS_OF_LENGTHS, (const int64_t[]){128}, 1);
    /* The last value is a bound; ranges and values may stand side by side. */
    assert_sweep("length=100:300:x1.5,7,1m", EBB_RESULTS_OF_LENGTHS,
                 (const int64_t[]){7, 100, 150, 225, 1048576}, 5);
    assert_sweep("length=1.5k", EBB_RESULTS_OF_LENGTHS, (const int64_t[]){1536}, 1);
    assert_sweep("length=64:64:x2", EBB_RESULTS_OF_LENGTHS, (const int64_t[]){64}, 1);
}

static void budgets_are_sizes_from_the_largest_down(void **state)
{
    (void)state;
    assert_sweep("budget=6GiB,8GiB", EBB_RESULTS_OF_BUDGETS, (const int64_t[]){8 * GIB, 6 * GIB},
                 2);
    assert_sweep("budget=5GiB:25GiB:x2", EBB_RESULTS_OF_BUDGETS,
                 (const int64_t[]){20 * GIB, 10 * GIB, 5 * GIB}, 3);
    assert_sweep("budget=1GiB:2GiB:+512MiB", EBB_RESULTS_OF_BUDGETS,
                 (const int64_t[]){2 * GIB, GIB + GIB / 2, GIB}, 3);
}

static void what_is_no_sweep_says_why(void **state)
{
    static const char *const cases[][2] = {
        {"memory", "it begins with length= or budget="},
        {"lengths=1k", "it begins with length= or budget="},
        {"=1k", "it begins with length= or budget="},
        {"length=", "it has no values"},
        {"length=,", "'' is no length"},
        {"length=1k:8k", "a range is FIRST:LAST:STEP"},
        {"length=1k:8k:x2:x2", "a range is FIRST:LAST:STEP"},
        {"length=1k:8k:2", "'2' is no step"},
        {"length=1k:8k:x1", "'x1' is no step"},
        {"length=1k:8k:x", "'x' is no step"},
        {"length=8k:1k:x2", "the last value is below the first"},
        {"length=1", "'1' is out of range: wanted 2 to"},
        {"length=1.0001k", "'1.0001k' is no length"},
        {"length=2:2:+0", "'0' is out of range"},
        {"length=1Q", "'1Q' is no length in tokens"},
        {"length=9999999m", "'9999999m' is out of range"},
        {"length=1e300", "'1e300' is no length"},
        {"length=1k,1024", "1024 is there twice"},
        {"length=2:10k:+2", "more than 64 values"},
        {"length=2:100000:x1.00001", "more than 64 values"},
        {"budget=1k", "'1k' is out of range: wanted 64KiB"},
        {"budget=80%", "'80%' is no size"},
        {"length=11111111111111111111111111111111111111111111111111111111111111111111", "too long"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_ctx *ctx = ebb_ctx_create();
        struct ebb_bench_sweep sweep;
        if (ebb_bench_sweep_parse(ctx, cases[i][0], "here", &sweep) != EBB_BAD_CONFIG)
            fail_msg("'%s' is taken for a sweep", cases[i][0]);
        assert_contains(ebb_error_text(ctx), cases[i][1]);
        assert_contains(ebb_error_text(ctx), "where: here");
        ebb_ctx_free(ctx);
    }
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void assert_modes(const char *text, bool moves, const char *const *names, int count)
{
    struct fixture f;
    struct ebb_bench_modes modes;
    begin(&f, text);
    if (ebb_bench_modes_parse(f.ctx, f.options, &f.config, moves, &modes) != EBB_OK)
        fail_msg("%s", ebb_error_text(f.ctx));
    assert_int_equal(modes.count, count);
    for (int i = 0; i < count; i++) {
        char name[128];
        assert_string_equal(ebb_bench_mode_text(&modes.items[i], name, sizeof name), names[i]);
    }
    ebb_bench_modes_free(f.ctx, &modes);
    end(&f);
}

static void modes_are_all_or_those_named(void **state)
{
    (void)state;
    assert_modes("steps: 2\n", true,
                 (const char *const[]){"none", "offload", "checkpoint", "checkpoint+offload",
                                       "plan"},
                 5);
    assert_modes("steps: 2\n", false, (const char *const[]){"none", "checkpoint", "plan"}, 3);
    assert_modes("modes: plan, offload\n", true, (const char *const[]){"plan", "offload"}, 2);
    assert_modes("modes: [none, 'activations={x: host, o: keep}']\n", true,
                 (const char *const[]){"none", "activations={x: host, o: keep}"}, 2);
    assert_modes("modes: none,plan\nbudgets: 8GiB,1.5GiB\n", true,
                 (const char *const[]){"none", "plan within 8 GiB", "plan within 1.5 GiB"}, 3);
}

static void what_is_no_mode_says_why(void **state)
{
    static const char *const cases[][2] = {
        {"modes: ofload\n", "there is no mode 'ofload'"},
        {"modes: ofload\n", "try:   offload; there are none"},
        {"modes: none,none\n", "'modes' has none twice"},
        {"modes: ''\n", "'modes' names no mode"},
        {"modes: none\nbudgets: 8GiB\n", "'budgets' has no effect without the mode plan"},
        {"budgets: 8\n", "'8' is no memory budget"},
        {"budgets: 80%\n", "'80%' is no memory budget"},
        {"budgets: 8GiB,8GiB\n", "'budgets' has 8GiB twice"},
        {"budgets: ''\n", "'budgets' names no size"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        struct ebb_bench_modes modes;
        begin(&f, cases[i][0]);
        assert_int_equal(ebb_bench_modes_parse(f.ctx, f.options, &f.config, true, &modes),
                         EBB_BAD_CONFIG);
        assert_contains(ebb_error_text(f.ctx), cases[i][1]);
        assert_contains(ebb_error_text(f.ctx), "where: conf.yaml:");
        ebb_bench_modes_free(f.ctx, &modes);
        end(&f);
    }
}

static void set_mode(struct fixture *f, const char *name, int64_t budget)
{
    const struct ebb_bench_mode mode = {(char *)name, budget};
    if (ebb_bench_mode_set(f->options, &mode) != EBB_OK) fail_msg("%s", ebb_error_text(f->ctx));
}

/* Whatever a training configuration says of them. */
static void a_mode_sets_what_becomes_of_activations(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, "gradient_checkpointing: true\nactivation_offloading: true\nmemory_budget: 1GiB\n");
    set_mode(&f, "none", 0);
    assert_int_equal(f.config.gradient_checkpointing, EBB_FALSE);
    assert_int_equal(f.config.activation_offloading, EBB_FALSE);
    assert_int_equal(f.config.offload_params, EBB_TIER_KEY_FALSE);
    assert_int_equal(f.config.offload_optimizer, EBB_TIER_KEY_FALSE);
    set_mode(&f, "checkpoint+offload", 0);
    assert_int_equal(f.config.gradient_checkpointing, EBB_TRUE);
    assert_int_equal(f.config.activation_offloading, EBB_TRUE);
    set_mode(&f, "offload", 0);
    assert_int_equal(f.config.gradient_checkpointing, EBB_FALSE);
    assert_int_equal(f.config.activation_offloading, EBB_TRUE);
    set_mode(&f, "activations={x: host}", 0);
    assert_int_equal(f.config.gradient_checkpointing, EBB_AUTO);
    assert_non_null(f.config.activations);
    set_mode(&f, "checkpoint", 0);
    assert_int_equal(f.config.gradient_checkpointing, EBB_TRUE);
    assert_int_equal(f.config.activation_offloading, EBB_FALSE);
    assert_null(f.config.activations);
    assert_int_equal(f.config.memory_budget.bytes, GIB);
    end(&f);
}

static void the_plan_decides_everything_within_its_budget(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, "activations: {x: host}\nmemory_budget: 1GiB\n");
    set_mode(&f, "plan", 2 * GIB);
    assert_null(f.config.activations);
    assert_int_equal(f.config.gradient_checkpointing, EBB_AUTO);
    assert_int_equal(f.config.activation_offloading, EBB_AUTO);
    assert_int_equal(f.config.offload_params, EBB_TIER_KEY_AUTO);
    assert_int_equal(f.config.memory_budget.bytes, 2 * GIB);
    end(&f);
}

static void weights_leave_the_device_where_a_key_says_so(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, "use_peft: true\noffload_params: cpu\nmemory_budget: 1GiB\n");
    set_mode(&f, "checkpoint", 0);
    assert_int_equal(f.config.offload_params, EBB_TIER_KEY_CPU);
    assert_int_equal(f.config.offload_optimizer, EBB_TIER_KEY_FALSE);
    end(&f);
}

/* It would be a key without effect in a mode that moves nothing. */
static void streams_are_no_matter_where_nothing_moves(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, "model_name_or_path: m\nsweep: length=64\nmemory_budget: 1GiB\n"
              "activation_offloading_use_streams: false\ndevice: cpu\n");
    set_mode(&f, "offload", 0);
    assert_int_equal(ebb_options_check(f.options), EBB_OK);
    assert_false(f.config.activation_offloading_use_streams);
    set_mode(&f, "checkpoint", 0);
    if (ebb_options_check(f.options) != EBB_OK) fail_msg("%s", ebb_error_text(f.ctx));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_double_step_or_are_listed),
        cmocka_unit_test(budgets_are_sizes_from_the_largest_down),
        cmocka_unit_test(what_is_no_sweep_says_why),
        cmocka_unit_test(modes_are_all_or_those_named),
        cmocka_unit_test(what_is_no_mode_says_why),
        cmocka_unit_test(a_mode_sets_what_becomes_of_activations),
        cmocka_unit_test(the_plan_decides_everything_within_its_budget),
        cmocka_unit_test(weights_leave_the_device_where_a_key_says_so),
        cmocka_unit_test(streams_are_no_matter_where_nothing_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
