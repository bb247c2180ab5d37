/* KTO's data: each answer beside one of another prompt's, which measures how far the model has
 * moved. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/dataset_int.h"

/* Tokens before the first trained one. */
static int64_t prompt_length(const struct ebb_dataset *set, int64_t sample)
{
    int64_t length = ebb_dataset_length(set, sample), i = 0;
    while (i < length && !ebb_dataset_is_trained(set, sample, i)) i++;
    return i;
}

static bool same_prompt(const struct ebb_dataset *set, int64_t a, int64_t b)
{
    int64_t length = prompt_length(set, a);
    return length == prompt_length(set, b) &&
           memcmp(ebb_dataset_ids(set, a), ebb_dataset_ids(set, b),
                  (size_t)length * sizeof *set->ids) == 0;
}

/* The next sample of another prompt, of the same side where they are pairs. Data has the answers to
 * one prompt side by side, if at all; where a few dozen are all to one, the next it is. */
static int64_t other_sample(const struct ebb_dataset *set, int64_t sample)
{
    enum { TRIES = 64 };
    int64_t next = (sample + set->group) % set->count, other = next;
    for (int i = 0; i < TRIES && same_prompt(set, sample, other); i++)
        other = (other + set->group) % set->count;
    return same_prompt(set, sample, other) ? next : other;
}

struct join {
    const struct ebb_dataset *from;
    struct ebb_dataset *to;
    int64_t sample, token; /* where the next one goes */
};

/* Tokens [begin, end) of a sample behind what is there. */
static void add_part(struct join *join, int64_t sample, int64_t begin, int64_t end)
{
    struct ebb_dataset *to = join->to;
    for (int64_t i = begin; i < end; i++, join->token++) {
        to->ids[join->token] = ebb_dataset_ids(join->from, sample)[i];
        if (ebb_dataset_is_trained(join->from, sample, i))
            to->trained[join->token >> 5] |= 1u << (join->token & 31);
    }
}

static void end_sample(struct join *join, int64_t start, int64_t record_of, uint8_t kind)
{
    struct ebb_dataset *to = join->to;
    int64_t s = join->sample++;
    to->starts[s] = start;
    to->lengths[s] = join->token - start;
    to->records[s] = join->from->records[record_of];
    to->sources[s] = join->from->sources[record_of];
    to->desirable[s] = kind;
}

/* Tokens of `other`'s answer that go behind the prompt of `sample`. */
static int64_t answer_length(const struct ebb_dataset *set, int64_t sample, int64_t other,
                             int64_t max_length)
{
    int64_t answer = ebb_dataset_length(set, other) - prompt_length(set, other),
            room = max_length - prompt_length(set, sample);
    return max_length > 0 && answer > room ? (room > 0 ? room : 0) : answer;
}

/* Pairs are a desirable and an undesirable answer. */
static uint8_t kind_of(const struct ebb_dataset *from, int64_t sample)
{
    if (from->desirable) return from->desirable[sample];
    return sample % 2 == 0 ? 1 : 0;
}

/* An answer may serve several prompts. */
static int64_t count_tokens(const struct ebb_dataset *from, int64_t max_length)
{
    int64_t tokens = from->tokens;
    for (int64_t i = 0; i < from->count; i++)
        tokens +=
            prompt_length(from, i) + answer_length(from, i, other_sample(from, i), max_length);
    return tokens;
}

enum ebb_status ebb_dataset_add_kl(struct ebb_ctx *ctx, const struct ebb_dataset *from,
                                   int64_t max_length, struct ebb_dataset **with)
{
    const int64_t count = from->count;
    EBB_TRY(ebb_dataset_create(ctx, 2 * count, count_tokens(from, max_length), true, with));
    struct join join = {.from = from, .to = *with};
    for (int64_t i = 0; i < count; i++) {
        int64_t other = other_sample(from, i), start = join.token, prompt = prompt_length(from, i),
                answer = prompt_length(from, other);
        add_part(&join, i, 0, ebb_dataset_length(from, i));
        end_sample(&join, start, i, kind_of(from, i));
        start = join.token;
        add_part(&join, i, 0, prompt);
        add_part(&join, other, answer, answer + answer_length(from, i, other, max_length));
        end_sample(&join, start, i, EBB_DATASET_KL);
    }
    struct ebb_dataset *set = *with;
    EBB_ASSERT(join.token == set->stored);
    set->group = 2;
    set->record_count = from->record_count;
    set->format = from->format;
    set->chat = from->chat;
    ebb_dataset_sum(set);
    return EBB_OK;
}
