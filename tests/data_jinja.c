/* The Jinja interpreter against what transformers' environment renders (tests/golden/jinja.json),
 * its refusals, its limits, and templates that are broken at random.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/number.h"
#include "data/jinja.h"

static enum ebb_status render(struct room *room, const char *template, size_t bytes,
                              const struct ebb_jinja_options *options, const json_t *variables,
                              struct ebb_str *out, struct ebb_jinja_spans *spans)
{
    struct ebb_jinja *jinja;
    enum ebb_status status = ebb_jinja_compile(room->ctx, "t.jinja", template, bytes, &jinja);
    if (status != EBB_OK) return status;
    status = ebb_jinja_render(room->ctx, jinja, options, variables, out, spans);
    ebb_jinja_free(room->ctx, jinja);
    return status;
}

/* ---- golden ---- */

static bool spans_equal(const struct ebb_jinja_spans *spans, const json_t *wanted)
{
    if ((size_t)spans->count != json_array_size(wanted)) return false;
    for (int64_t i = 0; i < spans->count; i++) {
        const json_t *pair = json_array_get(wanted, (size_t)i);
        if ((size_t)json_integer_value(json_array_get(pair, 0)) != spans->items[i].begin ||
            (size_t)json_integer_value(json_array_get(pair, 1)) != spans->items[i].end)
            return false;
    }
    return true;
}

static bool check_output(const json_t *item, const char *template, enum ebb_status status,
                         const struct ebb_str *out, const struct ebb_jinja_spans *spans,
                         struct room *room)
{
    const json_t *output = json_object_get(item, "output"), *says = json_object_get(item, "says");
    if (output == NULL) {
        bool good = status == EBB_BAD_FILE || status == EBB_UNSUPPORTED;
        if (good && says != NULL)
            good = strstr(ebb_error_text(room->ctx), json_string_value(says)) != NULL;
        if (!good)
            print_error("%s\n  gives %s: %s%.*s\n  wanted %s: %s\n", template,
                        ebb_status_name(status), ebb_error_text(room->ctx), (int)out->bytes,
                        out->bytes > 0 ? out->data : "",
                        json_string_value(json_object_get(item, "error")),
                        says != NULL ? json_string_value(says) : "");
        return good;
    }
    bool good = status == EBB_OK && out->bytes == json_string_length(output) &&
                (out->bytes == 0 || memcmp(out->data, json_string_value(output), out->bytes) == 0);
    if (!good)
        print_error("%s\n  gives  '%.*s' %s\n  wanted '%s'\n", template, (int)out->bytes,
                    out->bytes > 0 ? out->data : "", ebb_error_text(room->ctx),
                    json_string_value(output));
    if (good && !spans_equal(spans, json_object_get(item, "spans"))) {
        print_error("%s\n  has other spans\n", template);
        good = false;
    }
    return good;
}

static void output_equals_transformers(void **state)
{
    struct room *room = *state;
    json_t *golden;
    int bad = 0;
    assert_ok(room, ebb_json_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/jinja.json", &golden));
    const json_t *cases = json_object_get(golden, "cases");
    const json_t *variables = json_object_get(golden, "variables");
    assert_true(json_array_size(cases) > 600);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i),
                     *template = json_object_get(item, "template");
        struct ebb_str out = {0};
        struct ebb_jinja_spans spans = {0};
        enum ebb_status status =
            render(room, json_string_value(template), json_string_length(template), NULL, variables,
                   &out, &spans);
        if (!check_output(item, json_string_value(template), status, &out, &spans, room)) bad++;
        ebb_error_clear(room->ctx);
        ebb_str_free(room->ctx, &out);
        ebb_jinja_spans_free(room->ctx, &spans);
    }
    json_decref(golden);
    assert_int_equal(bad, 0);
}

/* ---- what is refused, and how ---- */

static void assert_fails(struct room *room, const char *template,
                         const struct ebb_jinja_options *options, enum ebb_status wanted,
                         const char *says)
{
    struct ebb_str out = {0};
    enum ebb_status status = render(room, template, strlen(template), options, NULL, &out, NULL);
    if (status != wanted) print_error("%s\n", template);
    assert_failed(room, status, wanted, "t.jinja:", says, NULL);
    assert_null(out.data);
}

static void what_is_not_offered_is_refused_by_name(void **state)
{
    struct room *room = *state;
    static const char *const cases[][2] = {
        {"{% include 'x' %}", "the tag 'include' is not offered"},
        {"{% import 'x' as y %}", "'import'"},
        {"{% from 'x' import y %}", "'from'"},
        {"{% extends 'x' %}", "'extends'"},
        {"{% block a %}{% endblock %}", "'block'"},
        {"{% autoescape true %}{% endautoescape %}", "'autoescape'"},
        {"{% do x.append(1) %}", "'do'"},
        {"{% for x in [] recursive %}{% endfor %}", "recursive loops"},
        {"{{ 'x'|urlize }}", "the filter 'urlize' is not offered"},
        {"{{ [1]|groupby('x') }}", "'groupby'"},
        {"{{ 'x'.encode() }}", "'encode' of str is not offered"},
        {"{{ (5).bit_length() }}", "'bit_length' of int"},
        {"{{ lipsum() }}", "the function 'lipsum'"},
        {"{{ (-1) ** 0.5 }}", "complex numbers"},
        {"{{ '{:>5}'.format(1) }}", "specification"},
        {"{{ range }}", "a function is printed"},
        {"{{ [1]|map('upper') }}", "a generator is printed"},
        {"{{ 'a'|safe % 1 }}", "marked safe"},
        {"{{ ('a'|safe).replace('a', 'b') }}", "marked safe"},
        {"{{ 99999999999999999999 }}", "64 bits"},
        {"{{ '\\N{DASH}' }}", "\\N"},
        {"{{ [1][0, 1] }}", "several subscripts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(room, cases[i][0], NULL, EBB_UNSUPPORTED, cases[i][1]);
    /* What is not reached does not matter. */
    struct ebb_str out = {0};
    static const char idle[] =
        "{% if false %}{{ 'x'|urlize }}{{ lipsum() }}{{ 1|nope }}{% endif %}ok";
    assert_ok(room, render(room, idle, strlen(idle), NULL, NULL, &out, NULL));
    assert_string_equal(out.data, "ok");
    ebb_str_free(room->ctx, &out);
}

static void errors_name_template_and_line(void **state)
{
    struct room *room = *state;
    static const char *const cases[][2] = {
        {"a\nb {{ x.y }}", "t.jinja:2: 'x' is undefined"},
        {"{% for i in [1] %}\n\n{{ i.a.b }}\n{% endfor %}",
         "t.jinja:3: 'int object' has no attribute 'a'"},
        {"\r\n\r\n{% if %}{% endif %}", "t.jinja:3: an expression is expected, not '%}'"},
        {"{% if true %}\nx\n", "'elif' is missing (from line 1)"},
        {"\n{{ 'a\nb' + 1 }}", "t.jinja:2: can only concatenate str"},
        {"{#\n\n#}{{ y() }}", "t.jinja:3: 'y' is undefined"},
        {"{{ raise_exception('one\ntwo') }}", "t.jinja:1: the template refuses: one two"},
        {"{% raw %}\n{% endraw %}{{ z.z }}", "t.jinja:2:"},
        {"\n{% nothing %}", "t.jinja:2: unknown tag 'nothing'"},
        {"x\n\xff", "t.jinja:2: not UTF-8: byte 0xff"},
        {"{{ 9223372036854775807 + 1 }}", "an integer has more than 64 bits"},
        {"{{ 2 ** 63 }}", "an integer has more than 64 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(room, cases[i][0], NULL, EBB_BAD_FILE, cases[i][1]);
}

static void a_generation_inside_captured_text_is_refused_where_spans_are_wanted(void **state)
{
    struct room *room = *state;
    static const char template[] =
        "{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}";
    struct ebb_str out = {0};
    struct ebb_jinja_spans spans = {0};
    assert_ok(room, render(room, template, strlen(template), NULL, NULL, &out, NULL));
    assert_string_equal(out.data, "a");
    assert_failed(room, render(room, template, strlen(template), NULL, NULL, &out, &spans),
                  EBB_UNSUPPORTED, "its place in the text cannot be told", NULL);
    assert_int_equal(spans.count, 0);
    ebb_str_free(room->ctx, &out);
    ebb_jinja_spans_free(room->ctx, &spans);
}

static void the_time_is_what_the_caller_says(void **state)
{
    struct room *room = *state;
    struct ebb_jinja_options options = {0};
    struct ebb_str out = {0};
    static const char template[] = "{{ strftime_now('%d %b %Y %H:%M:%S %f%z%% %%f') }}";
    setenv("TZ", "UTC", 1);
    tzset();
    options.now = 1700000000;
    assert_ok(room, render(room, template, strlen(template), &options, NULL, &out, NULL));
    assert_string_equal(out.data, "14 Nov 2023 22:13:20 000000% %f");
    ebb_str_free(room->ctx, &out);
}

/* ---- limits ---- */

/* `open` and `close` n times around `middle`. */
static char *nested(const char *before, const char *open, int n, const char *middle,
                    const char *close, const char *after)
{
    size_t room = strlen(before) + strlen(after) + strlen(middle) + 1 +
                  (size_t)n * (strlen(open) + strlen(close));
    char *text = (char *)malloc(room), *at = text;
    at += snprintf(at, room, "%s", before);
    for (int i = 0; i < n; i++) at += snprintf(at, room - (size_t)(at - text), "%s", open);
    at += snprintf(at, room - (size_t)(at - text), "%s", middle);
    for (int i = 0; i < n; i++) at += snprintf(at, room - (size_t)(at - text), "%s", close);
    snprintf(at, room - (size_t)(at - text), "%s", after);
    return text;
}

static void nesting_is_limited(void **state)
{
    struct room *room = *state;
    static const char *const shapes[][5] = {
        {"{{ ", "(", "1", ")", " }}"},
        {"{{ ", "[", "1", "]", " }}"},
        {"{{ ", "-", "1", "", " }}"},
        {"{{ ", "not ", "1", "", " }}"},
        {"{{ ", "{1:", "1", "}", " }}"},
        {"{{ ", "f(", "1", ")", " }}"},
        {"{{ ", "a[", "1", "]", " }}"},
        {"{{ 1", " if 1 else 1", "", "", " }}"},
        {"", "{% if true %}", "x", "{% endif %}", ""},
        {"", "{% for x in [1] %}", "x", "{% endfor %}", ""},
        {"{{ 1", "+1", "", "", " }}"},
        {"{{ 'a'", "|upper", "", "", " }}"},
        {"{{ 1", " and 1", "", "", " }}"},
        {"{{ a", ".b", "", "", " }}"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char *text =
            nested(shapes[i][0], shapes[i][1], 20000, shapes[i][2], shapes[i][3], shapes[i][4]);
        struct ebb_str out = {0};
        enum ebb_status status = render(room, text, strlen(text), NULL, NULL, &out, NULL);
        if (status != EBB_BAD_FILE) print_error("%s\n", shapes[i][1]);
        assert_failed(room, status, EBB_BAD_FILE, "t.jinja:1: the limit of", NULL);
        free(text);
    }
    assert_fails(room, "{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}", NULL, EBB_BAD_FILE,
                 "the limit of 500 nested levels is reached");
    assert_fails(room, "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}", NULL,
                 EBB_BAD_FILE, "500 nested levels");
    assert_fails(room,
                 "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}"
                 "{% endfor %}\n{{ ns.x|tojson }}",
                 NULL, EBB_BAD_FILE, "t.jinja:2: the limit of 500 nested levels");
}

static void steps_memory_and_output_are_limited(void **state)
{
    struct room *room = *state;
    static const char *const cases[][2] = {
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
        {"{% for a in range(99999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}",
         "steps"},
        {"{% for a in range(99999) %}\n{{ range(99999)|list|sort|reverse|list|length }}{% endfor "
         "%}",
         "t.jinja:2: "},
        {"{{ 'x' * 99999999999 }}", "the limit of 268435456 bytes of memory"},
        {"{{ [1] * 99999999999 }}", "bytes of memory"},
        {"{{ 'x' * 99999999 }}", "the limit of 67108864 bytes of output"},
        {"{% set ns = namespace(x='0123456789') %}{% for i in range(99) %}{% set ns.x = ns.x + "
         "ns.x %}{% endfor %}",
         "limit of"},
        {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
         "endfor %}",
         "bytes of memory"},
        {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% "
         "endfor %}{{ ns.x }}",
         "limit of"},
        {"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] "
         "%}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
         "steps"},
        {"{{ 'x'.center(999999999) }}", "limit of"},
        {"{{ '%999999999d' % 1 }}", "limit of"},
        {"{{ '%.*s' % (9, 'x') ~ ('a' * 9999999).replace('', 'bbbbbbbbbbbb') }}", "limit of"},
        {"{% set a = 'a' * 60000000 %}{% for i in range(99999) %}{{ 'b' in a }}{% endfor %}",
         "steps"},
        {"{% set a = 'a' * 60000000 %}{% for i in range(99999) %}{{ a.rfind('b' * 30000000) }}{% "
         "endfor %}",
         "limit of"},
        {"{% set a = 'é' * 9999999 %}{% for i in range(99999) %}{{ a[i] }}{% endfor %}", "steps"},
        {"{{ range(100001) }}", "the limit of 100000 items in a range"},
        {"{{ range(-9223372036854775807, 9223372036854775807) }}", "items in a range"},
        {"{{ [1]|batch(99999999999, 0)|list }}", "limit of"},
        {"{{ [1]|slice(99999999999)|list }}", "limit of"},
        {"{{ {'a': 1}|tojson(indent=99999999) }}", "limit of"},
        {"{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
         "limit of"},
    };
    double start = ebb_clock_seconds();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double before = ebb_clock_seconds();
        assert_fails(room, cases[i][0], NULL, EBB_BAD_FILE, cases[i][1]);
        double took = ebb_clock_seconds() - before;
        if (took > 3.0) print_message("%.1f s: %s\n", took, cases[i][0]);
    }
    assert_true(ebb_clock_seconds() - start < 120.0);
}

/* Comparing each with all before it took ten seconds for a template within its limit of bytes. */
static void keyword_arguments_are_limited(void **state)
{
    struct room *room = *state;
    enum { COUNT = 1001, EACH = 8 };
    char text[COUNT * EACH + 32];
    for (int count = COUNT - 1; count <= COUNT; count++) {
        struct ebb_str out = {0};
        int n = snprintf(text, sizeof text, "{{ dict(");
        for (int i = 0; i < count; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, "a%d=1,", i);
        snprintf(text + n, sizeof text - (size_t)n, ")|length }}");
        if (count == COUNT) {
            assert_fails(room, text, NULL, EBB_BAD_FILE, "the limit of 1000 keyword arguments");
        } else {
            assert_ok(room, render(room, text, strlen(text), NULL, NULL, &out, NULL));
            assert_string_equal(out.data, "1000");
        }
        ebb_str_free(room->ctx, &out);
    }
}

static void limits_are_the_callers(void **state)
{
    struct room *room = *state;
    struct ebb_jinja_options options = {0};
    struct ebb_str out = {0};
    static const char ten[] = "{% for i in range(10) %}0123456789{% endfor %}";
    options.limits.output_bytes = 100;
    assert_ok(room, render(room, ten, strlen(ten), &options, NULL, &out, NULL));
    assert_int_equal(out.bytes, 100);
    ebb_str_free(room->ctx, &out);
    options.limits.output_bytes = 99;
    assert_fails(room, ten, &options, EBB_BAD_FILE, "the limit of 99 bytes of output is reached");
    options = (struct ebb_jinja_options){.limits.steps = 30};
    assert_fails(room, ten, &options, EBB_BAD_FILE, "the limit of 30 steps is reached");
    options = (struct ebb_jinja_options){.limits.depth = 3};
    assert_fails(room, ten, &options, EBB_BAD_FILE, "the limit of 3 nested levels is reached");
    options = (struct ebb_jinja_options){.limits.memory_bytes = 1000};
    assert_fails(room, "{{ 'x' * 2000 }}", &options, EBB_BAD_FILE,
                 "the limit of 1000 bytes of memory is reached");
    char *large = nested("", "0123456789", 110000, "", "", "");
    struct ebb_jinja *jinja;
    assert_failed(room, ebb_jinja_compile(room->ctx, "big", large, strlen(large), &jinja),
                  EBB_BAD_FILE, "big: a template of 1100000 bytes", NULL);
    free(large);
}

/* ---- broken templates, failing memory ---- */

static const char rich[] =
    "{%- set ns = namespace(a=1, b=[]) -%}{# c #}{% macro m(x, y=2, z='q') %}{{ x ~ y }}{% "
    "endmacro %}"
    "{% for m2 in messages if m2.role != 'x' %}{{ loop.index0 }}{% if loop.last and not m2.a is "
    "none "
    "%}{{ m2['content'][1:-1:2] | upper | replace('A', \"b\") }}{% elif m2 is mapping %}{% set "
    "ns.a = "
    "ns.a * 2 // 3 ** 2 %}{% else %}{{ m(m2.role, z=1) | trim }}{% continue %}{% endif %}{% endfor "
    "%}"
    "{{ {'k': [1, 2.5, none, true], 'é': (1,)} | tojson(indent=2) }}{{ words | map('upper') | "
    "join(', ') }}"
    "{% generation %}{{ people | selectattr('on') | map(attribute='name') | list }}{% "
    "endgeneration %}"
    "{% set t | indent(2) %}x\n y{% endset %}{{ t }}{{ '%s-%05d' % ('a', 7) }}{{ '{} "
    "{a}'.format(1, a=2) "
    "}}{{ 'a b'.split() }}{% filter upper %}z{% endfilter %}{% with q = 1 %}{{ q }}{% endwith %}{% "
    "raw %}{{"
    "{% endraw %}{{ d.items() | list | sort(reverse=true) }}{{ -7 % 3 in [2] and 'a' not in 'b' }}";

static const char *const pieces[] = {
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "-",
    "+",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "|",
    ".",
    ",",
    ":",
    "~",
    "'",
    "\"",
    "\\",
    "\n",
    " ",
    "*",
    "**",
    "//",
    "==",
    "<",
    "is",
    "not ",
    "in ",
    "if ",
    "else ",
    "endif",
    "for ",
    "endfor",
    "set ",
    "endset",
    "macro ",
    "endmacro",
    "loop",
    "loop.length",
    "range(9)",
    "namespace",
    "ns",
    "x",
    "1",
    "0",
    "9999999999",
    "1.5",
    "none",
    "true",
    "messages",
    "|list",
    "|tojson",
    "|sort",
    "|map",
    "|join",
    ".items()",
    ".split()",
    "[::-1]",
    "{% generation %}",
    "{% endgeneration %}",
    "{% call m() %}",
    "{% endcall %}",
    "caller()",
    "é",
    "😀",
    "%s",
    "{}",
    "varargs",
    "**d",
    "*words",
    "|reverse",
    "|unique",
    "|batch(2)",
    "|round",
    "|int",
    "|float",
    "[1:]",
    "[-1]",
    "\r\n",
};

static uint32_t draw(uint64_t *counter)
{
    uint32_t out[4];
    ebb_philox(20240607, (*counter)++, out);
    return out[0];
}

/* Cuts out, doubles, swaps or puts in, a few times. */
static size_t mutate(char *text, size_t bytes, size_t room, uint64_t *counter)
{
    uint32_t times = 1 + draw(counter) % 6;
    for (uint32_t k = 0; k < times; k++) {
        size_t at = bytes > 0 ? draw(counter) % bytes : 0, length = draw(counter) % 12;
        uint32_t way = draw(counter) % 8;
        const char *piece = pieces[draw(counter) % (sizeof pieces / sizeof pieces[0])];
        if (length > bytes - at) length = bytes - at;
        if (way < 2) {
            memmove(text + at, text + at + length, bytes - at - length);
            bytes -= length;
        } else if (way < 7 && bytes + strlen(piece) < room) {
            memmove(text + at + strlen(piece), text + at, bytes - at);
            memcpy(text + at, piece, strlen(piece));
            bytes += strlen(piece);
        } else if (bytes > 0) {
            text[at] = (char)draw(counter);
        }
    }
    return bytes;
}

static void broken_templates_fail_and_never_crash(void **state)
{
    struct room *room = *state;
    json_t *golden;
    uint64_t counter = 0;
    const char *times = getenv("EBB_FUZZ");
    int64_t count = 6000, rendered = 0;
    if (times != NULL) ebb_text_int64(times, &count);
    assert_ok(room, ebb_json_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/jinja.json", &golden));
    const json_t *cases = json_object_get(golden, "cases");
    const json_t *variables = json_object_get(golden, "variables");
    struct ebb_jinja_options options = {
        .limits = {.steps = 20000, .memory_bytes = 4 << 20, .output_bytes = 1 << 20}};
    for (int64_t i = 0; i < count; i++) {
        static char text[8192];
        const json_t *item = json_array_get(cases, draw(&counter) % json_array_size(cases));
        const char *from = i % 2 == 0 ? rich : json_string_value(json_object_get(item, "template"));
        struct ebb_str out = {0};
        struct ebb_jinja_spans spans = {0};
        size_t bytes = strlen(from);
        memcpy(text, from, bytes);
        bytes = mutate(text, bytes, sizeof text, &counter);
        enum ebb_status status = render(room, text, bytes, &options, variables, &out, &spans);
        assert_true(status == EBB_OK || status == EBB_BAD_FILE || status == EBB_UNSUPPORTED);
        assert_true(ebb_text_utf8_valid(out.data, out.bytes) == out.bytes);
        rendered += status == EBB_OK;
        ebb_error_clear(room->ctx);
        ebb_str_free(room->ctx, &out);
        ebb_jinja_spans_free(room->ctx, &spans);
    }
    assert_true(rendered > count / 20);
    json_decref(golden);
}

static void failing_memory_is_reported_and_nothing_leaks(void **state)
{
    struct room *room = *state;
    json_t *golden;
    assert_ok(room, ebb_json_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/jinja.json", &golden));
    enum ebb_status status = EBB_NO_MEMORY;
    int64_t nth = 1, held = ebb_mem_bytes_now(room->ctx);
    for (; status != EBB_OK && nth < 200; nth++) {
        struct ebb_str out = {0};
        struct ebb_jinja_spans spans = {0};
        ebb_mem_fail_nth(room->ctx, nth, false);
        status = render(room, rich, strlen(rich), NULL, json_object_get(golden, "variables"), &out,
                        &spans);
        ebb_mem_fail_nth(room->ctx, 0, false);
        assert_true(status == EBB_OK || status == EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
        ebb_str_free(room->ctx, &out);
        ebb_jinja_spans_free(room->ctx, &spans);
        assert_int_equal(ebb_mem_bytes_now(room->ctx), held);
    }
    assert_int_equal(status, EBB_OK);
    assert_true(nth > 5);
    json_decref(golden);
}

/* ---- threads ---- */

struct worker {
    struct ebb_ctx *ctx;
    const struct ebb_jinja *jinja;
    const json_t *variables;
    struct ebb_str out;
    enum ebb_status status;
};

static void *work(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    for (int i = 0; i < 20 && worker->status == EBB_OK; i++) {
        ebb_str_free(worker->ctx, &worker->out);
        worker->status = ebb_jinja_render(worker->ctx, worker->jinja, NULL, worker->variables,
                                          &worker->out, NULL);
    }
    return NULL;
}

static void one_template_serves_many_threads(void **state)
{
    struct room *room = *state;
    struct worker workers[4] = {{0}};
    pthread_t threads[4];
    struct ebb_jinja *jinja;
    json_t *golden;
    assert_ok(room, ebb_json_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/jinja.json", &golden));
    assert_ok(room, ebb_jinja_compile(room->ctx, "rich", rich, strlen(rich), &jinja));
    for (int i = 0; i < 4; i++) {
        workers[i].ctx = room->ctx;
        workers[i].jinja = jinja;
        workers[i].variables = json_object_get(golden, "variables");
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        assert_ok(room, workers[i].status);
        assert_string_equal(workers[i].out.data, workers[0].out.data);
    }
    for (int i = 0; i < 4; i++) ebb_str_free(room->ctx, &workers[i].out);
    ebb_jinja_free(room->ctx, jinja);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(output_equals_transformers),
        ROOM_TEST(what_is_not_offered_is_refused_by_name),
        ROOM_TEST(errors_name_template_and_line),
        ROOM_TEST(a_generation_inside_captured_text_is_refused_where_spans_are_wanted),
        ROOM_TEST(the_time_is_what_the_caller_says),
        ROOM_TEST(nesting_is_limited),
        ROOM_TEST(steps_memory_and_output_are_limited),
        ROOM_TEST(keyword_arguments_are_limited),
        ROOM_TEST(limits_are_the_callers),
        ROOM_TEST(broken_templates_fail_and_never_crash),
        ROOM_TEST(failing_memory_is_reported_and_nothing_leaks),
        ROOM_TEST(one_template_serves_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
