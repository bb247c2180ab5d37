/* One block of records to samples: what each record's rendering becomes, token by token.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "data/dataset_int.h"

void ebb_set_block_clear(struct ebb_ctx *ctx, struct ebb_set_block *block)
{
    ebb_ids_free(ctx, &block->ids);
    ebb_str_free(ctx, &block->trained);
    ebb_mem_free(ctx, block->samples);
    ebb_mem_free(ctx, block->refused);
    *block = (struct ebb_set_block){.source = block->source,
                                    .first = block->first,
                                    .count = block->count,
                                    .bytes = block->bytes};
}

void ebb_set_worker_free(struct ebb_ctx *ctx, struct ebb_set_worker *worker)
{
    ebb_encoder_free(ctx, worker->encoder);
    ebb_rendering_free(ctx, &worker->rendering);
}

/* Marks the tokens that have no mark yet. */
static enum ebb_status mark(struct ebb_ctx *ctx, struct ebb_set_block *block, bool trained)
{
    char marks[64];
    memset(marks, trained ? 1 : 0, sizeof marks);
    size_t wanted = (size_t)block->ids.count;
    while (block->trained.bytes < wanted) {
        size_t left = wanted - block->trained.bytes;
        EBB_TRY(
            ebb_str_add(ctx, &block->trained, marks, left < sizeof marks ? left : sizeof marks));
    }
    return EBB_OK;
}

/* ---- texts to tokens ---- */

/* Text that brings its own BOS or EOS gets no second one. */
static void drop_double_bos(const struct ebb_tokenizer *tokenizer, struct ebb_ids *ids,
                            int64_t start)
{
    int32_t bos = ebb_tokenizer_bos(tokenizer);
    if (bos < 0 || ebb_tokenizer_prefix_count(tokenizer, bos) == 0 || ids->count - start < 2)
        return;
    if (ids->data[start] != bos || ids->data[start + 1] != bos) return;
    ids->count--;
    memmove(ids->data + start, ids->data + start + 1,
            (size_t)(ids->count - start) * sizeof *ids->data);
}

static enum ebb_status end_with_eos(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                    struct ebb_ids *ids, int64_t start)
{
    int32_t eos = ebb_tokenizer_eos(tokenizer);
    if (eos < 0)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "the tokenizer names no eos_token, so a sample's end could not be "
                        "learned\nadd \"eos_token\" to its tokenizer_config.json");
    int64_t count = ids->count - start;
    bool ends = count >= 1 && ids->data[ids->count - 1] == eos;
    if (ends && count >= 2 && ids->data[ids->count - 2] == eos &&
        ebb_tokenizer_suffix_count(tokenizer, eos) > 0)
        ids->count--;
    return ends ? EBB_OK : ebb_ids_add(ctx, ids, &eos, 1);
}

/* The parts [first, end) as one sample. */
static enum ebb_status encode_parts(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                    struct ebb_set_worker *worker, int64_t first, int64_t end,
                                    struct ebb_set_block *block)
{
    const struct ebb_rendering *rendering = &worker->rendering;
    const char *text = rendering->text.data == NULL ? "" : rendering->text.data;
    size_t from = first == 0 ? 0 : rendering->items[first - 1].end;
    int64_t start = block->ids.count, last_start = start;
    for (int64_t i = first; i < end; i++) {
        const struct ebb_part *part = &rendering->items[i];
        unsigned flags = i == first ? 0 : EBB_ENCODE_CONTINUES;
        if (!rendering->whole)
            flags |= (i == first ? EBB_ENCODE_PREFIX : 0) | (i + 1 == end ? EBB_ENCODE_SUFFIX : 0);
        last_start = block->ids.count;
        EBB_TRY(
            ebb_encode(ctx, worker->encoder, text + from, part->end - from, flags, &block->ids));
        if (i == first && !rendering->whole) drop_double_bos(job->tokenizer, &block->ids, start);
        /* The last part's marks wait for EOS: one that is dropped again has none. */
        if (i + 1 < end || rendering->whole) EBB_TRY(mark(ctx, block, part->learned));
        from = part->end;
    }
    if (rendering->whole) return EBB_OK;
    /* A prompt that ends with EOS is not the sample's end: an empty completion still gets its
     * own. */
    EBB_TRY(end_with_eos(ctx, job->tokenizer, &block->ids, last_start));
    block->ids.count--;
    EBB_TRY(mark(ctx, block, end > first && rendering->items[end - 1].learned));
    block->ids.count++;
    return mark(ctx, block, true);
}

/* Ids that the record brings. */
static enum ebb_status take_ids(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                struct ebb_set_worker *worker, int64_t index,
                                struct ebb_set_block *block)
{
    const struct ebb_rendering *rendering = &worker->rendering;
    int64_t size = ebb_tokenizer_vocab_size(job->tokenizer);
    for (int64_t i = 0; i < rendering->ids.count; i++) {
        int32_t id = rendering->ids.data[i];
        if (id >= 0 && id < size) continue;
        char *name = ebb_records_name(ctx, &job->sources[block->source].records, index);
        if (name == NULL) return EBB_NO_MEMORY;
        enum ebb_status status = EBB_FAIL(ctx, EBB_BAD_FILE,
                                          "%s: token %" PRId64 " has the id %" PRId32
                                          ", the tokenizer has ids from 0 to %" PRId64
                                          "\nit was made with another tokenizer",
                                          name, i + 1, id, size - 1);
        ebb_mem_free(ctx, name);
        return status;
    }
    EBB_TRY(ebb_ids_add(ctx, &block->ids, rendering->ids.data, rendering->ids.count));
    EBB_ASSERT((int64_t)rendering->marks.bytes == rendering->ids.count);
    return ebb_str_add(ctx, &block->trained, rendering->marks.data, rendering->marks.bytes);
}

/* ---- records to samples ---- */

static enum ebb_status nothing_to_train(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                        const struct ebb_set_block *block,
                                        const struct ebb_set_worker *worker, int64_t index,
                                        int64_t tokens, bool cut)
{
    if (cut) tokens = job->options->max_length;
    char *name = ebb_records_name(ctx, &job->sources[block->source].records, index);
    if (name == NULL) return EBB_NO_MEMORY;
    enum ebb_status status;
    bool left = job->options->truncation_side == EBB_TRUNCATE_LEFT;
    if (cut)
        status = EBB_FAIL(ctx, EBB_BAD_FILE,
                          "%s has nothing to train once it is cut to max_length %" PRId64
                          " tokens: %s\nraise max_length or set overlong: drop",
                          name, tokens,
                          left ? "none of its last ones is trained" : "its prompt fills them");
    else if (worker->rendering.whole || worker->rendering.tokenized)
        status =
            EBB_FAIL(ctx, EBB_BAD_FILE,
                     "%s has nothing to train: none of its %" PRId64 " tokens is to be learned",
                     name, tokens);
    else
        status = EBB_FAIL(ctx, EBB_BAD_FILE,
                          "%s has nothing to train: its text is empty (%" PRId64 " token%s in all)",
                          name, tokens, tokens == 1 ? "" : "s");
    ebb_mem_free(ctx, name);
    return status;
}

/* Tokens that both sides of a pair begin with, less than either has; `start` is the first's. */
static int64_t common_tokens(const struct ebb_set_block *block, int64_t start, int64_t first,
                             int64_t second)
{
    const int32_t *a = block->ids.data + start, *b = a + first;
    const char *marks_a = block->trained.data + start, *marks_b = marks_a + first;
    int64_t same = 0, most = (first < second ? first : second) - 1;
    while (same < most && a[same] == b[same] && marks_a[same] == marks_b[same]) same++;
    return same;
}

/* Cuts the samples from `first_sample` on, whose tokens begin at `start` and go to the block's end,
 * to max_length; returns how many it cut. On the left both sides of a pair lose the same of their
 * prompt, as the longer one needs it: answers to two prompts are no pair. */
static int64_t cut_samples(const struct ebb_dataset_options *options, int64_t start,
                           int64_t first_sample, struct ebb_set_block *block)
{
    struct ebb_set_sample *samples = block->samples + first_sample;
    int64_t count = block->sample_count - first_sample, limit = options->max_length;
    bool left = options->truncation_side == EBB_TRUNCATE_LEFT;
    int64_t shared = 0, from = start, to = start, cut = 0;
    if (left && count == 2) {
        int64_t first = samples[0].length, second = samples[1].length;
        int64_t over = (first > second ? first : second) - limit;
        int64_t common = common_tokens(block, start, first, second);
        shared = over < common ? over : common;
    }
    for (int64_t s = 0; s < count; s++) {
        int64_t length = samples[s].length;
        int64_t off = length - limit > shared ? length - limit : shared;
        if (off < 0) off = 0;
        int64_t kept = length - off, begin = from + (left ? off : 0);
        memmove(block->ids.data + to, block->ids.data + begin,
                (size_t)kept * sizeof *block->ids.data);
        memmove(block->trained.data + to, block->trained.data + begin, (size_t)kept);
        samples[s].length = kept;
        from += length;
        to += kept;
        cut += off > 0;
    }
    block->ids.count = to;
    block->trained.bytes = (size_t)to;
    return cut;
}

/* There is nothing to prefer in a pair whose sides have come to be the same tokens. */
static enum ebb_status check_pair(struct ebb_ctx *ctx, const struct ebb_set_job *job, int64_t index,
                                  int64_t start, int64_t first_sample, bool cut,
                                  const struct ebb_set_block *block)
{
    const struct ebb_set_sample *samples = block->samples + first_sample;
    if (block->sample_count - first_sample != 2 || samples[0].length != samples[1].length)
        return EBB_OK;
    const int32_t *ids = block->ids.data + start;
    size_t bytes = (size_t)samples[0].length * sizeof *ids;
    if (memcmp(ids, ids + samples[0].length, bytes) != 0) return EBB_OK;
    char *name = ebb_records_name(ctx, &job->sources[block->source].records, index);
    if (name == NULL) return EBB_NO_MEMORY;
    enum ebb_status status =
        cut ? EBB_FAIL(ctx, EBB_BAD_FILE,
                       "%s: 'chosen' and 'rejected' are the same once they are cut to max_length "
                       "%" PRId64 " tokens\nraise max_length or set overlong: drop",
                       name, job->options->max_length)
            : EBB_FAIL(ctx, EBB_BAD_FILE,
                       "%s: 'chosen' and 'rejected' become the same tokens", name);
    ebb_mem_free(ctx, name);
    return status;
}

static enum ebb_status add_sample(struct ebb_ctx *ctx, struct ebb_set_block *block,
                                  struct ebb_set_sample sample)
{
    if (block->sample_count == block->sample_room) {
        int64_t room = block->sample_room * 2 + 64;
        struct ebb_set_sample *grown =
            ebb_mem_realloc(ctx, block->samples, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        block->samples = grown;
        block->sample_room = room;
    }
    block->samples[block->sample_count++] = sample;
    return EBB_OK;
}

/* Are the samples from `first_sample` on, whose tokens begin at `start`, worth training? */
static enum ebb_status check_labels(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                    int64_t index, const struct ebb_set_worker *worker,
                                    int64_t start, int64_t first_sample, bool cut,
                                    struct ebb_set_block *block)
{
    for (int64_t s = first_sample; s < block->sample_count; s++) {
        int64_t length = block->samples[s].length, labels = 0;
        for (int64_t t = 1; t < length && labels == 0; t++) labels = block->trained.data[start + t];
        if (labels == 0)
            return nothing_to_train(ctx, job, block, worker, index, length, cut);
        start += length;
    }
    return EBB_OK;
}

static void count_overlong(struct ebb_set_overlong *facts, int64_t index, int64_t tokens)
{
    if (facts->count++ == 0) {
        facts->first = index;
        facts->first_tokens = tokens;
    }
    if (tokens > facts->longest) facts->longest = tokens;
}

/* The samples of what was rendered; *longest gets the longest one's length. */
static enum ebb_status encode_samples(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                      int64_t index, struct ebb_set_worker *worker,
                                      struct ebb_set_block *block, int64_t *longest)
{
    const struct ebb_rendering *rendering = &worker->rendering;
    int64_t record = job->sources[block->source].records.first + index + 1;
    *longest = 0;
    for (int64_t s = 0; s < rendering->samples; s++) {
        int64_t start = block->ids.count;
        if (rendering->tokenized)
            EBB_TRY(take_ids(ctx, job, worker, index, block));
        else
            EBB_TRY(encode_parts(ctx, job, worker, s == 0 ? 0 : rendering->part_ends[s - 1],
                                 rendering->part_ends[s], block));
        struct ebb_set_sample sample = {block->ids.count - start, record, rendering->desirable};
        EBB_TRY(add_sample(ctx, block, sample));
        if (sample.length > *longest) *longest = sample.length;
    }
    return EBB_OK;
}

/* What was rendered as samples, their lengths against max_length, their labels. */
static enum ebb_status encode_record(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                     int64_t index, struct ebb_set_worker *worker,
                                     struct ebb_set_block *block)
{
    const struct ebb_dataset_options *options = job->options;
    const struct ebb_rendering *rendering = &worker->rendering;
    bool kept = options->keep_overlong || options->overlong == EBB_OVERLONG_KEEP;
    int64_t limit = kept ? 0 : options->max_length;
    int64_t begin = block->ids.count, first_sample = block->sample_count, longest, cut = 0;
    EBB_TRY(encode_samples(ctx, job, index, worker, block, &longest));
    if (limit > 0 && longest > limit) {
        if (options->overlong != EBB_OVERLONG_TRUNCATE) {
            count_overlong(&block->overlong, index, longest);
            block->ids.count = begin;
            block->trained.bytes = (size_t)begin;
            block->sample_count = first_sample;
            block->dropped++;
            return EBB_OK;
        }
        cut = cut_samples(options, begin, first_sample, block);
    }
    EBB_TRY(check_labels(ctx, job, index, worker, begin, first_sample, cut > 0, block));
    EBB_TRY(check_pair(ctx, job, index, begin, first_sample, cut > 0, block));
    block->truncated += cut;
    block->passed += rendering->samples == 0;
    block->chat = block->chat || (rendering->whole && !rendering->tokenized);
    return EBB_OK;
}

static enum ebb_status add_record(struct ebb_ctx *ctx, const struct ebb_set_job *job, int64_t index,
                                  struct ebb_set_worker *worker, struct ebb_set_block *block)
{
    const struct ebb_set_source *source = &job->sources[block->source];
    int64_t tokens = block->ids.count, samples = block->sample_count;
    json_t *json;
    EBB_TRY(ebb_records_parse(ctx, &source->records, index, &json));
    struct ebb_format_record record = {&source->records, index, json};
    ebb_rendering_clear(&worker->rendering);
    enum ebb_status status = source->format->render(ctx, &source->env, &record, &worker->rendering);
    json_decref(json);
    if (status == EBB_OK) status = encode_record(ctx, job, index, worker, block);
    if (status == EBB_OK) return EBB_OK;
    block->ids.count = tokens; /* a refused record leaves nothing behind */
    block->trained.bytes = (size_t)tokens;
    block->sample_count = samples;
    return status;
}

static enum ebb_status note_refused(struct ebb_ctx *ctx, struct ebb_set_block *block, int64_t index)
{
    if (block->refused_count == block->refused_room) {
        int64_t room = block->refused_room * 2 + 16;
        int64_t *grown = ebb_mem_realloc(ctx, block->refused, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        block->refused = grown;
        block->refused_room = room;
    }
    block->refused[block->refused_count++] = index;
    return EBB_OK;
}

enum ebb_status ebb_set_block_run(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                  struct ebb_set_worker *worker, struct ebb_set_block *block)
{
    if (worker->encoder == NULL) EBB_TRY(ebb_encoder_create(ctx, job->tokenizer, &worker->encoder));
    for (int64_t i = block->first; i < block->first + block->count; i++) {
        enum ebb_status status = add_record(ctx, job, i, worker, block);
        if (status == EBB_BAD_FILE) {
            EBB_TRY(note_refused(ctx, block, i));
            /* No need to go on: they are too many already. */
            if (block->refused_count > job->options->max_bad_records) return EBB_OK;
        } else if (status != EBB_OK) {
            return status;
        }
    }
    return EBB_OK;
}
