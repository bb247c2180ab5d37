/* Samples are cut into pieces, each piece is given a bin, and bins are laid out in order.
 *
 * Best fit asks for the bin with the least room that is still enough. Bins of equal room wait in a
 * queue, first in first out. A bit for each room says whether it has a queue, a bit a level higher
 * whether 64 of those have one that is set, and so on: the next room with a queue is found by going
 * up and down a tree of 64 branches, four levels for a capacity of a million tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/packing.h"

#include <inttypes.h>

/* Levels of 64 branches over any int64_t. */
enum { LEVELS = 11 };

/* Opened bins by the room that is left in them; full ones are not kept. */
struct rooms {
    int64_t capacity;
    int64_t *last;          /* [capacity + 1] last bin of the queue of each room, or -1 */
    int64_t *next;          /* [bins] the bin behind it; the last one's is the first */
    uint64_t *bits[LEVELS]; /* all in one block, which bits[0] owns */
    int64_t words[LEVELS];
    int levels;
};

static enum ebb_status rooms_create(struct ebb_ctx *ctx, int64_t capacity, int64_t bins,
                                    struct rooms *rooms)
{
    int64_t words = capacity + 1, all = 0;
    rooms->capacity = capacity;
    do {
        words = (words + 63) / 64;
        rooms->words[rooms->levels++] = words;
        all += words;
    } while (words > 1);
    rooms->last = ebb_mem_alloc(ctx, (size_t)(capacity + 1) * sizeof *rooms->last);
    rooms->next = ebb_mem_alloc(ctx, (size_t)bins * sizeof *rooms->next);
    rooms->bits[0] = ebb_mem_alloc(ctx, (size_t)all * sizeof *rooms->bits[0]);
    if (rooms->last == NULL || rooms->next == NULL || rooms->bits[0] == NULL) return EBB_NO_MEMORY;
    for (int i = 1; i < rooms->levels; i++)
        rooms->bits[i] = rooms->bits[i - 1] + rooms->words[i - 1];
    for (int64_t i = 0; i <= capacity; i++) rooms->last[i] = -1;
    return EBB_OK;
}

static void rooms_free(struct ebb_ctx *ctx, struct rooms *rooms)
{
    ebb_mem_free(ctx, rooms->last);
    ebb_mem_free(ctx, rooms->next);
    ebb_mem_free(ctx, rooms->bits[0]);
}

/* The least room of at least `wanted` that some bin has, or -1. */
static int64_t rooms_find(const struct rooms *rooms, int64_t wanted)
{
    int64_t at = wanted;
    for (int level = 0; level < rooms->levels && at >> 6 < rooms->words[level]; level++) {
        uint64_t bits = rooms->bits[level][at >> 6] & (~(uint64_t)0 << (at & 63));
        if (bits == 0) {
            at = (at >> 6) + 1; /* nothing in this word: look for a word behind it */
            continue;
        }
        at = (at & ~(int64_t)63) + __builtin_ctzll(bits);
        while (level-- > 0) at = 64 * at + __builtin_ctzll(rooms->bits[level][at]);
        return at;
    }
    return -1;
}

static void rooms_add(struct rooms *rooms, int64_t room, int64_t bin)
{
    int64_t last = rooms->last[room];
    rooms->next[bin] = last < 0 ? bin : rooms->next[last];
    if (last >= 0) rooms->next[last] = bin;
    rooms->last[room] = bin;
    for (int i = 0; i < rooms->levels; i++, room >>= 6)
        rooms->bits[i][room >> 6] |= (uint64_t)1 << (room & 63);
}

/* The bin that has had this room for the longest time; it leaves the queue. */
static int64_t rooms_take(struct rooms *rooms, int64_t room)
{
    int64_t last = rooms->last[room], bin = rooms->next[last];
    rooms->next[last] = rooms->next[bin];
    if (bin != last) return bin;
    rooms->last[room] = -1;
    for (int i = 0; i < rooms->levels; i++, room >>= 6) {
        rooms->bits[i][room >> 6] &= ~((uint64_t)1 << (room & 63));
        if (rooms->bits[i][room >> 6] != 0) break;
    }
    return bin;
}

/* ---- pieces ---- */

static enum ebb_status check(struct ebb_ctx *ctx, const int64_t *lengths, int64_t count,
                             int64_t capacity, enum ebb_packing_strategy strategy, int64_t *total)
{
    if (count < 1 || capacity < 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "packing %" PRId64 " samples into bins of %" PRId64 " tokens", count,
                        capacity);
    for (int64_t i = 0; i < count; i++) {
        if (lengths[i] < 1)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG, "sample %" PRId64 " has no tokens to be packed",
                            i + 1);
        if (strategy == EBB_PACKING_BFD && lengths[i] > capacity)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "sample %" PRId64 " has %" PRId64
                            " tokens and does not go into a bin of max_length %" PRId64
                            "\nraise max_length, or set packing_strategy: bfd_split to have long"
                            " samples split",
                            i + 1, lengths[i], capacity);
        *total += lengths[i];
    }
    return EBB_OK;
}

/* Cuts samples where they fill a bin. With `wrapped` a bin goes on with the next sample, otherwise
 * each sample begins one. Returns how many pieces there are; `items` may be NULL. */
static int64_t cut(const int64_t *lengths, int64_t count, int64_t capacity, bool wrapped,
                   struct ebb_piece *items)
{
    int64_t pieces = 0, used = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t start = 0, stop; start < lengths[i]; start = stop) {
            stop = lengths[i] - start <= capacity - used ? lengths[i] : start + capacity - used;
            if (items != NULL) items[pieces] = (struct ebb_piece){i, start, stop};
            pieces++;
            if (wrapped) used = (used + stop - start) % capacity;
        }
    return pieces;
}

static int64_t wrap(const struct ebb_piece *items, int64_t pieces, int64_t capacity,
                    int64_t *bin_of)
{
    int64_t before = 0;
    for (int64_t i = 0; i < pieces; i++) {
        bin_of[i] = before / capacity;
        before += items[i].stop - items[i].start;
    }
    return bin_of[pieces - 1] + 1;
}

/* Pieces from the longest to the shortest, equal ones in their order. `places` is working memory,
 * [capacity + 1]. */
static void sort_down(const struct ebb_piece *items, int64_t pieces, int64_t capacity,
                      int64_t *places, int64_t *order)
{
    for (int64_t i = 0; i <= capacity; i++) places[i] = 0;
    for (int64_t i = 0; i < pieces; i++) places[items[i].stop - items[i].start]++;
    for (int64_t i = capacity, before = 0; i >= 0; i--) {
        int64_t here = places[i];
        places[i] = before;
        before += here;
    }
    for (int64_t i = 0; i < pieces; i++) order[places[items[i].stop - items[i].start]++] = i;
}

/* bin_of[piece], numbered as they were opened. Returns their number. */
static int64_t fit(struct rooms *rooms, const struct ebb_piece *items, const int64_t *order,
                   int64_t pieces, int64_t *bin_of)
{
    int64_t bins = 0;
    for (int64_t i = 0; i < pieces; i++) {
        const struct ebb_piece *item = &items[order[i]];
        int64_t length = item->stop - item->start, room = rooms_find(rooms, length), bin;
        if (room < 0) {
            room = rooms->capacity;
            bin = bins++;
        } else {
            bin = rooms_take(rooms, room);
        }
        if (room > length) rooms_add(rooms, room - length, bin);
        bin_of[order[i]] = bin;
    }
    return bins;
}

static enum ebb_status fit_best(struct ebb_ctx *ctx, const struct ebb_piece *items, int64_t pieces,
                                int64_t capacity, int64_t *bin_of, int64_t *bins)
{
    struct rooms rooms = {0};
    int64_t *order = ebb_mem_alloc(ctx, (size_t)pieces * sizeof *order);
    int64_t *places = ebb_mem_alloc(ctx, (size_t)(capacity + 1) * sizeof *places);
    enum ebb_status status = order == NULL || places == NULL ? EBB_NO_MEMORY : EBB_OK;
    if (status == EBB_OK) sort_down(items, pieces, capacity, places, order);
    ebb_mem_free(ctx, places);
    if (status == EBB_OK) status = rooms_create(ctx, capacity, pieces, &rooms);
    if (status == EBB_OK) *bins = fit(&rooms, items, order, pieces, bin_of);
    rooms_free(ctx, &rooms);
    ebb_mem_free(ctx, order);
    return status;
}

/* ---- layout ---- */

/* Numbers bins by their lowest piece and lays the pieces down. */
static enum ebb_status lay_out(struct ebb_ctx *ctx, const struct ebb_piece *items, int64_t *bin_of,
                               struct ebb_packing *packing)
{
    int64_t bins = packing->bins, seen = 0;
    int64_t *fill = ebb_mem_alloc(ctx, (size_t)bins * sizeof *fill);
    packing->starts = ebb_mem_alloc(ctx, (size_t)(bins + 1) * sizeof *packing->starts);
    packing->items = ebb_mem_alloc(ctx, (size_t)packing->pieces * sizeof *packing->items);
    packing->tokens = ebb_mem_alloc(ctx, (size_t)bins * sizeof *packing->tokens);
    if (fill == NULL || packing->starts == NULL || packing->items == NULL ||
        packing->tokens == NULL) {
        ebb_mem_free(ctx, fill);
        return EBB_NO_MEMORY;
    }
    int64_t *number = fill; /* at first: the bin's new number, or -1 */
    for (int64_t i = 0; i < bins; i++) number[i] = -1;
    for (int64_t i = 0; i < packing->pieces; i++) {
        if (number[bin_of[i]] < 0) number[bin_of[i]] = seen++;
        bin_of[i] = number[bin_of[i]];
        packing->starts[bin_of[i] + 1]++;
        packing->tokens[bin_of[i]] += items[i].stop - items[i].start;
    }
    for (int64_t i = 0; i < bins; i++) packing->starts[i + 1] += packing->starts[i];
    for (int64_t i = 0; i < bins; i++) fill[i] = packing->starts[i]; /* then: its next place */
    for (int64_t i = 0; i < packing->pieces; i++) packing->items[fill[bin_of[i]]++] = items[i];
    ebb_mem_free(ctx, fill);
    return EBB_OK;
}

enum ebb_status ebb_packing_create(struct ebb_ctx *ctx, const int64_t *lengths, int64_t count,
                                   int64_t capacity, enum ebb_packing_strategy strategy,
                                   struct ebb_packing *packing)
{
    int64_t total = 0;
    bool wrapped = strategy == EBB_PACKING_WRAPPED;
    *packing = (struct ebb_packing){0};
    EBB_TRY(check(ctx, lengths, count, capacity, strategy, &total));
    /* A bin for all of them is the same bin however large it is, and needs less memory so. */
    if (capacity > total) capacity = total;
    int64_t pieces = cut(lengths, count, capacity, wrapped, NULL);
    struct ebb_piece *items = ebb_mem_alloc(ctx, (size_t)pieces * sizeof *items);
    int64_t *bin_of = ebb_mem_alloc(ctx, (size_t)pieces * sizeof *bin_of);
    enum ebb_status status = items == NULL || bin_of == NULL ? EBB_NO_MEMORY : EBB_OK;
    packing->pieces = pieces;
    if (status == EBB_OK) {
        cut(lengths, count, capacity, wrapped, items);
        if (wrapped)
            packing->bins = wrap(items, pieces, capacity, bin_of);
        else
            status = fit_best(ctx, items, pieces, capacity, bin_of, &packing->bins);
    }
    if (status == EBB_OK) status = lay_out(ctx, items, bin_of, packing);
    ebb_mem_free(ctx, items);
    ebb_mem_free(ctx, bin_of);
    if (status != EBB_OK) ebb_packing_free(ctx, packing);
    return status;
}

void ebb_packing_free(struct ebb_ctx *ctx, struct ebb_packing *packing)
{
    ebb_mem_free(ctx, packing->starts);
    ebb_mem_free(ctx, packing->items);
    ebb_mem_free(ctx, packing->tokens);
    *packing = (struct ebb_packing){0};
}
