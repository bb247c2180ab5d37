/* A data set in numbers: how long its samples are, how they end, how full rows would be.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_SURVEY_H
#define EBB_RECIPE_SURVEY_H

#include "data/dataset.h"
#include "data/packing.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_SURVEY_BUCKETS = 32, EBB_SURVEY_STRATEGIES = 3 };

/* Samples of low <= length <= high. */
struct ebb_survey_bucket {
    int64_t low, high, samples, tokens;
};

/* What a packing strategy makes of the samples. */
struct ebb_survey_rows {
    const char *name; /* as packing_strategy has it */
    bool possible;    /* bfd is not, where a sample is longer than a row */
    int64_t rows;
    int64_t pieces; /* documents in them */
    double fill;    /* tokens over rows * capacity */
};

struct ebb_survey {
    int64_t ended;   /* samples that the model is taught to end: ebb_survey_ended */
    int64_t longest; /* tokens */
    /* From the shortest sample to the longest without a gap: doublings of the length, each cut into
     * 4 or 2 where they are few and long. */
    struct ebb_survey_bucket buckets[EBB_SURVEY_BUCKETS];
    int bucket_count;
    int64_t capacity; /* tokens of a row; 0: rows were not looked at */
    struct ebb_survey_rows rows[EBB_SURVEY_STRATEGIES];
};

/* The model learns to predict this token: the first of a sample is never a target. */
static inline bool ebb_survey_is_target(const struct ebb_dataset *dataset, int64_t sample,
                                        int64_t place)
{
    return place > 0 && ebb_dataset_is_trained(dataset, sample, place);
}
/* How many of a sample's tokens are. */
int64_t ebb_survey_targets(const struct ebb_dataset *dataset, int64_t sample);
/* Samples whose last target but for blanks is EOS or another special token. */
int64_t ebb_survey_ended(const struct ebb_dataset *dataset, const struct ebb_tokenizer *tokenizer);
/* `capacity`: max_length, or 0 where no rows are wanted. */
enum ebb_status ebb_survey_make(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                const struct ebb_tokenizer *tokenizer, int64_t capacity,
                                struct ebb_survey *survey);

#ifdef __cplusplus
}
#endif
#endif
