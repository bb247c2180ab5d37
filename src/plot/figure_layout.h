/* Where everything of a figure lies on its page, as data: a test can ask whether texts overlap.
 *
 * From top to bottom: title, note, panels in a grid, legend. The legend is outside the panels, so
 * it covers nothing. Sizes of text follow the page's size. Texts that are wider than their room end
 * with "...". Labels inside a panel (limits, ends, single points) go to the free place nearest to
 * what they name; a limit that finds none is in the legend, where the others' groups are anyway.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_FIGURE_LAYOUT_H
#define EBB_PLOT_FIGURE_LAYOUT_H

#include "plot/axis.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_rect {
    double x, y, width, height; /* of the upper left corner */
};

enum ebb_text_kind {
    EBB_TEXT_TITLE,
    EBB_TEXT_NOTE,
    EBB_TEXT_PANEL, /* a panel's title */
    EBB_TEXT_AXIS,  /* an axis's */
    EBB_TEXT_TICK,
    EBB_TEXT_LEGEND,
    EBB_TEXT_INSIDE, /* a label in a panel */
    EBB_TEXT_KIND_COUNT
};

struct ebb_placed_text {
    enum ebb_text_kind kind;
    struct ebb_rect box;
    double x, y;  /* of the baseline's begin */
    double size;  /* of the font, pixels */
    bool upright; /* turned left by a right angle */
    char *text;   /* owned */
};

/* A line's sample in the legend. */
struct ebb_placed_sample {
    struct ebb_rect box;
    int group; /* -1: of a style, or of a limit */
    enum ebb_plot_style style;
    bool limit;
};

/* A group's end in a panel. */
struct ebb_placed_end {
    int group;
    double x, y;           /* the mark's centre */
    bool linked;           /* from the group's last value in this panel */
    double from_x, from_y; /* where that is */
};

struct ebb_placed_panel {
    struct ebb_rect frame;
    struct ebb_axis x, y;
    double x_tick_y, y_tick_x;   /* ends of the tick marks */
    bool empty;                  /* no value at all */
    struct ebb_placed_end *ends; /* [the panel's end_count] */
    bool *limit_shown;           /* [the panel's limit_count]: within the axes */
};

struct ebb_layout {
    struct ebb_ctx *ctx;
    double width, height, scale; /* scale: of text and lines, 1 at 1400 by 900 */
    struct ebb_placed_text *texts;
    int64_t text_count, text_room;
    struct ebb_placed_sample *samples;
    int64_t sample_count, sample_room;
    struct ebb_placed_panel panels[EBB_FIGURE_PANELS];
    int panel_count;
};

/* How a text would stand: its advance, and how far it can reach above and below its baseline. */
typedef void (*ebb_plot_measure_fn)(void *user, const char *text, double size, bool bold,
                                    double *width, double *ascent, double *descent);

/* EBB_BAD_CONFIG if the page is too small, with a size that would do. The caller frees. */
enum ebb_status ebb_layout_create(const struct ebb_figure *figure, int width, int height,
                                  ebb_plot_measure_fn measure, void *user,
                                  struct ebb_layout **layout);
void ebb_layout_free(struct ebb_layout *layout); /* accepts NULL */

/* The page that suits a figure by its number of panels and groups. */
void ebb_layout_page(const struct ebb_figure *figure, int *width, int *height);

bool ebb_rect_overlap(const struct ebb_rect *a, const struct ebb_rect *b);
bool ebb_text_is_bold(enum ebb_text_kind kind);
/* Where a value is on the page. */
double ebb_layout_x(const struct ebb_placed_panel *panel, double value);
double ebb_layout_y(const struct ebb_placed_panel *panel, double value);

#ifdef __cplusplus
}
#endif
#endif
