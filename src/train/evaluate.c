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
                               struct ebb_loader *loader, int stop_fd,
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
        EBB_TRY(ebb_engine_micro(engine, EBB_PROGRAM_EVAL, batch, 1, (uint32_t)m));
        result->tokens += batch->tokens;
        if (!ebb_progress_is_live(progress) || ebb_clock_seconds() - drawn < redraw_seconds)
            continue;
        drawn = ebb_clock_seconds();
        ebb_progress_show(progress, false, "evaluating %" PRId64 "/%" PRId64, m + 1, micros);
    }
    return EBB_OK;
}

enum ebb_status ebb_evaluate(struct ebb_ctx *ctx, struct ebb_engine *engine,
                             struct ebb_loader *loader, int stop_fd, struct ebb_eval_result *result)
{
    const struct ebb_loader_place start = {0, 0};
    double began = ebb_clock_seconds();
    memset(result, 0, sizeof *result);
    struct ebb_progress *progress = ebb_progress_create(ctx);
    if (!progress) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_loader_seek(ctx, loader, start);
    if (status == EBB_OK) status = run_all(ctx, engine, loader, stop_fd, progress, result);
    ebb_progress_free(progress);
    EBB_TRY(status);
    struct ebb_sums sums = ebb_engine_sums(engine);
    result->labels = sums.labels;
    result->loss = sums.labels > 0 ? sums.loss / (double)sums.labels : NAN;
    /* A saved teacher knows nothing of this data. */
    result->distills = ebb_engine_objective(engine)->kind == EBB_OBJECTIVE_DISTILL;
    result->ce_loss = sums.labels > 0 ? sums.cross_entropy / (double)sums.labels : NAN;
    result->kd_loss = sums.labels > 0 ? sums.divergence / (double)sums.labels : NAN;
    result->accuracy = sums.labels > 0 ? (double)sums.correct / (double)sums.labels : NAN;
    result->seconds = ebb_clock_seconds() - began;
    return ebb_loader_seek(ctx, loader, start);
}
