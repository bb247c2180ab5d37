/* Safetensors: every malformed header is a clear error, and what is written reads back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_test.h"

#include <math.h>

#include "model/safetensors.h"

/* Writes a file of this header (single quotes stand for double ones) and `bytes` of data
 * counting up from 0. */
static void write_raw(struct room *room, const char *name, const char *header, size_t bytes)
{
    unsigned char file[4096];
    size_t length = strlen(header);
    assert_true(8 + length + bytes <= sizeof file);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)(length >> (8 * i));
    for (size_t i = 0; i < length; i++)
        file[8 + i] = (unsigned char)(header[i] == '\'' ? '"' : header[i]);
    for (size_t i = 0; i < bytes; i++) file[8 + length + i] = (unsigned char)i;
    room_write(room, name, file, 8 + length + bytes);
}

static struct ebb_safetensors *opened(struct room *room, const char *name)
{
    char path[256];
    struct ebb_safetensors *set;
    ROOM_OK(room, ebb_safetensors_open_file(room->ctx, room_path(room, name, path), &set));
    return set;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void tensors_are_found_by_name(void **state)
{
    struct room *room = *state;
    write_raw(
        room, "a",
        "{'__metadata__':{'format':'pt'},'z':{'dtype':'U8','shape':[3],'data_offsets':[8,11]},"
        "'m':{'dtype':'BF16','shape':[2,2],'data_offsets':[0,8]},"
        "'e':{'dtype':'F32','shape':[0,4],'data_offsets':[8,8]},"
        "'s':{'dtype':'I64','shape':[],'data_offsets':[11,19]}}   ",
        19);
    struct ebb_safetensors *set = opened(room, "a");
    assert_int_equal(ebb_safetensors_count(set), 4);
    const struct ebb_tensor_info *m = ebb_safetensors_find(set, "m");
    assert_non_null(m);
    assert_int_equal(m->dtype, EBB_BF16);
    assert_int_equal(m->dims, 2);
    assert_int_equal(m->shape[1], 2);
    assert_int_equal(m->bytes, 8);
    assert_int_equal(*(const unsigned char *)m->data, 0);
    assert_int_equal(*(const unsigned char *)ebb_safetensors_find(set, "z")->data, 8);
    assert_int_equal(ebb_safetensors_find(set, "s")->dims, 0);
    assert_int_equal(ebb_safetensors_find(set, "e")->bytes, 0);
    assert_null(ebb_safetensors_find(set, "zz"));
    assert_null(ebb_safetensors_find(set, "__metadata__"));
    assert_string_equal(ebb_safetensors_at(set, 0)->name, "e");
    ebb_safetensors_close(room->ctx, set);
}

static void a_file_without_tensors_is_empty(void **state)
{
    struct room *room = *state;
    write_raw(room, "a", "{}", 0);
    struct ebb_safetensors *set = opened(room, "a");
    assert_int_equal(ebb_safetensors_count(set), 0);
    assert_null(ebb_safetensors_find(set, "x"));
    ebb_safetensors_close(room->ctx, set);
}

static const struct {
    const char *header;
    size_t bytes;
    enum ebb_status status;
    const char *text;
} wrong[] = {
    {"", 4, EBB_BAD_FILE, "the header must be a JSON object and start with '{'"},
    {" {}", 0, EBB_BAD_FILE, "start with '{'"},
    {"{'a':", 4, EBB_BAD_FILE, "a.safetensors:1:"},
    {"{}x", 0, EBB_BAD_FILE, "a.safetensors:1:"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]},'a':{'dtype':'F32','shape':[1],'data_"
     "offsets':[4,8]}}",
     8, EBB_BAD_FILE, "duplicate"},
    {"{'a':7}", 0, EBB_BAD_FILE, "the header's entry 'a' is not an object"},
    {"{'a':{'shape':[1],'data_offsets':[0,4]}}", 4, EBB_BAD_FILE, "tensor 'a' has no 'dtype'"},
    {"{'a':{'dtype':'F99','shape':[1],'data_offsets':[0,4]}}", 4, EBB_BAD_FILE,
     "tensor 'a' has the unknown dtype 'F99'"},
    {"{'a':{'dtype':'F8_E4M3','shape':[4],'data_offsets':[0,4]}}", 4, EBB_UNSUPPORTED,
     "tensor 'a' has dtype F8_E4M3"},
    {"{'a':{'dtype':'F32','data_offsets':[0,4]}}", 4, EBB_BAD_FILE,
     "tensor 'a' has no list 'shape'"},
    {"{'a':{'dtype':'F32','shape':[-1],'data_offsets':[0,4]}}", 4, EBB_BAD_FILE,
     "an entry that is no size"},
    {"{'a':{'dtype':'F32','shape':[1.5],'data_offsets':[0,4]}}", 4, EBB_BAD_FILE,
     "an entry that is no size"},
    {"{'a':{'dtype':'F32','shape':[4611686018427387904,4],'data_offsets':[0,4]}}", 4, EBB_BAD_FILE,
     "larger than any file"},
    {"{'a':{'dtype':'F32','shape':[1,1,1,1,1],'data_offsets':[0,4]}}", 4, EBB_UNSUPPORTED,
     "5 dimensions, at most 4"},
    {"{'a':{'dtype':'F32','shape':[1]}}", 4, EBB_BAD_FILE,
     "tensor 'a' needs 'data_offsets' of two integers"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0]}}", 4, EBB_BAD_FILE,
     "'data_offsets' of two integers"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,'4']}}", 4, EBB_BAD_FILE,
     "'data_offsets' of two integers"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[4,0]}}", 4, EBB_BAD_FILE,
     "'data_offsets' 4 to 0"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[-4,0]}}", 4, EBB_BAD_FILE,
     "'data_offsets' -4 to 0"},
    {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]}}", 7, EBB_BAD_FILE,
     "ends at byte 8 of the data, but the file has only 7\nthe file is cut off"},
    {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,4]}}", 4, EBB_BAD_FILE,
     "tensor 'a' has 4 bytes, but its shape and dtype need 8"},
    {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]},'b':{'dtype':'F32','shape':[2],'data_"
     "offsets':[4,12]}}",
     12, EBB_BAD_FILE, "tensors 'a' and 'b' overlap at byte 4"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]},'b':{'dtype':'F32','shape':[1],'data_"
     "offsets':[8,12]}}",
     12, EBB_BAD_FILE, "nothing describes bytes 4 to 8 of the data, before tensor 'b'"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[4,8]}}", 8, EBB_BAD_FILE,
     "nothing describes bytes 0 to 4"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}", 9, EBB_BAD_FILE,
     "nothing describes bytes 4 to 9 of the data, behind the last tensor"},
};

static void malformed_headers_are_refused(void **state)
{
    struct room *room = *state;
    char path[256];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct ebb_safetensors *set;
        write_raw(room, "a.safetensors", wrong[i].header, wrong[i].bytes);
        enum ebb_status status =
            ebb_safetensors_open_file(room->ctx, room_path(room, "a.safetensors", path), &set);
        if (status == EBB_OK) fail_msg("accepted: %s", wrong[i].header);
        assert_null(set);
        if (strstr(ebb_error_text(room->ctx), "a.safetensors:") == NULL)
            fail_msg("no file in \"%s\"", ebb_error_text(room->ctx));
        room_failed(room, status, wrong[i].status, wrong[i].text);
    }
}

static void cut_and_foreign_files_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_safetensors *set;
    char path[256];
    room_path(room, "a", path);
    room_failed(room, ebb_safetensors_open_file(room->ctx, path, &set), EBB_IO, "does not exist");
    room_write(room, "a", "", 0);
    room_failed(room, ebb_safetensors_open_file(room->ctx, path, &set), EBB_BAD_FILE,
                "0 bytes are too few");
    room_write(room, "a", "1234567", 7);
    room_failed(room, ebb_safetensors_open_file(room->ctx, path, &set), EBB_BAD_FILE,
                "7 bytes are too few");
    room_write(room, "a", "\x40\0\0\0\0\0\0\0{}", 10);
    room_failed(room, ebb_safetensors_open_file(room->ctx, path, &set), EBB_BAD_FILE,
                "the header claims 64 bytes, but only 2 follow\nthe file is cut off");
    room_write(room, "a", "\x01\xe1\xf5\x05\0\0\0\0{}", 10);
    room_failed(room, ebb_safetensors_open_file(room->ctx, path, &set), EBB_BAD_FILE,
                "the header claims 100000001 bytes, the format allows 100000000");
    room_write(room, "a", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    room_failed(room, ebb_safetensors_open_file(room->ctx, path, &set), EBB_BAD_FILE,
                "claims 18446744073709551615 bytes");
    const char *pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    room_write(room, "a", pointer, strlen(pointer));
    room_failed(room, ebb_safetensors_open_file(room->ctx, path, &set), EBB_BAD_FILE,
                "Git LFS pointer");
}

static void directories_without_weights_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_safetensors *set;
    room_failed(room, ebb_safetensors_open_dir(room->ctx, room->dir, &set), EBB_BAD_FILE,
                "has no weights: neither model.safetensors nor model.safetensors.index.json");
    room_write(room, "pytorch_model.bin", "x", 1);
    room_failed(room, ebb_safetensors_open_dir(room->ctx, room->dir, &set), EBB_BAD_FILE,
                "pytorch_model.bin must be converted to safetensors");
}

static void write_index(struct room *room, const char *text)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    room_write(room, "model.safetensors.index.json", copy, strlen(copy));
}

static void an_index_leads_to_its_shards(void **state)
{
    struct room *room = *state;
    struct ebb_safetensors *set;
    write_raw(room, "s1",
              "{'a':{'dtype':'U8','shape':[1],'data_offsets':[0,1]},"
              "'c':{'dtype':'U8','shape':[1],'data_offsets':[1,2]}}",
              2);
    write_raw(room, "s2", "{'b':{'dtype':'U8','shape':[4],'data_offsets':[0,4]}}", 4);
    write_index(room, "{'metadata':{'total_size':6},'weight_map':{'a':'s1','b':'s2','c':'s1'}}");
    ROOM_OK(room, ebb_safetensors_open_dir(room->ctx, room->dir, &set));
    assert_int_equal(ebb_safetensors_count(set), 3);
    assert_int_equal(ebb_safetensors_find(set, "b")->bytes, 4);
    assert_non_null(strstr(ebb_safetensors_find(set, "b")->file, "/s2"));
    assert_int_equal(*(const unsigned char *)ebb_safetensors_find(set, "c")->data, 1);
    ebb_safetensors_close(room->ctx, set);
}

static void wrong_indexes_are_refused(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *index, *text;
    } cases[] = {
        {"{'weight_map':{'a':'s1','b':'s3'}}", "index.json: shard 's3' is missing"},
        {"{'weight_map':{'a':'s1','x':'s1'}}", "tensor 'x' should be in 's1', but is not there"},
        {"{'weight_map':{'a':'s2','b':'s1'}}", "tensor 'a' should be in 's2', but is in "},
        {"{'weight_map':{'a':'s1','b':'twin'}}", "tensor 'a' is in both"},
        {"{'weight_map':{'a':'../s1'}}", "'../s1' is no file name beside the index"},
        {"{'weight_map':{'a':'..'}}", "'..' is no file name"},
        {"{'weight_map':{'a':1}}", "'' is no file name"},
        {"{'weight_map':{}}", "no object 'weight_map'"},
        {"{'weight_map':['s1']}", "no object 'weight_map'"},
        {"[]", "no object 'weight_map'"},
        {"{", "index.json:1:"},
    };
    write_raw(room, "s1", "{'a':{'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1);
    write_raw(room, "s2", "{'b':{'dtype':'U8','shape':[4],'data_offsets':[0,4]}}", 4);
    write_raw(room, "twin",
              "{'b':{'dtype':'U8','shape':[1],'data_offsets':[0,1]},"
              "'a':{'dtype':'U8','shape':[1],'data_offsets':[1,2]}}",
              2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_safetensors *set;
        write_index(room, cases[i].index);
        room_failed(room, ebb_safetensors_open_dir(room->ctx, room->dir, &set), EBB_BAD_FILE,
                    cases[i].text);
        assert_null(set);
    }
}

static void wanted_tensors_are_checked(void **state)
{
    struct room *room = *state;
    const struct ebb_tensor_info *info;
    write_raw(room, "a",
              "{'m':{'dtype':'F16','shape':[2,3],'data_offsets':[0,12]},"
              "'v':{'dtype':'BF16','shape':[4],'data_offsets':[12,20]},"
              "'i':{'dtype':'I32','shape':[1,1],'data_offsets':[20,24]}}",
              24);
    struct ebb_safetensors *set = opened(room, "a");
    ROOM_OK(room, ebb_safetensors_want(room->ctx, set, "m", 2, 3, &info));
    assert_string_equal(info->name, "m");
    ROOM_OK(room, ebb_safetensors_want(room->ctx, set, "v", 1, 4, &info));
    room_failed(room, ebb_safetensors_want(room->ctx, set, "m", 3, 2, &info), EBB_BAD_FILE,
                "tensor 'm' has shape [2, 3], config.json wants [3, 2]");
    assert_null(info);
    room_failed(room, ebb_safetensors_want(room->ctx, set, "v", 1, 5, &info), EBB_BAD_FILE,
                "tensor 'v' has shape [4], config.json wants [5]");
    room_failed(room, ebb_safetensors_want(room->ctx, set, "v", 2, 2, &info), EBB_BAD_FILE,
                "has shape [4]");
    room_failed(room, ebb_safetensors_want(room->ctx, set, "x", 2, 2, &info), EBB_BAD_FILE,
                "tensor 'x' is missing, wanted with shape [2, 2]");
    room_failed(room, ebb_safetensors_want(room->ctx, set, "i", 1, 1, &info), EBB_UNSUPPORTED,
                "tensor 'i' has dtype int32");
    ebb_safetensors_close(room->ctx, set);
}

/* ---- copying --------------------------------------------------------------------------------- */

static void copies_convert_and_keep_the_stride(void **state)
{
    (void)state;
    static const float values[] = {1, -2.5f, 0.33333334f, 65504, 1e-7f, INFINITY};
    unsigned char bytes[3][1 + sizeof values]; /* one byte in front, so that nothing is aligned */
    static const enum ebb_dtype types[] = {EBB_F32, EBB_BF16, EBB_F16};
    for (int i = 0; i < 6; i++) {
        uint16_t b = ebb_to_bf16(values[i]), h = ebb_to_f16(values[i]);
        memcpy(bytes[0] + 1 + 4 * i, &values[i], 4);
        memcpy(bytes[1] + 1 + 2 * i, &b, 2);
        memcpy(bytes[2] + 1 + 2 * i, &h, 2);
    }
    for (int t = 0; t < 3; t++) {
        struct ebb_tensor_info info = {.dtype = types[t],
                                       .dims = 2,
                                       .shape = {2, 3},
                                       .data = bytes[t] + 1,
                                       .bytes = 6 * ebb_dtype_bytes(types[t])};
        float f[10];
        uint16_t b[10];
        for (int i = 0; i < 10; i++) f[i] = 77, b[i] = 77;
        ebb_tensor_copy(&info, 2, 3, f, EBB_F32, 5);
        ebb_tensor_copy(&info, 2, 3, b, EBB_BF16, 5);
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 5; c++) {
                float v = c < 3 ? values[3 * r + c] : 77;
                if (c < 3 && t == 1) v = ebb_from_bf16(ebb_to_bf16(v));
                if (c < 3 && t == 2) v = ebb_from_f16(ebb_to_f16(v));
                assert_true(f[5 * r + c] == v);
                assert_int_equal(b[5 * r + c], c < 3 ? ebb_to_bf16(v) : 77);
            }
        ebb_tensor_copy_rows(&info, 1, 1, 3, f, EBB_F32, 3);
        assert_true(isinf(f[2]));
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Element i of every tensor is base + i; rows must come in order. */
struct source {
    int64_t base, cols, next_row;
    int64_t fail_row; /* -1: never */
    int parts;
};

static enum ebb_status fill(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows, void *out)
{
    struct source *source = user;
    if (row0 != source->next_row) return EBB_FAIL(ctx, EBB_FAILED, "rows out of order");
    if (source->fail_row >= row0 && source->fail_row < row0 + rows)
        return EBB_FAIL(ctx, EBB_FAILED, "the device is gone");
    for (int64_t i = 0; i < rows * source->cols; i++)
        ((float *)out)[i] = (float)(source->base + row0 * source->cols + i);
    source->next_row += rows;
    source->parts++;
    return EBB_OK;
}

static struct ebb_tensor_source matrix(const char *name, struct source *source, int64_t rows)
{
    source->next_row = 0;
    source->parts = 0;
    return (struct ebb_tensor_source){.name = name,
                                      .dtype = EBB_F32,
                                      .dims = 2,
                                      .shape = {rows, source->cols},
                                      .fill = fill,
                                      .user = source};
}

static void what_is_written_reads_back(void **state)
{
    struct room *room = *state;
    struct source sources[3] = {{0, 3, 0, -1, 0}, {100, 5, 0, -1, 0}, {1000, 4, 0, -1, 0}};
    struct ebb_tensor_source tensors[] = {matrix("b", &sources[0], 2),
                                          matrix("a \"\\ \xc3\xa9", &sources[1], 7),
                                          matrix("v", &sources[2], 1)};
    struct ebb_safetensors *set;
    tensors[2].dims = 1;
    tensors[2].shape[0] = 4;
    ROOM_OK(room, ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 3, 1 << 20));
    ROOM_OK(room, ebb_safetensors_open_dir(room->ctx, room->dir, &set));
    assert_int_equal(ebb_safetensors_count(set), 3);
    const struct ebb_tensor_info *info;
    float values[35];
    ROOM_OK(room, ebb_safetensors_want(room->ctx, set, "a \"\\ \xc3\xa9", 7, 5, &info));
    assert_int_equal((uintptr_t)info->data % 8, 0);
    ebb_tensor_copy(info, 7, 5, values, EBB_F32, 5);
    for (int i = 0; i < 35; i++) assert_true(values[i] == (float)(100 + i));
    ROOM_OK(room, ebb_safetensors_want(room->ctx, set, "v", 1, 4, &info));
    ebb_tensor_copy(info, 1, 4, values, EBB_F32, 4);
    assert_true(values[3] == 1003);
    ebb_safetensors_close(room->ctx, set);
    /* As safetensors' own writer has it: metadata first, length a multiple of 8. */
    struct ebb_map map;
    char path[256];
    ROOM_OK(room, ebb_map_open(room->ctx, room_path(room, "model.safetensors", path), &map));
    assert_memory_equal(map.data + 8, "{\"__metadata__\": {\"format\": \"pt\"}", 33);
    assert_int_equal(map.data[0] % 8, 0);
    ebb_map_close(&map);
}

static enum ebb_status fill_bytes(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows,
                                  void *out)
{
    (void)ctx;
    (void)user;
    (void)row0;
    memset(out, 7, (size_t)rows * 3);
    return EBB_OK;
}

static void wider_types_come_first_so_that_all_stay_aligned(void **state)
{
    struct room *room = *state;
    struct source source = {0, 3, 0, -1, 0};
    struct ebb_tensor_source tensors[] = {
        {.name = "bytes", .dtype = EBB_U8, .dims = 2, .shape = {1, 3}, .fill = fill_bytes},
        matrix("floats", &source, 2)};
    char path[256];
    ROOM_OK(room,
            ebb_safetensors_save_file(room->ctx, room_path(room, "x", path), tensors, 2, NULL));
    struct ebb_safetensors *set = opened(room, "x");
    assert_int_equal((uintptr_t)ebb_safetensors_find(set, "floats")->data % 4, 0);
    assert_memory_equal(ebb_safetensors_find(set, "bytes")->data, "\7\7\7", 3);
    ebb_safetensors_close(room->ctx, set);
}

static void large_tensors_are_filled_a_part_at_a_time(void **state)
{
    struct room *room = *state;
    struct source source = {0, 1 << 20, 0, -1, 0}; /* rows of 4 MiB */
    struct ebb_tensor_source tensors[] = {matrix("t", &source, 5)};
    char path[256];
    int64_t before = ebb_mem_bytes_peak(room->ctx);
    ROOM_OK(room,
            ebb_safetensors_save_file(room->ctx, room_path(room, "x", path), tensors, 1, NULL));
    assert_int_equal(source.parts, 3);
    assert_true(ebb_mem_bytes_peak(room->ctx) - before < 10 << 20);
    struct ebb_safetensors *set = opened(room, "x");
    float last;
    memcpy(&last, (const char *)ebb_safetensors_find(set, "t")->data + (20 << 20) - 4, 4);
    assert_true(last == (float)((5 << 20) - 1));
    ebb_safetensors_close(room->ctx, set);
}

static void shards_are_cut_as_transformers_does(void **state)
{
    struct room *room = *state;
    struct source sources[4] = {{0, 4, 0, -1, 0},
                                {50, 4, 0, -1, 0},
                                {100, 4, 0, -1, 0},
                                {150, 4, 0, -1, 0}};
    struct ebb_tensor_source tensors[] = {matrix("a", &sources[0], 2), matrix("b", &sources[1], 2),
                                          matrix("c", &sources[2], 9), matrix("d", &sources[3], 1)};
    struct ebb_safetensors *set;
    char path[256];
    json_t *index;
    ROOM_OK(room, ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 4, 64));
    ROOM_OK(room, ebb_json_load(room->ctx, room_path(room, "model.safetensors.index.json", path),
                                &index));
    const json_t *map = json_object_get(index, "weight_map");
    assert_string_equal(json_string_value(json_object_get(map, "a")),
                        "model-00001-of-00003.safetensors");
    assert_string_equal(json_string_value(json_object_get(map, "b")),
                        "model-00001-of-00003.safetensors");
    assert_string_equal(json_string_value(json_object_get(map, "c")),
                        "model-00002-of-00003.safetensors");
    assert_string_equal(json_string_value(json_object_get(map, "d")),
                        "model-00003-of-00003.safetensors");
    assert_int_equal(json_integer_value(
                         json_object_get(json_object_get(index, "metadata"), "total_size")),
                     14 * 16);
    json_decref(index);
    ROOM_OK(room, ebb_safetensors_open_dir(room->ctx, room->dir, &set));
    float value;
    memcpy(&value, ebb_safetensors_find(set, "d")->data, 4);
    assert_true(value == 150);
    ebb_safetensors_close(room->ctx, set);
    /* A later save of one file must not leave the index of the shards to be read with it, nor
     * the other way round. */
    for (int i = 0; i < 4; i++) sources[i].next_row = 0;
    ROOM_OK(room, ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 4, 1 << 20));
    assert_false(ebb_file_exists(path));
    for (int i = 0; i < 4; i++) sources[i].next_row = 0;
    ROOM_OK(room, ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 4, 64));
    assert_false(ebb_file_exists(room_path(room, "model.safetensors", path)));
    /* Nor shards of another number; what only looks like one stays. */
    room_path(room, "model-a-of-b.safetensors", path);
    ROOM_OK(room, ebb_file_write(room->ctx, path, "", 0));
    for (int i = 0; i < 4; i++) sources[i].next_row = 0;
    ROOM_OK(room, ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 4, 160));
    assert_false(ebb_file_exists(room_path(room, "model-00003-of-00003.safetensors", path)));
    assert_true(ebb_file_exists(room_path(room, "model-00002-of-00002.safetensors", path)));
    assert_true(ebb_file_exists(room_path(room, "model-a-of-b.safetensors", path)));
    ROOM_OK(room, ebb_safetensors_open_dir(room->ctx, room->dir, &set));
    ebb_safetensors_close(room->ctx, set);
}

static void weight_files_are_known_by_name(void **state)
{
    (void)state;
    assert_int_equal(ebb_safetensors_shards("model.safetensors"), 0);
    assert_int_equal(ebb_safetensors_shards("model-00002-of-00031.safetensors"), 31);
    assert_int_equal(ebb_safetensors_shards("model-00002-of-00031.safetensors.bak"), -1);
    assert_int_equal(ebb_safetensors_shards("model-x-of-00031.safetensors"), -1);
    assert_int_equal(ebb_safetensors_shards("adapter_model.safetensors"), -1);
    assert_int_equal(ebb_safetensors_shards("model.safetensors.index.json"), -1);
}

static void a_failing_source_leaves_no_file(void **state)
{
    struct room *room = *state;
    struct source source = {0, 4, 0, 1, 0};
    struct ebb_tensor_source tensors[] = {matrix("a", &source, 2)};
    char **names;
    size_t count;
    room_failed(room, ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 1, 1 << 20),
                EBB_FAILED, "device is gone");
    ROOM_OK(room, ebb_dir_list(room->ctx, room->dir, &names, &count));
    assert_int_equal(count, 0);
    ebb_mem_free(room->ctx, names);
    char path[256];
    room_failed(room,
                ebb_safetensors_save_file(room->ctx, room_path(room, "no/where", path), tensors, 1,
                                          NULL),
                EBB_IO, "no/where");
}

static void two_tensors_of_one_name_are_refused(void **state)
{
    struct room *room = *state;
    struct source a = {0, 4, 0, -1, 0}, b = a;
    struct ebb_tensor_source tensors[] = {matrix("a", &a, 1), matrix("a", &b, 1)};
    room_failed(room, ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 2, 1 << 20),
                EBB_FAILED, "two tensors are called 'a'");
    a.next_row = 0;
    room_failed(room, ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 2, 16), EBB_FAILED,
                "two tensors are called 'a'");
}

static void running_out_of_memory_anywhere_is_an_error_without_leaks(void **state)
{
    struct room *room = *state;
    struct source sources[2] = {{0, 4, 0, -1, 0}, {50, 4, 0, -1, 0}};
    struct ebb_tensor_source tensors[] = {matrix("a", &sources[0], 2), matrix("b", &sources[1], 2)};
    for (int nth = 1; nth < 1000; nth++) {
        struct ebb_safetensors *set;
        sources[0].next_row = sources[1].next_row = 0;
        ebb_mem_fail_nth(room->ctx, nth, false);
        enum ebb_status status = ebb_safetensors_save_dir(room->ctx, room->dir, tensors, 2, 32);
        if (status == EBB_OK) status = ebb_safetensors_open_dir(room->ctx, room->dir, &set);
        ebb_mem_fail_nth(room->ctx, 0, false);
        if (status == EBB_OK) {
            ebb_safetensors_close(room->ctx, set);
            assert_true(nth > 20);
            return;
        }
        assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
    }
    fail_msg("never enough memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_CASE(tensors_are_found_by_name),
        ROOM_CASE(a_file_without_tensors_is_empty),
        ROOM_CASE(malformed_headers_are_refused),
        ROOM_CASE(cut_and_foreign_files_are_refused),
        ROOM_CASE(directories_without_weights_are_refused),
        ROOM_CASE(an_index_leads_to_its_shards),
        ROOM_CASE(wrong_indexes_are_refused),
        ROOM_CASE(wanted_tensors_are_checked),
        cmocka_unit_test(copies_convert_and_keep_the_stride),
        ROOM_CASE(what_is_written_reads_back),
        ROOM_CASE(wider_types_come_first_so_that_all_stay_aligned),
        ROOM_CASE(large_tensors_are_filled_a_part_at_a_time),
        ROOM_CASE(shards_are_cut_as_transformers_does),
        cmocka_unit_test(weight_files_are_known_by_name),
        ROOM_CASE(a_failing_source_leaves_no_file),
        ROOM_CASE(two_tensors_of_one_name_are_refused),
        ROOM_CASE(running_out_of_memory_anywhere_is_an_error_without_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
