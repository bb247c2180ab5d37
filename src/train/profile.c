/* The sums behind a profile. What people and run.json are told is in profile_text.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Sums of one label. */
struct op_sum {
    char label[EBB_OP_LABEL];
    enum ebb_step_part part;
    enum ebb_cost_class which;
    int64_t step_count, total_count; /* of the step that is going on, of those that count */
    struct ebb_part_time step, total;
};

struct ebb_profile {
    struct ebb_ctx *ctx;
    const struct ebb_numerics *numerics; /* borrowed */
    struct op_sum *ops;                  /* [op_room] */
    int64_t op_count, op_room;
    struct ebb_entry_time *times; /* [room] */
    int32_t room;
    int64_t seen, counted; /* steps */
    bool warm;             /* no more first steps are left out */
    double seconds;        /* of those that count, with `total` */
    struct ebb_part_time total[EBB_PART_COUNT];
    struct ebb_part_time step[EBB_PART_COUNT]; /* of the step that is going on */
    double own;                                /* what looking at it took */
    bool torn;                                 /* a run of it has no times: it does not count */
};

enum ebb_status ebb_profile_create(struct ebb_ctx *ctx, const struct ebb_numerics *numerics,
                                   struct ebb_profile **profile)
{
    *profile = (struct ebb_profile *)ebb_mem_alloc(ctx, sizeof **profile);
    if (!*profile) return EBB_NO_MEMORY;
    (*profile)->ctx = ctx;
    (*profile)->numerics = numerics;
    return EBB_OK;
}

void ebb_profile_free(struct ebb_profile *profile)
{
    if (!profile) return;
    ebb_mem_free(profile->ctx, profile->times);
    ebb_mem_free(profile->ctx, profile->ops);
    ebb_mem_free(profile->ctx, profile);
}

static void add_time(struct ebb_part_time *sum, const struct ebb_part_time *time)
{
    sum->seconds += time->seconds;
    sum->beside += time->beside;
    sum->flops += time->flops;
    sum->bytes += time->bytes;
}

/* ---- ops ---- */

static enum ebb_status grow_ops(struct ebb_profile *p)
{
    if (p->op_count < p->op_room) return EBB_OK;
    int64_t room = p->op_room ? 2 * p->op_room : 64;
    struct op_sum *ops =
        (struct op_sum *)ebb_mem_realloc(p->ctx, p->ops, (size_t)room * sizeof *ops);
    if (!ops) return EBB_NO_MEMORY;
    p->ops = ops;
    p->op_room = room;
    return EBB_OK;
}

static enum ebb_status add_op(struct ebb_profile *p, const struct ebb_program *program,
                              const struct ebb_entry *entry, enum ebb_step_part part,
                              const struct ebb_part_time *time)
{
    char label[EBB_OP_LABEL];
    int64_t i = 0;
    ebb_entry_label(program, entry, label);
    while (i < p->op_count && (p->ops[i].part != part || strcmp(p->ops[i].label, label) != 0)) i++;
    if (i == p->op_count) {
        EBB_TRY(grow_ops(p));
        memset(&p->ops[i], 0, sizeof p->ops[i]);
        memcpy(p->ops[i].label, label, sizeof label);
        p->ops[i].part = part;
        p->ops[i].which = ebb_entry_cost_class(program, entry, p->numerics);
        p->op_count++;
    }
    p->ops[i].step_count++;
    add_time(&p->ops[i].step, time);
    return EBB_OK;
}

/* A step that counts, or one that is forgotten. */
static void end_ops(struct ebb_profile *p, bool counts)
{
    for (int64_t i = 0; i < p->op_count; i++) {
        struct op_sum *op = &p->ops[i];
        if (counts) {
            op->total_count += op->step_count;
            add_time(&op->total, &op->step);
        }
        op->step_count = 0;
        memset(&op->step, 0, sizeof op->step);
    }
}

/* ---- a run ---- */

/* Of the gap before an entry of COMPUTE: as long as what it waits for had not ended, it stalled.
 * A GPU's times are rounded, so that a gap may come out a little below 0; the next one makes up for
 * it. */
static void add_gap(struct ebb_profile *p, const struct ebb_program *program,
                    const struct ebb_entry *entry, double from, double to)
{
    double ready = from;
    for (int32_t k = 0; k < entry->wait_count; k++) {
        const struct ebb_entry_time *other = &p->times[ebb_program_wait_at(program, entry, k)];
        double end = other->begin + other->seconds;
        if (end > ready) ready = end;
    }
    if (ready > to) ready = to > from ? to : from;
    p->step[EBB_PART_STALL].seconds += ready - from;
    p->step[EBB_PART_GAP].seconds += to - ready;
}

/* Entries that ran as one share its time by the bytes that each moves. */
static void share_times(struct ebb_profile *p, const struct ebb_program *program,
                        const struct ebb_op_env *envs, int32_t micros)
{
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        struct ebb_entry_time *time = &p->times[e];
        double bytes = 0, at = time->begin, all = time->seconds;
        if (time->count < 2) continue;
        for (int32_t k = 0; k < time->count; k++)
            bytes +=
                ebb_entry_work(program, ebb_program_entry_at(program, e + k), envs, micros).bytes;
        if (bytes <= 0) continue;
        for (int32_t k = 0; k < time->count; k++) {
            time[k].begin = at;
            time[k].seconds =
                all *
                ebb_entry_work(program, ebb_program_entry_at(program, e + k), envs, micros).bytes /
                bytes;
            at += time[k].seconds;
        }
    }
}

/* What COMPUTE's own last entry does not wait for, the run does. */
static enum ebb_status add_run(struct ebb_profile *p, const struct ebb_program *program,
                               const struct ebb_op_env *envs, int32_t micros, bool optimizer)
{
    double at = 0, last = 0; /* where COMPUTE has come, and where the last queue has */
    share_times(p, program, envs, micros);
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        const struct ebb_entry_time *time = &p->times[e];
        enum ebb_step_part which = ebb_entry_part(program, entry, optimizer);
        bool beside = entry->queue != EBB_QUEUE_COMPUTE;
        double end = time->begin + time->seconds;
        struct ebb_op_work work = ebb_entry_work(program, entry, envs, micros);
        struct ebb_part_time sum = {.seconds = beside ? 0 : time->seconds,
                                    .beside = beside ? time->seconds : 0,
                                    .flops = work.flops,
                                    .bytes = work.bytes};
        add_time(&p->step[which], &sum);
        EBB_TRY(add_op(p, program, entry, which, &sum));
        if (end > last) last = end;
        if (beside) continue;
        add_gap(p, program, entry, at, time->begin);
        at = end;
    }
    if (last > at) p->step[EBB_PART_STALL].seconds += last - at;
    return EBB_OK;
}

enum ebb_status ebb_profile_add(struct ebb_profile *profile, const struct ebb_executor *executor,
                                const struct ebb_program *program, const struct ebb_op_env *envs,
                                int32_t count, bool optimizer)
{
    double start = ebb_clock_seconds();
    int32_t entries = ebb_program_entries(program);
    if (entries > profile->room) {
        struct ebb_entry_time *times =
            (struct ebb_entry_time *)ebb_mem_realloc(profile->ctx, profile->times,
                                                     (size_t)entries * sizeof *times);
        if (!times) return EBB_NO_MEMORY;
        profile->times = times;
        profile->room = entries;
    }
    enum ebb_status status = EBB_OK;
    if (ebb_executor_times(executor, profile->times))
        status = add_run(profile, program, envs, count, optimizer);
    else
        profile->torn = true;
    profile->own += ebb_clock_seconds() - start;
    return status;
}

/* ---- steps ---- */

void ebb_profile_begin(struct ebb_profile *profile)
{
    memset(profile->step, 0, sizeof profile->step);
    end_ops(profile, false);
    profile->own = 0;
    profile->torn = false;
}

void ebb_profile_forget(struct ebb_profile *profile)
{
    memset(profile->total, 0, sizeof profile->total);
    for (int64_t i = 0; i < profile->op_count; i++) {
        profile->ops[i].total_count = 0;
        memset(&profile->ops[i].total, 0, sizeof profile->ops[i].total);
    }
    profile->seconds = 0;
    profile->counted = 0;
    profile->warm = true;
}

void ebb_profile_end(struct ebb_profile *profile, double seconds)
{
    double device = 0;
    if (profile->torn) return;
    /* From here on there are others than the first. */
    if (profile->seen == EBB_PROFILE_FIRST && !profile->warm) ebb_profile_forget(profile);
    for (int i = 0; i < EBB_PART_COUNT; i++) device += profile->step[i].seconds;
    seconds -= profile->own;
    /* A GPU's clock may be a little faster than the host's. */
    if (seconds < device) seconds = device;
    profile->step[EBB_PART_HOST].seconds = seconds - device;
    for (int i = 0; i < EBB_PART_COUNT; i++) add_time(&profile->total[i], &profile->step[i]);
    end_ops(profile, true);
    profile->seconds += seconds;
    profile->seen++;
    profile->counted++;
}

static struct ebb_part_time scaled(const struct ebb_part_time *time, double share)
{
    struct ebb_part_time t = {time->seconds * share, time->beside * share, time->flops * share,
                              time->bytes * share};
    return t;
}

struct ebb_profile_step ebb_profile_mean(const struct ebb_profile *profile)
{
    struct ebb_profile_step mean;
    memset(&mean, 0, sizeof mean);
    mean.steps = profile->counted;
    mean.left_out = profile->seen - profile->counted;
    if (mean.steps == 0) return mean;
    double share = 1 / (double)mean.steps;
    mean.seconds = profile->seconds * share;
    for (int i = 0; i < EBB_PART_COUNT; i++) mean.parts[i] = scaled(&profile->total[i], share);
    return mean;
}

static int by_seconds(const void *a, const void *b)
{
    const struct ebb_profile_op *x = (const struct ebb_profile_op *)a;
    const struct ebb_profile_op *y = (const struct ebb_profile_op *)b;
    double mine = x->time.seconds + x->time.beside, other = y->time.seconds + y->time.beside;
    return mine > other ? -1 : mine < other ? 1 : strcmp(x->label, y->label);
}

enum ebb_status ebb_profile_ops(const struct ebb_profile *profile, struct ebb_profile_op **ops_out,
                                int64_t *count)
{
    double share = profile->counted > 0 ? 1 / (double)profile->counted : 0;
    size_t bytes = (size_t)profile->op_count * sizeof(struct ebb_profile_op);
    struct ebb_profile_op *ops =
        (struct ebb_profile_op *)ebb_mem_alloc(profile->ctx, bytes > 0 ? bytes : 1);
    *count = 0;
    *ops_out = ops;
    if (!ops) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < profile->op_count; i++) {
        const struct op_sum *from = &profile->ops[i];
        if (from->total_count == 0) continue;
        struct ebb_profile_op *op = &ops[(*count)++];
        memcpy(op->label, from->label, sizeof op->label);
        op->part = from->part;
        op->which = from->which;
        op->count = (double)from->total_count * share;
        op->time = scaled(&from->total, share);
    }
    if (*count > 1) qsort(ops, (size_t)*count, sizeof *ops, by_seconds);
    return EBB_OK;
}
