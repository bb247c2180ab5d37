/* Checkpoints: a folder that holds everything a run needs to go on, whole or not at all.
 *
 * OUT/checkpoint-STEP holds
 *   adapter_config.json, adapter_model.safetensors, or the whole model: what others load
 *   training_state.ebb           exact parameters and optimizer state (ebb_engine_save_state)
 *   trainer_state.json           place in the data, counters, best metric, numerics, identity
 *   metrics.jsonl                the records up to this step
 *   manifest.json                size and XXH3-64 of each of the others
 * The state is a safetensors file by another name: vLLM, SGLang and Ollama take everything in a
 * model's directory that ends in .safetensors for its weights.
 * It is made as OUT/.checkpoint-STEP.tmp, the manifest last, and renamed when all of it is on disk.
 * What a killed run leaves under such a name is removed by the next.
 *
 * An *identity* is an object of texts that say what a run is: model, method, data, options. Some
 * must be the same for a resume, others may change with a warning.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CHECKPOINT_H
#define EBB_CHECKPOINT_H

#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All that changes from step to step besides parameters and optimizer state. */
struct ebb_train_state {
    int64_t step;    /* optimizer steps done */
    int64_t updates; /* of those, the ones that changed weights: bias corrections count these */
    int64_t tokens;  /* since the run began */
    struct ebb_loader_place place; /* of the next micro-batch */
    double best_loss;              /* eval_loss; NaN: none */
    int64_t best_step;             /* -1: none */
    int64_t evals_worse;           /* evaluations in a row without enough improvement */
    int64_t eval_step;             /* of the last evaluation; -1: none */
    int64_t sample_step;           /* of the last samples; -1: none */
    int64_t skipped,
        skipped_row;    /* steps whose gradients were not finite, and how many just now in a row */
    double window_loss; /* sum over labels since the last printed line */
    int64_t window_labels;
    double logged_loss; /* mean of the last printed window; NaN: none */
    double seconds;     /* of training, all sessions */
};
struct ebb_train_state ebb_train_state_start(void);

/* What a run is. Reads through the training data (at most a few thousand micro-batches) and puts
 * the loader back where it was. To be called before parameters change. The caller owns *identity.
 */
enum ebb_status ebb_identity_create(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                    int64_t total_steps, json_t **identity);
/* EBB_BAD_CONFIG naming the first thing that must be equal and is not; a warning for each that may
 * differ. */
enum ebb_status ebb_identity_compare(struct ebb_ctx *ctx, const char *checkpoint,
                                     const json_t *saved, const json_t *now);

/* The numerics record as JSON; ebb_checkpoint_numerics (trainer.h) reads it back. */
json_t *ebb_numerics_json(const struct ebb_numerics *numerics); /* NULL: no memory */

/* The name's step, or -1 if it is no checkpoint's name. */
int64_t ebb_checkpoint_step(const char *name);
/* OUT/checkpoint-STEP; the caller frees. */
char *ebb_checkpoint_path(struct ebb_ctx *ctx, const char *output_dir, int64_t step);
/* Replaces a checkpoint of the same step. After a failure nothing of it is left. */
enum ebb_status ebb_checkpoint_save(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                    const struct ebb_train_state *state, const json_t *identity);
/* EBB_BAD_FILE or EBB_IO saying what does not hold: no manifest, a file that is missing, has
 * another size or hash. */
enum ebb_status ebb_checkpoint_verify(struct ebb_ctx *ctx, const char *dir);
/* Verifies, compares identities, then sets parameters, optimizer state and *state, and puts the
 * checkpoint's metrics.jsonl into the request's output_dir. */
enum ebb_status ebb_checkpoint_load(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                    const char *dir, const json_t *identity,
                                    struct ebb_train_state *state);
/* Verifies, then sets parameters and optimizer state only. */
enum ebb_status ebb_checkpoint_load_weights(struct ebb_ctx *ctx,
                                            const struct ebb_trainer_request *request,
                                            const char *dir);
/* One warning if the folder holds checkpoints of later steps than `step`, from which the run now
 * departs: they belong to its earlier course. */
enum ebb_status ebb_checkpoint_warn_newer(struct ebb_ctx *ctx, const char *output_dir,
                                          int64_t step);
/* Removes the oldest checkpoints above `limit` (0: none), but never those of the two steps. */
enum ebb_status ebb_checkpoint_rotate(struct ebb_ctx *ctx, const char *output_dir, int64_t limit,
                                      int64_t keep_step, int64_t keep_best);
/* Writes the adapter or the model into output_dir itself: under a temporary folder, then file by
 * file into place. */
enum ebb_status ebb_result_save(struct ebb_ctx *ctx, const struct ebb_trainer_request *request);
/* Removes what a killed run left half-written in output_dir. */
enum ebb_status ebb_output_clean(struct ebb_ctx *ctx, const char *output_dir);

#ifdef __cplusplus
}
#endif
#endif
