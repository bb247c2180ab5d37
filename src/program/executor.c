/* The executor. What an entry needs to run is worked out at creation; a run only enqueues.
 *
 * Values of a run reach its ops like this: each run takes the next of a few slots and copies the
 * step into it; the run's first command on each queue copies it from there to the queue's own
 * place, where the ops of that queue read it. Queues run in order, so an op always sees the values
 * of its own run, and runs may be enqueued ahead of their turn. A slot is free again when all
 * queues have taken its values; only if none is free does a run wait for the device.
 *
 * Events 0 to 2 mark the queues' ends when a run begins, the program's own come after them.
 *
 * Where the backend has a function for many calls of an op (ebb_op_many), entries that may run as
 * one command do: the first is the head that runs them all.
 *
 * A profiled executor has marks of its own: one where a run begins on COMPUTE, then two for each
 * entry, between its waits and the event that others wait for. Those of a head are for all that it
 * runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program/executor.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

#include "program/program_int.h"

enum { SLOTS = 8, JOIN_EVENTS = EBB_QUEUE_COUNT };

/* One entry, ready to run. */
struct launch {
    struct ebb_executor *executor;
    const void *args;
    ebb_op_fn op;        /* NULL: a move */
    ebb_op_many_fn many; /* runs `count` entries from this one on; NULL: only this one */
    int32_t count;       /* 0: an entry before this one runs it */
    int64_t device_end;  /* end of the highest device byte that it can touch */
    int32_t next_part;   /* out: the entry with the next part of the same generation; -1: none */
    uint8_t queue;
    uint8_t micro; /* whose values it has */
    bool stashed; /* moved by the stash; else a plain copy */
};

/* A queue's command that takes a run's values. */
struct take {
    struct ebb_executor *executor;
    int slot;
    int queue;
};

struct slot {
    struct ebb_step steps[EBB_MICROS_MOST];
    int32_t count;
    atomic_int untaken; /* queues that have yet to take the values */
};

struct ebb_executor {
    struct ebb_ctx *ctx;
    struct ebb_device *device;
    struct ebb_op_libs libs;
    const int32_t *doc_starts; /* NULL: none */
    int64_t doc_starts_stride;
    const struct ebb_program *program;
    struct ebb_stash *stash;
    void **base;                    /* [tensors] */
    void **own;                     /* [tensors] blocks to free, or NULL */
    struct launch *launches;        /* [entries] */
    const void **args;              /* [entries] of each, side by side for a head */
    bool used[EBB_QUEUE_COUNT];     /* the program has entries there */
    bool computes[EBB_QUEUE_COUNT]; /* ops among them */
    struct slot slots[SLOTS];
    struct take takes[SLOTS][EBB_QUEUE_COUNT];
    /* Written and read by that queue's commands only. */
    struct ebb_step now[EBB_QUEUE_COUNT][EBB_MICROS_MOST];
    int next_slot;
    int64_t peak;
    int first_mark; /* -1: not profiled */
    bool broken; /* a run could not be enqueued to its end */
};

/* ---- creation ---- */

static enum ebb_status check_spaces(const struct ebb_executor *x, bool own)
{
    for (int s = own ? EBB_SPACE_HOST : EBB_SPACE_DEVICE; s < EBB_SPACE_COUNT; s++) {
        int64_t end = ebb_program_end(x->program, (enum ebb_space)s);
        int64_t bytes = ebb_device_bytes(x->device, (enum ebb_space)s);
        if (bytes < end)
            return EBB_FAIL(
                x->ctx, EBB_FAILED,
                "program '%s' uses %" PRId64 " bytes of %s memory, but %" PRId64 " are reserved",
                ebb_program_name(x->program), end, ebb_space_text((enum ebb_space)s), bytes);
    }
    return EBB_OK;
}

/* A zero-sized block may not exist; every base is a place. */
static enum ebb_status own_block(struct ebb_executor *x, int32_t t,
                                 const struct ebb_executor *share)
{
    const struct ebb_tensor *tensor = ebb_program_tensor_at(x->program, t);
    if (tensor->persistent && share != NULL) {
        bool known = t < ebb_program_persistent(share->program);
        if (!known || ebb_program_tensor_at(share->program, t)->bytes != tensor->bytes ||
            share->base[t] == NULL)
            return EBB_FAIL(x->ctx, EBB_FAILED,
                            "program '%s' is to share persistent tensor '%s' with program '%s', "
                            "which has none such",
                            ebb_program_name(x->program), tensor->name,
                            ebb_program_name(share->program));
        x->base[t] = share->base[t];
        return EBB_OK;
    }
    EBB_TRY(ebb_device_block_create(x->device, tensor->bytes, false, &x->own[t]));
    x->base[t] = x->own[t];
    return tensor->persistent ? ebb_device_fill(x->device, x->own[t], 0, tensor->bytes) : EBB_OK;
}

static enum ebb_status resolve_bases(struct ebb_executor *x,
                                     const struct ebb_executor_options *options)
{
    size_t count = (size_t)ebb_program_tensors(x->program) + 1;
    x->base = ebb_mem_alloc(x->ctx, count * sizeof(void *));
    x->own = ebb_mem_alloc(x->ctx, count * sizeof(void *));
    if (x->base == NULL || x->own == NULL) return EBB_NO_MEMORY;
    for (int32_t t = 0; t < ebb_program_tensors(x->program); t++) {
        const struct ebb_tensor *tensor = ebb_program_tensor_at(x->program, t);
        bool touched = tensor->first <= tensor->last;
        if (options->own_allocations && tensor->space == EBB_SPACE_DEVICE) {
            if (tensor->persistent || touched) EBB_TRY(own_block(x, t, options->share));
            continue;
        }
        char *space = ebb_device_base(x->device, tensor->space);
        if (space != NULL && tensor->offset >= 0 && (tensor->persistent || touched))
            x->base[t] = space + tensor->offset;
    }
    return EBB_OK;
}

static bool is_stashed(const struct ebb_program *program, const struct ebb_move *move)
{
    if (move->object < 0) return false;
    return !ebb_program_tensor_at(program, ebb_program_object_tensor(program, move->object))
                ->persistent;
}

/* With blocks of their own, tensors are where the layout says as far as the peak is concerned. */
static int64_t device_end(const struct ebb_executor *x, const struct ebb_entry *entry, bool own)
{
    int64_t end = 0;
    const char *space = ebb_device_base(x->device, EBB_SPACE_DEVICE);
    for (int i = 0; i < ebb_program_views(x->program, entry); i++) {
        struct ebb_access access;
        if (!ebb_program_access(x->program, entry, i, &access) || access.space != EBB_SPACE_DEVICE)
            continue;
        int64_t at = access.begin;
        if (!own)
            at = (const char *)x->base[access.tensor] +
                 ebb_entry_view(x->program, entry, i)->offset - space;
        if (at + (access.end - access.begin) > end) end = at + (access.end - access.begin);
    }
    return end;
}

/* Chains the parts of each generation, from its first entry to the one that ends it. */
static enum ebb_status chain_parts(struct ebb_executor *x)
{
    size_t count = (size_t)ebb_program_objects(x->program) + 1;
    /* Of each object: the part that waits for its next. */
    int32_t *open = ebb_mem_alloc(x->ctx, count * sizeof *open);
    if (open == NULL) return EBB_NO_MEMORY;
    memset(open, 0xff, count * sizeof *open);
    for (int32_t e = 0; e < ebb_program_entries(x->program); e++) {
        struct launch *launch = &x->launches[e];
        if (!launch->stashed || ebb_program_entry_at(x->program, e)->kind != EBB_ENTRY_OUT)
            continue;
        const struct ebb_move *move = launch->args;
        if (open[move->object] >= 0) x->launches[open[move->object]].next_part = e;
        open[move->object] = move->last ? -1 : e;
    }
    ebb_mem_free(x->ctx, open);
    return EBB_OK;
}

static enum ebb_status prepare_op(struct ebb_executor *x, int32_t e, const struct ebb_entry *entry)
{
    const struct ebb_op_info *info = ebb_op_info((enum ebb_op)entry->op);
    ebb_op_fn function = ebb_op_function((enum ebb_op)entry->op, ebb_device_backend(x->device));
    if (function == NULL)
        return EBB_FAIL(x->ctx, EBB_UNSUPPORTED,
                        "program '%s': entry %" PRId32 " is op '%s', which this backend "
                        "does not have",
                        ebb_program_name(x->program), e, info->name);
    if (entry->op == EBB_OP_matmul && x->libs.matmul == NULL)
        return EBB_FAIL(x->ctx, EBB_FAILED,
                        "program '%s': entry %" PRId32
                        " is a matmul, but no matmul library was given",
                        ebb_program_name(x->program), e);
    x->launches[e].op = function;
    x->computes[entry->queue] = true;
    return EBB_OK;
}

/* ---- entries that run as one ---- */

static bool overlap(const struct ebb_access *a, const struct ebb_access *b)
{
    return a->space == b->space && a->begin < b->end && b->begin < a->end;
}

static bool is_same_view(const struct ebb_view *a, const struct ebb_view *b)
{
    return a->tensor == b->tensor && a->offset == b->offset && a->cols == b->cols;
}

/* Whether the order of two entries of one op is nobody's business but the op's own. */
static bool may_run_as_one(const struct ebb_program *program, const struct ebb_entry *a,
                           const struct ebb_entry *b, uint32_t shared)
{
    struct ebb_access left, right;
    int views = ebb_program_views(program, a);
    for (int i = 0; i < views; i++) {
        bool is_shared = shared >> i & 1;
        if (is_shared &&
            !is_same_view(ebb_entry_view(program, a, i), ebb_entry_view(program, b, i)))
            return false;
        if (!ebb_program_access(program, a, i, &left)) continue;
        for (int k = 0; k < views; k++) {
            if ((is_shared && k == i) || !ebb_program_access(program, b, k, &right)) continue;
            if ((left.writes || right.writes) && overlap(&left, &right)) return false;
        }
    }
    return true;
}

int32_t ebb_program_run_length(const struct ebb_program *program, int32_t entry, int32_t max,
                               uint32_t shared)
{
    const struct ebb_entry *first = ebb_program_entry_at(program, entry);
    int32_t room = ebb_program_entries(program) - entry, length = 1;
    if (room > max) room = max;
    if (first->kind != EBB_ENTRY_OP || first->when != EBB_RUNS_ALWAYS) return 1;
    for (; length < room; length++) {
        const struct ebb_entry *next = ebb_program_entry_at(program, entry + length);
        if (next->kind != EBB_ENTRY_OP || next->op != first->op || next->queue != first->queue ||
            next->micro != first->micro || next->when != EBB_RUNS_ALWAYS || next->wait_count > 0 ||
            ebb_program_entry_at(program, entry + length - 1)->event >= 0)
            return length;
        for (int32_t e = entry; e < entry + length; e++)
            if (!may_run_as_one(program, ebb_program_entry_at(program, e), next, shared))
                return length;
    }
    return length;
}

/* Heads take along what they may, once all entries are prepared. */
static void gather_runs(struct ebb_executor *x)
{
    for (int32_t e = 0; e < ebb_program_entries(x->program); e += x->launches[e].count) {
        const struct ebb_entry *entry = ebb_program_entry_at(x->program, e);
        struct launch *head = &x->launches[e];
        head->count = 1;
        if (entry->kind != EBB_ENTRY_OP) continue;
        const struct ebb_op_many *many =
            ebb_op_many((enum ebb_op)entry->op, ebb_device_backend(x->device));
        if (many == NULL) continue;
        head->count = ebb_program_run_length(x->program, e, EBB_OP_MANY, many->shared);
        if (head->count == 1) continue;
        head->many = many->run;
        for (int32_t k = 1; k < head->count; k++)
            if (head[k].device_end > head->device_end) head->device_end = head[k].device_end;
    }
}

static enum ebb_status prepare_entries(struct ebb_executor *x, bool own)
{
    size_t count = (size_t)ebb_program_entries(x->program) + 1;
    x->launches = ebb_mem_alloc(x->ctx, count * sizeof *x->launches);
    x->args = ebb_mem_alloc(x->ctx, count * sizeof *x->args);
    if (x->launches == NULL || x->args == NULL) return EBB_NO_MEMORY;
    for (int32_t e = 0; e < ebb_program_entries(x->program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(x->program, e);
        struct launch *launch = &x->launches[e];
        launch->executor = x;
        launch->args = x->args[e] = ebb_program_args(x->program, entry);
        launch->device_end = device_end(x, entry, own);
        launch->next_part = -1;
        launch->queue = entry->queue;
        launch->micro = (uint8_t)ebb_entry_micro(entry);
        x->used[entry->queue] = true;
        if (entry->kind == EBB_ENTRY_OP)
            EBB_TRY(prepare_op(x, e, entry));
        else
            launch->stashed = is_stashed(x->program, launch->args);
    }
    gather_runs(x);
    return chain_parts(x);
}

/* Objects keep their numbers; those that the stash never sees are in its list all the same. */
static enum ebb_status create_stash(struct ebb_executor *x, bool checksums)
{
    int32_t count = ebb_program_objects(x->program);
    if (count == 0) return EBB_OK;
    struct ebb_stash_object *objects = ebb_mem_alloc(x->ctx, (size_t)count * sizeof *objects);
    if (objects == NULL) return EBB_NO_MEMORY;
    for (int32_t i = 0; i < count; i++) {
        const struct ebb_tensor *home = ebb_program_tensor_at(
            x->program, ebb_program_object_tensor(x->program, i));
        objects[i].name = home->name;
        objects[i].host_offset = home->offset;
        objects[i].bytes = home->bytes;
    }
    enum ebb_status status = ebb_stash_create(x->device, objects, count, checksums, &x->stash);
    ebb_mem_free(x->ctx, objects);
    return status;
}

static enum ebb_status fill_executor(struct ebb_executor *x,
                                     const struct ebb_executor_options *options)
{
    EBB_TRY(ebb_program_need(x->program, EBB_STAGE_ORDERED, "an executor"));
    EBB_TRY(check_spaces(x, options->own_allocations));
    EBB_TRY(resolve_bases(x, options));
    EBB_TRY(prepare_entries(x, options->own_allocations));
    EBB_TRY(create_stash(x, options->checksums));
    for (int s = 0; s < SLOTS; s++) {
        atomic_init(&x->slots[s].untaken, 0);
        for (int q = 0; q < EBB_QUEUE_COUNT; q++) {
            x->takes[s][q].executor = x;
            x->takes[s][q].slot = s;
            x->takes[s][q].queue = q;
        }
    }
    if (options->profile)
        EBB_TRY(
            ebb_device_marks(x->device, 1 + 2 * ebb_program_entries(x->program), &x->first_mark));
    return ebb_device_events(x->device, JOIN_EVENTS + ebb_program_events(x->program));
}

enum ebb_status ebb_executor_create(struct ebb_ctx *ctx, struct ebb_device *device,
                                    const struct ebb_op_libs *libs,
                                    const struct ebb_program *program,
                                    const struct ebb_executor_options *options,
                                    struct ebb_executor **executor)
{
    *executor = NULL;
    struct ebb_executor_options none = {0};
    struct ebb_executor *x = ebb_mem_alloc(ctx, sizeof *x);
    if (x == NULL) return EBB_NO_MEMORY;
    x->ctx = ctx;
    x->device = device;
    if (libs != NULL) x->libs = *libs;
    if (options != NULL) {
        x->doc_starts = options->doc_starts;
        x->doc_starts_stride = options->doc_starts_stride;
    }
    x->program = program;
    x->first_mark = -1;
    enum ebb_status status = fill_executor(x, options != NULL ? options : &none);
    if (status != EBB_OK) {
        ebb_executor_free(x);
        return status;
    }
    *executor = x;
    return EBB_OK;
}

void ebb_executor_free(struct ebb_executor *executor)
{
    if (executor == NULL) return;
    struct ebb_ctx *ctx = executor->ctx;
    ebb_stash_free(executor->stash);
    if (executor->own != NULL)
        for (int32_t t = 0; t < ebb_program_tensors(executor->program); t++)
            ebb_device_block_free(executor->device, executor->own[t]);
    ebb_mem_free(ctx, (void *)executor->own);
    ebb_mem_free(ctx, (void *)executor->base);
    ebb_mem_free(ctx, executor->launches);
    ebb_mem_free(ctx, (void *)executor->args);
    ebb_mem_free(ctx, executor);
}

/* ---- on the queues ---- */

static enum ebb_status take_values(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    const struct take *take = args;
    struct slot *slot = &take->executor->slots[take->slot];
    memcpy(take->executor->now[take->queue], slot->steps,
           (size_t)slot->count * sizeof *slot->steps);
    atomic_fetch_sub_explicit(&slot->untaken, 1, memory_order_release);
    return EBB_OK;
}

static const int32_t *doc_starts_of(const struct ebb_executor *x, const struct launch *launch)
{
    return x->doc_starts == NULL ? NULL : x->doc_starts + launch->micro * x->doc_starts_stride;
}

static enum ebb_status run_op(const struct ebb_queue_env *queue_env, const void *args)
{
    const struct launch *launch = args;
    const struct ebb_executor *x = launch->executor;
    struct ebb_op_env env = {.ctx = x->ctx,
                             .base = x->base,
                             .step = &x->now[launch->queue][launch->micro],
                             .doc_starts = doc_starts_of(x, launch),
                             .libs = x->libs,
                             .stream = queue_env->stream,
                             .threads = queue_env->threads};
    if (launch->many == NULL) return launch->op(&env, launch->args);
    return launch->many(&env, x->args + (launch - x->launches), launch->count);
}

/* ---- a run ---- */

struct run {
    const struct ebb_step *steps; /* [count] */
    int32_t count;
};

/* After the sync nothing is on its way: what a failed queue skipped will not be taken any more. */
static enum ebb_status sync_all(struct ebb_executor *x)
{
    enum ebb_status status = ebb_device_sync(x->device);
    for (int s = 0; s < SLOTS; s++)
        atomic_store_explicit(&x->slots[s].untaken, 0, memory_order_relaxed);
    return status;
}

static enum ebb_status pass_values(struct ebb_executor *x, const struct ebb_step *steps,
                                   int32_t count)
{
    struct slot *slot = &x->slots[x->next_slot];
    if (atomic_load_explicit(&slot->untaken, memory_order_acquire) != 0) EBB_TRY(sync_all(x));
    memcpy(slot->steps, steps, (size_t)count * sizeof *steps);
    slot->count = count;
    int takers = 0;
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) takers += x->computes[q];
    atomic_store_explicit(&slot->untaken, takers, memory_order_relaxed);
    for (int q = 0; q < EBB_QUEUE_COUNT; q++)
        if (x->computes[q])
            EBB_TRY(ebb_queue_launch(x->device, (enum ebb_queue)q, take_values,
                                     &x->takes[x->next_slot][q]));
    x->next_slot = (x->next_slot + 1) % SLOTS;
    return EBB_OK;
}

static enum ebb_status join_queues(struct ebb_executor *x)
{
    for (int q = 0; q < EBB_QUEUE_COUNT; q++)
        EBB_TRY(ebb_queue_record(x->device, (enum ebb_queue)q, q));
    for (int q = 0; q < EBB_QUEUE_COUNT; q++)
        for (int other = 0; other < EBB_QUEUE_COUNT; other++)
            if (x->used[q] && other != q)
                EBB_TRY(ebb_queue_wait(x->device, (enum ebb_queue)q, other));
    return EBB_OK;
}

/* With fewer tokens a generation's last parts may hold no row: then the last one that does ends it.
 */
static bool ends_generation(const struct ebb_executor *x, const struct launch *launch,
                            const struct ebb_op_env *env)
{
    for (int32_t e = launch->next_part; e >= 0; e = x->launches[e].next_part) {
        const struct ebb_move *move = x->launches[e].args;
        if (ebb_view_rows(env, &move->device) > 0) return false;
    }
    const struct ebb_move *move = launch->args;
    return move->last != 0 || launch->next_part >= 0;
}

static enum ebb_status run_move(struct ebb_executor *x, const struct launch *launch,
                                const struct ebb_entry *entry, const struct ebb_op_env *env)
{
    const struct ebb_move *move = launch->args;
    enum ebb_queue queue = (enum ebb_queue)entry->queue;
    bool out = entry->kind == EBB_ENTRY_OUT;
    int64_t bytes = ebb_view_rows(env, &move->device) * move->device.cols *
                    ebb_dtype_bytes((enum ebb_dtype)move->device.dtype);
    if (bytes == 0) return EBB_OK;
    if (launch->device_end > x->peak) x->peak = launch->device_end;
    void *device = ebb_view_data(env, &move->device);
    void *host = ebb_view_data(env, &move->host);
    if (!launch->stashed)
        return ebb_queue_copy(x->device, queue, out ? host : device, out ? device : host, bytes);
    if (!out) return ebb_stash_in(x->stash, queue, move->object, move->host.offset, bytes, device);
    return ebb_stash_out(x->stash, queue, move->object, move->host.offset, bytes,
                         ends_generation(x, launch, env), device);
}

static enum ebb_status run_work(struct ebb_executor *x, const struct launch *launch,
                                const struct ebb_entry *entry, const struct run *run)
{
    if (!ebb_entry_runs(entry, run->count, run->steps[0].first != 0)) return EBB_OK;
    if (entry->kind != EBB_ENTRY_OP) {
        const struct ebb_op_env env = {.ctx = x->ctx,
                                       .base = x->base,
                                       .step = &run->steps[launch->micro]};
        return run_move(x, launch, entry, &env);
    }
    if (launch->device_end > x->peak) x->peak = launch->device_end;
    return ebb_queue_launch(x->device, (enum ebb_queue)entry->queue, run_op, launch);
}

static enum ebb_status run_marked(struct ebb_executor *x, int32_t e, const struct ebb_entry *entry,
                                  const struct run *run)
{
    enum ebb_queue queue = (enum ebb_queue)entry->queue;
    EBB_TRY(ebb_queue_mark(x->device, queue, x->first_mark + 1 + 2 * e));
    EBB_TRY(run_work(x, &x->launches[e], entry, run));
    return ebb_queue_mark(x->device, queue, x->first_mark + 2 + 2 * e);
}

static enum ebb_status run_entry(struct ebb_executor *x, int32_t e, const struct run *run)
{
    const struct ebb_entry *entry = ebb_program_entry_at(x->program, e);
    const struct ebb_entry *last = ebb_program_entry_at(x->program, e + x->launches[e].count - 1);
    enum ebb_queue queue = (enum ebb_queue)entry->queue;
    for (int32_t k = 0; k < entry->wait_count; k++) {
        int32_t other = ebb_program_wait_at(x->program, entry, k);
        EBB_TRY(ebb_queue_wait(x->device, queue,
                               JOIN_EVENTS + ebb_program_entry_at(x->program, other)->event));
    }
    EBB_TRY(x->first_mark < 0 ? run_work(x, &x->launches[e], entry, run)
                              : run_marked(x, e, entry, run));
    return last->event < 0 ? EBB_OK : ebb_queue_record(x->device, queue, JOIN_EVENTS + last->event);
}

static enum ebb_status run_all(struct ebb_executor *x, const struct run *run)
{
    EBB_TRY(join_queues(x));
    if (x->first_mark >= 0) EBB_TRY(ebb_queue_mark(x->device, EBB_QUEUE_COMPUTE, x->first_mark));
    EBB_TRY(pass_values(x, run->steps, run->count));
    for (int32_t e = 0; e < ebb_program_entries(x->program); e += x->launches[e].count)
        EBB_TRY(run_entry(x, e, run));
    return EBB_OK;
}

enum ebb_status ebb_executor_run(struct ebb_executor *executor, const struct ebb_step *steps,
                                 int32_t count)
{
    const struct run run = {steps, count};
    EBB_ASSERT(count >= 1 && count <= ebb_program_micros(executor->program));
    if (executor->broken) { /* some object may be half away */
        EBB_TRY(sync_all(executor));
        if (executor->stash != NULL) ebb_stash_reset(executor->stash);
        executor->broken = false;
    }
    enum ebb_status status = run_all(executor, &run);
    executor->broken = status != EBB_OK;
    return status;
}

bool ebb_executor_times(const struct ebb_executor *executor, struct ebb_entry_time *times)
{
    const struct ebb_executor *x = executor;
    EBB_ASSERT(x->first_mark >= 0);
    bool whole = !x->broken;
    for (int32_t e = 0; whole && e < ebb_program_entries(x->program); e++) {
        int begin = x->first_mark + 1 + 2 * e;
        times[e].count = x->launches[e].count;
        if (x->launches[e].count == 0) { /* its head has the time of all */
            times[e].begin = times[e - 1].begin + times[e - 1].seconds;
            times[e].seconds = 0;
            continue;
        }
        times[e].begin = ebb_device_mark_seconds(x->device, x->first_mark, begin);
        times[e].seconds = ebb_device_mark_seconds(x->device, begin, begin + 1);
        whole = !isnan(times[e].begin) && !isnan(times[e].seconds);
    }
    return whole;
}

void *ebb_executor_tensor(const struct ebb_executor *executor, int32_t tensor)
{
    EBB_ASSERT(tensor >= 0 && tensor < ebb_program_tensors(executor->program));
    return executor->base[tensor];
}

void ebb_executor_forget_peak(struct ebb_executor *executor)
{
    executor->peak = 0;
}

int64_t ebb_executor_peak_bytes(const struct ebb_executor *executor)
{
    return executor->peak;
}
