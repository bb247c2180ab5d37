/* Input embedding on the CPU. Backward sorts the tokens by id (stable, byte by byte), so that
 * every row of the table has one owner who adds its tokens in ascending order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/embed.h"

#include "op/vector_int.h"

enum { SLICE = 512 }; /* columns of one row that a thread sums at a time */

static enum ebb_status check_ids(const struct ebb_op_env *env, const int32_t *ids, int64_t n,
                                 int64_t first, int64_t vocab)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < vocab) continue;
        return EBB_FAIL(env->ctx, EBB_FAILED,
                        "embed: token %lld has id %d, outside the vocabulary of %lld; "
                        "does the tokenizer belong to this model?",
                        (long long)(first + i), (int)ids[i], (long long)vocab);
    }
    return EBB_OK;
}

enum ebb_status ebb_embed_forward_cpu(const struct ebb_op_env *env,
                                      const struct ebb_embed_forward *args)
{
    const struct ebb_view *y = &args->y, *table = &args->table;
    EBB_ASSERT(y->cols == table->cols && y->dtype == table->dtype);
    int64_t rows = ebb_view_rows(env, y);
    EBB_ASSERT(rows == 0 || y->row0 + rows <= args->ids.cols);
    size_t bytes = (size_t)(y->cols * ebb_dtype_bytes(ebb_view_dtype(y)));
    const int32_t *ids = (const int32_t *)ebb_view_data(env, &args->ids) + y->row0;
    EBB_TRY(check_ids(env, ids, rows, y->row0, table->rows));
#pragma omp parallel for num_threads(ebb_op_team(env, rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        memcpy(ebb_view_row(env, y, i), ebb_view_row(env, table, ids[i]), bytes);
    return EBB_OK;
}

/* Indices of ids in the order of (id, index). Returns whichever of the two arrays they ended in. */
static const int32_t *sort_by_id(const int32_t *ids, int32_t n, int32_t vocab, int32_t *order,
                                 int32_t *next)
{
    for (int32_t i = 0; i < n; i++) order[i] = i;
    for (int shift = 0; shift == 0 || (shift < 31 && (vocab - 1) >> shift > 0); shift += 8) {
        int32_t start[257] = {0};
        for (int32_t i = 0; i < n; i++) start[((ids[i] >> shift) & 255) + 1]++;
        for (int k = 0; k < 256; k++) start[k + 1] += start[k];
        for (int32_t i = 0; i < n; i++) next[start[(ids[order[i]] >> shift) & 255]++] = order[i];
        int32_t *swap = order;
        order = next;
        next = swap;
    }
    return order;
}

static EBB_CLONES void add_row(enum ebb_dtype dtype, const void *x, int64_t first, int64_t n,
                               float *sum)
{
    float buffer[SLICE];
    const float *row = ebb_see_f32(dtype, x, first, n, buffer);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) sum[j] += row[j];
}

enum ebb_status ebb_embed_backward_cpu(const struct ebb_op_env *env,
                                       const struct ebb_embed_backward *args)
{
    const struct ebb_view *dx = &args->dx, *dtable = &args->dtable;
    EBB_ASSERT(dx->cols == dtable->cols && dtable->dtype == EBB_F32);
    int64_t rows = ebb_view_rows(env, dx), cols = dx->cols, slices = (cols + SLICE - 1) / SLICE;
    EBB_ASSERT(rows == 0 || dx->row0 + rows <= args->ids.cols);
    EBB_ASSERT(rows <= INT32_MAX && dtable->rows <= INT32_MAX);
    const struct ebb_op_target target = {.backend = EBB_BACKEND_CPU, .threads = env->threads};
    EBB_ASSERT(ebb_embed_backward_scratch(rows, &target) <= args->scratch.cols);
    const int32_t *ids = (const int32_t *)ebb_view_data(env, &args->ids) + dx->row0;
    EBB_TRY(check_ids(env, ids, rows, dx->row0, dtable->rows));
    if (rows == 0) return EBB_OK;
    int32_t *scratch = ebb_view_data(env, &args->scratch);
    const int32_t *order =
        sort_by_id(ids, (int32_t)rows, (int32_t)dtable->rows, scratch, scratch + rows);
    /* One piece of work is a slice of the columns of all tokens of one id; it stands at the
     * first of them. */
#pragma omp parallel for num_threads(ebb_op_team(env, rows *cols)) schedule(dynamic, 16)
    for (int64_t piece = 0; piece < rows * slices; piece++) {
        int64_t at = piece / slices, first = piece % slices * SLICE;
        int32_t id = ids[order[at]];
        if (at > 0 && ids[order[at - 1]] == id) continue;
        int64_t n = cols - first < SLICE ? cols - first : SLICE;
        float *sum = (float *)ebb_view_row(env, dtable, id) + first;
        for (; at < rows && ids[order[at]] == id; at++) {
            add_row(ebb_view_dtype(dx), ebb_view_row(env, dx, order[at]), first, n, sum);
        }
    }
    return EBB_OK;
}
