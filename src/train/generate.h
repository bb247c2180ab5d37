/* Text from a model: sampling token by token through the decode program.
 *
 * What the sampling keys mean and in which order they work: train/sample.h. The engine needs
 * `decode`, and a cache of the prompt's tokens plus max_new_tokens less one (the last token is
 * never read back).
 *
 * The key and value cache stays as it is between two calls, as long as no other program of the
 * engine runs. A prompt that begins with the tokens that are in it need not be read again from its
 * first token: `cached` says how many of them are there, and `cached_tokens` of the result what the
 * next call finds. Logits are then those of reading everything anew up to rounding: products of
 * other numbers of rows at a time are summed in another order. (Where the same tiles are read, they
 * are the same bits.)
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_GENERATE_H
#define EBB_GENERATE_H

#include "data/tokenizer.h"
#include "train/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_generate_keys {
    int64_t max_new_tokens;
    double temperature;        /* 0: the largest logit always */
    double top_p;              /* 1: off */
    int64_t top_k;             /* 0: off */
    double repetition_penalty; /* 1: off (Keskar et al. 2019, arXiv 1909.05858) */
    uint64_t seed;
    /* Tokens that end the text, beside the model's eos_ids. Borrowed, as all below. */
    const int32_t *end_ids;
    int64_t end_count;
    /* Texts that end it; not for ebb_generate_ids, which knows no text. None is empty. */
    const char *const *stops;
    int64_t stop_count;
    int64_t cached; /* of the prompt's first tokens, so many are in the cache already */
    /* Asked between tokens and between the tiles of a prompt; true ends the generation. NULL:
     * nobody does. */
    bool (*interrupted)(void *user);
    void *interrupted_user;
};

/* Called with each token as it is known; an end token is not passed on. *stop = true ends the
 * generation behind it, a failure does so as a failure. */
typedef enum ebb_status (*ebb_generate_id_fn)(void *user, int32_t id, bool *stop);
/* Called with each piece of text as it is known (whole UTF-8 sequences). */
typedef void (*ebb_generate_fn)(void *user, const char *text, size_t bytes);

/* Of the four reasons one at most is true; none of them: max_new_tokens. */
struct ebb_generate_result {
    int64_t prompt_tokens, new_tokens;
    int64_t reused_tokens; /* of the prompt's, found in the cache */
    int64_t cached_tokens; /* the first so many of prompt and new tokens are now in the cache */
    double prompt_seconds, seconds;
    bool ended;       /* an end token */
    bool stopped;     /* a text of `stops`, or the callback said so */
    bool interrupted; /* possibly within the prompt: nothing new came then */
    bool full;        /* the key and value cache was full before any of these */
};

/* Continues the tokens [count]. new_tokens doesn't count the end token. EBB_BAD_CONFIG: keys out of
 * bounds, no prompt, a prompt that is longer than the cache or has ids the model lacks. EBB_FAILED:
 * logits that are not numbers. */
enum ebb_status ebb_generate_ids(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                 const int32_t *prompt, int64_t count,
                                 const struct ebb_generate_keys *keys, ebb_generate_id_fn fn,
                                 void *user, struct ebb_generate_result *result);
/* The same with text coming out. It ends before the first of the stop texts: what might be the
 * beginning of one is held back until that is decided. Special tokens are not printed. *ids (may be
 * NULL) gets [+=] the new tokens, those of a stop text included. */
enum ebb_status ebb_generate_text(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                  const struct ebb_tokenizer *tokenizer, const int32_t *prompt,
                                  int64_t count, const struct ebb_generate_keys *keys,
                                  ebb_generate_fn fn, void *user, struct ebb_ids *ids,
                                  struct ebb_generate_result *result);
/* The same from text. The prompt begins as the tokenizer's post-processor says (BOS), special
 * tokens written in it are those tokens. */
enum ebb_status ebb_generate(struct ebb_ctx *ctx, struct ebb_engine *engine,
                             const struct ebb_tokenizer *tokenizer, const char *prompt,
                             const struct ebb_generate_keys *keys, ebb_generate_fn fn, void *user,
                             struct ebb_generate_result *result);

#ifdef __cplusplus
}
#endif
#endif
