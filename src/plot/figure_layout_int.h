/* What the files that lay figures out share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_FIGURE_LAYOUT_INT_H
#define EBB_PLOT_FIGURE_LAYOUT_INT_H

#include "plot/figure_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A layout being made. */
struct ebb_layouter {
    const struct ebb_figure *figure;
    struct ebb_layout *layout;
    ebb_plot_measure_fn measure;
    void *user;
    /* Limits that found no room in their panel, by panel and number below 64, the next pass has in
     * the legend. */
    uint64_t homeless[EBB_FIGURE_PANELS];
    bool again;       /* one was added */
    bool narrow, low; /* the page is too small for its panels */
};

struct ebb_text_size {
    double width, ascent, descent;
};

double ebb_layout_font(const struct ebb_layouter *l, enum ebb_text_kind kind);
struct ebb_text_size ebb_layout_measure(const struct ebb_layouter *l, enum ebb_text_kind kind,
                                        const char *text);
/* Adds a text whose box begins at (x, y); it ends with "..." where it is wider than `room`. */
enum ebb_status ebb_layout_text(struct ebb_layouter *l, enum ebb_text_kind kind, double x, double y,
                                double room, const char *text);
/* The panel's ends and the labels inside it; its frame and axes are known. */
enum ebb_status ebb_layout_inside(struct ebb_layouter *l, int panel);

#ifdef __cplusplus
}
#endif
#endif
