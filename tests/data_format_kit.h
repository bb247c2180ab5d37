/* What the tests of data formats share: a record and what reads it, renderings written with their
 * marks, and a chat template.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_FORMAT_KIT_H
#define EBB_DATA_FORMAT_KIT_H

#include "data_test.h"

#include "data/format.h"

/* One record in a file of its own, and what reads it. */
struct subject {
    struct ebb_records records;
    struct ebb_format_record record;
    json_t *json;
};

static inline void open_subject(struct room *room, const char *text, struct subject *subject)
{
    char *file = ebb_mem_format(room->ctx, "[%s]", text);
    struct ebb_records_options options = {.path = room_write(room, "r.json", file)};
    ebb_mem_free(room->ctx, file);
    memset(subject, 0, sizeof *subject);
    assert_ok(room, ebb_records_open(room->ctx, &options, &subject->records));
    assert_ok(room, ebb_records_parse(room->ctx, &subject->records, 0, &subject->json));
    subject->record = (struct ebb_format_record){&subject->records, 0, subject->json};
}

static inline void close_subject(struct room *room, struct subject *subject)
{
    json_decref(subject->json);
    ebb_records_close(room->ctx, &subject->records);
}

static inline enum ebb_status read_one(struct room *room, const char *name,
                                       const struct ebb_format_env *env, const char *text,
                                       const struct ebb_format **format, struct ebb_rendering *out)
{
    struct subject subject;
    *format = NULL;
    open_subject(room, text, &subject);
    enum ebb_status status = ebb_format_find(room->ctx, name, env, &subject.record, format);
    if (status == EBB_OK) status = (*format)->render(room->ctx, env, &subject.record, out);
    close_subject(room, &subject);
    return status;
}

#define PLAIN                                                                                      \
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}<{{ "          \
    "c.function.name }}>{% endfor %}{{ eos_token }}{% endfor %}"

static inline struct ebb_chat_template *make_chat(struct room *room, const char *text)
{
    struct ebb_chat_template *chat;
    assert_ok(room, ebb_chat_template_create(room->ctx, "test", text, strlen(text), &chat));
    assert_ok(room, ebb_chat_template_set_token(room->ctx, chat, "bos_token", "<s>"));
    assert_ok(room, ebb_chat_template_set_token(room->ctx, chat, "eos_token", "</s>"));
    return chat;
}

/* A rendering as "prompt[what is learned]..", a sample a line; ids as "1 [2] ...". */
static inline void write_marks(struct room *room, const struct ebb_rendering *out,
                               struct ebb_str *text)
{
    int64_t i = 0;
    size_t at = 0;
    for (int64_t k = 0; out->tokenized && k < out->ids.count; k++)
        assert_ok(room, ebb_str_addf(room->ctx, text, out->marks.data[k] ? "%s[%d]" : "%s%d",
                                     k > 0 ? " " : "", (int)out->ids.data[k]));
    if (out->tokenized) return;
    for (int64_t s = 0; s < out->samples; s++) {
        if (s > 0) assert_ok(room, ebb_str_add(room->ctx, text, "\n", 1));
        for (; i < out->part_ends[s]; i++) {
            const struct ebb_part *part = &out->items[i];
            assert_true(part->end >= at);
            assert_ok(room, ebb_str_addf(room->ctx, text, part->learned ? "[%.*s]" : "%.*s",
                                         (int)(part->end - at), out->text.data + at));
            at = part->end;
        }
    }
    assert_int_equal(i, out->count);
    assert_int_equal(at, out->text.bytes);
}

static inline void assert_marks(struct room *room, const struct ebb_rendering *out,
                                const char *wanted)
{
    struct ebb_str text = {0};
    write_marks(room, out, &text);
    assert_string_equal(text.data == NULL ? "" : text.data, wanted);
    ebb_str_free(room->ctx, &text);
}

/* The record is of this format, and is written and marked like this. */
static inline void assert_reads(struct room *room, const char *name,
                                const struct ebb_format_env *env, const char *record,
                                const char *format_wanted, const char *wanted)
{
    struct ebb_rendering out = {0};
    const struct ebb_format *format;
    assert_ok(room, read_one(room, name, env, record, &format, &out));
    assert_string_equal(format->name, format_wanted);
    assert_marks(room, &out, wanted);
    ebb_rendering_free(room->ctx, &out);
}

struct bad {
    const char *record, *says, *more;
};

static inline void assert_refused(struct room *room, const struct ebb_format_env *env,
                                  const char *name, enum ebb_status status, const struct bad *cases,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ebb_rendering out = {0};
        const struct ebb_format *format;
        enum ebb_status got = read_one(room, name, env, cases[i].record, &format, &out);
        if (got != status) print_error("case %zu: %s\n", i, cases[i].record);
        assert_failed(room, got, status, cases[i].says, cases[i].more, NULL);
        ebb_rendering_free(room->ctx, &out);
    }
}
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Records. */
#define HI          "{\"role\": \"user\", \"content\": \"Hi\"}"
#define BYE         "{\"role\": \"user\", \"content\": \"Bye\"}"
#define HO          "{\"role\": \"assistant\", \"content\": \"Ho\"}"
#define CHAT(turns) "{\"messages\": [" turns "]}"
#define SENT(turns) "{\"conversations\": [{\"from\": \"human\", \"value\": \"Hi\"}, " turns "]}"

#endif
