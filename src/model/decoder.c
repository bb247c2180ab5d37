/* A decoder's net: which tensors live for the whole run, which parameters are trained, where
 * each weight of the files lies. The programs are in decoder_emit.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/decoder.h"

#include <stdio.h>

#include "model/decoder_int.h"
#include "op/step.h"

static struct ebb_decoder *self_of(const struct ebb_net *net)
{
    return (struct ebb_decoder *)net->self;
}

static bool is_teacher(const struct ebb_decoder *d)
{
    return d->owner != &d->net;
}

/* Room for one more tensor in the tables of tensors. */
static enum ebb_status tensor_room(struct ebb_decoder *owner, struct ebb_net *net)
{
    int64_t count = net->tensor_count, room[5];
    for (int i = 0; i < 5; i++) room[i] = owner->tensor_room;
    EBB_TRY(ebb_mem_grow(owner->ctx, &net->tensors, count, &room[0], sizeof *net->tensors));
    EBB_TRY(ebb_mem_grow(owner->ctx, &net->kinds, count, &room[1], sizeof *net->kinds));
    EBB_TRY(ebb_mem_grow(owner->ctx, &net->unit_of, count, &room[2], sizeof *net->unit_of));
    EBB_TRY(ebb_mem_grow(owner->ctx, &net->stands_in, count, &room[3], sizeof *net->stands_in));
    EBB_TRY(ebb_mem_grow(owner->ctx, &net->per_micro, count, &room[4], sizeof *net->per_micro));
    owner->tensor_room = room[0];
    return EBB_OK;
}

/* A new unit of the net; its index by pointer. */
static enum ebb_status add_unit(struct ebb_decoder *d, enum ebb_unit kind, int32_t *unit)
{
    struct ebb_net *net = d->owner;
    EBB_TRY(ebb_mem_grow(d->ctx, &net->units, net->unit_count, &self_of(net)->unit_room,
                         sizeof *net->units));
    *unit = net->unit_count;
    net->units[net->unit_count++] = (uint8_t)kind;
    return EBB_OK;
}

/* Adds a persistent tensor, which no unit takes along; its index by pointer. */
static enum ebb_status add_tensor_in(struct ebb_decoder *d, enum ebb_space space,
                                     enum ebb_kind kind, int64_t bytes, const char *name,
                                     int32_t *tensor)
{
    struct ebb_net *net = d->owner;
    EBB_TRY(tensor_room(self_of(net), net));
    net->unit_of[net->tensor_count] = -1;
    net->stands_in[net->tensor_count] = net->per_micro[net->tensor_count] = 0;
    struct ebb_tensor *t = &net->tensors[net->tensor_count];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s%s", is_teacher(d) ? "teacher." : "", name);
    t->space = space;
    t->persistent = true;
    t->bytes = bytes;
    t->offset = -1;
    net->kinds[net->tensor_count] =
        (uint8_t)(is_teacher(d) && kind == EBB_KIND_WEIGHTS ? EBB_KIND_TEACHER : kind);
    *tensor = net->tensor_count++;
    return EBB_OK;
}

static enum ebb_status add_tensor(struct ebb_decoder *d, enum ebb_kind kind, int64_t bytes,
                                  const char *name, int32_t *tensor)
{
    return add_tensor_in(d, EBB_SPACE_DEVICE, kind, bytes, name, tensor);
}

/* A tensor that belongs to a parameter. Those of adapters and of vectors are small, and stay. */
static enum ebb_status add_state(struct ebb_decoder *d, enum ebb_kind kind,
                                 const struct ebb_param *param, int64_t element_bytes,
                                 const char *suffix, int32_t *tensor)
{
    char name[128];
    snprintf(name, sizeof name, "%.90s.%s", param->name, suffix);
    EBB_TRY(add_tensor(d, kind, param->w.rows * param->w.cols * element_bytes, name, tensor));
    if (param->stand_in.tensor < 0) d->owner->unit_of[*tensor] = param->unit;
    return EBB_OK;
}

/* Adds a trained parameter over the view `w`, with the state that the method and the optimizer
 * need. `stand_in`: of an adapter, where w may be away; else NULL. `unit` as in ebb_param. */
static enum ebb_status add_param(struct ebb_decoder *d, const char *name, struct ebb_view w,
                                 const struct ebb_view *stand_in, int32_t unit, bool adapter,
                                 bool decay, int32_t *index)
{
    struct ebb_net *net = &d->net;
    EBB_TRY(
        ebb_mem_grow(d->ctx, &net->params, net->param_count, &d->param_room, sizeof *net->params));
    struct ebb_param param;
    memset(&param, 0, sizeof param);
    snprintf(param.name, sizeof param.name, "%s", name);
    param.w = w;
    param.stand_in = stand_in ? *stand_in : ebb_view_none();
    param.unit = unit;
    param.trained = true;
    param.decay = decay;
    param.lo = param.master = param.m = param.v = -1;
    bool bf16 = d->options.storage == EBB_BF16;
    if (adapter)
        EBB_TRY(add_state(d, EBB_KIND_ADAPTER, &param, 4, "master", &param.master));
    else if (bf16 && !d->options.stochastic_rounding)
        EBB_TRY(add_state(d, EBB_KIND_OPTIMIZER, &param, 2, "lo", &param.lo));
    EBB_TRY(add_state(d, EBB_KIND_GRADIENTS, &param, 4, "grad", &param.grad));
    if (!d->options.sgd || d->options.momentum != 0)
        EBB_TRY(add_state(d, EBB_KIND_OPTIMIZER, &param, 4, "m", &param.m));
    if (!d->options.sgd) EBB_TRY(add_state(d, EBB_KIND_OPTIMIZER, &param, 4, "v", &param.v));
    *index = net->param_count;
    net->params[net->param_count++] = param;
    return EBB_OK;
}

static bool trains_all(const struct ebb_decoder_options *options)
{
    return options->train && !options->adapter;
}

static bool trains_weights(const struct ebb_decoder *d)
{
    return trains_all(&d->options);
}

static enum ebb_status add_vector(struct ebb_decoder *d, const char *name, int64_t n,
                                  struct ebb_decoder_vector *vector)
{
    enum ebb_dtype storage = d->options.storage;
    EBB_TRY(add_tensor(d, EBB_KIND_WEIGHTS, n * ebb_dtype_bytes(storage), name, &vector->w));
    vector->param = -1;
    if (!trains_weights(d)) return EBB_OK;
    return add_param(d, name, ebb_tensor_view(vector->w, storage, 0, 1, 0, n, n), NULL, -1, false,
                     false, &vector->param);
}

static void name_of(int layer, enum ebb_field field, char *out, size_t out_bytes)
{
    if (layer < 0)
        snprintf(out, out_bytes, "%s", ebb_field_name(field));
    else
        snprintf(out, out_bytes, "layer%d.%s", layer, ebb_field_name(field));
}

/* Finds which weights of the list make up a linear field, and where their adapters' columns are. */
static void find_parts(struct ebb_decoder *d, int layer, enum ebb_field field,
                       struct ebb_decoder_linear *linear)
{
    const struct ebb_adapter_config *adapter = d->options.adapter;
    for (int64_t i = 0; i < d->weights->count; i++) {
        const struct ebb_weight *weight = &d->weights->items[i];
        if (weight->layer != layer || weight->field != field) continue;
        EBB_ASSERT(linear->part_count < EBB_DECODER_PARTS);
        struct ebb_decoder_part *part = &linear->parts[linear->part_count++];
        part->row0 = weight->row0;
        part->rows = weight->rows;
        part->tail0 = -1;
        part->a_param = part->b_param = -1;
        part->instance = (uint32_t)i;
        linear->in = weight->cols;
        linear->rows += weight->rows;
        if (adapter && ebb_adapter_has(adapter, weight)) {
            part->tail0 = linear->tail;
            linear->tail += d->rank_cols;
        }
    }
}

/* The copies of a part's A and B that the programs read. */
static struct ebb_view adapter_view(const struct ebb_decoder *d,
                                    const struct ebb_decoder_linear *linear,
                                    const struct ebb_decoder_part *part, char which)
{
    enum ebb_dtype storage = d->options.storage;
    int64_t rank = d->options.adapter->rank;
    return which == 'A'
               ? ebb_tensor_view(linear->w, storage, linear->rows + part->tail0, rank, 0,
                                 linear->in, linear->in + linear->tail)
               : ebb_tensor_view(linear->w, storage, part->row0, part->rows,
                                 linear->in + part->tail0, rank, linear->in + linear->tail);
}

/* The same of the stand-ins; absent where there are none. */
static struct ebb_view stand_in_view(const struct ebb_decoder *d,
                                     const struct ebb_decoder_linear *linear,
                                     const struct ebb_decoder_part *part, char which)
{
    enum ebb_dtype storage = d->options.storage;
    int64_t rank = d->options.adapter->rank;
    if (linear->a < 0) return ebb_view_none();
    return which == 'A'
               ? ebb_tensor_view(linear->a, storage, part->tail0, rank, 0, linear->in, linear->in)
               : ebb_tensor_view(linear->b, storage, part->row0, part->rows, part->tail0, rank,
                                 linear->tail);
}

static enum ebb_status add_part_params(struct ebb_decoder *d, const char *name,
                                       struct ebb_decoder_linear *linear,
                                       struct ebb_decoder_part *part, int index)
{
    char text[96];
    struct ebb_view a = stand_in_view(d, linear, part, 'A'),
                    b = stand_in_view(d, linear, part, 'B');
    snprintf(text, sizeof text, "%.60s.%d.lora_A", name, index);
    EBB_TRY(add_param(d, text, adapter_view(d, linear, part, 'A'), &a, linear->unit, true, true,
                      &part->a_param));
    snprintf(text, sizeof text, "%.60s.%d.lora_B", name, index);
    return add_param(d, text, adapter_view(d, linear, part, 'B'), &b, linear->unit, true, true,
                     &part->b_param);
}

/* What a frozen matrix needs to be away. */
static enum ebb_status add_stand_ins(struct ebb_decoder *d, const char *name,
                                     struct ebb_decoder_linear *linear)
{
    int64_t size = ebb_dtype_bytes(d->options.storage);
    char text[96];
    d->owner->unit_of[linear->w] = linear->unit;
    if (linear->tail == 0) return EBB_OK;
    snprintf(text, sizeof text, "%.80s.A", name);
    EBB_TRY(add_tensor(d, EBB_KIND_WEIGHTS, linear->tail * linear->in * size, text, &linear->a));
    snprintf(text, sizeof text, "%.80s.B", name);
    EBB_TRY(add_tensor(d, EBB_KIND_WEIGHTS, linear->rows * linear->tail * size, text, &linear->b));
    d->owner->unit_of[linear->a] = d->owner->unit_of[linear->b] = linear->unit;
    d->owner->stands_in[linear->a] = d->owner->stands_in[linear->b] = 1;
    return EBB_OK;
}

static enum ebb_status add_linear(struct ebb_decoder *d, int layer, int32_t unit,
                                  enum ebb_field field, bool bias, enum ebb_field bias_field,
                                  struct ebb_decoder_linear *linear)
{
    enum ebb_dtype storage = d->options.storage;
    int64_t size = ebb_dtype_bytes(storage);
    char name[64], text[96];
    linear->bias = linear->param = linear->bias_param = linear->a = linear->b = -1;
    linear->unit = trains_weights(d) ? -1 : unit;
    find_parts(d, layer, field, linear);
    name_of(layer, field, name, sizeof name);
    int64_t stride = linear->in + linear->tail;
    EBB_TRY(add_tensor(d, EBB_KIND_WEIGHTS, (linear->rows + linear->tail) * stride * size, name,
                       &linear->w));
    if (linear->unit >= 0) EBB_TRY(add_stand_ins(d, name, linear));
    if (trains_weights(d))
        EBB_TRY(
            add_param(d, name,
                      ebb_tensor_view(linear->w, storage, 0, linear->rows, 0, linear->in, stride),
                      NULL, unit, false, true, &linear->param));
    if (bias) {
        struct ebb_decoder_vector vector;
        name_of(layer, bias_field, text, sizeof text);
        EBB_TRY(add_vector(d, text, linear->rows, &vector));
        linear->bias = vector.w;
        linear->bias_param = vector.param;
    }
    if (!d->options.train) return EBB_OK;
    for (int i = 0; i < linear->part_count; i++)
        if (linear->parts[i].tail0 >= 0)
            EBB_TRY(add_part_params(d, name, linear, &linear->parts[i], i));
    return EBB_OK;
}

static enum ebb_status add_layer(struct ebb_decoder *d, int layer)
{
    const struct ebb_model_config *c = d->config;
    struct ebb_decoder_layer *l = &d->layers[layer];
    const int32_t index = layer * EBB_DECODER_LINEARS;
    char name[64];
    int32_t unit;
    EBB_TRY(add_unit(d, trains_weights(d) ? EBB_UNIT_OPTIMIZER : EBB_UNIT_PARAMS, &unit));
    l->qkv.index = index;
    l->o.index = index + 1;
    l->gate_up.index = index + 2;
    l->down.index = index + 3;
    l->q_norm.w = l->k_norm.w = l->q_norm.param = l->k_norm.param = -1;
    name_of(layer, EBB_FIELD_NORM1, name, sizeof name);
    EBB_TRY(add_vector(d, name, c->width, &l->norm1));
    EBB_TRY(add_linear(d, layer, unit, EBB_FIELD_QKV, c->qkv_bias, EBB_FIELD_QKV_BIAS, &l->qkv));
    if (c->qk_norm) {
        name_of(layer, EBB_FIELD_Q_NORM, name, sizeof name);
        EBB_TRY(add_vector(d, name, c->head_dim, &l->q_norm));
        name_of(layer, EBB_FIELD_K_NORM, name, sizeof name);
        EBB_TRY(add_vector(d, name, c->head_dim, &l->k_norm));
    }
    EBB_TRY(add_linear(d, layer, unit, EBB_FIELD_O, c->o_bias, EBB_FIELD_O_BIAS, &l->o));
    name_of(layer, EBB_FIELD_NORM2, name, sizeof name);
    EBB_TRY(add_vector(d, name, c->width, &l->norm2));
    EBB_TRY(add_linear(d, layer, unit, EBB_FIELD_GATE_UP, c->mlp_bias, EBB_FIELD_GATE_UP_BIAS,
                       &l->gate_up));
    return add_linear(d, layer, unit, EBB_FIELD_DOWN, c->mlp_bias, EBB_FIELD_DOWN_BIAS, &l->down);
}

/* [V, C]: an input embedding, a head, or both. */
static enum ebb_status add_table(struct ebb_decoder *d, const char *name, int32_t *tensor,
                                 int32_t *param)
{
    const struct ebb_model_config *c = d->config;
    enum ebb_dtype storage = d->options.storage;
    EBB_TRY(add_tensor(d, EBB_KIND_WEIGHTS, c->vocab * c->width * ebb_dtype_bytes(storage), name,
                       tensor));
    int32_t unit;
    *param = -1;
    if (!trains_weights(d)) return EBB_OK;
    EBB_TRY(add_unit(d, EBB_UNIT_OPTIMIZER, &unit));
    return add_param(d, name, ebb_tensor_view(*tensor, storage, 0, c->vocab, 0, c->width, c->width),
                     NULL, unit, false, true, param);
}

/* A micro-batch's, and each has its own where a run takes several. */
static enum ebb_status add_input(struct ebb_decoder *d, enum ebb_space space, int64_t bytes,
                                 const char *name, int32_t *tensor)
{
    EBB_TRY(add_tensor_in(d, space, EBB_KIND_INPUTS, bytes, name, tensor));
    d->owner->per_micro[*tensor] = 1;
    return EBB_OK;
}

static int64_t capacity_tokens(const struct ebb_decoder_options *options)
{
    return options->capacity.tokens > 0 ? options->capacity.tokens : 1;
}

static int64_t rows_bytes(const struct ebb_model_config *config,
                          const struct ebb_decoder_options *options)
{
    return capacity_tokens(options) * config->width * ebb_dtype_bytes(options->storage);
}

/* Whether an embedding's table may stay away from the device. */
static bool may_use_rows(const struct ebb_model_config *config, bool trained)
{
    return !config->tied && !trained;
}

int64_t ebb_decoder_host_rows_bytes(const struct ebb_model_config *config,
                                    const struct ebb_decoder_options *options)
{
    int64_t bytes = 0;
    if (may_use_rows(config, trains_all(options))) bytes += rows_bytes(config, options);
    if (options->teacher && may_use_rows(options->teacher, false))
        bytes += rows_bytes(options->teacher, options);
    return bytes;
}

static enum ebb_status add_embed(struct ebb_decoder *d)
{
    d->embed = d->rows = d->embed_param = -1;
    if (!d->options.host_rows || !may_use_rows(d->config, trains_weights(d)))
        return add_table(d, "embed", &d->embed, &d->embed_param);
    return add_input(d, EBB_SPACE_HOST, rows_bytes(d->config, &d->options), "embed rows", &d->rows);
}

static enum ebb_status add_head(struct ebb_decoder *d)
{
    struct ebb_decoder_linear *head = &d->head;
    head->rows = d->config->vocab;
    head->in = d->config->width;
    head->a = head->b = head->bias = head->bias_param = head->unit = -1;
    head->index = (int32_t)d->config->layers * EBB_DECODER_LINEARS;
    if (d->config->tied) {
        head->w = d->embed;
        head->param = d->embed_param;
        return EBB_OK;
    }
    EBB_TRY(add_table(d, "head", &head->w, &head->param));
    if (trains_weights(d)) return EBB_OK;
    EBB_TRY(add_unit(d, EBB_UNIT_PARAMS, &head->unit));
    return add_stand_ins(d, "head", head);
}

static enum ebb_status add_inputs(struct ebb_decoder *d)
{
    const struct ebb_capacity *capacity = &d->options.capacity;
    const struct ebb_objective *objective = &d->options.objective;
    struct ebb_net_inputs *in = &d->net.inputs;
    int64_t tokens = capacity_tokens(&d->options);
    EBB_TRY(add_input(d, EBB_SPACE_DEVICE, tokens * 4, "ids", &in->ids));
    EBB_TRY(add_input(d, EBB_SPACE_DEVICE, tokens * 4, "targets", &in->targets));
    EBB_TRY(add_input(d, EBB_SPACE_DEVICE, tokens * 4, "positions", &in->positions));
    EBB_TRY(add_input(d, EBB_SPACE_DEVICE, tokens * 4, "label_rows", &in->label_rows));
    EBB_TRY(
        add_input(d, EBB_SPACE_DEVICE, (capacity->docs + 1) * 4, "doc_starts", &in->doc_starts));
    EBB_TRY(add_tensor(d, EBB_KIND_INPUTS, (int64_t)sizeof(struct ebb_step), "step", &in->step));
    EBB_TRY(add_tensor(d, EBB_KIND_INPUTS, (int64_t)sizeof(struct ebb_sums), "sums", &in->sums));
    in->top_ids = in->top_logprobs = in->logprobs = in->kinds = -1;
    if (ebb_objective_has_logprobs(objective))
        EBB_TRY(add_tensor(d, EBB_KIND_INPUTS, tokens * 4, "logprobs", &in->logprobs));
    if (ebb_objective_has_kinds(objective))
        EBB_TRY(add_tensor(d, EBB_KIND_INPUTS, capacity->docs * 4, "kinds", &in->kinds));
    if (!ebb_objective_has_top(objective)) return EBB_OK;
    int64_t top = tokens * objective->top_k;
    EBB_TRY(add_tensor(d, EBB_KIND_INPUTS, top * 4, "top_ids", &in->top_ids));
    return add_tensor(d, EBB_KIND_INPUTS, top * ebb_dtype_bytes(objective->top_dtype),
                      "top_logprobs", &in->top_logprobs);
}

static enum ebb_status add_rope(struct ebb_decoder *d)
{
    const struct ebb_capacity *capacity = &d->options.capacity;
    int64_t longest = capacity->doc_tokens > capacity->cache_tokens ? capacity->doc_tokens
                                                                    : capacity->cache_tokens;
    d->rope_rows = longest > 0 ? longest : 1;
    return add_tensor(d, EBB_KIND_INPUTS, d->rope_rows * d->config->head_dim * 4, "rotary table",
                      &d->rope);
}

static void describe_slots(struct ebb_decoder *d)
{
    const struct ebb_model_config *c = d->config;
    int64_t size = ebb_dtype_bytes(d->options.storage), o_tail = 0, gate_up_tail = 0;
    for (int64_t layer = 0; layer < c->layers; layer++) { /* adapters may be on some of them */
        const struct ebb_decoder_layer *l = &d->layers[layer];
        if (l->o.tail > o_tail) o_tail = l->o.tail;
        if (l->gate_up.tail > gate_up_tail) gate_up_tail = l->gate_up.tail;
    }
    struct ebb_slot *s = d->net.slots;
    d->net.slot_count = EBB_DECODER_SLOTS;
    s[EBB_DECODER_X].name = "x";
    s[EBB_DECODER_X].bytes_per_token = c->width * size;
    s[EBB_DECODER_QKV].name = "qkv";
    s[EBB_DECODER_QKV].bytes_per_token = d->qkv_cols * size;
    s[EBB_DECODER_O].name = "o";
    s[EBB_DECODER_O].bytes_per_token = (d->o_cols + o_tail) * size + c->heads * 4;
    s[EBB_DECODER_X2].name = "x2";
    s[EBB_DECODER_X2].bytes_per_token = c->width * size;
    s[EBB_DECODER_X2].tiled = true;
    s[EBB_DECODER_GATE_UP].name = "gate_up";
    s[EBB_DECODER_GATE_UP].bytes_per_token = (2 * c->ffn + gate_up_tail) * size;
    s[EBB_DECODER_GATE_UP].tiled = true;
}

/* ---- where each weight of the files lies ---- */

static const struct ebb_decoder_linear *linear_of(const struct ebb_decoder_layer *l,
                                                  enum ebb_field field)
{
    return field == EBB_FIELD_QKV || field == EBB_FIELD_QKV_BIAS           ? &l->qkv
           : field == EBB_FIELD_O || field == EBB_FIELD_O_BIAS             ? &l->o
           : field == EBB_FIELD_GATE_UP || field == EBB_FIELD_GATE_UP_BIAS ? &l->gate_up
           : field == EBB_FIELD_DOWN || field == EBB_FIELD_DOWN_BIAS       ? &l->down
                                                                           : NULL;
}

static const struct ebb_decoder_vector *
vector_of(const struct ebb_decoder *d, const struct ebb_decoder_layer *l, enum ebb_field field)
{
    return field == EBB_FIELD_FINAL_NORM ? &d->final_norm
           : field == EBB_FIELD_NORM1    ? &l->norm1
           : field == EBB_FIELD_NORM2    ? &l->norm2
           : field == EBB_FIELD_Q_NORM   ? &l->q_norm
                                         : &l->k_norm;
}

static void place_linear(const struct ebb_decoder *d, const struct ebb_decoder_linear *linear,
                         const struct ebb_weight *weight, struct ebb_decoder_place *place)
{
    bool bias = weight->field == EBB_FIELD_QKV_BIAS || weight->field == EBB_FIELD_O_BIAS ||
                weight->field == EBB_FIELD_GATE_UP_BIAS || weight->field == EBB_FIELD_DOWN_BIAS;
    enum ebb_dtype storage = d->options.storage;
    place->param_row0 = weight->row0;
    if (bias) {
        place->view =
            ebb_tensor_view(linear->bias, storage, 0, 1, weight->row0, weight->cols, linear->rows);
        place->param = linear->bias_param;
        return;
    }
    place->view = ebb_tensor_view(linear->w, storage, weight->row0, weight->rows, 0, weight->cols,
                                  linear->in + linear->tail);
    place->param = linear->param;
    for (int i = 0; i < linear->part_count; i++) {
        const struct ebb_decoder_part *part = &linear->parts[i];
        if (part->row0 != weight->row0 || part->tail0 < 0) continue;
        place->a_param = part->a_param;
        place->b_param = part->b_param;
        place->a = adapter_view(d, linear, part, 'A');
        place->b = adapter_view(d, linear, part, 'B');
        place->a_stand_in = stand_in_view(d, linear, part, 'A');
        place->b_stand_in = stand_in_view(d, linear, part, 'B');
        place->unit = linear->unit;
    }
}

static enum ebb_status place_weights(struct ebb_decoder *d)
{
    size_t count = (size_t)d->weights->count;
    d->places =
        (struct ebb_decoder_place *)ebb_mem_alloc(d->ctx, (count ? count : 1) * sizeof *d->places);
    if (!d->places) return EBB_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct ebb_weight *weight = &d->weights->items[i];
        struct ebb_decoder_place *place = &d->places[i];
        const struct ebb_decoder_layer *l = weight->layer < 0 ? NULL : &d->layers[weight->layer];
        place->param = place->a_param = place->b_param = -1;
        place->a = place->b = place->a_stand_in = place->b_stand_in = ebb_view_none();
        place->unit = -1;
        if (weight->field == EBB_FIELD_EMBED || weight->field == EBB_FIELD_HEAD) {
            bool head = weight->field == EBB_FIELD_HEAD;
            place->view = ebb_tensor_view(head ? d->head.w : d->embed, d->options.storage, 0,
                                          weight->rows, 0, weight->cols, weight->cols);
            place->param = head ? d->head.param : d->embed_param;
        } else if (l && linear_of(l, weight->field)) {
            place_linear(d, linear_of(l, weight->field), weight, place);
        } else {
            const struct ebb_decoder_vector *vector = vector_of(d, l, weight->field);
            place->view =
                ebb_tensor_view(vector->w, d->options.storage, 0, 1, 0, weight->cols, weight->cols);
            place->param = vector->param;
        }
    }
    return EBB_OK;
}

/* ---- creation ---- */

static enum ebb_status fill_net(struct ebb_decoder *d)
{
    const struct ebb_model_config *c = d->config;
    d->layers =
        (struct ebb_decoder_layer *)ebb_mem_alloc(d->ctx, (size_t)c->layers * sizeof *d->layers);
    if (!d->layers) return EBB_NO_MEMORY;
    EBB_TRY(add_embed(d));
    for (int layer = 0; layer < (int)c->layers; layer++) EBB_TRY(add_layer(d, layer));
    EBB_TRY(add_vector(d, "final_norm", c->width, &d->final_norm));
    EBB_TRY(add_head(d));
    if (is_teacher(d))
        d->net.inputs = d->owner->inputs;
    else
        EBB_TRY(add_inputs(d));
    EBB_TRY(add_rope(d));
    describe_slots(d);
    return place_weights(d);
}

/* Whether a run of TRAIN may take several micro-batches: of losses that need nothing but tokens. A
 * trained embedding that is the head too has a sum of both gradients for each micro-batch, one
 * micro-batch after the other: layer by layer that would be another order. */
static bool takes_several(const struct ebb_decoder *d)
{
    return d->options.train && d->options.objective.kind == EBB_OBJECTIVE_TOKENS &&
           !(d->config->tied && d->embed_param >= 0);
}

/* `owner`: the student's net, for a teacher; else NULL. */
static enum ebb_status create(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                              const struct ebb_weight_list *weights,
                              const struct ebb_decoder_options *options, struct ebb_net *owner,
                              struct ebb_decoder **decoder)
{
    struct ebb_decoder *d = (struct ebb_decoder *)ebb_mem_alloc(ctx, sizeof *d);
    *decoder = NULL;
    if (!d) return EBB_NO_MEMORY;
    d->ctx = ctx;
    d->config = config;
    d->weights = weights;
    d->options = *options;
    d->scale = options->adapter ? ebb_adapter_scale(options->adapter) : 0;
    d->rank_cols = options->adapter ? (options->adapter->rank + 7) / 8 * 8 : 0;
    d->o_cols = config->heads * config->head_dim;
    d->qk_cols = d->o_cols + config->kv_heads * config->head_dim;
    d->qkv_cols = d->qk_cols + config->kv_heads * config->head_dim;
    d->logits = -1;
    d->owner = owner ? owner : &d->net;
    d->net.self = d;
    d->net.layers = config->layers;
    d->net.emit = ebb_decoder_emit;
    enum ebb_status status = fill_net(d);
    if (status == EBB_OK) d->net.micros_most = takes_several(d) ? EBB_MICROS_MOST : 1;
    if (status != EBB_OK) {
        ebb_decoder_free(ctx, &d->net);
        return status;
    }
    *decoder = d;
    return EBB_OK;
}

enum ebb_status ebb_decoder_create(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                                   const struct ebb_weight_list *weights,
                                   const struct ebb_decoder_options *options, struct ebb_net **net)
{
    const struct ebb_decoder_options frozen = {.storage = options->storage,
                                               .capacity = options->capacity,
                                               .host_rows = options->host_rows};
    struct ebb_decoder *d;
    *net = NULL;
    EBB_TRY(create(ctx, config, weights, options, NULL, &d));
    enum ebb_status status = EBB_OK;
    if (options->teacher)
        status =
            create(ctx, options->teacher, options->teacher_weights, &frozen, &d->net, &d->teacher);
    if (status != EBB_OK) {
        ebb_decoder_free(ctx, &d->net);
        return status;
    }
    *net = &d->net;
    return EBB_OK;
}

void ebb_decoder_free(struct ebb_ctx *ctx, struct ebb_net *net)
{
    if (!net) return;
    struct ebb_decoder *d = self_of(net);
    if (d->teacher) ebb_decoder_free(ctx, &d->teacher->net);
    ebb_mem_free(ctx, d->places);
    ebb_mem_free(ctx, d->layers);
    ebb_mem_free(ctx, net->tensors);
    ebb_mem_free(ctx, net->kinds);
    ebb_mem_free(ctx, net->unit_of);
    ebb_mem_free(ctx, net->stands_in);
    ebb_mem_free(ctx, net->per_micro);
    ebb_mem_free(ctx, net->units);
    ebb_mem_free(ctx, net->params);
    ebb_mem_free(ctx, d);
}

struct ebb_view ebb_decoder_weight(const struct ebb_net *net, int64_t weight)
{
    return self_of(net)->places[weight].view;
}

const struct ebb_param *ebb_decoder_param(const struct ebb_net *net, int64_t weight, int64_t *row0)
{
    const struct ebb_decoder_place *place = &self_of(net)->places[weight];
    if (place->param < 0) return NULL;
    *row0 = place->param_row0;
    return &net->params[place->param];
}

const struct ebb_param *ebb_decoder_adapter(const struct ebb_net *net, int64_t weight, char which)
{
    const struct ebb_decoder_place *place = &self_of(net)->places[weight];
    int32_t param = which == 'A' ? place->a_param : place->b_param;
    return param < 0 ? NULL : &net->params[param];
}

struct ebb_view ebb_decoder_adapter_view(const struct ebb_net *net,
                                         const struct ebb_policies *policies, int64_t weight,
                                         char which)
{
    const struct ebb_decoder_place *place = &self_of(net)->places[weight];
    if (ebb_policies_away(policies, place->unit))
        return which == 'A' ? place->a_stand_in : place->b_stand_in;
    return which == 'A' ? place->a : place->b;
}

int32_t ebb_decoder_rope_tensor(const struct ebb_net *net, int64_t *rows)
{
    *rows = self_of(net)->rope_rows;
    return self_of(net)->rope;
}

int32_t ebb_decoder_rows_tensor(const struct ebb_net *net)
{
    return self_of(net)->rows;
}

const struct ebb_net *ebb_decoder_teacher(const struct ebb_net *net)
{
    const struct ebb_decoder *teacher = self_of(net)->teacher;
    return teacher ? &teacher->net : NULL;
}

int32_t ebb_decoder_logits_tensor(const struct ebb_net *net)
{
    return self_of(net)->logits;
}
