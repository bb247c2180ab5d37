/* Saved teachers that are damaged, and rows and infos that are not saved: each is named.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_teacher_kit.h"

#include "model/safetensors.h"

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
               {"k", json_integer(4), EBB_BAD_FILE, "tensor 'ids' is [", "teacher.json wants ["},
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

/* A row that is wrong and still a row shows in the file's hash. */
static void any_flipped_byte_of_the_tensors_is_found(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, &usual);
    save(room, "t", set, &bf16_info);
    size_t bytes;
    char *text = read_text(room, "t/teacher.safetensors", &bytes);
    for (size_t i = 512; i < bytes; i += bytes / 50) {
        struct ebb_teacher *teacher;
        text[i] ^= 1;
        room_write_bytes(room, "t/teacher.safetensors", text, bytes);
        assert_failed(room, try_open(room, "t", set, &teacher), EBB_BAD_FILE,
                      "t/teacher.safetensors: it", NULL);
        text[i] ^= 1;
    }
    free(text);
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
    rewrite(room, "tensors_hash", NULL); /* as of a program that writes none */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(any_flipped_byte_of_the_json_is_found),
        ROOM_TEST(fields_that_make_no_sense_are_named),
        ROOM_TEST(a_file_that_is_cut_off_is_refused),
        ROOM_TEST(any_flipped_byte_of_the_tensors_is_found),
        ROOM_TEST(damaged_rows_are_found_when_they_are_used),
        ROOM_TEST(rows_that_no_student_could_use_are_not_saved),
        ROOM_TEST(an_info_that_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
