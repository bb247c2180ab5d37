/* The outlook: the load of a run's steps, its forecast, and what is said of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/outlook.h"

#include <stdio.h>
#include <string.h>

enum { PLACES = 16 };

static void add_step(struct ebb_step_forecast *sum, const struct ebb_forecast *one, double share)
{
    sum->step.known &= one->known;
    sum->step.seconds += share * one->seconds;
    for (int i = 0; i < EBB_PART_COUNT; i++) {
        struct ebb_part_time *to = &sum->step.parts[i];
        const struct ebb_part_time *from = &one->parts[i];
        to->seconds += share * from->seconds;
        to->beside += share * from->beside;
        to->flops += share * from->flops;
        to->bytes += share * from->bytes;
    }
}

/* ---- with data ---- */

/* Micro-batches spread evenly over the epoch, in the loader's order. */
static enum ebb_status look(const struct ebb_setup *setup, const struct ebb_plan *plan,
                            const struct ebb_rates *rates, struct ebb_step_forecast *sum)
{
    const int64_t micros = ebb_loader_describe(setup->train)->micros_per_epoch;
    const int64_t places = micros < PLACES ? micros : PLACES;
    for (int64_t i = 0; i < places; i++) {
        const struct ebb_batch *batch;
        struct ebb_forecast one;
        const struct ebb_loader_place place = {.micro = i * micros / places};
        EBB_TRY(ebb_loader_seek(setup->ctx, setup->train, place));
        EBB_TRY(ebb_loader_next(setup->ctx, setup->train, &batch));
        const struct ebb_forecast_load load = {.micro_batches = sum->micro_batches,
                                               .labels = batch->labels,
                                               .docs = batch->docs,
                                               .doc_starts = batch->doc_starts};
        EBB_TRY(ebb_forecast_step(setup->ctx, plan, rates, &load, &one));
        add_step(sum, &one, 1 / (double)places);
        sum->tokens += (double)(batch->tokens * sum->micro_batches) / (double)places;
    }
    sum->looked_at = places;
    return EBB_OK;
}

static enum ebb_status look_at_data(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                    const struct ebb_rates *rates, struct ebb_step_forecast *sum)
{
    const struct ebb_loader_place place = ebb_loader_tell(setup->train);
    EBB_TRY(look(setup, plan, rates, sum));
    return ebb_loader_seek(setup->ctx, setup->train, place); /* a run begins where it stood */
}

/* ---- without ---- */

static int64_t assumed_length(const struct ebb_setup *setup)
{
    int64_t length = setup->config->doc_length;
    return length > 0 && length < setup->max_length ? length : setup->max_length;
}

/* Full rows of the capacity, cut into documents; the setup's load. */
static enum ebb_status assume_load(struct ebb_setup *setup)
{
    const int64_t row = setup->max_length, rows = setup->request.capacity.tokens / row;
    const int64_t length = assumed_length(setup), each = (row + length - 1) / length;
    int32_t *starts = ebb_mem_alloc(setup->ctx, (size_t)(rows * each + 1) * sizeof *starts);
    if (starts == NULL) return EBB_NO_MEMORY;
    for (int64_t d = 0; d < rows * each; d++)
        starts[d] = (int32_t)(d / each * row + d % each * length);
    starts[rows * each] = (int32_t)(rows * row);
    setup->load_starts = starts;
    setup->load.docs = rows * each;
    setup->load.labels = rows * row - rows * each;
    return EBB_OK;
}

static enum ebb_status assume(const struct ebb_setup *setup, const struct ebb_plan *plan,
                              const struct ebb_rates *rates, struct ebb_step_forecast *sum)
{
    struct ebb_forecast one;
    EBB_TRY(ebb_forecast_step(setup->ctx, plan, rates, &setup->load, &one));
    add_step(sum, &one, 1);
    sum->tokens = (double)(setup->load_starts[setup->load.docs] * sum->micro_batches);
    return EBB_OK;
}

/* ---- the load that plans are searched by ---- */

/* The largest micro-batch of those that are looked at: most of the time is theirs. */
static enum ebb_status largest_load(struct ebb_setup *setup)
{
    const int64_t micros = ebb_loader_describe(setup->train)->micros_per_epoch;
    const int64_t places = micros < PLACES ? micros : PLACES;
    int64_t most = 0;
    for (int64_t i = 0; i < places; i++) {
        const struct ebb_batch *batch;
        const struct ebb_loader_place place = {.micro = i * micros / places};
        EBB_TRY(ebb_loader_seek(setup->ctx, setup->train, place));
        EBB_TRY(ebb_loader_next(setup->ctx, setup->train, &batch));
        if (batch->tokens <= most) continue;
        const size_t bytes = (size_t)(batch->docs + 1) * sizeof *setup->load_starts;
        int32_t *starts = ebb_mem_realloc(setup->ctx, setup->load_starts, bytes);
        if (starts == NULL) return EBB_NO_MEMORY;
        memcpy(starts, batch->doc_starts, bytes);
        most = batch->tokens;
        setup->load_starts = starts;
        setup->load.docs = batch->docs;
        setup->load.labels = batch->labels;
    }
    return EBB_OK;
}

enum ebb_status ebb_outlook_load(struct ebb_setup *setup)
{
    ebb_mem_free(setup->ctx, setup->load_starts);
    setup->load_starts = NULL;
    setup->request.load = NULL;
    if (setup->train) {
        const struct ebb_loader_place place = ebb_loader_tell(setup->train);
        EBB_TRY(largest_load(setup));
        EBB_TRY(ebb_loader_seek(setup->ctx, setup->train, place));
    } else {
        EBB_TRY(assume_load(setup));
    }
    if (setup->load_starts == NULL) return EBB_OK; /* an empty set */
    setup->load.micro_batches = setup->config->gradient_accumulation_steps;
    setup->load.doc_starts = setup->load_starts;
    setup->request.load = &setup->load;
    return EBB_OK;
}

enum ebb_status ebb_forecast_run(const struct ebb_setup *setup, const struct ebb_plan *plan,
                                 const struct ebb_rates *rates, struct ebb_step_forecast *forecast)
{
    memset(forecast, 0, sizeof *forecast);
    forecast->step.known = true;
    forecast->micro_batches = setup->config->gradient_accumulation_steps;
    return (setup->train ? look_at_data : assume)(setup, plan, rates, forecast);
}

/* ---- words ---- */

const char *ebb_outlook_bound(const struct ebb_forecast *step)
{
    const struct ebb_part_time *p = step->parts;
    const double copies = p[EBB_PART_COPY_OUT].seconds + p[EBB_PART_COPY_IN].seconds;
    const struct {
        const char *name;
        double seconds;
    } groups[] = {
        {"matrix products", p[EBB_PART_MATMUL].seconds + p[EBB_PART_HEAD].seconds},
        {"attention",
         p[EBB_PART_ATTENTION_FORWARD].seconds + p[EBB_PART_ATTENTION_BACKWARD].seconds},
        {"device memory's rate", p[EBB_PART_MEMORY].seconds},
        {"the optimizer", p[EBB_PART_OPTIMIZER].seconds},
        {"the link to the host", p[EBB_PART_STALL].seconds + copies},
        {"the host", p[EBB_PART_GAP].seconds + p[EBB_PART_HOST].seconds},
    };
    size_t most = 0;
    for (size_t i = 1; i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i].seconds > groups[most].seconds) most = i;
    return groups[most].name;
}

/* ---- the outlook ---- */

/* With everything on the device and no bound. */
static enum ebb_status forecast_kept(const struct ebb_setup *setup, struct ebb_outlook *outlook)
{
    struct ebb_engine_request request = setup->request;
    struct ebb_engine *engine = NULL;
    request.memory = (struct ebb_memory_keys){EBB_FALSE, EBB_FALSE, NULL, 0,
                                               EBB_FALSE, EBB_FALSE};
    request.device_budget = request.host_budget = 0;
    request.breadth_first = EBB_FALSE;
    enum ebb_status status = ebb_engine_create(setup->ctx, &request, &engine);
    if (status == EBB_OK) {
        const struct ebb_plan *plan = ebb_engine_plan(engine);
        outlook->kept_bytes = plan->total_bytes;
        status = ebb_forecast_run(setup, plan, &outlook->rates, &outlook->kept);
    }
    ebb_engine_free(engine);
    return status;
}

enum ebb_status ebb_outlook_step(const struct ebb_setup *setup, const struct ebb_engine *engine,
                                 struct ebb_outlook *outlook)
{
    memset(outlook, 0, sizeof *outlook);
    if (setup->request.rates == NULL) return EBB_OK;
    outlook->rates = *setup->request.rates;
    EBB_TRY(ebb_forecast_run(setup, ebb_engine_plan(engine), &outlook->rates, &outlook->step));
    outlook->known = outlook->step.step.known;
    return EBB_OK;
}

enum ebb_status ebb_outlook_make(const struct ebb_setup *setup, const struct ebb_engine *engine,
                                 struct ebb_outlook *outlook)
{
    EBB_TRY(ebb_outlook_step(setup, engine, outlook));
    return outlook->known ? forecast_kept(setup, outlook) : EBB_OK;
}

static double tokens_per_second(const struct ebb_step_forecast *f)
{
    return f->step.seconds > 0 ? f->tokens / f->step.seconds : 0;
}

/* By how much a step is longer than with everything kept; below 0: no more than rounding. */
static double overhead_of(const struct ebb_outlook *o)
{
    return o->step.step.seconds / o->kept.step.seconds - 1;
}

const char *ebb_outlook_time(double seconds, char out[EBB_OUTLOOK_TIME])
{
    const bool small = seconds < 0.9995;
    const double value = small ? 1e3 * seconds : seconds;
    snprintf(out, EBB_OUTLOOK_TIME, "%.*f %s",
             value < 9.995   ? 2
             : value < 99.95 ? 1
                             : 0,
             value, small ? "ms" : "s");
    return out;
}

static enum ebb_status add_line(struct ebb_ctx *ctx, struct ebb_str *out, const char *name,
                                double seconds, double whole)
{
    return ebb_str_addf(ctx, out, "  %-20s%9.1f ms %5.1f %%\n", name, 1e3 * seconds,
                        100 * seconds / whole);
}

static enum ebb_status add_parts(struct ebb_ctx *ctx, const struct ebb_forecast *step,
                                 struct ebb_str *out)
{
    const struct ebb_part_time *copies[] = {&step->parts[EBB_PART_COPY_OUT],
                                            &step->parts[EBB_PART_COPY_IN]};
    for (int i = 0; i < EBB_PART_COUNT; i++)
        if (step->parts[i].seconds > 5e-5 * step->seconds)
            EBB_TRY(add_line(ctx, out, ebb_step_part_text((enum ebb_step_part)i),
                             step->parts[i].seconds, step->seconds));
    if (copies[0]->beside + copies[1]->beside > 0)
        EBB_TRY(ebb_str_addf(ctx, out, "  beside that, copies: %.1f ms out, %.1f ms in\n",
                             1e3 * copies[0]->beside, 1e3 * copies[1]->beside));
    return ebb_str_addf(ctx, out, "bound by              %s\n", ebb_outlook_bound(step));
}

/* Why, and what to do about it. */
static const char *why_unknown(const struct ebb_setup *setup)
{
    if (setup->gpu == NULL) return " on this device: 'ebb probe' measures it";
    return setup->request.storage == EBB_BF16
               ? ": data sheets do not say all that this run needs"
               : ": data sheets are for bfloat16, and this run is float32 (dtype: bfloat16)";
}

enum ebb_status ebb_outlook_table(const struct ebb_setup *setup, const struct ebb_outlook *outlook,
                                  struct ebb_str *out)
{
    struct ebb_ctx *ctx = setup->ctx;
    const struct ebb_step_forecast *f = &outlook->step;
    char time[EBB_OUTLOOK_TIME], bytes[32];
    if (!outlook->known)
        return ebb_str_addf(ctx, out, "\nstep time             not known%s\n", why_unknown(setup));
    EBB_TRY(ebb_str_addf(ctx, out,
                         "\nstep time      %18s, %.0f tokens/s (%lld micro-batch%s of %lld "
                         "tokens%s)\n",
                         ebb_outlook_time(f->step.seconds, time), tokens_per_second(f),
                         (long long)f->micro_batches, f->micro_batches == 1 ? "" : "es",
                         (long long)(f->tokens / (double)f->micro_batches + 0.5),
                         f->looked_at > 1 ? " on average" : ""));
    EBB_TRY(add_parts(ctx, &f->step, out));
    if (outlook->kept.step.known)
        EBB_TRY(ebb_str_addf(ctx, out,
                             "with all memory       %s, in %s of device memory: this plan "
                             "takes %.1f %% longer\n",
                             ebb_outlook_time(outlook->kept.step.seconds, time),
                             ebb_text_bytes(outlook->kept_bytes, bytes, sizeof bytes),
                             100 * (overhead_of(outlook) > 0 ? overhead_of(outlook) : 0)));
    return ebb_str_addf(ctx, out, "rates                 %s (%s)%s\n", outlook->rates.device,
                        outlook->rates.versions, outlook->rates.measured ? "" : ": not measured");
}

/* ---- JSON ---- */

static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *parts_json(const struct ebb_forecast *step)
{
    json_t *json = json_object();
    bool ok = json != NULL;
    for (int i = 0; ok && i < EBB_PART_COUNT; i++) {
        const struct ebb_part_time *part = &step->parts[i];
        json_t *one = json_object();
        ok = one && put(one, "seconds", json_real(part->seconds)) &&
             put(one, "seconds_beside", json_real(part->beside)) &&
             put(one, "flops", json_real(part->flops)) &&
             put(one, "bytes", json_real(part->bytes)) &&
             json_object_set(json, ebb_step_part_key((enum ebb_step_part)i), one) == 0;
        json_decref(one);
    }
    if (ok) return json;
    json_decref(json);
    return NULL;
}

json_t *ebb_outlook_json(const struct ebb_outlook *outlook)
{
    const struct ebb_step_forecast *f = &outlook->step;
    if (!outlook->known) return json_null();
    json_t *json = json_object();
    bool ok = json && put(json, "step_seconds", json_real(f->step.seconds)) &&
              put(json, "tokens_per_step", json_real(f->tokens)) &&
              put(json, "tokens_per_second", json_real(tokens_per_second(f))) &&
              put(json, "micro_batches", json_integer(f->micro_batches)) &&
              put(json, "parts", parts_json(&f->step)) &&
              put(json, "bound_by", json_string(ebb_outlook_bound(&f->step))) &&
              put(json, "rates", ebb_rates_json(&outlook->rates));
    if (ok && outlook->kept.step.known)
        ok = put(json, "unlimited_step_seconds", json_real(outlook->kept.step.seconds)) &&
             put(json, "unlimited_device_bytes", json_integer(outlook->kept_bytes)) &&
             put(json, "overhead", json_real(overhead_of(outlook)));
    if (ok) return json;
    json_decref(json);
    return NULL;
}
