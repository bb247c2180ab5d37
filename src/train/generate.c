/* Generation: the prompt through the decode program in tiles, then token by token.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/generate.h"

#include <string.h>

#include "base/clock.h"
#include "train/sample.h"

struct generation {
    struct ebb_ctx *ctx;
    struct ebb_engine *engine;
    struct ebb_sampler *sampler;
    const struct ebb_generate_keys *keys;
    ebb_generate_id_fn fn;
    void *user;
    struct ebb_generate_result *result;
};

/* What holds text until it is passed on. */
struct printer {
    struct ebb_ctx *ctx;
    const struct ebb_tokenizer *tokenizer;
    const struct ebb_generate_keys *keys;
    struct ebb_decode_stream stream;
    struct ebb_str held;
    struct ebb_ids *ids; /* NULL: nobody wants them */
    bool stopped;
    ebb_generate_fn fn;
    void *user;
};

static enum ebb_status check_prompt(const struct generation *g, const int32_t *prompt,
                                    int64_t count)
{
    int64_t cache = ebb_engine_plan(g->engine)->request.capacity.cache_tokens;
    int64_t vocab = ebb_engine_config(g->engine)->vocab;
    if (g->keys->max_new_tokens < 0)
        return EBB_FAIL(g->ctx, EBB_BAD_CONFIG, "max_new_tokens is %lld, must be 0 or more",
                        (long long)g->keys->max_new_tokens);
    if (count <= 0)
        return EBB_FAIL(g->ctx, EBB_BAD_CONFIG,
                        "the prompt has no tokens, and the tokenizer puts none before it\ntry:   a "
                        "prompt with text");
    if (count > cache)
        return EBB_FAIL(g->ctx, EBB_BAD_CONFIG,
                        "the prompt has %lld tokens, but the key and value cache has room for "
                        "%lld\ntry:   a shorter "
                        "prompt, or a larger cache",
                        (long long)count, (long long)cache);
    for (int64_t i = 0; i < count; i++)
        if (prompt[i] < 0 || prompt[i] >= vocab)
            return EBB_FAIL(g->ctx, EBB_BAD_CONFIG,
                            "the prompt's token %lld has id %ld, but the model's embedding has "
                            "%lld rows: tokenizer and "
                            "model do not belong together",
                            (long long)i, (long)prompt[i], (long long)vocab);
    return EBB_OK;
}

static bool is_end(const struct generation *g, int32_t id)
{
    const struct ebb_model_config *config = ebb_engine_config(g->engine);
    for (int i = 0; i < config->eos_count; i++)
        if (config->eos_ids[i] == id) return true;
    for (int64_t i = 0; i < g->keys->end_count; i++)
        if (g->keys->end_ids[i] == id) return true;
    return false;
}

static bool is_interrupted(struct generation *g)
{
    const struct ebb_generate_keys *keys = g->keys;
    if (!g->result->interrupted && keys->interrupted)
        g->result->interrupted = keys->interrupted(keys->interrupted_user);
    return g->result->interrupted;
}

/* Reads what of the prompt is not in the cache, a program's capacity at a time. The last token is
 * read in any case: what follows from it is wanted. */
static enum ebb_status read_prompt(struct generation *g, const int32_t *prompt, int64_t count,
                                   const float **logits)
{
    int64_t tile = ebb_engine_plan(g->engine)->request.capacity.tokens;
    struct ebb_generate_result *result = g->result;
    EBB_ASSERT(g->keys->cached >= 0 && g->keys->cached <= count);
    result->prompt_tokens = count;
    result->reused_tokens = g->keys->cached < count ? g->keys->cached : count - 1;
    result->cached_tokens = result->reused_tokens;
    while (result->cached_tokens < count && !is_interrupted(g)) {
        int64_t at = result->cached_tokens, n = count - at < tile ? count - at : tile;
        EBB_TRY(ebb_engine_decode(g->engine, prompt + at, n, at, logits));
        result->cached_tokens += n;
    }
    return EBB_OK;
}

/* Samples until something ends it. `logits` are the prompt's last. The last token is not run
 * through the model: nobody would read what follows from it. */
static enum ebb_status go_on(struct generation *g, const float *logits)
{
    int64_t cache = ebb_engine_plan(g->engine)->request.capacity.cache_tokens;
    struct ebb_generate_result *result = g->result;
    while (result->new_tokens < g->keys->max_new_tokens && !is_interrupted(g)) {
        int32_t id;
        EBB_TRY(ebb_sampler_next(g->ctx, g->sampler, logits,
                                 result->prompt_tokens + result->new_tokens, &id));
        result->ended = is_end(g, id);
        if (result->ended) return EBB_OK;
        result->new_tokens++;
        EBB_TRY(g->fn(g->user, id, &result->stopped));
        if (result->stopped || result->new_tokens == g->keys->max_new_tokens) return EBB_OK;
        result->full = result->cached_tokens == cache;
        if (result->full) return EBB_OK;
        ebb_sampler_see(g->sampler, &id, 1);
        EBB_TRY(ebb_engine_decode(g->engine, &id, 1, result->cached_tokens, &logits));
        result->cached_tokens++;
    }
    return EBB_OK;
}

enum ebb_status ebb_generate_ids(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                 const int32_t *prompt, int64_t count,
                                 const struct ebb_generate_keys *keys, ebb_generate_id_fn fn,
                                 void *user, struct ebb_generate_result *result)
{
    struct generation g = {ctx, engine, NULL, keys, fn, user, result};
    struct ebb_sample_keys sampling = {keys->temperature, keys->top_p, keys->top_k,
                                       keys->repetition_penalty, keys->seed};
    const float *logits = NULL;
    memset(result, 0, sizeof *result);
    EBB_ASSERT(ebb_engine_plan(engine)->programs[EBB_PROGRAM_DECODE]);
    EBB_TRY(check_prompt(&g, prompt, count));
    EBB_TRY(ebb_sampler_create(ctx, &sampling, ebb_engine_config(engine)->vocab, &g.sampler));
    ebb_sampler_see(g.sampler, prompt, count);
    double start = ebb_clock_seconds();
    enum ebb_status status = read_prompt(&g, prompt, count, &logits);
    double middle = ebb_clock_seconds();
    result->prompt_seconds = middle - start;
    if (status == EBB_OK) status = go_on(&g, logits);
    result->seconds = ebb_clock_seconds() - middle;
    ebb_sampler_free(ctx, g.sampler);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Where the first stop text in `held` begins; its length where there is none. */
static size_t find_stop(const struct printer *p)
{
    size_t first = p->held.bytes;
    for (int64_t i = 0; i < p->keys->stop_count; i++) {
        const char *at = (const char *)memmem(p->held.data, p->held.bytes, p->keys->stops[i],
                                              strlen(p->keys->stops[i]));
        if (at && (size_t)(at - p->held.data) < first) first = (size_t)(at - p->held.data);
    }
    return first;
}

/* How many bytes at the end of `held` may be the beginning of a stop text. They begin a character,
 * as every text does. */
static size_t doubtful(const struct printer *p)
{
    size_t most = 0;
    for (int64_t i = 0; i < p->keys->stop_count; i++) {
        size_t bytes = strlen(p->keys->stops[i]) - 1;
        if (bytes > p->held.bytes) bytes = p->held.bytes;
        while (bytes > most &&
               memcmp(p->held.data + p->held.bytes - bytes, p->keys->stops[i], bytes) != 0)
            bytes--;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Passes on what is certain: at the end of the text everything before a stop text. */
static void pass_on(struct printer *p, bool end)
{
    if (p->held.bytes == 0) return;
    size_t sure = find_stop(p);
    p->stopped = p->stopped || sure < p->held.bytes;
    if (!p->stopped && !end) sure -= doubtful(p);
    if (sure > 0) p->fn(p->user, p->held.data, sure);
    p->held.bytes = p->stopped ? 0 : p->held.bytes - sure;
    memmove(p->held.data, p->held.data + sure, p->held.bytes);
}

static enum ebb_status print_id(void *user, int32_t id, bool *stop)
{
    struct printer *p = (struct printer *)user;
    if (p->ids) EBB_TRY(ebb_ids_add(p->ctx, p->ids, &id, 1));
    EBB_TRY(ebb_decode_add(p->ctx, p->tokenizer, &p->stream, id, true, &p->held));
    pass_on(p, false);
    *stop = p->stopped;
    return EBB_OK;
}

enum ebb_status ebb_generate_text(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                  const struct ebb_tokenizer *tokenizer, const int32_t *prompt,
                                  int64_t count, const struct ebb_generate_keys *keys,
                                  ebb_generate_fn fn, void *user, struct ebb_ids *ids,
                                  struct ebb_generate_result *result)
{
    struct printer printer = {
        .ctx = ctx, .tokenizer = tokenizer, .keys = keys, .ids = ids, .fn = fn, .user = user};
    enum ebb_status status =
        ebb_generate_ids(ctx, engine, prompt, count, keys, print_id, &printer, result);
    if (status == EBB_OK && !printer.stopped) {
        status = ebb_decode_end(ctx, &printer.stream, &printer.held);
        pass_on(&printer, true);
    }
    ebb_str_free(ctx, &printer.held);
    return status;
}

enum ebb_status ebb_generate(struct ebb_ctx *ctx, struct ebb_engine *engine,
                             const struct ebb_tokenizer *tokenizer, const char *prompt,
                             const struct ebb_generate_keys *keys, ebb_generate_fn fn, void *user,
                             struct ebb_generate_result *result)
{
    struct ebb_ids ids = {0};
    memset(result, 0, sizeof *result);
    enum ebb_status status =
        ebb_tokenizer_encode(ctx, tokenizer, prompt, strlen(prompt), EBB_ENCODE_PREFIX, &ids);
    if (status == EBB_OK)
        status = ebb_generate_text(ctx, engine, tokenizer, ids.data, ids.count, keys, fn, user,
                                   NULL, result);
    ebb_ids_free(ctx, &ids);
    return status;
}
