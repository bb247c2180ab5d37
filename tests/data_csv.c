/* CSV and TSV: rows and fields, as RFC 4180 and Python's csv have them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include "data/csv.h"

/* Adds a text as "[text]", with control characters as Python writes them. */
static void add_shown(struct room *room, struct ebb_str *out, struct ebb_span text)
{
    assert_ok(room, ebb_str_add(room->ctx, out, "[", 1));
    for (size_t i = 0; i < text.bytes; i++) {
        char c = text.data[i];
        const char *shown = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
        if (c == '\0') shown = "\\0";
        assert_ok(room, shown != NULL ? ebb_str_add(room->ctx, out, shown, 2)
                                      : ebb_str_add(room->ctx, out, &c, 1));
    }
    assert_ok(room, ebb_str_add(room->ctx, out, "]", 1));
}

/* All rows as "[a][b] [c][d]"; "!" behind a field with text behind its closing quote, "?" where a
 * quote is open. The text lies in a block of its own size, so that reading behind it is seen. */
static void read_all(struct room *room, const char *text, size_t bytes, char separator,
                     struct ebb_str *out)
{
    char *copy = malloc(bytes + 1);
    memcpy(copy, text, bytes);
    copy = realloc(copy, bytes == 0 ? 1 : bytes);
    struct ebb_csv csv = {copy, bytes, 0, separator};
    struct ebb_span row;
    struct ebb_str scratch = {0};
    enum ebb_csv_found found;
    out->bytes = 0;
    assert_ok(room, ebb_str_add(room->ctx, out, "", 0));
    while ((found = ebb_csv_row(&csv, &row)) == EBB_CSV_ROW) {
        assert_true(row.bytes > 0);
        assert_true(row.data >= copy && row.data + row.bytes <= copy + bytes);
        if (out->bytes > 0) assert_ok(room, ebb_str_add(room->ctx, out, " ", 1));
        struct ebb_csv fields = {row.data, row.bytes, 0, separator};
        struct ebb_csv_field field;
        assert_ok(room, ebb_csv_field(room->ctx, &fields, &scratch, &field));
        for (; field.there;) {
            add_shown(room, out, field.text);
            if (field.stray) assert_ok(room, ebb_str_add(room->ctx, out, "!", 1));
            assert_ok(room, ebb_csv_field(room->ctx, &fields, &scratch, &field));
        }
    }
    if (found == EBB_CSV_OPEN_QUOTE) {
        assert_int_equal(row.data[0], '"');
        assert_ok(room, ebb_str_add(room->ctx, out, "?", 1));
    }
    ebb_str_free(room->ctx, &scratch);
    free(copy);
}

static void rows_and_fields_are_those_of_rfc_4180(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"", ""},
        {"a", "[a]"},
        {"a,b\n", "[a][b]"},
        {"a,b", "[a][b]"},
        {"a,b\nc,d\n", "[a][b] [c][d]"},
        {"a,b\r\nc,d\r\n", "[a][b] [c][d]"},
        {"a,b\rc,d\r", "[a][b] [c][d]"},
        {"\n\n\r\na\n\n\nb\n\n", "[a] [b]"},
        {",", "[][]"},
        {",\n,\n", "[][] [][]"},
        {"a,\n", "[a][]"},
        {",,a,,\n", "[][][a][][]"},
        {"\"\"", "[]"},
        {"\"\"\n\"\"\n", "[] []"},
        {"\"\",\"\"", "[][]"},
        {"\"a\",\"b\"\n", "[a][b]"},
        {"\"a,b\",c", "[a,b][c]"},
        {"\"a\nb\",c\n", "[a\\nb][c]"},
        {"\"a\r\nb\",c\r\n", "[a\\r\\nb][c]"},
        {"\"a\n\n\nb\"\n\nc", "[a\\n\\n\\nb] [c]"},
        {"\"say \"\"hi\"\"\",x", "[say \"hi\"][x]"},
        {"\"\"\"\"", "[\"]"},
        {"\"\"\"\"\"\"", "[\"\"]"},
        {"\"\"\"a\",\"b\"\"\"", "[\"a][b\"]"},
        {"a\"b,c\"\"d", "[a\"b][c\"\"d]"},
        {" \"a\",b", "[ \"a\"][b]"},
        {" a , b ", "[ a ][ b ]"},
        {"\"a\"b,c", "[ab]![c]"},
        {"\"a\" ,c", "[a ]![c]"},
        {"\"a\"\"b\"c\"d,e", "[a\"bc\"d]![e]"},
        {"\"", "?"},
        {"\"a", "?"},
        {"a,\"b\nc", "?"},
        {"a\nb,\"c\"\"\n", "[a]?"},
        {"caf\xc3\xa9,\xe2\x82\xac", "[caf\xc3\xa9][\xe2\x82\xac]"},
        {"a\tb,c", "[a\\tb][c]"},
    };
    struct ebb_str out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_all(room, cases[i].text, strlen(cases[i].text), ',', &out);
        if (strcmp(out.data, cases[i].wanted) != 0)
            fail_msg("case %zu: '%s', wanted '%s'", i, out.data, cases[i].wanted);
    }
    read_all(room, "a\0b,c", 5, ',', &out);
    assert_string_equal(out.data, "[a\\0b][c]");
    read_all(room, "a,b\t\"c\td\"\n", 10, '\t', &out);
    assert_string_equal(out.data, "[a,b][c\\td]");
    ebb_str_free(room->ctx, &out);
}

/* An odd number of quotes is the only thing that is never a table. */
static void every_prefix_is_read_or_has_an_open_quote(void **state)
{
    struct room *room = *state;
    static const char text[] = "id,\"te\"\"xt\"\r\n1,\"a\nb\"\r\n\r\n2,\"\"\"\"\n3,,\r4,x\"y\n";
    struct ebb_str out = {0};
    for (size_t bytes = 0; bytes < sizeof text; bytes++) read_all(room, text, bytes, ',', &out);
    read_all(room, text, sizeof text - 1, ',', &out);
    assert_string_equal(out.data, "[id][te\"xt] [1][a\\nb] [2][\"] [3][][] [4][x\"y]");
    ebb_str_free(room->ctx, &out);
}

/* What writers make of any texts comes back: all texts of up to five of the characters that
 * matter, in a row of two. */
static void every_quoted_text_comes_back(void **state)
{
    struct room *room = *state;
    static const char letters[] = "a,\"\n\r ";
    struct ebb_str out = {0}, wanted = {0}, row = {0};
    for (int code = 0; code < 6 * 6 * 6 * 6 * 6; code++) {
        char text[5];
        int rest = code;
        for (int i = 0; i < 5; i++, rest /= 6) text[i] = letters[rest % 6];
        row.bytes = wanted.bytes = 0;
        for (int field = 0; field < 2; field++) {
            assert_ok(room,
                      ebb_str_add(room->ctx, &row, field == 0 ? "\"" : ",\"", field == 0 ? 1 : 2));
            for (int i = 0; i < 5; i++)
                assert_ok(room, ebb_str_add(room->ctx, &row, text[i] == '"' ? "\"\"" : &text[i],
                                            text[i] == '"' ? 2 : 1));
            assert_ok(room, ebb_str_add(room->ctx, &row, "\"", 1));
            add_shown(room, &wanted, (struct ebb_span){text, 5});
        }
        read_all(room, row.data, row.bytes, ',', &out);
        assert_string_equal(out.data, wanted.data);
    }
    ebb_str_free(room->ctx, &out);
    ebb_str_free(room->ctx, &wanted);
    ebb_str_free(room->ctx, &row);
}

static void lines_are_counted_whatever_ends_them(void **state)
{
    (void)state;
    static const char text[] = "a\nb\r\nc\rd\n\ne";
    assert_int_equal(ebb_csv_line(text, 0), 1);
    assert_int_equal(ebb_csv_line(text, 2), 2);
    assert_int_equal(ebb_csv_line(text, 5), 3);
    assert_int_equal(ebb_csv_line(text, 7), 4);
    assert_int_equal(ebb_csv_line(text, 10), 6);
}

static void a_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    struct ebb_csv row = {"\"a\"\"b\"", 6, 0, ','};
    struct ebb_str scratch = {0};
    struct ebb_csv_field field;
    ebb_mem_fail_nth(room->ctx, 1, false);
    enum ebb_status status = ebb_csv_field(room->ctx, &row, &scratch, &field);
    ebb_mem_fail_nth(room->ctx, 0, false);
    assert_failed(room, status, EBB_NO_MEMORY, "out of host memory", NULL);
    ebb_str_free(room->ctx, &scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(rows_and_fields_are_those_of_rfc_4180),
        ROOM_TEST(every_prefix_is_read_or_has_an_open_quote),
        ROOM_TEST(every_quoted_text_comes_back),
        cmocka_unit_test(lines_are_counted_whatever_ends_them),
        ROOM_TEST(a_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
