/* However documents are put together, they train alike: one sample a micro-batch, batches of
 * several, batches by length and packed bins give the same loss for each trained token and the same
 * gradient, and both are those of right-padded batches with an attention mask in PyTorch.
 *
 * No pad token is ever computed here. The golden values stand for padded batches, for their maker
 * asserts for each of its micro-batches that transformers' padded loss and gradient are those of
 * the documents alone (tools/golden_models.py, check_three_ways; case.json keeps how near).
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"

#include "data/loader.h"
#include "model/safetensors.h"
#include "train/trainer.h"

enum { DOCS = 160, TOKENS = DOCS * 40, VOCAB = 96 };

/* What float32 may lose, of a loss: a matrix product may add in another order where it has another
 * number of rows (op/matmul.h promises the same bits for the same shape only). Narrow products do,
 * those of LoRA in float32: 3e-8. */
static const double rounding = 1e-6;

struct arrangement {
    const char *name;
    struct ebb_loader_options options;
    bool pairs; /* two samples belong together */
};

static const struct arrangement arrangements[] = {
    {"one sample a micro-batch", {.per_device_batch_size = 1}, false},
    {"batches of 5", {.per_device_batch_size = 5, .shuffle = true, .seed = 1}, false},
    {"batches of 4 by length",
     {.per_device_batch_size = 4, .shuffle = true, .group_by_length = true, .seed = 2},
     false},
    {"bins of 48", {.per_device_batch_size = 1, .packing = true, .max_length = 48}, false},
    {"bins of 200, shuffled",
     {.per_device_batch_size = 1, .packing = true, .max_length = 200, .shuffle = true, .seed = 3},
     false},
    {"three bins of 64",
     {.per_device_batch_size = 3, .packing = true, .max_length = 64, .shuffle = true},
     false},
    {"two pairs", {.per_device_batch_size = 2, .shuffle = true}, true},
    {"bins of pairs", {.per_device_batch_size = 1, .packing = true, .max_length = 90}, true},
};
enum { ARRANGEMENTS = sizeof arrangements / sizeof arrangements[0] };

struct bench {
    struct kit_case c;
    struct ebb_numerics numerics;
    struct ebb_dataset *data;
    struct ebb_engine *engine;
};

/* ---- data ---- */

static void set_trained(struct ebb_dataset *data, int64_t sample, int64_t place, bool trained)
{
    int64_t bit = data->starts[sample] + place;
    uint32_t mask = (uint32_t)1 << (bit & 31);
    data->trained[bit >> 5] = (data->trained[bit >> 5] & ~mask) | (trained ? mask : 0);
}

/* The documents of the golden case's first `steps` steps, an even number of them. */
static struct ebb_dataset *golden_data(struct kit_case *c, int64_t steps)
{
    int32_t *ids = (int32_t *)malloc(TOKENS * sizeof *ids);
    int32_t *targets = (int32_t *)malloc(TOKENS * sizeof *targets);
    int64_t lengths[DOCS], count = 0, used = 0;
    struct ebb_dataset *data;
    for (int64_t s = 0; s < steps; s++)
        for (int64_t m = 0; m < c->micros[s]; m++) {
            const struct ebb_batch *batch = &c->batches[s][m]->batch;
            for (int64_t d = 0; d < batch->docs; d++)
                lengths[count++] = batch->doc_starts[d + 1] - batch->doc_starts[d];
            memcpy(ids + used, batch->ids, (size_t)batch->tokens * sizeof *ids);
            memcpy(targets + used, batch->targets, (size_t)batch->tokens * sizeof *targets);
            used += batch->tokens;
        }
    if (count % 2 == 1) { /* one more that trains nothing */
        ids[used] = 5;
        targets[used++] = EBB_IGNORE;
        lengths[count++] = 1;
    }
    kit_ok(c->ctx, ebb_dataset_from_ids(c->ctx, ids, lengths, NULL, count, &data), "data set");
    data->labels = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < lengths[i]; t++) {
            bool trained = t > 0 && targets[data->starts[i] + t - 1] != EBB_IGNORE;
            set_trained(data, i, t, trained);
            data->labels += trained;
        }
    free(ids);
    free(targets);
    return data;
}

static struct ebb_loader *arrange(struct bench *b, const struct arrangement *a)
{
    struct ebb_loader *loader;
    b->data->group = a->pairs ? 2 : 1;
    kit_ok(b->c.ctx, ebb_loader_create(b->c.ctx, b->data, &a->options, &loader), a->name);
    return loader;
}

static void open_bench(struct bench *b, const char *name, enum ebb_dtype storage, int64_t steps)
{
    memset(b, 0, sizeof *b);
    kit_case_open(&b->c, name);
    b->numerics = kit_numerics(storage);
    b->data = golden_data(&b->c, steps);
    struct ebb_engine_request request = kit_request(&b->c, &b->numerics);
    request.storage = storage;
    request.evaluate = true;
    for (int i = 0; i < ARRANGEMENTS; i++) {
        struct ebb_loader *loader = arrange(b, &arrangements[i]);
        int64_t tokens = ebb_loader_describe(loader)->tokens_max;
        if (tokens > request.capacity.tokens) request.capacity.tokens = tokens;
        ebb_loader_free(b->c.ctx, loader);
    }
    b->engine = kit_engine(b->c.ctx, &request);
}

static void close_bench(struct bench *b)
{
    ebb_engine_free(b->engine);
    ebb_dataset_free(b->c.ctx, b->data);
    assert_int_equal(ebb_mem_bytes_now(b->c.ctx), 0);
    kit_case_close(&b->c);
}

/* ---- losses ---- */

/* The sum of all labels' losses in an epoch. */
static double epoch_loss(struct bench *b, struct ebb_loader *loader)
{
    struct ebb_eval_result result;
    kit_ok(b->c.ctx, ebb_evaluate(b->c.ctx, b->engine, loader, NULL, -1, &result), "evaluation");
    assert_int_equal(result.labels, b->data->labels);
    assert_int_equal(result.tokens, b->data->tokens);
    return ebb_engine_sums(b->engine).loss;
}

static void check_epoch_losses(const char *name, enum ebb_dtype storage)
{
    struct bench b;
    double alone = 0;
    open_bench(&b, name, storage, 10);
    for (int i = 0; i < ARRANGEMENTS; i++) {
        struct ebb_loader *loader = arrange(&b, &arrangements[i]);
        double loss = epoch_loss(&b, loader);
        if (i == 0) alone = loss;
        if (!(fabs(loss - alone) <= rounding * alone))
            fail_msg("%s, %s: the epoch's loss is %.17g, one by one it is %.17g", name,
                     arrangements[i].name, loss, alone);
        ebb_loader_free(b.c.ctx, loader);
    }
    close_bench(&b);
}

static void any_arrangement_has_the_same_loss(void **state)
{
    (void)state;
    check_epoch_losses("llama3", EBB_F32);
    check_epoch_losses("mistral", EBB_F32); /* a sliding window */
    check_epoch_losses("qwen3_lora", EBB_F32);
    check_epoch_losses("qwen2", EBB_BF16);
}

/* The loss of one document where it stands: the others' targets are left out. With `swap` the
 * others' tokens are exchanged for other ones. */
static double document_loss(struct bench *b, const struct ebb_batch *batch, int64_t doc, bool swap)
{
    struct ebb_batch only = *batch;
    size_t bytes = (size_t)batch->tokens * sizeof(int32_t);
    only.ids = (int32_t *)malloc(bytes);
    only.targets = (int32_t *)malloc(bytes);
    only.label_rows = (int32_t *)malloc(bytes);
    only.labels = 0;
    for (int32_t t = 0; t < batch->tokens; t++) {
        bool inside = t >= batch->doc_starts[doc] && t < batch->doc_starts[doc + 1];
        only.ids[t] = swap && !inside ? (batch->ids[t] + 17) % VOCAB : batch->ids[t];
        only.targets[t] = inside ? batch->targets[t] : EBB_IGNORE;
        if (only.targets[t] != EBB_IGNORE) only.label_rows[only.labels++] = t;
    }
    ebb_engine_begin(b->engine);
    kit_ok(b->c.ctx, ebb_engine_micro(b->engine, EBB_PROGRAM_EVAL, &only, 1, 0), "micro-batch");
    double loss = ebb_engine_sums(b->engine).loss;
    assert_true((loss > 0) == (only.labels > 0));
    free(only.ids);
    free(only.targets);
    free(only.label_rows);
    return loss;
}

static void check_documents(const char *name, enum ebb_dtype storage)
{
    struct bench b;
    double alone[DOCS];
    int64_t documents = 0, other_bits = 0;
    open_bench(&b, name, storage, 2);
    for (int i = 0; i < ARRANGEMENTS; i++) {
        struct ebb_loader *loader = arrange(&b, &arrangements[i]);
        for (int64_t m = 0; m < ebb_loader_describe(loader)->micros_per_epoch; m++) {
            const struct ebb_batch *batch;
            kit_ok(b.c.ctx, ebb_loader_next(b.c.ctx, loader, &batch), "next");
            for (int64_t d = 0; d < batch->docs; d++) {
                int64_t sample = ebb_loader_samples(loader)[d];
                double loss = document_loss(&b, batch, d, false);
                if (i == 0) alone[sample] = loss;
                if (!(fabs(loss - alone[sample]) <= rounding * alone[sample]))
                    fail_msg("%s, %s: sample %lld has the loss %.17g, alone %.17g", name,
                             arrangements[i].name, (long long)sample, loss, alone[sample]);
                double swapped = document_loss(&b, batch, d, true);
                if (memcmp(&swapped, &loss, sizeof loss) != 0)
                    fail_msg("%s, %s: sample %lld sees its neighbours: %.17g, %.17g", name,
                             arrangements[i].name, (long long)sample, loss, swapped);
                documents++;
                other_bits += memcmp(&loss, &alone[sample], sizeof loss) != 0;
            }
        }
        ebb_loader_free(b.c.ctx, loader);
    }
    print_message("%s %s: %lld of %lld documents differ from alone in a last bit\n", name,
                  ebb_dtype_name(storage), (long long)other_bits, (long long)documents);
    assert_int_equal(documents, ARRANGEMENTS * b.data->count);
    close_bench(&b);
}

/* The loss of a document is that of the document alone up to rounding, and bitwise the same
 * whatever its neighbours are. */
static void a_document_sees_none_of_its_neighbours(void **state)
{
    (void)state;
    check_documents("llama3", EBB_F32);
    check_documents("mistral", EBB_F32);
    check_documents("qwen3_lora", EBB_F32);
    check_documents("qwen3", EBB_BF16);
}

/* ---- pieces ---- */

/* A data set whose samples are the documents that the loader makes. */
static struct ebb_dataset *pieces_data(struct bench *b, struct ebb_loader *loader)
{
    const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
    int32_t *ids = (int32_t *)malloc((size_t)facts->tokens * sizeof *ids);
    int32_t *targets = (int32_t *)malloc((size_t)facts->tokens * sizeof *targets);
    int64_t *lengths = (int64_t *)malloc((size_t)facts->docs * sizeof *lengths);
    int64_t used = 0, count = 0;
    struct ebb_dataset *data;
    for (int64_t m = 0; m < facts->micros_per_epoch; m++) {
        const struct ebb_batch *batch;
        kit_ok(b->c.ctx, ebb_loader_next(b->c.ctx, loader, &batch), "next");
        for (int64_t d = 0; d < batch->docs; d++)
            lengths[count++] = batch->doc_starts[d + 1] - batch->doc_starts[d];
        memcpy(ids + used, batch->ids, (size_t)batch->tokens * sizeof *ids);
        memcpy(targets + used, batch->targets, (size_t)batch->tokens * sizeof *targets);
        used += batch->tokens;
    }
    kit_ok(b->c.ctx, ebb_dataset_from_ids(b->c.ctx, ids, lengths, NULL, count, &data), "pieces");
    data->labels = facts->labels;
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < lengths[i]; t++)
            set_trained(data, i, t, t > 0 && targets[data->starts[i] + t - 1] != EBB_IGNORE);
    free(ids);
    free(targets);
    free(lengths);
    return data;
}

static void a_piece_trains_as_a_sample_of_its_own(void **state)
{
    (void)state;
    static const enum ebb_packing_strategy strategies[] = {EBB_PACKING_BFD_SPLIT,
                                                           EBB_PACKING_WRAPPED};
    for (int i = 0; i < 2; i++) {
        struct bench b;
        open_bench(&b, "llama3", EBB_F32, 4);
        int64_t whole = b.data->labels;
        struct arrangement packed = {"pieces", {.per_device_batch_size = 2}, false};
        packed.options.packing = true;
        packed.options.strategy = strategies[i];
        packed.options.max_length = 16;
        struct ebb_loader *loader = arrange(&b, &packed);
        struct ebb_dataset *pieces = pieces_data(&b, loader), *samples = b.data;
        assert_true(ebb_loader_describe(loader)->split > 0 && pieces->labels < whole);
        b.data = pieces;
        double together = epoch_loss(&b, loader);
        ebb_loader_free(b.c.ctx, loader);
        loader = arrange(&b, &arrangements[0]);
        double alone = epoch_loss(&b, loader);
        assert_true(fabs(together - alone) <= rounding * alone);
        ebb_loader_free(b.c.ctx, loader);
        ebb_dataset_free(b.c.ctx, samples);
        close_bench(&b);
    }
}

/* ---- gradients, and what PyTorch has ---- */

static double tolerance(const struct kit_case *c, const char *kind, const char *which)
{
    const json_t *t = json_object_get(json_object_get(c->json, "tolerance"), kind);
    assert_non_null(t);
    return json_number_value(json_object_get(t, which));
}

/* One optimizer step over an epoch without its update; returns the mean loss. */
static double epoch_gradient(struct bench *b, struct ebb_loader *loader, float *grads)
{
    const struct ebb_net *net = ebb_engine_net(b->engine);
    const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
    ebb_engine_drop_gradients(b->engine);
    ebb_engine_begin(b->engine);
    for (int64_t m = 0; m < facts->micros_per_epoch; m++) {
        const struct ebb_batch *batch;
        kit_ok(b->c.ctx, ebb_loader_next(b->c.ctx, loader, &batch), "next");
        kit_ok(b->c.ctx, ebb_engine_micro(b->engine, EBB_PROGRAM_TRAIN, batch, 1, (uint32_t)m),
               "micro-batch");
    }
    for (int32_t i = 0; i < net->param_count; i++) {
        const struct ebb_param *p = &net->params[i];
        int64_t count = p->w.rows * p->w.cols;
        if (!p->trained) continue;
        ebb_engine_read_grad(b->engine, p, grads);
        for (int64_t k = 0; k < count; k++)
            grads[k] = (float)((double)grads[k] / (double)facts->labels);
        grads += count;
    }
    return ebb_engine_sums(b->engine).loss / (double)facts->labels;
}

/* The first golden loss is that of padded batches, to about 1e-15 in float64. */
static double padded_loss(struct kit_case *c)
{
    char path[600];
    struct ebb_safetensors *expected;
    float losses[KIT_STEPS];
    snprintf(path, sizeof path, "%s/expected.safetensors", c->dir);
    kit_ok(c->ctx, ebb_safetensors_open_file(c->ctx, path, &expected), path);
    const struct ebb_tensor_info *info = ebb_safetensors_find(expected, "loss");
    assert_non_null(info);
    ebb_tensor_copy(info, 1, c->steps, losses, EBB_F32, c->steps);
    ebb_safetensors_close(c->ctx, expected);
    const json_t *checks = json_object_get(c->json, "checks");
    const json_t *ways = json_object_get(checks, "float64_three_ways");
    assert_non_null(ways);
    assert_true(json_number_value(json_object_get(ways, "loss")) < 1e-13);
    assert_true(json_number_value(json_object_get(ways, "grad")) < 1e-13);
    return losses[0];
}

static void check_gradients(const char *name)
{
    struct bench b;
    int64_t values, all;
    open_bench(&b, name, EBB_F32, 1);
    ebb_engine_parameters(b.engine, &values, &all);
    float *alone = (float *)calloc((size_t)values, sizeof *alone);
    float *grads = (float *)calloc((size_t)values, sizeof *grads);
    double padded = padded_loss(&b.c);
    for (int i = 0; i < ARRANGEMENTS; i++) {
        struct ebb_loader *loader = arrange(&b, &arrangements[i]);
        double loss = epoch_gradient(&b, loader, i == 0 ? alone : grads);
        if (!(fabs(loss - padded) <=
              tolerance(&b.c, "loss", "abs") + tolerance(&b.c, "loss", "rel") * padded))
            fail_msg("%s, %s: the loss is %.9g, of padded batches it is %.9g", name,
                     arrangements[i].name, loss, padded);
        for (int64_t k = 0; i > 0 && k < values; k++) {
            double bound = tolerance(&b.c, "grad", "abs") +
                           tolerance(&b.c, "grad", "rel") * fabs((double)alone[k]);
            if (!(fabs((double)grads[k] - (double)alone[k]) <= bound))
                fail_msg("%s, %s: gradient %lld is %.9g, one by one %.9g", name,
                         arrangements[i].name, (long long)k, (double)grads[k], (double)alone[k]);
        }
        ebb_loader_free(b.c.ctx, loader);
    }
    double norm = 0;
    for (int64_t k = 0; k < values; k++) norm += (double)alone[k] * (double)alone[k];
    assert_true(norm > 1e-4);
    free(alone);
    free(grads);
    close_bench(&b);
}

/* Within the golden tolerances of loss and gradient: what float32 may lose by adding in another
 * order. train_golden compares the gradient itself with PyTorch's. */
static void any_arrangement_has_the_padded_loss_and_one_gradient(void **state)
{
    (void)state;
    check_gradients("llama3");
    check_gradients("mistral");
    check_gradients("qwen3_lora");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_arrangement_has_the_same_loss),
        cmocka_unit_test(a_document_sees_none_of_its_neighbours),
        cmocka_unit_test(a_piece_trains_as_a_sample_of_its_own),
        cmocka_unit_test(any_arrangement_has_the_padded_loss_and_one_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
