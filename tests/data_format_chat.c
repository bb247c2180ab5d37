/* Chats in every format: what becomes of a record, and what of it is learned, against transformers
 * (tests/golden/formats.json and, where models and data are there, formats_*.json, all made by
 * tools/golden_formats.py).
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_format_kit.h"

static char shared[512];

/* ---- chats ---- */

static enum ebb_loss_part loss_part(const json_t *value)
{
    if (value == NULL) return EBB_LOSS_PART_AUTO;
    return json_is_true(value) ? EBB_LOSS_PART_TRUE : EBB_LOSS_PART_FALSE;
}

static struct ebb_format_env env_of(const json_t *json, const struct ebb_chat_template *chat)
{
    struct ebb_format_env env = {.chat = chat, .text_field = "text"};
    env.purpose =
        json_object_get(json, "purpose") != NULL ? EBB_PURPOSE_PREFERENCE : EBB_PURPOSE_SFT;
    env.chat_kwargs = json_object_get(json, "kwargs");
    env.completion_only = loss_part(json_object_get(json, "completion_only"));
    env.assistant_only = loss_part(json_object_get(json, "assistant_only"));
    env.last_turn_only = json_is_true(json_object_get(json, "last_turn_only"));
    return env;
}

static struct ebb_chat_template *family(struct room *room, const json_t *golden, const char *name)
{
    const json_t *templates = json_object_get(golden, "templates");
    const json_t *specials = json_object_get(json_object_get(golden, "specials"), name);
    struct ebb_chat_template *chat =
        make_chat(room, json_string_value(json_object_get(templates, name)));
    for (size_t i = 0; i < json_array_size(specials); i++) {
        char variable[32];
        snprintf(variable, sizeof variable, "special_%zu", i);
        assert_ok(room,
                  ebb_chat_template_set_token(room->ctx, chat, variable,
                                              json_string_value(json_array_get(specials, i))));
    }
    return chat;
}

/* Equal to the golden sample: the text, and part by part what is learned. */
static bool sample_is(const struct ebb_rendering *out, int64_t sample, const json_t *wanted)
{
    const json_t *text = json_object_get(wanted, "text");
    const json_t *learned = json_object_get(wanted, "learned");
    int64_t first = sample == 0 ? 0 : out->part_ends[sample - 1], last = out->part_ends[sample];
    size_t at = first == 0 ? 0 : out->items[first - 1].end, begin = at, seen = 0;
    if (last == first || out->items[last - 1].end - begin != json_string_length(text) ||
        memcmp(out->text.data + begin, json_string_value(text), json_string_length(text)) != 0)
        return false;
    for (int64_t i = first; i < last; i++) {
        size_t bytes = out->items[i].end - at;
        const json_t *part = json_array_get(learned, seen);
        if (out->items[i].learned && (json_string_length(part) != bytes ||
                                      memcmp(out->text.data + at, json_string_value(part), bytes)))
            return false;
        seen += out->items[i].learned;
        at = out->items[i].end;
    }
    return seen == json_array_size(learned);
}

static bool check_case(struct room *room, const json_t *golden, const json_t *item)
{
    struct ebb_chat_template *chat =
        family(room, golden, json_string_value(json_object_get(item, "template")));
    struct ebb_format_env env = env_of(json_object_get(item, "env"), chat);
    const char *name = json_string_value(json_object_get(item, "format"));
    const json_t *samples = json_object_get(item, "samples");
    const struct ebb_format *format = NULL;
    struct ebb_rendering out = {0};
    struct ebb_str text = {0};
    assert_ok(room, ebb_json_text(room->ctx, json_object_get(item, "record"), 0, &text));
    const char *forced = json_is_true(json_object_get(item, "named")) ? name : NULL;
    enum ebb_status status = read_one(room, forced, &env, text.data, &format, &out);
    bool good = status == EBB_OK && strcmp(format->name, name) == 0 && format->chat &&
                (size_t)out.samples == json_array_size(samples) &&
                out.desirable == json_is_true(json_object_get(item, "desirable")) &&
                out.whole == (out.samples > 0);
    for (int64_t i = 0; good && i < out.samples; i++)
        good = sample_is(&out, i, json_array_get(samples, (size_t)i));
    if (!good) {
        struct ebb_str marks = {0};
        write_marks(room, &out, &marks);
        print_error("%s %s: %s\n%s\n", name, text.data, ebb_error_text(room->ctx), marks.data);
        ebb_str_free(room->ctx, &marks);
    }
    ebb_error_clear(room->ctx);
    ebb_str_free(room->ctx, &text);
    ebb_rendering_free(room->ctx, &out);
    ebb_chat_template_free(room->ctx, chat);
    return good;
}

static void chats_of_every_format_are_written_as_transformers_does_and_marked(void **state)
{
    struct room *room = *state;
    json_t *golden;
    int bad = 0;
    assert_ok(room, ebb_json_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/formats.json", &golden));
    const json_t *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) > 50);
    for (size_t i = 0; i < json_array_size(cases); i++)
        bad += !check_case(room, golden, json_array_get(cases, i));
    json_decref(golden);
    assert_int_equal(bad, 0);
}

static void bad_turns_are_told_by_list_and_item(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(room, PLAIN);
    struct ebb_format_env env = {.chat = chat};
    static const struct bad bad[] = {
        {CHAT(HI), "r.json:1: record 1: there is nothing to learn", "no assistant turn"},
        {CHAT(""), "no assistant turn", NULL},
        {CHAT(HI ", 5"), "r.json:1: record 1: messages, item 2: a number is here", NULL},
        {CHAT(HI ", {\"a\": 1}"), "item 2: has neither 'role' and 'content'", NULL},
        {CHAT(HI ", {\"role\": 7}"), "item 2: 'role' is a number, a string is wanted", NULL},
        {CHAT(HI ", {\"role\": \"gpt\", \"content\": \"x\"}"), "item 2: role 'gpt' is unknown",
         "known: system, developer, user, assistant"},
        {CHAT(HI ", {\"role\": \"assistant\"}"), "'content' is nothing, a text is wanted", NULL},
        {CHAT(HI ", {\"role\": \"assistant\", \"content\": null}"), "'content' is null", NULL},
        {CHAT("{\"role\": \"user\", \"content\": {}}, " HO), "'content' is an object", NULL},
        {CHAT("{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}, " HO),
         "part 1 of 'content' is of type 'image_url', only 'text' is offered", NULL},
        {CHAT("{\"role\": \"user\", \"content\": [\"x\"]}, " HO), "part 1 of 'content' is not",
         NULL},
        {CHAT(HI ", {\"role\": \"assistant\", \"content\": \"x\", \"train\": \"no\"}"),
         "'train' is a string, a boolean is wanted", NULL},
        {CHAT(HI ", {\"role\": \"assistant\", \"content\": \"x\", \"weight\": 0.5}"),
         "'weight' is not 0 or 1", NULL},
        {CHAT(HI ", {\"role\": \"assistant\", \"content\": \"x\", \"train\": false}"),
         "nothing to learn", "taken out by 'train'"},
        {CHAT(HI ", {\"role\": \"assistant\", \"tool_calls\": {}}"), "'tool_calls' is an object",
         NULL},
        {CHAT(HI ", {\"role\": \"assistant\", \"tool_calls\": [{\"function\": {}}]}"),
         "call 1 of 'tool_calls' has no 'name'", NULL},
        {"{\"messages\": [" HI ", " HO "], \"tools\": 5}", "'tools' is a number", NULL},
        {"{\"messages\": [" HI ", " HO "], \"tools\": \"{}\"}",
         "'tools' is JSON text of an object, a list is wanted", NULL},
        {"{\"messages\": [" HI ", " HO "], \"tools\": \"[\"}", "record 1: tools:1:", NULL},
        {SENT("{\"from\": \"alien\", \"value\": \"x\"}"),
         "conversations, item 2: from 'alien' is unknown", "known: human, user, gpt"},
        {SENT("{\"from\": null, \"value\": \"x\"}"), "'from' is null", NULL},
        {SENT("{\"from\": \"gpt\"}"), "'value' is nothing, a string is wanted", NULL},
        {SENT("{\"from\": \"function_call\", \"value\": \"f(x)\"}"),
         "r.json:1: record 1: conversations, item 2: value:1:", NULL},
        {SENT("{\"from\": \"function_call\", \"value\": \"{}\"}"), "is not JSON of {name, argument",
         NULL},
        {SENT("{\"from\": \"function_call\", \"value\": \"[]\"}"), "'function_call' has no call",
         NULL},
        {"{\"conversations\": [{\"from\": \"system\", \"value\": \"a\"}], \"system\": \"b\"}",
         "both 'system' and a system turn", NULL},
        {"{\"conversations\": [{\"from\": \"gpt\", \"value\": \"a\"}], \"system\": 5}",
         "'system' is a number", NULL},
        {"{\"prompt\": [" HI "], \"completion\": \"x\"}",
         "'completion' is a string, a list of messages is wanted", NULL},
        {"{\"prompt\": \"x\", \"completion\": [" HO "]}",
         "'prompt' is a string, a list of messages is wanted", NULL},
        {"{\"prompt\": [" HI "], \"completion\": [" HI "]}", "the answer has no assistant turn",
         NULL},
        {"{\"prompt\": [" HI "], \"chosen\": [" HO "], \"rejected\": [" HO "]}",
         "'chosen' and 'rejected' are the same", NULL},
        {"{\"chosen\": [" HO "], \"rejected\": [" HI "]}", "has no 'prompt'",
         "no beginning in common"},
        {"{\"messages\": [], \"label\": true}", "'messages' is empty", NULL},
        {"{\"messages\": [" HO ", " HI "], \"label\": true}", "the answer has no assistant turn",
         NULL},
    };
    assert_refused(room, &env, NULL, EBB_BAD_FILE, bad, COUNT(bad));
    static const struct bad alpaca[] = {
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"x\"]]}",
         "history, item 1: not a pair of texts", NULL},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": \"x\"}", "'history' is a string",
         NULL},
        {"{\"instruction\": \"a\"}", "has no key 'output'", NULL},
    };
    assert_refused(room, &env, "alpaca_chat", EBB_BAD_FILE, alpaca, COUNT(alpaca));
    static const struct bad stanford[] = {
        {"{\"instruction\": \"a\", \"output\": \"b\", \"system\": \"x\"}",
         "'system' has no place in the prompt of format 'alpaca'", "dataset_format: alpaca_chat"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"x\", \"y\"]]}",
         "'history' has no place", NULL},
    };
    assert_refused(room, &env, NULL, EBB_BAD_FILE, stanford, COUNT(stanford));
    ebb_chat_template_free(room->ctx, chat);
}

#define CALL(content)                                                                              \
    CHAT("{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", " content           \
         "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"add\", "            \
         "\"arguments\": {\"a\": \"é\", \"b\": [1, 2.5]}}}]}")

static void tool_calls_are_given_in_the_shape_that_the_template_shows(void **state)
{
    struct room *room = *state;
    struct ebb_format_env env = {0};
    /* Calls where the content is none, arguments as a text. */
    struct ebb_chat_template *chat = make_chat(
        room, "{% for m in messages %}{% if m.content is none %}{{ '(' + "
              "m.tool_calls[0].function.name + m.tool_calls[0].function.arguments + ')' }}{% else "
              "%}{{ '<' + m.role + '>' + m.content }}{% endif %}{{ eos_token }}{% endfor %}");
    env.chat = chat;
    assert_reads(room, NULL, &env, CALL("\"content\": \"\", "), "messages",
                 "<user>Hi</s>[(add{\"a\": \"é\", \"b\": [1, 2.5]})</s>]");
    ebb_chat_template_free(room->ctx, chat);
    /* Nowhere. */
    chat = make_chat(room, "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{{ "
                           "eos_token }}{% endfor %}");
    env.chat = chat;
    static const struct bad bad[] = {
        {CALL("\"content\": \"\", "),
         "r.json:1: record 1: the chat template does not show the "
         "tool calls of message 2",
         "chat_template:"},
        {CALL(""), "record 1: test:1: ", NULL},
    };
    assert_refused(room, &env, NULL, EBB_BAD_FILE, bad, COUNT(bad));
    env.assistant_only = EBB_LOSS_PART_FALSE;
    assert_refused(room, &env, NULL, EBB_BAD_FILE, bad, COUNT(bad));
    ebb_chat_template_free(room->ctx, chat);
}

static void what_a_template_leaves_out_is_told_once(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat =
        make_chat(room,
                  "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}<{{ m.role }}>{{ "
                  "m.content }}{{ eos_token }}{% endif %}{% endfor %}");
    struct ebb_format_env env = {.chat = chat};
    assert_reads(room, NULL, &env, CHAT(HI ", " HO), "messages", "<user>Hi</s><assistant>[Ho</s>]");
    assert_string_equal(room->warning, "");
    assert_reads(room, NULL, &env,
                 CHAT("{\"role\": \"developer\", \"content\": \"Be kind.\"}, " HI ", " HO),
                 "messages", "<user>Hi</s><assistant>[Ho</s>]");
    assert_non_null(strstr(room->warning, "leaves out or rewrites message 1 (developer)"));
    assert_reads(room, NULL, &env,
                 "{\"messages\": [" HI ", " HO "], \"tools\": [{\"name\": \"add\"}]}", "messages",
                 "<user>Hi</s><assistant>[Ho</s>]");
    assert_non_null(strstr(room->warning, "leaves out the tools"));
    assert_reads(room, NULL, &env,
                 CHAT(HI ", {\"role\": \"assistant\", \"content\": \"Ho\", "
                         "\"reasoning_content\": \"Hm.\"}"),
                 "messages", "<user>Hi</s><assistant>[Ho</s>]");
    assert_non_null(strstr(room->warning, "leaves out the reasoning of message 2"));
    ebb_chat_template_free(room->ctx, chat);
}

static void an_answer_that_is_empty_is_told_once(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(
        room, "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}{{ m.content }}{{ "
              "eos_token }}{% endfor %}");
    struct ebb_format_env env = {.chat = chat};
    assert_reads(room, NULL, &env,
                 CHAT(HI ", {\"role\": \"assistant\", \"content\": \"\", \"train\": false}, " BYE
                         ", {\"role\": \"assistant\", \"content\": \"\", "
                         "\"reasoning_content\": \"Hm.\"}"),
                 "messages", "<user>Hi</s><assistant></s><user>Bye</s><assistant>[Hm.</s>]");
    assert_string_equal(room->warning, "");
    assert_reads(room, NULL, &env,
                 CHAT(HI ", {\"role\": \"assistant\", \"content\": \"\"}"), "messages",
                 "<user>Hi</s><assistant>[</s>]");
    assert_non_null(strstr(room->warning, "message 2 (assistant) is empty"));
    ebb_chat_template_free(room->ctx, chat);
}

/* A message marked in two pieces: which piece is whose cannot be known. */
static void marks_of_a_template_that_are_not_one_a_message_select_nothing(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(
        room, "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation "
              "%}{{ m.content[:1] }}{% endgeneration %}-{% generation %}{{ m.content[1:] }}{{ "
              "eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
    struct ebb_format_env env = {.chat = chat};
    assert_reads(room, NULL, &env, CHAT(HI ", " HO), "messages", "<user>Hi<assistant>[H]-[o</s>]");
    env.last_turn_only = true;
    static const struct bad bad[] = {{CHAT(HI ", " HO), "{% generation %}", "stands 2 times"}};
    assert_refused(room, &env, NULL, EBB_BAD_FILE, bad, 1);
    ebb_chat_template_free(room->ctx, chat);
}

static void an_answer_learned_whole_begins_with_the_assistant(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(room, PLAIN);
    struct ebb_format_env env = {.chat = chat, .assistant_only = EBB_LOSS_PART_FALSE};
    static const struct bad bad[] = {
        {"{\"prompt\": [" HI ", " HO "], \"completion\": [" BYE ", " HO "]}",
         "begins with a message of role 'user'", "assistant_only_loss is false"}};
    assert_refused(room, &env, NULL, EBB_BAD_FILE, bad, 1);
    assert_reads(room, NULL, &env, "{\"prompt\": [" HI "], \"completion\": [" HO "]}",
                 "prompt_completion", "[user]Hi</s>[assistant][Ho</s>]");
    ebb_chat_template_free(room->ctx, chat);
}

static void a_text_prompt_beside_messages_is_one_of_them(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(room, PLAIN);
    struct ebb_format_env env = {.chat = chat, .purpose = EBB_PURPOSE_PREFERENCE};
#define PAIR(prompt, turns)                                                                        \
    "{\"prompt\": \"" prompt "\", \"chosen\": [" turns ", " HO "], \"rejected\": [" turns \
    ", {\"role\": \"assistant\", \"content\": \"No\"}]}"
#define SYSTEM "{\"role\": \"system\", \"content\": \"Bye\"}"
    static const char wanted[] = "[user]Hi</s>[assistant][Ho</s>]\n"
                                 "[user]Hi</s>[assistant][No</s>]";
    assert_reads(room, NULL, &env, PAIR("Hi", HI), "preference", wanted);
    assert_reads(room, NULL, &env, PAIR("", HI), "preference", wanted);
    assert_reads(room, NULL, &env, PAIR("Hi", HI ", " HO ", " BYE), "preference",
                 "[user]Hi</s>[assistant]Ho</s>[user]Bye</s>[assistant][Ho</s>]\n"
                 "[user]Hi</s>[assistant]Ho</s>[user]Bye</s>[assistant][No</s>]");
    assert_reads(room, NULL, &env,
                 "{\"prompt\": \"Hi\", \"conversations\": [{\"from\": \"human\", \"value\": "
                 "\"Hi\"}], \"chosen\": " HO ", \"rejected\": {\"from\": \"gpt\", \"value\": "
                 "\"No\"}}",
                 "preference", wanted);
    static const struct bad bad[] = {
        {PAIR("Bye", HI), "the text 'prompt' is none of the user's messages",
         "'chosen' and 'rejected' both begin with"},
        {PAIR("Ho", HI ", " HO ", " BYE), "none of the user's messages", NULL},
        {PAIR("Bye", SYSTEM), "none of the user's messages", "make it a list of messages"},
        {"{\"prompt\": \"Bye\", \"conversations\": [" HI "], \"chosen\": " HO
         ", \"rejected\": " BYE "}",
         "none of the user's messages that the conversation begins with", NULL}};
    assert_refused(room, &env, NULL, EBB_BAD_FILE, bad, COUNT(bad));
    ebb_chat_template_free(room->ctx, chat);
}

/* ---- real data ---- */

static uint64_t fnv(uint64_t value, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) value = (value ^ (unsigned char)text[i]) * 0x100000001b3u;
    return value;
}
static const uint64_t fnv_start = 0xcbf29ce484222325u;

static bool hash_is(uint64_t value, const json_t *wanted)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    return strcmp(text, json_string_value(wanted)) == 0;
}

/* A row of the golden file: of each sample the hash of its text and of all that is learned; null of
 * a record that the template garbles. */
static bool row_is(const struct ebb_rendering *out, const json_t *row)
{
    size_t at = 0;
    int64_t i = 0;
    if ((size_t)out->samples * 2 != json_array_size(row)) return false;
    for (int64_t s = 0; s < out->samples; s++) {
        uint64_t whole = fnv_start, learned = fnv_start;
        for (; i < out->part_ends[s]; i++) {
            size_t bytes = out->items[i].end - at;
            whole = fnv(whole, out->text.data + at, bytes);
            if (out->items[i].learned) learned = fnv(learned, out->text.data + at, bytes);
            at += bytes;
        }
        if (!hash_is(whole, json_array_get(row, (size_t)s * 2))) return false;
        if (!hash_is(learned, json_array_get(row, (size_t)s * 2 + 1))) return false;
    }
    return true;
}

/* The same text as of the template tests, which were made with other options. */
static bool equals_template_golden(const struct ebb_rendering *out, const json_t *hashes, size_t i)
{
    static const char prompt[] = "<|im_start|>assistant\n", empty[] = "<think>\n\n</think>\n\n";
    size_t end = out->items[out->part_ends[0] - 1].end;
    uint64_t value = fnv(fnv_start, out->text.data, end);
    if (i % 3 == 0) value = fnv(value, prompt, strlen(prompt));
    if (i % 3 == 0 && i % 5 == 0 && i % 2 == 1) value = fnv(value, empty, strlen(empty));
    return hash_is(value, json_array_get(hashes, i));
}

static json_t *load_shared_golden(struct room *room, const char *kind, const char *model)
{
    char path[512];
    json_t *golden;
    snprintf(path, sizeof path, "%s/tests/golden/%s_%s.json", EBB_SOURCE_DIR, kind, model);
    assert_ok(room, ebb_json_load(room->ctx, path, &golden));
    return golden;
}

static int check_file(struct room *room, const struct ebb_format_env *env, const char *file,
                      const json_t *rows, const json_t *hashes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/data/%s", shared, file);
    struct ebb_records_options options = {.path = path};
    struct ebb_records records;
    struct ebb_rendering out = {0};
    int bad = 0;
    if (!ebb_file_exists(path)) {
        print_message("no %s\n", path);
        skip();
    }
    assert_ok(room, ebb_records_open(room->ctx, &options, &records));
    assert_int_equal(records.count, json_array_size(rows));
    for (int64_t i = 0; i < records.count; i++) {
        json_t *json;
        const struct ebb_format *format;
        assert_ok(room, ebb_records_parse(room->ctx, &records, i, &json));
        struct ebb_format_record record = {&records, i, json};
        assert_ok(room, ebb_format_find(room->ctx, NULL, env, &record, &format));
        ebb_rendering_clear(&out);
        enum ebb_status status = format->render(room->ctx, env, &record, &out);
        const json_t *row = json_array_get(rows, (size_t)i);
        if (json_is_null(row)) {
            assert_failed(room, status, EBB_BAD_FILE, file, "cannot be located", NULL);
            json_decref(json);
            continue;
        }
        assert_ok(room, status);
        bool good = row_is(&out, row);
        if (hashes != NULL) good &= equals_template_golden(&out, hashes, (size_t)i);
        if (!good) print_error("%s, record %d:\n%s\n", file, (int)i + 1, out.text.data);
        bad += !good;
        json_decref(json);
    }
    ebb_rendering_free(room->ctx, &out);
    ebb_records_close(room->ctx, &records);
    return bad;
}

static void check_model(struct room *room, const char *model, bool against_templates)
{
    struct ebb_chat_template *chat;
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizers/%s", shared, model);
    if (!ebb_dir_exists(path)) {
        print_message("no %s\n", path);
        skip();
    }
    assert_ok(room, ebb_chat_template_load(room->ctx, path, &chat, NULL));
    json_t *golden = load_shared_golden(room, "formats", model);
    json_t *templates = load_shared_golden(room, "templates", model);
    struct ebb_format_env env = {.chat = chat};
    static const char *const files[] = {"glaive_toolcall_en_demo.json", "dpo_en_demo.json"};
    int bad = 0;
    for (int k = 0; k < 2; k++) {
        env.purpose = k == 1 ? EBB_PURPOSE_PREFERENCE : EBB_PURPOSE_SFT;
        bad += check_file(room, &env, files[k], json_object_get(golden, files[k]),
                          against_templates ? json_object_get(templates, files[k]) : NULL);
    }
    json_decref(golden);
    json_decref(templates);
    ebb_chat_template_free(room->ctx, chat);
    assert_int_equal(bad, 0);
}

static void every_record_is_written_and_marked_as_qwen3_says_it(void **state)
{
    check_model(*state, "qwen3", true);
}

static void every_record_is_written_and_marked_as_deepseek_v3_says_it(void **state)
{
    check_model(*state, "deepseek_v3", false);
}

/* ---- tokens ---- */

static void encode_parts(struct room *room, struct ebb_encoder *encoder,
                         const struct ebb_rendering *out, struct ebb_ids *ids)
{
    size_t at = 0;
    for (int64_t i = 0; i < out->part_ends[0]; i++) {
        assert_ok(room, ebb_encode(room->ctx, encoder, out->text.data + at, out->items[i].end - at,
                                   i > 0 ? EBB_ENCODE_CONTINUES : 0, ids));
        at = out->items[i].end;
    }
}

/* Cutting a text at the parts' ends changes none of its tokens, which are those of transformers'
 * apply_chat_template. */
static void parts_end_where_tokens_of_the_whole_text_do(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat;
    struct ebb_tokenizer *tokenizer;
    struct ebb_encoder *encoder;
    struct ebb_records records;
    struct ebb_rendering out = {0};
    struct ebb_ids whole = {0}, parts = {0};
    char path[1024], data[1024];
    snprintf(path, sizeof path, "%s/tokenizers/qwen3", shared);
    snprintf(data, sizeof data, "%s/data/glaive_toolcall_en_demo.json", shared);
    if (!ebb_dir_exists(path) || !ebb_file_exists(data)) {
        print_message("no %s or no %s\n", path, data);
        skip();
    }
    struct ebb_records_options options = {.path = data};
    assert_ok(room, ebb_chat_template_load(room->ctx, path, &chat, NULL));
    assert_ok(room, ebb_tokenizer_load(room->ctx, path, &tokenizer));
    assert_ok(room, ebb_encoder_create(room->ctx, tokenizer, &encoder));
    assert_ok(room, ebb_records_open(room->ctx, &options, &records));
    struct ebb_format_env env = {.chat = chat};
    for (int64_t i = 0; i < records.count; i++) {
        json_t *json;
        const struct ebb_format *format;
        assert_ok(room, ebb_records_parse(room->ctx, &records, i, &json));
        struct ebb_format_record record = {&records, i, json};
        assert_ok(room, ebb_format_find(room->ctx, NULL, &env, &record, &format));
        ebb_rendering_clear(&out);
        assert_ok(room, format->render(room->ctx, &env, &record, &out));
        whole.count = parts.count = 0;
        assert_ok(room, ebb_encode(room->ctx, encoder, out.text.data, out.text.bytes, 0, &whole));
        encode_parts(room, encoder, &out, &parts);
        assert_int_equal(whole.count, parts.count);
        assert_memory_equal(whole.data, parts.data, (size_t)whole.count * sizeof *whole.data);
        json_decref(json);
    }
    ebb_records_close(room->ctx, &records);
    ebb_ids_free(room->ctx, &whole);
    ebb_ids_free(room->ctx, &parts);
    ebb_rendering_free(room->ctx, &out);
    ebb_encoder_free(room->ctx, encoder);
    ebb_tokenizer_free(room->ctx, tokenizer);
    ebb_chat_template_free(room->ctx, chat);
}

/* ---- wrong values anywhere ---- */

/* Reads the record; it is used or refused, with a text that names it, and nothing else happens. */
static void check_any(struct room *room, const struct ebb_format_env *env,
                      const struct ebb_records *records, json_t *json)
{
    struct ebb_format_record record = {records, 0, json};
    const struct ebb_format *format;
    struct ebb_rendering out = {0};
    enum ebb_status status = ebb_format_find(room->ctx, NULL, env, &record, &format);
    if (status == EBB_OK) status = format->render(room->ctx, env, &record, &out);
    assert_true(status == EBB_OK || status == EBB_BAD_FILE || status == EBB_BAD_CONFIG);
    assert_int_equal(status, ebb_error_status(room->ctx));
    if (status != EBB_OK) assert_non_null(strstr(ebb_error_text(room->ctx), "record 1"));
    if (status == EBB_OK && out.samples > 0 && !out.tokenized) {
        assert_int_equal(out.part_ends[out.samples - 1], out.count);
        assert_int_equal(out.items[out.count - 1].end, out.text.bytes);
    }
    ebb_error_clear(room->ctx);
    ebb_rendering_free(room->ctx, &out);
}

/* Each value of the tree in turn becomes another. */
static void replace_everywhere(struct room *room, const struct ebb_format_env *env,
                               const struct ebb_records *records, json_t *whole, json_t *node,
                               const json_t *wrong)
{
    const char *key;
    void *next;
    json_t *value;
    json_object_foreach_safe(node, next, key, value)
    {
        json_incref(value);
        json_object_set(node, key, (json_t *)(uintptr_t)wrong);
        check_any(room, env, records, whole);
        json_object_set_new(node, key, value);
        replace_everywhere(room, env, records, whole, value, wrong);
    }
    for (size_t i = 0; i < json_array_size(node); i++) {
        value = json_incref(json_array_get(node, i));
        json_array_set(node, i, (json_t *)(uintptr_t)wrong);
        check_any(room, env, records, whole);
        json_array_set_new(node, i, value);
        replace_everywhere(room, env, records, whole, value, wrong);
    }
}

static void wrong_values_anywhere_are_refused_or_used(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(room, PLAIN);
    struct subject subject;
    json_t *golden, *wrongs;
    open_subject(room, "{\"text\": \"\"}", &subject);
    assert_ok(room, ebb_json_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/formats.json", &golden));
    static const char text[] = "[null, 5, \"x\", [], {}, true, [[\"a\", \"b\"]], \"\"]";
    assert_ok(room, ebb_json_parse(room->ctx, "test", 0, text, strlen(text), &wrongs));
    const json_t *cases = json_object_get(golden, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i);
        struct ebb_format_env env = env_of(json_object_get(item, "env"), chat);
        for (size_t k = 0; k < json_array_size(wrongs); k++)
            replace_everywhere(room, &env, &subject.records, json_object_get(item, "record"),
                               json_object_get(item, "record"), json_array_get(wrongs, k));
    }
    json_decref(golden);
    json_decref(wrongs);
    close_subject(room, &subject);
    ebb_chat_template_free(room->ctx, chat);
}

/* ---- memory ---- */

static void failing_memory_is_reported_and_nothing_leaks(void **state)
{
    struct room *room = *state;
    struct ebb_chat_template *chat = make_chat(room, PLAIN);
    static const char *const records[] = {
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}"
        ", " HO ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": "
        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}}]}], \"tools\": \"[{\\\"name\\\": "
        "\\\"f\\\"}]\"}",
        SENT("{\"from\": \"function_call\", \"value\": \"{\\\"name\\\": \\\"f\\\", "
             "\\\"arguments\\\": {}}\"}"),
        "{\"prompt\": [" HI "], \"chosen\": [" HO "], \"rejected\": [{\"from\": \"gpt\", "
        "\"value\": \"x\"}]}",
        "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
        "{\"instruction\": \"a\", \"input\": \"b\", \"output\": \"c\"}",
        "{\"input_ids\": [1, 2], \"labels\": [1, 3]}",
        CHAT(HI),
        "{\"a\": 1}",
    };
    for (size_t i = 0; i < COUNT(records); i++) {
        struct ebb_format_env env = {.chat = chat};
        struct subject subject;
        enum ebb_status status = EBB_NO_MEMORY;
        open_subject(room, records[i], &subject);
        int64_t nth = 1, held = ebb_mem_bytes_now(room->ctx);
        for (; status == EBB_NO_MEMORY && nth < 200; nth++) {
            const struct ebb_format *format;
            struct ebb_rendering out = {0};
            ebb_mem_fail_nth(room->ctx, nth, false);
            status = ebb_format_find(room->ctx, NULL, &env, &subject.record, &format);
            if (status == EBB_OK) status = format->render(room->ctx, &env, &subject.record, &out);
            ebb_mem_fail_nth(room->ctx, 0, false);
            assert_true(status == ebb_error_status(room->ctx));
            ebb_error_clear(room->ctx);
            ebb_rendering_free(room->ctx, &out);
            assert_int_equal(ebb_mem_bytes_now(room->ctx), held);
        }
        assert_int_equal(status, i < 5 ? EBB_OK : EBB_BAD_FILE);
        assert_true(nth > 2);
        close_subject(room, &subject);
    }
    ebb_chat_template_free(room->ctx, chat);
}

int main(void)
{
    const char *given = getenv("EBB_SHARED");
    snprintf(shared, sizeof shared, "%s", given != NULL ? given : EBB_SOURCE_DIR "/../shared");
    const struct CMUnitTest tests[] = {
        ROOM_TEST(chats_of_every_format_are_written_as_transformers_does_and_marked),
        ROOM_TEST(bad_turns_are_told_by_list_and_item),
        ROOM_TEST(tool_calls_are_given_in_the_shape_that_the_template_shows),
        ROOM_TEST(what_a_template_leaves_out_is_told_once),
        ROOM_TEST(an_answer_that_is_empty_is_told_once),
        ROOM_TEST(a_text_prompt_beside_messages_is_one_of_them),
        ROOM_TEST(marks_of_a_template_that_are_not_one_a_message_select_nothing),
        ROOM_TEST(an_answer_learned_whole_begins_with_the_assistant),
        ROOM_TEST(every_record_is_written_and_marked_as_qwen3_says_it),
        ROOM_TEST(every_record_is_written_and_marked_as_deepseek_v3_says_it),
        ROOM_TEST(parts_end_where_tokens_of_the_whole_text_do),
        ROOM_TEST(wrong_values_anywhere_are_refused_or_used),
        ROOM_TEST(failing_memory_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
