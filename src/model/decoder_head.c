/* The head of a decoder's programs: logits of the label rows chunk by chunk, so that never all of
 * them exist; each objective's loss; and back to the last hidden states.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/decoder_emit_int.h"
#include "op/cross_entropy.h"
#include "op/rows.h"
#include "op/topk.h"

/* ---- chunks of labels ---- */

static enum ebb_status new_chunk(struct ebb_emitter *e, const struct ebb_head *head, int64_t cols,
                                 enum ebb_dtype dtype, const char *name, struct ebb_matrix *m)
{
    m->dtype = dtype;
    m->cols = cols;
    m->offset = 0;
    m->tile = true;
    return ebb_program_tensor(e->b->program, EBB_SPACE_DEVICE,
                              head->chunk * cols * ebb_dtype_bytes(dtype), &m->tensor, "head.%s",
                              name);
}

/* Rows of chunk i of the labels, from row `row0` of the tensor on. */
static struct ebb_view label_chunk(const struct ebb_emitter *e, const struct ebb_head *head,
                                   int32_t tensor, enum ebb_dtype dtype, int64_t row0, int64_t cols,
                                   int64_t i)
{
    int64_t left = e->b->capacity.tokens - i * head->chunk;
    struct ebb_view view = ebb_tensor_view(tensor, dtype, row0,
                                           left < head->chunk ? left : head->chunk, 0, cols, cols);
    view.extent = EBB_EXTENT_LABELS;
    view.row0 = i * head->chunk;
    return view;
}

static struct ebb_view chunk_view(const struct ebb_emitter *e, const struct ebb_head *head,
                                  const struct ebb_matrix *m, int64_t i)
{
    return label_chunk(e, head, m->tensor, m->dtype, 0, m->cols, i);
}

enum ebb_status ebb_head_open(struct ebb_emitter *e, bool train, struct ebb_head *head)
{
    int64_t chunk = e->b->numerics->head_chunk;
    head->chunk = chunk < e->b->capacity.tokens ? chunk : e->b->capacity.tokens;
    EBB_TRY(ebb_weights_need(e, e->c->layers, EBB_WEIGHTS_HEAD));
    EBB_TRY(ebb_build_new_scratch(e->b)); /* it wants more than the layers do */
    EBB_TRY(new_chunk(e, head, e->c->width, e->storage, "raw", &head->raw));
    EBB_TRY(new_chunk(e, head, e->c->width, e->storage, "h", &head->h));
    EBB_TRY(new_chunk(e, head, e->c->vocab, EBB_F32, "logits", &head->logits));
    if (!train) return EBB_OK;
    return new_chunk(e, head, e->c->width, e->storage, "dh", &head->dh);
}

/* The gradient of chunk i's logits takes no memory of its own: losses write it over the logits. */
static struct ebb_view gradient_view(const struct ebb_emitter *e, const struct ebb_head *head,
                                     int64_t i)
{
    struct ebb_view logits = chunk_view(e, head, &head->logits, i);
    if (!e->train) return ebb_view_none();
    return e->storage == EBB_F32 ? logits : ebb_view_upper_half(&logits);
}

static struct ebb_view label_rows_view(const struct ebb_emitter *e)
{
    return ebb_emit_input(e, e->d->net.inputs.label_rows, e->b->capacity.tokens);
}

static struct ebb_view head_weight(const struct ebb_emitter *e)
{
    return ebb_tensor_view(ebb_linear_w(e, &e->d->head), e->storage, 0, e->c->vocab, 0, e->c->width,
                           e->c->width);
}

enum ebb_status ebb_head_logits(struct ebb_emitter *e, const struct ebb_head *head, int64_t i,
                                struct ebb_view x)
{
    struct ebb_view raw = chunk_view(e, head, &head->raw, i), h = chunk_view(e, head, &head->h, i);
    struct ebb_gather_rows gather = {.x = x, .rows = label_rows_view(e), .y = raw};
    EBB_TRY(ebb_build_op(e->b, EBB_OP_gather_rows, &gather));
    EBB_TRY(ebb_emit_norm(e, &e->d->final_norm, raw, h));
    struct ebb_matmul logits = {.a = h,
                                .b = head_weight(e),
                                .bias = ebb_view_none(),
                                .add = ebb_view_none(),
                                .y = chunk_view(e, head, &head->logits, i),
                                .form = EBB_MATMUL_NT};
    return ebb_build_matmul(e->b, &logits);
}

static enum ebb_status head_backward(struct ebb_emitter *e, const struct ebb_head *head, int64_t i)
{
    struct ebb_view dlogits = gradient_view(e, head, i), dh = chunk_view(e, head, &head->dh, i);
    struct ebb_matmul args = {.a = dlogits,
                              .b = head_weight(e),
                              .bias = ebb_view_none(),
                              .add = ebb_view_none(),
                              .y = dh,
                              .form = EBB_MATMUL_NN};
    EBB_TRY(ebb_build_matmul(e->b, &args));
    EBB_TRY(ebb_grad_begin(e, e->d->head.param));
    if (e->d->head.param >= 0)
        EBB_TRY(ebb_emit_weight_gradient(e, dlogits, chunk_view(e, head, &head->h, i),
                                         ebb_emit_grad(e, e->d->head.param)));
    EBB_TRY(ebb_emit_norm_backward(e, &e->d->final_norm, chunk_view(e, head, &head->raw, i), dh, dh,
                                   true));
    struct ebb_scatter_rows scatter = {.x = dh,
                                       .rows = label_rows_view(e),
                                       .y = ebb_matrix_all(e->b, &e->dx, 0, e->c->width)};
    return ebb_build_op(e->b, EBB_OP_scatter_rows, &scatter);
}

static struct ebb_view sums_view(const struct ebb_emitter *e)
{
    int64_t bytes = (int64_t)sizeof(struct ebb_sums);
    return ebb_tensor_view(e->d->net.inputs.sums, EBB_U8, 0, 1, 0, bytes, bytes);
}

static struct ebb_view targets_view(const struct ebb_emitter *e)
{
    return ebb_emit_input(e, e->d->net.inputs.targets, e->b->capacity.tokens);
}

/* Chunk i of labels' likeliest tokens, which exist for all labels. */
static struct ebb_view top_view(const struct ebb_emitter *e, const struct ebb_head *head, int64_t i,
                                int32_t tensor, enum ebb_dtype dtype)
{
    return label_chunk(e, head, tensor, dtype, i * head->chunk, e->d->options.objective.top_k, i);
}

static enum ebb_status loss_of_targets(struct ebb_emitter *e, const struct ebb_head *head,
                                       int64_t i)
{
    struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
    struct ebb_cross_entropy loss = {.logits = chunk_view(e, head, &head->logits, i),
                                     .targets = targets_view(e),
                                     .label_rows = label_rows_view(e),
                                     .dlogits = gradient_view(e, head, i),
                                     .sums = sums_view(e)};
    loss.scratch = ebb_build_scratch(e->b, ebb_cross_entropy_scratch(loss.logits.rows, &target));
    return ebb_build_op(e->b, EBB_OP_cross_entropy, &loss);
}

static enum ebb_status loss_of_teacher(struct ebb_emitter *e, const struct ebb_head *head,
                                       struct ebb_view teacher, int64_t i)
{
    struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
    struct ebb_distill loss = {.logits = chunk_view(e, head, &head->logits, i),
                               .teacher = teacher,
                               .targets = targets_view(e),
                               .label_rows = label_rows_view(e),
                               .dlogits = gradient_view(e, head, i),
                               .sums = sums_view(e),
                               .keys = e->d->options.objective.distill};
    loss.scratch = ebb_build_scratch(e->b, ebb_distill_scratch(loss.logits.rows, &target));
    return ebb_build_op(e->b, EBB_OP_distill, &loss);
}

static enum ebb_status loss_of_saved(struct ebb_emitter *e, const struct ebb_head *head, int64_t i)
{
    const struct ebb_objective *objective = &e->d->options.objective;
    const struct ebb_net_inputs *in = &e->d->net.inputs;
    struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
    struct ebb_distill_topk loss = {.logits = chunk_view(e, head, &head->logits, i),
                                    .ids = top_view(e, head, i, in->top_ids, EBB_I32),
                                    .logprobs = top_view(e, head, i, in->top_logprobs,
                                                         objective->top_dtype),
                                    .targets = targets_view(e),
                                    .label_rows = label_rows_view(e),
                                    .dlogits = gradient_view(e, head, i),
                                    .sums = sums_view(e),
                                    .keys = objective->distill};
    loss.scratch = ebb_build_scratch(e->b, ebb_distill_scratch(loss.logits.rows, &target));
    return ebb_build_op(e->b, EBB_OP_distill_topk, &loss);
}

/* A number of each label, [1, T] fp32. */
static struct ebb_view label_vector(const struct ebb_emitter *e, int32_t tensor)
{
    int64_t tokens = e->b->capacity.tokens;
    return ebb_tensor_view(tensor, EBB_F32, 0, 1, 0, tokens, tokens);
}

static enum ebb_status chunk_logprob(struct ebb_emitter *e, const struct ebb_head *head, int64_t i,
                                     struct ebb_view logprob)
{
    struct ebb_label_logprob args = {.logits = chunk_view(e, head, &head->logits, i),
                                     .targets = targets_view(e),
                                     .label_rows = label_rows_view(e),
                                     .logprob = logprob,
                                     .vocab = e->c->vocab};
    return ebb_build_op(e->b, EBB_OP_label_logprob, &args);
}

/* The usual loss, and each label's log-probability for who asked. */
static enum ebb_status leave_logprobs(struct ebb_emitter *e, const struct ebb_head *head, int64_t i)
{
    EBB_TRY(chunk_logprob(e, head, i, label_vector(e, e->d->net.inputs.logprobs)));
    return loss_of_targets(e, head, i);
}

/* The usual loss, and each label's likeliest tokens for who saves them. */
static enum ebb_status leave_top(struct ebb_emitter *e, const struct ebb_head *head, int64_t i)
{
    const struct ebb_objective *objective = &e->d->options.objective;
    const struct ebb_net_inputs *in = &e->d->net.inputs;
    struct ebb_topk args = {.logits = chunk_view(e, head, &head->logits, i),
                            .ids = top_view(e, head, i, in->top_ids, EBB_I32),
                            .logprobs =
                                top_view(e, head, i, in->top_logprobs, objective->top_dtype),
                            .temperature = objective->distill.temperature,
                            .vocab = objective->distill.vocab};
    EBB_TRY(ebb_build_op(e->b, EBB_OP_topk, &args));
    return loss_of_targets(e, head, i);
}

/* The loss of chunk i by the objective and, in training, its gradient. */
static enum ebb_status chunk_loss(struct ebb_emitter *e, const struct ebb_head *head,
                                  struct ebb_view teacher, int64_t i)
{
    switch (e->d->options.objective.kind) {
    case EBB_OBJECTIVE_DISTILL:
        return loss_of_teacher(e, head, teacher, i);
    case EBB_OBJECTIVE_SAVE_TEACHER:
        return leave_top(e, head, i);
    case EBB_OBJECTIVE_LOGPROB:
        return leave_logprobs(e, head, i);
    case EBB_OBJECTIVE_DISTILL_SAVED:
        return e->train ? loss_of_saved(e, head, i) : loss_of_targets(e, head, i);
    default:
        return loss_of_targets(e, head, i);
    }
}

/* The gradient of the last hidden states begins at zero: the head adds those of the label rows. It
 * has room for the tails of the layers' linears whose outputs' gradient it is. */
static enum ebb_status open_dx(struct ebb_emitter *e)
{
    int64_t tail = 0;
    if (!e->train) return EBB_OK;
    for (int64_t layer = 0; layer < e->c->layers; layer++) {
        const struct ebb_decoder_layer *l = &e->d->layers[layer];
        if (l->o.tail > tail) tail = l->o.tail;
        if (l->down.tail > tail) tail = l->down.tail;
    }
    EBB_TRY(ebb_emit_whole(e, e->c->width + tail, e->storage, "dx", -1, &e->dx));
    struct ebb_fill zero = {.y = ebb_matrix_all(e->b, &e->dx, 0, e->c->width)};
    return ebb_build_op(e->b, EBB_OP_fill, &zero);
}

enum ebb_status ebb_head_emit(struct ebb_emitter *e, const struct ebb_matrix *x,
                              struct ebb_emitter *t, const struct ebb_matrix *teacher_x)
{
    struct ebb_head head, teacher;
    struct ebb_view logits = ebb_view_none();
    EBB_TRY(ebb_head_open(e, e->train, &head));
    if (t) EBB_TRY(ebb_head_open(t, false, &teacher));
    EBB_TRY(open_dx(e));
    for (int64_t i = 0; i * head.chunk < e->b->capacity.tokens; i++) {
        if (t) {
            EBB_TRY(
                ebb_head_logits(t, &teacher, i, ebb_matrix_all(e->b, teacher_x, 0, t->c->width)));
            logits = chunk_view(t, &teacher, &teacher.logits, i);
        }
        EBB_TRY(ebb_head_logits(e, &head, i, ebb_matrix_all(e->b, x, 0, e->c->width)));
        EBB_TRY(chunk_loss(e, &head, logits, i));
        if (e->train) EBB_TRY(head_backward(e, &head, i));
    }
    return ebb_grad_end(e, e->d->head.param);
}

/* ---- head and loss of preferences ---- */

static enum ebb_status new_label_vector(struct ebb_emitter *e, const char *name,
                                        struct ebb_view *view)
{
    struct ebb_matrix m;
    EBB_TRY(ebb_emit_whole(e, 1, EBB_F32, name, -1, &m));
    *view = label_vector(e, m.tensor);
    return EBB_OK;
}

/* The log-probabilities of all labels' targets. */
static enum ebb_status emit_logprobs(struct ebb_emitter *e, const struct ebb_head *head,
                                     const struct ebb_matrix *x, struct ebb_view logprob)
{
    for (int64_t i = 0; i * head->chunk < e->b->capacity.tokens; i++) {
        EBB_TRY(ebb_head_logits(e, head, i, ebb_matrix_all(e->b, x, 0, e->c->width)));
        EBB_TRY(chunk_logprob(e, head, i, logprob));
    }
    return EBB_OK;
}

/* The losses of all documents, and each label's coefficient. */
static enum ebb_status sequence_loss(struct ebb_emitter *e, struct ebb_view logprob,
                                     struct ebb_view reference, struct ebb_view coefficient)
{
    const struct ebb_net_inputs *in = &e->d->net.inputs;
    const int64_t docs = e->b->capacity.docs;
    struct ebb_op_target target = ebb_numerics_target(e->b->numerics);
    struct ebb_preference_loss loss = {.logprob = logprob,
                                       .reference = reference,
                                       .label_rows = label_rows_view(e),
                                       .doc_starts = ebb_emit_docs(e),
                                       .kinds = in->kinds < 0 ? ebb_view_none()
                                                              : ebb_emit_input(e, in->kinds, docs),
                                       .coefficient = coefficient,
                                       .sums = sums_view(e),
                                       .keys = e->d->options.objective.preference};
    loss.scratch = ebb_build_scratch(e->b, ebb_preference_loss_scratch(docs, &target));
    return ebb_build_op(e->b, EBB_OP_preference_loss, &loss);
}

/* A sequence's loss takes all its labels, so their logits are made twice: once for the
 * log-probabilities, and again for the gradient. */
enum ebb_status ebb_head_emit_sequences(struct ebb_emitter *e, const struct ebb_matrix *x,
                                        struct ebb_view reference)
{
    struct ebb_head head;
    struct ebb_view logprob, coefficient;
    EBB_TRY(ebb_head_open(e, e->train, &head));
    EBB_TRY(new_label_vector(e, "logprob", &logprob));
    EBB_TRY(new_label_vector(e, "coefficient", &coefficient));
    EBB_TRY(emit_logprobs(e, &head, x, logprob));
    EBB_TRY(sequence_loss(e, logprob, reference, coefficient));
    EBB_TRY(open_dx(e));
    for (int64_t i = 0; e->train && i * head.chunk < e->b->capacity.tokens; i++) {
        EBB_TRY(ebb_head_logits(e, &head, i, ebb_matrix_all(e->b, x, 0, e->c->width)));
        struct ebb_label_logprob_backward args = {.logits = chunk_view(e, &head, &head.logits, i),
                                                  .targets = targets_view(e),
                                                  .label_rows = label_rows_view(e),
                                                  .coefficient = coefficient,
                                                  .dlogits = gradient_view(e, &head, i),
                                                  .vocab = e->c->vocab};
        EBB_TRY(ebb_build_op(e->b, EBB_OP_label_logprob_backward, &args));
        EBB_TRY(head_backward(e, &head, i));
    }
    return ebb_grad_end(e, e->d->head.param);
}

enum ebb_status ebb_head_emit_reference(struct ebb_emitter *e, const struct ebb_matrix *x,
                                        struct ebb_view *reference)
{
    struct ebb_head head;
    EBB_TRY(new_label_vector(e, "reference", reference));
    EBB_TRY(ebb_head_open(e, false, &head));
    return emit_logprobs(e, &head, x, *reference);
}

struct ebb_view ebb_head_given_reference(const struct ebb_emitter *e)
{
    int32_t tensor = e->d->net.inputs.logprobs;
    return tensor < 0 ? ebb_view_none() : label_vector(e, tensor);
}
