/* A conversation: renderings, what of them is cached, and where an answer ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/conversation.h"

#include <string.h>

enum { ENDS_MAX = 2 }; /* the tokenizer's end token and the template's */

struct ebb_conversation {
    struct ebb_ctx *ctx;
    struct ebb_engine *engine; /* borrowed, as the next three */
    const struct ebb_tokenizer *tokenizer;
    const struct ebb_chat_template *chat;
    const json_t *kwargs;
    struct ebb_encoder *encoder;
    json_t *messages;      /* an array */
    struct ebb_ids cached; /* the tokens that the engine's cache holds */
    struct ebb_str rendering;
    struct ebb_ids prompt;
    int32_t ends[ENDS_MAX];
    int64_t end_count;
    bool ends_known;       /* the template's own was looked for */
    struct ebb_ids tokens; /* of each exchange, with all before it */
};

static enum ebb_status fail_memory(struct ebb_ctx *ctx)
{
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory for the conversation's messages");
}

/* ---- where a turn ends ----------------------------------------------------------------------- */

static void add_end(struct ebb_conversation *c, int32_t id)
{
    for (int64_t i = 0; i < c->end_count; i++)
        if (c->ends[i] == id) return;
    if (id >= 0) c->ends[c->end_count++] = id;
}

/* The special token that stands, possibly behind white space, where `said` ends for the last time.
 */
static enum ebb_status special_behind(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                      const struct ebb_str *text, const char *said, int32_t *id)
{
    const char *found = NULL;
    struct ebb_ids ids = {0};
    for (const char *at = text->data; at && (at = strstr(at, said)) != NULL; at++) found = at;
    if (found == NULL) return EBB_OK;
    found += strlen(said);
    found += strspn(found, " \t\r\n");
    size_t bytes = text->bytes - (size_t)(found - text->data);
    enum ebb_status status =
        ebb_tokenizer_encode(ctx, tokenizer, found, bytes, EBB_ENCODE_CONTINUES, &ids);
    if (status == EBB_OK && ids.count > 0 && ebb_tokenizer_is_special(tokenizer, ids.data[0]))
        *id = ids.data[0];
    ebb_ids_free(ctx, &ids);
    return status;
}

enum ebb_status ebb_conversation_end_token(struct ebb_ctx *ctx,
                                           const struct ebb_tokenizer *tokenizer,
                                           const struct ebb_chat_template *chat,
                                           const json_t *chat_kwargs, const json_t *messages,
                                           int32_t *id)
{
    static const char said[] = "Aye Captain";
    struct ebb_chat_options options = {.kwargs = chat_kwargs};
    struct ebb_str text = {0};
    json_t *whole = json_copy((json_t *)(uintptr_t)messages);
    json_t *made_up = json_pack("{s:s, s:s}", "role", "assistant", "content", said);
    enum ebb_status status = EBB_OK;
    *id = -1;
    if (json_array_append_new(whole, made_up) != 0) status = fail_memory(ctx);
    if (status == EBB_OK)
        status = ebb_chat_render(ctx, chat, "the conversation", whole, &options, &text, NULL);
    if (status == EBB_OK) status = special_behind(ctx, tokenizer, &text, said, id);
    ebb_str_free(ctx, &text);
    json_decref(whole);
    return status;
}

static enum ebb_status find_ends(struct ebb_conversation *c)
{
    int32_t id;
    if (c->ends_known) return EBB_OK;
    EBB_TRY(ebb_conversation_end_token(c->ctx, c->tokenizer, c->chat, c->kwargs, c->messages, &id));
    add_end(c, id);
    c->ends_known = true;
    return EBB_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum ebb_status ebb_conversation_create(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                        const struct ebb_tokenizer *tokenizer,
                                        const struct ebb_chat_template *chat,
                                        const json_t *chat_kwargs, struct ebb_conversation **out)
{
    *out = NULL;
    struct ebb_conversation *c = (struct ebb_conversation *)ebb_mem_alloc(ctx, sizeof *c);
    if (c == NULL) return EBB_NO_MEMORY;
    c->ctx = ctx;
    c->engine = engine;
    c->tokenizer = tokenizer;
    c->chat = chat;
    c->kwargs = chat_kwargs;
    c->messages = json_array();
    enum ebb_status status = c->messages ? EBB_OK : fail_memory(c->ctx);
    if (status == EBB_OK) status = ebb_encoder_create(ctx, tokenizer, &c->encoder);
    add_end(c, ebb_tokenizer_eos(tokenizer));
    if (status != EBB_OK) {
        ebb_conversation_free(c);
        return status;
    }
    *out = c;
    return EBB_OK;
}

void ebb_conversation_free(struct ebb_conversation *c)
{
    if (c == NULL) return;
    json_decref(c->messages);
    ebb_encoder_free(c->ctx, c->encoder);
    ebb_ids_free(c->ctx, &c->cached);
    ebb_ids_free(c->ctx, &c->prompt);
    ebb_ids_free(c->ctx, &c->tokens);
    ebb_str_free(c->ctx, &c->rendering);
    ebb_mem_free(c->ctx, c);
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool is_role(const json_t *message, const char *role)
{
    const char *text = json_string_value(json_object_get(message, "role"));
    return text && strcmp(text, role) == 0;
}

static json_t *message_of(const char *role, const char *text, size_t bytes)
{
    return json_pack("{s:s, s:s%}", "role", role, "content", text, bytes);
}

static enum ebb_status add_message(struct ebb_conversation *c, const char *role, const char *text,
                                   size_t bytes)
{
    bool added = json_array_append_new(c->messages, message_of(role, text, bytes)) == 0;
    return added ? EBB_OK : fail_memory(c->ctx);
}

enum ebb_status ebb_conversation_system(struct ebb_conversation *c, const char *text)
{
    json_t *message = NULL;
    if (text && text[0]) {
        message = message_of("system", text, strlen(text));
        if (message == NULL) return fail_memory(c->ctx);
    }
    if (is_role(json_array_get(c->messages, 0), "system")) json_array_remove(c->messages, 0);
    if (message && json_array_insert_new(c->messages, 0, message) != 0) return fail_memory(c->ctx);
    return EBB_OK;
}

static void drop_last(struct ebb_conversation *c)
{
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

bool ebb_conversation_undo(struct ebb_conversation *c)
{
    size_t count = json_array_size(c->messages);
    if (!is_role(json_array_get(c->messages, count - 1), "assistant")) return false;
    drop_last(c);
    drop_last(c);
    if (c->tokens.count > 0) c->tokens.count--;
    return true;
}

void ebb_conversation_reset(struct ebb_conversation *c)
{
    while (ebb_conversation_undo(c)) continue;
}

const json_t *ebb_conversation_messages(const struct ebb_conversation *c)
{
    return c->messages;
}

int64_t ebb_conversation_tokens(const struct ebb_conversation *c)
{
    return c->tokens.count > 0 ? c->tokens.data[c->tokens.count - 1] : 0;
}

int64_t ebb_conversation_room(const struct ebb_conversation *c)
{
    return ebb_engine_plan(c->engine)->request.capacity.cache_tokens;
}

/* ---- an exchange ----------------------------------------------------------------------------- */

/* What is said is passed on and kept. */
struct answer {
    struct ebb_conversation *c;
    ebb_generate_fn fn;
    void *user;
    struct ebb_str text;
    struct ebb_ids ids;
    enum ebb_status status;
};

static void take_piece(void *user, const char *text, size_t bytes)
{
    struct answer *a = (struct answer *)user;
    if (a->status == EBB_OK) a->status = ebb_str_add(a->c->ctx, &a->text, text, bytes);
    a->fn(a->user, text, bytes);
}

/* The messages as tokens, up to where the answer begins. */
static enum ebb_status make_prompt(struct ebb_conversation *c)
{
    struct ebb_chat_options options = {.add_generation_prompt = true, .kwargs = c->kwargs};
    c->rendering.bytes = 0;
    c->prompt.count = 0;
    EBB_TRY(ebb_chat_render(c->ctx, c->chat, "the conversation", c->messages, &options,
                            &c->rendering, NULL));
    EBB_TRY(ebb_encode(c->ctx, c->encoder, c->rendering.data ? c->rendering.data : "",
                       c->rendering.bytes, 0, &c->prompt));
    if (c->prompt.count < ebb_conversation_room(c)) return EBB_OK;
    return EBB_FAIL(c->ctx, EBB_DOES_NOT_FIT,
                    "the conversation has %lld tokens with this message, which leaves no room for "
                    "an answer: there is room for %lld\n"
                    "try:   a larger max_length",
                    (long long)c->prompt.count, (long long)ebb_conversation_room(c));
}

static int64_t common_prefix(const struct ebb_ids *a, const struct ebb_ids *b)
{
    int64_t count = 0;
    while (count < a->count && count < b->count && a->data[count] == b->data[count]) count++;
    return count;
}

/* The cache holds the prompt's and the answer's first tokens now. */
static enum ebb_status note_cached(struct ebb_conversation *c, const struct ebb_ids *answer,
                                   int64_t cached)
{
    enum ebb_status status = ebb_ids_add(c->ctx, &c->cached, c->prompt.data, c->prompt.count);
    if (status == EBB_OK) status = ebb_ids_add(c->ctx, &c->cached, answer->data, answer->count);
    c->cached.count = status == EBB_OK ? cached : 0;
    return status;
}

/* The answer becomes a message. */
static enum ebb_status keep_answer(struct ebb_conversation *c, const struct answer *a)
{
    int32_t tokens = (int32_t)(c->prompt.count + a->ids.count);
    EBB_TRY(ebb_ids_add(c->ctx, &c->tokens, &tokens, 1));
    enum ebb_status status =
        add_message(c, "assistant", a->text.data ? a->text.data : "", a->text.bytes);
    if (status != EBB_OK) c->tokens.count--;
    return status;
}

/* The messages end with the user's; the answer to it goes to `a`. */
static enum ebb_status make_answer(struct ebb_conversation *c, const struct ebb_generate_keys *keys,
                                   struct answer *a, struct ebb_generate_result *result)
{
    struct ebb_generate_keys all = *keys;
    EBB_TRY(find_ends(c));
    EBB_TRY(make_prompt(c));
    all.end_ids = c->ends;
    all.end_count = c->end_count;
    all.cached = common_prefix(&c->cached, &c->prompt);
    if (all.max_new_tokens < 0) all.max_new_tokens = INT64_MAX;
    c->cached.count = 0; /* until it is known what a failure leaves of it */
    EBB_TRY(ebb_generate_text(c->ctx, c->engine, c->tokenizer, c->prompt.data, c->prompt.count,
                              &all, take_piece, a, &a->ids, result));
    EBB_TRY(note_cached(c, &a->ids, result->cached_tokens));
    return a->status;
}

enum ebb_status ebb_conversation_say(struct ebb_conversation *c, const char *text,
                                     const struct ebb_generate_keys *keys, ebb_generate_fn fn,
                                     void *user, struct ebb_generate_result *result)
{
    struct answer a = {.c = c, .fn = fn, .user = user};
    memset(result, 0, sizeof *result);
    EBB_TRY(add_message(c, "user", text, strlen(text)));
    enum ebb_status status = make_answer(c, keys, &a, result);
    bool nothing = result->interrupted && result->new_tokens == 0;
    if (status == EBB_OK && !nothing) status = keep_answer(c, &a);
    if (status != EBB_OK || nothing) drop_last(c);
    ebb_str_free(c->ctx, &a.text);
    ebb_ids_free(c->ctx, &a.ids);
    return status;
}
