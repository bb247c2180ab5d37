/* A probe: what work costs on this machine, found by training.
 *
 * A few small models of random weights train for some seconds each, as a run would: with copies
 * beside the products, and long enough that a GPU has come down to the clock that it keeps. Their
 * profiles are what rates (plan/rates.h) are fitted to. Each class of op is seen at two sizes at
 * least, so that its terms can be told apart; and each run is forecast by what came out, also one
 * that was not fitted to, which says how far that can be trusted.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PROBE_H
#define EBB_PROBE_H

#include "plan/rates.h"
#include "train/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_probe_model {
    int64_t width, ffn, heads, kv_heads, layers, vocab;
    bool tied;
};

/* A model that trains on one document of so many tokens a step. */
struct ebb_probe_job {
    const struct ebb_probe_model *model; /* borrowed, by the result too */
    int64_t tokens;
    bool lora;          /* of rank 16 on all linear layers; else every weight */
    bool moves;         /* x and o go to host memory, the rest is made again; else all stays */
    bool deterministic; /* a GPU's attention */
    bool plain;         /* a GPU's attention by Ebb's own kernels */
    bool pageable;      /* a GPU's: nothing is pinned, and nothing but these moves is fitted to */
    bool held_out;      /* rates are not fitted to it: it is there for the check */
};

enum { EBB_PROBE_JOBS = 16 }; /* at most */

struct ebb_probe_request {
    enum ebb_backend backend;
    enum ebb_dtype storage;
    int threads;            /* of the CPU backend; 0: all */
    const char *cache_dir;  /* GPU: where plans of attention are kept; NULL: nowhere */
    int64_t device_bytes;   /* of the whole process, that may be used; 0: no bound */
    int64_t overhead_bytes; /* of it, what a GPU's driver and libraries take */
    /* NULL: those for the backend and the type. A job that does not fit is run with fewer
     * tokens. */
    const struct ebb_probe_job *jobs;
    int64_t job_count;
    double warm_seconds, count_seconds; /* of each job; 0: those for the backend */
};

/* A job as it ran. */
struct ebb_probe_check {
    struct ebb_probe_job job; /* with the tokens that it had */
    int64_t steps;            /* that count */
    double seconds;           /* of a step, measured: their mean */
    double forecast;          /* of the same, by the rates; 0: they lack a class */
};

struct ebb_probe_result {
    struct ebb_rates rates; /* costs, storage, measured; who asks names the device */
    struct ebb_probe_check checks[EBB_PROBE_JOBS];
    int64_t check_count;
    double seconds; /* that it took */
};

/* Log lines of topic "probe" say how it goes. EBB_DOES_NOT_FIT where there is no memory for the
 * smallest step. */
enum ebb_status ebb_probe_run(struct ebb_ctx *ctx, const struct ebb_probe_request *request,
                              struct ebb_probe_result *result);

#ifdef __cplusplus
}
#endif
#endif
