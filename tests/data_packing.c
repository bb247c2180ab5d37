/* Packing: every token once, no bin over its capacity, equal to the plain O(n^2) best fit and to
 * what TRL makes of the same lengths.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_test.h"

#include "base/clock.h"
#include "base/number.h"
#include "data/packing.h"

static void fill_lengths(int64_t *lengths, int64_t count, int64_t longest, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t words[4];
        ebb_philox(seed, (uint64_t)i, words);
        double u = ebb_uniform(words[0]);
        lengths[i] = 1 + (int64_t)(u * u * (double)(longest - 1)); /* many short, few long */
    }
}

static int64_t sum(const int64_t *values, int64_t count)
{
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += values[i];
    return total;
}

static bool comes_before(const struct ebb_piece *a, const struct ebb_piece *b)
{
    return a->sample < b->sample || (a->sample == b->sample && a->start < b->start);
}

/* Everything that packing.h promises of any strategy. */
static void assert_packed(const struct ebb_packing *packing, const int64_t *lengths, int64_t count,
                          int64_t capacity)
{
    int64_t *starts = malloc((size_t)count * sizeof *starts), tokens_seen = 0;
    for (int64_t i = 0, at = 0; i < count; at += lengths[i++]) starts[i] = at;
    char *seen = calloc((size_t)sum(lengths, count), 1); /* a byte a token */
    assert_int_equal(packing->starts[0], 0);
    assert_int_equal(packing->starts[packing->bins], packing->pieces);
    for (int64_t b = 0; b < packing->bins; b++) {
        int64_t tokens = 0, first = packing->starts[b];
        assert_true(packing->starts[b + 1] > first);
        if (b > 0) /* bins by their lowest piece */
            assert_true(
                comes_before(&packing->items[packing->starts[b - 1]], &packing->items[first]));
        for (int64_t i = first; i < packing->starts[b + 1]; i++) {
            const struct ebb_piece *item = &packing->items[i];
            if (i > first) assert_true(comes_before(item - 1, item));
            assert_true(item->start >= 0 && item->start < item->stop &&
                        item->stop <= lengths[item->sample]);
            for (int64_t t = item->start; t < item->stop; t++)
                if (seen[starts[item->sample] + t]++) fail_msg("a token is in two pieces");
            tokens += item->stop - item->start;
        }
        assert_int_equal(tokens, packing->tokens[b]);
        assert_true(tokens <= capacity);
        tokens_seen += tokens;
    }
    assert_int_equal(tokens_seen, sum(lengths, count));
    free(starts);
    free(seen);
}

static void pack(struct room *room, const int64_t *lengths, int64_t count, int64_t capacity,
                 enum ebb_packing_strategy strategy, struct ebb_packing *packing)
{
    assert_ok(room, ebb_packing_create(room->ctx, lengths, count, capacity, strategy, packing));
    assert_packed(packing, lengths, count, capacity);
}

/* The bin of each sample by the definition: longest first, ties by number; of the bins with room
 * the one with least, ties by which has had that room for longer. */
static int64_t plain_best_fit(const int64_t *lengths, int64_t count, int64_t capacity,
                              int64_t *bin_of)
{
    int64_t *room = calloc((size_t)count, sizeof *room), bins = 0;
    int64_t *since = calloc((size_t)count, sizeof *since);
    char *placed = calloc((size_t)count, 1);
    for (int64_t n = 0; n < count; n++) {
        int64_t next = -1, best = -1;
        for (int64_t i = 0; i < count; i++)
            if (!placed[i] && (next < 0 || lengths[i] > lengths[next])) next = i;
        placed[next] = 1;
        for (int64_t b = 0; b < bins; b++)
            if (room[b] >= lengths[next] && (best < 0 || room[b] < room[best] ||
                                             (room[b] == room[best] && since[b] < since[best])))
                best = b;
        if (best < 0) room[best = bins++] = capacity;
        room[best] -= lengths[next];
        since[best] = n;
        bin_of[next] = best;
    }
    free(room);
    free(since);
    free(placed);
    return bins;
}

static void bfd_is_best_fit_decreasing(void **state)
{
    struct room *room = *state;
    enum { COUNT = 400 };
    int64_t lengths[COUNT], bin_of[COUNT];
    for (uint64_t seed = 0; seed < 20; seed++) {
        int64_t count = seed == 0 ? 1 : (int64_t)(seed * 20), capacity = 1 + (int64_t)seed * 37;
        struct ebb_packing packing;
        fill_lengths(lengths, count, capacity, seed);
        pack(room, lengths, count, capacity, EBB_PACKING_BFD, &packing);
        assert_int_equal(packing.pieces, count);
        assert_int_equal(packing.bins, plain_best_fit(lengths, count, capacity, bin_of));
        for (int64_t b = 0; b < packing.bins; b++) /* what is together here is together there */
            for (int64_t i = packing.starts[b] + 1; i < packing.starts[b + 1]; i++)
                assert_int_equal(bin_of[packing.items[i].sample],
                                 bin_of[packing.items[packing.starts[b]].sample]);
        ebb_packing_free(room->ctx, &packing);
    }
}

/* First fit would put the 3 into the first bin. */
static void the_fullest_bin_with_room_is_taken(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {6, 7, 3, 4};
    pack(room, lengths, 4, 10, EBB_PACKING_BFD, &packing);
    assert_int_equal(packing.bins, 2);
    assert_int_equal(packing.items[1].sample, 3);
    assert_int_equal(packing.items[3].sample, 2);
    ebb_packing_free(room->ctx, &packing);
}

static void equal_lengths_fill_bins_in_order(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {4, 4, 4, 4, 4};
    pack(room, lengths, 5, 8, EBB_PACKING_BFD, &packing);
    assert_int_equal(packing.bins, 3);
    for (int64_t i = 0; i < 5; i++) assert_int_equal(packing.items[i].sample, i);
    assert_int_equal(packing.tokens[2], 4);
    ebb_packing_free(room->ctx, &packing);
}

static void assert_pieces(const struct ebb_packing *packing, const int64_t *starts, int64_t bins,
                          const struct ebb_piece *items)
{
    assert_int_equal(packing->bins, bins);
    assert_memory_equal(packing->starts, starts, (size_t)(bins + 1) * sizeof *starts);
    for (int64_t i = 0; i < starts[bins]; i++) {
        assert_int_equal(packing->items[i].sample, items[i].sample);
        assert_int_equal(packing->items[i].start, items[i].start);
        assert_int_equal(packing->items[i].stop, items[i].stop);
    }
}

/* The example in the documentation of TRL's pack_dataset. */
static void the_strategies_cut_as_trl_does(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {5, 2, 3, 1}, cut_lengths[] = {4, 2, 3, 1};
    const int64_t bfd_starts[] = {0, 1, 2, 4};
    const struct ebb_piece bfd[] = {{0, 0, 4}, {1, 0, 2}, {2, 0, 3}, {3, 0, 1}};
    pack(room, cut_lengths, 4, 4, EBB_PACKING_BFD, &packing);
    assert_pieces(&packing, bfd_starts, 3, bfd);
    ebb_packing_free(room->ctx, &packing);
    const int64_t split_starts[] = {0, 1, 3, 5};
    const struct ebb_piece split[] = {{0, 0, 4}, {0, 4, 5}, {2, 0, 3}, {1, 0, 2}, {3, 0, 1}};
    pack(room, lengths, 4, 4, EBB_PACKING_BFD_SPLIT, &packing);
    assert_pieces(&packing, split_starts, 3, split);
    ebb_packing_free(room->ctx, &packing);
    const int64_t wrapped_starts[] = {0, 1, 4, 6};
    const struct ebb_piece wrapped[] = {{0, 0, 4}, {0, 4, 5}, {1, 0, 2},
                                        {2, 0, 1}, {2, 1, 3}, {3, 0, 1}};
    pack(room, lengths, 4, 4, EBB_PACKING_WRAPPED, &packing);
    assert_pieces(&packing, wrapped_starts, 3, wrapped);
    ebb_packing_free(room->ctx, &packing);
}

/* Numbers of bins that _pack_bfd and _pack_wrapped of TRL 1.16.0 make of the same lengths. */
static void there_are_as_many_bins_as_trl_makes(void **state)
{
    struct room *room = *state;
    enum { COUNT = 2000 };
    static const struct {
        int64_t longest, capacity, bfd, split, wrapped;
    } cases[] = {
        {700, 512, 853, 901, 901},
        {3000, 1000, 1180, 1913, 1913},
        {100, 101, 682, 682, 682},
        {50, 4096, 9, 9, 9},
    };
    int64_t lengths[COUNT], at_most[COUNT];
    struct ebb_packing packing;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t capacity = cases[c].capacity;
        fill_lengths(lengths, COUNT, cases[c].longest, 40 + c);
        for (int i = 0; i < COUNT; i++) at_most[i] = lengths[i] < capacity ? lengths[i] : capacity;
        pack(room, at_most, COUNT, capacity, EBB_PACKING_BFD, &packing);
        assert_int_equal(packing.bins, cases[c].bfd);
        ebb_packing_free(room->ctx, &packing);
        pack(room, lengths, COUNT, capacity, EBB_PACKING_BFD_SPLIT, &packing);
        assert_int_equal(packing.bins, cases[c].split);
        ebb_packing_free(room->ctx, &packing);
        pack(room, lengths, COUNT, capacity, EBB_PACKING_WRAPPED, &packing);
        assert_int_equal(packing.bins, cases[c].wrapped);
        ebb_packing_free(room->ctx, &packing);
    }
}

static void splitting_cuts_only_what_is_too_long(void **state)
{
    struct room *room = *state;
    enum { COUNT = 300, CAPACITY = 100 };
    int64_t lengths[COUNT];
    struct ebb_packing packing;
    fill_lengths(lengths, COUNT, 450, 3);
    pack(room, lengths, COUNT, CAPACITY, EBB_PACKING_BFD_SPLIT, &packing);
    for (int64_t i = 0; i < packing.pieces; i++) {
        const struct ebb_piece *item = &packing.items[i];
        assert_int_equal(item->start % CAPACITY, 0);
        assert_true(item->stop == item->start + CAPACITY || item->stop == lengths[item->sample]);
    }
    ebb_packing_free(room->ctx, &packing);
}

static void wrapping_fills_every_bin_but_the_last(void **state)
{
    struct room *room = *state;
    enum { COUNT = 300 };
    int64_t lengths[COUNT];
    struct ebb_packing packing;
    fill_lengths(lengths, COUNT, 450, 4);
    for (int64_t capacity = 1; capacity < 1000; capacity = capacity * 3 + 1) {
        pack(room, lengths, COUNT, capacity, EBB_PACKING_WRAPPED, &packing);
        for (int64_t b = 0; b + 1 < packing.bins; b++)
            assert_int_equal(packing.tokens[b], capacity);
        for (int64_t i = 1; i < packing.pieces; i++) /* nothing changes places */
            assert_true(comes_before(&packing.items[i - 1], &packing.items[i]));
        ebb_packing_free(room->ctx, &packing);
    }
}

static void a_capacity_above_all_samples_makes_one_bin(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {3, 9, 1};
    for (int s = EBB_PACKING_BFD; s <= EBB_PACKING_WRAPPED; s++) {
        pack(room, lengths, 3, INT64_MAX, (enum ebb_packing_strategy)s, &packing);
        assert_int_equal(packing.bins, 1);
        assert_int_equal(packing.pieces, 3);
        assert_int_equal(packing.tokens[0], 13);
        ebb_packing_free(room->ctx, &packing);
    }
}

static void a_million_samples_are_packed_fast_and_full(void **state)
{
    struct room *room = *state;
    enum { COUNT = 1000000 };
    static const int64_t capacities[] = {4096, 1000000};
    int64_t *lengths = malloc(COUNT * sizeof *lengths);
    struct ebb_packing packing;
    for (int c = 0; c < 2; c++) {
        int64_t capacity = capacities[c];
        fill_lengths(lengths, COUNT, capacity, 7);
        for (int s = EBB_PACKING_BFD; s <= EBB_PACKING_WRAPPED; s++) {
            double start = ebb_clock_seconds();
            assert_ok(room, ebb_packing_create(room->ctx, lengths, COUNT, capacity,
                                               (enum ebb_packing_strategy)s, &packing));
            double seconds = ebb_clock_seconds() - start;
            double fill = (double)sum(lengths, COUNT) / ((double)packing.bins * (double)capacity);
            print_message("capacity %lld, strategy %d: %lld bins, %.3f %% full, %.3f s\n",
                          (long long)capacity, s, (long long)packing.bins, 100 * fill, seconds);
            assert_true(fill > 0.99);
            assert_true(seconds < 5); /* 0.2 s on an idle machine; quadratic would be hours */
            ebb_packing_free(room->ctx, &packing);
        }
    }
    free(lengths);
}

static void lengths_that_cannot_be_packed_are_named(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {3, 9, 0};
    assert_failed(room, ebb_packing_create(room->ctx, lengths, 2, 8, EBB_PACKING_BFD, &packing),
                  EBB_BAD_CONFIG, "sample 2 has 9 tokens", "max_length 8", "bfd_split", NULL);
    assert_failed(room, ebb_packing_create(room->ctx, lengths, 0, 8, EBB_PACKING_BFD, &packing),
                  EBB_BAD_CONFIG, "packing 0 samples", NULL);
    assert_failed(room, ebb_packing_create(room->ctx, lengths, 3, 0, EBB_PACKING_BFD, &packing),
                  EBB_BAD_CONFIG, "bins of 0 tokens", NULL);
    assert_failed(room, ebb_packing_create(room->ctx, lengths, 3, 8, EBB_PACKING_WRAPPED, &packing),
                  EBB_BAD_CONFIG, "sample 3 has no tokens", NULL);
    assert_null(packing.items);
}

static void every_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {3, 7, 5};
    for (int s = EBB_PACKING_BFD; s <= EBB_PACKING_WRAPPED; s++) {
        int64_t nth = 1;
        for (;; nth++) {
            ebb_mem_fail_nth(room->ctx, nth, false);
            enum ebb_status status = ebb_packing_create(room->ctx, lengths, 3, 8,
                                                        (enum ebb_packing_strategy)s, &packing);
            ebb_mem_fail_nth(room->ctx, 0, false);
            if (status == EBB_OK) break;
            assert_failed(room, status, EBB_NO_MEMORY, NULL);
        }
        assert_int_equal(nth, s == EBB_PACKING_WRAPPED ? 7 : 12);
        ebb_packing_free(room->ctx, &packing);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(bfd_is_best_fit_decreasing),
        ROOM_TEST(the_fullest_bin_with_room_is_taken),
        ROOM_TEST(equal_lengths_fill_bins_in_order),
        ROOM_TEST(the_strategies_cut_as_trl_does),
        ROOM_TEST(there_are_as_many_bins_as_trl_makes),
        ROOM_TEST(splitting_cuts_only_what_is_too_long),
        ROOM_TEST(wrapping_fills_every_bin_but_the_last),
        ROOM_TEST(a_capacity_above_all_samples_makes_one_bin),
        ROOM_TEST(a_million_samples_are_packed_fast_and_full),
        ROOM_TEST(lengths_that_cannot_be_packed_are_named),
        ROOM_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
