/* A model directory with random weights, and model directories as places on disk.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_INIT_H
#define EBB_MODEL_INIT_H

#include "model/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stands for a tokenizer directory where the byte tokenizer is wanted. */
#define EBB_TOKENIZER_BYTES "bytes"

/* How a model's weights start where nothing was trained yet: as transformers has it. */
enum ebb_weight_start { EBB_START_NORMAL, EBB_START_ONES, EBB_START_ZEROS };
enum ebb_weight_start ebb_weight_start(enum ebb_field field);

/* Writes DIR with config.json, weights (normal with config's initializer_range or 0.02, norms
 * one, biases zero, as transformers starts them; Philox by weight index, so that the same seed
 * gives the same bytes) in `dtype` and, where tokenizer_dir is not NULL, that directory's
 * tokenizer files; EBB_TOKENIZER_BYTES instead writes the byte tokenizer and makes config.json
 * name its special tokens. The row of pad_token_id starts at zero, as nn.Embedding has it. DIR
 * must not hold a model already. */
enum ebb_status ebb_model_init(struct ebb_ctx *ctx, const char *config_path,
                               const char *tokenizer_dir, const char *dir, enum ebb_dtype dtype,
                               uint64_t seed);

/* Writes DIR/tokenizer.json and tokenizer_config.json of a tokenizer that needs no training:
 * byte-level BPE without merges, the id of a byte is its value. Special: "<|endoftext|>" (ends
 * and pads), "<|begin|>" (begins). Hugging Face tokenizers loads it. DIR/chat_template.jinja writes
 * conversations with these two. */
enum { EBB_BYTES_EOS = 256, EBB_BYTES_BOS = 257, EBB_BYTES_VOCAB = 258 };
enum ebb_status ebb_model_write_bytes_tokenizer(struct ebb_ctx *ctx, const char *dir);

/* Copies what belongs beside weights: config.json (with "dtype"/"torch_dtype" set to what is
 * written), generation_config.json, tokenizer and template files. Missing ones are left out. */
enum ebb_status ebb_model_copy_side_files(struct ebb_ctx *ctx, const char *from, const char *to,
                                          enum ebb_dtype dtype);

/* Only the tokenizer's and templates' files; *found: there is a tokenizer among them. */
enum ebb_status ebb_model_copy_tokenizer_files(struct ebb_ctx *ctx, const char *from,
                                               const char *to, bool *found);
/* The chat template of `from` becomes that of `to`, where `from` has chat_template.jinja: an
 * adapter may have been trained with another than its base model's. */
enum ebb_status ebb_model_copy_chat_template(struct ebb_ctx *ctx, const char *from, const char *to);
/* Is `name` one of the files, or the folder, that lie beside weights? */
bool ebb_model_is_side_file(const char *name);

/* A directory as it is, or a Hub id ("org/name") found in the local Hugging Face cache
 * (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface/hub). Otherwise EBB_BAD_CONFIG with the download
 * command to run. `env` gives those variables' values (rooms outside cli/ read no environment);
 * any may be NULL. The caller frees *dir. */
struct ebb_hub_env {
    const char *hf_hub_cache, *hf_home, *home;
};
enum ebb_status ebb_model_find(struct ebb_ctx *ctx, const char *name_or_path,
                               const struct ebb_hub_env *env, char **dir);

#ifdef __cplusplus
}
#endif
#endif
