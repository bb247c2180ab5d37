/* Input embeddings whose table is not on the device: it stays in the model's file, mapped, and
 * before each run the rows of the run's tokens are put where the program moves them in from. They
 * are converted as loading would have done, so a run has the same bits either way. The file is
 * read for as long as the run lasts: it may be replaced by another (renamed over), but not be
 * written to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "train/engine_int.h"

/* Of engine->tables. */
static int table_of(const struct ebb_engine *engine, const struct ebb_net *net)
{
    return net == engine->net ? 0 : 1;
}

/* Opened anew, and that file alone: what the other weights were read from need not stay mapped. */
enum ebb_status ebb_engine_open_table(struct ebb_engine *engine, const struct ebb_net *net,
                                      const struct ebb_weight *weight, const char *path)
{
    struct ebb_engine_table *table = &engine->tables[table_of(engine, net)];
    EBB_ASSERT(!table->info);
    EBB_TRY(ebb_safetensors_open_file(engine->ctx, path, &table->set));
    EBB_TRY(ebb_safetensors_want(engine->ctx, table->set, weight->name, weight->rows, weight->cols,
                                 &table->info));
    table->cols = weight->cols;
    ebb_map_read_ahead(table->info->data, (size_t)table->info->bytes);
    return EBB_OK;
}

enum ebb_status ebb_engine_make_table(struct ebb_engine *engine, const struct ebb_net *net,
                                      const struct ebb_weight *weight, void **values)
{
    struct ebb_engine_table *table = &engine->tables[table_of(engine, net)];
    const enum ebb_dtype dtype = engine->request.storage;
    const int64_t bytes = weight->rows * weight->cols * ebb_dtype_bytes(dtype);
    EBB_ASSERT(!table->info);
    *values = table->memory = ebb_mem_alloc(engine->ctx, (size_t)bytes);
    if (!table->memory) return EBB_NO_MEMORY;
    table->own = (struct ebb_tensor_info){.name = weight->name,
                                          .file = engine->request.model_dir,
                                          .dtype = dtype,
                                          .dims = 2,
                                          .shape = {weight->rows, weight->cols},
                                          .data = table->memory,
                                          .bytes = bytes};
    table->info = &table->own;
    table->cols = weight->cols;
    return EBB_OK;
}

void ebb_engine_close_tables(struct ebb_engine *engine)
{
    for (int i = 0; i < 2; i++) {
        ebb_safetensors_close(engine->ctx, engine->tables[i].set);
        ebb_mem_free(engine->ctx, engine->tables[i].memory);
    }
    memset(engine->tables, 0, sizeof engine->tables);
}

/* What a GPU's kernels cannot refuse. */
static enum ebb_status check_ids(struct ebb_engine *engine, const int32_t *ids, int64_t count,
                                 bool second)
{
    int64_t vocab = engine->config->vocab;
    const char *whose = "";
    if (second && engine->teacher && engine->teacher->vocab < vocab) {
        vocab = engine->teacher->vocab;
        whose = ebb_objective_prefers(&engine->request.objective) ? "reference's " : "teacher's ";
    }
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return EBB_FAIL(engine->ctx, EBB_FAILED,
                            "token %lld has id %ld, the %sembedding has %lld rows: the data was "
                            "made with another model's tokenizer",
                            (long long)i, (long)ids[i], whose, (long long)vocab);
    return EBB_OK;
}

/* The host tensor of a net's rows, ready to be written; NULL: its table is on the device. */
static void *rows_of(const struct ebb_engine *engine, const struct ebb_net *net, int32_t slot)
{
    int32_t tensor = net ? ebb_decoder_rows_tensor(net) : -1;
    if (tensor < 0) return NULL;
    ebb_device_host_ready(engine->device);
    return ebb_engine_input(engine, tensor, slot);
}

static void put_rows(struct ebb_engine *engine, const struct ebb_net *net, int32_t slot,
                     const int32_t *ids, int64_t count)
{
    void *rows = rows_of(engine, net, slot);
    const struct ebb_engine_table *table = &engine->tables[table_of(engine, net)];
    if (!rows) return;
    ebb_tensor_gather_rows(table->info, ids, count, table->cols, rows, engine->request.storage);
}

enum ebb_status ebb_engine_put_ids(struct ebb_engine *engine, int32_t slot, const int32_t *ids,
                                   int64_t count, bool second)
{
    EBB_TRY(check_ids(engine, ids, count, second));
    put_rows(engine, engine->net, slot, ids, count);
    if (second) put_rows(engine, ebb_decoder_teacher(engine->net), slot, ids, count);
    return ebb_device_copy(engine->device, ebb_engine_input(engine, engine->net->inputs.ids, slot),
                           ids, count * (int64_t)sizeof *ids);
}

void ebb_engine_clear_rows(struct ebb_engine *engine, int64_t count)
{
    const struct ebb_net *nets[] = {engine->net, ebb_decoder_teacher(engine->net)};
    const struct ebb_model_config *configs[] = {engine->config, engine->teacher};
    for (int i = 0; i < 2; i++) {
        void *rows = rows_of(engine, nets[i], 0);
        if (rows)
            memset(rows, 0,
                   (size_t)(count * configs[i]->width * ebb_dtype_bytes(engine->request.storage)));
    }
}

enum ebb_status ebb_engine_get_weight(const struct ebb_engine *engine, const struct ebb_net *net,
                                      int64_t weight, int64_t row0, int64_t rows, void *out)
{
    struct ebb_view view = ebb_decoder_weight(net, weight);
    if (view.tensor >= 0) return ebb_engine_get(engine, &view, row0, rows, out);
    ebb_tensor_copy_rows(engine->tables[table_of(engine, net)].info, row0, rows, view.cols, out,
                         (enum ebb_dtype)view.dtype, view.cols);
    return EBB_OK;
}

void ebb_engine_get_table_values(const struct ebb_engine *engine, int64_t row0, int64_t rows,
                                 float *value)
{
    const struct ebb_engine_table *table = &engine->tables[0];
    int64_t cols = table->cols;
    ebb_tensor_copy_rows(table->info, row0, rows, cols, value, EBB_F32, cols);
    for (int64_t i = 0; engine->request.storage == EBB_BF16 && i < rows * cols; i++)
        value[i] = ebb_from_bf16(ebb_to_bf16(value[i]));
}
