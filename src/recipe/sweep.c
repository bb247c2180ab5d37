/* Sweeps: over budgets and over lengths.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/sweep.h"

#include <stdio.h>
#include <string.h>

#include "recipe/fit.h"

/* ---- a point ---- */

/* Plans the request as it stands. */
static enum ebb_status plan_point(struct ebb_setup *setup, struct ebb_sweep_point *point)
{
    struct ebb_engine *engine = NULL;
    struct ebb_outlook outlook;
    memset(point, 0, sizeof *point);
    enum ebb_status status = ebb_engine_create(setup->ctx, &setup->request, &engine);
    if (status == EBB_OK) status = ebb_outlook_step(setup, engine, &outlook);
    if (status == EBB_OK) {
        const struct ebb_plan *plan = ebb_engine_plan(engine);
        point->max_length = setup->max_length;
        point->budget = setup->request.device_budget;
        point->device_bytes = plan->total_bytes;
        point->host_bytes = plan->host_bytes;
        point->known = outlook.known;
        point->seconds = outlook.step.step.seconds;
        if (point->known) point->tokens_per_second = outlook.step.tokens / point->seconds;
        snprintf(point->what, sizeof point->what, "%s", plan->what);
        point->fits = ebb_fit_holds(setup, engine);
    }
    ebb_engine_free(engine);
    return status;
}

/* ---- budgets ---- */

static bool same_plan(const struct ebb_sweep_point *a, const struct ebb_sweep_point *b)
{
    return a->fits == b->fits && a->device_bytes == b->device_bytes &&
           a->host_bytes == b->host_bytes && strcmp(a->what, b->what) == 0;
}

/* A step between budgets that reads well: 1, 2 or 5 times a power of ten of MiB below 1 GiB, of GiB
 * above it. */
static int64_t round_step(int64_t bytes)
{
    int64_t unit = bytes < INT64_C(1) << 30 ? INT64_C(1) << 20 : INT64_C(1) << 30, step = unit;
    static const int factors[] = {2, 5, 10};
    for (int64_t decade = unit;; decade *= 10)
        for (int i = 0; i < 3; i++) {
            if (step >= bytes) return step;
            step = decade * factors[i];
        }
}

/* Budgets in a row that do not fit are one point: the first. */
static enum ebb_status add_budget(struct ebb_setup *setup, struct ebb_sweep *sweep, int64_t budget)
{
    struct ebb_sweep_point point;
    setup->request.device_budget = budget;
    EBB_TRY(plan_point(setup, &point));
    if (sweep->count == EBB_SWEEP_POINTS) return EBB_OK;
    if (sweep->count > 0) {
        const struct ebb_sweep_point *last = &sweep->points[sweep->count - 1];
        if (same_plan(last, &point) || (!last->fits && !point.fits)) return EBB_OK;
    }
    sweep->points[sweep->count++] = point;
    return EBB_OK;
}

static bool any_fits(const struct ebb_sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++)
        if (sweep->points[i].fits) return true;
    return false;
}

static enum ebb_status sweep_budgets(struct ebb_setup *setup, struct ebb_sweep *sweep)
{
    struct ebb_sweep_point least, most;
    setup->request.device_budget = 0;
    EBB_TRY(plan_point(setup, &most));
    setup->request.device_budget = 1;
    EBB_TRY(plan_point(setup, &least));
    EBB_TRY(add_budget(setup, sweep, least.device_bytes));
    const int64_t step = round_step((most.device_bytes - least.device_bytes) / 12 + 1);
    for (int64_t at = (least.device_bytes / step + 1) * step; at < most.device_bytes; at += step)
        EBB_TRY(add_budget(setup, sweep, at));
    EBB_TRY(add_budget(setup, sweep, most.device_bytes));
    if (any_fits(sweep)) return EBB_OK;
    return EBB_FAIL(setup->ctx, EBB_DOES_NOT_FIT,
                    "run does not fit any budget: host_memory_budget is too small for what has "
                    "to move\ntry:   a larger host_memory_budget");
}

enum ebb_status ebb_sweep_memory(struct ebb_setup *setup, struct ebb_sweep *sweep)
{
    const int64_t budget = setup->request.device_budget;
    memset(sweep, 0, sizeof *sweep);
    sweep->title = "what a memory_budget gives";
    enum ebb_status status = sweep_budgets(setup, sweep);
    setup->request.device_budget = budget;
    return status;
}

/* ---- lengths ---- */

enum { LEAST = 512, GRAIN = 256 };
static const int64_t most_tokens = INT64_C(1) << 24;

static enum ebb_status try_length(struct ebb_setup *setup, struct ebb_sweep *sweep, int64_t length,
                                  bool *fits)
{
    struct ebb_sweep_point point;
    EBB_TRY(ebb_setup_assume(setup, length));
    if (setup->request.rates) EBB_TRY(ebb_outlook_load(setup));
    EBB_TRY(plan_point(setup, &point));
    *fits = point.fits;
    if (*fits && sweep->count < EBB_SWEEP_POINTS) sweep->points[sweep->count++] = point;
    return EBB_OK;
}

/* Between a length that fits and one that does not; the point of the longest found replaces those
 * on the way there. */
static enum ebb_status bisect(struct ebb_setup *setup, struct ebb_sweep *sweep, int64_t low,
                              int64_t high)
{
    const int kept = sweep->count;
    const int64_t grain = low / 128 > GRAIN ? low / 128 / GRAIN * GRAIN : GRAIN;
    while (high - low > grain) {
        int64_t middle = (low + high) / 2 / GRAIN * GRAIN;
        bool fits;
        EBB_TRY(try_length(setup, sweep, middle, &fits));
        if (!fits) {
            high = middle;
            continue;
        }
        low = middle;
        sweep->points[kept] = sweep->points[sweep->count - 1];
        sweep->count = kept + 1;
    }
    return EBB_OK;
}

enum ebb_status ebb_sweep_length(struct ebb_setup *setup, struct ebb_sweep *sweep)
{
    int64_t length = LEAST;
    bool fits = true;
    memset(sweep, 0, sizeof *sweep);
    sweep->lengths = true;
    sweep->title = "how long a row can be";
    for (; fits && length <= most_tokens; length *= 2) {
        if (sweep->count == EBB_SWEEP_POINTS - 2) /* the shortest tell the least */
            memmove(sweep->points, sweep->points + 1,
                    (size_t)--sweep->count * sizeof *sweep->points);
        EBB_TRY(try_length(setup, sweep, length, &fits));
    }
    return fits || length <= 2 * LEAST ? EBB_OK : bisect(setup, sweep, length / 4, length / 2);
}

/* ---- what is said ---- */

static double best_rate(const struct ebb_sweep *sweep)
{
    double best = 0;
    for (int i = 0; i < sweep->count; i++)
        if (sweep->points[i].fits && sweep->points[i].tokens_per_second > best)
            best = sweep->points[i].tokens_per_second;
    return best;
}

static enum ebb_status add_point(struct ebb_ctx *ctx, const struct ebb_sweep *sweep,
                                 const struct ebb_sweep_point *p, struct ebb_str *out)
{
    char first[32], device[32], host[32], speed[32] = "-", share[32] = "-";
    ebb_text_bytes(p->device_bytes, device, sizeof device);
    ebb_text_bytes(p->host_bytes, host, sizeof host);
    if (sweep->lengths)
        snprintf(first, sizeof first, "%lld", (long long)p->max_length);
    else
        ebb_text_bytes(p->budget, first, sizeof first);
    if (p->known && p->fits) {
        snprintf(speed, sizeof speed, "%.0f", p->tokens_per_second);
        if (sweep->lengths)
            snprintf(share, sizeof share, "%.3g s", p->seconds);
        else
            snprintf(share, sizeof share, "%.1f %%", 100 * p->tokens_per_second / best_rate(sweep));
    }
    return ebb_str_addf(ctx, out, "%14s%13s%12s%11s%10s  %s%s\n", first, device, host, speed, share,
                        p->fits ? "" : "does not fit the host's budget: ", p->what);
}

enum ebb_status ebb_sweep_table(struct ebb_ctx *ctx, const struct ebb_sweep *sweep,
                                struct ebb_str *out)
{
    EBB_TRY(ebb_str_addf(ctx, out, "%s\n%14s%13s%12s%11s%10s  %s\n", sweep->title,
                         sweep->lengths ? "max_length" : "memory_budget", "device", "host",
                         "tokens/s", sweep->lengths ? "step" : "of best", "choice"));
    for (int i = 0; i < sweep->count; i++) EBB_TRY(add_point(ctx, sweep, &sweep->points[i], out));
    return EBB_OK;
}

static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *point_json(const struct ebb_sweep_point *p)
{
    json_t *json = json_object();
    const bool known = p->known && p->fits;
    bool ok =
        json && put(json, "max_length", json_integer(p->max_length)) &&
        put(json, "fits", json_boolean(p->fits)) &&
        put(json, "memory_budget", json_integer(p->budget)) &&
        put(json, "total_bytes", json_integer(p->device_bytes)) &&
        put(json, "host_bytes", json_integer(p->host_bytes)) &&
        put(json, "step_seconds", known ? json_real(p->seconds) : json_null()) &&
        put(json, "tokens_per_second", known ? json_real(p->tokens_per_second) : json_null()) &&
        put(json, "choice", json_string(p->what));
    if (ok) return json;
    json_decref(json);
    return NULL;
}

json_t *ebb_sweep_json(const struct ebb_sweep *sweep)
{
    json_t *json = json_object(), *list = json_array();
    bool ok = json && list;
    for (int i = 0; ok && i < sweep->count; i++)
        ok = json_array_append_new(list, point_json(&sweep->points[i])) == 0;
    if (ok && put(json, "sweep", json_string(sweep->lengths ? "max_length" : "memory_budget")) &&
        json_object_set(json, "points", list) == 0) {
        json_decref(list);
        return json;
    }
    json_decref(list);
    json_decref(json);
    return NULL;
}
