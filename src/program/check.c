/* The checker. Time goes by in program order; a moment is (queue, how many entries that queue has
 * run), so that "a happened before b" is one comparison with b's clock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "program/program_int.h"

/* State of the bytes between two neighbouring marks. */
struct segment {
    int32_t written_by;               /* entry; -1: nothing has written it */
    int32_t tensor;                   /* as which tensor it was written */
    int32_t read_by[EBB_QUEUE_COUNT]; /* last on each queue since then; -1: none */
};

struct space_state {
    int64_t *marks; /* [mark_count] ascending */
    int64_t mark_count;
    struct segment *segments;
};

struct checker {
    const struct ebb_program *program;
    struct ebb_ctx *ctx;
    struct space_state space[EBB_SPACE_COUNT];
    int32_t *moment;   /* [entries] the entry is its queue's moment[e]-th, from 1 */
    int32_t *clock;    /* [entries, queues] entries of each queue that had run when entry e had */
    int32_t *recorder; /* [events] the entry that recorded it last; -1: none */
};

static const char *entry_text(const struct checker *c, int32_t entry, char out[EBB_ENTRY_TEXT])
{
    return ebb_entry_text(c->program, entry, out);
}

/* ---- tensors alive at once ---- */

struct life {
    int64_t begin, end;
    int32_t from, to; /* entries, both included */
    int32_t tensor;
};

static int by_start(const void *a, const void *b)
{
    const struct life *x = a;
    const struct life *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int by_stop(const void *a, const void *b)
{
    const struct life *x = *(const struct life *const *)a;
    const struct life *y = *(const struct life *const *)b;
    return (x->to > y->to) - (x->to < y->to);
}

/* First of the alive ones, which are ascending and disjoint, that ends behind `begin`. */
static int32_t find_alive(struct life *const *alive, int32_t count, int64_t begin)
{
    int32_t low = 0;
    int32_t high = count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (alive[middle]->end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum ebb_status fail_overlap(const struct checker *c, const struct life *a,
                                    const struct life *b)
{
    const struct ebb_tensor *x = ebb_program_tensor_at(c->program, a->tensor);
    const struct ebb_tensor *y = ebb_program_tensor_at(c->program, b->tensor);
    return EBB_FAIL(c->ctx, EBB_FAILED,
                    "program '%s': tensors '%s' (%s bytes [%" PRId64 ", %" PRId64
                    "), entries %" PRId32 " to %" PRId32 ") and '%s' (bytes [%" PRId64 ", %" PRId64
                    "), entries %" PRId32 " to %" PRId32
                    ") are alive at the same time on the same bytes",
                    ebb_program_name(c->program), x->name, ebb_space_text(x->space), a->begin,
                    a->end, a->from, a->to, y->name, b->begin, b->end, b->from, b->to);
}

/* `lives` ascending by start, `stops` the same ascending by stop, `alive` empty. */
static enum ebb_status sweep_lives(const struct checker *c, struct life *lives,
                                   struct life *const *stops, struct life **alive, int32_t count)
{
    int32_t alive_count = 0;
    int32_t stopped = 0;
    for (int32_t i = 0; i < count; i++) {
        struct life *life = &lives[i];
        for (; stops[stopped]->to < life->from; stopped++) {
            int32_t at = find_alive(alive, alive_count, stops[stopped]->begin);
            EBB_ASSERT(at < alive_count && alive[at] == stops[stopped]);
            alive_count--;
            memmove(alive + at, alive + at + 1, (size_t)(alive_count - at) * sizeof(struct life *));
        }
        int32_t at = find_alive(alive, alive_count, life->begin);
        if (at < alive_count && alive[at]->begin < life->end)
            return fail_overlap(c, alive[at], life);
        memmove(alive + at + 1, alive + at, (size_t)(alive_count - at) * sizeof(struct life *));
        alive[at] = life;
        alive_count++;
    }
    return EBB_OK;
}

/* Persistent tensors live throughout, touched or not: another program of the plan needs them. */
static int32_t gather_lives(const struct checker *c, enum ebb_space space, struct life *lives)
{
    int32_t count = 0;
    for (int32_t t = 0; t < ebb_program_tensors(c->program); t++) {
        const struct ebb_tensor *tensor = ebb_program_tensor_at(c->program, t);
        if (tensor->space != space || tensor->bytes == 0 || tensor->offset < 0) continue;
        if (!tensor->persistent && tensor->first > tensor->last) continue;
        struct life life = {
            .begin = tensor->offset, .end = tensor->offset + tensor->bytes, .tensor = t};
        life.from = tensor->persistent ? 0 : tensor->first;
        life.to = tensor->persistent ? INT32_MAX : tensor->last;
        lives[count++] = life;
    }
    return count;
}

static enum ebb_status check_lives(const struct checker *c)
{
    size_t room = (size_t)ebb_program_tensors(c->program) + 1;
    struct life *lives = ebb_mem_alloc(c->ctx, room * sizeof *lives);
    struct life **stops = ebb_mem_alloc(c->ctx, room * sizeof(struct life *));
    struct life **alive = ebb_mem_alloc(c->ctx, room * sizeof(struct life *));
    enum ebb_status status = lives == NULL || stops == NULL || alive == NULL ? EBB_NO_MEMORY
                                                                             : EBB_OK;
    for (int space = 0; space < EBB_SPACE_COUNT && status == EBB_OK; space++) {
        int32_t count = gather_lives(c, (enum ebb_space)space, lives);
        qsort(lives, (size_t)count, sizeof *lives, by_start);
        for (int32_t i = 0; i < count; i++) stops[i] = &lives[i];
        qsort(stops, (size_t)count, sizeof(struct life *), by_stop);
        status = sweep_lives(c, lives, stops, alive, count);
    }
    ebb_mem_free(c->ctx, lives);
    ebb_mem_free(c->ctx, (void *)stops);
    ebb_mem_free(c->ctx, (void *)alive);
    return status;
}

/* ---- entries ---- */

/* View and access of an entry lie where they must. */
static enum ebb_status check_place(const struct checker *c, int32_t e, int i,
                                   const struct ebb_access *access)
{
    const struct ebb_tensor *tensor = ebb_program_tensor_at(c->program, access->tensor);
    char text[EBB_ENTRY_TEXT];
    if (tensor->offset < 0)
        return EBB_FAIL(c->ctx, EBB_FAILED,
                        "program '%s': %s touches tensor '%s', which has no place",
                        ebb_program_name(c->program), entry_text(c, e, text), tensor->name);
    if (access->begin < tensor->offset || access->end > tensor->offset + tensor->bytes)
        return EBB_FAIL(c->ctx, EBB_FAILED,
                        "program '%s': view %d of %s covers bytes [%" PRId64 ", %" PRId64
                        ") of tensor '%s', which has "
                        "%" PRId64,
                        ebb_program_name(c->program), i, entry_text(c, e, text),
                        access->begin - tensor->offset, access->end - tensor->offset, tensor->name,
                        tensor->bytes);
    if (e < tensor->first || e > tensor->last)
        return EBB_FAIL(c->ctx, EBB_FAILED,
                        "program '%s': %s touches tensor '%s', which lives from entry %" PRId32
                        " to %" PRId32 " only",
                        ebb_program_name(c->program), entry_text(c, e, text), tensor->name,
                        tensor->first, tensor->last);
    return EBB_OK;
}

static enum ebb_status check_places(const struct checker *c)
{
    for (int32_t e = 0; e < ebb_program_entries(c->program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(c->program, e);
        for (int i = 0; i < ebb_program_views(c->program, entry); i++) {
            struct ebb_access access;
            if (ebb_program_access(c->program, entry, i, &access))
                EBB_TRY(check_place(c, e, i, &access));
        }
    }
    return EBB_OK;
}

static enum ebb_status check_wait(const struct checker *c, int32_t e, int32_t other)
{
    char waiting[EBB_ENTRY_TEXT];
    char text[EBB_ENTRY_TEXT];
    entry_text(c, e, waiting);
    if (other < 0 || other >= e)
        return EBB_FAIL(c->ctx, EBB_FAILED,
                        "program '%s': %s waits for entry %" PRId32
                        ", which is not before it: such a wait is none",
                        ebb_program_name(c->program), waiting, other);
    int32_t event = ebb_program_entry_at(c->program, other)->event;
    if (event < 0 || event >= ebb_program_events(c->program))
        return EBB_FAIL(c->ctx, EBB_FAILED, "program '%s': %s waits for %s, which records no event",
                        ebb_program_name(c->program), waiting, entry_text(c, other, text));
    if (c->recorder[event] != other)
        return EBB_FAIL(c->ctx, EBB_FAILED,
                        "program '%s': %s waits for %s, but its event %" PRId32
                        " was recorded again by entry %" PRId32,
                        ebb_program_name(c->program), waiting, entry_text(c, other, text), event,
                        c->recorder[event]);
    return EBB_OK;
}

/* Entry e's clock: what its queue and its waits had seen, and itself. `ran`: entries of each queue
 * so far; `last`: the last of them. */
static enum ebb_status run_clock(struct checker *c, int32_t e, int32_t ran[EBB_QUEUE_COUNT],
                                 int32_t last[EBB_QUEUE_COUNT])
{
    const struct ebb_entry *entry = ebb_program_entry_at(c->program, e);
    int32_t *clock = &c->clock[(int64_t)e * EBB_QUEUE_COUNT];
    if (last[entry->queue] >= 0)
        memcpy(clock, &c->clock[(int64_t)last[entry->queue] * EBB_QUEUE_COUNT],
               EBB_QUEUE_COUNT * sizeof *clock);
    for (int32_t k = 0; k < entry->wait_count; k++) {
        int32_t other = ebb_program_wait_at(c->program, entry, k);
        EBB_TRY(check_wait(c, e, other));
        const int32_t *seen = &c->clock[(int64_t)other * EBB_QUEUE_COUNT];
        for (int q = 0; q < EBB_QUEUE_COUNT; q++)
            if (seen[q] > clock[q]) clock[q] = seen[q];
    }
    c->moment[e] = clock[entry->queue] = ++ran[entry->queue];
    last[entry->queue] = e;
    if (entry->event >= 0 && entry->event < ebb_program_events(c->program))
        c->recorder[entry->event] = e;
    return EBB_OK;
}

/* ---- bytes ---- */

static int by_mark(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static enum ebb_status mark_space(struct checker *c, enum ebb_space space)
{
    struct space_state *state = &c->space[space];
    int64_t room = 1;
    for (int32_t e = 0; e < ebb_program_entries(c->program); e++)
        room += 2 * ebb_program_views(c->program, ebb_program_entry_at(c->program, e));
    state->marks = ebb_mem_alloc(c->ctx, (size_t)room * sizeof *state->marks);
    if (state->marks == NULL) return EBB_NO_MEMORY;
    int64_t count = 0;
    for (int32_t e = 0; e < ebb_program_entries(c->program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(c->program, e);
        for (int i = 0; i < ebb_program_views(c->program, entry); i++) {
            struct ebb_access access;
            if (!ebb_program_access(c->program, entry, i, &access) || access.space != space)
                continue;
            state->marks[count++] = access.begin;
            state->marks[count++] = access.end;
        }
    }
    qsort(state->marks, (size_t)count, sizeof *state->marks, by_mark);
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || state->marks[i] != state->marks[i - 1])
            state->marks[state->mark_count++] = state->marks[i];
    state->segments = ebb_mem_alloc(c->ctx,
                                    (size_t)(state->mark_count + 1) * sizeof *state->segments);
    if (state->segments == NULL) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < state->mark_count; i++) {
        struct segment *segment = &state->segments[i];
        segment->written_by = segment->tensor = -1;
        for (int q = 0; q < EBB_QUEUE_COUNT; q++) segment->read_by[q] = -1;
    }
    return EBB_OK;
}

static int64_t find_mark(const struct space_state *state, int64_t value)
{
    int64_t low = 0;
    int64_t high = state->mark_count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (state->marks[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool happened_before(const struct checker *c, int32_t other, int32_t e)
{
    int queue = ebb_program_entry_at(c->program, other)->queue;
    return c->moment[other] <= c->clock[(int64_t)e * EBB_QUEUE_COUNT + queue];
}

/* The tensor as which an entry touched a byte: it has an access there. */
static const char *tensor_at(const struct checker *c, int32_t e, enum ebb_space space, int64_t byte,
                             bool written)
{
    const struct ebb_entry *entry = ebb_program_entry_at(c->program, e);
    for (int i = 0; i < ebb_program_views(c->program, entry); i++) {
        struct ebb_access access;
        if (!ebb_program_access(c->program, entry, i, &access) || access.space != space) continue;
        if (byte < access.begin || byte >= access.end || (written ? !access.writes : !access.reads))
            continue;
        return ebb_program_tensor_at(c->program, access.tensor)->name;
    }
    return "?";
}

static enum ebb_status fail_race(const struct checker *c, int32_t e,
                                 const struct ebb_access *access, int64_t at, int32_t other,
                                 bool other_writes)
{
    const struct space_state *state = &c->space[access->space];
    char text[EBB_ENTRY_TEXT];
    char other_text[EBB_ENTRY_TEXT];
    return EBB_FAIL(
        c->ctx, EBB_FAILED,
        "program '%s': a race: %s %s tensor '%s', %s %s tensor '%s', both at %s bytes [%" PRId64
        ", %" PRId64 "), and nothing orders the two",
        ebb_program_name(c->program), entry_text(c, other, other_text),
        other_writes ? "writes" : "reads",
        tensor_at(c, other, access->space, state->marks[at], other_writes), entry_text(c, e, text),
        access->writes ? "writes" : "reads",
        ebb_program_tensor_at(c->program, access->tensor)->name, ebb_space_text(access->space),
        state->marks[at], state->marks[at + 1]);
}

static enum ebb_status fail_unwritten(const struct checker *c, int32_t e,
                                      const struct ebb_access *access, int64_t at)
{
    const struct space_state *state = &c->space[access->space];
    const struct ebb_tensor *tensor = ebb_program_tensor_at(c->program, access->tensor);
    char text[EBB_ENTRY_TEXT];
    return EBB_FAIL(c->ctx, EBB_FAILED,
                    "program '%s': %s reads tensor '%s' at its bytes [%" PRId64 ", %" PRId64
                    "), which nothing has written "
                    "before (%s bytes [%" PRId64 ", %" PRId64 "))",
                    ebb_program_name(c->program), entry_text(c, e, text), tensor->name,
                    state->marks[at] - tensor->offset, state->marks[at + 1] - tensor->offset,
                    ebb_space_text(access->space), state->marks[at], state->marks[at + 1]);
}

static enum ebb_status check_access(const struct checker *c, int32_t e,
                                    const struct ebb_access *access)
{
    const struct space_state *state = &c->space[access->space];
    const struct ebb_tensor *tensor = ebb_program_tensor_at(c->program, access->tensor);
    bool must_be_written = access->reads && !tensor->persistent && !tensor->whole;
    for (int64_t i = find_mark(state, access->begin); state->marks[i] < access->end; i++) {
        const struct segment *segment = &state->segments[i];
        if (must_be_written && segment->tensor != access->tensor)
            return fail_unwritten(c, e, access, i);
        if (segment->written_by >= 0 && !happened_before(c, segment->written_by, e))
            return fail_race(c, e, access, i, segment->written_by, true);
        if (!access->writes) continue;
        for (int q = 0; q < EBB_QUEUE_COUNT; q++)
            if (segment->read_by[q] >= 0 && !happened_before(c, segment->read_by[q], e))
                return fail_race(c, e, access, i, segment->read_by[q], false);
    }
    return EBB_OK;
}

static void note_access(struct checker *c, int32_t e, const struct ebb_access *access)
{
    struct space_state *state = &c->space[access->space];
    int queue = ebb_program_entry_at(c->program, e)->queue;
    for (int64_t i = find_mark(state, access->begin); state->marks[i] < access->end; i++) {
        struct segment *segment = &state->segments[i];
        if (!access->writes) {
            segment->read_by[queue] = e;
            continue;
        }
        segment->written_by = e;
        segment->tensor = access->tensor;
        for (int q = 0; q < EBB_QUEUE_COUNT; q++) segment->read_by[q] = -1;
    }
}

/* All of an entry's accesses are judged by what was before it, then noted. */
static enum ebb_status check_entry(struct checker *c, int32_t e)
{
    const struct ebb_entry *entry = ebb_program_entry_at(c->program, e);
    int views = ebb_program_views(c->program, entry);
    struct ebb_access access;
    for (int i = 0; i < views; i++)
        if (ebb_program_access(c->program, entry, i, &access)) EBB_TRY(check_access(c, e, &access));
    for (int i = 0; i < views; i++)
        if (ebb_program_access(c->program, entry, i, &access)) note_access(c, e, &access);
    return EBB_OK;
}

static enum ebb_status check_all(struct checker *c)
{
    EBB_TRY(check_places(c));
    EBB_TRY(check_lives(c));
    for (int space = 0; space < EBB_SPACE_COUNT; space++)
        EBB_TRY(mark_space(c, (enum ebb_space)space));
    size_t entries = (size_t)ebb_program_entries(c->program) + 1;
    size_t events = (size_t)ebb_program_events(c->program) + 1;
    c->moment = ebb_mem_alloc(c->ctx, entries * sizeof *c->moment);
    c->clock = ebb_mem_alloc(c->ctx, entries * EBB_QUEUE_COUNT * sizeof *c->clock);
    c->recorder = ebb_mem_alloc(c->ctx, events * sizeof *c->recorder);
    if (c->moment == NULL || c->clock == NULL || c->recorder == NULL) return EBB_NO_MEMORY;
    memset(c->recorder, 0xff, events * sizeof *c->recorder);
    int32_t ran[EBB_QUEUE_COUNT] = {0};
    int32_t last[EBB_QUEUE_COUNT];
    memset(last, 0xff, sizeof last);
    for (int32_t e = 0; e < ebb_program_entries(c->program); e++) {
        EBB_TRY(run_clock(c, e, ran, last));
        EBB_TRY(check_entry(c, e));
    }
    return EBB_OK;
}

enum ebb_status ebb_program_check(struct ebb_ctx *ctx, const struct ebb_program *program)
{
    EBB_TRY(ebb_program_need(program, EBB_STAGE_ORDERED, "check"));
    struct checker c = {.program = program, .ctx = ctx};
    enum ebb_status status = check_all(&c);
    for (int space = 0; space < EBB_SPACE_COUNT; space++) {
        ebb_mem_free(ctx, c.space[space].marks);
        ebb_mem_free(ctx, c.space[space].segments);
    }
    ebb_mem_free(ctx, c.moment);
    ebb_mem_free(ctx, c.clock);
    ebb_mem_free(ctx, c.recorder);
    return status;
}
