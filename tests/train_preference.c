/* Preference training through whole models: gradients against finite differences, references of
 * every kind, accumulation, pairs that stay together.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_preference_kit.h"

static const char *const reference_names[] = {"none", "base", "model", "given"};

/* Of fp32 sums in another order: products may add in another order where a matrix has another
 * number of rows. */
static const double rounding = 2e-6;

/* ---- finite differences ---- */

/* Moves a parameter along `direction`, `by` times. */
static void move(struct bench *b, const struct ebb_param *p, const float *start,
                 const float *direction, double by)
{
    char *at = (char *)ebb_engine_tensor(b->engine, p->w.tensor) + p->w.offset;
    float *row = (float *)malloc((size_t)p->w.cols * sizeof *row);
    for (int64_t i = 0; i < p->w.rows; i++) {
        for (int64_t k = 0; k < p->w.cols; k++)
            row[k] = (float)((double)start[i * p->w.cols + k] +
                             by * (double)direction[i * p->w.cols + k]);
        kit_ok(b->c.ctx,
               ebb_device_copy(ebb_engine_device(b->engine),
                               at + i * p->w.stride * (int64_t)sizeof *row, row,
                               p->w.cols * (int64_t)sizeof *row),
               "copy");
    }
    free(row);
}

/* The derivative along random signs, by the gradient and by differences. */
static void check_direction(struct bench *b, const struct ebb_param *p, const float *grad,
                            int64_t number)
{
    int64_t count = p->w.rows * p->w.cols;
    float *start = (float *)malloc((size_t)count * sizeof *start);
    float *direction = (float *)malloc((size_t)count * sizeof *direction);
    double want = 0, length = 0;
    ebb_engine_read_param(b->engine, p, start);
    for (int64_t i = 0; i < count; i++) {
        uint32_t words[4];
        ebb_philox(9 + (uint64_t)number, (uint64_t)i, words);
        /* Most signs are the gradient's, so that no small difference is left. */
        bool with = words[0] % 4 != 0;
        direction[i] = (grad[i] < 0) == with ? -1.0f : 1.0f;
        want += (double)(grad[i] * direction[i]);
        length += (double)grad[i] * (double)grad[i];
    }
    /* A step of the same length for every matrix. */
    double step = 0.02 / sqrt((double)count), loss[2];
    for (int i = 0; i < 2; i++) {
        move(b, p, start, direction, i ? step : -step);
        loss[i] = run_epoch(b, EBB_PROGRAM_EVAL).loss;
    }
    move(b, p, start, direction, 0);
    double got = (loss[1] - loss[0]) / (2 * step);
    if (!(fabs(got - want) <= 0.01 * fabs(want) + 0.02 * sqrt(length)) || !(length > 0))
        fail_msg("%s, %s, %s: the gradient along %lld is %.6g, the differences' %.6g (norm %g)",
                 b->cell.golden, loss_names[b->cell.loss], p->name, (long long)number, want, got,
                 sqrt(length));
    free(start);
    free(direction);
}

static void check_gradient(const char *golden, enum ebb_preference loss, bool mute)
{
    struct bench b;
    struct cell cell = {golden, EBB_F32, loss, EBB_REFERENCE_GIVEN, .batch = PAIRS, .mute = mute};
    if (loss == EBB_PREFERENCE_KTO) cell.batch = 2 * PAIRS;
    open_bench(&b, &cell);
    /* The reference differs from the model. Of KL examples it says more: their mean is below 0, for
     * the differences would see z0 move, which is a constant to the gradient. */
    for (int64_t i = 0; needs_reference(loss) && i < b.given.offsets[b.data->count]; i++) {
        uint32_t words[4];
        ebb_philox(8, (uint64_t)i, words);
        b.given.logprobs[i] += (float)(words[0] % 1000) / 1000.0f - 0.2f;
    }
    struct ebb_sums sums = run_epoch(&b, EBB_PROGRAM_TRAIN);
    assert_true(isfinite(sums.loss) && sums.preference.kl == 0);
    float *grads = (float *)malloc((size_t)bench_values(&b) * sizeof *grads), *grad = grads;
    kit_read_all(b.engine, true, grads);
    const struct ebb_net *net = ebb_engine_net(b.engine);
    for (int32_t i = 0; i < net->param_count; i++) {
        const struct ebb_param *p = &net->params[i];
        if (p->trained) check_direction(&b, p, grad, i);
        grad += p->w.rows * p->w.cols;
    }
    free(grads);
    close_bench(&b);
}

static void gradients_of_all_weights_are_those_of_differences(void **state)
{
    (void)state;
    for (int loss = 0; loss < EBB_PREFERENCES; loss++)
        check_gradient("llama3", (enum ebb_preference)loss, false);
}

static void gradients_of_adapters_are_those_of_differences(void **state)
{
    (void)state;
    for (int loss = 0; loss < EBB_PREFERENCES; loss++)
        check_gradient("qwen3_lora", (enum ebb_preference)loss, true);
}

/* ---- references ---- */

/* Model and reference are the same: nobody wins. Weights with an adapter lie with its columns
 * beside them, and a product over rows further apart may round differently (op/matmul.h): beside an
 * adapter the two are equal but for that. */
static void check_equal(const char *golden, enum ebb_dtype storage, enum ebb_preference loss,
                        enum ebb_reference reference, double mean)
{
    struct bench b;
    struct cell cell = {golden, storage, loss, reference, .fresh = true};
    open_bench(&b, &cell);
    double slack = !b.c.lora ? 0 : storage == EBB_F32 ? 1e-5 : 1e-2;
    for (int kind = 0; kind < 2; kind++) {
        struct ebb_sums sums = run_epoch(&b, kind ? EBB_PROGRAM_EVAL : EBB_PROGRAM_TRAIN);
        const struct ebb_preference_sums *p = &sums.preference;
        double each = (double)p->examples;
        if (!(fabs(p->margins) / each <= slack && fabs(p->rewards_chosen) / each <= slack &&
              fabs(p->rewards_rejected) / each <= slack && fabs(p->kl) / each <= slack))
            fail_msg("%s, %s, %s: rewards %g and %g, kl %g", golden, loss_names[loss],
                     reference_names[reference], p->rewards_chosen, p->rewards_rejected, p->kl);
        if (!(fabs(sums.loss / each - mean) <= 10 * slack + 1e-12))
            fail_msg("%s, %s: the loss is %.17g, want %.17g", golden, loss_names[loss],
                     sums.loss / each, mean);
    }
    close_bench(&b);
}

static void a_model_that_equals_its_reference_has_no_margin(void **state)
{
    const double none = log(2);
    (void)state;
    for (int storage = 0; storage < 2; storage++) {
        enum ebb_dtype dtype = storage ? EBB_BF16 : EBB_F32;
        for (int reference = EBB_REFERENCE_MODEL; reference <= EBB_REFERENCE_GIVEN; reference++)
            check_equal("llama3", dtype, EBB_PREFERENCE_SIGMOID, (enum ebb_reference)reference,
                        none);
        for (int reference = EBB_REFERENCE_BASE; reference <= EBB_REFERENCE_GIVEN; reference++)
            check_equal("llama3_lora", dtype, EBB_PREFERENCE_SIGMOID, (enum ebb_reference)reference,
                        none);
    }
    check_equal("llama3_lora", EBB_F32, EBB_PREFERENCE_HINGE, EBB_REFERENCE_BASE, 1);
    check_equal("qwen3", EBB_F32, EBB_PREFERENCE_IPO, EBB_REFERENCE_MODEL, pow(1 / 0.6, 2));
    /* Half of the answers weigh 1.25, half 0.75. */
    check_equal("qwen3_lora", EBB_F32, EBB_PREFERENCE_KTO, EBB_REFERENCE_BASE, 0.5);
}

static void near(double got, double want, double slack, const char *what)
{
    if (!(fabs(got - want) <= slack)) fail_msg("%s: %.12g, want %.12g", what, got, want);
}

/* The first step is equal up to rounding. */
static void expect_near(const struct trace *want, const struct trace *got, double share,
                        const char *what)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < want->values; i++) {
        off += pow((double)(got->grads[i] - want->grads[i]), 2);
        norm += pow((double)want->grads[i], 2);
    }
    near(sqrt(off), 0, share * sqrt(norm), what);
    near(got->sums[0].loss, want->sums[0].loss, share * fabs(want->sums[0].loss), what);
}

/* Where the reference comes from changes no bit, or where it shares its weights with the adapter
 * what rounding changes. */
static void check_references(const char *golden, enum ebb_dtype storage, enum ebb_preference loss,
                             double dropout)
{
    struct trace want, given, base;
    char what[120];
    struct cell cell = {golden, storage, loss, EBB_REFERENCE_MODEL, .dropout = dropout};
    snprintf(what, sizeof what, "%s, %s, %s", golden, ebb_dtype_name(storage), loss_names[loss]);
    trace_run(&cell, &want);
    cell.reference = EBB_REFERENCE_GIVEN;
    trace_run(&cell, &given);
    expect_same(&want, &given, what);
    cell.reference = EBB_REFERENCE_BASE;
    trace_run(&cell, &base);
    expect_near(&want, &base, storage == EBB_F32 ? 1e-5 : 2e-2, what);
    free_trace(&want);
    free_trace(&given);
    free_trace(&base);
}

static void references_of_every_kind_are_the_same(void **state)
{
    (void)state;
    for (int loss = 0; loss < EBB_PREFERENCES; loss++) {
        if (!needs_reference((enum ebb_preference)loss)) continue;
        check_references("llama3_lora", EBB_F32, (enum ebb_preference)loss, 0);
        check_references("qwen3_lora", EBB_BF16, (enum ebb_preference)loss, 0);
    }
}

/* Dropout draws for the model that is trained alone: a second model and numbers made beforehand,
 * which know nothing of it, say the same. */
static void dropout_does_not_touch_the_reference(void **state)
{
    struct cell cell = {"llama3_lora", EBB_F32, EBB_PREFERENCE_SIGMOID, EBB_REFERENCE_BASE,
                        .batch = 2};
    struct trace without, with;
    (void)state;
    check_references("llama3_lora", EBB_F32, EBB_PREFERENCE_SIGMOID, 0.3);
    check_references("llama3_lora", EBB_BF16, EBB_PREFERENCE_KTO, 0.3);
    cell.fresh = true;
    trace_run(&cell, &without);
    cell.dropout = 0.3;
    trace_run(&cell, &with);
    /* It does touch the model: from the second step on, when B is not 0 any more. */
    assert_memory_equal(&with.sums[0].loss, &without.sums[0].loss, sizeof(double));
    assert_memory_not_equal(&with.sums[2].loss, &without.sums[2].loss, sizeof(double));
    free_trace(&without);
    free_trace(&with);
}

/* ---- batches ---- */

static struct ebb_sums grads_of(const struct cell *cell, float **grads, int64_t *values)
{
    struct bench b;
    open_bench(&b, cell);
    *values = bench_values(&b);
    *grads = (float *)malloc((size_t)*values * sizeof **grads);
    struct ebb_sums sums = run_epoch(&b, EBB_PROGRAM_TRAIN);
    kit_read_all(b.engine, true, *grads);
    close_bench(&b);
    return sums;
}

/* The same pairs in other micro-batches. */
static void check_arrangement(const struct cell *cell, const struct ebb_sums *want,
                              const float *want_grads, const char *what)
{
    float *grads;
    int64_t values;
    double off = 0, norm = 0;
    struct ebb_sums sums = grads_of(cell, &grads, &values);
    for (int64_t i = 0; i < values; i++) {
        off += pow((double)(grads[i] - want_grads[i]), 2);
        norm += pow((double)want_grads[i], 2);
    }
    near(sqrt(off), 0, rounding * sqrt(norm), what);
    near(sums.loss, want->loss, rounding * fabs(want->loss), what);
    const struct ebb_preference_sums *p = &sums.preference, *q = &want->preference;
    assert_int_equal(sums.labels, want->labels);
    assert_int_equal(p->examples, PAIRS);
    assert_int_equal(p->accuracies, q->accuracies);
    near(p->margins, q->margins, rounding * (fabs(q->rewards_chosen) + fabs(q->rewards_rejected)),
         what);
    near(p->logps_chosen, q->logps_chosen, rounding * fabs(q->logps_chosen), what);
    near(p->logps_rejected, q->logps_rejected, rounding * fabs(q->logps_rejected), what);
    near(p->nll_chosen, q->nll_chosen, rounding * fabs(q->nll_chosen), what);
    free(grads);
}

static void check_accumulation(const char *golden, enum ebb_preference loss, bool mute)
{
    static const int64_t batches[] = {4, 3, 1};
    struct cell cell = {golden, EBB_F32, loss, EBB_REFERENCE_MODEL, .batch = PAIRS, .mute = mute};
    float *grads;
    int64_t values;
    char what[120];
    if (strstr(golden, "lora")) cell.reference = EBB_REFERENCE_BASE;
    struct ebb_sums sums = grads_of(&cell, &grads, &values);
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        cell.batch = batches[i];
        snprintf(what, sizeof what, "%s, %s, batches of %d", golden, loss_names[loss],
                 (int)cell.batch);
        check_arrangement(&cell, &sums, grads, what);
    }
    cell.batch = 1;
    cell.bin = 2 * LONGEST + 20;
    snprintf(what, sizeof what, "%s, %s, packed", golden, loss_names[loss]);
    check_arrangement(&cell, &sums, grads, what);
    free(grads);
}

/* But for kto, whose z0 is a micro-batch's. */
static void micro_batches_add_up_to_one_big_batch(void **state)
{
    (void)state;
    for (int loss = 0; loss < EBB_PREFERENCE_KTO; loss++) {
        check_accumulation("llama3", (enum ebb_preference)loss, false);
        check_accumulation("qwen3_lora", (enum ebb_preference)loss, true);
    }
}

static void check_together(const struct ebb_dataset *data, struct ebb_ctx *ctx, int64_t batch,
                           int64_t bin)
{
    struct ebb_loader *loader = make_loader(ctx, data, batch, bin, true);
    int64_t micros = ebb_loader_describe(loader)->micros_per_epoch, seen = 0;
    for (int64_t m = 0; m < 3 * micros; m++) {
        const struct ebb_batch *next;
        kit_ok(ctx, ebb_loader_next(ctx, loader, &next), "next");
        const int64_t *samples = ebb_loader_samples(loader);
        assert_int_equal(next->docs % 2, 0);
        for (int64_t d = 0; d < next->docs; d += 2) {
            assert_int_equal(samples[d] % 2, 0);
            assert_int_equal(samples[d + 1], samples[d] + 1);
        }
        for (int64_t d = 0; d < next->docs; d++)
            assert_int_equal(next->doc_starts[d + 1] - next->doc_starts[d],
                             ebb_dataset_length(data, samples[d]));
        seen += next->docs;
    }
    assert_int_equal(seen, 3 * data->count);
    ebb_loader_free(ctx, loader);
}

static void a_pair_is_never_split(void **state)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct cell cell = {.loss = EBB_PREFERENCE_SIGMOID};
    (void)state;
    for (int kto = 0; kto < 2; kto++) {
        if (kto) cell.loss = EBB_PREFERENCE_KTO;
        struct ebb_dataset *data = make_data(ctx, &cell);
        for (int64_t batch = 1; batch < 6; batch++) {
            check_together(data, ctx, batch, 0);
            check_together(data, ctx, batch, 2 * LONGEST + 5 * batch);
        }
        ebb_dataset_free(ctx, data);
    }
    ebb_ctx_free(ctx);
}

static void half_a_pair_is_refused(void **state)
{
    struct bench b;
    struct cell cell = {"llama3", EBB_F32, EBB_PREFERENCE_SIMPO, .batch = 2};
    const struct ebb_batch *batch;
    (void)state;
    open_bench(&b, &cell);
    kit_ok(b.c.ctx, ebb_loader_next(b.c.ctx, b.loader, &batch), "next");
    struct ebb_batch half = *batch;
    half.docs = 3;
    half.tokens = half.doc_starts[3];
    while (half.label_rows[half.labels - 1] >= half.tokens) half.labels--;
    assert_int_not_equal(ebb_engine_micro(b.engine, EBB_PROGRAM_TRAIN, &half, 1, 0), EBB_OK);
    assert_non_null(strstr(ebb_error_text(b.c.ctx), "3 documents are no pairs"));
    ebb_error_clear(b.c.ctx);
    close_bench(&b);
}

/* A pair without any labels: no preference, and nothing to learn. */
static void answers_without_labels_count_and_train_nothing(void **state)
{
    struct bench b;
    struct cell cell = {"llama3", EBB_F32, EBB_PREFERENCE_SIGMOID, EBB_REFERENCE_MODEL, .batch = 2};
    (void)state;
    for (int loss = 0; loss < EBB_PREFERENCES; loss++) {
        cell.loss = (enum ebb_preference)loss;
        open_bench(&b, &cell);
        memset(b.data->trained, 0, (size_t)((b.data->stored + 31) / 32) * sizeof(uint32_t));
        struct ebb_sums sums = run_epoch(&b, EBB_PROGRAM_TRAIN);
        assert_int_equal(sums.labels, 0);
        assert_int_equal(sums.preference.examples, loss == EBB_PREFERENCE_KTO ? 2 * PAIRS : PAIRS);
        assert_true(isfinite(sums.loss));
        assert_true(sums.preference.margins == 0 && sums.preference.logps_chosen == 0);
        float *grads = (float *)malloc((size_t)bench_values(&b) * sizeof *grads);
        kit_read_all(b.engine, true, grads);
        for (int64_t i = 0; i < bench_values(&b); i++) assert_true(grads[i] == 0);
        free(grads);
        close_bench(&b);
    }
}

/* kto: what belongs to another prompt is measured and not trained, kinds are counted. */
static void kl_examples_only_measure(void **state)
{
    struct bench b;
    struct cell cell = {"llama3_lora", EBB_F32, EBB_PREFERENCE_KTO, EBB_REFERENCE_GIVEN,
                        .batch = 2 * PAIRS};
    (void)state;
    open_bench(&b, &cell);
    double z0 = 0;
    for (int higher = 0; higher < 2; higher++) {
        /* The second time every KL example is less likely to the reference: z0 is the mean. */
        for (int64_t d = 0; higher && d < b.data->count; d++)
            for (int64_t i = b.given.offsets[d];
                 b.data->desirable[d] == EBB_DATASET_KL && i < b.given.offsets[d + 1]; i++)
                b.given.logprobs[i] -= 0.5f;
        struct ebb_sums sums = run_epoch(&b, EBB_PROGRAM_TRAIN);
        const struct ebb_preference_sums *p = &sums.preference;
        assert_int_equal(p->desirable, PAIRS);
        assert_int_equal(p->undesirable, PAIRS);
        assert_int_equal(p->examples, 2 * PAIRS);
        assert_int_equal(p->kl_batches, 1);
        assert_int_equal(sums.labels, b.data->labels);
        if (higher) {
            int64_t labels = 0;
            for (int64_t d = 0; d < b.data->count; d++)
                if (b.data->desirable[d] == EBB_DATASET_KL)
                    labels += b.given.offsets[d + 1] - b.given.offsets[d];
            double more = 0.5 * (double)labels / (2 * PAIRS);
            assert_true(p->kl > z0 && p->kl <= z0 + more + 1e-4 && p->kl > 0.5);
        }
        z0 = p->kl;
    }
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_all_weights_are_those_of_differences),
        cmocka_unit_test(gradients_of_adapters_are_those_of_differences),
        cmocka_unit_test(a_model_that_equals_its_reference_has_no_margin),
        cmocka_unit_test(references_of_every_kind_are_the_same),
        cmocka_unit_test(dropout_does_not_touch_the_reference),
        cmocka_unit_test(micro_batches_add_up_to_one_big_batch),
        cmocka_unit_test(a_pair_is_never_split),
        cmocka_unit_test(half_a_pair_is_refused),
        cmocka_unit_test(answers_without_labels_count_and_train_nothing),
        cmocka_unit_test(kl_examples_only_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
