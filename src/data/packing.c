/* First-fit decreasing with a tournament tree.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/packing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct item {
    int64_t length, sample;
};

/* Leaves are the bins' room, inner nodes the larger of their two children: the first bin with
 * enough room is found from the root by going left wherever that is possible. */
struct tree {
    int64_t *room; /* [2 * leaves], root at 1 */
    int64_t leaves;
};

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->sample < y->sample ? -1 : 1;
}

static int64_t tree_first(const struct tree *tree, int64_t wanted)
{
    int64_t node = 1;
    while (node < tree->leaves) node = 2 * node + (tree->room[2 * node] < wanted);
    return node - tree->leaves;
}

static void tree_take(struct tree *tree, int64_t bin, int64_t tokens)
{
    int64_t node = bin + tree->leaves;
    tree->room[node] -= tokens;
    for (node /= 2; node >= 1; node /= 2) {
        int64_t left = tree->room[2 * node], right = tree->room[2 * node + 1];
        tree->room[node] = left > right ? left : right;
    }
}

/* bin_of[sample], numbered as they were opened. Returns their number. */
static int64_t place_items(struct tree *tree, const struct item *items, int64_t count,
                           int64_t *bin_of)
{
    int64_t bins = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t bin = tree_first(tree, items[i].length);
        tree_take(tree, bin, items[i].length);
        bin_of[items[i].sample] = bin;
        if (bin >= bins) bins = bin + 1;
    }
    return bins;
}

/* Numbers bins by their lowest sample and lays the samples down. `number` is working memory,
 * [bins]. */
static enum ebb_status order_bins(struct ebb_ctx *ctx, const int64_t *lengths, int64_t count,
                                  int64_t bins, int64_t *bin_of, int64_t *number,
                                  struct ebb_packing *packing)
{
    packing->bins = bins;
    packing->starts = ebb_mem_alloc(ctx, (size_t)(bins + 1) * sizeof *packing->starts);
    packing->samples = ebb_mem_alloc(ctx, (size_t)(count + 1) * sizeof *packing->samples);
    packing->tokens = ebb_mem_alloc(ctx, (size_t)(bins + 1) * sizeof *packing->tokens);
    if (packing->starts == NULL || packing->samples == NULL || packing->tokens == NULL)
        return EBB_NO_MEMORY;
    int64_t next = 0;
    for (int64_t i = 0; i < bins; i++) number[i] = -1;
    for (int64_t i = 0; i < count; i++) {
        if (number[bin_of[i]] < 0) number[bin_of[i]] = next++;
        bin_of[i] = number[bin_of[i]];
        packing->starts[bin_of[i] + 1]++;
        packing->tokens[bin_of[i]] += lengths[i];
    }
    for (int64_t i = 0; i < bins; i++) packing->starts[i + 1] += packing->starts[i];
    int64_t *fill = number; /* from here on: how many samples each bin has got */
    for (int64_t i = 0; i < bins; i++) fill[i] = 0;
    for (int64_t i = 0; i < count; i++)
        packing->samples[packing->starts[bin_of[i]] + fill[bin_of[i]]++] = i;
    return EBB_OK;
}

static enum ebb_status fill_items(struct ebb_ctx *ctx, const int64_t *lengths, int64_t count,
                                  int64_t capacity, struct item *items)
{
    for (int64_t i = 0; i < count; i++) {
        if (lengths[i] > capacity)
            return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                            "sample %" PRId64 " has %" PRId64
                            " tokens and does not go into a bin of max_length %" PRId64,
                            i + 1, lengths[i], capacity);
        items[i] = (struct item){lengths[i], i};
    }
    qsort(items, (size_t)count, sizeof *items, compare_items);
    return EBB_OK;
}

enum ebb_status ebb_packing_create(struct ebb_ctx *ctx, const int64_t *lengths, int64_t count,
                                   int64_t capacity, struct ebb_packing *packing)
{
    *packing = (struct ebb_packing){0};
    if (count < 1 || capacity < 1)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "packing %" PRId64 " samples into bins of %" PRId64 " tokens", count,
                        capacity);
    struct tree tree = {NULL, 1};
    while (tree.leaves < count) tree.leaves *= 2; /* as many bins as samples at worst */
    struct item *items = ebb_mem_alloc(ctx, (size_t)count * sizeof *items);
    int64_t *bin_of = ebb_mem_alloc(ctx, (size_t)count * sizeof *bin_of);
    tree.room = ebb_mem_alloc(ctx, (size_t)(2 * tree.leaves) * sizeof *tree.room);
    enum ebb_status status =
        items == NULL || bin_of == NULL || tree.room == NULL ? EBB_NO_MEMORY : EBB_OK;
    if (status == EBB_OK) status = fill_items(ctx, lengths, count, capacity, items);
    if (status == EBB_OK) {
        for (int64_t i = 1; i < 2 * tree.leaves; i++) tree.room[i] = capacity;
        int64_t bins = place_items(&tree, items, count, bin_of);
        status = order_bins(ctx, lengths, count, bins, bin_of, tree.room, packing);
    }
    ebb_mem_free(ctx, items);
    ebb_mem_free(ctx, bin_of);
    ebb_mem_free(ctx, tree.room);
    if (status != EBB_OK) ebb_packing_free(ctx, packing);
    return status;
}

void ebb_packing_free(struct ebb_ctx *ctx, struct ebb_packing *packing)
{
    ebb_mem_free(ctx, packing->starts);
    ebb_mem_free(ctx, packing->samples);
    ebb_mem_free(ctx, packing->tokens);
    *packing = (struct ebb_packing){0};
}
