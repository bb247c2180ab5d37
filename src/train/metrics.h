/* Metrics: output_dir/metrics.jsonl, one object a line, and output_dir/run.json, what the run is
 * and how it ended.
 *
 * A line is in the file whole or not at all, as soon as its step is done. Numbers that are not
 * finite are null.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_METRICS_H
#define EBB_METRICS_H

#include "base/json.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_METRICS_FILE "metrics.jsonl"
#define EBB_RUN_FILE     "run.json"

/* null where the value is not finite. */
json_t *ebb_json_number(double value);

struct ebb_metrics;
/* Opens DIR/metrics.jsonl to go on at its end; `fresh` empties it first. The caller closes. */
enum ebb_status ebb_metrics_open(struct ebb_ctx *ctx, const char *dir, bool fresh,
                                 struct ebb_metrics **metrics);
/* Records go to a new event file in `dir` as well (train/event_file.h); `first` is the first step
 * that they are of. */
enum ebb_status ebb_metrics_report(struct ebb_metrics *metrics, const char *dir, int64_t first);
/* Takes over `record` (NULL: no memory). */
enum ebb_status ebb_metrics_add(struct ebb_metrics *metrics, json_t *record);
/* To the disk: before a checkpoint that stands for these lines. */
enum ebb_status ebb_metrics_flush(struct ebb_metrics *metrics);
void ebb_metrics_close(struct ebb_metrics *metrics); /* accepts NULL */

/* One optimizer step's record. */
struct ebb_step_record {
    int64_t step;
    double epoch;
    double loss, grad_norm, accuracy; /* NaN: null */
    const struct ebb_objective *objective;
    struct ebb_sums sums; /* of what the objective has beside the loss */
    double learning_rate;
    int64_t tokens; /* since the run began */
    int64_t step_tokens;
    double seconds;
    bool skipped;                  /* its gradients were not finite: no update */
    struct ebb_engine_usage usage; /* moves: of this step */
};
json_t *ebb_step_record_json(const struct ebb_step_record *record); /* NULL: no memory */
/* {"step", "epoch", "samples": list}; takes over the list. */
json_t *ebb_sample_record_json(int64_t step, double epoch, json_t *list);
json_t *ebb_eval_record_json(int64_t step, double epoch, const struct ebb_eval_result *result);

/* run.json, kept as a tree and written whole each time. Earlier sessions of the same run are kept.
 */
struct ebb_run_record;
enum ebb_status ebb_run_record_open(struct ebb_ctx *ctx, const struct ebb_trainer_request *request,
                                    struct ebb_run_record **record);
/* Says where this session starts; written at once. */
enum ebb_status ebb_run_record_begin(struct ebb_run_record *record, int64_t step,
                                     int64_t total_steps);
enum ebb_status ebb_run_record_end(struct ebb_run_record *record, enum ebb_status run, int64_t step,
                                   const struct ebb_trainer_result *result);
/* Takes `profile` over (train/profile.h; NULL: there was no memory for it); written at the end. */
enum ebb_status ebb_run_record_profile(struct ebb_run_record *record, json_t *profile);
void ebb_run_record_free(struct ebb_run_record *record); /* accepts NULL */

/* The budgets that a run had, bytes; 0: none. */
struct ebb_run_budgets {
    int64_t device, host, pinned;
};
/* Of the run that made a checkpoint, from the run.json beside it. {0} where there is none or it
 * does not say: a run can be resumed without. */
enum ebb_status ebb_run_record_budgets(struct ebb_ctx *ctx, const char *checkpoint,
                                       struct ebb_run_budgets *budgets);

#ifdef __cplusplus
}
#endif
#endif
