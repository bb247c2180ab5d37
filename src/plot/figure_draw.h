/* A figure as a file: laid out, drawn, written whole or not at all.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_FIGURE_DRAW_H
#define EBB_PLOT_FIGURE_DRAW_H

#include "plot/figure.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `path` ends in .png or .svg. Width and height in pixels; 0: what suits the figure
 * (ebb_layout_page), or for one of them alone its share of that; they become what is drawn. */
enum ebb_status ebb_figure_draw(const struct ebb_figure *figure, const char *path, int *width,
                                int *height, int64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
