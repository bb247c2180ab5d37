/* Text from a model: sampling token by token through the decode program.
 *
 * What the keys mean and in which order they work: train/sample.h. The engine needs `decode`, and a
 * cache of the prompt's tokens plus max_new_tokens less one (the last token is never read back).
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
};

/* Called with each token as it is known; an end-of-sequence token is not passed on. A failure ends
 * the generation. */
typedef enum ebb_status (*ebb_generate_id_fn)(void *user, int32_t id);
/* Called with each piece of text as it is known (whole UTF-8 sequences). */
typedef void (*ebb_generate_fn)(void *user, const char *text, size_t bytes);

struct ebb_generate_result {
    int64_t prompt_tokens, new_tokens;
    double prompt_seconds, seconds;
    bool ended; /* an end-of-sequence token, not max_new_tokens */
    bool full;  /* the key and value cache was full before either */
};

/* Continues the tokens [count]. new_tokens doesn't count the end-of-sequence token (any of the
 * model's eos_ids). EBB_BAD_CONFIG: keys out of bounds, no prompt, a prompt that is longer than the
 * cache or has ids the model lacks. EBB_FAILED: logits that are not numbers. */
enum ebb_status ebb_generate_ids(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                 const int32_t *prompt, int64_t count,
                                 const struct ebb_generate_keys *keys, ebb_generate_id_fn fn,
                                 void *user, struct ebb_generate_result *result);
/* The same for text. The prompt begins as the tokenizer's post-processor says (BOS), special tokens
 * written in it are those tokens; special tokens that the model generates are not printed. */
enum ebb_status ebb_generate(struct ebb_ctx *ctx, struct ebb_engine *engine,
                             const struct ebb_tokenizer *tokenizer, const char *prompt,
                             const struct ebb_generate_keys *keys, ebb_generate_fn fn, void *user,
                             struct ebb_generate_result *result);

#ifdef __cplusplus
}
#endif
#endif
