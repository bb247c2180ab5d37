/* What is drawn on: a PNG or an SVG file by the ending of its name, through cairo.
 *
 * cairo is loaded when the first canvas is opened. It needs fontconfig and, as distributions build
 * it, libraries of the X Window System: linked, some fifteen libraries would be loaded by every
 * `ebb`, on machines too that have none of them and never draw.
 *
 * Lengths are in pixels from the upper left corner. Text is of one sans-serif family, whatever the
 * system has; where it has no font at all cairo draws with strokes of its own.
 *
 * The file is written whole or not at all. One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLOT_CANVAS_H
#define EBB_PLOT_CANVAS_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_canvas;

enum ebb_canvas_kind { EBB_CANVAS_PNG, EBB_CANVAS_SVG };

enum { EBB_CANVAS_SIDE = 16384 }; /* pixels at most */

/* By the name's ending, in any case. EBB_BAD_CONFIG for another one. */
enum ebb_status ebb_canvas_kind_of(struct ebb_ctx *ctx, const char *path,
                                   enum ebb_canvas_kind *kind);
/* A white canvas for `path`. EBB_UNSUPPORTED where cairo is not there, with what to install. The
 * caller saves or frees. */
enum ebb_status ebb_canvas_open(struct ebb_ctx *ctx, const char *path, int width, int height,
                                struct ebb_canvas **canvas);
/* Writes the file and frees the canvas; *bytes: of the file. What failed while drawing is told
 * here. */
enum ebb_status ebb_canvas_save(struct ebb_canvas *canvas, int64_t *bytes);
void ebb_canvas_free(struct ebb_canvas *canvas); /* writes nothing; accepts NULL */

struct ebb_color {
    double red, green, blue; /* 0 to 1, sRGB */
};

/* How a text would stand: its advance, and how far it can reach above and below its baseline. The
 * signature is that of ebb_plot_measure_fn; `canvas` is a struct ebb_canvas. */
void ebb_canvas_measure(void *canvas, const char *text, double size, bool bold, double *width,
                        double *ascent, double *descent);

void ebb_canvas_color(struct ebb_canvas *canvas, struct ebb_color color);
/* `dashes`: lengths of dash and gap in turns, NULL or 0 of them: solid. */
void ebb_canvas_pen(struct ebb_canvas *canvas, double width, const double *dashes, int count);
void ebb_canvas_move(struct ebb_canvas *canvas, double x, double y);
void ebb_canvas_line(struct ebb_canvas *canvas, double x, double y);
void ebb_canvas_close(struct ebb_canvas *canvas);
void ebb_canvas_circle(struct ebb_canvas *canvas, double x, double y, double radius);
void ebb_canvas_rectangle(struct ebb_canvas *canvas, double x, double y, double width,
                          double height);
/* Both end the path; with `keep` it can be drawn once more. */
void ebb_canvas_stroke(struct ebb_canvas *canvas);
void ebb_canvas_fill(struct ebb_canvas *canvas, bool keep);
/* From its baseline's left end, or, turned left, from its lower end. */
void ebb_canvas_text(struct ebb_canvas *canvas, double x, double y, const char *text, double size,
                     bool bold, bool upright);

#ifdef __cplusplus
}
#endif
#endif
