/* Attention of a micro-batch through cuDNN: where its operands and its workspace lie, the calls for
 * its documents (op/attention_slots.c says which), and the backward of long documents block by
 * block.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

#include <inttypes.h>
#include <string.h>

#include <cuda_runtime_api.h>

/* ---- what an op works on ---- */

/* Where an operand's rows are; `line`: elements from token to token. */
struct operand {
    char *at;
    int64_t line, head; /* head: elements from head to head */
    int64_t bytes;      /* of an element */
    bool of_keys;
};

struct work {
    struct ebb_cudnn *dnn;
    struct ebb_ctx *ctx;
    const struct ebb_op_env *env; /* NULL while plans are prepared: nothing is run */
    void *stream;
    struct ebb_cudnn_frame frame;
    struct ebb_cudnn_input input;
    struct ebb_cudnn_sizes sizes;
    const int32_t *doc_starts; /* on the device */
    struct operand operand[EBB_CUDNN_DATA];
    char *scratch;
    int64_t scratch_bytes, taken;
    struct ebb_cudnn_lengths lengths;
    float *delta, *sum; /* of a call */
    int64_t first_kv;   /* of the group of heads that a call takes */
    /* in blocks; struct ebb_cudnn_sizes says what they are */
    char *part[3];
    float *whole[3];
};

static enum ebb_status cuda(const struct work *w, int error, const char *what)
{
    if (error == (int)cudaSuccess) return EBB_OK;
    return EBB_FAIL(w->ctx, EBB_DEVICE, "the GPU failed at attention's %s: %s", what,
                    cudaGetErrorString((cudaError_t)error));
}

/* NULL where nothing is needed. */
static void *take(struct work *w, int64_t bytes)
{
    char *at = w->scratch + w->taken;
    if (bytes == 0) return NULL;
    w->taken += (bytes + EBB_CUDNN_ALIGN - 1) / EBB_CUDNN_ALIGN * EBB_CUDNN_ALIGN;
    return at;
}

static void take_all(struct work *w, const struct ebb_view *scratch)
{
    w->scratch = ebb_view_data(w->env, scratch);
    w->scratch_bytes = w->scratch == NULL ? 0 : scratch->cols;
    w->taken =
        (int64_t)((EBB_CUDNN_ALIGN - (uintptr_t)w->scratch % EBB_CUDNN_ALIGN) % EBB_CUDNN_ALIGN);
    for (int i = 0; i < EBB_CUDNN_DATA; i++)
        w->lengths.offsets[i] = take(w, EBB_CUDNN_OFFSETS_BYTES);
    w->lengths.queries = take(w, EBB_CUDNN_LENGTHS_BYTES);
    w->lengths.keys = take(w, EBB_CUDNN_LENGTHS_BYTES);
    w->delta = take(w, w->sizes.delta);
    w->sum = take(w, w->sizes.sum);
    for (int k = 0; k < 3; k++) {
        w->part[k] = take(w, w->sizes.part[k]);
        w->whole[k] = take(w, w->sizes.whole[k]);
    }
}

/* ---- calls ---- */

static struct ebb_cudnn_key key_of(const struct work *w, const struct ebb_cudnn_form *form)
{
    const int64_t dim = w->frame.shape->qk_dim;
    struct ebb_cudnn_key key;
    memset(&key, 0, sizeof key);
    key.batch = form->batch;
    key.slot = form->slot;
    key.heads = w->sizes.heads;
    key.kv_heads = w->sizes.kv_heads;
    key.dim = dim;
    key.ragged = form->ragged;
    key.causal = form->causal;
    key.backward = w->frame.backward;
    key.deterministic = w->frame.backward && w->frame.options->deterministic;
    for (int i = 0; i < EBB_CUDNN_DATA; i++) key.stride[i] = w->operand[i].line;
    if (!form->piece) return key;
    key.stride[EBB_CUDNN_DQ] = key.heads * dim;
    key.stride[EBB_CUDNN_DK] = key.stride[EBB_CUDNN_DV] = key.kv_heads * dim;
    return key;
}

/* The group's heads of an operand at a token. */
static void *at_token(const struct work *w, int which, int64_t token)
{
    const struct operand *o = &w->operand[which];
    int64_t each = w->frame.shape->heads / w->frame.shape->kv_heads;
    int64_t first = o->of_keys ? w->first_kv : w->first_kv * each;
    if (o->at == NULL) return NULL;
    return o->at + (token * o->line + first * o->head) * o->bytes;
}

static struct ebb_cudnn_call call_of(const struct work *w)
{
    struct ebb_cudnn_call call;
    memset(&call, 0, sizeof call);
    for (int i = 0; i < EBB_CUDNN_DATA; i++) {
        call.data[i] = at_token(w, i, 0);
        call.offsets[i] = w->lengths.offsets[i];
    }
    call.queries = w->lengths.queries;
    call.keys = w->lengths.keys;
    call.delta = w->delta;
    call.sum = w->sum;
    call.workspace = w->scratch + w->taken;
    call.workspace_bytes = w->scratch_bytes - w->taken;
    call.scale = w->frame.shape->scale;
    return call;
}

static enum ebb_status run_plain(const struct work *w, const struct ebb_cudnn_form *form)
{
    struct ebb_cudnn_key key = key_of(w, form);
    struct ebb_cudnn_call call = call_of(w);
    return ebb_cudnn_run(w->dnn, &key, &call, w->stream);
}

static enum ebb_status run_docs(struct work *w, const struct ebb_cudnn_form *form,
                                const struct ebb_cudnn_docs *docs)
{
    struct ebb_cudnn_key key = key_of(w, form);
    struct ebb_cudnn_call call = call_of(w);
    const int32_t *starts = w->input.starts;
    w->lengths.first = starts == NULL ? 0 : starts[docs->from[0]];
    for (int i = 0; i < EBB_CUDNN_DATA; i++) {
        call.data[i] = at_token(w, i, w->lengths.first);
        w->lengths.stride[i] = key.stride[i];
    }
    EBB_TRY(cuda(w, ebb_cudnn_fill_docs(w->doc_starts, docs, &w->lengths, w->stream),
                 "document lengths"));
    return ebb_cudnn_run(w->dnn, &key, &call, w->stream);
}

/* ---- backward in blocks ---- */

/* A long document: its first token, its tokens. */
struct doc {
    int64_t start, rows;
};

/* Rows of the block from i on. */
static int64_t block_rows(const struct work *w, const struct doc *doc, int64_t i)
{
    return doc->rows - i < w->sizes.block ? doc->rows - i : w->sizes.block;
}

static enum ebb_status add_parts(const struct work *w, int64_t queries, int64_t j, int64_t keys)
{
    for (int k = 0; k < 3; k++) {
        int64_t cols = (k == 0 ? w->sizes.heads : w->sizes.kv_heads) * w->frame.shape->qk_dim;
        float *sum = w->whole[k] + (k == 0 ? 0 : j * cols);
        EBB_TRY(cuda(w,
                     ebb_cudnn_add(sum, cols, w->part[k], cols, k == 0 ? queries : keys, cols,
                                   w->stream),
                     "sums of parts"));
    }
    return EBB_OK;
}

/* Queries from i on with keys from j on. */
static enum ebb_status run_block(struct work *w, const struct ebb_cudnn_form *piece,
                                 const struct doc *doc, int64_t i, int64_t j)
{
    int64_t queries = block_rows(w, doc, i), keys = block_rows(w, doc, j);
    struct ebb_cudnn_form form = *piece;
    form.causal = i == j;
    struct ebb_cudnn_key key = key_of(w, &form);
    struct ebb_cudnn_call call = call_of(w);
    for (int k = 0; k < EBB_CUDNN_DATA; k++) {
        call.data[k] = at_token(w, k, doc->start + (w->operand[k].of_keys ? j : i));
        w->lengths.stride[k] = key.stride[k];
    }
    for (int k = 0; k < 3; k++) call.data[EBB_CUDNN_DQ + k] = w->part[k];
    EBB_TRY(cuda(w, ebb_cudnn_fill_piece(queries, keys, &w->lengths, w->stream), "lengths"));
    EBB_TRY(ebb_cudnn_run(w->dnn, &key, &call, w->stream));
    return add_parts(w, queries, j, keys);
}

static enum ebb_status clear(const struct work *w, float *sum, int64_t count)
{
    return cuda(w,
                (int)cudaMemsetAsync(sum, 0, (size_t)count * sizeof *sum, (cudaStream_t)w->stream),
                "clearing of sums");
}

/* Sum k (dq, dk, dv) to its rows from a token on. */
static enum ebb_status store(const struct work *w, int k, int64_t token, int64_t rows)
{
    int64_t cols = (k == 0 ? w->sizes.heads : w->sizes.kv_heads) * w->frame.shape->qk_dim;
    return cuda(w,
                ebb_cudnn_store(at_token(w, EBB_CUDNN_DQ + k, token),
                                w->operand[EBB_CUDNN_DQ + k].line, w->whole[k], cols, rows, cols,
                                w->stream),
                "gradients");
}

static enum ebb_status run_blocks(struct work *w, const struct ebb_cudnn_form *piece,
                                  const struct doc *doc)
{
    const int64_t block = w->sizes.block, dim = w->frame.shape->qk_dim;
    for (int k = 1; k < 3; k++) EBB_TRY(clear(w, w->whole[k], doc->rows * w->sizes.kv_heads * dim));
    for (int64_t i = 0; i < doc->rows; i += block) {
        int64_t queries = block_rows(w, doc, i);
        EBB_TRY(clear(w, w->whole[0], queries * w->sizes.heads * dim));
        for (int64_t j = 0; j <= i; j += block) EBB_TRY(run_block(w, piece, doc, i, j));
        EBB_TRY(store(w, 0, doc->start + i, queries));
    }
    for (int k = 1; k < 3; k++) EBB_TRY(store(w, k, doc->start, doc->rows));
    return EBB_OK;
}

/* ---- one op ---- */

static enum ebb_status run_form(void *user, const struct ebb_cudnn_form *form,
                                const struct ebb_cudnn_docs *docs)
{
    struct work *w = user;
    if (!form->ragged) return run_plain(w, form);
    if (!form->piece) return run_docs(w, form, docs);
    const int32_t *at = w->input.starts + docs->from[0];
    const struct doc doc = {at[0], at[1] - at[0]};
    return run_blocks(w, form, &doc);
}

static enum ebb_status check_work(const struct work *w)
{
    char why[128];
    const struct ebb_attention_shape *shape = w->frame.shape;
    /* Where no starts are known, a call begins at the matrix's start. */
    const bool whole = w->env != NULL && w->input.starts == NULL;
    const int64_t rows = w->frame.rows,
                  reach = whole || rows < EBB_CUDNN_SPAN ? rows : EBB_CUDNN_SPAN;
    if (!ebb_cudnn_takes(shape, EBB_BF16, why, sizeof why))
        return EBB_FAIL(w->ctx, EBB_UNSUPPORTED, "cuDNN cannot run this attention: %s", why);
    for (int i = 0; i < EBB_CUDNN_DATA; i++) {
        const struct operand *o = &w->operand[i];
        int64_t bits = o->bytes == 2 ? (int64_t)((uintptr_t)o->at % 16) + o->line * 2 % 16 : 0;
        if (bits != 0)
            return EBB_FAIL(w->ctx, EBB_UNSUPPORTED,
                            "cuDNN's attention wants rows aligned to 16 bytes: operand %d has a "
                            "stride of %" PRId64 " elements",
                            i, o->line);
        if (reach * o->line > INT32_MAX)
            return EBB_FAIL(w->ctx, EBB_UNSUPPORTED,
                            "cuDNN's attention is not to be trusted with matrices of more than "
                            "2147483647 elements: %" PRId64 " tokens with %" PRId64
                            " elements from one to the next are too many\n"
                            "try:   a max_length of up to %" PRId64
                            ", or attn_implementation: plain",
                            reach, o->line, INT32_MAX / o->line);
    }
    if (w->taken <= w->scratch_bytes) return EBB_OK;
    return EBB_FAIL(w->ctx, EBB_UNSUPPORTED,
                    "attention through cuDNN wants more than %" PRId64 " bytes of scratch and was "
                    "given %" PRId64,
                    w->taken, w->scratch_bytes);
}

static void put(struct work *w, int which, const struct ebb_view *view, int64_t head, bool of_keys)
{
    w->operand[which] = (struct operand){.at = w->env == NULL ? NULL : ebb_view_data(w->env, view),
                                         .line = view->stride,
                                         .head = head,
                                         .bytes = ebb_dtype_bytes((enum ebb_dtype)view->dtype),
                                         .of_keys = of_keys};
}

static struct work start(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                         const struct ebb_cudnn_options *options,
                         const struct ebb_attention_shape *shape)
{
    struct work w;
    memset(&w, 0, sizeof w);
    w.dnn = dnn;
    w.ctx = ebb_cudnn_ctx(dnn);
    w.env = env;
    w.frame.shape = shape;
    w.frame.options = options;
    if (env != NULL) w.stream = env->stream;
    return w;
}

static void put_forward(struct work *w, const struct ebb_attention_forward *args)
{
    const int64_t d = args->shape.qk_dim;
    w->frame.rows = args->q.rows;
    put(w, EBB_CUDNN_Q, &args->q, d, false);
    put(w, EBB_CUDNN_K, &args->k, d, true);
    put(w, EBB_CUDNN_V, &args->v, d, true);
    put(w, EBB_CUDNN_O, &args->o, d, false);
    put(w, EBB_CUDNN_LSE, &args->lse, 1, false);
}

static void put_backward(struct work *w, const struct ebb_attention_backward *args)
{
    const int64_t d = args->shape.qk_dim;
    w->frame.backward = true;
    w->frame.rows = args->q.rows;
    put(w, EBB_CUDNN_Q, &args->q, d, false);
    put(w, EBB_CUDNN_K, &args->k, d, true);
    put(w, EBB_CUDNN_V, &args->v, d, true);
    put(w, EBB_CUDNN_O, &args->o, d, false);
    put(w, EBB_CUDNN_LSE, &args->lse, 1, false);
    put(w, EBB_CUDNN_DO, &args->d_o, d, false);
    put(w, EBB_CUDNN_DQ, &args->dq, d, false);
    put(w, EBB_CUDNN_DK, &args->dk, d, true);
    put(w, EBB_CUDNN_DV, &args->dv, d, true);
}

/* ---- running ---- */

static void set_longest(struct work *w)
{
    struct ebb_cudnn_input *in = &w->input;
    in->longest = in->starts == NULL ? w->env->step->longest : 0;
    for (int64_t i = 0; in->starts != NULL && i < in->docs; i++) {
        int64_t rows = in->starts[i + 1] - in->starts[i];
        if (rows > in->longest) in->longest = rows;
    }
}

static enum ebb_status run_all(struct work *w, const int32_t *starts, const struct ebb_view *q,
                               const struct ebb_view *scratch)
{
    const int64_t tokens = ebb_view_rows(w->env, q);
    const int32_t lone[2] = {0, (int32_t)tokens};
    if (tokens == 0) return EBB_OK;
    w->input.docs = w->env->step->docs;
    w->input.starts = w->input.docs == 1 ? lone : starts;
    set_longest(w);
    w->sizes = ebb_cudnn_sizes(&w->frame, w->input.longest);
    take_all(w, scratch);
    EBB_TRY(check_work(w));
    if (w->input.starts == NULL && w->sizes.part[0] > 0)
        return EBB_FAIL(w->ctx, EBB_UNSUPPORTED,
                        "attention of documents above %" PRId64 " tokens needs their starts on the "
                        "host",
                        w->sizes.block);
    for (w->first_kv = 0; w->first_kv < w->frame.shape->kv_heads; w->first_kv += w->sizes.kv_heads)
        EBB_TRY(ebb_cudnn_split(&w->frame, &w->input, run_form, w));
    return EBB_OK;
}

enum ebb_status ebb_cudnn_forward(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                                  const struct ebb_cudnn_options *options, const int32_t *starts,
                                  const struct ebb_attention_forward *args)
{
    struct work w = start(dnn, env, options, &args->shape);
    w.doc_starts = ebb_view_data(env, &args->doc_starts);
    put_forward(&w, args);
    return run_all(&w, starts, &args->q, &args->scratch);
}

enum ebb_status ebb_cudnn_backward(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                                   const struct ebb_cudnn_options *options, const int32_t *starts,
                                   const struct ebb_attention_backward *args)
{
    struct work w = start(dnn, env, options, &args->shape);
    w.doc_starts = ebb_view_data(env, &args->doc_starts);
    put_backward(&w, args);
    return run_all(&w, starts, &args->q, &args->scratch);
}

/* ---- preparing ---- */

enum { KEYS = 256 /* more than the slots of 2^31 tokens have forms */ };

struct keys {
    const struct work *w;
    int count;
    struct ebb_cudnn_key key[KEYS];
};

static enum ebb_status add_key(void *user, const struct ebb_cudnn_form *form,
                               const struct ebb_cudnn_docs *docs)
{
    struct keys *keys = user;
    (void)docs;
    EBB_ASSERT(keys->count < KEYS);
    keys->key[keys->count++] = key_of(keys->w, form);
    return EBB_OK;
}

static enum ebb_status prepare(struct work *w, int64_t docs, int64_t longest, const char *what)
{
    struct keys keys = {.w = w};
    w->sizes = ebb_cudnn_sizes(&w->frame, longest);
    EBB_TRY(check_work(w));
    EBB_TRY(ebb_cudnn_forms(&w->frame, docs, longest, add_key, &keys));
    return ebb_cudnn_prepare(w->dnn, keys.key, keys.count, w->sizes.plan, what);
}

enum ebb_status ebb_cudnn_prepare_forward(struct ebb_cudnn *dnn,
                                          const struct ebb_cudnn_options *options, int64_t docs,
                                          int64_t longest, const struct ebb_attention_forward *args)
{
    struct work w = start(dnn, NULL, options, &args->shape);
    put_forward(&w, args);
    return prepare(&w, docs, longest, "forward");
}

enum ebb_status ebb_cudnn_prepare_backward(struct ebb_cudnn *dnn,
                                           const struct ebb_cudnn_options *options, int64_t docs,
                                           int64_t longest,
                                           const struct ebb_attention_backward *args)
{
    struct work w = start(dnn, NULL, options, &args->shape);
    put_backward(&w, args);
    return prepare(&w, docs, longest, "backward");
}
