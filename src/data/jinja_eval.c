/* Expressions of Jinja: nodes to values.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <string.h>

/* ---- names ---- */

static void look_up(struct ebb_jin_run *run, const struct ebb_jin_scope *scope, int name,
                    struct ebb_jin_value *out)
{
    for (; scope != NULL; scope = scope->parent)
        for (int64_t i = scope->count - 1; i >= 0; i--)
            if (scope->items[i].name == name) {
                *out = scope->items[i].value;
                return;
            }
    *out = run->globals[name];
}

static enum ebb_status eval_name(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                 const struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    look_up(run, scope, node->name, out);
    if (out->type != EBB_JIN_MISSING) return EBB_OK;
    return ebb_jin_undefined(run, NULL, run->jinja->names.items[node->name], out);
}

/* ---- arguments ---- */

static enum ebb_status add_named(struct ebb_jin_run *run, struct ebb_jin_args *args,
                                 struct ebb_jin_value name, struct ebb_jin_value value)
{
    size_t count = (size_t)args->named_count, each = sizeof *args->named;
    struct ebb_jin_named *grown =
        (struct ebb_jin_named *)ebb_jin_grow(&run->base, args->named, count * each,
                                             (count + 1) * each);
    if (grown == NULL) return ebb_jin_failed(&run->base);
    EBB_TRY(ebb_jin_step(run, count * each));
    grown[count].name = name;
    grown[count].value = value;
    args->named = grown;
    args->named_count++;
    return EBB_OK;
}

static enum ebb_status eval_star(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                 struct ebb_jin_scope *scope, struct ebb_jin_args *args)
{
    struct ebb_jin_value given, list;
    if (node->star != NULL) {
        EBB_TRY(ebb_jin_eval(run, node->star, scope, &given));
        EBB_TRY(ebb_jin_collect(run, given, &list));
        int64_t more = list.as.list->count;
        struct ebb_jin_value *items =
            (struct ebb_jin_value *)ebb_jin_alloc(&run->base,
                                                  (size_t)(args->count + more) * sizeof *items);
        if (items == NULL) return ebb_jin_failed(&run->base);
        if (args->count > 0) memcpy(items, args->items, (size_t)args->count * sizeof *items);
        if (more > 0)
            memcpy(items + args->count, list.as.list->items, (size_t)more * sizeof *items);
        args->items = items;
        args->count += more;
    }
    if (node->star_star == NULL) return EBB_OK;
    EBB_TRY(ebb_jin_eval(run, node->star_star, scope, &given));
    if (given.type != EBB_JIN_DICT)
        return ebb_jin_fail(&run->base, "argument after ** must be a mapping, not %s",
                            ebb_jin_type_name(given));
    for (int64_t i = 0; i < given.as.dict->count; i++) {
        const struct ebb_jin_entry *entry = &given.as.dict->items[i];
        if (entry->key.type != EBB_JIN_STR)
            return ebb_jin_fail(&run->base, "keywords must be strings");
        for (int64_t k = 0; k < args->named_count; k++) {
            bool equal;
            EBB_TRY(ebb_jin_equal(run, args->named[k].name, entry->key, &equal));
            if (equal) return ebb_jin_fail(&run->base, "multiple values for a keyword argument");
        }
        EBB_TRY(add_named(run, args, entry->key, entry->value));
    }
    return EBB_OK;
}

static enum ebb_status eval_args(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                 struct ebb_jin_scope *scope, struct ebb_jin_args *args)
{
    memset(args, 0, sizeof *args);
    if (node->count > 0) {
        args->items = (struct ebb_jin_value *)ebb_jin_alloc(&run->base, (size_t)node->count *
                                                                            sizeof *args->items);
        if (args->items == NULL) return ebb_jin_failed(&run->base);
    }
    for (int64_t i = 0; i < node->count; i++)
        EBB_TRY(ebb_jin_eval(run, node->items[i], scope, &args->items[i]));
    args->count = node->count;
    for (int64_t i = 0; i < node->named_count; i++) {
        struct ebb_jin_value value;
        EBB_TRY(ebb_jin_eval(run, node->named[i].value, scope, &value));
        EBB_TRY(add_named(run, args, node->named[i].name, value));
    }
    return eval_star(run, node, scope, args);
}

static enum ebb_status eval_call(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                 struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value callee;
    struct ebb_jin_args args;
    EBB_TRY(ebb_jin_eval(run, node->a, scope, &callee));
    EBB_TRY(eval_args(run, node, scope, &args));
    run->base.line = node->line;
    return ebb_jin_call(run, callee, &args, out);
}

static enum ebb_status eval_filter(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                   struct ebb_jin_scope *scope, struct ebb_jin_value value,
                                   struct ebb_jin_value *out)
{
    struct ebb_jin_args args;
    EBB_TRY(eval_args(run, node, scope, &args));
    run->base.line = node->line;
    return ebb_jin_filter(run, node->value, value, &args, out);
}

static enum ebb_status eval_test(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                 struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value value;
    struct ebb_jin_args args;
    bool holds;
    EBB_TRY(ebb_jin_eval(run, node->a, scope, &value));
    EBB_TRY(eval_args(run, node, scope, &args));
    run->base.line = node->line;
    EBB_TRY(ebb_jin_test(run, node->value, value, &args, &holds));
    *out = ebb_jin_bool(holds);
    return EBB_OK;
}

enum ebb_status ebb_jin_eval_chain(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                   struct ebb_jin_scope *scope, struct ebb_jin_value captured,
                                   struct ebb_jin_value *out)
{
    if (node == NULL) {
        *out = captured;
        return EBB_OK;
    }
    EBB_TRY(ebb_jin_enter(run));
    EBB_TRY(ebb_jin_eval_chain(run, node->a, scope, captured, &captured));
    run->depth--;
    return eval_filter(run, node, scope, captured, out);
}

/* ---- literals ---- */

static enum ebb_status eval_items(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                  struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value *items;
    EBB_TRY(ebb_jin_list_new(run, node->kind == EBB_NODE_LIST ? EBB_JIN_LIST : EBB_JIN_TUPLE,
                             node->count, out, &items));
    for (int64_t i = 0; i < node->count; i++)
        EBB_TRY(ebb_jin_eval(run, node->items[i], scope, &items[i]));
    return EBB_OK;
}

static enum ebb_status eval_dict(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                 struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    EBB_TRY(ebb_jin_dict_new(run, out));
    for (int64_t i = 0; i < node->count; i += 2) {
        struct ebb_jin_value key, value;
        EBB_TRY(ebb_jin_eval(run, node->items[i], scope, &key));
        EBB_TRY(ebb_jin_eval(run, node->items[i + 1], scope, &value));
        EBB_TRY(ebb_jin_dict_set(run, out->as.dict, key, value));
    }
    return EBB_OK;
}

static enum ebb_status eval_slice(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                  struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value value, bounds[3] = {{EBB_JIN_MISSING, 0, {false}}};
    EBB_TRY(ebb_jin_eval(run, node->a, scope, &value));
    for (int64_t i = 0; i < node->count; i++)
        if (node->items[i] != NULL) EBB_TRY(ebb_jin_eval(run, node->items[i], scope, &bounds[i]));
    run->base.line = node->line;
    return ebb_jin_slice(run, value, bounds, out);
}

/* ---- operators ---- */

static enum ebb_status eval_compare(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                    struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value left, right;
    bool result = true;
    EBB_TRY(ebb_jin_eval(run, node->a, scope, &left));
    for (int64_t i = 0; result && i < node->count; i++) {
        int op = node->ops[i];
        EBB_TRY(ebb_jin_eval(run, node->items[i], scope, &right));
        run->base.line = node->line;
        if (op == EBB_JIN_OP_IN || op == EBB_JIN_OP_NOT_IN)
            EBB_TRY(ebb_jin_contains(run, right, left, &result));
        else if (op == EBB_JIN_TOK_EQ || op == EBB_JIN_TOK_NE)
            EBB_TRY(ebb_jin_equal(run, left, right, &result));
        else
            EBB_TRY(ebb_jin_order(run, op, left, right, &result));
        if (op == EBB_JIN_OP_NOT_IN || op == EBB_JIN_TOK_NE) result = !result;
        left = right;
    }
    *out = ebb_jin_bool(result);
    return EBB_OK;
}

static enum ebb_status eval_concat(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                   struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_buf buf = {0};
    for (int64_t i = 0; i < node->count; i++) {
        struct ebb_jin_value value;
        EBB_TRY(ebb_jin_eval(run, node->items[i], scope, &value));
        EBB_TRY(ebb_jin_print(run, value, &buf));
    }
    return ebb_jin_str_of(&run->base, &buf, out);
}

static enum ebb_status eval_unary(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                  struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value value;
    EBB_TRY(ebb_jin_eval(run, node->a, scope, &value));
    if (value.type == EBB_JIN_UNDEFINED) return ebb_jin_undefined_fail(run, value);
    if (!ebb_jin_is_number(value))
        return ebb_jin_fail(&run->base, "bad operand type for unary %s: '%s'",
                            ebb_jin_token_text((enum ebb_jin_token_type)node->op),
                            ebb_jin_type_name(value));
    bool negative = node->op == EBB_JIN_TOK_SUB;
    if (value.type == EBB_JIN_FLOAT) {
        *out = ebb_jin_float(negative ? -value.as.number : value.as.number);
        return EBB_OK;
    }
    return ebb_jin_binary(run, negative ? EBB_JIN_TOK_SUB : EBB_JIN_TOK_ADD, ebb_jin_int(0), value,
                          out);
}

static enum ebb_status eval_binary(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                   struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value a, b;
    EBB_TRY(ebb_jin_eval(run, node->a, scope, &a));
    EBB_TRY(ebb_jin_eval(run, node->b, scope, &b));
    run->base.line = node->line;
    return ebb_jin_binary(run, node->op, a, b, out);
}

/* `and` and `or` give the side that decided. */
static enum ebb_status eval_logic(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                  struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    EBB_TRY(ebb_jin_eval(run, node->a, scope, out));
    if (ebb_jin_truth(*out) == (node->kind == EBB_NODE_OR)) return EBB_OK;
    return ebb_jin_eval(run, node->b, scope, out);
}

static enum ebb_status eval_condition(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                      struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value test;
    EBB_TRY(ebb_jin_eval(run, node->a, scope, &test));
    if (ebb_jin_truth(test)) return ebb_jin_eval(run, node->b, scope, out);
    if (node->c != NULL) return ebb_jin_eval(run, node->c, scope, out);
    return ebb_jin_undefined_hint(run, out,
                                  "the inline if-expression on line %d evaluated to false and no "
                                  "else section was defined",
                                  node->line);
}

static enum ebb_status eval_any(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    struct ebb_jin_value object, key;
    switch (node->kind) {
    case EBB_NODE_CONST:
        *out = node->value;
        return EBB_OK;
    case EBB_NODE_NAME:
        return eval_name(run, node, scope, out);
    case EBB_NODE_LIST:
    case EBB_NODE_TUPLE:
        return eval_items(run, node, scope, out);
    case EBB_NODE_DICT:
        return eval_dict(run, node, scope, out);
    case EBB_NODE_ATTRIBUTE:
        EBB_TRY(ebb_jin_eval(run, node->a, scope, &object));
        run->base.line = node->line;
        return ebb_jin_attribute(run, object, node->value, out);
    case EBB_NODE_ITEM:
        EBB_TRY(ebb_jin_eval(run, node->a, scope, &object));
        EBB_TRY(ebb_jin_eval(run, node->b, scope, &key));
        run->base.line = node->line;
        return ebb_jin_item(run, object, key, out);
    case EBB_NODE_SLICE:
        return eval_slice(run, node, scope, out);
    case EBB_NODE_CALL:
        return eval_call(run, node, scope, out);
    case EBB_NODE_FILTER:
        EBB_TRY(ebb_jin_eval(run, node->a, scope, &object));
        return eval_filter(run, node, scope, object, out);
    case EBB_NODE_TEST:
        return eval_test(run, node, scope, out);
    case EBB_NODE_NOT:
        EBB_TRY(ebb_jin_eval(run, node->a, scope, &object));
        *out = ebb_jin_bool(!ebb_jin_truth(object));
        return EBB_OK;
    case EBB_NODE_AND:
    case EBB_NODE_OR:
        return eval_logic(run, node, scope, out);
    case EBB_NODE_BINARY:
        return eval_binary(run, node, scope, out);
    case EBB_NODE_UNARY:
        return eval_unary(run, node, scope, out);
    case EBB_NODE_CONCAT:
        return eval_concat(run, node, scope, out);
    case EBB_NODE_COMPARE:
        return eval_compare(run, node, scope, out);
    case EBB_NODE_CONDITION:
        return eval_condition(run, node, scope, out);
    default:
        return ebb_jin_fail(&run->base, "only names can be assigned to");
    }
}

enum ebb_status ebb_jin_eval(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                             struct ebb_jin_scope *scope, struct ebb_jin_value *out)
{
    run->base.line = node->line;
    EBB_TRY(ebb_jin_step(run, 0));
    EBB_TRY(ebb_jin_enter(run));
    enum ebb_status status = eval_any(run, node, scope, out);
    run->depth--;
    return status;
}
