/* The loader: targets inside documents, each sample once an epoch, the same order after a seek,
 * bounds that hold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include "base/number.h"
#include "data/loader.h"

/* Samples of random lengths; ids tell sample and place. */
static struct ebb_dataset *make_set(struct room *room, int64_t count, int64_t longest)
{
    int64_t *lengths = malloc((size_t)count * sizeof *lengths),
            *prompts = malloc((size_t)count * sizeof *prompts);
    int64_t tokens = 0, at = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t words[4];
        ebb_philox(99, (uint64_t)i, words);
        lengths[i] = 2 + words[0] % (longest - 1);
        prompts[i] = words[1] % lengths[i];
        tokens += lengths[i];
    }
    int32_t *ids = malloc((size_t)tokens * sizeof *ids);
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < lengths[i]; t++) ids[at++] = (int32_t)(i * 1000 + t);
    struct ebb_dataset *set;
    assert_ok(room, ebb_dataset_from_ids(room->ctx, ids, lengths, prompts, count, &set));
    free(lengths);
    free(prompts);
    free(ids);
    return set;
}

static struct ebb_loader *make_loader(struct room *room, const struct ebb_dataset *set,
                                      struct ebb_loader_options options)
{
    struct ebb_loader *loader;
    assert_ok(room, ebb_loader_create(room->ctx, set, &options, &loader));
    return loader;
}

static const struct ebb_batch *next(struct room *room, struct ebb_loader *loader)
{
    const struct ebb_batch *batch;
    assert_ok(room, ebb_loader_next(room->ctx, loader, &batch));
    return batch;
}

/* Everything that batch.h promises. `seen`: a byte a token of the data set, one row of SEEN_ROW for
 * each sample, or NULL. */
enum { SEEN_ROW = 64 };

static void assert_batch(const struct ebb_loader *loader, const struct ebb_dataset *set,
                         const struct ebb_batch *batch, uint8_t *seen)
{
    const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
    assert_true(batch->tokens <= facts->tokens_max);
    assert_true(batch->docs <= facts->docs_max);
    assert_int_equal(batch->doc_starts[0], 0);
    assert_int_equal(batch->doc_starts[batch->docs], batch->tokens);
    int64_t labels = 0, longest = 0;
    for (int64_t d = 0; d < batch->docs; d++) {
        int64_t start = batch->doc_starts[d], length = batch->doc_starts[d + 1] - start;
        int64_t sample = ebb_loader_samples(loader)[d];
        int64_t from = batch->ids[start] - sample * 1000; /* where its piece of the sample begins */
        assert_true(length > 0 && from >= 0 && from + length <= ebb_dataset_length(set, sample));
        if (facts->split == 0) assert_int_equal(length, ebb_dataset_length(set, sample));
        if (length > longest) longest = length;
        for (int64_t t = 0; t < length; t++) {
            assert_int_equal(batch->ids[start + t], sample * 1000 + from + t);
            assert_int_equal(batch->positions[start + t], t);
            bool trained = t + 1 < length && ebb_dataset_is_trained(set, sample, from + t + 1);
            assert_int_equal(batch->targets[start + t],
                             trained ? sample * 1000 + from + t + 1 : EBB_IGNORE);
            if (trained) assert_int_equal(batch->label_rows[labels++], start + t);
            if (seen != NULL) seen[sample * SEEN_ROW + from + t]++;
        }
    }
    assert_int_equal(labels, batch->labels);
    assert_int_equal(longest, batch->longest);
    assert_true(longest <= facts->longest);
}

static void assert_all_seen_once(const struct ebb_dataset *set, const uint8_t *seen)
{
    for (int64_t i = 0; i < set->count; i++)
        for (int64_t t = 0; t < ebb_dataset_length(set, i); t++)
            assert_int_equal(seen[i * SEEN_ROW + t], 1);
}

static const struct ebb_loader_options all_options[] = {
    {.per_device_batch_size = 1},
    {.per_device_batch_size = 4, .shuffle = true, .seed = 7},
    {.per_device_batch_size = 1, .packing = true, .max_length = 64, .shuffle = true, .seed = 7},
    {.per_device_batch_size = 3, .packing = true, .max_length = 50, .shuffle = true, .seed = 8},
    {.per_device_batch_size = 2, .packing = true, .max_length = 100},
    {.per_device_batch_size = 2,
     .packing = true,
     .strategy = EBB_PACKING_BFD_SPLIT,
     .max_length = 17,
     .shuffle = true,
     .seed = 9},
    {.per_device_batch_size = 2,
     .packing = true,
     .strategy = EBB_PACKING_WRAPPED,
     .max_length = 23,
     .shuffle = true,
     .seed = 9},
    {.per_device_batch_size = 3, .shuffle = true, .group_by_length = true, .seed = 10},
    {.per_device_batch_size = 1000, .shuffle = true},
};
enum { OPTIONS = sizeof all_options / sizeof all_options[0] };

static void each_token_comes_once_an_epoch_with_shifted_targets(void **state)
{
    struct room *room = *state;
    enum { COUNT = 101 };
    struct ebb_dataset *set = make_set(room, COUNT, 50);
    for (int o = 0; o < OPTIONS; o++) {
        struct ebb_loader *loader = make_loader(room, set, all_options[o]);
        const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
        for (int epoch = 0; epoch < 3; epoch++) {
            uint8_t seen[COUNT * SEEN_ROW] = {0};
            int64_t tokens = 0, labels = 0, docs = 0, longest = 0;
            assert_int_equal(ebb_loader_tell(loader).epoch, epoch);
            for (int64_t m = 0; m < facts->micros_per_epoch; m++) {
                assert_int_equal(ebb_loader_tell(loader).micro, m);
                const struct ebb_batch *batch = next(room, loader);
                assert_true(batch->docs > 0);
                assert_batch(loader, set, batch, seen);
                tokens += batch->tokens;
                labels += batch->labels;
                docs += batch->docs;
                if (batch->longest > longest) longest = batch->longest;
            }
            assert_all_seen_once(set, seen);
            assert_int_equal(tokens, facts->tokens);
            assert_int_equal(labels, facts->labels);
            assert_int_equal(docs, facts->docs);
            assert_int_equal(longest, facts->longest);
        }
        ebb_loader_free(room->ctx, loader);
    }
    ebb_dataset_free(room->ctx, set);
}

static void without_shuffling_the_order_is_the_files(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, 10, 20);
    struct ebb_loader *loader =
        make_loader(room, set, (struct ebb_loader_options){.per_device_batch_size = 3});
    for (int64_t at = 0; at < 20;) {
        const struct ebb_batch *batch = next(room, loader);
        assert_int_equal(batch->docs, at % 10 == 9 ? 1 : 3);
        for (int64_t d = 0; d < batch->docs; d++)
            assert_int_equal(ebb_loader_samples(loader)[d], at++ % 10);
    }
    ebb_loader_free(room->ctx, loader);
    ebb_dataset_free(room->ctx, set);
}

static void epochs_and_seeds_differ_in_their_order(void **state)
{
    struct room *room = *state;
    enum { COUNT = 200 };
    struct ebb_dataset *set = make_set(room, COUNT, 20);
    int64_t orders[4][COUNT];
    for (int run = 0; run < 2; run++) {
        struct ebb_loader_options options = {.per_device_batch_size = 1,
                                             .shuffle = true,
                                             .seed = (uint64_t)run};
        struct ebb_loader *loader = make_loader(room, set, options);
        for (int epoch = 0; epoch < 2; epoch++)
            for (int i = 0; i < COUNT; i++) {
                next(room, loader);
                orders[2 * run + epoch][i] = ebb_loader_samples(loader)[0];
            }
        ebb_loader_free(room->ctx, loader);
    }
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < a; b++) {
            int same = 0;
            for (int i = 0; i < COUNT; i++) same += orders[a][i] == orders[b][i];
            assert_true(same < 12); /* chance gives 1 */
        }
    ebb_dataset_free(room->ctx, set);
}

/* Over many epochs each sample stands at each place about equally often. */
static void the_shuffle_is_fair(void **state)
{
    struct room *room = *state;
    enum { COUNT = 8, EPOCHS = 8000 };
    struct ebb_dataset *set = make_set(room, COUNT, 5);
    struct ebb_loader_options options = {.per_device_batch_size = 1, .shuffle = true, .seed = 3};
    struct ebb_loader *loader = make_loader(room, set, options);
    int counts[COUNT][COUNT] = {{0}};
    for (int e = 0; e < EPOCHS; e++)
        for (int i = 0; i < COUNT; i++) {
            next(room, loader);
            counts[i][ebb_loader_samples(loader)[0]]++;
        }
    for (int i = 0; i < COUNT; i++)
        for (int s = 0; s < COUNT; s++) /* mean 1000, standard deviation 30: five of them */
            assert_true(counts[i][s] > 850 && counts[i][s] < 1150);
    ebb_loader_free(room->ctx, loader);
    ebb_dataset_free(room->ctx, set);
}

static uint64_t batch_hash(const struct ebb_batch *batch)
{
    return ebb_hash_bytes(batch->ids, (size_t)batch->tokens * sizeof *batch->ids) ^
           ebb_hash_bytes(batch->targets, (size_t)batch->tokens * sizeof *batch->targets) * 3;
}

static void a_seek_continues_as_if_nothing_had_happened(void **state)
{
    struct room *room = *state;
    enum { MICROS = 60 };
    struct ebb_dataset *set = make_set(room, 101, 50);
    for (int o = 1; o + 1 < OPTIONS; o++) {
        uint64_t hashes[MICROS];
        struct ebb_loader_place places[MICROS];
        struct ebb_loader *loader = make_loader(room, set, all_options[o]);
        for (int i = 0; i < MICROS; i++) {
            places[i] = ebb_loader_tell(loader);
            hashes[i] = batch_hash(next(room, loader));
        }
        ebb_loader_free(room->ctx, loader);
        loader = make_loader(room, set, all_options[o]);
        for (int i = MICROS - 1; i >= 0; i -= 7) { /* a fresh loader, and backwards */
            assert_ok(room, ebb_loader_seek(room->ctx, loader, places[i]));
            for (int j = i; j < MICROS && j < i + 3; j++)
                assert_true(batch_hash(next(room, loader)) == hashes[j]);
        }
        struct ebb_loader_place end = {0, ebb_loader_describe(loader)->micros_per_epoch};
        assert_ok(room, ebb_loader_seek(room->ctx, loader, end));
        assert_int_equal(ebb_loader_tell(loader).epoch, 1);
        assert_int_equal(ebb_loader_tell(loader).micro, 0);
        end.micro++;
        assert_failed(room, ebb_loader_seek(room->ctx, loader, end), EBB_BAD_CONFIG,
                      "no micro-batch", "resumed", NULL);
        ebb_loader_free(room->ctx, loader);
    }
    ebb_dataset_free(room->ctx, set);
}

static void ranks_share_an_epoch_without_overlap(void **state)
{
    struct room *room = *state;
    enum { COUNT = 50, WORLD = 4 };
    struct ebb_dataset *set = make_set(room, COUNT, 30);
    for (int o = 1; o < OPTIONS; o++) {
        uint8_t seen[COUNT * SEEN_ROW] = {0};
        int64_t micros = -1;
        for (int rank = 0; rank < WORLD; rank++) {
            struct ebb_loader_options options = all_options[o];
            options.rank = rank;
            options.world = WORLD;
            struct ebb_loader *loader = make_loader(room, set, options);
            if (micros < 0) micros = ebb_loader_describe(loader)->micros_per_epoch;
            assert_int_equal(ebb_loader_describe(loader)->micros_per_epoch, micros);
            for (int64_t m = 0; m < micros; m++) /* may be empty at the end */
                assert_batch(loader, set, next(room, loader), seen);
            ebb_loader_free(room->ctx, loader);
        }
        assert_all_seen_once(set, seen);
    }
    ebb_dataset_free(room->ctx, set);
}

/* ---- pieces ---- */

static void pieces_are_documents_of_their_own(void **state)
{
    struct room *room = *state;
    const int64_t lengths[] = {5, 2, 3, 1};
    const int64_t prompts[] = {2, 0, 0, 0};
    const int32_t ids[] = {10, 11, 12, 13, 14, 20, 21, 30, 31, 32, 40};
    struct ebb_dataset *set;
    assert_ok(room, ebb_dataset_from_ids(room->ctx, ids, lengths, prompts, 4, &set));
    struct ebb_loader_options options = {.per_device_batch_size = 3,
                                         .packing = true,
                                         .strategy = EBB_PACKING_WRAPPED,
                                         .max_length = 4};
    struct ebb_loader *loader = make_loader(room, set, options);
    const struct ebb_batch *batch = next(room, loader);
    enum { NONE = EBB_IGNORE };
    const int32_t targets[] = {NONE, 12, 13, NONE, NONE, 21, NONE, NONE, 32, NONE, NONE};
    const int32_t positions[] = {0, 1, 2, 3, 0, 0, 1, 0, 0, 1, 0};
    const int32_t starts[] = {0, 4, 5, 7, 8, 10, 11};
    const int32_t rows[] = {1, 2, 5, 8};
    const int64_t samples[] = {0, 0, 1, 2, 2, 3};
    assert_int_equal(batch->tokens, 11);
    assert_int_equal(batch->docs, 6);
    assert_int_equal(batch->labels, 4);
    assert_int_equal(batch->longest, 4);
    assert_memory_equal(batch->ids, ids, sizeof ids);
    assert_memory_equal(batch->targets, targets, sizeof targets);
    assert_memory_equal(batch->positions, positions, sizeof positions);
    assert_memory_equal(batch->doc_starts, starts, sizeof starts);
    assert_memory_equal(batch->label_rows, rows, sizeof rows);
    assert_memory_equal(ebb_loader_samples(loader), samples, sizeof samples);
    const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
    assert_int_equal(facts->labels, 4); /* of 6: 14 and 31 have nothing before them */
    assert_int_equal(facts->docs, 6);
    assert_int_equal(facts->split, 2);
    assert_int_equal(facts->longest, 4);
    assert_int_equal(facts->tokens, 11);
    assert_true(facts->square_sum == 16 + 1 + 4 + 1 + 4 + 1);
    assert_int_equal(facts->bucket_docs[0], 3);
    assert_int_equal(facts->bucket_tokens[1], 4);
    assert_int_equal(facts->bucket_docs[2], 1);
    ebb_loader_free(room->ctx, loader);
    ebb_dataset_free(room->ctx, set);
}

/* ---- grouping by length ---- */

enum { GROUPED = 1000 };

/* All samples of an epoch in their order. */
static void read_order(struct room *room, const struct ebb_dataset *set,
                       struct ebb_loader_options options, int64_t epoch, int64_t *order)
{
    struct ebb_loader *loader = make_loader(room, set, options);
    int64_t at = 0;
    assert_ok(room, ebb_loader_seek(room->ctx, loader, (struct ebb_loader_place){.epoch = epoch}));
    while (at < set->count) {
        const struct ebb_batch *batch = next(room, loader);
        for (int64_t d = 0; d < batch->docs; d++) order[at++] = ebb_loader_samples(loader)[d];
    }
    ebb_loader_free(room->ctx, loader);
}

/* What transformers' get_length_grouped_indices makes of a permutation. */
static void group_plainly(const struct ebb_dataset *set, int64_t batch, int64_t *order)
{
    int64_t count = set->count, batches = count / (batch * 4), longest = 0;
    if (batches > 50) batches = 50;
    if (batches < 1) batches = 1;
    for (int64_t start = 0; start < count; start += batches * batch) {
        int64_t end = start + batches * batch < count ? start + batches * batch : count;
        for (int64_t i = start + 1; i < end; i++) /* insertion: equal ones keep their order */
            for (int64_t k = i; k > start && ebb_dataset_length(set, order[k]) >
                                                 ebb_dataset_length(set, order[k - 1]);
                 k--) {
                int64_t moved = order[k];
                order[k] = order[k - 1];
                order[k - 1] = moved;
            }
        if (ebb_dataset_length(set, order[start]) > ebb_dataset_length(set, order[longest]))
            longest = start;
    }
    int64_t first = order[0];
    order[0] = order[longest];
    order[longest] = first;
}

static void grouping_by_length_sorts_stretches_of_the_permutation(void **state)
{
    struct room *room = *state;
    static const int64_t counts[] = {1, 3, 10, 101, GROUPED}, batches[] = {1, 3, 8, 64, 5000};
    int64_t order[GROUPED], wanted[GROUPED];
    for (size_t c = 0; c < 5; c++)
        for (size_t b = 0; b < 5; b++) {
            struct ebb_dataset *set = make_set(room, counts[c], 60);
            struct ebb_loader_options options = {.per_device_batch_size = batches[b],
                                                 .shuffle = true,
                                                 .seed = 12};
            for (int64_t epoch = 0; epoch < 2; epoch++) {
                read_order(room, set, options, epoch, wanted);
                group_plainly(set, batches[b], wanted);
                options.group_by_length = true;
                read_order(room, set, options, epoch, order);
                assert_memory_equal(order, wanted, (size_t)set->count * sizeof *order);
                assert_int_equal(ebb_dataset_length(set, order[0]), set->longest);
                options.group_by_length = false;
            }
            ebb_dataset_free(room->ctx, set);
        }
}

/* What it is for: samples of one micro-batch are of like length. */
static void grouping_by_length_brings_like_lengths_together(void **state)
{
    struct room *room = *state;
    enum { BATCH = 8 };
    struct ebb_dataset *set = make_set(room, GROUPED, 60);
    double waste[2] = {0, 0};
    for (int grouped = 0; grouped < 2; grouped++) {
        struct ebb_loader_options options = {.per_device_batch_size = BATCH,
                                             .shuffle = true,
                                             .group_by_length = grouped == 1};
        struct ebb_loader *loader = make_loader(room, set, options);
        for (int m = 0; m < GROUPED / BATCH; m++) {
            const struct ebb_batch *batch = next(room, loader);
            waste[grouped] += (double)(batch->longest * batch->docs - batch->tokens);
        }
        ebb_loader_free(room->ctx, loader);
    }
    assert_true(waste[1] < 0.2 * waste[0]);
    ebb_dataset_free(room->ctx, set);
}

/* ---- preference pairs ---- */

static struct ebb_dataset *make_pairs(struct room *room, int64_t pairs, int64_t longest)
{
    struct ebb_dataset *set = make_set(room, 2 * pairs, longest);
    set->group = 2;
    return set;
}

static const struct ebb_loader_options pair_options[] = {
    {.per_device_batch_size = 1},
    {.per_device_batch_size = 3, .shuffle = true, .seed = 3},
    {.per_device_batch_size = 3, .shuffle = true, .group_by_length = true, .seed = 3},
    {.per_device_batch_size = 1, .packing = true, .max_length = 120, .shuffle = true},
    {.per_device_batch_size = 2, .packing = true, .max_length = 300, .shuffle = true},
};

static void a_pair_stays_in_one_micro_batch_chosen_first(void **state)
{
    struct room *room = *state;
    enum { PAIRS = 41 };
    struct ebb_dataset *set = make_pairs(room, PAIRS, 50);
    for (size_t o = 0; o < sizeof pair_options / sizeof pair_options[0]; o++) {
        struct ebb_loader *loader = make_loader(room, set, pair_options[o]);
        const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
        int64_t size = pair_options[o].per_device_batch_size;
        uint8_t seen[2 * PAIRS * SEEN_ROW] = {0};
        if (!pair_options[o].packing) {
            assert_int_equal(facts->units, PAIRS);
            assert_int_equal(facts->docs_max, 2 * size);
        } else {
            assert_true(facts->units < PAIRS);
            assert_true(facts->tokens_max <= size * pair_options[o].max_length);
        }
        assert_int_equal(facts->docs, 2 * PAIRS);
        assert_int_equal(facts->labels, set->labels);
        assert_int_equal(facts->split, 0);
        for (int64_t m = 0; m < facts->micros_per_epoch; m++) {
            const struct ebb_batch *batch = next(room, loader);
            const int64_t *samples = ebb_loader_samples(loader);
            assert_batch(loader, set, batch, seen);
            assert_int_equal(batch->docs % 2, 0);
            for (int64_t d = 0; d < batch->docs; d += 2) {
                assert_int_equal(samples[d] % 2, 0);
                assert_int_equal(samples[d + 1], samples[d] + 1);
            }
        }
        assert_all_seen_once(set, seen);
        ebb_loader_free(room->ctx, loader);
    }
    ebb_dataset_free(room->ctx, set);
}

/* Bins hold what best fit makes of the pairs' summed lengths. */
static void pairs_are_packed_by_their_summed_length(void **state)
{
    struct room *room = *state;
    const int64_t lengths[] = {2, 4, 5, 2, 1, 2, 2, 2};
    int32_t ids[20] = {0};
    struct ebb_dataset *set;
    assert_ok(room, ebb_dataset_from_ids(room->ctx, ids, lengths, NULL, 8, &set));
    set->group = 2;
    struct ebb_loader_options options = {.per_device_batch_size = 1,
                                         .packing = true,
                                         .max_length = 10};
    struct ebb_loader *loader = make_loader(room, set, options);
    const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
    static const int64_t bins[2][4] = {{0, 1, 6, 7}, {2, 3, 4, 5}}; /* 6 + 4, 7 + 3 */
    assert_int_equal(facts->units, 2);
    assert_int_equal(facts->tokens_max, 10);
    assert_int_equal(facts->longest, 5);
    assert_true(facts->fill == 1);
    for (int b = 0; b < 2; b++) {
        assert_int_equal(next(room, loader)->docs, 4);
        assert_memory_equal(ebb_loader_samples(loader), bins[b], sizeof bins[b]);
    }
    ebb_loader_free(room->ctx, loader);
    ebb_dataset_free(room->ctx, set);
}

static void pairs_that_cannot_be_packed_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_pairs(room, 5, 20);
    struct ebb_loader *loader;
    struct ebb_loader_options options = {.per_device_batch_size = 1,
                                         .packing = true,
                                         .strategy = EBB_PACKING_BFD_SPLIT,
                                         .max_length = 100};
    assert_failed(room, ebb_loader_create(room->ctx, set, &options, &loader), EBB_BAD_CONFIG,
                  "packing_strategy bfd_split", "pair", "packing_strategy: bfd", NULL);
    options.strategy = EBB_PACKING_WRAPPED;
    assert_failed(room, ebb_loader_create(room->ctx, set, &options, &loader), EBB_BAD_CONFIG,
                  "packing_strategy wrapped", "pair", NULL);
    options.strategy = EBB_PACKING_BFD;
    for (int i = 0; i < 10; i++) set->lengths[i] = i < 4 ? 1 : 2; /* 2 goes in, 2 + 2 does not */
    options.max_length = 3;
    assert_failed(room, ebb_loader_create(room->ctx, set, &options, &loader), EBB_BAD_CONFIG,
                  "preference pair 3 has 2 + 2 tokens", "max_length 3", "packing: false", NULL);
    assert_null(loader);
    ebb_dataset_free(room->ctx, set);
}

/* ---- facts, errors ---- */

static void facts_describe_the_documents(void **state)
{
    struct room *room = *state;
    const int64_t lengths[] = {2, 3, 4, 8, 15};
    int32_t ids[32] = {0};
    struct ebb_dataset *set;
    assert_ok(room, ebb_dataset_from_ids(room->ctx, ids, lengths, NULL, 5, &set));
    struct ebb_loader *loader =
        make_loader(room, set, (struct ebb_loader_options){.per_device_batch_size = 2});
    const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
    assert_int_equal(facts->units, 5);
    assert_int_equal(facts->micros_per_epoch, 3);
    assert_int_equal(facts->tokens_max, 23);
    assert_int_equal(facts->docs_max, 2);
    assert_int_equal(facts->longest, 15);
    assert_int_equal(facts->tokens, 32);
    assert_int_equal(facts->labels, 27);
    assert_int_equal(facts->docs, 5);
    assert_true(facts->square_sum == 4 + 9 + 16 + 64 + 225);
    assert_true(facts->fill == 32.0 / (3 * 23));
    assert_int_equal(facts->bucket_docs[1], 2);
    assert_int_equal(facts->bucket_tokens[1], 5);
    assert_int_equal(facts->bucket_docs[2], 1);
    assert_int_equal(facts->bucket_docs[3], 2);
    assert_int_equal(facts->bucket_tokens[3], 23);
    ebb_loader_free(room->ctx, loader);
    struct ebb_loader_options packed = {.per_device_batch_size = 1,
                                        .packing = true,
                                        .max_length = 16};
    loader = make_loader(room, set, packed);
    facts = ebb_loader_describe(loader);
    assert_int_equal(facts->units, 3); /* 15; 8 4 3; 2 */
    assert_int_equal(facts->tokens_max, 15);
    assert_int_equal(facts->docs_max, 3);
    ebb_loader_free(room->ctx, loader);
    ebb_dataset_free(room->ctx, set);
}

static void options_out_of_range_are_refused(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_set(room, 5, 20);
    struct ebb_loader *loader;
    static const struct {
        struct ebb_loader_options options;
        const char *part;
    } cases[] = {
        {{.per_device_batch_size = 0}, "per_device_train_batch_size is 0"},
        {{.per_device_batch_size = 1, .packing = true}, "packing needs max_length"},
        {{.per_device_batch_size = 1, .packing = true, .max_length = 2}, "does not go into a bin"},
        {{.per_device_batch_size = 1, .packing = true, .max_length = 64, .group_by_length = true},
         "group_by_length"},
        {{.per_device_batch_size = 1, .rank = 2, .world = 2}, "rank 2 of 2"},
        {{.per_device_batch_size = 1, .rank = -1, .world = 2}, "rank -1 of 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_failed(room, ebb_loader_create(room->ctx, set, &cases[i].options, &loader),
                      EBB_BAD_CONFIG, cases[i].part, NULL);
        assert_null(loader);
    }
    ebb_dataset_free(room->ctx, set);
}

static void every_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    struct ebb_dataset *set = make_pairs(room, 5, 20);
    static const struct ebb_loader_options cases[] = {
        {.per_device_batch_size = 1, .packing = true, .max_length = 40},
        {.per_device_batch_size = 2, .group_by_length = true},
    };
    for (int c = 0; c < 2; c++) {
        struct ebb_loader *loader;
        int64_t nth = 1;
        for (;; nth++) {
            ebb_mem_fail_nth(room->ctx, nth, false);
            enum ebb_status status = ebb_loader_create(room->ctx, set, &cases[c], &loader);
            ebb_mem_fail_nth(room->ctx, 0, false);
            if (status == EBB_OK) break;
            assert_failed(room, status, EBB_NO_MEMORY, NULL);
        }
        assert_true(nth > (c == 0 ? 20 : 9));
        ebb_loader_free(room->ctx, loader);
    }
    ebb_dataset_free(room->ctx, set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(each_token_comes_once_an_epoch_with_shifted_targets),
        ROOM_TEST(without_shuffling_the_order_is_the_files),
        ROOM_TEST(epochs_and_seeds_differ_in_their_order),
        ROOM_TEST(the_shuffle_is_fair),
        ROOM_TEST(a_seek_continues_as_if_nothing_had_happened),
        ROOM_TEST(ranks_share_an_epoch_without_overlap),
        ROOM_TEST(pieces_are_documents_of_their_own),
        ROOM_TEST(grouping_by_length_sorts_stretches_of_the_permutation),
        ROOM_TEST(grouping_by_length_brings_like_lengths_together),
        ROOM_TEST(a_pair_stays_in_one_micro_batch_chosen_first),
        ROOM_TEST(pairs_are_packed_by_their_summed_length),
        ROOM_TEST(pairs_that_cannot_be_packed_are_refused),
        ROOM_TEST(facts_describe_the_documents),
        ROOM_TEST(options_out_of_range_are_refused),
        ROOM_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
