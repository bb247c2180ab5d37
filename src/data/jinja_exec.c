/* Statements of Jinja: loops, conditions, assignments, macros, captured text.
 *
 * Scopes: a loop's iteration, a macro's call, `with`, and the bodies of set, filter and generation
 * blocks have one each; `if` has none. An assignment is to the innermost, reading goes outwards,
 * and a macro reads where it was defined. That is what Jinja's compiler makes of its frames.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <stdio.h>
#include <string.h>

struct ebb_jin_loop {
    struct ebb_jin_iter *iter;
    struct ebb_jin_value over;
    int64_t index0, length;                      /* -1: not known yet */
    struct ebb_jin_value before, current, after; /* after: MISSING unless looked at */
    struct ebb_jin_value changed;                /* arguments of the last changed() */
};

enum ebb_status ebb_jin_scope_set(struct ebb_jin_run *run, struct ebb_jin_scope *scope, int name,
                                  struct ebb_jin_value value)
{
    for (int64_t i = 0; i < scope->count; i++) {
        if (scope->items[i].name != name) continue;
        scope->items[i].value = value;
        return EBB_OK;
    }
    if (scope->count == scope->room) {
        int64_t room = scope->room > 0 ? scope->room * 2 : 4;
        struct ebb_jin_variable *grown =
            (struct ebb_jin_variable *)ebb_jin_grow(&run->base, scope->items,
                                                    (size_t)scope->room * sizeof *grown,
                                                    (size_t)room * sizeof *grown);
        if (grown == NULL) return ebb_jin_failed(&run->base);
        scope->items = grown;
        scope->room = room;
    }
    scope->items[scope->count].name = name;
    scope->items[scope->count++].value = value;
    return EBB_OK;
}

/* Scopes live in the arena: a macro may outlast the loop in which it was defined. */
static enum ebb_status new_scope(struct ebb_jin_run *run, struct ebb_jin_scope *parent,
                                 struct ebb_jin_scope **scope)
{
    *scope = (struct ebb_jin_scope *)ebb_jin_alloc(&run->base, sizeof **scope);
    if (*scope == NULL) return ebb_jin_failed(&run->base);
    memset(*scope, 0, sizeof **scope);
    (*scope)->parent = parent;
    return EBB_OK;
}

/* ---- assignments ---- */

static enum ebb_status assign_attribute(struct ebb_jin_run *run, const struct ebb_jin_node *target,
                                        struct ebb_jin_scope *scope, struct ebb_jin_value value)
{
    struct ebb_jin_value object = run->globals[target->name];
    for (const struct ebb_jin_scope *at = scope; at != NULL; at = at->parent) {
        int64_t i = 0;
        while (i < at->count && at->items[i].name != target->name) i++;
        if (i == at->count) continue;
        object = at->items[i].value;
        break;
    }
    if (object.type != EBB_JIN_NAMESPACE)
        return ebb_jin_fail(&run->base, "cannot assign attribute on non-namespace object");
    if (target->value.as.str->data[0] == '_')
        return ebb_jin_fail(&run->base, "a namespace has no names that begin with '_'");
    return ebb_jin_dict_set(run, object.as.dict, target->value, value);
}

static enum ebb_status unpack(struct ebb_jin_run *run, const struct ebb_jin_node *target,
                              struct ebb_jin_scope *scope, struct ebb_jin_value value)
{
    struct ebb_jin_iter *iter;
    struct ebb_jin_growing items = {0};
    struct ebb_jin_value item;
    bool more = true;
    if (!ebb_jin_is_iterable(value))
        return ebb_jin_fail(&run->base, "cannot unpack non-iterable %s object",
                            ebb_jin_type_name(value));
    EBB_TRY(ebb_jin_iterate(run, value, &iter));
    while (items.count <= target->count) {
        EBB_TRY(ebb_jin_next(run, iter, &item, &more));
        if (!more) break;
        EBB_TRY(ebb_jin_growing_add(run, &items, item));
    }
    if (items.count < target->count)
        return ebb_jin_fail(&run->base, "not enough values to unpack (expected %lld, got %lld)",
                            (long long)target->count, (long long)items.count);
    if (items.count > target->count)
        return ebb_jin_fail(&run->base, "too many values to unpack (expected %lld)",
                            (long long)target->count);
    for (int64_t i = 0; i < target->count; i++)
        EBB_TRY(ebb_jin_assign(run, target->items[i], scope, items.items[i]));
    return EBB_OK;
}

enum ebb_status ebb_jin_assign(struct ebb_jin_run *run, const struct ebb_jin_node *target,
                               struct ebb_jin_scope *scope, struct ebb_jin_value value)
{
    if (target->kind == EBB_NODE_NAME) return ebb_jin_scope_set(run, scope, target->name, value);
    if (target->kind == EBB_NODE_TUPLE) return unpack(run, target, scope, value);
    return assign_attribute(run, target, scope, value);
}

/* ---- captured text ---- */

/* Runs a body with its output in *text. */
static enum ebb_status capture(struct ebb_jin_run *run, const struct ebb_jin_node *body,
                               struct ebb_jin_scope *scope, enum ebb_jin_flow *flow,
                               struct ebb_jin_value *text)
{
    struct ebb_jin_buf buf = {0}, *saved = run->out;
    run->out = &buf;
    enum ebb_status status = ebb_jin_exec(run, body, scope, flow);
    run->out = saved;
    EBB_TRY(status);
    return ebb_jin_str_of(&run->base, &buf, text);
}

static enum ebb_status exec_set_block(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                      struct ebb_jin_scope *scope, enum ebb_jin_flow *flow)
{
    struct ebb_jin_scope *inner;
    struct ebb_jin_value text, value;
    EBB_TRY(new_scope(run, scope, &inner));
    EBB_TRY(capture(run, node->body, inner, flow, &text));
    if (*flow != EBB_FLOW_NEXT) return EBB_OK; /* left by break: nothing is assigned */
    EBB_TRY(ebb_jin_eval_chain(run, node->b, inner, text, &value));
    return ebb_jin_assign(run, node->a, scope, value);
}

static enum ebb_status exec_filter_block(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                         struct ebb_jin_scope *scope, enum ebb_jin_flow *flow)
{
    struct ebb_jin_scope *inner;
    struct ebb_jin_value text, value;
    EBB_TRY(new_scope(run, scope, &inner));
    EBB_TRY(capture(run, node->body, inner, flow, &text));
    if (*flow != EBB_FLOW_NEXT) return EBB_OK;
    EBB_TRY(ebb_jin_eval_chain(run, node->b, inner, text, &value));
    return ebb_jin_print(run, value, run->out);
}

static enum ebb_status exec_generation(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                       struct ebb_jin_scope *scope)
{
    struct ebb_jin_scope *inner;
    enum ebb_jin_flow flow = EBB_FLOW_NEXT;
    bool outermost = !run->generating && run->spans != NULL;
    if (outermost && run->out != run->out_root)
        return ebb_jin_refuse(&run->base, "a generation block inside a macro, a set or a filter "
                                          "block: its place in the text cannot be told");
    size_t begin = run->out->bytes;
    EBB_TRY(new_scope(run, scope, &inner));
    run->generating |= outermost;
    EBB_TRY(ebb_jin_exec(run, node->body, inner, &flow));
    if (!outermost) return EBB_OK;
    run->generating = false;
    return ebb_jinja_spans_add(run->base.ctx, run->spans, begin, run->out->bytes);
}

/* ---- macros ---- */

static enum ebb_status define(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                              struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_macro *macro = (struct ebb_jin_macro *)ebb_jin_alloc(&run->base, sizeof *macro);
    if (macro == NULL) return ebb_jin_failed(&run->base);
    macro->node = node;
    macro->scope = scope;
    run->macros++;
    out->type = EBB_JIN_MACRO;
    out->flag = 0;
    out->as.macro = macro;
    return EBB_OK;
}

/* The text of a macro's name, for messages. */
static const char *macro_name(struct ebb_jin_run *run, const struct ebb_jin_node *node)
{
    return node->name < 0 ? "caller" : run->jinja->names.items[node->name].as.str->data;
}

/* Sets the named arguments that are parameters not yet given; the rest go to *kwargs. */
static enum ebb_status bind_keywords(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                     const struct ebb_jin_args *args, struct ebb_jin_value *given,
                                     struct ebb_jin_value *caller, struct ebb_jin_value *kwargs)
{
    EBB_TRY(ebb_jin_dict_new(run, kwargs));
    for (int64_t i = 0; i < args->named_count; i++) {
        const struct ebb_jin_named *named = &args->named[i];
        int64_t k = 0;
        for (; k < node->count; k++) {
            bool equal;
            EBB_TRY(ebb_jin_equal(run, run->jinja->names.items[node->items[k]->name], named->name,
                                  &equal));
            if (equal && given[k].type == EBB_JIN_MISSING) break;
        }
        if (k < node->count)
            given[k] = named->value;
        else if (node->uses_caller && ebb_jin_str_is(named->name, "caller"))
            *caller = named->value;
        else if (node->uses_kwargs)
            EBB_TRY(ebb_jin_dict_set(run, kwargs->as.dict, named->name, named->value));
        else
            return ebb_jin_fail(&run->base, "macro '%s' takes no keyword argument '%.*s'",
                                macro_name(run, node),
                                named->name.as.str->bytes > 60 ? 60
                                                               : (int)named->name.as.str->bytes,
                                named->name.as.str->data);
    }
    return EBB_OK;
}

/* Parameters, then varargs, kwargs and caller where the body mentions them. */
static enum ebb_status bind_macro(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                  const struct ebb_jin_args *args, struct ebb_jin_scope *scope)
{
    const struct ebb_jinja *jinja = run->jinja;
    struct ebb_jin_value caller = {EBB_JIN_MISSING, 0, {false}}, kwargs, varargs, *rest;
    struct ebb_jin_value *given =
        (struct ebb_jin_value *)ebb_jin_alloc(&run->base, (size_t)node->count * sizeof *given);
    if (given == NULL) return ebb_jin_failed(&run->base);
    int64_t placed = args->count < node->count ? args->count : node->count;
    memset(given, 0, (size_t)node->count * sizeof *given);
    if (placed > 0) memcpy(given, args->items, (size_t)placed * sizeof *given);
    EBB_TRY(bind_keywords(run, node, args, given, &caller, &kwargs));
    if (args->count > placed && !node->uses_varargs)
        return ebb_jin_fail(&run->base, "macro '%s' takes not more than %lld argument(s)",
                            macro_name(run, node), (long long)node->count);
    EBB_TRY(ebb_jin_list_new(run, EBB_JIN_TUPLE, args->count - placed, &varargs, &rest));
    for (int64_t i = placed; i < args->count; i++) rest[i - placed] = args->items[i];
    if (node->uses_varargs) EBB_TRY(ebb_jin_scope_set(run, scope, jinja->name_varargs, varargs));
    if (node->uses_kwargs) EBB_TRY(ebb_jin_scope_set(run, scope, jinja->name_kwargs, kwargs));
    if (node->uses_caller) {
        if (caller.type == EBB_JIN_MISSING || caller.type == EBB_JIN_NONE)
            EBB_TRY(ebb_jin_undefined_hint(run, &caller, "No caller defined"));
        EBB_TRY(ebb_jin_scope_set(run, scope, jinja->name_caller, caller));
    }
    for (int64_t i = 0; i < node->count; i++) {
        int64_t fallback = i - (node->count - node->default_count);
        if (given[i].type == EBB_JIN_MISSING && fallback >= 0)
            EBB_TRY(ebb_jin_eval(run, node->defaults[fallback], scope, &given[i]));
        else if (given[i].type == EBB_JIN_MISSING)
            EBB_TRY(ebb_jin_undefined_hint(run, &given[i], "parameter '%.100s' was not provided",
                                           jinja->names.items[node->items[i]->name].as.str->data));
        EBB_TRY(ebb_jin_scope_set(run, scope, node->items[i]->name, given[i]));
    }
    return EBB_OK;
}

enum ebb_status ebb_jin_call_macro(struct ebb_jin_run *run, const struct ebb_jin_macro *macro,
                                   const struct ebb_jin_args *args, struct ebb_jin_value *out)
{
    struct ebb_jin_scope *scope;
    enum ebb_jin_flow flow = EBB_FLOW_NEXT;
    EBB_TRY(ebb_jin_enter(run));
    EBB_TRY(new_scope(run, macro->scope, &scope));
    EBB_TRY(bind_macro(run, macro->node, args, scope));
    EBB_TRY(capture(run, macro->node->body, scope, &flow, out));
    run->depth--;
    return EBB_OK;
}

/* "{% call(x) f(y) %}": f gets the body as its caller. The call's node is copied with one more
 * keyword, whose value is a name that only this scope knows. */
static enum ebb_status exec_call_block(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                       struct ebb_jin_scope *scope)
{
    struct ebb_jin_scope *inner;
    struct ebb_jin_value macro, result;
    struct ebb_jin_node call = *node->a, name = {.kind = EBB_NODE_CONST, .line = node->line};
    EBB_TRY(define(run, node->b, scope, &macro));
    EBB_TRY(new_scope(run, scope, &inner));
    name.value = macro;
    size_t bytes = (size_t)call.named_count * sizeof *call.named;
    call.named = (struct ebb_jin_keyword *)ebb_jin_alloc(&run->base, bytes + sizeof *call.named);
    if (call.named == NULL) return ebb_jin_failed(&run->base);
    if (bytes > 0) memcpy(call.named, node->a->named, bytes);
    call.named[call.named_count].name = run->jinja->names.items[run->jinja->name_caller];
    call.named[call.named_count++].value = &name;
    EBB_TRY(ebb_jin_eval(run, &call, inner, &result));
    return ebb_jin_print(run, result, run->out);
}

/* ---- loops ---- */

/* The next item, which may have been looked at already. */
static enum ebb_status loop_peek(struct ebb_jin_run *run, struct ebb_jin_loop *loop, bool *more)
{
    *more = loop->after.type != EBB_JIN_MISSING;
    if (*more) return EBB_OK;
    EBB_TRY(ebb_jin_next(run, loop->iter, &loop->after, more));
    if (!*more) loop->after.type = EBB_JIN_MISSING;
    return EBB_OK;
}

/* A generator has no length: the rest of it becomes a list. */
static enum ebb_status loop_length(struct ebb_jin_run *run, struct ebb_jin_loop *loop)
{
    struct ebb_jin_value rest = {EBB_JIN_ITER, 0, {false}}, list;
    if (loop->length >= 0) return EBB_OK;
    if (ebb_jin_length(loop->over, &loop->length)) return EBB_OK;
    rest.as.iter = loop->iter;
    loop->length = -1;
    EBB_TRY(ebb_jin_collect(run, rest, &list));
    EBB_TRY(ebb_jin_iterate(run, list, &loop->iter));
    loop->length =
        list.as.list->count + loop->index0 + 1 + (loop->after.type != EBB_JIN_MISSING ? 1 : 0);
    return EBB_OK;
}

static enum ebb_status loop_cycle(struct ebb_jin_run *run, struct ebb_jin_value self,
                                  const struct ebb_jin_args *args, struct ebb_jin_value *out)
{
    if (args->named_count > 0) return ebb_jin_fail(&run->base, "cycle() takes no named arguments");
    if (args->count == 0) return ebb_jin_fail(&run->base, "no items for cycling given");
    *out = args->items[self.as.loop->index0 % args->count];
    return EBB_OK;
}

static enum ebb_status loop_changed(struct ebb_jin_run *run, struct ebb_jin_value self,
                                    const struct ebb_jin_args *args, struct ebb_jin_value *out)
{
    struct ebb_jin_value now, *items;
    bool equal = false;
    if (args->named_count > 0)
        return ebb_jin_fail(&run->base, "changed() takes no named arguments");
    EBB_TRY(ebb_jin_list_new(run, EBB_JIN_TUPLE, args->count, &now, &items));
    for (int64_t i = 0; i < args->count; i++) items[i] = args->items[i];
    if (self.as.loop->changed.type != EBB_JIN_MISSING)
        EBB_TRY(ebb_jin_equal(run, self.as.loop->changed, now, &equal));
    if (!equal) self.as.loop->changed = now;
    *out = ebb_jin_bool(!equal);
    return EBB_OK;
}

static enum ebb_status loop_method(struct ebb_jin_run *run, struct ebb_jin_loop *loop,
                                   const char *name, ebb_jin_fn call, struct ebb_jin_value *out)
{
    struct ebb_jin_func *func = (struct ebb_jin_func *)ebb_jin_alloc(&run->base, sizeof *func);
    if (func == NULL) return ebb_jin_failed(&run->base);
    func->name = name;
    func->call = call;
    func->self.type = EBB_JIN_LOOP;
    func->self.flag = 0;
    func->self.as.loop = loop;
    out->type = EBB_JIN_FUNC;
    out->flag = 0;
    out->as.func = func;
    return EBB_OK;
}

/* What needs a look at the rest of the loop. */
static enum ebb_status loop_ahead(struct ebb_jin_run *run, struct ebb_jin_loop *loop,
                                  struct ebb_jin_value name, struct ebb_jin_value *out, bool *found)
{
    bool more, last = ebb_jin_str_is(name, "last"), next = ebb_jin_str_is(name, "nextitem");
    if (last || next) {
        EBB_TRY(loop_peek(run, loop, &more));
        if (last)
            *out = ebb_jin_bool(!more);
        else if (more)
            *out = loop->after;
        else
            return ebb_jin_undefined_hint(run, out, "there is no next item");
        return EBB_OK;
    }
    bool length = ebb_jin_str_is(name, "length"), revindex = ebb_jin_str_is(name, "revindex");
    *found = length || revindex || ebb_jin_str_is(name, "revindex0");
    if (!*found) return EBB_OK;
    EBB_TRY(loop_length(run, loop));
    int64_t done = length ? 0 : revindex ? loop->index0 : loop->index0 + 1;
    *out = ebb_jin_int(loop->length - done);
    return EBB_OK;
}

enum ebb_status ebb_jin_loop_attribute(struct ebb_jin_run *run, struct ebb_jin_loop *loop,
                                       struct ebb_jin_value name, struct ebb_jin_value *out,
                                       bool *found)
{
    *found = true;
    if (ebb_jin_str_is(name, "index"))
        *out = ebb_jin_int(loop->index0 + 1);
    else if (ebb_jin_str_is(name, "index0"))
        *out = ebb_jin_int(loop->index0);
    else if (ebb_jin_str_is(name, "first"))
        *out = ebb_jin_bool(loop->index0 == 0);
    else if (ebb_jin_str_is(name, "depth"))
        *out = ebb_jin_int(1);
    else if (ebb_jin_str_is(name, "depth0"))
        *out = ebb_jin_int(0);
    else if (ebb_jin_str_is(name, "cycle"))
        return loop_method(run, loop, "cycle", loop_cycle, out);
    else if (ebb_jin_str_is(name, "changed"))
        return loop_method(run, loop, "changed", loop_changed, out);
    else if (!ebb_jin_str_is(name, "previtem"))
        return loop_ahead(run, loop, name, out, found);
    else if (loop->index0 > 0)
        *out = loop->before;
    else
        return ebb_jin_undefined_hint(run, out, "there is no previous item");
    return EBB_OK;
}

enum ebb_status ebb_jin_loop_repr(struct ebb_jin_run *run, struct ebb_jin_loop *loop,
                                  struct ebb_jin_buf *buf)
{
    char text[80];
    EBB_TRY(loop_length(run, loop));
    snprintf(text, sizeof text, "<LoopContext %lld/%lld>", (long long)loop->index0 + 1,
             (long long)loop->length);
    return ebb_jin_buf_text(run, buf, text);
}

/* The loop over what `in` names, filtered by its `if`. */
static enum ebb_status start_loop(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                  struct ebb_jin_scope *scope, struct ebb_jin_loop *loop)
{
    memset(loop, 0, sizeof *loop);
    loop->index0 = -1;
    loop->length = -1;
    EBB_TRY(ebb_jin_eval(run, node->b, scope, &loop->over));
    run->base.line = node->line;
    EBB_TRY(ebb_jin_iterate(run, loop->over, &loop->iter));
    if (node->c == NULL) return EBB_OK;
    struct ebb_jin_iter *source = loop->iter;
    EBB_TRY(ebb_jin_iter_value(run, EBB_ITER_FOR_TEST, &loop->over, &loop->iter));
    loop->iter->source = source;
    loop->iter->node = node;
    loop->iter->scope = scope;
    return EBB_OK;
}

static enum ebb_status exec_for(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                struct ebb_jin_scope *scope, enum ebb_jin_flow *flow)
{
    struct ebb_jin_loop *loop = (struct ebb_jin_loop *)ebb_jin_alloc(&run->base, sizeof *loop);
    struct ebb_jin_value self = {EBB_JIN_LOOP, 0, {false}};
    struct ebb_jin_scope *inner = NULL;
    if (loop == NULL) return ebb_jin_failed(&run->base);
    self.as.loop = loop;
    EBB_TRY(start_loop(run, node, scope, loop));
    bool finished = false; /* some iteration came to its end */
    int64_t macros = -1;   /* defined before the scope was made */
    while (true) {
        bool more;
        enum ebb_jin_flow body = EBB_FLOW_NEXT;
        EBB_TRY(loop_peek(run, loop, &more));
        if (!more) break;
        loop->index0++;
        loop->before = loop->current;
        loop->current = loop->after;
        loop->after.type = EBB_JIN_MISSING;
        /* A scope that no macro keeps serves the next iteration too. */
        if (macros == run->macros)
            inner->count = 0;
        else
            EBB_TRY(new_scope(run, scope, &inner));
        macros = run->macros;
        EBB_TRY(ebb_jin_scope_set(run, inner, run->jinja->name_loop, self));
        EBB_TRY(ebb_jin_assign(run, node->a, inner, loop->current));
        EBB_TRY(ebb_jin_exec(run, node->body, inner, &body));
        finished |= body == EBB_FLOW_NEXT;
        if (body == EBB_FLOW_BREAK) break;
    }
    /* Jinja marks a loop as walked at the end of a body: one that always leaves by break or
     * continue still has its else. */
    if (finished || node->other == NULL) return EBB_OK;
    EBB_TRY(new_scope(run, scope, &inner));
    return ebb_jin_exec(run, node->other, inner, flow);
}

/* ---- the rest ---- */

static enum ebb_status exec_if(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                               struct ebb_jin_scope *scope, enum ebb_jin_flow *flow)
{
    for (; node != NULL && node->kind == EBB_NODE_IF; node = node->other) {
        struct ebb_jin_value test;
        EBB_TRY(ebb_jin_eval(run, node->a, scope, &test));
        if (ebb_jin_truth(test)) return ebb_jin_exec(run, node->body, scope, flow);
    }
    return node != NULL ? ebb_jin_exec(run, node, scope, flow) : EBB_OK;
}

static enum ebb_status exec_with(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                 struct ebb_jin_scope *scope, enum ebb_jin_flow *flow)
{
    struct ebb_jin_scope *inner;
    EBB_TRY(new_scope(run, scope, &inner));
    for (int64_t i = 0; i < node->count; i++) {
        struct ebb_jin_value value;
        EBB_TRY(ebb_jin_eval(run, node->defaults[i], scope, &value));
        EBB_TRY(ebb_jin_assign(run, node->items[i], inner, value));
    }
    return ebb_jin_exec(run, node->body, inner, flow);
}

static enum ebb_status exec_body(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                 struct ebb_jin_scope *scope, enum ebb_jin_flow *flow)
{
    for (int64_t i = 0; i < node->count; i++) {
        EBB_TRY(ebb_jin_exec(run, node->items[i], scope, flow));
        if (*flow != EBB_FLOW_NEXT) break;
    }
    return EBB_OK;
}

static enum ebb_status exec_output(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                   struct ebb_jin_scope *scope)
{
    for (int64_t i = 0; i < node->count; i++) {
        struct ebb_jin_value value;
        EBB_TRY(ebb_jin_eval(run, node->items[i], scope, &value));
        run->base.line = node->line;
        EBB_TRY(ebb_jin_print(run, value, run->out));
    }
    return EBB_OK;
}

static enum ebb_status exec_any(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                struct ebb_jin_scope *scope, enum ebb_jin_flow *flow)
{
    struct ebb_jin_value value;
    switch (node->kind) {
    case EBB_NODE_BODY:
        return exec_body(run, node, scope, flow);
    case EBB_NODE_TEXT:
        return ebb_jin_print(run, node->value, run->out);
    case EBB_NODE_OUTPUT:
        return exec_output(run, node, scope);
    case EBB_NODE_FOR:
        return exec_for(run, node, scope, flow);
    case EBB_NODE_IF:
        return exec_if(run, node, scope, flow);
    case EBB_NODE_SET:
        EBB_TRY(ebb_jin_eval(run, node->b, scope, &value));
        run->base.line = node->line;
        return ebb_jin_assign(run, node->a, scope, value);
    case EBB_NODE_SET_BLOCK:
        return exec_set_block(run, node, scope, flow);
    case EBB_NODE_MACRO:
        EBB_TRY(define(run, node, scope, &value));
        return ebb_jin_scope_set(run, scope, node->name, value);
    case EBB_NODE_CALL_BLOCK:
        return exec_call_block(run, node, scope);
    case EBB_NODE_FILTER_BLOCK:
        return exec_filter_block(run, node, scope, flow);
    case EBB_NODE_WITH:
        return exec_with(run, node, scope, flow);
    case EBB_NODE_GENERATION:
        return exec_generation(run, node, scope);
    case EBB_NODE_BREAK:
        *flow = EBB_FLOW_BREAK;
        return EBB_OK;
    default:
        *flow = EBB_FLOW_CONTINUE;
        return EBB_OK;
    }
}

enum ebb_status ebb_jin_exec(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                             struct ebb_jin_scope *scope, enum ebb_jin_flow *flow)
{
    run->base.line = node->line;
    EBB_TRY(ebb_jin_step(run, 0));
    EBB_TRY(ebb_jin_enter(run));
    enum ebb_status status = exec_any(run, node, scope, flow);
    run->depth--;
    return status;
}
