/* Cross-entropy on the CPU: one thread a row, three passes over a row that stays in its caches.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/cross_entropy.h"

#include <math.h>

#include "op/vector_int.h"

enum { BLOCK = 512 }; /* rows whose losses are kept until they are added in order */

static EBB_CLONES float largest(const float *z, int64_t n)
{
    float max = ebb_max_f32(z, n, -INFINITY);
    /* A row of nothing but -inf, or of NaN: subtracting 0 leaves the NaN or makes a log(0) of
     * it. */
    return max == -INFINITY ? 0.0f : max;
}

/* sum of exp(z - max); chunks are added in double. */
static EBB_CLONES double sum_exp(const float *z, int64_t n, float max)
{
    float e[EBB_CHUNK];
    double sum = 0;
    for (int64_t at = 0; at < n; at += EBB_CHUNK) {
        int64_t count = n - at < EBB_CHUNK ? n - at : EBB_CHUNK;
        const float *from = z + at;
        for (int64_t j = 0; j < count; j++) e[j] = ebb_exp(from[j] - max);
        sum += (double)ebb_sum_f32(e, count);
    }
    return sum;
}

/* d = exp(z - max) / sum, less 1 at the target. d may be z. */
static EBB_CLONES void write_gradient(const float *z, int64_t n, int64_t target, float max,
                                      float inverse, enum ebb_dtype dtype, void *d)
{
    float p[EBB_CHUNK];
    for (int64_t at = 0; at < n; at += EBB_CHUNK) {
        int64_t count = n - at < EBB_CHUNK ? n - at : EBB_CHUNK;
        const float *from = z + at;
        for (int64_t j = 0; j < count; j++) p[j] = ebb_exp(from[j] - max) * inverse;
        if (target >= at && target < at + count) p[target - at] -= 1.0f;
        ebb_store_f32(dtype, d, at, count, p);
    }
}

static EBB_CLONES bool is_before(const float *z, int64_t n, float value)
{
    int32_t found = 0;
    for (int64_t j = 0; j < n; j++) found |= z[j] == value ? 1 : 0;
    return found != 0;
}

/* One row: its loss, whether the target has the largest logit (the first of equals), its
 * gradient. */
static double row_loss(const float *z, int64_t vocab, int64_t target, enum ebb_dtype dtype,
                       void *gradient, uint8_t *correct)
{
    float max = largest(z, vocab), chosen = z[target];
    double sum = sum_exp(z, vocab, max);
    *correct = chosen == max && !isnan(sum) && !is_before(z, target, max);
    if (gradient != NULL)
        write_gradient(z, vocab, target, max, (float)(1.0 / sum), dtype, gradient);
    return log(sum) +
           ((double)max - (double)chosen); /* in this order: log(sum) must survive a huge max */
}

/* Every label must be a token of this batch with a target inside the vocabulary. */
static enum ebb_status check_labels(const struct ebb_op_env *env,
                                    const struct ebb_cross_entropy *args, int64_t rows)
{
    const int32_t *label_rows =
        (const int32_t *)ebb_view_data(env, &args->label_rows) + args->logits.row0;
    const int32_t *targets = ebb_view_data(env, &args->targets);
    for (int64_t i = 0; i < rows; i++) {
        int64_t token = label_rows[i];
        if (token < 0 || token >= args->targets.cols) {
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "cross_entropy: label %lld is about token %lld of a batch of %lld",
                            (long long)(args->logits.row0 + i), (long long)token,
                            (long long)args->targets.cols);
        }
        if (targets[token] < 0 || targets[token] >= args->logits.cols) {
            return EBB_FAIL(
                env->ctx, EBB_FAILED,
                "cross_entropy: the target of token %lld is %d, outside the vocabulary of %lld; "
                "does the tokenizer belong to this model?",
                (long long)token, (int)targets[token], (long long)args->logits.cols);
        }
    }
    return EBB_OK;
}

enum ebb_status ebb_cross_entropy_cpu(const struct ebb_op_env *env,
                                      const struct ebb_cross_entropy *args)
{
    const struct ebb_view *logits = &args->logits, *dlogits = &args->dlogits;
    EBB_ASSERT(logits->dtype == EBB_F32 && args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    bool gradient = ebb_view_present(dlogits);
    EBB_ASSERT(!gradient || (dlogits->cols == logits->cols && dlogits->rows >= logits->rows));
    int64_t rows = ebb_view_rows(env, logits), vocab = logits->cols;
    EBB_ASSERT(rows == 0 || (vocab > 0 && logits->row0 + rows <= args->label_rows.cols));
    EBB_TRY(check_labels(env, args, rows));
    const int32_t *targets = ebb_view_data(env, &args->targets);
    const int32_t *label_rows =
        (const int32_t *)ebb_view_data(env, &args->label_rows) + logits->row0;
    struct ebb_sums *sums = ebb_view_data(env, &args->sums);
    for (int64_t start = 0; start < rows; start += BLOCK) {
        int64_t count = rows - start < BLOCK ? rows - start : BLOCK;
        double loss[BLOCK];
        uint8_t correct[BLOCK];
#pragma omp parallel for num_threads(ebb_op_team(env, count *vocab)) schedule(static)
        for (int64_t i = 0; i < count; i++) {
            int64_t row = start + i;
            loss[i] = row_loss(ebb_view_row(env, logits, row), vocab, targets[label_rows[row]],
                               ebb_view_dtype(dlogits),
                               gradient ? ebb_view_row(env, dlogits, row) : NULL, &correct[i]);
        }
        for (int64_t i = 0; i < count; i++) {
            sums->loss += loss[i];
            sums->correct += correct[i];
        }
    }
    sums->labels += rows;
    return EBB_OK;
}
