/* Norm, clip factor and the parameter sweep on the GPU. A sweep's thread has one element; a block
 * works the step's scalars out once, from the step block on the device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/optimizer.h"

#include "op/random_cuda_int.cuh"

enum { THREADS = 256 };

/* ---- norm and clip factor -------------------------------------------------------------------- */

/* Block p of EBB_CUDA_NORM_PARTS adds the p-th part of all elements. */
static __global__ void part_kernel(const float *grad, int64_t stride, int64_t rows, int64_t cols,
                                   double *parts)
{
    __shared__ double shared[32];
    int64_t all = rows * cols, each = (all + EBB_CUDA_NORM_PARTS - 1) / EBB_CUDA_NORM_PARTS;
    int64_t first = (int64_t)blockIdx.x * each, end = first + each < all ? first + each : all;
    double sum = 0;
    for (int64_t at = first + threadIdx.x; at < end; at += blockDim.x) {
        double g = (double)grad[at / cols * stride + at % cols];
        sum += g * g;
    }
    sum = ebb_block_sum(sum, shared);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

static __global__ void norm_kernel(const double *parts, struct ebb_sums *sums)
{
    __shared__ double shared[32];
    double sum = ebb_block_sum(parts[threadIdx.x], shared);
    if (threadIdx.x == 0) sums->norm_squared += sum;
}

enum ebb_status ebb_norm_squared_cuda(const struct ebb_op_env *env,
                                      const struct ebb_norm_squared *args)
{
    const struct ebb_view *grad = &args->grad;
    const struct ebb_op_target target = {EBB_BACKEND_CUDA, 0};
    EBB_ASSERT(grad->dtype == EBB_F32 && args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    EBB_ASSERT(args->scratch.cols >= ebb_norm_squared_scratch(&target));
    int64_t rows = ebb_view_rows(env, grad);
    if (rows == 0 || grad->cols == 0) return EBB_OK;
    double *parts = ebb_data<double>(env, &args->scratch);
    part_kernel<<<EBB_CUDA_NORM_PARTS, THREADS, 0, ebb_stream(env)>>>(
        ebb_data<const float>(env, grad), grad->stride, rows, grad->cols, parts);
    norm_kernel<<<1, EBB_CUDA_NORM_PARTS, 0, ebb_stream(env)>>>(
        parts, ebb_data<struct ebb_sums>(env, &args->sums));
    return ebb_launched(env, "norm_squared");
}

/* A step without any label has nothing to divide by: it changes no weight, and its norm is 0. */
static __global__ void clip_kernel(const struct ebb_step *step, struct ebb_sums *sums)
{
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
}

enum ebb_status ebb_clip_cuda(const struct ebb_op_env *env, const struct ebb_clip *args)
{
    EBB_ASSERT(args->step.cols == (int64_t)sizeof(struct ebb_step) &&
               args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    clip_kernel<<<1, 1, 0, ebb_stream(env)>>>(ebb_data<const struct ebb_step>(env, &args->step),
                                              ebb_data<struct ebb_sums>(env, &args->sums));
    return ebb_launched(env, "clip");
}

/* ---- where a parameter's fp32 value lives ---------------------------------------------------- */

struct sweep {
    void *w;
    uint16_t *lo;  /* NULL: none */
    float *master; /* NULL: none */
    float *grad, *m, *v;
    int64_t w_stride, lo_stride, master_stride, grad_stride, m_stride, v_stride;
    int64_t rows, cols, row0;
    const struct ebb_step *step;
    const struct ebb_sums *sums;
    uint64_t key; /* of stochastic rounding */
    bool bf16;
};

static __device__ __forceinline__ uint16_t nearest_bf16(float value)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

static __device__ float load_weight(const struct sweep &s, int64_t i, int64_t j)
{
    if (s.master != NULL) return s.master[i * s.master_stride + j];
    if (!s.bf16) return ((const float *)s.w)[i * s.w_stride + j];
    uint32_t high = ((const uint16_t *)s.w)[i * s.w_stride + j];
    if (s.lo == NULL) return __uint_as_float(high << 16);
    uint32_t low = s.lo[i * s.lo_stride + j];
    return __uint_as_float((high << 16 | low) - (low >= 0x8000u ? 0x10000u : 0u));
}

/* Element e takes 16 bits of Philox at counter e / 8: adds them below what bf16 keeps, then
 * cuts. */
static __device__ uint16_t round_stochastically(const struct sweep &s, int64_t i, int64_t j,
                                                float value)
{
    uint64_t element = (uint64_t)(s.row0 + i) * (uint64_t)s.cols + (uint64_t)j;
    uint32_t words[4], bits = __float_as_uint(value);
    if (isnan(value)) return (uint16_t)((bits >> 16) | 0x0040u);
    ebb_philox_device(s.key, element / 8, words);
    uint32_t place = (uint32_t)(element % 8), word = words[place / 2];
    return (uint16_t)((bits + (place % 2 ? word >> 16 : word & 0xffffu)) >> 16);
}

static __device__ void store_weight(const struct sweep &s, int64_t i, int64_t j, float value)
{
    uint16_t *half = (uint16_t *)s.w + i * s.w_stride + j;
    if (s.master != NULL) s.master[i * s.master_stride + j] = value;
    if (!s.bf16) {
        ((float *)s.w)[i * s.w_stride + j] = value;
    } else if (s.master != NULL) {
        *half = nearest_bf16(value);
    } else if (s.lo != NULL) {
        uint32_t bits = __float_as_uint(value);
        bool nan = isnan(value);
        *half = (uint16_t)(nan ? 0x7fc0u | (bits >> 31) << 15 : (bits + 0x8000u) >> 16);
        s.lo[i * s.lo_stride + j] = (uint16_t)(nan ? 0u : bits & 0xffffu);
    } else {
        *half = round_stochastically(s, i, j, value);
    }
}

static struct sweep sweep_of(const struct ebb_op_env *env, const struct ebb_view *w,
                             const struct ebb_view *lo, const struct ebb_view *master,
                             const struct ebb_view *grad, const struct ebb_view *step,
                             const struct ebb_view *sums, uint32_t instance)
{
    struct sweep s;
    memset(&s, 0, sizeof s);
    EBB_ASSERT(grad->dtype == EBB_F32 && grad->cols == w->cols &&
               (w->dtype == EBB_F32 || w->dtype == EBB_BF16));
    EBB_ASSERT(!ebb_present(lo) || (w->dtype == EBB_BF16 && !ebb_present(master)));
    EBB_ASSERT(step->cols == (int64_t)sizeof(struct ebb_step) &&
               sums->cols == (int64_t)sizeof(struct ebb_sums));
    s.w = ebb_view_data(env, w);
    s.lo = ebb_data<uint16_t>(env, lo);
    s.master = ebb_data<float>(env, master);
    s.grad = ebb_data<float>(env, grad);
    s.w_stride = w->stride;
    s.lo_stride = lo->stride;
    s.master_stride = master->stride;
    s.grad_stride = grad->stride;
    s.rows = ebb_view_rows(env, w);
    s.cols = w->cols;
    s.row0 = w->row0;
    s.step = ebb_data<const struct ebb_step>(env, step);
    s.sums = ebb_data<const struct ebb_sums>(env, sums);
    /* No rank in the key: replicas of a weight must round alike. */
    s.key = ebb_random_key(env->step->seed, env->step->step, 0, 0, instance);
    s.bf16 = w->dtype == EBB_BF16;
    return s;
}

static unsigned blocks_of(const struct sweep *s)
{
    return ebb_blocks(ebb_ceil_div(s->rows * s->cols, THREADS));
}

/* ---- AdamW ----------------------------------------------------------------------------------- */

struct adamw_keys {
    double beta1, beta2, eps, weight_decay;
};

struct adamw_scalars {
    float keep, beta1, one_less_beta1, beta2, one_less_beta2, rate, root, eps, factor;
};

static __device__ void fill_scalars(const struct adamw_keys &keys, const struct ebb_step *step,
                                    const struct ebb_sums *sums, struct adamw_scalars *k)
{
    k->keep = (float)(1.0 - step->learning_rate * keys.weight_decay);
    k->beta1 = (float)keys.beta1;
    k->one_less_beta1 = (float)(1.0 - keys.beta1);
    k->beta2 = (float)keys.beta2;
    k->one_less_beta2 = (float)(1.0 - keys.beta2);
    k->rate = (float)(step->learning_rate / step->bias1);
    k->root = (float)sqrt(step->bias2);
    k->eps = (float)keys.eps;
    k->factor = (float)sums->factor;
}

/* A step that must not change weights still leaves its gradients ready for the next one. */
static __global__ void adamw_kernel(struct sweep s, struct adamw_keys keys)
{
    __shared__ struct adamw_scalars k;
    if (threadIdx.x == 0) fill_scalars(keys, s.step, s.sums, &k);
    __syncthreads();
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= s.rows * s.cols) return;
    int64_t i = at / s.cols, j = at % s.cols;
    float *grad = s.grad + i * s.grad_stride + j;
    if (s.sums->finite) {
        float *m = s.m + i * s.m_stride + j, *v = s.v + i * s.v_stride + j;
        float g = *grad * k.factor, w = load_weight(s, i, j);
        float m_new = k.beta1 * *m + k.one_less_beta1 * g;
        float v_new = k.beta2 * *v + k.one_less_beta2 * (g * g);
        store_weight(s, i, j, w * k.keep - k.rate * (m_new / (sqrtf(v_new) / k.root + k.eps)));
        *m = m_new;
        *v = v_new;
    }
    *grad = 0.0f;
}

enum ebb_status ebb_adamw_cuda(const struct ebb_op_env *env, const struct ebb_adamw *args)
{
    struct sweep s = sweep_of(env, &args->w, &args->lo, &args->master, &args->grad, &args->step,
                              &args->sums, args->instance);
    struct adamw_keys keys = {args->beta1, args->beta2, args->eps, args->weight_decay};
    EBB_ASSERT(args->m.dtype == EBB_F32 && args->m.cols == s.cols && args->v.dtype == EBB_F32 &&
               args->v.cols == s.cols);
    if (s.rows * s.cols == 0) return EBB_OK;
    s.m = ebb_data<float>(env, &args->m);
    s.v = ebb_data<float>(env, &args->v);
    s.m_stride = args->m.stride;
    s.v_stride = args->v.stride;
    adamw_kernel<<<blocks_of(&s), THREADS, 0, ebb_stream(env)>>>(s, keys);
    return ebb_launched(env, "adamw");
}

/* ---- SGD ------------------------------------------------------------------------------------- */

/* In the first step m = g, as torch starts it. */
static __global__ void sgd_kernel(struct sweep s, float momentum, float decay)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= s.rows * s.cols) return;
    int64_t i = at / s.cols, j = at % s.cols;
    float *grad = s.grad + i * s.grad_stride + j;
    if (s.sums->finite) {
        float w = load_weight(s, i, j), g = *grad * (float)s.sums->factor + decay * w;
        if (s.m != NULL) {
            float *m = s.m + i * s.m_stride + j;
            if (s.step->step != 1) g = momentum * *m + g;
            *m = g;
        }
        store_weight(s, i, j, w - (float)s.step->learning_rate * g);
    }
    *grad = 0.0f;
}

enum ebb_status ebb_sgd_cuda(const struct ebb_op_env *env, const struct ebb_sgd *args)
{
    struct sweep s = sweep_of(env, &args->w, &args->lo, &args->master, &args->grad, &args->step,
                              &args->sums, args->instance);
    EBB_ASSERT(ebb_present(&args->m) ? args->m.dtype == EBB_F32 && args->m.cols == s.cols
                                     : args->momentum == 0);
    if (s.rows * s.cols == 0) return EBB_OK;
    s.m = ebb_data<float>(env, &args->m);
    s.m_stride = args->m.stride;
    sgd_kernel<<<blocks_of(&s), THREADS, 0, ebb_stream(env)>>>(s, (float)args->momentum,
                                                               (float)args->weight_decay);
    return ebb_launched(env, "sgd");
}
