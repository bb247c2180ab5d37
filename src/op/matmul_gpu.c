/* Which way a product takes on a GPU, decided from its arguments alone, so that plans can be made
 * where there is none.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul_int.h"

/* ---- products with a thin side ---- */

static bool is_thin(int64_t cols)
{
    return cols <= EBB_THIN_COLS;
}

static bool has_terms(const struct ebb_matmul *args)
{
    return args->bias.tensor >= 0 || args->add.tensor >= 0;
}

bool ebb_matmul_thin_takes(const struct ebb_matmul *args)
{
    const struct ebb_view *a = &args->a, *b = &args->b;
    if (a->dtype != EBB_BF16 || a->stride % 8 != 0 || b->stride % 8 != 0 || has_terms(args))
        return false;
    if (args->form == EBB_MATMUL_NT)
        return is_thin(b->rows) && a->cols % 8 == 0 && !args->accumulate;
    if (args->form == EBB_MATMUL_NN)
        return is_thin(b->cols) && b->cols % 8 == 0 && a->cols % 8 == 0 && !args->accumulate;
    if (args->y.dtype != EBB_F32) return false;
    return a->cols % 8 == 0 && b->cols % 8 == 0 && (is_thin(a->cols) || is_thin(b->cols));
}

bool ebb_matmul_thin_first(const struct ebb_matmul *args)
{
    return !is_thin(args->b.cols);
}

/* Few columns are few blocks: the rows are split the more. */
static int64_t least_part_rows(int64_t wide)
{
    return wide >= 8192 ? 1024 : wide >= 2048 ? 512 : 256;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t ebb_matmul_thin_part_rows(int64_t wide, int64_t rows)
{
    int64_t least = least_part_rows(wide);
    int64_t each = ceil_div(ceil_div(rows, EBB_THIN_PARTS), EBB_THIN_STEP) * EBB_THIN_STEP;
    return least > each ? least : each;
}

static int64_t thin_scratch(const struct ebb_matmul *args)
{
    if (args->form != EBB_MATMUL_TN) return 0;
    int64_t wide = ebb_matmul_thin_first(args) ? args->b.cols : args->a.cols;
    int64_t parts = ceil_div(args->a.rows, least_part_rows(wide));
    if (parts > EBB_THIN_PARTS) parts = EBB_THIN_PARTS;
    return parts > 1 ? parts * args->y.rows * args->y.cols * 4 : 0;
}

/* ---- sums over a vocabulary ---- */

/* A long sum into few columns has too few tiles to fill a GPU. cuBLASLt's own ways to split it are
 * not used, since it chooses them by the number of rows too. */
struct ebb_matmul_split ebb_matmul_split_of(const struct ebb_matmul *args)
{
    enum { LONG = 1 << 16, UNIT = 64 };
    struct ebb_matmul_split split = {1, args->a.cols, 0};
    int64_t n = args->y.cols, k = args->a.cols;
    if (args->form == EBB_MATMUL_TN || args->a.dtype != EBB_BF16 || k < LONG || n > 8192 ||
        args->accumulate || has_terms(args))
        return split;
    split.parts = n <= 1024 ? 8 : n <= 4096 ? 4 : 2;
    split.each = k / split.parts / UNIT * UNIT;
    split.rest = k - split.parts * split.each;
    return split;
}

static int64_t split_scratch(const struct ebb_matmul *args)
{
    struct ebb_matmul_split split = ebb_matmul_split_of(args);
    if (split.parts == 1) return 0;
    return (split.parts + (split.rest > 0)) * args->y.rows * args->y.cols * 4;
}

/* ---- scratch ---- */

/* What the library works in may be read by nobody else meanwhile: a split sum's parts lie behind
 * it. Thin products do without the library. */
int64_t ebb_matmul_gpu_scratch(const struct ebb_matmul *args)
{
    int64_t library = EBB_MATMUL_CUDA_WORKSPACE + split_scratch(args);
    int64_t thin = ebb_matmul_thin_takes(args) ? thin_scratch(args) : 0;
    return thin > library ? thin : library;
}
