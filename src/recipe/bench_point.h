/* One point of a sweep, measured in this process: training steps of one length in one mode, after
 * an evaluation micro-batch of the same length.
 *
 * Rows are documents of exactly the length, every token trained: random ids, or a data set's
 * samples laid end to end and cut, from the first one again where they do not suffice. So attention
 * has the whole length to work on, which packing would keep it from. A preference pair is two of
 * them. SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_BENCH_POINT_H
#define EBB_RECIPE_BENCH_POINT_H

#include "plot/results.h"
#include "recipe/bench_sweep.h"
#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_bench_job {
    const char *model; /* in place of model_name_or_path; "": as the configuration says */
    struct ebb_bench_mode mode;
    int64_t length; /* tokens of a row */
};

/* Options were read for EBB_COMMAND_BENCH; the job's keys are set in them, and `config` is changed
 * to load the data by. The point gets everything but the budget. EBB_DOES_NOT_FIT where the plan
 * does not. */
enum ebb_status ebb_bench_point(struct ebb_ctx *ctx, struct ebb_options *options,
                                struct ebb_config *config, const struct ebb_recipe_env *env,
                                const struct ebb_bench_job *job, struct ebb_results_point *point);

/* Replaces the setup's data by rows, with a loader of whole micro-batches; ebb_setup_data has
 * loaded what samples there are. */
enum ebb_status ebb_bench_rows(struct ebb_setup *setup, int64_t length);
/* Whether rows are samples of a data set. */
bool ebb_bench_has_data(const struct ebb_config *config);
/* Whether the model's directory has no weights: then they are random numbers. */
enum ebb_status ebb_bench_is_blank(struct ebb_ctx *ctx, const char *dir, bool *blank);

#ifdef __cplusplus
}
#endif
#endif
