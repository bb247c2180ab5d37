/* Parameters in and out: weights from files, adapters, whole models, exact training state.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/file.h"
#include "model/init.h"
#include "op/optimizer.h"
#include "train/engine_int.h"

static char *row_of(const struct ebb_engine *engine, const struct ebb_view *view, int64_t row)
{
    return (char *)ebb_engine_tensor(engine, view->tensor) + view->offset +
           row * view->stride * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
}

static void read_view_row(const struct ebb_engine *engine, const struct ebb_view *view, int64_t row,
                          float *value)
{
    const char *from = row_of(engine, view, row);
    if (view->dtype == EBB_F32)
        memcpy(value, from, (size_t)view->cols * sizeof *value);
    else
        for (int64_t i = 0; i < view->cols; i++)
            value[i] = ebb_from_bf16(((const uint16_t *)(const void *)from)[i]);
}

static void write_view_row(const struct ebb_engine *engine, const struct ebb_view *view,
                           int64_t row, const float *value)
{
    char *to = row_of(engine, view, row);
    if (view->dtype == EBB_F32)
        memcpy(to, value, (size_t)view->cols * sizeof *value);
    else
        for (int64_t i = 0; i < view->cols; i++)
            ((uint16_t *)(void *)to)[i] = ebb_to_bf16(value[i]);
}

void ebb_engine_read_row(const struct ebb_engine *engine, const struct ebb_param *param,
                         int64_t row, float *value)
{
    int64_t cols = param->w.cols;
    if (param->master >= 0) {
        memcpy(value, (const float *)ebb_engine_tensor(engine, param->master) + row * cols,
               (size_t)cols * sizeof *value);
        return;
    }
    read_view_row(engine, &param->w, row, value);
    if (param->lo < 0) return;
    const uint16_t *hi = (const uint16_t *)(const void *)row_of(engine, &param->w, row);
    const uint16_t *lo = (const uint16_t *)ebb_engine_tensor(engine, param->lo) + row * cols;
    for (int64_t i = 0; i < cols; i++) value[i] = ebb_master_join(hi[i], lo[i]);
}

void ebb_engine_write_row(struct ebb_engine *engine, const struct ebb_param *param, int64_t row,
                          const float *value)
{
    int64_t cols = param->w.cols;
    if (param->lo >= 0) {
        uint16_t *hi = (uint16_t *)(void *)row_of(engine, &param->w, row);
        uint16_t *lo = (uint16_t *)ebb_engine_tensor(engine, param->lo) + row * cols;
        for (int64_t i = 0; i < cols; i++) ebb_master_split(value[i], &hi[i], &lo[i]);
        return;
    }
    if (param->master >= 0)
        memcpy((float *)ebb_engine_tensor(engine, param->master) + row * cols, value,
               (size_t)cols * sizeof *value);
    write_view_row(engine, &param->w, row, value);
}

void ebb_engine_read_param(const struct ebb_engine *engine, const struct ebb_param *param,
                           float *value)
{
    for (int64_t row = 0; row < param->w.rows; row++)
        ebb_engine_read_row(engine, param, row, value + row * param->w.cols);
}

void ebb_engine_read_grad(const struct ebb_engine *engine, const struct ebb_param *param,
                          float *grad)
{
    memcpy(grad, ebb_engine_tensor(engine, param->grad),
           (size_t)(param->w.rows * param->w.cols) * sizeof *grad);
}

/* ---- weights in ---- */

/* A weight whose exact value is kept in two parts: through fp32, row by row. */
static enum ebb_status load_split(struct ebb_engine *engine, const struct ebb_tensor_info *info,
                                  const struct ebb_param *param, int64_t row0,
                                  const struct ebb_weight *weight)
{
    bool vector = param->w.rows == 1;
    int64_t cols = weight->cols;
    float *value = (float *)ebb_mem_alloc(engine->ctx, (size_t)cols * sizeof *value);
    if (!value) return EBB_NO_MEMORY;
    for (int64_t row = 0; row < weight->rows; row++) {
        ebb_tensor_copy_rows(info, row, 1, cols, value, EBB_F32, cols);
        if (!vector) {
            ebb_engine_write_row(engine, param, row0 + row, value);
            continue;
        }
        uint16_t *hi = (uint16_t *)(void *)row_of(engine, &param->w, 0) + row0;
        uint16_t *lo = (uint16_t *)ebb_engine_tensor(engine, param->lo) + row0;
        for (int64_t i = 0; i < cols; i++) ebb_master_split(value[i], &hi[i], &lo[i]);
    }
    ebb_mem_free(engine->ctx, value);
    return EBB_OK;
}

static enum ebb_status load_weight(struct ebb_engine *engine, const struct ebb_safetensors *set,
                                   int64_t index)
{
    const struct ebb_weight *weight = &engine->weights.items[index];
    const struct ebb_tensor_info *info;
    int64_t row0 = 0;
    EBB_TRY(
        ebb_safetensors_want(engine->ctx, set, weight->name, weight->rows, weight->cols, &info));
    const struct ebb_param *param = ebb_decoder_param(engine->net, index, &row0);
    if (param && param->lo >= 0) return load_split(engine, info, param, row0, weight);
    struct ebb_view view = ebb_decoder_weight(engine->net, index);
    ebb_tensor_copy(info, weight->rows, weight->cols, row_of(engine, &view, 0),
                    (enum ebb_dtype)view.dtype, view.stride);
    return EBB_OK;
}

/* One of an adapter's two matrices, as fp32, into master (where trained) and copy. */
static void set_adapter(struct ebb_engine *engine, int64_t weight, char which, const float *value)
{
    const struct ebb_param *param = ebb_decoder_adapter(engine->net, weight, which);
    struct ebb_view view = ebb_decoder_adapter_view(engine->net, weight, which);
    for (int64_t row = 0; row < view.rows; row++) {
        if (param)
            ebb_engine_write_row(engine, param, row, value + row * view.cols);
        else
            write_view_row(engine, &view, row, value + row * view.cols);
    }
}

static enum ebb_status load_adapter_matrix(struct ebb_engine *engine,
                                           const struct ebb_safetensors *set, int64_t index,
                                           char which)
{
    const struct ebb_weight *weight = &engine->weights.items[index];
    struct ebb_view view = ebb_decoder_adapter_view(engine->net, index, which);
    float *value =
        (float *)ebb_mem_alloc(engine->ctx, (size_t)(view.rows * view.cols) * sizeof *value);
    if (!value) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    if (set) {
        const struct ebb_tensor_info *info;
        char *name = ebb_adapter_tensor_name(engine->ctx, weight, which);
        status = name ? ebb_safetensors_want(engine->ctx, set, name, view.rows, view.cols, &info)
                      : EBB_NO_MEMORY;
        if (status == EBB_OK)
            ebb_tensor_copy(info, view.rows, view.cols, value, EBB_F32, view.cols);
        ebb_mem_free(engine->ctx, name);
    } else if (which == 'A') {
        ebb_adapter_init_a(&engine->adapter_config, weight, engine->request.seed, (uint32_t)index,
                           value);
    }
    if (status == EBB_OK) set_adapter(engine, index, which, value);
    ebb_mem_free(engine->ctx, value);
    return status;
}

/* Every tensor of the file was asked for: one that belongs to nothing would change the numbers if
 * it were not left out. */
static enum ebb_status check_all_used(struct ebb_engine *engine, const struct ebb_safetensors *set,
                                      int64_t used)
{
    int64_t have = ebb_safetensors_count(set);
    if (have == used) return EBB_OK;
    return EBB_FAIL(engine->ctx, EBB_BAD_FILE,
                    "'%s/adapter_model.safetensors' holds %lld tensors, but its target_modules and "
                    "this model have a use for %lld\nis it the adapter_config.json that belongs to "
                    "it?",
                    engine->request.adapter_dir, (long long)have, (long long)used);
}

static enum ebb_status load_adapter(struct ebb_engine *engine)
{
    struct ebb_safetensors *set = NULL;
    int64_t used = 0;
    enum ebb_status status = EBB_OK;
    if (engine->request.adapter_dir) {
        char *path =
            ebb_path_join(engine->ctx, engine->request.adapter_dir, "adapter_model.safetensors");
        status = path ? ebb_safetensors_open_file(engine->ctx, path, &set) : EBB_NO_MEMORY;
        ebb_mem_free(engine->ctx, path);
    }
    for (int64_t i = 0; status == EBB_OK && i < engine->weights.count; i++) {
        if (ebb_decoder_adapter_view(engine->net, i, 'A').tensor < 0) continue;
        status = load_adapter_matrix(engine, set, i, 'A');
        if (status == EBB_OK) status = load_adapter_matrix(engine, set, i, 'B');
        used += 2;
    }
    if (status == EBB_OK && set) status = check_all_used(engine, set, used);
    ebb_safetensors_close(engine->ctx, set);
    return status;
}

enum ebb_status ebb_engine_load_weights(struct ebb_engine *engine)
{
    struct ebb_safetensors *set = NULL;
    EBB_TRY(ebb_safetensors_open_dir(engine->ctx, engine->request.model_dir, &set));
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; status == EBB_OK && i < engine->weights.count; i++)
        status = load_weight(engine, set, i);
    ebb_safetensors_close(engine->ctx, set);
    if (status == EBB_OK && engine->adapter_config.rank > 0) status = load_adapter(engine);
    return status;
}

/* ---- out ---- */

/* Where rows of a tensor to be written come from. */
struct source {
    struct ebb_engine *engine;
    const struct ebb_param *param; /* its exact values; NULL: the view's */
    struct ebb_view view;
    int64_t row0, col0; /* of the written tensor in the parameter */
    enum ebb_dtype dtype;
    int what; /* 0: value, else 'm' or 'v' */
};

static void convert_row(const float *value, int64_t cols, enum ebb_dtype dtype, void *out)
{
    if (dtype == EBB_F32)
        memcpy(out, value, (size_t)cols * sizeof *value);
    else
        for (int64_t i = 0; i < cols; i++)
            ((uint16_t *)out)[i] = dtype == EBB_BF16 ? ebb_to_bf16(value[i]) : ebb_to_f16(value[i]);
}

static enum ebb_status fill_source(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows,
                                   void *out)
{
    const struct source *s = (const struct source *)user;
    const struct ebb_param *param = s->param;
    int64_t cols = s->view.cols, wide = param ? param->w.cols : cols;
    float *value = (float *)ebb_mem_alloc(ctx, (size_t)wide * sizeof *value);
    if (!value) return EBB_NO_MEMORY;
    /* What programs read is what is saved, where the file's type is the storage type. */
    bool exact = param && !(s->dtype == EBB_BF16 && s->view.dtype == EBB_BF16);
    for (int64_t i = 0; i < rows; i++) {
        char *to = (char *)out + i * cols * ebb_dtype_bytes(s->dtype);
        if (s->what) {
            int32_t tensor = s->what == 'm' ? param->m : param->v;
            memcpy(to, (const float *)ebb_engine_tensor(s->engine, tensor) + (row0 + i) * wide,
                   (size_t)wide * sizeof(float));
        } else if (exact) {
            ebb_engine_read_row(s->engine, param, s->row0 + row0 + i, value);
            convert_row(value + s->col0, cols, s->dtype, to);
        } else {
            read_view_row(s->engine, &s->view, row0 + i, value);
            convert_row(value, cols, s->dtype, to);
        }
    }
    ebb_mem_free(ctx, value);
    return EBB_OK;
}

static void set_shape(struct ebb_tensor_source *tensor, struct source *source, const char *name,
                      int64_t rows, int64_t cols, bool vector)
{
    tensor->name = name;
    tensor->dtype = source->dtype;
    tensor->dims = vector ? 1 : 2;
    tensor->shape[0] = vector ? cols : rows;
    tensor->shape[1] = vector ? 0 : cols;
    tensor->fill = fill_source;
    tensor->user = source;
}

/* Arrays for `count` tensors to be written. */
struct outbox {
    struct ebb_tensor_source *tensors;
    struct source *sources;
    char (*names)[128];
    int64_t count;
};

static void outbox_free(struct ebb_ctx *ctx, struct outbox *box)
{
    ebb_mem_free(ctx, box->tensors);
    ebb_mem_free(ctx, box->sources);
    ebb_mem_free(ctx, box->names);
}

static enum ebb_status outbox_create(struct ebb_ctx *ctx, int64_t room, struct outbox *box)
{
    size_t n = (size_t)(room > 0 ? room : 1);
    memset(box, 0, sizeof *box);
    box->tensors = (struct ebb_tensor_source *)ebb_mem_alloc(ctx, n * sizeof *box->tensors);
    box->sources = (struct source *)ebb_mem_alloc(ctx, n * sizeof *box->sources);
    box->names = ebb_mem_alloc(ctx, n * sizeof *box->names);
    if (box->tensors && box->sources && box->names) return EBB_OK;
    outbox_free(ctx, box);
    return EBB_NO_MEMORY;
}

enum ebb_status ebb_engine_save_model(struct ebb_engine *engine, const char *dir,
                                      enum ebb_dtype dtype)
{
    struct outbox box;
    EBB_TRY(outbox_create(engine->ctx, engine->weights.count, &box));
    for (int64_t i = 0; i < engine->weights.count; i++) {
        const struct ebb_weight *weight = &engine->weights.items[i];
        struct source *s = &box.sources[i];
        bool vector = weight->rows == 1;
        int64_t at = 0;
        s->engine = engine;
        s->param = ebb_decoder_param(engine->net, i, &at);
        s->view = ebb_decoder_weight(engine->net, i);
        s->row0 = s->param && s->param->w.rows == 1 ? 0 : at;
        s->col0 = s->param && s->param->w.rows == 1 ? at : 0;
        s->dtype = dtype;
        set_shape(&box.tensors[i], s, weight->name, weight->rows, weight->cols, vector);
    }
    enum ebb_status status = ebb_dir_create(engine->ctx, dir);
    if (status == EBB_OK)
        status = ebb_safetensors_save_dir(engine->ctx, dir, box.tensors, engine->weights.count,
                                          INT64_C(5) << 30);
    if (status == EBB_OK)
        status = ebb_model_copy_side_files(engine->ctx, engine->request.model_dir, dir, dtype);
    outbox_free(engine->ctx, &box);
    return status;
}

enum ebb_status ebb_engine_save_adapter(struct ebb_engine *engine, const char *dir)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    struct outbox box;
    enum ebb_status status = EBB_OK;
    EBB_TRY(outbox_create(engine->ctx, 2 * engine->weights.count, &box));
    for (int64_t i = 0; i < 2 * engine->weights.count && status == EBB_OK; i++) {
        char which = i % 2 ? 'B' : 'A';
        struct source *s = &box.sources[box.count];
        s->view = ebb_decoder_adapter_view(engine->net, i / 2, which);
        if (s->view.tensor < 0) continue;
        s->engine = engine;
        s->param = ebb_decoder_adapter(engine->net, i / 2, which);
        s->dtype = EBB_F32;
        char *name = ebb_adapter_tensor_name(engine->ctx, &engine->weights.items[i / 2], which);
        if (!name) status = EBB_NO_MEMORY;
        snprintf(box.names[box.count], sizeof box.names[0], "%s", name ? name : "");
        ebb_mem_free(engine->ctx, name);
        set_shape(&box.tensors[box.count], s, box.names[box.count], s->view.rows, s->view.cols,
                  false);
        box.count++;
    }
    if (status == EBB_OK) status = ebb_dir_create(engine->ctx, dir);
    char *path = ebb_path_join(engine->ctx, dir, "adapter_model.safetensors");
    if (!path) status = EBB_NO_MEMORY;
    if (status == EBB_OK)
        status = ebb_safetensors_save_file(engine->ctx, path, box.tensors, box.count, metadata);
    if (status == EBB_OK)
        status = ebb_adapter_config_save(engine->ctx, dir, &engine->adapter_config);
    ebb_mem_free(engine->ctx, path);
    outbox_free(engine->ctx, &box);
    return status;
}

/* ---- exact state ---- */

static const int state_parts[] = {0, 'm', 'v'};

static bool has_part(const struct ebb_param *param, int part)
{
    return part == 0 || (part == 'm' ? param->m : param->v) >= 0;
}

static void state_name(const struct ebb_param *param, int part, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s.%s", param->name, part == 0 ? "value" : part == 'm' ? "m" : "v");
}

enum ebb_status ebb_engine_save_state(struct ebb_engine *engine, const char *path)
{
    struct outbox box;
    EBB_TRY(outbox_create(engine->ctx, 3 * (int64_t)engine->net->param_count, &box));
    for (int32_t i = 0; i < 3 * engine->net->param_count; i++) {
        const struct ebb_param *param = &engine->net->params[i / 3];
        int part = state_parts[i % 3];
        if (!has_part(param, part)) continue;
        struct source *s = &box.sources[box.count];
        s->engine = engine;
        s->param = param;
        s->view = param->w;
        s->dtype = EBB_F32;
        s->what = part;
        state_name(param, part, box.names[box.count], sizeof box.names[0]);
        set_shape(&box.tensors[box.count], s, box.names[box.count], param->w.rows, param->w.cols,
                  false);
        box.count++;
    }
    enum ebb_status status =
        ebb_safetensors_save_file(engine->ctx, path, box.tensors, box.count, NULL);
    outbox_free(engine->ctx, &box);
    return status;
}

/* `row` [cols] is working memory. */
static enum ebb_status load_part(struct ebb_engine *engine, const struct ebb_safetensors *set,
                                 const struct ebb_param *param, int part, float *row)
{
    const struct ebb_tensor_info *info;
    char name[128];
    int64_t rows = param->w.rows, cols = param->w.cols;
    state_name(param, part, name, sizeof name);
    info = ebb_safetensors_find(set, name);
    if (!info || info->dtype != EBB_F32 || info->dims != 2 || info->shape[0] != rows ||
        info->shape[1] != cols)
        return EBB_FAIL(engine->ctx, EBB_BAD_FILE,
                        "checkpoint: no tensor '%s' of float32 [%lld, %lld]: it belongs to another "
                        "model or method",
                        name, (long long)rows, (long long)cols);
    if (part) {
        float *to = (float *)ebb_engine_tensor(engine, part == 'm' ? param->m : param->v);
        ebb_tensor_copy(info, rows, cols, to, EBB_F32, cols);
        return EBB_OK;
    }
    for (int64_t i = 0; i < rows; i++) {
        ebb_tensor_copy_rows(info, i, 1, cols, row, EBB_F32, cols);
        ebb_engine_write_row(engine, param, i, row);
    }
    return EBB_OK;
}

enum ebb_status ebb_engine_load_state(struct ebb_engine *engine, const char *path)
{
    struct ebb_safetensors *set;
    EBB_TRY(ebb_safetensors_open_file(engine->ctx, path, &set));
    enum ebb_status status = EBB_OK;
    for (int32_t i = 0; status == EBB_OK && i < engine->net->param_count; i++) {
        const struct ebb_param *param = &engine->net->params[i];
        float *row = (float *)ebb_mem_alloc(engine->ctx, (size_t)param->w.cols * sizeof *row);
        if (!row) status = EBB_NO_MEMORY;
        for (int part = 0; status == EBB_OK && part < 3; part++)
            if (has_part(param, state_parts[part]))
                status = load_part(engine, set, param, state_parts[part], row);
        ebb_mem_free(engine->ctx, row);
    }
    ebb_safetensors_close(engine->ctx, set);
    return status;
}
