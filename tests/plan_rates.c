/* Rates: costs fitted to times, rates as JSON, GPUs by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/rates.h"

static struct ebb_ctx *ctx;

static int make_ctx(void **state)
{
    (void)state;
    ctx = ebb_ctx_create();
    return ctx == NULL;
}

static int free_ctx(void **state)
{
    (void)state;
    int64_t left = ebb_mem_bytes_now(ctx);
    ebb_ctx_free(ctx);
    return left == 0 ? 0 : -1;
}

/* ---- the fit ---- */

enum { SAMPLES = 24 };

static double noise_of(uint32_t i) /* between -1 and 1, in no order */
{
    uint32_t words[4];
    ebb_philox(7, i, words);
    return 2 * (double)ebb_uniform(words[0]) - 1;
}

/* Ops of many sizes that cost exactly this, or nearly. */
static void make_samples(enum ebb_cost_class which, const struct ebb_cost *cost, double noise,
                         struct ebb_cost_sample samples[SAMPLES])
{
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const double count = 1 + i % 5, bytes = 1e4 * pow(2, i % 7), flops = 1e6 * pow(3, i / 3);
        const struct ebb_op_work work = {.bytes = bytes, .flops = flops};
        samples[i] = (struct ebb_cost_sample){.which = which,
                                              .count = count,
                                              .seconds = count * ebb_cost_seconds(cost, &work) *
                                                         (1 + noise * noise_of(i)),
                                              .flops = count * flops,
                                              .bytes = count * bytes};
    }
}

static void expect_near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s: %g, want %g within %g", what, got, want, tolerance);
}

static void expect_cost(const struct ebb_cost *got, const struct ebb_cost *want, double tolerance)
{
    expect_near("call", got->call, want->call, tolerance);
    expect_near("byte", got->byte, want->byte, tolerance);
    expect_near("flop", got->flop, want->flop, tolerance);
}

static void costs_that_were_put_in_come_out(void **state)
{
    (void)state;
    const struct ebb_cost cost = {2e-5, 1e-10, 1e-12};
    struct ebb_cost_sample samples[SAMPLES];
    struct ebb_rates rates = {.costs = {[EBB_COST_LOSS] = {1, 2, 3}}};
    make_samples(EBB_COST_PRODUCT, &cost, 0, samples);
    ebb_rates_fit(samples, SAMPLES, &rates);
    expect_cost(&rates.costs[EBB_COST_PRODUCT], &cost, 1e-6);
    /* A class without samples stays as it was. */
    assert_true(rates.costs[EBB_COST_LOSS].flop == 3);
    assert_false(ebb_cost_known(&rates.costs[EBB_COST_THIN]));
}

static void noise_does_not_carry_costs_away(void **state)
{
    (void)state;
    const struct ebb_cost cost = {2e-5, 1e-10, 1e-12};
    struct ebb_cost_sample samples[SAMPLES];
    struct ebb_rates rates = {.measured = true};
    make_samples(EBB_COST_PRODUCT, &cost, 0.05, samples);
    ebb_rates_fit(samples, SAMPLES, &rates);
    expect_cost(&rates.costs[EBB_COST_PRODUCT], &cost, 0.3);
    for (int i = 0; i < SAMPLES; i++) {
        const struct ebb_op_work each = {.bytes = samples[i].bytes / samples[i].count,
                                         .flops = samples[i].flops / samples[i].count};
        expect_near("an op", ebb_cost_seconds(&rates.costs[EBB_COST_PRODUCT], &each),
                    samples[i].seconds / samples[i].count, 0.15);
    }
}

static void terms_that_cost_nothing_are_left_out(void **state)
{
    (void)state;
    static const struct ebb_cost costs[] = {
        {2e-5, 0, 0}, {0, 1e-10, 0}, {0, 0, 1e-12}, {2e-5, 1e-10, 0}, {0, 1e-10, 1e-12}};
    struct ebb_cost_sample samples[SAMPLES];
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        struct ebb_rates rates = {.measured = true};
        make_samples(EBB_COST_MEMORY, &costs[i], 0, samples);
        ebb_rates_fit(samples, SAMPLES, &rates);
        const struct ebb_cost *got = &rates.costs[EBB_COST_MEMORY];
        expect_near("call", got->call, costs[i].call, costs[i].call > 0 ? 1e-6 : 0);
        expect_near("byte", got->byte + 1e-10, costs[i].byte + 1e-10, 1e-6);
        expect_near("flop", got->flop + 1e-12, costs[i].flop + 1e-12, 1e-6);
    }
}

/* What is left of an exact fit is rounding, on either side of zero. */
static void an_exact_fit_gives_way_to_no_other(void **state)
{
    (void)state;
    struct ebb_cost_sample samples[SAMPLES];
    for (int i = 0; i < 200; i++) {
        const double flop = 1e-12 * (1 + 0.37 * i);
        const struct ebb_cost cost = {0, 0, flop};
        struct ebb_rates rates = {.measured = true};
        make_samples(EBB_COST_PRODUCT, &cost, 0, samples);
        ebb_rates_fit(samples, SAMPLES, &rates);
        expect_near("flop", rates.costs[EBB_COST_PRODUCT].flop, flop, 1e-6);
        expect_near("call", rates.costs[EBB_COST_PRODUCT].call, 0, 0);
    }
}

static void no_cost_is_below_zero(void **state)
{
    (void)state;
    /* More bytes take less time: no line through these has a cost a byte that makes sense. */
    struct ebb_cost_sample samples[4];
    struct ebb_rates rates = {.measured = true};
    for (int i = 0; i < 4; i++)
        samples[i] = (struct ebb_cost_sample){.which = EBB_COST_COPY_IN,
                                              .count = 1,
                                              .seconds = 1 - 0.2 * i,
                                              .bytes = 1e6 * (i + 1)};
    ebb_rates_fit(samples, 4, &rates);
    const struct ebb_cost *cost = &rates.costs[EBB_COST_COPY_IN];
    assert_true(cost->call > 0.4 && cost->call < 1 && cost->byte == 0 && cost->flop == 0);
}

static void of_one_size_the_work_is_what_costs(void **state)
{
    (void)state;
    struct ebb_rates rates = {.measured = true};
    const struct ebb_cost_sample samples[] = {
        {.which = EBB_COST_PRODUCT, .count = 2, .seconds = 4, .flops = 8e9, .bytes = 2e6},
        {.which = EBB_COST_COPY_OUT, .count = 2, .seconds = 4, .bytes = 2e6},
        {.which = EBB_COST_GAP, .count = 1000, .seconds = 0.002},
        {.which = EBB_COST_LOSS, .count = 0, .seconds = 1, .bytes = 1}, /* never ran */
    };
    ebb_rates_fit(samples, 4, &rates);
    const struct ebb_op_work work = {.bytes = 1e6, .flops = 4e9};
    expect_near("a product", ebb_cost_seconds(&rates.costs[EBB_COST_PRODUCT], &work), 2, 1e-9);
    assert_true(rates.costs[EBB_COST_PRODUCT].call == 0);
    expect_near("a copy", rates.costs[EBB_COST_COPY_OUT].byte, 2e-6, 1e-9);
    assert_true(rates.costs[EBB_COST_COPY_OUT].call == 0);
    expect_near("a gap", rates.costs[EBB_COST_GAP].call, 2e-6, 1e-9);
    assert_false(ebb_cost_known(&rates.costs[EBB_COST_LOSS]));
}

/* ---- JSON ---- */

static void rates_come_back_from_json_as_they_were(void **state)
{
    (void)state;
    struct ebb_rates rates = {.device = "NVIDIA H200",
                              .versions = "Ebb 1.0, CUDA 13.0",
                              .threads = 6,
                              .storage = EBB_BF16,
                              .measured = true},
                     back;
    rates.costs[EBB_COST_PRODUCT] = (struct ebb_cost){1e-5, 1.0 / 3, 1e-15};
    rates.costs[EBB_COST_HOST] = (struct ebb_cost){2.5e-4, 0, 0};
    for (int i = 0; i < 2; i++) {
        json_t *json = ebb_rates_json(&rates);
        assert_non_null(json);
        assert_int_equal(json_object_size(json_object_get(json, "costs")), 2);
        assert_int_equal(ebb_rates_read(ctx, "here", json, &back), EBB_OK);
        assert_string_equal(back.device, rates.device);
        assert_string_equal(back.versions, rates.versions);
        assert_true(back.storage == rates.storage && back.measured == rates.measured);
        assert_int_equal(back.threads, rates.threads);
        assert_memory_equal(back.costs, rates.costs, sizeof rates.costs);
        json_decref(json);
        rates.storage = EBB_F32;
        rates.measured = false;
        rates.threads = 0;
    }
}

static void expect_refused(const char *text, const char *message)
{
    struct ebb_rates rates;
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    assert_int_equal(ebb_rates_read(ctx, "r.json", json, &rates), EBB_BAD_FILE);
    if (!strstr(ebb_error_text(ctx), message))
        fail_msg("'%s' does not say '%s'", ebb_error_text(ctx), message);
    ebb_error_clear(ctx);
    json_decref(json);
}

static void bad_json_is_told_where_and_why(void **state)
{
    (void)state;
#define HEAD "{\"device\": \"d\", \"versions\": \"v\", \"dtype\": \"bfloat16\", \"measured\": true"
    expect_refused("{}", "'device'");
    expect_refused("[]", "'device'");
    expect_refused(HEAD "}", "r.json: there is no object 'costs'");
    expect_refused(HEAD ", \"costs\": []}", "there is no object 'costs'");
    expect_refused(HEAD ", \"costs\": {\"loss\": {\"seconds_per_call\": 1}}}", "seconds_per_byte");
    expect_refused(HEAD ", \"costs\": {\"loss\": {\"seconds_per_call\": -1, "
                        "\"seconds_per_byte\": 0, \"seconds_per_flop\": 0}}}",
                   "'seconds_per_call' of 'loss' is -1, which is no time");
    expect_refused("{\"device\": \"d\", \"versions\": \"v\", \"dtype\": 4}", "'dtype'");
    expect_refused("{\"device\": \"d\", \"versions\": \"v\", \"dtype\": \"float8\", "
                   "\"measured\": true, \"costs\": {}}",
                   "r.json: 'dtype' is 'float8', neither bfloat16 nor float32");
    expect_refused(HEAD ", \"threads\": -1, \"costs\": {}}", "'threads' is -1");
#undef HEAD
}

/* A forecast of such a step would take no time, and its tokens a second have no end. */
static void costs_too_small_for_any_machine_are_refused(void **state)
{
    (void)state;
    static const char *const small[] = {"5e-324", "1e-300", "9.9e-19"};
    char text[300], message[100];
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        snprintf(text, sizeof text,
                 "{\"device\": \"d\", \"versions\": \"v\", \"dtype\": \"float32\", "
                 "\"measured\": true, \"costs\": {\"loss\": {\"seconds_per_call\": 0, "
                 "\"seconds_per_byte\": 0, \"seconds_per_flop\": %s}}}",
                 small[i]);
        snprintf(message, sizeof message, "'seconds_per_flop' of 'loss' is");
        expect_refused(text, message);
    }
}

/* What the fit makes can be kept: it has no costs that reading refuses. */
static void costs_too_small_come_out_of_no_fit(void **state)
{
    (void)state;
    const struct ebb_cost cost = {2e-5, 0, 1e-25};
    struct ebb_cost_sample samples[SAMPLES];
    struct ebb_rates rates = {.device = "d", .versions = "v", .measured = true}, back;
    make_samples(EBB_COST_PRODUCT, &cost, 0, samples);
    for (int i = 0; i < SAMPLES; i++) samples[i].flops *= 1e10; /* so that it shows in the times */
    for (int i = 0; i < SAMPLES; i++)
        samples[i].seconds = samples[i].count * cost.call + samples[i].flops * cost.flop;
    ebb_rates_fit(samples, SAMPLES, &rates);
    json_t *json = ebb_rates_json(&rates);
    assert_non_null(json);
    assert_int_equal(ebb_rates_read(ctx, "here", json, &back), EBB_OK);
    json_decref(json);
}

static void keys_of_classes_are_unique(void **state)
{
    (void)state;
    for (int i = 0; i < EBB_COST_COUNT; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(ebb_cost_key((enum ebb_cost_class)i),
                                    ebb_cost_key((enum ebb_cost_class)k));
}

/* ---- GPUs ---- */

static void gpus_are_found_as_people_and_drivers_name_them(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"H200", "H200"},
        {"NVIDIA H200", "H200"},
        {"h100", "H100"},
        {"NVIDIA H100 80GB HBM3", "H100"},
        {"NVIDIA A100-SXM4-80GB", "A100 80GB"},
        {"NVIDIA A100-SXM4-40GB", "A100 40GB"},
        {"NVIDIA A100-PCIE-40GB", "A100 40GB"},
        {"NVIDIA A100 80GB PCIe", "A100 80GB"},
        {"a100 80gb", "A100 80GB"},
        {"NVIDIA GeForce RTX 4090", "RTX 4090"},
        {"rtx4090", "RTX 4090"},
        {"4090", "RTX 4090"},
        {"NVIDIA GeForce RTX 3060", "RTX 3060 12GB"},
        {"NVIDIA GeForce RTX 5090", "RTX 5090"},
        {"NVIDIA L40S", "L40S"},
        {"NVIDIA L4", "L4"},
        {"NVIDIA B200", "B200"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct ebb_gpu *gpu = ebb_gpu_find(names[i][0]);
        if (!gpu) fail_msg("'%s' is not found", names[i][0]);
        assert_string_equal(gpu->name, names[i][1]);
    }
}

/* Another chip, or a slower one, under a name that begins the same. */
static void other_gpus_are_not_taken_for_them(void **state)
{
    (void)state;
    static const char *const names[] = {"",
                                        "NVIDIA",
                                        "RTX",
                                        "A100",
                                        "L",
                                        "NVIDIA L40",
                                        "NVIDIA A10",
                                        "H20",
                                        "H100 PCIe",
                                        "NVIDIA H100 NVL",
                                        "NVIDIA GH200 480GB",
                                        "Tesla V100",
                                        "NVIDIA GeForce RTX 4090 Laptop GPU",
                                        "NVIDIA GeForce RTX 4090 D",
                                        "AMD EPYC 7B13"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct ebb_gpu *gpu = ebb_gpu_find(names[i]);
        if (gpu) fail_msg("'%s' is taken for '%s'", names[i], gpu->name);
    }
}

static void data_sheets_make_rates_of_bfloat16_alone(void **state)
{
    (void)state;
    int64_t count;
    struct ebb_rates rates, fast;
    const struct ebb_gpu *gpus = ebb_gpus(&count);
    ebb_gpu_rates(ebb_gpu_find("H200"), EBB_BF16, &fast);
    for (int64_t i = 0; i < count; i++) {
        ebb_gpu_rates(&gpus[i], EBB_BF16, &rates);
        assert_false(rates.measured);
        assert_true(rates.costs[EBB_COST_PRODUCT].flop > 0);
        assert_true(rates.costs[EBB_COST_COPY_IN].byte >= fast.costs[EBB_COST_COPY_IN].byte);
        /* A thread of the host moves these bytes, whatever the GPU. Nothing says what pinning
         * takes. */
        assert_true(rates.costs[EBB_COST_BOUNCE_IN].byte == fast.costs[EBB_COST_BOUNCE_IN].byte);
        assert_true(rates.costs[EBB_COST_BOUNCE_OUT].byte > rates.costs[EBB_COST_COPY_OUT].byte);
        assert_false(ebb_cost_known(&rates.costs[EBB_COST_PIN]));
        ebb_gpu_rates(&gpus[i], EBB_F32, &rates);
        assert_false(ebb_cost_known(&rates.costs[EBB_COST_PRODUCT]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_that_were_put_in_come_out),
        cmocka_unit_test(noise_does_not_carry_costs_away),
        cmocka_unit_test(terms_that_cost_nothing_are_left_out),
        cmocka_unit_test(an_exact_fit_gives_way_to_no_other),
        cmocka_unit_test(no_cost_is_below_zero),
        cmocka_unit_test(of_one_size_the_work_is_what_costs),
        cmocka_unit_test_setup_teardown(rates_come_back_from_json_as_they_were, make_ctx, free_ctx),
        cmocka_unit_test_setup_teardown(bad_json_is_told_where_and_why, make_ctx, free_ctx),
        cmocka_unit_test_setup_teardown(costs_too_small_for_any_machine_are_refused, make_ctx,
                                        free_ctx),
        cmocka_unit_test_setup_teardown(costs_too_small_come_out_of_no_fit, make_ctx, free_ctx),
        cmocka_unit_test(keys_of_classes_are_unique),
        cmocka_unit_test(gpus_are_found_as_people_and_drivers_name_them),
        cmocka_unit_test(other_gpus_are_not_taken_for_them),
        cmocka_unit_test(data_sheets_make_rates_of_bfloat16_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
