/* What `ebb data` shows, for people (data_text.c) and as JSON (data_json.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CLI_DATA_VIEW_H
#define EBB_CLI_DATA_VIEW_H

#include "cli/cli.h"
#include "recipe/survey.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A stretch of a sample's text whose tokens are all trained, or all not. */
struct ebb_data_stretch {
    size_t end; /* in the text; it begins where the one before it ends */
    bool trained;
};

/* A sample as text, special tokens included. {0} is a valid empty value; used again for each. */
struct ebb_data_sample {
    struct ebb_str text;
    struct ebb_data_stretch *items;
    int64_t count, room;
};

/* Decodes token by token. A character that several tokens make up belongs to the last of them, so
 * that every stretch is whole UTF-8. */
enum ebb_status ebb_data_sample_read(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                     const struct ebb_tokenizer *tokenizer, int64_t sample,
                                     struct ebb_data_sample *out);
void ebb_data_sample_free(struct ebb_ctx *ctx, struct ebb_data_sample *sample);

struct ebb_data_view {
    struct ebb_cli *cli;
    const struct ebb_config *config;
    struct ebb_setup *setup;
    const struct ebb_dataset *dataset;
    struct ebb_survey survey;
    int64_t *shown; /* [shown_count] owned: samples; of a pair the first */
    int64_t shown_count;
    bool color;
    int columns; /* of the terminal */
};

/* "chosen" or "rejected" of a pair; NULL for others. */
const char *ebb_data_side(const struct ebb_dataset *dataset, int64_t sample);
enum ebb_status ebb_data_print_text(const struct ebb_data_view *view);
enum ebb_status ebb_data_print_json(const struct ebb_data_view *view);

#ifdef __cplusplus
}
#endif
#endif
