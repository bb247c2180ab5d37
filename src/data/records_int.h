/* What the files of records share: finding files, and what a file is by its name and content.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_RECORDS_INT_H
#define EBB_DATA_RECORDS_INT_H

#include "data/records.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "train", "train[:90%]", "test[100:200]". */
struct ebb_split {
    char name[64];
    double from, to; /* records, or percent; to < 0: the end */
    bool from_percent, to_percent;
};

/* NULL or "" is "train". EBB_BAD_CONFIG for what can't be read. */
enum ebb_status ebb_split_parse(struct ebb_ctx *ctx, const char *text, struct ebb_split *split);
/* Which of `count` records: [*from, *to), empty where from >= to. */
void ebb_split_slice(const struct ebb_split *split, int64_t count, int64_t *from, int64_t *to);

/* Appends the files of a split, by path only, in the order of their names. */
enum ebb_status ebb_records_find(struct ebb_ctx *ctx, struct ebb_records *records, const char *path,
                                 const char *split);
/* ',' or '\t' for a name of a table ("a.csv", "a.TSV.gz"), else 0. */
char ebb_records_separator(const char *path);
/* EBB_UNSUPPORTED where the content is of a format that is known and not read. */
enum ebb_status ebb_records_refuse(struct ebb_ctx *ctx, const char *path, struct ebb_span text);

/* EBB_BAD_CONFIG for columns or roles that can't be meant; parsing then relies on them. */
enum ebb_status ebb_records_check_names(struct ebb_ctx *ctx,
                                        const struct ebb_records_options *options);
/* Renames a record's keys and roles as the options say; takes *json and gives another. */
enum ebb_status ebb_records_rename(struct ebb_ctx *ctx, const struct ebb_records_options *options,
                                   json_t **json);
/* Of the byte order mark that a text begins with: 3, or 0. */
size_t ebb_records_mark_bytes(struct ebb_span text);
/* The line of a byte of the file's text, from 1; and the same counted from the start of a line. */
int ebb_records_lines(const struct ebb_record_file *file, const char *from, const char *at);
int ebb_records_line(const struct ebb_record_file *file, const char *at);
/* Parses a value of JSON that stands in a file's text, from `line` on (0: to be counted where it is
 * needed). Fails with the place in the file. */
enum ebb_status ebb_records_json(struct ebb_ctx *ctx, const struct ebb_record_file *file, int line,
                                 struct ebb_span text, json_t **json);
/* EBB_BAD_FILE, naming the place, for bytes that are no UTF-8. `line` as above. */
enum ebb_status ebb_records_utf8(struct ebb_ctx *ctx, const struct ebb_record_file *file, int line,
                                 struct ebb_span text);

#ifdef __cplusplus
}
#endif
#endif
