/* Checkpoints and resume: a run that is stopped anywhere, in any way, ends as one that was not.
 *
 * Sessions that are to be killed run in processes of their own: this program, started again with
 * arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_run.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/init.h"

/* ---- comparing runs -------------------------------------------------------------------------- */

static void same_file(struct ebb_ctx *ctx, const char *a, const char *b, const char *name)
{
    char path[700];
    struct ebb_map x, y;
    run_ok(ctx, ebb_map_open(ctx, run_path(a, name, path), &x), path);
    run_ok(ctx, ebb_map_open(ctx, run_path(b, name, path), &y), path);
    if (x.bytes != y.bytes || memcmp(x.data, y.data, x.bytes) != 0)
        fail_msg("%s differs between %s and %s", name, a, b);
    ebb_map_close(&x);
    ebb_map_close(&y);
}

static void forget_times(json_t *record)
{
    static const char *const keys[] = {
        "tokens_per_second", "step_seconds",           "stall_seconds", "process_device_bytes",
        "eval_runtime",      "eval_tokens_per_second", "seconds"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) json_object_del(record, keys[i]);
}

static void same_metrics(struct ebb_ctx *ctx, const char *a, const char *b)
{
    json_t *x = run_metrics(ctx, a), *y = run_metrics(ctx, b), *record;
    size_t i;
    json_array_foreach(x, i, record) forget_times(record);
    json_array_foreach(y, i, record) forget_times(record);
    json_array_foreach(x, i, record)
    {
        json_t *other = json_array_get(y, i);
        if (json_equal(record, other)) continue;
        char *p = json_dumps(record, 0), *q = other ? json_dumps(other, 0) : NULL;
        fail_msg("line %zu of the metrics:\n%s: %s\n%s: %s", i + 1, a, p, b, q ? q : "none");
    }
    assert_int_equal(json_array_size(x), json_array_size(y));
    json_decref(x);
    json_decref(y);
}

/* Everything that the two runs leave, but for times. */
static void same_end(struct ebb_ctx *ctx, const char *a, const char *b, int64_t step, bool lora)
{
    char x[700], y[700], name[64], path[800];
    json_t *p, *q;
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    run_path(a, name, x);
    run_path(b, name, y);
    run_ok(ctx, ebb_checkpoint_verify(ctx, x), x);
    run_ok(ctx, ebb_checkpoint_verify(ctx, y), y);
    same_file(ctx, x, y, "training_state.ebb");
    same_file(ctx, x, y, lora ? "adapter_model.safetensors" : "model.safetensors");
    same_file(ctx, a, b, lora ? "adapter_model.safetensors" : "model.safetensors");
    same_file(ctx, a, b, lora ? "adapter_config.json" : "config.json");
    same_metrics(ctx, x, y);
    same_metrics(ctx, a, b);
    snprintf(path, sizeof path, "%s/trainer_state.json", x);
    run_ok(ctx, ebb_json_load(ctx, path, &p), path);
    snprintf(path, sizeof path, "%s/trainer_state.json", y);
    run_ok(ctx, ebb_json_load(ctx, path, &q), path);
    forget_times(p);
    forget_times(q);
    assert_true(json_equal(p, q));
    json_decref(p);
    json_decref(q);
}

/* ---- in this process ------------------------------------------------------------------------- */

enum { STEPS = 12 }; /* two epochs of 11 micro-batches, two a step */

static void set_usual(struct run *run)
{
    run->request.max_steps = STEPS;
    run->request.accumulation = 2;
    run->request.save_strategy = run->request.eval_strategy = EBB_WHEN_STEPS;
    run->request.save_steps = 4;
    run->request.eval_steps = 3;
    run->request.load_best_at_end = false;
}

static void run_all(const struct run_options *o, const char *dir, const char *resume)
{
    struct run run;
    run_open(&run, o, dir, resume);
    set_usual(&run);
    run_must(&run);
    assert_int_equal(run.result.steps, STEPS);
    run_close(&run);
}

static void check_resume(const char *dir, const struct run_options *o)
{
    char straight[700], resumed[700], from[700];
    struct ebb_ctx *ctx = ebb_ctx_create();
    run_all(o, run_path(dir, "straight", straight), NULL);
    for (int at = 4; at <= STEPS; at += 4) {
        char name[64];
        snprintf(name, sizeof name, "straight/checkpoint-%d", at);
        run_path(dir, name, from);
        snprintf(name, sizeof name, "from-%d", at);
        run_all(o, run_path(dir, name, resumed), from);
        if (at < STEPS)
            same_end(ctx, straight, resumed, STEPS, o->lora);
        else
            same_file(ctx, straight, resumed,
                      o->lora ? "adapter_model.safetensors" : "model.safetensors");
    }
    ebb_ctx_free(ctx);
}

static void every_weight_in_float32_goes_on_bit_for_bit(void **state)
{
    struct run_options o = {.offload = true, .threads = 2};
    check_resume((const char *)*state, &o);
}

static void every_weight_in_bfloat16_goes_on_bit_for_bit(void **state)
{
    struct run_options o = {.bf16 = true, .model = "qwen3"};
    check_resume((const char *)*state, &o);
}

static void an_adapter_with_dropout_goes_on_bit_for_bit(void **state)
{
    struct run_options o = {.lora = true, .bf16 = true, .lora_dropout = 0.2};
    check_resume((const char *)*state, &o);
}

static void preferences_go_on_bit_for_bit(void **state)
{
    char dir[700];
    struct run_options base = {.lora = true, .bf16 = true, .lora_dropout = 0.2},
                       second = {.offload = true}, kto = {.lora = true};
    base.objective = second.objective = kto.objective = (struct ebb_objective){
        .kind = EBB_OBJECTIVE_PREFERENCE,
        .preference = {.beta = 0.1, .desirable_weight = 1, .undesirable_weight = 1},
        .reference = EBB_REFERENCE_BASE};
    check_resume(run_path((const char *)*state, "base", dir), &base);
    second.objective.preference.loss_type = EBB_PREFERENCE_IPO;
    second.objective.reference = EBB_REFERENCE_MODEL;
    check_resume(run_path((const char *)*state, "second", dir), &second);
    kto.objective.preference.loss_type = EBB_PREFERENCE_KTO;
    check_resume(run_path((const char *)*state, "kto", dir), &kto);
}

static struct run_options distillation(void)
{
    struct run_options o = {.lora = true, .teacher = "qwen3"};
    o.distill = (struct ebb_distill_keys){.divergence = EBB_JSD,
                                          .beta = 0.5,
                                          .kd_ratio = 0.5,
                                          .temperature = 2};
    return o;
}

static void a_distillation_goes_on_bit_for_bit(void **state)
{
    const char *dir = (const char *)*state;
    char path[700];
    struct run_options o = distillation();
    o.lora_dropout = 0.2;
    check_resume(dir, &o);
    struct run_options full = {.bf16 = true, .teacher = o.teacher, .distill = o.distill};
    struct ebb_ctx *ctx = ebb_ctx_create();
    run_ok(ctx, ebb_dir_create(ctx, run_path(dir, "full", path)), path);
    ebb_ctx_free(ctx);
    check_resume(path, &full);
}

static void resume_keeps_the_numerics_of_the_checkpoint(void **state)
{
    const char *dir = (const char *)*state;
    char straight[700], resumed[700], from[700];
    struct run_options o = {.lora = true, .threads = 2}, other = {.lora = true, .threads = 1};
    struct run run;
    run_all(&o, run_path(dir, "straight", straight), NULL);
    run_path(dir, "straight/checkpoint-4", from);
    run_all(&other, run_path(dir, "resumed", resumed), from);
    struct ebb_ctx *ctx = ebb_ctx_create();
    same_end(ctx, straight, resumed, STEPS, true);
    ebb_ctx_free(ctx);
    /* An engine that was made without asking the checkpoint. */
    run_open(&run, &other, run_path(dir, "refused", resumed), NULL);
    set_usual(&run);
    run.request.resume = from;
    assert_int_equal(run_go(&run), EBB_BAD_CONFIG);
    char text[64];
    snprintf(text, sizeof text, "2 threads on %s", ebb_backend_name(kit_backend()));
    assert_non_null(strstr(ebb_error_text(run.ctx), text));
    run_close(&run);
}

/* The numerics record of a checkpoint with this text behind its other values. */
static enum ebb_status read_numerics(struct ebb_ctx *ctx, const char *dir, const char *backend,
                                     const char *more, struct ebb_numerics *numerics)
{
    char text[512], path[800];
    snprintf(text, sizeof text,
             "{\"format\": 1, \"numerics\": {\"storage\": \"bfloat16\", \"tile_tokens\": 32, "
             "\"head_chunk\": 32, \"threads\": 2, \"backend\": \"%s\", \"matmul\": \"m\"%s}}",
             backend, more);
    snprintf(path, sizeof path, "%s/trainer_state.json", dir);
    run_ok(ctx, ebb_dir_create(ctx, dir), "folder");
    run_ok(ctx, ebb_file_write(ctx, path, text, strlen(text)), "record");
    return ebb_checkpoint_numerics(ctx, dir, numerics);
}

static void attention_of_the_numerics_may_be_older_but_not_impossible(void **state)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_numerics numerics;
    char dir[700];
    run_path((const char *)*state, "numerics", dir);
    static const char *const backends[] = {"cpu", "cuda"};
    for (int i = 0; i < 2; i++) {
        run_ok(ctx, read_numerics(ctx, dir, backends[i], "", &numerics), "an older record");
        assert_false(numerics.attention.library);
        assert_true(numerics.attention.deterministic);
    }
    run_ok(ctx,
           read_numerics(ctx, dir, "cuda",
                         ", \"attention\": {\"version\": \"cuDNN 9.19.0\", \"library\": true, "
                         "\"deterministic\": false, \"kv_heads\": 2, \"block\": 4096}",
                         &numerics),
           "a record");
    assert_true(numerics.attention.library);
    assert_false(numerics.attention.deterministic);
    assert_int_equal(numerics.attention.kv_heads, 2);
    assert_int_equal(numerics.attention.block, 4096);
    assert_string_equal(numerics.attention_library, "cuDNN 9.19.0");
    static const char *const impossible[] = {"\"kv_heads\": -1, \"block\": 4096",
                                             "\"kv_heads\": 2, \"block\": 4000",
                                             "\"kv_heads\": 2, \"block\": 1152921504606846976"};
    for (int i = 0; i < 3; i++) {
        char more[256];
        snprintf(more, sizeof more,
                 ", \"attention\": {\"version\": \"\", \"library\": true, \"deterministic\": true, "
                 "%s}",
                 impossible[i]);
        assert_int_equal(read_numerics(ctx, dir, "cuda", more, &numerics), EBB_BAD_FILE);
        assert_non_null(strstr(ebb_error_text(ctx), "an attention that no run can have"));
        ebb_error_clear(ctx);
    }
    ebb_ctx_free(ctx);
}

static void a_signal_before_the_first_step_leaves_a_checkpoint(void **state)
{
    const char *dir = (const char *)*state;
    char stopped[700], straight[700], *from = NULL;
    int ends[2];
    struct run run;
    struct run_options o = {.lora = true};
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    run_open(&run, &o, run_path(dir, "stopped", stopped), NULL);
    set_usual(&run);
    run.request.stop_fd = ends[0];
    assert_int_equal(run_go(&run), EBB_INTERRUPTED);
    assert_non_null(strstr(ebb_error_text(run.ctx), "checkpoint-0' is written"));
    ebb_error_clear(run.ctx);
    run_ok(run.ctx, ebb_checkpoint_find(run.ctx, stopped, &from), "find");
    run_all(&o, stopped, from);
    run_all(&o, run_path(dir, "straight", straight), NULL);
    same_end(run.ctx, straight, stopped, STEPS, true);
    ebb_mem_free(run.ctx, from);
    run_close(&run);
    close(ends[0]);
    close(ends[1]);
}

static enum ebb_status lose_device(const struct ebb_queue_env *env, const void *args)
{
    (void)args;
    return EBB_FAIL(ebb_device_ctx(env->device), EBB_DEVICE, "the device went away");
}

/* The step that finds the device gone is the first one after `resume`, or of all. */
static void expect_kept(const char *dir, const char *resume, const char *wanted)
{
    struct run run;
    struct run_options o = {.lora = true};
    run_open(&run, &o, dir, resume);
    set_usual(&run);
    /* At the first place where the loop waits for the device. */
    assert_int_equal(ebb_queue_launch(ebb_engine_device(run.request.engine), EBB_QUEUE_COMPUTE,
                                      lose_device, run.request.engine),
                     EBB_OK);
    assert_int_equal(run_go(&run), EBB_DEVICE);
    const char *text = ebb_error_text(run.ctx);
    assert_ptr_equal(strstr(text, "the device went away\nkept:  "), text);
    if (strstr(text, wanted) == NULL) fail_msg("wanted '%s' in: %s", wanted, text);
    run_close(&run);
}

static void a_device_that_fails_leaves_the_last_checkpoint_and_says_so(void **state)
{
    const char *dir = (const char *)*state;
    char straight[700], from[700], fresh[700], again[700];
    struct run_options o = {.lora = true};
    run_all(&o, run_path(dir, "straight", straight), NULL);
    run_path(dir, "straight/checkpoint-4", from);
    expect_kept(run_path(dir, "fresh", fresh), NULL, "kept:  nothing, the run had written no");
    /* Where the run goes on in another folder, its place is saved there first. */
    expect_kept(run_path(dir, "again", again), from, "again/checkpoint-4' is whole");
    expect_kept(straight, from, "straight/checkpoint-4' is whole (the run had done 4 steps)");
    struct ebb_ctx *ctx = ebb_ctx_create();
    run_ok(ctx, ebb_checkpoint_verify(ctx, from), "verify");
    ebb_ctx_free(ctx);
}

/* ---- broken and foreign checkpoints ---------------------------------------------------------- */

static void flip_byte(const char *path, off_t at)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    if (fd < 0) fail_msg("cannot open %s", path);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void expect_found(struct run *run, const char *dir, const char *name)
{
    char *found = NULL, wanted[700];
    run_ok(run->ctx, ebb_checkpoint_find(run->ctx, dir, &found), "find");
    if (name)
        assert_string_equal(found, run_path(dir, name, wanted));
    else
        assert_null(found);
    ebb_mem_free(run->ctx, found);
}

static void a_broken_checkpoint_is_skipped_with_a_warning(void **state)
{
    struct run run;
    struct run_options o = {.lora = true};
    char path[700];
    run_open(&run, &o, (const char *)*state, NULL);
    set_usual(&run);
    expect_found(&run, run.dir, NULL);
    run_must(&run);
    expect_found(&run, run.dir, "checkpoint-12");
    flip_byte(run_path(run.dir, "checkpoint-12/training_state.ebb", path), 5000);
    expect_found(&run, run.dir, "checkpoint-8");
    if (!strstr(run.log, "checkpoint-12' is not whole and is skipped") ||
        !strstr(run.log, "its bytes were changed"))
        fail_msg("log: %s", run.log);
    assert_int_equal(truncate(run_path(run.dir, "checkpoint-8/adapter_model.safetensors", path),
                              100),
                     0);
    expect_found(&run, run.dir, "checkpoint-4");
    assert_non_null(strstr(run.log, "has 100 bytes, its manifest says"));
    assert_int_equal(unlink(run_path(run.dir, "checkpoint-4/manifest.json", path)), 0);
    expect_found(&run, run.dir, NULL);
    assert_non_null(strstr(run.log, "manifest.json"));
    /* Named by hand it is an error. */
    run_path(run.dir, "checkpoint-12", path);
    run.request.resume = path;
    assert_int_equal(run_go(&run), EBB_BAD_FILE);
    assert_non_null(strstr(ebb_error_text(run.ctx), "its bytes were changed"));
    ebb_error_clear(run.ctx);
    run.request.resume = "/nowhere";
    assert_int_equal(run_go(&run), EBB_BAD_CONFIG);
    assert_non_null(strstr(ebb_error_text(run.ctx), "there is no folder '/nowhere'"));
    run_close(&run);
}

/* A run with these options that resumes from `from`, for what only the identity can refuse. */
static void expect_refused(const char *dir, const struct run_options *o, const char *from,
                           const char *text, void (*change)(struct ebb_trainer_request *request))
{
    struct run run;
    char out[700];
    run_open(&run, o, run_path(dir, "other", out), NULL);
    set_usual(&run);
    run.request.resume = from;
    if (change) change(&run.request);
    enum ebb_status status = run_go(&run);
    if (status != EBB_BAD_CONFIG || !strstr(ebb_error_text(run.ctx), text) ||
        !strstr(ebb_error_text(run.ctx), from))
        fail_msg("got %s: %s; wanted '%s'", ebb_status_name(status), ebb_error_text(run.ctx), text);
    run_close(&run);
}

static void change_seed(struct ebb_trainer_request *request)
{
    request->seed++;
}

static void change_accumulation(struct ebb_trainer_request *request)
{
    request->accumulation = 1;
}

static void a_checkpoint_of_another_run_is_refused(void **state)
{
    const char *dir = (const char *)*state;
    char straight[700], from[700], model[700], config[700];
    struct run_options o = {.lora = true};
    run_all(&o, run_path(dir, "straight", straight), NULL);
    run_path(dir, "straight/checkpoint-4", from);
    struct run_options full = {0}, bf16 = {.lora = true, .bf16 = true},
                       data = {.lora = true, .data_seed = 1},
                       other = {.lora = true, .model = "llama2"}, weights = {.lora = true};
    expect_refused(dir, &full, from, "another method", NULL);
    expect_refused(dir, &bf16, from, "another storage type", NULL);
    expect_refused(dir, &data, from, "other training data", NULL);
    expect_refused(dir, &other, from, "another model", NULL);
    expect_refused(dir, &o, from, "another seed", change_seed);
    expect_refused(dir, &o, from, "another gradient_accumulation_steps", change_accumulation);
    /* The same shape, other weights. */
    struct ebb_ctx *ctx = ebb_ctx_create();
    snprintf(config, sizeof config, "%s/tests/golden/models/llama3/config.json", EBB_SOURCE_DIR);
    run_ok(ctx, ebb_model_init(ctx, config, NULL, run_path(dir, "model", model), EBB_F32, 3),
           "init");
    ebb_ctx_free(ctx);
    weights.model_dir = model;
    expect_refused(dir, &weights, from, "other base weights", NULL);
}

/* Another value of each key that decides what a token's loss is; each is another loss. */
static void another_loss_or_teacher_is_refused(void **state)
{
    const char *dir = (const char *)*state;
    char straight[700], from[700], model[700], config[700];
    struct run_options o = distillation(), plain = {.lora = true};
    run_all(&o, run_path(dir, "straight", straight), NULL);
    run_path(dir, "straight/checkpoint-4", from);
    for (int key = 0; key < 5; key++) {
        struct run_options other = distillation();
        if (key == 0) other.distill.divergence = EBB_SYMMETRIC_KL;
        if (key == 1) other.distill.beta = 0.25;
        if (key == 2) other.distill.kd_ratio = 0.75;
        if (key == 3) other.distill.temperature = 1;
        if (key == 4) other.distill.scale_t2 = true;
        expect_refused(dir, &other, from, "another loss", NULL);
    }
    expect_refused(dir, &plain, from, "another loss", NULL);
    struct run_options teacher = distillation();
    teacher.teacher = "llama2";
    expect_refused(dir, &teacher, from, "another teacher", NULL);
    /* The same shape, other weights. */
    struct ebb_ctx *ctx = ebb_ctx_create();
    snprintf(config, sizeof config, "%s/tests/golden/models/qwen3/config.json", EBB_SOURCE_DIR);
    run_ok(ctx, ebb_model_init(ctx, config, NULL, run_path(dir, "model", model), EBB_F32, 3),
           "init");
    ebb_ctx_free(ctx);
    teacher.teacher = model;
    expect_refused(dir, &teacher, from, "another teacher", NULL);
    /* The other way round: cross-entropy goes on as cross-entropy only. */
    run_all(&plain, run_path(dir, "plain", straight), NULL);
    run_path(dir, "plain/checkpoint-4", from);
    expect_refused(dir, &o, from, "another loss", NULL);
}

/* Makes a checkpoint say nothing under these keys of its identity, as a whole checkpoint. */
static void forget_keys(struct ebb_ctx *ctx, const char *checkpoint, const char *a, const char *b)
{
    char state[800], manifest[800], text[32];
    int64_t bytes;
    uint64_t hash;
    json_t *json;
    snprintf(state, sizeof state, "%s/trainer_state.json", checkpoint);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", checkpoint);
    run_ok(ctx, ebb_json_load(ctx, state, &json), state);
    assert_int_equal(json_object_del(json_object_get(json, "identity"), a), 0);
    assert_int_equal(json_object_del(json_object_get(json, "identity"), b), 0);
    run_ok(ctx, ebb_json_save(ctx, state, json), state);
    json_decref(json);
    run_ok(ctx, ebb_file_hash(ctx, state, &bytes, &hash), state);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    run_ok(ctx, ebb_json_load(ctx, manifest, &json), manifest);
    json_t *entry = json_object_get(json_object_get(json, "files"), "trainer_state.json");
    assert_int_equal(json_object_set_new(entry, "bytes", json_integer(bytes)), 0);
    assert_int_equal(json_object_set_new(entry, "xxh3", json_string(text)), 0);
    run_ok(ctx, ebb_json_save(ctx, manifest, json), manifest);
    json_decref(json);
}

/* One of a time before there were losses to choose from says neither. */
static void a_checkpoint_that_names_no_loss_is_of_cross_entropy(void **state)
{
    const char *dir = (const char *)*state;
    char straight[700], resumed[700], from[700];
    struct run_options o = {.lora = true}, taught = distillation();
    struct ebb_ctx *ctx = ebb_ctx_create();
    run_all(&o, run_path(dir, "straight", straight), NULL);
    run_path(dir, "straight/checkpoint-4", from);
    forget_keys(ctx, from, "objective", "teacher");
    run_all(&o, run_path(dir, "resumed", resumed), from);
    same_file(ctx, straight, resumed, "adapter_model.safetensors");
    expect_refused(dir, &taught, from, "another loss", NULL);
    ebb_ctx_free(ctx);
}

static void another_schedule_goes_on_with_a_warning(void **state)
{
    const char *dir = (const char *)*state;
    char straight[700], from[700], out[700];
    struct run run;
    struct run_options o = {.lora = true};
    run_all(&o, run_path(dir, "straight", straight), NULL);
    run_path(dir, "straight/checkpoint-12", from);
    run_open(&run, &o, run_path(dir, "longer", out), from);
    set_usual(&run);
    run.request.max_steps = STEPS + 2;
    run_must(&run);
    assert_int_equal(run.result.steps, STEPS + 2);
    if (!strstr(run.log, "learning-rate schedule changes")) fail_msg("log: %s", run.log);
    json_t *metrics = run_metrics(run.ctx, out);
    for (int64_t s = 1; s <= STEPS + 2; s++) assert_non_null(run_record(metrics, s, false));
    json_decref(metrics);
    run_close(&run);
}

/* ---- full disks ------------------------------------------------------------------------------ */

static void expect_nothing_half_written(struct ebb_ctx *ctx, const char *dir)
{
    char **names;
    size_t count;
    run_ok(ctx, ebb_dir_list(ctx, dir, &names, &count), "list");
    for (size_t i = 0; i < count; i++)
        if (names[i][0] == '.') fail_msg("%s was left behind", names[i]);
    ebb_dir_list_free(ctx, names, count);
}

static void a_file_size_limit_leaves_nothing_half_written(void **state)
{
    struct run run;
    struct run_options o = {0};
    struct rlimit before, small;
    run_open(&run, &o, (const char *)*state, NULL);
    set_usual(&run);
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 50000; /* the model has more */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum ebb_status status = run_go(&run);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, EBB_IO);
    assert_non_null(strstr(ebb_error_text(run.ctx), "file size limit"));
    expect_nothing_half_written(run.ctx, run.dir);
    assert_false(run_has(run.dir, "checkpoint-4"));
    json_t *metrics = run_metrics(run.ctx, run.dir);
    assert_non_null(run_record(metrics, 4, false));
    json_decref(metrics);
    run_close(&run);
}

/* ---- processes that are killed --------------------------------------------------------------- */

enum { KILLS = 20, KILLED_STEPS = 40, SKIP = 77 };

/* Arguments: "session" FOLDER DIE_AFTER_STEP. Goes on from the newest checkpoint there. Returns the
 * exit code. */
static int session(const char *dir, const char *die)
{
    struct run run;
    struct run_options o = {.lora = true, .lora_dropout = 0.1};
    char *from = NULL;
    sigset_t set;
    struct ebb_ctx *ctx = ebb_ctx_create();
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int stop_fd = signalfd(-1, &set, SFD_CLOEXEC);
    run_ok(ctx, ebb_dir_create(ctx, dir), "folder");
    run_ok(ctx, ebb_checkpoint_find(ctx, dir, &from), "find");
    run_open(&run, &o, dir, from);
    set_usual(&run);
    run.request.max_steps = KILLED_STEPS;
    run.request.accumulation = 4; /* steps of 4, 4 and 3 micro-batches */
    run.request.save_steps = 3;
    run.request.eval_steps = 7;
    run.request.save_total_limit = 2;
    run.request.load_best_at_end = true;
    run.request.stop_fd = stop_fd;
    run.request.die_after_step = atol(die);
    enum ebb_status status = run_go(&run);
    if (status != EBB_OK && status != EBB_INTERRUPTED)
        fprintf(stderr, "%s: %s\n", ebb_status_name(status), ebb_error_text(run.ctx));
    run_close(&run);
    ebb_mem_free(ctx, from);
    ebb_ctx_free(ctx);
    return ebb_status_exit_code(status);
}

/* Arguments: "full" FOLDER. A disk that the first checkpoint fits and the second does not. */
static int full_disk(const char *dir)
{
    struct run run;
    struct run_options o = {0};
    char path[700];
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", dir, "tmpfs", 0, "size=840k") != 0)
        return SKIP;
    run_open(&run, &o, dir, NULL);
    set_usual(&run);
    run.request.save_steps = 2;
    enum ebb_status status = run_go(&run);
    if (status != EBB_IO || !strstr(ebb_error_text(run.ctx), "disk full"))
        fail_msg("got %s: %s", ebb_status_name(status), ebb_error_text(run.ctx));
    expect_nothing_half_written(run.ctx, run.dir);
    assert_false(run_has(run.dir, "checkpoint-4"));
    ebb_error_clear(run.ctx);
    run_ok(run.ctx, ebb_checkpoint_verify(run.ctx, run_path(run.dir, "checkpoint-2", path)),
           "first checkpoint");
    run_close(&run);
    return 0;
}

static pid_t start(const char *mode, const char *dir, const char *die)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_train_resume", mode, dir, die, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

/* Waits at most `seconds`, then sends the signal, and once more where it only asks. The wait
 * status. */
static int finish(pid_t pid, double seconds, int number)
{
    int status;
    double end = ebb_clock_seconds() + seconds;
    while (ebb_clock_seconds() < end) {
        const struct timespec nap = {0, 500000};
        if (waitpid(pid, &status, WNOHANG) == pid) return status;
        nanosleep(&nap, NULL);
    }
    kill(pid, number);
    if (number != SIGKILL) {
        const struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
        kill(pid, number);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_full_disk_leaves_nothing_half_written(void **state)
{
    int status = finish(start("full", (const char *)*state, "0"), 60, SIGKILL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP) {
        print_message("no small file system can be mounted here: that takes root\n");
        skip();
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A fixed death between a step's record and its checkpoint. */
static void a_death_after_a_step_is_made_good(void **state)
{
    char killed[700], straight[700];
    const char *dir = (const char *)*state;
    int status = finish(start("session", run_path(dir, "killed", killed), "5"), 60, SIGINT);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = finish(start("session", killed, "6"), 60, SIGINT);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = finish(start("session", killed, "0"), 60, SIGINT);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = finish(start("session", run_path(dir, "straight", straight), "0"), 60, SIGINT);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct ebb_ctx *ctx = ebb_ctx_create();
    same_end(ctx, straight, killed, KILLED_STEPS, true);
    ebb_ctx_free(ctx);
}

/* Moments are spread over some of what a whole run takes here; every fourth signal is one that
 * asks. */
static void twenty_kills_at_random_moments_change_nothing(void **state)
{
    char straight[700], killed[700], name[64];
    const char *dir = (const char *)*state;
    uint64_t seed = (uint64_t)time(NULL);
    struct ebb_ctx *ctx = ebb_ctx_create();
    double began = ebb_clock_seconds();
    int status = finish(start("session", run_path(dir, "straight", straight), "0"), 120, SIGINT);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    double whole = ebb_clock_seconds() - began, span = whole / 2;
    int kills = 0, asked = 0, ends = 0;
    for (int turn = 0; kills < KILLS || ends == 0; turn++) {
        uint32_t words[4];
        bool ask = turn % 4 == 3;
        ebb_philox(seed, (uint64_t)turn, words);
        double seconds = kills < KILLS ? (double)ebb_uniform(words[0]) * span : 120;
        snprintf(name, sizeof name, "killed-%d", ends);
        run_path(dir, name, killed);
        status = finish(start("session", killed, "0"), seconds,
                        ask ? (turn % 8 == 7 ? SIGINT : SIGTERM) : SIGKILL);
        if (WIFSIGNALED(status) &&
            (WTERMSIG(status) == SIGKILL || ask)) { /* asked before it could listen */
            kills++;
        } else if (WIFEXITED(status) && WEXITSTATUS(status) == 130) {
            kills++;
            asked++;
        } else {
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                fail_msg("status %x, seed %llu", (unsigned)status, (unsigned long long)seed);
            same_end(ctx, straight, killed, KILLED_STEPS, true);
            expect_nothing_half_written(ctx, killed);
            ends++;
            span *= 0.8; /* the machine is faster than it was: most sessions are to be killed */
        }
    }
    snprintf(name, sizeof name, "killed-%d", ends);
    if (run_has(dir, name)) { /* the last one still has to end */
        run_path(dir, name, killed);
        status = finish(start("session", killed, "0"), 120, SIGKILL);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        same_end(ctx, straight, killed, KILLED_STEPS, true);
        expect_nothing_half_written(ctx, killed);
    }
    print_message("%d kills (%d of them asked first), %d runs came to their end, each of %.2f s if "
                  "left alone\n",
                  kills, asked, ends, whole);
    ebb_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "session") == 0) return session(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "full") == 0) return full_disk(argv[2]);
#define CASE(name) cmocka_unit_test_setup_teardown(name, train_dir_open, train_dir_close)
    const struct CMUnitTest tests[] = {
        CASE(every_weight_in_float32_goes_on_bit_for_bit),
        CASE(every_weight_in_bfloat16_goes_on_bit_for_bit),
        CASE(an_adapter_with_dropout_goes_on_bit_for_bit),
        CASE(preferences_go_on_bit_for_bit),
        CASE(a_distillation_goes_on_bit_for_bit),
        CASE(resume_keeps_the_numerics_of_the_checkpoint),
        CASE(attention_of_the_numerics_may_be_older_but_not_impossible),
        CASE(a_signal_before_the_first_step_leaves_a_checkpoint),
        CASE(a_device_that_fails_leaves_the_last_checkpoint_and_says_so),
        CASE(a_broken_checkpoint_is_skipped_with_a_warning),
        CASE(a_checkpoint_of_another_run_is_refused),
        CASE(another_loss_or_teacher_is_refused),
        CASE(a_checkpoint_that_names_no_loss_is_of_cross_entropy),
        CASE(another_schedule_goes_on_with_a_warning),
        CASE(a_file_size_limit_leaves_nothing_half_written),
        CASE(a_full_disk_leaves_nothing_half_written),
        CASE(a_death_after_a_step_is_made_good),
        CASE(twenty_kills_at_random_moments_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
