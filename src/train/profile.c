/* The sums behind a profile. What people and run.json are told is in profile_text.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/profile.h"

#include <string.h>

#include "base/clock.h"
#include "op/matmul.h"
#include "op/work.h"

struct ebb_profile {
    struct ebb_ctx *ctx;
    struct ebb_entry_time *times; /* [room] */
    int32_t room;
    int64_t seen, counted; /* steps */
    double seconds;        /* of those that count, with `total` */
    struct ebb_profile_time total[EBB_PROFILE_COUNT];
    struct ebb_profile_time step[EBB_PROFILE_COUNT]; /* of the step that is going on */
    double own;                                      /* what looking at it took */
    bool torn; /* a run of it has no times: it does not count */
};

enum ebb_status ebb_profile_create(struct ebb_ctx *ctx, struct ebb_profile **profile)
{
    *profile = (struct ebb_profile *)ebb_mem_alloc(ctx, sizeof **profile);
    if (!*profile) return EBB_NO_MEMORY;
    (*profile)->ctx = ctx;
    return EBB_OK;
}

void ebb_profile_free(struct ebb_profile *profile)
{
    if (!profile) return;
    ebb_mem_free(profile->ctx, profile->times);
    ebb_mem_free(profile->ctx, profile);
}

/* ---- parts ---- */

/* Transient tensors of the head are named so (model/decoder_head.c). */
static bool is_of_head(const struct ebb_program *program, const struct ebb_view *view)
{
    static const char prefix[] = "head.";
    if (view->tensor < 0) return false;
    const struct ebb_tensor *tensor = ebb_program_tensor_at(program, view->tensor);
    return !tensor->persistent && strncmp(tensor->name, prefix, sizeof prefix - 1) == 0;
}

static enum ebb_profile_part part_of_matmul(const struct ebb_program *program,
                                            const struct ebb_matmul *m)
{
    bool head =
        is_of_head(program, &m->a) || is_of_head(program, &m->b) || is_of_head(program, &m->y);
    return head ? EBB_PROFILE_HEAD : EBB_PROFILE_MATMUL;
}

static enum ebb_profile_part part_of_op(const struct ebb_program *program,
                                        const struct ebb_entry *entry)
{
    switch ((enum ebb_op)entry->op) {
    case EBB_OP_matmul:
        return part_of_matmul(program, (const struct ebb_matmul *)ebb_program_args(program, entry));
    case EBB_OP_attention_forward:
    case EBB_OP_attention_cached:
        return EBB_PROFILE_ATTENTION_FORWARD;
    case EBB_OP_attention_backward:
        return EBB_PROFILE_ATTENTION_BACKWARD;
    case EBB_OP_cross_entropy:
    case EBB_OP_distill:
    case EBB_OP_distill_topk:
    case EBB_OP_label_logprob:
    case EBB_OP_label_logprob_backward:
    case EBB_OP_preference_loss:
    case EBB_OP_topk:
        return EBB_PROFILE_HEAD;
    case EBB_OP_norm_squared:
    case EBB_OP_clip:
    case EBB_OP_adamw:
    case EBB_OP_sgd:
        return EBB_PROFILE_OPTIMIZER;
    default:
        return EBB_PROFILE_MEMORY;
    }
}

static void add_work(struct ebb_profile_time *part, const struct ebb_program *program,
                     const struct ebb_entry *entry, const struct ebb_op_env *env)
{
    const void *args = ebb_program_args(program, entry);
    if (entry->kind == EBB_ENTRY_OP) {
        struct ebb_op_work work = ebb_op_work(env, (enum ebb_op)entry->op, args);
        part->flops += work.flops;
        part->bytes += work.bytes;
        return;
    }
    const struct ebb_move *move = (const struct ebb_move *)args;
    part->bytes += (double)(ebb_view_rows(env, &move->device) * move->device.cols *
                            ebb_dtype_bytes((enum ebb_dtype)move->device.dtype));
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
    p->step[EBB_PROFILE_STALL].seconds += ready - from;
    p->step[EBB_PROFILE_GAP].seconds += to - ready;
}

/* What COMPUTE's own last entry does not wait for, the run does. */
static void add_run(struct ebb_profile *p, const struct ebb_program *program,
                    const struct ebb_op_env *env, bool optimizer)
{
    double at = 0, last = 0; /* where COMPUTE has come, and where the last queue has */
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        const struct ebb_entry_time *time = &p->times[e];
        enum ebb_profile_part which = entry->kind == EBB_ENTRY_OUT  ? EBB_PROFILE_COPY_OUT
                                      : entry->kind == EBB_ENTRY_IN ? EBB_PROFILE_COPY_IN
                                      : optimizer                   ? EBB_PROFILE_OPTIMIZER
                                                                    : part_of_op(program, entry);
        struct ebb_profile_time *part = &p->step[which];
        double end = time->begin + time->seconds;
        add_work(part, program, entry, env);
        if (end > last) last = end;
        if (entry->queue != EBB_QUEUE_COMPUTE) {
            part->beside += time->seconds;
            continue;
        }
        add_gap(p, program, entry, at, time->begin);
        part->seconds += time->seconds;
        at = end;
    }
    if (last > at) p->step[EBB_PROFILE_STALL].seconds += last - at;
}

enum ebb_status ebb_profile_add(struct ebb_profile *profile, const struct ebb_executor *executor,
                                const struct ebb_program *program, const struct ebb_op_env *env,
                                bool optimizer)
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
    if (ebb_executor_times(executor, profile->times))
        add_run(profile, program, env, optimizer);
    else
        profile->torn = true;
    profile->own += ebb_clock_seconds() - start;
    return EBB_OK;
}

/* ---- steps ---- */

void ebb_profile_begin(struct ebb_profile *profile)
{
    memset(profile->step, 0, sizeof profile->step);
    profile->own = 0;
    profile->torn = false;
}

void ebb_profile_end(struct ebb_profile *profile, double seconds)
{
    double device = 0;
    if (profile->torn) return;
    if (profile->seen == EBB_PROFILE_FIRST) { /* from here on there are others */
        memset(profile->total, 0, sizeof profile->total);
        profile->seconds = 0;
        profile->counted = 0;
    }
    for (int i = 0; i < EBB_PROFILE_COUNT; i++) device += profile->step[i].seconds;
    seconds -= profile->own;
    /* A GPU's clock may be a little faster than the host's. */
    if (seconds < device) seconds = device;
    profile->step[EBB_PROFILE_HOST].seconds = seconds - device;
    for (int i = 0; i < EBB_PROFILE_COUNT; i++) {
        profile->total[i].seconds += profile->step[i].seconds;
        profile->total[i].beside += profile->step[i].beside;
        profile->total[i].flops += profile->step[i].flops;
        profile->total[i].bytes += profile->step[i].bytes;
    }
    profile->seconds += seconds;
    profile->seen++;
    profile->counted++;
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
    for (int i = 0; i < EBB_PROFILE_COUNT; i++) {
        mean.parts[i].seconds = profile->total[i].seconds * share;
        mean.parts[i].beside = profile->total[i].beside * share;
        mean.parts[i].flops = profile->total[i].flops * share;
        mean.parts[i].bytes = profile->total[i].bytes * share;
    }
    return mean;
}
