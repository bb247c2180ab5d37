/* How groups are told apart: a colour and a marker each, and for what was predicted a dash.
 *
 * The colours differ in hue for most eyes and in lightness for all: each is lighter or darker than
 * every other by enough to be told apart on a grey print, and all are dark enough on white. The
 * first few, which most pictures have, are the farthest apart. Markers repeat after another number
 * of groups than colours, so that many groups still differ.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_PALETTE_H
#define EBB_PLOT_PALETTE_H

#include "plot/canvas.h"
#include "plot/figure.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_PALETTE_COLORS = 7, EBB_PALETTE_MARKERS = 9, EBB_PALETTE_DASHES = 4 };

/* group -1: what stands for no group in particular, grey. */
struct ebb_color ebb_palette_color(int group);
/* Lightness as the eye has it (CIE L*): 0 black, 100 white. */
double ebb_palette_lightness(struct ebb_color color);
/* The dash of a style: lengths at scale 1; *count 0: solid. Borrowed. */
const double *ebb_palette_dash(int group, enum ebb_plot_style style, int *count);
/* Draws the group's marker. A hollow one is white inside. */
void ebb_palette_marker(struct ebb_canvas *canvas, int group, double x, double y, double radius,
                        bool hollow);

#ifdef __cplusplus
}
#endif
#endif
