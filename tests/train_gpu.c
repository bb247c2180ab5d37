/* Same numbers, at sizes that a GPU is for: micro-batches of up to 8192 tokens in bf16 through
 * cuDNN and cuBLASLt, documents from one token to more than the block of the deterministic
 * attention backward. What train_policy says of small models holds of these: policies, tiers,
 * queues, budgets and a resume change no bit; without `deterministic` only gradients move, by less
 * than GRADIENT_BOUND of their tensor's norm.
 *
 * EBB_TORTURE_FULL=1 in the environment: every model, method, size and packing.
 *
 * usage: test_train_gpu [own-allocations [float32]]
 * With the argument: one small model, each tensor in an allocation of its own and attention by
 * Ebb's kernels, to be run under compute-sanitizer (tests/gpu_sanitize.sh).
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_modes.h"
#include "train_sized.h"
#include "train_witness.h"

#define GRADIENT_BOUND 1e-2

static const struct sized_shape gpu_shapes[] = {
    {"llama", 4, 512, 8, 2, 64, 1408, 4096},
    {"qwen3", 4, 512, 8, 2, 128, 1408, 4096}, /* norms on q and k */
};
static const struct sized_shape cpu_shapes[] = {
    {"llama", 4, 64, 4, 2, 16, 176, 256},
    {"qwen3", 4, 64, 4, 2, 32, 176, 256},
};
/* For sanitizers. */
static const struct sized_shape small_shape = {"qwen3", 3, 64, 4, 2, 32, 96, 160};

static int open_place(void **state)
{
    struct sized_place *p = (struct sized_place *)malloc(sizeof *p);
    sized_open(p);
    for (int i = 0; i < 2; i++) {
        const struct sized_shape *shape = sized_on_gpu() ? &gpu_shapes[i] : &cpu_shapes[i];
        sized_make_model(p, shape->family, shape);
    }
    sized_make_model(p, "small", &small_shape);
    *state = p;
    return 0;
}

static int close_place(void **state)
{
    sized_close((struct sized_place *)*state);
    free(*state);
    return 0;
}

/* ---- the matrix ------------------------------------------------------------------------------ */

enum { STEPS = 3 };

#define ONE_512                                                                                    \
    512, SIZED_DOCS,                                                                               \
    {                                                                                              \
        {512},                                                                                     \
        {                                                                                          \
            450                                                                                    \
        }                                                                                          \
    }
#define PACKED_512                                                                                 \
    512, SIZED_DOCS,                                                                               \
    {                                                                                              \
        {200, 1, 300, 9},                                                                          \
        {                                                                                          \
            7, 480                                                                                 \
        }                                                                                          \
    }
#define ONE_2048                                                                                   \
    2048, SIZED_DOCS,                                                                              \
    {                                                                                              \
        {2048},                                                                                    \
        {                                                                                          \
            1900                                                                                   \
        }                                                                                          \
    }
#define PACKED_2048                                                                                \
    2048, SIZED_DOCS,                                                                              \
    {                                                                                              \
        {1, 700, 3, 1300},                                                                         \
        {                                                                                          \
            513, 128, 1025                                                                         \
        }                                                                                          \
    }
#define ONE_8192                                                                                   \
    8192, 1,                                                                                       \
    {                                                                                              \
        {8192},                                                                                    \
        {                                                                                          \
            7000                                                                                   \
        }                                                                                          \
    }
#define PACKED_8192                                                                                \
    8192, SIZED_DOCS,                                                                              \
    {                                                                                              \
        {3, 4700, 1, 3480},                                                                        \
        {                                                                                          \
            2600, 130, 5000                                                                        \
        }                                                                                          \
    }

static const struct sized_cell usual[] = {
    {"llama", false, PACKED_512, STEPS},  {"llama", true, ONE_512, STEPS},
    {"qwen3", true, PACKED_2048, STEPS},  {"qwen3", false, ONE_2048, STEPS},
    {"llama", false, PACKED_8192, STEPS}, {"qwen3", true, ONE_8192, STEPS},
};
enum { USUAL = (int)(sizeof usual / sizeof usual[0]) };
static const struct sized_cell *const largest = &usual[4];

/* The rest of the matrix, by size and packing. */
static const struct sized_cell every[] = {
    {"", false, ONE_512, STEPS},  {"", false, PACKED_512, STEPS},
    {"", false, ONE_2048, STEPS}, {"", false, PACKED_2048, STEPS},
    {"", false, ONE_8192, STEPS}, {"", false, PACKED_8192, STEPS},
};

static void name_of(const struct sized_cell *cell, const char *mode, bool streams, char out[200])
{
    snprintf(out, 200, "%s, %s, %d tokens, %s, %s%s", cell->model,
             cell->lora ? "adapter" : "all weights", (int)sized_tokens(cell->tokens),
             cell->length[0][1] > 0 ? "packed" : "one document", mode,
             streams ? "" : ", one queue");
}

static void set_mode(struct ebb_engine_request *request, const struct mode *mode)
{
    request->memory = mode->keys;
    request->memory.rules = mode->rules;
}

static void check_mode(struct sized_place *p, const struct sized_cell *cell,
                       const struct sized_trace *want, const struct mode *mode, bool streams)
{
    char what[200];
    struct ebb_engine_request request = sized_request(p, cell);
    set_mode(&request, mode);
    request.streams = streams;
    name_of(cell, mode->name, streams, what);
    struct sized_trace got = sized_run(p, cell, &request);
    sized_same(want, &got, 0, what);
    if (strstr(mode->name, "host")) assert_true(got.bytes_out > 0);
    sized_forget(&got);
}

static void check_cell(struct sized_place *p, const struct sized_cell *cell)
{
    char what[200];
    double from = ebb_clock_seconds();
    struct ebb_engine_request request = sized_keep(p, cell);
    name_of(cell, "everything kept", true, what);
    struct sized_trace want = sized_run(p, cell, &request);
    double kept = ebb_clock_seconds();
    sized_sane(&want, what);
    assert_int_equal(want.bytes_out, 0);
    for (int i = 0; i < MODES; i++) check_mode(p, cell, &want, &modes[i], true);
    check_mode(p, cell, &want, &modes[2], false);
    check_mode(p, cell, &want, &modes[MODES - 1], false);
    print_message("%s: losses %.6f .. %.6f, %lld MiB; %.1f s, then %d modes in %.1f s\n", what,
                  want.loss[0], want.loss[want.steps - 1], (long long)want.device_bytes >> 20,
                  kept - from, MODES + 2, ebb_clock_seconds() - kept);
    sized_forget(&want);
}

static void policies_give_the_same_bits(void **state)
{
    struct sized_place *p = (struct sized_place *)*state;
    if (getenv("EBB_TORTURE_FULL") == NULL) {
        for (int i = 0; i < USUAL; i++) check_cell(p, &usual[i]);
        return;
    }
    for (size_t i = 0; i < sizeof every / sizeof every[0]; i++)
        for (int k = 0; k < 4; k++) {
            struct sized_cell cell = every[i];
            cell.model = k % 2 ? "qwen3" : "llama";
            cell.lora = k / 2;
            check_cell(p, &cell);
        }
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* What the plan for a budget takes; 0: the least there is. */
static int64_t planned(struct sized_place *p, struct ebb_engine_request *request, int64_t budget)
{
    struct ebb_engine *engine;
    request->device_budget = budget > 0 ? budget : 1;
    kit_ok(p->ctx, ebb_engine_create(p->ctx, request, &engine), "engine create");
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    int64_t bytes = plan->device_bytes;
    print_message("  budget %lld MiB: %lld MiB, %s\n", (long long)budget >> 20,
                  (long long)bytes >> 20, plan->what);
    assert_int_equal(plan->fits, budget > 0);
    ebb_engine_free(engine);
    request->device_budget = budget;
    return bytes;
}

static void check_budgets(struct sized_place *p, const struct sized_cell *cell)
{
    struct ebb_engine_request request = sized_request(p, cell);
    struct sized_trace want = sized_run(p, cell, &request);
    int64_t least = planned(p, &request, 0);
    assert_true(least < want.device_bytes);
    const int64_t budgets[] = {(least + want.device_bytes) / 2, least};
    for (int i = 0; i < 2; i++) {
        int64_t bytes = planned(p, &request, budgets[i]);
        assert_true(bytes <= budgets[i]);
        struct sized_trace got = sized_run(p, cell, &request);
        sized_same(&want, &got, 0, i ? "the smallest budget" : "a middling budget");
        assert_int_equal(got.device_bytes, bytes);
        sized_forget(&got);
    }
    sized_forget(&want);
}

static void a_smaller_budget_gives_the_same_bits(void **state)
{
    struct sized_place *p = (struct sized_place *)*state;
    check_budgets(p, largest);
    check_budgets(p, &usual[2]);
}

/* ---- resume ---------------------------------------------------------------------------------- */

static void check_resume(struct sized_place *p, const struct sized_cell *cell,
                         const struct mode *mode)
{
    char path[300];
    struct ebb_engine_request request = sized_keep(p, cell);
    snprintf(path, sizeof path, "%s/state.safetensors", p->dir);
    struct ebb_engine *engine = kit_engine(p->ctx, &request);
    struct ebb_numerics numerics = ebb_engine_plan(engine)->request.numerics;
    struct sized_trace want = sized_trace_of(engine, cell->steps);
    for (int s = 0; s < cell->steps; s++) {
        if (s == 2) kit_ok(p->ctx, ebb_engine_save_state(engine, path), "save");
        sized_step(cell, p->ctx, engine, s, &want);
    }
    sized_finish(engine, false, &want);
    ebb_engine_free(engine);
    request = sized_request(p, cell);
    set_mode(&request, mode);
    request.numerics = &numerics;
    engine = kit_engine(p->ctx, &request);
    kit_ok(p->ctx, ebb_engine_load_state(engine, path), "load");
    struct sized_trace got = sized_trace_of(engine, cell->steps);
    for (int s = 2; s < cell->steps; s++) sized_step(cell, p->ctx, engine, s, &got);
    sized_finish(engine, false, &got);
    ebb_engine_free(engine);
    sized_same(&want, &got, 2, "from the state after step 2");
    sized_forget(&want);
    sized_forget(&got);
}

static void a_run_goes_on_from_its_state_bit_for_bit(void **state)
{
    struct sized_place *p = (struct sized_place *)*state;
    check_resume(p, &usual[0], &modes[2]);
    check_resume(p, &usual[2], &modes[0]);
}

/* ---- without `deterministic` ----------------------------------------------------------------- */

/* The largest distance of a tensor's gradient from the deterministic one, as part of its norm. */
static double worst_gradient(const struct ebb_net *net, const float *want, const float *got,
                             const char **name)
{
    double worst = 0;
    for (int32_t i = 0; i < net->param_count; i++) {
        int64_t count = net->params[i].w.rows * net->params[i].w.cols;
        double square = 0, off = 0;
        for (int64_t k = 0; k < count; k++) {
            square += (double)want[k] * (double)want[k];
            off += ((double)got[k] - (double)want[k]) * ((double)got[k] - (double)want[k]);
        }
        if (square > 0 && sqrt(off / square) > worst) {
            worst = sqrt(off / square);
            *name = net->params[i].name;
        }
        want += count;
        got += count;
    }
    return worst;
}

static void check_free_order(struct sized_place *p, const struct sized_cell *cell)
{
    struct ebb_engine_request request = sized_keep(p, cell);
    struct sized_trace want = sized_run(p, cell, &request);
    for (int i = -1; i < 2; i++) { /* everything kept, and two modes */
        const char *mode = i < 0 ? "everything kept" : modes[i].name, *name = "none";
        request = sized_keep(p, cell);
        if (i >= 0) set_mode(&request, &modes[i]);
        request.deterministic = false;
        struct ebb_engine *engine = kit_engine(p->ctx, &request);
        struct sized_trace got = sized_trace_of(engine, cell->steps);
        sized_step(cell, p->ctx, engine, 0, &got);
        if (memcmp(&want.loss[0], &got.loss[0], sizeof(double)))
            fail_msg("%s: loss %.17g, deterministic %.17g", mode, got.loss[0], want.loss[0]);
        double worst = worst_gradient(ebb_engine_net(engine), want.first, got.first, &name);
        print_message("  %s, %d tokens, %s: gradients off by up to %.3g of their norm (%s)\n",
                      cell->model, (int)sized_tokens(cell->tokens), mode, worst, name);
        if (!(worst <= GRADIENT_BOUND))
            fail_msg("%s: the gradient of %s is off by %.3g, allowed %.3g", mode, name, worst,
                     GRADIENT_BOUND);
        ebb_engine_free(engine);
        sized_forget(&got);
    }
    sized_forget(&want);
}

static void without_deterministic_only_gradients_move(void **state)
{
    struct sized_place *p = (struct sized_place *)*state;
    static const struct sized_cell one = {"llama", false, ONE_8192, 1},
                                   packed = {"qwen3", false, PACKED_2048, 1};
    check_free_order(p, &one);
    check_free_order(p, &packed);
}

/* ---- the witness ----------------------------------------------------------------------------- */

/* Bytes at the end of the predicted memory that a run may leave alone: scratch is as large as the
 * op with most need of it says, which need not write the last byte. */
static int64_t slack_of(const struct ebb_plan *plan)
{
    const struct ebb_program *program = plan->programs[EBB_PROGRAM_TRAIN];
    int64_t slack = 0;
    for (int32_t t = 0; t < ebb_program_tensors(program); t++) {
        const struct ebb_tensor *tensor = ebb_program_tensor_at(program, t);
        if (tensor->space == EBB_SPACE_DEVICE && strcmp(tensor->name, "scratch") == 0 &&
            plan->device_bytes - (tensor->offset + tensor->bytes) < EBB_ALIGN_BYTES)
            slack = tensor->bytes;
    }
    return slack;
}

static void watch_mode(struct sized_place *p, const struct sized_cell *cell, int64_t room,
                       const struct mode *mode)
{
    struct ebb_engine_request request = sized_request(p, cell);
    struct sized_batch b;
    set_mode(&request, mode);
    request.whole_budget = true;
    request.device_budget = room;
    struct ebb_engine *engine = kit_engine(p->ctx, &request);
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    struct ebb_device *device = ebb_engine_device(engine);
    assert_int_equal(ebb_device_bytes(device, EBB_SPACE_DEVICE), room);
    struct witnesses witnesses = watch_engine(engine);
    sized_draw(cell, ebb_engine_config(engine)->vocab, 0, 0, &b);
    assert_int_equal(b.batch.tokens, request.capacity.tokens);
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        fill_both(&witnesses, pattern);
        ebb_engine_begin(engine);
        kit_ok(p->ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b.batch, 1, 0), "full batch");
        if (plan->update_in > 0) /* the sweep has blocks of its own in there */
            kit_ok(p->ctx, ebb_engine_update(engine, 1, 1e-3, (double)b.batch.labels), "update");
        look_at_both(&witnesses);
    }
    int64_t slack = slack_of(plan);
    print_message("  %s: predicted %lld bytes, the last one that changed is %lld, scratch at the "
                  "end %lld\n",
                  mode->name, (long long)plan->device_bytes, (long long)witnesses.device.last,
                  (long long)slack);
    assert_true(witnesses.device.last <= plan->device_bytes);
    if (slack == 0) expect_last(&witnesses.device, plan->device_bytes, mode->name, "device");
    assert_true(witnesses.device.last > plan->device_bytes - slack - EBB_ALIGN_BYTES);
    expect_last(&witnesses.host, plan->host_bytes, mode->name, "host");
    free_witnesses(&witnesses);
    free(b.ids);
    ebb_engine_free(engine);
}

static void no_byte_behind_the_predicted_ones_changes(void **state)
{
    struct sized_place *p = (struct sized_place *)*state;
    /* So many tokens that labels fill more than one chunk of the head. */
    static const struct sized_cell cell = {"llama", false, 4096, SIZED_DOCS, {{4096}, {4000}}, 1};
    struct ebb_engine_request request = sized_keep(p, &cell);
    struct sized_trace want = sized_run(p, &cell, &request);
    int64_t room = (want.device_bytes / 4096 + 4096) * 4096;
    sized_forget(&want);
    for (int i = 0; i < MODES; i++) watch_mode(p, &cell, room, &modes[i]);
}

/* ---- allocations of their own ---------------------------------------------------------------- */

static const struct sized_cell small_cell = {"small", false, 96, SIZED_DOCS, {{40, 1, 45, 7}, {96}},
                                             2};

/* Evaluation and decoding too, so that every kernel has run. */
static void use_other_programs(struct sized_place *p, const struct sized_cell *cell,
                               struct ebb_engine *engine)
{
    const float *logits;
    struct sized_batch b;
    int64_t vocab = ebb_engine_config(engine)->vocab;
    sized_draw(cell, vocab, 0, 0, &b);
    kit_ok(p->ctx, ebb_engine_micro(engine, EBB_PROGRAM_EVAL, &b.batch, 1, 0), "evaluation");
    kit_ok(p->ctx, ebb_engine_decode(engine, b.ids, 5, 0, &logits), "decoding");
    for (int64_t i = 0; i < vocab; i++) assert_true(isfinite((double)logits[i]));
    free(b.ids);
}

static struct sized_trace run_small(struct sized_place *p, const struct sized_cell *cell,
                                    enum ebb_dtype storage, const struct mode *mode, bool own)
{
    struct ebb_engine_request request = sized_keep(p, cell);
    if (mode) set_mode(&request, mode);
    if (!sized_on_gpu()) p->numerics.storage = storage;
    request.storage = storage;
    request.own_allocations = own;
    if (sized_on_gpu()) request.attention = EBB_ATTENTION_PLAIN;
    request.evaluate = request.decode = true;
    request.capacity.cache_tokens = 32;
    struct ebb_engine *engine = kit_engine(p->ctx, &request);
    struct sized_trace trace = sized_trace_of(engine, cell->steps);
    for (int s = 0; s < cell->steps; s++) sized_step(cell, p->ctx, engine, s, &trace);
    use_other_programs(p, cell, engine);
    sized_finish(engine, own, &trace);
    ebb_engine_free(engine);
    return trace;
}

/* `arena`: compare with a run in the arena; else among themselves, which takes fewer engines. */
static void check_own(struct sized_place *p, enum ebb_dtype storage, bool arena)
{
    struct sized_cell cell = small_cell;
    for (int lora = 0; lora < 2; lora++) {
        cell.lora = lora;
        struct sized_trace want = run_small(p, &cell, storage, NULL, !arena);
        struct sized_trace got = run_small(p, &cell, storage, &modes[lora ? MODES - 1 : 2], true);
        sized_sane(&want, "in one arena");
        sized_same(&want, &got, 0, "with allocations of their own");
        sized_forget(&want);
        sized_forget(&got);
    }
}

static void allocations_of_their_own_give_the_same_bits(void **state)
{
    check_own((struct sized_place *)*state, EBB_BF16, true);
    check_own((struct sized_place *)*state, EBB_F32, true);
}

static void for_sanitizers_in_bfloat16(void **state)
{
    check_own((struct sized_place *)*state, EBB_BF16, false);
}

static void for_sanitizers_in_float32(void **state)
{
    check_own((struct sized_place *)*state, EBB_F32, false);
}

static int open_small(void **state)
{
    struct sized_place *p = (struct sized_place *)malloc(sizeof *p);
    sized_open(p);
    sized_make_model(p, "small", &small_shape);
    *state = p;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_of_their_own_give_the_same_bits),
        cmocka_unit_test(policies_give_the_same_bits),
        cmocka_unit_test(a_smaller_budget_gives_the_same_bits),
        cmocka_unit_test(a_run_goes_on_from_its_state_bit_for_bit),
        cmocka_unit_test(without_deterministic_only_gradients_move),
        cmocka_unit_test(no_byte_behind_the_predicted_ones_changes),
    };
    const struct CMUnitTest narrow[] = {cmocka_unit_test(for_sanitizers_in_bfloat16)};
    const struct CMUnitTest wide[] = {cmocka_unit_test(for_sanitizers_in_float32)};
    if (argc > 1 && strcmp(argv[1], "own-allocations") != 0) {
        (void)fprintf(stderr, "usage: test_train_gpu [own-allocations [float32]]\n");
        return 2;
    }
    if (argc > 2) return cmocka_run_group_tests_name("own float32", wide, open_small, close_place);
    if (argc > 1)
        return cmocka_run_group_tests_name("own bfloat16", narrow, open_small, close_place);
    return cmocka_run_group_tests_name("sizes", tests, open_place, close_place);
}
