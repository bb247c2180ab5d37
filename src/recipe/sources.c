/* `datasets` and its relatives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/sources.h"

#include <math.h>
#include <string.h>

struct reader {
    struct ebb_ctx *ctx;
    struct ebb_options *options;
    const struct ebb_config *config;
    struct ebb_sources *out;
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* "conf.yaml:5:3" of a part of the tree of `key`. */
static enum ebb_status fail_at(struct reader *reader, const char *key, const struct ebb_yaml *node,
                               const char *what)
{
    bool argument = ebb_options_origin(reader->options, key).kind == EBB_ORIGIN_ARGUMENT;
    bool keyed = node->key_line > 0;
    return EBB_FAIL(reader->ctx, EBB_BAD_CONFIG, "%s: %s\nwhere: %s:%d:%d\nhelp:  ebb help %s", key,
                    what, argument ? "command line" : ebb_options_path(reader->options),
                    keyed ? node->key_line : node->line, keyed ? node->key_column : node->column,
                    key);
}

enum { WHAT_BYTES = 320 };

static enum ebb_status fail_item(struct reader *reader, int64_t item, const struct ebb_yaml *node,
                                 const char *what)
{
    char text[WHAT_BYTES + 32];
    snprintf(text, sizeof text, "item %lld: %s", (long long)item + 1, what);
    return fail_at(reader, "datasets", node, text);
}

/* ---- one item -------------------------------------------------------------------------------- */

/* A text, or of roles a list of them. */
static bool is_name(const struct ebb_yaml *node, bool list)
{
    if (node->kind == EBB_YAML_SCALAR) return true;
    if (!list || node->kind != EBB_YAML_LIST || node->count == 0) return false;
    for (size_t i = 0; i < node->count; i++)
        if (node->items[i].kind != EBB_YAML_SCALAR) return false;
    return true;
}

/* The mapping of dataset_columns, dataset_roles or an item's columns or roles; `item` is -1 for the
 * first two. */
static enum ebb_status check_names(struct reader *reader, const char *key, int64_t item,
                                   const struct ebb_yaml *map)
{
    bool columns = strstr(key, "columns") != NULL;
    const struct ebb_yaml *bad = map->kind == EBB_YAML_MAP ? NULL : map;
    for (size_t i = 0; bad == NULL && i < map->count; i++)
        if (!is_name(&map->items[i], !columns)) bad = &map->items[i];
    if (bad == NULL) return EBB_OK;
    char what[WHAT_BYTES];
    snprintf(what, sizeof what, "%s%swants a mapping of %s: {%s}", item < 0 ? "" : key,
             item < 0 ? "" : " ", columns ? "a format's keys to a record's" : "roles to a record's",
             columns ? "prompt: question" : "user: human, assistant: [gpt, bot]");
    return item < 0 ? fail_at(reader, key, bad, what) : fail_item(reader, item, bad, what);
}

static const char *const item_keys[] = {"path",    "split", "format", "text_field",
                                        "columns", "roles", "weight"};
enum { ITEM_KEYS = sizeof item_keys / sizeof item_keys[0] };

static enum ebb_status fail_key(struct reader *reader, int64_t item, const struct ebb_yaml *node)
{
    char what[WHAT_BYTES];
    const char *near = ebb_text_nearest(node->key, item_keys, ITEM_KEYS);
    if (strcmp(node->key, "type") == 0) near = "format"; /* Axolotl's name */
    if (near)
        snprintf(what, sizeof what, "unknown key '%.60s'; try '%s'", node->key, near);
    else
        snprintf(what, sizeof what,
                 "unknown key '%.60s': it may have path, split, format, text_field, columns, roles "
                 "and weight",
                 node->key);
    return fail_item(reader, item, node, what);
}

static enum ebb_status read_weight(struct reader *reader, int64_t item, const struct ebb_yaml *node,
                                   double *weight)
{
    if (node->kind == EBB_YAML_SCALAR && ebb_text_double(node->text, weight) && *weight > 0 &&
        *weight <= 1e6)
        return EBB_OK;
    return fail_item(reader, item, node,
                     "weight wants a number above 0, at most 1e6: how often an epoch has each "
                     "sample");
}

/* Axolotl's `type`, where it means what a format here means; NULL elsewhere. (Its alpaca has a
 * newline behind "### Response:", so it is another prompt.) */
static const char *format_of_type(const struct ebb_yaml *node)
{
    static const char *const types[][2] = {{"chat_template", "messages"}, {"completion", "text"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (node->kind == EBB_YAML_SCALAR && strcmp(node->text, types[i][0]) == 0)
            return types[i][1];
    return NULL;
}

static enum ebb_status read_key(struct reader *reader, int64_t item, const struct ebb_yaml *node,
                                struct ebb_dataset_source *source)
{
    const char **texts[] = {&source->path, &source->split, &source->format, &source->text_field};
    int key = 0;
    while (key < ITEM_KEYS && strcmp(node->key, item_keys[key]) != 0) key++;
    if (strcmp(node->key, "type") == 0 && format_of_type(node)) {
        source->format = format_of_type(node);
        return EBB_OK;
    }
    if (key == ITEM_KEYS) return fail_key(reader, item, node);
    if (node->kind == EBB_YAML_NULL) return EBB_OK;
    if (key < 4) {
        if (node->kind != EBB_YAML_SCALAR || node->text[0] == 0) {
            char what[WHAT_BYTES];
            snprintf(what, sizeof what, "%s wants one text", node->key);
            return fail_item(reader, item, node, what);
        }
        *texts[key] = node->text;
        return EBB_OK;
    }
    if (key == 6) return read_weight(reader, item, node, &source->weight);
    EBB_TRY(check_names(reader, node->key, item, node));
    *(key == 4 ? &source->columns : &source->roles) = node;
    return EBB_OK;
}

/* A path, or a mapping. */
static enum ebb_status read_item(struct reader *reader, int64_t item, const struct ebb_yaml *node,
                                 struct ebb_dataset_source *source)
{
    if (node->kind == EBB_YAML_SCALAR && node->text[0] != 0) {
        source->path = node->text;
        return EBB_OK;
    }
    if (node->kind != EBB_YAML_MAP)
        return fail_item(reader, item, node, "wanted a path, or a mapping with path");
    const struct ebb_yaml *type = ebb_yaml_find(node, "type");
    if (type && ebb_yaml_find(node, "format"))
        return fail_item(reader, item, type, "'type' is another spelling of 'format': one of them");
    source->path = NULL;
    for (size_t i = 0; i < node->count; i++)
        EBB_TRY(read_key(reader, item, &node->items[i], source));
    if (source->path) return EBB_OK;
    return fail_item(reader, item, node, "it has no path: {path: data.jsonl}");
}

/* ---- sources --------------------------------------------------------------------------------- */

/* What all sources have unless they say otherwise. */
static struct ebb_dataset_source base_source(const struct ebb_config *config)
{
    struct ebb_dataset_source source = {.format = config->dataset_format,
                                        .text_field = config->dataset_text_field,
                                        .columns = config->dataset_columns,
                                        .roles = config->dataset_roles,
                                        .weight = 1};
    return source;
}

static enum ebb_status make_room(struct reader *reader, int64_t count)
{
    struct ebb_sources *out = reader->out;
    size_t n = (size_t)count;
    out->items = ebb_mem_alloc(reader->ctx, n * sizeof *out->items);
    out->splits = ebb_mem_alloc(reader->ctx, n * sizeof *out->splits);
    if (out->items == NULL || out->splits == NULL) return EBB_NO_MEMORY;
    out->count = count;
    for (int64_t i = 0; i < count; i++) out->items[i] = base_source(reader->config);
    return EBB_OK;
}

static enum ebb_status read_list(struct reader *reader)
{
    const struct ebb_yaml *tree = reader->config->datasets;
    if (tree->kind != EBB_YAML_LIST || tree->count == 0)
        return fail_at(reader, "datasets", tree,
                       "wants a list of paths or mappings: [a.jsonl, {path: b.jsonl, weight: 2}]");
    if (tree->count > EBB_SOURCES)
        return fail_at(reader, "datasets", tree, "more than 4096 data sets");
    EBB_TRY(make_room(reader, (int64_t)tree->count));
    for (int64_t i = 0; i < reader->out->count; i++) {
        struct ebb_dataset_source *source = &reader->out->items[i];
        source->split = reader->config->dataset_train_split;
        EBB_TRY(read_item(reader, i, &tree->items[i], source));
    }
    return EBB_OK;
}

/* The split that a share takes of a source. */
static enum ebb_status cut_split(struct reader *reader, enum ebb_share share, int64_t item)
{
    const struct ebb_config *config = reader->config;
    struct ebb_dataset_source *source = &reader->out->items[item];
    char **split = &reader->out->splits[item];
    if (config->validation_split > 0) {
        int kept = 100 - (int)lround(config->validation_split * 100);
        if (strchr(source->split, '['))
            return EBB_FAIL(reader->ctx, EBB_BAD_CONFIG,
                            "validation_split cannot cut a slice again: '%s' of '%s'\n"
                            "where: %s\n"
                            "try:   dataset_test_split with the other slice, without "
                            "validation_split",
                            source->split, source->path,
                            ebb_options_where(reader->options, config->datasets
                                                                   ? "datasets"
                                                                   : "dataset_train_split"));
        *split = share == EBB_SHARE_TRAIN
                     ? ebb_mem_format(reader->ctx, "%s[:%d%%]", source->split, kept)
                     : ebb_mem_format(reader->ctx, "%s[%d%%:]", source->split, kept);
    } else {
        bool other = share == EBB_SHARE_EVAL && config->dataset_test_split;
        *split = ebb_mem_strdup(reader->ctx, other ? config->dataset_test_split : source->split);
    }
    source->split = *split;
    return *split ? EBB_OK : EBB_NO_MEMORY;
}

static enum ebb_status create(struct reader *reader, enum ebb_share share)
{
    const struct ebb_config *config = reader->config;
    struct ebb_sources *out = reader->out;
    bool own = share == EBB_SHARE_EVAL && config->eval_dataset;
    const char *path = own ? config->eval_dataset : config->dataset_name;
    if (config->dataset_columns)
        EBB_TRY(check_names(reader, "dataset_columns", -1, config->dataset_columns));
    if (config->dataset_roles)
        EBB_TRY(check_names(reader, "dataset_roles", -1, config->dataset_roles));
    if (path == NULL && config->datasets) {
        EBB_TRY(read_list(reader));
    } else if (path) {
        EBB_TRY(make_room(reader, 1));
        out->items[0].path = path;
        out->items[0].split = own ? config->dataset_test_split : config->dataset_train_split;
    }
    for (int64_t i = 0; i < out->count; i++) {
        if (!own) EBB_TRY(cut_split(reader, share, i));
        /* Weights are for training: validation measures each record once. */
        if (share == EBB_SHARE_EVAL) out->items[i].weight = 1;
    }
    return EBB_OK;
}

enum ebb_status ebb_sources_create(struct ebb_ctx *ctx, struct ebb_options *options,
                                   const struct ebb_config *config, enum ebb_share share,
                                   struct ebb_sources *sources)
{
    struct reader reader = {ctx, options, config, sources};
    memset(sources, 0, sizeof *sources);
    enum ebb_status status = create(&reader, share);
    if (status != EBB_OK) ebb_sources_free(ctx, sources);
    return status;
}

void ebb_sources_free(struct ebb_ctx *ctx, struct ebb_sources *sources)
{
    for (int64_t i = 0; sources->splits && i < sources->count; i++)
        ebb_mem_free(ctx, sources->splits[i]);
    ebb_mem_free(ctx, sources->splits);
    ebb_mem_free(ctx, sources->items);
    memset(sources, 0, sizeof *sources);
}
