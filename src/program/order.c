/* Order: the fewest waits that make every pair of conflicting accesses happen in program order.
 *
 * Each space is cut at every byte where some access begins or ends. Each piece remembers the entry
 * that wrote it last and, for each queue, the entry that read it last since. An entry must come
 * after the last writer of what it reads, and after the last writer and the last readers of what it
 * writes; what lies further back is before those already.
 *
 * Of each other queue only the latest such entry matters, since a queue runs in order. It is left
 * out if it is known to be done by then: through the entry's own queue, or through another of the
 * entry's waits. So each wait that is put is for an entry that conflicts with the waiting one, and
 * no other path orders the two: neither an earlier one (left out above) nor a later one (edges
 * point forward, a later edge cannot order earlier entries). No wait can be spared.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "program/program_int.h"

struct piece {
    int32_t writer;                  /* -1: none */
    int32_t reader[EBB_QUEUE_COUNT]; /* last since the writer; -1: none */
};

struct cuts {
    int64_t *at; /* [count] ascending; piece i is [at[i], at[i + 1]) */
    int32_t count;
    struct piece *pieces; /* [count] */
};

/* latest[q]: the last entry of queue q that is done before this entry runs, or the entry itself;
 * -1: none. */
struct clock {
    int32_t latest[EBB_QUEUE_COUNT];
};

/* An access that can conflict with others. */
struct touch {
    int64_t begin, end;
    int32_t tensor;
    int32_t piece; /* the first */
    uint8_t space;
    bool writes;
};

/* Cuts that were met lately, each where its value says; 1 more than the value, as 0 is none. */
enum { SEEN_BITS = 12 };
struct seen {
    int64_t at[EBB_SPACE_COUNT][1 << SEEN_BITS];
};

struct ordering {
    struct ebb_program *program;
    struct touch *touches; /* of all entries */
    int32_t *first;        /* [entries + 1] each entry's first touch */
    bool *written;         /* [tensors] some entry writes it, or it is not persistent */
    struct seen *seen;
    struct cuts cuts[EBB_SPACE_COUNT];
    struct clock *clocks; /* [entries] after each entry */
    int32_t *last_waiter; /* [entries] -1: nobody waits for it */
    int32_t *free_events; /* [events] a stack */
};

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* All accesses, of every tensor. */
static void gather_touches(struct ordering *o)
{
    const struct ebb_program *program = o->program;
    int32_t count = 0;
    for (int32_t e = 0; e < program->entry_count; e++) {
        o->first[e] = count;
        for (int i = 0; i < ebb_program_views(program, &program->entries[e]); i++) {
            struct ebb_access access;
            if (!ebb_program_access(program, &program->entries[e], i, &access)) continue;
            o->touches[count++] = (struct touch){.begin = access.begin,
                                                 .end = access.end,
                                                 .tensor = access.tensor,
                                                 .space = (uint8_t)access.space,
                                                 .writes = access.writes};
            o->written[access.tensor] |= access.writes;
        }
    }
    o->first[program->entry_count] = count;
}

/* Most persistent tensors are weights that no entry writes: nothing conflicts there. */
static void drop_unwritten(struct ordering *o)
{
    int32_t count = 0;
    for (int32_t e = 0; e < o->program->entry_count; e++) {
        int32_t from = o->first[e];
        o->first[e] = count;
        for (int32_t i = from; i < o->first[e + 1]; i++)
            if (o->written[o->touches[i].tensor]) o->touches[count++] = o->touches[i];
    }
    o->first[o->program->entry_count] = count;
}

static enum ebb_status list_touches(struct ordering *o)
{
    const struct ebb_program *program = o->program;
    size_t views = 0;
    for (int32_t e = 0; e < program->entry_count; e++)
        views += (size_t)ebb_program_views(program, &program->entries[e]);
    o->touches = ebb_mem_alloc(program->ctx, (views + 1) * sizeof *o->touches);
    o->first = ebb_mem_alloc(program->ctx, ((size_t)program->entry_count + 1) * sizeof *o->first);
    o->written = ebb_mem_alloc(program->ctx, (size_t)program->tensor_count + 1);
    if (o->touches == NULL || o->first == NULL || o->written == NULL) return EBB_NO_MEMORY;
    for (int32_t t = program->persistent; t < program->tensor_count; t++) o->written[t] = true;
    gather_touches(o);
    drop_unwritten(o);
    return EBB_OK;
}

/* Adds a cut unless it was met lately, as most were; what is left twice goes after sorting. */
static void add_cut(struct ordering *o, int space, int64_t at)
{
    const uint64_t mixed = (uint64_t)at * 0x9e3779b97f4a7c15u; /* 2^64 over the golden ratio */
    int64_t *seen = &o->seen->at[space][mixed >> (64 - SEEN_BITS)];
    if (*seen == at + 1) return;
    *seen = at + 1;
    o->cuts[space].at[o->cuts[space].count++] = at;
}

static void gather_cuts(struct ordering *o)
{
    for (int32_t i = 0; i < o->first[o->program->entry_count]; i++) {
        add_cut(o, o->touches[i].space, o->touches[i].begin);
        add_cut(o, o->touches[i].space, o->touches[i].end);
    }
}

static enum ebb_status make_cuts(struct ordering *o)
{
    struct ebb_ctx *ctx = o->program->ctx;
    const size_t most = 2 * (size_t)o->first[o->program->entry_count] + 1;
    o->seen = ebb_mem_alloc(ctx, sizeof *o->seen);
    if (o->seen == NULL) return EBB_NO_MEMORY;
    for (int s = 0; s < EBB_SPACE_COUNT; s++) {
        o->cuts[s].at = ebb_mem_alloc(ctx, most * sizeof(int64_t));
        if (o->cuts[s].at == NULL) return EBB_NO_MEMORY;
    }
    gather_cuts(o);
    for (int s = 0; s < EBB_SPACE_COUNT; s++) {
        struct cuts *cuts = &o->cuts[s];
        qsort(cuts->at, (size_t)cuts->count, sizeof *cuts->at, by_value);
        int32_t distinct = 0;
        for (int32_t i = 0; i < cuts->count; i++)
            if (distinct == 0 || cuts->at[i] != cuts->at[distinct - 1])
                cuts->at[distinct++] = cuts->at[i];
        cuts->count = distinct;
        cuts->pieces = ebb_mem_alloc(ctx, ((size_t)distinct + 1) * sizeof *cuts->pieces);
        if (cuts->pieces == NULL) return EBB_NO_MEMORY;
        memset(cuts->pieces, 0xff, (size_t)distinct * sizeof *cuts->pieces);
    }
    return EBB_OK;
}

static int32_t first_piece(const struct cuts *cuts, int64_t begin)
{
    int32_t low = 0;
    int32_t high = cuts->count - 1;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (cuts->at[middle] < begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void raise_to(int32_t *latest, int32_t entry)
{
    if (entry > *latest) *latest = entry;
}

/* The latest entry of each queue that a touch must come after. */
static void need_for(const struct ordering *o, const struct touch *touch, struct clock *need)
{
    const struct cuts *cuts = &o->cuts[touch->space];
    for (int32_t i = touch->piece; cuts->at[i] < touch->end; i++) {
        const struct piece *piece = &cuts->pieces[i];
        if (piece->writer >= 0)
            raise_to(&need->latest[o->program->entries[piece->writer].queue], piece->writer);
        if (!touch->writes) continue;
        for (int q = 0; q < EBB_QUEUE_COUNT; q++) raise_to(&need->latest[q], piece->reader[q]);
    }
}

static void remember(struct ordering *o, const struct touch *touch, int32_t e)
{
    struct cuts *cuts = &o->cuts[touch->space];
    int queue = o->program->entries[e].queue;
    for (int32_t i = touch->piece; cuts->at[i] < touch->end; i++) {
        struct piece *piece = &cuts->pieces[i];
        if (touch->writes) {
            piece->writer = e;
            for (int q = 0; q < EBB_QUEUE_COUNT; q++) piece->reader[q] = -1;
        } else if (piece->writer != e) {
            piece->reader[queue] = e;
        }
    }
}

/* Whether another of the needed entries is itself after needed entry `of`. */
static bool is_implied(const struct ordering *o, const struct clock *need, int of)
{
    for (int q = 0; q < EBB_QUEUE_COUNT; q++)
        if (q != of && need->latest[q] >= 0 &&
            o->clocks[need->latest[q]].latest[of] >= need->latest[of])
            return true;
    return false;
}

static enum ebb_status order_entry(struct ordering *o, int32_t e, struct clock now[EBB_QUEUE_COUNT])
{
    struct ebb_program *program = o->program;
    struct ebb_entry *entry = &program->entries[e];
    int own = entry->queue;
    struct clock need;
    memset(&need, 0xff, sizeof need);
    for (int32_t i = o->first[e]; i < o->first[e + 1]; i++) {
        struct touch *touch = &o->touches[i];
        touch->piece = first_piece(&o->cuts[touch->space], touch->begin);
        need_for(o, touch, &need);
    }

    struct clock *clock = &now[own]; /* of the queue: what its entry before this one came after */
    for (int q = 0; q < EBB_QUEUE_COUNT; q++)
        if (q == own || need.latest[q] <= clock->latest[q]) need.latest[q] = -1;
    entry->waits = program->wait_count;
    entry->wait_count = 0;
    EBB_TRY(ebb_table_room(program->ctx, (void **)&program->waits, &program->wait_room,
                           (int64_t)program->wait_count + EBB_QUEUE_COUNT, sizeof *program->waits));
    for (int q = 0; q < EBB_QUEUE_COUNT; q++) {
        if (need.latest[q] < 0 || is_implied(o, &need, q)) continue;
        program->waits[program->wait_count++] = need.latest[q];
        entry->wait_count++;
        o->last_waiter[need.latest[q]] = e;
    }
    for (int32_t k = 0; k < entry->wait_count; k++) {
        const struct clock *other = &o->clocks[program->waits[entry->waits + k]];
        for (int q = 0; q < EBB_QUEUE_COUNT; q++) raise_to(&clock->latest[q], other->latest[q]);
    }
    clock->latest[own] = e;
    o->clocks[e] = *clock;

    for (int32_t i = o->first[e]; i < o->first[e + 1]; i++) remember(o, &o->touches[i], e);
    return EBB_OK;
}

/* Numbers the events. A number is used again once nobody waits for its last record any more: a wait
 * means the latest record that was enqueued before it. */
static void number_events(struct ordering *o)
{
    struct ebb_program *program = o->program;
    int32_t free_count = 0;
    program->events = 0;
    for (int32_t e = 0; e < program->entry_count; e++) {
        struct ebb_entry *entry = &program->entries[e];
        for (int32_t k = 0; k < entry->wait_count; k++) {
            int32_t other = program->waits[entry->waits + k];
            if (o->last_waiter[other] == e)
                o->free_events[free_count++] = program->entries[other].event;
        }
        entry->event = -1;
        if (o->last_waiter[e] < 0) continue;
        entry->event = free_count > 0 ? o->free_events[--free_count] : program->events++;
    }
}

static enum ebb_status order_all(struct ordering *o)
{
    struct ebb_program *program = o->program;
    size_t entries = (size_t)program->entry_count + 1;
    EBB_TRY(list_touches(o));
    EBB_TRY(make_cuts(o));
    o->clocks = ebb_mem_alloc(program->ctx, entries * sizeof *o->clocks);
    o->last_waiter = ebb_mem_alloc(program->ctx, entries * sizeof *o->last_waiter);
    o->free_events = ebb_mem_alloc(program->ctx, entries * sizeof *o->free_events);
    if (o->clocks == NULL || o->last_waiter == NULL || o->free_events == NULL) return EBB_NO_MEMORY;
    memset(o->last_waiter, 0xff, entries * sizeof *o->last_waiter);

    struct clock now[EBB_QUEUE_COUNT];
    memset(now, 0xff, sizeof now);
    program->wait_count = 0;
    for (int32_t e = 0; e < program->entry_count; e++) EBB_TRY(order_entry(o, e, now));
    number_events(o);
    return EBB_OK;
}

enum ebb_status ebb_program_order(struct ebb_program *program)
{
    EBB_TRY(ebb_program_need(program, EBB_STAGE_LAID_OUT, "order"));
    program->stage = EBB_STAGE_LAID_OUT;
    struct ordering o = {.program = program};
    enum ebb_status status = order_all(&o);
    for (int s = 0; s < EBB_SPACE_COUNT; s++) {
        ebb_mem_free(program->ctx, o.cuts[s].at);
        ebb_mem_free(program->ctx, o.cuts[s].pieces);
    }
    ebb_mem_free(program->ctx, o.touches);
    ebb_mem_free(program->ctx, o.first);
    ebb_mem_free(program->ctx, o.written);
    ebb_mem_free(program->ctx, o.seen);
    ebb_mem_free(program->ctx, o.clocks);
    ebb_mem_free(program->ctx, o.last_waiter);
    ebb_mem_free(program->ctx, o.free_events);
    if (status == EBB_OK) program->stage = EBB_STAGE_ORDERED;
    return status;
}
