/* What the files that read inputs share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_INPUTS_INT_H
#define EBB_PLOT_INPUTS_INT_H

#include "plot/inputs.h"
#include "plot/results.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Panels for runs' metrics, still empty; then one run after the other. */
void ebb_metrics_panels(struct ebb_figure *figure);
enum ebb_status ebb_metrics_add_run(struct ebb_figure *figure, const struct ebb_plot_input *input,
                                    const char *data, size_t bytes);
/* Chooses scales by what all runs have. */
void ebb_metrics_finish(struct ebb_figure *figure);

/* 'ebb plan --json' over budgets or lengths, as results that are forecasts alone. */
enum ebb_status ebb_sweep_read(struct ebb_ctx *ctx, const struct ebb_plot_input *input,
                               const json_t *json, struct ebb_results **results);
/* Results of one kind as panels; inputs[i].name tells names that clash apart. */
enum ebb_status ebb_results_figure(struct ebb_figure *figure, struct ebb_results *const *results,
                                   const struct ebb_plot_input *inputs, int count);

#ifdef __cplusplus
}
#endif
#endif
