/* Products and attention on operands of more than 2^32 elements. Products are judged by double
 * precision; attention by the plain kernels on the same document in a small matrix, to the bit
 * where the same kernels run.
 *
 * On a GPU the whole takes some seconds and up to 90 GiB. On the CPU the same cases run small.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_large.h"

#include "op/attention.h"
#include "op/attention_cudnn_int.h"
#include "op/matmul.h"

/* ---- products ---- */

enum { WIDTH = 512, NARROW = 64, ROWS_MANY = 520, EXIT_SKIPPED = 77 };

/* A dimension of a product; the places where something stands: `at`, or all of them. */
struct axis {
    int64_t size;
    int count;
    const int64_t *at; /* NULL: all */
};

/* A matrix and what the host knows of it, [rows->count, cols->count]. */
struct operand {
    struct ebb_view view;
    struct axis rows, cols;
    double *value;
};

struct product {
    struct large l;
    struct operand a, b, y;
    struct ebb_view line; /* what goes between host and device passes through here */
    struct ebb_matmul args;
};

static int64_t place(const struct axis *axis, int k)
{
    return axis->at == NULL ? k : axis->at[k];
}

static struct axis all_of(int64_t size)
{
    return (struct axis){size, (int)size, NULL};
}

static struct axis picked(const struct large *l)
{
    return (struct axis){l->rows, l->picks, l->pick};
}

/* What stands in row i, into or out of the line. */
static void move_row(struct product *p, struct operand *o, const struct ebb_view *line, int64_t i,
                     bool back)
{
    if (o->cols.at == NULL) {
        large_move(&p->l, &o->view, i, 0, o->cols.size, line, 0, back);
        return;
    }
    for (int j = 0; j < o->cols.count; j++) {
        struct ebb_view one = *line;
        one.offset += j * ebb_dtype_bytes((enum ebb_dtype)one.dtype);
        large_move(&p->l, &o->view, i, place(&o->cols, j), 1, &one, 0, back);
    }
}

static struct ebb_view line_for(const struct product *p, const struct operand *o)
{
    struct ebb_view line = p->line;
    line.dtype = o->view.dtype;
    return line;
}

static void fill_operand(struct product *p, struct operand *o)
{
    struct ebb_view line = line_for(p, o);
    o->value = malloc((size_t)(o->rows.count * o->cols.count) * sizeof *o->value);
    assert_non_null(o->value);
    for (int i = 0; i < o->rows.count; i++) {
        for (int j = 0; j < o->cols.count; j++) {
            op_test_set(&p->l.t, &line, 0, j, 2 * op_test_uniform(&p->l.t) - 1);
            o->value[i * o->cols.count + j] = op_test_get(&p->l.t, &line, 0, j);
        }
        move_row(p, o, &line, place(&o->rows, i), false);
    }
}

/* Its rows lie as the shape says, but for long ones (MANY) and small matrices. */
static struct operand make_operand(struct product *p, enum ebb_dtype dtype, struct axis rows,
                                   struct axis cols)
{
    struct operand o = {.rows = rows, .cols = cols};
    const bool large = rows.at != NULL || cols.at != NULL, wide = large && p->l.wide;
    int64_t stride =
        wide ? large_stride(&p->l, cols.size) : (cols.size + LARGE_PAD) / LARGE_PAD * LARGE_PAD;
    o.view = large_tensor(&p->l, dtype, rows.size, cols.size, stride);
    fill_operand(p, &o);
    return o;
}

static void start_product(struct product *p, const struct large_shape *shape, int64_t cols,
                          int64_t bytes)
{
    memset(p, 0, sizeof *p);
    large_start(&p->l, shape, cols, bytes);
    struct op_test *t = &p->l.t;
    if (ebb_matmul_lib_create(t->env.ctx, &t->target, &t->env.libs.matmul) != EBB_OK) {
        print_message("%s\n", ebb_error_text(t->env.ctx));
        exit(EXIT_SKIPPED);
    }
    p->line = op_test_tensor(t, EBB_F32, 1, WIDTH * 2, WIDTH * 2);
}

/* y(i, j) as it must be; `inner`: the number of terms. */
static double exact(const struct product *p, int i, int j, int inner)
{
    const struct operand *a = &p->a, *b = &p->b;
    const bool tn = p->args.form == EBB_MATMUL_TN, nt = p->args.form == EBB_MATMUL_NT;
    double sum = p->args.accumulate ? p->y.value[i * p->y.cols.count + j] : 0;
    for (int k = 0; k < inner; k++)
        sum += a->value[tn ? k * a->cols.count + i : i * a->cols.count + k] *
               b->value[nt ? j * b->cols.count + k : k * b->cols.count + j];
    return sum;
}

static void check_product(struct product *p)
{
    struct operand *y = &p->y;
    const int inner = p->args.form == EBB_MATMUL_TN ? p->a.rows.count : p->a.cols.count;
    struct ebb_view line = line_for(p, y);
    for (int i = 0; i < y->rows.count; i++) {
        move_row(p, y, &line, place(&y->rows, i), true);
        for (int j = 0; j < y->cols.count; j++)
            op_test_close(&p->l.t, &line, 0, j, exact(p, i, j, inner), 1e-5, 1e-4);
    }
}

static void run_product(struct product *p, int form, int accumulate)
{
    struct op_test *t = &p->l.t;
    int64_t bytes = 0;
    p->args = (struct ebb_matmul){.a = p->a.view,
                                  .b = p->b.view,
                                  .bias = ebb_view_none(),
                                  .add = ebb_view_none(),
                                  .y = p->y.view,
                                  .scratch = ebb_view_none(),
                                  .form = form,
                                  .accumulate = accumulate,
                                  .alpha = 1};
    assert_int_equal(ebb_matmul_scratch(t->env.libs.matmul, &p->args, &bytes), EBB_OK);
    p->args.scratch = op_test_workspace(t, bytes);
    large_run(&p->l, EBB_OP_matmul, &p->args);
    check_product(p);
    free(p->a.value);
    free(p->b.value);
    free(p->y.value);
    ebb_matmul_lib_free(t->env.libs.matmul);
    op_test_end(t);
}

/* Rows of few columns, each for a token: a layer's output. */
static void product_nt_takes_far_rows(void **state)
{
    struct product p;
    start_product(&p, *state, WIDTH, 8);
    p.a = make_operand(&p, p.l.dtype, picked(&p.l), all_of(WIDTH));
    p.b = make_operand(&p, p.l.dtype, all_of(NARROW), all_of(WIDTH));
    p.y = make_operand(&p, p.l.dtype, picked(&p.l), all_of(NARROW));
    run_product(&p, EBB_MATMUL_NT, 0);
}

static void product_nn_takes_far_rows(void **state)
{
    struct product p;
    start_product(&p, *state, WIDTH, 10);
    p.a = make_operand(&p, p.l.dtype, picked(&p.l), all_of(WIDTH));
    p.b = make_operand(&p, p.l.dtype, all_of(WIDTH), all_of(NARROW));
    p.y = make_operand(&p, p.l.dtype, picked(&p.l), all_of(NARROW));
    run_product(&p, EBB_MATMUL_NN, 0);
}

/* The few rows of a matrix with very many columns: logits. On a GPU, more than 2^32 of them. */
static struct axis long_rows(const struct product *p)
{
    static const int64_t at[] = {0, 1, ROWS_MANY / 2, ROWS_MANY - 2, ROWS_MANY - 1};
    if (p->l.wide || !p->l.huge) return all_of(LARGE_WIDE_ROWS);
    return (struct axis){ROWS_MANY, (int)(sizeof at / sizeof at[0]), at};
}

static void product_nt_makes_many_columns(void **state)
{
    struct product p;
    start_product(&p, *state, WIDTH, 8);
    p.a = make_operand(&p, p.l.dtype, long_rows(&p), all_of(WIDTH));
    p.b = make_operand(&p, p.l.dtype, picked(&p.l), all_of(WIDTH));
    p.y = make_operand(&p, p.l.dtype, long_rows(&p), picked(&p.l));
    run_product(&p, EBB_MATMUL_NT, 0);
}

/* The gradient of what the logits came from: a sum over the vocabulary. */
static void product_nn_adds_many_columns(void **state)
{
    struct product p;
    start_product(&p, *state, WIDTH, 8);
    p.a = make_operand(&p, p.l.dtype, long_rows(&p), picked(&p.l));
    p.b = make_operand(&p, p.l.dtype, picked(&p.l), all_of(NARROW));
    p.y = make_operand(&p, p.l.dtype, long_rows(&p), all_of(NARROW));
    run_product(&p, EBB_MATMUL_NN, 0);
}

/* The gradient of a weight: a sum over very many tokens. */
static void product_tn_adds_far_rows(void **state)
{
    struct product p;
    start_product(&p, *state, WIDTH, 9);
    p.a = make_operand(&p, p.l.dtype, picked(&p.l), all_of(NARROW));
    p.b = make_operand(&p, p.l.dtype, picked(&p.l), all_of(WIDTH));
    p.y = make_operand(&p, EBB_F32, all_of(NARROW), all_of(WIDTH));
    run_product(&p, EBB_MATMUL_TN, 1);
}

/* The gradient of a large vocabulary's weight. */
static void product_tn_adds_to_far_rows(void **state)
{
    struct product p;
    start_product(&p, *state, WIDTH, 9);
    p.a = make_operand(&p, p.l.dtype, all_of(24), picked(&p.l));
    p.b = make_operand(&p, p.l.dtype, all_of(24), all_of(WIDTH));
    p.y = make_operand(&p, EBB_F32, picked(&p.l), all_of(WIDTH));
    run_product(&p, EBB_MATMUL_TN, 1);
}

/* ---- attention ---- */

enum {
    HEADS = 8,
    KV_HEADS = 2,
    HEAD = 64,
    Q_COLS = HEADS * HEAD,
    K_COLS = KV_HEADS * HEAD,
    QKV_COLS = Q_COLS + 2 * K_COLS
};

static const struct ebb_attention_shape heads = {
    .heads = HEADS, .kv_heads = KV_HEADS, .qk_dim = HEAD, .v_dim = HEAD, .scale = 0.125f};

/* Operands of attention, forward and backward. */
struct tokens {
    int64_t rows, docs, longest;
    int32_t *first; /* [docs + 1] where they start */
    struct ebb_view qkv, o, lse, d_o, d_qkv, starts;
};

enum { PICKED_DOCS = 4 };

/* Of `all`, the documents `pick` are not zeros; `few` are those and nothing else. */
struct attention {
    struct large l;
    struct tokens all, few;
    int64_t pick[PICKED_DOCS];
    struct ebb_attention_lib *lib; /* NULL: plain kernels */
};

/* Adds a document of `rows` tokens. */
static void add_document(struct tokens *k, int64_t rows)
{
    k->first = realloc(k->first, (size_t)(k->docs + 2) * sizeof *k->first);
    assert_non_null(k->first);
    k->first[k->docs++] = (int32_t)k->rows;
    k->rows += rows;
    k->first[k->docs] = (int32_t)k->rows;
    if (rows > k->longest) k->longest = rows;
}

static void put_starts(struct large *l, struct tokens *k)
{
    k->starts = op_test_tensor(&l->t, EBB_I32, 1, k->docs + 1, k->docs + 1);
    memcpy(op_test_at(&l->t, &k->starts, 0, 0), k->first, (size_t)(k->docs + 1) * sizeof *k->first);
}

/* The first and the last document and those about the ends of 31 and 32 bits. */
static void pick_documents(struct attention *w, int64_t each)
{
    const int64_t stride = w->all.qkv.stride;
    const int64_t rows[PICKED_DOCS] = {0, (INT64_C(1) << 31) / stride, (INT64_C(1) << 32) / stride,
                                       w->all.rows - 1};
    for (int i = 0; i < PICKED_DOCS; i++) {
        int64_t doc = rows[i] / each;
        if (doc >= w->all.docs || (w->few.docs > 0 && w->pick[w->few.docs - 1] == doc)) continue;
        w->pick[w->few.docs] = doc;
        add_document(&w->few, w->all.first[doc + 1] - w->all.first[doc]);
    }
}

/* Documents of `each` tokens, the last of what is left. */
static void start_attention(struct attention *w, const struct large_shape *shape, int64_t each)
{
    memset(w, 0, sizeof *w);
    struct large *l = &w->l;
    struct tokens *all = &w->all, *few = &w->few;
    large_start(l, shape, QKV_COLS, shape->dtype == EBB_F32 ? 20 : 12);
    if (!l->huge && each > 20) each = l->wide ? l->rows : 20;
    while (all->rows < l->rows)
        add_document(all, all->rows + each < l->rows ? each : l->rows - all->rows);
    all->qkv = large_matrix(l, l->dtype, QKV_COLS);
    all->o = large_matrix(l, l->dtype, Q_COLS);
    all->lse = large_matrix(l, EBB_F32, HEADS);
    all->d_o = large_matrix(l, l->dtype, Q_COLS);
    all->d_qkv = large_matrix(l, l->dtype, QKV_COLS);
    put_starts(l, all);
    pick_documents(w, each);
    few->qkv = large_random(l, l->dtype, few->rows, QKV_COLS, -2, 2);
    few->o = large_random(l, l->dtype, few->rows, Q_COLS, 3, 4);
    few->lse = large_random(l, EBB_F32, few->rows, HEADS, 3, 4);
    few->d_o = large_random(l, l->dtype, few->rows, Q_COLS, -1, 1);
    few->d_qkv = large_random(l, l->dtype, few->rows, QKV_COLS, 3, 4);
    put_starts(l, few);
}

static void end_attention(struct attention *w)
{
    free(w->all.first);
    free(w->few.first);
    ebb_attention_lib_free(w->lib);
    op_test_end(&w->l.t);
}

/* The row of `all` for the row i of the picked document number n. */
static int64_t row_of(const struct attention *w, int64_t n, int64_t i)
{
    return w->all.first[w->pick[n]] + i - w->few.first[n];
}

static void fill_documents(struct attention *w)
{
    for (int64_t n = 0; n < w->few.docs; n++) {
        for (int64_t i = w->few.first[n]; i < w->few.first[n + 1]; i++) {
            int64_t row = row_of(w, n, i);
            large_move(&w->l, &w->all.qkv, row, 0, QKV_COLS, &w->few.qkv, i, false);
            large_move(&w->l, &w->all.d_o, row, 0, Q_COLS, &w->few.d_o, i, false);
        }
    }
}

static struct ebb_view scratch_for(struct large *l, enum ebb_op op, const struct tokens *k,
                                   const struct ebb_attention_way *way)
{
    struct ebb_op_target target = l->t.target;
    target.attention = *way;
    return large_scratch(l,
                         ebb_attention_scratch(&heads, l->dtype, op, k->rows, k->longest, &target));
}

static void run_attention(struct attention *w, const struct tokens *k,
                          const struct ebb_attention_way *way)
{
    struct large *l = &w->l;
    l->t.step.tokens = k->rows;
    l->t.step.docs = k->docs;
    l->t.step.longest = k->longest;
    l->t.env.doc_starts = k->first;
    l->t.env.libs.attention = way->library ? w->lib : NULL;
    struct ebb_attention_forward f = {.q = op_test_columns(&k->qkv, 0, Q_COLS),
                                      .k = op_test_columns(&k->qkv, Q_COLS, K_COLS),
                                      .v = op_test_columns(&k->qkv, Q_COLS + K_COLS, K_COLS),
                                      .doc_starts = k->starts,
                                      .o = k->o,
                                      .lse = k->lse,
                                      .scratch = scratch_for(l, EBB_OP_attention_forward, k, way),
                                      .shape = heads};
    large_run(l, EBB_OP_attention_forward, &f);
    struct ebb_attention_backward b = {.q = f.q,
                                       .k = f.k,
                                       .v = f.v,
                                       .o = f.o,
                                       .lse = f.lse,
                                       .d_o = k->d_o,
                                       .doc_starts = f.doc_starts,
                                       .dq = op_test_columns(&k->d_qkv, 0, Q_COLS),
                                       .dk = op_test_columns(&k->d_qkv, Q_COLS, K_COLS),
                                       .dv = op_test_columns(&k->d_qkv, Q_COLS + K_COLS, K_COLS),
                                       .scratch = scratch_for(l, EBB_OP_attention_backward, k, way),
                                       .shape = heads};
    large_run(l, EBB_OP_attention_backward, &b);
}

/* The documents' rows: equal to the bit, or (bound > 0) off by so much of their norm at most. */
static void check_rows(struct attention *w, const char *what, const struct ebb_view *all,
                       const struct ebb_view *few, double bound)
{
    struct large *l = &w->l;
    struct ebb_view got = large_random(l, (enum ebb_dtype)all->dtype, 1, all->cols, 0, 0);
    for (int64_t n = 0; n < w->few.docs; n++) {
        double off = 0, norm = 0;
        for (int64_t i = w->few.first[n]; i < w->few.first[n + 1]; i++) {
            if (bound == 0) large_row_is(l, all, row_of(w, n, i), few, i);
            large_move(l, all, row_of(w, n, i), 0, all->cols, &got, 0, true);
            for (int64_t j = 0; j < all->cols; j++) {
                double wanted = op_test_get(&l->t, few, i, j);
                double distance = op_test_get(&l->t, &got, 0, j) - wanted;
                off += distance * distance;
                norm += wanted * wanted;
            }
        }
        if (!(norm > 0 && sqrt(off) <= bound * sqrt(norm)))
            fail_msg("%s of document %lld: off by %g of its norm, allowed %g", what,
                     (long long)w->pick[n], sqrt(off / norm), bound);
    }
    op_test_drop_last(&l->t);
}

static void compare_attention(struct attention *w, const struct ebb_attention_way *way,
                              double bound)
{
    const struct ebb_attention_way plain = {0};
    fill_documents(w);
    run_attention(w, &w->all, way);
    run_attention(w, &w->few, &plain);
    check_rows(w, "o", &w->all.o, &w->few.o, bound);
    check_rows(w, "lse", &w->all.lse, &w->few.lse, bound);
    check_rows(w, "the gradient", &w->all.d_qkv, &w->few.d_qkv, bound);
}

/* MANY: so many short documents; WIDE: three. */
static int64_t tokens_each(const struct large_shape *shape)
{
    return shape->kind == LARGE_WIDE ? 50 : 256;
}

static void attention_finds_far_documents(void **state)
{
    struct attention w;
    const struct ebb_attention_way plain = {0};
    start_attention(&w, *state, tokens_each(*state));
    compare_attention(&w, &plain, 0);
    end_attention(&w);
}

/* cuDNN's gradients were found wrong where offsets do not fit 32 bits, so it is not asked where a
 * call's would not. */
static void check_refusal(struct attention *w)
{
    struct large *l = &w->l;
    const struct tokens *k = &w->all;
    struct ebb_attention_forward f = {.q = op_test_columns(&k->qkv, 0, Q_COLS),
                                      .k = op_test_columns(&k->qkv, Q_COLS, K_COLS),
                                      .v = op_test_columns(&k->qkv, Q_COLS + K_COLS, K_COLS),
                                      .doc_starts = k->starts,
                                      .o = k->o,
                                      .lse = k->lse,
                                      .scratch = ebb_view_none(),
                                      .shape = heads};
    l->t.step.tokens = k->rows;
    l->t.step.docs = k->docs;
    l->t.step.longest = k->longest;
    l->t.env.doc_starts = k->first;
    l->t.env.libs.attention = w->lib;
    assert_int_equal(op_test_run(&l->t, EBB_OP_attention_forward, &f), EBB_UNSUPPORTED);
    assert_non_null(strstr(ebb_error_text(l->t.env.ctx), "more than 2147483647 elements"));
    assert_non_null(strstr(ebb_error_text(l->t.env.ctx), "attn_implementation: plain"));
    ebb_error_clear(l->t.env.ctx);
}

static void run_library(const struct large_shape *shape, bool deterministic)
{
    struct attention w;
    op_test_gpu_only("cuDNN");
    start_attention(&w, shape, tokens_each(shape));
    struct ebb_op_env *env = &w.l.t.env;
    const struct ebb_attention_way way =
        ebb_attention_way(&heads, EBB_BF16, w.all.longest, deterministic, NULL, 0);
    if (ebb_attention_lib_create(env->ctx, &way, NULL, &w.lib) != EBB_OK) {
        print_message("%s\n", ebb_error_text(env->ctx));
        end_attention(&w);
        skip();
    }
    /* A call takes documents that end within EBB_CUDNN_SPAN tokens. */
    if ((w.all.rows < EBB_CUDNN_SPAN ? w.all.rows : EBB_CUDNN_SPAN) * w.all.qkv.stride > INT32_MAX)
        check_refusal(&w);
    else
        compare_attention(&w, &way, 1.2e-2); /* each may be off by 6e-3: bf16 operands and p */
    end_attention(&w);
}

static void cudnn_finds_far_documents(void **state)
{
    run_library(*state, false);
}

static void cudnn_finds_far_documents_deterministically(void **state)
{
    run_library(*state, true);
}

/* Every so many-th row and the last: off by so much of their norm at most. */
static void check_some(struct large *l, const char *what, const struct ebb_view *got,
                       const struct ebb_view *wanted, double bound)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < got->rows; i += i + 997 < got->rows || i + 1 == got->rows ? 997 : 1)
        for (int64_t j = 0; j < got->cols; j++) {
            double want = op_test_get(&l->t, wanted, i, j),
                   distance = op_test_get(&l->t, got, i, j) - want;
            off += distance * distance;
            norm += want * want;
        }
    if (!(norm > 0 && sqrt(off) <= bound * sqrt(norm)))
        fail_msg("%s: off by %g of its norm, allowed %g", what, sqrt(off / norm), bound);
}

/* One document that backward takes in blocks, as the plain kernels have it. */
static void cudnn_takes_a_very_long_document(void **state)
{
    struct attention w;
    struct tokens *all = &w.all, *few = &w.few;
    const struct ebb_attention_way plain = {0};
    memset(&w, 0, sizeof w);
    op_test_gpu_only("cuDNN");
    struct large *l = &w.l;
    large_start(l, *state, QKV_COLS, 1);
    add_document(all, EBB_CUDNN_SPAN + 9000);
    all->qkv = large_random(l, l->dtype, all->rows, QKV_COLS, -2, 2);
    all->d_o = large_random(l, l->dtype, all->rows, Q_COLS, -1, 1);
    put_starts(l, all);
    *few = *all;
    for (int i = 0; i < 2; i++) {
        struct tokens *k = i == 0 ? all : few;
        k->o = large_random(l, l->dtype, k->rows, Q_COLS, 3, 4);
        k->lse = large_random(l, EBB_F32, k->rows, HEADS, 3, 4);
        k->d_qkv = large_random(l, l->dtype, k->rows, QKV_COLS, 3, 4);
    }
    const struct ebb_attention_way way =
        ebb_attention_way(&heads, EBB_BF16, all->longest, false, NULL, 0);
    if (ebb_attention_lib_create(l->t.env.ctx, &way, NULL, &w.lib) != EBB_OK) {
        print_message("%s\n", ebb_error_text(l->t.env.ctx));
        few->first = NULL;
        end_attention(&w);
        skip();
    }
    run_attention(&w, all, &way);
    run_attention(&w, few, &plain);
    check_some(l, "o", &all->o, &few->o, 1.2e-2);
    check_some(l, "lse", &all->lse, &few->lse, 1.2e-2);
    check_some(l, "the gradient", &all->d_qkv, &few->d_qkv, 1.2e-2);
    few->first = NULL; /* it is the other's */
    end_attention(&w);
}

/* ---- decoding ---- */

enum { WINDOW = 50, BLOCK = 256 /* what kernels count keys in divides it */ };

/* The last tokens of a cache, against a cache that has only their window. */
static void decode(const struct large_shape *shape, int64_t tokens)
{
    struct large l;
    large_start(&l, shape, K_COLS, 8);
    struct ebb_attention_cached cached = {.q = large_random(&l, l.dtype, tokens, Q_COLS, -2, 2),
                                          .k = large_matrix(&l, l.dtype, K_COLS),
                                          .v = large_matrix(&l, l.dtype, K_COLS),
                                          .o = large_random(&l, l.dtype, tokens, Q_COLS, 3, 4),
                                          .shape = heads};
    cached.shape.window = WINDOW;
    const int64_t seen = l.rows - tokens - WINDOW, base = seen < 0 ? 0 : seen / BLOCK * BLOCK;
    struct ebb_attention_cached small = cached;
    small.k = large_random(&l, l.dtype, l.rows - base, K_COLS, -2, 2);
    small.v = large_random(&l, l.dtype, l.rows - base, K_COLS, -1, 1);
    small.o = large_random(&l, l.dtype, tokens, Q_COLS, 3, 4);
    for (int64_t i = 0; i < l.rows - base; i++) {
        large_move(&l, &cached.k, base + i, 0, K_COLS, &small.k, i, false);
        large_move(&l, &cached.v, base + i, 0, K_COLS, &small.v, i, false);
    }
    cached.scratch = small.scratch =
        large_scratch(&l, ebb_attention_scratch(&heads, l.dtype, EBB_OP_attention_cached, tokens,
                                                l.rows, &l.t.target));
    l.t.step.tokens = tokens;
    l.t.step.cached = l.rows - tokens;
    large_run(&l, EBB_OP_attention_cached, &cached);
    l.t.step.cached = l.rows - tokens - base;
    large_run(&l, EBB_OP_attention_cached, &small);
    for (int64_t i = 0; i < tokens; i++) large_row_is(&l, &cached.o, i, &small.o, i);
    op_test_end(&l.t);
}

static void decoding_finds_the_end_of_a_long_cache(void **state)
{
    decode(*state, 1);
}

static void decoding_many_finds_the_end_of_a_long_cache(void **state)
{
    decode(*state, 20);
}

/* Blocks of threads are counted in 32 bits; the op says so before it touches anything. */
static void attention_says_that_tokens_and_heads_are_too_many(void **state)
{
    (void)state;
    struct op_test t;
    ebb_op_fn run = ebb_op_function(EBB_OP_attention_forward, EBB_BACKEND_CUDA);
    const int64_t rows = INT64_C(1) << 28;
    if (run == NULL) {
        print_message("skipped: this build has no CUDA\n");
        skip();
    }
    op_test_start(&t);
    struct ebb_attention_forward f = {
        .doc_starts = op_test_tensor(&t, EBB_I32, 1, 2, 2),
        .shape = {.heads = 16, .kv_heads = 16, .qk_dim = 8, .v_dim = 8, .scale = 1}};
    f.q = op_test_tensor(&t, EBB_BF16, 1, 128, 128);
    f.q.rows = rows; /* which nobody reads */
    f.k = f.v = f.o = f.q;
    f.lse = f.scratch = ebb_view_none();
    t.step.docs = 1;
    assert_int_equal(run(&t.env, &f), EBB_UNSUPPORTED);
    assert_non_null(strstr(ebb_error_text(t.env.ctx),
                           "attention_forward: 268435456 tokens with 16 heads are too many"));
    op_test_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LARGE_CASES(product_nt_takes_far_rows),
        LARGE_CASES(product_nn_takes_far_rows),
        LARGE_CASES(product_nt_makes_many_columns),
        LARGE_CASES(product_nn_adds_many_columns),
        LARGE_CASES(product_tn_adds_far_rows),
        LARGE_CASES(product_tn_adds_to_far_rows),
        LARGE_CASES(attention_finds_far_documents),
        LARGE_CASE(cudnn_finds_far_documents, "many rows", 0),
        LARGE_CASE(cudnn_finds_far_documents, "wide rows", 2),
        LARGE_CASE(cudnn_finds_far_documents_deterministically, "many rows", 0),
        LARGE_CASE(cudnn_finds_far_documents_deterministically, "wide rows", 2),
        LARGE_CASE(cudnn_takes_a_very_long_document, "bf16", 0),
        LARGE_CASES(decoding_finds_the_end_of_a_long_cache),
        LARGE_CASES(decoding_many_finds_the_end_of_a_long_cache),
        cmocka_unit_test(attention_says_that_tokens_and_heads_are_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
