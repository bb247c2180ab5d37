/* Matrix products against double precision: forms, terms, dtypes, strides, live rows.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul_int.h"

#include <omp.h>

#include "op_test.h"

enum add_kind { ADD_NONE, ADD_OTHER, ADD_Y };

struct setup {
    int form;
    int64_t tokens, out, in; /* sizes of the layer: a weight is [out, in] */
    enum ebb_dtype dtype, y_dtype;
    bool bias, accumulate;
    enum add_kind add;
    float alpha;
    int64_t pad;  /* elements between rows */
    int64_t live; /* of `tokens` */
};

struct world {
    struct op_test t;
    struct ebb_matmul args;
    int64_t m, n, k; /* with live rows */
    double *before;  /* y before the product */
};

static struct ebb_view matrix(struct op_test *t, enum ebb_dtype dtype, int64_t rows, int64_t cols,
                              int64_t pad, bool tokens)
{
    struct ebb_view view = op_test_tensor(t, dtype, rows, cols, cols + pad);
    if (tokens) view.extent = EBB_EXTENT_TOKENS;
    op_test_fill(t, &view, -1, 1);
    return view;
}

static void world_start(struct world *w, const struct setup *s, int threads, bool force_fp32)
{
    memset(w, 0, sizeof *w);
    op_test_start(&w->t);
    w->t.env.threads = threads;
    w->t.step.tokens = s->live;
    if (ebb_matmul_lib_create(w->t.env.ctx, threads, &w->t.env.matmul) != EBB_OK) {
        print_message("%s\n", ebb_error_text(w->t.env.ctx));
        exit(77);
    }
    if (force_fp32) ebb_matmul_lib_force_fp32(w->t.env.matmul);
    struct ebb_matmul *a = &w->args;
    const bool tn = s->form == EBB_MATMUL_TN, nt = s->form == EBB_MATMUL_NT;
    int64_t a_cols = nt ? s->in : s->out, y_rows = tn ? s->out : s->tokens,
            y_cols = nt ? s->out : s->in;
    a->form = s->form;
    a->accumulate = s->accumulate;
    a->alpha = s->alpha;
    a->a = matrix(&w->t, s->dtype, s->tokens, a_cols, s->pad, true);
    a->b = tn ? matrix(&w->t, s->dtype, s->tokens, s->in, s->pad, true)
              : matrix(&w->t, s->dtype, s->out, s->in, s->pad, false);
    a->y = matrix(&w->t, s->y_dtype, y_rows, y_cols, s->pad, !tn);
    a->bias = s->bias ? matrix(&w->t, s->dtype, 1, y_cols, 0, false) : ebb_view_none();
    a->add = s->add == ADD_NONE ? ebb_view_none()
             : s->add == ADD_Y  ? a->y
                                : matrix(&w->t, s->y_dtype, y_rows, y_cols, s->pad * 2, !tn);
    a->scratch = ebb_view_none();
    int64_t bytes = -1;
    assert_int_equal(ebb_matmul_scratch(w->t.env.matmul, a, &bytes), EBB_OK);
    assert_true(bytes >= 0);
    a->scratch = op_test_tensor(&w->t, EBB_U8, 1, bytes, bytes);
    w->m = tn ? s->out : s->live;
    w->n = y_cols;
    w->k = tn ? s->live : a_cols;
    w->before = op_test_doubles(&w->t, &a->y);
}

static void world_end(struct world *w)
{
    free(w->before);
    ebb_matmul_lib_free(w->t.env.matmul);
    op_test_end(&w->t);
}

/* What y[i, j] must become. *size: the sum of the terms' sizes, which the rounding of fp32 sums
 * goes by. */
static double exact(const struct world *w, int64_t i, int64_t j, double *size)
{
    const struct ebb_matmul *a = &w->args;
    const struct op_test *t = &w->t;
    double sum = 0, terms = 0;
    for (int64_t k = 0; k < w->k; k++) {
        double left =
            a->form == EBB_MATMUL_TN ? op_test_get(t, &a->a, k, i) : op_test_get(t, &a->a, i, k);
        double right =
            a->form == EBB_MATMUL_NT ? op_test_get(t, &a->b, j, k) : op_test_get(t, &a->b, k, j);
        sum += left * right;
        terms += fabs(left * right);
    }
    double before = w->before[i * a->y.cols + j];
    sum *= (double)a->alpha;
    if (a->bias.tensor >= 0) sum += op_test_get(t, &a->bias, 0, j);
    if (a->add.tensor >= 0)
        sum += a->add.tensor == a->y.tensor ? before : op_test_get(t, &a->add, i, j);
    if (a->accumulate) sum += before;
    *size = terms * fabs((double)a->alpha) + 3;
    return sum;
}

static void check(const struct world *w)
{
    for (int64_t i = 0; i < w->args.y.rows; i++) {
        for (int64_t j = 0; j < w->n; j++) {
            double size;
            if (i >= w->m) {
                op_test_close(&w->t, &w->args.y, i, j, w->before[i * w->n + j], 0, 0);
                continue;
            }
            double want = exact(w, i, j, &size);
            op_test_close(&w->t, &w->args.y, i, j, want, 0, size * 3e-7);
        }
    }
}

static void run_and_check(const struct setup *s, bool force_fp32)
{
    struct world w;
    world_start(&w, s, 2, force_fp32);
    if (ebb_matmul_cpu(&w.t.env, &w.args) != EBB_OK) fail_msg("%s", ebb_error_text(w.t.env.ctx));
    check(&w);
    world_end(&w);
}

/* ---- cases ---- */

static const struct {
    enum ebb_dtype dtype, y;
} dtypes[] = {{EBB_F32, EBB_F32}, {EBB_BF16, EBB_BF16}, {EBB_BF16, EBB_F32}};

static void all_forms_and_terms(bool force_fp32)
{
    for (int form = EBB_MATMUL_NT; form <= EBB_MATMUL_TN; form++) {
        for (int dtype = force_fp32; dtype < 3; dtype++) {
            for (int term = 0; term < 24; term++) {
                if ((term & 2) && term >= 8) continue;
                struct setup s = {.form = form,
                                  .tokens = 37,
                                  .out = 19,
                                  .in = 33,
                                  .dtype = dtypes[dtype].dtype,
                                  .y_dtype = dtypes[dtype].y,
                                  .bias = term & 1,
                                  .accumulate = term & 2,
                                  .add = (enum add_kind)(term / 8),
                                  .alpha = term & 4 ? 0.37f : 1.0f,
                                  .pad = term % 3 * 8,
                                  .live = 37};
                run_and_check(&s, force_fp32);
            }
        }
    }
}

static void every_form_dtype_and_term_agrees_with_double_precision(void **state)
{
    (void)state;
    all_forms_and_terms(false);
}

static void bf16_through_fp32_agrees_with_double_precision(void **state)
{
    (void)state;
    all_forms_and_terms(true);
}

static void sizes_of_real_layers_agree_with_double_precision(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 64, 64}, {128, 200, 100}, {65, 1, 70},
                                       {70, 33, 1}, {130, 96, 160},  {1, 1, 1}};
    for (int i = 0; i < 6; i++) {
        for (int form = EBB_MATMUL_NT; form <= EBB_MATMUL_TN; form++) {
            for (int dtype = 0; dtype < 3; dtype++) {
                struct setup s = {.form = form,
                                  .tokens = sizes[i][0],
                                  .out = sizes[i][1],
                                  .in = sizes[i][2],
                                  .dtype = dtypes[dtype].dtype,
                                  .y_dtype = dtypes[dtype].y,
                                  .accumulate = form == EBB_MATMUL_TN,
                                  .alpha = 1,
                                  .pad = 16,
                                  .live = sizes[i][0]};
                run_and_check(&s, false);
            }
        }
    }
}

static void fewer_live_rows_need_no_more_scratch_and_leave_the_rest(void **state)
{
    (void)state;
    for (int form = EBB_MATMUL_NT; form <= EBB_MATMUL_TN; form++) {
        for (int dtype = 0; dtype < 6; dtype++) {
            for (int64_t live = 0; live <= 90; live += live < 4 ? 1 : 29) {
                struct setup s = {.form = form,
                                  .tokens = 90,
                                  .out = 40,
                                  .in = 24,
                                  .dtype = dtypes[dtype % 3].dtype,
                                  .y_dtype = dtypes[dtype % 3].y,
                                  .accumulate = dtype >= 3,
                                  .alpha = 1,
                                  .pad = 3,
                                  .live = live};
                run_and_check(&s, false);
                if (s.dtype == EBB_BF16) run_and_check(&s, true);
            }
        }
    }
}

/* No product that training runs may fall to the library's reference code. */
static void kernels_are_fast_ones(void **state)
{
    (void)state;
    for (int term = 0; term < 24; term++) {
        if ((term & 2) && term >= 8) continue;
        if ((term & 5) == 5 && (term & 2 || term >= 8))
            continue; /* factor, bias and a sum at once: not needed */
        for (int form = EBB_MATMUL_NT; form <= EBB_MATMUL_TN; form++) {
            for (int dtype = 0; dtype < 3; dtype++) {
                struct setup s = {.form = form,
                                  .tokens = 64,
                                  .out = 48,
                                  .in = 32,
                                  .dtype = dtypes[dtype].dtype,
                                  .y_dtype = dtypes[dtype].y,
                                  .bias = term & 1,
                                  .accumulate = term & 2,
                                  .add = (enum add_kind)(term / 8),
                                  .alpha = term & 4 ? 0.37f : 1.0f,
                                  .pad = term % 3 * 8,
                                  .live = 64};
                struct world w;
                world_start(&w, &s, 2, false);
                const char *kernel = ebb_matmul_kernel(&w.t.env, &w.args);
                if (strncmp(kernel, "ref", 3) == 0) {
                    fail_msg("form %d, dtype %d, term %d: '%s'", form, dtype, term, kernel);
                }
                world_end(&w);
            }
        }
    }
}

static void rows_are_computed_in_chunks_without_a_trace(void **state)
{
    (void)state;
    for (int form = EBB_MATMUL_NT; form <= EBB_MATMUL_NN; form++) {
        struct setup s = {.form = form,
                          .tokens = 1100,
                          .out = 12,
                          .in = 16,
                          .dtype = EBB_BF16,
                          .y_dtype = EBB_BF16,
                          .bias = true,
                          .add = ADD_OTHER,
                          .alpha = 1,
                          .pad = 16,
                          .live = 1090};
        run_and_check(&s, false);
    }
}

/* Sizes at which the library's own cutting into blocks changes, rows with and without a gap. */
static void planned_scratch_is_enough_for_every_number_of_rows(void **state)
{
    (void)state;
    for (int form = EBB_MATMUL_NT; form <= EBB_MATMUL_TN; form++) {
        for (int dtype = 0; dtype < 6; dtype++) {
            struct setup s = {.form = form,
                              .tokens = 1100,
                              .out = 96,
                              .in = 1536,
                              .dtype = dtypes[dtype % 3].dtype,
                              .y_dtype = dtypes[dtype % 3].y,
                              .accumulate = dtype >= 3,
                              .alpha = 1};
            struct world w;
            world_start(&w, &s, 2, false);
            struct ebb_matmul fewer = w.args;
            for (int64_t rows = 1; rows <= 1100; rows += 1 + rows % 5) {
                int64_t bytes;
                fewer.a.rows = rows;
                if (form == EBB_MATMUL_TN) fewer.b.rows = rows;
                if (form != EBB_MATMUL_TN) fewer.y.rows = rows;
                assert_int_equal(ebb_matmul_scratch_now(w.t.env.matmul, &fewer, &bytes), EBB_OK);
                assert_true(bytes <= w.args.scratch.cols);
            }
            world_end(&w);
        }
    }
}

static void a_sum_over_no_rows_is_zero_or_leaves_y(void **state)
{
    (void)state;
    struct setup s = {.form = EBB_MATMUL_TN,
                      .tokens = 8,
                      .out = 5,
                      .in = 6,
                      .dtype = EBB_BF16,
                      .y_dtype = EBB_F32,
                      .alpha = 1};
    struct world w;
    world_start(&w, &s, 2, false);
    assert_int_equal(ebb_matmul_cpu(&w.t.env, &w.args), EBB_OK);
    for (int64_t i = 0; i < 5; i++) {
        for (int64_t j = 0; j < 6; j++) assert_true(op_test_get(&w.t, &w.args.y, i, j) == 0);
    }
    world_end(&w);
    s.accumulate = true;
    world_start(&w, &s, 2, false);
    assert_int_equal(ebb_matmul_cpu(&w.t.env, &w.args), EBB_OK);
    check(&w);
    world_end(&w);
}

/* A bf16 product, bias, add and y whose exact sum lies just above the middle between two bf16
 * numbers: any rounding in between would lose what decides. */
static void all_terms_are_added_before_the_one_rounding(void **state)
{
    (void)state;
    for (int kind = ADD_OTHER; kind <= ADD_Y; kind++) {
        for (int force = 0; force < 2; force++) {
            struct setup s = {.form = EBB_MATMUL_NT,
                              .tokens = 16,
                              .out = 32,
                              .in = 16,
                              .dtype = EBB_BF16,
                              .y_dtype = EBB_BF16,
                              .bias = true,
                              .add = (enum add_kind)kind,
                              .alpha = 1,
                              .live = 16};
            struct world w;
            world_start(&w, &s, 2, force);
            op_test_fill(&w.t, &w.args.a, 0, 0);
            op_test_fill(&w.t, &w.args.b, 0, 0);
            for (int64_t i = 0; i < 16; i++) op_test_set(&w.t, &w.args.a, i, 3, 1);
            /* 256 + 0.75 + 0.375 = 257.125; neighbours are 256 and 258. */
            for (int64_t j = 0; j < 32; j++) {
                op_test_set(&w.t, &w.args.b, j, 3, 0.75);
                op_test_set(&w.t, &w.args.bias, 0, j, 0.375);
                for (int64_t i = 0; i < 16; i++) op_test_set(&w.t, &w.args.add, i, j, 256);
            }
            assert_int_equal(ebb_matmul_cpu(&w.t.env, &w.args), EBB_OK);
            for (int64_t i = 0; i < 16; i++) {
                for (int64_t j = 0; j < 32; j++)
                    assert_true(op_test_get(&w.t, &w.args.y, i, j) == 258);
            }
            world_end(&w);
        }
    }
}

static void the_same_product_gives_the_same_bits(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        for (int form = EBB_MATMUL_NT; form <= EBB_MATMUL_TN; form++) {
            for (int dtype = 0; dtype < 3; dtype++) {
                struct setup s = {.form = form,
                                  .tokens = 200,
                                  .out = 96,
                                  .in = 130,
                                  .dtype = dtypes[dtype].dtype,
                                  .y_dtype = dtypes[dtype].y,
                                  .alpha = 1,
                                  .pad = 16,
                                  .live = 200};
                struct world w;
                world_start(&w, &s, threads, false);
                assert_int_equal(ebb_matmul_cpu(&w.t.env, &w.args), EBB_OK);
                void *first = op_test_copy(&w.t, &w.args.y);
                memset(w.t.base[w.args.scratch.tensor], 0x7f, (size_t)w.args.scratch.cols);
                for (int again = 0; again < 4; again++) {
                    assert_int_equal(ebb_matmul_cpu(&w.t.env, &w.args), EBB_OK);
                    assert_true(op_test_same(&w.t, &w.args.y, first));
                }
                free(first);
                world_end(&w);
            }
        }
    }
}

/* More shapes than the library keeps: each still gives its own result. */
static void products_are_compiled_again_after_they_were_dropped(void **state)
{
    (void)state;
    struct setup s = {.form = EBB_MATMUL_NT,
                      .tokens = 600,
                      .out = 3,
                      .in = 5,
                      .dtype = EBB_F32,
                      .y_dtype = EBB_F32,
                      .alpha = 1,
                      .live = 600};
    struct world w;
    world_start(&w, &s, 2, false);
    int64_t peak = 0;
    for (int round = 0; round < 2; round++) {
        for (int64_t live = 1; live <= 600; live++) {
            w.t.step.tokens = live;
            assert_int_equal(ebb_matmul_cpu(&w.t.env, &w.args), EBB_OK);
        }
        if (round == 0) peak = ebb_mem_bytes_now(w.t.env.ctx);
        assert_true(ebb_mem_bytes_now(w.t.env.ctx) == peak);
    }
    check(&w);
    world_end(&w);
}

static void assert_fails(struct world *w, const char *text)
{
    int64_t bytes;
    assert_int_equal(ebb_matmul_cpu(&w->t.env, &w->args), EBB_FAILED);
    if (!strstr(ebb_error_text(w->t.env.ctx), text))
        fail_msg("'%s' has no '%s'", ebb_error_text(w->t.env.ctx), text);
    ebb_error_clear(w->t.env.ctx);
    (void)ebb_matmul_scratch(w->t.env.matmul, &w->args, &bytes);
    ebb_error_clear(w->t.env.ctx);
}

static void bad_arguments_are_named(void **state)
{
    (void)state;
    struct setup s = {.form = EBB_MATMUL_NT,
                      .tokens = 64,
                      .out = 40,
                      .in = 24,
                      .dtype = EBB_BF16,
                      .y_dtype = EBB_BF16,
                      .alpha = 1,
                      .live = 64};
    struct world w;
    world_start(&w, &s, 2, false);
    const struct ebb_matmul good = w.args;
    w.args.b.cols = 23;
    assert_fails(
        &w,
        "matmul NT: the inner sizes of a and b differ (a [64, 24] bfloat16, b [40, 23] bfloat16");
    w.args = good;
    w.args.y.rows = 63;
    assert_fails(&w, "y's size is not that of the product");
    w.args = good;
    w.args.b.dtype = EBB_F32;
    assert_fails(&w, "a and b differ in dtype");
    w.args = good;
    w.args.a.dtype = w.args.b.dtype = EBB_F16;
    assert_fails(&w, "a is neither fp32 nor bf16");
    w.args = good;
    w.args.bias = w.args.b;
    assert_fails(&w, "bias is not [1, N]");
    w.args = good;
    w.args.add = w.args.a;
    assert_fails(&w, "add does not have y's size");
    w.args.add = w.args.y;
    w.args.accumulate = 1;
    assert_fails(&w, "add and accumulate exclude each other");
    w.args = good;
    w.args.y.extent = EBB_EXTENT_FIXED;
    w.t.step.tokens = 5;
    assert_fails(&w, "5 live rows of a, 64 of y");
    w.args = good;
    w.t.step.tokens = 64;
    w.args.scratch.cols = 100;
    ebb_matmul_lib_force_fp32(w.t.env.matmul);
    assert_fails(&w, "bytes of scratch, 100 are planned");
    w.args = good;
    w.t.env.threads = 1;
    assert_fails(&w, "run with 1 threads, planned for 2");
    world_end(&w);
}

static void the_caller_s_team_size_is_given_back(void **state)
{
    (void)state;
    struct setup s = {.form = EBB_MATMUL_NT,
                      .tokens = 8,
                      .out = 8,
                      .in = 8,
                      .dtype = EBB_F32,
                      .y_dtype = EBB_F32,
                      .alpha = 1,
                      .live = 8};
    struct world w;
    omp_set_num_threads(3);
    world_start(&w, &s, 2, false);
    assert_int_equal(ebb_matmul_cpu(&w.t.env, &w.args), EBB_OK);
    assert_int_equal(omp_get_max_threads(), 3);
    assert_non_null(strstr(ebb_matmul_lib_version(w.t.env.matmul), "oneDNN "));
    assert_non_null(strstr(ebb_matmul_lib_version(w.t.env.matmul), "2 threads"));
    world_end(&w);
}

static void memory_that_runs_out_is_reported(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 2; nth++) {
        struct ebb_ctx *ctx = ebb_ctx_create();
        struct ebb_matmul_lib *lib = NULL;
        ebb_ctx_set_log(ctx, op_test_quiet, NULL);
        ebb_mem_fail_nth(ctx, nth, false);
        assert_int_equal(ebb_matmul_lib_create(ctx, 2, &lib), EBB_NO_MEMORY);
        assert_null(lib);
        assert_int_equal(ebb_mem_bytes_now(ctx), 0);
        ebb_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_dtype_and_term_agrees_with_double_precision),
        cmocka_unit_test(bf16_through_fp32_agrees_with_double_precision),
        cmocka_unit_test(sizes_of_real_layers_agree_with_double_precision),
        cmocka_unit_test(fewer_live_rows_need_no_more_scratch_and_leave_the_rest),
        cmocka_unit_test(kernels_are_fast_ones),
        cmocka_unit_test(rows_are_computed_in_chunks_without_a_trace),
        cmocka_unit_test(planned_scratch_is_enough_for_every_number_of_rows),
        cmocka_unit_test(a_sum_over_no_rows_is_zero_or_leaves_y),
        cmocka_unit_test(all_terms_are_added_before_the_one_rounding),
        cmocka_unit_test(the_same_product_gives_the_same_bits),
        cmocka_unit_test(products_are_compiled_again_after_they_were_dropped),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(the_caller_s_team_size_is_given_back),
        cmocka_unit_test(memory_that_runs_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
