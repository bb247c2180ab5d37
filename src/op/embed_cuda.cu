/* Input embedding on the GPU. Backward sorts the tokens by id (stable, in one block: their
 * number is small beside everything else), so that every row of the table has one owner who adds
 * its tokens in ascending order. Ids are the host's to check.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/embed.h"

#include "op/cuda_int.cuh"

enum { THREADS = 256, SORT_THREADS = 512, DIGIT_BITS = 4, DIGITS = 1 << DIGIT_BITS };

template <typename T>
static __global__ void forward_kernel(const int32_t *ids, const T *table, int64_t table_stride,
                                      int64_t vocab, T *y, int64_t y_stride, int64_t cols)
{
    int64_t i = blockIdx.x, id = ids[i];
    bool known = id >= 0 && id < vocab;
    for (int64_t j = threadIdx.x; j < cols; j += blockDim.x)
        y[i * y_stride + j] = known ? table[id * table_stride + j] : T(NAN);
}

enum ebb_status ebb_embed_forward_cuda(const struct ebb_op_env *env,
                                       const struct ebb_embed_forward *args)
{
    const struct ebb_view *y = &args->y, *table = &args->table;
    EBB_ASSERT(y->cols == table->cols && y->dtype == table->dtype);
    int64_t rows = ebb_view_rows(env, y);
    if (rows == 0) return EBB_OK;
    const int32_t *ids = ebb_data<const int32_t>(env, &args->ids) + y->row0;
    if (y->dtype == EBB_F32)
        forward_kernel<<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(
            ids, ebb_data<const float>(env, table), table->stride, table->rows,
            ebb_data<float>(env, y), y->stride, y->cols);
    else
        forward_kernel<<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(
            ids, ebb_data<const ebb_bf16>(env, table), table->stride, table->rows,
            ebb_data<ebb_bf16>(env, y), y->stride, y->cols);
    return ebb_launched(env, "embed_forward");
}

/* ---- the order of tokens by id --------------------------------------------------------------- */

/* counts[digit][thread] become where the first of that digit of that thread goes. */
static __device__ void scan_counts(int32_t counts[DIGITS][SORT_THREADS], int32_t *totals)
{
    int32_t *flat = &counts[0][0];
    int first = threadIdx.x * DIGITS; /* as many places a thread as there are digits */
    int32_t sum = 0;
    for (int k = 0; k < DIGITS; k++) sum += flat[first + k];
    totals[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 1; step < SORT_THREADS; step *= 2) {
        int32_t before = threadIdx.x >= step ? totals[threadIdx.x - step] : 0;
        __syncthreads();
        totals[threadIdx.x] += before;
        __syncthreads();
    }
    int32_t place = totals[threadIdx.x] - sum;
    for (int k = 0; k < DIGITS; k++) {
        int32_t count = flat[first + k];
        flat[first + k] = place;
        place += count;
    }
    __syncthreads();
}

/* One block. Sorts indices of ids by (id, index), DIGIT_BITS at a time, going back and forth
 * between the two arrays; the result ends in `order`, since the number of passes is even. */
static __global__ void sort_kernel(const int32_t *ids, int32_t n, int passes, int32_t *order,
                                   int32_t *other)
{
    __shared__ int32_t counts[DIGITS][SORT_THREADS];
    __shared__ int32_t totals[SORT_THREADS];
    int32_t each = (n + SORT_THREADS - 1) / SORT_THREADS, first = (int32_t)threadIdx.x * each;
    int32_t end = first + each < n ? first + each : n;
    for (int32_t i = first; i < end; i++) order[i] = i;
    int32_t *from = order, *to = other;
    for (int pass = 0; pass < passes; pass++) {
        int shift = pass * DIGIT_BITS;
        for (int d = 0; d < DIGITS; d++) counts[d][threadIdx.x] = 0;
        __syncthreads();
        for (int32_t i = first; i < end; i++)
            counts[(ids[from[i]] >> shift) & (DIGITS - 1)][threadIdx.x]++;
        __syncthreads();
        scan_counts(counts, totals);
        for (int32_t i = first; i < end; i++) {
            int32_t token = from[i];
            to[counts[(ids[token] >> shift) & (DIGITS - 1)][threadIdx.x]++] = token;
        }
        __syncthreads();
        int32_t *swap = from;
        from = to;
        to = swap;
    }
}

/* One block a place of the order; the first place of an id does its row. */
template <typename T>
static __global__ void add_kernel(const int32_t *ids, const int32_t *order, int64_t n, const T *dx,
                                  int64_t dx_stride, float *dtable, int64_t table_stride,
                                  int64_t vocab, int64_t cols)
{
    int64_t at = blockIdx.x;
    int32_t id = ids[order[at]];
    if (at > 0 && ids[order[at - 1]] == id) return;
    if (id < 0 || id >= vocab) return;
    int64_t end = at + 1;
    while (end < n && ids[order[end]] == id) end++;
    for (int64_t j = threadIdx.x; j < cols; j += blockDim.x) {
        float sum = dtable[id * table_stride + j];
        for (int64_t k = at; k < end; k++) sum += ebb_load(dx + order[k] * dx_stride + j);
        dtable[id * table_stride + j] = sum;
    }
}

enum ebb_status ebb_embed_backward_cuda(const struct ebb_op_env *env,
                                        const struct ebb_embed_backward *args)
{
    const struct ebb_view *dx = &args->dx, *dtable = &args->dtable;
    EBB_ASSERT(dx->cols == dtable->cols && dtable->dtype == EBB_F32);
    int64_t rows = ebb_view_rows(env, dx);
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    EBB_ASSERT(ebb_embed_backward_scratch(rows, &target) <= args->scratch.cols);
    EBB_ASSERT(rows <= INT32_MAX - SORT_THREADS); /* the sort counts in 32 bits */
    if (rows == 0) return EBB_OK;
    const int32_t *ids = ebb_data<const int32_t>(env, &args->ids) + dx->row0;
    int32_t *order = ebb_data<int32_t>(env, &args->scratch), *other = order + rows;
    int bits = 1;
    while (bits < 31 && (dtable->rows - 1) >> bits > 0) bits++;
    int passes = (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    passes += passes % 2;
    sort_kernel<<<1, SORT_THREADS, 0, ebb_stream(env)>>>(ids, (int32_t)rows, passes, order, other);
    if (dx->dtype == EBB_F32)
        add_kernel<<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(
            ids, order, rows, ebb_data<const float>(env, dx), dx->stride,
            ebb_data<float>(env, dtable), dtable->stride, dtable->rows, dx->cols);
    else
        add_kernel<<<ebb_blocks(rows), THREADS, 0, ebb_stream(env)>>>(
            ids, order, rows, ebb_data<const ebb_bf16>(env, dx), dx->stride,
            ebb_data<float>(env, dtable), dtable->stride, dtable->rows, dx->cols);
    return ebb_launched(env, "embed_backward");
}
