/* Which units are away: the outermost part of the search.
 *
 * Units are sent away in one order: frozen matrices first, since they come in beside the work and
 * never go out, the head before the layers, and layers so that those that are away lie evenly among
 * the others, each with the more time for its copy; then what belongs to trained ones, which the
 * sweep waits for. What is left to choose is how many. None goes where a plan fits without; else
 * few numbers are tried, each with a search of its own for policies: all, and some between that and
 * the fewest with which what is always there fits on the device, as a step's time falls at first,
 * while room is gained for more than it costs, and rises then.
 *
 * Then whose turn it is: with several micro-batches a step, what is away comes for each of them; or
 * runs take several, layer by layer across them, and it comes once for all, which takes room for
 * what each of them saves. That is tried where anything is away, with as many micro-batches as a
 * run can take, then with half as many and so on, for as long as it brings anything.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/search_int.h"

/* Micro-batches of a run times layers, in a search: what a plan takes to write grows with them, and
 * once a layer's matrices come as fast as they are needed more micro-batches gain little. */
static const int64_t layers_at_most = 640;
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
    int32_t micros; /* that a run takes, of what is tried now */
    struct ebb_plan *best;
    int32_t best_count; /* of open units that are away */
};

static bool is_better(const struct ebb_plan *a, const struct ebb_plan *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return a->device_bytes < b->device_bytes;
    if (!a->forecast.known || !b->forecast.known) return a->forecast.known;
    return a->forecast.seconds < b->forecast.seconds;
}

/* Which units are away with so many of the open ones; the caller frees it. NULL: no memory. */
static uint8_t *away_with(const struct chooser *c, int32_t count)
{
    const struct ebb_net *net = c->request->net;
    uint8_t *away = (uint8_t *)ebb_mem_alloc(c->ctx, (size_t)net->unit_count + 1);
    if (!away) return NULL;
    for (int32_t i = 0; i < net->unit_count; i++)
        away[i] = key_of(&c->request->memory, (enum ebb_unit)net->units[i]) == EBB_TRUE;
    for (int32_t i = 0; i < count; i++) away[c->order.unit[i]] = 1;
    return away;
}

/* Makes the best plan with so many of the open units away; keeps the better of it and the best so
 * far. */
static enum ebb_status try_count(struct chooser *c, int32_t count, bool *better)
{
    struct ebb_plan *plan;
    uint8_t *away = away_with(c, count);
    if (!away) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_plan_make(c->ctx, c->request, away, c->micros, &plan);
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
static enum ebb_status fewest(struct chooser *c, int32_t low)
{
    int32_t high = c->order.count; /* of which the latter fits, and the former does not */
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

/* The fewest open units that must go for what is always there to fit on the device: with fewer no
 * policies help. More than there are: it never does. */
static enum ebb_status fewest_away(struct chooser *c, int32_t *count)
{
    const int64_t room = c->request->device_budget - c->request->overhead_bytes;
    *count = 0;
    if (c->request->device_budget == 0) return EBB_OK;
    for (; *count <= c->order.count; ++*count) {
        int64_t bytes = 0;
        uint8_t *away = away_with(c, *count);
        enum ebb_status status =
            away ? ebb_plan_least_bytes(c->ctx, c->request, away, c->micros, &bytes)
                 : EBB_NO_MEMORY;
        ebb_mem_free(c->ctx, away);
        if (status != EBB_OK || bytes <= room) return status;
    }
    return EBB_OK;
}

static enum ebb_status choose(struct chooser *c)
{
    const int32_t all = c->order.count;
    int32_t least;
    bool better;
    EBB_TRY(fewest_away(c, &least));
    if (least == 0 || all == 0) {
        EBB_TRY(try_count(c, 0, &better));
        if (all == 0 || c->best->fits) return EBB_OK;
    }
    EBB_TRY(try_count(c, all, &better));
    if (!c->best->fits || least >= all) return EBB_OK;
    const int32_t low = least > 0 ? least - 1 : 0; /* with so many it does not fit */
    if (!c->best->forecast.known) return fewest(c, low);
    if (all - low > 2) EBB_TRY(try_count(c, (low + all) / 2, &better));
    return close_in(c, low, all);
}

/* ---- the order of micro-batches ---- */

/* Micro-batches that the runs of a step take at most, as alike as can be. */
static int32_t most_micros(const struct ebb_plan_request *request)
{
    const int64_t all = request->accumulation > 0 ? request->accumulation : 1;
    const int64_t layers = request->net->layers > 0 ? request->net->layers : 1;
    int64_t most = request->net->micros_most > 1 ? request->net->micros_most : 1;
    if (request->breadth_first == EBB_AUTO && most > 1 && most * layers > layers_at_most)
        most = layers_at_most / layers > 2 ? layers_at_most / layers : 2;
    const int64_t runs = (all + most - 1) / most;
    return (int32_t)((all + runs - 1) / runs);
}

static bool keeps_units_away(const struct ebb_plan *plan)
{
    for (int32_t i = 0; i < plan->policies.units; i++)
        if (plan->policies.away[i]) return true;
    return false;
}

/* With as many units away as without several micro-batches, and with all: how many matters less
 * once they come for several. */
static enum ebb_status try_micros(struct chooser *c, int32_t micros, bool *better)
{
    const int32_t all = c->order.count, had = c->best_count;
    bool more = false;
    c->micros = micros;
    EBB_TRY(try_count(c, all, better));
    if (had > 0 && had < all) EBB_TRY(try_count(c, had, &more));
    *better = *better || more;
    return EBB_OK;
}

static enum ebb_status choose_micros(struct chooser *c)
{
    const enum ebb_auto key = c->request->breadth_first;
    bool better = true;
    c->micros = key == EBB_TRUE ? most_micros(c->request) : 1;
    EBB_TRY(choose(c));
    if (key != EBB_AUTO || !keeps_units_away(c->best) || !c->best->forecast.known) return EBB_OK;
    for (int32_t micros = most_micros(c->request); better && micros > 1; micros = (micros + 1) / 2)
        EBB_TRY(try_micros(c, micros, &better));
    return EBB_OK;
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

static void add_order(struct ebb_plan *plan)
{
    char words[sizeof plan->words];
    if (plan->micros < 2) return;
    snprintf(words, sizeof words, "%s", plan->what);
    int used = (int)strlen(words);
    snprintf(words + used, sizeof words - (size_t)used, "; layer by layer across %d micro-batches",
             (int)plan->micros);
    snprintf(plan->words, sizeof plan->words, "%s", words);
    plan->what = plan->words;
}

static enum ebb_status create(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                              struct ebb_plan **plan)
{
    struct chooser c = {.ctx = ctx, .request = request};
    *plan = NULL;
    enum ebb_status status = list_units(ctx, request, &c.order);
    if (status == EBB_OK) status = choose_micros(&c);
    ebb_mem_free(ctx, c.order.unit);
    if (status != EBB_OK) {
        ebb_plan_free(ctx, c.best);
        return status;
    }
    add_words(c.best, EBB_UNIT_PARAMS, "frozen matrices");
    add_words(c.best, EBB_UNIT_OPTIMIZER, "gradients and optimizer state");
    add_order(c.best);
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
