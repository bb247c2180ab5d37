/* Policies: names, tables, rules set by hand, and the ladder that `auto` climbs.
 *
 * The ladder is ordered by what each step costs in time: first what is made again cheaply
 * (gate_up: a norm and a product, x2: one product), then moves that hide behind the work, then
 * attention, which is dear at long contexts, then layers passed forward twice. Measured: at 32,768
 * tokens x and o in host memory are a tenth faster than x alone. Where rates are known, the search
 * (plan/search_int.h) decides instead, and the ladder only where hardly anything fits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan/policy.h"

#include <strings.h>

static const char *const policy_names[EBB_POLICY_COUNT] = {
#define EBB_POLICY_NAME(name, text) text,
    EBB_POLICY_LIST(EBB_POLICY_NAME)
#undef EBB_POLICY_NAME
};

const char *ebb_policy_name(enum ebb_policy policy)
{
    return policy_names[policy];
}

bool ebb_policy_parse(const char *text, enum ebb_policy *policy)
{
    for (int i = 0; i < EBB_POLICY_COUNT; i++)
        if (strcasecmp(text, policy_names[i]) == 0) {
            *policy = (enum ebb_policy)i;
            return true;
        }
    return false;
}

static const char *const kind_names[EBB_KIND_COUNT] = {
#define EBB_KIND_NAME(name, text) text,
    EBB_KIND_LIST(EBB_KIND_NAME)
#undef EBB_KIND_NAME
};

const char *ebb_kind_name(enum ebb_kind kind)
{
    return kind_names[kind];
}

static const char *const program_names[EBB_PROGRAM_COUNT] = {
#define EBB_PROGRAM_NAME(name, text) text,
    EBB_PROGRAM_LIST(EBB_PROGRAM_NAME)
#undef EBB_PROGRAM_NAME
};

const char *ebb_program_kind_name(enum ebb_program_kind kind)
{
    return program_names[kind];
}

enum ebb_status ebb_policies_create(struct ebb_ctx *ctx, int64_t layers, int32_t units,
                                    enum ebb_policy fill, struct ebb_policies *policies)
{
    policies->layers = layers;
    policies->units = units;
    policies->at = ebb_mem_alloc(ctx, (size_t)(layers > 0 ? layers : 1) * sizeof *policies->at);
    policies->away = ebb_mem_alloc(ctx, (size_t)(units > 0 ? units : 1));
    if (!policies->at || !policies->away) {
        ebb_policies_free(ctx, policies);
        return EBB_NO_MEMORY;
    }
    memset(policies->at, (int)fill, (size_t)layers * sizeof *policies->at);
    return EBB_OK;
}

void ebb_policies_free(struct ebb_ctx *ctx, struct ebb_policies *policies)
{
    ebb_mem_free(ctx, policies->at);
    ebb_mem_free(ctx, policies->away);
    memset(policies, 0, sizeof *policies);
}

bool ebb_policies_away(const struct ebb_policies *policies, int32_t unit)
{
    return unit >= 0 && policies->away[unit];
}

bool ebb_policies_state_away(const struct ebb_policies *policies, const struct ebb_param *param)
{
    return ebb_param_may_leave(param) && policies->away[param->unit];
}

struct ebb_view ebb_policies_param(const struct ebb_policies *policies,
                                   const struct ebb_param *param)
{
    return param->stand_in.tensor >= 0 && ebb_policies_away(policies, param->unit) ? param->stand_in
                                                                                   : param->w;
}

/* One step of the ladder: the policies of the named slots, the others are made again. */
struct step {
    const char *what;
    const char *keep; /* slots separated by spaces; "*": all */
    const char *host;
    int every;        /* x only on every k-th layer */
    bool checkpoints; /* gradient_checkpointing: true allows it */
};

static const struct step ladder[] = {
    {"everything stays on the device", "*", "", 1, false},
    {"gate_up is made again, the rest stays", "x qkv o x2", "", 1, false},
    {"layer inputs, q k v and attention outputs stay, the rest is made again", "x qkv o", "", 1,
     false},
    {"layer inputs and attention outputs stay, the rest is made again", "x o", "", 1, false},
    {"layer inputs and attention outputs go to the host, the rest is made again", "", "x o", 1,
     false},
    {"layer inputs stay, the rest is made again", "x", "", 1, true},
    {"layer inputs go to the host, the rest is made again", "", "x", 1, true},
    {"every second layer's input goes to the host, the rest is made again", "", "x", 2, true},
    {"every fourth layer's input goes to the host, the rest is made again", "", "x", 4, true},
    {"every second layer's input stays, the rest is made again", "x", "", 2, true},
    {"every fourth layer's input stays, the rest is made again", "x", "", 4, true},
};
enum { LADDER_STEPS = (int)(sizeof ladder / sizeof ladder[0]) };
static const struct step all_host = {"every slot goes to the host", "", "*", 1, false};

static bool names_slot(const char *list, const char *slot)
{
    size_t bytes = strlen(slot);
    if (strcmp(list, "*") == 0) return true;
    for (const char *at = list; (at = strstr(at, slot)) != NULL; at += bytes) {
        bool starts = at == list || at[-1] == ' ', ends = at[bytes] == ' ' || at[bytes] == '\0';
        if (starts && ends) return true;
    }
    return false;
}

static void apply_step(const struct ebb_net *net, const struct step *step,
                       struct ebb_policies *policies)
{
    for (int64_t layer = 0; layer < net->layers; layer++)
        for (int slot = 0; slot < net->slot_count; slot++) {
            const char *name = net->slots[slot].name;
            enum ebb_policy policy = names_slot(step->host, name)   ? EBB_POLICY_HOST
                                     : names_slot(step->keep, name) ? EBB_POLICY_KEEP
                                                                    : EBB_POLICY_RECOMPUTE;
            if (slot == 0 && layer % step->every != 0) policy = EBB_POLICY_RECOMPUTE;
            policies->at[layer][slot] = (uint8_t)policy;
        }
}

/* Whether the keys allow a step. TRL's activation_offloading without checkpointing is "every
 * slot to the host". */
static bool allowed(const struct ebb_memory_keys *keys, const struct step *step, bool host_allowed)
{
    bool moves = step->host[0] != '\0';
    if (moves && !host_allowed) return false;
    if (keys->gradient_checkpointing == EBB_TRUE && !step->checkpoints) return false;
    if (keys->gradient_checkpointing == EBB_FALSE && step != &ladder[0] && step != &all_host)
        return false;
    if (keys->activation_offloading == EBB_TRUE && !moves) return false;
    if (keys->activation_offloading == EBB_FALSE && moves) return false;
    return true;
}

/* Keys set by hand ask for one thing; only `auto` goes on looking. */
static bool is_fixed(const struct ebb_memory_keys *keys)
{
    return keys->gradient_checkpointing != EBB_AUTO &&
           (keys->gradient_checkpointing == EBB_FALSE || keys->activation_offloading != EBB_AUTO);
}

static enum ebb_status apply_rules(struct ebb_ctx *ctx, const struct ebb_net *net,
                                   const struct ebb_memory_keys *keys,
                                   struct ebb_policies *policies)
{
    static const struct step base = {"", "x", "", 1, true};
    apply_step(net, &base, policies);
    for (int64_t i = 0; i < keys->rule_count; i++) {
        const struct ebb_policy_rule *rule = &keys->rules[i];
        int64_t last = rule->last < 0 ? net->layers - 1 : rule->last,
                every = rule->every > 1 ? rule->every : 1;
        if (rule->first < 0 || rule->first > last || last >= net->layers)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "activations: layers %lld-%lld, but the model has layers 0-%lld",
                            (long long)rule->first, (long long)last, (long long)net->layers - 1);
        if (rule->policy == EBB_POLICY_HALF && !net->slots[rule->slot].tiled)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "activations: slot '%s' is read whole: %s is for slots that are read "
                            "tile by tile",
                            net->slots[rule->slot].name, ebb_policy_name(rule->policy));
        for (int64_t layer = rule->first; layer <= last; layer++)
            policies->at[layer][rule->slot] =
                (uint8_t)((layer - rule->first) % every == 0 ? rule->policy : EBB_POLICY_RECOMPUTE);
    }
    return EBB_OK;
}

enum ebb_status ebb_policies_ladder(struct ebb_ctx *ctx, const struct ebb_net *net,
                                    const struct ebb_memory_keys *keys, bool host_allowed, int k,
                                    struct ebb_policies *policies, const char **what, bool *last)
{
    const struct step *chosen = NULL, *steps[LADDER_STEPS + 1];
    int count = 0;
    *last = true;
    if (keys->rule_count > 0) {
        *what = "as `activations:` says";
        return apply_rules(ctx, net, keys, policies);
    }
    if (keys->gradient_checkpointing == EBB_FALSE && keys->activation_offloading == EBB_TRUE)
        steps[count++] = &all_host;
    else
        for (int i = 0; i < LADDER_STEPS; i++)
            if (allowed(keys, &ladder[i], host_allowed)) steps[count++] = &ladder[i];
    if (count == 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "activation_offloading: true, but there is no host memory to offload to "
                        "(host_memory_budget)");
    if (is_fixed(keys)) count = 1;
    chosen = steps[k < count ? k : count - 1];
    *last = k >= count - 1;
    *what = chosen->what;
    apply_step(net, chosen, policies);
    return EBB_OK;
}
