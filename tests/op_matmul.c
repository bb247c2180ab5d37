/* Matrix products against double precision: forms, terms, dtypes, strides, live rows.
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
    const struct ebb_op_target target = {.backend = w->t.target.backend, .threads = threads};
    if (ebb_matmul_lib_create(w->t.env.ctx, &target, &w->t.env.libs.matmul) != EBB_OK) {
        print_message("%s\n", ebb_error_text(w->t.env.ctx));
        exit(77);
    }
    if (force_fp32) ebb_matmul_lib_force_fp32(w->t.env.libs.matmul);
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
    assert_int_equal(ebb_matmul_scratch(w->t.env.libs.matmul, a, &bytes), EBB_OK);
    assert_true(bytes >= 0);
    a->scratch = op_test_workspace(&w->t, bytes);
    w->m = tn ? s->out : s->live;
    w->n = y_cols;
    w->k = tn ? s->live : a_cols;
    w->before = op_test_doubles(&w->t, &a->y);
}

static void world_end(struct world *w)
{
    free(w->before);
    ebb_matmul_lib_free(w->t.env.libs.matmul);
    op_test_end(&w->t);
}

/* What y[i, j] must become. *size: the sum of the terms' sizes, which the rounding of fp32 sums
 * goes by. *largest: of the product and what it is on the way to y. */
static double exact(const struct world *w, int64_t i, int64_t j, double *size, double *largest)
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
    double before = w->before[i * a->y.cols + j], bias = 0, add = 0;
    sum *= (double)a->alpha;
    if (a->bias.tensor >= 0) bias = op_test_get(t, &a->bias, 0, j);
    if (a->add.tensor >= 0)
        add = a->add.tensor == a->y.tensor ? before : op_test_get(t, &a->add, i, j);
    if (a->accumulate) add = before;
    *size = terms * fabs((double)a->alpha) + 3;
    *largest =
        fmax(fmax(fabs(sum), fabs(sum + bias + add)), fmax(fabs(sum + bias), fabs(sum + add)));
    return sum + bias + add;
}

/* Does the backend promise one rounding? op/matmul.h */
static bool rounds_once(const struct ebb_matmul *a)
{
    bool terms = a->bias.tensor >= 0 || a->add.tensor >= 0 || a->accumulate;
    return !op_test_on_gpu() || a->y.dtype != EBB_BF16 || !terms;
}

static void check(const struct world *w)
{
    /* A GPU's tensor cores cut off what they do not add. */
    const double rounding = op_test_on_gpu() && w->args.a.dtype == EBB_BF16 ? 6e-7 : 3e-7;
    for (int64_t i = 0; i < w->args.y.rows; i++) {
        for (int64_t j = 0; j < w->n; j++) {
            double size, largest;
            if (i >= w->m) {
                op_test_close(&w->t, &w->args.y, i, j, w->before[i * w->n + j], 0, 0);
                continue;
            }
            double want = exact(w, i, j, &size, &largest), allowed = size * rounding;
            if (!rounds_once(&w->args)) allowed += op_test_rounding(EBB_BF16, largest);
            op_test_close(&w->t, &w->args.y, i, j, want, 0, allowed);
        }
    }
}

static void run_and_check(const struct setup *s, bool force_fp32)
{
    struct world w;
    world_start(&w, s, 2, force_fp32);
    if (op_test_run(&w.t, EBB_OP_matmul, &w.args) != EBB_OK)
        fail_msg("%s", ebb_error_text(w.t.env.ctx));
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
                /* cuBLASLt has no bf16 bias for an fp32 result. */
                if (op_test_on_gpu() && dtype == 2 && (term & 1)) continue;
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
    op_test_cpu_only("every GPU that runs this has bf16 products");
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

/* Sizes that a GPU has ways of its own for: a thin side, a sum over a vocabulary. A pad of 3 has
 * them go the usual way. */
static void thin_and_long_products_agree_with_double_precision(void **state)
{
    (void)state;
    op_test_gpu_only("the CPU has one way for all");
    static const struct {
        int form;
        int64_t tokens, out, in, live;
        int ways;
    } sizes[] = {
        {EBB_MATMUL_NT, 100, 16, 904, 100, 8},   {EBB_MATMUL_NT, 33, 48, 1504, 31, 8},
        {EBB_MATMUL_NT, 5, 8, 24, 5, 8},         {EBB_MATMUL_NT, 130, 64, 96, 130, 8},
        {EBB_MATMUL_NT, 70, 12, 4880, 70, 8},    {EBB_MATMUL_NT, 4130, 24, 40, 4121, 8},
        {EBB_MATMUL_TN, 600, 16, 904, 600, 8},   {EBB_MATMUL_TN, 600, 904, 16, 523, 8},
        {EBB_MATMUL_TN, 1100, 8, 2056, 1024, 4}, {EBB_MATMUL_TN, 70, 64, 64, 69, 8},
        {EBB_MATMUL_TN, 1056, 8, 8200, 1056, 2}, {EBB_MATMUL_TN, 300, 136, 24, 1, 8},
        {EBB_MATMUL_TN, 300, 136, 48, 300, 8},   {EBB_MATMUL_TN, 17000, 8, 72, 17000, 4},
        {EBB_MATMUL_NN, 5, 65736, 72, 2, 8},     {EBB_MATMUL_NN, 6, 65536, 72, 5, 4},
        {EBB_MATMUL_NT, 5, 80, 65736, 4, 4},     {EBB_MATMUL_NN, 100, 904, 16, 100, 8},
        {EBB_MATMUL_NN, 65, 1504, 48, 63, 8},    {EBB_MATMUL_NN, 7, 24, 8, 7, 8},
        {EBB_MATMUL_NN, 65, 3600, 24, 65, 8},    {EBB_MATMUL_NN, 40, 37896, 32, 1, 4},
        {EBB_MATMUL_NN, 4101, 72, 16, 4099, 4},  {EBB_MATMUL_NN, 2100, 264, 40, 2049, 2},
        {EBB_MATMUL_NN, 2063, 72, 64, 2061, 4},  {EBB_MATMUL_NN, 33, 8, 56, 33, 8},
        {EBB_MATMUL_NN, 70, 248, 12, 70, 8},     {EBB_MATMUL_NN, 64, 4104, 64, 64, 4},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int way = 0; way < sizes[i].ways; way++) {
            struct setup s = {.form = sizes[i].form,
                              .tokens = sizes[i].tokens,
                              .out = sizes[i].out,
                              .in = sizes[i].in,
                              .dtype = EBB_BF16,
                              .y_dtype = way & 1 ? EBB_F32 : EBB_BF16,
                              .accumulate = sizes[i].form == EBB_MATMUL_TN && (way & 2),
                              .alpha = way & 2 ? 1 : 0.5f,
                              .pad = way & 4 ? 3 : 16,
                              .live = sizes[i].live};
            run_and_check(&s, false);
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
                if (s.dtype == EBB_BF16 && !op_test_on_gpu()) run_and_check(&s, true);
            }
        }
    }
}

/* No product that training runs may fall to the library's reference code. */
static void kernels_are_fast_ones(void **state)
{
    (void)state;
    op_test_cpu_only("the kernels are oneDNN's");
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
    op_test_cpu_only("cuBLASLt's workspace has one size");
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
                assert_int_equal(ebb_matmul_scratch_now(w.t.env.libs.matmul, &fewer, &bytes),
                                 EBB_OK);
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
    assert_int_equal(op_test_run(&w.t, EBB_OP_matmul, &w.args), EBB_OK);
    for (int64_t i = 0; i < 5; i++) {
        for (int64_t j = 0; j < 6; j++) assert_true(op_test_get(&w.t, &w.args.y, i, j) == 0);
    }
    world_end(&w);
    s.accumulate = true;
    world_start(&w, &s, 2, false);
    assert_int_equal(op_test_run(&w.t, EBB_OP_matmul, &w.args), EBB_OK);
    check(&w);
    world_end(&w);
}

/* A bf16 product, bias, add and y whose exact sum lies just above the middle between two bf16
 * numbers: any rounding in between would lose what decides. */
static void all_terms_are_added_before_the_one_rounding(void **state)
{
    (void)state;
    op_test_cpu_only("cuBLASLt may round once more with several terms");
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
            assert_int_equal(op_test_run(&w.t, EBB_OP_matmul, &w.args), EBB_OK);
            for (int64_t i = 0; i < 16; i++) {
                for (int64_t j = 0; j < 32; j++)
                    assert_true(op_test_get(&w.t, &w.args.y, i, j) == 258);
            }
            world_end(&w);
        }
    }
}

static void spoil_scratch(struct world *w)
{
    void *scratch = ebb_view_data(&w->t.env, &w->args.scratch);
    int64_t bytes = w->args.scratch.cols;
    if (w->t.device == NULL)
        memset(scratch, 0x7f, (size_t)bytes);
    else
        assert_int_equal(ebb_device_fill(w->t.device, scratch, 0x7f, bytes), EBB_OK);
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
                assert_int_equal(op_test_run(&w.t, EBB_OP_matmul, &w.args), EBB_OK);
                void *first = op_test_copy(&w.t, &w.args.y);
                spoil_scratch(&w);
                for (int again = 0; again < 4; again++) {
                    assert_int_equal(op_test_run(&w.t, EBB_OP_matmul, &w.args), EBB_OK);
                    assert_true(op_test_same(&w.t, &w.args.y, first));
                }
                free(first);
                world_end(&w);
            }
        }
    }
}

/* ---- rows by themselves: what packing and batches rely on ---- */

enum {
    ROWS_MOST = 4096,
    ROWS_OUT_MOST = 4864,
    ROWS_PAD = 16, /* an adapter's columns behind a layer's */
    ROWS_ELEMENTS = ROWS_MOST * (ROWS_OUT_MOST + ROWS_PAD) /* of the largest matrix */
};

/* Blocks of the GPU's memory. a, b, the bias and what y is before the product are all cut out of
 * `data`; `whole` and `part` are where the host looks at y. */
struct rows_world {
    struct op_test t;
    void *data, *y, *scratch;
    char *whole, *part;
    void *base[3]; /* data, y, scratch */
};

static void *rows_block(struct rows_world *w, int64_t bytes, bool shared)
{
    void *block = NULL;
    assert_int_equal(ebb_device_block_create(w->t.device, bytes, shared, &block), EBB_OK);
    return block;
}

static void rows_world_start(struct rows_world *w, enum ebb_dtype dtype)
{
    const int64_t bytes = ROWS_ELEMENTS * (int64_t)sizeof(float);
    memset(w, 0, sizeof *w);
    op_test_start(&w->t);
    if (ebb_matmul_lib_create(w->t.env.ctx, &w->t.target, &w->t.env.libs.matmul) != EBB_OK) {
        print_message("%s\n", ebb_error_text(w->t.env.ctx));
        exit(77);
    }
    w->data = rows_block(w, bytes, false);
    w->y = rows_block(w, bytes, false);
    w->whole = rows_block(w, bytes, true);
    w->part = rows_block(w, bytes, true);
    for (int64_t i = 0; i < ROWS_ELEMENTS; i++) {
        float value = (float)(2 * op_test_uniform(&w->t) - 1);
        if (dtype == EBB_F32)
            ((float *)(void *)w->whole)[i] = value;
        else
            ((uint16_t *)(void *)w->whole)[i] = ebb_to_bf16(value);
    }
    assert_int_equal(ebb_device_copy(w->t.device, w->data, w->whole, bytes), EBB_OK);
    w->base[0] = w->data;
    w->base[1] = w->y;
    w->base[2] = w->scratch = rows_block(w, EBB_MATMUL_CUDA_WORKSPACE, false);
    w->t.env.base = (void *const *)w->base;
}

static void rows_world_end(struct rows_world *w)
{
    void *blocks[] = {w->data, w->y, w->scratch, w->whole, w->part};
    ebb_matmul_lib_free(w->t.env.libs.matmul);
    for (int i = 0; i < 5; i++) ebb_device_block_free(w->t.device, blocks[i]);
    op_test_end(&w->t);
}

static struct ebb_view rows_view(int tensor, enum ebb_dtype dtype, int64_t first, int64_t rows,
                                 int64_t cols, int64_t stride)
{
    struct ebb_view view = ebb_view_none();
    view.tensor = tensor;
    view.dtype = (uint8_t)dtype;
    view.offset = first * ebb_dtype_bytes(dtype);
    view.rows = rows;
    view.cols = cols;
    view.stride = stride;
    return view;
}

/* The first `rows` rows of y, with the gaps between them, into `to`. */
static void rows_run(struct rows_world *w, const struct ebb_matmul *args, int64_t rows, char *to)
{
    int64_t stride_bytes = args->y.stride * ebb_dtype_bytes((enum ebb_dtype)args->y.dtype);
    int64_t bytes = stride_bytes * ROWS_MOST;
    w->t.step.tokens = rows;
    assert_int_equal(ebb_queue_copy(w->t.device, EBB_QUEUE_COMPUTE, w->y, w->data, bytes), EBB_OK);
    if (op_test_run(&w->t, EBB_OP_matmul, args) != EBB_OK)
        fail_msg("%s", ebb_error_text(w->t.env.ctx));
    assert_int_equal(ebb_device_copy(w->t.device, to, w->y, stride_bytes * rows), EBB_OK);
}

static void rows_check(struct rows_world *w, const struct ebb_matmul *args)
{
    static const int64_t fewer[] = {1, 127, 256, 1024};
    int64_t size = ebb_dtype_bytes((enum ebb_dtype)args->y.dtype);
    int64_t stride_bytes = args->y.stride * size;
    rows_run(w, args, ROWS_MOST, w->whole);
    for (int k = 0; k < 4; k++) {
        rows_run(w, args, fewer[k], w->part);
        for (int64_t i = 0; i < fewer[k]; i++) {
            if (memcmp(w->part + i * stride_bytes, w->whole + i * stride_bytes,
                       (size_t)(args->y.cols * size)) == 0)
                continue;
            fail_msg("form %d, %s, [*, %lld] from %lld, strides %lld and %lld, bias %d, "
                     "accumulate %d: row %lld of %lld differs from that of %d",
                     args->form, ebb_dtype_name((enum ebb_dtype)args->y.dtype),
                     (long long)args->y.cols, (long long)args->a.cols, (long long)args->a.stride,
                     (long long)args->y.stride, args->bias.tensor >= 0, args->accumulate,
                     (long long)i, (long long)fewer[k], (int)ROWS_MOST);
        }
    }
}

/* pad: between the rows of a, b and y, so that each way of writing beside an adapter is there. */
static struct ebb_matmul rows_product(int form, enum ebb_dtype dtype, int64_t k, int64_t n,
                                      int64_t pad, bool bias, bool accumulate)
{
    const int64_t elsewhere = 1 << 20; /* a, b and y are cut out of the same numbers */
    const bool nt = form == EBB_MATMUL_NT;
    struct ebb_matmul args = {.form = form, .accumulate = accumulate, .alpha = 1};
    args.a = rows_view(0, dtype, elsewhere, ROWS_MOST, k, k + pad);
    args.b = nt ? rows_view(0, dtype, 2 * elsewhere, n, k, k + pad)
                : rows_view(0, dtype, 2 * elsewhere, k, n, n + pad);
    args.y = rows_view(1, dtype, 0, ROWS_MOST, n, n + pad);
    args.a.extent = args.y.extent = EBB_EXTENT_TOKENS;
    args.bias = bias ? rows_view(0, dtype, 64, 1, n, n) : ebb_view_none();
    args.add = ebb_view_none();
    args.scratch = rows_view(2, EBB_U8, 0, 1, EBB_MATMUL_CUDA_WORKSPACE, EBB_MATMUL_CUDA_WORKSPACE);
    return args;
}

static void a_rows_bits_do_not_depend_on_the_other_rows(void **state)
{
    (void)state;
    op_test_gpu_only("oneDNN may choose other kernels for other numbers of rows");
    static const int64_t sizes[][2] = {{896, 4864},  {3584, 1024}, {896, 1024},
                                       {3584, 4864}, {4864, 48},   {3592, 16}};
    for (int dtype = 0; dtype < 2; dtype++) {
        struct rows_world w;
        rows_world_start(&w, dtypes[dtype].dtype);
        for (int each = 0; each < 96; each++) { /* form, size, pad, bias, accumulate */
            const int64_t *size = sizes[each / 2 % 6];
            struct ebb_matmul args =
                rows_product(each % 2 ? EBB_MATMUL_NN : EBB_MATMUL_NT, dtypes[dtype].dtype, size[0],
                             size[1], each / 12 % 2 ? ROWS_PAD : 0, each / 24 % 2, each / 48 % 2);
            rows_check(&w, &args);
        }
        rows_world_end(&w);
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
            assert_int_equal(op_test_run(&w.t, EBB_OP_matmul, &w.args), EBB_OK);
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
    assert_int_equal(op_test_run(&w->t, EBB_OP_matmul, &w->args), EBB_FAILED);
    if (!strstr(ebb_error_text(w->t.env.ctx), text))
        fail_msg("'%s' has no '%s'", ebb_error_text(w->t.env.ctx), text);
    ebb_error_clear(w->t.env.ctx);
    (void)ebb_matmul_scratch(w->t.env.libs.matmul, &w->args, &bytes);
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
    if (!op_test_on_gpu()) { /* where scratch and threads depend on the product */
        w.args.scratch.cols = 100;
        ebb_matmul_lib_force_fp32(w.t.env.libs.matmul);
        assert_fails(&w, "bytes of scratch, 100 are planned");
        w.args = good;
        w.t.env.threads = 1;
        assert_fails(&w, "run with 1 threads, planned for 2");
    }
    world_end(&w);
}

static void the_caller_s_team_size_is_given_back(void **state)
{
    (void)state;
    op_test_cpu_only("there is no team of threads");
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
    assert_int_equal(op_test_run(&w.t, EBB_OP_matmul, &w.args), EBB_OK);
    assert_int_equal(omp_get_max_threads(), 3);
    assert_non_null(strstr(ebb_matmul_lib_version(w.t.env.libs.matmul), "oneDNN "));
    assert_non_null(strstr(ebb_matmul_lib_version(w.t.env.libs.matmul), "2 threads"));
    world_end(&w);
}

static void memory_that_runs_out_is_reported(void **state)
{
    (void)state;
    const int allocations = op_test_on_gpu() ? 1 : 2;
    for (int nth = 1; nth <= allocations; nth++) {
        struct ebb_ctx *ctx = ebb_ctx_create();
        struct ebb_matmul_lib *lib = NULL;
        const struct ebb_op_target target = {
            .backend = op_test_on_gpu() ? EBB_BACKEND_CUDA : EBB_BACKEND_CPU, .threads = 2};
        ebb_ctx_set_log(ctx, op_test_quiet, NULL);
        ebb_mem_fail_nth(ctx, nth, false);
        assert_int_equal(ebb_matmul_lib_create(ctx, &target, &lib), EBB_NO_MEMORY);
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
        cmocka_unit_test(thin_and_long_products_agree_with_double_precision),
        cmocka_unit_test(fewer_live_rows_need_no_more_scratch_and_leave_the_rest),
        cmocka_unit_test(kernels_are_fast_ones),
        cmocka_unit_test(rows_are_computed_in_chunks_without_a_trace),
        cmocka_unit_test(planned_scratch_is_enough_for_every_number_of_rows),
        cmocka_unit_test(a_sum_over_no_rows_is_zero_or_leaves_y),
        cmocka_unit_test(all_terms_are_added_before_the_one_rounding),
        cmocka_unit_test(the_same_product_gives_the_same_bits),
        cmocka_unit_test(a_rows_bits_do_not_depend_on_the_other_rows),
        cmocka_unit_test(products_are_compiled_again_after_they_were_dropped),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(the_caller_s_team_size_is_given_back),
        cmocka_unit_test(memory_that_runs_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
