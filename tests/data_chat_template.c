/* Chat templates against transformers' apply_chat_template (tests/golden/chat_templates.json and,
 * where models and data are there, templates_*.json), and where the assistant speaks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include "data/chat_template.h"

static char shared[512];

static struct ebb_chat_template *family(struct room *room, const json_t *golden, const char *name)
{
    struct ebb_chat_template *chat;
    const json_t *text = json_object_get(json_object_get(golden, "templates"), name);
    assert_non_null(text);
    assert_ok(room, ebb_chat_template_create(room->ctx, name, json_string_value(text),
                                             json_string_length(text), &chat));
    assert_ok(room, ebb_chat_template_set_token(room->ctx, chat, "bos_token", "<s>"));
    assert_ok(room, ebb_chat_template_set_token(room->ctx, chat, "eos_token", "</s>"));
    return chat;
}

static struct ebb_chat_options options_of(const json_t *item)
{
    struct ebb_chat_options options = {0};
    options.tools = json_object_get(item, "tools");
    options.kwargs = json_object_get(item, "kwargs");
    options.add_generation_prompt = json_is_true(json_object_get(item, "add_generation_prompt"));
    return options;
}

static bool equals(const struct ebb_str *out, const json_t *wanted)
{
    return out->bytes == json_string_length(wanted) &&
           (out->bytes == 0 || memcmp(out->data, json_string_value(wanted), out->bytes) == 0);
}

static json_t *load_golden(struct room *room)
{
    json_t *golden;
    assert_ok(room, ebb_json_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/chat_templates.json",
                                  &golden));
    return golden;
}

static void conversations_render_as_transformers_does(void **state)
{
    struct room *room = *state;
    json_t *golden = load_golden(room);
    const json_t *cases = json_object_get(golden, "cases");
    int bad = 0;
    assert_true(json_array_size(cases) > 30);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i), *output = json_object_get(item, "output");
        const char *name = json_string_value(json_object_get(item, "template"));
        struct ebb_chat_template *chat = family(room, golden, name);
        struct ebb_chat_options options = options_of(item);
        struct ebb_str out = {0};
        enum ebb_status status =
            ebb_chat_render(room->ctx, chat, "r.json: record 1", json_object_get(item, "messages"),
                            &options, &out, NULL);
        bool good = output != NULL
                        ? status == EBB_OK && equals(&out, output)
                        : status == EBB_BAD_FILE &&
                              strstr(ebb_error_text(room->ctx),
                                     json_string_value(json_object_get(item, "error"))) != NULL &&
                              strstr(ebb_error_text(room->ctx), "r.json: record 1: ") != NULL;
        if (!good)
            print_error("%s, case %zu: %s\ngives  '%s'\nwanted '%s'\n", name, i,
                        ebb_error_text(room->ctx), out.data,
                        json_string_value(output != NULL ? output
                                                         : json_object_get(item, "error")));
        bad += !good;
        ebb_error_clear(room->ctx);
        ebb_str_free(room->ctx, &out);
        ebb_chat_template_free(room->ctx, chat);
    }
    json_decref(golden);
    assert_int_equal(bad, 0);
}

/* ---- what is trained ---- */

static bool spans_are(const struct ebb_str *out, const struct ebb_chat_spans *spans,
                      const json_t *wanted)
{
    bool good = (size_t)spans->count == json_array_size(wanted);
    for (int64_t i = 0; i < spans->count; i++) {
        const struct ebb_chat_span *span = &spans->items[i];
        const char *text = json_string_value(json_array_get(wanted, (size_t)i));
        size_t bytes = span->end - span->begin;
        bool same = text != NULL && strlen(text) == bytes &&
                    memcmp(out->data + span->begin, text, bytes) == 0;
        if (!same)
            print_error("span %d is '%.*s', wanted '%s'\n", (int)i, (int)bytes,
                        out->data + span->begin, text);
        good &= same;
    }
    return good;
}

static enum ebb_status spans_of(struct room *room, const json_t *golden, const json_t *item,
                                struct ebb_str *out, struct ebb_chat_spans *spans)
{
    const char *name = json_string_value(json_object_get(item, "template"));
    struct ebb_chat_template *chat = family(room, golden, name);
    struct ebb_chat_options options = options_of(item);
    const json_t *specials = json_object_get(json_object_get(golden, "specials"), name);
    /* What ends turns beside eos_token: under names that no template asks for. */
    for (size_t i = 0; i < json_array_size(specials); i++) {
        char variable[32];
        snprintf(variable, sizeof variable, "special_%zu", i);
        assert_ok(room,
                  ebb_chat_template_set_token(room->ctx, chat, variable,
                                              json_string_value(json_array_get(specials, i))));
    }
    enum ebb_status status =
        ebb_chat_spans(room->ctx, chat, "r.json: record 1", json_object_get(item, "messages"),
                       &options, out, spans);
    ebb_chat_template_free(room->ctx, chat);
    return status;
}

static void the_assistant_is_found_in_every_family(void **state)
{
    struct room *room = *state;
    json_t *golden = load_golden(room);
    const json_t *cases = json_object_get(golden, "cases");
    int bad = 0, seen = 0;
    struct ebb_chat_spans spans = {0};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i), *trained = json_object_get(item, "trained");
        struct ebb_str out = {0};
        if (trained == NULL) continue;
        seen++;
        enum ebb_status status = spans_of(room, golden, item, &out, &spans);
        bool good = json_is_string(trained)
                        ? status == EBB_BAD_FILE &&
                              strstr(ebb_error_text(room->ctx), json_string_value(trained)) != NULL
                        : status == EBB_OK && spans_are(&out, &spans, trained);
        if (!good)
            print_error("%s, case %zu: %s\n%s\n",
                        json_string_value(json_object_get(item, "template")), i,
                        ebb_error_text(room->ctx), out.data);
        bad += !good;
        ebb_error_clear(room->ctx);
        ebb_str_free(room->ctx, &out);
    }
    ebb_chat_spans_free(room->ctx, &spans);
    json_decref(golden);
    assert_true(seen > 30);
    assert_int_equal(bad, 0);
}

/* ---- loading ---- */

#define TEMPLATE "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
static const char hello[] = "[{\"role\": \"user\", \"content\": \"Hi\"}]";

static json_t *parse(struct room *room, const char *text)
{
    json_t *json;
    assert_ok(room, ebb_json_parse(room->ctx, "test", 0, text, strlen(text), &json));
    return json;
}

static void assert_renders(struct room *room, const struct ebb_chat_template *chat,
                           const char *messages, const struct ebb_chat_options *options,
                           const char *wanted)
{
    struct ebb_str out = {0};
    json_t *json = parse(room, messages);
    assert_ok(room, ebb_chat_render(room->ctx, chat, "record 1", json, options, &out, NULL));
    assert_string_equal(out.data, wanted);
    ebb_str_free(room->ctx, &out);
    json_decref(json);
}

static void templates_come_from_each_of_the_usual_files(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat;
    struct ebb_chat_options plain = {0}, with_tools = {0};
    json_t *tools = parse(room, "[{\"name\": \"f\"}]");
    with_tools.tools = tools;
    room_write(room, "a/tokenizer_config.json",
               "{\"chat_template\": \"" TEMPLATE "\", \"eos_token\": {\"content\": \"</s>\"}}");
    room_write(room, "b/tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, {\"name\": "
               "\"tool_use\", \"template\": \"T\"}, {\"name\": \"rag\", \"template\": \"{%\"}]}");
    room_write(room, "c/chat_template.jinja", "J\n");
    room_write(room, "c/tokenizer_config.json", "{\"chat_template\": \"{% broken\"}");
    room_write(room, "d/chat_template.json", "{\"chat_template\": \"{{ eos_token }}\"}");
    room_write(room, "d/special_tokens_map.json", "{\"eos_token\": \"<e>\"}");
    room_write(room, "e/tokenizer_config.json", "{}");
    char path[300];
    static const char *const wanted[4][2] = {{"[user]Hi</s>", "[user]Hi</s>"},
                                             {"D", "T"},
                                             {"J", "J"},
                                             {"<e>", "<e>"}};
    for (int i = 0; i < 4; i++) {
        bool found = false;
        snprintf(path, sizeof path, "%s/%c", room->dir, 'a' + i);
        assert_ok(room, ebb_chat_template_load(room->ctx, path, &chat, &found));
        assert_true(found);
        assert_renders(room, chat, hello, &plain, wanted[i][0]);
        assert_renders(room, chat, hello, &with_tools, wanted[i][1]);
        ebb_chat_template_free(room->ctx, chat);
    }
    snprintf(path, sizeof path, "%s/c/chat_template.jinja", room->dir);
    assert_ok(room, ebb_chat_template_load(room->ctx, path, &chat, NULL));
    assert_renders(room, chat, hello, &plain, "J");
    ebb_chat_template_free(room->ctx, chat);
    json_decref(tools);
}

static void a_directory_without_a_template_is_told_apart_from_a_broken_one(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat;
    bool found = true;
    char path[300];
    room_write(room, "e/tokenizer_config.json", "{\"eos_token\": \"x\"}");
    snprintf(path, sizeof path, "%s/e", room->dir);
    assert_ok(room, ebb_chat_template_load(room->ctx, path, &chat, &found));
    assert_false(found);
    assert_null(chat);
    assert_failed(room, ebb_chat_template_load(room->ctx, path, &chat, NULL), EBB_BAD_FILE, path,
                  "no chat template is here", NULL);
    room_write(room, "e/tokenizer_config.json", "{\"chat_template\": \"a\\n{% if %}\"}");
    assert_failed(room, ebb_chat_template_load(room->ctx, path, &chat, &found), EBB_BAD_FILE,
                  "tokenizer_config.json:2: ", "an expression is expected", NULL);
    room_write(room, "e/tokenizer_config.json", "{\"chat_template\": 7}");
    assert_failed(room, ebb_chat_template_load(room->ctx, path, &chat, &found), EBB_BAD_FILE,
                  "neither a string nor a list", NULL);
    room_write(room, "e/tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"T\"}]}");
    assert_ok(room, ebb_chat_template_load(room->ctx, path, &chat, &found));
    json_t *messages = parse(room, hello);
    struct ebb_chat_options options = {0};
    struct ebb_str out = {0};
    assert_failed(room, ebb_chat_render(room->ctx, chat, "r", messages, &options, &out, NULL),
                  EBB_BAD_FILE, "for tools only", NULL);
    json_decref(messages);
    ebb_chat_template_free(room->ctx, chat);
}

static struct ebb_chat_template *small(struct room *room, const char *text)
{
    struct ebb_chat_template *chat;
    assert_ok(room, ebb_chat_template_create(room->ctx, "small", text, strlen(text), &chat));
    return chat;
}

static void templates_see_what_transformers_shows_them(void **state)
{
    struct room *room = *state;
    struct ebb_chat_options options = {0};
    struct ebb_chat_template *chat =
        small(room,
              "{{ messages[0] }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt "
              "}}{{ bos_token is defined }}{{ depth }}");
    json_t *kwargs = parse(room, "{\"depth\": 3, \"bos_token\": \"b\"}");
    options.kwargs = kwargs;
    options.add_generation_prompt = true;
    assert_renders(room, chat, "[{\"role\": \"user\", \"tool_calls\": null, \"reasoning\": \"r\"}]",
                   &options,
                   "{'thinking': 'r', 'role': 'user', 'reasoning': 'r', 'reasoning_content': 'r'}"
                   "TrueTrueTrueTrue3");
    options.keep_nulls = true;
    options.kwargs = NULL;
    options.add_generation_prompt = false;
    assert_renders(room, chat, "[{\"role\": \"user\", \"content\": null}]", &options,
                   "{'role': 'user', 'content': None}TrueTrueFalseFalse");
    json_decref(kwargs);
    ebb_chat_template_free(room->ctx, chat);
}

/* ---- defaults ---- */

/* Rendered with kwargs, and with them as its defaults and `given` (or nothing). */
static void assert_defaults(struct room *room, const char *text, const char *kwargs,
                            const char *given, const char *wanted)
{
    struct ebb_chat_template *chat = small(room, text), *made;
    json_t *defaults = parse(room, kwargs), *callers = given ? parse(room, given) : NULL;
    struct ebb_chat_options options = {.kwargs = given ? callers : defaults};
    assert_ok(room, ebb_chat_template_set_token(room->ctx, chat, "eos_token", "</s>"));
    assert_renders(room, chat, hello, &options, wanted);
    assert_ok(room, ebb_chat_template_with_defaults(room->ctx, chat, defaults, &made));
    options.kwargs = callers;
    assert_renders(room, made, hello, &options, wanted);
    ebb_chat_template_free(room->ctx, made);
    ebb_chat_template_free(room->ctx, chat);
    json_decref(defaults);
    json_decref(callers);
}

#define VALUES "{{ [a, b, c, d, e, f, g] | tojson }}{{ [a, b, c, d, e, f, g] }}"

static void variables_become_defaults_of_a_template(void **state)
{
    struct room *room = *state;
    static const char values[] =
        "{\"a\": true, \"b\": null, \"c\": [1, -2.5, 1e30, {}], \"d\": {\"x\": {\"y\": {}}, \"'\": "
        "false}, \"e\": \"%} }} {# \\\"q\\\" 'é' \\\\ \\n\\u0001 😀\", \"f\": -7, \"g\": \"\"}";
    assert_defaults(
        room, VALUES, values, NULL,
        "[true, null, [1, -2.5, 1e+30, {}], {\"x\": {\"y\": {}}, \"'\": false}, \"%} }} {# "
        "\\\"q\\\" 'é' \\\\ \\n\\u0001 😀\", -7, \"\"]"
        "[True, None, [1, -2.5, 1e+30, {}], {'x': {'y': {}}, \"'\": False}, "
        "'%} }} {# \"q\" \\'é\\' \\\\ \\n\\x01 😀', -7, '']");
    assert_defaults(room, "{{ x }}{{ y is none }}", "{\"x\": 1, \"y\": null}", NULL, "1True");
    assert_defaults(room, "{{ x }}{{ y is defined }}", "{\"x\": 1}", "{\"x\": false, \"y\": 0}",
                    "FalseTrue");
    assert_defaults(room, "{{ x is none }}", "{\"x\": 1}", "{\"x\": null}", "True");
    /* Names that are always there, and names that no template can ask for. */
    assert_defaults(room, "{{ eos_token }}{{ a }}", "{\"eos_token\": \"<e>\", \"a\": 2}", NULL,
                    "<e>2");
    assert_defaults(room, "{{ a }}", "{\"if\": 1, \"a-b\": 2, \"3\": 3, \"\": 4, \"a\": 5}", NULL,
                    "5");
    /* In macros, loops and conditions, also where the template sets the variable itself. */
    assert_defaults(
        room,
        "{% macro m(p) %}{{ x ~ p }}{% endmacro %}{% for m2 in messages %}{{ m(1) }}{% set "
        "x = 9 %}{{ x }}{% endfor %}{% if x %}{% set x = x ~ '!' %}{% endif %}{{ x }}",
        "{\"x\": \"v\"}", NULL, "v19v!");
}

static void a_template_with_defaults_begins_as_it_did(void **state)
{
    struct room *room = *state;
    static const char *const texts[][2] = {
        {"{{ x }}", "1"},           {"\n{{ x }}", "\n1"},
        {"\n\n{{ x }}\n", "\n\n1"}, {"  {% if x %}a{% endif %}", "a"},
        {"  {{ x }}", "  1"},       {"\t{# c #}\n{{ x }}", "1"},
        {"\r\n{{ x }}", "\n1"},     {"\n  {%- if x %}a{% endif %}", "a"},
        {"text {{ x }}", "text 1"}, {"é", "é"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_defaults(room, texts[i][0], "{\"x\": 1}", NULL, texts[i][1]);
}

static void defaults_are_written_once(void **state)
{
    struct room *room = *state;
    static const char wanted[] = "{%- if x is not defined %}{% set x = false %}{% endif %}{{ x }}";
    struct ebb_chat_template *chat = small(room, "{{ x }}"), *once, *twice;
    json_t *kwargs = parse(room, "{\"x\": false}");
    size_t bytes;
    assert_ok(room, ebb_chat_template_with_defaults(room->ctx, chat, kwargs, &once));
    assert_ok(room, ebb_chat_template_with_defaults(room->ctx, once, kwargs, &twice));
    assert_string_equal(ebb_chat_template_text(once, false, &bytes), wanted);
    assert_string_equal(ebb_chat_template_text(twice, false, &bytes), wanted);
    assert_int_equal(bytes, strlen(wanted));
    assert_null(ebb_chat_template_text(twice, true, &bytes));
    ebb_chat_template_free(room->ctx, twice);
    assert_ok(room, ebb_chat_template_with_defaults(room->ctx, chat, NULL, &twice));
    assert_string_equal(ebb_chat_template_text(twice, false, &bytes), "{{ x }}");
    ebb_chat_template_free(room->ctx, chat);
    ebb_chat_template_free(room->ctx, once);
    ebb_chat_template_free(room->ctx, twice);
    json_decref(kwargs);
}

static void data_of_the_wrong_shape_is_told_by_record_and_message(void **state)
{
    struct room *room = *state;
    static const struct bad {
        const char *messages, *tools, *kwargs, *says;
    } cases[] = {
        {"[]", NULL, NULL, "d.json:3: record 2: the conversation is empty"},
        {"{}", NULL, NULL, "messages is not a list"},
        {"[{}, 5]", NULL, NULL, "message 2 is not an object"},
        {"[{}]", "[1]", NULL, "tools: item 1 is not an object"},
        {"[{}]", "{}", NULL, "tools is not a list"},
        {"[{}]", NULL, "{\"messages\": 1}", "chat_template_kwargs cannot set 'messages'"},
        {"[{}]", NULL, NULL, "d.json:3: record 2: small:1: 'dict object' has no attribute 'role'"},
    };
    struct ebb_chat_template *chat = small(room, "{{ messages[0].role + 'x' }}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_chat_options options = {0};
        struct ebb_str out = {0};
        json_t *messages = parse(room, cases[i].messages);
        json_t *tools = cases[i].tools != NULL ? parse(room, cases[i].tools) : NULL;
        json_t *kwargs = cases[i].kwargs != NULL ? parse(room, cases[i].kwargs) : NULL;
        options.tools = tools;
        options.kwargs = kwargs;
        enum ebb_status status =
            ebb_chat_render(room->ctx, chat, "d.json:3: record 2", messages, &options, &out, NULL);
        assert_failed(room, status, kwargs != NULL ? EBB_BAD_CONFIG : EBB_BAD_FILE, cases[i].says,
                      NULL);
        assert_null(out.data);
        json_decref(messages);
        json_decref(tools);
        json_decref(kwargs);
    }
    ebb_chat_template_free(room->ctx, chat);
}

/* ---- real templates ---- */

static json_t *tool_call(struct room *room, const char *text)
{
    json_t *function = parse(room, text);
    return json_pack("{s:s,s:s,s:[{s:s,s:o}]}", "role", "assistant", "content", "", "tool_calls",
                     "type", "function", "function", function);
}

static void add_turn(struct room *room, json_t *messages, const json_t *turn)
{
    static const char *const roles[][2] = {{"human", "user"},
                                           {"gpt", "assistant"},
                                           {"observation", "tool"},
                                           {"system", "system"}};
    const char *from = json_string_value(json_object_get(turn, "from"));
    json_t *value = json_object_get(turn, "value"), *made = NULL;
    if (strcmp(from, "function_call") == 0) made = tool_call(room, json_string_value(value));
    for (size_t i = 0; i < 4; i++)
        if (strcmp(from, roles[i][0]) == 0)
            made = json_pack("{s:s,s:O}", "role", roles[i][1], "content", value);
    assert_non_null(made);
    json_array_append_new(messages, made);
}

/* ShareGPT's turns as messages, as tools/golden_templates.py makes them. */
static json_t *to_messages(struct room *room, const json_t *record)
{
    json_t *messages = json_array(), *turns = json_object_get(record, "conversations");
    for (size_t i = 0; i < json_array_size(turns); i++)
        add_turn(room, messages, json_array_get(turns, i));
    if (json_object_get(record, "chosen") != NULL)
        add_turn(room, messages, json_object_get(record, "chosen"));
    return messages;
}

static void fnv(const struct ebb_str *text, char out[17])
{
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < text->bytes; i++)
        value = (value ^ (unsigned char)text->data[i]) * 0x100000001b3u;
    snprintf(out, 17, "%016llx", (unsigned long long)value);
}

/* Every assistant turn is found, ends with the turn's end, and holds what the record says. */
static void check_spans(struct room *room, const struct ebb_chat_template *chat,
                        const json_t *messages, struct ebb_chat_options *options, size_t number)
{
    static const char empty[] = "<think>\n\n</think>\n\n";
    /* Qwen3's prompt has the empty block where thinking is off. */
    bool in_prompt = json_is_false(json_object_get(options->kwargs, "enable_thinking"));
    struct ebb_str out = {0};
    struct ebb_chat_spans spans = {0};
    char where[40];
    int64_t next = 0;
    snprintf(where, sizeof where, "record %zu", number);
    options->add_generation_prompt = false;
    assert_ok(room, ebb_chat_spans(room->ctx, chat, where, messages, options, &out, &spans));
    const char *eos = ebb_chat_template_token(chat, "eos_token");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *content = json_string_value(json_object_get(message, "content"));
        if (strcmp(json_string_value(json_object_get(message, "role")), "assistant") != 0) continue;
        assert_true(next < spans.count);
        const struct ebb_chat_span *span = &spans.items[next++];
        size_t bytes = span->end - span->begin, said = strlen(content);
        assert_int_equal(span->message, i);
        assert_true(span->ended && bytes >= strlen(eos));
        assert_memory_equal(out.data + span->end - strlen(eos), eos, strlen(eos));
        bool calls = json_object_get(message, "tool_calls") != NULL && !options->keep_nulls;
        if (i + 1 == json_array_size(messages) && !in_prompt) {
            assert_true(bytes >= strlen(empty));
            assert_memory_equal(out.data + span->begin, empty, strlen(empty));
            bytes -= strlen(empty);
        }
        const char *begin = out.data + span->end - bytes;
        if (!calls) {
            if (bytes != said + strlen(eos)) print_error("%s: '%.*s'\n", where, (int)bytes, begin);
            assert_int_equal(bytes, said + strlen(eos));
            assert_memory_equal(begin, content, said);
        }
    }
    assert_int_equal(next, spans.count);
    ebb_str_free(room->ctx, &out);
    ebb_chat_spans_free(room->ctx, &spans);
}

static int check_record(struct room *room, const struct ebb_chat_template *chat,
                        const json_t *record, size_t i, const char *wanted, bool with_spans)
{
    struct ebb_chat_options options = {0};
    struct ebb_str out = {0};
    char hash[17];
    json_t *messages = to_messages(room, record), *tools = NULL;
    json_t *kwargs = i % 5 == 0 ? json_pack("{s:b}", "enable_thinking", i % 2 == 0) : NULL;
    const char *text = json_string_value(json_object_get(record, "tools"));
    if (text != NULL && text[0] != '\0') tools = parse(room, text);
    options.tools = tools;
    options.kwargs = kwargs;
    options.add_generation_prompt = i % 3 == 0;
    assert_ok(room, ebb_chat_render(room->ctx, chat, "record", messages, &options, &out, NULL));
    fnv(&out, hash);
    bool good = strcmp(hash, wanted) == 0;
    if (!good) print_error("record %zu: %s, wanted %s\n%s\n", i, hash, wanted, out.data);
    ebb_str_free(room->ctx, &out);
    if (with_spans) check_spans(room, chat, messages, &options, i);
    json_decref(messages);
    json_decref(tools);
    json_decref(kwargs);
    return good ? 0 : 1;
}

static void check_real(struct room *room, const char *model, bool with_spans)
{
    static const char *const files[] = {"glaive_toolcall_en_demo.json", "dpo_en_demo.json"};
    struct ebb_chat_template *chat;
    json_t *golden, *records;
    char path[1024];
    int bad = 0;
    snprintf(path, sizeof path, "%s/tokenizers/%s", shared, model);
    if (!ebb_dir_exists(path)) {
        print_message("no %s\n", path);
        skip();
    }
    assert_ok(room, ebb_chat_template_load(room->ctx, path, &chat, NULL));
    snprintf(path, sizeof path, "%s/tests/golden/templates_%s.json", EBB_SOURCE_DIR, model);
    assert_ok(room, ebb_json_load(room->ctx, path, &golden));
    for (int k = 0; k < 2; k++) {
        const json_t *hashes = json_object_get(golden, files[k]);
        snprintf(path, sizeof path, "%s/data/%s", shared, files[k]);
        if (!ebb_file_exists(path)) {
            print_message("no %s\n", path);
            skip();
        }
        assert_ok(room, ebb_json_load(room->ctx, path, &records));
        assert_int_equal(json_array_size(records), json_array_size(hashes));
        for (size_t i = 0; i < json_array_size(records); i++)
            bad += check_record(room, chat, json_array_get(records, i), i,
                                json_string_value(json_array_get(hashes, i)), with_spans);
        json_decref(records);
    }
    json_decref(golden);
    ebb_chat_template_free(room->ctx, chat);
    assert_int_equal(bad, 0);
}

static void qwen3_records_render_as_transformers_does_and_are_located(void **state)
{
    check_real(*state, "qwen3", true);
}

static void deepseek_v3_records_render_as_transformers_does(void **state)
{
    check_real(*state, "deepseek_v3", false);
}

/* Its template writes calls only where the content is none, and no token behind a single call. */
static void deepseek_v3_tool_calls_are_located_where_nulls_are_kept(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat;
    struct ebb_chat_options options = {.keep_nulls = true};
    struct ebb_chat_spans spans = {0};
    struct ebb_str out = {0};
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizers/deepseek_v3", shared);
    if (!ebb_dir_exists(path)) {
        print_message("no %s\n", path);
        skip();
    }
    assert_ok(room, ebb_chat_template_load(room->ctx, path, &chat, NULL));
    json_t *messages =
        parse(room,
              "[{\"role\": \"user\", \"content\": \"1+2?\"}, {\"role\": \"assistant\", "
              "\"content\": null, "
              "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"add\", "
              "\"arguments\": "
              "\"{}\"}}]}, {\"role\": \"tool\", \"content\": \"3\"}, {\"role\": \"assistant\", "
              "\"content\": \"It is 3.\"}]");
    json_t *wanted = parse(room, "[\"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
                                 "function<｜tool▁sep｜>add\\n```json\\n{}\\n```"
                                 "<｜tool▁call▁end｜>\", "
                                 "\"It is 3.<｜end▁of▁sentence｜>\"]");
    assert_ok(room, ebb_chat_spans(room->ctx, chat, "r", messages, &options, &out, &spans));
    assert_true(spans_are(&out, &spans, wanted));
    /* Without the null, as in transformers 5, the template itself fails. */
    options.keep_nulls = false;
    assert_failed(room, ebb_chat_spans(room->ctx, chat, "r", messages, &options, &out, &spans),
                  EBB_BAD_FILE, "r: ", "'dict object' has no attribute 'content'", NULL);
    ebb_str_free(room->ctx, &out);
    ebb_chat_spans_free(room->ctx, &spans);
    json_decref(messages);
    json_decref(wanted);
    ebb_chat_template_free(room->ctx, chat);
}

/* The tokens that end a turn come from the tokenizer too. */
static void special_tokens_of_a_tokenizer_end_turns(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    struct ebb_chat_template *chat =
        small(room,
              "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}!");
    json_t *messages = parse(room, "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                                   "\"assistant\", \"content\": \"b\"}]");
    struct ebb_chat_options options = {0};
    struct ebb_chat_spans spans = {0};
    struct ebb_str out = {0};
    assert_ok(room, ebb_chat_template_use_tokenizer(room->ctx, chat, tokenizer));
    assert_ok(room, ebb_chat_spans(room->ctx, chat, "r", messages, &options, &out, &spans));
    assert_int_equal(spans.count, 1);
    assert_true(spans.items[0].ended);
    assert_int_equal(spans.items[0].end - spans.items[0].begin, strlen("b<|endoftext|>"));
    ebb_str_free(room->ctx, &out);
    ebb_chat_spans_free(room->ctx, &spans);
    json_decref(messages);
    ebb_chat_template_free(room->ctx, chat);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void failing_memory_is_reported_and_nothing_leaks(void **state)
{
    struct room *room = *state;
    json_t *golden = load_golden(room);
    const json_t *text = json_object_get(json_object_get(golden, "templates"), "think");
    const json_t *cases = json_object_get(golden, "cases"), *item = NULL;
    for (size_t i = 0; i < json_array_size(cases); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(cases, i), "template")),
                   "think") == 0)
            item = json_array_get(cases, i);
    struct ebb_chat_options options = {0};
    json_t *kwargs = parse(room, "{\"enable_thinking\": [false]}");
    enum ebb_status status = EBB_NO_MEMORY;
    int64_t nth = 1, held = ebb_mem_bytes_now(room->ctx);
    for (; status != EBB_OK && nth < 100; nth++) {
        struct ebb_chat_template *chat = NULL, *made = NULL;
        struct ebb_chat_spans spans = {0};
        struct ebb_str out = {0};
        ebb_mem_fail_nth(room->ctx, nth, false);
        status = ebb_chat_template_create(room->ctx, "think", json_string_value(text),
                                          json_string_length(text), &chat);
        if (status == EBB_OK)
            status = ebb_chat_spans(room->ctx, chat, "r", json_object_get(item, "messages"),
                                    &options, &out, &spans);
        if (status == EBB_OK)
            status = ebb_chat_template_with_defaults(room->ctx, chat, kwargs, &made);
        ebb_mem_fail_nth(room->ctx, 0, false);
        assert_true(status == EBB_OK || status == EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
        ebb_str_free(room->ctx, &out);
        ebb_chat_spans_free(room->ctx, &spans);
        ebb_chat_template_free(room->ctx, made);
        ebb_chat_template_free(room->ctx, chat);
        assert_int_equal(ebb_mem_bytes_now(room->ctx), held);
    }
    assert_int_equal(status, EBB_OK);
    assert_true(nth > 5);
    json_decref(kwargs);
    json_decref(golden);
}

int main(void)
{
    const char *given = getenv("EBB_SHARED");
    snprintf(shared, sizeof shared, "%s", given != NULL ? given : EBB_SOURCE_DIR "/../shared");
    const struct CMUnitTest tests[] = {
        ROOM_TEST(conversations_render_as_transformers_does),
        ROOM_TEST(the_assistant_is_found_in_every_family),
        ROOM_TEST(templates_come_from_each_of_the_usual_files),
        ROOM_TEST(a_directory_without_a_template_is_told_apart_from_a_broken_one),
        ROOM_TEST(templates_see_what_transformers_shows_them),
        ROOM_TEST(variables_become_defaults_of_a_template),
        ROOM_TEST(a_template_with_defaults_begins_as_it_did),
        ROOM_TEST(defaults_are_written_once),
        ROOM_TEST(data_of_the_wrong_shape_is_told_by_record_and_message),
        ROOM_TEST(qwen3_records_render_as_transformers_does_and_are_located),
        ROOM_TEST(deepseek_v3_records_render_as_transformers_does),
        ROOM_TEST(deepseek_v3_tool_calls_are_located_where_nulls_are_kept),
        ROOM_TEST(special_tokens_of_a_tokenizer_end_turns),
        ROOM_TEST(failing_memory_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
