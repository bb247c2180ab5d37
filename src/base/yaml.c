/* YAML through libyaml's events into a small tree that remembers where each value stood.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/yaml.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"

struct reader {
    struct ebb_ctx *ctx;
    const char *name;
    const char *data;
    size_t bytes;
    yaml_parser_t parser;
    int nodes;
    const yaml_event_t *flow; /* the innermost '[' or '{' that is open; NULL: none */
};

static int from_one(size_t at)
{
    return at < INT_MAX ? (int)at + 1 : INT_MAX;
}

static enum ebb_status fail_mark(const struct reader *reader, yaml_mark_t mark, const char *text)
{
    return EBB_FAIL(reader->ctx, EBB_BAD_CONFIG, "%s:%d:%d: %s", reader->name, from_one(mark.line),
                    from_one(mark.column), text);
}

/* libyaml gives no line for bytes that it cannot read as text, only their offset. */
static enum ebb_status fail_bytes(const struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    size_t end = parser->problem_offset < reader->bytes ? parser->problem_offset : reader->bytes;
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < end; i++) {
        mark.column++;
        if (reader->data[i] != '\n') continue;
        mark.line++;
        mark.column = 0;
    }
    return EBB_FAIL(
        reader->ctx, EBB_BAD_CONFIG, "%s:%d:%d: this is not readable as text: %s (byte %zu)",
        reader->name, from_one(mark.line), from_one(mark.column),
        parser->problem != NULL ? parser->problem : "bad bytes", parser->problem_offset);
}

static bool tab_at(const struct reader *reader, yaml_mark_t mark)
{
    return mark.index < reader->bytes && reader->data[mark.index] == '\t';
}

/* Is nothing but blanks and line ends left behind `mark`? Marks count characters, not bytes. */
static bool at_end(const struct reader *reader, yaml_mark_t mark)
{
    size_t at = 0;
    for (size_t characters = 0; at < reader->bytes; at++) {
        bool begins_one = ((unsigned char)reader->data[at] & 0xc0) != 0x80;
        if (begins_one && characters++ == mark.index) break;
    }
    while (at < reader->bytes && memchr(" \t\r\n", reader->data[at], 4) != NULL) at++;
    return at == reader->bytes;
}

static enum ebb_status fail_parser(const struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    /* libyaml would name the file's end, far from what is wrong. */
    if (reader->flow != NULL && parser->error == YAML_PARSER_ERROR &&
        at_end(reader, parser->problem_mark))
        return fail_mark(reader, reader->flow->start_mark,
                         reader->flow->type == YAML_SEQUENCE_START_EVENT
                             ? "this '[' is never closed: a ']' is wanted"
                             : "this '{' is never closed: a '}' is wanted");
    if (parser->error == YAML_MEMORY_ERROR)
        return EBB_FAIL(reader->ctx, EBB_NO_MEMORY, "out of host memory while reading '%s'",
                        reader->name);
    if (parser->error == YAML_READER_ERROR) return fail_bytes(reader);
    yaml_mark_t mark = parser->problem_mark;
    const char *problem = parser->problem != NULL ? parser->problem : "not YAML";
    const char *hint =
        tab_at(reader, mark) ? "\nindent with spaces: YAML does not allow tabs here" : "";
    if (parser->context == NULL)
        return EBB_FAIL(reader->ctx, EBB_BAD_CONFIG, "%s:%d:%d: %s%s", reader->name,
                        from_one(mark.line), from_one(mark.column), problem, hint);
    return EBB_FAIL(reader->ctx, EBB_BAD_CONFIG, "%s:%d:%d: %s, %s that began at line %d%s",
                    reader->name, from_one(mark.line), from_one(mark.column), problem,
                    parser->context, from_one(parser->context_mark.line), hint);
}

static enum ebb_status next_event(struct reader *reader, yaml_event_t *event)
{
    memset(event, 0, sizeof *event);
    return yaml_parser_parse(&reader->parser, event) ? EBB_OK : fail_parser(reader);
}

/* ---- building the tree ---- */

static void free_inside(struct ebb_ctx *ctx, struct ebb_yaml *node)
{
    for (size_t i = 0; i < node->count; i++) free_inside(ctx, &node->items[i]);
    ebb_mem_free(ctx, node->items);
    ebb_mem_free(ctx, node->key);
    ebb_mem_free(ctx, node->text);
    *node = (struct ebb_yaml){0};
}

void ebb_yaml_free(struct ebb_ctx *ctx, struct ebb_yaml *root)
{
    if (root == NULL) return;
    free_inside(ctx, root);
    ebb_mem_free(ctx, root);
}

static enum ebb_status check_plain(const struct reader *reader, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return fail_mark(reader, event->start_mark,
                         "aliases ('*name') are not supported: write the value out");
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default: break;
    }
    if (anchor != NULL)
        return fail_mark(reader, event->start_mark,
                         "anchors ('&name') are not supported: remove it");
    if (tag != NULL)
        return fail_mark(reader, event->start_mark, "tags ('!name') are not supported: remove it");
    return EBB_OK;
}

static bool means_null(const char *text)
{
    static const char *const names[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0) return true;
    return false;
}

static enum ebb_status copy_scalar(struct reader *reader, const yaml_event_t *event, char **text)
{
    const char *value = (const char *)event->data.scalar.value;
    size_t bytes = event->data.scalar.length;
    if (memchr(value, '\0', bytes) != NULL)
        return fail_mark(reader, event->start_mark,
                         "a NUL character ('\\0') is not allowed in a value");
    *text = ebb_mem_strndup(reader->ctx, value, bytes);
    return *text != NULL ? EBB_OK : EBB_NO_MEMORY;
}

static enum ebb_status read_node(struct reader *reader, const yaml_event_t *event, int depth,
                                 struct ebb_yaml *node);

static enum ebb_status read_scalar(struct reader *reader, const yaml_event_t *event,
                                   struct ebb_yaml *node)
{
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && means_null((const char *)event->data.scalar.value)) {
        node->kind = EBB_YAML_NULL;
        return EBB_OK;
    }
    node->kind = EBB_YAML_SCALAR;
    node->quoted = !plain;
    return copy_scalar(reader, event, &node->text);
}

/* A zeroed child behind the others. */
static enum ebb_status add_child(struct reader *reader, struct ebb_yaml *node, size_t *room,
                                 struct ebb_yaml **child)
{
    if (node->count == *room) {
        size_t more = *room == 0 ? 8 : *room * 2;
        struct ebb_yaml *grown = ebb_mem_realloc(reader->ctx, node->items, more * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        node->items = grown;
        *room = more;
    }
    *child = &node->items[node->count++];
    **child = (struct ebb_yaml){0};
    return EBB_OK;
}

static enum ebb_status read_key(struct reader *reader, const yaml_event_t *event,
                                struct ebb_yaml *child)
{
    EBB_TRY(check_plain(reader, event));
    if (event->type != YAML_SCALAR_EVENT)
        return fail_mark(reader, event->start_mark, "a key must be a word, not a list or a map");
    if (event->data.scalar.length == 0)
        return fail_mark(reader, event->start_mark, "a key is missing before ':'");
    child->key_line = from_one(event->start_mark.line);
    child->key_column = from_one(event->start_mark.column);
    return copy_scalar(reader, event, &child->key);
}

static int by_key(const void *a, const void *b)
{
    const struct ebb_yaml *x = *(const struct ebb_yaml *const *)a,
                          *y = *(const struct ebb_yaml *const *)b;
    int order = strcmp(x->key, y->key);
    if (order != 0) return order;
    return x < y ? -1 : x > y; /* both lie in one array, in the order of the file */
}

/* By sorting, so that a map of very many keys does not take quadratic time. */
static enum ebb_status check_unique(struct reader *reader, const struct ebb_yaml *map)
{
    if (map->count < 2) return EBB_OK;
    const struct ebb_yaml **sorted = ebb_mem_alloc(reader->ctx, map->count * sizeof *sorted);
    if (sorted == NULL) return EBB_NO_MEMORY;
    for (size_t i = 0; i < map->count; i++) sorted[i] = &map->items[i];
    qsort(sorted, map->count, sizeof *sorted, by_key);
    enum ebb_status status = EBB_OK;
    for (size_t i = 1; i < map->count && status == EBB_OK; i++) {
        const struct ebb_yaml *first = sorted[i - 1], *again = sorted[i];
        if (strcmp(first->key, again->key) == 0)
            status =
                EBB_FAIL(reader->ctx, EBB_BAD_CONFIG,
                         "%s:%d:%d: '%s' is set twice, first at line %d: remove one", reader->name,
                         again->key_line, again->key_column, again->key, first->key_line);
    }
    ebb_mem_free(reader->ctx, sorted);
    return status;
}

/* The children of a list or map whose start event was just seen, up to its end event. */
static enum ebb_status read_children(struct reader *reader, int depth, struct ebb_yaml *node)
{
    bool is_map = node->kind == EBB_YAML_MAP;
    yaml_event_type_t end = is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    size_t room = 0;
    for (;;) {
        yaml_event_t event;
        EBB_TRY(next_event(reader, &event));
        bool done = event.type == end;
        struct ebb_yaml *child = NULL;
        enum ebb_status status = done ? EBB_OK : add_child(reader, node, &room, &child);
        if (!done && status == EBB_OK && is_map) {
            status = read_key(reader, &event, child);
            yaml_event_delete(&event);
            if (status == EBB_OK) status = next_event(reader, &event);
        }
        if (!done && status == EBB_OK) status = read_node(reader, &event, depth + 1, child);
        yaml_event_delete(&event);
        if (status != EBB_OK) return status;
        if (done) return is_map ? check_unique(reader, node) : EBB_OK;
    }
}

static bool is_flow(const yaml_event_t *start)
{
    return start->type == YAML_SEQUENCE_START_EVENT
               ? start->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE
               : start->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
}

/* The node that `event` begins. What was built stays in `node` even on failure, for the caller to
 * free. */
static enum ebb_status read_node(struct reader *reader, const yaml_event_t *event, int depth,
                                 struct ebb_yaml *node)
{
    EBB_TRY(check_plain(reader, event));
    node->line = from_one(event->start_mark.line);
    node->column = from_one(event->start_mark.column);
    if (++reader->nodes > EBB_YAML_MAX_NODES)
        return fail_mark(reader, event->start_mark,
                         "too many values: a configuration may have 100000");
    if (event->type == YAML_SCALAR_EVENT) return read_scalar(reader, event, node);
    if (depth >= EBB_YAML_MAX_DEPTH)
        return fail_mark(reader, event->start_mark, "nested too deeply: 32 levels are allowed");
    EBB_ASSERT(event->type == YAML_MAPPING_START_EVENT || event->type == YAML_SEQUENCE_START_EVENT);
    node->kind = event->type == YAML_MAPPING_START_EVENT ? EBB_YAML_MAP : EBB_YAML_LIST;
    const yaml_event_t *outer = reader->flow;
    if (is_flow(event)) reader->flow = event;
    EBB_TRY(read_children(reader, depth, node));
    reader->flow = outer;
    return EBB_OK;
}

/* The stream is: start, then for each document start, node, end, then end. */
static enum ebb_status read_stream(struct reader *reader, struct ebb_yaml *root)
{
    bool seen = false;
    for (;;) {
        yaml_event_t event;
        EBB_TRY(next_event(reader, &event));
        enum ebb_status status = EBB_OK;
        bool done = event.type == YAML_STREAM_END_EVENT;
        if (event.type == YAML_DOCUMENT_START_EVENT) {
            if (seen)
                status = fail_mark(reader, event.start_mark,
                                   "a second document begins here: one file holds one");
            seen = true;
        } else if (!done && event.type != YAML_STREAM_START_EVENT &&
                   event.type != YAML_DOCUMENT_END_EVENT) {
            status = read_node(reader, &event, 0, root);
        }
        yaml_event_delete(&event);
        if (status != EBB_OK) return status;
        if (done) break;
    }
    if (!seen) *root = (struct ebb_yaml){.kind = EBB_YAML_MAP, .line = 1, .column = 1};
    return EBB_OK;
}

enum ebb_status ebb_yaml_parse(struct ebb_ctx *ctx, const char *name, const char *data,
                               size_t bytes, struct ebb_yaml **root)
{
    *root = NULL;
    struct reader reader = {.ctx = ctx,
                            .name = name,
                            .data = data != NULL ? data : "",
                            .bytes = data != NULL ? bytes : 0};
    struct ebb_yaml *made = ebb_mem_alloc(ctx, sizeof *made);
    if (made == NULL) return EBB_NO_MEMORY;
    if (!yaml_parser_initialize(&reader.parser)) {
        ebb_mem_free(ctx, made);
        return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while reading '%s'", name);
    }
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)reader.data, reader.bytes);
    enum ebb_status status = read_stream(&reader, made);
    yaml_parser_delete(&reader.parser);
    if (status != EBB_OK) {
        ebb_yaml_free(ctx, made);
        return status;
    }
    *root = made;
    return EBB_OK;
}

enum ebb_status ebb_yaml_load(struct ebb_ctx *ctx, const char *path, struct ebb_yaml **root)
{
    *root = NULL;
    struct ebb_map map;
    EBB_TRY(ebb_map_open(ctx, path, &map));
    enum ebb_status status = ebb_yaml_parse(ctx, path, (const char *)map.data, map.bytes, root);
    ebb_map_close(&map);
    return status;
}

const struct ebb_yaml *ebb_yaml_find(const struct ebb_yaml *map, const char *key)
{
    if (map == NULL || map->kind != EBB_YAML_MAP) return NULL;
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->items[i].key, key) == 0) return &map->items[i];
    return NULL;
}
