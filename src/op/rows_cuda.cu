/* Rows of matrices on the GPU. Row indices are the host's to check: a kernel leaves a row whose
 * index is outside the matrix alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows.h"

#include "op/vector_cuda_int.cuh"

enum { THREADS = 128, IN_FLIGHT = 4 };

/* Rows of bytes from one place to another. `from_rows` and `to_rows` may be NULL: row i itself. */
struct move {
    const char *from;
    char *to;
    int64_t from_stride, to_stride; /* bytes */
    int64_t row_bytes;
    int64_t rows;
    const int32_t *from_rows, *to_rows;
    int64_t from_limit, to_limit; /* rows of the indexed matrix */
    int64_t to_first;             /* is added to the row that is written */
};

/* A row has the threads along x of a block; Word is what addresses and sizes are multiples of. So
 * many words are read before the first is written, for the compiler cannot know that they are
 * others. */
template <typename Word>
static __global__ void __launch_bounds__(THREADS) move_kernel(struct move m)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= m.rows) return;
    int64_t from = m.from_rows != NULL ? m.from_rows[i] : i;
    int64_t to = (m.to_rows != NULL ? m.to_rows[i] : i) + m.to_first;
    if (from < 0 || from >= m.from_limit || to < 0 || to >= m.to_limit) return;
    const Word *x = (const Word *)(m.from + from * m.from_stride);
    Word *y = (Word *)(m.to + to * m.to_stride);
    int64_t words = m.row_bytes / (int64_t)sizeof(Word);
    int64_t step = blockDim.x;
    for (int64_t j = threadIdx.x; j < words; j += IN_FLIGHT * step) {
        Word some[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (j + k * step < words) some[k] = x[j + k * step];
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (j + k * step < words) y[j + k * step] = some[k];
        }
    }
}

template <typename Word>
static void launch_words(const struct ebb_op_env *env, const struct move *m)
{
    bool short_rows = m->row_bytes <= (int64_t)sizeof(Word) * 32 * IN_FLIGHT;
    dim3 block(short_rows ? 32 : THREADS, short_rows ? THREADS / 32 : 1);
    unsigned grid = ebb_blocks(ebb_ceil_div(m->rows, block.y));
    move_kernel<Word><<<grid, block, 0, ebb_stream(env)>>>(*m);
}

static void launch_move(const struct ebb_op_env *env, struct move *m, int64_t rows)
{
    uint64_t bits = (uint64_t)(uintptr_t)m->from | (uint64_t)(uintptr_t)m->to |
                    (uint64_t)m->from_stride | (uint64_t)m->to_stride | (uint64_t)m->row_bytes;
    m->rows = rows;
    if (bits % 16 == 0)
        launch_words<int4>(env, m);
    else if (bits % 4 == 0)
        launch_words<int32_t>(env, m);
    else if (bits % 2 == 0)
        launch_words<int16_t>(env, m);
    else
        launch_words<char>(env, m);
}

static struct move move_of(const struct ebb_op_env *env, const struct ebb_view *x,
                           const struct ebb_view *y)
{
    int64_t size = ebb_dtype_bytes((enum ebb_dtype)x->dtype);
    struct move m;
    EBB_ASSERT(x->cols == y->cols && x->dtype == y->dtype);
    m.from = ebb_data<const char>(env, x);
    m.to = ebb_data<char>(env, y);
    m.from_stride = x->stride * size;
    m.to_stride = y->stride * size;
    m.row_bytes = x->cols * size;
    m.rows = 0;
    m.from_rows = m.to_rows = NULL;
    m.from_limit = m.to_limit = INT64_MAX;
    m.to_first = 0;
    return m;
}

enum ebb_status ebb_fill_cuda(const struct ebb_op_env *env, const struct ebb_fill *args)
{
    const struct ebb_view *y = &args->y;
    size_t size = (size_t)ebb_dtype_bytes((enum ebb_dtype)y->dtype);
    int64_t rows = ebb_view_rows(env, y);
    if (rows == 0 || y->cols == 0) return EBB_OK;
    cudaError_t error =
        y->stride == y->cols
            ? cudaMemsetAsync(ebb_view_data(env, y), args->byte, (size_t)(rows * y->cols) * size,
                              ebb_stream(env))
            : cudaMemset2DAsync(ebb_view_data(env, y), (size_t)y->stride * size, args->byte,
                                (size_t)y->cols * size, (size_t)rows, ebb_stream(env));
    if (error == cudaSuccess) return EBB_OK;
    return EBB_FAIL(env->ctx, EBB_DEVICE, "the GPU failed at op 'fill': %s",
                    cudaGetErrorString(error));
}

enum ebb_status ebb_gather_rows_cuda(const struct ebb_op_env *env,
                                     const struct ebb_gather_rows *args)
{
    struct move m = move_of(env, &args->x, &args->y);
    int64_t rows = ebb_view_rows(env, &args->y);
    if (rows == 0) return EBB_OK;
    m.from_rows = ebb_data<const int32_t>(env, &args->rows) + args->y.row0;
    m.from_limit = args->x.rows;
    launch_move(env, &m, rows);
    return ebb_launched(env, "gather_rows");
}

enum ebb_status ebb_scatter_rows_cuda(const struct ebb_op_env *env,
                                      const struct ebb_scatter_rows *args)
{
    struct move m = move_of(env, &args->x, &args->y);
    int64_t rows = ebb_view_rows(env, &args->x);
    if (rows == 0) return EBB_OK;
    m.to_rows = ebb_data<const int32_t>(env, &args->rows) + args->x.row0;
    m.to_limit = args->y.rows;
    launch_move(env, &m, rows);
    return ebb_launched(env, "scatter_rows");
}

enum ebb_status ebb_store_rows_cuda(const struct ebb_op_env *env, const struct ebb_store_rows *args)
{
    struct move m = move_of(env, &args->x, &args->y);
    int64_t rows = ebb_view_rows(env, &args->x), cached = env->step->cached;
    if (cached < 0 || cached + rows > args->y.rows)
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "store_rows: %lld tokens after the %lld in the cache do not fit its %lld "
                        "rows; plan for a longer sequence or generate fewer tokens",
                        (long long)rows, (long long)cached, (long long)args->y.rows);
    if (rows == 0) return EBB_OK;
    m.to_first = cached;
    launch_move(env, &m, rows);
    return ebb_launched(env, "store_rows");
}

enum ebb_status ebb_copy_rows_cuda(const struct ebb_op_env *env, const struct ebb_copy_rows *args)
{
    struct move m = move_of(env, &args->x, &args->y);
    int64_t rows = ebb_view_rows(env, &args->x);
    if (rows == 0) return EBB_OK;
    EBB_ASSERT(rows <= args->y.rows);
    launch_move(env, &m, rows);
    return ebb_launched(env, "copy_rows");
}

/* ---- column sums ----------------------------------------------------------------------------- */

/* A thread eight columns of a part of the rows. `across`: blocks beside each other, which share a
 * part. */
template <typename T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    part_sum_kernel(const T *x, int64_t rows, int64_t cols, int64_t stride, unsigned across,
                    float *lines)
{
    int64_t part = blockIdx.x / across;
    int64_t j = 8 * ((int64_t)(blockIdx.x % across) * THREADS + threadIdx.x);
    if (j >= cols) return;
    int64_t first = part * EBB_CUDA_PART_ROWS, end = first + EBB_CUDA_PART_ROWS;
    if (end > rows) end = rows;
    float sum[8] = {}, values[8];
#pragma unroll 4
    for (int64_t i = first; i < end; i++) {
        ebb_read_eight<WIDE>(x + i * stride, j, cols, values);
#pragma unroll
        for (int k = 0; k < 8; k++) sum[k] += values[k];
    }
    ebb_write_eight<WIDE>(lines + part * cols, j, cols, sum);
}

template <typename T>
static void launch_part_sums(const struct ebb_op_env *env, const struct ebb_view *x, int64_t rows,
                             float *lines)
{
    unsigned across = ebb_blocks(ebb_ceil_div(x->cols, 8 * THREADS));
    unsigned grid = ebb_blocks(ebb_ceil_div(rows, EBB_CUDA_PART_ROWS) * across);
    const T *data = ebb_data<const T>(env, x);
    if (ebb_wide(env, x) && ebb_wide_rows(lines, x->cols, x->cols, sizeof(float)))
        part_sum_kernel<T, true><<<grid, THREADS, 0, ebb_stream(env)>>>(data, rows, x->cols,
                                                                        x->stride, across, lines);
    else
        part_sum_kernel<T, false><<<grid, THREADS, 0, ebb_stream(env)>>>(data, rows, x->cols,
                                                                         x->stride, across, lines);
}

enum ebb_status ebb_column_sum_cuda(const struct ebb_op_env *env, const struct ebb_column_sum *args)
{
    const struct ebb_view *x = &args->x;
    int64_t rows = ebb_view_rows(env, x), cols = x->cols;
    if (rows == 0 || cols == 0) return EBB_OK;
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    EBB_ASSERT(args->scratch.cols >= ebb_column_sum_scratch(rows, cols, &target));
    float *lines = ebb_data<float>(env, &args->scratch);
    int64_t parts = ebb_ceil_div(rows, EBB_CUDA_PART_ROWS);
    if (x->dtype == EBB_F32)
        launch_part_sums<float>(env, x, rows, lines);
    else
        launch_part_sums<ebb_bf16>(env, x, rows, lines);
    ebb_add_lines(env, lines, parts, cols, cols, ebb_data<float>(env, &args->y));
    return ebb_launched(env, "column_sum");
}
