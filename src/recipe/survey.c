/* Counting a data set.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/survey.h"

#include <string.h>

int64_t ebb_survey_targets(const struct ebb_dataset *dataset, int64_t sample)
{
    int64_t targets = 0;
    for (int64_t i = 0; i < ebb_dataset_length(dataset, sample); i++)
        targets += ebb_survey_is_target(dataset, sample, i);
    return targets;
}

/* Templates write a line end behind the end of a turn. Tokenizers have it as "\n", "<0x0A>" or, of
 * blanks, U+2581. */
static bool is_blank(const struct ebb_tokenizer *tokenizer, int32_t id)
{
    size_t bytes = 0;
    const char *text = ebb_tokenizer_text(tokenizer, id, &bytes);
    if (text == NULL) return false;
    if (bytes == 6 && memcmp(text, "<0x0A>", 6) == 0) return true;
    for (size_t i = 0; i < bytes; i++) {
        if (strchr(" \t\r\n", text[i]) && text[i]) continue;
        if (bytes - i < 3 || memcmp(text + i, "\xe2\x96\x81", 3) != 0) return false;
        i += 2;
    }
    return true;
}

int64_t ebb_survey_ended(const struct ebb_dataset *dataset, const struct ebb_tokenizer *tokenizer)
{
    int64_t ended = 0;
    int32_t eos = ebb_tokenizer_eos(tokenizer);
    for (int64_t i = 0; i < dataset->count; i++) {
        const int32_t *ids = ebb_dataset_ids(dataset, i);
        int64_t last = ebb_dataset_length(dataset, i) - 1;
        while (last > 0 &&
               (!ebb_survey_is_target(dataset, i, last) || is_blank(tokenizer, ids[last])))
            last--;
        ended += last > 0 && (ids[last] == eos || ebb_tokenizer_is_special(tokenizer, ids[last]));
    }
    return ended;
}

static int doubling_of(int64_t length)
{
    int doubling = 0;
    while (length >> (doubling + 1) > 0) doubling++;
    return doubling;
}

/* Lays the buckets out: about a screen of them at most. */
static void make_buckets(const struct ebb_dataset *dataset, struct ebb_survey *survey)
{
    enum { SCREEN = 20 };
    int64_t shortest = dataset->longest;
    for (int64_t i = 0; i < dataset->count; i++)
        if (ebb_dataset_length(dataset, i) < shortest) shortest = ebb_dataset_length(dataset, i);
    int first = doubling_of(shortest), last = doubling_of(dataset->longest);
    if (last > first + EBB_SURVEY_BUCKETS - 1) last = first + EBB_SURVEY_BUCKETS - 1;
    int doublings = last - first + 1;
    int parts = 4 * doublings <= SCREEN ? 4 : 2 * doublings <= SCREEN ? 2 : 1;
    for (int d = first; d <= last; d++) {
        int64_t begin = (int64_t)1 << d;
        int cut = begin >= 4 * parts ? parts : 1; /* none of less than four lengths */
        for (int k = 0; k < cut; k++) {
            struct ebb_survey_bucket bucket = {begin + begin / cut * k,
                                               begin + begin / cut * (k + 1) - 1, 0, 0};
            if (bucket.high < shortest || bucket.low > dataset->longest) continue;
            survey->buckets[survey->bucket_count++] = bucket;
        }
    }
}

static void fill_buckets(const struct ebb_dataset *dataset, struct ebb_survey *survey)
{
    for (int64_t i = 0; i < dataset->count; i++) {
        int64_t length = ebb_dataset_length(dataset, i);
        int at = 0;
        while (at < survey->bucket_count - 1 && length > survey->buckets[at].high) at++;
        survey->buckets[at].samples++;
        survey->buckets[at].tokens += length;
    }
}

static enum ebb_status try_strategy(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                    int64_t capacity, enum ebb_packing_strategy strategy,
                                    struct ebb_survey_rows *rows)
{
    struct ebb_packing packing = {0};
    rows->possible = strategy != EBB_PACKING_BFD || dataset->longest <= capacity;
    if (!rows->possible) return EBB_OK;
    EBB_TRY(
        ebb_packing_create(ctx, dataset->lengths, dataset->count, capacity, strategy, &packing));
    rows->rows = packing.bins;
    rows->pieces = packing.pieces;
    rows->fill =
        packing.bins > 0 ? (double)dataset->tokens / ((double)packing.bins * (double)capacity) : 0;
    ebb_packing_free(ctx, &packing);
    return EBB_OK;
}

enum ebb_status ebb_survey_make(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                const struct ebb_tokenizer *tokenizer, int64_t capacity,
                                struct ebb_survey *survey)
{
    static const char *const names[EBB_SURVEY_STRATEGIES] = {"bfd", "bfd_split", "wrapped"};
    *survey = (struct ebb_survey){.capacity = capacity, .longest = dataset->longest};
    survey->ended = ebb_survey_ended(dataset, tokenizer);
    make_buckets(dataset, survey);
    fill_buckets(dataset, survey);
    for (int i = 0; i < EBB_SURVEY_STRATEGIES; i++) {
        survey->rows[i].name = names[i];
        if (capacity > 0)
            EBB_TRY(try_strategy(ctx, dataset, capacity, (enum ebb_packing_strategy)i,
                                 &survey->rows[i]));
    }
    return EBB_OK;
}
