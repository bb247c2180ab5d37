/* Sampling and generation: the distribution that the keys ask for, the cache, seeds, ends, text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"

#include "model/init.h"
#include "train/generate.h"
#include "train/sample.h"

enum { VOCAB = 8, MOST = 400 };

static const float fixed[VOCAB] = {1.0f, -0.5f, 2.0f, 0.25f, 1.5f, -3.0f, 2.0f, 0.0f};

static struct ebb_sample_keys plain_keys(double temperature)
{
    struct ebb_sample_keys keys = {temperature, 1, 0, 1, 17};
    return keys;
}

static void want_failure(struct ebb_ctx *ctx, enum ebb_status got, enum ebb_status wanted,
                         const char *part)
{
    if (got != wanted || strstr(ebb_error_text(ctx), part) == NULL)
        fail_msg("got %s: \"%s\"\nwanted %s with \"%s\"", ebb_status_name(got), ebb_error_text(ctx),
                 ebb_status_name(wanted), part);
    ebb_error_clear(ctx);
}

/* ---- the sampler ----------------------------------------------------------------------------- */

static struct ebb_sampler *sampler_of(struct ebb_ctx *ctx, struct ebb_sample_keys keys,
                                      int64_t vocab)
{
    struct ebb_sampler *sampler;
    kit_ok(ctx, ebb_sampler_create(ctx, &keys, vocab, &sampler), "sampler");
    return sampler;
}

static int32_t one(struct ebb_ctx *ctx, struct ebb_sample_keys keys, const float *logits,
                   int64_t vocab, int64_t position)
{
    struct ebb_sampler *sampler = sampler_of(ctx, keys, vocab);
    int32_t id = -1;
    kit_ok(ctx, ebb_sampler_next(ctx, sampler, logits, position, &id), "next");
    ebb_sampler_free(ctx, sampler);
    return id;
}

/* Draws at many positions; the counts are compared with `wanted` (probabilities; 0: never) by
 * chi-square. */
static void check_distribution(struct ebb_sample_keys keys, int32_t seen,
                               const double wanted[VOCAB])
{
    enum { DRAWS = 40000 };
    /* 99.9 % points for 1 to 7 degrees of freedom */
    static const double limit[VOCAB] = {0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_sampler *sampler = sampler_of(ctx, keys, VOCAB);
    int64_t counts[VOCAB] = {0};
    double chi = 0;
    int kept = 0;
    if (seen >= 0) ebb_sampler_see(sampler, &seen, 1);
    for (int64_t i = 0; i < DRAWS; i++) {
        int32_t id;
        kit_ok(ctx, ebb_sampler_next(ctx, sampler, fixed, i, &id), "next");
        counts[id]++;
    }
    for (int i = 0; i < VOCAB; i++) {
        double mean = wanted[i] * DRAWS, off = (double)counts[i] - mean;
        if (wanted[i] == 0) assert_int_equal(counts[i], 0);
        if (wanted[i] == 0) continue;
        chi += off * off / mean;
        kept++;
    }
    if (kept > 1 && !(chi < limit[kept - 1])) fail_msg("chi-square %.2f for %d tokens", chi, kept);
    ebb_sampler_free(ctx, sampler);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
}

/* Softmax over the ids of `kept`, as the formula says it. */
static void softmax(const float *logits, double temperature, const char *kept, double out[VOCAB])
{
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        out[i] = strchr(kept, '0' + i) ? exp((double)logits[i] / temperature) : 0;
        sum += out[i];
    }
    for (int i = 0; i < VOCAB; i++) out[i] /= sum;
}

static void draws_follow_the_softmax_of_the_logits(void **state)
{
    (void)state;
    double wanted[VOCAB];
    softmax(fixed, 1, "01234567", wanted);
    check_distribution(plain_keys(1), -1, wanted);
    softmax(fixed, 2.5, "01234567", wanted);
    check_distribution(plain_keys(2.5), -1, wanted);
}

static void top_k_keeps_the_k_largest_and_the_smaller_id_of_equals(void **state)
{
    (void)state;
    double wanted[VOCAB];
    struct ebb_sample_keys keys = plain_keys(1);
    keys.top_k = 3;
    softmax(fixed, 1, "246", wanted);
    check_distribution(keys, -1, wanted);
    keys.top_k = 1;
    softmax(fixed, 1, "2", wanted);
    check_distribution(keys, -1, wanted);
    keys.top_k = 100; /* more than there are */
    softmax(fixed, 1, "01234567", wanted);
    check_distribution(keys, -1, wanted);
}

/* Probabilities in falling order: 2 and 6 have 0.297 each, 4 has 0.180, 0 has 0.109, 3 has 0.052, 7
 * has 0.040. */
static void top_p_keeps_tokens_whose_predecessors_have_less_than_p(void **state)
{
    (void)state;
    double wanted[VOCAB];
    struct ebb_sample_keys keys = plain_keys(1);
    keys.top_p = 0.75; /* 0.593 before 4, 0.773 behind it */
    softmax(fixed, 1, "246", wanted);
    check_distribution(keys, -1, wanted);
    keys.top_p = 0.8; /* 0.773 is less than it: 0 stays too */
    softmax(fixed, 1, "0246", wanted);
    check_distribution(keys, -1, wanted);
    keys.top_p = 0.92; /* 0.882 before 3, 0.934 behind it */
    softmax(fixed, 1, "02346", wanted);
    check_distribution(keys, -1, wanted);
    keys.top_p = 0;
    softmax(fixed, 1, "2", wanted);
    check_distribution(keys, -1, wanted);
}

/* Among 2, 6 and 4 the first two have 0.767 together: with p 0.75 top-p takes 4 away. Of all tokens
 * they have 0.593. */
static void top_p_counts_among_what_top_k_left(void **state)
{
    (void)state;
    double wanted[VOCAB];
    struct ebb_sample_keys keys = plain_keys(1);
    keys.top_k = 3;
    keys.top_p = 0.75;
    softmax(fixed, 1, "26", wanted);
    check_distribution(keys, -1, wanted);
}

/* 2 / 1.6 = 1.25 is below 1.5; a negative logit goes down too. The temperature comes after. */
static void repetition_penalty_pulls_down_what_was_seen(void **state)
{
    (void)state;
    float changed[VOCAB];
    double wanted[VOCAB];
    struct ebb_sample_keys keys = plain_keys(0.8);
    keys.repetition_penalty = 1.6;
    memcpy(changed, fixed, sizeof changed);
    changed[2] = 1.25f;
    softmax(changed, 0.8, "01234567", wanted);
    check_distribution(keys, 2, wanted);
    changed[2] = 2;
    changed[1] = -0.8f;
    softmax(changed, 0.8, "01234567", wanted);
    check_distribution(keys, 1, wanted);
    keys.temperature = 0;
    softmax(fixed, 1, "6", wanted); /* 2 was the first of the largest until it was seen */
    check_distribution(keys, 2, wanted);
}

static void temperature_0_top_k_1_and_a_small_top_p_are_the_first_largest(void **state)
{
    enum { N = 1000 };
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_sample_keys greedy = plain_keys(0), top_k = plain_keys(1.3), top_p = plain_keys(1.3);
    float logits[N];
    (void)state;
    top_k.top_k = 1;
    top_p.top_p = 1e-6;
    for (int round = 0; round < 50; round++) {
        int32_t best = 0;
        for (int i = 0; i < N; i += 4) {
            uint32_t words[4];
            ebb_philox(99, (uint64_t)(round * N + i), words);
            for (int j = 0; j < 4; j++)
                logits[i + j] = (float)(words[j] % 200) / 8 - 12; /* many are equal */
        }
        for (int i = 1; i < N; i++)
            if (logits[i] > logits[best]) best = i;
        assert_int_equal(one(ctx, greedy, logits, N, round), best);
        assert_int_equal(one(ctx, top_k, logits, N, round), best);
        assert_int_equal(one(ctx, top_p, logits, N, round), best);
    }
    ebb_ctx_free(ctx);
}

static void a_draw_depends_on_seed_and_position_alone(void **state)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_sample_keys keys = plain_keys(1), other = keys;
    int same_seed = 0, same_place = 0;
    (void)state;
    other.seed++;
    for (int64_t i = 0; i < 200; i++) {
        int32_t id = one(ctx, keys, fixed, VOCAB, i);
        assert_int_equal(id, one(ctx, keys, fixed, VOCAB, i));
        same_seed += id == one(ctx, keys, fixed, VOCAB, i + 1000);
        same_place += id == one(ctx, other, fixed, VOCAB, i);
    }
    /* By chance as many are equal as the squares of the probabilities add up to: 0.225, that is 45
     * of 200. */
    assert_in_range(same_seed, 20, 80);
    assert_in_range(same_place, 20, 80);
    ebb_ctx_free(ctx);
}

static void logits_that_are_no_numbers_are_refused(void **state)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_sampler *sampler = sampler_of(ctx, plain_keys(1), VOCAB);
    float logits[VOCAB];
    int32_t id;
    (void)state;
    memcpy(logits, fixed, sizeof logits);
    logits[5] = NAN;
    want_failure(ctx, ebb_sampler_next(ctx, sampler, logits, 12, &id), EBB_FAILED,
                 "token 5 at position 12 is NaN");
    logits[5] = INFINITY;
    want_failure(ctx, ebb_sampler_next(ctx, sampler, logits, 12, &id), EBB_FAILED,
                 "token 5 at position 12 is infinite");
    logits[5] = -INFINITY; /* a token that never comes */
    kit_ok(ctx, ebb_sampler_next(ctx, sampler, logits, 12, &id), "next");
    for (int i = 0; i < VOCAB; i++) logits[i] = -INFINITY;
    want_failure(ctx, ebb_sampler_next(ctx, sampler, logits, 12, &id), EBB_FAILED,
                 "leave no token");
    ebb_sampler_free(ctx, sampler);
    ebb_ctx_free(ctx);
}

static void keys_out_of_bounds_are_refused(void **state)
{
    static const struct {
        struct ebb_sample_keys keys;
        const char *text;
    } bad[] = {{{-1, 1, 0, 1, 0}, "temperature is -1"},
               {{NAN, 1, 0, 1, 0}, "temperature is nan"},
               {{1, 1.5, 0, 1, 0}, "top_p is 1.5"},
               {{1, -0.1, 0, 1, 0}, "top_p is -0.1"},
               {{1, 1, -2, 1, 0}, "top_k is -2"},
               {{1, 1, 0, 0, 0}, "repetition_penalty is 0"},
               {{1, 1, 0, INFINITY, 0}, "repetition_penalty"}};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_sampler *sampler;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        want_failure(ctx, ebb_sampler_create(ctx, &bad[i].keys, VOCAB, &sampler), EBB_BAD_CONFIG,
                     bad[i].text);
    ebb_ctx_free(ctx);
}

/* ---- generation from ids --------------------------------------------------------------------- */

/* What came out. */
struct output {
    int32_t ids[MOST];
    int64_t count;
    char text[8 * MOST];
    size_t bytes;
    int pieces, broken; /* pieces that end or begin inside a character */
};

static enum ebb_status keep_id(void *user, int32_t id, bool *stop)
{
    struct output *out = (struct output *)user;
    assert_false(*stop);
    assert_true(out->count < MOST);
    out->ids[out->count++] = id;
    return EBB_OK;
}

static void keep_text(void *user, const char *text, size_t bytes)
{
    struct output *out = (struct output *)user;
    assert_true(bytes > 0 && out->bytes + bytes <= sizeof out->text);
    out->pieces++;
    out->broken += ebb_text_utf8_valid(text, bytes) != bytes;
    memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
}

static struct ebb_generate_keys generate_keys(int64_t tokens, double temperature)
{
    struct ebb_generate_keys keys = {.max_new_tokens = tokens,
                                     .temperature = temperature,
                                     .top_p = 1,
                                     .repetition_penalty = 1,
                                     .seed = 5};
    return keys;
}

/* An engine that decodes only, in tiles of 6 tokens. */
static struct ebb_engine *decoder(struct ebb_ctx *ctx, struct ebb_engine_request request,
                                  int64_t cache)
{
    static const int64_t tile = 6;
    struct ebb_numerics numerics = kit_numerics(EBB_F32);
    numerics.tile_tokens = tile;
    numerics.threads = request.threads = 1;
    request.train = false;
    request.decode = true;
    request.capacity.tokens = request.capacity.doc_tokens = tile;
    request.capacity.docs = 1;
    request.capacity.cache_tokens = cache;
    request.numerics = &numerics;
    return kit_engine(ctx, &request);
}

static int32_t argmax(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void argmax_equals_a_whole_prefill_at_every_step(void **state)
{
    static const char *const names[] = {"qwen3_lora", "mistral_lora"};
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        struct kit_case c;
        struct output out = {.count = 0};
        struct ebb_generate_result result;
        struct ebb_generate_keys keys = generate_keys(40, 0);
        const float *logits;
        kit_case_open(&c, names[n]);
        const struct ebb_batch *batch = &c.batches[0][0]->batch;
        int64_t prompt = batch->doc_starts[1];
        struct ebb_engine *engine = decoder(c.ctx, kit_request(&c, NULL), 96);
        int64_t vocab = ebb_engine_config(engine)->vocab;
        int32_t whole[MOST];
        memcpy(whole, batch->ids, (size_t)prompt * sizeof whole[0]);
        kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, whole, prompt, &keys, keep_id, &out, &result),
               "generate");
        assert_int_equal(result.prompt_tokens, prompt);
        assert_int_equal(result.new_tokens, out.count);
        assert_true(result.ended == (out.count < 40) && out.count > 10 && !result.full);
        for (int64_t i = 0; i < out.count; i++) {
            kit_ok(c.ctx, ebb_engine_decode(engine, whole, prompt + i, 0, &logits), "prefill");
            assert_int_equal(argmax(logits, vocab), out.ids[i]);
            whole[prompt + i] = out.ids[i];
        }
        ebb_engine_free(engine);
        assert_int_equal(ebb_mem_bytes_now(c.ctx), 0);
        kit_case_close(&c);
    }
}

/* The largest difference as a share of the largest logit. */
static double apart(const float *a, const float *b, int64_t vocab)
{
    double most = 0, scale = 0;
    for (int64_t i = 0; i < vocab; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    return most / scale;
}

/* Logits of a whole prefill, and of a beginning that is in the cache, followed by the rest in tiles
 * or token by token. */
static void check_reading_on(struct kit_case *c, struct ebb_engine *engine, int64_t kept,
                             const float *whole)
{
    enum { COUNT = 24 };
    int32_t other[COUNT];
    int64_t vocab = ebb_engine_config(engine)->vocab;
    const int32_t *ids = c->batches[0][0]->ids;
    const float *logits;
    /* another text behind the beginning, of which the rest then takes the place */
    for (int64_t i = 0; i < COUNT; i++) other[i] = i < kept ? ids[i] : 7;
    kit_ok(c->ctx, ebb_engine_decode(engine, other, COUNT, 0, &logits), "other");
    assert_true(apart(logits, whole, vocab) > 0.01);
    kit_ok(c->ctx, ebb_engine_decode(engine, ids + kept, COUNT - kept, kept, &logits), "rest");
    if (kept % 6 == 0) /* the same tiles */
        assert_memory_equal(logits, whole, (size_t)vocab * sizeof *logits);
    assert_true(apart(logits, whole, vocab) < 1e-5);
    for (int64_t i = kept; i < COUNT; i++)
        kit_ok(c->ctx, ebb_engine_decode(engine, ids + i, 1, i, &logits), "one");
    assert_true(apart(logits, whole, vocab) < 1e-5);
    assert_int_equal(argmax(logits, vocab), argmax(whole, vocab));
}

static void reading_on_from_the_cache_is_reading_everything(void **state)
{
    static const char *const names[] = {"qwen3_lora", "mistral_lora"};
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        struct kit_case c;
        const float *logits;
        kit_case_open(&c, names[n]);
        struct ebb_engine *engine = decoder(c.ctx, kit_request(&c, NULL), 96);
        size_t bytes = (size_t)ebb_engine_config(engine)->vocab * sizeof *logits;
        float *whole = (float *)malloc(bytes);
        kit_ok(c.ctx, ebb_engine_decode(engine, c.batches[0][0]->ids, 24, 0, &logits), "whole");
        memcpy(whole, logits, bytes);
        for (int64_t kept = 0; kept < 24; kept++) check_reading_on(&c, engine, kept, whole);
        free(whole);
        ebb_engine_free(engine);
        kit_case_close(&c);
    }
}

static void a_prompt_in_the_cache_is_not_read_again(void **state)
{
    struct kit_case c;
    struct output first = {.count = 0}, again = {.count = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(9, 0);
    (void)state;
    kit_case_open(&c, "qwen3_lora");
    const int32_t *prompt = c.batches[0][0]->ids;
    struct ebb_engine *engine = decoder(c.ctx, kit_request(&c, NULL), 60);
    kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 8, &keys, keep_id, &first, &result),
           "first");
    assert_int_equal(result.reused_tokens, 0);
    assert_int_equal(result.cached_tokens,
                     result.ended ? 8 + result.new_tokens : 8 + result.new_tokens - 1);
    keys.cached = 8; /* all of it: the last token is read in any case */
    kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 8, &keys, keep_id, &again, &result),
           "again");
    assert_int_equal(result.reused_tokens, 7);
    assert_int_equal(again.count, first.count);
    assert_memory_equal(again.ids, first.ids, (size_t)first.count * sizeof first.ids[0]);
    ebb_engine_free(engine);
    kit_case_close(&c);
}

/* True from the n-th question on. */
static bool after_some(void *user)
{
    int *left = (int *)user;
    return (*left)-- <= 0;
}

static enum ebb_status stop_at_third(void *user, int32_t id, bool *stop)
{
    struct output *out = (struct output *)user;
    EBB_TRY(keep_id(out, id, stop));
    *stop = out->count == 3;
    return EBB_OK;
}

static void generation_can_be_stopped_and_interrupted(void **state)
{
    struct kit_case c;
    struct output out = {.count = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(9, 0);
    int left = 3; /* asked for each of the prompt's two tiles, and before the first token */
    (void)state;
    kit_case_open(&c, "qwen3_lora");
    const int32_t *prompt = c.batches[0][0]->ids;
    struct ebb_engine *engine = decoder(c.ctx, kit_request(&c, NULL), 60);
    kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 8, &keys, stop_at_third, &out, &result),
           "stop");
    assert_true(result.stopped && !result.ended && !result.interrupted && result.new_tokens == 3);
    assert_int_equal(result.cached_tokens, 8 + 2);
    keys.interrupted = after_some;
    keys.interrupted_user = &left;
    out.count = 0;
    kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 8, &keys, keep_id, &out, &result),
           "interrupt");
    assert_true(result.interrupted && !result.stopped && out.count == 1);
    left = 1;
    kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 8, &keys, keep_id, &out, &result),
           "interrupt in the prompt");
    assert_true(result.interrupted && result.new_tokens == 0 && out.count == 1);
    assert_int_equal(result.cached_tokens, 6);
    ebb_engine_free(engine);
    assert_int_equal(ebb_mem_bytes_now(c.ctx), 0);
    kit_case_close(&c);
}

static void generation_ends_where_the_cache_does(void **state)
{
    struct kit_case c;
    struct output out = {.count = 0}, again = {.count = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(50, 0);
    (void)state;
    kit_case_open(&c, "qwen3_lora");
    const int32_t *prompt = c.batches[0][0]->ids;
    struct ebb_engine *engine = decoder(c.ctx, kit_request(&c, NULL), 11);
    kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 8, &keys, keep_id, &out, &result),
           "generate");
    assert_int_equal(result.new_tokens, 4); /* three of them are read back */
    assert_true(result.full && !result.ended);
    keys.max_new_tokens = 4;
    kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 8, &keys, keep_id, &again, &result),
           "generate");
    assert_true(!result.full && !result.ended && result.new_tokens == 4);
    assert_memory_equal(out.ids, again.ids, 4 * sizeof out.ids[0]);
    keys.max_new_tokens = 0;
    kit_ok(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 8, &keys, keep_id, &again, &result),
           "generate");
    assert_true(!result.full && !result.ended && result.new_tokens == 0 && again.count == 4);
    ebb_engine_free(engine);
    kit_case_close(&c);
}

static void prompts_that_can_not_be_are_refused_with_numbers(void **state)
{
    struct kit_case c;
    struct output out = {.count = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(5, 0);
    int32_t ids[3] = {4, 96, 5};
    (void)state;
    kit_case_open(&c, "qwen3_lora");
    const int32_t *prompt = c.batches[0][0]->ids;
    struct ebb_engine *engine = decoder(c.ctx, kit_request(&c, NULL), 11);
    want_failure(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 12, &keys, keep_id, &out, &result),
                 EBB_BAD_CONFIG,
                 "the prompt has 12 tokens, but the key and value cache has room for 11");
    want_failure(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 0, &keys, keep_id, &out, &result),
                 EBB_BAD_CONFIG, "the prompt has no tokens");
    want_failure(c.ctx, ebb_generate_ids(c.ctx, engine, ids, 3, &keys, keep_id, &out, &result),
                 EBB_BAD_CONFIG, "token 1 has id 96, but the model's embedding has 96 rows");
    keys.max_new_tokens = -3;
    want_failure(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 3, &keys, keep_id, &out, &result),
                 EBB_BAD_CONFIG, "max_new_tokens is -3");
    keys = generate_keys(5, -1);
    want_failure(c.ctx, ebb_generate_ids(c.ctx, engine, prompt, 3, &keys, keep_id, &out, &result),
                 EBB_BAD_CONFIG, "temperature is -1");
    assert_int_equal(out.count, 0);
    ebb_engine_free(engine);
    assert_int_equal(ebb_mem_bytes_now(c.ctx), 0);
    kit_case_close(&c);
}

static void a_damaged_model_is_a_failure_and_no_text(void **state)
{
    struct kit_case c;
    struct output out = {.count = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(5, 0);
    (void)state;
    kit_case_open(&c, "mistral_lora");
    struct ebb_engine *engine = decoder(c.ctx, kit_request(&c, NULL), 20);
    const struct ebb_weight_list *weights = ebb_engine_weights(engine);
    for (int64_t i = 0; i < weights->count; i++) {
        if (weights->items[i].field != EBB_FIELD_FINAL_NORM) continue;
        struct ebb_view view = ebb_decoder_weight(ebb_engine_net(engine), i);
        kit_spoil(engine, &view, 0, 1);
    }
    want_failure(c.ctx,
                 ebb_generate_ids(c.ctx, engine, c.batches[0][0]->ids, 8, &keys, keep_id, &out,
                                  &result),
                 EBB_FAILED, "the model's logit of token 0 at position 8 is NaN");
    assert_int_equal(out.count, 0);
    ebb_engine_free(engine);
    assert_int_equal(ebb_mem_bytes_now(c.ctx), 0);
    kit_case_close(&c);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* A model of random weights with the byte tokenizer, in a folder of its own. */
struct bytes_model {
    struct ebb_ctx *ctx;
    char dir[64], model[80];
    struct ebb_tokenizer *tokenizer;
    struct ebb_engine *engine;
};

static void write_text(struct ebb_ctx *ctx, const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    kit_ok(ctx, ebb_file_write(ctx, path, text, strlen(text)), path);
}

static void bytes_open(struct bytes_model *m)
{
    struct ebb_engine_request request;
    kit_ok(m->ctx, ebb_tokenizer_load(m->ctx, m->model, &m->tokenizer), "tokenizer");
    memset(&request, 0, sizeof request);
    request.model_dir = m->model;
    request.storage = EBB_F32;
    request.backend = kit_backend();
    request.pageable = kit_pageable();
    m->engine = decoder(m->ctx, request, 200);
}

static void bytes_close(struct bytes_model *m)
{
    ebb_engine_free(m->engine);
    ebb_tokenizer_free(m->ctx, m->tokenizer);
}

static void bytes_create(struct bytes_model *m)
{
    char config[128];
    memset(m, 0, sizeof *m);
    m->ctx = ebb_ctx_create();
    snprintf(m->dir, sizeof m->dir, "/tmp/ebb_generate_XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    snprintf(m->model, sizeof m->model, "%s/model", m->dir);
    snprintf(config, sizeof config, "%s/config.json", m->dir);
    write_text(m->ctx, m->dir, "config.json",
               "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
               "\"hidden_size\": 16,"
               " \"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
               " \"num_key_value_heads\": 1, \"vocab_size\": 258, \"max_position_embeddings\": 512,"
               " \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
               " \"tie_word_embeddings\": false, \"initializer_range\": 0.1, \"torch_dtype\": "
               "\"float32\"}");
    kit_ok(m->ctx, ebb_model_init(m->ctx, config, EBB_TOKENIZER_BYTES, m->model, EBB_F32, 3),
           "init");
    bytes_open(m);
}

static void bytes_destroy(struct bytes_model *m)
{
    bytes_close(m);
    kit_ok(m->ctx, ebb_dir_remove(m->ctx, m->dir), "remove");
    assert_int_equal(ebb_mem_bytes_now(m->ctx), 0);
    ebb_ctx_free(m->ctx);
}

static struct ebb_generate_result generate(struct bytes_model *m, const char *prompt,
                                           struct ebb_generate_keys keys, struct output *out)
{
    struct ebb_generate_result result;
    memset(out, 0, sizeof *out);
    kit_ok(m->ctx,
           ebb_generate(m->ctx, m->engine, m->tokenizer, prompt, &keys, keep_text, out, &result),
           "generate");
    return result;
}

/* The first seed with which the random model says `count` tokens without its end token among them.
 */
static uint64_t long_seed(struct bytes_model *m, const char *prompt, int64_t count)
{
    struct output out;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct ebb_generate_keys keys = generate_keys(count, 1);
        keys.seed = seed;
        if (!generate(m, prompt, keys, &out).ended) return seed;
    }
    fail_msg("no seed gives %lld tokens", (long long)count);
    return 0;
}

/* Tokens are single bytes here, so most characters come in several. */
static void streamed_text_never_splits_a_character(void **state)
{
    struct bytes_model m;
    struct output text, ids = {.count = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(150, 1);
    struct ebb_ids prompt = {0};
    struct ebb_str whole = {0};
    int wide = 0;
    (void)state;
    bytes_create(&m);
    keys.seed = long_seed(&m, "na\xc3\xafve", keys.max_new_tokens);
    generate(&m, "na\xc3\xafve", keys, &text);
    kit_ok(m.ctx,
           ebb_tokenizer_encode(m.ctx, m.tokenizer, "na\xc3\xafve", 6, EBB_ENCODE_PREFIX, &prompt),
           "encode");
    kit_ok(m.ctx,
           ebb_generate_ids(m.ctx, m.engine, prompt.data, prompt.count, &keys, keep_id, &ids,
                            &result),
           "ids");
    kit_ok(m.ctx, ebb_tokenizer_decode(m.ctx, m.tokenizer, ids.ids, ids.count, true, &whole),
           "decode");
    assert_int_equal(text.broken, 0);
    assert_int_equal(text.bytes, whole.bytes);
    assert_memory_equal(text.text, whole.data, whole.bytes);
    for (size_t i = 0; i + 1 < text.bytes; i++)
        wide += ((unsigned char)text.text[i] & 0xe0) ==
                0xc0; /* a character of two bytes that came whole */
    assert_true(wide > 0 && text.pieces > 50);
    ebb_str_free(m.ctx, &whole);
    ebb_ids_free(m.ctx, &prompt);
    bytes_destroy(&m);
}

static void a_seed_gives_the_same_text_again(void **state)
{
    struct bytes_model m;
    struct output first, again, other;
    struct ebb_generate_keys keys = generate_keys(60, 1);
    (void)state;
    bytes_create(&m);
    generate(&m, "The tide", keys, &first);
    generate(&m, "The tide", keys, &again);
    assert_int_equal(first.bytes, again.bytes);
    assert_memory_equal(first.text, again.text, first.bytes);
    keys.seed++;
    generate(&m, "The tide", keys, &other);
    assert_false(other.bytes == first.bytes && memcmp(other.text, first.text, first.bytes) == 0);
    keys.seed--;
    keys.top_k = 1;
    generate(&m, "The tide", keys, &first);
    keys = generate_keys(60, 0);
    generate(&m, "The tide", keys, &again);
    keys = generate_keys(60, 1);
    keys.top_p = 1e-9;
    generate(&m, "The tide", keys, &other);
    assert_int_equal(first.bytes, again.bytes);
    assert_memory_equal(first.text, again.text, first.bytes);
    assert_int_equal(first.bytes, other.bytes);
    assert_memory_equal(first.text, other.text, first.bytes);
    bytes_destroy(&m);
}

/* Whatever part of the text stops it, what is printed ends before the first place where that part
 * stands, and nothing of it is printed too early. */
static void a_stop_text_ends_the_text_before_it(void **state)
{
    struct bytes_model m;
    struct output whole, out;
    struct ebb_generate_keys keys = generate_keys(150, 1);
    (void)state;
    bytes_create(&m);
    keys.seed = long_seed(&m, "The tide", keys.max_new_tokens);
    generate(&m, "The tide", keys, &whole);
    for (size_t at = 5; at + 12 < whole.bytes; at += 17) {
        char text[16] = {0};
        const char *stops[3] = {"no such text in it", text, "nor this"};
        size_t begin = at, bytes = 3;
        while (((unsigned char)whole.text[begin] & 0xc0) == 0x80) begin++;
        while (((unsigned char)whole.text[begin + bytes] & 0xc0) == 0x80) bytes++;
        memcpy(text, whole.text + begin, bytes);
        if (strlen(text) < bytes) continue; /* the model said NUL */
        keys.stops = stops;
        keys.stop_count = 3;
        struct ebb_generate_result result = generate(&m, "The tide", keys, &out);
        const char *first = (const char *)memmem(whole.text, whole.bytes, text, bytes);
        assert_true(result.stopped && !result.ended);
        assert_int_equal(out.bytes, first - whole.text);
        assert_memory_equal(out.text, whole.text, out.bytes);
        assert_int_equal(out.broken, 0);
    }
    bytes_destroy(&m);
}

/* The last text's beginning is held back while it may become a stop text, and printed at the end
 * when it has not. */
static void a_text_that_only_begins_like_a_stop_text_is_printed(void **state)
{
    struct bytes_model m;
    struct output whole, out;
    struct ebb_generate_keys keys = generate_keys(60, 1);
    char stop[40];
    (void)state;
    bytes_create(&m);
    keys.seed = long_seed(&m, "The tide", keys.max_new_tokens);
    generate(&m, "The tide", keys, &whole);
    size_t begin = whole.bytes - 8;
    while (((unsigned char)whole.text[begin] & 0xc0) == 0x80) begin++;
    snprintf(stop, sizeof stop, "%.*s and no more", (int)(whole.bytes - begin), whole.text + begin);
    const char *stops[1] = {stop};
    keys.stops = stops;
    keys.stop_count = 1;
    assert_false(generate(&m, "The tide", keys, &out).stopped);
    assert_int_equal(out.bytes, whole.bytes);
    assert_memory_equal(out.text, whole.text, whole.bytes);
    bytes_destroy(&m);
}

/* With the penalty, a greedy model that would repeat itself says something else. */
static void the_penalty_counts_prompt_and_answer(void **state)
{
    struct bytes_model m;
    struct output out = {.count = 0};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(60, 0);
    int32_t prompt[4] = {65, 66, 67, 68};
    bool seen[258] = {false};
    (void)state;
    bytes_create(&m);
    keys.repetition_penalty = 1e6;
    kit_ok(m.ctx, ebb_generate_ids(m.ctx, m.engine, prompt, 4, &keys, keep_id, &out, &result),
           "generate");
    for (int i = 0; i < 4; i++) seen[prompt[i]] = true;
    for (int64_t i = 0; i < out.count; i++) {
        assert_false(seen[out.ids[i]]);
        seen[out.ids[i]] = true;
    }
    assert_true(out.count > 20);
    bytes_destroy(&m);
}

static void any_of_the_end_tokens_ends_and_is_not_printed(void **state)
{
    struct bytes_model m;
    struct output out = {.count = 0}, text;
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(60, 1);
    char json[128];
    int64_t first = 0;
    (void)state;
    bytes_create(&m);
    static const int32_t prompt[] = {'T', 'h', 'e'};
    keys.seed = long_seed(&m, "The", 60);
    kit_ok(m.ctx, ebb_generate_ids(m.ctx, m.engine, prompt, 3, &keys, keep_id, &out, &result),
           "generate");
    assert_true(out.count == 60 && !result.ended);
    int32_t end = out.ids[20];
    while (out.ids[first] != end) first++;
    snprintf(json, sizeof json, "{\"eos_token_id\": [256, %d]}", (int)end);
    write_text(m.ctx, m.model, "generation_config.json", json);
    bytes_close(&m);
    bytes_open(&m);
    struct output again = {.count = 0};
    kit_ok(m.ctx, ebb_generate_ids(m.ctx, m.engine, prompt, 3, &keys, keep_id, &again, &result),
           "generate");
    assert_true(result.ended && !result.full);
    assert_int_equal(result.new_tokens, first);
    assert_int_equal(again.count, first);
    assert_memory_equal(again.ids, out.ids, (size_t)first * sizeof out.ids[0]);
    result = generate(&m, "The", keys, &text);
    assert_true(result.ended && result.new_tokens == first);
    bytes_destroy(&m);
}

/* The byte tokenizer puts nothing before a text; one with a template does. */
static void a_prompt_begins_as_the_post_processor_says(void **state)
{
    static const char template[] = "{\"type\": \"TemplateProcessing\", \"single\": "
                                   "[{\"SpecialToken\": {\"id\": \"<|begin|>\", \"type_id\": 0}},"
                                   " {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": "
                                   "[{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},"
                                   " {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
                                   "\"special_tokens\": {\"<|begin|>\": {\"id\": \"<|begin|>\","
                                   " \"ids\": [257], \"tokens\": [\"<|begin|>\"]}}}";
    struct bytes_model m;
    struct output out;
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = generate_keys(5, 0);
    char path[256];
    json_t *json, *post;
    (void)state;
    bytes_create(&m);
    assert_int_equal(generate(&m, "four", keys, &out).prompt_tokens, 4);
    want_failure(m.ctx,
                 ebb_generate(m.ctx, m.engine, m.tokenizer, "", &keys, keep_text, &out, &result),
                 EBB_BAD_CONFIG, "the prompt has no tokens");
    snprintf(path, sizeof path, "%s/tokenizer.json", m.model);
    kit_ok(m.ctx, ebb_json_load(m.ctx, path, &json), path);
    kit_ok(m.ctx, ebb_json_parse(m.ctx, "template", 0, template, strlen(template), &post),
           "template");
    json_object_set_new(json, "post_processor", post);
    kit_ok(m.ctx, ebb_json_save(m.ctx, path, json), path);
    json_decref(json);
    bytes_close(&m);
    bytes_open(&m);
    assert_int_equal(generate(&m, "four", keys, &out).prompt_tokens, 5);
    assert_int_equal(generate(&m, "", keys, &out).prompt_tokens, 1);
    bytes_destroy(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_softmax_of_the_logits),
        cmocka_unit_test(top_k_keeps_the_k_largest_and_the_smaller_id_of_equals),
        cmocka_unit_test(top_p_keeps_tokens_whose_predecessors_have_less_than_p),
        cmocka_unit_test(top_p_counts_among_what_top_k_left),
        cmocka_unit_test(repetition_penalty_pulls_down_what_was_seen),
        cmocka_unit_test(temperature_0_top_k_1_and_a_small_top_p_are_the_first_largest),
        cmocka_unit_test(a_draw_depends_on_seed_and_position_alone),
        cmocka_unit_test(logits_that_are_no_numbers_are_refused),
        cmocka_unit_test(keys_out_of_bounds_are_refused),
        cmocka_unit_test(argmax_equals_a_whole_prefill_at_every_step),
        cmocka_unit_test(reading_on_from_the_cache_is_reading_everything),
        cmocka_unit_test(a_prompt_in_the_cache_is_not_read_again),
        cmocka_unit_test(generation_can_be_stopped_and_interrupted),
        cmocka_unit_test(generation_ends_where_the_cache_does),
        cmocka_unit_test(prompts_that_can_not_be_are_refused_with_numbers),
        cmocka_unit_test(a_damaged_model_is_a_failure_and_no_text),
        cmocka_unit_test(streamed_text_never_splits_a_character),
        cmocka_unit_test(a_seed_gives_the_same_text_again),
        cmocka_unit_test(a_stop_text_ends_the_text_before_it),
        cmocka_unit_test(a_text_that_only_begins_like_a_stop_text_is_printed),
        cmocka_unit_test(the_penalty_counts_prompt_and_answer),
        cmocka_unit_test(any_of_the_end_tokens_ends_and_is_not_printed),
        cmocka_unit_test(a_prompt_begins_as_the_post_processor_says),
    };
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
