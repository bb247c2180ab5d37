/* Where in a rendered conversation the assistant speaks.
 *
 * For each assistant message two variants of it are rendered, x and y, alike in shape and different
 * from the first to the last letter of what the assistant says. Up to where x and y part, and from
 * where they are alike again, the text is the template's and other messages'. The true rendering
 * must have both parts too; what is between them is the message.
 *
 * First the variants are plain content without tool calls and reasoning (PLAIN): they part exactly
 * where content begins, so what the template writes before it is known. The span begins where the
 * generation prompt ends in that: what the template writes between prompt and content the model has
 * to say itself. Without the prompt there it begins with the content. Where a template refuses
 * that, or writes what follows differently, the variants keep the message's shape (SHAPED): names,
 * arguments and texts in it are replaced. They part inside what the template writes around tool
 * calls, so beginning and end are found with the generation prompt and with the conversation cut
 * behind the message.
 *
 * Renderings of variants may fail: a template may insist on alternating roles. Such failures are
 * nobody's error, so they happen in a context of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/chat_template.h"

#include <string.h>

#include "data/chat_template_int.h"

struct finder {
    struct ebb_ctx *ctx, *quiet;
    const struct ebb_chat_template *chat;
    const struct ebb_chat_options *options;
    const char *where;
    json_t *shown;
    size_t at;           /* the message */
    struct ebb_str text; /* the true rendering; borrowed */
    size_t behind;       /* where the span of the assistant's message before it ends */
    struct ebb_str prompt;
    bool has_prompt; /* the generation prompt is known; it may be empty */
};

enum shape { PLAIN, SHAPED };

/* Two variants rendered: alike in [0, begin) and in the last `tail` bytes. */
struct pair {
    struct ebb_str x, y;
    size_t begin, tail;
};

static const char *const sentinels[2][2] = {{"Q", "Z"}, {"Y", "K"}};

static enum ebb_status no_memory(struct ebb_ctx *ctx)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for locating a message");
}

static size_t common_prefix(const struct ebb_str *a, const struct ebb_str *b, size_t most)
{
    size_t i = 0;
    if (a->bytes < most) most = a->bytes;
    if (b->bytes < most) most = b->bytes;
    while (i < most && a->data[i] == b->data[i]) i++;
    return i;
}

static size_t common_suffix(const struct ebb_str *a, const struct ebb_str *b, size_t most)
{
    size_t i = 0;
    if (a->bytes < most) most = a->bytes;
    if (b->bytes < most) most = b->bytes;
    while (i < most && a->data[a->bytes - 1 - i] == b->data[b->bytes - 1 - i]) i++;
    return i;
}

/* ---- variants ---- */

/* "Q" kind "Z" or "Y" kind "K". New reference. */
static json_t *sentinel(int which, const char *kind)
{
    return json_pack("s+++", sentinels[which][0], "x", kind, sentinels[which][1]);
}

static bool put(json_t *object, const char *key, json_t *value)
{
    return value != NULL && json_object_set_new(object, key, value) == 0;
}

static bool is_text_part(const json_t *part)
{
    return json_is_string(json_object_get(part, "text"));
}

/* Content as a template gets it in this conversation: a string, or a list of parts. */
static json_t *plain_content(const json_t *old, int which)
{
    if (!json_is_array(old)) return sentinel(which, "text");
    return json_pack("[{s:s,s:o}]", "type", "text", "text", sentinel(which, "text"));
}

static bool make_plain(json_t *message, int which)
{
    static const char *const dropped[] = {"tool_calls", "function_call", "reasoning_content",
                                          "thinking", "reasoning"};
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        json_object_del(message, dropped[i]);
    return put(message, "content", plain_content(json_object_get(message, "content"), which));
}

static bool replace_text(json_t *object, const char *key, int which, const char *kind)
{
    const json_t *old = json_object_get(object, key);
    if (!json_is_string(old) || json_string_length(old) == 0) return true;
    return put(object, key, sentinel(which, kind));
}

/* Another value of the same kind, so that quotes and brackets around it stay; keys stay too. New
 * reference; NULL: no memory. */
static json_t *other_value(json_t *value, int which)
{
    const char *key;
    json_t *one, *made = NULL;
    size_t i;
    bool good = true;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        made = json_object();
        json_object_foreach(value, key, one)
        {
            good = good && put(made, key, other_value(one, which));
        }
        break;
    case JSON_ARRAY:
        made = json_array();
        json_array_foreach(value, i, one)
        {
            good = good && json_array_append_new(made, other_value(one, which)) == 0;
        }
        break;
    case JSON_STRING:
        return sentinel(which, "value");
    case JSON_INTEGER:
        return json_integer(which == 0 ? 7 : 8);
    case JSON_REAL:
        return json_real(which == 0 ? 7.5 : 8.2);
    case JSON_TRUE:
    case JSON_FALSE:
        return json_boolean(which == 0);
    case JSON_NULL:
        return json_null();
    }
    if (good) return made;
    json_decref(made);
    return NULL;
}

/* A call: {"function": {name, arguments}} or {name, arguments}. Arguments that are a string are
 * text to a template. */
static bool replace_call(json_t *call, int which)
{
    json_t *function = json_object_get(call, "function");
    if (json_is_object(function)) call = function;
    json_t *arguments = json_object_get(call, "arguments");
    return replace_text(call, "name", which, "name") &&
           (arguments == NULL || put(call, "arguments", other_value(arguments, which)));
}

static bool make_shaped(json_t *message, int which)
{
    size_t i;
    json_t *one, *content = json_object_get(message, "content");
    bool good = replace_text(message, "content", which, "text");
    json_array_foreach(content, i, one)
    {
        if (is_text_part(one)) good &= replace_text(one, "text", which, "text");
    }
    good &= replace_text(message, "reasoning_content", which, "why");
    good &= replace_text(message, "thinking", which, "why");
    good &= replace_text(message, "reasoning", which, "why");
    json_array_foreach(json_object_get(message, "tool_calls"), i, one)
    {
        good &= replace_call(one, which);
    }
    if (json_is_object(json_object_get(message, "function_call")))
        good &= replace_call(json_object_get(message, "function_call"), which);
    return good;
}

/* The conversation, with the message replaced unless which < 0, and cut behind it if `cut`.
 * New reference; NULL: no memory. */
static json_t *conversation(const struct finder *finder, enum shape shape, int which, bool cut)
{
    json_t *made = json_array(),
           *message = json_deep_copy(json_array_get(finder->shown, finder->at));
    size_t count = cut ? finder->at + 1 : json_array_size(finder->shown);
    bool good = made != NULL && message != NULL;
    if (good && which >= 0)
        good = shape == PLAIN ? make_plain(message, which) : make_shaped(message, which);
    for (size_t i = 0; good && i < count; i++)
        good = json_array_append(made,
                                 i == finder->at ? message : json_array_get(finder->shown, i)) == 0;
    json_decref(message);
    if (good) return made;
    json_decref(made);
    return NULL;
}

/* ---- renderings that may fail ---- */

/* *done is false where the template refuses; other failures are returned. */
static enum ebb_status try_render(struct finder *finder, json_t *messages, bool prompt,
                                  struct ebb_str *out, bool *done)
{
    *done = false;
    if (messages == NULL) return no_memory(finder->ctx);
    enum ebb_status status = ebb_chat_render_shown(finder->quiet, finder->chat, finder->where,
                                                   messages, finder->options, prompt, out, NULL);
    *done = status == EBB_OK;
    ebb_error_clear(finder->quiet);
    if (status == EBB_NO_MEMORY) return no_memory(finder->ctx);
    return EBB_OK;
}

static void free_pair(struct finder *finder, struct pair *pair)
{
    ebb_str_free(finder->quiet, &pair->x);
    ebb_str_free(finder->quiet, &pair->y);
    memset(pair, 0, sizeof *pair);
}

static enum ebb_status render_one(struct finder *finder, enum shape shape, int which, bool cut,
                                  struct ebb_str *out, bool *done)
{
    json_t *messages = conversation(finder, shape, which, cut);
    enum ebb_status status = try_render(finder, messages, false, out, done);
    json_decref(messages);
    return status;
}

/* *done is false where the template refuses a variant or shows none of what is in it. */
static enum ebb_status render_pair(struct finder *finder, enum shape shape, bool cut,
                                   struct pair *pair, bool *done)
{
    memset(pair, 0, sizeof *pair);
    EBB_TRY(render_one(finder, shape, 0, cut, &pair->x, done));
    if (*done) EBB_TRY(render_one(finder, shape, 1, cut, &pair->y, done));
    if (!*done) return EBB_OK;
    pair->begin = common_prefix(&pair->x, &pair->y, SIZE_MAX);
    size_t shorter = pair->x.bytes < pair->y.bytes ? pair->x.bytes : pair->y.bytes;
    pair->tail = common_suffix(&pair->x, &pair->y, shorter - pair->begin);
    *done = pair->begin + pair->tail < pair->x.bytes;
    return EBB_OK;
}

/* What the generation prompt adds to the conversation. A template that ends a conversation in its
 * own way has the prompt instead of that; then it is what comes behind the common part. */
static enum ebb_status find_prompt(struct finder *finder)
{
    struct ebb_str with = {0};
    bool done;
    enum ebb_status status = try_render(finder, finder->shown, true, &with, &done);
    if (status == EBB_OK && done) {
        size_t same = common_prefix(&with, &finder->text, SIZE_MAX);
        status = ebb_str_add(finder->ctx, &finder->prompt,
                             with.data != NULL ? with.data + same : "", with.bytes - same);
        finder->has_prompt = status == EBB_OK;
    }
    ebb_str_free(finder->quiet, &with);
    return status;
}

/* ---- beginning ---- */

static bool ends_with(const struct ebb_str *text, size_t end, const struct ebb_str *part)
{
    return part->bytes <= end && (part->bytes == 0 || memcmp(text->data + end - part->bytes,
                                                             part->data, part->bytes) == 0);
}

/* Length of what is before the message when the conversation ends there: the part that the cut
 * conversation with and without it have in common. */
static enum ebb_status length_before(struct finder *finder, const struct pair *cut, size_t *length,
                                     bool *done)
{
    struct ebb_str before = {0};
    json_t *messages = json_array();
    *length = 0;
    *done = true;
    for (size_t i = 0; messages != NULL && i < finder->at; i++)
        if (json_array_append(messages, json_array_get(finder->shown, i)) != 0) {
            json_decref(messages);
            messages = NULL;
        }
    enum ebb_status status = EBB_OK;
    if (messages == NULL || finder->at > 0)
        status = try_render(finder, messages, false, &before, done);
    if (status == EBB_OK && *done) *length = common_prefix(&before, &cut->x, SIZE_MAX);
    json_decref(messages);
    ebb_str_free(finder->quiet, &before);
    return status;
}

/* Is what stands in x of `pair` in [begin, pair->begin) this turn's own? In the conversation cut
 * behind the message, the same must be before the place where variants part, and behind all that
 * is there without the message. */
static enum ebb_status check_lead(struct finder *finder, enum shape shape, const struct pair *pair,
                                  size_t begin, bool *good)
{
    struct pair cut;
    size_t before, lead = pair->begin - begin;
    enum ebb_status status = render_pair(finder, shape, true, &cut, good);
    if (status == EBB_OK && *good) status = length_before(finder, &cut, &before, good);
    if (status == EBB_OK && *good)
        *good =
            cut.begin >= lead && cut.begin - lead >= before &&
            (lead == 0 || memcmp(cut.x.data + cut.begin - lead, pair->x.data + begin, lead) == 0);
    free_pair(finder, &cut);
    return status;
}

/* The last end of a generation prompt at or before `most`, in the turn itself: data may have the
 * prompt's text too. */
static enum ebb_status behind_prompt(struct finder *finder, enum shape shape,
                                     const struct pair *pair, size_t most, size_t *begin,
                                     bool *good)
{
    *good = false;
    if (!finder->has_prompt || finder->prompt.bytes == 0) return EBB_OK;
    size_t end = most;
    while (end > finder->behind && !ends_with(&pair->x, end, &finder->prompt)) end--;
    if (end < finder->behind || !ends_with(&pair->x, end, &finder->prompt)) return EBB_OK;
    *begin = end;
    return check_lead(finder, shape, pair, end, good);
}

/* Without a generation prompt: the turn begins to differ from plain content at its beginning. */
static enum ebb_status behind_header(struct finder *finder, const struct pair *pair, size_t *begin,
                                     bool *good)
{
    struct pair plain, shaped = {0};
    enum ebb_status status = render_pair(finder, PLAIN, true, &plain, good);
    if (status == EBB_OK && *good) status = render_pair(finder, SHAPED, true, &shaped, good);
    if (status == EBB_OK && *good) {
        size_t parted = common_prefix(&plain.x, &shaped.x, plain.begin);
        *good = parted <= shaped.begin && shaped.begin - parted <= pair->begin;
        if (*good) *begin = pair->begin - (shaped.begin - parted);
    }
    free_pair(finder, &plain);
    free_pair(finder, &shaped);
    if (status != EBB_OK || !*good) return status;
    return check_lead(finder, SHAPED, pair, *begin, good);
}

/* ---- end ---- */

/* Length of the special token that stands at the beginning (or the end) of text[begin, end); the
 * longest. A token that begins texts ends none. */
static size_t special_in(const struct ebb_chat_template *chat, const struct ebb_str *text,
                         size_t begin, size_t end, bool at_end)
{
    const char *token, *bos = ebb_chat_template_token(chat, "bos_token");
    const char *eos = ebb_chat_template_token(chat, "eos_token");
    json_t *ignored;
    size_t best = 0;
    json_object_foreach(chat->specials, token, ignored)
    {
        size_t bytes = strlen(token);
        if (bos != NULL && strcmp(token, bos) == 0 && (eos == NULL || strcmp(bos, eos) != 0))
            continue;
        if (bytes > best && bytes <= end - begin &&
            memcmp(token, text->data + (at_end ? end - bytes : begin), bytes) == 0)
            best = bytes;
    }
    return best;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* What ends the turn when nothing follows it must follow it here too; `from` is where the
 * assistant's own text ends. */
static enum ebb_status end_by_cut(struct finder *finder, enum shape shape, const struct pair *pair,
                                  size_t from, struct ebb_chat_span *span, bool *good)
{
    struct pair cut;
    enum ebb_status status = render_pair(finder, shape, true, &cut, good);
    if (status == EBB_OK && *good) {
        const char *tail = cut.x.data + cut.x.bytes - cut.tail;
        size_t own = pair->x.bytes - pair->begin - pair->tail, bytes = cut.tail;
        *good = bytes <= finder->text.bytes - from &&
                memcmp(finder->text.data + from, tail, bytes) == 0 &&
                cut.x.bytes - cut.begin - cut.tail == own &&
                memcmp(cut.x.data + cut.begin, pair->x.data + pair->begin, own) == 0;
        while (bytes > 0 && is_space(tail[bytes - 1])) bytes--;
        span->end = from + bytes;
        span->ended = bytes > 0;
    }
    free_pair(finder, &cut);
    return status;
}

static enum ebb_status find_end(struct finder *finder, enum shape shape, const struct pair *pair,
                                struct ebb_chat_span *span, bool *good)
{
    const struct ebb_str *text = &finder->text;
    size_t from = text->bytes - pair->tail, at = from;
    *good = true;
    span->end = from;
    span->ended = false;
    if (shape == SHAPED) return end_by_cut(finder, shape, pair, from, span, good);
    while (at < text->bytes && is_space(text->data[at])) at++;
    size_t token = special_in(finder->chat, text, at, text->bytes, false);
    if (token > 0) {
        span->end = at + token;
        span->ended = true;
        return EBB_OK;
    }
    EBB_TRY(end_by_cut(finder, shape, pair, from, span, good));
    if (*good) return EBB_OK;
    /* Nothing ends the turn: the text does. */
    *good = true;
    span->end = from;
    span->ended = false;
    return EBB_OK;
}

/* ---- one message ---- */

static bool starts_with(const struct ebb_str *text, size_t at, const char *part)
{
    size_t bytes = strlen(part);
    return text->bytes - at >= bytes && memcmp(text->data + at, part, bytes) == 0;
}

static enum ebb_status find_begin(struct finder *finder, enum shape shape, const struct pair *pair,
                                  size_t same, size_t *begin, bool *good)
{
    bool at_content =
        same == pair->begin && (shape == PLAIN || starts_with(&pair->x, pair->begin, "Qxtext"));
    *begin = same;
    *good = true;
    /* The usual case: nothing is between prompt and content. */
    if (at_content && ends_with(&pair->x, same, &finder->prompt)) return EBB_OK;
    EBB_TRY(behind_prompt(finder, shape, pair, same, begin, good));
    if (!*good && at_content) {
        *begin = same;
        *good = true;
    }
    /* Without a prompt to go by, the message begins where it becomes different. */
    if (*good || !finder->has_prompt || finder->prompt.bytes > 0) return EBB_OK;
    if (shape == SHAPED) return behind_header(finder, pair, begin, good);
    *begin = same;
    return check_lead(finder, shape, pair, same, good);
}

/* Does x differ from the true text in the message alone? `same`: bytes that they begin with, up to
 * where the variants part. */
static bool fits(const struct finder *finder, enum shape shape, const struct pair *pair,
                 size_t same)
{
    const struct ebb_str *text = &finder->text;
    if (same + pair->tail > text->bytes) return false;
    if (common_suffix(text, &pair->x, pair->tail) < pair->tail) return false;
    if (shape == SHAPED) return same == pair->begin;
    /* The content stands in one place, and as it was given. */
    return pair->x.bytes - pair->begin - pair->tail == strlen("QxtextZ") &&
           starts_with(&pair->x, pair->begin, "QxtextZ");
}

/* Plain content hides what a template does with tool calls: it may write the call's result among
 * them. Do the messages before and behind this one have their text outside of [begin, end)? */
static enum ebb_status check_neighbours(const struct finder *finder, size_t begin, size_t end,
                                        bool *good)
{
    const struct ebb_str *text = &finder->text;
    for (int side = 0; *good && side < 2; side++) {
        struct finder other = *finder;
        struct pair pair;
        bool shown;
        other.at = side == 0 ? finder->at - 1 : finder->at + 1;
        if (other.at >= json_array_size(finder->shown)) continue;
        enum ebb_status status = render_pair(&other, PLAIN, false, &pair, &shown);
        size_t behind = text->bytes - begin;
        if (status == EBB_OK && !shown)
            *good = pair.x.bytes > 0 && pair.x.bytes == pair.y.bytes; /* not in the text at all */
        else if (status == EBB_OK && side == 0)
            *good = pair.tail >= behind && common_suffix(text, &pair.x, behind) == behind;
        else if (status == EBB_OK)
            *good = pair.begin >= end && common_prefix(text, &pair.x, end) == end;
        free_pair(&other, &pair);
        EBB_TRY(status);
    }
    return EBB_OK;
}

static bool has_calls(const struct finder *finder)
{
    const json_t *message = json_array_get(finder->shown, finder->at);
    return json_array_size(json_object_get(message, "tool_calls")) > 0 ||
           json_is_object(json_object_get(message, "function_call"));
}

static enum ebb_status locate(struct finder *finder, enum shape shape, struct ebb_chat_span *span,
                              bool *good)
{
    struct pair pair;
    enum ebb_status status = render_pair(finder, shape, false, &pair, good);
    size_t same = 0;
    if (status == EBB_OK && *good) {
        same = common_prefix(&finder->text, &pair.x, pair.begin);
        *good = fits(finder, shape, &pair, same);
    }
    if (status == EBB_OK && *good)
        status = find_begin(finder, shape, &pair, same, &span->begin, good);
    if (status == EBB_OK && *good && shape == PLAIN && has_calls(finder))
        status = check_neighbours(finder, span->begin, finder->text.bytes - pair.tail, good);
    if (status == EBB_OK && *good) status = find_end(finder, shape, &pair, span, good);
    if (*good && span->end < span->begin) *good = false;
    free_pair(finder, &pair);
    return status;
}

static enum ebb_status locate_any(struct finder *finder, struct ebb_chat_span *span)
{
    bool good;
    span->message = (int64_t)finder->at;
    EBB_TRY(locate(finder, PLAIN, span, &good));
    if (!good) EBB_TRY(locate(finder, SHAPED, span, &good));
    if (good && span->begin >= finder->behind) return EBB_OK;
    return EBB_FAIL(finder->ctx, EBB_BAD_FILE,
                    "%s: message %zu (assistant) cannot be located in what %s makes of it, so what "
                    "is to be trained is not known\n  mark it in the template with {%% generation "
                    "%%} and {%% endgeneration %%}, or give prompt and completion instead",
                    finder->where, finder->at + 1, finder->chat->name);
}

/* ---- all messages ---- */

static enum ebb_status add_span(struct ebb_ctx *ctx, struct ebb_chat_spans *spans,
                                const struct ebb_chat_span *span)
{
    if (spans->count == spans->room) {
        int64_t room = spans->room > 0 ? spans->room * 2 : 8;
        struct ebb_chat_span *grown =
            (struct ebb_chat_span *)ebb_mem_realloc(ctx, spans->items,
                                                    (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        spans->items = grown;
        spans->room = room;
    }
    spans->items[spans->count++] = *span;
    return EBB_OK;
}

void ebb_chat_spans_free(struct ebb_ctx *ctx, struct ebb_chat_spans *spans)
{
    ebb_mem_free(ctx, spans->items);
    memset(spans, 0, sizeof *spans);
}

static bool is_assistant(const json_t *shown, size_t at)
{
    const char *role = json_string_value(json_object_get(json_array_get(shown, at), "role"));
    return role != NULL && strcmp(role, "assistant") == 0;
}

/* {% generation %}: as many as assistant messages are theirs, in order. */
static enum ebb_status take_marked(struct finder *finder, const struct ebb_jinja_spans *marked,
                                   struct ebb_chat_spans *spans)
{
    int64_t assistants = 0;
    size_t at = 0, count = json_array_size(finder->shown);
    for (size_t i = 0; i < count; i++) assistants += is_assistant(finder->shown, i);
    for (int64_t i = 0; i < marked->count; i++) {
        struct ebb_chat_span span = {marked->items[i].begin, marked->items[i].end, -1, false};
        while (assistants == marked->count && at < count && !is_assistant(finder->shown, at)) at++;
        if (assistants == marked->count) span.message = (int64_t)at++;
        size_t end = span.end;
        while (end > span.begin && is_space(finder->text.data[end - 1])) end--;
        span.ended = special_in(finder->chat, &finder->text, span.begin, end, true) > 0;
        EBB_TRY(add_span(finder->ctx, spans, &span));
    }
    return EBB_OK;
}

static enum ebb_status find_all(struct finder *finder, struct ebb_chat_spans *spans)
{
    EBB_TRY(find_prompt(finder));
    for (finder->at = 0; finder->at < json_array_size(finder->shown); finder->at++) {
        struct ebb_chat_span span;
        if (!is_assistant(finder->shown, finder->at)) continue;
        EBB_TRY(locate_any(finder, &span));
        EBB_TRY(add_span(finder->ctx, spans, &span));
        finder->behind = span.end;
    }
    return EBB_OK;
}

enum ebb_status ebb_chat_spans(struct ebb_ctx *ctx, const struct ebb_chat_template *chat,
                               const char *where, const json_t *messages,
                               const struct ebb_chat_options *options, struct ebb_str *out,
                               struct ebb_chat_spans *spans)
{
    struct finder finder = {.ctx = ctx, .chat = chat, .options = options, .where = where};
    struct ebb_jinja_spans marked = {0};
    EBB_ASSERT(!options->add_generation_prompt);
    ebb_str_free(ctx, out);
    spans->count = 0;
    const struct ebb_jinja *jinja = ebb_chat_template_for(chat, options);
    bool marks = jinja != NULL && ebb_jinja_has_generation(jinja);
    EBB_TRY(ebb_chat_render(ctx, chat, where, messages, options, out, marks ? &marked : NULL));
    enum ebb_status status = ebb_chat_messages(ctx, where, messages, options, &finder.shown);
    finder.text = *out;
    if (status == EBB_OK && marks) status = take_marked(&finder, &marked, spans);
    if (status == EBB_OK && !marks) {
        finder.quiet = ebb_ctx_create();
        status = finder.quiet == NULL ? no_memory(ctx) : find_all(&finder, spans);
    }
    ebb_str_free(ctx, &finder.prompt);
    ebb_ctx_free(finder.quiet);
    ebb_jinja_spans_free(ctx, &marked);
    json_decref(finder.shown);
    return status;
}
