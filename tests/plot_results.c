/* Reading of each kind of file: what becomes of it, and what is said of what is wrong.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/results.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "plot/figure_layout.h"
#include "plot/inputs.h"

struct room {
    struct ebb_ctx *ctx;
    char *dir;
    char paths[2][160];
};

/* A cut-off line is warned of. */
static void ignore(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    (void)user;
    (void)level;
    (void)topic;
    (void)text;
}

static int room_open(void **state)
{
    static struct room room;
    memset(&room, 0, sizeof room);
    room.ctx = ebb_ctx_create();
    ebb_ctx_set_log(room.ctx, ignore, NULL);
    assert_int_equal(ebb_dir_create_temp(room.ctx, &room.dir), EBB_OK);
    for (int i = 0; i < 2; i++)
        snprintf(room.paths[i], sizeof room.paths[i], "%s/%c", room.dir, 'a' + i);
    *state = &room;
    return 0;
}

static int room_close(void **state)
{
    struct room *room = *state;
    assert_int_equal(ebb_dir_remove(room->ctx, room->dir), EBB_OK);
    ebb_mem_free(room->ctx, room->dir);
    assert_int_equal(ebb_mem_bytes_now(room->ctx), 0);
    ebb_ctx_free(room->ctx);
    return 0;
}

/* Reads one or two texts as files; `second` may be NULL. */
static enum ebb_status read_texts(struct room *room, const char *first, const char *second,
                                  struct ebb_figure **figure)
{
    const char *texts[] = {first, second};
    struct ebb_plot_input inputs[2];
    int count = second ? 2 : 1;
    for (int i = 0; i < count; i++) {
        inputs[i] = (struct ebb_plot_input){room->paths[i], i ? "b" : "a"};
        assert_int_equal(ebb_file_write(room->ctx, room->paths[i], texts[i], strlen(texts[i])),
                         EBB_OK);
    }
    return ebb_inputs_figure(room->ctx, inputs, count, figure);
}

static void check_refused(struct room *room, const char *first, const char *second,
                          enum ebb_status want, const char *text)
{
    struct ebb_figure *figure;
    assert_int_equal(read_texts(room, first, second, &figure), want);
    assert_null(figure);
    if (strstr(ebb_error_text(room->ctx), text) == NULL)
        fail_msg("'%s' is not in: %s", text, ebb_error_text(room->ctx));
    ebb_error_clear(room->ctx);
}

static void check_curve(const struct ebb_plot_curve *curve, enum ebb_plot_style style, int count,
                        const double (*want)[2])
{
    assert_int_equal(curve->style, style);
    assert_int_equal(curve->count, count);
    for (int i = 0; i < count; i++) {
        assert_true(curve->x[i] == want[i][0]);
        if (isnan(want[i][1]))
            assert_true(isnan(curve->y[i]));
        else
            assert_true(curve->y[i] == want[i][1]);
    }
}

static void metrics_become_curves_with_gaps(void **state)
{
    struct room *room = *state;
    struct ebb_figure *figure;
    assert_int_equal(
        read_texts(room,
                   "{\"step\": 1, \"loss\": 3, \"grad_norm\": 1, \"host_bytes\": 0}\n"
                   "{\"step\": 2, \"loss\": null, \"grad_norm\": 100, \"host_bytes\": 0}\n"
                   "{\"step\": 2, \"eval_loss\": 2.5}\n"
                   "\n"
                   "{\"step\": 3, \"loss\": 1, \"grad_norm\": 2}\n",
                   NULL, &figure),
        EBB_OK);
    assert_int_equal(figure->panel_count, 2); /* no learning rate, no memory */
    check_curve(&figure->panels[0].curves[0], EBB_STYLE_MEASURED, 3,
                (const double[][2]){{1, 3}, {2, NAN}, {3, 1}});
    check_curve(&figure->panels[0].curves[1], EBB_STYLE_SPARSE, 1, (const double[][2]){{2, 2.5}});
    assert_int_equal(figure->panels[1].y.scale, EBB_SCALE_LOG10); /* 1 to 100 */
    ebb_figure_free(figure);
}

static void resumed_run_goes_on_where_it_began_again(void **state)
{
    struct room *room = *state;
    struct ebb_figure *figure;
    assert_int_equal(read_texts(room,
                                "{\"step\": 1, \"loss\": 5}\n{\"step\": 2, \"loss\": 4}\n"
                                "{\"step\": 3, \"loss\": 3}\n{\"step\": 2, \"loss\": 9}\n"
                                "{\"step\": 3, \"lo",
                                NULL, &figure),
                     EBB_OK);
    check_curve(&figure->panels[0].curves[0], EBB_STYLE_MEASURED, 2,
                (const double[][2]){{1, 5}, {2, 9}});
    ebb_figure_free(figure);
}

#define HEAD "{\"format\": \"ebb results\", \"version\": 1, "
#define SMALL                                                                                      \
    HEAD "\"kind\": \"length\", \"series\": [{\"name\": \"s\", \"points\": ["                      \
         "{\"length\": 8, \"peak_device_bytes\": 5, \"loss\": -1.5}]}]}"

static void lengths_become_memory_and_speed(void **state)
{
    struct room *room = *state;
    struct ebb_figure *figure;
    assert_int_equal(
        read_texts(room,
                   HEAD
                   "\"kind\": \"length\", \"title\": \"T\", \"machine\": {\"device\": \"D\", "
                   "\"device_bytes\": 1024, \"driver\": \"9\"}, \"series\": [{\"name\": \"s\", "
                   "\"points\": [{\"length\": 2048, \"peak_device_bytes\": 30, "
                   "\"tokens_per_second\": null}, {\"length\": 1024, \"peak_device_bytes\": 10, "
                   "\"predicted_device_bytes\": 11, \"tokens_per_second\": 7}], \"ended\": "
                   "{\"length\": 4096, \"reason\": \"out of memory\"}}, {\"name\": \"p\", "
                   "\"peer\": true, \"points\": [{\"length\": 8192, \"peak_device_bytes\": 9}]}]}",
                   NULL, &figure),
        EBB_OK);
    assert_string_equal(figure->title, "T");
    assert_string_equal(figure->note, "D, driver 9");
    assert_int_equal(figure->panel_count, 2);
    const struct ebb_plot_panel *memory = &figure->panels[0];
    assert_int_equal(memory->x.scale, EBB_SCALE_LOG2);
    assert_int_equal(memory->curve_count, 3);
    check_curve(&memory->curves[0], EBB_STYLE_MEASURED, 2,
                (const double[][2]){{1024, 10}, {2048, 30}}); /* sorted */
    check_curve(&memory->curves[1], EBB_STYLE_PREDICTED, 2,
                (const double[][2]){{1024, 11}, {2048, NAN}});
    check_curve(&memory->curves[2], EBB_STYLE_POINTS, 1, (const double[][2]){{8192, 9}});
    assert_int_equal(memory->limit_count, 1);
    assert_string_equal(memory->limits[0].text, "D: 1 KiB");
    assert_int_equal(memory->end_count, 1);
    assert_true(memory->ends[0].x == 4096);
    assert_string_equal(figure->groups[0].remark, "at 4k: out of memory");
    ebb_figure_free(figure);
}

/* Two results of one series' name, and plans beside results. */
static void files_of_one_kind_share_a_picture(void **state)
{
    struct room *room = *state;
    struct ebb_figure *figure;
    static const char plans[] =
        "{\"sweep\": \"memory_budget\", \"points\": [{\"max_length\": 64, \"memory_budget\": 100, "
        "\"total_bytes\": 90, \"host_bytes\": 3, \"step_seconds\": 2, \"tokens_per_second\": 32, "
        "\"choice\": \"\"}]}";
    static const char budgets[] =
        HEAD "\"kind\": \"budget\", \"series\": [{\"name\": \"a\", \"points\": [{\"budget_bytes\": "
             "200, \"tokens_per_second\": 30, \"forecast_tokens_per_second\": 31}]}, {\"name\": "
             "\"peer\", \"peer\": true, \"points\": [{\"peak_device_bytes\": 150, "
             "\"tokens_per_second\": 20}]}]}";
    assert_int_equal(read_texts(room, plans, budgets, &figure), EBB_OK);
    const struct ebb_plot_panel *speed = &figure->panels[0];
    assert_int_equal(figure->panel_count, 2);
    assert_string_equal(figure->groups[0].name, "a");
    assert_string_equal(figure->groups[1].name, "a, b");
    check_curve(&speed->curves[0], EBB_STYLE_PREDICTED, 1, (const double[][2]){{100, 32}});
    check_curve(&speed->curves[1], EBB_STYLE_MEASURED, 1, (const double[][2]){{200, 30}});
    check_curve(&speed->curves[2], EBB_STYLE_PREDICTED, 1, (const double[][2]){{200, 31}});
    check_curve(&speed->curves[3], EBB_STYLE_POINTS, 1, (const double[][2]){{150, 20}});
    check_curve(&figure->panels[1].curves[0], EBB_STYLE_PREDICTED, 1,
                (const double[][2]){{100, 3}});
    ebb_figure_free(figure);
    check_refused(room, plans, SMALL, EBB_BAD_CONFIG, "one picture shows one kind");
    check_refused(room, "{\"step\": 1, \"loss\": 2}\n", SMALL, EBB_BAD_CONFIG,
                  "is a run's metrics and");
}

static void what_is_wrong_is_named(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *file, *text;
    } cases[] = {
        {"", "is empty"},
        {"hello", "it is no JSON (line 1, column"},
        {"[1]", "it is JSON, but no object"},
        {"{\"choice\": \"x\"}", "is one plan; a curve takes several"},
        {"{\"a\": 1}", "none of the keys"},
        {"{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": \"x\"}\n", ":2: 'loss'"},
        {"{\"step\": 1, \"loss\": 1}\nbroken\n", ":2:6: invalid token"},
        {"{\"step\": 1, \"loss\": null}\n", "no values"},
        {"{\"sweep\": \"x\", \"points\": []}", "'memory_budget' or 'max_length' is wanted"},
        {"{\"sweep\": \"max_length\", \"points\": [{}]}", "points[0]: 'max_length' above 0"},
        {"{\"sweep\": \"max_length\"}", "'points' is wanted"},
        {"{\"format\": \"other\", \"version\": 1}", "'ebb results' is wanted"},
        {"{\"format\": \"ebb results\", \"version\": 2}", "a newer Ebb wrote it"},
        {HEAD "\"kind\": \"x\"}", "'length' or 'budget' is wanted"},
        {HEAD "\"kind\": \"length\"}", "'series' is wanted"},
        {HEAD "\"kind\": \"length\", \"serie\": []}", "did you mean 'series'?"},
        {HEAD "\"kind\": \"length\", \"series\": [{\"name\": \"s\", \"points\": [{}]}]}",
         "series[0].points[0]: 'length' above 0"},
        {HEAD "\"kind\": \"length\", \"series\": [{\"name\": \"s\", \"points\": [{\"length\": 2, "
              "\"los\": 1}]}]}",
         "did you mean 'loss'?"},
        {HEAD
         "\"kind\": \"length\", \"series\": [{\"name\": \"s\", \"points\": [{\"length\": 2.5}]}]}",
         "a whole number is wanted"},
        {HEAD "\"kind\": \"length\", \"series\": [{\"name\": \"s\", \"points\": [{\"length\": 2, "
              "\"host_bytes\": -1}]}]}",
         "a number from 0 on is wanted"},
        {HEAD "\"kind\": \"budget\", \"series\": [{\"name\": \"s\", \"points\": [], \"ended\": "
              "{\"reason\": \"x\"}}]}",
         "series[0].ended: 'budget_bytes' above 0"},
        {HEAD "\"kind\": \"length\", \"machine\": {\"device_bytes\": 0}, \"series\": []}",
         "a size is wanted"},
        {HEAD "\"kind\": \"length\", \"setting\": [], \"series\": []}",
         "'setting' is an object or missing"},
        {HEAD "\"kind\": \"length\", \"series\": []}", "no values"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_refused(room, cases[i].file, NULL, EBB_BAD_FILE, cases[i].text);
}

/* What a writer puts in is what a reader gets. */
static void written_results_are_read_again(void **state)
{
    struct room *room = *state;
    struct ebb_results *made, *read;
    struct ebb_results_series *series;
    struct ebb_results_point *point;
    assert_int_equal(ebb_results_create(room->ctx, EBB_RESULTS_OF_LENGTHS, &made), EBB_OK);
    assert_int_equal(ebb_results_text(made, &made->device, "a device"), EBB_OK);
    made->device_bytes = 12345;
    assert_int_equal(ebb_results_add(made, "a series", &series), EBB_OK);
    assert_int_equal(ebb_results_text(made, &series->mode, "keep"), EBB_OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ebb_results_point(made, series, &point), EBB_OK);
        for (int f = 0; f < EBB_RESULTS_FIELDS; f++)
            if (f == 0 || (f + i) % 3) point->values[f] = 1 + i * 100 + f;
        point->values[EBB_RESULTS_SPEED] = 0.1 * i;
    }
    series->ended_at = 4096;
    assert_int_equal(ebb_results_text(made, &series->reason, "why"), EBB_OK);
    assert_int_equal(ebb_results_text(made, &series->status, "killed"), EBB_OK);
    made->setting = json_pack("{s:i, s:{s:s}}", "steps", 5, "config", "a", "b");
    assert_non_null(made->setting);
    json_t *json = ebb_results_json(made);
    assert_non_null(json);
    assert_int_equal(ebb_results_read(room->ctx, "x", json, &read), EBB_OK);
    assert_string_equal(read->device, "a device");
    assert_true(read->device_bytes == 12345);
    assert_string_equal(read->series[0].name, "a series");
    assert_string_equal(read->series[0].mode, "keep");
    assert_string_equal(read->series[0].reason, "why");
    assert_string_equal(read->series[0].status, "killed");
    assert_true(json_equal(read->setting, made->setting));
    assert_true(read->series[0].ended_at == 4096);
    assert_int_equal(read->series[0].count, 20);
    for (int i = 0; i < 20; i++)
        for (int f = 0; f < EBB_RESULTS_FIELDS; f++) {
            double a = made->series[0].points[i].values[f], b = read->series[0].points[i].values[f];
            assert_true(isnan(a) ? isnan(b) : a == b);
        }
    json_decref(json);
    ebb_results_free(made);
    ebb_results_free(read);
}

static void measure(void *user, const char *text, double size, bool bold, double *width,
                    double *ascent, double *descent)
{
    (void)user;
    (void)bold;
    *width = 0.6 * size * (double)strlen(text);
    *ascent = 0.9 * size;
    *descent = 0.3 * size;
}

/* Whichever allocation fails, the failure is told and nothing is left. */
static void want_of_memory_leaves_nothing(void **state)
{
    struct room *room = *state;
    static const char *const files[] = {"lengths.json", "plans.json", "metrics_cut_off.jsonl"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/tests/fuzz/corpus/results/%s", EBB_SOURCE_DIR, files[i]);
        const struct ebb_plot_input input = {path, "name"};
        const int64_t before = ebb_mem_bytes_now(room->ctx);
        for (int nth = 1;; nth++) {
            struct ebb_figure *figure = NULL;
            struct ebb_layout *layout = NULL;
            assert_true(nth < 10000);
            ebb_mem_fail_nth(room->ctx, nth, false);
            enum ebb_status status = ebb_inputs_figure(room->ctx, &input, 1, &figure);
            if (status == EBB_OK)
                status = ebb_layout_create(figure, 1400, 900, measure, NULL, &layout);
            ebb_mem_fail_nth(room->ctx, 0, false);
            ebb_layout_free(layout);
            ebb_figure_free(figure);
            assert_int_equal(ebb_mem_bytes_now(room->ctx), before);
            if (status == EBB_OK) {
                assert_true(nth > 20);
                break;
            }
            assert_int_equal(status, EBB_NO_MEMORY);
            ebb_error_clear(room->ctx);
        }
    }
}

/* Its line goes on to where it ended, and the legend shows how it is drawn. */
static void lengths_of_another_program_are_a_line_of_its_kind(void **state)
{
    struct room *room = *state;
    struct ebb_figure *figure;
    struct ebb_layout *layout;
    assert_int_equal(
        read_texts(room,
                   HEAD "\"kind\": \"length\", \"series\": [{\"name\": \"p\", \"peer\": true, "
                        "\"points\": [{\"length\": 2048, \"peak_device_bytes\": 30}, "
                        "{\"length\": 1024, \"peak_device_bytes\": 10}], "
                        "\"ended\": {\"length\": 4096}}]}",
                   NULL, &figure),
        EBB_OK);
    check_curve(&figure->panels[0].curves[0], EBB_STYLE_PEER, 2,
                (const double[][2]){{1024, 10}, {2048, 30}});
    assert_int_equal(ebb_layout_create(figure, 1400, 900, measure, NULL, &layout), EBB_OK);
    assert_int_equal(layout->sample_count, 2);
    assert_int_equal(layout->samples[0].group, 0);
    assert_int_equal(layout->samples[0].style, EBB_STYLE_PEER);
    assert_int_equal(layout->samples[1].group, -1);
    assert_int_equal(layout->samples[1].style, EBB_STYLE_PEER);
    assert_true(layout->panels[0].ends[0].linked);
    assert_true(layout->panels[0].ends[0].y == ebb_layout_y(&layout->panels[0], 30));
    for (int64_t i = 0; i < layout->text_count; i++) /* no names beside points */
        assert_true(layout->texts[i].kind != EBB_TEXT_INSIDE ||
                    strcmp(layout->texts[i].text, "ended") == 0);
    ebb_layout_free(layout);
    ebb_figure_free(figure);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, room_open, room_close)
        TEST(metrics_become_curves_with_gaps),
        TEST(resumed_run_goes_on_where_it_began_again),
        TEST(lengths_become_memory_and_speed),
        TEST(files_of_one_kind_share_a_picture),
        TEST(lengths_of_another_program_are_a_line_of_its_kind),
        TEST(what_is_wrong_is_named),
        TEST(written_results_are_read_again),
        TEST(want_of_memory_leaves_nothing),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
