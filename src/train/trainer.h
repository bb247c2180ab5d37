/* The training loop: batches, steps, evaluation, metrics, checkpoints, resume, interruption.
 *
 * A recipe fills the request; the loop knows nothing of configuration files. Everything in a
 * request is borrowed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAINER_H
#define EBB_TRAINER_H

#include "data/loader.h"
#include "optim/schedule.h"
#include "train/engine.h"
#include "train/feed.h"
#include "train/samples.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_DATA_TIME = 32 }; /* bytes of "2026-12-01T22:34:44" and what else is a time */
enum ebb_when { EBB_WHEN_NO, EBB_WHEN_STEPS, EBB_WHEN_EPOCH };

struct ebb_trainer_request {
    struct ebb_engine *engine; /* opened */
    struct ebb_loader *train;
    struct ebb_loader *eval; /* NULL: no validation set */
    /* What their micro-batches have beside tokens; NULL: nothing. */
    struct ebb_feed *train_feed, *eval_feed;
    const char *output_dir;  /* exists, empty or this run's own (resume) */
    const char *events_dir;  /* for an event file beside metrics.jsonl; NULL: none is written */
    const json_t *run;    /* what goes into run.json beside plan, numerics, machine and versions */
    double epochs;        /* num_train_epochs */
    int64_t max_steps;    /* > 0: wins over epochs */
    int64_t accumulation; /* gradient_accumulation_steps */
    struct ebb_schedule_keys schedule; /* optim/schedule.h */
    enum ebb_when eval_strategy, save_strategy;
    int64_t eval_steps, save_steps, logging_steps;
    /* Answered before the first step, whenever eval_strategy says (with or without a validation
     * set), and at the end; a record of metrics.jsonl each time. NULL: none. Else the engine has
     * `decode`. */
    const struct ebb_samples *samples;
    int64_t save_total_limit;        /* 0: keep all */
    bool load_best_at_end;           /* best eval_loss */
    int64_t early_stopping_patience; /* evaluations without improvement; 0: off */
    double early_stopping_threshold;
    bool save_adapter; /* checkpoints and result hold the adapter; else the whole model */
    enum ebb_dtype save_dtype;
    /* Saved with checkpoints and result instead of the model's own; NULL: that. */
    const struct ebb_chat_template *chat;
    /* What the data takes for the time, which checkpoints keep: ebb_checkpoint_data_time. NULL:
     * nothing asks. */
    const char *data_time;
    const char *resume; /* a checkpoint directory; NULL: start fresh */
    int stop_fd;        /* signalfd for SIGINT and SIGTERM; -1: none */
    uint64_t seed;
    uint32_t rank, world; /* 0 of 1 */
    /* Tests: stop hard (as a crash would) after this optimizer step; 0: never. */
    int64_t die_after_step;
};

struct ebb_trainer_result {
    int64_t steps;
    double final_loss;     /* mean over the last logged steps */
    double best_eval_loss; /* NaN: none */
    double seconds;
    int64_t tokens;
    int64_t skipped_steps; /* gradients not finite */
    bool stopped_early;
};

/* EBB_INTERRUPTED after a signal: the step was finished and a checkpoint written. */
enum ebb_status ebb_trainer_run(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                struct ebb_trainer_result *result);

/* Mean loss (of labels, or of pairs), token accuracy and perplexity of a data set. */
struct ebb_eval_result {
    double loss, accuracy;
    double cross_entropy;          /* a label; NaN: nobody measured it */
    struct ebb_objective objective; /* what the loss is; */
    struct ebb_sums sums;           /* its parts */
    int64_t tokens, labels;
    double seconds;
};
enum ebb_status ebb_evaluate(struct ebb_ctx *ctx, struct ebb_engine *engine,
                             struct ebb_loader *loader, struct ebb_feed *feed, int stop_fd,
                             struct ebb_eval_result *result);

/* The newest checkpoint in output_dir whose manifest holds (sizes and hashes right), or NULL in
 * *path. The caller frees. A broken newer one is skipped with a warning that names it. */
enum ebb_status ebb_checkpoint_find(struct ebb_ctx *ctx, const char *output_dir, char **path);
/* The numerics record that a checkpoint was made with. A run that resumes from it puts this, and
 * its threads, into the engine's request before the engine is created; the trainer refuses an
 * engine with other numerics. */
enum ebb_status ebb_checkpoint_numerics(struct ebb_ctx *ctx, const char *dir,
                                        struct ebb_numerics *numerics);
/* The request's data_time of the run that made a checkpoint, for making the same data again; ""
 * where it had none. */
enum ebb_status ebb_checkpoint_data_time(struct ebb_ctx *ctx, const char *dir,
                                         char text[EBB_DATA_TIME]);

#ifdef __cplusplus
}
#endif
#endif
