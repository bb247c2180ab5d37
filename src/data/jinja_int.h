/* What the parts of the Jinja interpreter share: memory, values, tokens, nodes, the run.
 *
 * jinja_lex.c makes tokens of text, jinja_parse.c nodes of tokens, jinja_exec.c runs statements and
 * jinja_eval.c expressions. jinja_value.c has values, jinja_iter.c what can be looped over,
 * jinja_ops.c operators, jinja_print.c how values print, jinja_unicode.c letters. jinja_strings.c,
 * jinja_methods.c, jinja_filters.c, jinja_lists.c, jinja_tests.c and jinja_globals.c are what
 * templates call. All memory of a template and of a run is in one arena each, so nothing is freed
 * one by one and an error may leave from anywhere.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_JINJA_INT_H
#define EBB_DATA_JINJA_INT_H

#include "data/jinja.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- memory and errors ---- */

struct ebb_jin_block;

/* Where messages say they are, and the arena. */
struct ebb_jin_base {
    struct ebb_ctx *ctx;
    const char *subject; /* before messages; or NULL */
    const char *name;    /* of the template */
    int line;
    struct ebb_jin_block *blocks; /* the newest first */
    int64_t bytes, bytes_limit;
    enum ebb_status failure; /* of the last allocation that failed */
};

/* What a caller of a failed ebb_jin_alloc returns: never EBB_OK. */
static inline enum ebb_status ebb_jin_failed(const struct ebb_jin_base *base)
{
    return base->failure != EBB_OK ? base->failure : EBB_FAILED;
}

/* Records "name:line: text" as EBB_BAD_FILE; the second form takes the status. */
enum ebb_status ebb_jin_fail(struct ebb_jin_base *base, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
enum ebb_status ebb_jin_refuse(struct ebb_jin_base *base, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* EBB_UNSUPPORTED */
/* NULL after recording a failure; aligned to 16 bytes, not always zero. */
void *ebb_jin_alloc(struct ebb_jin_base *base, size_t bytes);
/* Grows `old` (NULL for none) to new_bytes, in place where it is the newest. */
void *ebb_jin_grow(struct ebb_jin_base *base, void *old, size_t old_bytes, size_t new_bytes);
void ebb_jin_release(struct ebb_jin_base *base); /* everything */

/* Growable text in the arena. {0} is empty. */
struct ebb_jin_buf {
    char *data;
    size_t bytes, room;
};

/* ---- values ---- */

enum ebb_jin_type {
    EBB_JIN_MISSING, /* an argument that was not given; never seen by templates */
    EBB_JIN_UNDEFINED,
    EBB_JIN_NONE,
    EBB_JIN_BOOL,
    EBB_JIN_INT,
    EBB_JIN_FLOAT,
    EBB_JIN_STR,
    EBB_JIN_LIST,
    EBB_JIN_TUPLE,
    EBB_JIN_DICT,
    EBB_JIN_VIEW, /* .keys(), .values(), .items() */
    EBB_JIN_RANGE,
    EBB_JIN_ITER, /* what filters such as map give: can be walked once */
    EBB_JIN_NAMESPACE,
    EBB_JIN_MACRO,
    EBB_JIN_FUNC, /* a global function, or a method with the value it belongs to */
    EBB_JIN_LOOP,
    EBB_JIN_CYCLER,
    EBB_JIN_JOINER
};

enum ebb_jin_view { EBB_JIN_KEYS, EBB_JIN_VALUES, EBB_JIN_ITEMS };

struct ebb_jin_value {
    enum ebb_jin_type type;
    int flag; /* STR: marked safe; VIEW: which */
    union {
        bool truth;
        int64_t integer;
        double number;
        const struct ebb_jin_undefined *undefined;
        struct ebb_jin_str *str;
        const struct ebb_jin_list *list; /* LIST, TUPLE, CYCLER's items */
        struct ebb_jin_dict *dict;       /* DICT, VIEW, NAMESPACE */
        const struct ebb_jin_range *range;
        struct ebb_jin_iter *iter;
        const struct ebb_jin_macro *macro;
        const struct ebb_jin_func *func;
        struct ebb_jin_loop *loop;
        struct ebb_jin_cycler *cycler;
        struct ebb_jin_joiner *joiner;
    } as;
};

struct ebb_jin_undefined {
    const char *hint;   /* the whole message, or NULL */
    const char *object; /* type of what has no such name, or NULL: a variable */
    struct ebb_jin_value name;
};

struct ebb_jin_str {
    const char *data; /* NUL behind it is not promised */
    size_t bytes;
    int64_t points; /* characters; -1: not counted yet */
};

struct ebb_jin_list {
    struct ebb_jin_value *items;
    int64_t count;
};

struct ebb_jin_entry {
    struct ebb_jin_value key, value;
    uint64_t hash;
};

/* In the order of first insertion. */
struct ebb_jin_dict {
    struct ebb_jin_entry *items;
    int64_t count, room;
    int32_t *slots; /* place + 1 by hash, once there are more than a few */
    int64_t slot_count;
};

struct ebb_jin_range {
    int64_t start, stop, step, count;
};

struct ebb_jin_cycler {
    const struct ebb_jin_list *items;
    int64_t at;
};

struct ebb_jin_joiner {
    struct ebb_jin_value text;
    bool used;
};

struct ebb_jin_named {
    struct ebb_jin_value name, value;
};

struct ebb_jin_args {
    struct ebb_jin_value *items;
    int64_t count;
    struct ebb_jin_named *named;
    int64_t named_count;
};

/* ---- tokens ---- */

enum ebb_jin_token_type {
    EBB_JIN_TOK_EOF,
    EBB_JIN_TOK_DATA,
    EBB_JIN_TOK_VARIABLE_BEGIN,
    EBB_JIN_TOK_VARIABLE_END,
    EBB_JIN_TOK_BLOCK_BEGIN,
    EBB_JIN_TOK_BLOCK_END,
    EBB_JIN_TOK_NAME,
    EBB_JIN_TOK_STRING,
    EBB_JIN_TOK_INTEGER,
    EBB_JIN_TOK_FLOAT,
    EBB_JIN_TOK_ADD,
    EBB_JIN_TOK_SUB,
    EBB_JIN_TOK_DIV,
    EBB_JIN_TOK_FLOORDIV,
    EBB_JIN_TOK_MUL,
    EBB_JIN_TOK_MOD,
    EBB_JIN_TOK_POW,
    EBB_JIN_TOK_TILDE,
    EBB_JIN_TOK_LBRACKET,
    EBB_JIN_TOK_RBRACKET,
    EBB_JIN_TOK_LPAREN,
    EBB_JIN_TOK_RPAREN,
    EBB_JIN_TOK_LBRACE,
    EBB_JIN_TOK_RBRACE,
    EBB_JIN_TOK_EQ,
    EBB_JIN_TOK_NE,
    EBB_JIN_TOK_GT,
    EBB_JIN_TOK_GTEQ,
    EBB_JIN_TOK_LT,
    EBB_JIN_TOK_LTEQ,
    EBB_JIN_TOK_ASSIGN,
    EBB_JIN_TOK_DOT,
    EBB_JIN_TOK_COLON,
    EBB_JIN_TOK_PIPE,
    EBB_JIN_TOK_COMMA,
    EBB_JIN_TOK_SEMICOLON
};

struct ebb_jin_token {
    enum ebb_jin_token_type type;
    int line;
    const char *data; /* text of DATA, NAME and STRING (unescaped) */
    size_t bytes;
    struct ebb_jin_value value; /* of INTEGER and FLOAT */
};

struct ebb_jin_tokens {
    struct ebb_jin_token *items;
    int64_t count, room;
};

/* The last token is EOF. Texts are in the base's arena. */
enum ebb_status ebb_jin_lex(struct ebb_jin_base *base, const char *text, size_t bytes,
                            struct ebb_jin_tokens *tokens);
const char *ebb_jin_token_text(enum ebb_jin_token_type type); /* for messages */

/* ---- nodes ---- */

enum ebb_jin_kind {
    /* statements */
    EBB_NODE_BODY,         /* items */
    EBB_NODE_TEXT,         /* value */
    EBB_NODE_OUTPUT,       /* items, printed */
    EBB_NODE_FOR,          /* a target, b iterable, c test or NULL, body, other */
    EBB_NODE_IF,           /* a test, body, other */
    EBB_NODE_SET,          /* a target, b value */
    EBB_NODE_SET_BLOCK,    /* a target, b filter chain or NULL, body */
    EBB_NODE_MACRO,        /* name; items parameters, defaults; body; flags */
    EBB_NODE_CALL_BLOCK,   /* a the call, b the macro */
    EBB_NODE_FILTER_BLOCK, /* b filter chain, body */
    EBB_NODE_WITH,         /* items targets, defaults their values, body */
    EBB_NODE_GENERATION,   /* body */
    EBB_NODE_BREAK,
    EBB_NODE_CONTINUE,
    /* expressions */
    EBB_NODE_CONST,         /* value */
    EBB_NODE_NAME,          /* name */
    EBB_NODE_NAMESPACE_REF, /* name, value the attribute; a target */
    EBB_NODE_LIST,          /* items */
    EBB_NODE_TUPLE,         /* items */
    EBB_NODE_DICT,          /* items: key, value, key, value */
    EBB_NODE_ATTRIBUTE,     /* a, value the name */
    EBB_NODE_ITEM,          /* a, b */
    EBB_NODE_SLICE,         /* a; items start, stop, step, each may be NULL */
    EBB_NODE_CALL,          /* a callee; items, named, star, star_star */
    EBB_NODE_FILTER,        /* a (NULL: the captured text), value its name; arguments as of CALL */
    EBB_NODE_TEST,          /* the same */
    EBB_NODE_NOT,           /* a */
    EBB_NODE_AND,           /* a, b */
    EBB_NODE_OR,
    EBB_NODE_BINARY,   /* a, b, op a token */
    EBB_NODE_UNARY,    /* a, op */
    EBB_NODE_CONCAT,   /* items */
    EBB_NODE_COMPARE,  /* a; items operands, ops */
    EBB_NODE_CONDITION /* a test, b value, c other or NULL */
};

/* Comparison operators beside those that are tokens. */
enum { EBB_JIN_OP_IN = 100, EBB_JIN_OP_NOT_IN = 101 };

struct ebb_jin_keyword {
    struct ebb_jin_value name;
    struct ebb_jin_node *value;
};

struct ebb_jin_node {
    enum ebb_jin_kind kind;
    int line;
    int op;
    int name; /* number of an identifier */
    bool uses_caller, uses_varargs, uses_kwargs;
    struct ebb_jin_value value;
    struct ebb_jin_node *a, *b, *c, *body, *other, *star, *star_star;
    struct ebb_jin_node **items;
    int64_t count;
    struct ebb_jin_node **defaults; /* MACRO: of the last parameters; WITH: values */
    int64_t default_count;
    struct ebb_jin_keyword *named;
    int64_t named_count;
    int *ops; /* COMPARE */
};

struct ebb_jin_names {
    struct ebb_jin_value *items; /* texts of identifiers */
    int count, room;
};

struct ebb_jinja {
    struct ebb_jin_base base;
    struct ebb_jin_names names;
    struct ebb_jin_node *root;
    bool has_generation;
    int name_loop, name_caller, name_varargs, name_kwargs;
};

enum ebb_status ebb_jin_parse(struct ebb_jinja *jinja, const struct ebb_jin_tokens *tokens);

/* ---- the run ---- */

struct ebb_jin_variable {
    int name;
    struct ebb_jin_value value;
};

struct ebb_jin_scope {
    struct ebb_jin_scope *parent;
    struct ebb_jin_variable *items;
    int64_t count, room;
};

struct ebb_jin_run {
    struct ebb_jin_base base;
    const struct ebb_jinja *jinja;
    const struct ebb_jinja_options *options;
    struct ebb_jinja_limits limits;
    int64_t depth, steps;
    int64_t macros; /* defined so far */
    struct ebb_jin_scope root;
    struct ebb_jin_value *globals; /* [names] by number: variables given, then global functions */
    struct ebb_jin_buf *out;       /* where text goes now */
    struct ebb_jin_buf *out_root;
    struct ebb_jinja_spans *spans; /* or NULL */
    bool generating;
};

/* Counts work; fails above the limit. `bytes`: of text looked at. */
enum ebb_status ebb_jin_step(struct ebb_jin_run *run, size_t bytes);
/* One level deeper; fails at the limit. Each success is paired with `depth--`. */
enum ebb_status ebb_jin_enter(struct ebb_jin_run *run);

struct ebb_jin_macro {
    const struct ebb_jin_node *node;
    struct ebb_jin_scope *scope; /* where it was defined */
};

typedef enum ebb_status (*ebb_jin_fn)(struct ebb_jin_run *run, struct ebb_jin_value self,
                                      const struct ebb_jin_args *args, struct ebb_jin_value *out);

struct ebb_jin_func {
    const char *name;
    ebb_jin_fn call;
    struct ebb_jin_value self; /* MISSING for global functions */
};

struct ebb_jin_entry_fn {
    const char *name;
    ebb_jin_fn call; /* NULL: known, and refused */
};

/* ---- jinja_value.c ---- */

static inline struct ebb_jin_value ebb_jin_bool(bool truth)
{
    struct ebb_jin_value value = {EBB_JIN_BOOL, 0, {false}};
    value.as.truth = truth;
    return value;
}
static inline struct ebb_jin_value ebb_jin_int(int64_t integer)
{
    struct ebb_jin_value value = {EBB_JIN_INT, 0, {false}};
    value.as.integer = integer;
    return value;
}
static inline struct ebb_jin_value ebb_jin_float(double number)
{
    struct ebb_jin_value value = {EBB_JIN_FLOAT, 0, {false}};
    value.as.number = number;
    return value;
}
static inline struct ebb_jin_value ebb_jin_none(void)
{
    struct ebb_jin_value value = {EBB_JIN_NONE, 0, {false}};
    return value;
}
/* BOOL counts as a number. */
static inline bool ebb_jin_is_int(struct ebb_jin_value value)
{
    return value.type == EBB_JIN_INT || value.type == EBB_JIN_BOOL;
}
static inline bool ebb_jin_is_number(struct ebb_jin_value value)
{
    return ebb_jin_is_int(value) || value.type == EBB_JIN_FLOAT;
}
static inline int64_t ebb_jin_integer(struct ebb_jin_value value)
{
    return value.type == EBB_JIN_BOOL ? (int64_t)value.as.truth : value.as.integer;
}
static inline double ebb_jin_number(struct ebb_jin_value value)
{
    return value.type == EBB_JIN_FLOAT ? value.as.number : (double)ebb_jin_integer(value);
}

/* A string over borrowed text (which lives as long as the run), and over a copy of it. */
enum ebb_status ebb_jin_str_borrow(struct ebb_jin_base *base, const char *data, size_t bytes,
                                   struct ebb_jin_value *out);
enum ebb_status ebb_jin_str_copy(struct ebb_jin_base *base, const char *data, size_t bytes,
                                 struct ebb_jin_value *out);
enum ebb_status ebb_jin_str_of(struct ebb_jin_base *base, const struct ebb_jin_buf *buf,
                               struct ebb_jin_value *out);
bool ebb_jin_str_is(struct ebb_jin_value value, const char *text);
int64_t ebb_jin_str_points(struct ebb_jin_str *str);
/* Byte offset of character `point`, which is at most the number of characters. */
size_t ebb_jin_str_offset(struct ebb_jin_str *str, int64_t point);
/* Ends with a NUL, for messages and C functions; NULL after a failure. */
const char *ebb_jin_str_text(struct ebb_jin_base *base, struct ebb_jin_value value);

enum ebb_status ebb_jin_buf_add(struct ebb_jin_run *run, struct ebb_jin_buf *buf, const char *data,
                                size_t bytes);
enum ebb_status ebb_jin_buf_text(struct ebb_jin_run *run, struct ebb_jin_buf *buf,
                                 const char *text);

/* Items are to be filled in by the caller (`count` of them). */
enum ebb_status ebb_jin_list_new(struct ebb_jin_run *run, enum ebb_jin_type type, int64_t count,
                                 struct ebb_jin_value *out, struct ebb_jin_value **items);
/* A list that grows. {0} is empty. */
struct ebb_jin_growing {
    struct ebb_jin_value *items;
    int64_t count, room;
};
enum ebb_status ebb_jin_growing_add(struct ebb_jin_run *run, struct ebb_jin_growing *list,
                                    struct ebb_jin_value value);
enum ebb_status ebb_jin_growing_end(struct ebb_jin_run *run, const struct ebb_jin_growing *list,
                                    struct ebb_jin_value *out);

enum ebb_status ebb_jin_dict_new(struct ebb_jin_run *run, struct ebb_jin_value *out);
enum ebb_status ebb_jin_dict_set(struct ebb_jin_run *run, struct ebb_jin_dict *dict,
                                 struct ebb_jin_value key, struct ebb_jin_value value);
/* *found is NULL where there is none; a key that cannot be one (a list) fails unless `quiet`. */
enum ebb_status ebb_jin_dict_get(struct ebb_jin_run *run, const struct ebb_jin_dict *dict,
                                 struct ebb_jin_value key, bool quiet,
                                 const struct ebb_jin_value **found);
const struct ebb_jin_value *ebb_jin_dict_text(struct ebb_jin_run *run,
                                              const struct ebb_jin_dict *dict, const char *key);

enum ebb_status ebb_jin_undefined(struct ebb_jin_run *run, const char *object,
                                  struct ebb_jin_value name, struct ebb_jin_value *out);
enum ebb_status ebb_jin_undefined_hint(struct ebb_jin_run *run, struct ebb_jin_value *out,
                                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The error that using it raises. */
enum ebb_status ebb_jin_undefined_fail(struct ebb_jin_run *run, struct ebb_jin_value value);

enum ebb_status ebb_jin_from_json(struct ebb_jin_run *run, const json_t *json,
                                  struct ebb_jin_value *out);
const char *ebb_jin_type_name(struct ebb_jin_value value); /* Python's: "str", "NoneType" */

/* ---- jinja_ops.c ---- */

bool ebb_jin_truth(struct ebb_jin_value value);
enum ebb_status ebb_jin_equal(struct ebb_jin_run *run, struct ebb_jin_value a,
                              struct ebb_jin_value b, bool *equal);
bool ebb_jin_same(struct ebb_jin_value a, struct ebb_jin_value b); /* Python's `is` */
/* op is a token LT, LTEQ, GT, GTEQ. */
enum ebb_status ebb_jin_order(struct ebb_jin_run *run, int op, struct ebb_jin_value a,
                              struct ebb_jin_value b, bool *holds);
enum ebb_status ebb_jin_contains(struct ebb_jin_run *run, struct ebb_jin_value container,
                                 struct ebb_jin_value item, bool *found);
enum ebb_status ebb_jin_binary(struct ebb_jin_run *run, int op, struct ebb_jin_value a,
                               struct ebb_jin_value b, struct ebb_jin_value *out);
enum ebb_status ebb_jin_hash(struct ebb_jin_run *run, struct ebb_jin_value value, bool quiet,
                             bool *possible, uint64_t *hash);
/* Python's slice of a string, list, tuple or range; bounds may be MISSING. */
enum ebb_status ebb_jin_slice(struct ebb_jin_run *run, struct ebb_jin_value value,
                              const struct ebb_jin_value bounds[3], struct ebb_jin_value *out);

/* ---- jinja_iter.c ---- */

enum ebb_jin_iter_kind {
    EBB_ITER_EMPTY,
    EBB_ITER_ITEMS,   /* list, tuple, dict, view, range, by place */
    EBB_ITER_CHARS,   /* a string */
    EBB_ITER_REVERSE, /* list, tuple, dict, view or range from behind */
    EBB_ITER_MAP,     /* source, by filter or attribute */
    EBB_ITER_SELECT,  /* source, by test */
    EBB_ITER_UNIQUE,
    EBB_ITER_FOR_TEST, /* source, by the `if` of a for */
    EBB_ITER_BATCH,
    EBB_ITER_SLICES
};

struct ebb_jin_iter {
    enum ebb_jin_iter_kind kind;
    struct ebb_jin_value over; /* what is walked */
    int64_t at, count;
    struct ebb_jin_iter *source;
    struct ebb_jin_value name;  /* MAP: filter; SELECT: test; MISSING: none */
    struct ebb_jin_value path;  /* an attribute, or MISSING */
    struct ebb_jin_value other; /* MAP: the default; BATCH, SLICES: what fills up */
    struct ebb_jin_args args;
    bool wanted, sensitive;
    struct ebb_jin_dict *seen;
    const struct ebb_jin_node *node;
    struct ebb_jin_scope *scope;
    int64_t size;
};

/* Fails for what cannot be iterated. */
enum ebb_status ebb_jin_iterate(struct ebb_jin_run *run, struct ebb_jin_value value,
                                struct ebb_jin_iter **iter);
enum ebb_status ebb_jin_next(struct ebb_jin_run *run, struct ebb_jin_iter *iter,
                             struct ebb_jin_value *value, bool *more);
bool ebb_jin_is_iterable(struct ebb_jin_value value);
/* len(); false for what has none. */
bool ebb_jin_length(struct ebb_jin_value value, int64_t *length);
enum ebb_status ebb_jin_collect(struct ebb_jin_run *run, struct ebb_jin_value value,
                                struct ebb_jin_value *list);
/* Item `at` of a list, tuple, dict (its key), view or range. */
enum ebb_status ebb_jin_at(struct ebb_jin_run *run, struct ebb_jin_value value, int64_t at,
                           struct ebb_jin_value *out);
enum ebb_status ebb_jin_iter_value(struct ebb_jin_run *run, enum ebb_jin_iter_kind kind,
                                   struct ebb_jin_value *out, struct ebb_jin_iter **iter);

/* ---- jinja_print.c ---- */

/* str(): *value becomes a string. */
enum ebb_status ebb_jin_to_str(struct ebb_jin_run *run, struct ebb_jin_value *value);
enum ebb_status ebb_jin_print(struct ebb_jin_run *run, struct ebb_jin_value value,
                              struct ebb_jin_buf *buf); /* str() */
enum ebb_status ebb_jin_repr(struct ebb_jin_run *run, struct ebb_jin_value value,
                             struct ebb_jin_buf *buf);
enum { EBB_JIN_FLOAT_TEXT = 40 };
const char *ebb_jin_float_repr(double number, char out[EBB_JIN_FLOAT_TEXT]);
enum ebb_status ebb_jin_tojson(struct ebb_jin_run *run, struct ebb_jin_value self,
                               const struct ebb_jin_args *args, struct ebb_jin_value *out);
/* Python's `text % values`; `named` is a dict or MISSING. */
enum ebb_status ebb_jin_percent(struct ebb_jin_run *run, struct ebb_jin_value text,
                                struct ebb_jin_value values, struct ebb_jin_value *out);
enum ebb_status ebb_jin_format(struct ebb_jin_run *run, struct ebb_jin_value self,
                               const struct ebb_jin_args *args, struct ebb_jin_value *out);

/* ---- jinja_unicode.c ---- */

/* The character at `at`; *bytes of it. Text is valid UTF-8. */
int32_t ebb_jin_point(const char *data, size_t bytes, size_t at, size_t *length);
size_t ebb_jin_put_point(int32_t point, char out[4]);
bool ebb_jin_is_space(int32_t point);
bool ebb_jin_is_printable(int32_t point);
bool ebb_jin_is_word(int32_t point); /* of identifiers and \w */
bool ebb_jin_is_alpha(int32_t point);
bool ebb_jin_is_decimal(int32_t point);
bool ebb_jin_is_digit(int32_t point);
bool ebb_jin_is_numeric(int32_t point);
bool ebb_jin_is_upper(int32_t point);
bool ebb_jin_is_lower(int32_t point);
bool ebb_jin_is_title(int32_t point);
enum ebb_jin_case { EBB_CASE_UPPER, EBB_CASE_LOWER, EBB_CASE_TITLE };
/* Adds the character in another case; `data` is the text around it, for the Greek final sigma. */
enum ebb_status ebb_jin_add_cased(struct ebb_jin_run *run, struct ebb_jin_buf *buf,
                                  enum ebb_jin_case way, const char *data, size_t bytes, size_t at);
/* Length of what is left without Unicode white space on the given sides. */
size_t ebb_jin_space_prefix(const char *data, size_t bytes);
size_t ebb_jin_space_suffix(const char *data, size_t bytes);
/* Length of the line end at `at` as Python's splitlines knows them; 0: none. */
size_t ebb_jin_line_end(const char *data, size_t bytes, size_t at);

/* ---- what templates call ---- */

/* Jinja's obj.name and obj[name]. */
enum ebb_status ebb_jin_attribute(struct ebb_jin_run *run, struct ebb_jin_value object,
                                  struct ebb_jin_value name, struct ebb_jin_value *out);
enum ebb_status ebb_jin_item(struct ebb_jin_run *run, struct ebb_jin_value object,
                             struct ebb_jin_value key, struct ebb_jin_value *out);
/* Walks an attribute path "a.b.0"; MISSING gives the value itself. */
enum ebb_status ebb_jin_path(struct ebb_jin_run *run, struct ebb_jin_value value,
                             struct ebb_jin_value path, struct ebb_jin_value other,
                             struct ebb_jin_value *out);
enum ebb_status ebb_jin_call(struct ebb_jin_run *run, struct ebb_jin_value callee,
                             const struct ebb_jin_args *args, struct ebb_jin_value *out);
enum ebb_status ebb_jin_call_macro(struct ebb_jin_run *run, const struct ebb_jin_macro *macro,
                                   const struct ebb_jin_args *args, struct ebb_jin_value *out);
enum ebb_status ebb_jin_filter(struct ebb_jin_run *run, struct ebb_jin_value name,
                               struct ebb_jin_value value, const struct ebb_jin_args *args,
                               struct ebb_jin_value *out);
enum ebb_status ebb_jin_test(struct ebb_jin_run *run, struct ebb_jin_value name,
                             struct ebb_jin_value value, const struct ebb_jin_args *args,
                             bool *holds);
bool ebb_jin_has_filter(struct ebb_jin_value name);
bool ebb_jin_has_test(struct ebb_jin_value name);
bool ebb_jin_global(struct ebb_jin_run *run, struct ebb_jin_value name,
                    struct ebb_jin_value *value);
/* Sorts arguments into values[] by "first second" (names between blanks); those not given are
 * MISSING. Fails for unknown, double or missing ones (`needed` of them have no default). */
enum ebb_status ebb_jin_bind(struct ebb_jin_run *run, const char *what, const char *names,
                             int needed, const struct ebb_jin_args *args,
                             struct ebb_jin_value *values);
/* An integer argument. */
enum ebb_status ebb_jin_want_int(struct ebb_jin_run *run, const char *what,
                                 struct ebb_jin_value value, int64_t *integer);

/* Tables, each ending with a name of NULL. */
const struct ebb_jin_entry_fn *ebb_jin_str_methods(void);
const struct ebb_jin_entry_fn *ebb_jin_text_filters(void);
const struct ebb_jin_entry_fn *ebb_jin_list_filters(void);
const struct ebb_jin_entry_fn *ebb_jin_find(const struct ebb_jin_entry_fn *table,
                                            struct ebb_jin_value name);

/* ---- jinja_exec.c and jinja_eval.c ---- */

/* How a body ended. */
enum ebb_jin_flow { EBB_FLOW_NEXT, EBB_FLOW_BREAK, EBB_FLOW_CONTINUE };
enum ebb_status ebb_jin_exec(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                             struct ebb_jin_scope *scope, enum ebb_jin_flow *flow);
enum ebb_status ebb_jin_eval(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                             struct ebb_jin_scope *scope, struct ebb_jin_value *out);
/* The same for a filter chain over captured text. */
enum ebb_status ebb_jin_eval_chain(struct ebb_jin_run *run, const struct ebb_jin_node *node,
                                   struct ebb_jin_scope *scope, struct ebb_jin_value captured,
                                   struct ebb_jin_value *out);
enum ebb_status ebb_jin_scope_set(struct ebb_jin_run *run, struct ebb_jin_scope *scope, int name,
                                  struct ebb_jin_value value);
enum ebb_status ebb_jin_assign(struct ebb_jin_run *run, const struct ebb_jin_node *target,
                               struct ebb_jin_scope *scope, struct ebb_jin_value value);
enum ebb_status ebb_jin_loop_attribute(struct ebb_jin_run *run, struct ebb_jin_loop *loop,
                                       struct ebb_jin_value name, struct ebb_jin_value *out,
                                       bool *found);
enum ebb_status ebb_jin_loop_repr(struct ebb_jin_run *run, struct ebb_jin_loop *loop,
                                  struct ebb_jin_buf *buf);

#ifdef __cplusplus
}
#endif
#endif
