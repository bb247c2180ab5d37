/* Tokens to nodes: Jinja's grammar, statement by statement and operator by operator.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <stdio.h>
#include <string.h>

/* KEYWORDS of one call: each is compared with all before it. */
enum { DEPTH = 150, NAMES = 4096, KEYWORDS = 1000 };

struct parser {
    struct ebb_jinja *jinja;
    struct ebb_jin_base *base;
    const struct ebb_jin_token *token; /* the one that is looked at */
    int depth;
    int loops;                                   /* for statements around, since the last macro */
    bool uses_caller, uses_varargs, uses_kwargs; /* in the macro around */
};

typedef struct ebb_jin_node *node_ptr;

static enum ebb_status parse_expression(struct parser *parser, bool with_condition, node_ptr *out);
static enum ebb_status parse_unary(struct parser *parser, bool with_filter, node_ptr *out);
static enum ebb_status parse_body(struct parser *parser, const char *ends, node_ptr *out);

/* ---- tokens ---- */

static bool at(const struct parser *parser, enum ebb_jin_token_type type)
{
    return parser->token->type == type;
}

static bool token_is(const struct ebb_jin_token *token, const char *name)
{
    return token->type == EBB_JIN_TOK_NAME && token->bytes == strlen(name) &&
           memcmp(token->data, name, token->bytes) == 0;
}

static bool at_name(const struct parser *parser, const char *name)
{
    return token_is(parser->token, name);
}

/* Is the token a name among those between blanks in `names`? */
static bool at_any(const struct parser *parser, const char *names)
{
    if (!at(parser, EBB_JIN_TOK_NAME)) return false;
    for (const char *name = names; *name != '\0';) {
        size_t bytes = strcspn(name, " ");
        if (bytes == parser->token->bytes && memcmp(name, parser->token->data, bytes) == 0)
            return true;
        name += bytes;
        name += strspn(name, " ");
    }
    return false;
}

static void next(struct parser *parser)
{
    if (parser->token->type != EBB_JIN_TOK_EOF) parser->token++;
    parser->base->line = parser->token->line;
}

static bool skip(struct parser *parser, enum ebb_jin_token_type type)
{
    if (!at(parser, type)) return false;
    next(parser);
    return true;
}

static bool skip_name(struct parser *parser, const char *name)
{
    if (!at_name(parser, name)) return false;
    next(parser);
    return true;
}

static enum ebb_status unexpected(struct parser *parser, const char *wanted)
{
    const struct ebb_jin_token *token = parser->token;
    parser->base->line = token->line;
    if (token->type == EBB_JIN_TOK_NAME)
        return ebb_jin_fail(parser->base, "%s is expected, not '%.*s'", wanted,
                            token->bytes > 60 ? 60 : (int)token->bytes, token->data);
    return ebb_jin_fail(parser->base, "%s is expected, not '%s'", wanted,
                        ebb_jin_token_text(token->type));
}

static enum ebb_status expect(struct parser *parser, enum ebb_jin_token_type type)
{
    char wanted[40];
    if (skip(parser, type)) return EBB_OK;
    snprintf(wanted, sizeof wanted, type == EBB_JIN_TOK_NAME ? "%s" : "'%s'",
             ebb_jin_token_text(type));
    return unexpected(parser, wanted);
}

static enum ebb_status expect_name(struct parser *parser, const char *name)
{
    char wanted[40];
    if (skip_name(parser, name)) return EBB_OK;
    snprintf(wanted, sizeof wanted, "'%s'", name);
    return unexpected(parser, wanted);
}

static enum ebb_status deeper(struct parser *parser)
{
    if (parser->depth >= DEPTH)
        return ebb_jin_fail(parser->base, "the limit of %d nested levels is reached", (int)DEPTH);
    parser->depth++;
    return EBB_OK;
}

/* ---- nodes ---- */

static enum ebb_status new_node(struct parser *parser, enum ebb_jin_kind kind, node_ptr *out)
{
    node_ptr node = (node_ptr)ebb_jin_alloc(parser->base, sizeof *node);
    if (node == NULL) return ebb_jin_failed(parser->base);
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->line = parser->token->line;
    *out = node;
    return EBB_OK;
}

/* Lists grow by doubling: room is the power of two at or above the count. */
static enum ebb_status add_item(struct parser *parser, node_ptr **items, int64_t *count,
                                node_ptr item)
{
    if (*count == 0 || (*count & (*count - 1)) == 0) {
        size_t room = (size_t)(*count > 0 ? *count * 2 : 1);
        node_ptr *grown =
            (node_ptr *)ebb_jin_grow(parser->base, *items, (size_t)*count * sizeof **items,
                                     room * sizeof **items);
        if (grown == NULL) return ebb_jin_failed(parser->base);
        *items = grown;
    }
    (*items)[(*count)++] = item;
    return EBB_OK;
}

static enum ebb_status intern(struct parser *parser, const char *data, size_t bytes, int *number)
{
    struct ebb_jin_names *names = &parser->jinja->names;
    for (int i = 0; i < names->count; i++) {
        const struct ebb_jin_str *str = names->items[i].as.str;
        if (str->bytes != bytes || memcmp(str->data, data, bytes) != 0) continue;
        *number = i;
        return EBB_OK;
    }
    if (names->count == NAMES)
        return ebb_jin_fail(parser->base, "the limit of %d names is reached", (int)NAMES);
    if (names->count == names->room) {
        int room = names->room > 0 ? names->room * 2 : 64;
        struct ebb_jin_value *grown =
            (struct ebb_jin_value *)ebb_jin_grow(parser->base, names->items,
                                                 (size_t)names->room * sizeof *grown,
                                                 (size_t)room * sizeof *grown);
        if (grown == NULL) return ebb_jin_failed(parser->base);
        names->items = grown;
        names->room = room;
    }
    EBB_TRY(ebb_jin_str_copy(parser->base, data, bytes, &names->items[names->count]));
    (void)ebb_jin_str_points(names->items[names->count].as.str);
    *number = names->count++;
    return EBB_OK;
}

static enum ebb_status token_text(struct parser *parser, const struct ebb_jin_token *token,
                                  struct ebb_jin_value *out)
{
    EBB_TRY(ebb_jin_str_borrow(parser->base, token->data, token->bytes, out));
    /* Counted now: a compiled template does not change. */
    (void)ebb_jin_str_points(out->as.str);
    return EBB_OK;
}

/* ---- primary expressions ---- */

static enum ebb_status parse_name(struct parser *parser, bool with_namespace, node_ptr *out)
{
    const struct ebb_jin_token *token = parser->token;
    EBB_TRY(new_node(parser, EBB_NODE_CONST, out));
    if (at_any(parser, "true True")) {
        (*out)->value = ebb_jin_bool(true);
    } else if (at_any(parser, "false False")) {
        (*out)->value = ebb_jin_bool(false);
    } else if (at_any(parser, "none None")) {
        (*out)->value = ebb_jin_none();
    } else {
        (*out)->kind = EBB_NODE_NAME;
        EBB_TRY(intern(parser, token->data, token->bytes, &(*out)->name));
        int name = (*out)->name;
        if (name == parser->jinja->name_caller) parser->uses_caller = true;
        if (name == parser->jinja->name_varargs) parser->uses_varargs = true;
        if (name == parser->jinja->name_kwargs) parser->uses_kwargs = true;
        if (with_namespace && token[1].type == EBB_JIN_TOK_DOT) {
            next(parser);
            next(parser);
            (*out)->kind = EBB_NODE_NAMESPACE_REF;
            if (!at(parser, EBB_JIN_TOK_NAME)) return unexpected(parser, "a name");
            EBB_TRY(token_text(parser, parser->token, &(*out)->value));
        }
    }
    next(parser);
    return EBB_OK;
}

/* Strings that stand side by side are one. */
static enum ebb_status parse_strings(struct parser *parser, node_ptr *out)
{
    size_t bytes = 0, used = 0;
    const struct ebb_jin_token *first = parser->token;
    EBB_TRY(new_node(parser, EBB_NODE_CONST, out));
    while (at(parser, EBB_JIN_TOK_STRING)) {
        bytes += parser->token->bytes;
        next(parser);
    }
    if (parser->token == first + 1) return token_text(parser, first, &(*out)->value);
    char *data = (char *)ebb_jin_alloc(parser->base, bytes + 1);
    if (data == NULL) return ebb_jin_failed(parser->base);
    for (const struct ebb_jin_token *token = first; token < parser->token; token++) {
        memcpy(data + used, token->data, token->bytes);
        used += token->bytes;
    }
    EBB_TRY(ebb_jin_str_borrow(parser->base, data, bytes, &(*out)->value));
    (void)ebb_jin_str_points((*out)->value.as.str);
    return EBB_OK;
}

static bool at_tuple_end(const struct parser *parser, const char *ends)
{
    return at(parser, EBB_JIN_TOK_VARIABLE_END) || at(parser, EBB_JIN_TOK_BLOCK_END) ||
           at(parser, EBB_JIN_TOK_RPAREN) || (ends != NULL && at_any(parser, ends));
}

enum tuple_way { TUPLE_FULL, TUPLE_NO_CONDITION, TUPLE_TARGET, TUPLE_NAMESPACE_TARGET };

static enum ebb_status parse_primary(struct parser *parser, bool with_namespace, node_ptr *out);

/* Expressions with commas between them; one without a comma is itself. */
static enum ebb_status parse_tuple(struct parser *parser, enum tuple_way way, const char *ends,
                                   bool parentheses, node_ptr *out)
{
    node_ptr tuple, item = NULL;
    bool is_tuple = false;
    EBB_TRY(new_node(parser, EBB_NODE_TUPLE, &tuple));
    while (true) {
        if (tuple->count > 0) EBB_TRY(expect(parser, EBB_JIN_TOK_COMMA));
        if (at_tuple_end(parser, ends)) break;
        if (way == TUPLE_FULL || way == TUPLE_NO_CONDITION)
            EBB_TRY(parse_expression(parser, way == TUPLE_FULL, &item));
        else
            EBB_TRY(parse_primary(parser, way == TUPLE_NAMESPACE_TARGET, &item));
        EBB_TRY(add_item(parser, &tuple->items, &tuple->count, item));
        if (!at(parser, EBB_JIN_TOK_COMMA)) break;
        is_tuple = true;
    }
    *out = tuple;
    if (is_tuple) return EBB_OK;
    if (tuple->count > 0)
        *out = tuple->items[0];
    else if (!parentheses)
        return unexpected(parser, "an expression");
    return EBB_OK;
}

static enum ebb_status parse_list(struct parser *parser, node_ptr *out)
{
    node_ptr item = NULL;
    EBB_TRY(new_node(parser, EBB_NODE_LIST, out));
    next(parser);
    while (!at(parser, EBB_JIN_TOK_RBRACKET)) {
        if ((*out)->count > 0) EBB_TRY(expect(parser, EBB_JIN_TOK_COMMA));
        if (at(parser, EBB_JIN_TOK_RBRACKET)) break;
        EBB_TRY(parse_expression(parser, true, &item));
        EBB_TRY(add_item(parser, &(*out)->items, &(*out)->count, item));
    }
    return expect(parser, EBB_JIN_TOK_RBRACKET);
}

static enum ebb_status parse_dict(struct parser *parser, node_ptr *out)
{
    node_ptr item = NULL;
    EBB_TRY(new_node(parser, EBB_NODE_DICT, out));
    next(parser);
    while (!at(parser, EBB_JIN_TOK_RBRACE)) {
        if ((*out)->count > 0) EBB_TRY(expect(parser, EBB_JIN_TOK_COMMA));
        if (at(parser, EBB_JIN_TOK_RBRACE)) break;
        EBB_TRY(parse_expression(parser, true, &item));
        EBB_TRY(add_item(parser, &(*out)->items, &(*out)->count, item));
        EBB_TRY(expect(parser, EBB_JIN_TOK_COLON));
        EBB_TRY(parse_expression(parser, true, &item));
        EBB_TRY(add_item(parser, &(*out)->items, &(*out)->count, item));
    }
    return expect(parser, EBB_JIN_TOK_RBRACE);
}

static enum ebb_status parse_primary(struct parser *parser, bool with_namespace, node_ptr *out)
{
    switch (parser->token->type) {
    case EBB_JIN_TOK_NAME:
        return parse_name(parser, with_namespace, out);
    case EBB_JIN_TOK_STRING:
        return parse_strings(parser, out);
    case EBB_JIN_TOK_INTEGER:
    case EBB_JIN_TOK_FLOAT:
        EBB_TRY(new_node(parser, EBB_NODE_CONST, out));
        (*out)->value = parser->token->value;
        next(parser);
        return EBB_OK;
    case EBB_JIN_TOK_LPAREN:
        next(parser);
        EBB_TRY(deeper(parser));
        EBB_TRY(parse_tuple(parser, TUPLE_FULL, NULL, true, out));
        parser->depth--;
        return expect(parser, EBB_JIN_TOK_RPAREN);
    case EBB_JIN_TOK_LBRACKET:
        return parse_list(parser, out);
    case EBB_JIN_TOK_LBRACE:
        return parse_dict(parser, out);
    default:
        return unexpected(parser, "an expression");
    }
}

/* ---- what follows an expression ---- */

static enum ebb_status parse_subscribed(struct parser *parser, node_ptr object, node_ptr *out)
{
    node_ptr start = NULL, stop = NULL, step = NULL;
    EBB_TRY(new_node(parser, EBB_NODE_ITEM, out));
    (*out)->a = object;
    if (!at(parser, EBB_JIN_TOK_COLON)) {
        EBB_TRY(parse_expression(parser, true, &start));
        if (!at(parser, EBB_JIN_TOK_COLON)) {
            (*out)->b = start;
            return EBB_OK;
        }
    }
    next(parser);
    if (!at(parser, EBB_JIN_TOK_COLON) && !at(parser, EBB_JIN_TOK_RBRACKET))
        EBB_TRY(parse_expression(parser, true, &stop));
    if (skip(parser, EBB_JIN_TOK_COLON) && !at(parser, EBB_JIN_TOK_RBRACKET))
        EBB_TRY(parse_expression(parser, true, &step));
    (*out)->kind = EBB_NODE_SLICE;
    EBB_TRY(add_item(parser, &(*out)->items, &(*out)->count, start));
    EBB_TRY(add_item(parser, &(*out)->items, &(*out)->count, stop));
    return add_item(parser, &(*out)->items, &(*out)->count, step);
}

static enum ebb_status parse_subscript(struct parser *parser, node_ptr object, node_ptr *out)
{
    if (skip(parser, EBB_JIN_TOK_DOT)) {
        const struct ebb_jin_token *token = parser->token;
        EBB_TRY(new_node(parser, EBB_NODE_ATTRIBUTE, out));
        (*out)->a = object;
        if (token->type == EBB_JIN_TOK_NAME) {
            EBB_TRY(token_text(parser, token, &(*out)->value));
        } else if (token->type == EBB_JIN_TOK_INTEGER) {
            (*out)->kind = EBB_NODE_ITEM;
            return parse_primary(parser, false, &(*out)->b);
        } else {
            return unexpected(parser, "a name or a number");
        }
        next(parser);
        return EBB_OK;
    }
    next(parser);
    EBB_TRY(parse_subscribed(parser, object, out));
    if (at(parser, EBB_JIN_TOK_COMMA))
        return ebb_jin_refuse(parser->base, "several subscripts in [] are not offered");
    return expect(parser, EBB_JIN_TOK_RBRACKET);
}

static enum ebb_status add_keyword(struct parser *parser, node_ptr node)
{
    if (node->named_count == KEYWORDS)
        return ebb_jin_fail(parser->base, "the limit of %d keyword arguments is reached",
                            (int)KEYWORDS);
    if (node->named_count == 0 || (node->named_count & (node->named_count - 1)) == 0) {
        size_t room = (size_t)(node->named_count > 0 ? node->named_count * 2 : 1);
        struct ebb_jin_keyword *grown =
            (struct ebb_jin_keyword *)ebb_jin_grow(parser->base, node->named,
                                                   (size_t)node->named_count * sizeof *grown,
                                                   room * sizeof *grown);
        if (grown == NULL) return ebb_jin_failed(parser->base);
        node->named = grown;
    }
    struct ebb_jin_keyword *keyword = &node->named[node->named_count++];
    EBB_TRY(token_text(parser, parser->token, &keyword->name));
    for (int64_t i = 0; i < node->named_count - 1; i++) {
        const struct ebb_jin_str *name = node->named[i].name.as.str;
        if (name->bytes == parser->token->bytes &&
            memcmp(name->data, parser->token->data, name->bytes) == 0)
            return ebb_jin_fail(parser->base, "keyword argument '%.*s' is repeated",
                                (int)(name->bytes > 60 ? 60 : name->bytes), name->data);
    }
    next(parser);
    next(parser);
    return parse_expression(parser, true, &keyword->value);
}

/* "(a, b, name=c, *d, **e)" into a CALL, FILTER or TEST node. */
static enum ebb_status parse_arguments(struct parser *parser, node_ptr node)
{
    static const char order[] = "an argument is out of order: first those by place, then *, then "
                                "those by name, then **";
    bool comma = false;
    node_ptr item = NULL;
    EBB_TRY(expect(parser, EBB_JIN_TOK_LPAREN));
    EBB_TRY(deeper(parser));
    while (!at(parser, EBB_JIN_TOK_RPAREN)) {
        if (comma) {
            EBB_TRY(expect(parser, EBB_JIN_TOK_COMMA));
            if (at(parser, EBB_JIN_TOK_RPAREN)) break;
        }
        comma = true;
        if (skip(parser, EBB_JIN_TOK_MUL)) {
            if (node->star != NULL || node->star_star != NULL)
                return ebb_jin_fail(parser->base, "%s", order);
            EBB_TRY(parse_expression(parser, true, &node->star));
        } else if (skip(parser, EBB_JIN_TOK_POW)) {
            if (node->star_star != NULL) return ebb_jin_fail(parser->base, "%s", order);
            EBB_TRY(parse_expression(parser, true, &node->star_star));
        } else if (at(parser, EBB_JIN_TOK_NAME) && parser->token[1].type == EBB_JIN_TOK_ASSIGN) {
            if (node->star_star != NULL) return ebb_jin_fail(parser->base, "%s", order);
            EBB_TRY(add_keyword(parser, node));
        } else {
            if (node->star != NULL || node->star_star != NULL || node->named_count > 0)
                return ebb_jin_fail(parser->base, "%s", order);
            EBB_TRY(parse_expression(parser, true, &item));
            EBB_TRY(add_item(parser, &node->items, &node->count, item));
        }
    }
    parser->depth--;
    return expect(parser, EBB_JIN_TOK_RPAREN);
}

static enum ebb_status parse_call(struct parser *parser, node_ptr callee, node_ptr *out)
{
    EBB_TRY(new_node(parser, EBB_NODE_CALL, out));
    (*out)->a = callee;
    return parse_arguments(parser, *out);
}

static enum ebb_status parse_postfix(struct parser *parser, node_ptr *node)
{
    while (true) {
        if (at(parser, EBB_JIN_TOK_DOT) || at(parser, EBB_JIN_TOK_LBRACKET))
            EBB_TRY(parse_subscript(parser, *node, node));
        else if (at(parser, EBB_JIN_TOK_LPAREN))
            EBB_TRY(parse_call(parser, *node, node));
        else
            return EBB_OK;
    }
}

/* The name of a filter or test, at the token. */
static enum ebb_status parse_called_name(struct parser *parser, node_ptr node)
{
    if (!at(parser, EBB_JIN_TOK_NAME)) return unexpected(parser, "a name");
    EBB_TRY(token_text(parser, parser->token, &node->value));
    next(parser);
    if (at(parser, EBB_JIN_TOK_DOT))
        return ebb_jin_fail(parser->base, "no filter or test has a name with a dot");
    return EBB_OK;
}

/* One filter; the token is its name. */
static enum ebb_status parse_one_filter(struct parser *parser, node_ptr *node)
{
    node_ptr filter;
    EBB_TRY(new_node(parser, EBB_NODE_FILTER, &filter));
    filter->a = *node;
    EBB_TRY(parse_called_name(parser, filter));
    *node = filter;
    return at(parser, EBB_JIN_TOK_LPAREN) ? parse_arguments(parser, filter) : EBB_OK;
}

static enum ebb_status parse_filters(struct parser *parser, node_ptr *node)
{
    while (skip(parser, EBB_JIN_TOK_PIPE)) EBB_TRY(parse_one_filter(parser, node));
    return EBB_OK;
}

static enum ebb_status parse_test(struct parser *parser, node_ptr *node)
{
    node_ptr test, argument;
    EBB_TRY(new_node(parser, EBB_NODE_TEST, &test));
    next(parser);
    bool negated = skip_name(parser, "not");
    test->a = *node;
    EBB_TRY(parse_called_name(parser, test));
    if (at(parser, EBB_JIN_TOK_LPAREN)) {
        EBB_TRY(parse_arguments(parser, test));
    } else if ((at(parser, EBB_JIN_TOK_NAME) || at(parser, EBB_JIN_TOK_STRING) ||
                at(parser, EBB_JIN_TOK_INTEGER) || at(parser, EBB_JIN_TOK_FLOAT) ||
                at(parser, EBB_JIN_TOK_LBRACKET) || at(parser, EBB_JIN_TOK_LBRACE)) &&
               !at_any(parser, "else or and")) {
        if (at_name(parser, "is"))
            return ebb_jin_fail(parser->base, "tests cannot be chained with 'is'");
        EBB_TRY(parse_primary(parser, false, &argument));
        EBB_TRY(parse_postfix(parser, &argument));
        EBB_TRY(add_item(parser, &test->items, &test->count, argument));
    }
    *node = test;
    if (!negated) return EBB_OK;
    EBB_TRY(new_node(parser, EBB_NODE_NOT, node));
    (*node)->a = test;
    return EBB_OK;
}

static enum ebb_status parse_filter_expression(struct parser *parser, node_ptr *node)
{
    while (true) {
        if (at(parser, EBB_JIN_TOK_PIPE))
            EBB_TRY(parse_filters(parser, node));
        else if (at_name(parser, "is"))
            EBB_TRY(parse_test(parser, node));
        else if (at(parser, EBB_JIN_TOK_LPAREN))
            EBB_TRY(parse_call(parser, *node, node));
        else
            return EBB_OK;
    }
}

/* ---- operators, from the tightest ---- */

static enum ebb_status parse_unary(struct parser *parser, bool with_filter, node_ptr *out)
{
    if (at(parser, EBB_JIN_TOK_SUB) || at(parser, EBB_JIN_TOK_ADD)) {
        node_ptr node;
        EBB_TRY(new_node(parser, EBB_NODE_UNARY, &node));
        node->op = (int)parser->token->type;
        next(parser);
        EBB_TRY(deeper(parser));
        EBB_TRY(parse_unary(parser, false, &node->a));
        parser->depth--;
        *out = node;
    } else {
        EBB_TRY(parse_primary(parser, false, out));
    }
    EBB_TRY(parse_postfix(parser, out));
    return with_filter ? parse_filter_expression(parser, out) : EBB_OK;
}

static enum ebb_status binary(struct parser *parser, node_ptr left, node_ptr *node)
{
    EBB_TRY(new_node(parser, EBB_NODE_BINARY, node));
    (*node)->line = left->line;
    (*node)->op = (int)parser->token->type;
    (*node)->a = left;
    next(parser);
    return EBB_OK;
}

/* Left to right, unlike Python: Jinja writes brackets around each step. */
static enum ebb_status parse_power(struct parser *parser, node_ptr *out)
{
    EBB_TRY(parse_unary(parser, true, out));
    while (at(parser, EBB_JIN_TOK_POW)) {
        EBB_TRY(binary(parser, *out, out));
        EBB_TRY(parse_unary(parser, true, &(*out)->b));
    }
    return EBB_OK;
}

static enum ebb_status parse_product(struct parser *parser, node_ptr *out)
{
    EBB_TRY(parse_power(parser, out));
    while (at(parser, EBB_JIN_TOK_MUL) || at(parser, EBB_JIN_TOK_DIV) ||
           at(parser, EBB_JIN_TOK_FLOORDIV) || at(parser, EBB_JIN_TOK_MOD)) {
        EBB_TRY(binary(parser, *out, out));
        EBB_TRY(parse_power(parser, &(*out)->b));
    }
    return EBB_OK;
}

static enum ebb_status parse_concat(struct parser *parser, node_ptr *out)
{
    node_ptr first, item;
    EBB_TRY(parse_product(parser, &first));
    *out = first;
    if (!at(parser, EBB_JIN_TOK_TILDE)) return EBB_OK;
    EBB_TRY(new_node(parser, EBB_NODE_CONCAT, out));
    EBB_TRY(add_item(parser, &(*out)->items, &(*out)->count, first));
    while (skip(parser, EBB_JIN_TOK_TILDE)) {
        EBB_TRY(parse_product(parser, &item));
        EBB_TRY(add_item(parser, &(*out)->items, &(*out)->count, item));
    }
    return EBB_OK;
}

static enum ebb_status parse_sum(struct parser *parser, node_ptr *out)
{
    EBB_TRY(parse_concat(parser, out));
    while (at(parser, EBB_JIN_TOK_ADD) || at(parser, EBB_JIN_TOK_SUB)) {
        EBB_TRY(binary(parser, *out, out));
        EBB_TRY(parse_concat(parser, &(*out)->b));
    }
    return EBB_OK;
}

/* The comparison operator at the token, skipped; 0: none. */
static int take_comparison(struct parser *parser)
{
    enum ebb_jin_token_type type = parser->token->type;
    if (type >= EBB_JIN_TOK_EQ && type <= EBB_JIN_TOK_LTEQ) {
        next(parser);
        return (int)type;
    }
    if (skip_name(parser, "in")) return EBB_JIN_OP_IN;
    if (!at_name(parser, "not") || !token_is(parser->token + 1, "in")) return 0;
    next(parser);
    next(parser);
    return EBB_JIN_OP_NOT_IN;
}

static enum ebb_status parse_comparison(struct parser *parser, node_ptr *out)
{
    node_ptr first, item;
    EBB_TRY(parse_sum(parser, &first));
    *out = first;
    int op = take_comparison(parser);
    if (op == 0) return EBB_OK;
    EBB_TRY(new_node(parser, EBB_NODE_COMPARE, out));
    (*out)->a = first;
    for (; op != 0; op = take_comparison(parser)) {
        int *ops =
            (int *)ebb_jin_grow(parser->base, (*out)->ops, (size_t)(*out)->count * sizeof *ops,
                                (size_t)((*out)->count + 1) * sizeof *ops);
        if (ops == NULL) return ebb_jin_failed(parser->base);
        ops[(*out)->count] = op;
        (*out)->ops = ops;
        EBB_TRY(parse_sum(parser, &item));
        EBB_TRY(add_item(parser, &(*out)->items, &(*out)->count, item));
    }
    return EBB_OK;
}

static enum ebb_status parse_not(struct parser *parser, node_ptr *out)
{
    if (!at_name(parser, "not")) return parse_comparison(parser, out);
    EBB_TRY(new_node(parser, EBB_NODE_NOT, out));
    next(parser);
    EBB_TRY(deeper(parser));
    EBB_TRY(parse_not(parser, &(*out)->a));
    parser->depth--;
    return EBB_OK;
}

static enum ebb_status parse_and(struct parser *parser, node_ptr *out)
{
    EBB_TRY(parse_not(parser, out));
    while (at_name(parser, "and")) {
        node_ptr left = *out;
        EBB_TRY(new_node(parser, EBB_NODE_AND, out));
        (*out)->a = left;
        next(parser);
        EBB_TRY(parse_not(parser, &(*out)->b));
    }
    return EBB_OK;
}

static enum ebb_status parse_or(struct parser *parser, node_ptr *out)
{
    EBB_TRY(parse_and(parser, out));
    while (at_name(parser, "or")) {
        node_ptr left = *out;
        EBB_TRY(new_node(parser, EBB_NODE_OR, out));
        (*out)->a = left;
        next(parser);
        EBB_TRY(parse_and(parser, &(*out)->b));
    }
    return EBB_OK;
}

static enum ebb_status parse_expression(struct parser *parser, bool with_condition, node_ptr *out)
{
    EBB_TRY(deeper(parser));
    EBB_TRY(parse_or(parser, out));
    while (with_condition && at_name(parser, "if")) {
        node_ptr value = *out;
        EBB_TRY(new_node(parser, EBB_NODE_CONDITION, out));
        (*out)->b = value;
        next(parser);
        EBB_TRY(parse_or(parser, &(*out)->a));
        if (skip_name(parser, "else")) EBB_TRY(parse_expression(parser, true, &(*out)->c));
    }
    parser->depth--;
    return EBB_OK;
}

/* ---- statements ---- */

static enum ebb_status check_target(struct parser *parser, node_ptr target)
{
    if (target->kind == EBB_NODE_NAMESPACE_REF) return EBB_OK;
    if (target->kind == EBB_NODE_NAME) {
        if (parser->loops > 0 && target->name == parser->jinja->name_loop)
            return ebb_jin_fail(parser->base, "the special variable 'loop' cannot be assigned to");
        return EBB_OK;
    }
    if (target->kind != EBB_NODE_TUPLE)
        return ebb_jin_fail(parser->base, "only names can be assigned to");
    for (int64_t i = 0; i < target->count; i++) EBB_TRY(check_target(parser, target->items[i]));
    return EBB_OK;
}

static enum ebb_status parse_target(struct parser *parser, bool with_namespace, const char *ends,
                                    node_ptr *out)
{
    EBB_TRY(parse_tuple(parser, with_namespace ? TUPLE_NAMESPACE_TARGET : TUPLE_TARGET, ends, false,
                        out));
    return check_target(parser, *out);
}

/* A body up to "{% end... %}", which is skipped but for its closing tag. */
static enum ebb_status parse_block(struct parser *parser, const char *end, node_ptr *out)
{
    EBB_TRY(parse_body(parser, end, out));
    next(parser);
    return EBB_OK;
}

static enum ebb_status parse_for(struct parser *parser, node_ptr node)
{
    node->kind = EBB_NODE_FOR;
    parser->loops++;
    EBB_TRY(parse_target(parser, false, "in", &node->a));
    EBB_TRY(expect_name(parser, "in"));
    EBB_TRY(parse_tuple(parser, TUPLE_NO_CONDITION, "recursive", false, &node->b));
    if (skip_name(parser, "if")) EBB_TRY(parse_expression(parser, true, &node->c));
    if (at_name(parser, "recursive"))
        return ebb_jin_refuse(parser->base, "recursive loops are not offered");
    EBB_TRY(parse_body(parser, "endfor else", &node->body));
    parser->loops--;
    bool other = at_name(parser, "else");
    next(parser);
    return other ? parse_block(parser, "endfor", &node->other) : EBB_OK;
}

static enum ebb_status parse_if(struct parser *parser, node_ptr node)
{
    while (true) {
        node->kind = EBB_NODE_IF;
        EBB_TRY(parse_tuple(parser, TUPLE_NO_CONDITION, NULL, false, &node->a));
        EBB_TRY(parse_body(parser, "elif else endif", &node->body));
        if (at_name(parser, "elif")) {
            /* Not nested: a chain of hundreds is no deeper than one. */
            EBB_TRY(new_node(parser, EBB_NODE_IF, &node->other));
            node = node->other;
            next(parser);
            continue;
        }
        bool other = at_name(parser, "else");
        next(parser);
        return other ? parse_block(parser, "endif", &node->other) : EBB_OK;
    }
}

static enum ebb_status parse_set(struct parser *parser, node_ptr node)
{
    EBB_TRY(parse_target(parser, true, NULL, &node->a));
    node->kind = EBB_NODE_SET;
    if (skip(parser, EBB_JIN_TOK_ASSIGN))
        return parse_tuple(parser, TUPLE_FULL, NULL, false, &node->b);
    node->kind = EBB_NODE_SET_BLOCK;
    EBB_TRY(parse_filters(parser, &node->b));
    return parse_block(parser, "endset", &node->body);
}

static enum ebb_status parse_signature(struct parser *parser, node_ptr node)
{
    node_ptr item = NULL;
    EBB_TRY(expect(parser, EBB_JIN_TOK_LPAREN));
    while (!at(parser, EBB_JIN_TOK_RPAREN)) {
        if (node->count > 0) EBB_TRY(expect(parser, EBB_JIN_TOK_COMMA));
        if (!at(parser, EBB_JIN_TOK_NAME)) return unexpected(parser, "a name");
        EBB_TRY(new_node(parser, EBB_NODE_NAME, &item));
        EBB_TRY(intern(parser, parser->token->data, parser->token->bytes, &item->name));
        for (int64_t i = 0; i < node->count; i++)
            if (node->items[i]->name == item->name)
                return ebb_jin_fail(parser->base, "a parameter is named twice");
        EBB_TRY(add_item(parser, &node->items, &node->count, item));
        next(parser);
        if (skip(parser, EBB_JIN_TOK_ASSIGN)) {
            EBB_TRY(parse_expression(parser, true, &item));
            EBB_TRY(add_item(parser, &node->defaults, &node->default_count, item));
        } else if (node->default_count > 0) {
            return ebb_jin_fail(parser->base,
                                "a parameter without a default follows one that has it");
        }
    }
    return expect(parser, EBB_JIN_TOK_RPAREN);
}

/* The body of a macro: a world of its own for break, loop and the special names. */
static enum ebb_status parse_macro_body(struct parser *parser, const char *end, node_ptr node)
{
    struct parser saved = *parser;
    parser->loops = 0;
    parser->uses_caller = parser->uses_varargs = parser->uses_kwargs = false;
    EBB_TRY(parse_block(parser, end, &node->body));
    node->uses_caller = parser->uses_caller;
    node->uses_varargs = parser->uses_varargs;
    node->uses_kwargs = parser->uses_kwargs;
    parser->loops = saved.loops;
    parser->uses_caller = saved.uses_caller;
    parser->uses_varargs = saved.uses_varargs;
    parser->uses_kwargs = saved.uses_kwargs;
    return EBB_OK;
}

static enum ebb_status parse_macro(struct parser *parser, node_ptr node)
{
    node->kind = EBB_NODE_MACRO;
    if (!at(parser, EBB_JIN_TOK_NAME)) return unexpected(parser, "a name");
    EBB_TRY(intern(parser, parser->token->data, parser->token->bytes, &node->name));
    next(parser);
    EBB_TRY(parse_signature(parser, node));
    for (int64_t i = 0; i < node->count; i++)
        if (node->items[i]->name == parser->jinja->name_caller)
            return ebb_jin_refuse(parser->base, "a parameter named 'caller' is not offered");
    return parse_macro_body(parser, "endmacro", node);
}

static enum ebb_status parse_call_block(struct parser *parser, node_ptr node)
{
    node->kind = EBB_NODE_CALL_BLOCK;
    EBB_TRY(new_node(parser, EBB_NODE_MACRO, &node->b));
    node->b->name = -1;
    if (at(parser, EBB_JIN_TOK_LPAREN)) EBB_TRY(parse_signature(parser, node->b));
    EBB_TRY(parse_expression(parser, true, &node->a));
    if (node->a->kind != EBB_NODE_CALL)
        return ebb_jin_fail(parser->base, "a call is expected behind 'call'");
    return parse_macro_body(parser, "endcall", node->b);
}

static enum ebb_status parse_with(struct parser *parser, node_ptr node)
{
    node_ptr item = NULL;
    node->kind = EBB_NODE_WITH;
    while (!at(parser, EBB_JIN_TOK_BLOCK_END)) {
        if (node->count > 0) EBB_TRY(expect(parser, EBB_JIN_TOK_COMMA));
        EBB_TRY(parse_target(parser, false, NULL, &item));
        EBB_TRY(add_item(parser, &node->items, &node->count, item));
        EBB_TRY(expect(parser, EBB_JIN_TOK_ASSIGN));
        EBB_TRY(parse_expression(parser, true, &item));
        EBB_TRY(add_item(parser, &node->defaults, &node->default_count, item));
    }
    return parse_block(parser, "endwith", &node->body);
}

static enum ebb_status parse_print(struct parser *parser, node_ptr node)
{
    node_ptr item = NULL;
    node->kind = EBB_NODE_OUTPUT;
    while (!at(parser, EBB_JIN_TOK_BLOCK_END)) {
        if (node->count > 0) EBB_TRY(expect(parser, EBB_JIN_TOK_COMMA));
        EBB_TRY(parse_expression(parser, true, &item));
        EBB_TRY(add_item(parser, &node->items, &node->count, item));
    }
    return EBB_OK;
}

static enum ebb_status parse_generation(struct parser *parser, node_ptr node)
{
    int loops = parser->loops;
    node->kind = EBB_NODE_GENERATION;
    parser->jinja->has_generation = true;
    parser->loops = 0;
    EBB_TRY(parse_block(parser, "endgeneration", &node->body));
    parser->loops = loops;
    return EBB_OK;
}

static enum ebb_status unknown_tag(struct parser *parser, const struct ebb_jin_token *token)
{
    static const char *const refused[] = {"include", "import", "from",  "extends",
                                          "block",   "do",     "trans", "autoescape"};
    parser->base->line = token->line;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (token_is(token, refused[i]))
            return ebb_jin_refuse(parser->base, "the tag '%s' is not offered", refused[i]);
    return ebb_jin_fail(parser->base, "unknown tag '%.*s'",
                        token->bytes > 60 ? 60 : (int)token->bytes, token->data);
}

/* Behind "{%", at the tag's name. */
static enum ebb_status parse_statement(struct parser *parser, node_ptr *out)
{
    const struct ebb_jin_token *token = parser->token;
    if (token->type != EBB_JIN_TOK_NAME) return unexpected(parser, "the name of a tag");
    EBB_TRY(new_node(parser, EBB_NODE_BODY, out));
    next(parser);
    if (token_is(token, "for")) return parse_for(parser, *out);
    if (token_is(token, "if")) return parse_if(parser, *out);
    if (token_is(token, "set")) return parse_set(parser, *out);
    if (token_is(token, "macro")) return parse_macro(parser, *out);
    if (token_is(token, "call")) return parse_call_block(parser, *out);
    if (token_is(token, "with")) return parse_with(parser, *out);
    if (token_is(token, "print")) return parse_print(parser, *out);
    if (token_is(token, "generation")) return parse_generation(parser, *out);
    if (token_is(token, "filter")) {
        (*out)->kind = EBB_NODE_FILTER_BLOCK;
        EBB_TRY(parse_one_filter(parser, &(*out)->b));
        EBB_TRY(parse_filters(parser, &(*out)->b));
        return parse_block(parser, "endfilter", &(*out)->body);
    }
    if (token_is(token, "break") || token_is(token, "continue")) {
        bool ends = token_is(token, "break");
        if (parser->loops == 0)
            return ebb_jin_fail(parser->base, "'%s' stands outside of a loop",
                                ends ? "break" : "continue");
        (*out)->kind = ends ? EBB_NODE_BREAK : EBB_NODE_CONTINUE;
        return EBB_OK;
    }
    return unknown_tag(parser, token);
}

/* Text, prints and statements into a BODY, up to one of the tags in `ends` (NULL: the end of the
 * template), which is then the token. */
static enum ebb_status parse_items(struct parser *parser, const char *ends, node_ptr body)
{
    node_ptr item = NULL;
    while (!at(parser, EBB_JIN_TOK_EOF)) {
        if (at(parser, EBB_JIN_TOK_DATA)) {
            EBB_TRY(new_node(parser, EBB_NODE_TEXT, &item));
            EBB_TRY(token_text(parser, parser->token, &item->value));
            next(parser);
        } else if (at(parser, EBB_JIN_TOK_VARIABLE_BEGIN)) {
            node_ptr value;
            EBB_TRY(new_node(parser, EBB_NODE_OUTPUT, &item));
            next(parser);
            EBB_TRY(parse_tuple(parser, TUPLE_FULL, NULL, false, &value));
            EBB_TRY(add_item(parser, &item->items, &item->count, value));
            EBB_TRY(expect(parser, EBB_JIN_TOK_VARIABLE_END));
        } else {
            EBB_TRY(expect(parser, EBB_JIN_TOK_BLOCK_BEGIN));
            if (ends != NULL && at_any(parser, ends)) return EBB_OK;
            EBB_TRY(parse_statement(parser, &item));
            EBB_TRY(expect(parser, EBB_JIN_TOK_BLOCK_END));
        }
        EBB_TRY(add_item(parser, &body->items, &body->count, item));
    }
    if (ends == NULL) return EBB_OK;
    return ebb_jin_fail(parser->base,
                        "unexpected end of template, '%.*s' is missing (from line %d)",
                        (int)strcspn(ends, " "), ends, body->line);
}

static enum ebb_status parse_body(struct parser *parser, const char *ends, node_ptr *out)
{
    (void)skip(parser, EBB_JIN_TOK_COLON);
    EBB_TRY(new_node(parser, EBB_NODE_BODY, out));
    EBB_TRY(expect(parser, EBB_JIN_TOK_BLOCK_END));
    EBB_TRY(deeper(parser));
    EBB_TRY(parse_items(parser, ends, *out));
    parser->depth--;
    return EBB_OK;
}

enum ebb_status ebb_jin_parse(struct ebb_jinja *jinja, const struct ebb_jin_tokens *tokens)
{
    struct parser parser = {.jinja = jinja, .base = &jinja->base, .token = tokens->items};
    parser.base->line = 1;
    EBB_TRY(intern(&parser, "loop", 4, &jinja->name_loop));
    EBB_TRY(intern(&parser, "caller", 6, &jinja->name_caller));
    EBB_TRY(intern(&parser, "varargs", 7, &jinja->name_varargs));
    EBB_TRY(intern(&parser, "kwargs", 6, &jinja->name_kwargs));
    EBB_TRY(new_node(&parser, EBB_NODE_BODY, &jinja->root));
    return parse_items(&parser, NULL, jinja->root);
}
