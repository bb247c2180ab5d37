/* Attention through cuDNN, as far as it can be known without CUDA: what it takes, which documents
 * go together in which graphs, and how many bytes that needs.
 *
 * One set of rules serves the run (ebb_cudnn_split) and what is prepared for it (ebb_cudnn_forms):
 * for fewer tokens, fewer documents or shorter ones, most_docs and with it the numbers of documents
 * only shrink, so a run within the capacities meets no form that was not prepared, and no more
 * bytes than were reserved. tests/op_attention_slots.c tries that.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

#include <stdio.h>
#include <string.h>

enum {
    SLOT_LEAST = 128,
    SLOT_LARGE = 2048,     /* up to here slots grow fourfold, then twofold */
    PLAIN_MULTIPLE = 1024, /* a lone document of whole such pieces gets a graph of its length */
    BLOCK_USUAL = 4096,    /* deterministic */
    BLOCK_FAR = 65536,
    BATCH_LARGE = 4,    /* up to here documents of a call grow twofold, then fourfold */
    MANY_UNITS = 16384, /* of a call: enough to fill a GPU */
    SLACK = 1 << 20     /* of a plan: lengths, semaphores, rounding; 17 KiB were seen */
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

/* ---- slots and their cost ---- */

static int64_t next_slot(int64_t slot)
{
    return slot < SLOT_LARGE ? slot * 4 : slot * 2;
}

static int64_t slot_of(int64_t tokens)
{
    int64_t slot = SLOT_LEAST;
    while (slot < tokens) slot = next_slot(slot);
    return slot;
}

static bool is_deterministic(const struct ebb_cudnn_frame *frame)
{
    return frame->backward && frame->options->deterministic;
}

static int64_t block_of(const struct ebb_cudnn_frame *frame)
{
    if (!is_deterministic(frame)) return BLOCK_FAR;
    return frame->options->block > 0 ? frame->options->block : BLOCK_USUAL;
}

/* Backward of longer documents goes in blocks. */
static int64_t most_whole(const struct ebb_cudnn_frame *frame)
{
    return is_deterministic(frame) ? block_of(frame) : EBB_CUDNN_SPAN;
}

static bool in_blocks(const struct ebb_cudnn_frame *frame, int64_t tokens)
{
    return frame->backward && tokens > most_whole(frame);
}

/* The slot of the longest document that does not go in blocks. */
static int64_t largest_slot(const struct ebb_cudnn_frame *frame, int64_t longest)
{
    return slot_of(in_blocks(frame, longest) ? most_whole(frame) : longest);
}

/* Rows of fp32 dq, one for each token of a slot and once more for each part, that a slot costs. */
static int64_t units_of(const struct ebb_cudnn_frame *frame, int64_t slot)
{
    int64_t part = frame->shape->qk_dim == 128 ? 256 : 128; /* keys */
    return is_deterministic(frame) ? slot * ((slot + part - 1) / part + 1) : slot;
}

/* Units that a call may take: the largest slot's, or as many as it may have tokens and, below
 * MANY_UNITS, twice as many, so that small documents go together. */
static int64_t most_units(const struct ebb_cudnn_frame *frame, int64_t longest)
{
    int64_t units = units_of(frame, largest_slot(frame, longest));
    int64_t together = 2 * frame->rows > MANY_UNITS ? MANY_UNITS : 2 * frame->rows;
    int64_t rows = frame->rows < EBB_CUDNN_SPAN ? frame->rows : EBB_CUDNN_SPAN;
    if (together < rows) together = rows;
    return units > together ? units : together;
}

/* ---- documents of a call ---- */

/* The numbers of documents that calls may have: 1, 2, 4, 16, 64, 256; if exact, powers of two. */
static int64_t next_batch(const struct ebb_cudnn_frame *frame, int64_t batch)
{
    return frame->options->exact || batch < BATCH_LARGE ? batch * 2 : batch * 4;
}

/* The largest of these numbers that is not above. */
static int64_t batch_below(const struct ebb_cudnn_frame *frame, int64_t docs)
{
    int64_t batch = 1;
    while (next_batch(frame, batch) <= docs) batch = next_batch(frame, batch);
    return batch;
}

/* Documents of this slot that go together at most, one of these numbers. */
static int64_t most_docs(const struct ebb_cudnn_frame *frame, int64_t longest, int64_t slot)
{
    int64_t most = most_units(frame, longest) / units_of(frame, slot);
    return batch_below(frame, most < EBB_CUDNN_BATCH ? most : EBB_CUDNN_BATCH);
}

/* Places of the next call where so many documents are left, no more than most_docs. */
static int64_t batch_of(const struct ebb_cudnn_frame *frame, int64_t docs)
{
    int64_t batch = batch_below(frame, docs);
    return frame->options->exact || batch == docs ? batch : next_batch(frame, batch);
}

/* ---- forms ---- */

static struct ebb_cudnn_form form_of(int64_t batch, int64_t slot)
{
    struct ebb_cudnn_form form = {.batch = batch, .slot = slot, .ragged = true, .causal = true};
    return form;
}

static struct ebb_cudnn_form piece_form(const struct ebb_cudnn_frame *frame, bool causal)
{
    struct ebb_cudnn_form form = form_of(1, block_of(frame));
    form.piece = true;
    form.causal = causal;
    return form;
}

static struct ebb_cudnn_form plain_form(const struct ebb_cudnn_frame *frame)
{
    struct ebb_cudnn_form form = form_of(1, frame->rows);
    form.ragged = false;
    return form;
}

/* Does a document of so many tokens fill the capacity and have a graph for that? There is then
 * no other that has tokens. */
static bool is_plain(const struct ebb_cudnn_frame *frame, int64_t tokens)
{
    return tokens == frame->rows && tokens % PLAIN_MULTIPLE == 0 && !in_blocks(frame, tokens);
}

enum ebb_status ebb_cudnn_forms(const struct ebb_cudnn_frame *frame, int64_t docs, int64_t longest,
                                ebb_cudnn_form_fn fn, void *user)
{
    if (longest > frame->rows) longest = frame->rows;
    if (longest == 0) return EBB_OK;
    if (is_plain(frame, longest)) {
        const struct ebb_cudnn_form form = plain_form(frame);
        EBB_TRY(fn(user, &form, NULL));
    }
    for (int causal = 0; in_blocks(frame, longest) && causal < 2; causal++) {
        const struct ebb_cudnn_form form = piece_form(frame, causal == 1);
        EBB_TRY(fn(user, &form, NULL));
    }
    for (int64_t slot = SLOT_LEAST; slot <= largest_slot(frame, longest); slot = next_slot(slot)) {
        int64_t most = most_docs(frame, longest, slot);
        if (docs > 0 && docs < most) most = docs;
        for (int64_t b = 1; b <= batch_of(frame, most); b = next_batch(frame, b)) {
            const struct ebb_cudnn_form form = form_of(b, slot);
            EBB_TRY(fn(user, &form, NULL));
        }
    }
    return EBB_OK;
}

struct split {
    const struct ebb_cudnn_frame *frame;
    const struct ebb_cudnn_input *input;
    ebb_cudnn_form_fn fn;
    void *user;
};

static int64_t rows_of_doc(const struct split *s, int64_t doc)
{
    const struct ebb_cudnn_input *in = s->input;
    return in->starts == NULL ? in->longest : in->starts[doc + 1] - in->starts[doc];
}

/* These documents, in one call or, if exact, in several. */
static enum ebb_status emit(const struct split *s, const struct ebb_cudnn_docs *docs, int64_t slot)
{
    struct ebb_cudnn_docs some;
    for (int32_t at = 0; at < docs->count; at += some.count) {
        int32_t left = docs->count - at;
        const struct ebb_cudnn_form form = form_of(batch_of(s->frame, left), slot);
        memset(&some, 0, sizeof some);
        some.batch = (int32_t)form.batch;
        some.count = left < some.batch ? left : some.batch;
        memcpy(some.from, docs->from + at, (size_t)some.count * sizeof some.from[0]);
        EBB_TRY(s->fn(s->user, &form, &some));
    }
    return EBB_OK;
}

/* Whether a document would end too far behind the first of these; unknown starts are of documents
 * all as long as the longest. */
static bool is_far(const struct split *s, const struct ebb_cudnn_docs *docs, int64_t doc)
{
    const struct ebb_cudnn_input *in = s->input;
    if (docs->count == 0) return false;
    if (in->starts == NULL) return (doc + 1 - docs->from[0]) * in->longest > EBB_CUDNN_SPAN;
    return in->starts[doc + 1] - in->starts[docs->from[0]] > EBB_CUDNN_SPAN;
}

/* All documents whose slot is this one. */
static enum ebb_status split_slot(const struct split *s, int64_t slot)
{
    int64_t most = most_docs(s->frame, s->input->longest, slot);
    struct ebb_cudnn_docs docs;
    memset(&docs, 0, sizeof docs);
    for (int64_t i = 0; i < s->input->docs; i++) {
        int64_t rows = rows_of_doc(s, i);
        if (rows == 0 || in_blocks(s->frame, rows) || slot_of(rows) != slot) continue;
        if (is_far(s, &docs, i)) {
            EBB_TRY(emit(s, &docs, slot));
            docs.count = 0;
        }
        docs.from[docs.count++] = (int32_t)i;
        if (docs.count < most) continue;
        EBB_TRY(emit(s, &docs, slot));
        docs.count = 0;
    }
    return emit(s, &docs, slot);
}

static enum ebb_status split_long(const struct split *s)
{
    const struct ebb_cudnn_form form = piece_form(s->frame, true);
    struct ebb_cudnn_docs docs;
    memset(&docs, 0, sizeof docs);
    docs.count = docs.batch = 1;
    for (int64_t i = 0; i < s->input->docs; i++) {
        docs.from[0] = (int32_t)i;
        if (in_blocks(s->frame, rows_of_doc(s, i))) EBB_TRY(s->fn(s->user, &form, &docs));
    }
    return EBB_OK;
}

enum ebb_status ebb_cudnn_split(const struct ebb_cudnn_frame *frame,
                                const struct ebb_cudnn_input *input, ebb_cudnn_form_fn fn,
                                void *user)
{
    const struct split s = {frame, input, fn, user};
    if (input->longest == 0) return EBB_OK;
    if (input->starts != NULL && is_plain(frame, input->longest)) {
        const struct ebb_cudnn_form form = plain_form(frame);
        return fn(user, &form, NULL);
    }
    if (in_blocks(frame, input->longest)) EBB_TRY(split_long(&s));
    for (int64_t slot = SLOT_LEAST; slot <= largest_slot(frame, input->longest);
         slot = next_slot(slot))
        EBB_TRY(split_slot(&s, slot));
    return EBB_OK;
}

/* ---- bytes ---- */

/* As plans of cuDNN 9.19 for sm_90 say: with groups dk and dv of all heads in bf16; deterministic
 * another fp32 dq for each 256 keys (head size 128) or 128. */
static int64_t bytes_of_units(int64_t units, int64_t heads, int64_t dim)
{
    /* Kernels round head sizes up. */
    int64_t width = dim <= 64 ? 64 : 128;
    return units * heads * (width * 4 + 8) + SLACK;
}

static int64_t kv_heads_of(const struct ebb_cudnn_frame *frame)
{
    int64_t group = frame->options->kv_heads, all = frame->shape->kv_heads;
    return group > 0 && all % group == 0 ? group : all;
}

static int64_t heads_of(const struct ebb_cudnn_frame *frame)
{
    return frame->shape->heads / frame->shape->kv_heads * kv_heads_of(frame);
}

int64_t ebb_cudnn_form_workspace(const struct ebb_cudnn_frame *frame,
                                 const struct ebb_cudnn_form *form)
{
    int64_t units = frame->backward ? form->batch * units_of(frame, form->slot) : 0;
    return bytes_of_units(units, heads_of(frame), frame->shape->qk_dim);
}

struct ebb_cudnn_sizes ebb_cudnn_sizes(const struct ebb_cudnn_frame *frame, int64_t longest)
{
    const int64_t dim = frame->shape->qk_dim, block = block_of(frame);
    struct ebb_cudnn_sizes sizes;
    memset(&sizes, 0, sizeof sizes);
    sizes.kv_heads = kv_heads_of(frame);
    sizes.heads = heads_of(frame);
    sizes.block = block;
    int64_t units = frame->backward ? most_units(frame, longest) : 0;
    sizes.plan = bytes_of_units(units, sizes.heads, dim);
    sizes.delta = units * sizes.heads * 4;
    if (!is_deterministic(frame)) sizes.sum = units * sizes.heads * dim * 4;
    if (!in_blocks(frame, longest)) return sizes;
    for (int i = 0; i < 3; i++) {
        int64_t cols = (i == 0 ? sizes.heads : sizes.kv_heads) * dim;
        sizes.part[i] = block * cols * 2;
        sizes.whole[i] = (i == 0 ? block : longest) * cols * 4;
    }
    return sizes;
}

static int64_t padded(int64_t bytes)
{
    return (bytes + EBB_CUDNN_ALIGN - 1) / EBB_CUDNN_ALIGN * EBB_CUDNN_ALIGN;
}

int64_t ebb_cudnn_workspace(const struct ebb_attention_shape *shape, int64_t tokens,
                            int64_t longest, bool backward, const struct ebb_cudnn_options *options)
{
    const struct ebb_cudnn_frame frame = {shape, options, tokens, backward};
    const struct ebb_cudnn_sizes sizes = ebb_cudnn_sizes(&frame, longest);
    int64_t bytes = EBB_CUDNN_ALIGN + EBB_CUDNN_DATA * padded(EBB_CUDNN_OFFSETS_BYTES) +
                    2 * padded(EBB_CUDNN_LENGTHS_BYTES) + padded(sizes.delta) + padded(sizes.sum);
    for (int i = 0; i < 3; i++) bytes += padded(sizes.part[i]) + padded(sizes.whole[i]);
    return bytes + padded(sizes.plan);
}
