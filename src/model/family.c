/* The list of families, and how each says which layers have a window.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

#include <string.h>

#include "model/config_int.h"
#include "model/family_list.h"

#define FAMILY_DECLARE(name) extern const struct ebb_family ebb_family_##name;
EBB_FAMILY_LIST(FAMILY_DECLARE)

#define FAMILY_ROW(name) &ebb_family_##name,
static const struct ebb_family *const families[] = {EBB_FAMILY_LIST(FAMILY_ROW)};

enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

const struct ebb_family *ebb_family_at(int64_t i)
{
    return i >= 0 && i < FAMILY_COUNT ? families[i] : NULL;
}

const struct ebb_family *ebb_family_find_architecture(const char *architecture)
{
    for (int f = 0; f < FAMILY_COUNT; f++)
        for (int a = 0; families[f]->architectures[a]; a++)
            if (strcmp(families[f]->architectures[a], architecture) == 0) return families[f];
    return NULL;
}

const struct ebb_family *ebb_family_find_model_type(const char *model_type)
{
    for (int f = 0; f < FAMILY_COUNT; f++)
        if (strcmp(families[f]->model_type, model_type) == 0) return families[f];
    return NULL;
}

/* ---- windows ---- */

/* layer_types[i]: is it sliding? Full otherwise; any third kind is refused. */
static enum ebb_status layer_is_sliding(struct ebb_ctx *ctx, const char *where, const json_t *types,
                                        int64_t layer, bool *sliding)
{
    const char *type = json_string_value(json_array_get(types, (size_t)layer));
    if (type == NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'layer_types' must be a list of names, entry %lld is not a string",
                        where, (long long)layer);
    *sliding = strcmp(type, "sliding_attention") == 0;
    if (!*sliding && strcmp(type, "full_attention") != 0)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: 'layer_types' has '%s' for layer %lld; this version of ebb computes "
                        "'full_attention' and "
                        "'sliding_attention'",
                        where, type, (long long)layer);
    return EBB_OK;
}

/* The list under "layer_types", or NULL where there is none; its length is checked. */
static enum ebb_status layer_types(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                   int64_t layers, const json_t **types)
{
    const json_t *list = json_object_get(json, "layer_types");
    *types = NULL;
    if (list == NULL || json_is_null(list)) return EBB_OK;
    if (!json_is_array(list))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'layer_types' must be a list, one entry a layer",
                        where);
    if ((int64_t)json_array_size(list) != layers)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'layer_types' has %zu entries, 'num_hidden_layers' is %lld", where,
                        json_array_size(list), (long long)layers);
    *types = list;
    return EBB_OK;
}

/* Where a family does not read layer_types, the list may be there but must not say otherwise. */
static enum ebb_status layer_types_agree(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                         const struct ebb_model_config *config)
{
    const json_t *types;
    EBB_TRY(layer_types(ctx, where, json, config->layers, &types));
    for (int64_t l = 0; types && l < config->layers; l++) {
        bool sliding;
        EBB_TRY(layer_is_sliding(ctx, where, types, l, &sliding));
        if (sliding != (config->window[l] > 0))
            return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                            "%s: 'layer_types' makes layer %lld '%s', but the %s architecture has "
                            "%s in every layer",
                            where, (long long)l, sliding ? "sliding_attention" : "full_attention",
                            config->family->name,
                            config->window[l] > 0 ? "a window" : "full attention");
    }
    return EBB_OK;
}

/* sliding_window as a positive number, or 0 for null; *found says whether the key is there at
 * all. */
static enum ebb_status window_tokens(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                     int64_t *tokens, bool *found)
{
    bool number;
    *tokens = 0;
    *found = json_object_get(json, "sliding_window") != NULL;
    EBB_TRY(ebb_json_int64(ctx, where, json, "sliding_window", tokens, &number));
    if (number && *tokens < 1)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'sliding_window' is %lld, must be at least 1, or null for none", where,
                        (long long)*tokens);
    return EBB_OK;
}

enum ebb_status ebb_windows_none(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                 struct ebb_model_config *config)
{
    return layer_types_agree(ctx, where, json, config);
}

enum ebb_status ebb_windows_all(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                struct ebb_model_config *config)
{
    int64_t tokens;
    bool found;
    EBB_TRY(window_tokens(ctx, where, json, &tokens, &found));
    if (!found)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'sliding_window' is missing\nwrite the window in tokens, or null for "
                        "full attention",
                        where);
    for (int64_t l = 0; l < config->layers; l++) config->window[l] = tokens;
    return layer_types_agree(ctx, where, json, config);
}

enum ebb_status ebb_windows_by_layer(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                     struct ebb_model_config *config)
{
    bool use = false, found, given;
    int64_t tokens, first = 0;
    const json_t *types;
    EBB_TRY(ebb_json_bool(ctx, where, json, "use_sliding_window", &use, &found));
    EBB_TRY(window_tokens(ctx, where, json, &tokens, &given));
    EBB_TRY(layer_types(ctx, where, json, config->layers, &types));
    if (use && !given)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'use_sliding_window' is true, but 'sliding_window' is missing", where);
    if (!use) tokens = 0;
    if (types == NULL && tokens > 0) {
        EBB_TRY(ebb_json_int64(ctx, where, json, "max_window_layers", &first, &found));
        if (!found || first < 0)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: 'use_sliding_window' is true, but 'max_window_layers' (the first "
                            "layer with a window) "
                            "is %s and there is no 'layer_types'",
                            where, found ? "negative" : "missing");
    }
    for (int64_t l = 0; l < config->layers; l++) {
        bool sliding = tokens > 0 && l >= first;
        if (types) EBB_TRY(layer_is_sliding(ctx, where, types, l, &sliding));
        if (sliding && tokens == 0)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: 'layer_types' gives layer %lld a window, but %s", where,
                            (long long)l,
                            use ? "'sliding_window' is null" : "'use_sliding_window' is not true");
        config->window[l] = sliding ? tokens : 0;
    }
    return EBB_OK;
}
