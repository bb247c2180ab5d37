/* Policies: for each (layer, slot), whether it stays on the device, goes to the host and comes
 * back, or is made again; or, of a slot that backward reads tile by tile, half of it the one and
 * half the other: where the link is too slow for all of it, both work at once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_POLICY_H
#define EBB_POLICY_H

#include "plan/net.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_POLICY_LIST(X)                                                                         \
    X(KEEP, "keep")                                                                                \
    X(HOST, "host")                                                                                \
    X(RECOMPUTE, "recompute")                                                                      \
    X(HALF, "host_half") /* every second tile goes to the host, from the first on; tiled slots */

enum ebb_policy {
#define EBB_POLICY_ENUM(name, text) EBB_POLICY_##name,
    EBB_POLICY_LIST(EBB_POLICY_ENUM)
#undef EBB_POLICY_ENUM
        EBB_POLICY_COUNT
};
const char *ebb_policy_name(enum ebb_policy policy);
bool ebb_policy_parse(const char *text, enum ebb_policy *policy);
static inline bool ebb_policy_moves(enum ebb_policy policy)
{
    return policy == EBB_POLICY_HOST || policy == EBB_POLICY_HALF;
}
/* Where tiles move: every so many-th does, from the first on. */
static inline int64_t ebb_policy_every(enum ebb_policy policy)
{
    return policy == EBB_POLICY_HALF ? 2 : 1;
}
/* Of this many tiles, those that go to the host. */
static inline int64_t ebb_policy_moved(enum ebb_policy policy, int64_t tiles)
{
    const int64_t every = ebb_policy_every(policy);
    return ebb_policy_moves(policy) ? (tiles + every - 1) / every : 0;
}

/* The whole table, [layers][EBB_SLOTS], and which of the net's units are away; owned. {0} is
 * empty. */
struct ebb_policies {
    uint8_t (*at)[EBB_SLOTS];
    int64_t layers;
    uint8_t *away; /* [units] 1: in host memory */
    int32_t units;
};
/* Slots as `fill` says, no unit away. */
enum ebb_status ebb_policies_create(struct ebb_ctx *ctx, int64_t layers, int32_t units,
                                    enum ebb_policy fill, struct ebb_policies *policies);
void ebb_policies_free(struct ebb_ctx *ctx, struct ebb_policies *policies);
bool ebb_policies_away(const struct ebb_policies *policies, int32_t unit); /* -1: no */
/* Whether a parameter's gradient, moments and low halves are in host memory. */
bool ebb_policies_state_away(const struct ebb_policies *policies, const struct ebb_param *param);
/* Where programs find a parameter. */
struct ebb_view ebb_policies_param(const struct ebb_policies *policies,
                                   const struct ebb_param *param);

/* What a user sets by hand: policies of slots for a range of layers. Slots not named keep what
 * earlier rules gave them ("recompute" where none did, except x: "keep"). */
struct ebb_policy_rule {
    int64_t first, last; /* layers, both included; last < 0: to the end */
    int64_t every; /* x only: every k-th layer of the range gets it, the others recompute; 0 and 1:
                      all */
    int slot;      /* index into the net's slots */
    enum ebb_policy policy;
};

enum ebb_auto { EBB_AUTO, EBB_FALSE, EBB_TRUE };

/* The memory keys of the command line, as given. */
struct ebb_memory_keys {
    enum ebb_auto gradient_checkpointing;
    enum ebb_auto activation_offloading;
    const struct ebb_policy_rule *rules;             /* `activations:`; borrowed */
    int64_t rule_count;                              /* 0: none given */
    enum ebb_auto offload_params, offload_optimizer; /* true: every unit of the kind is away */
};

/* A ready-made table: step `k` of the ladder that `auto` climbs until the plan fits, cheapest in
 * time first. The last step is marked by *last. With keys that are not auto, the ladder has only
 * the steps that they allow (one, mostly). *what says in words what the step does (borrowed
 * constant). */
enum ebb_status ebb_policies_ladder(struct ebb_ctx *ctx, const struct ebb_net *net,
                                    const struct ebb_memory_keys *keys, bool host_allowed, int k,
                                    struct ebb_policies *policies, const char **what, bool *last);

#ifdef __cplusplus
}
#endif
#endif
