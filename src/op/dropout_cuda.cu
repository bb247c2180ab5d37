/* Dropout on the GPU. Where rows consist of eights a thread has two whole Philox counters of them;
 * elsewhere the four elements of one counter, which may belong to two rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/dropout.h"

#include <math.h>

#include "op/random_cuda_int.cuh"
#include "op/vector_cuda_int.cuh"

enum { THREADS = 128 };

template <typename T> struct call {
    const T *x;
    T *y;
    int64_t x_stride, y_stride, cols, row0;
    uint64_t key;
    uint32_t limit; /* a word whose upper 24 bits are below is dropped */
    float scale;
    int accumulate;
    unsigned across; /* so many blocks have a row */
};

/* What an element is multiplied by. */
template <typename T>
static __device__ __forceinline__ float factor(const struct call<T> &c, uint32_t word)
{
    return word >> 8 < c.limit ? 0.0f : c.scale;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) wide_kernel(struct call<T> c)
{
    int64_t i = blockIdx.x / c.across;
    int64_t j = 8 * ((int64_t)(blockIdx.x % c.across) * THREADS + threadIdx.x);
    if (j >= c.cols) return;
    T *y = c.y + i * c.y_stride;
    float x[8], sum[8];
    uint32_t words[8];
    ebb_read_eight<true>(c.x + i * c.x_stride, j, c.cols, x);
    if (c.accumulate) ebb_read_eight<true>(y, j, c.cols, sum);
    uint64_t counter = ((uint64_t)(c.row0 + i) * (uint64_t)c.cols + (uint64_t)j) / 4;
    ebb_philox_device(c.key, counter, words);
    ebb_philox_device(c.key, counter + 1, words + 4);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float value = x[k] * factor(c, words[k]);
        sum[k] = c.accumulate ? sum[k] + value : value;
    }
    ebb_write_eight<true>(y, j, c.cols, sum);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) narrow_kernel(struct call<T> c)
{
    int64_t i = blockIdx.x / c.across;
    uint64_t first = (uint64_t)(c.row0 + i) * (uint64_t)c.cols;
    uint64_t counter = first / 4 + (uint64_t)(blockIdx.x % c.across) * THREADS + threadIdx.x;
    if (counter > (first + (uint64_t)c.cols - 1) / 4) return;
    uint32_t words[4];
    ebb_philox_device(c.key, counter, words);
    for (int k = 0; k < 4; k++) {
        int64_t j = (int64_t)(4 * counter + (uint64_t)k - first);
        if (j < 0 || j >= c.cols) continue;
        float value = ebb_load(c.x + i * c.x_stride + j) * factor(c, words[k]);
        T *to = c.y + i * c.y_stride + j;
        ebb_store(to, c.accumulate ? ebb_load(to) + value : value);
    }
}

template <typename T>
static void launch(const struct ebb_op_env *env, const struct ebb_dropout *args, int64_t rows)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    const struct ebb_step *step = env->step;
    struct call<T> c;
    c.x = ebb_data<const T>(env, x);
    c.y = ebb_data<T>(env, y);
    c.x_stride = x->stride;
    c.y_stride = y->stride;
    c.cols = x->cols;
    c.row0 = x->row0;
    c.key = ebb_random_key(step->seed, step->step, step->micro, step->rank, args->instance);
    /* ebb_uniform(word) < p without making a float of each word: its 24 bits times 2^-24 and
     * p times 2^24 are exact. */
    c.limit = (uint32_t)ceilf(args->p * 16777216.0f);
    c.scale = 1.0f / (1.0f - args->p);
    c.accumulate = args->accumulate;
    bool wide = ebb_wide(env, x) && ebb_wide(env, y);
    c.across = ebb_blocks(wide ? ebb_ceil_div(c.cols, 8 * THREADS)
                               : ebb_ceil_div(c.cols / 4 + 2, THREADS));
    unsigned grid = ebb_blocks(rows * c.across);
    if (wide)
        wide_kernel<T><<<grid, THREADS, 0, ebb_stream(env)>>>(c);
    else
        narrow_kernel<T><<<grid, THREADS, 0, ebb_stream(env)>>>(c);
}

enum ebb_status ebb_dropout_cuda(const struct ebb_op_env *env, const struct ebb_dropout *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == y->cols && x->dtype == y->dtype && args->p >= 0.0f && args->p < 1.0f);
    int64_t rows = ebb_view_rows(env, x);
    if (rows == 0 || x->cols == 0) return EBB_OK;
    if (x->dtype == EBB_F32)
        launch<float>(env, args, rows);
    else
        launch<ebb_bf16>(env, args, rows);
    return ebb_launched(env, "dropout");
}
