/* Fuzz target: a template's source with fixed variables and small limits. A rendering that fails
 * adds nothing, one that succeeds gives the same text twice, in UTF-8, with its spans inside.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/jinja.h"
#include "fuzz.h"

static const char variables_text[] =
    "{\"s\": \"Grüße, wörld\", \"e\": \"\", \"n\": 7, \"f\": -2.5, \"t\": true, \"o\": null,"
    " \"l\": [3, 1, 2], \"d\": {\"k\": \"v\", \"items\": [1, {\"x\": \"y\"}]},"
    " \"messages\": [{\"role\": \"user\", \"content\": \"hi\"},"
    " {\"role\": \"assistant\", \"content\": \" ho \"}]}";

static const struct ebb_jinja_options options = {
    .limits = {.depth = 60, .steps = 20000, .memory_bytes = 1 << 20, .output_bytes = 1 << 16},
    .now = 1,
};

static void render(struct ebb_ctx *ctx, const struct ebb_jinja *jinja, const json_t *variables,
                   bool valid)
{
    struct ebb_str out = {0}, again = {0};
    struct ebb_jinja_spans spans = {0};
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, &out, "before", 6)));
    bool done = fuzz_succeeded(ctx, ebb_jinja_render(ctx, jinja, &options, variables, &out, NULL));
    FUZZ_CHECK(out.bytes >= 6 && memcmp(out.data, "before", 6) == 0);
    FUZZ_CHECK(done || out.bytes == 6);
    if (done && valid) FUZZ_CHECK(ebb_text_utf8_valid(out.data, out.bytes) == out.bytes);
    /* Where spans are wanted more is refused. */
    if (fuzz_succeeded(ctx, ebb_jinja_render(ctx, jinja, &options, variables, &again, &spans))) {
        FUZZ_CHECK(done && again.bytes == out.bytes - 6);
        FUZZ_CHECK(again.bytes == 0 || memcmp(again.data, out.data + 6, again.bytes) == 0);
        for (int64_t i = 0; i < spans.count; i++)
            FUZZ_CHECK(spans.items[i].begin <= spans.items[i].end &&
                       spans.items[i].end <= again.bytes &&
                       (i == 0 || spans.items[i - 1].end <= spans.items[i].begin));
    }
    ebb_jinja_spans_free(ctx, &spans);
    ebb_str_free(ctx, &again);
    ebb_str_free(ctx, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct ebb_jinja *jinja;
    json_t *variables;
    const char *text = bytes > 0 ? (const char *)data : "";
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_json_parse(ctx, "variables", 0, variables_text,
                                                  sizeof variables_text - 1, &variables)));
    if (fuzz_succeeded(ctx, ebb_jinja_compile(ctx, "t.jinja", text, bytes, &jinja))) {
        render(ctx, jinja, variables, ebb_text_utf8_valid(text, bytes) == bytes);
        ebb_jinja_free(ctx, jinja);
    }
    json_decref(variables);
    fuzz_close(ctx);
    return 0;
}
