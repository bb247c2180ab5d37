/* Number formats and counter-based random numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

struct dtype_row {
    const char *name;
    int64_t bytes;
};

static const struct dtype_row dtypes[] = {
    {"float32", 4}, {"bfloat16", 2}, {"float16", 2}, {"int32", 4},
    {"int64", 8},   {"uint8", 1},    {"uint16", 2},
};
static_assert(sizeof dtypes / sizeof dtypes[0] == EBB_DTYPE_COUNT, "one row for each dtype");

int64_t ebb_dtype_bytes(enum ebb_dtype dtype)
{
    return (size_t)dtype < EBB_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *ebb_dtype_name(enum ebb_dtype dtype)
{
    return (size_t)dtype < EBB_DTYPE_COUNT ? dtypes[dtype].name : "unknown dtype";
}

/* ---- float16: 1 sign bit, 5 exponent bits (bias 15), 10 mantissa bits ---- */

float ebb_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;
    uint32_t wide;
    if (exponent == 0x1f) {
        wide = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent != 0) {
        wide = sign | (exponent + 127 - 15) << 23 | mantissa << 13;
    } else {
        /* Zero and subnormal numbers are mantissa * 2^-24, which a float holds exactly. */
        float value = (float)mantissa * (1.0f / 16777216.0f);
        memcpy(&wide, &value, sizeof wide);
        wide |= sign;
    }
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Shifts right, to nearest, ties to even. */
static uint32_t shift_rounded(uint32_t value, uint32_t shift)
{
    uint32_t kept = value >> shift, rest = value & ((1u << shift) - 1u), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u);
}

uint16_t ebb_to_f16(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    uint32_t sign = (wide >> 16) & 0x8000u;
    uint32_t size = wide & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((size >> 13) & 0x1ffu));
    if (size >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65536 and more */
    /* From 2^-14 on normal; a carry out of the mantissa may reach infinity, as it should. */
    if (size >= 0x38800000u)
        return (uint16_t)(sign | shift_rounded(size - ((127u - 15u) << 23), 13));
    uint32_t exponent = size >> 23;
    if (exponent < 102) return (uint16_t)sign; /* below 2^-25: nearest is zero */
    uint32_t mantissa = (size & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_rounded(mantissa, 126 - exponent));
}

/* ---- Philox4x32-10 ---- */

void ebb_philox_words(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u; /* golden ratio */
        k1 += 0xbb67ae85u; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void ebb_philox(uint64_t key, uint64_t counter, uint32_t out[4])
{
    const uint32_t key_words[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    const uint32_t counter_words[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    ebb_philox_words(key_words, counter_words, out);
}

/* With the seed fixed, the first call is one to one in (step, micro, rank), and with its result
 * fixed the second is one to one in the instance: uses collide only as often as 64-bit values by
 * chance. */
uint64_t ebb_random_key(uint64_t seed, uint64_t step, uint32_t micro, uint32_t rank,
                        uint32_t instance)
{
    const uint32_t seed_words[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t use[4] = {(uint32_t)step, (uint32_t)(step >> 32), micro, rank};
    uint32_t mixed[4], out[4];
    ebb_philox_words(seed_words, use, mixed);
    const uint32_t last[4] = {mixed[2], mixed[3], instance, 0};
    ebb_philox_words(mixed, last, out);
    return (uint64_t)out[1] << 32 | out[0];
}

/* In double precision, so that rounding to float hides the last-digit differences between
 * mathematical libraries. */
void ebb_normal(uint32_t a, uint32_t b, float out[2])
{
    const double turn = 6.283185307179586476925286766559;
    double radius = sqrt(-2.0 * log(((double)a + 1.0) * (1.0 / 4294967296.0)));
    double angle = turn * ((double)b * (1.0 / 4294967296.0));
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}
