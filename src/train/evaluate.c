/* Evaluation: a whole data set through the EVAL program.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "train/trainer.h"
#include "train/trainer_int.h"

static const double redraw_seconds = 0.2;

bool ebb_stop_wanted(int stop_fd)
{
    struct pollfd entry = {.fd = stop_fd, .events = POLLIN};
    return stop_fd >= 0 && poll(&entry, 1, 0) > 0 && (entry.revents & POLLIN);
}

static enum ebb_status run_all(struct ebb_ctx *ctx, struct ebb_engine *engine,
                               struct ebb_loader *loader, struct ebb_feed *feed, int stop_fd,
                               struct ebb_progress *progress, struct ebb_eval_result *result)
{
    int64_t micros = ebb_loader_describe(loader)->micros_per_epoch;
    double drawn = ebb_clock_seconds();
    ebb_engine_begin(engine);
    for (int64_t m = 0; m < micros; m++) {
        const struct ebb_batch *batch;
        if (ebb_stop_wanted(stop_fd))
            return EBB_FAIL(ctx, EBB_INTERRUPTED,
                            "the evaluation was stopped by a signal after %" PRId64 " of %" PRId64
                            " micro-batches",
                            m, micros);
        EBB_TRY(ebb_loader_next(ctx, loader, &batch));
        if (feed) EBB_TRY(ebb_feed_put(feed, engine, loader, batch));
        EBB_TRY(ebb_engine_micro(engine, EBB_PROGRAM_EVAL, batch, 1, (uint32_t)m));
        result->tokens += batch->tokens;
        if (!ebb_progress_is_live(progress) || ebb_clock_seconds() - drawn < redraw_seconds)
            continue;
        drawn = ebb_clock_seconds();
        ebb_progress_show(progress, false, "evaluating %" PRId64 "/%" PRId64, m + 1, micros);
    }
    return EBB_OK;
}

static void fill_result(const struct ebb_objective *objective, struct ebb_sums sums,
                        struct ebb_eval_result *result)
{
    result->sums = sums;
    result->objective = *objective;
    /* A saved teacher knows nothing of this data. */
    if (objective->kind == EBB_OBJECTIVE_DISTILL_SAVED)
        result->objective.kind = EBB_OBJECTIVE_TOKENS;
    int64_t weight = ebb_objective_weight(objective, &sums);
    result->labels = sums.labels;
    result->loss = weight > 0 ? sums.loss / (double)weight : NAN;
    result->accuracy = sums.labels > 0 ? (double)sums.correct / (double)sums.labels : NAN;
    result->cross_entropy = result->loss;
    if (ebb_objective_distills(&result->objective))
        result->cross_entropy = sums.labels > 0 ? sums.cross_entropy / (double)sums.labels : NAN;
    if (ebb_objective_prefers(objective)) result->cross_entropy = result->accuracy = NAN;
}

enum ebb_status ebb_evaluate(struct ebb_ctx *ctx, struct ebb_engine *engine,
                             struct ebb_loader *loader, struct ebb_feed *feed, int stop_fd,
                             struct ebb_eval_result *result)
{
    const struct ebb_loader_place start = {0, 0};
    double began = ebb_clock_seconds();
    memset(result, 0, sizeof *result);
    struct ebb_progress *progress = ebb_progress_create(ctx);
    if (!progress) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_loader_seek(ctx, loader, start);
    if (status == EBB_OK) status = run_all(ctx, engine, loader, feed, stop_fd, progress, result);
    ebb_progress_free(progress);
    EBB_TRY(status);
    fill_result(ebb_engine_objective(engine), ebb_engine_sums(engine), result);
    result->seconds = ebb_clock_seconds() - began;
    return ebb_loader_seek(ctx, loader, start);
}
