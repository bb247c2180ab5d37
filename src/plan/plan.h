/* A plan: where everything lives, for a whole run, decided before it starts.
 *
 * A persistent region (the network's tensors, at the start of device memory), one transient
 * region behind it that all programs share (one runs at a time), and the same in host memory: the
 * few tensors of the network that live there, and behind them what moves out. Its sizes are a
 * prediction that the run must meet to the byte: the device and the host space are reserved at
 * exactly these sizes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PLAN_H
#define EBB_PLAN_H

#include "plan/forecast.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_optimizer_keys {
    bool sgd;                 /* else AdamW */
    double beta1, beta2, eps; /* AdamW */
    double momentum;          /* SGD */
    double weight_decay;
};

struct ebb_plan_request {
    const struct ebb_net *net;     /* borrowed */
    struct ebb_matmul_lib *matmul; /* borrowed */
    struct ebb_numerics numerics;
    struct ebb_capacity capacity;
    struct ebb_memory_keys memory;
    struct ebb_optimizer_keys optimizer;
    bool programs[EBB_PROGRAM_COUNT]; /* which ones are wanted */
    int64_t accumulation;             /* micro-batches of a step; 0 means 1 */
    /* Their order: true, layer by layer across as many as a run can take (breadth-first); false,
     * one after the other (depth-first); auto: the latter, but where what lives in host memory
     * would come and go for each, and the other order takes less time by forecast. */
    enum ebb_auto breadth_first;
    bool streams;                     /* activation_offloading_use_streams */
    int64_t device_budget;            /* bytes of the whole process; 0: none */
    int64_t overhead_bytes;           /* of it that no plan decides: a GPU's driver and libraries */
    int64_t host_budget;              /* bytes; 0: none */
    /* Bytes of host memory that may be pinned; 0: no bound. Less than a page: none. */
    int64_t pinned_budget;
    /* What work costs here, borrowed; NULL: not known, and the ladder's order decides. */
    const struct ebb_rates *rates;
    /* What a step does, borrowed; NULL: one micro-batch at capacity, a label a token, documents as
     * long as the longest. */
    const struct ebb_forecast_load *load;
    /* Torture: NaN in dead ranges, no shared bytes, rings of one and no prefetch. */
    bool poison, apart, one_buffer;
};

struct ebb_plan {
    struct ebb_plan_request request; /* as asked */
    struct ebb_policies policies;    /* as chosen */
    /* Micro-batches that a run of TRAIN takes. A step of more has several runs, the last of which
     * may be given fewer. */
    int32_t micros;
    const char *what;                /* the choice in words: a constant, or `words` */
    char words[480];
    /* 0: with more memory the same or as fast a plan would come out. Else others might be faster;
     * where the ladder decided it is the ladder's step. */
    int rung;
    enum ebb_prefetch prefetch;                      /* of TRAIN */
    struct ebb_program *programs[EBB_PROGRAM_COUNT]; /* NULL where not wanted */
    struct ebb_tensor *persistent;                   /* [net->tensor_count] with offsets */
    int64_t device_bytes; /* end of the highest range that any program uses */
    int64_t train_bytes;  /* the same of TRAIN */
    int64_t total_bytes;  /* device_bytes and the overhead: what a budget is compared with */
    int64_t host_bytes;
    /* Of the host space, its first bytes, whole pages, that are not pinned: what is beyond the
     * budget for it. Optimizer state lies there before all else, since it moves least often. */
    int64_t pageable_bytes;
    int64_t kind_bytes[EBB_KIND_COUNT]; /* of device memory: sum == device_bytes; gaps of alignment
                                           count as working set */
    int64_t host_kind_bytes[EBB_KIND_COUNT]; /* of host memory: sum == host_bytes; what moves out
                                                and gaps of alignment are saved activations */
    int64_t bytes_out, bytes_in;             /* moved by a step's first run of TRAIN, at capacity */
    int64_t update_out, update_in;           /* by the update program: state that is away */
    bool fits;                               /* within both budgets */
    struct ebb_forecast forecast;            /* not known without rates */
};

/* With rates, makes the plan whose step takes the least time by forecast, as far as a search finds
 * it (plan/search_int.h); without, the first of the ladder (plan/policy.h) that fits. Where that
 * cannot be pinned as a whole, one that can is looked for too, and the faster of both is returned.
 * If none fits, returns EBB_OK with fits false and the smallest of the ladder: the caller says what
 * to change. The caller frees. */
enum ebb_status ebb_plan_create(struct ebb_ctx *ctx, const struct ebb_plan_request *request,
                                struct ebb_plan **plan);
void ebb_plan_free(struct ebb_ctx *ctx, struct ebb_plan *plan); /* accepts NULL */
/* How many units of a kind are away, and how many there are. */
int32_t ebb_plan_away(const struct ebb_plan *plan, enum ebb_unit kind, int32_t *all);
/* End of the persistent tensors in a space. */
int64_t ebb_plan_persistent_end(const struct ebb_plan *plan, enum ebb_space space);
/* What is held of device memory between TRAIN's forward pass (with the loss) and the first op of
 * its layers' backward pass: persistent tensors, and transient ones whose lifetimes span that
 * place. Computed from the program, at capacity; 0: there is no TRAIN program. */
int64_t ebb_plan_resident_bytes(const struct ebb_plan *plan);
/* Runs of TRAIN in a step. */
int64_t ebb_plan_runs(const struct ebb_plan *plan);
/* The overhead as it turned out: the plan stays as it is, `total_bytes` and `fits` follow. */
void ebb_plan_set_overhead(struct ebb_plan *plan, int64_t overhead_bytes);

/* So many bytes are not pinned, as it turned out: the plan stays as it is, its forecast follows. */
enum ebb_status ebb_plan_set_pageable(struct ebb_ctx *ctx, struct ebb_plan *plan, int64_t bytes);
/* Of the host space: all but the pageable bytes. */
static inline int64_t ebb_plan_pinned(const struct ebb_plan *plan)
{
    return plan->host_bytes - plan->pageable_bytes;
}

/* Tile and chunk sizes for a model: by the logits of a label (`vocab`, of all heads that stand at a
 * time), the width of the MLP and the capacity, never by budget. */
void ebb_numerics_choose(struct ebb_numerics *numerics, int64_t vocab, int64_t ffn,
                         const struct ebb_capacity *capacity);

#ifdef __cplusplus
}
#endif
#endif
