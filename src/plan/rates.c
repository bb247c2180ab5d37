/* Rates: the class of an entry, the fit of costs to times, and rates as JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan/rates.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "op/attention.h"
#include "op/matmul.h"

static const char *const cost_keys[] = {
#define COST_KEY(name, key) key,
    EBB_COST_LIST(COST_KEY)
#undef COST_KEY
};

const char *ebb_cost_key(enum ebb_cost_class which)
{
    return cost_keys[which];
}

/* ---- classes ---- */

static bool is_thin(const struct ebb_matmul *m)
{
    const struct ebb_view *a = &m->a;
    return a->cols <= EBB_THIN_COLS || m->b.cols <= EBB_THIN_COLS || m->y.cols <= EBB_THIN_COLS ||
           (m->form == EBB_MATMUL_TN && m->y.rows <= EBB_THIN_COLS);
}

static enum ebb_cost_class forward_class(const struct ebb_attention_shape *shape, bool plain)
{
    if (plain) return EBB_COST_ATTENTION_PLAIN_FORWARD;
    return shape->qk_dim <= 64 ? EBB_COST_ATTENTION_FORWARD_64 : EBB_COST_ATTENTION_FORWARD_128;
}

static enum ebb_cost_class backward_class(const struct ebb_attention_shape *shape, bool plain,
                                          bool fixed)
{
    if (plain) return EBB_COST_ATTENTION_PLAIN_BACKWARD;
    if (shape->qk_dim <= 64)
        return fixed ? EBB_COST_ATTENTION_FIXED_64 : EBB_COST_ATTENTION_BACKWARD_64;
    return fixed ? EBB_COST_ATTENTION_FIXED_128 : EBB_COST_ATTENTION_BACKWARD_128;
}

static enum ebb_cost_class op_class(const struct ebb_program *program,
                                    const struct ebb_entry *entry,
                                    const struct ebb_numerics *numerics)
{
    const bool gpu = ebb_numerics_target(numerics).backend == EBB_BACKEND_CUDA;
    const struct ebb_attention_way *way = &numerics->attention;
    const void *args = ebb_program_args(program, entry);
    switch ((enum ebb_op)entry->op) {
    case EBB_OP_matmul:
        return is_thin((const struct ebb_matmul *)args) ? EBB_COST_THIN : EBB_COST_PRODUCT;
    case EBB_OP_attention_forward:
        return forward_class(&((const struct ebb_attention_forward *)args)->shape,
                             gpu && !way->library);
    case EBB_OP_attention_cached: /* always by plain kernels */
        return forward_class(&((const struct ebb_attention_cached *)args)->shape, gpu);
    case EBB_OP_attention_backward:
        return backward_class(&((const struct ebb_attention_backward *)args)->shape,
                              gpu && !way->library, gpu && way->deterministic);
    default:
        break;
    }
    switch (ebb_entry_part(program, entry, false)) {
    case EBB_PART_HEAD:
        return EBB_COST_LOSS;
    case EBB_PART_OPTIMIZER:
        return EBB_COST_OPTIMIZER;
    default:
        return EBB_COST_MEMORY;
    }
}

enum ebb_cost_class ebb_entry_cost_class(const struct ebb_program *program,
                                         const struct ebb_entry *entry,
                                         const struct ebb_numerics *numerics)
{
    const bool bounces = ebb_entry_pageable(program, entry, INT64_MAX) > 0;
    if (entry->kind == EBB_ENTRY_OUT) return bounces ? EBB_COST_BOUNCE_OUT : EBB_COST_COPY_OUT;
    if (entry->kind == EBB_ENTRY_IN) return bounces ? EBB_COST_BOUNCE_IN : EBB_COST_COPY_IN;
    return op_class(program, entry, numerics);
}

/* ---- fitting ---- */

enum { TERMS = 3 }; /* call, byte, flop */

/* Sums of the normal equations of one class, over terms scaled by `unit`, so that they are near
 * 1. */
struct equations {
    double unit[TERMS];
    double matrix[TERMS][TERMS], right[TERMS];
    double constant; /* of the error */
};

static void sample_terms(const struct ebb_cost_sample *sample, double term[TERMS])
{
    term[0] = 1;
    term[1] = sample->bytes / sample->count;
    term[2] = sample->flops / sample->count;
}

static bool counts(const struct ebb_cost_sample *sample, enum ebb_cost_class which)
{
    return sample->which == which && sample->count > 0 && sample->seconds > 0;
}

/* False: there are no samples. */
static bool set_up(const struct ebb_cost_sample *samples, int64_t count, enum ebb_cost_class which,
                   struct equations *e)
{
    double term[TERMS];
    bool any = false;
    memset(e, 0, sizeof *e);
    for (int64_t i = 0; i < count; i++) {
        if (!counts(&samples[i], which)) continue;
        any = true;
        sample_terms(&samples[i], term);
        for (int t = 0; t < TERMS; t++)
            if (term[t] > e->unit[t]) e->unit[t] = term[t];
    }
    for (int64_t i = 0; i < count; i++) {
        if (!counts(&samples[i], which)) continue;
        double each = samples[i].seconds / samples[i].count, weight = samples[i].seconds;
        sample_terms(&samples[i], term);
        for (int t = 0; t < TERMS; t++) term[t] = e->unit[t] > 0 ? term[t] / e->unit[t] / each : 0;
        for (int t = 0; t < TERMS; t++) {
            for (int u = 0; u < TERMS; u++) e->matrix[t][u] += weight * term[t] * term[u];
            e->right[t] += weight * term[t];
        }
        e->constant += weight;
    }
    return any;
}

/* Solves for the terms of `set`, the others 0, by elimination. False: they are not independent, or
 * one comes out below 0. */
static bool solve(const struct equations *e, unsigned set, double x[TERMS])
{
    double m[TERMS][TERMS + 1];
    int rows[TERMS], n = 0;
    for (int t = 0; t < TERMS; t++) {
        x[t] = 0;
        if (set & 1u << t) rows[n++] = t;
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) m[i][j] = e->matrix[rows[i]][rows[j]];
        m[i][n] = e->right[rows[i]];
    }
    for (int i = 0; i < n; i++) {
        if (!(m[i][i] > 1e-9 * e->matrix[rows[i]][rows[i]])) return false;
        for (int k = i + 1; k < n; k++) {
            double factor = m[k][i] / m[i][i];
            for (int j = i; j <= n; j++) m[k][j] -= factor * m[i][j];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        double value = m[i][n];
        for (int j = i + 1; j < n; j++) value -= m[i][j] * x[rows[j]];
        x[rows[i]] = value / m[i][i];
        if (x[rows[i]] < 0) return false;
    }
    return true;
}

static double error_of(const struct equations *e, const double x[TERMS])
{
    double error = e->constant;
    for (int t = 0; t < TERMS; t++) {
        error -= 2 * x[t] * e->right[t];
        for (int u = 0; u < TERMS; u++) error += x[t] * e->matrix[t][u] * x[u];
    }
    return error;
}

/* As a cost of its own unit. */
static double cost_of(double scaled, double unit)
{
    double cost = unit > 0 ? scaled / unit : 0;
    return cost >= EBB_COST_LEAST ? cost : 0;
}

/* With three terms every subset can be tried: the best of those without a cost below 0. One with
 * more terms must be better by more than rounding. So where samples of one size cannot tell terms
 * apart it is the work that costs, and not the call. */
static void fit_class(const struct equations *e, struct ebb_cost *cost)
{
    static const unsigned sets[] = {4, 2, 1, 6, 5, 3, 7}; /* bit 0: call, 1: byte, 2: flop */
    double best = 0;
    bool found = false;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        double x[TERMS];
        if (!solve(e, sets[i], x)) continue;
        double error = fmax(error_of(e, x), 0); /* rounding takes an exact fit's below it */
        if (found && error >= best - 1e-9 * e->constant) continue;
        found = true;
        best = error;
        cost->call = cost_of(x[0], e->unit[0]);
        cost->byte = cost_of(x[1], e->unit[1]);
        cost->flop = cost_of(x[2], e->unit[2]);
    }
}

void ebb_rates_fit(const struct ebb_cost_sample *samples, int64_t count, struct ebb_rates *rates)
{
    struct equations e;
    for (int which = 0; which < EBB_COST_COUNT; which++)
        if (set_up(samples, count, (enum ebb_cost_class)which, &e))
            fit_class(&e, &rates->costs[which]);
}

/* ---- JSON ---- */

static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *cost_json(const struct ebb_cost *cost)
{
    json_t *json = json_object();
    if (json && put(json, "seconds_per_call", json_real(cost->call)) &&
        put(json, "seconds_per_byte", json_real(cost->byte)) &&
        put(json, "seconds_per_flop", json_real(cost->flop)))
        return json;
    json_decref(json);
    return NULL;
}

json_t *ebb_rates_json(const struct ebb_rates *rates)
{
    json_t *json = json_object(), *costs = json_object();
    bool ok = json && costs;
    for (int i = 0; ok && i < EBB_COST_COUNT; i++)
        if (ebb_cost_known(&rates->costs[i]))
            ok = put(costs, cost_keys[i], cost_json(&rates->costs[i]));
    if (ok && put(json, "device", json_string(rates->device)) &&
        put(json, "versions", json_string(rates->versions)) &&
        put(json, "threads", json_integer(rates->threads)) &&
        put(json, "dtype", json_string(ebb_dtype_name(rates->storage))) &&
        put(json, "measured", json_boolean(rates->measured)) &&
        json_object_set(json, "costs", costs) == 0) {
        json_decref(costs);
        return json;
    }
    json_decref(costs);
    json_decref(json);
    return NULL;
}

static enum ebb_status read_text(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                 const char *key, char *text, size_t bytes)
{
    const char *value;
    EBB_TRY(ebb_json_string(ctx, where, json, key, &value, NULL));
    snprintf(text, bytes, "%s", value);
    return EBB_OK;
}

static enum ebb_status read_cost(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                 const char *key, struct ebb_cost *cost)
{
    double *const values[] = {&cost->call, &cost->byte, &cost->flop};
    static const char *const names[] = {"seconds_per_call", "seconds_per_byte", "seconds_per_flop"};
    for (int i = 0; i < TERMS; i++) {
        EBB_TRY(ebb_json_double(ctx, where, json, names[i], values[i], NULL));
        if (*values[i] != 0 && !(*values[i] >= EBB_COST_LEAST && *values[i] < 1e6))
            return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' of '%s' is %g, which is no time", where,
                            names[i], key, *values[i]);
    }
    return EBB_OK;
}

static enum ebb_status read_dtype(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                  enum ebb_dtype *dtype)
{
    static const enum ebb_dtype known[] = {EBB_BF16, EBB_F32};
    const char *name;
    EBB_TRY(ebb_json_string(ctx, where, json, "dtype", &name, NULL));
    for (int i = 0; i < 2; i++)
        if (strcmp(name, ebb_dtype_name(known[i])) == 0) {
            *dtype = known[i];
            return EBB_OK;
        }
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'dtype' is '%s', neither %s nor %s", where, name,
                    ebb_dtype_name(EBB_BF16), ebb_dtype_name(EBB_F32));
}

/* Files of earlier versions do not say. */
static enum ebb_status read_threads(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                    int *threads)
{
    int64_t value = 0;
    bool found;
    EBB_TRY(ebb_json_int64(ctx, where, json, "threads", &value, &found));
    if (value < 0 || value > INT_MAX)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'threads' is %lld, which is no count", where,
                        (long long)value);
    *threads = (int)value;
    return EBB_OK;
}

enum ebb_status ebb_rates_read(struct ebb_ctx *ctx, const char *where, const json_t *json,
                               struct ebb_rates *rates)
{
    const json_t *costs = json_object_get(json, "costs");
    memset(rates, 0, sizeof *rates);
    EBB_TRY(read_text(ctx, where, json, "device", rates->device, sizeof rates->device));
    EBB_TRY(read_text(ctx, where, json, "versions", rates->versions, sizeof rates->versions));
    EBB_TRY(read_threads(ctx, where, json, &rates->threads));
    EBB_TRY(read_dtype(ctx, where, json, &rates->storage));
    EBB_TRY(ebb_json_bool(ctx, where, json, "measured", &rates->measured, NULL));
    if (!json_is_object(costs))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: there is no object 'costs'", where);
    for (int i = 0; i < EBB_COST_COUNT; i++) {
        const json_t *cost = json_object_get(costs, cost_keys[i]);
        if (cost) EBB_TRY(read_cost(ctx, where, cost, cost_keys[i], &rates->costs[i]));
    }
    return EBB_OK;
}
