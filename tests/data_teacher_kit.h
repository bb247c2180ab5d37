/* What the cases of saved teachers share: a data set, what a teacher says of its labels, and the
 * ways through saving and opening. SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_TEACHER_KIT_H
#define EBB_DATA_TEACHER_KIT_H

#include "data_test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/number.h"
#include "data/teacher.h"

enum { SAMPLES = 40, VOCAB = 1009, K = 5, ROOM = 4096 };

/* ---- a data set and what a teacher says of it ---- */

struct shape {
    int64_t samples;
    int64_t longer;  /* tokens that sample 3 has more */
    int32_t token;   /* added to a token of sample 4 */
    int64_t prompts; /* tokens that are not trained any more in sample 5 */
};

/* Samples of 2 to 30 tokens; every seventh has no label. */
static inline struct ebb_dataset *make_set(struct room *room, const struct shape *shape)
{
    int64_t lengths[2 * SAMPLES], prompts[2 * SAMPLES], tokens = 0;
    for (int64_t i = 0; i < shape->samples; i++) {
        uint32_t words[4];
        ebb_philox(5, (uint64_t)i, words);
        lengths[i] = 8 + words[0] % 23 + (i == 3 ? shape->longer : 0);
        prompts[i] = i % 7 == 6 ? lengths[i] : words[1] % 6 + (i == 5 ? shape->prompts : 0);
        tokens += lengths[i];
    }
    int32_t *ids = malloc((size_t)tokens * sizeof *ids);
    for (int64_t i = 0, at = 0; i < shape->samples; i++)
        for (int64_t t = 0; t < lengths[i]; t++)
            ids[at++] = (int32_t)((i * 31 + t) % VOCAB) + (i == 4 && t == 2 ? shape->token : 0);
    struct ebb_dataset *set;
    assert_ok(room, ebb_dataset_from_ids(room->ctx, ids, lengths, prompts, shape->samples, &set));
    free(ids);
    return set;
}

static const struct shape usual = {SAMPLES, 0, 0, 0};

static const struct ebb_teacher_info bf16_info = {
    .name = "models/teacher-7B",
    .data_time = "2026-12-01T22:34:44",
    .k = K,
    .dtype = EBB_BF16,
    .temperature = 2,
    .vocab = VOCAB};

static inline int64_t labels_of(const struct ebb_dataset *set, int64_t sample)
{
    int64_t count = 0;
    for (int64_t t = 1; t < ebb_dataset_length(set, sample); t++)
        count += ebb_dataset_is_trained(set, sample, t);
    return count;
}

/* A label's k tokens and log-probabilities: a function of sample, label and place. */
static inline int32_t id_at(int64_t sample, int64_t label, int64_t i)
{
    return (int32_t)((sample * 131 + label * 17 + i * 53) % VOCAB);
}

static inline void say(const struct ebb_teacher_info *info, int64_t sample, int64_t label,
                       int32_t *ids, void *logprobs)
{
    for (int64_t i = 0; i < info->k; i++) {
        float value = -1.5f - 0.4f * (float)i - 0.01f * (float)((sample * 7 + label) % 50);
        ids[i] = id_at(sample, label, i);
        if (info->dtype == EBB_BF16)
            ((uint16_t *)logprobs)[i] = ebb_to_bf16(value);
        else
            ((float *)logprobs)[i] = value;
    }
}

/* All rows of a sample, or those of a micro-batch. */
struct rows {
    int32_t ids[ROOM];
    uint8_t logprobs[4 * ROOM];
};

static inline void say_sample(const struct ebb_teacher_info *info, const struct ebb_dataset *set,
                              int64_t sample, struct rows *rows, int64_t at)
{
    for (int64_t label = 0; label < labels_of(set, sample); label++, at++) {
        assert_true((at + 1) * info->k <= ROOM);
        say(info, sample, label, rows->ids + at * info->k,
            rows->logprobs + at * info->k * ebb_dtype_bytes(info->dtype));
    }
}

static inline struct ebb_teacher_writer *begin(struct room *room, const char *name,
                                               const struct ebb_dataset *set,
                                               const struct ebb_teacher_info *info)
{
    struct ebb_teacher_writer *writer;
    assert_ok(room, ebb_teacher_create(room->ctx, room_path(room, name), set, info, &writer));
    return writer;
}

/* From the last sample to the first. */
static inline void add_all(struct room *room, struct ebb_teacher_writer *writer,
                           const struct ebb_dataset *set, const struct ebb_teacher_info *info)
{
    struct rows *rows = calloc(1, sizeof *rows);
    for (int64_t i = set->count; i-- > 0;) {
        say_sample(info, set, i, rows, 0);
        assert_ok(room, ebb_teacher_add(writer, i, rows->ids, rows->logprobs, labels_of(set, i)));
    }
    free(rows);
}

static inline void save(struct room *room, const char *name, const struct ebb_dataset *set,
                        const struct ebb_teacher_info *info)
{
    struct ebb_teacher_writer *writer = begin(room, name, set, info);
    add_all(room, writer, set, info);
    assert_ok(room, ebb_teacher_finish(writer, NULL));
    ebb_teacher_writer_free(room->ctx, writer);
}

static inline enum ebb_status try_open(struct room *room, const char *name,
                                       const struct ebb_dataset *set, struct ebb_teacher **teacher)
{
    return ebb_teacher_open(room->ctx, room_path(room, name), set, teacher);
}

static inline struct ebb_teacher *open_teacher(struct room *room, const char *name,
                                               const struct ebb_dataset *set)
{
    struct ebb_teacher *teacher;
    assert_ok(room, try_open(room, name, set, &teacher));
    return teacher;
}

static inline struct ebb_loader *make_loader(struct room *room, const struct ebb_dataset *set,
                                             struct ebb_loader_options options)
{
    struct ebb_loader *loader;
    assert_ok(room, ebb_loader_create(room->ctx, set, &options, &loader));
    return loader;
}

static const struct ebb_loader_options all_options[] = {
    {.per_device_batch_size = 1},
    {.per_device_batch_size = 7, .shuffle = true, .seed = 3},
    {.per_device_batch_size = 2, .packing = true, .max_length = 64, .shuffle = true, .seed = 4},
    {.per_device_batch_size = 3, .shuffle = true, .group_by_length = true, .seed = 5},
    {.per_device_batch_size = 16, .rank = 1, .world = 2},
    {.per_device_batch_size = SAMPLES}};
enum { OPTIONS = sizeof all_options / sizeof all_options[0] };

static inline int64_t size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (int64_t)info.st_size;
}

#endif
