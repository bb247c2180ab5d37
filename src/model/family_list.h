/* Every model family, once: a row here and a file of that name add one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_LIST_H
#define EBB_MODEL_LIST_H

/* X(name): name.c defines `const struct ebb_family ebb_family_name`. */
#define EBB_FAMILY_LIST(X)                                                                         \
    X(llama)                                                                                       \
    X(mistral)                                                                                     \
    X(qwen2)                                                                                       \
    X(qwen3)

#endif
