/* Attention on the CPU: documents, threads and scratch. The arithmetic is in attention_kernels.c.
 *
 * Backward goes one of two ways. In one sweep, a thread takes a (document, kv head) and walks its
 * heads, its blocks of queries and their keys: five products a tile. In two sweeps, dk and dv are
 * made by (document, kv head, group of keys) and dq by (document, head, block of queries): seven
 * products a tile, but many more pieces of work. Each sum takes its terms in the same order both
 * ways (dk and dv: heads, then queries; dq: keys), so that both give the same bits and the choice
 * may depend on the number of threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention.h"

#include <omp.h>
#include <string.h>

#include "op/attention_check_int.h"
#include "op/attention_int.h"
#include "op/scratch_int.h"

enum {
    GROUP = 2 * EBB_ATTENTION_BLOCK, /* keys whose dk and dv one piece of the two sweeps makes */
    ALIGN = 64                       /* parts of the scratch start at multiples of it */
};

/* A block of queries: of the document of rows start .. end, from `first` (counted from start) on.
 */
struct block {
    int32_t start, end, first;
};

/* The scratch: a table of blocks, an area for each thread, and what the sweep of a (document, kv
 * head) adds up. */
struct layout {
    int64_t d_width, e_width;
    int64_t blocks_bytes, area_bytes;
    int64_t slots,
        slot_rows; /* dk and dv in fp32: one slot for each thread or kv head, whichever are fewer */
    int64_t bytes;
};

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static struct layout layout_of(const struct ebb_attention_shape *shape, int64_t tokens, int threads)
{
    struct layout l;
    l.d_width = round_up(shape->qk_dim, EBB_ATTENTION_PAD);
    l.e_width = round_up(shape->v_dim, EBB_ATTENTION_PAD);
    int64_t wider = l.d_width > l.e_width ? l.d_width : l.e_width;
    int64_t floats = EBB_ATTENTION_BLOCK *
                         (3 * l.d_width + 3 * l.e_width + wider + 2 * EBB_ATTENTION_BLOCK + 2) +
                     GROUP * (l.d_width + l.e_width);
    l.blocks_bytes = round_up(tokens * (int64_t)sizeof(struct block), ALIGN);
    l.area_bytes = round_up(floats * 4, ALIGN);
    l.slots = threads < shape->kv_heads ? threads : shape->kv_heads;
    l.slot_rows = tokens;
    l.bytes = ALIGN + l.blocks_bytes + threads * l.area_bytes +
              l.slots * l.slot_rows * (l.d_width + l.e_width) * 4;
    return l;
}

int64_t ebb_attention_scratch_cpu(const struct ebb_attention_shape *shape, int64_t tokens,
                                  int threads)
{
    return layout_of(shape, tokens, threads).bytes;
}

/* ---- a run ---- */

struct run {
    const struct ebb_op_env *env;
    const struct ebb_attention_kernels *kernels;
    const struct ebb_attention_shape *shape;
    struct layout layout;
    struct ebb_attention_head head; /* of head 0 of the rows 0 .. */
    const int32_t *doc_starts;
    int64_t docs, tokens;
    int64_t item; /* bytes of an element */
    char *scratch;
    struct block *block;
    int64_t blocks;
    void *dk, *dv;
    int64_t dk_stride, dv_stride;
};

static const struct ebb_attention_kernels *best_kernels(void)
{
    int set = 0;
    while (!ebb_attention_kernels(set)) set++;
    return ebb_attention_kernels(set);
}

static char *move(const void *data, int64_t bytes)
{
    return data ? (char *)(uintptr_t)data + bytes : NULL;
}

static struct ebb_attention_area area_of(const struct run *run, int thread)
{
    const int64_t p = run->layout.d_width, r = run->layout.e_width, block = EBB_ATTENTION_BLOCK;
    float *at = (float *)(void *)(run->scratch + run->layout.blocks_bytes +
                                  thread * run->layout.area_bytes);
    struct ebb_attention_area a;
    a.row = at;
    a.q_turned = a.row + 2 * block;
    a.d_o_turned = a.q_turned + p * block;
    a.q = a.d_o_turned + r * block;
    a.d_o = a.q + p * block;
    a.k = a.d_o + r * block;
    a.v = a.k + p * block;
    a.s = a.v + r * block;
    a.ds = a.s + block * block;
    a.sum = a.ds + block * block;
    return a;
}

/* Rows [GROUP, P + R] of the thread's own. */
static float *group_of(const struct run *run, int thread)
{
    const int64_t p = run->layout.d_width, r = run->layout.e_width;
    struct ebb_attention_area a = area_of(run, thread);
    return a.sum + EBB_ATTENTION_BLOCK * (p > r ? p : r);
}

static float *slot_of(const struct run *run, int thread, int64_t kv_head, int64_t start)
{
    const struct layout *l = &run->layout;
    const int threads = run->env->threads;
    float *slots = (float *)(void *)(run->scratch + l->blocks_bytes + threads * l->area_bytes);
    int64_t width = l->d_width + l->e_width;
    bool by_thread = threads <= run->shape->kv_heads;
    return slots + (by_thread ? (thread * l->slot_rows) : (kv_head * l->slot_rows + start)) * width;
}

/* Head `h` of the document that starts at row `start`. */
static struct ebb_attention_head head_of(const struct run *run, int64_t h, int64_t start,
                                         int64_t rows)
{
    const struct ebb_attention_shape *shape = run->shape;
    const int64_t kv = h / (shape->heads / shape->kv_heads);
    const int64_t item = run->item;
    struct ebb_attention_head head = run->head;
    head.queries = head.keys = rows;
    head.q = move(head.q, (start * head.q_stride + h * shape->qk_dim) * item);
    head.k = move(head.k, (start * head.k_stride + kv * shape->qk_dim) * item);
    head.v = move(head.v, (start * head.v_stride + kv * shape->v_dim) * item);
    head.o = move(head.o, (start * head.o_stride + h * shape->v_dim) * item);
    head.d_o = move(head.d_o, (start * head.d_o_stride + h * shape->v_dim) * item);
    head.dq = move(head.dq, (start * head.dq_stride + h * shape->qk_dim) * item);
    if (head.lse) head.lse += start * head.lse_stride + h;
    return head;
}

/* ---- checks ---- */

static enum ebb_status check_docs(const struct run *run, const struct ebb_view *view,
                                  const char *op)
{
    const struct ebb_op_env *env = run->env;
    EBB_TRY(ebb_attention_check_view(env, op, "doc_starts", view, EBB_I32, 1, view->cols));
    bool good = run->docs >= 0 && run->docs < view->cols && run->doc_starts[0] == 0;
    for (int64_t i = 0; i < run->docs && good; i++)
        good = run->doc_starts[i] <= run->doc_starts[i + 1];
    if (good && run->doc_starts[run->docs] == run->tokens) return EBB_OK;
    return EBB_FAIL(
        env->ctx, EBB_FAILED,
        "%s: the starts of %lld documents (room for %lld) must ascend from 0 to the %lld tokens",
        op, (long long)run->docs, (long long)view->cols - 1, (long long)run->tokens);
}

/* ---- pieces of work ---- */

/* Later blocks have more keys: they go first, so that the last piece to be taken is a small one.
 * Pieces go head by head, so that its keys and values stay in the second-level cache. */
static void make_blocks(struct run *run)
{
    run->blocks = 0;
    for (int64_t doc = 0; doc < run->docs; doc++) {
        int32_t start = run->doc_starts[doc], end = run->doc_starts[doc + 1];
        if (start == end) continue;
        for (int32_t first = (end - start - 1) / EBB_ATTENTION_BLOCK * EBB_ATTENTION_BLOCK;
             first >= 0; first -= EBB_ATTENTION_BLOCK) {
            run->block[run->blocks++] = (struct block){start, end, first};
        }
    }
}

static void set_scratch(struct run *run, const struct ebb_view *scratch, int64_t tokens)
{
    run->layout = layout_of(run->shape, tokens, run->env->threads);
    uintptr_t at = (uintptr_t)ebb_view_data(run->env, scratch);
    run->scratch = (char *)ebb_view_data(run->env, scratch) + (ALIGN - at % ALIGN) % ALIGN;
    run->block = (struct block *)(void *)run->scratch;
}

static enum ebb_status start_run(struct run *run, const struct ebb_op_env *env,
                                 const struct ebb_attention_shape *shape, const struct ebb_view *q,
                                 const struct ebb_view *k, const struct ebb_view *v, const char *op)
{
    memset(run, 0, sizeof *run);
    run->env = env;
    run->shape = shape;
    EBB_TRY(ebb_attention_check_shape(env, shape, op));
    if (q->dtype != EBB_F32 && q->dtype != EBB_BF16) {
        return EBB_FAIL(env->ctx, EBB_FAILED, "%s: q is %s, wanted float32 or bfloat16", op,
                        ebb_dtype_name((enum ebb_dtype)q->dtype));
    }
    run->tokens = ebb_view_rows(env, q);
    EBB_TRY(ebb_attention_check_view(env, op, "q", q, q->dtype, run->tokens,
                                     shape->heads * shape->qk_dim));
    EBB_TRY(ebb_attention_check_view(env, op, "k", k, q->dtype, run->tokens,
                                     shape->kv_heads * shape->qk_dim));
    EBB_TRY(ebb_attention_check_view(env, op, "v", v, q->dtype, run->tokens,
                                     shape->kv_heads * shape->v_dim));
    run->item = ebb_dtype_bytes((enum ebb_dtype)q->dtype);
    run->docs = env->step->docs;
    run->head.shape = shape;
    run->head.dtype = q->dtype;
    run->head.q = ebb_view_data(env, q);
    run->head.k = ebb_view_data(env, k);
    run->head.v = ebb_view_data(env, v);
    run->head.q_stride = q->stride;
    run->head.k_stride = k->stride;
    run->head.v_stride = v->stride;
    return EBB_OK;
}

/* ---- forward ---- */

enum ebb_status ebb_attention_forward_with(const struct ebb_op_env *env,
                                           const struct ebb_attention_forward *args,
                                           const struct ebb_attention_kernels *kernels)
{
    static const char op[] = "attention_forward";
    const struct ebb_attention_shape *shape = &args->shape;
    struct run run;
    EBB_TRY(start_run(&run, env, shape, &args->q, &args->k, &args->v, op));
    if (run.tokens == 0) return EBB_OK;
    run.doc_starts = ebb_view_data(env, &args->doc_starts);
    EBB_TRY(ebb_attention_check_view(env, op, "o", &args->o, args->q.dtype, run.tokens,
                                     shape->heads * shape->v_dim));
    EBB_TRY(
        ebb_attention_check_view(env, op, "lse", &args->lse, EBB_F32, run.tokens, shape->heads));
    EBB_TRY(check_docs(&run, &args->doc_starts, op));
    EBB_TRY(
        ebb_attention_check_scratch(env, op, &args->scratch,
                                    ebb_attention_scratch_cpu(shape, run.tokens, env->threads)));
    set_scratch(&run, &args->scratch, run.tokens);
    make_blocks(&run);
    run.kernels = kernels;
    run.head.o = ebb_view_data(env, &args->o);
    run.head.o_stride = args->o.stride;
    run.head.lse = ebb_view_data(env, &args->lse);
    run.head.lse_stride = args->lse.stride;
    const int64_t pieces = run.blocks * shape->heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(env->threads)
    for (int64_t piece = 0; piece < pieces; piece++) {
        struct ebb_attention_area area = area_of(&run, omp_get_thread_num());
        struct block b = run.block[piece % run.blocks];
        struct ebb_attention_head head =
            head_of(&run, piece / run.blocks, b.start, b.end - b.start);
        run.kernels->forward(&head, &area, b.first);
    }
    return EBB_OK;
}

enum ebb_status ebb_attention_forward_cpu(const struct ebb_op_env *env,
                                          const struct ebb_attention_forward *args)
{
    return ebb_attention_forward_with(env, args, best_kernels());
}

/* ---- backward ---- */

static void store_keys(const struct run *run, int64_t kv_head, int64_t row, int64_t rows,
                       const float *dk, const float *dv)
{
    const struct ebb_attention_shape *shape = run->shape;
    const int dtype = run->head.dtype;
    run->kernels->store(dtype,
                        move(run->dk, (row * run->dk_stride + kv_head * shape->qk_dim) * run->item),
                        run->dk_stride, dk, run->layout.d_width, rows, shape->qk_dim);
    run->kernels->store(dtype,
                        move(run->dv, (row * run->dv_stride + kv_head * shape->v_dim) * run->item),
                        run->dv_stride, dv, run->layout.e_width, rows, shape->v_dim);
}

/* Everything of one kv head of one document. */
static void whole_piece(const struct run *run, int64_t doc, int64_t kv_head)
{
    const int thread = omp_get_thread_num();
    const int64_t start = run->doc_starts[doc], rows = run->doc_starts[doc + 1] - start;
    const int64_t each = run->shape->heads / run->shape->kv_heads;
    struct ebb_attention_area area = area_of(run, thread);
    float *dk = slot_of(run, thread, kv_head, start);
    float *dv = dk + rows * run->layout.d_width;
    memset(dk, 0, (size_t)(rows * (run->layout.d_width + run->layout.e_width)) * sizeof *dk);
    for (int64_t h = kv_head * each; h < (kv_head + 1) * each; h++) {
        struct ebb_attention_head head = head_of(run, h, start, rows);
        for (int64_t first = 0; first < rows; first += EBB_ATTENTION_BLOCK) {
            run->kernels->backward(&head, &area, first, 0, rows, dk, dv);
        }
    }
    store_keys(run, kv_head, start, rows, dk, dv);
}

/* dk and dv of a group of keys. */
static void keys_piece(const struct run *run, struct block b, int64_t kv_head)
{
    const int thread = omp_get_thread_num();
    const int64_t all = b.end - b.start;
    const int64_t rows = all - b.first < GROUP ? all - b.first : GROUP;
    const int64_t each = run->shape->heads / run->shape->kv_heads;
    const int64_t window = run->shape->window;
    int64_t end =
        window > 0 && b.first + rows - 1 + window < all ? b.first + rows - 1 + window : all;
    struct ebb_attention_area area = area_of(run, thread);
    float *dk = group_of(run, thread);
    float *dv = dk + rows * run->layout.d_width;
    memset(dk, 0, (size_t)(rows * (run->layout.d_width + run->layout.e_width)) * sizeof *dk);
    for (int64_t h = kv_head * each; h < (kv_head + 1) * each; h++) {
        struct ebb_attention_head head = head_of(run, h, b.start, all);
        head.dq = NULL;
        for (int64_t first = b.first; first < end; first += EBB_ATTENTION_BLOCK) {
            run->kernels->backward(&head, &area, first, b.first, b.first + rows, dk, dv);
        }
    }
    store_keys(run, kv_head, b.start + b.first, rows, dk, dv);
}

/* dq of a block of queries. */
static void queries_piece(const struct run *run, struct block b, int64_t h)
{
    struct ebb_attention_area area = area_of(run, omp_get_thread_num());
    struct ebb_attention_head head = head_of(run, h, b.start, b.end - b.start);
    run->kernels->backward(&head, &area, b.first, 0, b.end - b.start, NULL, NULL);
}

/* Whether five products a tile in pieces of whole (document, kv head)s end sooner than seven evenly
 * spread ones. */
static bool one_sweep_is_faster(const struct run *run, int threads)
{
    double total = 0, largest = 0;
    const double kv_heads = (double)run->shape->kv_heads;
    for (int64_t doc = 0; doc < run->docs; doc++) {
        double rows = run->doc_starts[doc + 1] - run->doc_starts[doc];
        double cost = rows * (rows + EBB_ATTENTION_BLOCK);
        total += cost * kv_heads;
        largest = cost > largest ? cost : largest;
    }
    double even = total / threads;
    double one_document = (double)((run->shape->kv_heads + threads - 1) / threads) * largest;
    double longest = run->docs == 1 ? one_document : even + largest * (threads - 1) / threads;
    return 5 * longest <= 7 * even;
}

static void run_one_sweep(const struct run *run)
{
    const int64_t kv_heads = run->shape->kv_heads, pieces = run->docs * kv_heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(run->env->threads)
    for (int64_t piece = 0; piece < pieces; piece++)
        whole_piece(run, piece / kv_heads, piece % kv_heads);
}

static void run_two_sweeps(const struct run *run)
{
    const int64_t blocks = run->blocks, key_pieces = blocks * run->shape->kv_heads;
    const int64_t pieces = key_pieces + blocks * run->shape->heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(run->env->threads)
    for (int64_t piece = 0; piece < pieces; piece++) {
        if (piece >= key_pieces) {
            queries_piece(run, run->block[(piece - key_pieces) % blocks],
                          (piece - key_pieces) / blocks);
        } else {
            struct block b = run->block[piece % blocks];
            if (b.first % GROUP == 0) keys_piece(run, b, piece / blocks);
        }
    }
}

enum ebb_status ebb_attention_backward_with(const struct ebb_op_env *env,
                                            const struct ebb_attention_backward *args,
                                            const struct ebb_attention_kernels *kernels)
{
    static const char op[] = "attention_backward";
    const struct ebb_attention_shape *shape = &args->shape;
    const int64_t q_cols = shape->heads * shape->qk_dim, o_cols = shape->heads * shape->v_dim;
    const int64_t k_cols = shape->kv_heads * shape->qk_dim, v_cols = shape->kv_heads * shape->v_dim;
    struct run run;
    EBB_TRY(start_run(&run, env, shape, &args->q, &args->k, &args->v, op));
    if (run.tokens == 0) return EBB_OK;
    run.doc_starts = ebb_view_data(env, &args->doc_starts);
    EBB_TRY(ebb_attention_check_view(env, op, "o", &args->o, args->q.dtype, run.tokens, o_cols));
    EBB_TRY(
        ebb_attention_check_view(env, op, "lse", &args->lse, EBB_F32, run.tokens, shape->heads));
    EBB_TRY(
        ebb_attention_check_view(env, op, "d_o", &args->d_o, args->q.dtype, run.tokens, o_cols));
    EBB_TRY(ebb_attention_check_view(env, op, "dq", &args->dq, args->q.dtype, run.tokens, q_cols));
    EBB_TRY(ebb_attention_check_view(env, op, "dk", &args->dk, args->q.dtype, run.tokens, k_cols));
    EBB_TRY(ebb_attention_check_view(env, op, "dv", &args->dv, args->q.dtype, run.tokens, v_cols));
    EBB_TRY(check_docs(&run, &args->doc_starts, op));
    EBB_TRY(
        ebb_attention_check_scratch(env, op, &args->scratch,
                                    ebb_attention_scratch_cpu(shape, run.tokens, env->threads)));
    set_scratch(&run, &args->scratch, run.tokens);
    make_blocks(&run);
    run.kernels = kernels;
    run.head.o = ebb_view_data(env, &args->o);
    run.head.o_stride = args->o.stride;
    run.head.lse = ebb_view_data(env, &args->lse);
    run.head.lse_stride = args->lse.stride;
    run.head.d_o = ebb_view_data(env, &args->d_o);
    run.head.d_o_stride = args->d_o.stride;
    run.head.dq = ebb_view_data(env, &args->dq);
    run.head.dq_stride = args->dq.stride;
    run.dk = ebb_view_data(env, &args->dk);
    run.dk_stride = args->dk.stride;
    run.dv = ebb_view_data(env, &args->dv);
    run.dv_stride = args->dv.stride;
    if (one_sweep_is_faster(&run, env->threads)) {
        run_one_sweep(&run);
    } else {
        run_two_sweeps(&run);
    }
    return EBB_OK;
}

enum ebb_status ebb_attention_backward_cpu(const struct ebb_op_env *env,
                                           const struct ebb_attention_backward *args)
{
    return ebb_attention_backward_with(env, args, best_kernels());
}

/* ---- decoding ---- */

/* One token: the heads that share a kv head are its queries, so that keys and values are read once.
 * All stand at the last key; without a window a query further on sees the same keys. */
static void decode_one(const struct run *run, int64_t keys)
{
    const struct ebb_attention_shape *shape = run->shape;
    const int64_t each = shape->heads / shape->kv_heads, kv_heads = shape->kv_heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(run->env->threads)
    for (int64_t kv = 0; kv < kv_heads; kv++) {
        struct ebb_attention_area area = area_of(run, omp_get_thread_num());
        struct ebb_attention_head head = head_of(run, kv * each, 0, each);
        head.keys = keys;
        head.offset = keys - 1;
        head.q_stride = shape->qk_dim;
        head.o_stride = shape->v_dim;
        run->kernels->forward(&head, &area, 0);
    }
}

static void decode_many(const struct run *run, int64_t cached)
{
    const int64_t blocks = (run->tokens + EBB_ATTENTION_BLOCK - 1) / EBB_ATTENTION_BLOCK;
    const int64_t pieces = blocks * run->shape->heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(run->env->threads)
    for (int64_t piece = 0; piece < pieces; piece++) {
        struct ebb_attention_area area = area_of(run, omp_get_thread_num());
        struct ebb_attention_head head = head_of(run, piece / blocks, 0, run->tokens);
        head.keys = cached + run->tokens;
        head.offset = cached;
        run->kernels->forward(&head, &area, (blocks - 1 - piece % blocks) * EBB_ATTENTION_BLOCK);
    }
}

enum ebb_status ebb_attention_cached_cpu(const struct ebb_op_env *env,
                                         const struct ebb_attention_cached *args)
{
    static const char op[] = "attention_cached";
    const struct ebb_attention_shape *shape = &args->shape;
    const int64_t cached = env->step->cached;
    struct run run;
    EBB_TRY(start_run(&run, env, shape, &args->q, &args->k, &args->v, op));
    if (run.tokens == 0) return EBB_OK;
    if (cached < 0 || cached + run.tokens > args->k.rows || cached + run.tokens > args->v.rows) {
        return EBB_FAIL(
            env->ctx, EBB_FAILED,
            "%s: %lld cached tokens and %lld new ones do not fit the caches of %lld and %lld rows",
            op, (long long)cached, (long long)run.tokens, (long long)args->k.rows,
            (long long)args->v.rows);
    }
    EBB_TRY(ebb_attention_check_view(env, op, "o", &args->o, args->q.dtype, run.tokens,
                                     shape->heads * shape->v_dim));
    EBB_TRY(
        ebb_attention_check_scratch(env, op, &args->scratch,
                                    ebb_attention_scratch_cpu(shape, run.tokens, env->threads)));
    set_scratch(&run, &args->scratch, run.tokens);
    run.kernels = best_kernels();
    run.head.o = ebb_view_data(env, &args->o);
    run.head.o_stride = args->o.stride;
    if (run.tokens == 1 && shape->window == 0 &&
        shape->heads / shape->kv_heads <= EBB_ATTENTION_BLOCK) {
        decode_one(&run, cached + 1);
    } else {
        decode_many(&run, cached);
    }
    return EBB_OK;
}
