/* Rows of parameters between the engine's device and the host: raw elements, and exact fp32 values
 * wherever they live (op/optimizer.h has the four ways).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/optimizer.h"
#include "train/engine_int.h"

/* Where a row begins, as an address of the device. */
static char *row_of(const struct ebb_engine *engine, const struct ebb_view *view, int64_t row)
{
    return (char *)ebb_engine_tensor(engine, view->tensor) + view->offset +
           row * view->stride * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
}

enum ebb_status ebb_engine_get(const struct ebb_engine *engine, const struct ebb_view *view,
                               int64_t row0, int64_t rows, void *out)
{
    int64_t size = ebb_dtype_bytes((enum ebb_dtype)view->dtype), bytes = view->cols * size;
    return ebb_device_copy_rows(engine->device, out, bytes, row_of(engine, view, row0),
                                view->stride * size, bytes, rows);
}

enum ebb_status ebb_engine_put(struct ebb_engine *engine, const struct ebb_view *view, int64_t row0,
                               int64_t rows, const void *in)
{
    int64_t size = ebb_dtype_bytes((enum ebb_dtype)view->dtype), bytes = view->cols * size;
    return ebb_device_copy_rows(engine->device, row_of(engine, view, row0), view->stride * size, in,
                                bytes, bytes, rows);
}

/* What programs read of a parameter. */
static struct ebb_view copy_of(const struct ebb_engine *engine, const struct ebb_param *param)
{
    return ebb_policies_param(&engine->plan->policies, param);
}

/* A parameter's other tensors are whole and contiguous. */
static struct ebb_view beside(const struct ebb_param *param, int32_t tensor, enum ebb_dtype dtype)
{
    struct ebb_view view = param->w;
    view.tensor = tensor;
    view.dtype = (uint8_t)dtype;
    view.offset = 0;
    view.stride = view.cols;
    return view;
}

enum ebb_status ebb_engine_get_values(const struct ebb_engine *engine, const struct ebb_view *view,
                                      int64_t row0, int64_t rows, float *value)
{
    if (view->dtype == EBB_F32) return ebb_engine_get(engine, view, row0, rows, value);
    int64_t count = rows * view->cols;
    uint16_t *raw = ebb_mem_alloc(engine->ctx, (size_t)count * sizeof *raw);
    if (!raw) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_engine_get(engine, view, row0, rows, raw);
    for (int64_t i = 0; status == EBB_OK && i < count; i++) value[i] = ebb_from_bf16(raw[i]);
    ebb_mem_free(engine->ctx, raw);
    return status;
}

enum ebb_status ebb_engine_put_values(struct ebb_engine *engine, const struct ebb_view *view,
                                      int64_t row0, int64_t rows, const float *value)
{
    if (view->dtype == EBB_F32) return ebb_engine_put(engine, view, row0, rows, value);
    int64_t count = rows * view->cols;
    uint16_t *raw = ebb_mem_alloc(engine->ctx, (size_t)count * sizeof *raw);
    if (!raw) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < count; i++) raw[i] = ebb_to_bf16(value[i]);
    enum ebb_status status = ebb_engine_put(engine, view, row0, rows, raw);
    ebb_mem_free(engine->ctx, raw);
    return status;
}

/* Both halves of a split master. */
struct halves {
    uint16_t *hi, *lo;
};

static enum ebb_status halves_create(struct ebb_ctx *ctx, int64_t count, struct halves *halves)
{
    halves->hi = ebb_mem_alloc(ctx, (size_t)(2 * count) * sizeof *halves->hi);
    halves->lo = halves->hi ? halves->hi + count : NULL;
    return halves->hi ? EBB_OK : EBB_NO_MEMORY;
}

enum ebb_status ebb_engine_read_rows(const struct ebb_engine *engine, const struct ebb_param *param,
                                     int64_t row0, int64_t rows, float *value)
{
    if (param->master >= 0) {
        struct ebb_view master = beside(param, param->master, EBB_F32);
        return ebb_engine_get(engine, &master, row0, rows, value);
    }
    const struct ebb_view w = copy_of(engine, param);
    if (param->lo < 0) return ebb_engine_get_values(engine, &w, row0, rows, value);
    int64_t count = rows * param->w.cols;
    struct ebb_view low = beside(param, param->lo, EBB_U16);
    struct halves halves;
    EBB_TRY(halves_create(engine->ctx, count, &halves));
    enum ebb_status status = ebb_engine_get(engine, &w, row0, rows, halves.hi);
    if (status == EBB_OK) status = ebb_engine_get(engine, &low, row0, rows, halves.lo);
    for (int64_t i = 0; status == EBB_OK && i < count; i++)
        value[i] = ebb_master_join(halves.hi[i], halves.lo[i]);
    ebb_mem_free(engine->ctx, halves.hi);
    return status;
}

/* Values [rows, cols] of both halves' views. */
static enum ebb_status write_halves(struct ebb_engine *engine, const struct ebb_view *high,
                                    const struct ebb_view *low, int64_t row0, int64_t rows,
                                    const float *value)
{
    int64_t count = rows * high->cols;
    struct halves halves;
    EBB_TRY(halves_create(engine->ctx, count, &halves));
    for (int64_t i = 0; i < count; i++) ebb_master_split(value[i], &halves.hi[i], &halves.lo[i]);
    enum ebb_status status = ebb_engine_put(engine, high, row0, rows, halves.hi);
    if (status == EBB_OK) status = ebb_engine_put(engine, low, row0, rows, halves.lo);
    ebb_mem_free(engine->ctx, halves.hi);
    return status;
}

enum ebb_status ebb_engine_write_rows(struct ebb_engine *engine, const struct ebb_param *param,
                                      int64_t row0, int64_t rows, const float *value)
{
    const struct ebb_view w = copy_of(engine, param);
    if (param->lo >= 0) {
        struct ebb_view low = beside(param, param->lo, EBB_U16);
        return write_halves(engine, &w, &low, row0, rows, value);
    }
    if (param->master >= 0) {
        struct ebb_view master = beside(param, param->master, EBB_F32);
        EBB_TRY(ebb_engine_put(engine, &master, row0, rows, value));
    }
    return ebb_engine_put_values(engine, &w, row0, rows, value);
}

enum ebb_status ebb_engine_write_part(struct ebb_engine *engine, const struct ebb_param *param,
                                      int64_t col0, int64_t cols, const float *value)
{
    struct ebb_view high = param->w, low = beside(param, param->lo, EBB_U16);
    high.offset += col0 * (int64_t)sizeof(uint16_t);
    low.offset += col0 * (int64_t)sizeof(uint16_t);
    high.cols = low.cols = cols;
    return write_halves(engine, &high, &low, 0, 1, value);
}

enum ebb_status ebb_engine_read_param(const struct ebb_engine *engine,
                                      const struct ebb_param *param, float *value)
{
    return ebb_engine_read_rows(engine, param, 0, param->w.rows, value);
}

enum ebb_status ebb_engine_read_moment(const struct ebb_engine *engine,
                                       const struct ebb_param *param, int32_t tensor, int64_t row0,
                                       int64_t rows, float *value)
{
    struct ebb_view view = beside(param, tensor, EBB_F32);
    return ebb_engine_get(engine, &view, row0, rows, value);
}

enum ebb_status ebb_engine_write_moment(struct ebb_engine *engine, const struct ebb_param *param,
                                        int32_t tensor, int64_t row0, int64_t rows,
                                        const float *value)
{
    struct ebb_view view = beside(param, tensor, EBB_F32);
    return ebb_engine_put(engine, &view, row0, rows, value);
}

enum ebb_status ebb_engine_read_grad(const struct ebb_engine *engine, const struct ebb_param *param,
                                     float *grad)
{
    return ebb_engine_read_moment(engine, param, param->grad, 0, param->w.rows, grad);
}
