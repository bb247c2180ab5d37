/* Forecasts of programs made by hand, whose times can be told by heart.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program_kit.h"

#include <math.h>

#include "plan/plan.h"

/* Every op takes OP, every copy out OUT and in IN, whatever its size; GAP before each op, HOST
 * around each run. */
static const double OP = 1, OUT = 2.5, IN = 3, GAP = 0.125, HOST = 0.25;

struct test {
    struct ebb_ctx *ctx;
    struct ebb_plan plan;
    struct ebb_rates rates;
    struct ebb_forecast_load load;
    struct ebb_forecast forecast;
    int32_t doc_starts[3];
};

static int open_test(void **state)
{
    static struct test test;
    struct test *t = &test;
    memset(t, 0, sizeof *t);
    t->ctx = ebb_ctx_create();
    snprintf(t->plan.request.numerics.backend, sizeof t->plan.request.numerics.backend, "cpu");
    t->plan.request.capacity =
        (struct ebb_capacity){.tokens = KIT_ROWS, .docs = 2, .doc_tokens = KIT_ROWS};
    t->rates.costs[EBB_COST_MEMORY].call = OP;
    t->rates.costs[EBB_COST_COPY_OUT].call = OUT;
    t->rates.costs[EBB_COST_COPY_IN].call = IN;
    t->rates.costs[EBB_COST_GAP].call = GAP;
    t->rates.costs[EBB_COST_HOST].call = HOST;
    t->doc_starts[1] = t->doc_starts[2] = KIT_ROWS;
    t->load = (struct ebb_forecast_load){.micro_batches = 1,
                                         .labels = KIT_ROWS,
                                         .docs = 1,
                                         .doc_starts = t->doc_starts};
    *state = t;
    return 0;
}

static int close_test(void **state)
{
    struct test *t = *state;
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++) ebb_program_free(t->plan.programs[i]);
    assert_string_equal(ebb_error_text(t->ctx), "");
    int64_t left = ebb_mem_bytes_now(t->ctx);
    ebb_ctx_free(t->ctx);
    return left == 0 ? 0 : -1;
}

static struct ebb_program *begin(struct test *t)
{
    struct ebb_program *program = kit_program(t->ctx, 3);
    t->plan.programs[EBB_PROGRAM_TRAIN] = program;
    return program;
}

static void expect(const char *what, double got, double want)
{
    if (fabs(got - want) > 1e-9) fail_msg("%s: %g s, want %g", what, got, want);
}

static void forecast(struct test *t, double want)
{
    double sum = 0;
    assert_int_equal(ebb_forecast_step(t->ctx, &t->plan, &t->rates, &t->load, &t->forecast),
                     EBB_OK);
    assert_true(t->forecast.known);
    expect("the step", t->forecast.seconds, want);
    for (int i = 0; i < EBB_PART_COUNT; i++) sum += t->forecast.parts[i].seconds;
    expect("all parts", sum, want);
}

static void expect_part(const struct test *t, enum ebb_step_part part, double seconds)
{
    expect(ebb_step_part_key(part), t->forecast.parts[part].seconds, seconds);
}

static void out_and_in(struct ebb_program *program, int32_t *host, int32_t *object)
{
    *host = kit_tensor(program, EBB_SPACE_HOST, KIT_BYTES);
    assert_int_equal(ebb_program_object(program, *host, object), EBB_OK);
}

static void ops_of_one_queue_follow_each_other(void **state)
{
    struct test *t = *state;
    struct ebb_program *program = begin(t);
    for (int i = 0; i < 3; i++) kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(i), i);
    kit_finish(program, false);
    forecast(t, HOST + 3 * (GAP + OP));
    expect_part(t, EBB_PART_MEMORY, 3 * OP);
    expect_part(t, EBB_PART_GAP, 3 * GAP);
    expect_part(t, EBB_PART_HOST, HOST);
    expect_part(t, EBB_PART_STALL, 0);
}

static void copies_run_beside_what_does_not_need_them(void **state)
{
    struct test *t = *state;
    int32_t host, object;
    struct ebb_program *program = begin(t);
    out_and_in(program, &host, &object);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 1);
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(0), kit_all(host), object, 1);
    for (int i = 0; i < 3; i++) kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(1), i);
    kit_finish(program, false);
    forecast(t, HOST + 4 * (GAP + OP));
    expect_part(t, EBB_PART_STALL, 0);
    expect_part(t, EBB_PART_COPY_OUT, 0);
    expect("beside", t->forecast.parts[EBB_PART_COPY_OUT].beside, OUT);
    assert_true(t->forecast.parts[EBB_PART_COPY_OUT].bytes == KIT_BYTES);
}

static void what_waits_for_a_copy_stalls(void **state)
{
    struct test *t = *state;
    int32_t host, object;
    struct ebb_program *program = begin(t);
    out_and_in(program, &host, &object);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 1);
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(0), kit_all(host), object, 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 2); /* the copy must have read it */
    kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, kit_all(1), kit_all(host), object, 0);
    kit_copy(program, EBB_QUEUE_COMPUTE, kit_all(1), kit_all(2));
    kit_finish(program, false);
    /* The copy in begins when the one out has ended, beside the second fill. */
    forecast(t, HOST + (GAP + OP) + OUT + IN + OP);
    expect_part(t, EBB_PART_STALL, (OUT - GAP) + (IN - OP - GAP));
    expect("beside", t->forecast.parts[EBB_PART_COPY_IN].beside, IN);
}

/* A host tensor of which nothing, half and all is pinned: what is not takes other times. */
static void what_is_not_pinned_takes_what_bounced_copies_do(void **state)
{
    static const double CALL = 20, BYTE = 0.5;
    static const int64_t none = 0, half = KIT_BYTES / 2, all = KIT_BYTES;
    const int64_t pageable[] = {none, half, all, all + 4096};
    for (int i = 0; i < 4; i++) {
        struct test *t = *state;
        int32_t host, object;
        struct ebb_program *program = begin(t);
        out_and_in(program, &host, &object);
        t->rates.costs[EBB_COST_BOUNCE_OUT] = (struct ebb_cost){.call = CALL, .byte = BYTE};
        t->rates.costs[EBB_COST_BOUNCE_IN] = (struct ebb_cost){.call = 3 * CALL, .byte = BYTE};
        kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(0), kit_all(host), object, 1);
        kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, kit_all(1), kit_all(host), object, 0);
        kit_finish(program, false);
        assert_int_equal(ebb_program_tensor_at(program, host)->offset, 0);
        ebb_program_set_pageable(program, pageable[i]);
        const double slow = (double)(pageable[i] < all ? pageable[i] : all) * BYTE;
        const double out = (slow > 0 ? CALL + slow : 0) + (pageable[i] < all ? OUT : 0);
        const double in = (slow > 0 ? 3 * CALL + slow : 0) + (pageable[i] < all ? IN : 0);
        forecast(t, HOST + out + in);
        for (int32_t e = 0; e < 2; e++) {
            const struct ebb_entry *entry = ebb_program_entry_at(program, e);
            const enum ebb_cost_class which =
                ebb_entry_cost_class(program, entry, &t->plan.request.numerics);
            assert_int_equal(which, (e == 0 ? EBB_COST_COPY_OUT : EBB_COST_COPY_IN) +
                                        (slow > 0 ? EBB_COST_BOUNCE_OUT - EBB_COST_COPY_OUT : 0));
        }
        /* Without that rate nobody knows. */
        t->rates.costs[EBB_COST_BOUNCE_OUT] = (struct ebb_cost){0};
        assert_int_equal(ebb_forecast_step(t->ctx, &t->plan, &t->rates, &t->load, &t->forecast),
                         EBB_OK);
        assert_true(t->forecast.known == (slow == 0));
        ebb_program_free(program);
        t->plan.programs[EBB_PROGRAM_TRAIN] = NULL;
    }
}

static void a_run_ends_when_its_last_copy_has(void **state)
{
    struct test *t = *state;
    int32_t host, object;
    struct ebb_program *program = begin(t);
    out_and_in(program, &host, &object);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 1);
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(0), kit_all(host), object, 1);
    kit_finish(program, false);
    forecast(t, HOST + GAP + OP + OUT);
    expect_part(t, EBB_PART_STALL, OUT);
}

static void copies_on_the_compute_queue_are_a_part_of_the_step(void **state)
{
    struct test *t = *state;
    int32_t host, object;
    struct ebb_program *program = begin(t);
    out_and_in(program, &host, &object);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 1);
    kit_move(program, EBB_QUEUE_COMPUTE, EBB_ENTRY_OUT, kit_all(0), kit_all(host), object, 1);
    kit_finish(program, false);
    forecast(t, HOST + 2 * GAP + OP + OUT);
    expect_part(t, EBB_PART_COPY_OUT, OUT);
}

static void micro_batches_repeat_train_and_not_the_update(void **state)
{
    struct test *t = *state;
    struct ebb_program *program = begin(t), *update = kit_program(t->ctx, 1);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 1);
    kit_finish(program, false);
    kit_fill(update, EBB_QUEUE_COMPUTE, kit_all(0), 1);
    kit_finish(update, false);
    t->plan.programs[EBB_PROGRAM_UPDATE] = update;
    t->load.micro_batches = 4;
    forecast(t, 5 * (HOST + GAP + OP));
    expect_part(t, EBB_PART_OPTIMIZER, OP); /* whatever the op */
}

/* Two full runs of three and one of the two that are left; what belongs to all is in each. */
static void a_run_may_take_several_micro_batches(void **state)
{
    struct test *t = *state;
    struct ebb_program *program = begin(t);
    for (int32_t m = 0; m < 3; m++) {
        ebb_program_set_micro(program, m);
        kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(m), 1);
    }
    ebb_program_set_micro(program, EBB_MICRO_ALL);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 2);
    kit_finish(program, false);
    t->load.micro_batches = 8;
    forecast(t, 3 * (HOST + GAP + OP) + 8 * (GAP + OP));
    t->load.micro_batches = 2;
    forecast(t, HOST + 3 * (GAP + OP));
}

static void a_class_that_is_not_known_leaves_the_step_unknown(void **state)
{
    struct test *t = *state;
    int32_t host, object;
    struct ebb_program *program = begin(t);
    out_and_in(program, &host, &object);
    kit_fill(program, EBB_QUEUE_COMPUTE, kit_all(0), 1);
    kit_move(program, EBB_QUEUE_OUT, EBB_ENTRY_OUT, kit_all(0), kit_all(host), object, 1);
    kit_finish(program, false);
    t->rates.costs[EBB_COST_COPY_OUT].call = 0;
    assert_int_equal(ebb_forecast_step(t->ctx, &t->plan, &t->rates, &t->load, &t->forecast),
                     EBB_OK);
    assert_false(t->forecast.known);
    assert_true(t->forecast.seconds == 0 && t->forecast.parts[EBB_PART_MEMORY].seconds == 0);
    /* What no op needs may be unknown. */
    t->rates.costs[EBB_COST_COPY_OUT].call = OUT;
    t->rates.costs[EBB_COST_COPY_IN].call = 0;
    forecast(t, HOST + GAP + OP + OUT);
}

/* Rows of floats: bytes are scratch to an op, and not counted. */
static struct ebb_view floats(int32_t tensor)
{
    struct ebb_view view = kit_tokens(tensor, 0, KIT_ROWS);
    view.dtype = EBB_F32;
    view.cols = view.stride = KIT_COLS / (int)sizeof(float);
    return view;
}

static void live_rows_count_and_no_more_than_the_capacity(void **state)
{
    struct test *t = *state;
    struct ebb_program *program = begin(t);
    kit_copy(program, EBB_QUEUE_COMPUTE, floats(0), floats(1));
    kit_finish(program, false);
    t->rates.costs[EBB_COST_MEMORY] = (struct ebb_cost){.byte = 0.5}; /* read and written */
    forecast(t, HOST + GAP + KIT_BYTES);
    t->doc_starts[1] = 5;
    t->doc_starts[2] = 9;
    forecast(t, HOST + GAP + 5 * KIT_COLS);
    t->load.docs = 2;
    forecast(t, HOST + GAP + 9 * KIT_COLS);
    t->load.docs = 3; /* the plan takes two */
    forecast(t, HOST + GAP + 9 * KIT_COLS);
    t->doc_starts[2] = 1000;
    forecast(t, HOST + GAP + KIT_BYTES);
}

/* A persistent tensor of host memory is filled by the host before the run. */
static void rows_that_the_host_puts_together_take_its_time(void **state)
{
    struct test *t = *state;
    struct ebb_tensor tensors[2];
    struct ebb_program *program;
    memset(tensors, 0, sizeof tensors);
    for (int i = 0; i < 2; i++) {
        snprintf(tensors[i].name, sizeof tensors[i].name, "p%d", i);
        tensors[i].space = i ? EBB_SPACE_HOST : EBB_SPACE_DEVICE;
        tensors[i].bytes = KIT_BYTES;
    }
    assert_int_equal(ebb_program_create(t->ctx, "test", tensors, 2, &program), EBB_OK);
    t->plan.programs[EBB_PROGRAM_TRAIN] = program;
    kit_move(program, EBB_QUEUE_IN, EBB_ENTRY_IN, kit_tokens(0, 0, KIT_ROWS),
             kit_tokens(1, 0, KIT_ROWS), -1, 0);
    kit_finish(program, false);
    t->rates.costs[EBB_COST_HOST].byte = 0.5;
    t->doc_starts[1] = 4;
    forecast(t, HOST + 0.5 * 4 * KIT_COLS + IN);
    expect_part(t, EBB_PART_HOST, HOST + 0.5 * 4 * KIT_COLS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_test, close_test)
    const struct CMUnitTest tests[] = {
        TEST(ops_of_one_queue_follow_each_other),
        TEST(copies_run_beside_what_does_not_need_them),
        TEST(what_waits_for_a_copy_stalls),
        TEST(what_is_not_pinned_takes_what_bounced_copies_do),
        TEST(a_run_ends_when_its_last_copy_has),
        TEST(copies_on_the_compute_queue_are_a_part_of_the_step),
        TEST(micro_batches_repeat_train_and_not_the_update),
        TEST(a_run_may_take_several_micro_batches),
        TEST(a_class_that_is_not_known_leaves_the_step_unknown),
        TEST(live_rows_count_and_no_more_than_the_capacity),
        TEST(rows_that_the_host_puts_together_take_its_time),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
