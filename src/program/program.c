/* Building and reading programs. Layout and order are in files of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program/program.h"

#include <inttypes.h>
#include <stdio.h>

#include "op/dropout.h"
#include "op/matmul.h"
#include "op/rmsnorm.h"
#include "op/rows.h"
#include "program/program_int.h"

enum { POOL_ALIGN = 16 };

/* Sums of sizes must not run over: 2^50 bytes for one tensor is far from any machine and far from
 * 2^63. */
static const int64_t tensor_bytes_max = (int64_t)1 << 50;

/* Views whose letter in the list is + though they may be only written, as a
 * constant of the op says. */
enum reading { READ_IF_SET, READ_UNLESS_SET };

struct exception {
    enum ebb_op op;
    int view;
    enum reading reading;
    size_t constant; /* where in the arguments; an int */
};

static const struct exception exceptions[] = {
    {EBB_OP_matmul, 4, READ_IF_SET, offsetof(struct ebb_matmul, accumulate)},
    {EBB_OP_dropout, 1, READ_IF_SET, offsetof(struct ebb_dropout, accumulate)},
    {EBB_OP_rmsnorm_backward, 3, READ_UNLESS_SET, offsetof(struct ebb_rmsnorm_backward, overwrite)},
};

static const char *const queue_texts[EBB_QUEUE_COUNT] = {"compute", "out", "in"};
static const char *const space_texts[EBB_SPACE_COUNT] = {"device", "host"};

enum ebb_status ebb_table_room(struct ebb_ctx *ctx, void **table, int32_t *room, int64_t want,
                               size_t item_bytes)
{
    if (want <= *room) return EBB_OK;
    int64_t more = *room + *room / 2 + 64;
    if (more < want) more = want;
    if (more > INT32_MAX) more = INT32_MAX;
    if (more < want)
        return EBB_FAIL(ctx, EBB_FAILED,
                        "a program's table would need %" PRId64 " items; the most is %d", want,
                        INT32_MAX);
    void *block = ebb_mem_realloc(ctx, *table, (size_t)more * item_bytes);
    if (block == NULL) return EBB_NO_MEMORY;
    *table = block;
    *room = (int32_t)more;
    return EBB_OK;
}

enum ebb_status ebb_program_need(const struct ebb_program *program, enum ebb_program_stage stage,
                                 const char *call)
{
    static const char *const before[] = {"create", "finish", "layout", "order"};
    if (stage == EBB_STAGE_BUILD && program->stage != EBB_STAGE_BUILD)
        return EBB_FAIL(program->ctx, EBB_FAILED,
                        "program '%s': %s after finish; a finished program cannot be changed",
                        program->name, call);
    if (program->stage < stage)
        return EBB_FAIL(program->ctx, EBB_FAILED,
                        "program '%s': %s before %s; call ebb_program_%s first", program->name,
                        call, before[stage], before[stage]);
    return EBB_OK;
}

const char *ebb_entry_text(const struct ebb_program *program, int32_t entry,
                           char out[EBB_ENTRY_TEXT])
{
    const struct ebb_entry *at = &program->entries[entry];
    const char *what = at->kind == EBB_ENTRY_OUT ? "move out"
                     : at->kind == EBB_ENTRY_IN  ? "move in"
                                                 : ebb_op_info((enum ebb_op)at->op)->name;
    snprintf(out, EBB_ENTRY_TEXT, "entry %" PRId32 " (%s on queue %s)", entry, what,
             queue_texts[at->queue]);
    return out;
}

const char *ebb_space_text(enum ebb_space space)
{
    return space_texts[space];
}

enum ebb_status ebb_program_create(struct ebb_ctx *ctx, const char *name,
                                   const struct ebb_tensor *persistent, int32_t count,
                                   struct ebb_program **program)
{
    *program = NULL;
    EBB_ASSERT(count >= 0);
    struct ebb_program *fresh = ebb_mem_alloc(ctx, sizeof *fresh);
    if (fresh == NULL) return EBB_NO_MEMORY;
    fresh->ctx = ctx;
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    enum ebb_status status = ebb_table_room(ctx, (void **)&fresh->tensors, &fresh->tensor_room,
                                            count, sizeof *fresh->tensors);
    if (status != EBB_OK) {
        ebb_program_free(fresh);
        return status;
    }
    for (int32_t i = 0; i < count; i++) {
        struct ebb_tensor *tensor = &fresh->tensors[i];
        *tensor = persistent[i];
        tensor->name[sizeof tensor->name - 1] = '\0';
        EBB_ASSERT(tensor->bytes >= 0 && tensor->bytes <= tensor_bytes_max &&
                   tensor->offset <= tensor_bytes_max);
        tensor->persistent = true;
        tensor->whole = false;
        tensor->first = 0;
        tensor->last = -1;
    }
    fresh->tensor_count = fresh->persistent = count;
    fresh->micros = 1;
    *program = fresh;
    return EBB_OK;
}

void ebb_program_free(struct ebb_program *program)
{
    if (program == NULL) return;
    struct ebb_ctx *ctx = program->ctx;
    ebb_mem_free(ctx, program->tensors);
    ebb_mem_free(ctx, program->entries);
    ebb_mem_free(ctx, program->pool);
    ebb_mem_free(ctx, program->objects);
    ebb_mem_free(ctx, program->waits);
    ebb_mem_free(ctx, program);
}

/* ---- build ---- */

enum ebb_status ebb_program_reserve(struct ebb_program *program, const struct ebb_program *like)
{
    struct ebb_ctx *ctx = program->ctx;
    EBB_TRY(ebb_table_room(ctx, (void **)&program->tensors, &program->tensor_room,
                           like->tensor_count, sizeof *program->tensors));
    EBB_TRY(ebb_table_room(ctx, (void **)&program->entries, &program->entry_room,
                           like->entry_count, sizeof *program->entries));
    EBB_TRY(ebb_table_room(ctx, (void **)&program->pool, &program->pool_room, like->pool_bytes, 1));
    return ebb_table_room(ctx, (void **)&program->waits, &program->wait_room, like->wait_count,
                          sizeof *program->waits);
}

enum ebb_status ebb_program_tensor(struct ebb_program *program, enum ebb_space space, int64_t bytes,
                                   int32_t *tensor, const char *name_format, ...)
{
    struct ebb_tensor fresh;
    memset(&fresh, 0, sizeof fresh);
    va_list args;
    va_start(args, name_format);
    vsnprintf(fresh.name, sizeof fresh.name, name_format, args);
    va_end(args);
    EBB_TRY(ebb_program_need(program, EBB_STAGE_BUILD, "a new tensor"));
    EBB_ASSERT(space == EBB_SPACE_DEVICE || space == EBB_SPACE_HOST);
    if (bytes < 0 || bytes > tensor_bytes_max)
        return EBB_FAIL(program->ctx, EBB_FAILED,
                        "program '%s': tensor '%s' of %" PRId64 " bytes; wanted 0 to %" PRId64,
                        program->name, fresh.name, bytes, tensor_bytes_max);
    EBB_TRY(ebb_table_room(program->ctx, (void **)&program->tensors, &program->tensor_room,
                           (int64_t)program->tensor_count + 1, sizeof fresh));
    fresh.space = space;
    fresh.bytes = bytes;
    fresh.offset = -1;
    fresh.last = -1;
    *tensor = program->tensor_count;
    program->tensors[program->tensor_count++] = fresh;
    return EBB_OK;
}

void ebb_program_grow(struct ebb_program *program, int32_t tensor, int64_t bytes)
{
    EBB_ASSERT(program->stage == EBB_STAGE_BUILD && tensor >= program->persistent &&
               tensor < program->tensor_count);
    EBB_ASSERT(bytes <= tensor_bytes_max);
    if (program->tensors[tensor].bytes < bytes) program->tensors[tensor].bytes = bytes;
}

static void touch(struct ebb_tensor *tensor, int32_t entry)
{
    if (tensor->first > tensor->last) tensor->first = entry;
    tensor->last = entry;
}

/* Appends an entry whose arguments begin with `views` views. */
static enum ebb_status append(struct ebb_program *program, struct ebb_entry entry, const void *args,
                              size_t args_bytes, int views)
{
    const struct ebb_view *view = args;
    int64_t room = ((int64_t)args_bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    EBB_ASSERT(entry.queue < EBB_QUEUE_COUNT);
    for (int i = 0; i < views; i++) EBB_ASSERT(view[i].tensor < program->tensor_count);
    EBB_TRY(ebb_table_room(program->ctx, (void **)&program->entries, &program->entry_room,
                           (int64_t)program->entry_count + 1, sizeof entry));
    EBB_TRY(ebb_table_room(program->ctx, (void **)&program->pool, &program->pool_room,
                           program->pool_bytes + room, 1));
    entry.args = program->pool_bytes;
    entry.event = -1;
    entry.micro = (int8_t)program->micro;
    memcpy(program->pool + program->pool_bytes, args, args_bytes);
    memset(program->pool + program->pool_bytes + args_bytes, 0, (size_t)room - args_bytes);
    program->pool_bytes += (int32_t)room;
    for (int i = 0; i < views; i++)
        if (view[i].tensor >= 0) touch(&program->tensors[view[i].tensor], program->entry_count);
    program->entries[program->entry_count++] = entry;
    return EBB_OK;
}

enum ebb_status ebb_program_op(struct ebb_program *program, enum ebb_queue queue, enum ebb_op op,
                               const void *args)
{
    EBB_TRY(ebb_program_need(program, EBB_STAGE_BUILD, "a new op"));
    EBB_ASSERT((unsigned)op < EBB_OP_COUNT);
    const struct ebb_op_info *info = ebb_op_info(op);
    struct ebb_entry entry = {.kind = EBB_ENTRY_OP, .queue = (uint8_t)queue, .op = (uint16_t)op};
    return append(program, entry, args, info->args_bytes, info->views);
}

static bool is_contiguous(const struct ebb_view *view)
{
    return view->stride == view->cols || view->rows <= 1;
}

enum ebb_status ebb_program_move(struct ebb_program *program, enum ebb_queue queue,
                                 enum ebb_entry_kind kind, const struct ebb_move *move)
{
    EBB_TRY(ebb_program_need(program, EBB_STAGE_BUILD, "a new move"));
    EBB_ASSERT(kind == EBB_ENTRY_OUT || kind == EBB_ENTRY_IN);
    const struct ebb_view *device = &move->device;
    const struct ebb_view *host = &move->host;
    EBB_ASSERT(device->tensor >= 0 && device->tensor < program->tensor_count);
    EBB_ASSERT(host->tensor >= 0 && host->tensor < program->tensor_count);
    EBB_ASSERT(move->object >= -1 && move->object < program->object_count);
    const struct ebb_tensor *from = &program->tensors[device->tensor];
    const struct ebb_tensor *home = &program->tensors[host->tensor];
    const char *wrong = from->space != EBB_SPACE_DEVICE ? "its first view is not in device memory"
                      : home->space != EBB_SPACE_HOST   ? "its second view is not in host memory"
                      : device->rows != host->rows || device->cols != host->cols
                          ? "its views differ in shape"
                      : device->dtype != host->dtype ? "its views differ in dtype"
                      : device->extent != host->extent ||
                                (device->extent != EBB_EXTENT_FIXED && device->row0 != host->row0)
                          ? "its views differ in which of their rows are live"
                      : !is_contiguous(device) || !is_contiguous(host)
                          ? "its views have gaps between rows"
                      : move->object >= 0 && program->objects[move->object] != host->tensor
                          ? "its object has another home"
                          : NULL;
    if (wrong != NULL)
        return EBB_FAIL(program->ctx, EBB_FAILED,
                        "program '%s': a move of '%s' and '%s' cannot be: %s", program->name,
                        from->name, home->name, wrong);
    struct ebb_entry entry = {.kind = (uint8_t)kind, .queue = (uint8_t)queue};
    return append(program, entry, move, sizeof *move, 2);
}

void ebb_program_when(struct ebb_program *program, enum ebb_entry_when when)
{
    EBB_ASSERT(program->stage == EBB_STAGE_BUILD && program->entry_count > 0);
    program->entries[program->entry_count - 1].when = (uint8_t)when;
}

int32_t ebb_program_set_micro(struct ebb_program *program, int32_t micro)
{
    int32_t had = program->micro;
    EBB_ASSERT(program->stage == EBB_STAGE_BUILD);
    EBB_ASSERT(micro >= EBB_MICRO_ALL && micro < EBB_MICROS_MOST);
    program->micro = micro;
    if (micro >= program->micros) program->micros = micro + 1;
    return had;
}

bool ebb_entry_runs(const struct ebb_entry *entry, int32_t count, bool first)
{
    if (entry->micro >= count) return false;
    return entry->when == EBB_RUNS_ALWAYS || (entry->when == EBB_RUNS_FIRST) == first;
}

void ebb_program_hold(struct ebb_program *program, int32_t tensor, bool whole)
{
    EBB_ASSERT(program->stage == EBB_STAGE_BUILD && tensor >= 0 && tensor < program->tensor_count);
    struct ebb_tensor *held = &program->tensors[tensor];
    if (program->entry_count > 0) touch(held, program->entry_count - 1);
    if (whole && !held->persistent) held->whole = true;
}

enum ebb_status ebb_program_object(struct ebb_program *program, int32_t host_tensor,
                                   int32_t *object)
{
    EBB_TRY(ebb_program_need(program, EBB_STAGE_BUILD, "a new object"));
    EBB_ASSERT(host_tensor >= 0 && host_tensor < program->tensor_count);
    EBB_ASSERT(program->tensors[host_tensor].space == EBB_SPACE_HOST);
    EBB_TRY(ebb_table_room(program->ctx, (void **)&program->objects, &program->object_room,
                           (int64_t)program->object_count + 1, sizeof *program->objects));
    *object = program->object_count;
    program->objects[program->object_count++] = host_tensor;
    return EBB_OK;
}

/* ---- finish ---- */

/* Not at the append: a scratch tensor may have grown since. */
static enum ebb_status check_view(const struct ebb_program *program, int32_t entry, int i)
{
    const struct ebb_view *view = ebb_entry_view(program, &program->entries[entry], i);
    if (view->tensor < 0) return EBB_OK;
    const struct ebb_tensor *tensor = &program->tensors[view->tensor];
    char text[EBB_ENTRY_TEXT];
    if (view->dtype >= EBB_DTYPE_COUNT || view->extent > EBB_EXTENT_LABELS || view->rows < 0 ||
        view->cols < 0 || (view->rows > 1 && view->stride < view->cols))
        return EBB_FAIL(program->ctx, EBB_FAILED,
                        "program '%s': view %d of %s, of tensor '%s', is malformed: dtype %d, "
                        "extent %d, %" PRId64 " x %" PRId64 ", stride %" PRId64,
                        program->name, i, ebb_entry_text(program, entry, text), tensor->name,
                        view->dtype, view->extent, view->rows, view->cols, view->stride);
    if (view->offset < 0 || ebb_view_span(view) > tensor->bytes - view->offset)
        return EBB_FAIL(program->ctx, EBB_FAILED,
                        "program '%s': view %d of %s is bytes [%" PRId64 ", %" PRId64
                        ") of tensor '%s', which has %" PRId64,
                        program->name, i, ebb_entry_text(program, entry, text), view->offset,
                        view->offset + ebb_view_span(view), tensor->name, tensor->bytes);
    return EBB_OK;
}

static bool is_poisoned(const struct ebb_tensor *tensor)
{
    return !tensor->persistent && !tensor->whole && tensor->space == EBB_SPACE_DEVICE &&
           tensor->bytes > 0 && tensor->first <= tensor->last;
}

static enum ebb_status append_poison(struct ebb_program *program, int32_t tensor)
{
    int64_t bytes = program->tensors[tensor].bytes;
    struct ebb_fill fill = {.y = {.tensor = tensor,
                                  .dtype = EBB_U8,
                                  .extent = EBB_EXTENT_FIXED,
                                  .rows = 1,
                                  .cols = bytes,
                                  .stride = bytes},
                            .byte = 0xff};
    return ebb_program_op(program, EBB_QUEUE_COMPUTE, EBB_OP_fill, &fill);
}

/* Appends one fill for each tensor that ends, in the order of their ends, then merges the fills
 * into the list: each right behind the entry that its tensor ends with. `shift` [entries + 1]
 * becomes: fills before this entry; `next`, of the same size, is its copy that moves on. */
static enum ebb_status insert_poison(struct ebb_program *program, int32_t *shift, int32_t *next,
                                     struct ebb_entry *merged)
{
    int32_t old_count = program->entry_count;
    for (int32_t t = 0; t < program->tensor_count; t++)
        if (is_poisoned(&program->tensors[t])) shift[program->tensors[t].last + 1]++;
    for (int32_t i = 0; i < old_count; i++) shift[i + 1] += shift[i];
    memcpy(next, shift, ((size_t)old_count + 1) * sizeof *next);
    for (int32_t i = 0; i < old_count; i++) merged[i + shift[i]] = program->entries[i];
    for (int32_t t = 0; t < program->tensor_count; t++) {
        struct ebb_tensor *tensor = &program->tensors[t];
        if (tensor->first > tensor->last) continue;
        int32_t first = tensor->first;
        int32_t last = tensor->last;
        if (is_poisoned(tensor)) {
            EBB_TRY(append_poison(program, t));
            int32_t place = last + 1 + next[last]++;
            merged[place] = program->entries[program->entry_count - 1];
            tensor->last = place;
        } else {
            tensor->last = last + shift[last];
        }
        tensor->first = first + shift[first];
    }
    memcpy(program->entries, merged, (size_t)program->entry_count * sizeof *merged);
    return EBB_OK;
}

static enum ebb_status poison_all(struct ebb_program *program)
{
    int64_t fills = 0;
    for (int32_t t = 0; t < program->tensor_count; t++) fills += is_poisoned(&program->tensors[t]);
    if (fills == 0) return EBB_OK;
    int64_t count = program->entry_count + fills;
    EBB_TRY(ebb_table_room(program->ctx, (void **)&program->entries, &program->entry_room, count,
                           sizeof *program->entries));
    size_t places = (size_t)program->entry_count + 1;
    int32_t *shift = ebb_mem_alloc(program->ctx, 2 * places * sizeof *shift);
    struct ebb_entry *merged = ebb_mem_alloc(program->ctx, (size_t)(count + 1) * sizeof *merged);
    enum ebb_status status = EBB_NO_MEMORY;
    if (shift != NULL && merged != NULL)
        status = insert_poison(program, shift, shift + places, merged);
    ebb_mem_free(program->ctx, shift);
    ebb_mem_free(program->ctx, merged);
    return status;
}

enum ebb_status ebb_program_finish(struct ebb_program *program, bool poison)
{
    EBB_TRY(ebb_program_need(program, EBB_STAGE_BUILD, "finish"));
    program->micro = EBB_MICRO_ALL;
    for (int32_t e = 0; e < program->entry_count; e++)
        for (int i = 0; i < ebb_program_views(program, &program->entries[e]); i++)
            EBB_TRY(check_view(program, e, i));
    if (poison) EBB_TRY(poison_all(program));
    for (int32_t t = 0; t < program->tensor_count; t++) {
        if (!program->tensors[t].whole) continue;
        program->tensors[t].first = 0;
        program->tensors[t].last = program->entry_count - 1;
    }
    program->stage = EBB_STAGE_FINISHED;
    return EBB_OK;
}

/* ---- reading ---- */

const char *ebb_program_name(const struct ebb_program *program)
{
    return program->name;
}

int32_t ebb_program_tensors(const struct ebb_program *program)
{
    return program->tensor_count;
}

int32_t ebb_program_persistent(const struct ebb_program *program)
{
    return program->persistent;
}

int32_t ebb_program_micros(const struct ebb_program *program)
{
    return program->micros;
}

const struct ebb_tensor *ebb_program_tensor_at(const struct ebb_program *program, int32_t tensor)
{
    EBB_ASSERT(tensor >= 0 && tensor < program->tensor_count);
    return &program->tensors[tensor];
}

int32_t ebb_program_entries(const struct ebb_program *program)
{
    return program->entry_count;
}

const struct ebb_entry *ebb_program_entry_at(const struct ebb_program *program, int32_t entry)
{
    EBB_ASSERT(entry >= 0 && entry < program->entry_count);
    return &program->entries[entry];
}

const void *ebb_program_args(const struct ebb_program *program, const struct ebb_entry *entry)
{
    return program->pool + entry->args;
}

int32_t ebb_program_wait_at(const struct ebb_program *program, const struct ebb_entry *entry,
                            int32_t k)
{
    EBB_ASSERT(k >= 0 && k < entry->wait_count);
    return program->waits[entry->waits + k];
}

int32_t ebb_program_events(const struct ebb_program *program)
{
    return program->events;
}

int32_t ebb_program_objects(const struct ebb_program *program)
{
    return program->object_count;
}

int32_t ebb_program_object_tensor(const struct ebb_program *program, int32_t object)
{
    EBB_ASSERT(object >= 0 && object < program->object_count);
    return program->objects[object];
}

int64_t ebb_program_end(const struct ebb_program *program, enum ebb_space space)
{
    int64_t end = 0;
    for (int32_t t = 0; t < program->tensor_count; t++) {
        const struct ebb_tensor *tensor = &program->tensors[t];
        if (tensor->space != space || tensor->first > tensor->last || tensor->bytes == 0 ||
            tensor->offset < 0)
            continue;
        if (tensor->offset + tensor->bytes > end) end = tensor->offset + tensor->bytes;
    }
    return end;
}

void ebb_program_set_pageable(struct ebb_program *program, int64_t bytes)
{
    program->pageable = bytes;
}

int64_t ebb_entry_pageable(const struct ebb_program *program, const struct ebb_entry *entry,
                           int64_t bytes)
{
    struct ebb_access host;
    if (entry->kind == EBB_ENTRY_OP || !ebb_program_access(program, entry, 1, &host)) return 0;
    int64_t left = program->pageable - host.begin, has = host.end - host.begin;
    if (bytes > has) bytes = has;
    return left <= 0 ? 0 : left < bytes ? left : bytes;
}

void ebb_program_traffic(const struct ebb_program *program, int64_t *bytes_out, int64_t *bytes_in)
{
    *bytes_out = *bytes_in = 0;
    for (int32_t e = 0; e < program->entry_count; e++) {
        const struct ebb_entry *entry = &program->entries[e];
        if (entry->kind == EBB_ENTRY_OP || entry->when == EBB_RUNS_LATER) continue;
        int64_t bytes = ebb_view_span(ebb_entry_view(program, entry, 0));
        *(entry->kind == EBB_ENTRY_OUT ? bytes_out : bytes_in) += bytes;
    }
}

const struct ebb_view *ebb_entry_view(const struct ebb_program *program,
                                      const struct ebb_entry *entry, int i)
{
    return (const struct ebb_view *)(const void *)(program->pool + entry->args) + i;
}

int ebb_program_views(const struct ebb_program *program, const struct ebb_entry *entry)
{
    (void)program;
    return entry->kind == EBB_ENTRY_OP ? ebb_op_info((enum ebb_op)entry->op)->views : 2;
}

/* r, w or + for a view, as the entry's own constants make it. */
static char access_letter(const struct ebb_program *program, const struct ebb_entry *entry, int i)
{
    if (entry->kind != EBB_ENTRY_OP) return (entry->kind == EBB_ENTRY_OUT) == (i == 0) ? 'r' : 'w';
    for (size_t k = 0; k < sizeof exceptions / sizeof exceptions[0]; k++) {
        if (exceptions[k].op != (enum ebb_op)entry->op || exceptions[k].view != i) continue;
        int constant;
        memcpy(&constant, program->pool + entry->args + exceptions[k].constant, sizeof constant);
        return (constant != 0) == (exceptions[k].reading == READ_IF_SET) ? '+' : 'w';
    }
    return ebb_op_info((enum ebb_op)entry->op)->access[i];
}

bool ebb_program_access(const struct ebb_program *program, const struct ebb_entry *entry, int i,
                        struct ebb_access *access)
{
    const struct ebb_view *view = ebb_entry_view(program, entry, i);
    int64_t span = ebb_view_span(view);
    if (view->tensor < 0 || span == 0) return false;
    const struct ebb_tensor *tensor = &program->tensors[view->tensor];
    char letter = access_letter(program, entry, i);
    access->space = tensor->space;
    access->begin = tensor->offset + view->offset;
    access->end = access->begin + span;
    access->tensor = view->tensor;
    access->reads = letter != 'w';
    access->writes = letter != 'r';
    return true;
}

int32_t ebb_program_edges(const struct ebb_program *program)
{
    return program->wait_count;
}

void ebb_program_remove_edge(struct ebb_program *program, int32_t k)
{
    EBB_ASSERT(k >= 0 && k < program->wait_count);
    memmove(program->waits + k, program->waits + k + 1,
            (size_t)(program->wait_count - k - 1) * sizeof *program->waits);
    program->wait_count--;
    for (int32_t e = 0; e < program->entry_count; e++) {
        struct ebb_entry *entry = &program->entries[e];
        if (k >= entry->waits && k < entry->waits + entry->wait_count)
            entry->wait_count--;
        else if (entry->waits > k)
            entry->waits--;
    }
}
