/* What ops do, counted from their arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/work.h"

#include <stdio.h>

#include "op/attention.h"
#include "op/dropout.h"
#include "op/matmul.h"
#include "op/rmsnorm.h"

/* Ops whose views are not simply passed through once. A letter a view:
 *   .  its live rows, by its access         1  its live rows, once whatever its access
 *   t  a row for each row of `main`         u  the same, read and written
 *   e  an element for each row of `main`    -  nothing */
struct lookup {
    enum ebb_op op;
    int main;
    const char *how;
};

static const struct lookup lookups[] = {
    {EBB_OP_gather_rows, 2, "te."},
    {EBB_OP_scatter_rows, 0, ".et"},
    {EBB_OP_store_rows, 0, ".t"},
    {EBB_OP_embed_forward, 2, "et."},
    {EBB_OP_embed_backward, 1, "e.u-"},
    {EBB_OP_rotary_forward, 0, ".et..."},
    {EBB_OP_rotary_backward, 5, ".et......"},
    {EBB_OP_cross_entropy, 0, "1ee.--"},
    {EBB_OP_distill, 0, "1.ee.--"},
    {EBB_OP_distill_topk, 0, "1..ee.--"},
    {EBB_OP_label_logprob, 0, ".eee"},
    {EBB_OP_label_logprob_backward, 0, "1eee."},
};

static const struct lookup *lookup_of(enum ebb_op op)
{
    for (size_t i = 0; i < sizeof lookups / sizeof lookups[0]; i++)
        if (lookups[i].op == op) return &lookups[i];
    return NULL;
}

/* ---- bytes ---- */

static double view_bytes(const struct ebb_op_env *env, const struct ebb_view *view)
{
    if (view->tensor < 0) return 0;
    return (double)(ebb_view_rows(env, view) * view->cols *
                    ebb_dtype_bytes((enum ebb_dtype)view->dtype));
}

static double looked_up_bytes(const struct ebb_view *view, int64_t rows, bool whole_row)
{
    if (view->tensor < 0) return 0;
    return (double)(rows * (whole_row ? view->cols : 1) *
                    ebb_dtype_bytes((enum ebb_dtype)view->dtype));
}

static double count_bytes(const struct ebb_op_env *env, enum ebb_op op, const void *args)
{
    const struct ebb_op_info *info = ebb_op_info(op);
    const struct ebb_view *views = (const struct ebb_view *)args;
    const struct lookup *lookup = lookup_of(op);
    int64_t rows = lookup ? ebb_view_rows(env, &views[lookup->main]) : 0;
    double bytes = 0;
    for (int i = 0; i < info->views; i++) {
        const struct ebb_view *view = &views[i];
        int how = lookup ? lookup->how[i] : '.';
        if (how == '-' || (how == '.' && view->dtype == EBB_U8)) continue;
        if (how == 'e' || how == 't')
            bytes += looked_up_bytes(view, rows, how == 't');
        else if (how == 'u')
            bytes += 2 * looked_up_bytes(view, rows, true);
        else
            bytes += view_bytes(env, view) * (how == '.' && info->access[i] == '+' ? 2 : 1);
    }
    return bytes;
}

/* What the list says may be added to, and here is only set. */
static double set_only_bytes(const struct ebb_op_env *env, enum ebb_op op, const void *args)
{
    if (op == EBB_OP_matmul) {
        const struct ebb_matmul *m = (const struct ebb_matmul *)args;
        return m->accumulate ? 0 : view_bytes(env, &m->y);
    }
    if (op == EBB_OP_rmsnorm_backward) {
        const struct ebb_rmsnorm_backward *norm = (const struct ebb_rmsnorm_backward *)args;
        return norm->overwrite ? view_bytes(env, &norm->dx) : 0;
    }
    if (op == EBB_OP_dropout) {
        const struct ebb_dropout *dropout = (const struct ebb_dropout *)args;
        return dropout->accumulate ? 0 : view_bytes(env, &dropout->y);
    }
    return 0;
}

/* Of the caches only what there is. */
static double unfilled_bytes(const struct ebb_op_env *env, const struct ebb_attention_cached *a)
{
    int64_t empty = a->k.rows - env->step->cached - env->step->tokens;
    if (empty <= 0) return 0;
    return looked_up_bytes(&a->k, empty, true) + looked_up_bytes(&a->v, empty, true);
}

/* ---- operations ---- */

static double matmul_flops(const struct ebb_op_env *env, const struct ebb_matmul *m)
{
    double live = (double)ebb_view_rows(env, &m->a), n = (double)m->y.cols;
    return 2 * live * (double)m->a.cols * n;
}

/* Pairs of a query and a key, of queries [first, end) of a document. */
static double pairs(int64_t first, int64_t end, int64_t window)
{
    double count = 0;
    int64_t full = window > 0 && window < end ? window : end; /* queries that see all before */
    if (first < full) count = (double)(first + 1 + full) * (double)(full - first) / 2;
    int64_t capped = end - (first > full ? first : full);
    return count + (double)capped * (double)window;
}

static double document_pairs(const struct ebb_op_env *env, const struct ebb_attention_shape *shape)
{
    double count = 0;
    EBB_ASSERT(env->doc_starts != NULL);
    for (int64_t d = 0; d < env->step->docs; d++)
        count += pairs(0, env->doc_starts[d + 1] - env->doc_starts[d], shape->window);
    return count;
}

static double count_flops(const struct ebb_op_env *env, enum ebb_op op, const void *args)
{
    if (op == EBB_OP_matmul) return matmul_flops(env, (const struct ebb_matmul *)args);
    if (op == EBB_OP_attention_forward) {
        const struct ebb_attention_shape *s = &((const struct ebb_attention_forward *)args)->shape;
        return 2 * (double)(s->heads * (s->qk_dim + s->v_dim)) * document_pairs(env, s);
    }
    if (op == EBB_OP_attention_backward) {
        const struct ebb_attention_shape *s = &((const struct ebb_attention_backward *)args)->shape;
        return 2 * (double)(s->heads * (3 * s->qk_dim + 2 * s->v_dim)) * document_pairs(env, s);
    }
    if (op == EBB_OP_attention_cached) {
        const struct ebb_attention_shape *s = &((const struct ebb_attention_cached *)args)->shape;
        int64_t cached = env->step->cached;
        return 2 * (double)(s->heads * (s->qk_dim + s->v_dim)) *
               pairs(cached, cached + env->step->tokens, s->window);
    }
    return 0;
}

struct ebb_op_work ebb_op_work(const struct ebb_op_env *env, enum ebb_op op, const void *args)
{
    struct ebb_op_work work = {.flops = count_flops(env, op, args),
                               .bytes = count_bytes(env, op, args) - set_only_bytes(env, op, args)};
    if (op == EBB_OP_attention_cached)
        work.bytes -= unfilled_bytes(env, (const struct ebb_attention_cached *)args);
    return work;
}

/* ---- labels ---- */

static bool is_there(const struct ebb_view *view)
{
    return view->tensor >= 0 && view->rows > 0;
}

/* The view that stands for an op's size: the first one, and where an op is without it (rotary's
 * backward without norms), its main one or the first that is there. */
static const struct ebb_view *label_view(enum ebb_op op, const void *args)
{
    const struct ebb_view *views = (const struct ebb_view *)args;
    const struct lookup *lookup = lookup_of(op);
    if (!is_there(&views[0]) && lookup && is_there(&views[lookup->main]))
        return &views[lookup->main];
    for (int i = 0; i < ebb_op_info(op)->views; i++)
        if (is_there(&views[i])) return &views[i];
    return views;
}

void ebb_op_label(enum ebb_op op, const void *args, char label[EBB_OP_LABEL])
{
    static const char *const forms[] = {"NT", "NN", "TN"};
    if (op != EBB_OP_matmul) {
        const struct ebb_view *view = label_view(op, args);
        snprintf(label, EBB_OP_LABEL, "%s [%lld, %lld]", ebb_op_info(op)->name,
                 (long long)view->rows, (long long)view->cols);
        return;
    }
    const struct ebb_matmul *m = (const struct ebb_matmul *)args;
    int64_t k = m->form == EBB_MATMUL_TN ? m->a.rows : m->a.cols;
    snprintf(label, EBB_OP_LABEL, "matmul %s [%lld, %lld] k %lld%s", forms[m->form],
             (long long)m->y.rows, (long long)m->y.cols, (long long)k,
             m->accumulate        ? " +="
             : m->add.tensor >= 0 ? " + add"
                                  : "");
}
