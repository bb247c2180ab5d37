/* Data sets: files of records to samples, each a row of token ids with a mark on those that are
 * trained.
 *
 * Files are read as records (data/records.h). What a record's keys mean is a *format*
 * (data/format.h). A data set may have several *sources*, each with its own format and columns;
 * their samples are laid end to end in the order of the sources.
 *
 * A sample of texts is: what the tokenizer's post-processor puts before a text (BOS), the
 * record's text, EOS. EOS stands exactly once (a text that ends with it gets no second) and is
 * trained. A sample that a chat template rendered is what the template wrote and nothing else,
 * tokenized as transformers' apply_chat_template does it.
 *
 * Prompt and completion are tokenized separately and laid end to end, not tokenized as one text
 * and cut at the prompt's length: the boundary is then exact whatever the texts, and the
 * prompt's ids are those the model will see when it is prompted. (A single text may merge over
 * the boundary: "a: " + "b" has a token " b" that belongs to neither part.)
 *
 * Nothing is cut, skipped or repaired silently: errors name file, line, record and key, and what
 * is cut or left out is counted and said.
 *
 * Tokenizing runs on all cores, with a progress line where it takes long, and its result is kept
 * on disk under a hash of everything that it was made from (data/dataset_cache.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_DATASET_H
#define EBB_DATA_DATASET_H

#include "base/yaml.h"
#include "data/format.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_overlong {
    EBB_OVERLONG_ERROR,
    EBB_OVERLONG_DROP,
    EBB_OVERLONG_TRUNCATE,
    EBB_OVERLONG_KEEP /* for who only looks at a data set; no choice of a user's */
};
enum ebb_truncation_side { EBB_TRUNCATE_RIGHT, EBB_TRUNCATE_LEFT }; /* which end is cut off */

/* "error"/"drop"/"truncate"; false for anything else. */
bool ebb_overlong_parse(const char *text, enum ebb_overlong *value);

/* One place that records come from. {0} with a path is valid. Texts are borrowed during the
 * call. */
struct ebb_dataset_source {
    const char *path; /* a file, or a directory of them: data/records.h */
    /* NULL: "train". "train", "test", ... and slices: "train[:90%]", "train[100:200]". */
    const char *split;
    const char *format;     /* dataset_format; NULL or "auto": by the keys of the first records */
    const char *text_field; /* dataset_text_field; NULL: "text" */
    /* dataset_columns: {prompt: question, completion: answer}: a record's key "question" is read
     * as "prompt". NULL: none. Inside messages likewise {role: speaker, content: text}, and the
     * values of roles by dataset_roles: {user: human, assistant: bot}. */
    const struct ebb_yaml *columns, *roles;
    /* How often an epoch has each sample; 0 means 1. 2.5: every one twice and half of them a
     * third time, 0.5: half of them. Which half is drawn from the seed and the source's place in
     * the list, the same in every epoch. Pairs stay together. */
    double weight;
};

/* {0} with sources is valid. Everything is borrowed during the call. */
struct ebb_dataset_options {
    const struct ebb_dataset_source *sources; /* [source_count], >= 1 */
    int64_t source_count;
    /* What formats need; text_field is the source's. */
    enum ebb_purpose purpose;
    const struct ebb_chat_template *chat; /* NULL: chats are refused, naming chat_template */
    const json_t *chat_kwargs;            /* chat_template_kwargs: an object, or NULL */
    /* What templates that ask for the time are told, seconds since 1970; 0: the clock. */
    int64_t now;
    /* What is trained. Of several sources true asks those whose format has such a part; that none
     * has one is an error. */
    enum ebb_loss_part completion_only; /* auto: where the format has a prompt */
    enum ebb_loss_part assistant_only;  /* auto: in chats */
    bool last_turn_only;                /* of the assistant's turns only the last is trained */
    int64_t max_length;                 /* 0: no bound */
    /* Samples above max_length: stop, leave out, cut, or nothing. Cutting keeps max_length tokens;
     * on the right it takes EOS away, on the left BOS and what the prompt begins with. */
    enum ebb_overlong overlong;
    enum ebb_truncation_side truncation_side;
    /* Samples above max_length stay whole: packing will split them. Beside it `overlong` has no
     * say. */
    bool keep_overlong;
    int64_t max_samples;     /* 0: all; else the first so many records of each source's split */
    int64_t max_bad_records; /* unusable records that are left out, of all sources together; one
                                more stops with the error of the first */
    uint64_t seed;           /* of weights */
    const char *cache_dir;   /* where tokenized sets are kept; NULL: nowhere */
    /* Asked between blocks of records, by one thread at a time; once it says true, loading ends
     * with EBB_INTERRUPTED. NULL: never. */
    bool (*interrupted)(void *user);
    void *interrupted_user;
};

/* `desirable` of an answer that belongs to another prompt: ebb_dataset_add_kl. */
enum { EBB_DATASET_KL = 2 };

/* A record that was left out. */
struct ebb_refusal {
    char *text; /* owned: "file:line: record 12: ..." as an error would say it */
};
enum { EBB_REFUSALS = 100 }; /* texts that are kept; all are counted */

struct ebb_dataset {
    int64_t count;   /* samples */
    int64_t tokens;  /* of all samples, each as often as it is there */
    int64_t labels;  /* targets that are trained: marked tokens but for the first of each sample */
    int64_t longest; /* tokens of the longest sample */
    /* Of records and what became of them, whatever their source's weight. */
    int64_t record_count; /* records that were read */
    int64_t dropped;      /* records left out as overlong */
    int64_t truncated;    /* samples cut as overlong */
    int64_t refused;      /* records left out as unusable */
    int64_t passed;       /* records without use for this purpose (bad answers, in sft) */
    struct ebb_refusal *refusals; /* [min(refused, EBB_REFUSALS)] in their order; owned */
    const char *format; /* borrowed: "text", "messages", ...; "several" where sources differ */
    bool chat;          /* a chat template rendered some or all of it */
    /* Preference pairs: samples 2i and 2i + 1 are chosen and rejected of one prompt; then 2,
     * else 1. */
    int64_t group;
    uint8_t *desirable; /* [count] of unpaired preferences: 1 or 0, or EBB_DATASET_KL; else NULL */
    int64_t *records;   /* [count] number of its record, from 1, over all records of its source */
    int32_t *sources;   /* [count] */
    /* A sample's tokens are ids[starts[i] .. starts[i] + lengths[i]); samples may share them. */
    int64_t *starts;   /* [count] */
    int64_t *lengths;  /* [count] */
    int64_t stored;    /* tokens in ids */
    int32_t *ids;      /* [stored] */
    uint32_t *trained; /* [(stored + 31) / 32] one bit a token; read with ebb_dataset_is_trained */
};

/* Reads, tokenizes and checks everything. The caller frees. The tokenizer is not kept. One info
 * line is logged for what was detected, one warning for what was dropped or cut, one for records
 * that were refused. Failures: EBB_IO, EBB_BAD_FILE (broken JSON or UTF-8, a field missing or of
 * the wrong type, an empty set, nothing to train), EBB_BAD_CONFIG (a sample above max_length,
 * options that contradict each other, no eos_token), EBB_UNSUPPORTED (a known format that is not
 * offered). */
enum ebb_status ebb_dataset_load(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                 const struct ebb_dataset_options *options,
                                 struct ebb_dataset **dataset);
/* A data set from ids in memory, for tests and benchmarks: sample i has lengths[i] tokens, the
 * first prompts[i] of them not trained (prompts may be NULL). */
enum ebb_status ebb_dataset_from_ids(struct ebb_ctx *ctx, const int32_t *ids,
                                     const int64_t *lengths, const int64_t *prompts, int64_t count,
                                     struct ebb_dataset **dataset);
/* KTO's data, of answers with a verdict or of pairs (a desirable and an undesirable answer): the
 * same answers, each followed by its prompt with the next answer that belongs to another prompt
 * (after the last sample comes the first), cut to max_length (0: no bound), in groups of the two.
 * `from` is not kept. The caller frees. */
enum ebb_status ebb_dataset_add_kl(struct ebb_ctx *ctx, const struct ebb_dataset *from,
                                   int64_t max_length, struct ebb_dataset **with);
void ebb_dataset_free(struct ebb_ctx *ctx, struct ebb_dataset *dataset); /* accepts NULL */

static inline int64_t ebb_dataset_length(const struct ebb_dataset *dataset, int64_t sample)
{
    return dataset->lengths[sample];
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
