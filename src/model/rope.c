/* Tables of rotary position embedding. Formulas and their sources: model/rope.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/rope.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* theta^(2 i / D), the exponent rounded to float32 as transformers has it. */
static float power(const struct ebb_rope *rope, int64_t head_dim, int64_t i)
{
    float exponent = (float)(2 * i) / (float)head_dim;
    return (float)pow(rope->theta, (double)exponent);
}

static float scale_llama3(const struct ebb_rope *rope, float f)
{
    float factor = (float)rope->factor;
    float low = (float)(rope->original_max_positions / rope->low_freq_factor);
    float high = (float)(rope->original_max_positions / rope->high_freq_factor);
    float length = (float)(2 * pi) / f;
    if (length < high) return f;
    if (length > low) return f / factor;
    float smooth = ((float)rope->original_max_positions / length - (float)rope->low_freq_factor) /
                   (float)(rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * f / factor + smooth * f;
}

/* The dimension that turns `turns` times in the positions of pretraining. */
static double yarn_dimension(const struct ebb_rope *rope, int64_t head_dim, double turns)
{
    return (double)head_dim * log(rope->original_max_positions / (turns * 2 * pi)) /
           (2 * log(rope->theta));
}

static void yarn_range(const struct ebb_rope *rope, int64_t head_dim, double *low, double *high)
{
    *low = yarn_dimension(rope, head_dim, rope->beta_fast);
    *high = yarn_dimension(rope, head_dim, rope->beta_slow);
    if (rope->truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    if (*low < 0) *low = 0;
    if (*high > (double)(head_dim - 1)) *high = (double)(head_dim - 1);
    if (*low == *high) *high += 0.001; /* no division by zero */
}

static float scale_yarn(const struct ebb_rope *rope, int64_t i, double low, double high, float p)
{
    float ramp = ((float)i - (float)low) / (float)(high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    float keep = 1 - ramp;
    return 1 / ((float)rope->factor * p) * (1 - keep) + 1 / p * keep;
}

void ebb_rope_inv_freq(const struct ebb_rope *rope, int64_t head_dim, float *inv_freq)
{
    double low = 0, high = 1;
    if (rope->kind == EBB_ROPE_YARN) yarn_range(rope, head_dim, &low, &high);
    for (int64_t i = 0; i < head_dim / 2; i++) {
        float p = power(rope, head_dim, i);
        switch (rope->kind) {
        case EBB_ROPE_DEFAULT:
            inv_freq[i] = 1 / p;
            break;
        case EBB_ROPE_LINEAR:
            inv_freq[i] = 1 / p / (float)rope->factor;
            break;
        case EBB_ROPE_LLAMA3:
            inv_freq[i] = scale_llama3(rope, 1 / p);
            break;
        case EBB_ROPE_YARN:
            inv_freq[i] = scale_yarn(rope, i, low, high, p);
            break;
        }
    }
}

void ebb_rope_table(const struct ebb_rope *rope, int64_t head_dim, int64_t position0,
                    int64_t positions, float *table)
{
    int64_t half = head_dim / 2;
    float factor = (float)rope->attention_factor;
    if (positions < 1) return;
    /* The last row's cosines hold the frequencies until that row is made, so that no memory is
     * needed. */
    float *inv_freq = table + (positions - 1) * head_dim;
    ebb_rope_inv_freq(rope, head_dim, inv_freq);
    for (int64_t t = 0; t < positions; t++) {
        float *row = table + t * head_dim;
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)((float)(position0 + t) * inv_freq[i]);
            row[i + half] = (float)sin(angle) * factor;
            row[i] = (float)cos(angle) * factor;
        }
    }
}
