/* results.json: read, made, written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *key;
    bool whole;
} fields[EBB_RESULTS_FIELDS] = {
#define FIELD(name, key, whole) {key, whole},
    EBB_RESULTS_FIELD_LIST(FIELD)
#undef FIELD
};
static const char *const kinds[] = {"length", "budget"};

static const double most_value = 9007199254740992.0; /* whole numbers are exact up to here */

const char *ebb_results_key(enum ebb_results_field field)
{
    return fields[field].key;
}

enum ebb_results_field ebb_results_along(enum ebb_results_kind kind)
{
    return kind == EBB_RESULTS_OF_LENGTHS ? EBB_RESULTS_LENGTH : EBB_RESULTS_BUDGET;
}

double ebb_results_place(enum ebb_results_kind kind, const struct ebb_results_point *point)
{
    static const enum ebb_results_field stands_in[] = {EBB_RESULTS_BUDGET, EBB_RESULTS_PROCESS,
                                                       EBB_RESULTS_PEAK,
                                                       EBB_RESULTS_PREDICTED_PROCESS,
                                                       EBB_RESULTS_PREDICTED_PEAK};
    if (kind == EBB_RESULTS_OF_LENGTHS) return point->values[EBB_RESULTS_LENGTH];
    for (size_t i = 0; i < sizeof stands_in / sizeof stands_in[0]; i++)
        if (isfinite(point->values[stands_in[i]])) return point->values[stands_in[i]];
    return NAN;
}

/* ---- making ---- */

enum ebb_status ebb_results_create(struct ebb_ctx *ctx, enum ebb_results_kind kind,
                                   struct ebb_results **results)
{
    *results = ebb_mem_alloc(ctx, sizeof **results);
    if (*results == NULL) return EBB_NO_MEMORY;
    (*results)->ctx = ctx;
    (*results)->kind = kind;
    (*results)->device_bytes = NAN;
    return EBB_OK;
}

void ebb_results_free(struct ebb_results *results)
{
    if (results == NULL) return;
    struct ebb_ctx *ctx = results->ctx;
    for (int64_t i = 0; i < results->count; i++) {
        struct ebb_results_series *s = &results->series[i];
        char *texts[] = {s->name, s->model, s->mode, s->reason, s->status};
        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) ebb_mem_free(ctx, texts[k]);
        ebb_mem_free(ctx, s->points);
    }
    char *texts[] = {results->title, results->device, results->driver, results->date,
                     results->command};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) ebb_mem_free(ctx, texts[k]);
    json_decref(results->setting);
    ebb_mem_free(ctx, results->series);
    ebb_mem_free(ctx, results);
}

enum ebb_status ebb_results_text(struct ebb_results *results, char **field, const char *text)
{
    char *copy = text ? ebb_mem_strdup(results->ctx, text) : NULL;
    if (text && copy == NULL) return EBB_NO_MEMORY;
    ebb_mem_free(results->ctx, *field);
    *field = copy;
    return EBB_OK;
}

enum ebb_status ebb_results_add(struct ebb_results *results, const char *name,
                                struct ebb_results_series **series)
{
    EBB_TRY(ebb_mem_grow(results->ctx, &results->series, results->count, &results->room,
                         sizeof *results->series));
    *series = &results->series[results->count];
    memset(*series, 0, sizeof **series);
    (*series)->ended_at = NAN;
    EBB_TRY(ebb_results_text(results, &(*series)->name, name));
    results->count++;
    return EBB_OK;
}

enum ebb_status ebb_results_point(struct ebb_results *results, struct ebb_results_series *series,
                                  struct ebb_results_point **point)
{
    EBB_TRY(ebb_mem_grow(results->ctx, &series->points, series->count, &series->room,
                         sizeof *series->points));
    *point = &series->points[series->count++];
    for (int i = 0; i < EBB_RESULTS_FIELDS; i++) (*point)->values[i] = NAN;
    return EBB_OK;
}

/* ---- reading ---- */

/* An object's keys are among `known`. */
static enum ebb_status check_keys(struct ebb_ctx *ctx, const char *where, const json_t *object,
                                  const char *const *known, size_t count)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;
        while (i < count && strcmp(known[i], key) != 0) i++;
        if (i < count) continue;
        const char *near = ebb_text_nearest(key, known, count);
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: there is no key '%.80s' here%s%s%s", where, key,
                        near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return EBB_OK;
}

static enum ebb_status want_object(struct ebb_ctx *ctx, const char *where, const json_t *json)
{
    if (json_is_object(json)) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: an object is wanted here", where);
}

static enum ebb_status read_text(struct ebb_results *results, const char *where,
                                 const json_t *object, const char *key, char **field)
{
    const char *text = NULL;
    bool found;
    EBB_TRY(ebb_json_string(results->ctx, where, object, key, &text, &found));
    return found ? ebb_results_text(results, field, text) : EBB_OK;
}

/* A value of a point; missing and null: NaN. */
static enum ebb_status read_value(struct ebb_ctx *ctx, const char *where, const json_t *object,
                                  enum ebb_results_field field, double *value)
{
    const char *key = fields[field].key;
    bool found;
    *value = NAN;
    EBB_TRY(ebb_json_double(ctx, where, object, key, value, &found));
    if (!found) return EBB_OK;
    bool negative = field != EBB_RESULTS_LOSS && *value < 0;
    bool fraction = fields[field].whole && *value != floor(*value);
    if (!negative && !fraction && fabs(*value) <= most_value) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: '%s' is %.17g, %s is wanted", where, key, *value,
                    fraction   ? "a whole number"
                    : negative ? "a number from 0 on"
                               : "a number below 2^53");
}

/* A positive value of the field that the kind is along. */
static enum ebb_status check_along(struct ebb_results *results, const char *where, double value,
                                   const char *instead)
{
    if (value > 0) return EBB_OK;
    return EBB_FAIL(results->ctx, EBB_BAD_FILE, "%s: '%s' above 0 is wanted in results over %ss%s",
                    where, fields[ebb_results_along(results->kind)].key, kinds[results->kind],
                    instead);
}

static enum ebb_status read_point(struct ebb_results *results, const char *where,
                                  struct ebb_results_series *series, const json_t *json)
{
    const char *known[EBB_RESULTS_FIELDS];
    struct ebb_results_point *point;
    for (int i = 0; i < EBB_RESULTS_FIELDS; i++) known[i] = fields[i].key;
    EBB_TRY(want_object(results->ctx, where, json));
    EBB_TRY(check_keys(results->ctx, where, json, known, EBB_RESULTS_FIELDS));
    EBB_TRY(ebb_results_point(results, series, &point));
    for (int i = 0; i < EBB_RESULTS_FIELDS; i++)
        EBB_TRY(
            read_value(results->ctx, where, json, (enum ebb_results_field)i, &point->values[i]));
    return check_along(results, where, ebb_results_place(results->kind, point),
                       results->kind == EBB_RESULTS_OF_LENGTHS ? ""
                                                               : ", or the memory that was taken");
}

static enum ebb_status read_ended(struct ebb_results *results, const char *where,
                                  struct ebb_results_series *series, const json_t *json)
{
    const enum ebb_results_field along = ebb_results_along(results->kind);
    const char *const known[] = {fields[along].key, "reason", "status"};
    if (json == NULL || json_is_null(json)) return EBB_OK;
    EBB_TRY(want_object(results->ctx, where, json));
    EBB_TRY(check_keys(results->ctx, where, json, known, 3));
    EBB_TRY(read_value(results->ctx, where, json, along, &series->ended_at));
    EBB_TRY(check_along(results, where, series->ended_at, ""));
    EBB_TRY(read_text(results, where, json, "status", &series->status));
    return read_text(results, where, json, "reason", &series->reason);
}

static enum ebb_status read_series(struct ebb_results *results, const char *path, size_t number,
                                   const json_t *json)
{
    static const char *const known[] = {"name", "model", "mode", "peer", "points", "ended"};
    struct ebb_results_series *series;
    const char *name;
    bool found;
    char where[320];
    snprintf(where, sizeof where, "%.200s: series[%zu]", path, number);
    EBB_TRY(want_object(results->ctx, where, json));
    EBB_TRY(check_keys(results->ctx, where, json, known, sizeof known / sizeof known[0]));
    EBB_TRY(ebb_json_string(results->ctx, where, json, "name", &name, NULL));
    EBB_TRY(ebb_results_add(results, name, &series));
    EBB_TRY(read_text(results, where, json, "model", &series->model));
    EBB_TRY(read_text(results, where, json, "mode", &series->mode));
    EBB_TRY(ebb_json_bool(results->ctx, where, json, "peer", &series->peer, &found));
    const json_t *points = json_object_get(json, "points");
    if (!json_is_array(points))
        return EBB_FAIL(results->ctx, EBB_BAD_FILE, "%s: 'points' is wanted, a list", where);
    for (size_t i = 0; i < json_array_size(points); i++) {
        snprintf(where, sizeof where, "%.200s: series[%zu].points[%zu]", path, number, i);
        EBB_TRY(read_point(results, where, series, json_array_get(points, i)));
    }
    snprintf(where, sizeof where, "%.200s: series[%zu].ended", path, number);
    return read_ended(results, where, series, json_object_get(json, "ended"));
}

static enum ebb_status read_machine(struct ebb_results *results, const char *path,
                                    const json_t *json)
{
    static const char *const known[] = {"device", "device_bytes", "driver", "date", "command"};
    struct ebb_ctx *ctx = results->ctx;
    char where[320];
    bool found;
    if (json == NULL || json_is_null(json)) return EBB_OK;
    snprintf(where, sizeof where, "%.200s: machine", path);
    EBB_TRY(want_object(ctx, where, json));
    EBB_TRY(check_keys(ctx, where, json, known, sizeof known / sizeof known[0]));
    EBB_TRY(read_text(results, where, json, "device", &results->device));
    EBB_TRY(read_text(results, where, json, "driver", &results->driver));
    EBB_TRY(read_text(results, where, json, "date", &results->date));
    EBB_TRY(read_text(results, where, json, "command", &results->command));
    int64_t bytes = 0;
    EBB_TRY(ebb_json_int64(ctx, where, json, "device_bytes", &bytes, &found));
    if (found && (bytes <= 0 || (double)bytes > most_value))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'device_bytes' is %lld, a size is wanted", where,
                        (long long)bytes);
    if (found) results->device_bytes = (double)bytes;
    return EBB_OK;
}

static enum ebb_status check_version(struct ebb_ctx *ctx, const char *path, const json_t *json)
{
    const char *format;
    int64_t version;
    EBB_TRY(want_object(ctx, path, json));
    EBB_TRY(ebb_json_string(ctx, path, json, "format", &format, NULL));
    if (strcmp(format, EBB_RESULTS_FORMAT) != 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'format' is '%.80s', '%s' is wanted", path, format,
                        EBB_RESULTS_FORMAT);
    EBB_TRY(ebb_json_int64(ctx, path, json, "version", &version, NULL));
    if (version == EBB_RESULTS_VERSION) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: results of version %lld, this program reads version %d%s", path,
                    (long long)version, EBB_RESULTS_VERSION,
                    version > EBB_RESULTS_VERSION ? ": a newer Ebb wrote it" : "");
}

static enum ebb_status read_kind(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                 enum ebb_results_kind *kind)
{
    const char *name;
    EBB_TRY(ebb_json_string(ctx, path, json, "kind", &name, NULL));
    for (int i = 0; i < 2; i++)
        if (strcmp(name, kinds[i]) == 0) {
            *kind = (enum ebb_results_kind)i;
            return EBB_OK;
        }
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'kind' is '%.80s', 'length' or 'budget' is wanted",
                    path, name);
}

static enum ebb_status read_whole(struct ebb_results *results, const char *path, const json_t *json)
{
    const json_t *series = json_object_get(json, "series");
    json_t *setting = json_object_get(json, "setting");
    if (setting && !json_is_null(setting)) {
        if (!json_is_object(setting))
            return EBB_FAIL(results->ctx, EBB_BAD_FILE, "%s: 'setting' is an object or missing",
                            path);
        results->setting = json_incref(setting);
    }
    EBB_TRY(read_text(results, path, json, "title", &results->title));
    EBB_TRY(read_machine(results, path, json_object_get(json, "machine")));
    if (!json_is_array(series))
        return EBB_FAIL(results->ctx, EBB_BAD_FILE, "%s: 'series' is wanted, a list", path);
    for (size_t i = 0; i < json_array_size(series); i++)
        EBB_TRY(read_series(results, path, i, json_array_get(series, i)));
    return EBB_OK;
}

enum ebb_status ebb_results_read(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                 struct ebb_results **results)
{
    static const char *const known[] = {"format",  "version", "kind",  "title",
                                        "machine", "setting", "series"};
    struct ebb_results *made;
    enum ebb_results_kind kind = EBB_RESULTS_OF_LENGTHS;
    *results = NULL;
    EBB_TRY(check_version(ctx, path, json));
    EBB_TRY(check_keys(ctx, path, json, known, sizeof known / sizeof known[0]));
    EBB_TRY(read_kind(ctx, path, json, &kind));
    EBB_TRY(ebb_results_create(ctx, kind, &made));
    enum ebb_status status = read_whole(made, path, json);
    if (status != EBB_OK) {
        ebb_results_free(made);
        return status;
    }
    *results = made;
    return EBB_OK;
}

/* ---- writing ---- */

/* What is NULL is left out. */
static bool put_text(json_t *object, const char *key, const char *text)
{
    return text == NULL || json_object_set_new(object, key, json_string(text)) == 0;
}

static bool put_value(json_t *object, enum ebb_results_field field, double value)
{
    if (!isfinite(value)) return true;
    json_t *number = fields[field].whole ? json_integer((json_int_t)value) : json_real(value);
    return json_object_set_new(object, fields[field].key, number) == 0;
}

/* NULL where it was not all put in. */
static json_t *checked(json_t *json, bool ok)
{
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static json_t *point_json(const struct ebb_results_point *point)
{
    json_t *json = json_object();
    bool ok = json != NULL;
    for (int i = 0; ok && i < EBB_RESULTS_FIELDS; i++)
        ok = put_value(json, (enum ebb_results_field)i, point->values[i]);
    return checked(json, ok);
}

static json_t *series_json(const struct ebb_results *results, const struct ebb_results_series *s)
{
    json_t *json = json_object(), *points = json_array();
    bool ok = json && put_text(json, "name", s->name) && put_text(json, "model", s->model) &&
              put_text(json, "mode", s->mode);
    if (ok && s->peer) ok = json_object_set_new(json, "peer", json_true()) == 0;
    for (int64_t i = 0; ok && i < s->count; i++)
        ok = json_array_append_new(points, point_json(&s->points[i])) == 0;
    if (ok) ok = json_object_set(json, "points", points) == 0;
    json_decref(points);
    if (ok && isfinite(s->ended_at)) {
        json_t *ended = json_object();
        ok = put_value(ended, ebb_results_along(results->kind), s->ended_at) &&
             put_text(ended, "reason", s->reason) && put_text(ended, "status", s->status) &&
             json_object_set(json, "ended", ended) == 0;
        json_decref(ended);
    }
    return checked(json, ok);
}

static json_t *machine_json(const struct ebb_results *r)
{
    json_t *json = json_object();
    bool ok = json && put_text(json, "device", r->device);
    if (ok && isfinite(r->device_bytes))
        ok = json_object_set_new(json, "device_bytes", json_integer((json_int_t)r->device_bytes)) ==
             0;
    ok = ok && put_text(json, "driver", r->driver) && put_text(json, "date", r->date) &&
         put_text(json, "command", r->command);
    return checked(json, ok);
}

json_t *ebb_results_json(const struct ebb_results *results)
{
    json_t *json = json_object(), *series = json_array();
    bool ok = json && put_text(json, "format", EBB_RESULTS_FORMAT) &&
              json_object_set_new(json, "version", json_integer(EBB_RESULTS_VERSION)) == 0 &&
              put_text(json, "kind", kinds[results->kind]) &&
              put_text(json, "title", results->title) &&
              json_object_set_new(json, "machine", machine_json(results)) == 0 &&
              (results->setting == NULL || json_object_set(json, "setting", results->setting) == 0);
    for (int64_t i = 0; ok && i < results->count; i++)
        ok = json_array_append_new(series, series_json(results, &results->series[i])) == 0;
    if (ok) ok = json_object_set(json, "series", series) == 0;
    json_decref(series);
    return checked(json, ok);
}
