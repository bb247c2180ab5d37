/* The search: what slots cost, trials of mixes, and what trials teach (plan/search_int.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "plan/search_int.h"

/* Entries that may be written, and trials that are made however long programs are. */
static const int64_t entries_at_most = 130000;
enum { TRIALS_AT_LEAST = 4, TRIALS_AT_MOST = 48, SHIFTS_AT_MOST = 8, FEW_LAYERS = 4 };
enum { LADDER_STEPS_AT_MOST = 16 };
/* A trial marks the mix that it begins with and each that it writes. Trials are of two moments, and
 * there are two more: that with which the second begins, and that without moves ahead of need. Or
 * there are the ladder's. */
enum { TRIED_AT_MOST = (2 * TRIALS_AT_MOST + 2) * (SHIFTS_AT_MOST + 1) };
/* Looking on ends where no estimate promises more than this share of a step. */
static const double worth_a_trial = 2e-4;

struct trial {
    struct ebb_mix mix;
    enum ebb_prefetch prefetch;
};

struct searcher {
    struct ebb_ctx *ctx;
    struct ebb_plan *plan;
    const struct ebb_net *net;
    const struct ebb_forecast_load *load;
    struct ebb_mix_costs costs;
    struct ebb_sets sets;
    bool known[EBB_MIX_SETS];   /* costs.room was measured */
    double guess[EBB_MIX_SETS]; /* of rooms, before any trial */
    enum ebb_prefetch prefetch; /* of the trials that are made now */
    int64_t entries;            /* written so far */
    struct trial tried[TRIED_AT_MOST];
    int tried_count;
    struct trial best, written;
    bool found;
    bool best_stands;              /* the best is what is written, and ordered */
    struct ebb_forecast forecast;  /* of the best */
    struct ebb_forecast unlimited; /* of the plan in which everything stays on the device */
};

/* ---- the load ---- */

/* A load at capacity in documents of the greatest length; `starts` are the caller's to free. */
static enum ebb_status load_at_capacity(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                                        struct ebb_forecast_load *load, int32_t **starts)
{
    const struct ebb_capacity *capacity = &request->capacity;
    int64_t length = capacity->doc_tokens > 0 ? capacity->doc_tokens : capacity->tokens;
    int64_t docs = (capacity->tokens + length - 1) / length;
    if (docs > capacity->docs) docs = capacity->docs;
    *starts = (int32_t *)ebb_mem_alloc(ctx, (size_t)(docs + 1) * sizeof **starts);
    if (!*starts) return EBB_NO_MEMORY;
    for (int64_t d = 0; d <= docs; d++)
        (*starts)[d] = (int32_t)(d * length < capacity->tokens ? d * length : capacity->tokens);
    load->micro_batches = request->accumulation > 0 ? request->accumulation : 1;
    load->docs = docs;
    load->doc_starts = *starts;
    load->labels = (*starts)[docs];
    return EBB_OK;
}

static int64_t live_tokens(const struct searcher *s)
{
    int64_t tokens = s->load->doc_starts[s->load->docs],
            capacity = s->plan->request.capacity.tokens;
    return tokens < capacity ? tokens : capacity;
}

/* ---- writing ---- */

/* Counts what writing took. */
static enum ebb_status write_plan(struct searcher *s, int64_t limit)
{
    EBB_TRY(ebb_plan_write_within(s->ctx, s->plan, s->prefetch, limit));
    s->entries += ebb_program_entries(s->plan->programs[EBB_PROGRAM_TRAIN]);
    return EBB_OK;
}

/* Writes TRAIN for a mix, and lays it out unless it needs more than `limit`. */
static enum ebb_status write_mix(struct searcher *s, const struct ebb_mix *mix, int64_t limit)
{
    ebb_mix_apply(&s->sets, mix, s->net->slot_count, &s->plan->policies);
    EBB_TRY(write_plan(s, limit));
    s->written = (struct trial){*mix, s->prefetch};
    s->best_stands = false;
    return EBB_OK;
}

/* Above it no plan fits. */
static int64_t device_limit(const struct searcher *s)
{
    const struct ebb_plan_request *request = &s->plan->request;
    return request->device_budget > 0 ? request->device_budget - request->overhead_bytes
                                      : INT64_MAX;
}

static double train_bytes(const struct searcher *s)
{
    return (double)s->plan->train_bytes;
}

/* What the plan as written says of the room that a set takes: of the range in whose layers most is
 * alive, or where that range's is known and too little, of one whose is not. And of host memory. */
static void learn_bytes(struct searcher *s, const struct ebb_mix *mix)
{
    double estimate, exact = train_bytes(s), saved = 0;
    int at = ebb_mix_peak(&s->costs, &s->sets, mix, &estimate);
    for (int i = mix->ranges - 1; exact > estimate && s->known[mix->set[at]] && i >= 0; i--)
        if (!s->known[mix->set[i]]) at = i;
    for (int i = 0; i <= at; i++) saved += (double)mix->layers[i] * s->sets.at[mix->set[i]].device;
    s->costs.room[mix->set[at]] = exact - s->costs.device - saved;
    s->known[mix->set[at]] = true;
    if (s->sets.at[mix->set[0]].policy[0] == EBB_POLICY_HOST)
        s->costs.host_input += (double)s->plan->host_bytes - ebb_mix_host(&s->costs, &s->sets, mix);
}

static enum ebb_status forecast(struct searcher *s, struct ebb_forecast *out)
{
    return ebb_forecast_step(s->ctx, s->plan, s->plan->request.rates, s->load, out);
}

/* ---- what slots cost ---- */

static int find_set(const struct searcher *s, const struct ebb_set *wanted)
{
    for (int i = 0; i < s->sets.count; i++)
        if (s->sets.at[i].every == wanted->every &&
            memcmp(s->sets.at[i].policy, wanted->policy, sizeof wanted->policy) == 0)
            return i;
    return -1;
}

static double move_seconds(const struct searcher *s, enum ebb_cost_class which, int slot)
{
    const struct ebb_cost *cost = &s->plan->request.rates->costs[which];
    return (double)s->load->micro_batches *
           (s->costs.tiles * cost->call +
            (double)(live_tokens(s) * s->net->slots[slot].bytes_per_token) * cost->byte);
}

static void set_sizes(struct searcher *s)
{
    const struct ebb_plan_request *request = &s->plan->request;
    int64_t tile = request->numerics.tile_tokens;
    double saved = 0;
    s->costs.tiles = (double)((live_tokens(s) + tile - 1) / tile);
    for (int slot = 0; slot < s->net->slot_count; slot++) {
        if (!s->net->slots[slot].tiled) s->costs.attention = slot;
        s->costs.bytes[slot] = (double)(s->plan->micros * request->capacity.tokens *
                                        s->net->slots[slot].bytes_per_token);
        saved += s->costs.bytes[slot];
        s->costs.out[slot] = move_seconds(s, EBB_COST_COPY_OUT, slot);
        s->costs.in[slot] = move_seconds(s, EBB_COST_COPY_IN, slot);
    }
    s->costs.device = train_bytes(s) - (double)s->costs.layers * saved;
    s->costs.host = (double)s->plan->host_bytes;
    s->costs.device_budget = request->device_budget > 0
                                 ? (double)(request->device_budget - request->overhead_bytes)
                                 : HUGE_VAL;
    s->costs.host_budget = request->host_budget > 0 ? (double)request->host_budget : HUGE_VAL;
}

/* Writes the plan that makes one slot again (slot 0: on every second layer) and keeps the others:
 * seconds a layer, and bytes beside the saved slots. *known: rates say what that takes. */
static enum ebb_status measure_slot(struct searcher *s, int slot, double keep_seconds, double *room,
                                    bool *known)
{
    struct ebb_forecast f;
    double layers = (double)(slot == 0 ? s->costs.layers / 2 : s->costs.layers), saved = 0;
    *room = 0;
    if (layers < 1) return EBB_OK;
    for (int64_t layer = 0; layer < s->costs.layers; layer++) {
        memset(s->plan->policies.at[layer], EBB_POLICY_KEEP, (size_t)s->net->slot_count);
        if (slot > 0 || layer % 2 == 1) s->plan->policies.at[layer][slot] = EBB_POLICY_RECOMPUTE;
    }
    EBB_TRY(write_plan(s, 0));
    EBB_TRY(forecast(s, &f));
    *known = f.known;
    s->costs.again[slot] = fmax(0, f.seconds - keep_seconds) / layers;
    for (int i = 0; i < s->net->slot_count; i++)
        saved += s->costs.bytes[i] * ((double)s->costs.layers - (i == slot ? layers : 0));
    *room = train_bytes(s) - s->costs.device - saved;
    return EBB_OK;
}

/* Sets take at least the room that their slots take one by one. */
static void guess_rooms(struct searcher *s, const double room[EBB_SLOTS])
{
    for (int i = 0; i < s->sets.count; i++) {
        const struct ebb_set *set = &s->sets.at[i];
        double most = 0;
        for (int slot = 0; slot < s->net->slot_count; slot++)
            if (set->policy[slot] != EBB_POLICY_KEEP || (slot == 0 && set->every > 1))
                most = fmax(most, room[slot]);
        s->guess[i] = most;
    }
}

/* The phases of a layer that keeps everything. What backward takes beside attention is divided as
 * forward's is. */
static void set_phases(struct searcher *s)
{
    const struct ebb_part_time *parts = s->unlimited.parts;
    struct ebb_mix_costs *costs = &s->costs;
    double attention = parts[EBB_PART_ATTENTION_FORWARD].seconds / (double)costs->layers;
    double layer = (parts[EBB_PART_MATMUL].seconds + parts[EBB_PART_MEMORY].seconds +
                    parts[EBB_PART_GAP].seconds) /
                   (double)costs->layers;
    costs->forward_tiles = costs->again[0];
    for (int slot = 0; slot < s->net->slot_count; slot++) {
        costs->forward += costs->again[slot];
        if (s->net->slots[slot].tiled) costs->forward_tiles += costs->again[slot];
    }
    double products = fmax(costs->forward - attention, costs->forward_tiles),
           backward = fmax(0, layer - products),
           share = products > 0 ? costs->forward_tiles / products : 0;
    costs->backward_tiles = share * backward;
    costs->backward_lead = (1 - share) * backward;
    costs->backward_attention = parts[EBB_PART_ATTENTION_BACKWARD].seconds / (double)costs->layers;
}

/* The programs in which everything stays are written. *known false: rates do not say what making
 * the slots again takes. */
static enum ebb_status measure_slots(struct searcher *s, double keep_seconds, bool *known)
{
    double room[EBB_SLOTS] = {0};
    *known = true;
    set_sizes(s);
    for (int slot = 0; slot < s->net->slot_count && *known; slot++)
        EBB_TRY(measure_slot(s, slot, keep_seconds, &room[slot], known));
    if (!*known) return EBB_OK;
    set_phases(s);
    guess_rooms(s, room);
    return EBB_OK;
}

/* ---- trials ---- */

static bool was_tried(const struct searcher *s, const struct ebb_mix *mix)
{
    for (int i = 0; i < s->tried_count; i++)
        if (s->tried[i].prefetch == s->prefetch && ebb_mix_same(&s->tried[i].mix, mix)) return true;
    return false;
}

static void mark_tried(struct searcher *s, const struct ebb_mix *mix)
{
    if (was_tried(s, mix)) return;
    EBB_ASSERT(s->tried_count < TRIED_AT_MOST);
    s->tried[s->tried_count++] = (struct trial){*mix, s->prefetch};
}

static int64_t layers_for(double bytes, double each, int64_t at_most)
{
    double layers = ceil(bytes / each);
    return layers < (double)at_most ? (int64_t)layers : at_most;
}

/* Shifts layers down to ranges with less device memory, by what is too much. */
static bool shrink_device(const struct searcher *s, struct ebb_mix *mix)
{
    double over = (double)(s->plan->total_bytes - s->plan->request.device_budget);
    for (int i = mix->ranges - 1; i > 0; i--) {
        double each = s->sets.at[mix->set[i]].device - s->sets.at[mix->set[i - 1]].device;
        if (each <= 0) continue;
        ebb_mix_shift(mix, i, i - 1, layers_for(over, each, mix->layers[i]));
        return true;
    }
    return false;
}

/* The set that moves one slot less than another, the last that it moves, and makes it again; -1:
 * keys do not allow it, or nothing moves. */
static int moving_less(const struct searcher *s, int set)
{
    struct ebb_set less = s->sets.at[set];
    int slot = s->net->slot_count - 1;
    while (slot > 0 && !ebb_policy_moves((enum ebb_policy)less.policy[slot])) slot--;
    less.policy[slot] = EBB_POLICY_RECOMPUTE;
    return slot > 0 ? find_set(s, &less) : -1;
}

/* Shifts layers to a neighbour with less in host memory, down, or up where the device has room.
 * Where there is none, layers of the range with the most in host memory move a slot less. */
static bool shrink_host(const struct searcher *s, struct ebb_mix *mix)
{
    const struct ebb_plan_request *request = &s->plan->request;
    const struct ebb_set *sets = s->sets.at;
    double over = (double)(s->plan->host_bytes - request->host_budget),
           room = request->device_budget > 0
                      ? (double)(request->device_budget - s->plan->total_bytes)
                      : HUGE_VAL;
    int most = 0;
    for (int i = 0; i < mix->ranges; i++)
        if (sets[mix->set[i]].host > sets[mix->set[most]].host) most = i;
    for (int i = 0; i + 1 < mix->ranges; i++)
        for (int k = 0; k < 2; k++) { /* down, then up */
            int from = k == 0 ? i + 1 : i, to = k == 0 ? i : i + 1;
            double each = sets[mix->set[from]].host - sets[mix->set[to]].host;
            if (each <= 0) continue;
            int64_t layers = layers_for(over, each, mix->layers[from]);
            double more = sets[mix->set[to]].device - sets[mix->set[from]].device;
            if ((double)layers * more > room) continue;
            ebb_mix_shift(mix, from, to, layers);
            return true;
        }
    int less = moving_less(s, mix->set[most]);
    if (less < 0 || mix->ranges == EBB_MIX_RANGES) return false;
    double each = sets[mix->set[most]].host - sets[less].host;
    if (each <= 0) return false;
    ebb_mix_give(&s->sets, mix, most, less, layers_for(over, each, mix->layers[most]));
    return true;
}

/* Shifts layers to ranges with less memory, by what is too much. False: there are none. */
static bool shrink(const struct searcher *s, struct ebb_mix *mix)
{
    const struct ebb_plan_request *request = &s->plan->request;
    if (request->device_budget > 0 && s->plan->total_bytes > request->device_budget)
        return shrink_device(s, mix);
    return request->host_budget > 0 && shrink_host(s, mix);
}

/* Shifts layers to the last range, as many as what is left has room for. False: none. */
static bool grow(const struct searcher *s, struct ebb_mix *mix)
{
    const struct ebb_plan_request *request = &s->plan->request;
    int last = mix->ranges - 1;
    if (last == 0 || request->device_budget == 0) return false;
    const struct ebb_set *late = &s->sets.at[mix->set[last]],
                         *early = &s->sets.at[mix->set[last - 1]];
    double slack = (double)(request->device_budget - s->plan->total_bytes),
           each = late->device - early->device;
    if (each <= 0 || slack < each || late->seconds >= early->seconds || late->host > early->host)
        return false;
    int64_t layers = (int64_t)floor(slack / each);
    if (layers > mix->layers[last - 1]) layers = mix->layers[last - 1];
    ebb_mix_shift(mix, last - 1, last, layers);
    return true;
}

/* Writes a mix, shifting layers until it fits and no more do. Then it is what is written. */
static enum ebb_status settle(struct searcher *s, struct ebb_mix *mix, bool *fits)
{
    struct ebb_mix next = *mix;
    *fits = false;
    for (int i = 0; i < SHIFTS_AT_MOST; i++) {
        EBB_TRY(write_mix(s, &next, device_limit(s)));
        learn_bytes(s, &next);
        mark_tried(s, &next);
        if (s->plan->fits) {
            *fits = true;
            *mix = next;
            if (!grow(s, &next) || was_tried(s, &next)) return EBB_OK;
        } else if (*fits || !shrink(s, &next) || was_tried(s, &next)) {
            break;
        }
    }
    return *fits && !ebb_mix_same(&s->written.mix, mix) ? write_mix(s, mix, INT64_MAX) : EBB_OK;
}

/* Seconds beyond the estimate are stalls. Whose, a trial does not tell: they are put down to the
 * moves that most layers make, so that estimates of others stay low enough to be tried. */
static void learn_stall(struct searcher *s, const struct ebb_mix *mix, double seconds)
{
    double more = seconds - ebb_mix_seconds(&s->costs, &s->sets, mix);
    int64_t layers[EBB_MOVES_KINDS] = {0};
    unsigned most = 0;
    for (int i = 0; i < mix->ranges; i++) {
        unsigned moves = ebb_set_moves(&s->costs, &s->sets.at[mix->set[i]]);
        layers[moves] += mix->layers[i];
        if (moves != 0 && (most == 0 || layers[moves] > layers[most])) most = moves;
    }
    if (most != 0) s->costs.late[most] += more / (double)layers[most];
}

static enum ebb_status try_mix(struct searcher *s, struct ebb_mix mix)
{
    struct ebb_forecast f;
    bool fits;
    mark_tried(s, &mix);
    EBB_TRY(settle(s, &mix, &fits));
    if (!fits) return EBB_OK;
    EBB_TRY(ebb_program_order(s->plan->programs[EBB_PROGRAM_TRAIN]));
    s->entries += ebb_program_entries(s->plan->programs[EBB_PROGRAM_TRAIN]);
    EBB_TRY(forecast(s, &f));
    if (!f.known) return EBB_OK; /* 0 s is no time that it takes */
    learn_stall(s, &mix, f.seconds);
    if (s->found && f.seconds >= s->forecast.seconds) return EBB_OK;
    s->found = s->best_stands = true;
    s->best = (struct trial){mix, s->prefetch};
    s->forecast = f;
    return EBB_OK;
}

/* The best by estimate of those that were not tried; NULL: none. */
static const struct ebb_mix *next_mix(const struct searcher *s, const struct ebb_mixes *mixes)
{
    for (int i = 0; i < mixes->count; i++)
        if (!was_tried(s, &mixes->at[i])) return &mixes->at[i];
    return NULL;
}

/* Tries mixes, the best by estimate first. */
static enum ebb_status try_mixes(struct searcher *s)
{
    struct ebb_mixes mixes;
    for (int i = 0; i < TRIALS_AT_MOST; i++) {
        if (i >= TRIALS_AT_LEAST && s->entries > entries_at_most) break;
        ebb_sets_estimate(&s->costs, &s->sets);
        ebb_mixes_find(&s->costs, &s->sets, &mixes);
        const struct ebb_mix *mix = next_mix(s, &mixes);
        if (!mix) break;
        if (s->found && mix->seconds > (1 - worth_a_trial) * s->forecast.seconds) break;
        EBB_TRY(try_mix(s, *mix));
    }
    return EBB_OK;
}

/* Layers of the best in which anything moves. */
static int64_t moving_layers(const struct searcher *s)
{
    int64_t moving = 0;
    for (int i = 0; i < s->best.mix.ranges; i++)
        if (ebb_set_moves(&s->costs, &s->sets.at[s->best.mix.set[i]]) != 0)
            moving += s->best.mix.layers[i];
    return moving;
}

/* Tries mixes whose slots come in at one moment, the best of another moment first. What trials
 * taught of rooms and stalls is of one moment, too. */
static enum ebb_status try_moment(struct searcher *s, enum ebb_prefetch prefetch)
{
    s->prefetch = prefetch;
    s->costs.early = prefetch == EBB_PREFETCH_EARLY;
    memset(s->costs.late, 0, sizeof s->costs.late);
    memset(s->known, 0, sizeof s->known);
    memcpy(s->costs.room, s->guess, sizeof s->guess);
    if (s->found) EBB_TRY(try_mix(s, s->best.mix));
    return try_mixes(s);
}

/* The later slots come in, the more room there is. Without moves ahead of need there is most: where
 * so few layers move, waiting for them may cost less than the room is worth. */
static enum ebb_status try_moments(struct searcher *s)
{
    if (s->plan->request.one_buffer) return try_moment(s, EBB_PREFETCH_NONE);
    EBB_TRY(try_moment(s, EBB_PREFETCH_EARLY));
    if (!s->found || moving_layers(s) > 0) EBB_TRY(try_moment(s, EBB_PREFETCH_LATE));
    if (!s->found || moving_layers(s) == 0 || moving_layers(s) > FEW_LAYERS) return EBB_OK;
    s->prefetch = EBB_PREFETCH_NONE;
    return try_mix(s, s->best.mix);
}

/* ---- where next to nothing fits ---- */

/* The ladder's steps as they were written: which set, and the room that it takes without moves
 * ahead of need and with them; NAN: not written so. */
struct ladder {
    int set[LADDER_STEPS_AT_MOST];
    double room[LADDER_STEPS_AT_MOST][EBB_PREFETCH_LATE + 1];
    int count;
    struct trial smallest;
    int64_t smallest_bytes;
};

/* The set of a step's table. */
static int set_of_step(const struct searcher *s, const struct ebb_policies *step)
{
    struct ebb_set set = {.every = 1};
    memcpy(set.policy, step->at[0], (size_t)s->net->slot_count);
    while (set.every < 4 && set.every < step->layers && step->at[set.every][0] != step->at[0][0])
        set.every *= 2;
    return find_set(s, &set);
}

/* Writes a step as the ladder does. *fits: it is what is written, with s->prefetch. */
static enum ebb_status write_step(struct searcher *s, struct ladder *ladder, int set, bool *fits)
{
    struct ebb_mix mix = {.ranges = 1, .set = {set}, .layers = {s->net->layers}};
    const int at = ladder->count++;
    ladder->set[at] = set;
    ladder->room[at][EBB_PREFETCH_NONE] = ladder->room[at][EBB_PREFETCH_LATE] = NAN;
    s->prefetch = s->plan->request.one_buffer ? EBB_PREFETCH_NONE : EBB_PREFETCH_LATE;
    for (;;) {
        EBB_TRY(write_mix(s, &mix, device_limit(s)));
        learn_bytes(s, &mix);
        ladder->room[at][s->prefetch] = s->costs.room[set];
        *fits = s->plan->fits;
        if (*fits || s->prefetch == EBB_PREFETCH_NONE || !ebb_plan_moves_in(s->plan)) break;
        s->prefetch = EBB_PREFETCH_NONE;
    }
    if (ladder->smallest_bytes == 0 || s->plan->device_bytes < ladder->smallest_bytes) {
        ladder->smallest_bytes = s->plan->device_bytes;
        ladder->smallest = s->written;
    }
    return EBB_OK;
}

/* Climbs to the first step that fits. */
static enum ebb_status climb(struct searcher *s, struct ladder *ladder, bool *fits)
{
    struct ebb_policies step;
    const char *what;
    bool last = false;
    enum ebb_status status = EBB_OK;
    EBB_TRY(ebb_policies_create(s->ctx, s->net->layers, 0, EBB_POLICY_KEEP, &step));
    for (int k = 0; status == EBB_OK && !last && !*fits; k++) {
        status = ebb_policies_ladder(s->ctx, s->net, &s->plan->request.memory, true, k, &step,
                                     &what, &last);
        int set = status == EBB_OK ? set_of_step(s, &step) : -1;
        if (set >= 0 && ladder->count < LADDER_STEPS_AT_MOST)
            status = write_step(s, ladder, set, fits);
    }
    ebb_policies_free(s->ctx, &step);
    return status;
}

/* No mix fitted that should have: guesses of rooms are not good enough here. The ladder's steps are
 * written up to one that fits, and then mixes of them are tried, whose rooms are known. If none
 * fits, the smallest of them is the plan. */
static enum ebb_status try_ladder(struct searcher *s)
{
    struct ladder ladder = {.count = 0};
    bool fits = false;
    EBB_TRY(climb(s, &ladder, &fits));
    if (ladder.count == 0) return EBB_OK;
    if (!fits) {
        s->found = true;
        s->best = ladder.smallest;
        return EBB_OK;
    }
    for (int i = 0; i < s->sets.count; i++) s->costs.room[i] = HUGE_VAL;
    for (int i = 0; i < ladder.count; i++)
        if (!isnan(ladder.room[i][s->prefetch]))
            s->costs.room[ladder.set[i]] = ladder.room[i][s->prefetch];
    memset(s->costs.late, 0, sizeof s->costs.late);
    s->costs.early = false;
    s->tried_count = 0;
    s->entries = 0;
    EBB_TRY(try_mix(s, s->written.mix));
    return try_mixes(s);
}

/* ---- in words ---- */

static enum ebb_status add_slots(const struct searcher *s, const struct ebb_set *set,
                                 enum ebb_policy policy, const char *verb, struct ebb_str *out)
{
    static const char *const shares[] = {"", "", " of every second layer", "",
                                         " of every fourth layer"};
    bool first = true;
    for (int slot = 0; slot < s->net->slot_count; slot++) {
        if (set->policy[slot] != policy) continue;
        EBB_TRY(ebb_str_addf(s->ctx, out, "%s%s%s", first ? verb : ", ", s->net->slots[slot].name,
                             slot == 0 ? shares[set->every] : ""));
        first = false;
    }
    return EBB_OK;
}

static enum ebb_status add_moved(const struct searcher *s, const struct ebb_set *set,
                                 struct ebb_str *out)
{
    const bool whole = memchr(set->policy, EBB_POLICY_HOST, (size_t)s->net->slot_count) != NULL;
    EBB_TRY(add_slots(s, set, EBB_POLICY_HOST, " host ", out));
    return add_slots(s, set, EBB_POLICY_HALF, whole ? ", half of " : " host half of ", out);
}

/* Whether the best makes anything again. */
static bool makes_again(const struct searcher *s)
{
    const struct ebb_mix *mix = &s->best.mix;
    for (int i = 0; i < mix->ranges; i++) {
        const struct ebb_set *set = &s->sets.at[mix->set[i]];
        if (set->every > 1 && mix->layers[i] > 1) return true;
        if (memchr(set->policy, EBB_POLICY_RECOMPUTE, (size_t)s->net->slot_count)) return true;
        if (memchr(set->policy, EBB_POLICY_HALF, (size_t)s->net->slot_count)) return true;
    }
    return false;
}

/* "layers 0-11: host x, o; layers 12-27: keep x, qkv, o, x2, gate_up; the rest is made again" */
static enum ebb_status describe(const struct searcher *s, struct ebb_str *out)
{
    const struct ebb_mix *mix = &s->best.mix;
    int64_t first = 0;
    for (int i = 0; i < mix->ranges; i++) {
        const struct ebb_set *set = &s->sets.at[mix->set[i]];
        int64_t last = first + mix->layers[i] - 1;
        if (mix->ranges == 1)
            EBB_TRY(ebb_str_addf(s->ctx, out, "every layer:"));
        else if (last == first)
            EBB_TRY(ebb_str_addf(s->ctx, out, "layer %lld:", (long long)first));
        else
            EBB_TRY(
                ebb_str_addf(s->ctx, out, "layers %lld-%lld:", (long long)first, (long long)last));
        EBB_TRY(add_moved(s, set, out));
        EBB_TRY(add_slots(s, set, EBB_POLICY_KEEP,
                          ebb_set_moves(&s->costs, set) != 0 ? ", keep " : " keep ", out));
        if (i + 1 < mix->ranges) EBB_TRY(ebb_str_addf(s->ctx, out, "; "));
        first = last + 1;
    }
    return makes_again(s) ? ebb_str_addf(s->ctx, out, "; the rest is made again") : EBB_OK;
}

static enum ebb_status put_words(struct searcher *s)
{
    struct ebb_str words = {0};
    enum ebb_status status = describe(s, &words);
    if (status == EBB_OK) snprintf(s->plan->words, sizeof s->plan->words, "%s", words.data);
    s->plan->what = s->plan->words;
    ebb_str_free(s->ctx, &words);
    return status;
}

/* A table that the ladder has too is called what it is there. */
static enum ebb_status name_choice(struct searcher *s)
{
    const struct ebb_memory_keys any = {.rule_count = 0};
    struct ebb_policies step;
    const char *what;
    bool last = false, same = false;
    enum ebb_status status = EBB_OK;
    EBB_TRY(put_words(s));
    EBB_TRY(ebb_policies_create(s->ctx, s->net->layers, 0, EBB_POLICY_KEEP, &step));
    for (int k = 0; status == EBB_OK && !last && !same; k++) {
        status = ebb_policies_ladder(s->ctx, s->net, &any, true, k, &step, &what, &last);
        same = status == EBB_OK;
        for (int64_t layer = 0; same && layer < step.layers; layer++)
            same = memcmp(step.at[layer], s->plan->policies.at[layer],
                          (size_t)s->net->slot_count) == 0;
        if (same) s->plan->what = what;
    }
    ebb_policies_free(s->ctx, &step);
    return status;
}

/* ---- all of it ---- */

/* Writes and forecasts the plan in which everything stays. */
static enum ebb_status forecast_unlimited(struct searcher *s, double *unordered)
{
    struct ebb_plan *plan = s->plan;
    struct ebb_forecast f;
    for (int64_t layer = 0; layer < s->net->layers; layer++)
        memset(plan->policies.at[layer], EBB_POLICY_KEEP, (size_t)s->net->slot_count);
    EBB_TRY(write_plan(s, INT64_MAX));
    EBB_TRY(forecast(s, &f));
    *unordered = f.seconds;
    EBB_TRY(ebb_program_order(plan->programs[EBB_PROGRAM_TRAIN]));
    return forecast(s, &s->unlimited);
}

/* Leaves the best in the plan, written and ordered. */
static enum ebb_status take_best(struct searcher *s)
{
    s->prefetch = s->best.prefetch;
    if (!s->best_stands) {
        EBB_TRY(write_mix(s, &s->best.mix, INT64_MAX));
        EBB_TRY(ebb_program_order(s->plan->programs[EBB_PROGRAM_TRAIN]));
        EBB_TRY(forecast(s, &s->forecast));
    }
    s->plan->forecast = s->forecast;
    s->plan->rung =
        s->forecast.known && s->forecast.seconds <= (1 + worth_a_trial) * s->unlimited.seconds ? 0
                                                                                               : 1;
    return name_choice(s);
}

/* Whether keys by hand leave a choice: not with rules, nor where both say what they want. */
static bool is_open(const struct ebb_memory_keys *keys)
{
    if (keys->rule_count > 0 || keys->gradient_checkpointing == EBB_FALSE) return false;
    return keys->gradient_checkpointing == EBB_AUTO || keys->activation_offloading == EBB_AUTO;
}

/* Whether rates say what moving costs, where something may move. */
static bool moves_are_known(const struct ebb_plan_request *request)
{
    const struct ebb_cost *costs = request->rates->costs;
    return request->memory.activation_offloading == EBB_FALSE ||
           (ebb_cost_known(&costs[EBB_COST_COPY_OUT]) && ebb_cost_known(&costs[EBB_COST_COPY_IN]));
}

static enum ebb_status search(struct searcher *s)
{
    const struct ebb_set keep = {.every = 1};
    struct ebb_plan *plan = s->plan;
    double keep_seconds;
    bool known;
    EBB_TRY(forecast_unlimited(s, &keep_seconds));
    if (!s->unlimited.known || !is_open(&plan->request.memory)) return EBB_OK;
    s->costs.net = s->net;
    s->costs.layers = s->net->layers;
    s->costs.keep_seconds = s->unlimited.seconds;
    ebb_sets_list(s->net, &plan->request.memory, &s->sets);
    if (plan->fits && find_set(s, &keep) >= 0) {
        s->found = true;
        plan->forecast = s->unlimited;
        plan->rung = 0;
        s->best.mix =
            (struct ebb_mix){.ranges = 1, .set = {find_set(s, &keep)}, .layers = {s->net->layers}};
        return name_choice(s);
    }
    if (!moves_are_known(&plan->request)) return EBB_OK;
    EBB_TRY(measure_slots(s, keep_seconds, &known));
    if (!known) return EBB_OK;
    EBB_TRY(try_moments(s));
    if (!s->found) EBB_TRY(try_ladder(s));
    return s->found ? take_best(s) : EBB_OK;
}

enum ebb_status ebb_plan_search(struct ebb_ctx *ctx, struct ebb_plan *plan, bool *found)
{
    const struct ebb_plan_request *request = &plan->request;
    struct ebb_forecast_load load;
    int32_t *starts = NULL;
    *found = false;
    if (!request->rates || !request->programs[EBB_PROGRAM_TRAIN] || request->net->layers < 1)
        return EBB_OK;
    struct searcher *s = (struct searcher *)ebb_mem_alloc(ctx, sizeof *s);
    if (!s) return EBB_NO_MEMORY;
    s->ctx = ctx;
    s->plan = plan;
    s->net = request->net;
    s->prefetch = request->one_buffer ? EBB_PREFETCH_NONE : EBB_PREFETCH_EARLY;
    s->load = request->load ? request->load : &load;
    enum ebb_status status = EBB_OK;
    if (!request->load) status = load_at_capacity(ctx, request, &load, &starts);
    if (status == EBB_OK) status = search(s);
    *found = status == EBB_OK && s->found;
    ebb_mem_free(ctx, starts);
    ebb_mem_free(ctx, s);
    return status;
}

enum ebb_status ebb_plan_forecast(struct ebb_ctx *ctx, struct ebb_plan *plan)
{
    const struct ebb_plan_request *request = &plan->request;
    struct ebb_forecast_load load;
    int32_t *starts = NULL;
    if (!request->rates || !request->programs[EBB_PROGRAM_TRAIN]) return EBB_OK;
    if (!request->load) EBB_TRY(load_at_capacity(ctx, request, &load, &starts));
    enum ebb_status status =
        ebb_forecast_step(ctx, plan, request->rates, request->load ? request->load : &load,
                          &plan->forecast);
    ebb_mem_free(ctx, starts);
    return status;
}
