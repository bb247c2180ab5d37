/* The ready configurations, shapes and chat templates of configs/, carried inside the program so
 * that it needs no installed files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CLI_EMBEDDED_H
#define EBB_CLI_EMBEDDED_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_embedded {
    const char *name; /* "sft-lora.yaml", "shapes/tiny-llama.json", "chat_templates/chatml.jinja" */
    const char *text;
};

const struct ebb_embedded *ebb_embedded_files(size_t *count);

#ifdef __cplusplus
}
#endif
#endif
