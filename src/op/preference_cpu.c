/* Preference training on the CPU: log-probabilities and gradients one thread a row, the losses by
 * one thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/preference.h"

#include <math.h>

#include "op/preference_int.h"
#include "op/vector_int.h"
#include "op/vocab_int.h"

/* ---- log-probabilities ---- */

static float row_logprob(const float *z, int64_t vocab, int64_t target)
{
    float max = ebb_vocab_max(z, vocab);
    double sum = ebb_vocab_sum_exp(z, vocab, max, 1.0f);
    /* In this order: log(sum) must survive a huge max. */
    return (float)-(log(sum) + ((double)max - (double)z[target]));
}

enum ebb_status ebb_label_logprob_cpu(const struct ebb_op_env *env,
                                      const struct ebb_label_logprob *args)
{
    const struct ebb_view *logits = &args->logits;
    EBB_TRY(ebb_preference_check_labels(env, "label_logprob", logits, &args->label_rows,
                                        &args->logprob, args->vocab));
    int64_t rows = ebb_view_rows(env, logits), vocab = args->vocab;
    EBB_TRY(ebb_vocab_check_labels(env, "label_logprob", &args->targets, &args->label_rows,
                                   logits->row0, rows, vocab));
    const int32_t *targets = ebb_view_data(env, &args->targets);
    const int32_t *label_rows =
        (const int32_t *)ebb_view_data(env, &args->label_rows) + logits->row0;
    float *logprob = (float *)ebb_view_data(env, &args->logprob) + logits->row0;
#pragma omp parallel for num_threads(ebb_op_team(env, rows *vocab)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        logprob[i] = row_logprob(ebb_view_row(env, logits, i), vocab, targets[label_rows[i]]);
    return EBB_OK;
}

/* ---- their gradient ---- */

/* d may lie in z's row (op/vocab_int.h). */
static EBB_CLONES void write_gradient(const float *z, int64_t vocab, int64_t target,
                                      float coefficient, enum ebb_dtype dtype, void *d)
{
    float g[EBB_CHUNK], max = ebb_vocab_max(z, vocab);
    float share = (float)(1.0 / ebb_vocab_sum_exp(z, vocab, max, 1.0f));
    for (int64_t at = ebb_last_chunk(vocab); at >= 0; at -= EBB_CHUNK) {
        int64_t count = vocab - at < EBB_CHUNK ? vocab - at : EBB_CHUNK;
        const float *from = z + at;
        for (int64_t j = 0; j < count; j++) g[j] = ebb_exp(from[j] - max) * share;
        if (target >= at && target < at + count) g[target - at] -= 1.0f;
        for (int64_t j = 0; j < count; j++) g[j] *= -coefficient;
        ebb_store_f32(dtype, d, at, count, g);
    }
}

enum ebb_status ebb_label_logprob_backward_cpu(const struct ebb_op_env *env,
                                               const struct ebb_label_logprob_backward *args)
{
    const struct ebb_view *logits = &args->logits, *dlogits = &args->dlogits;
    EBB_TRY(ebb_preference_check_labels(env, "label_logprob_backward", logits, &args->label_rows,
                                        &args->coefficient, args->vocab));
    EBB_TRY(ebb_preference_check_gradient(env, logits, dlogits));
    int64_t rows = ebb_view_rows(env, logits), vocab = args->vocab;
    EBB_TRY(ebb_vocab_check_labels(env, "label_logprob_backward", &args->targets, &args->label_rows,
                                   logits->row0, rows, vocab));
    const int32_t *targets = ebb_view_data(env, &args->targets);
    const int32_t *label_rows =
        (const int32_t *)ebb_view_data(env, &args->label_rows) + logits->row0;
    const float *coefficient = (const float *)ebb_view_data(env, &args->coefficient) + logits->row0;
    enum ebb_dtype dtype = ebb_view_dtype(dlogits);
#pragma omp parallel for num_threads(ebb_op_team(env, rows *vocab)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        void *d = ebb_view_row(env, dlogits, i);
        bool none = coefficient[i] == 0;
        if (!none)
            write_gradient(ebb_view_row(env, logits, i), vocab, targets[label_rows[i]],
                           coefficient[i], dtype, d);
        ebb_vocab_clear(dtype, d, none ? 0 : vocab, logits->cols);
    }
    return EBB_OK;
}

/* ---- losses ---- */

struct labels {
    const float *logprob, *reference; /* reference may be NULL */
    const int32_t *rows, *doc_starts;
    float *coefficient;
    int64_t count, docs;
};

static struct labels labels_of(const struct ebb_op_env *env, const struct ebb_preference_loss *args)
{
    struct labels labels = {ebb_view_data(env, &args->logprob),
                            ebb_view_data(env, &args->reference),
                            ebb_view_data(env, &args->label_rows),
                            ebb_view_data(env, &args->doc_starts),
                            ebb_view_data(env, &args->coefficient),
                            env->step->labels,
                            env->step->docs};
    return labels;
}

static enum ebb_status check_documents(const struct ebb_op_env *env, const struct labels *labels,
                                       const int32_t *kinds)
{
    const int32_t *starts = labels->doc_starts, *rows = labels->rows;
    for (int64_t d = 0; d < labels->docs; d++) {
        if (starts[d] < 0 || starts[d + 1] < starts[d])
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "preference_loss: document %lld begins at token %d and ends at %d",
                            (long long)d, (int)starts[d], (int)starts[d + 1]);
        if (kinds != NULL && (kinds[d] < 0 || kinds[d] > EBB_KTO_KL))
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "preference_loss: document %lld is of kind %d, wanted 0 "
                            "(undesirable), 1 (desirable) or 2 (KL)",
                            (long long)d, (int)kinds[d]);
    }
    for (int64_t i = 0; i < labels->count; i++) {
        int64_t before = i > 0 ? rows[i - 1] : -1;
        if (rows[i] <= before)
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "preference_loss: label %lld is about token %d, wanted one behind %lld",
                            (long long)i, (int)rows[i], (long long)before);
        if (rows[i] < starts[0] || rows[i] >= starts[labels->docs])
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "preference_loss: label %lld is about token %d, which is in no "
                            "document: they are tokens %d to %d",
                            (long long)i, (int)rows[i], (int)starts[0],
                            (int)starts[labels->docs] - 1);
    }
    return EBB_OK;
}

/* Adds up the labels of document d, the first of which is *at; leaves *at behind them. */
static struct ebb_preference_document sum_document(const struct labels *labels, int64_t d,
                                                   int64_t *at)
{
    struct ebb_preference_document document = {0, 0, 0, 0};
    for (; *at < labels->count && labels->rows[*at] < labels->doc_starts[d + 1]; ++*at) {
        document.logprob += (double)labels->logprob[*at];
        if (labels->reference != NULL) document.reference += (double)labels->reference[*at];
        document.labels++;
    }
    return document;
}

/* Gives the document's labels, which end before `end`, its slope. */
static void write_slope(const struct labels *labels, int64_t end,
                        const struct ebb_preference_document *document)
{
    for (int64_t i = end - document->labels; i < end; i++)
        labels->coefficient[i] = (float)document->slope;
}

static void add_pairs(const struct labels *labels, const struct ebb_preference_keys *keys,
                      struct ebb_sums *sums)
{
    int64_t at = 0;
    for (int64_t d = 0; d < labels->docs; d += 2) {
        struct ebb_preference_document chosen = sum_document(labels, d, &at);
        int64_t middle = at;
        struct ebb_preference_document rejected = sum_document(labels, d + 1, &at);
        struct ebb_preference_result result = ebb_preference_pair(keys, &chosen, &rejected);
        write_slope(labels, middle, &chosen);
        write_slope(labels, at, &rejected);
        ebb_preference_add(&result, sums);
    }
}

static double find_z0(const struct labels *labels, const int32_t *kinds, struct ebb_sums *sums)
{
    int64_t at = 0, count = 0;
    double sum = 0;
    for (int64_t d = 0; d < labels->docs; d++) {
        struct ebb_preference_document document = sum_document(labels, d, &at);
        if (kinds[d] != EBB_KTO_KL) continue;
        sum += document.logprob - document.reference;
        count++;
    }
    return ebb_preference_z0(sum, count, sums);
}

static void add_examples(const struct labels *labels, const struct ebb_preference_keys *keys,
                         const int32_t *kinds, struct ebb_sums *sums)
{
    int64_t at = 0;
    double z0 = find_z0(labels, kinds, sums);
    for (int64_t d = 0; d < labels->docs; d++) {
        struct ebb_preference_document document = sum_document(labels, d, &at);
        struct ebb_preference_result result = ebb_preference_example(keys, kinds[d], z0, &document);
        write_slope(labels, at, &document);
        ebb_preference_add(&result, sums);
    }
}

enum ebb_status ebb_preference_loss_cpu(const struct ebb_op_env *env,
                                        const struct ebb_preference_loss *args)
{
    EBB_TRY(ebb_preference_check_loss(env, args));
    struct labels labels = labels_of(env, args);
    const int32_t *kinds = ebb_view_data(env, &args->kinds);
    struct ebb_sums *sums = ebb_view_data(env, &args->sums);
    EBB_TRY(check_documents(env, &labels, kinds));
    if (kinds != NULL)
        add_examples(&labels, &args->keys, kinds, sums);
    else
        add_pairs(&labels, &args->keys, sums);
    sums->labels += labels.count;
    ebb_vocab_clear(EBB_F32, labels.coefficient, labels.count, args->coefficient.cols);
    return EBB_OK;
}
