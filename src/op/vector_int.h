/* What the CPU ops share: rows of either storage type as fp32 in small chunks, sums in a fixed
 * order, exp that vectorises.
 *
 * A row is worked on in chunks of EBB_CHUNK floats that stay in the first-level cache, so each
 * kernel is written once, in fp32. A kernel that loops over a chunk is an EBB_CLONES function:
 * gcc makes one version per instruction set and the loader takes the best. Nothing here depends
 * on the number of threads, and sums have the same order in every version.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_VECTOR_INT_H
#define EBB_VECTOR_INT_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Versions per instruction set. Not with sanitizers: the loader picks a version before their
 * runtime is ready. Not with clang: it does not know these names before version 17. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EBB_CLONES
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define EBB_CLONES                                                                                 \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), noinline))
#else
#define EBB_CLONES
#endif
/* Becomes part of the version that calls it. */
#define EBB_VECTOR static inline __attribute__((always_inline))

enum { EBB_CHUNK = 1024 }; /* floats */

/* Where the last chunk of n > 0 floats begins. */
static inline int64_t ebb_last_chunk(int64_t n)
{
    return (n - 1) / EBB_CHUNK * EBB_CHUNK;
}

/* Vectors of 16, lowered to whatever the instruction set has: that fixes the order of sums.
 * Never passed by value. */
typedef float ebb_lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef double ebb_wide_lanes __attribute__((vector_size(64), aligned(8), may_alias));

EBB_VECTOR uint32_t ebb_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

EBB_VECTOR float ebb_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* As ebb_to_bf16, without a branch. */
EBB_VECTOR uint16_t ebb_round_bf16(float value)
{
    uint32_t bits = ebb_float_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = (bits >> 16) | 0x0040u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* The value that storing would leave: bf16's nearest, or itself. */
EBB_VECTOR float ebb_round_to(enum ebb_dtype dtype, float value)
{
    return dtype == EBB_BF16 ? ebb_bits_float((uint32_t)ebb_round_bf16(value) << 16) : value;
}

/* n elements from the `first`-th on, fp32 or bf16, as fp32. */
EBB_VECTOR void ebb_load_f32(enum ebb_dtype dtype, const void *from, int64_t first, int64_t n,
                             float *to)
{
    if (dtype == EBB_F32) {
        memcpy(to, (const float *)from + first, (size_t)n * sizeof *to);
        return;
    }
    const uint16_t *half = (const uint16_t *)from + first;
    for (int64_t i = 0; i < n; i++) to[i] = ebb_bits_float((uint32_t)half[i] << 16);
}

/* Rounded to nearest even where that is needed. */
EBB_VECTOR void ebb_store_f32(enum ebb_dtype dtype, void *to, int64_t first, int64_t n,
                              const float *from)
{
    if (dtype == EBB_F32) {
        memcpy((float *)to + first, from, (size_t)n * sizeof *from);
        return;
    }
    uint16_t *half = (uint16_t *)to + first;
    for (int64_t i = 0; i < n; i++) half[i] = ebb_round_bf16(from[i]);
}

/* The same elements, without a copy where they are fp32 already: either they or `buffer`,
 * filled. */
EBB_VECTOR const float *ebb_see_f32(enum ebb_dtype dtype, const void *from, int64_t first,
                                    int64_t n, float *buffer)
{
    if (dtype == EBB_F32) return (const float *)from + first;
    ebb_load_f32(dtype, from, first, n, buffer);
    return buffer;
}

/* exp in fp32, within 1.05 units in the last place of the true value wherever that is a normal
 * number (all arguments were compared with double precision), then subnormal results and 0; inf
 * from 88.7228 on; NaN stays NaN. x = n log 2 + r, |r| <= log(2) / 2; Taylor's series to r^7
 * leaves 5e-9. */
EBB_VECTOR float ebb_exp(float x)
{
    const float shift =
        12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    x = x > 90.0f ? 90.0f : x;
    x = x < -105.0f ? -105.0f : x;
    float shifted = x * 1.44269504f + shift;
    float n = shifted - shift;
    /* log 2 in two parts: the first has few enough bits that n times it is exact. */
    float r = x - n * 0.693359375f;
    r -= n * -2.12194440e-4f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r;
    p += 1.0f;
    /* 2^n in two factors, since n runs from -152 to 130. */
    int32_t power = (int32_t)(ebb_float_bits(shifted) - 0x4b400000u);
    int32_t half = power >> 1;
    float scale = ebb_bits_float((uint32_t)(half + 127) << 23);
    float rest = ebb_bits_float((uint32_t)(power - half + 127) << 23);
    return p * scale * rest;
}

/* Sum of 16 lanes twice, always in this order. */
EBB_VECTOR float ebb_add_lanes(const ebb_lanes *a, const ebb_lanes *b)
{
    float lane[16];
    ebb_lanes sum = *a + *b;
    memcpy(lane, &sum, sizeof lane);
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    }
    return lane[0];
}

/* sum of a[i] b[i], over at most EBB_CHUNK elements for the sake of precision; 32 partial sums,
 * then a tree. */
EBB_VECTOR float ebb_dot_f32(const float *a, const float *b, int64_t n)
{
    ebb_lanes even = {0}, odd = {0};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        even += *(const ebb_lanes *)(a + i) * *(const ebb_lanes *)(b + i);
        odd += *(const ebb_lanes *)(a + i + 16) * *(const ebb_lanes *)(b + i + 16);
    }
    if (i < n) {
        float last_a[32] = {0}, last_b[32] = {0};
        memcpy(last_a, a + i, (size_t)(n - i) * sizeof *a);
        memcpy(last_b, b + i, (size_t)(n - i) * sizeof *b);
        even += *(const ebb_lanes *)last_a * *(const ebb_lanes *)last_b;
        odd += *(const ebb_lanes *)(last_a + 16) * *(const ebb_lanes *)(last_b + 16);
    }
    return ebb_add_lanes(&even, &odd);
}

/* sum of a[i] in the same order. */
EBB_VECTOR float ebb_sum_f32(const float *a, int64_t n)
{
    ebb_lanes even = {0}, odd = {0};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        even += *(const ebb_lanes *)(a + i);
        odd += *(const ebb_lanes *)(a + i + 16);
    }
    if (i < n) {
        float last[32] = {0};
        memcpy(last, a + i, (size_t)(n - i) * sizeof *a);
        even += *(const ebb_lanes *)last;
        odd += *(const ebb_lanes *)(last + 16);
    }
    return ebb_add_lanes(&even, &odd);
}

/* The largest of n > 0 elements and `start`; NaN is passed over. */
EBB_VECTOR float ebb_max_f32(const float *a, int64_t n, float start)
{
    float lane[32];
    for (int k = 0; k < 32; k++) lane[k] = start;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int k = 0; k < 32; k++) lane[k] = a[i + k] > lane[k] ? a[i + k] : lane[k];
    }
    for (; i < n; i++) start = a[i] > start ? a[i] : start;
    for (int k = 0; k < 32; k++) start = lane[k] > start ? lane[k] : start;
    return start;
}

/* ---- rows and threads ---- */

/* Row i of a view that is there. */
static inline void *ebb_view_row(const struct ebb_op_env *env, const struct ebb_view *view,
                                 int64_t i)
{
    return (char *)ebb_view_data(env, view) +
           i * view->stride * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
}

static inline enum ebb_dtype ebb_view_dtype(const struct ebb_view *view)
{
    return (enum ebb_dtype)view->dtype;
}

static inline bool ebb_view_present(const struct ebb_view *view)
{
    return view->tensor >= 0;
}

/* Threads for work on so many elements: a team costs more to wake than a few thousand elements
 * take. */
static inline int ebb_op_team(const struct ebb_op_env *env, int64_t elements)
{
    return elements < 16384 || env->threads < 1 ? 1 : env->threads;
}

#ifdef __cplusplus
}
#endif
#endif
