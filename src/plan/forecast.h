/* A forecast: how long a plan's step takes, found by running its programs on paper.
 *
 * Each entry begins when its queue is free and what it waits for has ended, as on a device, and
 * takes what rates say. So stalls come out by themselves, and the parts add up as those of a
 * profile do.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_FORECAST_H
#define EBB_FORECAST_H

#include "plan/rates.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An optimizer step: so many micro-batches, all alike. */
struct ebb_forecast_load {
    int64_t micro_batches;
    int64_t labels, docs;
    const int32_t *doc_starts; /* [docs + 1]; borrowed */
};

struct ebb_forecast {
    /* False: the rates lack a class that the plan needs; nothing else is filled then. */
    bool known;
    double seconds; /* of a step */
    struct ebb_part_time parts[EBB_PART_COUNT];
};

struct ebb_plan;

/* TRAIN and UPDATE of an ordered plan. A load beyond the plan's capacity is cut to it. */
enum ebb_status ebb_forecast_step(struct ebb_ctx *ctx, const struct ebb_plan *plan,
                                  const struct ebb_rates *rates,
                                  const struct ebb_forecast_load *load,
                                  struct ebb_forecast *forecast);

#ifdef __cplusplus
}
#endif
#endif
