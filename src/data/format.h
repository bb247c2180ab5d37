/* Formats: what a record's keys mean. One row each in format.c's table.
 *
 * A format turns a record into *parts*, texts that follow each other, each marked as prompt or as
 * what the model shall learn to say. A part's end is a token's end.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_FORMAT_H
#define EBB_DATA_FORMAT_H

#include "data/records.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_part {
    size_t end; /* in text; a part begins where the one before it ends */
    bool learned;
};

/* {0} is a valid empty value; used again for each record. */
struct ebb_parts {
    struct ebb_str text;
    struct ebb_part *items;
    int64_t count, room;
};

enum ebb_status ebb_parts_end(struct ebb_ctx *ctx, struct ebb_parts *parts, bool learned);
void ebb_parts_free(struct ebb_ctx *ctx, struct ebb_parts *parts);

/* A record as a format sees it. */
struct ebb_format_record {
    const struct ebb_records *records; /* borrowed, for messages */
    int64_t index;
    const json_t *json;
    const char *text_field;
};

struct ebb_format {
    const char *name;
    const char *keys; /* a record with all of these is of this format; "": the text field */
    bool has_prompt;
    const char *refused; /* a known format that is not offered: what it is; else NULL */
    enum ebb_status (*render)(struct ebb_ctx *ctx, const struct ebb_format_record *record,
                              struct ebb_parts *parts);
};

/* By name, or for NULL and "auto" by the first record's keys. */
enum ebb_status ebb_format_find(struct ebb_ctx *ctx, const char *name,
                                const struct ebb_format_record *first,
                                const struct ebb_format **format);

#ifdef __cplusplus
}
#endif
#endif
