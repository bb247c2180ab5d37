/* What the benchmarks that run training steps share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_BENCH_KIT_H
#define EBB_BENCH_KIT_H

#include <stdlib.h>

#include "train/engine.h"

/* Pseudo-random tokens, any will do: `documents` of equal length, each token but a document's last
 * with its successor as target. Freed by bench_batch_free, after a failure too. */
static inline enum ebb_status bench_batch_create(struct ebb_ctx *ctx, int64_t tokens,
                                                 int64_t documents, int64_t vocab, uint64_t seed,
                                                 struct ebb_batch *batch)
{
    size_t bytes = (size_t)(tokens + 1) * sizeof(int32_t);
    int32_t **const arrays[] = {&batch->ids, &batch->targets, &batch->positions, &batch->label_rows,
                                &batch->doc_starts};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        *arrays[i] = (int32_t *)ebb_mem_alloc(ctx, bytes);
        if (!*arrays[i]) return EBB_NO_MEMORY;
    }
    uint64_t state = seed;
    batch->tokens = tokens;
    batch->docs = documents;
    batch->longest = tokens / documents;
    for (int64_t i = 0; i < tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        batch->ids[i] = (int32_t)((state >> 33) % (uint64_t)vocab);
        batch->positions[i] = (int32_t)(i % batch->longest);
    }
    for (int64_t i = 0; i < tokens; i++) {
        bool last = batch->positions[i] == batch->longest - 1;
        batch->targets[i] = last ? EBB_IGNORE : batch->ids[i + 1];
        if (!last) batch->label_rows[batch->labels++] = (int32_t)i;
    }
    for (int64_t d = 0; d <= documents; d++) batch->doc_starts[d] = (int32_t)(d * batch->longest);
    return EBB_OK;
}

static inline void bench_batch_free(struct ebb_ctx *ctx, struct ebb_batch *batch)
{
    ebb_mem_free(ctx, batch->ids);
    ebb_mem_free(ctx, batch->targets);
    ebb_mem_free(ctx, batch->positions);
    ebb_mem_free(ctx, batch->label_rows);
    ebb_mem_free(ctx, batch->doc_starts);
}

/* An adapter of a rank on all linear layers, alpha twice the rank. */
static inline enum ebb_status bench_adapter(struct ebb_ctx *ctx,
                                            const struct ebb_model_config *config, int64_t rank,
                                            struct ebb_adapter_config *adapter)
{
    struct ebb_weight_list weights;
    EBB_TRY(ebb_weight_list_create(ctx, config, &weights));
    adapter->rank = rank;
    adapter->alpha = 2 * (double)rank;
    enum ebb_status status = ebb_adapter_config_targets(ctx, &weights, "all-linear", adapter);
    ebb_weight_list_free(ctx, &weights);
    return status;
}

static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts. */
static inline double bench_median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, bench_by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#endif
