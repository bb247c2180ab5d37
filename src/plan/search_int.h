/* The search for policies: what plan.c (programs), search.c (trials) and search_mix.c (estimates)
 * share.
 *
 * A *set* is what becomes of the slots of a layer. A *mix* is up to four contiguous ranges of
 * layers with a set each, the earlier ones with less device memory: what a late layer keeps stands
 * for a shorter time, and what it moves has less time to come back.
 *
 * Memory and time of a mix are nearly sums over its layers. So:
 *   1. everything stays: written, laid out and forecast. If it fits, that is the plan.
 *   2. each slot made again in all layers: what that costs a layer (one writing a slot).
 *   3. from these, the time and the bytes of every mix are *estimated*; the best that fits by
 *      estimate is *tried*: written, laid out, its ranges shifted until it fits exactly and no
 *      layer more would, ordered and forecast. What the trial tells of bytes and stalls corrects
 *      the estimates.
 *   4. 3 is repeated until no mix that was not tried is better by estimate than the best of those
 *      that were by forecast, or so much has been written that looking on is not worth it.
 *   5. 3 and 4 are done with slots that come in early, then, where anything moves, with slots that
 *      come in late (plan/build.h).
 *   6. if none fits, the ladder's steps are written one by one, and mixes of them are tried; if no
 *      step fits, the smallest of them is the plan.
 * How much is counted in entries of programs, not in time: the same request always gets the same
 * plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_SEARCH_INT_H
#define EBB_SEARCH_INT_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plan.c ---- */

/* The best plan with these units away, [net->unit_count], whose runs take `micros` micro-batches.
 * The caller frees. */
enum ebb_status ebb_plan_make(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                              const uint8_t *away, int32_t micros, struct ebb_plan **plan);
/* Device memory that any such plan takes: its persistent tensors. */
enum ebb_status ebb_plan_least_bytes(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                                     const uint8_t *away, int32_t micros, int64_t *bytes);
/* Writes and lays out TRAIN for the policies that the plan holds; sizes and `fits` follow. The
 * plan's other programs are there. */
enum ebb_status ebb_plan_write(struct ebb_ctx *ctx, struct ebb_plan *plan,
                               enum ebb_prefetch prefetch);
/* The same, but where TRAIN shows to need more than `limit` it is not laid out (program.h), and
 * sizes are what they are at least. */
enum ebb_status ebb_plan_write_within(struct ebb_ctx *ctx, struct ebb_plan *plan,
                                      enum ebb_prefetch prefetch, int64_t limit);
/* Whether backward of the plan as written brings anything in: a slot whose home is the host, or the
 * first layer's input again where that comes from there. */
bool ebb_plan_moves_in(const struct ebb_plan *plan);

/* ---- search.c ---- */

/* Puts the best policies into the plan, with TRAIN written and ordered for them, and the forecast;
 * the smallest of the ladder where none fits. *found false: there are no rates, they do not say
 * what something costs that the keys allow, or the keys leave nothing to search: the ladder
 * decides. */
enum ebb_status ebb_plan_search(struct ebb_ctx *ctx, struct ebb_plan *plan, bool *found);
/* The forecast of an ordered plan that the ladder chose; not known without rates. */
enum ebb_status ebb_plan_forecast(struct ebb_ctx *ctx, struct ebb_plan *plan);

/* ---- search_mix.c ---- */

enum { EBB_MIX_RANGES = 4, EBB_MIX_SETS = 648, EBB_MIX_BEST = 64 };

struct ebb_set {
    uint8_t policy[EBB_SLOTS];
    int64_t every; /* slot 0 has its policy on every k-th layer of a range, and is made again on the
                      others */
    double seconds;      /* of a layer, beyond one that keeps everything */
    double device, host; /* saved bytes of a layer */
};

/* What of a layer moves, as far as its stalls are alike. */
enum {
    EBB_MOVES_ANY = 1,
    EBB_MOVES_INPUT = 2,     /* slot 0, which backward wants first */
    EBB_MOVES_ATTENTION = 4, /* attention's output */
    EBB_MOVES_TILES = 8,     /* a slot that moves tile by tile */
    /* Backward of the tiled half begins with making its first slot again, from what moves. */
    EBB_MOVES_NEEDED = 16,
    EBB_MOVES_HALF = 32, /* of what moves tile by tile, only every second tile */
    EBB_MOVES_KINDS = 64
};

struct ebb_mix {
    int ranges;
    int set[EBB_MIX_RANGES];
    int64_t layers[EBB_MIX_RANGES]; /* each at least 1 */
    double seconds;                 /* of a step, by estimate */
};

/* What estimates are made from. Seconds are of a step, for one layer. */
struct ebb_mix_costs {
    const struct ebb_net *net;
    int64_t layers;
    double keep_seconds;     /* of the step in which everything stays */
    double again[EBB_SLOTS]; /* making a slot again; slot 0: the second half of the layer
                                below, whose other slots are there */
    double bytes[EBB_SLOTS]; /* of a slot */
    double out[EBB_SLOTS], in[EBB_SLOTS]; /* moving it */
    double forward;                       /* of a layer that keeps everything */
    /* Its halves that run tile by tile, with what lies between attention and the output; and what
     * follows attention in backward. */
    double forward_tiles, backward_tiles, backward_lead, backward_attention;
    bool early; /* IN is asked before attention in backward, not behind it */
    double tiles;
    int attention; /* the slot of its output: the last that is not tiled, the tiled ones follow */
    double device, host; /* bytes beside the saved slots */
    double host_input;   /* learned: host bytes more where the first layer's input moves, which may
                            have a home already */
    double device_budget, host_budget; /* for all bytes; HUGE_VAL: none */
    /* Learned: seconds that a layer waits for its moves beyond what is estimated, by
     * ebb_set_moves. */
    double late[EBB_MOVES_KINDS];
    /* Device bytes beyond `device` while backward is in layers with a set, by index: guessed from
     * single slots at first, then learned. Layers behind those have left by then. */
    double room[EBB_MIX_SETS];
};

struct ebb_sets {
    struct ebb_set at[EBB_MIX_SETS];
    int count;
};

/* All sets that the keys allow. */
void ebb_sets_list(const struct ebb_net *net, const struct ebb_memory_keys *keys,
                   struct ebb_sets *sets);
/* Each set's seconds and bytes, from the costs. */
void ebb_sets_estimate(const struct ebb_mix_costs *costs, struct ebb_sets *sets);

/* Device bytes at most, and the range in whose layers backward is then. */
int ebb_mix_peak(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                 const struct ebb_mix *mix, double *bytes);
double ebb_mix_host(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                    const struct ebb_mix *mix);
double ebb_mix_seconds(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                       const struct ebb_mix *mix);
/* EBB_MOVES_...; 0: nothing moves. */
unsigned ebb_set_moves(const struct ebb_mix_costs *costs, const struct ebb_set *set);
bool ebb_mix_same(const struct ebb_mix *a, const struct ebb_mix *b);
/* Moves layers from range `from` to range `to`; ranges that end empty go. */
void ebb_mix_shift(struct ebb_mix *mix, int from, int to, int64_t layers);
/* Gives layers of range `from` another set, in a range of its own or of that set; there are fewer
 * ranges than EBB_MIX_RANGES, or one has the set. */
void ebb_mix_give(const struct ebb_sets *sets, struct ebb_mix *mix, int from, int set,
                  int64_t layers);
/* The policies of all layers. */
void ebb_mix_apply(const struct ebb_sets *sets, const struct ebb_mix *mix, int slots,
                   struct ebb_policies *policies);

/* The mixes that take the least time by estimate among those that fit by estimate, best first. */
struct ebb_mixes {
    struct ebb_mix at[EBB_MIX_BEST];
    int count;
};
void ebb_mixes_find(const struct ebb_mix_costs *costs, const struct ebb_sets *sets,
                    struct ebb_mixes *best);

#ifdef __cplusplus
}
#endif
#endif
