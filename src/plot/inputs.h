/* Figures from files. What a file is shows in its content:
 *
 *   - a run's metrics: JSON lines with "step". Loss, gradient norm, learning rate and memory
 * against the step. A step that comes again, as after a resume from an older checkpoint, replaces
 * what was from there on. A last line that is cut off (the run is still writing) is left out.
 *   - results of a sweep over lengths or budgets (results.h).
 *   - plans over budgets or lengths, as 'ebb plan --json' prints them: a forecast.
 *
 * Files of one kind share a picture; results and plans over the same thing do too.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_INPUTS_H
#define EBB_PLOT_INPUTS_H

#include "plot/figure.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_plot_input {
    const char *path;
    const char *name; /* what its curves are called where the file has no names for them */
};

/* EBB_BAD_FILE for a file that is none of these, says nothing, or is wrong somewhere;
 * EBB_BAD_CONFIG for files that cannot share a picture. The caller frees. */
enum ebb_status ebb_inputs_figure(struct ebb_ctx *ctx, const struct ebb_plot_input *inputs,
                                  int count, struct ebb_figure **figure);

#ifdef __cplusplus
}
#endif
#endif
