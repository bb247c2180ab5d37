/* Compiling and rendering Jinja templates: limits, variables, the run.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja.h"

#include <string.h>

#include "data/jinja_int.h"

enum { TEMPLATE_BYTES = 1 << 20 };

/* What a compiled template may take: nodes are some hundred times the text at worst. */
static const int64_t compiled_bytes = (int64_t)512 << 20;

enum ebb_status ebb_jinja_compile(struct ebb_ctx *ctx, const char *name, const char *text,
                                  size_t bytes, struct ebb_jinja **jinja)
{
    struct ebb_jin_tokens tokens = {0};
    *jinja = NULL;
    if (bytes > TEMPLATE_BYTES)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: a template of %zu bytes, the limit is %d", name,
                        bytes, (int)TEMPLATE_BYTES);
    struct ebb_jinja *made = (struct ebb_jinja *)ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    made->base.ctx = ctx;
    made->base.bytes_limit = compiled_bytes;
    made->base.name = ebb_mem_strdup(ctx, name);
    enum ebb_status status = made->base.name == NULL ? EBB_NO_MEMORY : EBB_OK;
    if (status == EBB_OK) status = ebb_jin_lex(&made->base, text, bytes, &tokens);
    if (status == EBB_OK) status = ebb_jin_parse(made, &tokens);
    if (status != EBB_OK) {
        ebb_jinja_free(ctx, made);
        return status;
    }
    *jinja = made;
    return EBB_OK;
}

void ebb_jinja_free(struct ebb_ctx *ctx, struct ebb_jinja *jinja)
{
    if (jinja == NULL) return;
    ebb_jin_release(&jinja->base);
    ebb_mem_free(ctx, (char *)(uintptr_t)jinja->base.name);
    ebb_mem_free(ctx, jinja);
}

const char *ebb_jinja_name(const struct ebb_jinja *jinja)
{
    return jinja->base.name;
}

bool ebb_jinja_has_generation(const struct ebb_jinja *jinja)
{
    return jinja->has_generation;
}

enum ebb_status ebb_jinja_spans_add(struct ebb_ctx *ctx, struct ebb_jinja_spans *spans,
                                    size_t begin, size_t end)
{
    if (spans->count == spans->room) {
        int64_t room = spans->room > 0 ? spans->room * 2 : 8;
        struct ebb_jinja_span *grown =
            (struct ebb_jinja_span *)ebb_mem_realloc(ctx, spans->items,
                                                     (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        spans->items = grown;
        spans->room = room;
    }
    spans->items[spans->count].begin = begin;
    spans->items[spans->count++].end = end;
    return EBB_OK;
}

void ebb_jinja_spans_free(struct ebb_ctx *ctx, struct ebb_jinja_spans *spans)
{
    ebb_mem_free(ctx, spans->items);
    memset(spans, 0, sizeof *spans);
}

static int64_t limit_or(int64_t given, int64_t fallback)
{
    return given > 0 ? given : fallback;
}

/* Values of all names that the template mentions: of the variables, else global functions. */
static enum ebb_status load_globals(struct ebb_jin_run *run, const json_t *variables)
{
    const struct ebb_jin_names *names = &run->jinja->names;
    size_t bytes = (size_t)names->count * sizeof *run->globals;
    run->globals = (struct ebb_jin_value *)ebb_jin_alloc(&run->base, bytes);
    if (run->globals == NULL) return ebb_jin_failed(&run->base);
    memset(run->globals, 0, bytes);
    for (int i = 0; i < names->count; i++) {
        const struct ebb_jin_str *name = names->items[i].as.str;
        const json_t *given = json_object_getn(variables, name->data, name->bytes);
        if (given != NULL)
            EBB_TRY(ebb_jin_from_json(run, given, &run->globals[i]));
        else
            (void)ebb_jin_global(run, names->items[i], &run->globals[i]);
    }
    return EBB_OK;
}

enum ebb_status ebb_jinja_render(struct ebb_ctx *ctx, const struct ebb_jinja *jinja,
                                 const struct ebb_jinja_options *options, const json_t *variables,
                                 struct ebb_str *out, struct ebb_jinja_spans *spans)
{
    static const struct ebb_jinja_options defaults = {{0, 0, 0, 0}, 0, NULL};
    struct ebb_jin_buf text = {0};
    enum ebb_jin_flow flow = EBB_FLOW_NEXT;
    struct ebb_jin_run run = {0};
    run.options = options != NULL ? options : &defaults;
    const struct ebb_jinja_limits *limits = &run.options->limits;
    run.limits.depth = limit_or(limits->depth, 500);
    run.limits.steps = limit_or(limits->steps, 20000000);
    run.limits.memory_bytes = limit_or(limits->memory_bytes, (int64_t)256 << 20);
    run.limits.output_bytes = limit_or(limits->output_bytes, (int64_t)64 << 20);
    run.base.ctx = ctx;
    run.base.subject = run.options->subject;
    run.base.name = jinja->base.name;
    run.base.line = 1;
    run.base.bytes_limit = run.limits.memory_bytes;
    run.jinja = jinja;
    run.out = run.out_root = &text;
    run.spans = spans;
    int64_t spans_before = spans != NULL ? spans->count : 0;
    enum ebb_status status = load_globals(&run, variables);
    if (status == EBB_OK) status = ebb_jin_exec(&run, jinja->root, &run.root, &flow);
    if (status == EBB_OK) status = ebb_str_add(ctx, out, text.data, text.bytes);
    if (status != EBB_OK && spans != NULL) spans->count = spans_before;
    ebb_jin_release(&run.base);
    return status;
}
