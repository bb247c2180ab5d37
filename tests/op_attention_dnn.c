/* Attention through cuDNN against dense double precision: lone documents and packs, documents of
 * length 0, with and without deterministic sums; and a document's bits depend on nothing around it.
 * Runs on a GPU only. Every case runs, also after one has failed, and says what cuDNN said.
 *
 * A tensor may be off by 8e-3 of its norm: bf16 operands and results, with p and ds rounded to bf16
 * between two products, are off by up to 4e-3 in other implementations.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

#include "base/clock.h"
#include "base/file.h"

#include "op_test.h"

static const double BOUND = 8e-3;

enum {
    DOCS_MAX = 40,
    BEHIND = 130, /* rows behind the live ones, more than a kernel takes at once */
    ROOMY_BEHIND = 900,
    GARBAGE_BYTES = 8 << 20,
    EXIT_SKIPPED = 77
};

enum {
    HIDE = 1,    /* the host does not know where documents start */
    FULL = 2,    /* no rows behind the live ones */
    ALONE = 4,   /* each document alone must give the same bits */
    EXACT = 8,   /* so must calls without documents of length 0 */
    GROUPS = 16, /* so must fewer kv heads at once */
    ROOMY = 32   /* so many rows behind that five short documents go in a call of sixteen */
};

struct setup {
    int heads, kv_heads, dim, docs;
    int length[DOCS_MAX];
    struct ebb_cudnn_options options;
    unsigned what;
};

/* What the cases share. */
struct suite {
    int only;    /* the number of the only setup to run, or -1 */
    char *plans; /* folder */
    double start;
};

struct world {
    struct op_test t;
    struct ebb_cudnn *dnn;
    const struct setup *setup;
    struct ebb_view qkv, d_qkv;
    struct ebb_attention_forward forward;
    struct ebb_attention_backward backward;
    int32_t starts[DOCS_MAX + 1];
    int64_t tokens, longest;
};

/* ---- double precision, one head of one document; x[i]: rows of dim ---- */

struct head {
    int64_t rows, dim;
    double scale;
    double *q, *k, *v, *o, *lse, *d_o, *dq, *dk, *dv, *p;
};

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += a[c] * b[c];
    return sum;
}

static void add(double *to, double factor, const double *from, int64_t n)
{
    for (int64_t c = 0; c < n; c++) to[c] += factor * from[c];
}

static void oracle_row(const struct head *w, int64_t i)
{
    const int64_t d = w->dim;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        w->p[j] = w->scale * dot(w->q + i * d, w->k + j * d, d);
        most = fmax(most, w->p[j]);
    }
    for (int64_t j = 0; j <= i; j++) sum += w->p[j] = exp(w->p[j] - most);
    w->lse[i] = most + log(sum);
    for (int64_t j = 0; j <= i; j++) add(w->o + i * d, w->p[j] /= sum, w->v + j * d, d);
    const double delta = dot(w->d_o + i * d, w->o + i * d, d);
    for (int64_t j = 0; j <= i; j++) {
        double ds = w->p[j] * (dot(w->d_o + i * d, w->v + j * d, d) - delta) * w->scale;
        add(w->dv + j * d, w->p[j], w->d_o + i * d, d);
        add(w->dq + i * d, ds, w->k + j * d, d);
        add(w->dk + j * d, ds, w->q + i * d, d);
    }
}

/* ---- the world ---- */

static void set_starts(struct world *w)
{
    const struct setup *s = w->setup;
    for (int i = 0; i < s->docs; i++) {
        w->starts[i] = (int32_t)w->tokens;
        w->tokens += s->length[i];
        if (s->length[i] > w->longest) w->longest = s->length[i];
    }
    w->starts[s->docs] = (int32_t)w->tokens;
    w->t.step.tokens = w->tokens;
    w->t.step.docs = s->docs;
    w->t.step.longest = w->longest;
}

/* Nobody may take numbers from what lies in the scratch. */
static void spoil_scratch(struct world *w, const struct ebb_view *scratch)
{
    int64_t bytes = scratch->cols < GARBAGE_BYTES ? scratch->cols : GARBAGE_BYTES;
    unsigned char *garbage = malloc((size_t)bytes);
    assert_non_null(garbage);
    memset(garbage, 0xff, (size_t)bytes); /* NaN */
    assert_int_equal(ebb_device_copy(w->t.device, w->t.base[scratch->tensor], garbage, bytes),
                     EBB_OK);
    free(garbage);
}

static void world_start(struct world *w, struct ebb_cudnn **dnn, const struct setup *setup,
                        const char *plans)
{
    memset(w, 0, sizeof *w);
    op_test_start(&w->t);
    w->setup = setup;
    if (ebb_cudnn_open(w->t.env.ctx, dnn) != EBB_OK) fail_msg("%s", ebb_error_text(w->t.env.ctx));
    w->dnn = *dnn;
    assert_int_equal(ebb_cudnn_set_cache(*dnn, plans), EBB_OK);
    set_starts(w);
    const int64_t d = setup->dim, q = setup->heads * d, k = setup->kv_heads * d;
    const int64_t behind = setup->what & FULL ? 0 : setup->what & ROOMY ? ROOMY_BEHIND : BEHIND;
    const int64_t rows = w->tokens + behind;
    w->qkv = op_test_token_rows(&w->t, EBB_BF16, rows, q + 2 * k, q + 2 * k + 8);
    w->d_qkv = op_test_token_rows(&w->t, EBB_BF16, rows, q + 2 * k, q + 2 * k + 16);
    op_test_fill(&w->t, &w->qkv, -1.7, 1.7);
    struct ebb_view starts = op_test_tensor(&w->t, EBB_I32, 1, setup->docs + 1, setup->docs + 1);
    for (int i = 0; i <= setup->docs; i++) op_test_set(&w->t, &starts, 0, i, w->starts[i]);
    struct ebb_attention_forward *f = &w->forward;
    f->shape = (struct ebb_attention_shape){.heads = setup->heads,
                                            .kv_heads = setup->kv_heads,
                                            .qk_dim = d,
                                            .v_dim = d,
                                            .scale = 1 / sqrtf((float)d)};
    f->q = op_test_columns(&w->qkv, 0, q);
    f->k = op_test_columns(&w->qkv, q, k);
    f->v = op_test_columns(&w->qkv, q + k, k);
    f->doc_starts = starts;
    f->o = op_test_token_rows(&w->t, EBB_BF16, rows, q, q);
    f->lse = op_test_token_rows(&w->t, EBB_F32, rows, setup->heads, setup->heads);
    int64_t bytes = ebb_cudnn_workspace(&f->shape, rows, w->longest, false, &setup->options);
    int64_t more = ebb_cudnn_workspace(&f->shape, rows, w->longest, true, &setup->options);
    f->scratch = op_test_workspace(&w->t, more > bytes ? more : bytes);
    spoil_scratch(w, &f->scratch);
    struct ebb_attention_backward *b = &w->backward;
    *b = (struct ebb_attention_backward){.q = f->q,
                                         .k = f->k,
                                         .v = f->v,
                                         .o = f->o,
                                         .lse = f->lse,
                                         .doc_starts = starts,
                                         .scratch = f->scratch,
                                         .shape = f->shape};
    b->d_o = op_test_token_rows(&w->t, EBB_BF16, rows, q, q);
    op_test_fill(&w->t, &b->d_o, -1, 1);
    b->dq = op_test_columns(&w->d_qkv, 0, q);
    b->dk = op_test_columns(&w->d_qkv, q, k);
    b->dv = op_test_columns(&w->d_qkv, q + k, k);
}

static void poison_rows(struct world *w, const struct ebb_view *view, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < view->cols; j++) op_test_set(&w->t, view, i, j, (double)NAN);
}

/* Nobody may take numbers from rows behind the live ones. */
static void poison(struct world *w, const struct ebb_view *view)
{
    poison_rows(w, view, w->tokens, view->rows);
}

/* The views' rows from a token on, as if the tensors started there. */
static void shift(struct ebb_view *view, int64_t token)
{
    view->offset += token * view->stride * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
    view->rows -= token;
}

static struct ebb_attention_forward forward_from(const struct world *w, int64_t token)
{
    struct ebb_attention_forward f = w->forward;
    struct ebb_view *views[] = {&f.q, &f.k, &f.v, &f.o, &f.lse};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) shift(views[i], token);
    return f;
}

static struct ebb_attention_backward backward_from(const struct world *w, int64_t token)
{
    struct ebb_attention_backward b = w->backward;
    struct ebb_view *views[] = {&b.q, &b.k, &b.v, &b.o, &b.lse, &b.d_o, &b.dq, &b.dk, &b.dv};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) shift(views[i], token);
    return b;
}

/* Documents of the step from a token of the tensors on; the world's own: {setup->options, 0}. */
struct launch {
    struct world *w;
    bool backward;
    struct ebb_cudnn_options options;
    int64_t token;
};

static enum ebb_status launch_on_queue(const struct ebb_queue_env *queue, const void *args)
{
    const struct launch *l = (const struct launch *)args;
    struct ebb_op_env env = l->w->t.env;
    const int32_t *starts = l->w->setup->what & HIDE ? NULL : l->w->starts;
    env.stream = queue->stream;
    if (l->backward) {
        const struct ebb_attention_backward b = backward_from(l->w, l->token);
        return ebb_cudnn_backward(l->w->dnn, &env, &l->options, starts, &b);
    }
    const struct ebb_attention_forward f = forward_from(l->w, l->token);
    return ebb_cudnn_forward(l->w->dnn, &env, &l->options, starts, &f);
}

static bool run_launch(const struct launch *l)
{
    const struct op_test *t = &l->w->t;
    enum ebb_status status = ebb_queue_launch(t->device, EBB_QUEUE_COMPUTE, launch_on_queue, l);
    enum ebb_status synced = ebb_device_sync(t->device);
    if (status == EBB_OK && synced == EBB_OK) return true;
    print_message("\n    %s: %s\n", l->backward ? "backward" : "forward",
                  ebb_error_text(t->env.ctx));
    ebb_error_clear(t->env.ctx);
    return false;
}

static bool run(struct world *w, bool backward)
{
    const struct launch l = {w, backward, w->setup->options, 0};
    return run_launch(&l);
}

/* ---- comparing ---- */

struct error {
    double off, norm;
};

static void load(const struct op_test *t, const struct ebb_view *view, int64_t start, int64_t rows,
                 int64_t first, int64_t dim, double *to)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < dim; c++)
            to[i * dim + c] = op_test_get(t, view, start + i, first + c);
}

static void measure(struct error *e, const struct op_test *t, const struct ebb_view *view,
                    int64_t start, int64_t rows, int64_t first, int64_t dim, const double *exact)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < dim; c++) {
            double off = op_test_get(t, view, start + i, first + c) - exact[i * dim + c];
            e->off += off * off;
            e->norm += exact[i * dim + c] * exact[i * dim + c];
        }
    }
}

static void judge_group(struct world *w, int64_t start, int64_t rows, int kv, struct error e[5])
{
    const int64_t d = w->setup->dim, each = w->setup->heads / w->setup->kv_heads;
    const size_t n = (size_t)(rows * d);
    double *all = calloc(10 * n + 2 * (size_t)rows, sizeof *all);
    assert_non_null(all);
    struct head h = {rows,
                     d,
                     (double)w->forward.shape.scale,
                     all,
                     all + n,
                     all + 2 * n,
                     all + 3 * n,
                     all + 8 * n,
                     all + 4 * n,
                     all + 5 * n,
                     all + 6 * n,
                     all + 7 * n,
                     all + 10 * n + rows};
    h.lse = all + 10 * n;
    load(&w->t, &w->forward.k, start, rows, kv * d, d, h.k);
    load(&w->t, &w->forward.v, start, rows, kv * d, d, h.v);
    for (int64_t q = kv * each; q < (kv + 1) * each; q++) {
        load(&w->t, &w->forward.q, start, rows, q * d, d, h.q);
        load(&w->t, &w->backward.d_o, start, rows, q * d, d, h.d_o);
        memset(h.o, 0, n * sizeof *all);
        memset(h.dq, 0, n * sizeof *all);
        for (int64_t i = 0; i < rows; i++) oracle_row(&h, i);
        measure(&e[0], &w->t, &w->forward.o, start, rows, q * d, d, h.o);
        measure(&e[1], &w->t, &w->forward.lse, start, rows, q, 1, h.lse);
        measure(&e[2], &w->t, &w->backward.dq, start, rows, q * d, d, h.dq);
    }
    measure(&e[3], &w->t, &w->backward.dk, start, rows, kv * d, d, h.dk);
    measure(&e[4], &w->t, &w->backward.dv, start, rows, kv * d, d, h.dv);
    free(all);
}

/* A lone token's dq and dk are 0: what is off is then measured against the other gradients. */
static bool judge(struct world *w)
{
    static const char *const name[] = {"o", "lse", "dq", "dk", "dv"};
    struct error e[5] = {{0, 0}};
    bool good = true;
    for (int doc = 0; doc < w->setup->docs; doc++)
        for (int kv = 0; kv < w->setup->kv_heads; kv++)
            judge_group(w, w->starts[doc], w->setup->length[doc], kv, e);
    for (int i = 0; i < 5; i++) {
        double norm = e[i].norm > 1e-12 * e[4].norm ? e[i].norm : e[4].norm;
        double off = sqrt(e[i].off / norm);
        print_message(" %s %.1e", name[i], off);
        good = good && off <= BOUND;
    }
    print_message("%s\n", good ? "" : "  TOO FAR");
    return good;
}

/* The same bits once more. */
static bool repeats(struct world *w, const struct launch *l, const char *what)
{
    const struct ebb_view *view[2] = {&w->forward.o, &w->forward.lse};
    if (l->backward) view[0] = view[1] = &w->d_qkv;
    void *copy[2] = {op_test_copy(&w->t, view[0]), op_test_copy(&w->t, view[1])};
    bool ran = run_launch(l);
    bool same = ran && op_test_same(&w->t, view[0], copy[0]);
    same = same && op_test_same(&w->t, view[1], copy[1]);
    free(copy[0]);
    free(copy[1]);
    if (ran && !same)
        print_message("    other bits: %s %s\n", l->backward ? "backward" : "forward", what);
    return same;
}

/* Forward, and backward where it is deterministic. */
static bool both_repeat(struct world *w, struct ebb_cudnn_options options, const char *what)
{
    struct launch l = {w, false, options, 0};
    bool good = repeats(w, &l, what);
    l.backward = true;
    return (!options.deterministic || repeats(w, &l, what)) && good;
}

static bool groups_repeat(struct world *w)
{
    bool good = true;
    for (int kv = 1; kv < w->setup->kv_heads; kv++) {
        char what[64];
        struct ebb_cudnn_options options = w->setup->options;
        options.kv_heads = kv;
        snprintf(what, sizeof what, "with %d kv heads at once", kv);
        if (w->setup->kv_heads % kv == 0) good = both_repeat(w, options, what) && good;
    }
    return good;
}

/* ---- documents alone ---- */

enum { TENSORS = 5 };

/* qkv, d_o, o, lse, d_qkv */
static const struct ebb_view *tensor(const struct world *w, int i)
{
    const struct ebb_view *all[TENSORS] = {&w->qkv, &w->backward.d_o, &w->forward.o,
                                           &w->forward.lse, &w->d_qkv};
    return all[i];
}

/* Rows of a document are as in one copy, all others as in the other. */
static bool rows_are(const struct world *w, const struct ebb_view *view, int doc,
                     const char *inside, const char *outside)
{
    int64_t bytes = view->cols * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
    int64_t line = view->stride * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
    for (int64_t i = 0; i < view->rows; i++) {
        bool mine = i >= w->starts[doc] && i < w->starts[doc + 1];
        const char *want = (mine ? inside : outside) + i * line;
        if (memcmp(op_test_at(&w->t, view, i, 0), want, (size_t)bytes) != 0) return false;
    }
    return true;
}

static bool run_alone(struct world *w, int doc, bool backward)
{
    int32_t *device = op_test_at(&w->t, &w->forward.doc_starts, 0, 0);
    const int32_t token = w->starts[doc], end = w->starts[doc + 1], second = w->starts[1];
    const struct launch l = {w, backward, w->setup->options, token};
    struct ebb_step *step = &w->t.step;
    const struct ebb_step old = *step;
    step->tokens = step->longest = end - token;
    step->docs = 1;
    device[1] = end - token;
    bool ran = run_launch(&l);
    device[1] = second;
    *step = old;
    return ran;
}

/* With NaN in all other rows, which stay as they are. */
static bool doc_repeats(struct world *w, int doc, char *const was[TENSORS])
{
    bool good = true;
    for (int pass = 0; pass < (w->setup->options.deterministic ? 2 : 1); pass++) {
        char *poisoned[TENSORS];
        for (int i = 0; i < TENSORS; i++) {
            poison_rows(w, tensor(w, i), 0, w->starts[doc]);
            poison_rows(w, tensor(w, i), w->starts[doc + 1], tensor(w, i)->rows);
            poisoned[i] = op_test_copy(&w->t, tensor(w, i));
        }
        bool same = run_alone(w, doc, pass == 1);
        for (int i = 0; i < TENSORS; i++) {
            same = same && rows_are(w, tensor(w, i), doc, was[i], poisoned[i]);
            free(poisoned[i]);
        }
        if (!same)
            print_message("    other bits: %s of document %d alone\n",
                          pass == 1 ? "backward" : "forward", doc);
        good = good && same;
    }
    for (int i = 0; i < TENSORS; i++) op_test_restore(&w->t, tensor(w, i), was[i]);
    return good;
}

static bool docs_repeat(struct world *w)
{
    char *was[TENSORS];
    bool good = true;
    for (int i = 0; i < TENSORS; i++) was[i] = op_test_copy(&w->t, tensor(w, i));
    for (int doc = 0; doc < w->setup->docs; doc++)
        if (w->setup->length[doc] > 0) good = doc_repeats(w, doc, was) && good;
    for (int i = 0; i < TENSORS; i++) free(was[i]);
    return good;
}

/* Rows behind the live ones keep their garbage. */
static bool rows_behind_stand(const struct world *w, const struct ebb_view *view, const char *name)
{
    int64_t bytes = view->cols * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
    for (int64_t i = w->tokens; i < view->rows; i++) {
        const unsigned char *row = op_test_at(&w->t, view, i, 0);
        for (int64_t j = 0; j < bytes; j++) {
            if (row[j] == 0xa5) continue;
            print_message("    wrote row %lld of %s, which has %lld\n", (long long)i, name,
                          (long long)w->tokens);
            return false;
        }
    }
    return true;
}

/* All the bits that must be equal. */
static bool bits_agree(struct world *w)
{
    struct ebb_cudnn_options exact = w->setup->options;
    exact.exact = true;
    bool good = both_repeat(w, w->setup->options, "a second time");
    if (w->setup->what & ALONE) good = docs_repeat(w) && good;
    if (w->setup->what & EXACT) good = both_repeat(w, exact, "in exact calls") && good;
    if (w->setup->what & GROUPS) good = groups_repeat(w) && good;
    return good;
}

static void print_setup(int number, const struct setup *setup)
{
    print_message("%2d: heads %d/%d, dim %d, documents", number, setup->heads, setup->kv_heads,
                  setup->dim);
    for (int i = 0; i < setup->docs; i++) print_message(" %d", setup->length[i]);
    print_message("%s%s%s%s%s%s", setup->options.deterministic ? ", deterministic" : "",
                  setup->what & HIDE ? ", starts hidden" : "", setup->what & FULL ? ", full" : "",
                  setup->what & ALONE ? ", alone" : "", setup->what & EXACT ? ", exact" : "",
                  setup->what & GROUPS ? ", groups" : "");
    print_message("%s:", setup->what & ROOMY ? ", roomy" : "");
}

static bool run_setup(const struct suite *suite, int number, const struct setup *setup)
{
    struct world w;
    struct ebb_cudnn *dnn;
    double start = ebb_clock_seconds();
    print_setup(number, setup);
    world_start(&w, &dnn, setup, suite->plans);
    poison(&w, &w.qkv);
    poison(&w, &w.backward.d_o);
    bool good = run(&w, false) && rows_behind_stand(&w, &w.forward.o, "o") &&
                rows_behind_stand(&w, &w.forward.lse, "lse");
    poison(&w, &w.forward.o);
    poison(&w, &w.forward.lse);
    /* Twice: nothing is left from one run to the next. */
    good = good && run(&w, true) && run(&w, true);
    good = rows_behind_stand(&w, &w.d_qkv, "d_qkv") && good;
    if (good) {
        good = judge(&w);
        good = bits_agree(&w) && good;
    }
    print_message("    %lld plans, %.1f s%s\n", (long long)ebb_cudnn_built(dnn),
                  ebb_clock_seconds() - start, good ? "" : ": FAILED");
    ebb_cudnn_close(dnn);
    op_test_end(&w.t); /* looks at what lies around and between the rows */
    return good;
}

/* ---- cases ---- */

#define PLAIN                                                                                      \
    {                                                                                              \
        0                                                                                          \
    }
#define DETERMINISTIC                                                                              \
    {                                                                                              \
        .deterministic = true                                                                      \
    }

static const struct setup setups[] = {
    {4, 2, 64, 1, {1}, PLAIN, 0},
    {4, 2, 64, 1, {2}, PLAIN, 0},
    {4, 2, 128, 1, {63}, PLAIN, 0},
    {4, 2, 128, 1, {64}, PLAIN, 0},
    {4, 2, 64, 1, {65}, PLAIN, 0},
    {4, 2, 128, 1, {127}, PLAIN, 0},
    {4, 1, 128, 1, {1000}, PLAIN, 0},
    {4, 2, 64, 1, {1024}, PLAIN, FULL},
    {2, 1, 128, 1, {2048}, PLAIN, FULL},
    {28, 4, 128, 3, {120, 1, 65}, PLAIN, 0},
    {14, 2, 64, 7, {1, 300, 2, 129, 128, 1, 600}, PLAIN, 0},
    {14, 2, 64, 4, {33, 200, 0, 70}, PLAIN, 0},
    {14, 2, 64, 5, {33, 200, 0, 70, 5}, PLAIN, HIDE},
    {4, 4, 64, 2, {77, 128}, PLAIN, 0},
    {2, 1, 64, 2, {2050, 600}, PLAIN, 0},
    {8, 4, 128, 3, {90, 300, 1}, {.kv_heads = 2}, 0},
    {4, 2, 80, 2, {110, 20}, PLAIN, 0},
    {4, 2, 64, 1, {1}, DETERMINISTIC, 0},
    {4, 2, 128, 1, {1024}, DETERMINISTIC, FULL},
    {14, 2, 64, 5, {1, 300, 129, 128, 600}, DETERMINISTIC, ALONE},
    {4, 2, 128, 1, {1000}, {.deterministic = true, .block = 256}, 0},
    {4, 2, 64, 3, {700, 3, 513}, {.deterministic = true, .block = 512}, ALONE | GROUPS},
    {8, 4, 128, 3, {129, 300, 512}, DETERMINISTIC, GROUPS},
    /* Documents of length 0: with known starts they are not in a call; with hidden ones they are,
     * anywhere in it; and what a call lacks stands at its end. */
    {4, 2, 64, 3, {0, 1024, 0}, PLAIN, FULL},
    {4, 2, 64, 7, {0, 33, 0, 128, 0, 0, 70}, PLAIN, HIDE | ROOMY},
    {4, 2, 64, 7, {0, 33, 0, 128, 70, 0, 0}, DETERMINISTIC, HIDE | ROOMY},
    {4, 2, 64, 6, {90, 20, 128, 0, 1, 100}, PLAIN, ALONE | EXACT | ROOMY},
    {4, 2, 64, 6, {90, 20, 128, 0, 1, 100}, DETERMINISTIC, ALONE | EXACT | ROOMY},
    {4, 2, 64, 3, {300, 129, 512}, DETERMINISTIC, ALONE},
    {4, 2, 128, 3, {100, 128, 60}, DETERMINISTIC, ALONE | EXACT},
};

static void cudnn_agrees_with_double_precision(void **state)
{
    const int count = (int)(sizeof setups / sizeof setups[0]);
    const struct suite *suite = *state;
    int failed = 0;
    for (int i = 0; i < count; i++)
        if (suite->only < 0 || suite->only == i) failed += !run_setup(suite, i, &setups[i]);
    if (failed > 0) fail_msg("%d setups failed", failed);
}

/* ---- preparing ---- */

static void keep_lines(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    char *lines = user;
    (void)level;
    if (strcmp(topic, "attention") == 0) strcat(strcat(lines, text), "\n");
}

static bool prepare(struct world *w)
{
    const struct ebb_cudnn_options *options = &w->setup->options;
    enum ebb_status status =
        ebb_cudnn_prepare_forward(w->dnn, options, DOCS_MAX, w->longest, &w->forward);
    if (status == EBB_OK)
        status = ebb_cudnn_prepare_backward(w->dnn, options, DOCS_MAX, w->longest, &w->backward);
    if (status != EBB_OK) print_message("%s\n", ebb_error_text(w->t.env.ctx));
    return status == EBB_OK;
}

/* Other documents in the same world. */
static bool run_others(struct world *w, const struct setup *others)
{
    const struct setup *own = w->setup;
    w->setup = others;
    w->tokens = w->longest = 0;
    set_starts(w);
    for (int i = 0; i <= others->docs; i++)
        op_test_set(&w->t, &w->forward.doc_starts, 0, i, w->starts[i]);
    bool good = run(w, false) && run(w, true) && judge(w);
    w->setup = own;
    return good;
}

static const struct setup capacity = {4, 2, 64, 5, {1024}, PLAIN, FULL};
static const struct setup within[] = {
    {4, 2, 64, 1, {1024}, PLAIN, 0},
    {4, 2, 64, 1, {1000}, PLAIN, 0},
    {4, 2, 64, 5, {100, 300, 0, 20, 500}, PLAIN, 0},
    {4, 2, 64, 5, {1, 1, 1, 1, 1}, PLAIN, HIDE},
    {4, 2, 64, 3, {200, 200, 400}, PLAIN, 0},
};

/* Prepares in a world of its own and runs what is within its capacity. Returns the seconds that
 * preparing took. */
static double prepare_and_run(const char *dir, char *lines)
{
    struct world w;
    struct ebb_cudnn *dnn;
    bool good = true;
    world_start(&w, &dnn, &capacity, dir);
    ebb_ctx_set_log(w.t.env.ctx, keep_lines, lines);
    double start = ebb_clock_seconds();
    good = prepare(&w);
    double seconds = ebb_clock_seconds() - start;
    const int64_t plans = ebb_cudnn_built(dnn);
    print_message("%s: %lld plans in %.2f s\n", ebb_cudnn_version(dnn), (long long)plans, seconds);
    good = prepare(&w) && good;
    for (size_t i = 0; good && i < sizeof within / sizeof within[0]; i++)
        good = run_others(&w, &within[i]);
    assert_true(good);
    assert_true(plans >= 16);
    assert_int_equal(ebb_cudnn_built(dnn), plans);
    ebb_cudnn_close(dnn);
    op_test_end(&w.t);
    return seconds;
}

/* Plans made once are read by the next process: here, by the next object. */
static void plans_are_prepared_once_and_kept_in_files(void **state)
{
    char dir[] = "/tmp/ebb-plans-XXXXXX", lines[2][1024] = {"", ""};
    (void)state;
    assert_non_null(mkdtemp(dir));
    double built = prepare_and_run(dir, lines[0]), loaded = prepare_and_run(dir, lines[1]);
    struct ebb_ctx *ctx = ebb_ctx_create();
    assert_int_equal(ebb_dir_remove(ctx, dir), EBB_OK);
    ebb_ctx_free(ctx);
    print_message("%s", lines[0]);
    assert_non_null(strstr(lines[0], "plans of the forward for this GPU, once (kept in /tmp/"));
    assert_non_null(strstr(lines[0], "plans of the backward for this GPU, once (kept in /tmp/"));
    assert_string_equal(lines[1], "");
    assert_true(loaded < built / 2);
}

/* ---- speed ---- */

/* Seconds: best of three times RUNS runs in a row. */
static double speed(struct world *w, bool backward)
{
    enum { RUNS = 4 };
    double best = 1e9;
    const struct launch l = {w, backward, w->setup->options, 0};
    for (int i = 0; i < 3; i++) {
        double start = ebb_clock_seconds();
        for (int k = 0; k < RUNS; k++)
            (void)ebb_queue_launch(w->t.device, EBB_QUEUE_COMPUTE, launch_on_queue, &l);
        if (ebb_device_sync(w->t.device) != EBB_OK) return 1e9;
        best = fmin(best, (ebb_clock_seconds() - start) / RUNS);
    }
    return best;
}

/* 1e12 of the forward. */
static double work_of(const struct setup *setup)
{
    double flops = 0;
    for (int i = 0; i < setup->docs; i++)
        flops += 2.0 * setup->heads * setup->dim * setup->length[i] * setup->length[i];
    return flops * 1e-12;
}

/* Moves the tensors, which the host shares, into the GPU's own memory; again: back. */
static void swap_memory(struct world *w, void *other[OP_TEST_TENSORS])
{
    struct op_test *t = &w->t;
    for (int i = 0; i < t->count; i++) {
        if (t->hidden[i]) continue;
        if (other[i] == NULL) {
            assert_int_equal(ebb_device_block_create(t->device, t->bytes[i], false, &other[i]),
                             EBB_OK);
            assert_int_equal(ebb_device_copy(t->device, other[i], t->base[i], t->bytes[i]), EBB_OK);
        }
        void *was = t->base[i];
        t->base[i] = other[i];
        other[i] = was;
    }
}

static void show_speed(const struct suite *suite, const struct setup *setup)
{
    struct world w;
    struct ebb_cudnn *dnn;
    void *other[OP_TEST_TENSORS] = {NULL};
    world_start(&w, &dnn, setup, suite->plans);
    swap_memory(&w, other);
    print_message("%d documents, %d tokens, heads %d/%d, dim %d%s%s: ", setup->docs, (int)w.tokens,
                  setup->heads, setup->kv_heads, setup->dim,
                  setup->options.deterministic ? ", deterministic" : "",
                  setup->options.exact ? ", exact" : "");
    if (run(&w, false) && run(&w, true)) {
        double forward = speed(&w, false), backward = speed(&w, true), work = work_of(setup);
        print_message("forward %.0f, backward %.0f TFLOP/s (%.3f, %.3f ms), %.0f MiB of scratch\n",
                      work / forward, 2.5 * work / backward, forward * 1e3, backward * 1e3,
                      (double)w.forward.scratch.cols / 1048576);
    }
    ebb_cudnn_close(dnn);
    swap_memory(&w, other);
    for (int i = 0; i < w.t.count; i++)
        if (!w.t.hidden[i]) ebb_device_block_free(w.t.device, other[i]);
    op_test_end(&w.t);
}

#define NINE_OF_100                                                                                \
    {                                                                                              \
        100, 100, 100, 100, 100, 100, 100, 100, 100                                                \
    }

static void speeds_are_shown(void **state)
{
    const struct suite *suite = *state;
    static const struct setup timed[] = {
        {28, 4, 128, 1, {8192}, PLAIN, FULL},
        {28, 4, 128, 1, {8191}, PLAIN, 0},
        {28, 4, 128, 1, {5000}, PLAIN, 0},
        {28, 4, 128, 8, {2000, 1500, 1800, 400, 1200, 900, 300, 600}, PLAIN, 0},
        {28, 4, 128, 1, {8192}, DETERMINISTIC, FULL},
        {14, 2, 64, 1, {32768}, PLAIN, FULL},
        /* One call of sixteen; a call of eight and one of one. */
        {28, 4, 128, 9, NINE_OF_100, PLAIN, 0},
        {28, 4, 128, 9, NINE_OF_100, {.exact = true}, 0},
    };
    for (size_t i = 0; i < sizeof timed / sizeof timed[0]; i++) show_speed(suite, &timed[i]);
    print_message("all of it: %.0f s\n", ebb_clock_seconds() - suite->start);
}

/* With a number, that setup alone: after a kernel's death nothing more runs in a process. */
int main(int argc, char **argv)
{
    char dir[] = "/tmp/ebb-plans-XXXXXX", why[256];
    struct suite suite = {argc > 1 ? (int)strtol(argv[1], NULL, 10) : -1, dir, ebb_clock_seconds()};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(cudnn_agrees_with_double_precision, &suite),
        cmocka_unit_test_prestate(plans_are_prepared_once_and_kept_in_files, &suite),
        cmocka_unit_test_prestate(speeds_are_shown, &suite),
    };
    if (!ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return EXIT_SKIPPED;
    }
    if (setenv("EBB_TEST_BACKEND", "cuda", 1) != 0 || mkdtemp(dir) == NULL) return 1;
    const struct CMUnitTest one[] = {tests[0]};
    int failed = suite.only < 0 ? cmocka_run_group_tests(tests, NULL, NULL)
                                : cmocka_run_group_tests(one, NULL, NULL);
    struct ebb_ctx *ctx = ebb_ctx_create();
    if (ctx != NULL && ebb_dir_remove(ctx, dir) != EBB_OK) printf("%s\n", ebb_error_text(ctx));
    ebb_ctx_free(ctx);
    return failed;
}
