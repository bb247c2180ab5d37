/* Same numbers of preference training: whatever the policies and budgets, for every loss, losses,
 * gradients and updated parameters are bitwise those of a run that keeps everything on the device,
 * and memory and moves are what the plan says.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_preference_kit.h"
#include "train_witness.h"

static struct cell cell_of(const char *golden, enum ebb_dtype storage, enum ebb_preference loss)
{
    struct cell cell = {golden, storage, loss, EBB_REFERENCE_MODEL, .batch = 2};
    if (strstr(golden, "lora")) cell.reference = EBB_REFERENCE_BASE;
    return cell;
}

static void check_cell(struct cell cell)
{
    struct trace want, got;
    char what[160];
    cell.tables = true;
    trace_run(&cell, &want);
    cell.tables = false;
    assert_int_equal(want.bytes_out, 0);
    for (int i = 0; i < MODES; i++) {
        cell.way = &modes[i];
        trace_run(&cell, &got);
        snprintf(what, sizeof what, "%s, %s, %s, %s", cell.golden, ebb_dtype_name(cell.storage),
                 loss_names[cell.loss], modes[i].name);
        expect_same(&want, &got, what);
        assert_true((got.bytes_out > 0) == (got.planned_out > 0));
        if (strstr(modes[i].name, "host")) assert_true(got.bytes_out > 0);
        free_trace(&got);
    }
    free_trace(&want);
}

static void every_loss_has_the_same_bits_with_all_weights(void **state)
{
    (void)state;
    for (int loss = 0; loss < EBB_PREFERENCES; loss++) {
        check_cell(cell_of("llama3", EBB_F32, (enum ebb_preference)loss));
        check_cell(cell_of("qwen3", EBB_BF16, (enum ebb_preference)loss));
    }
}

static void every_loss_has_the_same_bits_with_adapters(void **state)
{
    (void)state;
    for (int loss = 0; loss < EBB_PREFERENCES; loss++) {
        check_cell(cell_of("qwen3_lora", EBB_F32, (enum ebb_preference)loss));
        check_cell(cell_of("llama3_lora", EBB_BF16, (enum ebb_preference)loss));
    }
}

static void dropout_packing_and_given_references_have_the_same_bits(void **state)
{
    struct cell cell = cell_of("llama3_lora", EBB_F32, EBB_PREFERENCE_SIGMOID);
    (void)state;
    cell.dropout = 0.2;
    check_cell(cell);
    cell.reference = EBB_REFERENCE_GIVEN;
    cell.bin = 2 * LONGEST + 20;
    cell.mute = true;
    check_cell(cell);
    cell.loss = EBB_PREFERENCE_KTO;
    check_cell(cell);
}

static void a_smaller_budget_has_the_same_bits(void **state)
{
    struct trace want, got;
    (void)state;
    for (int lora = 0; lora < 2; lora++) {
        struct cell cell = lora ? cell_of("llama3_lora", EBB_F32, EBB_PREFERENCE_SIGMOID)
                                : cell_of("qwen3", EBB_BF16, EBB_PREFERENCE_ORPO);
        struct bench b;
        int different = 0;
        trace_run(&cell, &want);
        int64_t bytes = want.device_bytes;
        while (different < 6) {
            cell.budget = bytes - 1;
            if (!try_bench(&b, &cell)) break;
            bytes = ebb_engine_plan(b.engine)->device_bytes;
            close_bench(&b);
            assert_true(bytes <= cell.budget);
            different++;
            trace_run(&cell, &got);
            expect_same(&want, &got, "smaller budget");
            free_trace(&got);
        }
        assert_true(different >= 2);
        free_trace(&want);
    }
}

/* The whole data, which fills the capacity, in one micro-batch: the last byte that changes is the
 * predicted one, on the device and on the host, and what moves is what the plan says. */
static void check_bytes(struct cell cell)
{
    struct bench b;
    char what[160];
    cell.batch = cell.loss == EBB_PREFERENCE_KTO ? 2 * PAIRS : PAIRS;
    cell.whole = 64 << 20;
    open_bench(&b, &cell);
    const struct ebb_plan *plan = ebb_engine_plan(b.engine);
    struct witnesses witnesses = watch_engine(b.engine);
    snprintf(what, sizeof what, "%s, %s, %s", cell.golden, loss_names[cell.loss], cell.way->name);
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        fill_both(&witnesses, pattern);
        int64_t out = ebb_engine_usage(b.engine).bytes_out;
        run_epoch(&b, EBB_PROGRAM_TRAIN);
        assert_int_equal(ebb_engine_usage(b.engine).bytes_out - out, plan->bytes_out);
        look_at_both(&witnesses);
    }
    expect_both(&witnesses, plan, what);
    free_witnesses(&witnesses);
    close_bench(&b);
}

static void predicted_bytes_are_the_last_bytes_that_change(void **state)
{
    (void)state;
    for (int loss = 0; loss < EBB_PREFERENCES; loss++)
        for (int i = 0; i < MODES; i++) {
            struct cell cell =
                cell_of(i % 2 ? "llama3" : "llama3_lora", EBB_F32, (enum ebb_preference)loss);
            cell.way = &modes[i];
            check_bytes(cell);
            if (!needs_reference(cell.loss)) continue;
            cell.reference = EBB_REFERENCE_GIVEN;
            check_bytes(cell);
        }
}

/* What a reference costs: a second model its weights, the model without its adapter little, and
 * numbers made beforehand next to nothing. */
static void references_cost_what_they_are(void **state)
{
    int64_t bytes[4];
    (void)state;
    for (int reference = EBB_REFERENCE_NONE; reference <= EBB_REFERENCE_GIVEN; reference++) {
        struct cell cell = cell_of("llama3_lora", EBB_F32, EBB_PREFERENCE_SIGMOID);
        struct bench b;
        if (reference == EBB_REFERENCE_NONE) cell.loss = EBB_PREFERENCE_SIMPO;
        cell.reference = (enum ebb_reference)reference;
        open_bench(&b, &cell);
        bytes[reference] = ebb_engine_plan(b.engine)->device_bytes;
        close_bench(&b);
    }
    int64_t weights = (96 * 32 + 3 * (32 * 64 + 32 * 32 + 3 * 32 * 48)) * (int64_t)sizeof(float);
    assert_true(bytes[EBB_REFERENCE_MODEL] >= bytes[EBB_REFERENCE_BASE] + weights);
    assert_true(bytes[EBB_REFERENCE_GIVEN] >= bytes[EBB_REFERENCE_NONE]);
    assert_true(bytes[EBB_REFERENCE_GIVEN] < bytes[EBB_REFERENCE_NONE] + 4096);
    assert_true(bytes[EBB_REFERENCE_BASE] < bytes[EBB_REFERENCE_NONE] + 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_loss_has_the_same_bits_with_all_weights),
        cmocka_unit_test(every_loss_has_the_same_bits_with_adapters),
        cmocka_unit_test(dropout_packing_and_given_references_have_the_same_bits),
        cmocka_unit_test(a_smaller_budget_has_the_same_bits),
        cmocka_unit_test(predicted_bytes_are_the_last_bytes_that_change),
        cmocka_unit_test(references_cost_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
