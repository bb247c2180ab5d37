/* Layout inside a panel: ends, and labels where they cover least.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "plot/figure_layout_int.h"

enum { MARKER = 5, END_RADIUS = 7, LABEL_GAP = 6, PLACES = 16 };

/* ---- what a label would cover ---- */

static bool crosses(const struct ebb_rect *r, double x0, double y0, double x1, double y1)
{
    double from = 0, to = 1;
    const double delta[2] = {x1 - x0, y1 - y0}, start[2] = {x0, y0};
    const double low[2] = {r->x, r->y}, high[2] = {r->x + r->width, r->y + r->height};
    for (int i = 0; i < 2; i++) {
        if (fabs(delta[i]) < 1e-9) {
            if (start[i] < low[i] || start[i] > high[i]) return false;
            continue;
        }
        double a = (low[i] - start[i]) / delta[i], b = (high[i] - start[i]) / delta[i];
        from = fmax(from, fmin(a, b));
        to = fmin(to, fmax(a, b));
    }
    return from <= to;
}

/* How many stretches of curves run through the box; a point counts more than its line. */
static int64_t covered(const struct ebb_plot_panel *panel, const struct ebb_placed_panel *placed,
                       const struct ebb_rect *box)
{
    int64_t count = 0;
    for (int64_t i = 0; i < panel->curve_count; i++) {
        const struct ebb_plot_curve *c = &panel->curves[i];
        bool line = false;
        double x0 = 0, y0 = 0;
        for (int64_t k = 0; k < c->count; k++) {
            if (!isfinite(c->y[k])) {
                line = false;
                continue;
            }
            double x = ebb_layout_x(placed, c->x[k]), y = ebb_layout_y(placed, c->y[k]);
            const struct ebb_rect marker = {x - MARKER, y - MARKER, 2 * MARKER, 2 * MARKER};
            if (!line || c->style == EBB_STYLE_POINTS) {
                x0 = x;
                y0 = y;
            }
            count += crosses(box, x0, y0, x, y) + 3 * ebb_rect_overlap(box, &marker);
            x0 = x;
            y0 = y;
            line = true;
        }
    }
    for (int64_t i = 0; i < panel->end_count; i++) {
        const struct ebb_placed_end *end = &placed->ends[i];
        const struct ebb_rect mark = {end->x - END_RADIUS, end->y - END_RADIUS, 2 * END_RADIUS,
                                      2 * END_RADIUS};
        count += ebb_rect_overlap(box, &mark);
        count += end->linked && crosses(box, end->from_x, end->from_y, end->x, end->y);
    }
    return count;
}

static bool is_free(const struct ebb_layouter *l, const struct ebb_placed_panel *placed,
                    const struct ebb_rect *box)
{
    const struct ebb_rect *frame = &placed->frame;
    if (box->x < frame->x + 2 || box->x + box->width > frame->x + frame->width - 2 ||
        box->y < frame->y + 2 || box->y + box->height > frame->y + frame->height - 2)
        return false;
    for (int64_t i = 0; i < l->layout->text_count; i++)
        if (ebb_rect_overlap(&l->layout->texts[i].box, box)) return false;
    return true;
}

/* Puts the text into the best of `count` places (upper left corners), the earlier the better, if it
 * covers less than `bound` there. */
static enum ebb_status settle(struct ebb_layouter *l, int panel, const char *text,
                              const double (*places)[2], int count, int64_t bound, bool *settled)
{
    const struct ebb_placed_panel *placed = &l->layout->panels[panel];
    struct ebb_text_size size = ebb_layout_measure(l, EBB_TEXT_INSIDE, text);
    int64_t least = bound;
    int best = -1;
    for (int i = 0; i < count && least > 0; i++) {
        const struct ebb_rect box = {places[i][0], places[i][1], size.width,
                                     size.ascent + size.descent};
        if (!is_free(l, placed, &box)) continue;
        int64_t covers = covered(&l->figure->panels[panel], placed, &box);
        if (covers >= least) continue;
        least = covers;
        best = i;
    }
    *settled = best >= 0;
    if (best < 0) return EBB_OK;
    return ebb_layout_text(l, EBB_TEXT_INSIDE, places[best][0], places[best][1], INFINITY, text);
}

/* ---- limits ---- */

static bool within(const struct ebb_axis *axis, double value)
{
    return value >= axis->low && value <= axis->high;
}

static enum ebb_status lay_limit(struct ebb_layouter *l, int panel, int64_t i)
{
    struct ebb_placed_panel *placed = &l->layout->panels[panel];
    const struct ebb_plot_limit *limit = &l->figure->panels[panel].limits[i];
    const struct ebb_rect *f = &placed->frame;
    struct ebb_text_size size = ebb_layout_measure(l, EBB_TEXT_INSIDE, limit->text);
    const double gap = LABEL_GAP * l->layout->scale, height = size.ascent + size.descent;
    double places[PLACES][2];
    int count = 0;
    bool settled = false;
    for (int k = 0; k < 5; k++) {
        /* Along the line from its end, first on one side of it, then on the other. */
        double share = 1 - k / 4.0;
        for (int side = 0; side < 2; side++, count++) {
            if (limit->vertical) {
                double x = ebb_layout_x(placed, limit->at);
                places[count][0] = side ? x + gap : x - gap - size.width;
                places[count][1] = f->y + gap + (1 - share) * (f->height - height - 2 * gap);
            } else {
                double y = ebb_layout_y(placed, limit->at);
                places[count][0] = f->x + gap + share * (f->width - size.width - 2 * gap);
                places[count][1] = side ? y + gap / 2 : y - gap / 2 - height;
            }
        }
    }
    if (!(l->homeless[panel] & UINT64_C(1) << (i & 63)))
        EBB_TRY(settle(l, panel, limit->text, places, count, INT64_MAX, &settled));
    else
        settled = true;
    if (!settled && i < 64) {
        l->homeless[panel] |= UINT64_C(1) << i;
        l->again = true;
    }
    return EBB_OK;
}

static enum ebb_status lay_limits(struct ebb_layouter *l, int i)
{
    struct ebb_placed_panel *placed = &l->layout->panels[i];
    const struct ebb_plot_panel *panel = &l->figure->panels[i];
    if (panel->limit_count == 0) return EBB_OK;
    placed->limit_shown =
        ebb_mem_alloc(l->layout->ctx, (size_t)panel->limit_count * sizeof *placed->limit_shown);
    if (placed->limit_shown == NULL) return EBB_NO_MEMORY;
    for (int64_t k = 0; k < panel->limit_count; k++) {
        const struct ebb_plot_limit *limit = &panel->limits[k];
        placed->limit_shown[k] =
            !placed->empty && within(limit->vertical ? &placed->x : &placed->y, limit->at);
        if (placed->limit_shown[k]) EBB_TRY(lay_limit(l, i, k));
    }
    return EBB_OK;
}

/* ---- ends ---- */

/* The group's last value left of its end, of what was measured before what was predicted. */
static bool last_value(const struct ebb_plot_panel *panel, const struct ebb_plot_end *end,
                       double *x, double *y)
{
    static const enum ebb_plot_style order[] = {EBB_STYLE_MEASURED, EBB_STYLE_PEER,
                                                EBB_STYLE_PREDICTED};
    for (int s = 0; s < 3; s++)
        for (int64_t i = 0; i < panel->curve_count; i++) {
            const struct ebb_plot_curve *curve = &panel->curves[i];
            bool found = false;
            if (curve->group != end->group || curve->style != order[s]) continue;
            for (int64_t k = 0; k < curve->count; k++) {
                if (!isfinite(curve->y[k]) || curve->x[k] > end->x) continue;
                *x = curve->x[k];
                *y = curve->y[k];
                found = true;
            }
            if (found) return true;
        }
    return false;
}

/* Moves the mark left of those that are at the same place. */
static void step_aside(struct ebb_placed_panel *placed, int64_t i, double apart)
{
    struct ebb_placed_end *end = &placed->ends[i];
    for (int64_t k = 0; k < i; k++) {
        const struct ebb_placed_end *other = &placed->ends[k];
        if (fabs(other->x - end->x) >= apart - 0.01 || fabs(other->y - end->y) >= apart) continue;
        if (other->x - apart < placed->frame.x + apart / 2) return; /* no room: they share it */
        end->x = other->x - apart;
        k = -1;
    }
}

static enum ebb_status lay_ends(struct ebb_layouter *l, int i)
{
    struct ebb_placed_panel *placed = &l->layout->panels[i];
    const struct ebb_plot_panel *panel = &l->figure->panels[i];
    const double radius = END_RADIUS * l->layout->scale, inset = radius + 3 * l->layout->scale;
    const struct ebb_rect *f = &placed->frame;
    if (panel->end_count == 0 || placed->empty) return EBB_OK;
    placed->ends = ebb_mem_alloc(l->layout->ctx, (size_t)panel->end_count * sizeof *placed->ends);
    if (placed->ends == NULL) return EBB_NO_MEMORY;
    for (int64_t k = 0; k < panel->end_count; k++) {
        struct ebb_placed_end *end = &placed->ends[k];
        double x, y;
        end->group = panel->ends[k].group;
        end->x = fmin(fmax(ebb_layout_x(placed, panel->ends[k].x), f->x + inset),
                      f->x + f->width - inset);
        end->y = f->y + f->height - inset;
        end->linked = last_value(panel, &panel->ends[k], &x, &y);
        if (end->linked) { /* as high as that: what it would have been is not known */
            end->from_x = ebb_layout_x(placed, x);
            end->from_y = ebb_layout_y(placed, y);
            end->y = end->from_y;
        }
        step_aside(placed, k, 2 * radius + 2);
    }
    return EBB_OK;
}

/* Names what is at (x, y). The legend has it too, so it may go without. */
static enum ebb_status lay_label(struct ebb_layouter *l, int panel, double x, double y,
                                 const char *text, int64_t bound)
{
    struct ebb_text_size size = ebb_layout_measure(l, EBB_TEXT_INSIDE, text);
    const double gap = 1.8 * LABEL_GAP * l->layout->scale, height = size.ascent + size.descent;
    static const int directions[8][2] = {{1, 0},  {-1, 0}, {0, -1},  {0, 1},
                                         {1, -1}, {1, 1},  {-1, -1}, {-1, 1}};
    double places[8][2];
    bool settled;
    for (int i = 0; i < 8; i++) {
        places[i][0] = x + directions[i][0] * (size.width / 2 + gap) - size.width / 2;
        places[i][1] = y + directions[i][1] * (height / 2 + gap) - height / 2;
    }
    return settle(l, panel, text, (const double(*)[2])places, 8, bound, &settled);
}

static enum ebb_status lay_points(struct ebb_layouter *l, int i)
{
    const struct ebb_placed_panel *placed = &l->layout->panels[i];
    const struct ebb_plot_panel *panel = &l->figure->panels[i];
    for (int64_t c = 0; c < panel->curve_count; c++) {
        const struct ebb_plot_curve *curve = &panel->curves[c];
        if (curve->style != EBB_STYLE_POINTS) continue;
        for (int64_t k = 0; k < curve->count; k++)
            if (isfinite(curve->y[k]))
                EBB_TRY(lay_label(l, i, ebb_layout_x(placed, curve->x[k]),
                                  ebb_layout_y(placed, curve->y[k]),
                                  l->figure->groups[curve->group].name, INT64_MAX));
    }
    return EBB_OK;
}

enum ebb_status ebb_layout_inside(struct ebb_layouter *l, int i)
{
    const struct ebb_placed_panel *placed = &l->layout->panels[i];
    const struct ebb_plot_panel *panel = &l->figure->panels[i];
    EBB_TRY(lay_ends(l, i));
    EBB_TRY(lay_limits(l, i));
    if (placed->empty) return EBB_OK;
    EBB_TRY(lay_points(l, i));
    for (int64_t k = 0; k < panel->end_count; k++)
        EBB_TRY(lay_label(l, i, placed->ends[k].x, placed->ends[k].y, panel->ends[k].text, 1));
    return EBB_OK;
}
