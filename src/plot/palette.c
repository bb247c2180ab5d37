/* Colours, markers, dashes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/palette.h"

#include <math.h>

static const unsigned colors[EBB_PALETTE_COLORS] = {
    0x12427d, /* dark blue, lightness 28 */
    0xc9511b, /* vermilion, lightness 50 */
    0xdfa81c, /* amber, lightness 72 */
    0x101010, /* black, lightness 4 */
    0x459dbf, /* sky, lightness 61 */
    0x186945, /* green, lightness 39 */
    0x491235, /* plum, lightness 16 */
};

struct ebb_color ebb_palette_color(int group)
{
    unsigned c = group < 0 ? 0x666666 : colors[group % EBB_PALETTE_COLORS];
    return (struct ebb_color){(c >> 16 & 255) / 255.0, (c >> 8 & 255) / 255.0, (c & 255) / 255.0};
}

static double linear(double value)
{
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

double ebb_palette_lightness(struct ebb_color color)
{
    double y =
        0.2126 * linear(color.red) + 0.7152 * linear(color.green) + 0.0722 * linear(color.blue);
    return y > 0.008856 ? 116 * cbrt(y) - 16 : 903.3 * y;
}

const double *ebb_palette_dash(int group, enum ebb_plot_style style, int *count)
{
    static const double dots[] = {1.6, 3}, dense[] = {3, 2};
    static const double dashes[EBB_PALETTE_DASHES][4] = {{8, 4, 8, 4},
                                                         {11, 3, 3, 3},
                                                         {5, 3, 5, 3},
                                                         {14, 4, 6, 4}};
    *count = 0;
    if (style == EBB_STYLE_SECOND) {
        *count = 2;
        return dots;
    }
    if (style == EBB_STYLE_PEER) {
        *count = 2;
        return dense;
    }
    if (style != EBB_STYLE_PREDICTED) return NULL;
    *count = 4;
    return dashes[group < 0 ? 0 : group % EBB_PALETTE_DASHES];
}

/* ---- markers ---- */

/* Corners around the centre, each `step` of a turn from the last; the radii take turns. */
static void star(struct ebb_canvas *canvas, double x, double y, int corners, double from,
                 double outer, double inner)
{
    for (int i = 0; i < corners; i++) {
        double angle = from + 6.283185307179586 * i / corners;
        double radius = i % 2 ? inner : outer;
        double px = x + radius * sin(angle), py = y - radius * cos(angle);
        if (i == 0)
            ebb_canvas_move(canvas, px, py);
        else
            ebb_canvas_line(canvas, px, py);
    }
    ebb_canvas_close(canvas);
}

static void outline(struct ebb_canvas *canvas, int shape, double x, double y, double r)
{
    const double turn = 6.283185307179586;
    switch (shape) {
    case 0:
        ebb_canvas_circle(canvas, x, y, r);
        break;
    case 1: /* square */
        ebb_canvas_rectangle(canvas, x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
        break;
    case 2: /* triangle */
        star(canvas, x, y + 0.2 * r, 3, 0, 1.3 * r, 1.3 * r);
        break;
    case 3: /* diamond */
        star(canvas, x, y, 4, 0, 1.3 * r, 1.3 * r);
        break;
    case 4: /* triangle on its tip */
        star(canvas, x, y - 0.2 * r, 3, turn / 2, 1.3 * r, 1.3 * r);
        break;
    case 5: /* star of four */
        star(canvas, x, y, 8, turn / 8, 1.45 * r, 0.55 * r);
        break;
    case 6: /* star of five */
        star(canvas, x, y, 10, 0, 1.45 * r, 0.62 * r);
        break;
    case 7: /* hexagon on its tip */
        star(canvas, x, y, 6, 0, 1.15 * r, 1.15 * r);
        break;
    default: /* star of four, upright */
        star(canvas, x, y, 8, 0, 1.5 * r, 0.5 * r);
        break;
    }
}

void ebb_palette_marker(struct ebb_canvas *canvas, int group, double x, double y, double radius,
                        bool hollow)
{
    const struct ebb_color white = {1, 1, 1};
    outline(canvas, group < 0 ? 0 : group % EBB_PALETTE_MARKERS, x, y, radius);
    if (hollow) {
        ebb_canvas_color(canvas, white);
        ebb_canvas_fill(canvas, true);
        ebb_canvas_color(canvas, ebb_palette_color(group));
        ebb_canvas_pen(canvas, radius * 0.42, NULL, 0);
        ebb_canvas_stroke(canvas);
    } else {
        ebb_canvas_color(canvas, ebb_palette_color(group));
        ebb_canvas_fill(canvas, true);
        ebb_canvas_color(canvas, white); /* a rim, so that lines below do not run into it */
        ebb_canvas_pen(canvas, radius * 0.2, NULL, 0);
        ebb_canvas_stroke(canvas);
    }
}
