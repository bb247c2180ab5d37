/* Saved teachers: what a teacher says of every label of a data set, on disk, so that students can
 * be trained from it with no teacher in memory (op/topk.h makes it, op/distill.h reads it).
 *
 * A *label* is a place whose target is trained; a sample's labels are numbered in order, and the
 * data set's are those of all samples, end to end. A folder has two files:
 *
 *   teacher.safetensors
 *     offsets   I64 [samples + 1]       the first row of each sample, then the number of rows
 *     ids       I32 [rows, k]           a label's k likeliest tokens
 *     logprobs  F32 or BF16 [rows, k]   the logarithms of their probabilities at `temperature`,
 *                                       descending, at most 0; -inf: a token the teacher masks
 *   teacher.json                        what it is: teacher, k, dtype, temperature, vocabulary;
 *                                       the data's time, where it has one;
 *                                       what the k leave out; hashes of the other file (which
 *                                       may be missing) and of the data set; and a checksum of
 *                                       all that
 *
 * One file, however large: it is written at offsets and mapped to be read. Its size is known
 * beforehand to the byte. teacher.json comes last: a folder without it was not saved to its end and
 * is refused. While it is being written the large file is called teacher.safetensors.partial.
 *
 * A teacher belongs to one tokenized data set: every sample's tokens and which of its targets are
 * trained. Another one is refused with what differs. Since a label has a row whatever micro-batch
 * it comes in, batch size, order, packing and number of epochs are free; only samples must stay
 * whole.
 *
 * One thread at a time may call for a writer or a teacher.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_TEACHER_H
#define EBB_DATA_TEACHER_H

#include "base/number.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_teacher_info {
    const char *name; /* of the teacher's model; both texts belong to who gives the struct */
    /* What chat templates took for the time when the data was made: on another day it might be
     * other data. NULL or "": nobody said. */
    const char *data_time;
    int64_t k;            /* 1 to EBB_DISTILL_TOPK and vocab */
    enum ebb_dtype dtype; /* of logprobs: EBB_F32 or EBB_BF16 */
    double temperature;   /* that logprobs were made at */
    /* Tokens that the teacher chose among: ids are below it. A student's comparison must be over
     * the same columns, ebb_distill_keys.vocab. */
    int64_t vocab;
    /* The rest is counted by the writer and told by a teacher that was opened. */
    int64_t samples, rows;
    /* What the k leave out of a label, 1 - the sum of their probabilities as they are stored (0
     * where rounding brings that above 1): on average, and at most. */
    double remainder_mean, remainder_most;
};

/* ---- before saving or training ---- */

/* Labels of a data set: rows that its teacher has. */
int64_t ebb_teacher_rows(const struct ebb_dataset *dataset);
/* Bytes of teacher.safetensors, exactly; teacher.json has a few hundred more. */
int64_t ebb_teacher_bytes(int64_t samples, int64_t rows, int64_t k, enum ebb_dtype dtype);
/* EBB_BAD_CONFIG where the loader's packing cuts samples: a piece sees less than the teacher saw.
 */
enum ebb_status ebb_teacher_check_loader(struct ebb_ctx *ctx, const struct ebb_loader *loader);

/* ---- saving ---- */

struct ebb_teacher_writer;

/* Begins in `dir`, which is made where it is missing, and reserves the whole file on disk: a full
 * disk shows here. EBB_BAD_CONFIG where a whole teacher is in `dir` already, or for an info that
 * makes no sense; what an interrupted save left there is overwritten. The data set is borrowed. The
 * caller frees. */
enum ebb_status ebb_teacher_create(struct ebb_ctx *ctx, const char *dir,
                                   const struct ebb_dataset *dataset,
                                   const struct ebb_teacher_info *info,
                                   struct ebb_teacher_writer **writer);
/* All labels of one sample: ids [count, k], logprobs [count, k] of the info's dtype. Samples come
 * in any order, each once. EBB_FAILED for a wrong count, a second time, and rows that no student
 * could use (NaN, above 0, not descending, a token outside the vocabulary or twice). */
enum ebb_status ebb_teacher_add(struct ebb_teacher_writer *writer, int64_t sample,
                                const int32_t *ids, const void *logprobs, int64_t count);
/* The same of a whole micro-batch: rows [batch->labels, k] in the order of its labels; samples
 * [docs] as ebb_loader_samples tells them. Failures as those of ebb_teacher_gather too. */
enum ebb_status ebb_teacher_add_batch(struct ebb_teacher_writer *writer,
                                      const struct ebb_batch *batch, const int64_t *samples,
                                      const int32_t *ids, const void *logprobs);
/* Flushes everything to disk and gives the files their names; `info` (or NULL) gets all that there
 * is to tell, its texts borrowed from the writer. EBB_FAILED where a sample with labels is missing;
 * then adding can go on. After it only freeing is left to do. */
enum ebb_status ebb_teacher_finish(struct ebb_teacher_writer *writer,
                                   struct ebb_teacher_info *info);
/* Of an unfinished one removes the file too. Accepts NULL. */
void ebb_teacher_writer_free(struct ebb_ctx *ctx, struct ebb_teacher_writer *writer);

/* ---- reading ---- */

struct ebb_teacher;

/* Maps the teacher in `dir` and checks that it is whole and about this data set, which is borrowed
 * and must outlive it. EBB_IO where nothing is there, EBB_BAD_FILE for what is damaged or was not
 * saved to its end, EBB_BAD_CONFIG for another data set, EBB_UNSUPPORTED for a later version. */
enum ebb_status ebb_teacher_open(struct ebb_ctx *ctx, const char *dir,
                                 const struct ebb_dataset *dataset, struct ebb_teacher **teacher);
void ebb_teacher_free(struct ebb_ctx *ctx, struct ebb_teacher *teacher); /* accepts NULL */
/* The info's data_time, for who has yet to make the data; "" where there is none, no teacher, or
 * one that opening it will refuse. */
enum ebb_status ebb_teacher_data_time(struct ebb_ctx *ctx, const char *dir, char *text,
                                      size_t room);
const struct ebb_teacher_info *ebb_teacher_describe(const struct ebb_teacher *teacher);
/* The rows of a micro-batch, in the order of its labels: ids [batch->labels, k], logprobs
 * [batch->labels, k] of the teacher's dtype. samples [docs] as ebb_loader_samples tells them. Every
 * row is checked, since a GPU cannot: EBB_BAD_FILE for one that no student can use. EBB_BAD_CONFIG
 * for a document that is a piece of its sample. After a failure the rows are undefined. */
enum ebb_status ebb_teacher_gather(struct ebb_ctx *ctx, struct ebb_teacher *teacher,
                                   const struct ebb_batch *batch, const int64_t *samples,
                                   int32_t *ids, void *logprobs);

#ifdef __cplusplus
}
#endif
#endif
