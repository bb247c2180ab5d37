/* What a GPU's driver and libraries take beside the plan, measured.
 *
 * They take it when they are first used: a context, the code of kernels as each is first launched,
 * what libraries keep for themselves. So every program runs once, on few tokens (which kernels run
 * does not depend on how many) and on memory that is still zero, and then the driver is asked.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/engine_int.h"

static int64_t less(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One document, or a pair of them, whose tokens, targets and positions are all 0. */
static enum ebb_status put_inputs(struct ebb_engine *engine, int64_t tokens)
{
    int64_t docs = engine->request.capacity.docs > 1 && tokens > 1 ? 2 : 1, half = tokens / docs;
    for (int64_t d = 0; d <= docs; d++) engine->doc_starts[d] = (int32_t)(d * half);
    engine->step.tokens = engine->step.labels = docs * half;
    engine->step.longest = half;
    engine->step.docs = docs;
    engine->step.cached = 0;
    engine->step.step = 1;
    engine->step.micro = 0;
    engine->step.learning_rate = 0;
    engine->step.total_weight = 1;
    engine->step.bias1 = engine->step.bias2 = 1;
    ebb_engine_clear_rows(engine, docs * half);
    return ebb_device_copy(engine->device,
                           ebb_engine_tensor(engine, engine->net->inputs.doc_starts),
                           engine->doc_starts, (docs + 1) * (int64_t)sizeof *engine->doc_starts);
}

/* As if nothing had run. What optimizer state is in host memory is zero still: so are the gradients
 * of weights that are zero. */
static enum ebb_status forget(struct ebb_engine *engine)
{
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++)
        if (engine->executors[i]) ebb_executor_forget_peak(engine->executors[i]);
    memset(&engine->step, 0, sizeof engine->step);
    memset(&engine->sums, 0, sizeof engine->sums);
    engine->no_gradients = true;
    return ebb_device_fill(engine->device, ebb_device_base(engine->device, EBB_SPACE_DEVICE), 0,
                           ebb_device_bytes(engine->device, EBB_SPACE_DEVICE));
}

enum ebb_status ebb_engine_measure(struct ebb_engine *engine, int64_t *overhead_bytes)
{
    const struct ebb_capacity *capacity = &engine->request.capacity;
    int64_t tokens = less(capacity->tokens, engine->plan->request.numerics.tile_tokens);
    EBB_TRY(ebb_engine_make_ready(engine));
    EBB_TRY(put_inputs(engine, less(tokens, capacity->doc_tokens)));
    for (int i = 0; i < EBB_PROGRAM_COUNT; i++) {
        if (!engine->executors[i]) continue;
        if (i == EBB_PROGRAM_DECODE) {
            engine->step.tokens = engine->step.longest =
                less(engine->step.tokens, capacity->cache_tokens);
            engine->step.labels = 1;
        }
        ebb_engine_begin(engine);
        EBB_TRY(ebb_engine_run(engine, (enum ebb_program_kind)i));
    }
    *overhead_bytes = ebb_device_bytes_overhead(engine->device);
    EBB_TRY(ebb_engine_settle_pins(engine));
    return forget(engine);
}

void ebb_engine_set_overhead(struct ebb_engine *engine, int64_t overhead_bytes)
{
    ebb_plan_set_overhead(engine->plan, overhead_bytes);
}
