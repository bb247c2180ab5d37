/* Dropout on the GPU. A thread has the four elements of one Philox counter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/dropout.h"

#include "op/random_cuda_int.cuh"

enum { THREADS = 256 };

template <typename T>
static __global__ void dropout_kernel(const T *x, int64_t x_stride, T *y, int64_t y_stride,
                                      int64_t cols, int64_t row0, uint64_t key, float p,
                                      int accumulate, unsigned across)
{
    int64_t i = blockIdx.x / across; /* so many blocks have a row */
    uint64_t first = (uint64_t)(row0 + i) * (uint64_t)cols;
    uint64_t counter = first / 4 + (uint64_t)(blockIdx.x % across) * blockDim.x + threadIdx.x;
    if (counter > (first + (uint64_t)cols - 1) / 4) return;
    uint32_t words[4];
    ebb_philox_device(key, counter, words);
    float scale = 1.0f / (1.0f - p);
    for (int k = 0; k < 4; k++) {
        int64_t j = (int64_t)(4 * counter + (uint64_t)k - first);
        if (j < 0 || j >= cols) continue;
        float kept = ebb_uniform_device(words[k]) < p ? 0.0f : scale;
        float value = ebb_load(x + i * x_stride + j) * kept;
        T *to = y + i * y_stride + j;
        ebb_store(to, accumulate ? ebb_load(to) + value : value);
    }
}

enum ebb_status ebb_dropout_cuda(const struct ebb_op_env *env, const struct ebb_dropout *args)
{
    const struct ebb_view *x = &args->x, *y = &args->y;
    EBB_ASSERT(x->cols == y->cols && x->dtype == y->dtype && args->p >= 0.0f && args->p < 1.0f);
    int64_t rows = ebb_view_rows(env, x), cols = x->cols;
    if (rows == 0 || cols == 0) return EBB_OK;
    const struct ebb_step *step = env->step;
    uint64_t key = ebb_random_key(step->seed, step->step, step->micro, step->rank, args->instance);
    unsigned across = ebb_blocks(ebb_ceil_div(cols / 4 + 2, THREADS));
    unsigned grid = ebb_blocks(rows * across);
    if (x->dtype == EBB_F32)
        dropout_kernel<<<grid, THREADS, 0, ebb_stream(env)>>>(
            ebb_data<const float>(env, x), x->stride, ebb_data<float>(env, y), y->stride, cols,
            x->row0, key, args->p, args->accumulate, across);
    else
        dropout_kernel<<<grid, THREADS, 0, ebb_stream(env)>>>(
            ebb_data<const ebb_bf16>(env, x), x->stride, ebb_data<ebb_bf16>(env, y), y->stride,
            cols, x->row0, key, args->p, args->accumulate, across);
    return ebb_launched(env, "dropout");
}
