/* Packing: every sample once, no bin over its capacity, equal to the plain O(n^2) first fit.
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

static void assert_packed(const struct ebb_packing *packing, const int64_t *lengths, int64_t count,
                          int64_t capacity)
{
    char *seen = calloc((size_t)count, 1);
    int64_t before = -1;
    assert_int_equal(packing->starts[0], 0);
    assert_int_equal(packing->starts[packing->bins], count);
    for (int64_t b = 0; b < packing->bins; b++) {
        int64_t tokens = 0;
        assert_true(packing->starts[b + 1] > packing->starts[b]);
        assert_true(packing->samples[packing->starts[b]] >
                    before); /* bins by their lowest sample */
        before = packing->samples[packing->starts[b]];
        for (int64_t i = packing->starts[b]; i < packing->starts[b + 1]; i++) {
            int64_t sample = packing->samples[i];
            if (i > packing->starts[b]) assert_true(sample > packing->samples[i - 1]);
            assert_int_equal(seen[sample]++, 0);
            tokens += lengths[sample];
        }
        assert_int_equal(tokens, packing->tokens[b]);
        assert_true(tokens <= capacity);
    }
    free(seen);
}

/* The bin of each sample by the definition: longest first, ties by number, first bin with room. */
static int64_t plain_first_fit(const int64_t *lengths, int64_t count, int64_t capacity,
                               int64_t *bin_of)
{
    int64_t *room = calloc((size_t)count, sizeof *room), bins = 0;
    char *placed = calloc((size_t)count, 1);
    for (int64_t n = 0; n < count; n++) {
        int64_t best = -1;
        for (int64_t i = 0; i < count; i++)
            if (!placed[i] && (best < 0 || lengths[i] > lengths[best])) best = i;
        placed[best] = 1;
        int64_t bin = 0;
        while (bin < bins && room[bin] < lengths[best]) bin++;
        if (bin == bins) room[bins++] = capacity;
        room[bin] -= lengths[best];
        bin_of[best] = bin;
    }
    free(room);
    free(placed);
    return bins;
}

static void it_is_first_fit_decreasing(void **state)
{
    struct room *room = *state;
    enum { COUNT = 400 };
    int64_t lengths[COUNT], bin_of[COUNT];
    for (uint64_t seed = 0; seed < 20; seed++) {
        int64_t count = seed == 0 ? 1 : (int64_t)(seed * 20), capacity = 50 + (int64_t)seed * 7;
        struct ebb_packing packing;
        fill_lengths(lengths, count, capacity, seed);
        assert_ok(room, ebb_packing_create(room->ctx, lengths, count, capacity, &packing));
        assert_packed(&packing, lengths, count, capacity);
        assert_int_equal(packing.bins, plain_first_fit(lengths, count, capacity, bin_of));
        for (int64_t b = 0; b < packing.bins;
             b++) /* samples that are together here are together there */
            for (int64_t i = packing.starts[b] + 1; i < packing.starts[b + 1]; i++)
                assert_int_equal(bin_of[packing.samples[i]],
                                 bin_of[packing.samples[packing.starts[b]]]);
        ebb_packing_free(room->ctx, &packing);
    }
}

static void equal_lengths_fill_bins_in_order(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {4, 4, 4, 4, 4};
    const int64_t samples[] = {0, 1, 2, 3, 4};
    assert_ok(room, ebb_packing_create(room->ctx, lengths, 5, 8, &packing));
    assert_int_equal(packing.bins, 3);
    assert_memory_equal(packing.samples, samples, sizeof samples);
    assert_int_equal(packing.tokens[2], 4);
    ebb_packing_free(room->ctx, &packing);
}

static void many_samples_are_packed_fast_and_full(void **state)
{
    struct room *room = *state;
    int64_t count = 300000, capacity = 4096, tokens = 0;
    int64_t *lengths = malloc((size_t)count * sizeof *lengths);
    struct ebb_packing packing;
    fill_lengths(lengths, count, 2000, 7);
    for (int64_t i = 0; i < count; i++) tokens += lengths[i];
    double start = ebb_clock_seconds();
    assert_ok(room, ebb_packing_create(room->ctx, lengths, count, capacity, &packing));
    double seconds = ebb_clock_seconds() - start;
    assert_packed(&packing, lengths, count, capacity);
    double fill = (double)tokens / ((double)packing.bins * (double)capacity);
    print_message("%lld bins, %.3f %% full, %.3f s\n", (long long)packing.bins, 100 * fill,
                  seconds);
    assert_true(fill > 0.999);
    assert_true(seconds < 5); /* 0.1 s on an idle machine; quadratic would be minutes */
    ebb_packing_free(room->ctx, &packing);
    free(lengths);
}

static void a_sample_above_the_capacity_is_named(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {3, 9};
    assert_failed(room, ebb_packing_create(room->ctx, lengths, 2, 8, &packing), EBB_BAD_CONFIG,
                  "sample 2 has 9 tokens", "max_length 8", NULL);
    assert_failed(room, ebb_packing_create(room->ctx, lengths, 0, 8, &packing), EBB_BAD_CONFIG,
                  "packing 0 samples", NULL);
}

static void every_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    struct ebb_packing packing;
    const int64_t lengths[] = {3, 7, 5};
    for (int64_t nth = 1; nth <= 6; nth++) {
        ebb_mem_fail_nth(room->ctx, nth, false);
        assert_failed(room, ebb_packing_create(room->ctx, lengths, 3, 8, &packing), EBB_NO_MEMORY,
                      NULL);
    }
    ebb_mem_fail_nth(room->ctx, 0, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(it_is_first_fit_decreasing),
        ROOM_TEST(equal_lengths_fill_bins_in_order),
        ROOM_TEST(many_samples_are_packed_fast_and_full),
        ROOM_TEST(a_sample_above_the_capacity_is_named),
        ROOM_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
