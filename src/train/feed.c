/* Rows of samples for micro-batches.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/feed.h"

#include <inttypes.h>
#include <string.h>

#include "train/trainer_int.h"

/* ---- references ------------------------------------------------------------------------------ */

void ebb_reference_free(struct ebb_ctx *ctx, struct ebb_reference_set *reference)
{
    ebb_mem_free(ctx, reference->offsets);
    ebb_mem_free(ctx, reference->logprobs);
    memset(reference, 0, sizeof *reference);
}

/* Targets of a sample that are trained: its first token is nobody's target. */
static int64_t count_labels(const struct ebb_dataset *dataset, int64_t sample)
{
    int64_t labels = 0;
    for (int64_t i = 1; i < ebb_dataset_length(dataset, sample); i++)
        labels += ebb_dataset_is_trained(dataset, sample, i);
    return labels;
}

static enum ebb_status make_room(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                 struct ebb_reference_set *reference)
{
    reference->offsets =
        ebb_mem_alloc(ctx, (size_t)(dataset->count + 1) * sizeof *reference->offsets);
    if (reference->offsets == NULL) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < dataset->count; i++)
        reference->offsets[i + 1] = reference->offsets[i] + count_labels(dataset, i);
    int64_t labels = reference->offsets[dataset->count];
    reference->logprobs =
        ebb_mem_alloc(ctx, (size_t)(labels > 0 ? labels : 1) * sizeof *reference->logprobs);
    return reference->logprobs ? EBB_OK : EBB_NO_MEMORY;
}

/* Labels of document d, whose first is number `first` of the micro-batch. */
static int64_t labels_of(const struct ebb_batch *batch, int64_t d, int64_t first)
{
    int64_t end = first;
    while (end < batch->labels && batch->label_rows[end] < batch->doc_starts[d + 1]) end++;
    return end - first;
}

/* Copies between a micro-batch's labels and those of its samples. */
static enum ebb_status move_labels(struct ebb_ctx *ctx, const struct ebb_reference_set *reference,
                                   const struct ebb_batch *batch, const int64_t *samples,
                                   float *labels, bool in)
{
    for (int64_t d = 0, first = 0; d < batch->docs; d++) {
        int64_t count = labels_of(batch, d, first), at = reference->offsets[samples[d]];
        if (count != reference->offsets[samples[d] + 1] - at)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "sample %" PRId64 " was cut into pieces by packing, and its reference "
                            "is of the whole sample\n"
                            "try:   packing_strategy: bfd, or no packing",
                            samples[d]);
        float *own = reference->logprobs + at;
        memcpy(in ? own : labels + first, in ? labels + first : own, (size_t)count * sizeof *own);
        first += count;
    }
    return EBB_OK;
}

static enum ebb_status run_reference(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                     struct ebb_loader *loader, int stop_fd,
                                     const struct ebb_reference_set *reference, float *labels)
{
    int64_t micros = ebb_loader_describe(loader)->micros_per_epoch;
    ebb_engine_begin(engine);
    for (int64_t m = 0; m < micros; m++) {
        const struct ebb_batch *batch;
        if (ebb_stop_wanted(stop_fd))
            return EBB_FAIL(ctx, EBB_INTERRUPTED,
                            "stopped by a signal while the reference's log-probabilities were made "
                            "(micro-batch %" PRId64 " of %" PRId64 "): nothing was written",
                            m, micros);
        EBB_TRY(ebb_loader_next(ctx, loader, &batch));
        EBB_TRY(ebb_engine_micro(engine, EBB_PROGRAM_EVAL, batch, 1, (uint32_t)m));
        EBB_TRY(ebb_engine_get_logprobs(engine, batch->labels, labels));
        EBB_TRY(move_labels(ctx, reference, batch, ebb_loader_samples(loader), labels, true));
    }
    return EBB_OK;
}

enum ebb_status ebb_reference_create(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                     const struct ebb_dataset *dataset, struct ebb_loader *loader,
                                     int stop_fd, struct ebb_reference_set *reference)
{
    const struct ebb_loader_place start = {0, 0};
    int64_t tokens = ebb_loader_describe(loader)->tokens_max;
    float *labels = ebb_mem_alloc(ctx, (size_t)(tokens > 0 ? tokens : 1) * sizeof *labels);
    if (labels == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = make_room(ctx, dataset, reference);
    if (status == EBB_OK) status = ebb_loader_seek(ctx, loader, start);
    if (status == EBB_OK) status = run_reference(ctx, engine, loader, stop_fd, reference, labels);
    if (status == EBB_OK) status = ebb_loader_seek(ctx, loader, start);
    ebb_mem_free(ctx, labels);
    return status;
}

/* ---- feeds ----------------------------------------------------------------------------------- */

struct ebb_feed {
    struct ebb_feed_sources sources;
    const struct ebb_objective *objective;
    int32_t *ids;   /* [capacity tokens, k] of a saved teacher */
    void *logprobs; /* the same of its type; or [capacity tokens] fp32 of a reference */
    int32_t *kinds; /* [capacity docs] */
};

enum ebb_status ebb_feed_create(struct ebb_ctx *ctx, const struct ebb_engine *engine,
                                const struct ebb_feed_sources *sources, struct ebb_feed **feed_out)
{
    const struct ebb_objective *objective = ebb_engine_objective(engine);
    const struct ebb_capacity *capacity = &ebb_engine_plan(engine)->request.capacity;
    struct ebb_feed *feed = ebb_mem_alloc(ctx, sizeof *feed);
    int64_t k = sources->teacher ? objective->top_k : 1;
    size_t labels = (size_t)(capacity->tokens * k);
    *feed_out = NULL;
    if (feed == NULL) return EBB_NO_MEMORY;
    feed->sources = *sources;
    feed->objective = objective;
    feed->logprobs = ebb_mem_alloc(ctx, labels * sizeof(float));
    if (sources->teacher) feed->ids = ebb_mem_alloc(ctx, labels * sizeof *feed->ids);
    feed->kinds = ebb_mem_alloc(ctx, (size_t)capacity->docs * sizeof *feed->kinds);
    if (!feed->logprobs || !feed->kinds || (sources->teacher && !feed->ids)) {
        ebb_feed_free(ctx, feed);
        return EBB_NO_MEMORY;
    }
    *feed_out = feed;
    return EBB_OK;
}

void ebb_feed_free(struct ebb_ctx *ctx, struct ebb_feed *feed)
{
    if (feed == NULL) return;
    ebb_mem_free(ctx, feed->ids);
    ebb_mem_free(ctx, feed->logprobs);
    ebb_mem_free(ctx, feed->kinds);
    ebb_mem_free(ctx, feed);
}

enum ebb_status ebb_feed_put(struct ebb_feed *feed, struct ebb_engine *engine,
                             struct ebb_loader *loader, const struct ebb_batch *batch)
{
    struct ebb_ctx *ctx = ebb_engine_context(engine);
    const struct ebb_feed_sources *sources = &feed->sources;
    const int64_t *samples = ebb_loader_samples(loader);
    if (sources->teacher) {
        EBB_TRY(
            ebb_teacher_gather(ctx, sources->teacher, batch, samples, feed->ids, feed->logprobs));
        EBB_TRY(ebb_engine_put_top(engine, batch->labels, feed->ids, feed->logprobs));
    }
    if (sources->reference) {
        EBB_TRY(move_labels(ctx, sources->reference, batch, samples, feed->logprobs, false));
        EBB_TRY(ebb_engine_put_logprobs(engine, batch->labels, feed->logprobs));
    }
    if (!ebb_objective_has_kinds(feed->objective)) return EBB_OK;
    for (int64_t d = 0; d < batch->docs; d++)
        feed->kinds[d] = sources->dataset->desirable[samples[d]];
    return ebb_engine_put_kinds(engine, batch->docs, feed->kinds);
}

uint64_t ebb_feed_hash(const struct ebb_feed *feed, const struct ebb_batch *batch)
{
    const struct ebb_objective *objective = feed->objective;
    size_t count = (size_t)(batch->labels * objective->top_k);
    EBB_ASSERT(feed->sources.teacher != NULL);
    const uint64_t pair[2] = {
        ebb_hash_bytes(feed->ids, count * sizeof *feed->ids),
        ebb_hash_bytes(feed->logprobs, count * (size_t)ebb_dtype_bytes(objective->top_dtype))};
    return ebb_hash_bytes(pair, sizeof pair);
}

const int32_t *ebb_feed_kinds(const struct ebb_feed *feed)
{
    return feed->kinds;
}
