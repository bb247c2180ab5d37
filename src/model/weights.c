/* The list of a model's weights, made from its family's table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/weights.h"

#include <string.h>

#include "model/config_int.h"

const char *ebb_field_name(enum ebb_field field)
{
    static const char *const names[] = {
#define FIELD_NAME(name, text) text,
        EBB_FIELD_LIST(FIELD_NAME)
#undef FIELD_NAME
    };
    EBB_ASSERT((unsigned)field < EBB_FIELD_COUNT);
    return names[field];
}

static int64_t size_of(const struct ebb_model_config *config, enum ebb_size_kind kind)
{
    switch (kind) {
    case EBB_SIZE_ONE:
        return 1;
    case EBB_SIZE_WIDTH:
        return config->width;
    case EBB_SIZE_Q:
        return config->heads * config->head_dim;
    case EBB_SIZE_KV:
        return config->kv_heads * config->head_dim;
    case EBB_SIZE_HEAD_DIM:
        return config->head_dim;
    case EBB_SIZE_FFN:
        return config->ffn;
    case EBB_SIZE_VOCAB:
        break;
    }
    EBB_ASSERT(kind == EBB_SIZE_VOCAB);
    return config->vocab;
}

static bool has_row(const struct ebb_model_config *config, const struct ebb_weight_row *row)
{
    switch (row->when) {
    case EBB_WHEN_ALWAYS:
        return true;
    case EBB_WHEN_QKV_BIAS:
        return config->qkv_bias;
    case EBB_WHEN_O_BIAS:
        return config->o_bias;
    case EBB_WHEN_MLP_BIAS:
        return config->mlp_bias;
    case EBB_WHEN_QK_NORM:
        return config->qk_norm;
    case EBB_WHEN_UNTIED:
        break;
    }
    EBB_ASSERT(row->when == EBB_WHEN_UNTIED);
    return !config->tied;
}

static bool of_layer(const struct ebb_weight_row *row)
{
    return strchr(row->name, '#') != NULL;
}

bool ebb_weight_elements(const struct ebb_model_config *config, int64_t *elements)
{
    const int64_t most =
        (int64_t)1 << 56; /* bytes of any type, and sums of a few copies, still fit into int64_t */
    const struct ebb_family *family = config->family;
    int64_t total = 0;
    for (int64_t r = 0; r < family->row_count; r++) {
        const struct ebb_weight_row *row = &family->rows[r];
        int64_t product;
        if (!has_row(config, row)) continue;
        if (__builtin_mul_overflow(size_of(config, row->rows), size_of(config, row->cols),
                                   &product) ||
            __builtin_mul_overflow(product, of_layer(row) ? config->layers : 1, &product) ||
            __builtin_add_overflow(total, product, &total) || total > most)
            return false;
    }
    *elements = total;
    return true;
}

/* The name with '#' replaced; `cut` bytes are left off its end. */
static char *make_name(struct ebb_ctx *ctx, const char *pattern, int layer, size_t cut)
{
    const char *mark = strchr(pattern, '#');
    size_t bytes = strlen(pattern) - cut;
    if (mark == NULL) return ebb_mem_strndup(ctx, pattern, bytes);
    size_t head = (size_t)(mark - pattern);
    return ebb_mem_format(ctx, "%.*s%d%.*s", (int)head, pattern, layer, (int)(bytes - head - 1),
                          mark + 1);
}

static enum ebb_status add(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                           const struct ebb_weight_row *row, int layer,
                           struct ebb_weight_list *list)
{
    struct ebb_weight *weight = &list->items[list->count];
    const struct ebb_weight *last = list->count ? weight - 1 : NULL;
    weight->field = row->field;
    weight->layer = layer;
    weight->rows = size_of(config, row->rows);
    weight->cols = size_of(config, row->cols);
    if (last && last->field == row->field && last->layer == layer)
        weight->row0 =
            last->row0 + (last->rows == 1 && row->rows == EBB_SIZE_ONE ? last->cols : last->rows);
    list->count++;
    weight->name = make_name(ctx, row->name, layer, 0);
    if (weight->name == NULL) return EBB_NO_MEMORY;
    if (row->target == NULL) return EBB_OK;
    weight->target = row->target;
    weight->module = make_name(ctx, row->name, layer, strlen(".weight"));
    return weight->module ? EBB_OK : EBB_NO_MEMORY;
}

static enum ebb_status add_all(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                               struct ebb_weight_list *list)
{
    const struct ebb_family *family = config->family;
    int64_t r = 0, end;
    for (; r < family->row_count && !of_layer(&family->rows[r]); r++)
        if (has_row(config, &family->rows[r]))
            EBB_TRY(add(ctx, config, &family->rows[r], -1, list));
    for (end = r; end < family->row_count && of_layer(&family->rows[end]);) end++;
    for (int layer = 0; layer < config->layers; layer++)
        for (int64_t i = r; i < end; i++)
            if (has_row(config, &family->rows[i]))
                EBB_TRY(add(ctx, config, &family->rows[i], layer, list));
    for (r = end; r < family->row_count; r++)
        if (has_row(config, &family->rows[r]))
            EBB_TRY(add(ctx, config, &family->rows[r], -1, list));
    return EBB_OK;
}

enum ebb_status ebb_weight_list_create(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                                       struct ebb_weight_list *list)
{
    int64_t most = config->family->row_count * config->layers;
    list->count = 0;
    list->items = ebb_mem_alloc(ctx, (size_t)most * sizeof *list->items);
    if (list->items == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = add_all(ctx, config, list);
    if (status != EBB_OK) ebb_weight_list_free(ctx, list);
    return status;
}

void ebb_weight_list_free(struct ebb_ctx *ctx, struct ebb_weight_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        ebb_mem_free(ctx, list->items[i].name);
        ebb_mem_free(ctx, list->items[i].module);
    }
    ebb_mem_free(ctx, list->items);
    list->items = NULL;
    list->count = 0;
}
