/* Generation: the prompt through the decode program in tiles, then token by token.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/generate.h"

#include "base/clock.h"
#include "train/sample.h"

struct generation {
    struct ebb_ctx *ctx;
    struct ebb_engine *engine;
    struct ebb_sampler *sampler;
    int64_t max_new_tokens;
    ebb_generate_id_fn fn;
    void *user;
    struct ebb_generate_result *result;
};

/* What holds one token's text until it is passed on. */
struct printer {
    struct ebb_ctx *ctx;
    const struct ebb_tokenizer *tokenizer;
    struct ebb_decode_stream stream;
    struct ebb_str piece;
    ebb_generate_fn fn;
    void *user;
};

static enum ebb_status check_prompt(const struct generation *g, const int32_t *prompt,
                                    int64_t count)
{
    int64_t cache = ebb_engine_plan(g->engine)->request.capacity.cache_tokens;
    int64_t vocab = ebb_engine_config(g->engine)->vocab;
    if (g->max_new_tokens < 0)
        return EBB_FAIL(g->ctx, EBB_BAD_CONFIG, "max_new_tokens is %lld, must be 0 or more",
                        (long long)g->max_new_tokens);
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
    return false;
}

/* Samples until an end token, max_new_tokens or the end of the cache. `logits` are the prompt's
 * last, `cached` its tokens. The last token is not run through the model: nobody would read what
 * follows from it. */
static enum ebb_status go_on(struct generation *g, const float *logits, int64_t cached)
{
    int64_t cache = ebb_engine_plan(g->engine)->request.capacity.cache_tokens;
    struct ebb_generate_result *result = g->result;
    while (result->new_tokens < g->max_new_tokens) {
        int32_t id;
        EBB_TRY(ebb_sampler_next(g->ctx, g->sampler, logits,
                                 result->prompt_tokens + result->new_tokens, &id));
        if (is_end(g, id)) {
            result->ended = true;
            return EBB_OK;
        }
        result->new_tokens++;
        EBB_TRY(g->fn(g->user, id));
        if (result->new_tokens == g->max_new_tokens) return EBB_OK;
        if (cached == cache) {
            result->full = true;
            return EBB_OK;
        }
        ebb_sampler_see(g->sampler, &id, 1);
        EBB_TRY(ebb_engine_decode(g->engine, &id, 1, cached, &logits));
        cached++;
    }
    return EBB_OK;
}

enum ebb_status ebb_generate_ids(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                 const int32_t *prompt, int64_t count,
                                 const struct ebb_generate_keys *keys, ebb_generate_id_fn fn,
                                 void *user, struct ebb_generate_result *result)
{
    struct generation g = {ctx, engine, NULL, keys->max_new_tokens, fn, user, result};
    struct ebb_sample_keys sampling = {keys->temperature, keys->top_p, keys->top_k,
                                       keys->repetition_penalty, keys->seed};
    const float *logits = NULL;
    memset(result, 0, sizeof *result);
    EBB_ASSERT(ebb_engine_plan(engine)->programs[EBB_PROGRAM_DECODE]);
    EBB_TRY(check_prompt(&g, prompt, count));
    EBB_TRY(ebb_sampler_create(ctx, &sampling, ebb_engine_config(engine)->vocab, &g.sampler));
    ebb_sampler_see(g.sampler, prompt, count);
    double start = ebb_clock_seconds();
    enum ebb_status status = ebb_engine_decode(engine, prompt, count, 0, &logits);
    double middle = ebb_clock_seconds();
    result->prompt_tokens = count;
    result->prompt_seconds = middle - start;
    if (status == EBB_OK) status = go_on(&g, logits, count);
    result->seconds = ebb_clock_seconds() - middle;
    ebb_sampler_free(ctx, g.sampler);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void pass_on(struct printer *p)
{
    if (p->piece.bytes > 0) p->fn(p->user, p->piece.data, p->piece.bytes);
    p->piece.bytes = 0;
}

static enum ebb_status print_id(void *user, int32_t id)
{
    struct printer *p = (struct printer *)user;
    EBB_TRY(ebb_decode_add(p->ctx, p->tokenizer, &p->stream, id, true, &p->piece));
    pass_on(p);
    return EBB_OK;
}

enum ebb_status ebb_generate(struct ebb_ctx *ctx, struct ebb_engine *engine,
                             const struct ebb_tokenizer *tokenizer, const char *prompt,
                             const struct ebb_generate_keys *keys, ebb_generate_fn fn, void *user,
                             struct ebb_generate_result *result)
{
    struct printer printer = {.ctx = ctx, .tokenizer = tokenizer, .fn = fn, .user = user};
    struct ebb_ids ids = {0};
    memset(result, 0, sizeof *result);
    enum ebb_status status =
        ebb_tokenizer_encode(ctx, tokenizer, prompt, strlen(prompt), EBB_ENCODE_PREFIX, &ids);
    if (status == EBB_OK)
        status =
            ebb_generate_ids(ctx, engine, ids.data, ids.count, keys, print_id, &printer, result);
    if (status == EBB_OK) status = ebb_decode_end(ctx, &printer.stream, &printer.piece);
    if (status == EBB_OK) pass_on(&printer);
    ebb_str_free(ctx, &printer.piece);
    ebb_ids_free(ctx, &ids);
    return status;
}
