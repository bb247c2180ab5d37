/* Attention through cuDNN against dense double precision: lone documents and packs, with and
 * without deterministic sums. Runs on a GPU only. Every case runs, also after one has failed, and
 * says what cuDNN said.
 *
 * A tensor may be off by 8e-3 of its norm: bf16 operands and results, with p and ds rounded to bf16
 * between two products, are off by up to 4e-3 in other implementations.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

#include "base/clock.h"
#include "base/file.h"

#include "op_test.h"

static const double BOUND = 8e-3;

enum { DOCS_MAX = 40, EXIT_SKIPPED = 77 };

struct setup {
    int heads, kv_heads, dim, docs;
    int length[DOCS_MAX];
    struct ebb_cudnn_options options;
    bool hide_starts; /* the host does not know where documents start */
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

static struct ebb_view columns(const struct ebb_view *all, int64_t first, int64_t count)
{
    struct ebb_view part = *all;
    part.offset += first * ebb_dtype_bytes((enum ebb_dtype)all->dtype);
    part.cols = count;
    return part;
}

static struct ebb_view token_rows(struct op_test *t, enum ebb_dtype dtype, int64_t rows,
                                  int64_t cols, int64_t stride)
{
    struct ebb_view view = op_test_tensor(t, dtype, rows, cols, stride);
    view.extent = EBB_EXTENT_TOKENS;
    return view;
}

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

static void world_start(struct world *w, struct ebb_cudnn **dnn, const struct setup *setup)
{
    memset(w, 0, sizeof *w);
    op_test_start(&w->t);
    w->setup = setup;
    if (ebb_cudnn_open(w->t.env.ctx, dnn) != EBB_OK) fail_msg("%s", ebb_error_text(w->t.env.ctx));
    w->dnn = *dnn;
    set_starts(w);
    const int64_t d = setup->dim, q = setup->heads * d, k = setup->kv_heads * d;
    const int64_t rows = w->tokens + 3;
    w->qkv = token_rows(&w->t, EBB_BF16, rows, q + 2 * k, q + 2 * k + 8);
    w->d_qkv = token_rows(&w->t, EBB_BF16, rows, q + 2 * k, q + 2 * k + 16);
    op_test_fill(&w->t, &w->qkv, -1.7, 1.7);
    struct ebb_view starts = op_test_tensor(&w->t, EBB_I32, 1, setup->docs + 1, setup->docs + 1);
    for (int i = 0; i <= setup->docs; i++) op_test_set(&w->t, &starts, 0, i, w->starts[i]);
    struct ebb_attention_forward *f = &w->forward;
    f->shape = (struct ebb_attention_shape){.heads = setup->heads,
                                            .kv_heads = setup->kv_heads,
                                            .qk_dim = d,
                                            .v_dim = d,
                                            .scale = 1 / sqrtf((float)d)};
    f->q = columns(&w->qkv, 0, q);
    f->k = columns(&w->qkv, q, k);
    f->v = columns(&w->qkv, q + k, k);
    f->doc_starts = starts;
    f->o = token_rows(&w->t, EBB_BF16, rows, q, q);
    f->lse = token_rows(&w->t, EBB_F32, rows, setup->heads, setup->heads);
    int64_t bytes = ebb_cudnn_workspace(&f->shape, w->tokens, w->longest, false, &setup->options);
    int64_t more = ebb_cudnn_workspace(&f->shape, w->tokens, w->longest, true, &setup->options);
    f->scratch = op_test_workspace(&w->t, more > bytes ? more : bytes);
    struct ebb_attention_backward *b = &w->backward;
    *b = (struct ebb_attention_backward){.q = f->q,
                                         .k = f->k,
                                         .v = f->v,
                                         .o = f->o,
                                         .lse = f->lse,
                                         .doc_starts = starts,
                                         .scratch = f->scratch,
                                         .shape = f->shape};
    b->d_o = token_rows(&w->t, EBB_BF16, rows, q, q);
    op_test_fill(&w->t, &b->d_o, -1, 1);
    b->dq = columns(&w->d_qkv, 0, q);
    b->dk = columns(&w->d_qkv, q, k);
    b->dv = columns(&w->d_qkv, q + k, k);
}

/* Nobody may take numbers from rows behind the live ones. */
static void poison(struct world *w, const struct ebb_view *view)
{
    for (int64_t i = w->tokens; i < view->rows; i++)
        for (int64_t j = 0; j < view->cols; j++) op_test_set(&w->t, view, i, j, (double)NAN);
}

struct launch {
    struct world *w;
    bool backward;
};

static enum ebb_status launch_on_queue(const struct ebb_queue_env *queue, const void *args)
{
    const struct launch *l = (const struct launch *)args;
    struct ebb_op_env env = l->w->t.env;
    const struct setup *s = l->w->setup;
    const int32_t *starts = s->hide_starts ? NULL : l->w->starts;
    env.stream = queue->stream;
    return l->backward ? ebb_cudnn_backward(l->w->dnn, &env, &s->options, starts, &l->w->backward)
                       : ebb_cudnn_forward(l->w->dnn, &env, &s->options, starts, &l->w->forward);
}

static bool run(struct world *w, bool backward)
{
    struct launch l = {w, backward};
    enum ebb_status status = ebb_queue_launch(w->t.device, EBB_QUEUE_COMPUTE, launch_on_queue, &l);
    enum ebb_status synced = ebb_device_sync(w->t.device);
    if (status == EBB_OK && synced == EBB_OK) return true;
    print_message("    %s: %s\n", backward ? "backward" : "forward", ebb_error_text(w->t.env.ctx));
    ebb_error_clear(w->t.env.ctx);
    return false;
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

static bool repeats(struct world *w, const struct ebb_view *view, bool backward)
{
    void *copy = op_test_copy(&w->t, view);
    bool ran = run(w, backward);
    bool same = ran && op_test_same(&w->t, view, copy);
    free(copy);
    if (ran && !same) print_message("    a second %s differs\n", backward ? "backward" : "forward");
    return same;
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

static bool run_setup(const struct setup *setup)
{
    struct world w;
    struct ebb_cudnn *dnn;
    print_message("heads %d/%d, dim %d, %d documents (first %d)%s%s:", setup->heads,
                  setup->kv_heads, setup->dim, setup->docs, setup->length[0],
                  setup->options.deterministic ? ", deterministic" : "",
                  setup->hide_starts ? ", starts hidden" : "");
    world_start(&w, &dnn, setup);
    poison(&w, &w.qkv);
    poison(&w, &w.backward.d_o);
    bool good = run(&w, false) && rows_behind_stand(&w, &w.forward.o, "o") &&
                rows_behind_stand(&w, &w.forward.lse, "lse");
    poison(&w, &w.forward.o);
    poison(&w, &w.forward.lse);
    /* Twice: nothing is left from one run to the next. */
    good = good && run(&w, true) && run(&w, true);
    if (good) {
        good = judge(&w);
        good = repeats(&w, &w.forward.o, false) && good;
        if (setup->options.deterministic) good = repeats(&w, &w.d_qkv, true) && good;
    }
    good = rows_behind_stand(&w, &w.d_qkv, "d_qkv") && good;
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
    {4, 2, 64, 1, {1}, PLAIN, false},
    {4, 2, 64, 1, {2}, PLAIN, false},
    {4, 2, 128, 1, {63}, PLAIN, false},
    {4, 2, 128, 1, {64}, PLAIN, false},
    {4, 2, 64, 1, {65}, PLAIN, false},
    {4, 2, 128, 1, {127}, PLAIN, false},
    {4, 1, 128, 1, {1000}, PLAIN, false},
    {4, 2, 64, 1, {1024}, PLAIN, false},
    {2, 1, 128, 1, {2048}, PLAIN, false},
    {28, 4, 128, 3, {130, 1, 65}, PLAIN, false},
    {14, 2, 64, 7, {1, 300, 2, 129, 128, 1, 600}, PLAIN, false},
    {14, 2, 64, 4, {33, 200, 0, 70}, PLAIN, false},
    {14, 2, 64, 5, {33, 200, 0, 70, 5}, PLAIN, true},
    {4, 4, 64, 2, {140, 77}, PLAIN, false},
    {2, 1, 64, 2, {2050, 600}, PLAIN, false},
    {8, 4, 128, 3, {90, 300, 1}, {.kv_heads = 1}, false},
    {8, 4, 128, 1, {1024}, {.kv_heads = 2}, false},
    {4, 2, 80, 2, {150, 20}, PLAIN, false},
    {4, 2, 64, 1, {1}, DETERMINISTIC, false},
    {4, 2, 128, 1, {1024}, DETERMINISTIC, false},
    {14, 2, 64, 5, {1, 300, 129, 128, 600}, DETERMINISTIC, false},
    {4, 2, 128, 1, {1000}, {.deterministic = true, .block = 256}, false},
    {4, 2, 64, 3, {700, 3, 513}, {.deterministic = true, .block = 512, .kv_heads = 1}, false},
};

/* *state: the number of the only setup to run, or -1. */
static void cudnn_agrees_with_double_precision(void **state)
{
    const int count = (int)(sizeof setups / sizeof setups[0]), only = *(const int *)*state;
    int failed = 0;
    for (int i = 0; i < count; i++)
        if (only < 0 || only == i) failed += !run_setup(&setups[i]);
    if (failed > 0) fail_msg("%d setups failed", failed);
}

/* Plans made once are read by the next process: here, by the next object. */
static void plans_are_kept_in_files(void **state)
{
    (void)state;
    static const struct setup setup = {4, 2, 64, 2, {130, 70}, PLAIN, false};
    char dir[] = "/tmp/ebb-plans-XXXXXX";
    assert_non_null(mkdtemp(dir));
    double seconds[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct world w;
        struct ebb_cudnn *dnn;
        world_start(&w, &dnn, &setup);
        assert_int_equal(ebb_cudnn_set_cache(dnn, dir), EBB_OK);
        double start = ebb_clock_seconds();
        assert_true(run(&w, false) && run(&w, true));
        seconds[i] = ebb_clock_seconds() - start;
        print_message("%s: plans %s in %.2f s:", ebb_cudnn_version(dnn), i == 0 ? "built" : "read",
                      seconds[i]);
        assert_true(judge(&w));
        if (i == 1) assert_int_equal(ebb_dir_remove(w.t.env.ctx, dir), EBB_OK);
        ebb_cudnn_close(dnn);
        op_test_end(&w.t);
    }
    assert_true(seconds[1] < seconds[0] / 2);
}

static void what_it_cannot_run_is_said(void **state)
{
    (void)state;
    char why[128];
    struct ebb_attention_shape s = {
        .heads = 4, .kv_heads = 2, .qk_dim = 64, .v_dim = 64, .scale = 1};
    assert_true(ebb_cudnn_takes(&s, EBB_BF16, why, sizeof why));
    assert_false(ebb_cudnn_takes(&s, EBB_F32, why, sizeof why));
    assert_string_equal(why, "it takes bf16 only");
    s.softcap = 30;
    assert_false(ebb_cudnn_takes(&s, EBB_BF16, why, sizeof why));
    assert_string_equal(why, "it has no softcap");
    s.softcap = 0;
    s.v_dim = 32;
    assert_false(ebb_cudnn_takes(&s, EBB_BF16, NULL, 0));
}

/* TFLOP/s: best of three times RUNS runs in a row. */
static double speed(struct world *w, bool backward)
{
    enum { RUNS = 4 };
    double best = 1e9;
    struct launch l = {w, backward};
    for (int i = 0; i < 3; i++) {
        double start = ebb_clock_seconds();
        for (int k = 0; k < RUNS; k++)
            (void)ebb_queue_launch(w->t.device, EBB_QUEUE_COMPUTE, launch_on_queue, &l);
        if (ebb_device_sync(w->t.device) != EBB_OK) return 0;
        best = fmin(best, (ebb_clock_seconds() - start) / RUNS);
    }
    double flops = 0;
    for (int i = 0; i < w->setup->docs; i++)
        flops += 2.0 * w->setup->heads * w->setup->dim * w->setup->length[i] * w->setup->length[i];
    return flops * (backward ? 2.5 : 1) / best * 1e-12;
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

static void show_speed(const struct setup *setup)
{
    struct world w;
    struct ebb_cudnn *dnn;
    void *other[OP_TEST_TENSORS] = {NULL};
    world_start(&w, &dnn, setup);
    swap_memory(&w, other);
    print_message("%d documents, %d tokens, heads %d/%d, dim %d%s: ", setup->docs, (int)w.tokens,
                  setup->heads, setup->kv_heads, setup->dim,
                  setup->options.deterministic ? ", deterministic" : "");
    if (run(&w, false) && run(&w, true)) {
        double forward = speed(&w, false), backward = speed(&w, true);
        print_message("forward %.0f, backward %.0f TFLOP/s, %.0f MiB of scratch\n", forward,
                      backward, (double)w.forward.scratch.cols / 1048576);
    }
    ebb_cudnn_close(dnn);
    swap_memory(&w, other);
    for (int i = 0; i < w.t.count; i++)
        if (!w.t.hidden[i]) ebb_device_block_free(w.t.device, other[i]);
    op_test_end(&w.t);
}

static void speeds_are_shown(void **state)
{
    (void)state;
    static const struct setup timed[] = {
        {28, 4, 128, 1, {8192}, PLAIN, false},
        {28, 4, 128, 1, {8191}, PLAIN, false},
        {28, 4, 128, 1, {5000}, PLAIN, false},
        {28, 4, 128, 8, {2000, 1500, 1800, 400, 1200, 900, 300, 92}, PLAIN, false},
        {28, 4, 128, 1, {8192}, DETERMINISTIC, false},
        {14, 2, 64, 1, {32768}, PLAIN, false},
    };
    for (size_t i = 0; i < sizeof timed / sizeof timed[0]; i++) show_speed(&timed[i]);
}

/* With a number, that setup alone: after a kernel's death nothing more runs in a process. */
int main(int argc, char **argv)
{
    int only = argc > 1 ? (int)strtol(argv[1], NULL, 10) : -1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(cudnn_agrees_with_double_precision, &only),
        cmocka_unit_test(plans_are_kept_in_files),
        cmocka_unit_test(what_it_cannot_run_is_said),
        cmocka_unit_test(speeds_are_shown),
    };
    char why[256];
    if (!ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return EXIT_SKIPPED;
    }
    if (setenv("EBB_TEST_BACKEND", "cuda", 1) != 0) return 1;
    if (only < 0) return cmocka_run_group_tests(tests, NULL, NULL);
    const struct CMUnitTest one[] = {tests[0]};
    return cmocka_run_group_tests(one, NULL, NULL);
}
