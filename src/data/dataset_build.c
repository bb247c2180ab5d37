/* Building a data set: records to samples, in parallel blocks laid end to end in the records'
 * order.
 *
 * Whatever threads do when, the outcome is that of going through all records one by one: the first
 * failure in that order is the one that is told, and records that are unusable are counted, listed
 * and found to be too many in that order.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "data/dataset_int.h"

/* A block ends with whichever comes first. Small enough for threads to share the work evenly, large
 * enough that handing out blocks costs nothing. */
enum { BLOCK_RECORDS = 256, BLOCK_BYTES = 1 << 20 };
/* Keeps the draw of a weight apart from every other use of the seed. */
enum { WEIGHT_INSTANCE = 0x3e16 };

/* ---- all blocks ---- */

struct block_list {
    struct ebb_set_block *items;
    int64_t count;
};

/* What the threads share. */
struct crew {
    struct ebb_ctx *ctx;
    const struct ebb_set_job *job;
    struct block_list *blocks;
    pthread_mutex_t lock;
    int64_t next;               /* the next block that nobody has taken */
    int64_t stop;               /* no block behind this one matters */
    int64_t head, head_refused; /* the blocks before `head` are done and refused so many records */
    bool interrupted;
    struct ebb_progress *progress; /* NULL: nobody looks */
    double began, drawn;
    int64_t bytes_done, bytes_all, tokens;
};

static const double draw_from = 0.5, draw_every = 0.2; /* seconds */

static void draw(struct crew *crew, const struct ebb_set_block *block, bool last)
{
    double now = ebb_clock_seconds(), seconds = now - crew->began;
    bool due = last ? crew->drawn > 0 : seconds >= draw_from && now - crew->drawn >= draw_every;
    if (crew->progress == NULL || !due) return;
    crew->drawn = now;
    ebb_progress_show(crew->progress, false, "tokenizing %s: %d %% %.1f M tokens/s",
                      crew->job->sources[block->source].wanted->path,
                      (int)(100 * crew->bytes_done / crew->bytes_all),
                      1e-6 * (double)crew->tokens / seconds);
}

/* Only what all blocks before it have done decides where to stop, or chance would. */
static void finish_block(struct crew *crew, int64_t b)
{
    struct ebb_set_block *blocks = crew->blocks->items;
    blocks[b].done = true;
    if (blocks[b].status != EBB_OK && b < crew->stop) crew->stop = b;
    for (; crew->head < crew->blocks->count && blocks[crew->head].done; crew->head++) {
        crew->head_refused += blocks[crew->head].refused_count;
        if (crew->head_refused > crew->job->options->max_bad_records && crew->head < crew->stop)
            crew->stop = crew->head;
    }
    crew->bytes_done += blocks[b].bytes;
    crew->tokens += blocks[b].ids.count;
    draw(crew, &blocks[b], false);
}

/* Is there a block to take? */
static bool goes_on(struct crew *crew)
{
    const struct ebb_dataset_options *options = crew->job->options;
    if (crew->next >= crew->blocks->count || crew->next > crew->stop) return false;
    if (!crew->interrupted && options->interrupted != NULL)
        crew->interrupted = options->interrupted(options->interrupted_user);
    return !crew->interrupted;
}

/* One thread's work. */
static void *work(void *user)
{
    struct crew *crew = user;
    struct ebb_set_worker worker = {0};
    pthread_mutex_lock(&crew->lock);
    while (goes_on(crew)) {
        int64_t b = crew->next++;
        /* Worked on outside the array, where the neighbour's counters share a cache line. */
        struct ebb_set_block block = crew->blocks->items[b];
        pthread_mutex_unlock(&crew->lock);
        block.status = ebb_set_block_run(crew->ctx, crew->job, &worker, &block);
        pthread_mutex_lock(&crew->lock);
        crew->blocks->items[b] = block;
        finish_block(crew, b);
    }
    pthread_mutex_unlock(&crew->lock);
    ebb_set_worker_free(crew->ctx, &worker);
    return NULL;
}

enum { THREADS_MAX = 256 };

/* As many as OMP_NUM_THREADS allows, and a control group's quota. */
static int thread_count(int64_t blocks)
{
    int count = omp_get_max_threads(), processors = ebb_cpu_count();
    if (count > processors) count = processors;
    if (count > THREADS_MAX) count = THREADS_MAX;
    return count < blocks ? count : (int)blocks;
}

/* Plain threads, not OpenMP's: the thread sanitizer sees what these do to each other. One that
 * can't be had is done without. */
static void run_crew(struct crew *crew)
{
    pthread_t threads[THREADS_MAX];
    int wanted = thread_count(crew->blocks->count), count = 0;
    while (count + 1 < wanted && pthread_create(&threads[count], NULL, work, crew) == 0) count++;
    work(crew);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static enum ebb_status run_blocks(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                  struct block_list *blocks)
{
    struct crew crew = {.ctx = ctx, .job = job, .blocks = blocks, .stop = blocks->count};
    struct ebb_progress *progress = ebb_progress_create(ctx);
    if (progress == NULL) return EBB_NO_MEMORY;
    if (ebb_progress_is_live(progress)) crew.progress = progress;
    for (int64_t b = 0; b < blocks->count; b++) crew.bytes_all += blocks->items[b].bytes;
    crew.began = ebb_clock_seconds();
    pthread_mutex_init(&crew.lock, NULL);
    run_crew(&crew);
    pthread_mutex_destroy(&crew.lock);
    draw(&crew, &blocks->items[blocks->count - 1], true);
    ebb_progress_free(progress);
    if (!crew.interrupted) return EBB_OK;
    ebb_error_clear(ctx); /* unusable records' */
    return EBB_FAIL(ctx, EBB_INTERRUPTED,
                    "interrupted while data was tokenized: nothing was written");
}

/* ---- unusable records ---- */

/* Renders a record that was refused once more, for its error: ctx then holds it. */
static enum ebb_status ask_again(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                 struct ebb_set_worker *worker, int64_t source, int64_t index)
{
    struct ebb_set_block block = {.source = source, .first = index, .count = 1};
    ebb_error_clear(ctx);
    enum ebb_status status = ebb_set_block_run(ctx, job, worker, &block);
    bool refused = status == EBB_OK && block.refused_count == 1;
    ebb_set_block_clear(ctx, &block);
    if (status != EBB_OK || refused) return status;
    return EBB_FAIL(ctx, EBB_FAILED, "%s changed while it was read",
                    job->sources[source].wanted->path);
}

/* The texts of the first ones. */
static enum ebb_status list_refused(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                    const struct block_list *blocks, struct ebb_dataset *set)
{
    struct ebb_set_worker worker = {0};
    enum ebb_status status = EBB_OK;
    set->refusals = ebb_mem_alloc(ctx, EBB_REFUSALS * sizeof *set->refusals);
    if (set->refusals == NULL) return EBB_NO_MEMORY;
    int64_t listed = 0;
    for (int64_t b = 0; b < blocks->count && status == EBB_OK; b++) {
        const struct ebb_set_block *block = &blocks->items[b];
        for (int64_t i = 0; i < block->refused_count && listed < EBB_REFUSALS; i++) {
            status = ask_again(ctx, job, &worker, block->source, block->refused[i]);
            if (status != EBB_OK) break;
            char *text = ebb_mem_strdup(ctx, ebb_error_text(ctx));
            ebb_error_clear(ctx);
            set->refusals[listed++].text = text;
            if (text == NULL)
                status = EBB_FAIL(ctx, EBB_NO_MEMORY, "no memory for an error's text");
        }
    }
    ebb_set_worker_free(ctx, &worker);
    return status;
}

static enum ebb_status fail_refused(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                    const struct block_list *blocks)
{
    struct ebb_set_worker worker = {0};
    const struct ebb_set_block *block = blocks->items;
    while (block->refused_count == 0) block++;
    enum ebb_status status = ask_again(ctx, job, &worker, block->source, block->refused[0]);
    ebb_set_worker_free(ctx, &worker);
    return status == EBB_OK ? ebb_dataset_refuse(ctx, job->options) : status;
}

/* Goes through the blocks in order, and runs again, alone, what failed or was not run: threads may
 * have failed for want of memory, and their messages come in any order. */
static enum ebb_status settle_blocks(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                     struct block_list *blocks)
{
    int64_t refused = 0;
    ebb_error_clear(ctx);
    for (int64_t b = 0; b < blocks->count; b++) {
        struct ebb_set_block *block = &blocks->items[b];
        bool too_many = refused + block->refused_count > job->options->max_bad_records;
        if (!too_many && (!block->done || block->status != EBB_OK)) {
            struct ebb_set_worker worker = {0};
            ebb_set_block_clear(ctx, block);
            ebb_error_clear(ctx);
            enum ebb_status status = ebb_set_block_run(ctx, job, &worker, block);
            ebb_set_worker_free(ctx, &worker);
            EBB_TRY(status);
        }
        refused += block->refused_count;
        if (refused > job->options->max_bad_records) return fail_refused(ctx, job, blocks);
    }
    ebb_error_clear(ctx);
    return EBB_OK;
}

/* ---- overlong records ---- */

static enum ebb_status fail_overlong(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                     const struct block_list *blocks)
{
    const struct ebb_set_block *first = blocks->items;
    while (first->overlong.count == 0) first++;
    int64_t count = 0, longest = 0;
    for (int64_t b = 0; b < blocks->count; b++) {
        const struct ebb_set_overlong *facts = &blocks->items[b].overlong;
        count += facts->count;
        if (facts->longest > longest) longest = facts->longest;
    }
    char *name = ebb_records_name(ctx, &job->sources[first->source].records, first->overlong.first);
    if (name == NULL) return EBB_NO_MEMORY;
    enum ebb_status status =
        EBB_FAIL(ctx, EBB_BAD_CONFIG,
                 "%s has %" PRId64 " tokens, max_length is %" PRId64 " (records above it: %" PRId64
                 ", the longest has %" PRId64
                 " tokens)\nraise max_length, or set overlong: truncate or overlong: drop",
                 name, first->overlong.first_tokens, job->options->max_length, count, longest);
    ebb_mem_free(ctx, name);
    return status;
}

/* ---- the data set ---- */

/* What is there of one source. A unit is a sample, or a pair. */
struct share {
    int64_t units;
    int64_t whole;     /* times that all are there */
    int64_t drawn;     /* units that are there once more */
    uint8_t *is_drawn; /* [units] owned; NULL: drawn == 0 */
    int64_t samples;   /* in the data set, all times */
    int64_t tokens;    /* that are stored for them */
};

/* The first `drawn` places of Fisher and Yates' shuffle. */
static enum ebb_status draw_units(struct ebb_ctx *ctx, uint64_t seed, int64_t source,
                                  struct share *share)
{
    if (share->drawn == 0) return EBB_OK;
    share->is_drawn = ebb_mem_alloc(ctx, (size_t)share->units);
    int64_t *order = ebb_mem_alloc(ctx, (size_t)share->units * sizeof *order);
    if (share->is_drawn == NULL || order == NULL) {
        ebb_mem_free(ctx, order);
        return EBB_NO_MEMORY;
    }
    uint64_t key = ebb_random_key(seed, (uint64_t)source, 0, 0, WEIGHT_INSTANCE);
    for (int64_t i = 0; i < share->units; i++) order[i] = i;
    for (int64_t i = 0; i < share->drawn; i++) {
        uint32_t words[4];
        ebb_philox(key, (uint64_t)i, words);
        uint64_t wide = (uint64_t)words[0] << 32 | words[1];
        int64_t j = i + (int64_t)(wide % (uint64_t)(share->units - i)); /* bias below n / 2^64 */
        int64_t taken = order[j];
        order[j] = order[i];
        order[i] = taken;
        share->is_drawn[taken] = 1;
    }
    ebb_mem_free(ctx, order);
    return EBB_OK;
}

/* Is the unit's text stored? Without a whole time, only what was drawn is. */
static bool is_stored(const struct share *share, int64_t unit)
{
    return share->whole > 0 || (share->is_drawn != NULL && share->is_drawn[unit]);
}

static enum ebb_status make_share(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                  const struct block_list *blocks, int64_t source,
                                  struct share *share)
{
    struct ebb_set_weight weight = ebb_set_weight(job->sources[source].wanted);
    int64_t samples = 0;
    for (int64_t b = 0; b < blocks->count; b++)
        if (blocks->items[b].source == source) samples += blocks->items[b].sample_count;
    share->units = samples / job->group;
    share->whole = weight.whole;
    share->drawn = llround(weight.share * (double)share->units);
    EBB_TRY(draw_units(ctx, job->options->seed, source, share));
    share->samples = (share->units * share->whole + share->drawn) * job->group;
    int64_t sample = 0;
    for (int64_t b = 0; b < blocks->count; b++) {
        const struct ebb_set_block *block = &blocks->items[b];
        for (int64_t i = 0; block->source == source && i < block->sample_count; i++)
            if (is_stored(share, sample++ / job->group)) share->tokens += block->samples[i].length;
    }
    return EBB_OK;
}

struct filling {
    struct ebb_dataset *set;
    int64_t sample, token; /* where the next one goes */
};

static void copy_sample(struct filling *filling, const struct ebb_set_block *block,
                        const struct ebb_set_sample *sample, int64_t from)
{
    struct ebb_dataset *set = filling->set;
    int64_t at = filling->token, s = filling->sample++;
    memcpy(set->ids + at, block->ids.data + from, (size_t)sample->length * sizeof *set->ids);
    for (int64_t i = 0; i < sample->length; i++)
        if (block->trained.data[from + i]) set->trained[(at + i) >> 5] |= 1u << ((at + i) & 31);
    set->starts[s] = at;
    set->lengths[s] = sample->length;
    set->records[s] = sample->record;
    set->sources[s] = (int32_t)block->source;
    if (set->desirable != NULL) set->desirable[s] = sample->desirable;
    filling->token += sample->length;
}

/* The sample `from` once more, with the same tokens. */
static void repeat_sample(struct filling *filling, int64_t from)
{
    struct ebb_dataset *set = filling->set;
    int64_t s = filling->sample++;
    set->starts[s] = set->starts[from];
    set->lengths[s] = set->lengths[from];
    set->records[s] = set->records[from];
    set->sources[s] = set->sources[from];
    if (set->desirable != NULL) set->desirable[s] = set->desirable[from];
}

static void fill_source(const struct ebb_set_job *job, const struct block_list *blocks,
                        int64_t source, const struct share *share, struct filling *filling)
{
    int64_t first = filling->sample, sample = 0;
    for (int64_t b = 0; b < blocks->count; b++) {
        const struct ebb_set_block *block = &blocks->items[b];
        int64_t from = 0;
        for (int64_t i = 0; block->source == source && i < block->sample_count; i++) {
            if (is_stored(share, sample++ / job->group))
                copy_sample(filling, block, &block->samples[i], from);
            from += block->samples[i].length;
        }
    }
    int64_t all = share->units * job->group;
    for (int64_t k = 1; k < share->whole; k++)
        for (int64_t i = 0; i < all; i++) repeat_sample(filling, first + i);
    for (int64_t i = 0; share->whole > 0 && share->drawn > 0 && i < all; i++)
        if (share->is_drawn[i / job->group]) repeat_sample(filling, first + i);
}

static enum ebb_status fail_empty(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                  const struct ebb_dataset *facts)
{
    const char *path = job->sources[0].wanted->path;
    if (facts->dropped == facts->record_count)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "%s: every one of its records (%" PRId64 ") is above max_length %" PRId64
                        " and was dropped",
                        path, facts->record_count, job->options->max_length);
    int64_t left = facts->record_count - facts->dropped - facts->refused - facts->passed;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: no sample is left of %" PRId64 " record%s: with nothing to train %" PRId64
                    ", above max_length %" PRId64 ", unusable %" PRId64 "%s",
                    path, facts->record_count, facts->record_count == 1 ? "" : "s", facts->passed,
                    facts->dropped, facts->refused,
                    left > 0 ? ", and of the rest the weight takes none" : "");
}

/* Everything but the samples. */
static void sum_blocks(const struct ebb_set_job *job, const struct block_list *blocks,
                       struct ebb_dataset *facts)
{
    for (int64_t i = 0; i < job->options->source_count; i++)
        facts->record_count += job->sources[i].record_count;
    for (int64_t b = 0; b < blocks->count; b++) {
        const struct ebb_set_block *block = &blocks->items[b];
        facts->dropped += block->dropped;
        facts->truncated += block->truncated;
        facts->refused += block->refused_count;
        facts->passed += block->passed;
        facts->chat = facts->chat || block->chat;
    }
    facts->group = job->group;
}

static enum ebb_status join_shares(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                   struct block_list *blocks, const struct share *shares,
                                   struct ebb_dataset **dataset)
{
    struct ebb_dataset facts = {0};
    int64_t samples = 0, tokens = 0;
    sum_blocks(job, blocks, &facts);
    for (int64_t i = 0; i < job->options->source_count; i++) {
        samples += shares[i].samples;
        tokens += shares[i].tokens;
    }
    if (samples == 0) return fail_empty(ctx, job, &facts);
    EBB_TRY(ebb_dataset_create(ctx, samples, tokens, job->unpaired, dataset));
    struct ebb_dataset *set = *dataset;
    set->record_count = facts.record_count;
    set->dropped = facts.dropped;
    set->truncated = facts.truncated;
    set->passed = facts.passed;
    set->chat = facts.chat;
    set->group = facts.group;
    struct filling filling = {.set = set};
    for (int64_t i = 0; i < job->options->source_count; i++)
        fill_source(job, blocks, i, &shares[i], &filling);
    ebb_dataset_sum(set);
    set->refused = facts.refused;
    return set->refused > 0 ? list_refused(ctx, job, blocks, set) : EBB_OK;
}

static enum ebb_status join_blocks(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                   struct block_list *blocks, struct ebb_dataset **dataset)
{
    int64_t count = job->options->source_count;
    struct share *shares = ebb_mem_alloc(ctx, (size_t)count * sizeof *shares);
    if (shares == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; i < count && status == EBB_OK; i++)
        status = make_share(ctx, job, blocks, i, &shares[i]);
    if (status == EBB_OK) status = join_shares(ctx, job, blocks, shares, dataset);
    for (int64_t i = 0; i < count; i++) ebb_mem_free(ctx, shares[i].is_drawn);
    ebb_mem_free(ctx, shares);
    return status;
}

/* ---- all of it ---- */

/* Cuts the sources into blocks; with `items` NULL only counts them. */
static int64_t cut_blocks(const struct ebb_set_job *job, struct ebb_set_block *items)
{
    int64_t count = 0;
    for (int64_t s = 0; s < job->options->source_count; s++) {
        const struct ebb_set_source *source = &job->sources[s];
        const struct ebb_record_span *spans = source->records.spans + source->records.first;
        for (int64_t first = 0; first < source->record_count; count++) {
            int64_t end = first, bytes = 0;
            while (end < source->record_count && end - first < BLOCK_RECORDS && bytes < BLOCK_BYTES)
                bytes += (int64_t)spans[end++].text.bytes + 1; /* and what parts it from the next */
            if (items != NULL)
                items[count] = (struct ebb_set_block){.source = s,
                                                      .first = first,
                                                      .count = end - first,
                                                      .bytes = bytes};
            first = end;
        }
    }
    return count;
}

enum ebb_status ebb_dataset_build(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                  struct ebb_dataset **dataset)
{
    struct block_list blocks = {.count = cut_blocks(job, NULL)};
    bool drops = job->options->overlong != EBB_OVERLONG_ERROR, overlong = false;
    blocks.items = ebb_mem_alloc(ctx, (size_t)blocks.count * sizeof *blocks.items);
    if (blocks.items == NULL) return EBB_NO_MEMORY;
    cut_blocks(job, blocks.items);
    enum ebb_status status = run_blocks(ctx, job, &blocks);
    if (status == EBB_OK) status = settle_blocks(ctx, job, &blocks);
    for (int64_t b = 0; b < blocks.count; b++)
        overlong = overlong || blocks.items[b].overlong.count > 0;
    if (status == EBB_OK && overlong && !drops) status = fail_overlong(ctx, job, &blocks);
    if (status == EBB_OK) status = join_blocks(ctx, job, &blocks, dataset);
    for (int64_t b = 0; b < blocks.count; b++) ebb_set_block_clear(ctx, &blocks.items[b]);
    ebb_mem_free(ctx, blocks.items);
    return status;
}
