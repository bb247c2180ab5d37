/* Saved teachers: what is written comes back to the bit in whatever batches, sizes are known
 * beforehand, and everything that could be wrong with the files, the data or the rows is named.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/number.h"
#include "data/teacher.h"
#include "model/safetensors.h"

enum { SAMPLES = 40, VOCAB = 1009, K = 5, ROOM = 4096 };

/* ---- a data set and what a teacher says of it ---- */

struct shape {
    int64_t samples;
    int64_t longer;  /* tokens that sample 3 has more */
    int32_t token;   /* added to a token of sample 4 */
    int64_t prompts; /* tokens that are not trained any more in sample 5 */
};

/* Samples of 2 to 30 tokens; every seventh has no label. */
static struct ebb_dataset *make_set(struct room *room, const struct shape *shape)
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
    .name = "models/teacher-7B", .k = K, .dtype = EBB_BF16, .temperature = 2, .vocab = VOCAB};

static int64_t labels_of(const struct ebb_dataset *set, int64_t sample)
{
    int64_t count = 0;
    for (int64_t t = 1; t < ebb_dataset_length(set, sample); t++)
        count += ebb_dataset_is_trained(set, sample, t);
    return count;
}

/* A label's k tokens and log-probabilities: a function of sample, label and place. */
static int32_t id_at(int64_t sample, int64_t label, int64_t i)
{
    return (int32_t)((sample * 131 + label * 17 + i * 53) % VOCAB);
}

static void say(const struct ebb_teacher_info *info, int64_t sample, int64_t label, int32_t *ids,
                void *logprobs)
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

static void say_sample(const struct ebb_teacher_info *info, const struct ebb_dataset *set,
                       int64_t sample, struct rows *rows, int64_t at)
{
    for (int64_t label = 0; label < labels_of(set, sample); label++, at++) {
        assert_true((at + 1) * info->k <= ROOM);
        say(info, sample, label, rows->ids + at * info->k,
            rows->logprobs + at * info->k * ebb_dtype_bytes(info->dtype));
    }
}

static struct ebb_teacher_writer *begin(struct room *room, const char *name,
                                        const struct ebb_dataset *set,
                                        const struct ebb_teacher_info *info)
{
    struct ebb_teacher_writer *writer;
    assert_ok(room, ebb_teacher_create(room->ctx, room_path(room, name), set, info, &writer));
    return writer;
}

/* From the last sample to the first. */
static void add_all(struct room *room, struct ebb_teacher_writer *writer,
                    const struct ebb_dataset *set, const struct ebb_teacher_info *info)
{
    struct rows *rows = calloc(1, sizeof *rows);
    for (int64_t i = set->count; i-- > 0;) {
        say_sample(info, set, i, rows, 0);
        assert_ok(room, ebb_teacher_add(writer, i, rows->ids, rows->logprobs, labels_of(set, i)));
    }
    free(rows);
}

static void save(struct room *room, const char *name, const struct ebb_dataset *set,
                 const struct ebb_teacher_info *info)
{
    struct ebb_teacher_writer *writer = begin(room, name, set, info);
    add_all(room, writer, set, info);
    assert_ok(room, ebb_teacher_finish(writer, NULL));
    ebb_teacher_writer_free(room->ctx, writer);
}

static enum ebb_status try_open(struct room *room, const char *name, const struct ebb_dataset *set,
                                struct ebb_teacher **teacher)
{
    return ebb_teacher_open(room->ctx, room_path(room, name), set, teacher);
}

static struct ebb_teacher *open_teacher(struct room *room, const char *name,
                                        const struct ebb_dataset *set)
{
    struct ebb_teacher *teacher;
    assert_ok(room, try_open(room, name, set, &teacher));
    return teacher;
}

static struct ebb_loader *make_loader(struct room *room, const struct ebb_dataset *set,
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

/* What gather must give for a micro-batch. */
static void expect(const struct ebb_teacher_info *info, const struct ebb_dataset *set,
                   const struct ebb_batch *batch, const int64_t *samples, struct rows *rows)
{
    int64_t at = 0;
    for (int64_t d = 0; d < batch->docs; d++) {
        say_sample(info, set, samples[d], rows, at);
        at += labels_of(set, samples[d]);
    }
    assert_int_equal(at, batch->labels);
}

static void assert_gathers(struct room *room, struct ebb_teacher *teacher,
                           const struct ebb_dataset *set, struct ebb_loader *loader)
{
    const struct ebb_teacher_info *info = ebb_teacher_describe(teacher);
    const struct ebb_batch *batch;
    struct rows *got = calloc(1, sizeof *got), *want = calloc(1, sizeof *want);
    int64_t micros = 2 * ebb_loader_describe(loader)->micros_per_epoch; /* two epochs */
    for (int64_t m = 0; m < micros; m++) {
        assert_ok(room, ebb_loader_next(room->ctx, loader, &batch));
        const int64_t *samples = ebb_loader_samples(loader);
        memset(got, 0x5a, sizeof *got);
        memset(want, 0x5a, sizeof *want);
        assert_ok(room,
                  ebb_teacher_gather(room->ctx, teacher, batch, samples, got->ids, got->logprobs));
        expect(info, set, batch, samples, want);
        assert_memory_equal(got, want, sizeof *got); /* nothing behind them was written either */
    }
    free(got);
    free(want);
}

/* ---- round trips ---- */

static void rows_come_back_to_the_bit_in_any_micro_batch(void **state)
{
    struct room *room = *state;
    static const struct ebb_teacher_info infos[] = {
        {.name = "bf16", .k = K, .dtype = EBB_BF16, .temperature = 2, .vocab = VOCAB},
        {.name = "fp32", .k = 3, .dtype = EBB_F32, .temperature = 1, .vocab = VOCAB},
        {.name = "one", .k = 1, .dtype = EBB_BF16, .temperature = 0.5, .vocab = 1 << 20}};
    struct ebb_dataset *set = make_set(room, &usual);
    for (int i = 0; i < 3; i++) {
        save(room, infos[i].name, set, &infos[i]);
        struct ebb_teacher *teacher = open_teacher(room, infos[i].name, set);
        for (int o = 0; o < OPTIONS; o++) {
            struct ebb_loader *loader = make_loader(room, set, all_options[o]);
            assert_ok(room, ebb_teacher_check_loader(room->ctx, loader));
            assert_gathers(room, teacher, set, loader);
            ebb_loader_free(room->ctx, loader);
        }
        ebb_teacher_free(room->ctx, teacher);
    }
    ebb_dataset_free(room->ctx, set);
}

static void micro_batches_save_the_same_files_as_samples(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    save(room, "samples", set, &bf16_info);
    struct rows *rows = calloc(1, sizeof *rows);
    for (int o = 1; o < 4; o++) {
        struct ebb_loader *loader = make_loader(room, set, all_options[o]);
        struct ebb_teacher_writer *writer = begin(room, "batches", set, &bf16_info);
        for (int64_t m = 0; m < ebb_loader_describe(loader)->micros_per_epoch; m++) {
            const struct ebb_batch *batch;
            assert_ok(room, ebb_loader_next(room->ctx, loader, &batch));
            const int64_t *samples = ebb_loader_samples(loader);
            expect(&bf16_info, set, batch, samples, rows);
            assert_ok(room,
                      ebb_teacher_add_batch(writer, batch, samples, rows->ids, rows->logprobs));
        }
        assert_ok(room, ebb_teacher_finish(writer, NULL));
        ebb_teacher_writer_free(room->ctx, writer);
        static const char *const files[] = {"teacher.safetensors", "teacher.json"};
        for (int f = 0; f < 2; f++) {
            char path[512];
            int64_t bytes[2];
            uint64_t hash[2];
            for (int k = 0; k < 2; k++) {
                snprintf(path, sizeof path, "%s/%s/%s", room->dir, k ? "batches" : "samples",
                         files[f]);
                assert_ok(room, ebb_file_hash(room->ctx, path, &bytes[k], &hash[k]));
            }
            assert_true(bytes[0] == bytes[1] && hash[0] == hash[1]);
        }
        assert_ok(room, ebb_dir_remove(room->ctx, room_path(room, "batches")));
        ebb_loader_free(room->ctx, loader);
    }
    free(rows);
    ebb_dataset_free(room->ctx, set);
}

static int64_t size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (int64_t)info.st_size;
}

static void the_size_is_known_beforehand_to_the_byte(void **state)
{
    struct room *room = *state;
    static const int64_t samples[] = {1, 9, SAMPLES, 2 * SAMPLES}, ks[] = {1, 4, 33};
    for (int s = 0; s < 4; s++) {
        struct shape shape = {samples[s], 0, 0, 0};
        struct ebb_dataset *set = make_set(room, &shape);
        assert_int_equal(ebb_teacher_rows(set), set->labels);
        for (int k = 0; k < 6; k++) {
            struct ebb_teacher_info info = bf16_info;
            info.k = ks[k / 2];
            info.dtype = k % 2 ? EBB_BF16 : EBB_F32;
            struct ebb_teacher_writer *writer = begin(room, "t", set, &info);
            int64_t bytes = ebb_teacher_bytes(set->count, set->labels, info.k, info.dtype);
            assert_int_equal(size_of(room_path(room, "t/teacher.safetensors.partial")), bytes);
            add_all(room, writer, set, &info);
            assert_ok(room, ebb_teacher_finish(writer, NULL));
            ebb_teacher_writer_free(room->ctx, writer);
            assert_int_equal(size_of(room_path(room, "t/teacher.safetensors")), bytes);
            assert_true(size_of(room_path(room, "t/teacher.json")) < 1024);
            assert_ok(room, ebb_dir_remove(room->ctx, room_path(room, "t")));
        }
        ebb_dataset_free(room->ctx, set);
    }
}

static void a_teacher_tells_what_it_is_and_what_it_leaves_out(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    struct ebb_teacher_writer *writer = begin(room, "t", set, &bf16_info);
    struct ebb_teacher_info told;
    add_all(room, writer, set, &bf16_info);
    assert_ok(room, ebb_teacher_finish(writer, &told));
    double sum = 0, most = 0;
    for (int64_t s = 0; s < set->count; s++) {
        for (int64_t label = 0; label < labels_of(set, s); label++) {
            int32_t ids[K];
            uint16_t logprobs[K];
            double left = 1;
            say(&bf16_info, s, label, ids, logprobs);
            for (int i = 0; i < K; i++) left -= exp((double)ebb_from_bf16(logprobs[i]));
            sum += left;
            most = fmax(most, left);
        }
    }
    struct ebb_teacher *teacher = open_teacher(room, "t", set);
    const struct ebb_teacher_info *info = ebb_teacher_describe(teacher);
    assert_string_equal(told.name, "models/teacher-7B");
    assert_string_equal(info->name, "models/teacher-7B");
    assert_true(info->k == K && info->dtype == EBB_BF16 && info->vocab == VOCAB);
    assert_true(info->temperature == 2 && info->samples == SAMPLES && info->rows == set->labels);
    assert_true(fabs(info->remainder_mean - sum / (double)set->labels) < 1e-12);
    assert_true(fabs(info->remainder_most - most) < 1e-12);
    assert_true(told.remainder_mean == info->remainder_mean);
    assert_true(told.remainder_most == info->remainder_most && told.rows == info->rows);
    ebb_teacher_free(room->ctx, teacher);
    ebb_teacher_writer_free(room->ctx, writer); /* of a finished one, nothing is removed */
    assert_true(ebb_file_exists(room_path(room, "t/teacher.safetensors")));
    ebb_dataset_free(room->ctx, set);
}

static void masked_tokens_and_certain_ones_can_be_saved(void **state)
{
    struct room *room = *state;
    static const int64_t lengths[] = {2};
    static const int32_t tokens[] = {1, 2};
    struct ebb_dataset *set;
    struct ebb_teacher_info info = bf16_info;
    info.dtype = EBB_F32;
    info.k = 3;
    assert_ok(room, ebb_dataset_from_ids(room->ctx, tokens, lengths, NULL, 1, &set));
    static const int32_t ids[] = {7, 5, 6};
    static const float logprobs[] = {0, -INFINITY, -INFINITY};
    struct ebb_teacher_writer *writer = begin(room, "t", set, &info);
    assert_ok(room, ebb_teacher_add(writer, 0, ids, logprobs, 1));
    assert_ok(room, ebb_teacher_finish(writer, &info));
    assert_true(info.remainder_mean == 0 && info.remainder_most == 0);
    ebb_teacher_writer_free(room->ctx, writer);
    struct ebb_loader *loader = make_loader(room, set, all_options[0]);
    struct ebb_teacher *teacher = open_teacher(room, "t", set);
    const struct ebb_batch *batch;
    int32_t got_ids[3];
    float got[3];
    assert_ok(room, ebb_loader_next(room->ctx, loader, &batch));
    assert_ok(room, ebb_teacher_gather(room->ctx, teacher, batch, ebb_loader_samples(loader),
                                       got_ids, got));
    assert_memory_equal(got_ids, ids, sizeof ids);
    assert_memory_equal(got, logprobs, sizeof logprobs);
    ebb_teacher_free(room->ctx, teacher);
    ebb_loader_free(room->ctx, loader);
    ebb_dataset_free(room->ctx, set);
}

/* ---- folders ---- */

static void what_was_not_saved_to_its_end_is_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    struct ebb_teacher *teacher;
    assert_failed(room, try_open(room, "t", set, &teacher), EBB_IO, "no saved teacher",
                  "it does not exist", NULL);
    room_write(room, "file", "x");
    assert_failed(room, try_open(room, "file", set, &teacher), EBB_IO, "it is a file", NULL);
    assert_ok(room, ebb_dir_create(room->ctx, room_path(room, "t")));
    assert_failed(room, try_open(room, "t", set, &teacher), EBB_IO, "it has no teacher.json", NULL);
    struct ebb_teacher_writer *writer = begin(room, "t", set, &bf16_info);
    assert_failed(room, try_open(room, "t", set, &teacher), EBB_BAD_FILE,
                  "was not saved to its end: teacher.safetensors.partial is there", "save it again",
                  NULL);
    ebb_teacher_writer_free(room->ctx, writer);
    assert_false(ebb_file_exists(room_path(room, "t/teacher.safetensors.partial")));
    room_write(room, "t/teacher.safetensors.partial", "of a run that was killed");
    save(room, "t", set, &bf16_info);
    assert_false(ebb_file_exists(room_path(room, "t/teacher.safetensors.partial")));
    ebb_teacher_free(room->ctx, open_teacher(room, "t", set));

    assert_int_equal(unlink(room_path(room, "t/teacher.json")), 0);
    assert_failed(room, try_open(room, "t", set, &teacher), EBB_BAD_FILE,
                  "was not saved to its end: teacher.safetensors is there", NULL);
    assert_ok(room, ebb_dir_remove(room->ctx, room_path(room, "t")));
    save(room, "t", set, &bf16_info);
    assert_int_equal(unlink(room_path(room, "t/teacher.safetensors")), 0);
    assert_failed(room, try_open(room, "t", set, &teacher), EBB_BAD_FILE,
                  "lacks its file teacher.safetensors", NULL);
    assert_null(teacher);
    ebb_dataset_free(room->ctx, set);
}

static void a_saved_teacher_is_not_overwritten(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    struct ebb_teacher_writer *writer;
    save(room, "t", set, &bf16_info);
    for (int k = 0; k < 2; k++) {
        assert_failed(room,
                      ebb_teacher_create(room->ctx, room_path(room, "t"), set, &bf16_info, &writer),
                      EBB_BAD_CONFIG,
                      k ? "teacher.safetensors' is there" : "teacher.json' is there",
                      "is not overwritten", NULL);
        assert_null(writer);
        if (k == 0) ebb_teacher_free(room->ctx, open_teacher(room, "t", set));
        if (k == 0) assert_int_equal(unlink(room_path(room, "t/teacher.json")), 0);
    }
    assert_true(ebb_file_exists(room_path(room, "t/teacher.safetensors")));
    room_write(room, "file", "x");
    assert_failed(room,
                  ebb_teacher_create(room->ctx, room_path(room, "file"), set, &bf16_info, &writer),
                  EBB_IO, "a file of that name exists", NULL);
    ebb_dataset_free(room->ctx, set);
}

/* ---- other data ---- */

static void another_data_set_is_refused_with_what_differs(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    save(room, "t", set, &bf16_info);
    static const struct {
        struct shape shape;
        const char *text, *more;
    } others[] = {
        {{SAMPLES + 1, 0, 0, 0}, "for 40 samples, this data set has 41", "dataset_max_samples"},
        {{SAMPLES, 2, 0, 0}, "samples of other lengths", "max_length"},
        {{SAMPLES, 0, 1, 0}, "other tokens in samples of the same lengths", "tokenizer"},
        {{SAMPLES, 0, 0, 2}, "the same tokens, but others of them are trained", "completion_only"}};
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        struct ebb_teacher *teacher;
        struct ebb_dataset *other = make_set(room, &others[k].shape);
        assert_failed(room, try_open(room, "t", other, &teacher), EBB_BAD_CONFIG, others[k].text,
                      others[k].more, "give the data as it was when the teacher was saved", NULL);
        assert_null(teacher);
        ebb_dataset_free(room->ctx, other);
    }
    struct ebb_dataset *same = make_set(room, &usual);
    ebb_teacher_free(room->ctx, open_teacher(room, "t", same));
    ebb_dataset_free(room->ctx, same);
    ebb_dataset_free(room->ctx, set);
}

static void pieces_of_samples_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    save(room, "t", set, &bf16_info);
    struct ebb_teacher *teacher = open_teacher(room, "t", set);
    struct rows *rows = calloc(1, sizeof *rows);
    static const enum ebb_packing_strategy strategies[] = {EBB_PACKING_WRAPPED,
                                                           EBB_PACKING_BFD_SPLIT};
    for (int k = 0; k < 2; k++) {
        struct ebb_loader *loader = make_loader(room, set,
                                                (struct ebb_loader_options){
                                                    .packing = true,
                                                    .strategy = strategies[k],
                                                    .max_length = 20,
                                                    .per_device_batch_size = 100,
                                                });
        const struct ebb_batch *batch;
        assert_failed(room, ebb_teacher_check_loader(room->ctx, loader), EBB_BAD_CONFIG,
                      "packing cuts", "set packing_strategy: bfd (wrapped and bfd_split cut)",
                      NULL);
        assert_ok(room, ebb_loader_next(room->ctx, loader, &batch));
        assert_failed(room,
                      ebb_teacher_gather(room->ctx, teacher, batch, ebb_loader_samples(loader),
                                         rows->ids, rows->logprobs),
                      EBB_BAD_CONFIG, "a piece of sample", "packing_strategy: bfd (wrapped", NULL);
        ebb_loader_free(room->ctx, loader);
    }
    ebb_teacher_free(room->ctx, teacher);
    free(rows);
    ebb_dataset_free(room->ctx, set);
}

static void micro_batches_of_another_data_set_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    save(room, "t", set, &bf16_info);
    struct ebb_teacher *teacher = open_teacher(room, "t", set);
    struct rows *rows = calloc(1, sizeof *rows);
    static const struct {
        struct shape shape;
        const char *text;
    } others[] = {{{SAMPLES, 0, 0, 2}, "labels of sample 6, the saved teacher has"},
                  {{SAMPLES + 3, 0, 0, 0}, "sample 41 of a saved teacher's 40"}};
    for (int k = 0; k < 2; k++) {
        struct ebb_dataset *other = make_set(room, &others[k].shape);
        struct ebb_loader *loader =
            make_loader(room, other,
                        (struct ebb_loader_options){.per_device_batch_size = 2 * SAMPLES});
        const struct ebb_batch *batch;
        assert_ok(room, ebb_loader_next(room->ctx, loader, &batch));
        assert_failed(room,
                      ebb_teacher_gather(room->ctx, teacher, batch, ebb_loader_samples(loader),
                                         rows->ids, rows->logprobs),
                      EBB_BAD_CONFIG, others[k].text, "of another data set", NULL);
        ebb_loader_free(room->ctx, loader);
        ebb_dataset_free(room->ctx, other);
    }
    ebb_teacher_free(room->ctx, teacher);
    free(rows);
    ebb_dataset_free(room->ctx, set);
}

/* ---- damage ---- */

static char *read_text(struct room *room, const char *name, size_t *bytes)
{
    struct ebb_map map;
    assert_ok(room, ebb_map_open(room->ctx, room_path(room, name), &map));
    char *text = malloc(map.bytes);
    memcpy(text, map.data, map.bytes);
    *bytes = map.bytes;
    ebb_map_close(&map);
    return text;
}

static void any_flipped_byte_of_the_json_is_found(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    save(room, "t", set, &bf16_info);
    size_t bytes;
    char *text = read_text(room, "t/teacher.json", &bytes);
    int found = 0, spaces = 0;
    for (size_t i = 0; i < bytes; i++) {
        struct ebb_teacher *teacher;
        bool space = text[i] == ' ' || text[i] == '\n';
        text[i] ^= 1;
        room_write_bytes(room, "t/teacher.json", text, bytes);
        enum ebb_status status = try_open(room, "t", set, &teacher);
        text[i] ^= 1;
        if (status == EBB_OK) {
            assert_true(space);
            ebb_teacher_free(room->ctx, teacher);
            spaces++;
            continue;
        }
        if (status != EBB_BAD_FILE) print_error("byte %zu: %s\n", i, ebb_error_text(room->ctx));
        assert_int_equal(status, EBB_BAD_FILE);
        assert_non_null(strstr(ebb_error_text(room->ctx), "teacher.json"));
        ebb_error_clear(room->ctx);
        found++;
    }
    assert_true(found > 300 && spaces < 100);
    free(text);
    ebb_dataset_free(room->ctx, set);
}

/* Writes teacher.json with a value of its own and a checksum that fits; NULL leaves the key out. */
static void rewrite(struct room *room, const char *key, json_t *value)
{
    json_t *json;
    char path[512], checksum[17];
    struct ebb_str text = {0};
    snprintf(path, sizeof path, "%s/t/teacher.json", room->dir);
    assert_ok(room, ebb_json_load(room->ctx, path, &json));
    if (value == NULL)
        assert_int_equal(json_object_del(json, key), 0);
    else
        assert_int_equal(json_object_set_new(json, key, value), 0);
    assert_int_equal(json_object_del(json, "checksum"), 0);
    assert_ok(room, ebb_json_text(room->ctx, json, 0, &text));
    snprintf(checksum, sizeof checksum, "%016llx",
             (unsigned long long)ebb_hash_bytes(text.data, text.bytes));
    assert_int_equal(json_object_set_new(json, "checksum", json_string(checksum)), 0);
    assert_ok(room, ebb_json_save(room->ctx, path, json));
    ebb_str_free(room->ctx, &text);
    json_decref(json);
}

static void fields_that_make_no_sense_are_named(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    struct ebb_teacher *teacher;
    save(room, "t", set, &bf16_info);
    size_t bytes;
    char *good = read_text(room, "t/teacher.json", &bytes);
    struct {
        const char *key;
        json_t *value;
        enum ebb_status status;
        const char *text, *more;
    } bad[] = {{"ebb_teacher", NULL, EBB_BAD_FILE, "no 'ebb_teacher'", "no saved teacher of ebb"},
               {"ebb_teacher", json_integer(2), EBB_UNSUPPORTED, "of version 2", "reads version 1"},
               {"k", json_integer(0), EBB_BAD_FILE, "'k' is 0, wanted 1 to 1009", ""},
               {"k", json_integer(4), EBB_BAD_FILE, "tensor 'ids' has 2 dimensions", ", 4]"},
               {"k", json_string("5"), EBB_BAD_FILE, "'k'", "teacher.json"},
               {"dtype", json_string("float16"), EBB_BAD_FILE, "'dtype' is 'float16'",
                "'bfloat16'"},
               {"dtype", json_string("float32"), EBB_BAD_FILE, "tensor 'logprobs' is bfloat16",
                "wants float32"},
               {"temperature", json_real(0), EBB_BAD_FILE, "'temperature' is 0", ""},
               {"vocab", json_integer(0), EBB_BAD_FILE, "'vocab' is 0", ""},
               {"vocab", NULL, EBB_BAD_FILE, "vocab", "teacher.json"},
               {"samples", json_integer(39), EBB_BAD_FILE, "39 samples", "of a data set of 40"},
               {"rows", json_integer(7), EBB_BAD_FILE, "7 rows", "of a data set of 40"},
               {"data", NULL, EBB_BAD_FILE, "no object 'data'", ""}};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        room_write_bytes(room, "t/teacher.json", good, bytes);
        rewrite(room, bad[k].key, bad[k].value);
        assert_failed(room, try_open(room, "t", set, &teacher), bad[k].status, bad[k].text,
                      bad[k].more, NULL);
        assert_null(teacher);
    }
    room_write(room, "t/teacher.json", "{");
    assert_failed(room, try_open(room, "t", set, &teacher), EBB_BAD_FILE, "teacher.json", NULL);
    free(good);
    ebb_dataset_free(room->ctx, set);
}

static void a_file_that_is_cut_off_is_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    struct ebb_teacher *teacher;
    save(room, "t", set, &bf16_info);
    const char *path = room_path(room, "t/teacher.safetensors");
    int64_t bytes = size_of(path), sizes[] = {bytes - 1, bytes / 2, 600, 512, 100, 7, 0};
    for (int k = 0; k < 7; k++) {
        path = room_path(room, "t/teacher.safetensors");
        assert_int_equal(truncate(path, (off_t)sizes[k]), 0);
        assert_failed(room, try_open(room, "t", set, &teacher), EBB_BAD_FILE, "teacher.safetensors",
                      NULL);
    }
    ebb_dataset_free(room->ctx, set);
}

/* Writes bytes into the tensor of that name, `at` bytes from its start. */
static void patch(struct room *room, const char *tensor, int64_t at, const void *data,
                  int64_t bytes)
{
    struct ebb_safetensors *file;
    size_t all;
    assert_ok(room, ebb_safetensors_open_file(room->ctx, room_path(room, "t/teacher.safetensors"),
                                              &file));
    const struct ebb_tensor_info *info = ebb_safetensors_find(file, tensor);
    assert_non_null(info);
    assert_true(at + bytes <= info->bytes);
    char *text = read_text(room, "t/teacher.safetensors", &all);
    int64_t start = 512;
    if (strcmp(tensor, "offsets") != 0)
        start = (const char *)info->data -
                (const char *)ebb_safetensors_find(file, "offsets")->data + 512;
    memcpy(text + start + at, data, (size_t)bytes);
    room_write_bytes(room, "t/teacher.safetensors", text, all);
    free(text);
    ebb_safetensors_close(room->ctx, file);
}

static void gather_refuses(struct room *room, const struct ebb_dataset *set, const char *text)
{
    struct ebb_teacher *teacher = open_teacher(room, "t", set);
    struct ebb_loader *loader = make_loader(room, set, all_options[OPTIONS - 1]);
    struct rows *rows = calloc(1, sizeof *rows);
    const struct ebb_batch *batch;
    assert_ok(room, ebb_loader_next(room->ctx, loader, &batch));
    assert_failed(room,
                  ebb_teacher_gather(room->ctx, teacher, batch, ebb_loader_samples(loader),
                                     rows->ids, rows->logprobs),
                  EBB_BAD_FILE, "t/teacher.safetensors: ", text, "the file is damaged", NULL);
    free(rows);
    ebb_loader_free(room->ctx, loader);
    ebb_teacher_free(room->ctx, teacher);
}

static void damaged_rows_are_found_when_they_are_used(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    save(room, "t", set, &bf16_info);
    size_t bytes;
    char *good = read_text(room, "t/teacher.safetensors", &bytes);
    int64_t row = labels_of(set, 0) + 1; /* the second label of sample 2 */
    int32_t ids[] = {VOCAB, -1, id_at(1, 1, 1)};
    static const char *const id_texts[] = {
        "token 1009 of sample 2, label 2 is outside the vocabulary of 1009",
        "token -1 of sample 2, label 2 is outside the vocabulary",
        "stands twice at sample 2, label 2"};
    for (int k = 0; k < 3; k++) {
        patch(room, "ids", (row * K + 3) * 4, &ids[k], 4);
        gather_refuses(room, set, id_texts[k]);
        room_write_bytes(room, "t/teacher.safetensors", good, bytes);
    }
    uint16_t values[] = {ebb_to_bf16(NAN), ebb_to_bf16(0.5f), ebb_to_bf16(-0.25f)};
    static const char *const texts[] = {"of sample 2, label 2 is nan, wanted at most 0",
                                        "of sample 2, label 2 is 0.5, wanted at most 0",
                                        "of sample 2, label 2 have -0.25 after"};
    for (int k = 0; k < 3; k++) {
        patch(room, "logprobs", (row * K + 2) * 2, &values[k], 2);
        gather_refuses(room, set, texts[k]);
        room_write_bytes(room, "t/teacher.safetensors", good, bytes);
    }
    int64_t offset = 3;
    struct ebb_teacher *teacher;
    patch(room, "offsets", 8, &offset, 8);
    assert_failed(room, try_open(room, "t", set, &teacher), EBB_BAD_FILE,
                  "its 'offsets' are not those of the samples", NULL);
    room_write_bytes(room, "t/teacher.safetensors", good, bytes);
    ebb_teacher_free(room->ctx, open_teacher(room, "t", set));
    free(good);
    ebb_dataset_free(room->ctx, set);
}

/* ---- what is not saved ---- */

static void rows_that_no_student_could_use_are_not_saved(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    struct ebb_teacher_info info = bf16_info, told;
    info.dtype = EBB_F32;
    struct ebb_teacher_writer *writer = begin(room, "t", set, &info);
    struct rows *rows = calloc(1, sizeof *rows);
    float *logprobs = (float *)(void *)rows->logprobs;
    int64_t count = labels_of(set, 1);
    static const struct {
        int64_t place;
        int32_t id;
        float logprob;
        const char *text;
    } bad[] = {{K + 1, VOCAB, -2, "token 1009 of sample 2, label 2 is outside the vocabulary"},
               {K + 1, -5, -2, "token -5 of sample 2, label 2"},
               {K + 1, 148, -2, "token 148 stands twice at sample 2, label 2"},
               {K, 1, NAN, "of sample 2, label 2 is nan, wanted at most 0"},
               {K, 1, 1e-3f, "of sample 2, label 2 is 0.001, wanted at most 0"},
               {K + 2, 1, -0.5f, "of sample 2, label 2 have -0.5 after -1.98, wanted descending"}};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        say_sample(&info, set, 1, rows, 0);
        rows->ids[bad[k].place] = bad[k].id;
        logprobs[bad[k].place] = bad[k].logprob;
        assert_failed(room, ebb_teacher_add(writer, 1, rows->ids, logprobs, count), EBB_FAILED,
                      "the teacher to save: ", bad[k].text, NULL);
    }
    say_sample(&info, set, 1, rows, 0);
    for (int i = 0; i < K; i++) logprobs[2 * K + i] = -0.5f;
    assert_failed(room, ebb_teacher_add(writer, 1, rows->ids, logprobs, count), EBB_FAILED,
                  "probabilities of sample 2, label 3 sum to 3.03", NULL);
    say_sample(&info, set, 1, rows, 0);
    assert_failed(room, ebb_teacher_add(writer, 1, rows->ids, logprobs, count - 1), EBB_FAILED,
                  "rows of sample 2, which has", NULL);
    assert_failed(room, ebb_teacher_finish(writer, NULL), EBB_FAILED,
                  "35 of 40 samples are missing, the first is sample 1", NULL);
    assert_ok(room, ebb_teacher_add(writer, 1, rows->ids, logprobs, count));
    assert_failed(room, ebb_teacher_add(writer, 1, rows->ids, logprobs, count), EBB_FAILED,
                  "sample 2 comes a second time", NULL);
    for (int64_t i = 0; i < set->count; i++) {
        say_sample(&info, set, i, rows, 0);
        if (i != 1)
            assert_ok(room, ebb_teacher_add(writer, i, rows->ids, logprobs, labels_of(set, i)));
    }
    assert_ok(room, ebb_teacher_finish(writer, &told));
    assert_true(told.remainder_most < 1); /* of rows that were saved */
    ebb_teacher_writer_free(room->ctx, writer);
    ebb_teacher_free(room->ctx, open_teacher(room, "t", set));
    free(rows);
    ebb_dataset_free(room->ctx, set);
}

static void an_info_that_makes_no_sense_is_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    struct ebb_teacher_writer *writer;
    static const struct {
        struct ebb_teacher_info info;
        const char *text;
    } bad[] = {
        {{.name = "n", .k = 0, .dtype = EBB_F32, .temperature = 1, .vocab = 9}, "0 tokens a label"},
        {{.name = "n", .k = 10, .dtype = EBB_F32, .temperature = 1, .vocab = 9}, "wanted 1 to 9"},
        {{.name = "n", .k = 1025, .dtype = EBB_F32, .temperature = 1, .vocab = 9999},
         "1025 tokens a label of a saved teacher, wanted 1 to 1024"},
        {{.name = "n", .k = 1, .dtype = EBB_F16, .temperature = 1, .vocab = 9}, "as float16"},
        {{.name = "n", .k = 1, .dtype = EBB_F32, .temperature = 0, .vocab = 9}, "temperature is 0"},
        {{.name = "n", .k = 1, .dtype = EBB_F32, .temperature = 1, .vocab = 0}, "vocabulary of 0"},
        {{.name = "\xff", .k = 1, .dtype = EBB_F32, .temperature = 1, .vocab = 9}, "is not UTF-8"}};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        assert_failed(room,
                      ebb_teacher_create(room->ctx, room_path(room, "t"), set, &bad[k].info,
                                         &writer),
                      EBB_BAD_CONFIG, bad[k].text, NULL);
        assert_null(writer);
        assert_false(ebb_dir_exists(room_path(room, "t")));
    }
    ebb_dataset_free(room->ctx, set);
}

static void any_allocation_may_fail(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    struct ebb_teacher_writer *writer = NULL;
    struct ebb_teacher *teacher = NULL;
    int64_t nth = 0;
    enum ebb_status status = EBB_NO_MEMORY;
    while (status != EBB_OK) {
        assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
        ebb_mem_fail_nth(room->ctx, ++nth, true);
        status = ebb_teacher_create(room->ctx, room_path(room, "t"), set, &bf16_info, &writer);
        ebb_mem_fail_nth(room->ctx, 0, false);
    }
    assert_true(nth > 10);
    add_all(room, writer, set, &bf16_info);
    assert_ok(room, ebb_teacher_finish(writer, NULL));
    ebb_teacher_writer_free(room->ctx, writer);
    status = EBB_NO_MEMORY;
    for (nth = 0; status != EBB_OK;) {
        assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
        ebb_mem_fail_nth(room->ctx, ++nth, true);
        status = try_open(room, "t", set, &teacher);
        ebb_mem_fail_nth(room->ctx, 0, false);
    }
    assert_true(nth > 10);
    ebb_teacher_free(room->ctx, teacher);
    ebb_dataset_free(room->ctx, set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(rows_come_back_to_the_bit_in_any_micro_batch),
        ROOM_TEST(micro_batches_save_the_same_files_as_samples),
        ROOM_TEST(the_size_is_known_beforehand_to_the_byte),
        ROOM_TEST(a_teacher_tells_what_it_is_and_what_it_leaves_out),
        ROOM_TEST(masked_tokens_and_certain_ones_can_be_saved),
        ROOM_TEST(what_was_not_saved_to_its_end_is_refused),
        ROOM_TEST(a_saved_teacher_is_not_overwritten),
        ROOM_TEST(another_data_set_is_refused_with_what_differs),
        ROOM_TEST(pieces_of_samples_are_refused),
        ROOM_TEST(micro_batches_of_another_data_set_are_refused),
        ROOM_TEST(any_flipped_byte_of_the_json_is_found),
        ROOM_TEST(fields_that_make_no_sense_are_named),
        ROOM_TEST(a_file_that_is_cut_off_is_refused),
        ROOM_TEST(damaged_rows_are_found_when_they_are_used),
        ROOM_TEST(rows_that_no_student_could_use_are_not_saved),
        ROOM_TEST(an_info_that_makes_no_sense_is_refused),
        ROOM_TEST(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
