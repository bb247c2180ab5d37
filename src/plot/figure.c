/* Figures: what owns what, and growing lists.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/figure.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

/* ---- text ---- */

char *ebb_figure_text(struct ebb_ctx *ctx, const char *text)
{
    size_t bytes = strlen(text);
    char *copy = ebb_mem_strndup(ctx, text, bytes);
    if (copy == NULL) return NULL;
    for (size_t at = 0; at < bytes;) {
        at += ebb_text_utf8_valid(copy + at, bytes - at);
        if (at < bytes) copy[at++] = '?';
    }
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    return copy;
}

static enum ebb_status replace(struct ebb_ctx *ctx, char **field, const char *text)
{
    char *copy = ebb_figure_text(ctx, text);
    if (copy == NULL) return EBB_NO_MEMORY;
    ebb_mem_free(ctx, *field);
    *field = copy;
    return EBB_OK;
}

enum ebb_status ebb_figure_title(struct ebb_figure *figure, const char *title)
{
    return replace(figure->ctx, &figure->title, title);
}

enum ebb_status ebb_figure_note(struct ebb_figure *figure, const char *note)
{
    if (note[0] == 0 || strstr(figure->note, note)) return EBB_OK;
    if (figure->note[0] == 0) return replace(figure->ctx, &figure->note, note);
    char *both = ebb_mem_format(figure->ctx, "%s; %s", figure->note, note);
    if (both == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = replace(figure->ctx, &figure->note, both);
    ebb_mem_free(figure->ctx, both);
    return status;
}

/* ---- lists ---- */

enum ebb_status ebb_figure_group(struct ebb_figure *figure, const char *name, int *group)
{
    EBB_TRY(ebb_mem_grow(figure->ctx, &figure->groups, figure->group_count, &figure->group_room,
                         sizeof *figure->groups));
    EBB_TRY(replace(figure->ctx, &figure->groups[figure->group_count].name, name));
    *group = (int)figure->group_count++;
    return EBB_OK;
}

enum ebb_status ebb_figure_remark(struct ebb_figure *figure, int group, const char *remark)
{
    return replace(figure->ctx, &figure->groups[group].remark, remark);
}

struct ebb_plot_panel *ebb_figure_panel(struct ebb_figure *figure, const char *title,
                                        struct ebb_plot_axis x, struct ebb_plot_axis y)
{
    EBB_ASSERT(figure->panel_count < EBB_FIGURE_PANELS);
    struct ebb_plot_panel *panel = &figure->panels[figure->panel_count++];
    memset(panel, 0, sizeof *panel);
    panel->title = title;
    panel->x = x;
    panel->y = y;
    return panel;
}

enum ebb_status ebb_figure_curve(struct ebb_figure *figure, struct ebb_plot_panel *panel, int group,
                                 enum ebb_plot_style style, struct ebb_plot_curve **curve)
{
    EBB_ASSERT(group >= 0 && group < figure->group_count);
    EBB_TRY(ebb_mem_grow(figure->ctx, &panel->curves, panel->curve_count, &panel->curve_room,
                         sizeof *panel->curves));
    *curve = &panel->curves[panel->curve_count++];
    (*curve)->group = group;
    (*curve)->style = style;
    return EBB_OK;
}

enum ebb_status ebb_figure_point(struct ebb_figure *figure, struct ebb_plot_curve *curve, double x,
                                 double y)
{
    EBB_ASSERT(isfinite(x));
    int64_t room = curve->room;
    EBB_TRY(ebb_mem_grow(figure->ctx, &curve->x, curve->count, &room, sizeof *curve->x));
    EBB_TRY(ebb_mem_grow(figure->ctx, &curve->y, curve->count, &curve->room, sizeof *curve->y));
    curve->x[curve->count] = x;
    curve->y[curve->count++] = isfinite(y) ? y : NAN;
    return EBB_OK;
}

enum ebb_status ebb_figure_limit(struct ebb_figure *figure, struct ebb_plot_panel *panel,
                                 bool vertical, double at, const char *text)
{
    EBB_ASSERT(isfinite(at));
    for (int64_t i = 0; i < panel->limit_count; i++) {
        const struct ebb_plot_limit *limit = &panel->limits[i];
        if (limit->vertical == vertical && limit->at == at && strcmp(limit->text, text) == 0)
            return EBB_OK;
    }
    EBB_TRY(ebb_mem_grow(figure->ctx, &panel->limits, panel->limit_count, &panel->limit_room,
                         sizeof *panel->limits));
    struct ebb_plot_limit *limit = &panel->limits[panel->limit_count];
    EBB_TRY(replace(figure->ctx, &limit->text, text));
    limit->vertical = vertical;
    limit->at = at;
    panel->limit_count++;
    return EBB_OK;
}

enum ebb_status ebb_figure_end(struct ebb_figure *figure, struct ebb_plot_panel *panel, int group,
                               double x, const char *text)
{
    EBB_ASSERT(isfinite(x));
    EBB_TRY(ebb_mem_grow(figure->ctx, &panel->ends, panel->end_count, &panel->end_room,
                         sizeof *panel->ends));
    struct ebb_plot_end *end = &panel->ends[panel->end_count];
    EBB_TRY(replace(figure->ctx, &end->text, text));
    end->group = group;
    end->x = x;
    panel->end_count++;
    return EBB_OK;
}

/* ---- the whole ---- */

static void free_panel(struct ebb_ctx *ctx, struct ebb_plot_panel *panel)
{
    for (int64_t i = 0; i < panel->curve_count; i++) {
        ebb_mem_free(ctx, panel->curves[i].x);
        ebb_mem_free(ctx, panel->curves[i].y);
    }
    for (int64_t i = 0; i < panel->limit_count; i++) ebb_mem_free(ctx, panel->limits[i].text);
    for (int64_t i = 0; i < panel->end_count; i++) ebb_mem_free(ctx, panel->ends[i].text);
    ebb_mem_free(ctx, panel->curves);
    ebb_mem_free(ctx, panel->limits);
    ebb_mem_free(ctx, panel->ends);
}

static bool has_values(const struct ebb_plot_panel *panel)
{
    for (int64_t i = 0; i < panel->curve_count; i++)
        for (int64_t k = 0; k < panel->curves[i].count; k++)
            if (isfinite(panel->curves[i].y[k])) return true;
    return false;
}

void ebb_figure_drop_empty(struct ebb_figure *figure)
{
    int kept = 0;
    for (int i = 0; i < figure->panel_count; i++) {
        if (has_values(&figure->panels[i]))
            figure->panels[kept++] = figure->panels[i];
        else
            free_panel(figure->ctx, &figure->panels[i]);
    }
    figure->panel_count = kept;
}

enum ebb_status ebb_figure_create(struct ebb_ctx *ctx, struct ebb_figure **figure)
{
    *figure = NULL;
    struct ebb_figure *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->ctx = ctx;
    made->title = ebb_mem_strdup(ctx, "");
    made->note = ebb_mem_strdup(ctx, "");
    if (made->title == NULL || made->note == NULL) {
        ebb_figure_free(made);
        return EBB_NO_MEMORY;
    }
    *figure = made;
    return EBB_OK;
}

void ebb_figure_free(struct ebb_figure *figure)
{
    if (figure == NULL) return;
    struct ebb_ctx *ctx = figure->ctx;
    for (int i = 0; i < figure->panel_count; i++) free_panel(ctx, &figure->panels[i]);
    for (int64_t i = 0; i < figure->group_count; i++) {
        ebb_mem_free(ctx, figure->groups[i].name);
        ebb_mem_free(ctx, figure->groups[i].remark);
    }
    ebb_mem_free(ctx, figure->groups);
    ebb_mem_free(ctx, figure->title);
    ebb_mem_free(ctx, figure->note);
    ebb_mem_free(ctx, figure);
}
