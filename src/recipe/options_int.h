/* What the files that read options share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_OPTIONS_INT_H
#define EBB_RECIPE_OPTIONS_INT_H

#include "recipe/options.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_WORD_BYTES = 64 }; /* a key, an alias or a choice with its NUL */

struct ebb_options {
    struct ebb_ctx *ctx;
    enum ebb_command command;
    struct ebb_config *config;  /* borrowed */
    struct ebb_origin *origins; /* [rows of the table] */
    const char *path;           /* among `kept`; NULL: no file */
    int left_alone;             /* keys of another command in the file */
    char **kept;                /* texts that origins borrow */
    size_t kept_count, kept_room;
    char where[512];
};

/* Adds a cell of a table of Markdown: '|' would end it. */
enum ebb_status ebb_help_cell(struct ebb_ctx *ctx, struct ebb_str *out, const char *text);
/* Adds what a translated spelling means: "`use_peft`: lora is true, none is false". */
enum ebb_status ebb_help_spelling(struct ebb_ctx *ctx, struct ebb_str *out,
                                  const struct ebb_spelling *spelling);
const char *ebb_options_where_origin(struct ebb_options *options, const struct ebb_origin *origin);

#ifdef __cplusplus
}
#endif
#endif
