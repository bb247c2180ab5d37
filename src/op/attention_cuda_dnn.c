/* Attention of a micro-batch through cuDNN: which documents go together, where their workspace
 * lies, and the deterministic backward of long documents block by block.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

enum {
    SLOT_LEAST = 128,
    SLOT_STEP = 4,         /* from one size of slots to the next */
    PLAIN_MULTIPLE = 1024, /* a lone document of whole such pieces gets a graph of its length */
    BLOCK_USUAL = 4096,
    MANY_UNITS = 16384, /* of a call: enough to fill a GPU */
    SLACK = 1 << 20,    /* of a plan: lengths, semaphores, rounding; 17 KiB were seen */
    ALIGN = 256
};

/* ---- what can run ---- */

bool ebb_cudnn_takes(const struct ebb_attention_shape *shape, enum ebb_dtype dtype, char *why,
                     size_t why_bytes)
{
    const char *reason = NULL;
    if (dtype != EBB_BF16)
        reason = "it takes bf16 only";
    else if (shape->qk_dim != shape->v_dim)
        reason = "heads of v must be as large as those of q";
    else if (shape->qk_dim % 8 != 0 || shape->qk_dim > 128)
        reason = "the head size must be a multiple of 8 up to 128";
    else if (shape->kv_heads < 1 || shape->heads % shape->kv_heads != 0)
        reason = "heads must be a multiple of kv heads";
    else if (shape->softcap != 0)
        reason = "it has no softcap";
    else if (shape->window != 0)
        reason = "it has no sliding window";
    if (why != NULL && why_bytes > 0) snprintf(why, why_bytes, "%s", reason ? reason : "");
    return reason == NULL;
}

/* ---- sizes ---- */

static int64_t slot_of(int64_t tokens)
{
    int64_t slot = SLOT_LEAST;
    while (slot < tokens) slot *= SLOT_STEP;
    /* A long document's slot is not much longer than it. */
    while (slot > SLOT_LEAST && slot / 2 >= tokens && slot > 2048) slot /= 2;
    return slot;
}

static int64_t kv_heads_of(const struct ebb_attention_shape *shape,
                           const struct ebb_cudnn_options *options)
{
    return options->kv_heads > 0 ? options->kv_heads : shape->kv_heads;
}

static int64_t block_of(const struct ebb_cudnn_options *options)
{
    return options->block > 0 ? options->block : BLOCK_USUAL;
}

/* Rows of fp32 dq, one for each token of a slot and once more for each part, that a slot costs. */
static int64_t units_of(int64_t slot, int64_t dim, bool deterministic)
{
    int64_t part = dim == 128 ? 256 : 128; /* keys */
    return deterministic ? slot * ((slot + part - 1) / part + 1) : slot;
}

/* Units that a call may take: the largest slot's, or as many as there are tokens and, below
 * MANY_UNITS, twice as many, so that small documents go together. */
static int64_t most_units(int64_t tokens, int64_t longest, int64_t dim, bool deterministic,
                          int64_t block)
{
    int64_t largest = deterministic && longest > block ? block : longest;
    int64_t units = units_of(slot_of(largest), dim, deterministic);
    int64_t together = 2 * tokens > MANY_UNITS ? MANY_UNITS : 2 * tokens;
    if (together < tokens) together = tokens;
    return units > together ? units : together;
}

static int64_t padded(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* As plans of cuDNN 9.19 for sm_90 say: with groups dk and dv of all heads in bf16; deterministic
 * another fp32 dq for each 256 keys (head size 128) or 128. */
static int64_t bytes_of_units(int64_t units, int64_t heads, int64_t dim)
{
    /* Kernels round head sizes up. */
    int64_t width = dim <= 64 ? 64 : 128;
    return units * heads * (width * 4 + 8) + SLACK;
}

/* ---- one op ---- */

/* Where an operand's rows are; `line`: elements from token to token. */
struct operand {
    char *at;
    int64_t line, head; /* head: elements from head to head */
    int64_t bytes;      /* of an element */
    bool of_keys;
};

struct work {
    struct ebb_cudnn *dnn;
    const struct ebb_op_env *env;
    const struct ebb_attention_shape *shape;
    const struct ebb_cudnn_options *options;
    const int32_t *starts, *doc_starts; /* host, device */
    bool backward;
    int64_t tokens, docs, longest;
    struct operand operand[EBB_CUDNN_DATA];
    char *scratch;
    int64_t scratch_bytes, taken;
    struct ebb_cudnn_lengths lengths;
    float *delta, *sum;                /* of a call */
    int64_t first_kv, kv_heads, heads; /* of the group that a call takes */
    /* deterministic, in blocks */
    char *part[3];   /* bf16 dq, dk, dv of a block */
    float *whole[3]; /* fp32: dq of a block, dk and dv of a document */
};

static enum ebb_status cuda(const struct work *w, int error, const char *what)
{
    if (error == (int)cudaSuccess) return EBB_OK;
    return EBB_FAIL(w->env->ctx, EBB_DEVICE, "the GPU failed at attention's %s: %s", what,
                    cudaGetErrorString((cudaError_t)error));
}

static void *take(struct work *w, int64_t bytes)
{
    char *at = w->scratch + w->taken;
    w->taken += padded(bytes);
    return at;
}

static int64_t lengths_bytes(void)
{
    return EBB_CUDNN_DATA * padded((EBB_CUDNN_BATCH + 1) * (int64_t)sizeof(int64_t)) +
           2 * padded(EBB_CUDNN_BATCH * (int64_t)sizeof(int32_t));
}

static void take_lengths(struct work *w)
{
    for (int i = 0; i < EBB_CUDNN_DATA; i++)
        w->lengths.offsets[i] = take(w, (EBB_CUDNN_BATCH + 1) * (int64_t)sizeof(int64_t));
    w->lengths.queries = take(w, EBB_CUDNN_BATCH * (int64_t)sizeof(int32_t));
    w->lengths.keys = take(w, EBB_CUDNN_BATCH * (int64_t)sizeof(int32_t));
}

/* delta and the sum of dq, with a place for each token of a call's slots. */
static int64_t delta_bytes(int64_t units, int64_t heads)
{
    return padded(units * heads * 4);
}

static int64_t sum_bytes(int64_t units, int64_t heads, int64_t dim)
{
    return padded(units * heads * dim * 4);
}

/* Parts and wholes of blocks. */
static int64_t blocks_bytes(const struct ebb_attention_shape *shape, int64_t longest,
                            const struct ebb_cudnn_options *options)
{
    int64_t kv = kv_heads_of(shape, options), d = shape->qk_dim, block = block_of(options);
    int64_t heads = shape->heads / shape->kv_heads * kv;
    if (!options->deterministic || longest <= block) return 0;
    int64_t bytes = padded(block * heads * d * 2) + 2 * padded(block * kv * d * 2);
    return bytes + padded(block * heads * d * 4) + 2 * padded(longest * kv * d * 4);
}

int64_t ebb_cudnn_workspace(const struct ebb_attention_shape *shape, int64_t tokens,
                            int64_t longest, bool backward, const struct ebb_cudnn_options *options)
{
    int64_t block = block_of(options), kv = kv_heads_of(shape, options);
    int64_t heads = shape->heads / shape->kv_heads * kv;
    bool deterministic = backward && options->deterministic;
    int64_t d = shape->qk_dim;
    int64_t units = backward ? most_units(tokens, longest, d, deterministic, block) : 0;
    int64_t bytes = lengths_bytes() + padded(bytes_of_units(units, heads, d)) + ALIGN;
    if (!backward) return bytes;
    bytes += delta_bytes(units, heads) + blocks_bytes(shape, longest, options);
    return deterministic ? bytes : bytes + sum_bytes(units, heads, d);
}

/* ---- calls ---- */

static struct ebb_cudnn_key key_of(const struct work *w, int64_t batch, int64_t slot, bool ragged,
                                   bool causal)
{
    struct ebb_cudnn_key key;
    memset(&key, 0, sizeof key);
    key.batch = batch;
    key.slot = slot;
    key.heads = w->heads;
    key.kv_heads = w->kv_heads;
    key.dim = w->shape->qk_dim;
    key.ragged = ragged;
    key.causal = causal;
    key.backward = w->backward;
    key.deterministic = w->backward && w->options->deterministic;
    for (int i = 0; i < EBB_CUDNN_DATA; i++) key.stride[i] = w->operand[i].line;
    return key;
}

/* The group's heads of an operand at a token. */
static void *at_token(const struct work *w, int which, int64_t token)
{
    const struct operand *o = &w->operand[which];
    int64_t each = w->shape->heads / w->shape->kv_heads;
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
    call.scale = w->shape->scale;
    return call;
}

static enum ebb_status run_docs(struct work *w, const struct ebb_cudnn_docs *docs, int64_t slot)
{
    struct ebb_cudnn_key key = key_of(w, docs->count, slot, true, true);
    struct ebb_cudnn_call call = call_of(w);
    for (int i = 0; i < EBB_CUDNN_DATA; i++) w->lengths.stride[i] = key.stride[i];
    EBB_TRY(cuda(w, ebb_cudnn_fill_docs(w->doc_starts, docs, &w->lengths, w->env->stream),
                 "document lengths"));
    return ebb_cudnn_run(w->dnn, &key, &call, w->env->stream);
}

static enum ebb_status run_plain(struct work *w)
{
    struct ebb_cudnn_key key = key_of(w, 1, w->tokens, false, true);
    struct ebb_cudnn_call call = call_of(w);
    return ebb_cudnn_run(w->dnn, &key, &call, w->env->stream);
}

/* ---- the deterministic backward in blocks ---- */

static enum ebb_status run_block(struct work *w, int64_t start, int64_t rows, int64_t i, int64_t j)
{
    int64_t block = block_of(w->options), d = w->shape->qk_dim;
    int64_t queries = rows - i < block ? rows - i : block,
            keys = rows - j < block ? rows - j : block;
    struct ebb_cudnn_key key = key_of(w, 1, block, true, i == j);
    key.stride[EBB_CUDNN_DQ] = w->heads * d;
    key.stride[EBB_CUDNN_DK] = key.stride[EBB_CUDNN_DV] = w->kv_heads * d;
    struct ebb_cudnn_call call = call_of(w);
    for (int k = 0; k < EBB_CUDNN_DATA; k++) {
        call.data[k] = at_token(w, k, start + (w->operand[k].of_keys ? j : i));
        w->lengths.stride[k] = key.stride[k];
    }
    for (int k = 0; k < 3; k++) call.data[EBB_CUDNN_DQ + k] = w->part[k];
    EBB_TRY(cuda(w, ebb_cudnn_fill_piece(queries, keys, &w->lengths, w->env->stream), "lengths"));
    EBB_TRY(ebb_cudnn_run(w->dnn, &key, &call, w->env->stream));
    int64_t cols = w->heads * d, kv_cols = w->kv_heads * d;
    EBB_TRY(cuda(w,
                 ebb_cudnn_add(w->whole[0], cols, w->part[0], cols, queries, cols, w->env->stream),
                 "sum of dq"));
    for (int k = 1; k < 3; k++)
        EBB_TRY(cuda(w,
                     ebb_cudnn_add(w->whole[k] + j * kv_cols, kv_cols, w->part[k], kv_cols, keys,
                                   kv_cols, w->env->stream),
                     "sum of dk and dv"));
    return EBB_OK;
}

static enum ebb_status clear(struct work *w, float *sum, int64_t count)
{
    return cuda(w,
                (int)cudaMemsetAsync(sum, 0, (size_t)count * sizeof *sum,
                                     (cudaStream_t)w->env->stream),
                "clearing of sums");
}

static enum ebb_status run_blocks(struct work *w, int64_t start, int64_t rows)
{
    int64_t block = block_of(w->options), d = w->shape->qk_dim;
    int64_t cols = w->heads * d, kv_cols = w->kv_heads * d;
    for (int k = 1; k < 3; k++) EBB_TRY(clear(w, w->whole[k], rows * kv_cols));
    for (int64_t i = 0; i < rows; i += block) {
        int64_t queries = rows - i < block ? rows - i : block;
        EBB_TRY(clear(w, w->whole[0], queries * cols));
        for (int64_t j = 0; j <= i; j += block) EBB_TRY(run_block(w, start, rows, i, j));
        EBB_TRY(cuda(w,
                     ebb_cudnn_store(at_token(w, EBB_CUDNN_DQ, start + i),
                                     w->operand[EBB_CUDNN_DQ].line, w->whole[0], cols, queries,
                                     cols, w->env->stream),
                     "dq"));
    }
    for (int k = 1; k < 3; k++)
        EBB_TRY(cuda(w,
                     ebb_cudnn_store(at_token(w, EBB_CUDNN_DQ + k, start),
                                     w->operand[EBB_CUDNN_DQ + k].line, w->whole[k], kv_cols, rows,
                                     kv_cols, w->env->stream),
                     "dk and dv"));
    return EBB_OK;
}

/* ---- which documents go together ---- */

static bool in_blocks(const struct work *w, int64_t rows)
{
    return w->backward && w->options->deterministic && rows > block_of(w->options);
}

/* The documents of `docs` in calls of a power of two each, so that few plans serve all counts. */
static enum ebb_status run_batch(struct work *w, const struct ebb_cudnn_docs *docs, int64_t slot)
{
    struct ebb_cudnn_docs some;
    for (int32_t at = 0; at < docs->count; at += some.count) {
        int32_t count = 1;
        while (count * 2 <= docs->count - at) count *= 2;
        memset(&some, 0, sizeof some);
        some.count = count;
        memcpy(some.from, docs->from + at, (size_t)count * sizeof some.from[0]);
        EBB_TRY(run_docs(w, &some, slot));
    }
    return EBB_OK;
}

static int64_t rows_of_doc(const struct work *w, int64_t doc)
{
    return w->starts == NULL ? w->longest : w->starts[doc + 1] - w->starts[doc];
}

/* All documents whose slot is this one. */
static enum ebb_status run_slot(struct work *w, int64_t slot)
{
    bool deterministic = w->backward && w->options->deterministic;
    int64_t most =
        most_units(w->tokens, w->longest, w->shape->qk_dim, deterministic, block_of(w->options)) /
        units_of(slot, w->shape->qk_dim, deterministic);
    if (most > EBB_CUDNN_BATCH) most = EBB_CUDNN_BATCH;
    if (most < 1) most = 1;
    struct ebb_cudnn_docs docs;
    memset(&docs, 0, sizeof docs);
    for (int64_t i = 0; i < w->docs; i++) {
        int64_t rows = rows_of_doc(w, i);
        if (rows == 0 || in_blocks(w, rows) || slot_of(rows) != slot) continue;
        docs.from[docs.count++] = (int32_t)i;
        if (docs.count < most) continue;
        EBB_TRY(run_batch(w, &docs, slot));
        docs.count = 0;
    }
    return run_batch(w, &docs, slot);
}

static bool is_plain(const struct work *w)
{
    return w->docs == 1 && w->tokens % PLAIN_MULTIPLE == 0;
}

static enum ebb_status run_group(struct work *w)
{
    if (is_plain(w) && !in_blocks(w, w->tokens)) return run_plain(w);
    for (int64_t i = 0; i < w->docs; i++)
        if (in_blocks(w, rows_of_doc(w, i)))
            EBB_TRY(run_blocks(w, w->starts[i], rows_of_doc(w, i)));
    for (int64_t slot = SLOT_LEAST; slot <= slot_of(w->longest); slot *= 2)
        EBB_TRY(run_slot(w, slot));
    return EBB_OK;
}

static enum ebb_status check_work(const struct work *w)
{
    char why[128];
    struct ebb_ctx *ctx = w->env->ctx;
    if (!ebb_cudnn_takes(w->shape, EBB_BF16, why, sizeof why))
        return EBB_FAIL(ctx, EBB_UNSUPPORTED, "cuDNN cannot run this attention: %s", why);
    if (w->shape->kv_heads % w->kv_heads != 0)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "cuDNN's attention takes %" PRId64 " kv heads at once, which do not divide "
                        "%" PRId64,
                        w->kv_heads, w->shape->kv_heads);
    for (int i = 0; i < EBB_CUDNN_DATA; i++) {
        const struct operand *o = &w->operand[i];
        int64_t bits = o->bytes == 2 ? (int64_t)((uintptr_t)o->at % 16) + o->line * 2 % 16 : 0;
        if (bits != 0)
            return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                            "cuDNN's attention wants rows aligned to 16 bytes: operand %d has a "
                            "stride of %" PRId64 " elements",
                            i, o->line);
    }
    if (w->taken <= w->scratch_bytes) return EBB_OK;
    return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                    "attention through cuDNN wants more than %" PRId64 " bytes of scratch and was "
                    "given %" PRId64,
                    w->taken, w->scratch_bytes);
}

static enum ebb_status run_all(struct work *w)
{
    int32_t lone[2] = {0, (int32_t)w->tokens};
    if (w->tokens == 0) return EBB_OK;
    if (w->docs == 1) w->starts = lone;
    EBB_TRY(check_work(w));
    if (w->starts == NULL && in_blocks(w, w->longest))
        return EBB_FAIL(w->env->ctx, EBB_UNSUPPORTED,
                        "deterministic attention of documents above %" PRId64 " tokens needs their "
                        "starts on the host",
                        block_of(w->options));
    for (w->first_kv = 0; w->first_kv < w->shape->kv_heads; w->first_kv += w->kv_heads)
        EBB_TRY(run_group(w));
    return EBB_OK;
}

/* ---- the two ops ---- */

static void put(struct work *w, int which, const struct ebb_view *view, int64_t head, bool of_keys)
{
    w->operand[which] = (struct operand){.at = ebb_view_data(w->env, view),
                                         .line = view->stride,
                                         .head = head,
                                         .bytes = ebb_dtype_bytes((enum ebb_dtype)view->dtype),
                                         .of_keys = of_keys};
}

static struct work start(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                         const struct ebb_cudnn_options *options, const int32_t *starts,
                         const struct ebb_attention_shape *shape)
{
    struct work w;
    memset(&w, 0, sizeof w);
    w.dnn = dnn;
    w.env = env;
    w.options = options;
    w.starts = starts;
    w.shape = shape;
    w.docs = env->step->docs;
    w.kv_heads = kv_heads_of(shape, options);
    w.heads = shape->heads / shape->kv_heads * w.kv_heads;
    return w;
}

static void set_scratch(struct work *w, const struct ebb_view *scratch)
{
    w->scratch = ebb_view_data(w->env, scratch);
    w->scratch_bytes = w->scratch == NULL ? 0 : scratch->cols;
    /* From a multiple of ALIGN on. */
    w->taken = (int64_t)((ALIGN - (uintptr_t)w->scratch % ALIGN) % ALIGN);
    take_lengths(w);
}

static void set_longest(struct work *w, int64_t tokens)
{
    w->tokens = tokens;
    w->longest = w->docs == 1 ? tokens : w->env->step->longest;
    for (int64_t i = 0; w->starts != NULL && w->docs > 1 && i < w->docs; i++) {
        int64_t rows = w->starts[i + 1] - w->starts[i];
        w->longest = i == 0 || rows > w->longest ? rows : w->longest;
    }
}

enum ebb_status ebb_cudnn_forward(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                                  const struct ebb_cudnn_options *options, const int32_t *starts,
                                  const struct ebb_attention_forward *args)
{
    struct work w = start(dnn, env, options, starts, &args->shape);
    int64_t d = args->shape.qk_dim;
    w.doc_starts = ebb_view_data(env, &args->doc_starts);
    put(&w, EBB_CUDNN_Q, &args->q, d, false);
    put(&w, EBB_CUDNN_K, &args->k, d, true);
    put(&w, EBB_CUDNN_V, &args->v, d, true);
    put(&w, EBB_CUDNN_O, &args->o, d, false);
    put(&w, EBB_CUDNN_LSE, &args->lse, 1, false);
    set_longest(&w, ebb_view_rows(env, &args->q));
    set_scratch(&w, &args->scratch);
    return run_all(&w);
}

static void take_sums(struct work *w)
{
    int64_t d = w->shape->qk_dim, block = block_of(w->options);
    int64_t cols = w->heads * d, kv_cols = w->kv_heads * d;
    bool deterministic = w->options->deterministic;
    int64_t units = most_units(w->tokens, w->longest, d, deterministic, block);
    w->delta = take(w, delta_bytes(units, w->heads));
    if (!deterministic) w->sum = take(w, sum_bytes(units, w->heads, d));
    if (!deterministic || w->longest <= block) return;
    for (int k = 0; k < 3; k++) {
        w->part[k] = take(w, block * (k == 0 ? cols : kv_cols) * 2);
        w->whole[k] = take(w, k == 0 ? block * cols * 4 : w->longest * kv_cols * 4);
    }
}

enum ebb_status ebb_cudnn_backward(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                                   const struct ebb_cudnn_options *options, const int32_t *starts,
                                   const struct ebb_attention_backward *args)
{
    struct work w = start(dnn, env, options, starts, &args->shape);
    int64_t d = args->shape.qk_dim;
    w.backward = true;
    w.doc_starts = ebb_view_data(env, &args->doc_starts);
    put(&w, EBB_CUDNN_Q, &args->q, d, false);
    put(&w, EBB_CUDNN_K, &args->k, d, true);
    put(&w, EBB_CUDNN_V, &args->v, d, true);
    put(&w, EBB_CUDNN_O, &args->o, d, false);
    put(&w, EBB_CUDNN_LSE, &args->lse, 1, false);
    put(&w, EBB_CUDNN_DO, &args->d_o, d, false);
    put(&w, EBB_CUDNN_DQ, &args->dq, d, false);
    put(&w, EBB_CUDNN_DK, &args->dk, d, true);
    put(&w, EBB_CUDNN_DV, &args->dv, d, true);
    set_longest(&w, ebb_view_rows(env, &args->q));
    set_scratch(&w, &args->scratch);
    take_sums(&w);
    return run_all(&w);
}
