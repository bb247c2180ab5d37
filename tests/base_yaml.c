/* YAML: the tree, its positions, and everything that is refused.
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
#include "base/text.h"
#include "base/yaml.h"

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

static struct ebb_yaml *parse(struct ebb_ctx *ctx, const char *text)
{
    struct ebb_yaml *root;
    if (ebb_yaml_parse(ctx, "c.yaml", text, strlen(text), &root) != EBB_OK)
        fail_msg("%s", ebb_error_text(ctx));
    return root;
}

static const char sample[] = "# a comment\n"
                             "model:\n"
                             "  path: Qwen/Qwen3-0.6B\n"
                             "  lora: {rank: 16, targets: [q, 'v']}\n"
                             "lr: 2e-4\n"
                             "on: off\n"
                             "empty:\n"
                             "quoted: \"null\"\n"
                             "tilde: ~\n"
                             "text: |\n"
                             "  two\n"
                             "  lines\n";

static void tree_keeps_text_order_and_positions(void **state)
{
    struct ebb_yaml *root = parse(*state, sample);
    assert_int_equal(root->kind, EBB_YAML_MAP);
    assert_int_equal(root->count, 7);
    assert_null(root->key);
    assert_int_equal(root->line, 2);
    const struct ebb_yaml *model = ebb_yaml_find(root, "model");
    assert_ptr_equal(model, &root->items[0]);
    assert_int_equal(model->key_line, 2);
    assert_int_equal(model->key_column, 1);
    assert_int_equal(model->line, 3);
    assert_int_equal(model->column, 3);
    const struct ebb_yaml *lora = ebb_yaml_find(model, "lora");
    assert_int_equal(lora->line, 4);
    assert_int_equal(lora->column, 9);
    assert_string_equal(ebb_yaml_find(lora, "rank")->text, "16");
    const struct ebb_yaml *targets = ebb_yaml_find(lora, "targets");
    assert_int_equal(targets->kind, EBB_YAML_LIST);
    assert_int_equal(targets->count, 2);
    assert_null(targets->items[0].key);
    assert_false(targets->items[0].quoted);
    assert_true(targets->items[1].quoted);
    assert_string_equal(targets->items[1].text, "v");
    assert_string_equal(ebb_yaml_find(root, "lr")->text, "2e-4");
    assert_string_equal(ebb_yaml_find(root, "on")->text, "off");
    assert_int_equal(ebb_yaml_find(root, "empty")->kind, EBB_YAML_NULL);
    assert_int_equal(ebb_yaml_find(root, "tilde")->kind, EBB_YAML_NULL);
    assert_int_equal(ebb_yaml_find(root, "quoted")->kind, EBB_YAML_SCALAR);
    assert_string_equal(ebb_yaml_find(root, "quoted")->text, "null");
    assert_string_equal(ebb_yaml_find(root, "text")->text, "two\nlines\n");
    assert_null(ebb_yaml_find(root, "none"));
    assert_null(ebb_yaml_find(targets, "q"));
    assert_null(ebb_yaml_find(NULL, "q"));
    ebb_yaml_free(*state, root);
    ebb_yaml_free(*state, NULL);
}

static void nothing_is_an_empty_map(void **state)
{
    static const char *const texts[] = {"", "\n\n", "# only a comment\n"};
    for (size_t i = 0; i < 3; i++) {
        struct ebb_yaml *root = parse(*state, texts[i]);
        assert_int_equal(root->kind, EBB_YAML_MAP);
        assert_int_equal(root->count, 0);
        ebb_yaml_free(*state, root);
    }
    struct ebb_yaml *root;
    assert_int_equal(ebb_yaml_parse(*state, "c.yaml", NULL, 0, &root), EBB_OK);
    assert_int_equal(root->kind, EBB_YAML_MAP);
    ebb_yaml_free(*state, root);
    root = parse(*state, "{x: host}");
    assert_string_equal(ebb_yaml_find(root, "x")->text, "host");
    ebb_yaml_free(*state, root);
    root = parse(*state, "20GiB");
    assert_int_equal(root->kind, EBB_YAML_SCALAR);
    ebb_yaml_free(*state, root);
}

static void refusals_name_the_position_and_the_reason(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"a: &x 1\n", "c.yaml:1:4: anchors"},
        {"a: 1\nb: *x\n", "c.yaml:2:4: aliases"},
        {"a: 1\n*x : 2\n", "c.yaml:2:1: aliases"},
        {"a: !!int 1\n", "c.yaml:1:4: tags"},
        {"a: ! 1\n", "c.yaml:1:4: tags"},
        {"a: &m\n  b: 1\n", "anchors"},
        {"a: !set {b: 1}\n", "tags"},
        {"a: &l [1]\n", "anchors"},
        {"a: 1\nb: 2\na: 3\n", "c.yaml:3:1: 'a' is set twice, first at line 1"},
        {"m: {x: 1, 'x': 2}\n", "c.yaml:1:11: 'x' is set twice"},
        {"a: 1\n---\nb: 2\n", "c.yaml:2:1: a second document"},
        {"[a]: 1\n", "c.yaml:1:1: a key must be a word"},
        {"? \n: 1\n", "c.yaml:1:2: a key is missing"},
        {"'': 1\n", "c.yaml:1:1: a key is missing"},
        {": 1\n", "c.yaml:1:1: did not find expected key"},
        {"a: b: c\n", "c.yaml:1:5: mapping values are not allowed"},
        {"a:\n\t- 1\n", "c.yaml:2:1: found character that cannot start any token"},
        {"a:\n\t- 1\n", "indent with spaces"},
        {"a: [1, 2\n", "c.yaml:1:4: this '[' is never closed: a ']' is wanted"},
        {"a: [\n", "c.yaml:1:4: this '[' is never closed"},
        {"# \xc3\xa9\xc3\xa9\na: {b: [1, {c: 2}], d: 3", "c.yaml:2:4: this '{' is never closed"},
        {"a: [1\nb: 2\n", "c.yaml:2:2: did not find expected ',' or ']'"},
        {"a: \"x\n", "that began at line 1"},
        {"a: \"\\0\"\n", "c.yaml:1:4: a NUL"},
        {"a: 1\nb: \xff\n", "c.yaml:2:4: this is not readable as text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_yaml *root;
        enum ebb_status status =
            ebb_yaml_parse(*state, "c.yaml", cases[i].text, strlen(cases[i].text), &root);
        if (status != EBB_BAD_CONFIG) fail_msg("case %zu gave '%s'", i, ebb_status_name(status));
        assert_null(root);
        if (strstr(ebb_error_text(*state), cases[i].says) == NULL)
            fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].says, ebb_error_text(*state));
        ebb_error_clear(*state);
    }
}

static void depth_is_bounded(void **state)
{
    for (size_t depth = EBB_YAML_MAX_DEPTH; depth <= EBB_YAML_MAX_DEPTH + 1; depth++) {
        char text[128] = {0};
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        struct ebb_yaml *root;
        enum ebb_status status = ebb_yaml_parse(*state, "c.yaml", text, 2 * depth, &root);
        assert_int_equal(status, depth <= EBB_YAML_MAX_DEPTH ? EBB_OK : EBB_BAD_CONFIG);
        ebb_yaml_free(*state, root);
    }
    assert_non_null(strstr(ebb_error_text(*state), "c.yaml:1:33: nested too deeply"));
}

static void node_count_is_bounded(void **state)
{
    for (int count = EBB_YAML_MAX_NODES - 1; count <= EBB_YAML_MAX_NODES;
         count++) { /* the list itself counts too */
        struct ebb_str text = {0};
        for (int i = 0; i < count; i++)
            assert_int_equal(ebb_str_addf(*state, &text, "- 1\n"), EBB_OK);
        struct ebb_yaml *root;
        enum ebb_status status = ebb_yaml_parse(*state, "c.yaml", text.data, text.bytes, &root);
        assert_int_equal(status, count < EBB_YAML_MAX_NODES ? EBB_OK : EBB_BAD_CONFIG);
        ebb_yaml_free(*state, root);
        ebb_str_free(*state, &text);
    }
    assert_non_null(strstr(ebb_error_text(*state), "too many values"));
}

static void every_failing_allocation_is_survived(void **state)
{
    struct ebb_ctx *ctx = *state;
    int64_t nth = 1;
    for (;; nth++) {
        struct ebb_yaml *root;
        ebb_error_clear(ctx);
        ebb_mem_fail_nth(ctx, nth, false);
        enum ebb_status status = ebb_yaml_parse(ctx, "c.yaml", sample, sizeof sample - 1, &root);
        ebb_mem_fail_nth(ctx, 0, false);
        if (status == EBB_OK) {
            ebb_yaml_free(ctx, root);
            break;
        }
        assert_int_equal(status, EBB_NO_MEMORY);
        assert_null(root);
        assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    }
    assert_true(nth > 20);
}

/* Every prefix of a good file, and the file with each byte changed, is read or refused, never
 * worse. */
static void damaged_text_never_does_harm(void **state)
{
    char text[sizeof sample];
    for (size_t n = 0; n < 2 * (sizeof sample - 1); n++) {
        memcpy(text, sample, sizeof sample);
        size_t bytes = n < sizeof sample - 1 ? n : sizeof sample - 1;
        if (n >= sizeof sample - 1) text[n - (sizeof sample - 1)] = (char)("\t&{[:\"\0\x80"[n % 8]);
        struct ebb_yaml *root;
        enum ebb_status status = ebb_yaml_parse(*state, "c.yaml", text, bytes, &root);
        if (status == EBB_OK)
            ebb_yaml_free(*state, root);
        else
            assert_true(status == EBB_BAD_CONFIG && root == NULL &&
                        strncmp(ebb_error_text(*state), "c.yaml:", 7) == 0);
        ebb_error_clear(*state);
    }
}

static void files_are_loaded_by_path(void **state)
{
    struct ebb_ctx *ctx = *state;
    const char *root_dir = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%.200s/ebb_yaml_XXXXXX", root_dir != NULL ? root_dir : "/tmp");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ebb_file_write(ctx, path, sample, sizeof sample - 1), EBB_OK);
    struct ebb_yaml *root;
    assert_int_equal(ebb_yaml_load(ctx, path, &root), EBB_OK);
    assert_int_equal(root->count, 7);
    ebb_yaml_free(ctx, root);
    unlink(path);
    assert_int_equal(ebb_yaml_load(ctx, path, &root), EBB_IO);
    assert_null(root);
    assert_non_null(strstr(ebb_error_text(ctx), path));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)
    const struct CMUnitTest tests[] = {
        CASE(tree_keeps_text_order_and_positions),
        CASE(nothing_is_an_empty_map),
        CASE(refusals_name_the_position_and_the_reason),
        CASE(depth_is_bounded),
        CASE(node_count_is_bounded),
        CASE(every_failing_allocation_is_survived),
        CASE(damaged_text_never_does_harm),
        CASE(files_are_loaded_by_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
