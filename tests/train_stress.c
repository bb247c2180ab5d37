/* Races have every chance to show: random delays on the queues, one after the other and all at
 * once, NaN in ranges that nobody holds, rings of one buffer, and no two tensors on the same
 * bytes. Whatever is disturbed, the bits are those of an undisturbed run that keeps everything.
 *
 * On a GPU the long run has 500 optimizer steps; on the CPU, whose own stress build has more
 * (./do torture), a few.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_modes.h"
#include "train_sized.h"

enum { DELAY_US = 50, ALL_QUEUES = EBB_QUEUE_COUNT, NO_QUEUE = -1 };

static const struct sized_shape gpu_shape = {"llama", 3, 256, 4, 2, 64, 512, 512};
static const struct sized_shape cpu_shape = {"llama", 3, 32, 4, 2, 8, 48, 96};

/* How a run is disturbed. */
struct disturbance {
    const char *name;
    int mode;  /* index into modes */
    int queue; /* that is delayed; ALL_QUEUES; NO_QUEUE */
    bool poison, one_buffer, apart;
};

enum { INPUTS_OUT = 1, ALL_OUT = 2, MIXED = MODES - 1 };

static int open_place(void **state)
{
    struct sized_place *p = (struct sized_place *)malloc(sizeof *p);
    sized_open(p);
    sized_make_model(p, "model", sized_on_gpu() ? &gpu_shape : &cpu_shape);
    *state = p;
    return 0;
}

static int close_place(void **state)
{
    sized_close((struct sized_place *)*state);
    free(*state);
    return 0;
}

/* Documents of unequal length; the second micro-batch leaves rows of the first behind it. */
static struct sized_cell cell_of(bool lora, int steps)
{
    struct sized_cell cell = {"model", lora, 384, SIZED_DOCS, {{120, 1, 240, 3}, {37, 140}}, steps};
    return cell;
}

static void check(struct sized_place *p, const struct sized_cell *cell,
                  const struct sized_trace *want, const struct disturbance *d)
{
    double from = ebb_clock_seconds();
    struct ebb_engine_request request = sized_request(p, cell);
    request.memory = modes[d->mode].keys;
    request.memory.rules = modes[d->mode].rules;
    request.poison = d->poison;
    request.one_buffer = d->one_buffer;
    request.apart = d->apart;
    for (int q = 0; q < EBB_QUEUE_COUNT; q++)
        if (d->queue == ALL_QUEUES || d->queue == q) request.delay_us[q] = DELAY_US;
    struct sized_trace got = sized_run(p, cell, &request);
    sized_same(want, &got, 0, d->name);
    assert_true(got.bytes_out > 0);
    print_message("  %s, %s: %d steps as without, %.1f s\n", d->name,
                  cell->lora ? "adapter" : "all weights", cell->steps, ebb_clock_seconds() - from);
    sized_forget(&got);
}

static struct sized_trace undisturbed(struct sized_place *p, const struct sized_cell *cell)
{
    double from = ebb_clock_seconds();
    struct ebb_engine_request request = sized_keep(p, cell);
    struct sized_trace want = sized_run(p, cell, &request);
    sized_sane(&want, "undisturbed");
    print_message("  undisturbed: %d steps, losses %.6f .. %.6f, %.1f s\n", cell->steps,
                  want.loss[0], want.loss[cell->steps - 1], ebb_clock_seconds() - from);
    return want;
}

static void each_queue_and_each_trick_alone_changes_no_bit(void **state)
{
    static const struct disturbance some[] = {
        {"all to host, COMPUTE delayed, one buffer", ALL_OUT, EBB_QUEUE_COMPUTE, true, true, false},
        {"all to host, OUT delayed, one buffer", ALL_OUT, EBB_QUEUE_OUT, true, true, false},
        {"all to host, IN delayed, one buffer", ALL_OUT, EBB_QUEUE_IN, true, true, false},
        {"all to host, COMPUTE delayed", ALL_OUT, EBB_QUEUE_COMPUTE, false, false, false},
        {"all to host, OUT delayed", ALL_OUT, EBB_QUEUE_OUT, false, false, false},
        {"all to host, IN delayed", ALL_OUT, EBB_QUEUE_IN, false, false, false},
        {"mixed, COMPUTE delayed", MIXED, EBB_QUEUE_COMPUTE, true, false, false},
        {"mixed, OUT delayed", MIXED, EBB_QUEUE_OUT, true, false, false},
        {"mixed, IN delayed", MIXED, EBB_QUEUE_IN, true, false, false},
        {"mixed, all delayed, one buffer", MIXED, ALL_QUEUES, true, true, false},
        {"mixed, all delayed, apart", MIXED, ALL_QUEUES, false, false, true},
        {"layer inputs to host, all delayed, apart", INPUTS_OUT, ALL_QUEUES, true, true, true},
        {"all to host, poison alone", ALL_OUT, NO_QUEUE, true, false, false},
    };
    struct sized_place *p = (struct sized_place *)*state;
    for (int lora = 0; lora < 2; lora++) {
        struct sized_cell cell = cell_of(lora, sized_on_gpu() ? 30 : 2);
        struct sized_trace want = undisturbed(p, &cell);
        for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) check(p, &cell, &want, &some[i]);
        sized_forget(&want);
    }
}

static void a_long_disturbed_run_changes_no_bit(void **state)
{
    static const struct disturbance all[] = {
        {"all to host, all delayed, one buffer", ALL_OUT, ALL_QUEUES, true, true, false},
        {"mixed, all delayed", MIXED, ALL_QUEUES, true, false, false},
    };
    struct sized_place *p = (struct sized_place *)*state;
    struct sized_cell cell = cell_of(false, sized_on_gpu() ? 500 : 10);
    struct sized_trace want = undisturbed(p, &cell);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) check(p, &cell, &want, &all[i]);
    sized_forget(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_disturbed_run_changes_no_bit),
        cmocka_unit_test(each_queue_and_each_trick_alone_changes_no_bit),
    };
    return cmocka_run_group_tests_name("stress", tests, open_place, close_place);
}
