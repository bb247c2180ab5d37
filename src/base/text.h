/* Growable strings, numbers from text, distances between names: what messages and parsers need.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TEXT_H
#define EBB_TEXT_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A growable byte string, always NUL-terminated once something was added. {0} is a valid empty
 * value. Owned by its holder; ebb_str_free returns it to {0}. */
struct ebb_str {
    char *data; /* NULL while empty */
    size_t bytes;
    size_t room;
};

enum ebb_status ebb_str_add(struct ebb_ctx *ctx, struct ebb_str *str, const char *data,
                            size_t bytes);
enum ebb_status ebb_str_addf(struct ebb_ctx *ctx, struct ebb_str *str, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void ebb_str_free(struct ebb_ctx *ctx, struct ebb_str *str);

/* Whole-text conversions: false, with *value untouched, if anything is left over or out of range. A
 * double may be written "1e-4"; blanks, "2_000", hexadecimal, "inf" and "nan" are refused. The
 * point is '.' in every locale. */
bool ebb_text_int64(const char *text, int64_t *value);
bool ebb_text_double(const char *text, double *value);
bool ebb_text_bool(const char *text, bool *value); /* true/false, yes/no, on/off, in any case */
/* "20GiB", "512 MiB", "1.5GB", "4096" (bytes), in any case. K, M, G, T alone are binary, as the
 * tools that limit memory read them. */
bool ebb_text_size(const char *text, int64_t *bytes);
/* Writes "81.3 GiB", "512 KiB", "17 B" into `out`, which is returned. */
const char *ebb_text_bytes(int64_t bytes, char *out, size_t out_bytes);
/* Two sizes that are compared, each into `out_bytes`: in a smaller unit where they would read alike
 * and are not ("1411 MiB", "1405.2 MiB"). */
void ebb_text_bytes_apart(int64_t a, int64_t b, char *a_out, char *b_out, size_t out_bytes);
/* Writes "1m 05s", "2h 03m", "0.8s". */
const char *ebb_text_seconds(double seconds, char *out, size_t out_bytes);

/* Writes "58.4 thousand", "9.87 million", "1.24 billion": three digits; below 10000 all of them. */
const char *ebb_text_count(int64_t count, char *out, size_t out_bytes);

enum { EBB_TEXT_DOUBLE = 32 };
/* Writes the shortest decimal form that reads back as the same double, with '.' in every locale:
 * "100", "0.0002", and with an exponent what is below 0.0001 or from 1e16 on. */
const char *ebb_text_from_double(double value, char out[EBB_TEXT_DOUBLE]);

/* Edit distance (Levenshtein with transpositions), for "did you mean". */
int ebb_text_distance(const char *a, const char *b);
/* The nearest of `count` names, or NULL if none is near enough to be meant. Borrowed from
 * `names`. */
const char *ebb_text_nearest(const char *name, const char *const *names, size_t count);

/* Length of the valid UTF-8 prefix; equals `bytes` when all is valid (RFC 3629: no surrogates, no
 * overlong forms). */
size_t ebb_text_utf8_valid(const char *data, size_t bytes);

/* Writes the text for a terminal: control characters other than newline and tab, which may come
 * from data and would steer it, as "\x1b". What does not fit is left away; four times the text's
 * bytes and one fit all. Returns `out`. */
const char *ebb_text_escape(const char *text, char *out, size_t out_bytes);

#ifdef __cplusplus
}
#endif
#endif
