/* Layout: nothing overlaps, everything is on its page; and what is drawn is a picture.
 *
 * Two ways of measuring text: cairo's, and one of the test's own that is wider, so that what holds
 * does not hang on this machine's fonts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/figure_layout.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "plot/canvas.h"
#include "plot/figure_draw.h"
#include "plot/palette.h"

/* fontconfig keeps what it knows of fonts until the process ends, some of it where the leak
 * sanitizer does not look. What Ebb leaves behind is seen by its own count. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig";
}

static int room_open(void **state)
{
    *state = ebb_ctx_create();
    return *state ? 0 : 1;
}

static int room_close(void **state)
{
    assert_int_equal(ebb_mem_bytes_now(*state), 0);
    ebb_ctx_free(*state);
    return 0;
}

static void measure_wide(void *user, const char *text, double size, bool bold, double *width,
                         double *ascent, double *descent)
{
    (void)user;
    *width = (bold ? 0.75 : 0.65) * size * (double)strlen(text);
    *ascent = 0.95 * size;
    *descent = 0.3 * size;
}

/* `groups` curves in each of `panels` panels, each with an end, and limits that lie close. */
static struct ebb_figure *make_figure(struct ebb_ctx *ctx, int groups, int panels, const char *name)
{
    const struct ebb_plot_axis length = {"sequence length", EBB_UNIT_TOKENS, EBB_SCALE_LOG2, false},
                               memory = {"device memory", EBB_UNIT_BYTES, EBB_SCALE_LINEAR, true};
    struct ebb_figure *figure;
    assert_int_equal(ebb_figure_create(ctx, &figure), EBB_OK);
    assert_int_equal(ebb_figure_title(figure, "A title"), EBB_OK);
    assert_int_equal(ebb_figure_note(figure,
                                     "a note that goes on and on, over a machine, a driver, "
                                     "a date and a command with all of its arguments"),
                     EBB_OK);
    for (int g = 0; g < groups; g++) {
        char text[256];
        int group;
        snprintf(text, sizeof text, "%s %d", name, g);
        assert_int_equal(ebb_figure_group(figure, text, &group), EBB_OK);
    }
    for (int p = 0; p < panels; p++) {
        struct ebb_plot_panel *panel = ebb_figure_panel(figure, "A panel", length, memory);
        for (int g = 0; g < groups; g++) {
            struct ebb_plot_curve *curve;
            enum ebb_plot_style style = (enum ebb_plot_style)(g % EBB_STYLE_COUNT);
            assert_int_equal(ebb_figure_curve(figure, panel, g, style, &curve), EBB_OK);
            for (int i = 0; i < 6; i++)
                assert_int_equal(ebb_figure_point(figure, curve, 1024 << i,
                                                  i == 2 ? NAN : 1e9 * (g + 1) * (i + 1)),
                                 EBB_OK);
            assert_int_equal(ebb_figure_end(figure, panel, g, 65536, "out of memory"), EBB_OK);
        }
        assert_int_equal(ebb_figure_limit(figure, panel, false, 6.0e9, "one device: 5.6 GiB"),
                         EBB_OK);
        assert_int_equal(ebb_figure_limit(figure, panel, false, 6.1e9, "a device: 5.7 GiB"),
                         EBB_OK);
        assert_int_equal(ebb_figure_limit(figure, panel, true, 8192, "a length"), EBB_OK);
    }
    return figure;
}

static void check_layout(const struct ebb_layout *layout)
{
    for (int64_t i = 0; i < layout->text_count; i++) {
        const struct ebb_placed_text *a = &layout->texts[i];
        if (a->box.x < 0 || a->box.y < 0 || a->box.x + a->box.width > layout->width ||
            a->box.y + a->box.height > layout->height)
            fail_msg("'%s' is not on the page", a->text);
        for (int64_t k = 0; k < i; k++)
            if (ebb_rect_overlap(&a->box, &layout->texts[k].box))
                fail_msg("'%s' and '%s' overlap", a->text, layout->texts[k].text);
        for (int p = 0; p < layout->panel_count; p++)
            if (a->kind != EBB_TEXT_INSIDE && ebb_rect_overlap(&a->box, &layout->panels[p].frame))
                fail_msg("'%s' lies in a panel", a->text);
        for (int64_t k = 0; k < layout->sample_count; k++)
            if (ebb_rect_overlap(&a->box, &layout->samples[k].box))
                fail_msg("'%s' lies on a sample", a->text);
    }
    for (int p = 1; p < layout->panel_count; p++)
        for (int q = 0; q < p; q++)
            assert_false(ebb_rect_overlap(&layout->panels[p].frame, &layout->panels[q].frame));
}

static void nothing_overlaps_on_any_page(void **state)
{
    static const int pages[][2] = {{900, 600}, {1400, 900}, {700, 900}, {3200, 1400}, {800, 1900}};
    static const char long_name[] = "a model with a name that is much longer than names of models "
                                    "should be, in a mode whose description is longer still, and "
                                    "longer, and longer, and longer";
    int laid = 0;
    for (int groups = 1; groups <= 13; groups += 4)
        for (int panels = 1; panels <= EBB_FIGURE_PANELS; panels++)
            for (int name = 0; name < 2; name++) {
                struct ebb_figure *figure =
                    make_figure(*state, groups, panels, name ? long_name : "short");
                for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
                    struct ebb_layout *layout;
                    enum ebb_status status = ebb_layout_create(figure, pages[i][0], pages[i][1],
                                                               measure_wide, NULL, &layout);
                    if (status == EBB_OK) {
                        check_layout(layout);
                        laid++;
                    } else {
                        assert_int_equal(status, EBB_BAD_CONFIG);
                        assert_non_null(strstr(ebb_error_text(*state), "--width"));
                        ebb_error_clear(*state);
                    }
                    ebb_layout_free(layout);
                }
                ebb_figure_free(figure);
            }
    assert_true(laid > 100);
}

/* A limit that finds no room in its panel is told in the legend; none is lost. */
static void every_limit_is_named(void **state)
{
    struct ebb_figure *figure = make_figure(*state, 2, 1, "short");
    for (int i = 0; i < 30; i++) {
        char text[32];
        snprintf(text, sizeof text, "limit %d", i);
        assert_int_equal(ebb_figure_limit(figure, &figure->panels[0], false, 6e9 + 1e6 * i, text),
                         EBB_OK);
    }
    struct ebb_layout *layout;
    assert_int_equal(ebb_layout_create(figure, 900, 700, measure_wide, NULL, &layout), EBB_OK);
    check_layout(layout);
    int inside = 0;
    for (int i = 0; i < 30; i++) {
        char text[32];
        int found = 0;
        snprintf(text, sizeof text, "limit %d", i);
        for (int64_t k = 0; k < layout->text_count; k++)
            if (strcmp(layout->texts[k].text, text) == 0) {
                found++;
                inside += layout->texts[k].kind == EBB_TEXT_INSIDE;
            }
        assert_int_equal(found, 1);
    }
    assert_true(inside < 30);
    ebb_layout_free(layout);
    ebb_figure_free(figure);
}

static void size_that_is_proposed_will_do(void **state)
{
    struct ebb_layout *layout;
    for (int panels = 1; panels <= EBB_FIGURE_PANELS; panels++) {
        struct ebb_figure *figure = make_figure(*state, 9, panels, "short");
        int width = 0, height = 0;
        assert_int_equal(ebb_layout_create(figure, 200, 150, measure_wide, NULL, &layout),
                         EBB_BAD_CONFIG);
        const char *at = strstr(ebb_error_text(*state), "--width");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "--width %d --height %d", &width, &height), 2);
        ebb_error_clear(*state);
        assert_int_equal(ebb_layout_create(figure, width, height, measure_wide, NULL, &layout),
                         EBB_OK);
        ebb_layout_free(layout);
        ebb_figure_free(figure);
    }
}

static void colors_differ_in_lightness(void **state)
{
    (void)state;
    for (int i = 0; i < EBB_PALETTE_COLORS; i++) {
        double a = ebb_palette_lightness(ebb_palette_color(i));
        assert_true(a < 75); /* on white */
        for (int k = 0; k < i; k++)
            assert_true(fabs(a - ebb_palette_lightness(ebb_palette_color(k))) > 9);
    }
    /* L* of middle grey, from CIE's formula. */
    struct ebb_color grey = {0.5, 0.5, 0.5};
    assert_true(fabs(ebb_palette_lightness(grey) - 53.39) < 0.01);
}

/* ---- pictures ---- */

static char *in_dir(const char *dir, const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", dir, name);
    return out;
}

static int number_at(const unsigned char *data)
{
    return data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3];
}

static void pictures_are_made_of_the_size_asked(void **state)
{
    struct ebb_figure *figure = make_figure(*state, 3, 2, "a <name> & more \xff");
    char *dir, path[128];
    struct ebb_map map;
    int width = 800, height = 500;
    int64_t bytes;
    assert_int_equal(ebb_dir_create_temp(*state, &dir), EBB_OK);
    assert_int_equal(ebb_figure_draw(figure, in_dir(dir, "a.PNG", path), &width, &height, &bytes),
                     EBB_OK);
    assert_int_equal(ebb_map_open(*state, path, &map), EBB_OK);
    assert_int_equal(map.bytes, bytes);
    assert_memory_equal(map.data, "\x89PNG\r\n\x1a\n", 8);
    assert_int_equal(number_at(map.data + 16), 800);
    assert_int_equal(number_at(map.data + 20), 500);
    ebb_map_close(&map);
    width = 700;
    height = 0;
    assert_int_equal(ebb_figure_draw(figure, in_dir(dir, "a.svg", path), &width, &height, &bytes),
                     EBB_OK);
    assert_int_equal(height, 320); /* two panels are 1400 by 640 */
    assert_int_equal(ebb_map_open(*state, path, &map), EBB_OK);
    assert_non_null(memmem(map.data, map.bytes, "<svg", 4));
    assert_non_null(memmem(map.data, map.bytes, "width=\"700", 10));
    assert_non_null(memmem(map.data, map.bytes, "</svg>", 6));
    ebb_map_close(&map);
    ebb_figure_free(figure);
    assert_int_equal(ebb_dir_remove(*state, dir), EBB_OK);
    ebb_mem_free(*state, dir);
}

static void failure_leaves_no_file(void **state)
{
    struct ebb_figure *figure = make_figure(*state, 3, 4, "short");
    char *dir, path[128], **names;
    size_t count;
    int width = 120, height = 100;
    assert_int_equal(ebb_dir_create_temp(*state, &dir), EBB_OK);
    for (int i = 0; i < 2; i++) {
        in_dir(dir, i ? "a.svg" : "a.png", path);
        assert_int_equal(ebb_figure_draw(figure, path, &width, &height, NULL), EBB_BAD_CONFIG);
        ebb_error_clear(*state);
    }
    assert_int_equal(ebb_figure_draw(figure, in_dir(dir, "a.jpg", path), &width, &height, NULL),
                     EBB_BAD_CONFIG);
    ebb_error_clear(*state);
    assert_int_equal(ebb_dir_list(*state, dir, &names, &count), EBB_OK);
    assert_int_equal(count, 0);
    ebb_dir_list_free(*state, names, count);
    ebb_figure_free(figure);
    assert_int_equal(ebb_dir_remove(*state, dir), EBB_OK);
    ebb_mem_free(*state, dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, room_open, room_close)
        TEST(nothing_overlaps_on_any_page),        TEST(every_limit_is_named),
        TEST(size_that_is_proposed_will_do),       TEST(colors_differ_in_lightness),
        TEST(pictures_are_made_of_the_size_asked), TEST(failure_leaves_no_file),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
