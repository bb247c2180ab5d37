/* `activations:`: policies of saved tensors by hand, for all layers or for ranges of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "recipe/options.h"

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
        return fail_at(ctx, name, node, "a slot wants keep, host or recompute");
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
                 "'%.60s' is no policy of slot '%s': wanted keep, host or recompute", node->text,
                 rule->slot);
        return fail_at(ctx, name, node, what);
    }
    return EBB_OK;
}

/* One mapping; `range`: it may have layers and every. */
static enum ebb_status parse_map(struct ebb_ctx *ctx, const char *name, const struct ebb_yaml *map,
                                 bool range, struct ebb_activation_rule *rules, int64_t *count)
{
    struct ebb_activation_rule all = {0, -1, 0, "", EBB_POLICY_KEEP, 0, 0};
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
