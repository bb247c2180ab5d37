/* results.json: what a sweep over lengths or budgets measured, one point a run, so that it can be
 * drawn, compared and published. docs/FORMATS.md describes it for those who write or read it.
 *
 *     {"format": "ebb results", "version": 1, "kind": "length" or "budget",
 *      "title": text,
 *      "machine": {"device", "device_bytes", "driver", "date", "command"},
 *      "setting": {...},
 *      "series": [{"name", "model", "mode", "peer", "points": [{...}], "ended": {...}}]}
 *
 * What "setting" holds is its writer's affair: by what it measured, so that it can go on.
 * Everything in a point is optional and null where it is not known, but for what the kind is
 * called after. An unknown key is an error that names the nearest: nothing is dropped silently.
 * Whoever adds a key that readers must know raises the version.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_RESULTS_H
#define EBB_PLOT_RESULTS_H

#include "base/json.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_RESULTS_FORMAT "ebb results"
enum { EBB_RESULTS_VERSION = 1 };

/* X(NAME, key, whole): whole ones are written as integers. Sizes in bytes, times in seconds of one
 * optimizer step, lengths in tokens. "device" sizes are of the arena, "process" ones all that the
 * device has for the process; "predicted" and "forecast" are what was said before the run. */
#define EBB_RESULTS_FIELD_LIST(X)                                                                  \
    X(LENGTH, "length", true)                                                                      \
    X(BUDGET, "budget_bytes", true)                                                                \
    X(PEAK, "peak_device_bytes", true)                                                             \
    X(PREDICTED_PEAK, "predicted_device_bytes", true)                                              \
    X(PROCESS, "process_device_bytes", true)                                                       \
    X(PREDICTED_PROCESS, "predicted_process_bytes", true)                                          \
    X(RESIDENT, "resident_device_bytes", true) /* between forward and backward */                  \
    X(EVAL_PEAK, "eval_peak_device_bytes", true)                                                   \
    X(HOST, "host_bytes", true)                                                                    \
    X(PREDICTED_HOST, "predicted_host_bytes", true)                                                \
    X(BYTES_OUT, "bytes_out", true)                                                                \
    X(BYTES_IN, "bytes_in", true)                                                                  \
    X(STALL, "stall_seconds", false)                                                               \
    X(SECONDS, "step_seconds", false)                                                              \
    X(FORECAST_SECONDS, "forecast_step_seconds", false)                                            \
    X(SPEED, "tokens_per_second", false)                                                           \
    X(FORECAST_SPEED, "forecast_tokens_per_second", false)                                         \
    X(LOSS, "loss", false)

enum ebb_results_field {
#define EBB_RESULTS_ENUM(name, key, whole) EBB_RESULTS_##name,
    EBB_RESULTS_FIELD_LIST(EBB_RESULTS_ENUM)
#undef EBB_RESULTS_ENUM
        EBB_RESULTS_FIELDS
};
const char *ebb_results_key(enum ebb_results_field field);

enum ebb_results_kind { EBB_RESULTS_OF_LENGTHS, EBB_RESULTS_OF_BUDGETS };

struct ebb_results_point {
    double values[EBB_RESULTS_FIELDS]; /* NaN: not known */
};

struct ebb_results_series {
    char *name;         /* owned, as all text here */
    char *model, *mode; /* may be NULL */
    bool peer;          /* another program's: single points, over lengths a dotted line */
    struct ebb_results_point *points;
    int64_t count, room;
    double ended_at; /* the length or budget that did not run; NaN: all did */
    char *reason;    /* why; may be NULL */
    char *status;    /* "does not fit", "killed", "failed"; may be NULL */
};

struct ebb_results {
    struct ebb_ctx *ctx;
    enum ebb_results_kind kind;
    char *title, *device, *driver, *date, *command; /* may be NULL */
    double device_bytes;                            /* of the whole device; NaN: not known */
    json_t *setting; /* an object, one reference to it is owned; may be NULL */
    struct ebb_results_series *series;
    int64_t count, room;
};

/* Without series; the caller frees. */
enum ebb_status ebb_results_create(struct ebb_ctx *ctx, enum ebb_results_kind kind,
                                   struct ebb_results **results);
void ebb_results_free(struct ebb_results *results); /* accepts NULL */
/* Copies the text; NULL: none. */
enum ebb_status ebb_results_text(struct ebb_results *results, char **field, const char *text);
/* *series stays valid until the next is added. */
enum ebb_status ebb_results_add(struct ebb_results *results, const char *name,
                                struct ebb_results_series **series);
/* A point that knows nothing yet; *point stays valid until the series' next. */
enum ebb_status ebb_results_point(struct ebb_results *results, struct ebb_results_series *series,
                                  struct ebb_results_point **point);

/* The field that points stand along. */
enum ebb_results_field ebb_results_along(enum ebb_results_kind kind);
/* Where a point of budgets stands: its budget, else what memory it took; NaN: nowhere. */
double ebb_results_place(enum ebb_results_kind kind, const struct ebb_results_point *point);

/* EBB_BAD_FILE with what is wrong and where: "FILE: series[2].points[0]: ...". `path` is for
 * messages. The caller frees. */
enum ebb_status ebb_results_read(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                 struct ebb_results **results);
/* The caller owns it; NULL: no memory. What is not known is left out. */
json_t *ebb_results_json(const struct ebb_results *results);

#ifdef __cplusplus
}
#endif
#endif
