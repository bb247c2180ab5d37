/* Profiles: what they say of a run, and that the run does not notice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_run.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "train/profile.h"

/* The 'profile' of run.json. The caller frees; NULL: it has none. */
static json_t *read_profile(struct run *run)
{
    char path[700];
    json_t *json;
    run_ok(run->ctx, ebb_json_load(run->ctx, run_path(run->dir, "run.json", path), &json), path);
    json_t *profile = json_incref(json_object_get(json, "profile"));
    json_decref(json);
    return profile;
}

static double part_number(const json_t *profile, const char *part, const char *key)
{
    const json_t *json = json_object_get(json_object_get(profile, "parts"), part);
    if (!json) fail_msg("no part '%s'", part);
    return run_number(json, key);
}

static void assert_same_file(struct ebb_ctx *ctx, const char *a, const char *b, const char *name)
{
    char path[700];
    struct ebb_map map[2];
    run_ok(ctx, ebb_map_open(ctx, run_path(a, name, path), &map[0]), path);
    run_ok(ctx, ebb_map_open(ctx, run_path(b, name, path), &map[1]), path);
    assert_int_equal(map[0].bytes, map[1].bytes);
    assert_memory_equal(map[0].data, map[1].data, map[0].bytes);
    ebb_map_close(&map[0]);
    ebb_map_close(&map[1]);
}

static void a_run_is_the_same_with_a_profile(void **state)
{
    static const char *const keys[] = {"loss",     "grad_norm",         "bytes_out",
                                       "bytes_in", "peak_device_bytes", "predicted_device_bytes"};
    enum { STEPS = 6 };
    struct run run[2];
    json_t *metrics[2];
    char dir[2][700];
    for (int i = 0; i < 2; i++) {
        const struct run_options o = {.lora = true,
                                      .offload = true,
                                      .lora_dropout = 0.1,
                                      .profile = i == 1};
        run_open(&run[i], &o, run_path((const char *)*state, i ? "profiled" : "plain", dir[i]),
                 NULL);
        run[i].request.eval_strategy = EBB_WHEN_STEPS; /* other programs come between */
        run[i].request.eval_steps = 2;
        run_must(&run[i]);
        metrics[i] = run_metrics(run[i].ctx, run[i].dir);
        json_t *profile = read_profile(&run[i]);
        assert_true((profile != NULL) == (i == 1));
        json_decref(profile);
    }
    for (int64_t s = 1; s <= STEPS; s++)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            assert_true(run_number(run_record(metrics[0], s, false), keys[k]) ==
                        run_number(run_record(metrics[1], s, false), keys[k]));
    assert_same_file(run[0].ctx, dir[0], dir[1], "adapter_model.safetensors");
    for (int i = 0; i < 2; i++) {
        json_decref(metrics[i]);
        run_close(&run[i]);
    }
}

/* Seconds of all ops of a part are the part's; the longest op comes first. */
static void expect_ops_add_up(json_t *profile)
{
    const char *key;
    json_t *part, *op;
    size_t i;
    double last = INFINITY;
    assert_true(json_array_size(json_object_get(profile, "ops")) > 10);
    json_array_foreach(json_object_get(profile, "ops"), i, op)
    {
        assert_true(run_number(op, "seconds") <= last && run_number(op, "count") > 0);
        last = run_number(op, "seconds");
    }
    json_object_foreach(json_object_get(profile, "parts"), key, part)
    {
        double seconds = 0;
        if (!strcmp(key, "stalls") || !strcmp(key, "gaps") || !strcmp(key, "host")) continue;
        json_array_foreach(json_object_get(profile, "ops"), i,
                           op) if (!strcmp(json_string_value(json_object_get(op, "part")), key))
            seconds += run_number(op, "seconds");
        double want = run_number(part, "seconds") + run_number(part, "seconds_beside");
        if (fabs(seconds - want) > 1e-9) fail_msg("%s: %g s, ops %g s", key, want, seconds);
    }
}

static void parts_add_up_to_the_step_and_copies_to_the_metrics(void **state)
{
    static const char *const part_keys[] = {
        "seconds",          "seconds_beside",   "share",        "flops", "bytes",
        "flops_per_second", "bytes_per_second", "ceiling_share"};
    enum { STEPS = 8 };
    struct run run;
    const struct run_options o = {.offload = true, .profile = true};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = STEPS;
    run.request.accumulation = 2;
    run_must(&run);
    json_t *profile = read_profile(&run), *metrics = run_metrics(run.ctx, run.dir);
    const char *key;
    json_t *part;
    double sum = 0, share = 0, wall = 0, out = 0, in = 0;
    assert_non_null(profile);
    assert_int_equal(run_number(profile, "steps"), STEPS - EBB_PROFILE_FIRST);
    assert_int_equal(run_number(profile, "steps_left_out"), EBB_PROFILE_FIRST);
    assert_int_equal(json_object_size(json_object_get(profile, "parts")), EBB_PART_COUNT);
    assert_int_equal(json_object_size(json_object_get(profile, "ceilings")), 4);
    json_object_foreach(json_object_get(profile, "parts"), key, part)
    {
        assert_int_equal(json_object_size(part), sizeof part_keys / sizeof part_keys[0]);
        for (size_t k = 0; k < sizeof part_keys / sizeof part_keys[0]; k++)
            assert_non_null(json_object_get(part, part_keys[k]));
        assert_true(run_number(part, "seconds") >= 0);
        sum += run_number(part, "seconds");
        share += run_number(part, "share");
    }
    double step = run_number(profile, "step_seconds");
    assert_true(fabs(sum - step) < 1e-9 && fabs(share - 1) < 1e-9);
    expect_ops_add_up(profile);
    for (int64_t s = EBB_PROFILE_FIRST + 1; s <= STEPS; s++) {
        const json_t *record = run_record(metrics, s, false);
        wall += run_number(record, "step_seconds") / (STEPS - EBB_PROFILE_FIRST);
        out += run_number(record, "bytes_out") / (STEPS - EBB_PROFILE_FIRST);
        in += run_number(record, "bytes_in") / (STEPS - EBB_PROFILE_FIRST);
    }
    /* What looking took is not part of it. */
    if (!(step <= wall && step > 0.1 * wall)) fail_msg("%g s of %g s", step, wall);
    assert_true(fabs(part_number(profile, "copies_out", "bytes") - out) < 0.5 && out > 0);
    assert_true(fabs(part_number(profile, "copies_in", "bytes") - in) < 0.5 && in > 0);
    assert_true(part_number(profile, "copies_out", "seconds") == 0);
    assert_true(part_number(profile, "copies_out", "seconds_beside") > 0);
    assert_true(part_number(profile, "matmul", "flops") > 0);
    assert_true(part_number(profile, "attention_forward", "flops") > 0);
    assert_true(part_number(profile, "attention_backward", "flops") >
                part_number(profile, "attention_forward", "flops"));
    assert_true(part_number(profile, "head", "flops") > 0);
    assert_true(part_number(profile, "optimizer", "bytes_per_second") > 0);
    assert_true(isnan(part_number(profile, "host", "bytes_per_second")));
    json_decref(metrics);
    json_decref(profile);
    run_close(&run);
}

static void a_short_run_counts_the_steps_that_it_has(void **state)
{
    struct run run;
    const struct run_options o = {.profile = true};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = EBB_PROFILE_FIRST;
    run_must(&run);
    json_t *profile = read_profile(&run);
    assert_int_equal(run_number(profile, "steps"), EBB_PROFILE_FIRST);
    assert_int_equal(run_number(profile, "steps_left_out"), 0);
    assert_true(part_number(profile, "copies_out", "bytes") == 0);
    json_decref(profile);
    run_close(&run);
}

/* What ceilings take is not the run's: people read tokens a second from the two. */
static void the_time_of_ceilings_is_not_the_run_s(void **state)
{
    struct run run;
    const struct run_options o = {.batch = 400, .samples = 400, .profile = true};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = 2;
    double start = ebb_clock_seconds();
    run_must(&run);
    double wall = ebb_clock_seconds() - start;
    json_t *profile = read_profile(&run);
    double rate = run_number(json_object_get(profile, "ceilings"), "device_bytes_per_second");
    assert_true(rate > 0); /* five rounds of 30 ms and more, for one of the ceilings alone */
    if (!(run.result.seconds > 0 && run.result.seconds < wall - 0.1))
        fail_msg("%g s of %g s", run.result.seconds, wall);
    json_decref(profile);
    run_close(&run);
}

/* Programs of a teacher and an engine that was measured before. */
static void distillation_counts_the_teacher_too(void **state)
{
    double flops[2];
    for (int i = 0; i < 2; i++) {
        char dir[700];
        struct run run;
        const struct run_options o = {.teacher = i ? "qwen3" : NULL,
                                      .distill = {.kd_ratio = 0.5, .temperature = 1},
                                      .measure = true,
                                      .profile = true};
        run_open(&run, &o, run_path((const char *)*state, i ? "kd" : "sft", dir), NULL);
        run_must(&run);
        json_t *profile = read_profile(&run);
        flops[i] = part_number(profile, "matmul", "flops");
        json_decref(profile);
        run_close(&run);
    }
    assert_true(flops[1] > flops[0] && flops[0] > 0);
}

static int64_t persistent_end(const struct ebb_plan *plan)
{
    int64_t end = 0;
    for (int32_t t = 0; t < plan->request.net->tensor_count; t++) {
        const struct ebb_tensor *tensor = &plan->persistent[t];
        if (tensor->space == EBB_SPACE_DEVICE && tensor->offset + tensor->bytes > end)
            end = tensor->offset + tensor->bytes;
    }
    return end;
}

static unsigned char *read_space(struct run *run, enum ebb_space space, int64_t bytes)
{
    struct ebb_device *device = ebb_engine_device(run->request.engine);
    unsigned char *copy = (unsigned char *)malloc((size_t)bytes);
    run_ok(run->ctx, ebb_device_copy(device, copy, ebb_device_base(device, space), bytes), "copy");
    return copy;
}

static void ceilings_leave_what_must_stay_as_it_is(void **state)
{
    struct run run;
    const struct run_options o = {.offload = true, .batch = 400, .samples = 400};
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = 1;
    run_must(&run);
    struct ebb_engine *engine = run.request.engine;
    struct ebb_device *device = ebb_engine_device(engine);
    const int64_t bytes[EBB_SPACE_COUNT] = {persistent_end(ebb_engine_plan(engine)),
                                            ebb_device_bytes(device, EBB_SPACE_HOST)};
    unsigned char *before[EBB_SPACE_COUNT], *after[EBB_SPACE_COUNT];
    struct ebb_ceilings c;
    for (int s = 0; s < EBB_SPACE_COUNT; s++)
        before[s] = read_space(&run, (enum ebb_space)s, bytes[s]);
    run_ok(run.ctx, ebb_engine_ceilings(engine, &c), "ceilings");
    for (int s = 0; s < EBB_SPACE_COUNT; s++) {
        after[s] = read_space(&run, (enum ebb_space)s, bytes[s]);
        assert_memory_equal(before[s], after[s], (size_t)bytes[s]);
        free(before[s]);
        free(after[s]);
    }
    bool gpu = kit_backend() == EBB_BACKEND_CUDA; /* where a product must be larger */
    assert_true((gpu || c.flops > 0) && c.bytes > 0 && c.out_bytes > 0 && c.in_bytes > 0);
    run_close(&run);
}

/* Presses Ctrl-C after a while. */
static void *stop_soon(void *fd)
{
    struct signalfd_siginfo info;
    memset(&info, 0, sizeof info);
    usleep(200000);
    assert_int_equal(write(*(int *)fd, &info, sizeof info), sizeof info);
    return NULL;
}

static void a_run_that_a_signal_ends_has_a_profile_without_ceilings(void **state)
{
    struct run run;
    int ends[2];
    pthread_t thread;
    const struct run_options o = {.batch = 400, .samples = 400, .profile = true};
    run_open(&run, &o, (const char *)*state, NULL);
    assert_int_equal(pipe(ends), 0);
    run.request.max_steps = 1000000;
    run.request.stop_fd = ends[0];
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, &ends[1]), 0);
    assert_int_equal(run_go(&run), EBB_INTERRUPTED);
    pthread_join(thread, NULL);
    json_t *profile = read_profile(&run);
    assert_true(run_number(profile, "steps") > 0);
    assert_true(isnan(run_number(json_object_get(profile, "ceilings"), "device_bytes_per_second")));
    json_decref(profile);
    close(ends[0]);
    close(ends[1]);
    run_close(&run);
}

/* Every allocation fails in its turn; what is left behind shows when the run is closed. */
static void running_out_of_memory_is_an_error_and_nothing_else(void **state)
{
    struct run run;
    const struct run_options o = {.lora = true, .profile = true};
    int good = 0, failures = 0;
    run_open(&run, &o, (const char *)*state, NULL);
    run.request.max_steps = 3;
    for (int64_t nth = 1; good < 3; nth++) {
        ebb_mem_fail_nth(run.ctx, nth, false);
        enum ebb_status status = run_go(&run);
        ebb_mem_fail_nth(run.ctx, 0, false);
        if (status != EBB_OK && status != EBB_NO_MEMORY)
            fail_msg("allocation %lld: %s: %s", (long long)nth, ebb_status_name(status),
                     ebb_error_text(run.ctx));
        good = status == EBB_OK ? good + 1 : 0;
        failures += status != EBB_OK;
        ebb_error_clear(run.ctx);
    }
    assert_true(failures > 20);
    run_close(&run);
}

static void the_table_has_a_line_a_part_and_copies_where_there_are_any(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_str text = {0};
    struct ebb_profile_step step = {.steps = 8, .left_out = 2, .seconds = 0.8};
    const struct ebb_ceilings ceilings = {.flops = 743e12, .bytes = 4.27e12, .out_bytes = 55.2e9};
    step.parts[EBB_PART_MATMUL] =
        (struct ebb_part_time){.seconds = 0.5, .flops = 300e12, .bytes = 1};
    step.parts[EBB_PART_MEMORY] = (struct ebb_part_time){.seconds = 0.2, .bytes = 0.4e12};
    step.parts[EBB_PART_HOST] = (struct ebb_part_time){.seconds = 0.1};
    step.parts[EBB_PART_COPY_OUT] = (struct ebb_part_time){.beside = 0.4, .bytes = 20e9};
    step.parts[EBB_PART_COPY_IN] = (struct ebb_part_time){.beside = 0.2, .bytes = 9.99e9};
    run_ok(ctx, ebb_profile_table(ctx, &step, &ceilings, &text), "table");
    assert_string_equal(
        text.data,
        "where a step's time goes (mean of 8 steps without the first 2)\n"
        "  part                           time    share          rate  of ceiling\n"
        "  matmul                   500.000 ms   62.5 %   600 TFLOP/s      80.8 %\n"
        "  attention, forward         0.000 ms    0.0 %\n"
        "  attention, backward        0.000 ms    0.0 %\n"
        "  memory-bound             200.000 ms   25.0 %     2.00 TB/s      46.8 %\n"
        "  head and loss              0.000 ms    0.0 %\n"
        "  optimizer                  0.000 ms    0.0 %\n"
        "  stalls                     0.000 ms    0.0 %\n"
        "  gaps                       0.000 ms    0.0 %\n"
        "  host                     100.000 ms   12.5 %\n"
        "  step                     800.000 ms  100.0 %\n"
        "beside that, on queues of their own:\n"
        "  copies out               400.000 ms   50.0 %     50.0 GB/s      90.6 %\n"
        "  copies in                200.000 ms   25.0 %     50.0 GB/s\n"
        "ceilings, measured on this device: 743 TFLOP/s in a large product, 4.27 TB/s within "
        "device memory, 55.2 GB/s out\n");
    ebb_str_free(ctx, &text);
    ebb_ctx_free(ctx);
}

static void the_table_says_what_it_lacks(void **state)
{
    (void)state;
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_str text = {0};
    struct ebb_profile_step step = {.steps = 1, .seconds = 0.5};
    const struct ebb_ceilings none = {.flops = 0};
    const char *wanted = "where a step's time goes (mean of 1 step, warm-up included)\n"
                         "  part                           time    share          rate\n"
                         "  matmul                   500.000 ms  100.0 %   600 TFLOP/s\n";
    step.parts[EBB_PART_MATMUL] =
        (struct ebb_part_time){.seconds = 0.5, .flops = 300e12, .bytes = 1};
    run_ok(ctx, ebb_profile_table(ctx, &step, &none, &text), "table");
    assert_memory_equal(text.data, wanted, strlen(wanted));
    ebb_str_free(ctx, &text);
    ebb_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, train_dir_open, train_dir_close)
        CASE(a_run_is_the_same_with_a_profile),
        CASE(parts_add_up_to_the_step_and_copies_to_the_metrics),
        CASE(a_short_run_counts_the_steps_that_it_has),
        CASE(the_time_of_ceilings_is_not_the_run_s),
        CASE(distillation_counts_the_teacher_too),
        CASE(ceilings_leave_what_must_stay_as_it_is),
        CASE(a_run_that_a_signal_ends_has_a_profile_without_ceilings),
        CASE(running_out_of_memory_is_an_error_and_nothing_else),
        cmocka_unit_test(the_table_has_a_line_a_part_and_copies_where_there_are_any),
        cmocka_unit_test(the_table_says_what_it_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
