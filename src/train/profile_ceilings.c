/* Ceilings: what this device does at most, measured where a plan keeps nothing between two runs.
 *
 * The place is the region behind the persistent tensors, which all programs share. Host memory may
 * hold what must stay: the same bytes that come in go out again.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/number.h"
#include "op/matmul.h"
#include "op/rows.h"
#include "train/engine_int.h"

enum {
    TENSOR_A,
    TENSOR_B,
    TENSOR_Y,
    TENSOR_SCRATCH,
    TENSORS,
    ROUNDS = 5,      /* the best one counts: others may be at work on the machine */
    COUNT_MAX = 4096 /* of repetitions in a round */
};
static const double round_seconds = 0.03; /* at least */
static const int64_t copy_most = INT64_C(256) << 20, copy_least = INT64_C(1) << 20;

/* What is repeated. */
struct probe {
    struct ebb_engine *engine;
    char *place; /* of device memory */
    int64_t room;
    int mark; /* and the one behind it */
    void *base[TENSORS];
    struct ebb_matmul matmul;
    struct ebb_copy_rows rows;
    enum ebb_op op;
    const void *args;
    /* Of a plain copy. */
    enum ebb_queue queue;
    void *to;
    const void *from;
    int64_t bytes;
};

typedef enum ebb_status (*probe_fn)(struct probe *p);

static enum ebb_status run_op(const struct ebb_queue_env *env, const void *args)
{
    const struct probe *p = (const struct probe *)args;
    const struct ebb_step step = {.tokens = 0};
    const struct ebb_op_env op_env = {.ctx = p->engine->ctx,
                                      .base = p->base,
                                      .step = &step,
                                      .libs = p->engine->libs,
                                      .stream = env->stream,
                                      .threads = env->threads};
    return ebb_op_function(p->op, ebb_device_backend(env->device))(&op_env, p->args);
}

static enum ebb_status launch(struct probe *p)
{
    return ebb_queue_launch(p->engine->device, EBB_QUEUE_COMPUTE, run_op, p);
}

static enum ebb_status copy(struct probe *p)
{
    return ebb_queue_copy(p->engine->device, p->queue, p->to, p->from, p->bytes);
}

static enum ebb_status time_round(struct probe *p, probe_fn enqueue, int count, double *seconds)
{
    struct ebb_device *device = p->engine->device;
    EBB_TRY(ebb_queue_mark(device, p->queue, p->mark));
    for (int i = 0; i < count; i++) EBB_TRY(enqueue(p));
    EBB_TRY(ebb_queue_mark(device, p->queue, p->mark + 1));
    EBB_TRY(ebb_device_sync(device));
    *seconds = ebb_device_mark_seconds(device, p->mark, p->mark + 1);
    return EBB_OK;
}

/* How much of `work` a second; a higher rate than *rate goes there. */
static enum ebb_status measure(struct probe *p, probe_fn enqueue, double work, double *rate)
{
    int count = 1;
    double seconds;
    EBB_TRY(time_round(p, enqueue, 1, &seconds)); /* what is made at first use is made */
    EBB_TRY(time_round(p, enqueue, count, &seconds));
    while (!(seconds >= round_seconds) && count < COUNT_MAX) {
        count *= 2;
        EBB_TRY(time_round(p, enqueue, count, &seconds));
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (i > 0) EBB_TRY(time_round(p, enqueue, count, &seconds));
        if (seconds > 0 && work * count / seconds > *rate) *rate = work * count / seconds;
    }
    return EBB_OK;
}

/* ---- a product ---- */

static struct ebb_view square(int tensor, enum ebb_dtype dtype, int64_t n)
{
    return ebb_tensor_view(tensor, dtype, 0, n, 0, n, n);
}

/* Sets up the largest of a few squares that has room. False: none has. */
static enum ebb_status fit_product(struct probe *p, int64_t *side)
{
    const enum ebb_dtype dtype = p->engine->request.storage;
    const bool cpu = p->engine->request.backend == EBB_BACKEND_CPU;
    const int64_t least = cpu ? 256 : 2048; /* less does not fill it */
    *side = 0;
    for (int64_t n = cpu ? 1024 : 8192; n >= least; n /= 2) {
        int64_t bytes = n * n * ebb_dtype_bytes(dtype), scratch = 0;
        p->matmul = (struct ebb_matmul){.a = square(TENSOR_A, dtype, n),
                                        .b = square(TENSOR_B, dtype, n),
                                        .bias = ebb_view_none(),
                                        .add = ebb_view_none(),
                                        .y = square(TENSOR_Y, dtype, n),
                                        .form = EBB_MATMUL_NT,
                                        .alpha = 1};
        EBB_TRY(ebb_matmul_scratch(p->engine->libs.matmul, &p->matmul, &scratch));
        if (3 * bytes + scratch > p->room) continue;
        p->matmul.scratch = ebb_tensor_view(TENSOR_SCRATCH, EBB_U8, 0, 1, 0, scratch, scratch);
        for (int i = 0; i < TENSORS; i++) p->base[i] = p->place + i * bytes;
        *side = n;
        return EBB_OK;
    }
    return EBB_OK;
}

/* Numbers as a model might have them: a GPU that multiplies zeros is faster, and a processor that
 * multiplies what was left there may be slower. */
static enum ebb_status fill_numbers(struct probe *p, int64_t bytes)
{
    enum { BLOCK = 1 << 16 };
    uint16_t *block = (uint16_t *)ebb_mem_alloc(p->engine->ctx, BLOCK * sizeof *block);
    if (!block) return EBB_NO_MEMORY;
    float *values = (float *)(void *)block;
    enum ebb_status status = EBB_OK;
    for (int i = 0; i < BLOCK; i++) {
        uint32_t words[4];
        ebb_philox(1, (uint64_t)i, words);
        float value = (float)((double)words[0] / 4294967296.0 - 0.5);
        if (p->engine->request.storage == EBB_BF16)
            block[i] = ebb_to_bf16(value);
        else if (i < BLOCK / 2)
            values[i] = value;
    }
    for (int64_t at = 0; at < bytes && status == EBB_OK; at += BLOCK * (int64_t)sizeof *block) {
        int64_t left = bytes - at, most = BLOCK * (int64_t)sizeof *block;
        status =
            ebb_device_copy(p->engine->device, p->place + at, block, left < most ? left : most);
    }
    ebb_mem_free(p->engine->ctx, block);
    return status;
}

static enum ebb_status measure_product(struct probe *p, double *flops)
{
    int64_t n;
    EBB_TRY(fit_product(p, &n));
    if (n == 0) return EBB_OK;
    EBB_TRY(fill_numbers(p, 2 * n * n * ebb_dtype_bytes(p->engine->request.storage)));
    p->op = EBB_OP_matmul;
    p->args = &p->matmul;
    p->queue = EBB_QUEUE_COMPUTE;
    return measure(p, launch, 2.0 * (double)n * (double)n * (double)n, flops);
}

/* ---- copies ---- */

/* By the device's own copy, and by the op: the faster one. */
static enum ebb_status measure_memory(struct probe *p, double *rate)
{
    enum { COLS = 4096 };
    int64_t bytes = p->room / 2;
    if (bytes > copy_most) bytes = copy_most;
    bytes -= bytes % COLS;
    if (bytes < copy_least) return EBB_OK;
    p->queue = EBB_QUEUE_COMPUTE;
    p->from = p->base[TENSOR_A] = p->place;
    p->to = p->base[TENSOR_B] = p->place + bytes;
    p->bytes = bytes;
    EBB_TRY(measure(p, copy, 2 * (double)bytes, rate));
    p->rows.x = ebb_tensor_view(TENSOR_A, EBB_F32, 0, bytes / COLS, 0, COLS / 4, COLS / 4);
    p->rows.y = ebb_tensor_view(TENSOR_B, EBB_F32, 0, bytes / COLS, 0, COLS / 4, COLS / 4);
    p->op = EBB_OP_copy_rows;
    p->args = &p->rows;
    return measure(p, launch, 2 * (double)bytes, rate);
}

/* In first: what goes out again is what came in. */
static enum ebb_status measure_moves(struct probe *p, struct ebb_ceilings *ceilings)
{
    int64_t bytes = ebb_device_bytes(p->engine->device, EBB_SPACE_HOST);
    void *host = ebb_device_base(p->engine->device, EBB_SPACE_HOST);
    if (bytes > p->room) bytes = p->room;
    if (bytes > copy_most) bytes = copy_most;
    if (bytes < copy_least) return EBB_OK;
    p->bytes = bytes;
    p->queue = EBB_QUEUE_IN;
    p->to = p->place;
    p->from = host;
    EBB_TRY(measure(p, copy, (double)bytes, &ceilings->in_bytes));
    p->queue = EBB_QUEUE_OUT;
    p->to = host;
    p->from = p->place;
    return measure(p, copy, (double)bytes, &ceilings->out_bytes);
}

/* ---- where ---- */

enum ebb_status ebb_engine_ceilings(struct ebb_engine *engine, struct ebb_ceilings *ceilings)
{
    struct probe p;
    int64_t start = ebb_align_up(ebb_plan_persistent_end(engine->plan, EBB_SPACE_DEVICE));
    memset(ceilings, 0, sizeof *ceilings);
    memset(&p, 0, sizeof p);
    p.engine = engine;
    p.place = (char *)ebb_device_base(engine->device, EBB_SPACE_DEVICE) + start;
    p.room = engine->plan->device_bytes - start;
    EBB_TRY(ebb_device_marks(engine->device, 2, &p.mark));
    EBB_TRY(measure_product(&p, &ceilings->flops));
    EBB_TRY(measure_memory(&p, &ceilings->bytes));
    return measure_moves(&p, ceilings);
}
