/* The forecast: a program's entries, each at its time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan/forecast.h"

#include <string.h>

#include "plan/plan.h"

struct forecaster {
    struct ebb_ctx *ctx;
    const struct ebb_rates *rates;
    const struct ebb_numerics *numerics;
    struct ebb_op_env envs[EBB_MICROS_MOST]; /* all alike */
    int32_t count;                           /* micro-batches of the run */
    double *ends; /* [room] when each entry has ended */
    int32_t room;
    double times; /* how often the program runs in a step */
    struct ebb_forecast *out;
};

static void add(struct forecaster *f, enum ebb_step_part part, const struct ebb_part_time *time)
{
    struct ebb_part_time *sum = &f->out->parts[part];
    sum->seconds += f->times * time->seconds;
    sum->beside += f->times * time->beside;
    sum->flops += f->times * time->flops;
    sum->bytes += f->times * time->bytes;
}

static void add_seconds(struct forecaster *f, enum ebb_step_part part, double seconds)
{
    const struct ebb_part_time time = {.seconds = seconds};
    add(f, part, &time);
}

static double cost_of(struct forecaster *f, enum ebb_cost_class which,
                      const struct ebb_op_work *work)
{
    const struct ebb_cost *cost = &f->rates->costs[which];
    if (!ebb_cost_known(cost)) f->out->known = false;
    return ebb_cost_seconds(cost, work);
}

/* What the host puts together for a run: rows of tokens that come in from persistent tensors. */
static double host_bytes(const struct forecaster *f, const struct ebb_program *program)
{
    double bytes = 0;
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        if (entry->kind != EBB_ENTRY_IN) continue;
        const struct ebb_move *move = (const struct ebb_move *)ebb_program_args(program, entry);
        if (move->object < 0 && move->host.extent == EBB_EXTENT_TOKENS)
            bytes += ebb_entry_work(program, entry, f->envs, f->count).bytes;
    }
    return bytes;
}

static enum ebb_status make_room(struct forecaster *f, const struct ebb_program *program)
{
    int32_t entries = ebb_program_entries(program);
    if (entries <= f->room) return EBB_OK;
    double *ends = (double *)ebb_mem_realloc(f->ctx, f->ends, (size_t)entries * sizeof *ends);
    if (!ends) return EBB_NO_MEMORY;
    f->ends = ends;
    f->room = entries;
    return EBB_OK;
}

/* Where an entry can begin, at the earliest, for what it waits for. */
static double ready_at(const struct forecaster *f, const struct ebb_program *program,
                       const struct ebb_entry *entry)
{
    double ready = 0;
    for (int32_t k = 0; k < entry->wait_count; k++) {
        double end = f->ends[ebb_program_wait_at(program, entry, k)];
        if (end > ready) ready = end;
    }
    return ready;
}

/* What is pinned goes directly, the rest bounces. */
static double move_seconds(struct forecaster *f, const struct ebb_program *program,
                           const struct ebb_entry *entry, const struct ebb_op_work *work)
{
    const bool out = entry->kind == EBB_ENTRY_OUT;
    const double slow = (double)ebb_entry_pageable(program, entry, (int64_t)work->bytes);
    const struct ebb_op_work bounced = {.bytes = slow}, direct = {.bytes = work->bytes - slow};
    double seconds = 0;
    if (bounced.bytes > 0)
        seconds += cost_of(f, out ? EBB_COST_BOUNCE_OUT : EBB_COST_BOUNCE_IN, &bounced);
    if (direct.bytes > 0)
        seconds += cost_of(f, out ? EBB_COST_COPY_OUT : EBB_COST_COPY_IN, &direct);
    return seconds;
}

/* Moves of rows that are not live, and ops on none, take nothing. */
static double entry_seconds(struct forecaster *f, const struct ebb_program *program,
                            const struct ebb_entry *entry, const struct ebb_op_work *work)
{
    if (!ebb_entry_runs(entry, f->count, f->envs[0].step->first != 0)) return 0;
    if (entry->kind != EBB_ENTRY_OP)
        return work->bytes > 0 ? move_seconds(f, program, entry, work) : 0;
    return cost_of(f, ebb_entry_cost_class(program, entry, f->numerics), work);
}

static enum ebb_status run_program(struct forecaster *f, const struct ebb_program *program,
                                   bool optimizer)
{
    const struct ebb_op_work none = {0};
    const struct ebb_op_work rows = {.bytes = host_bytes(f, program)};
    const double gap = f->rates->costs[EBB_COST_GAP].call;
    double queues[EBB_QUEUE_COUNT] = {0}, last = 0;
    EBB_TRY(make_room(f, program));
    add_seconds(f, EBB_PART_HOST, cost_of(f, EBB_COST_HOST, optimizer ? &none : &rows));
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        const struct ebb_op_work work = ebb_entry_work(program, entry, f->envs, f->count);
        double seconds = entry_seconds(f, program, entry, &work), *queue = &queues[entry->queue];
        bool beside = entry->queue != EBB_QUEUE_COMPUTE;
        double ready = ready_at(f, program, entry), begin = *queue;
        if (seconds > 0 && !beside) {
            begin += gap;
            add_seconds(f, EBB_PART_GAP, gap);
        }
        if (ready > begin) {
            if (!beside) add_seconds(f, EBB_PART_STALL, ready - begin);
            begin = ready;
        }
        const struct ebb_part_time time = {.seconds = beside ? 0 : seconds,
                                           .beside = beside ? seconds : 0,
                                           .flops = work.flops,
                                           .bytes = work.bytes};
        add(f, ebb_entry_part(program, entry, optimizer), &time);
        *queue = f->ends[e] = begin + seconds;
        if (*queue > last) last = *queue;
    }
    add_seconds(f, EBB_PART_STALL, last - queues[EBB_QUEUE_COMPUTE]);
    return EBB_OK;
}

/* The load, cut to the capacity. */
static void set_step(const struct ebb_capacity *capacity, const struct ebb_forecast_load *load,
                     struct ebb_step *step)
{
    memset(step, 0, sizeof *step);
    step->docs = load->docs < capacity->docs ? load->docs : capacity->docs;
    step->tokens = load->doc_starts[step->docs];
    if (step->tokens > capacity->tokens) step->tokens = capacity->tokens;
    step->labels = load->labels < step->tokens ? load->labels : step->tokens;
    for (int64_t d = 0; d < step->docs; d++) {
        int64_t length = load->doc_starts[d + 1] - load->doc_starts[d];
        if (length > step->longest) step->longest = length;
    }
}

/* Then the first run of a step takes less than the others. */
static bool keeps_gradients_away(const struct ebb_plan *plan)
{
    for (int32_t i = 0; i < plan->policies.units; i++)
        if (plan->policies.away[i] && plan->request.net->units[i] == EBB_UNIT_OPTIMIZER)
            return true;
    return false;
}

/* TRAIN `times` times, each with `count` micro-batches. */
static enum ebb_status run_train(struct forecaster *f, const struct ebb_plan *plan, int64_t times,
                                 int64_t count)
{
    const struct ebb_program *program = plan->programs[EBB_PROGRAM_TRAIN];
    if (!program || times < 1) return EBB_OK;
    f->times = (double)times;
    f->count = (int32_t)count;
    return run_program(f, program, false);
}

/* The runs of a step: those that are full, and one of what is left. */
static enum ebb_status run_step(struct forecaster *f, const struct ebb_plan *plan, int64_t micros,
                                struct ebb_step *step)
{
    const int64_t most = plan->programs[EBB_PROGRAM_TRAIN]
                             ? ebb_program_micros(plan->programs[EBB_PROGRAM_TRAIN])
                             : 1;
    int64_t full = micros / most, left = micros % most, firsts = full;
    if (keeps_gradients_away(plan) && firsts > 1) firsts = 1;
    step->first = 1;
    EBB_TRY(run_train(f, plan, firsts, most));
    step->first = full == 0;
    EBB_TRY(run_train(f, plan, full - firsts, most));
    return left > 0 ? run_train(f, plan, 1, left) : EBB_OK;
}

enum ebb_status ebb_forecast_step(struct ebb_ctx *ctx, const struct ebb_plan *plan,
                                  const struct ebb_rates *rates,
                                  const struct ebb_forecast_load *load,
                                  struct ebb_forecast *forecast)
{
    struct ebb_step step;
    struct forecaster f = {.ctx = ctx,
                           .rates = rates,
                           .numerics = &plan->request.numerics,
                           .out = forecast};
    enum ebb_status status = EBB_OK;
    set_step(&plan->request.capacity, load, &step);
    memset(forecast, 0, sizeof *forecast);
    forecast->known = true;
    for (int i = 0; i < EBB_MICROS_MOST; i++)
        f.envs[i] = (struct ebb_op_env){.ctx = ctx, .step = &step, .doc_starts = load->doc_starts};
    status = run_step(&f, plan, load->micro_batches, &step);
    step.first = 0;
    f.times = f.count = 1;
    if (status == EBB_OK && plan->programs[EBB_PROGRAM_UPDATE])
        status = run_program(&f, plan->programs[EBB_PROGRAM_UPDATE], true);
    ebb_mem_free(ctx, f.ends);
    for (int i = 0; i < EBB_PART_COUNT; i++) forecast->seconds += forecast->parts[i].seconds;
    if (!forecast->known) memset(forecast, 0, sizeof *forecast);
    return status;
}
