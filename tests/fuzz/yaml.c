/* Fuzz target: YAML. What is accepted is a tree within its bounds whose values stand in the text.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/yaml.h"
#include "fuzz.h"

static void check_tree(const struct ebb_yaml *node, int lines, int depth, size_t *nodes)
{
    FUZZ_CHECK(depth <= EBB_YAML_MAX_DEPTH && ++*nodes <= EBB_YAML_MAX_NODES);
    FUZZ_CHECK(node->line >= 1 && node->line <= lines && node->column >= 1);
    FUZZ_CHECK((node->kind == EBB_YAML_SCALAR) == (node->text != NULL));
    FUZZ_CHECK(node->count == 0 || node->items != NULL);
    FUZZ_CHECK(node->count == 0 || node->kind == EBB_YAML_LIST || node->kind == EBB_YAML_MAP);
    for (size_t i = 0; i < node->count; i++) {
        const struct ebb_yaml *child = &node->items[i];
        FUZZ_CHECK((node->kind == EBB_YAML_MAP) == (child->key != NULL));
        if (child->key != NULL) FUZZ_CHECK(ebb_yaml_find(node, child->key) == child);
        check_tree(child, lines, depth + 1, nodes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct ebb_yaml *root;
    fuzz_file("a.yaml", data, bytes);
    if (fuzz_succeeded(ctx, ebb_yaml_load(ctx, "mem/a.yaml", &root))) {
        size_t nodes = 0;
        check_tree(root, (int)bytes + 2, 0, &nodes);
        ebb_yaml_free(ctx, root);
    }
    fuzz_close(ctx);
    return 0;
}
