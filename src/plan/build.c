/* What emitters use to write a program: matrices and their tiles, ops with scratch, moves of
 * saved slots.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan/build.h"

#include <stdio.h>

int32_t ebb_build_set_micro(struct ebb_build *build, int32_t micro)
{
    EBB_ASSERT(micro < build->micros);
    build->micro = micro;
    return ebb_program_set_micro(build->program, micro);
}

int64_t ebb_build_input_offset(const struct ebb_build *build, int64_t bytes)
{
    return build->micro > 0 ? build->micro * ebb_net_input_stride(bytes) : 0;
}

static int64_t tile_rows(const struct ebb_build *build)
{
    int64_t tile = build->numerics->tile_tokens, tokens = build->capacity.tokens;
    return tile < tokens ? tile : tokens;
}

int64_t ebb_build_tiles(const struct ebb_build *build)
{
    int64_t rows = tile_rows(build);
    return (build->capacity.tokens + rows - 1) / rows;
}

enum { NAME_TEXT = 64 };

/* "layer3.qkv", of a later micro-batch "layer3.qkv of 2". */
static const char *name_of(const struct ebb_build *build, int64_t layer, const char *name,
                           char text[NAME_TEXT])
{
    char of[16] = "";
    if (build->micro > 0) snprintf(of, sizeof of, " of %d", (int)build->micro);
    if (layer < 0)
        snprintf(text, NAME_TEXT, "%s%s", name, of);
    else
        snprintf(text, NAME_TEXT, "layer%d.%s%s", (int)layer, name, of);
    return text;
}

enum ebb_status ebb_build_matrix_apart(struct ebb_build *build, int64_t cols, int64_t stride,
                                       enum ebb_dtype dtype, bool tile, const char *name,
                                       int64_t layer, struct ebb_matrix *matrix)
{
    int64_t rows = tile ? tile_rows(build) : build->capacity.tokens;
    int64_t bytes = ((rows - 1) * stride + cols) * ebb_dtype_bytes(dtype);
    matrix->dtype = dtype;
    matrix->cols = stride;
    matrix->offset = 0;
    matrix->tile = tile;
    matrix->every = 1;
    char text[NAME_TEXT];
    return ebb_program_tensor(build->program, EBB_SPACE_DEVICE, bytes, &matrix->tensor, "%s",
                              name_of(build, layer, name, text));
}

enum ebb_status ebb_build_matrix(struct ebb_build *build, int64_t cols, enum ebb_dtype dtype,
                                 bool tile, const char *name, int64_t layer,
                                 struct ebb_matrix *matrix)
{
    return ebb_build_matrix_apart(build, cols, cols, dtype, tile, name, layer, matrix);
}

struct ebb_view ebb_tensor_view(int32_t tensor, enum ebb_dtype dtype, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, int64_t stride)
{
    struct ebb_view view = ebb_view_none();
    view.tensor = tensor;
    view.dtype = (uint8_t)dtype;
    view.extent = EBB_EXTENT_FIXED;
    view.offset = (row0 * stride + col0) * ebb_dtype_bytes(dtype);
    view.rows = rows;
    view.cols = cols;
    view.stride = stride;
    return view;
}

/* Token rows [row0, row0 + rows) of a matrix, which has them from its row `at` on. */
static struct ebb_view token_view(const struct ebb_matrix *matrix, int64_t row0, int64_t at,
                                  int64_t rows, int64_t col0, int64_t cols)
{
    EBB_ASSERT(matrix->tensor >= 0 && col0 + cols <= matrix->cols);
    struct ebb_view view =
        ebb_tensor_view(matrix->tensor, matrix->dtype, at, rows, col0, cols, matrix->cols);
    view.offset += matrix->offset;
    view.extent = EBB_EXTENT_TOKENS;
    view.row0 = row0;
    return view;
}

struct ebb_view ebb_matrix_tile(const struct ebb_build *build, const struct ebb_matrix *matrix,
                                int64_t t, int64_t col0, int64_t cols)
{
    int64_t rows = tile_rows(build), left = build->capacity.tokens - t * rows, at = t;
    if (matrix->every > 1) {
        EBB_ASSERT(t % matrix->every == 0);
        at = t / matrix->every;
    }
    return token_view(matrix, t * rows, matrix->tile ? 0 : at * rows, rows < left ? rows : left,
                      col0, cols);
}

struct ebb_view ebb_matrix_all(const struct ebb_build *build, const struct ebb_matrix *matrix,
                               int64_t col0, int64_t cols)
{
    EBB_ASSERT(!matrix->tile && matrix->every <= 1);
    return token_view(matrix, 0, 0, build->capacity.tokens, col0, cols);
}

struct ebb_op_target ebb_numerics_target(const struct ebb_numerics *numerics)
{
    bool cuda = strcmp(numerics->backend, ebb_backend_name(EBB_BACKEND_CUDA)) == 0;
    struct ebb_op_target target = {cuda ? EBB_BACKEND_CUDA : EBB_BACKEND_CPU, numerics->threads,
                                   numerics->attention};
    return target;
}

enum ebb_status ebb_build_op(struct ebb_build *build, enum ebb_op op, const void *args)
{
    return ebb_program_op(build->program, EBB_QUEUE_COMPUTE, op, args);
}

enum ebb_status ebb_build_move(struct ebb_build *build, enum ebb_entry_kind kind,
                               const struct ebb_move *move)
{
    enum ebb_queue queue = kind == EBB_ENTRY_IN ? EBB_QUEUE_IN : EBB_QUEUE_OUT;
    return ebb_program_move(build->program, build->streams ? queue : EBB_QUEUE_COMPUTE, kind, move);
}

enum ebb_status ebb_build_copy(struct ebb_build *build, enum ebb_entry_kind kind,
                               struct ebb_view device, struct ebb_view host)
{
    const struct ebb_move move = {.device = device, .host = host, .object = -1};
    return ebb_build_move(build, kind, &move);
}

enum ebb_status ebb_build_new_scratch(struct ebb_build *build)
{
    return ebb_program_tensor(build->program, EBB_SPACE_DEVICE, 0, &build->scratch, "scratch");
}

struct ebb_view ebb_build_scratch(struct ebb_build *build, int64_t bytes)
{
    if (bytes <= 0) return ebb_view_none();
    ebb_program_grow(build->program, build->scratch, bytes);
    return ebb_tensor_view(build->scratch, EBB_U8, 0, 1, 0, bytes, bytes);
}

enum ebb_status ebb_build_matmul(struct ebb_build *build, struct ebb_matmul *args)
{
    int64_t bytes = 0;
    if (args->alpha == 0) args->alpha = 1;
    args->scratch = ebb_view_none();
    EBB_TRY(ebb_matmul_scratch(build->matmul, args, &bytes));
    args->scratch = ebb_build_scratch(build, bytes);
    return ebb_build_op(build, EBB_OP_matmul, args);
}

void ebb_saved_clear(struct ebb_saved *saved)
{
    memset(saved, 0, sizeof *saved);
    saved->device.tensor = saved->host.tensor = -1;
    saved->object = -1;
}

/* Rows of every so many-th tile. */
static int64_t rows_of_every(const struct ebb_build *build, int64_t every)
{
    int64_t tiles = ebb_build_tiles(build), rows = tile_rows(build),
            last = (tiles - 1) / every * every, /* the last of those tiles */
        left = build->capacity.tokens - last * rows;
    return last / every * rows + (left < rows ? left : rows);
}

/* The slot's home in host memory and its stash object. */
static enum ebb_status make_home(struct ebb_build *build, struct ebb_saved *saved,
                                 const struct ebb_matrix *from, const char *name, int64_t layer)
{
    saved->host = *from;
    saved->host.offset = 0;
    saved->host.tile = false;
    saved->host.every = saved->every;
    int64_t rows = saved->every > 1 ? rows_of_every(build, saved->every) : build->capacity.tokens;
    int64_t bytes = rows * from->cols * ebb_dtype_bytes(from->dtype);
    char text[NAME_TEXT];
    EBB_TRY(ebb_program_tensor(build->program, EBB_SPACE_HOST, bytes, &saved->host.tensor,
                               "%.40s home", name_of(build, layer, name, text)));
    return ebb_program_object(build->program, saved->host.tensor, &saved->object);
}

static struct ebb_view part_view(const struct ebb_build *build, const struct ebb_matrix *matrix,
                                 int64_t t)
{
    return t < 0 ? ebb_matrix_all(build, matrix, 0, matrix->cols)
                 : ebb_matrix_tile(build, matrix, t, 0, matrix->cols);
}

enum ebb_status ebb_saved_out(struct ebb_build *build, struct ebb_saved *saved,
                              const struct ebb_matrix *from, int64_t t, bool last, const char *name,
                              int64_t layer)
{
    struct ebb_move move;
    if (saved->host.tensor < 0) EBB_TRY(make_home(build, saved, from, name, layer));
    memset(&move, 0, sizeof move);
    move.device = part_view(build, from, t);
    move.host = part_view(build, &saved->host, t);
    move.object = saved->object;
    move.last = last;
    return ebb_build_move(build, EBB_ENTRY_OUT, &move);
}

static enum ebb_status move_in(struct ebb_build *build, const struct ebb_saved *saved,
                               const struct ebb_matrix *to, int64_t t)
{
    struct ebb_move move;
    memset(&move, 0, sizeof move);
    move.device = part_view(build, to, t);
    move.host = part_view(build, &saved->host, t);
    move.object = saved->object;
    return ebb_build_move(build, EBB_ENTRY_IN, &move);
}

enum ebb_status ebb_saved_in(struct ebb_build *build, const struct ebb_saved *saved,
                             const struct ebb_matrix *to, int64_t t)
{
    if (t >= 0) return move_in(build, saved, to, t);
    /* Tile by tile, so that the first tiles can be used while the others are still on their way. */
    for (int64_t i = 0; i < ebb_build_tiles(build); i++) EBB_TRY(move_in(build, saved, to, i));
    return EBB_OK;
}
