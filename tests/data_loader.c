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

/* Everything that batch.h promises. */
static void assert_batch(const struct ebb_loader *loader, const struct ebb_dataset *set,
                         const struct ebb_batch *batch)
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
        assert_int_equal(length, ebb_dataset_length(set, sample));
        if (length > longest) longest = length;
        for (int64_t t = 0; t < length; t++) {
            assert_int_equal(batch->ids[start + t], sample * 1000 + t);
            assert_int_equal(batch->positions[start + t], t);
            bool trained = t + 1 < length && ebb_dataset_is_trained(set, sample, t + 1);
            assert_int_equal(batch->targets[start + t],
                             trained ? sample * 1000 + t + 1 : EBB_IGNORE);
            if (trained) assert_int_equal(batch->label_rows[labels++], start + t);
        }
    }
    assert_int_equal(labels, batch->labels);
    assert_int_equal(longest, batch->longest);
}

static const struct ebb_loader_options all_options[] = {
    {.per_device_batch_size = 1},
    {.per_device_batch_size = 4, .shuffle = true, .seed = 7},
    {.per_device_batch_size = 1, .packing = true, .max_length = 64, .shuffle = true, .seed = 7},
    {.per_device_batch_size = 3, .packing = true, .max_length = 50, .shuffle = true, .seed = 8},
    {.per_device_batch_size = 2, .packing = true, .max_length = 100},
    {.per_device_batch_size = 1000, .shuffle = true},
};
enum { OPTIONS = sizeof all_options / sizeof all_options[0] };

static void each_sample_comes_once_an_epoch_with_shifted_targets(void **state)
{
    struct room *room = *state;
    enum { COUNT = 101 };
    struct ebb_dataset *set = make_set(room, COUNT, 50);
    for (int o = 0; o < OPTIONS; o++) {
        struct ebb_loader *loader = make_loader(room, set, all_options[o]);
        const struct ebb_loader_facts *facts = ebb_loader_describe(loader);
        for (int epoch = 0; epoch < 3; epoch++) {
            int seen[COUNT] = {0};
            int64_t tokens = 0, labels = 0;
            assert_int_equal(ebb_loader_tell(loader).epoch, epoch);
            for (int64_t m = 0; m < facts->micros_per_epoch; m++) {
                assert_int_equal(ebb_loader_tell(loader).micro, m);
                const struct ebb_batch *batch = next(room, loader);
                assert_true(batch->docs > 0);
                assert_batch(loader, set, batch);
                for (int64_t d = 0; d < batch->docs; d++) seen[ebb_loader_samples(loader)[d]]++;
                tokens += batch->tokens;
                labels += batch->labels;
            }
            for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
            assert_int_equal(tokens, facts->tokens);
            assert_int_equal(labels, facts->labels);
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
    for (int o = 1; o < 5; o++) {
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
    for (int packing = 0; packing < 2; packing++) {
        int seen[COUNT] = {0};
        int64_t micros = -1;
        for (int rank = 0; rank < WORLD; rank++) {
            struct ebb_loader_options options = {.per_device_batch_size = 3,
                                                 .shuffle = true,
                                                 .seed = 5,
                                                 .rank = rank,
                                                 .world = WORLD,
                                                 .packing = packing,
                                                 .max_length = 64};
            struct ebb_loader *loader = make_loader(room, set, options);
            if (micros < 0) micros = ebb_loader_describe(loader)->micros_per_epoch;
            assert_int_equal(ebb_loader_describe(loader)->micros_per_epoch, micros);
            for (int64_t m = 0; m < micros; m++) {
                const struct ebb_batch *batch = next(room, loader);
                assert_batch(loader, set, batch); /* may be empty at the end */
                for (int64_t d = 0; d < batch->docs; d++) seen[ebb_loader_samples(loader)[d]]++;
            }
            ebb_loader_free(room->ctx, loader);
        }
        for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
    }
    ebb_dataset_free(room->ctx, set);
}

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
    struct ebb_dataset *set = make_set(room, 5, 20);
    struct ebb_loader_options options = {.per_device_batch_size = 1,
                                         .packing = true,
                                         .max_length = 40};
    struct ebb_loader *loader;
    int64_t nth = 1;
    for (;; nth++) {
        ebb_mem_fail_nth(room->ctx, nth, false);
        enum ebb_status status = ebb_loader_create(room->ctx, set, &options, &loader);
        ebb_mem_fail_nth(room->ctx, 0, false);
        if (status == EBB_OK) break;
        assert_failed(room, status, EBB_NO_MEMORY, NULL);
    }
    assert_true(nth > 10);
    ebb_loader_free(room->ctx, loader);
    ebb_dataset_free(room->ctx, set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(each_sample_comes_once_an_epoch_with_shifted_targets),
        ROOM_TEST(without_shuffling_the_order_is_the_files),
        ROOM_TEST(epochs_and_seeds_differ_in_their_order),
        ROOM_TEST(the_shuffle_is_fair),
        ROOM_TEST(a_seek_continues_as_if_nothing_had_happened),
        ROOM_TEST(ranks_share_an_epoch_without_overlap),
        ROOM_TEST(facts_describe_the_documents),
        ROOM_TEST(options_out_of_range_are_refused),
        ROOM_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
