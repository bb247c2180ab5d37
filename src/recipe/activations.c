/* `activations:`: policies of saved tensors by hand, for all layers or for ranges of them: what was
 * written, then what it means for the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "model/decoder.h"
#include "recipe/options.h"
#include "recipe/setup.h"

enum { RANGES = 4 };

static enum ebb_status fail_at(struct ebb_ctx *ctx, const char *name, const struct ebb_yaml *node,
                               const char *what)
{
    bool key = node->key_line > 0;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "activations: %s\nwhere: %s:%d:%d\nhelp:  ebb help activations", what, name,
                    key ? node->key_line : node->line, key ? node->key_column : node->column);
}

/* "0-11", "12-" or "3". */
static bool parse_layers(const char *text, int64_t *first, int64_t *last)
{
    char part[32];
    size_t bytes = strcspn(text, "-");
    if (bytes == 0 || bytes >= sizeof part) return false;
    memcpy(part, text, bytes);
    part[bytes] = 0;
    if (!ebb_text_int64(part, first) || *first < 0) return false;
    *last = text[bytes] == 0 ? *first : -1;
    if (text[bytes] == 0 || text[bytes + 1] == 0) return true;
    return ebb_text_int64(text + bytes + 1, last) && *last >= *first;
}

static enum ebb_status parse_slot(struct ebb_ctx *ctx, const char *name,
                                  const struct ebb_yaml *node, struct ebb_activation_rule *rule)
{
    if (node->kind != EBB_YAML_SCALAR)
        return fail_at(ctx, name, node, "a slot wants keep, host, host_half or recompute");
    if (strlen(node->key) >= sizeof rule->slot) {
        char what[160];
        snprintf(what, sizeof what, "no slot has the name '%.60s'", node->key);
        return fail_at(ctx, name, node, what);
    }
    memcpy(rule->slot, node->key, strlen(node->key) + 1);
    rule->line = node->key_line;
    rule->column = node->key_column;
    if (!ebb_policy_parse(node->text, &rule->policy)) {
        char what[160];
        snprintf(what, sizeof what,
                 "'%.60s' is no policy of slot '%s': wanted keep, host, host_half or recompute",
                 node->text, rule->slot);
        return fail_at(ctx, name, node, what);
    }
    return EBB_OK;
}

/* One mapping; `range`: it may have layers and every. */
static enum ebb_status parse_map(struct ebb_ctx *ctx, const char *name, const struct ebb_yaml *map,
                                 bool range, struct ebb_activation_rule *rules, int64_t *count)
{
    struct ebb_activation_rule all = {0, -1, 0, "", EBB_POLICY_KEEP, 0, 0, 0, 0};
    int64_t begin = *count;
    if (map->kind != EBB_YAML_MAP)
        return fail_at(ctx, name, map, "wanted a mapping of slots to policies");
    const struct ebb_yaml *layers = ebb_yaml_find(map, "layers");
    const struct ebb_yaml *every = ebb_yaml_find(map, "every");
    if (range && !layers)
        return fail_at(ctx, name, map,
                       "each mapping of a list needs layers: \"0-11\", \"12-\" or \"3\"");
    if (!range && layers)
        return fail_at(ctx, name, layers,
                       "layers belongs into a list of mappings: [{layers: 0-11, x: host}]");
    if (layers &&
        (layers->kind != EBB_YAML_SCALAR || !parse_layers(layers->text, &all.first, &all.last)))
        return fail_at(ctx, name, layers, "layers wants \"0-11\", \"12-\" or \"3\"");
    if (layers) {
        all.range_line = layers->key_line;
        all.range_column = layers->key_column;
    }
    if (every && (every->kind != EBB_YAML_SCALAR || !ebb_text_int64(every->text, &all.every) ||
                  all.every < 1))
        return fail_at(ctx, name, every,
                       "every wants a whole number from 1: each so many layers, x has its policy");
    if (every && !ebb_yaml_find(map, "x"))
        return fail_at(ctx, name, every, "every has no effect without x");
    for (size_t i = 0; i < map->count; i++) {
        const struct ebb_yaml *node = &map->items[i];
        if (node == layers || node == every) continue;
        if (*count - begin == EBB_SLOTS)
            return fail_at(ctx, name, node, "more slots than a layer has");
        struct ebb_activation_rule *rule = &rules[*count];
        *rule = all;
        EBB_TRY(parse_slot(ctx, name, node, rule));
        if (strcmp(rule->slot, "x") != 0) rule->every = 0;
        ++*count;
    }
    if (*count == begin) return fail_at(ctx, name, map, "names no slot");
    return EBB_OK;
}

enum ebb_status ebb_activations_parse(struct ebb_ctx *ctx, const char *name,
                                      const struct ebb_yaml *tree,
                                      struct ebb_activation_rule rules[EBB_ACTIVATION_RULES],
                                      int64_t *count)
{
    *count = 0;
    if (tree->kind == EBB_YAML_MAP) return parse_map(ctx, name, tree, false, rules, count);
    if (tree->count > RANGES) return fail_at(ctx, name, tree, "at most four ranges of layers");
    if (tree->count == 0) return fail_at(ctx, name, tree, "names no slot");
    int64_t free_from = 0; /* the first layer that no range has */
    for (size_t i = 0; i < tree->count; i++) {
        int64_t begin = *count;
        EBB_TRY(parse_map(ctx, name, &tree->items[i], true, rules, count));
        if (free_from < 0 || rules[begin].first < free_from)
            return fail_at(ctx, name, &tree->items[i],
                           "ranges of layers must ascend and not overlap");
        free_from = rules[begin].last < 0 ? -1 : rules[begin].last + 1;
    }
    return EBB_OK;
}

/* ---- what the model has ---------------------------------------------------------------------- */

static const char *place_name(const struct ebb_setup *setup)
{
    bool argument = ebb_options_origin(setup->options, "activations").kind == EBB_ORIGIN_ARGUMENT;
    return argument ? "command line" : ebb_options_path(setup->options);
}

static enum ebb_status fail_slot(struct ebb_setup *setup, const struct ebb_net *net,
                                 const struct ebb_activation_rule *rule)
{
    struct ebb_str list = {0};
    const char *names[EBB_SLOTS];
    enum ebb_status status = EBB_OK;
    for (int i = 0; status == EBB_OK && i < net->slot_count; i++) {
        names[i] = net->slots[i].name;
        status = ebb_str_addf(setup->ctx, &list, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    const char *near = ebb_text_nearest(rule->slot, names, (size_t)net->slot_count);
    if (status == EBB_OK)
        status = EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                          "activations: a layer has no slot '%s'; it has %s\n"
                          "where: %s:%d:%d\n"
                          "%s%s%s"
                          "help:  ebb help activations",
                          rule->slot, list.data, place_name(setup), rule->line, rule->column,
                          near ? "try:   " : "", near ? near : "", near ? "\n" : "");
    ebb_str_free(setup->ctx, &list);
    return status;
}

static enum ebb_status fail_whole(struct ebb_setup *setup, const struct ebb_activation_rule *rule)
{
    return EBB_FAIL(
        setup->ctx, EBB_BAD_CONFIG,
        "activations: slot '%s' moves whole: host_half is for x2 and gate_up, which are "
        "used tile by tile\n"
        "where: %s:%d:%d\n"
        "try:   %s: host\n"
        "help:  ebb help activations",
        rule->slot, place_name(setup), rule->line, rule->column, rule->slot);
}

/* Layers as they were written: "4-", "3" or "2-9". */
static enum ebb_status check_layers(struct ebb_setup *setup, const struct ebb_activation_rule *rule)
{
    int64_t layers = setup->model->layers;
    char range[64] = "";
    if (rule->first < layers && rule->last < layers) return EBB_OK;
    if (rule->last < 0)
        snprintf(range, sizeof range, "layers %lld-", (long long)rule->first);
    else if (rule->last == rule->first)
        snprintf(range, sizeof range, "layer %lld", (long long)rule->first);
    else
        snprintf(range, sizeof range, "layers %lld-%lld", (long long)rule->first,
                 (long long)rule->last);
    return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                    "activations: %s, but the model has layers 0-%lld\n"
                    "where: %s:%d:%d\n"
                    "help:  ebb help activations",
                    range, (long long)layers - 1, place_name(setup), rule->range_line,
                    rule->range_column);
}

/* Slots by name become the net's indices. */
static enum ebb_status resolve_rules(struct ebb_setup *setup, const struct ebb_net *net,
                                     const struct ebb_activation_rule *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        struct ebb_policy_rule *rule = &setup->rules[i];
        EBB_TRY(check_layers(setup, &list[i]));
        *rule = (struct ebb_policy_rule){list[i].first, list[i].last, list[i].every, -1,
                                         list[i].policy};
        for (int slot = 0; slot < net->slot_count; slot++)
            if (strcmp(net->slots[slot].name, list[i].slot) == 0) rule->slot = slot;
        if (rule->slot < 0) return fail_slot(setup, net, &list[i]);
        if (rule->policy == EBB_POLICY_HALF && !net->slots[rule->slot].tiled)
            return fail_whole(setup, &list[i]);
    }
    return EBB_OK;
}

enum ebb_status ebb_setup_activations(struct ebb_setup *setup)
{
    struct ebb_activation_rule list[EBB_ACTIVATION_RULES];
    struct ebb_net *net = NULL;
    int64_t count = 0;
    if (setup->config->activations == NULL) return EBB_OK;
    EBB_TRY(ebb_activations_parse(setup->ctx, ebb_options_path(setup->options),
                                  setup->config->activations, list, &count));
    /* Only the names are wanted: the smallest net of this model has them. */
    struct ebb_decoder_options options = {.storage = setup->request.storage,
                                          .capacity = {1, 1, 1, 0}};
    EBB_TRY(ebb_decoder_create(setup->ctx, setup->model, &setup->weights, &options, &net));
    enum ebb_status status = resolve_rules(setup, net, list, count);
    ebb_decoder_free(setup->ctx, net);
    setup->request.memory.rules = setup->rules;
    setup->request.memory.rule_count = count;
    return status;
}
