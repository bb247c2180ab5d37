/* Learning-rate schedules: formulas in the header.
 * SPDX-License-Identifier: Apache-2.0 */
#include "optim/schedule.h"

#include <math.h>

static const char *const names[EBB_SCHEDULE_COUNT] = {
#define EBB_SCHEDULE_NAME(name, text) text,
    EBB_SCHEDULE_LIST(EBB_SCHEDULE_NAME)
#undef EBB_SCHEDULE_NAME
};

const char *ebb_schedule_name(enum ebb_schedule schedule)
{
    return names[schedule];
}

/* Where the warm-up ends, where the end is, and how long a final decay takes; all in steps. */
struct shape {
    double done, warmup, total, decay;
};

static double factor_constant(const struct shape *s)
{
    (void)s;
    return 1;
}

static double factor_linear(const struct shape *s)
{
    double span = s->total - s->warmup;
    return span > 0 ? fmax(0, (s->total - s->done) / span) : 1;
}

static double factor_cosine(const struct shape *s)
{
    double span = s->total - s->warmup, pi = acos(-1);
    if (span <= 0) return 1;
    return s->done >= s->total ? 0 : 0.5 * (1 + cos(pi * (s->done - s->warmup) / span));
}

static double factor_wsd(const struct shape *s)
{
    double left = s->total - s->done;
    return s->decay > 0 && left < s->decay ? fmax(0, left / s->decay) : 1;
}

static double (*const factors[EBB_SCHEDULE_COUNT])(const struct shape *) = {
    [EBB_SCHEDULE_CONSTANT] = factor_constant,
    [EBB_SCHEDULE_CONSTANT_WITH_WARMUP] = factor_constant,
    [EBB_SCHEDULE_LINEAR] = factor_linear,
    [EBB_SCHEDULE_COSINE] = factor_cosine,
    [EBB_SCHEDULE_WARMUP_STABLE_DECAY] = factor_wsd,
};

double ebb_schedule_rate(const struct ebb_schedule_keys *keys, int64_t step, int64_t total)
{
    struct shape shape = {.done = (double)(step - 1), .total = (double)total};
    shape.warmup = keys->warmup_steps > 0 ? (double)keys->warmup_steps
                                          : ceil(keys->warmup_ratio * (double)total);
    shape.decay = ceil(keys->decay_ratio * (double)total);
    if (shape.done < shape.warmup) return keys->learning_rate * shape.done / shape.warmup;
    return keys->learning_rate * factors[keys->schedule](&shape);
}
