/* Passes over a row of logits, and the check of its labels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/vocab_int.h"

#include <math.h>

#include "op/vector_int.h"

EBB_CLONES float ebb_vocab_max(const float *z, int64_t n)
{
    float max = ebb_max_f32(z, n, -INFINITY);
    return max == -INFINITY ? 0.0f : max;
}

EBB_CLONES double ebb_vocab_sum_exp(const float *z, int64_t n, float max, float scale)
{
    float e[EBB_CHUNK];
    double sum = 0;
    for (int64_t at = 0; at < n; at += EBB_CHUNK) {
        int64_t count = n - at < EBB_CHUNK ? n - at : EBB_CHUNK;
        const float *from = z + at;
        for (int64_t j = 0; j < count; j++) e[j] = ebb_exp((from[j] - max) * scale);
        sum += (double)ebb_sum_f32(e, count);
    }
    return sum;
}

EBB_CLONES bool ebb_vocab_has(const float *z, int64_t n, float value)
{
    int32_t found = 0;
    for (int64_t j = 0; j < n; j++) found |= z[j] == value ? 1 : 0;
    return found != 0;
}

enum ebb_status ebb_vocab_check_labels(const struct ebb_op_env *env, const char *op,
                                       const struct ebb_view *targets,
                                       const struct ebb_view *label_rows, int64_t row0,
                                       int64_t rows, int64_t vocab)
{
    const int32_t *labels = (const int32_t *)ebb_view_data(env, label_rows) + row0;
    const int32_t *target = ebb_view_data(env, targets);
    for (int64_t i = 0; i < rows; i++) {
        int64_t token = labels[i];
        if (token < 0 || token >= targets->cols) {
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "%s: label %lld is about token %lld of a batch of %lld", op,
                            (long long)(row0 + i), (long long)token, (long long)targets->cols);
        }
        if (target[token] < 0 || target[token] >= vocab) {
            return EBB_FAIL(env->ctx, EBB_FAILED,
                            "%s: the target of token %lld is %d, outside the vocabulary of %lld; "
                            "does the tokenizer belong to this model?",
                            op, (long long)token, (int)target[token], (long long)vocab);
        }
    }
    return EBB_OK;
}
