/* Records: the files of a data set's split, and where each record stands in them.
 *
 * A file, always UTF-8, is one of
 *
 *   JSON        an array of objects, told from JSON lines by its first character
 *   JSON lines  one object a line
 *   CSV, TSV    RFC 4180, told by the name (".csv", ".tsv"); the first row names the columns, every
 *               value is a text
 *
 * each also compressed with gzip or zstd, told by the file's first bytes. A ".gz" or ".zst" of the
 * name is looked through: "a.csv.gz" is CSV.
 *
 * A path is such a file, or a directory of them. In a directory a file belongs to the split whose
 * name its own begins with ("train-00000.jsonl"), also in data/. Where no file is named "train",
 * those that carry no split's name are all "train"; beside one that is, they are not used, which is
 * said. A file of the split in a format that is not read stops the run. A single file is "train"
 * or what it is named.
 *
 * Files stay mapped (compressed ones: unpacked in memory) while the list lives; a record is a span
 * of text until it is parsed, so a large array of objects never becomes a tree. Once the list is
 * there, any number of threads may parse records at the same time.
 *
 * What cannot be read past is an error of the whole file: a broken array, an open quote in CSV, a
 * broken stream. What is wrong with one record only is an error of that record, told by
 * ebb_records_parse: a broken line of JSON lines, a row with more or fewer fields than there are
 * columns, a record with bytes that are no UTF-8. The caller may clear it and go on.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_RECORDS_H
#define EBB_DATA_RECORDS_H

#include "base/file.h"
#include "base/json.h"
#include "base/yaml.h"
#include "data/json_scan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_record_kind { EBB_RECORDS_ARRAY, EBB_RECORDS_LINES, EBB_RECORDS_TABLE };

struct ebb_record_file {
    char *path; /* owned */
    struct ebb_map map;
    char *unpacked;       /* owned: of a compressed file; NULL: the map is the text */
    struct ebb_span text; /* borrowed from either; all of it, with its byte order mark */
    enum ebb_record_kind kind;
    char separator;  /* TABLE: ',' or '\t'; else 0 */
    json_t *columns; /* TABLE: owned list of names; "" is a column that is not read */
};

/* {0} with a path is valid. Borrowed by the list while it lives. */
struct ebb_records_options {
    const char *path;
    const char *split; /* NULL: "train". "test", "train[:90%]", "train[100:200]" */
    /* {prompt: question}: a record's key "question" is read as "prompt", and a "prompt" of its own
     * is not read, with or without a "question". {role: speaker} and other keys of messages hold
     * inside messages; in a record that has none they hold for the record itself. A key that a
     * record lacks is left to the format, whose message then names both. */
    const struct ebb_yaml *columns;
    /* {user: human, assistant: [bot, gpt]}: a message's role "human" is read as "user". */
    const struct ebb_yaml *roles;
};

struct ebb_record_span {
    struct ebb_span text; /* a row without its line end */
    int32_t file;
    int line; /* of its first byte, from 1 */
};

/* {0} is a valid empty value. */
struct ebb_records {
    struct ebb_record_file *files;
    int64_t file_count;
    struct ebb_record_span *spans; /* of all files, in order */
    int64_t span_count, span_room;
    int64_t first, count; /* the slice that the split names: spans[first .. first + count) */
    struct ebb_records_options options;
    /* For caches: of all files' text (unpacked) and kind. Neither their names, nor the slice, nor
     * columns and roles are in it. */
    uint64_t hash;
};

/* Finds the files, unpacks what is compressed and lists their records. The caller closes.
 *
 * EBB_BAD_CONFIG   no such file or split; a slice that takes nothing; a column or role of the data
 *                  that is named twice or is no text
 * EBB_BAD_FILE     no records at all, or what cannot be read past
 * EBB_UNSUPPORTED  what people have data in and Ebb does not read (Parquet, Arrow, xz, ...), with
 *                  the way around it */
enum ebb_status ebb_records_open(struct ebb_ctx *ctx, const struct ebb_records_options *options,
                                 struct ebb_records *records);
void ebb_records_close(struct ebb_ctx *ctx, struct ebb_records *records);

/* Parses record `i` of the slice, an object, and renames its keys as `columns` and `roles` say. The
 * caller owns *json; NULL after a failure. EBB_BAD_FILE for what is wrong with this record. */
enum ebb_status ebb_records_parse(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i,
                                  json_t **json);
/* "path:line: record 12" of record `i` of the slice, for messages; records are counted over all
 * files, lines in the text as it is unpacked. The caller frees. NULL after EBB_NO_MEMORY. */
char *ebb_records_name(struct ebb_ctx *ctx, const struct ebb_records *records, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
