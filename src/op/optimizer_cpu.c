/* Norm, clip factor and the parameter sweep on the CPU.
 *
 * A sweep goes over chunks of a row: the parameters come in as fp32 from wherever they live, are
 * updated, and go back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/optimizer.h"

#include <math.h>

#include "op/random_int.h"

/* columns of one partial sum of squares; partial sums at a time */
enum { PART = 4096, PARTS = 256 };

/* ---- master split in two: bits = w << 16 | lo, less 1 << 16 where lo >= 0x8000 ---- */

EBB_VECTOR uint16_t split_hi(uint32_t bits)
{
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? 0x7fc0u | (bits >> 31) << 15 : (bits + 0x8000u) >> 16);
}

EBB_VECTOR uint16_t split_lo(uint32_t bits)
{
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? 0u : bits & 0xffffu);
}

EBB_VECTOR float join(uint16_t hi, uint16_t lo)
{
    return ebb_bits_float(((uint32_t)hi << 16 | lo) - (lo >= 0x8000u ? 0x10000u : 0u));
}

void ebb_master_split(float value, uint16_t *hi, uint16_t *lo)
{
    uint32_t bits = ebb_float_bits(value);
    *hi = split_hi(bits);
    *lo = split_lo(bits);
}

float ebb_master_join(uint16_t hi, uint16_t lo)
{
    return join(hi, lo);
}

/* ---- norm and clip factor ---- */

/* Squares are added in double: those of large fp32 values do not fit fp32. */
static EBB_CLONES double squares(const float *g, int64_t n)
{
    ebb_wide_lanes sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        double wide[32];
        for (int k = 0; k < 32; k++) wide[k] = (double)g[i + k];
        for (int k = 0; k < 4; k++) {
            const ebb_wide_lanes *v = (const ebb_wide_lanes *)(wide + 8 * k);
            sum[k] += *v * *v;
        }
    }
    double lane[32], rest = 0;
    for (; i < n; i++) rest += (double)g[i] * (double)g[i];
    memcpy(lane, sum, sizeof lane);
    for (int width = 16; width > 0; width /= 2) {
        for (int k = 0; k < width; k++) lane[k] += lane[k + width];
    }
    return lane[0] + rest;
}

/* Partial sums belong to pieces of rows and are added in ascending order: a matrix in several
 * ops gives the same. */
enum ebb_status ebb_norm_squared_cpu(const struct ebb_op_env *env,
                                     const struct ebb_norm_squared *args)
{
    const struct ebb_view *grad = &args->grad;
    EBB_ASSERT(grad->dtype == EBB_F32 && args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    struct ebb_sums *sums = ebb_view_data(env, &args->sums);
    int64_t rows = ebb_view_rows(env, grad), cols = grad->cols;
    int64_t pieces = (cols + PART - 1) / PART, all = rows * pieces;
    int64_t width = cols < PART ? cols : PART;
    for (int64_t start = 0; start < all; start += PARTS) {
        double part[PARTS];
        int64_t count = all - start < PARTS ? all - start : PARTS;
#pragma omp parallel for num_threads(ebb_op_team(env, count * width)) schedule(static)
        for (int64_t k = 0; k < count; k++) {
            int64_t row = (start + k) / pieces, first = (start + k) % pieces * PART;
            const float *g = ebb_view_row(env, grad, row);
            part[k] = squares(g + first, cols - first < PART ? cols - first : PART);
        }
        for (int64_t k = 0; k < count; k++) sums->norm_squared += part[k];
    }
    return EBB_OK;
}

/* A step without any label has nothing to divide by: it changes no weight, and its norm is 0,
 * not NaN. */
enum ebb_status ebb_clip_cpu(const struct ebb_op_env *env, const struct ebb_clip *args)
{
    EBB_ASSERT(args->step.cols == (int64_t)sizeof(struct ebb_step) &&
               args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    const struct ebb_step *step = ebb_view_data(env, &args->step);
    struct ebb_sums *sums = ebb_view_data(env, &args->sums);
    bool empty = step->total_weight == 0 && sums->norm_squared == 0;
    double norm = empty ? 0 : sqrt(sums->norm_squared) / step->total_weight;
    double factor = empty ? 0 : 1.0 / step->total_weight;
    if (step->max_grad_norm > 0) {
        double clip = step->max_grad_norm / (norm + 1e-6);
        if (clip < 1.0) factor *= clip;
    }
    sums->grad_norm = norm;
    sums->factor = factor;
    sums->finite = !empty && isfinite(norm);
    return EBB_OK;
}

/* ---- where a parameter's fp32 value lives ---- */

/* One row of w and what belongs to it; lo and master may be NULL. */
struct weight_row {
    enum ebb_dtype dtype;
    void *w;
    uint16_t *lo;
    float *master;
    uint64_t key;     /* of stochastic rounding */
    uint64_t element; /* index of the row's first element */
};

EBB_VECTOR void load_weights(const struct weight_row *row, int64_t at, int64_t n, float *w)
{
    if (row->master != NULL) {
        memcpy(w, row->master + at, (size_t)n * sizeof *w);
    } else if (row->lo != NULL) {
        const uint16_t *hi = (const uint16_t *)row->w + at, *lo = row->lo + at;
        for (int64_t j = 0; j < n; j++) w[j] = join(hi[j], lo[j]);
    } else {
        ebb_load_f32(row->dtype, row->w, at, n, w);
    }
}

/* Element e takes 16 bits of Philox at counter e / 8: adds them below what bf16 keeps, then
 * cuts. */
EBB_VECTOR void round_stochastically(const struct weight_row *row, int64_t at, int64_t n,
                                     const float *w)
{
    uint32_t words[EBB_CHUNK / 2 + 8];
    uint16_t random[EBB_CHUNK + 16], *to = (uint16_t *)row->w + at;
    uint64_t element = row->element + (uint64_t)at, skip = element % 8;
    int64_t counters = ((int64_t)skip + n + 7) / 8;
    ebb_philox_run(row->key, element / 8, counters, words);
    for (int64_t k = 0; k < 4 * counters; k++) {
        random[2 * k] = (uint16_t)words[k];
        random[2 * k + 1] = (uint16_t)(words[k] >> 16);
    }
    for (int64_t j = 0; j < n; j++) {
        uint32_t bits = ebb_float_bits(w[j]);
        bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        uint32_t nan_bits = (bits >> 16) | 0x0040u,
                 rounded = (bits + random[skip + (uint64_t)j]) >> 16;
        to[j] = (uint16_t)(nan ? nan_bits : rounded);
    }
}

EBB_VECTOR void store_weights(const struct weight_row *row, int64_t at, int64_t n, const float *w)
{
    if (row->master != NULL) {
        memcpy(row->master + at, w, (size_t)n * sizeof *w);
        ebb_store_f32(row->dtype, row->w, at, n, w);
    } else if (row->lo != NULL) {
        uint16_t *hi = (uint16_t *)row->w + at, *lo = row->lo + at;
        for (int64_t j = 0; j < n; j++) {
            uint32_t bits = ebb_float_bits(w[j]);
            hi[j] = split_hi(bits);
            lo[j] = split_lo(bits);
        }
    } else if (row->dtype == EBB_BF16) {
        round_stochastically(row, at, n, w);
    } else {
        ebb_store_f32(EBB_F32, row->w, at, n, w);
    }
}

/* What a sweep over [R, N] needs beside the optimizer's own state. */
struct sweep {
    const struct ebb_view *w, *lo, *master, *grad;
    const struct ebb_step *step;
    const struct ebb_sums *sums;
    uint64_t key;
    int64_t rows, cols;
};

static void sweep_begin(const struct ebb_op_env *env, const struct ebb_view *w,
                        const struct ebb_view *lo, const struct ebb_view *master,
                        const struct ebb_view *grad, const struct ebb_view *step,
                        const struct ebb_view *sums, uint32_t instance, struct sweep *sweep)
{
    EBB_ASSERT(grad->dtype == EBB_F32 && grad->cols == w->cols &&
               (w->dtype == EBB_F32 || w->dtype == EBB_BF16));
    EBB_ASSERT(!ebb_view_present(lo) ||
               (w->dtype == EBB_BF16 && lo->cols == w->cols && !ebb_view_present(master)));
    EBB_ASSERT(!ebb_view_present(master) || (master->dtype == EBB_F32 && master->cols == w->cols));
    EBB_ASSERT(step->cols == (int64_t)sizeof(struct ebb_step) &&
               sums->cols == (int64_t)sizeof(struct ebb_sums));
    sweep->w = w;
    sweep->lo = lo;
    sweep->master = master;
    sweep->grad = grad;
    sweep->step = ebb_view_data(env, step);
    sweep->sums = ebb_view_data(env, sums);
    /* No rank in the key: replicas of a weight must round alike. */
    sweep->key =
        ebb_random_key(sweep->step->seed, sweep->step->step, 0, 0, instance);
    sweep->rows = ebb_view_rows(env, w);
    sweep->cols = w->cols;
}

static struct weight_row sweep_row(const struct ebb_op_env *env, const struct sweep *sweep,
                                   int64_t i)
{
    struct weight_row row = {
        .dtype = ebb_view_dtype(sweep->w),
        .w = ebb_view_row(env, sweep->w, i),
        .lo = ebb_view_present(sweep->lo) ? ebb_view_row(env, sweep->lo, i) : NULL,
        .master = ebb_view_present(sweep->master) ? ebb_view_row(env, sweep->master, i) : NULL,
        .key = sweep->key,
        .element = (uint64_t)(sweep->w->row0 + i) * (uint64_t)sweep->cols,
    };
    return row;
}

/* A step that must not change weights still leaves its gradients ready for the next one. */
static void clear_gradients(const struct ebb_op_env *env, const struct sweep *sweep)
{
#pragma omp parallel for num_threads(ebb_op_team(env, sweep->rows * sweep->cols)) schedule(static)
    for (int64_t i = 0; i < sweep->rows; i++) {
        memset(ebb_view_row(env, sweep->grad, i), 0, (size_t)sweep->cols * sizeof(float));
    }
}

/* Pieces of rows, so that one long row is shared by all threads. */
static int64_t pieces_of(int64_t cols)
{
    return (cols + EBB_CHUNK - 1) / EBB_CHUNK;
}

/* ---- AdamW ---- */

struct adamw_scalars {
    float keep, beta1, one_less_beta1, beta2, one_less_beta2, rate, root, eps, factor;
};

static EBB_CLONES void adamw_chunk(const struct adamw_scalars *scalars,
                                   const struct weight_row *row, int64_t at, int64_t n,
                                   float *restrict grad, float *restrict m, float *restrict v)
{
    const struct adamw_scalars k = *scalars;
    float w[EBB_CHUNK];
    load_weights(row, at, n, w);
    for (int64_t j = 0; j < n; j++) {
        float g = grad[j] * k.factor;
        float m_new = k.beta1 * m[j] + k.one_less_beta1 * g;
        float v_new = k.beta2 * v[j] + k.one_less_beta2 * (g * g);
        w[j] = w[j] * k.keep - k.rate * (m_new / (sqrtf(v_new) / k.root + k.eps));
        m[j] = m_new;
        v[j] = v_new;
        grad[j] = 0.0f;
    }
    store_weights(row, at, n, w);
}

enum ebb_status ebb_adamw_cpu(const struct ebb_op_env *env, const struct ebb_adamw *args)
{
    struct sweep sweep;
    sweep_begin(env, &args->w, &args->lo, &args->master, &args->grad, &args->step, &args->sums,
                args->instance, &sweep);
    EBB_ASSERT(args->m.dtype == EBB_F32 && args->m.cols == sweep.cols && args->v.dtype == EBB_F32 &&
               args->v.cols == sweep.cols);
    if (!sweep.sums->finite) {
        clear_gradients(env, &sweep);
        return EBB_OK;
    }
    const struct ebb_step *step = sweep.step;
    const struct adamw_scalars scalars = {
        .keep = (float)(1.0 - step->learning_rate * args->weight_decay),
        .beta1 = (float)args->beta1,
        .one_less_beta1 = (float)(1.0 - args->beta1),
        .beta2 = (float)args->beta2,
        .one_less_beta2 = (float)(1.0 - args->beta2),
        .rate = (float)(step->learning_rate / step->bias1),
        .root = (float)sqrt(step->bias2),
        .eps = (float)args->eps,
        .factor = (float)sweep.sums->factor,
    };
    int64_t pieces = pieces_of(sweep.cols);
#pragma omp parallel for num_threads(ebb_op_team(env, sweep.rows *sweep.cols)) schedule(static)
    for (int64_t piece = 0; piece < sweep.rows * pieces; piece++) {
        int64_t i = piece / pieces, at = piece % pieces * EBB_CHUNK;
        struct weight_row row = sweep_row(env, &sweep, i);
        adamw_chunk(&scalars, &row, at, sweep.cols - at < EBB_CHUNK ? sweep.cols - at : EBB_CHUNK,
                    (float *)ebb_view_row(env, &args->grad, i) + at,
                    (float *)ebb_view_row(env, &args->m, i) + at,
                    (float *)ebb_view_row(env, &args->v, i) + at);
    }
    return EBB_OK;
}

/* ---- SGD ---- */

struct sgd_scalars {
    float decay, momentum, rate, factor;
};

/* m is NULL without momentum. With momentum 0 for the first step, m = g as torch starts it. */
static EBB_CLONES void sgd_chunk(const struct sgd_scalars *k, bool first,
                                 const struct weight_row *row, int64_t at, int64_t n, float *grad,
                                 float *m)
{
    float w[EBB_CHUNK], g[EBB_CHUNK];
    load_weights(row, at, n, w);
    for (int64_t j = 0; j < n; j++) g[j] = grad[j] * k->factor + k->decay * w[j];
    memset(grad, 0, (size_t)n * sizeof *grad);
    if (m != NULL) {
        if (!first) {
            for (int64_t j = 0; j < n; j++) g[j] = k->momentum * m[j] + g[j];
        }
        memcpy(m, g, (size_t)n * sizeof *m);
    }
    for (int64_t j = 0; j < n; j++) w[j] -= k->rate * g[j];
    store_weights(row, at, n, w);
}

enum ebb_status ebb_sgd_cpu(const struct ebb_op_env *env, const struct ebb_sgd *args)
{
    struct sweep sweep;
    sweep_begin(env, &args->w, &args->lo, &args->master, &args->grad, &args->step, &args->sums,
                args->instance, &sweep);
    bool momentum = ebb_view_present(&args->m);
    EBB_ASSERT(momentum ? args->m.dtype == EBB_F32 && args->m.cols == sweep.cols
                        : args->momentum == 0);
    if (!sweep.sums->finite) {
        clear_gradients(env, &sweep);
        return EBB_OK;
    }
    const struct sgd_scalars scalars = {
        .decay = (float)args->weight_decay,
        .momentum = (float)args->momentum,
        .rate = (float)sweep.step->learning_rate,
        .factor = (float)sweep.sums->factor,
    };
    bool first = sweep.step->step == 1;
    int64_t pieces = pieces_of(sweep.cols);
#pragma omp parallel for num_threads(ebb_op_team(env, sweep.rows *sweep.cols)) schedule(static)
    for (int64_t piece = 0; piece < sweep.rows * pieces; piece++) {
        int64_t i = piece / pieces, at = piece % pieces * EBB_CHUNK;
        struct weight_row row = sweep_row(env, &sweep, i);
        sgd_chunk(&scalars, first, &row, at,
                  sweep.cols - at < EBB_CHUNK ? sweep.cols - at : EBB_CHUNK,
                  (float *)ebb_view_row(env, &args->grad, i) + at,
                  momentum ? (float *)ebb_view_row(env, &args->m, i) + at : NULL);
    }
    return EBB_OK;
}
