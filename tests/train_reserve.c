/* Memory that an engine was planned with: less of it is free when the engine opens, or less of the
 * host's is pinned.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"

#include "train/engine_int.h"

enum { X_SLOT = 0 };

/* What is trained: layer inputs go to the host. */
struct setting {
    struct kit_case c;
    struct ebb_numerics numerics;
    struct ebb_policy_rule rule;
    struct ebb_rates rates;
    struct ebb_engine_request request;
};

static void drop_line(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

/* A byte that bounces takes 1 ms, everything else next to nothing. */
static void open_setting(struct setting *s)
{
    memset(s, 0, sizeof *s);
    kit_case_open(&s->c, "mistral_lora");
    ebb_ctx_set_log(s->c.ctx, drop_line, NULL);
    s->numerics = kit_numerics(EBB_F32);
    s->request = kit_request(&s->c, &s->numerics);
    s->request.pageable = false;
    s->rule = (struct ebb_policy_rule){.last = -1, .slot = X_SLOT, .policy = EBB_POLICY_HOST};
    s->request.memory.rules = &s->rule;
    s->request.memory.rule_count = 1;
    for (int i = 0; i < EBB_COST_COUNT; i++)
        s->rates.costs[i] = (struct ebb_cost){1e-6, 1e-12, 1e-12};
    s->rates.costs[EBB_COST_BOUNCE_OUT].byte = s->rates.costs[EBB_COST_BOUNCE_IN].byte = 1e-3;
    s->request.rates = &s->rates;
}

static void close_setting(struct setting *s)
{
    struct ebb_ctx *ctx = s->c.ctx;
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    kit_case_close(&s->c);
}

static struct ebb_engine *create(struct setting *s)
{
    struct ebb_engine *engine;
    kit_ok(s->c.ctx, ebb_engine_create(s->c.ctx, &s->request, &engine), "create");
    assert_true(ebb_engine_plan(engine)->host_bytes > 3 * 4096);
    return engine;
}

/* ---- what is free ---------------------------------------------------------------------------- */

static void expect_shrunk(struct setting *s, enum ebb_space space, const char *const texts[],
                          int count)
{
    struct ebb_engine *engine = create(s);
    assert_int_equal(ebb_engine_open(engine), EBB_DOES_NOT_FIT);
    assert_int_equal(ebb_status_exit_code(EBB_DOES_NOT_FIT), 3);
    for (int i = 0; i < count; i++)
        if (strstr(ebb_error_text(s->c.ctx), texts[i]) == NULL)
            fail_msg("'%s' is not in: %s", texts[i], ebb_error_text(s->c.ctx));
    assert_null(ebb_device_base(engine->device, space)); /* nothing was reserved */
    ebb_engine_free(engine);
    ebb_error_clear(s->c.ctx);
}

static void device_memory_that_shrank_is_told_before_it_is_reserved(void **state)
{
    struct setting s;
    const bool cpu = kit_backend() == EBB_BACKEND_CPU;
    (void)state;
    open_setting(&s);
    s.request.taken_bytes[EBB_SPACE_DEVICE] = INT64_C(1) << 60;
    const char *const texts[] = {"does not fit what is free: it needs ", "0 B are free now",
                                 cpu ? " of memory, " : " of device memory, ",
                                 "\ntry:   a memory_budget below what is free",
                                 "; when it was planned 7 GiB were"};
    expect_shrunk(&s, EBB_SPACE_DEVICE, texts, 4); /* who planned did not look */
    s.request.free_bytes[EBB_SPACE_DEVICE] = INT64_C(7) << 30;
    expect_shrunk(&s, EBB_SPACE_DEVICE, texts, 5);
    close_setting(&s);
}

/* On the CPU both spaces are of one memory, and what is taken of it is told of the device's. */
static void host_memory_that_shrank_is_told_before_it_is_reserved(void **state)
{
    struct setting s;
    (void)state;
    if (kit_backend() == EBB_BACKEND_CPU) skip();
    open_setting(&s);
    s.request.taken_bytes[EBB_SPACE_HOST] = INT64_C(1) << 60;
    s.request.free_bytes[EBB_SPACE_HOST] = INT64_C(9) << 30;
    const char *const texts[] = {" of host memory, ", "0 B are free now",
                                 "when it was planned 9 GiB were",
                                 "\ntry:   a host_memory_budget below what is free"};
    expect_shrunk(&s, EBB_SPACE_HOST, texts, 4);
    close_setting(&s);
}

/* What moves out is of the same memory there: with so much left that the device's part alone would
 * fit, the run does not. */
static void host_memory_counts_on_the_cpu_too(void **state)
{
    struct setting s;
    (void)state;
    if (kit_backend() != EBB_BACKEND_CPU) skip();
    open_setting(&s);
    struct ebb_engine *engine = create(&s);
    /* As planned for a machine of which this much is free: more than it has. */
    const int64_t available = ebb_backend_bytes_free(s.c.ctx, EBB_BACKEND_CPU);
    engine->plan->host_bytes = available + (INT64_C(1) << 40);
    assert_int_equal(ebb_engine_open(engine), EBB_DOES_NOT_FIT);
    assert_non_null(strstr(ebb_error_text(s.c.ctx), " of memory, "));
    ebb_engine_free(engine);
    ebb_error_clear(s.c.ctx);
    close_setting(&s);
}

/* ---- what is pinned -------------------------------------------------------------------------- */

static void what_the_system_does_not_pin_is_in_the_forecast(void **state)
{
    struct setting s;
    (void)state;
    open_setting(&s);
    struct ebb_engine *engine = create(&s);
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    assert_true(plan->forecast.known);
    const double before = plan->forecast.seconds;
    kit_ok(s.c.ctx, ebb_engine_open(engine), "open");
    assert_int_equal(ebb_engine_refused(engine), 0);
    assert_int_equal(plan->pageable_bytes, 0);
    assert_true(plan->forecast.seconds == before);
    ebb_engine_free(engine);
    s.request.pin_limit = 2 * 4096;
    engine = create(&s);
    plan = ebb_engine_plan(engine);
    assert_true(plan->forecast.seconds == before); /* nobody could know */
    kit_ok(s.c.ctx, ebb_engine_open(engine), "open");
    const int64_t pinned = ebb_plan_pinned(plan);
    assert_true(pinned >= 0 && pinned <= 2 * 4096);
    assert_int_equal(ebb_device_bytes_pinned(ebb_engine_device(engine)), pinned);
    assert_int_equal(ebb_engine_refused(engine), plan->host_bytes - pinned);
    assert_true(plan->forecast.known && plan->forecast.seconds > before + 1);
    ebb_engine_free(engine);
    close_setting(&s);
}

static void train_step(struct setting *s, double *loss, float **values)
{
    struct ebb_engine *engine = kit_engine(s->c.ctx, &s->request);
    const struct ebb_net *net = ebb_engine_net(engine);
    int64_t trained, all, at = 0;
    ebb_engine_parameters(engine, &trained, &all);
    *values = (float *)calloc((size_t)trained, sizeof **values);
    assert_non_null(*values);
    assert_int_equal(ebb_device_bytes_pinned(ebb_engine_device(engine)),
                     ebb_plan_pinned(ebb_engine_plan(engine)));
    assert_int_equal(ebb_engine_refused(engine), 0);
    *loss = kit_backward(&s->c, engine, 0);
    kit_update(&s->c, engine, 0, 1e-2);
    for (int32_t i = 0; i < net->param_count; i++) {
        const struct ebb_param *param = &net->params[i];
        kit_ok(s->c.ctx, ebb_engine_read_param(engine, param, *values + at), "parameters");
        at += param->w.rows * param->w.cols;
    }
    ebb_engine_free(engine);
}

static void memory_that_is_pinned_in_part_changes_no_bit(void **state)
{
    struct setting s;
    double want, got;
    float *wanted, *values;
    int64_t trained, all;
    (void)state;
    open_setting(&s);
    struct ebb_engine *engine = create(&s);
    const int64_t host = ebb_engine_plan(engine)->host_bytes;
    ebb_engine_parameters(engine, &trained, &all);
    ebb_engine_free(engine);
    train_step(&s, &want, &wanted);
    for (int64_t pinned = 1; pinned < host; pinned += host / 5) {
        s.request.pinned_budget = pinned;
        train_step(&s, &got, &values);
        assert_true(got == want);
        assert_memory_equal(values, wanted, (size_t)trained * sizeof *values);
        free(values);
    }
    free(wanted);
    close_setting(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_memory_that_shrank_is_told_before_it_is_reserved),
        cmocka_unit_test(host_memory_that_shrank_is_told_before_it_is_reserved),
        cmocka_unit_test(host_memory_counts_on_the_cpu_too),
        cmocka_unit_test(what_the_system_does_not_pin_is_in_the_forecast),
        cmocka_unit_test(memory_that_is_pinned_in_part_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
