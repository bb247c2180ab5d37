/* A figure as data: panels with axes, curves, limits and marks. It says what is shown; axis.h
 * chooses ranges and ticks, figure_layout.h where everything lies, figure_draw.h draws it. Nothing
 * here knows what was trained or measured.
 *
 * A group is one thing that is compared: a run, a model in one mode, another program. It has one
 * colour and one marker in all panels and one line in the legend. A curve shows one of its
 * quantities in one panel, and its style says what kind of a number that is.
 *
 * Text that is put in is copied, and made fit to draw: '?' for what is not UTF-8 and for control
 * characters. The figure owns all of it. One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_FIGURE_H
#define EBB_PLOT_FIGURE_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_FIGURE_PANELS = 4 };

enum ebb_plot_unit {
    EBB_UNIT_PLAIN,   /* a number of any size: 0.25, 2e-5 */
    EBB_UNIT_STEP,    /* whole numbers */
    EBB_UNIT_COUNT,   /* 12k is 12000 */
    EBB_UNIT_TOKENS,  /* the same, but on a log2 axis 4k is 4096 */
    EBB_UNIT_BYTES,   /* in the binary unit that suits the range */
    EBB_UNIT_SECONDS, /* plain, with the unit in the axis's title */
    EBB_UNIT_SHARE    /* 0.25 is 25 % */
};

enum ebb_plot_scale { EBB_SCALE_LINEAR, EBB_SCALE_LOG2, EBB_SCALE_LOG10 };

enum ebb_plot_style {
    EBB_STYLE_MEASURED,  /* solid, filled markers */
    EBB_STYLE_PREDICTED, /* dashed, hollow markers */
    EBB_STYLE_SPARSE,    /* thin, a marker at each of its few points */
    EBB_STYLE_SECOND,    /* dotted, no markers: a lesser quantity of the same panel */
    EBB_STYLE_POINTS,    /* markers alone, labelled with the group's name */
    EBB_STYLE_PEER,      /* closely dotted, filled markers: measured of another program */
    EBB_STYLE_COUNT
};

struct ebb_plot_axis {
    const char *title; /* borrowed constant */
    enum ebb_plot_unit unit;
    enum ebb_plot_scale scale; /* taken as linear where a value is not above zero */
    bool from_zero;            /* the range begins at zero where no value is below */
};

struct ebb_plot_curve {
    int group;
    enum ebb_plot_style style;
    double *x, *y; /* [count]; y NaN: a gap */
    int64_t count, room;
};

/* A line across the panel: a device's memory. */
struct ebb_plot_limit {
    bool vertical;
    double at;
    char *text;
};

/* Where a group came to its end: beyond it nothing ran. */
struct ebb_plot_end {
    int group;
    double x;
    char *text;
};

struct ebb_plot_panel {
    const char *title; /* borrowed constant */
    struct ebb_plot_axis x, y;
    struct ebb_plot_curve *curves;
    int64_t curve_count, curve_room;
    struct ebb_plot_limit *limits;
    int64_t limit_count, limit_room;
    struct ebb_plot_end *ends;
    int64_t end_count, end_room;
};

struct ebb_plot_group {
    char *name;
    char *remark; /* behind the name in the legend: where it ended; NULL: nothing */
};

struct ebb_figure {
    struct ebb_ctx *ctx;
    char *title, *note; /* never NULL once created */
    struct ebb_plot_group *groups;
    int64_t group_count, group_room;
    struct ebb_plot_panel panels[EBB_FIGURE_PANELS];
    int panel_count;
    /* What a style stands for in this figure, for the legend; NULL: it needs no saying. Borrowed
     * constants. */
    const char *styles[EBB_STYLE_COUNT];
};

/* Empty. The caller frees. */
enum ebb_status ebb_figure_create(struct ebb_ctx *ctx, struct ebb_figure **figure);
void ebb_figure_free(struct ebb_figure *figure); /* accepts NULL */

enum ebb_status ebb_figure_title(struct ebb_figure *figure, const char *title);
/* Adds to the note: machine, date, command. What it says already is not added again. */
enum ebb_status ebb_figure_note(struct ebb_figure *figure, const char *note);
enum ebb_status ebb_figure_group(struct ebb_figure *figure, const char *name, int *group);
enum ebb_status ebb_figure_remark(struct ebb_figure *figure, int group, const char *remark);
/* At most EBB_FIGURE_PANELS; the panel is the figure's. */
struct ebb_plot_panel *ebb_figure_panel(struct ebb_figure *figure, const char *title,
                                        struct ebb_plot_axis x, struct ebb_plot_axis y);
/* *curve stays valid until the panel's next curve is added. */
enum ebb_status ebb_figure_curve(struct ebb_figure *figure, struct ebb_plot_panel *panel, int group,
                                 enum ebb_plot_style style, struct ebb_plot_curve **curve);
/* x is finite; y that is not is a gap. */
enum ebb_status ebb_figure_point(struct ebb_figure *figure, struct ebb_plot_curve *curve, double x,
                                 double y);
/* The same limit again is one. */
enum ebb_status ebb_figure_limit(struct ebb_figure *figure, struct ebb_plot_panel *panel,
                                 bool vertical, double at, const char *text);
enum ebb_status ebb_figure_end(struct ebb_figure *figure, struct ebb_plot_panel *panel, int group,
                               double x, const char *text);

/* Drops the panels in which no curve has a value; their order stays. */
void ebb_figure_drop_empty(struct ebb_figure *figure);

/* A copy that can be drawn; NULL: no memory. */
char *ebb_figure_text(struct ebb_ctx *ctx, const char *text);

#ifdef __cplusplus
}
#endif
#endif
