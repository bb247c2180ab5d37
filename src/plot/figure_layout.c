/* Layout of a page: title, note, legend, and the panels' frames and axes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/figure_layout_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Pixels at scale 1. */
enum {
    MARGIN = 18,
    GAP = 8,
    SAMPLE = 40,
    BETWEEN_ENTRIES = 24,
    BETWEEN_PANELS = 22,
    TICK = 5,
    FRAME_WIDTH = 110, /* at least, of a panel's frame */
    FRAME_HEIGHT = 80,
    NOTE_LINES = 3
};

static const struct {
    double font;
    bool bold;
} kinds[EBB_TEXT_KIND_COUNT] = {
    [EBB_TEXT_TITLE] = {20, true},  [EBB_TEXT_NOTE] = {12, false}, [EBB_TEXT_PANEL] = {14.5, true},
    [EBB_TEXT_AXIS] = {13, false},  [EBB_TEXT_TICK] = {12, false}, [EBB_TEXT_LEGEND] = {13, false},
    [EBB_TEXT_INSIDE] = {12, false}};

bool ebb_text_is_bold(enum ebb_text_kind kind)
{
    return kinds[kind].bold;
}

bool ebb_rect_overlap(const struct ebb_rect *a, const struct ebb_rect *b)
{
    return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height &&
           b->y < a->y + a->height;
}

double ebb_layout_x(const struct ebb_placed_panel *panel, double value)
{
    return panel->frame.x + panel->frame.width * ebb_axis_place(&panel->x, value);
}

double ebb_layout_y(const struct ebb_placed_panel *panel, double value)
{
    return panel->frame.y + panel->frame.height * (1 - ebb_axis_place(&panel->y, value));
}

/* ---- text ---- */

double ebb_layout_font(const struct ebb_layouter *l, enum ebb_text_kind kind)
{
    return kinds[kind].font * l->layout->scale;
}

struct ebb_text_size ebb_layout_measure(const struct ebb_layouter *l, enum ebb_text_kind kind,
                                        const char *text)
{
    struct ebb_text_size size;
    l->measure(l->user, text, ebb_layout_font(l, kind), kinds[kind].bold, &size.width, &size.ascent,
               &size.descent);
    return size;
}

static double height_of(const struct ebb_layouter *l, enum ebb_text_kind kind)
{
    struct ebb_text_size size = ebb_layout_measure(l, kind, "Ag");
    return size.ascent + size.descent;
}

/* The start of the last character before `at`. */
static size_t step_back(const char *text, size_t at)
{
    do at--;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

/* Cuts the text to what fits, "..." at its end. */
static void shorten(const struct ebb_layouter *l, enum ebb_text_kind kind, double room, char *text)
{
    size_t bytes = strlen(text);
    if (ebb_layout_measure(l, kind, text).width <= room) return;
    /* Room for the dots: a cut text has at least three bytes less, or is dots alone. */
    while (bytes > 3) {
        bytes = step_back(text, bytes);
        if (bytes + 3 > strlen(text)) continue;
        memcpy(text + bytes, "...", 4);
        if (ebb_layout_measure(l, kind, text).width <= room) return;
    }
}

static enum ebb_status add_text(struct ebb_layouter *l, const struct ebb_placed_text *text)
{
    struct ebb_layout *layout = l->layout;
    EBB_TRY(ebb_mem_grow(layout->ctx, &layout->texts, layout->text_count, &layout->text_room,
                         sizeof *layout->texts));
    layout->texts[layout->text_count++] = *text;
    return EBB_OK;
}

/* Takes `text` over. */
static enum ebb_status place(struct ebb_layouter *l, enum ebb_text_kind kind, double x, double y,
                             bool upright, char *text)
{
    if (text == NULL) return EBB_NO_MEMORY;
    struct ebb_text_size size = ebb_layout_measure(l, kind, text);
    double height = size.ascent + size.descent;
    struct ebb_placed_text placed = {
        kind, {x, y, size.width, height}, x, y + size.ascent, ebb_layout_font(l, kind), upright,
        text};
    if (upright) {
        placed.box = (struct ebb_rect){x, y, height, size.width};
        placed.x = x + size.ascent;
        placed.y = y + size.width;
    }
    enum ebb_status status = add_text(l, &placed);
    if (status != EBB_OK) ebb_mem_free(l->layout->ctx, text);
    return status;
}

enum ebb_status ebb_layout_text(struct ebb_layouter *l, enum ebb_text_kind kind, double x, double y,
                                double room, const char *text)
{
    char *copy = ebb_mem_strdup(l->layout->ctx, text);
    if (copy) shorten(l, kind, room, copy);
    return place(l, kind, x, y, false, copy);
}

/* ---- title and note ---- */

/* How many bytes of the text, up to a blank where there is one, are no wider than `room`. */
static size_t fitting(const struct ebb_layouter *l, const char *text, double room)
{
    char line[512];
    size_t best = 0, bytes = strlen(text);
    if (bytes >= sizeof line) bytes = step_back(text, sizeof line - 1);
    for (size_t at = 0; at < bytes;) {
        size_t end = at + strspn(text + at, " ");
        end += strcspn(text + end, " ");
        if (end > bytes) end = bytes;
        memcpy(line, text, end);
        line[end] = 0;
        if (ebb_layout_measure(l, EBB_TEXT_NOTE, line).width > room) break;
        best = at = end;
    }
    return best;
}

static enum ebb_status lay_note(struct ebb_layouter *l, double *top)
{
    const double x = MARGIN * l->layout->scale, room = l->layout->width - 2 * x;
    const char *text = l->figure->note;
    for (int line = 0; *text && line < NOTE_LINES; line++) {
        size_t bytes = line + 1 < NOTE_LINES ? fitting(l, text, room) : 0;
        if (bytes == 0) bytes = strlen(text); /* the last line, or one long word: cut */
        char *part = ebb_mem_strndup(l->layout->ctx, text, bytes);
        if (part) shorten(l, EBB_TEXT_NOTE, room, part);
        EBB_TRY(place(l, EBB_TEXT_NOTE, x, *top, false, part));
        *top += height_of(l, EBB_TEXT_NOTE);
        text += bytes;
        text += strspn(text, " ");
    }
    return EBB_OK;
}

static enum ebb_status lay_head(struct ebb_layouter *l, double *top)
{
    const double scale = l->layout->scale, x = MARGIN * scale;
    *top = MARGIN * scale;
    if (l->figure->title[0]) {
        EBB_TRY(ebb_layout_text(l, EBB_TEXT_TITLE, x, *top, l->layout->width - 2 * x,
                                l->figure->title));
        *top += height_of(l, EBB_TEXT_TITLE) + 2 * scale;
    }
    EBB_TRY(lay_note(l, top));
    *top += GAP * scale;
    return EBB_OK;
}

/* ---- legend ---- */

static enum ebb_status add_sample(struct ebb_layouter *l, const struct ebb_placed_sample *sample)
{
    struct ebb_layout *layout = l->layout;
    EBB_TRY(ebb_mem_grow(layout->ctx, &layout->samples, layout->sample_count, &layout->sample_room,
                         sizeof *layout->samples));
    layout->samples[layout->sample_count++] = *sample;
    return EBB_OK;
}

/* Where the next entry goes; rows count from the legend's top. */
struct legend {
    double x, y;
};

/* Takes `text` over. */
static enum ebb_status add_entry(struct ebb_layouter *l, struct legend *at,
                                 struct ebb_placed_sample sample, char *text)
{
    const double scale = l->layout->scale, left = MARGIN * scale,
                 line = height_of(l, EBB_TEXT_LEGEND);
    const double before = (SAMPLE + GAP) * scale, room = l->layout->width - 2 * left - before;
    if (text == NULL) return EBB_NO_MEMORY;
    shorten(l, EBB_TEXT_LEGEND, room, text);
    double width = before + ebb_layout_measure(l, EBB_TEXT_LEGEND, text).width;
    if (at->x > left && at->x + width > l->layout->width - left) {
        at->x = left;
        at->y += line + 5 * scale;
    }
    sample.box = (struct ebb_rect){at->x, at->y, SAMPLE * scale, line};
    enum ebb_status status = add_sample(l, &sample);
    if (status != EBB_OK) {
        ebb_mem_free(l->layout->ctx, text);
        return status;
    }
    EBB_TRY(place(l, EBB_TEXT_LEGEND, at->x + before, at->y, false, text));
    at->x += width + BETWEEN_ENTRIES * scale;
    return EBB_OK;
}

static bool uses(const struct ebb_figure *figure, int group, enum ebb_plot_style style)
{
    for (int p = 0; p < figure->panel_count; p++)
        for (int64_t i = 0; i < figure->panels[p].curve_count; i++) {
            const struct ebb_plot_curve *curve = &figure->panels[p].curves[i];
            if ((group < 0 || curve->group == group) && curve->style == style && curve->count > 0)
                return true;
        }
    return false;
}

/* The style that a group's sample has: of its most telling curve. */
static enum ebb_plot_style sample_style(const struct ebb_figure *figure, int group)
{
    static const enum ebb_plot_style order[] = {EBB_STYLE_MEASURED, EBB_STYLE_PREDICTED,
                                                EBB_STYLE_PEER, EBB_STYLE_POINTS,
                                                EBB_STYLE_SPARSE};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (uses(figure, group, order[i])) return order[i];
    return EBB_STYLE_SECOND;
}

static enum ebb_status add_groups(struct ebb_layouter *l, struct legend *at)
{
    const struct ebb_figure *figure = l->figure;
    for (int i = 0; i < figure->group_count; i++) {
        const struct ebb_plot_group *group = &figure->groups[i];
        char *text = group->remark
                         ? ebb_mem_format(figure->ctx, "%s (%s)", group->name, group->remark)
                         : ebb_mem_strdup(figure->ctx, group->name);
        struct ebb_placed_sample sample = {{0}, i, sample_style(figure, i), false};
        EBB_TRY(add_entry(l, at, sample, text));
    }
    for (int i = 0; i < EBB_STYLE_COUNT; i++) {
        enum ebb_plot_style style = (enum ebb_plot_style)i;
        struct ebb_placed_sample sample = {{0}, -1, style, false};
        if (figure->styles[i] && uses(figure, -1, style))
            EBB_TRY(add_entry(l, at, sample, ebb_mem_strdup(figure->ctx, figure->styles[i])));
    }
    return EBB_OK;
}

static enum ebb_status add_limits(struct ebb_layouter *l, struct legend *at)
{
    for (int p = 0; p < l->figure->panel_count; p++)
        for (int64_t i = 0; i < l->figure->panels[p].limit_count && i < 64; i++) {
            struct ebb_placed_sample sample = {{0}, -1, EBB_STYLE_MEASURED, true};
            if (!(l->homeless[p] & UINT64_C(1) << i)) continue;
            EBB_TRY(add_entry(l, at, sample,
                              ebb_mem_strdup(l->figure->ctx, l->figure->panels[p].limits[i].text)));
        }
    return EBB_OK;
}

/* Lays the legend from 0 down, then moves it to the page's bottom. */
static enum ebb_status lay_legend(struct ebb_layouter *l, double *bottom)
{
    struct ebb_layout *layout = l->layout;
    const double scale = layout->scale;
    const int64_t first_text = layout->text_count;
    struct legend at = {MARGIN * scale, 0};
    EBB_TRY(add_groups(l, &at));
    EBB_TRY(add_limits(l, &at));
    *bottom = layout->height - MARGIN * scale;
    if (layout->sample_count == 0) return EBB_OK;
    *bottom -= at.y + height_of(l, EBB_TEXT_LEGEND);
    for (int64_t i = first_text; i < layout->text_count; i++) {
        layout->texts[i].box.y += *bottom;
        layout->texts[i].y += *bottom;
    }
    for (int64_t i = 0; i < layout->sample_count; i++) layout->samples[i].box.y += *bottom;
    *bottom -= 1.5 * GAP * scale;
    return EBB_OK;
}

/* ---- a panel's axes ---- */

struct range {
    double low, high;
    bool any;
};

static void extend(struct range *range, double value)
{
    if (!range->any || value < range->low) range->low = value;
    if (!range->any || value > range->high) range->high = value;
    range->any = true;
}

/* What the axes must show. A limit far above all values would press them flat: it is not shown,
 * unless something ended there. */
static void find_ranges(const struct ebb_plot_panel *panel, struct range *x, struct range *y)
{
    const double near = 1.6;
    memset(x, 0, sizeof *x);
    memset(y, 0, sizeof *y);
    for (int64_t i = 0; i < panel->curve_count; i++)
        for (int64_t k = 0; k < panel->curves[i].count; k++) {
            if (!isfinite(panel->curves[i].y[k])) continue;
            extend(x, panel->curves[i].x[k]);
            extend(y, panel->curves[i].y[k]);
        }
    for (int64_t i = 0; y->any && i < panel->end_count; i++) extend(x, panel->ends[i].x);
    for (int64_t i = 0; y->any && i < panel->limit_count; i++) {
        const struct ebb_plot_limit *limit = &panel->limits[i];
        struct range *range = limit->vertical ? x : y;
        bool ended = !limit->vertical && panel->end_count > 0;
        if (limit->at >= range->low && (ended || limit->at <= near * range->high))
            extend(range, limit->at);
    }
}

/* A panel's room on the page, and what its axes take of it. */
struct cell {
    struct ebb_rect room;
    double left, right, top, bottom;
};

static double widest(const struct ebb_layouter *l, const struct ebb_axis *axis)
{
    double most = 0;
    for (int i = 0; i < axis->count; i++)
        most = fmax(most, ebb_layout_measure(l, EBB_TEXT_TICK, axis->label[i]).width);
    return most;
}

static void choose_y(struct ebb_layouter *l, int i, const struct range *range, struct cell *cell)
{
    const double scale = l->layout->scale, tick = height_of(l, EBB_TEXT_TICK);
    cell->top = height_of(l, EBB_TEXT_PANEL) + GAP * scale;
    cell->bottom =
        TICK * scale + 0.5 * GAP * scale + tick + height_of(l, EBB_TEXT_AXIS) + 0.5 * GAP * scale;
    double height = cell->room.height - cell->top - cell->bottom;
    int most = height > 0 ? (int)(height / (2.6 * tick)) : 2;
    struct ebb_axis *y = &l->layout->panels[i].y;
    ebb_axis_choose(&l->figure->panels[i].y, range->low, range->high, most < 9 ? most : 9, y);
    cell->left =
        height_of(l, EBB_TEXT_AXIS) + GAP * scale + widest(l, y) + TICK * scale + 0.5 * GAP * scale;
}

/* The most ticks whose labels stand apart. */
static void choose_x(struct ebb_layouter *l, int i, const struct range *range, double width)
{
    struct ebb_axis *x = &l->layout->panels[i].x;
    const double apart = 10 * l->layout->scale;
    for (int most = 12; most >= 2; most--) {
        bool clear = true;
        ebb_axis_choose(&l->figure->panels[i].x, range->low, range->high, most, x);
        for (int k = 1; k < x->count; k++) {
            double a = ebb_layout_measure(l, EBB_TEXT_TICK, x->label[k - 1]).width;
            double b = ebb_layout_measure(l, EBB_TEXT_TICK, x->label[k]).width;
            double step = ebb_axis_place(x, x->at[k]) - ebb_axis_place(x, x->at[k - 1]);
            clear = clear && step * width >= (a + b) / 2 + apart;
        }
        if (clear) return;
    }
}

static enum ebb_status lay_ticks(struct ebb_layouter *l, int i)
{
    struct ebb_placed_panel *p = &l->layout->panels[i];
    const double scale = l->layout->scale;
    p->x_tick_y = p->frame.y + p->frame.height + TICK * scale;
    p->y_tick_x = p->frame.x - TICK * scale;
    for (int k = 0; k < p->x.count; k++) {
        double width = ebb_layout_measure(l, EBB_TEXT_TICK, p->x.label[k]).width;
        EBB_TRY(ebb_layout_text(l, EBB_TEXT_TICK, ebb_layout_x(p, p->x.at[k]) - width / 2,
                                p->x_tick_y + 0.5 * GAP * scale, INFINITY, p->x.label[k]));
    }
    for (int k = 0; k < p->y.count; k++) {
        double width = ebb_layout_measure(l, EBB_TEXT_TICK, p->y.label[k]).width;
        double height = height_of(l, EBB_TEXT_TICK);
        EBB_TRY(ebb_layout_text(l, EBB_TEXT_TICK, p->y_tick_x - 0.5 * GAP * scale - width,
                                ebb_layout_y(p, p->y.at[k]) - height / 2, INFINITY, p->y.label[k]));
    }
    return EBB_OK;
}

/* "device memory (GiB)" */
static char *axis_title(struct ebb_ctx *ctx, const char *title, const char *unit)
{
    return unit[0] ? ebb_mem_format(ctx, "%s (%s)", title, unit) : ebb_mem_strdup(ctx, title);
}

static enum ebb_status lay_titles(struct ebb_layouter *l, int i, const struct cell *cell)
{
    const struct ebb_plot_panel *panel = &l->figure->panels[i];
    struct ebb_placed_panel *p = &l->layout->panels[i];
    struct ebb_ctx *ctx = l->layout->ctx;
    EBB_TRY(ebb_layout_text(l, EBB_TEXT_PANEL, p->frame.x, cell->room.y,
                            cell->room.x + cell->room.width - p->frame.x, panel->title));
    char *x = axis_title(ctx, panel->x.title, p->x.unit);
    if (x == NULL) return EBB_NO_MEMORY;
    shorten(l, EBB_TEXT_AXIS, p->frame.width, x);
    double width = ebb_layout_measure(l, EBB_TEXT_AXIS, x).width;
    EBB_TRY(place(l, EBB_TEXT_AXIS, p->frame.x + (p->frame.width - width) / 2,
                  cell->room.y + cell->room.height - height_of(l, EBB_TEXT_AXIS), false, x));
    char *y = axis_title(ctx, panel->y.title, p->y.unit);
    if (y == NULL) return EBB_NO_MEMORY;
    shorten(l, EBB_TEXT_AXIS, p->frame.height, y);
    width = ebb_layout_measure(l, EBB_TEXT_AXIS, y).width;
    return place(l, EBB_TEXT_AXIS, cell->room.x, p->frame.y + (p->frame.height - width) / 2, true,
                 y);
}

static enum ebb_status lay_panel(struct ebb_layouter *l, int i, const struct cell *cell,
                                 const struct range *x, const struct range *y)
{
    struct ebb_placed_panel *p = &l->layout->panels[i];
    p->frame = (struct ebb_rect){cell->room.x + cell->left, cell->room.y + cell->top,
                                 cell->room.width - cell->left - cell->right,
                                 cell->room.height - cell->top - cell->bottom};
    p->empty = !y->any;
    choose_x(l, i, x, p->frame.width);
    if (!p->empty) EBB_TRY(lay_ticks(l, i));
    EBB_TRY(lay_titles(l, i, cell));
    return ebb_layout_inside(l, i);
}

/* ---- the page ---- */

static int columns_of(int panels)
{
    return panels == 4 ? 2 : panels < 1 ? 1 : panels;
}

void ebb_layout_page(const struct ebb_figure *figure, int *width, int *height)
{
    static const int sizes[EBB_FIGURE_PANELS + 1][2] = {
        {900, 600}, {900, 600}, {1400, 640}, {1800, 640}, {1400, 1000}};
    int beyond = (int)(figure->group_count < 200 ? figure->group_count : 200) - 6;
    *width = sizes[figure->panel_count][0];
    *height = sizes[figure->panel_count][1] + (beyond > 0 ? 12 * beyond : 0);
}

static enum ebb_status lay_panels(struct ebb_layouter *l, double top, double bottom)
{
    struct cell cells[EBB_FIGURE_PANELS];
    struct range x[EBB_FIGURE_PANELS], y[EBB_FIGURE_PANELS];
    const int panels = l->figure->panel_count, columns = columns_of(panels);
    const int rows = (panels + columns - 1) / columns;
    const double scale = l->layout->scale, margin = MARGIN * scale, gap = BETWEEN_PANELS * scale;
    const double width = (l->layout->width - 2 * margin - (columns - 1) * gap) / columns;
    const double height = rows ? (bottom - top - (rows - 1) * gap) / rows : 0;
    double left[EBB_FIGURE_PANELS] = {0}, right = 0;
    for (int i = 0; i < panels; i++) {
        find_ranges(&l->figure->panels[i], &x[i], &y[i]);
        cells[i].room = (struct ebb_rect){margin + i % columns * (width + gap),
                                          top + i / columns * (height + gap), width, height};
        choose_y(l, i, &y[i], &cells[i]);
        left[i % columns] = fmax(left[i % columns], cells[i].left);
        choose_x(l, i, &x[i], width);
        right = fmax(right, widest(l, &l->layout->panels[i].x) / 2);
    }
    for (int i = 0; i < panels; i++) {
        cells[i].left = left[i % columns]; /* frames of a column begin at one place */
        cells[i].right = right;
        double wide = FRAME_WIDTH * scale - (width - cells[i].left - right);
        double high = FRAME_HEIGHT * scale - (height - cells[i].top - cells[i].bottom);
        l->narrow = l->narrow || wide > 0;
        l->low = l->low || high > 0;
    }
    for (int i = 0; i < panels && !l->narrow && !l->low; i++)
        EBB_TRY(lay_panel(l, i, &cells[i], &x[i], &y[i]));
    return EBB_OK;
}

static void clear(struct ebb_layout *layout)
{
    for (int64_t i = 0; i < layout->text_count; i++)
        ebb_mem_free(layout->ctx, layout->texts[i].text);
    for (int i = 0; i < EBB_FIGURE_PANELS; i++) {
        ebb_mem_free(layout->ctx, layout->panels[i].ends);
        ebb_mem_free(layout->ctx, layout->panels[i].limit_shown);
    }
    memset(layout->panels, 0, sizeof layout->panels);
    layout->text_count = layout->sample_count = 0;
}

static enum ebb_status lay_page(struct ebb_layouter *l)
{
    enum { PASSES = 3 };
    for (int pass = 0; pass < PASSES; pass++) {
        double top, bottom;
        l->again = l->narrow = l->low = false;
        clear(l->layout);
        EBB_TRY(lay_head(l, &top));
        EBB_TRY(lay_legend(l, &bottom));
        EBB_TRY(lay_panels(l, top, bottom));
        if (!l->again) break;
    }
    return EBB_OK;
}

static void set_page(struct ebb_layout *layout, double width, double height)
{
    layout->width = width;
    layout->height = height;
    layout->scale = fmin(fmax(sqrt(width * height / (1400.0 * 900)), 0.75), 4);
}

/* Looks for a page that is large enough, and names it. */
static enum ebb_status fail_size(struct ebb_layouter *l)
{
    enum { TRIES = 64 };
    const double width = l->layout->width, height = l->layout->height;
    for (int i = 0; i < TRIES && (l->narrow || l->low); i++) {
        set_page(l->layout, ceil(l->layout->width * (l->narrow ? 1.1 : 1)),
                 ceil(l->layout->height * (l->low ? 1.1 : 1)));
        EBB_TRY(lay_page(l));
    }
    char advice[80] = "";
    if (!l->narrow && !l->low)
        snprintf(advice, sizeof advice, "\ntry:   --width %.0f --height %.0f", l->layout->width,
                 l->layout->height);
    return EBB_FAIL(l->layout->ctx, EBB_BAD_CONFIG,
                    "a picture of %.0f by %.0f pixels is too small for %d panels and %lld names%s",
                    width, height, l->figure->panel_count, (long long)l->figure->group_count,
                    advice);
}

enum ebb_status ebb_layout_create(const struct ebb_figure *figure, int width, int height,
                                  ebb_plot_measure_fn measure, void *user,
                                  struct ebb_layout **layout)
{
    *layout = NULL;
    struct ebb_layout *made = ebb_mem_alloc(figure->ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->ctx = figure->ctx;
    made->panel_count = figure->panel_count;
    set_page(made, width, height);
    struct ebb_layouter l = {.figure = figure, .layout = made, .measure = measure, .user = user};
    enum ebb_status status = lay_page(&l);
    if (status == EBB_OK && (l.narrow || l.low)) status = fail_size(&l);
    if (status != EBB_OK) {
        ebb_layout_free(made);
        return status;
    }
    *layout = made;
    return EBB_OK;
}

void ebb_layout_free(struct ebb_layout *layout)
{
    if (layout == NULL) return;
    clear(layout);
    ebb_mem_free(layout->ctx, layout->texts);
    ebb_mem_free(layout->ctx, layout->samples);
    ebb_mem_free(layout->ctx, layout);
}
