/* Growable strings, numbers from text, distances between names, UTF-8 checks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- growable strings ---- */

/* Makes room for `more` bytes and the NUL behind them. */
static enum ebb_status str_reserve(struct ebb_ctx *ctx, struct ebb_str *str, size_t more)
{
    if (more > SIZE_MAX / 4 || str->bytes > SIZE_MAX / 4)
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "a text of %zu and %zu more bytes is too long",
                        str->bytes, more);
    size_t wanted = str->bytes + more + 1;
    if (wanted <= str->room) return EBB_OK;
    size_t room = str->room < 32 ? 64 : str->room * 2;
    if (room < wanted) room = wanted;
    char *data = ebb_mem_realloc(ctx, str->data, room);
    if (data == NULL) return EBB_NO_MEMORY;
    str->data = data;
    str->room = room;
    return EBB_OK;
}

enum ebb_status ebb_str_add(struct ebb_ctx *ctx, struct ebb_str *str, const char *data,
                            size_t bytes)
{
    EBB_TRY(str_reserve(ctx, str, bytes));
    if (bytes > 0) memcpy(str->data + str->bytes, data, bytes);
    str->bytes += bytes;
    str->data[str->bytes] = '\0';
    return EBB_OK;
}

enum ebb_status ebb_str_addf(struct ebb_ctx *ctx, struct ebb_str *str, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(NULL, 0, format, args);
    va_end(args);
    EBB_ASSERT(wanted >= 0);
    EBB_TRY(str_reserve(ctx, str, (size_t)wanted));
    va_start(args, format);
    vsnprintf(str->data + str->bytes, (size_t)wanted + 1, format, args);
    va_end(args);
    str->bytes += (size_t)wanted;
    return EBB_OK;
}

void ebb_str_free(struct ebb_ctx *ctx, struct ebb_str *str)
{
    ebb_mem_free(ctx, str->data);
    *str = (struct ebb_str){0};
}

/* ---- numbers from text ---- */

bool ebb_text_int64(const char *text, int64_t *value)
{
    const char *at = text + (text[0] == '-' || text[0] == '+');
    if (*at == '\0' || strspn(at, "0123456789") != strlen(at)) return false;
    errno = 0;
    long long got = strtoll(text, NULL, 10);
    if (errno != 0 || got < INT64_MIN || got > INT64_MAX) return false;
    *value = (int64_t)got;
    return true;
}

/* strtod reads the decimal point of the locale that the host program has set; this one always reads
 * '.'. */
static double read_double(const char *text, char **end)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value;
    if (plain != (locale_t)0) {
        value = strtod_l(text, end, plain);
        freelocale(plain);
    } else {
        value = strtod(text, end);
    }
    return value;
}

bool ebb_text_double(const char *text, double *value)
{
    /* Hexadecimal, "inf", "nan" and leading blanks, which strtod would take, fall out here. */
    if (text[0] == '\0' || strspn(text, "0123456789+-.eE") != strlen(text)) return false;
    char *end = NULL;
    errno = 0;
    double got = read_double(text, &end);
    if (end == text || *end != '\0' || !isfinite(got)) return false;
    if (errno == ERANGE && got == 0.0) return false;
    *value = got;
    return true;
}

bool ebb_text_bool(const char *text, bool *value)
{
    static const char *const yes[] = {"true", "yes", "on"};
    static const char *const no[] = {"false", "no", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(text, yes[i]) == 0) {
            *value = true;
            return true;
        }
        if (strcasecmp(text, no[i]) == 0) {
            *value = false;
            return true;
        }
    }
    return false;
}

struct size_unit {
    const char *name;
    int64_t bytes;
};

static const struct size_unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", INT64_C(1) << 10},
    {"MiB", INT64_C(1) << 20},
    {"GiB", INT64_C(1) << 30},
    {"TiB", INT64_C(1) << 40},
    {"kB", INT64_C(1000)},
    {"MB", INT64_C(1000000)},
    {"GB", INT64_C(1000000000)},
    {"TB", INT64_C(1000000000000)},
    {"K", INT64_C(1) << 10},
    {"M", INT64_C(1) << 20},
    {"G", INT64_C(1) << 30},
    {"T", INT64_C(1) << 40},
};

bool ebb_text_size(const char *text, int64_t *bytes)
{
    char number[48];
    size_t n = strspn(text, "0123456789.");
    if (n == 0 || n >= sizeof number) return false;
    memcpy(number, text, n);
    number[n] = '\0';
    const char *unit = text + n + (text[n] == ' ');
    if (unit > text + n && *unit == '\0') return false;
    int64_t scale = 0;
    for (size_t i = 0; i < sizeof size_units / sizeof size_units[0] && scale == 0; i++)
        if (strcasecmp(unit, size_units[i].name) == 0) scale = size_units[i].bytes;
    if (scale == 0) return false;

    int64_t whole;
    if (ebb_text_int64(number, &whole)) return !__builtin_mul_overflow(whole, scale, bytes);
    double part;
    if (strchr(number, '.') == NULL || !ebb_text_double(number, &part)) return false;
    if (scale == 1 && part != floor(part)) return false; /* half a byte is a slip of the pen */
    part = floor(part * (double)scale);
    if (part >= 9223372036854775808.0) return false;
    *bytes = (int64_t)part;
    return true;
}

/* ---- text from numbers ---- */

static const char *const size_names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
enum { SIZE_NAMES = sizeof size_names / sizeof size_names[0] };

static const char *text_in_unit(int64_t bytes, int unit, char *out, size_t out_bytes)
{
    double tenths = round(fabs(ldexp((double)bytes, -10 * unit)) * 10.0);
    bool whole = fmod(tenths, 10.0) == 0.0;
    snprintf(out, out_bytes, "%s%.*f %s", bytes < 0 ? "-" : "", whole ? 0 : 1, tenths / 10.0,
             size_names[unit]);
    return out;
}

static int unit_of(int64_t bytes)
{
    double value = fabs((double)bytes);
    int unit = 0;
    /* 1023.95 would be shown as 1024.0, so it already belongs to the next unit. */
    while (unit + 1 < SIZE_NAMES && value >= (unit == 0 ? 1024.0 : 1023.95)) {
        value /= 1024.0;
        unit++;
    }
    return unit;
}

const char *ebb_text_bytes(int64_t bytes, char *out, size_t out_bytes)
{
    return text_in_unit(bytes, unit_of(bytes), out, out_bytes);
}

void ebb_text_bytes_apart(int64_t a, int64_t b, char *a_out, char *b_out, size_t out_bytes)
{
    ebb_text_bytes(a, a_out, out_bytes);
    ebb_text_bytes(b, b_out, out_bytes);
    for (int unit = unit_of(a) - 1; a != b && unit >= 0 && strcmp(a_out, b_out) == 0; unit--) {
        text_in_unit(a, unit, a_out, out_bytes);
        text_in_unit(b, unit, b_out, out_bytes);
    }
}

const char *ebb_text_seconds(double seconds, char *out, size_t out_bytes)
{
    if (!isfinite(seconds) || seconds > 1e15) {
        snprintf(out, out_bytes, "unknown");
        return out;
    }
    const char *sign = seconds < 0 ? "-" : "";
    double value = fabs(seconds);
    int64_t whole = (int64_t)llround(value);
    if (value < 0.0995 && value > 0)
        snprintf(out, out_bytes, "%s%.*fms", sign, value < 0.00095 ? 2 : 0, value * 1e3);
    else if (value < 9.95)
        snprintf(out, out_bytes, "%s%.1fs", sign, value);
    else if (whole < 60)
        snprintf(out, out_bytes, "%s%" PRId64 "s", sign, whole);
    else if (whole < 3600)
        snprintf(out, out_bytes, "%s%" PRId64 "m %02" PRId64 "s", sign, whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(out, out_bytes, "%s%" PRId64 "h %02" PRId64 "m", sign, whole / 3600,
                 whole % 3600 / 60);
    else
        snprintf(out, out_bytes, "%s%" PRId64 "d %02" PRId64 "h", sign, whole / 86400,
                 whole % 86400 / 3600);
    return out;
}

const char *ebb_text_count(int64_t count, char *out, size_t out_bytes)
{
    static const char *const names[] = {"", " thousand", " million", " billion", " trillion"};
    double value = fabs((double)count);
    size_t at = 0;
    if (value < 10000.0) {
        snprintf(out, out_bytes, "%" PRId64, count);
        return out;
    }
    /* 999.5 thousand would be shown as 1000 thousand, so it already belongs to the next name. */
    while (at + 1 < sizeof names / sizeof names[0] && value >= 999.5) {
        value /= 1000.0;
        at++;
    }
    int places = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, out_bytes, "%s%.*f%s", count < 0 ? "-" : "", places, value, names[at]);
    return out;
}

/* Whatever the locale puts for the decimal point, of one byte or more, becomes '.'. */
static void plain_point(char *number)
{
    size_t whole = strspn(number, "+-0123456789"),
           tail = whole + strcspn(number + whole, "0123456789e");
    if (tail == whole) return;
    number[whole] = '.';
    memmove(number + whole + 1, number + tail, strlen(number + tail) + 1);
}

const char *ebb_text_from_double(double value, char out[EBB_TEXT_DOUBLE])
{
    int digits = 1;
    snprintf(out, EBB_TEXT_DOUBLE, "%g", value);
    if (!isfinite(value)) return out;
    for (; digits <= 17; digits++) {
        snprintf(out, EBB_TEXT_DOUBLE, "%.*e", digits - 1, value);
        plain_point(out);
        if (read_double(out, NULL) == value) break;
    }
    /* Written out where people would write it out: 100, not 1e+02; 0.0002, but 2e-05. */
    const char *mark = strchr(out, 'e');
    long exponent = mark != NULL ? strtol(mark + 1, NULL, 10) : 0;
    if (exponent < -4 || exponent > 15) return out;
    int places = digits - 1 - (int)exponent;
    snprintf(out, EBB_TEXT_DOUBLE, "%.*f", places > 0 ? places : 0, value);
    plain_point(out);
    return out;
}

/* ---- distances between names ---- */

enum { NAME_BYTES = 127 };

/* Case and the choice of '-' or '_' are no difference that a reader of "did you mean" would care
 * about. */
static char folded(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static bool same(char a, char b, bool fold)
{
    return fold ? folded(a) == folded(b) : a == b;
}

/* Damerau and Levenshtein's distance in its restricted form (no letter is moved twice), three rows
 * at a time. */
static int distance(const char *a, const char *b, bool fold)
{
    size_t m = strlen(a), n = strlen(b);
    if (m > NAME_BYTES || n > NAME_BYTES)
        return strcmp(a, b) == 0 ? 0 : (int)((m > n ? m : n) & 0x7fffffff);
    int rows[3][NAME_BYTES + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n; j++) last[j] = before[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int cost = last[j - 1] + !same(a[i - 1], b[j - 1], fold);
            cost = least(cost, least(last[j], now[j - 1]) + 1);
            bool swapped =
                i > 1 && j > 1 && same(a[i - 1], b[j - 2], fold) && same(a[i - 2], b[j - 1], fold);
            now[j] = swapped ? least(cost, before[j - 2] + 1) : cost;
        }
        int *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[n];
}

int ebb_text_distance(const char *a, const char *b)
{
    return distance(a, b, false);
}

/* `whole` begins with `part`, or ends with it after a separator: "batch" for "batch_size", "lr" for
 * "optimizer.lr". */
static bool is_part_of(const char *part, const char *whole)
{
    size_t m = strlen(part), n = strlen(whole);
    if (m < 2 || m >= n) return false;
    if (m >= 3 && strncasecmp(part, whole, m) == 0) return true;
    return strchr("._-", whole[n - m - 1]) != NULL && strcasecmp(part, whole + n - m) == 0;
}

const char *ebb_text_nearest(const char *name, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t length = strlen(name);
    int limit =
        length <= 3 ? 1 : (int)((length + 2 < 3 * NAME_BYTES ? length + 2 : 3 * NAME_BYTES) / 3);
    int best_distance = limit + 1;
    for (size_t i = 0; i < count; i++) {
        int d = distance(name, names[i], true);
        /* Of two names the same distance away, one with nothing in common is never meant. */
        if (d < best_distance && d < (int)(length > 0 ? length : 1)) {
            best_distance = d;
            best = names[i];
        }
    }
    if (best_distance <= 1 || length == 0) return best;
    for (size_t i = 0; i < count; i++)
        if (is_part_of(name, names[i])) return names[i];
    return best;
}

/* ---- UTF-8 ---- */

/* Bytes of the character that begins at `at`, or 0 if none does. The second byte's range keeps out
 * overlong forms, surrogates and what lies above U+10FFFF (RFC 3629, section 4). */
static size_t utf8_character(const unsigned char *at, size_t left)
{
    unsigned char lead = at[0], low = 0x80, high = 0xbf;
    size_t n;
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) {
        n = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        n = 3;
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        n = 4;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    } else {
        return 0;
    }
    if (left < n || at[1] < low || at[1] > high) return 0;
    for (size_t i = 2; i < n; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    return n;
}

size_t ebb_text_utf8_valid(const char *data, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)data;
    size_t done = 0;
    while (done < bytes) {
        size_t n = utf8_character(at + done, bytes - done);
        if (n == 0) break;
        done += n;
    }
    return done;
}

/* Bytes of the control character that the text begins with, 0 for another: of ASCII, or one of
 * U+0080 to U+009F, which terminals obey too. */
static size_t control_bytes(const unsigned char *text)
{
    if (text[0] == 0xc2 && text[1] >= 0x80 && text[1] <= 0x9f) return 2;
    return (text[0] < 0x20 && text[0] != '\n' && text[0] != '\t') || text[0] == 0x7f ? 1 : 0;
}

const char *ebb_text_escape(const char *text, char *out, size_t out_bytes)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *at = (const unsigned char *)text;
    size_t n = 0;
    while (*at != '\0') {
        size_t control = control_bytes(at), wanted = control > 0 ? 4 * control : 1;
        if (n + wanted >= out_bytes) break;
        for (size_t i = 0; i < control; i++, at++) {
            const char escape[4] = {'\\', 'x', digits[*at >> 4], digits[*at & 15]};
            memcpy(out + n, escape, sizeof escape);
            n += sizeof escape;
        }
        if (control == 0) out[n++] = (char)*at++;
    }
    out[n] = '\0';
    return out;
}
