/* Rates: what work costs on a device, as far as a forecast needs it.
 *
 * Ops of one class take
 *     seconds = call + bytes * byte + flops * flop
 * with ebb_op_work's bytes and flops. Three numbers a class are few enough to be measured in a
 * minute, and every op of a training step belongs to one. They are fitted to what ops took within
 * training steps, so that they hold under load: with copies running, at the clock that a device
 * keeps up.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RATES_H
#define EBB_RATES_H

#include "base/json.h"
#include "plan/build.h"
#include "program/part.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, key). Attention: heads of up to 64 elements, and larger ones. */
#define EBB_COST_LIST(X)                                                                           \
    X(PRODUCT, "product")                                                                          \
    X(THIN, "thin_product") /* with a side of at most EBB_THIN_COLS columns */                     \
    X(ATTENTION_FORWARD_64, "attention_forward_64")                                                \
    X(ATTENTION_FORWARD_128, "attention_forward_128")                                              \
    X(ATTENTION_BACKWARD_64, "attention_backward_64")                                              \
    X(ATTENTION_BACKWARD_128, "attention_backward_128")                                            \
    /* a GPU's, where deterministic: true asks for it */                                           \
    X(ATTENTION_FIXED_64, "attention_backward_64_deterministic")                                   \
    X(ATTENTION_FIXED_128, "attention_backward_128_deterministic")                                 \
    /* a GPU's own kernels, where cuDNN does not take the heads or the type */                     \
    X(ATTENTION_PLAIN_FORWARD, "attention_forward_plain")                                          \
    X(ATTENTION_PLAIN_BACKWARD, "attention_backward_plain")                                        \
    X(MEMORY, "memory_bound")                                                                      \
    X(LOSS, "loss")                                                                                \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(COPY_OUT, "copy_out")                                                                        \
    X(COPY_IN, "copy_in")                                                                          \
    /* of host memory that is not pinned, which goes through a ring of slots that are */           \
    X(BOUNCE_OUT, "bounced_copy_out")                                                              \
    X(BOUNCE_IN, "bounced_copy_in")                                                                \
    X(PIN, "pin_host_memory") /* once, before the first step: backing and pinning it */            \
    X(GAP, "gap")             /* before each entry of COMPUTE: `call` alone */                     \
    X(HOST, "host") /* around a run of a program; bytes: rows that the host puts together for it   \
                     */

enum ebb_cost_class {
#define EBB_COST_ENUM(name, key) EBB_COST_##name,
    EBB_COST_LIST(EBB_COST_ENUM)
#undef EBB_COST_ENUM
        EBB_COST_COUNT
};
const char *ebb_cost_key(enum ebb_cost_class which);

/* A move of which some is not pinned is a bounced one. */
enum ebb_cost_class ebb_entry_cost_class(const struct ebb_program *program,
                                         const struct ebb_entry *entry,
                                         const struct ebb_numerics *numerics);

/* Below this many seconds a call, a byte or a flop costs nothing: no machine is as fast. */
#define EBB_COST_LEAST 1e-18

/* Seconds, each 0 or at least EBB_COST_LEAST. All 0: not known. */
struct ebb_cost {
    double call, byte, flop;
};
static inline bool ebb_cost_known(const struct ebb_cost *cost)
{
    return cost->call > 0 || cost->byte > 0 || cost->flop > 0;
}
static inline double ebb_cost_seconds(const struct ebb_cost *cost, const struct ebb_op_work *work)
{
    return cost->call + cost->byte * work->bytes + cost->flop * work->flops;
}

enum { EBB_RATES_DEVICE = 96 };
struct ebb_rates {
    char device[EBB_RATES_DEVICE]; /* "NVIDIA H200" */
    char versions[192];            /* of driver and libraries, and the threads of a CPU */
    int threads;                   /* of a CPU; 0: a GPU, or not said */
    enum ebb_dtype storage;        /* of weights and activations */
    bool measured;                 /* else from data sheets */
    struct ebb_cost costs[EBB_COST_COUNT];
};

/* ---- fitting ---- */

/* Ops of the same size: `count` of them took all these seconds, and did all this. */
struct ebb_cost_sample {
    enum ebb_cost_class which;
    double count, seconds, flops, bytes;
};
/* The costs of the classes that there are samples of, the others as they are: least squares of the
 * relative errors, each weighted by its seconds, with no cost below 0. */
void ebb_rates_fit(const struct ebb_cost_sample *samples, int64_t count, struct ebb_rates *rates);

/* ---- kept ---- */

/* As an object; the caller owns it. NULL: no memory. */
json_t *ebb_rates_json(const struct ebb_rates *rates);
/* `where` names the text in messages. Classes that are not there are not known. EBB_BAD_FILE for
 * costs, a type or threads that no machine has. */
enum ebb_status ebb_rates_read(struct ebb_ctx *ctx, const char *where, const json_t *json,
                               struct ebb_rates *rates);

/* ---- GPUs that are not here (plan/gpus.c) ---- */

struct ebb_gpu {
    const char *name; /* "RTX 4090" */
    int64_t bytes;    /* of memory, as a driver shows it */
    /* Data sheet, a second: dense bf16 with fp32 sums, device memory, the link one way. */
    double flops, memory_bytes, link_bytes;
};
/* All that are known, [*count]. */
const struct ebb_gpu *ebb_gpus(int64_t *count);
/* By name, whatever the case, blanks and a leading "NVIDIA" or "GeForce", as people and drivers
 * have it ("a100 80gb", "NVIDIA A100-SXM4-80GB"); NULL: none of that name. */
const struct ebb_gpu *ebb_gpu_find(const char *name);
/* Data sheet times what an H200 was measured to reach of its own. */
void ebb_gpu_rates(const struct ebb_gpu *gpu, enum ebb_dtype storage, struct ebb_rates *rates);

#ifdef __cplusplus
}
#endif
#endif
