/* Growable strings, numbers from and to text, nearest names, UTF-8.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

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

static void strings_grow_and_stay_terminated(void **state)
{
    struct ebb_ctx *ctx = *state;
    struct ebb_str str = {0};
    assert_int_equal(ebb_str_add(ctx, &str, "", 0), EBB_OK);
    assert_string_equal(str.data, "");
    for (int i = 0; i < 1000; i++) assert_int_equal(ebb_str_addf(ctx, &str, "%03d,", i), EBB_OK);
    assert_int_equal(str.bytes, 4000);
    assert_int_equal(strlen(str.data), 4000);
    assert_memory_equal(str.data + 4 * 567, "567,", 4);
    assert_int_equal(ebb_str_add(ctx, &str, "a\0b", 3), EBB_OK);
    assert_int_equal(str.bytes, 4003);
    ebb_str_free(ctx, &str);
    assert_null(str.data);
    assert_int_equal(str.bytes, 0);
}

static void string_without_memory_keeps_what_it_had(void **state)
{
    struct ebb_ctx *ctx = *state;
    struct ebb_str str = {0};
    assert_int_equal(ebb_str_addf(ctx, &str, "kept"), EBB_OK);
    ebb_mem_fail_nth(ctx, 1, false);
    assert_int_equal(ebb_str_addf(ctx, &str, "%500d", 1), EBB_NO_MEMORY);
    assert_string_equal(str.data, "kept");
    assert_int_equal(ebb_str_add(ctx, &str, "x", SIZE_MAX / 2), EBB_NO_MEMORY);
    ebb_str_free(ctx, &str);
}

static void integers_are_read_whole_or_refused(void **state)
{
    (void)state;
    int64_t value = 0;
    assert_true(ebb_text_int64("-9223372036854775808", &value) && value == INT64_MIN);
    assert_true(ebb_text_int64("9223372036854775807", &value) && value == INT64_MAX);
    assert_true(ebb_text_int64("+7", &value) && value == 7);
    assert_true(ebb_text_int64("007", &value) && value == 7);
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "+",
                                      "--1",
                                      "1e3",
                                      "0x10",
                                      "1.0",
                                      "2_000",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "one"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        value = 42;
        if (ebb_text_int64(bad[i], &value) || value != 42) fail_msg("'%s' was taken", bad[i]);
    }
}

static void doubles_are_read_whole_or_refused(void **state)
{
    (void)state;
    double value = 0;
    assert_true(ebb_text_double("1e-4", &value) && value == 1e-4);
    assert_true(ebb_text_double("-.5", &value) && value == -0.5);
    assert_true(ebb_text_double("3", &value) && value == 3.0);
    assert_true(ebb_text_double("5e-324", &value) && value > 0);
    static const char *const bad[] = {"",   " 1",  "1 ",    "nan",   "inf",    "0x1p3",
                                      "1e", "1,5", "1.2.3", "1e400", "1e-400", "e5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        value = 42;
        if (ebb_text_double(bad[i], &value) || value != 42) fail_msg("'%s' was taken", bad[i]);
    }
}

static void switches_are_read_in_any_case(void **state)
{
    (void)state;
    bool value = false;
    assert_true(ebb_text_bool("True", &value) && value);
    assert_true(ebb_text_bool("OFF", &value) && !value);
    assert_true(ebb_text_bool("yes", &value) && value);
    assert_true(ebb_text_bool("no", &value) && !value);
    assert_false(ebb_text_bool("1", &value));
    assert_false(ebb_text_bool("", &value));
    assert_false(ebb_text_bool("truely", &value));
}

static void sizes_are_read_with_their_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {
        {"4096", 4096},
        {"0", 0},
        {"17 B", 17},
        {"20GiB", 20LL << 30},
        {"512 MiB", 512LL << 20},
        {"1.5GB", 1500000000},
        {"2kb", 2000},
        {"1.5GiB", 3LL << 29},
        {"8G", 8LL << 30},
        {"1TiB", 1LL << 40},
        {"24gib", 24LL << 30},
        {"2.0", 2},
        {"0.1KiB", 102},
        {"8388607TiB", 8388607LL << 40},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t bytes = -1;
        if (!ebb_text_size(good[i].text, &bytes) || bytes != good[i].bytes)
            fail_msg("'%s' became %lld", good[i].text, (long long)bytes);
    }
    static const char *const bad[] = {
        "",      "GiB",    "-1GiB", "1.5",        "1..5GiB",      "10 apples",           "1e3",
        "1GiB ", "1  GiB", "20 ",   "8388608TiB", "9000000.5TiB", "9223372036854775808", ".",
        ".GiB"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t bytes;
        if (ebb_text_size(bad[i], &bytes)) fail_msg("'%s' was taken", bad[i]);
    }
}

static void sizes_and_times_are_shown_for_people(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0 B"},
        {17, "17 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {512 << 10, "512 KiB"},
        {(1 << 20) - 1, "1 MiB"},
        {87295619891, "81.3 GiB"},
        {-2048, "-2 KiB"},
        {INT64_MAX, "8 EiB"},
        {1536, "1.5 KiB"},
    };
    char out[32];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_string_equal(ebb_text_bytes(sizes[i].bytes, out, sizeof out), sizes[i].text);
    static const struct {
        int64_t a, b;
        const char *a_text, *b_text;
    } pairs[] = {
        {INT64_C(3) << 30, INT64_C(1) << 30, "3 GiB", "1 GiB"},
        {INT64_C(1411) << 20, (INT64_C(14052) << 20) / 10, "1411 MiB", "1405.2 MiB"},
        {(INT64_C(1411) << 20) + 1, INT64_C(1411) << 20, "1479540737 B", "1479540736 B"},
        {INT64_C(1411) << 20, INT64_C(1411) << 20, "1.4 GiB", "1.4 GiB"},
        {(INT64_C(1) << 20) + 9, (INT64_C(1) << 20) - 1, "1048585 B", "1048575 B"},
        {5, 6, "5 B", "6 B"},
    };
    char other[32];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        ebb_text_bytes_apart(pairs[i].a, pairs[i].b, out, other, sizeof out);
        assert_string_equal(out, pairs[i].a_text);
        assert_string_equal(other, pairs[i].b_text);
    }
    static const struct {
        double seconds;
        const char *text;
    } times[] = {
        {0, "0.0s"},      {0.012, "12ms"},    {0.8, "0.8s"},         {9.96, "10s"},
        {59.4, "59s"},    {59.6, "1m 00s"},   {65, "1m 05s"},        {3599.7, "1h 00m"},
        {7380, "2h 03m"}, {90000, "1d 01h"},  {INFINITY, "unknown"}, {-65, "-1m 05s"},
        {NAN, "unknown"}, {0.0002, "0.20ms"},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        assert_string_equal(ebb_text_seconds(times[i].seconds, out, sizeof out), times[i].text);
}

static void counts_are_shown_with_three_digits(void **state)
{
    (void)state;
    static const struct {
        int64_t count;
        const char *text;
    } counts[] = {
        {0, "0"},
        {9999, "9999"},
        {10000, "10.0 thousand"},
        {58368, "58.4 thousand"},
        {806016, "806 thousand"},
        {999499, "999 thousand"},
        {999500, "1.00 million"},
        {9866432, "9.87 million"},
        {1235814400, "1.24 billion"},
        {-58368, "-58.4 thousand"},
    };
    char out[32];
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        assert_string_equal(ebb_text_count(counts[i].count, out, sizeof out), counts[i].text);
}

static void doubles_are_written_short_and_exact(void **state)
{
    (void)state;
    char out[EBB_TEXT_DOUBLE];
    assert_string_equal(ebb_text_from_double(0.1, out), "0.1");
    assert_string_equal(ebb_text_from_double(2e-4, out), "0.0002");
    assert_string_equal(ebb_text_from_double(1e-6, out), "1e-06");
    assert_string_equal(ebb_text_from_double(-3, out), "-3");
    assert_string_equal(ebb_text_from_double(0, out), "0");
    assert_string_equal(ebb_text_from_double(10, out), "10");
    assert_string_equal(ebb_text_from_double(100, out), "100");
    assert_string_equal(ebb_text_from_double(10000.5, out), "10000.5");
    assert_string_equal(ebb_text_from_double(0.000123, out), "0.000123");
    assert_string_equal(ebb_text_from_double(2e-5, out), "2e-05");
    assert_string_equal(ebb_text_from_double(9007199254740993.0, out), "9007199254740992");
    assert_string_equal(ebb_text_from_double(1e15, out), "1000000000000000");
    assert_string_equal(ebb_text_from_double(1e16, out), "1e+16");
    assert_string_equal(ebb_text_from_double(INFINITY, out), "inf");
    assert_string_equal(ebb_text_from_double(-1.7976931348623157e308, out),
                        "-1.7976931348623157e+308");
    for (uint64_t i = 0; i < 2000; i++) {
        uint32_t words[4];
        ebb_philox(5, i, words);
        double value, back;
        memcpy(&value, words, sizeof value);
        if (!isfinite(value)) continue;
        ebb_text_from_double(value, out);
        if (!ebb_text_double(out, &back) || back != value) fail_msg("%s is not %.17g", out, value);
    }
}

static void locale_of_the_host_program_changes_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8", "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && set == NULL; i++)
        set = setlocale(LC_ALL, names[i]);
    if (set == NULL) skip(); /* no locale with another decimal point is installed */
    double value = 0;
    char out[EBB_TEXT_DOUBLE];
    bool read = ebb_text_double("1.5", &value);
    ebb_text_from_double(0.25, out);
    setlocale(LC_ALL, "C");
    assert_true(read && value == 1.5);
    assert_string_equal(out, "0.25");
}

static void distances_count_edits_and_swaps(void **state)
{
    (void)state;
    assert_int_equal(ebb_text_distance("", ""), 0);
    assert_int_equal(ebb_text_distance("", "abc"), 3);
    assert_int_equal(ebb_text_distance("kitten", "sitting"), 3);
    assert_int_equal(ebb_text_distance("lora", "loar"), 1);
    assert_int_equal(ebb_text_distance("ca", "abc"), 3); /* the restricted form */
    assert_int_equal(ebb_text_distance("A", "a"), 1);
    char longer[400];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(ebb_text_distance(longer, longer), 0);
    assert_int_equal(ebb_text_distance(longer, "x"), 399);
}

static void nearest_name_is_one_that_could_be_meant(void **state)
{
    (void)state;
    static const char *const names[] = {"learning_rate", "batch_size", "optimizer.lr",
                                        "seed",          "x",          "memory_budget"};
    const size_t count = sizeof names / sizeof names[0];
    assert_string_equal(ebb_text_nearest("learnin_rate", names, count), "learning_rate");
    assert_string_equal(ebb_text_nearest("Learning-Rate", names, count), "learning_rate");
    assert_string_equal(ebb_text_nearest("batch", names, count), "batch_size");
    assert_string_equal(ebb_text_nearest("lr", names, count), "optimizer.lr");
    assert_string_equal(ebb_text_nearest("sede", names, count), "seed");
    assert_string_equal(ebb_text_nearest("memory", names, count), "memory_budget");
    assert_null(ebb_text_nearest("teacher", names, count));
    assert_null(ebb_text_nearest("q", names, count));
    assert_null(ebb_text_nearest("", names, count));
    assert_null(ebb_text_nearest("seed", NULL, 0));
}

static void utf8_stops_at_the_first_bad_character(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes, valid;
    } cases[] = {
        {"plain", 5, 5},
        {"a\0b", 3, 3},
        {"\xc3\xa4", 2, 2},
        {"\xe2\x82\xac!", 4, 4},
        {"\xf0\x9f\x8c\x8a", 4, 4},
        {"\xf4\x8f\xbf\xbf", 4, 4},
        {"ab\x80", 3, 2},             /* a continuation alone */
        {"ab\xc0\xaf", 4, 2},         /* overlong */
        {"ab\xe0\x9f\xbf", 5, 2},     /* overlong */
        {"ab\xf0\x8f\xbf\xbf", 6, 2}, /* overlong */
        {"ab\xed\xa0\x80", 5, 2},     /* surrogate */
        {"ab\xf4\x90\x80\x80", 6, 2}, /* above U+10FFFF */
        {"ab\xf5\x80\x80\x80", 6, 2},
        {"ab\xe2\x82", 4, 2}, /* cut short */
        {"ab\xe2\x28\xa1", 5, 2},
        {"\xff", 1, 0},
        {"", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (ebb_text_utf8_valid(cases[i].text, cases[i].bytes) != cases[i].valid)
            fail_msg("case %zu", i);
}

static void control_characters_are_written_out(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {{"", ""},
                 {"plain\ttext\n", "plain\ttext\n"},
                 {"\033[31mred", "\\x1b[31mred"},
                 {"\001\037\177\r", "\\x01\\x1f\\x7f\\x0d"},
                 {"\xc2\x80\xc2\x9f\xc2\xa0", "\\xc2\\x80\\xc2\\x9f\xc2\xa0"},
                 {"\xe2\x82\xac \xc2", "\xe2\x82\xac \xc2"}};
    char out[64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(ebb_text_escape(cases[i].text, out, sizeof out), cases[i].wanted);
    /* Never a part of an escape. */
    assert_string_equal(ebb_text_escape("ab\033c", out, 7), "ab\\x1b");
    assert_string_equal(ebb_text_escape("ab\033c", out, 6), "ab");
    assert_string_equal(ebb_text_escape("ab", out, 1), "");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
    const struct CMUnitTest tests[] = {
        CASE(strings_grow_and_stay_terminated),
        CASE(string_without_memory_keeps_what_it_had),
        CASE(integers_are_read_whole_or_refused),
        CASE(doubles_are_read_whole_or_refused),
        CASE(switches_are_read_in_any_case),
        CASE(sizes_are_read_with_their_units),
        CASE(sizes_and_times_are_shown_for_people),
        CASE(counts_are_shown_with_three_digits),
        CASE(doubles_are_written_short_and_exact),
        CASE(locale_of_the_host_program_changes_nothing),
        CASE(distances_count_edits_and_swaps),
        CASE(nearest_name_is_one_that_could_be_meant),
        CASE(utf8_stops_at_the_first_bad_character),
        CASE(control_characters_are_written_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
