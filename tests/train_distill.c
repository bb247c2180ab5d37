/* Distillation in whole models: a teacher beside the student that is trained.
 *
 * The op against an oracle is in op_distill.c; here the teacher's run, both heads and everything
 * behind them are judged by finite differences, by what must be 0, and by what must be the same
 * bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_distill.h"
#include "train_modes.h"
#include "train_witness.h"

static const char *const divergence_names[EBB_DIVERGENCES] = {
    "forward KL",   "reverse KL",        "generalised JSD",
    "symmetric KL", "skewed forward KL", "skewed reverse KL"};

static struct ebb_distill_keys keys_of(int divergence, double kd_ratio)
{
    return (struct ebb_distill_keys){.divergence = (enum ebb_divergence)divergence,
                                     .beta = 0.3,
                                     .kd_ratio = kd_ratio,
                                     .temperature = 1.5,
                                     .scale_t2 = divergence % 2 == 1};
}

/* ---- nothing to learn ------------------------------------------------------------------------ */

/* On a GPU the product of a weight with an adapter's columns behind it is summed in another order
 * than the weight's alone: there an adapter that adds nothing leaves a trace of rounding. */
static void expect_zero(struct taught_place *p, const struct taught *t, const char *what)
{
    struct ebb_engine *engine = taught_engine(p, t);
    bool exact = !t->lora || kit_backend() == EBB_BACKEND_CPU;
    double most = exact ? 0 : 0.05;
    struct kit_batch b;
    taught_draw(&b, 0, 8);
    ebb_engine_begin(engine);
    struct ebb_sums sums = taught_micro(p, engine, EBB_PROGRAM_TRAIN, &b, 0);
    if (!(fabs(sums.divergence) <= most && fabs(sums.loss) <= most) || !(sums.cross_entropy > 0))
        fail_msg("%s: loss %g, divergence %g, cross-entropy %g", what, sums.loss, sums.divergence,
                 sums.cross_entropy);
    float *grads = taught_take(engine, true);
    for (int64_t i = 0; exact && i < taught_values(engine); i++)
        if (grads[i] != 0)
            fail_msg("%s: gradient %g of value %lld", what, (double)grads[i], (long long)i);
    free(grads);
    ebb_engine_free(engine);
}

static void a_teacher_that_is_the_student_teaches_nothing(void **state)
{
    static const char *const models[] = {"tied", "untied"};
    struct taught_place *p = (struct taught_place *)*state;
    for (int d = 0; d < EBB_DIVERGENCES; d++)
        for (int m = 0; m < 2; m++)
            for (int way = 0; way < 4; way++) {
                struct taught t = {.student = models[m],
                                   .teacher = models[m],
                                   .keys = keys_of(d, 1),
                                   .storage = way & 1 ? EBB_BF16 : EBB_F32,
                                   .lora = way > 1};
                char what[128];
                snprintf(what, sizeof what, "%s, %s, %s, %s", divergence_names[d], models[m],
                         way & 1 ? "bfloat16" : "float32", t.lora ? "LoRA" : "every weight");
                expect_zero(p, &t, what);
            }
}

/* An adapter that adds nothing yet changes nothing under dropout either, in student or teacher. */
static void dropout_of_the_student_does_not_touch_the_teacher(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    struct taught t = {.student = "untied",
                       .teacher = "untied",
                       .keys = keys_of(EBB_FORWARD_KL, 1),
                       .lora = true,
                       .dropout = 0.5},
                  alone = {.student = "untied", .lora = true, .dropout = 0.5};
    int dropouts[2] = {0, 0};
    expect_zero(p, &t, "dropout");
    for (int i = 0; i < 2; i++) {
        struct ebb_engine *engine = taught_engine(p, i ? &alone : &t);
        const struct ebb_program *program = ebb_engine_plan(engine)->programs[EBB_PROGRAM_TRAIN];
        const struct ebb_net *net = ebb_engine_net(engine);
        for (int32_t e = 0; e < ebb_program_entries(program); e++) {
            const struct ebb_entry *entry = ebb_program_entry_at(program, e);
            dropouts[i] += entry->kind == EBB_ENTRY_OP && entry->op == EBB_OP_dropout;
        }
        for (int32_t k = 0; k < net->tensor_count; k++)
            if (net->kinds[k] == EBB_KIND_ADAPTER)
                assert_true(strncmp(net->tensors[k].name, "teacher.", 8) != 0);
        ebb_engine_free(engine);
    }
    assert_true(dropouts[0] > 0);
    assert_int_equal(dropouts[0], dropouts[1]);
}

/* ---- finite differences ---------------------------------------------------------------------- */

static double loss_of(struct taught_place *p, struct ebb_engine *engine, const struct kit_batch *b)
{
    ebb_engine_begin(engine);
    return taught_micro(p, engine, EBB_PROGRAM_EVAL, b, 0).loss;
}

static double loss_with(struct taught_place *p, struct ebb_engine *engine,
                        const struct ebb_param *param, const float *values,
                        const struct kit_batch *b)
{
    kit_ok(p->ctx, ebb_engine_write_rows(engine, param, 0, param->w.rows, values), "write");
    return loss_of(p, engine, b);
}

/* Loss at values + at * direction and at values - at * direction, over their distance. */
static double slope(struct taught_place *p, struct ebb_engine *engine,
                    const struct ebb_param *param, const float *values, const float *direction,
                    double at, const struct kit_batch *b)
{
    int64_t count = param->w.rows * param->w.cols;
    float *moved = (float *)malloc((size_t)count * sizeof *moved);
    double loss[2];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++)
            moved[i] = (float)((double)values[i] + (side ? -at : at) * (double)direction[i]);
        loss[side] = loss_with(p, engine, param, moved, b);
    }
    free(moved);
    kit_ok(p->ctx, ebb_engine_write_rows(engine, param, 0, param->w.rows, values), "write");
    return (loss[0] - loss[1]) / (2 * at);
}

static void expect_slope(double got, double wanted, const char *what, const struct ebb_param *param)
{
    if (!(fabs(got - wanted) <= 0.01 * fabs(wanted) + 2e-3))
        fail_msg("%s: %s: slope %g, gradient %g", what, param->name, got, wanted);
}

/* Along the gradient and at the weights of the largest gradients. */
static void check_param(struct taught_place *p, struct ebb_engine *engine,
                        const struct ebb_param *param, const struct kit_batch *b, const char *what)
{
    enum { WEIGHTS = 2 };
    int64_t count = param->w.rows * param->w.cols;
    float *grad = (float *)malloc((size_t)count * sizeof *grad),
          *values = (float *)malloc((size_t)count * sizeof *values),
          *direction = (float *)calloc((size_t)count, sizeof *direction);
    double norm = 0;
    kit_ok(p->ctx, ebb_engine_read_grad(engine, param, grad), "gradient");
    kit_ok(p->ctx, ebb_engine_read_param(engine, param, values), "values");
    for (int64_t i = 0; i < count; i++) norm += (double)grad[i] * (double)grad[i];
    norm = sqrt(norm);
    assert_true(norm > 0);
    for (int64_t i = 0; i < count; i++) direction[i] = (float)((double)grad[i] / norm);
    expect_slope(slope(p, engine, param, values, direction, 5e-3, b), norm, what, param);
    memset(direction, 0, (size_t)count * sizeof *direction);
    for (int k = 0; k < WEIGHTS; k++) {
        int64_t largest = 0;
        for (int64_t i = 0; i < count; i++)
            if (fabsf(grad[i]) > fabsf(grad[largest])) largest = i;
        direction[largest] = 1;
        expect_slope(slope(p, engine, param, values, direction, 5e-3, b), (double)grad[largest],
                     what, param);
        direction[largest] = grad[largest] = 0;
    }
    free(grad);
    free(values);
    free(direction);
}

static void check_slopes(struct taught_place *p, const struct taught *t, const char *what)
{
    struct ebb_engine *engine = taught_engine(p, t);
    const struct ebb_net *net = ebb_engine_net(engine);
    struct kit_batch b;
    taught_draw(&b, 0, 8);
    ebb_engine_begin(engine);
    struct ebb_sums sums = taught_micro(p, engine, EBB_PROGRAM_TRAIN, &b, 0);
    assert_true(sums.divergence > 0 && isfinite(sums.loss));
    double weighed =
        (1 - t->keys.kd_ratio) * sums.cross_entropy + t->keys.kd_ratio * sums.divergence;
    if (fabs(sums.loss - weighed) > 1e-6 * weighed)
        fail_msg("%s: loss %.9g, its parts make %.9g", what, sums.loss, weighed);
    double again = loss_of(p, engine, &b);
    if (fabs(again - sums.loss) > (kit_backend() == EBB_BACKEND_CPU ? 0 : 1e-6 * again))
        fail_msg("%s: loss %.17g, in evaluation %.17g", what, sums.loss, again);
    for (int32_t i = 0; i < net->param_count; i++)
        check_param(p, engine, &net->params[i], &b, what);
    ebb_engine_free(engine);
}

static void students_of_another_shape_agree_with_finite_differences(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    static const char *const pairs[][2] = {{"tied", "teacher"},     {"untied", "wide"},
                                           {"tied", "padded"},      {"padded", "teacher"},
                                           {"padded_tied", "wide"}, {"untied", "padded_tied"}};
    for (int d = 0; d < EBB_DIVERGENCES; d++) {
        struct taught t = {.student = pairs[d][0],
                           .teacher = pairs[d][1],
                           .keys = keys_of(d, d % 3 == 0 ? 1 : 0.6)};
        char what[128];
        snprintf(what, sizeof what, "%s, %s learns from %s", divergence_names[d], t.student,
                 t.teacher);
        check_slopes(p, &t, what);
    }
}

/* ---- the teacher's own numbers --------------------------------------------------------------- */

/* KL(p, q) with p of a teacher is the reverse divergence where p's model is the student, whose run
 * golden files judge. The cross-entropy is that of a run without a teacher. */
static void exchanged_roles_give_the_same_divergence(void **state)
{
    static const char *const pairs[][2] = {{"tied", "teacher"},
                                           {"untied", "wide"},
                                           {"padded", "teacher"},
                                           {"tied", "padded_tied"}};
    struct taught_place *p = (struct taught_place *)*state;
    for (int i = 0; i < 4; i++) {
        struct taught t[3] = {{.student = pairs[i][0], .teacher = pairs[i][1]},
                              {.student = pairs[i][1], .teacher = pairs[i][0]},
                              {.student = pairs[i][0]}};
        struct ebb_sums sums[3];
        for (int k = 0; k < 3; k++) {
            t[k].keys = keys_of(k == 0 ? EBB_FORWARD_KL : EBB_REVERSE_KL, 0.5);
            t[k].keys.scale_t2 = false;
            struct ebb_engine *engine = taught_engine(p, &t[k]);
            struct kit_batch b;
            taught_draw(&b, 0, 8);
            ebb_engine_begin(engine);
            sums[k] = taught_micro(p, engine, EBB_PROGRAM_EVAL, &b, 0);
            ebb_engine_free(engine);
        }
        if (!(fabs(sums[0].divergence - sums[1].divergence) <= 1e-5 * sums[0].divergence))
            fail_msg("%s and %s: %.9g, exchanged %.9g", pairs[i][0], pairs[i][1],
                     sums[0].divergence, sums[1].divergence);
        bool same_columns = taught_shape(pairs[i][0])->vocab <= taught_shape(pairs[i][1])->vocab;
        if (same_columns && !(fabs(sums[0].cross_entropy - sums[2].loss) <= 1e-6 * sums[2].loss))
            fail_msg("%s: cross-entropy %.9g, without a teacher %.9g", pairs[i][0],
                     sums[0].cross_entropy, sums[2].loss);
    }
}

/* ---- accumulation ---------------------------------------------------------------------------- */

/* The eight documents in `micros` micro-batches. */
static struct ebb_sums accumulate(struct taught_place *p, struct ebb_engine *engine, int micros)
{
    ebb_engine_begin(engine);
    for (int m = 0; m < micros; m++) {
        struct kit_batch b;
        taught_draw(&b, m * 8 / micros, (m + 1) * 8 / micros);
        taught_micro(p, engine, EBB_PROGRAM_TRAIN, &b, (uint32_t)m);
    }
    return ebb_engine_sums(engine);
}

static void expect_near(double got, double wanted, const char *what)
{
    if (!(fabs(got - wanted) <= 2e-5 * fabs(wanted)))
        fail_msg("%s: %.9g, in one micro-batch %.9g", what, got, wanted);
}

static void accumulation_equals_one_large_micro_batch(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    for (int d = 0; d < EBB_DIVERGENCES; d++) {
        struct taught t = {.student = "tied", .teacher = "teacher", .keys = keys_of(d, 0.7)};
        struct ebb_engine *engine = taught_engine(p, &t);
        struct ebb_sums whole = accumulate(p, engine, 1);
        float *want = taught_take(engine, true), largest = 0;
        for (int64_t i = 0; i < taught_values(engine); i++)
            largest = fmaxf(largest, fabsf(want[i]));
        for (int micros = 2; micros <= 8; micros *= 4) {
            kit_ok(p->ctx, ebb_engine_drop_gradients(engine), "drop");
            struct ebb_sums sums = accumulate(p, engine, micros);
            float *got = taught_take(engine, true);
            assert_int_equal(sums.labels, whole.labels);
            assert_int_equal(sums.correct, whole.correct);
            expect_near(sums.loss, whole.loss, "loss");
            expect_near(sums.cross_entropy, whole.cross_entropy, "cross-entropy");
            expect_near(sums.divergence, whole.divergence, "divergence");
            for (int64_t i = 0; i < taught_values(engine); i++)
                if (!(fabsf(got[i] - want[i]) <= 2e-5f * largest))
                    fail_msg("%s, %d micro-batches: gradient %g of value %lld, in one %g",
                             divergence_names[d], micros, (double)got[i], (long long)i,
                             (double)want[i]);
            free(got);
        }
        free(want);
        ebb_engine_free(engine);
    }
}

static void a_micro_batch_without_labels_adds_nothing(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    struct taught t = {.student = "tied", .teacher = "teacher", .keys = keys_of(EBB_JSD, 0.5)};
    struct ebb_engine *engine = taught_engine(p, &t);
    struct kit_batch masked, b;
    taught_draw(&b, 0, 4);
    kit_batch_begin(&masked);
    taught_add(&masked, 70, 30, true);
    taught_add(&masked, 71, 6, true);
    assert_int_equal(masked.batch.labels, 0);
    ebb_engine_begin(engine);
    struct ebb_sums nothing = taught_micro(p, engine, EBB_PROGRAM_TRAIN, &masked, 0);
    float *grads = taught_take(engine, true);
    assert_true(nothing.loss == 0 && nothing.cross_entropy == 0 && nothing.divergence == 0);
    assert_int_equal(nothing.labels, 0);
    for (int64_t i = 0; i < taught_values(engine); i++) assert_true(grads[i] == 0);
    free(grads);
    struct ebb_sums one = taught_micro(p, engine, EBB_PROGRAM_TRAIN, &b, 1);
    grads = taught_take(engine, true);
    struct ebb_sums both = taught_micro(p, engine, EBB_PROGRAM_TRAIN, &masked, 2);
    float *after = taught_take(engine, true);
    assert_true(one.loss > 0 && one.loss == both.loss && one.divergence == both.divergence);
    assert_int_equal(one.labels, both.labels);
    for (int64_t i = 0; i < taught_values(engine); i++) assert_true(grads[i] == after[i]);
    free(grads);
    free(after);
    ebb_engine_free(engine);
}

/* ---- policies -------------------------------------------------------------------------------- */

enum { TAUGHT_STEPS = 3, TAUGHT_MICROS = 2 };

/* Everything that must be equal. */
struct trace {
    struct ebb_sums sums[TAUGHT_STEPS]; /* before the update */
    double norm[TAUGHT_STEPS];
    float *grads; /* of the last step */
    float *params;
    int64_t values, bytes_out, device_bytes;
};

static void forget(struct trace *trace)
{
    free(trace->grads);
    free(trace->params);
}

/* The teacher's tensors, all in one hash. */
static uint64_t hash_teacher(const struct ebb_engine *engine)
{
    const struct ebb_net *net = ebb_engine_net(engine);
    uint64_t hash = 0;
    for (int32_t i = 0; i < net->tensor_count; i++) {
        if (net->kinds[i] != EBB_KIND_TEACHER) continue;
        size_t bytes = (size_t)net->tensors[i].bytes;
        void *copy = malloc(bytes);
        assert_non_null(copy);
        assert_int_equal(ebb_device_copy(ebb_engine_device(engine), copy,
                                         ebb_engine_tensor(engine, i), (int64_t)bytes),
                         EBB_OK);
        hash = 31 * hash + ebb_hash_bytes(copy, bytes);
        free(copy);
    }
    assert_true(hash != 0);
    return hash;
}

static struct trace run(struct taught_place *p, const struct ebb_engine_request *request)
{
    struct trace trace;
    memset(&trace, 0, sizeof trace);
    struct ebb_engine *engine = kit_engine(p->ctx, request);
    uint64_t teacher = hash_teacher(engine);
    trace.values = taught_values(engine);
    for (uint64_t s = 0; s < TAUGHT_STEPS; s++) {
        ebb_engine_begin(engine);
        for (int m = 0; m < TAUGHT_MICROS; m++) {
            struct kit_batch b;
            taught_draw(&b, m * 4, m * 4 + 4);
            kit_ok(p->ctx,
                   ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b.batch, s + 1, (uint32_t)m),
                   "micro-batch");
        }
        trace.sums[s] = ebb_engine_sums(engine);
        if (s + 1 == TAUGHT_STEPS) trace.grads = taught_take(engine, true);
        kit_ok(p->ctx, ebb_engine_update(engine, s + 1, 1e-2, (double)trace.sums[s].labels),
               "update");
        trace.norm[s] = ebb_engine_sums(engine).grad_norm;
    }
    trace.params = taught_take(engine, false);
    struct ebb_engine_usage usage = ebb_engine_usage(engine);
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    trace.bytes_out = usage.bytes_out;
    trace.device_bytes = usage.predicted_device_bytes;
    assert_true((ebb_decoder_rows_tensor(ebb_decoder_teacher(engine->net)) >= 0) ==
                (request->host_budget == 0 && !engine->teacher->tied));
    if (!request->own_allocations) {
        int64_t runs = TAUGHT_STEPS * TAUGHT_MICROS;
        assert_true((plan->bytes_out > 0) == (usage.bytes_out > 0));
        assert_true(usage.bytes_out <= runs * plan->bytes_out + TAUGHT_STEPS * plan->update_out);
        assert_int_equal(usage.peak_device_bytes, usage.predicted_device_bytes);
    }
    assert_true(hash_teacher(engine) == teacher);
    ebb_engine_free(engine);
    return trace;
}

static void expect_same(const struct trace *want, const struct trace *got, const char *what)
{
    size_t bytes = (size_t)want->values * sizeof(float);
    assert_int_equal(want->values, got->values);
    for (int s = 0; s < TAUGHT_STEPS; s++)
        if (memcmp(&want->sums[s], &got->sums[s], sizeof want->sums[s]) != 0 ||
            memcmp(&want->norm[s], &got->norm[s], sizeof want->norm[s]) != 0)
            fail_msg("%s: step %d: loss %.17g and norm %.17g, want %.17g and %.17g", what, s + 1,
                     got->sums[s].loss, got->norm[s], want->sums[s].loss, want->norm[s]);
    if (memcmp(want->grads, got->grads, bytes)) fail_msg("%s: gradients differ", what);
    if (memcmp(want->params, got->params, bytes)) fail_msg("%s: parameters differ", what);
    for (int64_t i = 0; i < want->values; i++) assert_true(isfinite((double)want->params[i]));
}

static void check_policies(struct taught_place *p, const struct taught *t, const char *what)
{
    struct ebb_engine_request request = taught_request(p, t);
    request.memory.gradient_checkpointing = request.memory.activation_offloading = EBB_FALSE;
    kit_keep_tables(&request);
    struct trace want = run(p, &request);
    assert_int_equal(want.bytes_out, 0);
    for (int i = 0; i < MODES; i++) {
        char mode[256];
        request = taught_request(p, t);
        request.memory = modes[i].keys;
        request.memory.rules = modes[i].rules;
        request.streams = i % 2 == 0;
        struct trace got = run(p, &request);
        snprintf(mode, sizeof mode, "%s, %s", what, modes[i].name);
        expect_same(&want, &got, mode);
        if (strstr(modes[i].name, "host")) assert_true(got.bytes_out > 0);
        forget(&got);
    }
    forget(&want);
}

static void policies_give_the_same_bits(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    for (int d = 0; d < EBB_DIVERGENCES; d++)
        for (int way = 0; way < 4; way++) {
            struct taught t = {.student = d % 2 ? "untied" : "tied",
                               .teacher = "teacher",
                               .keys = keys_of(d, d < 2 ? 1 : 0.5),
                               .storage = way & 1 ? EBB_BF16 : EBB_F32,
                               .lora = way > 1,
                               .dropout = way > 1 ? 0.2 : 0};
            char what[128];
            snprintf(what, sizeof what, "%s, %s, %s", divergence_names[d],
                     way & 1 ? "bfloat16" : "float32", t.lora ? "LoRA" : "every weight");
            check_policies(p, &t, what);
        }
}

static void own_allocations_and_a_stressed_schedule_give_the_same_bits(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    struct taught t = {.student = "tied", .teacher = "teacher", .keys = keys_of(EBB_JSD, 0.5)};
    struct ebb_engine_request request = taught_request(p, &t);
    struct trace want = run(p, &request);
    for (int i = 0; i < 3; i++) {
        request.memory = modes[MODES - 1].keys;
        request.memory.rules = modes[MODES - 1].rules;
        request.own_allocations = i == 0;
        request.apart = i == 1;
        request.one_buffer = request.poison = i == 2;
        request.checksums = i == 2 && kit_backend() == EBB_BACKEND_CPU;
        struct trace got = run(p, &request);
        expect_same(&want, &got, i == 0 ? "own allocations" : i == 1 ? "apart" : "stressed");
        forget(&got);
    }
    forget(&want);
}

static void a_smaller_budget_gives_the_same_bits(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    struct taught t = {.student = "tied",
                       .teacher = "teacher",
                       .keys = keys_of(EBB_REVERSE_KL, 0.5),
                       .lora = true};
    struct ebb_engine_request request = taught_request(p, &t);
    struct trace want = run(p, &request);
    int64_t last = 0;
    int different = 0;
    for (int64_t less = 1; less < 16; less++) {
        struct ebb_engine *engine;
        request.device_budget = want.device_bytes - less * 20000;
        kit_ok(p->ctx, ebb_engine_create(p->ctx, &request, &engine), "create");
        bool fits = ebb_engine_plan(engine)->fits;
        int64_t bytes = ebb_engine_plan(engine)->device_bytes;
        ebb_engine_free(engine);
        if (!fits) break;
        assert_true(bytes <= request.device_budget);
        if (bytes == last) continue;
        last = bytes;
        different++;
        struct trace got = run(p, &request);
        expect_same(&want, &got, "smaller budget");
        forget(&got);
    }
    assert_true(different >= 2);
    forget(&want);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void predicted_bytes_are_the_last_bytes_that_change(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    struct taught t = {.student = "tied", .teacher = "teacher", .keys = keys_of(EBB_JSD, 0.5)};
    struct kit_batch b;
    kit_batch_begin(&b);
    taught_add(&b, 90, KIT_TOKENS, false);
    for (int i = 0; i < MODES; i++) {
        struct ebb_engine_request request = taught_request(p, &t);
        request.evaluate = false;
        request.memory = modes[i].keys;
        request.memory.rules = modes[i].rules;
        request.device_budget = 64 << 20;
        request.whole_budget = true;
        struct ebb_engine *engine = kit_engine(p->ctx, &request);
        const struct ebb_plan *plan = ebb_engine_plan(engine);
        struct witnesses witnesses = watch_engine(engine);
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            kit_ok(p->ctx, ebb_engine_drop_gradients(engine), "drop");
            fill_both(&witnesses, pattern);
            ebb_engine_begin(engine);
            taught_micro(p, engine, EBB_PROGRAM_TRAIN, &b, 0);
            look_at_both(&witnesses);
        }
        expect_both(&witnesses, plan, modes[i].name);
        assert_int_equal(ebb_engine_usage(engine).bytes_out, 2 * plan->bytes_out);
        assert_int_equal(ebb_engine_usage(engine).bytes_in, 2 * plan->bytes_in);
        free_witnesses(&witnesses);
        ebb_engine_free(engine);
    }
}

static void the_plan_has_the_teachers_weights(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    struct taught t = {.student = "tied", .teacher = "teacher", .keys = keys_of(EBB_JSD, 0.5)},
                  alone = {.student = "tied"};
    for (int storage = 0; storage < 2; storage++) {
        t.storage = alone.storage = storage ? EBB_BF16 : EBB_F32;
        struct ebb_engine *with = taught_engine(p, &t), *without = taught_engine(p, &alone);
        const int64_t *a = ebb_engine_plan(with)->kind_bytes,
                      *b = ebb_engine_plan(without)->kind_bytes;
        /* All but the input embedding, whose rows come from the host. */
        const struct ebb_model_config *teacher = ebb_engine_teacher(with);
        int64_t own = (ebb_model_config_parameters(teacher) - teacher->vocab * teacher->width) *
                      ebb_dtype_bytes(t.storage);
        /* Each tensor begins on a boundary of its own. */
        assert_true(a[EBB_KIND_TEACHER] >= own &&
                    a[EBB_KIND_TEACHER] < own + 100 * EBB_ALIGN_BYTES);
        assert_int_equal(b[EBB_KIND_TEACHER], 0);
        assert_int_equal(a[EBB_KIND_WEIGHTS], b[EBB_KIND_WEIGHTS]);
        assert_int_equal(a[EBB_KIND_GRADIENTS], b[EBB_KIND_GRADIENTS]);
        assert_int_equal(a[EBB_KIND_OPTIMIZER], b[EBB_KIND_OPTIMIZER]);
        assert_int_equal(taught_values(with), taught_values(without));
        ebb_engine_free(with);
        ebb_engine_free(without);
    }
}

/* ---- padded vocabularies --------------------------------------------------------------------- */

/* Makes rows `row` and later of the net's head NaN, or what `values` has of them. */
static void spoil_head(const struct ebb_engine *engine, bool teachers, int64_t row)
{
    const struct ebb_net *net = ebb_engine_net(engine);
    const struct ebb_weight_list *list = teachers ? &engine->teacher_weights : &engine->weights;
    if (teachers) net = ebb_decoder_teacher(net);
    for (int64_t i = 0; i < list->count; i++) {
        if (!strstr(list->items[i].name, "lm_head") && !strstr(list->items[i].name, "embed"))
            continue;
        struct ebb_view view = ebb_decoder_weight(net, i);
        if (view.tensor < 0) continue; /* of such an embedding only rows that occur are read */
        for (int64_t k = row; k < list->items[i].rows; k++) kit_spoil(engine, &view, k, view.cols);
    }
}

/* Rows that only one of the two has do not count: whatever they are, no number changes. */
static void check_padding(struct taught_place *p, const char *student, const char *teacher,
                          bool teachers, int divergence)
{
    struct taught t = {.student = student, .teacher = teacher, .keys = keys_of(divergence, 0.5)};
    struct ebb_engine *engine = taught_engine(p, &t);
    struct kit_batch b;
    taught_draw(&b, 0, 8);
    double loss[2];
    float *grads[2];
    for (int i = 0; i < 2; i++) {
        if (i == 1) spoil_head(engine, teachers, TAUGHT_IDS);
        kit_ok(p->ctx, ebb_engine_drop_gradients(engine), "drop");
        ebb_engine_begin(engine);
        loss[i] = taught_micro(p, engine, EBB_PROGRAM_TRAIN, &b, 0).loss;
        grads[i] = taught_take(engine, true);
    }
    assert_true(isfinite(loss[0]) && loss[0] > 0);
    if (loss[0] != loss[1])
        fail_msg("%s of %s: loss %g, then %g", student, teacher, loss[0], loss[1]);
    free(grads[1]);
    const struct ebb_net *net = ebb_engine_net(engine);
    const float *at = grads[0];
    for (int32_t i = 0; i < net->param_count; i++) {
        const struct ebb_param *param = &net->params[i];
        bool table = param->w.rows == taught_shape(student)->vocab;
        for (int64_t k = 0; table && k < param->w.rows * param->w.cols; k++)
            if (k / param->w.cols >= TAUGHT_IDS) assert_true(at[k] == 0);
        at += param->w.rows * param->w.cols;
    }
    free(grads[0]);
    ebb_engine_free(engine);
}

static void rows_that_only_one_of_the_two_has_do_not_count(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    for (int d = 0; d < EBB_DIVERGENCES; d++) {
        check_padding(p, "padded", "teacher", false, d);
        check_padding(p, "padded_tied", "wide", false, d);
        check_padding(p, "untied", "padded", true, d);
        check_padding(p, "tied", "padded_tied", true, d);
    }
}

static void ids_beyond_the_teachers_table_are_refused(void **state)
{
    struct taught_place *p = (struct taught_place *)*state;
    struct taught t = {.student = "padded", .teacher = "teacher", .keys = keys_of(EBB_JSD, 0.5)};
    struct ebb_engine *engine = taught_engine(p, &t);
    struct kit_batch b;
    taught_draw(&b, 0, 1);
    b.ids[1] = TAUGHT_IDS;
    assert_int_equal(ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b.batch, 1, 0), EBB_FAILED);
    assert_non_null(
        strstr(ebb_error_text(p->ctx), "token 1 has id 96, the teacher's embedding has 96 rows"));
    ebb_error_clear(p->ctx);
    ebb_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_teacher_that_is_the_student_teaches_nothing),
        cmocka_unit_test(dropout_of_the_student_does_not_touch_the_teacher),
        cmocka_unit_test(students_of_another_shape_agree_with_finite_differences),
        cmocka_unit_test(exchanged_roles_give_the_same_divergence),
        cmocka_unit_test(accumulation_equals_one_large_micro_batch),
        cmocka_unit_test(a_micro_batch_without_labels_adds_nothing),
        cmocka_unit_test(rows_that_only_one_of_the_two_has_do_not_count),
        cmocka_unit_test(ids_beyond_the_teachers_table_are_refused),
        cmocka_unit_test(the_plan_has_the_teachers_weights),
        cmocka_unit_test(predicted_bytes_are_the_last_bytes_that_change),
        cmocka_unit_test(own_allocations_and_a_stressed_schedule_give_the_same_bits),
        cmocka_unit_test(a_smaller_budget_gives_the_same_bits),
        cmocka_unit_test(policies_give_the_same_bits),
    };
    return cmocka_run_group_tests_name("distillation", tests, taught_open, taught_close);
}
