/* YAML through libyaml as a small tree that remembers where each value stood.
 *
 * Scalars stay text: the option table decides what they mean, so that 'on' or '2e-4' is never
 * guessed at; only a plain ~, null or nothing is EBB_YAML_NULL. Anchors, aliases and tags are
 * refused, depth and node count are bounded, duplicate keys and a second document are errors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_YAML_H
#define EBB_YAML_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_yaml_kind { EBB_YAML_NULL, EBB_YAML_SCALAR, EBB_YAML_LIST, EBB_YAML_MAP };

struct ebb_yaml {
    enum ebb_yaml_kind kind;
    char *key;                /* in a map: the key's text; else NULL */
    char *text;               /* scalar: its text */
    bool quoted;              /* scalar: it was quoted, so it is text whatever it looks like */
    int line, column;         /* of the value, from 1 */
    int key_line, key_column; /* in a map: of the key; else 0 */
    size_t count;             /* list, map: children */
    struct ebb_yaml *items;   /* [count], owned by this node */
};

enum { EBB_YAML_MAX_DEPTH = 32, EBB_YAML_MAX_NODES = 100000 };

/* EBB_BAD_CONFIG with "path:line:column: ...". An empty file is an empty map. The caller frees
 * *root. */
enum ebb_status ebb_yaml_load(struct ebb_ctx *ctx, const char *path, struct ebb_yaml **root);
/* Text from memory (a value on the command line: '{x: host}'); `name` stands for the path in
 * messages. */
enum ebb_status ebb_yaml_parse(struct ebb_ctx *ctx, const char *name, const char *data,
                               size_t bytes, struct ebb_yaml **root);
void ebb_yaml_free(struct ebb_ctx *ctx, struct ebb_yaml *root); /* accepts NULL */
const struct ebb_yaml *ebb_yaml_find(const struct ebb_yaml *map, const char *key);

#ifdef __cplusplus
}
#endif
#endif
