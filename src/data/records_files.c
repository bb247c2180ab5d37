/* Finding a split's files: by their names, and what is refused by name or content.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "data/records_int.h"

/* ---- splits: "train", "train[:90%]" ---- */

static enum ebb_status bad_split(struct ebb_ctx *ctx, const char *text)
{
    return EBB_FAIL(
        ctx, EBB_BAD_CONFIG,
        "the split '%s' can't be read: 'train', 'train[:90%%]' or 'train[100:200]' is wanted",
        text);
}

/* One end of a slice: digits and perhaps '%'. Empty leaves *value. */
static bool read_end(const char *text, size_t bytes, double *value, bool *percent)
{
    char digits[24];
    int64_t number;
    if (bytes == 0) return true;
    *percent = text[bytes - 1] == '%';
    if (*percent) bytes--;
    if (bytes == 0 || bytes >= sizeof digits || text[0] == '-') return false;
    memcpy(digits, text, bytes);
    digits[bytes] = '\0';
    if (!ebb_text_int64(digits, &number) || number < 0 || (*percent && number > 100)) return false;
    *value = (double)number;
    return true;
}

enum ebb_status ebb_split_parse(struct ebb_ctx *ctx, const char *text, struct ebb_split *split)
{
    *split = (struct ebb_split){.to = -1};
    if (text == NULL || text[0] == '\0') text = "train";
    size_t bytes = strlen(text), name = strcspn(text, "[");
    if (name == 0 || name >= sizeof split->name) return bad_split(ctx, text);
    memcpy(split->name, text, name);
    if (name == bytes) return EBB_OK;
    const char *colon = memchr(text + name, ':', bytes - name);
    if (text[bytes - 1] != ']' || colon == NULL) return bad_split(ctx, text);
    const char *from = text + name + 1, *end = text + bytes - 1;
    if (!read_end(from, (size_t)(colon - from), &split->from, &split->from_percent) ||
        !read_end(colon + 1, (size_t)(end - colon - 1), &split->to, &split->to_percent))
        return bad_split(ctx, text);
    return EBB_OK;
}

static int64_t slice_place(double value, bool percent, int64_t count)
{
    double place = percent ? round(value * (double)count / 100.0) : value;
    return place > (double)count ? count : (int64_t)place;
}

void ebb_split_slice(const struct ebb_split *split, int64_t count, int64_t *from, int64_t *to)
{
    *from = slice_place(split->from, split->from_percent, count);
    *to = split->to < 0 ? count : slice_place(split->to, split->to_percent, count);
}

/* ---- what a file is by its name ---- */

static bool ends_with(const char *text, size_t bytes, const char *end)
{
    size_t end_bytes = strlen(end);
    return bytes > end_bytes && strncasecmp(text + bytes - end_bytes, end, end_bytes) == 0;
}

/* The name's length without ".gz" or ".zst". */
static size_t plain_bytes(const char *name)
{
    size_t bytes = strlen(name);
    if (ends_with(name, bytes, ".gz")) return bytes - 3;
    return ends_with(name, bytes, ".zst") ? bytes - 4 : bytes;
}

char ebb_records_separator(const char *path)
{
    size_t bytes = plain_bytes(path);
    if (ends_with(path, bytes, ".csv")) return ',';
    return ends_with(path, bytes, ".tsv") ? '\t' : '\0';
}

/* Files that other tools lay beside the data. */
static bool is_side_file(const char *name)
{
    static const char *const names[] = {"dataset_info.json", "dataset_infos.json", "state.json",
                                        "dataset_dict.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return name[0] == '.';
}

static bool is_data_file(const char *name)
{
    static const char *const ends[] = {".json", ".jsonl", ".ndjson", ".csv", ".tsv"};
    size_t bytes = plain_bytes(name);
    if (is_side_file(name)) return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(name, bytes, ends[i])) return true;
    return false;
}

/* What people have data in and Ebb does not read. */
struct refused {
    const char *end, *name; /* how its files' names end */
    const char *magic;      /* how they begin; NULL: in no way that is sure */
    bool packs;             /* it holds other files, which may be data */
};

static const struct refused refused_formats[] = {
    {".parquet", "Parquet", "PAR1", false},
    {".arrow", "Arrow", "ARROW1", false},
    {".feather", "Feather", NULL, false},
    {".orc", "ORC", "ORC", false},
    {".avro", "Avro", "Obj\x01", false},
    {".xz", "xz", "\xfd\x37zXZ", true},
    {".bz2", "bzip2", "BZh", true},
    {".lz4", "lz4", "\x04\x22\x4d\x18", true},
    {".7z", "7-Zip", "7z\xbc\xaf", true},
    {".zip", "zip", "PK\x03\x04", true},
    {".tar", "tar", NULL, true},
    {".tgz", "tar", NULL, true},
    {".xlsx", "Excel", NULL, false},
    {".xls", "Excel", "\xd0\xcf\x11\xe0", false},
    {".pkl", "pickle", NULL, false},
    {".sqlite", "SQLite", "SQLite format 3", false},
    {".db", "SQLite", NULL, false},
};
enum { REFUSED_FORMATS = sizeof refused_formats / sizeof refused_formats[0] };

static const struct refused *refused_by_name(const char *name)
{
    size_t bytes = plain_bytes(name);
    for (size_t i = 0; i < REFUSED_FORMATS; i++)
        if (ends_with(name, bytes, refused_formats[i].end)) return &refused_formats[i];
    return NULL;
}

static enum ebb_status refuse(struct ebb_ctx *ctx, const char *path, const struct refused *format)
{
    return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                    "%s: %s is not read\na data set is JSON, JSON lines, CSV or TSV, also as .gz "
                    "or .zst; %s",
                    path, format->name,
                    format->packs ? "unpack this file to one of them"
                                  : "Dataset.to_json of Hugging Face's datasets writes one");
}

/* A text may begin as such a file does: "ORCID,name". */
static bool is_binary(struct ebb_span text)
{
    size_t bytes = text.bytes < 64 ? text.bytes : 64;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text.data[i] < '\t') return true;
    return ebb_text_utf8_valid(text.data, bytes) + 3 <
           bytes; /* a character may be cut at the end */
}

enum ebb_status ebb_records_refuse(struct ebb_ctx *ctx, const char *path, struct ebb_span text)
{
    if (!is_binary(text)) return EBB_OK;
    for (size_t i = 0; i < REFUSED_FORMATS; i++) {
        const char *magic = refused_formats[i].magic;
        size_t bytes = magic == NULL ? 0 : strlen(magic);
        if (magic != NULL && text.bytes >= bytes && memcmp(text.data, magic, bytes) == 0)
            return refuse(ctx, path, &refused_formats[i]);
    }
    bool utf16 = text.bytes >= 2 &&
                 (memcmp(text.data, "\xff\xfe", 2) == 0 || memcmp(text.data, "\xfe\xff", 2) == 0);
    if (!utf16) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: not UTF-8 but UTF-16\nsave the file as UTF-8", path);
}

/* ---- whose split a name says it is ---- */

/* Does the name begin with the word: "train-00000.jsonl" with "train"? */
static bool begins_with(const char *name, const char *word)
{
    size_t bytes = strlen(word);
    return strncmp(name, word, bytes) == 0 && name[bytes] != '\0' &&
           strchr("-_.", name[bytes]) != NULL;
}

static bool names_a_split(const char *name)
{
    static const char *const words[] = {"train",      "training",   "test",  "testing", "eval",
                                        "evaluation", "validation", "valid", "val",     "dev"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (begins_with(name, words[i])) return true;
    return false;
}

/* ---- directories ---- */

/* A look through a directory. */
struct look {
    struct ebb_records *records;
    const char *split;
    bool unnamed;        /* files that carry no split's name are wanted */
    struct ebb_str seen; /* names of data files, for messages */
    int64_t seen_count;
    int64_t unnamed_count; /* data files that carry no split's name, and one of them */
    char unnamed_name[128];
    char *refused_path;            /* owned: the first of a format that is not read; NULL: none */
    const struct refused *refused; /* its format */
};

enum { SEEN_SHOWN = 10 };

static enum ebb_status add_file(struct ebb_ctx *ctx, struct ebb_records *records, const char *dir,
                                const char *name)
{
    size_t bytes = (size_t)(records->file_count + 1) * sizeof *records->files;
    struct ebb_record_file *grown = ebb_mem_realloc(ctx, records->files, bytes);
    if (grown == NULL) return EBB_NO_MEMORY;
    records->files = grown;
    char *path = dir == NULL ? ebb_mem_strdup(ctx, name) : ebb_path_join(ctx, dir, name);
    if (path == NULL) return EBB_NO_MEMORY;
    records->files[records->file_count++] = (struct ebb_record_file){.path = path};
    return EBB_OK;
}

static enum ebb_status note_seen(struct ebb_ctx *ctx, struct look *look, const char *name)
{
    if (look->seen_count++ >= SEEN_SHOWN) return EBB_OK;
    return ebb_str_addf(ctx, &look->seen, "%s%s", look->seen_count == 1 ? "" : ", ", name);
}

static enum ebb_status note_refused(struct ebb_ctx *ctx, struct look *look, const char *dir,
                                    const char *name)
{
    if (look->refused != NULL || is_side_file(name)) return EBB_OK;
    look->refused = refused_by_name(name);
    if (look->refused == NULL) return EBB_OK;
    look->refused_path = ebb_path_join(ctx, dir, name);
    return look->refused_path == NULL ? EBB_NO_MEMORY : EBB_OK;
}

static enum ebb_status look_at(struct ebb_ctx *ctx, struct look *look, const char *dir,
                               const char *name)
{
    bool wanted = look->unnamed ? !names_a_split(name) : begins_with(name, look->split);
    if (!is_data_file(name)) return wanted ? note_refused(ctx, look, dir, name) : EBB_OK;
    if (wanted) EBB_TRY(add_file(ctx, look->records, dir, name));
    if (!wanted && !names_a_split(name) && look->unnamed_count++ == 0)
        snprintf(look->unnamed_name, sizeof look->unnamed_name, "%s", name);
    return look->unnamed ? EBB_OK : note_seen(ctx, look, name);
}

static enum ebb_status look_into(struct ebb_ctx *ctx, struct look *look, const char *dir)
{
    char **names = NULL;
    size_t count = 0;
    if (!ebb_dir_exists(dir)) return EBB_OK;
    EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count && status == EBB_OK; i++)
        status = look_at(ctx, look, dir, names[i]);
    ebb_dir_list_free(ctx, names, count);
    return status;
}

/* A part of a split that is left out in silence would never be missed. */
static enum ebb_status refuse_part(struct ebb_ctx *ctx, const struct look *look)
{
    return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                    "%s: %s is not read, and the files beside it would be only a part of the split "
                    "'%s'\nwrite it as JSON lines, or move it out of the directory",
                    look->refused_path, look->refused->name, look->split);
}

static void tell_unused(struct ebb_ctx *ctx, const struct look *look, const char *dir)
{
    if (look->unnamed || look->unnamed_count == 0 || strcmp(look->split, "train") != 0) return;
    bool one = look->unnamed_count == 1;
    ebb_log(ctx, EBB_LOG_INFO, "data",
            "%s: %lld file%s without a split's name %s not used (%s%s), as others are named "
            "'train'",
            dir, (long long)look->unnamed_count, one ? "" : "s", one ? "is" : "are",
            look->unnamed_name, one ? "" : ", ...");
}

static enum ebb_status none_found(struct ebb_ctx *ctx, const struct look *look, const char *dir)
{
    if (look->refused != NULL) return refuse(ctx, look->refused_path, look->refused);
    char more[48] = "";
    if (look->seen_count > SEEN_SHOWN)
        snprintf(more, sizeof more, " and %lld more", (long long)(look->seen_count - SEEN_SHOWN));
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "%s: no data file of the split '%s' is here (here are: %s%s)\ndata files are "
                    ".json, .jsonl, .ndjson, .csv and .tsv, also as .gz or .zst",
                    dir, look->split, look->seen_count == 0 ? "none at all" : look->seen.data,
                    more);
}

/* One text twice, packed and not, is a slip: it would be trained twice as often as meant. */
static enum ebb_status refuse_twins(struct ebb_ctx *ctx, const struct ebb_records *records)
{
    for (int64_t i = 0; i < records->file_count; i++) {
        const char *path = records->files[i].path;
        size_t bytes = plain_bytes(path);
        if (path[bytes] == '\0') continue;
        for (int64_t k = 0; k < records->file_count; k++) {
            const char *other = records->files[k].path;
            if (k == i || strncmp(path, other, bytes) != 0 || plain_bytes(other) != bytes) continue;
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "%s and %s are one file, compressed and not: leave one of them here",
                            k < i ? other : path, k < i ? path : other);
        }
    }
    return EBB_OK;
}

static enum ebb_status find_in_dir(struct ebb_ctx *ctx, struct ebb_records *records,
                                   const char *dir, const char *split)
{
    struct look look = {.records = records, .split = split};
    char *inner = ebb_path_join(ctx, dir, "data");
    if (inner == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = look_into(ctx, &look, dir);
    if (status == EBB_OK) status = look_into(ctx, &look, inner);
    bool named = records->file_count > 0 || look.refused != NULL;
    if (status == EBB_OK && !named && strcmp(split, "train") == 0) {
        look.unnamed = true;
        status = look_into(ctx, &look, dir);
        if (status == EBB_OK) status = look_into(ctx, &look, inner);
    }
    if (status == EBB_OK && records->file_count == 0) status = none_found(ctx, &look, dir);
    if (status == EBB_OK && look.refused != NULL) status = refuse_part(ctx, &look);
    if (status == EBB_OK) status = refuse_twins(ctx, records);
    if (status == EBB_OK) tell_unused(ctx, &look, dir);
    ebb_mem_free(ctx, inner);
    ebb_mem_free(ctx, look.refused_path);
    ebb_str_free(ctx, &look.seen);
    return status;
}

enum ebb_status ebb_records_find(struct ebb_ctx *ctx, struct ebb_records *records, const char *path,
                                 const char *split)
{
    if (ebb_dir_exists(path)) return find_in_dir(ctx, records, path, split);
    if (!ebb_file_exists(path))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "%s: no such file or directory\na data set is a file of JSON, JSON lines, "
                        "CSV or TSV, or a directory of them",
                        path);
    const struct refused *refused = refused_by_name(path);
    if (refused != NULL) return refuse(ctx, path, refused);
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    if (strcmp(split, "train") != 0 && !begins_with(name, split))
        return EBB_FAIL(
            ctx, EBB_BAD_CONFIG,
            "%s: a single file has only the split 'train' (or what it is named), not '%s'", path,
            split);
    return add_file(ctx, records, NULL, path);
}
