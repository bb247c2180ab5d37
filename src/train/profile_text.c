/* A profile as JSON and as a table.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "train/metrics.h"
#include "train/profile.h"

/* What a part is measured by. */
struct rate {
    double value;   /* a second; 0: none */
    double ceiling; /* 0: not known */
    const char *unit;
};

static struct rate rate_of(const struct ebb_profile_step *step, enum ebb_step_part which,
                           const struct ebb_ceilings *c)
{
    const struct ebb_part_time *part = &step->parts[which];
    double seconds = part->seconds + part->beside;
    struct rate rate = {.unit = "B/s"};
    switch (which) {
    case EBB_PART_MATMUL:
    case EBB_PART_ATTENTION_FORWARD:
    case EBB_PART_ATTENTION_BACKWARD:
    case EBB_PART_HEAD:
        rate = (struct rate){.value = part->flops, .ceiling = c->flops, .unit = "FLOP/s"};
        break;
    case EBB_PART_MEMORY:
    case EBB_PART_OPTIMIZER:
        rate.value = part->bytes;
        rate.ceiling = c->bytes;
        break;
    case EBB_PART_COPY_OUT:
        rate.value = part->bytes;
        rate.ceiling = c->out_bytes;
        break;
    case EBB_PART_COPY_IN:
        rate.value = part->bytes;
        rate.ceiling = c->in_bytes;
        break;
    default:
        break;
    }
    rate.value = seconds > 0 ? rate.value / seconds : 0;
    return rate;
}

/* ---- JSON ---- */

static bool set(json_t *json, const char *key, json_t *value)
{
    return json && json_object_set_new(json, key, value) == 0;
}

/* 0 stands for what is not known, or not there. */
static json_t *known(double value)
{
    return ebb_json_number(value > 0 ? value : (double)NAN);
}

static json_t *describe_part(const struct ebb_profile_step *step, enum ebb_step_part which,
                             const struct ebb_ceilings *ceilings)
{
    const struct ebb_part_time *part = &step->parts[which];
    struct rate rate = rate_of(step, which, ceilings);
    bool flops = rate.unit[0] == 'F';
    json_t *json = json_object();
    bool ok = set(json, "seconds", ebb_json_number(part->seconds)) &&
              set(json, "seconds_beside", ebb_json_number(part->beside)) &&
              set(json, "share", ebb_json_number(part->seconds / step->seconds)) &&
              set(json, "flops", ebb_json_number(part->flops)) &&
              set(json, "bytes", ebb_json_number(part->bytes)) &&
              set(json, "flops_per_second", known(flops ? rate.value : 0)) &&
              set(json, "bytes_per_second", known(flops ? 0 : rate.value)) &&
              set(json, "ceiling_share", known(rate.ceiling > 0 ? rate.value / rate.ceiling : 0));
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static json_t *describe_ceilings(const struct ebb_ceilings *c)
{
    json_t *json = json_object();
    bool ok = set(json, "matmul_flops_per_second", known(c->flops)) &&
              set(json, "device_bytes_per_second", known(c->bytes)) &&
              set(json, "out_bytes_per_second", known(c->out_bytes)) &&
              set(json, "in_bytes_per_second", known(c->in_bytes));
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static json_t *describe_parts(const struct ebb_profile_step *step,
                              const struct ebb_ceilings *ceilings)
{
    json_t *json = json_object();
    bool ok = true;
    for (int i = 0; ok && i < EBB_PART_COUNT; i++)
        ok = set(json, ebb_step_part_key((enum ebb_step_part)i),
                 describe_part(step, (enum ebb_step_part)i, ceilings));
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static json_t *describe_op(const struct ebb_profile_op *op)
{
    json_t *json = json_object();
    bool ok = set(json, "op", json_string(op->label)) &&
              set(json, "part", json_string(ebb_step_part_key(op->part))) &&
              set(json, "count", ebb_json_number(op->count)) &&
              set(json, "seconds", ebb_json_number(op->time.seconds + op->time.beside)) &&
              set(json, "flops", ebb_json_number(op->time.flops)) &&
              set(json, "bytes", ebb_json_number(op->time.bytes));
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static json_t *describe_ops(const struct ebb_profile_op *ops, int64_t count)
{
    json_t *json = json_array();
    bool ok = json != NULL;
    for (int64_t i = 0; ok && i < count; i++)
        ok = json_array_append_new(json, describe_op(&ops[i])) == 0;
    if (ok) return json;
    json_decref(json);
    return NULL;
}

json_t *ebb_profile_json(const struct ebb_profile_step *step, const struct ebb_profile_op *ops,
                         int64_t count, const struct ebb_ceilings *ceilings)
{
    json_t *json = json_object();
    bool ok = set(json, "steps", json_integer((json_int_t)step->steps)) &&
              set(json, "steps_left_out", json_integer((json_int_t)step->left_out)) &&
              set(json, "step_seconds", ebb_json_number(step->seconds)) &&
              set(json, "parts", describe_parts(step, ceilings)) &&
              set(json, "ops", describe_ops(ops, count)) &&
              set(json, "ceilings", describe_ceilings(ceilings));
    if (ok) return json;
    json_decref(json);
    return NULL;
}

/* ---- table ---- */

enum { CELL = 32 };

static const char *rate_text(double rate, const char *unit, char out[CELL])
{
    static const char prefixes[] = {'M', 'G', 'T'};
    int i = 0;
    out[0] = '\0';
    if (!(rate > 0)) return out;
    for (rate /= 1e6; rate >= 999.5 && i < 2; i++) rate /= 1e3;
    /* Three digits, whatever the size. */
    snprintf(out, CELL, "%.*f %c%s",
             rate < 9.995   ? 2
             : rate < 99.95 ? 1
                            : 0,
             rate, prefixes[i], unit);
    return out;
}

static enum ebb_status add_line(struct ebb_ctx *ctx, const struct ebb_profile_step *step,
                                enum ebb_step_part which, double seconds,
                                const struct ebb_ceilings *ceilings, struct ebb_str *text)
{
    struct rate rate = rate_of(step, which, ceilings);
    char speed[CELL], share[CELL] = "";
    rate_text(rate.value, rate.unit, speed);
    if (rate.value > 0 && rate.ceiling > 0)
        snprintf(share, sizeof share, "%.1f %%", 100 * rate.value / rate.ceiling);
    /* No line ends in blanks. */
    int width = share[0] ? 12 : 0;
    if (!speed[0])
        return ebb_str_addf(ctx, text, "  %-20s %11.3f ms %6.1f %%\n", ebb_step_part_text(which),
                            1e3 * seconds, 100 * seconds / step->seconds);
    return ebb_str_addf(ctx, text, "  %-20s %11.3f ms %6.1f %%  %12s%*s\n",
                        ebb_step_part_text(which), 1e3 * seconds, 100 * seconds / step->seconds,
                        speed, width, share);
}

static enum ebb_status add_ceilings(struct ebb_ctx *ctx, const struct ebb_ceilings *c,
                                    struct ebb_str *text)
{
    const struct {
        double rate;
        const char *unit, *of;
    } rows[] = {{c->flops, "FLOP/s", "in a large product"},
                {c->bytes, "B/s", "within device memory"},
                {c->out_bytes, "B/s", "out"},
                {c->in_bytes, "B/s", "in"}};
    const char *between = "ceilings, measured on this device: ";
    char speed[CELL];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!(rows[i].rate > 0)) continue;
        EBB_TRY(ebb_str_addf(ctx, text, "%s%s %s", between,
                             rate_text(rows[i].rate, rows[i].unit, speed), rows[i].of));
        between = ", ";
    }
    return between[0] == ',' ? ebb_str_addf(ctx, text, "\n") : EBB_OK;
}

/* Which steps the table is of, and its columns: "of ceiling" only where a ceiling is known. */
static enum ebb_status add_head(struct ebb_ctx *ctx, const struct ebb_profile_step *step,
                                const struct ebb_ceilings *c, struct ebb_str *text)
{
    char which[64] = ", warm-up included";
    bool known = c->flops > 0 || c->bytes > 0 || c->out_bytes > 0 || c->in_bytes > 0;
    if (step->left_out > 0)
        snprintf(which, sizeof which, " without the first %d", (int)step->left_out);
    EBB_TRY(ebb_str_addf(ctx, text, "where a step's time goes (mean of %lld step%s%s)\n",
                         (long long)step->steps, step->steps == 1 ? "" : "s", which));
    return ebb_str_addf(ctx, text, "  %-20s %14s %8s  %12s%s\n", "part", "time", "share", "rate",
                        known ? "  of ceiling" : "");
}

/* Copies have lines only where there are any: on COMPUTE's time line, or beside it. */
enum ebb_status ebb_profile_table(struct ebb_ctx *ctx, const struct ebb_profile_step *step,
                                  const struct ebb_ceilings *ceilings, struct ebb_str *text)
{
    bool beside = false;
    EBB_TRY(add_head(ctx, step, ceilings, text));
    for (int i = 0; i < EBB_PART_COUNT; i++) {
        const struct ebb_part_time *part = &step->parts[i];
        bool copy = i == EBB_PART_COPY_OUT || i == EBB_PART_COPY_IN;
        beside = beside || part->beside > 0;
        if (copy && !(part->seconds > 0)) continue;
        EBB_TRY(add_line(ctx, step, (enum ebb_step_part)i, part->seconds, ceilings, text));
    }
    EBB_TRY(ebb_str_addf(ctx, text, "  %-20s %11.3f ms %6.1f %%\n", "step", 1e3 * step->seconds,
                         100.0));
    if (beside) EBB_TRY(ebb_str_addf(ctx, text, "beside that, on queues of their own:\n"));
    for (int i = 0; i < EBB_PART_COUNT; i++)
        if (step->parts[i].beside > 0)
            EBB_TRY(
                add_line(ctx, step, (enum ebb_step_part)i, step->parts[i].beside, ceilings, text));
    return add_ceilings(ctx, ceilings, text);
}
