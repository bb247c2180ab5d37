/* cuDNN's graphs of attention, forward and backward.
 *
 * cuDNN has no causal attention as one operation; it recognises attention in a graph of matrix
 * products, pointwise operations and reductions. Scores stand in the graph as [B, H, S, S] but are
 * virtual: they never reach memory. Masked scores are -inf.
 *
 * What a ragged graph keeps for itself (delta, the fp32 sum of dq) has a place for every token of
 * every slot. cuDNN 9.19 also takes a ragged sum, packed as the documents are; but then dq is
 * wrong, dk and dv may be NaN, and a kernel may die of an illegal instruction.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_graph_int.h"

typedef cudnnBackendDescriptor_t descriptor;

/* ---- making descriptors ---- */

cudnnBackendDescriptor_t ebb_cudnn_make(struct ebb_cudnn_graph *graph,
                                        cudnnBackendDescriptorType_t type, const char *what)
{
    struct ebb_cudnn_library *library = graph->library;
    descriptor made = NULL;
    if (graph->status != EBB_OK) return NULL;
    EBB_ASSERT(graph->all_count < EBB_CUDNN_DESCRIPTORS);
    graph->status =
        ebb_cudnn_check(library, library->calls.cudnnBackendCreateDescriptor(type, &made), what);
    if (graph->status == EBB_OK) graph->all[graph->all_count++] = made;
    return made;
}

void ebb_cudnn_set(struct ebb_cudnn_graph *graph, cudnnBackendDescriptor_t to,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *value, const char *what)
{
    struct ebb_cudnn_library *library = graph->library;
    if (graph->status != EBB_OK) return;
    graph->status =
        ebb_cudnn_check(library,
                        library->calls.cudnnBackendSetAttribute(to, name, type, count, value),
                        what);
}

void ebb_cudnn_set_part(struct ebb_cudnn_graph *graph, cudnnBackendDescriptor_t to,
                        cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t part,
                        const char *what)
{
    ebb_cudnn_set(graph, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part, what);
}

void ebb_cudnn_finish(struct ebb_cudnn_graph *graph, cudnnBackendDescriptor_t made,
                      const char *what)
{
    struct ebb_cudnn_library *library = graph->library;
    if (graph->status == EBB_OK)
        graph->status = ebb_cudnn_check(library, library->calls.cudnnBackendFinalize(made), what);
}

struct layout {
    int64_t dim[4], stride[4];
};

struct tensor {
    cudnnDataType_t type;
    int64_t id; /* 0: virtual */
    int64_t align;
    bool by_value;
    descriptor offsets; /* NULL: none */
};

static descriptor make_tensor(struct ebb_cudnn_graph *g, struct tensor t, struct layout layout,
                              const char *what)
{
    descriptor made = ebb_cudnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    bool is_virtual = t.id == 0;
    int64_t id = is_virtual ? g->next_id++ : t.id, align = t.align > 0 ? t.align : 16;
    ebb_cudnn_set(g, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t.type, what);
    ebb_cudnn_set(g, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.dim, what);
    ebb_cudnn_set(g, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.stride, what);
    ebb_cudnn_set(g, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id, what);
    ebb_cudnn_set(g, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align, what);
    ebb_cudnn_set(g, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, what);
    ebb_cudnn_set(g, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &t.by_value, what);
    if (t.offsets != NULL)
        ebb_cudnn_set_part(g, made, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, t.offsets, what);
    ebb_cudnn_finish(g, made, what);
    return made;
}

static void add_op(struct ebb_cudnn_graph *g, descriptor op, const char *what)
{
    ebb_cudnn_finish(g, op, what);
    EBB_ASSERT(g->ops_count < EBB_CUDNN_OPS);
    g->ops[g->ops_count++] = op;
}

struct pointwise {
    cudnnPointwiseMode_t mode;
    descriptor x, b, t, y;
    int64_t axis; /* of GEN_INDEX */
    bool logical; /* computed as booleans */
};

static void add_pointwise(struct ebb_cudnn_graph *g, struct pointwise p, const char *what)
{
    cudnnDataType_t precision = p.logical ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    descriptor how = ebb_cudnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    ebb_cudnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode, what);
    ebb_cudnn_set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision,
                  what);
    if (p.mode == CUDNN_POINTWISE_GEN_INDEX)
        ebb_cudnn_set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis, what);
    ebb_cudnn_finish(g, how, what);
    descriptor op = ebb_cudnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x, what);
    if (p.b != NULL) ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b, what);
    if (p.t != NULL) ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y, what);
    add_op(g, op, what);
}

/* y = x (mode) b; b may be NULL. */
static void add_simple(struct ebb_cudnn_graph *g, cudnnPointwiseMode_t mode, descriptor x,
                       descriptor b, descriptor y, const char *what)
{
    add_pointwise(g, (struct pointwise){.mode = mode, .x = x, .b = b, .y = y}, what);
}

/* c = a b, with lengths in place of sizes where documents are ragged. */
struct product {
    descriptor a, b, c, m, n, k;
};

static void add_product(struct ebb_cudnn_graph *g, struct product p, const char *what)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    double padding = 0;
    descriptor how = ebb_cudnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
    ebb_cudnn_set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
    if (g->key->ragged)
        ebb_cudnn_set(g, how, CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 1, &padding,
                      what);
    ebb_cudnn_finish(g, how, what);
    descriptor op = ebb_cudnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, p.a, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, p.b, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, p.c, what);
    if (g->key->ragged) {
        if (p.m)
            ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, p.m, what);
        if (p.n)
            ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, p.n, what);
        if (p.k)
            ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, p.k, what);
    }
    add_op(g, op, what);
}

static void add_reduction(struct ebb_cudnn_graph *g, cudnnReduceTensorOp_t mode, descriptor x,
                          descriptor y, const char *what)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = ebb_cudnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
    ebb_cudnn_set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
    ebb_cudnn_set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                  &mode, what);
    ebb_cudnn_finish(g, how, what);
    descriptor op = ebb_cudnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, what);
    add_op(g, op, what);
}

static void add_reshape(struct ebb_cudnn_graph *g, descriptor x, descriptor y, const char *what)
{
    descriptor op = ebb_cudnn_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, what);
    ebb_cudnn_set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y, what);
    add_op(g, op, what);
}

/* ---- tensors of attention ---- */

static descriptor scores(struct ebb_cudnn_graph *g, cudnnDataType_t type, const char *what)
{
    int64_t b = g->key->batch, h = g->key->heads, s = g->key->slot;
    return make_tensor(g, (struct tensor){.type = type},
                       (struct layout){{b, h, s, s}, {h * s * s, s * s, s, 1}}, what);
}

static descriptor scores_turned(struct ebb_cudnn_graph *g, const char *what)
{
    int64_t b = g->key->batch, h = g->key->heads, s = g->key->slot;
    return make_tensor(g, (struct tensor){.type = CUDNN_DATA_BFLOAT16},
                       (struct layout){{b, h, s, s}, {h * s * s, s * s, 1, s}}, what);
}

/* A number for each query, dense; `id`: 0 if virtual. */
static descriptor row(struct ebb_cudnn_graph *g, int64_t id, const char *what)
{
    int64_t b = g->key->batch, h = g->key->heads, s = g->key->slot;
    return make_tensor(g, (struct tensor){.type = CUDNN_DATA_FLOAT, .id = id},
                       (struct layout){{b, h, s, 1}, {h * s, s, 1, 1}}, what);
}

static descriptor number(struct ebb_cudnn_graph *g, int64_t id, const char *what)
{
    return make_tensor(g, (struct tensor){.type = CUDNN_DATA_FLOAT, .id = id, .by_value = true},
                       (struct layout){{1, 1, 1, 1}, {1, 1, 1, 1}}, what);
}

static descriptor numbers(struct ebb_cudnn_graph *g, cudnnDataType_t type, int64_t id,
                          int64_t count, const char *what)
{
    return make_tensor(g, (struct tensor){.type = type, .id = id},
                       (struct layout){{count, 1, 1, 1}, {1, 1, 1, 1}}, what);
}

static descriptor offsets_of(struct ebb_cudnn_graph *g, enum ebb_cudnn_tensor which)
{
    if (g->key->ragged && g->offsets[which] == NULL)
        g->offsets[which] = numbers(g, CUDNN_DATA_INT64, EBB_CUDNN_ID_OFFSETS + which,
                                    g->key->batch + 1, "offsets");
    return g->offsets[which];
}

/* [B, H or K, S, D] where tokens are rows; `turned`: [B, H or K, D, S]. */
static descriptor rows_of(struct ebb_cudnn_graph *g, enum ebb_cudnn_tensor which, int64_t heads,
                          bool turned, const char *what)
{
    int64_t b = g->key->batch, s = g->key->slot, d = g->key->dim, line = g->key->stride[which];
    struct layout straight = {{b, heads, s, d}, {s * line, d, line, 1}};
    struct layout other = {{b, heads, d, s}, {s * line, d, 1, line}};
    struct tensor t = {.type = CUDNN_DATA_BFLOAT16,
                       .id = which + 1,
                       .offsets = offsets_of(g, which)};
    return make_tensor(g, t, turned ? other : straight, what);
}

/* [B, H, S, 1] where a token's heads are neighbours. */
static descriptor lse_of(struct ebb_cudnn_graph *g)
{
    int64_t b = g->key->batch, h = g->key->heads, s = g->key->slot;
    int64_t line = g->key->stride[EBB_CUDNN_LSE];
    struct tensor t = {.type = CUDNN_DATA_FLOAT,
                       .id = EBB_CUDNN_LSE + 1,
                       .align = 4,
                       .offsets = offsets_of(g, EBB_CUDNN_LSE)};
    return make_tensor(g, t, (struct layout){{b, h, s, 1}, {s * line, 1, line, 1}}, "lse");
}

/* The graph's own rows, dense; `id`: 0 if virtual. */
static descriptor own_rows(struct ebb_cudnn_graph *g, cudnnDataType_t type, int64_t id,
                           const char *what)
{
    int64_t b = g->key->batch, h = g->key->heads, s = g->key->slot, d = g->key->dim;
    return make_tensor(g, (struct tensor){.type = type, .id = id},
                       (struct layout){{b, h, s, d}, {h * s * d, s * d, d, 1}}, what);
}

/* ---- graphs ---- */

/* Masked scores for x: -inf where `keep` is false. */
static descriptor add_select(struct ebb_cudnn_graph *g, descriptor x, descriptor keep,
                             const char *what)
{
    descriptor y = scores(g, CUDNN_DATA_FLOAT, what);
    add_pointwise(g,
                  (struct pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                     .x = x,
                                     .b = g->masked,
                                     .t = keep,
                                     .y = y},
                  what);
    return y;
}

static descriptor add_index(struct ebb_cudnn_graph *g, descriptor x, int64_t axis)
{
    descriptor y = scores(g, CUDNN_DATA_INT32, "an index");
    add_pointwise(
        g, (struct pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX, .x = x, .y = y, .axis = axis},
        "an index");
    return y;
}

static descriptor add_compare(struct ebb_cudnn_graph *g, cudnnPointwiseMode_t mode, descriptor x,
                              descriptor b, const char *what)
{
    descriptor y = scores(g, CUDNN_DATA_BOOLEAN, what);
    add_pointwise(g, (struct pointwise){.mode = mode, .x = x, .b = b, .y = y, .logical = true},
                  what);
    return y;
}

static descriptor add_length_mask(struct ebb_cudnn_graph *g, descriptor x)
{
    if (!g->key->ragged) return x;
    descriptor i = add_index(g, x, 2), j = add_index(g, x, 3);
    descriptor a = add_compare(g, CUDNN_POINTWISE_CMP_LT, i, g->queries, "the queries' end");
    descriptor b = add_compare(g, CUDNN_POINTWISE_CMP_LT, j, g->keys, "the keys' end");
    descriptor both = add_compare(g, CUDNN_POINTWISE_LOGICAL_AND, a, b, "both ends");
    return add_select(g, x, both, "scores within the length");
}

static descriptor add_causal_mask(struct ebb_cudnn_graph *g, descriptor x)
{
    if (!g->key->causal) return x;
    descriptor i = add_index(g, x, 2), j = add_index(g, x, 3);
    descriptor keep = add_compare(g, CUDNN_POINTWISE_CMP_GE, i, j, "the causal mask");
    return add_select(g, x, keep, "causal scores");
}

static void add_lengths(struct ebb_cudnn_graph *g)
{
    if (!g->key->ragged) return;
    g->queries =
        numbers(g, CUDNN_DATA_INT32, EBB_CUDNN_ID_QUERIES, g->key->batch, "lengths of queries");
    g->keys = numbers(g, CUDNN_DATA_INT32, EBB_CUDNN_ID_KEYS, g->key->batch, "lengths of keys");
}

/* Scaled, and -inf beyond the document's length. */
static descriptor add_scores(struct ebb_cudnn_graph *g, descriptor q, descriptor k_turned,
                             descriptor scale)
{
    descriptor raw = scores(g, CUDNN_DATA_FLOAT, "scores");
    g->masked = number(g, EBB_CUDNN_ID_MASKED, "-inf");
    descriptor scaled = scores(g, CUDNN_DATA_FLOAT, "scaled scores");
    add_product(g, (struct product){.a = q, .b = k_turned, .c = raw, .m = g->queries, .n = g->keys},
                "q k^T");
    add_simple(g, CUDNN_POINTWISE_MUL, raw, scale, scaled, "the scale");
    return add_length_mask(g, scaled);
}

static void describe_forward(struct ebb_cudnn_graph *g)
{
    const struct ebb_cudnn_key *key = g->key;
    descriptor scale = number(g, EBB_CUDNN_ID_SCALE, "the scale");
    descriptor q = rows_of(g, EBB_CUDNN_Q, key->heads, false, "q");
    descriptor k = rows_of(g, EBB_CUDNN_K, key->kv_heads, true, "k");
    descriptor v = rows_of(g, EBB_CUDNN_V, key->kv_heads, false, "v");
    descriptor o = rows_of(g, EBB_CUDNN_O, key->heads, false, "o");
    descriptor lse = lse_of(g);
    descriptor x = add_causal_mask(g, add_scores(g, q, k, scale));
    descriptor most = row(g, 0, "maxima"), sum = row(g, 0, "sums"), logs = row(g, 0, "logarithms");
    descriptor less = scores(g, CUDNN_DATA_FLOAT, "scores below the maximum");
    descriptor power = scores(g, CUDNN_DATA_FLOAT, "exponentials");
    descriptor p = scores(g, CUDNN_DATA_BFLOAT16, "p");
    add_reduction(g, CUDNN_REDUCE_TENSOR_MAX, x, most, "maxima");
    add_simple(g, CUDNN_POINTWISE_SUB, x, most, less, "scores below the maximum");
    add_simple(g, CUDNN_POINTWISE_EXP, less, NULL, power, "exponentials");
    add_reduction(g, CUDNN_REDUCE_TENSOR_ADD, power, sum, "sums");
    add_simple(g, CUDNN_POINTWISE_LOG, sum, NULL, logs, "logarithms");
    add_simple(g, CUDNN_POINTWISE_ADD, most, logs, lse, "lse");
    add_simple(g, CUDNN_POINTWISE_DIV, power, sum, p, "p");
    add_product(g, (struct product){.a = p, .b = v, .c = o, .m = g->queries, .k = g->keys}, "p v");
}

/* The gradient of k or v: turned [S, S] times rows, summed over the heads of a group. */
static void add_key_gradient(struct ebb_cudnn_graph *g, descriptor x, descriptor rows,
                             descriptor to, const char *what)
{
    descriptor turned = scores_turned(g, what);
    bool grouped = g->key->heads != g->key->kv_heads;
    descriptor all = grouped ? own_rows(g, CUDNN_DATA_BFLOAT16, 0, what) : to;
    add_reshape(g, x, turned, what);
    add_product(g,
                (struct product){.a = turned, .b = rows, .c = all, .m = g->keys, .k = g->queries},
                what);
    if (grouped) add_reduction(g, CUDNN_REDUCE_TENSOR_ADD, all, to, what);
}

static void add_query_gradient(struct ebb_cudnn_graph *g, descriptor ds, descriptor k_turned)
{
    const struct ebb_cudnn_key *key = g->key;
    int64_t b = key->batch, s = key->slot, d = key->dim, line = key->stride[EBB_CUDNN_K];
    descriptor dq = rows_of(g, EBB_CUDNN_DQ, key->heads, false, "dq");
    descriptor sum =
        key->deterministic ? dq : own_rows(g, CUDNN_DATA_FLOAT, EBB_CUDNN_ID_SUM, "the sum of dq");
    struct tensor t = {.type = CUDNN_DATA_FLOAT, .offsets = offsets_of(g, EBB_CUDNN_K)};
    descriptor k =
        make_tensor(g, t, (struct layout){{b, key->kv_heads, s, d}, {s * line, d, line, 1}}, "k");
    add_reshape(g, k_turned, k, "k");
    add_product(g, (struct product){.a = ds, .b = k, .c = sum, .m = g->queries, .k = g->keys},
                "dq");
    if (!key->deterministic)
        add_simple(g, CUDNN_POINTWISE_IDENTITY, sum, NULL, dq, "dq from its sum");
}

/* delta = row sums of d_o o. */
static descriptor add_delta(struct ebb_cudnn_graph *g, descriptor d_o)
{
    descriptor o = rows_of(g, EBB_CUDNN_O, g->key->heads, false, "o");
    descriptor one = number(g, EBB_CUDNN_ID_ONE, "one");
    descriptor delta = row(g, EBB_CUDNN_ID_DELTA, "delta"), sum = row(g, 0, "sums of d_o o");
    descriptor product = own_rows(g, CUDNN_DATA_FLOAT, 0, "d_o o");
    add_simple(g, CUDNN_POINTWISE_MUL, d_o, o, product, "d_o o");
    add_reduction(g, CUDNN_REDUCE_TENSOR_ADD, product, sum, "sums of d_o o");
    add_simple(g, CUDNN_POINTWISE_MUL, sum, one, delta, "delta");
    return delta;
}

static void describe_backward(struct ebb_cudnn_graph *g)
{
    const struct ebb_cudnn_key *key = g->key;
    descriptor scale = number(g, EBB_CUDNN_ID_SCALE, "the scale");
    descriptor q = rows_of(g, EBB_CUDNN_Q, key->heads, false, "q");
    descriptor k = rows_of(g, EBB_CUDNN_K, key->kv_heads, true, "k");
    descriptor v = rows_of(g, EBB_CUDNN_V, key->kv_heads, true, "v");
    descriptor d_o = rows_of(g, EBB_CUDNN_DO, key->heads, false, "d_o");
    descriptor dk = rows_of(g, EBB_CUDNN_DK, key->kv_heads, false, "dk");
    descriptor dv = rows_of(g, EBB_CUDNN_DV, key->kv_heads, false, "dv");
    descriptor lse = lse_of(g);
    descriptor delta = add_delta(g, d_o);
    descriptor less = scores(g, CUDNN_DATA_FLOAT, "scores below lse");
    descriptor p = scores(g, CUDNN_DATA_FLOAT, "p"), dp = scores(g, CUDNN_DATA_FLOAT, "dp");
    descriptor dp_less = scores(g, CUDNN_DATA_FLOAT, "dp - delta");
    descriptor ds_raw = scores(g, CUDNN_DATA_FLOAT, "p (dp - delta)");
    descriptor ds = scores(g, CUDNN_DATA_FLOAT, "ds");
    add_simple(g, CUDNN_POINTWISE_SUB, add_scores(g, q, k, scale), lse, less, "scores below lse");
    add_simple(g, CUDNN_POINTWISE_EXP, add_causal_mask(g, less), NULL, p, "p");
    add_key_gradient(g, p, d_o, dv, "dv");
    add_product(g, (struct product){.a = d_o, .b = v, .c = dp, .m = g->queries, .n = g->keys},
                "dp");
    add_simple(g, CUDNN_POINTWISE_SUB, dp, delta, dp_less, "dp - delta");
    add_simple(g, CUDNN_POINTWISE_MUL, dp_less, p, ds_raw, "p (dp - delta)");
    add_simple(g, CUDNN_POINTWISE_MUL, ds_raw, scale, ds, "ds");
    add_key_gradient(g, ds, q, dk, "dk");
    add_query_gradient(g, ds, k);
}

void ebb_cudnn_describe(struct ebb_cudnn_graph *graph)
{
    graph->next_id = EBB_CUDNN_ID_VIRTUAL;
    add_lengths(graph);
    if (graph->key->backward)
        describe_backward(graph);
    else
        describe_forward(graph);
}
