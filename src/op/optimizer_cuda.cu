/* Norm, clip factor and the parameter sweep on the GPU. One launch takes up to EBB_OP_MANY
 * parameters, as adapters are hundreds of small ones: a block finds its parameter by the number of
 * blocks that those before it have. A parameter's numbers do not depend on what is beside it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/optimizer.h"

#include "op/random_cuda_int.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* end[p]: blocks of parameters 0 .. p. */
struct spans {
    unsigned end[EBB_OP_MANY];
    int32_t count;
};

static void add_span(struct spans *spans, int64_t blocks)
{
    int64_t before = spans->count > 0 ? spans->end[spans->count - 1] : 0;
    spans->end[spans->count++] = ebb_blocks(before + blocks);
}

/* The parameter of a block; `*block` is then its number among that parameter's. */
static __device__ __forceinline__ int find_span(const struct spans &spans, unsigned *block)
{
    int p = 0;
    unsigned before = 0;
    while (p < spans.count - 1 && blockIdx.x >= spans.end[p]) before = spans.end[p++];
    *block = blockIdx.x - before;
    return p;
}

/* ---- norm and clip factor -------------------------------------------------------------------- */

/* All elements of a gradient are cut into EBB_CUDA_NORM_PARTS parts. A thread of a block of THREADS
 * adds every THREADS-th element of a part, ebb_block_sum adds the threads. Where a part is short,
 * one warp makes the same sums in the same order: it stands for the block's warps one after the
 * other. */
enum { WARP_PART = 4 * THREADS };

struct norm {
    const float *grad;
    int64_t stride, cols, all; /* one long row where cols is all */
};

struct norms {
    struct norm of[EBB_OP_MANY];
    struct spans spans;
};
static_assert(sizeof(struct norms) <= 4000, "more than a launch takes along");

static __host__ __device__ __forceinline__ int64_t part_elements(const struct norm &n)
{
    return (n.all + EBB_CUDA_NORM_PARTS - 1) / EBB_CUDA_NORM_PARTS;
}

static __host__ __device__ __forceinline__ bool is_by_warps(const struct norm &n)
{
    return n.cols == n.all && part_elements(n) <= WARP_PART;
}

static __device__ __forceinline__ double square(float value)
{
    return (double)value * (double)value;
}

/* The thread's share of a part. The loop over a long row has no branch in it, so that its loads
 * come together. */
static __device__ __forceinline__ double thread_part(const struct norm &n, int64_t first,
                                                     int64_t end)
{
    double sum = 0;
    if (n.cols == n.all) {
#pragma unroll 8
        for (int64_t at = first + threadIdx.x; at < end; at += THREADS) sum += square(n.grad[at]);
        return sum;
    }
#pragma unroll 1
    for (int64_t at = first + threadIdx.x; at < end; at += THREADS)
        sum += square(n.grad[at / n.cols * n.stride + at % n.cols]);
    return sum;
}

static __device__ __forceinline__ double warp_part(const struct norm &n, int64_t first, int64_t end)
{
    int lane = threadIdx.x & 31;
    double sums[WARPS] = {0}, sum = 0;
#pragma unroll 1
    for (int64_t at = first + lane; at < end; at += THREADS) {
        float g[WARPS]; /* loaded together: behind the part's end its first is read, for nothing */
#pragma unroll
        for (int w = 0; w < WARPS; w++) g[w] = n.grad[at + 32 * w < end ? at + 32 * w : first];
#pragma unroll
        for (int w = 0; w < WARPS; w++) g[w] = at + 32 * w < end ? g[w] : 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sums[w] += square(g[w]);
    }
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        if (first + 32 * w >= end) break; /* the rest are zeros */
        double one = ebb_warp_sum(sums[w]);
        if (lane == w) sum = one;
    }
    return ebb_warp_sum(sum);
}

static __global__ void __launch_bounds__(THREADS, 5)
    part_kernel(const __grid_constant__ struct norms norms, double *parts)
{
    __shared__ double shared[32];
    unsigned block;
    int p = find_span(norms.spans, &block);
    const struct norm &n = norms.of[p];
    bool by_warps = is_by_warps(n);
    int64_t each = part_elements(n), part = by_warps ? block * WARPS + threadIdx.x / 32 : block;
    int64_t first = part * each, end = first + each < n.all ? first + each : n.all;
    double sum =
        by_warps ? warp_part(n, first, end) : ebb_block_sum(thread_part(n, first, end), shared);
    if (threadIdx.x % (by_warps ? 32 : THREADS) == 0)
        parts[(int64_t)p * EBB_CUDA_NORM_PARTS + part] = sum;
}

/* Warp p adds the parts of parameter p as ebb_block_sum does in a block with a thread for each. The
 * parameters' sums are then added in order. */
static __global__ void norm_kernel(const double *parts, int count, struct ebb_sums *sums)
{
    __shared__ double norms[EBB_OP_MANY];
    int p = threadIdx.x / 32, lane = threadIdx.x & 31;
    double sum = 0;
#pragma unroll 8
    for (int w = 0; w < EBB_CUDA_NORM_PARTS / 32; w++) {
        double one = ebb_warp_sum(parts[(int64_t)p * EBB_CUDA_NORM_PARTS + 32 * w + lane]);
        if (lane == w) sum = one;
    }
    sum = ebb_warp_sum(sum);
    if (lane == 0) norms[p] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    double all = sums->norm_squared;
    for (int i = 0; i < count; i++) all += norms[i];
    sums->norm_squared = all;
}
static_assert(EBB_CUDA_NORM_PARTS == 32 * 32, "a block has a thread for each part");
static_assert(32 * EBB_OP_MANY <= 1024, "a block has a warp for each parameter");

static void add_norm(const struct ebb_op_env *env, const struct ebb_norm_squared *args,
                     struct norms *norms)
{
    const struct ebb_view *grad = &args->grad;
    struct norm *n = &norms->of[norms->spans.count];
    EBB_ASSERT(grad->dtype == EBB_F32 && args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    n->grad = ebb_data<const float>(env, grad);
    n->stride = grad->stride;
    n->cols = grad->cols;
    n->all = ebb_view_rows(env, grad) * grad->cols;
    if (n->all == 0) return;
    if (n->stride == n->cols) n->cols = n->all; /* one long row */
    add_span(&norms->spans, EBB_CUDA_NORM_PARTS / (is_by_warps(*n) ? WARPS : 1));
}

enum ebb_status ebb_norm_squared_many_cuda(const struct ebb_op_env *env, const void *const *args,
                                           int32_t count)
{
    const struct ebb_norm_squared *first = (const struct ebb_norm_squared *)args[0];
    struct norms norms;
    memset(&norms, 0, sizeof norms);
    EBB_ASSERT(count <= EBB_OP_MANY);
    for (int32_t i = 0; i < count; i++)
        add_norm(env, (const struct ebb_norm_squared *)args[i], &norms);
    int32_t some = norms.spans.count;
    EBB_ASSERT(first->scratch.cols >= some * EBB_CUDA_NORM_PARTS * (int64_t)sizeof(double));
    if (some == 0) return EBB_OK;
    double *parts = ebb_data<double>(env, &first->scratch);
    part_kernel<<<norms.spans.end[some - 1], THREADS, 0, ebb_stream(env)>>>(norms, parts);
    norm_kernel<<<1, 32 * (unsigned)some, 0, ebb_stream(env)>>>(
        parts, some, ebb_data<struct ebb_sums>(env, &first->sums));
    return ebb_launched(env, "norm_squared");
}

enum ebb_status ebb_norm_squared_cuda(const struct ebb_op_env *env,
                                      const struct ebb_norm_squared *args)
{
    const void *one = args;
    return ebb_norm_squared_many_cuda(env, &one, 1);
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

/* ---- groups of elements ---------------------------------------------------------------------- */

/* A sweep goes through a parameter's elements in row-major order, GROUP at a time where that makes
 * one load of each matrix (wide), else one by one. */
enum { GROUP = 4, ROUNDS = 4, BLOCK_ELEMENTS = ROUNDS * GROUP * THREADS };

template <int N, typename T> struct alignas(N * sizeof(T)) group {
    T of[N];
};

template <int N, typename T> static __device__ __forceinline__ void load(const T *at, T out[N])
{
    const group<N, T> all = *(const group<N, T> *)at;
#pragma unroll
    for (int k = 0; k < N; k++) out[k] = all.of[k];
}

template <int N, typename T> static __device__ __forceinline__ void store(T *at, const T in[N])
{
    group<N, T> all;
#pragma unroll
    for (int k = 0; k < N; k++) all.of[k] = in[k];
    *(group<N, T> *)at = all;
}

/* ---- where a parameter's fp32 value lives ---------------------------------------------------- */

enum home { IN_W, IN_LO, IN_MASTER, NOWHERE };

/* sgd has its momentum in beta1. */
struct keys {
    double beta1, beta2, eps, weight_decay;
};

struct sweep {
    void *w, *other; /* the latter: lo or master */
    float *grad, *m, *v;
    int64_t w_stride, other_stride, grad_stride, m_stride, v_stride;
    int64_t cols, all;
    int64_t element0; /* number of the first element in the whole parameter */
    uint64_t key;     /* of stochastic rounding */
    struct keys keys;
    uint8_t home; /* enum home */
    bool bf16, wide;
};

struct sweeps {
    struct sweep of[EBB_OP_MANY];
    struct spans spans;
    const struct ebb_step *step;
    const struct ebb_sums *sums;
};
static_assert(sizeof(struct sweeps) <= 4096, "more than a launch takes along");

/* Of a group's first element. */
struct place {
    int64_t i, j, at;
};

static __device__ __forceinline__ uint16_t nearest_bf16(float value)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

template <int N>
static __device__ __forceinline__ void load_weights(const struct sweep &s, const struct place &at,
                                                    float w[N])
{
    int64_t own = at.i * s.w_stride + at.j, other = at.i * s.other_stride + at.j;
    if (s.home == IN_MASTER) return load<N>((const float *)s.other + other, w);
    if (!s.bf16) return load<N>((const float *)s.w + own, w);
    uint16_t high[N], low[N] = {0};
    load<N>((const uint16_t *)s.w + own, high);
    if (s.home == IN_LO) load<N>((const uint16_t *)s.other + other, low);
#pragma unroll
    for (int k = 0; k < N; k++)
        w[k] = __uint_as_float(((uint32_t)high[k] << 16 | low[k]) -
                               (low[k] >= 0x8000u ? 0x10000u : 0u));
}

/* Element e takes 16 bits of Philox at counter e / 8: adds them below what bf16 keeps, then cuts. A
 * group never straddles two counters. */
template <int N>
static __device__ __forceinline__ void round_stochastically(const struct sweep &s, int64_t at,
                                                            const float values[N], uint16_t half[N])
{
    uint64_t element = (uint64_t)(s.element0 + at);
    uint32_t words[4], place = (uint32_t)(element % GROUP);
    bool upper = element % 8 >= GROUP;
    ebb_philox_device(s.key, element / 8, words);
    uint32_t pair[2] = {upper ? words[2] : words[0], upper ? words[3] : words[1]};
#pragma unroll
    for (int k = 0; k < N; k++) {
        uint32_t bits = __float_as_uint(values[k]), of = N == 1 ? place : (uint32_t)k;
        uint32_t word = of / 2 ? pair[1] : pair[0];
        uint32_t random = of % 2 ? word >> 16 : word & 0xffffu;
        half[k] = (uint16_t)(isnan(values[k]) ? bits >> 16 | 0x0040u : (bits + random) >> 16);
    }
}

template <int N>
static __device__ __forceinline__ void store_halves(const struct sweep &s, const struct place &at,
                                                    const float values[N])
{
    uint16_t half[N], low[N];
    if (s.home == NOWHERE) round_stochastically<N>(s, at.at, values, half);
#pragma unroll
    for (int k = 0; k < N; k++) {
        uint32_t bits = __float_as_uint(values[k]);
        bool nan = isnan(values[k]);
        if (s.home == IN_MASTER) half[k] = nearest_bf16(values[k]);
        if (s.home == IN_LO)
            half[k] = (uint16_t)(nan ? 0x7fc0u | (bits >> 31) << 15 : (bits + 0x8000u) >> 16);
        low[k] = (uint16_t)(nan ? 0u : bits & 0xffffu);
    }
    store<N>((uint16_t *)s.w + at.i * s.w_stride + at.j, half);
    if (s.home == IN_LO) store<N>((uint16_t *)s.other + at.i * s.other_stride + at.j, low);
}

template <int N>
static __device__ __forceinline__ void store_weights(const struct sweep &s, const struct place &at,
                                                     const float values[N])
{
    if (s.home == IN_MASTER) store<N>((float *)s.other + at.i * s.other_stride + at.j, values);
    if (s.bf16)
        store_halves<N>(s, at, values);
    else
        store<N>((float *)s.w + at.i * s.w_stride + at.j, values);
}

/* ---- the sweep of many parameters ------------------------------------------------------------ */

enum rule { ADAMW, SGD };

struct scalars {
    float keep, beta1, one_less_beta1, beta2, one_less_beta2, rate, root, eps, factor;
    float decay;        /* sgd */
    bool first, finite; /* the first step; it may change weights */
};

static __device__ void fill_scalars(const struct keys &keys, const struct ebb_step *step,
                                    const struct ebb_sums *sums, enum rule rule, struct scalars *k)
{
    k->factor = (float)sums->factor;
    k->finite = sums->finite;
    k->first = step->step == 1;
    k->beta1 = (float)keys.beta1;
    if (rule == SGD) {
        k->decay = (float)keys.weight_decay;
        k->rate = (float)step->learning_rate;
        return;
    }
    k->keep = (float)(1.0 - step->learning_rate * keys.weight_decay);
    k->one_less_beta1 = (float)(1.0 - keys.beta1);
    k->beta2 = (float)keys.beta2;
    k->one_less_beta2 = (float)(1.0 - keys.beta2);
    k->rate = (float)(step->learning_rate / step->bias1);
    k->root = (float)sqrt(step->bias2);
    k->eps = (float)keys.eps;
}

template <int N>
static __device__ __forceinline__ void adamw(const struct sweep &s, const struct scalars &k,
                                             const struct place &at, float *grad)
{
    float *m_at = s.m + at.i * s.m_stride + at.j, *v_at = s.v + at.i * s.v_stride + at.j;
    float g[N], m[N], v[N], w[N];
    load<N>(grad, g);
    load<N>(m_at, m);
    load<N>(v_at, v);
    load_weights<N>(s, at, w);
#pragma unroll
    for (int e = 0; e < N; e++) {
        g[e] *= k.factor;
        m[e] = k.beta1 * m[e] + k.one_less_beta1 * g[e];
        v[e] = k.beta2 * v[e] + k.one_less_beta2 * (g[e] * g[e]);
        w[e] = w[e] * k.keep - k.rate * (m[e] / (sqrtf(v[e]) / k.root + k.eps));
    }
    store_weights<N>(s, at, w);
    store<N>(m_at, m);
    store<N>(v_at, v);
}

/* In the first step m = g, as torch starts it. */
template <int N>
static __device__ __forceinline__ void sgd(const struct sweep &s, const struct scalars &k,
                                           const struct place &at, float *grad)
{
    float *m_at = s.m + at.i * s.m_stride + at.j;
    float g[N], m[N], w[N];
    load<N>(grad, g);
    load_weights<N>(s, at, w);
    if (s.m != NULL && !k.first) load<N>(m_at, m);
#pragma unroll
    for (int e = 0; e < N; e++) {
        g[e] = g[e] * k.factor + k.decay * w[e];
        if (s.m != NULL && !k.first) g[e] = k.beta1 * m[e] + g[e];
        w[e] = w[e] - k.rate * g[e];
    }
    if (s.m != NULL) store<N>(m_at, g);
    store_weights<N>(s, at, w);
}

/* A step that must not change weights still leaves its gradients ready for the next one. */
template <enum rule RULE, int N>
static __device__ __forceinline__ void sweep_group(const struct sweep &s, const struct scalars &k,
                                                   int64_t at)
{
    const float zero[N] = {0};
    struct place place = {0, at, at};
    if (s.cols != s.all) {
        place.i = at / s.cols;
        place.j = at - place.i * s.cols;
    }
    float *grad = s.grad + place.i * s.grad_stride + place.j;
    if (k.finite) {
        if (RULE == ADAMW)
            adamw<N>(s, k, place, grad);
        else
            sgd<N>(s, k, place, grad);
    }
    store<N>(grad, zero);
}

template <enum rule RULE>
static __global__ void __launch_bounds__(THREADS)
    sweep_kernel(const __grid_constant__ struct sweeps sweeps)
{
    __shared__ struct scalars k;
    unsigned block;
    const struct sweep &s = sweeps.of[find_span(sweeps.spans, &block)];
    if (threadIdx.x == 0) fill_scalars(s.keys, sweeps.step, sweeps.sums, RULE, &k);
    __syncthreads();
    int64_t first = (int64_t)block * BLOCK_ELEMENTS;
    int64_t end = first + BLOCK_ELEMENTS < s.all ? first + BLOCK_ELEMENTS : s.all;
    if (!s.wide) {
#pragma unroll 1
        for (int64_t at = first + threadIdx.x; at < end; at += THREADS)
            sweep_group<RULE, 1>(s, k, at);
        return;
    }
#pragma unroll 1
    for (int64_t at = first + GROUP * threadIdx.x; at + GROUP <= end; at += GROUP * THREADS)
        sweep_group<RULE, GROUP>(s, k, at);
    int64_t rest = end - end % GROUP + threadIdx.x; /* of the parameter's last block */
    if (rest < end) sweep_group<RULE, 1>(s, k, rest);
}

/* ---- on the host ----------------------------------------------------------------------------- */

/* A matrix of a sweep. One that is absent is in nobody's way: NULL, its rows in a row. */
static void *matrix_of(const struct ebb_op_env *env, const struct ebb_view *view,
                       const struct ebb_view *w, int64_t *stride)
{
    *stride = ebb_present(view) ? view->stride : w->cols;
    EBB_ASSERT(!ebb_present(view) || view->cols == w->cols);
    return ebb_view_data(env, view);
}

static bool is_aligned(const void *data, size_t element_bytes)
{
    return (uintptr_t)data % (GROUP * element_bytes) == 0;
}

/* Makes one long row of rows that follow each other, and sees whether it can be taken in groups. */
static void shape_sweep(struct sweep *s)
{
    const int64_t strides[] = {s->w_stride, s->other_stride, s->grad_stride, s->m_stride,
                               s->v_stride};
    bool together = true;
    s->wide = s->cols % GROUP == 0;
    for (int i = 0; i < 5; i++) {
        together = together && strides[i] == s->cols;
        s->wide = s->wide && strides[i] % GROUP == 0;
    }
    if (together) s->cols = s->all;
    if (s->cols == s->all) s->wide = true;
    s->wide = s->wide && s->element0 % GROUP == 0 &&
              is_aligned(s->w, s->bf16 ? sizeof(uint16_t) : sizeof(float)) &&
              is_aligned(s->other, s->home == IN_LO ? sizeof(uint16_t) : sizeof(float)) &&
              is_aligned(s->grad, sizeof(float)) && is_aligned(s->m, sizeof(float)) &&
              is_aligned(s->v, sizeof(float));
}

static void add_sweep(const struct ebb_op_env *env, const struct ebb_adamw *args,
                      struct sweeps *sweeps)
{
    struct sweep *s = &sweeps->of[sweeps->spans.count];
    const struct ebb_view *w = &args->w, *lo = &args->lo, *master = &args->master;
    EBB_ASSERT(w->dtype == EBB_F32 || w->dtype == EBB_BF16);
    EBB_ASSERT(args->grad.dtype == EBB_F32 && ebb_present(&args->grad));
    EBB_ASSERT(!ebb_present(lo) || (w->dtype == EBB_BF16 && !ebb_present(master)));
    EBB_ASSERT(args->step.cols == (int64_t)sizeof(struct ebb_step) &&
               args->sums.cols == (int64_t)sizeof(struct ebb_sums));
    s->bf16 = w->dtype == EBB_BF16;
    s->home = ebb_present(master) ? IN_MASTER : ebb_present(lo) ? IN_LO : s->bf16 ? NOWHERE : IN_W;
    s->w = matrix_of(env, w, w, &s->w_stride);
    s->other = matrix_of(env, ebb_present(lo) ? lo : master, w, &s->other_stride);
    s->grad = (float *)matrix_of(env, &args->grad, w, &s->grad_stride);
    s->m = (float *)matrix_of(env, &args->m, w, &s->m_stride);
    s->v = (float *)matrix_of(env, &args->v, w, &s->v_stride);
    s->cols = w->cols;
    s->all = ebb_view_rows(env, w) * w->cols;
    s->element0 = w->row0 * w->cols;
    /* No rank in the key: replicas of a weight must round alike. */
    s->key = ebb_random_key(env->step->seed, env->step->step, 0, 0, args->instance);
    s->keys = {args->beta1, args->beta2, args->eps, args->weight_decay};
    sweeps->step = ebb_data<const struct ebb_step>(env, &args->step);
    sweeps->sums = ebb_data<const struct ebb_sums>(env, &args->sums);
    if (s->all == 0) return;
    shape_sweep(s);
    add_span(&sweeps->spans, ebb_ceil_div(s->all, BLOCK_ELEMENTS));
}

enum ebb_status ebb_adamw_many_cuda(const struct ebb_op_env *env, const void *const *args,
                                    int32_t count)
{
    struct sweeps sweeps;
    memset(&sweeps, 0, sizeof sweeps);
    EBB_ASSERT(count <= EBB_OP_MANY);
    for (int32_t i = 0; i < count; i++) {
        const struct ebb_adamw *one = (const struct ebb_adamw *)args[i];
        EBB_ASSERT(one->m.dtype == EBB_F32 && ebb_present(&one->m) && one->v.dtype == EBB_F32 &&
                   ebb_present(&one->v));
        add_sweep(env, one, &sweeps);
    }
    if (sweeps.spans.count == 0) return EBB_OK;
    sweep_kernel<ADAMW>
        <<<sweeps.spans.end[sweeps.spans.count - 1], THREADS, 0, ebb_stream(env)>>>(sweeps);
    return ebb_launched(env, "adamw");
}

enum ebb_status ebb_adamw_cuda(const struct ebb_op_env *env, const struct ebb_adamw *args)
{
    const void *one = args;
    return ebb_adamw_many_cuda(env, &one, 1);
}

/* An adamw without v whose beta1 is the momentum: how a sweep takes an sgd. */
static struct ebb_adamw adamw_like(const struct ebb_sgd *args)
{
    struct ebb_adamw like;
    memset(&like, 0, sizeof like);
    EBB_ASSERT(ebb_present(&args->m) ? args->m.dtype == EBB_F32 : args->momentum == 0);
    like.w = args->w;
    like.lo = args->lo;
    like.master = args->master;
    like.grad = args->grad;
    like.m = args->m;
    like.v = ebb_view_none();
    like.step = args->step;
    like.sums = args->sums;
    like.instance = args->instance;
    like.beta1 = args->momentum;
    like.weight_decay = args->weight_decay;
    return like;
}

enum ebb_status ebb_sgd_many_cuda(const struct ebb_op_env *env, const void *const *args,
                                  int32_t count)
{
    struct sweeps sweeps;
    memset(&sweeps, 0, sizeof sweeps);
    EBB_ASSERT(count <= EBB_OP_MANY);
    for (int32_t i = 0; i < count; i++) {
        struct ebb_adamw like = adamw_like((const struct ebb_sgd *)args[i]);
        add_sweep(env, &like, &sweeps);
    }
    if (sweeps.spans.count == 0) return EBB_OK;
    sweep_kernel<SGD>
        <<<sweeps.spans.end[sweeps.spans.count - 1], THREADS, 0, ebb_stream(env)>>>(sweeps);
    return ebb_launched(env, "sgd");
}

enum ebb_status ebb_sgd_cuda(const struct ebb_op_env *env, const struct ebb_sgd *args)
{
    const void *one = args;
    return ebb_sgd_many_cuda(env, &one, 1);
}
