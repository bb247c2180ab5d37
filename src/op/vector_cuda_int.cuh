/* Eight neighbouring elements of a row at a time, for kernels that memory bounds: in bf16 one
 * access of 16 bytes, in fp32 two. Only .cu files include this.
 *
 * A launcher asks ebb_wide of every view and picks the kernel's copy that loads so; in the other
 * one, for rows that are not aligned or end within an eight, the same thread has the same elements
 * one by one. So the order of a sum is a matter of columns alone, and both give the same bits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_VECTOR_CUDA_INT_H
#define EBB_OP_VECTOR_CUDA_INT_H

#include "op/cuda_int.cuh"

/* Eight elements as they are stored: half as many registers as bf16 needs in fp32. */
template <typename T> struct ebb_eight {
    uint4 part[8 * sizeof(T) / 16];
};

static __device__ __forceinline__ void ebb_unpack(const struct ebb_eight<float> &from, float to[8])
{
    for (int k = 0; k < 2; k++) {
        to[4 * k] = __uint_as_float(from.part[k].x);
        to[4 * k + 1] = __uint_as_float(from.part[k].y);
        to[4 * k + 2] = __uint_as_float(from.part[k].z);
        to[4 * k + 3] = __uint_as_float(from.part[k].w);
    }
}
static __device__ __forceinline__ void ebb_unpack(const struct ebb_eight<ebb_bf16> &from,
                                                  float to[8])
{
    const uint32_t words[4] = {from.part[0].x, from.part[0].y, from.part[0].z, from.part[0].w};
    for (int k = 0; k < 4; k++) {
        to[2 * k] = __uint_as_float(words[k] << 16);
        to[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
    }
}

static __device__ __forceinline__ void ebb_pack(struct ebb_eight<float> &to, const float from[8])
{
    for (int k = 0; k < 2; k++)
        to.part[k] = make_uint4(__float_as_uint(from[4 * k]), __float_as_uint(from[4 * k + 1]),
                                __float_as_uint(from[4 * k + 2]), __float_as_uint(from[4 * k + 3]));
}
static __device__ __forceinline__ void ebb_pack(struct ebb_eight<ebb_bf16> &to, const float from[8])
{
    uint32_t words[4];
    for (int k = 0; k < 4; k++) {
        /* Two at a time: conversions of one run at an eighth of the rate. */
        __nv_bfloat162 pair = __floats2bfloat162_rn(from[2 * k], from[2 * k + 1]);
        words[k] = __bfloat16_as_ushort(pair.x) | (uint32_t)__bfloat16_as_ushort(pair.y) << 16;
    }
    to.part[0] = make_uint4(words[0], words[1], words[2], words[3]);
}

/* Elements j to j + 7 of a row of `cols`. Those behind its end, which only rows that are not wide
 * have, are 0. */
template <bool WIDE, typename T>
static __device__ __forceinline__ struct ebb_eight<T> ebb_load_eight(const T *row, int64_t j,
                                                                     int64_t cols)
{
    struct ebb_eight<T> eight;
    if constexpr (WIDE) {
        const uint4 *at = (const uint4 *)(row + j);
#pragma unroll
        for (int k = 0; k < (int)(8 * sizeof(T) / 16); k++) eight.part[k] = at[k];
    } else {
        float values[8];
#pragma unroll
        for (int k = 0; k < 8; k++) values[k] = j + k < cols ? ebb_load(row + j + k) : 0.0f;
        ebb_pack(eight, values);
    }
    return eight;
}

/* The same as fp32. */
template <bool WIDE, typename T>
static __device__ __forceinline__ void ebb_read_eight(const T *row, int64_t j, int64_t cols,
                                                      float to[8])
{
    ebb_unpack(ebb_load_eight<WIDE>(row, j, cols), to);
}

/* One store, where the compiler sometimes takes an assignment apart into words. */
static __device__ __forceinline__ void ebb_store_16(uint4 *at, uint4 value)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)),
                 "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void ebb_write_eight(T *row, int64_t j, int64_t cols,
                                                       const float from[8])
{
    if constexpr (WIDE) {
        struct ebb_eight<T> eight;
        ebb_pack(eight, from);
#pragma unroll
        for (int k = 0; k < (int)(8 * sizeof(T) / 16); k++)
            ebb_store_16((uint4 *)(row + j) + k, eight.part[k]);
    } else {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (j + k < cols) ebb_store(row + j + k, from[k]);
        }
    }
}

/* Whether each row of `cols` elements starts at a multiple of 16 bytes and consists of eights. */
static inline bool ebb_wide_rows(const void *data, int64_t stride, int64_t cols, int64_t size)
{
    return cols % 8 == 0 && (uintptr_t)data % 16 == 0 && stride * size % 16 == 0;
}

/* The same of a view; true of an absent one. */
static inline bool ebb_wide(const struct ebb_op_env *env, const struct ebb_view *view)
{
    return !ebb_present(view) ||
           ebb_wide_rows(ebb_view_data(env, view), view->stride, view->cols,
                         ebb_dtype_bytes((enum ebb_dtype)view->dtype));
}

#endif
