/* Estimates for the search: sets of policies, mixes of them over the layers, and the mixes that
 * look best. Arithmetic alone; nothing is written here.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "plan/search_int.h"

/* ---- sets ---- */

/* What may become of a slot behind the first: every policy, but half a slot only of the last, which
 * is the largest, and tiled. */
static int choices(const struct ebb_net *net, int slot)
{
    return net->slots[slot].tiled && slot == net->slot_count - 1 ? EBB_POLICY_COUNT
                                                                 : EBB_POLICY_HALF;
}

/* What the set with this number does with the slots from 1 on, whose choices are its digits. */
static void set_policies(const struct ebb_net *net, int number, enum ebb_policy first,
                         struct ebb_set *set)
{
    memset(set, 0, sizeof *set);
    set->policy[0] = (uint8_t)first;
    for (int slot = 1; slot < net->slot_count; slot++) {
        set->policy[slot] = (uint8_t)(number % choices(net, slot));
        number /= choices(net, slot);
    }
}

static bool slot_moves(const struct ebb_set *set, int slot)
{
    return ebb_policy_moves((enum ebb_policy)set->policy[slot]);
}

/* As the ladder reads the keys: checkpoints are sets that save layer inputs alone. */
static bool allowed(const struct ebb_memory_keys *keys, const struct ebb_set *set, int slots)
{
    bool moves = false;
    for (int slot = 0; slot < slots; slot++) moves = moves || slot_moves(set, slot);
    if (keys->activation_offloading == EBB_TRUE && !moves) return false;
    if (keys->activation_offloading == EBB_FALSE && moves) return false;
    if (keys->gradient_checkpointing != EBB_TRUE) return true;
    for (int slot = 1; slot < slots; slot++)
        if (set->policy[slot] != EBB_POLICY_RECOMPUTE) return false;
    return true;
}

void ebb_sets_list(const struct ebb_net *net, const struct ebb_memory_keys *keys,
                   struct ebb_sets *sets)
{
    static const enum ebb_policy firsts[] = {EBB_POLICY_KEEP, EBB_POLICY_HOST};
    int combinations = 1;
    for (int slot = 1; slot < net->slot_count; slot++) combinations *= choices(net, slot);
    sets->count = 0;
    for (int64_t every = 1; every <= 4; every *= 2)
        for (int first = 0; first < 2; first++)
            for (int i = 0; i < combinations && sets->count < EBB_MIX_SETS; i++) {
                struct ebb_set *set = &sets->at[sets->count];
                set_policies(net, i, firsts[first], set);
                set->every = every;
                if (allowed(keys, set, net->slot_count) && every <= net->layers) sets->count++;
            }
}

/* What the moves and the remaking of a set come to in a layer. */
struct set_work {
    double again, again_in_tiles; /* seconds of COMPUTE; in the tiled half */
    double out, out_tiles;        /* of OUT; of what leaves in the tiled half */
    double out_behind;            /* of that, what may leave behind it: as many tiles as buffers */
    double in_whole, in_tiles;    /* of IN: what comes in whole, and tile by tile */
    double in_first;              /* of that, the first tile */
};

/* A layer's input that was not saved comes from passing the layer below forward again: what that
 * one remakes tile by tile is made twice then, and what of it is away comes in twice. */
static void add_slot(const struct ebb_mix_costs *costs, int slot, double dropped,
                     struct ebb_set *set, struct set_work *work)
{
    const enum ebb_policy policy = (enum ebb_policy)set->policy[slot];
    const bool tiled = costs->net->slots[slot].tiled;
    double share = slot == 0 ? 1 - dropped : 1, times = tiled ? 1 + dropped : share, moved = 0;
    if (policy == EBB_POLICY_KEEP) {
        set->device += share * costs->bytes[slot];
        return;
    }
    if (ebb_policy_moves(policy))
        moved = (double)ebb_policy_moved(policy, (int64_t)costs->tiles) / costs->tiles;
    set->host += moved * share * costs->bytes[slot];
    work->out += moved * share * costs->out[slot];
    if (tiled || slot == 0 || slot == costs->attention)
        work->out_tiles += moved * share * costs->out[slot];
    if (tiled && moved > 0) work->in_first += costs->in[slot] / costs->tiles;
    if (tiled) work->out_behind += fmin(moved, EBB_TILE_BUFFERS / costs->tiles) * costs->out[slot];
    *(tiled ? &work->in_tiles : &work->in_whole) += moved * times * costs->in[slot];
    work->again += (1 - moved) * times * costs->again[slot];
    if (tiled) work->again_in_tiles += (1 - moved) * costs->again[slot];
}

/* How long moves hold a layer up, at least. In forward, OUT may be behind by about a layer, but
 * tiles only by their buffers. In backward, IN brings first what comes in whole, from the end or
 * the beginning of the attention above on, then, beside the tiled half, tile after tile. */
static double stall_of(const struct ebb_mix_costs *costs, const struct set_work *work)
{
    double half = costs->backward_tiles + work->again_in_tiles,
           lead = costs->backward_lead + (costs->early ? costs->backward_attention : 0);
    double out = fmax(0, work->out - costs->forward);
    if (work->in_tiles == 0) return out + fmax(0, work->in_whole - lead - half);
    out = fmax(out, work->out_tiles - work->out_behind - costs->forward_tiles);
    return out + fmax(0, work->in_whole + work->in_first - lead) +
           fmax(0, work->in_tiles - work->in_first - half);
}

unsigned ebb_set_moves(const struct ebb_mix_costs *costs, const struct ebb_set *set)
{
    unsigned moves = 0;
    for (int slot = 0; slot < costs->net->slot_count; slot++) {
        if (!slot_moves(set, slot)) continue;
        moves |= EBB_MOVES_ANY;
        if (slot == 0) moves |= EBB_MOVES_INPUT;
        if (slot == costs->attention) moves |= EBB_MOVES_ATTENTION;
        if (costs->net->slots[slot].tiled) moves |= EBB_MOVES_TILES;
        if (set->policy[slot] == EBB_POLICY_HALF) moves |= EBB_MOVES_HALF;
    }
    int first = costs->attention + 1;
    if (moves != 0 && first < costs->net->slot_count && set->policy[first] == EBB_POLICY_RECOMPUTE)
        moves |= EBB_MOVES_NEEDED;
    return moves;
}

static void estimate_set(const struct ebb_mix_costs *costs, struct ebb_set *set)
{
    double dropped = (double)(set->every - 1) / (double)set->every;
    struct set_work work = {.again = dropped * costs->again[0]};
    set->device = set->host = 0;
    for (int slot = 0; slot < costs->net->slot_count; slot++)
        add_slot(costs, slot, dropped, set, &work);
    set->seconds = work.again;
    if (work.out > 0)
        set->seconds += fmax(0, stall_of(costs, &work) + costs->late[ebb_set_moves(costs, set)]);
}

void ebb_sets_estimate(const struct ebb_mix_costs *costs, struct ebb_sets *sets)
{
    for (int i = 0; i < sets->count; i++) estimate_set(costs, &sets->at[i]);
}

/* Whether `a` is nowhere worse than `b`, so that `b` need not be looked at. */
static bool dominates(const struct ebb_mix_costs *costs, const struct ebb_sets *sets, int a, int b)
{
    const struct ebb_set *x = &sets->at[a], *y = &sets->at[b];
    const double room = costs->room[a], other = costs->room[b];
    if (x->seconds > y->seconds || x->device > y->device || x->host > y->host || room > other)
        return false;
    return a < b || x->seconds < y->seconds || x->device < y->device || x->host < y->host ||
           room < other;
}

static int list_useful(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                       int useful[EBB_MIX_SETS])
{
    int count = 0;
    for (int b = 0; b < sets->count; b++) {
        bool dominated = false;
        for (int a = 0; a < sets->count && !dominated; a++)
            dominated = a != b && dominates(costs, sets, a, b);
        if (!dominated) useful[count++] = b;
    }
    return count;
}

/* ---- mixes ---- */

int ebb_mix_peak(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                 const struct ebb_mix *mix, double *bytes)
{
    double saved = 0, most = -HUGE_VAL;
    int at = 0;
    for (int i = 0; i < mix->ranges; i++) {
        saved += (double)mix->layers[i] * sets->at[mix->set[i]].device;
        if (saved + costs->room[mix->set[i]] < most) continue;
        most = saved + costs->room[mix->set[i]];
        at = i;
    }
    *bytes = costs->device + most;
    return at;
}

static bool fits(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                 const struct ebb_mix *mix)
{
    double device;
    ebb_mix_peak(costs, sets, mix, &device);
    return device <= costs->device_budget && ebb_mix_host(costs, sets, mix) <= costs->host_budget;
}

/* Device bytes while backward is in the last range. */
static double device_at_top(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                            const struct ebb_mix *mix)
{
    double bytes = costs->device + costs->room[mix->set[mix->ranges - 1]];
    for (int i = 0; i < mix->ranges; i++)
        bytes += (double)mix->layers[i] * sets->at[mix->set[i]].device;
    return bytes;
}

double ebb_mix_host(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                    const struct ebb_mix *mix)
{
    double bytes = costs->host;
    if (sets->at[mix->set[0]].policy[0] == EBB_POLICY_HOST) bytes += costs->host_input;
    for (int i = 0; i < mix->ranges; i++)
        bytes += (double)mix->layers[i] * sets->at[mix->set[i]].host;
    return bytes;
}

double ebb_mix_seconds(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                       const struct ebb_mix *mix)
{
    double seconds = costs->keep_seconds;
    for (int i = 0; i < mix->ranges; i++)
        seconds += (double)mix->layers[i] * sets->at[mix->set[i]].seconds;
    return seconds;
}

bool ebb_mix_same(const struct ebb_mix *a, const struct ebb_mix *b)
{
    bool same = a->ranges == b->ranges;
    for (int i = 0; same && i < a->ranges; i++)
        same = a->set[i] == b->set[i] && a->layers[i] == b->layers[i];
    return same;
}

static void remove_range(struct ebb_mix *mix, int at)
{
    mix->ranges--;
    for (int i = at; i < mix->ranges; i++) {
        mix->set[i] = mix->set[i + 1];
        mix->layers[i] = mix->layers[i + 1];
    }
}

void ebb_mix_shift(struct ebb_mix *mix, int from, int to, int64_t layers)
{
    mix->layers[from] -= layers;
    mix->layers[to] += layers;
    if (mix->layers[from] == 0) remove_range(mix, from);
}

/* Whether layers with set `a` come before those with `b`. */
static bool is_earlier(const struct ebb_sets *sets, int a, int b)
{
    const struct ebb_set *x = &sets->at[a], *y = &sets->at[b];
    if (x->device != y->device) return x->device < y->device;
    if (x->host != y->host) return x->host > y->host;
    return a < b;
}

/* Adds layers with a set, in its place among the ranges; there is room for a range more. */
static void add_range(const struct ebb_sets *sets, struct ebb_mix *mix, int set, int64_t layers)
{
    int at = 0;
    while (at < mix->ranges && mix->set[at] != set && is_earlier(sets, mix->set[at], set)) at++;
    if (at < mix->ranges && mix->set[at] == set) {
        mix->layers[at] += layers;
        return;
    }
    for (int i = mix->ranges; i > at; i--) {
        mix->set[i] = mix->set[i - 1];
        mix->layers[i] = mix->layers[i - 1];
    }
    mix->set[at] = set;
    mix->layers[at] = layers;
    mix->ranges++;
}

void ebb_mix_give(const struct ebb_sets *sets, struct ebb_mix *mix, int from, int set,
                  int64_t layers)
{
    mix->layers[from] -= layers;
    if (mix->layers[from] == 0) remove_range(mix, from);
    add_range(sets, mix, set, layers);
}

void ebb_mix_apply(const struct ebb_sets *sets, const struct ebb_mix *mix, int slots,
                   struct ebb_policies *policies)
{
    int64_t layer = 0;
    for (int i = 0; i < mix->ranges; i++) {
        const struct ebb_set *set = &sets->at[mix->set[i]];
        for (int64_t k = 0; k < mix->layers[i]; k++, layer++) {
            memcpy(policies->at[layer], set->policy, (size_t)slots);
            if (k % set->every != 0) policies->at[layer][0] = EBB_POLICY_RECOMPUTE;
        }
    }
}

/* ---- the best of them ---- */

struct finder {
    const struct ebb_mix_costs *costs;
    const struct ebb_sets *sets;
    struct ebb_mixes *best;
};

static void offer(struct ebb_mixes *best, const struct ebb_mix *mix)
{
    int at = best->count;
    while (at > 0 && mix->seconds < best->at[at - 1].seconds) at--;
    if (at == EBB_MIX_BEST) return;
    for (int i = 0; i < best->count; i++)
        if (ebb_mix_same(&best->at[i], mix)) return;
    int moved = best->count < EBB_MIX_BEST ? best->count++ : EBB_MIX_BEST - 1;
    for (int i = moved; i > at; i--) best->at[i] = best->at[i - 1];
    best->at[at] = *mix;
}

/* What of a budget is left; HUGE_VAL of no budget, also beside a set whose room is not known. */
static double left_of(double budget, double bytes)
{
    return budget == HUGE_VAL ? HUGE_VAL : budget - bytes;
}

/* Narrows [*low, *high] to the counts for which slack - count * each >= 0. */
static void limit(double slack, double each, double *low, double *high)
{
    if (each > 0) *high = fmin(*high, floor(slack / each));
    if (each < 0) *low = fmax(*low, ceil(slack / each));
    if (each == 0 && slack < 0) *high = -1;
}

/* All layers with set `early` but the last ones, as many as fit or as must, with set `late`. */
static void offer_pair(const struct finder *f, int early, int late)
{
    const struct ebb_mix_costs *costs = f->costs;
    const struct ebb_set *x = &f->sets->at[early], *y = &f->sets->at[late];
    double layers = (double)costs->layers, low = 1, high = layers - 1;
    struct ebb_mix mix = {.ranges = 2, .set = {early, late}, .layers = {costs->layers, 0}};
    limit(left_of(costs->device_budget, device_at_top(costs, f->sets, &mix)), y->device - x->device,
          &low, &high);
    limit(left_of(costs->host_budget, ebb_mix_host(costs, f->sets, &mix)), y->host - x->host, &low,
          &high);
    /* The early layers have the device for themselves, when their turn comes. */
    limit(left_of(costs->device_budget, costs->device + costs->room[early] + layers * x->device),
          -x->device, &low, &high);
    if (!(low <= high)) return;
    double count = y->seconds < x->seconds ? high : low;
    mix.layers[1] = (int64_t)count;
    mix.layers[0] -= mix.layers[1];
    mix.seconds = ebb_mix_seconds(costs, f->sets, &mix);
    offer(f->best, &mix);
}

static void offer_uniform(const struct finder *f, int set)
{
    struct ebb_mix mix = {.ranges = 1, .set = {set}, .layers = {f->costs->layers}};
    if (!fits(f->costs, f->sets, &mix)) return;
    mix.seconds = ebb_mix_seconds(f->costs, f->sets, &mix);
    offer(f->best, &mix);
}

/* Gives as many layers of range `from` as fit set `set` instead. False: that gains nothing. */
static bool swap(const struct finder *f, const struct ebb_mix *mix, int from, int set,
                 struct ebb_mix *other)
{
    const struct ebb_mix_costs *costs = f->costs;
    const struct ebb_set *x = &f->sets->at[mix->set[from]], *y = &f->sets->at[set];
    double low = 1, high = (double)mix->layers[from];
    if (y->seconds >= x->seconds) return false;
    *other = *mix;
    if (mix->ranges < EBB_MIX_RANGES) add_range(f->sets, other, set, 0);
    limit(left_of(costs->device_budget, device_at_top(costs, f->sets, other)),
          y->device - x->device, &low, &high);
    limit(left_of(costs->host_budget, ebb_mix_host(costs, f->sets, other)), y->host - x->host, &low,
          &high);
    if (!(low <= high)) return false;
    int64_t count = (int64_t)high;
    int ranges = mix->layers[from] == count ? mix->ranges - 1 : mix->ranges;
    bool there = false;
    for (int i = 0; i < mix->ranges; i++) there = there || mix->set[i] == set;
    if (!there && ranges == EBB_MIX_RANGES) return false;
    *other = *mix;
    ebb_mix_give(f->sets, other, from, set, count);
    other->seconds = ebb_mix_seconds(costs, f->sets, other);
    return fits(costs, f->sets, other);
}

/* Takes the swap that gains most, as long as one gains. */
static void improve(const struct finder *f, const int *useful, int count, struct ebb_mix *mix)
{
    struct ebb_mix best = *mix, other;
    do {
        *mix = best;
        for (int i = 0; i < count; i++)
            for (int from = 0; from < mix->ranges; from++)
                if (swap(f, mix, from, useful[i], &other) && other.seconds < best.seconds)
                    best = other;
    } while (best.seconds < mix->seconds);
}

void ebb_mixes_find(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                    struct ebb_mixes *best)
{
    const struct finder f = {costs, sets, best};
    struct ebb_mixes pairs;
    int useful[EBB_MIX_SETS], count = list_useful(costs, sets, useful);
    best->count = 0;
    for (int i = 0; i < count; i++) {
        offer_uniform(&f, useful[i]);
        for (int j = 0; j < count; j++)
            if (is_earlier(sets, useful[i], useful[j])) offer_pair(&f, useful[i], useful[j]);
    }
    pairs = *best;
    for (int i = 0; i < pairs.count; i++) {
        improve(&f, useful, count, &pairs.at[i]);
        offer(best, &pairs.at[i]);
    }
}
