/* Sampling. Order and rules: train/sample.h.
 *
 * A vocabulary has 150 000 tokens and top-k or top-p keep a few dozen, so nothing is sorted:
 * candidates stand in a heap (one pass to build) and as many are taken from its top as stay.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/sample.h"

#include <math.h>

#include "base/number.h"

struct candidate {
    float logit;
    int32_t id;
};

struct ebb_sampler {
    struct ebb_sample_keys keys;
    int64_t vocab;
    struct candidate *heap; /* [V]; taken ones stand behind the rest, in rising order */
    unsigned char *seen;    /* [V] */
};

static enum ebb_status check_keys(struct ebb_ctx *ctx, const struct ebb_sample_keys *keys)
{
    if (!(keys->temperature >= 0 && isfinite(keys->temperature)))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "temperature is %g, must be 0 (always the likeliest token) or more",
                        keys->temperature);
    if (!(keys->top_p >= 0 && keys->top_p <= 1))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "top_p is %g, must be from 0 to 1 (1: off)",
                        keys->top_p);
    if (keys->top_k < 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "top_k is %lld, must be 0 (off) or more",
                        (long long)keys->top_k);
    if (!(keys->repetition_penalty > 0 && isfinite(keys->repetition_penalty)))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "repetition_penalty is %g, must be above 0 (1: off)",
                        keys->repetition_penalty);
    return EBB_OK;
}

enum ebb_status ebb_sampler_create(struct ebb_ctx *ctx, const struct ebb_sample_keys *keys,
                                   int64_t vocab, struct ebb_sampler **sampler_out)
{
    *sampler_out = NULL;
    EBB_ASSERT(vocab > 0 && vocab <= INT32_MAX);
    EBB_TRY(check_keys(ctx, keys));
    struct ebb_sampler *sampler = (struct ebb_sampler *)ebb_mem_alloc(ctx, sizeof *sampler);
    if (!sampler) return EBB_NO_MEMORY;
    sampler->keys = *keys;
    sampler->vocab = vocab;
    sampler->heap = (struct candidate *)ebb_mem_alloc(ctx, (size_t)vocab * sizeof *sampler->heap);
    sampler->seen = (unsigned char *)ebb_mem_alloc(ctx, (size_t)vocab);
    if (!sampler->heap || !sampler->seen) {
        ebb_sampler_free(ctx, sampler);
        return EBB_NO_MEMORY;
    }
    *sampler_out = sampler;
    return EBB_OK;
}

void ebb_sampler_free(struct ebb_ctx *ctx, struct ebb_sampler *sampler)
{
    if (!sampler) return;
    ebb_mem_free(ctx, sampler->heap);
    ebb_mem_free(ctx, sampler->seen);
    ebb_mem_free(ctx, sampler);
}

void ebb_sampler_see(struct ebb_sampler *sampler, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        EBB_ASSERT(ids[i] >= 0 && ids[i] < sampler->vocab);
        sampler->seen[ids[i]] = 1;
    }
}

/* ---- the heap -------------------------------------------------------------------------------- */

static bool larger(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(struct candidate *heap, int64_t count, int64_t at)
{
    struct candidate moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && larger(heap[child + 1], heap[child])) child++;
        if (!larger(heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void heap_build(struct candidate *heap, int64_t count)
{
    for (int64_t at = count / 2; at-- > 0;) sift_down(heap, count, at);
}

/* Moves the largest of heap[0 .. count) to heap[count - 1]. */
static void heap_take(struct candidate *heap, int64_t count)
{
    struct candidate top = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = top;
    if (count > 1) sift_down(heap, count - 1, 0);
}

/* ---- one token ------------------------------------------------------------------------------- */

/* Fills the candidates, in order of ids, with the penalty applied; *best is the largest of them. */
static enum ebb_status gather(struct ebb_ctx *ctx, struct ebb_sampler *s, const float *logits,
                              int64_t position, struct candidate *best)
{
    float penalty = (float)s->keys.repetition_penalty;
    for (int64_t i = 0; i < s->vocab; i++) {
        float logit = logits[i];
        if (!(logit < INFINITY)) /* NaN too */
            return EBB_FAIL(ctx, EBB_FAILED,
                            "the model's logit of token %lld at position %lld is %s: its weights "
                            "or its adapter are "
                            "damaged, or they overflow in this dtype\ntry:   dtype: float32, or an "
                            "earlier checkpoint",
                            (long long)i, (long long)position, isnan(logit) ? "NaN" : "infinite");
        if (s->seen[i]) logit = logit < 0 ? logit * penalty : logit / penalty;
        s->heap[i].logit = logit;
        s->heap[i].id = (int32_t)i;
        if (i == 0 || larger(s->heap[i], *best)) *best = s->heap[i];
    }
    if (isfinite(best->logit)) return EBB_OK;
    return EBB_FAIL(ctx, EBB_FAILED,
                    "the model's logits at position %lld leave no token: the largest of them is %g",
                    (long long)position, (double)best->logit);
}

/* Uniform in [0, 1), of 53 bits. Training's draws have other instances under the same seed. */
static double draw(uint64_t seed, int64_t position)
{
    uint32_t words[4];
    ebb_philox(ebb_random_key(seed, 0, 0, 0, UINT32_MAX), (uint64_t)position, words);
    uint64_t bits = ((uint64_t)words[0] << 32 | words[1]) >> 11;
    return (double)bits * (1.0 / 9007199254740992.0);
}

static double share(const struct ebb_sampler *s, struct candidate c, struct candidate best)
{
    return exp(((double)c.logit - (double)best.logit) / s->keys.temperature);
}

/* Moves what top-k and top-p leave to heap[V - kept .. V). Returns kept. */
static int64_t cut(struct ebb_sampler *s, struct candidate best)
{
    int64_t vocab = s->vocab, kept = 0;
    bool by_k = s->keys.top_k > 0 && s->keys.top_k < vocab;
    int64_t limit = by_k ? s->keys.top_k : vocab;
    double total = 0, before = 0;
    heap_build(s->heap, vocab);
    for (int64_t i = 0; by_k && i < limit; i++) heap_take(s->heap, vocab - i);
    if (s->keys.top_p >= 1) return limit;
    for (int64_t i = 0; i < limit; i++) total += share(s, s->heap[vocab - 1 - i], best);
    while (kept < limit && (kept == 0 || before < s->keys.top_p * total)) {
        if (!by_k) heap_take(s->heap, vocab - kept);
        before += share(s, s->heap[vocab - 1 - kept++], best);
    }
    return kept;
}

/* One of heap[from .. V), by its share. */
static int32_t choose(const struct ebb_sampler *s, int64_t from, struct candidate best,
                      double uniform)
{
    double total = 0, sum = 0;
    int32_t last = best.id;
    for (int64_t i = s->vocab; i-- > from;) total += share(s, s->heap[i], best);
    for (int64_t i = s->vocab; i-- > from;) {
        double part = share(s, s->heap[i], best);
        if (part == 0) continue;
        last = s->heap[i].id;
        sum += part;
        if (uniform * total < sum) return last;
    }
    return last; /* rounding of the sum */
}

enum ebb_status ebb_sampler_next(struct ebb_ctx *ctx, struct ebb_sampler *sampler,
                                 const float *logits, int64_t position, int32_t *id)
{
    const struct ebb_sample_keys *keys = &sampler->keys;
    struct candidate best = {0, 0};
    EBB_TRY(gather(ctx, sampler, logits, position, &best));
    *id = best.id;
    if (keys->temperature == 0 || keys->top_k == 1) return EBB_OK;
    bool whole = keys->top_p >= 1 && (keys->top_k == 0 || keys->top_k >= sampler->vocab);
    int64_t kept = whole ? sampler->vocab : cut(sampler, best);
    *id = choose(sampler, sampler->vocab - kept, best, draw(keys->seed, position));
    return EBB_OK;
}
