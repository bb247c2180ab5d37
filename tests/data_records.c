/* Records: which files a path means, what stands in them, and every message for what can't be
 * read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include <zlib.h>
#include <zstd.h>

#include "base/clock.h"
#include "base/yaml.h"
#include "data/records.h"

/* ---- what the cases share ---- */

static void write_gzip(struct room *room, const char *name, const char *text, size_t bytes)
{
    size_t size = compressBound((uLong)bytes) + 64;
    unsigned char *data = malloc(size);
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)text;
    stream.avail_in = (uInt)bytes;
    stream.next_out = data;
    stream.avail_out = (uInt)size;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    room_write_bytes(room, name, (const char *)data, size - stream.avail_out);
    free(data);
}

static void write_zstd(struct room *room, const char *name, const char *text, size_t bytes)
{
    size_t size = ZSTD_compressBound(bytes);
    char *data = malloc(size);
    size_t got = ZSTD_compress(data, size, text, bytes, 3);
    assert_false(ZSTD_isError(got));
    room_write_bytes(room, name, data, got);
    free(data);
}

static enum ebb_status open_split(struct room *room, const char *name, const char *split,
                                  struct ebb_records *records)
{
    struct ebb_records_options options = {.path = room_path(room, name), .split = split};
    return ebb_records_open(room->ctx, &options, records);
}

/* All records of the slice, a JSON text each, "; " between them; a record's error is "!". */
static void read_records(struct room *room, const struct ebb_records *records, struct ebb_str *out)
{
    out->bytes = 0;
    for (int64_t i = 0; i < records->count; i++) {
        json_t *json;
        if (i > 0) assert_ok(room, ebb_str_add(room->ctx, out, "; ", 2));
        enum ebb_status status = ebb_records_parse(room->ctx, records, i, &json);
        if (status == EBB_OK)
            assert_ok(room, ebb_json_text(room->ctx, json, 0, out));
        else {
            assert_int_equal(status, EBB_BAD_FILE);
            assert_null(json);
            ebb_error_clear(room->ctx);
            assert_ok(room, ebb_str_add(room->ctx, out, "!", 1));
        }
        json_decref(json);
    }
}

static void assert_reads_with(struct room *room, const struct ebb_records_options *options,
                              const char *wanted)
{
    struct ebb_records records;
    struct ebb_str out = {0};
    assert_ok(room, ebb_records_open(room->ctx, options, &records));
    read_records(room, &records, &out);
    assert_string_equal(out.data, wanted);
    ebb_str_free(room->ctx, &out);
    ebb_records_close(room->ctx, &records);
}

static void assert_reads(struct room *room, const char *name, const char *split, const char *wanted)
{
    struct ebb_records_options options = {.path = room_path(room, name), .split = split};
    assert_reads_with(room, &options, wanted);
}

static void assert_open_fails(struct room *room, const char *name, const char *split,
                              enum ebb_status wanted, const char *first, const char *second)
{
    struct ebb_records records;
    enum ebb_status status = open_split(room, name, split, &records);
    assert_failed(room, status, wanted, first, second, NULL);
    assert_null(records.files);
}

/* Record `i` of the file fails so, and those beside it are read. */
static void assert_record_fails(struct room *room, const char *name, int64_t i, const char *first,
                                const char *second)
{
    struct ebb_records records;
    json_t *json;
    assert_ok(room, open_split(room, name, NULL, &records));
    assert_true(i < records.count);
    for (int64_t k = 0; k < records.count; k++) {
        enum ebb_status status = ebb_records_parse(room->ctx, &records, k, &json);
        if (k == i) {
            assert_failed(room, status, EBB_BAD_FILE, first, second, NULL);
            assert_null(json);
        } else
            assert_ok(room, status);
        json_decref(json);
    }
    ebb_records_close(room->ctx, &records);
}

/* ---- formats ---- */

static void each_kind_of_file_gives_the_same_records(void **state)
{
    struct room *room = *state;
    static const char array[] = "[{\"a\": \"1\", \"b\": \"x\"},\n {\"a\": \"2\", \"b\": \"y\"}]";
    static const char lines[] =
        "{\"a\": \"1\", \"b\": \"x\"}\n\n  \t\r\n{\"a\": \"2\", \"b\": \"y\"}";
    static const char csv[] = "a,b\r\n1,x\r\n\r\n2,\"y\"\r\n";
    static const char tsv[] = "a\tb\n1\tx\n2\ty\n";
    static const struct {
        const char *end, *text;
        enum ebb_record_kind kind;
    } cases[] = {{"json", array, EBB_RECORDS_ARRAY},   {"json", lines, EBB_RECORDS_LINES},
                 {"jsonl", lines, EBB_RECORDS_LINES},  {"jsonl", array, EBB_RECORDS_ARRAY},
                 {"ndjson", lines, EBB_RECORDS_LINES}, {"csv", csv, EBB_RECORDS_TABLE},
                 {"CSV", csv, EBB_RECORDS_TABLE},      {"tsv", tsv, EBB_RECORDS_TABLE},
                 {"txt", lines, EBB_RECORDS_LINES}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int packed = 0; packed < 4; packed++) {
            char name[32], text[128];
            snprintf(name, sizeof name, "f.%s%s", cases[i].end,
                     packed == 1   ? ".gz"
                     : packed == 2 ? ".zst"
                                   : "");
            /* The third time with a byte order mark. */
            snprintf(text, sizeof text, "%s%s", packed == 3 ? "\xef\xbb\xbf" : "", cases[i].text);
            if (packed == 1)
                write_gzip(room, name, text, strlen(text));
            else if (packed == 2)
                write_zstd(room, name, text, strlen(text));
            else
                room_write(room, name, text);
            assert_reads(room, name, NULL,
                         "{\"a\": \"1\", \"b\": \"x\"}; {\"a\": \"2\", \"b\": \"y\"}");
            struct ebb_records records;
            assert_ok(room, open_split(room, name, NULL, &records));
            assert_int_equal(records.files[0].kind, cases[i].kind);
            ebb_records_close(room->ctx, &records);
        }
    }
}

static void compression_is_told_by_content_and_not_by_name(void **state)
{
    struct room *room = *state;
    room_write(room, "a.jsonl.gz", "{\"a\": 1}\n");
    assert_reads(room, "a.jsonl.gz", NULL, "{\"a\": 1}");
    write_gzip(room, "b.jsonl", "{\"a\": 2}\n", 9);
    assert_reads(room, "b.jsonl", NULL, "{\"a\": 2}");
    write_gzip(room, "c.csv", "a\n3\n", 4);
    assert_reads(room, "c.csv", NULL, "{\"a\": \"3\"}");
}

static void fields_of_a_table_are_texts_as_they_stand(void **state)
{
    struct room *room = *state;
    room_write(room, "a.csv",
               "prompt,,completion,\n\"two\nlines, \"\"quoted\"\"\",x, 1 ,y\n,,\xc3\xa9,\n");
    assert_reads(room, "a.csv", NULL,
                 "{\"prompt\": \"two\\nlines, \\\"quoted\\\"\", \"completion\": \" 1 \"}; "
                 "{\"prompt\": \"\", \"completion\": \"\xc3\xa9\"}");
}

static void names_say_line_and_number_of_a_record(void **state)
{
    struct room *room = *state;
    static const char csv[] = "a\n\"one\ntwo\nthree\"\n\nfour\n\"five\r\nsix\"\nseven\n";
    static const int lines[] = {2, 6, 7, 9};
    for (int packed = 0; packed < 2; packed++) {
        const char *name = packed ? "a.csv.gz" : "a.csv";
        if (packed)
            write_gzip(room, name, csv, sizeof csv - 1);
        else
            room_write(room, name, csv);
        struct ebb_records records;
        assert_ok(room, open_split(room, name, NULL, &records));
        assert_int_equal(records.count, 4);
        for (int i = 0; i < 4; i++) {
            char wanted[300];
            snprintf(wanted, sizeof wanted, "%s/%s:%d: record %d", room->dir, name, lines[i],
                     i + 1);
            char *said = ebb_records_name(room->ctx, &records, i);
            assert_string_equal(said, wanted);
            ebb_mem_free(room->ctx, said);
        }
        ebb_records_close(room->ctx, &records);
    }
}

/* ---- paths and splits ---- */

static void a_directory_gives_the_files_of_its_split_in_order(void **state)
{
    struct room *room = *state;
    room_write(room, "d/train-1.jsonl", "{\"n\": 2}\n{\"n\": 3}\n");
    room_write(room, "d/train-0.csv", "n\n1\n");
    write_zstd(room, "d/train-2.json.zst", "[{\"n\": 4}]", 10);
    room_write(room, "d/data/train.tsv", "n\n5\n");
    room_write(room, "d/test.jsonl", "{\"n\": 6}\n");
    room_write(room, "d/other.jsonl", "{\"n\": 7}\n");
    room_write(room, "d/trainer.jsonl", "{\"n\": 8}\n");
    room_write(room, "d/README.md", "{\"n\": 9}\n");
    room_write(room, "d/dataset_info.json", "{\"n\": 10}\n");
    room_write(room, "d/.hidden.jsonl", "{\"n\": 11}\n");
    const char *all = "{\"n\": \"1\"}; {\"n\": 2}; {\"n\": 3}; {\"n\": 4}; {\"n\": \"5\"}";
    assert_reads(room, "d", NULL, all);
    assert_non_null(strstr(room->info, "d: 2 files without a split's name are not used "
                                       "(other.jsonl, ...), as others are named 'train'"));
    assert_reads(room, "d", "train", all);
    assert_reads(room, "d", "test", "{\"n\": 6}");
    assert_reads(room, "d", "train[1:3]", "{\"n\": 2}; {\"n\": 3}");
    assert_reads(room, "d", "train[:40%]", "{\"n\": \"1\"}; {\"n\": 2}");
    assert_reads(room, "d", "train[80%:]", "{\"n\": \"5\"}");
    assert_reads(room, "d", "train[3:]", "{\"n\": 4}; {\"n\": \"5\"}");
    struct ebb_records records;
    assert_ok(room, open_split(room, "d", "train[3:]", &records));
    char *name = ebb_records_name(room->ctx, &records, 1);
    assert_non_null(strstr(name, "d/data/train.tsv:2: record 5"));
    ebb_mem_free(room->ctx, name);
    ebb_records_close(room->ctx, &records);
    assert_open_fails(room, "d", "validation", EBB_BAD_CONFIG,
                      "no data file of the split 'validation' is here (here are: other.jsonl, "
                      "test.jsonl, train-0.csv, train-1.jsonl, train-2.json.zst, trainer.jsonl, "
                      "train.tsv)",
                      ".zst");
}

static void files_without_a_splits_name_are_all_train(void **state)
{
    struct room *room = *state;
    room_write(room, "d/b.jsonl", "{\"n\": 2}\n");
    room_write(room, "d/a.csv", "n\n1\n");
    room_write(room, "d/valid.jsonl", "{\"n\": 3}\n");
    assert_reads(room, "d", NULL, "{\"n\": \"1\"}; {\"n\": 2}");
    assert_reads(room, "d", "valid", "{\"n\": 3}");
    assert_string_equal(room->info, "");
    assert_open_fails(room, "d", "test", EBB_BAD_CONFIG, "no data file of the split 'test'", "");
}

static void a_single_file_has_the_split_that_it_is_named(void **state)
{
    struct room *room = *state;
    room_write(room, "test.jsonl", "{\"n\": 1}\n");
    assert_reads(room, "test.jsonl", "train", "{\"n\": 1}");
    assert_reads(room, "test.jsonl", "test", "{\"n\": 1}");
    assert_open_fails(room, "test.jsonl", "validation", EBB_BAD_CONFIG,
                      "test.jsonl: a single file has only the split 'train'", "'validation'");
}

static void long_lists_of_files_are_cut_short(void **state)
{
    struct room *room = *state;
    for (int i = 0; i < 14; i++) {
        char name[32];
        snprintf(name, sizeof name, "d/test-%02d.jsonl", i);
        room_write(room, name, "{}\n");
    }
    assert_open_fails(room, "d", NULL, EBB_BAD_CONFIG, "test-09.jsonl and 4 more)", "'train'");
}

static void a_file_packed_and_unpacked_side_by_side_is_refused(void **state)
{
    struct room *room = *state;
    room_write(room, "d/train.jsonl", "{\"n\": 1}\n");
    room_write(room, "d/train-1.jsonl", "{\"n\": 1}\n");
    write_gzip(room, "d/train.jsonl.gz", "{\"n\": 1}\n", 9);
    assert_open_fails(room, "d", NULL, EBB_BAD_CONFIG, "d/train.jsonl and ",
                      "d/train.jsonl.gz are one file, compressed and not");
    assert_reads(room, "d/train.jsonl.gz", NULL, "{\"n\": 1}");
}

static void splits_that_mean_nothing_are_refused(void **state)
{
    struct room *room = *state;
    room_write(room, "a.jsonl", "{}\n{}\n{}\n");
    static const char *const splits[] = {"[:3]",       "train[",       "train[3]",  "train[a:b]",
                                         "train[-1:]", "train[:101%]", "train[1:2", "train[%:]"};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++)
        assert_open_fails(room, "a.jsonl", splits[i], EBB_BAD_CONFIG, "the split '",
                          "can't be read");
    assert_open_fails(room, "a.jsonl", "train[2:2]", EBB_BAD_CONFIG, "none of the 3 records", "");
    assert_open_fails(room, "a.jsonl", "train[5:9]", EBB_BAD_CONFIG, "none of the 3 records", "");
}

static void what_is_not_there_or_empty_is_said(void **state)
{
    struct room *room = *state;
    assert_open_fails(room, "none.jsonl", NULL, EBB_BAD_CONFIG, "none.jsonl: no such file", "CSV");
    assert_ok(room, ebb_dir_create(room->ctx, room_path(room, "empty")));
    assert_open_fails(room, "empty", NULL, EBB_BAD_CONFIG, "here are: none at all", "");
    static const struct {
        const char *name, *text;
    } cases[] = {{"a.jsonl", ""},        {"b.jsonl", "\n \n"},
                 {"c.json", "[]"},       {"d.json", " [ ]\n"},
                 {"e.csv", ""},          {"f.csv", "a,b\n"},
                 {"g.csv", "\n\na\n\n"}, {"h.csv", "\xef\xbb\xbf"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        room_write(room, cases[i].name, cases[i].text);
        assert_open_fails(room, cases[i].name, NULL, EBB_BAD_FILE, cases[i].name,
                          "no records here: the data set is empty");
    }
    write_gzip(room, "i.jsonl.gz", "", 0);
    assert_open_fails(room, "i.jsonl.gz", NULL, EBB_BAD_FILE, "no records here", "");
}

/* ---- what is not read ---- */

static void formats_that_are_not_read_are_named(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *name, *text, *format; /* formats in small letters pack other files */
    } cases[] = {{"a.parquet", "x", "Parquet"},
                 {"a.arrow", "x", "Arrow"},
                 {"a.jsonl.xz", "x", "xz"},
                 {"a.csv.BZ2", "x", "bzip2"},
                 {"a.tar.gz", "x", "tar"},
                 {"a.xlsx", "x", "Excel"},
                 {"a.zip", "x", "zip"},
                 {"b", "PAR1\x15\x04\x15\x10", "Parquet"},
                 {"c.jsonl",
                  "\xfd"
                  "7zXZ",
                  "xz"},
                 {"d.csv", "PK\x03\x04\x14", "zip"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[64];
        room_write(room, cases[i].name, cases[i].text);
        snprintf(wanted, sizeof wanted, "%s: %s is not read", cases[i].name, cases[i].format);
        bool packs = cases[i].format[0] >= 'a';
        assert_open_fails(room, cases[i].name, NULL, EBB_UNSUPPORTED, wanted,
                          packs ? "unpack this file" : "Dataset.to_json");
    }
    room_write(room, "d/train-0.parquet", "x");
    room_write(room, "d/train-1.parquet", "x");
    assert_open_fails(room, "d", NULL, EBB_UNSUPPORTED, "d/train-0.parquet: Parquet is not read",
                      "Dataset.to_json");
    /* Nor is the rest of a split read without them. */
    static const struct {
        const char *dir, *bad, *good, *also;
    } parts[] = {{"p1", "train-1.parquet", "train-0.jsonl", "other.jsonl"},
                 {"p2", "data/train-1.jsonl.xz", "train-0.jsonl", "other.jsonl"},
                 {"p3", "b.arrow", "a.jsonl", "test.jsonl"},
                 {"p4", "train.parquet", "other.jsonl", "test.jsonl"}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64], wanted[64];
        snprintf(wanted, sizeof wanted, "%s/%s: ", parts[i].dir, parts[i].bad);
        const char *const files[] = {parts[i].bad, parts[i].good, parts[i].also};
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "%s/%s", parts[i].dir, files[k]);
            room_write(room, name, "{\"n\": 1}\n");
        }
        assert_open_fails(room, parts[i].dir, NULL, EBB_UNSUPPORTED, wanted,
                          i == 3 ? " is not read\na data set is" :
                                   " is not read, and the files beside it would be only a part of "
                                   "the split 'train'\nwrite it as JSON lines, or move it");
    }
    assert_reads(room, "p3", "test", "{\"n\": 1}"); /* which has all its files */
    room_write(room, "p5/a.jsonl", "{\"n\": 1}\n");
    room_write(room, "p5/.cache.arrow", "x");
    assert_reads(room, "p5", NULL, "{\"n\": 1}");
    room_write(room, "saved/data-00000-of-00001.arrow", "x");
    room_write(room, "saved/dataset_info.json", "{}");
    room_write(room, "saved/state.json", "{}");
    assert_open_fails(room, "saved", NULL, EBB_UNSUPPORTED, "Arrow is not read", "");
    room_write_bytes(room, "u.csv",
                     "\xff\xfe"
                     "a\0\n\0"
                     "b\0\n\0",
                     10);
    assert_open_fails(room, "u.csv", NULL, EBB_BAD_FILE, "u.csv: not UTF-8 but UTF-16", "save");
}

static void texts_that_begin_like_another_format_are_read(void **state)
{
    struct room *room = *state;
    room_write(room, "a.csv", "ORCID,PAR1\nBZh,ARROW1\n");
    assert_reads(room, "a.csv", NULL, "{\"ORCID\": \"BZh\", \"PAR1\": \"ARROW1\"}");
}

/* ---- broken files ---- */

static void a_broken_array_is_told_with_its_place(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"[\n  {\"text\": \"one\"},\n  {\"text\": \"two\"\n]\n",
         "a.json:4:1: '}' expected near ']'"},
        {"[{\"a\": 1}", "a.json:1: ',' or ']' expected at the end of the file"},
        {"[{\"a\": 1},", "a.json:1: a record expected at the end of the file"},
        {"[{\"a\": 1}\n {\"b\": 2}]", "a.json:2: ',' or ']' expected near '{\"b\": 2}]'"},
        {"[{\"a\": 1}]\n\n[]", "a.json:3: the end of the file expected near '[]'"},
        {"[{\"a\": 1},\n]", "a.json:2:1: "},
        {"[{\"a\": \"x}]", "a.json:1:"},
        {"[", "a.json:1: a record expected at the end of the file"},
        {"[1 2", "a.json:1: ',' or ']' expected near '2'"},
        {"[1 \x01", "a.json:1: ',' or ']' expected near byte 0x01"},
        {"[1\n\xc3\xa9\xff", "a.json:2: ',' or ']' expected near '\xc3\xa9'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        room_write(room, "a.json", cases[i].text);
        assert_open_fails(room, "a.json", NULL, EBB_BAD_FILE, cases[i].wanted, "");
    }
}

static void an_object_over_several_lines_is_told_once(void **state)
{
    struct room *room = *state;
    room_write(room, "a.json", "\n{\n  \"a\": 1\n}\n");
    assert_open_fails(room, "a.json", NULL, EBB_BAD_FILE,
                      "a.json:2: the first object goes over several lines", "one object a line");
}

static void an_open_quote_is_told_with_the_line_where_it_opens(void **state)
{
    struct room *room = *state;
    room_write(room, "a.csv", "a,b\n1,2\n\"x\ny\",\"never\n\n\n3,4\n");
    assert_open_fails(room, "a.csv", NULL, EBB_BAD_FILE,
                      "a.csv:4: the quote that opens a field here is never closed", "twice");
    room_write(room, "b.csv", "\"a,b\n1,2\n");
    assert_open_fails(room, "b.csv", NULL, EBB_BAD_FILE, "b.csv:1: the quote that opens", "");
}

static void columns_that_cant_be_told_apart_are_refused(void **state)
{
    struct room *room = *state;
    room_write(room, "a.csv", "\n\na,b,a\n1,2,3\n");
    assert_open_fails(room, "a.csv", NULL, EBB_BAD_FILE, "a.csv:3: two columns are named 'a'", "");
    room_write(room, "b.csv", "a,\"b\"c\n1,2\n");
    assert_open_fails(room, "b.csv", NULL, EBB_BAD_FILE,
                      "b.csv:1: column 2's name goes on behind its closing quote", "");
    room_write(room, "c.csv", "a,caf\xe9\n1,2\n");
    assert_open_fails(room, "c.csv", NULL, EBB_BAD_FILE,
                      "c.csv:1: not UTF-8: byte 0xe9 at offset 5", "save the file as UTF-8");
    room_write_bytes(room, "d.csv", "a\0b\n1\n", 6);
    assert_open_fails(room, "d.csv", NULL, EBB_BAD_FILE, "d.csv:1: column 1's name has a NUL", "");
}

static void a_broken_stream_is_told_with_its_byte(void **state)
{
    struct room *room = *state;
    write_gzip(room, "a.jsonl.gz", "{\"n\": 1}\n{\"n\": 2}\n", 18);
    struct ebb_map map;
    assert_ok(room, ebb_map_open(room->ctx, room_path(room, "a.jsonl.gz"), &map));
    size_t bytes = map.bytes;
    for (size_t cut = 0; cut < bytes; cut++) {
        room_write_bytes(room, "torn.jsonl.gz", (const char *)map.data, cut);
        struct ebb_records records;
        enum ebb_status status = open_split(room, "torn.jsonl.gz", NULL, &records);
        if (cut == 1) { /* too short to be seen as gzip: a line that is no JSON */
            json_t *json;
            assert_ok(room, status);
            status = ebb_records_parse(room->ctx, &records, 0, &json);
            ebb_records_close(room->ctx, &records);
        }
        assert_failed(room, status, EBB_BAD_FILE, "torn.jsonl.gz", cut > 1 ? "ends too early" : "",
                      NULL);
    }
    ebb_map_close(&map);
}

/* ---- broken records ---- */

static void what_is_wrong_with_a_record_is_its_own_error(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *name, *text;
        int64_t record;
        const char *first, *second;
    } cases[] = {
        {"a.jsonl", "{}\n{\"a\" 1}\n{}\n", 1, "a.jsonl:2:6: ':' expected near '1'", ""},
        {"a.jsonl", "{}\n\n\n  {\"a\": x}\n{}\n", 1, "a.jsonl:4:9: ", ""},
        {"a.jsonl", "{}\n{\"a\": 1\n{}\n", 1, "a.jsonl:2:7: '}' expected near end of file", ""},
        {"a.jsonl", "{}\n{\"a\": 1} {}\n{}\n", 1, "a.jsonl:2:", "end of file expected near '{'"},
        {"a.jsonl", "{\"a\": 1, \"a\": 2}\n{}\n", 0, "a.jsonl:1:", "duplicate"},
        {"a.jsonl", "{}\n{\"a\": \"caf\xe9\"}\n{}\n", 1,
         "a.jsonl:2: not UTF-8: byte 0xe9 at offset 13", "save the file as UTF-8"},
        {"a.jsonl", "\xef\xbb\xbf{\"a\": x}\n{}\n", 0, "a.jsonl:1:7: ", ""},
        {"a.jsonl", "{}\n[1, 2]\n", 1,
         "a.jsonl:2: record 2 is not an object: {\"key\": value, ...} is wanted", ""},
        {"a.json", "[{},\n {}, {\"\xc3\xa9\": y}, {}]", 2, "a.json:2:12: ", "'y'"},
        {"a.json", "[{}, {\"a\": \"\xff\"}]", 1, "a.json:1: not UTF-8: byte 0xff at offset 12", ""},
        {"a.json", "[{}, 3]", 1, "a.json:1: record 2 is not an object", ""},
        {"a.csv", "a,b\n1,2\n3\n4,5\n", 1,
         "a.csv:3: record 2 has 1 field, the first line names 2 columns", ""},
        {"a.csv", "a,b\n1,2,\n4,5\n", 0,
         "a.csv:2: record 1 has 3 fields, the first line names 2 columns", ""},
        {"a.csv", "a\n1\n\"2\n\"\n4,5\n", 2,
         "a.csv:5: record 3 has 2 fields, the first line names 1 column", ""},
        {"a.csv", "a,b\n\"1\"x,2\n4,5\n", 0, "a.csv:2: record 1 has text behind a closing quote",
         "twice"},
        {"a.csv", "a,b\n1,2\n\"x\n\xe9\",5\n", 1, "a.csv:4: not UTF-8: byte 0xe9 at offset 11", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        room_write(room, cases[i].name, cases[i].text);
        assert_record_fails(room, cases[i].name, cases[i].record, cases[i].first, cases[i].second);
    }
}

static void integers_beyond_64_bits_are_read(void **state)
{
    struct room *room = *state;
    room_write(room, "a.jsonl", "{\"id\": 123456789012345678901234567890}\n");
    assert_reads(room, "a.jsonl", NULL, "{\"id\": 1.2345678901234568e+29}");
}

static void files_laid_end_to_end_with_their_marks_are_read(void **state)
{
    struct room *room = *state;
    room_write(room, "a.jsonl", "\xef\xbb\xbf{\"n\": 1}\n\xef\xbb\xbf{\"n\": 2}\n");
    assert_reads(room, "a.jsonl", NULL, "{\"n\": 1}; {\"n\": 2}");
}

/* Cut behind every byte: an error, or the records that are whole. */
static void a_file_cut_off_anywhere_is_read_or_an_error(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *name, *text;
    } cases[] = {
        {"a.json",
         "\xef\xbb\xbf[{\"a\": \"x\\\"y\", \"b\": [1, {\"c\": null}]}, {\"a\": \"\xc3\xa9\"}]\n"},
        {"a.jsonl", "\xef\xbb\xbf{\"a\": \"x\\\"y\", \"b\": [1]}\r\n{\"a\": \"\xc3\xa9\"}\n"},
        {"a.csv", "\xef\xbb\xbf\"a\",b\r\n\"x\"\"\r\ny\",1\r\n\xc3\xa9,\"2\"\r\n"},
    };
    struct ebb_str out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bytes = strlen(cases[i].text);
        for (size_t cut = 0; cut <= bytes; cut++) {
            room_write_bytes(room, cases[i].name, cases[i].text, cut);
            struct ebb_records records;
            enum ebb_status status = open_split(room, cases[i].name, NULL, &records);
            if (status != EBB_OK) {
                assert_true(cut < bytes);
                assert_failed(room, status, EBB_BAD_FILE, cases[i].name, NULL);
                continue;
            }
            read_records(room, &records, &out);
            ebb_records_close(room->ctx, &records);
            if (cut == bytes) assert_null(strchr(out.data, '!'));
        }
    }
    ebb_str_free(room->ctx, &out);
}

/* ---- names ---- */

/* Reads a.jsonl with these columns and roles. */
static void assert_renames(struct room *room, const char *columns, const char *roles,
                           const char *text, const char *wanted)
{
    struct ebb_yaml *column_map = NULL, *role_map = NULL;
    room_write(room, "a.jsonl", text);
    if (columns != NULL)
        assert_ok(room,
                  ebb_yaml_parse(room->ctx, "columns", columns, strlen(columns), &column_map));
    if (roles != NULL)
        assert_ok(room, ebb_yaml_parse(room->ctx, "roles", roles, strlen(roles), &role_map));
    struct ebb_records_options options = {.path = room_path(room, "a.jsonl"),
                                          .columns = column_map,
                                          .roles = role_map};
    assert_reads_with(room, &options, wanted);
    ebb_yaml_free(room->ctx, column_map);
    ebb_yaml_free(room->ctx, role_map);
}

static void columns_rename_a_records_keys(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *columns, *text, *wanted;
    } cases[] = {
        {"{}", "{\"a\": 1}", "{\"a\": 1}"},
        {"{prompt: question, completion: answer}",
         "{\"id\": 1, \"question\": \"q\", \"answer\": \"a\"}",
         "{\"id\": 1, \"prompt\": \"q\", \"completion\": \"a\"}"},
        /* what the record has under the name already is not read */
        {"{prompt: question}", "{\"prompt\": \"old\", \"question\": \"q\", \"z\": 1}",
         "{\"prompt\": \"q\", \"z\": 1}"},
        {"{prompt: question}", "{\"question\": \"q\", \"prompt\": \"old\"}", "{\"prompt\": \"q\"}"},
        /* two names change places */
        {"{prompt: completion, completion: prompt}", "{\"prompt\": 1, \"completion\": 2}",
         "{\"completion\": 1, \"prompt\": 2}"},
        {"{prompt: prompt}", "{\"prompt\": 1}", "{\"prompt\": 1}"},
        /* nor where the other key is missing, which is left to the format */
        {"{prompt: question}", "{\"prompt\": 1, \"z\": 1}", "{\"z\": 1}"},
        {"{prompt: question, completion: prompt}", "{\"prompt\": 1}", "{\"completion\": 1}"},
        {"{text: 'a key: with signs'}", "{\"a key: with signs\": 1}", "{\"text\": 1}"},
        {"{content: body}", "{\"body\": 1}", "{\"content\": 1}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_renames(room, cases[i].columns, NULL, cases[i].text, cases[i].wanted);
}

static void columns_rename_keys_inside_messages(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *columns, *text, *wanted;
    } cases[] = {
        {"{messages: dialog, role: speaker, content: text}",
         "{\"text\": \"mine\", \"dialog\": [{\"speaker\": \"a\", \"text\": \"b\", \"x\": 1}, 5]}",
         "{\"text\": \"mine\", \"messages\": [{\"role\": \"a\", \"content\": \"b\", \"x\": 1}, "
         "5]}"},
        {"{from: who, value: said}", "{\"conversations\": [{\"who\": \"a\", \"said\": \"b\"}]}",
         "{\"conversations\": [{\"from\": \"a\", \"value\": \"b\"}]}"},
        /* preferences: lists, and one message each */
        {"{role: r, content: c}",
         "{\"chosen\": [{\"r\": 1, \"c\": 2}], \"rejected\": [{\"r\": 3, \"c\": 4}], \"prompt\": "
         "\"p\"}",
         "{\"chosen\": [{\"role\": 1, \"content\": 2}], \"rejected\": [{\"role\": 3, \"content\": "
         "4}], "
         "\"prompt\": \"p\"}"},
        {"{from: f, chosen: good}", "{\"conversations\": [{\"f\": 1}], \"good\": {\"f\": 2}}",
         "{\"conversations\": [{\"from\": 1}], \"chosen\": {\"from\": 2}}"},
        {"{content: text}", "{\"messages\": [{\"text\": 1}, {\"content\": 2, \"role\": 3}]}",
         "{\"messages\": [{\"content\": 1}, {\"role\": 3}]}"},
        /* a record's key is not a message's */
        {"{prompt: question}", "{\"messages\": [{\"question\": 1}]}",
         "{\"messages\": [{\"question\": 1}]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_renames(room, cases[i].columns, NULL, cases[i].text, cases[i].wanted);
}

static void roles_rename_what_messages_say_of_them(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *columns, *roles, *text, *wanted;
    } cases[] = {
        {NULL, "{user: human, assistant: [bot, gpt]}",
         "{\"messages\": [{\"role\": \"human\"}, {\"role\": \"bot\"}, {\"role\": \"gpt\"}, "
         "{\"role\": "
         "\"system\"}]}",
         "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"assistant\"}, {\"role\": "
         "\"assistant\"}, "
         "{\"role\": \"system\"}]}"},
        {NULL, "{human: USER}", "{\"conversations\": [{\"from\": \"USER\", \"value\": \"USER\"}]}",
         "{\"conversations\": [{\"from\": \"human\", \"value\": \"USER\"}]}"},
        {"{role: speaker}", "{user: '0', assistant: '1'}",
         "{\"messages\": [{\"speaker\": \"0\"}, {\"speaker\": \"1\"}, {\"speaker\": 1}]}",
         "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"assistant\"}, {\"role\": 1}]}"},
        {NULL, "{user: assistant, assistant: user}",
         "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"assistant\"}]}",
         "{\"messages\": [{\"role\": \"assistant\"}, {\"role\": \"user\"}]}"},
        {NULL, "{user: human}", "{\"role\": \"human\", \"text\": \"a\"}",
         "{\"role\": \"human\", \"text\": \"a\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_renames(room, cases[i].columns, cases[i].roles, cases[i].text, cases[i].wanted);
}

static void columns_hold_for_tables_too(void **state)
{
    struct room *room = *state;
    struct ebb_yaml *columns;
    room_write(room, "a.csv", "q,a\n1,2\n");
    assert_ok(room, ebb_yaml_parse(room->ctx, "columns", "{prompt: q}", 11, &columns));
    struct ebb_records_options options = {.path = room_path(room, "a.csv"), .columns = columns};
    assert_reads_with(room, &options, "{\"prompt\": \"1\", \"a\": \"2\"}");
    ebb_yaml_free(room->ctx, columns);
}

static void columns_and_roles_that_cant_be_meant_are_refused(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *columns, *roles, *wanted;
    } cases[] = {
        {"{prompt: q, completion: q}", NULL,
         "dataset_columns: 'q' is named twice, for 'prompt' and for 'completion'"},
        {"{prompt: [a, b]}", NULL, "dataset_columns: 'prompt' is no text"},
        {"{prompt: {a: b}}", NULL, "dataset_columns: 'prompt' is no text"},
        {"{prompt: null}", NULL, "dataset_columns: 'prompt' is no text"},
        {"{prompt: ''}", NULL, "dataset_columns: 'prompt' is no text"},
        {"[a, b]", NULL, "dataset_columns: {name: name in the data, ...} is wanted"},
        {"a", NULL, "dataset_columns: {name: name in the data, ...} is wanted"},
        {NULL, "{user: human, assistant: human}",
         "dataset_roles: 'human' is named twice, for 'user' and for 'assistant'"},
        {NULL, "{user: [a, b], assistant: [c, a]}",
         "dataset_roles: 'a' is named twice, for 'user' and for 'assistant'"},
        {NULL, "{user: [a, a]}", "dataset_roles: 'a' is named twice, for 'user' and for 'user'"},
        {NULL, "{user: [a, [b]]}", "dataset_roles: 'user' is no text"},
        {NULL, "{user: {a: b}}", "dataset_roles: 'user' is no text"},
        {NULL, "human", "dataset_roles: {name: name in the data, ...} is wanted"},
    };
    room_write(room, "a.jsonl", "{}\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_yaml *map;
        const char *text = cases[i].columns != NULL ? cases[i].columns : cases[i].roles;
        assert_ok(room, ebb_yaml_parse(room->ctx, "map", text, strlen(text), &map));
        struct ebb_records_options options = {.path = room_path(room, "a.jsonl")};
        *(cases[i].columns != NULL ? &options.columns : &options.roles) = map;
        struct ebb_records records;
        enum ebb_status status = ebb_records_open(room->ctx, &options, &records);
        assert_failed(room, status, EBB_BAD_CONFIG, cases[i].wanted, NULL);
        ebb_yaml_free(room->ctx, map);
    }
}

/* ---- all together ---- */

static uint64_t hash_of(struct room *room, const char *name, const char *split)
{
    struct ebb_records records;
    assert_ok(room, open_split(room, name, split, &records));
    uint64_t hash = records.hash;
    ebb_records_close(room->ctx, &records);
    return hash;
}

static void the_hash_is_of_the_texts_and_their_kind(void **state)
{
    struct room *room = *state;
    static const char text[] = "{\"a\": 1}\n{\"a\": 2}\n";
    room_write(room, "a.jsonl", text);
    uint64_t hash = hash_of(room, "a.jsonl", NULL);
    assert_true(hash == hash_of(room, "a.jsonl", "train[:1]"));
    room_write(room, "b.jsonl", text);
    assert_true(hash == hash_of(room, "b.jsonl", NULL));
    write_gzip(room, "c.jsonl.gz", text, sizeof text - 1);
    assert_true(hash == hash_of(room, "c.jsonl.gz", NULL));
    room_write(room, "d.jsonl", "{\"a\": 1}\n{\"a\": 3}\n");
    assert_true(hash != hash_of(room, "d.jsonl", NULL));
    room_write(room, "e.csv", "{\"a\": 1}\n{\"a\": 2}\n");
    room_write(room, "e.tsv", "{\"a\": 1}\n{\"a\": 2}\n");
    assert_true(hash != hash_of(room, "e.csv", NULL));
    assert_true(hash_of(room, "e.tsv", NULL) != hash_of(room, "e.csv", NULL));
    room_write(room, "f/1.jsonl", "{\"a\": 1}\n");
    room_write(room, "f/2.jsonl", "{\"a\": 2}\n");
    assert_true(hash != hash_of(room, "f", NULL));
}

static void a_hundred_thousand_records_are_quick(void **state)
{
    struct room *room = *state;
    struct ebb_str text = {0};
    enum { COUNT = 100000 };
    assert_ok(room, ebb_str_addf(room->ctx, &text, "n,text\n"));
    for (int i = 0; i < COUNT; i++)
        assert_ok(room, ebb_str_addf(room->ctx, &text, "%d,\"line\n\"\"%d\"\"\"\n", i, i));
    write_zstd(room, "a.csv.zst", text.data, text.bytes);
    ebb_str_free(room->ctx, &text);
    double start = ebb_clock_seconds();
    struct ebb_records records;
    assert_ok(room, open_split(room, "a.csv.zst", NULL, &records));
    assert_int_equal(records.count, COUNT);
    int wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
    for (int i = 0; i < COUNT; i++) {
        json_t *json;
        char wanted[32];
        snprintf(wanted, sizeof wanted, "line\n\"%d\"", i);
        if (ebb_records_parse(room->ctx, &records, i, &json) != EBB_OK ||
            strcmp(json_string_value(json_object_get(json, "text")), wanted) != 0)
            wrong++;
        json_decref(json);
    }
    assert_int_equal(wrong, 0);
    char *name = ebb_records_name(room->ctx, &records, COUNT - 1);
    assert_non_null(strstr(name, "a.csv.zst:200000: record 100000"));
    ebb_mem_free(room->ctx, name);
    ebb_records_close(room->ctx, &records);
    assert_true(ebb_clock_seconds() - start < 5);
}

/* The place of each was once counted from the file's, and of an array from its line's beginning. */
static void a_hundred_thousand_broken_records_are_quick(void **state)
{
    struct room *room = *state;
    enum { COUNT = 100000 };
    static const struct {
        const char *name, *begin, *each, *end, *last;
    } cases[] = {
        {"a.jsonl", "", "{\"a\": tru}\n", "", "a.jsonl:100000:9: invalid token near 'tru'"},
        {"b.jsonl", "", "{\"a\": \"\xe9\"}\n", "", "b.jsonl:100000: not UTF-8: byte 0xe9"},
        {"c.json", "[{}", ",{\"a\": tru}", "]",
         "c.json:1: invalid token near 'tru' (in what begins at offset 1099993)"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct ebb_str text = {0};
        struct ebb_records records;
        json_t *json;
        assert_ok(room, ebb_str_addf(room->ctx, &text, "%s", cases[c].begin));
        for (int i = 0; i < COUNT; i++)
            assert_ok(room, ebb_str_addf(room->ctx, &text, "%s", cases[c].each));
        assert_ok(room, ebb_str_addf(room->ctx, &text, "%s", cases[c].end));
        room_write(room, cases[c].name, text.data);
        ebb_str_free(room->ctx, &text);
        double start = ebb_clock_seconds();
        assert_ok(room, open_split(room, cases[c].name, NULL, &records));
        for (int64_t i = records.count - COUNT; i < records.count; i++) {
            assert_int_equal(ebb_records_parse(room->ctx, &records, i, &json), EBB_BAD_FILE);
            if (i + 1 < records.count) ebb_error_clear(room->ctx);
        }
        assert_failed(room, EBB_BAD_FILE, EBB_BAD_FILE, cases[c].last, NULL);
        ebb_records_close(room->ctx, &records);
        assert_true(ebb_clock_seconds() - start < 20);
    }
}

/* A table turned on its side has such a first line; each name was once compared with all others. */
static void a_hundred_thousand_columns_are_quick(void **state)
{
    struct room *room = *state;
    struct ebb_str text = {0};
    enum { COUNT = 100000 };
    for (int row = 0; row < 2; row++)
        for (int i = 0; i < COUNT; i++)
            assert_ok(room, ebb_str_addf(room->ctx, &text, "%s%d%s", row == 0 ? "c" : "", i,
                                         i + 1 < COUNT ? "," : "\n"));
    room_write(room, "a.csv", text.data);
    ebb_str_free(room->ctx, &text);
    double start = ebb_clock_seconds();
    struct ebb_records records;
    json_t *json;
    assert_ok(room, open_split(room, "a.csv", NULL, &records));
    assert_ok(room, ebb_records_parse(room->ctx, &records, 0, &json));
    assert_int_equal(json_object_size(json), COUNT);
    assert_string_equal(json_string_value(json_object_get(json, "c99999")), "99999");
    json_decref(json);
    ebb_records_close(room->ctx, &records);
    assert_true(ebb_clock_seconds() - start < 5);
}

/* Opens, parses everything, names the last and closes. */
static enum ebb_status read_through(struct room *room, const struct ebb_records_options *options)
{
    struct ebb_records records;
    EBB_TRY(ebb_records_open(room->ctx, options, &records));
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; i < records.count && status == EBB_OK; i++) {
        json_t *json;
        status = ebb_records_parse(room->ctx, &records, i, &json);
        json_decref(json);
    }
    char *name = ebb_records_name(room->ctx, &records, records.count - 1);
    if (name == NULL && status == EBB_OK) status = EBB_NO_MEMORY;
    ebb_mem_free(room->ctx, name);
    ebb_records_close(room->ctx, &records);
    return status;
}

static void every_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    struct ebb_yaml *columns;
    room_write(room, "d/train-0.csv", "q,\"a\"\"b\"\n\"1\"\"2\",3\n");
    write_gzip(room, "d/train-1.jsonl.gz", "{\"q\": 1}\n{\"messages\": [{\"c\": 1}]}\n", 34);
    write_zstd(room, "d/data/train.json.zst", "[{\"q\": 1}]", 10);
    assert_ok(room, ebb_yaml_parse(room->ctx, "map", "{prompt: q, content: c}", 23, &columns));
    struct ebb_records_options options = {.path = room_path(room, "d"), .columns = columns};
    int64_t before = ebb_mem_bytes_now(room->ctx), nth = 1;
    for (;; nth++) {
        ebb_mem_fail_nth(room->ctx, nth, false);
        enum ebb_status status = read_through(room, &options);
        ebb_mem_fail_nth(room->ctx, 0, false);
        assert_int_equal(ebb_mem_bytes_now(room->ctx), before);
        if (status == EBB_OK) break;
        assert_failed(room, status, EBB_NO_MEMORY, NULL);
    }
    assert_true(nth > 20);
    ebb_yaml_free(room->ctx, columns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(each_kind_of_file_gives_the_same_records),
        ROOM_TEST(compression_is_told_by_content_and_not_by_name),
        ROOM_TEST(fields_of_a_table_are_texts_as_they_stand),
        ROOM_TEST(names_say_line_and_number_of_a_record),
        ROOM_TEST(a_directory_gives_the_files_of_its_split_in_order),
        ROOM_TEST(files_without_a_splits_name_are_all_train),
        ROOM_TEST(a_single_file_has_the_split_that_it_is_named),
        ROOM_TEST(long_lists_of_files_are_cut_short),
        ROOM_TEST(a_file_packed_and_unpacked_side_by_side_is_refused),
        ROOM_TEST(splits_that_mean_nothing_are_refused),
        ROOM_TEST(what_is_not_there_or_empty_is_said),
        ROOM_TEST(formats_that_are_not_read_are_named),
        ROOM_TEST(texts_that_begin_like_another_format_are_read),
        ROOM_TEST(a_broken_array_is_told_with_its_place),
        ROOM_TEST(an_object_over_several_lines_is_told_once),
        ROOM_TEST(an_open_quote_is_told_with_the_line_where_it_opens),
        ROOM_TEST(columns_that_cant_be_told_apart_are_refused),
        ROOM_TEST(a_broken_stream_is_told_with_its_byte),
        ROOM_TEST(what_is_wrong_with_a_record_is_its_own_error),
        ROOM_TEST(integers_beyond_64_bits_are_read),
        ROOM_TEST(files_laid_end_to_end_with_their_marks_are_read),
        ROOM_TEST(a_file_cut_off_anywhere_is_read_or_an_error),
        ROOM_TEST(columns_rename_a_records_keys),
        ROOM_TEST(columns_rename_keys_inside_messages),
        ROOM_TEST(roles_rename_what_messages_say_of_them),
        ROOM_TEST(columns_hold_for_tables_too),
        ROOM_TEST(columns_and_roles_that_cant_be_meant_are_refused),
        ROOM_TEST(the_hash_is_of_the_texts_and_their_kind),
        ROOM_TEST(a_hundred_thousand_records_are_quick),
        ROOM_TEST(a_hundred_thousand_columns_are_quick),
        ROOM_TEST(a_hundred_thousand_broken_records_are_quick),
        ROOM_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
