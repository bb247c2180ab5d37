/* Runs' metrics as panels against the step.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plot/inputs_int.h"

enum { PANEL_LOSS, PANEL_NORM, PANEL_RATE, PANEL_MEMORY };

/* A key of the file is a curve of a panel. */
static const struct {
    const char *key;
    int panel;
    enum ebb_plot_style style;
} quantities[] = {
    {"loss", PANEL_LOSS, EBB_STYLE_MEASURED},
    {"eval_loss", PANEL_LOSS, EBB_STYLE_SPARSE},
    {"grad_norm", PANEL_NORM, EBB_STYLE_MEASURED},
    {"learning_rate", PANEL_RATE, EBB_STYLE_MEASURED},
    {"peak_device_bytes", PANEL_MEMORY, EBB_STYLE_MEASURED},
    {"host_bytes", PANEL_MEMORY, EBB_STYLE_SECOND},
};
enum { QUANTITIES = sizeof quantities / sizeof quantities[0] };

void ebb_metrics_panels(struct ebb_figure *figure)
{
    const struct ebb_plot_axis step = {"optimizer step", EBB_UNIT_STEP, EBB_SCALE_LINEAR, false};
    ebb_figure_panel(figure, "Loss", step,
                     (struct ebb_plot_axis){"loss", EBB_UNIT_PLAIN, EBB_SCALE_LINEAR, false});
    ebb_figure_panel(figure, "Gradient norm", step,
                     (struct ebb_plot_axis){"norm before clipping", EBB_UNIT_PLAIN,
                                            EBB_SCALE_LINEAR, true});
    ebb_figure_panel(figure, "Learning rate", step,
                     (struct ebb_plot_axis){"learning rate", EBB_UNIT_PLAIN, EBB_SCALE_LINEAR,
                                            true});
    ebb_figure_panel(figure, "Memory", step,
                     (struct ebb_plot_axis){"peak device memory", EBB_UNIT_BYTES, EBB_SCALE_LINEAR,
                                            true});
    figure->styles[EBB_STYLE_SPARSE] = "evaluation";
    figure->styles[EBB_STYLE_SECOND] = "host memory";
}

/* ---- lines ---- */

static struct ebb_plot_curve *curve_of(struct ebb_figure *figure, int quantity, int group)
{
    struct ebb_plot_panel *panel = &figure->panels[quantities[quantity].panel];
    for (int64_t i = panel->curve_count - 1; i >= 0; i--)
        if (panel->curves[i].group == group && panel->curves[i].style == quantities[quantity].style)
            return &panel->curves[i];
    EBB_ASSERT(false);
    return NULL;
}

static enum ebb_status add_record(struct ebb_figure *figure, int group, const char *where,
                                  const json_t *json)
{
    int64_t step;
    if (!json_is_object(json))
        return EBB_FAIL(figure->ctx, EBB_BAD_FILE, "%s: an object with 'step' is wanted", where);
    EBB_TRY(ebb_json_int64(figure->ctx, where, json, "step", &step, NULL));
    for (int q = 0; q < QUANTITIES; q++) {
        double value = NAN;
        bool found;
        if (json_object_get(json, quantities[q].key) == NULL) continue; /* null is a gap */
        EBB_TRY(ebb_json_double(figure->ctx, where, json, quantities[q].key, &value, &found));
        struct ebb_plot_curve *curve = curve_of(figure, q, group);
        while (curve->count > 0 && curve->x[curve->count - 1] >= (double)step) curve->count--;
        EBB_TRY(ebb_figure_point(figure, curve, (double)step, value));
    }
    return EBB_OK;
}

/* A line without its end that is no JSON is being written. */
static enum ebb_status add_line(struct ebb_figure *figure, int group, const char *path, int number,
                                const char *line, size_t bytes, bool ended)
{
    json_t *json = NULL;
    char where[320];
    if (strspn(line, " \t\r") >= bytes) return EBB_OK;
    if (!ended) {
        json = json_loadb(line, bytes, 0, NULL);
        if (json == NULL) {
            ebb_log(figure->ctx, EBB_LOG_WARNING, "plot",
                    "%s: the last line is cut off, it is left out", path);
            return EBB_OK;
        }
        json_decref(json);
    }
    snprintf(where, sizeof where, "%.280s:%d", path, number);
    EBB_TRY(ebb_json_parse(figure->ctx, path, number - 1, line, bytes, &json));
    enum ebb_status status = add_record(figure, group, where, json);
    json_decref(json);
    return status;
}

enum ebb_status ebb_metrics_add_run(struct ebb_figure *figure, const struct ebb_plot_input *input,
                                    const char *data, size_t bytes)
{
    int group, number = 0;
    EBB_TRY(ebb_figure_group(figure, input->name, &group));
    for (int q = 0; q < QUANTITIES; q++) {
        struct ebb_plot_curve *curve;
        EBB_TRY(ebb_figure_curve(figure, &figure->panels[quantities[q].panel], group,
                                 quantities[q].style, &curve));
    }
    for (size_t at = 0; at < bytes; number++) {
        const char *end = memchr(data + at, '\n', bytes - at);
        size_t line = end ? (size_t)(end - (data + at)) : bytes - at;
        EBB_TRY(add_line(figure, group, input->path, number + 1, data + at, line, end != NULL));
        at += line + 1;
    }
    return EBB_OK;
}

/* ---- when all runs are read ---- */

/* Norms that spread wide are seen by their logarithm. */
static void choose_norm_scale(struct ebb_plot_panel *panel)
{
    const double wide = 50;
    double low = INFINITY, high = 0;
    for (int64_t i = 0; i < panel->curve_count; i++)
        for (int64_t k = 0; k < panel->curves[i].count; k++) {
            double y = panel->curves[i].y[k];
            if (!isfinite(y)) continue;
            low = fmin(low, y);
            high = fmax(high, y);
        }
    if (low > 0 && high > wide * low) panel->y.scale = EBB_SCALE_LOG10;
}

/* Host memory that no run used is no line along the axis. */
static void drop_zeros(struct ebb_figure *figure)
{
    struct ebb_plot_panel *panel = &figure->panels[PANEL_MEMORY];
    for (int64_t i = 0; i < panel->curve_count; i++) {
        struct ebb_plot_curve *curve = &panel->curves[i];
        bool zero = curve->style == EBB_STYLE_SECOND;
        for (int64_t k = 0; zero && k < curve->count; k++) zero = !(curve->y[k] > 0);
        if (zero) curve->count = 0;
    }
}

void ebb_metrics_finish(struct ebb_figure *figure)
{
    choose_norm_scale(&figure->panels[PANEL_NORM]);
    drop_zeros(figure);
}
