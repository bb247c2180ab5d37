/* What writing and reading saved teachers share: the file's layout, what ties a teacher to its data
 * set, and the check of rows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_TEACHER_INT_H
#define EBB_DATA_TEACHER_INT_H

#include "base/json.h"
#include "data/teacher.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_TEACHER_TENSORS "teacher.safetensors"
#define EBB_TEACHER_PARTIAL "teacher.safetensors.partial"
#define EBB_TEACHER_JSON    "teacher.json"

enum { EBB_TEACHER_VERSION = 1 };
/* Bytes of the large file's head, whatever the counts, so that its size is a plain formula; their
 * longest text is below 400 bytes. */
enum { EBB_TEACHER_HEAD = 512 };

/* A data set as its teacher knows it. Hashes are XXH3-64, and find what was not meant. */
struct ebb_teacher_set {
    int64_t samples, tokens, rows;
    uint64_t lengths; /* hash of the samples' lengths */
    uint64_t ids;     /* of a hash of each sample's tokens */
    uint64_t targets; /* of a hash of each sample's marks */
};

/* offsets [samples + 1] is the caller's to free. */
enum ebb_status ebb_teacher_set_make(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                     struct ebb_teacher_set *set, int64_t **offsets);
json_t *ebb_teacher_set_json(const struct ebb_teacher_set *set); /* NULL: no memory */
enum ebb_status ebb_teacher_set_parse(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                      struct ebb_teacher_set *set);
/* EBB_BAD_CONFIG with what differs. */
enum ebb_status ebb_teacher_set_same(struct ebb_ctx *ctx, const char *dir,
                                     const struct ebb_teacher_set *saved,
                                     const struct ebb_teacher_set *now);

/* A hash as 16 digits, and back: EBB_BAD_FILE for what is none. */
void ebb_teacher_write_hash(uint64_t hash, char text[17]);
enum ebb_status ebb_teacher_parse_hash(struct ebb_ctx *ctx, const char *path, const json_t *json,
                                       const char *key, uint64_t *hash);

/* Hash of a teacher.json without its key "checksum", as 16 digits. */
enum ebb_status ebb_teacher_checksum(struct ebb_ctx *ctx, const json_t *json, char text[17]);

/* Document `doc` of the micro-batch must be the whole of its sample: *rows labels of it, the first
 * of which is label `at` of the batch. */
enum ebb_status ebb_teacher_document(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                     const int64_t *offsets, const struct ebb_batch *batch,
                                     const int64_t *samples, int64_t doc, int64_t at,
                                     int64_t *rows);

/* The check of rows, and what it remembers. */
struct ebb_teacher_rows {
    struct ebb_ctx *ctx;
    const char *where;      /* in messages */
    enum ebb_status status; /* of a row that is wrong */
    const char *hint;       /* behind the message; "" for none */
    int64_t k, vocab;
    enum ebb_dtype dtype;
    uint32_t number; /* of the last row, from 1 */
    uint64_t *seen;  /* [EBB_TEACHER_SLOTS] a hash table: row's number << 32 | one of its tokens */
};
/* Four times the tokens of the longest row; a power of two. */
enum { EBB_TEACHER_SLOTS = 4096 };
/* Makes `seen`, which ebb_mem_free takes. The rest is set before. */
enum ebb_status ebb_teacher_rows_open(struct ebb_teacher_rows *rows);
enum ebb_status ebb_teacher_rows_check(struct ebb_teacher_rows *rows, int64_t sample, int64_t count,
                                       const int32_t *ids, const void *logprobs);

/* A log-probability as it is stored. */
static inline float ebb_teacher_logprob(enum ebb_dtype dtype, const void *logprobs, int64_t i)
{
    return dtype == EBB_BF16 ? ebb_from_bf16(((const uint16_t *)logprobs)[i])
                             : ((const float *)logprobs)[i];
}

#ifdef __cplusplus
}
#endif
#endif
