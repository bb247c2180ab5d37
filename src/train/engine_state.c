/* Parameters in and out: weights from files, adapters, whole models, exact training state.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/file.h"
#include "model/init.h"
#include "train/engine_int.h"

/* ---- weights in ---- */

/* A weight on its way from a file: rows of it at a time, in the type that they are kept in. */
struct inward {
    struct ebb_engine *engine;
    const struct ebb_tensor_info *info;
    const struct ebb_weight *weight;
    const struct ebb_param *param; /* whose exact values are kept in two halves; else NULL */
    struct ebb_view view;          /* else: where it goes */
    int64_t row0;                  /* of the weight in the parameter */
};

static enum ebb_status load_block(const struct inward *in, int64_t row, int64_t rows, void *block)
{
    int64_t cols = in->weight->cols;
    enum ebb_dtype dtype = in->param ? EBB_F32 : (enum ebb_dtype)in->view.dtype;
    ebb_tensor_copy_rows(in->info, row, rows, cols, block, dtype, cols);
    if (!in->param) return ebb_engine_put(in->engine, &in->view, row, rows, block);
    if (in->param->w.rows == 1)
        return ebb_engine_write_part(in->engine, in->param, in->row0, cols, block);
    return ebb_engine_write_rows(in->engine, in->param, in->row0 + row, rows, block);
}

static enum ebb_status load_weight(struct ebb_engine *engine, const struct ebb_net *net,
                                   const struct ebb_weight *weight,
                                   const struct ebb_safetensors *set, int64_t index)
{
    struct inward in = {.engine = engine, .weight = weight};
    EBB_TRY(
        ebb_safetensors_want(engine->ctx, set, weight->name, weight->rows, weight->cols, &in.info));
    const struct ebb_param *param = ebb_decoder_param(net, index, &in.row0);
    in.view = ebb_decoder_weight(net, index);
    if (in.view.tensor < 0) return ebb_engine_open_table(engine, net, weight, in.info->file);
    if (param && param->lo >= 0) in.param = param;
    int64_t row_bytes = weight->cols * (int64_t)sizeof(float),
            step = ebb_engine_block_rows(row_bytes);
    if (step > weight->rows) step = weight->rows;
    void *block = ebb_mem_alloc(engine->ctx, (size_t)(step * row_bytes));
    if (!block) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    for (int64_t row = 0; row < weight->rows && status == EBB_OK; row += step)
        status = load_block(&in, row, weight->rows - row < step ? weight->rows - row : step, block);
    ebb_mem_free(engine->ctx, block);
    return status;
}

static struct ebb_view adapter_view(const struct ebb_engine *engine, int64_t weight, char which)
{
    return ebb_decoder_adapter_view(engine->net, &engine->plan->policies, weight, which);
}

/* One of an adapter's two matrices, as fp32, into master (where trained) and copy. */
static enum ebb_status set_adapter(struct ebb_engine *engine, int64_t weight, char which,
                                   const float *value)
{
    const struct ebb_param *param = ebb_decoder_adapter(engine->net, weight, which);
    struct ebb_view view = adapter_view(engine, weight, which);
    return param ? ebb_engine_write_rows(engine, param, 0, view.rows, value)
                 : ebb_engine_put_values(engine, &view, 0, view.rows, value);
}

static enum ebb_status load_adapter_matrix(struct ebb_engine *engine,
                                           const struct ebb_safetensors *set, int64_t index,
                                           char which)
{
    const struct ebb_weight *weight = &engine->weights.items[index];
    struct ebb_view view = adapter_view(engine, index, which);
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
    if (status == EBB_OK) status = set_adapter(engine, index, which, value);
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
        if (adapter_view(engine, i, 'A').tensor < 0) continue;
        status = load_adapter_matrix(engine, set, i, 'A');
        if (status == EBB_OK) status = load_adapter_matrix(engine, set, i, 'B');
        used += 2;
    }
    if (status == EBB_OK && set) status = check_all_used(engine, set, used);
    ebb_safetensors_close(engine->ctx, set);
    return status;
}

static enum ebb_status load_model(struct ebb_engine *engine, const struct ebb_net *net,
                                  const struct ebb_weight_list *weights, const char *dir)
{
    struct ebb_safetensors *set = NULL;
    if (engine->request.blank) return ebb_engine_fill_weights(engine, net, weights);
    EBB_TRY(ebb_safetensors_open_dir(engine->ctx, dir, &set));
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; status == EBB_OK && i < weights->count; i++)
        status = load_weight(engine, net, &weights->items[i], set, i);
    ebb_safetensors_close(engine->ctx, set);
    return status;
}

enum ebb_status ebb_engine_load_weights(struct ebb_engine *engine)
{
    const struct ebb_engine_request *request = &engine->request;
    EBB_TRY(load_model(engine, engine->net, &engine->weights, request->model_dir));
    if (engine->teacher)
        EBB_TRY(load_model(engine, ebb_decoder_teacher(engine->net), &engine->teacher_weights,
                           request->teacher_dir));
    return engine->adapter_config.rank > 0 ? load_adapter(engine) : EBB_OK;
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

static void convert(const float *value, int64_t count, enum ebb_dtype dtype, void *out)
{
    if (dtype == EBB_F32)
        memcpy(out, value, (size_t)count * sizeof *value);
    else
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)out)[i] = dtype == EBB_BF16 ? ebb_to_bf16(value[i]) : ebb_to_f16(value[i]);
}

/* Rows of what is to be written, as fp32 [rows, view.cols]; `wide` [rows, the parameter's cols] is
 * working memory. */
static enum ebb_status read_source(const struct source *s, int64_t row0, int64_t rows, float *wide)
{
    const struct ebb_param *param = s->param;
    if (s->what)
        return ebb_engine_read_moment(s->engine, param, s->what == 'm' ? param->m : param->v, row0,
                                      rows, wide);
    if (s->view.tensor < 0) {
        ebb_engine_get_table_values(s->engine, row0, rows, wide);
        return EBB_OK;
    }
    /* What programs read is what is saved, where the file's type is the storage type. */
    if (!param || (s->dtype == EBB_BF16 && s->view.dtype == EBB_BF16))
        return ebb_engine_get_values(s->engine, &s->view, row0, rows, wide);
    EBB_TRY(ebb_engine_read_rows(s->engine, param, s->row0 + row0, rows, wide));
    for (int64_t i = 0; i < rows && s->view.cols < param->w.cols; i++)
        memmove(wide + i * s->view.cols, wide + i * param->w.cols + s->col0,
                (size_t)s->view.cols * sizeof *wide);
    return EBB_OK;
}

static enum ebb_status fill_source(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows,
                                   void *out)
{
    const struct source *s = (const struct source *)user;
    int64_t cols = s->view.cols,
            wide = s->param && s->param->w.cols > cols ? s->param->w.cols : cols;
    int64_t step = ebb_engine_block_rows(wide * (int64_t)sizeof(float));
    if (step > rows) step = rows;
    float *value = (float *)ebb_mem_alloc(ctx, (size_t)(step * wide) * sizeof *value);
    if (!value) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; i < rows && status == EBB_OK; i += step) {
        int64_t count = rows - i < step ? rows - i : step;
        status = read_source(s, row0 + i, count, value);
        if (status == EBB_OK)
            convert(value, count * cols, s->dtype,
                    (char *)out + i * cols * ebb_dtype_bytes(s->dtype));
    }
    ebb_mem_free(ctx, value);
    return status;
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
        s->view = adapter_view(engine, i / 2, which);
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
        s->view = ebb_policies_param(&engine->plan->policies, param);
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

static enum ebb_status load_part(struct ebb_engine *engine, const struct ebb_safetensors *set,
                                 const struct ebb_param *param, int part)
{
    char name[128];
    int64_t rows = param->w.rows, cols = param->w.cols;
    state_name(param, part, name, sizeof name);
    const struct ebb_tensor_info *info = ebb_safetensors_find(set, name);
    if (!info || info->dtype != EBB_F32 || info->dims != 2 || info->shape[0] != rows ||
        info->shape[1] != cols)
        return EBB_FAIL(engine->ctx, EBB_BAD_FILE,
                        "checkpoint: no tensor '%s' of float32 [%lld, %lld]: it belongs to another "
                        "model or method",
                        name, (long long)rows, (long long)cols);
    int64_t step = ebb_engine_block_rows(cols * (int64_t)sizeof(float));
    if (step > rows) step = rows;
    float *value = (float *)ebb_mem_alloc(engine->ctx, (size_t)(step * cols) * sizeof *value);
    if (!value) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    for (int64_t row = 0; row < rows && status == EBB_OK; row += step) {
        int64_t count = rows - row < step ? rows - row : step;
        ebb_tensor_copy_rows(info, row, count, cols, value, EBB_F32, cols);
        status = part ? ebb_engine_write_moment(engine, param, part == 'm' ? param->m : param->v,
                                                row, count, value)
                      : ebb_engine_write_rows(engine, param, row, count, value);
    }
    ebb_mem_free(engine->ctx, value);
    return status;
}

enum ebb_status ebb_engine_load_state(struct ebb_engine *engine, const char *path)
{
    struct ebb_safetensors *set;
    EBB_TRY(ebb_safetensors_open_file(engine->ctx, path, &set));
    enum ebb_status status = EBB_OK;
    for (int32_t i = 0; status == EBB_OK && i < engine->net->param_count; i++) {
        const struct ebb_param *param = &engine->net->params[i];
        for (int part = 0; status == EBB_OK && part < 3; part++)
            if (has_part(param, state_parts[part]))
                status = load_part(engine, set, param, state_parts[part]);
    }
    ebb_safetensors_close(engine->ctx, set);
    return status;
}
