/* Records: the files of a data set's split, and where each record stands in them.
 *
 * Files stay mapped while the list lives; a record is a span of text until it is parsed, so a large
 * array of objects never becomes a tree. Reading is thread-safe once the list is there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_RECORDS_H
#define EBB_DATA_RECORDS_H

#include "base/file.h"
#include "base/json.h"
#include "data/json_scan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_record_file {
    char *path; /* owned */
    struct ebb_map map;
    bool lines; /* JSON lines, else an array */
};

struct ebb_record_span {
    struct ebb_span text;
    int64_t file;
};

/* {0} is a valid empty value. */
struct ebb_records {
    struct ebb_record_file *files;
    int64_t file_count;
    struct ebb_record_span *spans; /* of all files, in order */
    int64_t span_count, span_room;
    int64_t first, count; /* the slice that the split names: spans[first .. first + count) */
};

/* Finds the files, checks that they are UTF-8 and lists their records. `split` as in struct
 * ebb_dataset_options. */
enum ebb_status ebb_records_open(struct ebb_ctx *ctx, const char *path, const char *split,
                                 struct ebb_records *records);
void ebb_records_close(struct ebb_ctx *ctx, struct ebb_records *records);
/* Parses record `i` of the slice, an object. The caller owns *json. */
enum ebb_status ebb_records_parse(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i,
                                  json_t **json);
/* "path:line: record 12" of record `i` of the slice, for messages; the caller frees. NULL after
 * EBB_NO_MEMORY. */
char *ebb_records_name(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
