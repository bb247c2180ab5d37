/* Input embedding on the GPU. Backward sorts the tokens by id (stable, in one block: their
 * number is small beside everything else), so that every row of the table has one owner who adds
 * its tokens in ascending order. Ids are the host's to check.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/embed.h"

#include "op/vector_cuda_int.cuh"

enum { THREADS = 128, SORT_THREADS = 512, DIGIT_BITS = 4, DIGITS = 1 << DIGIT_BITS };

template <typename T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    forward_kernel(const int32_t *ids, const T *table, int64_t table_stride, int64_t vocab, T *y,
                   int64_t y_stride, int64_t cols, unsigned across)
{
    int64_t i = blockIdx.x / across, id = ids[i];
    int64_t j = 8 * ((int64_t)(blockIdx.x % across) * THREADS + threadIdx.x);
    if (j >= cols) return;
    float row[8] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    if (id >= 0 && id < vocab) ebb_read_eight<WIDE>(table + id * table_stride, j, cols, row);
    ebb_write_eight<WIDE>(y + i * y_stride, j, cols, row);
}

template <typename T>
static void launch_forward(const struct ebb_op_env *env, const struct ebb_embed_forward *args,
                           int64_t rows)
{
    const struct ebb_view *y = &args->y, *table = &args->table;
    const int32_t *ids = ebb_data<const int32_t>(env, &args->ids) + y->row0;
    unsigned across = ebb_blocks(ebb_ceil_div(y->cols, 8 * THREADS));
    unsigned grid = ebb_blocks(rows * across);
    const T *from = ebb_data<const T>(env, table);
    T *to = ebb_data<T>(env, y);
    if (ebb_wide(env, table) && ebb_wide(env, y))
        forward_kernel<T, true><<<grid, THREADS, 0, ebb_stream(env)>>>(
            ids, from, table->stride, table->rows, to, y->stride, y->cols, across);
    else
        forward_kernel<T, false><<<grid, THREADS, 0, ebb_stream(env)>>>(
            ids, from, table->stride, table->rows, to, y->stride, y->cols, across);
}

enum ebb_status ebb_embed_forward_cuda(const struct ebb_op_env *env,
                                       const struct ebb_embed_forward *args)
{
    const struct ebb_view *y = &args->y, *table = &args->table;
    EBB_ASSERT(y->cols == table->cols && y->dtype == table->dtype);
    int64_t rows = ebb_view_rows(env, y);
    if (rows == 0 || y->cols == 0) return EBB_OK;
    if (y->dtype == EBB_F32)
        launch_forward<float>(env, args, rows);
    else
        launch_forward<ebb_bf16>(env, args, rows);
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

/* Where the run of an id ends that begins at place `at`: the block looks at as many places at a
 * time as it has threads. */
static __device__ int32_t end_of_run(const int32_t *ids, const int32_t *order, int32_t n,
                                     int32_t at, int32_t id, int32_t *shared)
{
    if (threadIdx.x == 0) *shared = n;
    for (int32_t from = at + 1; from < n; from += THREADS) {
        int32_t place = from + (int32_t)threadIdx.x;
        bool other = place < n && ids[order[place]] != id;
        if (__syncthreads_or(other)) {
            if (other) atomicMin(shared, place);
            break;
        }
    }
    __syncthreads();
    return *shared;
}

/* `across` blocks a place of the order; at the first place of an id they do its row, a thread eight
 * columns. */
template <typename T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    add_kernel(const int32_t *ids, const int32_t *order, int32_t n, const T *dx, int64_t dx_stride,
               float *dtable, int64_t table_stride, int64_t vocab, int64_t cols, unsigned across)
{
    __shared__ int32_t shared;
    int32_t at = (int32_t)(blockIdx.x / across), id = ids[order[at]];
    if (at > 0 && ids[order[at - 1]] == id) return;
    if (id < 0 || id >= vocab) return;
    int32_t end = end_of_run(ids, order, n, at, id, &shared);
    int64_t j = 8 * ((int64_t)(blockIdx.x % across) * THREADS + threadIdx.x);
    if (j >= cols) return;
    float sum[8], values[8];
    ebb_read_eight<WIDE>(dtable + id * table_stride, j, cols, sum);
#pragma unroll 4
    for (int32_t k = at; k < end; k++) {
        ebb_read_eight<WIDE>(dx + order[k] * dx_stride, j, cols, values);
#pragma unroll
        for (int m = 0; m < 8; m++) sum[m] += values[m];
    }
    ebb_write_eight<WIDE>(dtable + id * table_stride, j, cols, sum);
}

template <typename T>
static void launch_add(const struct ebb_op_env *env, const struct ebb_embed_backward *args,
                       const int32_t *ids, const int32_t *order, int64_t rows)
{
    const struct ebb_view *dx = &args->dx, *dtable = &args->dtable;
    unsigned across = ebb_blocks(ebb_ceil_div(dx->cols, 8 * THREADS));
    unsigned grid = ebb_blocks(rows * across);
    const T *from = ebb_data<const T>(env, dx);
    float *to = ebb_data<float>(env, dtable);
    if (ebb_wide(env, dx) && ebb_wide(env, dtable))
        add_kernel<T, true><<<grid, THREADS, 0, ebb_stream(env)>>>(
            ids, order, (int32_t)rows, from, dx->stride, to, dtable->stride, dtable->rows, dx->cols,
            across);
    else
        add_kernel<T, false><<<grid, THREADS, 0, ebb_stream(env)>>>(
            ids, order, (int32_t)rows, from, dx->stride, to, dtable->stride, dtable->rows, dx->cols,
            across);
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
    if (rows == 0 || dx->cols == 0) return EBB_OK;
    const int32_t *ids = ebb_data<const int32_t>(env, &args->ids) + dx->row0;
    int32_t *order = ebb_data<int32_t>(env, &args->scratch), *other = order + rows;
    int bits = 1;
    while (bits < 31 && (dtable->rows - 1) >> bits > 0) bits++;
    int passes = (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    passes += passes % 2;
    sort_kernel<<<1, SORT_THREADS, 0, ebb_stream(env)>>>(ids, (int32_t)rows, passes, order, other);
    if (dx->dtype == EBB_F32)
        launch_add<float>(env, args, ids, order, rows);
    else
        launch_add<ebb_bf16>(env, args, ids, order, rows);
    return ebb_launched(env, "embed_backward");
}
