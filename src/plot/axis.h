/* Ranges, ticks and their labels, chosen by the data.
 *
 * Linear axes have ticks at 1, 2 or 5 times a power of ten of their unit (of MiB or GiB for bytes),
 * log2 axes at powers of two, log10 axes at powers of ten, with 2 and 5 times them where there are
 * few. All labels of an axis have the same unit and the same number of decimals.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_AXIS_H
#define EBB_PLOT_AXIS_H

#include "plot/figure.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_AXIS_TICKS = 24, EBB_AXIS_LABEL = 24 };

struct ebb_axis {
    double low, high; /* low < high; what the axis shows, margins included */
    enum ebb_plot_scale scale;
    int count;
    double at[EBB_AXIS_TICKS]; /* rising, within low and high */
    char label[EBB_AXIS_TICKS][EBB_AXIS_LABEL];
    const char *unit; /* for the axis's title: "GiB"; "": none. Constant */
};

/* For values from `low` to `high` (finite; equal ones are given room). At most `most` ticks, from 2
 * to EBB_AXIS_TICKS; a log axis over few powers may have one alone. */
void ebb_axis_choose(const struct ebb_plot_axis *wanted, double low, double high, int most,
                     struct ebb_axis *axis);
/* 0 at the low end, 1 at the high one. */
double ebb_axis_place(const struct ebb_axis *axis, double value);

/* "4k" for 4096, "1M" for 1048576, "3000" for what is no whole multiple of 1024. */
const char *ebb_axis_length(double tokens, char out[EBB_AXIS_LABEL]);

#ifdef __cplusplus
}
#endif
#endif
