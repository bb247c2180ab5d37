/* Number formats and counter-based random numbers.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011). A random value is a pure function of (key, counter): nothing is stored, so that a tensor
 * computed again gets the same values.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_NUMBER_H
#define EBB_NUMBER_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_dtype { EBB_F32, EBB_BF16, EBB_F16, EBB_I32, EBB_I64, EBB_U8, EBB_U16, EBB_DTYPE_COUNT };

int64_t ebb_dtype_bytes(enum ebb_dtype dtype);
const char *ebb_dtype_name(enum ebb_dtype dtype); /* "float32", "bfloat16", ... */

static inline float ebb_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t ebb_to_bf16(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    if ((wide & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((wide >> 16) | 0x0040u);
    return (uint16_t)((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
}

/* Exact, subnormal numbers included. */
float ebb_from_f16(uint16_t bits);
/* To nearest, ties to even; from 65520 on infinite; NaN stays NaN. */
uint16_t ebb_to_f16(float value);

/* A 64-bit key from what names a use of random numbers: (seed, optimizer step, micro-batch, rank,
 * instance), mixed by two rounds of Philox: the first takes the seed as key and (step, micro, rank)
 * as counter, the second takes half of what came out as key, the other half and the instance as
 * counter. */
uint64_t ebb_random_key(uint64_t seed, uint64_t step, uint32_t micro, uint32_t rank,
                        uint32_t instance);
/* Four 32-bit words for one counter: low words first, the counter's upper half 0. */
void ebb_philox(uint64_t key, uint64_t counter, uint32_t out[4]);
/* The whole generator, with a 128-bit counter. */
void ebb_philox_words(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

/* Uniform in [0, 1) from one word, 24 bits. */
static inline float ebb_uniform(uint32_t word)
{
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}
/* Two standard normal values from two words (Box and Muller). */
void ebb_normal(uint32_t a, uint32_t b, float out[2]);

#ifdef __cplusplus
}
#endif
#endif
