/* Saved teachers: what is written comes back to the bit in whatever batches, sizes are known
 * beforehand, and other data or pieces of samples are refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_teacher_kit.h"

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
    assert_string_equal(info->data_time, "2026-12-01T22:34:44");
    char text[32], small[4];
    assert_ok(room, ebb_teacher_data_time(room->ctx, room_path(room, "t"), text, sizeof text));
    assert_string_equal(text, "2026-12-01T22:34:44");
    assert_ok(room, ebb_teacher_data_time(room->ctx, room_path(room, "t"), small, sizeof small));
    assert_string_equal(small, "");
    assert_ok(room, ebb_teacher_data_time(room->ctx, room_path(room, "no"), text, sizeof text));
    assert_string_equal(text, "");
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
        ROOM_TEST(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
