/* Ranges, ticks and their labels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plot/axis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double margin = 0.04;      /* of the range, beyond its ends */
static const double log_margin = 0.035; /* the same, of the logarithms' range */

/* ---- labels ---- */

const char *ebb_axis_length(double tokens, char out[EBB_AXIS_LABEL])
{
    const double k = 1024, m = 1024 * 1024;
    if (tokens >= m && fmod(tokens, m) == 0)
        snprintf(out, EBB_AXIS_LABEL, "%.0fM", tokens / m);
    else if (tokens >= k && fmod(tokens, k) == 0)
        snprintf(out, EBB_AXIS_LABEL, "%.0fk", tokens / k);
    else
        snprintf(out, EBB_AXIS_LABEL, "%.15g", tokens);
    return out;
}

static void byte_label(double bytes, char out[EBB_AXIS_LABEL])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;
    for (; bytes >= 1024 && i < 4; i++) bytes /= 1024;
    snprintf(out, EBB_AXIS_LABEL, "%.4g %s", bytes, units[i]);
}

/* "2e-5", "1.5e-4": the exponent without the zeros that printf gives it. */
static void exponent_label(double value, int decimals, char out[EBB_AXIS_LABEL])
{
    int exponent = (int)floor(log10(fabs(value)) + 1e-9);
    double mantissa = value / pow(10, exponent);
    if (decimals > 9) decimals = 9;
    snprintf(out, EBB_AXIS_LABEL, "%.*fe%d", decimals, mantissa, exponent);
}

/* A number by itself, of a log10 axis. */
static void plain_label(double value, char out[EBB_AXIS_LABEL])
{
    if (value >= 0.999e-3 && value < 1e5)
        snprintf(out, EBB_AXIS_LABEL, "%.6g", value);
    else
        exponent_label(value, 0, out);
}

/* ---- linear ---- */

static double nice_step(double least)
{
    double decade = pow(10, floor(log10(least)));
    static const double factors[] = {1, 2, 5, 10};
    for (int i = 0; i < 3; i++)
        if (decade * factors[i] >= least * (1 - 1e-9)) return decade * factors[i];
    return decade * 10;
}

/* How labels of a linear axis are written. */
struct writing {
    double unit;        /* a value is divided by it */
    const char *behind; /* each label: "k"; but not 0 */
    bool exponents;
};

static struct writing choose_writing(enum ebb_plot_unit unit, double most, const char **title)
{
    static const char *const bytes[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    struct writing w = {1, "", false};
    int power = 0;
    *title = "";
    switch (unit) {
    case EBB_UNIT_BYTES:
        for (; power < 4 && most >= 1024 * w.unit; power++) w.unit *= 1024;
        w.exponents = most / w.unit >= 1e6;
        *title = bytes[power];
        break;
    case EBB_UNIT_COUNT:
    case EBB_UNIT_TOKENS:
    case EBB_UNIT_STEP:
        if (most >= 1e10)
            w = (struct writing){1e9, "G", false};
        else if (most >= 1e7)
            w = (struct writing){1e6, "M", false};
        else if (most >= 1e4)
            w = (struct writing){1e3, "k", false};
        w.exponents = most / w.unit >= 1e6;
        break;
    case EBB_UNIT_SHARE:
        w = (struct writing){0.01, " %", false};
        break;
    case EBB_UNIT_SECONDS:
        *title = "seconds";
        w.exponents = most < 1e-3 || most >= 1e6;
        break;
    case EBB_UNIT_PLAIN:
        w.exponents = most < 1e-3 || most >= 1e6;
        break;
    }
    return w;
}

static int decimals_of(double step)
{
    double decimals = ceil(-log10(step) - 1e-9);
    return decimals > 0 ? (int)decimals : 0;
}

static void linear_label(const struct writing *w, double value, double step,
                         char out[EBB_AXIS_LABEL])
{
    const double shown = value / w->unit, shown_step = step / w->unit;
    if (value == 0) {
        snprintf(out, EBB_AXIS_LABEL, "0");
    } else if (w->exponents) {
        int exponent = (int)floor(log10(fabs(shown)) + 1e-9);
        exponent_label(shown, decimals_of(shown_step / pow(10, exponent)), out);
    } else {
        int decimals = decimals_of(shown_step);
        snprintf(out, EBB_AXIS_LABEL, "%.*f%s", decimals < 15 ? decimals : 15, shown, w->behind);
    }
}

static void choose_linear(const struct ebb_plot_axis *wanted, double low, double high, int most,
                          struct ebb_axis *axis)
{
    const bool zero = wanted->from_zero && low >= 0;
    if (zero) low = 0;
    /* What differs in its last digits alone is one value. */
    double least = 1e-9 * fmax(fabs(low), fabs(high));
    if (!(high - low > least)) {
        double room = low == 0 ? 1 : 0.1 * fabs(low);
        if (wanted->unit == EBB_UNIT_STEP) room = fmax(room, 1);
        if (!zero) low -= room;
        high += room;
    }
    double span = high - low;
    axis->low = zero ? 0 : low - margin * span;
    axis->high = high + margin * span;
    struct writing w =
        choose_writing(wanted->unit, fmax(fabs(axis->low), fabs(axis->high)), &axis->unit);
    /* The first guess may be too fine: steps grow until their ticks are few enough. */
    double step = nice_step(0.5 * (axis->high - axis->low) / w.unit / most) * w.unit;
    if (wanted->unit == EBB_UNIT_STEP && step < 1) step = 1;
    for (;;) {
        double first = ceil(axis->low / step - 1e-9), last = floor(axis->high / step + 1e-9);
        axis->count = 0;
        if (last - first + 1 <= most) {
            for (double i = first; i <= last && axis->count < most; i++) {
                double at = i == 0 ? 0 : i * step;
                axis->at[axis->count] = fmin(fmax(at, axis->low), axis->high);
                linear_label(&w, at, step, axis->label[axis->count++]);
            }
            return;
        }
        step = nice_step(step / w.unit * 1.5) * w.unit;
    }
}

/* ---- logarithmic ---- */

static void add_tick(struct ebb_axis *axis, enum ebb_plot_unit unit, double at)
{
    if (at < axis->low || at > axis->high || axis->count == EBB_AXIS_TICKS) return;
    char *label = axis->label[axis->count];
    axis->at[axis->count++] = at;
    if (unit == EBB_UNIT_BYTES)
        byte_label(at, label);
    else if (axis->scale == EBB_SCALE_LOG2)
        ebb_axis_length(at, label);
    else
        plain_label(at, label);
}

/* Powers of the base, or every n-th of them, so that the highest has a tick. */
static void add_powers(struct ebb_axis *axis, enum ebb_plot_unit unit, double base, int first,
                       int last, int most)
{
    int every = (last - first) / most + 1;
    for (int i = first; i <= last; i++)
        if ((last - i) % every == 0) add_tick(axis, unit, pow(base, i));
}

static void choose_log(const struct ebb_plot_axis *wanted, double low, double high, int most,
                       struct ebb_axis *axis)
{
    const double base = wanted->scale == EBB_SCALE_LOG2 ? 2 : 10;
    double from = log(low) / log(base), to = log(high) / log(base);
    double room = to - from > 1e-6 ? log_margin * (to - from) : 0.5;
    axis->low = pow(base, from - room);
    axis->high = pow(base, to + room);
    axis->unit = "";
    int first = (int)ceil(from - room - 1e-9), last = (int)floor(to + room + 1e-9);
    if (wanted->scale == EBB_SCALE_LOG10 && 3 * (last - first + 2) <= most + 2) {
        static const double factors[] = {1, 2, 5};
        for (int i = first - 1; i <= last; i++)
            for (int k = 0; k < 3 && axis->count < most; k++)
                add_tick(axis, wanted->unit, factors[k] * pow(10, i));
        return;
    }
    add_powers(axis, wanted->unit, base, first, last, most);
}

/* ---- the axis ---- */

void ebb_axis_choose(const struct ebb_plot_axis *wanted, double low, double high, int most,
                     struct ebb_axis *axis)
{
    EBB_ASSERT(isfinite(low) && isfinite(high) && low <= high);
    memset(axis, 0, sizeof *axis);
    if (most < 2) most = 2;
    if (most > EBB_AXIS_TICKS) most = EBB_AXIS_TICKS;
    /* Ends of what a double holds, where steps and margins would be lost. */
    const double most_value = 1e150, least_value = 1e-150;
    low = fmin(fmax(low, -most_value), most_value);
    high = fmin(fmax(high, -most_value), most_value);
    if (fabs(low) < least_value) low = 0;
    if (fabs(high) < least_value) high = 0;
    axis->scale = low > 0 ? wanted->scale : EBB_SCALE_LINEAR;
    if (axis->scale == EBB_SCALE_LINEAR)
        choose_linear(wanted, low, high, most, axis);
    else
        choose_log(wanted, low, high, most, axis);
}

double ebb_axis_place(const struct ebb_axis *axis, double value)
{
    if (axis->scale == EBB_SCALE_LINEAR) return (value - axis->low) / (axis->high - axis->low);
    if (!(value > 0)) return 0;
    return log(value / axis->low) / log(axis->high / axis->low);
}
