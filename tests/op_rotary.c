/* Rotary embedding, with and without the norm over heads, against its formula in double precision.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "op/rotary.h"

enum { POSITIONS = 64 };
static const double eps = 1e-6;

struct setup {
    struct op_test t;
    struct ebb_view x, positions, table, q_norm, k_norm, y, dq_norm, dk_norm, scratch;
    int64_t heads, kv_heads, dim, rows, used;
    bool norms;
};

static const struct {
    enum ebb_dtype dtype;
    int64_t rows, heads, kv_heads, dim;
} sizes[] = {{EBB_F32, 1, 1, 1, 2},
             {EBB_F32, 9, 3, 1, 10},
             {EBB_F32, 300, 2, 2, 16},
             {EBB_BF16, 21, 4, 2, 64},
             {EBB_BF16, 5, 2, 1, 256}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* `x_beyond` and `y_beyond`: elements of a row behind its columns. */
static void prepare_sized(struct setup *s, enum ebb_dtype dtype, int64_t rows, int64_t heads,
                          int64_t kv_heads, int64_t dim, bool norms, int64_t x_beyond,
                          int64_t y_beyond)
{
    struct op_test *t = &s->t;
    op_test_start(t);
    s->rows = rows;
    s->heads = heads;
    s->kv_heads = kv_heads;
    s->dim = dim;
    s->used = (s->heads + s->kv_heads) * s->dim;
    s->norms = norms;
    int64_t all = s->used + s->kv_heads * s->dim; /* v stands behind k */
    s->x = op_test_tensor(t, dtype, s->rows, all, all + x_beyond);
    s->positions = op_test_tensor(t, EBB_I32, 1, s->rows, s->rows);
    s->table = op_test_tensor(t, EBB_F32, POSITIONS, s->dim, s->dim);
    s->q_norm = norms ? op_test_tensor(t, dtype, 1, s->dim, s->dim) : ebb_view_none();
    s->k_norm = norms ? op_test_tensor(t, dtype, 1, s->dim, s->dim) : ebb_view_none();
    s->y = op_test_tensor(t, dtype, s->rows, all, all + y_beyond);
    s->dq_norm = norms ? op_test_tensor(t, EBB_F32, 1, s->dim, s->dim) : ebb_view_none();
    s->dk_norm = norms ? op_test_tensor(t, EBB_F32, 1, s->dim, s->dim) : ebb_view_none();
    int64_t bytes = ebb_rotary_backward_scratch(s->rows, s->dim, norms, &t->target);
    assert_int_equal(bytes > 0, norms);
    s->scratch = op_test_scratch(t, bytes);
    op_test_live(&s->x, EBB_EXTENT_TOKENS, 0);
    op_test_live(&s->y, EBB_EXTENT_TOKENS, 0);
    t->step.tokens = s->rows;
    op_test_fill(t, &s->x, -2, 2);
    op_test_fill(t, &s->y, -1, 1);
    for (int64_t i = 0; i < s->rows; i++)
        op_test_set(t, &s->positions, 0, i, (double)((i * 7 + 3) % POSITIONS));
    for (int64_t p = 0; p < POSITIONS; p++) {
        for (int64_t i = 0; i < s->dim / 2; i++) {
            double angle = (double)p * pow(10000, -2.0 * (double)i / (double)s->dim);
            op_test_set(t, &s->table, p, i, cos(angle));
            op_test_set(t, &s->table, p, i + s->dim / 2, sin(angle));
        }
    }
    if (norms) {
        op_test_fill(t, &s->q_norm, 0.5, 1.5);
        op_test_fill(t, &s->k_norm, 0.5, 1.5);
        op_test_fill(t, &s->dq_norm, -1, 1);
        op_test_fill(t, &s->dk_norm, -1, 1);
    }
}

static void prepare(struct setup *s, int size, bool norms)
{
    prepare_sized(s, sizes[size].dtype, sizes[size].rows, sizes[size].heads, sizes[size].kv_heads,
                  sizes[size].dim, norms, 3, 1);
}

static struct ebb_rotary_forward forward_of(const struct setup *s)
{
    struct ebb_rotary_forward args = {.x = s->x,
                                      .positions = s->positions,
                                      .table = s->table,
                                      .q_norm = s->q_norm,
                                      .k_norm = s->k_norm,
                                      .y = s->y,
                                      .heads = s->heads,
                                      .kv_heads = s->kv_heads,
                                      .head_dim = s->dim,
                                      .eps = (float)eps};
    return args;
}

static struct ebb_rotary_backward backward_of(const struct setup *s)
{
    struct ebb_rotary_backward args = {.x = s->norms ? s->x : ebb_view_none(),
                                       .positions = s->positions,
                                       .table = s->table,
                                       .q_norm = s->q_norm,
                                       .k_norm = s->k_norm,
                                       .dy = s->y,
                                       .dq_norm = s->dq_norm,
                                       .dk_norm = s->dk_norm,
                                       .scratch = s->scratch,
                                       .heads = s->heads,
                                       .kv_heads = s->kv_heads,
                                       .head_dim = s->dim,
                                       .eps = (float)eps};
    return args;
}

/* One head at one position, in double. w may be NULL. */
static void oracle(const struct setup *s, const double *x, const double *w, int64_t position,
                   double *y)
{
    double r = 1, squares = 0;
    int64_t half = s->dim / 2;
    for (int64_t i = 0; i < s->dim; i++) squares += x[i] * x[i];
    if (w != NULL) r = 1 / sqrt(squares / (double)s->dim + (double)(float)eps);
    for (int64_t i = 0; i < half; i++) {
        double c = op_test_get(&s->t, &s->table, position, i),
               n = op_test_get(&s->t, &s->table, position, i + half);
        double a = w != NULL ? x[i] * r * w[i] : x[i],
               b = w != NULL ? x[i + half] * r * w[i + half] : x[i + half];
        y[i] = a * c - b * n;
        y[i + half] = b * c + a * n;
    }
}

static void forward_agrees_with_the_formula(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * SIZES; k++) {
        struct setup s;
        prepare(&s, k / 2, k % 2);
        struct ebb_rotary_forward args = forward_of(&s);
        double *x = op_test_doubles(&s.t, &s.x), *y_before = op_test_doubles(&s.t, &s.y);
        double *qw = s.norms ? op_test_doubles(&s.t, &s.q_norm) : NULL;
        double *kw = s.norms ? op_test_doubles(&s.t, &s.k_norm) : NULL;
        assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
        for (int64_t i = 0; i < s.rows; i++) {
            int64_t position = (int64_t)op_test_get(&s.t, &s.positions, 0, i);
            for (int64_t h = 0; h < s.heads + s.kv_heads; h++) {
                double exact[256];
                oracle(&s, x + i * s.x.cols + h * s.dim, h < s.heads ? qw : kw, position, exact);
                for (int64_t j = 0; j < s.dim; j++) {
                    op_test_close(&s.t, &s.y, i, h * s.dim + j, exact[j], 2e-7, 6e-7);
                }
            }
            for (int64_t j = s.used; j < s.y.cols; j++) { /* what stands behind the heads stays */
                assert_true(op_test_get(&s.t, &s.y, i, j) == y_before[i * s.y.cols + j]);
            }
        }
        double *apart = op_test_doubles(&s.t, &s.y);
        args.y = args.x; /* in place, with one thread: the same bits */
        s.t.env.threads = 1;
        assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
        for (int64_t i = 0; i < s.rows; i++) {
            for (int64_t j = 0; j < s.used; j++) {
                assert_true(op_test_get(&s.t, &s.x, i, j) == apart[i * s.y.cols + j]);
            }
        }
        free(x), free(y_before), free(qw), free(kw), free(apart);
        op_test_end(&s.t);
    }
}

/* Heads whose halves consist of eights, which the GPU takes at a time where rows are aligned, as
 * they are here; and others. */
static const struct {
    enum ebb_dtype dtype;
    int64_t rows, heads, kv_heads, dim;
} aligned_sizes[] = {{EBB_BF16, 11, 28, 4, 128}, {EBB_BF16, 7, 14, 2, 64}, {EBB_F32, 3, 3, 1, 16},
                     {EBB_F32, 6, 4, 2, 128},    {EBB_BF16, 5, 2, 1, 256}, {EBB_BF16, 3, 2, 1, 96},
                     {EBB_F32, 3, 2, 1, 80},     {EBB_BF16, 3, 2, 1, 24}};
enum { ALIGNED = sizeof aligned_sizes / sizeof aligned_sizes[0] };

static void copy_view(struct op_test *t, const struct ebb_view *from, const struct ebb_view *to)
{
    for (int64_t i = 0; i < from->rows; i++) {
        for (int64_t j = 0; j < from->cols; j++)
            op_test_set(t, to, i, j, op_test_get(t, from, i, j));
    }
}

static void assert_equal_columns(const struct op_test *t, const struct ebb_view *a,
                                 const struct ebb_view *b, int64_t columns)
{
    for (int64_t i = 0; i < a->rows; i++) {
        for (int64_t j = 0; j < columns; j++)
            assert_true(op_test_get(t, a, i, j) == op_test_get(t, b, i, j));
    }
}

static void aligned_rows_have_the_bits_of_others(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * ALIGNED; k++) {
        struct setup s;
        prepare_sized(&s, aligned_sizes[k / 2].dtype, aligned_sizes[k / 2].rows,
                      aligned_sizes[k / 2].heads, aligned_sizes[k / 2].kv_heads,
                      aligned_sizes[k / 2].dim, k % 2, 8, 16);
        struct op_test *t = &s.t;
        int64_t all = s.x.cols;
        struct ebb_view x = op_test_tensor(t, (enum ebb_dtype)s.x.dtype, s.rows, all, all + 1);
        struct ebb_view y = op_test_tensor(t, (enum ebb_dtype)s.x.dtype, s.rows, all, all + 3);
        x.extent = y.extent = EBB_EXTENT_TOKENS;
        struct ebb_rotary_forward forward = forward_of(&s), odd = forward;
        copy_view(t, &s.x, &x);
        copy_view(t, &s.y, &y);
        odd.x = x;
        odd.y = y;
        assert_int_equal(op_test_run(t, EBB_OP_rotary_forward, &forward), EBB_OK);
        assert_int_equal(op_test_run(t, EBB_OP_rotary_forward, &odd), EBB_OK);
        assert_equal_columns(t, &s.y, &y, s.used);
        double *values = op_test_doubles(t, &s.x);
        double *w = s.norms ? op_test_doubles(t, &s.q_norm) : NULL;
        for (int64_t i = 0; i < s.rows; i++) {
            int64_t position = (int64_t)op_test_get(t, &s.positions, 0, i);
            for (int64_t h = 0; h < s.heads; h++) {
                double exact[256];
                oracle(&s, values + i * all + h * s.dim, w, position, exact);
                for (int64_t j = 0; j < s.dim; j++)
                    op_test_close(t, &s.y, i, h * s.dim + j, exact[j], 3e-7, 8e-7);
            }
        }
        struct ebb_rotary_backward backward = backward_of(&s), odd_backward = backward;
        odd_backward.dy = y;
        if (s.norms) {
            odd_backward.x = x;
            odd_backward.dq_norm = op_test_tensor(t, EBB_F32, 1, s.dim, s.dim);
            odd_backward.dk_norm = op_test_tensor(t, EBB_F32, 1, s.dim, s.dim);
            copy_view(t, &s.dq_norm, &odd_backward.dq_norm);
            copy_view(t, &s.dk_norm, &odd_backward.dk_norm);
        }
        assert_int_equal(op_test_run(t, EBB_OP_rotary_backward, &backward), EBB_OK);
        assert_int_equal(op_test_run(t, EBB_OP_rotary_backward, &odd_backward), EBB_OK);
        assert_equal_columns(t, &s.y, &y, s.used);
        if (s.norms) {
            assert_equal_columns(t, &s.dq_norm, &odd_backward.dq_norm, s.dim);
            assert_equal_columns(t, &s.dk_norm, &odd_backward.dk_norm, s.dim);
        }
        if (!s.norms) { /* back where it came from */
            for (int64_t i = 0; i < s.rows * all; i++) {
                if (i % all < s.used)
                    op_test_close(t, &s.y, i / all, i % all, values[i], 0,
                                  s.x.dtype == EBB_BF16 ? 0.025 : 2e-6);
            }
        }
        free(values), free(w);
        op_test_end(t);
    }
}

/* The slope of sum dy y along *value, which oracle reads. */
static double slope(const struct setup *s, const double *x, const double *w, int64_t position,
                    const double *dy, double *value)
{
    const double h = 1e-5, at = *value;
    double y[256], sum = 0;
    *value = at + h;
    oracle(s, x, w, position, y);
    for (int64_t j = 0; j < s->dim; j++) sum += dy[j] * y[j];
    *value = at - h;
    oracle(s, x, w, position, y);
    for (int64_t j = 0; j < s->dim; j++) sum -= dy[j] * y[j];
    *value = at;
    return sum / (2 * h);
}

static void backward_agrees_with_finite_differences(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * SIZES; k++) {
        struct setup s;
        prepare(&s, k / 2, k % 2);
        struct ebb_rotary_backward args = backward_of(&s);
        double *x = op_test_doubles(&s.t, &s.x), *dy = op_test_doubles(&s.t, &s.y);
        double *w[2] = {NULL, NULL}, *dw[2] = {NULL, NULL}, size[2] = {1, 1};
        if (s.norms) {
            w[0] = op_test_doubles(&s.t, &s.q_norm);
            w[1] = op_test_doubles(&s.t, &s.k_norm);
            dw[0] = op_test_doubles(&s.t, &s.dq_norm);
            dw[1] = op_test_doubles(&s.t, &s.dk_norm);
        }
        assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_backward, &args), EBB_OK);
        for (int64_t i = 0; i < s.rows; i++) {
            int64_t position = (int64_t)op_test_get(&s.t, &s.positions, 0, i);
            for (int64_t h = 0; h < s.heads + s.kv_heads; h++) {
                int k_head = h >= s.heads;
                double *head = x + i * s.x.cols + h * s.dim;
                const double *d = dy + i * s.y.cols + h * s.dim;
                for (int64_t j = 0; j < s.dim; j++) {
                    double exact = slope(&s, head, w[k_head], position, d, &head[j]);
                    op_test_close(&s.t, &s.y, i, h * s.dim + j, exact, 1e-6, 1.5e-6);
                }
                for (int64_t j = 0; s.norms && j < s.dim; j++) {
                    dw[k_head][j] += slope(&s, head, w[k_head], position, d, &w[k_head][j]);
                }
                size[k_head] += 1;
            }
            for (int64_t j = s.used; j < s.y.cols; j++) {
                assert_true(op_test_get(&s.t, &s.y, i, j) == dy[i * s.y.cols + j]);
            }
        }
        for (int64_t j = 0; s.norms && j < s.dim; j++) {
            op_test_close(&s.t, &s.dq_norm, 0, j, dw[0][j], 0, 4e-7 * sqrt(size[0]) * 4);
            op_test_close(&s.t, &s.dk_norm, 0, j, dw[1][j], 0, 4e-7 * sqrt(size[1]) * 4);
        }
        free(x), free(dy), free(w[0]), free(w[1]), free(dw[0]), free(dw[1]);
        op_test_end(&s.t);
    }
}

static void backward_is_the_same_for_any_number_of_threads_and_adds(void **state)
{
    (void)state;
    for (int k = 0; k < SIZES; k++) {
        struct setup s;
        prepare(&s, k, true);
        struct ebb_rotary_backward args = backward_of(&s);
        op_test_fill(&s.t, &s.dq_norm, 0, 0);
        op_test_fill(&s.t, &s.dk_norm, 0, 0);
        void *dy = op_test_copy(&s.t, &s.y), *zero = op_test_copy(&s.t, &s.dq_norm);
        assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_backward, &args), EBB_OK);
        double *once = op_test_doubles(&s.t, &s.dq_norm);
        void *dx = op_test_copy(&s.t, &s.y), *dq = op_test_copy(&s.t, &s.dq_norm),
             *dk = op_test_copy(&s.t, &s.dk_norm);
        op_test_restore(&s.t, &s.y, dy);
        assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_backward, &args), EBB_OK);
        for (int64_t j = 0; j < s.dim; j++)
            op_test_close(&s.t, &s.dq_norm, 0, j, 2 * once[j], 1e-6, 1e-5);
        op_test_restore(&s.t, &s.y, dy);
        op_test_restore(&s.t, &s.dq_norm, zero);
        op_test_restore(&s.t, &s.dk_norm, zero);
        s.t.env.threads = 1;
        assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_backward, &args), EBB_OK);
        assert_true(op_test_same(&s.t, &s.y, dx));
        assert_true(op_test_same(&s.t, &s.dq_norm, dq) && op_test_same(&s.t, &s.dk_norm, dk));
        op_test_restore(&s.t, &s.y, dy); /* frozen norms need neither sums nor scratch */
        args.dq_norm = args.dk_norm = args.scratch = ebb_view_none();
        assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_backward, &args), EBB_OK);
        assert_true(op_test_same(&s.t, &s.y, dx));
        free(dy), free(zero), free(once), free(dx), free(dq), free(dk);
        op_test_end(&s.t);
    }
}

static void without_positions_the_cache_counts(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 1, false);
    struct ebb_rotary_forward args = forward_of(&s);
    for (int64_t i = 0; i < s.rows; i++) op_test_set(&s.t, &s.positions, 0, i, (double)(20 + i));
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
    void *given = op_test_copy(&s.t, &s.y);
    args.positions = ebb_view_none();
    s.t.step.cached = 20;
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
    assert_true(op_test_same(&s.t, &s.y, given));
    free(given);
    op_test_end(&s.t);
}

static void a_tile_takes_its_own_positions(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 1, true);
    struct ebb_rotary_forward args = forward_of(&s);
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
    void *whole = op_test_copy(&s.t, &s.y);
    op_test_fill(&s.t, &s.y, 0, 0);
    struct ebb_rotary_forward last = args;
    last.x.offset = 4 * args.x.stride * 4;
    last.y.offset = 4 * args.y.stride * 4;
    last.x.row0 = 4;
    args.x.rows = 4;
    last.x.rows = last.y.rows = s.rows - 4;
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &last), EBB_OK);
    for (int64_t i = 0; i < s.rows; i++) {
        const char *got = op_test_at(&s.t, &s.y, i, 0), *base = op_test_at(&s.t, &s.y, 0, 0);
        assert_memory_equal(got, (const char *)whole + (got - base), (size_t)s.used * 4);
    }
    s.t.step.tokens = 0;
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
    free(whole);
    op_test_end(&s.t);
}

static void a_position_behind_the_table_is_an_error_that_names_it(void **state)
{
    (void)state;
    op_test_cpu_only("positions are the host's to check");
    struct setup s;
    prepare(&s, 1, false);
    op_test_set(&s.t, &s.positions, 0, 2, POSITIONS);
    struct ebb_rotary_forward forward = forward_of(&s);
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &forward), EBB_FAILED);
    assert_non_null(
        strstr(ebb_error_text(s.t.env.ctx), "token 2 has position 64, the table has 64"));
    ebb_error_clear(s.t.env.ctx);
    struct ebb_rotary_backward backward = backward_of(&s);
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_backward, &backward), EBB_FAILED);
    ebb_error_clear(s.t.env.ctx);
    op_test_end(&s.t);
}

static void a_position_that_nobody_checked_stays_within_the_table(void **state)
{
    (void)state;
    op_test_gpu_only("such a position is an error");
    struct setup s;
    prepare(&s, 1, false);
    struct ebb_rotary_forward args = forward_of(&s);
    op_test_set(&s.t, &s.positions, 0, 1, 0);
    op_test_set(&s.t, &s.positions, 0, 2, POSITIONS - 1);
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
    void *nearest = op_test_copy(&s.t, &s.y);
    op_test_set(&s.t, &s.positions, 0, 1, -1);
    op_test_set(&s.t, &s.positions, 0, 2, POSITIONS);
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &args), EBB_OK);
    assert_true(op_test_same(&s.t, &s.y, nearest));
    free(nearest);
    op_test_end(&s.t);
}

static void an_odd_head_is_refused(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, 1, false);
    struct ebb_rotary_forward forward = forward_of(&s);
    forward.head_dim = 7;
    assert_int_equal(op_test_run(&s.t, EBB_OP_rotary_forward, &forward), EBB_UNSUPPORTED);
    assert_non_null(strstr(ebb_error_text(s.t.env.ctx), "heads of size 7"));
    op_test_end(&s.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_agrees_with_the_formula),
        cmocka_unit_test(aligned_rows_have_the_bits_of_others),
        cmocka_unit_test(backward_agrees_with_finite_differences),
        cmocka_unit_test(backward_is_the_same_for_any_number_of_threads_and_adds),
        cmocka_unit_test(without_positions_the_cache_counts),
        cmocka_unit_test(a_tile_takes_its_own_positions),
        cmocka_unit_test(a_position_behind_the_table_is_an_error_that_names_it),
        cmocka_unit_test(a_position_that_nobody_checked_stays_within_the_table),
        cmocka_unit_test(an_odd_head_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
