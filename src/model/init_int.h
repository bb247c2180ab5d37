/* What the files that write model directories share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_INIT_INT_H
#define EBB_MODEL_INIT_INT_H

#include <jansson.h>

#include "model/init.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets "dtype" and "torch_dtype", whichever is there; "torch_dtype" where neither is, which
 * every version reads. */
enum ebb_status ebb_config_set_dtype(struct ebb_ctx *ctx, json_t *config, enum ebb_dtype dtype);
/* Makes config.json name the byte tokenizer's special tokens. */
enum ebb_status ebb_config_set_bytes_tokens(struct ebb_ctx *ctx, json_t *config);
/* Copies tokenizer and template files; a directory without a tokenizer is EBB_BAD_CONFIG. */
enum ebb_status ebb_model_copy_tokenizer(struct ebb_ctx *ctx, const char *from, const char *to);
/* Do both paths lead to one file? False where either is missing. */
bool ebb_path_same(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
