/* Fuzz target: a run's configuration file, for the command that the first byte names, and
 * arguments behind it, each behind a NUL.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz.h"
#include "recipe/options.h"

/* With a NUL at its end, as main() gets it. The caller frees. */
static char *copy(struct fuzz_text text)
{
    char *made = (char *)calloc(1, text.bytes + 1);
    FUZZ_CHECK(made != NULL);
    memcpy(made, text.data, text.bytes);
    return made;
}

static enum ebb_status read_all(struct ebb_options *options, const uint8_t *data, size_t bytes)
{
    struct fuzz_text file = fuzz_take(&data, &bytes);
    fuzz_file("a.yaml", file.data, file.bytes);
    enum ebb_status status = ebb_options_file(options, "mem/a.yaml");
    while (status == EBB_OK && bytes > 0) {
        char *argument = copy(fuzz_take(&data, &bytes));
        /* A file's name as an argument leads out of the folder in memory. */
        if (strchr(argument, '=') != NULL) status = ebb_options_arguments(options, 1, &argument);
        free(argument);
    }
    return status == EBB_OK ? ebb_options_check(options) : status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) return 0;
    struct ebb_ctx *ctx = fuzz_open();
    struct ebb_config config;
    struct ebb_options *options;
    struct ebb_str text = {0};
    enum ebb_command command = (enum ebb_command)(data[0] % EBB_COMMAND_COUNT);
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_options_create(ctx, command, &config, &options)));
    if (fuzz_succeeded(ctx, read_all(options, data + 1, bytes - 1))) {
        json_t *json = ebb_options_json(options);
        FUZZ_CHECK(json != NULL);
        FUZZ_CHECK(fuzz_succeeded(ctx, ebb_json_text(ctx, json, 0, &text)));
        json_decref(json);
    }
    ebb_str_free(ctx, &text);
    ebb_options_free(options);
    fuzz_close(ctx);
    return 0;
}
