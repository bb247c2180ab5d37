/* JSON: positions in messages, typed look-ups, what is written can be read again.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

static int make_ctx(void **state)
{
    *state = ebb_ctx_create();
    return *state != NULL ? 0 : -1;
}

static int free_ctx(void **state)
{
    int64_t left = ebb_mem_bytes_now(*state);
    ebb_ctx_free(*state);
    return left == 0 ? 0 : -1;
}

static void assert_says(struct ebb_ctx *ctx, const char *part)
{
    if (strstr(ebb_error_text(ctx), part) == NULL)
        fail_msg("'%s' is not in '%s'", part, ebb_error_text(ctx));
    ebb_error_clear(ctx);
}

static json_t *parse(struct ebb_ctx *ctx, const char *text)
{
    json_t *json;
    assert_int_equal(ebb_json_parse(ctx, "t.json", 0, text, strlen(text), &json), EBB_OK);
    return json;
}

static void errors_name_line_and_column(void **state)
{
    static const struct {
        const char *text, *where;
        int line;
    } cases[] = {
        {"{\"a\": 1,\n \"b\": x}", "t.json:2:7: ", 0},
        {"{\"a\": x}", "t.json:42:7: ", 41},
        {"[1,2", "t.json:1:4: ", 0},
        {"{} {}", "t.json:1:4: ", 0},
        {"", "t.json:1:1: ", 0},
        {"", "t.json:8:1: ", 7},
        {"{\"a\": 1, \"a\": 2}", "duplicate", 0},
        {"[1e999]", "real number overflow", 0},
        {"[\"\xff\"]", "t.json:1:2: unable to decode byte 0xff", 0},
        {"[01]", "t.json:1:", 0},
        {"nul", "t.json:1:", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *json;
        enum ebb_status status = ebb_json_parse(*state, "t.json", cases[i].line, cases[i].text,
                                                strlen(cases[i].text), &json);
        assert_int_equal(status, EBB_BAD_FILE);
        assert_null(json);
        assert_says(*state, cases[i].where);
    }
}

static void deep_nesting_is_an_error_and_no_crash(void **state)
{
    static char text[200000];
    memset(text, '[', sizeof text);
    json_t *json;
    assert_int_equal(ebb_json_parse(*state, "t.json", 0, text, sizeof text, &json), EBB_BAD_FILE);
    assert_says(*state, "depth");
}

/* The writer once took 1000 levels for a cycle, and a parser's limit is 2048. */
static void what_is_deep_and_was_read_can_be_written(void **state)
{
    enum { LEVELS = 2000 };
    static char text[2 * LEVELS + 1];
    memset(text, '[', LEVELS);
    memset(text + LEVELS, ']', LEVELS);
    json_t *json = parse(*state, text);
    struct ebb_str out = {0};
    assert_int_equal(ebb_json_text(*state, json, 0, &out), EBB_OK);
    assert_string_equal(out.data, text);
    ebb_str_free(*state, &out);
    json_decref(json);
}

static void any_value_may_be_the_root(void **state)
{
    json_t *json = parse(*state, " \"a\\u0000b\" ");
    assert_int_equal(json_string_length(json), 3);
    json_decref(json);
    json = parse(*state, "\xef\xbb\xbf[1]");
    assert_int_equal(json_array_size(json), 1);
    json_decref(json);
    json = parse(*state, "null");
    assert_true(json_is_null(json));
    json_decref(json);
    assert_int_equal(ebb_json_parse(*state, "t.json", 0, NULL, 0, &json), EBB_BAD_FILE);
    assert_says(*state, "nothing is here");
}

static void typed_look_ups_convert_only_what_is_exact(void **state)
{
    struct ebb_ctx *ctx = *state;
    json_t *json = parse(ctx, "{\"i\": 7, \"r\": 1.0, \"h\": 0.5, \"big\": 1e300, \"s\": \"text\", "
                              "\"b\": true, \"n\": null}");
    int64_t integer = 0;
    double real = 0;
    bool flag = false, found = false;
    const char *text = NULL;
    assert_int_equal(ebb_json_int64(ctx, "t", json, "i", &integer, &found), EBB_OK);
    assert_true(found && integer == 7);
    assert_int_equal(ebb_json_int64(ctx, "t", json, "r", &integer, NULL), EBB_OK);
    assert_int_equal(integer, 1);
    assert_int_equal(ebb_json_double(ctx, "t", json, "i", &real, NULL), EBB_OK);
    assert_true(real == 7.0);
    assert_int_equal(ebb_json_double(ctx, "t", json, "h", &real, NULL), EBB_OK);
    assert_true(real == 0.5);
    assert_int_equal(ebb_json_bool(ctx, "t", json, "b", &flag, NULL), EBB_OK);
    assert_true(flag);
    assert_int_equal(ebb_json_string(ctx, "t", json, "s", &text, NULL), EBB_OK);
    assert_string_equal(text, "text");

    integer = 99;
    assert_int_equal(ebb_json_int64(ctx, "dir/t", json, "h", &integer, &found), EBB_BAD_FILE);
    assert_says(ctx, "dir/t: 'h' is the number 0.5, an integer is wanted");
    assert_int_equal(ebb_json_int64(ctx, "t", json, "big", &integer, NULL), EBB_BAD_FILE);
    ebb_error_clear(ctx);
    assert_int_equal(ebb_json_int64(ctx, "t", json, "b", &integer, NULL), EBB_BAD_FILE);
    assert_says(ctx, "'b' is true, an integer is wanted");
    assert_int_equal(ebb_json_double(ctx, "t", json, "s", &real, NULL), EBB_BAD_FILE);
    assert_says(ctx, "'s' is the string \"text\", a number is wanted");
    assert_int_equal(ebb_json_bool(ctx, "t", json, "i", &flag, NULL), EBB_BAD_FILE);
    assert_says(ctx, "true or false is wanted");
    assert_int_equal(ebb_json_string(ctx, "t", json, "i", &text, NULL), EBB_BAD_FILE);
    assert_says(ctx, "a string is wanted");
    assert_int_equal(integer, 99);
    json_decref(json);
}

static void missing_and_null_are_the_same(void **state)
{
    struct ebb_ctx *ctx = *state;
    json_t *json = parse(ctx, "{\"n\": null}");
    int64_t integer = 5;
    bool found = true;
    assert_int_equal(ebb_json_int64(ctx, "t", json, "n", &integer, &found), EBB_OK);
    assert_false(found);
    found = true;
    assert_int_equal(ebb_json_int64(ctx, "t", json, "none", &integer, &found), EBB_OK);
    assert_false(found);
    assert_int_equal(integer, 5);
    assert_int_equal(ebb_json_int64(ctx, "t", json, "none", &integer, NULL), EBB_BAD_FILE);
    assert_says(ctx, "t: 'none' is missing, an integer is wanted");
    assert_int_equal(ebb_json_int64(ctx, "t", json, "n", &integer, NULL), EBB_BAD_FILE);
    assert_says(ctx, "'n' is null");
    json_t *list = parse(ctx, "[1]");
    assert_int_equal(ebb_json_int64(ctx, "t", list, "n", &integer, &found), EBB_BAD_FILE);
    assert_says(ctx, "t: a list where an object with 'n' is wanted");
    assert_int_equal(ebb_json_int64(ctx, "t", NULL, "n", &integer, &found), EBB_BAD_FILE);
    ebb_error_clear(ctx);
    json_decref(list);
    json_decref(json);
}

static void text_is_short_ordered_and_reads_back(void **state)
{
    struct ebb_ctx *ctx = *state;
    json_t *json = json_pack("{s:f, s:i, s:[f,f,n,b], s:s, s:{}, s:[]}", "z", 0.1, "a", 3, "l", 1.0,
                             1e-9, 1, "t", "q\"\\\n\t\x01 \xe2\x82\xac/", "o", "e");
    assert_non_null(json);
    struct ebb_str text = {0};
    assert_int_equal(ebb_json_text(ctx, json, 0, &text), EBB_OK);
    assert_string_equal(text.data,
                        "{\"z\": 0.1, \"a\": 3, \"l\": [1.0, 1e-09, null, true], "
                        "\"t\": \"q\\\"\\\\\\n\\t\\u0001 \xe2\x82\xac/\", \"o\": {}, \"e\": []}");
    json_t *back = parse(ctx, text.data);
    assert_true(json_equal(json, back));
    json_decref(back);
    text.bytes = 0;
    json_t *small = json_pack("{s:[i,i], s:{s:b}}", "l", 1, 2, "o", "k", 0);
    assert_int_equal(ebb_json_text(ctx, small, 2, &text), EBB_OK);
    assert_string_equal(text.data,
                        "{\n  \"l\": [\n    1,\n    2\n  ],\n  \"o\": {\n    \"k\": false\n  }\n}");
    json_decref(small);
    text.bytes = 0;
    json_t *whole = json_pack("[f, f, f, f]", 10.0, 100.0, 10000.0, 2e-5);
    assert_int_equal(ebb_json_text(ctx, whole, 0, &text), EBB_OK);
    assert_string_equal(text.data, "[10.0, 100.0, 10000.0, 2e-05]");
    json_decref(whole);
    json_decref(json);
    ebb_str_free(ctx, &text);
}

static void saved_file_loads_again(void **state)
{
    struct ebb_ctx *ctx = *state;
    const char *root = getenv("TMPDIR");
    char dir[256], path[300];
    snprintf(dir, sizeof dir, "%.200s/ebb_json_XXXXXX", root != NULL ? root : "/tmp");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.json", dir);
    json_t *json = parse(ctx, "{\"a\": [1, 2.5, \"\\u0000\"]}"), *back;
    assert_int_equal(ebb_json_save(ctx, path, json), EBB_OK);
    assert_int_equal(ebb_json_load(ctx, path, &back), EBB_OK);
    assert_true(json_equal(json, back));
    json_decref(back);
    struct ebb_map map;
    assert_int_equal(ebb_map_open(ctx, path, &map), EBB_OK);
    assert_int_equal(map.data[map.bytes - 1], '\n');
    ebb_map_close(&map);
    for (int nth = 1;; nth++) { /* each allocation on the way may fail */
        ebb_mem_fail_nth(ctx, nth, false);
        enum ebb_status status = ebb_json_save(ctx, path, json);
        ebb_mem_fail_nth(ctx, 0, false);
        if (status == EBB_OK) break;
        assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(ctx);
    }
    json_decref(json);
    assert_int_equal(ebb_file_write(ctx, path, "{\n]", 3), EBB_OK);
    assert_int_equal(ebb_json_load(ctx, path, &back), EBB_BAD_FILE);
    char where[400];
    snprintf(where, sizeof where, "%s:2:1: ", path);
    assert_says(ctx, where);
    assert_int_equal(ebb_dir_remove(ctx, dir), EBB_OK);
    assert_int_equal(ebb_json_load(ctx, path, &back), EBB_IO);
    assert_says(ctx, "does not exist");
}

/* As transformers writes "model_max_length". */
static void an_integer_beyond_64_bits_makes_all_of_them_reals(void **state)
{
    struct ebb_ctx *ctx = *state;
    const char *text = "{\"big\": 1000000000000000019884624838656, \"n\": 12}";
    json_t *json;
    int64_t n = 0;
    double big = 0;
    assert_int_equal(ebb_json_parse(ctx, "t", 0, text, strlen(text), &json), EBB_OK);
    assert_int_equal(ebb_json_double(ctx, "t", json, "big", &big, NULL), EBB_OK);
    assert_true(big == 1e30);
    assert_int_equal(ebb_json_int64(ctx, "t", json, "n", &n, NULL), EBB_OK);
    assert_int_equal(n, 12);
    json_decref(json);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
    const struct CMUnitTest tests[] = {
        CASE(an_integer_beyond_64_bits_makes_all_of_them_reals),
        CASE(errors_name_line_and_column),
        CASE(deep_nesting_is_an_error_and_no_crash),
        CASE(what_is_deep_and_was_read_can_be_written),
        CASE(any_value_may_be_the_root),
        CASE(typed_look_ups_convert_only_what_is_exact),
        CASE(missing_and_null_are_the_same),
        CASE(text_is_short_ordered_and_reads_back),
        CASE(saved_file_loads_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
