/* The engine: a planned network on a device, with its weights in place, ready to run programs.
 *
 * Life: create (config, net, plan: no weights are read, nothing is reserved: `ebb plan` stops
 * here), open (device and spaces reserved at exactly the plan's sizes, executors, weights and
 * adapter loaded), then micro-batches and updates, decoding, reading and writing of state; free.
 *
 * One thread. Everything in a request is borrowed for the engine's life.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_ENGINE_H
#define EBB_ENGINE_H

#include "data/batch.h"
#include "model/decoder.h"
#include "plan/plan.h"
#include "train/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_engine;

/* What computes attention on a GPU. */
enum ebb_attention_choice {
    EBB_ATTENTION_AUTO,  /* cuDNN where it takes the model's heads, else Ebb's own kernels */
    EBB_ATTENTION_CUDNN, /* cuDNN, or it is an error */
    EBB_ATTENTION_PLAIN  /* Ebb's own kernels */
};

struct ebb_engine_request {
    const char *model_dir; /* config.json, weights; for `ebb plan` alone config.json is enough */
    /* An existing adapter to load, to go on training, to evaluate, to generate; or NULL. */
    const char *adapter_dir;
    struct ebb_objective objective; /* model/objective.h */
    /* The second model's directory where the objective has one (a teacher, a reference), else NULL.
     * It has the storage type of the run. */
    const char *teacher_dir;
    /* LoRA from scratch; NULL: none. Not with adapter_dir. */
    const struct ebb_adapter_config *new_adapter;
    /* Weights are random numbers instead of being read, and model_dir needs no more than its
     * config.json: to measure with. */
    bool blank;
    bool train;             /* gradients, optimizer state, TRAIN and UPDATE programs */
    bool evaluate;          /* EVAL program */
    bool decode;            /* DECODE program, capacity.cache_tokens > 0 */
    enum ebb_dtype storage; /* F32 or BF16 */
    bool stochastic_rounding;
    struct ebb_optimizer_keys optimizer;
    struct ebb_capacity capacity;
    struct ebb_memory_keys memory;
    int64_t accumulation; /* micro-batches of a step, 0 means 1; and their order: plan/plan.h */
    enum ebb_auto breadth_first;
    const struct ebb_rates
        *rates; /* what work costs here, for the choice of a plan; NULL: not known */
    const struct ebb_forecast_load *load; /* by which it is searched; NULL: as plan/plan.h says */
    bool streams;
    int64_t device_budget, host_budget; /* bytes; 0: none */
    int64_t pinned_budget;              /* of a GPU's host memory: plan/plan.h */
    /* What was free when these were settled, of a CPU the same in both; 0: not known. */
    int64_t free_bytes[EBB_SPACE_COUNT];
    /* GPU: device memory of the process outside the plan's, as far as it is known. */
    int64_t overhead_bytes;
    enum ebb_backend backend;
    bool deterministic;                  /* GPU: attention's backward too */
    enum ebb_attention_choice attention; /* GPU */
    const char *cache_dir;               /* GPU: where plans of attention are kept; NULL: nowhere */
    bool planned;  /* for its plan alone: no library of a GPU is loaded, and it is never opened */
    int threads;   /* of the CPU backend; 0: all */
    bool profile;  /* where a step's time goes: train/profile.h */
    uint64_t seed; /* of adapter starts and dropout */
    double max_grad_norm;                /* 0: no clipping */
    const struct ebb_numerics *numerics; /* from a checkpoint; NULL: chosen */
    /* Torture and tests. */
    bool poison, apart, one_buffer, checksums, own_allocations;
    bool pageable; /* as if the system refused to pin host memory (a GPU's copies bounce) */
    int64_t pin_limit;                    /* as if it pinned so much at most; 0: no limit */
    int64_t taken_bytes[EBB_SPACE_COUNT]; /* as if others had taken so much meanwhile */
    int delay_us[EBB_QUEUE_COUNT];
    /* Reserve device_budget bytes instead of the plan's, to see what lies behind its end. */
    bool whole_budget;
};

/* EBB_DOES_NOT_FIT is not decided here: ebb_engine_plan(engine)->fits says. */
enum ebb_status ebb_engine_create(struct ebb_ctx *ctx, const struct ebb_engine_request *request,
                                  struct ebb_engine **engine);
/* EBB_DOES_NOT_FIT where less memory is free than the plan needs: before anything is reserved, and
 * so before the first step. */
enum ebb_status ebb_engine_open(struct ebb_engine *engine);
/* After open or measure: of the host memory that was to be pinned, what the system refused. The
 * plan has it as pageable from then on, with the forecast that this makes. */
int64_t ebb_engine_refused(const struct ebb_engine *engine);
/* Between create and open, on a GPU: reserves what open would, runs every program once on few
 * tokens of zeros, and asks the driver what of this process's device memory is not the plan's.
 * -1: it cannot tell. */
enum ebb_status ebb_engine_measure(struct ebb_engine *engine, int64_t *overhead_bytes);
/* Puts it into the plan, which stays as it is otherwise. */
void ebb_engine_set_overhead(struct ebb_engine *engine, int64_t overhead_bytes);
void ebb_engine_free(struct ebb_engine *engine); /* accepts NULL */

const struct ebb_plan *ebb_engine_plan(const struct ebb_engine *engine);
const struct ebb_net *ebb_engine_net(const struct ebb_engine *engine);
const struct ebb_model_config *ebb_engine_config(const struct ebb_engine *engine);
const struct ebb_weight_list *ebb_engine_weights(const struct ebb_engine *engine);
/* These two: NULL: none. */
const struct ebb_model_config *ebb_engine_teacher(const struct ebb_engine *engine);
const struct ebb_adapter_config *ebb_engine_adapter(const struct ebb_engine *engine);
struct ebb_ctx *ebb_engine_context(const struct ebb_engine *engine);
const struct ebb_objective *ebb_engine_objective(const struct ebb_engine *engine);
struct ebb_device *ebb_engine_device(const struct ebb_engine *engine); /* NULL before open */
/* Parameters that are trained, and all of the model's (adapters not counted). */
void ebb_engine_parameters(const struct ebb_engine *engine, int64_t *trained, int64_t *all);

/* ---- steps ---- */

/* Sets loss, labels, correct and norm_squared of the sums to zero: before the first micro-batch
 * of a step or of an evaluation. (Gradients are zero after open and after each update.) */
void ebb_engine_begin(struct ebb_engine *engine);
/* Runs TRAIN or EVAL on one micro-batch and waits for it. Where the plan's runs of TRAIN take
 * several (ebb_plan.micros), micro-batches are put there and wait until there are as many, or until
 * ebb_engine_flush. `step` from 1, `micro` from 0 within the step: they key the random numbers. A
 * batch beyond the capacity is refused with both numbers. The batch may go when this returns. */
enum ebb_status ebb_engine_micro(struct ebb_engine *engine, enum ebb_program_kind kind,
                                 const struct ebb_batch *batch, uint64_t step, uint32_t micro);
/* Runs TRAIN on the micro-batches that wait: after a step's last one, before its sums mean
 * anything. Nothing where none wait. */
enum ebb_status ebb_engine_flush(struct ebb_engine *engine);
/* Labels' likeliest tokens (objective.top_k of each, objective.top_dtype): of a saved teacher, put
 * before a micro-batch of TRAIN; or read after one of EVAL that leaves them. */
enum ebb_status ebb_engine_put_top(struct ebb_engine *engine, int64_t labels, const int32_t *ids,
                                   const void *logprobs);
enum ebb_status ebb_engine_get_top(const struct ebb_engine *engine, int64_t labels, int32_t *ids,
                                   void *logprobs);
/* Labels' log-probabilities of a reference that is given, put before a micro-batch; or the model's
 * own, read after one of EVAL that leaves them. */
enum ebb_status ebb_engine_put_logprobs(struct ebb_engine *engine, int64_t labels,
                                        const float *logprobs);
enum ebb_status ebb_engine_get_logprobs(const struct ebb_engine *engine, int64_t labels,
                                        float *logprobs);
/* What each document is (EBB_KTO_...), put before a micro-batch. */
enum ebb_status ebb_engine_put_kinds(struct ebb_engine *engine, int64_t docs, const int32_t *kinds);
/* Norm, clip factor and sweep, with everything divided by total_weight. */
enum ebb_status ebb_engine_update(struct ebb_engine *engine, uint64_t step, double learning_rate,
                                  double total_weight);
/* NULL: the request has no `profile`. Runs of TRAIN and UPDATE are added; the caller tells where
 * steps begin and end. */
struct ebb_profile *ebb_engine_profile(const struct ebb_engine *engine);
/* Measures for a while, in place of whatever the programs' shared region holds. Between runs; not
 * before open. Needs no profile. What there is no room to measure stays 0. */
enum ebb_status ebb_engine_ceilings(struct ebb_engine *engine, struct ebb_ceilings *ceilings);
/* Forgets gradients, and micro-batches that wait: after a failed step. */
enum ebb_status ebb_engine_drop_gradients(struct ebb_engine *engine);
/* As they stood after the last run. */
struct ebb_sums ebb_engine_sums(const struct ebb_engine *engine);
/* Tokens [count] of one sequence after `cached` others; *logits [V] fp32 of the last one,
 * borrowed until the next call. Any count: long prompts are cut into the program's capacity. */
enum ebb_status ebb_engine_decode(struct ebb_engine *engine, const int32_t *ids, int64_t count,
                                  int64_t cached, const float **logits);

/* What metrics report about memory and moves; counters run as the device's do. */
struct ebb_engine_usage {
    int64_t predicted_device_bytes; /* the plan's */
    /* End of the highest byte that a run program could touch, by real addresses. */
    int64_t peak_device_bytes;
    /* Of this process, as the driver counts (ebb_device_bytes_process; -1: unknown); on the CPU the
     * pages of the device space that are really backed by memory. */
    int64_t process_device_bytes;
    int64_t host_bytes; /* reserved for moves and rows of embeddings */
    int64_t bytes_out, bytes_in;
    double stall_seconds;
    double load_seconds; /* that weights and adapter took to come into place */
};
struct ebb_engine_usage ebb_engine_usage(const struct ebb_engine *engine);

/* ---- state ---- */

/* The model in Hugging Face's layout: weights as they are now (trained or not), `dtype` on disk,
 * side files from model_dir. With an adapter it is not folded in (see ebb_merge in
 * train/merge.h). */
enum ebb_status ebb_engine_save_model(struct ebb_engine *engine, const char *dir,
                                      enum ebb_dtype dtype);
enum ebb_status ebb_engine_save_adapter(struct ebb_engine *engine, const char *dir);
/* Everything that training changes, exactly: masters, moments, trained weights; one safetensors
 * file. Loading checks names and shapes. */
enum ebb_status ebb_engine_save_state(struct ebb_engine *engine, const char *path);
enum ebb_status ebb_engine_load_state(struct ebb_engine *engine, const char *path);
/* Tests: a parameter's exact fp32 value and its gradient sum, [rows, cols] each. */
enum ebb_status ebb_engine_read_param(const struct ebb_engine *engine,
                                      const struct ebb_param *param, float *value);
enum ebb_status ebb_engine_read_grad(const struct ebb_engine *engine, const struct ebb_param *param,
                                     float *grad);
/* Tests: where a persistent tensor lies (an address of the device). */
void *ebb_engine_tensor(const struct ebb_engine *engine, int32_t tensor);

#ifdef __cplusplus
}
#endif
#endif
