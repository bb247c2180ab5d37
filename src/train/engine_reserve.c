/* Where an engine's memory comes from: whether what was planned is still free, the spaces, and how
 * much of the host's is pinned in the end.
 *
 * A system hands out addresses for more memory than it has, and kills who then uses them. So what
 * is free is looked up before anything is reserved.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/engine_int.h"

#include <stdio.h>

#include "base/text.h"

enum { SIZE_TEXT = 32 };

/* ---- is it still there ----------------------------------------------------------------------- */

struct need {
    enum ebb_space space;
    enum ebb_backend backend; /* whose memory it is */
    int64_t bytes;
    const char *what, *try;
};

static enum ebb_status fail_shrunk(const struct ebb_engine *engine, const struct need *need,
                                   int64_t now)
{
    char wants[SIZE_TEXT], has[SIZE_TEXT], had[SIZE_TEXT], before[96] = "", users[256] = "";
    const int64_t planned = engine->request.free_bytes[need->space];
    ebb_text_bytes_apart(need->bytes, now, wants, has, SIZE_TEXT);
    if (planned > 0)
        snprintf(before, sizeof before, "; when it was planned %s were",
                 ebb_text_bytes(planned, had, sizeof had));
    if (need->backend != EBB_BACKEND_CPU)
        ebb_device_other_users(engine->device, users, sizeof users);
    return EBB_FAIL(engine->ctx, EBB_DOES_NOT_FIT,
                    "run does not fit what is free: it needs %s of %s, %s are free now%s%s\n"
                    "try:   %s",
                    wants, need->what, has, before, users, need->try);
}

static enum ebb_status check_need(const struct ebb_engine *engine, const struct need *need)
{
    int64_t now = ebb_backend_bytes_free(engine->ctx, need->backend);
    if (now <= 0) return EBB_OK; /* not known */
    now -= engine->request.taken_bytes[need->space];
    return need->bytes > now ? fail_shrunk(engine, need, now > 0 ? now : 0) : EBB_OK;
}

/* Of the overhead that is counted on, what driver and libraries have not taken yet. */
static int64_t overhead_left(const struct ebb_engine *engine)
{
    int64_t taken = ebb_device_bytes_overhead(engine->device);
    int64_t left = engine->plan->request.overhead_bytes - taken;
    return taken >= 0 && left > 0 ? left : 0;
}

static enum ebb_status check_free(const struct ebb_engine *engine)
{
    const struct ebb_plan *plan = engine->plan;
    const bool gpu = engine->request.backend != EBB_BACKEND_CPU;
    const struct need device = {
        .space = EBB_SPACE_DEVICE,
        .backend = engine->request.backend,
        .bytes = plan->device_bytes + (gpu ? overhead_left(engine) : plan->host_bytes),
        .what = gpu ? "device memory" : "memory",
        .try = gpu ? "a memory_budget below what is free, or none, so that the run is planned by "
                     "what is free; the end of what else runs on this GPU"
                   : "a memory_budget below what is free, or the end of what else runs here"};
    const struct need host = {.space = EBB_SPACE_HOST,
                              .backend = EBB_BACKEND_CPU,
                              .bytes = plan->host_bytes,
                              .what = "host memory",
                              .try = "a host_memory_budget below what is free, or none, so that "
                                     "the run is planned by what is free; the end of what else "
                                     "runs here"};
    EBB_TRY(check_need(engine, &device));
    return gpu ? check_need(engine, &host) : EBB_OK;
}

/* ---- the spaces ------------------------------------------------------------------------------ */

/* Others may take it between the look and the reservation: then it is the device that says so. */
static enum ebb_status reserve_device(struct ebb_engine *engine, int64_t bytes)
{
    char had[SIZE_TEXT], text[EBB_ERROR_TEXT];
    const int64_t planned = engine->request.free_bytes[EBB_SPACE_DEVICE];
    enum ebb_status status = ebb_device_reserve(engine->device, EBB_SPACE_DEVICE, bytes);
    if (status != EBB_DOES_NOT_FIT || planned <= 0) return status;
    snprintf(text, sizeof text, "%s", ebb_error_text(engine->ctx));
    ebb_error_clear(engine->ctx);
    return EBB_FAIL(engine->ctx, status, "%s\nplan:  made when %s were free", text,
                    ebb_text_bytes(planned, had, sizeof had));
}

enum ebb_status ebb_engine_reserve(struct ebb_engine *engine)
{
    const struct ebb_engine_request *request = &engine->request;
    struct ebb_device_options options = {.backend = request->backend,
                                         .threads = engine->plan->request.numerics.threads,
                                         .delay_seed = request->seed,
                                         .pageable_bytes = engine->plan->pageable_bytes,
                                         .pageable = request->pageable,
                                         .pin_limit = request->pin_limit};
    memcpy(options.delay_us, request->delay_us, sizeof options.delay_us);
    int64_t device_bytes = engine->plan->device_bytes;
    if (request->whole_budget && request->device_budget > device_bytes)
        device_bytes = request->device_budget;
    EBB_TRY(ebb_device_create(engine->ctx, &options, &engine->device));
    EBB_TRY(check_free(engine));
    EBB_TRY(reserve_device(engine, device_bytes));
    return ebb_device_reserve(engine->device, EBB_SPACE_HOST, engine->plan->host_bytes);
}

/* ---- what is pinned -------------------------------------------------------------------------- */

enum ebb_status ebb_engine_settle_pins(struct ebb_engine *engine)
{
    struct ebb_plan *plan = engine->plan;
    if (plan->host_bytes == 0) return EBB_OK;
    int64_t pinned = ebb_device_bytes_pinned(engine->device);
    if (pinned >= ebb_plan_pinned(plan)) return EBB_OK;
    engine->refused += ebb_plan_pinned(plan) - pinned;
    return ebb_plan_set_pageable(engine->ctx, plan, plan->host_bytes - pinned);
}

int64_t ebb_engine_refused(const struct ebb_engine *engine)
{
    return engine->refused;
}
