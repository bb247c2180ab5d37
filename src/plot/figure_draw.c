/* Draws a figure by its layout.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/figure_draw.h"

#include <math.h>

#include "plot/canvas.h"
#include "plot/figure_layout.h"
#include "plot/palette.h"

enum { DASHES = 8, ALL_MARKED = 40, MARKED = 12, MANY = 300 };

static const struct ebb_color ink = {0.13, 0.13, 0.13}, faint = {0.87, 0.87, 0.87},
                              edge = {0.45, 0.45, 0.45}, limit_ink = {0.3, 0.3, 0.3},
                              paper = {1, 1, 1};

struct drawing {
    const struct ebb_figure *figure;
    const struct ebb_layout *layout;
    struct ebb_canvas *canvas;
    double scale;
};

/* Dashes are given at scale 1. */
static void set_pen(const struct drawing *d, double width, const double *dashes, int count)
{
    double scaled[DASHES];
    EBB_ASSERT(count <= DASHES);
    for (int i = 0; i < count; i++) scaled[i] = dashes[i] * d->scale;
    ebb_canvas_pen(d->canvas, width * d->scale, count ? scaled : NULL, count);
}

static void segment(const struct drawing *d, double x0, double y0, double x1, double y1)
{
    ebb_canvas_move(d->canvas, x0, y0);
    ebb_canvas_line(d->canvas, x1, y1);
    ebb_canvas_stroke(d->canvas);
}

/* ---- a panel's frame ---- */

static void draw_frame(const struct drawing *d, const struct ebb_placed_panel *p)
{
    const struct ebb_rect *f = &p->frame;
    ebb_canvas_color(d->canvas, faint);
    set_pen(d, 1, NULL, 0);
    for (int i = 0; i < p->x.count && !p->empty; i++) {
        double x = ebb_layout_x(p, p->x.at[i]);
        segment(d, x, f->y, x, f->y + f->height);
    }
    for (int i = 0; i < p->y.count && !p->empty; i++) {
        double y = ebb_layout_y(p, p->y.at[i]);
        segment(d, f->x, y, f->x + f->width, y);
    }
    ebb_canvas_color(d->canvas, edge);
    ebb_canvas_rectangle(d->canvas, f->x, f->y, f->width, f->height);
    ebb_canvas_stroke(d->canvas);
    for (int i = 0; i < p->x.count && !p->empty; i++) {
        double x = ebb_layout_x(p, p->x.at[i]);
        segment(d, x, f->y + f->height, x, p->x_tick_y);
    }
    for (int i = 0; i < p->y.count && !p->empty; i++) {
        double y = ebb_layout_y(p, p->y.at[i]);
        segment(d, f->x, y, p->y_tick_x, y);
    }
}

static void limit_pen(const struct drawing *d)
{
    static const double dashes[] = {12, 4, 2, 4};
    ebb_canvas_color(d->canvas, limit_ink);
    set_pen(d, 1.4, dashes, 4);
}

static void draw_limits(const struct drawing *d, int i)
{
    const struct ebb_placed_panel *p = &d->layout->panels[i];
    const struct ebb_plot_panel *panel = &d->figure->panels[i];
    const struct ebb_rect *f = &p->frame;
    limit_pen(d);
    for (int64_t k = 0; k < panel->limit_count; k++) {
        const struct ebb_plot_limit *limit = &panel->limits[k];
        if (!p->limit_shown[k]) continue;
        if (limit->vertical) {
            double x = ebb_layout_x(p, limit->at);
            segment(d, x, f->y, x, f->y + f->height);
        } else {
            double y = ebb_layout_y(p, limit->at);
            segment(d, f->x, y, f->x + f->width, y);
        }
    }
}

/* ---- curves ---- */

static void set_curve_pen(const struct drawing *d, int group, enum ebb_plot_style style)
{
    static const double widths[EBB_STYLE_COUNT] = {2.2, 2, 1.2, 1.8, 0, 1.6};
    int count;
    const double *dash = ebb_palette_dash(group, style, &count);
    ebb_canvas_color(d->canvas, ebb_palette_color(group));
    set_pen(d, widths[style], dash, count);
}

/* A column of pixels that a curve passes: where it came in, how far it went, where it left. */
struct column {
    double x, low, high, last;
    bool any;
};

static void end_column(const struct drawing *d, struct column *c)
{
    if (!c->any) return;
    if (c->low < c->high) {
        ebb_canvas_line(d->canvas, c->x, c->low);
        ebb_canvas_line(d->canvas, c->x, c->high);
    }
    ebb_canvas_line(d->canvas, c->x, c->last);
    c->any = false;
}

/* The line, with a gap at each NaN. Of many points in one column of pixels only the lowest, the
 * highest and the last are drawn: it looks the same, and the file of a long run stays small. */
static void draw_line(const struct drawing *d, const struct ebb_placed_panel *p,
                      const struct ebb_plot_curve *curve)
{
    struct column c = {0};
    bool down = false;
    set_curve_pen(d, curve->group, curve->style);
    if (curve->count > MANY && curve->style == EBB_STYLE_MEASURED) set_pen(d, 1.2, NULL, 0);
    for (int64_t i = 0; i < curve->count; i++) {
        if (!isfinite(curve->y[i])) {
            end_column(d, &c);
            if (down) ebb_canvas_stroke(d->canvas);
            down = false;
            continue;
        }
        double x = ebb_layout_x(p, curve->x[i]), y = ebb_layout_y(p, curve->y[i]);
        if (!down) {
            ebb_canvas_move(d->canvas, x, y);
            down = true;
        } else if (c.any && fabs(x - c.x) < 0.5) {
            c.low = fmin(c.low, y);
            c.high = fmax(c.high, y);
            c.last = y;
        } else {
            end_column(d, &c);
            c = (struct column){x, y, y, y, true};
        }
    }
    end_column(d, &c);
    if (down) ebb_canvas_stroke(d->canvas);
}

/* Points between gaps have no line: they are marked in any case. */
static bool stands_alone(const struct ebb_plot_curve *curve, int64_t i)
{
    return (i == 0 || !isfinite(curve->y[i - 1])) &&
           (i + 1 == curve->count || !isfinite(curve->y[i + 1]));
}

static void draw_markers(const struct drawing *d, const struct ebb_placed_panel *p,
                         const struct ebb_plot_curve *curve)
{
    const bool hollow = curve->style == EBB_STYLE_PREDICTED || curve->style == EBB_STYLE_SPARSE;
    const double radius = (curve->style == EBB_STYLE_POINTS ? 6.5 : 5) * d->scale;
    bool all = curve->style == EBB_STYLE_POINTS || curve->count <= ALL_MARKED;
    int64_t every = all ? 1 : curve->count / MARKED;
    int64_t first = all ? 0 : (1 + 2 * (curve->group % 4)) * every / 8; /* not above each other */
    for (int64_t i = 0; i < curve->count; i++) {
        bool marked = i >= first && (i - first) % every == 0 && curve->style != EBB_STYLE_SECOND;
        if (!isfinite(curve->y[i]) || !(marked || stands_alone(curve, i))) continue;
        ebb_palette_marker(d->canvas, curve->group, ebb_layout_x(p, curve->x[i]),
                           ebb_layout_y(p, curve->y[i]), radius, hollow);
    }
}

/* What was predicted lies below what was measured. */
static void draw_curves(const struct drawing *d, int i)
{
    static const enum ebb_plot_style order[EBB_STYLE_COUNT] = {
        EBB_STYLE_SECOND,   EBB_STYLE_PREDICTED, EBB_STYLE_PEER,
        EBB_STYLE_MEASURED, EBB_STYLE_SPARSE,    EBB_STYLE_POINTS};
    const struct ebb_plot_panel *panel = &d->figure->panels[i];
    const struct ebb_placed_panel *p = &d->layout->panels[i];
    if (p->empty) return;
    for (int s = 0; s < EBB_STYLE_COUNT; s++) {
        for (int64_t k = 0; k < panel->curve_count; k++)
            if (panel->curves[k].style == order[s] && order[s] != EBB_STYLE_POINTS)
                draw_line(d, p, &panel->curves[k]);
        for (int64_t k = 0; k < panel->curve_count; k++)
            if (panel->curves[k].style == order[s]) draw_markers(d, p, &panel->curves[k]);
    }
}

/* A cross in the group's colour, and a dotted way to it. */
static void draw_ends(const struct drawing *d, int i)
{
    static const double dots[] = {1.5, 4};
    const struct ebb_placed_panel *p = &d->layout->panels[i];
    const double r = 5 * d->scale;
    for (int64_t k = 0; p->ends && k < d->figure->panels[i].end_count; k++) {
        const struct ebb_placed_end *end = &p->ends[k];
        ebb_canvas_color(d->canvas, ebb_palette_color(end->group));
        set_pen(d, 1.4, dots, 2);
        if (end->linked) segment(d, end->from_x, end->from_y, end->x, end->y);
        for (int layer = 0; layer < 2; layer++) {
            ebb_canvas_color(d->canvas, layer ? ebb_palette_color(end->group) : paper);
            set_pen(d, layer ? 2.6 : 5.5, NULL, 0);
            segment(d, end->x - r, end->y - r, end->x + r, end->y + r);
            segment(d, end->x - r, end->y + r, end->x + r, end->y - r);
        }
    }
}

/* ---- legend and text ---- */

static void draw_sample(const struct drawing *d, const struct ebb_placed_sample *s)
{
    const double y = s->box.y + s->box.height / 2, middle = s->box.x + s->box.width / 2;
    if (s->limit)
        limit_pen(d);
    else
        set_curve_pen(d, s->group, s->style);
    if (s->limit || s->style != EBB_STYLE_POINTS)
        segment(d, s->box.x, y, s->box.x + s->box.width, y);
    if (s->limit || s->style == EBB_STYLE_SECOND) return;
    if (s->group < 0 && s->style == EBB_STYLE_MEASURED) return;
    ebb_palette_marker(d->canvas, s->group, middle, y, 5 * d->scale,
                       s->style == EBB_STYLE_PREDICTED || s->style == EBB_STYLE_SPARSE);
}

static void draw_text(const struct drawing *d, const struct ebb_placed_text *t)
{
    if (t->kind == EBB_TEXT_INSIDE) { /* on paper of its own, for lines that pass below */
        ebb_canvas_color(d->canvas, paper);
        ebb_canvas_rectangle(d->canvas, t->box.x - 2, t->box.y, t->box.width + 4, t->box.height);
        ebb_canvas_fill(d->canvas, false);
    }
    ebb_canvas_color(d->canvas, t->kind == EBB_TEXT_NOTE ? edge : ink);
    ebb_canvas_text(d->canvas, t->x, t->y, t->text, t->size, ebb_text_is_bold(t->kind), t->upright);
}

static void draw_empty(const struct drawing *d, const struct ebb_placed_panel *p)
{
    static const char text[] = "no values";
    double width, ascent, descent, size = 13 * d->scale;
    ebb_canvas_measure(d->canvas, text, size, false, &width, &ascent, &descent);
    ebb_canvas_color(d->canvas, edge);
    ebb_canvas_text(d->canvas, p->frame.x + (p->frame.width - width) / 2,
                    p->frame.y + p->frame.height / 2, text, size, false, false);
}

static void draw(const struct drawing *d)
{
    for (int i = 0; i < d->layout->panel_count; i++) {
        draw_frame(d, &d->layout->panels[i]);
        draw_limits(d, i);
        draw_curves(d, i);
        draw_ends(d, i);
        if (d->layout->panels[i].empty) draw_empty(d, &d->layout->panels[i]);
    }
    for (int64_t i = 0; i < d->layout->sample_count; i++) draw_sample(d, &d->layout->samples[i]);
    for (int64_t i = 0; i < d->layout->text_count; i++) draw_text(d, &d->layout->texts[i]);
}

enum ebb_status ebb_figure_draw(const struct ebb_figure *figure, const char *path, int *width,
                                int *height, int64_t *bytes)
{
    struct ebb_canvas *canvas = NULL;
    struct ebb_layout *layout = NULL;
    int wide, high;
    ebb_layout_page(figure, &wide, &high);
    if (*width <= 0) *width = *height > 0 ? (int)((int64_t)*height * wide / high) : wide;
    if (*width > EBB_CANVAS_SIDE) *width = EBB_CANVAS_SIDE;
    if (*height <= 0) *height = *width == wide ? high : (int)((int64_t)*width * high / wide);
    if (*height > EBB_CANVAS_SIDE) *height = EBB_CANVAS_SIDE;
    EBB_TRY(ebb_canvas_open(figure->ctx, path, *width, *height, &canvas));
    enum ebb_status status =
        ebb_layout_create(figure, *width, *height, ebb_canvas_measure, canvas, &layout);
    if (status != EBB_OK) {
        ebb_canvas_free(canvas);
        return status;
    }
    struct drawing drawing = {figure, layout, canvas, layout->scale};
    draw(&drawing);
    ebb_layout_free(layout);
    return ebb_canvas_save(canvas, bytes);
}
