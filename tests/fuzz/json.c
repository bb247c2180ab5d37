/* Fuzz target: JSON as files hold it. What is read, written and read again is the same value, and
 * typed look-ups take what they say.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "fuzz.h"

static void look_up(struct ebb_ctx *ctx, const json_t *json)
{
    int64_t integer;
    double real;
    bool flag, found;
    const char *text;
    (void)fuzz_succeeded(ctx, ebb_json_int64(ctx, "here", json, "a", &integer, &found));
    (void)fuzz_succeeded(ctx, ebb_json_double(ctx, "here", json, "a", &real, &found));
    (void)fuzz_succeeded(ctx, ebb_json_bool(ctx, "here", json, "a", &flag, &found));
    (void)fuzz_succeeded(ctx, ebb_json_string(ctx, "here", json, "a", &text, NULL));
}

static void write_and_read(struct ebb_ctx *ctx, const json_t *json, int indent)
{
    struct ebb_str text = {0};
    json_t *again = NULL;
    if (fuzz_succeeded(ctx, ebb_json_text(ctx, json, indent, &text))) {
        FUZZ_CHECK(
            fuzz_succeeded(ctx, ebb_json_parse(ctx, "again", 0, text.data, text.bytes, &again)));
        FUZZ_CHECK(json_equal((json_t *)(uintptr_t)json, again));
    }
    json_decref(again);
    ebb_str_free(ctx, &text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    json_t *json;
    fuzz_file("a.json", data, bytes);
    if (fuzz_succeeded(ctx, ebb_json_load(ctx, "mem/a.json", &json))) {
        look_up(ctx, json);
        write_and_read(ctx, json, 0);
        write_and_read(ctx, json, 2);
        json_decref(json);
    }
    fuzz_close(ctx);
    return 0;
}
