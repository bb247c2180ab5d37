/* Dropout on the CPU. Element e takes word e % 4 of Philox at counter e / 4, as a number in [0,
 * 1): below p it is dropped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/dropout.h"

#include "op/random_int.h"

/* y = x m, or y += x m, for n elements of a row, at most EBB_CHUNK; the first is `element` of
 * the whole matrix. */
static EBB_CLONES void drop_chunk(const struct ebb_dropout *args, uint64_t key, uint64_t element,
                                  const void *x, void *y, int64_t at, int64_t n)
{
    uint32_t words[EBB_CHUNK + 8];
    float xs[EBB_CHUNK], ys[EBB_CHUNK];
    uint64_t counter = element / 4, skip = element % 4;
    ebb_philox_run(key, counter, ((int64_t)skip + n + 3) / 4, words);
    const uint32_t *word = words + skip;
    enum ebb_dtype dtype = ebb_view_dtype(&args->y);
    float p = args->p, scale = 1.0f / (1.0f - p);
    const float *a = ebb_see_f32(ebb_view_dtype(&args->x), x, at, n, xs);
    if (args->accumulate) {
        ebb_load_f32(dtype, y, at, n, ys);
        for (int64_t j = 0; j < n; j++) ys[j] += a[j] * (ebb_uniform(word[j]) < p ? 0.0f : scale);
    } else {
        for (int64_t j = 0; j < n; j++) ys[j] = a[j] * (ebb_uniform(word[j]) < p ? 0.0f : scale);
    }
    ebb_store_f32(dtype, y, at, n, ys);
}

enum ebb_status ebb_dropout_cpu(const struct ebb_op_env *env, const struct ebb_dropout *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == y->cols && args->p >= 0.0f && args->p < 1.0f);
    int64_t rows = ebb_view_rows(env, x), cols = x->cols;
    EBB_ASSERT(rows <= y->rows);
    const struct ebb_step *step = env->step;
    uint64_t key = ebb_random_key(step->seed, step->step, step->micro, step->rank, args->instance);
#pragma omp parallel for num_threads(ebb_op_team(env, rows *cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        uint64_t element = (uint64_t)(x->row0 + i) * (uint64_t)cols;
        for (int64_t at = 0; at < cols; at += EBB_CHUNK) {
            int64_t n = cols - at < EBB_CHUNK ? cols - at : EBB_CHUNK;
            drop_chunk(args, key, element + (uint64_t)at, ebb_view_row(env, x, i),
                       ebb_view_row(env, y, i), at, n);
        }
    }
    return EBB_OK;
}
