/* Which units are away: the outermost part of the search.
 *
 * Units are sent away in one order: frozen matrices first, since they come in beside the work and
 * never go out, the head before the layers, and layers so that those that are away lie evenly among
 * the others, each with the more time for its copy; then what belongs to trained ones, which the
 * sweep waits for. What is left to choose is how many. None goes where a plan fits without; else
 * few numbers are tried, each with a search of its own for policies: all, and some between, as a
 * step's time falls at first, while room is gained for more than it costs, and rises then.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/search_int.h"

/* Less of a step's time than this is not worth a unit more. */
static const double worth_a_unit = 1e-3;

/* The units that keys leave open, in the order in which they go, and those that keys send away. */
struct order {
    int32_t *unit; /* [count] */
    int32_t count;
    const struct ebb_net *net;
    const struct ebb_memory_keys *keys;
};

static enum ebb_auto key_of(const struct ebb_memory_keys *keys, enum ebb_unit kind)
{
    return kind == EBB_UNIT_PARAMS ? keys->offload_params : keys->offload_optimizer;
}

/* The bits of i, the lowest first: what has few of them lies evenly among all. */
static uint32_t mirrored(uint32_t i)
{
    uint32_t mirror = 0;
    for (int bit = 0; bit < 32; bit++) mirror |= (i >> bit & 1u) << (31 - bit);
    return mirror;
}

struct place {
    int32_t unit;
    uint32_t key;
};

static int by_key(const void *a, const void *b)
{
    const struct place *x = (const struct place *)a, *y = (const struct place *)b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->unit < y->unit ? -1 : 1;
}

/* Appends a kind's open units. The last of the frozen ones is a head, and goes first. */
static void append(struct order *order, enum ebb_unit kind, struct place *places)
{
    int32_t count = 0;
    if (key_of(order->keys, kind) != EBB_AUTO) return;
    for (int32_t i = 0; i < order->net->unit_count; i++)
        if (order->net->units[i] == kind) places[count++].unit = i;
    for (int32_t i = 0; i < count; i++)
        places[i].key = kind == EBB_UNIT_PARAMS ? mirrored((uint32_t)(count - 1 - i)) : 0;
    qsort(places, (size_t)count, sizeof *places, by_key);
    for (int32_t i = 0; i < count; i++) order->unit[order->count++] = places[i].unit;
}

static enum ebb_status list_units(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                                  struct order *order)
{
    const size_t units = (size_t)request->net->unit_count + 1;
    order->net = request->net;
    order->keys = &request->memory;
    order->unit = (int32_t *)ebb_mem_alloc(ctx, units * sizeof *order->unit);
    if (!request->programs[EBB_PROGRAM_TRAIN]) return order->unit ? EBB_OK : EBB_NO_MEMORY;
    struct place *places = (struct place *)ebb_mem_alloc(ctx, units * sizeof *places);
    if (order->unit && places) {
        append(order, EBB_UNIT_PARAMS, places);
        append(order, EBB_UNIT_OPTIMIZER, places);
    }
    ebb_mem_free(ctx, places);
    return order->unit && places ? EBB_OK : EBB_NO_MEMORY;
}

/* ---- trying ---- */

struct chooser {
    struct ebb_ctx *ctx;
    const struct ebb_plan_request *request;
    struct order order;
    struct ebb_plan *best;
    int32_t best_count;
};

static bool is_better(const struct ebb_plan *a, const struct ebb_plan *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return a->device_bytes < b->device_bytes;
    if (!a->forecast.known || !b->forecast.known) return a->forecast.known;
    return a->forecast.seconds < b->forecast.seconds;
}

/* Makes the best plan with so many of the open units away; keeps the better of it and the best so
 * far. */
static enum ebb_status try_count(struct chooser *c, int32_t count, bool *better)
{
    const struct ebb_memory_keys *keys = &c->request->memory;
    const struct ebb_net *net = c->request->net;
    struct ebb_plan *plan;
    uint8_t *away = (uint8_t *)ebb_mem_alloc(c->ctx, (size_t)net->unit_count + 1);
    if (!away) return EBB_NO_MEMORY;
    for (int32_t i = 0; i < net->unit_count; i++)
        away[i] = key_of(keys, (enum ebb_unit)net->units[i]) == EBB_TRUE;
    for (int32_t i = 0; i < count; i++) away[c->order.unit[i]] = 1;
    enum ebb_status status = ebb_plan_make(c->ctx, c->request, away, &plan);
    ebb_mem_free(c->ctx, away);
    if (status != EBB_OK) return status;
    *better = !c->best || is_better(plan, c->best);
    if (*better) {
        ebb_plan_free(c->ctx, c->best);
        c->best = plan;
        c->best_count = count;
    } else {
        ebb_plan_free(c->ctx, plan);
    }
    return EBB_OK;
}

/* Halves the distance to the best on both sides, as long as that brings anything. `low` and `high`
 * were tried, on either side of it or it. */
static enum ebb_status close_in(struct chooser *c, int32_t low, int32_t high)
{
    while (high - low > 1) {
        double before = c->best->forecast.seconds;
        bool better = false;
        int32_t had = c->best_count, left = (low + had) / 2, right = (had + high + 1) / 2;
        if (right > had && right < high) EBB_TRY(try_count(c, right, &better));
        if (!better && left < had && left > low) EBB_TRY(try_count(c, left, &better));
        if (!better) {
            low = left;
            high = right;
            if (low == had || high == had || high - low <= 2) break;
            if (high - low < c->order.count / 4) break;
            continue;
        }
        if (c->best_count > had)
            low = had;
        else
            high = had;
        if (c->best->forecast.seconds > (1 - worth_a_unit) * before) break;
    }
    return EBB_OK;
}

/* Without forecasts a unit that stays is better than one that goes. */
static enum ebb_status fewest(struct chooser *c)
{
    int32_t low = 0, high = c->order.count; /* of which the latter fits, and the former does not */
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        struct ebb_plan *had = c->best;
        bool better;
        c->best = NULL;
        enum ebb_status status = try_count(c, middle, &better);
        if (status == EBB_OK && c->best->fits) {
            high = middle;
            ebb_plan_free(c->ctx, had);
            continue;
        }
        ebb_plan_free(c->ctx, c->best);
        c->best = had;
        c->best_count = high;
        EBB_TRY(status);
        low = middle;
    }
    return EBB_OK;
}

static enum ebb_status choose(struct chooser *c)
{
    const int32_t all = c->order.count;
    bool better;
    EBB_TRY(try_count(c, 0, &better));
    if (all == 0 || c->best->fits) return EBB_OK;
    EBB_TRY(try_count(c, all, &better));
    if (!c->best->fits) return EBB_OK;
    if (!c->best->forecast.known) return fewest(c);
    if (all > 2) EBB_TRY(try_count(c, all / 2, &better));
    return close_in(c, 0, all);
}

/* ---- in words ---- */

int32_t ebb_plan_away(const struct ebb_plan *plan, enum ebb_unit kind, int32_t *all)
{
    int32_t away = 0;
    *all = 0;
    for (int32_t i = 0; i < plan->policies.units; i++) {
        if (plan->request.net->units[i] != kind) continue;
        (*all)++;
        away += plan->policies.away[i];
    }
    return away;
}

static void add_words(struct ebb_plan *plan, enum ebb_unit kind, const char *what)
{
    char words[sizeof plan->words];
    int32_t all, away = ebb_plan_away(plan, kind, &all);
    if (away == 0) return;
    snprintf(words, sizeof words, "%s", plan->what);
    int used = (int)strlen(words);
    if (away == all)
        snprintf(words + used, sizeof words - (size_t)used, "; %s in host memory", what);
    else
        snprintf(words + used, sizeof words - (size_t)used, "; %s of %d of %d parts in host memory",
                 what, (int)away, (int)all);
    snprintf(plan->words, sizeof plan->words, "%s", words);
    plan->what = plan->words;
    plan->rung = plan->rung > 0 ? plan->rung : 1;
}

static enum ebb_status create(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                              struct ebb_plan **plan)
{
    struct chooser c = {.ctx = ctx, .request = request};
    *plan = NULL;
    enum ebb_status status = list_units(ctx, request, &c.order);
    if (status == EBB_OK) status = choose(&c);
    ebb_mem_free(ctx, c.order.unit);
    if (status != EBB_OK) {
        ebb_plan_free(ctx, c.best);
        return status;
    }
    add_words(c.best, EBB_UNIT_PARAMS, "frozen matrices");
    add_words(c.best, EBB_UNIT_OPTIMIZER, "gradients and optimizer state");
    *plan = c.best;
    return EBB_OK;
}

/* Estimates of what moves take have all of it pinned, so where that is not so the search may well
 * miss a plan that moves less: it is looked for by a budget of host memory that can be pinned. */
enum ebb_status ebb_plan_create(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                                struct ebb_plan **plan_out)
{
    struct ebb_plan_request within = *request;
    struct ebb_plan *plan, *pinned;
    *plan_out = NULL;
    EBB_TRY(create(ctx, request, &plan));
    *plan_out = plan;
    if (plan->pageable_bytes == 0) return EBB_OK;
    within.host_budget = request->pinned_budget;
    enum ebb_status status = create(ctx, &within, &pinned);
    if (status != EBB_OK) {
        ebb_plan_free(ctx, plan);
        *plan_out = NULL;
        return status;
    }
    const bool better = pinned->fits && (!pinned->forecast.known || is_better(pinned, plan));
    *plan_out = better ? pinned : plan;
    ebb_plan_free(ctx, better ? plan : pinned);
    (*plan_out)->request.host_budget = request->host_budget;
    return EBB_OK;
}
