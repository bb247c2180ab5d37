/* The canvas: cairo through one table of functions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/canvas.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include <cairo-svg.h>
#include <cairo.h>

#include "base/file.h"
#include "base/library.h"

#define CAIRO_FILE "libcairo.so.2"

/* clang-format off */
#define CAIRO_FUNCTIONS(X) \
    X(image_surface_create) X(surface_write_to_png_stream) X(svg_surface_create_for_stream) \
    X(svg_surface_set_document_unit) X(surface_finish) X(surface_status) X(surface_destroy) \
    X(create) X(destroy) X(status) X(status_to_string) X(set_source_rgb) X(paint) \
    X(set_line_width) X(set_line_join) X(set_line_cap) X(set_dash) X(new_path) X(new_sub_path) \
    X(move_to) X(line_to) X(close_path) X(arc) X(rectangle) X(stroke) X(fill) X(fill_preserve) \
    X(select_font_face) X(set_font_size) X(font_extents) X(text_extents) X(show_text) \
    X(font_options_create) X(font_options_destroy) X(font_options_set_hint_metrics) \
    X(font_options_set_hint_style) X(font_options_set_antialias) X(set_font_options) \
    X(save) X(restore) X(translate) X(rotate)
/* clang-format on */

struct cairo_table {
#define X(name) __typeof__(cairo_##name) *name;
    CAIRO_FUNCTIONS(X)
#undef X
};

struct ebb_canvas {
    struct ebb_ctx *ctx;
    struct ebb_library *library;
    struct cairo_table f;
    enum ebb_canvas_kind kind;
    struct ebb_writer *writer; /* NULL once committed or given up */
    enum ebb_status written;   /* what the writer said, which cairo cannot hand on */
    cairo_surface_t *surface;
    cairo_t *cairo;
};

/* ---- the library ---- */

static enum ebb_status load(struct ebb_canvas *canvas)
{
    static const struct ebb_library_function functions[] = {
#define X(name) {"cairo_" #name, offsetof(struct cairo_table, name)},
        CAIRO_FUNCTIONS(X)
#undef X
    };
    EBB_TRY(ebb_library_open(canvas->ctx, CAIRO_FILE,
                             "cairo draws the picture: apt install libcairo2", &canvas->library));
    return ebb_library_find(canvas->library, functions, sizeof functions / sizeof functions[0],
                            &canvas->f);
}

/* ---- files ---- */

enum ebb_status ebb_canvas_kind_of(struct ebb_ctx *ctx, const char *path,
                                   enum ebb_canvas_kind *kind)
{
    const char *dot = strrchr(path, '.');
    if (dot && strcasecmp(dot, ".png") == 0)
        *kind = EBB_CANVAS_PNG;
    else if (dot && strcasecmp(dot, ".svg") == 0)
        *kind = EBB_CANVAS_SVG;
    else
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "output '%s' names no kind of picture: its name must end in .png or .svg",
                        path);
    return EBB_OK;
}

static cairo_status_t write_bytes(void *closure, const unsigned char *data, unsigned int bytes)
{
    struct ebb_canvas *canvas = closure;
    if (canvas->writer == NULL) return CAIRO_STATUS_SUCCESS; /* given up */
    if (canvas->written == EBB_OK) canvas->written = ebb_writer_write(canvas->writer, data, bytes);
    return canvas->written == EBB_OK ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static enum ebb_status fail_cairo(struct ebb_canvas *canvas, cairo_status_t status)
{
    if (canvas->written != EBB_OK) return canvas->written;
    return EBB_FAIL(canvas->ctx, status == CAIRO_STATUS_NO_MEMORY ? EBB_NO_MEMORY : EBB_FAILED,
                    "the picture could not be drawn: cairo says '%s'",
                    canvas->f.status_to_string(status));
}

/* Text is placed by the same widths on both kinds: nothing is fitted to pixels. */
static void set_fonts(struct ebb_canvas *canvas)
{
    const struct cairo_table *f = &canvas->f;
    cairo_font_options_t *options = f->font_options_create();
    f->font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    f->font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    f->font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    f->set_font_options(canvas->cairo, options);
    f->font_options_destroy(options);
}

static enum ebb_status open_surface(struct ebb_canvas *canvas, int width, int height)
{
    const struct cairo_table *f = &canvas->f;
    if (canvas->kind == EBB_CANVAS_PNG) {
        canvas->surface = f->image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    } else {
        canvas->surface = f->svg_surface_create_for_stream(write_bytes, canvas, width, height);
        f->svg_surface_set_document_unit(canvas->surface, CAIRO_SVG_UNIT_PX);
    }
    canvas->cairo = f->create(canvas->surface);
    cairo_status_t status = f->status(canvas->cairo);
    if (status != CAIRO_STATUS_SUCCESS) return fail_cairo(canvas, status);
    set_fonts(canvas);
    f->set_line_join(canvas->cairo, CAIRO_LINE_JOIN_ROUND);
    f->set_source_rgb(canvas->cairo, 1, 1, 1);
    f->paint(canvas->cairo);
    return EBB_OK;
}

enum ebb_status ebb_canvas_open(struct ebb_ctx *ctx, const char *path, int width, int height,
                                struct ebb_canvas **canvas)
{
    EBB_ASSERT(width > 0 && height > 0 && width <= EBB_CANVAS_SIDE && height <= EBB_CANVAS_SIDE);
    *canvas = NULL;
    struct ebb_canvas *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->ctx = ctx;
    enum ebb_status status = ebb_canvas_kind_of(ctx, path, &made->kind);
    if (status == EBB_OK) status = load(made);
    if (status == EBB_OK) status = ebb_writer_open(ctx, path, &made->writer);
    if (status == EBB_OK) status = open_surface(made, width, height);
    if (status != EBB_OK) {
        ebb_canvas_free(made);
        return status;
    }
    *canvas = made;
    return EBB_OK;
}

enum ebb_status ebb_canvas_save(struct ebb_canvas *canvas, int64_t *bytes)
{
    const struct cairo_table *f = &canvas->f;
    enum ebb_status status = EBB_OK;
    cairo_status_t drawn = f->status(canvas->cairo);
    if (drawn == CAIRO_STATUS_SUCCESS && canvas->kind == EBB_CANVAS_PNG)
        drawn = f->surface_write_to_png_stream(canvas->surface, write_bytes, canvas);
    if (drawn == CAIRO_STATUS_SUCCESS) {
        f->surface_finish(canvas->surface);
        drawn = f->surface_status(canvas->surface);
    }
    if (drawn != CAIRO_STATUS_SUCCESS || canvas->written != EBB_OK)
        status = fail_cairo(canvas, drawn);
    if (status == EBB_OK) {
        status = ebb_writer_commit(canvas->writer, bytes, NULL);
        canvas->writer = NULL;
    }
    ebb_canvas_free(canvas);
    return status;
}

void ebb_canvas_free(struct ebb_canvas *canvas)
{
    if (canvas == NULL) return;
    ebb_writer_abort(canvas->writer);
    canvas->writer = NULL; /* an SVG surface still writes its end */
    if (canvas->cairo) canvas->f.destroy(canvas->cairo);
    if (canvas->surface) canvas->f.surface_destroy(canvas->surface);
    ebb_library_close(canvas->library);
    ebb_mem_free(canvas->ctx, canvas);
}

/* ---- drawing ---- */

static void choose_font(struct ebb_canvas *canvas, double size, bool bold)
{
    canvas->f.select_font_face(canvas->cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                               bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    canvas->f.set_font_size(canvas->cairo, size);
}

void ebb_canvas_measure(void *user, const char *text, double size, bool bold, double *width,
                        double *ascent, double *descent)
{
    struct ebb_canvas *canvas = user;
    cairo_text_extents_t extents = {0};
    cairo_font_extents_t font = {0};
    choose_font(canvas, size, bold);
    canvas->f.text_extents(canvas->cairo, text, &extents);
    canvas->f.font_extents(canvas->cairo, &font);
    *width = extents.x_advance;
    *ascent = font.ascent;
    *descent = font.descent;
}

void ebb_canvas_color(struct ebb_canvas *canvas, struct ebb_color color)
{
    canvas->f.set_source_rgb(canvas->cairo, color.red, color.green, color.blue);
}

void ebb_canvas_pen(struct ebb_canvas *canvas, double width, const double *dashes, int count)
{
    canvas->f.set_line_width(canvas->cairo, width);
    canvas->f.set_dash(canvas->cairo, dashes, dashes ? count : 0, 0);
    canvas->f.set_line_cap(canvas->cairo, CAIRO_LINE_CAP_BUTT);
}

void ebb_canvas_move(struct ebb_canvas *canvas, double x, double y)
{
    canvas->f.move_to(canvas->cairo, x, y);
}

void ebb_canvas_line(struct ebb_canvas *canvas, double x, double y)
{
    canvas->f.line_to(canvas->cairo, x, y);
}

void ebb_canvas_close(struct ebb_canvas *canvas)
{
    canvas->f.close_path(canvas->cairo);
}

void ebb_canvas_circle(struct ebb_canvas *canvas, double x, double y, double radius)
{
    canvas->f.new_sub_path(canvas->cairo);
    canvas->f.arc(canvas->cairo, x, y, radius, 0, 6.283185307179586);
}

void ebb_canvas_rectangle(struct ebb_canvas *canvas, double x, double y, double width,
                          double height)
{
    canvas->f.rectangle(canvas->cairo, x, y, width, height);
}

void ebb_canvas_stroke(struct ebb_canvas *canvas)
{
    canvas->f.stroke(canvas->cairo);
}

void ebb_canvas_fill(struct ebb_canvas *canvas, bool keep)
{
    (keep ? canvas->f.fill_preserve : canvas->f.fill)(canvas->cairo);
}

void ebb_canvas_text(struct ebb_canvas *canvas, double x, double y, const char *text, double size,
                     bool bold, bool upright)
{
    const struct cairo_table *f = &canvas->f;
    choose_font(canvas, size, bold);
    f->save(canvas->cairo);
    f->translate(canvas->cairo, x, y);
    if (upright) f->rotate(canvas->cairo, -1.5707963267948966);
    f->new_path(canvas->cairo);
    f->move_to(canvas->cairo, 0, 0);
    f->show_text(canvas->cairo, text);
    f->new_path(canvas->cairo);
    f->restore(canvas->cairo);
}
