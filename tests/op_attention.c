/* Attention against dense double precision, whose gradients are checked by finite differences
 * first.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_int.h"

#include "op_test.h"

enum { DOCS_MAX = 6 };

struct setup {
    struct ebb_attention_shape shape;
    enum ebb_dtype dtype;
    int docs;
    int length[DOCS_MAX];
    int spare; /* rows of capacity behind the live ones */
};

/* ---- double precision ---- */

struct oracle {
    const struct ebb_attention_shape *shape;
    int64_t rows;      /* of one document */
    double *q, *k, *v; /* [rows, heads dim], dense */
    double *o, *lse;
    double *d_o, *dq, *dk, *dv;
};

static double oracle_score(const struct oracle *w, int64_t i, int64_t j, int64_t h, double *slope)
{
    const struct ebb_attention_shape *s = w->shape;
    const int64_t d = s->qk_dim, kv = h / (s->heads / s->kv_heads);
    double sum = 0;
    for (int64_t c = 0; c < d; c++) {
        sum += w->q[(i * s->heads + h) * d + c] * w->k[(j * s->kv_heads + kv) * d + c];
    }
    sum *= (double)s->scale;
    *slope = (double)s->scale;
    if (s->softcap > 0) {
        double t = tanh(sum / (double)s->softcap);
        sum = (double)s->softcap * t;
        *slope *= 1 - t * t;
    }
    return sum;
}

static bool oracle_sees(const struct oracle *w, int64_t i, int64_t j)
{
    return j <= i && (w->shape->window == 0 || i - j < w->shape->window);
}

static void oracle_forward(struct oracle *w)
{
    const struct ebb_attention_shape *s = w->shape;
    const int64_t e = s->v_dim;
    for (int64_t i = 0; i < w->rows; i++) {
        for (int64_t h = 0; h < s->heads; h++) {
            const int64_t kv = h / (s->heads / s->kv_heads);
            double slope, most = -INFINITY, sum = 0;
            double *o = w->o + (i * s->heads + h) * e;
            for (int64_t c = 0; c < e; c++) o[c] = 0;
            for (int64_t j = 0; j < w->rows; j++) {
                if (oracle_sees(w, i, j)) most = fmax(most, oracle_score(w, i, j, h, &slope));
            }
            for (int64_t j = 0; j < w->rows; j++) {
                if (!oracle_sees(w, i, j)) continue;
                double p = exp(oracle_score(w, i, j, h, &slope) - most);
                sum += p;
                for (int64_t c = 0; c < e; c++) o[c] += p * w->v[(j * s->kv_heads + kv) * e + c];
            }
            for (int64_t c = 0; c < e; c++) o[c] /= sum;
            w->lse[i * s->heads + h] = most + log(sum);
        }
    }
}

/* From o and lse as they stand in `w`. */
static void oracle_backward(struct oracle *w)
{
    const struct ebb_attention_shape *s = w->shape;
    const int64_t d = s->qk_dim, e = s->v_dim;
    memset(w->dq, 0, (size_t)(w->rows * s->heads * d) * sizeof(double));
    memset(w->dk, 0, (size_t)(w->rows * s->kv_heads * d) * sizeof(double));
    memset(w->dv, 0, (size_t)(w->rows * s->kv_heads * e) * sizeof(double));
    for (int64_t i = 0; i < w->rows; i++) {
        for (int64_t h = 0; h < s->heads; h++) {
            const int64_t kv = h / (s->heads / s->kv_heads);
            const double *d_o = w->d_o + (i * s->heads + h) * e, *o = w->o + (i * s->heads + h) * e;
            double delta = 0;
            for (int64_t c = 0; c < e; c++) delta += d_o[c] * o[c];
            for (int64_t j = 0; j < w->rows; j++) {
                if (!oracle_sees(w, i, j)) continue;
                double slope, dp = 0;
                double p = exp(oracle_score(w, i, j, h, &slope) - w->lse[i * s->heads + h]);
                for (int64_t c = 0; c < e; c++) {
                    dp += d_o[c] * w->v[(j * s->kv_heads + kv) * e + c];
                    w->dv[(j * s->kv_heads + kv) * e + c] += p * d_o[c];
                }
                double ds = p * (dp - delta) * slope;
                for (int64_t c = 0; c < d; c++) {
                    w->dq[(i * s->heads + h) * d + c] += ds * w->k[(j * s->kv_heads + kv) * d + c];
                    w->dk[(j * s->kv_heads + kv) * d + c] += ds * w->q[(i * s->heads + h) * d + c];
                }
            }
        }
    }
}

static double *doubles(int64_t n)
{
    double *all = calloc((size_t)n, sizeof *all);
    assert_non_null(all);
    return all;
}

static void oracle_start(struct oracle *w, const struct ebb_attention_shape *s, int64_t rows)
{
    w->shape = s;
    w->rows = rows;
    w->q = doubles(rows * s->heads * s->qk_dim);
    w->dq = doubles(rows * s->heads * s->qk_dim);
    w->k = doubles(rows * s->kv_heads * s->qk_dim);
    w->dk = doubles(rows * s->kv_heads * s->qk_dim);
    w->v = doubles(rows * s->kv_heads * s->v_dim);
    w->dv = doubles(rows * s->kv_heads * s->v_dim);
    w->o = doubles(rows * s->heads * s->v_dim);
    w->d_o = doubles(rows * s->heads * s->v_dim);
    w->lse = doubles(rows * s->heads);
}

static void oracle_end(struct oracle *w)
{
    double *all[] = {w->q, w->dq, w->k, w->dk, w->v, w->dv, w->o, w->d_o, w->lse};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

/* ---- the ops ---- */

/* q, k and v are columns of one tensor, and so are their gradients. */
struct world {
    struct op_test t;
    struct ebb_view qkv, d_qkv, doc_starts;
    struct ebb_attention_forward forward;
    struct ebb_attention_backward backward;
    int64_t tokens;
};

static void world_start(struct world *w, const struct setup *setup, int threads)
{
    const struct ebb_attention_shape *s = &setup->shape;
    const int64_t q_cols = s->heads * s->qk_dim, k_cols = s->kv_heads * s->qk_dim,
                  v_cols = s->kv_heads * s->v_dim;
    const int64_t all = q_cols + k_cols + v_cols, o_cols = s->heads * s->v_dim;
    memset(w, 0, sizeof *w);
    op_test_start(&w->t);
    w->t.env.threads = threads;
    for (int i = 0; i < setup->docs; i++) w->tokens += setup->length[i];
    w->t.step.tokens = w->tokens;
    w->t.step.docs = setup->docs;
    const int64_t rows = w->tokens + setup->spare;
    w->qkv = op_test_token_rows(&w->t, setup->dtype, rows, all, all + 5);
    w->d_qkv = op_test_token_rows(&w->t, setup->dtype, rows, all, all + 3);
    op_test_fill(&w->t, &w->qkv, -1.5, 1.5);
    w->doc_starts = op_test_tensor(&w->t, EBB_I32, 1, setup->docs + 3, setup->docs + 3);
    int at = 0;
    for (int i = 0; i <= setup->docs; i++) {
        op_test_set(&w->t, &w->doc_starts, 0, i, at);
        if (i < setup->docs) at += setup->length[i];
    }
    struct ebb_attention_forward *f = &w->forward;
    f->q = op_test_columns(&w->qkv, 0, q_cols);
    f->k = op_test_columns(&w->qkv, q_cols, k_cols);
    f->v = op_test_columns(&w->qkv, q_cols + k_cols, v_cols);
    f->doc_starts = w->doc_starts;
    f->o = op_test_token_rows(&w->t, setup->dtype, rows, o_cols, o_cols + 7);
    f->lse = op_test_token_rows(&w->t, EBB_F32, rows, s->heads, s->heads);
    const struct ebb_op_target target = {.backend = w->t.target.backend, .threads = threads};
    int64_t scratch = ebb_attention_scratch(s, setup->dtype, EBB_OP_attention_backward, rows, rows,
                                            &target);
    f->scratch = op_test_scratch(&w->t, scratch);
    f->shape = *s;
    struct ebb_attention_backward *b = &w->backward;
    b->q = f->q;
    b->k = f->k;
    b->v = f->v;
    b->o = f->o;
    b->lse = f->lse;
    b->d_o = op_test_token_rows(&w->t, setup->dtype, rows, o_cols, o_cols);
    op_test_fill(&w->t, &b->d_o, -1, 1);
    b->doc_starts = w->doc_starts;
    b->dq = op_test_columns(&w->d_qkv, 0, q_cols);
    b->dk = op_test_columns(&w->d_qkv, q_cols, k_cols);
    b->dv = op_test_columns(&w->d_qkv, q_cols + k_cols, v_cols);
    b->scratch = f->scratch;
    b->shape = *s;
}

static void world_run(struct world *w)
{
    assert_int_equal(op_test_run(&w->t, EBB_OP_attention_forward, &w->forward), EBB_OK);
    assert_int_equal(op_test_run(&w->t, EBB_OP_attention_backward, &w->backward), EBB_OK);
}

static void take(const struct op_test *t, const struct ebb_view *view, int64_t start, int64_t rows,
                 double *to)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < view->cols; j++)
            to[i * view->cols + j] = op_test_get(t, view, start + i, j);
    }
}

static void compare(const struct op_test *t, const struct ebb_view *view, int64_t start,
                    int64_t rows, const double *exact, double bound)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < view->cols; j++) {
            op_test_close(t, view, start + i, j, exact[i * view->cols + j], 4e-6, bound);
        }
    }
}

/* Rows behind the live ones keep the pattern that they started with. */
static void spare_rows_untouched(const struct op_test *t, const struct ebb_view *view, int64_t from)
{
    for (int64_t i = from; i < view->rows; i++) {
        const unsigned char *row = op_test_at(t, view, i, 0);
        for (int64_t j = 0; j < view->cols * ebb_dtype_bytes((enum ebb_dtype)view->dtype); j++) {
            assert_int_equal(row[j], 0xa5);
        }
    }
}

static void check_against_oracle(struct world *w, const struct setup *setup)
{
    int64_t start = 0;
    for (int doc = 0; doc < setup->docs; doc++) {
        const int64_t rows = setup->length[doc];
        struct oracle o;
        if (rows == 0) continue;
        oracle_start(&o, &setup->shape, rows);
        take(&w->t, &w->forward.q, start, rows, o.q);
        take(&w->t, &w->forward.k, start, rows, o.k);
        take(&w->t, &w->forward.v, start, rows, o.v);
        take(&w->t, &w->backward.d_o, start, rows, o.d_o);
        oracle_forward(&o);
        compare(&w->t, &w->forward.o, start, rows, o.o, 2e-6);
        compare(&w->t, &w->forward.lse, start, rows, o.lse, 4e-6);
        take(&w->t, &w->forward.o, start, rows, o.o);
        take(&w->t, &w->forward.lse, start, rows, o.lse);
        oracle_backward(&o);
        compare(&w->t, &w->backward.dq, start, rows, o.dq, 2e-5);
        compare(&w->t, &w->backward.dk, start, rows, o.dk, 4e-5);
        compare(&w->t, &w->backward.dv, start, rows, o.dv, 2e-5);
        oracle_end(&o);
        start += rows;
    }
    spare_rows_untouched(&w->t, &w->forward.o, w->tokens);
    spare_rows_untouched(&w->t, &w->forward.lse, w->tokens);
    spare_rows_untouched(&w->t, &w->d_qkv, w->tokens);
}

#define SHAPE(h, k, d, e, w, c)                                                                    \
    {                                                                                              \
        .heads = h, .kv_heads = k, .qk_dim = d, .v_dim = e, .window = w, .scale = 0.3f,            \
        .softcap = c                                                                               \
    }

static const struct setup setups[] = {
    {SHAPE(1, 1, 1, 1, 0, 0), EBB_F32, 1, {1}, 0},
    {SHAPE(3, 3, 5, 5, 0, 0), EBB_F32, 1, {7}, 2},
    {SHAPE(2, 1, 16, 16, 0, 0), EBB_F32, 1, {64}, 0},
    {SHAPE(2, 2, 64, 64, 0, 0), EBB_F32, 1, {200}, 1},
    {SHAPE(4, 2, 17, 33, 0, 0), EBB_F32, 4, {1, 70, 5, 129}, 3},
    {SHAPE(4, 1, 48, 80, 0, 0), EBB_F32, 3, {66, 0, 67}, 0},
    {SHAPE(2, 1, 24, 8, 3, 0), EBB_F32, 3, {1, 65, 130}, 0},
    {SHAPE(1, 1, 8, 8, 1, 0), EBB_F32, 1, {100}, 0},
    {SHAPE(2, 2, 8, 16, 64, 0), EBB_F32, 1, {200}, 0},
    {SHAPE(2, 2, 8, 16, 65, 0), EBB_F32, 1, {200}, 0},
    {SHAPE(2, 2, 8, 16, 100, 0), EBB_F32, 2, {131, 90}, 0},
    {SHAPE(2, 1, 12, 20, 0, 1.5f), EBB_F32, 2, {80, 3}, 1},
    {SHAPE(6, 2, 20, 12, 70, 2.0f), EBB_F32, 3, {150, 1, 20}, 1},
    {SHAPE(3, 3, 5, 7, 0, 0), EBB_BF16, 2, {1, 9}, 2},
    {SHAPE(2, 2, 64, 64, 0, 0), EBB_BF16, 1, {150}, 0},
    {SHAPE(6, 3, 40, 24, 70, 2.0f), EBB_BF16, 3, {150, 1, 20}, 3},
};
enum { SETUPS = sizeof setups / sizeof setups[0] };

/* ---- cases ---- */

static void oracle_gradients_are_those_of_finite_differences(void **state)
{
    (void)state;
    static const struct ebb_attention_shape shape = SHAPE(4, 2, 3, 2, 4, 1.5f);
    struct op_test random = {.random = 5};
    struct oracle w;
    oracle_start(&w, &shape, 7);
    double *inputs[] = {w.q, w.k, w.v}, *gradients[] = {w.dq, w.dk, w.dv};
    const int64_t sizes[] = {7 * 4 * 3, 7 * 2 * 3, 7 * 2 * 2}, outputs = 7 * 4 * 2;
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < sizes[k]; i++) inputs[k][i] = 2 * op_test_uniform(&random) - 1;
    }
    for (int64_t i = 0; i < outputs; i++) w.d_o[i] = 2 * op_test_uniform(&random) - 1;
    oracle_forward(&w);
    oracle_backward(&w);
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < sizes[k]; i++) {
            double at = inputs[k][i], difference = 0;
            for (int side = -1; side <= 1; side += 2) {
                inputs[k][i] = at + side * 1e-5;
                oracle_forward(&w);
                for (int64_t c = 0; c < outputs; c++) difference += side * w.o[c] * w.d_o[c];
            }
            inputs[k][i] = at;
            assert_true(fabs(difference / 2e-5 - gradients[k][i]) < 1e-8);
        }
    }
    oracle_end(&w);
}

static void forward_and_backward_agree_with_double_precision(void **state)
{
    (void)state;
    for (int i = 0; i < SETUPS; i++) {
        struct world w;
        world_start(&w, &setups[i], 2);
        world_run(&w);
        check_against_oracle(&w, &setups[i]);
        op_test_end(&w.t);
    }
}

static void every_set_of_kernels_agrees_with_double_precision(void **state)
{
    (void)state;
    op_test_cpu_only("sets of kernels are processors' instruction sets");
    for (int set = 0; set < EBB_ATTENTION_SETS; set++) {
        const struct ebb_attention_kernels *kernels = ebb_attention_kernels(set);
        if (!kernels) continue;
        for (int i = 3; i < SETUPS; i += 3) {
            struct world w;
            world_start(&w, &setups[i], 2);
            assert_int_equal(ebb_attention_forward_with(&w.t.env, &w.forward, kernels), EBB_OK);
            assert_int_equal(ebb_attention_backward_with(&w.t.env, &w.backward, kernels), EBB_OK);
            check_against_oracle(&w, &setups[i]);
            op_test_end(&w.t);
        }
    }
    assert_non_null(ebb_attention_kernels(EBB_ATTENTION_SETS - 1));
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < SETUPS; i++) {
        struct world one;
        world_start(&one, &setups[i], 1);
        world_run(&one);
        void *o = op_test_copy(&one.t, &one.forward.o),
             *lse = op_test_copy(&one.t, &one.forward.lse);
        void *d_qkv = op_test_copy(&one.t, &one.d_qkv);
        const bool gpu = one.t.target.backend == EBB_BACKEND_CUDA; /* there: once more */
        for (int threads = 2; threads <= (gpu ? 2 : 5); threads++) {
            struct world many;
            world_start(&many, &setups[i], threads);
            world_run(&many);
            assert_true(op_test_same(&many.t, &many.forward.o, o));
            assert_true(op_test_same(&many.t, &many.forward.lse, lse));
            assert_true(op_test_same(&many.t, &many.d_qkv, d_qkv));
            op_test_end(&many.t);
        }
        free(o);
        free(lse);
        free(d_qkv);
        op_test_end(&one.t);
    }
}

static void copy_rows(const struct op_test *from, const struct ebb_view *a, int64_t row,
                      struct op_test *to, const struct ebb_view *b, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        memcpy(op_test_at(to, b, i, 0), op_test_at(from, a, row + i, 0),
               (size_t)(b->cols * ebb_dtype_bytes((enum ebb_dtype)b->dtype)));
    }
}

static void assert_rows_same(const struct op_test *t, const struct ebb_view *a, int64_t row,
                             const struct op_test *u, const struct ebb_view *b, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        assert_memory_equal(op_test_at(t, a, row + i, 0), op_test_at(u, b, i, 0),
                            (size_t)(b->cols * ebb_dtype_bytes((enum ebb_dtype)b->dtype)));
    }
}

static void packed_documents_give_the_bits_of_each_alone(void **state)
{
    (void)state;
    for (int i = 0; i < SETUPS; i++) {
        if (setups[i].docs == 1) continue;
        struct world all;
        world_start(&all, &setups[i], 3);
        world_run(&all);
        int64_t start = 0;
        for (int doc = 0; doc < setups[i].docs; doc++) {
            const int64_t rows = setups[i].length[doc];
            struct setup single = setups[i];
            single.docs = 1;
            single.length[0] = (int)rows;
            struct world one;
            world_start(&one, &single, 2);
            copy_rows(&all.t, &all.qkv, start, &one.t, &one.qkv, rows);
            copy_rows(&all.t, &all.backward.d_o, start, &one.t, &one.backward.d_o, rows);
            world_run(&one);
            assert_rows_same(&all.t, &all.forward.o, start, &one.t, &one.forward.o, rows);
            assert_rows_same(&all.t, &all.forward.lse, start, &one.t, &one.forward.lse, rows);
            assert_rows_same(&all.t, &all.d_qkv, start, &one.t, &one.d_qkv, rows);
            op_test_end(&one.t);
            start += rows;
        }
        op_test_end(&all.t);
    }
}

/* Decoding has kernels of its own on the GPU: equal up to the rounding of either. */
static void assert_rows_near(const struct op_test *t, const struct ebb_view *a, int64_t row,
                             const struct ebb_view *b, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < b->cols; j++) {
            double whole = op_test_get(t, a, row + i, j);
            double rounding = op_test_rounding((enum ebb_dtype)a->dtype, whole);
            op_test_close(t, b, i, j, whole, 2 * 4e-6, 2 * 2e-6 + rounding);
        }
    }
}

/* The whole at once, then a long beginning and token by token, all from the caches. */
static void decoding_gives_the_bits_of_the_whole(void **state)
{
    (void)state;
    static const struct setup picks[] = {
        {SHAPE(4, 2, 16, 24, 0, 0), EBB_F32, 1, {140}, 0},
        {SHAPE(4, 2, 16, 24, 50, 3.0f), EBB_BF16, 1, {140}, 0},
    };
    for (int pick = 0; pick < 2; pick++) {
        struct world w;
        world_start(&w, &picks[pick], 2);
        world_run(&w);
        int64_t done = 0;
        while (done < 140) {
            int64_t count = done == 0 ? 77 : done < 100 ? 9 : 1;
            struct ebb_attention_cached c = {.q = w.forward.q,
                                             .k = w.forward.k,
                                             .v = w.forward.v,
                                             .scratch = w.forward.scratch,
                                             .shape = picks[pick].shape};
            c.k.extent = c.v.extent = EBB_EXTENT_FIXED;
            c.q.rows = 80;
            c.q.offset += done * c.q.stride * ebb_dtype_bytes((enum ebb_dtype)c.q.dtype);
            c.o = op_test_token_rows(&w.t, picks[pick].dtype, 80, w.forward.o.cols,
                                     w.forward.o.cols);
            w.t.step.cached = done;
            w.t.step.tokens = count;
            assert_int_equal(op_test_run(&w.t, EBB_OP_attention_cached, &c), EBB_OK);
            if (op_test_on_gpu())
                assert_rows_near(&w.t, &w.forward.o, done, &c.o, count);
            else
                assert_rows_same(&w.t, &w.forward.o, done, &w.t, &c.o, count);
            spare_rows_untouched(&w.t, &c.o, count);
            op_test_drop_last(&w.t);
            done += count;
        }
        op_test_end(&w.t);
    }
}

static void large_scores_stay_finite(void **state)
{
    (void)state;
    static const struct setup setup = {
        {.heads = 1, .kv_heads = 1, .qk_dim = 8, .v_dim = 8, .scale = 500.0f}, EBB_F32, 1, {90}, 0};
    struct world w;
    world_start(&w, &setup, 2);
    world_run(&w);
    for (int64_t i = 0; i < 90; i++) {
        for (int64_t j = 0; j < 8; j++)
            assert_true(isfinite(op_test_get(&w.t, &w.forward.o, i, j)));
        for (int64_t j = 0; j < w.d_qkv.cols; j++)
            assert_true(isfinite(op_test_get(&w.t, &w.d_qkv, i, j)));
    }
    op_test_end(&w.t);
}

static void not_a_number_is_passed_on(void **state)
{
    (void)state;
    struct world w;
    world_start(&w, &setups[3], 2);
    op_test_set(&w.t, &w.forward.k, 20, 3, (double)NAN);
    assert_int_equal(op_test_run(&w.t, EBB_OP_attention_forward, &w.forward), EBB_OK);
    assert_true(isfinite(op_test_get(&w.t, &w.forward.o, 19, 0)));
    assert_true(isnan(op_test_get(&w.t, &w.forward.o, 20, 0)));
    assert_true(isnan(op_test_get(&w.t, &w.forward.o, 199, 0)));
    assert_true(isnan(op_test_get(&w.t, &w.forward.lse, 199, 0)));
    assert_true(isfinite(op_test_get(&w.t, &w.forward.lse, 199, 1)));
    op_test_end(&w.t);
}

static void no_tokens_write_nothing(void **state)
{
    (void)state;
    static const struct setup setup = {SHAPE(2, 1, 8, 8, 0, 0), EBB_F32, 0, {0}, 5};
    struct world w;
    world_start(&w, &setup, 2);
    world_run(&w);
    spare_rows_untouched(&w.t, &w.forward.o, 0);
    spare_rows_untouched(&w.t, &w.d_qkv, 0);
    struct ebb_attention_cached c = {.q = w.forward.q,
                                     .k = w.forward.k,
                                     .v = w.forward.v,
                                     .o = w.forward.o,
                                     .scratch = w.forward.scratch,
                                     .shape = setup.shape};
    assert_int_equal(op_test_run(&w.t, EBB_OP_attention_cached, &c), EBB_OK);
    spare_rows_untouched(&w.t, &w.forward.o, 0);
    op_test_end(&w.t);
}

static void assert_op_fails(struct world *w, enum ebb_op op, const void *args, const char *text)
{
    assert_int_equal(op_test_run(&w->t, op, args), EBB_FAILED);
    if (!strstr(ebb_error_text(w->t.env.ctx), text))
        fail_msg("'%s' has no '%s'", ebb_error_text(w->t.env.ctx), text);
    ebb_error_clear(w->t.env.ctx);
}

static void assert_fails(struct world *w, const char *text)
{
    assert_op_fails(w, EBB_OP_attention_forward, &w->forward, text);
    assert_op_fails(w, EBB_OP_attention_backward, &w->backward, text);
}

static void bad_arguments_are_named(void **state)
{
    (void)state;
    struct world w;
    world_start(&w, &setups[4], 2);
    if (!op_test_on_gpu()) { /* where the host reads the starts themselves */
        op_test_set(&w.t, &w.doc_starts, 0, 1, 80);
        assert_fails(&w, "the starts of 4 documents");
        op_test_set(&w.t, &w.doc_starts, 0, 1, 1);
        w.t.step.docs = 3;
        assert_fails(&w, "the starts of 3 documents");
    }
    w.t.step.docs = 9;
    assert_fails(&w, "the starts of 9 documents (room for 6)");
    w.t.step.docs = 4;
    w.forward.scratch.cols = w.backward.scratch.cols = 1000;
    if (!op_test_on_gpu()) /* where forward needs none */
        assert_op_fails(&w, EBB_OP_attention_forward, &w.forward, "1000 bytes of scratch, wanted ");
    assert_op_fails(&w, EBB_OP_attention_backward, &w.backward, "1000 bytes of scratch, wanted ");
    w.forward.shape.heads = w.backward.shape.heads = 5;
    assert_fails(&w, "5 heads, 2 kv heads");
    op_test_end(&w.t);
}

static void decoding_past_the_caches_is_refused(void **state)
{
    (void)state;
    struct world w;
    world_start(&w, &setups[1], 2);
    struct ebb_attention_cached c = {.q = w.forward.q,
                                     .k = w.forward.k,
                                     .v = w.forward.v,
                                     .o = w.forward.o,
                                     .scratch = w.forward.scratch,
                                     .shape = setups[1].shape};
    w.t.step.cached = 3;
    assert_int_equal(op_test_run(&w.t, EBB_OP_attention_cached, &c), EBB_FAILED);
    assert_non_null(strstr(ebb_error_text(w.t.env.ctx),
                           "3 cached tokens and 7 new ones do not fit the caches of 9"));
    op_test_end(&w.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_gradients_are_those_of_finite_differences),
        cmocka_unit_test(forward_and_backward_agree_with_double_precision),
        cmocka_unit_test(every_set_of_kernels_agrees_with_double_precision),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(packed_documents_give_the_bits_of_each_alone),
        cmocka_unit_test(decoding_gives_the_bits_of_the_whole),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(not_a_number_is_passed_on),
        cmocka_unit_test(no_tokens_write_nothing),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(decoding_past_the_caches_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
