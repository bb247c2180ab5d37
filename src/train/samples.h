/* Samples: prompts that a model answers while it is trained, so that people see what it learns.
 *
 * They are answered greedily, by the decode program of the run's own plan, which changes nothing
 * that training reads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_SAMPLES_H
#define EBB_SAMPLES_H

#include "base/json.h"
#include "data/tokenizer.h"
#include "train/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_sample_prompt {
    char *text;         /* as it is shown; owned */
    struct ebb_ids ids; /* as the model gets it; owned */
    int32_t end_id;     /* ends an answer, beside the model's own end tokens; -1: none */
};

/* {0} is a valid empty value. */
struct ebb_samples {
    struct ebb_sample_prompt *items; /* [count] owned */
    int64_t count, room;
    int64_t max_new_tokens;
    const struct ebb_tokenizer *tokenizer; /* borrowed */
};

/* Adds a prompt; takes over what *ids holds. */
enum ebb_status ebb_samples_add(struct ebb_ctx *ctx, struct ebb_samples *samples, const char *text,
                                struct ebb_ids *ids, int32_t end_id);
void ebb_samples_free(struct ebb_ctx *ctx, struct ebb_samples *samples);
/* The cache that an engine needs for them. */
int64_t ebb_samples_cache_tokens(const struct ebb_samples *samples);

/* Answers all of them: *list is [{"prompt", "text", "num_tokens", "ended"}], which the caller owns;
 * `ended`: by an end token, not by max_new_tokens. EBB_INTERRUPTED where stop_fd (-1: none) has
 * something to read, which stays there. */
enum ebb_status ebb_samples_run(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                const struct ebb_samples *samples, int stop_fd, json_t **list);
/* One log line a sample: `what is 7?` and the answer as JSON strings, cut to a line's length. */
enum ebb_status ebb_samples_log(struct ebb_ctx *ctx, int64_t step, const json_t *list);

#ifdef __cplusplus
}
#endif
#endif
