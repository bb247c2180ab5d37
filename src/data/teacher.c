/* Reading a saved teacher: what it is, whether it is whole and about this data set; then rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/teacher.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/teacher_int.h"
#include "model/safetensors.h"
#include "op/distill.h"

struct ebb_teacher {
    const struct ebb_dataset *dataset; /* borrowed */
    struct ebb_teacher_info info;      /* its texts are the two below */
    struct ebb_teacher_set set;
    struct ebb_teacher_rows rows;
    bool hashed; /* teacher.json has a hash of the other file: */
    uint64_t hash;
    int64_t *offsets; /* [samples + 1] */
    char *name, *data_time, *path, *json;
    struct ebb_safetensors *file;
    const void *ids, *logprobs; /* in the mapped file */
};

/* ---- teacher.json ---- */

static enum ebb_status check_checksum(struct ebb_ctx *ctx, const char *path, const json_t *json)
{
    const char *wanted;
    char got[17];
    EBB_TRY(ebb_json_string(ctx, path, json, "checksum", &wanted, NULL));
    EBB_TRY(ebb_teacher_checksum(ctx, json, got));
    if (strcmp(wanted, got) == 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: its checksum is %s, but what it says has %s: it was changed or is damaged"
                    "\ncopy it again, or save the teacher again",
                    path, wanted, got);
}

static enum ebb_status parse_dtype(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                   enum ebb_dtype *dtype)
{
    const char *text;
    EBB_TRY(ebb_json_string(ctx, path, json, "dtype", &text, NULL));
    *dtype = strcmp(text, ebb_dtype_name(EBB_F32)) == 0 ? EBB_F32 : EBB_BF16;
    if (strcmp(text, ebb_dtype_name(*dtype)) == 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'dtype' is '%s', wanted 'float32' or 'bfloat16'", path,
                    text);
}

static enum ebb_status check_ranges(struct ebb_ctx *ctx, const char *path,
                                    const struct ebb_teacher_info *info)
{
    int64_t most = info->vocab < EBB_DISTILL_TOPK ? info->vocab : EBB_DISTILL_TOPK;
    if (info->vocab < 1 || info->vocab > INT32_MAX)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'vocab' is %" PRId64, path, info->vocab);
    if (info->k < 1 || info->k > most)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'k' is %" PRId64 ", wanted 1 to %" PRId64, path,
                        info->k, most);
    if (!(info->temperature > 0 && isfinite(info->temperature)))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'temperature' is %g, wanted more than 0", path,
                        info->temperature);
    return EBB_OK;
}

static enum ebb_status parse_json(struct ebb_ctx *ctx, struct ebb_teacher *teacher,
                                  const json_t *json, struct ebb_teacher_set *saved)
{
    struct ebb_teacher_info *info = &teacher->info;
    const char *path = teacher->json, *name, *data_time = "";
    bool timed = false;
    int64_t version;
    if (json_object_get(json, "ebb_teacher") == NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no 'ebb_teacher': this is no saved teacher of ebb",
                        path);
    EBB_TRY(check_checksum(ctx, path, json));
    EBB_TRY(ebb_json_int64(ctx, path, json, "ebb_teacher", &version, NULL));
    if (version != EBB_TEACHER_VERSION)
        return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                        "%s: a saved teacher of version %" PRId64
                        ", and this version of ebb reads version %d\nsave it again, or use the ebb"
                        " that saved it",
                        path, version, EBB_TEACHER_VERSION);
    EBB_TRY(ebb_json_string(ctx, path, json, "teacher", &name, NULL));
    EBB_TRY(ebb_json_int64(ctx, path, json, "k", &info->k, NULL));
    EBB_TRY(parse_dtype(ctx, path, json, &info->dtype));
    EBB_TRY(ebb_json_double(ctx, path, json, "temperature", &info->temperature, NULL));
    EBB_TRY(ebb_json_int64(ctx, path, json, "vocab", &info->vocab, NULL));
    EBB_TRY(ebb_json_int64(ctx, path, json, "samples", &info->samples, NULL));
    EBB_TRY(ebb_json_int64(ctx, path, json, "rows", &info->rows, NULL));
    EBB_TRY(ebb_json_double(ctx, path, json, "remainder_mean", &info->remainder_mean, NULL));
    EBB_TRY(ebb_json_double(ctx, path, json, "remainder_most", &info->remainder_most, NULL));
    teacher->hashed = json_object_get(json, "tensors_hash") != NULL;
    if (teacher->hashed)
        EBB_TRY(ebb_teacher_parse_hash(ctx, path, json, "tensors_hash", &teacher->hash));
    EBB_TRY(ebb_teacher_set_parse(ctx, path, json, saved));
    EBB_TRY(ebb_json_string(ctx, path, json, "data_time", &data_time, &timed));
    teacher->name = ebb_mem_strdup(ctx, name);
    teacher->data_time = ebb_mem_strdup(ctx, timed ? data_time : "");
    if (teacher->name == NULL || teacher->data_time == NULL) return EBB_NO_MEMORY;
    info->name = teacher->name;
    info->data_time = teacher->data_time;
    return check_ranges(ctx, path, info);
}

/* ---- the files ---- */

/* Which of the files are there, and what that means. */
static enum ebb_status check_dir(struct ebb_ctx *ctx, const char *dir,
                                 const struct ebb_teacher *teacher)
{
    if (!ebb_dir_exists(dir))
        return EBB_FAIL(ctx, EBB_IO, "there is no saved teacher '%s': %s", dir,
                        ebb_file_exists(dir) ? "it is a file, and a folder is wanted"
                                             : "it does not exist");
    bool json = ebb_file_exists(teacher->json), file = ebb_file_exists(teacher->path);
    if (json && file) return EBB_OK;
    char *partial = ebb_path_join(ctx, dir, EBB_TEACHER_PARTIAL);
    if (partial == NULL) return EBB_NO_MEMORY;
    bool begun = ebb_file_exists(partial);
    ebb_mem_free(ctx, partial);
    if (!json && (file || begun))
        return EBB_FAIL(
            ctx, EBB_BAD_FILE,
            "the teacher in '%s' was not saved to its end: %s is there, " EBB_TEACHER_JSON
            " is not\nsave it again",
            dir, file ? EBB_TEACHER_TENSORS : EBB_TEACHER_PARTIAL);
    if (json)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "the teacher in '%s' lacks its file " EBB_TEACHER_TENSORS
                        "\ncopy it again, or save the teacher again",
                        dir);
    return EBB_FAIL(ctx, EBB_IO, "there is no saved teacher in '%s': it has no " EBB_TEACHER_JSON,
                    dir);
}

/* "[4, 2]" */
static const char *shape_text(int dims, const int64_t *shape, char *text, size_t room)
{
    size_t used = 0;
    for (int d = 0; d < dims && used < room; d++)
        used +=
            (size_t)snprintf(text + used, room - used, "%s%" PRId64, d > 0 ? ", " : "[", shape[d]);
    if (used < room) snprintf(text + used, room - used, "%s", dims > 0 ? "]" : "[]");
    return text;
}

static enum ebb_status find(struct ebb_ctx *ctx, const struct ebb_teacher *teacher,
                            const char *name, enum ebb_dtype dtype, int dims, const int64_t *shape,
                            const void **data)
{
    const struct ebb_tensor_info *info = ebb_safetensors_find(teacher->file, name);
    char got[128], wanted[128];
    shape_text(dims, shape, wanted, sizeof wanted);
    if (info == NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: no tensor '%s', wanted %s %s", teacher->path, name,
                        ebb_dtype_name(dtype), wanted);
    if (info->dtype != dtype)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' is %s, " EBB_TEACHER_JSON " wants %s",
                        teacher->path, name, ebb_dtype_name(info->dtype), ebb_dtype_name(dtype));
    if (info->dims != dims || memcmp(info->shape, shape, (size_t)dims * sizeof *shape) != 0)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: tensor '%s' is %s, " EBB_TEACHER_JSON " wants %s",
                        teacher->path, name, shape_text(info->dims, info->shape, got, sizeof got),
                        wanted);
    *data = info->data;
    return EBB_OK;
}

static enum ebb_status open_tensors(struct ebb_ctx *ctx, struct ebb_teacher *teacher)
{
    const struct ebb_teacher_info *info = &teacher->info;
    const void *offsets;
    const int64_t count = info->samples + 1, shape[] = {info->rows, info->k};
    EBB_TRY(ebb_safetensors_open_file(ctx, teacher->path, &teacher->file));
    EBB_TRY(find(ctx, teacher, "offsets", EBB_I64, 1, &count, &offsets));
    EBB_TRY(find(ctx, teacher, "ids", EBB_I32, 2, shape, &teacher->ids));
    EBB_TRY(find(ctx, teacher, "logprobs", info->dtype, 2, shape, &teacher->logprobs));
    if (memcmp(offsets, teacher->offsets, (size_t)count * sizeof(int64_t)) == 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: its 'offsets' are not those of the samples: it is damaged, or belongs to"
                    " another " EBB_TEACHER_JSON,
                    teacher->path);
}

/* Of the whole file, where teacher.json has one: a row may be wrong and still look like a row. It
 * is read from one end to the other, which also brings it into the page cache. */
static enum ebb_status check_tensors(struct ebb_ctx *ctx, const struct ebb_teacher *teacher)
{
    uint64_t hash;
    if (!teacher->hashed) return EBB_OK;
    EBB_TRY(ebb_file_hash(ctx, teacher->path, NULL, &hash));
    if (hash == teacher->hash) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: it is not the file that " EBB_TEACHER_JSON " was written for: it was "
                    "changed or is damaged\ncopy it again, or save the teacher again",
                    teacher->path);
}

/* ---- opening ---- */

static enum ebb_status load(struct ebb_ctx *ctx, struct ebb_teacher *teacher, const char *dir)
{
    struct ebb_teacher_set saved;
    json_t *json;
    EBB_TRY(check_dir(ctx, dir, teacher));
    EBB_TRY(ebb_json_load(ctx, teacher->json, &json));
    enum ebb_status status = parse_json(ctx, teacher, json, &saved);
    json_decref(json);
    EBB_TRY(status);
    EBB_TRY(ebb_teacher_set_make(ctx, teacher->dataset, &teacher->set, &teacher->offsets));
    EBB_TRY(ebb_teacher_set_same(ctx, dir, &saved, &teacher->set));
    if (teacher->info.samples != saved.samples || teacher->info.rows != saved.rows)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: %" PRId64 " samples and %" PRId64 " rows of a data set of %" PRId64
                        " and %" PRId64,
                        teacher->json, teacher->info.samples, teacher->info.rows, saved.samples,
                        saved.rows);
    EBB_TRY(open_tensors(ctx, teacher));
    EBB_TRY(check_tensors(ctx, teacher));
    teacher->rows =
        (struct ebb_teacher_rows){.ctx = ctx,
                                  .where = teacher->path,
                                  .status = EBB_BAD_FILE,
                                  .hint = "\nthe file is damaged: copy it again, or save"
                                          " the teacher again",
                                  .k = teacher->info.k,
                                  .vocab = teacher->info.vocab,
                                  .dtype = teacher->info.dtype};
    return ebb_teacher_rows_open(&teacher->rows);
}

enum ebb_status ebb_teacher_open(struct ebb_ctx *ctx, const char *dir,
                                 const struct ebb_dataset *dataset, struct ebb_teacher **teacher)
{
    *teacher = NULL;
    struct ebb_teacher *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->dataset = dataset;
    made->path = ebb_path_join(ctx, dir, EBB_TEACHER_TENSORS);
    made->json = ebb_path_join(ctx, dir, EBB_TEACHER_JSON);
    enum ebb_status status =
        made->path != NULL && made->json != NULL ? load(ctx, made, dir) : EBB_NO_MEMORY;
    if (status == EBB_OK)
        *teacher = made;
    else
        ebb_teacher_free(ctx, made);
    return status;
}

void ebb_teacher_free(struct ebb_ctx *ctx, struct ebb_teacher *teacher)
{
    if (teacher == NULL) return;
    ebb_safetensors_close(ctx, teacher->file);
    ebb_mem_free(ctx, teacher->rows.seen);
    ebb_mem_free(ctx, teacher->offsets);
    ebb_mem_free(ctx, teacher->name);
    ebb_mem_free(ctx, teacher->data_time);
    ebb_mem_free(ctx, teacher->path);
    ebb_mem_free(ctx, teacher->json);
    ebb_mem_free(ctx, teacher);
}

const struct ebb_teacher_info *ebb_teacher_describe(const struct ebb_teacher *teacher)
{
    return &teacher->info;
}

enum ebb_status ebb_teacher_data_time(struct ebb_ctx *ctx, const char *dir, char *text, size_t room)
{
    json_t *json = NULL;
    text[0] = 0;
    char *path = ebb_path_join(ctx, dir, EBB_TEACHER_JSON);
    if (path == NULL) return EBB_NO_MEMORY;
    bool there = ebb_file_exists(path);
    if (there && ebb_json_load(ctx, path, &json) == EBB_OK) {
        const char *saved = json_string_value(json_object_get(json, "data_time"));
        if (saved != NULL && strlen(saved) < room) snprintf(text, room, "%s", saved);
    }
    json_decref(json);
    ebb_mem_free(ctx, path);
    if (there && text[0] == 0) ebb_error_clear(ctx); /* opening it says what is wrong */
    return EBB_OK;
}

/* ---- rows ---- */

enum ebb_status ebb_teacher_gather(struct ebb_ctx *ctx, struct ebb_teacher *teacher,
                                   const struct ebb_batch *batch, const int64_t *samples,
                                   int32_t *ids, void *logprobs)
{
    int64_t k = teacher->info.k, width = ebb_dtype_bytes(teacher->info.dtype), at = 0, rows;
    for (int64_t doc = 0; doc < batch->docs; doc++, at += rows) {
        EBB_TRY(ebb_teacher_document(ctx, teacher->dataset, teacher->offsets, batch, samples, doc,
                                     at, &rows));
        if (rows == 0) continue;
        int64_t sample = samples[doc], first = teacher->offsets[sample] * k;
        int32_t *to = ids + at * k;
        char *values = (char *)logprobs + at * k * width;
        memcpy(to, (const char *)teacher->ids + first * (int64_t)sizeof *ids,
               (size_t)(rows * k) * sizeof *ids);
        memcpy(values, (const char *)teacher->logprobs + first * width, (size_t)(rows * k * width));
        EBB_TRY(ebb_teacher_rows_check(&teacher->rows, sample, rows, to, values));
    }
    return EBB_OK;
}
