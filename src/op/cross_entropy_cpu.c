/* Cross-entropy on the CPU: one thread a row, three passes over a row that stays in its caches.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/cross_entropy.h"

#include <math.h>

#include "op/vector_int.h"
#include "op/vocab_int.h"

enum { BLOCK = 512 }; /* rows whose losses are kept until they are added in order */

/* d = exp(z - max) / sum, less 1 at the target. d may lie in z's row (op/vocab_int.h). */
static EBB_CLONES void write_gradient(const float *z, int64_t n, int64_t target, float max,
                                      float inverse, enum ebb_dtype dtype, void *d)
{
    float p[EBB_CHUNK];
    for (int64_t at = ebb_last_chunk(n); at >= 0; at -= EBB_CHUNK) {
        int64_t count = n - at < EBB_CHUNK ? n - at : EBB_CHUNK;
        const float *from = z + at;
        for (int64_t j = 0; j < count; j++) p[j] = ebb_exp(from[j] - max) * inverse;
        if (target >= at && target < at + count) p[target - at] -= 1.0f;
        ebb_store_f32(dtype, d, at, count, p);
    }
}

/* One row: its loss, whether the target has the largest logit (the first of equals), its
 * gradient. */
static double row_loss(const float *z, int64_t vocab, int64_t target, enum ebb_dtype dtype,
                       void *gradient, uint8_t *correct)
{
    float max = ebb_vocab_max(z, vocab), chosen = z[target];
    double sum = ebb_vocab_sum_exp(z, vocab, max, 1.0f);
    *correct = chosen == max && !isnan(sum) && !ebb_vocab_has(z, target, max);
    if (gradient != NULL)
        write_gradient(z, vocab, target, max, (float)(1.0 / sum), dtype, gradient);
    return log(sum) +
           ((double)max - (double)chosen); /* in this order: log(sum) must survive a huge max */
}

enum ebb_status ebb_cross_entropy_cpu(const struct ebb_op_env *env,
                                      const struct ebb_cross_entropy *args)
{
    const struct ebb_view *logits = &args->logits, *dlogits = &args->dlogits;
    EBB_ASSERT(logits->dtype == EBB_F32 && args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    bool gradient = ebb_view_present(dlogits);
    EBB_ASSERT(!gradient || (dlogits->cols == logits->cols && dlogits->rows >= logits->rows));
    EBB_ASSERT(!gradient || ebb_gradient_has_place(logits, dlogits));
    int64_t rows = ebb_view_rows(env, logits), vocab = logits->cols;
    EBB_ASSERT(rows == 0 || (vocab > 0 && logits->row0 + rows <= args->label_rows.cols));
    EBB_TRY(ebb_vocab_check_labels(env, "cross_entropy", &args->targets, &args->label_rows,
                                   logits->row0, rows, vocab));
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
