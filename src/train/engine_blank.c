/* The weights of a blank engine: random numbers, as a model starts with, for measuring. Zeros would
 * not do: a GPU multiplies them faster.
 *
 * A few million numbers are drawn once and laid down again and again, each time from another place
 * of theirs, so that a large model is filled about as fast as its memory is written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/init.h"
#include "train/engine_int.h"

enum {
    BLOCK = EBB_ENGINE_BLOCK / (int)sizeof(float), /* numbers of a piece of a weight, at most */
    DRAWN = 2 * BLOCK,
    STRIDE = 786433 /* between the places where pieces begin; a prime */
};
static const float std = 0.02f;

struct filling {
    struct ebb_engine *engine;
    const struct ebb_net *net;
    float *values;    /* [DRAWN] normal */
    uint16_t *halves; /* the same as bf16 */
    float *constants; /* [BLOCK] */
    int64_t place;
};

static void draw(struct filling *f)
{
#pragma omp parallel for schedule(static)
    for (int64_t quad = 0; quad < DRAWN / 4; quad++) {
        uint32_t words[4];
        float normals[4];
        ebb_philox(f->engine->request.seed, (uint64_t)quad, words);
        ebb_normal(words[0], words[1], normals);
        ebb_normal(words[2], words[3], normals + 2);
        for (int i = 0; i < 4; i++) {
            f->values[quad * 4 + i] = normals[i] * std;
            f->halves[quad * 4 + i] = ebb_to_bf16(normals[i] * std);
        }
    }
}

/* Where the next `count` numbers are. */
static int64_t next_place(struct filling *f, int64_t count)
{
    EBB_ASSERT(count <= DRAWN);
    f->place = (f->place + STRIDE) % (DRAWN - count + 1);
    return f->place;
}

/* Rows of a weight that is to hold these values; `halves` NULL: only fp32 is known. */
static enum ebb_status put_rows(struct filling *f, const struct ebb_weight *weight, int64_t index,
                                int64_t row, int64_t rows, const float *values,
                                const uint16_t *halves)
{
    int64_t row0;
    const struct ebb_param *param = ebb_decoder_param(f->net, index, &row0);
    const struct ebb_view view = ebb_decoder_weight(f->net, index);
    if (param && param->lo >= 0 && param->w.rows == 1)
        return ebb_engine_write_part(f->engine, param, row0, weight->cols, values);
    if (param && param->lo >= 0)
        return ebb_engine_write_rows(f->engine, param, row0 + row, rows, values);
    if (view.dtype == EBB_BF16 && halves)
        return ebb_engine_put(f->engine, &view, row, rows, halves);
    return ebb_engine_put_values(f->engine, &view, row, rows, values);
}

static enum ebb_status fill_normal(struct filling *f, const struct ebb_weight *weight,
                                   int64_t index)
{
    int64_t step = ebb_engine_block_rows(weight->cols * (int64_t)sizeof(float));
    for (int64_t row = 0; row < weight->rows; row += step) {
        int64_t rows = weight->rows - row < step ? weight->rows - row : step;
        int64_t at = next_place(f, rows * weight->cols);
        EBB_TRY(put_rows(f, weight, index, row, rows, f->values + at, f->halves + at));
    }
    return EBB_OK;
}

static enum ebb_status fill_table(struct filling *f, const struct ebb_weight *weight)
{
    const bool half = f->engine->request.storage == EBB_BF16;
    const int64_t count = weight->rows * weight->cols;
    void *out;
    EBB_TRY(ebb_engine_make_table(f->engine, f->net, weight, &out));
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK, from = next_place(f, n);
        if (half)
            memcpy((uint16_t *)out + at, f->halves + from, (size_t)n * sizeof *f->halves);
        else
            memcpy((float *)out + at, f->values + from, (size_t)n * sizeof *f->values);
    }
    return EBB_OK;
}

/* Norms and biases: one row each. */
static enum ebb_status fill_constant(struct filling *f, const struct ebb_weight *weight,
                                     int64_t index, float value)
{
    EBB_ASSERT(weight->rows == 1 && weight->cols <= BLOCK);
    for (int64_t i = 0; i < weight->cols; i++) f->constants[i] = value;
    return put_rows(f, weight, index, 0, 1, f->constants, NULL);
}

static enum ebb_status fill_weight(struct filling *f, const struct ebb_weight *weight,
                                   int64_t index)
{
    enum ebb_weight_start start = ebb_weight_start(weight->field);
    if (ebb_decoder_weight(f->net, index).tensor < 0) return fill_table(f, weight);
    if (start == EBB_START_NORMAL) return fill_normal(f, weight, index);
    return fill_constant(f, weight, index, start == EBB_START_ONES ? 1 : 0);
}

enum ebb_status ebb_engine_fill_weights(struct ebb_engine *engine, const struct ebb_net *net,
                                        const struct ebb_weight_list *weights)
{
    struct ebb_ctx *ctx = engine->ctx;
    struct filling f = {.engine = engine, .net = net};
    f.values = (float *)ebb_mem_alloc(ctx, DRAWN * sizeof *f.values);
    f.halves = (uint16_t *)ebb_mem_alloc(ctx, DRAWN * sizeof *f.halves);
    f.constants = (float *)ebb_mem_alloc(ctx, BLOCK * sizeof *f.constants);
    enum ebb_status status = f.values && f.halves && f.constants ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) draw(&f);
    for (int64_t i = 0; status == EBB_OK && i < weights->count; i++)
        status = fill_weight(&f, &weights->items[i], i);
    ebb_mem_free(ctx, f.values);
    ebb_mem_free(ctx, f.halves);
    ebb_mem_free(ctx, f.constants);
    return status;
}
