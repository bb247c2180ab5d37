/* Plans: the persistent region, the programs, their common transient region, and the choice
 * among policies.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include "plan/search_int.h"
#include "plan/update_int.h"

/* Room is not spent for less than this share of a step. */
static const double worth_early = 1e-3;

/* Whether a tensor is optimizer state in host memory. */
static bool is_state_away(const struct ebb_net *net, const struct ebb_tensor *tensor, int32_t unit)
{
    return tensor->space == EBB_SPACE_HOST && unit >= 0 && net->units[unit] == EBB_UNIT_OPTIMIZER;
}

/* Lays the net's tensors out in each space, one after the other; `start`: where its transient
 * region begins. Optimizer state comes first in host memory: where not all of that is pinned it is
 * its start that is not. */
static void lay_persistent(const struct ebb_plan *plan, int64_t start[EBB_SPACE_COUNT])
{
    const struct ebb_net *net = plan->request.net;
    struct ebb_tensor *tensors = plan->persistent;
    memset(start, 0, EBB_SPACE_COUNT * sizeof *start);
    for (int32_t i = 0; i < net->tensor_count; i++) {
        bool away = ebb_policies_away(&plan->policies, net->unit_of[i]);
        tensors[i] = net->tensors[i];
        if (net->per_micro[i])
            tensors[i].bytes += (plan->micros - 1) * ebb_net_input_stride(tensors[i].bytes);
        if (net->stands_in[i])
            tensors[i].bytes = away ? tensors[i].bytes : 0;
        else if (away)
            tensors[i].space = EBB_SPACE_HOST;
    }
    for (int state = 1; state >= 0; state--)
        for (int32_t i = 0; i < net->tensor_count; i++) {
            if (is_state_away(net, &tensors[i], net->unit_of[i]) != (state == 1)) continue;
            tensors[i].offset = start[tensors[i].space];
            start[tensors[i].space] = ebb_align_up(tensors[i].offset + tensors[i].bytes);
        }
}

/* ---- one program ---- */

static struct ebb_capacity program_capacity(const struct ebb_plan_request *request,
                                            enum ebb_program_kind kind)
{
    struct ebb_capacity capacity = request->capacity;
    if (kind != EBB_PROGRAM_DECODE) return capacity;
    if (capacity.tokens > request->numerics.tile_tokens)
        capacity.tokens = request->numerics.tile_tokens;
    if (capacity.tokens > capacity.cache_tokens) capacity.tokens = capacity.cache_tokens;
    return capacity;
}

static enum ebb_status write_program(struct ebb_ctx *ctx, const struct ebb_plan *plan,
                                     enum ebb_program_kind kind, enum ebb_prefetch prefetch,
                                     struct ebb_program *program, int64_t *saved_bytes)
{
    const struct ebb_plan_request *request = &plan->request;
    struct ebb_build build;
    memset(&build, 0, sizeof build);
    build.ctx = ctx;
    build.program = program;
    build.matmul = request->matmul;
    build.numerics = &request->numerics;
    build.capacity = program_capacity(request, kind);
    build.micros = kind == EBB_PROGRAM_TRAIN ? plan->micros : 1;
    build.policies = &plan->policies;
    build.streams = request->streams;
    build.prefetch = prefetch;
    build.ring = request->one_buffer ? 1 : EBB_TILE_BUFFERS;
    build.weights_ahead = request->one_buffer ? 0 : prefetch == EBB_PREFETCH_NONE ? 1 : 2;
    EBB_TRY(ebb_build_new_scratch(&build));
    if (kind == EBB_PROGRAM_UPDATE)
        EBB_TRY(ebb_update_emit(&build, request));
    else
        EBB_TRY(request->net->emit(request->net, &build, kind));
    *saved_bytes = build.saved_bytes;
    return ebb_program_finish(program, request->poison);
}

/* Makes one program of the plan, much like `like` (NULL: like none), and lays it out if it may end
 * at `limit` or below. */
static enum ebb_status make_program(struct ebb_ctx *ctx, struct ebb_plan *plan,
                                    enum ebb_program_kind kind, enum ebb_prefetch prefetch,
                                    const struct ebb_program *like, int64_t limit,
                                    int64_t *saved_bytes, int64_t *end)
{
    const struct ebb_net *net = plan->request.net;
    int64_t start[EBB_SPACE_COUNT];
    struct ebb_program **program = &plan->programs[kind];
    lay_persistent(plan, start);
    EBB_TRY(ebb_program_create(ctx, ebb_program_kind_name(kind), plan->persistent,
                               net->tensor_count, program));
    if (like) EBB_TRY(ebb_program_reserve(*program, like));
    EBB_TRY(write_program(ctx, plan, kind, prefetch, *program, saved_bytes));
    return ebb_program_layout_within(*program, start, plan->request.apart, limit, end);
}

int64_t ebb_plan_persistent_end(const struct ebb_plan *plan, enum ebb_space space)
{
    int64_t end = 0;
    for (int32_t i = 0; i < plan->request.net->tensor_count; i++) {
        const struct ebb_tensor *tensor = &plan->persistent[i];
        if (tensor->space == space && tensor->offset + tensor->bytes > end)
            end = tensor->offset + tensor->bytes;
    }
    return end;
}

/* End of the highest range of any program, or of a persistent tensor: those that no program touches
 * live there all the same. */
static int64_t end_of(const struct ebb_plan *plan, enum ebb_space space)
{
    int64_t end = ebb_plan_persistent_end(plan, space);
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++) {
        int64_t own = plan->programs[i] ? ebb_program_end(plan->programs[i], space) : 0;
        if (own > end) end = own;
    }
    return end;
}

static void count_bytes(struct ebb_plan *plan, int64_t saved_bytes)
{
    const struct ebb_net *net = plan->request.net;
    const int64_t transient = ebb_align_up(ebb_plan_persistent_end(plan, EBB_SPACE_DEVICE));
    int64_t device = end_of(plan, EBB_SPACE_DEVICE), named = 0;
    if (plan->train_bytes > device) device = plan->train_bytes;
    plan->device_bytes = device;
    plan->host_bytes = end_of(plan, EBB_SPACE_HOST);
    memset(plan->kind_bytes, 0, sizeof plan->kind_bytes);
    memset(plan->host_kind_bytes, 0, sizeof plan->host_kind_bytes);
    for (int32_t i = 0; i < net->tensor_count; i++)
        if (plan->persistent[i].space == EBB_SPACE_DEVICE)
            plan->kind_bytes[net->kinds[i]] += plan->persistent[i].bytes;
        else
            plan->host_kind_bytes[net->kinds[i]] += plan->persistent[i].bytes;
    plan->kind_bytes[EBB_KIND_SAVED] = saved_bytes <= device - transient ? saved_bytes : 0;
    for (int i = 0; i < EBB_KIND_WORKING; i++) named += plan->kind_bytes[i];
    plan->kind_bytes[EBB_KIND_WORKING] = device - named;
    plan->host_kind_bytes[EBB_KIND_SAVED] = plan->host_bytes;
    for (int i = 0; i < EBB_KIND_SAVED; i++)
        plan->host_kind_bytes[EBB_KIND_SAVED] -= plan->host_kind_bytes[i];
}

static void set_pageable(struct ebb_plan *plan, int64_t bytes)
{
    plan->pageable_bytes = bytes;
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++)
        if (plan->programs[i]) ebb_program_set_pageable(plan->programs[i], bytes);
}

/* What is beyond the budget for pinned memory, in whole pages. */
static void count_pageable(struct ebb_plan *plan)
{
    enum { PAGE = 4096 };
    const int64_t budget = plan->request.pinned_budget;
    int64_t beyond = budget > 0 ? plan->host_bytes - budget : 0;
    beyond = beyond > 0 ? (beyond + PAGE - 1) / PAGE * PAGE : 0;
    set_pageable(plan, beyond < plan->host_bytes ? beyond : plan->host_bytes);
}

enum ebb_status ebb_plan_set_pageable(struct ebb_ctx *ctx, struct ebb_plan *plan, int64_t bytes)
{
    EBB_ASSERT(bytes >= 0 && bytes <= plan->host_bytes);
    set_pageable(plan, bytes);
    return ebb_plan_forecast(ctx, plan);
}

void ebb_plan_set_overhead(struct ebb_plan *plan, int64_t overhead_bytes)
{
    struct ebb_plan_request *request = &plan->request;
    request->overhead_bytes = overhead_bytes;
    plan->total_bytes = plan->device_bytes + overhead_bytes;
    plan->fits = (request->device_budget == 0 || plan->total_bytes <= request->device_budget) &&
                 (request->host_budget == 0 || plan->host_bytes <= request->host_budget);
}

static void drop_programs(struct ebb_plan *plan)
{
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++) {
        ebb_program_free(plan->programs[i]);
        plan->programs[i] = NULL;
    }
}

/* Makes the programs that no policy changes. */
static enum ebb_status make_others(struct ebb_ctx *ctx, struct ebb_plan *plan)
{
    const struct ebb_plan_request *request = &plan->request;
    int64_t start[EBB_SPACE_COUNT], saved_bytes, end;
    lay_persistent(plan, start);
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++)
        if (request->programs[i] && i != EBB_PROGRAM_TRAIN)
            EBB_TRY(make_program(ctx, plan, (enum ebb_program_kind)i, EBB_PREFETCH_NONE, NULL,
                                 INT64_MAX, &saved_bytes, &end));
    return EBB_OK;
}

enum ebb_status ebb_plan_write_within(struct ebb_ctx *ctx, struct ebb_plan *plan,
                                      enum ebb_prefetch prefetch, int64_t limit)
{
    const struct ebb_plan_request *request = &plan->request;
    struct ebb_program **train = &plan->programs[EBB_PROGRAM_TRAIN], *old = *train;
    int64_t saved_bytes = 0;
    *train = NULL;
    plan->prefetch = prefetch;
    plan->bytes_out = plan->bytes_in = plan->train_bytes = 0;
    if (request->programs[EBB_PROGRAM_TRAIN]) {
        enum ebb_status status = make_program(ctx, plan, EBB_PROGRAM_TRAIN, prefetch, old, limit,
                                              &saved_bytes, &plan->train_bytes);
        ebb_program_free(old);
        if (status != EBB_OK) return status;
        ebb_program_traffic(*train, &plan->bytes_out, &plan->bytes_in);
    }
    if (plan->programs[EBB_PROGRAM_UPDATE])
        ebb_program_traffic(plan->programs[EBB_PROGRAM_UPDATE], &plan->update_out,
                            &plan->update_in);
    count_bytes(plan, saved_bytes);
    count_pageable(plan);
    ebb_plan_set_overhead(plan, request->overhead_bytes);
    return EBB_OK;
}

enum ebb_status ebb_plan_write(struct ebb_ctx *ctx, struct ebb_plan *plan,
                               enum ebb_prefetch prefetch)
{
    return ebb_plan_write_within(ctx, plan, prefetch, INT64_MAX);
}

int64_t ebb_plan_runs(const struct ebb_plan *plan)
{
    int64_t micros = plan->request.accumulation > 0 ? plan->request.accumulation : 1;
    return (micros + plan->micros - 1) / plan->micros;
}

bool ebb_plan_moves_in(const struct ebb_plan *plan)
{
    const struct ebb_policies *p = &plan->policies;
    if (plan->bytes_in == 0) return false;
    for (int64_t layer = 0; layer < p->layers; layer++)
        for (int slot = 0; slot < plan->request.net->slot_count; slot++)
            if (ebb_policy_moves((enum ebb_policy)p->at[layer][slot])) return true;
    return p->layers > 0 && p->at[0][0] != EBB_POLICY_KEEP;
}

/* With and without moves ahead of need: the latter takes less memory and more time. */
static enum ebb_status try_policies(struct ebb_ctx *ctx, struct ebb_plan *plan)
{
    if (!plan->request.one_buffer) {
        EBB_TRY(ebb_plan_write(ctx, plan, EBB_PREFETCH_LATE));
        if (plan->fits || !ebb_plan_moves_in(plan)) return EBB_OK;
    }
    return ebb_plan_write(ctx, plan, EBB_PREFETCH_NONE);
}

static enum ebb_status climb(struct ebb_ctx *ctx, struct ebb_plan *plan)
{
    const struct ebb_plan_request *request = &plan->request;
    int64_t best_bytes = -1;
    int best = 0;
    bool last = false;
    for (int k = 0; !last; k++) {
        EBB_TRY(ebb_policies_ladder(ctx, request->net, &request->memory, true, k, &plan->policies,
                                    &plan->what, &last));
        plan->rung = k;
        EBB_TRY(try_policies(ctx, plan));
        if (plan->fits) return EBB_OK;
        if (best_bytes < 0 || plan->device_bytes < best_bytes) {
            best_bytes = plan->device_bytes;
            best = k;
        }
    }
    plan->rung = best;
    EBB_TRY(ebb_policies_ladder(ctx, request->net, &request->memory, true, best, &plan->policies,
                                &plan->what, &last));
    return try_policies(ctx, plan);
}

/* What is asked for earlier takes more room and less time: where the forecast says how much, and
 * there is room, backward's slots come in early. */
static enum ebb_status try_early(struct ebb_ctx *ctx, struct ebb_plan *plan)
{
    const struct ebb_forecast late = plan->forecast;
    if (plan->request.one_buffer || !plan->fits || !late.known || !ebb_plan_moves_in(plan))
        return EBB_OK;
    EBB_TRY(ebb_plan_write(ctx, plan, EBB_PREFETCH_EARLY));
    if (plan->fits) {
        EBB_TRY(ebb_program_order(plan->programs[EBB_PROGRAM_TRAIN]));
        EBB_TRY(ebb_plan_forecast(ctx, plan));
        if (plan->forecast.seconds < (1 - worth_early) * late.seconds) return EBB_OK;
    }
    EBB_TRY(try_policies(ctx, plan));
    plan->forecast = late;
    return ebb_program_order(plan->programs[EBB_PROGRAM_TRAIN]);
}

/* Chooses policies and writes all programs for them, in order. */
static enum ebb_status make_programs(struct ebb_ctx *ctx, struct ebb_plan *plan)
{
    bool found = false;
    EBB_TRY(make_others(ctx, plan));
    EBB_TRY(ebb_plan_search(ctx, plan, &found));
    if (!found) EBB_TRY(climb(ctx, plan));
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++)
        if (plan->programs[i] && !(found && i == EBB_PROGRAM_TRAIN))
            EBB_TRY(ebb_program_order(plan->programs[i]));
    if (found) return EBB_OK;
    EBB_TRY(ebb_plan_forecast(ctx, plan));
    return try_early(ctx, plan);
}

/* A plan of which nothing is made yet. */
static enum ebb_status begin(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                             const uint8_t *away, int32_t micros, struct ebb_plan **plan_out)
{
    const struct ebb_net *net = request->net;
    struct ebb_plan *plan = *plan_out = (struct ebb_plan *)ebb_mem_alloc(ctx, sizeof *plan);
    if (!plan) return EBB_NO_MEMORY;
    plan->request = *request;
    plan->micros = micros;
    plan->persistent = (struct ebb_tensor *)ebb_mem_alloc(ctx, (size_t)net->tensor_count *
                                                                   sizeof *plan->persistent);
    if (!plan->persistent) return EBB_NO_MEMORY;
    EBB_TRY(ebb_policies_create(ctx, net->layers, net->unit_count, EBB_POLICY_KEEP,
                                &plan->policies));
    memcpy(plan->policies.away, away, (size_t)plan->policies.units);
    return EBB_OK;
}

enum ebb_status ebb_plan_make(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                              const uint8_t *away, int32_t micros, struct ebb_plan **plan)
{
    enum ebb_status status = begin(ctx, request, away, micros, plan);
    if (status == EBB_OK) status = make_programs(ctx, *plan);
    if (status == EBB_OK) return EBB_OK;
    ebb_plan_free(ctx, *plan);
    *plan = NULL;
    return status;
}

enum ebb_status ebb_plan_least_bytes(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                                     const uint8_t *away, int32_t micros, int64_t *bytes)
{
    int64_t start[EBB_SPACE_COUNT];
    struct ebb_plan *plan;
    enum ebb_status status = begin(ctx, request, away, micros, &plan);
    if (status == EBB_OK) {
        lay_persistent(plan, start);
        *bytes = ebb_plan_persistent_end(plan, EBB_SPACE_DEVICE);
    }
    ebb_plan_free(ctx, plan);
    return status;
}

void ebb_plan_free(struct ebb_ctx *ctx, struct ebb_plan *plan)
{
    if (!plan) return;
    drop_programs(plan);
    ebb_policies_free(ctx, &plan->policies);
    ebb_mem_free(ctx, plan->persistent);
    ebb_mem_free(ctx, plan);
}

static int64_t between(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

void ebb_numerics_choose(struct ebb_numerics *numerics, int64_t vocab, int64_t ffn,
                         const struct ebb_capacity *capacity)
{
    bool cuda = ebb_numerics_target(numerics).backend == EBB_BACKEND_CUDA;
    int64_t tile = 512, labels;
    if (vocab < 1) vocab = 1;
    if (ffn < 1) ffn = 1;
    if (cuda) {
        /* A GPU wants products that fill it: 320 MiB of fp32 logits, in steps of two tiles of a
         * product, but never below 128; tokens whose gate and up are 320 MiB of bf16 at most, a
         * power of two from 2,048 on. */
        labels = between((320 << 20) / 4 / vocab / 256 * 256, 128, 2048);
        for (tile = 8192; tile > 2048 && tile * 2 * ffn * 2 > 320 << 20; tile /= 2) continue;
    } else {
        /* 32 MiB of fp32 logits, in steps of 32 labels; tiles of 512 tokens keep a core's share of
         * an MLP tile within its cache for small models and the products large enough for big
         * ones. */
        labels = between((32 << 20) / 4 / vocab / 32 * 32, 32, 512);
    }
    numerics->head_chunk = labels;
    numerics->tile_tokens = between(capacity->tokens, 1, tile);
}
