/* Attention on one block of queries. Included by attention_kernels.c once for each instruction set,
 * with KERNEL(name), VECTOR_BYTES, TILE_VECTORS (vectors side by side in the product's inner tile),
 * V_FMA(a, b, c) and V_MAX(a, b) (b where either is NaN) defined; it undefines them at its end, and
 * so has no include guard.
 * SPDX-License-Identifier: Apache-2.0 */

#define vf           KERNEL(vf)
#define vf_any       KERNEL(vf_any)
#define vi           KERNEL(vi)
#define vu           KERNEL(vu)
#define vh_any       KERNEL(vh_any)
#define v_load       KERNEL(v_load)
#define v_store      KERNEL(v_store)
#define v_set        KERNEL(v_set)
#define v_select     KERNEL(v_select)
#define v_exp        KERNEL(v_exp)
#define v_tanh       KERNEL(v_tanh)
#define v_sum        KERNEL(v_sum)
#define tile         KERNEL(tile)
#define tile_width   KERNEL(tile_width)
#define product      KERNEL(product)
#define copy_rows    KERNEL(copy_rows)
#define turn         KERNEL(turn)
#define mask         KERNEL(mask)
#define softmax      KERNEL(softmax)
#define rescale      KERNEL(rescale)
#define score        KERNEL(score)
#define forward      KERNEL(forward)
#define gradient     KERNEL(gradient)
#define load_queries KERNEL(load_queries)
#define backward     KERNEL(backward)
#define store_rows   KERNEL(store_rows)

enum { KERNEL(LANES) = VECTOR_BYTES / 4 };
#define LANES KERNEL(LANES)
#define BLOCK EBB_ATTENTION_BLOCK

typedef float vf __attribute__((vector_size(VECTOR_BYTES)));
typedef float vf_any __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vh_any __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

/* ---- vectors ---- */

EBB_VECTOR vf v_load(const float *from)
{
    const vf_any *vector = (const vf_any *)from;
    return *vector;
}

EBB_VECTOR void v_store(float *to, vf value)
{
    *(vf_any *)to = value;
}

EBB_VECTOR vf v_set(float value)
{
    return (vf){0} + value;
}

EBB_VECTOR vf v_select(vi choose, vf yes, vf no)
{
    return (vf)((choose & (vi)yes) | (~choose & (vi)no));
}

/* exp for arguments up to 88; 0 below -87.3, so that nothing subnormal appears; NaN stays NaN.
 * x = n log 2 + r, |r| <= log(2) / 2; the polynomial is Taylor's to r^7. */
EBB_VECTOR vf v_exp(vf x)
{
    vf limited = V_MAX(v_set(-87.0f), x);
    /* Adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
    vf shifted = V_FMA(limited, v_set(1.44269504f), v_set(12582912.0f));
    vf n = shifted - v_set(12582912.0f);
    vf r = V_FMA(n, v_set(-0.693359375f), limited);
    r = V_FMA(n, v_set(2.12194440e-4f), r);
    vf p = v_set(1.98412698e-4f);
    p = V_FMA(p, r, v_set(1.38888889e-3f));
    p = V_FMA(p, r, v_set(8.33333333e-3f));
    p = V_FMA(p, r, v_set(4.16666667e-2f));
    p = V_FMA(p, r, v_set(1.66666667e-1f));
    p = V_FMA(p, r, v_set(0.5f));
    p = V_FMA(p * r, r, r) + v_set(1.0f);
    vf scale = (vf)((((vu)shifted - 0x4b400000u) + 127u) << 23);
    return v_select(x < v_set(-87.0f), v_set(0), p * scale);
}

/* tanh: Taylor's series to x^13 for |x| < 0.4, else through exp. */
EBB_VECTOR vf v_tanh(vf x)
{
    vf size = (vf)((vu)x & 0x7fffffffu);
    vf t = x * x;
    vf p = v_set(21844.0f / 6081075.0f);
    p = V_FMA(p, t, v_set(-1382.0f / 155925.0f));
    p = V_FMA(p, t, v_set(62.0f / 2835.0f));
    p = V_FMA(p, t, v_set(-17.0f / 315.0f));
    p = V_FMA(p, t, v_set(2.0f / 15.0f));
    p = V_FMA(p, t, v_set(-1.0f / 3.0f));
    vf small = V_FMA(p * t, x, x);
    vf limited = v_select(size > v_set(20.0f), v_set(20.0f), size);
    vf large = v_set(1.0f) - v_set(2.0f) / (v_exp(limited + limited) + v_set(1.0f));
    large = (vf)((vu)large | ((vu)x & 0x80000000u));
    return v_select(size < v_set(0.4f), small, large);
}

EBB_VECTOR float v_sum(vf value)
{
    float lane[LANES];
    memcpy(lane, &value, sizeof lane);
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    }
    return lane[0];
}

/* ---- products ---- */

/* c[rows, vectors] = or += sum over n of a[., n] b[n, .], in registers: c is loaded first and n
 * ascends, so sums do not depend on how a product is cut into tiles. `rows` and `vectors` are
 * constants where this is called. */
EBB_VECTOR void tile(const int rows, const int vectors, int64_t n, const float *a, int64_t a_row,
                     int64_t a_col, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                     bool add)
{
    vf sum[4][TILE_VECTORS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[i][j] = add ? v_load(c + i * c_stride + j * LANES) : v_set(0);
    }
    for (int64_t k = 0; k < n; k++) {
        vf right[TILE_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) right[j] = v_load(b + j * LANES);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            vf left = v_set(a[i * a_row]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sum[i][j] = V_FMA(left, right[j], sum[i][j]);
        }
        a += a_col;
        b += b_stride;
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) v_store(c + i * c_stride + j * LANES, sum[i][j]);
    }
}

EBB_VECTOR void tile_width(const int vectors, int64_t m, int64_t n, const float *a, int64_t a_row,
                           int64_t a_col, const float *b, int64_t b_stride, float *c,
                           int64_t c_stride, bool add)
{
    for (; m >= 4; m -= 4) {
        tile(4, vectors, n, a, a_row, a_col, b, b_stride, c, c_stride, add);
        a += 4 * a_row;
        c += 4 * c_stride;
    }
    if (m == 3) tile(3, vectors, n, a, a_row, a_col, b, b_stride, c, c_stride, add);
    if (m == 2) tile(2, vectors, n, a, a_row, a_col, b, b_stride, c, c_stride, add);
    if (m == 1) tile(1, vectors, n, a, a_row, a_col, b, b_stride, c, c_stride, add);
}

/* c[m, width] = or += a[m, n] b[n, width]. width is a multiple of the lanes; a's strides are free.
 */
static __attribute__((noinline)) void product(int64_t m, int64_t width, int64_t n, const float *a,
                                              int64_t a_row, int64_t a_col, const float *b,
                                              int64_t b_stride, float *c, int64_t c_stride,
                                              bool add)
{
    int64_t vectors = width / LANES;
    for (; vectors >= TILE_VECTORS; vectors -= TILE_VECTORS) {
        tile_width(TILE_VECTORS, m, n, a, a_row, a_col, b, b_stride, c, c_stride, add);
        b += TILE_VECTORS * LANES;
        c += TILE_VECTORS * LANES;
    }
#if TILE_VECTORS == 4
    if (vectors == 3) tile_width(3, m, n, a, a_row, a_col, b, b_stride, c, c_stride, add);
    if (vectors == 2) tile_width(2, m, n, a, a_row, a_col, b, b_stride, c, c_stride, add);
#endif
    if (vectors == 1) tile_width(1, m, n, a, a_row, a_col, b, b_stride, c, c_stride, add);
}

/* ---- moving rows ---- */

/* An fp32 copy of [rows, cols], zero from cols to `width`. */
EBB_VECTOR void copy_rows(int dtype, const void *from, int64_t from_stride, int64_t rows,
                          int64_t cols, float *to, int64_t width)
{
    for (int64_t i = 0; i < rows; i++, to += width) {
        int64_t j = 0;
        if (dtype == EBB_F32) {
            const float *row = (const float *)from + i * from_stride;
            for (; j + LANES <= cols; j += LANES) v_store(to + j, v_load(row + j));
            for (; j < cols; j++) to[j] = row[j];
        } else {
            const uint16_t *row = (const uint16_t *)from + i * from_stride;
            for (; j + LANES <= cols; j += LANES) {
                vu wide = __builtin_convertvector(*(const vh_any *)(row + j), vu);
                v_store(to + j, (vf)(wide << 16));
            }
            for (; j < cols; j++) to[j] = ebb_from_bf16(row[j]);
        }
        for (; j < width; j++) to[j] = 0;
    }
}

/* to[j, i] = from[i, j], zero for i from rows to BLOCK. */
EBB_VECTOR void turn(const float *from, int64_t from_stride, int64_t rows, int64_t cols, float *to)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) to[j * BLOCK + i] = from[i * from_stride + j];
    }
    for (int64_t j = 0; j < cols && rows < BLOCK; j++) {
        for (int64_t i = rows; i < BLOCK; i++) to[j * BLOCK + i] = 0;
    }
}

static void store_rows(int dtype, void *to, int64_t to_stride, const float *from,
                       int64_t from_stride, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        const float *row = from + i * from_stride;
        if (dtype == EBB_F32) {
            memcpy((float *)to + i * to_stride, row, (size_t)cols * sizeof *row);
        } else {
            uint16_t *half = (uint16_t *)to + i * to_stride;
            for (int64_t j = 0; j < cols; j++) half[j] = ebb_round_bf16(row[j]);
        }
    }
}

/* ---- tiles ---- */

/* Which keys the queries first .. first + count see: from *begin, a multiple of BLOCK, to *end. */
EBB_VECTOR void KERNEL(visible)(const struct ebb_attention_head *head, int64_t first, int64_t count,
                                int64_t *begin, int64_t *end)
{
    int64_t place = head->offset + first;
    int64_t window = head->shape->window;
    *end = place + count < head->keys ? place + count : head->keys;
    *begin = window > 0 && place >= window ? (place - window + 1) / BLOCK * BLOCK : 0;
}

/* Sets what a query must not see. `ahead`: place of the first query minus that of the first key. */
EBB_VECTOR void mask(float *t, int64_t keys, int64_t queries, int64_t ahead, int64_t window,
                     float value)
{
    bool causal = ahead < keys - 1;
    bool far = window > 0 && ahead + queries - 1 >= window;
    if (!causal && !far) return;
    for (int64_t r = 0; r < keys; r++) {
        int64_t low = r - ahead;
        int64_t high = window > 0 ? window + r - ahead : BLOCK;
        low = low < 0 ? 0 : low > BLOCK ? BLOCK : low;
        high = high < 0 ? 0 : high > BLOCK ? BLOCK : high;
        for (int64_t i = 0; i < low; i++) t[r * BLOCK + i] = value;
        for (int64_t i = high; i < BLOCK; i++) t[r * BLOCK + i] = value;
    }
}

/* Scores from products: factor and soft cap. */
EBB_VECTOR void score(float *t, int64_t keys, int64_t width,
                      const struct ebb_attention_shape *shape)
{
    vf scale = v_set(shape->scale);
    for (int64_t r = 0; r < keys; r++) {
        for (int64_t i = 0; i < width; i += LANES) {
            vf s = v_load(t + r * BLOCK + i) * scale;
            if (shape->softcap > 0) s = v_set(shape->softcap) * v_tanh(s / v_set(shape->softcap));
            v_store(t + r * BLOCK + i, s);
        }
    }
}

/* One step of the running softmax: scores become exp(s - m) with the new maximum m; `sum` and what
 * was added up before must be multiplied by `fade`. A query that has seen nothing yet has m = -inf.
 */
EBB_VECTOR void softmax(float *t, int64_t keys, int64_t width, float *most, float *sum, float *fade)
{
    for (int64_t i = 0; i < width; i += LANES) {
        vf before = v_load(most + i);
        vf now = before;
        for (int64_t r = 0; r < keys; r++) now = V_MAX(now, v_load(t + r * BLOCK + i));
        vf finite = V_MAX(v_set(-1e30f), now);
        vf total = v_set(0);
        for (int64_t r = 0; r < keys; r++) {
            vf p = v_exp(v_load(t + r * BLOCK + i) - finite);
            v_store(t + r * BLOCK + i, p);
            total += p;
        }
        vf faded = v_exp(before - finite);
        v_store(most + i, now);
        v_store(fade + i, faded);
        v_store(sum + i, V_FMA(v_load(sum + i), faded, total));
    }
}

EBB_VECTOR void rescale(float *o, int64_t rows, int64_t width, const float *factor)
{
    for (int64_t i = 0; i < rows; i++) {
        if (factor[i] == 1.0f) continue;
        vf by = v_set(factor[i]);
        for (int64_t j = 0; j < width; j += LANES)
            v_store(o + i * width + j, v_load(o + i * width + j) * by);
    }
}

EBB_VECTOR int64_t KERNEL(round_up)(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

EBB_VECTOR const void *KERNEL(row_at)(int dtype, const void *data, int64_t elements)
{
    return (const char *)data + elements * (dtype == EBB_F32 ? 4 : 2);
}

/* ---- forward ---- */

static void forward(const struct ebb_attention_head *head, const struct ebb_attention_area *area,
                    int64_t first)
{
    const struct ebb_attention_shape *shape = head->shape;
    const int64_t d = shape->qk_dim, e = shape->v_dim;
    const int64_t d_width = KERNEL(round_up)(d, EBB_ATTENTION_PAD),
                  e_width = KERNEL(round_up)(e, EBB_ATTENTION_PAD);
    const int64_t queries = head->queries - first < BLOCK ? head->queries - first : BLOCK;
    const int64_t width = KERNEL(round_up)(queries, LANES);
    const int dtype = head->dtype;
    float *most = area->row, *sum = area->row + BLOCK, *fade = area->ds;
    int64_t begin, end;
    copy_rows(dtype, KERNEL(row_at)(dtype, head->q, first * head->q_stride), head->q_stride,
              queries, d, area->q, d_width);
    turn(area->q, d_width, queries, d, area->q_turned);
    for (int64_t i = 0; i < BLOCK; i++) {
        most[i] = -INFINITY;
        sum[i] = 0;
    }
    KERNEL(visible)(head, first, queries, &begin, &end);
    for (int64_t key = begin; key < end; key += BLOCK) {
        int64_t keys = end - key < BLOCK ? end - key : BLOCK;
        copy_rows(dtype, KERNEL(row_at)(dtype, head->k, key * head->k_stride), head->k_stride, keys,
                  d, area->k, d_width);
        copy_rows(dtype, KERNEL(row_at)(dtype, head->v, key * head->v_stride), head->v_stride, keys,
                  e, area->v, e_width);
        product(keys, width, d, area->k, d_width, 1, area->q_turned, BLOCK, area->s, BLOCK, false);
        score(area->s, keys, width, shape);
        mask(area->s, keys, queries, head->offset + first - key, shape->window, -INFINITY);
        softmax(area->s, keys, width, most, sum, fade);
        if (key > begin) rescale(area->sum, queries, e_width, fade);
        product(queries, e_width, keys, area->s, 1, BLOCK, area->v, e_width, area->sum, e_width,
                key > begin);
    }
    for (int64_t i = 0; i < queries; i++) {
        if (head->lse) head->lse[(first + i) * head->lse_stride] = most[i] + logf(sum[i]);
        fade[i] = 1.0f / sum[i];
    }
    rescale(area->sum, queries, e_width, fade);
    store_rows(dtype, (char *)head->o + first * head->o_stride * (dtype == EBB_F32 ? 4 : 2),
               head->o_stride, area->sum, e_width, queries, e);
}

/* ---- backward ---- */

/* From q k in `s` and d_o v in `ds`: p in `s`, and the gradient of q k in `ds`. */
EBB_VECTOR void gradient(float *s, float *ds, int64_t keys, int64_t width,
                         const struct ebb_attention_shape *shape, const float *lse,
                         const float *delta)
{
    vf scale = v_set(shape->scale), cap = v_set(shape->softcap);
    for (int64_t r = 0; r < keys; r++) {
        for (int64_t i = 0; i < width; i += LANES) {
            vf z = v_load(s + r * BLOCK + i) * scale, slope = scale;
            if (shape->softcap > 0) {
                vf t = v_tanh(z / cap);
                z = cap * t;
                slope = scale * (v_set(1.0f) - t * t);
            }
            vf p = v_exp(z - v_load(lse + i));
            v_store(s + r * BLOCK + i, p);
            v_store(ds + r * BLOCK + i,
                    p * (v_load(ds + r * BLOCK + i) - v_load(delta + i)) * slope);
        }
    }
}

/* q and d_o of the block, both ways round, lse and delta. Queries past the end get lse = inf, and
 * so p = 0. */
EBB_VECTOR void load_queries(const struct ebb_attention_head *head,
                             const struct ebb_attention_area *area, int64_t first, int64_t queries,
                             int64_t d_width, int64_t e_width)
{
    const int64_t d = head->shape->qk_dim, e = head->shape->v_dim;
    const int dtype = head->dtype;
    float *lse = area->row, *delta = area->row + BLOCK;
    copy_rows(dtype, KERNEL(row_at)(dtype, head->q, first * head->q_stride), head->q_stride,
              queries, d, area->q, d_width);
    turn(area->q, d_width, queries, d, area->q_turned);
    copy_rows(dtype, KERNEL(row_at)(dtype, head->d_o, first * head->d_o_stride), head->d_o_stride,
              queries, e, area->d_o, e_width);
    turn(area->d_o, e_width, queries, e, area->d_o_turned);
    copy_rows(dtype, KERNEL(row_at)(dtype, head->o, first * head->o_stride), head->o_stride,
              queries, e, area->v, e_width);
    for (int64_t i = 0; i < BLOCK; i++) {
        vf total = v_set(0);
        for (int64_t j = 0; j < e_width && i < queries; j += LANES) {
            total = V_FMA(v_load(area->d_o + i * e_width + j), v_load(area->v + i * e_width + j),
                          total);
        }
        delta[i] = v_sum(total);
        lse[i] = i < queries ? head->lse[(first + i) * head->lse_stride] : INFINITY;
    }
}

static void backward(const struct ebb_attention_head *head, const struct ebb_attention_area *area,
                     int64_t first, int64_t key0, int64_t key_end, float *dk, float *dv)
{
    const struct ebb_attention_shape *shape = head->shape;
    const int64_t d = shape->qk_dim, e = shape->v_dim;
    const int64_t d_width = KERNEL(round_up)(d, EBB_ATTENTION_PAD),
                  e_width = KERNEL(round_up)(e, EBB_ATTENTION_PAD);
    const int64_t queries = head->queries - first < BLOCK ? head->queries - first : BLOCK;
    const int64_t width = KERNEL(round_up)(queries, LANES);
    const int dtype = head->dtype;
    int64_t begin, end;
    KERNEL(visible)(head, first, queries, &begin, &end);
    int64_t start = begin > key0 ? begin : key0;
    end = end < key_end ? end : key_end;
    if (start >= end) return;
    load_queries(head, area, first, queries, d_width, e_width);
    for (int64_t key = start; key < end; key += BLOCK) {
        int64_t keys = end - key < BLOCK ? end - key : BLOCK;
        int64_t ahead = head->offset + first - key;
        copy_rows(dtype, KERNEL(row_at)(dtype, head->k, key * head->k_stride), head->k_stride, keys,
                  d, area->k, d_width);
        copy_rows(dtype, KERNEL(row_at)(dtype, head->v, key * head->v_stride), head->v_stride, keys,
                  e, area->v, e_width);
        product(keys, width, d, area->k, d_width, 1, area->q_turned, BLOCK, area->s, BLOCK, false);
        product(keys, width, e, area->v, e_width, 1, area->d_o_turned, BLOCK, area->ds, BLOCK,
                false);
        gradient(area->s, area->ds, keys, width, shape, area->row, area->row + BLOCK);
        mask(area->s, keys, queries, ahead, shape->window, 0);
        mask(area->ds, keys, queries, ahead, shape->window, 0);
        if (dv) {
            product(keys, e_width, queries, area->s, BLOCK, 1, area->d_o, e_width,
                    dv + (key - key0) * e_width, e_width, true);
        }
        if (dk) {
            product(keys, d_width, queries, area->ds, BLOCK, 1, area->q, d_width,
                    dk + (key - key0) * d_width, d_width, true);
        }
        if (head->dq) {
            product(queries, d_width, keys, area->ds, 1, BLOCK, area->k, d_width, area->sum,
                    d_width, key > start);
        }
    }
    if (head->dq) {
        store_rows(dtype, (char *)head->dq + first * head->dq_stride * (dtype == EBB_F32 ? 4 : 2),
                   head->dq_stride, area->sum, d_width, queries, d);
    }
}

static const struct ebb_attention_kernels KERNEL(kernels) = {
#define ATTENTION_TEXT(name) #name
#define ATTENTION_NAME(name) ATTENTION_TEXT(name)
    ATTENTION_NAME(KERNEL(kernels)),
    forward,
    backward,
    store_rows,
#undef ATTENTION_NAME
#undef ATTENTION_TEXT
};

#undef vf
#undef vf_any
#undef vi
#undef vu
#undef vh_any
#undef v_load
#undef v_store
#undef v_set
#undef v_select
#undef v_exp
#undef v_tanh
#undef v_sum
#undef tile
#undef tile_width
#undef product
#undef copy_rows
#undef turn
#undef mask
#undef softmax
#undef rescale
#undef score
#undef forward
#undef gradient
#undef load_queries
#undef backward
#undef store_rows
#undef LANES
#undef BLOCK
#undef KERNEL
#undef VECTOR_BYTES
#undef TILE_VECTORS
#undef V_FMA
#undef V_MAX
