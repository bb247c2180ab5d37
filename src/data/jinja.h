/* Jinja templates as chat templates use them, rendered byte for byte as transformers does it: its
 * sandboxed environment with trim_blocks, lstrip_blocks, break and continue, {% generation %}, its
 * own tojson, strftime_now, raise_exception, dict and namespace.
 *
 * Offered: text, {{ }}, {% %}, {# #} with + and -; for (else, if, unpacking, loop.*), if, set (also
 * blocks, attributes of namespaces, tuples), macro, call, filter, with, print, raw, generation,
 * break, continue; all expressions; the methods, filters and tests of jinja_methods.c,
 * jinja_filters.c and jinja_tests.c. A template is text alone: include, import, from, extends,
 * block, autoescape and recursive loops are refused by name, at the latest when they are reached.
 * Values are Python's as far as templates can see them: how they print, compare, slice and convert.
 *
 * Deviations: integers have 64 bits (beyond: an error). What prints as a memory address in Python
 * (generators, functions) is an error. Case and printability of characters follow utf8proc's
 * version of Unicode. Scopes are found when a name is read, not beforehand: a variable that the
 * caller gives is seen in an inner block even where the block around it assigns the name later on
 * (Jinja has it undefined there). What Jinja folds when it compiles fails only when it is reached.
 *
 * A template cannot hang or fill memory: nesting, steps, memory and output have limits, each an
 * error naming template, line and limit. Compiled templates do not change: any number of threads
 * may render one at the same time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_JINJA_H
#define EBB_DATA_JINJA_H

#include "base/json.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_jinja;

/* 0 means the default. */
struct ebb_jinja_limits {
    int64_t depth;        /* nested expressions, statements, calls, values: 500 */
    int64_t steps;        /* expressions evaluated, items visited, each 256 bytes of text: 2e7 */
    int64_t memory_bytes; /* values made during a rendering: 256 MiB */
    int64_t output_bytes; /* of any text written: 64 MiB */
};

/* Compiles `text`, which is not kept; `name` stands for it in messages and is copied. Errors are
 * EBB_BAD_FILE "name:line: ..." or EBB_UNSUPPORTED. The caller frees. */
enum ebb_status ebb_jinja_compile(struct ebb_ctx *ctx, const char *name, const char *text,
                                  size_t bytes, struct ebb_jinja **jinja);
void ebb_jinja_free(struct ebb_ctx *ctx, struct ebb_jinja *jinja); /* accepts NULL */
const char *ebb_jinja_name(const struct ebb_jinja *jinja);         /* borrowed */
/* Has it {% generation %}? */
bool ebb_jinja_has_generation(const struct ebb_jinja *jinja);

struct ebb_jinja_span {
    size_t begin, end; /* bytes of the output */
};

/* {0} is a valid empty value; the holder frees with ebb_jinja_spans_free. */
struct ebb_jinja_spans {
    struct ebb_jinja_span *items;
    int64_t count, room;
};
enum ebb_status ebb_jinja_spans_add(struct ebb_ctx *ctx, struct ebb_jinja_spans *spans,
                                    size_t begin, size_t end);
void ebb_jinja_spans_free(struct ebb_ctx *ctx, struct ebb_jinja_spans *spans);

/* {0} is valid. */
struct ebb_jinja_options {
    struct ebb_jinja_limits limits;
    /* What strftime_now sees: seconds since 1970, shown in the machine's time zone; 0: the clock. A
     * data set that shall be the same tomorrow sets it. */
    int64_t now;
    const char *subject; /* what is rendered ("data.jsonl:7: record 7"), before messages; or NULL */
};

/* Adds the rendering to *out. `variables` is an object or NULL; its strings are borrowed during the
 * call. *spans (may be NULL) gets what each outermost {% generation %} covered, counted from where
 * the rendering begins; one inside a macro, a set or filter block is then an error, since its place
 * in the text cannot be told. EBB_BAD_FILE for all that goes wrong in the template, its
 * raise_exception included; *out is unchanged then. */
enum ebb_status ebb_jinja_render(struct ebb_ctx *ctx, const struct ebb_jinja *jinja,
                                 const struct ebb_jinja_options *options, const json_t *variables,
                                 struct ebb_str *out, struct ebb_jinja_spans *spans);

#ifdef __cplusplus
}
#endif
#endif
