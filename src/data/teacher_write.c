/* Saving a teacher: a file of known layout, written at offsets.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/teacher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "data/teacher_int.h"
#include "model/safetensors.h"
#include "op/distill.h"

enum { CALL_BYTES = 1 << 30 }; /* one write moves at most 2 GiB on Linux */

struct ebb_teacher_writer {
    struct ebb_ctx *ctx;
    const struct ebb_dataset *dataset; /* borrowed */
    struct ebb_teacher_info info;      /* its texts are the two below */
    struct ebb_teacher_set set;
    struct ebb_teacher_rows rows;
    int64_t *offsets;   /* [samples + 1] */
    double *remainders; /* [samples] sum over the sample's rows; -1: not added */
    char *name, *data_time, *dir, *partial, *path, *json;
    const char *placed; /* where the file is: partial or path; NULL: it is not, or is finished */
    int fd;
    int64_t ids_start, logprobs_start; /* in the file */
};

/* ---- the file ---- */

static enum ebb_status fail_write(struct ebb_teacher_writer *writer, const char *what, int error)
{
    struct statvfs info;
    char wanted[32], left[32];
    int64_t bytes = ebb_teacher_bytes(writer->set.samples, writer->set.rows, writer->info.k,
                                      writer->info.dtype);
    if (error != ENOSPC && error != EDQUOT)
        return EBB_FAIL(writer->ctx, EBB_IO, "cannot %s '%s': %s", what, writer->partial,
                        strerror(error));
    bool known = statvfs(writer->dir, &info) == 0;
    int64_t available = known ? (int64_t)info.f_bavail * (int64_t)info.f_frsize : 0;
    return EBB_FAIL(writer->ctx, EBB_IO,
                    "disk full: a saved teacher of %" PRId64 " labels with %" PRId64
                    " tokens each takes %s, and '%s' has %s left%s"
                    "\nkeep fewer tokens a label, free some space there, or choose another folder",
                    writer->set.rows, writer->info.k, ebb_text_bytes(bytes, wanted, sizeof wanted),
                    writer->dir, ebb_text_bytes(available, left, sizeof left),
                    error == EDQUOT ? " (your disk quota is used up)" : "");
}

static enum ebb_status write_at(struct ebb_teacher_writer *writer, int64_t at, const void *data,
                                int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        int64_t now = bytes - done < CALL_BYTES ? bytes - done : CALL_BYTES;
        ssize_t n = pwrite(writer->fd, (const char *)data + done, (size_t)now, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_write(writer, "write", n < 0 ? errno : EIO);
        done += n;
    }
    return EBB_OK;
}

/* The disk's space is taken at once, where the file system can do that. */
static enum ebb_status reserve(struct ebb_teacher_writer *writer, int64_t bytes)
{
    int result;
    writer->fd = open(writer->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->fd < 0) return fail_write(writer, "write", errno);
    writer->placed = writer->partial;
    do {
        result = fallocate(writer->fd, 0, 0, (off_t)bytes);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return fail_write(writer, "reserve space for", errno);
    if (result != 0 && ftruncate(writer->fd, (off_t)bytes) != 0)
        return fail_write(writer, "write", errno);
    return EBB_OK;
}

static enum ebb_status begin_file(struct ebb_teacher_writer *writer)
{
    const struct ebb_teacher_info *info = &writer->info;
    int64_t samples = writer->set.samples, rows = writer->set.rows, starts[3];
    const struct ebb_tensor_source tensors[] = {
        {.name = "offsets", .dtype = EBB_I64, .dims = 1, .shape = {samples + 1}},
        {.name = "ids", .dtype = EBB_I32, .dims = 2, .shape = {rows, info->k}},
        {.name = "logprobs", .dtype = info->dtype, .dims = 2, .shape = {rows, info->k}}};
    struct ebb_str head = {0};
    EBB_TRY(reserve(writer, ebb_teacher_bytes(samples, rows, info->k, info->dtype)));
    enum ebb_status status = ebb_safetensors_head(writer->ctx, writer->path, tensors, 3, NULL,
                                                  EBB_TEACHER_HEAD, &head, starts);
    if (status == EBB_OK) {
        EBB_ASSERT(head.bytes == EBB_TEACHER_HEAD);
        writer->ids_start = starts[1];
        writer->logprobs_start = starts[2];
        status = write_at(writer, 0, head.data, EBB_TEACHER_HEAD);
    }
    ebb_str_free(writer->ctx, &head);
    EBB_TRY(status);
    return write_at(writer, starts[0], writer->offsets, (samples + 1) * (int64_t)sizeof(int64_t));
}

/* ---- beginning ---- */

static enum ebb_status check_info(struct ebb_ctx *ctx, const struct ebb_teacher_info *info)
{
    int64_t most = info->vocab < EBB_DISTILL_TOPK ? info->vocab : EBB_DISTILL_TOPK;
    if (info->vocab < 1 || info->vocab > INT32_MAX)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "a teacher to save has a vocabulary of %" PRId64,
                        info->vocab);
    if (info->k < 1 || info->k > most)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "%" PRId64 " tokens a label of a saved teacher, wanted 1 to %" PRId64,
                        info->k, most);
    if (info->dtype != EBB_F32 && info->dtype != EBB_BF16)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "log-probabilities of a saved teacher as %s, wanted float32 or bfloat16",
                        ebb_dtype_name(info->dtype));
    if (!(info->temperature > 0 && isfinite(info->temperature)))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "temperature is %g, wanted more than 0",
                        info->temperature);
    if (ebb_text_utf8_valid(info->name, strlen(info->name)) != strlen(info->name))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "the teacher's name '%s' is not UTF-8", info->name);
    return EBB_OK;
}

static enum ebb_status make_texts(struct ebb_teacher_writer *writer, const char *dir,
                                  const struct ebb_teacher_info *info)
{
    struct ebb_ctx *ctx = writer->ctx;
    writer->name = ebb_mem_strdup(ctx, info->name);
    writer->data_time = ebb_mem_strdup(ctx, info->data_time ? info->data_time : "");
    writer->dir = ebb_mem_strdup(ctx, dir);
    writer->partial = ebb_path_join(ctx, dir, EBB_TEACHER_PARTIAL);
    writer->path = ebb_path_join(ctx, dir, EBB_TEACHER_TENSORS);
    writer->json = ebb_path_join(ctx, dir, EBB_TEACHER_JSON);
    bool whole = writer->name != NULL && writer->data_time != NULL && writer->dir != NULL &&
                 writer->partial != NULL && writer->path != NULL && writer->json != NULL;
    writer->info.name = writer->name;
    writer->info.data_time = writer->data_time;
    return whole ? EBB_OK : EBB_NO_MEMORY;
}

static enum ebb_status open_dir(struct ebb_teacher_writer *writer)
{
    const char *there = ebb_file_exists(writer->json)   ? writer->json
                        : ebb_file_exists(writer->path) ? writer->path
                                                        : NULL;
    if (there != NULL)
        return EBB_FAIL(writer->ctx, EBB_BAD_CONFIG,
                        "'%s' is there: a saved teacher is not overwritten"
                        "\nremove the folder first, or choose another",
                        there);
    return ebb_dir_create(writer->ctx, writer->dir);
}

static enum ebb_status create(struct ebb_teacher_writer *writer, const char *dir,
                              const struct ebb_teacher_info *info)
{
    struct ebb_ctx *ctx = writer->ctx;
    EBB_TRY(make_texts(writer, dir, info));
    EBB_TRY(open_dir(writer));
    EBB_TRY(ebb_teacher_set_make(ctx, writer->dataset, &writer->set, &writer->offsets));
    if (writer->set.rows == 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "no target of the data set is trained: there is "
                        "nothing that a teacher could say");
    writer->info.samples = writer->set.samples;
    writer->info.rows = writer->set.rows;
    writer->remainders =
        ebb_mem_alloc(ctx, (size_t)writer->set.samples * sizeof *writer->remainders);
    if (writer->remainders == NULL) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < writer->set.samples; i++)
        writer->remainders[i] = writer->offsets[i + 1] > writer->offsets[i] ? -1 : 0;
    EBB_TRY(ebb_teacher_rows_open(&writer->rows));
    return begin_file(writer);
}

enum ebb_status ebb_teacher_create(struct ebb_ctx *ctx, const char *dir,
                                   const struct ebb_dataset *dataset,
                                   const struct ebb_teacher_info *info,
                                   struct ebb_teacher_writer **writer)
{
    *writer = NULL;
    EBB_TRY(check_info(ctx, info));
    struct ebb_teacher_writer *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->ctx = ctx;
    made->dataset = dataset;
    made->fd = -1;
    made->info = (struct ebb_teacher_info){.k = info->k,
                                           .dtype = info->dtype,
                                           .temperature = info->temperature,
                                           .vocab = info->vocab};
    made->rows = (struct ebb_teacher_rows){.ctx = ctx,
                                           .where = "the teacher to save",
                                           .status = EBB_FAILED,
                                           .hint = "",
                                           .k = info->k,
                                           .vocab = info->vocab,
                                           .dtype = info->dtype};
    enum ebb_status status = create(made, dir, info);
    if (status == EBB_OK)
        *writer = made;
    else
        ebb_teacher_writer_free(ctx, made);
    return status;
}

void ebb_teacher_writer_free(struct ebb_ctx *ctx, struct ebb_teacher_writer *writer)
{
    if (writer == NULL) return;
    if (writer->fd >= 0) close(writer->fd);
    if (writer->placed != NULL) (void)unlink(writer->placed);
    ebb_mem_free(ctx, writer->rows.seen);
    ebb_mem_free(ctx, writer->remainders);
    ebb_mem_free(ctx, writer->offsets);
    ebb_mem_free(ctx, writer->name);
    ebb_mem_free(ctx, writer->data_time);
    ebb_mem_free(ctx, writer->dir);
    ebb_mem_free(ctx, writer->partial);
    ebb_mem_free(ctx, writer->path);
    ebb_mem_free(ctx, writer->json);
    ebb_mem_free(ctx, writer);
}

/* ---- rows ---- */

/* Sum of what the k leave out of each row; the largest enters the info. Probabilities that sum to
 * more than rounding makes are an error, as in op/distill_cpu.c. */
static enum ebb_status measure(struct ebb_teacher_writer *writer, int64_t sample,
                               const void *logprobs, int64_t count, double *remainder)
{
    struct ebb_teacher_info *info = &writer->info;
    *remainder = 0;
    for (int64_t label = 0; label < count; label++) {
        double sum = 0;
        for (int64_t i = label * info->k; i < (label + 1) * info->k; i++)
            sum += exp((double)ebb_teacher_logprob(info->dtype, logprobs, i));
        if (sum > 1.1)
            return EBB_FAIL(writer->ctx, EBB_FAILED,
                            "the teacher to save: the probabilities of sample %" PRId64
                            ", label %" PRId64 " sum to %g; are these log-probabilities?",
                            sample + 1, label + 1, sum);
        double left = sum < 1 ? 1 - sum : 0;
        *remainder += left;
        if (left > info->remainder_most) info->remainder_most = left;
    }
    return EBB_OK;
}

enum ebb_status ebb_teacher_add(struct ebb_teacher_writer *writer, int64_t sample,
                                const int32_t *ids, const void *logprobs, int64_t count)
{
    const struct ebb_teacher_info *info = &writer->info;
    EBB_ASSERT(sample >= 0 && sample < writer->set.samples && writer->fd >= 0);
    int64_t row = writer->offsets[sample], rows = writer->offsets[sample + 1] - row;
    double remainder;
    if (count != rows)
        return EBB_FAIL(writer->ctx, EBB_FAILED,
                        "the teacher to save: %" PRId64 " rows of sample %" PRId64
                        ", which has %" PRId64 " labels",
                        count, sample + 1, rows);
    if (rows == 0) return EBB_OK;
    if (writer->remainders[sample] >= 0)
        return EBB_FAIL(writer->ctx, EBB_FAILED,
                        "the teacher to save: sample %" PRId64 " comes a second time", sample + 1);
    EBB_TRY(ebb_teacher_rows_check(&writer->rows, sample, count, ids, logprobs));
    EBB_TRY(measure(writer, sample, logprobs, count, &remainder));
    int64_t width = ebb_dtype_bytes(info->dtype), each = (int64_t)sizeof(int32_t);
    EBB_TRY(write_at(writer, writer->ids_start + row * info->k * each, ids, rows * info->k * each));
    EBB_TRY(write_at(writer, writer->logprobs_start + row * info->k * width, logprobs,
                     rows * info->k * width));
    writer->remainders[sample] = remainder;
    return EBB_OK;
}

enum ebb_status ebb_teacher_add_batch(struct ebb_teacher_writer *writer,
                                      const struct ebb_batch *batch, const int64_t *samples,
                                      const int32_t *ids, const void *logprobs)
{
    int64_t at = 0, rows, k = writer->info.k, width = ebb_dtype_bytes(writer->info.dtype);
    for (int64_t doc = 0; doc < batch->docs; doc++, at += rows) {
        EBB_TRY(ebb_teacher_document(writer->ctx, writer->dataset, writer->offsets, batch, samples,
                                     doc, at, &rows));
        EBB_TRY(ebb_teacher_add(writer, samples[doc], ids + at * k,
                                (const char *)logprobs + at * k * width, rows));
    }
    return EBB_OK;
}

/* ---- ending ---- */

static enum ebb_status sum_up(struct ebb_teacher_writer *writer)
{
    double sum = 0;
    int64_t missing = 0, first = -1;
    for (int64_t i = 0; i < writer->set.samples; i++) { /* in this order, whatever they came in */
        if (writer->remainders[i] >= 0) {
            sum += writer->remainders[i];
        } else if (missing++ == 0) {
            first = i;
        }
    }
    if (missing > 0)
        return EBB_FAIL(writer->ctx, EBB_FAILED,
                        "the teacher to save: %" PRId64 " of %" PRId64
                        " samples are missing, the first is sample %" PRId64,
                        missing, writer->set.samples, first + 1);
    writer->info.remainder_mean = sum / (double)writer->set.rows;
    return EBB_OK;
}

static enum ebb_status save_json(struct ebb_teacher_writer *writer)
{
    const struct ebb_teacher_info *info = &writer->info;
    char checksum[17], tensors[17];
    uint64_t hash;
    EBB_TRY(ebb_file_hash(writer->ctx, writer->path, NULL, &hash));
    ebb_teacher_write_hash(hash, tensors);
    json_t *json =
        json_pack("{s:i, s:s, s:I, s:s, s:f, s:I, s:I, s:I, s:f, s:f, s:s, s:o}", "ebb_teacher",
                  EBB_TEACHER_VERSION, "teacher", info->name, "k", (json_int_t)info->k, "dtype",
                  ebb_dtype_name(info->dtype), "temperature", info->temperature, "vocab",
                  (json_int_t)info->vocab, "samples", (json_int_t)info->samples, "rows",
                  (json_int_t)info->rows, "remainder_mean", info->remainder_mean, "remainder_most",
                  info->remainder_most, "tensors_hash", tensors, "data",
                  ebb_teacher_set_json(&writer->set));
    if (json == NULL)
        return EBB_FAIL(writer->ctx, EBB_NO_MEMORY, "out of host memory while writing '%s'",
                        writer->json);
    enum ebb_status status = EBB_OK;
    if (info->data_time[0] &&
        json_object_set_new(json, "data_time", json_string(info->data_time)) != 0)
        status = EBB_FAIL(writer->ctx, EBB_NO_MEMORY, "out of host memory while writing '%s'",
                          writer->json);
    if (status == EBB_OK) status = ebb_teacher_checksum(writer->ctx, json, checksum);
    if (status == EBB_OK && json_object_set_new(json, "checksum", json_string(checksum)) != 0)
        status = EBB_FAIL(writer->ctx, EBB_NO_MEMORY, "out of host memory while writing '%s'",
                          writer->json);
    if (status == EBB_OK) status = ebb_json_save(writer->ctx, writer->json, json);
    json_decref(json);
    return status;
}

enum ebb_status ebb_teacher_finish(struct ebb_teacher_writer *writer, struct ebb_teacher_info *info)
{
    EBB_ASSERT(writer->fd >= 0);
    EBB_TRY(sum_up(writer));
    if (fsync(writer->fd) != 0) return fail_write(writer, "flush", errno);
    int closed = close(writer->fd);
    writer->fd = -1;
    if (closed != 0) return fail_write(writer, "close", errno);
    if (rename(writer->partial, writer->path) != 0) return fail_write(writer, "rename", errno);
    writer->placed = writer->path;
    EBB_TRY(save_json(writer)); /* flushes the folder, and so both names */
    writer->placed = NULL;
    if (info != NULL) *info = writer->info;
    return EBB_OK;
}
