/* Data sets: files of records to samples, each a row of token ids with a mark on those that are
 * trained.
 *
 * Files are JSON (an array of objects) or JSON lines, told apart by their content. What a record's
 * keys mean is a *format*, one row in the table of data/format.c.
 *
 * A sample is: what the tokenizer's post-processor puts before a text (BOS), the record's text,
 * EOS. EOS stands exactly once (a text that ends with it gets no second) and is trained.
 *
 * Prompt and completion are tokenized separately and laid end to end, not tokenized as one text and
 * cut at the prompt's length: the boundary is then exact whatever the texts, and the prompt's ids
 * are those the model will see when it is prompted. (A single text may merge over the boundary: "a:
 * " + "b" has a token " b" that belongs to neither part.)
 *
 * Nothing is cut, skipped or repaired silently: errors name file, line, record and key.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_DATASET_H
#define EBB_DATA_DATASET_H

#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_completion_only {
    EBB_COMPLETION_ONLY_AUTO,
    EBB_COMPLETION_ONLY_TRUE,
    EBB_COMPLETION_ONLY_FALSE
};
enum ebb_overlong { EBB_OVERLONG_ERROR, EBB_OVERLONG_DROP, EBB_OVERLONG_TRUNCATE };

/* "auto"/"true"/"false" and "error"/"drop"/"truncate"; false for anything else. */
bool ebb_completion_only_parse(const char *text, enum ebb_completion_only *value);
bool ebb_overlong_parse(const char *text, enum ebb_overlong *value);

/* {0} with a path is valid. Texts are borrowed during the call. */
struct ebb_dataset_options {
    const char *path; /* dataset_name: a .json or .jsonl file, or a directory of them */
    /* NULL: "train". "train", "test", ... and slices: "train[:90%]", "train[100:200]". In a
     * directory: files whose name begins with it ("train-00000.jsonl"), also in data/; files that
     * carry no split's name are all "train". A single file is "train" or what it is named. */
    const char *split;
    const char *format;     /* dataset_format; NULL or "auto": by the keys of the first record */
    const char *text_field; /* dataset_text_field; NULL: "text" */
    enum ebb_completion_only completion_only; /* auto: where the format has a prompt */
    int64_t max_length;                       /* 0: no bound */
    /* Samples above max_length: stop, leave out, or keep the first max_length tokens (no EOS). */
    enum ebb_overlong overlong;
    int64_t max_samples; /* 0: all; else the first so many records of the split */
};

struct ebb_dataset {
    int64_t count;   /* samples */
    int64_t tokens;  /* of all samples */
    int64_t labels;  /* targets that are trained: marked tokens but for the first of each sample */
    int64_t longest; /* tokens of the longest sample */
    int64_t dropped; /* records left out as overlong */
    int64_t truncated;  /* samples cut as overlong */
    const char *format; /* borrowed: "text", "prompt_completion", "alpaca" */
    int64_t *starts;    /* [count + 1] where each sample begins in ids */
    int64_t *records;   /* [count] number of its record, from 1, over all files of the split */
    int32_t *ids;       /* [tokens] */
    uint32_t *trained;  /* [(tokens + 31) / 32] one bit a token; read with ebb_dataset_is_trained */
};

/* Reads, tokenizes and checks everything. The caller frees. The tokenizer is not kept. One info
 * line is logged for what was detected, one warning for what was dropped or cut. Failures:
 * EBB_IO, EBB_BAD_FILE (broken JSON or UTF-8, a field missing or of the wrong type, an empty
 * set, nothing to train), EBB_BAD_CONFIG (a sample above max_length, options that contradict
 * each other, no eos_token), EBB_UNSUPPORTED (a known format that is not offered). */
enum ebb_status ebb_dataset_load(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                 const struct ebb_dataset_options *options,
                                 struct ebb_dataset **dataset);
/* A data set from ids in memory, for tests and benchmarks: sample i has lengths[i] tokens, the
 * first prompts[i] of them not trained (prompts may be NULL). */
enum ebb_status ebb_dataset_from_ids(struct ebb_ctx *ctx, const int32_t *ids,
                                     const int64_t *lengths, const int64_t *prompts, int64_t count,
                                     struct ebb_dataset **dataset);
void ebb_dataset_free(struct ebb_ctx *ctx, struct ebb_dataset *dataset); /* accepts NULL */

static inline int64_t ebb_dataset_length(const struct ebb_dataset *dataset, int64_t sample)
{
    return dataset->starts[sample + 1] - dataset->starts[sample];
}
static inline const int32_t *ebb_dataset_ids(const struct ebb_dataset *dataset, int64_t sample)
{
    return dataset->ids + dataset->starts[sample];
}
/* `place` counts from the sample's first token. */
static inline bool ebb_dataset_is_trained(const struct ebb_dataset *dataset, int64_t sample,
                                          int64_t place)
{
    int64_t bit = dataset->starts[sample] + place;
    return (dataset->trained[bit >> 5] >> (bit & 31)) & 1u;
}

#ifdef __cplusplus
}
#endif
#endif
