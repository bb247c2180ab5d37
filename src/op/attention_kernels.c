/* Attention's arithmetic, compiled once for each instruction set: attention_kernel.inc holds it,
 * in terms of a vector type and of the two operations that plain vector code does not express.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_int.h"

#include <math.h>
#include <string.h>

#include "op/vector_int.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))),    \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")
#endif
#define KERNEL(name)   name##_avx512
#define VECTOR_BYTES   64
#define TILE_VECTORS   4
#define V_FMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define V_MAX(a, b)    ((vf)_mm512_max_ps((__m512)(a), (__m512)(b)))
#include "op/attention_kernel.inc"
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define KERNEL(name)   name##_avx2
#define VECTOR_BYTES   32
#define TILE_VECTORS   2
#define V_FMA(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define V_MAX(a, b)    ((vf)_mm256_max_ps((__m256)(a), (__m256)(b)))
#include "op/attention_kernel.inc"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#define KERNEL(name)   name##_plain
#define VECTOR_BYTES   16
#define TILE_VECTORS   2
#define V_FMA(a, b, c) ((a) * (b) + (c))
#define V_MAX(a, b)    v_select((a) > (b), (a), (b))
#include "op/attention_kernel.inc"

const struct ebb_attention_kernels *ebb_attention_kernels(int set)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (set == 0) {
        bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        return has ? &kernels_avx512 : NULL;
    }
    if (set == 1) {
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels_avx2
                                                                               : NULL;
    }
#else
    if (set < 2) return NULL;
#endif
    return &kernels_plain;
}
