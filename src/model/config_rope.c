/* How config.json says which rotary embedding a model has.
 *
 * transformers 4 writes rope_theta and, where scaled, rope_scaling {type or rope_type, factor,
 * ...}; transformers 5 writes rope_parameters {rope_type, rope_theta, factor, ...}. A file may hold
 * both, and then they must agree.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "model/config_int.h"

static const char *const kind_names[] = {"default", "linear", "llama3",
                                         "yarn"}; /* order of enum ebb_rope_kind */
enum { KIND_COUNT = sizeof kind_names / sizeof kind_names[0] };
_Static_assert(KIND_COUNT == EBB_ROPE_YARN + 1, "a name for each kind of rope");

/* Every key that a rope dictionary may hold here. */
static const char *const known_keys[] = {
    "rope_type",        "type",
    "rope_theta",       "partial_rotary_factor",
    "factor",           "original_max_position_embeddings",
    "attention_factor", "beta_fast",
    "beta_slow",        "low_freq_factor",
    "high_freq_factor", "mscale",
    "mscale_all_dim",   "truncate",
};

static const struct ebb_refused_key refused_keys[] = {{"partial_rotary_factor", 1}, {NULL, 0}};

static enum ebb_status check_keys(struct ebb_ctx *ctx, const char *where, const char *name,
                                  const json_t *dict)
{
    const char *key;
    json_t *value;
    char text[EBB_JSON_SHOW];
    json_object_foreach((json_t *)(uintptr_t)dict, key, value)
    {
        bool known = false;
        for (size_t k = 0; k < sizeof known_keys / sizeof known_keys[0]; k++)
            known = known || strcmp(known_keys[k], key) == 0;
        if (known || json_is_null(value)) continue;
        if (json_is_object(value))
            return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                            "%s: '%s' has parameters of its own for '%s' layers (%s); this version "
                            "of ebb computes one "
                            "rope for all layers",
                            where, name, key, ebb_json_show(value, text));
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: '%s' sets '%s' to %s, which this version of ebb does not compute",
                        where, name, key, ebb_json_show(value, text));
    }
    return ebb_json_refuse(ctx, where, dict, refused_keys);
}

static enum ebb_status read_kind(struct ebb_ctx *ctx, const char *where, const char *name,
                                 const json_t *dict, enum ebb_rope_kind *kind)
{
    const char *type = NULL, *old = NULL;
    bool has_type, has_old;
    EBB_TRY(ebb_json_string(ctx, where, dict, "rope_type", &type, &has_type));
    EBB_TRY(ebb_json_string(ctx, where, dict, "type", &old, &has_old));
    if (has_type && has_old && strcmp(type, old) != 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: '%s' contradicts itself: 'rope_type' is '%s', 'type' is '%s'", where,
                        name, type, old);
    if (!has_type) type = has_old ? old : kind_names[EBB_ROPE_DEFAULT];
    for (int k = 0; k < KIND_COUNT; k++)
        if (strcmp(type, kind_names[k]) == 0) {
            *kind = (enum ebb_rope_kind)k;
            return EBB_OK;
        }
    return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                    "%s: rope type '%s' in '%s' is not supported; this version of ebb computes "
                    "default, linear, llama3 "
                    "and yarn",
                    where, type, name);
}

/* A number > 0; a missing one is an error unless *value holds a default (not NaN). */
static enum ebb_status positive(struct ebb_ctx *ctx, const char *where, const char *name,
                                const json_t *dict, const char *key, double *value)
{
    bool found;
    EBB_TRY(ebb_json_double(ctx, where, dict, key, value, &found));
    if (!found && isnan(*value))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is missing in '%s'", where, key, name);
    if (!(*value > 0) || isinf(*value))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' in '%s' is %g, must be above 0", where, key,
                        name, *value);
    return EBB_OK;
}

/* The length of pretraining: in the dictionary, or beside it, or, for yarn only,
 * max_position_embeddings. */
static enum ebb_status read_original(struct ebb_ctx *ctx, const char *where, const char *name,
                                     const json_t *json, const json_t *dict, double fallback,
                                     double *original)
{
    const char *key = "original_max_position_embeddings";
    double outer = NAN, inner = NAN;
    bool has_outer, has_inner;
    EBB_TRY(ebb_json_double(ctx, where, json, key, &outer, &has_outer));
    EBB_TRY(ebb_json_double(ctx, where, dict, key, &inner, &has_inner));
    if (has_outer && has_inner && outer != inner)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is %g, but %g in '%s'", where, key, outer,
                        inner, name);
    *original = has_inner ? inner : has_outer ? outer : fallback;
    return positive(ctx, where, name, dict, key, original);
}

static enum ebb_status read_llama3(struct ebb_ctx *ctx, const char *where, const char *name,
                                   const json_t *json, const json_t *dict, struct ebb_rope *rope)
{
    rope->factor = rope->low_freq_factor = rope->high_freq_factor = NAN;
    EBB_TRY(positive(ctx, where, name, dict, "factor", &rope->factor));
    EBB_TRY(positive(ctx, where, name, dict, "low_freq_factor", &rope->low_freq_factor));
    EBB_TRY(positive(ctx, where, name, dict, "high_freq_factor", &rope->high_freq_factor));
    EBB_TRY(read_original(ctx, where, name, json, dict, NAN, &rope->original_max_positions));
    if (!(rope->high_freq_factor > rope->low_freq_factor))
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'high_freq_factor' (%g) in '%s' must be above 'low_freq_factor' (%g)",
                        where, rope->high_freq_factor, name, rope->low_freq_factor);
    return EBB_OK;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

static enum ebb_status read_yarn(struct ebb_ctx *ctx, const char *where, const char *name,
                                 const json_t *json, const json_t *dict, int64_t max_positions,
                                 struct ebb_rope *rope)
{
    double mscale = 0, mscale_all = 0;
    bool found;
    EBB_TRY(read_original(ctx, where, name, json, dict, (double)max_positions,
                          &rope->original_max_positions));
    const json_t *factor = json_object_get(dict, "factor");
    /* "factor": null is the ratio of both lengths, as in transformers. */
    rope->factor =
        json_is_null(factor) ? (double)max_positions / rope->original_max_positions : NAN;
    EBB_TRY(positive(ctx, where, name, dict, "factor", &rope->factor));
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    EBB_TRY(positive(ctx, where, name, dict, "beta_fast", &rope->beta_fast));
    EBB_TRY(positive(ctx, where, name, dict, "beta_slow", &rope->beta_slow));
    if (!(rope->beta_fast > rope->beta_slow))
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'beta_fast' (%g) in '%s' must be above 'beta_slow' (%g)", where,
                        rope->beta_fast, name, rope->beta_slow);
    EBB_TRY(ebb_json_bool(ctx, where, dict, "truncate", &rope->truncate, &found));
    EBB_TRY(ebb_json_double(ctx, where, dict, "mscale", &mscale, &found));
    EBB_TRY(ebb_json_double(ctx, where, dict, "mscale_all_dim", &mscale_all, &found));
    /* Both count only together: DeepSeek's configurations set them to cancel each other. */
    if (mscale != 0 && mscale_all != 0)
        rope->attention_factor =
            yarn_mscale(rope->factor, mscale) / yarn_mscale(rope->factor, mscale_all);
    else
        rope->attention_factor = yarn_mscale(rope->factor, 1);
    return positive(ctx, where, name, dict, "attention_factor", &rope->attention_factor);
}

/* One dictionary; `theta` is what stands beside it, NaN if nothing does. */
static enum ebb_status read_dict(struct ebb_ctx *ctx, const char *where, const char *name,
                                 const json_t *json, int64_t max_positions, double theta,
                                 struct ebb_rope *rope)
{
    const json_t *dict = json_object_get(json, name);
    char text[EBB_JSON_SHOW];
    bool found;
    if (!json_is_object(dict))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' must be an object, found %s", where, name,
                        ebb_json_show(dict, text));
    EBB_TRY(check_keys(ctx, where, name, dict));
    double inner = theta;
    EBB_TRY(ebb_json_double(ctx, where, dict, "rope_theta", &inner, &found));
    if (found && !isnan(theta) && inner != theta)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'rope_theta' is %g, but %g in '%s'\nremove the one that the model was "
                        "not trained with",
                        where, theta, inner, name);
    rope->theta = inner;
    EBB_TRY(read_kind(ctx, where, name, dict, &rope->kind));
    switch (rope->kind) {
    case EBB_ROPE_DEFAULT:
        return EBB_OK;
    case EBB_ROPE_LINEAR:
        rope->factor = NAN;
        return positive(ctx, where, name, dict, "factor", &rope->factor);
    case EBB_ROPE_LLAMA3:
        return read_llama3(ctx, where, name, json, dict, rope);
    case EBB_ROPE_YARN:
        return read_yarn(ctx, where, name, json, dict, max_positions, rope);
    }
    return EBB_OK;
}

static bool same(const struct ebb_rope *a, const struct ebb_rope *b)
{
    return a->kind == b->kind && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->original_max_positions == b->original_max_positions && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->attention_factor == b->attention_factor &&
           a->truncate == b->truncate;
}

static bool is_set(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return value && !json_is_null(value) &&
           !(json_is_object(value) && json_object_size(value) == 0);
}

enum ebb_status ebb_rope_read(struct ebb_ctx *ctx, const char *where, const json_t *json,
                              int64_t max_positions, struct ebb_rope *rope)
{
    struct ebb_rope start = {.kind = EBB_ROPE_DEFAULT, .attention_factor = 1, .truncate = true};
    bool old = is_set(json, "rope_scaling"), new = is_set(json, "rope_parameters"), found;
    double theta = NAN;
    EBB_TRY(ebb_json_double(ctx, where, json, "rope_theta", &theta, &found));
    *rope = start;
    rope->theta = theta;
    if (old) EBB_TRY(read_dict(ctx, where, "rope_scaling", json, max_positions, theta, rope));
    if (new) {
        struct ebb_rope other = start;
        EBB_TRY(read_dict(ctx, where, "rope_parameters", json, max_positions,
                          isnan(rope->theta) ? theta : rope->theta, &other));
        if (old && !same(rope, &other))
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: 'rope_scaling' (%s) and 'rope_parameters' (%s) contradict each "
                            "other\nremove the one "
                            "that the model was not trained with",
                            where, kind_names[rope->kind], kind_names[other.kind]);
        *rope = other;
    }
    if (isnan(rope->theta))
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: 'rope_theta' is missing, beside 'rope_scaling' and in "
                        "'rope_parameters'\nwrite the value "
                        "that the model was trained with (10000 for the first Llama models)",
                        where);
    if (!(rope->theta > 1) || isinf(rope->theta))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'rope_theta' is %g, must be above 1", where,
                        rope->theta);
    return EBB_OK;
}
