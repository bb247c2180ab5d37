/* Fuzz target: what `ebb plot` reads, of any kind. Results that are read are written, and are the
 * same when they are read again; a figure that is made has values, and is laid out without overlap
 * of its titles.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/results.h"

#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "plot/figure_layout.h"
#include "plot/inputs.h"

static void measure(void *user, const char *text, double size, bool bold, double *width,
                    double *ascent, double *descent)
{
    (void)user;
    (void)bold;
    *width = 0.6 * size * (double)strlen(text);
    *ascent = 0.9 * size;
    *descent = 0.3 * size;
}

static void check_round(struct ebb_ctx *ctx, const struct fuzz_text *text)
{
    struct ebb_results *first, *again;
    json_t *json = json_loadb(text->data, text->bytes, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL) return;
    if (fuzz_succeeded(ctx, ebb_results_read(ctx, "mem/a", json, &first))) {
        json_t *written = ebb_results_json(first);
        FUZZ_CHECK(written != NULL);
        FUZZ_CHECK(ebb_results_read(ctx, "mem/a", written, &again) == EBB_OK);
        json_t *twice = ebb_results_json(again);
        FUZZ_CHECK(twice != NULL && json_equal(written, twice));
        json_decref(twice);
        json_decref(written);
        ebb_results_free(again);
        ebb_results_free(first);
    }
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct fuzz_text text = fuzz_take(&data, &bytes);
    const struct ebb_plot_input input = {"mem/a", "a"};
    struct ebb_figure *figure;
    struct ebb_layout *layout;
    fuzz_file("a", text.data, text.bytes);
    check_round(ctx, &text);
    if (fuzz_succeeded(ctx, ebb_inputs_figure(ctx, &input, 1, &figure))) {
        FUZZ_CHECK(figure->panel_count > 0);
        if (fuzz_succeeded(ctx, ebb_layout_create(figure, 1400, 1000, measure, NULL, &layout)))
            for (int i = 0; i < layout->panel_count; i++)
                FUZZ_CHECK(layout->panels[i].frame.width > 0 && layout->panels[i].x.count >= 0 &&
                           isfinite(layout->panels[i].y.high));
        ebb_layout_free(layout);
        ebb_figure_free(figure);
    }
    fuzz_close(ctx);
    return 0;
}
