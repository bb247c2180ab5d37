/* Norm, clip factor, AdamW and SGD, and the four places where a parameter's fp32 value can live.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "op/optimizer.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- master split in two ---- */

static void check_split(uint32_t bits)
{
    uint16_t hi, lo;
    float value = float_of(bits);
    ebb_master_split(value, &hi, &lo);
    float back = ebb_master_join(hi, lo);
    if (isnan(value)) {
        if (!isnan(back) || !isnan(ebb_from_bf16(hi)))
            fail_msg("nan %08x became %04x, %04x", bits, hi, lo);
        return;
    }
    if (bits_of(back) != bits)
        fail_msg("%08x became %04x, %04x and %08x", bits, hi, lo, bits_of(back));
    uint16_t up = (uint16_t)((bits >> 16) +
                             ((bits & 0xffffu) >= 0x8000u)); /* nearest, halves away from zero */
    if (hi != up) fail_msg("%08x: bf16 is %04x, nearest is %04x", bits, hi, up);
}

static void a_split_master_joins_to_the_same_bits(void **state)
{
    (void)state;
    for (uint32_t hi = 0; hi < 0x10000u; hi += 173) {
        for (uint32_t lo = 0; lo < 0x10000u; lo++) check_split(hi << 16 | lo);
    }
    static const uint32_t his[] = {0,      1,      0x7f,   0x80,   0x3f7f, 0x3f80,
                                   0x7f7e, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fff};
    for (size_t k = 0; k < sizeof his / sizeof his[0]; k++) {
        for (uint32_t lo = 0; lo < 0x10000u; lo++) {
            check_split(his[k] << 16 | lo);
            check_split((his[k] | 0x8000u) << 16 | lo);
        }
    }
}

/* ---- norm and clip ---- */

struct setup {
    struct op_test t;
    struct ebb_view w, lo, master, grad, m, v, step, sums, scratch;
    int64_t rows, cols;
};

enum place { PLACE_F32, PLACE_SPLIT, PLACE_MASTER, PLACE_STOCHASTIC, PLACE_F32_MASTER, PLACES };

static struct ebb_step *step_of(struct setup *s)
{
    return ebb_view_data(&s->t.env, &s->step);
}

static struct ebb_sums *sums_of(struct setup *s)
{
    return ebb_view_data(&s->t.env, &s->sums);
}

/* The parameter's fp32 value, wherever it lives. */
static float value_of(const struct setup *s, int64_t i, int64_t j)
{
    if (s->master.tensor >= 0) return (float)op_test_get(&s->t, &s->master, i, j);
    if (s->lo.tensor < 0) return (float)op_test_get(&s->t, &s->w, i, j);
    return ebb_master_join(*(const uint16_t *)op_test_at(&s->t, &s->w, i, j),
                           *(const uint16_t *)op_test_at(&s->t, &s->lo, i, j));
}

static void set_value(struct setup *s, int64_t i, int64_t j, float value)
{
    if (s->master.tensor >= 0) op_test_set(&s->t, &s->master, i, j, (double)value);
    if (s->lo.tensor < 0) {
        op_test_set(&s->t, &s->w, i, j, (double)value);
    } else {
        ebb_master_split(value, op_test_at(&s->t, &s->w, i, j), op_test_at(&s->t, &s->lo, i, j));
    }
}

/* Columns behind the rows of each matrix. */
struct pads {
    int w, lo, master, grad, m, v;
};

static void prepare_with(struct setup *s, enum place place, int64_t rows, int64_t cols,
                         const struct pads *pads)
{
    struct op_test *t = &s->t;
    op_test_start(t);
    s->rows = rows;
    s->cols = cols;
    enum ebb_dtype dtype = place == PLACE_F32 || place == PLACE_F32_MASTER ? EBB_F32 : EBB_BF16;
    bool master = place == PLACE_MASTER || place == PLACE_F32_MASTER;
    s->w = op_test_tensor(t, dtype, rows, cols, cols + pads->w);
    s->lo = place == PLACE_SPLIT ? op_test_tensor(t, EBB_U16, rows, cols, cols + pads->lo)
                                 : ebb_view_none();
    s->master =
        master ? op_test_tensor(t, EBB_F32, rows, cols, cols + pads->master) : ebb_view_none();
    s->grad = op_test_tensor(t, EBB_F32, rows, cols, cols + pads->grad);
    s->m = op_test_tensor(t, EBB_F32, rows, cols, cols + pads->m);
    s->v = op_test_tensor(t, EBB_F32, rows, cols, cols + pads->v);
    s->step = op_test_tensor(t, EBB_U8, 1, sizeof(struct ebb_step), sizeof(struct ebb_step));
    s->sums = op_test_tensor(t, EBB_U8, 1, sizeof(struct ebb_sums), sizeof(struct ebb_sums));
    s->scratch = op_test_scratch(t, ebb_norm_squared_scratch(&t->target));
    memset(step_of(s), 0, sizeof(struct ebb_step));
    memset(sums_of(s), 0, sizeof(struct ebb_sums));
    step_of(s)->seed = 5;
    step_of(s)->step = 1;
    step_of(s)->learning_rate = 1e-2;
    sums_of(s)->factor = 0.125;
    sums_of(s)->finite = 1;
    op_test_fill(t, &s->grad, -4, 4);
    op_test_fill(t, &s->m, 0, 0);
    op_test_fill(t, &s->v, 0, 0);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) set_value(s, i, j, (float)(2 * op_test_uniform(t) - 1));
    }
}

static void prepare(struct setup *s, enum place place, int64_t rows, int64_t cols)
{
    const struct pads pads = {.w = 6, .master = 1, .grad = 2};
    prepare_with(s, place, rows, cols, &pads);
}

/* With the host's copy of the step block as it stands in the tensor. */
static void run(struct setup *s, enum ebb_op op, const void *args)
{
    s->t.step = *step_of(s);
    assert_int_equal(op_test_run(&s->t, op, args), EBB_OK);
}

static void norm_squared_is_exact_and_does_not_depend_on_tiles_or_threads(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {5, 33}, {300, 70}, {2, 9001}};
    for (int k = 0; k < 4; k++) {
        struct setup s;
        prepare(&s, PLACE_F32, sizes[k][0], sizes[k][1]);
        struct ebb_norm_squared args = {.grad = s.grad, .sums = s.sums, .scratch = s.scratch};
        long double exact = 3;
        for (int64_t i = 0; i < s.rows; i++) {
            for (int64_t j = 0; j < s.cols; j++) {
                double g = op_test_get(&s.t, &s.grad, i, j);
                exact += (long double)(g * g);
            }
        }
        sums_of(&s)->norm_squared = 3;
        run(&s, EBB_OP_norm_squared, &args);
        double got = sums_of(&s)->norm_squared;
        assert_true(fabs(got - (double)exact) <= 1e-13 * (double)exact);
        sums_of(&s)->norm_squared = 3;
        s.t.env.threads = 1;
        for (int64_t i = 0; i < s.rows; i++) { /* row by row */
            struct ebb_norm_squared row = args;
            row.grad.rows = 1;
            row.grad.offset = i * row.grad.stride * 4;
            run(&s, EBB_OP_norm_squared, &row);
        }
        if (op_test_on_gpu()) { /* parts are shares of a matrix there: rows are added otherwise */
            assert_true(fabs(sums_of(&s)->norm_squared - got) <= 1e-13 * got);
            sums_of(&s)->norm_squared = 3;
            run(&s, EBB_OP_norm_squared, &args);
        }
        assert_true(sums_of(&s)->norm_squared == got);
        op_test_fill(&s.t, &s.grad, 1e30, 1e30); /* squares that fp32 does not hold */
        sums_of(&s)->norm_squared = 0;
        run(&s, EBB_OP_norm_squared, &args);
        assert_true(fabs(sums_of(&s)->norm_squared / (1e60 * (double)(s.rows * s.cols)) - 1) <
                    1e-6);
        op_test_set(&s.t, &s.grad, s.rows - 1, s.cols - 1, (double)NAN);
        run(&s, EBB_OP_norm_squared, &args);
        assert_true(isnan(sums_of(&s)->norm_squared));
        op_test_end(&s.t);
    }
}

/* Long and short parts, with rows that follow each other and with gaps between them. */
static void norm_squared_has_the_same_bits_however_rows_lie(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},    {3, 5},     {7, 333},
                                       {300, 70}, {65, 5003}, {1025, 1027}};
    for (int k = 0; k < 6; k++) {
        double got[2];
        for (int pad = 0; pad < 2; pad++) {
            struct setup s;
            prepare_with(&s, PLACE_F32, sizes[k][0], sizes[k][1], &(struct pads){.grad = 3 * pad});
            struct ebb_norm_squared args = {.grad = s.grad, .sums = s.sums, .scratch = s.scratch};
            sums_of(&s)->norm_squared = 0.1;
            run(&s, EBB_OP_norm_squared, &args);
            got[pad] = sums_of(&s)->norm_squared;
            op_test_end(&s.t);
        }
        assert_true(got[0] > 0.1 && got[0] == got[1]);
    }
}

static void clip_with(struct setup *s, double norm_squared, double weight, double max)
{
    struct ebb_clip args = {.step = s->step, .sums = s->sums};
    sums_of(s)->norm_squared = norm_squared;
    step_of(s)->total_weight = weight;
    step_of(s)->max_grad_norm = max;
    run(s, EBB_OP_clip, &args);
}

static void clip_scales_down_only_what_is_above_the_limit(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, PLACE_F32, 1, 1);
    clip_with(&s, 400, 10, 0);
    assert_true(sums_of(&s)->grad_norm == 2 && sums_of(&s)->factor == 0.1 &&
                sums_of(&s)->finite == 1);
    clip_with(&s, 400, 10, 5);
    assert_true(sums_of(&s)->factor == 0.1 && sums_of(&s)->finite == 1);
    clip_with(&s, 400, 10, 0.5);
    assert_true(sums_of(&s)->grad_norm == 2);
    assert_true(fabs(sums_of(&s)->factor - 0.1 * 0.5 / (2 + 1e-6)) < 1e-15);
    op_test_end(&s.t);
}

static void clip_says_when_gradients_are_not_finite_or_there_are_none(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, PLACE_F32, 1, 1);
    clip_with(&s, (double)NAN, 10, 1);
    assert_true(sums_of(&s)->finite == 0 && isnan(sums_of(&s)->grad_norm));
    clip_with(&s, (double)INFINITY, 10, 1);
    assert_true(sums_of(&s)->finite == 0);
    clip_with(&s, 0, 0,
              1); /* no label in the whole step: nothing to learn, and no NaN in the metrics */
    assert_true(sums_of(&s)->finite == 0 && sums_of(&s)->grad_norm == 0 &&
                sums_of(&s)->factor == 0);
    clip_with(&s, 4, 0, 1);
    assert_true(sums_of(&s)->finite == 0);
    clip_with(&s, 0, 3, 1);
    assert_true(sums_of(&s)->finite == 1 && sums_of(&s)->grad_norm == 0);
    op_test_end(&s.t);
}

/* ---- the sweeps ---- */

static struct ebb_adamw adamw_of(const struct setup *s)
{
    struct ebb_adamw args = {.w = s->w,
                             .lo = s->lo,
                             .master = s->master,
                             .grad = s->grad,
                             .m = s->m,
                             .v = s->v,
                             .step = s->step,
                             .sums = s->sums,
                             .instance = 3,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .eps = 1e-8,
                             .weight_decay = 0.1};
    return args;
}

static struct ebb_sgd sgd_of(const struct setup *s, double momentum)
{
    struct ebb_sgd args = {.w = s->w,
                           .lo = s->lo,
                           .master = s->master,
                           .grad = s->grad,
                           .m = momentum > 0 ? s->m : ebb_view_none(),
                           .step = s->step,
                           .sums = s->sums,
                           .instance = 3,
                           .momentum = momentum,
                           .weight_decay = 0.05};
    return args;
}

/* After a sweep: value is `exact` up to fp32 rounding, and w is the copy that its place
 * promises. */
static void check_value(const struct setup *s, enum place place, int64_t i, int64_t j, double exact,
                        double allowed)
{
    if (place == PLACE_STOCHASTIC) { /* one of the two neighbours: less than a whole step away */
        double got = op_test_get(&s->t, &s->w, i, j);
        if (!(fabs(got - exact) <= 2 * op_test_rounding(EBB_BF16, exact) + allowed))
            fail_msg("%g for %g", got, exact);
        return;
    }
    double value = (double)value_of(s, i, j);
    if (!(fabs(value - exact) <= allowed))
        fail_msg("(%d, %d): %.9g for %.9g", (int)i, (int)j, value, exact);
    if (place == PLACE_MASTER) {
        assert_true(op_test_get(&s->t, &s->w, i, j) ==
                    (double)ebb_from_bf16(ebb_to_bf16((float)value)));
    }
    if (place == PLACE_F32_MASTER) assert_true(op_test_get(&s->t, &s->w, i, j) == value);
}

static void adamw_agrees_with_the_formula_wherever_the_value_lives(void **state)
{
    (void)state;
    for (int place = 0; place < PLACES; place++) {
        struct setup s;
        prepare(&s, (enum place)place, 9, 1029);
        struct ebb_adamw args = adamw_of(&s);
        for (int step = 1; step <= 3; step++) {
            step_of(&s)->step = (uint64_t)step;
            step_of(&s)->bias1 = 1 - pow(0.9, step);
            step_of(&s)->bias2 = 1 - pow(0.999, step);
            op_test_fill(&s.t, &s.grad, -4, 4);
            double *g = op_test_doubles(&s.t, &s.grad), *m = op_test_doubles(&s.t, &s.m);
            double *v = op_test_doubles(&s.t, &s.v), *w = malloc(sizeof(double) * 9 * 1029);
            assert_non_null(w);
            for (int64_t k = 0; k < 9 * 1029; k++) w[k] = (double)value_of(&s, k / 1029, k % 1029);
            run(&s, EBB_OP_adamw, &args);
            for (int64_t k = 0; k < 9 * 1029; k++) {
                double gk = g[k] * 0.125;
                double mk = 0.9 * m[k] + 0.1 * gk, vk = 0.999 * v[k] + 0.001 * gk * gk;
                double root = sqrt(vk / step_of(&s)->bias2) + 1e-8;
                double exact = w[k] * (1 - 1e-2 * 0.1) - 1e-2 / step_of(&s)->bias1 * mk / root;
                op_test_close(&s.t, &s.m, k / 1029, k % 1029, mk, 1e-7, 5e-8);
                op_test_close(&s.t, &s.v, k / 1029, k % 1029, vk, 3e-7, 0);
                check_value(&s, (enum place)place, k / 1029, k % 1029, exact, 2.5e-7);
                assert_true(op_test_get(&s.t, &s.grad, k / 1029, k % 1029) == 0);
            }
            free(g), free(m), free(v), free(w);
        }
        op_test_end(&s.t);
    }
}

static void sgd_agrees_with_the_formula_wherever_the_value_lives(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * PLACES; k++) {
        enum place place = (enum place)(k / 2);
        double momentum = k % 2 ? 0.9 : 0;
        struct setup s;
        prepare(&s, place, 3, 2051);
        op_test_fill(&s.t, &s.m, 100, 101); /* the first step must not read it */
        struct ebb_sgd args = sgd_of(&s, momentum);
        for (int step = 1; step <= 3; step++) {
            step_of(&s)->step = (uint64_t)step;
            op_test_fill(&s.t, &s.grad, -4, 4);
            double *g = op_test_doubles(&s.t, &s.grad), *m = op_test_doubles(&s.t, &s.m);
            double *w = malloc(sizeof(double) * 3 * 2051);
            assert_non_null(w);
            for (int64_t e = 0; e < 3 * 2051; e++) w[e] = (double)value_of(&s, e / 2051, e % 2051);
            run(&s, EBB_OP_sgd, &args);
            for (int64_t e = 0; e < 3 * 2051; e++) {
                double d = g[e] * 0.125 + 0.05 * w[e];
                if (momentum > 0 && step > 1) d += momentum * m[e];
                if (momentum > 0) op_test_close(&s.t, &s.m, e / 2051, e % 2051, d, 2e-7, 1e-7);
                if (momentum == 0) assert_true(op_test_get(&s.t, &s.m, e / 2051, e % 2051) == m[e]);
                check_value(&s, place, e / 2051, e % 2051, w[e] - 1e-2 * d, 1e-7);
                assert_true(op_test_get(&s.t, &s.grad, e / 2051, e % 2051) == 0);
            }
            free(g), free(m), free(w);
        }
        op_test_end(&s.t);
    }
}

static void a_step_that_is_not_finite_changes_nothing_but_clears_the_gradient(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * PLACES; k++) {
        struct setup s;
        prepare(&s, (enum place)(k / 2), 4, 300);
        step_of(&s)->bias1 = step_of(&s)->bias2 = 0.5;
        op_test_fill(&s.t, &s.m, 0, 1);
        op_test_set(&s.t, &s.grad, 2, 7, (double)NAN);
        sums_of(&s)->finite = 0;
        sums_of(&s)->factor = (double)NAN;
        struct ebb_view *views[] = {&s.w, &s.lo, &s.master, &s.m, &s.v};
        void *before[5] = {NULL};
        for (int v = 0; v < 5; v++)
            before[v] = views[v]->tensor >= 0 ? op_test_copy(&s.t, views[v]) : NULL;
        struct ebb_adamw adamw = adamw_of(&s);
        struct ebb_sgd sgd = sgd_of(&s, 0.9);
        run(&s, k % 2 ? EBB_OP_adamw : EBB_OP_sgd, k % 2 ? (void *)&adamw : (void *)&sgd);
        for (int v = 0; v < 5; v++) {
            if (before[v] != NULL) assert_true(op_test_same(&s.t, views[v], before[v]));
            free(before[v]);
        }
        for (int64_t e = 0; e < 4 * 300; e++)
            assert_true(op_test_get(&s.t, &s.grad, e / 300, e % 300) == 0);
        op_test_end(&s.t);
    }
}

static void a_sweep_is_the_same_for_any_threads_and_in_blocks(void **state)
{
    (void)state;
    for (int place = 0; place < PLACES; place++) {
        struct setup s;
        prepare(&s, (enum place)place, 20, 1027);
        step_of(&s)->bias1 = step_of(&s)->bias2 = 0.5;
        struct ebb_view *views[] = {&s.w, &s.lo, &s.master, &s.grad, &s.m, &s.v};
        void *before[6] = {NULL}, *after[6] = {NULL};
        for (int v = 0; v < 6; v++)
            before[v] = views[v]->tensor >= 0 ? op_test_copy(&s.t, views[v]) : NULL;
        struct ebb_adamw args = adamw_of(&s);
        run(&s, EBB_OP_adamw, &args);
        for (int v = 0; v < 6; v++) {
            if (before[v] == NULL) continue;
            after[v] = op_test_copy(&s.t, views[v]);
            op_test_restore(&s.t, views[v], before[v]);
        }
        s.t.env.threads = 1;
        for (int64_t start = 0; start < 20;
             start += 7) { /* blocks of rows, w.row0 tells where they stand */
            struct ebb_adamw block = args;
            struct ebb_view *parts[] = {&block.w,    &block.lo, &block.master,
                                        &block.grad, &block.m,  &block.v};
            for (int v = 0; v < 6; v++) {
                parts[v]->offset =
                    start * parts[v]->stride * ebb_dtype_bytes((enum ebb_dtype)parts[v]->dtype);
                parts[v]->rows = 20 - start < 7 ? 20 - start : 7;
                parts[v]->row0 = start;
            }
            run(&s, EBB_OP_adamw, &block);
        }
        for (int v = 0; v < 6; v++) {
            if (before[v] != NULL) assert_true(op_test_same(&s.t, views[v], after[v]));
            free(before[v]), free(after[v]);
        }
        op_test_end(&s.t);
    }
}

static void sweep_once(struct setup *s, bool sgd)
{
    struct ebb_adamw adamw = adamw_of(s);
    struct ebb_sgd momentum = sgd_of(s, 0.9);
    step_of(s)->step = 2;
    step_of(s)->bias1 = step_of(s)->bias2 = 0.5;
    op_test_fill(&s->t, &s->m, -1, 1);
    op_test_fill(&s->t, &s->v, 0, 1);
    run(s, sgd ? EBB_OP_sgd : EBB_OP_adamw, sgd ? (void *)&momentum : (void *)&adamw);
}

static void assert_same_elements(const struct setup *a, const struct setup *b)
{
    const struct ebb_view *left[] = {&a->w, &a->lo, &a->master, &a->grad, &a->m, &a->v};
    const struct ebb_view *right[] = {&b->w, &b->lo, &b->master, &b->grad, &b->m, &b->v};
    for (int v = 0; v < 6; v++) {
        if (left[v]->tensor < 0) continue;
        size_t bytes = (size_t)ebb_dtype_bytes((enum ebb_dtype)left[v]->dtype);
        for (int64_t i = 0; i < a->rows; i++)
            assert_memory_equal(op_test_at(&a->t, left[v], i, 0), op_test_at(&b->t, right[v], i, 0),
                                (size_t)a->cols * bytes);
    }
}

/* A GPU takes elements in groups where it may: rows that follow each other, rows with gaps of whole
 * groups, a last group that is not whole. */
static void a_sweep_has_the_same_bits_however_rows_lie(void **state)
{
    (void)state;
    static const struct pads lies[] = {
        {.w = 0}, {8, 4, 4, 12, 4, 8}, {0, 4, 4, 0, 0, 0}, {1, 2, 3, 1, 1, 1}, {.grad = 1}};
    static const int64_t sizes[][2] = {{1, 3}, {1, 4102}, {5, 1028}, {7, 1027}, {2500, 2}};
    for (int k = 0; k < 2 * PLACES * 5; k++) {
        const int64_t *size = sizes[k % 5];
        enum place place = (enum place)(k / 5 % PLACES);
        struct setup first;
        prepare_with(&first, place, size[0], size[1], &lies[3]);
        sweep_once(&first, k >= 5 * PLACES);
        for (int lie = 0; lie < 5; lie++) {
            struct setup s;
            prepare_with(&s, place, size[0], size[1], &lies[lie]);
            sweep_once(&s, k >= 5 * PLACES);
            assert_same_elements(&first, &s);
            op_test_end(&s.t);
        }
        op_test_end(&first.t);
    }
}

static void stochastic_rounding_takes_sixteen_bits_of_philox_an_element(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, PLACE_STOCHASTIC, 5, 1003);
    step_of(&s)->step = 4;
    step_of(&s)->rank = 2;
    struct ebb_sgd args = sgd_of(&s, 0);
    args.weight_decay = 0;
    sums_of(&s)->factor = 1;
    double *g = op_test_doubles(&s.t, &s.grad), *w = op_test_doubles(&s.t, &s.w);
    run(&s, EBB_OP_sgd, &args);
    /* the same on every rank: replicas of a weight must round alike */
    uint64_t key = ebb_random_key(5, 4, 0, 0, 3);
    for (uint64_t e = 0; e < 5 * 1003; e++) {
        uint32_t words[4];
        ebb_philox(key, e / 8, words);
        uint32_t random = words[e % 8 / 2] >> (e % 2 * 16) & 0xffffu;
        float value = (float)w[e] - 0.01f * (float)g[e];
        uint32_t want = (bits_of(value) + random) >> 16;
        assert_int_equal(*(uint16_t *)op_test_at(&s.t, &s.w, (int64_t)e / 1003, (int64_t)e % 1003),
                         want);
    }
    free(g), free(w);
    op_test_end(&s.t);
}

static void stochastic_rounding_is_right_on_average_and_keeps_what_fits(void **state)
{
    (void)state;
    struct setup s;
    enum { N = 300 };
    prepare(&s, PLACE_STOCHASTIC, N, N);
    struct ebb_sgd args = sgd_of(&s, 0);
    args.weight_decay = 0;
    sums_of(&s)->factor = 1;
    op_test_fill(&s.t, &s.w, 1, 1);
    op_test_fill(&s.t, &s.grad, -0.1, -0.1); /* w + 0.001: an eighth of the way to 1.0078125 */
    run(&s, EBB_OP_sgd, &args);
    double sum = 0;
    for (int64_t e = 0; e < N * N; e++) {
        double got = op_test_get(&s.t, &s.w, e / N, e % N);
        assert_true(got == 1 || got == 1.0078125);
        sum += got;
    }
    double up = 0.001 / 0.0078125, sigma = 0.0078125 * sqrt(up * (1 - up)) / N;
    assert_true(fabs(sum / (N * N) - 1.001) < 4 * sigma);
    void *before = op_test_copy(&s.t, &s.w); /* the gradient is zero now: nothing may move */
    run(&s, EBB_OP_sgd, &args);
    assert_true(op_test_same(&s.t, &s.w, before));
    op_test_fill(&s.t, &s.grad, (double)NAN, (double)NAN);
    run(&s, EBB_OP_sgd, &args);
    assert_true(isnan(op_test_get(&s.t, &s.w, 3, 3)));
    free(before);
    op_test_end(&s.t);
}

static void a_split_master_learns_what_bf16_alone_would_lose(void **state)
{
    (void)state;
    struct setup s;
    prepare(&s, PLACE_SPLIT, 1, 64);
    struct ebb_sgd args = sgd_of(&s, 0);
    args.weight_decay = 0;
    sums_of(&s)->factor = 1;
    for (int64_t j = 0; j < 64; j++) set_value(&s, 0, j, 1);
    for (int step = 0; step < 100; step++) {
        op_test_fill(&s.t, &s.grad, -0.01, -0.01); /* 1e-4 a step: a fortieth of half a bf16 step */
        run(&s, EBB_OP_sgd, &args);
    }
    for (int64_t j = 0; j < 64; j++) {
        assert_true(fabs((double)value_of(&s, 0, j) - 1.01) < 1e-5);
        assert_true(op_test_get(&s.t, &s.w, 0, j) == 1.0078125);
    }
    op_test_end(&s.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_master_joins_to_the_same_bits),
        cmocka_unit_test(norm_squared_is_exact_and_does_not_depend_on_tiles_or_threads),
        cmocka_unit_test(norm_squared_has_the_same_bits_however_rows_lie),
        cmocka_unit_test(clip_scales_down_only_what_is_above_the_limit),
        cmocka_unit_test(clip_says_when_gradients_are_not_finite_or_there_are_none),
        cmocka_unit_test(adamw_agrees_with_the_formula_wherever_the_value_lives),
        cmocka_unit_test(sgd_agrees_with_the_formula_wherever_the_value_lives),
        cmocka_unit_test(a_step_that_is_not_finite_changes_nothing_but_clears_the_gradient),
        cmocka_unit_test(a_sweep_is_the_same_for_any_threads_and_in_blocks),
        cmocka_unit_test(a_sweep_has_the_same_bits_however_rows_lie),
        cmocka_unit_test(stochastic_rounding_takes_sixteen_bits_of_philox_an_element),
        cmocka_unit_test(stochastic_rounding_is_right_on_average_and_keeps_what_fits),
        cmocka_unit_test(a_split_master_learns_what_bf16_alone_would_lose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
