/* Tables of rotary position embedding.
 *
 * Inverse frequencies f[i], i < D/2 (transformers' modeling_rope_utils; all in float32, as there):
 *   default   f[i] = 1 / theta^(2 i / D)               (Su et al. 2021, arXiv 2104.09864)
 *   linear    f[i] / factor                            (position interpolation, arXiv 2306.15595)
 *   llama3    with the wave length w[i] = 2 pi / f[i] and the length N of pretraining:
 *             w < N / high: f;   w > N / low: f / factor;
 *             between: (1 - s) f / factor + s f, s = (N / w - low) / (high - low)
 *                                                      (Llama 3.1's rope scaling)
 *   yarn      g[i] = clamp((i - a) / (b - a), 0, 1): g f / factor + (1 - g) f, where a and b are
 *             the dimensions that turn beta_fast and beta_slow times in N positions,
 *             d(n) = D ln(N / (2 pi n)) / (2 ln theta), rounded outwards with `truncate`
 *                                                      (Peng et al. 2023, arXiv 2309.00071)
 * The angle is float32(position) f[i] rounded to float32: at long positions that rounding is larger
 * than any other, and models were trained with it. Cosine and sine of that angle are rounded once,
 * then multiplied by attention_factor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_ROPE_H
#define EBB_MODEL_ROPE_H

#include "model/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills inv_freq [D/2]. */
void ebb_rope_inv_freq(const struct ebb_rope *rope, int64_t head_dim, float *inv_freq);
/* Fills table [positions, D] for positions position0, position0 + 1, ...: D/2 cosines, then D/2
 * sines in each row, as op/rotary.h reads them. */
void ebb_rope_table(const struct ebb_rope *rope, int64_t head_dim, int64_t position0,
                    int64_t positions, float *table);

#ifdef __cplusplus
}
#endif
#endif
