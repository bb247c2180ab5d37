/* Units in an epoch's order, and micro-batches made from them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/loader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* Keeps the order's random numbers apart from every other use of the seed. */
enum { ORDER_INSTANCE = 0x0d0e };
enum { STRETCH_BATCHES = 50 };

struct ebb_loader {
    const struct ebb_dataset *dataset; /* borrowed */
    struct ebb_loader_options options;
    struct ebb_packing packing; /* {0} without packing */
    struct ebb_loader_facts facts;
    struct ebb_loader_place place;
    int64_t *order;      /* [units] of order_epoch */
    int64_t order_epoch; /* -1: none yet */
    int64_t stretch;     /* units that group_by_length sorts together; 0: no grouping */
    struct rank *ranks;  /* [stretch] working memory of that */
    struct ebb_batch batch;
    int64_t *samples; /* [docs_max] */
};

/* ---- units ---- */

/* Samples that stay together: a pair's two. */
static int64_t group_size(const struct ebb_dataset *dataset)
{
    return dataset->group == 2 ? 2 : 1;
}

static int64_t unit_docs(const struct ebb_loader *loader, int64_t unit)
{
    return loader->options.packing ? loader->packing.starts[unit + 1] - loader->packing.starts[unit]
                                   : group_size(loader->dataset);
}

static struct ebb_piece unit_piece(const struct ebb_loader *loader, int64_t unit, int64_t doc)
{
    if (loader->options.packing) return loader->packing.items[loader->packing.starts[unit] + doc];
    int64_t sample = unit * group_size(loader->dataset) + doc;
    return (struct ebb_piece){sample, 0, ebb_dataset_length(loader->dataset, sample)};
}

static int64_t unit_tokens(const struct ebb_loader *loader, int64_t unit)
{
    if (loader->options.packing) return loader->packing.tokens[unit];
    int64_t tokens = 0;
    for (int64_t d = 0; d < unit_docs(loader, unit); d++)
        tokens += unit_piece(loader, unit, d).stop;
    return tokens;
}

/* ---- order ---- */

/* A unit's standing where units are sorted by length. */
struct rank {
    int64_t tokens, place, unit;
};

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    if (x->tokens != y->tokens) return x->tokens > y->tokens ? -1 : 1;
    return x->place < y->place ? -1 : 1; /* units of one length stay as they were shuffled */
}

/* Fisher and Yates. */
static void shuffle(struct ebb_loader *loader, int64_t epoch)
{
    int64_t *order = loader->order;
    uint64_t key = ebb_random_key(loader->options.seed, (uint64_t)epoch, 0, 0, ORDER_INSTANCE);
    for (int64_t i = loader->facts.units - 1; i > 0; i--) {
        uint32_t words[4];
        ebb_philox(key, (uint64_t)i, words);
        uint64_t wide = (uint64_t)words[0] << 32 | words[1];
        int64_t j = (int64_t)(wide % (uint64_t)(i + 1)); /* the bias is below i / 2^64 */
        int64_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

/* Sorts each stretch, then lets the longest of all change places with the first, so that memory
 * which does not suffice shows at once. */
static void group_lengths(struct ebb_loader *loader)
{
    int64_t units = loader->facts.units, *order = loader->order, longest = 0;
    for (int64_t start = 0; start < units; start += loader->stretch) {
        int64_t count = units - start < loader->stretch ? units - start : loader->stretch;
        for (int64_t i = 0; i < count; i++)
            loader->ranks[i] =
                (struct rank){unit_tokens(loader, order[start + i]), i, order[start + i]};
        qsort(loader->ranks, (size_t)count, sizeof *loader->ranks, compare_ranks);
        for (int64_t i = 0; i < count; i++) order[start + i] = loader->ranks[i].unit;
        if (unit_tokens(loader, order[start]) > unit_tokens(loader, order[longest]))
            longest = start;
    }
    int64_t first = order[0];
    order[0] = order[longest];
    order[longest] = first;
}

static void make_order(struct ebb_loader *loader, int64_t epoch)
{
    if (loader->order_epoch == epoch) return;
    loader->order_epoch = epoch;
    for (int64_t i = 0; i < loader->facts.units; i++) loader->order[i] = i;
    if (loader->options.shuffle) shuffle(loader, epoch);
    if (loader->stretch > 0) group_lengths(loader);
}

/* 50 batches of all ranks; of small data so few that there are four stretches. */
static enum ebb_status prepare_grouping(struct ebb_ctx *ctx, struct ebb_loader *loader)
{
    int64_t together = loader->options.per_device_batch_size * loader->options.world;
    int64_t batches = loader->facts.units / 4 / together;
    if (batches > STRETCH_BATCHES) batches = STRETCH_BATCHES;
    if (batches < 1) batches = 1;
    loader->stretch = batches * together;
    if (loader->stretch > loader->facts.units) loader->stretch = loader->facts.units;
    loader->ranks = ebb_mem_alloc(ctx, (size_t)loader->stretch * sizeof *loader->ranks);
    return loader->ranks == NULL ? EBB_NO_MEMORY : EBB_OK;
}

/* ---- facts ---- */

static int compare_down(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* The sum of the largest `count`: no order can bring more together. Sorts the values. */
static int64_t largest_sum(int64_t *values, int64_t total, int64_t count)
{
    int64_t sum = 0;
    qsort(values, (size_t)total, sizeof *values, compare_down);
    for (int64_t i = 0; i < count && i < total; i++) sum += values[i];
    return sum;
}

static void count_document(struct ebb_loader *loader, struct ebb_piece piece)
{
    struct ebb_loader_facts *facts = &loader->facts;
    int64_t length = piece.stop - piece.start;
    int bucket = 0;
    while (bucket + 1 < EBB_LOADER_BUCKETS && length >> (bucket + 1) > 0) bucket++;
    facts->bucket_docs[bucket]++;
    facts->bucket_tokens[bucket] += length;
    facts->square_sum += (double)length * (double)length;
    facts->tokens += length;
    facts->docs++;
    if (length > facts->longest) facts->longest = length;
    if (piece.start == 0) {
        facts->split += length < ebb_dataset_length(loader->dataset, piece.sample);
    } else if (ebb_dataset_is_trained(loader->dataset, piece.sample, piece.start)) {
        facts->labels--; /* nothing of its piece stands before it */
    }
}

/* Uses loader->order as working memory. */
static void fill_facts(struct ebb_loader *loader)
{
    struct ebb_loader_facts *facts = &loader->facts;
    const struct ebb_loader_options *options = &loader->options;
    int64_t batch = options->per_device_batch_size;
    for (int64_t i = 0; i < facts->units; i++) loader->order[i] = unit_tokens(loader, i);
    facts->tokens_max = largest_sum(loader->order, facts->units, batch);
    for (int64_t i = 0; i < facts->units; i++) loader->order[i] = unit_docs(loader, i);
    facts->docs_max = largest_sum(loader->order, facts->units, batch);
    int64_t together = batch * options->world;
    facts->micros_per_epoch = (facts->units + together - 1) / together;
    facts->labels = loader->dataset->labels;
    for (int64_t i = 0; i < facts->units; i++)
        for (int64_t d = 0; d < unit_docs(loader, i); d++)
            count_document(loader, unit_piece(loader, i, d));
    facts->fill = (double)facts->tokens /
                  ((double)facts->micros_per_epoch * options->world * (double)facts->tokens_max);
}

/* ---- making one ---- */

static enum ebb_status check_options(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                     const struct ebb_loader_options *options)
{
    if (dataset->count < 1) return EBB_FAIL(ctx, EBB_BAD_CONFIG, "a data set of no samples");
    EBB_ASSERT(dataset->count % group_size(dataset) == 0);
    if (options->per_device_batch_size < 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "per_device_train_batch_size is %" PRId64 ", at least 1 is wanted",
                        options->per_device_batch_size);
    if (options->packing && options->max_length < 2)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "packing needs max_length, and it is %" PRId64,
                        options->max_length);
    if (options->packing && options->group_by_length)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "group_by_length is for batches of samples, and packing makes bins of"
                        " nearly equal length\ntake one of the two away");
    if (options->packing && group_size(dataset) == 2 && options->strategy != EBB_PACKING_BFD)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "packing_strategy %s splits samples, and the chosen and rejected answer of"
                        " a preference pair must stay whole and together"
                        "\nset packing_strategy: bfd",
                        options->strategy == EBB_PACKING_WRAPPED ? "wrapped" : "bfd_split");
    if (options->world < 1 || options->rank < 0 || options->rank >= options->world)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "rank %d of %d does not exist", options->rank,
                        options->world);
    return EBB_OK;
}

static enum ebb_status check_pair(struct ebb_ctx *ctx, const struct ebb_loader *loader,
                                  int64_t pair, int64_t tokens)
{
    if (tokens <= loader->options.max_length) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                    "preference pair %" PRId64 " has %" PRId64 " + %" PRId64
                    " tokens and does not go into a bin of max_length %" PRId64
                    "\nwith packing both answers go into one bin: raise max_length, or set"
                    " packing: false",
                    pair + 1, ebb_dataset_length(loader->dataset, 2 * pair),
                    ebb_dataset_length(loader->dataset, 2 * pair + 1), loader->options.max_length);
}

/* Pieces that stand for pairs to pieces that are samples: twice as many, chosen before rejected. */
static enum ebb_status unfold_pairs(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                    struct ebb_packing *packing)
{
    struct ebb_piece *items = ebb_mem_alloc(ctx, (size_t)(2 * packing->pieces) * sizeof *items);
    if (items == NULL) return EBB_NO_MEMORY;
    packing->pieces *= 2;
    for (int64_t i = 0; i < packing->pieces; i++) {
        int64_t sample = 2 * packing->items[i / 2].sample + i % 2;
        items[i] = (struct ebb_piece){sample, 0, ebb_dataset_length(dataset, sample)};
    }
    for (int64_t i = 0; i <= packing->bins; i++) packing->starts[i] *= 2;
    ebb_mem_free(ctx, packing->items);
    packing->items = items;
    return EBB_OK;
}

static enum ebb_status pack(struct ebb_ctx *ctx, struct ebb_loader *loader)
{
    const struct ebb_dataset *dataset = loader->dataset;
    int64_t group = group_size(dataset), count = dataset->count / group;
    enum ebb_status status = EBB_OK;
    int64_t *lengths = ebb_mem_alloc(ctx, (size_t)count * sizeof *lengths);
    if (lengths == NULL) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < count && status == EBB_OK; i++) {
        for (int64_t k = 0; k < group; k++)
            lengths[i] += ebb_dataset_length(dataset, i * group + k);
        if (group == 2) status = check_pair(ctx, loader, i, lengths[i]);
    }
    if (status == EBB_OK)
        status = ebb_packing_create(ctx, lengths, count, loader->options.max_length,
                                    loader->options.strategy, &loader->packing);
    ebb_mem_free(ctx, lengths);
    if (status == EBB_OK && group == 2) status = unfold_pairs(ctx, dataset, &loader->packing);
    return status;
}

static enum ebb_status make_batch(struct ebb_ctx *ctx, struct ebb_loader *loader)
{
    size_t tokens = (size_t)loader->facts.tokens_max, docs = (size_t)loader->facts.docs_max;
    if (loader->facts.tokens_max > INT32_MAX)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "a micro-batch would have %" PRId64 " tokens, more than 2^31",
                        loader->facts.tokens_max);
    struct ebb_batch *batch = &loader->batch;
    batch->ids = ebb_mem_alloc(ctx, tokens * sizeof *batch->ids);
    batch->targets = ebb_mem_alloc(ctx, tokens * sizeof *batch->targets);
    batch->positions = ebb_mem_alloc(ctx, tokens * sizeof *batch->positions);
    batch->doc_starts = ebb_mem_alloc(ctx, (docs + 1) * sizeof *batch->doc_starts);
    batch->label_rows = ebb_mem_alloc(ctx, tokens * sizeof *batch->label_rows);
    loader->samples = ebb_mem_alloc(ctx, docs * sizeof *loader->samples);
    bool whole = batch->ids != NULL && batch->targets != NULL && batch->positions != NULL &&
                 batch->doc_starts != NULL && batch->label_rows != NULL && loader->samples != NULL;
    return whole ? EBB_OK : EBB_NO_MEMORY;
}

static enum ebb_status create(struct ebb_ctx *ctx, struct ebb_loader *loader)
{
    const struct ebb_dataset *dataset = loader->dataset;
    if (loader->options.packing) EBB_TRY(pack(ctx, loader));
    loader->facts.units =
        loader->options.packing ? loader->packing.bins : dataset->count / group_size(dataset);
    loader->order = ebb_mem_alloc(ctx, (size_t)loader->facts.units * sizeof *loader->order);
    if (loader->order == NULL) return EBB_NO_MEMORY;
    loader->order_epoch = -1;
    if (loader->options.group_by_length) EBB_TRY(prepare_grouping(ctx, loader));
    fill_facts(loader);
    return make_batch(ctx, loader);
}

enum ebb_status ebb_loader_create(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                  const struct ebb_loader_options *options,
                                  struct ebb_loader **loader)
{
    *loader = NULL;
    struct ebb_loader_options wanted = *options;
    if (wanted.world == 0) wanted.world = 1;
    EBB_TRY(check_options(ctx, dataset, &wanted));
    struct ebb_loader *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->dataset = dataset;
    made->options = wanted;
    enum ebb_status status = create(ctx, made);
    if (status == EBB_OK)
        *loader = made;
    else
        ebb_loader_free(ctx, made);
    return status;
}

void ebb_loader_free(struct ebb_ctx *ctx, struct ebb_loader *loader)
{
    if (loader == NULL) return;
    ebb_packing_free(ctx, &loader->packing);
    ebb_mem_free(ctx, loader->order);
    ebb_mem_free(ctx, loader->ranks);
    ebb_mem_free(ctx, loader->batch.ids);
    ebb_mem_free(ctx, loader->batch.targets);
    ebb_mem_free(ctx, loader->batch.positions);
    ebb_mem_free(ctx, loader->batch.doc_starts);
    ebb_mem_free(ctx, loader->batch.label_rows);
    ebb_mem_free(ctx, loader->samples);
    ebb_mem_free(ctx, loader);
}

/* ---- use ---- */

const struct ebb_loader_facts *ebb_loader_describe(const struct ebb_loader *loader)
{
    return &loader->facts;
}

struct ebb_loader_place ebb_loader_tell(const struct ebb_loader *loader)
{
    return loader->place;
}

enum ebb_status ebb_loader_seek(struct ebb_ctx *ctx, struct ebb_loader *loader,
                                struct ebb_loader_place place)
{
    int64_t micros = loader->facts.micros_per_epoch;
    if (place.epoch < 0 || place.micro < 0 || place.micro > micros)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "the data has no micro-batch %" PRId64 " in epoch %" PRId64
                        ": an epoch has %" PRId64
                        "\nthe data set or its options differ from the run that is resumed",
                        place.micro, place.epoch, micros);
    if (place.micro == micros) place = (struct ebb_loader_place){place.epoch + 1, 0};
    loader->place = place;
    return EBB_OK;
}

static void add_document(struct ebb_loader *loader, struct ebb_piece piece)
{
    const struct ebb_dataset *set = loader->dataset;
    struct ebb_batch *batch = &loader->batch;
    const int32_t *ids = ebb_dataset_ids(set, piece.sample) + piece.start;
    int64_t length = piece.stop - piece.start, at = batch->tokens;
    memcpy(batch->ids + at, ids, (size_t)length * sizeof *ids);
    for (int64_t t = 0; t < length; t++) {
        bool label =
            t + 1 < length && ebb_dataset_is_trained(set, piece.sample, piece.start + t + 1);
        batch->positions[at + t] = (int32_t)t;
        batch->targets[at + t] = label ? ids[t + 1] : EBB_IGNORE;
        if (label) batch->label_rows[batch->labels++] = (int32_t)(at + t);
    }
    loader->samples[batch->docs++] = piece.sample;
    batch->tokens += length;
    batch->doc_starts[batch->docs] = (int32_t)batch->tokens;
    if (length > batch->longest) batch->longest = length;
}

enum ebb_status ebb_loader_next(struct ebb_ctx *ctx, struct ebb_loader *loader,
                                const struct ebb_batch **batch)
{
    (void)ctx; /* nothing here can fail yet; a loader that reads ahead from disk will */
    const struct ebb_loader_options *options = &loader->options;
    make_order(loader, loader->place.epoch);
    int64_t first =
        (loader->place.micro * options->world + options->rank) * options->per_device_batch_size;
    int64_t end = first + options->per_device_batch_size;
    if (end > loader->facts.units) end = loader->facts.units;
    struct ebb_batch *made = &loader->batch;
    made->tokens = made->docs = made->labels = made->longest = 0;
    made->doc_starts[0] = 0;
    for (int64_t u = first; u < end; u++)
        for (int64_t d = 0; d < unit_docs(loader, loader->order[u]); d++)
            add_document(loader, unit_piece(loader, loader->order[u], d));
    if (++loader->place.micro == loader->facts.micros_per_epoch)
        loader->place = (struct ebb_loader_place){loader->place.epoch + 1, 0};
    *batch = made;
    return EBB_OK;
}

const int64_t *ebb_loader_samples(const struct ebb_loader *loader)
{
    return loader->samples;
}
