/* The outlook of a run: how long its steps will take, beside what they would take with unlimited
 * memory. Forecasts are made over micro-batches as the data has them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_OUTLOOK_H
#define EBB_RECIPE_OUTLOOK_H

#include "plan/forecast.h"
#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A step of the run, on average. */
struct ebb_step_forecast {
    struct ebb_forecast step;
    double tokens;         /* in it */
    int64_t micro_batches; /* gradient_accumulation_steps */
    int64_t looked_at;     /* micro-batches of the data that it is the mean of; 0: assumed ones */
};

/* With data: the mean over at most 16 micro-batches spread over an epoch. Without: full rows of
 * max_length tokens, in documents of doc_length where that is given, with a label for every token
 * but the first of a document. */
enum ebb_status ebb_forecast_run(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                 const struct ebb_rates *rates, struct ebb_step_forecast *forecast);

struct ebb_outlook {
    bool known;             /* false: nobody knows this device's rates; nothing else is filled */
    struct ebb_rates rates; /* that it was made with */
    struct ebb_step_forecast step;
    /* The same run with everything kept on the device, and what it would need of it; step.known
     * false: that cannot be planned. */
    struct ebb_step_forecast kept;
    int64_t kept_bytes;
};

/* Of the engine's plan: without `kept`, and with it. */
enum ebb_status ebb_outlook_step(const struct ebb_setup *setup, const struct ebb_engine *engine,
                                 struct ebb_outlook *outlook);
enum ebb_status ebb_outlook_make(const struct ebb_setup *setup, const struct ebb_engine *engine,
                                 struct ebb_outlook *outlook);
/* Adds lines that follow ebb_fit_table's. */
enum ebb_status ebb_outlook_table(const struct ebb_setup *setup, const struct ebb_outlook *outlook,
                                  struct ebb_str *out);
/* The caller owns it; NULL: no memory. A JSON null where nothing is known. */
json_t *ebb_outlook_json(const struct ebb_outlook *outlook);
/* setup->load: the micro-batch that a plan is searched by. With data the largest of at most 16 that
 * are spread over an epoch, else what ebb_forecast_run assumes. Again after another max_length. */
enum ebb_status ebb_outlook_load(struct ebb_setup *setup);
/* "689 ms", "3.43 s": three digits. */
enum { EBB_OUTLOOK_TIME = 32 };
const char *ebb_outlook_time(double seconds, char out[EBB_OUTLOOK_TIME]);
/* What most of a step's time goes to: "matrix products", "attention", "the link to the host". */
const char *ebb_outlook_bound(const struct ebb_forecast *step);

#ifdef __cplusplus
}
#endif
#endif
